/* Builds vocabularies from word counts. Ids are assigned in the order of Hugging Face's trainers: special
 * tokens, alphabet by code point, then merges in training order.
 *
 *   BPE        the alphabet is the 256 bytes as GPT-2's vocabulary spells them
 *   WordPiece  the alphabet is the most frequent characters of the text. Each has a token for the start of
 *              a word and, if it occurs inside one, a second token that starts with ##. Merges are trained
 *              as for BPE, but only the resulting tokens are kept. Characters outside the alphabet are
 *              skipped.
 *
 * Hugging Face's trainer numbers the ## characters in hash table order; here they follow the alphabet by code
 * point. WordPiece results therefore differ where equally frequent pairs compete.
 */
#include "tokenizer/learn_words.h"

#include "tokenizer/internal.h"
#include "tokenizer/learn_merge.h"

#define CONTINUATION_PREFIX "##"
enum { PIECE_SIZE = sizeof CONTINUATION_PREFIX + 4 };

/* Working state; initialize spec and words, everything else to 0. */
typedef struct Builder {
    const LearnSpec *spec;
    WordTable *words;
    WordTable tokens;
    int32_t *symbols;
    SymbolWord *symbol_words;
    size_t symbol_count, word_count;
    LearnedMerge *merges;
    size_t merge_count;
} Builder;

static void builder_done(Builder *builder) {
    word_table_done(&builder->tokens);
    free(builder->symbols);
    free(builder->symbol_words);
    free(builder->merges);
}

static Status add_special(Builder *builder) {
    for (int i = 0; i < builder->spec->special_count; i++) {
        const char *token = builder->spec->special[i];
        TRY(word_table_add(&builder->tokens, token, strlen(token), 0, NULL));
    }
    return OK;
}

/* Allocates symbols for all words, at most one per byte. */
static Status reserve_symbols(Builder *builder) {
    size_t parts = builder->words->count + builder->words->used / PART_SYMBOLS;
    TRY(mem_new(builder->words->used, sizeof *builder->symbols, &builder->symbols));
    return mem_new(parts, sizeof *builder->symbol_words, &builder->symbol_words);
}

/* Records the symbols from `at` on as a word, or drops them if there are no pairs. */
static void end_word(Builder *builder, size_t at, int64_t count) {
    size_t size = builder->symbol_count - at;
    if (size < 2) builder->symbol_count = at;
    for (size_t part; size >= 2 && at < builder->symbol_count; at += part) {
        size_t left = builder->symbol_count - at;
        part = left > PART_SYMBOLS ? PART_SYMBOLS : left;
        builder->symbol_words[builder->word_count++] =
            (SymbolWord){.at = at, .size = (uint32_t)part, .joined = part < left, .count = count};
    }
}

static Status train_merges(Builder *builder, const char *prefix, LearnProgress progress, void *context) {
    MergeSpec spec = {.tokens = &builder->tokens,
                      .prefix = prefix,
                      .vocab = builder->spec->vocab,
                      .min_count = builder->spec->min_count,
                      .progress = progress,
                      .context = context};
    word_table_done(builder->words);
    return learn_merges(&spec, builder->symbols, builder->symbol_words, builder->word_count, &builder->merges,
                        &builder->merge_count);
}

static Status make_vocab(const Builder *builder, Vocab *ret_vocab) {
    static const char from[] = "the trained vocabulary";
    const WordTable *tokens = &builder->tokens;
    CLEANUP(vocab_done) Vocab vocab = {0};
    TRY(vocab_init(&vocab, (int64_t)tokens->count, from));
    for (size_t i = 0; i < tokens->count; i++)
        TRY(vocab_put(&vocab, (int64_t)i, word_bytes(tokens, i), tokens->words[i].size, from));
    return MOVE(ret_vocab, vocab);
}

/* Special tokens come first, so special token i has id i. */
static Status special_ids(const Builder *builder, int32_t **ret_ids) {
    int32_t *ids = NULL;
    TRY(mem_new((size_t)builder->spec->special_count, sizeof *ids, &ids));
    for (int i = 0; i < builder->spec->special_count; i++) ids[i] = i;
    *ret_ids = ids;
    return OK;
}

/* ---- BPE ---- */

static int compare_spelling(const void *a, const void *b) {
    return memcmp(a, b, 2);
}

/* Adds the spellings of all bytes by code point, which is the order of their UTF-8; bytes[b] is b's token. */
static Status add_bytes(Builder *builder, int32_t bytes[256]) {
    char sorted[256][2] = {{0}};
    for (int b = 0; b < 256; b++) bpe_spell((unsigned char)b, sorted[b]);
    qsort(sorted, 256, sizeof *sorted, compare_spelling);
    for (int i = 0; i < 256; i++)
        TRY(word_table_add(&builder->tokens, sorted[i], sorted[i][1] ? 2 : 1, 0, NULL));
    for (int b = 0; b < 256; b++) {
        char spelling[2];
        size_t size = bpe_spell((unsigned char)b, spelling);
        bytes[b] = (int32_t)word_table_find(&builder->tokens, spelling, size);
    }
    return OK;
}

static void bytes_to_symbols(Builder *builder, const int32_t bytes[256]) {
    for (size_t w = 0; w < builder->words->count; w++) {
        const Word *word = &builder->words->words[w];
        const char *text = word_bytes(builder->words, w);
        size_t at = builder->symbol_count;
        for (uint32_t i = 0; i < word->size; i++)
            builder->symbols[builder->symbol_count++] = bytes[(unsigned char)text[i]];
        end_word(builder, at, word->count);
    }
}

Status learn_bpe(const LearnSpec *spec, WordTable *words, LearnProgress progress, void *context,
                 Tokenizer **ret_tokenizer) {
    CLEANUP(builder_done) Builder builder = {.spec = spec, .words = words};
    int32_t bytes[256];
    TRY(add_special(&builder));
    TRY(add_bytes(&builder, bytes));
    TRY(reserve_symbols(&builder));
    bytes_to_symbols(&builder, bytes);
    TRY(train_merges(&builder, "", progress, context));
    CLEANUP(mem_freep) BpeMerge *merges = NULL;
    TRY(mem_new(builder.merge_count, sizeof *merges, &merges));
    for (size_t i = 0; i < builder.merge_count; i++)
        merges[i] = (BpeMerge){builder.merges[i].left, builder.merges[i].right};
    CLEANUP(mem_freep) int32_t *special = NULL;
    TRY(special_ids(&builder, &special));
    Vocab vocab;
    TRY(make_vocab(&builder, &vocab));
    return tokenizer_new_bpe(ret_tokenizer, &vocab, merges, builder.merge_count, special,
                             (size_t)spec->special_count);
}

/* ---- WordPiece ---- */

typedef struct Char {
    const char *text;
    uint32_t size;
    int64_t count;
} Char;

static int compare_chars(const Char *a, const Char *b) {
    int order = memcmp(a->text, b->text, a->size < b->size ? a->size : b->size);
    return order ? order : (int)a->size - (int)b->size;
}

static int by_code_point(const void *a, const void *b) {
    return compare_chars(a, b);
}

static int by_count(const void *a, const void *b) {
    const Char *one = a, *two = b;
    if (one->count != two->count) return one->count > two->count ? -1 : 1;
    return compare_chars(one, two);
}

/* The table's entries by code point. Their text belongs to the table. */
static Status list_chars(const WordTable *table, Char **ret_letters) {
    Char *chars = NULL;
    TRY(mem_new(table->count, sizeof *chars, &chars));
    for (size_t i = 0; i < table->count; i++)
        chars[i] = (Char){word_bytes(table, i), table->words[i].size, table->words[i].count};
    qsort(chars, table->count, sizeof *chars, by_code_point);
    *ret_letters = chars;
    return OK;
}

/* Counts characters. With `continuation`, only those in the alphabet (with a token of the same spelling)
 * that are not the first of a word. */
static Status count_chars(const Builder *builder, bool continuation, WordTable *chars) {
    for (size_t w = 0; w < builder->words->count; w++) {
        const Word *word = &builder->words->words[w];
        const char *text = word_bytes(builder->words, w);
        uint32_t unused;
        for (size_t at = 0, size; at < word->size; at += size) {
            size = utf8_next(text + at, word->size - at, &unused);
            if (continuation && (at == 0 || word_table_find(&builder->tokens, text + at, size) == UINT32_MAX))
                continue;
            TRY(word_table_add(chars, text + at, size, word->count, NULL));
        }
    }
    return OK;
}

static Status add_alphabet(Builder *builder) {
    CLEANUP(word_table_done) WordTable table = {0};
    TRY(count_chars(builder, false, &table));
    CLEANUP(mem_freep) Char *chars = NULL;
    TRY(list_chars(&table, &chars));
    size_t kept = table.count, limit = (size_t)builder->spec->alphabet_limit;
    if (kept > limit) {
        qsort(chars, kept, sizeof *chars, by_count);
        qsort(chars, kept = limit, sizeof *chars, by_code_point);
    }
    for (size_t i = 0; i < kept; i++)
        TRY(word_table_add(&builder->tokens, chars[i].text, chars[i].size, 0, NULL));
    return OK;
}

/* Spells the continuation token of a character ("##x"); returns its size. */
static size_t spell_continuation(const char *character, size_t size, char piece[PIECE_SIZE]) {
    memcpy(piece, CONTINUATION_PREFIX, strlen(CONTINUATION_PREFIX));
    memcpy(piece + strlen(CONTINUATION_PREFIX), character, size);
    return strlen(CONTINUATION_PREFIX) + size;
}

static Status add_continuations(Builder *builder) {
    CLEANUP(word_table_done) WordTable table = {0};
    TRY(count_chars(builder, true, &table));
    CLEANUP(mem_freep) Char *chars = NULL;
    TRY(list_chars(&table, &chars));
    for (size_t i = 0; i < table.count; i++) {
        char piece[PIECE_SIZE];
        size_t size = spell_continuation(chars[i].text, chars[i].size, piece);
        TRY(word_table_add(&builder->tokens, piece, size, 0, NULL));
    }
    return OK;
}

static void chars_to_symbols(Builder *builder) {
    for (size_t w = 0; w < builder->words->count; w++) {
        const Word *word = &builder->words->words[w];
        const char *text = word_bytes(builder->words, w);
        size_t begin = builder->symbol_count;
        uint32_t unused;
        for (size_t at = 0, size; at < word->size; at += size) {
            size = utf8_next(text + at, word->size - at, &unused);
            uint32_t token = word_table_find(&builder->tokens, text + at, size);
            char piece[PIECE_SIZE];
            if (token != UINT32_MAX && at > 0)
                token = word_table_find(&builder->tokens, piece, spell_continuation(text + at, size, piece));
            if (token != UINT32_MAX) builder->symbols[builder->symbol_count++] = (int32_t)token;
        }
        end_word(builder, begin, word->count);
    }
}

Status learn_wordpiece(const LearnSpec *spec, WordTable *words, LearnProgress progress, void *context,
                       Tokenizer **ret_tokenizer) {
    CLEANUP(builder_done) Builder builder = {.spec = spec, .words = words};
    TRY(add_special(&builder));
    TRY(add_alphabet(&builder));
    size_t alphabet = builder.tokens.count - (size_t)spec->special_count;
    TRY(add_continuations(&builder));
    if ((int64_t)builder.tokens.count > spec->vocab)
        return USAGE("a vocabulary of %lld tokens is too small for this text: %d special tokens, %zu "
                     "characters and %zu continuation characters need %zu; use a larger vocabulary or a "
                     "smaller alphabet",
                     (long long)spec->vocab, spec->special_count, alphabet,
                     builder.tokens.count - alphabet - (size_t)spec->special_count, builder.tokens.count);
    TRY(reserve_symbols(&builder));
    chars_to_symbols(&builder);
    TRY(train_merges(&builder, CONTINUATION_PREFIX, progress, context));
    CLEANUP(mem_freep) int32_t *special = NULL;
    TRY(special_ids(&builder, &special));
    Vocab vocab;
    TRY(make_vocab(&builder, &vocab));
    return tokenizer_new_wordpiece(ret_tokenizer, &vocab, spec->cased, special, (size_t)spec->special_count);
}
