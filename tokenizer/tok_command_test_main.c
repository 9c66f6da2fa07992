/* tokenizer/tok_command_test_main.c: `lockstep-tok-test tokenize …` for the tests of the tokenizer
 * alone, and `lockstep-tok-test write SOURCE FOLDER`. */
#include <stdio.h>
#include <string.h>

#include "tokenizer/tok_write.h"

int main(int argc, char **argv)
{
	struct svc_err err;
	if (argc == 4 && strcmp(argv[1], "write") == 0) {
		if (tok_write_folder(argv[2], argv[3], &err) == SVC_OK)
			return 0;
		fprintf(stderr, "%s\n", err.msg);
		return 1;
	}
	if (argc < 2) {
		fputs("usage: lockstep-tok-test tokenize|detokenize|write ...\n", stderr);
		return 64;
	}
	return tok_command_main(argc - 1, argv + 1);
}
