/* Writes the tokenizer of a GGUF file as transformers stores it: the reverse of gguf_vocab.c.
 *
 * SentencePiece's BPE has scores instead of merges. Merges are then all pairs of tokens that form a token,
 * those of the token with the highest score first. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "checkpoint/gguf_read.h"
#include "checkpoint/gguf_vocab.h"

#define KEY(name) "tokenizer.ggml." name

typedef struct Vocab {
    const GgufFile *file;
    const json_t *tokens, *types, *scores;
    size_t count; /* without unused tokens at the end */
} Vocab;

static const char space[] = "\xE2\x96\x81";

static int64_t type_of(const Vocab *v, size_t id) {
    const json_t *type = json_array_get(v->types, id);
    return type ? json_integer_value(type) : TYPE_NORMAL;
}

static const char *text_of(const Vocab *v, size_t id) {
    return json_string_value(json_array_get(v->tokens, id));
}

static const json_t *find(const GgufFile *file, const char *key) {
    return json_object_get(file->meta, key);
}

static bool is_set(const GgufFile *file, const char *key, bool otherwise) {
    const json_t *value = find(file, key);
    return json_is_boolean(value) ? json_is_true(value) : otherwise;
}

static Status read_vocab(const GgufFile *file, Vocab *ret_vocab) {
    Vocab v = {.file = file,
               .tokens = find(file, KEY("tokens")),
               .types = find(file, KEY("token_type")),
               .scores = find(file, KEY("scores"))};
    v.count = json_array_size(v.tokens);
    if ((v.types && json_array_size(v.types) != v.count) ||
        (v.scores && json_array_size(v.scores) != v.count))
        return DAMAGED("%s: its vocabulary has %zu tokens, but another number of types or scores", file->path,
                       v.count);
    for (size_t id = 0; id < v.count; id++)
        if (!text_of(&v, id) || !*text_of(&v, id))
            return DAMAGED("%s: token %zu of its vocabulary is not a text", file->path, id);
    while (v.count && type_of(&v, v.count - 1) == TYPE_UNUSED) v.count--;
    *ret_vocab = v;
    return OK;
}

static Status write_json(const char *dir, const char *name, const json_t *json) {
    CLEANUP(mem_freep) char *path = NULL;
    if (!json) return FAILED("out of memory while writing %s", name);
    TRY(path_join(&path, dir, name));
    return json_write_file(path, json);
}

/* ---- parts of tokenizer.json ---- */

/* The token that a key names; NULL: none. */
static const char *special(const Vocab *v, const char *key) {
    const json_t *id = find(v->file, key);
    json_int_t value = json_is_integer(id) ? json_integer_value(id) : -1;
    return value >= 0 && (size_t)value < v->count ? text_of(v, (size_t)value) : NULL;
}

static json_t *added_tokens(const Vocab *v) {
    json_t *list = json_array();
    for (size_t id = 0; id < v->count; id++) {
        int64_t type = type_of(v, id);
        if (type != TYPE_CONTROL && type != TYPE_USER_DEFINED && type != TYPE_UNKNOWN) continue;
        json_array_append_new(list,
                              json_pack("{s:I s:s s:b s:b s:b s:b s:b}", "id", (json_int_t)id, "content",
                                        text_of(v, id), "single_word", 0, "lstrip", 0, "rstrip", 0,
                                        "normalized", 0, "special", type != TYPE_USER_DEFINED));
    }
    return list;
}

static json_t *vocabulary(const Vocab *v) {
    json_t *vocab = json_object();
    for (size_t id = 0; id < v->count; id++)
        if (type_of(v, id) != TYPE_UNUSED)
            json_object_set_new(vocab, text_of(v, id), json_integer((json_int_t)id));
    return vocab;
}

/* Tokens before and after texts: as llama.cpp adds them. */
static json_t *post_processor(const Vocab *v, bool bos_by_default) {
    const char *bos = special(v, KEY("bos_token_id")), *eos = special(v, KEY("eos_token_id"));
    if (!is_set(v->file, KEY("add_bos_token"), bos_by_default)) bos = NULL;
    if (!is_set(v->file, KEY("add_eos_token"), false)) eos = NULL;
    if (!bos && !eos) return json_null();
    json_t *single = json_array(), *pair = json_array(), *tokens = json_object();
    for (int part = 0; part < 2; part++) {
        const char *text = part ? "B" : "A";
        for (int k = 0; k < 2; k++) {
            json_t *to = k ? pair : single;
            if (part && !k) continue;
            if (bos)
                json_array_append_new(to,
                                      json_pack("{s:{s:s s:i}}", "SpecialToken", "id", bos, "type_id", part));
            json_array_append_new(to, json_pack("{s:{s:s s:i}}", "Sequence", "id", text, "type_id", part));
            if (eos)
                json_array_append_new(to,
                                      json_pack("{s:{s:s s:i}}", "SpecialToken", "id", eos, "type_id", part));
        }
    }
    const char *both[] = {bos, eos};
    const char *keys[] = {KEY("bos_token_id"), KEY("eos_token_id")};
    for (int i = 0; i < 2; i++)
        if (both[i])
            json_object_set_new(tokens, both[i],
                                json_pack("{s:s s:[I] s:[s]}", "id", both[i], "ids",
                                          json_integer_value(find(v->file, keys[i])), "tokens", both[i]));
    return json_pack("{s:s s:o s:o s:o}", "type", "TemplateProcessing", "single", single, "pair", pair,
                     "special_tokens", tokens);
}

static json_t *byte_level(bool words) {
    return json_pack("{s:s s:b s:b s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1,
                     "use_regex", words);
}

/* Takes over the parts. */
static Status write_tokenizer(const Vocab *v, const char *dir, json_t *normalizer, json_t *pre, json_t *post,
                              json_t *decoder, json_t *model) {
    CLEANUP(json_decrefp)
    json_t *json =
        json_pack("{s:s s:n s:n s:o s:o s:o s:o s:o s:o}", "version", "1.0", "truncation", "padding",
                  "added_tokens", added_tokens(v), "normalizer", normalizer, "pre_tokenizer", pre,
                  "post_processor", post, "decoder", decoder, "model", model);
    return write_json(dir, "tokenizer.json", json);
}

/* ---- byte-level BPE ---- */

static json_t *pre_tokenizer(const GgufPre *pre) {
    json_t *last = byte_level(pre->words), *first;
    if (pre->split)
        first = json_pack("{s:s s:{s:s} s:s s:b}", "type", "Split", "pattern", "Regex", pre->split,
                          "behavior", "Isolated", "invert", 0);
    else if (pre->digits)
        first = json_pack("{s:s s:b}", "type", "Digits", "individual_digits", 1);
    else
        return last;
    return json_pack("{s:s s:[o o]}", "type", "Sequence", "pretokenizers", first, last);
}

static Status write_byte_level(const Vocab *v, const char *dir, bool *ret_written) {
    const char *name = json_string_value(find(v->file, KEY("pre")));
    const json_t *merges = find(v->file, KEY("merges"));
    GgufPre pre;
    *ret_written = gguf_pre_find(name ? name : "gpt-2", &pre);
    if (!*ret_written) return OK;
    json_t *list = json_is_array(merges) ? json_incref((json_t *)(uintptr_t)merges) : json_array();
    json_t *model =
        json_pack("{s:s s:n s:n s:n s:n s:b s:b s:b s:o s:o}", "type", "BPE", "dropout", "unk_token",
                  "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0,
                  "ignore_merges", pre.ignore_merges, "vocab", vocabulary(v), "merges", list);
    json_t *post = post_processor(v, false);
    if (json_is_null(post)) {
        json_decref(post);
        post = byte_level(true);
    }
    return write_tokenizer(v, dir, json_null(), pre_tokenizer(&pre), post, byte_level(true), model);
}

/* ---- SentencePiece's BPE ---- */

typedef struct Merge {
    double score;
    json_int_t left, right; /* ids */
    size_t at;              /* of the token that they form */
} Merge;

static int by_score(const void *a, const void *b) {
    const Merge *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    if (x->left != y->left) return x->left < y->left ? -1 : 1;
    return x->right < y->right ? -1 : x->right > y->right;
}

typedef struct Merges {
    Merge *merge;
    size_t count, capacity;
} Merges;

static void merges_done(Merges *merges) {
    free(merges->merge);
}

/* Adds the pairs of tokens that form a token. */
static Status add_merges(const Vocab *v, const json_t *ids, size_t id, Merges *merges) {
    enum { LONGEST = 1 << 10 };
    char left[LONGEST];
    const char *text = text_of(v, id);
    size_t size = strlen(text);
    for (size_t at = 1; at < size && size < LONGEST; at++) {
        if (((unsigned char)text[at] & 0xC0) == 0x80) continue;
        memcpy(left, text, at);
        left[at] = 0;
        const json_t *first = json_object_get(ids, left), *second = json_object_get(ids, text + at);
        if (!first || !second) continue;
        TRY(mem_grow(&merges->merge, &merges->capacity, merges->count + 1, sizeof *merges->merge));
        merges->merge[merges->count++] = (Merge){.score = json_number_value(json_array_get(v->scores, id)),
                                                 .left = json_integer_value(first),
                                                 .right = json_integer_value(second),
                                                 .at = id};
    }
    return OK;
}

static Status find_merges(const Vocab *v, json_t **ret_list) {
    CLEANUP(merges_done) Merges merges = {0};
    CLEANUP(json_decrefp) json_t *ids = json_object(), *list = json_array();
    for (size_t id = 0; id < v->count; id++)
        if (type_of(v, id) == TYPE_NORMAL)
            json_object_set_new(ids, text_of(v, id), json_integer((json_int_t)id));
    for (size_t id = 0; id < v->count; id++)
        if (type_of(v, id) == TYPE_NORMAL) TRY(add_merges(v, ids, id, &merges));
    if (merges.count) qsort(merges.merge, merges.count, sizeof *merges.merge, by_score);
    for (size_t i = 0; i < merges.count; i++) {
        const Merge *merge = &merges.merge[i];
        json_t *pair =
            json_sprintf("%s %s", text_of(v, (size_t)merge->left), text_of(v, (size_t)merge->right));
        if (json_array_append_new(list, pair)) return FAILED("out of memory while reading %s", v->file->path);
    }
    *ret_list = list;
    list = NULL;
    return OK;
}

static json_t *replace(const char *from, const char *to) {
    return json_pack("{s:s s:{s:s} s:s}", "type", "Replace", "pattern", "String", from, "content", to);
}

static Status write_sentencepiece(const Vocab *v, const char *dir) {
    bool prefix = is_set(v->file, KEY("add_space_prefix"), true);
    const char *unk = special(v, KEY("unknown_token_id"));
    json_t *merges = NULL;
    TRY(find_merges(v, &merges));
    json_t *normalizer = prefix ? json_pack("{s:s s:[{s:s s:s} o]}", "type", "Sequence", "normalizers",
                                            "type", "Prepend", "prepend", space, replace(" ", space))
                                : replace(" ", space);
    json_t *steps = json_pack("[o {s:s} {s:s}]", replace(space, " "), "type", "ByteFallback", "type", "Fuse");
    if (prefix)
        json_array_append_new(
            steps, json_pack("{s:s s:s s:i s:i}", "type", "Strip", "content", " ", "start", 1, "stop", 0));
    json_t *model =
        json_pack("{s:s s:n s:s? s:n s:n s:b s:b s:b s:o s:o}", "type", "BPE", "dropout", "unk_token", unk,
                  "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 1, "byte_fallback", 1,
                  "ignore_merges", 0, "vocab", vocabulary(v), "merges", merges);
    json_t *decoder = json_pack("{s:s s:o}", "type", "Sequence", "decoders", steps);
    return write_tokenizer(v, dir, normalizer, json_null(), post_processor(v, true), decoder, model);
}

/* ---- WordPiece ---- */

/* llama.cpp marks the start of a word instead of its continuation. */
static Status write_wordpiece(const Vocab *v, const char *dir) {
    CLEANUP(mem_freep) char *path = NULL;
    CLEANUP(file_writer_freep) FileWriter *writer = NULL;
    TRY(path_join(&path, dir, "vocab.txt"));
    TRY(file_writer_new(&writer, path));
    for (size_t id = 0; id < v->count; id++) {
        const char *text = text_of(v, id);
        bool whole = type_of(v, id) != TYPE_NORMAL || (*text == '[' && text[strlen(text) - 1] == ']');
        bool starts = !whole && !strncmp(text, space, sizeof space - 1);
        TRY(file_print(writer, "%s%s\n", whole || starts ? "" : "##",
                       starts ? text + sizeof space - 1 : text));
    }
    TRY(file_commit(writer));
    bool lower = is_set(v->file, KEY("normalizer.lowercase"), true);
    CLEANUP(json_decrefp)
    json_t *json = json_pack("{s:s s:b s:b}", "tokenizer_class", "BertTokenizer", "do_lower_case", lower,
                             "strip_accents", is_set(v->file, KEY("normalizer.strip_accents"), lower));
    return write_json(dir, "tokenizer_config.json", json);
}

/* ---- all kinds ---- */

static Status write_settings(const Vocab *v, const char *dir) {
    const json_t *template = find(v->file, "tokenizer.chat_template");
    CLEANUP(json_decrefp) json_t *json = json_pack("{s:s}", "tokenizer_class", "PreTrainedTokenizerFast");
    const struct {
        const char *name, *key;
    } tokens[] = {{"bos_token", KEY("bos_token_id")},
                  {"eos_token", KEY("eos_token_id")},
                  {"unk_token", KEY("unknown_token_id")},
                  {"pad_token", KEY("padding_token_id")}};
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
        if (special(v, tokens[i].key))
            TRY(json_put(json, tokens[i].name, json_string(special(v, tokens[i].key))));
    if (json_is_string(template))
        TRY(json_put(json, "chat_template", json_incref((json_t *)(uintptr_t) template)));
    return write_json(dir, "tokenizer_config.json", json);
}

Status gguf_write_tokenizer(const GgufFile *file, const char *dir) {
    const char *model = json_string_value(find(file, KEY("model")));
    bool written = true;
    Vocab v;
    if (!model || !find(file, KEY("tokens"))) return OK;
    TRY(read_vocab(file, &v));
    if (!strcmp(model, "bert")) return write_wordpiece(&v, dir);
    if (!strcmp(model, "gpt2"))
        TRY(write_byte_level(&v, dir, &written));
    else if (!strcmp(model, "llama") && v.scores)
        TRY(write_sentencepiece(&v, dir));
    else
        written = false;
    return written ? write_settings(&v, dir) : OK;
}
