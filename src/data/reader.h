/* Reading a corpus: documents from text files and JSON lines, plain or .gz, of any size.
 *
 * Reading comes in two steps, so that the costly one can run on all cores (data/workers.h). A Reader cuts
 * its inputs into blocks, in order: raw bytes that hold whole lines, whole documents, or a part of a long
 * one. reader_split then gives the pieces of documents in a block.
 *   text    a file, a line, what lies between blank lines, or an article of WikiText is a document
 *   .jsonl  (.ndjson) each line is an object, a document is the text of one of its fields; so is a file of
 * another name, but for .txt, that begins with an object that has the field. Documents without any bytes are
 * left out, and so are blank lines. The newline that ends a line or a document of lines is no part of it; a
 * document that is a file is the file's bytes as they are.
 */
#ifndef WEFT_DATA_READER_H
#define WEFT_DATA_READER_H

#include <stdint.h>

#include "base/status.h"

typedef enum { DOCUMENTS_FILE, DOCUMENTS_LINE, DOCUMENTS_BLANK, DOCUMENTS_WIKITEXT } Documents;
/* "file", "line", "blank", "wikitext"; NULL-terminated. */
extern const char *const documents_names[];
MUST_USE Status documents_parse(const char *name, Documents *ret_documents);

/* Where a text that goes on may be cut, as encoder_cut and learner_cut say it. */
typedef size_t (*TextCut)(const void *context, const char *text, size_t size);

enum {
    READER_BLOCK = 1 << 19,      /* bytes of a block, as a rule */
    READER_LINE_LIMIT = 64 << 20 /* of a line of JSON, and of text without a place to cut it */
};

/* What a reader noticed that does not keep it from reading. */
typedef struct ReaderNotes {
    int changed;              /* files that were not the same at their end as at their begin... */
    const char *changed_file; /* ...the first of them */
} ReaderNotes;

typedef struct ReaderSpec {
    const char *const *paths; /* "self": the corpus in the program */
    int path_count;
    Documents documents;
    const char *field; /* of JSON lines; NULL: "text" */
    TextCut cut;       /* NULL: anywhere */
    const void *cut_context;
    size_t block;       /* 0: READER_BLOCK */
    ReaderNotes *notes; /* NULL: not wanted */
} ReaderSpec;

/* One block, and the memory it lies in, which is used again; start with zeroes. */
typedef struct TextBlock {
    char *text;
    size_t size, capacity;
    const char *file;  /* the reader's */
    int64_t line;      /* number of its first line */
    bool json;         /* lines of JSON */
    bool starts, ends; /* at its begin a document may begin; at its end the last one ends */
    int64_t used;      /* bytes of the files used up so far */
} TextBlock;

void text_block_done(TextBlock *block);

typedef struct Reader Reader;

/* Fails when an input cannot be there; they are opened when their turn comes. */
MUST_USE Status reader_new(Reader **ret_reader, const ReaderSpec *spec);
void reader_free(Reader *reader);
DEFINE_FREEP(Reader, reader)

/* The next block; *ret_more is false after the last one. */
MUST_USE Status reader_next(Reader *reader, TextBlock *block, bool *ret_more);
/* Bytes of all files as they lie there; 0 when that is not known. */
int64_t reader_total(const Reader *reader);
/* Whether a name stands for JSON lines. */
bool reader_is_json(const char *path);

typedef struct TextPiece {
    const char *text;
    size_t size;
    bool first, last; /* of its document; a last piece may be empty */
    const TextBlock *block;
} TextPiece;

typedef Status (*PieceFunc)(void *context, const TextPiece *piece);

/* Calls `func` with the pieces of a block, in order. A line that is not what it should be is an error
 * that names the file, the line and what was expected. */
MUST_USE Status reader_split(const ReaderSpec *spec, const TextBlock *block, PieceFunc func, void *context);

#endif
