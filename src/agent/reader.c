#include "agent/reader.h"

#include <stdio.h>
#include <sys/wait.h>

#include "agent/process_rpc.h"
#include "base/clock.h"

#define FRAME_BUF (64 * KIB) /* a chunk in base64 and the words around it */

int64_t slow_reader_ms = 60 * 1000;

struct reader {
	struct sub sub;
	struct http_exchange *x;
	uv_timer_t timer; /* keepalive, deadline, slow readers: armed for whichever is due first */
	bool starter, finished;
	bool blocked; /* above high water: wait for the drain */
	int64_t keepalive_ms, last_sent_ms;
	int64_t deadline_ms; /* mono; 0: none */
	int64_t progress_ms; /* while blocked: when the client last took something */
	size_t unsent;
	unsigned next; /* stream to look at first */
};

static void on_timer(uv_timer_t *t);

static void arm(struct reader *r)
{
	int64_t now = mono_ms(), due;

	if (r->finished)
		return;
	due = r->blocked ? now + MAX(slow_reader_ms / 4, 10) : r->last_sent_ms + r->keepalive_ms;
	if (r->deadline_ms && r->deadline_ms < due)
		due = r->deadline_ms;
	uv_timer_start(&r->timer, on_timer, (uint64_t)MAX(due - now, 1), 0);
}

static void sent(struct reader *r, int result)
{
	r->last_sent_ms = mono_ms();
	if (result == 0 || r->blocked)
		return;
	r->blocked = true;
	r->progress_ms = r->last_sent_ms;
	r->unsent = http_unsent(r->x);
	arm(r);
}

static void finish(struct reader *r, enum rpc_code code, const char *msg)
{
	if (r->finished)
		return;
	r->finished = true;
	sub_detach(&r->sub);
	uv_timer_stop(&r->timer);
	rpc_finish(r->x, code, msg);
}

static void begin(struct buf *b, struct jw *w, const char *kind)
{
	buf_init(b, FRAME_BUF);
	rpc_frame(b);
	jw_init(w, b);
	jw_obj(w, NULL);
	jw_obj(w, "event");
	jw_obj(w, kind);
}

static void emit(struct reader *r, struct buf *b, struct jw *w)
{
	jw_obj_end(w);
	jw_obj_end(w);
	jw_obj_end(w);
	sent(r, w->err ? w->err : rpc_send(r->x, b));
	buf_clear(b);
}

static void send_start(struct reader *r)
{
	struct buf b;
	struct jw w;

	begin(&b, &w, "start");
	jw_int(&w, "pid", r->sub.p->pid);
	emit(r, &b, &w);
}

static void send_data(struct reader *r, int stream, struct str data, uint64_t offset)
{
	static const char *const names[] = { "stdout", "stderr" };
	struct buf b;
	struct jw w;

	begin(&b, &w, "data");
	jw_base64(&w, r->sub.p->tty ? "pty" : names[stream], data.p, data.n);
	jw_int(&w, "offset", (int64_t)offset);
	emit(r, &b, &w);
}

static void send_gap(struct reader *r, int stream, uint64_t from, uint64_t to)
{
	struct buf b;
	struct jw w;

	begin(&b, &w, "gap");
	jw_str(&w, "stream", stream == 0 ? "stdout" : "stderr");
	jw_int(&w, "from", (int64_t)from);
	jw_int(&w, "to", (int64_t)to);
	emit(r, &b, &w);
}

static void send_end(struct reader *r)
{
	const struct process *p = r->sub.p;
	bool exited = WIFEXITED(p->status);
	char text[64];
	struct buf b;
	struct jw w;
	int code;

	process_status_text(p, text, &code);
	begin(&b, &w, "end");
	jw_int(&w, "exitCode", code);
	jw_bool(&w, "exited", exited);
	jw_str(&w, "status", text);
	if (!exited || code != 0)
		jw_str(&w, "error", text);
	jw_str(&w, "reason", proc_reason_name(process_reason(p)));
	emit(r, &b, &w);
}

/* The next piece of STREAM, if there is one. */
static bool pump_stream(struct reader *r, int stream)
{
	struct ring *ring = &r->sub.p->out[stream];
	uint64_t *at = &r->sub.at[stream];
	struct str piece;

	if (*at < ring->start) {
		uint64_t from = *at;

		*at = ring->start;
		send_gap(r, stream, from, *at);
		return true;
	}
	piece = ring_peek(ring, *at, r->sub.p->tty ? CHUNK_TTY_MAX : CHUNK_MAX);
	if (piece.n == 0)
		return false;
	*at += piece.n;
	send_data(r, stream, piece, *at - piece.n);
	return true;
}

static void pump(struct sub *s)
{
	struct reader *r = container_of(s, struct reader, sub);
	struct process *p = s->p;

	while (!r->finished && !r->blocked && s->p) {
		if (pump_stream(r, (int)r->next) || pump_stream(r, (int)(r->next ^ 1))) {
			r->next ^= 1;
			continue;
		}
		if (!p->ended)
			return;
		if (p->timeout_hit && r->starter) {
			finish(r, RPC_DEADLINE_EXCEEDED,
				"the command took longer than its timeout and was killed");
		} else {
			send_end(r);
			finish(r, RPC_OK, NULL);
		}
	}
}

static void on_drain(struct http_exchange *x, void *arg)
{
	struct reader *r = arg;

	if (!r->blocked || r->finished)
		return;
	r->blocked = false;
	pump(&r->sub);
	if (r->sub.p)
		process_flow(r->sub.p);
	arm(r);
}

/* The last event of a client that has stopped reading; it finds it when it reads on, and knows from
 * where to continue. */
static void let_go(struct reader *r)
{
	char msg[160];
	struct buf b;
	struct jw w;

	begin(&b, &w, "detached");
	jw_str(&w, "reason", "slow_reader");
	jw_int(&w, "stdout", (int64_t)r->sub.at[0]);
	jw_int(&w, "stderr", (int64_t)r->sub.at[1]);
	emit(r, &b, &w);
	snprintf(msg, sizeof(msg),
		"nothing was read for %lld s; connect again from stdout %llu, stderr %llu",
		(long long)(slow_reader_ms / 1000), (unsigned long long)r->sub.at[0],
		(unsigned long long)r->sub.at[1]);
	finish(r, RPC_ABORTED, msg);
}

static void on_timer(uv_timer_t *t)
{
	struct reader *r = container_of(t, struct reader, timer);
	int64_t now = mono_ms();

	if (r->deadline_ms && now >= r->deadline_ms) {
		finish(r, RPC_DEADLINE_EXCEEDED, "the stream's timeout has passed");
		return;
	}
	if (r->blocked) {
		size_t unsent = http_unsent(r->x);

		if (unsent < r->unsent) {
			r->unsent = unsent;
			r->progress_ms = now;
		} else if (now - r->progress_ms >= slow_reader_ms) {
			let_go(r);
			return;
		}
	} else if (now - r->last_sent_ms >= r->keepalive_ms) {
		struct buf b;
		struct jw w;

		begin(&b, &w, "keepalive");
		emit(r, &b, &w);
	}
	arm(r);
}

static void timer_closed(uv_handle_t *h)
{
	free(container_of((uv_timer_t *)h, struct reader, timer));
}

static void on_close(struct http_exchange *x, int err, void *arg)
{
	struct reader *r = arg;

	r->finished = true;
	sub_detach(&r->sub);
	uv_close((uv_handle_t *)&r->timer, timer_closed);
}

void reader_start(struct http_exchange *x, struct process *p, const struct reader_opts *o)
{
	struct reader *r = calloc(1, sizeof(*r));

	if (!r) {
		rpc_fail(x, true, RPC_RESOURCE_EXHAUSTED, "out of memory");
		return;
	}
	r->x = x;
	r->sub.pump = pump;
	r->starter = o->starter;
	r->keepalive_ms = o->keepalive_ms;
	r->last_sent_ms = mono_ms();
	r->deadline_ms = o->timeout_ms ? r->last_sent_ms + o->timeout_ms : 0;
	uv_timer_init(agent.loop, &r->timer);
	for (int i = 0; i < 2; i++)
		r->sub.at[i] = o->replay ? o->from[i] : p->out[i].end;
	http_on_close(x, on_close, r);
	http_on_drain(x, on_drain, r);
	sub_attach(&r->sub, p);
	rpc_start(x);
	send_start(r);
	for (int i = 0; i < 2; i++) {
		uint64_t kept = ring_kept(&p->out[i]);

		if (o->replay && r->sub.at[i] < kept) {
			uint64_t from = r->sub.at[i];

			r->sub.at[i] = kept;
			send_gap(r, i, from, kept);
		}
	}
	pump(&r->sub);
	arm(r);
	if (r->sub.p)
		process_flow(p);
}
