/* Fuzzes files of conversations: each has messages with roles, and the assistant's words are ranges of its
 * text, in order, or the file is an error. */
#include "chat/conversation.h"
#include "chat/template.h"
#include "fuzz.h"

#include <unistd.h>

#include "base/fs.h"
#include "base/memory.h"

#define TEMPLATE                                                                                             \
    "{% for m in messages %}<{{ m.role }}>{{ m.content if loop.last else m.content | string | trim }}<end>"  \
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"

static ChatTemplate *load_template(void) {
    char path[] = "/tmp/weft-fuzz-XXXXXX";
    ChatTemplate *template = NULL;
    int fd = mkstemp(path);
    fuzz_require(fd >= 0 && write(fd, TEMPLATE, strlen(TEMPLATE)) == (ssize_t)strlen(TEMPLATE));
    close(fd);
    fuzz_require(fuzz_succeeded(chat_template_read(&template, path, NULL)));
    unlink(path);
    return template;
}

static Status check_conversation(void *context, int64_t number, const json_t *conversation) {
    const json_t *messages = json_object_get(conversation, "messages");
    fuzz_require(number > 0 && json_array_size(messages) > 0);
    for (size_t i = 0; i < json_array_size(messages); i++)
        fuzz_require(json_string_at(json_array_get(messages, i), "role"));
    for (unsigned loss = LOSS_ON_ASSISTANT; loss <= LOSS_ON_ALL; loss++) {
        CLEANUP(jinja_output_done) JinjaOutput output = {0};
        size_t end = 0;
        if (!fuzz_succeeded(chat_render_marked(context, conversation, (LossOn)loss, &output))) continue;
        for (size_t i = 0; i < output.mark_count; i++) {
            fuzz_require(output.marks[i].start >= end && output.marks[i].end >= output.marks[i].start);
            end = output.marks[i].end;
        }
        fuzz_require(end <= output.size);
    }
    return OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static ChatTemplate *template;
    ChatFormat format = CHAT_NONE;
    if (!template) template = load_template();
    chat_format_start((const char *)data, size, &format);
    format = CHAT_NONE;
    fuzz_succeeded(chat_read("f", (const char *)data, size, &format, check_conversation, template));
    return 0;
}

size_t fuzz_seed(size_t index, uint8_t *out) {
    static const char *const seeds[] = {
        "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \" "
        "a \"}, "
        "{\"role\": \"user\", \"content\": [{\"type\": \"text\"}]}, {\"role\": \"assistant\", \"content\": "
        "\"b\"}], \"tools\": \"[{}]\"}\n",
        "[{\"instruction\": \"q\", \"input\": \"i\", \"output\": \"a\"}, {\"instruction\": \"r\", "
        "\"output\": \"b\"}]",
        "{\"conversations\": [{\"from\": \"human\", \"value\": \"q\"}, {\"from\": \"gpt\", \"value\": "
        "\"a\"}], \"system\": \"s\"}\n",
        "{\"prompt\": \"p\", \"completion\": \"c\"}\n{\"prompt\": [{\"role\": \"user\", \"content\": "
        "\"q\"}], \"completion\": "
        "[{\"role\": \"assistant\", \"content\": \"a\"}]}\n"};
    return index < sizeof seeds / sizeof *seeds ? fuzz_seed_text(seeds[index], out) : 0;
}
