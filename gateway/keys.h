/* gateway/keys.h: who may use this server: names, keys and limits out of a file. Pure, but for
 * gw_keys_load.
 *
 *   # name  key, or sha256: and 64 hexadecimal digits  [requests-per-minute=N [burst=N]]
 *   #                                                  [concurrent=N] [admin]
 *
 * A name may stand on several lines, for as long as a key is being replaced: they are one account,
 * whose limits must be the same on each of them. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/span.h"

#define GW_KEYS_MAX	128u
#define GW_KEY_FILE_MAX 65536u
#define GW_KEY_NAME_MAX 63u
/* Of the key itself; shorter ones can be guessed. */
#define GW_KEY_BYTES_MIN 16u
#define GW_KEY_BYTES_MAX 256u

struct gw_api_key {
	char name[GW_KEY_NAME_MAX + 1];
	uint8_t digest[32];  /* SHA-256 of the key */
	uint32_t per_minute; /* requests; 0: any number */
	uint32_t burst;	     /* of them at once; 1 ... */
	uint32_t concurrent; /* requests that may run or wait; 0: any number */
	bool admin;	     /* sees and cancels everybody's requests */
};

struct gw_keys {
	size_t n;
	struct gw_api_key keys[GW_KEYS_MAX];
};

/* SVC_BAD_CONFIG names path, line and what is wrong there; *ret_keys is then unchanged. No message
 * repeats a key. */
enum svc_code gw_keys_read(struct span text, const char *path, struct gw_keys *ret_keys,
			   struct svc_err *err) SVC_CHECKED;
/* The same from a file. */
enum svc_code gw_keys_load(const char *path, struct gw_keys *ret_keys,
			   struct svc_err *err) SVC_CHECKED;
/* NULL: no such key. The time it takes doesn't depend on which keys there are. */
const struct gw_api_key *gw_keys_find(const struct gw_keys *keys, struct span given);
