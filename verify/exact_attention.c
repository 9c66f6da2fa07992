#include "verify/exact_attention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "npu-worker/kernels/attention.h"

/* The keys oldest .. position of a KV head, and what the query heads that share it make of them. */
struct view {
	const struct model_config *config;
	uint32_t oldest, n, kv_head;
	float *keys, *values; /* [n][head_dim] */
	double *weights;      /* [n] */
};

/* A vector as it lies in the pages of both sides. */
static void read_vector(struct vfy_exact *e, uint32_t position, uint32_t part, float *ret_vector)
{
	float other[KERNELS_MAX_HEAD_DIM];
	size_t bytes = vfy_rig_info(e->rig)->config.head_dim * sizeof *other;
	vfy_rig_read_kv(e->rig, position, e->layer, part, ret_vector);
	vfy_rig_read_kv(e->other, position, e->layer, part, other);
	e->same_inputs &= memcmp(ret_vector, other, bytes) == 0;
}

static void read_keys(struct vfy_exact *e, const struct view *view)
{
	uint32_t dim = view->config->head_dim, part = 2 * view->kv_head;
	for (uint32_t i = 0; i < view->n; i++) {
		read_vector(e, view->oldest + i, part, view->keys + (size_t)i * dim);
		read_vector(e, view->oldest + i, part + 1, view->values + (size_t)i * dim);
	}
}

static double score(const struct view *view, const float *q, uint32_t key)
{
	const float *k = view->keys + (size_t)key * view->config->head_dim;
	double cap = (double)view->config->attn_softcap, sum = 0;
	for (uint32_t i = 0; i < view->config->head_dim; i++)
		sum += (double)q[i] * (double)k[i];
	sum *= (double)view->config->attn_scale;
	return cap > 0 ? cap * tanh(sum / cap) : sum;
}

static void attend(const struct view *view, const float *q, double *ret_out)
{
	double high = -INFINITY, sum = 0;
	for (uint32_t key = 0; key < view->n; key++) {
		view->weights[key] = score(view, q, key);
		high = fmax(high, view->weights[key]);
	}
	for (uint32_t key = 0; key < view->n; key++) {
		view->weights[key] = exp(view->weights[key] - high);
		sum += view->weights[key];
	}
	for (uint32_t i = 0; i < view->config->head_dim; i++) {
		double out = 0;
		for (uint32_t key = 0; key < view->n; key++)
			out += view->weights[key] *
			       (double)view->values[(size_t)key * view->config->head_dim + i];
		ret_out[i] = out / sum;
	}
}

bool vfy_exact_attention(struct vfy_exact *e, const struct vfy_record *record, const float *q)
{
	const struct model_config *c = &vfy_rig_info(e->rig)->config;
	uint32_t window = c->windowed[e->layer] ? c->window : 0, position = record->position;
	struct view view = {.config = c,
			    .oldest = window && position >= window ? position - window + 1 : 0};
	view.n = position - view.oldest + 1;
	if (vfy_rig_kv_bytes(e->rig) != sizeof(float) ||
	    vfy_rig_kv_bytes(e->other) != sizeof(float))
		return false;
	view.keys = malloc((size_t)view.n * c->head_dim * sizeof *view.keys);
	view.values = malloc((size_t)view.n * c->head_dim * sizeof *view.values);
	view.weights = malloc(view.n * sizeof *view.weights);
	bool good = view.keys && view.values && view.weights;
	e->failed |= !good;
	for (uint32_t head = 0; head < c->n_heads && good; head++) {
		view.kv_head = head / (c->n_heads / c->n_kv_heads);
		if (head % (c->n_heads / c->n_kv_heads) == 0)
			read_keys(e, &view);
		attend(&view, q + (size_t)head * c->head_dim,
		       e->value + (size_t)head * c->head_dim);
	}
	free(view.keys);
	free(view.values);
	free(view.weights);
	return good;
}
