/* tests/xrt/softnpu/product.h: the software NPU's arithmetic: the families a16-v1 and b16-v1 as
 * docs/arithmetic.md states them, over the packed weights as docs/engine.md lays them out. It
 * shares no code with the engine. */
#pragma once
#include <stddef.h>
#include <stdint.h>

enum { PRODUCT_MAGIC = 0x504e534c, PRODUCT_WORDS = 12 };

/* An instruction stream, word by word. Offsets are bytes. */
struct product_words {
	uint32_t magic, operation, type, rows, cols, tokens;
	uint32_t weights_low, weights_high; /* in argument 0 */
	uint32_t steps, sums;		    /* in argument 1; the codes are at 0 */
	uint32_t stride;		    /* floats between two tokens' outputs */
	uint32_t output;		    /* in argument 2 */
};

/* Bytes of the packed matrix; 0: this device has no such type. */
size_t product_weight_bytes(const struct product_words *w);
/* weights, acts, output: where the three arguments begin, the offsets not yet added. */
void product_run(const struct product_words *w, const uint8_t *weights, const uint8_t *acts,
		 uint8_t *output);
/* The same in b16-v1: acts are floats [tokens][cols], rounded to bfloat16 already. */
void product_run_b16(const struct product_words *w, const uint8_t *weights, const uint8_t *acts,
		     uint8_t *output);
