/* ruleset.h - the fixed filter of a slot: the host may talk to the guest, the guest to nobody.
 *
 * As nft would print it (it is loaded as JSON, which spares a parser run and names every field):
 *
 *	table netdev slot {
 *		chain ingress {		first sight of what the guest sent; before any of the IP code
 *			type filter hook ingress device "tap0" priority 0; policy drop;
 *			ether saddr != 02:00:00:00:00:02 drop
 *			ether type arp arp operation request arp saddr ether 02:00:00:00:00:02 arp saddr ip 100.64.0.2
 *				arp daddr ip 100.64.0.1 accept
 *			ether type != ip drop		IPv6, VLAN tags, everything else
 *			ip saddr != 100.64.0.2 drop
 *			ip hdrlength != 5 drop		IP options
 *			ip frag-off & 0x3fff != 0 drop	fragments
 *			ip saddr 100.64.0.2 accept
 *		}
 *	}
 *	table inet slot {
 *		chain prerouting {
 *			type filter hook prerouting priority raw; policy drop;
 *			iifname lo accept
 *			iifname tap0 ip saddr 100.64.0.2 ip daddr 100.64.0.1 tcp flags & (syn | ack) != syn accept
 *			iifname tap0 ip protocol tcp limit rate 1000/second burst 500 reject with tcp reset
 *			iifname tap0 ip protocol udp limit rate 100/second burst 100 reject with icmp port-unreachable
 *			iifname tap0 icmp type echo-request limit rate 20/second burst 20 reject with icmp admin-prohibited
 *		}
 *		chain input   { hook input;   policy drop; the first two rules of prerouting }
 *		chain forward { hook forward; policy drop; no rule }
 *		chain output {
 *			type filter hook output priority filter; policy drop;
 *			oifname lo accept
 *			oifname tap0 ip saddr 100.64.0.1 ip daddr 100.64.0.2 accept
 *			oifname tap0 ip daddr 100.64.0.2 tcp flags & rst == rst accept		resets in the name of others
 *		}
 *	}
 *
 * Nothing is tracked (no `ct`, no nat): a guest cannot fill a table that the host shares. What is refused is refused at once where a
 * tool would otherwise wait: a reset for TCP, an ICMP error for UDP and ping; the limits bound the work a flooding guest causes. */
#ifndef SPACE_NET_RULESET_H
#define SPACE_NET_RULESET_H

#include "base/fail.h"

/* Loads it into the namespace NS_FD, which holds no rules yet. One transaction. */
int ruleset_load(int ns_fd, struct fail *why);

/* Reads back from the kernel, through NFNL (a NETLINK_NETFILTER socket made in that namespace), and compares: every base chain there
 * with its hook, priority and policy; as many rules as loaded; and no rule that accepts after comparing fewer bytes than ours do.
 * -EPERM and what differs otherwise. */
int ruleset_verify(int nfnl_fd, struct fail *why);

#endif
