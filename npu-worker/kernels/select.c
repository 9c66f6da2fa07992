/* Which form runs: by name, checked against what the CPU and the operating system offer, and proven
 * on one small product. */
#include <cpuid.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/log.h"
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
	HAVE_AMX_TILE = 1 << 9,
	HAVE_AMX_INT8 = 1 << 10,
	HAVE_TILE_PERMISSION = 1 << 11, /* of no CPU: asked for when all else is there */
};

static const struct {
	unsigned feature;
	const char *name;
} FEATURES[] = {
	{HAVE_AVX2, "avx2"},	     {HAVE_FMA, "fma"},
	{HAVE_F16C, "f16c"},	     {HAVE_AVX512F, "avx512f"},
	{HAVE_AVX512BW, "avx512bw"}, {HAVE_AVX512VL, "avx512vl"},
	{HAVE_AVX512DQ, "avx512dq"}, {HAVE_AVX512VNNI, "avx512_vnni"},
	{HAVE_AVXVNNI, "avx_vnni"},  {HAVE_AMX_TILE, "amx_tile"},
	{HAVE_AMX_INT8, "amx_int8"}, {HAVE_TILE_PERMISSION, "Linux' permission for tiles"},
};

enum {
	NEED_AVX2 = HAVE_AVX2 | HAVE_FMA | HAVE_F16C,
	NEED_AVX512 = NEED_AVX2 | HAVE_AVX512F | HAVE_AVX512BW | HAVE_AVX512VL | HAVE_AVX512DQ,
	NEED_AMX = NEED_AVX512 | HAVE_AVX512VNNI | HAVE_AMX_TILE | HAVE_AMX_INT8 |
		   HAVE_TILE_PERMISSION,
};

/* Best first: "auto" takes the first that runs, and so does a name that neighbours share. */
static const struct form {
	const char *name;
	const struct kernels *kernels;
	unsigned needs;
} FORMS[] = {
	{"amx", &kernels_amx, NEED_AMX},
	{"avx512", &kernels_avx512_vnni, NEED_AVX512 | HAVE_AVX512VNNI},
	{"avx512", &kernels_avx512, NEED_AVX512},
	{"avx2", &kernels_avx2_vnni, NEED_AVX2 | HAVE_AVXVNNI},
	{"avx2", &kernels_avx2, NEED_AVX2},
	{"scalar", &kernels_scalar, 0},
};
enum { FORM_COUNT = sizeof FORMS / sizeof FORMS[0] };

/* Of XCR0, the register state that the operating system saves. */
enum { SAVES_AVX = 0x6, SAVES_AVX512 = 0xe0, SAVES_TILES = 0x60000 };

static unsigned saved_state(void)
{
	unsigned low, high;
	__asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	return low;
}

/* Of EAX in leaf 7.1, and of EDX in leaf 7.0; the compilers disagree on the names. */
enum { AVX_VNNI_BIT = 1 << 4, AMX_TILE_BIT = 1 << 24, AMX_INT8_BIT = 1 << 25 };

/* Tiles of 16 rows of 64 bytes. Some virtual machines show tiles in leaf 7 and have none. */
static bool has_tile_palette(void)
{
	enum { TILES_LEAF = 0x1d };
	unsigned palettes, a, b, c, d;
	return __get_cpuid_count(TILES_LEAF, 0, &palettes, &b, &c, &d) && palettes >= 1 &&
	       __get_cpuid_count(TILES_LEAF, 1, &a, &b, &c, &d) && (b & 0xffff) == 64 &&
	       b >> 16 >= 8 && (c & 0xffff) == 16;
}

/* Of leaf 7.0: what needs more registers than AVX. */
static unsigned large_features(unsigned saved, unsigned b, unsigned c, unsigned d)
{
	unsigned found = 0;
	if ((saved & SAVES_AVX512) != SAVES_AVX512)
		return found;
	found |= b & bit_AVX512F ? HAVE_AVX512F : 0;
	found |= b & bit_AVX512BW ? HAVE_AVX512BW : 0;
	found |= b & bit_AVX512VL ? HAVE_AVX512VL : 0;
	found |= b & bit_AVX512DQ ? HAVE_AVX512DQ : 0;
	found |= c & bit_AVX512VNNI ? HAVE_AVX512VNNI : 0;
	if ((saved & SAVES_TILES) != SAVES_TILES)
		return found;
	found |= d & AMX_TILE_BIT && has_tile_palette() ? HAVE_AMX_TILE : 0;
	found |= d & AMX_INT8_BIT ? HAVE_AMX_INT8 : 0;
	return found;
}

static unsigned cpu_features(void)
{
	unsigned a, b, c, d, found = 0;
	if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
		return 0;
	unsigned saved = saved_state();
	if ((saved & SAVES_AVX) != SAVES_AVX)
		return 0;
	found |= c & bit_FMA ? HAVE_FMA : 0;
	found |= c & bit_F16C ? HAVE_F16C : 0;
	if (!__get_cpuid_count(7, 0, &a, &b, &c, &d))
		return found;
	unsigned more = 0, none;
	if (a >= 1 && __get_cpuid_count(7, 1, &more, &none, &none, &none))
		found |= more & AVX_VNNI_BIT ? HAVE_AVXVNNI : 0;
	found |= b & bit_AVX2 ? HAVE_AVX2 : 0;
	return found | large_features(saved, b, c, d);
}

/* Linux gives a process' threads tiles only on demand, as their state is large; for good, and for
 * threads to come. Refused by kernels before 5.16, by some sandboxes, and where a thread's
 * alternate signal stack would not hold that state. */
static bool permit_tiles(void)
{
	enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 }; /* ARCH_REQ_XCOMP_PERM */
	return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

struct kernels_machine kernels_machine(void)
{
	return (struct kernels_machine){cpu_features(), permit_tiles, kernels_proven};
}

/* What a form needs and the machine lacks. */
static unsigned missing_features(const struct form *form, const struct kernels_machine *machine)
{
	unsigned missing = form->needs & ~machine->features & ~(unsigned)HAVE_TILE_PERMISSION;
	if (missing == 0 && form->needs & HAVE_TILE_PERMISSION && !machine->permit_tiles())
		missing = HAVE_TILE_PERMISSION;
	return missing;
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

static enum svc_code fail_missing(const char *name, unsigned missing,
				  const struct kernels_machine *machine, struct svc_err *err)
{
	struct buf text = {.ptr = NULL};
	const char *separator = "";
	for (size_t i = 0; i < sizeof FEATURES / sizeof FEATURES[0]; i++) {
		if (missing & FEATURES[i].feature) {
			buf_print(&text, "%s %s", separator, FEATURES[i].name);
			separator = ",";
		}
	}
	buf_print(&text, "; it can run auto");
	for (size_t i = 0; i < FORM_COUNT; i++) {
		if (missing_features(&FORMS[i], machine) == 0)
			buf_print(&text, " %s", FORMS[i].name);
	}
	enum svc_code code = svc_fail_param(err, SVC_BAD_CONFIG, "isa",
					    "isa: %s needs what this machine lacks:%s", name,
					    text.failed ? "" : text.ptr);
	buf_free(&text);
	return code;
}

/* `auto` goes on to the next form. */
static enum svc_code fail_wrong(const char *name, struct svc_err *err)
{
	log_warn("isa: %s computes other numbers here than the scalar form; it is not used", name);
	return svc_fail_param(err, SVC_BAD_CONFIG, "isa",
			      "isa: %s computes other numbers on this machine than the scalar "
			      "form; choose another, or auto",
			      name);
}

enum svc_code kernels_select_on(const struct kernels_machine *machine, const char *name,
				const struct kernels **ret_kernels, struct svc_err *err)
{
	const bool any = strcmp(name, "auto") == 0;
	unsigned missing = 0;
	enum svc_code code = SVC_OK;
	bool known = false;
	for (size_t i = 0; i < FORM_COUNT; i++) {
		const struct form *form = &FORMS[i];
		if (!any && strcmp(name, form->name) != 0)
			continue;
		known = true;
		missing = missing_features(form, machine);
		if (missing)
			continue;
		if (!machine->proven(form->kernels)) {
			code = fail_wrong(form->name, err);
			continue;
		}
		*ret_kernels = form->kernels;
		return SVC_OK;
	}
	if (code)
		return code;
	return known ? fail_missing(name, missing, machine, err) : fail_unknown(name, err);
}

enum svc_code kernels_select(const char *name, const struct kernels **ret_kernels,
			     struct svc_err *err)
{
	struct kernels_machine machine = kernels_machine();
	return kernels_select_on(&machine, name, ret_kernels, err);
}

const struct kernels *kernels_form(size_t index, bool *ret_runs)
{
	if (index >= FORM_COUNT)
		return NULL;
	struct kernels_machine machine = kernels_machine();
	*ret_runs = missing_features(&FORMS[index], &machine) == 0;
	return FORMS[index].kernels;
}
