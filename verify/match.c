#include "verify/match.h"

#include <inttypes.h>
#include <string.h>

#include "npu-worker/engine/hooks.h"
#include "verify/report.h"
#include "verify/rig.h"

static enum svc_code advance(struct vfy_match *m, struct svc_err *err)
{
	if (++m->next < m->frame.count)
		return SVC_OK;
	if (!m->a) {
		m->drained = true;
		return SVC_OK;
	}
	m->next = 0;
	enum svc_code code = vfy_reader_next(m->a, &m->frame, err);
	m->drained = m->frame.count == 0;
	return code;
}

static bool is_beyond_depth(const struct vfy_match *m, const struct vfy_record *record)
{
	if (m->options.depth == 0)
		return false;
	return record->layer >= m->options.depth || record->checkpoint == ENGINE_FINAL_NORM;
}

static void note_place(struct vfy_place *place, const struct vfy_record *record,
		       const struct vfy_diff *diff)
{
	if (place->found)
		return;
	place->found = true;
	place->record = *record;
	place->is_numbers = diff != NULL;
	if (diff)
		place->diff = *diff;
}

/* diff NULL: no numbers. */
static void note_trace(struct vfy_verdict *v, const struct vfy_record *record,
		       const struct vfy_diff *diff)
{
	if (v->first.found && v->n_trace < VFY_TRACE)
		note_place(&v->trace[v->n_trace++], record, diff);
}

static void note_diff(struct vfy_match *m, const struct vfy_record *record,
		      const struct vfy_diff *diff)
{
	struct vfy_verdict *v = &m->verdict;
	struct vfy_point *point = &v->points[record->checkpoint];
	v->max_ulp = diff->ulp.value > v->max_ulp ? diff->ulp.value : v->max_ulp;
	v->ulp_undefined += diff->ulp_undefined;
	point->max_ulp = diff->ulp.value > point->max_ulp ? diff->ulp.value : point->max_ulp;
	point->max_abs = diff->abs.value > point->max_abs ? diff->abs.value : point->max_abs;
	if (diff->relative_l2 > point->max_rel_l2)
		point->max_rel_l2 = diff->relative_l2;
	if (point->min_correlation > diff->correlation)
		point->min_correlation = diff->correlation;
	/* An undefined error is not within any bound. */
	if (m->options.rel > 0 && !(diff->relative_l2 <= m->options.rel))
		note_place(&v->first_rel, record, diff);
}

static int32_t argmax_of(const struct vfy_record *record, const void *data)
{
	int32_t id = -1;
	if (record->checkpoint == VFY_TOP && record->bytes == VFY_TOP_COUNT * 8)
		memcpy(&id, data, sizeof id);
	else if (record->checkpoint == VFY_LOGITS && record->type == VFY_RECORD_F32)
		id = vfy_argmax(data, record->bytes / 4);
	return id;
}

static void count_rows(struct vfy_match *m, const struct vfy_record *record, bool same)
{
	struct vfy_verdict *v = &m->verdict;
	if (record->checkpoint == VFY_LOGITS || record->checkpoint == VFY_LOGITS_HASH) {
		v->rows++;
		v->rows_identical += same;
	}
	if (record->checkpoint != VFY_STATE_HASH && record->checkpoint != ENGINE_KV_WRITE)
		return;
	if (m->state_position != record->position + 1) {
		v->states++;
		v->states_identical++;
		m->state_position = record->position + 1;
		m->state_differs = false;
	}
	if (!same && !m->state_differs) {
		m->state_differs = true;
		v->states_identical--;
	}
}

static enum svc_code compare_records(struct vfy_match *m, const struct vfy_record *a,
				     const void *data_a, const struct vfy_record *b,
				     const void *data_b, struct svc_err *err)
{
	struct vfy_verdict *v = &m->verdict;
	if (a->type != b->type || a->rows != b->rows || a->cols != b->cols) {
		v->incomparable++;
		return SVC_OK;
	}
	bool same = memcmp(data_a, data_b, a->bytes) == 0;
	if (m->options.visit)
		m->options.visit(m->options.visit_context, a, data_a, data_b);
	v->compared++;
	v->identical += same;
	if (v->points[a->checkpoint].compared++ == 0)
		v->points[a->checkpoint].min_correlation = 1;
	v->points[a->checkpoint].different += !same;
	count_rows(m, a, same);
	if (a->checkpoint == VFY_LOGITS || a->checkpoint == VFY_TOP) {
		v->argmax_compared++;
		v->argmax_flips += argmax_of(a, data_a) != argmax_of(b, data_b);
	}
	bool wants_trace = v->first.found && v->n_trace < VFY_TRACE;
	if (same && !wants_trace)
		return SVC_OK;
	struct vfy_array left, right;
	struct vfy_diff diff;
	if (!vfy_record_array(a, data_a, &left) || !vfy_record_array(b, data_b, &right)) {
		if (!same)
			note_place(&v->first, a, NULL);
		note_trace(v, a, NULL);
		return SVC_OK;
	}
	enum svc_code code = vfy_compare(&left, &right, &diff, err);
	if (code)
		return code;
	if (!same) {
		note_place(&v->first, a, &diff);
		note_diff(m, a, &diff);
	}
	note_trace(v, a, &diff);
	return SVC_OK;
}

static enum svc_code match_one(struct vfy_match *m, const struct vfy_record *b, const void *data_b,
			       struct svc_err *err)
{
	if (b->checkpoint >= VFY_CHECKPOINT_END || is_beyond_depth(m, b))
		return SVC_OK;
	while (!m->drained) {
		const void *data_a = NULL;
		int order = -1;
		if (m->frame.count > 0) {
			const struct vfy_record *a = vfy_recorder_at(&m->frame, m->next, &data_a);
			order = vfy_record_order(a, b);
			if (order > 0)
				break;
			enum svc_code code =
				order == 0 ? compare_records(m, a, data_a, b, data_b, err) : SVC_OK;
			if (code)
				return code;
			m->verdict.only_a += order < 0 && !is_beyond_depth(m, a);
		}
		enum svc_code code = advance(m, err);
		if (code || order == 0)
			return code;
	}
	m->verdict.only_b++;
	return SVC_OK;
}

enum svc_code vfy_match_put(void *context, struct vfy_recorder *b, struct svc_err *err)
{
	struct vfy_match *match = context;
	enum svc_code code = SVC_OK;
	for (size_t i = 0; i < b->count && !code; i++) {
		const void *data;
		const struct vfy_record *record = vfy_recorder_at(b, i, &data);
		code = match_one(match, record, data, err);
	}
	vfy_recorder_clear(b);
	return code;
}

enum svc_code vfy_match_finish(struct vfy_match *m, struct svc_err *err)
{
	while (!m->drained) {
		if (m->frame.count > 0) {
			const void *data;
			m->verdict.only_a +=
				!is_beyond_depth(m, vfy_recorder_at(&m->frame, m->next, &data));
		}
		enum svc_code code = advance(m, err);
		if (code)
			return code;
	}
	return SVC_OK;
}

void vfy_match_free(struct vfy_match *match)
{
	vfy_recorder_free(&match->frame);
}

bool vfy_verdict_is_identical(const struct vfy_verdict *v)
{
	return v->compared > 0 && v->identical == v->compared && v->only_a == 0 && v->only_b == 0 &&
	       v->incomparable == 0;
}

void vfy_place_text(const struct vfy_record *record, char text[128])
{
	snprintf(text, 128, "position %" PRIu32 ", layer %" PRIu32 ", %s, part %" PRIu32,
		 record->position, record->layer, vfy_checkpoint_name(record->checkpoint),
		 record->part);
}

static json_t *place_json(const struct vfy_place *place)
{
	if (!place->found)
		return json_null();
	const struct vfy_record *r = &place->record;
	json_t *object =
		json_pack("{s:I, s:I, s:s, s:I, s:I}", "position", (json_int_t)r->position, "layer",
			  (json_int_t)r->layer, "checkpoint", vfy_checkpoint_name(r->checkpoint),
			  "part", (json_int_t)r->part, "step", (json_int_t)r->step);
	if (place->is_numbers)
		json_object_set_new(
			object, "diff",
			vfy_diff_json(&place->diff, r->type == VFY_RECORD_F16 ? VFY_F16 : VFY_F32));
	return object;
}

static json_t *points_json(const struct vfy_verdict *v)
{
	json_t *list = json_array();
	for (uint32_t c = 0; c < VFY_CHECKPOINT_END; c++) {
		const struct vfy_point *p = &v->points[c];
		if (p->compared == 0)
			continue;
		json_array_append_new(
			list,
			json_pack("{s:s, s:I, s:I, s:o, s:o, s:o, s:o}", "checkpoint",
				  vfy_checkpoint_name(c), "compared", (json_int_t)p->compared,
				  "different", (json_int_t)p->different, "max_ulp",
				  vfy_json_real(p->max_ulp), "max_abs", vfy_json_real(p->max_abs),
				  "max_relative_l2", vfy_json_real(p->max_rel_l2),
				  "min_correlation", vfy_json_real(p->min_correlation)));
	}
	return list;
}

json_t *vfy_verdict_json(const struct vfy_verdict *v)
{
	return json_pack("{s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:I, "
			 "s:o, s:o, s:o}",
			 "identical", vfy_verdict_is_identical(v), "records",
			 (json_int_t)v->compared, "records_identical", (json_int_t)v->identical,
			 "only_a", (json_int_t)v->only_a, "only_b", (json_int_t)v->only_b,
			 "incomparable", (json_int_t)v->incomparable, "rows", (json_int_t)v->rows,
			 "rows_identical", (json_int_t)v->rows_identical, "states",
			 (json_int_t)v->states, "states_identical", (json_int_t)v->states_identical,
			 "argmax_compared", (json_int_t)v->argmax_compared, "argmax_flips",
			 (json_int_t)v->argmax_flips, "max_ulp", vfy_json_real(v->max_ulp),
			 "ulp_undefined", (json_int_t)v->ulp_undefined, "first_difference",
			 place_json(&v->first), "first_above_rel", place_json(&v->first_rel),
			 "checkpoints", points_json(v));
}

static void print_place(const struct vfy_place *place, const char *title, FILE *out)
{
	char text[128];
	if (!place->found)
		return;
	vfy_place_text(&place->record, text);
	fprintf(out, "%s: %s\n", title, text);
	if (place->is_numbers)
		vfy_diff_print(&place->diff,
			       place->record.type == VFY_RECORD_F16 ? VFY_F16 : VFY_F32, "    ",
			       out);
}

static void print_points(const struct vfy_verdict *v, FILE *out)
{
	fprintf(out, "  %-15s %10s %10s %12s %12s %12s %12s\n", "checkpoint", "records", "differ",
		"max ULP", "max abs", "max rel L2", "min corr");
	for (uint32_t c = 0; c < VFY_CHECKPOINT_END; c++) {
		const struct vfy_point *p = &v->points[c];
		if (p->compared)
			fprintf(out,
				"  %-15s %10" PRIu64 " %10" PRIu64 " %12.0f %12.4g %12.4g %12.9f\n",
				vfy_checkpoint_name(c), p->compared, p->different, p->max_ulp,
				p->max_abs, p->max_rel_l2, p->min_correlation);
	}
}

void vfy_verdict_print(const struct vfy_verdict *v, const char *title, FILE *out)
{
	if (v->rows)
		fprintf(out,
			"%s: %" PRIu64 "/%" PRIu64 " byte-identical, %.0f ULP, %" PRIu64
			" argmax flips\n",
			title, v->rows_identical, v->rows, v->max_ulp, v->argmax_flips);
	fprintf(out, "records: %" PRIu64 "/%" PRIu64 " identical", v->identical, v->compared);
	if (v->states)
		fprintf(out, ", state: %" PRIu64 "/%" PRIu64 " positions identical",
			v->states_identical, v->states);
	fprintf(out, "\n");
	if (v->only_a || v->only_b || v->incomparable)
		fprintf(out,
			"not compared: %" PRIu64 " records only in A, %" PRIu64
			" only in B, %" PRIu64 " of another type or shape\n",
			v->only_a, v->only_b, v->incomparable);
	if (!v->first.found)
		return;
	print_place(&v->first, "first difference", out);
	print_place(&v->first_rel, "first above --rel", out);
	print_points(v, out);
}
