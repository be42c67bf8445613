/* Declarations shared by the files of src/tokenizer; not included elsewhere.
 *
 * A Tokenizer consists of a Vocab (ids and spellings), a list of added tokens, and the model of one kind
 * behind a table of functions. The core (tokenizer.c, added.c, decode.c) matches added tokens, passes the
 * spans between them to the kind, and repairs decoded UTF-8. Each kind (bytes.c, bpe*.c, wordpiece*.c)
 * provides a TokenizerOps. To load: tokenizer_new; vocab_init and vocab_put (or vocab_read_json) for every
 * token; tokenizer_add for every added token; then tokenizer_finish.
 */
#ifndef WEFT_TOKENIZER_INTERNAL_H
#define WEFT_TOKENIZER_INTERNAL_H

#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "tokenizer/tokenizer.h"

/* ---- byte buffer ---- */

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

/* For in-memory tables: fast, but the value depends on the byte order. */
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

/* For fingerprints (FNV-1a): the same on every platform. Start with FINGERPRINT_START. */
#define FINGERPRINT_START UINT64_C(0xCBF29CE484222325)
uint64_t fingerprint_number(uint64_t hash, uint64_t number);
uint64_t fingerprint_text(uint64_t hash, const char *text, size_t size);

/* ---- characters ---- */

/* The value that utf8_next returns for a byte that does not start a complete character. */
enum { UTF8_INVALID = 0x110000 };

/* Length in bytes of a character that starts with this byte; 0 if no character does. */
int utf8_length(unsigned char first);
/* Reads the first character of a text (size > 0) and returns its length in bytes; for an invalid byte,
 * returns 1 and UTF8_INVALID. */
size_t utf8_next(const char *text, size_t size, uint32_t *ret_char);
/* The same for the last character of the text (size > 0). */
size_t utf8_previous(const char *text, size_t size, uint32_t *ret_char);
/* Length of an incomplete character at the end of the text that more bytes could complete; 0 to 3. */
size_t utf8_unfinished(const char *text, size_t size);

/* State between calls: an incomplete character. Initialize with {0}. */
typedef struct Utf8Repair {
    unsigned char pending[4];
    int count, need;
} Utf8Repair;

/* Appends complete characters to `out`, replacing invalid bytes with U+FFFD; _end flushes an incomplete
 * one. */
MUST_USE Status utf8_repair(Utf8Repair *repair, const char *bytes, size_t size, Bytes *out);
MUST_USE Status utf8_repair_end(Utf8Repair *repair, Bytes *out);

/* \s and \w as in the regular expressions of Hugging Face's tokenizers; false for UTF8_INVALID. */
bool char_is_space(uint32_t c);
bool char_is_word(uint32_t c);

/* ---- vocabulary ---- */

typedef struct VocabEntry {
    size_t start;
    uint32_t size;
    bool taken;
    bool outside; /* an added token that is not in the model's vocabulary */
} VocabEntry;

typedef struct Vocab {
    Bytes text;          /* all spellings, each followed by a NUL */
    VocabEntry *entries; /* indexed by id */
    int32_t *slots;      /* open-addressing hash table of id + 1; 0 is empty */
    size_t mask;
    int32_t count;
} Vocab;

enum { VOCAB_LIMIT = 1 << 24, TOKEN_LIMIT = 1 << 16 };

/* A vocabulary of ids 0 .. count - 1, each to be set once by vocab_put. `from` names the source in errors. */
MUST_USE Status vocab_init(Vocab *ret_vocab, int64_t count, const char *from);
void vocab_done(Vocab *vocab);
/* Fails for an id out of range, a duplicate id or spelling, or a spelling longer than TOKEN_LIMIT bytes. */
MUST_USE Status vocab_put(Vocab *vocab, int64_t id, const char *token, size_t size, const char *from);
/* Fails unless every id has a spelling. */
MUST_USE Status vocab_check(const Vocab *vocab, const char *from);
/* -1 if not found. */
int32_t vocab_find(const Vocab *vocab, const char *token, size_t size);
/* The same without added tokens that are not in the model's vocabulary. */
int32_t vocab_find_model(const Vocab *vocab, const char *token, size_t size);
static inline const char *vocab_token(const Vocab *vocab, int32_t id, size_t *ret_size) {
    *ret_size = vocab->entries[id].size;
    return vocab->text.data + vocab->entries[id].start;
}

/* ---- added tokens ---- */

/* Flags as in Hugging Face's AddedToken. */
typedef struct AddedToken {
    int32_t id;
    bool special;
    bool lstrip, rstrip; /* the match includes the whitespace before it (lstrip) or after it (rstrip) */
    bool single_word;    /* does not match next to a word character */
    bool normalized;     /* matched in normalized text, after the tokens without this flag */
    const char *name;    /* text to match, normalized if the flag is set; filled in by added_sort */
    size_t name_size;
} AddedToken;

/* Added tokens sorted by name; a match narrows a range of them byte by byte. */
typedef struct AddedIndex {
    AddedToken *tokens;
    size_t count;
    size_t first[257]; /* tokens that start with byte b: first[b] .. first[b + 1] - 1 */
    int only;          /* the first byte if all tokens share it, else -1 */
} AddedIndex;

/* ---- the post-processor ---- */

/* From tokenizer.json (post_processor.c); initialize with {0}. */
typedef struct PostProcessor {
    TokenTemplate single, pair;
    bool trim_offsets;     /* offsets exclude the spaces around a token */
    bool add_prefix_space; /* with trim_offsets: they include a single space at the start of a text */
    json_t *json;          /* as in tokenizer.json */
} PostProcessor;

/* ---- the tokenizer ---- */

typedef struct TokenizerOps TokenizerOps;

struct Tokenizer {
    const TokenizerOps *ops;
    void *model; /* owned by the kind */
    Vocab vocab;
    AddedToken *added; /* sorted by id after tokenizer_finish */
    size_t added_count, added_capacity;
    AddedIndex literal, normalized;
    Bytes names;               /* storage for the names of normalized tokens, if the kind has a normalizer */
    bool strips, single_words; /* whether any added token has lstrip or rstrip; whether any has single_word */
    bool normalizes;           /* ops->normalize applies */
    bool prefixes;             /* text is encoded differently at the start and after an added token */
    unsigned char *special;    /* indexed by id: a special token */
    unsigned char *omitted;    /* indexed by id: omitted with skip_special */
    SpecialTokens roles;
    PostProcessor post;
    uint64_t fingerprint;
};

struct Encoder {
    const Tokenizer *tokenizer;
    EncodeOptions options;
    void *scratch; /* owned by the kind */
    /* Set by the core while it encodes: */
    bool continues;                  /* the text continues an earlier one */
    const struct NormalText *normal; /* ops->encode gets parts of this text; NULL: of the original */
    size_t origin;                   /* with `normal`: where the span that was normalized starts */
};

/* Decoding state between tokens; initialize with {0}, free `run`. */
typedef struct DecodeState {
    size_t count;    /* tokens decoded so far, omitted ones excluded */
    size_t stripped; /* characters stripped at the start of the text */
    bool started;    /* past the start, where nothing is stripped any more */
    Bytes run;       /* the latest byte tokens, whose text depends on the byte tokens that follow */
} DecodeState;

/* Normalized text, in which normalized added tokens are matched; initialize with {0}. */
typedef struct NormalText {
    Bytes text;
    TokenOffset *offsets; /* per byte: the bytes of the original text it came from */
    size_t capacity;
    bool plain; /* without offsets */
} NormalText;

MUST_USE Status normal_text_add(NormalText *normal, const char *bytes, size_t size, TokenOffset offset);
void normal_text_done(NormalText *normal);

struct TokenizerOps {
    TokenizerKind kind;
    const char *name;

    /* Optional: fill and free encoder->scratch. */
    Status (*encoder_init)(Encoder *encoder);
    void (*encoder_done)(Encoder *encoder);
    /* Appends the tokens of a span (any bytes) without added tokens. `base` is the span's offset in the
     * text to which token offsets refer. On failure some tokens may remain in the list. */
    Status (*encode)(Encoder *encoder, const char *text, size_t size, size_t base, TokenList *list);
    /* The largest n <= size for which encoding the first n bytes of a span and its remainder separately
     * yields the same ids as encoding them together, whatever follows these `size` bytes. */
    size_t (*cut)(const Encoder *encoder, const char *text, size_t size);

    /* Optional: appends the normalized text, in which normalized added tokens are matched; `encode` then gets
     * parts of it, with encoder->normal set. For WordPiece, whitespace that remains whitespace is a boundary:
     * how the text before it is normalized does not depend on what follows. */
    Status (*normalize)(const Tokenizer *tokenizer, const char *text, size_t size, NormalText *normal);

    /* Appends the bytes of one token. `id` is valid. */
    Status (*decode)(const Tokenizer *tokenizer, DecodeState *state, int32_t id, Bytes *out);
    /* Optional: appends what `decode` held back until the last token. */
    Status (*decode_end)(const Tokenizer *tokenizer, DecodeState *state, Bytes *out);

    /* Optional: writes the kind's files to an existing directory. */
    Status (*save)(const Tokenizer *tokenizer, const char *dir);
    /* Extends the hash, which already covers kind, vocabulary and added tokens, by settings and model. */
    uint64_t (*fingerprint)(const Tokenizer *tokenizer, uint64_t hash); /* optional */
    void (*free)(void *model);                                          /* optional; accepts NULL */
};

extern const TokenizerOps tokenizer_ops_bytes, tokenizer_ops_bpe, tokenizer_ops_wordpiece;
/* Models without merges in a pipeline (words.h); tokenizer_ops_wordpiece is BERT's. */
extern const TokenizerOps tokenizer_ops_wordlevel, tokenizer_ops_pieces;

/* An empty tokenizer of the given kind. */
MUST_USE Status tokenizer_new(Tokenizer **ret_tokenizer, const TokenizerOps *ops);
/* Adds an added token, whose id must be in the vocabulary. */
MUST_USE Status tokenizer_add(Tokenizer *tokenizer, AddedToken token, const char *from);
/* Sorts the added tokens, assigns roles to special tokens by their usual names, computes the fingerprint. */
MUST_USE Status tokenizer_finish(Tokenizer *tokenizer, const char *from);

/* ---- encoding ---- */

MUST_USE Status token_list_reserve(TokenList *list, size_t more, bool offsets);

/* Callers reserve space with token_list_reserve first. */
static inline void token_list_put(TokenList *list, int32_t id) {
    list->ids[list->count++] = id;
}

static inline void token_list_put_offset(TokenList *list, int32_t id, size_t start, size_t end) {
    list->offsets[list->count] = (TokenOffset){start, end};
    list->ids[list->count++] = id;
}

/* Builds both indices; fails if a token was added twice. */
MUST_USE Status added_sort(Tokenizer *tokenizer, const char *from);
/* The text that an id stands for: an added token's name, or the spelling in the vocabulary. */
const char *added_name(const Tokenizer *tokenizer, int32_t id, size_t *ret_size);
/* Implements encoder_add for tokenizers with added tokens. */
MUST_USE Status added_encode(Encoder *encoder, const char *text, size_t size, TokenList *list);
/* Implements encoder_cut for tokenizers with added tokens. */
size_t added_cut(const Encoder *encoder, const char *text, size_t size);

/* ---- files ---- */

/* Fills the vocabulary from model.vocab (an object from spelling to id) and added_tokens (may be NULL),
 * then adds the added tokens. */
MUST_USE Status vocab_read_json(Tokenizer *tokenizer, const json_t *vocab, const json_t *added,
                                const char *from);
/* Added tokens from the files next to a vocabulary: *ret_added is an object from id to the token with its
 * flags, which the caller releases, and stays untouched if there are none. *ret_from is the file they are
 * read from, for errors; the caller frees it. */
MUST_USE Status added_from_files(const char *vocab_path, const json_t *config, const char *config_path,
                                 json_t **ret_added, char **ret_from);
/* The added_tokens list of tokenizer.json, sorted by id; the caller releases it. */
MUST_USE Status added_to_json(const Tokenizer *tokenizer, json_t **ret_list);
/* Gets a component of tokenizer.json ("normalizer", "pre_tokenizer" or "decoder"). A Sequence of one is
 * replaced by its element. *ret_component is NULL if the component is absent, null or an empty Sequence of
 * normalizers; any other Sequence is an error that lists its types and `expected`. */
MUST_USE Status json_component(const json_t *json, const char *key, const char *expected, const char *from,
                               const json_t **ret_component);
/* The types of a list of components, separated by commas; the caller frees the text. */
MUST_USE Status json_component_types(const json_t *list, char **ret_types);

/* Sets the tokenizer's post-processor from the root of tokenizer.json. The vocabulary must be complete. */
MUST_USE Status post_processor_read(Tokenizer *tokenizer, const json_t *json, const char *from);
/* The same from the component itself; takes ownership of it, even on failure. */
MUST_USE Status post_processor_set(Tokenizer *tokenizer, json_t *component, const char *from);
/* A TemplateProcessing with these templates. */
MUST_USE Status post_processor_set_template(Tokenizer *tokenizer, const TokenTemplate *single,
                                            const TokenTemplate *pair, const char *from);
/* Sets BERT's templates, or no post-processor if the vocabulary lacks [CLS] or [SEP]. */
MUST_USE Status post_processor_set_bert(Tokenizer *tokenizer, const char *from);
void post_processor_done(PostProcessor *post);
/* Trims the offsets of the tokens of one text, which start at index `first` of the list. */
void post_processor_trim(const Tokenizer *tokenizer, const char *text, size_t size, size_t first,
                         TokenList *list);

MUST_USE Status tokenizer_load_bpe_json(Tokenizer **ret_tokenizer, const json_t *json, const char *from);
MUST_USE Status tokenizer_load_bpe_files(Tokenizer **ret_tokenizer, const char *vocab_path,
                                         const char *merges_path);
/* From a tokenizer.json whose model.type is WordPiece. */
MUST_USE Status tokenizer_load_wordpiece_json(Tokenizer **ret_tokenizer, const json_t *json,
                                              const char *from);
/* From a vocab.txt; case and accent settings come from a tokenizer_config.json in the same directory. */
MUST_USE Status tokenizer_load_wordpiece_file(Tokenizer **ret_tokenizer, const char *vocab_path);

/* ---- from a trainer ---- */

/* Ids of two tokens that merge into the token whose spelling is their concatenation. */
typedef struct BpeMerge {
    int32_t left, right;
} BpeMerge;

/* Takes ownership of the vocabulary, even on failure. Spellings are GPT-2's (bpe_spell), and each of the 256
 * bytes must have a token. Merges are in order of rank. The ids in `special` become special added tokens. */
MUST_USE Status tokenizer_new_bpe(Tokenizer **ret_tokenizer, Vocab *vocab, const BpeMerge *merges,
                                  size_t merge_count, const int32_t *special, size_t special_count);
/* Takes ownership of the vocabulary, even on failure. */
MUST_USE Status tokenizer_new_wordpiece(Tokenizer **ret_tokenizer, Vocab *vocab, bool cased,
                                        const int32_t *special, size_t special_count);

/* Writes the character that stands for a byte in GPT-2's vocabulary as UTF-8; returns its 1 or 2 bytes. */
size_t bpe_spell(unsigned char byte, char out[2]);

/* Size of the first word of a text (size > 0) by GPT-2's pre-tokenizer. Merges never cross word
 * boundaries. */
size_t bpe_word(const char *text, size_t size);
/* The largest n <= size for which splitting the first n bytes and the remaining text separately yields the
 * same words as splitting them together, whatever follows these `size` bytes. */
size_t bpe_cut(const char *text, size_t size);

/* ---- bytes ---- */

MUST_USE Status bytes_save(const Tokenizer *tokenizer, const char *dir);
/* Whether a tokenizer.json describes the byte vocabulary, and if so, whether with BERT's special tokens. */
bool bytes_recognize(const json_t *json, bool *ret_bert);

#endif
