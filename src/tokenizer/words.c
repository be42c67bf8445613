#include "tokenizer/words.h"

#include "tokenizer/bpe.h"
#include "tokenizer/wordpiece.h"

struct Words {
    bool pieces; /* WordPiece; else WordLevel */
    char *prefix;
    int64_t max_chars; /* longer words are unknown */
    int32_t unk;
    Trie *starts, *continuations; /* WordPiece: pieces at the start of a word; those that continue one,
                                     without prefix */
};

void words_free(Words *words) {
    if (!words) return;
    free(words->prefix);
    trie_free(words->starts);
    trie_free(words->continuations);
    free(words);
}

Status words_new(Words **ret_words, const json_t *model, const char *from) {
    const char *type = json_string_value(json_object_get(model, "type")), *prefix = WORDPIECE_PREFIX;
    bool pieces = type ? !strcmp(type, "WordPiece") : !json_object_get(model, "merges");
    if (!pieces && (!type || strcmp(type, "WordLevel") != 0)) return OK;
    CLEANUP(words_freep) Words *words = NULL;
    TRY(mem_new(1, sizeof *words, &words));
    words->pieces = pieces;
    words->max_chars = WORDPIECE_MAX_WORD_CHARS;
    if (pieces) {
        TRY(json_get_string(model, from, "continuing_subword_prefix", &prefix));
        TRY(json_get_int(model, from, "max_input_chars_per_word", 0, INT32_MAX, &words->max_chars));
    }
    TRY(str_dup(prefix, &words->prefix));
    return MOVE(ret_words, words);
}

Status words_finish(Words *words, const Vocab *vocab, const char *unk, const char *from) {
    words->unk = vocab_find_model(vocab, unk, strlen(unk));
    if (words->unk < 0)
        return FAILED("%s: the vocabulary has no '%.60s', which is required for unknown words", from, unk);
    if (!words->pieces) return OK;
    size_t prefix = strlen(words->prefix), start_count = 0, continuation_count = 0;
    CLEANUP(mem_freep) TrieEntry *starts = NULL, *continuations = NULL;
    TRY(mem_new((size_t)vocab->count, sizeof *starts, &starts));
    TRY(mem_new((size_t)vocab->count, sizeof *continuations, &continuations));
    for (int32_t id = 0; id < vocab->count; id++) {
        size_t size;
        const char *text = vocab_token(vocab, id, &size);
        if (vocab->entries[id].outside || size == 0) continue;
        starts[start_count++] = (TrieEntry){text, (uint32_t)size, id};
        if (size > prefix && !memcmp(text, words->prefix, prefix))
            continuations[continuation_count++] = (TrieEntry){text + prefix, (uint32_t)(size - prefix), id};
    }
    TRY(trie_new(&words->starts, starts, start_count));
    return trie_new(&words->continuations, continuations, continuation_count);
}

int32_t words_unk(const Words *words) {
    return words->unk;
}

const char *words_prefix(const Words *words) {
    return words->pieces ? words->prefix : NULL;
}

static bool is_too_long(const Words *words, const char *word, size_t size) {
    int64_t chars = 0;
    for (size_t at = 0; at < size && chars <= words->max_chars; chars++) {
        uint32_t c;
        at += utf8_next(word + at, size - at, &c);
    }
    return chars > words->max_chars;
}

size_t words_tokens(const Words *words, const Vocab *vocab, const char *word, size_t size, int32_t *ids,
                    uint32_t *lengths) {
    size_t count = 0, at = 0;
    int32_t whole = words->pieces ? -1 : vocab_find_model(vocab, word, size);
    if (words->pieces && !is_too_long(words, word, size)) {
        for (size_t part; at < size; at += part) {
            int32_t id = trie_longest(at ? words->continuations : words->starts, word + at, size - at, &part);
            if (id < 0) break;
            if (lengths) lengths[count] = (uint32_t)part;
            ids[count++] = id;
        }
        if (at == size) return count;
    }
    ids[0] = whole >= 0 ? whole : words->unk;
    if (lengths) lengths[0] = (uint32_t)size;
    return 1;
}

/* ---- files ---- */

static const char *type_of(const json_t *component) {
    const char *type = json_string_value(json_object_get(component, "type"));
    return type ? type : "";
}

static bool has_text(const json_t *object, const char *key, const char *text) {
    const json_t *value = json_object_get(object, key);
    return !value || (json_is_string(value) && !strcmp(json_string_value(value), text));
}

bool words_is_bert(const json_t *json) {
    const json_t *normalizer = NULL, *pre = NULL, *decoder = NULL;
    CLEANUP(status_freep) Status status = json_component(json, "normalizer", "", "", &normalizer);
    if (!status) status = json_component(json, "pre_tokenizer", "", "", &pre);
    if (!status) status = json_component(json, "decoder", "", "", &decoder);
    int64_t limit = WORDPIECE_MAX_WORD_CHARS;
    const json_t *model = json_object_get(json, "model");
    if (!status)
        status = json_get_int(model, "", "max_input_chars_per_word", 1, WORDPIECE_WORD_CHARS_LIMIT, &limit);
    return !status && (!normalizer || !strcmp(type_of(normalizer), "BertNormalizer")) &&
           !strcmp(type_of(pre), "BertPreTokenizer") &&
           (!decoder ||
            (!strcmp(type_of(decoder), "WordPiece") && has_text(decoder, "prefix", WORDPIECE_PREFIX))) &&
           has_text(model, "continuing_subword_prefix", WORDPIECE_PREFIX);
}

Status tokenizer_load_words_json(Tokenizer **ret_tokenizer, const json_t *json, const char *from) {
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    const json_t *model = json_object_get(json, "model");
    bool level = !strcmp(type_of(model), "WordLevel");
    TRY(tokenizer_new(&tokenizer, level ? &tokenizer_ops_wordlevel : &tokenizer_ops_pieces));
    Bpe *bpe = NULL;
    TRY(bpe_new(&bpe, 0));
    tokenizer->model = bpe;
    TRY(bpe_pipeline_new(&bpe->pipeline, json, from));
    TRY(vocab_read_json(tokenizer, json_object_get(model, "vocab"), json_object_get(json, "added_tokens"),
                        from));
    TRY(bpe_finish(tokenizer, from));
    tokenizer->roles.unk = words_unk(bpe->pipeline->words);
    TRY(post_processor_read(tokenizer, json, from));
    if (tokenizer->roles.end < 0) TRY(bpe_find_end(tokenizer, from));
    return MOVE(ret_tokenizer, tokenizer);
}
