/* grammar/gr_accept_test_main.c: the grammar room on JSON lines, for tests/unit/test_grammar.py:
 *
 *   {"kind": "gbnf|regex|schema", "source": ..., "texts": [...], "seed": n, "walks": n, "bytes": n}
 *
 * answers {"error": "..."} or {"accepts": [true, ...], "made": ["...", ...]}: texts that were made
 * by random walks, those of them that came to an end within `bytes`. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/grammar.h"
#include "grammar/pool.h"
#include "grammar/schema.h"

static enum svc_code text_make(const char *kind, const json_t *source, struct gr_writer *writer,
			       struct svc_err *err)
{
	struct span text = {json_string_value(source), json_string_length(source)};
	gr_put_json_rules(&writer->out);
	if (strcmp(kind, "schema") == 0)
		return gr_put_schema(writer, "root", source, err);
	if (strcmp(kind, "regex") == 0) {
		buf_print(&writer->out, "root ::= ");
		return gr_put_regex(&writer->out, text, GR_REGEX_WHOLE, err);
	}
	buf_clear(&writer->out);
	buf_span(&writer->out, text);
	return SVC_OK;
}

static bool accepts(struct gr_pool *pool, uint32_t set, struct span text)
{
	for (size_t i = 0; i < text.len; i++)
		set = gr_pool_step(pool, set, (uint8_t)text.ptr[i]);
	return gr_pool_ends(pool, set);
}

/* Any byte that may come, more often one that ends what is open. */
static uint8_t byte_pick(struct gr_pool *pool, uint32_t set, unsigned *seed)
{
	static const char ends[] = "\"}],:0 ";
	const char *first = ends + (unsigned)rand_r(seed) % (sizeof ends - 1);
	if (rand_r(seed) % 3 == 0 && gr_pool_step(pool, set, (uint8_t)*first) != GR_DEAD)
		return (uint8_t)*first;
	uint8_t byte;
	do {
		byte = rand_r(seed) % 8 ? (uint8_t)(' ' + rand_r(seed) % 95)
					: (uint8_t)(rand_r(seed) % 256);
		for (int tries = 0; tries < 256 && gr_pool_step(pool, set, byte) == GR_DEAD;
		     tries++)
			byte++;
	} while (gr_pool_step(pool, set, byte) == GR_DEAD);
	return byte;
}

static json_t *walk(struct gr_pool *pool, uint32_t set, size_t limit, unsigned *seed)
{
	struct buf text = {0};
	while (text.len < limit && gr_pool_reads(pool, set)) {
		if (gr_pool_ends(pool, set) && rand_r(seed) % 4 == 0)
			break;
		char byte = (char)byte_pick(pool, set, seed);
		buf_append(&text, &byte, 1);
		set = gr_pool_step(pool, set, (uint8_t)byte);
	}
	json_t *made =
		gr_pool_ends(pool, set) ? json_stringn(text.len ? text.ptr : "", text.len) : NULL;
	buf_free(&text);
	return made;
}

static json_t *answer_make(const json_t *question, const struct gr_grammar *grammar)
{
	struct gr_pool pool;
	json_t *accepted = json_array(), *made = json_array();
	const json_t *texts = json_object_get(question, "texts");
	unsigned seed = (unsigned)json_integer_value(json_object_get(question, "seed"));
	json_int_t walks = json_integer_value(json_object_get(question, "walks"));
	size_t limit = (size_t)json_integer_value(json_object_get(question, "bytes"));
	if (gr_pool_open(&pool, grammar, NULL) != SVC_OK)
		abort();
	uint32_t set = gr_pool_start(&pool, grammar->starts[grammar->root], GR_BOTTOM);
	for (size_t i = 0; i < json_array_size(texts); i++) {
		const json_t *text = json_array_get(texts, i);
		struct span span = {json_string_value(text), json_string_length(text)};
		json_array_append_new(accepted, json_boolean(accepts(&pool, set, span)));
	}
	for (json_int_t i = 0; i < walks; i++)
		json_array_append_new(made, walk(&pool, set, limit, &seed));
	gr_pool_close(&pool);
	return json_pack("{s:o,s:o}", "accepts", accepted, "made", made);
}

static json_t *answer(const json_t *question)
{
	struct gr_writer writer = {0};
	struct gr_grammar *grammar = NULL;
	struct svc_err err = {0};
	const char *kind = json_string_value(json_object_get(question, "kind"));
	enum svc_code code =
		text_make(kind ? kind : "", json_object_get(question, "source"), &writer, &err);
	if (code == SVC_OK)
		code = gr_compile((struct span){writer.out.ptr, writer.out.len}, &grammar, &err);
	json_t *answer = code == SVC_OK ? answer_make(question, grammar)
					: json_pack("{s:s}", "error", err.msg);
	if (json_is_true(json_object_get(question, "show")))
		json_object_set_new(answer, "grammar",
				    json_stringn(writer.out.ptr, writer.out.len));
	gr_free(grammar);
	buf_free(&writer.out);
	return answer;
}

int main(void)
{
	char *line = NULL;
	size_t room = 0;
	ssize_t len;
	while ((len = getline(&line, &room, stdin)) > 0) {
		json_t *question =
			json_loadb(line, (size_t)len, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
		json_t *reply = answer(question);
		json_dumpf(reply, stdout, JSON_COMPACT);
		putchar('\n');
		fflush(stdout);
		json_decref(question);
		json_decref(reply);
	}
	free(line);
	return 0;
}
