#include "chat/template.h"

#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/memory.h"

enum { TEMPLATE_LIMIT = 4 << 20 };

struct ChatTemplate {
    Jinja *plain, *tools; /* tools: NULL, or for conversations with tools */
    json_t *special;      /* variables: the special tokens by their roles */
    char *file, *text;    /* text: of a file of its own */
};

const char *const loss_on_names[] = {"assistant", "completion", "all", NULL};

void chat_template_free(ChatTemplate *template) {
    if (!template) return;
    jinja_free(template->plain);
    jinja_free(template->tools);
    json_decref(template->special);
    free(template->file);
    free(template->text);
    free(template);
}

const char *chat_template_file(const ChatTemplate *template) {
    return template->file;
}

const char *chat_template_text(const ChatTemplate *template) {
    return template->text;
}

/* ---- loading ---- */

/* Reads a JSON object if the file exists. */
static Status read_object(const char *dir, const char *name, char **ret_path, json_t **ret_json) {
    TRY(path_join(ret_path, dir, name));
    if (!path_exists(*ret_path)) return OK;
    TRY(json_read_any(*ret_path, ret_json));
    return json_is_object(*ret_json) ? OK : FAILED("%s: expected a JSON object", *ret_path);
}

/* A token is a text, or an object that has it as its content. */
static Status add_special(json_t *special, const json_t *config) {
    static const char *const names[] = {"bos_token", "eos_token", "unk_token",  "sep_token",
                                        "pad_token", "cls_token", "mask_token", "additional_special_tokens",
                                        NULL};
    for (int i = 0; names[i]; i++) {
        const json_t *token = json_object_get(config, names[i]);
        if (json_is_object(token)) token = json_object_get(token, "content");
        bool usable = json_is_string(token) || json_is_array(token);
        if (usable && !json_object_get(special, names[i]))
            TRY(json_put(special, names[i], json_clone_deep(token)));
    }
    return OK;
}

static Status read_special(const char *dir, ChatTemplate *template, json_t **ret_config, char **ret_path) {
    CLEANUP(json_decrefp) json_t *map = NULL;
    CLEANUP(mem_freep) char *map_path = NULL;
    template->special = json_object();
    if (!template->special) return FAILED("out of memory while reading a chat template");
    if (!dir) return OK;
    TRY(read_object(dir, "tokenizer_config.json", ret_path, ret_config));
    TRY(read_object(dir, "special_tokens_map.json", &map_path, &map));
    TRY(add_special(template->special, *ret_config));
    return add_special(template->special, map);
}

static Status parse_string(Jinja **ret_template, const json_t *text, const char *path) {
    if (!json_is_string(text))
        return FAILED("%s: 'chat_template' must be a string or a list of templates", path);
    return jinja_parse(ret_template, json_string_value(text), json_string_length(text), path);
}

/* The template of tokenizer_config.json: a string, or a list with names. */
static Status parse_given(ChatTemplate *template, const json_t *given, const char *path) {
    if (!json_is_array(given)) return parse_string(&template->plain, given, path);
    for (size_t i = 0; i < json_array_size(given); i++) {
        const json_t *one = json_array_get(given, i);
        const char *name = json_string_or(one, "name", "");
        Jinja **to = !strcmp(name, "default")    ? &template->plain
                     : !strcmp(name, "tool_use") ? &template->tools
                                                 : NULL;
        if (to && !*to) TRY(parse_string(to, json_object_get(one, "template"), path));
    }
    return template->plain ? OK : FAILED("%s: 'chat_template' has no template named default", path);
}

static Status parse_file(ChatTemplate *template, const char *file) {
    size_t size;
    TRY(file_read(file, TEMPLATE_LIMIT, &template->text, &size));
    TRY(jinja_parse(&template->plain, template->text, size, file));
    return str_dup(file, &template->file);
}

Status chat_template_read(ChatTemplate **ret_template, const char *file, const char *dir) {
    CLEANUP(chat_template_freep) ChatTemplate *template = NULL;
    CLEANUP(json_decrefp) json_t *config = NULL;
    CLEANUP(mem_freep) char *path = NULL;
    TRY(mem_new(1, sizeof *template, &template));
    TRY(read_special(dir, template, &config, &path));
    TRY(parse_file(template, file));
    return MOVE(ret_template, template);
}

Status chat_template_load(ChatTemplate **ret_template, const char *dir) {
    CLEANUP(chat_template_freep) ChatTemplate *template = NULL;
    CLEANUP(json_decrefp) json_t *config = NULL;
    CLEANUP(mem_freep) char *path = NULL, *file = NULL;
    TRY(mem_new(1, sizeof *template, &template));
    TRY(read_special(dir, template, &config, &path));
    TRY(path_join(&file, dir, CHAT_TEMPLATE_FILE));
    const json_t *given = json_object_get(config, "chat_template");
    *ret_template = NULL;
    if (path_exists(file)) {
        TRY(parse_file(template, file));
    } else if (given && !json_is_null(given)) {
        TRY(parse_given(template, given, path));
        TRY(str_dup(path, &template->file));
    } else {
        return OK;
    }
    return MOVE(ret_template, template);
}

/* ---- text ---- */

/* Renders the first `count` messages. */
static Status render(const ChatTemplate *template, const json_t *conversation, size_t count, bool prompt,
                     int64_t now, JinjaOutput *ret_output) {
    const json_t *messages = json_object_get(conversation, "messages"),
                 *tools = json_object_get(conversation, "tools"),
                 *documents = json_object_get(conversation, "documents"),
                 *more = json_object_get(conversation, "chat_template_kwargs");
    CLEANUP(json_decrefp) json_t *variables = json_clone(template->special), *first = json_array();
    if (!variables || !first) return FAILED("out of memory while applying the chat template");
    for (size_t i = 0; i < count; i++)
        if (json_array_append(first, json_array_get(messages, i)))
            return FAILED("out of memory while applying the chat template");
    if (json_is_object(more) && json_object_update(variables, (json_t *)more))
        return FAILED("out of memory while applying the chat template");
    TRY(json_put(variables, "messages", json_incref(first)));
    TRY(json_put(variables, "tools", tools ? json_incref((json_t *)tools) : json_null()));
    TRY(json_put(variables, "documents", documents ? json_incref((json_t *)documents) : json_null()));
    TRY(json_put(variables, "add_generation_prompt", json_boolean(prompt)));
    const Jinja *jinja = template->tools && json_array_size(tools) ? template->tools : template->plain;
    return jinja_render(jinja, variables, now, ret_output);
}

Status chat_render(const ChatTemplate *template, const json_t *conversation, bool prompt, int64_t now,
                   char **ret_text, size_t *ret_size) {
    CLEANUP(jinja_output_done) JinjaOutput output = {0};
    size_t count = json_array_size(json_object_get(conversation, "messages"));
    TRY(render(template, conversation, count, prompt, now, &output));
    *ret_size = output.size;
    return MOVE(ret_text, output.text);
}

/* ---- what the assistant wrote ---- */

static bool is_assistant(const json_t *messages, size_t index) {
    return !strcmp(json_string_or(json_array_get(messages, index), "role", ""), "assistant");
}

static bool begins_with(const JinjaOutput *text, const JinjaOutput *start) {
    return text->size >= start->size && !memcmp(text->text, start->text, start->size);
}

/* Bytes that two texts have in common at their start, in complete characters. */
static size_t common_start(const char *a, size_t a_size, const char *b, size_t b_size) {
    size_t size = 0;
    while (size < a_size && size < b_size && a[size] == b[size]) size++;
    while (size > 0 && size < a_size && ((unsigned char)a[size] & 0xc0) == 0x80) size--;
    return size;
}

static const char *find_last(const char *in, size_t in_size, const char *what, size_t size) {
    for (size_t at = in_size < size ? 0 : in_size - size + 1; at > 0; at--)
        if (!memcmp(in + at - 1, what, size)) return in + at - 1;
    return NULL;
}

/* A turn is usually what the text of the messages up to it has beyond that of those before it, with the
 * beginning of an assistant's turn. */
static Status find_exact(const ChatTemplate *template, const json_t *conversation, size_t index,
                         const JinjaOutput *whole, JinjaSpan *ret_turn, bool *ret_found) {
    CLEANUP(jinja_output_done) JinjaOutput prompt = {0}, upto = {0};
    bool last = index + 1 == json_array_size(json_object_get(conversation, "messages"));
    TRY(render(template, conversation, index, true, CHAT_FIXED_TIME, &prompt));
    *ret_found = begins_with(whole, &prompt);
    if (*ret_found && !last) {
        TRY(render(template, conversation, index + 1, false, CHAT_FIXED_TIME, &upto));
        *ret_found = begins_with(whole, &upto) && upto.size >= prompt.size;
    }
    *ret_turn = (JinjaSpan){prompt.size, last ? whole->size : upto.size};
    return OK;
}

/* If the messages before it are written differently when others follow, as where the system message is part
 * of the last question, the turn itself may be the same. It is searched from `from`, with what begins it: the
 * words alone may be a question's, too. */
static Status find_copy(const ChatTemplate *template, const json_t *conversation, size_t index,
                        const JinjaOutput *whole, size_t from, JinjaSpan *ret_turn, bool *ret_found) {
    CLEANUP(jinja_output_done) JinjaOutput prompt = {0}, before = {0}, upto = {0};
    TRY(render(template, conversation, index, true, CHAT_FIXED_TIME, &prompt));
    TRY(render(template, conversation, index, false, CHAT_FIXED_TIME, &before));
    TRY(render(template, conversation, index + 1, false, CHAT_FIXED_TIME, &upto));
    *ret_found = false;
    if (!begins_with(&upto, &before) || !begins_with(&prompt, &before)) return OK;
    const char *turn = upto.text + before.size;
    size_t size = upto.size - before.size;
    size_t lead = common_start(turn, size, prompt.text + before.size, prompt.size - before.size);
    const char *found = size > lead ? memmem(whole->text + from, whole->size - from, turn, size) : NULL;
    size_t at = found ? (size_t)(found - whole->text) : 0;
    *ret_turn = (JinjaSpan){at + lead, at + size};
    *ret_found = found != NULL;
    return OK;
}

/* If the text of fewer messages is not the beginning of that of more (Mistral writes the system message into
 * the last question only), a turn is searched with the end of the question before it. */
static Status find_after(const ChatTemplate *template, const json_t *conversation, size_t index,
                         const JinjaOutput *whole, size_t from, JinjaSpan *ret_turn, bool *ret_found) {
    static const size_t sizes[] = {32, 16, 8};
    CLEANUP(jinja_output_done) JinjaOutput prompt = {0}, upto = {0};
    TRY(render(template, conversation, index, true, CHAT_FIXED_TIME, &prompt));
    TRY(render(template, conversation, index + 1, false, CHAT_FIXED_TIME, &upto));
    *ret_found = false;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && !*ret_found; i++) {
        size_t size = sizes[i], back = from < size ? from : size;
        if (prompt.size < size) continue;
        const char *turn = find_last(upto.text, upto.size, prompt.text + prompt.size - size, size);
        size_t length = turn ? (size_t)(upto.text + upto.size - turn) : 0;
        if (length <= size) continue;
        const char *found = memmem(whole->text + from - back, whole->size - from + back, turn, length);
        size_t at = found ? (size_t)(found - whole->text) : 0;
        *ret_turn = (JinjaSpan){at + size, at + length};
        *ret_found = found && at + size >= from;
    }
    return OK;
}

/* Where a turn begins: after the text of the messages before it with the beginning of an assistant's turn, of
 * which the turn may have less than the prompt for a new one has. */
static Status find_start(const ChatTemplate *template, const json_t *conversation, size_t index,
                         const JinjaOutput *whole, size_t *ret_start, bool *ret_found) {
    CLEANUP(jinja_output_done) JinjaOutput prompt = {0}, before = {0};
    TRY(render(template, conversation, index, true, CHAT_FIXED_TIME, &prompt));
    *ret_start = prompt.size;
    *ret_found = begins_with(whole, &prompt);
    if (*ret_found) return OK;
    TRY(render(template, conversation, index, false, CHAT_FIXED_TIME, &before));
    *ret_start = common_start(whole->text, whole->size, prompt.text, prompt.size);
    *ret_found = begins_with(&prompt, &before) && *ret_start > before.size;
    return OK;
}

/* Where the next assistant's turn from `from` on begins, by what begins it. */
static Status find_header(const ChatTemplate *template, const json_t *conversation, size_t index,
                          const JinjaOutput *whole, size_t from, size_t *ret_start, bool *ret_found) {
    CLEANUP(jinja_output_done) JinjaOutput prompt = {0}, before = {0};
    TRY(render(template, conversation, index, true, CHAT_FIXED_TIME, &prompt));
    TRY(render(template, conversation, index, false, CHAT_FIXED_TIME, &before));
    *ret_found = false;
    if (!begins_with(&prompt, &before) || prompt.size == before.size) return OK;
    size_t header = prompt.size - before.size;
    const char *found = memmem(whole->text + from, whole->size - from, prompt.text + before.size, header);
    if (found) *ret_start = (size_t)(found - whole->text) + header;
    *ret_found = found != NULL;
    return OK;
}

/* The content without blanks at its ends, which templates may remove; empty if it is not a text. */
static void content_of(const json_t *message, const char **ret_text, size_t *ret_size) {
    const json_t *content = json_object_get(message, "content");
    const char *text = json_is_string(content) ? json_string_value(content) : "";
    size_t size = strlen(text), start = strspn(text, " \t\r\n");
    while (size > start && strchr(" \t\r\n", text[size - 1])) size--;
    *ret_text = text + start;
    *ret_size = size - start;
}

/* What follows the last thought in a text, without blanks before it; all of it if there is none. */
static void after_thought(const char **text, size_t *size) {
    static const char mark[] = "</think>";
    const char *thought = find_last(*text, *size, mark, strlen(mark));
    if (!thought) return;
    size_t skipped = (size_t)(thought - *text) + strlen(mark);
    while (skipped < *size && strchr(" \t\r\n", (*text)[skipped])) skipped++;
    *text += skipped;
    *size -= skipped;
}

/* Whether a turn at `start` is that of `upto` without its thought, as Qwen3 writes turns that are not the
 * last. */
static bool is_thoughtless(const JinjaOutput *whole, const JinjaOutput *upto, size_t start, size_t *ret_end) {
    if (start > upto->size || memcmp(whole->text, upto->text, start)) return false;
    const char *turn = upto->text + start;
    size_t all = upto->size - start, size = all;
    after_thought(&turn, &size);
    *ret_end = start + size;
    return size && size < all && size <= whole->size - start && !memcmp(whole->text + start, turn, size);
}

/* Bytes that two texts after a turn's content have in common. Where they differ, they may share the beginning
 * of different marks, as <| in <|user|> and <|endoftext|>, which does not count. */
static size_t common_end(const char *a, size_t a_size, const char *b, size_t b_size) {
    size_t size = common_start(a, a_size, b, b_size);
    if (size == a_size || size == b_size) return size;
    while (size > 0 && !strchr("\n >]", a[size - 1])) size--;
    return size;
}

/* The end of a turn that begins at `start` and is written differently in the text of the messages up to it:
 * without its thought, or where its content ends, and what follows that in both texts. */
static Status find_end(const ChatTemplate *template, const json_t *conversation, size_t index,
                       const JinjaOutput *whole, size_t start, size_t *ret_end, bool *ret_found) {
    const json_t *messages = json_object_get(conversation, "messages");
    CLEANUP(jinja_output_done) JinjaOutput upto = {0};
    *ret_end = whole->size;
    *ret_found = index + 1 == json_array_size(messages);
    if (*ret_found) return OK;
    TRY(render(template, conversation, index + 1, false, CHAT_FIXED_TIME, &upto));
    *ret_found = is_thoughtless(whole, &upto, start, ret_end);
    if (*ret_found) return OK;
    const char *content;
    size_t size;
    content_of(json_array_get(messages, index), &content, &size);
    after_thought(&content, &size);
    const char *here = size ? memmem(whole->text + start, whole->size - start, content, size) : NULL;
    const char *there = size ? find_last(upto.text, upto.size, content, size) : NULL;
    if (!here || !there) return OK;
    size_t after = (size_t)(here - whole->text) + size, tail = (size_t)(there - upto.text) + size;
    *ret_end =
        after + common_end(whole->text + after, whole->size - after, upto.text + tail, upto.size - tail);
    *ret_found = true;
    return OK;
}

static Status add_turn(JinjaOutput *output, size_t start, size_t end) {
    size_t capacity = output->mark_count;
    TRY(mem_grow(&output->marks, &capacity, output->mark_count + 1, sizeof *output->marks));
    output->marks[output->mark_count++] = (JinjaSpan){start, end};
    return OK;
}

/* The first message whose words may be trained on. */
static size_t first_trained(const json_t *conversation, LossOn loss_on) {
    const json_t *messages = json_object_get(conversation, "messages"),
                 *completion = json_object_get(conversation, "completion");
    size_t count = json_array_size(messages);
    if (loss_on == LOSS_ON_ASSISTANT) return 0;
    if (json_is_integer(completion)) return (size_t)json_integer_value(completion);
    while (count > 0 && !is_assistant(messages, count - 1)) count--;
    return count ? count - 1 : 0;
}

static Status find_turn(const ChatTemplate *template, const json_t *conversation, size_t index,
                        const JinjaOutput *whole, size_t from, JinjaSpan *turn, bool *found) {
    bool starts = false;
    TRY(find_exact(template, conversation, index, whole, turn, found));
    if (!*found) TRY(find_start(template, conversation, index, whole, &turn->start, &starts));
    if (starts && turn->start >= from)
        TRY(find_end(template, conversation, index, whole, turn->start, &turn->end, found));
    if (!*found) TRY(find_copy(template, conversation, index, whole, from, turn, found));
    if (!*found) TRY(find_after(template, conversation, index, whole, from, turn, found));
    if (*found) return OK;
    TRY(find_header(template, conversation, index, whole, from, &turn->start, &starts));
    return starts ? find_end(template, conversation, index, whole, turn->start, &turn->end, found) : OK;
}

/* Turns before the first that counts are found, too: a search begins where the turn before ends. */
static Status find_turns(const ChatTemplate *template, const json_t *conversation, size_t first,
                         JinjaOutput *output) {
    const json_t *messages = json_object_get(conversation, "messages");
    size_t from = 0;
    for (size_t i = 0; i < json_array_size(messages); i++) {
        JinjaSpan turn = {0};
        bool found = false;
        if (!is_assistant(messages, i)) continue;
        TRY(find_turn(template, conversation, i, output, from, &turn, &found));
        if (!found || turn.start < from || turn.end < turn.start)
            return FAILED(
                "message %zu: %s writes this turn differently when others follow, so the assistant's words "
                "cannot be told from the rest; use {loss-on} all, or a template with generation blocks",
                i + 1, template->file);
        if (i >= first) TRY(add_turn(output, turn.start, turn.end));
        from = turn.end;
    }
    return OK;
}

/* Keeps the marks of the turns from the message `first` on. */
static Status keep_marks(const ChatTemplate *template, const json_t *conversation, size_t first,
                         JinjaOutput *output) {
    const json_t *messages = json_object_get(conversation, "messages");
    size_t turns = 0, before = 0;
    for (size_t i = 0; i < json_array_size(messages); i++) {
        turns += is_assistant(messages, i);
        before += i < first && is_assistant(messages, i);
    }
    if (first == 0) return OK;
    if (turns != output->mark_count)
        return FAILED(
            "%s has %zu generation blocks for %zu turns, so the completion is unknown; use {loss-on} "
            "assistant",
            template->file, output->mark_count, turns);
    output->mark_count -= before;
    memmove(output->marks, output->marks + before, output->mark_count * sizeof *output->marks);
    return OK;
}

Status chat_render_marked(const ChatTemplate *template, const json_t *conversation, LossOn loss_on,
                          JinjaOutput *ret_output) {
    CLEANUP(jinja_output_done) JinjaOutput output = {0};
    size_t count = json_array_size(json_object_get(conversation, "messages"));
    TRY(render(template, conversation, count, false, CHAT_FIXED_TIME, &output));
    bool marks = output.mark_count > 0;
    size_t first = first_trained(conversation, loss_on);
    if (loss_on == LOSS_ON_ALL) {
        output.mark_count = 0;
        TRY(add_turn(&output, 0, output.size));
    } else {
        TRY(marks ? keep_marks(template, conversation, first, &output)
                  : find_turns(template, conversation, first, &output));
    }
    return MOVE(ret_output, output);
}
