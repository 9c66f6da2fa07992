#include "services/fault.h"

#ifdef LOCKSTEP_FAULTS
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_POINTS 16

static struct {
	char where[48], action[16];
	unsigned long nth, seen;
} points[MAX_POINTS];
static int n_points = -1;

static void parse(void)
{
	const char *text = getenv("LOCKSTEP_FAULT");
	n_points = 0;
	while (text && *text && n_points < MAX_POINTS) {
		size_t where = strcspn(text, ":,"), action = 0;
		if (text[where] != ':')
			break;
		action = strcspn(text + where + 1, "@,");
		if (where < sizeof points[0].where && action < sizeof points[0].action) {
			memcpy(points[n_points].where, text, where);
			memcpy(points[n_points].action, text + where + 1, action);
			const char *at = text + where + 1 + action;
			points[n_points].nth = *at == '@' ? strtoul(at + 1, NULL, 10) : 1;
			n_points++;
		}
		text += strcspn(text, ",");
		text += *text == ',';
	}
}

static void act(const char *action)
{
	if (strcmp(action, "kill") == 0)
		raise(SIGKILL);
	else if (strcmp(action, "abort") == 0)
		abort();
	else if (strcmp(action, "stop") == 0)
		raise(SIGSTOP);
	else if (strcmp(action, "sleep") == 0)
		usleep(200000);
	else if (strcmp(action, "exit") == 0)
		_exit(70);
}

void fault_point(const char *where)
{
	if (n_points < 0)
		parse();
	for (int i = 0; i < n_points; i++)
		if (strcmp(points[i].where, where) == 0 &&
		    (++points[i].seen == points[i].nth || points[i].nth == 0))
			act(points[i].action);
}
#else
typedef int fault_is_not_compiled_in;
#endif
