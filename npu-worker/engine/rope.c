#include "npu-worker/engine/rope.h"

#include <math.h>

#include "npu-worker/engine/dmath.h"

static const double pi = 0x1.921fb54442d18p1;

static const struct {
	const char *name;
	uint32_t type;
} type_names[] = {
	{"default", ROPE_DEFAULT}, {"linear", ROPE_LINEAR}, {"llama3", ROPE_LLAMA3},
	{"dynamic", ROPE_DYNAMIC}, {"yarn", ROPE_YARN},	    {"longrope", ROPE_LONGROPE},
	{"none", ROPE_DEFAULT},	   {"su", ROPE_LONGROPE},
};
enum { TYPE_NAMES = sizeof type_names / sizeof type_names[0] };

bool rope_type_parse(struct span name, uint32_t *ret_type)
{
	for (unsigned i = 0; i < TYPE_NAMES; i++) {
		if (span_is(name, type_names[i].name)) {
			*ret_type = type_names[i].type;
			return true;
		}
	}
	return false;
}

const char *rope_type_name(uint32_t type)
{
	return type <= ROPE_LONGROPE ? type_names[type].name : "?";
}

/* theta^(2j/dims): exponent and power are each rounded to float32. */
static float power(double theta, uint32_t j, uint32_t dims)
{
	float exponent = (float)(2 * j) / (float)dims;
	return (float)dm_pow((double)(float)theta, (double)exponent);
}

static float llama3_scale(const struct rope_config *config, float inv_freq)
{
	float low_wavelength = (float)(config->original_ctx / config->low_freq_factor);
	float high_wavelength = (float)(config->original_ctx / config->high_freq_factor);
	float wavelength = (float)(2.0 * pi) / inv_freq;
	if (wavelength > low_wavelength)
		return inv_freq / (float)config->factor;
	if (wavelength < high_wavelength)
		return inv_freq;
	float smooth = ((float)config->original_ctx / wavelength - (float)config->low_freq_factor) /
		       (float)(config->high_freq_factor - config->low_freq_factor);
	return (1.0f - smooth) * inv_freq / (float)config->factor + smooth * inv_freq;
}

/* The pair index at which a wave turns `rotations` times within the original context. */
static double yarn_dim(const struct rope_config *config, double rotations)
{
	double dims = (double)config->dims;
	return dims * dm_log(config->original_ctx / (rotations * 2.0 * pi)) /
	       (2.0 * dm_log(config->theta));
}

static void yarn_inv_freq(const struct rope_config *config, float *inv_freq)
{
	double low = fmax(floor(yarn_dim(config, config->beta_fast)), 0.0);
	double high = fmin(ceil(yarn_dim(config, config->beta_slow)), (double)config->dims - 1.0);
	if (low == high)
		high += 0.001;
	for (uint32_t j = 0; j < config->dims / 2; j++) {
		float ramp = ((float)j - (float)low) / (float)(high - low);
		ramp = ramp < 0.0f ? 0.0f : ramp > 1.0f ? 1.0f : ramp;
		float extrapolated = 1.0f - ramp;
		float base = power(config->theta, j, config->dims);
		float slow = 1.0f / ((float)config->factor * base);
		float fast = 1.0f / base;
		inv_freq[j] = slow * (1.0f - extrapolated) + fast * extrapolated;
	}
}

/* NTK scaling: the base grows with the context beyond the trained one. */
static double dynamic_theta(const struct rope_config *config, uint32_t ctx)
{
	double length = fmax((double)ctx, config->original_ctx);
	double growth = config->factor * length / config->original_ctx - (config->factor - 1.0);
	double dims = (double)config->dims;
	return config->theta * dm_pow(growth, dims / (dims - 2.0));
}

static float attention_factor(const struct rope_config *config)
{
	if (config->type != ROPE_YARN && config->type != ROPE_LONGROPE)
		return 1.0f;
	if (config->attention_factor > 0.0)
		return (float)config->attention_factor;
	double factor =
		config->factor > 0.0 ? config->factor : config->trained_ctx / config->original_ctx;
	if (factor <= 1.0)
		return 1.0f;
	if (config->type == ROPE_YARN)
		return (float)(0.1 * dm_log(factor) + 1.0);
	return (float)sqrt(1.0 + dm_log(factor) / dm_log(config->original_ctx));
}

float rope_inv_freq(const struct rope_config *config, uint32_t ctx, const float *divisors,
		    float *ret_inv_freq)
{
	double theta = config->type == ROPE_DYNAMIC ? dynamic_theta(config, ctx) : config->theta;
	if (config->type == ROPE_YARN)
		yarn_inv_freq(config, ret_inv_freq);
	for (uint32_t j = 0; j < config->dims / 2 && config->type != ROPE_YARN; j++) {
		float base = power(theta, j, config->dims);
		if (config->type == ROPE_LONGROPE && divisors)
			base = divisors[j] * base;
		float inv_freq = 1.0f / base;
		if (config->type == ROPE_LINEAR)
			inv_freq /= (float)config->factor;
		if (config->type == ROPE_LLAMA3)
			inv_freq = llama3_scale(config, inv_freq);
		if (config->type != ROPE_LONGROPE && divisors)
			inv_freq /= divisors[j];
		ret_inv_freq[j] = inv_freq;
	}
	return attention_factor(config);
}

void rope_row(const float *inv_freq, uint32_t pairs, float factor, uint32_t position,
	      float *ret_row)
{
	for (uint32_t j = 0; j < pairs; j++) {
		float angle = inv_freq[j] * (float)position;
		double sine, cosine;
		dm_sincos((double)angle, &sine, &cosine);
		ret_row[j] = (float)cosine * factor;
		ret_row[pairs + j] = (float)sine * factor;
	}
}
