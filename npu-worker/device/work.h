/* npu-worker/device/work.h: the second argument of a whole layer's run and of the head's: what the
 * host tells the device about a pass over all layers, and the rows' values. It lies in the device's
 * memory as a whole; offsets are bytes from its start. docs/npu.md has it for writers of kernels.
 */
#pragma once
#include <stdint.h>

enum { WORK_SLOTS = 2 }; /* one is read by the device while the next token's is filled */

struct work_head {
	uint32_t rows, logit_rows;
	uint32_t slot;	/* that this pass reads */
	uint32_t pairs; /* of a position table's row: cosines, then sines */
	float norm_eps, attn_scale;
	float attn_softcap;	     /* for layers that have one */
	uint32_t x;		     /* float [rows][n_embd]: in; overwritten */
	uint32_t bad;		     /* uint32 [rows]: out, not 0: a NaN or an infinity was met */
	uint32_t logits;	     /* struct work_logits [logit_rows] */
	uint32_t places[WORK_SLOTS]; /* struct work_place [rows] */
	uint32_t tables[WORK_SLOTS]; /* float [rows][2 pairs] */
	uint32_t page_lists[WORK_SLOTS]; /* uint64: bytes from the third argument's start */
	/* As tables, for windowed layers; 0: they have none of their own. */
	uint32_t local_tables[WORK_SLOTS];
};

struct work_place {
	uint32_t position;
	uint32_t first_page; /* of its sequence, in the slot's list of pages */
};

/* Rows that want logits: where to, in the head's third argument. */
struct work_logits {
	uint32_t row, reserved;
	uint64_t offset;
};

_Static_assert(sizeof(struct work_head) == 72, "as documented");
_Static_assert(sizeof(struct work_place) == 8 && sizeof(struct work_logits) == 16, "as documented");
