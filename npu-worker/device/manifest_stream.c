/* Instruction streams of a manifest, and the kernels they belong to. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "npu-worker/device/manifest_private.h"

bool manifest_u32(const json_t *object, const char *name, uint32_t high, uint32_t *ret)
{
	const json_t *value = json_object_get(object, name);
	if (!json_is_integer(value) || json_integer_value(value) < 0 ||
	    json_integer_value(value) > (json_int_t)high)
		return false;
	*ret = (uint32_t)json_integer_value(value);
	return true;
}

bool manifest_text(const json_t *object, const char *name, char *out, size_t size)
{
	const char *text = json_string_value(json_object_get(object, name));
	return text && text[0] && snprintf(out, size, "%s", text) < (int)size;
}

/* every: what the rule counts in, or NULL for single ones. */
static bool read_rules(const json_t *rules, const char *every, bool keys,
		       struct manifest_stream *stream)
{
	size_t i;
	const json_t *rule;
	json_array_foreach(rules, i, rule)
	{
		struct manifest_rule *r = &stream->rules[stream->n_rules];
		if (stream->n_rules == MANIFEST_MAX_RULES)
			return false;
		r->every = 1;
		r->keys = keys;
		if (!manifest_u32(rule, "word", stream->n_words - 1, &r->word) ||
		    !manifest_u32(rule, "step", UINT32_MAX, &r->step) ||
		    (every && (!manifest_u32(rule, every, 1 << 20, &r->every) || !r->every)))
			return false;
		stream->n_rules++;
	}
	return true;
}

static bool read_words(const json_t *words, struct manifest_stream *stream)
{
	stream->n_words = (uint32_t)json_array_size(words);
	if (json_array_size(words) == 0 || json_array_size(words) > MANIFEST_MAX_WORDS)
		return false;
	for (uint32_t i = 0; i < stream->n_words; i++) {
		const json_t *word = json_array_get(words, i);
		if (!json_is_integer(word) || json_integer_value(word) < 0 ||
		    json_integer_value(word) > (json_int_t)UINT32_MAX)
			return false;
		stream->words[i] = (uint32_t)json_integer_value(word);
	}
	return true;
}

static bool read_stream(const json_t *object, struct manifest_stream *stream)
{
	return read_words(json_object_get(object, "words"), stream) &&
	       read_rules(json_object_get(object, "linear"), NULL, false, stream) &&
	       read_rules(json_object_get(object, "block"), "tokens", false, stream) &&
	       read_rules(json_object_get(object, "keys"), "keys", true, stream);
}

static bool type_by_name(const char *name, uint32_t *ret)
{
	for (uint32_t t = 0; name && t < 64; t++) {
		const char *known = gguf_tensor_type_name(t);
		*ret = t;
		if (known && strcmp(known, name) == 0)
			return true;
	}
	return false;
}

static bool read_matrix(const json_t *object, uint32_t *type, uint32_t *rows, uint32_t *cols)
{
	return type_by_name(json_string_value(json_object_get(object, "type")), type) &&
	       manifest_u32(object, "rows", 1 << 24, rows) && *rows &&
	       manifest_u32(object, "cols", 1 << 24, cols) && *cols;
}

bool manifest_read_product(const json_t *object, struct manifest_product *p)
{
	return read_matrix(object, &p->type, &p->rows, &p->cols) &&
	       read_stream(object, &p->stream) &&
	       manifest_u32(object, "weights", p->stream.n_words - 1, &p->weights) &&
	       p->weights + 1 < p->stream.n_words &&
	       manifest_u32(object, "output", p->stream.n_words - 1, &p->output);
}

/* Places of 64 bits in the stream. */
static bool read_parts(const json_t *object, const struct manifest_stream *stream, uint32_t *parts,
		       uint32_t n)
{
	const json_t *list = json_object_get(object, "parts");
	for (uint32_t i = 0; i < n; i++) {
		const json_t *word = json_array_get(list, i);
		if (!json_is_integer(word) || json_integer_value(word) < 0 ||
		    json_integer_value(word) + 1 >= (json_int_t)stream->n_words)
			return false;
		parts[i] = (uint32_t)json_integer_value(word);
	}
	return json_array_size(list) == n;
}

static const char *const feature_names[] = {"qkv_bias",	  "o_bias", "head_norms",
					    "post_norms", "gelu",   "softcap"};
enum { FEATURES = sizeof feature_names / sizeof *feature_names };

bool manifest_has_part(const struct manifest_shape *shape, enum manifest_part part)
{
	static const uint8_t needs[MANIFEST_PARTS] = {
		[MANIFEST_Q_BIAS] = MANIFEST_WITH_QKV_BIAS,
		[MANIFEST_K_BIAS] = MANIFEST_WITH_QKV_BIAS,
		[MANIFEST_V_BIAS] = MANIFEST_WITH_QKV_BIAS,
		[MANIFEST_O_BIAS] = MANIFEST_WITH_O_BIAS,
		[MANIFEST_Q_NORM] = MANIFEST_WITH_HEAD_NORMS,
		[MANIFEST_K_NORM] = MANIFEST_WITH_HEAD_NORMS,
		[MANIFEST_POST_ATTN_NORM] = MANIFEST_WITH_POST_NORMS,
		[MANIFEST_POST_FFN_NORM] = MANIFEST_WITH_POST_NORMS,
	};
	return (needs[part] & shape->features) == needs[part];
}

void manifest_describe(const struct manifest_shape *shape, char *text, size_t size)
{
	int n = snprintf(text, size, "%u wide, ffn %u, %u heads and %u of keys, each %u",
			 shape->embd, shape->ffn, shape->heads, shape->kv_heads, shape->head_dim);
	size_t at = n > 0 ? (size_t)n : 0;
	for (uint32_t i = 0, any = 0; i < FEATURES && at < size; i++) {
		if (!(shape->features >> i & 1))
			continue;
		n = snprintf(text + at, size - at, "%s%s", any++ ? " and " : ", with ",
			     feature_names[i]);
		at += n > 0 ? (size_t)n : 0;
	}
	if (shape->window && at < size)
		snprintf(text + at, size - at, ", window %u", shape->window);
}

static bool read_features(const json_t *object, struct manifest_shape *s)
{
	const json_t *with = json_object_get(object, "with"), *name;
	size_t i;
	if (with && !json_is_array(with))
		return false;
	json_array_foreach(with, i, name)
	{
		uint32_t f = 0;
		while (f < FEATURES && (!json_is_string(name) ||
					strcmp(json_string_value(name), feature_names[f]) != 0))
			f++;
		if (f == FEATURES)
			return false;
		s->features |= 1u << f;
	}
	return !json_object_get(object, "window") ||
	       (manifest_u32(object, "window", 1 << 22, &s->window) && s->window);
}

static bool read_layer_parts(const json_t *object, struct manifest_layer *l)
{
	uint32_t words[MANIFEST_PARTS], n = 0;
	for (uint32_t p = 0; p < MANIFEST_PARTS; p++)
		n += manifest_has_part(&l->shape, p);
	if (!read_parts(object, &l->stream, words, n))
		return false;
	n = 0;
	for (uint32_t p = 0; p < MANIFEST_PARTS; p++)
		if (manifest_has_part(&l->shape, p))
			l->parts[p] = words[n++];
	return true;
}

static bool read_layer(const json_t *object, struct manifest_layer *l)
{
	struct manifest_shape *s = &l->shape;
	const json_t *types = json_object_get(object, "types");
	const json_t *interleaved = json_object_get(object, "interleaved");
	for (uint32_t i = 0; i < 7; i++)
		if (!type_by_name(json_string_value(json_array_get(types, i)), &s->types[i]))
			return false;
	s->interleaved = json_is_true(interleaved);
	return json_is_boolean(interleaved) && json_array_size(types) == 7 &&
	       manifest_u32(object, "embd", 1 << 20, &s->embd) &&
	       manifest_u32(object, "ffn", 1 << 20, &s->ffn) &&
	       manifest_u32(object, "heads", 1 << 16, &s->heads) &&
	       manifest_u32(object, "kv_heads", 1 << 16, &s->kv_heads) &&
	       manifest_u32(object, "head_dim", 1 << 16, &s->head_dim) &&
	       read_features(object, s) && read_stream(object, &l->stream) &&
	       read_layer_parts(object, l) &&
	       manifest_u32(object, "kv", l->stream.n_words - 1, &l->kv);
}

static bool read_head(const json_t *object, struct manifest_head *h)
{
	return read_matrix(object, &h->type, &h->rows, &h->cols) &&
	       read_stream(object, &h->stream) && read_parts(object, &h->stream, h->parts, 2);
}

enum svc_code manifest_read_layers(const json_t *root, struct manifest *m, struct svc_err *err)
{
	const json_t *list = json_object_get(root, "layers"), *head = json_object_get(root, "head");
	size_t n = json_array_size(list);
	if (!list && !head)
		return SVC_OK;
	if (n == 0 || n > MANIFEST_MAX_LAYERS || !head)
		return BAD(err, "layers is not a list of 1 to %d with a head beside it",
			   MANIFEST_MAX_LAYERS);
	m->layers = calloc(n, sizeof *m->layers);
	m->head = calloc(1, sizeof *m->head);
	if (!m->layers || !m->head)
		return svc_fail(err, SVC_NO_MEMORY, "manifest", "out of memory");
	if (!read_head(head, m->head))
		return BAD(err,
			   "head needs type, rows, cols, words (1 to %d), rules within them, "
			   "and two parts",
			   MANIFEST_MAX_WORDS);
	for (size_t i = 0; i < n; i++) {
		if (!read_layer(json_array_get(list, i), &m->layers[i]))
			return BAD(err,
				   "layers[%zu] needs embd, ffn, heads, kv_heads, head_dim, "
				   "interleaved, seven types, words (1 to %d), rules within them, "
				   "nine parts and those of what it is \"with\", and the word kv",
				   i, MANIFEST_MAX_WORDS);
		m->n_layers++;
	}
	return SVC_OK;
}

void manifest_derive(const struct manifest_stream *stream, uint32_t tokens, uint32_t keys,
		     uint32_t *ret_words)
{
	memcpy(ret_words, stream->words, stream->n_words * sizeof *ret_words);
	for (uint32_t i = 0; i < stream->n_rules; i++) {
		const struct manifest_rule *r = &stream->rules[i];
		ret_words[r->word] += ((r->keys ? keys : tokens) - 1) / r->every * r->step;
	}
}

void manifest_put(uint32_t *words, uint32_t at, uint64_t value)
{
	words[at] = (uint32_t)value;
	words[at + 1] = (uint32_t)(value >> 32);
}

void manifest_product_words(const struct manifest_product *product, uint32_t tokens,
			    uint64_t weights_offset, uint32_t output_offset, uint32_t *ret_words)
{
	manifest_derive(&product->stream, tokens, 1, ret_words);
	manifest_put(ret_words, product->weights, weights_offset);
	ret_words[product->output] = output_offset;
}
