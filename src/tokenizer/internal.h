/* What the files of this folder share; nothing outside it includes this.
 *
 * A Tokenizer is a Vocab (ids and spellings), a list of added tokens and a model of one kind behind a
 * table of functions. The core (tokenizer.c, added.c, decode.c) finds added tokens, hands the spans
 * between them to the kind, and repairs what is decoded. A kind fills TokenizerOps:
 *   bytes.c  bpe*.c  wordpiece*.c
 * Loading goes: tokenizer_new, vocab_init and vocab_put (or vocab_read_json) for every token,
 * tokenizer_add for every added token, then tokenizer_finish.
 */
#ifndef WEFT_TOKENIZER_INTERNAL_H
#define WEFT_TOKENIZER_INTERNAL_H

#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "tokenizer/tokenizer.h"

/* ---- bytes that grow ---- */

typedef struct Bytes {
    char *data;
    size_t size, capacity;
} Bytes;

MUST_USE Status bytes_add(Bytes *bytes, const char *data, size_t size);
void bytes_done(Bytes *bytes);

/* ---- hashing ---- */

static inline uint64_t hash_mix(uint64_t a, uint64_t b) {
    a = (a ^ b) * UINT64_C(0x9E3779B97F4A7C15);
    return a ^ a >> 32;
}

/* For tables in memory: quick, and different on machines of another byte order. */
static inline uint64_t hash_text(const char *text, size_t size) {
    uint64_t hash = size, word;
    for (; size >= 8; text += 8, size -= 8) {
        memcpy(&word, text, 8);
        hash = hash_mix(hash, word);
    }
    word = 0;
    memcpy(&word, text, size);
    return hash_mix(hash, word);
}

/* For fingerprints: the same everywhere. Start with FINGERPRINT_START. */
#define FINGERPRINT_START UINT64_C(0xCBF29CE484222325)
uint64_t fingerprint_number(uint64_t hash, uint64_t number);
uint64_t fingerprint_text(uint64_t hash, const char *text, size_t size);

/* ---- characters ---- */

/* What utf8_next gives for a byte that starts no whole character. */
enum { UTF8_BROKEN = 0x110000 };

/* Bytes of the character that starts with this one; 0: none does. */
int utf8_length(unsigned char first);
/* Reads one character of a text of size > 0 and returns its bytes; for a byte that starts none, 1 and
 * UTF8_BROKEN. */
size_t utf8_next(const char *text, size_t size, uint32_t *ret_char);
/* The character that ends before text + size, size > 0, in the same way. */
size_t utf8_previous(const char *text, size_t size, uint32_t *ret_char);
/* Bytes at the end of a text that more bytes could make one character of; 0 to 3. */
size_t utf8_unfinished(const char *text, size_t size);

/* A character that is still incomplete; start with zeroes. */
typedef struct Utf8Repair {
    unsigned char held[4];
    int count, need;
} Utf8Repair;

/* Appends what is whole, with U+FFFD for what is broken. */
MUST_USE Status utf8_repair(Utf8Repair *repair, const char *bytes, size_t size, Bytes *out);
MUST_USE Status utf8_repair_end(Utf8Repair *repair, Bytes *out);

/* As Hugging Face's tokenizers has it (\s and \w of its regular expressions); false for UTF8_BROKEN. */
bool char_is_space(uint32_t c);
bool char_is_word(uint32_t c);

/* ---- vocabulary ---- */

typedef struct VocabEntry {
    size_t start;
    uint32_t size;
    bool taken;
} VocabEntry;

typedef struct Vocab {
    Bytes text;          /* all spellings */
    VocabEntry *entries; /* by id */
    int32_t *slots;      /* open addressing, id + 1; 0: empty */
    size_t mask;
    int32_t count;
} Vocab;

enum { VOCAB_LIMIT = 1 << 24, TOKEN_LIMIT = 1 << 16 };

/* For ids 0 .. count - 1, each of which vocab_put then names once. `from` names the source in messages. */
MUST_USE Status vocab_init(Vocab *ret_vocab, int64_t count, const char *from);
void vocab_done(Vocab *vocab);
/* Refuses ids out of range, ids and spellings that are taken, and spellings longer than TOKEN_LIMIT. */
MUST_USE Status vocab_put(Vocab *vocab, int64_t id, const char *token, size_t size, const char *from);
/* Every id has a spelling. */
MUST_USE Status vocab_check(const Vocab *vocab, const char *from);
int32_t vocab_find(const Vocab *vocab, const char *token, size_t size);
static inline const char *vocab_token(const Vocab *vocab, int32_t id, size_t *ret_size) {
    *ret_size = vocab->entries[id].size;
    return vocab->text.data + vocab->entries[id].start;
}

/* ---- added tokens, with Hugging Face's flags ---- */

typedef struct AddedToken {
    int32_t id;
    bool special;
    bool lstrip, rstrip; /* takes white space before, after it */
    bool single_word;    /* not where a character of a word stands beside it */
    bool normalized;     /* found in what no token without this flag has claimed, normalised as that is */
    const char *name;    /* what is looked for; added_sort fills it in */
    size_t name_size;
} AddedToken;

/* Added tokens sorted by spelling, to be found by narrowing a range byte by byte. */
typedef struct AddedIndex {
    AddedToken *tokens;
    size_t count;
    size_t first[257]; /* where the tokens with each first byte start */
    int only;          /* the first byte of all of them; -1: there are several */
} AddedIndex;

/* ---- the tokenizer ---- */

typedef struct TokenizerOps TokenizerOps;

struct Tokenizer {
    const TokenizerOps *ops;
    void *model; /* the kind's own */
    Vocab vocab;
    AddedToken *added; /* by id once finished */
    size_t added_count, added_capacity;
    AddedIndex literal, normalized;
    Bytes names;               /* of normalized tokens, where the kind changes text */
    bool strips, single_words; /* whether any added token has such a flag */
    unsigned char *special;    /* by id: left out with skip_special */
    SpecialTokens roles;
    uint64_t fingerprint;
};

struct Encoder {
    const Tokenizer *tokenizer;
    EncodeOptions options;
    void *scratch; /* the kind's own */
};

/* What a kind keeps between two tokens while decoding; start with zeroes. */
typedef struct DecodeState {
    size_t count; /* tokens so far that were not left out */
    Bytes held;   /* for the kind: text that the next tokens may still change */
} DecodeState;

/* Text as a kind changes it before it looks for normalized tokens; start with zeroes. */
typedef struct NormalText {
    Bytes text;
    TokenPlace *places; /* by byte: the bytes of the text as it was that it comes from */
    size_t capacity;
} NormalText;

MUST_USE Status normal_text_add(NormalText *normal, const char *bytes, size_t size, TokenPlace place);
void normal_text_done(NormalText *normal);

struct TokenizerOps {
    TokenizerKind kind;
    const char *name;

    /* Optional: fill and free encoder->scratch. */
    Status (*encoder_init)(Encoder *encoder);
    void (*encoder_done)(Encoder *encoder);
    /* Appends the tokens of a span without added tokens, any bytes; `base` is where it starts in the text
     * that places count in. May leave part of its tokens in the list when it fails. */
    Status (*encode)(Encoder *encoder, const char *text, size_t size, size_t base, TokenList *list);
    /* The largest n <= size such that a span that starts with these bytes and goes on in any way has the
     * ids of the first n bytes and then of the rest. */
    size_t (*cut)(const Encoder *encoder, const char *text, size_t size);

    /* Optional: appends the text in which normalized tokens are looked for. `encode` gives it the ids of the
     * text itself. White space that stays white space parts it: what stands before becomes the same whatever
     * follows. */
    Status (*normalise)(const Tokenizer *tokenizer, const char *text, size_t size, NormalText *normal);

    /* Appends the bytes of one token. `id` is in the vocabulary. */
    Status (*decode)(const Tokenizer *tokenizer, DecodeState *state, int32_t id, Bytes *out);
    Status (*decode_end)(const Tokenizer *tokenizer, DecodeState *state, Bytes *out); /* optional */

    /* Optional: writes the kind's files into a directory that exists. */
    Status (*save)(const Tokenizer *tokenizer, const char *dir);
    /* Adds settings and model; kind, vocabulary and added tokens are in already. */
    uint64_t (*fingerprint)(const Tokenizer *tokenizer, uint64_t hash); /* optional */
    void (*free)(void *model);                                          /* optional; also for NULL */
};

extern const TokenizerOps tokenizer_ops_bytes, tokenizer_ops_bpe, tokenizer_ops_wordpiece;

/* Empty but for its kind. */
MUST_USE Status tokenizer_new(Tokenizer **ret_tokenizer, const TokenizerOps *ops);
/* The token's id is in the vocabulary. */
MUST_USE Status tokenizer_add(Tokenizer *tokenizer, AddedToken token, const char *from);
/* Sorts added tokens, finds the roles among special ones by their names, and takes the fingerprint. */
MUST_USE Status tokenizer_finish(Tokenizer *tokenizer, const char *from);

/* ---- encoding ---- */

MUST_USE Status token_list_reserve(TokenList *list, size_t more, bool places);

/* After token_list_reserve. */
static inline void token_list_put(TokenList *list, int32_t id) {
    list->ids[list->count++] = id;
}

static inline void token_list_put_place(TokenList *list, int32_t id, size_t start, size_t end) {
    list->places[list->count] = (TokenPlace){start, end};
    list->ids[list->count++] = id;
}

/* Fills both indices; refuses a token that was added twice. */
MUST_USE Status added_sort(Tokenizer *tokenizer, const char *from);
/* The whole of encoder_add. */
MUST_USE Status added_encode(Encoder *encoder, const char *text, size_t size, TokenList *list);
/* The whole of encoder_cut. */
size_t added_cut(const Encoder *encoder, const char *text, size_t size);

/* ---- tokenizer.json and others ---- */

/* The vocabulary of model.vocab (an object: spelling to id) together with added_tokens (NULL: none); then
 * the added tokens. */
MUST_USE Status vocab_read_json(Tokenizer *tokenizer, const json_t *vocab, const json_t *added,
                                const char *from);
/* The tokens that files beside a vocabulary add to it: an object of ids and, for each, the token with its
 * flags, to be released; untouched when there are none. *ret_from is the file that has them, or would. */
MUST_USE Status added_beside(const char *vocab_path, const json_t *config, const char *config_path,
                             json_t **ret_added, char **ret_from);
/* The list added_tokens of tokenizer.json, sorted by id. */
MUST_USE Status added_to_json(const Tokenizer *tokenizer, json_t **ret_list);
/* NULL or JSON null, or refuses by name what would change results. */
MUST_USE Status json_must_be_null(const json_t *object, const char *key, const char *from);

MUST_USE Status tokenizer_load_bpe_json(Tokenizer **ret_tokenizer, const json_t *json, const char *from);
MUST_USE Status tokenizer_load_bpe_files(Tokenizer **ret_tokenizer, const char *vocab_path,
                                         const char *merges_path);
/* Of a tokenizer.json whose model.type is WordPiece. */
MUST_USE Status tokenizer_load_wordpiece_json(Tokenizer **ret_tokenizer, const json_t *json,
                                              const char *from);
/* Of a vocab.txt; a tokenizer_config.json beside it says whether to keep case and accents. */
MUST_USE Status tokenizer_load_wordpiece_file(Tokenizer **ret_tokenizer, const char *vocab_path);

/* ---- from what was learned ---- */

/* Tokens by id, put together to a third whose spelling is both. */
typedef struct BpeMerge {
    int32_t left, right;
} BpeMerge;

/* Takes the vocabulary over, also on failure. Spellings are GPT-2's (bpe_spell); every one of the 256
 * bytes must have a token. Merges come in order of rank. `special` ids become special added tokens. */
MUST_USE Status tokenizer_new_bpe(Tokenizer **ret_tokenizer, Vocab *vocab, const BpeMerge *merges,
                                  size_t merge_count, const int32_t *special, size_t special_count);
/* Takes the vocabulary over, also on failure. */
MUST_USE Status tokenizer_new_wordpiece(Tokenizer **ret_tokenizer, Vocab *vocab, bool cased,
                                        const int32_t *special, size_t special_count);

/* The character that GPT-2's vocabulary writes for a byte, as UTF-8: 1 or 2 bytes into `out`. */
size_t bpe_spell(unsigned char byte, char out[2]);

/* The size of the first word of a text of size > 0 by GPT-2's pattern: what merges never cross. */
size_t bpe_word(const char *text, size_t size);
/* The largest n <= size such that the words of a text that starts with these bytes and goes on in any way
 * are those of the first n bytes and then those of the rest. */
size_t bpe_cut(const char *text, size_t size);

#endif
