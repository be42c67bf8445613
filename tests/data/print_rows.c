/* Prints the rows of a file as JSON lines, for tests/data/check_parquet.py: print_rows FILE [FIELD...] */
#include "data/rows.h"

static Status print_rows(const char *path, const char *const *fields, int count) {
    CLEANUP(rows_freep) Rows *rows = NULL;
    const char *text = NULL;
    size_t size = 0;
    TRY(rows_open(&rows, path, fields, count));
    for (;;) {
        TRY(rows_next(rows, &text, &size));
        if (!text) return OK;
        printf("%.*s\n", (int)size, text);
    }
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    Status status = print_rows(argv[1], (const char *const *)argv + 2, argc - 2);
    if (!status) return 0;
    fprintf(stderr, "%s\n", status_message(status));
    status_free(status);
    return 1;
}
