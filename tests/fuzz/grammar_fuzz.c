/* tests/fuzz/grammar_fuzz.c: any bytes as a grammar (g), a regular expression (r) or a JSON schema
 * (s), by the first byte. What is translated must be grammar text; what compiles must be a language
 * that never leads nowhere. */
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/pool.h"
#include "grammar/schema.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Some text of the language: every beginning has an end within reach. */
static void walk(const struct gr_grammar *grammar)
{
	struct gr_pool pool;
	unsigned byte = 0;
	if (gr_pool_open(&pool, grammar, NULL) != SVC_OK)
		return;
	uint32_t set = gr_pool_start(&pool, grammar->starts[grammar->root], GR_BOTTOM);
	for (int step = 0; step < 300 && gr_pool_reads(&pool, set); step++) {
		uint32_t next = GR_DEAD;
		for (unsigned tries = 0; tries < 256 && next == GR_DEAD; tries++)
			next = gr_pool_step(&pool, set, (uint8_t)(byte = (byte + 37) % 256));
		if (next == GR_DEAD && !pool.failed && pool.sets[set].n < GR_HEADS_MAX / 2)
			abort();
		set = next;
	}
	gr_pool_close(&pool);
}

static enum svc_code translate(char kind, struct span text, struct gr_writer *writer)
{
	enum svc_code code = SVC_INVALID;
	gr_put_json_rules(&writer->out);
	if (kind == 'r') {
		buf_print(&writer->out, "root ::= ");
		code = gr_put_regex(&writer->out, text,
				    text.len % 2 ? GR_REGEX_WHOLE : GR_REGEX_JSON, NULL);
	} else if (kind == 's') {
		json_t *json = json_loadb(text.ptr, text.len,
					  JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
		if (json)
			code = gr_put_schema(writer, "root", json, NULL);
		json_decref(json);
	} else {
		buf_clear(&writer->out);
		buf_span(&writer->out, text);
		code = SVC_OK;
	}
	return writer->out.failed ? SVC_NO_MEMORY : code;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct gr_writer writer = {0};
	struct gr_grammar *grammar = NULL;
	struct svc_err err = {0};
	if (size < 1 || size > 4096)
		return 0;
	struct span text = {(const char *)data + 1, size - 1};
	enum svc_code code = translate((char)data[0], text, &writer);
	if (code == SVC_OK) {
		code = gr_compile((struct span){writer.out.ptr, writer.out.len}, &grammar, &err);
		/* A translation may be too large or empty, but it is well formed. */
		if (code == SVC_INVALID && (data[0] == 'r' || data[0] == 's') &&
		    strstr(err.msg, ", at line"))
			abort();
	}
	if (code == SVC_OK)
		walk(grammar);
	gr_free(grammar);
	buf_free(&writer.out);
	return 0;
}
