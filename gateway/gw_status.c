#include "gateway/gw_status.h"

#include <inttypes.h>
#include <stdlib.h>

#include "services/summary.h"
#include "shm/body.h"

#define LOOK_EVERY_US 50000u
#define EVENTS	      256u

struct event {
	uint64_t at_ms;
	const char *kind; /* a state of struct svc_process, "gone", or "moved" */
	enum shm_role role;
	uint32_t instance;
	uint64_t epoch;
	uint64_t request, from; /* "moved": the request, and the incarnation that had it */
};

/* Whom a request came back to at the last look, as numbers of incarnations. */
struct place {
	uint64_t generation, worker, sampler;
};

struct seen {
	uint64_t number;
	enum shm_role role;
	uint32_t instance;
	const char *state;
};

struct gw_watch {
	uint64_t looked_us, next; /* number of the next event; the first is 1 */
	struct event events[EVENTS];
	struct seen seen[INC_COUNT];
	struct place places[]; /* [n_table] */
};

struct gw_watch *gw_watch_new(const struct shm_run *run)
{
	struct gw_watch *watch = calloc(1, sizeof *watch + run->n_table * sizeof *watch->places);
	if (watch)
		watch->next = 1;
	return watch;
}

struct gw_watch *gw_watch_free(struct gw_watch *watch)
{
	free(watch);
	return NULL;
}

static void note(struct gw_watch *watch, struct event event)
{
	event.at_ms = svc_now_us() / 1000;
	watch->events[watch->next++ % EVENTS] = event;
}

static void process_note(struct gw_watch *watch, const struct seen *seen, const char *kind)
{
	note(watch, (struct event){.kind = kind,
				   .role = seen->role,
				   .instance = seen->instance,
				   .epoch = seen->number});
}

static void processes_look(struct gw_watch *watch, const struct shm_run *run)
{
	struct svc_summary summary;
	bool there[INC_COUNT] = {false};
	svc_summarise(run, &summary);
	for (uint32_t i = 0; i < summary.n_processes; i++) {
		const struct svc_process *process = &summary.processes[i];
		struct seen *before = &watch->seen[process->entry];
		there[process->entry] = true;
		if (before->number && before->number != process->number)
			process_note(watch, before, "gone");
		if (before->number == process->number && before->state == process->state)
			continue;
		*before = (struct seen){process->number, process->role, process->instance,
					process->state};
		process_note(watch, before, process->state);
	}
	for (uint32_t entry = 1; entry < INC_COUNT; entry++) {
		if (there[entry] || !watch->seen[entry].number)
			continue;
		process_note(watch, &watch->seen[entry], "gone");
		watch->seen[entry].number = 0;
	}
}

static uint64_t number_of(const struct shm_run *run, uint32_t entry)
{
	return entry < INC_COUNT ? atomic_load(&run->ctl->incs[entry].number) : 0;
}

static void moved_note(struct gw_watch *watch, const struct shm_run *run, uint32_t slot,
		       enum shm_role role, uint64_t *before, uint32_t entry)
{
	uint64_t number = number_of(run, entry);
	if (!number || number == *before)
		return;
	if (*before)
		note(watch, (struct event){.kind = "moved",
					   .role = role,
					   .instance = run->ctl->incs[entry].instance,
					   .epoch = number,
					   .request = atomic_load(&run->slots[slot].request),
					   .from = *before});
	*before = number;
}

static bool is_running(struct slot_state word)
{
	return word.stage == STAGE_TOKENIZE || word.stage == STAGE_COMPUTE ||
	       word.stage == STAGE_SAMPLE || word.stage == STAGE_RECLAIM;
}

static void requests_look(struct gw_watch *watch, const struct shm_run *run)
{
	for (uint32_t slot = 0; slot < run->n_table; slot++) {
		if (!is_running(slot_load(run, slot)))
			continue;
		struct place *place = &watch->places[slot];
		struct body_seen seen = body_peek(run, slot);
		if (!seen.body)
			continue;
		uint32_t worker = atomic_load(&seen.body->worker);
		uint32_t sampler = atomic_load(&seen.body->sampler);
		uint64_t generation = atomic_load(&run->slots[slot].generation);
		/* The body may have become another request's in between. */
		if (!body_stands(run, slot, &seen))
			continue;
		if (place->generation != generation)
			*place = (struct place){.generation = generation};
		moved_note(watch, run, slot, ROLE_WORKER, &place->worker, worker);
		moved_note(watch, run, slot, ROLE_SAMPLER, &place->sampler, sampler);
	}
}

void gw_watch_look(struct gw_watch *watch, const struct shm_run *run, uint64_t now_us)
{
	if (now_us - watch->looked_us < LOOK_EVERY_US)
		return;
	watch->looked_us = now_us;
	processes_look(watch, run);
	requests_look(watch, run);
}

static void request_print(struct buf *out, const struct gw_watch *watch, const struct shm_run *run,
			  uint32_t slot, bool first)
{
	struct body_seen seen = body_peek(run, slot);
	const struct slot_line *line = &run->slots[slot];
	const struct place *place = &watch->places[slot];
	uint32_t prompt = 0, computed = 0, tokens = 0, takeovers = 0;
	if (seen.body) {
		prompt = atomic_load(&seen.body->n_prompt);
		computed = atomic_load(&seen.body->n_kv);
		tokens = atomic_load(&seen.body->n_tokens);
		takeovers = atomic_load(&seen.body->takeovers);
	}
	buf_print(out,
		  "%s{\"slot\":%" PRIu32 ",\"request\":\"%" PRIx64 "\",\"choice\":%u,"
		  "\"stage\":\"%s\",\"owner\":%" PRIu64 ",\"turn\":%" PRIu64,
		  first ? "" : ",", slot, atomic_load(&line->request), line->choice,
		  slot_stage_name(seen.word.stage), number_of(run, seen.word.owner),
		  seen.word.turn);
	buf_print(out,
		  ",\"gateway\":%" PRIu64 ",\"worker\":%" PRIu64 ",\"sampler\":%" PRIu64
		  ",\"prompt\":%" PRIu32 ",\"computed\":%" PRIu32 ",\"tokens\":%" PRIu32
		  ",\"takeovers\":%" PRIu32 "}",
		  number_of(run, atomic_load(&line->gateway)), place->worker, place->sampler,
		  prompt, computed, tokens, takeovers);
}

static void event_print(struct buf *out, const struct event *event, uint64_t number, bool first)
{
	buf_print(out,
		  "%s{\"number\":%" PRIu64 ",\"at_ms\":%" PRIu64
		  ",\"kind\":\"%s\",\"role\":\"%s\",\"instance\":%" PRIu32 ",\"epoch\":%" PRIu64,
		  first ? "" : ",", number, event->at_ms, event->kind, inc_role_name(event->role),
		  event->instance, event->epoch);
	if (event->request)
		buf_print(out, ",\"request\":\"%" PRIx64 "\",\"from\":%" PRIu64, event->request,
			  event->from);
	buf_append(out, "}", 1);
}

void gw_watch_print(struct buf *out, const struct gw_watch *watch, const struct shm_run *run,
		    uint64_t after)
{
	struct svc_summary summary;
	bool first = true;
	uint64_t oldest = watch->next > EVENTS ? watch->next - EVENTS : 1;
	svc_summarise(run, &summary);
	buf_append(out, "{", 1);
	svc_summary_print(out, run, &summary);
	buf_print(out, ",\"me\":%" PRIu64, run->number);
	buf_print(out, ",\"now_ms\":%" PRIu64 ",\"next\":%" PRIu64 ",\"requests\":[",
		  svc_now_us() / 1000, watch->next);
	for (uint32_t slot = 0; slot < run->n_table; slot++) {
		if (!is_running(slot_load(run, slot)))
			continue;
		request_print(out, watch, run, slot, first);
		first = false;
	}
	buf_append(out, "],\"events\":[", 12);
	if (after < oldest)
		after = oldest;
	for (uint64_t number = after; number < watch->next; number++)
		event_print(out, &watch->events[number % EVENTS], number, number == after);
	buf_append(out, "]}", 2);
}
