/* replay.c - runs a fuzz target over the files of a directory (its seeds, or a corpus), as an ordinary test. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>

#include "base/file.h"

#define SEED_MAX (4 * MIB)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_dir(const char *path, unsigned *count)
{
	DIR *d = opendir(path);
	struct dirent *e;

	if (!d) {
		perror(path);
		return -1;
	}
	while ((e = readdir(d))) {
		autofree char *text = NULL;
		uint8_t *exact;
		ssize_t n;

		if (e->d_name[0] == '.')
			continue;
		n = file_read(dirfd(d), e->d_name, &text, SEED_MAX);
		if (n < 0) {
			fprintf(stderr, "%s/%s: %s\n", path, e->d_name, strerror((int)-n));
			closedir(d);
			return -1;
		}
		/* In a block of exactly its size, so that a checker sees a byte read past the end. */
		exact = malloc(n ? (size_t)n : 1);
		if (!exact)
			abort();
		memcpy(exact, text, (size_t)n);
		LLVMFuzzerTestOneInput(exact, (size_t)n);
		free(exact);
		++*count;
	}
	closedir(d);
	return 0;
}

int main(int argc, char **argv)
{
	unsigned count = 0;

	for (int i = 1; i < argc; i++)
		if (replay_dir(argv[i], &count) < 0)
			return 1;
	LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
	printf("%u inputs replayed\n", count);
	return count ? 0 : 1;
}
