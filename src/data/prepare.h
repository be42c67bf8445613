/* Preparing: from a corpus to token shards, on all cores, in bounded memory.
 *
 * Each document's tokens are followed by the token that ends one: <|endoftext|> or, in vocabularies that
 * have none (BERT's), [SEP]. Where the documents begin is kept beside the tokens. The result depends on
 * the text, the tokenizer and the size of the shards alone, not on the number of threads.
 * Where sentences begin (data/sentence.h) is marked too when asked for.
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
    const char *const *paths;
    int path_count;
    const char *const *val; /* files of the set "val" */
    int val_count;
    double val_fraction; /* without them: this part of the documents, spread evenly; 0: none */
    Documents documents;
    const char *field;                 /* NULL: "text" */
    bool sentences;                    /* mark where sentences begin */
    int64_t file_size;                 /* 0: PREPARE_FILE_SIZE */
    int threads;                       /* 0: all */
    Progress *progress;                /* NULL: not shown */
    const volatile sig_atomic_t *stop; /* NULL: none; not 0: end, leaving nothing behind */
} PrepareSpec;

typedef struct PrepareResult {
    TokenFileList token_files, val_token_files;
    int64_t tokens, documents, val_tokens, val_documents;
    int64_t sentences; /* of both, 0 without marks */
    int64_t bytes;     /* of text */
    int64_t broken;    /* ...of which so many are no UTF-8... */
    char *broken_at;   /* ...the first one here: "text.txt: line 3" */
    ReaderNotes notes;
} PrepareResult;

void prepare_result_done(PrepareResult *result);
/* Tells what the user should know about the text, a sentence at a time. */
MUST_USE Status prepare_notes(const PrepareResult *result, void (*tell)(void *context, const char *note),
                              void *context);

/* Whether shards may be put into `dir`: it is absent or empty or, with `replace`, holds nothing but shards.
 */
MUST_USE Status prepare_check(const char *dir, bool replace);
/* Makes the directory with the sets "train" and "val": all of it or nothing. */
MUST_USE Status prepare_dir(const PrepareSpec *spec, const char *dir, bool replace,
                            PrepareResult *ret_result);

#endif
