/* Small vocabularies, and assertions for tokenizers of every kind. */
#ifndef WEFT_TESTS_TOKENIZER_KIT_H
#define WEFT_TESTS_TOKENIZER_KIT_H

#include <zlib.h>

#include "base/fs.h"
#include "base/memory.h"
#include "test.h"
#include "tokenizer/internal.h"

#define KIT_SHARED WEFT_SOURCE_DIR "/../shared/data"
#define KIT_GOLDEN WEFT_TEST_DIR "/tokenizer/golden"

/* vocab.json as an object: the 256 bytes in order, then the given words, up to NULL. */
static inline json_t *kit_vocab(const char *const *words) {
    json_t *vocab = json_object();
    for (int byte = 0; byte < 256; byte++) {
        char spelled[3] = {0};
        bpe_spell((unsigned char)byte, spelled);
        json_object_set_new(vocab, spelled, json_integer(byte));
    }
    for (int i = 0; words && words[i]; i++) json_object_set_new(vocab, words[i], json_integer(256 + i));
    return vocab;
}

static inline void assert_ids(const TokenList *list, const json_t *ids, const char *text) {
    bool same = list->count == json_array_size(ids);
    for (size_t i = 0; same && i < list->count; i++)
        same = list->ids[i] == json_integer_value(json_array_get(ids, i));
    if (same) return;
    print_error("text '%s'\nids     ", text);
    for (size_t i = 0; i < list->count; i++) print_error(" %d", list->ids[i]);
    char *expected = json_dumps(ids, JSON_COMPACT);
    print_error("\nexpected %s\n", expected);
    free(expected);
    fail();
}

static inline void assert_decodes(const Tokenizer *tokenizer, const TokenList *list, const char *text,
                                  size_t size) {
    CLEANUP(mem_freep) char *back = NULL;
    size_t back_size;
    assert_ok(tokenizer_decode(tokenizer, list->ids, list->count, false, &back, &back_size));
    assert_int_equal(back_size, size);
    assert_memory_equal(back, text, size);
}

/* For every n, splitting the text where encoder_cut(first n bytes) allows does not change its ids. */
static inline void assert_cuts(Encoder *encoder, const char *text, size_t size, const TokenList *whole) {
    for (size_t n = 0; n <= size; n++) {
        size_t cut = encoder_cut(encoder, text, n);
        assert_true(cut <= n);
        CLEANUP(token_list_done) TokenList list = {0};
        assert_ok(encoder_add(encoder, text, cut, &list));
        if (cut)
            assert_ok(encoder_add_more(encoder, text + cut, size - cut, &list));
        else
            assert_ok(encoder_add(encoder, text, size, &list));
        /* memcmp must not be given the NULL ids of an empty list. */
        bool same = list.count == whole->count;
        if (same && list.count) same = !memcmp(list.ids, whole->ids, list.count * sizeof *list.ids);
        if (!same)
            fail_msg("ids change when split at %zu, having seen %zu bytes, in '%.*s'", cut, n, (int)size,
                     text);
    }
}

#endif
