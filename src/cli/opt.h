/* opt.h - command line options by tables.
 *
 * "--name value", "--name=value", "-n value", "-nvalue", flags grouped as in "-it". Several tables may be read at once
 * (a command's own and the global ones); the first that knows a name wins. Nothing is copied: values point into argv. */
#ifndef SPACE_CLI_OPT_H
#define SPACE_CLI_OPT_H

#include "base/fail.h"

enum opt_kind {
	OPT_FLAG, /* bool */
	OPT_STR,  /* const char * */
	OPT_INT,  /* int64_t, 0 or more */
	OPT_LIST, /* struct opt_list: may be given again and again */
};

struct opt {
	const char *name; /* without the dashes */
	char letter;	  /* 0: none */
	enum opt_kind kind;
	size_t at; /* where in the struct that is filled in */
	const char *meta, *help;
};

#define OPT_LIST_MAX 256
struct opt_list {
	size_t n;
	const char *v[OPT_LIST_MAX];
};

struct opt_table {
	const struct opt *opts;
	size_t n;
	void *into;
};

/* Takes the options out of argv[1..argc) and leaves the words in argv[0..*nwords). After STOP_AFTER words everything
 * that follows is a word too, whatever it looks like, and one "--" right there is dropped (-1: options may stand anywhere
 * until "--"). -EINVAL with a usage error in WHY. */
int opt_parse(const struct opt_table *tables, size_t ntables, int stop_after, int argc, char **argv, int *nwords,
	struct fail *why);

/* The index of the name nearest to WORD, or -1 if none is near enough to be what was meant. */
int nearest_name(const char *word, const char *const *names, size_t n);

#endif
