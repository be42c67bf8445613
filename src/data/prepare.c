/* Tokenizes a corpus: the task that the worker pool runs, and the output directory.
 *
 * A worker encodes the pieces of a block into the token list of its slot, notes where documents begin, and
 * packs the tokens in file format. Finished slots are then written in text order, either all to one set or
 * each document to the set that its number selects.
 */
#include "data/prepare.h"

#include <endian.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/format.h"
#include "base/fs.h"
#include "base/memory.h"
#include "base/staging.h"
#include "data/sentence.h"
#include "data/workers.h"

/* Result of one block. */
typedef struct Encoded {
    TokenList tokens;
    size_t *begin; /* index of each document's first token */
    size_t begins, capacity;
    size_t *mark; /* index of each sentence's first token */
    size_t marks, mark_capacity;
    unsigned char *packed;
    size_t packed_capacity;
    int64_t bytes, broken;   /* bytes of text, and those that are not valid UTF-8 */
    const char *broken_file; /* location of the first invalid byte */
    int64_t broken_line;
} Encoded;

typedef struct Prepare {
    const PrepareSpec *spec;
    int32_t end;
    int width;
    Encoder **encoder; /* one per worker, plus one that finds cut points for the reader */
    int threads;
    Encoded *slot;
    int slots;
    TokenFileSet *train, *val, *current; /* `current`: the set that receives the current document */
    int64_t document;                    /* number of the next document */
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
    for (int i = 0; p->slot && i < p->slots; i++) {
        token_list_done(&p->slot[i].tokens);
        free(p->slot[i].begin);
        free(p->slot[i].mark);
        free(p->slot[i].packed);
    }
    free(p->slot);
    free(p->broken_at);
    token_file_set_free(p->train);
    token_file_set_free(p->val);
}

Status prepare_notes(const PrepareResult *result, void (*tell)(void *context, const char *note),
                     void *context) {
    const ReaderNotes *notes = &result->notes;
    CLEANUP(mem_freep) char *broken = NULL, *changed = NULL;
    if (result->broken) {
        TRY(str_format(&broken, "%s: %lld byte%s of the text %s not valid UTF-8; the first is on this line",
                       result->broken_at, (long long)result->broken, result->broken == 1 ? "" : "s",
                       result->broken == 1 ? "is" : "are"));
        tell(context, broken);
    }
    if (notes->changed) {
        TRY(str_format(&changed, "%s: changed while it was being read; prepare it again once it is complete",
                       notes->changed_file));
        tell(context, changed);
    }
    return OK;
}

/* ---- encoding a block ---- */

static Status add_token(TokenList *list, int32_t id) {
    TRY(mem_grow(&list->ids, &list->capacity, list->count + 1, sizeof *list->ids));
    list->ids[list->count++] = id;
    return OK;
}

/* Encodes sentence by sentence. Every piece begins with a new sentence, because inputs are cut between
 * sentences. */
static Status encode_sentences(Encoder *encoder, const TextPiece *piece, Encoded *to) {
    for (size_t at = 0; at < piece->size;) {
        size_t end = sentence_end(piece->text, piece->size, at);
        bool repeats = to->marks &&
                       to->mark[to->marks - 1] == to->tokens.count; /* the previous sentence had no tokens */
        TRY(mem_grow(&to->mark, &to->mark_capacity, to->marks + 1, sizeof *to->mark));
        if (!repeats) to->mark[to->marks++] = to->tokens.count;
        TRY(encoder_add(encoder, piece->text + at, end - at, &to->tokens));
        at = end;
    }
    return OK;
}

/* JSON strings were validated by the parser, and byte tokenizers accept any bytes. */
static void count_broken(const Prepare *p, const TextPiece *piece, Encoded *to) {
    size_t first = 0;
    if (piece->block->json || tokenizer_kind(p->spec->tokenizer) == TOKENIZER_BYTES) return;
    int64_t count = text_invalid_utf8(piece->text, piece->size, &first);
    if (count && !to->broken) {
        to->broken_file = piece->block->file;
        to->broken_line = piece->block->line;
        for (const char *at = piece->block->text; at < piece->text + first; at++)
            to->broken_line += *at == '\n';
    }
    to->broken += count;
}

static Status encode_piece(void *context, int worker, int slot, const TextPiece *piece) {
    Prepare *p = context;
    Encoded *to = &p->slot[slot];
    if (piece->first) {
        TRY(mem_grow(&to->begin, &to->capacity, to->begins + 1, sizeof *to->begin));
        to->begin[to->begins++] = to->tokens.count;
    }
    if (p->spec->sentences)
        TRY(encode_sentences(p->encoder[worker], piece, to));
    else if (piece->first)
        TRY(encoder_add(p->encoder[worker], piece->text, piece->size, &to->tokens));
    else
        TRY(encoder_add_more(p->encoder[worker], piece->text, piece->size, &to->tokens));
    to->bytes += (int64_t)piece->size;
    count_broken(p, piece, to);
    return piece->last ? add_token(&to->tokens, p->end) : OK;
}

static Status pack_tokens(void *context, int worker, int slot) {
    (void)worker;
    const Prepare *p = context;
    Encoded *to = &p->slot[slot];
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

/* Selects documents evenly: those at which the expected number of held-out documents reaches the next
 * integer. */
static bool goes_to_val(double fraction, int64_t document) {
    return floor((double)(document + 1) * fraction) > floor((double)document * fraction);
}

static Status begin_document(Prepare *p) {
    bool val = p->val && goes_to_val(p->spec->val_fraction, p->document);
    p->current = val ? p->val : p->train;
    p->document++;
    return token_file_set_document(p->current);
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

/* Writes tokens at .. stop - 1, all of one document, sentence by sentence; *mark is the next
 * sentence mark. */
static Status write_tokens(Prepare *p, const Encoded *from, size_t at, size_t stop, size_t *mark) {
    size_t width = (size_t)p->width;
    while (at < stop) {
        while (*mark < from->marks && from->mark[*mark] <= at) {
            if (from->mark[(*mark)++] == at) token_file_set_sentence(p->current);
        }
        size_t next = *mark < from->marks && from->mark[*mark] < stop ? from->mark[*mark] : stop;
        TRY(token_file_set_add(p->current, from->packed + at * width, next - at));
        at = next;
    }
    return OK;
}

static Status write_slot(void *context, int slot, int64_t used) {
    Prepare *p = context;
    Encoded *from = &p->slot[slot];
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

/* Cuts between sentences where the next one begins with a space: no tokenizer merges across that boundary. */
static size_t cut_by_sentence(const void *context, const char *text, size_t size) {
    size_t cut = encoder_cut(context, text, size), end = sentence_last_end(text, cut);
    return end ? end : cut;
}

/* ---- reading the input files ---- */

static Status read_files(Prepare *p, const char *const *paths, int count, int64_t *ret_total) {
    const PrepareSpec *spec = p->spec;
    ReaderSpec reading = {.paths = paths,
                          .path_count = count,
                          .documents = spec->documents,
                          .field = spec->field,
                          .raw = spec->raw,
                          .or_bytes = true,
                          .cut = spec->sentences ? cut_by_sentence : cut_by_encoder,
                          .cut_context = p->encoder[p->threads],
                          .notes = &p->notes};
    int64_t total;
    TRY(reader_measure(paths, count, &total));
    if (spec->progress) progress_total(spec->progress, total ? p->used_before + total : 0);
    WorkerTask work = {.context = p, .piece = encode_piece, .pack = pack_tokens, .finish = write_slot};
    TRY(workers_run(&reading, p->threads, &work, spec->stop));
    *ret_total = total;
    return OK;
}

static Status make_encoders(Prepare *p) {
    TRY(mem_new((size_t)p->threads + 1, sizeof *p->encoder, &p->encoder));
    for (int i = 0; i <= p->threads; i++) TRY(encoder_new(&p->encoder[i], p->spec->tokenizer, NULL));
    TRY(mem_new((size_t)p->slots, sizeof *p->slot, &p->slot));
    return OK;
}

static Status find_end_token(const Tokenizer *tokenizer, int32_t *ret_end) {
    SpecialTokens special = tokenizer_special(tokenizer);
    *ret_end = special.end >= 0 ? special.end : special.sep;
    if (*ret_end >= 0) return OK;
    return USAGE("the tokenizer has no token to end a document with; it needs <|endoftext|>, </s> or [SEP]");
}

static Status write_train(Prepare *p, int64_t *ret_total) {
    const PrepareSpec *spec = p->spec;
    p->current = p->train;
    TRY(read_files(p, spec->paths, spec->path_count, ret_total));
    if (token_file_set_tokens(p->train) == 0 && !(p->val && token_file_set_tokens(p->val)))
        return FAILED("%s%s: no text found; expected at least one document", spec->paths[0],
                      spec->path_count > 1 ? " and the other files" : "");
    if (p->val && (token_file_set_tokens(p->val) == 0 || token_file_set_tokens(p->train) == 0))
        return USAGE("{val-fraction} %g: of %lld document%s, none would be left for %s; pass validation "
                     "files with {val}, or choose what counts as a document with {documents}",
                     spec->val_fraction, (long long)p->document, p->document == 1 ? "" : "s",
                     token_file_set_tokens(p->train) == 0 ? "training" : "validation");
    return OK;
}

/* Runs after the training files; all documents go to the "val" set. */
static Status write_val(Prepare *p) {
    const PrepareSpec *spec = p->spec;
    TokenFileSet *train = p->train;
    int64_t total = 0;
    p->current = p->train = p->val;
    p->val = NULL;
    Status status = read_files(p, spec->val, spec->val_count, &total);
    p->val = p->train;
    p->train = train;
    if (!status && token_file_set_tokens(p->val) == 0)
        return FAILED("%s: no text found; expected at least one document", spec->val[0]);
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

/* Fills the temporary directory `dir`; result paths refer to its final location `final_dir`. */
static Status fill_dir(const PrepareSpec *spec, const char *dir, const char *final_dir,
                       PrepareResult *result) {
    CLEANUP(prepare_done)
    Prepare p = {.spec = spec, .threads = workers_threads(spec->threads), .start = clock_wall()};
    p.slots = workers_slots(p.threads);
    p.width = token_file_token_width(tokenizer_vocab(spec->tokenizer));
    TRY(find_end_token(spec->tokenizer, &p.end));
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
    TRY(final_paths(&result->token_files, p.train, final_dir));
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
    TRY(final_paths(&result->val_token_files, p.val, final_dir));
    result->val_tokens = token_file_set_tokens(p.val);
    result->val_documents = token_file_set_documents(p.val);
    return OK;
}

/* ---- output directory ---- */

/* A directory that has only files of a tokenizer is the copy beside token files. */
static Status is_tokenizer_copy(const char *path, bool *ret_is) {
    CLEANUP(dir_closep) DIR *dir = opendir(path);
    if (!dir) return FAILED("%s: cannot be read: %s", path, strerror(errno));
    *ret_is = true;
    for (struct dirent *entry; (entry = readdir(dir));)
        *ret_is &=
            tokenizer_is_file(entry->d_name) || !strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..");
    return OK;
}

static Status check_entry(const char *dir, const char *name, bool replace) {
    CLEANUP(mem_freep) char *path = NULL;
    CLEANUP(token_file_freep) TokenFile *token_file = NULL;
    bool own = false;
    TRY(path_join(&path, dir, name));
    if (!strcmp(name, TOKEN_FILE_TOKENIZER) && path_is_dir(path)) TRY(is_tokenizer_copy(path, &own));
    CLEANUP(status_freep)
    Status status = !own && path_has_token_files(path) ? token_file_open(&token_file, path) : OK;
    if (!own && !token_file && !status)
        return USAGE("%s: contains %s, which is not a token file; choose another {out}", dir, name);
    if (!replace)
        return USAGE(
            "%s: already contains token files; add {overwrite} to replace them, or choose another {out}",
            dir);
    return OK;
}

Status prepare_check(const char *path, bool replace) {
    if (!path_exists(path)) return OK;
    CLEANUP(dir_closep) DIR *dir = opendir(path);
    if (!dir) return USAGE("%s: %s; expected a directory for token files", path, strerror(errno));
    for (struct dirent *entry; (entry = readdir(dir));)
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
            TRY(check_entry(path, entry->d_name, replace));
    return OK;
}

/* A file may have been named whose directory is another tokenizer's; there is no copy then. */
static Status copy_tokenizer(const PrepareSpec *spec, const char *dir) {
    CLEANUP(mem_freep) char *path = NULL;
    TRY(path_join(&path, dir, TOKEN_FILE_TOKENIZER));
    TRY(tokenizer_copy(spec->tokenizer_files, path));
    CLEANUP(tokenizer_freep) Tokenizer *copy = NULL;
    CLEANUP(status_freep) Status loaded = tokenizer_load(&copy, path);
    TokenizerId asked = tokenizer_id(spec->tokenizer), found = copy ? tokenizer_id(copy) : asked;
    return loaded || !tokenizer_id_same(&asked, &found) ? dir_remove(path) : OK;
}

Status prepare_dir(const PrepareSpec *spec, const char *dir, bool replace, PrepareResult *ret_result) {
    CLEANUP(staging_done) StagingDir staging = STAGING_NONE;
    CLEANUP(prepare_result_done) PrepareResult result = {0};
    int64_t total;
    TRY(prepare_check(dir, replace));
    TRY(reader_measure(spec->paths, spec->path_count, &total));
    if (spec->val_count) TRY(reader_measure(spec->val, spec->val_count, &total));
    TRY(staging_make(&staging, dir));
    TRY(fill_dir(spec, staging.path, staging.target, &result));
    if (spec->tokenizer_files) TRY(copy_tokenizer(spec, staging.path));
    TRY(prepare_check(staging.target, replace));
    TRY(staging_commit(&staging, replace && path_has_token_files(staging.target)));
    return MOVE(ret_result, result);
}
