/* The order of a pack's tiles, both ways; and that the check of an import finds every byte that is
 * wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "model/pack_private.h"
#include "model/safetensors.h"

/* As published: out[o] = in[G (o / G) + ((o % G) / 2) % S + S (o % 2)], G = K / 128, S = G / 2. */
static void test_order(void **unused)
{
	(void)unused;
	for (uint32_t rows = 32; rows <= 9 * 32; rows += 32) {
		for (uint32_t cols = 256; cols <= 5 * 256; cols += 256) {
			const struct pack_matrix m = {NULL, rows, cols, rows / 32 * (cols / 256)};
			uint32_t g = cols / 128, s = g / 2;
			for (uint32_t o = 0; o < m.n_tiles; o++) {
				uint32_t tile = pack_tile_at(&m, o);
				bool paired = o / g * g + g <= m.n_tiles;
				assert_int_equal(pack_place_of(&m, tile), o);
				assert_int_equal(tile, paired ? g * (o / g) + ((o % g) / 2) % s +
									s * (o % 2)
							      : o);
			}
		}
	}
}

static void put_file(const char *folder, const char *name, const void *bytes, size_t size)
{
	char path[256];
	snprintf(path, sizeof path, "%s/%s", folder, name);
	FILE *file = fopen(path, "wbe");
	assert_non_null(file);
	assert_int_equal(fwrite(bytes, 1, size, file), size);
	assert_int_equal(fclose(file), 0);
}

static void put_random(const char *folder, const char *name, size_t size)
{
	uint8_t *bytes = malloc(size);
	assert_non_null(bytes);
	for (size_t i = 0; i < size; i++)
		bytes[i] = (uint8_t)(i * 2654435761u >> 13);
	put_file(folder, name, bytes, size);
	free(bytes);
}

/* One layer of 256 columns: 8 tiles in each matrix but k and v, which have 4. */
static void put_pack(const char *folder)
{
	static const char config[] =
		"{\"model_type\":\"llama\",\"hidden_size\":256,\"intermediate_size\":256,"
		"\"num_hidden_layers\":1,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
		"\"head_dim\":64,\"vocab_size\":64,\"max_position_embeddings\":64,"
		"\"rms_norm_eps\":1e-5,\"rope_theta\":1e4,\"hidden_act\":\"silu\","
		"\"tie_word_embeddings\":true}";
	static const char layout[] =
		"{\"format\":\"lockstep-pack\",\"version\":1,\"tile_bytes\":5120,"
		"\"attention\":[\"k\",\"q\",\"v\"],\"mlp\":[\"up\",\"gate\"],\"chunk_tiles\":3,"
		"\"o_proj_k\":256,\"vectors\":[\"input_layernorm.weight\","
		"\"post_attention_layernorm.weight\"],\"tensors\":12,\"tiles\":50,"
		"\"attention_tiles\":24,\"mlp_groups\":3,\"norm_anchors\":3}";
	put_file(folder, "config.json", config, sizeof config - 1);
	put_file(folder, "pack.json", layout, sizeof layout - 1);
	put_random(folder, "layer.0.bin", (size_t)48 * PACK_TILE_BYTES + 1024);
	put_random(folder, "head.bin", (size_t)2 * PACK_TILE_BYTES + 512);
	put_random(folder, "embedding.bin", (size_t)64 * 256 * 2);
}

static void remove_pack(const char *folder)
{
	static const char *const names[] = {"config.json", "pack.json",	    "layer.0.bin",
					    "head.bin",	   "embedding.bin", "model.q4nx"};
	char path[256];
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		snprintf(path, sizeof path, "%s/%s", folder, names[i]);
		unlink(path);
	}
	assert_int_equal(rmdir(folder), 0);
}

static void flip(const char *path, uint64_t at)
{
	FILE *file = fopen(path, "r+be");
	assert_non_null(file);
	assert_int_equal(fseek(file, (long)at, SEEK_SET), 0);
	int byte = fgetc(file);
	assert_int_equal(fseek(file, (long)at, SEEK_SET), 0);
	fputc(byte ^ 1, file);
	assert_int_equal(fclose(file), 0);
}

static void test_check(void **unused)
{
	char folder[] = "/tmp/pack-test-XXXXXX", path[64];
	static const struct draft_progress quiet;
	struct pack *pack = NULL;
	struct draft draft;
	struct pack_counts counts;
	struct svc_err err = {0};
	size_t kept;
	(void)unused;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof path, "%s/model.q4nx", folder);
	put_pack(folder);
	if (pack_open(folder, &pack, &err) != SVC_OK)
		fail_msg("%s", err.msg);
	assert_int_equal(pack_draft(pack, &draft, &err), SVC_OK);
	assert_int_equal(draft_write(&draft, path, 1, &quiet, &kept, &err), SVC_OK);
	assert_int_equal(pack_check(pack, path, &quiet, &counts, &err), SVC_OK);
	assert_int_equal(counts.tiles, 50);
	/* Any wrong byte of any tensor. */
	for (size_t i = 0; i < draft.n; i++) {
		const struct draft_tensor *t = &draft.tensors[i];
		for (uint32_t part = 0; part < 7; part++) {
			uint64_t at = t->offset + (t->size_bytes - 1) * part / 6;
			flip(path, at);
			assert_int_equal(pack_check(pack, path, &quiet, &counts, &err),
					 SVC_CORRUPT);
			assert_non_null(strstr(err.msg, "isn't the pack's"));
			flip(path, at);
		}
	}
	assert_int_equal(pack_check(pack, path, &quiet, &counts, &err), SVC_OK);
	draft_free(&draft);
	pack_close(pack);
	remove_pack(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_check),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
