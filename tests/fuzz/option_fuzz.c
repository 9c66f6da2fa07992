/* tests/fuzz/option_fuzz.c: any bytes as a lockstep.conf. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "services/option.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct opt options[] = {
	{"config", OPT_STRING, "", 0, 0, NULL, "file"},
	{"slots", OPT_INT, "8", 1, 256, NULL, "sequences"},
	{"ratio", OPT_REAL, "0.5", 0, 1, NULL, "share"},
	{"strict", OPT_BOOL, "false", 0, 0, NULL, "refuse"},
	{"level", OPT_CHOICE, "info", 0, 0, "error|info", "lines"},
	{"name", OPT_STRING, "", 0, 0, NULL, "text"},
	{0},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static FILE *null;
	char path[64], program[] = "program", flag[] = "--config", *argv[] = {program, flag, path};
	const struct opt_source source = {"program", "does something", {options}, false};
	struct opt_set *set;
	enum opt_action action;
	struct svc_err err;
	int fd = memfd_create("conf", MFD_CLOEXEC);
	if (!null)
		null = fopen("/dev/null", "w");
	if (fd < 0 || !null)
		abort();
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	if (write(fd, data, size) == (ssize_t)size &&
	    opt_parse(&source, 3, argv, &set, &action, &err) == SVC_OK) {
		int64_t slots = opt_int(set, "slots");
		double ratio = opt_real(set, "ratio");
		if (slots < 1 || slots > 256 || !(ratio >= 0 && ratio <= 1))
			abort();
		opt_print_config(set, null);
		opt_free(set);
	}
	close(fd);
	return 0;
}
