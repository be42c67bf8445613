/* Fuzzes token files: a file is rejected, or all its tokens and documents are in range, whether it is
 * verified up front or block by block. Checksums would reject every mutation, so most inputs get correct
 * checksums again.
 */
#include "data/checksum.h"
#include "data/token_file.h"
#include "dir.h"

enum { VOCAB = 300, TOKENS = 50, DOCUMENTS = 3 };

static void put64(uint8_t *at, uint64_t value) {
    for (int i = 0; i < 8; i++) at[i] = (uint8_t)(value >> 8 * i);
}

/* Recomputes the checksums of a file with one block, as the seeds have. */
static void fix_checksums(uint8_t *file, size_t size) {
    if (size < TOKEN_FILE_HEADER + 8) return;
    put64(file + size - 8, checksum(file + TOKEN_FILE_HEADER, size - TOKEN_FILE_HEADER - 8, 1));
    put64(file + 96, checksum(file + size - 8, 8, 0));
    put64(file + 248, checksum(file, 248, 0));
}

static void check_shard(const TokenFile *shard) {
    const TokenFileInfo *info = token_file_info(shard);
    fuzz_require(info->tokens >= 0 && info->documents >= 0 && (info->width == 2 || info->width == 4));
    bool fine = fuzz_succeeded(token_file_verify(shard));
    for (int64_t at = 0; at < info->tokens; at += 7) {
        int32_t tokens[7];
        int64_t count = info->tokens - at < 7 ? info->tokens - at : 7;
        bool read = fuzz_succeeded(token_file_read(shard, at, count, tokens));
        fuzz_require(read || !fine);
        for (int64_t i = 0; read && i < count; i++)
            fuzz_require(tokens[i] >= 0 && tokens[i] < info->tokenizer.vocab);
    }
    for (int64_t i = 0; i < info->documents; i++) {
        int64_t start = -1;
        bool read = fuzz_succeeded(token_file_document(shard, i, &start));
        fuzz_require(read || !fine);
        fuzz_require(!read || (start >= 0 && start < info->tokens));
    }
    for (int64_t i = 0; i < info->sentences; i++) {
        int64_t start = -1, index = -1;
        bool read = fuzz_succeeded(token_file_sentence(shard, i, &start));
        fuzz_require(read || !fine);
        fuzz_require(!read || (start >= 0 && start < info->tokens));
        if (!fine) continue;
        fuzz_require(fuzz_succeeded(token_file_sentence_from(shard, start, &index)));
        fuzz_require(index == i);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint8_t copy[FUZZ_INPUT_LIMIT];
    if (size == 0 || size > sizeof copy) return 0;
    memcpy(copy, data + 1, size - 1);
    if (data[0] % 8) fix_checksums(copy, size - 1);
    FILE *file = fopen(fuzz_file(), "wb");
    fuzz_require(file && fwrite(copy, 1, size - 1, file) == size - 1 && fclose(file) == 0);
    CLEANUP(token_file_freep) TokenFile *shard = NULL;
    if (fuzz_succeeded(token_file_open(&shard, fuzz_file()))) check_shard(shard);
    return 0;
}

/* A token file with two-byte or four-byte tokens, as written by weft. */
static size_t make_seed(size_t width, bool marked, uint8_t *out) {
    char dir[] = "/tmp/weft-fuzz-XXXXXX", name[96];
    TokenizerId id = {.kind = TOKENIZER_BPE,
                      .vocab = width == 4 ? 1 << 17 : VOCAB,
                      .fingerprint = 12345,
                      .special = {-1, -1, -1, -1, -1, 299}};
    uint8_t tokens[TOKENS * 4];
    for (size_t i = 0; i < TOKENS * width; i++) tokens[i] = i % width == 0 ? (uint8_t)i : 0;
    TokenFileSet *set = NULL;
    fuzz_require(mkdtemp(dir) &&
                 fuzz_succeeded(token_file_set_new(&set, dir, "train", &id, 1 << 20, marked)));
    for (int i = 0; i < DOCUMENTS; i++) {
        fuzz_require(fuzz_succeeded(token_file_set_document(set)));
        fuzz_require(fuzz_succeeded(token_file_set_add(set, tokens, TOKENS - 9)));
        token_file_set_sentence(set);
        fuzz_require(fuzz_succeeded(token_file_set_add(set, tokens, 9)));
    }
    fuzz_require(fuzz_succeeded(token_file_set_finish(set)));
    token_file_set_free(set);
    snprintf(name, sizeof name, "%s/train-00000.tokens", dir);
    FILE *file = fopen(name, "rb");
    fuzz_require(file);
    out[0] = 1;
    size_t size = 1 + fread(out + 1, 1, FUZZ_INPUT_LIMIT - 1, file);
    fclose(file);
    fuzz_require(unlink(name) == 0 && rmdir(dir) == 0);
    return size;
}

size_t fuzz_seed(size_t index, uint8_t *out) {
    static uint8_t seed[3][FUZZ_INPUT_LIMIT]; /* created once, because files are slow */
    static size_t size[3];
    if (index > 2) return 0;
    if (!size[index]) size[index] = make_seed(index == 1 ? 4 : 2, index == 2, seed[index]);
    memcpy(out, seed[index], size[index]);
    return size[index];
}
