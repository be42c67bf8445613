/* Tokenizer trainers: each thread counts words in its own table; at the end the tables are merged. The result
 * depends only on the counts, not on the order of the words.
 *
 * Memory grows with the number of distinct words, not with the size of the text.
 */
#include "tokenizer/learn.h"

#include <omp.h>

#include "base/format.h"
#include "tokenizer/bert_pretokenize.h"
#include "tokenizer/internal.h"
#include "tokenizer/learn_words.h"

enum { SLOTS_LIMIT = 4096 };

/* Per-thread state. */
typedef struct LearnSlot {
    WordTable words;
    BertPretokenizer bert;
    char padding[64]; /* keeps slots of different threads on separate cache lines */
} LearnSlot;

struct Learner {
    LearnSpec spec;
    char **special; /* copies that spec.special points to */
    BertChars *chars;
    LearnSlot *slots;
    int slot_count;
};

const char *const *learn_default_special(TokenizerKind kind, int *ret_count) {
    static const char *const bpe[] = {"<|endoftext|>"};
    static const char *const wordpiece[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    *ret_count = kind == TOKENIZER_BPE ? 1 : 5;
    return kind == TOKENIZER_BPE ? bpe : wordpiece;
}

/* ---- construction ---- */

static Status check_special(const LearnSpec *spec) {
    bool unknown = false;
    for (int i = 0; i < spec->special_count; i++) {
        const char *token = spec->special[i];
        size_t size = strlen(token);
        if (size == 0) return USAGE("a special token is empty");
        if (size > TOKEN_LIMIT) return USAGE("a special token of %zu bytes is too long", size);
        uint32_t c;
        for (size_t at = 0; at < size;) {
            at += utf8_next(token + at, size - at, &c);
            if (c == UTF8_INVALID) return USAGE("special token %d is not valid UTF-8", i + 1);
        }
        size_t line = strcspn(token, "\r\n");
        if (spec->kind == TOKENIZER_WORDPIECE && line < size)
            return USAGE("special token '%.*s...' contains a line break; vocab.txt has one token per line",
                         (int)line, token);
        for (int other = 0; other < i; other++)
            if (strcmp(spec->special[other], token) == 0)
                return USAGE("special token '%s' is given twice", token);
        unknown |= strcmp(token, "[UNK]") == 0;
    }
    if (spec->kind == TOKENIZER_WORDPIECE && !unknown)
        return USAGE("WordPiece needs the special token [UNK] for words that cannot be split into pieces");
    return OK;
}

static Status check_spec(const LearnSpec *spec) {
    if (spec->kind != TOKENIZER_BPE && spec->kind != TOKENIZER_WORDPIECE)
        return USAGE("a tokenizer of this kind cannot be trained; expected bpe or wordpiece");
    TRY(check_special(spec));
    int64_t least = spec->special_count + (spec->kind == TOKENIZER_BPE ? 256 : 1);
    if (spec->vocab < least && spec->kind == TOKENIZER_BPE)
        return USAGE("a vocabulary of %lld tokens is too small: 256 bytes and %d special token%s need %lld",
                     (long long)spec->vocab, spec->special_count, PLURAL(spec->special_count),
                     (long long)least);
    if (spec->vocab < least)
        return USAGE("a vocabulary of %lld tokens is too small for %d special token%s",
                     (long long)spec->vocab, spec->special_count, PLURAL(spec->special_count));
    if (spec->vocab > VOCAB_LIMIT)
        return USAGE("a vocabulary of %lld tokens is too large; at most %d are supported",
                     (long long)spec->vocab, VOCAB_LIMIT);
    if (spec->min_count < 1)
        return USAGE("the minimum count is %lld; expected 1 or more", (long long)spec->min_count);
    if (spec->kind == TOKENIZER_WORDPIECE && spec->alphabet_limit < 1)
        return USAGE("the alphabet limit is %lld; expected 1 or more", (long long)spec->alphabet_limit);
    if (spec->threads < 0 || spec->threads > SLOTS_LIMIT)
        return USAGE("the number of threads is %d; expected 1 to %d", spec->threads, SLOTS_LIMIT);
    return OK;
}

static Status copy_special(Learner *learner) {
    LearnSpec *spec = &learner->spec;
    TRY(mem_new((size_t)spec->special_count, sizeof *learner->special, &learner->special));
    for (int i = 0; i < spec->special_count; i++) TRY(str_dup(spec->special[i], &learner->special[i]));
    spec->special = (const char *const *)learner->special;
    return OK;
}

static Status make_slots(Learner *learner) {
    int count = learner->spec.threads ? learner->spec.threads : omp_get_max_threads();
    TRY(mem_new((size_t)count, sizeof *learner->slots, &learner->slots));
    learner->slot_count = count;
    if (learner->spec.kind == TOKENIZER_BPE) return OK;
    bool cased = learner->spec.cased;
    TRY(bert_chars_new(&learner->chars, &(BertSettings){.clean_text = true,
                                                        .handle_chinese_chars = true,
                                                        .strip_accents = !cased,
                                                        .lowercase = !cased}));
    for (int i = 0; i < count; i++)
        TRY(bert_pretokenizer_init(&learner->slots[i].bert, learner->chars, LEARN_WORD_LIMIT, false));
    return OK;
}

Status learner_new(Learner **ret_learner, const LearnSpec *spec) {
    CLEANUP(learner_freep) Learner *learner = NULL;
    TRY(mem_new(1, sizeof *learner, &learner));
    learner->spec = *spec;
    if (!spec->special)
        learner->spec.special = learn_default_special(spec->kind, &learner->spec.special_count);
    TRY(check_spec(&learner->spec));
    TRY(copy_special(learner));
    TRY(make_slots(learner));
    return MOVE(ret_learner, learner);
}

void learner_free(Learner *learner) {
    if (!learner) return;
    for (int i = 0; i < learner->slot_count; i++) {
        word_table_done(&learner->slots[i].words);
        if (learner->chars) bert_pretokenizer_done(&learner->slots[i].bert);
    }
    for (int i = 0; learner->special && i < learner->spec.special_count; i++) free(learner->special[i]);
    free(learner->special);
    bert_chars_free(learner->chars);
    free(learner->slots);
    free(learner);
}

/* ---- counting ---- */

int learner_slots(const Learner *learner) {
    return learner->slot_count;
}

size_t learner_cut(const Learner *learner, const char *text, size_t size) {
    return learner->chars ? bert_pretokenizer_cut(learner->chars, text, size) : bpe_cut(text, size);
}

static Status add_bpe(LearnSlot *slot, const char *text, size_t size) {
    for (size_t at = 0, length; at < size; at += length) {
        length = bpe_word(text + at, size - at);
        TRY(word_table_add(&slot->words, text + at, length, 1, NULL));
    }
    return OK;
}

static Status add_wordpiece(LearnSlot *slot, const char *text, size_t size) {
    BertWord word;
    bert_pretokenizer_start(&slot->bert, text, size);
    while (bert_pretokenizer_next(&slot->bert, &word))
        TRY(word_table_add(&slot->words, word.text, word.size, 1, NULL));
    return OK;
}

Status learner_add(Learner *learner, int slot, const char *text, size_t size) {
    LearnSlot *mine = &learner->slots[slot];
    return learner->chars ? add_wordpiece(mine, text, size) : add_bpe(mine, text, size);
}

/* ---- training ---- */

Status learner_finish(Learner *learner, LearnProgress progress, void *context, Tokenizer **ret_tokenizer) {
    WordTable *words = &learner->slots[0].words;
    for (int i = 1; i < learner->slot_count; i++) {
        TRY(word_table_merge(words, &learner->slots[i].words));
        word_table_done(&learner->slots[i].words);
    }
    if (words->count == 0) return FAILED("the text contains no words to train on");
    return learner->chars ? learn_wordpiece(&learner->spec, words, progress, context, ret_tokenizer)
                          : learn_bpe(&learner->spec, words, progress, context, ret_tokenizer);
}
