/* `weft prepare` through the program, and train, eval and info on its token files. */
#include "corpus.h"

#include <signal.h>
#include <sys/resource.h>
#include <zlib.h>

#define TINY                                                                                                 \
    "--model", "gpt2-tiny", "--layers", "1", "--hidden", "16", "--heads", "2", "--seq", "16", "--batch",     \
        "2", "--threads", "1", "--quiet"

static void result_and_info(void **state) {
    put_text("a.txt", "one\ntwo\n");
    put_text("b.jsonl", "{\"body\": \"three\"}\n");
    Ran ran = program_run("prepare", "--tokenizer", "bytes", "--data", at("a.txt"), at("b.jsonl"), "--field",
                          "body", "--documents", "line", "--out", at("first"), "--json");
    assert_int_equal(number_in(&ran, "tokens"), 4 + 4 + 6);
    assert_int_equal(number_in(&ran, "documents"), 3);
    assert_int_equal(number_in(&ran, "bytes"), 11);
    json_t *json = json_of(&ran);
    assert_string_equal(json_string_value(json_array_get(json_object_get(json, "shards"), 0)),
                        at("first/train-00000.tokens"));
    assert_true(json_number_value(json_object_get(json, "seconds")) > 0);
    assert_true(json_number_value(json_object_get(json, "tokens_per_s")) > 0);
    json_decref(json);
    ran_done(&ran);
    Ran info = program_run("info", at("first"), "--verify", "--json");
    assert_int_equal(number_in(&info, "tokens"), 14);
    assert_int_equal(number_in(&info, "documents"), 3);
    assert_contains(info.out, "\"verified\": true");
    assert_contains(info.out, "\"kind\": \"bytes\"");
    ran_done(&info);
    Ran people = program_run("info", at("first/train-00000.tokens"));
    assert_contains(people.out, "14 tokens in 3 documents");
    ran_done(&people);
}

/* Text in another encoding is prepared, with a warning that counts the invalid bytes. */
static void not_utf8(void **state) {
    put_text("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nna\n##ve\ncaf\n");
    put_text("latin.txt", "na\xc3\xafve\ncaf\xe9 na\xefve\n");
    Ran ran = program_run("prepare", "--tokenizer", at("vocab.txt"), "--data", at("latin.txt"), "--out",
                          at("latin"), "--quiet", "--json");
    assert_int_equal(number_in(&ran, "invalid_bytes"), 2);
    assert_int_equal(number_in(&ran, "changed_files"), 0);
    assert_contains(ran.err, "latin.txt: line 2: 2 bytes of the text are not valid UTF-8");
    ran_done(&ran);
    Ran bytes = program_run("prepare", "--tokenizer", "bytes", "--data", at("latin.txt"), "--out",
                            at("bytes"), "--quiet", "--json");
    assert_int_equal(number_in(&bytes, "invalid_bytes"), 0);
    ran_done(&bytes);
}

static void refusals(void **state) {
    put_text("good.txt", "some text");
    put_text("broken.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n{\"text\": }\n");
    assert_ok(dir_make(at("taken")));
    put_text("taken/notes", "mine");
    assert_refused(2, "contains notes, which is not a token file", "prepare", "--tokenizer", "bytes",
                   "--data", at("good.txt"), "--out", at("taken"), "--quiet");
    assert_refused(2, "expected a directory for token files", "prepare", "--tokenizer", "bytes", "--data",
                   at("good.txt"), "--out", at("good.txt"), "--quiet");
    assert_refused(1, "broken.jsonl: line 3, column ", "prepare", "--tokenizer", "bytes", "--data",
                   at("good.txt"), at("broken.jsonl"), "--out", at("none"), "--quiet");
    assert_refused(1, "absent.txt: cannot open", "prepare", "--tokenizer", "bytes", "--data",
                   at("absent.txt"), "--out", at("none"), "--quiet");
    assert_refused(1, "absent.txt: cannot open", "prepare", "--tokenizer", "bytes", "--data",
                   at("broken.jsonl"), "--val", at("absent.txt"), "--out", at("none"), "--quiet");
    assert_refused(2, "cannot be combined with --val-fraction", "prepare", "--tokenizer", "bytes", "--data",
                   at("good.txt"), "--val", at("good.txt"), "--val-fraction", "0.5", "--out", at("none"));
    assert_refused(2, "--file-size 5: expected", "prepare", "--tokenizer", "bytes", "--data", at("good.txt"),
                   "--file-size", "5", "--out", at("none"));
    assert_false(path_exists(at("none")));
    assert_int_equal(entries_with(corpus_root, "none"), 0);
    Ran first = program_run("prepare", "--tokenizer", "bytes", "--data", at("good.txt"), "--out", at("twice"),
                            "--quiet", "--json");
    assert_runs(first);
    assert_refused(2, "add --overwrite to replace them", "prepare", "--tokenizer", "bytes", "--data",
                   at("good.txt"), "--out", at("twice"), "--quiet");
    Ran again = program_run("prepare", "--tokenizer", "bytes", "--data", at("good.txt"), "--out", at("twice"),
                            "--overwrite", "--quiet", "--json");
    assert_runs(again);
}

/* Formats that become JSON lines: both files appear, or neither, and other files in the directory stay. */
static void lines_appear_complete(void **state) {
    put_text("good.txt", "some text");
    put_text("pairs.csv", "q,a\nhi,hello\n");
    put_text("empty.csv", "q,a\n");
    assert_refused(1, "good.txt", "prepare", "--format", "squad", "--tokenizer", "bytes", "--data",
                   at("good.txt"), "--out", at("lines"));
    assert_refused(1, "absent.csv: cannot open: no such file", "prepare", "--format", "pairs", "--data",
                   at("pairs.csv"), "--val", at("absent.csv"), "--out", at("lines"));
    assert_refused(1, "no pair has text on both sides", "prepare", "--format", "pairs", "--data",
                   at("pairs.csv"), "--val", at("empty.csv"), "--out", at("lines"));
    assert_refused(2, "is a file; expected a directory", "prepare", "--format", "pairs", "--data",
                   at("pairs.csv"), "--out", at("good.txt"));
    assert_int_equal(entries_with(corpus_root, "lines"), 0);
    Ran ran = program_run("prepare", "--format", "pairs", "--data", at("pairs.csv"), "--out", at("lines"));
    assert_contains(ran.out, "lines/pairs.jsonl");
    assert_runs(ran);
    put_text("lines/notes", "mine");
    assert_refused(2, "pairs.jsonl: already exists; add --overwrite", "prepare", "--format", "pairs",
                   "--data", at("pairs.csv"), "--out", at("lines"));
    Ran again = program_run("prepare", "--format", "pairs", "--data", at("pairs.csv"), "--val",
                            at("pairs.csv"), "--out", at("lines"), "--overwrite");
    assert_runs(again);
    assert_int_equal(entries_with(at("lines"), "pairs."), 2);
    assert_true(path_exists(at("lines/notes")));
    assert_int_equal(entries_with(corpus_root, "lines"), 1);
}

/* Killed at any moment, it leaves nothing at the output path, and the next run removes its temporary
 * files. */
static void killed(void **state) {
    assert_int_equal(mkfifo(at("pipe"), 0600), 0);
    const char *out = at("killed"), *pipe = at("pipe");
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        execl(WEFT_BINARY, WEFT_BINARY, "prepare", "--tokenizer", "bytes", "--data", pipe, "--out", out,
              "--file-size", "4096", "--quiet", NULL);
        _exit(127);
    }
    int fd = open(pipe, O_WRONLY);
    char text[4096];
    memset(text, 'x', sizeof text);
    for (int i = 0; i < 400; i++) assert_int_equal(write(fd, text, sizeof text), sizeof text);
    assert_int_equal(entries_with(corpus_root, "killed.tmp"), 1);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    close(fd);
    assert_false(path_exists(out));
    put_text("good.txt", "some text");
    Ran next = program_run("prepare", "--tokenizer", "bytes", "--data", at("good.txt"), "--out", out,
                           "--quiet", "--json");
    assert_runs(next);
    assert_int_equal(entries_with(corpus_root, "killed"), 1);
}

/* The peak memory of a run of the program, in bytes. */
static int64_t memory_of(const char *const *argv) {
    const char *full[32] = {WEFT_BINARY};
    for (int i = 0; argv[i]; i++) full[i + 1] = argv[i];
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        FILE *null = fopen("/dev/null", "w");
        dup2(fileno(null), 1);
        execv(WEFT_BINARY, (char *const *)(uintptr_t)full);
        _exit(127);
    }
    struct rusage usage;
    int code;
    assert_int_equal(wait4(child, &code, 0, &usage), child);
    assert_true(WIFEXITED(code) && WEXITSTATUS(code) == 0);
    return (int64_t)usage.ru_maxrss * 1024;
}

/* Memory stays bounded for much larger text, with many lines and documents. */
static void bounded_memory(void **state) {
#ifdef WEFT_SANITIZED
    skip();
#endif
    enum { LINE = 100 << 20, BLANK = 300 << 20, PIECE = 1 << 20 };
    CLEANUP(mem_freep) char *piece = malloc(PIECE);
    gzFile file = gzopen(at("large.txt.gz"), "wb1");
    assert_non_null(file);
    for (int i = 0; i < PIECE; i++) piece[i] = i % 64 == 63 ? '\n' : ' ';
    for (int i = 0; i < BLANK / PIECE; i++) assert_int_equal(gzwrite(file, piece, PIECE), PIECE);
    for (int i = 0; i < PIECE; i++) piece[i] = "words in one line "[i % 18];
    for (int i = 0; i < LINE / PIECE / 4; i++) assert_int_equal(gzwrite(file, piece, PIECE), PIECE);
    assert_int_equal(gzclose(file), Z_OK);
    int64_t bytes = memory_of((const char *const[]){
        "prepare", "--tokenizer", "bytes", "--data", at("large.txt.gz"), "--documents", "line", "--file-size",
        "8MB", "--threads", "2", "--out", at("large"), "--quiet", "--json", NULL});
    if (bytes > 64 << 20) fail_msg("peak memory: %lld bytes", (long long)bytes);
    Ran info = program_run("info", at("large"), "--json");
    assert_int_equal(number_in(&info, "documents"), 1);
    assert_int_equal(number_in(&info, "tokens"), LINE / 4 + 1);
    ran_done(&info);
    assert_ok(dir_remove(at("large")));
}

/* Earlier versions wrote the format "tokens" to config.json as "shards". */
static void resume_old_config(void) {
    char *text = NULL;
    size_t size = 0;
    assert_runs(program_run("train", "--data", at("set"), TINY, "--format", "tokens", "--steps", "2", "--out",
                            at("old"), "--json"));
    assert_ok(file_read(at("old/config.json"), 1 << 20, &text, &size));
    char *format = strstr(text, "\"tokens\"");
    assert_non_null(format);
    memcpy(format, "\"shards\"", 8);
    assert_ok(file_replace(at("old/config.json"), text, size));
    free(text);
    Ran ran = program_run("train", "--out", at("old"), "--resume", "--steps", "3", "--json");
    assert_int_equal(number_in(&ran, "steps"), 3);
    ran_done(&ran);
}

static void trained_on(void **state) {
    put_sentences("s.jsonl", 300, 1, true);
    /* --shard-size is the old name of --file-size. */
    assert_runs(program_run("prepare", "--tokenizer", "bytes", "--data", at("s.jsonl"), "--val-fraction",
                            "0.1", "--shard-size", "5000", "--out", at("set"), "--quiet", "--json"));
    Ran ran = program_run("train", "--data", at("set"), TINY, "--steps", "2", "--out", at("run"), "--json");
    assert_int_equal(number_in(&ran, "steps"), 2);
    ran_done(&ran);
    resume_old_config();
    Ran eval = program_run("eval", "--model", at("run"), "--data", at("set/val-00000.tokens"), "--json");
    assert_true(number_in(&eval, "examples") > 10);
    ran_done(&eval);

    /* A flipped bit, a truncated or a missing token file is found before the first step. */
    flip_bit(at("set/train-00001.tokens"), 1000);
    assert_refused(1, "train-00001.tokens: damaged between byte 256 and byte ", "train", "--data", at("set"),
                   TINY);
    assert_refused(1, "damaged between", "info", at("set"), "--verify");
    flip_bit(at("set/train-00001.tokens"), 1000);
    assert_ok(dir_make(at("set/tokenizer")));
    put_text("set/tokenizer/vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n");
    assert_refused(1, "was prepared with a different tokenizer", "info", at("set"), "--verify");
    assert_ok(dir_remove(at("set/tokenizer")));
    assert_int_equal(truncate(at("set/train-00002.tokens"), 700), 0);
    assert_refused(1, "train-00002.tokens: size is 700 bytes; expected ", "train", "--data", at("set"), TINY);
    assert_int_equal(unlink(at("set/train-00002.tokens")), 0);
    assert_refused(1, "a file is missing", "train", "--data", at("set"), TINY);
    put_text("set/train-00002.tokens", "text");
    assert_refused(1, "not a token file", "train", "--data", at("set"), TINY);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(result_and_info), cmocka_unit_test(not_utf8),
        cmocka_unit_test(refusals),        cmocka_unit_test(lines_appear_complete),
        cmocka_unit_test(killed),          cmocka_unit_test(bounded_memory),
        cmocka_unit_test(trained_on),
    };
    return cmocka_run_group_tests(tests, corpus_setup, corpus_teardown);
}
