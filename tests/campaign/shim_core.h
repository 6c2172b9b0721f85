/* One counted call of shim.c: whether it counts, its number, its log line, and whether it fails. */
#include "shim_settings.h"

/* ---- which calls count ---- */
static int is_inside(const char *path) {
    return !strncmp(path, root, root_length) && (path[root_length] == '/' || !path[root_length]);
}

static int descriptor_path(int descriptor, char *path) {
    char link[32];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, path, PATH_MAX - 1);
    if (length < 0) return 0;
    path[length] = 0;
    static const char deleted[] = " (deleted)";
    size_t tail = sizeof deleted - 1;
    if ((size_t)length > tail && !strcmp(path + length - tail, deleted)) path[length - tail] = 0;
    return path[0] == '/';
}

/* Absolute path without ".", ".." and "//", by the names alone. */
static int full_path(int folder, const char *given, char *path) {
    char joined[2 * PATH_MAX];
    if (!given || strlen(given) >= PATH_MAX) return 0;
    if (given[0] == '/') {
        snprintf(joined, sizeof joined, "%s", given);
    } else {
        char base[PATH_MAX];
        if (folder == AT_FDCWD ? syscall(SYS_getcwd, base, sizeof base) < 0 : !descriptor_path(folder, base)) return 0;
        snprintf(joined, sizeof joined, "%s/%s", base, given);
    }
    char *end = path, *rest = NULL;
    for (char *part = strtok_r(joined, "/", &rest); part; part = strtok_r(NULL, "/", &rest)) {
        if (!strcmp(part, ".")) continue;
        if (!strcmp(part, "..")) {
            while (end > path && *--end != '/') {}
            continue;
        }
        size_t length = strlen(part);
        if (end + length + 2 > path + PATH_MAX) return 0;
        *end++ = '/';
        memcpy(end, part, length);
        end += length;
    }
    if (end == path) *end++ = '/';
    *end = 0;
    return 1;
}

/* ---- one counted call ---- */
struct call {
    enum kind kind;
    const char *name;
    int descriptor; /* -1 if none */
    char path[PATH_MAX], path2[PATH_MAX];
    int64_t offset, size;
    uint64_t number;
    int half, is_literal;
    uint64_t inode;
};

static uint64_t inode_of(int descriptor) {
    struct stat status;
    return descriptor >= 0 && !fstat(descriptor, &status) ? (uint64_t)status.st_ino : 0;
}

static size_t escape(char *to, const char *path) {
    static const char digits[] = "0123456789ABCDEF";
    char *at = to;
    for (; *path; path++) {
        unsigned char one = (unsigned char)*path;
        if (one < 33 || one == 127 || one == '%') {
            *at++ = '%', *at++ = digits[one >> 4], *at++ = digits[one & 15];
        } else {
            *at++ = (char)one;
        }
    }
    *at = 0;
    return (size_t)(at - to);
}

static const char *relative(const char *path) {
    if (!is_inside(path)) return path;
    return path[root_length] ? path + root_length + 1 : ".";
}

static void write_all(int descriptor, const char *content, size_t length) {
    while (length) {
        ssize_t done = syscall(SYS_write, descriptor, content, length);
        if (done <= 0) return;
        content += done, length -= (size_t)done;
    }
}

static void write_log(const struct call *call, int64_t result) {
    if (!log_file[0]) return;
    static char line[7 * PATH_MAX]; /* the lock is held */
    char *end = line + sprintf(line, "%llu\t%s\t%s\t%ld\t", (unsigned long long)call->number, KINDS[call->kind], call->name,
                               (long)syscall(SYS_getpid));
    end += escape(end, relative(call->path));
    *end++ = '\t';
    end += escape(end, call->is_literal ? call->path2 : relative(call->path2));
    end += sprintf(end, "\t%llu\t%lld\t%lld\t%lld\n", (unsigned long long)call->inode, (long long)call->offset,
                   (long long)call->size, (long long)result);
    if (log_descriptor >= 0 && syscall(SYS_write, log_descriptor, line, (size_t)(end - line)) == end - line) return;
    int opened = raw_open(log_file, O_WRONLY | O_CREAT | O_APPEND);
    log_descriptor = (int)syscall(SYS_fcntl, opened, F_DUPFD_CLOEXEC, 700);
    if (log_descriptor < 0)
        log_descriptor = opened;
    else
        syscall(SYS_close, opened);
    write_all(log_descriptor, line, (size_t)(end - line));
}

static void die(void) {
    syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
    for (;;) pause();
}

/* Number the call, with the lock held until finish. True if the call must fail with errno, without effect. */
static int begin(struct call *call) {
    int saved = errno;
    take();
    call->number = __atomic_add_fetch(&shared->count, 1, __ATOMIC_SEQ_CST);
    call->inode = inode_of(call->descriptor);
    if (call->number == kill_before) {
        write_log(call, 0);
        die();
    }
    int chosen = fail_at && call->number == fail_at;
    if (chosen) shared->fail_kind = (int)call->kind + 1;
    int same = shared->fail_kind == (int)call->kind + 1 ||
               (shared->fail_kind == WRITE + 1 && (call->kind == CREATE || call->kind == MKDIR));
    if (shared->fail_kind == WRITE + 1 && call->kind == TRUNCATE) {
        struct stat status;
        int found = call->descriptor >= 0 ? fstat(call->descriptor, &status) : stat(call->path, &status);
        same = !found && call->offset > status.st_size;
    }
    int later = fail_always && fail_at && call->number > fail_at && same;
    errno = saved;
    if (!chosen && !later) return 0;
    if (fail_short) {
        call->half = call->kind == READ || call->kind == WRITE;
        return 0;
    }
    errno = fail_errno;
    return 1;
}

static int64_t finish(struct call *call, int64_t result) {
    int saved = errno;
    write_log(call, result < 0 ? -saved : result);
    if (call->number == kill_after) die();
    release();
    errno = saved;
    return result;
}

static int on_descriptor(struct call *call, enum kind kind, const char *name, int descriptor) {
    if (descriptor < 0 || !is_active()) return 0;
    int saved = errno;
    call->descriptor = descriptor, call->kind = kind, call->name = name;
    call->path2[0] = 0, call->offset = call->size = 0, call->half = call->is_literal = 0;
    int inside = descriptor_path(descriptor, call->path) && is_inside(call->path);
    errno = saved;
    return inside;
}

static int on_path(struct call *call, enum kind kind, const char *name, int folder, const char *path) {
    if (!is_active()) return 0;
    int saved = errno;
    call->descriptor = -1, call->kind = kind, call->name = name;
    call->path2[0] = 0, call->offset = call->size = 0, call->half = call->is_literal = 0;
    int inside = full_path(folder, path, call->path) && is_inside(call->path);
    errno = saved;
    return inside;
}

static int64_t position(int descriptor) {
    int saved = errno;
    int64_t at = syscall(SYS_lseek, descriptor, 0L, SEEK_CUR);
    errno = saved;
    return at < 0 ? 0 : at;
}

static int64_t write_position(int descriptor) {
    int saved = errno;
    int flags = (int)syscall(SYS_fcntl, descriptor, F_GETFL);
    struct stat status;
    int appends = flags >= 0 && (flags & O_APPEND) && !fstat(descriptor, &status);
    errno = saved;
    return appends ? (int64_t)status.st_size : position(descriptor);
}

static int failed(struct call *call, int64_t *result) {
    if (!begin(call)) return 0;
    *result = finish(call, -1);
    return 1;
}
