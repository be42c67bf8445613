/* Fuzzes the corpus reader: each document begins once and ends once, and small blocks produce the same bytes
 * as one large block. The first byte of the input selects how it is read. */
#include <unistd.h>

#include "base/memory.h"
#include "data/reader.h"
#include "fuzz.h"

static char path[64]; /* created for the first input */

static void clear_up(void) {
    unlink(path);
}

static void make_path(void) {
    strcpy(path, "/dev/shm/weft-fuzz-XXXXXX.jsonl");
    int fd = mkstemps(path, 6);
    if (fd < 0) {
        strcpy(path, "/tmp/weft-fuzz-XXXXXX.jsonl");
        fd = mkstemps(path, 6);
    }
    fuzz_require(fd >= 0 && close(fd) == 0);
    atexit(clear_up);
}

typedef struct Read {
    char *text;
    size_t size, capacity;
    int64_t documents;
    bool open;
} Read;

static void read_done(Read *read) {
    free(read->text);
}

static Status take(void *context, const TextPiece *piece) {
    Read *read = context;
    fuzz_require(piece->first == !read->open);
    fuzz_require(piece->size > 0 || (!piece->first && piece->last));
    TRY(mem_grow(&read->text, &read->capacity, read->size + piece->size + 1, 1));
    memcpy(read->text + read->size, piece->text, piece->size);
    read->size += piece->size;
    read->open = !piece->last;
    if (piece->last) read->text[read->size++] = 0x1c; /* separates documents */
    read->documents += piece->last;
    return OK;
}

static Status read_file(const ReaderSpec *spec, Read *read) {
    CLEANUP(reader_freep) Reader *reader = NULL;
    CLEANUP(text_block_done) TextBlock block = {0};
    TRY(reader_new(&reader, spec));
    for (bool more = true;;) {
        TRY(reader_next(reader, &block, &more));
        if (!more) return OK;
        fuzz_require(block.line >= 1);
        TRY(reader_split(spec, &block, take, read));
    }
}

static void read_both(const ReaderSpec *spec) {
    CLEANUP(read_done) Read small = {0};
    CLEANUP(read_done) Read large = {0};
    ReaderSpec whole = *spec;
    whole.block = 0;
    bool fine = fuzz_succeeded(read_file(spec, &small));
    fuzz_require(fuzz_succeeded(read_file(&whole, &large)) == fine);
    if (!fine) return;
    fuzz_require(!small.open && !large.open);
    fuzz_require(small.documents == large.documents && small.size == large.size);
    fuzz_require(small.size == 0 || !memcmp(small.text, large.text, small.size));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!path[0]) make_path();
    if (size == 0) return 0;
    FILE *file = fopen(path, "wb");
    fuzz_require(file && fwrite(data + 1, 1, size - 1, file) == size - 1 && fclose(file) == 0);
    /* Through a link named .txt the reader treats it as plain text. */
    char plain[80];
    snprintf(plain, sizeof plain, "%s.txt", path);
    unlink(plain);
    fuzz_require(link(path, plain) == 0);
    const char *paths[] = {data[0] % 4 == 3 ? path : plain};
    ReaderSpec spec = {.paths = paths,
                       .path_count = 1,
                       .documents = (Documents)(data[0] % 4 % 3),
                       .block = 1 + data[0] / 4 % 32};
    read_both(&spec);
    unlink(plain);
    return 0;
}

size_t fuzz_seed(size_t index, uint8_t *out) {
    static const char *const seeds[] = {
        " one\ntwo\n\nthree",
        "!one\r\n\n  \ntwo and more, a longer line\nthree",
        "\"\n\none\ntwo \r\n \t\r\n\nthree\n  four\n\n",
        "#{\"text\": \"one\"}\n\n{\"text\": \"two\", \"id\": 7}\r\n{\"text\": \"\"}",
        "'{\"id\": [1, {\"text\": 2}], \"text\": \"\\ud83d\\ude00\\n\"}\n",
    };
    return index < sizeof seeds / sizeof *seeds ? fuzz_seed_text(seeds[index], out) : 0;
}
