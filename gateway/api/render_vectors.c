#include "gateway/api/render_vectors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

static void floats_print(struct buf *out, const struct gw_vector *vector)
{
	buf_append(out, "[", 1);
	for (uint32_t i = 0; i < vector->n; i++) {
		if (i)
			buf_append(out, ",", 1);
		gw_float_print(out, vector->values[i]);
	}
	buf_append(out, "]", 1);
}

/* The bytes of the floats, lowest first, as a JSON string. */
static void base64_print(struct buf *out, const struct gw_vector *vector)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const uint8_t *bytes = (const uint8_t *)vector->values;
	size_t n = vector->n * sizeof *vector->values;
	buf_append(out, "\"", 1);
	for (size_t i = 0; i < n; i += 3) {
		uint32_t left = n - i > 2 ? 3 : (uint32_t)(n - i), word = 0;
		char four[4] = "====";
		for (uint32_t j = 0; j < left; j++)
			word |= (uint32_t)bytes[i + j] << (16 - 8 * j);
		for (uint32_t j = 0; j <= left; j++)
			four[j] = digits[word >> (18 - 6 * j) & 63];
		buf_append(out, four, 4);
	}
	buf_append(out, "\"", 1);
}

static uint64_t tokens_of(const struct gw_vector *vectors, uint32_t n)
{
	uint64_t tokens = 0;
	for (uint32_t i = 0; i < n; i++)
		tokens += vectors[i].n_prompt;
	return tokens;
}

static void ollama_print(const struct gw_render *render, const struct gw_vector *vectors,
			 uint32_t n)
{
	struct buf *out = render->out;
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	uint64_t now_us = (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
	buf_print(out, "{\"model\":");
	buf_json_string(out, span_of(render->meta->model));
	buf_print(out, ",\"embeddings\":[");
	for (uint32_t i = 0; i < n; i++) {
		buf_print(out, i ? "," : "");
		floats_print(out, &vectors[i]);
	}
	buf_print(out,
		  "],\"total_duration\":%" PRIu64
		  ",\"load_duration\":0,\"prompt_eval_count\":%" PRIu64 "}",
		  (now_us - render->arrived_us) * 1000u, tokens_of(vectors, n));
}

void gw_render_vectors(const struct gw_render *render, const struct gw_vector *vectors, uint32_t n)
{
	struct buf *out = render->out;
	uint64_t tokens = tokens_of(vectors, n);
	if (render->meta->form == GW_FORM_OLLAMA_EMBED) {
		ollama_print(render, vectors, n);
		return;
	}
	buf_print(out, "{\"object\":\"list\",\"data\":[");
	for (uint32_t i = 0; i < n; i++) {
		buf_print(out, "%s{\"object\":\"embedding\",\"index\":%" PRIu32 ",\"embedding\":",
			  i ? "," : "", i);
		if (render->meta->base64)
			base64_print(out, &vectors[i]);
		else
			floats_print(out, &vectors[i]);
		buf_print(out, "}");
	}
	buf_print(out, "],\"model\":");
	buf_json_string(out, span_of(render->meta->model));
	buf_print(out, ",\"usage\":{\"prompt_tokens\":%" PRIu64 ",\"total_tokens\":%" PRIu64 "}}",
		  tokens, tokens);
}
