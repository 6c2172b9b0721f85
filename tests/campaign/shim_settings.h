/* Settings and counter of shim.c, whose head describes them. */
#define _GNU_SOURCE
#undef _FORTIFY_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

typedef int64_t offset_t; /* off_t of every system that the campaign runs on has 64 bits */
enum kind { OPEN, CREATE, READ, WRITE, SYNC, RENAME, LINK, UNLINK, MKDIR, TRUNCATE, MAP, CLOSE };
static const char *const KINDS[] = {"open",   "create", "read",  "write",    "sync", "rename",
                                    "link",   "unlink", "mkdir", "truncate", "map",  "close"};

static const struct { const char *name; int number; } ERRNOS[] = {
    {"ENOSPC", ENOSPC}, {"EIO", EIO},       {"EACCES", EACCES}, {"EPERM", EPERM},   {"EMFILE", EMFILE},
    {"ENFILE", ENFILE}, {"EROFS", EROFS},   {"ENOMEM", ENOMEM}, {"EINTR", EINTR},   {"EDQUOT", EDQUOT},
    {"ENOENT", ENOENT}, {"EEXIST", EEXIST}, {"EBUSY", EBUSY},   {"EXDEV", EXDEV},   {"EAGAIN", EAGAIN}};

/* ---- settings ---- */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile int active;
static char root[PATH_MAX], log_file[PATH_MAX];
static size_t root_length;
static int log_descriptor = -1;
static uint64_t kill_before, kill_after, fail_at;
static int fail_errno, fail_short, fail_always;
struct shared { uint64_t count; int fail_kind; };
static struct shared *shared;

static void take(void) { pthread_mutex_lock(&lock); }
static void release(void) { pthread_mutex_unlock(&lock); }
__attribute__((constructor)) static void at_start(void) { pthread_atfork(take, release, release); }

static void copy_setting(char *to, const char *name) {
    const char *value = getenv(name);
    snprintf(to, PATH_MAX, "%s", value ? value : "");
}

static int raw_open(const char *path, int flags) {
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0600);
}

static void read_settings(void) {
    copy_setting(root, "SHIM_ROOT");
    copy_setting(log_file, "SHIM_LOG");
    root_length = strlen(root);
    while (root_length > 1 && root[root_length - 1] == '/') root[--root_length] = 0;
    const char *value = getenv("SHIM_KILL");
    if (value && !strncmp(value, "before:", 7)) kill_before = strtoull(value + 7, NULL, 10);
    if (value && !strncmp(value, "after:", 6)) kill_after = strtoull(value + 6, NULL, 10);
    value = getenv("SHIM_FAIL");
    if (value) {
        char *rest;
        fail_at = strtoull(value, &rest, 10);
        if (*rest == ':') rest++;
        size_t length = strcspn(rest, ":");
        fail_always = !strcmp(rest + length, ":always");
        fail_short = length == 5 && !strncmp(rest, "short", 5);
        fail_errno = atoi(rest);
        for (size_t i = 0; i < sizeof ERRNOS / sizeof *ERRNOS; i++)
            if (strlen(ERRNOS[i].name) == length && !strncmp(rest, ERRNOS[i].name, length)) fail_errno = ERRNOS[i].number;
        if (!fail_errno && !fail_short) {
            static const char wrong[] = "shim.c: SHIM_FAIL is malformed\n";
            syscall(SYS_write, 2, wrong, sizeof wrong - 1);
            _exit(97);
        }
    }
    value = getenv("SHIM_STATE");
    int flags = MAP_SHARED | (value ? 0 : MAP_ANONYMOUS), descriptor = -1;
    if (value) {
        descriptor = raw_open(value, O_RDWR | O_CREAT);
        if (syscall(SYS_ftruncate, descriptor, (long)sizeof *shared)) descriptor = -1;
    }
    void *page = (void *)syscall(SYS_mmap, NULL, sizeof *shared, PROT_READ | PROT_WRITE, flags, descriptor, 0L);
    if (page == MAP_FAILED) _exit(97);
    if (descriptor >= 0) syscall(SYS_close, descriptor);
    shared = page;
}

static int is_active(void) {
    if (active) return 1;
    if (!getenv("SHIM_ROOT")) return 0;
    take();
    if (!active) {
        int saved = errno;
        read_settings();
        errno = saved;
        active = 1;
    }
    release();
    return 1;
}
