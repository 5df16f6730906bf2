/* The log: a file that it goes to stays bounded, and whole in its lines. */
#include "test.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>

#include "base/file.h"
#include "base/log.h"

#define LIMIT (64 * KIB)
#define LINES 5000

TEST(a_log_file_keeps_its_latest_half)
{
	char dir[] = "/tmp/space-unit-XXXXXX";
	autoclose int d = mkdtemp(dir) ? dir_open(AT_FDCWD, dir) : -1;
	autofree char *text = NULL;
	char *at, *last = NULL;
	unsigned first = 0, n = 0, seen;
	ssize_t size;
	int status;
	pid_t pid;

	REQUIRE(d >= 0);
	pid = fork();
	if (pid == 0) {
		int fd = openat(d, "log", O_WRONLY | O_CREAT | O_APPEND, 0600);

		if (fd < 0 || dup2(fd, STDERR_FILENO) < 0)
			_exit(1);
		log_set_limit(LIMIT);
		for (unsigned i = 0; i < LINES; i++)
			log_info("line %u of many", i);
		_exit(0);
	}
	REQUIRE(waitpid(pid, &status, 0) == pid);
	CHECK_INT(status, 0);
	size = file_read(d, "log", &text, MIB);
	CHECK(size > (ssize_t)LIMIT / 4);
	CHECK(size < (ssize_t)LIMIT + 256 * 80);
	for (at = text; at && *at; at = strchr(at, '\n') + 1) {
		char *said = strstr(at, "line ");

		last = at;
		if (!said || sscanf(said, "line %u of many", &seen) != 1) {
			CHECK(!"a line that is none");
			break;
		}
		if (n++ == 0)
			first = seen;
		CHECK_INT(seen, first + n - 1);
	}
	CHECK(last && strstr(last, "line 4999 of many\n"));
	CHECK_INT(first + n, LINES);
	CHECK_INT(rm_rf(AT_FDCWD, dir), 0);
}
