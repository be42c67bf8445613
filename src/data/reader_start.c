/* What the first bytes of a text file show: rows (some tools write JSON lines without a suffix), or a format
 * that must not be read as text. A name that ends in .txt makes all JSON plain text. */
#include <string.h>

#include "data/corpus.h"
#include "data/data.h"
#include "data/reader.h"
#include "data/signature.h"
#include "data/source.h"

static const char *skip_space(const char *text) {
    return text + strspn(text, " \t\r\n");
}

bool reader_is_plain(const char *path) {
    return corpus_is_named(path) || path_has_suffix(path, ".txt");
}

/* Whether the text begins like JSON lines whose objects have the field. */
static bool begins_as_json(const char *text, const char *field) {
    text = skip_space(text);
    if (*text != '{' || text[1 + strspn(text + 1, " \t")] != '"') return false;
    size_t length = strlen(field);
    for (const char *at = text; (at = strchr(at, '"')); at++)
        if (!strncmp(at + 1, field, length) && at[1 + length] == '"') {
            const char *after = at + 2 + length;
            if (after[strspn(after, " \t")] == ':') return true;
        }
    return false;
}

Status reader_inspect(const char *path, const char *field, bool or_bytes, const char *start, size_t size,
                      RowsKind *ret_rows) {
    size_t skip = size >= 3 && !memcmp(start, "\xef\xbb\xbf", 3) ? 3 : 0;
    RowsKind kind = rows_kind(path, start, size);
    if (kind != ROWS_PARQUET) TRY(signature_check_text(path, start, size, or_bytes));
    if (kind == ROWS_NONE && !reader_is_plain(path) && begins_as_json(start + skip, field ? field : "text"))
        kind = ROWS_LINES;
    if (kind != ROWS_ARRAY && path_has_suffix(path, ".json") && data_looks_like_squad(start, size))
        return FAILED("%s has questions in SQuAD's format; read it with {format} squad", path);
    *ret_rows = kind;
    return OK;
}
