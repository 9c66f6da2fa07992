#include "verify/npz.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Sizes of the fixed parts and the places of their fields: PKWARE's APPNOTE, 4.3 and 4.5.3. */
enum { END_BYTES = 22, MEMBER_BYTES = 46, LOCAL_BYTES = 30, MAX_COMMENT = 65535, ALIGNMENT = 64 };
static const uint8_t END_MARK[4] = {'P', 'K', 5, 6}, MEMBER_MARK[4] = {'P', 'K', 1, 2},
		     LOCAL_MARK[4] = {'P', 'K', 3, 4};

struct zip {
	const uint8_t *bytes;
	size_t size;
};

/* One member of the archive, as the directory has it. */
struct member {
	char name[NPZ_NAME + 4]; /* with ".npy" */
	uint32_t method, flags, crc;
	uint64_t stored, size, local;
	const uint8_t *data;
};

static uint64_t little(const uint8_t *at, unsigned n)
{
	uint64_t value = 0;
	while (n-- > 0)
		value = value << 8 | at[n];
	return value;
}

static enum svc_code corrupt(struct svc_err *err, const char *what)
{
	(void)!svc_fail(err, SVC_CORRUPT, "npz", "it is no .npz file as numpy.savez writes it: %s",
			what);
	return SVC_CORRUPT;
}

uint32_t npz_crc32(const uint8_t *bytes, size_t n)
{
	uint32_t table[256], crc = UINT32_MAX;
	for (uint32_t i = 0; i < 256; i++) {
		table[i] = i;
		for (int bit = 0; bit < 8; bit++)
			table[i] = table[i] & 1 ? table[i] >> 1 ^ 0xEDB88320u : table[i] >> 1;
	}
	for (size_t i = 0; i < n; i++)
		crc = table[(crc ^ bytes[i]) & 0xff] ^ crc >> 8;
	return ~crc;
}

/* ---- the archive */

/* Sizes and places that don't fit 32 bits stand in an extra field, in this order, those only. */
static bool read_zip64(const uint8_t *extra, size_t n, struct member *m)
{
	uint64_t *const fields[] = {&m->size, &m->stored, &m->local};
	while (n >= 4) {
		size_t id = little(extra, 2), len = little(extra + 2, 2);
		if (len > n - 4)
			return false;
		const uint8_t *at = extra + 4;
		for (size_t i = 0; id == 1 && i < 3; i++) {
			if (*fields[i] != UINT32_MAX)
				continue;
			if (len < 8)
				return false;
			*fields[i] = little(at, 8);
			at += 8;
			len -= 8;
		}
		size_t whole = 4 + little(extra + 2, 2);
		extra += whole;
		n -= whole;
	}
	return true;
}

/* The directory's entry at *at, which moves behind it. */
static enum svc_code read_member(const struct zip *zip, size_t *at, struct member *m,
				 struct svc_err *err)
{
	const uint8_t *p = zip->bytes + *at;
	if (zip->size - *at < MEMBER_BYTES || memcmp(p, MEMBER_MARK, 4) != 0)
		return corrupt(err, "its directory is cut");
	size_t name = little(p + 28, 2), extra = little(p + 30, 2), comment = little(p + 32, 2);
	if (zip->size - *at - MEMBER_BYTES < name + extra + comment)
		return corrupt(err, "its directory is cut");
	if (name >= sizeof m->name || memchr(p + MEMBER_BYTES, 0, name))
		return corrupt(err, "a member's name is longer than 64 characters");
	*m = (struct member){.method = (uint32_t)little(p + 10, 2),
			     .flags = (uint32_t)little(p + 8, 2),
			     .crc = (uint32_t)little(p + 16, 4),
			     .stored = little(p + 20, 4),
			     .size = little(p + 24, 4),
			     .local = little(p + 42, 4)};
	memcpy(m->name, p + MEMBER_BYTES, name);
	if (!read_zip64(p + MEMBER_BYTES + name, extra, m))
		return corrupt(err, "a member's extra field is cut");
	*at += MEMBER_BYTES + name + extra + comment;
	return SVC_OK;
}

static enum svc_code locate(const struct zip *zip, struct member *m, struct svc_err *err)
{
	if (m->method != 0 || m->flags & 1)
		return svc_fail(err, SVC_UNSUPPORTED, "npz",
				"member %s is compressed or encrypted; write the file with "
				"numpy.savez, which stores its arrays as they are",
				m->name);
	if (m->stored != m->size || m->local > zip->size || zip->size - m->local < LOCAL_BYTES)
		return corrupt(err, "a member lies outside of the file");
	const uint8_t *p = zip->bytes + m->local;
	size_t skip = LOCAL_BYTES + little(p + 26, 2) + little(p + 28, 2);
	size_t left = zip->size - (size_t)m->local;
	if (memcmp(p, LOCAL_MARK, 4) != 0 || skip > left || m->size > left - skip)
		return corrupt(err, "a member lies outside of the file");
	m->data = p + skip;
	if (npz_crc32(m->data, (size_t)m->size) != m->crc)
		return svc_fail(err, SVC_CORRUPT, "npz",
				"member %s has another checksum than the file says: it is damaged",
				m->name);
	return SVC_OK;
}

/* ---- one array */

/* The word behind 'KEY': in the header; NULL if there is none. */
static const char *value_of(const char *header, const char *key)
{
	const char *at = strstr(header, key);
	if (!at)
		return NULL;
	at += strlen(key);
	return at + strspn(at, " ");
}

static enum svc_code read_type(const char *header, struct npz_array *a, uint64_t *ret_units,
			       struct svc_err *err)
{
	static const struct {
		const char *name;
		enum npz_type type;
	} types[] = {
		{"'<f4'", NPZ_F32}, {"'<f8'", NPZ_F64}, {"'<i4'", NPZ_I32}, {"'<u4'", NPZ_U32}};
	const char *descr = value_of(header, "'descr':");
	*ret_units = 1;
	for (size_t i = 0; descr && i < sizeof types / sizeof *types; i++) {
		if (strncmp(descr, types[i].name, strlen(types[i].name)) == 0) {
			a->type = types[i].type;
			return SVC_OK;
		}
	}
	if (descr && strncmp(descr, "'<U", 3) == 0) {
		a->type = NPZ_TEXT;
		*ret_units = strtoul(descr + 3, NULL, 10);
		return SVC_OK;
	}
	return svc_fail(err, SVC_UNSUPPORTED, "npz",
			"array %s is of type %.12s; float32, float64, int32, uint32 and text, "
			"little-endian, can be read",
			a->name, descr ? descr : "?");
}

static enum svc_code read_shape(const char *header, struct npz_array *a, struct svc_err *err)
{
	const char *order = value_of(header, "'fortran_order':");
	const char *at = value_of(header, "'shape':");
	if (!order || strncmp(order, "False", 5) != 0 || !at || *at++ != '(')
		return corrupt(err, "an array isn't in C order, or its header has no shape");
	for (a->count = 1; *at != ')'; at += strspn(at, ", ")) {
		char *end;
		uint64_t dim = strtoull(at, &end, 10);
		if (end == at || *at < '0' || *at > '9' || a->n_dims == NPZ_MAX_DIMS ||
		    __builtin_mul_overflow(a->count, dim, &a->count))
			return corrupt(err, "an array's shape can't be read");
		a->dims[a->n_dims++] = dim;
		at = end;
	}
	return SVC_OK;
}

static enum svc_code read_array(const struct member *m, struct npz_array *a, struct svc_err *err)
{
	static const size_t widths[] = {
		[NPZ_F32] = 4, [NPZ_F64] = 8, [NPZ_I32] = 4, [NPZ_U32] = 4, [NPZ_TEXT] = 4};
	char header[512];
	uint64_t units, bytes;
	if (m->size < 12 || memcmp(m->data, "\x93NUMPY", 6) != 0 || m->data[6] < 1 ||
	    m->data[6] > 3)
		return corrupt(err, "a member isn't an array of numpy's format 1 to 3");
	size_t start = m->data[6] == 1 ? 10 : 12,
	       len = little(m->data + 8, m->data[6] == 1 ? 2 : 4);
	if (len >= sizeof header || m->size - start < len)
		return corrupt(err, "an array's header is cut or longer than 511 bytes");
	memcpy(header, m->data + start, len);
	header[len] = 0;
	enum svc_code code = read_type(header, a, &units, err);
	code = code ? code : read_shape(header, a, err);
	if (code)
		return code;
	if (__builtin_mul_overflow(a->count, units, &a->count) ||
	    __builtin_mul_overflow(a->count, widths[a->type], &bytes) ||
	    bytes != m->size - start - len)
		return corrupt(err, "an array's shape and its length don't agree");
	a->data = aligned_alloc(ALIGNMENT, (bytes / ALIGNMENT + 1) * ALIGNMENT);
	if (!a->data)
		return svc_fail_errno(err, "npz", "no memory for array %s", a->name);
	memcpy(a->data, m->data + start + len, bytes);
	return SVC_OK;
}

static enum svc_code add_member(const struct zip *zip, struct member *m, struct npz *npz,
				struct svc_err *err)
{
	size_t len = strlen(m->name);
	struct npz_array *a = &npz->arrays[npz->n];
	if (len < 5 || strcmp(m->name + len - 4, ".npy") != 0)
		return corrupt(err, "a member isn't called NAME.npy");
	if (npz->n == NPZ_MAX_ARRAYS)
		return corrupt(err, "it has more than 64 arrays");
	memcpy(a->name, m->name, len - 4);
	enum svc_code code = locate(zip, m, err);
	code = code ? code : read_array(m, a, err);
	npz->n += !code;
	return code;
}

enum svc_code npz_parse(const uint8_t *bytes, size_t size, struct npz **ret_npz,
			struct svc_err *err)
{
	const struct zip zip = {bytes, size};
	size_t end = size < END_BYTES ? 0 : size - END_BYTES, seen = 0;
	while (end > 0 && seen < MAX_COMMENT && memcmp(bytes + end, END_MARK, 4) != 0)
		end--, seen++;
	if (size < END_BYTES || memcmp(bytes + end, END_MARK, 4) != 0)
		return corrupt(err, "it has no directory");
	size_t n = little(bytes + end + 10, 2), at = little(bytes + end + 16, 4);
	if (at > size)
		return corrupt(err,
			       "its directory lies outside of the file (one of more than 4 GiB "
			       "can't be read)");
	struct npz *npz = calloc(1, sizeof *npz);
	if (!npz)
		return svc_fail_errno(err, __func__, "no memory");
	enum svc_code code = SVC_OK;
	for (size_t i = 0; i < n && !code; i++) {
		struct member member = {0};
		code = read_member(&zip, &at, &member, err);
		code = code ? code : add_member(&zip, &member, npz, err);
	}
	if (code)
		npz_close(npz);
	else
		*ret_npz = npz;
	return code;
}

enum svc_code npz_open(const char *path, struct npz **ret_npz, struct svc_err *err)
{
	int file = open(path, O_RDONLY | O_CLOEXEC);
	struct stat about;
	if (file < 0 || fstat(file, &about)) {
		enum svc_code code = svc_fail_errno(err, __func__, "can't open %s", path);
		if (file >= 0)
			close(file);
		return code;
	}
	size_t size = (size_t)about.st_size;
	void *map = size ? mmap(NULL, size, PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
	close(file);
	if (!size)
		return svc_fail(err, SVC_CORRUPT, __func__, "%s is empty", path);
	if (map == MAP_FAILED)
		return svc_fail_errno(err, __func__, "can't read %s", path);
	enum svc_code code = npz_parse(map, size, ret_npz, err);
	munmap(map, size);
	if (code)
		svc_err_prefix(err, "%s", path);
	return code;
}

struct npz *npz_close(struct npz *npz)
{
	for (uint32_t i = 0; npz && i < NPZ_MAX_ARRAYS; i++)
		free(npz->arrays[i].data);
	free(npz);
	return NULL;
}

const struct npz_array *npz_find(const struct npz *npz, const char *name)
{
	for (uint32_t i = 0; i < npz->n; i++)
		if (strcmp(npz->arrays[i].name, name) == 0)
			return &npz->arrays[i];
	return NULL;
}
