/* Reads documents from text files and JSON lines, plain or gzip-compressed, of any size.
 *
 * Reading has two stages, so that the expensive one can run on all cores (data/workers.h). A Reader divides
 * its inputs into blocks, in order: raw bytes that contain complete lines, complete documents, or a part of a
 * long document. reader_split then extracts the pieces of documents from a block.
 *   text    a document is a file, a line, the text between blank lines, or a WikiText article
 *   rows    (data/rows.h) each row is an object; a document is the string in one of its fields
 * Other files, except .txt, are also read as JSON lines if they begin with an object that has that field.
 * Files of other known formats (data/signature.h) and SQuAD's JSON are errors.
 * Empty documents and blank lines are skipped. A document that is a file consists of all its bytes; other
 * documents do not include their final newline.
 */
#ifndef WEFT_DATA_READER_H
#define WEFT_DATA_READER_H

#include <stdint.h>

#include "data/rows.h"

typedef enum { DOCUMENTS_FILE, DOCUMENTS_LINE, DOCUMENTS_BLANK, DOCUMENTS_WIKITEXT } Documents;
/* "file", "line", "blank", "wikitext"; NULL-terminated. */
extern const char *const documents_names[];
MUST_USE Status documents_parse(const char *name, Documents *ret_documents);

/* Finds where text that continues may be cut; see encoder_cut and learner_cut. */
typedef size_t (*TextCut)(const void *context, const char *text, size_t size);

enum {
    READER_BLOCK = 1 << 19,      /* usual bytes per block */
    READER_START = 1 << 14,      /* bytes at the start of a file that show its format */
    READER_LINE_LIMIT = 64 << 20 /* maximum length of a JSON line, and of text without a place to cut */
};

/* Problems that do not stop the reader. */
typedef struct ReaderNotes {
    int changed;              /* number of files that changed while they were being read */
    const char *changed_file; /* the first such file */
} ReaderNotes;

typedef struct ReaderSpec {
    const char *const *paths; /* "self": the embedded corpus */
    int path_count;
    Documents documents;
    const char *field; /* field of JSON lines; NULL: "text" */
    bool raw;          /* text is any bytes: files are neither checked nor read as JSON lines */
    bool or_bytes;     /* {format} bytes selects `raw`, as messages then say */
    TextCut cut;       /* NULL: text may be cut anywhere */
    const void *cut_context;
    size_t block;       /* bytes per block; 0: READER_BLOCK */
    ReaderNotes *notes; /* may be NULL */
} ReaderSpec;

/* One block and its buffer, which is reused; initialize with zeros. */
typedef struct TextBlock {
    char *text;
    size_t size, capacity;
    const char *file;  /* borrowed from the spec */
    int64_t line;      /* number of its first line */
    bool json;         /* contains JSON lines */
    const char *unit;  /* what messages call them: "line" or "row" */
    bool starts, ends; /* starts: a document may begin at the start; ends: the last document is complete */
    int64_t used;      /* total bytes of input consumed up to this block */
} TextBlock;

void text_block_done(TextBlock *block);

typedef struct Reader Reader;

/* Fails if an input does not exist. *ret_total: size of all files, compressed ones as stored; 0: not known.
 */
MUST_USE Status reader_measure(const char *const *paths, int count, int64_t *ret_total);
/* Fails if an input does not exist. Inputs are opened one after the other as they are needed. */
MUST_USE Status reader_new(Reader **ret_reader, const ReaderSpec *spec);
void reader_free(Reader *reader);
DEFINE_FREEP(Reader, reader)

/* Reads the next block; *ret_more is false if there is none. */
MUST_USE Status reader_next(Reader *reader, TextBlock *block, bool *ret_more);
/* The total of reader_measure. */
int64_t reader_total(const Reader *reader);
/* Whether the file name has the suffix of JSON lines. */
bool reader_is_json(const char *path);
/* Whether JSON in it is plain text, whatever it contains. */
bool reader_is_plain(const char *path);
/* Examines the start of a file, READER_START bytes and a NUL: the rows that it has; ROWS_NONE: plain text.
 * Fails if the file is neither. `field` and `or_bytes` as in ReaderSpec. */
MUST_USE Status reader_inspect(const char *path, const char *field, bool or_bytes, const char *start,
                               size_t size, RowsKind *ret_rows);

typedef struct TextPiece {
    const char *text;
    size_t size;
    bool first, last; /* first or last piece of its document; a last piece may be empty */
    const TextBlock *block;
} TextPiece;

typedef Status (*PieceFunc)(void *context, const TextPiece *piece);

/* Calls `func` with the pieces of a block, in order. A malformed line is an error that names the file, the
 * line and what was expected. */
MUST_USE Status reader_split(const ReaderSpec *spec, const TextBlock *block, PieceFunc func, void *context);

typedef struct WordCounts {
    int64_t words, lines; /* the last line of a document counts even without a newline */
    int64_t bytes;        /* bytes of text */
} WordCounts;

/* Counts words as word-level perplexity needs them: runs of characters between white space, plus one per
 * line end, which WikiText's authors count as the word <eos>. */
MUST_USE Status corpus_count_words(const ReaderSpec *spec, WordCounts *ret_counts);

/* ---- titles (titles.c) ---- */

/* Finds WikiText articles: each begins with its title, a line " = Title = " between two blank lines. Section
 * headings, " = = Section = = ", and similar lines in tables are not titles. */

/* Whether the line that begins at `at` > 0 is a title. The first line of the text is complete only if
 * `starts`. A title is recognized only once the line after it is available. */
bool title_at(const char *text, size_t size, size_t at, bool starts);
/* Whether the text is empty or all white space. */
bool text_is_blank(const char *text, size_t size);

#endif
