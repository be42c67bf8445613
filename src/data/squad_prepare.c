#include "data/squad_features.h"

#include <string.h>

#include "base/fs.h"
#include "base/memory.h"

/* digits of an int32, its sign and the separator */
enum { NUMBER_SIZE = 13 };

/* Formats a list; `to` must have NUMBER_SIZE bytes per entry. Returns the number of bytes written. */
static size_t put_numbers(char *to, const int32_t *numbers, int32_t count) {
    size_t size = 0;
    for (int32_t i = 0; i < count; i++) {
        char digits[NUMBER_SIZE];
        int used = 0;
        int32_t left = numbers[i]; /* ids and types are never negative */
        do digits[used++] = (char)('0' + left % 10);
        while ((left /= 10) > 0);
        if (i) to[size++] = ',', to[size++] = ' ';
        while (used > 0) to[size++] = digits[--used];
    }
    return size;
}

static Status write_numbers(FileWriter *writer, const char *before, char *line, const int32_t *numbers,
                            int32_t count) {
    TRY(file_write(writer, before, strlen(before)));
    return file_write(writer, line, put_numbers(line, numbers, count));
}

static Status write_features(FileWriter *writer, const SquadFeatures *features, int64_t *ret_tokens) {
    CLEANUP(mem_freep) int32_t *tokens = NULL;
    CLEANUP(mem_freep) int32_t *types = NULL;
    CLEANUP(mem_freep) char *line = NULL;
    TRY(mem_new((size_t)features->spec.seq, sizeof *tokens, &tokens));
    TRY(mem_new((size_t)features->spec.seq, sizeof *types, &types));
    TRY(mem_new((size_t)features->spec.seq, NUMBER_SIZE, &line));
    *ret_tokens = 0;
    for (size_t i = 0; i < features->features; i++) {
        const SquadFeature *feature = &features->feature[i];
        int32_t length = squad_feature_fill(features, i, tokens, types);
        TRY(write_numbers(writer, "{\"ids\": [", line, tokens, length));
        TRY(write_numbers(writer, "], \"types\": [", line, types, length));
        TRY(file_print(writer, "], \"start\": %d, \"end\": %d}\n", (int)feature->start, (int)feature->end));
        *ret_tokens += length;
    }
    return OK;
}

Status squad_prepare(const char *const *paths, int count, const Tokenizer *tokenizer, const SquadSpec *spec,
                     const char *out, SquadCounts *ret_counts, int64_t *ret_tokens) {
    CLEANUP(squad_set_done) SquadSet set = {0};
    CLEANUP(squad_features_done) SquadFeatures features = {0};
    CLEANUP(file_writer_freep) FileWriter *writer = NULL;
    int64_t tokens = 0;
    for (int i = 0; i < count; i++) TRY(squad_set_read(&set, paths[i]));
    TRY(squad_features_make(&features, &set, tokenizer, spec));
    TRY(file_writer_new(&writer, out));
    TRY(write_features(writer, &features, &tokens));
    TRY(file_commit(writer));
    *ret_counts = features.counts;
    *ret_tokens = tokens;
    return OK;
}
