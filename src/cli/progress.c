/* progress.c - how far long work is, on stderr. */
#include <sys/ioctl.h>

#include "base/clock.h"
#include "cli/cli.h"

#define SHOW_AFTER_MS 700
#define TICK_MS 100

struct progress_bar {
	struct cli *c;
	char what[96], step[128], printed[128];
	double fraction; /* -1: unknown */
	uint64_t bytes;
	int64_t total;
	bool counts, shown;
	int64_t began_ms, printed_ms;
	unsigned frame;
	uv_timer_t timer;
};

static unsigned terminal_width(void)
{
	struct winsize ws;

	return ioctl(2, TIOCGWINSZ, &ws) == 0 && ws.ws_col > 20 ? ws.ws_col : 80;
}

static void bar_text(const struct progress_bar *p, char *out, size_t size)
{
	char done[AGO_LEN], total[AGO_LEN], rate[AGO_LEN], took[AGO_LEN];
	double s = (double)(mono_ms() - p->began_ms) / 1000;

	if (p->counts) {
		size_text(done, (double)p->bytes);
		size_text(rate, s > 0.2 ? (double)p->bytes / s : 0);
		if (p->total > 0)
			snprintf(out, size, "%s of %s, %s/s", done, size_text(total, (double)p->total), rate);
		else
			snprintf(out, size, "%s, %s/s", done, rate);
		return;
	}
	snprintf(out, size, "%s%s%s", p->step, p->step[0] ? ", " : "", span(took, s));
}

static void bar_draw(struct progress_bar *p)
{
	static const char *const frames[] = { "⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏" };
	double f = p->counts && p->total > 0 ? (double)p->bytes / (double)p->total : p->fraction;
	char text[256], bar[24 * 3 + 1] = "";
	unsigned width = terminal_width();

	bar_text(p, text, sizeof(text));
	if (f >= 0 && width >= 60) {
		unsigned full = (unsigned)(MIN(f, 1.0) * 24);

		for (unsigned i = 0; i < 24; i++)
			strcat(bar, i < full ? "━" : "─");
		fprintf(stderr, "\r\033[K%s %s %3d %%  %.*s", p->what, bar, (int)(MIN(f, 1.0) * 100),
			(int)MAX((int)width - 36 - (int)strlen(p->what), 0), text);
	} else {
		fprintf(stderr, "\r\033[K%s %s  %.*s", frames[p->frame % ARRAY_LEN(frames)], p->what,
			(int)MAX((int)width - 6 - (int)strlen(p->what), 0), text);
	}
	p->frame++;
	p->shown = true;
}

/* Without a terminal: a line when a named step changes, and one every 10 s so that a log shows life; bytes only the latter. */
static void line_draw(struct progress_bar *p)
{
	int64_t now = mono_ms();
	char text[256];

	if (!p->step[0] && !p->counts)
		return;
	if (!strcmp(p->step, p->printed) && now - p->printed_ms < 10000)
		return;
	bar_text(p, text, sizeof(text));
	fprintf(stderr, "%s: %s\n", p->what, text);
	snprintf(p->printed, sizeof(p->printed), "%s", p->step);
	p->printed_ms = now;
}

static void bar_tick(uv_timer_t *t)
{
	struct progress_bar *p = t->data;

	if (mono_ms() - p->began_ms < SHOW_AFTER_MS)
		return;
	if (p->c->err_tty)
		bar_draw(p);
	else
		line_draw(p);
}

struct progress_bar *progress_start(struct cli *c, const char *what)
{
	struct progress_bar *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->c = c;
	snprintf(p->what, sizeof(p->what), "%s", what);
	p->fraction = -1;
	p->total = -1;
	p->began_ms = p->printed_ms = mono_ms();
	uv_timer_init(c->loop, &p->timer);
	p->timer.data = p;
	if (!c->json) {
		uv_timer_start(&p->timer, bar_tick, TICK_MS, TICK_MS);
		uv_unref((uv_handle_t *)&p->timer);
	}
	return p;
}

void progress_step(struct progress_bar *p, const char *step, double fraction)
{
	if (!p)
		return;
	snprintf(p->step, sizeof(p->step), "%s", step);
	for (char *s = p->step; *s; s++)
		if ((unsigned char)*s < 0x20 || *s == 0x7f)
			*s = ' ';
	p->fraction = fraction;
}

void progress_bytes(struct progress_bar *p, uint64_t done, int64_t total)
{
	if (!p)
		return;
	p->counts = true;
	p->bytes = done;
	p->total = total;
}

void progress_hide(struct progress_bar *p)
{
	if (p && p->shown) {
		fputs("\r\033[K", stderr);
		p->shown = false;
	}
}

static void bar_closed(uv_handle_t *h)
{
	free(h->data);
}

void progress_end(struct progress_bar *p)
{
	if (!p)
		return;
	progress_hide(p);
	uv_close((uv_handle_t *)&p->timer, bar_closed);
}
