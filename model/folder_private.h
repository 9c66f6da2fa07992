/* model/folder_private.h: what folder.c (opens), folder_tensors.c (which tensors the GGUF file
 * gets) and folder_make.c (makes their bytes) share. */
#pragma once
#include "model/folder.h"
#include "model/gguf.h"
#include "model/hf_names.h"
#include "model/safetensors.h"

enum { FOLDER_PLAIN = -1, FOLDER_MAX_FILES = 512, FOLDER_MAX_FORMS = 16 };

struct folder_form {
	const char *name;
	uint64_t tensors, tiles, bytes;
};

struct folder {
	char path[4096];
	enum folder_kind kind;
	struct hf_config config;
	struct q4nx_hints hints;
	struct gguf *metadata; /* NULL: made from config.json */
	struct safetensors *files[FOLDER_MAX_FILES];
	uint32_t n_files;
	uint64_t stamp;
	struct folder_form forms[FOLDER_MAX_FORMS];
	uint32_t n_forms;
	struct draft draft;
	struct gguf_tensor *tensors; /* the directory of the GGUF file, as draft.tensors */
};

/* How a tensor of the GGUF file is made. */
struct folder_recipe {
	const struct hf_tensor *what;
	const struct safetensors_tensor *source;
	const float *values; /* instead of source: literal numbers, cols of them */
	int form;	     /* enum tile_form, or FOLDER_PLAIN */
	uint32_t type;	     /* of the GGUF tensor */
	uint32_t rows, cols;
	uint32_t heads;	   /* rows of each head are brought into the order of pairs; 0: no */
	float add, divide; /* value = source / divide + add */
};

/* Fills draft and tensors. */
SVC_CHECKED enum svc_code folder_plan(struct folder *folder, struct svc_err *err);
/* draft_make for a struct folder_recipe. */
enum svc_code folder_make(const struct draft_tensor *tensor, uint32_t strip, uint8_t *out,
			  struct svc_err *err);
/* In any of the files; NULL if in none. */
const struct safetensors_tensor *folder_find(const struct folder *folder, struct span name);
/* GGUF's type for a form or a plain tensor's dtype. */
uint32_t folder_type_of(int form, enum safetensors_dtype dtype, bool is_matrix);
