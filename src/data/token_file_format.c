#include "data/token_file_format.h"

#include <endian.h>
#include <string.h>

#include "data/checksum.h"

static const char magic[8] = "weftTOK\n";
enum { ORDER_MARK = 0x01020304, SUM_AT = TOKEN_FILE_HEADER - 8 };

enum {
    AT_VERSION = 8,
    AT_ORDER = 12,
    AT_WIDTH = 16,
    AT_KIND = 20,
    AT_VOCAB = 24,
    AT_FINGERPRINT = 32,
    AT_TOKENS = 40,
    AT_DOCUMENTS = 48,
    AT_INDEX = 56,
    AT_COUNT = 60,
    AT_SPECIAL = 64,
    AT_BLOCK = 88,
    AT_SUMS = 96,
    AT_SENTENCES = 104
};

static void put32(unsigned char *at, uint32_t value) {
    value = htole32(value);
    memcpy(at, &value, sizeof value);
}

static void put64(unsigned char *at, uint64_t value) {
    value = htole64(value);
    memcpy(at, &value, sizeof value);
}

static uint32_t get32(const unsigned char *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return le32toh(value);
}

static uint64_t get64(const unsigned char *at) {
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return le64toh(value);
}

bool token_file_layout(const TokenFileInfo *info, TokenFileLayout *ret_layout) {
    uint64_t limit = (uint64_t)1 << 56;
    if (info->tokens < 0 || info->documents < 0 || info->sentences < 0) return false;
    if ((uint64_t)info->tokens > limit || (uint64_t)info->documents > limit) return false;
    if (info->sentences > info->tokens || (info->marked && info->tokens > UINT32_MAX)) return false;
    TokenFileLayout layout;
    layout.tokens = ((uint64_t)info->tokens * (uint64_t)info->width + 7) / 8 * 8;
    layout.documents = layout.tokens + (uint64_t)info->documents * 8;
    layout.body = layout.documents + ((uint64_t)info->sentences * 4 + 7) / 8 * 8;
    layout.blocks = (layout.body + TOKEN_FILE_BLOCK - 1) / TOKEN_FILE_BLOCK;
    layout.file_size = TOKEN_FILE_HEADER + layout.body + layout.blocks * 8;
    *ret_layout = layout;
    return true;
}

void token_file_header_pack(const TokenFileHeader *header, unsigned char out[TOKEN_FILE_HEADER]) {
    const TokenFileInfo *info = &header->info;
    const SpecialTokens *special = &info->tokenizer.special;
    const int32_t roles[] = {special->pad,  special->cls, special->sep,
                             special->mask, special->unk, special->end};
    memset(out, 0, TOKEN_FILE_HEADER);
    memcpy(out, magic, sizeof magic);
    put32(out + AT_VERSION, info->marked ? TOKEN_FILE_VERSION_MARKED : TOKEN_FILE_VERSION);
    put32(out + AT_ORDER, ORDER_MARK);
    put32(out + AT_WIDTH, (uint32_t)info->width);
    put32(out + AT_KIND, (uint32_t)info->tokenizer.kind);
    put64(out + AT_VOCAB, (uint64_t)info->tokenizer.vocab);
    put64(out + AT_FINGERPRINT, info->tokenizer.fingerprint);
    put64(out + AT_TOKENS, (uint64_t)info->tokens);
    put64(out + AT_DOCUMENTS, (uint64_t)info->documents);
    put32(out + AT_INDEX, (uint32_t)info->index);
    put32(out + AT_COUNT, (uint32_t)info->count);
    for (int i = 0; i < 6; i++) put32(out + AT_SPECIAL + 4 * i, (uint32_t)roles[i]);
    put64(out + AT_BLOCK, TOKEN_FILE_BLOCK);
    put64(out + AT_SUMS, header->sums);
    if (info->marked) put64(out + AT_SENTENCES, (uint64_t)info->sentences);
    put64(out + SUM_AT, checksum(out, SUM_AT, 0));
}

static Status parse_tokenizer(const unsigned char *data, const char *path, TokenizerId *ret_id) {
    uint32_t kind = get32(data + AT_KIND);
    uint64_t vocab = get64(data + AT_VOCAB);
    if (kind > TOKENIZER_WORDLEVEL)
        return FAILED("%s: the header specifies tokenizer kind %u; expected 0 to %d", path, kind,
                      TOKENIZER_WORDLEVEL);
    if (vocab < 1 || vocab > INT32_MAX)
        return FAILED("%s: the header specifies a vocabulary size of %llu; expected 1 to %d", path,
                      (unsigned long long)vocab, INT32_MAX);
    int32_t roles[6];
    for (int i = 0; i < 6; i++) {
        roles[i] = (int32_t)get32(data + AT_SPECIAL + 4 * i);
        if (roles[i] < -1 || roles[i] >= (int64_t)vocab)
            return FAILED("%s: special token %d in the header is outside the vocabulary of %llu tokens", path,
                          roles[i], (unsigned long long)vocab);
    }
    *ret_id = (TokenizerId){.kind = (TokenizerKind)kind,
                            .vocab = (int64_t)vocab,
                            .fingerprint = get64(data + AT_FINGERPRINT),
                            .special = {.pad = roles[0],
                                        .cls = roles[1],
                                        .sep = roles[2],
                                        .mask = roles[3],
                                        .unk = roles[4],
                                        .end = roles[5]}};
    return OK;
}

Status token_file_header_parse(const unsigned char *data, size_t size, const char *path,
                               TokenFileHeader *ret_header) {
    if (size < sizeof magic || memcmp(data, magic, sizeof magic))
        return FAILED("%s: not a token file; expected output of 'weft prepare'", path);
    if (size < TOKEN_FILE_HEADER)
        return FAILED("%s: truncated: has %zu bytes, but the header alone has %d", path, size,
                      TOKEN_FILE_HEADER);
    uint32_t version = get32(data + AT_VERSION);
    if (version != TOKEN_FILE_VERSION && version != TOKEN_FILE_VERSION_MARKED)
        return FAILED(
            "%s: token file version %u is not supported (expected %d or %d); prepare the data again", path,
            version, TOKEN_FILE_VERSION, TOKEN_FILE_VERSION_MARKED);
    if (get32(data + AT_ORDER) != ORDER_MARK)
        return FAILED("%s: wrong byte order; expected little-endian", path);
    if (get64(data + SUM_AT) != checksum(data, SUM_AT, 0))
        return FAILED("%s: the header is damaged (checksum mismatch); prepare the data again", path);
    TokenFileHeader header = {.sums = get64(data + AT_SUMS)};
    TokenFileInfo *info = &header.info;
    TRY(parse_tokenizer(data, path, &info->tokenizer));
    info->width = (int)get32(data + AT_WIDTH);
    info->tokens = (int64_t)get64(data + AT_TOKENS);
    info->documents = (int64_t)get64(data + AT_DOCUMENTS);
    info->marked = version == TOKEN_FILE_VERSION_MARKED;
    info->sentences = info->marked ? (int64_t)get64(data + AT_SENTENCES) : 0;
    info->index = get32(data + AT_INDEX);
    info->count = get32(data + AT_COUNT);
    if (info->width != token_file_token_width(info->tokenizer.vocab) ||
        get64(data + AT_BLOCK) != TOKEN_FILE_BLOCK)
        return FAILED(
            "%s: the header specifies %d bytes per token and blocks of %llu bytes; expected %d and %d", path,
            info->width, (unsigned long long)get64(data + AT_BLOCK),
            token_file_token_width(info->tokenizer.vocab), TOKEN_FILE_BLOCK);
    *ret_header = header;
    return OK;
}
