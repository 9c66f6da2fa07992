#include "gateway/event_id.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

/* ---- the keyed hash ---- */

static uint64_t word_le(const uint8_t *bytes, size_t n)
{
	uint64_t word = 0;
	for (size_t i = 0; i < n; i++)
		word |= (uint64_t)bytes[i] << (8 * i);
	return word;
}

static uint64_t rotate(uint64_t x, unsigned bits)
{
	return x << bits | x >> (64 - bits);
}

static void rounds(uint64_t v[4], int n)
{
	for (int i = 0; i < n; i++) {
		v[0] += v[1];
		v[2] += v[3];
		v[1] = rotate(v[1], 13) ^ v[0];
		v[3] = rotate(v[3], 16) ^ v[2];
		v[0] = rotate(v[0], 32);
		v[2] += v[1];
		v[0] += v[3];
		v[1] = rotate(v[1], 17) ^ v[2];
		v[3] = rotate(v[3], 21) ^ v[0];
		v[2] = rotate(v[2], 32);
	}
}

static void absorb(uint64_t v[4], uint64_t word)
{
	v[3] ^= word;
	rounds(v, 2);
	v[0] ^= word;
}

uint64_t gw_siphash(const uint8_t key[16], const void *bytes, size_t len)
{
	uint64_t k0 = word_le(key, 8), k1 = word_le(key + 8, 8);
	uint64_t v[4] = {k0 ^ 0x736f6d6570736575u, k1 ^ 0x646f72616e646f6du,
			 k0 ^ 0x6c7967656e657261u, k1 ^ 0x7465646279746573u};
	const uint8_t *at = bytes;
	for (size_t left = len; left >= 8; left -= 8, at += 8)
		absorb(v, word_le(at, 8));
	absorb(v, (uint64_t)(len & 0xFF) << 56 | word_le(at, len % 8));
	v[2] ^= 0xFF;
	rounds(v, 4);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* ---- the id ---- */

static uint64_t tag_of(const uint8_t *key, uint64_t scope, const char *text, size_t len)
{
	char message[GW_EVENT_ID_BYTES + 8];
	memcpy(message, &scope, sizeof scope);
	memcpy(message + sizeof scope, text, len);
	return gw_siphash(key, message, sizeof scope + len);
}

void gw_event_id_print(const uint8_t *key, uint64_t scope, const struct gw_event_id *id,
		       char out[GW_EVENT_ID_BYTES])
{
	size_t len = (size_t)snprintf(out, GW_EVENT_ID_BYTES, "%016" PRIx64 ".%" PRIx64 ".%" PRIx64,
				      id->run, id->request, id->created_s);
	for (uint32_t i = 0; i < id->n && i < GW_CHOICES_MAX; i++)
		len += (size_t)snprintf(out + len, GW_EVENT_ID_BYTES - len, "%c%" PRIx32,
					i ? '-' : '.', id->at[i]);
	uint64_t tag = tag_of(key, scope, out, len);
	snprintf(out + len, GW_EVENT_ID_BYTES - len, ".%016" PRIx64, tag);
}

/* Lower case hexadecimal of at most digits digits, up to a byte that is none. */
static bool hex_read(struct span *text, size_t digits, uint64_t *ret_value)
{
	uint64_t value = 0;
	size_t n = 0;
	for (; n < text->len && n < digits; n++) {
		char c = text->ptr[n];
		if (c >= '0' && c <= '9')
			value = value * 16 + (uint64_t)(c - '0');
		else if (c >= 'a' && c <= 'f')
			value = value * 16 + (uint64_t)(c - 'a' + 10);
		else
			break;
	}
	*text = (struct span){text->ptr + n, text->len - n};
	*ret_value = value;
	return n > 0;
}

static bool byte_is(struct span *text, char c)
{
	if (text->len == 0 || text->ptr[0] != c)
		return false;
	*text = (struct span){text->ptr + 1, text->len - 1};
	return true;
}

static bool id_read(struct span text, struct gw_event_id *id, uint64_t *ret_tag, size_t *ret_signed)
{
	const char *start = text.ptr;
	if (!hex_read(&text, 16, &id->run) || !byte_is(&text, '.') ||
	    !hex_read(&text, 16, &id->request) || !byte_is(&text, '.') ||
	    !hex_read(&text, 16, &id->created_s))
		return false;
	id->n = 0;
	for (char c = '.'; id->n < GW_CHOICES_MAX && byte_is(&text, c); c = '-') {
		uint64_t at;
		if (!hex_read(&text, 8, &at))
			return false;
		id->at[id->n++] = (uint32_t)at;
	}
	*ret_signed = (size_t)(text.ptr - start);
	return id->n > 0 && byte_is(&text, '.') && hex_read(&text, 16, ret_tag) && text.len == 0;
}

enum svc_code gw_event_id_parse(const uint8_t *key, uint64_t scope, uint64_t run, struct span text,
				struct gw_event_id *ret_id, struct svc_err *err)
{
	struct gw_event_id id = {0};
	uint64_t tag = 0;
	size_t n_signed = 0;
	bool well_formed = text.len < GW_EVENT_ID_BYTES && id_read(text, &id, &tag, &n_signed);
	if (well_formed)
		*ret_id = id;
	if (well_formed && id.run != run)
		return svc_fail(err, SVC_GONE, __func__,
				"that stream was lost: the pipeline has been started anew since");
	if (!well_formed || tag != tag_of(key, scope, text.ptr, n_signed))
		return svc_fail(err, SVC_NOT_FOUND, __func__, "no stream has that event id");
	return SVC_OK;
}
