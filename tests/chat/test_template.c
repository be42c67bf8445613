/* Chat templates of directories, and which of a conversation's text the assistant wrote. */
#include "chat/template.h"

#include "chat/conversation.h"
#include "data/files.h"

#define TURN "<{{ m.role }}>{{ m.content }}<end>\n"
#define TAGS "{% for m in messages %}" TURN "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
#define INST                                                                                                 \
    "{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"                         \
    "{% else %} {{ m.content | trim }} </s>{% endif %}{% endfor %}"
/* The last turn has thoughts, even if there are none; earlier ones lose them. */
#define THINK                                                                                                \
    "{% for m in messages %}{% if m.role == 'assistant' %}{% set c = "                                       \
    "m.content.split('</think>')[-1].lstrip('\\n') %}"                                                       \
    "<assistant>{{ ('<think>x</think>' if loop.last) ~ c }}<end>\n{% else %}" TURN "{% endif %}{% endfor %}" \
    "{% if add_generation_prompt %}<assistant>{% endif %}"
/* The prompt begins a thought that finished turns do not have. */
#define PROMPT                                                                                               \
    "{% for m in messages %}" TURN "{% endfor %}{% if add_generation_prompt %}<assistant><think>{% endif %}"
#define MARKED                                                                                               \
    "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}{{ m.content "       \
    "}}<end>"                                                                                                \
    "{% endgeneration %}{% else %}{{ m.content }}<end>{% endif %}{% endfor %}"
/* The system message is part of the last question. */
#define LATE                                                                                                 \
    "{% set s = messages[0].content %}{% for m in messages[1:] %}{% if m.role == 'user' %}"                  \
    "[INST]{{ s + ' ' if loop.last }}{{ m.content }}[/INST]{% else %} {{ m.content }}</s>{% endif %}{% "     \
    "endfor %}"
#define LOUD                                                                                                 \
    "{% for m in messages %}{{ m.content if loop.last else m.content[::-1] }}.{% endfor %}"                  \
    "{% if add_generation_prompt %}?{% endif %}"

#define CHAT                                                                                                 \
    "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": "      \
    "\"<think>t</think>\\nna\\u00efve\"}, {\"role\": \"user\", \"content\": \"r\"}, {\"role\": "             \
    "\"assistant\", "                                                                                        \
    "\"content\": \"b\"}]}"

/* The text with the marked ranges in braces. */
static char *mark(const char *template, const char *json, LossOn loss_on, Status *ret_status) {
    CLEANUP(chat_template_freep) ChatTemplate *loaded = NULL;
    CLEANUP(jinja_output_done) JinjaOutput output = {0};
    CLEANUP(json_decrefp) json_t *object = json_loads(json, 0, NULL), *conversation = NULL;
    ChatFormat format = CHAT_NONE;
    char directory[] = "/tmp/weft-chat-XXXXXX", *path = NULL, *text = NULL;
    assert_non_null(mkdtemp(directory));
    assert_ok(path_join(&path, directory, CHAT_TEMPLATE_FILE));
    files_write(path, template, strlen(template));
    assert_ok(chat_template_load(&loaded, directory));
    assert_non_null(loaded);
    assert_string_equal(chat_template_file(loaded), path);
    assert_ok(dir_remove(directory));
    free(path);
    assert_ok(chat_normalize(object, &format, &conversation));
    *ret_status = chat_render_marked(loaded, conversation, loss_on, &output);
    if (*ret_status) return NULL;
    assert_non_null(text = calloc(output.size + 2 * output.mark_count + 1, 1));
    for (size_t i = 0, at = 0, n = 0; i <= output.size; i++) {
        if (n < output.mark_count && output.marks[n].end == i && output.marks[n].start < i)
            text[at++] = '}', n++;
        if (n < output.mark_count && output.marks[n].start == i) text[at++] = '{';
        text[at++] = output.text[i];
    }
    return text;
}

static void check(const char *template, const char *json, LossOn loss_on, const char *expected) {
    Status status = OK;
    char *text = mark(template, json, loss_on, &status);
    assert_ok(status);
    assert_string_equal(text, expected);
    free(text);
}

static void marks(void **state) {
    check(TAGS, CHAT, LOSS_ON_ASSISTANT,
          "<user>q<end>\n<assistant>{<think>t</think>\nnaïve<end>\n}<user>r<end>\n<assistant>{b<end>\n}");
    check(TAGS, CHAT, LOSS_ON_COMPLETION,
          "<user>q<end>\n<assistant><think>t</think>\nnaïve<end>\n<user>r<end>\n<assistant>{b<end>\n}");
    check(TAGS, CHAT, LOSS_ON_ALL,
          "{<user>q<end>\n<assistant><think>t</think>\nnaïve<end>\n<user>r<end>\n<assistant>b<end>\n}");
    check(INST, CHAT, LOSS_ON_ASSISTANT,
          "[INST] q [/INST]{ <think>t</think>\nnaïve </s>}[INST] r [/INST]{ b </s>}");
    check(THINK, CHAT, LOSS_ON_ASSISTANT,
          "<user>q<end>\n<assistant>{naïve<end>\n}<user>r<end>\n<assistant>{<think>x</think>b<end>\n}");
    check(PROMPT, CHAT, LOSS_ON_ASSISTANT,
          "<user>q<end>\n<assistant><think>{t</think>\nnaïve<end>\n}<user>r<end>\n<assistant>{b<end>\n}");
    check(MARKED, CHAT, LOSS_ON_ASSISTANT,
          "<user>q<end><assistant>{<think>t</think>\nnaïve<end>}<user>r<end><assistant>{b<end>}");
    check(MARKED, CHAT, LOSS_ON_COMPLETION,
          "<user>q<end><assistant><think>t</think>\nnaïve<end><user>r<end><assistant>{b<end>}");
    check(LATE,
          "{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": "
          "\"question\"}, "
          "{\"role\": \"assistant\", \"content\": \"question\"}, {\"role\": \"user\", \"content\": \"r\"}]}",
          LOSS_ON_ASSISTANT, "[INST]question[/INST]{ question</s>}[INST]s r[/INST]");
    Status status = OK;
    mark(LOUD, CHAT, LOSS_ON_ASSISTANT, &status);
    assert_fails(status, 1, "message 2: ");
    check("{{ messages[0].content }}", CHAT, LOSS_ON_ALL, "{q}");
}

static void formats(void **state) {
    const char *shared = "<system>s<end>\n<user>q<end>\n<assistant>{a<end>\n}";
    check(TAGS,
          "{\"conversations\": [{\"from\": \"human\", \"value\": \"q\"}, {\"from\": \"gpt\", \"value\": "
          "\"a\"}], \"system\": \"s\"}",
          LOSS_ON_ASSISTANT, shared);
    check(TAGS,
          "{\"conversations\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", "
          "\"content\": \"a\"}], \"system\": \"s\"}",
          LOSS_ON_ASSISTANT, shared);
    check(TAGS,
          "{\"instruction\": \"q\", \"input\": \"\", \"output\": \"a\", \"system\": \"s\", \"text\": \"x\"}",
          LOSS_ON_ASSISTANT, shared);
    check(TAGS, "{\"instruction\": \"q\", \"input\": \"i\", \"output\": \"a\"}", LOSS_ON_COMPLETION,
          "<user>q\n\ni<end>\n<assistant>{a<end>\n}");
    check(TAGS, "{\"prompt\": \"q\", \"completion\": \"a\"}", LOSS_ON_COMPLETION,
          "<user>q<end>\n<assistant>{a<end>\n}");
    check(TAGS,
          "{\"prompt\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": "
          "\"a\"}], \"completion\": "
          "[{\"role\": \"assistant\", \"content\": \"b\"}, {\"role\": \"user\", \"content\": \"r\"}, "
          "{\"role\": \"assistant\", \"content\": \"c\"}]}",
          LOSS_ON_COMPLETION,
          "<user>q<end>\n<assistant>a<end>\n<assistant>{b<end>\n}<user>r<end>\n<assistant>{c<end>\n}");
    check("{{ messages[0].thinking }}{{ messages[0].reasoning_content }}",
          "{\"messages\": [{\"role\": \"user\", \"content\": \"q\", \"reasoning\": \"r\"}], \"tools\": []}",
          LOSS_ON_ALL, "{rr}");
    check("{{ tools | tojson }}" TAGS,
          "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}], \"tools\": \"[{\\\"a\\\": 1}]\"}",
          LOSS_ON_ALL, "{[{\"a\": 1}]<user>q<end>\n}");
}

static void wrong_conversations(void **state) {
    static const struct {
        const char *json, *message;
    } cases[] = {
        {"[]", "expected an object with 'messages'"},
        {"{\"text\": \"a\"}", "expected an object with 'messages'"},
        {"{\"messages\": []}", "the conversation has no messages"},
        {"{\"messages\": {}}", "'messages' must be a list of messages"},
        {"{\"messages\": [{\"content\": \"a\"}]}", "'messages'[0] must be an object with a 'role'"},
        {"{\"messages\": [{\"role\": \"user\"}]}", "'messages'[0] has no 'content'"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": 1}]}",
         "'content' must be a string or a list of parts"},
        {"{\"conversations\": [{\"from\": \"moon\", \"value\": \"a\"}]}", "unknown speaker 'moon'"},
        {"{\"conversations\": [{\"from\": \"gpt\"}]}", "'conversations'[0]: 'value' must be a string"},
        {"{\"instruction\": 1, \"output\": \"a\"}", "'instruction' and 'output' must be strings"},
        {"{\"prompt\": 1, \"completion\": \"a\"}", "'prompt' must be a string or a list of messages"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": \"x\"}",
         "'tools': not valid JSON"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CLEANUP(json_decrefp) json_t *object = json_loads(cases[i].json, 0, NULL), *conversation = NULL;
        ChatFormat format = CHAT_NONE;
        assert_fails(chat_normalize(object, &format, &conversation), 1, cases[i].message);
    }
}

/* tokenizer_config.json may have one template or several, and tokens in two forms. */
static void configs(void **state) {
    Files *files = *state;
    CLEANUP(json_decrefp)
    json_t *chat = json_loads("{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}]}", 0, NULL);
    CLEANUP(json_decrefp) json_t *tools = json_deep_copy(chat);
    json_object_set_new(tools, "tools", json_pack("[{}]"));
    static const char *const written[] = {
        "{\"model_max_length\": 1000000000000000019884624838656, \"bos_token\": {\"content\": \"<s>\"}, "
        "\"eos_token\": \"</s>\","
        " \"chat_template\": \"{{ bos_token }}{{ messages[0].content }}{{ eos_token }}\"}",
        "{\"chat_template\": [{\"name\": \"default\", \"template\": \"d\"}, {\"name\": \"tool_use\", "
        "\"template\": \"t\"}]}"};
    static const char *const expected[][2] = {{"<s>q</s>", "<s>q</s>"}, {"d", "t"}};
    char *path = NULL;
    assert_ok(path_join(&path, files->dir, "tokenizer_config.json"));
    for (int i = 0; i < 2; i++) {
        CLEANUP(chat_template_freep) ChatTemplate *template = NULL;
        files_write(path, written[i], strlen(written[i]));
        assert_ok(chat_template_load(&template, files->dir));
        for (int k = 0; k < 2; k++) {
            char *text = NULL;
            size_t size = 0;
            assert_ok(chat_render(template, k ? tools : chat, true, 0, &text, &size));
            assert_string_equal(text, expected[i][k]);
            assert_int_equal(size, strlen(text));
            free(text);
        }
    }
    ChatTemplate *none = NULL;
    files_write(path, "{\"chat_template\": null}", 23);
    assert_ok(chat_template_load(&none, files->dir));
    assert_null(none);
    files_write(path, "{\"chat_template\": 5}", 20);
    assert_fails(chat_template_load(&none, files->dir), 1, "'chat_template' must be a string or a list");
    free(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(marks),
        cmocka_unit_test(formats),
        cmocka_unit_test(wrong_conversations),
        cmocka_unit_test_setup_teardown(configs, files_setup, files_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
