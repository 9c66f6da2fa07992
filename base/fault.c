#include "base/fault.h"

#ifdef LOCKSTEP_FAULTS
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_POINTS 16

/* Used by one thread, the process's loop. */
static struct point {
	char where[48], action[16];
	unsigned long nth, seen;
	bool again;
} points[MAX_POINTS];
static int n_points = -1;

static void parse(void)
{
	const char *text = getenv("LOCKSTEP_FAULT");
	n_points = 0;
	while (text && *text && n_points < MAX_POINTS) {
		struct point *point = &points[n_points];
		size_t where = strcspn(text, ":,");
		if (text[where] != ':')
			break;
		size_t action = strcspn(text + where + 1, "@%,");
		if (where < sizeof point->where && action < sizeof point->action) {
			memcpy(point->where, text, where);
			memcpy(point->action, text + where + 1, action);
			const char *at = text + where + 1 + action;
			point->again = *at == '%';
			point->nth = *at == '@' || *at == '%' ? strtoul(at + 1, NULL, 10) : 1;
			n_points++;
		}
		text += strcspn(text, ",");
		text += *text == ',';
	}
}

static bool is_due(struct point *point)
{
	point->seen++;
	return point->again ? point->nth && point->seen % point->nth == 0
			    : point->seen == point->nth;
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
	while (strcmp(action, "hang") == 0)
		pause();
}

void fault_point(const char *where)
{
	if (n_points < 0)
		parse();
	for (int i = 0; i < n_points; i++)
		if (strcmp(points[i].where, where) == 0 && is_due(&points[i]))
			act(points[i].action);
}

bool fault_hit(const char *where, const char *action)
{
	if (n_points < 0)
		parse();
	for (int i = 0; i < n_points; i++)
		if (strcmp(points[i].where, where) == 0 && strcmp(points[i].action, action) == 0 &&
		    is_due(&points[i]))
			return true;
	return false;
}
#else
typedef int fault_is_not_compiled_in;
#endif
