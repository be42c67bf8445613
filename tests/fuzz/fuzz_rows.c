/* Fuzzes the rows of JSON arrays, JSON lines and separated values. The first byte selects which. Each row of
 * a table is valid JSON; an array whose rows are all valid is what jansson makes of the file. */
#include <unistd.h>

#include "data/rows.h"
#include "fuzz.h"

static char path[4][64];
static const char *const suffixes[4] = {".json", ".csv", ".tsv", ".jsonl"};

static void clear_up(void) {
    for (int i = 0; i < 4; i++) unlink(path[i]);
}

static void make_paths(void) {
    for (int i = 0; i < 4; i++)
        snprintf(path[i], sizeof path[i], "/dev/shm/weft-fuzz-%d%s", (int)getpid(), suffixes[i]);
    atexit(clear_up);
}

static Status read_rows(const char *file, json_t *all, bool table) {
    CLEANUP(rows_freep) Rows *rows = NULL;
    TRY(rows_open(&rows, file, NULL, 0));
    for (;;) {
        json_t *row = NULL;
        Status status = rows_next_json(rows, &row);
        fuzz_require(!table || !status || !strstr(status_message(status), "valid JSON"));
        TRY(status);
        if (!row) return OK;
        fuzz_require(json_array_append_new(all, row) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!path[0][0]) make_paths();
    if (size == 0) return 0;
    int kind = data[0] % 4;
    FILE *file = fopen(path[kind], "wb");
    fuzz_require(file && fwrite(data + 1, 1, size - 1, file) == size - 1 && fclose(file) == 0);
    CLEANUP(json_decrefp) json_t *all = json_array(), *whole = NULL;
    bool fine = fuzz_succeeded(read_rows(path[kind], all, kind == 1 || kind == 2));
    size_t skip = size >= 4 && !memcmp(data + 1, "\xef\xbb\xbf", 3) ? 4 : 1;
    if (kind == 0) whole = json_loadb((const char *)data + skip, size - skip, JSON_ALLOW_NUL, NULL);
    if (fine && whole) fuzz_require(json_equal(all, whole));
    return 0;
}

size_t fuzz_seed(size_t index, uint8_t *out) {
    static const char *const seeds[] = {
        " [{\"text\": \"one\"}, {\"text\": [1, {\"a\": \"]},\\\"\"}]}\n]\n",
        "\x21text,label\n\"one, \"\"two\"\"\",1\nthree,\"\"\r\n",
        "\"text\tlabel\none\t1\n",
        "#{\"text\": \"one\"}\n\n{\"text\": 2}\n",
    };
    return index < sizeof seeds / sizeof *seeds ? fuzz_seed_text(seeds[index], out) : 0;
}
