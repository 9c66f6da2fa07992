/* gateway/api/render_vectors.h: embeddings as OpenAI's or Ollama's JSON. */
#pragma once
#include "gateway/api/render.h"

struct gw_vector {
	const float *values; /* [n], of length 1 */
	uint32_t n;
	uint32_t n_prompt; /* tokens of its text */
};

/* The whole answer, in the order of the inputs. */
void gw_render_vectors(const struct gw_render *render, const struct gw_vector *vectors, uint32_t n);
