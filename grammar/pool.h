/* grammar/pool.h: where texts stand in a grammar. A stack is a state with the stacks it returns to
 * beneath it, stored once (nodes share their tails); a set is the stacks that a text may have left,
 * stored once as well, with what each byte makes of it. So a step is a look into a table, and only
 * the first time more. Nothing in here changes what a text may be: a pool can be emptied at any
 * time, and all of it is found again. */
#pragma once
#include "grammar/grammar.h"

/* Stacks of one set; a text that is ambiguous beyond that is not part of the language. */
#define GR_HEADS_MAX 1024u

#define GR_BOTTOM 0u /* node 0: beneath the first rule: the text is complete */
#define GR_DEAD	  0u /* set 0: no stack: no such text */

struct gr_node {
	uint32_t state, parent;
	uint32_t depth;
};

struct gr_set {
	uint32_t first, n;	     /* in gr_pool.members: nodes, ascending */
	bool ends;		     /* the text may be complete */
	bool reads;		     /* and may go on */
	bool known;		     /* the two above, and `readers` */
	uint32_t readers, n_readers; /* in gr_pool.members: nodes with edges that read a byte */
	uint32_t deepest; /* depth that what was tried from here would have had, to its end */
};

struct gr_pool {
	const struct gr_grammar *grammar;
	struct gr_node *nodes;
	struct gr_set *sets;
	uint32_t *members;
	uint32_t *next; /* [set * n_classes + class]: set + 1; 0: not known yet */
	uint32_t n_nodes, n_sets, n_members;
	uint32_t room_nodes, room_sets, room_members;
	uint32_t *node_index, *set_index; /* number by hash; 0: empty */
	uint32_t node_bits, set_bits;
	/* While a set is closed: */
	uint32_t *seen; /* [room_nodes]: the last closing that came here */
	uint32_t closing;
	uint32_t *work, n_work, room_work;
	uint32_t *made, n_made; /* [GR_HEADS_MAX] */
	uint32_t deepest;	/* of what is being tried */
	bool failed;		/* memory */
};

enum svc_code gr_pool_open(struct gr_pool *pool, const struct gr_grammar *grammar,
			   struct svc_err *err) SVC_CHECKED;
void gr_pool_close(struct gr_pool *pool);

/* The set of one stack: a state above a stack. */
uint32_t gr_pool_start(struct gr_pool *pool, uint32_t state, uint32_t parent);
/* The set after one more byte. */
uint32_t gr_pool_step(struct gr_pool *pool, uint32_t set, uint8_t byte);
/* Whether the text may be complete here. */
bool gr_pool_ends(struct gr_pool *pool, uint32_t set);
/* Whether a byte can follow. */
bool gr_pool_reads(struct gr_pool *pool, uint32_t set);

/* Is it so large that it should be emptied? */
bool gr_pool_is_large(const struct gr_pool *pool);
/* Empties it but for the sets named: n pointers to set numbers, which change. */
enum svc_code gr_pool_empty(struct gr_pool *pool, uint32_t **sets, size_t n,
			    struct svc_err *err) SVC_CHECKED;
