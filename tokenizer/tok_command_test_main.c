/* tokenizer/tok_command_test_main.c: `lockstep-tok-test tokenize …` for the tests of the tokenizer
 * alone. */
#include <stdio.h>

#include "tokenizer/tokenizer.h"

int main(int argc, char **argv)
{
	if (argc < 2) {
		fputs("usage: lockstep-tok-test tokenize|detokenize ...\n", stderr);
		return 64;
	}
	return tok_command_main(argc - 1, argv + 1);
}
