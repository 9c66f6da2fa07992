#include "gateway/models.h"

#include <fcntl.h>
#include <unistd.h>

/* The file while it is read. */
struct reading {
	const char *path;
	unsigned line;
	struct svc_err *err;
	struct span folder; /* with '/' at its end; empty: none */
	struct gw_model_list *list;
	/* Of aliases: what they stand for, and where that is said. */
	char targets[GW_MODELS_MAX][GW_MODEL_NAME_BYTES];
	unsigned lines[GW_MODELS_MAX];
};

#define wrong(reading, format, ...)                                                          \
	svc_fail_param((reading)->err, SVC_BAD_CONFIG, "models-file", "%s line %u: " format, \
		       (reading)->path, (reading)->line, ##__VA_ARGS__)

static enum svc_code name_read(const struct reading *reading, struct span word,
			       char name[GW_MODEL_NAME_BYTES])
{
	static const char plain[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.@:/+-";
	bool good = word.len > 0 && word.len < GW_MODEL_NAME_BYTES;
	for (size_t i = 0; good && i < word.len; i++)
		good = memchr(plain, word.ptr[i], sizeof plain - 1) != NULL;
	if (!good)
		return wrong(reading,
			     "a model's name must have 1 to %u letters, digits or characters of "
			     "_.@:/+-",
			     GW_MODEL_NAME_BYTES - 1);
	memcpy(name, word.ptr, word.len);
	name[word.len] = 0;
	return SVC_OK;
}

/* The index of a run's directory, added if it is new. */
static enum svc_code run_read(const struct reading *reading, struct span word, uint32_t *ret_run)
{
	struct gw_model_list *list = reading->list;
	struct buf dir = {.limit = GW_MODEL_DIR_BYTES};
	uint32_t run = 0;
	enum svc_code code = SVC_OK;
	while (word.len > 1 && word.ptr[word.len - 1] == '/')
		word.len--;
	if (word.ptr[0] != '/')
		buf_span(&dir, reading->folder);
	buf_span(&dir, word);
	if (dir.failed || dir.len >= GW_MODEL_DIR_BYTES || memchr(word.ptr, 0, word.len))
		code = wrong(reading, "the run directory must have less than %u bytes",
			     GW_MODEL_DIR_BYTES);
	while (code == SVC_OK && run < list->n_runs && strcmp(list->runs[run], dir.ptr) != 0)
		run++;
	if (code == SVC_OK && run == GW_MODEL_RUNS_MAX)
		code = wrong(reading, "more than %u run directories", GW_MODEL_RUNS_MAX);
	if (code == SVC_OK && run == list->n_runs)
		memcpy(list->runs[list->n_runs++], dir.ptr, dir.len + 1);
	buf_free(&dir);
	*ret_run = run;
	return code;
}

static const struct gw_model_entry *find_exactly(const struct gw_model_list *list, struct span name)
{
	for (uint32_t i = 0; i < list->n; i++)
		if (span_is(name, list->entries[i].name))
			return &list->entries[i];
	return NULL;
}

static enum svc_code line_read(struct reading *reading, struct span line)
{
	struct gw_model_list *list = reading->list;
	struct gw_model_entry entry = {.name = "*"};
	struct span name = span_word(&line), what = span_word(&line), more = span_word(&line);
	if (list->n == GW_MODELS_MAX)
		return wrong(reading, "more than %u models", GW_MODELS_MAX);
	entry.alias = span_is(what, "=");
	enum svc_code code =
		span_is(name, "*") && entry.alias ? SVC_OK : name_read(reading, name, entry.name);
	if (code == SVC_OK && find_exactly(list, name))
		code = wrong(reading, "%s stands on an earlier line already", entry.name);
	if (code == SVC_OK && what.len == 0)
		code = wrong(reading, "behind %s stands its run directory, or = and another name",
			     entry.name);
	if (code == SVC_OK && entry.alias)
		code = name_read(reading, more, reading->targets[list->n]);
	else if (code == SVC_OK)
		code = run_read(reading, what, &entry.run);
	entry.unlisted = !entry.alias && span_is(more, "unlisted");
	if (code == SVC_OK &&
	    ((!entry.alias && more.len && !entry.unlisted) || span_word(&line).len))
		code = wrong(reading, "only the word \"unlisted\" may stand behind the directory");
	reading->lines[list->n] = reading->line;
	if (code == SVC_OK)
		list->entries[list->n++] = entry;
	return code;
}

/* One alias of another would need an order. */
static enum svc_code aliases_resolve(struct reading *reading)
{
	struct gw_model_list *list = reading->list;
	for (uint32_t i = 0; i < list->n; i++) {
		struct gw_model_entry *entry = &list->entries[i];
		const struct gw_model_entry *target =
			entry->alias ? find_exactly(list, span_of(reading->targets[i])) : entry;
		reading->line = reading->lines[i];
		if (!target || (entry->alias && target->alias))
			return wrong(reading, "%s = %s: the file has no model of that name",
				     entry->name, reading->targets[i]);
		entry->run = target->run;
		entry->unlisted = target->unlisted;
	}
	return gw_models_first(list) ? SVC_OK : wrong(reading, "no model is listed in it");
}

static enum svc_code lines_read(struct reading *reading, struct span text)
{
	enum svc_code code = SVC_OK;
	while (text.len && code == SVC_OK) {
		const char *end = memchr(text.ptr, '\n', text.len);
		struct span line = {text.ptr, end ? (size_t)(end - text.ptr) : text.len};
		size_t used = line.len + (end ? 1 : 0);
		text = (struct span){text.ptr + used, text.len - used};
		reading->line++;
		if (line.len && line.ptr[line.len - 1] == '\r')
			line.len--;
		struct span rest = line, word = span_word(&rest);
		if (word.len && word.ptr[0] != '#')
			code = line_read(reading, line);
	}
	return code == SVC_OK ? aliases_resolve(reading) : code;
}

enum svc_code gw_models_read(struct span text, const char *path, struct gw_model_list *ret_list,
			     struct svc_err *err)
{
	const char *slash = strrchr(path, '/');
	struct gw_model_list *list = ret_list;
	*list = (struct gw_model_list){0};
	struct reading reading = {.path = path,
				  .err = err,
				  .folder = {path, slash ? (size_t)(slash - path) + 1 : 0},
				  .list = list};
	return lines_read(&reading, text);
}

enum svc_code gw_models_load(const char *path, struct gw_model_list *ret_list, struct svc_err *err)
{
	static char text[GW_MODEL_FILE_MAX + 1];
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof text);
	enum svc_code code = SVC_OK;
	if (len < 0)
		code = svc_fail_errno(err, __func__, "cannot read --models-file %s", path);
	else if (len > (ssize_t)GW_MODEL_FILE_MAX)
		code = svc_fail_param(err, SVC_BAD_CONFIG, "models-file",
				      "%s has more than %u bytes", path, GW_MODEL_FILE_MAX);
	if (fd >= 0)
		close(fd);
	if (code == SVC_OK)
		code = gw_models_read((struct span){text, (size_t)len}, path, ret_list, err);
	return code;
}

const struct gw_model_entry *gw_models_find(const struct gw_model_list *list, struct span name)
{
	const struct gw_model_entry *found = span_is(name, "*") ? NULL : find_exactly(list, name);
	return found ? found : find_exactly(list, span_of("*"));
}

const struct gw_model_entry *gw_models_first(const struct gw_model_list *list)
{
	for (uint32_t i = 0; i < list->n; i++)
		if (!list->entries[i].alias && !list->entries[i].unlisted)
			return &list->entries[i];
	return NULL;
}

void gw_models_names_print(const struct gw_model_list *list, struct buf *out)
{
	const char *between = "";
	for (uint32_t i = 0; i < list->n; i++) {
		if (list->entries[i].unlisted || strcmp(list->entries[i].name, "*") == 0)
			continue;
		buf_print(out, "%s%s", between, list->entries[i].name);
		between = ", ";
	}
}
