#include "model/open.h"

#include <sys/mman.h>

#include <xxhash.h>

#include "model/folder.h"

static enum svc_code reserve(const struct draft *draft, uint8_t **ret, struct svc_err *err)
{
	void *memory = mmap(NULL, draft->total_bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED)
		return svc_fail_errno(err, "model_open", "cannot map %llu bytes",
				      (unsigned long long)draft->total_bytes);
	*ret = memory;
	return SVC_OK;
}

/* The folder's GGUF file in memory; without weights if not with_data. */
static enum svc_code open_folder(const char *path, bool with_data,
				 const struct draft_progress *progress, uint64_t *ret_hash,
				 struct gguf **ret_gguf, struct svc_err *err)
{
	struct folder *folder = NULL;
	uint8_t *memory = NULL;
	enum svc_code code = folder_open(path, NULL, &folder, err);
	if (code != SVC_OK)
		return code;
	const struct draft *draft = folder_draft(folder);
	struct draft head = *draft;
	head.n = with_data ? draft->n : 0;
	if (ret_hash)
		code = draft_hash(draft, progress, ret_hash, err);
	if (code == SVC_OK)
		code = reserve(draft, &memory, err);
	if (code == SVC_OK)
		code = draft_fill(&head, memory, progress, err);
	if (code == SVC_OK)
		code = gguf_open_take(memory, draft->total_bytes, path, ret_gguf, err);
	else if (memory)
		munmap(memory, draft->total_bytes);
	folder_close(folder);
	return code;
}

enum svc_code model_open(const char *path, const struct draft_progress *progress,
			 struct gguf **ret_gguf, struct svc_err *err)
{
	if (!folder_is(path))
		return gguf_open(path, ret_gguf, err);
	return open_folder(path, true, progress, NULL, ret_gguf, err);
}

enum svc_code model_open_head(const char *path, struct gguf **ret_gguf, uint64_t ret_hash[2],
			      struct svc_err *err)
{
	if (folder_is(path))
		return open_folder(path, false, NULL, ret_hash, ret_gguf, err);
	enum svc_code code = gguf_open(path, ret_gguf, err);
	if (code == SVC_OK && ret_hash) {
		struct span bytes = gguf_bytes(*ret_gguf);
		XXH128_hash_t hash = XXH3_128bits(bytes.ptr, bytes.len);
		ret_hash[0] = hash.high64;
		ret_hash[1] = hash.low64;
	}
	return code;
}
