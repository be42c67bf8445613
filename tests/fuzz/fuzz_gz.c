/* Fuzzes compressed files: decompressed output stays within the limit. */
#include <unistd.h>
#include <zlib.h>

#include "data/source.h"
#include "fuzz.h"

enum { LIMIT = 1 << 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[] = "/tmp/weft-fuzz-XXXXXX.gz";
    int fd = mkstemps(path, 3);
    fuzz_require(fd >= 0);
    fuzz_require(write(fd, data, size) == (ssize_t)size);
    close(fd);
    CLEANUP(source_done) Source source = {0};
    if (fuzz_succeeded(source_init(&source, path, LIMIT)))
        fuzz_require(source.size > 0 && source.size <= LIMIT);
    unlink(path);
    return 0;
}

static size_t compress_seed(const void *data, size_t size, int level, uint8_t *out) {
    z_stream z = {.next_in = (unsigned char *)(uintptr_t)data,
                  .avail_in = (uInt)size,
                  .next_out = out,
                  .avail_out = FUZZ_INPUT_LIMIT};
    fuzz_require(deflateInit2(&z, level, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    fuzz_require(deflate(&z, Z_FINISH) == Z_STREAM_END);
    deflateEnd(&z);
    return FUZZ_INPUT_LIMIT - z.avail_out;
}

size_t fuzz_seed(size_t index, uint8_t *out) {
    static const char text[] = "a text of a few words, a text of a few more words, and an end";
    static const uint8_t zeros[2 * LIMIT];
    switch (index) {
    case 0: return compress_seed(text, sizeof text, 9, out);
    case 1: return compress_seed(text, sizeof text, 0, out);
    case 2: return compress_seed(zeros, LIMIT, 6, out);
    case 3: return compress_seed(zeros, sizeof zeros, 6, out);
    default: return 0;
    }
}
