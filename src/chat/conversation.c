#include "chat/conversation.h"

#include <string.h>

#include "base/memory.h"

enum { OBJECT_LIMIT = 64 << 20 };

static const struct {
    const char *name, *keys[3];
} formats[] = {
    [CHAT_NONE] = {"none", {NULL}},
    [CHAT_MESSAGES] = {"messages", {"messages"}},
    [CHAT_SHAREGPT] = {"ShareGPT", {"conversations"}},
    [CHAT_COMPLETION] = {"prompt and completion", {"prompt", "completion"}},
    [CHAT_ALPACA] = {"Alpaca", {"instruction", "output"}},
};

const char *chat_format_name(ChatFormat format) {
    return formats[format].name;
}

static bool has_keys(const json_t *object, ChatFormat format) {
    for (int i = 0; formats[format].keys[i]; i++)
        if (!json_object_get(object, formats[format].keys[i])) return false;
    return json_is_object(object);
}

ChatFormat chat_format_of(const json_t *object) {
    for (ChatFormat format = CHAT_MESSAGES; format <= CHAT_ALPACA; format++)
        if (has_keys(object, format)) return format;
    return CHAT_NONE;
}

static size_t skip_blank(const char *text, size_t size, size_t at) {
    while (at < size && strchr(" \t\r\n", text[at]) && text[at]) at++;
    return at;
}

static size_t skip_mark(const char *text, size_t size) {
    return size >= 3 && !memcmp(text, "\xef\xbb\xbf", 3) ? 3 : 0;
}

bool chat_format_start(const char *text, size_t size, ChatFormat *ret_format) {
    json_error_t error;
    size_t at = skip_blank(text, size, skip_mark(text, size));
    *ret_format = CHAT_NONE;
    if (at < size && text[at] == '[') at = skip_blank(text, size, at + 1);
    if (at < size && text[at] != '{') return true;
    CLEANUP(json_decrefp) json_t *object = json_loadb(text + at, size - at, JSON_DISABLE_EOF_CHECK, &error);
    if (!object) return json_error_code(&error) != json_error_premature_end_of_input;
    *ret_format = chat_format_of(object);
    return true;
}

/* ---- messages ---- */

static Status new_message(json_t *messages, const char *role, const json_t *content) {
    json_t *message = json_pack("{s:s}", "role", role);
    if (json_array_append_new(messages, message)) return FAILED("out of memory while reading conversations");
    return json_put(message, "content", content ? json_incref((json_t *)content) : json_null());
}

/* Thoughts have several names; templates read them under the first two, as transformers provides them. */
static Status alias_thoughts(const json_t *given, json_t **ret_message) {
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    const json_t *thought = NULL;
    for (int i = 0; i < 3 && (!thought || json_is_null(thought)); i++)
        thought = json_object_get(given, names[i]);
    if (!thought || json_is_null(thought)) {
        *ret_message = json_incref((json_t *)given);
        return OK;
    }
    CLEANUP(json_decrefp) json_t *message = json_clone(given);
    if (!message) return FAILED("out of memory while reading conversations");
    if (!json_object_get(message, names[1])) TRY(json_put(message, names[1], json_incref((json_t *)thought)));
    TRY(json_put(message, names[0], json_incref((json_t *)thought)));
    return MOVE(ret_message, message);
}

/* Appends messages that have roles. */
static Status add_messages(json_t *messages, const json_t *list, const char *key) {
    size_t index;
    const json_t *message;
    if (!json_is_array(list)) return FAILED("'%s' must be a list of messages", key);
    json_array_foreach(list, index, message) {
        const json_t *content = json_object_get(message, "content");
        if (!json_is_string(json_object_get(message, "role")))
            return FAILED("'%s'[%zu] must be an object with a 'role'", key, index);
        if (content && !json_is_string(content) && !json_is_null(content) && !json_is_array(content))
            return FAILED("'%s'[%zu]: 'content' must be a string or a list of parts", key, index);
        if (!content && !json_object_get(message, "tool_calls"))
            return FAILED("'%s'[%zu] has no 'content'", key, index);
        json_t *aliased = NULL;
        TRY(alias_thoughts(message, &aliased));
        if (json_array_append_new(messages, aliased))
            return FAILED("out of memory while reading conversations");
    }
    return OK;
}

static Status add_system(json_t *messages, const json_t *object) {
    const json_t *system = json_object_get(object, "system");
    if (!json_string_length(system)) return OK;
    return new_message(messages, "system", system);
}

static const char *sharegpt_role(const char *from) {
    static const struct {
        const char *from, *role;
    } roles[] = {{"human", "user"},
                 {"user", "user"},
                 {"gpt", "assistant"},
                 {"assistant", "assistant"},
                 {"chatgpt", "assistant"},
                 {"bing", "assistant"},
                 {"bard", "assistant"},
                 {"model", "assistant"},
                 {"function_call", "assistant"},
                 {"system", "system"},
                 {"tool", "tool"},
                 {"observation", "tool"},
                 {"function_response", "tool"}};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (!strcmp(from, roles[i].from)) return roles[i].role;
    return NULL;
}

/* Some data sets have messages with roles under the key of ShareGPT. */
static Status add_sharegpt(json_t *messages, const json_t *object) {
    const json_t *list = json_object_get(object, "conversations"), *turn;
    size_t index;
    TRY(add_system(messages, object));
    if (json_object_get(json_array_get(list, 0), "role"))
        return add_messages(messages, list, "conversations");
    if (!json_is_array(list)) return FAILED("'conversations' must be a list of messages");
    json_array_foreach(list, index, turn) {
        const char *from = json_string_at(turn, "from");
        const char *role = from ? sharegpt_role(from) : NULL;
        if (!from) return FAILED("'conversations'[%zu] must be an object with 'from'", index);
        if (!role)
            return FAILED("'conversations'[%zu]: unknown speaker '%.40s'; expected human, gpt, system, tool, "
                          "observation, function_call or function_response",
                          index, from);
        if (!json_is_string(json_object_get(turn, "value")))
            return FAILED("'conversations'[%zu]: 'value' must be a string", index);
        TRY(new_message(messages, role, json_object_get(turn, "value")));
    }
    return OK;
}

static Status add_part(json_t *messages, const json_t *object, const char *key, const char *role) {
    const json_t *part = json_object_get(object, key);
    if (json_is_array(part)) return add_messages(messages, part, key);
    if (!json_is_string(part)) return FAILED("'%s' must be a string or a list of messages", key);
    return new_message(messages, role, part);
}

static Status add_alpaca(json_t *messages, const json_t *object) {
    const json_t *input = json_object_get(object, "input"),
                 *instruction = json_object_get(object, "instruction");
    if (!json_is_string(instruction) || !json_is_string(json_object_get(object, "output")))
        return FAILED("'instruction' and 'output' must be strings");
    if (input && !json_is_string(input) && !json_is_null(input)) return FAILED("'input' must be a string");
    TRY(add_system(messages, object));
    const char *more = json_string_value(input);
    CLEANUP(json_decrefp)
    json_t *asked = more && *more ? json_sprintf("%s\n\n%s", json_string_value(instruction), more)
                                  : json_incref((json_t *)instruction);
    TRY(new_message(messages, "user", asked));
    return new_message(messages, "assistant", json_object_get(object, "output"));
}

/* ---- the rest of a conversation ---- */

/* Tools may be the text of their JSON, since tables have no other type for them. */
static Status add_tools(json_t *conversation, const json_t *object) {
    const json_t *tools = json_object_get(object, "tools");
    CLEANUP(json_decrefp) json_t *parsed = NULL;
    if (json_is_string(tools) && json_string_length(tools) > 0) {
        TRY(json_parse(json_string_value(tools), json_string_length(tools), "'tools'", &parsed));
        tools = parsed;
    }
    if (!tools || json_is_null(tools) || json_is_string(tools)) return OK;
    if (!json_is_array(tools)) return FAILED("'tools' must be a list");
    return json_put(conversation, "tools", json_incref((json_t *)tools));
}

static Status add_others(json_t *conversation, const json_t *object) {
    static const char *const keys[] = {"documents", "chat_template_kwargs"};
    for (int i = 0; i < 2; i++) {
        const json_t *value = json_object_get(object, keys[i]);
        if (value && !json_is_null(value)) TRY(json_put(conversation, keys[i], json_incref((json_t *)value)));
    }
    return OK;
}

Status chat_normalize(const json_t *object, ChatFormat *format, json_t **ret_conversation) {
    ChatFormat found = chat_format_of(object);
    if (found == CHAT_NONE)
        return FAILED("expected an object with 'messages', 'conversations', 'prompt' and 'completion', or "
                      "'instruction' and 'output'");
    if (*format != CHAT_NONE && found != *format)
        return FAILED(
            "the keys are those of the format %s, but the conversations before have %s; use one format",
            chat_format_name(found), chat_format_name(*format));
    CLEANUP(json_decrefp) json_t *conversation = json_object();
    json_t *messages = json_array();
    TRY(json_put(conversation, "messages", messages));
    if (found == CHAT_MESSAGES) TRY(add_messages(messages, json_object_get(object, "messages"), "messages"));
    if (found == CHAT_SHAREGPT) TRY(add_sharegpt(messages, object));
    if (found == CHAT_ALPACA) TRY(add_alpaca(messages, object));
    if (found == CHAT_COMPLETION) {
        TRY(add_part(messages, object, "prompt", "user"));
        TRY(json_put(conversation, "completion", json_integer((json_int_t)json_array_size(messages))));
        TRY(add_part(messages, object, "completion", "assistant"));
    }
    if (json_array_size(messages) == 0) return FAILED("the conversation has no messages");
    TRY(add_tools(conversation, object));
    TRY(add_others(conversation, object));
    *format = found;
    return MOVE(ret_conversation, conversation);
}

/* ---- files ---- */

typedef struct Reading {
    const char *name;
    ChatFormat *format;
    ChatEach func;
    void *context;
} Reading;

static Status take(const Reading *reading, const char *unit, int64_t number, const json_t *object) {
    CLEANUP(json_decrefp) json_t *conversation = NULL;
    Status status = chat_normalize(object, reading->format, &conversation);
    if (!status) status = reading->func(reading->context, number, conversation);
    return status_stopped(status)
               ? status
               : status_wrap(status, "%s: %s %lld", reading->name, unit, (long long)number);
}

static Status not_json(const Reading *reading, const char *unit, int64_t number, const json_error_t *error) {
    return DAMAGED("%s: %s %lld: not valid JSON: %s", reading->name, unit, (long long)number,
                   json_problem(error));
}

static Status read_lines(const Reading *reading, const char *text, size_t size) {
    for (size_t at = 0, line = 1; at < size; line++) {
        const char *newline = memchr(text + at, '\n', size - at);
        size_t end = newline ? (size_t)(newline - text) : size;
        json_error_t error;
        if (skip_blank(text, end, at) < end) {
            if (end - at > OBJECT_LIMIT)
                return FAILED("%s: line %zu: longer than %d bytes", reading->name, line, OBJECT_LIMIT);
            CLEANUP(json_decrefp)
            json_t *object = json_loadb(text + at, end - at, JSON_REJECT_DUPLICATES, &error);
            if (!object) return not_json(reading, "line", (int64_t)line, &error);
            TRY(take(reading, "line", (int64_t)line, object));
        }
        at = end + 1;
    }
    return OK;
}

/* One object after the other, so that memory is needed for one. */
static Status read_array(const Reading *reading, const char *text, size_t size, size_t at) {
    at = skip_blank(text, size, at + 1);
    for (int64_t number = 1; at < size && text[at] != ']'; number++) {
        json_error_t error;
        size_t rest = size - at < OBJECT_LIMIT ? size - at : OBJECT_LIMIT;
        CLEANUP(json_decrefp)
        json_t *object = json_loadb(text + at, rest, JSON_REJECT_DUPLICATES | JSON_DISABLE_EOF_CHECK, &error);
        if (!object) return not_json(reading, "conversation", number, &error);
        TRY(take(reading, "conversation", number, object));
        at = skip_blank(text, size, at + (size_t)error.position);
        if (at < size && text[at] == ',')
            at = skip_blank(text, size, at + 1);
        else if (at >= size || text[at] != ']')
            return DAMAGED("%s: conversation %lld: expected ',' or ']' after it", reading->name,
                           (long long)number);
    }
    if (at >= size) return DAMAGED("%s: the array of conversations is not closed", reading->name);
    if (skip_blank(text, size, at + 1) < size)
        return DAMAGED("%s: text follows the array of conversations", reading->name);
    return OK;
}

Status chat_read(const char *name, const char *text, size_t size, ChatFormat *format, ChatEach func,
                 void *context) {
    Reading reading = {name, format, func, context};
    size_t mark = skip_mark(text, size), at = skip_blank(text, size, mark);
    if (at < size && text[at] == '[') return read_array(&reading, text, size, at);
    return read_lines(&reading, text + mark, size - mark);
}
