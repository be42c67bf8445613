#include "cli/info.h"

#include "base/format.h"
#include "base/fs.h"
#include "base/memory.h"
#include "data/token_file.h"

static json_t *special_json(const SpecialTokens *special) {
    const struct {
        const char *name;
        int32_t id;
    } roles[] = {{"pad", special->pad},   {"cls", special->cls}, {"sep", special->sep},
                 {"mask", special->mask}, {"unk", special->unk}, {"end", special->end}};
    json_t *json = json_object();
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (roles[i].id >= 0) json_object_set_new(json, roles[i].name, json_integer(roles[i].id));
    return json;
}

static json_t *id_json(const TokenizerId *id) {
    char print[24];
    snprintf(print, sizeof print, "%016llx", (unsigned long long)id->fingerprint);
    return json_pack("{s:s, s:I, s:s, s:o}", "kind", tokenizer_kind_text(id->kind), "vocab",
                     (json_int_t)id->vocab, "fingerprint", print, "special_tokens",
                     special_json(&id->special));
}

/* ---- token files ---- */

static Status add_token_file(json_t *result, json_t *files, const char *path, bool verify) {
    CLEANUP(token_file_freep) TokenFile *token_file = NULL;
    TRY(token_file_open(&token_file, path));
    if (verify) TRY(token_file_verify(token_file));
    const TokenFileInfo *info = token_file_info(token_file);
    TRY(json_put(result, "tokens", json_integer(json_int_at(result, "tokens") + info->tokens)));
    TRY(json_put(result, "documents", json_integer(json_int_at(result, "documents") + info->documents)));
    if (info->marked)
        TRY(json_put(result, "sentences", json_integer(json_int_at(result, "sentences") + info->sentences)));
    TRY(json_put(result, "bytes",
                 json_integer(json_int_at(result, "bytes") + (int64_t)token_file_bytes(token_file))));
    TRY(json_put(result, "dtype", json_string(info->width == 2 ? "u16" : "u32")));
    TRY(json_put(result, "tokenizer", id_json(&info->tokenizer)));
    json_t *file =
        json_pack("{s:s, s:I, s:I, s:I}", "path", path, "tokens", (json_int_t)info->tokens, "documents",
                  (json_int_t)info->documents, "bytes", (json_int_t)token_file_bytes(token_file));
    if (json_array_append_new(files, file)) return FAILED("out of memory while writing the result");
    return OK;
}

static Status add_set(json_t *result, const TokenFileList *list, bool verify) {
    json_t *files = json_array();
    TRY(json_put(result, "shards", files));
    for (size_t i = 0; i < list->count; i++) TRY(add_token_file(result, files, list->path[i], verify));
    return OK;
}

/* The copy of the tokenizer beside token files must be the one that they were prepared with. */
static Status verify_tokenizer(const char *path) {
    CLEANUP(token_file_freep) TokenFile *file = NULL;
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    CLEANUP(mem_freep) char *dir = NULL;
    char own[TOKENIZER_ID_TEXT], other[TOKENIZER_ID_TEXT];
    TRY(token_file_tokenizer(path, &dir));
    if (!path_exists(dir)) return OK;
    TRY(token_file_open(&file, path));
    TRY(tokenizer_load(&tokenizer, dir));
    TokenizerId id = tokenizer_id(tokenizer);
    const TokenizerId *prepared = &token_file_info(file)->tokenizer;
    if (tokenizer_id_same(&id, prepared)) return OK;
    return FAILED("%s was prepared with a different tokenizer (%s) than the one in %s (%s)", path,
                  tokenizer_id_text(prepared, own), dir, tokenizer_id_text(&id, other));
}

Status info_token_files(json_t *result, const char *path, bool verify) {
    CLEANUP(token_file_list_done) TokenFileList list = {0}, val = {0};
    TRY(json_put(result, "kind", json_string("shards")));
    TRY(token_file_list_add(&list, path));
    TRY(add_set(result, &list, verify));
    if (verify && list.count) TRY(verify_tokenizer(list.path[0]));
    if (path_is_dir(path)) TRY(token_file_list_dir(&val, path, "val"));
    if (val.count) {
        json_t *set = json_object();
        TRY(json_put(result, "val", set));
        TRY(add_set(set, &val, verify));
    }
    return json_put(result, "verified", json_boolean(verify));
}

static void show_tokenizer_line(const json_t *tokenizer, FILE *out) {
    fprintf(out, "tokenizer    %s, %lld tokens, fingerprint %s\n", json_string_or(tokenizer, "kind", ""),
            (long long)json_int_at(tokenizer, "vocab"), json_string_or(tokenizer, "fingerprint", ""));
    const char *name, *before = "special      ";
    json_t *id;
    json_object_foreach(json_object_get(tokenizer, "special_tokens"), name, id) {
        fprintf(out, "%s%s %lld", before, name, (long long)json_integer_value(id));
        before = ", ";
    }
    if (json_object_size(json_object_get(tokenizer, "special_tokens"))) fputc('\n', out);
}

static void show_set(const json_t *set, const char *name, FILE *out) {
    char tokens[FORMAT_SIZE], documents[FORMAT_SIZE], bytes[FORMAT_SIZE];
    size_t count = json_array_size(json_object_get(set, "shards"));
    fprintf(out, "%-12s %s tokens in %s document%s, %s as %s in %zu file%s\n", name,
            format_count(tokens, (double)json_int_at(set, "tokens")),
            format_count(documents, (double)json_int_at(set, "documents")),
            PLURAL(json_int_at(set, "documents")), format_bytes(bytes, (double)json_int_at(set, "bytes")),
            json_string_or(set, "dtype", ""), count, PLURAL(count));
    if (json_object_get(set, "sentences"))
        fprintf(out, "%-12s %s sentences\n", "", format_count(tokens, (double)json_int_at(set, "sentences")));
}

void info_token_files_show(const json_t *result, FILE *out) {
    const json_t *val = json_object_get(result, "val");
    show_set(result, "tokens", out);
    if (val) show_set(val, "validation", out);
    show_tokenizer_line(json_object_get(result, "tokenizer"), out);
    fprintf(out, "checksums    %s\n",
            json_is_true(json_object_get(result, "verified")) ? "verified" : "not verified; use --verify");
}

/* ---- tokenizers ---- */

Status info_tokenizer(json_t *result, const char *path) {
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    TRY(tokenizer_load(&tokenizer, path));
    TokenizerId id = tokenizer_id(tokenizer);
    TRY(json_put(result, "kind", json_string("tokenizer")));
    return json_put(result, "tokenizer", id_json(&id));
}

void info_tokenizer_show(const json_t *result, FILE *out) {
    show_tokenizer_line(json_object_get(result, "tokenizer"), out);
}
