/* Reads token files. The file is memory-mapped; one flag per block records whether it has been verified.
 * Several threads may verify the same block concurrently, which is harmless because they reach the same
 * result. */
#include "data/token_file.h"

#include <endian.h>
#include <stdatomic.h>
#include <string.h>

#include "base/memory.h"
#include "data/checksum.h"
#include "data/source.h"
#include "data/token_file_format.h"

struct TokenFile {
    Source source;
    TokenFileInfo info;
    TokenFileLayout layout;
    const unsigned char *body, *documents, *sentences, *sums;
    atomic_uchar *verified; /* one flag per block */
};

TokenizerId tokenizer_id(const Tokenizer *tokenizer) {
    return (TokenizerId){.kind = tokenizer_kind(tokenizer),
                         .vocab = tokenizer_vocab(tokenizer),
                         .fingerprint = tokenizer_fingerprint(tokenizer),
                         .special = tokenizer_special(tokenizer)};
}

bool tokenizer_id_same(const TokenizerId *a, const TokenizerId *b) {
    if (a->kind == TOKENIZER_BYTES && b->kind == TOKENIZER_BYTES) return true;
    return a->kind == b->kind && a->vocab == b->vocab && a->fingerprint == b->fingerprint;
}

const char *tokenizer_id_text(const TokenizerId *id, char buffer[TOKENIZER_ID_TEXT]) {
    snprintf(buffer, TOKENIZER_ID_TEXT, "%s, %lld tokens, %016llx", tokenizer_kind_text(id->kind),
             (long long)id->vocab, (unsigned long long)id->fingerprint);
    return buffer;
}

Status tokenizer_id_check(const TokenizerId *id, const char *name, const char *checkpoint) {
    CLEANUP(tokenizer_freep) Tokenizer *own = NULL;
    TRY(tokenizer_load(&own, checkpoint));
    TokenizerId existing = tokenizer_id(own);
    if (tokenizer_id_same(id, &existing)) return OK;
    char text[TOKENIZER_ID_TEXT], existing_text[TOKENIZER_ID_TEXT];
    return USAGE("the tokenizer %s (%s) differs from that of the checkpoint %s (%s)", name,
                 tokenizer_id_text(id, text), checkpoint, tokenizer_id_text(&existing, existing_text));
}

int token_file_token_width(int64_t vocab) {
    return vocab <= 1 << 16 ? 2 : 4;
}

static uint64_t number_at(const unsigned char *array, uint64_t index) {
    uint64_t value;
    memcpy(&value, array + index * 8, sizeof value);
    return le64toh(value);
}

static Status check_size(const TokenFile *token_file) {
    uint64_t is = token_file->source.size, wanted = token_file->layout.file_size;
    if (is == wanted) return OK;
    return FAILED("%s: size is %llu bytes; expected %llu: %s", token_file->source.name,
                  (unsigned long long)is, (unsigned long long)wanted,
                  is < wanted ? "the file is truncated" : "there is extra data at the end");
}

Status token_file_open(TokenFile **ret_token_file, const char *path) {
    CLEANUP(token_file_freep) TokenFile *token_file = NULL;
    TRY(mem_new(1, sizeof *token_file, &token_file));
    TRY(source_init(&token_file->source, path, 0));
    TokenFileHeader header;
    TRY(token_file_header_parse(token_file->source.data, token_file->source.size, path, &header));
    token_file->info = header.info;
    if (!token_file_layout(&token_file->info, &token_file->layout))
        return FAILED("%s: the header specifies %lld tokens, %lld documents and %lld sentences, more than a "
                      "file can hold",
                      path, (long long)token_file->info.tokens, (long long)token_file->info.documents,
                      (long long)token_file->info.sentences);
    TRY(check_size(token_file));
    token_file->body = token_file->source.data + TOKEN_FILE_HEADER;
    token_file->documents = token_file->body + token_file->layout.tokens;
    token_file->sentences = token_file->body + token_file->layout.documents;
    token_file->sums = token_file->body + token_file->layout.body;
    if (checksum(token_file->sums, (size_t)token_file->layout.blocks * 8, 0) != header.sums)
        return FAILED("%s: the checksum table is damaged; prepare the data again", path);
    TRY(mem_new((size_t)token_file->layout.blocks, sizeof *token_file->verified, &token_file->verified));
    source_advise_random(&token_file->source);
    return MOVE(ret_token_file, token_file);
}

void token_file_free(TokenFile *token_file) {
    if (!token_file) return;
    source_done(&token_file->source);
    free(token_file->verified);
    free(token_file);
}

const TokenFileInfo *token_file_info(const TokenFile *token_file) {
    return &token_file->info;
}

const char *token_file_path(const TokenFile *token_file) {
    return token_file->source.name;
}

size_t token_file_bytes(const TokenFile *token_file) {
    return token_file->source.size;
}

/* ---- verification ---- */

static size_t block_size(const TokenFile *token_file, uint64_t block) {
    uint64_t left = token_file->layout.body - block * TOKEN_FILE_BLOCK;
    return left < TOKEN_FILE_BLOCK ? (size_t)left : TOKEN_FILE_BLOCK;
}

static bool block_is_valid(const TokenFile *token_file, uint64_t block) {
    if (atomic_load_explicit(&token_file->verified[block], memory_order_relaxed)) return true;
    const unsigned char *at = token_file->body + block * TOKEN_FILE_BLOCK;
    if (checksum(at, block_size(token_file, block), block + 1) != number_at(token_file->sums, block))
        return false;
    atomic_store_explicit(&token_file->verified[block], 1, memory_order_relaxed);
    return true;
}

static Status damaged(const TokenFile *token_file, uint64_t block) {
    uint64_t from = TOKEN_FILE_HEADER + block * TOKEN_FILE_BLOCK;
    return FAILED("%s: damaged between byte %llu and byte %llu (checksum mismatch); prepare the data again",
                  token_file->source.name, (unsigned long long)from,
                  (unsigned long long)(from + block_size(token_file, block) - 1));
}

/* Verifies the blocks that contain bytes `from` .. `to - 1` of the body. */
static Status verify_range(const TokenFile *token_file, uint64_t from, uint64_t to) {
    for (uint64_t block = from / TOKEN_FILE_BLOCK; block * TOKEN_FILE_BLOCK < to; block++)
        if (!block_is_valid(token_file, block)) return damaged(token_file, block);
    return OK;
}

Status token_file_document(const TokenFile *token_file, int64_t index, int64_t *ret_start) {
    uint64_t at = token_file->layout.tokens + (uint64_t)index * 8;
    TRY(source_check(&token_file->source));
    TRY(verify_range(token_file, at, at + 8));
    uint64_t start = number_at(token_file->documents, (uint64_t)index);
    if (start >= (uint64_t)token_file->info.tokens)
        return FAILED("%s: document %lld begins at token %llu; expected 0 to %lld", token_file->source.name,
                      (long long)index, (unsigned long long)start, (long long)token_file->info.tokens - 1);
    *ret_start = (int64_t)start;
    return OK;
}

Status token_file_sentence(const TokenFile *token_file, int64_t index, int64_t *ret_start) {
    uint64_t at = token_file->layout.documents + (uint64_t)index * 4;
    TRY(verify_range(token_file, at, at + 4));
    uint32_t start;
    memcpy(&start, token_file->sentences + index * 4, sizeof start);
    start = le32toh(start);
    if (start >= token_file->info.tokens)
        return FAILED("%s: sentence %lld begins at token %lu; expected 0 to %lld", token_file->source.name,
                      (long long)index, (unsigned long)start, (long long)token_file->info.tokens - 1);
    *ret_start = start;
    return OK;
}

Status token_file_sentence_from(const TokenFile *token_file, int64_t at, int64_t *ret_index) {
    int64_t low = 0, high = token_file->info.sentences;
    TRY(source_check(&token_file->source));
    while (low < high) {
        int64_t middle = low + (high - low) / 2, start = 0;
        TRY(token_file_sentence(token_file, middle, &start));
        if (start < at)
            low = middle + 1;
        else
            high = middle;
    }
    *ret_index = low;
    return OK;
}

static uint32_t token_at(const TokenFile *token_file, int64_t at) {
    if (token_file->info.width == 4) {
        uint32_t wide;
        memcpy(&wide, token_file->body + at * 4, 4);
        return le32toh(wide);
    }
    uint16_t narrow;
    memcpy(&narrow, token_file->body + at * 2, 2);
    return le16toh(narrow);
}

static Status wrong_token(const TokenFile *token_file, int64_t at) {
    return FAILED("%s: token %lld is %lu; expected 0 to %lld", token_file->source.name, (long long)at,
                  (unsigned long)token_at(token_file, at), (long long)token_file->info.tokenizer.vocab - 1);
}

Status token_file_read(const TokenFile *token_file, int64_t at, int64_t count, int32_t *out) {
    uint64_t width = (uint64_t)token_file->info.width;
    TRY(source_check(&token_file->source));
    TRY(verify_range(token_file, (uint64_t)at * width, (uint64_t)(at + count) * width));
    for (int64_t i = 0; i < count; i++) {
        uint32_t token = token_at(token_file, at + i);
        if (token >= (uint64_t)token_file->info.tokenizer.vocab) return wrong_token(token_file, at + i);
        out[i] = (int32_t)token;
    }
    return OK;
}

/* Index of the first damaged block; the number of blocks if all are intact. */
static uint64_t first_damaged(const TokenFile *token_file) {
    uint64_t found = token_file->layout.blocks;
#pragma omp parallel for schedule(dynamic, 16) reduction(min : found)
    for (uint64_t block = 0; block < token_file->layout.blocks; block++)
        if (block < found && !block_is_valid(token_file, block)) found = block;
    return found;
}

static int64_t first_wrong_token(const TokenFile *token_file) {
    int64_t found = token_file->info.tokens;
#pragma omp parallel for schedule(static) reduction(min : found)
    for (int64_t i = 0; i < token_file->info.tokens; i++)
        if (token_at(token_file, i) >= (uint64_t)token_file->info.tokenizer.vocab && i < found) found = i;
    return found;
}

/* Checks that the start positions of documents or sentences are strictly ascending. */
static Status check_order(const TokenFile *token_file,
                          Status (*start_of)(const TokenFile *, int64_t, int64_t *), int64_t count,
                          const char *what) {
    int64_t before = -1;
    for (int64_t i = 0; i < count; i++) {
        int64_t start = 0;
        TRY(start_of(token_file, i, &start));
        if (start <= before)
            return FAILED("%s: %s %lld begins at token %lld, not after the previous one at %lld",
                          token_file->source.name, what, (long long)i, (long long)start, (long long)before);
        before = start;
    }
    return OK;
}

Status token_file_verify(const TokenFile *token_file) {
    TRY(source_check(&token_file->source));
    uint64_t block = first_damaged(token_file);
    if (block < token_file->layout.blocks) return damaged(token_file, block);
    int64_t token = first_wrong_token(token_file);
    if (token < token_file->info.tokens) return wrong_token(token_file, token);
    TRY(check_order(token_file, token_file_document, token_file->info.documents, "document"));
    return check_order(token_file, token_file_sentence, token_file->info.sentences, "sentence");
}
