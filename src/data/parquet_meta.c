/* Reads a Parquet file's footer: the schema, and where the values of each column are in each row group. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/memory.h"
#include "data/parquet_internal.h"
#include "tokenizer/tokenizer.h"

enum { MAGIC = 4, TAIL = 8, FOOTER_LIMIT = 1 << 28, SCHEMA_DEPTH = 64 };

void parquet_file_done(ParquetFile *file) {
    for (size_t i = 0; i < file->nodes; i++) free(file->node[i].name);
    free(file->node);
    free(file->leaf);
    free(file->rows);
    free(file->chunk);
    free(file->path);
    fd_closep(&file->fd);
}

Status parquet_read(const ParquetFile *file, int64_t at, size_t size, void *to) {
    for (size_t done = 0; done < size;) {
        ssize_t got = pread(file->fd, (char *)to + done, size - done, (off_t)(at + (int64_t)done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return FAILED("%s: cannot read: %s", file->path, strerror(errno));
        if (got == 0) return FAILED("%s: was truncated while in use", file->path);
        done += (size_t)got;
    }
    return OK;
}

static Status damaged(const ParquetFile *file, const char *what) {
    return FAILED("%s: not a valid Parquet table: %s", file->path, what);
}

/* ---- the schema ---- */

/* What converted_type says, the older form of logicalType. */
static ParquetMeaning meaning_of_converted(int64_t type) {
    enum { UTF8 = 0, MAP = 1, LIST = 3, ENUM = 4, DECIMAL = 5, UINT_8 = 11, UINT_64 = 14, JSON = 19 };
    if (type == UTF8 || type == ENUM || type == JSON) return MEANING_TEXT;
    if (type == MAP || type == MAP + 1) return MEANING_MAP;
    if (type == LIST) return MEANING_LIST;
    if (type == DECIMAL) return MEANING_DECIMAL;
    return type >= UINT_8 && type <= UINT_64 ? MEANING_UNSIGNED : MEANING_NONE;
}

static bool int_is_unsigned(Thrift *in) {
    bool is_signed = true;
    for (ThriftField field = {0}; thrift_next(in, &field);)
        if (field.id == 2)
            is_signed = thrift_bool(in, field.type);
        else
            thrift_skip(in, field.type);
    return !is_signed;
}

static ParquetMeaning logical_meaning(Thrift *in, ThriftType type) {
    enum { STRING = 1, MAP = 2, LIST = 3, ENUM = 4, DECIMAL = 5, INTEGER = 10, JSON = 12 };
    ParquetMeaning meaning = MEANING_NONE;
    if (type != THRIFT_STRUCT) in->failed = true;
    for (ThriftField field = {0}; thrift_next(in, &field);) {
        int id = field.id;
        if (id == INTEGER && field.type == THRIFT_STRUCT) {
            if (int_is_unsigned(in)) meaning = MEANING_UNSIGNED;
            continue;
        }
        if (id == STRING || id == ENUM || id == JSON) meaning = MEANING_TEXT;
        if (id == MAP) meaning = MEANING_MAP;
        if (id == LIST) meaning = MEANING_LIST;
        if (id == DECIMAL) meaning = MEANING_DECIMAL;
        thrift_skip(in, field.type);
    }
    return meaning;
}

static Status take_name(ParquetFile *file, ParquetNode *node, const char *text, size_t size) {
    size_t bad;
    if (text_invalid_utf8(text, size, &bad) || memchr(text, 0, size))
        return damaged(file, "the name of a column is not text");
    free(node->name);
    node->name = NULL;
    return str_format(&node->name, "%.*s", (int)size, text);
}

static Status read_node(ParquetFile *file, Thrift *in) {
    TRY(mem_grow(&file->node, &file->node_capacity, file->nodes + 1, sizeof *file->node));
    ParquetNode *node = &file->node[file->nodes++];
    *node = (ParquetNode){.type = PARQUET_GROUP};
    for (ThriftField field = {0}; thrift_next(in, &field);) {
        const char *text;
        size_t size;
        int64_t number = 0;
        bool is_number = field.id == 1 || field.id == 3 || field.id == 5 || field.id == 6;
        if (is_number) number = thrift_int(in, field.type);
        if (field.id == 1 && (number < 0 || number > PARQUET_FIXED))
            return damaged(file, "a column has an unknown type");
        if (field.id == 1) node->type = (ParquetType)number;
        if (field.id == 3) node->optional = number == 1, node->repeated = number == 2;
        if (field.id == 5 && (number < 0 || number > INT32_MAX)) return damaged(file, "a schema with gaps");
        if (field.id == 5) node->children = (size_t)number;
        if (field.id == 6 && node->meaning == MEANING_NONE) node->meaning = meaning_of_converted(number);
        if (field.id == 4) {
            text = thrift_text(in, field.type, &size);
            TRY(take_name(file, node, text, size));
        } else if (field.id == 10) {
            ParquetMeaning meaning = logical_meaning(in, field.type);
            if (meaning != MEANING_NONE) node->meaning = meaning;
        } else if (!is_number) {
            thrift_skip(in, field.type);
        }
    }
    if (!node->name) TRY(str_dup("", &node->name));
    if (node->children) node->type = PARQUET_GROUP;
    return in->failed ? damaged(file, "its schema is cut off") : OK;
}

/* Sets levels and sizes of the node at *at and its descendants; *at moves past them. */
static Status settle(ParquetFile *file, size_t *at, int def, int rep, int depth) {
    if (*at == file->nodes || depth == SCHEMA_DEPTH) return damaged(file, "a schema with gaps");
    size_t self = (*at)++;
    ParquetNode *node = &file->node[self];
    node->max_def = def += node->optional || node->repeated;
    node->max_rep = rep += node->repeated;
    node->leaf = file->leaves;
    for (size_t i = 0; i < node->children; i++) TRY(settle(file, at, def, rep, depth + 1));
    if (node->type != PARQUET_GROUP) {
        TRY(mem_grow(&file->leaf, &file->leaf_capacity, file->leaves + 1, sizeof *file->leaf));
        file->leaf[file->leaves++] = self;
    }
    node->leaves = file->leaves - node->leaf;
    node->nodes = *at - self;
    if (self && node->leaves == 0) return damaged(file, "a column without values");
    return OK;
}

static Status read_schema(ParquetFile *file, Thrift *in, ThriftType type) {
    ThriftType element;
    size_t at = 0, count = thrift_list(in, type, &element);
    if (element != THRIFT_STRUCT || count == 0 || file->nodes) return damaged(file, "it has no schema");
    for (size_t i = 0; i < count; i++) TRY(read_node(file, in));
    file->node[0].optional = file->node[0].repeated = false;
    TRY(settle(file, &at, 0, 0, 0));
    return at == file->nodes ? OK : damaged(file, "a schema with gaps");
}

/* ---- row groups ---- */

static void read_place(Thrift *in, ThriftType type, ParquetChunk *chunk, int64_t *ret_type) {
    int64_t data = 0, dictionary = 0;
    if (type != THRIFT_STRUCT) in->failed = true;
    for (ThriftField field = {0}; thrift_next(in, &field);) {
        switch (field.id) {
        case 1: *ret_type = thrift_int(in, field.type); break;
        case 4: chunk->codec = (int)thrift_int(in, field.type); break;
        case 5: chunk->values = thrift_int(in, field.type); break;
        case 7: chunk->size = thrift_int(in, field.type); break;
        case 9: data = thrift_int(in, field.type); break;
        case 11: dictionary = thrift_int(in, field.type); break;
        default: thrift_skip(in, field.type);
        }
    }
    chunk->at = dictionary > 0 && dictionary < data ? dictionary : data;
}

static const ParquetNode *leaf_node(const ParquetFile *file, size_t leaf) {
    return &file->node[file->leaf[leaf]];
}

static Status read_chunk(ParquetFile *file, Thrift *in, size_t leaf) {
    ParquetChunk chunk = {0};
    int64_t type = -1;
    for (ThriftField field = {0}; thrift_next(in, &field);) {
        if (field.id == 3)
            read_place(in, field.type, &chunk, &type);
        else if (field.id == 1)
            return FAILED("%s: the values of column \"%s\" are in another file, which weft does not read",
                          file->path, leaf_node(file, leaf)->name);
        else if (field.id == 8 || field.id == 9)
            return FAILED("%s: column \"%s\" is encrypted, which weft does not read", file->path,
                          leaf_node(file, leaf)->name);
        else
            thrift_skip(in, field.type);
    }
    if (in->failed || type != (int64_t)leaf_node(file, leaf)->type || chunk.values < 0 ||
        (chunk.values && chunk.at < MAGIC) || chunk.size < 0 || chunk.at > file->size ||
        chunk.size > file->size - chunk.at)
        return damaged(file, "the place of a column's values is outside the file");
    TRY(mem_grow(&file->chunk, &file->chunk_capacity, file->chunks + 1, sizeof *file->chunk));
    file->chunk[file->chunks++] = chunk;
    return OK;
}

static Status read_chunks(ParquetFile *file, Thrift *in, ThriftType type) {
    ThriftType element;
    size_t count = thrift_list(in, type, &element);
    if (count != file->leaves || element != THRIFT_STRUCT)
        return damaged(file, "a row group lacks columns of the schema");
    for (size_t i = 0; i < count; i++) TRY(read_chunk(file, in, i));
    return OK;
}

static Status read_group(ParquetFile *file, Thrift *in) {
    int64_t rows = -1;
    size_t before = file->chunks;
    for (ThriftField field = {0}; thrift_next(in, &field);) {
        if (field.id == 1)
            TRY(read_chunks(file, in, field.type));
        else if (field.id == 3)
            rows = thrift_int(in, field.type);
        else
            thrift_skip(in, field.type);
    }
    if (in->failed || rows < 0 || file->chunks != before + file->leaves)
        return damaged(file, "a row group is incomplete");
    TRY(mem_grow(&file->rows, &file->group_capacity, file->groups + 1, sizeof *file->rows));
    file->rows[file->groups++] = rows;
    return OK;
}

static Status read_groups(ParquetFile *file, Thrift *in, ThriftType type) {
    ThriftType element;
    size_t count = thrift_list(in, type, &element);
    if (!file->nodes || (count && element != THRIFT_STRUCT) || file->groups)
        return damaged(file, "its row groups are not where they belong");
    for (size_t i = 0; i < count; i++) TRY(read_group(file, in));
    return OK;
}

/* ---- the footer ---- */

static Status parse_footer(ParquetFile *file, const unsigned char *footer, size_t size) {
    Thrift in = {.at = footer, .end = footer + size};
    for (ThriftField field = {0}; thrift_next(&in, &field);) {
        if (field.id == 2)
            TRY(read_schema(file, &in, field.type));
        else if (field.id == 4)
            TRY(read_groups(file, &in, field.type));
        else if (field.id == 8)
            return FAILED("%s: an encrypted Parquet table, which weft does not read", file->path);
        else
            thrift_skip(&in, field.type);
    }
    return in.failed || !file->nodes ? damaged(file, "its footer is cut off") : OK;
}

static Status open_file(ParquetFile *file) {
    struct stat st;
    file->fd = open(file->path, O_RDONLY | O_CLOEXEC);
    if (file->fd < 0) return FAILED("%s: cannot open: %s", file->path, strerror(errno));
    if (fstat(file->fd, &st) != 0) return FAILED("%s: cannot stat: %s", file->path, strerror(errno));
    if (!S_ISREG(st.st_mode)) return FAILED("%s: expected a regular file", file->path);
    file->size = (int64_t)st.st_size;
    return OK;
}

Status parquet_file_open(ParquetFile *ret_file, const char *path) {
    CLEANUP(parquet_file_done) ParquetFile file = {.fd = -1};
    CLEANUP(mem_freep) unsigned char *footer = NULL;
    unsigned char tail[TAIL];
    TRY(str_dup(path, &file.path));
    TRY(open_file(&file));
    if (file.size < MAGIC + TAIL) return damaged(&file, "it is too short");
    TRY(parquet_read(&file, file.size - TAIL, TAIL, tail));
    if (!memcmp(tail + 4, "PARE", MAGIC))
        return FAILED("%s: an encrypted Parquet table, which weft does not read", path);
    if (memcmp(tail + 4, "PAR1", MAGIC)) return damaged(&file, "it has no footer; is it complete?");
    int64_t size = tail[0] | tail[1] << 8 | tail[2] << 16 | (int64_t)tail[3] << 24;
    if (size > FOOTER_LIMIT || size > file.size - MAGIC - TAIL)
        return damaged(&file, "its footer is too long");
    TRY(mem_new((size_t)size + 1, 1, &footer));
    TRY(parquet_read(&file, file.size - TAIL - size, (size_t)size, footer));
    TRY(parse_footer(&file, footer, (size_t)size));
    *ret_file = file;
    file = (ParquetFile){.fd = -1};
    return OK;
}
