#include "npu-worker/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <lz4frame.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/log.h"

#define MAGIC	      0x45474150564b534cull /* "LSKVPAGE" */
#define VERSION	      1u
#define SUFFIX	      ".kvpage"
#define STALE_S	      60 /* a temporary file this old is a dead writer's */
#define COMPLAIN_S    60
#define BEAT_FILES    64u
#define NAME_BYTES    48u
#define KEEP_OF_LIMIT 0.9 /* what is left after files were removed */

/* As it stands in a file, little-endian as everything here. */
struct file_header {
	uint64_t magic;
	uint32_t version, reserved;
	uint64_t page_bytes, frame_bytes;
	uint64_t key_low, key_high;
	uint64_t check_low, check_high; /* XXH3-128 of the page, seeded with the XXH3-64 of the
					   header with these two 0 */
};

struct store {
	struct store_options options;
	int dir_fd;
	uint8_t *file; /* [room] a file's bytes */
	size_t room;
	LZ4F_dctx *decoder;
	uint64_t known_bytes; /* of all files at the last look, and what was saved since */
	bool looked;
	time_t complained_s;
};

/* ---- one file */

static void name_of(struct prefix_key key, char name[NAME_BYTES])
{
	snprintf(name, NAME_BYTES, "%016" PRIx64 "%016" PRIx64 SUFFIX, key.high, key.low);
}

static XXH128_hash_t check_of(struct file_header header, const void *page, size_t page_bytes)
{
	header.check_low = header.check_high = 0;
	return XXH3_128bits_withSeed(page, page_bytes, XXH3_64bits(&header, sizeof header));
}

static bool decompress(struct store *store, const uint8_t *frame, size_t bytes, void *page)
{
	uint8_t *out = page;
	size_t room = store->options.page_bytes, more = 1;
	LZ4F_resetDecompressionContext(store->decoder);
	while (bytes > 0 && more != 0) {
		size_t wrote = room, read = bytes;
		more = LZ4F_decompress(store->decoder, out, &wrote, frame, &read, NULL);
		if (LZ4F_isError(more) || (wrote == 0 && read == 0))
			return false;
		out += wrote;
		room -= wrote;
		frame += read;
		bytes -= read;
	}
	return more == 0 && room == 0 && bytes == 0;
}

bool store_decode(struct store *store, const void *file, size_t bytes, struct prefix_key key,
		  void *page)
{
	struct file_header header;
	if (bytes < sizeof header)
		return false;
	memcpy(&header, file, sizeof header);
	if (header.magic != MAGIC || header.version != VERSION || header.key_low != key.low ||
	    header.key_high != key.high || header.page_bytes != store->options.page_bytes ||
	    header.frame_bytes != bytes - sizeof header ||
	    !decompress(store, (const uint8_t *)file + sizeof header, bytes - sizeof header, page))
		return false;
	XXH128_hash_t check = check_of(header, page, store->options.page_bytes);
	return check.low64 == header.check_low && check.high64 == header.check_high;
}

/* Into store->file; 0 if it can't be done. */
static size_t encode(struct store *store, struct prefix_key key, const void *page)
{
	size_t bytes = store->options.page_bytes;
	const LZ4F_preferences_t preferences = {
		.frameInfo = {.blockSizeID = LZ4F_max4MB, .contentSize = bytes}};
	struct file_header header = {.magic = MAGIC,
				     .version = VERSION,
				     .page_bytes = bytes,
				     .key_low = key.low,
				     .key_high = key.high};
	size_t frame = LZ4F_compressFrame(store->file + sizeof header, store->room - sizeof header,
					  page, bytes, &preferences);
	if (LZ4F_isError(frame))
		return 0;
	header.frame_bytes = frame;
	XXH128_hash_t check = check_of(header, page, bytes);
	header.check_low = check.low64;
	header.check_high = check.high64;
	memcpy(store->file, &header, sizeof header);
	return sizeof header + frame;
}

static bool read_all(int fd, uint8_t *to, size_t bytes)
{
	while (bytes > 0) {
		ssize_t n = read(fd, to, bytes);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		to += n;
		bytes -= (size_t)n;
	}
	return true;
}

static bool write_all(int fd, const uint8_t *from, size_t bytes)
{
	while (bytes > 0) {
		ssize_t n = write(fd, from, bytes);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		from += n;
		bytes -= (size_t)n;
	}
	return true;
}

/* ---- the folder */

struct found {
	char name[NAME_BYTES];
	uint64_t bytes;
	struct timespec used;
};

static int by_use(const void *a, const void *b)
{
	const struct timespec *left = &((const struct found *)a)->used,
			      *right = &((const struct found *)b)->used;
	if (left->tv_sec != right->tv_sec)
		return left->tv_sec < right->tv_sec ? -1 : 1;
	return left->tv_nsec < right->tv_nsec ? -1 : left->tv_nsec > right->tv_nsec;
}

static bool is_page_name(const char *name)
{
	size_t hex = strspn(name, "0123456789abcdef");
	return hex == 32 && strcmp(name + hex, SUFFIX) == 0;
}

/* Own files only; what else lies there stays. false: no memory. */
static bool add_found(struct found **all, size_t *n, size_t *room, const char *name,
		      const struct stat *st)
{
	if (*n == *room) {
		size_t more = *room ? *room * 2 : 256;
		struct found *bigger = realloc(*all, more * sizeof *bigger);
		if (!bigger)
			return false;
		*all = bigger;
		*room = more;
	}
	struct found *found = &(*all)[(*n)++];
	memcpy(found->name, name, strlen(name) + 1);
	found->bytes = (uint64_t)st->st_size;
	found->used = st->st_mtim;
	return true;
}

static void remove_stale(struct store *store, const char *name, const struct stat *st)
{
	if (strncmp(name, ".saving-", 8) == 0 && time(NULL) - st->st_mtime > STALE_S)
		unlinkat(store->dir_fd, name, 0);
}

static struct found *look_through(struct store *store, size_t *ret_n)
{
	struct found *all = NULL;
	size_t room = 0;
	uint32_t seen = 0;
	int fd = openat(store->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	*ret_n = 0;
	if (!dir) {
		if (fd >= 0)
			close(fd);
		return NULL;
	}
	for (const struct dirent *entry; (entry = readdir(dir));) {
		struct stat st;
		if (seen++ % BEAT_FILES == 0 && store->options.beat)
			store->options.beat(store->options.context);
		if (fstatat(store->dir_fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
		    !S_ISREG(st.st_mode))
			continue;
		remove_stale(store, entry->d_name, &st);
		if (is_page_name(entry->d_name) &&
		    !add_found(&all, ret_n, &room, entry->d_name, &st))
			break;
	}
	closedir(dir);
	return all;
}

/* Room for `more` bytes: the longest unused files go, some more of them than need be, so that this
 * isn't done for every page. */
static void make_room(struct store *store, uint64_t more)
{
	uint64_t limit = store->options.limit_bytes, total = 0;
	size_t n = 0;
	if (store->looked && store->known_bytes + more <= limit)
		return;
	struct found *all = look_through(store, &n);
	for (size_t i = 0; i < n; i++)
		total += all[i].bytes;
	if (n)
		qsort(all, n, sizeof *all, by_use);
	uint64_t keep = total + more <= limit ? limit : (uint64_t)((double)limit * KEEP_OF_LIMIT);
	for (size_t i = 0; i < n && total + more > keep; i++) {
		unlinkat(store->dir_fd, all[i].name, 0);
		total -= all[i].bytes;
	}
	free(all);
	store->known_bytes = total;
	store->looked = true;
}

static void complain(struct store *store, const char *what)
{
	int error = errno;
	time_t now = time(NULL);
	if (now - store->complained_s < COMPLAIN_S)
		return;
	store->complained_s = now;
	log_warn("a KV page isn't kept on disk: %s in %s: %s", what, store->options.dir,
		 strerror(error));
}

void store_save(struct store *store, struct prefix_key key, const void *page)
{
	char name[NAME_BYTES], temporary[NAME_BYTES];
	name_of(key, name);
	if (faccessat(store->dir_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return;
	size_t bytes = encode(store, key, page);
	if (bytes == 0 || bytes > store->options.limit_bytes)
		return;
	make_room(store, bytes);
	snprintf(temporary, sizeof temporary, ".saving-%ld-%.16s", (long)getpid(), name);
	int fd = openat(store->dir_fd, temporary,
			O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0) {
		complain(store, "cannot create a file");
		return;
	}
	bool wrote = write_all(fd, store->file, bytes);
	if (!wrote)
		complain(store, "cannot write");
	wrote = close(fd) == 0 && wrote;
	if (wrote && renameat(store->dir_fd, temporary, store->dir_fd, name) == 0)
		store->known_bytes += bytes;
	else
		unlinkat(store->dir_fd, temporary, 0);
}

/* 0: it isn't there, or can't be one of ours. */
static size_t read_file(struct store *store, const char *name, bool *ret_there)
{
	struct stat st;
	int fd = openat(store->dir_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	*ret_there = fd >= 0;
	if (fd < 0)
		return 0;
	size_t bytes = 0;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0 &&
	    (uint64_t)st.st_size <= store->room && read_all(fd, store->file, (size_t)st.st_size))
		bytes = (size_t)st.st_size;
	/* Used now: what was used longest ago goes first. */
	futimens(fd, NULL);
	close(fd);
	return bytes;
}

bool store_load(struct store *store, struct prefix_key key, void *page)
{
	char name[NAME_BYTES];
	bool there = false;
	name_of(key, name);
	size_t bytes = read_file(store, name, &there);
	if (bytes && store_decode(store, store->file, bytes, key, page))
		return true;
	if (there) {
		log_warn("%s/%s is damaged: removed, its page is computed again",
			 store->options.dir, name);
		unlinkat(store->dir_fd, name, 0);
	}
	return false;
}

/* ---- open and close */

static enum svc_code open_dir(struct store *store, struct svc_err *err)
{
	const char *dir = store->options.dir;
	if (mkdir(dir, 0700) != 0 && errno != EEXIST) {
		int error = errno;
		return svc_fail_param(err, SVC_BAD_CONFIG, "disk-cache",
				      "--disk-cache: cannot make the folder %s: %s", dir,
				      strerror(error));
	}
	store->dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (store->dir_fd < 0 || faccessat(store->dir_fd, ".", R_OK | W_OK | X_OK, 0) != 0) {
		int error = errno;
		return svc_fail_param(err, SVC_BAD_CONFIG, "disk-cache",
				      "--disk-cache: cannot write to the folder %s: %s", dir,
				      strerror(error));
	}
	return SVC_OK;
}

enum svc_code store_open(const struct store_options *options, struct store **ret_store,
			 struct svc_err *err)
{
	struct store *store = calloc(1, sizeof *store);
	if (!store)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	store->options = *options;
	store->dir_fd = -1;
	enum svc_code code = open_dir(store, err);
	const LZ4F_preferences_t preferences = {.frameInfo = {.blockSizeID = LZ4F_max4MB}};
	store->room = sizeof(struct file_header) +
		      LZ4F_compressFrameBound(options->page_bytes, &preferences);
	store->file = malloc(store->room);
	if (code == SVC_OK && (!store->file || LZ4F_isError(LZ4F_createDecompressionContext(
						       &store->decoder, LZ4F_VERSION))))
		code = svc_fail(err, SVC_NO_MEMORY, __func__, "no memory for a page's file");
	if (code != SVC_OK) {
		store_close(store);
		return code;
	}
	*ret_store = store;
	return SVC_OK;
}

struct store *store_close(struct store *store)
{
	if (!store)
		return NULL;
	LZ4F_freeDecompressionContext(store->decoder);
	free(store->file);
	if (store->dir_fd >= 0)
		close(store->dir_fd);
	free(store);
	return NULL;
}
