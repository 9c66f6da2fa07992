/* grammar/guide.h: a grammar over a vocabulary: which tokens may come next, and where a text stands
 * after each. For one thread. What a text may be is a function of the grammar, the vocabulary and
 * the text; everything else in here is a cache.
 *
 * Costs: the tokens that may follow a state as far as they stay within its rule are found once per
 * state, by a walk over the vocabulary; later masks only add what goes on behind the rule's end. */
#pragma once
#include <sys/queue.h>

#include "grammar/grammar.h"
#include "grammar/pool.h"
#include "grammar/trie.h"

struct gr_guide;

/* Where one text stands. */
struct gr_seq {
	struct gr_guide *guide;
	uint32_t set;
	LIST_ENTRY(gr_seq) link;
};

/* Takes the grammar, also when it fails; trie must outlive the guide. */
enum svc_code gr_guide_open(struct gr_grammar *grammar_take, const struct gr_trie *trie,
			    uint32_t n_vocab, struct gr_guide **ret_guide,
			    struct svc_err *err) SVC_CHECKED;
/* No sequence may be left. NULL is fine. Returns NULL. */
struct gr_guide *gr_guide_free(struct gr_guide *guide);
/* Has it no sequence? */
bool gr_guide_is_idle(const struct gr_guide *guide);
/* Called now and then during long work (of a first mask). */
void gr_guide_on_work(struct gr_guide *guide, void (*on_work)(void *), void *data);

/* The empty text. */
enum svc_code gr_seq_open(struct gr_guide *guide, struct gr_seq *seq,
			  struct svc_err *err) SVC_CHECKED;
void gr_seq_close(struct gr_seq *seq);

/* Appends bytes. False: no text of the language begins so; the sequence is as before. */
bool gr_seq_push(struct gr_seq *seq, struct span bytes);
/* Is the text complete? Can it go on? */
bool gr_seq_ends(struct gr_seq *seq);
bool gr_seq_reads(struct gr_seq *seq);

/* Sets bit id % 32 of ret_bits[id / 32] for each token whose bytes may come next, and clears the
 * others; [(n_vocab + 31) / 32]. strip_space: one space at the beginning of the token doesn't
 * count. SVC_NO_MEMORY. */
enum svc_code gr_seq_mask(struct gr_seq *seq, bool strip_space, uint32_t *ret_bits,
			  struct svc_err *err) SVC_CHECKED;
