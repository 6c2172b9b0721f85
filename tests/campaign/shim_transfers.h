/* Reads and writes of shim.c. */
/* ---- read, write ---- */
#define READS(name, SIGNATURE, TYPES, ARGUMENTS, at)                                                                   \
    ssize_t name SIGNATURE {                                                                                           \
        REAL(ssize_t, #name, TYPES);                                                                                   \
        struct call call;                                                                                              \
        size_t part = size;                                                                                            \
        if (!on_descriptor(&call, READ, #name, descriptor)) return real ARGUMENTS;                                     \
        call.offset = at, call.size = (int64_t)size;                                                                   \
        return COUNTED(&call, (part = PART(&call, size), real ARGUMENTS));                                             \
    }
#define COMMA ,
READS(read, (int descriptor, void *to, size_t size), int COMMA void *COMMA size_t, (descriptor, to, part),
      position(descriptor))
READS(pread, (int descriptor, void *to, size_t size, off_t offset), int COMMA void *COMMA size_t COMMA off_t,
      (descriptor, to, part, offset), offset)
READS(pread64, (int descriptor, void *to, size_t size, offset_t offset), int COMMA void *COMMA size_t COMMA offset_t,
      (descriptor, to, part, offset), offset)
READS(__read_chk, (int descriptor, void *to, size_t size, size_t limit), int COMMA void *COMMA size_t COMMA size_t,
      (descriptor, to, part, limit), position(descriptor))
READS(__pread_chk, (int descriptor, void *to, size_t size, off_t offset, size_t limit),
      int COMMA void *COMMA size_t COMMA off_t COMMA size_t, (descriptor, to, part, offset, limit), offset)
READS(__pread64_chk, (int descriptor, void *to, size_t size, offset_t offset, size_t limit),
      int COMMA void *COMMA size_t COMMA offset_t COMMA size_t, (descriptor, to, part, offset, limit), offset)

#define WRITES(name, SIGNATURE, TYPES, ARGUMENTS, at)                                                                  \
    ssize_t name SIGNATURE {                                                                                           \
        REAL(ssize_t, #name, TYPES);                                                                                   \
        struct call call;                                                                                              \
        size_t part = size;                                                                                            \
        if (!on_descriptor(&call, WRITE, #name, descriptor)) return real ARGUMENTS;                                    \
        call.offset = at, call.size = (int64_t)size;                                                                   \
        return COUNTED(&call, (part = PART(&call, size), real ARGUMENTS));                                             \
    }
WRITES(write, (int descriptor, const void *from, size_t size), int COMMA const void *COMMA size_t,
       (descriptor, from, part), write_position(descriptor))
WRITES(pwrite, (int descriptor, const void *from, size_t size, off_t offset),
       int COMMA const void *COMMA size_t COMMA off_t, (descriptor, from, part, offset), offset)
WRITES(pwrite64, (int descriptor, const void *from, size_t size, offset_t offset),
       int COMMA const void *COMMA size_t COMMA offset_t, (descriptor, from, part, offset), offset)

static ssize_t write_half(int descriptor, const struct iovec *parts, int count, size_t left) {
    ssize_t done = 0;
    for (int i = 0; i < count && left; i++) {
        size_t here = parts[i].iov_len < left ? parts[i].iov_len : left;
        ssize_t now = syscall(SYS_write, descriptor, parts[i].iov_base, here);
        if (now < 0) return done ? done : now;
        done += now, left -= (size_t)now;
    }
    return done;
}

ssize_t writev(int descriptor, const struct iovec *parts, int count) {
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    struct call call;
    if (!on_descriptor(&call, WRITE, "writev", descriptor)) return real(descriptor, parts, count);
    size_t size = 0;
    for (int i = 0; i < count; i++) size += parts[i].iov_len;
    call.offset = write_position(descriptor), call.size = (int64_t)size;
    return COUNTED(&call, call.half ? write_half(descriptor, parts, count, PART(&call, size))
                                    : real(descriptor, parts, count));
}

/* Copies between descriptors are writes. */
#define SENDS(name, type)                                                                                              \
    ssize_t name(int target, int source, type *offset, size_t size) {                                                  \
        REAL(ssize_t, #name, int, int, type *, size_t);                                                                \
        struct call call;                                                                                              \
        if (!on_descriptor(&call, WRITE, #name, target)) return real(target, source, offset, size);                    \
        call.offset = write_position(target), call.size = (int64_t)size;                                               \
        return COUNTED(&call, real(target, source, offset, PART(&call, size)));                                        \
    }
SENDS(sendfile, off_t)
SENDS(sendfile64, offset_t)

ssize_t copy_file_range(int source, offset_t *at, int target, offset_t *to, size_t size, unsigned flags) {
    REAL(ssize_t, "copy_file_range", int, offset_t *, int, offset_t *, size_t, unsigned);
    struct call call;
    if (!on_descriptor(&call, WRITE, "copy_file_range", target)) return real(source, at, target, to, size, flags);
    call.offset = to ? *to : position(target), call.size = (int64_t)size;
    return COUNTED(&call, real(source, at, target, to, PART(&call, size), flags));
}

size_t fwrite(const void *from, size_t size, size_t items, FILE *stream) {
    REAL(size_t, "fwrite", const void *, size_t, size_t, FILE *);
    struct call call;
    if (!size || !items || !on_descriptor(&call, WRITE, "fwrite", fileno(stream))) return real(from, size, items, stream);
    fflush(stream);
    call.offset = write_position(call.descriptor), call.size = (int64_t)(size * items);
    int64_t result;
    if (failed(&call, &result)) return 0;
    size_t done = real(from, size, items, stream);
    if (fflush(stream)) done = 0;
    result = done || !ferror(stream) ? (int64_t)(done * size) : -1;
    finish(&call, result);
    return done;
}

#define FREADS(name, SIGNATURE, TYPES, ARGUMENTS)                                                                      \
    size_t name SIGNATURE {                                                                                            \
        REAL(size_t, #name, TYPES);                                                                                    \
        struct call call;                                                                                              \
        if (!size || !items || !on_descriptor(&call, READ, #name, fileno(stream))) return real ARGUMENTS;              \
        call.offset = (int64_t)ftello(stream), call.size = (int64_t)(size * items);                                    \
        int64_t result;                                                                                                \
        if (failed(&call, &result)) return 0;                                                                          \
        size_t done = real ARGUMENTS;                                                                                  \
        finish(&call, done || !ferror(stream) ? (int64_t)(done * size) : -1);                                          \
        return done;                                                                                                   \
    }
FREADS(fread, (void *to, size_t size, size_t items, FILE *stream), void *COMMA size_t COMMA size_t COMMA FILE *,
       (to, size, items, stream))
FREADS(__fread_chk, (void *to, size_t limit, size_t size, size_t items, FILE *stream),
       void *COMMA size_t COMMA size_t COMMA size_t COMMA FILE *, (to, limit, size, items, stream))
