/* Prompts from text, files and token ids. */
#include "infer/prompt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/memory.h"
#include "data/reader.h"

enum { PROMPT_LIMIT = 64 << 20 }; /* bytes */

void prompt_list_done(PromptList *list) {
    for (size_t i = 0; i < list->used; i++) free(list->ids[i]);
    free(list->ids);
    free(list->count);
    free(list->prompts);
}

/* Takes ownership of *ids. */
static Status append(PromptList *list, int32_t **ids, int64_t count) {
    TRY(mem_grow(&list->ids, &list->ids_capacity, list->used + 1, sizeof *list->ids));
    TRY(mem_grow(&list->count, &list->count_capacity, list->used + 1, sizeof *list->count));
    list->count[list->used] = count;
    list->ids[list->used++] = *ids;
    *ids = NULL;
    return OK;
}

Status prompt_list_add_text(PromptList *list, Encoder *encoder, const char *text, size_t size) {
    CLEANUP(token_list_done) TokenList tokens = {0};
    TRY(encoder_add_sequence(encoder, (TextView){text, size}, NULL, !list->no_special, &tokens));
    return append(list, &tokens.ids, (int64_t)tokens.count);
}

static Status read_stdin(char **ret_text, size_t *ret_size) {
    CLEANUP(mem_freep) char *text = NULL;
    size_t capacity = 0, size = 0, got = 1;
    while (got > 0) {
        TRY(mem_grow(&text, &capacity, size + 4096, 1));
        got = fread(text + size, 1, capacity - size, stdin);
        size += got;
        if (size > PROMPT_LIMIT) return FAILED("standard input: longer than %d bytes", (int)PROMPT_LIMIT);
    }
    if (ferror(stdin)) return FAILED("standard input: cannot read: %s", strerror(errno));
    *ret_text = text;
    *ret_size = size;
    text = NULL;
    return OK;
}

Status prompt_read(const char *path, char **ret_text, size_t *ret_size) {
    return strcmp(path, "-") ? file_read(path, PROMPT_LIMIT, ret_text, ret_size)
                             : read_stdin(ret_text, ret_size);
}

static Status read_once(PromptList *list, const char *path, char **ret_text, size_t *ret_size) {
    bool from_stdin = !strcmp(path, "-");
    if (from_stdin && list->stdin_used) return USAGE("standard input (-) can be used for only one prompt");
    list->stdin_used |= from_stdin;
    return prompt_read(path, ret_text, ret_size);
}

Status prompt_list_add_file(PromptList *list, Encoder *encoder, const char *path) {
    CLEANUP(mem_freep) char *text = NULL;
    size_t size;
    TRY(read_once(list, path, &text, &size));
    return prompt_list_add_text(list, encoder, text, size);
}

static Status add_json_ids(PromptList *list, const json_t *array, const char *from) {
    CLEANUP(mem_freep) int32_t *ids = NULL;
    size_t count = json_array_size(array);
    TRY(mem_new(count + 1, sizeof *ids, &ids));
    for (size_t i = 0; i < count; i++) {
        const json_t *id = json_array_get(array, i);
        json_int_t value = json_is_integer(id) ? json_integer_value(id) : -1;
        if (value < 0 || value > INT32_MAX) return USAGE("%s: entry %zu is not a token id", from, i + 1);
        ids[i] = (int32_t)value;
    }
    return append(list, &ids, (int64_t)count);
}

static Status add_line_text(PromptList *list, Encoder *encoder, const char *text, size_t size,
                            const char *from) {
    if (!encoder)
        return USAGE("%s: text needs a tokenizer; name one with {tokenizer}, or give token ids", from);
    return prompt_list_add_text(list, encoder, text, size);
}

static Status add_json_line(PromptList *list, Encoder *encoder, const char *line, size_t size,
                            const char *from) {
    CLEANUP(json_decrefp) json_t *list_of_one = NULL;
    CLEANUP(mem_freep) char *text = NULL;
    /* json_parse expects a list or an object, but the line may be a string. */
    TRY(str_format(&text, "[%.*s]", (int)size, line));
    TRY(json_parse(text, strlen(text), from, &list_of_one));
    const json_t *json = json_array_size(list_of_one) == 1 ? json_array_get(list_of_one, 0) : NULL;
    const json_t *prompt = json_is_object(json) ? json_object_get(json, "prompt") : json;
    if (json_is_array(prompt)) return add_json_ids(list, prompt, from);
    if (!json_is_string(prompt))
        return USAGE("%s: expected a text, a list of token ids, or an object with one of these as 'prompt'",
                     from);
    return add_line_text(list, encoder, json_string_value(prompt), json_string_length(prompt), from);
}

Status prompt_list_add_lines(PromptList *list, Encoder *encoder, const char *path) {
    CLEANUP(mem_freep) char *text = NULL, *from = NULL;
    size_t size, at = 0;
    TRY(read_once(list, path, &text, &size));
    for (int64_t number = 1; at < size; number++) {
        const char *line = text + at, *end = memchr(line, '\n', size - at);
        size_t length = end ? (size_t)(end - line) : size - at;
        at += length + 1;
        if (length > 0 && line[length - 1] == '\r') length--;
        free(from);
        from = NULL;
        TRY(str_format(&from, "%s, line %lld", path, (long long)number));
        TRY(reader_is_json(path) ? add_json_line(list, encoder, line, length, from)
                                 : add_line_text(list, encoder, line, length, from));
    }
    return OK;
}

Status prompt_list_add_ids(PromptList *list, const char *text) {
    CLEANUP(mem_freep) int32_t *ids = NULL;
    size_t capacity = 0, count = 0;
    const char *at = text + strspn(text, " ");
    bool comma = false; /* another id must follow */
    while (*at || comma) {
        char *end;
        if (!*at) return USAGE("{prompt-ids}: expected a token id after '%.40s'", text);
        errno = 0;
        long long id = strtoll(at, &end, 10);
        if (end == at || errno || id < 0 || id > INT32_MAX || (*end && !strchr(", ", *end)))
            return USAGE("{prompt-ids}: expected token ids separated by commas, found '%.40s'", at);
        TRY(mem_grow(&ids, &capacity, count + 1, sizeof *ids));
        ids[count++] = (int32_t)id;
        at = end + strspn(end, " ");
        comma = *at == ',';
        at += comma;
        at += strspn(at, " ");
    }
    return append(list, &ids, (int64_t)count);
}

static bool in_vocab(const ModelConfig *model, int64_t token) {
    return token >= 0 && token < model->vocab;
}

/* An empty prompt starts like a training document: after an end token. */
static int64_t start_token(const ModelConfig *model, const Tokenizer *tokenizer) {
    /* A config.json may have token ids outside its vocabulary. */
    if (in_vocab(model, model->bos_token)) return model->bos_token;
    if (in_vocab(model, model->eos_token)) return model->eos_token;
    return tokenizer ? tokenizer_special(tokenizer).end : -1;
}

static Status fill_empty(PromptList *list, const ModelConfig *model, int64_t start) {
    int32_t *empty = NULL;
    if (list->used == 0) TRY(append(list, &empty, 0));
    for (size_t i = 0; i < list->used; i++) {
        if (list->count[i] > 0) continue;
        if (!in_vocab(model, start))
            return USAGE("the model has no end token to start an empty prompt from; pass a prompt");
        free(list->ids[i]);
        list->ids[i] = NULL;
        TRY(mem_new(1, sizeof **list->ids, &list->ids[i]));
        list->ids[i][0] = (int32_t)start;
        list->count[i] = 1;
    }
    return OK;
}

/* Number of earlier prompts that are identical. */
static size_t repeats(const PromptList *list, size_t prompt) {
    size_t count = 0, bytes = (size_t)list->count[prompt] * sizeof **list->ids;
    for (size_t i = 0; i < prompt; i++)
        count += list->count[i] == list->count[prompt] && !memcmp(list->ids[i], list->ids[prompt], bytes);
    return count;
}

/* A sequence number combines the sample's index with the number of earlier identical prompts, so neither
 * the number of samples nor other prompts change a prompt's output. */
static Status number_sequences(PromptList *list, int64_t samples) {
    size_t earlier = 0;
    TRY(mem_new(list->used * (size_t)samples, sizeof *list->prompts, &list->prompts));
    for (size_t i = 0; i < list->used * (size_t)samples; i++) {
        size_t prompt = i / (size_t)samples, sample = i % (size_t)samples;
        if (sample == 0) earlier = repeats(list, prompt);
        list->prompts[i] = (Prompt){
            .ids = list->ids[prompt],
            .count = list->count[prompt],
            .sequence = (uint64_t)earlier << 32 | sample,
        };
    }
    return OK;
}

Status prompt_list_finish(PromptList *list, const ModelConfig *model, const Tokenizer *tokenizer,
                          int64_t samples) {
    TRY(fill_empty(list, model, start_token(model, tokenizer)));
    return number_sequences(list, samples);
}
