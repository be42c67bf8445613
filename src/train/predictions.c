#include "train/predictions.h"

#include <math.h>
#include <string.h>

#include "base/fs.h"
#include "base/memory.h"

typedef struct RowFile {
    RowFormat format;
    FileWriter *writer; /* NULL: lines go to `put` */
    RowPut put;
    char **column; /* CSV: from the first row */
    size_t columns, capacity;
} RowFile;

RowFormat row_format_of(const char *path) {
    if (path_ends_with(path, ".jsonl") || path_ends_with(path, ".ndjson")) return ROW_FILE_JSON;
    if (path_ends_with(path, ".csv")) return ROW_FILE_CSV;
    return path_ends_with(path, ".npy") ? ROW_FILE_NPY : ROW_FILE_NONE;
}

Status predictions_init(Predictions *predictions, const Job *job, const char *path, RowPut put) {
    if (!job->first) return OK;
    TRY(mem_new(1, sizeof *predictions->file, &predictions->file));
    predictions->file->format = path ? row_format_of(path) : ROW_FILE_JSON;
    predictions->file->put = put;
    return path ? file_writer_new(&predictions->file->writer, path) : OK;
}

void predictions_done(Predictions *predictions) {
    RowFile *file = predictions->file;
    if (!file) return;
    for (size_t i = 0; i < file->columns; i++) free(file->column[i]);
    free(file->column);
    file_writer_free(file->writer);
    free(file);
    predictions->file = NULL;
}

Status predictions_commit(Predictions *predictions) {
    RowFile *file = predictions->file;
    if (!file) return OK;
    return file->writer ? file_commit(file->writer) : OK;
}

static Status put_text(RowFile *file, const char *text, size_t size) {
    return file->writer ? file_write(file->writer, text, size) : file->put(text, size);
}

/* ---- CSV ---- */

static Status add_column(RowFile *file, const char *object, const char *name) {
    char *column = NULL;
    TRY(mem_grow(&file->column, &file->capacity, file->columns + 1, sizeof *file->column));
    TRY(str_format(&column, "%s%s%s", object ? object : "", object ? "." : "", name));
    file->column[file->columns++] = column;
    return OK;
}

static Status find_columns(RowFile *file, json_t *row) {
    const char *name, *member;
    json_t *value, *inner;
    json_object_foreach(row, name, value) {
        if (!json_is_object(value)) TRY(add_column(file, NULL, name));
        json_object_foreach(value, member, inner) TRY(add_column(file, name, member));
    }
    return OK;
}

static Status put_cell(RowFile *file, const char *text, bool first) {
    if (!first) TRY(put_text(file, ",", 1));
    if (!text[strcspn(text, ",\"\r\n")]) return put_text(file, text, strlen(text));
    TRY(put_text(file, "\"", 1));
    for (const char *at = text; *at;) {
        size_t size = strcspn(at, "\"");
        TRY(put_text(file, at, size));
        at += size;
        if (*at) TRY(put_text(file, "\"\"", 2));
        at += *at != 0;
    }
    return put_text(file, "\"", 1);
}

static Status put_value(RowFile *file, const json_t *value, bool first) {
    CLEANUP(mem_freep) char *text = NULL;
    if (json_is_null(value)) return put_cell(file, "", first);
    if (json_is_string(value)) return put_cell(file, json_string_value(value), first);
    TRY(json_text(value, JSON_ENCODE_ANY, &text));
    return put_cell(file, text, first);
}

static Status put_cells(RowFile *file, json_t *row) {
    const char *name, *member;
    json_t *value, *inner;
    bool first = true;
    if (!file->columns) {
        TRY(find_columns(file, row));
        for (size_t i = 0; i < file->columns; i++) TRY(put_cell(file, file->column[i], i == 0));
        TRY(put_text(file, "\n", 1));
    }
    json_object_foreach(row, name, value) {
        if (!json_is_object(value)) TRY(put_value(file, value, first));
        json_object_foreach(value, member, inner) {
            TRY(put_value(file, inner, first));
            first = false;
        }
        first = false;
    }
    return put_text(file, "\n", 1);
}

/* ---- NumPy ---- */

/* Format 1.0: the header's size is a multiple of 64. */
static Status put_header(RowFile *file, int64_t rows, int64_t width) {
    enum { START = 10, SIZE = 128 };
    char header[SIZE + 1];
    memcpy(header, "\x93NUMPY\1\0\x76\0", START);
    int used = snprintf(header + START, SIZE + 1 - START,
                        "{'descr': '<f4', 'fortran_order': False, 'shape': (%lld, %lld), }", (long long)rows,
                        (long long)width);
    memset(header + START + used, ' ', (size_t)(SIZE - START - used));
    header[SIZE - 1] = '\n';
    return put_text(file, header, SIZE);
}

/* ---- rows ---- */

static Status begin_row(const char *key, json_t *value, json_t **ret_row) {
    CLEANUP(json_decrefp) json_t *row = json_object();
    TRY(json_put(row, key, value));
    return MOVE(ret_row, row);
}

Status predictions_row(Predictions *predictions, const Dataset *data, int64_t index, json_t **ret_row) {
    const json_t *id = dataset_id(data, index);
    predictions->rows++;
    *ret_row = NULL;
    if (!predictions->file) return OK;
    if (id) return begin_row("id", json_clone_deep(id), ret_row);
    return begin_row("row", json_integer((json_int_t)dataset_row(data, index)), ret_row);
}

Status predictions_named(Predictions *predictions, const json_t *name, json_t **ret_row) {
    predictions->rows++;
    *ret_row = NULL;
    if (!predictions->file) return OK;
    if (name) return begin_row("id", json_clone_deep(name), ret_row);
    return begin_row("row", json_integer((json_int_t)predictions->rows), ret_row);
}

Status predictions_put(Predictions *predictions, const json_t *row) {
    RowFile *file = predictions->file;
    CLEANUP(mem_freep) char *text = NULL;
    if (!row) return OK;
    if (file->format == ROW_FILE_CSV) return put_cells(file, (json_t *)(uintptr_t)row);
    TRY(json_text(row, 0, &text));
    TRY(put_text(file, text, strlen(text)));
    return put_text(file, "\n", 1);
}

Status predictions_put_vector(Predictions *predictions, const Dataset *data, int64_t index,
                              const float *vector, int64_t width) {
    RowFile *file = predictions->file;
    CLEANUP(json_decrefp) json_t *row = NULL;
    if (file && file->format == ROW_FILE_NPY) {
        if (!predictions->rows++) TRY(put_header(file, dataset_count(data), width));
        return put_text(file, (const char *)vector, (size_t)width * sizeof *vector);
    }
    TRY(predictions_row(predictions, data, index, &row));
    if (!row) return OK;
    json_t *list = json_array();
    int failed = json_object_set_new(row, "embedding", list);
    for (int64_t i = 0; i < width; i++) failed |= json_array_append_new(list, json_float(vector[i]));
    if (failed) return FAILED("out of memory while writing an embedding");
    return predictions_put(predictions, row);
}

/* ---- values ---- */

Status predictions_token(const Job *job, int32_t id, float probability, json_t **ret_json) {
    CLEANUP(json_decrefp) json_t *json = json_object();
    if (job->tokenizer && id < tokenizer_vocab(job->tokenizer)) {
        CLEANUP(mem_freep) char *bytes = NULL;
        CLEANUP(mem_freep) char *text = NULL;
        size_t size;
        TRY(tokenizer_decode(job->tokenizer, &id, 1, false, &bytes, &size));
        TRY(text_to_utf8(bytes, size, &text, &size));
        TRY(json_put(json, "token", json_stringn(text, size)));
    }
    TRY(json_put(json, "id", json_integer(id)));
    TRY(json_put(json, "probability", json_float(probability)));
    return MOVE(ret_json, json);
}

Status predictions_check(const float *values, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return DIVERGED("the model's outputs are not finite; its weights are corrupt or diverged");
    return OK;
}
