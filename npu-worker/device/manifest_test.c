/* Kernel folders: which manifests are refused, and how a stream for n tokens comes from the one
 * for 1. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "npu-worker/device/manifest.h"

#define HEAD \
	"\"format\":1,\"family\":\"a16-v1\",\"program\":\"p\",\"kernel\":\"K\",\"max_tokens\":64"
#define HASH ",\"xxh3\":\"2d06800538d394c2\"" /* of no bytes */
#define PRODUCT                                                                                   \
	"{\"type\":\"Q4_1\",\"rows\":32,\"cols\":64,\"words\":[7,1,100,0,0,9],"                   \
	"\"linear\":[{\"word\":1,\"step\":2}],\"block\":[{\"word\":2,\"tokens\":16,\"step\":5}]," \
	"\"weights\":3,\"output\":5}"

static char folder[] = "/tmp/lockstep-manifest-XXXXXX";

static void write_text(const char *name, const char *text)
{
	char path[128];
	snprintf(path, sizeof path, "%s/%s", folder, name);
	FILE *file = fopen(path, "we");
	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	fclose(file);
}

static enum svc_code open_text(const char *text, struct manifest **ret, struct svc_err *err)
{
	write_text("manifest.json", text);
	return manifest_open(folder, ret, err);
}

static int make_folder(void **unused)
{
	(void)unused;
	return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **unused)
{
	static const char *const names[] = {"/manifest.json", "/p", ""};
	char path[128];
	(void)unused;
	for (int i = 0; i < 3; i++) {
		snprintf(path, sizeof path, "%s%s", folder, names[i]);
		remove(path);
	}
	return 0;
}

static void test_streams(void **unused)
{
	struct manifest *m = NULL;
	struct svc_err err = {0};
	uint32_t words[MANIFEST_MAX_WORDS];
	char text[64];
	(void)unused;
	write_text("p", "x");
	assert_int_equal(open_text("{" HEAD ",\"xxh3\":\"eaf06c6480b2cd11\",\"products\":[" PRODUCT
				   "]}",
				   &m, &err),
			 SVC_OK);
	const struct kernels_matrix there = {GGUF_TENSOR_Q4_1, 32, 64, NULL},
				    not_there = {GGUF_TENSOR_Q4_0, 32, 64, NULL};
	const struct manifest_product *p = manifest_find(m, &there);
	assert_non_null(p);
	assert_null(manifest_find(m, &not_there));
	/* linear: 1 + 2 (n - 1); block: 100 + 5 per 16 further tokens; weights in two words. */
	static const uint32_t tokens[] = {1, 2, 16, 17, 64}, linear[] = {1, 3, 31, 33, 127},
			      block[] = {100, 100, 100, 105, 115};
	for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
		manifest_product_words(p, tokens[i], UINT64_C(0x500000006), 77, words);
		const uint32_t wanted[] = {7, linear[i], block[i], 6, 5, 77};
		assert_memory_equal(words, wanted, sizeof wanted);
	}
	manifest_list(m, text, sizeof text);
	assert_string_equal(text, "Q4_1 32x64");
	manifest_close(m);
}

static void test_what_is_wrong_is_named(void **unused)
{
	static const struct {
		const char *text, *said;
	} cases[] = {
		{"{", "no NPU kernels"},
		{"{\"format\":2}", "format is 2"},
		{"{\"format\":1,\"program\":\"../p\"}", "program"},
		{"{\"format\":1,\"program\":\"p\",\"kernel\":\"\"}", "kernel"},
		{"{" HEAD ",\"products\":[]}", "products"},
		{"{" HEAD ",\"products\":[{\"type\":\"Q9_9\"}]}", "products[0]"},
		{"{" HEAD HASH ",\"products\":[" PRODUCT "]}", "don't belong together"},
	};
	(void)unused;
	write_text("p", "x");
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct manifest *m = NULL;
		struct svc_err err = {0};
		assert_int_equal(open_text(cases[i].text, &m, &err), SVC_NO_DEVICE);
		if (!strstr(err.msg, cases[i].said))
			fail_msg("%s: %s", cases[i].text, err.msg);
	}
}

/* Each number of a product beyond its bounds. */
static void test_bounds(void **unused)
{
	static const char *const products[] = {
		"\"rows\":0,\"cols\":64,\"words\":[1,2,3],\"weights\":0,\"output\":2",
		"\"rows\":32,\"cols\":-1,\"words\":[1,2,3],\"weights\":0,\"output\":2",
		"\"rows\":32,\"cols\":64,\"words\":[],\"weights\":0,\"output\":2",
		"\"rows\":32,\"cols\":64,\"words\":[4294967296],\"weights\":0,\"output\":0",
		"\"rows\":32,\"cols\":64,\"words\":[1,2,3],\"weights\":2,\"output\":2",
		"\"rows\":32,\"cols\":64,\"words\":[1,2,3],\"weights\":0,\"output\":3",
		"\"rows\":32,\"cols\":64,\"words\":[1,2,3],\"weights\":0,\"output\":2,"
		"\"linear\":[{\"word\":3,\"step\":1}]",
		"\"rows\":32,\"cols\":64,\"words\":[1,2,3],\"weights\":0,\"output\":2,"
		"\"block\":[{\"word\":1,\"step\":1,\"tokens\":0}]",
	};
	(void)unused;
	for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
		struct manifest *m = NULL;
		struct svc_err err = {0};
		char text[1024];
		snprintf(text, sizeof text, "{" HEAD ",\"products\":[{\"type\":\"Q4_1\",%s}]}",
			 products[i]);
		assert_int_equal(open_text(text, &m, &err), SVC_NO_DEVICE);
		assert_non_null(strstr(err.msg, "products[0]"));
	}
}

#define LAYER(more)                                                                                \
	"{" HEAD                                                                                   \
	",\"xxh3\":\"eaf06c6480b2cd11\",\"head\":{\"type\":\"Q8_0\",\"rows\":96,\"cols\":64,"      \
	"\"words\":[0,0,0,0],\"parts\":[0,2]},\"layers\":[{\"embd\":64,\"ffn\":128,\"heads\":4,"   \
	"\"kv_heads\":2,\"head_dim\":16,\"interleaved\":false,\"types\":[\"Q4_1\",\"Q4_1\","       \
	"\"Q4_1\",\"Q4_1\",\"Q4_1\",\"Q4_1\",\"Q8_0\"],\"words\":[1,2,3,4,5,6,7,8,9,10,11,12,13]," \
	"\"keys\":[{\"word\":12,\"keys\":64,\"step\":3}],\"kv\":11," more "}]}"
#define NINE "0,1,2,3,4,5,6,7,8"

/* Parts of what a layer has stand behind the nine, in their order. */
static void test_layers(void **unused)
{
	struct manifest *m = NULL;
	struct svc_err err = {0};
	uint32_t words[MANIFEST_MAX_WORDS];
	char text[200];
	(void)unused;
	write_text("p", "x");
	assert_int_equal(open_text(LAYER("\"with\":[\"softcap\",\"gelu\",\"head_norms\"],"
					 "\"window\":70,\"parts\":[" NINE ",9,10]"),
				   &m, &err),
			 SVC_OK);
	const struct manifest_layer *l = &m->layers[0];
	assert_true(manifest_has_part(&l->shape, MANIFEST_K_NORM));
	assert_false(manifest_has_part(&l->shape, MANIFEST_Q_BIAS));
	assert_int_equal(l->parts[MANIFEST_Q_NORM], 9);
	assert_int_equal(l->parts[MANIFEST_K_NORM], 10);
	manifest_list(m, text, sizeof text);
	assert_string_equal(text, "layers of 64 wide, ffn 128, 4 heads and 2 of keys, each 16, "
				  "with head_norms and gelu and softcap, window 70");
	manifest_derive(&l->stream, 5, 65, words);
	assert_int_equal(words[12], 13 + 3);
	struct manifest_shape other = l->shape;
	assert_ptr_equal(manifest_find_layer(m, &other), l);
	other.window = 71;
	assert_null(manifest_find_layer(m, &other));
	manifest_close(m);
}

static void test_layers_that_are_wrong(void **unused)
{
	static const char *const cases[] = {
		LAYER("\"parts\":[" NINE ",9]"),
		LAYER("\"parts\":[0]"),
		LAYER("\"with\":[\"qkv_bias\"],\"parts\":[" NINE "]"),
		LAYER("\"with\":[\"wings\"],\"parts\":[" NINE "]"),
		LAYER("\"with\":[1],\"parts\":[" NINE "]"),
		LAYER("\"with\":\"gelu\",\"parts\":[" NINE "]"),
		LAYER("\"window\":0,\"parts\":[" NINE "]"),
	};
	(void)unused;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct manifest *m = NULL;
		struct svc_err err = {0};
		assert_int_equal(open_text(cases[i], &m, &err), SVC_NO_DEVICE);
		assert_non_null(strstr(err.msg, "layers[0]"));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layers),	cmocka_unit_test(test_layers_that_are_wrong),
		cmocka_unit_test(test_streams), cmocka_unit_test(test_what_is_wrong_is_named),
		cmocka_unit_test(test_bounds),
	};
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
