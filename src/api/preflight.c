#include "api/preflight.h"

#include <cap-ng.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/str.h"

/* --- what is missing --- */

static bool in_path(const char *program)
{
	const char *path = getenv("PATH");
	struct str rest = str_of(path && *path ? path : "/usr/sbin:/usr/bin:/sbin:/bin"), dir;
	char file[512];

	while (rest.n) {
		str_cut(rest, ':', &dir, &rest);
		snprintf(file, sizeof(file), "%.*s/%s", (int)MIN(dir.n, 400), dir.p, program);
		if (!access(file, X_OK))
			return true;
	}
	/* Where a user's PATH does not lead. */
	snprintf(file, sizeof(file), "/usr/sbin/%s", program);
	return !access(file, X_OK);
}

static const struct { const char *program, *package, *why; } programs[] = {
	{ "qemu-system-x86_64", "qemu-system-x86", "runs the sandboxes" },
	{ "nft", "nftables", "closes their networks" },
};

static int programs_check(void (*tell)(const struct fail *why))
{
	struct fail f;
	size_t i;
	int n = 0;

	for (i = 0; i < ARRAY_LEN(programs); i++) {
		if (in_path(programs[i].program))
			continue;
		f = (struct fail){ 0 };
		fail_as(&f, ERR_host_unsuitable, "%s is not installed: it %s", programs[i].program, programs[i].why);
		fail_remedy(&f, "apt-get install --no-install-recommends %s", programs[i].package);
		tell(&f);
		n++;
	}
	return n;
}

static int tun_check(void (*tell)(const struct fail *why))
{
	struct fail f = { 0 };
	struct stat st;

	if (stat("/dev/net/tun", &st) == 0 && S_ISCHR(st.st_mode))
		return 0;
	fail_as(&f, ERR_host_unsuitable, "/dev/net/tun is missing: sandboxes cannot have a network device");
	fail_remedy(&f, "modprobe tun; in a container, start it with --device /dev/net/tun");
	tell(&f);
	return 1;
}

static int helpers_check(const struct config *cfg, void (*tell)(const struct fail *why))
{
	static const char *const names[] = { "space-agent", "space-image" };
	char path[sizeof(cfg->libexec_dir) + 32];
	struct fail f;
	size_t i;
	int n = 0;

	for (i = 0; i < ARRAY_LEN(names); i++) {
		snprintf(path, sizeof(path), "%s/%s", cfg->libexec_dir, names[i]);
		if (!access(path, X_OK))
			continue;
		f = (struct fail){ 0 };
		fail_as(&f, ERR_host_unsuitable, "%s: %s", path, strerror(errno));
		fail_remedy(&f, "make install, or name the directory it was built into with --libexec-dir");
		tell(&f);
		n++;
	}
	return n;
}

int preflight(const struct config *cfg, void (*tell)(const struct fail *why))
{
	struct fail f = { 0 };

	if (geteuid() != 0) {
		/* Nothing else can be judged from here. */
		fail_as(&f, ERR_forbidden, "spaced must be started as root: it makes namespaces and starts monitors");
		fail_remedy(&f, "sudo spaced, or systemctl start spaced");
		tell(&f);
		return 1;
	}
	return tun_check(tell) + programs_check(tell) + helpers_check(cfg, tell);
}

/* --- places --- */

int places_make(const struct config *cfg, struct fail *why)
{
	int err = mkdir_p(cfg->state_dir, 0711);

	if (err < 0)
		return fail_set(why, err, "%s: %s", cfg->state_dir, strerror(-err));
	err = mkdir_p(cfg->run_dir, 0711);
	if (err < 0)
		return fail_set(why, err, "%s: %s", cfg->run_dir, strerror(-err));
	return 0;
}

int pidfile_lock(const struct config *cfg, int *out, struct fail *why)
{
	struct flock whole = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	char path[sizeof(cfg->run_dir) + 16], text[24] = "";
	autoclose int fd = -1;
	ssize_t n;

	snprintf(path, sizeof(path), "%s/spaced.pid", cfg->run_dir);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (fd < 0)
		return fail_set(why, -errno, "%s: %s", path, strerror(errno));
	/* The process's own lock, which no child between fork and exec holds on to when we are killed. */
	if (fcntl(fd, F_SETLK, &whole) < 0) {
		n = pread(fd, text, sizeof(text) - 1, 0);
		text[n > 0 ? strcspn(text, "\n") : 0] = '\0';
		fail_as(why, ERR_conflict, "spaced is running already with %s (pid %s)", cfg->run_dir, *text ? text : "?");
		fail_remedy(why, "make down or systemctl stop spaced ends it; another --run-dir and --state-dir stand beside it");
		return why->err;
	}
	n = snprintf(text, sizeof(text), "%d\n", (int)getpid());
	if (ftruncate(fd, 0) < 0 || pwrite(fd, text, (size_t)n, 0) != n)
		return fail_set(why, -errno, "%s: %s", path, strerror(errno));
	*out = steal_fd(&fd);
	return 0;
}

void pidfile_drop(const struct config *cfg, int *fd)
{
	char path[sizeof(cfg->run_dir) + 16];

	if (*fd < 0)
		return;
	snprintf(path, sizeof(path), "%s/spaced.pid", cfg->run_dir);
	unlink(path);
	close(steal_fd(fd));
}

/* --- the address --- */

static bool is_loopback(const struct sockaddr *sa)
{
	if (sa->sa_family == AF_INET)
		return ntohl(((const struct sockaddr_in *)sa)->sin_addr.s_addr) >> 24 == 127;
	return sa->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)sa)->sin6_addr);
}

static int bind_one(const struct config *cfg, const struct addrinfo *ai, int *out, struct fail *why)
{
	autoclose int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int one = 1;

	if (fd < 0)
		return fail_set(why, -errno, "socket: %s", strerror(errno));
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (ai->ai_family == AF_INET6)
		(void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
	/* Two sockets may be bound to one port with SO_REUSEADDR as long as none listens: listening is what finds the other. */
	if (bind(fd, ai->ai_addr, ai->ai_addrlen) < 0 || listen(fd, 512) < 0) {
		if (errno != EADDRINUSE)
			return fail_set(why, -errno, "listen: %s: %s", cfg->listen, strerror(errno));
		fail_as(why, ERR_conflict, "listen: %s is in use by another program", cfg->listen);
		fail_remedy(why, "ss -ltnp shows which; listen: in space.yaml names another port, or \"off\"");
		return why->err;
	}
	*out = steal_fd(&fd);
	return 0;
}

int listen_bind(const struct config *cfg, int *fd, bool *public, struct fail *why)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV }, *ai = NULL;
	const char *colon = strrchr(cfg->listen, ':');
	char host[sizeof(cfg->listen)];
	size_t n;
	int err;

	*fd = -1;
	*public = false;
	if (!strcmp(cfg->listen, "off"))
		return 0;
	if (!colon)
		return fail_as(why, ERR_bad_request, "listen: ADDRESS:PORT, or off");
	n = (size_t)(colon - cfg->listen);
	memcpy(host, cfg->listen, n);
	host[n] = '\0';
	if (host[0] == '[' && host[n - 1] == ']') {
		host[n - 1] = '\0';
		memmove(host, host + 1, n - 1);
	}
	err = getaddrinfo(host, colon + 1, &hints, &ai);
	if (err || !ai)
		return fail_as(why, ERR_bad_request, "listen: %s: %s", cfg->listen, gai_strerror(err));
	*public = !is_loopback(ai->ai_addr);
	err = bind_one(cfg, ai, fd, why);
	freeaddrinfo(ai);
	return err;
}

/* --- capabilities --- */

int confine(struct fail *why)
{
	static const int keep[] = { CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_SYS_PTRACE, CAP_CHOWN, CAP_FOWNER,
		CAP_DAC_OVERRIDE, CAP_SETUID, CAP_SETGID, CAP_KILL, CAP_MKNOD, CAP_SYS_RESOURCE };
	bool have[ARRAY_LEN(keep)];
	size_t i;

	/* In a container some may be missing: what is not there cannot be kept, and what needs it will say so. */
	if (capng_get_caps_process() < 0)
		return fail_set(why, -EPERM, "capabilities could not be read");
	for (i = 0; i < ARRAY_LEN(keep); i++)
		have[i] = capng_have_capability(CAPNG_PERMITTED, (unsigned)keep[i]);
	capng_clear(CAPNG_SELECT_CAPS);
	for (i = 0; i < ARRAY_LEN(keep); i++)
		if (have[i])
			(void)capng_update(CAPNG_ADD, CAPNG_EFFECTIVE | CAPNG_PERMITTED, (unsigned)keep[i]);
	if (capng_apply(CAPNG_SELECT_CAPS) < 0)
		return fail_set(why, -EPERM, "capabilities could not be given up");
	return 0;
}
