/* test.c - see test.h. */
#include "test.h"

#include <stdarg.h>
#include <stdio.h>

static struct test *tests, **tests_end = &tests;
static bool failed, skipped;
static char row[120];

void test_register(struct test *t)
{
	*tests_end = t;
	tests_end = &t->next;
}

static void report(const char *file, int line, const char *what)
{
	failed = true;
	fprintf(stderr, "%s:%d: %s%s%s%s", file, line, *row ? "[" : "", row, *row ? "] " : "", what);
}

bool test_check(bool ok, const char *file, int line, const char *what)
{
	if (!ok) {
		report(file, line, what);
		fprintf(stderr, "\n");
	}
	return ok;
}

bool test_check_int(long long a, long long b, const char *file, int line, const char *what)
{
	if (a != b) {
		report(file, line, what);
		fprintf(stderr, ": %lld, not %lld\n", a, b);
	}
	return a == b;
}

bool test_check_str(struct str a, struct str b, const char *file, int line, const char *what)
{
	bool ok = str_eq(a, b);

	if (!ok) {
		report(file, line, what);
		fprintf(stderr, ": \"" STR_FMT "\", not \"" STR_FMT "\"\n", STR_ARG(a), STR_ARG(b));
	}
	return ok;
}

void test_row(const char *fmt, ...)
{
	va_list ap;

	row[0] = '\0';
	if (!fmt)
		return;
	va_start(ap, fmt);
	vsnprintf(row, sizeof(row), fmt, ap);
	va_end(ap);
}

void test_skip(const char *why)
{
	skipped = true;
	fprintf(stderr, "skipped: %s\n", why);
}

static bool wanted(const struct test *t, int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (strstr(t->name, argv[i]))
			return true;
	return argc < 2;
}

int main(int argc, char **argv)
{
	unsigned n_passed = 0, n_failed = 0, n_skipped = 0;

	for (struct test *t = tests; t; t = t->next) {
		if (!wanted(t, argc, argv))
			continue;
		failed = skipped = false;
		row[0] = '\0';
		t->fn();
		if (failed) {
			fprintf(stderr, "FAILED: %s\n", t->name);
			n_failed++;
		} else if (skipped) {
			n_skipped++;
		} else {
			n_passed++;
		}
	}
	if (n_skipped)
		printf("%u passed, %u failed, %u skipped\n", n_passed, n_failed, n_skipped);
	else
		printf("%u passed, %u failed\n", n_passed, n_failed);
	if (n_failed)
		return 1;
	return n_passed == 0 && n_skipped ? 77 : 0;
}
