/* A pack into a Q4NX folder: pack_import of pack.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/convert_private.h"
#include "model/folder.h"
#include "model/pack_private.h"

enum { PATH_BYTES = 4096 };

/* The weights under their name in the unfinished folder, held against the pack, and the folder
 * readable as one. */
static enum svc_code write_weights(const struct pack *pack, const char *partial,
				   const struct pack_options *options, struct pack_result *result,
				   struct svc_err *err)
{
	char weights[PATH_BYTES + 64];
	struct draft draft;
	struct folder *folder = NULL;
	size_t kept = 0;
	snprintf(weights, sizeof weights, "%s/model.q4nx", partial);
	unlink(weights); /* whole, but its folder never got its name: of another pack, perhaps */
	enum svc_code code = pack_draft(pack, &draft, err);
	if (code != SVC_OK)
		return code;
	code = draft_write(&draft, weights, pack->stamp, &options->writing, &kept, err);
	result->bytes = draft.total_bytes;
	result->n_kept = kept;
	draft_free(&draft);
	if (code == SVC_OK)
		code = pack_check(pack, weights, &options->checking, &result->counts, err);
	if (code == SVC_OK)
		code = folder_open(partial, NULL, &folder, err);
	folder_close(folder);
	return code;
}

enum svc_code pack_import(const char *source, const char *target,
			  const struct pack_options *options, struct pack_result *ret_result,
			  struct svc_err *err)
{
	char partial[PATH_BYTES + 16];
	struct pack *pack = NULL;
	struct pack_result result = {.bytes = 0};
	if (strlen(target) >= PATH_BYTES)
		return svc_fail(err, SVC_BAD_CONFIG, __func__, "a path is longer than %d bytes",
				PATH_BYTES);
	if (access(target, F_OK) == 0)
		return svc_fail(err, SVC_BAD_CONFIG, __func__,
				"%s is there already; name another folder or remove it", target);
	snprintf(partial, sizeof partial, "%s.partial", target);
	enum svc_code code = pack_open(source, &pack, err);
	if (code == SVC_OK && mkdir(partial, 0777) != 0 && errno != EEXIST)
		code = svc_fail_errno(err, __func__, "cannot create %s", partial);
	if (code == SVC_OK)
		code = convert_write_configs(&pack->config, partial, err);
	if (code == SVC_OK)
		code = convert_copy_tokenizer(source, partial, err);
	if (code == SVC_OK)
		code = write_weights(pack, partial, options, &result, err);
	if (code == SVC_OK && rename(partial, target) != 0)
		code = svc_fail_errno(err, __func__, "cannot rename %s to %s", partial, target);
	if (code == SVC_OK)
		*ret_result = result;
	pack_close(pack);
	return code;
}
