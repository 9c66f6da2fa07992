#include "sampler/text.h"

static const char replacement[] = "\xEF\xBF\xBD";
#define REPLACEMENT_BYTES 3u

static void borders_find(struct smp_stop *stop)
{
	const char *text = stop->text.ptr;
	uint16_t border = 0;
	for (size_t at = 1; at < stop->text.len; at++) {
		while (border && text[at] != text[border])
			border = stop->border[border - 1];
		if (text[at] == text[border])
			border++;
		stop->border[at] = border;
	}
}

enum svc_code smp_text_init(const struct smp_params *params, size_t max_piece_bytes,
			    struct arena *arena, struct smp_text *ret_text, struct svc_err *err)
{
	struct smp_text text = {.n_stops = params->num.n_stop,
				.keep_stop = smp_params_has(params, BODY_KEEP_STOP)};
	for (uint32_t i = 0; i < text.n_stops; i++) {
		struct smp_stop *stop = &text.stops[i];
		stop->text = params->stops[i];
		stop->border = arena_alloc(arena, stop->text.len * sizeof *stop->border);
		if (!stop->border)
			return svc_fail(err, SVC_NO_MEMORY, __func__,
					"no memory for stop string %u", i);
		borders_find(stop);
	}
	/* Held text, then every byte of the pending sequence and of the piece at its worst. */
	text.room =
		SMP_STOP_BYTES_MAX + REPLACEMENT_BYTES * (sizeof text.utf8.bytes + max_piece_bytes);
	text.out = arena_alloc(arena, text.room);
	if (!text.out)
		return svc_fail(err, SVC_NO_MEMORY, __func__,
				"no memory for a token's text of %zu bytes", text.room);
	*ret_text = text;
	return SVC_OK;
}

void smp_text_next(struct smp_text *text)
{
	text->n_out -= text->n_released;
	memmove(text->out, text->out + text->n_released, text->n_out);
	text->n_released = 0;
}

/* true: byte completes the stop string. */
static bool stop_advance(struct smp_stop *stop, char byte)
{
	uint16_t matched = stop->matched;
	while (matched && stop->text.ptr[matched] != byte)
		matched = stop->border[matched - 1];
	if (stop->text.ptr[matched] == byte)
		matched++;
	bool complete = matched == stop->text.len;
	stop->matched = complete ? stop->border[matched - 1] : matched;
	return complete;
}

/* The stop string that ends first wins; of several that end here, the one that began first. */
static int byte_emit(struct smp_text *text, char byte)
{
	int found = -1;
	text->out[text->n_out++] = byte;
	for (uint32_t i = 0; i < text->n_stops; i++)
		if (stop_advance(&text->stops[i], byte) &&
		    (found < 0 || text->stops[i].text.len > text->stops[found].text.len))
			found = (int)i;
	return found;
}

static int emit(struct smp_text *text, const void *bytes, size_t n, bool may_stop)
{
	for (size_t i = 0; i < n; i++) {
		int found = byte_emit(text, ((const char *)bytes)[i]);
		if (found < 0 || !may_stop)
			continue;
		if (!text->keep_stop)
			text->n_out -= text->stops[found].text.len;
		text->n_released = text->n_out;
		return found;
	}
	return -1;
}

/* Sets the expectations of a sequence from its first byte; false: no sequence starts with it. */
static bool utf8_begin(struct smp_utf8 *utf8, uint8_t byte)
{
	*utf8 = (struct smp_utf8){.bytes = {byte}, .n = 1, .low = 0x80, .high = 0xBF};
	if (byte < 0x80)
		utf8->length = 1;
	else if (byte >= 0xC2 && byte <= 0xDF)
		utf8->length = 2;
	else if (byte >= 0xE0 && byte <= 0xEF)
		utf8->length = 3;
	else if (byte >= 0xF0 && byte <= 0xF4)
		utf8->length = 4;
	else
		return false;
	/* Overlong forms, surrogates, beyond U+10FFFF. */
	if (byte == 0xE0)
		utf8->low = 0xA0;
	else if (byte == 0xED)
		utf8->high = 0x9F;
	else if (byte == 0xF0)
		utf8->low = 0x90;
	else if (byte == 0xF4)
		utf8->high = 0x8F;
	return true;
}

static int pending_replace(struct smp_text *text, bool may_stop)
{
	text->utf8.n = 0;
	return emit(text, replacement, REPLACEMENT_BYTES, may_stop);
}

static int byte_feed(struct smp_text *text, uint8_t byte, bool may_stop)
{
	struct smp_utf8 *utf8 = &text->utf8;
	if (utf8->n && (byte < utf8->low || byte > utf8->high)) {
		int stop = pending_replace(text, may_stop);
		if (stop >= 0)
			return stop;
	}
	if (utf8->n == 0) {
		if (!utf8_begin(utf8, byte))
			return pending_replace(text, may_stop);
	} else {
		utf8->bytes[utf8->n++] = byte;
		utf8->low = 0x80;
		utf8->high = 0xBF;
	}
	if (utf8->n < utf8->length)
		return -1;
	utf8->n = 0;
	return emit(text, utf8->bytes, utf8->length, may_stop);
}

int smp_text_feed(struct smp_text *text, struct span bytes, bool may_stop)
{
	for (size_t i = 0; i < bytes.len; i++) {
		int stop = byte_feed(text, (uint8_t)bytes.ptr[i], may_stop);
		if (stop >= 0)
			return stop;
	}
	size_t held = 0;
	for (uint32_t i = 0; i < text->n_stops; i++)
		if (text->stops[i].matched > held)
			held = text->stops[i].matched;
	text->n_released = text->n_out - held;
	return -1;
}

void smp_text_mark(struct smp_text *text)
{
	const char mark = SMP_TEXT_MARK;
	if (text->utf8.n)
		(void)pending_replace(text, false);
	(void)emit(text, &mark, 1, false);
	text->n_released = text->n_out;
}

int smp_text_end(struct smp_text *text, bool may_stop)
{
	int stop = text->utf8.n ? pending_replace(text, may_stop) : -1;
	if (stop < 0)
		text->n_released = text->n_out;
	return stop;
}

struct span smp_text_released(const struct smp_text *text)
{
	return (struct span){text->out, text->n_released};
}
