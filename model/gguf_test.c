#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "model/gguf.h"

/* A small file is put together here, so that each of its fields can be made wrong on its own. */
static void put_u32(struct buf *buf, uint32_t value)
{
	buf_append(buf, &value, sizeof value);
}

static void put_u64(struct buf *buf, uint64_t value)
{
	buf_append(buf, &value, sizeof value);
}

static void put_string(struct buf *buf, const char *text)
{
	put_u64(buf, strlen(text));
	buf_append(buf, text, strlen(text));
}

static void put_key(struct buf *buf, const char *key, enum gguf_type type)
{
	put_string(buf, key);
	put_u32(buf, type);
}

static void put_tensor(struct buf *buf, const char *name, const uint64_t *dims, uint32_t type,
		       uint64_t offset)
{
	uint32_t n_dims = dims[1] ? 2 : 1;
	put_string(buf, name);
	put_u32(buf, n_dims);
	for (uint32_t i = 0; i < n_dims; i++)
		put_u64(buf, dims[i]);
	put_u32(buf, type);
	put_u64(buf, offset);
}

/* What a test changes; the rest is the good file. */
struct shape {
	uint32_t magic, version;
	uint64_t n_tensors, n_keys, alignment, string_len, n_numbers, n_words;
	uint32_t array_type, key_type, n_dims_forged, tensor_type;
	uint64_t dim0, dim1, offset;
	const char *second_key, *second_tensor;
	size_t cut;
};

static const struct shape good = {.magic = 0x46554747,
				  .version = 3,
				  .n_tensors = 2,
				  .n_keys = 6,
				  .alignment = 64,
				  .string_len = 5,
				  .n_numbers = 3,
				  .n_words = 2,
				  .array_type = GGUF_I16,
				  .key_type = GGUF_STRING,
				  .tensor_type = GGUF_TENSOR_Q8_0,
				  .dim0 = 32,
				  .dim1 = 2,
				  .offset = 64,
				  .second_key = "b",
				  .second_tensor = "y"};

static void put_metadata(struct buf *b, const struct shape *shape)
{
	put_key(b, "general.alignment", GGUF_U32);
	put_u32(b, (uint32_t)shape->alignment);
	put_key(b, "a", shape->key_type);
	put_u64(b, shape->string_len);
	buf_append(b, "hello", 5);
	put_key(b, shape->second_key, GGUF_I8);
	buf_append(b, "\xFE", 1);
	put_key(b, "numbers", GGUF_ARRAY);
	put_u32(b, shape->array_type);
	put_u64(b, shape->n_numbers);
	buf_append(b, "\x01\x00\xFF\xFF\x00\x01", 6);
	put_key(b, "words", GGUF_ARRAY);
	put_u32(b, GGUF_STRING);
	put_u64(b, shape->n_words);
	put_string(b, "one");
	put_string(b, "");
	put_key(b, "large", GGUF_U64);
	put_u64(b, UINT64_MAX);
}

static void build(struct buf *b, const struct shape *shape)
{
	put_u32(b, shape->magic);
	put_u32(b, shape->version);
	put_u64(b, shape->n_tensors);
	put_u64(b, shape->n_keys);
	put_metadata(b, shape);
	put_tensor(b, "x", (uint64_t[]){4, 0}, GGUF_TENSOR_F32, 0);
	size_t at = b->len + 8 + strlen(shape->second_tensor);
	put_tensor(b, shape->second_tensor, (uint64_t[]){shape->dim0, shape->dim1},
		   shape->tensor_type, shape->offset);
	if (shape->n_dims_forged)
		b->ptr[at] = (char)shape->n_dims_forged;
	while (b->len % 64)
		buf_append(b, "", 1);
	for (int i = 0; i < 64 + 2 * 34; i++)
		buf_append(b, &(char){(char)i}, 1);
	b->len -= shape->cut;
}

static enum svc_code open_bytes(struct span bytes, struct gguf **ret_gguf, struct svc_err *err)
{
	char path[64];
	int fd = memfd_create("gguf", MFD_CLOEXEC);
	assert_true(fd >= 0);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	assert_int_equal(write(fd, bytes.ptr, bytes.len), bytes.len);
	enum svc_code code = gguf_open(path, ret_gguf, err);
	close(fd);
	return code;
}

static enum svc_code open_shape(const struct shape *shape, struct gguf **ret_gguf,
				struct svc_err *err)
{
	struct buf b = {0};
	build(&b, shape);
	enum svc_code code = open_bytes((struct span){b.ptr, b.len}, ret_gguf, err);
	buf_free(&b);
	return code;
}

static void good_file_reads_back(void **state)
{
	(void)state;
	struct gguf *gguf = NULL;
	struct svc_err err = {0};
	if (open_shape(&good, &gguf, &err) != SVC_OK)
		fail_msg("%s", err.msg);
	struct span text;
	uint64_t u = 7;
	int64_t i;
	double f;
	bool flag;
	assert_true(gguf_string(gguf, "a", &text) && span_is(text, "hello"));
	assert_true(gguf_i64(gguf, "b", &i) && i == -2);
	assert_false(gguf_u64(gguf, "b", &u));
	assert_true(gguf_f64(gguf, "b", &f) && f == -2.0);
	assert_false(gguf_i64(gguf, "large", &i));
	assert_false(gguf_bool(gguf, "b", &flag) || gguf_string(gguf, "b", &text) ||
		     gguf_u64(gguf, "no", &u));
	assert_int_equal(u, 7);
	assert_true(gguf_u64(gguf, "large", &u) && u == UINT64_MAX);
	const struct gguf_tensor *y = gguf_tensor_find(gguf, "y");
	assert_non_null(y);
	assert_true(y->dims[0] == 32 && y->dims[1] == 2 && y->dims[2] == 1 && y->size_bytes == 68);
	assert_int_equal(*(const char *)y->data, 64);
	assert_int_equal((uintptr_t)y->data % 64, 0);
	assert_null(gguf_tensor_find(gguf, "z"));
	assert_ptr_equal(gguf_tensor_at(gguf, 1), y);
	assert_null(gguf_close(gguf));
}

static void arrays_read_back(void **state)
{
	(void)state;
	struct gguf *gguf = NULL;
	struct gguf_array array;
	int64_t i;
	double f;
	assert_int_equal(open_shape(&good, &gguf, NULL), SVC_OK);
	assert_true(gguf_array(gguf, "numbers", &array) && array.count == 3);
	assert_true(gguf_array_i64(&array, 1, &i) && i == -1);
	assert_true(gguf_array_f64(&array, 2, &f) && f == 256.0);
	assert_false(gguf_array_i64(&array, 3, &i));
	assert_true(gguf_array(gguf, "words", &array) && array.type == GGUF_STRING);
	assert_true(span_is(array.strings[0], "one") && array.strings[1].len == 0);
	assert_false(gguf_array_i64(&array, 0, &i));
	gguf_close(gguf);
}

static void expect_refusal(struct shape shape, enum svc_code code, const char *words)
{
	struct gguf *gguf = NULL;
	struct svc_err err = {0};
	assert_int_equal(open_shape(&shape, &gguf, &err), code);
	assert_null(gguf);
	if (!strstr(err.msg, words))
		fail_msg("'%s' does not say '%s'", err.msg, words);
}

#define REFUSES(code, words, ...)                     \
	do {                                          \
		struct shape bad = good;              \
		__VA_ARGS__;                          \
		expect_refusal(bad, (code), (words)); \
	} while (0)

static void forged_fields_are_named(void **state)
{
	(void)state;
	REFUSES(SVC_BAD_MODEL, "not a GGUF file", bad.magic = 1);
	REFUSES(SVC_UNSUPPORTED, "version 1", bad.version = 1);
	REFUSES(SVC_UNSUPPORTED, "big-endian", bad.version = 3u << 24);
	REFUSES(SVC_BAD_MODEL, "tensors", bad.n_tensors = 1u << 20);
	REFUSES(SVC_BAD_MODEL, "keys", bad.n_keys = UINT64_MAX);
	REFUSES(SVC_BAD_MODEL, "empty key", bad.n_keys = 60000);
	REFUSES(SVC_BAD_MODEL, "'a'", bad.string_len = UINT64_MAX);
	REFUSES(SVC_BAD_MODEL, "left in the file", bad.string_len = 1u << 20);
	REFUSES(SVC_BAD_MODEL, "unknown value type 13", bad.key_type = 13);
	REFUSES(SVC_BAD_MODEL, "element type 99", bad.array_type = 99);
	REFUSES(SVC_BAD_MODEL, "array of arrays", bad.array_type = GGUF_ARRAY);
	REFUSES(SVC_BAD_MODEL, "the limit is", bad.n_numbers = UINT64_MAX / 2 + 2);
	REFUSES(SVC_BAD_MODEL, "'numbers'", bad.n_numbers = 1u << 20);
	REFUSES(SVC_BAD_MODEL, "longer than the file", bad.n_words = 1u << 20);
	REFUSES(SVC_BAD_MODEL, "'general.alignment' occurs twice",
		bad.second_key = "general.alignment");
	REFUSES(SVC_BAD_MODEL, "general.alignment is 0", bad.alignment = 0);
	REFUSES(SVC_BAD_MODEL, "general.alignment is 48", bad.alignment = 48);
	REFUSES(SVC_BAD_MODEL, "general.alignment is 2097152", bad.alignment = 1u << 21);
}

static void forged_tensors_are_named(void **state)
{
	(void)state;
	REFUSES(SVC_BAD_MODEL, "5 dimensions", bad.n_dims_forged = 5);
	REFUSES(SVC_BAD_MODEL, "dimension 0 is zero", bad.dim0 = 0);
	REFUSES(SVC_BAD_MODEL, "overflows", bad.dim0 = 1ull << 40, bad.dim1 = 1ull << 40);
	REFUSES(SVC_BAD_MODEL, "overflows", bad.dim1 = UINT64_MAX);
	REFUSES(SVC_BAD_MODEL, "not a multiple", bad.dim0 = 33);
	REFUSES(SVC_UNSUPPORTED, "type number 5", bad.tensor_type = 5);
	REFUSES(SVC_UNSUPPORTED, "type number 4294967295", bad.tensor_type = UINT32_MAX);
	REFUSES(SVC_BAD_MODEL, "not aligned", bad.offset = 32);
	REFUSES(SVC_BAD_MODEL, "end behind", bad.offset = 128);
	REFUSES(SVC_BAD_MODEL, "end behind", bad.offset = UINT64_MAX - 63);
	REFUSES(SVC_BAD_MODEL, "end behind", bad.dim1 = 1u << 30);
	REFUSES(SVC_BAD_MODEL, "'x' occurs twice", bad.second_tensor = "x");
	REFUSES(SVC_BAD_MODEL, "truncated", bad.cut = 1);
}

/* Every cut and every changed byte: an error with a message, or a file that can be walked. */
static void no_byte_is_trusted(void **state)
{
	(void)state;
	struct buf b = {0};
	build(&b, &good);
	for (size_t at = 0; at < b.len; at++) {
		static const unsigned char values[] = {0x00, 0x01, 0x7F, 0x80, 0xFF};
		struct gguf *gguf = NULL;
		struct svc_err err = {0};
		assert_int_not_equal(open_bytes((struct span){b.ptr, at}, &gguf, &err), SVC_OK);
		assert_true(err.msg[0]);
		for (size_t i = 0; i < sizeof values; i++) {
			char kept = b.ptr[at];
			b.ptr[at] = (char)values[i];
			err.msg[0] = 0;
			if (open_bytes((struct span){b.ptr, b.len}, &gguf, &err) == SVC_OK) {
				for (size_t t = 0; t < gguf_tensor_count(gguf); t++) {
					const struct gguf_tensor *tensor = gguf_tensor_at(gguf, t);
					struct span file = gguf_bytes(gguf);
					const char *end =
						(const char *)tensor->data + tensor->size_bytes;
					assert_true((const char *)tensor->data >= file.ptr);
					assert_true(end <= file.ptr + file.len);
				}
				gguf_close(gguf);
			} else {
				assert_true(err.msg[0]);
			}
			b.ptr[at] = kept;
		}
	}
	buf_free(&b);
}

static void odd_paths_are_errors(void **state)
{
	(void)state;
	struct gguf *gguf = NULL;
	struct svc_err err = {0};
	assert_int_equal(gguf_open("/nonexistent/model.gguf", &gguf, &err), SVC_IO);
	assert_non_null(strstr(err.msg, "/nonexistent/model.gguf: cannot open"));
	assert_int_equal(gguf_open("/", &gguf, &err), SVC_BAD_MODEL);
	assert_int_equal(gguf_open("/dev/null", &gguf, &err), SVC_BAD_MODEL);
}

static void tensor_types_have_names(void **state)
{
	(void)state;
	uint32_t elements, bytes;
	assert_string_equal(gguf_tensor_type_name(GGUF_TENSOR_Q4_K), "Q4_K");
	assert_true(gguf_tensor_type_block(GGUF_TENSOR_Q6_K, &elements, &bytes) &&
		    elements == 256 && bytes == 210);
	assert_null(gguf_tensor_type_name(4));
	assert_false(gguf_tensor_type_block(1u << 31, &elements, &bytes));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(good_file_reads_back),
		cmocka_unit_test(arrays_read_back),
		cmocka_unit_test(forged_fields_are_named),
		cmocka_unit_test(forged_tensors_are_named),
		cmocka_unit_test(no_byte_is_trusted),
		cmocka_unit_test(odd_paths_are_errors),
		cmocka_unit_test(tensor_types_have_names),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
