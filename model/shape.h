/* model/shape.h: the few numbers of a model that size the run's segments, read from the container's
 * metadata without loading weights. */
#pragma once
#include <stdint.h>

#include "base/err.h"

struct model_shape {
	char arch[32];
	char name[128]; /* the file's name without its ending, or the folder's */
	uint32_t n_layer, n_kv_head, head_dim, n_embd;
	uint32_t n_vocab;
	uint32_t ctx_train;
	uint64_t file_bytes;
	uint64_t hash[2]; /* XXH3-128 of the whole file, or of the one a folder stands for */
};

/* Reads path (a GGUF file or a folder, model/folder.h). SVC_BAD_MODEL names the missing key. */
SVC_CHECKED enum svc_code model_shape_read(const char *path, struct model_shape *ret_shape,
					   struct svc_err *err);
/* Bytes of one KV page: 64 positions of K and V in all layers, element_bytes for each element and
 * vector_bytes for each head's vector. Of V the elements are padded to 16. */
uint64_t model_page_bytes(const struct model_shape *shape, uint32_t element_bytes,
			  uint32_t vector_bytes);
