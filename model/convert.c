#include "model/convert.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "model/convert_private.h"
#include "model/folder.h"
#include "model/gguf_write.h"
#include "model/open.h"

enum { PATH_BYTES = 4096 };

/* What a source is by size and time, so that a changed one isn't taken for the interrupted one. */
static uint64_t stamp_of(const char *path)
{
	struct stat stat_buf = {0};
	if (stat(path, &stat_buf) != 0)
		return 0;
	const int64_t marks[3] = {stat_buf.st_size, stat_buf.st_mtim.tv_sec,
				  stat_buf.st_mtim.tv_nsec};
	return XXH3_64bits(marks, sizeof marks);
}

enum svc_code convert_to_gguf(const char *folder, const char *target,
			      const struct convert_options *options,
			      struct convert_result *ret_result, struct svc_err *err)
{
	struct folder *source = NULL;
	size_t kept = 0;
	enum svc_code code = folder_open(folder, &options->hints, &source, err);
	if (code != SVC_OK)
		return code;
	const struct draft *draft = folder_draft(source);
	code = draft_write(draft, target, folder_stamp(source), &options->progress, &kept, err);
	if (code == SVC_OK)
		*ret_result = (struct convert_result){draft->total_bytes, draft->n, kept};
	folder_close(source);
	return code;
}

/* A small file of a folder that isn't whole yet. */
static enum svc_code write_file(const char *folder, const char *name, struct span text,
				struct svc_err *err)
{
	char path[PATH_BYTES + 64];
	snprintf(path, sizeof path, "%s/%s", folder, name);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
	if (fd < 0)
		return svc_fail_errno(err, "convert", "cannot create %s", path);
	for (size_t at = 0; at < text.len;) {
		ssize_t n = write(fd, text.ptr + at, text.len - at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			close(fd);
			return svc_fail_errno(err, "convert", "cannot write %s", path);
		}
		at += (size_t)n;
	}
	int failed = fsync(fd);
	close(fd);
	return failed ? svc_fail_errno(err, "convert", "cannot sync %s", path) : SVC_OK;
}

/* Copies a file of the source's folder if it is there. */
static enum svc_code copy_file(const char *from, const char *to, const char *name,
			       struct svc_err *err)
{
	char path[PATH_BYTES + 64], block[65536];
	struct buf text = {0};
	snprintf(path, sizeof path, "%s/%s", from, name);
	FILE *file = fopen(path, "rbe");
	if (!file)
		return SVC_OK;
	for (size_t n; (n = fread(block, 1, sizeof block, file)) > 0;)
		buf_append(&text, block, n);
	bool failed = ferror(file) != 0 || text.failed;
	fclose(file);
	enum svc_code code =
		failed ? svc_fail_errno(err, "convert", "cannot read %s", path)
		       : write_file(to, name, (struct span){text.ptr ? text.ptr : "", text.len},
				    err);
	buf_free(&text);
	return code;
}

/* Every key of the source: from it the GGUF file can be written back whole. */
static enum svc_code write_metadata(const struct gguf *gguf, const char *folder,
				    struct svc_err *err)
{
	struct gguf_writer writer = {.n_pairs = 0};
	struct buf head = {0};
	uint64_t none[1];
	gguf_put_all(&writer, gguf);
	gguf_write_head(&writer, NULL, 0, gguf_alignment(gguf), none, &head);
	enum svc_code code =
		head.failed ? svc_fail(err, SVC_NO_MEMORY, "convert", "no memory for the metadata")
			    : write_file(folder, "metadata.gguf", (struct span){head.ptr, head.len},
					 err);
	gguf_writer_free(&writer);
	buf_free(&head);
	return code;
}

enum svc_code convert_copy_tokenizer(const char *source, const char *folder, struct svc_err *err)
{
	static const char *const files[] = {"tokenizer.json",	       "tokenizer_config.json",
					    "special_tokens_map.json", "chat_template.jinja",
					    "chat_template.json",      "added_tokens.json"};
	enum svc_code code = SVC_OK;
	for (size_t i = 0; i < sizeof files / sizeof *files && code == SVC_OK; i++)
		code = copy_file(source, folder, files[i], err);
	return code;
}

static enum svc_code write_tokenizer(const char *source, const struct gguf *gguf,
				     const char *folder, const struct convert_options *options,
				     struct svc_err *err)
{
	struct gguf_array tokens;
	if (!gguf_array(gguf, "tokenizer.ggml.tokens", &tokens))
		return convert_copy_tokenizer(source, folder, err);
	enum svc_code code = write_metadata(gguf, folder, err);
	if (code == SVC_OK && options->write_tokenizer)
		code = options->write_tokenizer(source, folder, err);
	return code;
}

enum svc_code convert_write_configs(const struct hf_config *config, const char *folder,
				    struct svc_err *err)
{
	struct buf text = {0};
	hf_config_to_json(config, true, &text);
	enum svc_code code =
		text.failed
			? svc_fail(err, SVC_NO_MEMORY, "convert", "no memory for config.json")
			: write_file(folder, "config.json", (struct span){text.ptr, text.len}, err);
	buf_clear(&text);
	buf_print(&text, "{\n  \"eos_token_id\": [");
	for (uint32_t i = 0; i < config->n_ends; i++)
		buf_print(&text, "%s%lld", i ? ", " : "", (long long)config->ends[i]);
	buf_print(&text, "]\n}\n");
	if (code == SVC_OK && config->n_ends)
		code = write_file(folder, "generation_config.json",
				  (struct span){text.ptr, text.len}, err);
	buf_free(&text);
	return code;
}

static enum svc_code write_folder(const char *source, const struct gguf *gguf,
				  const struct hf_config *config, const char *partial,
				  const struct convert_options *options, struct svc_err *err)
{
	if (mkdir(partial, 0777) != 0 && errno != EEXIST)
		return svc_fail_errno(err, "convert", "cannot create %s", partial);
	enum svc_code code = convert_write_configs(config, partial, err);
	return code == SVC_OK ? write_tokenizer(source, gguf, partial, options, err) : code;
}

/* The weights come last: with them the folder is whole. */
static enum svc_code write_q4nx(const char *source, const struct gguf *gguf, const char *target,
				const struct convert_options *options,
				struct convert_result *ret_result, struct svc_err *err)
{
	static const struct hf_config none;
	struct hf_config config = none;
	struct draft draft = {.n = 0};
	char partial[PATH_BYTES + 16], weights[PATH_BYTES + 64];
	size_t kept = 0;
	snprintf(partial, sizeof partial, "%s.partial", target);
	snprintf(weights, sizeof weights, "%s/model.q4nx", partial);
	enum svc_code code = hf_config_from_gguf(gguf, &config, err);
	if (code == SVC_OK)
		code = q4nx_draft(gguf, &config, options->policy, &draft, err);
	if (code != SVC_OK)
		return code;
	code = write_folder(source, gguf, &config, partial, options, err);
	unlink(weights); /* whole, but its folder never got its name: another source, perhaps */
	if (code == SVC_OK)
		code = draft_write(&draft, weights, stamp_of(source), &options->progress, &kept,
				   err);
	if (code == SVC_OK && rename(partial, target) != 0)
		code = svc_fail_errno(err, "convert", "cannot rename %s to %s", partial, target);
	if (code == SVC_OK)
		*ret_result = (struct convert_result){draft.total_bytes, draft.n, kept};
	draft_free(&draft);
	return code;
}

enum svc_code convert_to_q4nx(const char *source, const char *target,
			      const struct convert_options *options,
			      struct convert_result *ret_result, struct svc_err *err)
{
	struct gguf *gguf = NULL;
	if (strlen(target) >= PATH_BYTES || strlen(source) >= PATH_BYTES)
		return svc_fail(err, SVC_BAD_CONFIG, __func__, "a path is longer than %d bytes",
				PATH_BYTES);
	if (access(target, F_OK) == 0)
		return svc_fail(err, SVC_BAD_CONFIG, __func__,
				"%s is there already; name another folder or remove it", target);
	enum svc_code code = model_open(source, NULL, &gguf, err);
	if (code == SVC_OK)
		code = write_q4nx(source, gguf, target, options, ret_result, err);
	gguf_close(gguf);
	return code;
}
