/* lockstep verify tape: what a server's samplers saw against an engine of one's own. */
#include "verify/tape.h"

#include <inttypes.h>
#include <stdio.h>

#include "cli/verify.h"
#include "cli/verify_side.h"

static const struct opt tape_options[] = {
	{"json", OPT_BOOL, "false", 0, 0, NULL, "as JSON"},
	{0},
};

static bool is_same(const struct vfy_tape *tape, const struct vfy_tape_result *r)
{
	return r->draws > 0 && r->draws == r->identical && r->redrawn == r->redrawn_same &&
	       tape->again_different == 0;
}

static void print_place(const char *what, const struct vfy_tape_place *place)
{
	printf("first %s: request %" PRIu64 ", choice %" PRIu32 ", token %" PRIu32
	       " of the answer\n",
	       what, place->request, place->choice, place->index);
}

static void print_result(const struct vfy_tape *tape, const struct vfy_tape_result *r)
{
	printf("tape: %" PRIu64 "/%" PRIu64 " draws byte-identical, in %" PRIu32 " answers\n",
	       r->identical, r->draws, r->answers);
	printf("%" PRIu64 " lines, %" PRIu64 " of a token that was drawn before, %" PRIu64
	       " of them otherwise, %" PRIu64 " cut off; %" PRIu32
	       " answers lack lines and weren't run\n",
	       tape->lines, tape->again, tape->again_different, tape->cut, r->incomplete);
	printf("%" PRIu64 " tokens drawn again from these logits, %" PRIu64
	       " of them otherwise; %" PRIu64 " depend on more than numbers\n",
	       r->redrawn, r->redrawn - r->redrawn_same, r->draws - r->redrawn);
	if (r->draws > r->identical)
		print_place("difference", &r->first);
	if (r->redrawn > r->redrawn_same)
		print_place("other token", &r->first_other);
}

static json_t *place_json(bool is_there, const struct vfy_tape_place *place)
{
	return is_there ? json_pack("{s:I, s:I, s:I}", "request", (json_int_t)place->request,
				    "choice", (json_int_t)place->choice, "index",
				    (json_int_t)place->index)
			: json_null();
}

static json_t *result_json(const struct vfy_tape *tape, const struct vfy_tape_result *r)
{
	return json_pack(
		"{s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "identical",
		is_same(tape, r), "answers", (json_int_t)r->answers, "incomplete",
		(json_int_t)r->incomplete, "draws", (json_int_t)r->draws, "draws_identical",
		(json_int_t)r->identical, "lines", (json_int_t)tape->lines, "drawn_again",
		(json_int_t)tape->again, "drawn_again_otherwise", (json_int_t)tape->again_different,
		"redrawn", (json_int_t)r->redrawn, "redrawn_same", (json_int_t)r->redrawn_same,
		"first_difference", place_json(r->draws > r->identical, &r->first),
		"first_other_token", place_json(r->redrawn > r->redrawn_same, &r->first_other));
}

int verify_tape(int argc, char **argv)
{
	const struct opt_source source = {
		"lockstep verify tape FILE",
		"the draws of a server (lockstep-sampler --tape FILE), computed again",
		{verify_engine_options, tape_options},
		true};
	struct opt_set *options = NULL;
	struct svc_err err = {0};
	struct vfy_config config = {0};
	struct vfy_tape tape = {0};
	struct vfy_tape_result result = {0};
	int status;
	if (!cli_options(&source, argc, argv, &options, &status))
		return status;
	enum svc_code code = verify_read_config(options, &config, &err);
	if (!code && opt_positional_count(options) != 1)
		code = svc_fail(&err, SVC_USAGE, __func__,
				"usage: lockstep verify tape FILE --model FILE ...");
	code = code ? code : vfy_tape_read(opt_positional(options, 0), &tape, &err);
	code = code ? code : vfy_tape_replay(&config, &tape, &result, &err);
	bool same = !code && is_same(&tape, &result);
	if (!code && opt_bool(options, "json"))
		verify_print_json(result_json(&tape, &result));
	else if (!code)
		print_result(&tape, &result);
	vfy_tape_free(&tape);
	opt_free(options);
	return code ? cli_fail(&err) : same ? VERIFY_SAME : VERIFY_DIFFERENT;
}
