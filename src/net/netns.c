#include "net/netns.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <libmnl/libmnl.h>
#include <linux/if_tun.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/fault.h"
#include "base/file.h"
#include "net/ruleset.h"
#include "net/slot.h"

#define TAP "tap0"
#define MAKER_STACK (256 * KIB)

static const uint8_t host_mac[6] = { 0x02, 0, 0, 0, 0, 0x01 };
static const uint8_t guest_mac[6] = { 0x02, 0, 0, 0, 0, 0x02 };

/* Settings of the namespace, before anything is in it. A new namespace copies the host's IPv4 settings, which may be anything.
 * `optional`: absent when the kernel has no IPv6, which is as good. */
static const struct setting {
	const char *path, *value;
	bool optional;
} before_links[] = {
	{ "ipv4/ip_forward", "0", false },
	{ "ipv4/icmp_echo_ignore_all", "1", false },
	{ "ipv4/icmp_echo_ignore_broadcasts", "1", false },
	/* The kernel's own limits let 6 errors out and then 1 a second, and draw on a budget that the whole host shares. */
	{ "ipv4/icmp_ratemask", "0", false },
	{ "ipv6/conf/all/disable_ipv6", "1", true },
	{ "ipv6/conf/default/disable_ipv6", "1", true },
	{ "ipv6/conf/lo/disable_ipv6", "1", true },
	{ "ipv6/conf/all/forwarding", "0", true },
	{ "ipv4/conf/all/accept_redirects", "0", false },
	{ "ipv4/conf/all/send_redirects", "0", false },
	{ "ipv4/conf/all/accept_source_route", "0", false },
	{ "ipv4/conf/all/rp_filter", "1", false },
	{ "ipv4/conf/all/route_localnet", "0", false },
	{ "ipv4/conf/all/accept_local", "0", false },
	{ "ipv4/conf/all/proxy_arp", "0", false },
	{ "ipv4/conf/all/arp_ignore", "1", false },
	{ "ipv4/conf/all/arp_accept", "0", false },
	{ "ipv4/conf/all/bc_forwarding", "0", true },
	{ "ipv4/conf/default/accept_redirects", "0", false },
	{ "ipv4/conf/default/send_redirects", "0", false },
	{ "ipv4/conf/default/accept_source_route", "0", false },
	{ "ipv4/conf/default/rp_filter", "1", false },
	{ "ipv4/conf/default/route_localnet", "0", false },
	{ "ipv4/conf/default/accept_local", "0", false },
	{ "ipv4/conf/default/proxy_arp", "0", false },
	{ "ipv4/conf/default/arp_ignore", "1", false },
	{ "ipv4/conf/default/arp_accept", "0", false },
	{ "ipv4/conf/default/forwarding", "0", false },
};

/* Read back at the end: without these the slot is not handed out. */
static const struct setting must_hold[] = {
	{ "ipv4/ip_forward", "0", false },
	{ "ipv4/conf/" TAP "/forwarding", "0", false },
	{ "ipv4/conf/" TAP "/route_localnet", "0", false },
	{ "ipv4/conf/" TAP "/accept_local", "0", false },
	{ "ipv4/conf/" TAP "/proxy_arp", "0", false },
	{ "ipv6/conf/" TAP "/disable_ipv6", "1", true },
	{ "ipv6/conf/all/forwarding", "0", true },
};

static int setting_open(const struct setting *s, int flags)
{
	char path[128];

	snprintf(path, sizeof(path), "/proc/sys/net/%s", s->path);
	return open(path, flags | O_CLOEXEC);
}

static int setting_write(const struct setting *s, struct fail *why)
{
	autoclose int fd = setting_open(s, O_WRONLY);
	int r;

	if (fd < 0 && errno == ENOENT && s->optional)
		return 0;
	if (fd < 0)
		return fail_set(why, -errno, "net.%s of a slot: %s", s->path, strerror(errno));
	r = FAULT_OURS(write_all(fd, s->value, strlen(s->value)));
	if (r < 0)
		return fail_set(why, r, "net.%s of a slot: %s", s->path, strerror(-r));
	return 0;
}

static int setting_check(const struct setting *s, struct fail *why)
{
	autoclose int fd = setting_open(s, O_RDONLY);
	char got[32] = "";
	ssize_t n;

	if (fd < 0 && errno == ENOENT && s->optional)
		return 0;
	n = fd < 0 ? -1 : read(fd, got, sizeof(got) - 1);
	if (n < 0)
		return fail_set(why, -errno, "net.%s of a slot: %s", s->path, strerror(errno));
	got[strcspn(got, "\n")] = 0;
	if (strcmp(got, s->value))
		return fail_set(why, -EPERM, "net.%s of a slot is %s and should be %s", s->path, got, s->value);
	return 0;
}

/* --- rtnetlink: one question, one acknowledgement --- */

static int nl_open(int protocol)
{
	/* An answer that does not come is a fault of ours; it must not hang a worker for ever. */
	struct timeval limit = { .tv_sec = 10 };
	int one = 1, fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(fd, SOL_NETLINK, NETLINK_CAP_ACK, &one, sizeof(one));
	return fd;
}

static int nl_talk(int fd, struct nlmsghdr *nlh, const char *what, struct fail *why)
{
	char answer[1024];
	ssize_t n;
	int r;

	nlh->nlmsg_flags |= NLM_F_REQUEST | NLM_F_ACK;
	nlh->nlmsg_seq = 1;
	if (FAULT(send(fd, nlh, nlh->nlmsg_len, 0)) < 0)
		return fail_set(why, -errno, "%s of a slot: %s", what, strerror(errno));
	do
		n = recv(fd, answer, sizeof(answer), 0);
	while (n < 0 && errno == EINTR);
	r = n < 0 ? -1 : mnl_cb_run(answer, (size_t)n, 1, 0, NULL, NULL);
	if (r < 0)
		return fail_set(why, -errno, "%s of a slot: %s", what, strerror(errno));
	return 0;
}

static int link_set(int fd, unsigned index, const uint8_t *mac, struct fail *why)
{
	char buf[256] __attribute__((aligned(NLMSG_ALIGNTO)));
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(buf);
	struct ifinfomsg *m;

	nlh->nlmsg_type = RTM_NEWLINK;
	m = mnl_nlmsg_put_extra_header(nlh, sizeof(*m));
	m->ifi_family = AF_UNSPEC;
	m->ifi_index = (int)index;
	m->ifi_flags = m->ifi_change = IFF_UP;
	if (mac) {
		mnl_attr_put(nlh, IFLA_ADDRESS, 6, mac);
		mnl_attr_put_u32(nlh, IFLA_MTU, 1500);
	}
	return nl_talk(fd, nlh, mac ? "bringing up the tap" : "bringing up lo", why);
}

static int addr_add(int fd, unsigned index, struct fail *why)
{
	char buf[256] __attribute__((aligned(NLMSG_ALIGNTO)));
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(buf);
	uint32_t ip = inet_addr(SLOT_HOST_IP);
	struct ifaddrmsg *m;

	nlh->nlmsg_type = RTM_NEWADDR;
	nlh->nlmsg_flags = NLM_F_CREATE | NLM_F_EXCL;
	m = mnl_nlmsg_put_extra_header(nlh, sizeof(*m));
	m->ifa_family = AF_INET;
	m->ifa_prefixlen = 30;
	m->ifa_scope = RT_SCOPE_UNIVERSE;
	m->ifa_index = index;
	mnl_attr_put_u32(nlh, IFA_LOCAL, ip);
	mnl_attr_put_u32(nlh, IFA_ADDRESS, ip);
	return nl_talk(fd, nlh, "giving an address to the tap", why);
}

static int neigh_add(int fd, unsigned index, struct fail *why)
{
	char buf[256] __attribute__((aligned(NLMSG_ALIGNTO)));
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(buf);
	struct ndmsg *m;

	nlh->nlmsg_type = RTM_NEWNEIGH;
	nlh->nlmsg_flags = NLM_F_CREATE | NLM_F_REPLACE;
	m = mnl_nlmsg_put_extra_header(nlh, sizeof(*m));
	m->ndm_family = AF_INET;
	m->ndm_ifindex = (int)index;
	m->ndm_state = NUD_PERMANENT;
	mnl_attr_put_u32(nlh, NDA_DST, inet_addr(SLOT_GUEST_IP));
	mnl_attr_put(nlh, NDA_LLADDR, 6, guest_mac);
	return nl_talk(fd, nlh, "naming the guest's neighbour entry", why);
}

/* --- the namespace --- */

static int tap_open(unsigned *index, struct fail *why)
{
	struct ifreq ifr = { .ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR };
	autoclose int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
	int r;

	if (fd < 0) {
		r = fail_as(why, ERR_host_unsuitable, "/dev/net/tun: %s", strerror(errno));
		fail_remedy(why, "modprobe tun; in a container, pass the device /dev/net/tun in");
		return r;
	}
	memcpy(ifr.ifr_name, TAP, sizeof(TAP));
	if (FAULT(ioctl(fd, TUNSETIFF, &ifr)) < 0)
		return fail_set(why, -errno, "making a tap: %s", strerror(errno));
	*index = if_nametoindex(TAP);
	if (!*index)
		return fail_set(why, -errno, "finding the new tap: %s", strerror(errno));
	return steal_fd(&fd);
}

struct maker {
	int ns_fd, tap_fd, nfnl_fd;
	int r;
	struct fail *why;
};

static int make_here(struct maker *m, struct fail *why)
{
	autoclose int ns = -1, tap = -1, rt = -1, nfnl = -1;
	unsigned index;
	int r;

	if (FAULT(unshare(CLONE_NEWNET)) < 0) {
		r = errno;
		if (r != EPERM)
			return fail_set(why, -r, "making a network namespace: %s", strerror(r));
		r = fail_as(why, ERR_host_unsuitable, "making a network namespace is not permitted here");
		fail_remedy(why, "run spaced as root, with CAP_SYS_ADMIN and CAP_NET_ADMIN");
		return r;
	}
	ns = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	if (ns < 0)
		return fail_set(why, -errno, "opening a new network namespace: %s", strerror(errno));
	for (size_t i = 0; i < ARRAY_LEN(before_links); i++) {
		r = setting_write(&before_links[i], why);
		if (r < 0)
			return r;
	}
	tap = tap_open(&index, why);
	if (tap < 0)
		return tap;
	rt = nl_open(NETLINK_ROUTE);
	nfnl = nl_open(NETLINK_NETFILTER);
	if (rt < 0 || nfnl < 0)
		return fail_set(why, MIN(rt, nfnl), "netlink in a slot: %s", strerror(-MIN(rt, nfnl)));
	/* The filter needs the tap to be there, but not to be up: nothing passes before it is loaded. */
	r = ruleset_load(ns, why);
	if (r == 0)
		r = ruleset_verify(nfnl, why);
	if (r == 0)
		r = link_set(rt, 1, NULL, why);
	if (r == 0)
		r = link_set(rt, index, host_mac, why);
	if (r == 0)
		r = addr_add(rt, index, why);
	if (r == 0)
		r = neigh_add(rt, index, why);
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(must_hold); i++)
		r = setting_check(&must_hold[i], why);
	if (r < 0)
		return r;
	m->ns_fd = steal_fd(&ns);
	m->tap_fd = steal_fd(&tap);
	return 0;
}

static void *maker_main(void *arg)
{
	struct maker *m = arg;

	m->r = make_here(m, m->why);
	return NULL;
}

int netns_make(int *ns_fd, int *tap_fd, struct fail *why)
{
	struct maker m = { .why = why };
	pthread_attr_t attr;
	pthread_t t;
	int r;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, MAKER_STACK);
	r = pthread_create(&t, &attr, maker_main, &m);
	pthread_attr_destroy(&attr);
	if (r)
		return fail_set(why, -r, "starting a thread: %s", strerror(r));
	pthread_join(t, NULL);
	if (m.r < 0)
		return m.r;
	*ns_fd = m.ns_fd;
	*tap_fd = m.tap_fd;
	return 0;
}

/* The namespace this process lives in. Opened once, while no thread can be elsewhere: the main thread never is. */
int netns_home(void)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static int fd = -1;

	pthread_mutex_lock(&lock);
	if (fd < 0)
		fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	pthread_mutex_unlock(&lock);
	return fd;
}

int netns_socket(int ns_fd, struct fail *why)
{
	int home = netns_home(), fd, err;

	if (home < 0)
		return fail_set(why, -errno, "opening our own network namespace: %s", strerror(errno));
	if (setns(ns_fd, CLONE_NEWNET) < 0)
		return fail_set(why, -errno, "entering a slot: %s", strerror(errno));
	fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	err = errno;
	/* A worker thread that stays in a sandbox's namespace would do the next job there. There is no going on from that. */
	if (setns(home, CLONE_NEWNET) < 0)
		abort();
	if (fd < 0)
		return fail_set(why, -err, "making a socket in a slot: %s", strerror(err));
	return fd;
}
