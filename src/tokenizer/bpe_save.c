/* Writes a BPE tokenizer in the files that transformers loads. Added tokens are written to the vocabulary
 * as well, which yields the same ids. Only tokenizer.json can describe a pipeline other than GPT-2's; its
 * vocabulary is that of the model, and its merges are pairs, since their tokens may have spaces. */
#include "base/fs.h"
#include "tokenizer/bpe.h"

static Status out_of_memory(const json_t *json) {
    return json ? OK : FAILED("out of memory while writing a tokenizer");
}

/* `model`: without the added tokens that are not in the model's vocabulary. */
static Status vocab_json(const Vocab *vocab, bool model, json_t **ret_json) {
    CLEANUP(json_decrefp) json_t *json = json_object();
    TRY(out_of_memory(json));
    for (int32_t id = 0; id < vocab->count; id++) {
        size_t size;
        const char *token = vocab_token(vocab, id, &size);
        if (model && vocab->entries[id].outside) continue;
        CLEANUP(mem_freep) char *key = NULL;
        TRY(str_format(&key, "%.*s", (int)size, token));
        if (json_object_set_new(json, key, json_integer(id)) != 0)
            return FAILED("token %d cannot be written as JSON: it is not valid UTF-8", id);
    }
    return MOVE(ret_json, json);
}

static json_t *merge_pair(const Tokenizer *tokenizer, size_t rank) {
    const BpeMerge *merge = &((const Bpe *)tokenizer->model)->merges[rank];
    size_t left_size, right_size;
    const char *left = vocab_token(&tokenizer->vocab, merge->left, &left_size);
    const char *right = vocab_token(&tokenizer->vocab, merge->right, &right_size);
    return json_pack("[s%, s%]", left, left_size, right, right_size);
}

static Status merges_json(const Tokenizer *tokenizer, json_t **ret_json) {
    const Bpe *bpe = tokenizer->model;
    CLEANUP(json_decrefp) json_t *json = json_array();
    TRY(out_of_memory(json));
    for (size_t i = 0; i < bpe->merge_count; i++) {
        CLEANUP(mem_freep) char *text = NULL;
        TRY(tokenizer_merge(tokenizer, i, &text));
        json_t *merge = bpe->pipeline ? merge_pair(tokenizer, i) : json_string(text);
        if (json_array_append_new(json, merge) != 0)
            return FAILED("merge %zu cannot be written as JSON: it is not valid UTF-8", i + 1);
    }
    return MOVE(ret_json, json);
}

static Status write_tokenizer_json(const Tokenizer *tokenizer, const json_t *vocab, const char *path) {
    const Bpe *bpe = tokenizer->model;
    CLEANUP(json_decrefp) json_t *merges = NULL, *added = NULL;
    TRY(merges_json(tokenizer, &merges));
    TRY(added_to_json(tokenizer, &added));
    CLEANUP(json_decrefp)
    json_t *json = json_pack(
        "{s:s, s:n, s:n, s:O, s:n, s:{s:s, s:b, s:b, s:b}, s:O, s:{s:s, s:b, s:b, s:b},"
        " s:{s:s, s:n, s:n, s:s, s:s, s:b, s:b, s:b, s:O, s:O}}",
        "version", "1.0", "truncation", "padding", "added_tokens", added, "normalizer", "pre_tokenizer",
        "type", "ByteLevel", "add_prefix_space", (int)bpe->add_prefix_space, "trim_offsets", 1, "use_regex",
        (int)bpe->use_regex, "post_processor", tokenizer->post.json, "decoder", "type", "ByteLevel",
        "add_prefix_space", 1, "trim_offsets", 1, "use_regex", 1, "model", "type", "BPE", "dropout",
        "unk_token", "continuing_subword_prefix", "", "end_of_word_suffix", "", "fuse_unk", 0,
        "byte_fallback", 0, "ignore_merges", (int)bpe->ignore_merges, "vocab", vocab, "merges", merges);
    TRY(out_of_memory(json));
    if (bpe->undecoded) json_object_set_new(json, "decoder", json_null());
    return json_write_file(path, json);
}

static Status write_pipeline(const Tokenizer *tokenizer, const char *path) {
    const Bpe *bpe = tokenizer->model;
    CLEANUP(json_decrefp) json_t *vocab = NULL, *merges = NULL, *added = NULL;
    TRY(vocab_json(&tokenizer->vocab, true, &vocab));
    TRY(merges_json(tokenizer, &merges));
    TRY(added_to_json(tokenizer, &added));
    CLEANUP(json_decrefp)
    json_t *json = json_pack("{s:s, s:n, s:n, s:O, s:O}", "version", "1.0", "truncation", "padding",
                             "added_tokens", added, "post_processor", tokenizer->post.json);
    CLEANUP(json_decrefp) json_t *parts = json_clone_deep(bpe->pipeline->json);
    json_t *model = json_object_get(parts, "model");
    if (json_object_set(model, "vocab", vocab) ||
        (!bpe->pipeline->words && json_object_set(model, "merges", merges)) ||
        json_object_update(json, parts))
        return FAILED("%s: out of memory", path);
    return json_write_file(path, json);
}

/* The special tokens of BERT's models; nonzero if memory runs out. */
static int put_roles(const Tokenizer *tokenizer, json_t *json) {
    const SpecialTokens *roles = &tokenizer->roles;
    const struct {
        const char *key;
        int32_t id;
    } names[] = {{"unk_token", roles->unk},
                 {"sep_token", roles->sep},
                 {"pad_token", roles->pad},
                 {"cls_token", roles->cls},
                 {"mask_token", roles->mask}};
    int bad = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t size;
        if (names[i].id < 0) continue;
        const char *text = vocab_token(&tokenizer->vocab, names[i].id, &size);
        bad |= json_object_set_new(json, names[i].key, json_stringn(text, size));
    }
    return bad;
}

/* GPT2Tokenizer would add <|endoftext|> to a vocabulary without it and replace the pre-tokenizer;
 * PreTrainedTokenizerFast takes the files as they are. */
static Status write_config(const Tokenizer *tokenizer, const char *path) {
    const Bpe *bpe = tokenizer->model;
    CLEANUP(json_decrefp)
    json_t *json = json_pack("{s:b, s:b, s:i}", "add_prefix_space", (int)bpe->add_prefix_space,
                             "clean_up_tokenization_spaces", 0, "model_max_length", 1024);
    TRY(out_of_memory(json));
    bool end = tokenizer->roles.end >= 0;
    bool gpt2 = end && !bpe->pipeline && !bpe->ignore_merges && bpe->use_regex;
    const char *class = gpt2 ? "GPT2Tokenizer" : "PreTrainedTokenizerFast";
    int bad = json_object_set_new(json, "tokenizer_class", json_string(class));
    static const char *const roles[] = {"bos_token", "eos_token", "unk_token"};
    for (int i = 0; i < 3 && end; i++) {
        size_t size;
        const char *token = vocab_token(&tokenizer->vocab, tokenizer->roles.end, &size);
        if (bpe->pipeline && strcmp(roles[i], "eos_token") != 0) continue;
        bad |= json_object_set_new(json, roles[i], json_stringn(token, size));
    }
    if (bpe->pipeline && bpe->pipeline->words) bad |= put_roles(tokenizer, json);
    if (bad) return FAILED("%s: out of memory", path);
    return json_write_file(path, json);
}

static Status write_merges(const Tokenizer *tokenizer, const char *path) {
    const Bpe *bpe = tokenizer->model;
    CLEANUP(file_writer_freep) FileWriter *writer = NULL;
    TRY(file_writer_new(&writer, path));
    TRY(file_print(writer, "#version: 0.2\n"));
    for (size_t i = 0; i < bpe->merge_count; i++) {
        CLEANUP(mem_freep) char *text = NULL;
        TRY(tokenizer_merge(tokenizer, i, &text));
        TRY(file_print(writer, "%s\n", text));
    }
    return file_commit(writer);
}

Status bpe_save(const Tokenizer *tokenizer, const char *dir) {
    CLEANUP(json_decrefp) json_t *vocab = NULL;
    CLEANUP(mem_freep) char *json_path = NULL, *config_path = NULL, *vocab_path = NULL, *merges_path = NULL;
    TRY(path_join(&json_path, dir, "tokenizer.json"));
    TRY(path_join(&config_path, dir, "tokenizer_config.json"));
    TRY(path_join(&vocab_path, dir, "vocab.json"));
    TRY(path_join(&merges_path, dir, "merges.txt"));
    if (((const Bpe *)tokenizer->model)->pipeline) {
        TRY(write_config(tokenizer, config_path));
        return write_pipeline(tokenizer, json_path);
    }
    TRY(vocab_json(&tokenizer->vocab, false, &vocab));
    TRY(json_write_file(vocab_path, vocab));
    TRY(write_merges(tokenizer, merges_path));
    TRY(write_config(tokenizer, config_path));
    return write_tokenizer_json(tokenizer, vocab, json_path);
}
