/* tests/fuzz/replay_main.c: runs a fuzz target over every file of the given folders, so that a
 * compiler without libFuzzer still checks the corpora. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path)
{
	FILE *file = fopen(path, "rb");
	if (!file)
		return 0;
	static uint8_t buffer[1 << 22];
	size_t size = fread(buffer, 1, sizeof buffer, file);
	fclose(file);
	/* An exact-size copy, so that a sanitizer sees every read past the end. */
	uint8_t *copy = malloc(size ? size : 1);
	if (!copy)
		return 0;
	for (size_t i = 0; i < size; i++)
		copy[i] = buffer[i];
	LLVMFuzzerTestOneInput(copy, size);
	free(copy);
	return 1;
}

int main(int argc, char **argv)
{
	int inputs = 0;
	for (int i = 1; i < argc; i++) {
		DIR *dir = opendir(argv[i]);
		if (!dir) {
			fprintf(stderr, "%s: cannot open the corpus\n", argv[i]);
			return 1;
		}
		for (struct dirent *entry; (entry = readdir(dir));) {
			char path[4096];
			if (entry->d_name[0] == '.')
				continue;
			snprintf(path, sizeof path, "%s/%s", argv[i], entry->d_name);
			inputs += replay_file(path);
		}
		closedir(dir);
	}
	printf("%d inputs\n", inputs);
	return inputs ? 0 : 1;
}
