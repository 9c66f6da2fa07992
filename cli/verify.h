/* cli/verify.h: `lockstep verify VERB`: options and printing; the measuring is in verify/. */
#pragma once
#include "cli/cli.h"
#include "verify/rig.h"

/* Exit statuses of an instrument that ran: what it looked for is the same, or isn't. (64 and above:
 * it couldn't run.) */
enum { VERIFY_SAME = 0, VERIFY_DIFFERENT = 1 };

int verify_floats(int argc, char **argv);
int verify_capture(int argc, char **argv);
int verify_replay(int argc, char **argv);
int verify_compare(int argc, char **argv);
int verify_diverge(int argc, char **argv);
int verify_ladder(int argc, char **argv);
int verify_sweep(int argc, char **argv);
int verify_histogram(int argc, char **argv);
int verify_prefill(int argc, char **argv);
int verify_same_prefix(int argc, char **argv);
int verify_greedy(int argc, char **argv);
int verify_attribution(int argc, char **argv);
int verify_tape(int argc, char **argv);
int verify_rope(int argc, char **argv);
int verify_tensors(int argc, char **argv);

/* Where: the worker's options of the same names (docs/npu.md). */
/* clang-format off */
#define VERIFY_DEVICE_OPTIONS \
	{"device", OPT_CHOICE, "host", 0, 0, "host|xrt|auto", \
	 "xrt: on an NPU that no worker is using; auto is host here"}, \
	{"kernels", OPT_STRING, "", 0, 0, NULL, "folder of NPU kernels"}, \
	{"xrt-module", OPT_STRING, "", 0, 0, NULL, \
	 "liblockstep-xrt.so, if it isn't beside the program"}, \
	{"device-limit-ms", OPT_INT, "5000", 100, 600000, NULL, \
	 "an NPU that takes longer for one dispatch has failed"}
/* clang-format on */

/* How a pass is run: --model, --family, --isa, --threads, --ctx, --chunk, --neighbours, and where.
 */
extern const struct opt verify_engine_options[];
/* What is run: --prompt, --chat, --ids. */
extern const struct opt verify_prompt_options[];

/* SVC_USAGE if there is no --model. Strings are borrowed from options. */
SVC_CHECKED enum svc_code verify_read_config(const struct opt_set *options,
					     struct vfy_config *ret_config, struct svc_err *err);
/* The ids of the one of --prompt, --chat and --ids that is given; the caller frees *ret_ids. */
SVC_CHECKED enum svc_code verify_read_prompt(const struct opt_set *options, const char *model,
					     int32_t **ret_ids, uint32_t *ret_count,
					     struct svc_err *err);
/* "3" or "1-5" or "all" (0 to UINT32_MAX). */
SVC_CHECKED enum svc_code verify_read_range(const char *name, const char *text, uint32_t *ret_first,
					    uint32_t *ret_last, struct svc_err *err);
