/* grammar/trie.h: a vocabulary's tokens by their bytes, so that one walk finds all tokens that may
 * come next. Nodes lie in the order of a walk: a node, then all beneath it. Read-only once made. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/span.h"

struct gr_trie {
	uint32_t n_nodes, n_tokens;
	uint32_t *skip;	  /* [n_nodes]: the next node that isn't beneath this one */
	uint32_t *token;  /* [n_nodes]: first of its tokens in `tokens` */
	uint32_t *tokens; /* [n_tokens]: ids, by node; node i has token[i] to token[i + 1] - 1 */
	uint8_t *byte;	  /* [n_nodes] */
	uint16_t *depth;  /* [n_nodes]: from 1 */
	uint32_t depth_max;
};

/* Tokens longer than this are left out: no grammar lets them come. */
#define GR_TOKEN_BYTES_MAX 1024u

/* The bytes of each token, of n_vocab; those without bytes are left out. pieces lives for the call.
 */
enum svc_code gr_trie_open(const struct span *pieces, uint32_t n_vocab, struct gr_trie **ret_trie,
			   struct svc_err *err) SVC_CHECKED;
/* NULL is fine. Returns NULL. */
struct gr_trie *gr_trie_free(struct gr_trie *trie);
