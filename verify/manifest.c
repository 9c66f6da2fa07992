#include "verify/manifest.h"

#include <stdlib.h>
#include <string.h>

#define FORMAT "lockstep-capture"
enum { MAX_TOKENS = 1 << 22, MAX_FILE_BYTES = 1 << 27 };

static json_t *range_json(uint32_t first, uint32_t last)
{
	return json_pack("[I, I]", (json_int_t)first, (json_int_t)last);
}

static json_t *ids_json(const int32_t *ids, uint32_t n)
{
	json_t *list = json_array();
	for (uint32_t i = 0; i < n; i++)
		json_array_append_new(list, json_integer(ids[i]));
	return list;
}

static json_t *checkpoints_json(void)
{
	json_t *object = json_object();
	for (uint32_t i = 0; i < VFY_CHECKPOINT_END; i++) {
		if (strcmp(vfy_checkpoint_name(i), "?") != 0)
			json_object_set_new(object, vfy_checkpoint_name(i), json_integer(i));
	}
	return object;
}

json_t *vfy_manifest_json(const struct vfy_manifest *m)
{
	const struct vfy_selection *s = &m->selection;
	return json_pack("{s:s, s:i, s:{s:s, s:s, s:I, s:I}, s:s, s:s, s:s, s:s, s:o, s:o, s:{s:I, "
			 "s:I, s:b}, "
			 "s:o, s:o, s:{s:I, s:I, s:I, s:I}, s:b, s:o}",
			 "format", FORMAT, "version", VFY_CAPTURE_VERSION, "model", "xxh3_128",
			 m->model_hash, "file", m->model_file, "layers", (json_int_t)m->n_layers,
			 "vocabulary", (json_int_t)m->n_vocab, "family", m->family, "isa", m->isa,
			 "build", m->build, "level", vfy_level_name(s->level), "layers",
			 range_json(s->first_layer, s->last_layer), "positions",
			 range_json(s->first_position, s->last_position), "request", "chunk",
			 (json_int_t)m->chunk, "neighbours", (json_int_t)m->neighbours,
			 "all_logits", m->all_logits, "prompt", ids_json(m->tokens, m->n_prompt),
			 "tokens", ids_json(m->tokens + m->n_prompt, m->n_new), "records", "frames",
			 (json_int_t)m->n_frames, "count", (json_int_t)m->n_records, "raw_bytes",
			 (json_int_t)m->raw_bytes, "stored_bytes", (json_int_t)m->stored_bytes,
			 "scores", s->scores, "checkpoints", checkpoints_json());
}

enum svc_code vfy_manifest_write(const struct vfy_manifest *manifest, const char *folder,
				 struct svc_err *err)
{
	char path[4096], temporary[4128];
	snprintf(path, sizeof path, "%s/manifest.json", folder);
	snprintf(temporary, sizeof temporary, "%s.new", path);
	json_t *root = vfy_manifest_json(manifest);
	int failed = !root || json_dump_file(root, temporary, JSON_INDENT(1));
	json_decref(root);
	if (failed || rename(temporary, path))
		return svc_fail_errno(err, __func__, "can't write %s", path);
	return SVC_OK;
}

static enum svc_code bad_field(const char *name, const char *wanted, struct svc_err *err)
{
	return svc_fail(err, SVC_CORRUPT, "manifest", "manifest.json: %s must be %s", name, wanted);
}

struct text_field {
	const char *name;
	char *out;
	size_t size;
};

static enum svc_code read_texts(const json_t *object, const struct text_field *fields, size_t n,
				struct svc_err *err)
{
	for (size_t i = 0; i < n; i++) {
		const json_t *value = json_object_get(object, fields[i].name);
		const char *text = json_string_value(value);
		if (!text || json_string_length(value) >= fields[i].size ||
		    strlen(text) != json_string_length(value))
			return bad_field(fields[i].name, "a short string", err);
		snprintf(fields[i].out, fields[i].size, "%s", text);
	}
	return SVC_OK;
}

static enum svc_code read_u32(const json_t *object, const char *name, uint32_t *ret,
			      struct svc_err *err)
{
	const json_t *value = json_object_get(object, name);
	if (!json_is_integer(value) || json_integer_value(value) < 0 ||
	    json_integer_value(value) > UINT32_MAX)
		return bad_field(name, "a whole number from 0 to 4294967295", err);
	*ret = (uint32_t)json_integer_value(value);
	return SVC_OK;
}

static enum svc_code read_u64(const json_t *object, const char *name, uint64_t *ret,
			      struct svc_err *err)
{
	const json_t *value = json_object_get(object, name);
	if (!json_is_integer(value) || json_integer_value(value) < 0)
		return bad_field(name, "a whole number from 0", err);
	*ret = (uint64_t)json_integer_value(value);
	return SVC_OK;
}

static enum svc_code read_range(const json_t *root, const char *name, uint32_t *ret_first,
				uint32_t *ret_last, struct svc_err *err)
{
	json_int_t first, last;
	/* jansson doesn't change what it unpacks, but its signature can't say so. */
	json_t *value = json_object_get(root, name);
	if (json_unpack(value, "[I, I!]", &first, &last) || first < 0 || last > UINT32_MAX ||
	    first > last)
		return bad_field(name, "a list of two ascending numbers", err);
	*ret_first = (uint32_t)first;
	*ret_last = (uint32_t)last;
	return SVC_OK;
}

static enum svc_code copy_ids(const json_t *list, const char *name, uint32_t n_vocab,
			      int32_t *ret_ids, struct svc_err *err)
{
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *id = json_array_get(list, i);
		if (!json_is_integer(id) || json_integer_value(id) < 0 ||
		    json_integer_value(id) >= n_vocab)
			return bad_field(name, "a list of ids of the vocabulary", err);
		ret_ids[i] = (int32_t)json_integer_value(id);
	}
	return SVC_OK;
}

static enum svc_code read_tokens(const json_t *root, struct vfy_manifest *m, struct svc_err *err)
{
	const json_t *prompt = json_object_get(root, "prompt");
	const json_t *tokens = json_object_get(root, "tokens");
	size_t n_prompt = json_array_size(prompt), n_new = json_array_size(tokens);
	if (n_prompt == 0 || n_prompt > MAX_TOKENS || !json_is_array(tokens) || n_new > MAX_TOKENS)
		return bad_field("prompt", "a list of 1 to 4194304 ids, and tokens another", err);
	m->tokens = calloc(n_prompt + n_new, sizeof *m->tokens);
	if (!m->tokens)
		return svc_fail_errno(err, __func__, "no memory for %zu ids", n_prompt + n_new);
	m->n_prompt = (uint32_t)n_prompt;
	m->n_new = (uint32_t)n_new;
	enum svc_code code = copy_ids(prompt, "prompt", m->n_vocab, m->tokens, err);
	return code ? code : copy_ids(tokens, "tokens", m->n_vocab, m->tokens + n_prompt, err);
}

static enum svc_code read_numbers(const json_t *root, struct vfy_manifest *m, struct svc_err *err)
{
	const json_t *model = json_object_get(root, "model");
	const json_t *request = json_object_get(root, "request");
	const json_t *records = json_object_get(root, "records");
	enum svc_code code = read_u32(model, "layers", &m->n_layers, err);
	code = code ? code : read_u32(model, "vocabulary", &m->n_vocab, err);
	code = code ? code : read_u32(request, "chunk", &m->chunk, err);
	code = code ? code : read_u32(request, "neighbours", &m->neighbours, err);
	code = code ? code : read_u64(records, "frames", &m->n_frames, err);
	code = code ? code : read_u64(records, "count", &m->n_records, err);
	code = code ? code : read_u64(records, "raw_bytes", &m->raw_bytes, err);
	code = code ? code : read_u64(records, "stored_bytes", &m->stored_bytes, err);
	if (code)
		return code;
	if (!json_is_boolean(json_object_get(request, "all_logits")))
		return bad_field("all_logits", "true or false", err);
	m->all_logits = json_is_true(json_object_get(request, "all_logits"));
	struct vfy_selection *s = &m->selection;
	if (!json_is_boolean(json_object_get(root, "scores")))
		return bad_field("scores", "true or false", err);
	s->scores = json_is_true(json_object_get(root, "scores"));
	code = read_range(root, "layers", &s->first_layer, &s->last_layer, err);
	return code ? code
		    : read_range(root, "positions", &s->first_position, &s->last_position, err);
}

static enum svc_code read_root(const json_t *root, struct vfy_manifest *m, struct svc_err *err)
{
	const char *format = json_string_value(json_object_get(root, "format"));
	const char *level = json_string_value(json_object_get(root, "level"));
	if (!format || strcmp(format, FORMAT) != 0)
		return bad_field("format", "\"" FORMAT "\"", err);
	const json_t *version = json_object_get(root, "version");
	if (json_integer_value(version) != VFY_CAPTURE_VERSION)
		return bad_field("version", "2: another build made it", err);
	if (!level || !vfy_level_parse(level, &m->selection.level))
		return bad_field("level", "hash, lean, state, layers or all", err);
	const struct text_field of_model[] = {
		{"xxh3_128", m->model_hash, sizeof m->model_hash},
		{"file", m->model_file, sizeof m->model_file},
	};
	const struct text_field of_root[] = {
		{"family", m->family, sizeof m->family},
		{"isa", m->isa, sizeof m->isa},
		{"build", m->build, sizeof m->build},
	};
	enum svc_code code = read_texts(json_object_get(root, "model"), of_model, 2, err);
	code = code ? code : read_texts(root, of_root, 3, err);
	code = code ? code : read_numbers(root, m, err);
	return code ? code : read_tokens(root, m, err);
}

enum svc_code vfy_manifest_parse(const char *text, size_t len, struct vfy_manifest *ret_manifest,
				 struct svc_err *err)
{
	json_error_t where;
	json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &where);
	if (!root)
		return svc_fail(err, SVC_CORRUPT, __func__, "manifest.json, line %d: %s",
				where.line, where.text);
	struct vfy_manifest manifest = {0};
	enum svc_code code = read_root(root, &manifest, err);
	json_decref(root);
	if (code)
		vfy_manifest_free(&manifest);
	else
		*ret_manifest = manifest;
	return code;
}

enum svc_code vfy_manifest_read(const char *folder, struct vfy_manifest *ret_manifest,
				struct svc_err *err)
{
	char path[4096];
	snprintf(path, sizeof path, "%s/manifest.json", folder);
	FILE *file = fopen(path, "rb");
	if (!file)
		return svc_fail_errno(err, __func__, "can't open %s, which a finished capture has",
				      path);
	char *text = malloc(MAX_FILE_BYTES);
	size_t len = text ? fread(text, 1, MAX_FILE_BYTES, file) : 0;
	enum svc_code code;
	if (!text || ferror(file))
		code = svc_fail_errno(err, __func__, "can't read %s", path);
	else if (len == MAX_FILE_BYTES)
		code = svc_fail(err, SVC_TOO_LARGE, __func__, "%s is larger than %d bytes", path,
				MAX_FILE_BYTES);
	else
		code = vfy_manifest_parse(text, len, ret_manifest, err);
	free(text);
	fclose(file);
	if (code)
		svc_err_prefix(err, "%s", folder);
	return code;
}

void vfy_manifest_free(struct vfy_manifest *manifest)
{
	free(manifest->tokens);
	manifest->tokens = NULL;
}
