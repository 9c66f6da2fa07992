#include "shm/vocab.h"

#include <string.h>

static bool has(struct span text, const char *word)
{
	return memmem(text.ptr, text.len, word, strlen(word)) != NULL;
}

enum vocab_tools vocab_tools_of(struct span template_text)
{
	if (!has(template_text, "tools"))
		return VOCAB_TOOLS_NONE;
	if (has(template_text, "<tool_call>"))
		return VOCAB_TOOLS_HERMES;
	if (has(template_text, "[TOOL_CALLS]") && has(template_text, "[ARGS]"))
		return has(template_text, "[CALL_ID]") ? VOCAB_TOOLS_MISTRAL_IDS
						       : VOCAB_TOOLS_MISTRAL_ARGS;
	if (has(template_text, "[TOOL_CALLS]"))
		return has(template_text, "[TOOL_CALLS] [") ? VOCAB_TOOLS_MISTRAL_SPACED
							    : VOCAB_TOOLS_MISTRAL_LIST;
	if (has(template_text, "\"parameters\":") || has(template_text, "python_tag"))
		return VOCAB_TOOLS_LLAMA3;
	return VOCAB_TOOLS_OTHER;
}

bool vocab_thinks_of(struct span template_text)
{
	return has(template_text, "<think>") || has(template_text, "</think>");
}

static uint64_t round8(uint64_t size)
{
	return (size + 7) & ~(uint64_t)7;
}

static struct vocab_header lay_out(const struct vocab_parts *parts)
{
	struct vocab_header h = {.magic = VOCAB_MAGIC,
				 .version = VOCAB_VERSION,
				 .header_bytes = sizeof h,
				 .model_hash = parts->model_hash,
				 .n_tokens = parts->n_tokens,
				 .n_ends = parts->n_ends,
				 .bos_id = parts->bos_id,
				 .eos_id = parts->eos_id,
				 .unk_id = parts->unk_id,
				 .pad_id = parts->pad_id,
				 .strip = parts->strip,
				 .tools = parts->tools,
				 .thinks = parts->thinks};
	for (uint32_t i = 0; i < parts->n_tokens; i++) {
		uint32_t len = parts->offsets[i + 1] - parts->offsets[i];
		if (len > h.max_token_bytes)
			h.max_token_bytes = len;
	}
	h.offsets_at = sizeof h;
	h.ends_at = round8(h.offsets_at + 4 * ((uint64_t)parts->n_tokens + 1));
	h.flags_at = round8(h.ends_at + 4 * (uint64_t)parts->n_ends);
	h.bytes_at = round8(h.flags_at + parts->n_tokens);
	h.bytes_len = parts->offsets[parts->n_tokens];
	h.total_bytes = round8(h.bytes_at + h.bytes_len);
	return h;
}

size_t vocab_size(const struct vocab_parts *parts)
{
	if (parts->n_tokens == 0 || parts->n_tokens > VOCAB_MAX_TOKENS ||
	    parts->n_ends > VOCAB_MAX_ENDS)
		return 0;
	if (parts->offsets[0] != 0 || parts->offsets[parts->n_tokens] > VOCAB_MAX_BYTES)
		return 0;
	for (uint32_t i = 0; i < parts->n_tokens; i++)
		if (parts->offsets[i] > parts->offsets[i + 1])
			return 0;
	return (size_t)lay_out(parts).total_bytes;
}

void vocab_write(const struct vocab_parts *parts, void *target)
{
	struct vocab_header h = lay_out(parts);
	char *base = target;
	memset(base, 0, h.total_bytes);
	memcpy(base + h.offsets_at, parts->offsets, 4 * ((size_t)h.n_tokens + 1));
	if (h.n_ends)
		memcpy(base + h.ends_at, parts->ends, 4 * (size_t)h.n_ends);
	memcpy(base + h.flags_at, parts->flags, h.n_tokens);
	if (h.bytes_len)
		memcpy(base + h.bytes_at, parts->bytes, h.bytes_len);
	memcpy(base, &h, sizeof h);
}

static bool inside(uint64_t at, uint64_t bytes, uint64_t total)
{
	return at <= total && bytes <= total - at && at % 4 == 0;
}

static enum svc_code check_header(const struct vocab_header *h, size_t size, struct svc_err *err)
{
	if (h->magic != VOCAB_MAGIC)
		return svc_fail(err, SVC_CORRUPT, "vocab", "this is no vocabulary (magic %016llx)",
				(unsigned long long)h->magic);
	if (h->version != VOCAB_VERSION || h->header_bytes != sizeof *h)
		return svc_fail(err, SVC_CORRUPT, "vocab",
				"vocabulary of version %u with a header of %u bytes; "
				"this program reads version %u with %zu",
				h->version, h->header_bytes, VOCAB_VERSION, sizeof *h);
	if (h->total_bytes > size || h->total_bytes < sizeof *h)
		return svc_fail(err, SVC_CORRUPT, "vocab",
				"vocabulary of %llu bytes in a mapping of %zu",
				(unsigned long long)h->total_bytes, size);
	if (h->n_tokens == 0 || h->n_tokens > VOCAB_MAX_TOKENS || h->n_ends > VOCAB_MAX_ENDS ||
	    h->bytes_len > VOCAB_MAX_BYTES || h->strip > VOCAB_STRIP_FIRST ||
	    h->tools >= VOCAB_TOOLS_COUNT)
		return svc_fail(err, SVC_CORRUPT, "vocab",
				"vocabulary of %u tokens and %u end tokens is over a limit",
				h->n_tokens, h->n_ends);
	if (!inside(h->offsets_at, 4 * ((uint64_t)h->n_tokens + 1), h->total_bytes) ||
	    !inside(h->ends_at, 4 * (uint64_t)h->n_ends, h->total_bytes) ||
	    !inside(h->flags_at, h->n_tokens, h->total_bytes) ||
	    !inside(h->bytes_at, h->bytes_len, h->total_bytes))
		return svc_fail(err, SVC_CORRUPT, "vocab",
				"a table of the vocabulary lies outside of its %llu bytes",
				(unsigned long long)h->total_bytes);
	return SVC_OK;
}

static enum svc_code check_tables(const struct vocab *vocab, struct svc_err *err)
{
	uint32_t before = 0;
	for (uint32_t i = 0; i <= vocab->n_tokens; i++) {
		uint32_t offset = vocab->offsets[i];
		if (offset < before || offset > vocab->bytes_len)
			return svc_fail(err, SVC_CORRUPT, "vocab",
					"token %u of the vocabulary lies at byte %u of %u", i,
					offset, vocab->bytes_len);
		before = offset;
	}
	for (uint32_t i = 0; i < vocab->n_ends; i++)
		if (vocab->ends[i] < 0 || (uint32_t)vocab->ends[i] >= vocab->n_tokens)
			return svc_fail(err, SVC_CORRUPT, "vocab",
					"end token %d is not in the vocabulary of %u tokens",
					vocab->ends[i], vocab->n_tokens);
	return SVC_OK;
}

enum svc_code vocab_open(const void *mapping, size_t size, struct vocab *ret_vocab,
			 struct svc_err *err)
{
	struct vocab_header h;
	if (size < sizeof h)
		return svc_fail(err, SVC_CORRUPT, "vocab",
				"a mapping of %zu bytes holds no vocabulary", size);
	memcpy(&h, mapping, sizeof h);
	enum svc_code code = check_header(&h, size, err);
	if (code != SVC_OK)
		return code;
	const char *base = mapping;
	struct vocab vocab = {.n_tokens = h.n_tokens,
			      .n_ends = h.n_ends,
			      .bos_id = h.bos_id,
			      .eos_id = h.eos_id,
			      .unk_id = h.unk_id,
			      .pad_id = h.pad_id,
			      .strip = (enum vocab_strip)h.strip,
			      .tools = (enum vocab_tools)h.tools,
			      .thinks = h.thinks == 1,
			      .max_token_bytes = h.max_token_bytes,
			      .model_hash = h.model_hash,
			      .offsets = (const void *)(base + h.offsets_at),
			      .ends = (const void *)(base + h.ends_at),
			      .flags = (const uint8_t *)(base + h.flags_at),
			      .bytes = base + h.bytes_at,
			      .bytes_len = (uint32_t)h.bytes_len};
	code = check_tables(&vocab, err);
	if (code == SVC_OK)
		*ret_vocab = vocab;
	return code;
}

struct span vocab_token(const struct vocab *vocab, int32_t id)
{
	if (id < 0 || (uint32_t)id >= vocab->n_tokens)
		return (struct span){"", 0};
	uint32_t start = vocab->offsets[id], end = vocab->offsets[id + 1];
	if (start > end || end > vocab->bytes_len)
		return (struct span){"", 0};
	return (struct span){vocab->bytes + start, end - start};
}

unsigned vocab_token_flags(const struct vocab *vocab, int32_t id)
{
	return id >= 0 && (uint32_t)id < vocab->n_tokens ? vocab->flags[id] : 0;
}

bool vocab_is_end(const struct vocab *vocab, int32_t id)
{
	return (vocab_token_flags(vocab, id) & VOCAB_END) != 0;
}

static int32_t control_find(const struct vocab *vocab, const char *name)
{
	for (uint32_t id = 0; id < vocab->n_tokens; id++)
		if (vocab->flags[id] & VOCAB_CONTROL &&
		    span_is(vocab_token(vocab, (int32_t)id), name))
			return (int32_t)id;
	return -1;
}

struct vocab_call_tokens vocab_call_tokens_of(const struct vocab *vocab)
{
	return (struct vocab_call_tokens){.calls = control_find(vocab, "[TOOL_CALLS]"),
					  .args = control_find(vocab, "[ARGS]"),
					  .call_id = control_find(vocab, "[CALL_ID]")};
}

enum vocab_tools vocab_tools_with(enum vocab_tools tools, const struct vocab_call_tokens *tokens)
{
	bool has_args = tokens->calls >= 0 && tokens->args >= 0;
	bool there = true;
	if (tools == VOCAB_TOOLS_MISTRAL_LIST || tools == VOCAB_TOOLS_MISTRAL_SPACED)
		there = tokens->calls >= 0;
	else if (tools == VOCAB_TOOLS_MISTRAL_ARGS)
		there = has_args;
	else if (tools == VOCAB_TOOLS_MISTRAL_IDS)
		there = has_args && tokens->call_id >= 0;
	return there ? tools : VOCAB_TOOLS_MISTRAL;
}
