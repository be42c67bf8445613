/* Writes the vocabulary of a GGUF file. The kinds of tokenizer are "bert" (WordPiece), "gpt2" (byte-level
 * BPE) and "llama" (SentencePiece's BPE). */
#include "checkpoint/gguf_vocab.h"

#include <string.h>

#include "base/fs.h"
#include "base/memory.h"
#include "checkpoint/checkpoint.h"
#include "model/family.h"

/* The tokenizer that is written, and the model that it belongs to. */
typedef struct Vocabulary {
    const Tokenizer *tokenizer;
    const ModelConfig *config;
    const char *from; /* for errors */
    GgufBpe bpe;
} Vocabulary;

static void vocabulary_done(Vocabulary *v) {
    gguf_bpe_done(&v->bpe);
}

static bool is_wordpiece(const Vocabulary *v) {
    return tokenizer_kind(v->tokenizer) == TOKENIZER_WORDPIECE;
}

static bool is_byte(const Vocabulary *v, int32_t id) {
    size_t size;
    const char *text = tokenizer_token(v->tokenizer, id, &size);
    return v->bpe.scores && size == 6 && !memcmp(text, "<0x", 3) && text[5] == '>';
}

static int32_t token_type(const Vocabulary *v, int64_t id) {
    if (id >= tokenizer_vocab(v->tokenizer)) return TYPE_UNUSED;
    TokenClass class = tokenizer_class(v->tokenizer, (int32_t)id);
    if (v->bpe.scores && id == v->bpe.unk) return TYPE_UNKNOWN;
    if (class != TOKEN_NORMAL) return class == TOKEN_SPECIAL ? TYPE_CONTROL : TYPE_USER_DEFINED;
    return is_byte(v, (int32_t)id) ? TYPE_BYTE : TYPE_NORMAL;
}

/* llama.cpp's WordPiece marks the start of a word (U+2581) instead of its continuation (##). */
static Status put_token(GgufMeta *meta, const Vocabulary *v, int64_t id) {
    CLEANUP(mem_freep) char *text = NULL, *marked = NULL;
    if (id >= tokenizer_vocab(v->tokenizer))
        TRY(str_format(&text, "[PAD%lld]", (long long)id));
    else
        TRY(tokenizer_spelling(v->tokenizer, (int32_t)id, &text));
    const char *shown = text;
    if (is_wordpiece(v) && token_type(v, id) == TYPE_NORMAL) {
        if (!strncmp(text, "##", 2)) {
            shown = text + 2;
        } else {
            TRY(str_format(&marked, "\xE2\x96\x81%s", text));
            shown = marked;
        }
    }
    return meta_text(meta, shown, strlen(shown));
}

static Status put_tokens(GgufMeta *meta, const Vocabulary *v) {
    int64_t vocab = v->config->vocab;
    TRY(meta_put_array(meta, "tokenizer.ggml.tokens", META_STRING, (uint64_t)vocab));
    for (int64_t id = 0; id < vocab; id++) TRY(put_token(meta, v, id));
    TRY(meta_put_array(meta, "tokenizer.ggml.token_type", META_I32, (uint64_t)vocab));
    for (int64_t id = 0; id < vocab; id++) TRY(meta_u32(meta, (uint32_t)token_type(v, id)));
    return OK;
}

static Status put_merges(GgufMeta *meta, const Tokenizer *tokenizer) {
    size_t count = tokenizer_merge_count(tokenizer);
    TRY(meta_put_array(meta, "tokenizer.ggml.merges", META_STRING, count));
    for (size_t i = 0; i < count; i++) {
        CLEANUP(mem_freep) char *text = NULL;
        TRY(tokenizer_merge(tokenizer, i, &text));
        TRY(meta_text(meta, text, strlen(text)));
    }
    return OK;
}

static Status put_scores(GgufMeta *meta, const Vocabulary *v) {
    int64_t vocab = v->config->vocab, known = tokenizer_vocab(v->tokenizer);
    TRY(meta_put_array(meta, "tokenizer.ggml.scores", META_F32, (uint64_t)vocab));
    for (int64_t id = 0; id < vocab; id++) {
        float score = id < known ? v->bpe.scores[id] : 0;
        TRY(meta_bytes(meta, &score, sizeof score));
    }
    return OK;
}

/* ---- special tokens ---- */

static Status put_id(GgufMeta *meta, const char *key, int64_t id) {
    return id < 0 ? OK : meta_put_u32(meta, key, id);
}

/* The same for an id of the configuration, which may lie outside the vocabulary. */
static Status put_known(GgufMeta *meta, const char *key, int64_t id, const ModelConfig *config) {
    return put_id(meta, key, id < config->vocab ? id : -1);
}

/* BERT's texts start with [CLS] and end with [SEP]; llama.cpp calls [CLS] BOS. */
static Status put_bert_tokens(GgufMeta *meta, const Tokenizer *tokenizer) {
    SpecialTokens roles = tokenizer_special(tokenizer);
    TRY(put_id(meta, "tokenizer.ggml.bos_token_id", roles.cls));
    TRY(put_id(meta, "tokenizer.ggml.eos_token_id", roles.sep));
    TRY(put_id(meta, "tokenizer.ggml.cls_token_id", roles.cls));
    TRY(put_id(meta, "tokenizer.ggml.seperator_token_id", roles.sep)); /* the key's own spelling */
    TRY(put_id(meta, "tokenizer.ggml.unknown_token_id", roles.unk));
    TRY(put_id(meta, "tokenizer.ggml.padding_token_id", roles.pad));
    return put_id(meta, "tokenizer.ggml.mask_token_id", roles.mask);
}

/* The tokens that the post-processor puts before and after a text; -1: none. */
static Status find_ends(const Vocabulary *v, int64_t *ret_first, int64_t *ret_last) {
    const TokenTemplate *tpl = tokenizer_template(v->tokenizer, false);
    size_t text = 0;
    while (text < tpl->count && tpl->pieces[text].kind == PIECE_TOKEN) text++;
    if (text > 1 || tpl->count > text + 2 || text == tpl->count)
        return FAILED("%s: its post-processor puts several tokens before or after a text, which llama.cpp "
                      "does not support",
                      v->from);
    *ret_first = text == 1 ? tpl->pieces[0].id : -1;
    *ret_last = tpl->count == text + 2 ? tpl->pieces[text + 1].id : -1;
    return OK;
}

/* llama.cpp stops at the tokens EOS, EOT and EOM. */
static Status put_ends(GgufMeta *meta, const Vocabulary *v) {
    const ModelConfig *c = v->config;
    int64_t first = -1, last = -1, more = c->eos_more_count;
    TRY(find_ends(v, &first, &last));
    int64_t bos = first >= 0 ? first : c->bos_token, eos = last >= 0 ? last : c->eos_token;
    TRY(meta_put_bool(meta, "tokenizer.ggml.add_bos_token", first >= 0));
    TRY(meta_put_bool(meta, "tokenizer.ggml.add_eos_token", last >= 0));
    TRY(put_known(meta, "tokenizer.ggml.bos_token_id", bos, c));
    TRY(put_known(meta, "tokenizer.ggml.eos_token_id", eos, c));
    TRY(put_known(meta, "tokenizer.ggml.eot_token_id", more > 0 ? c->eos_more[more - 1] : -1, c));
    TRY(put_known(meta, "tokenizer.ggml.eom_token_id", more > 1 ? c->eos_more[more - 2] : -1, c));
    return put_known(meta, "tokenizer.ggml.padding_token_id", c->pad_token, c);
}

/* ---- kinds ---- */

static Status put_wordpiece(GgufMeta *meta, const Vocabulary *v) {
    bool lowercase, strip_accents;
    tokenizer_normalizer(v->tokenizer, &lowercase, &strip_accents);
    TRY(meta_put_text(meta, "tokenizer.ggml.model", "bert"));
    TRY(put_tokens(meta, v));
    TRY(meta_put_bool(meta, "tokenizer.ggml.normalizer.lowercase", lowercase));
    TRY(meta_put_bool(meta, "tokenizer.ggml.normalizer.strip_accents", strip_accents));
    return put_bert_tokens(meta, v->tokenizer);
}

static Status put_byte_level(GgufMeta *meta, const Vocabulary *v) {
    bool bert = tokenizer_special(v->tokenizer).cls >= 0;
    TRY(meta_put_text(meta, "tokenizer.ggml.model", "gpt2"));
    TRY(meta_put_text(meta, "tokenizer.ggml.pre", v->bpe.pre));
    TRY(put_tokens(meta, v));
    TRY(put_merges(meta, v->tokenizer));
    if (!bert) return put_ends(meta, v);
    TRY(meta_put_bool(meta, "tokenizer.ggml.add_bos_token", true));
    TRY(meta_put_bool(meta, "tokenizer.ggml.add_eos_token", true));
    return put_bert_tokens(meta, v->tokenizer);
}

static Status put_sentencepiece(GgufMeta *meta, const Vocabulary *v) {
    TRY(meta_put_text(meta, "tokenizer.ggml.model", "llama"));
    TRY(meta_put_text(meta, "tokenizer.ggml.pre", "default"));
    TRY(put_tokens(meta, v));
    TRY(put_scores(meta, v));
    TRY(meta_put_bool(meta, "tokenizer.ggml.add_space_prefix", v->bpe.space_prefix));
    TRY(put_id(meta, "tokenizer.ggml.unknown_token_id", v->bpe.unk));
    return put_ends(meta, v);
}

/* ---- the chat template ---- */

enum { TEMPLATE_LIMIT = 1 << 20 /* bytes */ };

/* The template of tokenizer_config.json: a string, or the one named "default" of a list. */
static const char *find_template(const json_t *config) {
    const json_t *given = json_object_get(config, "chat_template");
    for (size_t i = 0; i < json_array_size(given); i++) {
        const json_t *entry = json_array_get(given, i);
        const char *name = json_string_value(json_object_get(entry, "name"));
        if (name && !strcmp(name, "default")) return json_string_value(json_object_get(entry, "template"));
    }
    return json_string_value(given);
}

/* Readers take a zero byte for its end. */
static Status check_template(const char *path, const char *text, size_t size) {
    CLEANUP(json_decrefp) json_t *valid = strlen(text) == size ? json_string(text) : NULL;
    return valid ? OK : FAILED("%s: expected text in UTF-8, without zero bytes", path);
}

static Status put_chat_template(GgufMeta *meta, const char *dir) {
    static const char key[] = "tokenizer.chat_template";
    CLEANUP(mem_freep) char *file = NULL, *path = NULL, *text = NULL;
    CLEANUP(json_decrefp) json_t *config = NULL;
    size_t size;
    TRY(path_join(&file, dir, "chat_template.jinja"));
    if (path_exists(file)) {
        TRY(file_read(file, TEMPLATE_LIMIT, &text, &size));
        TRY(check_template(file, text, size));
        return meta_put_text(meta, key, text);
    }
    TRY(path_join(&path, dir, "tokenizer_config.json"));
    if (!path_exists(path)) return OK;
    TRY(json_read_any(path, &config));
    const json_t *given = json_object_get(config, "chat_template");
    if (given && !json_is_null(given) && !json_is_string(given) && !json_is_array(given))
        return FAILED("%s: 'chat_template' must be a string or a list of templates", path);
    const char *found = find_template(config);
    return found ? meta_put_text(meta, key, found) : OK;
}

/* ---- all of it ---- */

static Status find_bpe(const char *dir, Vocabulary *v) {
    CLEANUP(mem_freep) char *path = NULL;
    CLEANUP(json_decrefp) json_t *json = NULL;
    bool bytes = tokenizer_kind(v->tokenizer) == TOKENIZER_BYTES;
    TRY(path_join(&path, dir, "tokenizer.json"));
    if (!bytes && path_exists(path)) TRY(json_read_file(path, &json));
    return gguf_bpe_find(v->tokenizer, json, dir, &v->bpe);
}

static Status load_tokenizer(const char *dir, const ModelConfig *config, Tokenizer **ret_tokenizer) {
    CLEANUP(mem_freep) char *sentencepiece = NULL;
    bool bert = config->family->byte_specials;
    TRY(path_join(&sentencepiece, dir, "tokenizer.model"));
    if (tokenizer_exists(dir) || path_exists(sentencepiece)) return tokenizer_load(ret_tokenizer, dir);
    if (config->vocab != (bert ? BYTE_VOCAB_BERT : BYTE_VOCAB_GPT2)) return OK;
    return tokenizer_new_bytes(ret_tokenizer, bert);
}

Status gguf_put_vocab(GgufMeta *meta, const char *dir, const ModelConfig *config) {
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    TRY(load_tokenizer(dir, config, &tokenizer));
    if (!tokenizer) return meta_put_text(meta, "tokenizer.ggml.model", "none");
    if (tokenizer_vocab(tokenizer) > config->vocab)
        return FAILED("%s: its tokenizer has %lld tokens, more than the model's vocabulary of %lld", dir,
                      (long long)tokenizer_vocab(tokenizer), (long long)config->vocab);
    ModelConfig with_ends = *config;
    if (config_is_decoder(config)) TRY(hf_generation_read(dir, &with_ends));
    CLEANUP(vocabulary_done) Vocabulary v = {.tokenizer = tokenizer, .config = &with_ends, .from = dir};
    TRY(put_chat_template(meta, dir));
    if (is_wordpiece(&v)) return put_wordpiece(meta, &v);
    TRY(find_bpe(dir, &v));
    return v.bpe.scores ? put_sentencepiece(meta, &v) : put_byte_level(meta, &v);
}
