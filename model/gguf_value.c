#include "model/gguf_private.h"

#include <stdlib.h>
#include <string.h>

/* A scalar of any width, widened; a value that fits both integers has both flags. */
struct number {
	bool is_u64, is_i64, is_float;
	uint64_t u;
	int64_t i;
	double f;
};

int gguf_name_order(struct span a, struct span b)
{
	int order = memcmp(a.ptr, b.ptr, a.len < b.len ? a.len : b.len);
	return order ? order : (a.len > b.len) - (a.len < b.len);
}

int gguf_pair_order(const void *a, const void *b)
{
	return gguf_name_order((*(const struct gguf_pair *const *)a)->key,
			       (*(const struct gguf_pair *const *)b)->key);
}

static const struct gguf_pair *find(const struct gguf *gguf, const char *name)
{
	const struct gguf_pair wanted = {.key = span_of(name)}, *key = &wanted;
	const struct gguf_pair *const *found =
		bsearch(&key, gguf->pairs_by_name, gguf->n_pairs, sizeof *gguf->pairs_by_name,
			gguf_pair_order);
	return found ? *found : NULL;
}

static struct number from_unsigned(uint64_t value)
{
	return (struct number){
		.is_u64 = true, .u = value, .is_i64 = value <= INT64_MAX, .i = (int64_t)value};
}

static struct number from_signed(int64_t value)
{
	return (struct number){
		.is_i64 = true, .i = value, .is_u64 = value >= 0, .u = (uint64_t)value};
}

#define LOAD(type, bytes)                                \
	({                                               \
		type loaded;                             \
		memcpy(&loaded, (bytes), sizeof loaded); \
		loaded;                                  \
	})

/* bytes may be unaligned. */
static struct number load(enum gguf_type type, const unsigned char *bytes)
{
	switch (type) {
	case GGUF_U8:
		return from_unsigned(*bytes);
	case GGUF_I8:
		return from_signed(LOAD(int8_t, bytes));
	case GGUF_U16:
		return from_unsigned(LOAD(uint16_t, bytes));
	case GGUF_I16:
		return from_signed(LOAD(int16_t, bytes));
	case GGUF_U32:
		return from_unsigned(LOAD(uint32_t, bytes));
	case GGUF_I32:
		return from_signed(LOAD(int32_t, bytes));
	case GGUF_U64:
		return from_unsigned(LOAD(uint64_t, bytes));
	case GGUF_I64:
		return from_signed(LOAD(int64_t, bytes));
	case GGUF_F32:
		return (struct number){.is_float = true, .f = (double)LOAD(float, bytes)};
	case GGUF_F64:
		return (struct number){.is_float = true, .f = LOAD(double, bytes)};
	case GGUF_BOOL:
	case GGUF_STRING:
	case GGUF_ARRAY:
		break;
	}
	return (struct number){0};
}

static struct number find_number(const struct gguf *gguf, const char *key)
{
	const struct gguf_pair *pair = find(gguf, key);
	return pair ? load(pair->type, pair->value) : (struct number){0};
}

static struct number array_number(const struct gguf_array *array, uint64_t index)
{
	if (index >= array->count || !array->data)
		return (struct number){0};
	return load(array->type,
		    (const unsigned char *)array->data + index * gguf_scalar_bytes(array->type));
}

static bool as_i64(struct number number, int64_t *ret)
{
	if (number.is_i64)
		*ret = number.i;
	return number.is_i64;
}

static bool as_f64(struct number number, double *ret)
{
	if (number.is_float)
		*ret = number.f;
	else if (number.is_u64)
		*ret = (double)number.u;
	else if (number.is_i64)
		*ret = (double)number.i;
	else
		return false;
	return true;
}

bool gguf_u64(const struct gguf *gguf, const char *key, uint64_t *ret)
{
	struct number number = find_number(gguf, key);
	if (number.is_u64)
		*ret = number.u;
	return number.is_u64;
}

bool gguf_i64(const struct gguf *gguf, const char *key, int64_t *ret)
{
	return as_i64(find_number(gguf, key), ret);
}

bool gguf_f64(const struct gguf *gguf, const char *key, double *ret)
{
	return as_f64(find_number(gguf, key), ret);
}

bool gguf_bool(const struct gguf *gguf, const char *key, bool *ret)
{
	const struct gguf_pair *pair = find(gguf, key);
	if (!pair || pair->type != GGUF_BOOL)
		return false;
	*ret = *pair->value != 0;
	return true;
}

bool gguf_string(const struct gguf *gguf, const char *key, struct span *ret)
{
	const struct gguf_pair *pair = find(gguf, key);
	if (!pair || pair->type != GGUF_STRING)
		return false;
	*ret = pair->string;
	return true;
}

bool gguf_array(const struct gguf *gguf, const char *key, struct gguf_array *ret)
{
	const struct gguf_pair *pair = find(gguf, key);
	if (!pair || pair->type != GGUF_ARRAY)
		return false;
	*ret = pair->array;
	return true;
}

bool gguf_array_i64(const struct gguf_array *array, uint64_t index, int64_t *ret)
{
	return as_i64(array_number(array, index), ret);
}

bool gguf_array_f64(const struct gguf_array *array, uint64_t index, double *ret)
{
	return as_f64(array_number(array, index), ret);
}

bool gguf_key_at(const struct gguf *gguf, size_t index, struct span *ret_key,
		 enum gguf_type *ret_type)
{
	if (index >= gguf->n_pairs)
		return false;
	*ret_key = gguf->pairs[index].key;
	*ret_type = gguf->pairs[index].type;
	return true;
}
