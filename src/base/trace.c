/* Recording: each span claims the next slot of a fixed array with one atomic addition. Its name is stored
 * last, so a reader never sees a partial span.
 *
 * Packed bytes: a PackHeader, the label, the names (NUL-terminated strings), then the spans. All ranks run
 * the same binary, so numbers are in native format; lengths are checked nevertheless.
 *
 * Writing: spans of a lane are sorted by start, longer first. Viewers show nested spans of a row as a call
 * stack and cannot show other overlaps, so a span goes to the first row of its lane in which it nests. */
#include "base/trace.h"

#include <stdatomic.h>
#include <string.h>

#include "base/fs.h"
#include "base/memory.h"

typedef struct Span {
    _Atomic(const TraceName *) name;
    int64_t start, end, number[TRACE_NUMBERS];
    TraceLane lane;
} Span;

struct Trace {
    Span *span;
    size_t capacity;
    atomic_size_t taken; /* can exceed the capacity */
    int64_t origin;
};

Status trace_new(Trace **ret_trace, size_t capacity) {
    CLEANUP(trace_freep) Trace *trace = NULL;
    TRY(mem_new(1, sizeof *trace, &trace));
    TRY(mem_new(capacity, sizeof *trace->span, &trace->span));
    trace->capacity = capacity;
    trace_start(trace);
    return MOVE(ret_trace, trace);
}

void trace_free(Trace *trace) {
    if (!trace) return;
    free(trace->span);
    free(trace);
}

void trace_start(Trace *trace) {
    if (trace) trace->origin = trace_now();
}

void trace_add(Trace *trace, TraceLane lane, const TraceName *name, int64_t start_ns, int64_t end_ns,
               int64_t first, int64_t second) {
    trace_add_numbers(trace, lane, name, start_ns, end_ns, (int64_t[TRACE_NUMBERS]){first, second});
}

void trace_add_numbers(Trace *trace, TraceLane lane, const TraceName *name, int64_t start_ns, int64_t end_ns,
                       const int64_t number[TRACE_NUMBERS]) {
    if (!trace) return;
    size_t at = atomic_fetch_add_explicit(&trace->taken, 1, memory_order_relaxed);
    if (at >= trace->capacity) return;
    Span *span = &trace->span[at];
    span->start = start_ns;
    span->end = end_ns < start_ns ? start_ns : end_ns;
    for (int i = 0; i < TRACE_NUMBERS; i++) span->number[i] = number[i];
    span->lane = lane;
    atomic_store_explicit(&span->name, name, memory_order_release);
}

size_t trace_count(const Trace *trace) {
    size_t taken = atomic_load_explicit(&trace->taken, memory_order_relaxed);
    return taken < trace->capacity ? taken : trace->capacity;
}

/* ---- packing ---- */

typedef struct PackHeader {
    char magic[8];
    int32_t rank, names;
    uint64_t spans, lost;
    uint64_t text; /* bytes of label and names */
} PackHeader;

typedef struct PackSpan {
    int64_t start, end, number[TRACE_NUMBERS];
    int32_t name, lane;
} PackSpan;

static const char pack_magic[8] = "wefttrc";

/* Strings per name: name, category, color, numbered or not, labels of the numbers. */
enum { TEXTS = 4 + TRACE_NUMBERS };

static void name_texts(const TraceName *name, const char *text[TEXTS]) {
    const char *all[TEXTS] = {name->name, name->category, name->color, name->numbered ? "1" : NULL};
    for (int i = 0; i < TRACE_NUMBERS; i++) all[4 + i] = name->number[i];
    for (int i = 0; i < TEXTS; i++) text[i] = all[i] ? all[i] : "";
}

static size_t name_size(const TraceName *name) {
    const char *text[TEXTS];
    name_texts(name, text);
    size_t size = TEXTS;
    for (int i = 0; i < TEXTS; i++) size += strlen(text[i]);
    return size;
}

static char *name_put(const TraceName *name, char *to) {
    const char *text[TEXTS];
    name_texts(name, text);
    for (int i = 0; i < TEXTS; i++) to = stpcpy(to, text[i]) + 1;
    return to;
}

typedef struct NameList {
    const TraceName **name;
    size_t count, capacity;
} NameList;

static void name_list_done(NameList *list) {
    free(list->name);
}

/* There are few names, and recent ones are the most likely. */
static Status name_number(NameList *list, const TraceName *name, int32_t *ret_number) {
    for (size_t i = list->count; i-- > 0;)
        if (list->name[i] == name) {
            *ret_number = (int32_t)i;
            return OK;
        }
    TRY(mem_grow(&list->name, &list->capacity, list->count + 1, sizeof *list->name));
    *ret_number = (int32_t)list->count;
    list->name[list->count++] = name;
    return OK;
}

static Status pack_spans(const Trace *trace, PackSpan *to, NameList *names, size_t *ret_count) {
    size_t count = 0, taken = trace_count(trace);
    for (size_t i = 0; i < taken; i++) {
        const Span *span = &trace->span[i];
        const TraceName *name = atomic_load_explicit(&span->name, memory_order_acquire);
        if (!name) continue;
        PackSpan *packed = &to[count++];
        *packed = (PackSpan){.start = span->start - trace->origin,
                             .end = span->end - trace->origin,
                             .number = {span->number[0], span->number[1], span->number[2]},
                             .lane = (int32_t)span->lane};
        TRY(name_number(names, name, &packed->name));
    }
    *ret_count = count;
    return OK;
}

Status trace_pack(const Trace *trace, int rank, const char *label, void **ret_bytes, size_t *ret_size) {
    CLEANUP(mem_freep) PackSpan *spans = NULL;
    CLEANUP(name_list_done) NameList names = {0};
    size_t count = 0, taken = atomic_load_explicit(&trace->taken, memory_order_relaxed);
    TRY(mem_new(trace_count(trace) + 1, sizeof *spans, &spans));
    TRY(pack_spans(trace, spans, &names, &count));
    PackHeader head = {
        .rank = rank, .names = (int32_t)names.count, .spans = count, .text = strlen(label) + 1};
    memcpy(head.magic, pack_magic, sizeof head.magic);
    head.lost = taken > trace->capacity ? taken - trace->capacity : 0;
    for (size_t i = 0; i < names.count; i++) head.text += name_size(names.name[i]);
    size_t size = sizeof head + head.text + count * sizeof *spans;
    char *bytes = NULL;
    TRY(mem_new(1, size, &bytes));
    memcpy(bytes, &head, sizeof head);
    char *at = stpcpy(bytes + sizeof head, label) + 1;
    for (size_t i = 0; i < names.count; i++) at = name_put(names.name[i], at);
    memcpy(at, spans, count * sizeof *spans);
    *ret_bytes = bytes;
    *ret_size = size;
    return OK;
}

/* ---- unpacking ---- */

typedef struct Unpacked {
    PackHeader head;
    const char *label;
    const char *(*name)[TEXTS];
    PackSpan *span;
} Unpacked;

static void unpacked_done(Unpacked *unpacked) {
    free(unpacked->name);
    free(unpacked->span);
}

static Status damaged(int which) {
    return FAILED("internal: the packed trace of rank %d is malformed", which);
}

/* The next string between *at and end; NULL if there is no complete one. */
static const char *next_text(const char **at, const char *end) {
    const char *text = *at, *nul = text < end ? memchr(text, 0, (size_t)(end - text)) : NULL;
    if (!nul) return NULL;
    *at = nul + 1;
    return text;
}

static int compare_spans(const void *a, const void *b) {
    const PackSpan *x = a, *y = b;
    if (x->lane != y->lane) return x->lane < y->lane ? -1 : 1;
    if (x->start != y->start) return x->start < y->start ? -1 : 1;
    return (x->end < y->end) - (x->end > y->end);
}

static bool span_is_sound(const PackSpan *span, int names) {
    const int64_t most = INT64_MAX / 2;
    return span->name >= 0 && span->name < names && span->lane >= 0 && span->lane < TRACE_LANES &&
           span->start >= -most && span->end <= most && span->start <= span->end;
}

static Status unpack(Unpacked *ret_unpacked, const char *bytes, size_t size, int which) {
    CLEANUP(unpacked_done) Unpacked u = {0};
    if (size < sizeof u.head) return damaged(which);
    memcpy(&u.head, bytes, sizeof u.head);
    size_t rest = size - sizeof u.head;
    if (memcmp(u.head.magic, pack_magic, sizeof pack_magic) || u.head.text > rest || u.head.names < 0 ||
        (rest - u.head.text) / sizeof *u.span != u.head.spans || (rest - u.head.text) % sizeof *u.span)
        return damaged(which);
    const char *at = bytes + sizeof u.head, *end = at + u.head.text;
    if (!(u.label = next_text(&at, end)) || (size_t)u.head.names > u.head.text / TEXTS) return damaged(which);
    TRY(mem_new((size_t)u.head.names + 1, sizeof *u.name, &u.name));
    for (size_t i = 0; i < (size_t)u.head.names * TEXTS; i++)
        if (!(u.name[i / TEXTS][i % TEXTS] = next_text(&at, end))) return damaged(which);
    TRY(mem_new(u.head.spans + 1, sizeof *u.span, &u.span));
    memcpy(u.span, end, u.head.spans * sizeof *u.span);
    for (size_t i = 0; i < u.head.spans; i++)
        if (!span_is_sound(&u.span[i], u.head.names)) return damaged(which);
    qsort(u.span, u.head.spans, sizeof *u.span, compare_spans);
    return MOVE(ret_unpacked, u);
}

/* ---- writing ---- */

static Status print_text(FileWriter *out, const char *text) {
    TRY(file_write(out, "\"", 1));
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            TRY(file_print(out, "\\%c", c));
        else if (c < 0x20)
            TRY(file_print(out, "\\u%04x", c));
        else
            TRY(file_write(out, text, 1));
    }
    return file_write(out, "\"", 1);
}

/* The JSON array being written. */
typedef struct Sheet {
    FileWriter *out;
    bool begun;
    uint64_t lost;
} Sheet;

/* Begins the next record. */
static Status next_record(Sheet *sheet, const char *phase, int pid, int tid) {
    const char *comma = sheet->begun ? "," : "";
    sheet->begun = true;
    return file_print(sheet->out, "%s\n{\"ph\":\"%s\",\"pid\":%d,\"tid\":%d,\"name\":", comma, phase, pid,
                      tid);
}

/* Microseconds with three decimals. */
static Status print_time(FileWriter *out, const char *key, int64_t ns) {
    const char *sign = ns < 0 ? "-" : "";
    uint64_t size = ns < 0 ? 0 - (uint64_t)ns : (uint64_t)ns;
    return file_print(out, ",\"%s\":%s%llu.%03u", key, sign, (unsigned long long)(size / 1000),
                      (unsigned)(size % 1000));
}

/* Thread ids: lane * LANE_ROWS + row, so compute rows sort above communication rows. */
enum { LANE_ROWS = 1000 };

static Status print_numbers(FileWriter *out, const char *const *text, const PackSpan *span) {
    const char *comma = "";
    TRY(file_print(out, ",\"args\":{"));
    for (int i = 0; i < TRACE_NUMBERS; i++) {
        if (!*text[i]) continue;
        TRY(file_print(out, "%s", comma));
        TRY(print_text(out, text[i]));
        TRY(file_print(out, ":%lld", (long long)span->number[i]));
        comma = ",";
    }
    return file_print(out, "}");
}

static Status print_member(FileWriter *out, const char *key, const char *text) {
    if (!*text) return OK;
    TRY(file_print(out, ",\"%s\":", key));
    return print_text(out, text);
}

static Status print_span(Sheet *sheet, const Unpacked *u, const PackSpan *span, int row) {
    FileWriter *out = sheet->out;
    const char *const *text = u->name[span->name];
    bool numbered = *text[3];
    char label[128];
    int used = snprintf(label, sizeof label, "%s", text[0]);
    if (numbered && used < (int)sizeof label)
        snprintf(label + used, sizeof label - (size_t)used, "%lld", (long long)span->number[0]);
    TRY(next_record(sheet, "X", u->head.rank, span->lane * LANE_ROWS + row));
    TRY(print_text(out, label));
    TRY(print_member(out, "cat", text[1]));
    TRY(print_member(out, "cname", text[2]));
    TRY(print_time(out, "ts", span->start));
    TRY(print_time(out, "dur", span->end - span->start));
    TRY(print_numbers(out, text + 4, span));
    return file_print(out, "}");
}

/* Name and sort index of a process or thread. */
static Status print_title(Sheet *sheet, const char *what, int pid, int tid, const char *title) {
    TRY(next_record(sheet, "M", pid, tid));
    TRY(file_print(sheet->out, "\"%s_name\",\"args\":{\"name\":", what));
    TRY(print_text(sheet->out, title));
    TRY(file_print(sheet->out, "}}"));
    TRY(next_record(sheet, "M", pid, tid));
    return file_print(sheet->out, "\"%s_sort_index\",\"args\":{\"sort_index\":%d}}", what,
                      strcmp(what, "process") ? tid : pid);
}

/* Open spans of a row, outermost first; each ends no later than its parent. */
typedef struct Row {
    int64_t *end;
    size_t depth, capacity;
} Row;

typedef struct Rows {
    Row row[LANE_ROWS];
    int count;
} Rows;

static void rows_freep(Rows **rows) {
    for (int i = 0; *rows && i < (*rows)->count; i++) free((*rows)->row[i].end);
    free(*rows);
}

static Status rows_place(Rows *rows, const PackSpan *span, int *ret_row) {
    for (int i = 0; i < LANE_ROWS; i++) {
        Row *row = &rows->row[i];
        while (row->depth && row->end[row->depth - 1] <= span->start) row->depth--;
        /* The last row takes the remaining spans. */
        if (row->depth && row->end[row->depth - 1] < span->end && i + 1 < LANE_ROWS) continue;
        if (i == rows->count) rows->count++;
        TRY(mem_grow(&row->end, &row->capacity, row->depth + 1, sizeof *row->end));
        row->end[row->depth++] = span->end;
        *ret_row = i;
        return OK;
    }
    return OK;
}

static Status print_lane(Sheet *sheet, const Unpacked *u, int lane, size_t *at) {
    static const char *const titles[TRACE_LANES] = {"compute", "comm"};
    CLEANUP(rows_freep) Rows *rows = NULL;
    TRY(mem_new(1, sizeof *rows, &rows));
    for (; *at < u->head.spans && u->span[*at].lane == lane; ++*at) {
        int row = 0;
        TRY(rows_place(rows, &u->span[*at], &row));
        TRY(print_span(sheet, u, &u->span[*at], row));
    }
    for (int i = 0; i < rows->count; i++) {
        char title[32];
        snprintf(title, sizeof title, "%s %d", titles[lane], i + 1);
        if (i == 0) snprintf(title, sizeof title, "%s", titles[lane]);
        TRY(print_title(sheet, "thread", u->head.rank, lane * LANE_ROWS + i, title));
    }
    return OK;
}

static Status print_rank(Sheet *sheet, const void *bytes, size_t size, int which) {
    CLEANUP(unpacked_done) Unpacked u = {0};
    TRY(unpack(&u, bytes, size, which));
    TRY(print_title(sheet, "process", u.head.rank, 0, u.label));
    size_t at = 0;
    for (int lane = 0; lane < TRACE_LANES; lane++) TRY(print_lane(sheet, &u, lane, &at));
    sheet->lost += u.head.lost;
    return OK;
}

Status trace_write(const char *path, const void *const *packed, const size_t *sizes, int count) {
    CLEANUP(file_writer_freep) FileWriter *out = NULL;
    TRY(file_writer_new(&out, path));
    Sheet sheet = {.out = out};
    TRY(file_print(out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":["));
    for (int i = 0; i < count; i++) TRY(print_rank(&sheet, packed[i], sizes[i], i));
    TRY(file_print(out, "\n],\"otherData\":{\"spans_lost\":%llu}}\n", (unsigned long long)sheet.lost));
    return file_commit(out);
}
