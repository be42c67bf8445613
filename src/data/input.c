/* Plain files are read directly into the caller's buffer, compressed ones through a buffer of fixed size.
 * Concatenated gzip members are supported as in `gzip -d`; zeros after the last one are padding. */
#include "data/input.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/memory.h"
#include "data/source.h"

enum { GZIP_WINDOW = 15 + 16, BUFFER = 1 << 17, CHUNK = 1 << 30 };

struct Input {
    char *name;
    int fd; /* -1: memory */
    struct stat begin;
    const char *memory;
    size_t memory_size;
    InputFunc func; /* instead of a file or memory; or NULL */
    void *context;
    int64_t used;
    bool compressed, started;
    bool inside;          /* within a member */
    bool ended;           /* end of file reached */
    int64_t members_done; /* completed members */
    z_stream z;
    unsigned char *buffer;
    char *start; /* peeked at, with a NUL; bytes start_at .. start_size - 1 are still to be returned */
    size_t start_size, start_at;
};

/* Detects gzip by the file's first bytes, whatever its name is. */
static bool is_compressed(const Input *input, const char *path) {
    unsigned char start[3] = {0};
    if (path_is_gz(path)) return true;
    return pread(input->fd, start, sizeof start, 0) == sizeof start && !memcmp(start, "\x1f\x8b\x08", 3);
}

static Status open_file(Input *input, const char *path) {
    struct stat st;
    if (stat(path, &st) != 0) return FAILED("%s: cannot open: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode) && !S_ISFIFO(st.st_mode))
        return FAILED("%s: expected a file, found %s", path,
                      S_ISDIR(st.st_mode) ? "a directory" : "something else");
    input->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (input->fd < 0) return FAILED("%s: cannot open: %s", path, strerror(errno));
    if (fstat(input->fd, &input->begin) != 0) return FAILED("%s: cannot stat: %s", path, strerror(errno));
    posix_fadvise(input->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    return OK;
}

Status input_open(Input **ret_input, const char *path) {
    CLEANUP(input_freep) Input *input = NULL;
    TRY(mem_new(1, sizeof *input, &input));
    input->fd = -1;
    TRY(str_dup(path, &input->name));
    TRY(open_file(input, path));
    input->compressed = is_compressed(input, path); /* pipes cannot be probed */
    if (input->compressed) {
        TRY(mem_new(BUFFER, 1, &input->buffer));
        if (inflateInit2(&input->z, GZIP_WINDOW) != Z_OK)
            return FAILED("%s: the decompressor cannot be initialized", path);
        input->started = true;
    }
    return MOVE(ret_input, input);
}

Status input_open_memory(Input **ret_input, const char *name, const void *data, size_t size) {
    CLEANUP(input_freep) Input *input = NULL;
    TRY(mem_new(1, sizeof *input, &input));
    input->fd = -1;
    TRY(str_dup(name, &input->name));
    input->memory = data;
    input->memory_size = size;
    return MOVE(ret_input, input);
}

Status input_open_func(Input **ret_input, const char *name, InputFunc func, void *context) {
    CLEANUP(input_freep) Input *input = NULL;
    TRY(input_open_memory(&input, name, NULL, 0));
    input->func = func;
    input->context = context;
    return MOVE(ret_input, input);
}

void input_free(Input *input) {
    if (!input) return;
    if (input->started) inflateEnd(&input->z);
    if (input->fd >= 0) close(input->fd);
    free(input->buffer);
    free(input->start);
    free(input->name);
    free(input);
}

bool input_compressed(const Input *input) {
    return input->compressed;
}

int64_t input_used(const Input *input) {
    return input->used;
}

bool input_changed(const Input *input) {
    struct stat now;
    const struct stat *begin = &input->begin;
    if (input->fd < 0 || !S_ISREG(begin->st_mode) || fstat(input->fd, &now) != 0) return false;
    return now.st_size != begin->st_size || now.st_mtim.tv_sec != begin->st_mtim.tv_sec ||
           now.st_mtim.tv_nsec != begin->st_mtim.tv_nsec;
}

static Status read_file(Input *input, void *to, size_t size, size_t *ret_got) {
    ssize_t got;
    do got = read(input->fd, to, size < CHUNK ? size : CHUNK);
    while (got < 0 && errno == EINTR);
    if (got < 0) return FAILED("%s: cannot read: %s", input->name, strerror(errno));
    input->used += got;
    *ret_got = (size_t)got;
    return OK;
}

static void read_memory(Input *input, char *to, size_t size, size_t *ret_got) {
    size_t left = input->memory_size - (size_t)input->used, got = size < left ? size : left;
    if (got) memcpy(to, input->memory + input->used, got);
    input->used += (int64_t)got;
    *ret_got = got;
}

/* After a member: skips padding and looks for another member. */
static Status next_member(Input *input, bool *ret_more) {
    z_stream *z = &input->z;
    for (;;) {
        while (input->members_done > 0 && z->avail_in > 0 && *z->next_in == 0) {
            z->next_in++;
            z->avail_in--;
        }
        if (z->avail_in > 0) break;
        size_t got = 0;
        if (!input->ended) TRY(read_file(input, input->buffer, BUFFER, &got));
        input->ended = got == 0;
        z->next_in = input->buffer;
        z->avail_in = (uInt)got;
        if (input->ended) {
            *ret_more = false;
            return OK;
        }
    }
    if (inflateReset(z) != Z_OK) return FAILED("%s: the decompressor cannot be reset", input->name);
    input->inside = true;
    *ret_more = true;
    return OK;
}

static Status inflate_some(Input *input, char *to, size_t size, size_t *ret_got) {
    z_stream *z = &input->z;
    if (z->avail_in == 0) {
        size_t got = 0;
        TRY(read_file(input, input->buffer, BUFFER, &got));
        if (got == 0) return FAILED("%s: the compressed data is truncated", input->name);
        z->next_in = input->buffer;
        z->avail_in = (uInt)got;
    }
    uInt space = (uInt)(size < CHUNK ? size : CHUNK);
    z->next_out = (unsigned char *)to;
    z->avail_out = space;
    int result = inflate(z, Z_NO_FLUSH);
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
        return FAILED("%s: the compressed data is damaged at byte %lld: %s", input->name,
                      (long long)(input->used - (int64_t)z->avail_in), z->msg ? z->msg : "not gzip");
    if (result == Z_STREAM_END) {
        input->inside = false;
        input->members_done++;
    }
    *ret_got = space - z->avail_out;
    return OK;
}

static Status read_compressed(Input *input, char *to, size_t size, size_t *ret_got) {
    *ret_got = 0;
    while (*ret_got == 0) {
        bool more = true;
        if (!input->inside) TRY(next_member(input, &more));
        if (!more) return OK;
        TRY(inflate_some(input, to, size, ret_got));
    }
    return OK;
}

Status input_peek(Input *input, size_t size, const char **ret_text, size_t *ret_got) {
    CLEANUP(mem_freep) char *start = NULL;
    TRY(mem_new(size + 1, 1, &start));
    TRY(input_read(input, start, size, ret_got));
    *ret_text = input->start = start;
    input->start_size = *ret_got;
    start = NULL;
    return OK;
}

static size_t read_peeked(Input *input, char *to, size_t size) {
    size_t left = input->start_size - input->start_at, got = size < left ? size : left;
    if (got) memcpy(to, input->start + input->start_at, got);
    input->start_at += got;
    return got;
}

Status input_read(Input *input, char *to, size_t size, size_t *ret_got) {
    size_t have = read_peeked(input, to, size);
    while (have < size) {
        size_t got = 0;
        if (input->func)
            TRY(input->func(input->context, to + have, size - have, &got));
        else if (input->fd < 0)
            read_memory(input, to + have, size - have, &got);
        else if (input->compressed)
            TRY(read_compressed(input, to + have, size - have, &got));
        else
            TRY(read_file(input, to + have, size - have, &got));
        if (got == 0) break;
        have += got;
    }
    *ret_got = have;
    return OK;
}
