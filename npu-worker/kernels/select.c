/* Which form runs: by name, checked against what the CPU and the operating system offer. */
#include <cpuid.h>
#include <string.h>

#include "base/buf.h"
#include "npu-worker/kernels/forms.h"

enum feature {
	HAVE_AVX2 = 1 << 0,
	HAVE_FMA = 1 << 1,
	HAVE_F16C = 1 << 2,
	HAVE_AVX512F = 1 << 3,
	HAVE_AVX512BW = 1 << 4,
	HAVE_AVX512VL = 1 << 5,
	HAVE_AVX512DQ = 1 << 6,
	HAVE_AVX512VNNI = 1 << 7,
	HAVE_AVXVNNI = 1 << 8,
};

static const struct {
	unsigned feature;
	const char *name;
} FEATURES[] = {
	{HAVE_AVX2, "avx2"},	     {HAVE_FMA, "fma"},
	{HAVE_F16C, "f16c"},	     {HAVE_AVX512F, "avx512f"},
	{HAVE_AVX512BW, "avx512bw"}, {HAVE_AVX512VL, "avx512vl"},
	{HAVE_AVX512DQ, "avx512dq"}, {HAVE_AVX512VNNI, "avx512_vnni"},
	{HAVE_AVXVNNI, "avx_vnni"},
};

enum {
	NEED_AVX2 = HAVE_AVX2 | HAVE_FMA | HAVE_F16C,
	NEED_AVX512 = NEED_AVX2 | HAVE_AVX512F | HAVE_AVX512BW | HAVE_AVX512VL | HAVE_AVX512DQ,
};

/* Best first: "auto" takes the first that runs, and so does a name that neighbours share. */
static const struct form {
	const char *name;
	const struct kernels *kernels;
	unsigned needs;
} FORMS[] = {
	{"avx512", &kernels_avx512_vnni, NEED_AVX512 | HAVE_AVX512VNNI},
	{"avx512", &kernels_avx512, NEED_AVX512},
	{"avx2", &kernels_avx2_vnni, NEED_AVX2 | HAVE_AVXVNNI},
	{"avx2", &kernels_avx2, NEED_AVX2},
	{"scalar", &kernels_scalar, 0},
};
enum { FORM_COUNT = sizeof FORMS / sizeof FORMS[0] };

/* The register state that the operating system saves: XCR0. Its halves' bits 1-2 stand for SSE and
 * AVX, 5-7 for AVX-512. */
static unsigned saved_state(void)
{
	unsigned low, high;
	__asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	return low;
}

enum { AVX_VNNI_BIT = 1 << 4 }; /* of EAX in leaf 7.1; the compilers disagree on its name */

static unsigned cpu_features(void)
{
	unsigned a, b, c, d, found = 0;
	if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
		return 0;
	unsigned saved = saved_state();
	if ((saved & 0x06) != 0x06)
		return 0;
	found |= c & bit_FMA ? HAVE_FMA : 0;
	found |= c & bit_F16C ? HAVE_F16C : 0;
	if (!__get_cpuid_count(7, 0, &a, &b, &c, &d))
		return found;
	unsigned more = 0, most_leaf = a;
	if (most_leaf >= 1 && __get_cpuid_count(7, 1, &more, &a, &a, &a))
		found |= more & AVX_VNNI_BIT ? HAVE_AVXVNNI : 0;
	found |= b & bit_AVX2 ? HAVE_AVX2 : 0;
	if ((saved & 0xe0) != 0xe0)
		return found;
	found |= b & bit_AVX512F ? HAVE_AVX512F : 0;
	found |= b & bit_AVX512BW ? HAVE_AVX512BW : 0;
	found |= b & bit_AVX512VL ? HAVE_AVX512VL : 0;
	found |= b & bit_AVX512DQ ? HAVE_AVX512DQ : 0;
	found |= c & bit_AVX512VNNI ? HAVE_AVX512VNNI : 0;
	return found;
}

static enum svc_code fail_unknown(const char *name, struct svc_err *err)
{
	struct buf names = {.ptr = NULL};
	for (size_t i = 0; i < FORM_COUNT; i++) {
		if (i == 0 || strcmp(FORMS[i].name, FORMS[i - 1].name) != 0)
			buf_print(&names, " %s", FORMS[i].name);
	}
	enum svc_code code = svc_fail_param(err, SVC_BAD_CONFIG, "isa",
					    "isa: no kernels named %s; there are auto%s", name,
					    names.failed ? "" : names.ptr);
	buf_free(&names);
	return code;
}

static enum svc_code fail_missing(const char *name, unsigned missing, unsigned features,
				  struct svc_err *err)
{
	struct buf text = {.ptr = NULL};
	for (size_t i = 0; i < sizeof FEATURES / sizeof FEATURES[0]; i++) {
		if (missing & FEATURES[i].feature)
			buf_print(&text, " %s", FEATURES[i].name);
	}
	buf_print(&text, "; it can run auto");
	for (size_t i = 0; i < FORM_COUNT; i++) {
		if ((FORMS[i].needs & ~features) == 0)
			buf_print(&text, " %s", FORMS[i].name);
	}
	enum svc_code code = svc_fail_param(err, SVC_BAD_CONFIG, "isa",
					    "isa: %s needs CPU features that this one lacks:%s",
					    name, text.failed ? "" : text.ptr);
	buf_free(&text);
	return code;
}

enum svc_code kernels_select(const char *name, const struct kernels **ret_kernels,
			     struct svc_err *err)
{
	unsigned features = cpu_features(), missing = 0;
	bool known = false;
	for (size_t i = 0; i < FORM_COUNT; i++) {
		const struct form *form = &FORMS[i];
		if (strcmp(name, "auto") != 0 && strcmp(name, form->name) != 0)
			continue;
		known = true;
		missing = form->needs & ~features;
		if (missing)
			continue;
		*ret_kernels = form->kernels;
		return SVC_OK;
	}
	return known ? fail_missing(name, missing, features, err) : fail_unknown(name, err);
}

const struct kernels *kernels_form(size_t index, bool *ret_runs)
{
	if (index >= FORM_COUNT)
		return NULL;
	*ret_runs = (FORMS[index].needs & ~cpu_features()) == 0;
	return FORMS[index].kernels;
}
