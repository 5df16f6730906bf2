/* Slots: the test program is the guest. It reads and writes raw frames on the tap's descriptor, and raw sockets inside the namespace
 * witness what gets past the filter. Needs root; without it (or without nft or /dev/net/tun) nothing is tested and a line says so. */
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "test.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/proc.h"
#include "net/slot.h"

#define VNET 10 /* bytes of struct virtio_net_hdr before each frame */

static char run_dir[64];

static bool can_run(void)
{
	if (geteuid() == 0 && access("/dev/net/tun", R_OK | W_OK) == 0 &&
	    (access("/usr/sbin/nft", X_OK) == 0 || access("/sbin/nft", X_OK) == 0))
		return true;
	test_skip("slots need root, /dev/net/tun and nft");
	return false;
}

static struct slots *begin(unsigned ready)
{
	struct fail why = { 0 };
	struct slots *s = NULL;

	snprintf(run_dir, sizeof(run_dir), "/tmp/space-unit-net.XXXXXX");
	if (!mkdtemp(run_dir))
		return NULL;
	if (slots_new(run_dir, ready, &s, &why) < 0)
		printf("slots_new: %s\n", why.msg);
	return s;
}

static void end(struct slots *s)
{
	slots_free(s);
	CHECK(rmdir(run_dir) == 0); /* nothing mounted, nothing left */
}

static unsigned files_in_netns(void)
{
	char path[80];
	unsigned n = 0;
	struct dirent *e;
	DIR *d;

	snprintf(path, sizeof(path), "%s/netns", run_dir);
	d = opendir(path);
	while (d && (e = readdir(d)))
		n += e->d_name[0] != '.';
	if (d)
		closedir(d);
	return n;
}

static unsigned open_fds(void)
{
	struct dirent *e;
	unsigned n = 0;
	DIR *d = opendir("/proc/self/fd");

	while (d && (e = readdir(d)))
		n++;
	if (d)
		closedir(d);
	return n;
}

static ino_t my_netns(void)
{
	struct stat st = { 0 };

	stat("/proc/thread-self/ns/net", &st);
	return st.st_ino;
}

/* --- work done inside the namespace, on a thread that ends there --- */

struct inside {
	int ns_fd;
	void (*fn)(void *arg);
	void *arg;
};

static void *inside_main(void *p)
{
	struct inside *i = p;

	if (setns(i->ns_fd, CLONE_NEWNET) == 0)
		i->fn(i->arg);
	return NULL;
}

static void inside(int ns_fd, void (*fn)(void *arg), void *arg)
{
	struct inside i = { ns_fd, fn, arg };
	pthread_t t;

	pthread_create(&t, NULL, inside_main, &i);
	pthread_join(t, NULL);
}

static void read_small(const char *path, char *out, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, out, size - 1);

	out[n < 0 ? 0 : n] = 0;
	out[strcspn(out, "\n")] = 0;
	if (fd >= 0)
		close(fd);
}

struct look {
	unsigned up;
	char names[128], forward[8], v6[8], route[512];
};

static void look_around(void *arg)
{
	struct look *l = arg;
	struct if_nameindex *list = if_nameindex();
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	for (struct if_nameindex *i = list; i && i->if_index; i++) {
		struct ifreq r = { 0 };

		snprintf(r.ifr_name, sizeof(r.ifr_name), "%s", i->if_name);
		if (ioctl(fd, SIOCGIFFLAGS, &r) == 0 && (r.ifr_flags & IFF_UP)) {
			l->up++;
			strncat(l->names, i->if_name, 16);
			strcat(l->names, " ");
		}
	}
	if_freenameindex(list);
	close(fd);
	read_small("/proc/sys/net/ipv4/ip_forward", l->forward, sizeof(l->forward));
	read_small("/proc/sys/net/ipv6/conf/tap0/disable_ipv6", l->v6, sizeof(l->v6));
	read_small("/proc/thread-self/net/if_inet6", l->route, sizeof(l->route));
}

/* Raw sockets get a copy of whatever the input hook lets through. */
struct witness {
	int tcp, udp, icmp, listen, udp_bound;
};

static void witness_open(void *arg)
{
	struct witness *w = arg;
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(8080) };

	w->tcp = socket(AF_INET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
	w->udp = socket(AF_INET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_UDP);
	w->icmp = socket(AF_INET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_ICMP);
	w->listen = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	w->udp_bound = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	CHECK(bind(w->listen, (struct sockaddr *)&any, sizeof(any)) == 0 && listen(w->listen, 8) == 0);
	CHECK(bind(w->udp_bound, (struct sockaddr *)&any, sizeof(any)) == 0);
}

static unsigned witness_saw(struct witness *w)
{
	const int fds[] = { w->tcp, w->udp, w->icmp, w->udp_bound };
	unsigned n = 0;
	char b[2048];
	int c;

	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		while (recv(fds[i], b, sizeof(b), 0) >= 0)
			n++;
	while ((c = accept(w->listen, NULL, NULL)) >= 0) {
		close(c);
		n++;
	}
	return n;
}

static void witness_close(struct witness *w)
{
	close(w->tcp);
	close(w->udp);
	close(w->icmp);
	close(w->listen);
	close(w->udp_bound);
}

/* --- frames --- */

static const uint8_t guest_mac[6] = { 2, 0, 0, 0, 0, 2 }, host_mac[6] = { 2, 0, 0, 0, 0, 1 };

struct frame {
	uint8_t b[VNET + 1600];
	size_t n; /* without the VNET bytes */
};

static uint16_t sum16(const uint8_t *p, size_t n, uint32_t sum)
{
	for (size_t i = 0; i + 1 < n; i += 2)
		sum += (uint32_t)(p[i] << 8 | p[i + 1]);
	if (n & 1)
		sum += (uint32_t)(p[n - 1] << 8);
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~sum;
}

static void put16(uint8_t *p, unsigned v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

static void put32(uint8_t *p, uint32_t v)
{
	put16(p, v >> 16);
	put16(p + 2, v & 0xffff);
}

static uint32_t get32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

struct ip_opt {
	const char *src, *dst;
	uint8_t proto;
	unsigned frag;	  /* the flags-and-offset field */
	bool options;	  /* four bytes of NOPs */
	const uint8_t *mac; /* source; NULL: the guest's own */
	unsigned ethertype; /* 0: IPv4 */
};

static struct frame ip_frame(struct ip_opt o, const uint8_t *load, size_t n)
{
	struct frame f = { 0 };
	uint8_t *e = f.b + VNET, *ip = e + 14;
	size_t hl = o.options ? 24 : 20;

	memcpy(e, host_mac, 6);
	memcpy(e + 6, o.mac ? o.mac : guest_mac, 6);
	put16(e + 12, o.ethertype ? o.ethertype : 0x0800);
	ip[0] = (uint8_t)(0x40 | hl / 4);
	put16(ip + 2, (unsigned)(hl + n));
	put16(ip + 6, o.frag);
	ip[8] = 64;
	ip[9] = o.proto;
	put32(ip + 12, ntohl(inet_addr(o.src ? o.src : SLOT_GUEST_IP)));
	put32(ip + 16, ntohl(inet_addr(o.dst ? o.dst : SLOT_HOST_IP)));
	if (o.options)
		memset(ip + 20, 1, 4);
	put16(ip + 10, sum16(ip, hl, 0));
	memcpy(ip + hl, load, n);
	if (o.proto == IPPROTO_TCP || o.proto == IPPROTO_UDP) {
		uint32_t pseudo = o.proto + (uint32_t)n;

		for (int i = 12; i < 20; i += 2)
			pseudo += (uint32_t)(ip[i] << 8 | ip[i + 1]);
		put16(ip + hl + (o.proto == IPPROTO_TCP ? 16 : 6), sum16(ip + hl, n, pseudo));
	}
	f.n = 14 + hl + n;
	return f;
}

enum { FIN = 1, SYN = 2, RST = 4, PSH = 8, ACK = 16 };

static struct frame tcp_frame(struct ip_opt o, unsigned sport, unsigned dport, uint32_t seq, uint32_t ack, uint8_t flags,
			      const char *text)
{
	uint8_t t[1400] = { 0 };
	size_t n = strlen(text);

	put16(t, sport);
	put16(t + 2, dport);
	put32(t + 4, seq);
	put32(t + 8, ack);
	t[12] = 5 << 4;
	t[13] = flags;
	put16(t + 14, 64000);
	memcpy(t + 20, text, n);
	o.proto = IPPROTO_TCP;
	return ip_frame(o, t, 20 + n);
}

static struct frame udp_frame(struct ip_opt o, unsigned dport)
{
	uint8_t u[12] = { 0 };

	put16(u, 40000);
	put16(u + 2, dport);
	put16(u + 4, sizeof(u));
	o.proto = IPPROTO_UDP;
	return ip_frame(o, u, sizeof(u));
}

static struct frame icmp_frame(struct ip_opt o)
{
	uint8_t c[16] = { 8 };

	put16(c + 2, sum16(c, sizeof(c), 0));
	o.proto = IPPROTO_ICMP;
	return ip_frame(o, c, sizeof(c));
}

static void send_frame(int tap, const struct frame *f)
{
	CHECK(write(tap, f->b, VNET + f->n) == (ssize_t)(VNET + f->n));
}

/* The next frame within MS, false if there is none. */
static bool next_frame(int tap, struct frame *f, int ms)
{
	struct pollfd p = { .fd = tap, .events = POLLIN };
	ssize_t n;

	if (poll(&p, 1, ms) <= 0)
		return false;
	n = read(tap, f->b, sizeof(f->b));
	if (n < VNET + 14)
		return false;
	f->n = (size_t)n - VNET;
	return true;
}

static const uint8_t *tcp_of(const struct frame *f)
{
	const uint8_t *ip = f->b + VNET + 14;

	return f->n >= 54 && f->b[VNET + 12] == 8 && !f->b[VNET + 13] && ip[9] == IPPROTO_TCP ? ip + (ip[0] & 15) * 4 : NULL;
}

/* What came back: "rst", "icmp TYPE/CODE", "nothing", or "something". */
static const char *answer(int tap, const struct frame *sent, int ms)
{
	static char text[32];
	struct frame f;
	const uint8_t *ip = f.b + VNET + 14;

	send_frame(tap, sent);
	if (!next_frame(tap, &f, ms))
		return "nothing";
	if (tcp_of(&f) && (tcp_of(&f)[13] & RST))
		return "rst";
	if (f.n > 14 + 28 && f.b[VNET + 12] == 8 && ip[9] == IPPROTO_ICMP) {
		snprintf(text, sizeof(text), "icmp %d/%d", ip[20], ip[21]);
		return text;
	}
	return "something";
}

/* --- tests --- */

TEST(net_slot_is_a_tap_and_lo)
{
	struct slots *s;
	struct slot slot;
	struct look l = { 0 };
	struct fail why = { 0 };
	ino_t home = my_netns();
	int link;

	if (!can_run())
		return;
	s = begin(0);
	REQUIRE(s && slot_claim(s, &slot, &why) == 0);
	CHECK_STR(why.msg, "");
	inside(slot.ns_fd, look_around, &l);
	CHECK_INT(l.up, 2);
	CHECK_STR(l.names, "lo tap0 ");
	CHECK_STR(l.forward, "0");
	CHECK(!l.v6[0] || !strcmp(l.v6, "1"));
	CHECK_STR(l.route, ""); /* no IPv6 address, not even ::1 */
	CHECK(my_netns() == home);
	CHECK_INT(files_in_netns(), 1);
	link = (int)if_nametoindex("tap0");
	CHECK_INT(link, 0); /* not in ours */
	CHECK_INT(slot_release(s, &slot, &why), 0);
	CHECK_INT(files_in_netns(), 0);
	end(s);
}

TEST(net_slot_host_reaches_guest)
{
	struct slots *s;
	struct slot slot;
	struct fail why = { 0 };
	struct frame f, g;
	const uint8_t *t;
	struct pollfd p;
	char text[16] = "";
	int fd, err = -1;
	socklen_t len = sizeof(err);
	ino_t home = my_netns();

	if (!can_run())
		return;
	s = begin(0);
	REQUIRE(s && slot_claim(s, &slot, &why) == 0);
	fd = slot_connect(&slot, 49983, &why);
	CHECK(fd >= 0);
	CHECK(my_netns() == home);
	CHECK(next_frame(slot.tap_fd, &f, 1000));
	t = tcp_of(&f);
	CHECK(t && t[13] == SYN && (t[2] << 8 | t[3]) == 49983);
	if (!t)
		return;
	CHECK(!memcmp(f.b + VNET, guest_mac, 6) && !memcmp(f.b + VNET + 6, host_mac, 6));
	g = tcp_frame((struct ip_opt){ 0 }, 49983, (unsigned)(t[0] << 8 | t[1]), 1000, get32(t + 4) + 1, SYN | ACK, "");
	send_frame(slot.tap_fd, &g);
	p = (struct pollfd){ .fd = fd, .events = POLLOUT };
	CHECK_INT(poll(&p, 1, 1000), 1);
	CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) == 0 && err == 0);
	g = tcp_frame((struct ip_opt){ 0 }, 49983, (unsigned)(t[0] << 8 | t[1]), 1001, get32(t + 4) + 1, PSH | ACK, "hello");
	send_frame(slot.tap_fd, &g);
	p.events = POLLIN;
	CHECK_INT(poll(&p, 1, 1000), 1);
	CHECK_INT(recv(fd, text, sizeof(text), 0), 5);
	CHECK_STR(text, "hello");
	close(fd);
	/* A closed port answers at once, too. */
	while (next_frame(slot.tap_fd, &f, 20))
		;
	fd = slot_connect(&slot, 81, &why);
	CHECK(fd >= 0 && next_frame(slot.tap_fd, &f, 1000) && tcp_of(&f));
	t = tcp_of(&f);
	if (t) {
		g = tcp_frame((struct ip_opt){ 0 }, 81, (unsigned)(t[0] << 8 | t[1]), 0, get32(t + 4) + 1, RST | ACK, "");
		send_frame(slot.tap_fd, &g);
	}
	p = (struct pollfd){ .fd = fd, .events = POLLOUT };
	CHECK_INT(poll(&p, 1, 1000), 1);
	CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) == 0 && err == ECONNREFUSED);
	close(fd);
	CHECK(slot_connect(&slot, 0, &why) < 0);
	CHECK(slot_connect(&slot, 65536, &why) < 0);
	CHECK_INT(slot_release(s, &slot, &why), 0);
	end(s);
}

TEST(net_slot_arp)
{
	static const struct {
		const char *what, *answer;
		uint8_t op, smac, sip[4], tip[4];
	} rows[] = {
		{ "asks for the gateway", "something", 1, 2, { 100, 64, 0, 2 }, { 100, 64, 0, 1 } },
		{ "asks for another", "nothing", 1, 2, { 100, 64, 0, 2 }, { 100, 64, 0, 3 } },
		{ "asks in another's name", "nothing", 1, 2, { 100, 64, 0, 9 }, { 100, 64, 0, 1 } },
		{ "claims the gateway", "nothing", 2, 2, { 100, 64, 0, 1 }, { 100, 64, 0, 1 } },
		{ "announces another MAC", "nothing", 1, 7, { 100, 64, 0, 2 }, { 100, 64, 0, 1 } },
	};
	struct slots *s;
	struct slot slot;
	struct fail why = { 0 };

	if (!can_run())
		return;
	s = begin(0);
	REQUIRE(s && slot_claim(s, &slot, &why) == 0);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct frame f = { .n = 42 };
		uint8_t *e = f.b + VNET, *a = e + 14;
		const char *got;

		memset(e, 0xff, 6);
		memcpy(e + 6, guest_mac, 6);
		put16(e + 12, 0x0806);
		put16(a, 1);
		put16(a + 2, 0x0800);
		a[4] = 6;
		a[5] = 4;
		a[7] = rows[i].op;
		memcpy(a + 8, guest_mac, 6);
		a[13] = rows[i].smac;
		memcpy(a + 14, rows[i].sip, 4);
		memcpy(a + 24, rows[i].tip, 4);
		got = answer(slot.tap_fd, &f, i ? 60 : 1000);
		test_row("%s", rows[i].what);
		CHECK_STR(got, rows[i].answer);
	}
	test_row(NULL);
	CHECK_INT(slot_release(s, &slot, &why), 0);
	end(s);
}

TEST(net_slot_guest_reaches_nobody)
{
	static const uint8_t other_mac[6] = { 2, 0, 0, 0, 0, 9 };
	struct slots *s;
	struct slot slot;
	struct witness w;
	struct fail why = { 0 };
	uint8_t v6[40] = { 0x60, 0, 0, 0, 0, 0, 59, 64 };

	if (!can_run())
		return;
	s = begin(0);
	REQUIRE(s && slot_claim(s, &slot, &why) == 0);
	inside(slot.ns_fd, witness_open, &w);

	const struct {
		const char *what, *answer;
		struct frame f;
	} rows[] = {
		{ "SYN to a listener on the host side", "rst", tcp_frame((struct ip_opt){ 0 }, 5000, 8080, 1, 0, SYN, "") },
		{ "SYN to a closed port", "rst", tcp_frame((struct ip_opt){ 0 }, 5000, 22, 1, 0, SYN, "") },
		{ "SYN with FIN", "rst", tcp_frame((struct ip_opt){ 0 }, 5001, 8080, 1, 0, SYN | FIN, "") },
		{ "SYN to the internet", "rst", tcp_frame((struct ip_opt){ .dst = "8.8.8.8" }, 5000, 443, 1, 0, SYN, "") },
		{ "ACK to the internet", "rst", tcp_frame((struct ip_opt){ .dst = "8.8.8.8" }, 5000, 443, 1, 1, ACK, "") },
		{ "SYN to loopback", "nothing", tcp_frame((struct ip_opt){ .dst = "127.0.0.1" }, 5000, 8080, 1, 0, SYN, "") },
		{ "UDP to a bound port", "icmp 3/3", udp_frame((struct ip_opt){ 0 }, 8080) },
		{ "DNS to the gateway", "icmp 3/3", udp_frame((struct ip_opt){ 0 }, 53) },
		{ "DNS to the internet", "icmp 3/3", udp_frame((struct ip_opt){ .dst = "8.8.8.8" }, 53) },
		{ "DHCP", "icmp 3/3", udp_frame((struct ip_opt){ .dst = "255.255.255.255" }, 67) },
		{ "multicast", "icmp 3/3", udp_frame((struct ip_opt){ .dst = "224.0.0.251" }, 5353) },
		{ "ping of the gateway", "icmp 3/13", icmp_frame((struct ip_opt){ 0 }) },
		{ "ping of the internet", "icmp 3/13", icmp_frame((struct ip_opt){ .dst = "1.1.1.1" }) },
		{ "another's address", "nothing", udp_frame((struct ip_opt){ .src = "100.64.0.3" }, 8080) },
		{ "the gateway's address", "nothing", udp_frame((struct ip_opt){ .src = SLOT_HOST_IP }, 8080) },
		{ "a loopback address", "nothing", udp_frame((struct ip_opt){ .src = "127.0.0.1", .dst = "127.0.0.1" }, 8080) },
		{ "another's MAC", "nothing", udp_frame((struct ip_opt){ .mac = other_mac }, 8080) },
		{ "the gateway's MAC", "nothing", udp_frame((struct ip_opt){ .mac = host_mac }, 8080) },
		{ "a first fragment", "nothing", udp_frame((struct ip_opt){ .frag = 0x2000 }, 8080) },
		{ "a later fragment", "nothing", udp_frame((struct ip_opt){ .frag = 0x0010 }, 8080) },
		{ "IP options", "nothing", udp_frame((struct ip_opt){ .options = true }, 8080) },
		{ "SCTP", "nothing", ip_frame((struct ip_opt){ .proto = 132 }, v6, sizeof(v6)) },
		{ "GRE", "nothing", ip_frame((struct ip_opt){ .proto = 47 }, v6, sizeof(v6)) },
		{ "IP in IP", "nothing", ip_frame((struct ip_opt){ .proto = 4 }, v6, sizeof(v6)) },
		{ "IPv6", "nothing", ip_frame((struct ip_opt){ .ethertype = 0x86dd }, v6, sizeof(v6)) },
		{ "a VLAN tag", "nothing", ip_frame((struct ip_opt){ .ethertype = 0x8100 }, v6, sizeof(v6)) },
		{ "PPPoE", "nothing", ip_frame((struct ip_opt){ .ethertype = 0x8863 }, v6, sizeof(v6)) },
	};
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		int64_t at = mono_ms();
		bool wait = strcmp(rows[i].answer, "nothing") != 0;
		const char *got = answer(slot.tap_fd, &rows[i].f, wait ? 1000 : 40);

		test_row("guest sends %s", rows[i].what);
		CHECK_STR(got, rows[i].answer);
		CHECK(!wait || mono_ms() - at < 500);
		CHECK_INT(witness_saw(&w), 0);
	}
	test_row(NULL);
	witness_close(&w);
	CHECK_INT(slot_release(s, &slot, &why), 0);
	end(s);
}

/* Answers to a flood are limited, and what goes unanswered does not get in either. */
TEST(net_slot_flood_is_bounded)
{
	struct slots *s;
	struct slot slot;
	struct witness w;
	struct fail why = { 0 };
	struct frame f, got;
	unsigned answers = 0;

	if (!can_run())
		return;
	s = begin(0);
	REQUIRE(s && slot_claim(s, &slot, &why) == 0);
	inside(slot.ns_fd, witness_open, &w);
	f = udp_frame((struct ip_opt){ 0 }, 8080);
	for (int i = 0; i < 2000; i++) {
		send_frame(slot.tap_fd, &f);
		while (next_frame(slot.tap_fd, &got, 0))
			answers++;
	}
	while (next_frame(slot.tap_fd, &got, 50))
		answers++;
	CHECK(answers > 0 && answers < 500);
	CHECK_INT(witness_saw(&w), 0);
	witness_close(&w);
	CHECK_INT(slot_release(s, &slot, &why), 0);
	end(s);
}

static int tool(int ns_fd, const char *const *argv)
{
	struct fail why = { 0 };
	struct run_opts o = { .argv = argv, .setns_net_fd = ns_fd };
	int r = run(&o, NULL, &why);

	if (r < 0)
		printf("%s: %s\n", argv[0], why.msg);
	return r;
}

static void set_forward(void *arg)
{
	int fd = open("/proc/sys/net/ipv4/ip_forward", O_WRONLY | O_CLOEXEC);

	CHECK(fd >= 0 && write(fd, "1", 1) == 1);
	close(fd);
}

/* Even with the sysctl turned over and a second link with a route, nothing is forwarded. */
TEST(net_slot_forwards_nothing)
{
	static const char *const add[] = { "ip", "link", "add", "out0", "type", "veth", "peer", "name", "far0", NULL };
	static const char *const addr[] = { "ip", "addr", "add", "10.9.9.1/24", "dev", "out0", NULL };
	static const char *const up[] = { "ip", "link", "set", "out0", "up", NULL };
	static const char *const up2[] = { "ip", "link", "set", "far0", "up", NULL };
	static const char *const nb[] = { "ip", "neigh", "add", "10.9.9.2", "lladdr", "02:00:00:00:00:99", "dev", "out0", NULL };
	struct slots *s;
	struct slot slot;
	struct fail why = { 0 };
	struct frame f;
	struct look l = { 0 };
	char tx[16] = "x";

	if (!can_run())
		return;
	s = begin(0);
	REQUIRE(s && slot_claim(s, &slot, &why) == 0);
	if (tool(slot.ns_fd, add) == 0 && tool(slot.ns_fd, addr) == 0 && tool(slot.ns_fd, up) == 0 &&
	    tool(slot.ns_fd, up2) == 0 && tool(slot.ns_fd, nb) == 0) {
		struct buf out;
		static const char *const stat[] = { "ip", "-s", "-o", "neigh", "show", "10.9.9.2", NULL };
		struct run_opts o = { .argv = stat, .setns_net_fd = slot.ns_fd, .out = &out };

		buf_init(&out, 4096);
		inside(slot.ns_fd, set_forward, NULL);
		f = udp_frame((struct ip_opt){ .dst = "10.9.9.2" }, 53);
		CHECK_STR(answer(slot.tap_fd, &f, 1000), "icmp 3/3");
		f = tcp_frame((struct ip_opt){ .dst = "10.9.9.2" }, 5000, 80, 1, 0, SYN, "");
		CHECK_STR(answer(slot.tap_fd, &f, 1000), "rst");
		f = ip_frame((struct ip_opt){ .dst = "10.9.9.2", .proto = 132 }, (const uint8_t *)"....", 4);
		CHECK_STR(answer(slot.tap_fd, &f, 40), "nothing");
		inside(slot.ns_fd, look_around, &l);
		CHECK_STR(l.forward, "1");
		/* far0 is out0's other end: what it received is what was forwarded. */
		static const char *const rx[] = { "sh", "-c", "sed -n 's/^ *far0: *[0-9]* *\\([0-9]*\\).*/\\1/p' /proc/net/dev", NULL };

		o.argv = rx;
		CHECK_INT(run(&o, NULL, &why), 0);
		snprintf(tx, sizeof(tx), "%.*s", (int)MIN(out.n, 8), out.p);
		tx[strcspn(tx, "\n")] = 0;
		CHECK_STR(tx, "0");
		buf_clear(&out);
	}
	CHECK_INT(slot_release(s, &slot, &why), 0);
	end(s);
}

TEST(net_slot_books)
{
	struct slots *s, *again = NULL;
	struct slot a, b, c, d;
	struct fail why = { 0 };
	char path[128], name[16];
	int fd;

	if (!can_run())
		return;
	s = begin(3);
	CHECK_INT(slots_ready(s), 0);
	CHECK_INT(slots_refill(s, &why), 0);
	CHECK_INT(slots_ready(s), 3);
	CHECK_INT(slots_refill(s, &why), 0);
	CHECK_INT(files_in_netns(), 3);
	REQUIRE(slot_claim(s, &a, &why) == 0);
	CHECK_INT(slot_claim(s, &b, &why), 0);
	CHECK_INT(slots_ready(s), 1);
	CHECK(strcmp(a.name, b.name) != 0 && a.tap_fd >= 0 && a.ns_fd >= 0);
	CHECK_INT(slots_sweep(s, &why), 0); /* ready and claimed ones are no strays */
	CHECK_INT(files_in_netns(), 3);

	/* Another daemon starts on the same directory: it adopts what it knows of and sweeps the rest. */
	CHECK_INT(slots_new(run_dir, 0, &again, &why), 0);
	CHECK_INT(slot_adopt(again, a.name, &c, &why), 0);
	CHECK_INT(c.tap_fd, -1);
	CHECK_INT(slot_adopt(again, a.name, &d, &why), -EBUSY);
	CHECK_INT(slot_adopt(again, "sffffffffffff", &d, &why), -ENOENT);
	CHECK_INT(slot_adopt(again, "../netns", &d, &why), -EINVAL);
	CHECK_INT(slot_adopt(again, "", &d, &why), -EINVAL);
	snprintf(path, sizeof(path), "%s/netns/empty", run_dir);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	close(fd);
	CHECK_INT(slot_adopt(again, "empty", &d, &why), -ENOENT);
	CHECK_INT(slots_sweep(again, &why), 3); /* b, the ready one, and the empty file */
	CHECK_INT(files_in_netns(), 1);
	fd = slot_connect(&c, 80, &why);
	CHECK(fd >= 0);
	close(fd);
	strcpy(name, c.name);
	CHECK_INT(slot_release(again, &c, &why), 0);
	CHECK_INT(slot_adopt(again, name, &d, &why), -ENOENT);
	CHECK_INT(files_in_netns(), 0);

	/* Releasing what is gone already is no failure. */
	CHECK_INT(slot_release(s, &a, &why), 0);
	CHECK_INT(slot_release(s, &b, &why), 0);
	slots_free(again);
	end(s);
}

/* A slot that cannot be finished leaves no file, no mount and no descriptor, and says what is missing. */
TEST(net_slot_failure_leaves_nothing)
{
	struct slots *s;
	struct slot slot;
	struct fail why = { 0 };
	char *path, *old;
	unsigned fds;

	if (!can_run())
		return;
	s = begin(1);
	REQUIRE(s && slot_claim(s, &slot, &why) == 0);
	CHECK_INT(slot_release(s, &slot, &why), 0);
	fds = open_fds();
	path = getenv("PATH");
	old = strdup(path ? path : "/usr/sbin:/usr/bin:/sbin:/bin");
	setenv("PATH", "/nonexistent", 1);
	CHECK(slot_claim(s, &slot, &why) < 0);
	CHECK_INT(why.code, ERR_host_unsuitable);
	CHECK(strstr(why.remedy, "nftables") != NULL);
	CHECK(slots_refill(s, &why) < 0);
	setenv("PATH", old, 1);
	free(old);
	CHECK_INT(files_in_netns(), 0);
	CHECK_INT(open_fds(), fds);
	CHECK_INT(slots_refill(s, &why), 0); /* and it works again afterwards */
	CHECK_INT(slots_ready(s), 1);
	end(s);
}

struct maker {
	struct slots *s;
	struct slot *out;
	unsigned n, failed;
};

static void *maker_main(void *arg)
{
	struct maker *m = arg;
	struct fail why = { 0 };
	ino_t home = my_netns();

	for (unsigned i = 0; i < m->n; i++)
		if (slot_claim(m->s, &m->out[i], &why) < 0 && !m->failed++)
			printf("slot %u: %s\n", i, why.msg);
	CHECK(my_netns() == home);
	return NULL;
}

/* Many side by side. SPACE_TEST_LONG=1: the 2,000 that one host is to hold. */
TEST(net_slot_many)
{
	unsigned total = getenv("SPACE_TEST_LONG") ? 2000 : 100, per;
	struct maker m[4];
	pthread_t t[ARRAY_LEN(m)];
	struct slot *all;
	struct slots *s;
	struct fail why = { 0 };
	int64_t at;

	if (!can_run())
		return;
	s = begin(0);
	per = total / ARRAY_LEN(m);
	all = calloc(total, sizeof(*all));
	at = mono_ms();
	for (size_t i = 0; i < ARRAY_LEN(m); i++) {
		m[i] = (struct maker){ s, all + i * per, per, 0 };
		pthread_create(&t[i], NULL, maker_main, &m[i]);
	}
	for (size_t i = 0; i < ARRAY_LEN(m); i++) {
		pthread_join(t[i], NULL);
		CHECK_INT(m[i].failed, 0);
	}
	printf("%u slots: %.1f ms each\n", total, (double)(mono_ms() - at) / total);
	CHECK_INT(files_in_netns(), total);
	at = mono_ms();
	for (unsigned i = 0; i < total; i++)
		CHECK_INT(slot_release(s, &all[i], &why), 0);
	printf("%u slots released: %.2f ms each\n", total, (double)(mono_ms() - at) / total);
	free(all);
	end(s);
}
