#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "tokenizer/tokenizer.h"

static const struct cli_command commands[] = {
	{"status", "the processes, their state, slots and queue", cli_status},
	{"generate", "one answer to one prompt", cli_generate},
	{"chat", "a conversation in the terminal", cli_chat},
	{"health", "exit status 0 if an instance of a role is alive and ready", cli_health},
	{"tokenize", "text to token ids, offline", tok_command_main},
	{"detokenize", "token ids to text, offline", tok_command_main},
	{"reload", "every process reads its configuration again", cli_reload},
	{"restart", "restarts a role's instances, one after the other", cli_restart},
	{"trace", "where a token's time goes: a table, a file for a timeline viewer", cli_trace},
	{"bench", "tokens per second, in process or through a server", cli_bench},
	{"model", "list, fetch, inspect, verify or convert models", cli_model},
	{"verify", "where and why two executions differ", cli_verify},
};

static int usage(FILE *out)
{
	fprintf(out, "usage: lockstep COMMAND [options]\n\n");
	for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
		fprintf(out, "  %-12s %s\n", commands[i].name, commands[i].summary);
	fprintf(out, "\nlockstep COMMAND --help tells the options of one command.\n");
	return out == stdout ? 0 : 64;
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return usage(stderr);
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
	    strcmp(argv[1], "help") == 0)
		return usage(stdout);
	if (strcmp(argv[1], "--version") == 0)
		return printf("lockstep %s\n", LOCKSTEP_VERSION) < 0;
	for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
		if (strcmp(argv[1], commands[i].name) == 0)
			return commands[i].run(argc - 1, argv + 1);
	fprintf(stderr, "lockstep: unknown command \"%.64s\"\n\n", argv[1]);
	return usage(stderr);
}
