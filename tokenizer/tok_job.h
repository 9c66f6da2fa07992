/* tokenizer/tok_job.h: one call of tok_encode and its memory. */
#pragma once
#include "tokenizer/tok_private.h"

/* One of the buffers that normalizers write to. */
struct tok_text_buf {
	struct buf bytes;
	struct tok_run *runs;
	size_t n_runs, run_room;
	size_t in_run; /* the input's run that was copied from last */
};
void tok_text_buf_free(struct tok_text_buf *buf);

struct tok_job {
	const struct tok *tok;
	struct tok_ids ids;
	bool failed; /* no memory: whatever follows is skipped */
	struct tok_text_buf normal[2];
	struct tok_text_buf metaspace;
	struct tok_long *longs; /* NULL until there is a long word */
};
void tok_job_free(struct tok_job *job);

void tok_push(struct tok_job *job, int32_t id);

/* The text from..end of `text`, normalized. The result is in the job's buffers. */
bool tok_normalize(struct tok_job *job, const struct tok_text *text, size_t from, size_t end,
		   struct tok_text *ret_text);
/* One normalizer; first: the text begins the whole input. */
void tok_normal_run(const struct tok_normal *normal, const struct tok_text *in, bool first,
		    struct tok_text_buf *out);

/* A word that no splitter cuts further: its ids are pushed. */
void tok_bpe_encode(struct tok_job *job, struct span word);
void tok_unigram_encode(struct tok_job *job, struct span word);

/* The symbols of a word before any merge: their number; at most word.len are written to ids. */
size_t tok_bpe_symbols(const struct tok *tok, struct span word, uint32_t *ids);
void tok_bpe_encode_long(struct tok_job *job, struct span word);
void tok_long_free(struct tok_long *longs);
