/* model/q4nx_make.h: how the bytes of a Q4NX tensor come out of a GGUF tensor. */
#pragma once
#include "model/draft.h"
#include "model/gguf.h"
#include "model/safetensors.h"
#include "model/tile.h"

enum { Q4NX_PLAIN = -1 };

struct q4nx_recipe {
	const struct gguf_tensor *source;
	int form; /* enum tile_form, or Q4NX_PLAIN: floats of dtype */
	enum safetensors_dtype dtype;
	uint32_t rows, cols; /* a vector has one column */
	uint32_t heads;	     /* rows of each head are brought back from the order of pairs; 0: no */
	float subtract, multiply; /* of floats: (source - subtract) * multiply */
};

/* draft_make for a struct q4nx_recipe. SVC_BAD_MODEL names a tensor with a scale that isn't
 * finite. */
enum svc_code q4nx_make(const struct draft_tensor *tensor, uint32_t strip, uint8_t *out,
			struct svc_err *err);
