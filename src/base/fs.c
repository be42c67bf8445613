/* A FileWriter buffers into "<path>.tmp.<pid>" and renames it on commit. If anything fails (full disk, no
 * write permission), `path` keeps its old content. */
#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/process.h"

void fd_closep(int *fd) {
    if (*fd >= 0) close(*fd);
}

static Status open_regular(const char *path, int *ret_fd, size_t *ret_size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return FAILED("%s: cannot open: %s", path, strerror(errno));
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        bool is_dir = S_ISDIR(st.st_mode);
        close(fd);
        return DAMAGED("%s: expected a file, found %s", path, is_dir ? "a directory" : "something else");
    }
    *ret_fd = fd;
    *ret_size = (size_t)st.st_size;
    return OK;
}

Status file_map_init(FileMap *ret_map, const char *path) {
    CLEANUP(fd_closep) int fd = -1;
    size_t size;
    TRY(open_regular(path, &fd, &size));
    void *data = NULL;
    if (size > 0) {
        data = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED) return FAILED("%s: cannot map into memory: %s", path, strerror(errno));
    }
    *ret_map = (FileMap){.data = data, .size = size};
    return OK;
}

void file_map_done(FileMap *map) {
    if (map->data) munmap((void *)(uintptr_t)map->data, map->size);
    *map = (FileMap){0};
}

Status file_read(const char *path, size_t limit, char **ret_text, size_t *ret_size) {
    CLEANUP(fd_closep) int fd = -1;
    size_t size;
    TRY(open_regular(path, &fd, &size));
    if (size > limit) return FAILED("%s: file has %zu bytes; the limit is %zu", path, size, limit);
    CLEANUP(mem_freep) char *text = NULL;
    TRY(mem_new(size + 1, 1, &text));
    size_t have = 0;
    while (have < size) {
        ssize_t got = read(fd, text + have, size - have);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return FAILED("%s: cannot read: %s", path, strerror(errno));
        if (got == 0) break;
        have += (size_t)got;
    }
    text[have] = 0;
    *ret_text = text;
    text = NULL;
    if (ret_size) *ret_size = have;
    return OK;
}

const char *path_base(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool path_ends_with(const char *path, const char *ending) {
    size_t length = strlen(path), tail = strlen(ending);
    return length > tail && !strcmp(path + length - tail, ending);
}

bool path_exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0;
}

bool path_is_dir(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool path_is_special(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

bool dir_is_empty(const char *path) {
    DIR *dir = opendir(path);
    if (!dir) return false;
    bool empty = true;
    for (struct dirent *entry; empty && (entry = readdir(dir));)
        empty = !strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..");
    closedir(dir);
    return empty;
}

Status path_join(char **ret_path, const char *dir, const char *name) {
    size_t length = strlen(dir);
    return str_format(ret_path, "%s%s%s", dir, length && dir[length - 1] == '/' ? "" : "/", name);
}

Status user_cache(char **ret_dir) {
    const char *own = getenv("WEFT_CACHE"), *shared = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (own && *own) return str_dup(own, ret_dir);
    if (shared && *shared) return path_join(ret_dir, shared, "weft");
    if (home && *home) return path_join(ret_dir, home, ".cache/weft");
    *ret_dir = NULL;
    return OK;
}

Status dir_make(const char *path) {
    if (!*path) return FAILED("cannot create a directory with an empty name");
    CLEANUP(mem_freep) char *partial = NULL;
    TRY(str_dup(path, &partial));
    for (char *at = partial + 1;; at++) {
        if (*at != '/' && *at != 0) continue;
        char kept = *at;
        *at = 0;
        if (mkdir(partial, 0777) != 0 && errno != EEXIST)
            return FAILED("%s: cannot create directory: %s", partial, strerror(errno));
        *at = kept;
        if (!kept) break;
    }
    if (path_is_dir(path)) return OK;
    return FAILED("%s: expected a directory, found %s", path,
                  path_exists(path) ? "a file" : "a broken symbolic link");
}

Status dir_make_temporary(char **ret_dir) {
    const char *where = getenv("TMPDIR");
    CLEANUP(mem_freep) char *dir = NULL;
    TRY(path_join(&dir, where && *where ? where : "/tmp", "weft-XXXXXX"));
    if (!mkdtemp(dir)) return FAILED("%s: cannot create directory: %s", dir, strerror(errno));
    process_remove_at_end(dir);
    return MOVE(ret_dir, dir);
}

Status dir_sync(const char *path) {
    CLEANUP(fd_closep) int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return FAILED("%s: cannot open directory: %s", path, strerror(errno));
    if (fsync(fd) != 0 && errno != EINVAL)
        return FAILED("%s: cannot fsync directory: %s", path, strerror(errno));
    return OK;
}

void dir_closep(DIR **dir) {
    if (*dir) closedir(*dir);
}

Status dir_remove(const char *path) {
    struct stat st;
    if (lstat(path, &st) != 0) return OK;
    if (!S_ISDIR(st.st_mode)) {
        if (unlink(path) != 0 && errno != ENOENT)
            return FAILED("%s: cannot remove: %s", path, strerror(errno));
        return OK;
    }
    CLEANUP(dir_closep) DIR *dir = opendir(path);
    if (!dir) return FAILED("%s: cannot read directory: %s", path, strerror(errno));
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        CLEANUP(mem_freep) char *child = NULL;
        TRY(path_join(&child, path, entry->d_name));
        TRY(dir_remove(child));
    }
    if (rmdir(path) != 0 && errno != ENOENT)
        return FAILED("%s: cannot remove directory: %s", path, strerror(errno));
    return OK;
}

/* Whether `name` is "BASE.tmp.PID" with a process that does not run on this host. */
static bool is_leftover(const char *name, const char *base) {
    size_t length = strlen(base);
    if (strncmp(name, base, length) || strncmp(name + length, ".tmp.", 5)) return false;
    const char *digits = name + length + 5;
    char *end;
    long pid = strtol(digits, &end, 10);
    if (*digits < '1' || *digits > '9' || *end) return false;
    return pid > INT32_MAX || (kill((pid_t)pid, 0) != 0 && errno == ESRCH);
}

static Status remove_unheld(const char *path) {
    struct stat st;
    CLEANUP(fd_closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) != 0 || st.st_uid != geteuid()) return OK;
    if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode)) return OK;
    return flock(fd, LOCK_EX | LOCK_NB) == 0 ? dir_remove(path) : OK;
}

Status path_clear_leftovers(const char *path) {
    CLEANUP(mem_freep) char *first = NULL, *second = NULL;
    TRY(str_dup(path, &first));
    TRY(str_dup(path, &second));
    const char *parent = dirname(first), *base = basename(second);
    CLEANUP(dir_closep) DIR *dir = opendir(parent);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        if (!is_leftover(entry->d_name, base)) continue;
        CLEANUP(mem_freep) char *left = NULL;
        TRY(path_join(&left, parent, entry->d_name));
        TRY(remove_unheld(left));
    }
    return OK;
}

int path_hold(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) flock(fd, LOCK_EX | LOCK_NB);
    return fd;
}

/* Follows symbolic links to the file, which need not exist. */
static Status follow_links(const char *path, char **ret_path) {
    enum { LINKS = 40 };
    CLEANUP(mem_freep) char *at = NULL;
    char to[PATH_MAX];
    ssize_t length;
    TRY(str_dup(path, &at));
    for (int i = 0; (length = readlink(at, to, sizeof to - 1)) >= 0; i++) {
        if (i == LINKS) return FAILED("%s: cannot write: %s", path, strerror(ELOOP));
        to[length] = 0;
        CLEANUP(mem_freep) char *from = at;
        at = NULL;
        TRY(*to == '/' ? str_dup(to, &at) : path_join(&at, dirname(from), to));
    }
    return MOVE(ret_path, at);
}

struct FileWriter {
    char *path;      /* as the caller gave it, for messages */
    char *target;    /* the file to replace */
    char *temporary; /* NULL: written directly */
    int fd;
    size_t used;
    unsigned char buffer[1 << 16];
};

Status file_writer_new(FileWriter **ret_writer, const char *path) {
    CLEANUP(file_writer_freep) FileWriter *writer = NULL;
    TRY(mem_new(1, sizeof *writer, &writer));
    writer->fd = -1;
    TRY(str_dup(path, &writer->path));
    if (path_is_special(path)) {
        writer->fd = open(path, O_WRONLY | O_CLOEXEC);
    } else {
        TRY(follow_links(path, &writer->target));
        TRY(str_format(&writer->temporary, "%s.tmp.%ld", writer->target, (long)getpid()));
        writer->fd = open(writer->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    }
    if (writer->fd < 0) return FAILED("%s: cannot write: %s", path, strerror(errno));
    flock(writer->fd, LOCK_EX | LOCK_NB); /* see path_clear_leftovers */
    return MOVE(ret_writer, writer);
}

static Status write_all(FileWriter *writer, const unsigned char *data, size_t size) {
    while (size > 0) {
        ssize_t wrote = write(writer->fd, data, size);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0) return FAILED("%s: cannot write: %s", writer->path, strerror(errno));
        data += wrote;
        size -= (size_t)wrote;
    }
    return OK;
}

Status file_write(FileWriter *writer, const void *data, size_t size) {
    if (writer->used + size > sizeof writer->buffer) {
        TRY(write_all(writer, writer->buffer, writer->used));
        writer->used = 0;
    }
    if (size > sizeof writer->buffer) return write_all(writer, data, size);
    memcpy(writer->buffer + writer->used, data, size);
    writer->used += size;
    return OK;
}

Status file_write_at(FileWriter *writer, size_t at, const void *data, size_t size) {
    TRY(write_all(writer, writer->buffer, writer->used));
    writer->used = 0;
    for (const unsigned char *from = data; size > 0;) {
        ssize_t wrote = pwrite(writer->fd, from, size, (off_t)at);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0) return FAILED("%s: cannot write: %s", writer->path, strerror(errno));
        from += wrote;
        at += (size_t)wrote;
        size -= (size_t)wrote;
    }
    return OK;
}

Status file_print(FileWriter *writer, const char *fmt, ...) {
    char *text = NULL;
    va_list args;
    va_start(args, fmt);
    int length = vasprintf(&text, fmt, args);
    va_end(args);
    if (length < 0) return FAILED("out of memory");
    Status status = file_write(writer, text, (size_t)length);
    free(text);
    return status;
}

Status file_commit(FileWriter *writer) {
    TRY(write_all(writer, writer->buffer, writer->used));
    writer->used = 0;
    if (fsync(writer->fd) != 0 && errno != EINVAL)
        return FAILED("%s: cannot fsync: %s", writer->path, strerror(errno));
    int closed = close(writer->fd);
    writer->fd = -1;
    if (closed != 0) return FAILED("%s: cannot close: %s", writer->path, strerror(errno));
    if (!writer->temporary) return OK;
    if (rename(writer->temporary, writer->target) != 0)
        return FAILED("%s: cannot rename temporary file: %s", writer->path, strerror(errno));
    free(writer->temporary);
    writer->temporary = NULL;
    CLEANUP(mem_freep) char *copy = NULL;
    TRY(str_dup(writer->target, &copy));
    return dir_sync(dirname(copy));
}

void file_writer_free(FileWriter *writer) {
    if (!writer) return;
    if (writer->fd >= 0) close(writer->fd);
    if (writer->temporary) unlink(writer->temporary);
    free(writer->temporary);
    free(writer->target);
    free(writer->path);
    free(writer);
}

Status file_replace(const char *path, const void *data, size_t size) {
    CLEANUP(file_writer_freep) FileWriter *writer = NULL;
    TRY(file_writer_new(&writer, path));
    TRY(file_write(writer, data, size));
    return file_commit(writer);
}

Status dir_copy_files(const char *to, const char *from, const char *const *names) {
    TRY(dir_make(to));
    for (; *names; names++) {
        CLEANUP(mem_freep) char *source = NULL, *target = NULL;
        CLEANUP(file_map_done) FileMap map = {0};
        TRY(path_join(&source, from, *names));
        TRY(path_join(&target, to, *names));
        if (!path_exists(source)) continue;
        TRY(file_map_init(&map, source));
        TRY(file_replace(target, map.data, map.size));
    }
    return OK;
}

Status link_replace(const char *path, const char *target) {
    CLEANUP(mem_freep) char *temporary = NULL;
    TRY(str_format(&temporary, "%s.tmp.%ld", path, (long)getpid()));
    unlink(temporary);
    if (symlink(target, temporary) != 0)
        return FAILED("%s: cannot create symbolic link: %s", path, strerror(errno));
    if (rename(temporary, path) != 0) {
        int error = errno;
        unlink(temporary);
        if (error == EISDIR)
            return FAILED("%s: is a directory instead of a symbolic link, as in a copy that followed links; "
                          "remove it and repeat the command",
                          path);
        return FAILED("%s: cannot replace symbolic link: %s", path, strerror(error));
    }
    CLEANUP(mem_freep) char *copy = NULL;
    TRY(str_dup(path, &copy));
    return dir_sync(dirname(copy));
}
