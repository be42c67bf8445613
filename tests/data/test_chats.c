/* Conversations as training data: labels, packing, truncation, and files that are refused. */
#include "data/chats.h"

#include "data/mask.h"
#include "files.h"

#define TEMPLATE                                                                                             \
    "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}{% if add_generation_prompt %}a:{% " \
    "endif %}"
#define CHAT(user, assistant)                                                                                \
    "{\"messages\": [{\"role\": \"user\", \"content\": \"" user                                              \
    "\"}, {\"role\": \"assistant\", \"content\": \"" assistant "\"}]}"

enum { T = 24 };

typedef struct Opened {
    Tokenizer *tokenizer;
    ChatTemplate *template;
    Dataset *data;
} Opened;

static void opened_done(Opened *opened) {
    dataset_free(opened->data);
    chat_template_free(opened->template);
    tokenizer_free(opened->tokenizer);
}

static Status open_with(Files *files, const DataSpec *spec, Opened *opened) {
    char *path = NULL;
    DataSpec asked = *spec;
    assert_ok(path_join(&path, files->dir, CHAT_TEMPLATE_FILE));
    files_write(path, TEMPLATE, strlen(TEMPLATE));
    free(path);
    assert_ok(tokenizer_new_bytes(&opened->tokenizer, false));
    assert_ok(chat_template_load(&opened->template, files->dir));
    asked.paths = files->list;
    asked.path_count = files->count;
    asked.format = FORMAT_CHAT;
    asked.task = TASK_LM;
    if (!asked.seq) asked.seq = T;
    asked.vocab = BYTE_VOCAB_GPT2;
    asked.encoder = opened->tokenizer;
    if (!asked.windows) asked.chat = opened->template;
    asked.windows = false;
    asked.end = BYTE_END;
    return dataset_open(&opened->data, &asked);
}

/* The tokens of a row, and below them what each predicts. */
static void row_text(const HostBatch *batch, int64_t b, char *tokens, char *labels) {
    for (int64_t t = 0; t < batch->T; t++) {
        int32_t token = batch->tokens[b * batch->T + t], label = batch->labels[b * batch->T + t];
        tokens[t] = t >= batch->lens[b] ? '_' : token == BYTE_END ? '$' : (char)token;
        labels[t] = label == LABEL_IGNORED ? '.' : label == BYTE_END ? '$' : (char)label;
    }
    tokens[batch->T] = labels[batch->T] = 0;
}

/* Two short conversations share a sequence; each predicts only its own answer. */
static void labels_and_packing(void **state) {
    Files *files = *state;
    CLEANUP(opened_done) Opened opened = {0};
    CLEANUP(host_batch_freep) HostBatch *batch = NULL;
    char tokens[T + 1], labels[T + 1];
    files->count = 0;
    files_add_text(files, "chats.jsonl",
                   CHAT("q", "ab") "\n\n" CHAT("a longer question", "c") "\n" CHAT("r", "d"));
    assert_ok(open_with(files, &(DataSpec){0}, &opened));
    assert_int_equal(dataset_count(opened.data), 2);
    assert_int_equal(dataset_tokens(opened.data), 8 + 23 + 7);
    assert_ok(host_batch_new(&batch, 2, T));
    assert_ok(dataset_fill(opened.data, 0, false, batch));
    row_text(batch, 0, tokens, labels);
    assert_string_equal(tokens, "u:q;a:abu:r;a:d_________");
    assert_string_equal(labels, ".....ab;.....d;.........");
    assert_true(batch->documents && batch->padded);
    assert_int_equal(batch->lens[0], 15);
    assert_int_equal(batch->loss_count[LOSS_TOKEN], 7);
    for (int t = 0; t < 15; t++) {
        assert_int_equal(batch->starts[t], t < 8 ? 0 : 8);
        assert_int_equal(batch->positions[t], t < 8 ? t : t - 8);
    }
    row_text(batch, 1, tokens, labels);
    assert_string_equal(tokens, "u:a longer question;a:c_");
    assert_string_equal(labels, ".....................c;.");
}

/* What is trained on, one conversation to a sequence. */
static void losses(void **state) {
    static const char *const expected[] = {"..a;......b;", "........b;", ":x;a:a;u:y;a:b;"};
    static const char *const line =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}, {\"role\": \"assistant\", \"content\": "
        "\"a\"}, "
        "{\"role\": \"user\", \"content\": \"y\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}\n";
    Files *files = *state;
    files->count = 0;
    files_add_text(files, "chats.jsonl", line);
    for (unsigned loss = LOSS_ON_ASSISTANT; loss <= LOSS_ON_ALL; loss++) {
        CLEANUP(opened_done) Opened opened = {0};
        CLEANUP(host_batch_freep) HostBatch *batch = NULL;
        char tokens[T + 1], labels[T + 1];
        assert_ok(open_with(files, &(DataSpec){.loss_on = (LossOn)loss, .unpacked = true}, &opened));
        assert_ok(host_batch_new(&batch, 1, T));
        assert_ok(dataset_fill(opened.data, 0, false, batch));
        row_text(batch, 0, tokens, labels);
        assert_string_equal(tokens, "u:x;a:a;u:y;a:b_________");
        assert_non_null(strstr(labels, expected[loss]));
        size_t predicted = 0;
        for (size_t t = 0; t < T; t++) predicted += labels[t] != '.';
        assert_int_equal(predicted, loss == LOSS_ON_ALL ? 15 : loss == LOSS_ON_COMPLETION ? 2 : 4);
    }
}

/* Many random lengths: every conversation is in exactly one row, in order, and no two rows would fit in one.
 */
static void best_fit(void **state) {
    ChatSet set = {0};
    enum { COUNT = 500, SEQ = 100 };
    assert_ok(mem_new(COUNT, sizeof *set.example, &set.example));
    set.count = COUNT;
    for (size_t i = 0; i < COUNT; i++) {
        set.example[i].length = 2 + (int32_t)((i * 7919 + i * i) % SEQ);
    }
    assert_ok(chat_set_pack(&set, 0, COUNT, SEQ, true));
    bool seen[COUNT] = {0};
    int64_t least[2] = {SEQ, SEQ}; /* positions used in the two emptiest rows */
    for (size_t row = 0; row < set.rows; row++) {
        int64_t used = 0;
        assert_true(set.row[row] < set.row[row + 1]);
        for (size_t k = set.row[row]; k < set.row[row + 1]; k++) {
            assert_false(seen[set.order[k]]);
            seen[set.order[k]] = true;
            used += set.example[set.order[k]].length - 1;
            if (k > set.row[row]) assert_true(set.order[k] > set.order[k - 1]);
        }
        assert_true(used <= SEQ);
        if (used < least[1]) least[1] = used;
        if (least[1] < least[0]) least[1] = least[0], least[0] = used;
        if (row > 0) assert_true(set.order[set.row[row]] > set.order[set.row[row - 1]]);
    }
    assert_int_equal(set.row[set.rows], COUNT);
    assert_true(least[0] + least[1] > SEQ);
    chat_set_done(&set);
}

static void truncation(void **state) {
    Files *files = *state;
    CLEANUP(opened_done) Opened opened = {0};
    CLEANUP(mem_freep) char *warning = NULL, *text = NULL;
    files->count = 0;
    files_add_text(files, "chats.jsonl",
                   CHAT("q", "an answer of more than 24 tokens") "\n" CHAT(
                       "a question of more than 24 tokens", "a") "\n");
    assert_ok(open_with(files, &(DataSpec){0}, &opened));
    assert_int_equal(dataset_count(opened.data), 1);
    assert_int_equal(dataset_tokens(opened.data), T);
    assert_ok(dataset_warning(opened.data, &warning));
    assert_string_equal(
        warning, "2 of 2 conversations are longer than 25 tokens and truncated, which drops 29 tokens; 1 "
                 "conversation without words to train on is skipped");
    assert_ok(dataset_text(opened.data, &text));
    assert_string_equal(text, "1 conversation (messages) in 1 sequence, with a loss on 76% of the tokens");
}

/* Without a template, a prompt and its completion are text that ends with the end token. */
static void plain(void **state) {
    Files *files = *state;
    CLEANUP(opened_done) Opened opened = {0};
    CLEANUP(host_batch_freep) HostBatch *batch = NULL;
    char tokens[T + 1], labels[T + 1];
    files->count = 0;
    files_add_text(files, "plain.json", "[{\"prompt\": \"warp \", \"completion\": \"weft\"}]");
    assert_ok(open_with(files, &(DataSpec){.windows = true}, &opened));
    assert_ok(host_batch_new(&batch, 1, T));
    assert_ok(dataset_fill(opened.data, 0, false, batch));
    row_text(batch, 0, tokens, labels);
    assert_string_equal(tokens, "warp weft_______________");
    assert_string_equal(labels, "....weft$...............");
}

static void refused(void **state) {
    static const struct {
        const char *text, *message;
        bool no_template;
    } cases[] = {
        {CHAT("q", "a") "\n{\"prompt\": \"p\", \"completion\": \"c\"}\n",
         "line 2: the keys are those of the format prompt and completion, but the conversations before have "
         "messages",
         false},
        {CHAT("q", "a") "\n{\"messages\"\n", "line 2: not valid JSON", false},
        {"[" CHAT("q", "a") "," CHAT("q", "a"), "conversation 2: expected ',' or ']' after it", false},
        {"[" CHAT("q", "a") ",", "the array of conversations is not closed", false},
        {"[" CHAT("q", "a") "] x", "text follows the array", false},
        {CHAT("q", "a"),
         "line 1: messages need a chat template, but the model has none; pass --chat-template FILE", true},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}]}",
         "nothing to train on: 1 conversation without a word", false},
    };
    Files *files = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CLEANUP(opened_done) Opened opened = {0};
        files->count = 0;
        files_add_text(files, "wrong.jsonl", cases[i].text);
        assert_fails(open_with(files, &(DataSpec){.windows = cases[i].no_template}, &opened), 1,
                     cases[i].message);
    }
}

static void recognized(void **state) {
    static const struct {
        const char *name, *text, *field;
        DataFormat format;
    } cases[] = {
        {"a.jsonl", CHAT("q", "a"), NULL, FORMAT_CHAT},
        {"a.json", "[" CHAT("q", "a") "]", "text", FORMAT_CHAT},
        {"b.json", "\n[ {\"instruction\": \"i\", \"input\": \"\", \"output\": \"o\"} ]", NULL, FORMAT_CHAT},
        {"b.jsonl", "{\"instruction\": \"i\", \"output\": \"o\", \"text\": \"t\"}", "text", FORMAT_CHAT},
        {"c.jsonl", "{\"instruction\": \"i\", \"output\": \"o\", \"body\": \"t\"}", "body", FORMAT_TEXT},
        {"d.jsonl", "{\"text\": \"t\", \"prompt\": \"p\"}", NULL, FORMAT_TEXT},
        {"e.jsonl", "{\"conversations\": []}", NULL, FORMAT_CHAT},
        {"f.jsonl", "{\"prompt\": \"p\", \"completion\": \"c\"}", NULL, FORMAT_CHAT},
        {"g.jsonl", "{\"ids\": [1], \"messages\": []}", NULL, FORMAT_IDS},
    };
    Files *files = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        DataFormat format = FORMAT_AUTO;
        files->count = 0;
        files_add_text(files, cases[i].name, cases[i].text);
        assert_ok(data_format_find(files->list[0], cases[i].field, &format));
        assert_int_equal(format, cases[i].format);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(labels_and_packing), cmocka_unit_test(losses), cmocka_unit_test(best_fit),
        cmocka_unit_test(truncation),         cmocka_unit_test(plain),  cmocka_unit_test(refused),
        cmocka_unit_test(recognized),
    };
    return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
