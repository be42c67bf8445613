/* Preparing a corpus: the work of the pipeline, and the directory it goes to.
 *
 * A thread encodes the pieces of a block into a place's list of tokens, notes where documents begin, and
 * packs the list as it will lie in the file. In the order of the text, the packed tokens then go to their
 * set: all to one, or each document to the set that its number says. The directory is made beside its
 * place and renamed in the end; one that a killed process left behind is known by its lock being free,
 * and goes with the next start. */
#include "data/prepare.h"

#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/format.h"
#include "base/fs.h"
#include "base/memory.h"
#include "data/sentence.h"
#include "data/workers.h"

/* What became of one block. */
typedef struct Encoded {
    TokenList tokens;
    size_t *begin; /* places of the documents' first tokens... */
    size_t begins, capacity;
    size_t *mark; /* ...and of the sentences' */
    size_t marks, mark_capacity;
    unsigned char *packed;
    size_t packed_capacity;
    int64_t bytes, broken; /* broken: no UTF-8, the first one here */
    const char *broken_file;
    int64_t broken_line;
} Encoded;

typedef struct Prepare {
    const PrepareSpec *spec;
    int32_t end;
    int width;
    Encoder **encoder; /* per slot, and one more for cutting */
    int threads;
    Encoded *place;
    int places;
    TokenFileSet *train, *val, *now; /* `now`: the set that the current document goes to */
    int64_t document;                /* number of the next */
    int64_t bytes, used_before;
    int64_t broken;
    char *broken_at;
    ReaderNotes notes;
    double start;
} Prepare;

void prepare_result_done(PrepareResult *result) {
    token_file_list_done(&result->token_files);
    token_file_list_done(&result->val_token_files);
    free(result->broken_at);
    *result = (PrepareResult){0};
}

static void prepare_done(Prepare *p) {
    for (int i = 0; p->encoder && i <= p->threads; i++) encoder_free(p->encoder[i]);
    free(p->encoder);
    for (int i = 0; p->place && i < p->places; i++) {
        token_list_done(&p->place[i].tokens);
        free(p->place[i].begin);
        free(p->place[i].mark);
        free(p->place[i].packed);
    }
    free(p->place);
    free(p->broken_at);
    token_file_set_free(p->train);
    token_file_set_free(p->val);
}

Status prepare_notes(const PrepareResult *result, void (*tell)(void *context, const char *note),
                     void *context) {
    const ReaderNotes *notes = &result->notes;
    CLEANUP(mem_freep) char *broken = NULL, *changed = NULL;
    if (result->broken) {
        TRY(str_format(&broken, "%s: %lld byte%s of the text %s no UTF-8, this being the first",
                       result->broken_at, (long long)result->broken, result->broken == 1 ? "" : "s",
                       result->broken == 1 ? "is" : "are"));
        tell(context, broken);
    }
    if (notes->changed) {
        TRY(str_format(&changed, "%s: changed while it was read; prepare it again when it is whole",
                       notes->changed_file));
        tell(context, changed);
    }
    return OK;
}

/* ---- the work on a block ---- */

static Status add_token(TokenList *list, int32_t id) {
    TRY(mem_grow(&list->ids, &list->capacity, list->count + 1, sizeof *list->ids));
    list->ids[list->count++] = id;
    return OK;
}

/* Encodes sentence by sentence. A piece begins with one: inputs are cut between sentences. */
static Status encode_sentences(Encoder *encoder, const TextPiece *piece, Encoded *to) {
    for (size_t at = 0; at < piece->size;) {
        size_t end = sentence_end(piece->text, piece->size, at);
        bool repeats = to->marks && to->mark[to->marks - 1] == to->tokens.count; /* one without tokens */
        TRY(mem_grow(&to->mark, &to->mark_capacity, to->marks + 1, sizeof *to->mark));
        if (!repeats) to->mark[to->marks++] = to->tokens.count;
        TRY(encoder_add(encoder, piece->text + at, end - at, &to->tokens));
        at = end;
    }
    return OK;
}

/* JSON has been checked, and where each byte is a token any will do. */
static void count_broken(const Prepare *p, const TextPiece *piece, Encoded *to) {
    size_t first = 0;
    if (piece->block->json || tokenizer_kind(p->spec->tokenizer) == TOKENIZER_BYTES) return;
    int64_t count = text_broken(piece->text, piece->size, &first);
    if (count && !to->broken) {
        to->broken_file = piece->block->file;
        to->broken_line = piece->block->line;
        for (const char *at = piece->block->text; at < piece->text + first; at++)
            to->broken_line += *at == '\n';
    }
    to->broken += count;
}

static Status encode_piece(void *context, int slot, int place, const TextPiece *piece) {
    Prepare *p = context;
    Encoded *to = &p->place[place];
    if (piece->first) {
        TRY(mem_grow(&to->begin, &to->capacity, to->begins + 1, sizeof *to->begin));
        to->begin[to->begins++] = to->tokens.count;
    }
    if (p->spec->sentences)
        TRY(encode_sentences(p->encoder[slot], piece, to));
    else
        TRY(encoder_add(p->encoder[slot], piece->text, piece->size, &to->tokens));
    to->bytes += (int64_t)piece->size;
    count_broken(p, piece, to);
    return piece->last ? add_token(&to->tokens, p->end) : OK;
}

static Status pack_tokens(void *context, int slot, int place) {
    (void)slot;
    const Prepare *p = context;
    Encoded *to = &p->place[place];
    size_t count = to->tokens.count;
    TRY(mem_grow(&to->packed, &to->packed_capacity, count * (size_t)p->width, 1));
    for (size_t i = 0; p->width == 2 && i < count; i++) {
        uint16_t narrow = htole16((uint16_t)to->tokens.ids[i]);
        memcpy(to->packed + 2 * i, &narrow, 2);
    }
    for (size_t i = 0; p->width == 4 && i < count; i++) {
        uint32_t wide = htole32((uint32_t)to->tokens.ids[i]);
        memcpy(to->packed + 4 * i, &wide, 4);
    }
    return OK;
}

/* Every document that takes the count of kept ones past the next whole number. */
static bool goes_to_val(double fraction, int64_t document) {
    return floor((double)(document + 1) * fraction) > floor((double)document * fraction);
}

static Status begin_document(Prepare *p) {
    bool val = p->val && goes_to_val(p->spec->val_fraction, p->document);
    p->now = val ? p->val : p->train;
    p->document++;
    return token_file_set_document(p->now);
}

static void show(const Prepare *p, int64_t used) {
    if (!p->spec->progress) return;
    char note[96], rate[FORMAT_SIZE], tokens[FORMAT_SIZE];
    double seconds = clock_wall() - p->start;
    int64_t count = token_file_set_tokens(p->train) + (p->val ? token_file_set_tokens(p->val) : 0);
    snprintf(note, sizeof note, "%s/s  %s tokens",
             format_bytes(rate, seconds > 0 ? (double)p->bytes / seconds : 0),
             format_count(tokens, (double)count));
    progress_update(p->spec->progress, p->used_before + used, note);
}

/* Tokens at .. stop - 1 of one document, from sentence to sentence; *mark is the next of these. */
static Status write_tokens(Prepare *p, const Encoded *from, size_t at, size_t stop, size_t *mark) {
    size_t width = (size_t)p->width;
    while (at < stop) {
        while (*mark < from->marks && from->mark[*mark] <= at) {
            if (from->mark[(*mark)++] == at) token_file_set_sentence(p->now);
        }
        size_t next = *mark < from->marks && from->mark[*mark] < stop ? from->mark[*mark] : stop;
        TRY(token_file_set_add(p->now, from->packed + at * width, next - at));
        at = next;
    }
    return OK;
}

static Status write_place(void *context, int place, int64_t used) {
    Prepare *p = context;
    Encoded *from = &p->place[place];
    size_t at = 0, mark = 0;
    for (size_t i = 0; i <= from->begins; i++) {
        size_t stop = i < from->begins ? from->begin[i] : from->tokens.count;
        TRY(write_tokens(p, from, at, stop, &mark));
        if (i < from->begins) TRY(begin_document(p));
        at = stop;
    }
    if (from->broken && !p->broken)
        TRY(str_format(&p->broken_at, "%s: line %lld", from->broken_file, (long long)from->broken_line));
    p->broken += from->broken;
    p->bytes += from->bytes;
    from->tokens.count = from->begins = from->marks = 0;
    from->bytes = from->broken = 0;
    show(p, used);
    return OK;
}

static size_t cut_by_encoder(const void *context, const char *text, size_t size) {
    return encoder_cut(context, text, size);
}

/* Between sentences, where the next begins with a space: no tokenizer joins what is on both sides of it. */
static size_t cut_by_sentence(const void *context, const char *text, size_t size) {
    size_t cut = encoder_cut(context, text, size), end = sentence_last_end(text, cut);
    return end ? end : cut;
}

/* ---- one pass over a list of files ---- */

static Status read_files(Prepare *p, const char *const *paths, int count, int64_t *ret_total) {
    const PrepareSpec *spec = p->spec;
    ReaderSpec reading = {.paths = paths,
                          .path_count = count,
                          .documents = spec->documents,
                          .field = spec->field,
                          .cut = spec->sentences ? cut_by_sentence : cut_by_encoder,
                          .cut_context = p->encoder[p->threads],
                          .notes = &p->notes};
    CLEANUP(reader_freep) Reader *measured = NULL;
    TRY(reader_new(&measured, &reading));
    int64_t total = reader_total(measured);
    if (spec->progress) progress_total(spec->progress, total ? p->used_before + total : 0);
    WorkerTask work = {.context = p, .piece = encode_piece, .pack = pack_tokens, .finish = write_place};
    TRY(workers_run(&reading, p->threads, &work, spec->stop));
    *ret_total = total;
    return OK;
}

static Status make_encoders(Prepare *p) {
    TRY(mem_new((size_t)p->threads + 1, sizeof *p->encoder, &p->encoder));
    for (int i = 0; i <= p->threads; i++) TRY(encoder_new(&p->encoder[i], p->spec->tokenizer, NULL));
    TRY(mem_new((size_t)p->places, sizeof *p->place, &p->place));
    return OK;
}

static Status find_end(const Tokenizer *tokenizer, int32_t *ret_end) {
    SpecialTokens special = tokenizer_special(tokenizer);
    *ret_end = special.end >= 0 ? special.end : special.sep;
    if (*ret_end >= 0) return OK;
    return USAGE("the tokenizer has no token to end a document with, expected <|endoftext|> or [SEP]");
}

static Status write_train(Prepare *p, int64_t *ret_total) {
    const PrepareSpec *spec = p->spec;
    p->now = p->train;
    TRY(read_files(p, spec->paths, spec->path_count, ret_total));
    if (token_file_set_tokens(p->train) == 0 && !(p->val && token_file_set_tokens(p->val)))
        return FAILED("%s%s: no text was found, expected at least one document", spec->paths[0],
                      spec->path_count > 1 ? " and the other files" : "");
    if (p->val && (token_file_set_tokens(p->val) == 0 || token_file_set_tokens(p->train) == 0))
        return USAGE(
            "--val-fraction %g: of %lld document%s it leaves none for %s; give validation files with "
            "--val, or say with --documents what a document is",
            spec->val_fraction, (long long)p->document, p->document == 1 ? "" : "s",
            token_file_set_tokens(p->train) == 0 ? "training" : "validation");
    return OK;
}

/* The validation files come after, as documents of a set of their own. */
static Status write_val(Prepare *p) {
    const PrepareSpec *spec = p->spec;
    TokenFileSet *train = p->train;
    int64_t total = 0;
    p->now = p->train = p->val;
    p->val = NULL;
    Status status = read_files(p, spec->val, spec->val_count, &total);
    p->val = p->train;
    p->train = train;
    if (!status && token_file_set_tokens(p->val) == 0)
        return FAILED("%s: no text was found, expected at least one document", spec->val[0]);
    return status;
}

static Status final_paths(TokenFileList *list, const TokenFileSet *set, const char *dir) {
    const TokenFileList *files = token_file_set_files(set);
    for (size_t i = 0; i < files->count; i++) {
        CLEANUP(mem_freep) char *path = NULL;
        TRY(path_join(&path, dir, strrchr(files->path[i], '/') + 1));
        TRY(mem_grow(&list->path, &list->capacity, list->count + 1, sizeof *list->path));
        list->path[list->count++] = path;
        path = NULL;
    }
    return OK;
}

/* Fills the directory `dir`; paths in the result are those below `place`. */
static Status fill_dir(const PrepareSpec *spec, const char *dir, const char *place, PrepareResult *result) {
    CLEANUP(prepare_done)
    Prepare p = {.spec = spec, .threads = workers_threads(spec->threads), .start = clock_wall()};
    p.places = workers_slots(p.threads);
    p.width = token_file_token_width(tokenizer_vocab(spec->tokenizer));
    TRY(find_end(spec->tokenizer, &p.end));
    TRY(make_encoders(&p));
    TokenizerId id = tokenizer_id(spec->tokenizer);
    int64_t size = spec->file_size ? spec->file_size : PREPARE_FILE_SIZE, total = 0;
    TRY(token_file_set_new(&p.train, dir, "train", &id, size, spec->sentences));
    if (spec->val_count == 0 && spec->val_fraction > 0)
        TRY(token_file_set_new(&p.val, dir, "val", &id, size, spec->sentences));
    TRY(write_train(&p, &total));
    p.used_before = total;
    if (spec->val_count) {
        TRY(token_file_set_new(&p.val, dir, "val", &id, size, spec->sentences));
        TRY(write_val(&p));
    }
    TRY(token_file_set_finish(p.train));
    TRY(final_paths(&result->token_files, p.train, place));
    result->tokens = token_file_set_tokens(p.train);
    result->documents = token_file_set_documents(p.train);
    result->sentences = token_file_set_sentences(p.train) + (p.val ? token_file_set_sentences(p.val) : 0);
    result->bytes = p.bytes;
    result->broken = p.broken;
    result->broken_at = p.broken_at;
    p.broken_at = NULL;
    result->notes = p.notes;
    if (!p.val) return OK;
    TRY(token_file_set_finish(p.val));
    TRY(final_paths(&result->val_token_files, p.val, place));
    result->val_tokens = token_file_set_tokens(p.val);
    result->val_documents = token_file_set_documents(p.val);
    return OK;
}

/* ---- the directory ---- */

static void dir_closep(DIR **dir) {
    if (*dir) closedir(*dir);
}

static Status check_entry(const char *dir, const char *name, bool replace) {
    CLEANUP(mem_freep) char *path = NULL;
    CLEANUP(token_file_freep) TokenFile *token_file = NULL;
    TRY(path_join(&path, dir, name));
    CLEANUP(status_freep) Status status = token_file_is_there(path) ? token_file_open(&token_file, path) : OK;
    if (!token_file && !status)
        return USAGE("%s: holds %s, which is not a token shard; choose another --out", dir, name);
    if (!replace) return USAGE("%s: holds token shards already; --overwrite replaces them", dir);
    return OK;
}

Status prepare_check(const char *path, bool replace) {
    if (!path_exists(path)) return OK;
    CLEANUP(dir_closep) DIR *dir = opendir(path);
    if (!dir) return USAGE("%s: %s, expected a directory for the shards", path, strerror(errno));
    for (struct dirent *entry; (entry = readdir(dir));)
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
            TRY(check_entry(path, entry->d_name, replace));
    return OK;
}

/* A directory beside its place, locked while its process lives. */
typedef struct Beside {
    char *place, *parent, *base; /* "a/b": the place, "a", "b" */
    char *path;                  /* NULL: moved to its place, or not yet made */
    int lock;
} Beside;

static void beside_done(Beside *beside) {
    if (beside->path) {
        Status status = dir_remove(beside->path);
        status_free(status);
    }
    if (beside->lock >= 0) close(beside->lock);
    free(beside->path);
    free(beside->base);
    free(beside->parent);
    free(beside->place);
}

/* Removes what a killed process left: a directory of that kind that nobody holds the lock of. */
static Status clear_leftovers(const Beside *beside) {
    CLEANUP(dir_closep) DIR *dir = opendir(beside->parent);
    if (!dir) return FAILED("%s: the directory cannot be read: %s", beside->parent, strerror(errno));
    size_t length = strlen(beside->base);
    for (struct dirent *entry; (entry = readdir(dir));) {
        const char *name = entry->d_name;
        if (strncmp(name, beside->base, length) || strncmp(name + length, ".tmp.", 5)) continue;
        CLEANUP(mem_freep) char *path = NULL;
        TRY(path_join(&path, beside->parent, name));
        int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        bool free_lock = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;
        Status status = free_lock ? dir_remove(path) : OK;
        if (fd >= 0) close(fd);
        TRY(status);
    }
    return OK;
}

static Status beside_make(Beside *beside, const char *place) {
    beside->lock = -1;
    TRY(str_dup(place, &beside->place));
    for (size_t n = strlen(place); n > 1 && beside->place[n - 1] == '/'; n--) beside->place[n - 1] = 0;
    const char *slash = strrchr(beside->place, '/');
    TRY(str_dup(slash ? slash + 1 : beside->place, &beside->base));
    if (slash)
        TRY(str_format(&beside->parent, "%.*s", slash == beside->place ? 1 : (int)(slash - beside->place),
                       beside->place));
    else
        TRY(str_dup(".", &beside->parent));
    TRY(dir_make(beside->parent));
    TRY(clear_leftovers(beside));
    TRY(str_format(&beside->path, "%s.tmp.%ld", beside->place, (long)getpid()));
    TRY(dir_make(beside->path));
    beside->lock = open(beside->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (beside->lock >= 0) flock(beside->lock, LOCK_EX | LOCK_NB);
    return OK;
}

/* An empty directory in its place is replaced by the rename; one with shards changes places with the new one
 * and is then removed. */
static Status beside_commit(Beside *beside, bool replace) {
    TRY(dir_sync(beside->path));
    TRY(prepare_check(beside->place, replace));
    bool replaces = replace && token_file_is_there(beside->place);
    unsigned flags = replaces ? RENAME_EXCHANGE : 0;
    if (renameat2(AT_FDCWD, beside->path, AT_FDCWD, beside->place, flags) != 0)
        return FAILED("%s: cannot be %s: %s", beside->place, replaces ? "replaced" : "put in place",
                      strerror(errno));
    if (!replaces) {
        free(beside->path);
        beside->path = NULL;
    }
    return dir_sync(beside->parent);
}

Status prepare_dir(const PrepareSpec *spec, const char *dir, bool replace, PrepareResult *ret_result) {
    CLEANUP(beside_done) Beside beside = {.lock = -1};
    CLEANUP(prepare_result_done) PrepareResult result = {0};
    TRY(prepare_check(dir, replace));
    TRY(beside_make(&beside, dir));
    TRY(fill_dir(spec, beside.path, beside.place, &result));
    TRY(beside_commit(&beside, replace));
    *ret_result = result;
    result = (PrepareResult){0};
    return OK;
}
