#include "npu-worker/pace.h"

/* A step that carries prompt positions beside generation may take this many times the time of one
 * without, so that running streams hardly notice a long prompt. */
#define BUSY_FACTOR   2.5
#define ROWS_BUSY_MIN 4u
/* But one step of so many may take as long as LONG_US, if no prompt is left waiting behind it:
 * that is less than one gap in a hundred of a stream, and who asks something short needn't wait
 * for many small steps. */
#define LONG_EVERY 128u
#define LONG_US	   400000.0

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static bool may_be_long(const struct pace *pace, const struct pace_question *question)
{
	return pace->smooth_left == 0 && question->waiting <= question->most_alone &&
	       question->waiting * pace->row_us <= LONG_US;
}

uint32_t pace_rows(struct pace *pace, const struct pace_question *question)
{
	pace->is_long = false;
	if (!question->busy)
		return question->most_alone;
	if (pace->row_us <= 0 || pace->decode_us <= 0)
		return question->most_busy;
	double rows = (BUSY_FACTOR - 1) * pace->decode_us / pace->row_us;
	uint32_t smooth = rows < ROWS_BUSY_MIN	       ? ROWS_BUSY_MIN
			  : rows > question->most_busy ? question->most_busy
						       : (uint32_t)rows;
	smooth = least(smooth, question->most_busy);
	pace->is_long = question->waiting > smooth && may_be_long(pace, question);
	return pace->is_long ? question->waiting : smooth;
}

/* A machine that stood still for a while teaches little. */
static void average(double *value, double sample)
{
	if (*value > 0 && sample > 2 * *value)
		sample = 2 * *value;
	*value = *value > 0 ? *value + (sample - *value) / 8 : sample;
}

void pace_step_over(struct pace *pace, bool busy)
{
	if (!busy)
		pace->smooth_left = 0; /* nobody saw it who will see the next */
	else if (pace->is_long)
		pace->smooth_left = LONG_EVERY;
	else if (pace->smooth_left)
		pace->smooth_left--;
	pace->is_long = false;
}

void pace_learn(struct pace *pace, uint32_t n_decode, uint32_t n_prompt, double us)
{
	if (n_prompt == 0)
		average(&pace->decode_us, us);
	else if (n_decode == 0 && n_prompt >= 16)
		average(&pace->row_us, us / n_prompt);
	/* A long prompt's positions get dearer, so a mixed step teaches too. */
	else if (pace->decode_us > 0 && us > pace->decode_us)
		average(&pace->row_us, (us - pace->decode_us) / n_prompt);
}
