#include "data/cornell.h"

#include "base/json.h"
#include "base/memory.h"
#include "data/table.h"

typedef struct Writing {
    FileWriter *writer;
    DialogueCounts counts;
} Writing;

static Status write_pair(void *context, const char *first, size_t first_size, const char *second,
                         size_t second_size) {
    Writing *writing = context;
    if (first_size == 0 || second_size == 0) {
        writing->counts.empty++;
        return OK;
    }
    CLEANUP(json_decrefp)
    json_t *json =
        json_pack("{s:o, s:o}", "q", json_stringn(first, first_size), "a", json_stringn(second, second_size));
    CLEANUP(mem_freep) char *line = json ? json_serialize(json, JSON_COMPACT) : NULL;
    if (!line) return FAILED("out of memory while writing pairs");
    writing->counts.pairs++;
    return file_print(writing->writer, "%s\n", line);
}

static Status write_row(void *context, int64_t line, const TableField *fields) {
    (void)line;
    return write_pair(context, fields[0].text, fields[0].size, fields[1].text, fields[1].size);
}

static Status write_tables(Writing *writing, const char *const *paths, int count) {
    static const char *const names[] = {"q", "a"};
    for (int i = 0; i < count; i++) {
        CLEANUP(source_done) Source source = {0};
        if (!path_is_table(paths[i]))
            return USAGE("%s: expected a table: .csv, .tsv, .jsonl, .json or .parquet", paths[i]);
        TRY(source_init_rows(&source, paths[i], SOURCE_GZ_LIMIT, NULL));
        TRY(table_read(&source, names, 2, write_row, writing));
    }
    return OK;
}

Status dialogue_write(const char *const *paths, int count, DataFormat format, const char *out,
                      DialogueCounts *ret_counts) {
    Writing writing = {0};
    CLEANUP(file_writer_freep) FileWriter *writer = NULL;
    TRY(file_writer_new(&writer, out));
    writing.writer = writer;
    if (format == FORMAT_CORNELL)
        TRY(cornell_read(paths, count, write_pair, &writing, &writing.counts.cornell));
    else
        TRY(write_tables(&writing, paths, count));
    if (writing.counts.pairs == 0)
        return FAILED("%s: no pair has text on both sides; expected at least one", paths[0]);
    TRY(file_commit(writer));
    *ret_counts = writing.counts;
    return OK;
}
