/* The text so far is a list of tokens. A line is appended to it on a line of its own, as the terminal shows
 * it, unless an end token came last: the line then starts a new document. With --chat, the text is what the
 * template makes of the messages so far, which a line is added to as a message. Each turn is one call of
 * generate, which processes what the KV cache of the turn before does not have of the text.
 */
#include "cli/generate.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/format.h"
#include "base/memory.h"
#include "cli/line_editor.h"

#define PROMPT "> "

static volatile sig_atomic_t interrupted;
static pthread_t reader; /* the thread that reads lines */

/* While the reader blocks the signal, another thread may receive it, and passes it on. */
static void interrupt(int signal_number) {
    if (pthread_equal(pthread_self(), reader))
        interrupted = 1;
    else
        pthread_kill(reader, signal_number);
}

static void catch_interrupts(void) {
    reader = pthread_self();
    struct sigaction action = {.sa_handler = interrupt, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}

typedef struct Chat {
    const ChatSpec *spec;
    LineEditor *editor; /* NULL: plain lines */
    bool terminal;
    char *plain; /* the plain line */
    size_t plain_capacity;
    Encoder *encoder;
    TokenList text; /* the text so far */
    json_t *conversation;
    GenerateCache cache;
} Chat;

static void chat_done(Chat *chat) {
    line_editor_free(chat->editor);
    free(chat->plain);
    encoder_free(chat->encoder);
    token_list_done(&chat->text);
    json_decref(chat->conversation);
    generate_cache_done(&chat->cache);
}

/* ---- lines ---- */

static LineResult read_plain(Chat *chat, const char **ret_line, size_t *ret_size) {
    if (chat->terminal) fputs(PROMPT, stdout);
    fflush(stdout);
    /* A terminal delivers whole lines, so stdin has no unread input in its buffer. */
    if (chat->terminal && !line_wait(STDIN_FILENO)) return LINE_INTERRUPTED;
    ssize_t size = getline(&chat->plain, &chat->plain_capacity, stdin);
    if (size < 0) return LINE_END;
    if (size > 0 && chat->plain[size - 1] == '\n') size--;
    *ret_line = chat->plain;
    *ret_size = (size_t)size;
    return LINE_READ;
}

static void block_interrupts(bool block) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigprocmask(block ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
}

/* The next line; *ret_line is NULL at the end of the input. */
static void next_line(Chat *chat, const char **ret_line, size_t *ret_size) {
    LineResult result;
    block_interrupts(chat->terminal);
    do {
        result = chat->editor ? line_editor_read(chat->editor, ret_line, ret_size)
                              : read_plain(chat, ret_line, ret_size);
        if (result != LINE_READ && chat->terminal) putchar('\n');
    } while (result == LINE_INTERRUPTED);
    block_interrupts(false);
    if (result == LINE_END) *ret_line = NULL;
}

/* ---- turns ---- */

static bool ended(const Chat *chat) {
    const GenerateSpec *generate = chat->spec->generate;
    if (chat->text.count == 0) return true;
    int32_t last = chat->text.ids[chat->text.count - 1];
    bool end = last == generate->end_token;
    for (int i = 0; i < generate->more_end_count; i++) end |= last == generate->more_ends[i];
    return end;
}

static Status append_ids(Chat *chat, const int32_t *ids, size_t count) {
    TokenList *text = &chat->text;
    TRY(mem_grow(&text->ids, &text->capacity, text->count + count, sizeof *text->ids));
    memcpy(text->ids + text->count, ids, count * sizeof *ids);
    text->count += count;
    return OK;
}

static Status append_line(Chat *chat, const char *line, size_t size) {
    const ChatSpec *spec = chat->spec;
    if (size == 0 && chat->text.count > 0) return OK;
    if (!ended(chat)) {
        TRY(encoder_add(chat->encoder, "\n", 1, &chat->text));
        return encoder_add(chat->encoder, line, size, &chat->text);
    }
    CLEANUP(prompt_list_done) PromptList list = {.no_special = !spec->add_special};
    TRY(prompt_list_add_text(&list, chat->encoder, line, size));
    TRY(prompt_list_finish(&list, &spec->engine->model->config, spec->tokenizer, 1));
    return append_ids(chat, list.prompts->ids, (size_t)list.prompts->count);
}

static Status take_token(void *context, int64_t prompt, int32_t token, bool *ret_stop) {
    TRY(writing_take(context, prompt, token, ret_stop));
    *ret_stop |= interrupted != 0;
    return OK;
}

/* The text of the messages so far, which may begin differently from that of the turn before: templates drop
 * earlier thoughts, for example. */
static Status apply_template(Chat *chat) {
    CLEANUP(mem_freep) char *text = NULL;
    size_t size;
    TRY(chat_prompt_text(chat->spec->template, chat->conversation, &text, &size));
    chat->text.count = 0;
    return encoder_add(chat->encoder, text, size, &chat->text);
}

/* Adds the answer to the messages. */
static Status keep_answer(Chat *chat, const int32_t *ids, size_t count) {
    CLEANUP(mem_freep) char *text = NULL;
    const GenerateSpec *generate = chat->spec->generate;
    size_t size, vocab = (size_t)tokenizer_vocab(chat->spec->tokenizer), known = 0;
    while (known < count && (size_t)ids[known] < vocab) known++;
    bool end = known && ids[known - 1] == generate->end_token;
    for (int i = 0; known && i < generate->more_end_count; i++)
        end |= ids[known - 1] == generate->more_ends[i];
    TRY(tokenizer_decode(chat->spec->tokenizer, ids, known - end, true, &text, &size));
    const char *before = chat->spec->before_end ? chat->spec->before_end : "";
    size_t tail = strlen(before);
    if (tail <= size && !memcmp(text + size - tail, before, tail)) size -= tail;
    return chat_say(chat->conversation, "assistant", text, size);
}

/* Continues the text so far and prints the continuation as it is generated. */
static Status take_turn(Chat *chat) {
    const ChatSpec *spec = chat->spec;
    Prompt prompt = {.ids = chat->text.ids, .count = (int64_t)chat->text.count};
    CLEANUP(writing_done)
    Writing writing = {.tokenizer = spec->tokenizer,
                       .prompts = &prompt,
                       .stops = spec->stops,
                       .skip_special = spec->skip_special,
                       .count = 1,
                       .streams = true,
                       .printer = printer_of(stdout)};
    GenerateSpec generate_spec = *spec->generate;
    TRY(writing_init(&writing));
    writing.printer.printed = writing.texts->prompt_size;
    generate_spec.prompts = &prompt, generate_spec.count = 1;
    generate_spec.sink = take_token, generate_spec.context = &writing;
    if (generate_spec.beam.beams <= 1) generate_spec.cache = &chat->cache;
    CLEANUP(generated_freep) Generated *generated = NULL;
    interrupted = 0;
    TRY(generate(spec->engine, &generate_spec, &generated));
    TRY(writing_end(&writing));
    print_end(&writing.printer);
    const Sample *sample = generated->samples;
    const int32_t *ids = sample->ids + sample->prompt_count;
    size_t count = (size_t)(sample->count - sample->prompt_count);
    return spec->template ? keep_answer(chat, ids, count) : append_ids(chat, ids, count);
}

static Status answer(Chat *chat) {
    TRY(apply_template(chat));
    return take_turn(chat);
}

/* ---- commands ---- */

typedef enum {
    COMMAND_NONE,
    COMMAND_NEW,
    COMMAND_SAVE,
    COMMAND_HELP,
    COMMAND_EXIT,
    COMMAND_UNKNOWN
} ChatCommand;

static const struct {
    const char *name;
    ChatCommand command;
} commands[] = {{"/new", COMMAND_NEW},   {"/reset", COMMAND_NEW}, {"/help", COMMAND_HELP},
                {"/exit", COMMAND_EXIT}, {"/quit", COMMAND_EXIT}, {"/bye", COMMAND_EXIT}};

/* A slash and a word begin a command; "/usr/bin" and a comment in C do not. */
static ChatCommand command_of(const Chat *chat, const char *line, size_t size) {
    static const char save[] = "/save ";
    size_t word = 1;
    if (chat->conversation && size > strlen(save) && !memcmp(line, save, strlen(save))) return COMMAND_SAVE;
    if (size < 2 || line[0] != '/') return COMMAND_NONE;
    while (word < size && line[word] >= 'a' && line[word] <= 'z') word++;
    if (word == 1 || (word < size && line[word] != ' ')) return COMMAND_NONE;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (word == size && strlen(commands[i].name) == size && !memcmp(commands[i].name, line, size))
            return commands[i].command;
    return COMMAND_UNKNOWN;
}

/* Appends the conversation to a file of JSON lines, which weft train and --messages read. */
static Status save_conversation(const Chat *chat, const char *path) {
    CLEANUP(mem_freep) char *text = NULL;
    size_t count = json_array_size(json_object_get(chat->conversation, "messages"));
    TRY(json_text(chat->conversation, JSON_COMPACT, &text));
    FILE *file = fopen(path, "a");
    bool failed = !file || fprintf(file, "%s\n", text) < 0;
    if (file && fclose(file)) failed = true;
    if (failed) return FAILED("%s: cannot write: %s", path, strerror(errno));
    fprintf(stderr, "saved %zu message%s to %s\n", count, PLURAL(count), path);
    return OK;
}

/* A conversation keeps its system message. */
static void start_over(Chat *chat) {
    json_t *messages = json_object_get(chat->conversation, "messages");
    bool system = !strcmp(json_string_or(json_array_get(messages, 0), "role", ""), "system");
    chat->text.count = 0;
    while (json_array_size(messages) > system) json_array_remove(messages, json_array_size(messages) - 1);
}

/* Commands are answered on standard error: standard output has the model's text only. */
static void run_command(Chat *chat, ChatCommand command, const char *line, size_t size) {
    CLEANUP(status_freep) Status status = OK;
    if (command == COMMAND_NEW) start_over(chat);
    if (command == COMMAND_SAVE) {
        CLEANUP(mem_freep) char *path = strndup(line + strlen("/save "), size - strlen("/save "));
        status = path ? save_conversation(chat, path) : FAILED("out of memory while saving");
    }
    if (status) fprintf(stderr, "weft: %s\n", status_message(status));
    if (command == COMMAND_UNKNOWN)
        fprintf(stderr,
                "weft: unknown command %.*s; type /help for the commands, or a space first for text that "
                "begins with a slash\n",
                size < 64 ? (int)size : 64, line);
    if (command == COMMAND_HELP && chat->conversation)
        fputs("A line is a message, which the assistant answers.\n"
              "  /reset      start over, with the same system message\n"
              "  /save FILE  append the conversation to a file of JSON lines\n"
              "  /help       show this\n"
              "  /exit       exit, like Ctrl-D\n"
              "Ctrl-C stops an answer.\n",
              stderr);
    else if (command == COMMAND_HELP)
        fputs("A line continues the text so far; an empty line lets the model continue.\n"
              "  /new    start over\n"
              "  /help   show this\n"
              "  /exit   exit, like Ctrl-D\n"
              "Ctrl-C stops a continuation.\n",
              stderr);
}

Status chat_run(const ChatSpec *spec) {
    CLEANUP(chat_done) Chat chat = {.spec = spec, .terminal = isatty(STDIN_FILENO)};
    TRY(encoder_new(&chat.encoder, spec->tokenizer, NULL));
    catch_interrupts();
    if (chat.terminal && line_editor_available()) TRY(line_editor_new(&chat.editor, PROMPT));
    if (spec->conversation) {
        chat.conversation = json_clone_deep(spec->conversation);
        if (!chat.conversation) return FAILED("out of memory while beginning a conversation");
        if (spec->answer) TRY(answer(&chat));
    } else if (spec->first) {
        TRY(append_ids(&chat, spec->first->ids, (size_t)spec->first->count));
        TRY(take_turn(&chat));
    }
    const char *line;
    size_t size;
    for (next_line(&chat, &line, &size); line; next_line(&chat, &line, &size)) {
        ChatCommand command = command_of(&chat, line, size);
        if (command == COMMAND_EXIT) break;
        if (command != COMMAND_NONE) {
            run_command(&chat, command, line, size);
            continue;
        }
        if (chat.conversation && size == 0) continue;
        if (chat.conversation) {
            TRY(chat_say(chat.conversation, "user", line, size));
            TRY(answer(&chat));
            continue;
        }
        TRY(append_line(&chat, line, size));
        TRY(take_turn(&chat));
    }
    return OK;
}
