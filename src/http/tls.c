/* tls.c - TLS between a connection and its socket: OpenSSL over memory BIOs, see conn.h. */
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "http/conn.h"
#include "http/server.h"

#define RECORD (16 * KIB)

struct htls {
	SSL *ssl;
	BIO *in, *out; /* the SSL's */
	bool client, up;
};

/* OpenSSL's own words for the first error in its queue. */
static const char *words(void)
{
	unsigned long e = ERR_get_error();
	const char *text = e ? ERR_reason_error_string(e) : NULL;

	ERR_clear_error();
	return text ? text : "unknown error";
}

/* Gives the socket what TLS has to say. */
static int flush(struct hconn *c)
{
	char data[RECORD + 256];
	int n;

	while ((n = BIO_read(c->tls->out, data, sizeof(data))) > 0) {
		uv_buf_t b = uv_buf_init(data, (unsigned)n);
		int r = hconn_raw_writev(c, &b, 1);

		if (r < 0)
			return r;
	}
	return 0;
}

static int is_address(const char *name)
{
	struct sockaddr_storage a;

	return uv_inet_pton(AF_INET, name, &a) == 0 || uv_inet_pton(AF_INET6, name, &a) == 0;
}

static int tls_start(struct hconn *c, SSL_CTX *ctx, const char *server_name)
{
	struct htls *t = calloc(1, sizeof(*t));
	bool ok;

	if (!t)
		return -ENOMEM;
	t->ssl = SSL_new(ctx);
	t->in = BIO_new(BIO_s_mem());
	t->out = BIO_new(BIO_s_mem());
	if (!t->ssl || !t->in || !t->out) {
		BIO_free(t->in);
		BIO_free(t->out);
		SSL_free(t->ssl);
		free(t);
		return -ENOMEM;
	}
	SSL_set_bio(t->ssl, t->in, t->out);
	SSL_set_mode(t->ssl, SSL_MODE_RELEASE_BUFFERS);
	c->tls = t;
	if (!server_name) {
		SSL_set_accept_state(t->ssl);
		return 0;
	}
	t->client = true;
	SSL_set_connect_state(t->ssl);
	if (is_address(server_name))
		ok = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(t->ssl), server_name);
	else
		ok = SSL_set1_host(t->ssl, server_name) &&
		     SSL_set_tlsext_host_name(t->ssl, server_name);
	if (!ok)
		return -EINVAL;
	SSL_do_handshake(t->ssl);
	return flush(c);
}

static void tls_received(struct hconn *c, const char *p, size_t n)
{
	if (BIO_write(c->tls->in, p, (int)n) != (int)n)
		hconn_fail(c, -ENOMEM);
}

/* Why the peer's certificate, or the handshake, was refused. */
static const char *refusal(struct htls *t)
{
	long v = SSL_get_verify_result(t->ssl);

	return v != X509_V_OK ? X509_verify_cert_error_string(v) : words();
}

static ssize_t tls_read(struct hconn *c, char *p, size_t n)
{
	struct htls *t = c->tls;
	int r, e;

	ERR_clear_error();
	r = SSL_read(t->ssl, p, (int)n);
	e = r > 0 ? 0 : SSL_get_error(t->ssl, r);
	if (flush(c) < 0 && r <= 0)
		return -ECONNRESET;
	if (t->client && !t->up && SSL_is_init_finished(t->ssl)) {
		t->up = true;
		c->ops->open(c, 0, NULL);
	}
	if (r > 0)
		return r;
	if (e == SSL_ERROR_WANT_READ || e == SSL_ERROR_WANT_WRITE)
		return 0;
	if (e == SSL_ERROR_ZERO_RETURN)
		return -EPIPE;
	if (t->client && !t->up) {
		t->up = true;
		c->ops->open(c, -EPROTO, refusal(t));
	}
	ERR_clear_error();
	return -EPROTO;
}

static int write_plain(struct hconn *c, const char *p, size_t n)
{
	while (n) {
		int part = (int)MIN(n, RECORD), r;

		ERR_clear_error();
		r = SSL_write(c->tls->ssl, p, part);
		if (r <= 0) {
			ERR_clear_error();
			return -EPIPE;
		}
		if (flush(c) < 0)
			return -EPIPE;
		p += r;
		n -= (size_t)r;
	}
	return 0;
}

/* Small pieces go out as one record. */
static int tls_write(struct hconn *c, const uv_buf_t *bufs, unsigned n)
{
	char gathered[RECORD];
	size_t have = 0;
	int r = 0;

	for (unsigned i = 0; i < n && r == 0; i++) {
		if (bufs[i].len > sizeof(gathered) - have && have) {
			r = write_plain(c, gathered, have);
			have = 0;
		}
		if (r == 0 && bufs[i].len > sizeof(gathered)) {
			r = write_plain(c, bufs[i].base, bufs[i].len);
		} else if (r == 0) {
			memcpy(gathered + have, bufs[i].base, bufs[i].len);
			have += bufs[i].len;
		}
	}
	if (r == 0 && have)
		r = write_plain(c, gathered, have);
	if (r < 0)
		hconn_fail(c, -EPIPE);
	return r;
}

static void tls_shutdown(struct hconn *c)
{
	ERR_clear_error();
	if (SSL_is_init_finished(c->tls->ssl))
		SSL_shutdown(c->tls->ssl);
	ERR_clear_error();
	flush(c);
}

static size_t tls_pending(const struct hconn *c)
{
	return (size_t)SSL_pending(c->tls->ssl) + BIO_ctrl_pending(c->tls->in);
}

static void tls_free(struct hconn *c)
{
	SSL_free(c->tls->ssl);
	free(c->tls);
	c->tls = NULL;
}

static void ctx_ref(SSL_CTX *ctx)
{
	SSL_CTX_up_ref(ctx);
}

static SSL_CTX *ctx_new(const SSL_METHOD *method)
{
	SSL_CTX *ctx = SSL_CTX_new(method);

	if (!ctx)
		return NULL;
	SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
	SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
	SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS);
	return ctx;
}

static SSL_CTX *client_ctx(const char *ca_file, struct fail *why)
{
	SSL_CTX *ctx = ctx_new(TLS_client_method());
	int ok;

	if (!ctx) {
		fail_set(why, -ENOMEM, "TLS: %s", words());
		return NULL;
	}
	SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
	ok = ca_file ? SSL_CTX_load_verify_locations(ctx, ca_file, NULL)
		     : SSL_CTX_set_default_verify_paths(ctx);
	if (!ok) {
		fail_set(why, -EINVAL, "%s: %s", ca_file ? ca_file : "the system's certificates",
			words());
		SSL_CTX_free(ctx);
		return NULL;
	}
	return ctx;
}

const struct htls_ops htls_ops = {
	.start = tls_start,
	.received = tls_received,
	.read = tls_read,
	.write = tls_write,
	.shutdown = tls_shutdown,
	.pending = tls_pending,
	.free = tls_free,
	.ctx_ref = ctx_ref,
	.ctx_free = SSL_CTX_free,
	.client_ctx = client_ctx,
};

static int choose_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_len,
	const unsigned char *in, unsigned in_len, void *arg)
{
	static const unsigned char ours[] = "\x08http/1.1";
	unsigned char *found;

	/* A client that offers only others gets no answer to that, and then most speak HTTP/1.1. */
	if (SSL_select_next_proto(&found, out_len, ours, sizeof(ours) - 1, in, in_len) !=
		OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_NOACK;
	*out = found;
	return SSL_TLSEXT_ERR_OK;
}

int http_tls_server(const char *cert_file, const char *key_file, SSL_CTX **out, struct fail *why)
{
	static const unsigned char session_id[] = "space";
	SSL_CTX *ctx = ctx_new(TLS_server_method());

	if (!ctx)
		return fail_set(why, -ENOMEM, "TLS: %s", words());
	if (SSL_CTX_use_certificate_chain_file(ctx, cert_file) != 1) {
		fail_set(why, -EINVAL, "%s: %s", cert_file, words());
	} else if (SSL_CTX_use_PrivateKey_file(ctx, key_file, SSL_FILETYPE_PEM) != 1) {
		fail_set(why, -EINVAL, "%s: %s", key_file, words());
	} else if (SSL_CTX_check_private_key(ctx) != 1) {
		fail_set(why, -EINVAL, "%s does not belong to %s", key_file, cert_file);
	} else {
		SSL_CTX_set_session_id_context(ctx, session_id, sizeof(session_id) - 1);
		SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
		SSL_CTX_set_alpn_select_cb(ctx, choose_alpn, NULL);
		*out = ctx;
		return 0;
	}
	SSL_CTX_free(ctx);
	return -EINVAL;
}
