/* test.h - the whole harness: tests register themselves, test.c runs them.
 *
 *	TEST(trim_takes_tabs)
 *	{
 *		CHECK_STR(str_trim(STR("\tx ")), "x");
 *	}
 *
 * A failed CHECK is counted and printed, and the test goes on; REQUIRE leaves the test. Arguments of the program are
 * substrings: only tests whose name holds one of them run. */
#ifndef SPACE_TEST_H
#define SPACE_TEST_H

#include "base/str.h"

struct test {
	const char *name;
	void (*fn)(void);
	struct test *next;
};

void test_register(struct test *t);
bool test_check(bool ok, const char *file, int line, const char *what);
bool test_check_int(long long a, long long b, const char *file, int line, const char *what);
bool test_check_str(struct str a, struct str b, const char *file, int line, const char *what);
/* A name for the row of a table that is being checked, shown with failures; NULL: none. Printf-like. */
void test_row(const char *fmt, ...) PRINTF(1, 2);
/* Ends the program with status 77 (skipped) when it is all that could be tested; else just says so. */
void test_skip(const char *why);

static inline struct str test_str_z(const char *z)
{
	return str_of(z ? z : "(null)");
}

static inline struct str test_str_s(struct str s)
{
	return s;
}

#define TEST(name)                                                                     \
	static void test_##name(void);                                                 \
	__attribute__((constructor)) static void test_register_##name(void)            \
	{                                                                              \
		static struct test t = { #name, test_##name, NULL };                   \
		test_register(&t);                                                     \
	}                                                                              \
	static void test_##name(void)

#define CHECK(cond) test_check((cond), __FILE__, __LINE__, #cond)
#define CHECK_INT(a, b) test_check_int((long long)(a), (long long)(b), __FILE__, __LINE__, #a " == " #b)
/* Either side may be a struct str or a char *. */
#define TEST_STR(x)                                                                    \
	_Generic((x), struct str : test_str_s, const char * : test_str_z, char * : test_str_z)(x)
#define CHECK_STR(a, b) test_check_str(TEST_STR(a), TEST_STR(b), __FILE__, __LINE__, #a " == " #b)
#define REQUIRE(cond)                                                                  \
	do {                                                                           \
		if (!CHECK(cond))                                                      \
			return;                                                        \
	} while (0)

#endif
