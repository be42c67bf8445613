/* The byte vocabulary as files that transformers loads: a byte-level BPE without merges, in which the id of
 * every byte is its value. The special tokens are not matched in text, which transformers calls
 * split_special_tokens. */
#include "base/fs.h"
#include "tokenizer/bpe.h"

static Status out_of_memory(void) {
    return FAILED("out of memory while writing a tokenizer");
}

static Status token_name(const Tokenizer *tokenizer, int32_t id, char **ret_name) {
    size_t size;
    const char *token = vocab_token(&tokenizer->vocab, id, &size);
    char byte[3] = {0};
    if (id < BYTE_END) token = byte, size = bpe_spell((unsigned char)id, byte);
    return str_format(ret_name, "%.*s", (int)size, token);
}

static Status vocab_json(const Tokenizer *tokenizer, json_t **ret_vocab, json_t **ret_added) {
    CLEANUP(json_decrefp) json_t *vocab = json_object(), *added = json_array();
    for (int32_t id = 0; id < tokenizer->vocab.count; id++) {
        CLEANUP(mem_freep) char *name = NULL;
        TRY(token_name(tokenizer, id, &name));
        int bad = json_object_set_new(vocab, name, json_integer(id));
        if (id >= BYTE_END)
            bad |= json_array_append_new(
                added, json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", (int)id, "content", name,
                                 "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1));
        if (bad) return out_of_memory();
    }
    *ret_vocab = json_incref(vocab);
    *ret_added = json_incref(added);
    return OK;
}

static Status tokenizer_json(const Tokenizer *tokenizer, json_t **ret_json) {
    CLEANUP(json_decrefp) json_t *vocab = NULL, *added = NULL;
    TRY(vocab_json(tokenizer, &vocab, &added));
    *ret_json =
        json_pack("{s:s, s:n, s:n, s:O, s:n, s:{s:s, s:b, s:b, s:b}, s:O, s:{s:s, s:b, s:b, s:b},"
                  " s:{s:s, s:n, s:n, s:s, s:s, s:b, s:b, s:b, s:O, s:[]}}",
                  "version", "1.0", "truncation", "padding", "added_tokens", added, "normalizer",
                  "pre_tokenizer", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 0, "use_regex",
                  0, "post_processor", tokenizer->post.json, "decoder", "type", "ByteLevel",
                  "add_prefix_space", 0, "trim_offsets", 0, "use_regex", 0, "model", "type", "BPE", "dropout",
                  "unk_token", "continuing_subword_prefix", "", "end_of_word_suffix", "", "fuse_unk", 0,
                  "byte_fallback", 0, "ignore_merges", 0, "vocab", vocab, "merges");
    return *ret_json ? OK : out_of_memory();
}

/* GPT-2 would embed token types if it were given any. */
static json_t *config_json(bool bert) {
    json_t *json =
        json_pack("{s:s, s:b, s:b, s:s}", "tokenizer_class", "PreTrainedTokenizerFast",
                  "clean_up_tokenization_spaces", 0, "split_special_tokens", 1, "eos_token", "<|endoftext|>");
    json_t *more =
        bert ? json_pack("{s:s, s:s, s:s, s:s, s:s, s:[s,s,s]}", "pad_token", "[PAD]", "cls_token", "[CLS]",
                         "sep_token", "[SEP]", "mask_token", "[MASK]", "unk_token", "[UNK]",
                         "model_input_names", "input_ids", "token_type_ids", "attention_mask")
             : json_pack("{s:s, s:[s,s]}", "bos_token", "<|endoftext|>", "model_input_names", "input_ids",
                         "attention_mask");
    if (json_object_update_new(json, more) == 0) return json;
    json_decref(json);
    return NULL;
}

Status bytes_save(const Tokenizer *tokenizer, const char *dir) {
    CLEANUP(mem_freep) char *json_path = NULL, *config_path = NULL;
    TRY(path_join(&json_path, dir, "tokenizer.json"));
    TRY(path_join(&config_path, dir, "tokenizer_config.json"));
    CLEANUP(json_decrefp) json_t *json = NULL, *config = config_json(tokenizer->roles.cls >= 0);
    if (!config) return out_of_memory();
    TRY(tokenizer_json(tokenizer, &json));
    TRY(json_write_file(config_path, config));
    return json_write_file(json_path, json);
}

/* A tokenizer.json is the byte vocabulary if it has the tokens and the settings that bytes_save writes. */
bool bytes_recognize(const json_t *json, bool *ret_bert) {
    const json_t *model = json_object_get(json, "model"), *vocab = json_object_get(model, "vocab");
    const json_t *before = json_object_get(json, "pre_tokenizer");
    const char *type = json_string_value(json_object_get(before, "type"));
    size_t count = json_object_size(vocab);
    if ((count != BYTE_VOCAB_GPT2 && count != BYTE_VOCAB_BERT) ||
        json_array_size(json_object_get(model, "merges")) || !type || strcmp(type, "ByteLevel") ||
        !json_is_false(json_object_get(before, "add_prefix_space")) ||
        !json_is_false(json_object_get(before, "use_regex")))
        return false;
    static const char *const special[] = {"<|endoftext|>", "[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]"};
    for (int id = 0; id < (int)count; id++) {
        char byte[3] = {0};
        if (id < BYTE_END) bpe_spell((unsigned char)id, byte);
        const json_t *found = json_object_get(vocab, id < BYTE_END ? byte : special[id - BYTE_END]);
        if (!json_is_integer(found) || json_integer_value(found) != id) return false;
    }
    *ret_bert = count == BYTE_VOCAB_BERT;
    return true;
}
