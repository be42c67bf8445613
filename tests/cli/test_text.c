/* Training on text with a tokenizer: the text is prepared once and cached, and mismatched data, tokenizers
 * and checkpoints are refused. */
#include "corpus.h"

#include "checkpoint/checkpoint.h"

#define SHAPE                                                                                                \
    "--layers", "1", "--hidden", "16", "--heads", "2", "--seq", "16", "--batch", "2", "--threads", "1"
#define TINY "--model", "gpt2-tiny", SHAPE

static const char *const few[] = {"t h", "th e", "q u"};
static const char *const more[] = {"t h", "th e", "q u", "o v"};

static int setup(void **state) {
    if (corpus_setup(state)) return -1;
    put_bpe("bpe", few, 3);
    put_bpe("other", more, 4);
    put_wordpiece("bert");
    put_sentences("text.txt", 400, 1, false);
    put_sentences("val.txt", 100, 2, false);
    put_sentences("text.jsonl", 400, 1, true);
    return 0;
}

static ModelConfig config_of(const char *run) {
    CLEANUP(mem_freep) char *dir = NULL;
    ModelConfig config;
    assert_ok(ckpt_latest(at(run), &dir));
    assert_non_null(dir);
    assert_ok(hf_config_read(dir, &config));
    return config;
}

static double loss_of(Ran ran, const char *key) {
    if (ran.code) fail_msg("exit code %d: %s", ran.code, ran.err);
    json_t *json = json_of(&ran);
    double loss = json_number_value(json_object_get(json, key));
    json_decref(json);
    ran_done(&ran);
    return loss;
}

/* Warnings about a text are repeated by every run that uses it. */
static void repeats_warnings(void **state) {
    CLEANUP(mem_freep) char *text = calloc(1, 4001);
    memset(text, 'a', 4000);
    for (int i = 5; i < 4000; i += 6) text[i] = ' ';
    text[4] = '\xe9';
    put_text("latin.txt", text);
    for (int i = 0; i < 2; i++) {
        Ran ran =
            program_run("train", "--tokenizer", at("bpe"), "--data", at("latin.txt"), TINY, "--steps", "1");
        assert_int_equal(ran.code, 0);
        assert_contains(ran.err, "latin.txt: line 1: 1 byte of the text is not valid UTF-8");
        ran_done(&ran);
    }
}

/* Files that are not text are refused by name, with and without a tokenizer; --format bytes reads anything.
 */
static void refuses_other_formats(void **state) {
    CLEANUP(mem_freep) char *text = calloc(1, 2001);
    memset(text, 'a', 2000);
    memcpy(text, "%PDF-1.7\n", 9);
    put_text("book.pdf", text);
    put_text("array.json", "[{\"title\": \"a\"}]");
    const char *const refused[][2] = {{"book.pdf", "book.pdf is a PDF document; extract its text first"},
                                      {"array.json", "no field \"text\""}};
    for (int i = 0; i < 2; i++) {
        const char *path = at(refused[i][0]), *message = refused[i][1];
        assert_refused(1, message, "train", "--data", path, TINY, "--steps", "1");
        assert_refused(1, message, "train", "--tokenizer", at("bpe"), "--data", path, TINY, "--steps", "1");
        assert_refused(1, message, "prepare", "--tokenizer", at("bpe"), "--data", path, "--out", at("no"));
        assert_refused(1, message, "prepare", "--tokenizer", "bytes", "--data", path, "--out", at("no"));
    }
    assert_refused(1, "extract its text first\n", "tokenizer", "train", at("book.pdf"), "--vocab", "300",
                   "--out", at("no"), "--quiet");
    assert_refused(2, "book.pdf is a PDF document; 'weft info' describes", "info", at("book.pdf"));
    assert_refused(2, "array.json has no field \"text\"; it has title", "info", at("array.json"));
    put_text("dev.json", "{\"data\": [{\"paragraphs\": []}]}");
    assert_refused(2, "prepared data. As training data, it has the format squad\n", "info", at("dev.json"));
    assert_runs(program_run("train", "--format", "bytes", "--data", at("book.pdf"), TINY, "--steps", "1",
                            "--out", at("pdf-run"), "--json"));
    Ran ran = program_run("eval", at("pdf-run"), "--format", "bytes", "--data", at("book.pdf"), "--json");
    assert_int_equal(number_in(&ran, "bytes"), 2000);
    ran_done(&ran);
    assert_runs(program_run("prepare", "--format", "bytes", "--tokenizer", "bytes", "--data", at("book.pdf"),
                            "--out", at("pdf"), "--quiet", "--json"));
    assert_refused(2, "use --tokenizer bytes", "prepare", "--format", "bytes", "--tokenizer", at("bpe"),
                   "--data", at("book.pdf"), "--out", at("no"));
}

/* Rows give the same documents in every format, to train, prepare and eval. */
static void reads_rows(void **state) {
    static const char parquet[] = WEFT_TEST_DIR "/data/parquet/text.parquet";
    CLEANUP(mem_freep) char *lines = NULL;
    size_t size;
    int64_t tokens = 0;
    assert_ok(file_read(WEFT_TEST_DIR "/data/parquet/text.jsonl", 1 << 16, &lines, &size));
    put_text("rows.jsonl", lines);
    for (char *newline = lines; (newline = strchr(newline, '\n')) && newline[1];) *newline = ',';
    CLEANUP(mem_freep) char *array = NULL;
    assert_ok(str_format(&array, "[%s]", lines));
    put_text("rows.json", array);
    const char *const paths[] = {at("rows.jsonl"), at("rows.json"), parquet};
    for (int i = 0; i < 3; i++) {
        Ran ran = program_run("prepare", "--tokenizer", at("bpe"), "--data", paths[i], "--out", at("rows"),
                              "--overwrite", "--quiet", "--json");
        assert_true(number_in(&ran, "documents") == 6 || number_in(&ran, "documents") == 5);
        if (i) assert_int_equal(number_in(&ran, "tokens"), tokens);
        tokens = (int64_t)number_in(&ran, "tokens");
        ran_done(&ran);
    }
    enum { ROWS = 40, WORDS = 11 }; /* with one per line end */
    CLEANUP(mem_freep) char *table = calloc(ROWS + 1, 64);
    size_t used = (size_t)sprintf(table, "id,body\n");
    for (int i = 0; i < ROWS; i++)
        used +=
            (size_t)sprintf(table + used, "%d,\"to be, or \"\"not\"\" to be: that is the question\"\n", i);
    put_text("rows.csv", table);
    for (int i = 0; i < 2; i++) {
        const char *field = i ? "--field" : "--text-field", *run = at(i ? "rows-field" : "rows-text-field");
        Ran ran = program_run("train", "--data", at("rows.csv"), field, "body", TINY, "--steps", "1", "--out",
                              run, "--json");
        assert_int_equal(ran.code, 0);
        ran_done(&ran);
        Ran scored = program_run("eval", run, "--data", at("rows.csv"), field, "body", "--json");
        assert_int_equal(number_in(&scored, "words"), ROWS * WORDS);
        ran_done(&scored);
    }
}

/* A text that is too short is not the cache's fault. */
static void names_short_text(void **state) {
    put_text("short.txt", "to be");
    Ran ran = program_run("train", "--tokenizer", at("bpe"), "--data", at("short.txt"), TINY, "--steps", "1",
                          "--no-cache");
    assert_int_equal(ran.code, 1);
    assert_contains(ran.err, "short.txt: too little data: ");
    assert_contains(ran.err, "use a smaller --seq or more data");
    assert_null(strstr(ran.err, "tokenized earlier"));
    ran_done(&ran);
}

/* The first run prepares the text and the second finds it in the cache. The model has the tokenizer's
 * vocabulary, and the checkpoint includes the tokenizer. */
static void cached(void **state) {
    Ran first = program_run("train", "--tokenizer", at("bpe"), "--data", at("text.txt"), TINY, "--steps", "3",
                            "--out", at("run"), "--json");
    assert_int_equal(number_in(&first, "steps"), 3);
    assert_contains(first.err, "preparing ");
    assert_contains(first.err, "(bpe, 260 tokens, ");
    ran_done(&first);
    Ran second =
        program_run("train", "--tokenizer", at("bpe"), "--data", at("text.txt"), TINY, "--steps", "3");
    assert_int_equal(second.code, 0);
    assert_contains(second.err, "text.txt: using cached tokens in ");
    assert_null(strstr(second.err, "preparing "));
    ran_done(&second);
    assert_int_equal(entries_with(at("cache/shards"), "lock"), 2);
    ModelConfig config = config_of("run");
    assert_int_equal(config.vocab, 260);
    assert_int_equal(config.eos_token, 259);
    assert_true(path_exists(at("run/latest/vocab.json")) && path_exists(at("run/latest/merges.txt")));

    /* The tokenizer stored with the checkpoint is enough. */
    double named = loss_of(program_run("eval", "--model", at("run"), "--data", at("val.txt"), "--tokenizer",
                                       at("bpe"), "--json"),
                           "loss");
    double found =
        loss_of(program_run("eval", "--model", at("run"), "--data", at("val.txt"), "--json"), "loss");
    assert_true(named == found);
    /* A changed file is prepared again. */
    put_sentences("val.txt", 90, 3, false);
    double changed =
        loss_of(program_run("eval", "--model", at("run"), "--data", at("val.txt"), "--json"), "loss");
    assert_true(changed != found);
}

/* weft prepare keeps the tokenizer beside the tokens, so a model trained on them needs no other. */
static void keeps_tokenizer(void **state) {
#define PREPARE "prepare", "--tokenizer", at("bpe"), "--data", at("text.txt"), "--out", at("kept"), "--quiet"
    assert_runs(program_run(PREPARE, "--json"));
    assert_true(path_exists(at("kept/tokenizer/vocab.json")));
    const char *const data[] = {at("kept"), at("kept/train-00000.tokens")};
    const char *const runs[] = {at("kept-run"), at("kept-run2")};
    for (int i = 0; i < 2; i++) {
        assert_runs(program_run("train", "--data", data[i], TINY, "--steps", "2", "--out", runs[i], "--quiet",
                                "--json"));
        Ran ran =
            program_run("generate", runs[i], "--prompt", "the", "--max-tokens", "3", "--greedy", "--json");
        if (ran.code) fail_msg("%s", ran.err);
        ran_done(&ran);
    }
    assert_runs(program_run("train", "--data", at("kept"), "--val", at("val.txt"), TINY, "--steps", "2",
                            "--quiet", "--json"));
    assert_refused(2, "was prepared with a different tokenizer", "train", "--tokenizer", at("other"),
                   "--data", at("kept"), TINY, "--steps", "2");
    assert_runs(program_run(PREPARE, "--json", "--overwrite"));
    put_text("kept/tokenizer/notes", "mine");
    assert_refused(2, "contains tokenizer, which is not a token file", PREPARE, "--overwrite");
}

/* Text, token files and JSON lines with the same documents give the same loss. */
static void same_from_every_format(void **state) {
    assert_runs(program_run("prepare", "--tokenizer", at("bpe"), "--data", at("text.txt"), "--documents",
                            "line", "--out", at("lines"), "--quiet", "--json"));
#define LOSS(...)                                                                                            \
    loss_of(program_run("train", "--tokenizer", at("bpe"), __VA_ARGS__, TINY, "--steps", "4", "--quiet",     \
                        "--json"),                                                                           \
            "loss_last")
    double shards = LOSS("--data", at("lines"));
    assert_true(shards > 1 && shards < 6);
    assert_true(LOSS("--data", at("text.jsonl")) == shards);
    assert_true(LOSS("--data", at("text.txt"), "--documents", "line") == shards);
    assert_true(LOSS("--data", at("text.txt"), "--documents", "line", "--no-cache") == shards);
    assert_true(LOSS("--data", at("text.txt")) != shards);
    /* Token files record their vocabulary. */
    Ran bare = program_run("train", "--data", at("lines"), TINY, "--steps", "4", "--quiet", "--json");
    assert_true(loss_of(bare, "loss_last") == shards);
}

/* --no-cross-document: the same from every format, in evaluation and after a resume. */
static void separate_documents(void **state) {
#define APART(...) LOSS("--no-cross-document", "--schedule", "constant", "--warmup", "0", __VA_ARGS__)
    double crossing = LOSS("--data", at("text.jsonl"), "--schedule", "constant", "--warmup", "0");
    double apart = APART("--data", at("text.jsonl"), "--out", at("separate"));
    assert_true(apart > 1 && apart < 6 && apart != crossing);
    assert_true(APART("--data", at("text.txt"), "--documents", "line") == apart);
    assert_runs(program_run("train", "--tokenizer", at("bpe"), "--data", at("text.jsonl"), TINY, "--steps",
                            "2", "--no-cross-document", "--schedule", "constant", "--warmup", "0", "--out",
                            at("halves"), "--quiet", "--json"));
    Ran rest = program_run("train", "--out", at("halves"), "--resume", "--steps", "4", "--quiet", "--json");
    assert_true(loss_of(rest, "loss_last") == apart);
    Ran ran[2] = {program_run("eval", "--model", at("separate"), "--data", at("text.jsonl"), "--json"),
                  program_run("eval", "--model", at("separate"), "--data", at("text.jsonl"),
                              "--no-cross-document", "--json")};
    /* The first token of a document is not predicted. */
    assert_int_equal(number_in(&ran[0], "tokens") - number_in(&ran[1], "tokens"), 400 - 1);
    assert_true(loss_of(ran[1], "loss") != loss_of(ran[0], "loss"));
    assert_refused(2, "--no-cross-document is for language models", "train", "--tokenizer", at("bert"),
                   "--data", at("text.txt"), "--model", "bert-tiny", SHAPE, "--no-cross-document");
    assert_refused(2, "--no-cross-document needs a token that ends a document", "train", "--data",
                   at("text.txt"), "--format", "u16", "--vocab", "40000", TINY, "--no-cross-document");
}

/* The suggested commands work: without a tokenizer, prompts are token ids; names are quoted for the shell. */
static void suggestions(void **state) {
    CLEANUP(mem_freep) char *next = NULL;
    Ran ran = program_run("train", "--data", at("text.txt"), "--format", "u16", "--vocab", "40000", TINY,
                          "--steps", "1", "--eval-every", "0", "--out", at("it's $x"));
    assert_ok(str_format(&next, "next: weft generate '%s' --prompt-ids 1,2,3\n", at("it'\\''s $x")));
    assert_contains(ran.out, next);
    assert_runs(ran);
    ran = program_run("prepare", "--tokenizer", "bytes", "--data", at("text.txt"), "--out", at("a b"));
    free(next);
    next = NULL;
    assert_ok(str_format(&next, "train with: weft train --data '%s'\n", at("a b")));
    assert_contains(ran.out, next);
    assert_runs(ran);
}

static void assert_same_weights(const char *a, const char *b) {
    CLEANUP(file_map_done) FileMap x = {0}, y = {0};
    assert_ok(file_map_init(&x, a));
    assert_ok(file_map_init(&y, b));
    assert_int_equal(x.size, y.size);
    assert_memory_equal(x.data, y.data, x.size);
}

/* A resumed run ends with the same bits, even if the tokenizer's original directory is gone. */
static void resumed(void **state) {
    put_bpe("passing", few, 3);
#define RUN(dir, steps)                                                                                      \
    "train", "--tokenizer", at("passing"), "--data", at("text.jsonl"), TINY, "--warmup", "0", "--schedule",  \
        "constant", "--steps", steps, "--out", at(dir), "--quiet", "--json"
    assert_runs(program_run(RUN("whole", "6")));
    assert_runs(program_run(RUN("half", "3")));
    assert_ok(dir_remove(at("passing")));
    assert_runs(program_run("train", "--resume", "--out", at("half"), "--steps", "6", "--quiet", "--json"));
    assert_same_weights(at("whole/latest/model.safetensors"), at("half/latest/model.safetensors"));
    assert_true(path_exists(at("half/latest/merges.txt")));
}

static void without_cache(void **state) {
    put_sentences("alone.txt", 300, 9, false);
    int before = entries_with(at("cache/shards"), "lock");
    assert_runs(program_run("train", "--tokenizer", at("bpe"), "--data", at("alone.txt"), TINY, "--steps",
                            "2", "--no-cache", "--out", at("apart"), "--quiet", "--json"));
    assert_int_equal(entries_with(at("apart/shards"), "lock"), 1);
    assert_ok(dir_make(at("tmp")));
    assert_int_equal(setenv("TMPDIR", at("tmp"), 1), 0);
    assert_runs(
        program_run("eval", "--model", at("apart"), "--data", at("alone.txt"), "--no-cache", "--json"));
    assert_int_equal(unsetenv("TMPDIR"), 0);
    assert_int_equal(entries_with(at("tmp"), "weft"), 0);
    assert_int_equal(entries_with(at("cache/shards"), "lock"), before);
}

/* When several runs need the same text at once, one prepares it for all. */
static void at_once(void **state) {
    enum { RUNS = 4 };
    pid_t child[RUNS];
    put_sentences("shared.txt", 20000, 5, false);
    const char *text = at("shared.txt"), *bpe = at("bpe");
    for (int i = 0; i < RUNS; i++) {
        child[i] = fork();
        assert_true(child[i] >= 0);
        if (child[i]) continue;
        FILE *null = fopen("/dev/null", "w");
        dup2(fileno(null), 1);
        const char *argv[] = {WEFT_BINARY, "train", "--tokenizer",    bpe, "--data",  text,     TINY,
                              "--steps",   "1",     "--eval-batches", "1", "--quiet", "--json", NULL};
        execv(WEFT_BINARY, (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    for (int i = 0; i < RUNS; i++) {
        int code;
        assert_int_equal(waitpid(child[i], &code, 0), child[i]);
        assert_true(WIFEXITED(code) && WEXITSTATUS(code) == 0);
    }
    assert_int_equal(entries_with(at("cache/shards"), "tmp"), 0);
}

static void bert(void **state) {
    Ran ran =
        program_run("train", "--model", "bert-tiny", "--tokenizer", at("bert"), "--data", at("text.txt"),
                    "--documents", "line", SHAPE, "--steps", "3", "--out", at("bert-run"), "--json");
    assert_int_equal(number_in(&ran, "steps"), 3);
    ran_done(&ran);
    ModelConfig config = config_of("bert-run");
    assert_int_equal(config.vocab, 15);
    assert_int_equal(config.pad_token, 0);
    assert_true(path_exists(at("bert-run/latest/vocab.txt")));
    assert_runs(program_run("eval", "--model", at("bert-run"), "--data", at("text.jsonl"), "--json"));
}

/* Mismatched data, tokenizers and checkpoints. */
static void refusals(void **state) {
    assert_runs(program_run("train", "--tokenizer", at("bpe"), "--data", at("text.txt"), TINY, "--steps", "1",
                            "--out", at("mine"), "--quiet", "--json"));
    assert_runs(program_run("prepare", "--tokenizer", at("other"), "--data", at("text.txt"), "--out",
                            at("other-shards"), "--quiet", "--json"));
    assert_runs(program_run("train", "--data", at("text.txt"), "--model", "gpt2-tiny", SHAPE, "--steps", "1",
                            "--out", at("byte-run"), "--quiet", "--json"));
    /* Token files and a tokenizer; token files and a checkpoint. */
    assert_refused(2, "(bpe, 261 tokens, ", "train", "--tokenizer", at("bpe"), "--data", at("other-shards"),
                   TINY, "--quiet");
    assert_refused(2, "was prepared with a different tokenizer", "train", "--model", at("mine"), "--data",
                   at("other-shards"), "--quiet");
    assert_refused(2, "was prepared with a different tokenizer", "eval", "--model", at("mine"), "--data",
                   at("other-shards"));
    assert_refused(2, "has a vocabulary of 257, which does not match the tokenizer", "eval", "--model",
                   at("byte-run"), "--data", at("other-shards"));
    assert_refused(2, "was prepared with a different tokenizer (bpe, 261 tokens, ", "train", "--tokenizer",
                   "bytes", "--data", at("other-shards"), TINY, "--quiet");
    /* A checkpoint and a tokenizer. */
    assert_refused(2, "the tokenizer bytes (bytes, 257 tokens, ", "generate", at("mine"), "fox",
                   "--tokenizer", "bytes");
    assert_refused(2, "has its own tokenizer, so byte tokens cannot be used with it", "eval", "--model",
                   at("mine"), "--tokenizer", "bytes", "--data", at("text.txt"));
    assert_refused(2, "--format bytes: the checkpoint", "eval", "--model", at("mine"), "--format", "bytes",
                   "--data", at("text.txt"));
    assert_refused(2, "differs from that of the checkpoint", "train", "--model", at("mine"), "--tokenizer",
                   at("other"), "--data", at("text.txt"), "--quiet");
    assert_refused(2, "has a vocabulary of 257, which does not match the tokenizer", "train", "--model",
                   at("byte-run"), "--tokenizer", at("bpe"), "--data", at("text.txt"), "--quiet");
    assert_refused(2, "--vocab has a vocabulary of 100, which", "train", "--vocab", "100", "--tokenizer",
                   at("bpe"), "--data", at("text.txt"), TINY, "--quiet");
    assert_refused(2, "needs a start ([CLS]) token", "train", "--model", "bert-tiny", "--tokenizer",
                   at("bpe"), "--data", at("text.txt"), SHAPE, "--quiet");
    /* BERT's default special tokens are not assumed either, however large the vocabulary is. */
    put_wide_bpe("wide", few, 3, 29000);
    assert_refused(2, "needs a start ([CLS]) token", "train", "--model", "bert-tiny", "--tokenizer",
                   at("wide"), "--data", at("text.txt"), SHAPE, "--quiet");
    assert_refused(2, "cannot be combined with the tokenizer", "train", "--format", "bytes", "--tokenizer",
                   at("bpe"), "--data", at("text.txt"), TINY, "--quiet");
    assert_ok(dir_remove(at("other-shards/tokenizer")));
    assert_refused(2, "their tokenizer (bpe, 261 tokens, ", "train", "--data", at("other-shards"), "--val",
                   at("text.jsonl"), TINY, "--quiet");
    assert_refused(1, "no-such-place", "train", "--tokenizer", at("no-such-place"), "--data", at("text.txt"),
                   TINY, "--quiet");
    put_text("odd.jsonl", "{\"content\": \"text\"}\n");
    assert_refused(1, "has neither \"ids\" nor \"text\"", "train", "--tokenizer", at("bpe"), "--data",
                   at("odd.jsonl"), TINY, "--quiet");
    assert_refused(2, "all files must have the same format", "train", "--tokenizer", at("bpe"), "--data",
                   at("text.txt"), at("other-shards"), TINY, "--quiet");
}

/* Models with different tokenizers are compared per byte of text; other losses per token are not. */
static void compared(void **state) {
    Ran ran = program_run("eval", at("mine"), at("val.txt"), "--against", at("byte-run"), "--quiet");
    assert_int_equal(ran.code, 0);
    assert_contains(ran.out, "bits per byte               bytes/s\n");
    assert_null(strstr(ran.out, "loss"));
    ran_done(&ran);
    assert_refused(2, "per byte on text, without --max-batches", "eval", at("mine"), at("val.txt"),
                   "--against", at("byte-run"), "--max-batches", "1");
    assert_refused(2, "bert-run would be evaluated on another task (mlm)", "eval", at("mine"), at("val.txt"),
                   "--against", at("bert-run"));
}

static void described(void **state) {
    Ran ran = program_run("info", at("bpe"), "--json");
    assert_int_equal(ran.code, 0);
    assert_contains(ran.out, "\"kind\": \"tokenizer\"");
    assert_contains(ran.out, "\"vocab\": 260");
    assert_contains(ran.out, "\"end\": 259");
    ran_done(&ran);
    Ran people = program_run("info", at("bert"));
    assert_contains(people.out, "tokenizer    wordpiece, 15 tokens, fingerprint ");
    assert_contains(people.out, "mask 4");
    ran_done(&people);
    Ran bench = program_run("bench", "--tokenizer", at("bpe"), TINY, "--steps", "1", "--json");
    assert_int_equal(bench.code, 0);
    ran_done(&bench);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_tokenizer),

        cmocka_unit_test(refuses_other_formats),
        cmocka_unit_test(repeats_warnings),
        cmocka_unit_test(names_short_text),
        cmocka_unit_test(cached),
        cmocka_unit_test(reads_rows),
        cmocka_unit_test(same_from_every_format),
        cmocka_unit_test(separate_documents),
        cmocka_unit_test(suggestions),
        cmocka_unit_test(resumed),
        cmocka_unit_test(without_cache),
        cmocka_unit_test(at_once),
        cmocka_unit_test(bert),
        cmocka_unit_test(refusals),
        cmocka_unit_test(compared),
        cmocka_unit_test(described),
    };
    return cmocka_run_group_tests(tests, setup, corpus_teardown);
}
