/* BPE tokenizers with a pipeline other than GPT-2's: Llama, Mistral, Qwen, SmolLM and their kin.
 *
 * Symbols are the bytes of a word if the pre-tokenizer ends in ByteLevel, the decoder is ByteLevel and every
 * byte has a token. Otherwise they are its characters, as in SentencePiece: spaces are spelled "▁",
 * characters that are not in the vocabulary become the unknown token or byte tokens such as <0xE2>, and the
 * whole text may be one word. Where no token has a "▁" after another character, no merge crosses that place,
 * so the word is split there; this makes it short enough for the encoder's cache, and text can be encoded in
 * parts. */
#include "tokenizer/bpe.h"
#include "tokenizer/wordpiece.h"
#include "tokenizer/words.h"

void bpe_pipeline_free(BpePipeline *pipeline) {
    if (!pipeline) return;
    normalizer_free(pipeline->normalizer);
    pretokenizer_free(pipeline->pre);
    bpe_decoder_free(pipeline->decoder);
    words_free(pipeline->words);
    json_decref(pipeline->json);
    free(pipeline);
}

/* ---- reading ---- */

bool bpe_spells_bytes(const json_t *json) {
    const json_t *vocab = json_object_get(json_object_get(json, "model"), "vocab");
    for (int byte = 0; vocab && byte < 256; byte++) {
        char spelled[2];
        if (!json_object_getn(vocab, spelled, bpe_spell((unsigned char)byte, spelled))) return false;
    }
    return true;
}

/* Whether the decoder is ByteLevel, possibly in a Sequence of one, or absent. */
static bool is_byte_decoder(const json_t *decoder) {
    for (;;) {
        if (!decoder || json_is_null(decoder)) return true;
        const char *type = json_string_value(json_object_get(decoder, "type"));
        const json_t *list = json_object_get(decoder, "decoders");
        if (!type || strcmp(type, "Sequence") != 0) return type && !strcmp(type, "ByteLevel");
        if (json_array_size(list) != 1) return false;
        decoder = json_array_get(list, 0);
    }
}

/* Keeps what is needed to write the tokenizer again. */
static Status keep_json(BpePipeline *pipeline, const json_t *json, const char *from) {
    static const char *const keys[] = {"normalizer", "pre_tokenizer", "decoder"};
    static const char *const options[] = {"unk_token", "fuse_unk", "byte_fallback", "ignore_merges"};
    const json_t *given = json_object_get(json, "model");
    json_t *model = pipeline->words ? json_clone(given)
                                    : json_pack("{s:s, s:n, s:n, s:n}", "type", "BPE", "dropout",
                                                "continuing_subword_prefix", "end_of_word_suffix");
    json_object_del(model, "vocab"); /* BPE's has none */
    pipeline->json = json_pack("{s:o}", "model", model);
    int failed = !pipeline->json;
    for (size_t i = 0; !failed && !pipeline->words && i < sizeof options / sizeof *options; i++) {
        const json_t *value = json_object_get(given, options[i]);
        json_t *missing = i == 0 ? json_null() : json_false();
        failed = json_object_set_new(model, options[i], value ? json_clone_deep(value) : missing);
    }
    for (size_t i = 0; !failed && i < sizeof keys / sizeof *keys; i++) {
        const json_t *value = json_object_get(json, keys[i]);
        failed = json_object_set_new(pipeline->json, keys[i], value ? json_clone_deep(value) : json_null());
    }
    return failed ? FAILED("%s: out of memory", from) : OK;
}

static Status hash_json(BpePipeline *pipeline) {
    static const char *const keys[] = {"normalizer", "pre_tokenizer", "model"};
    uint64_t hash = FINGERPRINT_START;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        CLEANUP(mem_freep) char *text = NULL;
        TRY(json_text(json_object_get(pipeline->json, keys[i]),
                      JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY, &text));
        hash = fingerprint_text(hash, text, strlen(text));
    }
    pipeline->hash = hash;
    return OK;
}

Status bpe_pipeline_new(BpePipeline **ret_pipeline, const json_t *json, const char *from) {
    CLEANUP(bpe_pipeline_freep) BpePipeline *pipeline = NULL;
    const json_t *model = json_object_get(json, "model");
    TRY(mem_new(1, sizeof *pipeline, &pipeline));
    TRY(normalizer_new(&pipeline->normalizer, json_object_get(json, "normalizer"), from));
    TRY(pretokenizer_new(&pipeline->pre, json_object_get(json, "pre_tokenizer"), from));
    TRY(words_new(&pipeline->words, model, from));
    const json_t *decoder = json_object_get(json, "decoder");
    pipeline->chars = pipeline->words || !pretokenizer_is_byte_level(pipeline->pre) ||
                      !is_byte_decoder(decoder) || !bpe_spells_bytes(json);
    if (pipeline->chars) {
        pretokenizer_spell_bytes(pipeline->pre);
        TRY(bpe_decoder_new(&pipeline->decoder, decoder, from));
    }
    TRY(json_get_bool(model, from, "fuse_unk", &pipeline->fuse_unk));
    TRY(json_get_bool(model, from, "byte_fallback", &pipeline->byte_fallback));
    TRY(keep_json(pipeline, json, from));
    TRY(hash_json(pipeline));
    return MOVE(ret_pipeline, pipeline);
}

/* ---- derived tables ---- */

/* Whether a token has the character for a space after another character. */
static bool has_inner_space(const BpePipeline *pipeline, const char *token, size_t size) {
    size_t space = pipeline->space_size;
    bool inside = false;
    for (size_t at = 0; at < size;) {
        bool here = size - at >= space && !memcmp(token + at, pipeline->space, space);
        if (here && inside) return true;
        inside |= !here;
        at += here ? space : 1;
    }
    return false;
}

/* Whether a character outside the vocabulary separates its neighbors; without a token for it, they meet. */
static bool keeps_unknown(const BpePipeline *pipeline) {
    for (int byte = 0; pipeline->unk < 0 && byte < 256; byte++)
        if (!pipeline->byte_fallback || pipeline->fallback_ids[byte] < 0) return false;
    return true;
}

static void find_space(BpePipeline *pipeline, const Bpe *bpe, const Vocab *vocab) {
    const char *space = pretokenizer_space(pipeline->pre, &pipeline->space_size);
    if (!space && pipeline->normalizer) space = normalizer_space(pipeline->normalizer, &pipeline->space_size);
    bool good = space && pipeline->space_size > 0 && pipeline->space_size <= sizeof pipeline->space &&
                vocab_find_model(vocab, space, pipeline->space_size) >= 0 && !bpe->ignore_merges &&
                keeps_unknown(pipeline);
    if (good) memcpy(pipeline->space, space, pipeline->space_size);
    for (size_t i = 0; good && i < bpe->merge_count; i++) {
        size_t size;
        const char *token = vocab_token(vocab, bpe->merged[i], &size);
        good = !has_inner_space(pipeline, token, size);
    }
    if (!good) pipeline->space_size = 0;
}

static Status find_unknown(BpePipeline *pipeline, const Vocab *vocab, const char *from) {
    const char *unk = NULL;
    pipeline->unk = -1;
    TRY(json_get_string(json_object_get(pipeline->json, "model"), from, "unk_token", &unk));
    if (unk) pipeline->unk = vocab_find_model(vocab, unk, strlen(unk));
    if (unk && pipeline->unk < 0 && pipeline->chars)
        return FAILED("%s: 'model.unk_token' is '%.60s', which is not in the vocabulary", from, unk);
    for (int byte = 0; byte < 256; byte++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", byte);
        pipeline->fallback_ids[byte] = vocab_find_model(vocab, name, 6);
    }
    return OK;
}

static Status finish_words(BpePipeline *pipeline, const Vocab *vocab, const char *from) {
    const char *unk = words_prefix(pipeline->words) ? WORDPIECE_UNK : "<unk>";
    TRY(json_get_string(json_object_get(pipeline->json, "model"), from, "unk_token", &unk));
    return words_finish(pipeline->words, vocab, unk, from);
}

Status bpe_pipeline_finish(Tokenizer *tokenizer, const char *from) {
    Bpe *bpe = tokenizer->model;
    BpePipeline *pipeline = bpe->pipeline;
    tokenizer->normalizes = pipeline->normalizer != NULL;
    pipeline->prepends = pipeline->normalizer && normalizer_prepends(pipeline->normalizer);
    tokenizer->prefixes = pipeline->prepends || pretokenizer_prefixes(pipeline->pre);
    if (!pipeline->chars) return OK;
    if (pipeline->words) return finish_words(pipeline, &tokenizer->vocab, from);
    TRY(find_unknown(pipeline, &tokenizer->vocab, from));
    find_space(pipeline, bpe, &tokenizer->vocab);
    return OK;
}

/* ---- encoding ---- */

/* Writes the byte tokens of a character; false if one of them is missing. */
static bool put_fallback(const BpePipeline *pipeline, const char *text, size_t size, int32_t *ids,
                         uint32_t *lengths) {
    for (size_t i = 0; i < size; i++)
        if (pipeline->fallback_ids[(unsigned char)text[i]] < 0) return false;
    for (size_t i = 0; i < size; i++) {
        ids[i] = pipeline->fallback_ids[(unsigned char)text[i]];
        if (lengths) lengths[i] = 1;
    }
    return true;
}

size_t bpe_pipeline_symbols(const BpePipeline *pipeline, const Vocab *vocab, const char *word, size_t size,
                            int32_t *ids, uint32_t *lengths) {
    if (pipeline->words) return words_tokens(pipeline->words, vocab, word, size, ids, lengths);
    size_t count = 0, unknown = 0; /* bytes of the unknown characters not written yet */
    for (size_t at = 0, bytes; at < size; at += bytes) {
        uint32_t c;
        bytes = utf8_next(word + at, size - at, &c);
        int32_t id = c == UTF8_INVALID ? -1 : vocab_find_model(vocab, word + at, bytes);
        if (id < 0 && pipeline->byte_fallback &&
            put_fallback(pipeline, word + at, bytes, ids + count, lengths ? lengths + count : NULL)) {
            count += bytes;
            continue;
        }
        if (id < 0 && pipeline->unk < 0) continue;
        if (unknown && (id >= 0 || !pipeline->fuse_unk)) {
            if (lengths) lengths[count] = (uint32_t)unknown;
            ids[count++] = pipeline->unk;
            unknown = 0;
        }
        if (id < 0) {
            unknown += bytes;
        } else {
            if (lengths) lengths[count] = (uint32_t)bytes;
            ids[count++] = id;
        }
    }
    if (unknown) {
        if (lengths) lengths[count] = (uint32_t)unknown;
        ids[count++] = pipeline->unk;
    }
    return count;
}

/* ---- safe cuts ---- */

/* The last space that follows another character and around which the normalizer changes nothing. */
static size_t cut_before_space(const BpePipeline *pipeline, const char *text, size_t size) {
    for (size_t end = size; end > 1;) {
        const char *space = memrchr(text + 1, ' ', end - 1);
        if (!space) return 0;
        size_t at = (size_t)(space - text);
        uint32_t before;
        size_t bytes = utf8_previous(text, at, &before);
        bool mark = pipeline->space_size == bytes && !memcmp(text + at - bytes, pipeline->space, bytes);
        bool stable = !pipeline->normalizer || normalizer_keeps_char(pipeline->normalizer, before);
        if (!char_is_space(before) && before != UTF8_INVALID && !mark && stable) return at;
        end = at;
    }
    return 0;
}

Status bpe_pipeline_cut(const BpePipeline *pipeline, PretokenizerScratch *scratch, const char *text,
                        size_t size, size_t *ret_cut) {
    CLEANUP(normal_text_done) NormalText normal = {0};
    const Normalizer *normalizer = pipeline->normalizer;
    size_t cut = 0;
    *ret_cut = 0;
    size -= utf8_unfinished(text, size);
    if (size == 0 || (normalizer && !normalizer_is_local(normalizer))) return OK;
    if (pretokenizer_leaves_spaces(pipeline->pre)) {
        size_t replaced = 0;
        bool space = !normalizer || normalizer_keeps_char(normalizer, ' ');
        if (normalizer && normalizer_space(normalizer, &replaced))
            space = replaced == pipeline->space_size && replaced > 0;
        bool split = space && (pretokenizer_splits_spaces(pipeline->pre) || pipeline->space_size > 0);
        *ret_cut = split ? cut_before_space(pipeline, text, size) : 0;
        return OK;
    }
    if (pipeline->chars && pipeline->prepends) return OK;
    bool keeps = !normalizer || normalizer_keeps(normalizer, text, size);
    if (!keeps) TRY(normalizer_run(normalizer, text, size, true, &normal));
    TRY(pretokenizer_cut(pipeline->pre, scratch, keeps ? text : normal.text.data,
                         keeps ? size : normal.text.size, &cut));
    if (cut > 0 && !keeps) cut = normal.offsets[cut].start;
    *ret_cut = cut > 0 && (unsigned char)text[cut] < 0x80 ? cut : 0;
    return OK;
}
