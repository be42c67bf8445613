#include "data/cornell.h"

#include <string.h>

#include "base/memory.h"
#include "data/source.h"
#include "tokenizer/unicode.h"

static const char separator[] = " +++$+++ ";
enum { SEPARATOR = sizeof separator - 1, FIELDS = 5 };

typedef struct Slice {
    const char *text;
    size_t size;
} Slice;

typedef struct Utterance {
    Slice id;
    size_t at, size; /* text in the pool */
} Utterance;

typedef struct Corpus {
    Source *source; /* (count) */
    int count;
    Utterance *utterance;
    size_t utterances, capacity;
    char *pool; /* texts as UTF-8 */
    size_t used, pool_capacity;
    CornellPair func;
    void *context;
    CornellCounts counts;
} Corpus;

static void corpus_done(Corpus *corpus) {
    for (int i = 0; corpus->source && i < corpus->count; i++) source_done(&corpus->source[i]);
    free(corpus->source);
    free(corpus->utterance);
    free(corpus->pool);
}

bool cornell_is_named(const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    return !strncmp(name, "movie_lines", 11) || !strncmp(name, "movie_conversations", 19);
}

/* ---- text ---- */

/* Windows-1252 characters 0x80 to 0x9F; 0: undefined. */
static const uint16_t windows[32] = {0x20AC, 0,      0x201A, 0x0192, 0x201E, 0x2026, 0x2020, 0x2021,
                                     0x02C6, 0x2030, 0x0160, 0x2039, 0x0152, 0,      0x017D, 0,
                                     0,      0x2018, 0x2019, 0x201C, 0x201D, 0x2022, 0x2013, 0x2014,
                                     0x02DC, 0x2122, 0x0161, 0x203A, 0x0153, 0,      0x017E, 0x0178};

/* Appends a text to the pool, which must have space for it. */
static void put_text(Corpus *corpus, const unsigned char *text, size_t size) {
    char *to = corpus->pool + corpus->used;
    size_t first;
    bool utf8 = !text_invalid_utf8((const char *)text, size, &first);
    for (size_t i = 0; i < size; i++) {
        uint32_t c = text[i];
        if (!utf8 && c >= 0x80 && c < 0xA0 && windows[c - 0x80]) c = windows[c - 0x80];
        if (utf8)
            *to++ = (char)text[i];
        else
            to += utf8_put(c, to);
    }
    corpus->used = (size_t)(to - corpus->pool);
}

/* ---- lines ---- */

/* Splits a line at the separators; the last field takes the rest. Returns the number of fields. */
static int cut_line(const char *line, size_t size, Slice field[FIELDS]) {
    int count = 0;
    for (;;) {
        const char *next = count < FIELDS - 1 ? memmem(line, size, separator, SEPARATOR) : NULL;
        size_t here = next ? (size_t)(next - line) : size;
        field[count++] = (Slice){line, here};
        if (!next) return count;
        line = next + SEPARATOR;
        size -= here + SEPARATOR;
    }
}

typedef Status (*LineFunc)(Corpus *corpus, const char *file, int64_t number, const Slice *field, int count);

static Status each_line(Corpus *corpus, const Source *source, LineFunc func) {
    const char *at = (const char *)source->data, *end = at + source->size;
    TRY(source_check(source));
    for (int64_t number = 1; at < end; number++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t size = (size_t)((newline ? newline : end) - at);
        while (size && at[size - 1] == '\r') size--;
        Slice field[FIELDS];
        if (size) TRY(func(corpus, source->name, number, field, cut_line(at, size, field)));
        at = newline ? newline + 1 : end;
    }
    return OK;
}

static Status take_utterance(Corpus *corpus, const char *file, int64_t number, const Slice *field,
                             int count) {
    /* An utterance without text may lack the space after its last separator. */
    static const char last[] = " +++$+++";
    Slice text = {"", 0};
    if (count == FIELDS)
        text = field[FIELDS - 1];
    else if (count != FIELDS - 1 || field[3].size < sizeof last - 1 ||
             memcmp(field[3].text + field[3].size - (sizeof last - 1), last, sizeof last - 1))
        return FAILED(
            "%s: line %lld: the number of fields is %d; expected 5 for an utterance or 4 for a conversation, "
            "separated by \"%s\"",
            file, (long long)number, count, separator);
    TRY(mem_grow(&corpus->utterance, &corpus->capacity, corpus->utterances + 1, sizeof *corpus->utterance));
    TRY(mem_grow(&corpus->pool, &corpus->pool_capacity, corpus->used + 3 * text.size + 1, 1));
    Utterance *utterance = &corpus->utterance[corpus->utterances++];
    *utterance = (Utterance){.id = field[0], .at = corpus->used};
    put_text(corpus, (const unsigned char *)text.text, text.size);
    utterance->size = corpus->used - utterance->at;
    corpus->counts.lines++;
    return OK;
}

static int by_id(const void *a, const void *b) {
    const Slice *x = &((const Utterance *)a)->id, *y = &((const Utterance *)b)->id;
    int order = memcmp(x->text, y->text, x->size < y->size ? x->size : y->size);
    return order ? order : (x->size > y->size) - (x->size < y->size);
}

static const Utterance *find(Corpus *corpus, Slice id) {
    Utterance key = {.id = id};
    const Utterance *found = corpus->utterances ? bsearch(&key, corpus->utterance, corpus->utterances,
                                                          sizeof *corpus->utterance, by_id)
                                                : NULL;
    corpus->counts.missing += !found;
    if (found && found->size == 0) corpus->counts.empty++;
    return found && found->size ? found : NULL;
}

/* Parses ['L194', 'L195', 'L196']. */
static Status take_conversation(Corpus *corpus, const char *file, int64_t number, const Slice *field,
                                int count) {
    const char *at = field[count - 1].text, *end = at + field[count - 1].size;
    if (count != 4 || at == end || *at != '[' || end[-1] != ']')
        return FAILED("%s: line %lld: expected 4 fields, the last of them ['L1', 'L2', ...]", file,
                      (long long)number);
    const Utterance *before = NULL;
    corpus->counts.conversations++;
    while ((at = memchr(at, '\'', (size_t)(end - at)))) {
        at++;
        const char *stop = memchr(at, '\'', (size_t)(end - at));
        if (!stop)
            return FAILED("%s: line %lld: an utterance id has no closing quote", file, (long long)number);
        const Utterance *now = find(corpus, (Slice){at, (size_t)(stop - at)});
        if (before && now)
            TRY(corpus->func(corpus->context, corpus->pool + before->at, before->size, corpus->pool + now->at,
                             now->size));
        before = now;
        at = stop + 1;
    }
    return OK;
}

/* Only lines of movie_conversations.txt end in a list, so the first line identifies the file. */
static bool has_conversations(const Source *source) {
    const char *text = (const char *)source->data;
    const char *newline = memchr(text, '\n', source->size);
    Slice field[FIELDS];
    int count = cut_line(text, newline ? (size_t)(newline - text) : source->size, field);
    return count == 4 && field[3].size && field[3].text[0] == '[';
}

Status cornell_read(const char *const *paths, int count, CornellPair func, void *context,
                    CornellCounts *ret_counts) {
    CLEANUP(corpus_done) Corpus corpus = {.func = func, .context = context};
    TRY(mem_new((size_t)count, sizeof *corpus.source, &corpus.source));
    bool lines = false, conversations = false;
    for (; corpus.count < count; corpus.count++)
        TRY(source_init_owned(&corpus.source[corpus.count], paths[corpus.count], SOURCE_GZ_LIMIT));
    for (int i = 0; i < count; i++) {
        bool has_list = has_conversations(&corpus.source[i]);
        conversations |= has_list;
        lines |= !has_list;
        if (!has_list) TRY(each_line(&corpus, &corpus.source[i], take_utterance));
    }
    if (!lines || !conversations)
        return USAGE("%s: the corpus also needs movie_%s.txt; pass both files", paths[0],
                     lines ? "conversations" : "lines");
    if (corpus.utterances) qsort(corpus.utterance, corpus.utterances, sizeof *corpus.utterance, by_id);
    for (int i = 0; i < count; i++)
        if (has_conversations(&corpus.source[i]))
            TRY(each_line(&corpus, &corpus.source[i], take_conversation));
    *ret_counts = corpus.counts;
    return OK;
}
