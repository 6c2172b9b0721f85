/* Preloaded library (LD_PRELOAD) that counts, logs, kills at and fails the file calls of a process. Linux only.

Environment variables. They are read at the first file call at which SHIM_ROOT is set, so a fork may set them after the
fork (os.environ.update); without SHIM_ROOT every call goes straight through.

SHIM_ROOT=FOLDER     Only calls count whose path, or the path of whose file descriptor, is this folder or inside it. An
                     absolute real path (no symbolic links). Other calls are not counted, logged or failed.
SHIM_LOG=FILE        Append one line for each counted call that returned, or that SHIM_KILL or SHIM_FAIL ended. Ten
                     fields, separated by tabs:
                         number   from 1, in the order of the calls
                         kind     open create read write sync rename link unlink mkdir truncate map close
                         call     the function, such as pwrite64
                         process  its id
                         path     relative to SHIM_ROOT ("." is the folder itself), of the descriptor or first argument
                         path2    second path of rename and link, the target of symlink, otherwise empty
                         inode    of the descriptor (of a file that was just opened, too), otherwise 0
                         offset   of read, write, map; new length of truncate; mode (octal in decimal digits) of mkdir
                         size     bytes asked for by read, write, map, or flags of open and create; of map also see below
                         result   return value, or minus errno
                     Bytes below 33, 127 and "%" of paths are written as %XX. An unlinked file has the path it had.
                     kind map: only file-backed; a writable shared map has the call "mmap-shared".
SHIM_KILL=before:N   SIGKILL to the calling process before call N takes effect (logged with the result 0),
SHIM_KILL=after:N    or after it took effect.
SHIM_FAIL=N:ERRNO    Call N fails with ERRNO (a number, or ENOSPC EIO EACCES EPERM EMFILE ENFILE EROFS ENOMEM EINTR EDQUOT
                     ENOENT EEXIST EBUSY EXDEV EAGAIN) and does nothing; close closes the descriptor all the same.
SHIM_FAIL=N:short    Call N, a read or write of more than one byte, transfers half of its bytes. Other calls are untouched.
SHIM_FAIL=N:ERRNO:always  Call N and all later calls of the same kind fail. If that kind is write, creating (create, mkdir)
                     and lengthening (truncate to more than the present length) fail too: a full disk.
SHIM_STATE=FILE      A file with the shared counter, created if missing; delete it between runs. See below.

Threads and child processes: one counter for all threads, and for children that are forked after the variables took
effect. A child that executes another program (and inherits LD_PRELOAD) counts on from the same counter only with
SHIM_STATE, otherwise from 1. SHIM_KILL kills the process that makes the call, not its parent or children. Calls of one
process are executed one at a time, so the log has the order in which they took effect.

stdio: glibc's fopen, fwrite, fread and fclose call the kernel without the dynamic linker. They are wrapped: fwrite counts
as a write and is flushed at once, fread as a read, fopen as open or create, fclose as close. fprintf, fputs and getc are not.
Calls that a program makes without the C library are not seen: safetensors renames its temporary file so.
Not counted: stat, readdir, chmod, utime, flock, dup, sockets, and stores into mapped memory.
*/
#include "shim_core.h"

/* The next definition of a function: the one that would be called without this library. */
#define REAL(type, name, ...)                                                                                          \
    static type (*real)(__VA_ARGS__);                                                                                  \
    if (!real) real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)
/* The result of a counted call: -1 if it must fail, otherwise that of the expression. */
#define COUNTED(call, expression)                                                                                      \
    ({                                                                                                                 \
        int64_t result_;                                                                                               \
        if (!failed(call, &result_)) result_ = finish(call, (expression));                                             \
        result_;                                                                                                       \
    })
#define PART(call, size) ((call)->half && (size) > 1 ? (size) / 2 : (size))

/* ---- open, close ---- */
static int opened(struct call *call, int descriptor) {
    if (descriptor >= 0) call->inode = inode_of(descriptor);
    return descriptor;
}

#define MODE                                                                                                           \
    mode_t mode = 0;                                                                                                   \
    if (flags & (O_CREAT | O_TMPFILE)) {                                                                               \
        va_list arguments;                                                                                             \
        va_start(arguments, flags);                                                                                    \
        mode = va_arg(arguments, mode_t);                                                                              \
        va_end(arguments);                                                                                             \
    }
#define OPENS(name)                                                                                                    \
    int name(const char *path, int flags, ...) {                                                                       \
        REAL(int, #name, const char *, int, ...);                                                                      \
        MODE struct call call;                                                                                         \
        if (!on_path(&call, flags &O_CREAT ? CREATE : OPEN, #name, AT_FDCWD, path)) return real(path, flags, mode);    \
        call.size = flags;                                                                                             \
        return (int)COUNTED(&call, opened(&call, real(path, flags, mode)));                                            \
    }
#define OPENS_AT(name)                                                                                                 \
    int name(int folder, const char *path, int flags, ...) {                                                           \
        REAL(int, #name, int, const char *, int, ...);                                                                 \
        MODE struct call call;                                                                                         \
        if (!on_path(&call, flags &O_CREAT ? CREATE : OPEN, #name, folder, path))                                      \
            return real(folder, path, flags, mode);                                                                    \
        call.size = flags;                                                                                             \
        return (int)COUNTED(&call, opened(&call, real(folder, path, flags, mode)));                                    \
    }
#define CREATES(name)                                                                                                  \
    int name(const char *path, mode_t mode) {                                                                          \
        REAL(int, #name, const char *, mode_t);                                                                        \
        struct call call;                                                                                              \
        if (!on_path(&call, CREATE, #name, AT_FDCWD, path)) return real(path, mode);                                   \
        call.size = O_CREAT | O_WRONLY | O_TRUNC;                                                                      \
        return (int)COUNTED(&call, opened(&call, real(path, mode)));                                                   \
    }
OPENS(open)
OPENS(open64)
OPENS(__open_2) /* of programs that were compiled with _FORTIFY_SOURCE; never with O_CREAT */
OPENS(__open64_2)
OPENS_AT(openat)
OPENS_AT(openat64)
OPENS_AT(__openat_2)
OPENS_AT(__openat64_2)
CREATES(creat)
CREATES(creat64)

static int flags_of(const char *mode) {
    int flags = strchr(mode, '+') ? O_RDWR : *mode == 'r' ? O_RDONLY : O_WRONLY;
    return flags | (*mode == 'w' ? O_CREAT | O_TRUNC : *mode == 'a' ? O_CREAT | O_APPEND : 0);
}
#define FOPENS(name)                                                                                                   \
    FILE *name(const char *path, const char *mode) {                                                                   \
        REAL(FILE *, #name, const char *, const char *);                                                               \
        struct call call;                                                                                              \
        FILE *stream = NULL;                                                                                           \
        if (!on_path(&call, *mode == 'r' ? OPEN : CREATE, #name, AT_FDCWD, path)) return real(path, mode);             \
        call.size = flags_of(mode);                                                                                    \
        COUNTED(&call, opened(&call, (stream = real(path, mode)) ? fileno(stream) : -1));                              \
        return stream;                                                                                                 \
    }
FOPENS(fopen)
FOPENS(fopen64)

int close(int descriptor) {
    REAL(int, "close", int);
    struct call call;
    if (!on_descriptor(&call, CLOSE, "close", descriptor)) return real(descriptor);
    if (!begin(&call)) return (int)finish(&call, real(descriptor));
    int number = errno;
    real(descriptor);
    errno = number;
    return (int)finish(&call, -1);
}

int fclose(FILE *stream) {
    REAL(int, "fclose", FILE *);
    struct call call;
    if (!on_descriptor(&call, CLOSE, "fclose", fileno(stream))) return real(stream);
    if (!begin(&call)) return (int)finish(&call, real(stream));
    int number = errno;
    real(stream);
    errno = number;
    return (int)finish(&call, -1);
}

#include "shim_transfers.h"

/* ---- sync, truncate ---- */
#define SYNCS(name)                                                                                                    \
    int name(int descriptor) {                                                                                         \
        REAL(int, #name, int);                                                                                         \
        struct call call;                                                                                              \
        if (!on_descriptor(&call, SYNC, #name, descriptor)) return real(descriptor);                                   \
        return (int)COUNTED(&call, real(descriptor));                                                                  \
    }
SYNCS(fsync)
SYNCS(fdatasync)
SYNCS(syncfs)

#define FTRUNCATES(name, type)                                                                                         \
    int name(int descriptor, type length) {                                                                            \
        REAL(int, #name, int, type);                                                                                   \
        struct call call;                                                                                              \
        if (!on_descriptor(&call, TRUNCATE, #name, descriptor)) return real(descriptor, length);                       \
        call.offset = length;                                                                                          \
        return (int)COUNTED(&call, real(descriptor, length));                                                          \
    }
#define TRUNCATES(name, type)                                                                                          \
    int name(const char *path, type length) {                                                                          \
        REAL(int, #name, const char *, type);                                                                          \
        struct call call;                                                                                              \
        if (!on_path(&call, TRUNCATE, #name, AT_FDCWD, path)) return real(path, length);                               \
        call.offset = length;                                                                                          \
        return (int)COUNTED(&call, real(path, length));                                                                \
    }
FTRUNCATES(ftruncate, off_t)
FTRUNCATES(ftruncate64, offset_t)
TRUNCATES(truncate, off_t)
TRUNCATES(truncate64, offset_t)

/* posix_fallocate returns its error; a longer file is a truncate to that length. */
#define ALLOCATES(name, type)                                                                                          \
    int name(int descriptor, type offset, type length) {                                                               \
        REAL(int, #name, int, type, type);                                                                             \
        struct call call;                                                                                              \
        struct stat status;                                                                                            \
        if (!on_descriptor(&call, TRUNCATE, #name, descriptor)) return real(descriptor, offset, length);               \
        call.offset = offset + length;                                                                                 \
        if (!fstat(descriptor, &status) && status.st_size > call.offset) call.offset = status.st_size;                 \
        int error = 0;                                                                                                 \
        int64_t result = COUNTED(&call, (error = real(descriptor, offset, length)) ? (errno = error, -1) : 0);         \
        return result < 0 ? errno : 0;                                                                                 \
    }
ALLOCATES(posix_fallocate, off_t)
ALLOCATES(posix_fallocate64, offset_t)

/* ---- names ---- */
static int on_two_paths(struct call *call, enum kind kind, const char *name, int folder, const char *path, int folder2,
                        const char *path2) {
    if (!is_active()) return 0;
    struct call second;
    int first = on_path(call, kind, name, folder, path), other = on_path(&second, kind, name, folder2, path2);
    memcpy(call->path2, second.path, sizeof second.path);
    return first || other;
}

int rename(const char *from, const char *to) {
    REAL(int, "rename", const char *, const char *);
    struct call call;
    if (!on_two_paths(&call, RENAME, "rename", AT_FDCWD, from, AT_FDCWD, to)) return real(from, to);
    return (int)COUNTED(&call, real(from, to));
}
int renameat(int folder, const char *from, int folder2, const char *to) {
    REAL(int, "renameat", int, const char *, int, const char *);
    struct call call;
    if (!on_two_paths(&call, RENAME, "renameat", folder, from, folder2, to)) return real(folder, from, folder2, to);
    return (int)COUNTED(&call, real(folder, from, folder2, to));
}
int renameat2(int folder, const char *from, int folder2, const char *to, unsigned flags) {
    REAL(int, "renameat2", int, const char *, int, const char *, unsigned);
    struct call call;
    if (!on_two_paths(&call, RENAME, "renameat2", folder, from, folder2, to))
        return real(folder, from, folder2, to, flags);
    call.size = flags;
    return (int)COUNTED(&call, real(folder, from, folder2, to, flags));
}
int link(const char *from, const char *to) {
    REAL(int, "link", const char *, const char *);
    struct call call;
    if (!on_two_paths(&call, LINK, "link", AT_FDCWD, from, AT_FDCWD, to)) return real(from, to);
    return (int)COUNTED(&call, real(from, to));
}
int linkat(int folder, const char *from, int folder2, const char *to, int flags) {
    REAL(int, "linkat", int, const char *, int, const char *, int);
    struct call call;
    if (!on_two_paths(&call, LINK, "linkat", folder, from, folder2, to)) return real(folder, from, folder2, to, flags);
    return (int)COUNTED(&call, real(folder, from, folder2, to, flags));
}
static int symbolic(struct call *call, const char *name, const char *target, int folder, const char *path) {
    int inside = on_path(call, LINK, name, folder, path);
    if (inside) snprintf(call->path2, sizeof call->path2, "%s", target);
    call->is_literal = 1;
    return inside;
}
int symlink(const char *target, const char *path) {
    REAL(int, "symlink", const char *, const char *);
    struct call call;
    if (!symbolic(&call, "symlink", target, AT_FDCWD, path)) return real(target, path);
    return (int)COUNTED(&call, real(target, path));
}
int symlinkat(const char *target, int folder, const char *path) {
    REAL(int, "symlinkat", const char *, int, const char *);
    struct call call;
    if (!symbolic(&call, "symlinkat", target, folder, path)) return real(target, folder, path);
    return (int)COUNTED(&call, real(target, folder, path));
}
#define REMOVES(name)                                                                                                  \
    int name(const char *path) {                                                                                       \
        REAL(int, #name, const char *);                                                                                \
        struct call call;                                                                                              \
        if (!on_path(&call, UNLINK, #name, AT_FDCWD, path)) return real(path);                                         \
        return (int)COUNTED(&call, real(path));                                                                        \
    }
REMOVES(unlink)
REMOVES(rmdir)
REMOVES(remove)
int unlinkat(int folder, const char *path, int flags) {
    REAL(int, "unlinkat", int, const char *, int);
    struct call call;
    if (!on_path(&call, UNLINK, "unlinkat", folder, path)) return real(folder, path, flags);
    call.size = flags;
    return (int)COUNTED(&call, real(folder, path, flags));
}
int mkdir(const char *path, mode_t mode) {
    REAL(int, "mkdir", const char *, mode_t);
    struct call call;
    if (!on_path(&call, MKDIR, "mkdir", AT_FDCWD, path)) return real(path, mode);
    call.offset = mode;
    return (int)COUNTED(&call, real(path, mode));
}
int mkdirat(int folder, const char *path, mode_t mode) {
    REAL(int, "mkdirat", int, const char *, mode_t);
    struct call call;
    if (!on_path(&call, MKDIR, "mkdirat", folder, path)) return real(folder, path, mode);
    call.offset = mode;
    return (int)COUNTED(&call, real(folder, path, mode));
}

/* ---- maps: msync has no descriptor, so writable shared maps are remembered ---- */
static struct { char *start; size_t size; int64_t offset; uint64_t inode; char path[PATH_MAX]; } maps[64];
static unsigned map_count;

static void *mapped(const struct call *call, void *start) {
    if (start == MAP_FAILED || strcmp(call->name, "mmap-shared")) return start;
    unsigned slot = map_count++ % 64;
    maps[slot].start = start, maps[slot].size = (size_t)call->size, maps[slot].offset = call->offset;
    maps[slot].inode = call->inode;
    memcpy(maps[slot].path, call->path, sizeof call->path);
    return start;
}
#define MAPS(name, type)                                                                                               \
    void *name(void *near, size_t size, int protection, int flags, int descriptor, type offset) {                      \
        REAL(void *, #name, void *, size_t, int, int, int, type);                                                      \
        struct call call;                                                                                              \
        void *start = MAP_FAILED;                                                                                      \
        int shares = (flags & MAP_SHARED) && (protection & PROT_WRITE);                                                \
        if ((flags & MAP_ANONYMOUS) || !on_descriptor(&call, MAP, shares ? "mmap-shared" : "mmap", descriptor))        \
            return real(near, size, protection, flags, descriptor, offset);                                            \
        call.offset = offset, call.size = (int64_t)size;                                                               \
        int64_t result = COUNTED(                                                                                      \
            &call, (start = mapped(&call, real(near, size, protection, flags, descriptor, offset))) == MAP_FAILED      \
                       ? -1                                                                                            \
                       : 0);                                                                                           \
        return result < 0 ? MAP_FAILED : start;                                                                        \
    }
MAPS(mmap, off_t)
MAPS(mmap64, offset_t)

/* The log line has the mapped part of the file that was flushed. */
int msync(void *start, size_t size, int flags) {
    REAL(int, "msync", void *, size_t, int);
    if (!is_active()) return real(start, size, flags);
    for (unsigned i = 0; i < 64; i++) {
        if ((char *)start < maps[i].start || (char *)start >= maps[i].start + maps[i].size) continue;
        struct call call = {.kind = SYNC, .name = "msync", .descriptor = -1, .size = (int64_t)size};
        memcpy(call.path, maps[i].path, sizeof call.path);
        call.offset = maps[i].offset + ((char *)start - maps[i].start);
        int64_t result;
        if (failed(&call, &result)) return -1;
        call.inode = maps[i].inode;
        result = real(start, size, flags);
        return (int)finish(&call, result);
    }
    return real(start, size, flags);
}
