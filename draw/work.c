#include "draw/work.h"

#include <stdlib.h>

enum svc_code draw_work_open(uint32_t n_vocab, enum draw_isa isa, struct draw_work **ret_work,
			     struct svc_err *err)
{
	const struct draw_kernels *kernels = draw_kernels_get(isa);
	if (!kernels)
		return svc_fail_param(
			err, SVC_BAD_CONFIG, "isa",
			"this CPU lacks the instruction set asked for; leave isa at auto");
	if (n_vocab == 0 || n_vocab > DRAW_VOCAB_MAX)
		return svc_fail(err, SVC_BAD_MODEL, __func__,
				"a vocabulary of %u tokens: 1 to %u are supported", n_vocab,
				DRAW_VOCAB_MAX);
	struct draw_work *work = calloc(1, sizeof *work);
	if (!work)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "no memory for a sampling thread");
	arena_init(&work->arena, 0);
	enum svc_code code = draw_row_init(n_vocab, kernels, &work->arena, &work->row, err);
	if (code == SVC_OK)
		code = draw_set_init(n_vocab, &work->arena, &work->set, err);
	if (code != SVC_OK) {
		draw_work_free(work);
		return code;
	}
	*ret_work = work;
	return SVC_OK;
}

struct draw_work *draw_work_free(struct draw_work *work)
{
	if (work)
		arena_free(&work->arena);
	free(work);
	return NULL;
}
