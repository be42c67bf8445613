/* Construction, loading and saving of tokenizers, and the functions common to all kinds. */
#include "tokenizer/tokenizer.h"

#include "base/format.h"
#include "base/fs.h"
#include "tokenizer/internal.h"
#include "tokenizer/words.h"

/* ---- construction ---- */

Status tokenizer_new(Tokenizer **ret_tokenizer, const TokenizerOps *ops) {
    Tokenizer *tokenizer = NULL;
    TRY(mem_new(1, sizeof *tokenizer, &tokenizer));
    tokenizer->ops = ops;
    tokenizer->normalizes = ops->normalize != NULL;
    *ret_tokenizer = tokenizer;
    return OK;
}

void tokenizer_free(Tokenizer *tokenizer) {
    if (!tokenizer) return;
    if (tokenizer->ops->free) tokenizer->ops->free(tokenizer->model);
    vocab_done(&tokenizer->vocab);
    free(tokenizer->added);
    free(tokenizer->literal.tokens);
    free(tokenizer->normalized.tokens);
    bytes_done(&tokenizer->names);
    free(tokenizer->special);
    free(tokenizer->omitted);
    post_processor_done(&tokenizer->post);
    free(tokenizer);
}

Status tokenizer_add(Tokenizer *tokenizer, AddedToken token, const char *from) {
    size_t size;
    vocab_token(&tokenizer->vocab, token.id, &size);
    if (size == 0) return FAILED("%s: the added token with id %d is empty", from, token.id);
    TRY(mem_grow(&tokenizer->added, &tokenizer->added_capacity, tokenizer->added_count + 1, sizeof token));
    tokenizer->added[tokenizer->added_count++] = token;
    return OK;
}

static void find_roles(Tokenizer *tokenizer) {
    SpecialTokens *roles = &tokenizer->roles;
    *roles = (SpecialTokens){-1, -1, -1, -1, -1, -1};
    const struct {
        const char *name;
        int32_t *id;
    } names[] = {{"[PAD]", &roles->pad},
                 {"[CLS]", &roles->cls},
                 {"[SEP]", &roles->sep},
                 {"[MASK]", &roles->mask},
                 {"[UNK]", &roles->unk},
                 {"<unk>", &roles->unk},
                 {"<|endoftext|>", &roles->end},   /* GPT-2, Qwen, SmolLM */
                 {"<|end_of_text|>", &roles->end}, /* Llama 3 */
                 {"</s>", &roles->end} /* Llama 2, Mistral */};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int32_t id = vocab_find(&tokenizer->vocab, names[i].name, strlen(names[i].name));
        if (id >= 0 && tokenizer->special[id] && *names[i].id < 0) *names[i].id = id;
    }
}

/* The `special` flag is excluded: it affects decoding, not the ids of a text. */
static uint64_t take_fingerprint(const Tokenizer *tokenizer) {
    const Vocab *vocab = &tokenizer->vocab;
    uint64_t hash = fingerprint_text(FINGERPRINT_START, tokenizer->ops->name, strlen(tokenizer->ops->name));
    hash = fingerprint_number(hash, (uint64_t)vocab->count);
    for (int32_t id = 0; id < vocab->count; id++) {
        size_t size;
        const char *token = vocab_token(vocab, id, &size);
        hash = fingerprint_text(hash, token, size);
    }
    hash = fingerprint_number(hash, tokenizer->added_count);
    for (size_t i = 0; i < tokenizer->added_count; i++) {
        const AddedToken *token = &tokenizer->added[i];
        unsigned flags =
            token->lstrip | token->rstrip << 1 | token->single_word << 2 | token->normalized << 3;
        hash = fingerprint_number(hash, (uint64_t)token->id << 8 | flags);
    }
    return tokenizer->ops->fingerprint ? tokenizer->ops->fingerprint(tokenizer, hash) : hash;
}

/* Hugging Face omits tokens whose text is that of a special token. A normalized token's text is normalized,
 * so "[END]" is omitted only if that stays as it is. */
static Status find_omitted(Tokenizer *tokenizer) {
    TRY(mem_new((size_t)tokenizer->vocab.count, 1, &tokenizer->omitted));
    for (size_t i = 0; i < tokenizer->added_count; i++) {
        const AddedToken *token = &tokenizer->added[i];
        int32_t same = vocab_find(&tokenizer->vocab, token->name, token->name_size);
        tokenizer->omitted[token->id] = same >= 0 && tokenizer->special[same];
    }
    return OK;
}

Status tokenizer_finish(Tokenizer *tokenizer, const char *from) {
    TRY(vocab_check(&tokenizer->vocab, from));
    TRY(mem_new((size_t)tokenizer->vocab.count, 1, &tokenizer->special));
    for (size_t i = 0; i < tokenizer->added_count; i++)
        tokenizer->special[tokenizer->added[i].id] = tokenizer->added[i].special;
    TRY(added_sort(tokenizer, from));
    TRY(find_omitted(tokenizer));
    find_roles(tokenizer);
    tokenizer->fingerprint = take_fingerprint(tokenizer);
    return OK;
}

/* ---- loading ---- */

static Status load_json(Tokenizer **ret_tokenizer, const json_t *json, const char *path) {
    const json_t *model = json_object_get(json, "model"), *type = json_object_get(model, "type");
    if (!json_is_object(model)) return FAILED("%s: 'model' must be an object", path);
    if (type && !json_is_string(type)) return FAILED("%s: 'model.type' must be a string", path);
    bool bpe = type ? !strcmp(json_string_value(type), "BPE") : json_object_get(model, "merges") != NULL;
    bool bert = false;
    if (bpe && bytes_recognize(json, &bert)) return tokenizer_new_bytes(ret_tokenizer, bert);
    if (bpe) return tokenizer_load_bpe_json(ret_tokenizer, json, path);
    if (!type || !strcmp(json_string_value(type), "WordPiece"))
        return tokenizer_load_wordpiece_json(ret_tokenizer, json, path);
    if (!strcmp(json_string_value(type), "WordLevel"))
        return tokenizer_load_words_json(ret_tokenizer, json, path);
    char shown[NAME_TEXT];
    return FAILED("%s: 'model.type' is '%s'; expected BPE, WordPiece or WordLevel", path,
                  name_text(shown, json_string_value(type)));
}

static Status sibling(const char *path, const char *name, char **ret_path) {
    const char *slash = strrchr(path, '/');
    return str_format(ret_path, "%.*s%s", slash ? (int)(slash - path) + 1 : 0, path, name);
}

static bool ends_in(const char *path, const char *end) {
    size_t size = strlen(path), tail = strlen(end);
    return size >= tail && !strcmp(path + size - tail, end);
}

static Status refuse_sentencepiece(const char *path) {
    return FAILED(
        "%s: SentencePiece models are not supported; create tokenizer.json from it with transformers: "
        "AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)",
        path);
}

/* The kind of file follows from its name and content. */
static Status load_file(Tokenizer **ret_tokenizer, const char *path) {
    CLEANUP(mem_freep) char *other = NULL;
    if (ends_in(path, "merges.txt")) {
        TRY(sibling(path, "vocab.json", &other));
        return tokenizer_load_bpe_files(ret_tokenizer, other, path);
    }
    if (ends_in(path, ".txt")) return tokenizer_load_wordpiece_file(ret_tokenizer, path);
    if (ends_in(path, ".model")) return refuse_sentencepiece(path);
    if (!ends_in(path, ".json"))
        return FAILED(
            "%s: not a tokenizer file; expected tokenizer.json, vocab.json, merges.txt or vocab.txt", path);
    CLEANUP(json_decrefp) json_t *json = NULL;
    TRY(json_read_file(path, &json));
    if (!json_is_object(json)) return FAILED("%s: expected a JSON object", path);
    if (json_is_object(json_object_get(json, "model")) || ends_in(path, "tokenizer.json"))
        return load_json(ret_tokenizer, json, path);
    TRY(sibling(path, "merges.txt", &other));
    return tokenizer_load_bpe_files(ret_tokenizer, path, other);
}

/* Files that identify a tokenizer directory, in order of preference. */
static const char *const marker_files[] = {"tokenizer.json", "vocab.json", "vocab.txt", NULL};

static Status find_file(const char *dir, char **ret_path) {
    *ret_path = NULL;
    for (int i = 0; marker_files[i]; i++) {
        CLEANUP(mem_freep) char *path = NULL;
        TRY(path_join(&path, dir, marker_files[i]));
        if (!path_exists(path)) continue;
        return MOVE(ret_path, path);
    }
    return OK;
}

bool tokenizer_exists(const char *dir) {
    CLEANUP(mem_freep) char *path = NULL;
    CLEANUP(status_freep) Status status = find_file(dir, &path);
    return !status && path;
}

Status tokenizer_load(Tokenizer **ret_tokenizer, const char *path) {
    if (!path_exists(path)) return FAILED("%s: no such tokenizer; expected a directory or a file", path);
    if (!path_is_dir(path)) return load_file(ret_tokenizer, path);
    CLEANUP(mem_freep) char *file = NULL;
    TRY(find_file(path, &file));
    if (!file) {
        TRY(path_join(&file, path, "tokenizer.model"));
        if (path_exists(file)) return refuse_sentencepiece(file);
        return FAILED(
            "%s: contains no tokenizer; expected tokenizer.json, vocab.json with merges.txt, or vocab.txt",
            path);
    }
    return load_file(ret_tokenizer, file);
}

bool tokenizer_is_bytes(const char *dir) {
    enum { LARGEST = 64 << 10 }; /* more than the byte vocabulary's file */
    CLEANUP(mem_freep) char *path = NULL, *text = NULL;
    size_t size;
    CLEANUP(json_decrefp) json_t *json = NULL;
    CLEANUP(status_freep) Status status = path_join(&path, dir, "tokenizer.json");
    if (!status) status = file_read(path, LARGEST, &text, &size);
    if (!status) status = json_parse(text, size, path, &json);
    bool bert;
    return !status && bytes_recognize(json, &bert);
}

Status tokenizer_save(const Tokenizer *tokenizer, const char *dir) {
    TRY(dir_make(dir));
    return tokenizer->ops->save(tokenizer, dir);
}

/* ---- accessors ---- */

TokenizerKind tokenizer_kind(const Tokenizer *tokenizer) {
    return tokenizer->ops->kind;
}

const char *tokenizer_kind_text(TokenizerKind kind) {
    static const TokenizerOps *const ops[] = {[TOKENIZER_BYTES] = &tokenizer_ops_bytes,
                                              [TOKENIZER_BPE] = &tokenizer_ops_bpe,
                                              [TOKENIZER_WORDPIECE] = &tokenizer_ops_wordpiece,
                                              [TOKENIZER_WORDLEVEL] = &tokenizer_ops_wordlevel};
    return ops[kind]->name;
}

const char *tokenizer_kind_name(const Tokenizer *tokenizer) {
    return tokenizer->ops->name;
}

int64_t tokenizer_vocab(const Tokenizer *tokenizer) {
    return tokenizer->vocab.count;
}

SpecialTokens tokenizer_special(const Tokenizer *tokenizer) {
    return tokenizer->roles;
}

const TokenTemplate *tokenizer_template(const Tokenizer *tokenizer, bool pair) {
    return pair ? &tokenizer->post.pair : &tokenizer->post.single;
}

uint64_t tokenizer_fingerprint(const Tokenizer *tokenizer) {
    return tokenizer->fingerprint;
}

int32_t tokenizer_find(const Tokenizer *tokenizer, const char *token, size_t size) {
    return vocab_find(&tokenizer->vocab, token, size);
}

const char *tokenizer_token(const Tokenizer *tokenizer, int32_t id, size_t *ret_size) {
    if (id < 0 || id >= tokenizer->vocab.count) {
        *ret_size = 0;
        return NULL;
    }
    return vocab_token(&tokenizer->vocab, id, ret_size);
}

/* ---- encoding ---- */

void token_list_done(TokenList *list) {
    free(list->ids);
    free(list->offsets);
    free(list->types);
    *list = (TokenList){0};
}

Status token_list_reserve(TokenList *list, size_t more, bool offsets) {
    if (more > SIZE_MAX - list->count) return FAILED("out of memory for %zu more tokens", more);
    size_t need = list->count + more;
    if (need > list->capacity) TRY(mem_grow(&list->ids, &list->capacity, need, sizeof *list->ids));
    if (offsets && need > list->offset_capacity)
        TRY(mem_grow(&list->offsets, &list->offset_capacity, need, sizeof *list->offsets));
    return OK;
}

Status encoder_new(Encoder **ret_encoder, const Tokenizer *tokenizer, const EncodeOptions *options) {
    CLEANUP(encoder_freep) Encoder *encoder = NULL;
    TRY(mem_new(1, sizeof *encoder, &encoder));
    encoder->tokenizer = tokenizer;
    if (options) encoder->options = *options;
    if (tokenizer->ops->encoder_init) TRY(tokenizer->ops->encoder_init(encoder));
    return MOVE(ret_encoder, encoder);
}

void encoder_free(Encoder *encoder) {
    if (!encoder) return;
    if (encoder->tokenizer->ops->encoder_done) encoder->tokenizer->ops->encoder_done(encoder);
    free(encoder);
}

Status encoder_add(Encoder *encoder, const char *text, size_t size, TokenList *list) {
    if (size == 0) return OK;
    size_t count = list->count;
    const TokenizerOps *ops = encoder->tokenizer->ops;
    Status status = encoder->options.plain || encoder->tokenizer->added_count == 0
                        ? ops->encode(encoder, text, size, 0, list)
                        : added_encode(encoder, text, size, list);
    if (status) list->count = count;
    TRY(status);
    if (encoder->options.offsets && encoder->tokenizer->post.trim_offsets)
        post_processor_trim(encoder->tokenizer, text, size, count, list);
    return OK;
}

Status encoder_add_more(Encoder *encoder, const char *text, size_t size, TokenList *list) {
    encoder->continues = true;
    Status status = encoder_add(encoder, text, size, list);
    encoder->continues = false;
    return status;
}

/* Appends a piece of a template: the tokens of `text`, or a special token if it is NULL. */
static void put_piece(TokenList *list, const TemplatePiece *piece, const TokenList *text, bool offsets,
                      bool types) {
    size_t count = text ? text->count : 1, at = list->count;
    if (count == 0) return;
    memcpy(list->ids + at, text ? text->ids : &piece->id, count * sizeof *list->ids);
    if (offsets && text) memcpy(list->offsets + at, text->offsets, count * sizeof *list->offsets);
    if (offsets && !text) list->offsets[at] = (TokenOffset){0, 0};
    for (size_t i = 0; types && i < count; i++) list->types[at + i] = piece->type;
    list->count += count;
}

Status encoder_add_sequence(Encoder *encoder, TextView first, const TextView *second, bool special,
                            TokenList *list) {
    CLEANUP(token_list_done) TokenList a = {0};
    CLEANUP(token_list_done) TokenList b = {0};
    const EncodeOptions *options = &encoder->options;
    const TokenTemplate *tpl = tokenizer_template(encoder->tokenizer, second != NULL);
    TRY(encoder_add(encoder, first.data, first.size, &a));
    if (second) TRY(encoder_add(encoder, second->data, second->size, &b));
    size_t length = 0;
    for (size_t i = 0; i < tpl->count; i++) {
        PieceKind kind = tpl->pieces[i].kind;
        length += kind == PIECE_FIRST ? a.count : kind == PIECE_SECOND ? b.count : special;
    }
    TRY(token_list_reserve(list, length, options->offsets));
    if (options->types)
        TRY(mem_grow(&list->types, &list->type_capacity, list->count + length, sizeof *list->types));
    for (size_t i = 0; i < tpl->count; i++) {
        const TemplatePiece *piece = &tpl->pieces[i];
        const TokenList *text = piece->kind == PIECE_FIRST ? &a : piece->kind == PIECE_SECOND ? &b : NULL;
        if (text || special) put_piece(list, piece, text, options->offsets, options->types);
    }
    return OK;
}

size_t encoder_cut(const Encoder *encoder, const char *text, size_t size) {
    const Tokenizer *tokenizer = encoder->tokenizer;
    if (encoder->options.plain || tokenizer->added_count == 0)
        return tokenizer->ops->cut(encoder, text, size);
    return added_cut(encoder, text, size);
}
