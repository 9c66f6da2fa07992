/* npu-worker/device/manifest_private.h: reading a manifest; manifest.c has folder and products,
 * manifest_stream.c instruction streams, layers and the head. */
#pragma once
#include "npu-worker/device/manifest.h"

#define BAD(err, ...) svc_fail(err, SVC_NO_DEVICE, "manifest", __VA_ARGS__)

/* false: not there, or not a whole number up to high. */
bool manifest_u32(const json_t *object, const char *name, uint32_t high, uint32_t *ret);
bool manifest_text(const json_t *object, const char *name, char *out, size_t size);
bool manifest_read_product(const json_t *object, struct manifest_product *ret);
/* Both are optional, but not without each other. */
SVC_CHECKED enum svc_code manifest_read_layers(const json_t *root, struct manifest *manifest,
					       struct svc_err *err);
