/* Opens a pack: its files, and whether their sizes are the ones that config.json makes. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "model/pack_private.h"
#include "model/tile.h"

#define MAX_JSON_BYTES (16u << 20)

static const char *const matrix_names[PACK_MATRICES] = {
	"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight",
	"self_attn.o_proj.weight", "mlp.gate_proj.weight",    "mlp.up_proj.weight",
	"mlp.down_proj.weight",
};

static enum svc_code read_json(const struct pack *pack, const char *name, json_t **ret_root,
			       struct svc_err *err)
{
	char path[sizeof pack->path + 64];
	json_error_t where;
	struct stat stat_buf;
	snprintf(path, sizeof path, "%s/%s", pack->path, name);
	if (stat(path, &stat_buf) != 0)
		return svc_fail_errno(err, "pack", "cannot open %s", name);
	if (!S_ISREG(stat_buf.st_mode) || stat_buf.st_size > (off_t)MAX_JSON_BYTES)
		return svc_fail(err, SVC_BAD_MODEL, "pack",
				"%s is no regular file of at most %u bytes", name, MAX_JSON_BYTES);
	*ret_root = json_load_file(path, JSON_REJECT_DUPLICATES, &where);
	if (*ret_root && !json_is_object(*ret_root)) {
		json_decref(*ret_root);
		*ret_root = NULL;
	}
	return *ret_root ? SVC_OK
			 : svc_fail(err, SVC_BAD_MODEL, "pack", "%s is no JSON object: %.100s",
				    name, where.text);
}

static enum svc_code read_configs(struct pack *pack, struct svc_err *err)
{
	json_t *layout = NULL, *config = NULL, *generation = NULL;
	char path[sizeof pack->path + 64];
	enum svc_code code = read_json(pack, "pack.json", &layout, err);
	if (code == SVC_OK)
		code = pack_layout_read(layout, &pack->layout, err);
	if (code == SVC_OK)
		code = read_json(pack, "config.json", &config, err);
	if (code == SVC_OK)
		code = hf_config_read(config, &pack->config, err);
	snprintf(path, sizeof path, "%s/generation_config.json", pack->path);
	if (code == SVC_OK && access(path, F_OK) == 0) {
		code = read_json(pack, "generation_config.json", &generation, err);
		if (code == SVC_OK)
			code = hf_config_read_ends(generation, &pack->config, err);
	}
	json_decref(layout);
	json_decref(config);
	json_decref(generation);
	return code;
}

static enum svc_code plan_matrix(struct pack *pack, const char *name, struct pack_matrix *m,
				 struct svc_err *err)
{
	const struct hf_config *c = &pack->config;
	char full[HF_NAME_BYTES];
	uint32_t layer;
	snprintf(full, sizeof full, "%s%s", m == &pack->head ? "" : "model.layers.0.", name);
	m->what = hf_find(c, span_of(full), false, &layer);
	if (!m->what)
		return svc_fail(err, SVC_UNSUPPORTED, "pack", "packs of %s models have no layout",
				hf_arch_name(c->arch));
	m->rows = hf_width(c, m->what->rows);
	m->cols = hf_width(c, m->what->cols);
	if (m->rows % TILE_ROWS || m->cols % TILE_COLS || !m->rows || !m->cols)
		return svc_fail(err, SVC_UNSUPPORTED, "pack",
				"%s is %u x %u; a pack's tiles cover multiples of %d rows and %d "
				"columns",
				name, m->rows, m->cols, TILE_ROWS, TILE_COLS);
	m->n_tiles = m->rows / TILE_ROWS * (m->cols / TILE_COLS);
	return SVC_OK;
}

static enum svc_code plan_vectors(struct pack *pack, struct svc_err *err)
{
	struct pack_counts *d = &pack->derived;
	uint32_t layer;
	for (uint32_t v = 0; v < pack->layout.n_vectors; v++) {
		char name[HF_NAME_BYTES + 16];
		snprintf(name, sizeof name, "model.layers.0.%s", pack->layout.vectors[v]);
		const struct hf_tensor *what = hf_find(&pack->config, span_of(name), false, &layer);
		if (!what || what->is_matrix)
			return svc_fail(err, SVC_UNSUPPORTED, "pack",
					"pack.json: vectors: a %s layer has no vector %s",
					hf_arch_name(pack->config.arch), pack->layout.vectors[v]);
		pack->vectors[v] = what;
		d->norm_anchors += what->is_norm ? pack->config.n_layers : 0;
	}
	d->norm_anchors++; /* the last norm, behind the head */
	return SVC_OK;
}

static enum svc_code plan(struct pack *pack, struct svc_err *err)
{
	struct pack_counts *d = &pack->derived;
	const struct pack_matrix *m = pack->matrices;
	uint64_t layers = pack->config.n_layers;
	enum svc_code code = plan_matrix(pack, "lm_head.weight", &pack->head, err);
	for (uint32_t i = 0; i < PACK_MATRICES && code == SVC_OK; i++)
		code = plan_matrix(pack, matrix_names[i], &pack->matrices[i], err);
	if (code == SVC_OK)
		code = plan_vectors(pack, err);
	if (code != SVC_OK)
		return code;
	if (m[PACK_O].cols != pack->layout.o_cols)
		return svc_fail(err, SVC_BAD_MODEL, "pack",
				"pack.json: o_proj_k is %u; config.json's heads make %u",
				pack->layout.o_cols, m[PACK_O].cols);
	d->attention_tiles = (uint64_t)m[PACK_Q].n_tiles + m[PACK_K].n_tiles + m[PACK_V].n_tiles +
			     m[PACK_O].n_tiles;
	pack->layer_tiles = d->attention_tiles + (uint64_t)m[PACK_GATE].n_tiles +
			    m[PACK_UP].n_tiles + m[PACK_DOWN].n_tiles;
	pack->groups = ((uint64_t)m[PACK_UP].n_tiles + pack->layout.chunk_tiles - 1) /
		       pack->layout.chunk_tiles;
	d->mlp_groups = layers * pack->groups;
	d->tiles = layers * pack->layer_tiles + pack->head.n_tiles;
	d->tensors = layers * (PACK_MATRICES + pack->layout.n_vectors) + 3;
	return SVC_OK;
}

static enum svc_code compare_counts(const struct pack *pack, struct svc_err *err)
{
	const struct pack_counts *s = &pack->layout.stated, *d = &pack->derived;
	const struct {
		const char *name;
		uint64_t stated, derived;
	} counts[] = {
		{"tensors", s->tensors, d->tensors},
		{"tiles", s->tiles, d->tiles},
		{"attention_tiles", s->attention_tiles, d->attention_tiles},
		{"mlp_groups", s->mlp_groups, d->mlp_groups},
		{"norm_anchors", s->norm_anchors, d->norm_anchors},
	};
	for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
		if (counts[i].stated != counts[i].derived)
			return svc_fail(err, SVC_BAD_MODEL, "pack",
					"pack.json states %" PRIu64 " %s; config.json's sizes make "
					"%" PRIu64 ": they don't belong together",
					counts[i].stated, counts[i].name, counts[i].derived);
	return SVC_OK;
}

static enum svc_code map_file(struct pack *pack, const char *name, uint64_t bytes,
			      struct span *ret_file, struct svc_err *err)
{
	char path[sizeof pack->path + 64];
	struct stat s = {0};
	snprintf(path, sizeof path, "%s/%s", pack->path, name);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &s) != 0) {
		enum svc_code code = svc_fail_errno(err, "pack", "cannot open %s", name);
		if (fd >= 0)
			close(fd);
		return code;
	}
	if (!S_ISREG(s.st_mode) || (uint64_t)s.st_size != bytes) {
		close(fd);
		return svc_fail(err, SVC_BAD_MODEL, "pack",
				"%s has %" PRIu64 " bytes (%" PRIu64 " tiles); config.json's sizes "
				"make %" PRIu64 " (%" PRIu64 " tiles, then the vectors)",
				name, (uint64_t)s.st_size, (uint64_t)s.st_size / PACK_TILE_BYTES,
				bytes, bytes / PACK_TILE_BYTES);
	}
	const int64_t marks[3] = {s.st_size, s.st_mtim.tv_sec, s.st_mtim.tv_nsec};
	pack->stamp = XXH3_64bits_withSeed(marks, sizeof marks, pack->stamp);
	void *memory = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (memory == MAP_FAILED)
		return svc_fail_errno(err, "pack", "cannot map %s", name);
	(void)madvise(memory, bytes, MADV_SEQUENTIAL);
	*ret_file = (struct span){memory, bytes};
	return SVC_OK;
}

static enum svc_code map_files(struct pack *pack, struct svc_err *err)
{
	const struct hf_config *c = &pack->config;
	uint64_t layer_bytes = pack_vector_offset(pack, pack->layout.n_vectors);
	char name[32];
	enum svc_code code = map_file(pack, "embedding.bin", (uint64_t)2 * c->vocab * c->hidden,
				      &pack->embedding, err);
	if (code == SVC_OK)
		code = map_file(pack, "head.bin",
				(uint64_t)pack->head.n_tiles * PACK_TILE_BYTES +
					(uint64_t)2 * c->hidden,
				&pack->head_file, err);
	for (uint32_t layer = 0; layer < c->n_layers && code == SVC_OK; layer++) {
		snprintf(name, sizeof name, "layer.%u.bin", layer);
		code = map_file(pack, name, layer_bytes, &pack->layers[layer], err);
	}
	return code;
}

enum svc_code pack_open(const char *path, struct pack **ret_pack, struct svc_err *err)
{
	struct pack *pack = calloc(1, sizeof *pack);
	if (!pack || strlen(path) >= sizeof pack->path) {
		free(pack);
		return svc_fail(err, SVC_NO_MEMORY, __func__, "%s: no memory, or too long a path",
				path);
	}
	snprintf(pack->path, sizeof pack->path, "%s", path);
	enum svc_code code = read_configs(pack, err);
	if (code == SVC_OK)
		code = plan(pack, err);
	if (code == SVC_OK)
		code = compare_counts(pack, err);
	if (code == SVC_OK)
		code = map_files(pack, err);
	if (code != SVC_OK) {
		svc_err_prefix(err, "%s", path);
		pack_close(pack);
		return code;
	}
	*ret_pack = pack;
	return SVC_OK;
}

static void unmap(struct span file)
{
	if (file.ptr)
		munmap((void *)(uintptr_t)file.ptr, file.len);
}

struct pack *pack_close(struct pack *pack)
{
	if (!pack)
		return NULL;
	for (uint32_t layer = 0; layer < HF_MAX_LAYERS; layer++)
		unmap(pack->layers[layer]);
	unmap(pack->head_file);
	unmap(pack->embedding);
	free(pack);
	return NULL;
}
