/* model/folder.h: a model folder (config.json beside safetensors files or a model.q4nx), opened as
 * the GGUF file that it stands for. Whoever reads models reads GGUF: a folder is served by making
 * that file in memory, and converting a folder writes the same bytes to disk, so that serving the
 * one or the other is the same thing. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "model/draft.h"
#include "model/hf_config.h"
#include "model/q4nx_form.h"

enum folder_kind { FOLDER_SAFETENSORS, FOLDER_Q4NX };

struct folder;

/* hints: what the user says about a Q4NX file; NULL: nothing. Checks everything but the values:
 * SVC_UNSUPPORTED or SVC_BAD_MODEL names the file and the field or tensor. */
SVC_CHECKED enum svc_code folder_open(const char *path, const struct q4nx_hints *hints,
				      struct folder **ret_folder, struct svc_err *err);
/* NULL is fine. Returns NULL. */
struct folder *folder_close(struct folder *folder);

enum folder_kind folder_kind(const struct folder *folder);
const struct hf_config *folder_config(const struct folder *folder);
/* The GGUF file. Lives as long as the folder. */
const struct draft *folder_draft(const struct folder *folder);
/* Names what the files are by size and time: an interrupted conversion may go on if it is equal. */
uint64_t folder_stamp(const struct folder *folder);

/* What a tensor is stored as: "A", "Q8-a", "BF16", ..., with counts; false past the end. */
bool folder_form_at(const struct folder *folder, size_t index, const char **ret_form,
		    uint64_t *ret_tensors, uint64_t *ret_tiles, uint64_t *ret_bytes);

/* True if path is a folder (and no file). */
bool folder_is(const char *path);
