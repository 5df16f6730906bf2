/* entry.c - EntryInfo: how a file looks to E2B's clients. See fs.h. */
#include "agent/fs.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "agent/meta.h"
#include "base/clock.h"

/* Go's letters: one for each thing that the file is, then the nine bits. */
void mode_text(char out[16], mode_t mode)
{
	static const char rwx[] = "rwxrwxrwx";
	char *p = out;

	if (S_ISDIR(mode))
		*p++ = 'd';
	if (S_ISLNK(mode))
		*p++ = 'L';
	if (S_ISBLK(mode) || S_ISCHR(mode))
		*p++ = 'D';
	if (S_ISFIFO(mode))
		*p++ = 'p';
	if (S_ISSOCK(mode))
		*p++ = 'S';
	if (mode & S_ISUID)
		*p++ = 'u';
	if (mode & S_ISGID)
		*p++ = 'g';
	if (S_ISCHR(mode))
		*p++ = 'c';
	if (mode & S_ISVTX)
		*p++ = 't';
	if (p == out)
		*p++ = '-';
	for (int i = 0; i < 9; i++)
		*p++ = mode & (mode_t)(0400 >> i) ? rwx[i] : '-';
	*p = '\0';
}

static const char *type_of(mode_t mode)
{
	return S_ISREG(mode)   ? "FILE_TYPE_FILE"
	       : S_ISDIR(mode) ? "FILE_TYPE_DIRECTORY"
			       : "FILE_TYPE_UNSPECIFIED";
}

int entry_write(struct jw *w, const char *key, const char *path, struct names *names)
{
	autofree char *real = NULL;
	struct stat st, target;
	char text[16], time[RFC3339_LEN];
	bool dangling = false;

	if (lstat(path, &st) < 0)
		return -errno;
	target = st;
	if (S_ISLNK(st.st_mode)) {
		real = realpath(path, NULL);
		if (!real || stat(real, &target) < 0) {
			dangling = true;
			target = st;
		}
	}
	mode_text(text, st.st_mode);
	rfc3339_format(time, (int64_t)st.st_mtim.tv_sec * NS_PER_S + st.st_mtim.tv_nsec);
	jw_obj(w, key);
	jw_strn(w, "name", path_base(path));
	jw_str(w, "type", dangling ? "FILE_TYPE_UNSPECIFIED" : type_of(target.st_mode));
	jw_str(w, "path", path);
	jw_int(w, "size", (int64_t)st.st_size);
	jw_int(w, "mode", (int64_t)(target.st_mode & 0777));
	jw_str(w, "permissions", text);
	jw_str(w, "owner", names_user(names, st.st_uid));
	jw_str(w, "group", names_group(names, st.st_gid));
	jw_str(w, "modifiedTime", time);
	if (S_ISLNK(st.st_mode))
		jw_str(w, "symlinkTarget", real ? real : path);
	meta_write(w, path);
	jw_obj_end(w);
	return 0;
}

int mkdirs(const char *path, uid_t uid, gid_t gid)
{
	char part[PATH_LEN];
	struct stat st;
	size_t n = strlen(path);

	if (n >= sizeof(part))
		return -ENAMETOOLONG;
	if (n == 0 || stat(path, &st) == 0)
		return n == 0 || S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
	for (size_t i = 1; i <= n; i++) {
		if (i < n && path[i] != '/')
			continue;
		memcpy(part, path, i);
		part[i] = '\0';
		if (mkdir(part, 0755) == 0) {
			if ((uid != geteuid() || gid != getegid()) && lchown(part, uid, gid) < 0 &&
				errno != EPERM)
				return -errno;
		} else if (errno != EEXIST) {
			return -errno;
		} else if (i == n || path[i] == '/') {
			if (stat(part, &st) < 0)
				return -errno;
			if (!S_ISDIR(st.st_mode))
				return -ENOTDIR;
		}
	}
	return 0;
}

enum rpc_code errno_code(int err)
{
	switch (err) {
	case ENOENT:
		return RPC_NOT_FOUND;
	case EACCES:
	case EPERM:
	case EROFS:
		return RPC_PERMISSION_DENIED;
	case ENOSPC:
	case EDQUOT:
		return RPC_RESOURCE_EXHAUSTED;
	case EBUSY:
	case EXDEV:
	case ETXTBSY:
	case ENOTEMPTY:
		return RPC_ABORTED;
	case ENOTDIR:
	case EISDIR:
	case EEXIST:
	case ENAMETOOLONG:
	case ELOOP:
	case EINVAL:
	case ENXIO:
	case ENODEV:
	case EAGAIN:
	case ESPIPE:
	case EOPNOTSUPP:
	case EFBIG:
	case EBADF:
		return RPC_INVALID_ARGUMENT;
	default:
		return RPC_INTERNAL;
	}
}

int errno_status(int err)
{
	enum rpc_code code = errno_code(err);

	return code == RPC_RESOURCE_EXHAUSTED ? 507 : rpc_code_status(code);
}

const char *errno_words(int err)
{
	switch (err) {
	case EBUSY:
		return "it is a mount point, has one below it, or is in use";
	case EXDEV:
		return "it is on another file system";
	case EROFS:
		return "it is on a read-only file system";
	case ENXIO:
	case ENODEV:
		return "there is no device or reader behind it";
	case EAGAIN:
		return "there is nothing to read from it now";
	default:
		return strerror(err);
	}
}
