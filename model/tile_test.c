/* Tiles: a bijection for any bytes, against the layout in other words; the meanings of the codes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/f16.h"
#include "model/tile.h"

static uint64_t state;

static uint64_t draw(void)
{
	uint64_t z = (state += 0x9e3779b97f4a7c15u);
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

static int seed(void **unused)
{
	const char *given = getenv("LOCKSTEP_SEED");
	(void)unused;
	state = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
	print_message("LOCKSTEP_SEED=%llu\n", (unsigned long long)state);
	return 0;
}

static void fill(uint8_t *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		bytes[i] = (uint8_t)draw();
}

static void test_any_bytes_come_back(void **unused)
{
	static const enum tile_form forms[] = {TILE_A, TILE_B, TILE_C, TILE_D, TILE_Q8A, TILE_Q8B};
	uint8_t bytes[TILE_MAX_BYTES], back[TILE_MAX_BYTES];
	struct tile tile;
	(void)unused;
	for (int round = 0; round < 200; round++) {
		for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
			size_t size = tile_form_bytes(forms[f]);
			fill(bytes, size);
			memset(back, 0xAA, sizeof back);
			tile_read(forms[f], bytes, &tile);
			tile_write(forms[f], &tile, back);
			assert_memory_equal(bytes, back, size);
		}
	}
}

/* The same layout in another's words: 16 regions of 256 bytes, region h*8 + g, in it byte 8*j +
 * (r % 16) / 2 for column j of group g. */
static void test_nibbles_lie_in_regions(void **unused)
{
	uint8_t bytes[TILE_Q4_BYTES];
	struct tile tile;
	(void)unused;
	fill(bytes, sizeof bytes);
	tile_read(TILE_A, bytes, &tile);
	for (uint32_t r = 0; r < 32; r++) {
		for (uint32_t c = 0; c < 256; c++) {
			uint32_t region = r / 16 * 8 + c / 32;
			uint8_t byte = bytes[1024 + region * 256 + c % 32 * 8 + r % 16 / 2];
			assert_int_equal(tile.q[r][c], r % 2 ? byte >> 4 : byte & 15);
		}
	}
}

static void test_scales_lie_by_group_or_by_row(void **unused)
{
	uint8_t bytes[TILE_Q4_BYTES];
	uint16_t words[512];
	struct tile by_group, by_row;
	(void)unused;
	fill(bytes, sizeof bytes);
	memcpy(words, bytes, sizeof words);
	tile_read(TILE_B, bytes, &by_group);
	tile_read(TILE_D, bytes, &by_row);
	for (uint32_t r = 0; r < 32; r++) {
		for (uint32_t g = 0; g < 8; g++) {
			assert_int_equal(by_group.d[g][r], words[g * 32 + r]);
			assert_int_equal(by_group.m[g][r], words[256 + g * 32 + r]);
			assert_int_equal(by_row.d[g][r], words[r * 8 + g]);
		}
	}
}

static void test_bytes_of_the_two_8_bit_layouts(void **unused)
{
	uint8_t bytes[TILE_Q8_BYTES];
	struct tile a, b;
	(void)unused;
	fill(bytes, sizeof bytes);
	tile_read(TILE_Q8A, bytes, &a);
	tile_read(TILE_Q8B, bytes, &b);
	for (uint32_t r = 0; r < 32; r++) {
		for (uint32_t c = 0; c < 256; c++) {
			/* (c/32)*512 + (c%32)*16 is c*16. */
			uint32_t at = r / 16 * 4096 + c / 32 * 512 + c % 32 * 16 + r % 16;
			assert_int_equal(a.q[r][c], bytes[512 + at]);
			assert_int_equal(b.q[r][c], bytes[512 + c * 32 + r]);
		}
	}
}

static void test_values(void **unused)
{
	static struct tile tile;
	(void)unused;
	tile.d[1][3] = bf16_from_f32(0.5f);
	tile.m[1][3] = bf16_from_f32(3.0f);
	tile.q[3][40] = 13;
	assert_true(tile_value(TILE_A, &tile, 3, 40) == 9.5f);	 /* 0.5 * 13 + 3 */
	assert_true(tile_value(TILE_C, &tile, 3, 40) == 5.0f);	 /* 0.5 * (13 - 3) */
	assert_true(tile_value(TILE_B, &tile, 3, 40) == -1.5f);	 /* 13 is -3 */
	assert_true(tile_value(TILE_Q8A, &tile, 3, 40) == 6.5f); /* an int8 of 13 */
	tile.q[3][40] = 0xFF;
	assert_true(tile_value(TILE_Q8B, &tile, 3, 40) == -0.5f);
	assert_true(tile_value(TILE_A, &tile, 0, 0) == 0.0f);
}

static void test_q4k_becomes_a(void **unused)
{
	uint8_t bytes[TILE_Q4K_BYTES] = {0};
	struct tile tile;
	uint16_t s = bf16_from_f32(0.25f), m = bf16_from_f32(-0.5f);
	(void)unused;
	bytes[2 * 32 + 5] = 6;		       /* scale of group 2, row 5 */
	bytes[256 + 2 * 32 + 5] = 3;	       /* offset */
	bytes[512 + 70 * 16 + 5 / 2] = 9 << 4; /* column 70, an odd row: high nibble */
	memcpy(bytes + 4608 + 2 * 5, &s, 2);
	memcpy(bytes + 4672 + 2 * 5, &m, 2);
	tile_read(TILE_Q4K, bytes, &tile);
	assert_true(tile_value(TILE_A, &tile, 5, 70) == 0.25f * 6 * 9 - 0.5f * 3);
}

static void test_no_offset(void **unused)
{
	uint8_t bytes[TILE_Q4_BYTES];
	(void)unused;
	fill(bytes, sizeof bytes);
	memset(bytes + 512, 0, 512);
	assert_true(tile_has_no_offset(bytes));
	bytes[512 + 7] = 0x80; /* -0 */
	assert_true(tile_has_no_offset(bytes));
	bytes[512 + 6] = 1;
	assert_false(tile_has_no_offset(bytes));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_any_bytes_come_back),
		cmocka_unit_test(test_nibbles_lie_in_regions),
		cmocka_unit_test(test_scales_lie_by_group_or_by_row),
		cmocka_unit_test(test_bytes_of_the_two_8_bit_layouts),
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_q4k_becomes_a),
		cmocka_unit_test(test_no_offset),
	};
	return cmocka_run_group_tests(tests, seed, NULL);
}
