#include "gateway/keys.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"

#define NUMBER_MAX 1000000u

/* A line while it is read. */
struct reading {
	const char *path;
	unsigned line;
	struct svc_err *err;
};

#define wrong(reading, format, ...)                                                       \
	svc_fail_param((reading)->err, SVC_BAD_CONFIG, "api-keys", "%s line %u: " format, \
		       (reading)->path, (reading)->line, ##__VA_ARGS__)

static enum svc_code name_read(const struct reading *reading, struct span word,
			       struct gw_api_key *key)
{
	static const char plain[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.@-";
	bool good = word.len > 0 && word.len <= GW_KEY_NAME_MAX;
	for (size_t i = 0; good && i < word.len; i++)
		good = memchr(plain, word.ptr[i], sizeof plain - 1) != NULL;
	if (!good)
		return wrong(reading,
			     "the name must have 1 to %u letters, digits or characters of _.@-",
			     GW_KEY_NAME_MAX);
	memcpy(key->name, word.ptr, word.len);
	return SVC_OK;
}

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool digest_read(struct span hex, uint8_t digest[32])
{
	for (size_t i = 0; hex.len == 64 && i < 32; i++) {
		int high = hex_value(hex.ptr[2 * i]), low = hex_value(hex.ptr[2 * i + 1]);
		if (high < 0 || low < 0)
			return false;
		digest[i] = (uint8_t)(16 * high + low);
	}
	return hex.len == 64;
}

static enum svc_code key_read(const struct reading *reading, struct span word,
			      struct gw_api_key *key)
{
	static const char prefix[] = "sha256:";
	const size_t len = sizeof prefix - 1;
	if (word.len >= len && memcmp(word.ptr, prefix, len) == 0) {
		struct span hex = {word.ptr + len, word.len - len};
		if (!digest_read(hex, key->digest))
			return wrong(reading, "sha256: needs 64 hexadecimal digits after it");
		return SVC_OK;
	}
	bool good = word.len >= GW_KEY_BYTES_MIN && word.len <= GW_KEY_BYTES_MAX;
	for (size_t i = 0; good && i < word.len; i++)
		good = word.ptr[i] > 0x20 && word.ptr[i] < 0x7F;
	if (!good)
		return wrong(reading, "the key must have %u to %u printable ASCII characters",
			     GW_KEY_BYTES_MIN, GW_KEY_BYTES_MAX);
	SHA256((const unsigned char *)word.ptr, word.len, key->digest);
	return SVC_OK;
}

/* "name=N" with N from 1 to NUMBER_MAX. */
static bool number_read(struct span word, const char *name, uint32_t *ret_number, bool *ret_good)
{
	size_t len = strlen(name);
	uint32_t number = 0;
	if (word.len <= len || memcmp(word.ptr, name, len) != 0 || word.ptr[len] != '=')
		return false;
	*ret_good = word.len > len + 1;
	for (size_t i = len + 1; i < word.len && *ret_good; i++) {
		*ret_good = word.ptr[i] >= '0' && word.ptr[i] <= '9' && number <= NUMBER_MAX;
		number = 10 * number + (uint32_t)(word.ptr[i] - '0');
	}
	*ret_good &= number >= 1 && number <= NUMBER_MAX;
	*ret_number = number;
	return true;
}

static enum svc_code limit_read(const struct reading *reading, struct span word,
				struct gw_api_key *key)
{
	bool good = true;
	if (span_is(word, "admin")) {
		key->admin = true;
		return SVC_OK;
	}
	if (!number_read(word, "requests-per-minute", &key->per_minute, &good) &&
	    !number_read(word, "burst", &key->burst, &good) &&
	    !number_read(word, "concurrent", &key->concurrent, &good))
		return wrong(reading, "after name and key come requests-per-minute=N, burst=N, "
				      "concurrent=N or admin, and nothing else");
	return good ? SVC_OK : wrong(reading, "a limit must be a number from 1 to %u", NUMBER_MAX);
}

static enum svc_code line_read(const struct reading *reading, struct span line,
			       struct gw_api_key *ret_key)
{
	struct gw_api_key key = {0};
	struct span rest = line, word;
	enum svc_code code = name_read(reading, span_word(&rest), &key);
	if (code == SVC_OK)
		code = key_read(reading, span_word(&rest), &key);
	while (code == SVC_OK && (word = span_word(&rest)).len)
		code = limit_read(reading, word, &key);
	if (code == SVC_OK && key.burst && !key.per_minute)
		code = wrong(reading, "burst needs requests-per-minute");
	if (!key.burst)
		key.burst = key.per_minute ? key.per_minute : 1;
	if (code == SVC_OK)
		*ret_key = key;
	return code;
}

static enum svc_code key_add(const struct reading *reading, struct gw_keys *keys,
			     const struct gw_api_key *key)
{
	for (size_t i = 0; i < keys->n; i++) {
		const struct gw_api_key *other = &keys->keys[i];
		bool same = strcmp(other->name, key->name) == 0;
		if (CRYPTO_memcmp(other->digest, key->digest, sizeof key->digest) == 0)
			return wrong(reading, "this key stands on an earlier line already");
		if (same && (other->per_minute != key->per_minute || other->burst != key->burst ||
			     other->concurrent != key->concurrent || other->admin != key->admin))
			return wrong(reading, "%s has other limits on an earlier line", key->name);
	}
	if (keys->n == GW_KEYS_MAX)
		return wrong(reading, "more than %u keys", GW_KEYS_MAX);
	keys->keys[keys->n++] = *key;
	return SVC_OK;
}

static bool is_blank(struct span line)
{
	struct span word = span_word(&line);
	return word.len == 0 || word.ptr[0] == '#';
}

static enum svc_code lines_read(struct reading *reading, struct span text, struct gw_keys *keys)
{
	enum svc_code code = SVC_OK;
	while (text.len && code == SVC_OK) {
		const char *end = memchr(text.ptr, '\n', text.len);
		struct span line = {text.ptr, end ? (size_t)(end - text.ptr) : text.len};
		struct gw_api_key key;
		size_t used = line.len + (end ? 1 : 0);
		text = (struct span){text.ptr + used, text.len - used};
		reading->line++;
		if (line.len && line.ptr[line.len - 1] == '\r')
			line.len--;
		if (is_blank(line))
			continue;
		code = line_read(reading, line, &key);
		if (code == SVC_OK)
			code = key_add(reading, keys, &key);
	}
	if (code == SVC_OK && keys->n == 0)
		code = wrong(reading, "there is no key in it: nobody could ask anything");
	return code;
}

enum svc_code gw_keys_read(struct span text, const char *path, struct gw_keys *ret_keys,
			   struct svc_err *err)
{
	struct reading reading = {path, 0, err};
	struct gw_keys *keys = calloc(1, sizeof *keys);
	if (!keys)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	enum svc_code code = lines_read(&reading, text, keys);
	if (code == SVC_OK)
		*ret_keys = *keys;
	OPENSSL_cleanse(keys, sizeof *keys);
	free(keys);
	return code;
}

static enum svc_code text_load(const char *path, char *text, size_t *ret_len, struct svc_err *err)
{
	struct stat stat = {0};
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &stat) != 0) {
		enum svc_code code = svc_fail_errno(err, __func__, "cannot open %s", path);
		if (fd >= 0)
			close(fd);
		return code;
	}
	if (stat.st_mode & S_IROTH)
		log_warn("%s can be read by every user of this machine: chmod 600 it", path);
	ssize_t len = read(fd, text, GW_KEY_FILE_MAX + 1);
	int cause = errno;
	close(fd);
	errno = cause;
	if (len < 0)
		return svc_fail_errno(err, __func__, "cannot read %s", path);
	if (len > (ssize_t)GW_KEY_FILE_MAX)
		return svc_fail_param(err, SVC_BAD_CONFIG, "api-keys", "%s has more than %u bytes",
				      path, GW_KEY_FILE_MAX);
	*ret_len = (size_t)len;
	return SVC_OK;
}

enum svc_code gw_keys_load(const char *path, struct gw_keys *ret_keys, struct svc_err *err)
{
	char *text = malloc(GW_KEY_FILE_MAX + 1);
	size_t len = 0;
	if (!text)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	enum svc_code code = text_load(path, text, &len, err);
	if (code == SVC_OK)
		code = gw_keys_read((struct span){text, len}, path, ret_keys, err);
	OPENSSL_cleanse(text, GW_KEY_FILE_MAX + 1);
	free(text);
	return code;
}

const struct gw_api_key *gw_keys_find(const struct gw_keys *keys, struct span given)
{
	uint8_t digest[32];
	const struct gw_api_key *found = NULL;
	SHA256((const unsigned char *)given.ptr, given.len, digest);
	for (size_t i = 0; i < keys->n; i++)
		if (CRYPTO_memcmp(keys->keys[i].digest, digest, sizeof digest) == 0)
			found = &keys->keys[i];
	return found;
}
