/* The only process of the emulated machine (tests/emulated/run): runs each program that /tests
 * names, one after the other, and says how it ended. What they print goes to the serial line. */
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* The kernel's word on what it gives to programs. */
static void print_features(void)
{
	static char line[16384];
	FILE *file = fopen("/proc/cpuinfo", "r");
	while (file && fgets(line, sizeof line, file)) {
		if (strncmp(line, "model name", 10) == 0)
			fputs(line, stdout);
		for (char *word = strncmp(line, "flags", 5) == 0 ? strtok(line, " \n") : NULL; word;
		     word = strtok(NULL, " \n")) {
			if (strncmp(word, "avx512", 6) == 0 || strncmp(word, "amx", 3) == 0)
				printf("%s ", word);
		}
	}
	printf("\n");
	fflush(stdout);
}

static int run(char *program)
{
	pid_t child = fork();
	if (child == 0) {
		execl(program, program, NULL);
		perror(program);
		_exit(127);
	}
	int status = -1;
	waitpid(child, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(void)
{
	mkdir("/proc", 0755);
	mount("proc", "/proc", "proc", 0, NULL);
	print_features();
	char program[256];
	FILE *tests = fopen("/tests", "r");
	while (tests && fgets(program, sizeof program, tests)) {
		program[strcspn(program, "\n")] = 0;
		printf("emulated: %s begins\n", program);
		fflush(stdout);
		int status = run(program);
		printf("emulated: %s exited with %d\n", program, status);
		fflush(stdout);
	}
	printf("emulated: all done\n");
	fflush(stdout);
	for (;;)
		pause();
}
