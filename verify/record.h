/* verify/record.h: what is known of one operation's result at one position, and a recorder that
 * takes copies of them while a step runs. In the layer loop there is only copying: sorting,
 * comparing and writing come after the step. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "npu-worker/engine/engine.h"
#include "npu-worker/engine/hooks.h"
#include "verify/compare.h"

/* The engine's checkpoints, and what is taken outside of the layer loop. The numbers stand in
 * files. */
enum vfy_checkpoint {
	VFY_LOGITS = ENGINE_LOGITS,
	VFY_ROPE_TABLE = 64, /* layer l's cosines and sines of the position, [2][pairs] */
	VFY_STATE_HASH,	     /* XXH3-128 of the previous position's state hash and this position's
				KV */
	VFY_LOGITS_HASH,     /* XXH3-128 of the logits */
	VFY_TOP,	     /* the largest logits, descending: VFY_TOP_COUNT ids (u32), then their
				values (f32) */
	VFY_CHECKPOINT_END
};
enum { VFY_TOP_COUNT = 32 };
/* "?" for a number that stands for none. */
const char *vfy_checkpoint_name(uint32_t checkpoint);

enum vfy_record_type { VFY_RECORD_F32, VFY_RECORD_F16, VFY_RECORD_BYTES, VFY_RECORD_TYPE_COUNT };

/* Also the head of a record in a file: little-endian, its bytes of data behind it. */
struct vfy_record {
	uint32_t position, layer, checkpoint, part;
	uint32_t run;  /* of an operation that a runtime does more than once in a step */
	uint32_t step; /* the engine step, from 0, that made it */
	uint32_t type; /* enum vfy_record_type */
	uint32_t rows, cols, bytes;
	uint64_t xxh3; /* XXH3-64 of the data */
};
_Static_assert(sizeof(struct vfy_record) == 48, "as in files");

/* Execution order: position, layer, checkpoint, part, run. < 0, 0, > 0. What comes from outside the
 * layer loop stands behind all layers. */
int vfy_record_order(const struct vfy_record *a, const struct vfy_record *b);
/* The record's data as numbers; false for VFY_RECORD_BYTES. */
bool vfy_record_array(const struct vfy_record *record, const void *data,
		      struct vfy_array *ret_array);

enum vfy_level {
	VFY_LEVEL_HASH,
	VFY_LEVEL_LEAN,
	VFY_LEVEL_STATE, /* the last for which what is left behind by a step is enough */
	VFY_LEVEL_LAYERS,
	VFY_LEVEL_ALL,
	VFY_LEVEL_COUNT
};
const char *vfy_level_name(enum vfy_level level);
bool vfy_level_parse(const char *name, enum vfy_level *ret_level);

/* What is wanted. Ranges include both ends. */
struct vfy_selection {
	enum vfy_level level;
	uint32_t first_layer, last_layer;
	uint32_t first_position, last_position;
	bool scores; /* with level all: attention's scores, too */
};
bool vfy_selects(const struct vfy_selection *selection, uint32_t checkpoint, uint32_t layer,
		 uint32_t position);
/* Whether a level needs a probe in the layer loop at all. */
bool vfy_level_probes(enum vfy_level level);

struct vfy_recorder {
	struct vfy_selection selection;
	uint32_t step;	/* set by the caller before each */
	uint8_t *bytes; /* record, data, record, data, ...; 8-byte aligned */
	size_t len, room;
	size_t *offsets; /* [count] of the records, in execution order after vfy_recorder_finish */
	size_t count, offsets_room;
	bool failed; /* out of memory: what is there is not all */
};

/* An engine probe; context is a struct vfy_recorder. Copies the records of sequence 0 that are
 * selected. */
void vfy_recorder_probe(void *context, const struct engine_record *record);
/* A record of other origin: head.xxh3 is filled in by vfy_recorder_finish. */
void vfy_recorder_add(struct vfy_recorder *recorder, const struct vfy_record *head,
		      const void *data);
/* After a step: checksums, and execution order. SVC_NO_MEMORY if anything was lost. */
SVC_CHECKED enum svc_code vfy_recorder_finish(struct vfy_recorder *recorder, struct svc_err *err);
/* Record i and its data, which are valid until the next one is added. */
const struct vfy_record *vfy_recorder_at(const struct vfy_recorder *recorder, size_t i,
					 const void **ret_data);
void vfy_recorder_clear(struct vfy_recorder *recorder);
void vfy_recorder_free(struct vfy_recorder *recorder);
