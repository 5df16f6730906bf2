/* points.c - see points.h. */
#include "points.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#define LIST_MAX 2048
#define RARE_MAX 256

static struct { char name[100], where[150]; } list[LIST_MAX];
static struct { char point[100]; unsigned line; } rare[RARE_MAX];
static unsigned nlist, nrare;

static FILE *open_or_say(const char *path)
{
	FILE *f = fopen(path, "r");

	if (!f)
		printf("%s: %s\n", path, strerror(errno));
	return f;
}

static int load_list(const char *path)
{
	FILE *f = open_or_say(path);
	char line[300];

	while (f && nlist < LIST_MAX && fgets(line, sizeof(line), f))
		nlist += sscanf(line, "%99s %149s", list[nlist].name, list[nlist].where) == 2;
	if (f)
		fclose(f);
	return f && nlist ? 0 : -1;
}

static int load_rare(const char *path)
{
	FILE *f = open_or_say(path);
	char line[400];
	int r = f ? 0 : -1;

	for (unsigned n = 1; f && nrare < RARE_MAX && fgets(line, sizeof(line), f); n++) {
		char *colon = strstr(line, ": ");

		if (line[0] == '#' || line[0] == '\n')
			continue;
		if (!colon || colon - line >= (long)sizeof(rare[0].point) || strlen(colon) < 8) {
			printf("%s:%u: POINT: reason\n", path, n);
			r = -1;
			continue;
		}
		snprintf(rare[nrare].point, sizeof(rare[0].point), "%.*s", (int)(colon - line), line);
		rare[nrare++].line = n;
	}
	if (f)
		fclose(f);
	return r;
}

int points_load(const char *list_path, const char *rare_path)
{
	return load_list(list_path) < 0 || load_rare(rare_path) < 0 ? -1 : 0;
}

bool points_rare(const char *point)
{
	char name[100];

	snprintf(name, sizeof(name), "%.*s", (int)strcspn(point, "+"), point);
	for (unsigned i = 0; i < nrare; i++)
		if (!fnmatch(rare[i].point, name, 0))
			return true;
	return false;
}

static bool is_in(const char *where, const char *const *rooms)
{
	for (; *rooms; rooms++)
		if (!strncmp(where, *rooms, strlen(*rooms)))
			return true;
	return false;
}

unsigned points_missing(const char *const *rooms, bool (*met)(const char *name))
{
	unsigned missing = 0;

	for (unsigned i = 0; i < nlist; i++)
		if (is_in(list[i].where, rooms) && !met(list[i].name) && !points_rare(list[i].name)) {
			printf("%s (%s): never met; if that has a reason, it belongs into tests/faults/rare\n", list[i].name, list[i].where);
			missing++;
		}
	for (unsigned i = 0; i < nrare; i++) {
		bool any = false;

		for (unsigned k = 0; k < nlist && !any; k++)
			any = !fnmatch(rare[i].point, list[k].name, 0);
		if (!any) {
			printf("tests/faults/rare:%u: there is no point %s\n", rare[i].line, rare[i].point);
			missing++;
		}
	}
	return missing;
}
