#include "model/folder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "model/folder_private.h"

#define MAX_JSON_BYTES (64u << 20)

static bool exists(const struct folder *folder, const char *name, char path[8192])
{
	snprintf(path, 8192, "%s/%s", folder->path, name);
	return access(path, F_OK) == 0;
}

bool folder_is(const char *path)
{
	struct stat stat_buf;
	return stat(path, &stat_buf) == 0 && S_ISDIR(stat_buf.st_mode);
}

static enum svc_code read_json(const char *path, json_t **ret_root, struct svc_err *err)
{
	struct stat stat_buf;
	json_error_t where;
	FILE *file = fopen(path, "rbe");
	if (!file)
		return svc_fail_errno(err, "folder", "cannot open %s", path);
	if (fstat(fileno(file), &stat_buf) != 0 || !S_ISREG(stat_buf.st_mode) ||
	    stat_buf.st_size > (off_t)MAX_JSON_BYTES) {
		fclose(file);
		return svc_fail(err, SVC_BAD_MODEL, "folder",
				"%s is no regular file of at most %u bytes", path, MAX_JSON_BYTES);
	}
	*ret_root = json_loadf(file, JSON_REJECT_DUPLICATES, &where);
	fclose(file);
	if (!*ret_root)
		return svc_fail(err, SVC_BAD_MODEL, "folder", "%s is not JSON: line %d: %.100s",
				path, where.line, where.text);
	return SVC_OK;
}

static enum q4nx_answer answer_of(const json_t *mark, const char *field, const char *first,
				  const char *second)
{
	const char *word = json_string_value(json_object_get(mark, field));
	if (word && strcmp(word, first) == 0)
		return Q4NX_FIRST;
	return word && strcmp(word, second) == 0 ? Q4NX_SECOND : Q4NX_UNKNOWN;
}

static enum svc_code read_config(struct folder *folder, struct svc_err *err)
{
	char path[8192];
	json_t *root = NULL, *generation = NULL;
	(void)exists(folder, "config.json", path);
	enum svc_code code = read_json(path, &root, err);
	if (code == SVC_OK)
		code = hf_config_read(root, &folder->config, err);
	if (code == SVC_OK && exists(folder, "generation_config.json", path)) {
		code = read_json(path, &generation, err);
		if (code == SVC_OK)
			code = hf_config_read_ends(generation, &folder->config, err);
	}
	const json_t *mark = json_object_get(root, "lockstep_q4nx");
	if (folder->hints.q8 == Q4NX_UNKNOWN)
		folder->hints.q8 = answer_of(mark, "q8", "a", "b");
	if (folder->hints.scales == Q4NX_UNKNOWN)
		folder->hints.scales = answer_of(mark, "scales", "group", "row");
	json_decref(root);
	json_decref(generation);
	return code;
}

/* The source's keys, kept when a GGUF file was converted; they must say what config.json says. */
static enum svc_code read_metadata(struct folder *folder, struct svc_err *err)
{
	char path[8192];
	static const struct hf_config none;
	struct hf_config stated = none;
	if (!exists(folder, "metadata.gguf", path))
		return SVC_OK;
	enum svc_code code = gguf_open(path, &folder->metadata, err);
	if (code == SVC_OK)
		code = hf_config_from_gguf(folder->metadata, &stated, err);
	if (code != SVC_OK)
		return code;
	/* What this file cannot state: it has no tensors. */
	stated.vocab = folder->config.vocab;
	if (strcmp(folder->config.rope.type, "longrope") == 0)
		memcpy(stated.rope.type, folder->config.rope.type, sizeof stated.rope.type);
	return hf_config_compare(&folder->config, &stated, err);
}

static enum svc_code add_file(struct folder *folder, const char *path, struct svc_err *err)
{
	struct stat stat_buf = {0};
	if (folder->n_files == FOLDER_MAX_FILES)
		return svc_fail(err, SVC_TOO_LARGE, "folder", "more than %d files",
				FOLDER_MAX_FILES);
	enum svc_code code = safetensors_open(path, &folder->files[folder->n_files], err);
	if (code != SVC_OK)
		return code;
	folder->n_files++;
	if (stat(path, &stat_buf) != 0)
		return svc_fail_errno(err, "folder", "cannot stat %s", path);
	const int64_t marks[3] = {stat_buf.st_size, stat_buf.st_mtim.tv_sec,
				  stat_buf.st_mtim.tv_nsec};
	folder->stamp = XXH3_64bits_withSeed(marks, sizeof marks, folder->stamp);
	return SVC_OK;
}

static bool is_plain_name(const char *name)
{
	return name && name[0] && name[0] != '.' && !strchr(name, '/');
}

/* The shards of a checkpoint: the files that its index names, each once, in the order of first
 * mention. */
static enum svc_code add_shards(struct folder *folder, const char *index, struct svc_err *err)
{
	json_t *root = NULL, *seen = json_object(), *value;
	const char *key;
	enum svc_code code = read_json(index, &root, err);
	json_t *map = json_object_get(root, "weight_map");
	if (code == SVC_OK && json_object_size(map) == 0)
		code = svc_fail(err, SVC_BAD_MODEL, "folder", "%s has no weight_map", index);
	json_object_foreach(map, key, value)
	{
		char path[8192];
		const char *name = json_string_value(value);
		if (code == SVC_OK && !is_plain_name(name))
			code = svc_fail(err, SVC_BAD_MODEL, "folder",
					"%s: weight_map['%.80s'] is not a file's name", index, key);
		if (code != SVC_OK)
			break;
		if (json_object_get(seen, name))
			continue;
		json_object_set_new(seen, name, json_true());
		(void)exists(folder, name, path);
		code = add_file(folder, path, err);
	}
	json_decref(root);
	json_decref(seen);
	return code;
}

static enum svc_code open_files(struct folder *folder, struct svc_err *err)
{
	char path[8192];
	folder->kind = FOLDER_Q4NX;
	if (exists(folder, "model.q4nx", path))
		return add_file(folder, path, err);
	folder->kind = FOLDER_SAFETENSORS;
	if (exists(folder, "model.safetensors", path))
		return add_file(folder, path, err);
	if (exists(folder, "model.safetensors.index.json", path))
		return add_shards(folder, path, err);
	return svc_fail(err, SVC_BAD_MODEL, "folder",
			"none of model.q4nx, model.safetensors and model.safetensors.index.json is "
			"there");
}

static void probe(struct folder *folder)
{
	const struct safetensors_tensor *head = folder_find(folder, span_of("lm_head.weight"));
	const struct safetensors_tensor *embed =
		folder_find(folder, span_of("model.embed_tokens.weight"));
	const struct hf_config *c = &folder->config;
	bool floats = embed &&
		      (embed->dtype == ST_BF16 || embed->dtype == ST_F16 || embed->dtype == ST_F32);
	if (folder->kind == FOLDER_Q4NX && c->tied && head && floats && embed->n_dims == 2 &&
	    embed->dims[0] == c->vocab && embed->dims[1] == c->hidden)
		q4nx_hints_probe(head, embed, c->vocab, c->hidden, &folder->hints);
}

static enum svc_code open_all(struct folder *folder, struct svc_err *err)
{
	enum svc_code code = open_files(folder, err);
	if (code == SVC_OK)
		code = read_config(folder, err);
	if (code == SVC_OK && folder->kind == FOLDER_Q4NX && folder->config.arch == HF_PHI3)
		code = svc_fail(err, SVC_UNSUPPORTED, "folder",
				"Q4NX files of phi3 models are not supported: the order of their "
				"query rows is not known for sure");
	if (code == SVC_OK)
		code = read_metadata(folder, err);
	if (code != SVC_OK)
		return code;
	probe(folder);
	return folder_plan(folder, err);
}

enum svc_code folder_open(const char *path, const struct q4nx_hints *hints,
			  struct folder **ret_folder, struct svc_err *err)
{
	size_t length = strlen(path);
	while (length > 1 && path[length - 1] == '/')
		length--;
	struct folder *folder = calloc(1, sizeof *folder);
	if (!folder || length >= sizeof folder->path) {
		free(folder);
		return svc_fail(err, SVC_NO_MEMORY, __func__, "%s: no memory, or too long a path",
				path);
	}
	snprintf(folder->path, sizeof folder->path, "%.*s", (int)length, path);
	arena_init(&folder->draft.arena, 0);
	if (hints)
		folder->hints = *hints;
	enum svc_code code = open_all(folder, err);
	if (code != SVC_OK) {
		if (strncmp(err->msg, path, length) != 0)
			svc_err_prefix(err, "%s", folder->path);
		folder_close(folder);
		return code;
	}
	*ret_folder = folder;
	return SVC_OK;
}

struct folder *folder_close(struct folder *folder)
{
	if (!folder)
		return NULL;
	for (uint32_t i = 0; i < folder->n_files; i++)
		safetensors_close(folder->files[i]);
	gguf_close(folder->metadata);
	free(folder->tensors);
	draft_free(&folder->draft);
	free(folder);
	return NULL;
}

enum folder_kind folder_kind(const struct folder *folder)
{
	return folder->kind;
}

const struct hf_config *folder_config(const struct folder *folder)
{
	return &folder->config;
}

const struct draft *folder_draft(const struct folder *folder)
{
	return &folder->draft;
}

uint64_t folder_stamp(const struct folder *folder)
{
	return folder->stamp;
}

bool folder_form_at(const struct folder *folder, size_t index, const char **ret_form,
		    uint64_t *ret_tensors, uint64_t *ret_tiles, uint64_t *ret_bytes)
{
	if (index >= folder->n_forms)
		return false;
	*ret_form = folder->forms[index].name;
	*ret_tensors = folder->forms[index].tensors;
	*ret_tiles = folder->forms[index].tiles;
	*ret_bytes = folder->forms[index].bytes;
	return true;
}
