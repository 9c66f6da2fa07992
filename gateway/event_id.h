/* gateway/event_id.h: the id line of an event says where in which request of which run the client
 * is, so that any gateway can go on from there: "run.request.created.positions.tag", lower case
 * hexadecimal; positions are the events seen of each choice, separated by '-'. The tag is a keyed
 * hash (SipHash-2-4) over all of it and over who asked, so that an id can't be made up and is of no
 * use to anyone else. */
#pragma once
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

#define GW_CHOICES_MAX	  128u
#define GW_EVENT_ID_BYTES (4 * 17 + 9 * GW_CHOICES_MAX + 8)

struct gw_event_id {
	uint64_t run, request;
	uint64_t created_s; /* the request's time, which its template may have shown the model */
	uint32_t n;	    /* choices */
	uint32_t at[GW_CHOICES_MAX];
};

/* key: 16 bytes; scope: hash of the API key that the request came with, 0: none. */
void gw_event_id_print(const uint8_t *key, uint64_t scope, const struct gw_event_id *id,
		       char out[GW_EVENT_ID_BYTES]);
/* run: the run that is there now. SVC_GONE: an id of another run, whose tag can't be checked here;
 * *ret_id is what it says. SVC_NOT_FOUND: no id that was made for this scope. */
enum svc_code gw_event_id_parse(const uint8_t *key, uint64_t scope, uint64_t run, struct span text,
				struct gw_event_id *ret_id, struct svc_err *err) SVC_CHECKED;

/* SipHash-2-4, 64 bits (Aumasson and Bernstein, 2012). */
uint64_t gw_siphash(const uint8_t key[16], const void *bytes, size_t len);
