/* Detects the format of a file, by its name and its first line or beginning. */
#include <string.h>
#include <sys/stat.h>

#include "base/format.h"
#include "base/json.h"
#include "base/memory.h"
#include "chat/conversation.h"
#include "data/cornell.h"
#include "data/corpus.h"
#include "data/data.h"
#include "data/input.h"
#include "data/reader.h"
#include "data/signature.h"
#include "data/source.h"

const char *data_format_name(DataFormat format) {
    static const char *const names[FORMAT_COUNT] = {"auto", "bytes", "u16",   "u32",     "ids",     "tokens",
                                                    "text", "squad", "pairs", "cornell", "records", "chat"};
    return names[format];
}

DataFormat data_format_of(const char *path) {
    if (path_has_token_files(path)) return FORMAT_TOKENS;
    if (cornell_is_named(path)) return FORMAT_CORNELL;
    if (reader_is_json(path)) return FORMAT_IDS;
    if (path_has_suffix(path, ".u16") || path_has_suffix(path, ".bin")) return FORMAT_U16;
    if (path_has_suffix(path, ".u32")) return FORMAT_U32;
    return FORMAT_BYTES;
}

/* The first complete line that is not blank, in a buffer of `size` bytes (`complete`: the buffer ends with
 * the file); NULL: not found. */
static const char *first_line(const char *text, size_t size, bool complete, size_t *ret_length) {
    for (const char *at = text, *end = text + size; at < end;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        if (!newline && !complete) return NULL;
        size_t length = (size_t)((newline ? newline : end) - at);
        *ret_length = length;
        if (strspn(at, " \t\r") < length) return at;
        at = newline ? newline + 1 : end;
    }
    return NULL;
}

/* Reads just enough of the file for its first line. *ret_json stays NULL if the line is not valid JSON; the
 * actual reader reports the error with its position. */
static Status parse_first(const char *path, json_t **ret_json) {
    enum { START = 1 << 16 };
    CLEANUP(input_freep) Input *input = NULL;
    CLEANUP(mem_freep) char *text = NULL;
    size_t capacity = 0, size = 0, length = 0;
    TRY(input_open(&input, path));
    for (size_t want = START; want <= 2 * (size_t)READER_LINE_LIMIT; want *= 2) {
        size_t got = 0;
        TRY(mem_grow(&text, &capacity, want + 1, 1));
        TRY(input_read(input, text + size, want - size, &got));
        size += got;
        text[size] = 0;
        size_t skip = size >= 3 && !memcmp(text, "\xef\xbb\xbf", 3) ? 3 : 0;
        const char *line = first_line(text + skip, size - skip, size < want, &length);
        if (line) *ret_json = json_loadb(line, length, JSON_ALLOW_NUL, NULL);
        if (line || size < want) return signature_check_text(path, text, size, false);
    }
    return OK;
}

bool data_looks_like_squad(const char *text, size_t size) {
    size_t skip = size >= 3 && !memcmp(text, "\xef\xbb\xbf", 3) ? 3 : 0;
    while (skip < size && strchr(" \t\r\n", text[skip])) skip++;
    return skip < size && text[skip] == '{' && memmem(text, size, "\"data\"", 6) &&
           memmem(text, size, "\"paragraphs\"", 12);
}

/* Whether users have not named a field, which would mean that they want its text. */
static bool is_default(const char *field) {
    return !field || !strcmp(field, "text");
}

static Status no_field(const char *path, const char *field, const json_t *fields) {
    enum { SHOWN = 8 };
    char shown[NAME_TEXT], list[SHOWN * (NAME_TEXT + 2) + 8] = "";
    size_t used = 0, count = 0;
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)fields, name, value) {
        if (count++ == SHOWN) break;
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "",
                                 name_text(shown, name));
    }
    return FAILED(
        "%s has no field \"%s\"; it has %s%s; name the text with {field}, or read it as plain bytes "
        "with {format} bytes",
        path, field, list, count > SHOWN ? " and others" : "");
}

/* The format of JSON lines, by the first line. */
static Status find_lines(const char *path, const char *field, DataFormat *ret_format) {
    CLEANUP(json_decrefp) json_t *json = NULL;
    TRY(parse_first(path, &json));
    if (is_default(field) && !json_object_get(json, "ids") && chat_format_of(json) != CHAT_NONE) {
        *ret_format = FORMAT_CHAT;
        return OK;
    }
    if (!field) field = "text";
    bool ids = json_object_get(json, "ids"), text = json_object_get(json, field);
    bool pair = json_object_get(json, "q") && json_object_get(json, "a");
    if (json_is_object(json) && !ids && !text && !pair)
        return FAILED("%s: the first line has neither \"ids\" nor \"%s\"; expected token ids, text in "
                      "the field that {field} names, or a conversation",
                      path, field);
    *ret_format = ids || (!text && !pair) ? FORMAT_IDS : text ? FORMAT_TEXT : FORMAT_PAIRS;
    return OK;
}

/* The format of the rows of a table or a JSON array, by their fields. */
static Status find_rows(const char *path, const char *field, DataFormat *ret_format) {
    CLEANUP(json_decrefp) json_t *fields = NULL;
    TRY(rows_fields(path, &fields));
    if (!fields) return FAILED("%s has no rows; expected data", path);
    bool chat = is_default(field) && chat_format_of(fields) != CHAT_NONE;
    if (!field) field = "text";
    if (json_object_get(fields, "ids"))
        *ret_format = FORMAT_IDS;
    else if (chat)
        *ret_format = FORMAT_CHAT;
    else if (json_object_get(fields, field))
        *ret_format = FORMAT_TEXT;
    else if (json_object_get(fields, "q") && json_object_get(fields, "a"))
        *ret_format = FORMAT_PAIRS;
    else
        return no_field(path, field, fields);
    return OK;
}

Status data_lines_are_ids(const char *path, bool *ret_ids) {
    CLEANUP(json_decrefp) json_t *json = NULL;
    TRY(parse_first(path, &json));
    *ret_ids = json_object_get(json, "ids") != NULL;
    return OK;
}

static Status read_start(Input *input, size_t limit, char **ret_text, size_t *ret_size) {
    TRY(mem_new(limit + 1, 1, ret_text));
    return input_read(input, *ret_text, limit, ret_size);
}

Status data_is_squad(const char *path, bool *ret_squad) {
    enum { START = 1 << 16 };
    CLEANUP(input_freep) Input *input = NULL;
    CLEANUP(mem_freep) char *text = NULL;
    size_t size = 0;
    *ret_squad = false;
    if (!path_has_suffix(path, ".json")) return OK;
    TRY(input_open(&input, path));
    TRY(read_start(input, START, &text, &size));
    *ret_squad = data_looks_like_squad(text, size);
    return OK;
}

Status data_signature(const char *path, const Signature **ret_found) {
    CLEANUP(input_freep) Input *input = NULL;
    CLEANUP(mem_freep) char *text = NULL;
    size_t size = 0;
    *ret_found = NULL;
    if (path_is_special(path)) return OK;
    TRY(input_open(&input, path));
    TRY(read_start(input, SIGNATURE_START, &text, &size));
    *ret_found = signature_find(text, size);
    return OK;
}

/* Reads on until the first object is complete. */
static Status find_chat(Input *input, char **text, size_t *size, ChatFormat *ret_format) {
    size_t capacity = *size + 1, got = *size;
    while (!chat_format_start(*text, *size, ret_format) && got > 0 && *size < READER_LINE_LIMIT) {
        TRY(mem_grow(text, &capacity, 2 * *size + 1, 1));
        TRY(input_read(input, *text + *size, *size, &got));
        *size += got;
    }
    return OK;
}

/* Looks into a file that its name calls bytes or token ids. */
static Status look_inside(const char *path, const char *field, DataFormat *format) {
    enum { START = 1 << 16 };
    CLEANUP(input_freep) Input *input = NULL;
    CLEANUP(mem_freep) char *text = NULL;
    size_t size = 0;
    RowsKind kind = ROWS_NONE;
    TRY(input_open(&input, path));
    TRY(read_start(input, START, &text, &size));
    if (*format != FORMAT_BYTES) return signature_check_ids(path, text, size);
    if (path_has_suffix(path, ".json") && data_looks_like_squad(text, size)) {
        *format = FORMAT_SQUAD;
        return OK;
    }
    if (is_default(field) && path_has_suffix(path, ".json")) {
        ChatFormat chat = CHAT_NONE;
        TRY(find_chat(input, &text, &size, &chat));
        if (chat != CHAT_NONE) {
            *format = FORMAT_CHAT;
            return OK;
        }
    }
    TRY(reader_inspect(path, field, true, text, size, &kind));
    if (kind != ROWS_NONE && kind != ROWS_LINES) return find_rows(path, field, format);
    /* Only documents are decompressed whatever the name is. */
    if (kind == ROWS_LINES || (input_compressed(input) && !path_is_gz(path))) *format = FORMAT_TEXT;
    return OK;
}

Status data_format_find(const char *path, const char *field, DataFormat *ret_format) {
    DataFormat format = data_format_of(path);
    struct stat st;
    bool looks = format == FORMAT_BYTES || format == FORMAT_U16 || format == FORMAT_U32;
    if (format == FORMAT_IDS)
        TRY(find_lines(path, field, &format));
    else if (looks && !corpus_is_named(path) && !stat(path, &st) && S_ISREG(st.st_mode))
        TRY(look_inside(path, field, &format));
    *ret_format = format;
    return OK;
}
