#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "model/safetensors.h"

/* Opens header and data_bytes zero bytes behind it. length: 0 for the right one. */
static enum svc_code open_text(const char *header, size_t data_bytes, uint64_t length,
			       struct safetensors **ret_file, struct svc_err *err)
{
	char path[64];
	uint64_t n = length ? length : strlen(header);
	int fd = memfd_create("safetensors", MFD_CLOEXEC);
	assert_true(fd >= 0);
	assert_true(write(fd, &n, sizeof n) == sizeof n);
	assert_true(write(fd, header, strlen(header)) == (ssize_t)strlen(header));
	assert_true(ftruncate(fd, (off_t)(sizeof n + strlen(header) + data_bytes)) == 0);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	enum svc_code code = safetensors_open(path, ret_file, err);
	close(fd);
	return code;
}

#define ENTRY(name, dtype, shape, begin, end)                                                  \
	"\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" begin \
	"," end "]}"

static void test_a_file_is_read(void **unused)
{
	struct safetensors *file = NULL;
	struct svc_err err = {0};
	(void)unused;
	/* Metadata, a gap between the two, and an order of names that isn't the data's. */
	assert_int_equal(open_text("{\"__metadata__\":{\"a\":\"b\"}," ENTRY(
					   "a", "I8", "2,3", "16", "22") "," ENTRY("b", "BF16", "4",
										   "0", "8") "}   ",
				   22, 0, &file, &err),
			 SVC_OK);
	assert_int_equal(safetensors_count(file), 2);
	const struct safetensors_tensor *first = safetensors_at(file, 0), *a;
	assert_true(span_is(first->name, "b"));
	a = safetensors_find(file, span_of("a"));
	assert_non_null(a);
	assert_int_equal(a->dtype, ST_I8);
	assert_int_equal(a->dims[1], 3);
	assert_int_equal(a->size_bytes, 6);
	assert_int_equal((const char *)a->data - (const char *)first->data, 16);
	assert_null(safetensors_find(file, span_of("__metadata__")));
	assert_null(safetensors_at(file, 2));
	safetensors_close(file);
}

static void test_tiles_with_a_logical_shape(void **unused)
{
	struct safetensors *file = NULL;
	struct svc_err err = {0};
	(void)unused;
	assert_int_equal(open_text("{" ENTRY("a", "Q4NX", "64,256", "0", "10240") "}", 10240, 0,
				   &file, &err),
			 SVC_OK);
	assert_int_equal(safetensors_at(file, 0)->size_bytes, 10240);
	safetensors_close(file);
	assert_int_equal(open_text("{" ENTRY("a", "Q4NX", "33,256", "0", "10240") "}", 10240, 0,
				   &file, &err),
			 SVC_BAD_MODEL);
}

static void test_what_is_wrong_is_named(void **unused)
{
	static const struct {
		const char *header;
		uint64_t length;
		const char *said;
	} cases[] = {
		{"{}", 1u << 30, "length"},
		{"{}", 3, "JSON"},
		{"[]", 0, "not an object"},
		{"{" ENTRY("a", "F32", "1", "0", "4") "," ENTRY("a", "F32", "1", "4", "8") "}", 0,
		 "twice"},
		{"{" ENTRY("a", "F5", "1", "0", "4") "}", 0, "dtype 'F5'"},
		{"{" ENTRY("a", "F32", "1,1,1,1,1,1,1,1,1", "0", "4") "}", 0, "shape"},
		{"{" ENTRY("a", "F32", "-1", "0", "4") "}", 0, "shape[0]"},
		{"{" ENTRY("a", "F32", "1.5", "0", "4") "}", 0, "shape[0]"},
		{"{" ENTRY("a", "F32", "4294967296,4294967296", "0", "4") "}", 0, "overflows"},
		{"{" ENTRY("a", "F32", "9223372036854775807", "0", "4") "}", 0, "overflows"},
		{"{" ENTRY("a", "F32", "2", "0", "4") "}", 0, "need 8"},
		{"{" ENTRY("a", "F32", "1", "8", "4") "}", 0, "data_offsets"},
		{"{" ENTRY("a", "F32", "1", "6", "10") "}", 0, "not within"},
		{"{" ENTRY("a", "F32", "1", "0", "4") "," ENTRY("b", "F32", "1", "3", "7") "}", 0,
		 "overlap"},
		{"{\"a\":3}", 0, "not an object"},
		{"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 0, "data_offsets"},
	};
	(void)unused;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct safetensors *file = NULL;
		struct svc_err err = {0};
		enum svc_code code = open_text(cases[i].header, 8, cases[i].length, &file, &err);
		assert_true(code == SVC_BAD_MODEL || code == SVC_UNSUPPORTED);
		if (!strstr(err.msg, cases[i].said))
			fail_msg("%s: %s", cases[i].header, err.msg);
	}
}

static void test_the_reference_writers_order_and_header(void **unused)
{
	static const struct safetensors_tensor sorted[] = {
		{.name = {"z", 1}, .dtype = ST_F32, .n_dims = 1, .dims = {1}, .size_bytes = 4},
		{.name = {"model.layers.1.x", 16}, .dtype = ST_BF16, .size_bytes = 2},
		{.name = {"model.layers.10.x", 17}, .dtype = ST_BF16, .size_bytes = 2},
		{.name = {"model.layers.2.x", 16}, .dtype = ST_BF16, .size_bytes = 2},
		{.name = {"a", 1}, .dtype = ST_I8, .n_dims = 2, .dims = {2, 3}, .size_bytes = 6},
	};
	const size_t n = sizeof sorted / sizeof *sorted;
	struct buf out = {0};
	uint64_t length;
	(void)unused;
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < n; k++) {
			int order = safetensors_file_order(&sorted[i], &sorted[k]);
			assert_int_equal((order > 0) - (order < 0), (i > k) - (i < k));
		}
	safetensors_header(sorted, 1, &out);
	memcpy(&length, out.ptr, sizeof length);
	assert_int_equal(length + 8, out.len);
	assert_int_equal(out.len % 8, 0);
	assert_string_equal(out.ptr + 8, "{\"z\":{\"dtype\":\"F32\",\"shape\":[1],"
					 "\"data_offsets\":[0,4]}}  ");
	buf_free(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_file_is_read),
		cmocka_unit_test(test_tiles_with_a_logical_shape),
		cmocka_unit_test(test_what_is_wrong_is_named),
		cmocka_unit_test(test_the_reference_writers_order_and_header),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
