/* Fuzzes the reader of Parquet tables: what it accepts is valid JSON, and the same in a second reading. */
#include <unistd.h>

#include "base/fs.h"
#include "base/memory.h"
#include "data/rows.h"
#include "fuzz.h"

static char path[64];

static void clear_up(void) {
    unlink(path);
}

static Status read_rows(int limit, json_t **ret_last) {
    CLEANUP(rows_freep) Rows *rows = NULL;
    TRY(rows_open(&rows, path, NULL, 0));
    for (int i = 0; i < limit; i++) {
        json_t *row = NULL;
        Status status = rows_next_json(rows, &row);
        /* jansson has no numbers above those of 64 bits with a sign. */
        fuzz_require(!status || !strstr(status_message(status), "valid JSON") ||
                     strstr(status_message(status), "too big"));
        TRY(status);
        if (!row) return OK;
        json_decref(*ret_last);
        *ret_last = row;
    }
    return OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    enum { LIMIT = 200 };
    if (!path[0]) {
        snprintf(path, sizeof path, "/dev/shm/weft-fuzz-%d.parquet", (int)getpid());
        atexit(clear_up);
    }
    FILE *file = fopen(path, "wb");
    fuzz_require(file && fwrite(data, 1, size, file) == size && fclose(file) == 0);
    CLEANUP(json_decrefp) json_t *last = NULL, *again = NULL;
    bool fine = fuzz_succeeded(read_rows(LIMIT, &last));
    fuzz_require(fuzz_succeeded(read_rows(LIMIT, &again)) == fine);
    fuzz_require(last == again || json_equal(last, again));
    return 0;
}

size_t fuzz_seed(size_t index, uint8_t *out) {
    static const char *const names[] = {"text", "optional", "optional-delta", "types", "lists", "structs"};
    CLEANUP(mem_freep) char *name = NULL, *data = NULL;
    size_t size = 0;
    if (index >= sizeof names / sizeof *names) return 0;
    fuzz_require(!str_format(&name, WEFT_TEST_DIR "/data/parquet/%s.parquet", names[index]));
    fuzz_require(!file_read(name, FUZZ_INPUT_LIMIT, &data, &size));
    memcpy(out, data, size);
    return size;
}
