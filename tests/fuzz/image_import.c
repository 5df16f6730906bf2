/* Imported checkpoints: whatever the bytes are, either nothing is left, or a node whose files hold what its digests say and that can be exported and
 * imported again. The first byte of the input chooses:
 *   0  a stream, as it is
 *   1  the head alone
 *   2  u16 length, head, records: as a stream whose digests and sums are put right, so that what lies behind them is reached */
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>

#include "base/cur.h"
#include "base/file.h"
#include "fuzz.h"
#include "image/stream.h"

static struct pool *pool;
static char state[64];

static void gone(void)
{
	pool_close(pool);
	rm_rf(AT_FDCWD, state);
}

static void begin(void)
{
	if (pool)
		return;
	snprintf(state, sizeof(state), "%s/fuzz-import-XXXXXX", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
	FUZZ_CHECK(mkdtemp(state) && !pool_open(state, false, 0, &pool, NULL));
	atexit(gone);
}

static unsigned entries(int dirfd_, const char *name)
{
	int fd = dir_open(dirfd_, name);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;
	unsigned n = 0;

	while (d && (e = readdir(d)))
		n += e->d_name[0] != '.';
	if (d)
		closedir(d);
	return n;
}

static void nothing_left(void)
{
	static const char *const dirs[] = { "nodes", "images", "kernels", "initrds" };

	for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
		FUZZ_CHECK(!entries(pool->fd, dirs[i]));
	FUZZ_CHECK(!entries(pool->tmpfd, "."));
}

static int import(int fd, struct node *n)
{
	struct fail why = { 0 };
	int r;

	FUZZ_CHECK(lseek(fd, 0, SEEK_SET) == 0);
	r = node_import(pool, fd, NULL, n, &why);
	FUZZ_CHECK(r == 0 || (r < 0 && why.err && why.msg[0] && why.code != ERR_internal));
	return r;
}

static void empty(const char *dir)
{
	FUZZ_CHECK(!rm_rf(pool->fd, dir) && !mkdirat(pool->fd, dir, 0700));
}

static void stream(const uint8_t *data, size_t size)
{
	int fd = memfd_create("in", MFD_CLOEXEC), again;
	struct node n, m;
	char where[160];

	FUZZ_CHECK(fd >= 0 && !pwrite_all(fd, data, size, 0));
	if (!import(fd, &n)) {
		FUZZ_CHECK(!node_verify(pool, n.id, where, NULL));
		again = memfd_create("again", MFD_CLOEXEC);
		FUZZ_CHECK(!node_export(pool, n.id, again, NULL, NULL) && !import(again, &m));
		close(again);
		FUZZ_CHECK(n.memory == m.memory && n.disk == m.disk && n.vcpus == m.vcpus && !strcmp(n.label, m.label));
		FUZZ_CHECK(!node_remove(pool, n.id, NULL) && !node_remove(pool, m.id, NULL));
		empty("kernels");
		empty("initrds");
		empty("images");
	}
	close(fd);
	nothing_left();
}

static void head(const uint8_t *data, size_t size)
{
	struct stream_head h, again;
	autobuf struct buf a = { 0 }, b = { 0 };

	if (stream_head_read((struct str){ (const char *)data, size }, &h, NULL))
		return;
	buf_init(&a, STREAM_HEAD_MAX);
	buf_init(&b, STREAM_HEAD_MAX);
	if (!stream_head_write(&h, &a, NULL)) {
		FUZZ_CHECK(!stream_head_read(buf_str(&a), &again, NULL) && !stream_head_write(&again, &b, NULL));
		FUZZ_CHECK(str_eq(buf_str(&a), buf_str(&b)));
		stream_head_clear(&again);
	}
	stream_head_clear(&h);
}

/* A DATA record's digest over the pages that follow it, as import will see them. Returns their length. */
static size_t mend_data(uint8_t *at, size_t left, struct record *r, uint64_t file)
{
	static uint8_t mib[CHUNK];
	size_t n = r->value < file ? MIN(CHUNK, file - r->value) : 0, used = 0;

	memset(mib, 0, n);
	for (size_t i = 0; i * STREAM_PAGE < n; i++) {
		size_t page = MIN(STREAM_PAGE, n - i * STREAM_PAGE);

		if (!bit_get(r->a, (unsigned)i))
			continue;
		page = MIN(page, left - used);
		memcpy(mib + i * STREAM_PAGE, at + STREAM_RECORD + used, page);
		used += page;
	}
	sha_of(r->b, mib, n);
	record_pack(at, r);
	return used;
}

static void mend(uint8_t *s, size_t size, size_t head_len)
{
	struct stream_head h = { 0 };
	struct stream_sums sums;
	size_t pos = STREAM_PREAMBLE + head_len;

	(void)stream_head_read((struct str){ (char *)s + STREAM_PREAMBLE, head_len }, &h, NULL);
	FUZZ_CHECK(!sums_begin(&sums, s + 16));
	while (size - pos >= STREAM_RECORD) {
		struct record r, right;
		size_t len = STREAM_RECORD;

		record_unpack(&r, s + pos);
		if (r.tag == TAG_DATA && r.role < ROLES) {
			len += mend_data(s + pos, size - pos - STREAM_RECORD, &r, h.file[r.role].bytes);
			FUZZ_CHECK(!sums_chunk(&sums, &r));
		} else if (r.tag == TAG_DONE && r.role < ROLES) {
			FUZZ_CHECK(!sums_file(&sums, &right, r.role));
			record_pack(s + pos, &right);
		} else {
			FUZZ_CHECK(!sums_end(&sums, &right));
			record_pack(s + pos, &right);
			break;
		}
		pos += len;
	}
	sums_clear(&sums);
	stream_head_clear(&h);
}

static void mended(const uint8_t *data, size_t size)
{
	size_t len = size < 2 ? 0 : MIN(size - 2, data[0] | (size_t)data[1] << 8);
	uint8_t *s;

	if (size < 2)
		return;
	s = calloc(1, STREAM_PREAMBLE + size);
	FUZZ_CHECK(s);
	memcpy(s, STREAM_MAGIC, 8);
	s[8] = STREAM_VERSION;
	s[12] = (uint8_t)len;
	s[13] = (uint8_t)(len >> 8);
	memcpy(s + STREAM_PREAMBLE, data + 2, size - 2);
	sha_of(s + 16, s + STREAM_PREAMBLE, len);
	mend(s, STREAM_PREAMBLE + size - 2, len);
	stream(s, STREAM_PREAMBLE + size - 2);
	free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!size)
		return 0;
	begin();
	switch (data[0] % 3) {
	case 0:
		stream(data + 1, size - 1);
		break;
	case 1:
		head(data + 1, size - 1);
		break;
	default:
		mended(data + 1, size - 1);
	}
	return 0;
}
