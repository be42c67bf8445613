#include "report/text.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/terminal.h"
#include "tokenizer/tokenizer.h"

Status text_open(Text *text) {
    text->out = open_memstream(&text->data, &text->size);
    return text->out ? OK : FAILED("out of memory while writing a text");
}

Status text_take(Text *text, char **ret_text, size_t *ret_size) {
    bool bad = ferror(text->out) != 0;
    bad |= fclose(text->out) != 0;
    text->out = NULL;
    if (bad) return FAILED("out of memory while writing a text");
    while (text->size && text->data[text->size - 1] == ' ') text->data[--text->size] = 0;
    *ret_text = text->data;
    text->data = NULL;
    if (ret_size) *ret_size = text->size;
    return OK;
}

void text_done(Text *text) {
    if (text->out) fclose(text->out);
    free(text->data);
}

Status texts_keep(TextList *list, const char **text) {
    if (!*text) return OK;
    TRY(mem_grow(&list->texts, &list->capacity, list->count + 1, sizeof *list->texts));
    TRY(str_dup(*text, &list->texts[list->count]));
    *text = list->texts[list->count++];
    return OK;
}

void texts_done(TextList *list) {
    for (size_t i = 0; i < list->count; i++) free(list->texts[i]);
    free(list->texts);
}

Status text_of_path(const char *path, char **ret_name) {
    size_t length = strlen(path), size;
    while (length > 1 && path[length - 1] == '/') length--;
    size_t start = length;
    while (start > 0 && path[start - 1] != '/') start--;
    return text_to_utf8(path + start, length - start, ret_name, &size);
}

static bool starts(char c) {
    return ((unsigned char)c & 0xC0) != 0x80;
}

size_t text_length(const char *text) {
    size_t count = 0;
    for (; *text; text++) count += starts(*text);
    return count;
}

/* The bytes of the first `count` characters. */
static size_t offset_of(const char *text, size_t count) {
    size_t at = 0;
    while (text[at] && (!starts(text[at]) || count-- > 0)) at++;
    return at;
}

Status text_shorten(const char *text, size_t most, char **ret_text) {
    size_t length = text_length(text), tail = (most - 1) / 2, head = most - 1 - tail;
    if (length <= most) return str_dup(text, ret_text);
    return str_format(ret_text, "%.*s…%s", (int)offset_of(text, head), text,
                      text + offset_of(text, length - tail));
}

void text_append(char *buffer, size_t size, const char *fmt, ...) {
    size_t used = strlen(buffer);
    va_list args;
    va_start(args, fmt);
    vsnprintf(buffer + used, size - used, fmt, args);
    va_end(args);
}

void put_html(FILE *out, const char *text) {
    for (int length; *text; text += length) {
        bool space = *text == '\n' || *text == '\t';
        int control = space ? 0 : terminal_control(text);
        length = control ? control : 1;
        switch (control ? '?' : *text) {
        case '<': fputs("&lt;", out); break;
        case '>': fputs("&gt;", out); break;
        case '&': fputs("&amp;", out); break;
        case '"': fputs("&quot;", out); break;
        default: fputc(control ? '?' : *text, out);
        }
    }
}

/* As fprintf with one conversion of a text. */
static void put_text(FILE *out, const char *conversion, const char *text) {
    char part[64];
    bool whole = !strcmp(conversion, "%s");
    if (!whole) snprintf(part, sizeof part, conversion, text);
    put_html(out, whole ? text : part);
}

void put_markup_list(FILE *out, const char *fmt, va_list *args) {
    char conversion[16];
    for (;; fmt += strlen(conversion)) {
        size_t plain = strcspn(fmt, "%");
        fprintf(out, "%.*s", (int)plain, fmt);
        fmt += plain;
        if (!*fmt) return;
        snprintf(conversion, sizeof conversion, "%.*s", (int)strcspn(fmt + 1, "sdufge%") + 2, fmt);
        switch (conversion[strlen(conversion) - 1]) {
        case 's': put_text(out, conversion, va_arg(*args, const char *)); break;
        case '%': fputc('%', out); break;
        case 'u': fprintf(out, conversion, va_arg(*args, size_t)); break;
        case 'd':
            if (strstr(conversion, "ll"))
                fprintf(out, conversion, va_arg(*args, long long));
            else
                fprintf(out, conversion, va_arg(*args, int));
            break;
        default: fprintf(out, conversion, va_arg(*args, double));
        }
    }
}

void put_markup(FILE *out, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    put_markup_list(out, fmt, &args);
    va_end(args);
}

void put_csv(FILE *out, const char *text) {
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '"') fputc('"', out);
        fputc(*text, out);
    }
    fputc('"', out);
}
