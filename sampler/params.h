/* sampler/params.h: what a request asks of the sampler, copied out of shared memory and checked.
 * The request body may be damaged or changed by another process while it is read: every value is
 * copied once, checked in the copy, and only the copy is used. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/span.h"
#include "shm/layout.h"

/* Limits of a request; the gateway refuses the same ones earlier. */
#define SMP_STOPS_MAX	     16u
#define SMP_STOP_BYTES_MAX   256u
#define SMP_STOP_IDS_MAX     128u
#define SMP_BIASES_MAX	     1024u
#define SMP_TOP_LOGPROBS_MAX 20u
#define SMP_BIAS_MAX	     100.0f

/* The sampler's regions of a request body: borrowed and untrusted. */
struct smp_request {
	const struct body_params *params;
	struct span stops;    /* params->n_stop times: uint32 length, bytes, padding to 4 */
	struct span stop_ids; /* int32[params->n_stop_ids] */
	struct span biases;   /* struct body_bias[params->n_bias] */
};

/* A checked copy; the arrays live in the arena it was read into. */
struct smp_params {
	struct body_params num;
	struct span stops[SMP_STOPS_MAX];
	const int32_t *stop_ids;
	const struct body_bias *biases;
};

/* Copies the request and checks the copy: types' ranges, no NaN, ids below n_vocab, lengths within
 * their regions. SVC_INVALID names the API field and its range; SVC_CORRUPT when a region is
 * shorter than its count says. */
enum svc_code smp_params_read(const struct smp_request *request, uint32_t n_vocab,
			      struct arena *arena, struct smp_params *ret_params,
			      struct svc_err *err) SVC_CHECKED;

/* The values of a request that names none: temperature 1, every filter and penalty off. */
void smp_params_default(struct body_params *ret_params);

static inline bool smp_params_has(const struct smp_params *params, enum body_flag flag)
{
	return (params->num.flags & (uint32_t)flag) != 0;
}
