/* Fuzzes the headers of replies to a download: what is taken from them is in range, and texts end. */
#include "data/http.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    HttpResponse response = {.total = -1, .from = -1};
    while (size > 0) {
        const uint8_t *end = memchr(data, '\n', size);
        size_t length = end ? (size_t)(end - data) + 1 : size;
        char *line = malloc(length); /* as libcurl passes it: without a NUL */
        fuzz_require(line);
        memcpy(line, data, length);
        http_take_header(&response, line, length);
        free(line);
        data += length;
        size -= length;
        fuzz_require(response.status >= 0 && response.status <= 999);
        fuzz_require(response.from >= -1 && response.total >= -1);
        fuzz_require(memchr(response.tag, 0, sizeof response.tag));
        fuzz_require(strlen(response.sha256) == 0 || strlen(response.sha256) == 64);
    }
    return 0;
}

size_t fuzz_seed(size_t index, uint8_t *out) {
    static const char *const seeds[] = {
        "HTTP/1.1 200 OK\r\nContent-Length: 1234\r\nETag: \"abc\"\r\nLast-Modified: Mon, 02 Jan 2023 "
        "03:04:05 "
        "GMT\r\n\r\n",
        ("HTTP/2 302\r\nLocation: https://example.org/x\r\nX-Linked-ETag: "
         "\"0123456789abcdef0123456789ABCDEF0123456789abcdef0123456789abcdef\"\r\n\r\n"
         "HTTP/2 206\r\nContent-Range: bytes 100-199/200\r\nETag: W/\"weak\"\r\n\r\n"),
        "HTTP/1.0 206 Partial\r\ncontent-range:bytes 5-9/*\r\n",
    };
    return index < sizeof seeds / sizeof *seeds ? fuzz_seed_text(seeds[index], out) : 0;
}
