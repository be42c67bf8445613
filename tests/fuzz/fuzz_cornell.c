/* Fuzzes the Cornell corpus reader: both sides of each pair have text. The input is the file of lines, a NUL,
 * and the file of conversations. */
#include "data/cornell.h"

#include <unistd.h>

#include "fuzz.h"

static char paths[2][64]; /* created for the first input */

static void clear_up(void) {
    for (int i = 0; i < 2; i++) unlink(paths[i]);
}

static void make_paths(void) {
    for (int i = 0; i < 2; i++) {
        strcpy(paths[i], "/dev/shm/weft-fuzz-XXXXXX");
        int fd = mkstemp(paths[i]);
        if (fd < 0) {
            strcpy(paths[i], "/tmp/weft-fuzz-XXXXXX");
            fd = mkstemp(paths[i]);
        }
        fuzz_require(fd >= 0 && close(fd) == 0);
    }
    atexit(clear_up);
}

static void put(const char *path, const uint8_t *data, size_t size) {
    FILE *file = fopen(path, "wb");
    fuzz_require(file && fwrite(data, 1, size, file) == size && fclose(file) == 0);
}

static Status take(void *context, const char *first, size_t first_size, const char *second,
                   size_t second_size) {
    (void)context;
    fuzz_require(first && second && first_size > 0 && second_size > 0);
    return OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!paths[0][0]) make_paths();
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    if (!zero) return 0;
    size_t lines = (size_t)(zero - data);
    put(paths[0], data, lines);
    put(paths[1], zero + 1, size - lines - 1);
    const char *const both[] = {paths[0], paths[1]};
    CornellCounts counts;
    if (fuzz_succeeded(cornell_read(both, 2, take, NULL, &counts)))
        fuzz_require(counts.lines >= 0 && counts.missing >= 0 && counts.empty >= 0);
    return 0;
}

size_t fuzz_seed(size_t index, uint8_t *out) {
    static const char lines[] = "L1 +++$+++ u0 +++$+++ m0 +++$+++ A +++$+++ Hi th\xe9re\n"
                                "L2 +++$+++ u1 +++$+++ m0 +++$+++ B +++$+++ Oh\x92\n"
                                "L3 +++$+++ u1 +++$+++ m0 +++$+++ B +++$+++ \n",
                      talks[] = "u0 +++$+++ u1 +++$+++ m0 +++$+++ ['L1', 'L2', 'L9']\n"
                                "u0 +++$+++ u1 +++$+++ m0 +++$+++ ['L2', 'L1', 'L3']\n";
    if (index) return 0;
    memcpy(out, lines, sizeof lines);
    memcpy(out + sizeof lines, talks, sizeof talks - 1);
    return sizeof lines + sizeof talks - 1;
}
