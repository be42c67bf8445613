/* Conversations from the command line: training on them, describing them, and talking to the model, which has
 * memorized two. Tokens are bytes, so what ends a turn is text. */
#include "corpus.h"
#include "terminal.h"

#define TEMPLATE                                                                                             \
    "{% for m in messages %}({{ m.role }}) {{ m.content }} [end]\n{% endfor %}"                              \
    "{% if add_generation_prompt %}(assistant) {% endif %}"
#define TINY                                                                                                 \
    "--model llama-1m --tokenizer bytes --layers 1 --hidden 32 --heads 2 --seq 128 --threads 1 "             \
    "--chat-template chat.jinja "

static int setup(void **state) {
    if (corpus_setup(state) || setenv("WEFT", WEFT_BINARY, 1)) return -1;
    put_text("chat.jinja", TEMPLATE);
    put_text(
        "chats.jsonl",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Warp?\"}, {\"role\": \"assistant\", "
        "\"content\": \"Weft!\"}, "
        "{\"role\": \"user\", \"content\": \"Loom?\"}, {\"role\": \"assistant\", \"content\": \"Yarn.\"}]}\n"
        "{\"messages\": [{\"role\": \"system\", \"content\": \"Shout\"}, {\"role\": \"user\", \"content\": "
        "\"Warp?\"}, "
        "{\"role\": \"assistant\", \"content\": \"WOOL\"}]}\n");
    Ran ran = shell("$WEFT train chats.jsonl " TINY
                    "--batch 2 --val chats.jsonl --eval-every 0 --steps 250 --lr 1e-2 --out run");
    if (ran.code) fprintf(stderr, "%s", ran.err);
    int code = ran.code;
    ran_done(&ran);
    return code;
}

static void assert_shell(const char *command, int code, const char *out, const char *err) {
    Ran ran = shell(command);
    if (ran.code != code) fprintf(stderr, "%s\n%s", command, ran.err);
    assert_int_equal(ran.code, code);
    assert_contains(ran.out, out);
    assert_contains(ran.err, err);
    ran_done(&ran);
}

static void training(void **state) {
    assert_shell("cmp chat.jinja run/latest/chat_template.jinja", 0, "", "");
    assert_shell("$WEFT eval --model run --data chats.jsonl --seq 128", 0, "loss 0.0",
                 "2 conversations (messages) in 2 sequences");
    assert_shell("$WEFT convert --model run --out model.gguf > /dev/null && grep -c "
                 "'tokenizer.chat_template' model.gguf",
                 0, "1", "");
    assert_shell("$WEFT train chats.jsonl " TINY
                 "--steps 1 --loss-on completion --no-packing --val chats.jsonl",
                 0, "", "2 conversations (messages) in 2 sequences, with a loss on");
    assert_shell("$WEFT train chats.jsonl --model bert-tiny --tokenizer bytes --steps 1", 2, "",
                 "read as conversations, which require --task lm");
    assert_shell("echo '{% include x %}' > bad.jinja; $WEFT train chats.jsonl --model llama-1m --tokenizer "
                 "bytes --chat-template bad.jinja",
                 1, "", "bad.jinja, line 1: the statement 'include' is not supported");
    assert_shell("$WEFT train chats.jsonl --model llama-1m --tokenizer bytes --steps 1", 1, "",
                 "chats.jsonl: line 1: messages need a chat template, but the model has none; pass "
                 "--chat-template FILE");
}

/* Dropout, packing and labels are the same in every layout. */
static void layouts(void **state) {
    const char *command =
        "for l in '--ranks 1' '--dp 2 --zero 3' '--cp 2'; do rm -rf r; $WEFT train chats.jsonl " TINY
        "--batch 2 --steps 3 --dropout 0.1 --val chats.jsonl --out r $l > /dev/null || exit 1; "
        "sed -n 's/.*\"loss\": *\\([0-9.]\\{7\\}\\).*/\\1/p' r/metrics.jsonl | tr '\\n' ' '; echo; done | "
        "sort -u | wc -l";
    assert_shell(command, 0, "1\n", "");
}

/* Tables train like the same rows in JSON lines. */
static void tables(void **state) {
    put_text("rows.csv", "prompt,completion\n\"Warp, weft?\",\"It is \"\"weft\"\".\"\nLoom?,Yarn.\n");
    put_text("rows.jsonl", "{\"prompt\": \"Warp, weft?\", \"completion\": \"It is \\\"weft\\\".\"}\n"
                           "{\"prompt\": \"Loom?\", \"completion\": \"Yarn.\"}\n");
    put_text("parquet.jsonl",
             "{\"messages\": [{\"role\": \"user\", \"content\": \"Warp?\"}, {\"role\": \"assistant\", "
             "\"content\": \"Weft!\"}]}\n"
             "{\"messages\": [{\"role\": \"user\", \"content\": \"Warp?\"}, {\"role\": \"assistant\", "
             "\"content\": \"Yarn.\"}]}\n");
    assert_shell("cp '" WEFT_TEST_DIR "/data/parquet/chats.parquet' parquet.parquet; for n in rows.csv "
                 "rows.jsonl parquet.parquet parquet.jsonl; do rm -rf r; $WEFT train $n " TINY
                 "--batch 2 --steps 3 --val $n --out r > /dev/null || exit 1; echo ${n%.*} $(sed -n "
                 "'s/.*\"loss\": *\\([0-9.]*\\).*/\\1/p' r/metrics.jsonl); done | sort -u | wc -l",
                 0, "2\n", "");
    assert_shell("$WEFT info parquet.parquet", 0,
                 "conversations 2, in the format messages\nmessages     2 by user, 2 by assistant", "");
}

static void described(void **state) {
    assert_shell(
        "$WEFT info chats.jsonl", 0,
        "conversations 2, in the format messages\nmessages     3 by user, 3 by assistant, 1 by system", "");
    assert_shell("$WEFT info chats.jsonl --model run", 0,
                 "(user) Warp? [end]\n(assistant) \xc2\xabWeft! [end]\n\xc2\xbb(user) Loom? "
                 "[end]\n(assistant) \xc2\xabYarn. [end]\n\xc2\xbb",
                 "");
    assert_shell("$WEFT info chats.jsonl --model run --loss-on completion --example 2", 0,
                 "(system) Shout [end]\n(user) Warp? [end]\n(assistant) \xc2\xabWOOL [end]\n\xc2\xbb", "");
    assert_shell("$WEFT info chats.jsonl --example 3", 2, "", "--example 3: chats.jsonl has 2 conversations");
}

#define CHAT "$WEFT generate --model run --threads 1 --greedy "

static void answers(void **state) {
    assert_shell(CHAT "--chat --prompt 'Warp?'", 0, "Weft!", "");
    assert_shell(CHAT "--chat --prompt 'Warp?' --system Shout --no-stream", 0, "WOOL", "");
    assert_shell("echo '[{\"role\": \"user\", \"content\": \"Warp?\"}, {\"role\": \"assistant\", "
                 "\"content\": \"Weft!\"},"
                 " {\"role\": \"user\", \"content\": \"Loom?\"}]' | " CHAT "--messages - --json",
                 0, "\"new_text\": \"Yarn.", "");
    assert_shell(CHAT "--messages chats.jsonl", 2, "",
                 "chats.jsonl: line 1: the last message is the assistant's");
    assert_shell(CHAT "--chat", 2, "", "--chat needs a message");
    assert_shell(CHAT "--chat --prompt-ids 1", 2, "", "not by --prompt-ids");
    assert_shell("$WEFT convert --model run --out plain > /dev/null; rm plain/chat_template.jinja; "
                 "$WEFT generate --model plain --chat --prompt a",
                 2, "", "plain has no chat template; pass --chat-template FILE");
}

/* A conversation that is typed, saved and continued. */
static void conversation(void **state) {
    assert_shell("printf 'Warp?\\nLoom?\\n/save said.jsonl\\n/reset\\nWarp?\\n/help\\n' | " CHAT "-i --chat",
                 0, "Weft!\nYarn.\nWeft!\n", "saved 4 messages to said.jsonl");
    assert_shell("cat said.jsonl", 0,
                 "{\"role\":\"user\",\"content\":\"Loom?\"},{\"role\":\"assistant\",\"content\":\"Yarn.", "");
    assert_shell("printf 'Warp?\\n/reset\\nWarp?\\n' | " CHAT "-i --chat --system Shout", 0, "WOOL\nWOOL\n",
                 "");
    assert_shell("echo '{\"messages\": [{\"role\": \"user\", \"content\": \"Warp?\"}]}' > one.jsonl; printf "
                 "'Loom?\\n' | " CHAT "-i --messages one.jsonl",
                 0, "Weft!\nYarn.\n", "");
    assert_shell("printf '/save /no/such/place\\n' | " CHAT "-i --chat", 0, "",
                 "/no/such/place: cannot write");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training),  cmocka_unit_test(layouts), cmocka_unit_test(tables),
        cmocka_unit_test(described), cmocka_unit_test(answers), cmocka_unit_test(conversation),
    };
    return cmocka_run_group_tests(tests, setup, corpus_teardown);
}
