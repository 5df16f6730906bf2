/* config.c - space.yaml: see config.h. One table serves reading, printing and JSON, so that no key is known to one of them only. */
#include <fcntl.h>
#include <stdio.h>
#include <yaml.h>

#include "base/file.h"
#include "base/json.h"
#include "sandbox/config.h"

#define CONFIG_MAX (256 * 1024)
#define DEFAULT_FILE "/etc/space/space.yaml"

enum key_kind { KEY_TEXT, KEY_ADDRESS, KEY_NAME, KEY_WORD, KEY_NUM, KEY_UINT, KEY_SIZE, KEY_SECONDS, KEY_RETENTION, KEY_FORMAT };

struct key {
	const char *group, *name; /* group: the mapping it stands in; NULL: the top */
	enum key_kind kind;
	size_t at, size; /* size of a text field, with the NUL */
	double min, max; /* of the value; both 0: any */
	const char *words; /* KEY_WORD: "a|b|c" */
	const char *says;
};

#define AT(m) offsetof(struct config, m), sizeof(((struct config *)0)->m)

static const struct key keys[] = {
	{ NULL, "listen", KEY_ADDRESS, AT(listen), 0, 0, NULL,
	  "Address and port of the API. Another than loopback needs a key to exist. \"off\": the local socket only" },
	{ "tls", "cert", KEY_TEXT, AT(tls_cert), 0, 0, NULL, "PEM file with the certificate and its chain; empty: plain HTTP" },
	{ "tls", "key", KEY_TEXT, AT(tls_key), 0, 0, NULL, "PEM file with its key" },
	{ NULL, "domain", KEY_TEXT, AT(domain), 0, 0, NULL, "Ports of sandboxes are served at PORT-ID.DOMAIN" },
	{ NULL, "log_level", KEY_WORD, AT(log_level), 0, 0, "error|warning|info|debug", "error, warning, info or debug" },
	{ NULL, "log_format", KEY_FORMAT, AT(log_json), 0, 0, NULL, "text, or json: one object a line" },
	{ NULL, "socket_group", KEY_TEXT, AT(socket_group), 0, 0, NULL,
	  "Members of this group may use the local socket, if the group exists" },
	{ NULL, "accel", KEY_WORD, AT(accel), 0, 0, "auto|kvm|tcg", "auto takes KVM where it works; kvm insists on it; tcg never uses it" },
	{ NULL, "overcommit", KEY_NUM, AT(overcommit), 0.1, 16, NULL, "Sandboxes may reserve this times memory_limit" },
	{ NULL, "memory_limit", KEY_SIZE, AT(memory_limit), 0, 0x1p50, NULL, "Memory for sandboxes; 0: the host's, less 1 GiB" },
	{ NULL, "pool_size", KEY_SIZE, AT(pool_size), 0, 0x1p50, NULL,
	  "Size of the XFS image, where the file system cannot clone files; 0: it starts small and grows while the host has room" },
	{ NULL, "ready_monitors", KEY_UINT, AT(ready_monitors), 0, 64, NULL, "Monitors kept started for the default template" },
	{ NULL, "ready_slots", KEY_UINT, AT(ready_slots), 0, 256, NULL, "Network namespaces kept ready" },
	{ NULL, "uid_base", KEY_UINT, AT(uid_base), 0, 4000000000.0, NULL,
	  "Each monitor runs as a uid of its own from here on; 0: 200000, or with another state directory a number made of its name" },
	{ NULL, "max_sandboxes", KEY_UINT, AT(max_sandboxes), 1, 2000, NULL, "More are refused with no_capacity" },
	{ NULL, "share", KEY_WORD, AT(share), 0, 0, "tenant|host",
	  "Sandboxes of one tenant share the memory pages of what they were started from; host: all of them do, which saves memory, and lets one tenant "
	  "find out by timing what pages another one uses" },
	{ NULL, "retention", KEY_RETENTION, AT(retention_s), 0, 100 * 366.0 * 86400, NULL,
	  "Checkpoints and snapshots that nothing needs are removed when they are older than this; 0: never. {default: 30d, NAME: 7d}: of the tenant NAME "
	  "after seven days, of all others after thirty" },
	{ NULL, "output_keep", KEY_SIZE, AT(output_keep), 4096, 64.0 * MIB, NULL, "Output kept of each stream of a process" },
	{ "defaults", "template", KEY_NAME, AT(template), 0, 0, NULL, "Template of a sandbox that names none" },
	{ "defaults", "vcpu", KEY_UINT, AT(vcpu), 1, 32, NULL, "Virtual CPUs of a template that names none" },
	{ "defaults", "memory", KEY_SIZE, AT(memory), 128.0 * MIB, 0x1p40, NULL, "Its memory, a multiple of 2 MiB" },
	{ "defaults", "disk", KEY_SIZE, AT(disk), 64.0 * MIB, 0x1p44, NULL, "Its disk; sparse, what is not written takes no room" },
	{ "defaults", "timeout", KEY_SECONDS, AT(timeout_s), 0, 366.0 * 86400, NULL, "A sandbox ends this long after its creation; 0: never" },
	{ "defaults", "idle_timeout", KEY_SECONDS, AT(idle_timeout_s), 0, 366.0 * 86400, NULL,
	  "… and after this long without a process, stream or traffic; 0: never" },
	{ "defaults", "max_timeout", KEY_SECONDS, AT(max_timeout_s), 0, 366.0 * 86400, NULL, "The longest timeout that may be asked for; 0: any" },
};

void config_defaults(struct config *c)
{
	*c = (struct config){
		.state_dir = "/var/lib/space", .run_dir = "/run/space", .config_file = DEFAULT_FILE,
		.libexec_dir = "/usr/local/libexec/space", .listen = "127.0.0.1:7070", .domain = "localhost",
		.log_level = "info", .socket_group = "space", .accel = "auto", .overcommit = 1.5, .ready_monitors = 2,
		.share = "tenant", .ready_slots = 4, .uid_base = 0, .max_sandboxes = 1000, .template = "base", .vcpu = 1,
		.memory = 512 * MIB, .disk = 5 * GIB, .timeout_s = 300, .max_timeout_s = 0, .output_keep = 1 * MIB,
	};
}

/* --- reading --- */

struct reader {
	struct config *c;
	const char *path;
	yaml_parser_t yaml;
	yaml_event_t event;
	bool have; /* event is to be deleted */
	bool seen[ARRAY_LEN(keys)];
	struct fail *why;
};

static int bad(struct reader *r, size_t line, const char *fmt, ...) PRINTF(3, 4);
static int bad(struct reader *r, size_t line, const char *fmt, ...)
{
	char msg[160];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(msg, sizeof(msg), fmt, ap);
	va_end(ap);
	fail_as(r->why, ERR_bad_request, "%s, line %zu: %s", r->path, line + 1, msg);
	fail_remedy(r->why, "space config show prints every key with its meaning");
	return -EINVAL;
}

static int next(struct reader *r)
{
	if (r->have)
		yaml_event_delete(&r->event);
	r->have = false;
	if (!yaml_parser_parse(&r->yaml, &r->event))
		return bad(r, r->yaml.problem_mark.line, "not valid YAML: %s", r->yaml.problem ? r->yaml.problem : "?");
	r->have = true;
	if (r->event.type == YAML_ALIAS_EVENT)
		return bad(r, r->event.start_mark.line, "aliases are not taken here");
	return 0;
}

static struct str scalar(const struct reader *r)
{
	return (struct str){ (const char *)r->event.data.scalar.value, r->event.data.scalar.length };
}

static int find_key(const char *group, struct str name)
{
	for (size_t i = 0; i < ARRAY_LEN(keys); i++)
		if ((group ? keys[i].group && !strcmp(group, keys[i].group) : !keys[i].group) && str_eqz(name, keys[i].name))
			return (int)i;
	return -1;
}

static bool word_in(const char *words, struct str v)
{
	struct str left = str_of(words), w;
	bool more = true;

	while (more) {
		more = str_cut(left, '|', &w, &left);
		if (v.n && str_eq(w, v))
			return true;
	}
	return false;
}

/* "HOST:PORT", "[V6]:PORT" or "off". Whether the host exists is found out when it is bound. */
static bool address_ok(struct str v)
{
	uint64_t port;
	size_t colon = v.n;

	if (str_eqz(v, "off"))
		return true;
	while (colon > 0 && v.p[colon - 1] != ':')
		colon--;
	return colon > 1 && !str_u64((struct str){ v.p + colon, v.n - colon }, 65535, &port);
}

static int in_range(struct reader *r, const struct key *k, size_t line, double v)
{
	if ((k->min == 0 && k->max == 0) || (v >= k->min && v <= k->max))
		return 0;
	return bad(r, line, "%s: from %.10g to %.10g", k->name, k->min, k->max);
}

static int set_number(struct reader *r, const struct key *k, size_t line, struct str v)
{
	void *at = (char *)r->c + k->at;
	char text[64], *end;
	uint64_t u;
	int64_t ms;
	double d;

	switch (k->kind) {
	case KEY_NUM:
		if (str_copy(text, sizeof(text), v) < 0 || !v.n || (d = strtod(text, &end), *end))
			return bad(r, line, "%s: a number", k->name);
		if (in_range(r, k, line, d) < 0)
			return -EINVAL;
		*(double *)at = d;
		return 0;
	case KEY_UINT:
		if (str_u64(v, UINT32_MAX, &u) < 0)
			return bad(r, line, "%s: a whole number", k->name);
		if (in_range(r, k, line, (double)u) < 0)
			return -EINVAL;
		*(unsigned *)at = (unsigned)u;
		return 0;
	case KEY_SIZE:
		if (str_size(v, &u) < 0)
			return bad(r, line, "%s: a size, as 512M or 5G", k->name);
		if (in_range(r, k, line, (double)u) < 0)
			return -EINVAL;
		*(uint64_t *)at = u;
		return 0;
	default:
		if (str_duration_ms(v, &ms) < 0)
			return bad(r, line, "%s: a duration, as 300s or 10m", k->name);
		if (in_range(r, k, line, (double)ms / 1000) < 0)
			return -EINVAL;
		*(int64_t *)at = (ms + 999) / 1000;
		return 0;
	}
}

static int set(struct reader *r, const struct key *k, size_t line, struct str v)
{
	char *at = (char *)r->c + k->at;

	switch (k->kind) {
	case KEY_FORMAT:
		if (!str_eqz(v, "text") && !str_eqz(v, "json"))
			return bad(r, line, "%s: text or json", k->name);
		*(bool *)at = str_eqz(v, "json");
		return 0;
	case KEY_WORD:
		if (!word_in(k->words, v))
			return bad(r, line, "%s: one of %s", k->name, k->words);
		break;
	case KEY_NAME:
		if (!str_is_name(v))
			return bad(r, line, "%s: a name of a-z, 0-9, \".\", \"_\" and \"-\"", k->name);
		break;
	case KEY_ADDRESS:
		if (!address_ok(v))
			return bad(r, line, "%s: ADDRESS:PORT, or off", k->name);
		break;
	case KEY_TEXT:
		break;
	default:
		return set_number(r, k, line, v);
	}
	if (str_has_ctl(v) || str_copy(at, k->size, v) < 0)
		return bad(r, line, "%s: at most %zu characters, none of them a control character", k->name, k->size - 1);
	return 0;
}

static int read_mapping(struct reader *r, const char *group);

int64_t config_retention(const struct config *c, const char *tenant)
{
	for (unsigned i = 0; i < c->nretentions; i++)
		if (!strcmp(c->retentions[i].tenant, tenant))
			return c->retentions[i].s;
	return c->retention_s;
}

/* One pair of "retention: {default: 30d, NAME: 7d}"; its name is under the cursor. */
static int read_retention(struct reader *r, const struct key *k, bool *had_default)
{
	struct config *c = r->c;
	size_t line = r->event.start_mark.line;
	int64_t others = c->retention_s;
	char name[64];
	int err;

	if (r->event.type != YAML_SCALAR_EVENT || str_copy(name, sizeof(name), scalar(r)) < 0 || !str_is_name(str_of(name)) ||
	    strlen(name) >= sizeof(c->retentions[0].tenant))
		return bad(r, line, "retention: \"default\", or the name of a tenant: at most 31 of a-z, 0-9, \".\", \"_\" and \"-\"");
	if ((err = next(r)) < 0)
		return err;
	if (r->event.type != YAML_SCALAR_EVENT)
		return bad(r, line, "retention.%s: takes one value", name);
	if ((err = set_number(r, k, line, scalar(r))) < 0)
		return err;
	if (!strcmp(name, "default")) {
		if (*had_default)
			return bad(r, line, "retention.%s: given twice", name);
		*had_default = true;
		return 0;
	}
	for (unsigned i = 0; i < c->nretentions; i++)
		if (!strcmp(c->retentions[i].tenant, name))
			return bad(r, line, "retention.%s: given twice", name);
	if (c->nretentions == RETENTIONS_MAX)
		return bad(r, line, "retention: at most %d tenants", RETENTIONS_MAX);
	(void)str_copy(c->retentions[c->nretentions].tenant, sizeof(c->retentions[0].tenant), str_of(name));
	c->retentions[c->nretentions++].s = c->retention_s;
	c->retention_s = others;
	return 0;
}

static int read_retentions(struct reader *r, const struct key *k)
{
	bool had_default = false;
	int err;

	while ((err = next(r)) == 0 && r->event.type != YAML_MAPPING_END_EVENT)
		if ((err = read_retention(r, k, &had_default)) < 0)
			break;
	return err;
}

static int read_pair(struct reader *r, const char *group)
{
	static const char *const groups[] = { "tls", "defaults" };
	size_t line = r->event.start_mark.line;
	char name[64];
	int i, err;

	if (r->event.type != YAML_SCALAR_EVENT || str_copy(name, sizeof(name), scalar(r)) < 0)
		return bad(r, line, "a key has to be a plain word");
	i = find_key(group, scalar(r));
	if ((err = next(r)) < 0)
		return err;
	if (i < 0) {
		for (size_t g = 0; !group && g < ARRAY_LEN(groups); g++) {
			if (strcmp(name, groups[g]))
				continue;
			if (r->event.type == YAML_SCALAR_EVENT && !scalar(r).n)
				return 0; /* "tls:" with nothing under it */
			if (r->event.type != YAML_MAPPING_START_EVENT)
				return bad(r, line, "%s: takes a mapping of keys", name);
			return read_mapping(r, groups[g]);
		}
		return bad(r, line, "unknown key \"%s%s%s\"", group ? group : "", group ? "." : "", name);
	}
	if (r->seen[i])
		return bad(r, line, "%s: given twice", name);
	r->seen[i] = true;
	if (keys[i].kind == KEY_RETENTION && r->event.type == YAML_MAPPING_START_EVENT)
		return read_retentions(r, &keys[i]);
	if (r->event.type != YAML_SCALAR_EVENT)
		return bad(r, line, "%s: takes one value", name);
	return set(r, &keys[i], line, scalar(r));
}

/* The event under the cursor is the start of the mapping; afterwards it is its end. */
static int read_mapping(struct reader *r, const char *group)
{
	int err;

	for (;;) {
		if ((err = next(r)) < 0)
			return err;
		if (r->event.type == YAML_MAPPING_END_EVENT)
			return 0;
		if ((err = read_pair(r, group)) < 0)
			return err;
	}
}

static int read_document(struct reader *r)
{
	int err;

	while ((err = next(r)) == 0) {
		switch (r->event.type) {
		case YAML_STREAM_START_EVENT:
		case YAML_DOCUMENT_START_EVENT:
		case YAML_DOCUMENT_END_EVENT:
			break;
		case YAML_STREAM_END_EVENT:
			return 0;
		case YAML_MAPPING_START_EVENT:
			if ((err = read_mapping(r, NULL)) < 0)
				return err;
			break;
		case YAML_SCALAR_EVENT:
			if (!scalar(r).n)
				break; /* comments only */
			__attribute__((fallthrough));
		default:
			return bad(r, r->event.start_mark.line, "the file has to be a mapping of keys");
		}
	}
	return err;
}

/* What no single key can say. */
static int check(const struct config *c, const char *path, struct fail *why)
{
	const char *said = NULL;

	if (!c->tls_cert[0] != !c->tls_key[0])
		said = "tls: needs both cert and key";
	else if (c->memory % (2 * MIB))
		said = "defaults.memory: a multiple of 2M";
	else if (c->uid_base && c->uid_base < 1000)
		said = "uid_base is below 1000, where the host's own users are";
	else if (c->max_timeout_s && c->timeout_s > c->max_timeout_s)
		said = "defaults.timeout is longer than defaults.max_timeout";
	else if (!c->domain[0])
		said = "domain: must not be empty";
	if (!said)
		return 0;
	return fail_as(why, ERR_bad_request, "%s: %s", path, said);
}

int config_load(struct config *c, const char *path, struct fail *why)
{
	struct config next_c = *c;
	struct reader r = { .c = &next_c, .path = path, .why = why };
	autofree char *text = NULL;
	ssize_t n = file_read(AT_FDCWD, path, &text, CONFIG_MAX);
	int err;

	if (n == -ENOENT && !strcmp(path, DEFAULT_FILE))
		return 0;
	if (n < 0) {
		fail_set(why, (int)n, "configuration %s: %s", path, n == -EFBIG ? "over 256 KiB" : strerror((int)-n));
		fail_remedy(why, "give --config the file's path, or leave it out for the defaults");
		return (int)n;
	}
	if (!yaml_parser_initialize(&r.yaml))
		return fail_set(why, -ENOMEM, "configuration: out of memory");
	yaml_parser_set_input_string(&r.yaml, (const unsigned char *)text, (size_t)n);
	err = read_document(&r);
	if (r.have)
		yaml_event_delete(&r.event);
	yaml_parser_delete(&r.yaml);
	if (err == 0)
		err = check(&next_c, path, why);
	if (err < 0)
		return err;
	if (path != c->config_file)
		(void)str_copy(next_c.config_file, sizeof(next_c.config_file), str_of(path));
	*c = next_c;
	return 0;
}

/* --- printing --- */

/* In the largest unit that leaves a whole number, so that what is printed reads back as the same. */
static void size_text(char out[32], uint64_t v)
{
	static const char units[] = "KMGT";
	int u = -1;

	while (v && v % 1024 == 0 && u < 3) {
		v /= 1024;
		u++;
	}
	if (u < 0)
		snprintf(out, 32, "%llu", (unsigned long long)v);
	else
		snprintf(out, 32, "%llu%c", (unsigned long long)v, units[u]);
}

static int print_value(const struct config *c, const struct key *k, struct buf *out)
{
	const void *at = (const char *)c + k->at;
	char text[32];

	switch (k->kind) {
	case KEY_FORMAT:
		return buf_addz(out, *(const bool *)at ? "json" : "text");
	case KEY_NUM:
		return buf_addf(out, "%.10g", *(const double *)at);
	case KEY_UINT:
		return buf_addf(out, "%u", *(const unsigned *)at);
	case KEY_SIZE:
		size_text(text, *(const uint64_t *)at);
		return buf_addz(out, text);
	case KEY_RETENTION:
		if (c->nretentions) {
			buf_addf(out, "{default: %llds", (long long)c->retention_s);
			for (unsigned i = 0; i < c->nretentions; i++)
				buf_addf(out, ", \"%s\": %llds", c->retentions[i].tenant, (long long)c->retentions[i].s);
			return buf_addc(out, '}');
		}
		__attribute__((fallthrough));
	case KEY_SECONDS:
		return buf_addf(out, "%llds", (long long)*(const int64_t *)at);
	case KEY_WORD:
	case KEY_NAME:
		return buf_addz(out, at);
	default: /* quoted: it may hold anything but control characters */
		buf_addc(out, '"');
		for (const char *p = at; *p; p++) {
			if (*p == '"' || *p == '\\')
				buf_addc(out, '\\');
			buf_addc(out, *p);
		}
		return buf_addc(out, '"');
	}
}

int config_print(const struct config *c, struct buf *out)
{
	const char *group = NULL;
	int r = buf_addf(out, "# The configuration in force. File: %s; state: %s; run: %s\n", c->config_file, c->state_dir, c->run_dir);

	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		const struct key *k = &keys[i];
		const char *indent = k->group ? "  " : "";

		if (k->group && (!group || strcmp(group, k->group)))
			buf_addf(out, "\n%s:\n", k->group);
		group = k->group;
		buf_addf(out, "%s%s# %s\n%s%s: ", k->group ? "" : "\n", indent, k->says, indent, k->name);
		print_value(c, k, out);
		r = buf_addc(out, '\n');
	}
	return r;
}

/* As it was given: one number, or one for each. */
static void retention_json(const struct config *c, struct jw *w, const char *key)
{
	if (!c->nretentions) {
		jw_int(w, key, c->retention_s);
		return;
	}
	jw_obj(w, key);
	jw_int(w, "default", c->retention_s);
	for (unsigned i = 0; i < c->nretentions; i++)
		jw_int(w, c->retentions[i].tenant, c->retentions[i].s);
	jw_obj_end(w);
}

int config_json(const struct config *c, struct buf *out)
{
	const char *group = NULL;
	struct jw w;

	jw_init(&w, out);
	jw_obj(&w, NULL);
	jw_str(&w, "config_file", c->config_file);
	jw_str(&w, "state_dir", c->state_dir);
	jw_str(&w, "run_dir", c->run_dir);
	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		const struct key *k = &keys[i];
		const void *at = (const char *)c + k->at;

		if (group && (!k->group || strcmp(group, k->group)))
			jw_obj_end(&w);
		if (k->group && (!group || strcmp(group, k->group)))
			jw_obj(&w, k->group);
		group = k->group;
		switch (k->kind) {
		case KEY_NUM: jw_num(&w, k->name, *(const double *)at); break;
		case KEY_UINT: jw_int(&w, k->name, *(const unsigned *)at); break;
		case KEY_SIZE: jw_int(&w, k->name, (int64_t)*(const uint64_t *)at); break;
		case KEY_SECONDS: jw_int(&w, k->name, *(const int64_t *)at); break;
		case KEY_RETENTION: retention_json(c, &w, k->name); break;
		case KEY_FORMAT: jw_str(&w, k->name, *(const bool *)at ? "json" : "text"); break;
		default: jw_str(&w, k->name, at);
		}
	}
	if (group)
		jw_obj_end(&w);
	jw_obj_end(&w);
	return w.err;
}
