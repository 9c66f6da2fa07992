/* shm/layout.h: every struct that crosses a process boundary, and nothing else. Fixed-width types,
 * explicit padding, one writer per cache line, offsets instead of pointers. A segment whose layout
 * hash differs is refused at attach.
 *
 * A reader never trusts a length or an offset it finds here: it copies it to a local, checks it,
 * then uses it. */
#pragma once
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define SHM_LINE    64u
#define SHM_MAGIC   0x4c4f434b53544550ull /* "LOCKSTEP" */
#define SHM_VERSION 1u

enum seg_kind {
	SEG_CONTROL = 1,
	SEG_BODIES,
	SEG_PAGES,
	SEG_LOGITS,
	SEG_VOCAB,
	SEG_WEIGHTS,
	SEG_ACTIVATIONS
};

struct seg_header {
	uint64_t magic;
	uint32_t version;
	uint32_t kind;	      /* enum seg_kind */
	uint64_t layout_hash; /* seg_layout_hash() of the builder */
	uint64_t total_bytes;
	uint64_t run_id; /* random, the same in all segments of a run */
	uint64_t reserved[3];
};
_Static_assert(sizeof(struct seg_header) == SHM_LINE, "one line");

/* ---- roles and incarnations
 * ---------------------------------------------------------------------------- */

enum shm_role {
	ROLE_NONE,
	ROLE_GATEWAY,
	ROLE_TOKENIZER,
	ROLE_WORKER,
	ROLE_SAMPLER,
	ROLE_KEEPER,
	ROLE_COUNT
};

/* A start of a process sits in one entry while it lives and until nothing names it any more. Entry
 * 0 is "nobody". Entries 1..15 are for npu-workers: the index is also the worker's bit in a KV
 * page's holder mask. */
#define INC_COUNT	 64u
#define INC_WORKER_FIRST 1u
#define INC_WORKER_END	 16u

enum inc_state { INC_STARTING = 1, INC_READY, INC_DRAINING };

/* What a process tells about its work. The first two are levels, the others only grow. */
enum inc_gauge {
	GAUGE_RUNNING,	      /* npu-worker: sequences; gateway: open requests */
	GAUGE_WAITING,	      /* npu-worker: unclaimed sequences it saw */
	GAUGE_PREFILL_TOKENS, /* npu-worker: prompt positions computed */
	GAUGE_DECODE_TOKENS,  /* npu-worker: generated positions computed */
	GAUGE_STEPS,	      /* npu-worker: passes over the weights */
	GAUGE_AHEAD_TOKENS,   /* npu-worker: of those generated, computed before they were drawn */
	GAUGE_SAMPLED,	      /* sampler: turns */
	GAUGE_TOKENIZED,      /* tokenizer: prompts */
	GAUGE_REQUESTS,	      /* gateway: requests admitted */
	GAUGE_DRAFTED,	      /* npu-worker: drafts computed */
	GAUGE_ACCEPTED,	      /* npu-worker: of those, drawn */
	GAUGE_MISGUESSED,     /* npu-worker: of those begun ahead, drawn other than guessed */
	GAUGE_COUNT
};

struct inc_entry {
	/* Written by its process at registration: `number` first, by compare-and-swap of 0, which
	 * makes the entry its own; `status` last. A number is never used twice. */
	_Atomic uint64_t number; /* 0: entry free */
	_Atomic uint64_t status; /* number << 8 | role << 4 | inc_state: of another number, it says
				    nothing */
	uint32_t instance;
	int32_t pid;	      /* for people and status only: never identity */
	uint64_t started_us;  /* CLOCK_REALTIME */
	uint64_t family_hash; /* workers: arithmetic family; only the same may take over */
	/* Workers: CLOCK_MONOTONIC until which a failing NPU is left alone, before it is ready; 0:
	 * it isn't. */
	_Atomic uint64_t npu_pause_us;
	uint8_t pad0[16];
	/* Written by its process, all the time. */
	_Atomic uint64_t beat; /* counts work done, at least every 100 ms */
	_Atomic uint64_t
		beat_us; /* CLOCK_MONOTONIC of the last one, for people: liveness is the beat */
	_Atomic uint64_t handed; /* slots handed on */
	_Atomic uint64_t busy_us;
	_Atomic uint64_t gauge[GAUGE_COUNT];
	/* Written by others. */
	_Atomic uint64_t
		fenced; /* == number: another process has fenced this one; it must leave with 75 */
	/* 1, by itself: it looks at its bell and then waits for a byte in its FIFO; whoever rings
	 * sets it to 0 and sends the byte (services/bell.h). */
	_Atomic uint64_t asleep;
	uint8_t pad2[48];
};
_Static_assert(sizeof(struct inc_entry) == 4 * SHM_LINE, "lines, one writer each");

/* A set bit: "look at this slot"; one for every slot line, several lines for an entry if need be.
 */
struct bell_line {
	_Atomic uint64_t rung[SHM_LINE / 8];
};
#define BELL_LINE_SLOTS (8u * SHM_LINE)

/* ---- slots
 * --------------------------------------------------------------------------------------------------
 */

/* The stage says whose turn it is; the owner (an incarnation's entry) says who of them may act, 0 =
 * any living instance of that stage's role may claim it. What is *not* encoded: whether the client
 * still listens (cancel), whether the answer is complete (the body's sampler line), or why a
 * request failed (the body's failure line). */
enum slot_stage {
	STAGE_FREE,	/* nobody */
	STAGE_FILL,	/* gateway: writes the request into the body */
	STAGE_TOKENIZE, /* tokenizer: text or messages to ids */
	STAGE_COMPUTE,	/* npu-worker: KV and logits up to the last known token */
	STAGE_SAMPLE,	/* sampler: the next token, its bytes, its log-probabilities */
	STAGE_RECLAIM,	/* npu-worker: gives back KV pages and the logits row */
	STAGE_DONE, /* gateway: the answer is complete and kept until it is released or expires */
	STAGE_COUNT
};

/* The slot's word, changed only by compare-and-swap: stage 4 bits, owner 6, held 1, body 14, turn
 * 39. held: the owner itself made this word. The body is the index of its first block; the turn
 * grows by one with every change, so an old word never comes back. */
#define SLOT_STAGE_BITS 4u
#define SLOT_OWNER_BITS 6u
#define SLOT_HELD_BITS	1u
#define SLOT_BODY_BITS	14u
#define SLOT_TURN_BITS	39u

struct slot_line {
	_Atomic uint64_t word;
	uint8_t pad0[56];
	/* Gateway's line: written in STAGE_FILL; afterwards only `cancel`, `gateway`, `released`.
	 */
	_Atomic uint64_t generation; /* of the request in it; a handle is slot + generation */
	_Atomic uint64_t cancel;     /* == generation: the client went away */
	_Atomic uint64_t request;    /* id, the same for all choices of one request */
	_Atomic uint64_t ticket;     /* order of arrival */
	_Atomic uint64_t key_hash;   /* of API key and Idempotency-Key; 0: none */
	_Atomic uint64_t
		content_hash;	    /* of the request's body, for the same key with another body */
	_Atomic uint32_t gateway;   /* incarnation entry that streams it */
	uint16_t choice, n_choices; /* index over prompts and n; number of slots of this request */
	_Atomic uint64_t ended_us; /* CLOCK_REALTIME when the gateway saw it complete; 0: not yet */
	/* Gateway's second line, written in STAGE_FILL; account is 0 again before STAGE_FREE. */
	_Atomic uint64_t account;    /* who asked: hash of the API key's name; 0: no key */
	_Atomic uint64_t arrived_us; /* CLOCK_REALTIME */
	uint8_t pad1[48];
};
_Static_assert(sizeof(struct slot_line) == 3 * SHM_LINE, "word and two gateway lines");

/* ---- bodies
 * -------------------------------------------------------------------------------------------------
 */

/* A body is a contiguous run of blocks: this header, then regions. Block 0 is never used: a slot's
 * word with body 0 has none. */
#define BODY_BLOCK_BYTES 65536u
#define BODY_MAGIC	 0x59444f42u

/* A block's word, changed only by compare-and-swap (shm/block.h): slot 14 bits, kind 2, first block
 * of its run 14, stamp 10, incarnation number 24. 0: free. */
#define BLOCK_SLOT_BITS	  14u
#define BLOCK_KIND_BITS	  2u
#define BLOCK_STAMP_BITS  10u
#define BLOCK_NUMBER_BITS 24u

struct block_word {
	_Atomic uint64_t word;
};

enum body_kind { BODY_GENERATE = 1, BODY_TOKENIZE, BODY_DETOKENIZE, BODY_TEMPLATE, BODY_EMBED };
enum body_input { INPUT_TEXT = 1, INPUT_IDS, INPUT_CHAT };

enum body_flag {
	BODY_IGNORE_EOS = 1u << 0,
	BODY_LOGPROBS = 1u << 1, /* records for generated tokens */
	BODY_ECHO = 1u << 2,
	BODY_PROMPT_LOGPROBS = 1u << 3, /* records for the prompt too, by absolute position */
	BODY_KEEP_STOP = 1u << 4,	/* include_stop_str_in_output */
	BODY_KEEP_SPECIAL = 1u << 5,	/* skip_special_tokens = false */
	BODY_NO_BOS = 1u << 6,		/* add_special_tokens = false */
	BODY_SCORE_ONLY = 1u << 7,	/* ends when the prompt is computed: no token is drawn */
	BODY_NO_DRAFTS = 1u << 8,	/* speculate = false */
};

enum body_region {
	REGION_TEXT,	 /* gateway: prompt text, or JSON {messages, tools, ...} for INPUT_CHAT */
	REGION_META,	 /* gateway: what another gateway needs to render the same events */
	REGION_STOP,	 /* gateway: stop strings, each u32 length + bytes padded to 4 */
	REGION_STOP_IDS, /* gateway: int32[] */
	REGION_BIAS,	 /* gateway: struct body_bias[] */
	REGION_GRAMMAR,	 /* gateway: the answer's grammar in its text form; empty: none */
	REGION_IDS, /* int32[]: prompt by the tokenizer (or gateway), then tokens by the sampler */
	REGION_PAGES,	 /* npu-worker: uint32[] handle (shm/page.h) of the KV page of each 64
			    positions */
	REGION_ENDS,	 /* sampler: uint32[] bytes of the answer released after each token */
	REGION_OUT,	 /* sampler: the answer's bytes; tokenizer: the text of BODY_DETOKENIZE and
			    BODY_TEMPLATE */
	REGION_LOGPROBS, /* sampler: struct body_logprob records, stride body_logprob_bytes(top) */
	REGION_VECTOR,	 /* npu-worker, BODY_EMBED: two struct body_sum, then float[dimensions] */
	REGION_COUNT
};

struct body_extent {
	uint32_t offset; /* from the body's start, multiple of 64 */
	uint32_t bytes;
};

struct body_bias {
	int32_t id;
	float value;
};

/* Which of a text's hidden states its vector is made of. */
enum body_pooling { POOLING_MEAN, POOLING_LAST };

/* The hidden states of the first n_positions positions (with POOLING_LAST: of the last one), added
 * up in their order. One is made while the other holds: what lies in `values` counts only if the
 * checksum says so. The next one begins at the next line. */
struct body_sum {
	uint32_t n_positions, reserved;
	uint64_t checksum; /* XXH3-64 of values, seed generation ^ n_positions << 40 */
	double values[];   /* [n_embd] */
};

struct body_params {
	uint64_t seed;
	uint32_t max_tokens; /* 0: the rest of the context */
	uint32_t min_tokens;
	uint32_t choice;       /* enters the draw */
	uint32_t flags;	       /* enum body_flag */
	uint32_t top_logprobs; /* 0..20 */
	uint32_t top_k;	       /* 0: off */
	float temperature, top_p, min_p, typical_p;
	float repetition_penalty, presence_penalty, frequency_penalty;
	uint32_t repetition_window; /* last tokens the penalties look at; 0: all */
	uint32_t n_stop, n_stop_ids, n_bias;
	uint32_t pooling;    /* enum body_pooling */
	uint32_t dimensions; /* of the vector, 1 to n_embd */
	uint32_t reserved[11];
};
_Static_assert(sizeof(struct body_params) == 2 * SHM_LINE, "two lines");

enum body_finish { FINISH_NONE, FINISH_STOP, FINISH_LENGTH, FINISH_CANCELLED, FINISH_ERROR };

/* top[i] in descending order, ties by lower id. */
struct body_logprob {
	float chosen;
	uint32_t n_top;
	struct {
		int32_t id;
		float logprob;
	} top[];
};

struct body {
	/* Written in STAGE_FILL (or by whoever copies a body away from a frozen process). */
	uint32_t magic;
	uint32_t n_blocks;
	uint64_t generation;
	uint32_t slot;
	uint32_t kind;	/* enum body_kind */
	uint32_t input; /* enum body_input */
	uint32_t reserved0;
	int64_t template_time_s; /* the template's clock, fixed at admission */
	uint8_t pad0[24];
	struct body_extent regions[REGION_COUNT];
	uint8_t pad1[32];
	struct body_params params;
	/* Tokenizer's line; `n_prompt` for INPUT_IDS by the gateway. */
	_Atomic uint32_t n_prompt;
	_Atomic uint32_t tokenized; /* 1: prompt ids are complete */
	uint8_t pad2[56];
	/* npu-worker's line. */
	_Atomic uint32_t
		n_kv; /* positions whose KV is complete; logits in `row` are for token n_kv */
	_Atomic uint32_t n_pages;
	_Atomic uint32_t row;	   /* logits row + 1; 0: none */
	_Atomic uint32_t worker;   /* incarnation entry to come back to */
	_Atomic uint32_t n_cached; /* prompt positions that came from the prefix cache */
	/* 1: while the slot is with the sampler, `worker` may be computing the step behind n_kv:
	 * it writes the next position's KV and the other logits row. */
	_Atomic uint32_t ahead;
	_Atomic uint64_t first_us, last_us; /* CLOCK_MONOTONIC of the first and last logits */
	_Atomic uint64_t began_us;	    /* when an npu-worker took it first */
	uint8_t pad4[16];
	/* Sampler's line. */
	_Atomic uint32_t n_tokens; /* generated and committed; what is below is immutable */
	_Atomic uint32_t n_out;	   /* bytes released */
	_Atomic uint32_t n_scored; /* prompt positions with a log-probability record */
	/* enum body_finish; stored before the last n_tokens, so it counts only once the slot has
	 * gone on from STAGE_SAMPLE to RECLAIM or DONE. */
	_Atomic uint32_t finish;
	_Atomic int32_t stop_id;    /* token that ended it, -1: none */
	_Atomic int32_t stop_index; /* stop string that ended it, -1: none */
	_Atomic uint32_t sampler;   /* incarnation entry to come back to */
	uint8_t pad5[36];
	/* Failure: by the owner, before it passes the slot on. */
	_Atomic uint32_t fail_code; /* enum svc_code; 0: none */
	uint32_t fail_len;
	char fail_param[56];
	char fail_msg[256];
	/* Recovery: by who takes over. */
	_Atomic uint32_t deaths;     /* without progress */
	_Atomic uint32_t death_mark; /* n_kv + n_tokens at the last death */
	_Atomic uint32_t takeovers;
	uint8_t pad6[52];
};
_Static_assert(offsetof(struct body, regions) == SHM_LINE, "identity line");
_Static_assert(offsetof(struct body, params) == 3 * SHM_LINE, "regions: 96 bytes and padding");
_Static_assert(offsetof(struct body, n_prompt) == 5 * SHM_LINE, "tokenizer line");
_Static_assert(offsetof(struct body, n_kv) == 6 * SHM_LINE, "worker line");
_Static_assert(offsetof(struct body, n_tokens) == 7 * SHM_LINE, "sampler line");
_Static_assert(offsetof(struct body, fail_code) == 8 * SHM_LINE, "failure lines");
_Static_assert(offsetof(struct body, deaths) == 13 * SHM_LINE, "recovery line");
_Static_assert(sizeof(struct body) == 14 * SHM_LINE, "header");

/* ---- KV pages and logits rows
 * -------------------------------------------------------------------------- */

#define PAGE_POSITIONS 64u

/* A page's word, changed only by compare-and-swap: mask of holding npu-workers 16 bits (bit =
 * incarnation entry), a count of changes 20, generation 28, which grows when a free page is taken.
 * Mask 0: free. */
#define PAGE_MASK_BITS	 16u
#define PAGE_CHANGE_BITS 20u

struct page_word {
	_Atomic uint64_t word;
};

/* What a full page holds (shm/prefix.h). Written by a worker that holds it; `sealed` last. */
struct page_seal {
	_Atomic uint64_t sealed; /* the page's generation when it was sealed; 0: not sealed */
	_Atomic uint64_t key_low, key_high;
	_Atomic uint64_t checksum; /* XXH3-64 of the page */
	_Atomic uint64_t used_us;  /* CLOCK_MONOTONIC, for eviction */
	uint8_t pad[24];
};
_Static_assert(sizeof(struct page_seal) == SHM_LINE, "one line");

/* A row's word, changed only by compare-and-swap: slot index + 1 in 16 bits, a count of changes 16,
 * number of the npu-worker's incarnation that writes it 32. Slot 0: free. */
struct row_word {
	_Atomic uint64_t word;
};

/* ---- trace
 * -------------------------------------------------------------------------------------------------
 */

/* A span of work on one token of one slot (shm/trace.h). */
enum trace_kind {
	TRACE_NONE,
	TRACE_TOKENIZE, /* text to ids */
	TRACE_PREFILL,	/* a step, for a sequence that gets no logits from it */
	TRACE_STEP,	/* a step, for a sequence that gets logits */
	TRACE_DRAW,	/* the sampler's turn */
	TRACE_SEND,	/* the gateway makes the event */
	TRACE_KIND_COUNT
};

#define TRACE_RING_RECORDS 511u

/* Written by the ring's process; `number` last, its place in the ring + 1. */
struct trace_record {
	_Atomic uint64_t number;
	_Atomic uint64_t start_ns, took_ns; /* CLOCK_MONOTONIC */
	_Atomic uint64_t where;		    /* kind 8 bits, slot 24, position 32 */
};

/* One for every incarnation's entry. */
struct trace_ring {
	_Atomic uint64_t next;
	uint8_t pad[24];
	struct trace_record records[TRACE_RING_RECORDS];
};
_Static_assert(sizeof(struct trace_ring) % SHM_LINE == 0, "lines, one writer");

/* ---- control segment
 * ------------------------------------------------------------------------------------- */

#define CTL_NAME_BYTES 128u

/* Written by the keeper that creates the run, before the segment gets its name; constant
 * afterwards. */
struct ctl_config {
	uint32_t n_slots;  /* running sequences */
	uint32_t n_table;  /* slot lines: running + queued + finished */
	uint32_t n_blocks; /* body blocks */
	uint32_t n_pages;  /* KV pages */
	uint32_t ctx;	   /* positions of one sequence */
	uint32_t n_vocab;
	uint64_t page_bytes;
	uint64_t model_hash[2]; /* XXH3-128 of the model file */
	uint64_t family_hash;
	uint8_t secret[32];  /* key of event ids */
	uint64_t created_us; /* CLOCK_REALTIME */
	uint32_t stall_ms;
	uint32_t n_embd; /* width of a hidden state */
	uint32_t reserved[4];
	char family[32];
	char model_name[CTL_NAME_BYTES]; /* as served */
	char model_path[512];
	char fingerprint[64]; /* system_fingerprint */
};

/* Instances with a larger number are counted with the last one. */
#define CTL_INSTANCES 32u

#define RECOVERY_BUCKETS 15u

struct ctl_counters {
	_Atomic uint64_t next_incarnation;
	_Atomic uint64_t next_ticket;
	_Atomic uint64_t next_generation;
	_Atomic uint64_t epoch; /* grows with every registration */
	_Atomic uint64_t deaths, stalls, takeovers, fenced_writes;
	/* Starts of each instance; restarts = starts - 1. */
	_Atomic uint32_t starts[ROLE_COUNT][CTL_INSTANCES];
	_Atomic uint64_t trace_until_ns; /* CLOCK_MONOTONIC; by who traces */
	/* By who takes over (shm/recovery.h): sum and histogram. */
	_Atomic uint64_t recovery_us;
	_Atomic uint64_t recoveries[RECOVERY_BUCKETS];
	_Atomic uint64_t reserved[7];
};
_Static_assert(sizeof(struct ctl_counters) % SHM_LINE == 0, "lines, any writer");

/* Requests of one API key over all gateways: entries are taken by compare-and-swap of account from
 * 0, by linear search from account % CTL_ACCOUNTS, and stay for the life of the run. */
#define CTL_ACCOUNTS 1024u

struct ctl_account {
	_Atomic uint64_t account; /* hash of the key's name */
	/* CLOCK_MONOTONIC at which the bucket of requests is full again (gateway/gw_account.c). */
	_Atomic uint64_t full_us;
};

/* Followed by these tables, each at the beginning of a line: slot lines [n_table], block words
 * [n_blocks], page words [n_pages], row words [2 * n_slots], page seals [n_pages], trace rings
 * [INC_COUNT], bells [INC_COUNT][n_table / BELL_LINE_SLOTS, rounded up]. */
struct ctl {
	struct seg_header header;
	struct ctl_config config;
	uint8_t pad[SHM_LINE - sizeof(struct ctl_config) % SHM_LINE];
	struct ctl_counters counters;
	struct inc_entry incs[INC_COUNT];
	struct ctl_account accounts[CTL_ACCOUNTS];
};
_Static_assert(offsetof(struct ctl, counters) % SHM_LINE == 0, "lines");
_Static_assert(offsetof(struct ctl, incs) % SHM_LINE == 0, "lines");
_Static_assert(sizeof(struct ctl) % SHM_LINE == 0, "lines");
