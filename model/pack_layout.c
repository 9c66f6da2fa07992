/* pack.json, strictly: a field that isn't known may move tiles. */
#include <string.h>

#include "model/pack_private.h"

#define BAD(err, ...) svc_fail(err, SVC_BAD_MODEL, "pack.json", __VA_ARGS__)

static const char *const fields[] = {"format",	    "version", "tile_bytes",  "attention",
				     "mlp",	    "vectors", "chunk_tiles", "o_proj_k",
				     "tensors",	    "tiles",   "mlp_groups",  "attention_tiles",
				     "norm_anchors"};

static enum svc_code check_names(const json_t *root, struct svc_err *err)
{
	const char *key;
	json_t *value;
	json_object_foreach((json_t *)(uintptr_t)root, key, value)
	{
		bool known = false;
		for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
			known = known || strcmp(fields[i], key) == 0;
		if (!known)
			return svc_fail(err, SVC_UNSUPPORTED, "pack.json",
					"pack.json: field %.60s is not known; it may say where "
					"tiles lie",
					key);
	}
	return SVC_OK;
}

static bool is_whole(const json_t *root, const char *name, uint64_t most, uint64_t *ret)
{
	const json_t *value = json_object_get(root, name);
	if (!json_is_integer(value) || json_integer_value(value) < 1 ||
	    (uint64_t)json_integer_value(value) > most)
		return false;
	*ret = (uint64_t)json_integer_value(value);
	return true;
}

static enum svc_code read_counts(const json_t *root, struct pack_layout *l, struct svc_err *err)
{
	uint64_t chunk = 0, o_cols = 0;
	const struct {
		const char *name;
		uint64_t *ret;
	} wanted[] = {
		{"tensors", &l->stated.tensors},
		{"tiles", &l->stated.tiles},
		{"attention_tiles", &l->stated.attention_tiles},
		{"mlp_groups", &l->stated.mlp_groups},
		{"norm_anchors", &l->stated.norm_anchors},
		{"chunk_tiles", &chunk},
		{"o_proj_k", &o_cols},
	};
	for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
		if (!is_whole(root, wanted[i].name, UINT32_MAX, wanted[i].ret))
			return BAD(err, "pack.json: %s is not a whole number from 1 to 2^32 - 1",
				   wanted[i].name);
	l->chunk_tiles = (uint32_t)chunk;
	l->o_cols = (uint32_t)o_cols;
	return SVC_OK;
}

static bool is_word(const json_t *list, size_t i, const char *word)
{
	const char *text = json_string_value(json_array_get(list, i));
	return text && strcmp(text, word) == 0;
}

static enum svc_code read_orders(const json_t *root, struct pack_layout *l, struct svc_err *err)
{
	static const char *const runs[] = {"q", "k", "v"};
	const json_t *attention = json_object_get(root, "attention");
	const json_t *mlp = json_object_get(root, "mlp");
	unsigned seen = 0;
	for (uint32_t i = 0; i < 3; i++)
		for (uint32_t r = 0; r < 3; r++)
			if (is_word(attention, i, runs[r])) {
				l->attention[i] = (uint8_t)(PACK_Q + r);
				seen |= 1u << r;
			}
	if (json_array_size(attention) != 3 || seen != 7)
		return BAD(err, "pack.json: attention is not an order of \"q\", \"k\" and \"v\"");
	l->up_first = is_word(mlp, 0, "up");
	if (json_array_size(mlp) != 2 || !is_word(mlp, l->up_first ? 1 : 0, "gate") ||
	    (!l->up_first && !is_word(mlp, 1, "up")))
		return BAD(err, "pack.json: mlp is not an order of \"up\" and \"gate\"");
	return SVC_OK;
}

static enum svc_code read_vectors(const json_t *root, struct pack_layout *l, struct svc_err *err)
{
	const json_t *list = json_object_get(root, "vectors");
	if (json_array_size(list) < 1 || json_array_size(list) > PACK_MAX_VECTORS)
		return BAD(err, "pack.json: vectors is not a list of 1 to %d names",
			   PACK_MAX_VECTORS);
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *name = json_string_value(json_array_get(list, i));
		if (!name || strlen(name) >= HF_NAME_BYTES)
			return BAD(err, "pack.json: vectors[%zu] is not a name", i);
		for (uint32_t other = 0; other < l->n_vectors; other++)
			if (strcmp(l->vectors[other], name) == 0)
				return BAD(err, "pack.json: vectors has %s twice", name);
		memcpy(l->vectors[l->n_vectors++], name, strlen(name) + 1);
	}
	return SVC_OK;
}

enum svc_code pack_layout_read(const json_t *root, struct pack_layout *ret_layout,
			       struct svc_err *err)
{
	struct pack_layout l = {.n_vectors = 0};
	uint64_t version = 0, tile_bytes = 0;
	const char *format = json_string_value(json_object_get(root, "format"));
	if (!format || strcmp(format, "lockstep-pack") != 0 ||
	    !is_whole(root, "version", UINT32_MAX, &version) || version != 1)
		return svc_fail(err, SVC_UNSUPPORTED, __func__,
				"pack.json: format and version are not \"lockstep-pack\" and 1; "
				"the packs of other tools have layouts that aren't public");
	if (!is_whole(root, "tile_bytes", UINT32_MAX, &tile_bytes) || tile_bytes != PACK_TILE_BYTES)
		return svc_fail(err, SVC_UNSUPPORTED, __func__,
				"pack.json: tile_bytes is not %d, 32 rows x 256 columns of 4 bits",
				PACK_TILE_BYTES);
	enum svc_code code = check_names(root, err);
	if (code == SVC_OK)
		code = read_orders(root, &l, err);
	if (code == SVC_OK)
		code = read_counts(root, &l, err);
	if (code == SVC_OK)
		code = read_vectors(root, &l, err);
	if (code == SVC_OK)
		*ret_layout = l;
	return code;
}
