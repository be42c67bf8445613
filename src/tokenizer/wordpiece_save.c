/* Writes the three files from which transformers loads a BERT tokenizer. vocab.txt and
 * tokenizer_config.json repeat tokenizer.json as far as they can: they cannot express max_word_chars or
 * tokens that exist only as added tokens, and readers prefer tokenizer.json. Spellings can be used as JSON
 * keys because the vocabulary NUL-terminates them. */
#include "base/fs.h"
#include "tokenizer/wordpiece.h"

static Status save_lines(const Tokenizer *tokenizer, const char *dir) {
    const WordPiece *model = tokenizer->model;
    CLEANUP(mem_freep) char *path = NULL;
    TRY(path_join(&path, dir, "vocab.txt"));
    CLEANUP(file_writer_freep) FileWriter *writer = NULL;
    TRY(file_writer_new(&writer, path));
    int32_t count = tokenizer->vocab.count;
    while (count > 0 && !model->is_piece[count - 1]) count--;
    for (int32_t id = 0; id < count; id++) {
        size_t size;
        const char *text = vocab_token(&tokenizer->vocab, id, &size);
        TRY(file_write(writer, text, size));
        TRY(file_write(writer, "\n", 1));
    }
    return file_commit(writer);
}

static Status vocab_json(const Tokenizer *tokenizer, json_t **ret_json) {
    const WordPiece *model = tokenizer->model;
    CLEANUP(json_decrefp) json_t *json = json_object();
    for (int32_t id = 0; id < tokenizer->vocab.count; id++) {
        size_t size;
        const char *text = vocab_token(&tokenizer->vocab, id, &size);
        if (model->is_piece[id] && json_object_set_new(json, text, json_integer(id)) != 0)
            return FAILED("token %d of the vocabulary cannot be written as JSON", id);
    }
    return MOVE(ret_json, json);
}

static Status save_json(const Tokenizer *tokenizer, const char *dir) {
    const WordPiece *model = tokenizer->model;
    const BertSettings *settings = &model->chars->settings;
    CLEANUP(mem_freep) char *path = NULL;
    TRY(path_join(&path, dir, "tokenizer.json"));
    CLEANUP(json_decrefp) json_t *vocab = NULL, *added = NULL;
    TRY(vocab_json(tokenizer, &vocab));
    TRY(added_to_json(tokenizer, &added));
    size_t unk_size;
    const char *unk = vocab_token(&tokenizer->vocab, model->unk, &unk_size);
    json_t *normalizer =
        json_pack("{s:s, s:b, s:b, s:b, s:b}", "type", "BertNormalizer", "clean_text", settings->clean_text,
                  "handle_chinese_chars", settings->handle_chinese_chars, "strip_accents",
                  settings->strip_accents, "lowercase", settings->lowercase);
    json_t *pieces = json_pack("{s:s, s:s%, s:s, s:I, s:O}", "type", "WordPiece", "unk_token", unk, unk_size,
                               "continuing_subword_prefix", WORDPIECE_PREFIX, "max_input_chars_per_word",
                               (json_int_t)model->max_word_chars, "vocab", vocab);
    json_t *decoder = model->joins ? json_pack("{s:s, s:s, s:b}", "type", "WordPiece", "prefix",
                                               WORDPIECE_PREFIX, "cleanup", model->clean_up)
                                   : json_null();
    CLEANUP(json_decrefp)
    json_t *json = json_pack("{s:s, s:n, s:n, s:O, s:o, s:{s:s}, s:O, s:o, s:o}", "version", "1.0",
                             "truncation", "padding", "added_tokens", added, "normalizer", normalizer,
                             "pre_tokenizer", "type", "BertPreTokenizer", "post_processor",
                             tokenizer->post.json, "decoder", decoder, "model", pieces);
    if (!json) return FAILED("%s: the vocabulary cannot be written as JSON", path);
    return json_write_file(path, json);
}

/* BertTokenizer replaces the post-processor of tokenizer.json with BERT's; PreTrainedTokenizerFast keeps it.
 */
static Status find_class(const Tokenizer *tokenizer, const char **ret_class) {
    const SpecialTokens *roles = &tokenizer->roles;
    CLEANUP(token_template_done) TokenTemplate single = {0};
    CLEANUP(token_template_done) TokenTemplate pair = {0};
    TRY(token_template_add_bert(&single, roles->cls, roles->sep, false));
    TRY(token_template_add_bert(&pair, roles->cls, roles->sep, true));
    bool bert = token_template_same(&tokenizer->post.single, &single) &&
                token_template_same(&tokenizer->post.pair, &pair);
    *ret_class = bert || roles->cls < 0 || roles->sep < 0 ? "BertTokenizer" : "PreTrainedTokenizerFast";
    return OK;
}

static Status save_config(const Tokenizer *tokenizer, const char *dir) {
    const WordPiece *model = tokenizer->model;
    const BertSettings *settings = &model->chars->settings;
    const SpecialTokens *roles = &tokenizer->roles;
    CLEANUP(mem_freep) char *path = NULL;
    TRY(path_join(&path, dir, "tokenizer_config.json"));
    const char *class = NULL;
    TRY(find_class(tokenizer, &class));
    CLEANUP(json_decrefp)
    json_t *json = json_pack("{s:s, s:b, s:b, s:b}", "tokenizer_class", class, "do_lower_case",
                             settings->lowercase, "strip_accents", settings->strip_accents,
                             "tokenize_chinese_chars", settings->handle_chinese_chars);
    const struct {
        const char *key;
        int32_t id;
    } names[] = {{"unk_token", model->unk},
                 {"sep_token", roles->sep},
                 {"pad_token", roles->pad},
                 {"cls_token", roles->cls},
                 {"mask_token", roles->mask}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (names[i].id < 0) continue;
        size_t size;
        const char *text = vocab_token(&tokenizer->vocab, names[i].id, &size);
        if (json_object_set_new(json, names[i].key, json_stringn(text, size)) != 0)
            return FAILED("%s: token %d cannot be written as JSON", path, names[i].id);
    }
    return json_write_file(path, json);
}

Status save_wordpiece(const Tokenizer *tokenizer, const char *dir) {
    TRY(save_lines(tokenizer, dir));
    TRY(save_config(tokenizer, dir));
    return save_json(tokenizer, dir);
}
