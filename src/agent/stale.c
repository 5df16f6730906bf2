/* stale.c - see stale.h. There is no sock_diag in the guest's kernel, so the sockets are found in /proc and taken from their owners by pidfd_getfd():
 * connect() to no address at all is what resets one. */
#include "agent/stale.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "agent/agent.h"
#include "base/log.h"

#define STALE_MAX 4096
#define GUEST_HEX "02004064" /* 100.64.0.2 as /proc/net/tcp writes it */

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

struct stale {
	unsigned long inodes[STALE_MAX];
	unsigned n, left;
};

/* One line of /proc/net/tcp or tcp6. The inode of a connection over eth0; 0 for anything else. */
static unsigned long line_inode(const char *line)
{
	enum { LISTEN = 0x0a, CLOSED = 0x07, TIME_WAIT = 0x06 };
	char local[33], remote[33];
	unsigned local_port, remote_port, state;
	unsigned long inode;
	size_t n;

	if (sscanf(line, " %*d: %32[0-9A-F]:%x %32[0-9A-F]:%x %x %*x:%*x %*x:%*x %*x %*d %*d %lu", local, &local_port, remote,
		    &remote_port, &state, &inode) != 6)
		return 0;
	n = strlen(local);
	if (n < 8 || strcmp(local + n - 8, GUEST_HEX) || local_port == AGENT_PORT || state == LISTEN || state == CLOSED || state == TIME_WAIT)
		return 0;
	return inode;
}

static void collect(struct stale *s, const char *path)
{
	FILE *f = fopen(path, "re");
	char line[512];
	unsigned long inode;

	while (f && fgets(line, sizeof(line), f))
		if (s->n < STALE_MAX && (inode = line_inode(line)))
			s->inodes[s->n++] = inode;
	if (f)
		fclose(f);
}

static void reset_one(int pidfd, int theirs)
{
	struct sockaddr none = { .sa_family = AF_UNSPEC };
	int fd = (int)syscall(SYS_pidfd_getfd, pidfd, theirs, 0);

	if (fd < 0)
		return;
	(void)connect(fd, &none, sizeof(none));
	close(fd);
}

static void reset_of(struct stale *s, const char *pid)
{
	char path[320], target[64];
	struct dirent *e;
	int pidfd = -1;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%s/fd", pid);
	d = opendir(path);
	while (d && s->left && (e = readdir(d))) {
		unsigned long inode;
		ssize_t n = readlinkat(dirfd(d), e->d_name, target, sizeof(target) - 1);

		if (n <= 0)
			continue;
		target[n] = '\0';
		if (sscanf(target, "socket:[%lu]", &inode) != 1)
			continue;
		for (unsigned i = 0; i < s->n; i++) {
			if (s->inodes[i] != inode)
				continue;
			if (pidfd < 0)
				pidfd = (int)syscall(SYS_pidfd_open, atoi(pid), 0);
			if (pidfd >= 0)
				reset_one(pidfd, atoi(e->d_name));
			s->inodes[i] = 0; /* other descriptors of it are the same socket */
			s->left--;
		}
	}
	if (d)
		closedir(d);
	if (pidfd >= 0)
		close(pidfd);
}

unsigned stale_reset(void)
{
	struct stale *s = calloc(1, sizeof(*s));
	struct dirent *e;
	unsigned reset;
	DIR *d;

	if (!s)
		return 0;
	collect(s, "/proc/net/tcp");
	collect(s, "/proc/net/tcp6");
	s->left = s->n;
	d = s->n ? opendir("/proc") : NULL;
	while (d && s->left && (e = readdir(d)))
		if (e->d_name[0] >= '1' && e->d_name[0] <= '9' && atoi(e->d_name) != getpid())
			reset_of(s, e->d_name);
	if (d)
		closedir(d);
	reset = s->n - s->left;
	free(s);
	if (reset)
		log_info("init: reset connections of the machine before count=%u", reset);
	return reset;
}
