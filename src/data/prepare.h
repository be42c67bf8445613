/* `weft prepare`: tokenizes a corpus into token files, on all cores and in bounded memory.
 *
 * Every document is followed by an end token: <|endoftext|> or, in vocabularies without one (BERT's), [SEP].
 * The token files also record where each document begins and, on request, where each sentence begins
 * (data/sentence.h). The result depends only on the text, the tokenizer and the file size, not on the number
 * of threads.
 */
#ifndef WEFT_DATA_PREPARE_H
#define WEFT_DATA_PREPARE_H

#include <signal.h>

#include "base/progress.h"
#include "data/reader.h"
#include "data/token_file.h"

#define PREPARE_FILE_SIZE ((int64_t)256 << 20)

typedef struct PrepareSpec {
    const Tokenizer *tokenizer;
    const char *tokenizer_files; /* where they are, for a copy beside the token files; NULL: no copy */
    const char *const *paths;
    int path_count;
    const char *const *val; /* input files of the "val" set */
    int val_count;
    double val_fraction; /* without `val` files: hold out this fraction of the documents; 0: nothing */
    Documents documents;
    const char *field;                 /* JSON field that holds the text; NULL: "text" */
    bool raw;                          /* see ReaderSpec */
    bool sentences;                    /* mark where sentences begin */
    int64_t file_size;                 /* maximum bytes per token file; 0: PREPARE_FILE_SIZE */
    int threads;                       /* 0: all cores */
    Progress *progress;                /* NULL: no progress output */
    const volatile sig_atomic_t *stop; /* may be NULL; nonzero: fail and leave no files behind */
} PrepareSpec;

typedef struct PrepareResult {
    TokenFileList token_files, val_token_files;
    int64_t tokens, documents, val_tokens, val_documents;
    int64_t sentences; /* in both sets; 0 without sentence marks */
    int64_t bytes;     /* bytes of text read */
    int64_t broken;    /* bytes that are not valid UTF-8 */
    char *broken_at;   /* location of the first such byte, "text.txt: line 3"; NULL: all text is valid */
    ReaderNotes notes;
} PrepareResult;

void prepare_result_done(PrepareResult *result);
/* Calls `tell` with each warning about the text, one sentence per call. */
MUST_USE Status prepare_notes(const PrepareResult *result, void (*tell)(void *context, const char *note),
                              void *context);

/* Fails unless token files may be written to `dir`: it must be absent or empty or, with `replace`, contain
 * only what prepare_dir writes. */
MUST_USE Status prepare_check(const char *dir, bool replace);
/* Creates the directory with the sets "train" and "val" and the tokenizer's files. It appears complete or not
 * at all. */
MUST_USE Status prepare_dir(const PrepareSpec *spec, const char *dir, bool replace,
                            PrepareResult *ret_result);

#endif
