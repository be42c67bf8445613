/* The part of `weft info` that describes files of conversations: their format and size and, with a model, how
 * many tokens they have and which of one conversation are trained on. */
#include <string.h>

#include "base/format.h"
#include "base/memory.h"
#include "checkpoint/checkpoint.h"
#include "cli/info.h"
#include "data/chats.h"
#include "data/source.h"
#include "data/table.h"

typedef struct Counting {
    const InfoChats *asked;
    json_t *result, *roles;
    int64_t conversations, messages;
    /* with a model */
    ModelDir dir;
    Tokenizer *tokenizer;
    ChatTemplate *template;
    Encoder *encoder;
    int32_t end;
    ChatTokens tokens;
    int64_t all, trained, longest;
} Counting;

static void counting_done(Counting *counting) {
    encoder_free(counting->encoder);
    chat_template_free(counting->template);
    tokenizer_free(counting->tokenizer);
    model_dir_done(&counting->dir);
    chat_tokens_done(&counting->tokens);
}

static Status load_model(Counting *counting) {
    const InfoChats *asked = counting->asked;
    EncodeOptions options = {.offsets = true};
    ModelConfig config;
    TRY(model_dir_open(&counting->dir, asked->model));
    const char *dir = counting->dir.path;
    TRY(hf_config_read(dir, &config));
    counting->end = (int32_t)config.eos_token;
    if (tokenizer_exists(dir))
        TRY(tokenizer_load(&counting->tokenizer, dir));
    else
        TRY(tokenizer_new_bytes(&counting->tokenizer, false));
    TRY(asked->chat_template ? chat_template_read(&counting->template, asked->chat_template, dir)
                             : chat_template_load(&counting->template, dir));
    return encoder_new(&counting->encoder, counting->tokenizer, &options);
}

/* The text of a conversation in pieces that are trained on or not. */
static Status put_text(Counting *counting, json_t *example) {
    const TokenList *list = &counting->tokens.tokens;
    const char *text = counting->tokens.text;
    size_t at = 0, size = strlen(text);
    json_t *parts = json_array();
    TRY(json_put(example, "parts", parts));
    for (size_t i = 0; i <= list->count && at < size;) {
        size_t first = i;
        bool trained = i < list->count && counting->tokens.trained[i];
        while (i < list->count && counting->tokens.trained[i] == trained) i++;
        size_t end = i < list->count ? list->offsets[i].start : size;
        while (end > at && ((unsigned char)text[end] & 0xc0) == 0x80) end--; /* a token of half a character */
        if (end < at) end = at;
        if (end > at && json_array_append_new(
                            parts, json_pack("{s:b, s:s%}", "trained", trained, "text", text + at, end - at)))
            return FAILED("out of memory while writing the result");
        at = end;
        if (i == first) break;
    }
    return OK;
}

/* Without a model, a conversation is its messages. */
static Status put_example(Counting *counting, int64_t number, const json_t *conversation) {
    json_t *example = json_pack("{s:I}", "number", (json_int_t)number);
    TRY(json_put(counting->result, "example", example));
    if (counting->encoder) return put_text(counting, example);
    return json_put(example, "messages", json_incref(json_object_get(conversation, "messages")));
}

static Status count_conversation(void *context, int64_t number, const json_t *conversation) {
    Counting *counting = context;
    const json_t *message;
    size_t index;
    json_array_foreach(json_object_get(conversation, "messages"), index, message) {
        const char *role = json_string_or(message, "role", "");
        TRY(json_put(counting->roles, role, json_integer(json_int_at(counting->roles, role) + 1)));
        counting->messages++;
    }
    counting->conversations++;
    if (counting->encoder) {
        TRY(chat_tokens_make(&counting->tokens, counting->template, counting->tokenizer, counting->encoder,
                             conversation, (LossOn)counting->asked->loss_on, counting->end));
        int64_t count = (int64_t)counting->tokens.tokens.count;
        counting->all += count;
        if (count > counting->longest) counting->longest = count;
        for (int64_t i = 1; i < count; i++) counting->trained += counting->tokens.trained[i];
    }
    return counting->conversations == counting->asked->example ? put_example(counting, number, conversation)
                                                               : OK;
}

bool info_has_chats(const char *path) {
    DataFormat format = FORMAT_AUTO;
    if (!path_is_table(path)) return false;
    CLEANUP(status_freep) Status unreadable = data_format_find(path, NULL, &format);
    return !unreadable && format == FORMAT_CHAT;
}

Status info_chats(json_t *result, const char *path, const InfoChats *asked) {
    CLEANUP(counting_done) Counting counting = {.asked = asked, .result = result, .roles = json_object()};
    CLEANUP(source_done) Source source = {0};
    ChatFormat format = CHAT_NONE;
    TRY(json_put(result, "kind", json_string("conversations")));
    TRY(json_put(result, "roles", counting.roles));
    if (asked->model) TRY(load_model(&counting));
    TRY(source_init_objects(&source, path, SOURCE_GZ_LIMIT));
    TRY(chat_read(path, (const char *)source.data, source.size, &format, count_conversation, &counting));
    TRY(json_put(result, "format", json_string(chat_format_name(format))));
    TRY(json_put(result, "conversations", json_integer(counting.conversations)));
    TRY(json_put(result, "messages", json_integer(counting.messages)));
    if (asked->example > counting.conversations)
        return USAGE("--example %lld: %s has %lld conversations", (long long)asked->example, path,
                     (long long)counting.conversations);
    if (!counting.encoder) return OK;
    TRY(json_put(result, "tokens", json_integer(counting.all)));
    TRY(json_put(result, "trained_tokens", json_integer(counting.trained)));
    return json_put(result, "longest", json_integer(counting.longest));
}

/* Text as it is, but without control characters that a terminal would obey. */
static void show_text(const char *text, FILE *out) {
    for (; *text; text++)
        if ((unsigned char)*text >= ' ' || *text == '\n' || *text == '\t') fputc(*text, out);
}

static void show_messages(const json_t *example, FILE *out) {
    const json_t *message;
    size_t index;
    json_array_foreach(json_object_get(example, "messages"), index, message) {
        char name[NAME_TEXT];
        fprintf(out, "%s: ", name_text(name, json_string_or(message, "role", "")));
        show_text(json_string_or(message, "content", "(no text)"), out);
        fputc('\n', out);
    }
}

void info_chats_show(const json_t *result, FILE *out) {
    const json_t *example = json_object_get(result, "example"), *part;
    char text[FORMAT_SIZE], between[] = "messages     ";
    const char *role, *start = between;
    json_t *count;
    size_t index;
    fprintf(out, "conversations %.0f, in the format %s\n", json_number_at(result, "conversations"),
            json_string_or(result, "format", ""));
    json_object_foreach(json_object_get(result, "roles"), role, count) {
        char name[NAME_TEXT];
        fprintf(out, "%s%.0f by %s", start, json_number_value(count), name_text(name, role));
        start = ", ";
    }
    fputc('\n', out);
    double tokens = json_number_at(result, "tokens");
    if (tokens > 0)
        fprintf(out, "tokens       %s, %.0f%% of them trained on; the longest conversation has %.0f\n",
                format_count(text, tokens), 100 * json_number_at(result, "trained_tokens") / tokens,
                json_number_at(result, "longest"));
    fprintf(out, "\nConversation %.0f%s:\n\n", json_number_at(example, "number"),
            json_object_get(example, "parts") ? ", with what is trained on between \u00ab and \u00bb"
                                              : "; --model shows what is trained on");
    show_messages(example, out);
    json_array_foreach(json_object_get(example, "parts"), index, part) {
        bool trained = json_is_true(json_object_get(part, "trained"));
        if (trained) fputs("\u00ab", out);
        show_text(json_string_or(part, "text", ""), out);
        if (trained) fputs("\u00bb", out);
    }
    fputc('\n', out);
}
