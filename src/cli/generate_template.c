/* Conversations as prompts: the model's chat template, files of messages, and where a turn ends. */
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "chat/conversation.h"
#include "cli/generate.h"
#include "tokenizer/tokenizer.h"

Status chat_load(const GenerateConfig *config, const char *dir, ChatTemplate **ret_template) {
    CLEANUP(chat_template_freep) ChatTemplate *template = NULL;
    CLEANUP(mem_freep) char *beside = NULL;
    bool bytes = config->tokenizer && !strcmp(config->tokenizer, "bytes");
    if (config->tokenizer && !bytes) TRY(tokenizer_dir(config->tokenizer, &beside));
    if (config->chat_template) {
        TRY(chat_template_read(&template, config->chat_template, beside ? beside : dir));
    } else {
        if (beside) TRY(chat_template_load(&template, beside));
        if (!template) TRY(chat_template_load(&template, dir));
    }
    if (!template)
        return USAGE("%s has no chat template; pass --chat-template FILE, or continue text without --chat",
                     config->model);
    return MOVE(ret_template, template);
}

/* The local time, as templates show it. */
static int64_t local_time(void) {
    time_t now = time(NULL);
    struct tm parts = {0};
    localtime_r(&now, &parts);
    return (int64_t)now + parts.tm_gmtoff;
}

Status chat_prompt_text(const ChatTemplate *template, const json_t *conversation, char **ret_text,
                        size_t *ret_size) {
    return chat_render(template, conversation, true, local_time(), ret_text, ret_size);
}

json_t *chat_new(const char *system) {
    json_t *conversation = json_pack("{s:[]}", "messages");
    Status status = conversation && system ? chat_say(conversation, "system", system, strlen(system)) : OK;
    if (!status) return conversation;
    status_free(status);
    json_decref(conversation);
    return NULL;
}

Status chat_say(json_t *conversation, const char *role, const char *text, size_t size) {
    CLEANUP(mem_freep) char *utf8 = NULL;
    size_t valid;
    TRY(text_to_utf8(text, size, &utf8, &valid));
    json_t *message = json_pack("{s:s, s:s%}", "role", role, "content", utf8, valid);
    if (json_array_append_new(json_object_get(conversation, "messages"), message))
        return FAILED("out of memory while adding to a conversation");
    return OK;
}

/* ---- files ---- */

typedef struct Reading {
    const char *file;
    json_t *list;
} Reading;

static Status take_conversation(void *context, int64_t number, const json_t *conversation) {
    const Reading *reading = context;
    (void)number;
    const json_t *messages = json_object_get(conversation, "messages"),
                 *last = json_array_get(messages, json_array_size(messages) - 1);
    if (!strcmp(json_string_or(last, "role", ""), "assistant"))
        return USAGE("the last message is the assistant's; expected one to answer");
    if (json_array_append(reading->list, (json_t *)conversation))
        return FAILED("out of memory while reading %s", reading->file);
    return OK;
}

/* The file as one conversation: an object over several lines, or a list of messages. *ret_json stays NULL if
 * it is neither. */
static Status parse_single(const char *text, size_t size, json_t **ret_json) {
    CLEANUP(json_decrefp) json_t *json = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
    bool list = json_object_get(json_array_get(json, 0), "role") != NULL;
    if (list) {
        *ret_json = json_pack("{s:O}", "messages", json);
        return *ret_json ? OK : FAILED("out of memory while reading a conversation");
    }
    if (json_is_object(json)) *ret_json = json_incref(json);
    return OK;
}

Status chat_read_file(const char *file, json_t **ret_list) {
    CLEANUP(json_decrefp) json_t *list = json_array(), *single = NULL, *conversation = NULL;
    CLEANUP(mem_freep) char *text = NULL;
    Reading reading = {.file = file, .list = list};
    ChatFormat format = CHAT_NONE;
    size_t size;
    TRY(prompt_read(file, &text, &size));
    TRY(parse_single(text, size, &single));
    if (single) {
        Status status = chat_normalize(single, &format, &conversation);
        if (!status) status = take_conversation(&reading, 1, conversation);
        TRY(status_wrap(status, "%s", file));
    } else {
        TRY(chat_read(file, text, size, &format, take_conversation, &reading));
    }
    if (json_array_size(list) == 0) return USAGE("%s has no conversations", file);
    return MOVE(ret_list, list);
}

/* ---- the end of a turn ---- */

static const char *find_last(const char *text, const char *what) {
    const char *last = NULL;
    for (const char *at = text; (at = strstr(at, what)); at++) last = at;
    return last;
}

/* What follows an answer's text begins with the token that ends it. */
Status chat_find_end(const ChatTemplate *template, const Tokenizer *tokenizer, ChatEnd *ret_end) {
    static const char said[] = "weft";
    CLEANUP(json_decrefp) json_t *conversation = chat_new(NULL);
    CLEANUP(mem_freep) char *text = NULL;
    CLEANUP(token_list_done) TokenList tokens = {0};
    CLEANUP(encoder_freep) Encoder *encoder = NULL;
    EncodeOptions options = {.offsets = true};
    size_t size;
    *ret_end = (ChatEnd){.token = -1};
    TRY(chat_say(conversation, "user", "warp", 4));
    TRY(chat_say(conversation, "assistant", said, strlen(said)));
    CLEANUP(status_freep)
    Status refused = chat_render(template, conversation, false, local_time(), &text, &size);
    const char *last = refused ? NULL : find_last(text, said);
    if (!last) return OK;
    last += strlen(said);
    TRY(encoder_new(&encoder, tokenizer, &options));
    TRY(encoder_add(encoder, last, strlen(last), &tokens));
    for (size_t i = 0; i < tokens.count; i++) {
        if (tokenizer_class(tokenizer, tokens.ids[i]) == TOKEN_NORMAL) continue;
        ret_end->token = tokens.ids[i];
        return str_format(&ret_end->text, "%.*s", (int)tokens.offsets[i].start, last);
    }
    size = strlen(last);
    while (size && strchr(" \t\r\n", last[size - 1])) size--;
    return size ? str_format(&ret_end->text, "%.*s", (int)size, last) : OK;
}
