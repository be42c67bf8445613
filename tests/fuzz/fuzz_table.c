/* Fuzzes .csv, .tsv and .jsonl tables: rows have the requested fields in valid UTF-8, and line numbers
 * increase. Targets from their labels are finite. The first byte of the input selects the format. */
#include <math.h>

#include "data/targets.h"
#include "fuzz.h"

typedef struct Seen {
    int64_t line;
} Seen;

static Status take(void *context, int64_t line, const TableField *fields) {
    Seen *seen = context;
    fuzz_require(line > seen->line);
    seen->line = line;
    for (int i = 0; i < 2; i++) {
        fuzz_require(fields[i].text);
        size_t sum = 0;
        for (size_t k = 0; k < fields[i].size; k++) sum += (unsigned char)fields[i].text[k];
        fuzz_require(sum <= 255 * fields[i].size);
    }
    fuzz_require(!fields[2].text);
    return OK;
}

static Status take_targets(void *context, int64_t line, const TableField *fields) {
    enum { LABELS = 2 };
    static const char *const names[LABELS] = {"a", "b"};
    const char *file = context;
    for (int problem = PROBLEM_REGRESSION; problem <= PROBLEM_MULTI_LABEL; problem++)
        for (int count = 1; count <= LABELS; count++) {
            TargetReader reader = {
                .problem = (ProblemType)problem, .labels = count, .names = names, .file = file};
            float targets[LABELS] = {0};
            if (!fuzz_succeeded(targets_from_fields(&reader, line, fields, count, NULL, targets))) continue;
            for (int i = 0; i < LABELS; i++) {
                fuzz_require(isfinite(targets[i]));
                if (problem == PROBLEM_MULTI_LABEL) fuzz_require(targets[i] >= 0 && targets[i] <= 1);
            }
        }
    return OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const files[] = {"a.csv", "a.tsv", "a.jsonl", "a.csv"};
    static const char *const names[] = {"text", "label", NULL}, *const numbers[] = {"1", "2", NULL};
    if (size < 2) return 0;
    CLEANUP(source_done) Source source = {0};
    Seen seen = {0};
    fuzz_require(fuzz_succeeded(source_init_memory(&source, files[data[0] % 4], data + 1, size - 1)));
    if (fuzz_succeeded(table_read(&source, data[0] % 4 == 3 ? numbers : names, 3, take, &seen)))
        fuzz_require(seen.line >= 0);
    TableSpec spec = {.names = data[0] % 4 == 3 ? numbers : names, .count = 2};
    fuzz_succeeded(table_read_lists(&source, &spec, take_targets, (void *)(uintptr_t)files[data[0] % 4]));
    return 0;
}

size_t fuzz_seed(size_t index, uint8_t *out) {
    static const char *const seeds[] = {
        "\x04text,label\r\n\"a, \"\"b\"\"\",1\n\"c\nd\",x\n\ne\xc3\xa9,\n",
        "\x05text\tlabel\n\"as is\"\t1\r\nb\t\n",
        "\x06{\"text\": \"a\", \"label\": 1}\n\n{\"label\": true, \"text\": \"b\\n\", \"c\": [1, {}]}\n",
        ("\x07"
         "a,1\nb,2"),
        "\x06{\"text\": [\"a\", \"b\"], \"label\": [0, 1.5]}\n{\"text\": [1], \"label\": -2e3}\n",
        "\x04text,label\n\"[1, 0]\",0.5\n-3,\"[\"\"b\"\"]\"\n",
    };
    return index < sizeof seeds / sizeof *seeds ? fuzz_seed_text(seeds[index], out) : 0;
}
