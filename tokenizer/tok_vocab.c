/* The vocabulary while it is loaded, and the tables made of it. */
#include <stdio.h>
#include <string.h>

#include "tokenizer/tok_job.h"
#include "tokenizer/tok_load.h"
#include "tokenizer/unicode/unicode.h"

struct tok_name tok_name(struct span text)
{
	struct tok_name name;
	size_t len = text.len < sizeof name.text - 1 ? text.len : sizeof name.text - 1;
	for (size_t i = 0; i < len; i++)
		name.text[i] = text.ptr[i] >= 0x20 && text.ptr[i] != 0x7F ? text.ptr[i] : '?';
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)name.text[i] >= 0x80)
			name.text[i] = '?';
	name.text[len] = 0;
	return name;
}

enum svc_code tok_vocab_reserve(struct tok *tok, uint64_t n_vocab, struct svc_err *err)
{
	if (n_vocab == 0 || n_vocab > TOK_MAX_VOCAB)
		return svc_fail(err, SVC_BAD_MODEL, "tokenizer",
				"a vocabulary of %llu tokens; 1 to %u are possible",
				(unsigned long long)n_vocab, TOK_MAX_VOCAB);
	tok->n_vocab = (uint32_t)n_vocab;
	tok->entries = arena_alloc(&tok->arena, (size_t)n_vocab * sizeof *tok->entries);
	if (!tok->entries)
		return svc_fail(err, SVC_NO_MEMORY, "tokenizer", "no memory for %u tokens",
				tok->n_vocab);
	for (uint32_t id = 0; id < tok->n_vocab; id++)
		tok->entries[id].flags = VOCAB_UNUSED;
	return SVC_OK;
}

/* The byte-level alphabet writes printable bytes as themselves and the others, in order, as U+0100
 * and up. Returns -1 for characters that don't belong to it. */
static int alphabet_byte(uint32_t point)
{
	if ((point >= 0x21 && point <= 0x7E) || (point >= 0xA1 && point <= 0xFF && point != 0xAD))
		return (int)point;
	if (point >= 0x100 && point < 0x121)
		return (int)(point - 0x100);
	if (point >= 0x121 && point < 0x143)
		return (int)(point - 0x121 + 0x7F);
	return point == 0x143 ? 0xAD : -1;
}

size_t tok_byte_level_decode(struct span text, char *out)
{
	size_t n = 0;
	for (size_t at = 0; at < text.len;) {
		struct unicode_char c = unicode_at(text.ptr, text.len, at);
		int byte = alphabet_byte(c.point);
		if (byte < 0)
			return SIZE_MAX;
		out[n++] = (char)byte;
		at += c.len;
	}
	return n;
}

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int tok_byte_value(struct span text)
{
	if (text.len != 6 || memcmp(text.ptr, "<0x", 3) != 0 || text.ptr[5] != '>')
		return -1;
	int high = hex_value(text.ptr[3]), low = hex_value(text.ptr[4]);
	return high >= 0 && low >= 0 ? high * 16 + low : -1;
}

static enum svc_code index_bytes(struct tok *tok, struct svc_err *err)
{
	for (int byte = 0; byte < 256; byte++)
		tok->byte_ids[byte] = -1;
	for (uint32_t id = 0; id < tok->n_vocab; id++) {
		struct tok_entry *entry = &tok->entries[id];
		if (tok->bpe.byte_level) {
			if (entry->makeable && entry->text.len == 1)
				tok->byte_ids[(unsigned char)entry->text.ptr[0]] = (int32_t)id;
			continue;
		}
		int byte = tok_byte_value(entry->text);
		if (byte < 0 && (entry->flags & VOCAB_BYTE))
			return svc_fail(err, SVC_BAD_MODEL, "tokenizer",
					"token %u '%s' is marked as a byte, but isn't one "
					"of <0x00> to <0xFF>",
					id, tok_name(entry->text).text);
		if (byte < 0 || !(entry->flags & VOCAB_BYTE))
			continue;
		tok->byte_ids[byte] = (int32_t)id;
	}
	return SVC_OK;
}

enum svc_code tok_vocab_index(struct tok *tok, struct svc_err *err)
{
	if (!tok_map_init(&tok->pieces, &tok->arena, tok->entries, tok->n_vocab))
		return svc_fail(err, SVC_NO_MEMORY, "tokenizer", "no memory for %u tokens",
				tok->n_vocab);
	for (uint32_t id = 0; id < tok->n_vocab; id++) {
		struct span text = tok->entries[id].text;
		if (!tok->entries[id].spelled || text.len == 0)
			continue;
		if (text.len > TOK_MAX_TOKEN_BYTES)
			return svc_fail(err, SVC_BAD_MODEL, "tokenizer",
					"token %u has %zu bytes; the limit is %u", id, text.len,
					TOK_MAX_TOKEN_BYTES);
		int32_t other = tok_map_put(&tok->pieces, (int32_t)id);
		if (other >= 0)
			return svc_fail(err, SVC_BAD_MODEL, "tokenizer",
					"tokens %d and %u are the same: '%s'", other, id,
					tok_name(text).text);
	}
	return index_bytes(tok, err);
}

/* The bytes a token stands for, written to out. */
static size_t decoded(const struct tok *tok, const struct tok_entry *entry, char *out)
{
	if (entry->flags & VOCAB_UNUSED)
		return 0;
	if (entry->flags & VOCAB_BYTE) {
		out[0] = (char)tok_byte_value(entry->text);
		return 1;
	}
	const size_t mark = strlen(TOK_SPACE);
	size_t n = 0;
	for (size_t at = 0; at < entry->text.len;) {
		if (tok->spaces && at + mark <= entry->text.len &&
		    memcmp(entry->text.ptr + at, TOK_SPACE, mark) == 0) {
			out[n++] = ' ';
			at += mark;
		} else {
			out[n++] = entry->text.ptr[at++];
		}
	}
	return n;
}

static enum svc_code decode_all(struct tok *tok, struct svc_err *err)
{
	size_t total = 0;
	for (uint32_t id = 0; id < tok->n_vocab; id++)
		total += tok->entries[id].text.len;
	if (total > VOCAB_MAX_BYTES)
		return svc_fail(err, SVC_BAD_MODEL, "tokenizer",
				"the tokens have %zu bytes; the limit is %u", total,
				VOCAB_MAX_BYTES);
	tok->offsets = arena_alloc(&tok->arena, ((size_t)tok->n_vocab + 1) * sizeof *tok->offsets);
	tok->bytes = arena_alloc(&tok->arena, total + 1);
	tok->flags = arena_alloc(&tok->arena, tok->n_vocab);
	if (!tok->offsets || !tok->bytes || !tok->flags)
		return svc_fail(err, SVC_NO_MEMORY, "tokenizer",
				"no memory for %zu bytes of tokens", total);
	for (uint32_t id = 0; id < tok->n_vocab; id++) {
		const struct tok_entry *entry = &tok->entries[id];
		tok->offsets[id + 1] = tok->offsets[id] +
				       (uint32_t)decoded(tok, entry, tok->bytes + tok->offsets[id]);
		tok->flags[id] = entry->flags;
	}
	for (uint32_t i = 0; i < tok->n_ends; i++)
		tok->flags[tok->ends[i]] |= VOCAB_END;
	return SVC_OK;
}

/* Whether the model may drop a character. Then what stood on both sides of it can meet and merge.
 */
static bool may_drop(const struct tok *tok)
{
	if (tok->model_unk_id >= 0)
		return false;
	for (int byte = 0; byte < 256; byte++)
		if (tok->byte_ids[byte] < 0)
			return true;
	return !tok->bpe.byte_fallback;
}

/* Where no merge reaches from another character into a "▁", a text may be cut there, and words are
 * looked up instead of merged. The bytes after which one does are tok->glue. */
static void cut_at_spaces(struct tok *tok)
{
	const struct span mark = span_of(TOK_SPACE);
	int32_t space = tok_map_get(&tok->pieces, mark);
	if (space < 0 || !tok->entries[space].makeable || may_drop(tok) ||
	    tok->n_splitters == TOK_MAX_STEPS)
		return;
	for (uint32_t i = 0; i <= tok->bpe.mask; i++) {
		const struct tok_merge *merge = &tok->bpe.table[i];
		if (merge->rank == TOK_NO_RANK)
			continue;
		struct span left = tok->entries[merge->left].text,
			    right = tok->entries[merge->right].text;
		if (right.len < mark.len || memcmp(right.ptr, mark.ptr, mark.len) != 0)
			continue;
		if (left.len < mark.len ||
		    memcmp(left.ptr + left.len - mark.len, mark.ptr, mark.len) != 0)
			tok->glue[(unsigned char)left.ptr[left.len - 1]] = true;
	}
	tok->splitters[tok->n_splitters++] =
		(struct tok_splitter){.kind = TOK_SPLIT_WORD_START, .glue = tok->glue};
}

/* What is searched for: the content, or its normal form. */
static bool set_pattern(struct tok *tok, struct tok_added *added)
{
	struct span content = tok->entries[added->id].text;
	struct tok_job job = {.tok = tok};
	const struct tok_run run = {content.len, true};
	const struct tok_text raw = {content.ptr, content.len, &run, 1};
	struct tok_text text = raw;
	bool ok = !added->normalized || tok->n_normals == 0 ||
		  tok_normalize(&job, &raw, 0, content.len, &text);
	const char *copy = ok ? arena_copy(&tok->arena, (struct span){text.ptr, text.len}) : NULL;
	added->pattern = (struct span){copy, text.len};
	tok_job_free(&job);
	return copy != NULL;
}

static enum svc_code index_added(struct tok *tok, struct svc_err *err)
{
	if (!tok_map_init(&tok->added_map, &tok->arena, tok->entries, tok->n_added))
		return svc_fail(err, SVC_NO_MEMORY, "tokenizer", "no memory for %zu added tokens",
				tok->n_added);
	for (size_t i = 0; i < tok->n_added; i++) {
		struct span content = tok->entries[tok->added[i].id].text;
		if (content.len == 0 || content.len > TOK_MAX_ADDED_BYTES)
			return svc_fail(err, SVC_BAD_MODEL, "tokenizer",
					"added token %d has %zu bytes; 1 to %u are possible",
					tok->added[i].id, content.len, TOK_MAX_ADDED_BYTES);
		int32_t other = tok_map_put(&tok->added_map, tok->added[i].id);
		if (other >= 0)
			return svc_fail(err, SVC_BAD_MODEL, "tokenizer",
					"added tokens %d and %d are the same: '%s'", other,
					tok->added[i].id, tok_name(content).text);
		if (!set_pattern(tok, &tok->added[i]))
			return svc_fail(err, SVC_NO_MEMORY, "tokenizer",
					"no memory for added tokens");
	}
	enum svc_code code = tok_matcher_build(tok, false, &tok->raw, err);
	return code == SVC_OK ? tok_matcher_build(tok, true, &tok->normalized, err) : code;
}

enum svc_code tok_finish(struct tok *tok, struct svc_err *err)
{
	enum svc_code code = index_added(tok, err);
	/* With ignore_merges, a piece that is a token would be it. */
	if (code == SVC_OK && tok->model == TOK_MODEL_BPE && !tok->bpe.byte_level &&
	    !tok->bpe.ignore_merges)
		cut_at_spaces(tok);
	if (code == SVC_OK)
		code = tok_ends_collect(tok, err);
	if (code == SVC_OK)
		code = decode_all(tok, err);
	return code;
}

/* ---- what the header promises about tokens */

uint32_t tok_vocab_count(const struct tok *tok)
{
	return tok->n_vocab;
}

struct span tok_token_bytes(const struct tok *tok, int32_t id)
{
	if (id < 0 || (uint32_t)id >= tok->n_vocab)
		return (struct span){"", 0};
	return (struct span){tok->bytes + tok->offsets[id],
			     tok->offsets[id + 1] - tok->offsets[id]};
}

unsigned tok_token_flags(const struct tok *tok, int32_t id)
{
	return id >= 0 && (uint32_t)id < tok->n_vocab ? tok->flags[id] : 0;
}

size_t tok_strip_bytes(const struct tok *tok, struct span first)
{
	return tok->strip == VOCAB_STRIP_FIRST && first.len > 0 && first.ptr[0] == ' ';
}

int32_t tok_find(const struct tok *tok, struct span text)
{
	int32_t id = tok_map_get(&tok->added_map, text);
	return id >= 0 ? id : tok_map_get(&tok->pieces, text);
}

struct vocab_parts tok_vocab_parts(const struct tok *tok)
{
	return (struct vocab_parts){.n_tokens = tok->n_vocab,
				    .n_ends = tok->n_ends,
				    .bos_id = tok->bos_id,
				    .eos_id = tok->eos_id,
				    .unk_id = tok->unk_id,
				    .pad_id = tok->pad_id,
				    .strip = tok->strip,
				    .offsets = tok->offsets,
				    .bytes = tok->bytes,
				    .flags = tok->flags,
				    .ends = tok->ends};
}
