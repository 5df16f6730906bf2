/* TLS on both sides, with certificates made here. */
#include "http_loop.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "base/file.h"

static char dir[64], cert[2][96], key[2][96];

/* A self-signed certificate for localhost and 127.0.0.1 with serial number SERIAL, in two files. */
static bool make_cert(int i, long serial)
{
	EVP_PKEY *pkey = EVP_EC_gen("P-256");
	X509 *x = X509_new();
	X509_EXTENSION *san = X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1");
	X509_NAME *name = X509_get_subject_name(x);
	FILE *f;
	bool ok;

	X509_set_version(x, 2);
	ASN1_INTEGER_set(X509_get_serialNumber(x), serial);
	X509_gmtime_adj(X509_getm_notBefore(x), -60);
	X509_gmtime_adj(X509_getm_notAfter(x), 3600);
	X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"unit", -1, -1, 0);
	X509_set_issuer_name(x, name);
	X509_set_pubkey(x, pkey);
	X509_add_ext(x, san, -1);
	X509_sign(x, pkey, EVP_sha256());
	snprintf(cert[i], sizeof(cert[i]), "%s/cert%d.pem", dir, i);
	snprintf(key[i], sizeof(key[i]), "%s/key%d.pem", dir, i);
	f = fopen(cert[i], "w");
	ok = f && PEM_write_X509(f, x) && fclose(f) == 0;
	f = fopen(key[i], "w");
	ok = ok && f && PEM_write_PrivateKey(f, pkey, NULL, NULL, 0, NULL, NULL) && fclose(f) == 0;
	X509_EXTENSION_free(san);
	X509_free(x);
	EVP_PKEY_free(pkey);
	return ok;
}

static struct {
	size_t bytes;
	struct http_exchange *held;
	bool closed;
	int close_err;
} seen;

static void on_close(struct http_exchange *x, int err, void *arg)
{
	seen.closed = true;
	seen.close_err = err;
	seen.held = NULL;
}

static void echo(struct http_exchange *x, const char *data, ssize_t len, void *arg)
{
	if (len > 0 && http_write(x, data, (size_t)len) == 1)
		http_body_pause(x);
	else if (len == 0)
		http_end(x);
}

static void on_drain(struct http_exchange *x, void *arg)
{
	http_body_resume(x);
}

static void handler(struct http_exchange *x, void *arg)
{
	http_on_close(x, on_close, NULL);
	if (str_eqz(http_req(x)->path, "/echo")) {
		http_on_drain(x, on_drain, NULL);
		http_start(x, 200, NULL, -1);
		http_body_read(x, 0, echo, NULL);
	} else if (str_eqz(http_req(x)->path, "/sse")) {
		seen.held = x;
		sse_start(x);
	} else {
		http_respond(x, 200, "text/plain", "hello", 5);
	}
}

static bool up(SSL_CTX **ctx)
{
	struct fail why = { 0 };

	memset(&seen, 0, sizeof(seen));
	snprintf(dir, sizeof(dir), "/tmp/space-unit-XXXXXX");
	if (!CHECK(mkdtemp(dir)) || !CHECK(make_cert(0, 1000)) || !CHECK(make_cert(1, 2000)))
		return false;
	if (!CHECK_INT(http_tls_server(cert[0], key[0], ctx, &why), 0))
		return false;
	loop = uv_default_loop();
	CHECK_INT(http_server_new(loop, NULL, handler, NULL, &server), 0);
	return CHECK_INT(http_server_listen_tcp(server, "127.0.0.1", 0, *ctx, &port, &why), 0);
}

static void down(void)
{
	server_is_gone = false;
	server_down();
	rm_rf(AT_FDCWD, dir);
}

static bool done;
static int status;
static struct fail last_why;
static char last_body[32];

static void on_fetch(int st, struct str body, const struct fail *why, void *arg)
{
	done = true;
	status = st;
	last_why = *why;
	snprintf(last_body, sizeof(last_body), STR_FMT, STR_ARG(body));
}

static void fetch(struct http_endpoint_opts o)
{
	struct http_endpoint *e;

	done = false;
	o.tls = true;
	o.port = port;
	if (!CHECK_INT(http_endpoint_new(loop, &o, &e), 0))
		return;
	http_fetch(e, &(struct http_call_opts){ .method = "GET", .target = "/" }, (struct str){ NULL, 0 }, 100, 3000, on_fetch, NULL);
	CHECK(run_until(&done, 4000));
	http_endpoint_free(e);
	run_until(NULL, 10);
}

TEST(certificates_are_checked)
{
	struct http_endpoint *e;
	struct fail why;
	SSL_CTX *ctx;

	REQUIRE(up(&ctx));
	fetch((struct http_endpoint_opts){ .host = "127.0.0.1", .tls_ca_file = cert[0] });
	CHECK_INT(last_why.err, 0);
	CHECK_INT(status, 200);
	CHECK_STR(last_body, "hello");
	fetch((struct http_endpoint_opts){ .host = "localhost", .tls_ca_file = cert[0] });
	CHECK_INT(status, 200);
	/* Another root; the system's roots; another name. */
	fetch((struct http_endpoint_opts){ .host = "127.0.0.1", .tls_ca_file = cert[1] });
	CHECK_INT(last_why.err, -EPROTO);
	CHECK(strstr(last_why.msg, "TLS: ") != NULL);
	fetch((struct http_endpoint_opts){ .host = "127.0.0.1" });
	CHECK_INT(last_why.err, -EPROTO);
	fetch((struct http_endpoint_opts){ .host = "127.0.0.2", .tls_ca_file = cert[0] });
	CHECK(last_why.err != 0);
	CHECK_INT(http_endpoint_new(loop, &(struct http_endpoint_opts){ .host = "a", .port = 1, .tls = true, .tls_ca_file = "/no" }, &e),
		-EINVAL);
	CHECK_INT(http_tls_server("/no", key[0], &ctx, &why), -EINVAL);
	CHECK(strstr(why.msg, "/no") != NULL);
	CHECK_INT(http_tls_server(cert[0], key[1], &ctx, &why), -EINVAL);
	/* Plain HTTP on the TLS port goes nowhere, and does no harm. */
	{
		autobuf struct buf b = { 0 };
		int fd = raw_connect(port);

		buf_init(&b, MIB);
		raw_send(fd, STR("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), 1000);
		CHECK(raw_read(fd, &b, NULL, 1000) != RAW_OPEN);
		CHECK(!has(&b, "HTTP/1.1 200"));
		close(fd);
	}
	SSL_CTX_free(ctx);
	down();
}

static size_t got;
static bool drained, ended;

static void on_data(struct http_call *c, const char *data, size_t len, void *arg)
{
	for (size_t i = 0; i < len; i++)
		CHECK((unsigned char)data[i] == (unsigned char)((got + i) % 251));
	got += len;
}

static void on_head(struct http_call *c, const struct http_head *h, void *arg)
{
	status = h->status;
}

static void on_call_drain(struct http_call *c, void *arg)
{
	drained = true;
}

static void on_end(struct http_call *c, const struct fail *why, void *arg)
{
	ended = true;
	last_why = *why;
}

static const struct http_call_cb cb = { .on_head = on_head, .on_data = on_data, .on_drain = on_call_drain, .on_end = on_end };

TEST(much_data_both_ways)
{
	struct http_endpoint *e;
	struct http_call *c;
	static char block[251 * 200];
	SSL_CTX *ctx;

	REQUIRE(up(&ctx));
	for (size_t i = 0; i < sizeof(block); i++)
		block[i] = (char)(i % 251);
	CHECK_INT(http_endpoint_new(loop, &(struct http_endpoint_opts){ .host = "127.0.0.1", .port = port, .tls = true,
			.tls_ca_file = cert[0] }, &e), 0);
	for (int round = 0; round < 2; round++) { /* the second on the kept connection */
		ended = false;
		got = 0;
		c = http_call_start(e, &(struct http_call_opts){ .method = "POST", .target = "/echo", .body_len = -1 }, &cb, NULL);
		for (int i = 0; i < 100 && !ended; i++) {
			drained = false;
			if (http_call_write(c, block, sizeof(block)) == 1)
				CHECK(run_until(&drained, 3000));
		}
		http_call_end(c);
		CHECK(run_until(&ended, 5000));
		CHECK_INT(last_why.err, 0);
		CHECK_INT(got, 100 * sizeof(block));
		CHECK_INT(http_server_conns(server), 1);
	}
	SSL_CTX_free(ctx);
	http_endpoint_free(e);
	down();
}

/* A blocking TLS client on another thread would hide what the loop does: this one is fed by hand. */
static long peer_serial(int at)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
	SSL *ssl = SSL_new(ctx);
	int fd = raw_connect(at);
	int64_t end = mono_ms() + 2000;
	long serial = -1;

	SSL_set_fd(ssl, fd);
	while (mono_ms() < end) {
		int r = SSL_connect(ssl);

		if (r == 1) {
			X509 *x = SSL_get1_peer_certificate(ssl);

			serial = ASN1_INTEGER_get(X509_get_serialNumber(x));
			X509_free(x);
			break;
		}
		run_until(NULL, 2);
	}
	SSL_free(ssl);
	SSL_CTX_free(ctx);
	close(fd);
	return serial;
}

static void on_sse(struct http_call *c, const char *data, size_t len, void *arg)
{
	got += len;
}

TEST(a_new_context_drops_no_stream)
{
	static const struct http_call_cb sse_cb = { .on_head = on_head, .on_data = on_sse, .on_end = on_end };
	struct http_endpoint *e;
	struct http_call *c;
	struct fail why;
	SSL_CTX *ctx, *next;

	REQUIRE(up(&ctx));
	CHECK_INT(http_endpoint_new(loop, &(struct http_endpoint_opts){ .host = "127.0.0.1", .port = port, .tls = true,
			.tls_ca_file = cert[0] }, &e), 0);
	ended = false;
	c = http_call_start(e, &(struct http_call_opts){ .method = "GET", .target = "/sse" }, &sse_cb, NULL);
	run_until(NULL, 100);
	REQUIRE(seen.held);
	CHECK_INT(peer_serial(port), 1000);
	CHECK_INT(http_tls_server(cert[1], key[1], &next, &why), 0);
	http_server_set_tls(server, next);
	SSL_CTX_free(next);
	SSL_CTX_free(ctx);
	CHECK_INT(peer_serial(port), 2000);
	got = 0;
	CHECK_INT(sse_send(seen.held, "1", NULL, STR("still here")), 0);
	run_until(NULL, 50);
	CHECK_INT(got, strlen("id: 1\ndata: still here\n\n"));
	CHECK(!ended);
	/* The client going away is noticed through TLS too. */
	http_call_cancel(c);
	CHECK(run_until(&ended, 1000));
	CHECK(run_until(&seen.closed, 1000));
	CHECK(seen.close_err < 0);
	http_endpoint_free(e);
	down();
}
