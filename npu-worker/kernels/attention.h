/* npu-worker/kernels/attention.h: attention of one sequence's consecutive query positions over the
 * keys of one KV head, read from KV pages.
 *
 * A page holds 64 consecutive positions: page i of a sequence has the keys 64i .. 64i+63. In it
 * every (layer, KV head) has two tiles: K transposed, [head_dim][64], and V, [64][head_dim rounded
 * up to 16]; elements of the KV type. Behind an int8 tile stand the steps of its 64 keys, float32.
 * Both start 64-byte aligned. kernels->kv_write puts a position's vectors there; keys are read only
 * from there, so they are always the rounded ones.
 *
 * The query at position p sees the keys from max(0, p - window + 1) to p. Pages without a visible
 * key are not touched (their pointers may be NULL); in the others, what lies at places that are not
 * visible may be anything. The result of a query depends on its vector, its position and the
 * visible keys only. */
#pragma once
#include "npu-worker/kernels/kernels.h"

enum { KERNELS_PAGE_KEYS = 64, KERNELS_MAX_HEAD_DIM = 512 };
/* Of an int8 tile, behind its codes. */
#define KERNELS_STEPS_BYTES (KERNELS_PAGE_KEYS * sizeof(float))

struct kernels_attention {
	enum kernels_kv kv;
	uint32_t head_dim;	     /* 1..KERNELS_MAX_HEAD_DIM */
	const uint8_t *const *pages; /* by page index of the sequence */
	size_t k_offset, v_offset;   /* of this layer's and KV head's tiles in a page, bytes */
	uint32_t position;	     /* of the first query; its own key is already in its page */
	uint32_t tokens;	     /* query positions: position .. position + tokens - 1 */
	uint32_t heads;		     /* query heads that share this KV head */
	uint32_t window;	     /* visible keys per query including its own; 0: all */
	float scale;		     /* score = (q.k) scale */
	float softcap;		     /* 0: none; else score = softcap tanh(score / softcap) */
	const float *q;		     /* [tokens][q_stride], the heads' vectors side by side */
	size_t q_stride;	     /* floats */
	float *out;		     /* [tokens][out_stride], likewise */
	size_t out_stride;
	/* For the instruments; NULL in service: [tokens][heads][scores_stride], the scores of a
	 * query's visible keys, the oldest first. */
	float *scores;
	size_t scores_stride;
};

/* Where kv_write puts a position. */
struct kernels_kv_place {
	enum kernels_kv kv;
	uint32_t head_dim;
	void *k_tile, *v_tile;
	uint32_t key; /* 0..63: the position's place in its page */
};

/* Bytes of the two tiles (multiples of 64). */
size_t kernels_k_tile_bytes(enum kernels_kv kv, uint32_t head_dim);
size_t kernels_v_tile_bytes(enum kernels_kv kv, uint32_t head_dim);
