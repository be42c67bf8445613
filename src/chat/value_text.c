/* Values as text: Python's str(), repr() and json.dumps(). */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "chat/value.h"

Status writer_add(Writer *writer, Text text) {
    if (text.size > writer->capacity - writer->size) {
        char *grown = NULL;
        size_t more = 2 * writer->capacity + text.size + 64;
        TRY(region_take(writer->region, more, 1, &grown));
        if (writer->size) memcpy(grown, writer->data, writer->size);
        writer->data = grown;
        writer->capacity = more;
    }
    if (text.size) memcpy(writer->data + writer->size, text.data, text.size);
    writer->size += text.size;
    return OK;
}

Status writer_char(Writer *writer, uint32_t c) {
    char out[4];
    size_t size = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = size; i-- > 1; c >>= 6) out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(size == 1 ? c : (0xf00u >> size & 0xf0) | c);
    return writer_add(writer, (Text){out, size});
}

Status writer_format(Writer *writer, const char *fmt, ...) {
    char text[512];
    va_list args;
    va_start(args, fmt);
    int size = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (size < 0 || (size_t)size >= sizeof text) return FAILED("internal: a long text in a template's value");
    return writer_add(writer, (Text){text, (size_t)size});
}

/* The shortest digits that read back as the same number, in Python's notation. */
static Status write_real(Writer *writer, double real) {
    char digits[40], plain[64];
    if (isnan(real)) return writer_add(writer, TEXT("nan"));
    if (isinf(real)) return writer_add(writer, real > 0 ? TEXT("inf") : TEXT("-inf"));
    int precision = 0;
    do snprintf(digits, sizeof digits, "%.*e", precision, real);
    while (strtod(digits, NULL) != real && precision++ < 17);
    int exponent = atoi(strchr(digits, 'e') + 1);
    if (exponent < -4 || exponent >= 16) {
        *strchr(digits, 'e') = 0;
        return writer_format(writer, "%se%c%02d", digits, exponent < 0 ? '-' : '+', abs(exponent));
    }
    int decimals = precision - exponent;
    snprintf(plain, sizeof plain, "%.*f", decimals > 1 ? decimals : 1, real);
    return writer_add(writer, text_of_string(plain));
}

/* ---- str() and repr() ---- */

/* Characters that repr() escapes, apart from the rare ones of scripts. */
static bool is_printable(uint32_t c) {
    if (c < 0x20 || (c >= 0x7f && c <= 0xa0) || c == 0xad) return false;
    if (char_is_blank(c) && c != ' ') return false;
    return !((c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) ||
             (c >= 0xe000 && c <= 0xf8ff) || c == 0xfeff || (c >= 0xfff0 && c <= 0xfffb));
}

static Status write_quoted(Writer *writer, Text text) {
    bool single = text.size && memchr(text.data, '\'', text.size);
    char quote = single && !memchr(text.data, '"', text.size) ? '"' : '\'';
    TRY(writer_char(writer, (uint32_t)quote));
    for (size_t at = 0; at < text.size; at += char_size(text.data + at)) {
        uint32_t c = char_decode(text, at);
        const char *escape = c == '\n'   ? "\\n"
                             : c == '\r' ? "\\r"
                             : c == '\t' ? "\\t"
                             : c == '\\' ? "\\\\"
                                         : NULL;
        if (escape)
            TRY(writer_add(writer, text_of_string(escape)));
        else if (c == (uint32_t)quote)
            TRY(writer_format(writer, "\\%c", quote));
        else if (is_printable(c))
            TRY(writer_char(writer, c));
        else
            TRY(writer_format(writer,
                              c < 0x100     ? "\\x%02x"
                              : c < 0x10000 ? "\\u%04x"
                                            : "\\U%08x",
                              (unsigned)c));
    }
    return writer_char(writer, (uint32_t)quote);
}

static Status write_list(Writer *writer, Value value) {
    const List *list = value.list;
    bool tuple = value.kind == V_TUPLE;
    TRY(writer_char(writer, tuple ? '(' : '['));
    for (size_t i = 0; i < list->count; i++) {
        if (i) TRY(writer_add(writer, TEXT(", ")));
        TRY(writer_repr(writer, list->item[i]));
    }
    if (tuple && list->count == 1) TRY(writer_char(writer, ','));
    return writer_char(writer, tuple ? ')' : ']');
}

static Status write_dict(Writer *writer, const Dict *dict) {
    TRY(writer_char(writer, '{'));
    for (size_t i = 0; i < dict->count; i++) {
        if (i) TRY(writer_add(writer, TEXT(", ")));
        TRY(writer_repr(writer, dict->entry[i].key));
        TRY(writer_add(writer, TEXT(": ")));
        TRY(writer_repr(writer, dict->entry[i].value));
    }
    return writer_char(writer, '}');
}

Status writer_repr(Writer *writer, Value value) {
    switch (value.kind) {
    case V_UNDEFINED: return writer_add(writer, TEXT("Undefined"));
    case V_NONE: return writer_add(writer, TEXT("None"));
    case V_BOOL: return writer_add(writer, value.boolean ? TEXT("True") : TEXT("False"));
    case V_INT: return writer_format(writer, "%lld", (long long)value.integer);
    case V_REAL: return write_real(writer, value.real);
    case V_TEXT: return write_quoted(writer, value.text);
    case V_LIST:
    case V_TUPLE:
        if (value.list->generator) break;
        return write_list(writer, value);
    case V_DICT: return write_dict(writer, value.dict);
    case V_NAMESPACE:
    case V_CALLABLE:
    case V_LOOP: break;
    }
    return FAILED("%s cannot be printed", value_type(value));
}

Status writer_str(Writer *writer, Value value) {
    if (value.kind == V_UNDEFINED) return OK;
    return value.kind == V_TEXT ? writer_add(writer, value.text) : writer_repr(writer, value);
}

/* ---- json.dumps() ---- */

typedef struct JsonWriter {
    Writer *writer;
    const JsonStyle *style;
    const char *bad;
    int depth;
} JsonWriter;

static Status put_json(JsonWriter *json, Value value);

static Status put_json_text(JsonWriter *json, Text text) {
    Writer *writer = json->writer;
    TRY(writer_char(writer, '"'));
    for (size_t at = 0; at < text.size; at += char_size(text.data + at)) {
        uint32_t c = char_decode(text, at);
        static const char plain[] = "\b\f\n\r\t\"\\", letters[] = "bfnrt\"\\";
        const char *found = c && c < 0x80 ? strchr(plain, (int)c) : NULL;
        if (found)
            TRY(writer_format(writer, "\\%c", letters[found - plain]));
        else if (c < 0x20 || (json->style->ascii && c > 0x7e && c < 0x10000))
            TRY(writer_format(writer, "\\u%04x", (unsigned)c));
        else if (json->style->ascii && c >= 0x10000)
            TRY(writer_format(writer, "\\u%04x\\u%04x", (unsigned)(0xd7c0 + (c >> 10)),
                              (unsigned)(0xdc00 | (c & 0x3ff))));
        else
            TRY(writer_char(writer, c));
    }
    return writer_char(writer, '"');
}

static Status put_json_line(JsonWriter *json) {
    if (!json->style->indent.data) return OK;
    TRY(writer_char(json->writer, '\n'));
    for (int i = 0; i < json->depth; i++) TRY(writer_add(json->writer, json->style->indent));
    return OK;
}

/* Keys that are not texts become texts, as in Python. */
static Status put_json_key(JsonWriter *json, Value key) {
    Writer text = {.region = json->writer->region};
    JsonWriter inner = {.writer = &text, .style = json->style};
    if (key.kind == V_TEXT) return put_json_text(json, key.text);
    if (value_is_list(key)) json->bad = value_type(key);
    TRY(put_json(&inner, key));
    return put_json_text(json, writer_value(&text).text);
}

static int entries_order(const void *a, const void *b) {
    int order = 0;
    value_order(((const DictEntry *)a)->key, ((const DictEntry *)b)->key, &order);
    return order;
}

static Status put_json_dict(JsonWriter *json, const Dict *dict) {
    DictEntry *entry = dict->entry;
    if (json->style->sorted && dict->count) {
        TRY(region_take(json->writer->region, dict->count, sizeof *entry, &entry));
        memcpy(entry, dict->entry, dict->count * sizeof *entry);
        qsort(entry, dict->count, sizeof *entry, entries_order);
    }
    TRY(writer_char(json->writer, '{'));
    json->depth++;
    for (size_t i = 0; i < dict->count; i++) {
        if (i) TRY(writer_add(json->writer, json->style->item));
        TRY(put_json_line(json));
        TRY(put_json_key(json, entry[i].key));
        TRY(writer_add(json->writer, json->style->key));
        TRY(put_json(json, entry[i].value));
    }
    json->depth--;
    if (dict->count) TRY(put_json_line(json));
    return writer_char(json->writer, '}');
}

static Status put_json_list(JsonWriter *json, const List *list) {
    TRY(writer_char(json->writer, '['));
    json->depth++;
    for (size_t i = 0; i < list->count; i++) {
        if (i) TRY(writer_add(json->writer, json->style->item));
        TRY(put_json_line(json));
        TRY(put_json(json, list->item[i]));
    }
    json->depth--;
    if (list->count) TRY(put_json_line(json));
    return writer_char(json->writer, ']');
}

static Status put_json(JsonWriter *json, Value value) {
    switch (value.kind) {
    case V_NONE: return writer_add(json->writer, TEXT("null"));
    case V_BOOL: return writer_add(json->writer, value.boolean ? TEXT("true") : TEXT("false"));
    case V_INT: return writer_repr(json->writer, value);
    case V_REAL:
        if (isfinite(value.real)) return writer_repr(json->writer, value);
        return writer_add(json->writer, isnan(value.real) ? TEXT("NaN")
                                        : value.real > 0  ? TEXT("Infinity")
                                                          : TEXT("-Infinity"));
    case V_TEXT: return put_json_text(json, value.text);
    case V_LIST:
    case V_TUPLE:
        if (value.list->generator) json->bad = value_type(value);
        return put_json_list(json, value.list);
    case V_DICT: return put_json_dict(json, value.dict);
    default: json->bad = value_type(value); return OK;
    }
}

Status writer_json(Writer *writer, Value value, const JsonStyle *style, const char **ret_bad) {
    JsonWriter json = {.writer = writer, .style = style};
    TRY(put_json(&json, value));
    *ret_bad = json.bad;
    return OK;
}
