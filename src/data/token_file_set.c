/* Writes sets of token files and finds them in a directory.
 *
 * The writer collects the body block by block; a full block is checksummed and written. Document and sentence
 * positions stay in memory until the file's tokens are complete. They count toward the size limit, which
 * therefore bounds them too. The header is written first as a placeholder and filled in at the end, when all
 * counts are known.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/memory.h"
#include "data/checksum.h"
#include "data/token_file.h"
#include "data/token_file_format.h"

struct TokenFileSet {
    char *dir, *name;
    TokenizerId id;
    int64_t size;
    bool marked;
    TokenFileList files;
    TokenFileHeader *header; /* one per file */
    size_t header_capacity;
    int64_t tokens, documents, sentences; /* totals of the completed files */
    /* The file being written. */
    FileWriter *writer; /* NULL: no file is open */
    TokenFileInfo info;
    bool begins;   /* the next token begins a document */
    bool sentence; /* the next token begins a sentence */
    uint64_t *start, *sum;
    uint32_t *mark; /* first token of each sentence */
    size_t start_capacity, sum_count, sum_capacity, mark_capacity;
    unsigned char *block;
    size_t block_used;
};

void token_file_list_done(TokenFileList *list) {
    for (size_t i = 0; i < list->count; i++) free(list->path[i]);
    free(list->path);
    *list = (TokenFileList){0};
}

static Status list_take(TokenFileList *list, char **path) {
    TRY(mem_grow(&list->path, &list->capacity, list->count + 1, sizeof *list->path));
    list->path[list->count++] = *path;
    *path = NULL;
    return OK;
}

/* ---- writing ---- */

Status token_file_set_new(TokenFileSet **ret_set, const char *dir, const char *name, const TokenizerId *id,
                          int64_t size, bool marked) {
    CLEANUP(token_file_set_freep) TokenFileSet *set = NULL;
    TRY(mem_new(1, sizeof *set, &set));
    TRY(str_dup(dir, &set->dir));
    TRY(str_dup(name, &set->name));
    TRY(mem_new(TOKEN_FILE_BLOCK, 1, &set->block));
    set->id = *id;
    set->size = size;
    set->marked = marked;
    return MOVE(ret_set, set);
}

void token_file_set_free(TokenFileSet *set) {
    if (!set) return;
    file_writer_free(set->writer);
    token_file_list_done(&set->files);
    free(set->header);
    free(set->start);
    free(set->mark);
    free(set->sum);
    free(set->block);
    free(set->name);
    free(set->dir);
    free(set);
}

static Status begin_file(TokenFileSet *set) {
    static const unsigned char nothing[TOKEN_FILE_HEADER];
    size_t index = set->files.count;
    if (index > 99999)
        return FAILED("%s: the data needs more than 100000 token files; choose a larger {file-size}",
                      set->dir);
    CLEANUP(mem_freep) char *path = NULL;
    TRY(str_format(&path, "%s/%s-%05zu" TOKEN_FILE_SUFFIX, set->dir, set->name, index));
    TRY(file_writer_new(&set->writer, path));
    TRY(file_write(set->writer, nothing, TOKEN_FILE_HEADER));
    TRY(mem_grow(&set->header, &set->header_capacity, index + 1, sizeof *set->header));
    TRY(list_take(&set->files, &path));
    set->info = (TokenFileInfo){.tokenizer = set->id,
                                .width = token_file_token_width(set->id.vocab),
                                .marked = set->marked,
                                .index = (int64_t)index};
    set->sum_count = set->block_used = 0;
    return OK;
}

static Status flush_block(TokenFileSet *set) {
    if (!set->block_used) return OK;
    TRY(mem_grow(&set->sum, &set->sum_capacity, set->sum_count + 1, sizeof *set->sum));
    set->sum[set->sum_count] = htole64(checksum(set->block, set->block_used, set->sum_count + 1));
    set->sum_count++;
    TRY(file_write(set->writer, set->block, set->block_used));
    set->block_used = 0;
    return OK;
}

static Status add_body(TokenFileSet *set, const void *data, size_t size) {
    const unsigned char *at = data;
    while (size > 0) {
        size_t space = TOKEN_FILE_BLOCK - set->block_used, here = size < space ? size : space;
        memcpy(set->block + set->block_used, at, here);
        set->block_used += here;
        at += here;
        size -= here;
        if (set->block_used == TOKEN_FILE_BLOCK) TRY(flush_block(set));
    }
    return OK;
}

/* Writes documents, sentences, checksums and the header, then gives the file its final name. */
static Status end_file(TokenFileSet *set) {
    static const unsigned char zeroes[8];
    TokenFileInfo *info = &set->info;
    size_t tokens = (size_t)info->tokens * (size_t)info->width;
    TRY(add_body(set, zeroes, (8 - tokens % 8) % 8));
    TRY(add_body(set, set->start, (size_t)info->documents * sizeof *set->start));
    TRY(add_body(set, set->mark, (size_t)info->sentences * sizeof *set->mark));
    TRY(add_body(set, zeroes, info->sentences % 2 * sizeof *set->mark));
    TRY(flush_block(set));
    TRY(file_write(set->writer, set->sum, set->sum_count * sizeof *set->sum));
    TokenFileHeader *header = &set->header[info->index];
    *header =
        (TokenFileHeader){.info = *info, .sums = checksum(set->sum, set->sum_count * sizeof *set->sum, 0)};
    unsigned char packed[TOKEN_FILE_HEADER];
    token_file_header_pack(header, packed);
    TRY(file_write_at(set->writer, 0, packed, sizeof packed));
    TRY(file_commit(set->writer));
    file_writer_freep(&set->writer);
    set->tokens += info->tokens;
    set->documents += info->documents;
    set->sentences += info->sentences;
    return OK;
}

Status token_file_set_document(TokenFileSet *set) {
    set->begins = set->sentence = true;
    return OK;
}

void token_file_set_sentence(TokenFileSet *set) {
    set->sentence = true;
}

/* Bytes left until the file reaches its size limit. */
static int64_t bytes_left(const TokenFileSet *set) {
    const TokenFileInfo *info = &set->info;
    int64_t space = set->size - info->tokens * info->width - info->documents * 8 - info->sentences * 4;
    int64_t numbered = (UINT32_MAX - info->tokens) * info->width; /* sentence positions are 32-bit */
    return set->marked && numbered < space ? numbered : space;
}

/* Ensures that the open file has space for one more token and for its document and sentence marks; records
 * these marks. */
static Status reserve_token(TokenFileSet *set) {
    int width = token_file_token_width(set->id.vocab);
    bool mark = set->marked && set->sentence;
    if (set->writer && bytes_left(set) < width + (set->begins ? 8 : 0) + (mark ? 4 : 0)) TRY(end_file(set));
    if (!set->writer) TRY(begin_file(set));
    if (mark) {
        size_t sentences = (size_t)set->info.sentences;
        TRY(mem_grow(&set->mark, &set->mark_capacity, sentences + 1, sizeof *set->mark));
        set->mark[sentences] = htole32((uint32_t)set->info.tokens);
        set->info.sentences++;
    }
    set->sentence = false;
    if (!set->begins) return OK;
    size_t documents = (size_t)set->info.documents;
    TRY(mem_grow(&set->start, &set->start_capacity, documents + 1, sizeof *set->start));
    set->start[documents] = htole64((uint64_t)set->info.tokens);
    set->info.documents++;
    set->begins = false;
    return OK;
}

Status token_file_set_add(TokenFileSet *set, const void *tokens, size_t count) {
    const unsigned char *at = tokens;
    while (count > 0) {
        TRY(reserve_token(set));
        size_t width = (size_t)set->info.width, space = (size_t)bytes_left(set) / width;
        size_t here = space == 0 ? 1 : count < space ? count : space;
        TRY(add_body(set, at, here * width));
        set->info.tokens += (int64_t)here;
        at += here * width;
        count -= here;
    }
    return OK;
}

static Status write_header(const char *path, const TokenFileHeader *header) {
    unsigned char packed[TOKEN_FILE_HEADER];
    token_file_header_pack(header, packed);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool fine = fd >= 0 && pwrite(fd, packed, sizeof packed, 0) == (ssize_t)sizeof packed &&
                (fsync(fd) == 0 || errno == EINVAL);
    int error = errno;
    if (fd >= 0) close(fd);
    return fine ? OK : FAILED("%s: the header cannot be written: %s", path, strerror(error));
}

Status token_file_set_finish(TokenFileSet *set) {
    if (set->writer) TRY(end_file(set));
    for (size_t i = 0; i < set->files.count; i++) {
        set->header[i].info.count = (int64_t)set->files.count;
        TRY(write_header(set->files.path[i], &set->header[i]));
    }
    return OK;
}

int64_t token_file_set_tokens(const TokenFileSet *set) {
    return set->tokens + (set->writer ? set->info.tokens : 0);
}

int64_t token_file_set_documents(const TokenFileSet *set) {
    return set->documents + (set->writer ? set->info.documents : 0);
}

int64_t token_file_set_sentences(const TokenFileSet *set) {
    return set->sentences + (set->writer ? set->info.sentences : 0);
}

const TokenFileList *token_file_set_files(const TokenFileSet *set) {
    return &set->files;
}

/* ---- finding ---- */

bool path_has_token_files(const char *path) {
    if (!path_is_dir(path)) return path_ends_with(path, TOKEN_FILE_SUFFIX);
    CLEANUP(dir_closep) DIR *dir = opendir(path);
    if (!dir) return false;
    for (struct dirent *entry; (entry = readdir(dir));)
        if (path_ends_with(entry->d_name, TOKEN_FILE_SUFFIX)) return true;
    return false;
}

/* "NAME-00000.tokens" */
static bool is_of_set(const char *file, const char *name) {
    size_t length = strlen(name);
    return !strncmp(file, name, length) && file[length] == '-' &&
           strspn(file + length + 1, "0123456789") == 5 && !strcmp(file + length + 6, TOKEN_FILE_SUFFIX);
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* File names end in their index, so in a complete sorted set file `i` is at position `i`. */
static Status check_set(const TokenFileList *list, size_t from, const char *dir, const char *name) {
    size_t count = list->count - from;
    for (size_t i = 0; i < count; i++) {
        CLEANUP(token_file_freep) TokenFile *token_file = NULL;
        TRY(token_file_open(&token_file, list->path[from + i]));
        const TokenFileInfo *info = token_file_info(token_file);
        if (info->index == (int64_t)i && info->count == (int64_t)count) continue;
        return FAILED("%s is token file %lld of %lld, but in %s it is file %zu of %zu in the %s set: a file "
                      "is missing, or there is an extra one",
                      list->path[from + i], (long long)info->index + 1, (long long)info->count, dir, i + 1,
                      count, name);
    }
    return OK;
}

Status token_file_list_dir(TokenFileList *list, const char *dir, const char *name) {
    CLEANUP(dir_closep) DIR *stream = opendir(dir);
    if (!stream) return FAILED("%s: the directory cannot be read: %s", dir, strerror(errno));
    size_t from = list->count;
    for (struct dirent *entry; (entry = readdir(stream));) {
        if (!is_of_set(entry->d_name, name)) continue;
        CLEANUP(mem_freep) char *path = NULL;
        TRY(path_join(&path, dir, entry->d_name));
        TRY(list_take(list, &path));
    }
    if (list->count == from) return OK;
    qsort(list->path + from, list->count - from, sizeof *list->path, by_name);
    return check_set(list, from, dir, name);
}

Status token_file_list_add(TokenFileList *list, const char *path) {
    size_t before = list->count;
    if (path_is_dir(path)) {
        TRY(token_file_list_dir(list, path, "train"));
        if (list->count > before) return OK;
        return FAILED("%s: contains no training data; expected train-00000" TOKEN_FILE_SUFFIX, path);
    }
    CLEANUP(mem_freep) char *copy = NULL;
    TRY(str_dup(path, &copy));
    return list_take(list, &copy);
}

Status token_file_tokenizer(const char *path, char **ret_dir) {
    const char *slash = strrchr(path, '/');
    return str_format(ret_dir, "%.*s" TOKEN_FILE_TOKENIZER, slash ? (int)(slash + 1 - path) : 0, path);
}
