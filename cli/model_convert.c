/* lockstep model convert SOURCE TARGET: GGUF to Q4NX, Q4NX or safetensors to GGUF or Q4NX. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/model_private.h"
#include "cli/progress.h"
#include "model/convert.h"
#include "model/folder.h"
#include "tokenizer/tok_write.h"

static enum q4nx_answer answer(const struct opt_set *options, const char *name, const char *first)
{
	const char *word = opt_string(options, name);
	if (strcmp(word, "auto") == 0)
		return Q4NX_UNKNOWN;
	return strcmp(word, first) == 0 ? Q4NX_FIRST : Q4NX_SECOND;
}

/* For other programs; this one reads metadata.gguf. So a vocabulary that has no such form is no
 * error. */
static enum svc_code write_tokenizer(const char *source, const char *folder, struct svc_err *err)
{
	enum svc_code code = tok_write_folder(source, folder, err);
	if (code != SVC_UNSUPPORTED && code != SVC_BAD_MODEL)
		return code;
	fprintf(stderr, "no tokenizer.json: %s\n", err->msg);
	return SVC_OK;
}

enum svc_code model_convert(const struct opt_set *options, const char *source, const char *target,
			    struct svc_err *err)
{
	size_t length = strlen(target);
	bool to_gguf = length > 5 && strcmp(target + length - 5, ".gguf") == 0;
	if (!length)
		return svc_fail(err, SVC_USAGE, __func__,
				"convert needs a target: a name ending in .gguf, or a folder for "
				"Q4NX");
	if (to_gguf && !folder_is(source))
		return svc_fail(err, SVC_USAGE, __func__,
				"%s is no folder; a GGUF file is converted to a Q4NX folder: name "
				"a target without .gguf",
				source);
	struct progress bar = progress_start("converting");
	struct convert_result result = {0};
	const struct convert_options how = {
		.hints = {answer(options, "q8", "a"), answer(options, "scales", "group")},
		.policy = strcmp(opt_string(options, "quantise"), "q4") == 0 ? Q4NX_FOUR_BITS
									     : Q4NX_FINE,
		.progress = {progress_show, &bar},
		.write_tokenizer = write_tokenizer};
	enum svc_code code = to_gguf ? convert_to_gguf(source, target, &how, &result, err)
				     : convert_to_q4nx(source, target, &how, &result, err);
	progress_end(&bar);
	if (code != SVC_OK)
		return code;
	printf("%s: %zu tensors, %" PRIu64 " bytes", target, result.n_tensors, result.bytes);
	if (result.n_kept)
		printf(" (%zu tensors kept from an interrupted run)", result.n_kept);
	printf("\n");
	return SVC_OK;
}
