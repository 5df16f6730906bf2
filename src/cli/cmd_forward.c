/* cmd_forward.c - forward: a port of this machine as a port of a sandbox.
 *
 * Each connection becomes an upgraded call to …/tcp/PORT and is relayed byte for byte, with back-pressure and half
 * closes both ways, so that any protocol works. */
#include <arpa/inet.h>
#include <signal.h>

#include "cli/cli.h"

#define CONNS_MAX 1000
#define HIGH_WATER (256 * 1024)
#define PORTS_MAX 32

static struct {
	const char *address;
} forward_o = { .address = "127.0.0.1" };

static const struct opt forward_opts[] = {
	{ "address", 'a', OPT_STR, offsetof(__typeof__(forward_o), address), "IP", "listen there instead of on 127.0.0.1" },
};

struct forward {
	struct cli *c;
	const char *id;
	bool over;
	unsigned conns;
	int signalled;
};

struct port {
	struct forward *f;
	int local, remote;
	uv_tcp_t listener;
};

struct relay {
	struct port *p;
	uv_tcp_t client;
	struct http_call *call;	    /* until the answer */
	struct http_stream *stream; /* after it */
	bool closing, client_gone, reading, client_ended, far_ended, stream_paused;
	int status;
	char error[512];
	size_t nerror;
	char bite[64 * 1024];
};

struct piece {
	uv_write_t req;
	struct relay *r;
	char data[];
};

static void relay_read(struct relay *r);

static void client_closed(uv_handle_t *h)
{
	struct relay *r = h->data;

	r->client_gone = true;
	if (!r->stream && !r->call) {
		r->p->f->conns--;
		free(r);
	}
}

static void relay_close(struct relay *r)
{
	if (r->closing)
		return;
	r->closing = true;
	if (!uv_is_closing((uv_handle_t *)&r->client))
		uv_close((uv_handle_t *)&r->client, client_closed);
	if (r->stream)
		http_stream_close(r->stream);
	else if (r->call)
		http_call_cancel(r->call);
}

/* The far side is over: frees R if the client's handle is closed already. */
static void far_gone(struct relay *r)
{
	if (r->client_gone) {
		r->p->f->conns--;
		free(r);
	} else if (!uv_is_closing((uv_handle_t *)&r->client)) {
		uv_close((uv_handle_t *)&r->client, client_closed);
	}
}

/* --- sandbox to client --- */
static void client_written(uv_write_t *w, int status)
{
	struct piece *p = (struct piece *)w;
	struct relay *r = p->r;

	free(p);
	if (status < 0) {
		relay_close(r);
		return;
	}
	if (r->stream && r->stream_paused && uv_stream_get_write_queue_size((uv_stream_t *)&r->client) < HIGH_WATER / 4) {
		r->stream_paused = false;
		http_stream_resume(r->stream);
	}
}

static void client_shut(uv_shutdown_t *s, int status)
{
	struct relay *r = s->data;

	free(s);
	if (r->client_ended)
		relay_close(r);
}

static void client_end(struct relay *r)
{
	uv_shutdown_t *s = calloc(1, sizeof(*s));

	r->far_ended = true;
	if (!s || uv_is_closing((uv_handle_t *)&r->client)) {
		free(s);
		return;
	}
	s->data = r;
	if (uv_shutdown(s, (uv_stream_t *)&r->client, client_shut) < 0) {
		free(s);
		relay_close(r);
	}
}

static void stream_data(struct http_stream *s, const char *data, ssize_t len, void *arg)
{
	struct relay *r = arg;
	struct piece *p;
	uv_buf_t b;

	if (uv_is_closing((uv_handle_t *)&r->client))
		return;
	if (len <= 0) {
		if (len < 0)
			relay_close(r);
		else
			client_end(r);
		return;
	}
	p = malloc(sizeof(*p) + (size_t)len);
	if (!p) {
		relay_close(r);
		return;
	}
	p->r = r;
	memcpy(p->data, data, (size_t)len);
	b = uv_buf_init(p->data, (unsigned)len);
	if (uv_write(&p->req, (uv_stream_t *)&r->client, &b, 1, client_written) < 0) {
		free(p);
		relay_close(r);
		return;
	}
	if (uv_stream_get_write_queue_size((uv_stream_t *)&r->client) > HIGH_WATER) {
		r->stream_paused = true;
		http_stream_pause(s);
	}
}

static void stream_drain(struct http_stream *s, void *arg)
{
	relay_read(arg);
}

static void stream_close(struct http_stream *s, void *arg)
{
	struct relay *r = arg;

	r->stream = NULL;
	far_gone(r);
}

/* --- client to sandbox --- */
static void client_alloc(uv_handle_t *h, size_t hint, uv_buf_t *b)
{
	struct relay *r = h->data;

	*b = uv_buf_init(r->bite, sizeof(r->bite));
}

static void client_data(uv_stream_t *s, ssize_t n, const uv_buf_t *b)
{
	struct relay *r = s->data;
	int w;

	if (n == 0 || !r->stream)
		return;
	if (n == UV_EOF) {
		r->client_ended = true;
		uv_read_stop(s);
		http_stream_end(r->stream);
		if (r->far_ended)
			relay_close(r);
		return;
	}
	w = n < 0 ? -1 : http_stream_write(r->stream, b->base, (size_t)n);
	if (w < 0) {
		relay_close(r);
	} else if (w > 0) {
		r->reading = false;
		uv_read_stop(s);
	}
}

static void relay_read(struct relay *r)
{
	if (r->reading || r->client_ended || uv_is_closing((uv_handle_t *)&r->client))
		return;
	r->reading = true;
	uv_read_start((uv_stream_t *)&r->client, client_alloc, client_data);
}

/* --- the call --- */
static void call_head(struct http_call *call, const struct http_head *h, void *arg)
{
	((struct relay *)arg)->status = h->status;
}

static void call_data(struct http_call *call, const char *data, size_t len, void *arg)
{
	struct relay *r = arg;
	size_t n = MIN(len, sizeof(r->error) - r->nerror);

	memcpy(r->error + r->nerror, data, n);
	r->nerror += n;
}

static void call_end(struct http_call *call, const struct fail *why, void *arg)
{
	struct relay *r = arg;
	struct fail f = *why;

	r->call = NULL;
	if (r->status >= 300)
		api_error(r->status, (struct str){ r->error, r->nerror }, &f);
	else if (f.err < 0 && f.err != -ECANCELED)
		api_explain(r->p->f->c, &f);
	if (f.err < 0 && f.err != -ECANCELED)
		cli_fail(r->p->f->c, &f);
	far_gone(r);
}

static void call_upgrade(struct http_call *call, const struct http_head *h, struct http_stream *s, void *arg)
{
	static const struct http_stream_cb cb = { .on_data = stream_data, .on_drain = stream_drain, .on_close = stream_close };
	struct relay *r = arg;

	r->call = NULL;
	r->stream = s;
	http_stream_set_cb(s, &cb, r);
	if (uv_is_closing((uv_handle_t *)&r->client))
		http_stream_close(s);
	else
		relay_read(r);
}

static int relay_call(struct relay *r)
{
	static const struct http_call_cb cb = { .on_head = call_head, .on_data = call_data, .on_end = call_end, .on_upgrade = call_upgrade };
	struct forward *f = r->p->f;
	autofree char *path = api_path("/v1/sandboxes/%s/tcp/%d", f->id, r->p->remote);
	autobuf struct buf full;
	struct http_header h[8];
	struct http_call_opts o = { .method = "GET", .headers = h, .upgrade = true, .head_timeout_ms = 30000 };

	buf_init(&full, 4 * KIB);
	if (!path || buf_addf(&full, "%s%s", f->c->prefix, path) < 0 || buf_addc(&full, 0) < 0)
		return -ENOMEM;
	o.target = full.p;
	h[o.nheaders++] = (struct http_header){ STR("Upgrade"), STR("tcp") };
	o.nheaders = api_headers(f->c, h, o.nheaders);
	r->call = http_call_start(f->c->ep, &o, &cb, r);
	return r->call ? 0 : -ENOMEM;
}

static void on_connection(uv_stream_t *s, int status)
{
	struct port *p = s->data;
	struct relay *r = status < 0 ? NULL : calloc(1, sizeof(*r));

	if (!r)
		return;
	r->p = p;
	r->client.data = r;
	uv_tcp_init(p->f->c->loop, &r->client);
	p->f->conns++;
	if (uv_accept(s, (uv_stream_t *)&r->client) < 0 || p->f->conns > CONNS_MAX || relay_call(r) < 0) {
		uv_close((uv_handle_t *)&r->client, client_closed);
		return;
	}
	uv_tcp_nodelay(&r->client, 1);
}

/* --- the command --- */
/* "3000", "8080:3000", "0:3000" */
static int port_parse(const char *word, struct port *p)
{
	struct str left, right;
	uint64_t a, b;

	if (!str_cut(str_of(word), ':', &left, &right))
		right = left;
	if (str_u64(left, 65535, &a) < 0 || str_u64(right, 65535, &b) < 0 || b == 0)
		return -EINVAL;
	p->local = (int)a;
	p->remote = (int)b;
	return 0;
}

static int port_listen(struct port *p, struct fail *why)
{
	struct sockaddr_storage ss;
	int n = sizeof(ss), r;

	memset(&ss, 0, sizeof(ss));
	if (uv_ip4_addr(forward_o.address, p->local, (struct sockaddr_in *)&ss) < 0 &&
		uv_ip6_addr(forward_o.address, p->local, (struct sockaddr_in6 *)&ss) < 0)
		return fail_here(why, -EINVAL, "\"%.60s\" is no IP address", forward_o.address);
	p->listener.data = p;
	uv_tcp_init(p->f->c->loop, &p->listener);
	r = uv_tcp_bind(&p->listener, (struct sockaddr *)&ss, 0);
	if (r == 0)
		r = uv_listen((uv_stream_t *)&p->listener, 128, on_connection);
	if (r < 0) {
		fail_here(why, r, "cannot listen on %.60s:%d: %s", forward_o.address, p->local, strerror(-r));
		if (r == -EADDRINUSE)
			fail_remedy(why, "another port of this machine: space forward ID %d:%d (0: any free one)", p->local ? p->local + 1 : 0,
				p->remote);
		return r;
	}
	uv_tcp_getsockname(&p->listener, (struct sockaddr *)&ss, &n);
	p->local = ntohs(((struct sockaddr_in *)&ss)->sin_port); /* at the same place in both families */
	return 0;
}

static void on_signal(uv_signal_t *s, int sig)
{
	struct forward *f = s->data;

	f->signalled = sig;
	f->over = true;
}

static int forward_run(struct cli *c, int argc, char **argv)
{
	static struct forward f;
	static struct port ports[PORTS_MAX];
	static uv_signal_t signals[3];
	static const int caught[] = { SIGINT, SIGTERM, SIGHUP };
	autofree char *path = api_path("/v1/sandboxes/%s", argv[0]);
	struct fail why = { 0 };
	autojson json_t *sb = NULL;

	f = (struct forward){ .c = c, .id = argv[0] };
	/* A wrong id is told now and not at the first connection. */
	if (api_call(c, "GET", path, NULL, &sb, &why) < 0)
		return cli_fail(c, &why);
	f.id = get_str(sb, "id");
	for (int i = 0; i < argc - 1; i++) {
		ports[i].f = &f;
		if (port_parse(argv[i + 1], &ports[i]) < 0)
			return cli_usage(c, "forward: \"%s\" is no port: PORT or HERE:THERE", argv[i + 1]);
		if (port_listen(&ports[i], &why) < 0)
			return cli_fail(c, &why);
		if (c->json) {
			autojson json_t *line = json_pack("{s:s,s:i,s:i}", "address", forward_o.address, "port", ports[i].local, "to",
				ports[i].remote);

			json_print(c, line);
		} else {
			printf("http://%s:%d -> port %d of %s\n", forward_o.address, ports[i].local, ports[i].remote, f.id);
			fflush(stdout);
		}
	}
	for (size_t i = 0; i < ARRAY_LEN(caught); i++) {
		uv_signal_init(c->loop, &signals[i]);
		signals[i].data = &f;
		uv_signal_start(&signals[i], on_signal, caught[i]);
	}
	cli_wait(c, &f.over);
	return f.signalled == SIGINT ? EXIT_OK : 128 + f.signalled;
}

const struct command command_forward = {
	.name = "forward",
	.args = "ID PORT|HERE:THERE…",
	.brief = "Reach ports of a sandbox as ports of this machine, until Ctrl-C",
	.detail = "Any protocol over TCP, websockets too. The program in the sandbox may listen on localhost only.",
	.examples = "  space forward $id 3000\n  space forward $id 8080:80 5432",
	.run = forward_run,
	OPTS(forward_opts, forward_o),
	.stop_after = -1,
	.min = 2,
	.max = PORTS_MAX,
};
