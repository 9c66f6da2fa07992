/* verify/tensors.h: a container's dequantised matrix against a checkpoint's. */
#pragma once
#include "model/gguf.h"

/* Correlations are Pearson's, in double; NaN where one side has no variance. */
struct vfy_tensor_check {
	uint64_t rows, cols;
	double corr;		    /* plain */
	double corr_f;		    /* after one scale per input channel (column) has been fitted */
	double corr_t;		    /* a control: the checkpoint's leading square read transposed */
	double row_min, row_median; /* of each output row alone */
	uint64_t row_worst;	    /* the row of row_min */
	uint64_t rows_below;	    /* rows whose correlation is below `row_limit` */
	uint64_t undefined;	    /* weights that aren't finite on one side: left out */
};
/* Two matrices of the same shape (n_dims 2). */
SVC_CHECKED enum svc_code vfy_tensor_compare(const struct gguf_tensor *a,
					     const struct gguf_tensor *checkpoint, double row_limit,
					     struct vfy_tensor_check *ret, struct svc_err *err);
