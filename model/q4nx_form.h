/* model/q4nx_form.h: which of Q4NX's conventions a tensor follows. Three of the questions the file
 * itself can't answer (Q8-a or Q8-b; B or D); they are asked of the folder's own mark, of a tied
 * embedding, or of the user, and otherwise refused: a wrong guess would look plausible. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "model/safetensors.h"
#include "model/tile.h"

enum q4nx_answer { Q4NX_UNKNOWN, Q4NX_FIRST, Q4NX_SECOND };

/* What is known of a whole file. */
struct q4nx_hints {
	enum q4nx_answer q8;	 /* Q8-a, Q8-b */
	enum q4nx_answer scales; /* by group (B), by row (D); unknown counts as by group */
};

/* Columns of tiles that k input columns need: a multiple of 256 but for this project's own files,
 * whose last tile is filled up with zero groups. */
uint32_t q4nx_tile_columns(uint32_t k);

/* The form of a tile tensor that stands for a [rows, cols] matrix. Checks dtype, shape and count of
 * tiles; for 4-bit tiles reads the whole m plane. SVC_UNSUPPORTED names a tile of a known but
 * unsupported kind (Q8-c, Q8-d, 32x128, 1280-byte chunks), or the question that has no answer. */
SVC_CHECKED enum svc_code q4nx_form_find(const struct safetensors_tensor *tensor, uint32_t rows,
					 uint32_t cols, const struct q4nx_hints *hints,
					 enum tile_form *ret_form, struct svc_err *err);

/* Correlation of some rows of tiles, read as form, with the same rows of a float matrix [rows,
 * cols] (BF16, F16 or F32). 0 if either has no variance. */
double q4nx_form_correlation(const struct safetensors_tensor *tiles, enum tile_form form,
			     const struct safetensors_tensor *floats, uint32_t rows, uint32_t cols);

/* Asks a tied head, whose embedding is known, for what hints doesn't say. A clear answer (one
 * correlation above 0.98, the other four times farther from 1) is stored; otherwise hints stay. */
void q4nx_hints_probe(const struct safetensors_tensor *head, const struct safetensors_tensor *embed,
		      uint32_t rows, uint32_t cols, struct q4nx_hints *hints);
