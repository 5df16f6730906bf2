#include "net/ruleset.h"

#include <arpa/inet.h>
#include <libmnl/libmnl.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter_ipv4.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/proc.h"

#define TABLE(family) "{\"table\":{\"family\":\"" family "\",\"name\":\"slot\"}},\n"
#define CHAIN(family, name, rest) \
	"{\"chain\":{\"family\":\"" family "\",\"table\":\"slot\",\"name\":\"" name "\",\"type\":\"filter\"," \
	"\"policy\":\"drop\"," rest "}},\n"
#define RULE(family, chain, expr) \
	"{\"rule\":{\"family\":\"" family "\",\"table\":\"slot\",\"chain\":\"" chain "\",\"expr\":[" expr "]}},\n"
#define IS(op, left, right) "{\"match\":{\"op\":\"" op "\",\"left\":" left ",\"right\":" right "}},"
#define FIELD(proto, name) "{\"payload\":{\"protocol\":\"" proto "\",\"field\":\"" name "\"}}"
#define MASKED(field, mask) "{\"&\":[" field "," mask "]}"
#define META(key, value) IS("==", "{\"meta\":{\"key\":\"" key "\"}}", "\"" value "\"")
#define LIMIT(rate, burst) "{\"limit\":{\"rate\":" rate ",\"burst\":" burst ",\"per\":\"second\"}},"
#define ACCEPT "{\"accept\":null}"
#define DROP "{\"drop\":null}"

#define GUEST_MAC "\"02:00:00:00:00:02\""
#define GUEST_IP "\"100.64.0.2\""
#define HOST_IP "\"100.64.0.1\""

/* A segment of a connection that the host opened: anything but the first one. */
#define REPLY \
	META("iifname", "tap0") \
	IS("==", FIELD("ip", "saddr"), GUEST_IP) \
	IS("==", FIELD("ip", "daddr"), HOST_IP) \
	IS("!=", MASKED(FIELD("tcp", "flags"), "{\"|\":[\"syn\",\"ack\"]}"), "\"syn\"")

static const char ruleset[] =
	"{\"nftables\":[\n"
	TABLE("netdev")
	CHAIN("netdev", "ingress", "\"hook\":\"ingress\",\"dev\":\"tap0\",\"prio\":0")
	RULE("netdev", "ingress", IS("!=", FIELD("ether", "saddr"), GUEST_MAC) DROP)
	RULE("netdev", "ingress",
	     IS("==", FIELD("ether", "type"), "\"arp\"")
	     IS("==", FIELD("arp", "operation"), "\"request\"")
	     IS("==", FIELD("arp", "saddr ether"), GUEST_MAC)
	     IS("==", FIELD("arp", "saddr ip"), GUEST_IP)
	     IS("==", FIELD("arp", "daddr ip"), HOST_IP) ACCEPT)
	RULE("netdev", "ingress", IS("!=", FIELD("ether", "type"), "\"ip\"") DROP)
	RULE("netdev", "ingress", IS("!=", FIELD("ip", "saddr"), GUEST_IP) DROP)
	RULE("netdev", "ingress", IS("!=", FIELD("ip", "hdrlength"), "5") DROP)
	RULE("netdev", "ingress", IS("!=", MASKED(FIELD("ip", "frag-off"), "16383"), "0") DROP)
	RULE("netdev", "ingress", IS("==", FIELD("ip", "saddr"), GUEST_IP) ACCEPT)
	TABLE("inet")
	CHAIN("inet", "prerouting", "\"hook\":\"prerouting\",\"prio\":-300")
	CHAIN("inet", "input", "\"hook\":\"input\",\"prio\":0")
	CHAIN("inet", "forward", "\"hook\":\"forward\",\"prio\":0")
	CHAIN("inet", "output", "\"hook\":\"output\",\"prio\":0")
	RULE("inet", "prerouting", META("iifname", "lo") ACCEPT)
	RULE("inet", "prerouting", REPLY ACCEPT)
	RULE("inet", "prerouting",
	     META("iifname", "tap0") IS("==", FIELD("ip", "protocol"), "\"tcp\"")
	     LIMIT("1000", "500") "{\"reject\":{\"type\":\"tcp reset\"}}")
	RULE("inet", "prerouting",
	     META("iifname", "tap0") IS("==", FIELD("ip", "protocol"), "\"udp\"")
	     LIMIT("100", "100") "{\"reject\":{\"type\":\"icmp\",\"expr\":\"port-unreachable\"}}")
	RULE("inet", "prerouting",
	     META("iifname", "tap0") IS("==", FIELD("icmp", "type"), "\"echo-request\"")
	     LIMIT("20", "20") "{\"reject\":{\"type\":\"icmp\",\"expr\":\"admin-prohibited\"}}")
	RULE("inet", "input", META("iifname", "lo") ACCEPT)
	RULE("inet", "input", REPLY ACCEPT)
	RULE("inet", "output", META("oifname", "lo") ACCEPT)
	RULE("inet", "output",
	     META("oifname", "tap0")
	     IS("==", FIELD("ip", "saddr"), HOST_IP) IS("==", FIELD("ip", "daddr"), GUEST_IP) ACCEPT)
	RULE("inet", "output",
	     META("oifname", "tap0") IS("==", FIELD("ip", "daddr"), GUEST_IP)
	     IS("==", MASKED(FIELD("tcp", "flags"), "\"rst\""), "\"rst\"") ACCEPT)
	"{\"metainfo\":{\"json_schema_version\":1}}\n"
	"]}\n";

int ruleset_load(int ns_fd, struct fail *why)
{
	static const char *const argv[] = { "nft", "-j", "-f", "-", NULL };
	struct run_opts o = {
		.argv = argv,
		.input = STR(ruleset),
		.timeout_ms = 20000,
		.setns_net_fd = ns_fd,
	};
	int r = FAULT_WHY(why, run(&o, NULL, why));

	if (r == -ENOENT) {
		r = fail_as(why, ERR_host_unsuitable, "the program nft is not installed");
		fail_remedy(why, "apt install nftables");
		return r;
	}
	if (r < 0)
		fail_prefix(why, "loading the filter of a slot");
	return r;
}

/* What must be there. accepts: a chain's accepting rules in order, each with the least number of bytes that it compares (nft is free to
 * compare neighbouring fields together, and does). */
static const struct want {
	uint8_t family;
	const char *chain;
	uint32_t hook;
	int32_t prio;
	unsigned rules, naccepts, accepts[3];
} wants[] = {
	{ NFPROTO_NETDEV, "ingress", NF_NETDEV_INGRESS, 0, 7, 2, { 18, 4 } },
	{ NFPROTO_INET, "prerouting", NF_INET_PRE_ROUTING, NF_IP_PRI_RAW, 5, 2, { 3, 14 } },
	{ NFPROTO_INET, "input", NF_INET_LOCAL_IN, NF_IP_PRI_FILTER, 2, 2, { 3, 14 } },
	{ NFPROTO_INET, "forward", NF_INET_FORWARD, NF_IP_PRI_FILTER, 0, 0, { 0 } },
	{ NFPROTO_INET, "output", NF_INET_LOCAL_OUT, NF_IP_PRI_FILTER, 3, 3, { 3, 13, 10 } },
};

struct seen {
	bool chain[ARRAY_LEN(wants)];
	unsigned rules[ARRAY_LEN(wants)], accepts[ARRAY_LEN(wants)];
	struct fail *why;
	int r;
};

static int want_find(uint8_t family, const struct nlattr *table, const struct nlattr *chain)
{
	if (!table || !chain || strcmp(mnl_attr_get_str(table), "slot"))
		return -1;
	for (size_t i = 0; i < ARRAY_LEN(wants); i++)
		if (wants[i].family == family && !strcmp(wants[i].chain, mnl_attr_get_str(chain)))
			return (int)i;
	return -1;
}

static uint32_t be32_of(const struct nlattr *a)
{
	return a && mnl_attr_get_payload_len(a) >= 4 ? ntohl(mnl_attr_get_u32(a)) : UINT32_MAX;
}

static int differs(struct seen *s, const char *what, const char *chain)
{
	s->r = fail_set(s->why, -EPERM, "the filter of a slot was read back differently: %s (chain %s)", what, chain);
	return MNL_CB_ERROR;
}

static int chain_cb(const struct nlmsghdr *nlh, void *arg)
{
	const struct nfgenmsg *g = mnl_nlmsg_get_payload(nlh);
	const struct nlattr *a, *table = NULL, *name = NULL, *policy = NULL, *hook = NULL, *num = NULL, *prio = NULL;
	struct seen *s = arg;
	int i;

	mnl_attr_for_each(a, nlh, sizeof(*g)) {
		switch (mnl_attr_get_type(a)) {
		case NFTA_CHAIN_TABLE: table = a; break;
		case NFTA_CHAIN_NAME: name = a; break;
		case NFTA_CHAIN_POLICY: policy = a; break;
		case NFTA_CHAIN_HOOK: hook = a; break;
		}
	}
	i = want_find(g->nfgen_family, table, name);
	if (i < 0 || !hook)
		return differs(s, "a chain that is not ours", name ? mnl_attr_get_str(name) : "?");
	mnl_attr_for_each_nested(a, hook) {
		if (mnl_attr_get_type(a) == NFTA_HOOK_HOOKNUM)
			num = a;
		if (mnl_attr_get_type(a) == NFTA_HOOK_PRIORITY)
			prio = a;
	}
	if (be32_of(policy) != NF_DROP)
		return differs(s, "policy", wants[i].chain);
	if (be32_of(num) != wants[i].hook || (int32_t)be32_of(prio) != wants[i].prio)
		return differs(s, "hook or priority", wants[i].chain);
	s->chain[i] = true;
	return MNL_CB_OK;
}

/* The verdict of an `immediate` expression's data; -1 if it loads a value. */
static int64_t verdict_of(const struct nlattr *data)
{
	const struct nlattr *a, *b, *c;

	mnl_attr_for_each_nested(a, data) {
		if (mnl_attr_get_type(a) != NFTA_IMMEDIATE_DATA)
			continue;
		mnl_attr_for_each_nested(b, a) {
			if (mnl_attr_get_type(b) != NFTA_DATA_VERDICT)
				continue;
			mnl_attr_for_each_nested(c, b)
				if (mnl_attr_get_type(c) == NFTA_VERDICT_CODE)
					return be32_of(c);
		}
	}
	return -1;
}

/* How many bytes a `cmp` expression compares. */
static unsigned cmp_bytes(const struct nlattr *data)
{
	const struct nlattr *a, *b;

	mnl_attr_for_each_nested(a, data)
		if (mnl_attr_get_type(a) == NFTA_CMP_DATA)
			mnl_attr_for_each_nested(b, a)
				if (mnl_attr_get_type(b) == NFTA_DATA_VALUE)
					return mnl_attr_get_payload_len(b);
	return 0;
}

static int rule_cb(const struct nlmsghdr *nlh, void *arg)
{
	const struct nfgenmsg *g = mnl_nlmsg_get_payload(nlh);
	const struct nlattr *a, *e, *table = NULL, *chain = NULL, *exprs = NULL;
	struct seen *s = arg;
	unsigned compared = 0;
	bool accept = false, decides = false;
	int i;

	mnl_attr_for_each(a, nlh, sizeof(*g)) {
		switch (mnl_attr_get_type(a)) {
		case NFTA_RULE_TABLE: table = a; break;
		case NFTA_RULE_CHAIN: chain = a; break;
		case NFTA_RULE_EXPRESSIONS: exprs = a; break;
		}
	}
	i = want_find(g->nfgen_family, table, chain);
	if (i < 0 || !exprs)
		return differs(s, "a rule that is not ours", chain ? mnl_attr_get_str(chain) : "?");
	mnl_attr_for_each_nested(e, exprs) {
		const struct nlattr *name = NULL, *data = NULL;

		mnl_attr_for_each_nested(a, e) {
			if (mnl_attr_get_type(a) == NFTA_EXPR_NAME)
				name = a;
			if (mnl_attr_get_type(a) == NFTA_EXPR_DATA)
				data = a;
		}
		if (!name)
			continue;
		if (!strcmp(mnl_attr_get_str(name), "cmp"))
			compared += data ? cmp_bytes(data) : 0;
		else if (!strcmp(mnl_attr_get_str(name), "reject"))
			decides = true;
		else if (!strcmp(mnl_attr_get_str(name), "immediate") && data && verdict_of(data) >= 0) {
			decides = true;
			/* Anything but a drop (accept, continue, jump, …) counts as letting through. */
			accept = verdict_of(data) != NF_DROP;
		}
	}
	if (!decides)
		return differs(s, "a rule without a verdict", wants[i].chain);
	s->rules[i]++;
	if (!accept)
		return MNL_CB_OK;
	if (s->accepts[i] >= wants[i].naccepts || compared < wants[i].accepts[s->accepts[i]])
		return differs(s, "a rule accepts more than it should", wants[i].chain);
	s->accepts[i]++;
	return MNL_CB_OK;
}

/* One dump: send the question, hand each answer to CB. */
static int dump(int fd, uint8_t type, mnl_cb_t cb, struct seen *s)
{
	char buf[32 * 1024];
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(buf);
	struct nfgenmsg *g;
	unsigned seq = (unsigned)mono_ns();
	ssize_t n;
	int r = MNL_CB_OK;

	nlh->nlmsg_type = (uint16_t)(NFNL_SUBSYS_NFTABLES << 8 | type);
	nlh->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
	nlh->nlmsg_seq = seq;
	g = mnl_nlmsg_put_extra_header(nlh, sizeof(*g));
	g->nfgen_family = NFPROTO_UNSPEC;
	g->version = NFNETLINK_V0;
	g->res_id = 0;
	if (send(fd, buf, nlh->nlmsg_len, 0) < 0)
		return fail_set(s->why, -errno, "reading the filter of a slot back: %s", strerror(errno));
	while (r > MNL_CB_STOP) {
		n = recv(fd, buf, sizeof(buf), 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return fail_set(s->why, -errno, "reading the filter of a slot back: %s", strerror(errno));
		s->r = 0;
		r = mnl_cb_run(buf, (size_t)n, seq, 0, cb, s);
		if (r < 0)
			return s->r ? s->r : fail_set(s->why, -errno, "reading the filter of a slot back: %s", strerror(errno));
	}
	return 0;
}

int ruleset_verify(int nfnl_fd, struct fail *why)
{
	struct seen s = { .why = why };
	int r = dump(nfnl_fd, NFT_MSG_GETCHAIN, chain_cb, &s);

	if (r == 0)
		r = dump(nfnl_fd, NFT_MSG_GETRULE, rule_cb, &s);
	if (r < 0)
		return r;
	for (size_t i = 0; i < ARRAY_LEN(wants); i++) {
		if (!s.chain[i])
			differs(&s, "a chain is missing", wants[i].chain);
		else if (s.rules[i] != wants[i].rules || s.accepts[i] != wants[i].naccepts)
			differs(&s, "number of rules", wants[i].chain);
		else
			continue;
		return s.r;
	}
	return 0;
}
