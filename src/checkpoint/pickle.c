/* The machine has a stack of values and a memo, in which instructions store values and find them again. */
#include "checkpoint/pickle.h"

#include <string.h>

#include "base/memory.h"

enum { MARK = UINT32_MAX, MOST_MEMO = 1 << 24 };

/* Instructions, by their bytes. */
enum {
    OP_MARK = '(',
    OP_STOP = '.',
    OP_POP = '0',
    OP_POP_MARK = '1',
    OP_BINFLOAT = 'G',
    OP_BININT = 'J',
    OP_BININT1 = 'K',
    OP_BININT2 = 'M',
    OP_NONE = 'N',
    OP_BINPERSID = 'Q',
    OP_REDUCE = 'R',
    OP_BINSTRING = 'T',
    OP_SHORT_BINSTRING = 'U',
    OP_BINUNICODE = 'X',
    OP_EMPTY_LIST = ']',
    OP_APPEND = 'a',
    OP_BUILD = 'b',
    OP_GLOBAL = 'c',
    OP_APPENDS = 'e',
    OP_BINGET = 'h',
    OP_LONG_BINGET = 'j',
    OP_LIST = 'l',
    OP_BINPUT = 'q',
    OP_LONG_BINPUT = 'r',
    OP_SETITEM = 's',
    OP_TUPLE = 't',
    OP_EMPTY_TUPLE = ')',
    OP_SETITEMS = 'u',
    OP_EMPTY_DICT = '}',
    OP_PROTO = 0x80,
    OP_TUPLE1 = 0x85,
    OP_TUPLE2 = 0x86,
    OP_TUPLE3 = 0x87,
    OP_NEWTRUE = 0x88,
    OP_NEWFALSE = 0x89,
    OP_LONG1 = 0x8a,
    OP_SHORT_BINUNICODE = 0x8c,
    OP_STACK_GLOBAL = 0x93,
    OP_MEMOIZE = 0x94,
    OP_FRAME = 0x95,
};

typedef struct Machine {
    Pickle *pickle;
    const unsigned char *data;
    size_t at, size;
    uint32_t *stack;
    size_t depth, stack_capacity;
    uint32_t *memo; /* 1 + the value; 0: none */
    size_t memos, memo_capacity;
} Machine;

static void machine_done(Machine *m) {
    free(m->stack);
    free(m->memo);
}

void pickle_done(Pickle *pickle) {
    for (size_t i = 0; i < pickle->count; i++) {
        if (pickle->value[i].kind == PICKLE_GLOBAL) free((char *)(uintptr_t)pickle->value[i].text);
        free(pickle->value[i].item);
    }
    free(pickle->value);
    *pickle = (Pickle){0};
}

static Status damaged(const Machine *m, const char *what) {
    return DAMAGED("%s: not a valid pickle: %s", m->pickle->path, what);
}

/* ---- values and the stack ---- */

static Status push(Machine *m, uint32_t value) {
    TRY(mem_grow(&m->stack, &m->stack_capacity, m->depth + 1, sizeof *m->stack));
    m->stack[m->depth++] = value;
    return OK;
}

static Status push_new(Machine *m, PickleValue value) {
    Pickle *pickle = m->pickle;
    TRY(mem_grow(&pickle->value, &pickle->capacity, pickle->count + 1, sizeof *pickle->value));
    pickle->value[pickle->count++] = value;
    return push(m, (uint32_t)(pickle->count - 1));
}

static Status push_integer(Machine *m, PickleKind kind, int64_t integer) {
    return push_new(m, (PickleValue){.kind = kind, .integer = integer});
}

static Status pop(Machine *m, uint32_t *ret_value) {
    if (m->depth == 0 || m->stack[m->depth - 1] == MARK) return damaged(m, "an instruction lacks its values");
    *ret_value = m->stack[--m->depth];
    return OK;
}

static Status add_item(Machine *m, uint32_t to, uint32_t item) {
    PickleValue *value = &m->pickle->value[to];
    TRY(mem_grow(&value->item, &value->capacity, value->count + 1, sizeof *value->item));
    value->item[value->count++] = item;
    return OK;
}

/* The depth of the stack above the last mark, which stays. */
static Status find_mark(const Machine *m, size_t *ret_above) {
    for (size_t i = m->depth; i > 0; i--) {
        if (m->stack[i - 1] != MARK) continue;
        *ret_above = i;
        return OK;
    }
    return damaged(m, "an instruction lacks its mark");
}

/* Replaces the values above `from` by a list of them. */
static Status make_list(Machine *m, size_t from, bool marked) {
    size_t above = from, count = m->depth - from;
    uint32_t list = 0;
    TRY(push_integer(m, PICKLE_LIST, 0));
    TRY(pop(m, &list));
    for (size_t i = 0; i < count; i++) TRY(add_item(m, list, m->stack[above + i]));
    m->depth = above - marked;
    return push(m, list);
}

static Status make_tuple(Machine *m, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (m->depth < count || m->stack[m->depth - 1 - i] == MARK)
            return damaged(m, "an instruction lacks its values");
    return make_list(m, m->depth - count, false);
}

/* Adds what is above the last mark, or the last `count` values, to the list or dictionary below. */
static Status add_above(Machine *m, PickleKind kind, size_t count) {
    size_t above = 0;
    bool marked = count == 0;
    if (marked)
        TRY(find_mark(m, &above));
    else if (m->depth > count)
        above = m->depth - count;
    size_t below = above - marked;
    if (above == 0 || below == 0 || m->stack[below - 1] == MARK)
        return damaged(m, "an instruction lacks its values");
    uint32_t to = m->stack[below - 1];
    if (m->pickle->value[to].kind != kind || (kind == PICKLE_DICT && (m->depth - above) % 2))
        return damaged(m, "values are added to another kind of value");
    for (size_t i = above; i < m->depth; i++) {
        if (m->stack[i] == MARK) return damaged(m, "a mark is not used");
        TRY(add_item(m, to, m->stack[i]));
    }
    m->depth = below;
    return OK;
}

/* ---- the program ---- */

/* A little-endian number of `bytes` bytes, with a sign if `is_signed`. */
static Status take_number(Machine *m, size_t bytes, bool is_signed, int64_t *ret_number) {
    uint64_t number = 0;
    if (bytes > 8) return damaged(m, "a number of more than 64 bits");
    if (bytes > m->size - m->at) return damaged(m, "it is truncated");
    for (size_t i = 0; i < bytes; i++) number |= (uint64_t)m->data[m->at++] << 8 * i;
    if (is_signed && bytes && bytes < 8 && number >> (8 * bytes - 1)) number |= UINT64_MAX << 8 * bytes;
    *ret_number = (int64_t)number;
    return OK;
}

static Status push_text(Machine *m, size_t length_bytes) {
    int64_t size = 0;
    TRY(take_number(m, length_bytes, false, &size));
    if ((uint64_t)size > m->size - m->at) return damaged(m, "it is truncated");
    const char *text = (const char *)m->data + m->at;
    m->at += (size_t)size;
    return push_new(m, (PickleValue){.kind = PICKLE_TEXT, .text = text, .size = (size_t)size});
}

static Status push_real(Machine *m) {
    uint64_t bits = 0;
    double real;
    if (m->size - m->at < sizeof bits) return damaged(m, "it is truncated");
    for (size_t i = 0; i < sizeof bits; i++) bits = bits << 8 | m->data[m->at++];
    memcpy(&real, &bits, sizeof real);
    return push_new(m, (PickleValue){.kind = PICKLE_REAL, .real = real});
}

static Status push_global(Machine *m, const char *module, size_t module_size, const char *name,
                          size_t name_size) {
    enum { SHOWN = 80 };
    CLEANUP(mem_freep) char *full = NULL;
    if (module_size > SHOWN || name_size > SHOWN) return damaged(m, "the name of a class is too long");
    TRY(str_format(&full, "%.*s %.*s", (int)module_size, module, (int)name_size, name));
    bool allowed = false;
    for (const char *const *one = m->pickle->allowed; *one; one++) allowed = allowed || !strcmp(*one, full);
    for (char *c = full; *c; c++)
        if ((unsigned char)*c < ' ' || (unsigned char)*c > '~') *c = '?';
    if (!allowed) {
        *strchr(full, ' ') = '.';
        return FAILED("%s: its pickle uses %s, which weft does not execute", m->pickle->path, full);
    }
    TRY(push_new(m, (PickleValue){.kind = PICKLE_GLOBAL, .text = full, .size = strlen(full)}));
    full = NULL;
    return OK;
}

/* Two lines: module and name. */
static Status take_global(Machine *m) {
    const char *line[2];
    size_t size[2];
    for (int i = 0; i < 2; i++) {
        line[i] = (const char *)m->data + m->at;
        const char *end = memchr(line[i], '\n', m->size - m->at);
        if (!end) return damaged(m, "it is truncated");
        size[i] = (size_t)(end - line[i]);
        m->at += size[i] + 1;
    }
    return push_global(m, line[0], size[0], line[1], size[1]);
}

static Status stack_global(Machine *m) {
    uint32_t name = 0, module = 0;
    TRY(pop(m, &name));
    TRY(pop(m, &module));
    PickleValue first = m->pickle->value[module], second = m->pickle->value[name];
    if (first.kind != PICKLE_TEXT || second.kind != PICKLE_TEXT) return damaged(m, "a class without a name");
    return push_global(m, first.text, first.size, second.text, second.size);
}

/* An ordered dictionary is a dictionary; other calls stay calls. */
static Status reduce(Machine *m) {
    uint32_t arguments = 0, function = 0, call = 0;
    TRY(pop(m, &arguments));
    TRY(pop(m, &function));
    const PickleValue *called = &m->pickle->value[function];
    if (called->kind != PICKLE_GLOBAL || m->pickle->value[arguments].kind != PICKLE_LIST)
        return damaged(m, "a call of what is no function");
    if (pickle_is(called, "collections OrderedDict")) {
        if (m->pickle->value[arguments].count) return damaged(m, "a dictionary is made of another value");
        return push_integer(m, PICKLE_DICT, 0);
    }
    TRY(push_integer(m, PICKLE_CALL, 0));
    call = m->stack[m->depth - 1];
    TRY(add_item(m, call, function));
    return add_item(m, call, arguments);
}

static Status persistent(Machine *m) {
    uint32_t id = 0;
    TRY(pop(m, &id));
    TRY(push_integer(m, PICKLE_PERSISTENT, 0));
    return add_item(m, m->stack[m->depth - 1], id);
}

static Status put_memo(Machine *m, int64_t at) {
    if (m->depth == 0 || m->stack[m->depth - 1] == MARK || at >= MOST_MEMO) return damaged(m, "its memo");
    TRY(mem_grow(&m->memo, &m->memo_capacity, (size_t)at + 1, sizeof *m->memo));
    m->memo[at] = 1 + m->stack[m->depth - 1];
    if ((size_t)at >= m->memos) m->memos = (size_t)at + 1;
    return OK;
}

static Status memo(Machine *m, size_t bytes, bool store) {
    int64_t at = 0;
    TRY(take_number(m, bytes, false, &at));
    if (store) return put_memo(m, at);
    if ((uint64_t)at >= m->memos || !m->memo[at]) return damaged(m, "its memo");
    return push(m, m->memo[at] - 1);
}

static Status integer(Machine *m, size_t bytes, bool is_signed) {
    int64_t number = 0;
    TRY(take_number(m, bytes, is_signed, &number));
    return push_integer(m, PICKLE_INT, number);
}

static Status skip(Machine *m, size_t bytes) {
    if (bytes > m->size - m->at) return damaged(m, "it is truncated");
    m->at += bytes;
    return OK;
}

static Status pop_marked(Machine *m) {
    size_t above = 0;
    TRY(find_mark(m, &above));
    m->depth = above - 1;
    return OK;
}

static Status make_marked(Machine *m) {
    size_t above = 0;
    TRY(find_mark(m, &above));
    return make_list(m, above, true);
}

static Status take_long(Machine *m) {
    int64_t bytes = 0;
    TRY(take_number(m, 1, false, &bytes));
    return integer(m, (size_t)bytes, true);
}

static Status execute(Machine *m, unsigned char op) {
    uint32_t value;
    switch (op) {
    case OP_PROTO: return skip(m, 1);
    case OP_FRAME: return skip(m, 8);
    case OP_MARK: return push(m, MARK);
    case OP_POP: return m->depth && m->stack[m->depth - 1] == MARK ? pop_marked(m) : pop(m, &value);
    case OP_POP_MARK: return pop_marked(m);
    case OP_NONE: return push_integer(m, PICKLE_NONE, 0);
    case OP_NEWTRUE:
    case OP_NEWFALSE: return push_integer(m, PICKLE_BOOL, op == OP_NEWTRUE);
    case OP_BININT: return integer(m, 4, true);
    case OP_BININT1: return integer(m, 1, false);
    case OP_BININT2: return integer(m, 2, false);
    case OP_LONG1: return take_long(m);
    case OP_BINFLOAT: return push_real(m);
    case OP_BINSTRING:
    case OP_BINUNICODE: return push_text(m, 4);
    case OP_SHORT_BINSTRING:
    case OP_SHORT_BINUNICODE: return push_text(m, 1);
    case OP_EMPTY_LIST:
    case OP_EMPTY_TUPLE: return push_integer(m, PICKLE_LIST, 0);
    case OP_EMPTY_DICT: return push_integer(m, PICKLE_DICT, 0);
    case OP_LIST:
    case OP_TUPLE: return make_marked(m);
    case OP_TUPLE1:
    case OP_TUPLE2:
    case OP_TUPLE3: return make_tuple(m, (size_t)(op - OP_TUPLE1 + 1));
    case OP_APPEND: return add_above(m, PICKLE_LIST, 1);
    case OP_APPENDS: return add_above(m, PICKLE_LIST, 0);
    case OP_SETITEM: return add_above(m, PICKLE_DICT, 2);
    case OP_SETITEMS: return add_above(m, PICKLE_DICT, 0);
    case OP_BUILD: return pop(m, &value); /* attributes, such as those of a state dict */
    case OP_GLOBAL: return take_global(m);
    case OP_STACK_GLOBAL: return stack_global(m);
    case OP_REDUCE: return reduce(m);
    case OP_BINPERSID: return persistent(m);
    case OP_BINPUT: return memo(m, 1, true);
    case OP_LONG_BINPUT: return memo(m, 4, true);
    case OP_BINGET: return memo(m, 1, false);
    case OP_LONG_BINGET: return memo(m, 4, false);
    case OP_MEMOIZE: return put_memo(m, (int64_t)m->memos);
    default:
        return FAILED("%s: its pickle has the instruction 0x%02x, which weft does not execute",
                      m->pickle->path, op);
    }
}

Status pickle_read(Pickle *pickle, const unsigned char *data, size_t size, size_t *at, uint32_t *ret_value) {
    CLEANUP(machine_done) Machine m = {.pickle = pickle, .data = data, .at = *at, .size = size};
    for (;;) {
        if (m.at >= m.size) return damaged(&m, "it is truncated");
        unsigned char op = m.data[m.at++];
        if (op == OP_STOP) break;
        if (pickle->count >= MARK - 1) return damaged(&m, "it has too many values");
        TRY(execute(&m, op));
    }
    TRY(pop(&m, ret_value));
    *at = m.at;
    return OK;
}

/* ---- the result ---- */

const PickleValue *pickle_at(const Pickle *pickle, uint32_t value) {
    return &pickle->value[value];
}

const PickleValue *pickle_item(const Pickle *pickle, const PickleValue *value, size_t i) {
    return value && i < value->count ? &pickle->value[value->item[i]] : NULL;
}

bool pickle_is(const PickleValue *value, const char *text) {
    return value && (value->kind == PICKLE_TEXT || value->kind == PICKLE_GLOBAL) &&
           value->size == strlen(text) && !memcmp(value->text, text, value->size);
}

const PickleValue *pickle_find(const Pickle *pickle, const PickleValue *dict, const char *key) {
    if (!dict || dict->kind != PICKLE_DICT) return NULL;
    for (size_t i = 0; i + 1 < dict->count; i += 2)
        if (pickle_is(pickle_item(pickle, dict, i), key)) return pickle_item(pickle, dict, i + 1);
    return NULL;
}
