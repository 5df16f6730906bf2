/* init_net.c - the guest's network: the same addresses in every sandbox, so that a clone needs no
 * renumbering. */
#include "agent/agent.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <net/route.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/file.h"
#include "base/log.h"

#define NETMASK "255.255.255.252"
#define MTU 1500
static const uint8_t host_mac[6] = { 0x02, 0, 0, 0, 0, 0x01 };

static struct sockaddr addr_of(const char *text)
{
	struct sockaddr_in in = { .sin_family = AF_INET };
	struct sockaddr sa;

	inet_pton(AF_INET, text, &in.sin_addr);
	memcpy(&sa, &in, sizeof(sa));
	return sa;
}

static int link_up(int fd, const char *name)
{
	struct ifreq r = { 0 };

	snprintf(r.ifr_name, sizeof(r.ifr_name), "%s", name);
	if (ioctl(fd, SIOCGIFFLAGS, &r) < 0)
		return -errno;
	r.ifr_flags = (short)(r.ifr_flags | IFF_UP | IFF_RUNNING);
	return ioctl(fd, SIOCSIFFLAGS, &r) < 0 ? -errno : 0;
}

static int eth_address(int fd)
{
	struct ifreq r = { .ifr_name = "eth0" };

	r.ifr_mtu = MTU;
	if (ioctl(fd, SIOCSIFMTU, &r) < 0)
		return -errno;
	r.ifr_addr = addr_of(GUEST_ADDR);
	if (ioctl(fd, SIOCSIFADDR, &r) < 0)
		return -errno;
	r.ifr_netmask = addr_of(NETMASK);
	return ioctl(fd, SIOCSIFNETMASK, &r) < 0 ? -errno : 0;
}

/* The host's address never changes its hardware address, so nothing has to be asked after a
 * restore. */
static int eth_neighbour(int fd)
{
	struct arpreq a = { .arp_flags = ATF_PERM | ATF_COM, .arp_dev = "eth0" };

	a.arp_pa = addr_of(HOST_ADDR);
	a.arp_ha.sa_family = ARPHRD_ETHER;
	memcpy(a.arp_ha.sa_data, host_mac, sizeof(host_mac));
	return ioctl(fd, SIOCSARP, &a) < 0 ? -errno : 0;
}

void net_neighbour(void)
{
	autoclose int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd >= 0 && if_nametoindex("eth0") != 0)
		(void)eth_neighbour(fd);
}

static int eth_route(int fd)
{
	struct rtentry rt = { .rt_flags = RTF_UP | RTF_GATEWAY };

	rt.rt_dst = addr_of("0.0.0.0");
	rt.rt_genmask = addr_of("0.0.0.0");
	rt.rt_gateway = addr_of(HOST_ADDR);
	return ioctl(fd, SIOCADDRT, &rt) < 0 && errno != EEXIST ? -errno : 0;
}

int write_resolv_conf(void)
{
	static const char text[] = "nameserver " HOST_ADDR "\noptions timeout:2 attempts:2\n";

	(void)unlink("/etc/resolv.conf"); /* in images often a link into a resolver that does not
					     run here */
	return file_write_atomic(AT_FDCWD, "/etc/resolv.conf", text, sizeof(text) - 1, 0644);
}

int net_up(struct fail *why)
{
	autoclose int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int r;

	if (fd < 0)
		return fail_set(why, -errno, "network: %s", strerror(errno));
	r = link_up(fd, "lo");
	if (r < 0)
		return fail_set(why, r, "lo: %s", strerror(-r));
	if (if_nametoindex("eth0") == 0) {
		log_warning("init: no eth0, the guest has only itself");
		return 0;
	}
	r = eth_address(fd);
	if (r == 0)
		r = link_up(fd, "eth0");
	if (r == 0)
		r = eth_neighbour(fd);
	if (r == 0)
		r = eth_route(fd);
	if (r < 0)
		return fail_set(why, r, "eth0: %s", strerror(-r));
	r = write_resolv_conf();
	if (r < 0)
		log_warning("init: /etc/resolv.conf: %s", strerror(-r));
	return 0;
}
