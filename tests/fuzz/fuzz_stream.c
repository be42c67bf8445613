/* Fuzzes streams of u16 and u32 tokens: a file is rejected, or reading from any position returns the stored
 * tokens or an error for ids outside the vocabulary. */
#include "data/stream.h"
#include "dir.h"

enum { VOCAB = 300, PIECE = 5 };

static uint32_t token_of(const uint8_t *data, size_t width, int64_t at) {
    uint32_t token = 0;
    for (size_t i = 0; i < width; i++) token |= (uint32_t)data[(size_t)at * width + i] << (8 * i);
    return token;
}

static void check_stream(const TokenStream *stream, const uint8_t *data, size_t size, size_t width) {
    /* The stream contains the file twice, so that reads also cross from one source to the next. */
    int64_t single = (int64_t)(size / width), total = token_stream_size(stream);
    fuzz_require(total == 2 * single);
    for (int64_t at = 0; at < total; at += PIECE - 1) {
        int32_t tokens[PIECE];
        int64_t count = total - at < PIECE ? total - at : PIECE;
        bool valid = true, read = fuzz_succeeded(token_stream_read(stream, at, count, tokens));
        for (int64_t i = 0; i < count; i++) {
            uint32_t token = token_of(data, width, (at + i) % single);
            valid = valid && token < VOCAB;
            fuzz_require(!read || (uint32_t)tokens[i] == token);
        }
        fuzz_require(read == valid);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    FILE *file = fopen(fuzz_file(), "wb");
    fuzz_require(file && fwrite(data, 1, size, file) == size && fclose(file) == 0);
    const char *paths[] = {fuzz_file(), fuzz_file()};
    for (DataFormat format = FORMAT_U16; format <= FORMAT_U32; format++) {
        size_t width = format == FORMAT_U16 ? 2 : 4;
        CLEANUP(token_stream_done) TokenStream stream = {0};
        bool opened = fuzz_succeeded(token_stream_init(&stream, paths, 2, format, VOCAB));
        fuzz_require(opened == (size > 0 && size % width == 0));
        if (opened) check_stream(&stream, data, size, width);
    }
    return 0;
}

size_t fuzz_seed(size_t index, uint8_t *out) {
    static const uint16_t narrow[] = {0, 1, 299, 300, 65535, 7, 8, 9, 10, 11};
    if (index > 2) return 0;
    size_t width = index == 1 ? 4 : 2, count = index == 2 ? 200 : 10;
    for (size_t i = 0; i < count; i++) {
        uint32_t token = index == 2 ? (uint32_t)(i % VOCAB) : narrow[i];
        for (size_t j = 0; j < width; j++) out[i * width + j] = (uint8_t)(token >> (8 * j));
    }
    return count * width;
}
