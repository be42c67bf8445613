/* Cache of prepared data. A directory in it is always complete (data/prepare.h), so looking it up needs no
 * lock. Creating it takes a lock on a file next to it. */
#include "data/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/format.h"
#include "base/fs.h"
#include "base/memory.h"
#include "data/checksum.h"
#include "data/corpus.h"
#include "data/sentence.h"

enum { KEY_VERSION = 2, WAIT_US = 100000 };

Status cache_root(char **ret_root) {
    char *root;
    TRY(user_cache(&root));
    if (!root)
        return USAGE(
            "no directory to store prepared data in: set WEFT_CACHE to a directory, or use {no-cache}");
    *ret_root = root;
    return OK;
}

static Status add_file(FILE *key, const char *path) {
    if (corpus_is_named(path)) {
        for (size_t place = 0; !corpus_ends(place);) {
            CLEANUP(source_done) Source source = {0};
            TRY(corpus_next(&source, &place));
            fprintf(key, "self %016llx\n", (unsigned long long)checksum(source.data, source.size, 0));
        }
        return OK;
    }
    struct stat st;
    if (stat(path, &st) != 0) return FAILED("%s: cannot open: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return FAILED("%s: expected a file, found %s", path,
                      S_ISDIR(st.st_mode) ? "a directory without token files" : "something else");
    CLEANUP(mem_freep) char *full = realpath(path, NULL);
    fprintf(key, "%s %lld %lld.%09ld %llu %llu\n", full ? full : path, (long long)st.st_size,
            (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec, (unsigned long long)st.st_dev,
            (unsigned long long)st.st_ino);
    return OK;
}

static Status write_key(const PrepareSpec *spec, FILE *key) {
    TokenizerId id = tokenizer_id(spec->tokenizer);
    char text[TOKENIZER_ID_TEXT];
    fprintf(key, "%d %d %s\n%s %s\n", KEY_VERSION, TOKEN_FILE_VERSION, tokenizer_id_text(&id, text),
            documents_names[spec->documents], spec->field ? spec->field : "text");
    if (spec->sentences) fprintf(key, "sentences %d\n", SENTENCE_RULES);
    for (int i = 0; i < spec->path_count; i++) TRY(add_file(key, spec->paths[i]));
    return OK;
}

/* Hashes everything that the token files depend on to 32 hexadecimal digits. */
static Status make_key(const PrepareSpec *spec, char name[33]) {
    CLEANUP(mem_freep) char *text = NULL;
    size_t size = 0;
    FILE *key = open_memstream(&text, &size);
    if (!key) return FAILED("out of memory while looking for prepared data");
    Status status = write_key(spec, key);
    if (fclose(key) != 0 && !status) status = FAILED("out of memory while looking for prepared data");
    TRY(status);
    snprintf(name, 33, "%016llx%016llx", (unsigned long long)checksum(text, size, 1),
             (unsigned long long)checksum(text, size, 2));
    return OK;
}

/* Waits until no other process is creating the same directory. Continues without a lock if the file system
 * does not support locks. */
static Status acquire_lock(const PrepareSpec *spec, const char *path, Progress *log, int *ret_fd) {
    CLEANUP(fd_closep) int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return FAILED("%s: cannot write: %s", path, strerror(errno));
    bool told = false;
    while (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        if (!told) progress_line(log, "waiting for another process that is preparing the same data");
        told = true;
        if (spec->stop && *spec->stop) return STOPPED("stopped by a signal");
        usleep(WAIT_US);
    }
    *ret_fd = fd;
    fd = -1;
    return OK;
}

/* "text.txt", or "text.txt and 3 more". */
static const char *describe_files(const PrepareSpec *spec, char *buffer, size_t size) {
    if (spec->path_count == 1)
        snprintf(buffer, size, "%s", spec->paths[0]);
    else
        snprintf(buffer, size, "%s and %d more", spec->paths[0], spec->path_count - 1);
    return buffer;
}

static void write_note(void *file, const char *note) {
    fprintf(file, "%s\n", note);
}

/* Next to the directory, because that may contain only token files. */
static Status notes_path(const char *dir, char **ret_path) {
    return str_format(ret_path, "%s.notes", dir);
}

static Status keep_notes(const PrepareResult *result, const char *dir) {
    CLEANUP(mem_freep) char *path = NULL, *text = NULL;
    size_t size = 0;
    FILE *notes = open_memstream(&text, &size);
    if (!notes) return FAILED("out of memory while preparing");
    Status status = prepare_notes(result, write_note, notes);
    if (fclose(notes) != 0 && !status) return FAILED("out of memory while preparing");
    TRY(status);
    if (size == 0) return OK;
    TRY(notes_path(dir, &path));
    return file_replace(path, text, size);
}

Status cache_tell_notes(const char *dir, Progress *log) {
    enum { LIMIT = 1 << 20 };
    CLEANUP(mem_freep) char *path = NULL, *text = NULL;
    size_t size = 0;
    TRY(notes_path(dir, &path));
    if (!path_exists(path)) return OK;
    TRY(file_read(path, LIMIT, &text, &size));
    for (char *at = text, *newline; (newline = memchr(at, '\n', size - (size_t)(at - text)));
         at = newline + 1)
        progress_line(log, "warning: %.*s", (int)(newline - at), at);
    return OK;
}

static Status make_dir(const PrepareSpec *spec, const char *dir, bool reused, Progress *log) {
    char files[256], tokens[FORMAT_SIZE];
    describe_files(spec, files, sizeof files);
    progress_line(log, reused ? "preparing %s (only once; cached in %s)" : "preparing %s in %s", files, dir);
    CLEANUP(prepare_result_done) PrepareResult result = {0};
    TRY(prepare_dir(spec, dir, false, &result));
    progress_line(log, "prepared %s tokens from %lld document%s", format_count(tokens, (double)result.tokens),
                  (long long)result.documents, PLURAL(result.documents));
    return keep_notes(&result, dir);
}

/* Creates `root` and takes the lock in it. Users need not know that they have a cache, so a failure names it.
 */
static Status enter(const PrepareSpec *spec, const char *root, const char *lock, bool reused, Progress *log,
                    int *ret_fd) {
    Status status = dir_make(root);
    if (!status) status = acquire_lock(spec, lock, log, ret_fd);
    if (!status || !reused || status_stopped(status)) return status;
    Status named =
        FAILED("cannot write to the cache of prepared data: %s; set WEFT_CACHE to another directory, "
               "or use {no-cache}",
               status_message(status));
    status_free(status);
    return named;
}

Status cache_prepare(const PrepareSpec *spec, const char *root, bool reused, Progress *log, char **ret_dir,
                     bool *ret_made) {
    char name[33];
    TRY(make_key(spec, name));
    CLEANUP(mem_freep) char *dir = NULL, *lock = NULL;
    CLEANUP(fd_closep) int fd = -1;
    TRY(path_join(&dir, root, name));
    if (!path_has_token_files(dir)) {
        TRY(str_format(&lock, "%s.lock", dir));
        TRY(enter(spec, root, lock, reused, log, &fd));
    }
    bool made = !path_has_token_files(dir);
    if (made) TRY(make_dir(spec, dir, reused, log));
    *ret_made = made;
    return MOVE(ret_dir, dir);
}
