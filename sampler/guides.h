/* sampler/guides.h: the grammars of the requests that run, each compiled once for this vocabulary
 * and kept while it may be used again. A cache: any sampler makes the same of a grammar's text. */
#pragma once
#include "base/err.h"
#include "base/span.h"
#include "grammar/guide.h"
#include "sampler/sampler.h"

/* Grammars that are kept without a sequence. */
#define SMP_GUIDES_KEPT 32u

/* vocab must outlive it. About 12 bytes per token and 11 per different beginning of a token. */
enum svc_code smp_guides_open(const struct smp_vocab *vocab, uint32_t n_vocab,
			      struct smp_guides **ret_guides, struct svc_err *err) SVC_CHECKED;
/* NULL is fine. Returns NULL. */
struct smp_guides *smp_guides_free(struct smp_guides *guides);
/* Called now and then during long work. */
void smp_guides_on_work(struct smp_guides *guides, void (*on_work)(void *), void *data);

/* The guide of a grammar's text; lives while a sequence uses it. SVC_INVALID as gr_compile. */
enum svc_code smp_guides_get(struct smp_guides *guides, struct span text,
			     struct gr_guide **ret_guide, struct svc_err *err) SVC_CHECKED;
