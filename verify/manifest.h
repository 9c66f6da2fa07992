/* verify/manifest.h: what a capture says about itself (manifest.json). It is written last: a folder
 * without one is no capture. */
#pragma once
#include <jansson.h>

#include "verify/record.h"

enum { VFY_CAPTURE_VERSION = 2 };

struct vfy_manifest {
	char model_hash[33];  /* XXH3-128 of the model file, hex; "" in a capture of another program
			       */
	char model_file[256]; /* its name, without folders */
	char family[32], isa[32], build[64];
	struct vfy_selection selection;
	uint32_t n_layers, n_vocab;
	uint32_t chunk, neighbours;
	bool all_logits;
	int32_t *tokens; /* [n_prompt + n_new] */
	uint32_t n_prompt, n_new;
	/* What the records file holds. */
	uint64_t n_frames, n_records, raw_bytes, stored_bytes;
};

/* New reference. */
json_t *vfy_manifest_json(const struct vfy_manifest *manifest);
SVC_CHECKED enum svc_code vfy_manifest_write(const struct vfy_manifest *manifest,
					     const char *folder, struct svc_err *err);
/* SVC_CORRUPT names the field. The caller frees with vfy_manifest_free. */
SVC_CHECKED enum svc_code vfy_manifest_read(const char *folder, struct vfy_manifest *ret_manifest,
					    struct svc_err *err);
/* As vfy_manifest_read, of the file's text. */
SVC_CHECKED enum svc_code vfy_manifest_parse(const char *text, size_t len,
					     struct vfy_manifest *ret_manifest,
					     struct svc_err *err);
void vfy_manifest_free(struct vfy_manifest *manifest);
