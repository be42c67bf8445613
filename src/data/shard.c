/* Reading shards. The file is mapped; a byte per block says whether it has been verified. Several threads
 * may verify the same block at once, which does no harm: they come to the same result. */
#include "data/shard.h"

#include <endian.h>
#include <stdatomic.h>
#include <string.h>

#include "base/memory.h"
#include "data/checksum.h"
#include "data/shard_format.h"
#include "data/source.h"

struct Shard {
    Source source;
    ShardInfo info;
    ShardLayout layout;
    const unsigned char *body, *documents, *sentences, *sums;
    atomic_uchar *verified; /* per block */
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
    static const char *const kinds[] = {"bytes", "bpe", "wordpiece"};
    snprintf(buffer, TOKENIZER_ID_TEXT, "%s, %lld tokens, %016llx", kinds[id->kind], (long long)id->vocab,
             (unsigned long long)id->fingerprint);
    return buffer;
}

int shard_token_width(int64_t vocab) {
    return vocab <= 1 << 16 ? 2 : 4;
}

static uint64_t number_at(const unsigned char *array, uint64_t index) {
    uint64_t value;
    memcpy(&value, array + index * 8, sizeof value);
    return le64toh(value);
}

static Status check_size(const Shard *shard) {
    uint64_t is = shard->source.size, wanted = shard->layout.file_size;
    if (is == wanted) return OK;
    return FAILED("%s: is %llu bytes, expected %llu: %s", shard->source.name, (unsigned long long)is,
                  (unsigned long long)wanted,
                  is < wanted ? "it was cut short" : "something was added at its end");
}

Status shard_open(Shard **ret_shard, const char *path) {
    CLEANUP(shard_freep) Shard *shard = NULL;
    TRY(mem_new(1, sizeof *shard, &shard));
    TRY(source_init(&shard->source, path, 0));
    ShardHeader header;
    TRY(shard_header_parse(shard->source.data, shard->source.size, path, &header));
    shard->info = header.info;
    if (!shard_layout(&shard->info, &shard->layout))
        return FAILED(
            "%s: its header names %lld tokens, %lld documents and %lld sentences, more than a file can hold",
            path, (long long)shard->info.tokens, (long long)shard->info.documents,
            (long long)shard->info.sentences);
    TRY(check_size(shard));
    shard->body = shard->source.data + SHARD_HEADER;
    shard->documents = shard->body + shard->layout.tokens;
    shard->sentences = shard->body + shard->layout.documents;
    shard->sums = shard->body + shard->layout.body;
    if (checksum(shard->sums, (size_t)shard->layout.blocks * 8, 0) != header.sums)
        return FAILED("%s: its list of checksums is damaged: prepare the data again", path);
    TRY(mem_new((size_t)shard->layout.blocks, sizeof *shard->verified, &shard->verified));
    source_expect_jumps(&shard->source);
    *ret_shard = shard;
    shard = NULL;
    return OK;
}

void shard_free(Shard *shard) {
    if (!shard) return;
    source_done(&shard->source);
    free(shard->verified);
    free(shard);
}

const ShardInfo *shard_info(const Shard *shard) {
    return &shard->info;
}

const char *shard_path(const Shard *shard) {
    return shard->source.name;
}

size_t shard_bytes(const Shard *shard) {
    return shard->source.size;
}

/* ---- verifying ---- */

static size_t block_size(const Shard *shard, uint64_t block) {
    uint64_t left = shard->layout.body - block * SHARD_BLOCK;
    return left < SHARD_BLOCK ? (size_t)left : SHARD_BLOCK;
}

static bool block_is_whole(const Shard *shard, uint64_t block) {
    if (atomic_load_explicit(&shard->verified[block], memory_order_relaxed)) return true;
    const unsigned char *at = shard->body + block * SHARD_BLOCK;
    if (checksum(at, block_size(shard, block), block + 1) != number_at(shard->sums, block)) return false;
    atomic_store_explicit(&shard->verified[block], 1, memory_order_relaxed);
    return true;
}

static Status damaged(const Shard *shard, uint64_t block) {
    uint64_t from = SHARD_HEADER + block * SHARD_BLOCK;
    return FAILED(
        "%s: is damaged between byte %llu and byte %llu (the checksum differs): prepare the data again",
        shard->source.name, (unsigned long long)from,
        (unsigned long long)(from + block_size(shard, block) - 1));
}

/* Verifies what lies in bytes `from` .. `to - 1` of the body. */
static Status verify_range(const Shard *shard, uint64_t from, uint64_t to) {
    for (uint64_t block = from / SHARD_BLOCK; block * SHARD_BLOCK < to; block++)
        if (!block_is_whole(shard, block)) return damaged(shard, block);
    return OK;
}

Status shard_document(const Shard *shard, int64_t index, int64_t *ret_start) {
    uint64_t at = shard->layout.tokens + (uint64_t)index * 8;
    TRY(source_check(&shard->source));
    TRY(verify_range(shard, at, at + 8));
    uint64_t start = number_at(shard->documents, (uint64_t)index);
    if (start >= (uint64_t)shard->info.tokens)
        return FAILED("%s: document %lld begins at token %llu, expected 0 to %lld", shard->source.name,
                      (long long)index, (unsigned long long)start, (long long)shard->info.tokens - 1);
    *ret_start = (int64_t)start;
    return OK;
}

Status shard_sentence(const Shard *shard, int64_t index, int64_t *ret_start) {
    uint64_t at = shard->layout.documents + (uint64_t)index * 4;
    TRY(verify_range(shard, at, at + 4));
    uint32_t start;
    memcpy(&start, shard->sentences + index * 4, sizeof start);
    start = le32toh(start);
    if (start >= shard->info.tokens)
        return FAILED("%s: sentence %lld begins at token %lu, expected 0 to %lld", shard->source.name,
                      (long long)index, (unsigned long)start, (long long)shard->info.tokens - 1);
    *ret_start = start;
    return OK;
}

Status shard_sentence_from(const Shard *shard, int64_t at, int64_t *ret_index) {
    int64_t low = 0, high = shard->info.sentences;
    TRY(source_check(&shard->source));
    while (low < high) {
        int64_t middle = low + (high - low) / 2, start = 0;
        TRY(shard_sentence(shard, middle, &start));
        if (start < at)
            low = middle + 1;
        else
            high = middle;
    }
    *ret_index = low;
    return OK;
}

static uint32_t token_at(const Shard *shard, int64_t at) {
    if (shard->info.width == 4) {
        uint32_t wide;
        memcpy(&wide, shard->body + at * 4, 4);
        return le32toh(wide);
    }
    uint16_t narrow;
    memcpy(&narrow, shard->body + at * 2, 2);
    return le16toh(narrow);
}

static Status wrong_token(const Shard *shard, int64_t at) {
    return FAILED("%s: token %lld is %lu, expected 0 to %lld", shard->source.name, (long long)at,
                  (unsigned long)token_at(shard, at), (long long)shard->info.tokenizer.vocab - 1);
}

Status shard_read(const Shard *shard, int64_t at, int64_t count, int32_t *out) {
    uint64_t width = (uint64_t)shard->info.width;
    TRY(source_check(&shard->source));
    TRY(verify_range(shard, (uint64_t)at * width, (uint64_t)(at + count) * width));
    for (int64_t i = 0; i < count; i++) {
        uint32_t token = token_at(shard, at + i);
        if (token >= (uint64_t)shard->info.tokenizer.vocab) return wrong_token(shard, at + i);
        out[i] = (int32_t)token;
    }
    return OK;
}

/* The first block that is damaged, or their number. */
static uint64_t first_damaged(const Shard *shard) {
    uint64_t found = shard->layout.blocks;
#pragma omp parallel for schedule(dynamic, 16) reduction(min : found)
    for (uint64_t block = 0; block < shard->layout.blocks; block++)
        if (block < found && !block_is_whole(shard, block)) found = block;
    return found;
}

static int64_t first_wrong_token(const Shard *shard) {
    int64_t found = shard->info.tokens;
#pragma omp parallel for schedule(static) reduction(min : found)
    for (int64_t i = 0; i < shard->info.tokens; i++)
        if (token_at(shard, i) >= (uint64_t)shard->info.tokenizer.vocab && i < found) found = i;
    return found;
}

/* Documents or sentences begin one after the other. */
static Status check_order(const Shard *shard, Status (*start_of)(const Shard *, int64_t, int64_t *),
                          int64_t count, const char *what) {
    int64_t before = -1;
    for (int64_t i = 0; i < count; i++) {
        int64_t start = 0;
        TRY(start_of(shard, i, &start));
        if (start <= before)
            return FAILED("%s: %s %lld begins at token %lld, not after the one before it at %lld",
                          shard->source.name, what, (long long)i, (long long)start, (long long)before);
        before = start;
    }
    return OK;
}

Status shard_verify(const Shard *shard) {
    TRY(source_check(&shard->source));
    uint64_t block = first_damaged(shard);
    if (block < shard->layout.blocks) return damaged(shard, block);
    int64_t token = first_wrong_token(shard);
    if (token < shard->info.tokens) return wrong_token(shard, token);
    TRY(check_order(shard, shard_document, shard->info.documents, "document"));
    return check_order(shard, shard_sentence, shard->info.sentences, "sentence");
}
