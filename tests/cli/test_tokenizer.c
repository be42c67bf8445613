/* `weft tokenizer` through the program: train, encode and decode. */
#include "program.h"

#include <signal.h>
#include <sys/resource.h>
#include <zlib.h>

#include "base/fs.h"

#define GOLDEN_TEXT WEFT_TEST_DIR "/golden/learn/text.txt"

typedef struct Fixture {
    char dir[64], bpe[96], wordpiece[96];
} Fixture;

static void train_tokenizer(const char *kind, const char *vocab, const char *out) {
    Ran ran = program_run("tokenizer", "train", "--kind", kind, "--vocab", vocab, "--data", GOLDEN_TEXT,
                          "--out", out);
    if (ran.code != 0) fail_msg("%s", ran.err);
    assert_contains(ran.out, out);
    ran_done(&ran);
}

static int setup(void **state) {
    program_setup(state);
    Fixture *fixture = calloc(1, sizeof *fixture);
    if (!fixture) return -1;
    snprintf(fixture->dir, sizeof fixture->dir, "/tmp/weft-tok-XXXXXX");
    if (!mkdtemp(fixture->dir)) return -1;
    snprintf(fixture->bpe, sizeof fixture->bpe, "%s/bpe", fixture->dir);
    snprintf(fixture->wordpiece, sizeof fixture->wordpiece, "%s/wordpiece", fixture->dir);
    train_tokenizer("bpe", "600", fixture->bpe);
    train_tokenizer("wordpiece", "500", fixture->wordpiece);
    *state = fixture;
    return 0;
}

static int teardown(void **state) {
    Fixture *fixture = *state;
    assert_ok(dir_remove(fixture->dir));
    free(fixture);
    return 0;
}

static json_t *result_of(Ran *ran) {
    json_t *json = NULL;
    if (ran->code != 0) fail_msg("%s", ran->err);
    assert_ok(json_parse(ran->out, strlen(ran->out), "standard output", &json));
    ran_done(ran);
    return json;
}

static const char *write_file(const Fixture *fixture, const char *name, const void *data, size_t size) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", fixture->dir, name);
    assert_ok(file_replace(path, data, size));
    return path;
}

/* ---- train ---- */

static void train_reports(void **state) {
    const Fixture *fixture = *state;
    char out[128];
    snprintf(out, sizeof out, "%s/reported", fixture->dir);
    Ran ran = program_run("tokenizer", "train", "--vocab", "50000", "--data", GOLDEN_TEXT, "--out", out,
                          "--special", "<user>", "--special", "<|endoftext|>", "--json");
    json_t *json = result_of(&ran);
    assert_int_equal(json_integer_value(json_object_get(json, "vocab_wanted")), 50000);
    assert_true(json_integer_value(json_object_get(json, "vocab")) < 5000);
    assert_true(json_is_false(json_object_get(json, "complete")));
    assert_int_equal(json_integer_value(json_object_get(json, "documents")), 1);
    json_decref(json);
    ran = program_run("tokenizer", "encode", "--tokenizer", out, "--text", "<user><|endoftext|>");
    assert_string_equal(ran.out, "0 1\n");
    ran_done(&ran);
}

static void train_warns(void **state) {
    const Fixture *fixture = *state;
    char out[128];
    snprintf(out, sizeof out, "%s/small", fixture->dir);
    Ran ran = program_run("tokenizer", "train", "--vocab", "50000", "--data", GOLDEN_TEXT, "--out", out);
    assert_int_equal(ran.code, 0);
    assert_contains(ran.err, "weft: warning: ");
    assert_contains(ran.err, "fewer tokens than the 50000 requested");
    ran_done(&ran);
}

/* The result is the same for text, .gz and JSON lines, for any order of files and any number of threads. */
static void train_depends_only_on_the_text(void **state) {
    const Fixture *fixture = *state;
    static const char one[] = "the cat sat on the mat\n", two[] = "the rat that sat there\n";
    char paths[6][160], *merges[2];
    for (int i = 0; i < 6; i++) snprintf(paths[i], sizeof paths[i], "%s/p%d", fixture->dir, i);
    strcat(paths[1], ".gz");
    strcat(paths[2], ".jsonl");
    assert_ok(file_replace(paths[0], one, strlen(one)));
    gzFile gz = gzopen(paths[1], "wb");
    assert_int_equal(gzwrite(gz, two, strlen(two)), strlen(two));
    assert_int_equal(gzclose(gz), Z_OK);
    static const char lines[] = "{\"body\": \"the rat that sat there\\n\"}\n"
                                "{\"body\": \"the cat sat on the mat\\n\"}\n";
    assert_ok(file_replace(paths[2], lines, strlen(lines)));
    assert_runs(program_run("tokenizer", "train", "--vocab", "270", "--data", paths[0], paths[1], "--out",
                            paths[3], "--threads", "1"));
    assert_runs(program_run("tokenizer", "train", "--vocab", "270", "--data", paths[2], "--field", "body",
                            "--out", paths[4], "--threads", "3"));
    for (int i = 0; i < 2; i++) {
        strcat(paths[3 + i], "/merges.txt");
        assert_ok(file_read(paths[3 + i], 1 << 20, &merges[i], NULL));
    }
    assert_string_equal(merges[0], merges[1]);
    free(merges[0]);
    free(merges[1]);
}

static void train_refuses(void **state) {
    const Fixture *fixture = *state;
    char out[128], empty[128];
    snprintf(out, sizeof out, "%s/none", fixture->dir);
    snprintf(empty, sizeof empty, "%s", write_file(fixture, "empty.txt", "", 0));
    assert_refused(2, "256 bytes and 1 special token need 257", "tokenizer", "train", "--vocab", "100",
                   "--data", GOLDEN_TEXT, "--out", out);
    assert_refused(2, "already contains a tokenizer", "tokenizer", "train", "--vocab", "300", "--data",
                   GOLDEN_TEXT, "--out", fixture->bpe);
    assert_refused(2, "'<x>' is given twice", "tokenizer", "train", "--vocab", "300", "--data", GOLDEN_TEXT,
                   "--out", out, "--special", "<x>", "--special", "<x>");
    assert_refused(2, "--cased applies only to --kind wordpiece", "tokenizer", "train", "--vocab", "300",
                   "--data", GOLDEN_TEXT, "--out", out, "--cased");
    assert_refused(1, "/nowhere.txt", "tokenizer", "train", "--vocab", "300", "--data", "/nowhere.txt",
                   "--out", out);
    assert_refused(1, "", "tokenizer", "train", "--vocab", "300", "--data", empty, "--out", out);
    assert_refused(2, "expected bpe or wordpiece", "tokenizer", "train", "--kind", "unigram", "--vocab",
                   "300", "--data", GOLDEN_TEXT, "--out", out);
    assert_false(path_exists(out));
    const char *broken = write_file(fixture, "broken.jsonl", "{\"text\": \"a b\"}\n{\"text\": \n", 26);
    Ran ran = program_run("tokenizer", "train", "--vocab", "300", "--data", broken, "--out", out);
    assert_int_equal(ran.code, 1);
    assert_contains(ran.err, "broken.jsonl");
    assert_contains(ran.err, "2");
    ran_done(&ran);
}

/* If not all files can be written, none remains: vocab.json is below 16 KB, tokenizer.json above. */
static void train_writes_all_or_nothing(void **state) {
    const Fixture *fixture = *state;
    char out[128], command[192];
    struct rlimit before, small;
    snprintf(out, sizeof out, "%s/whole/", fixture->dir);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){16 << 10, before.rlim_max};
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    Ran ran =
        program_run("tokenizer", "train", "--vocab", "600", "--data", GOLDEN_TEXT, "--out", out, "--quiet");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    if (ran.code != 1) fail_msg("exit code %d: %s", ran.code, ran.err);
    assert_contains(ran.err, "cannot write");
    ran_done(&ran);
    snprintf(command, sizeof command, "! ls -d %s/whole* 2>/dev/null", fixture->dir);
    assert_int_equal(system(command), 0);
    assert_runs(
        program_run("tokenizer", "train", "--vocab", "600", "--data", GOLDEN_TEXT, "--out", out, "--quiet"));
    assert_true(path_exists(out));
}

/* ---- encode and decode ---- */

/* Any bytes, including NUL and invalid UTF-8, survive encoding and decoding. */
static void bytes_round_trip(void **state) {
    const Fixture *fixture = *state;
    char bytes[777], ids[128], back[128], *found = NULL;
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (char)(i * 89 % 256);
    char path[128];
    snprintf(path, sizeof path, "%s", write_file(fixture, "bytes", bytes, sizeof bytes));
    snprintf(ids, sizeof ids, "%s/ids", fixture->dir);
    snprintf(back, sizeof back, "%s/back", fixture->dir);
    for (int json = 0; json < 2; json++) {
        const char *const encode[] = {"tokenizer", "encode", "--tokenizer",          fixture->bpe,
                                      "--file",    path,     json ? "--json" : NULL, NULL};
        const char *const decode[] = {"tokenizer", "decode", "--tokenizer", fixture->bpe,
                                      "--file",    ids,      NULL};
        Ran ran = program_run_to(ids, encode);
        assert_int_equal(ran.code, 0);
        ran_done(&ran);
        ran = program_run_to(back, decode);
        assert_int_equal(ran.code, 0);
        ran_done(&ran);
        size_t size;
        assert_ok(file_read(back, 1 << 20, &found, &size));
        assert_int_equal(size, sizeof bytes);
        assert_memory_equal(found, bytes, size);
        free(found);
    }
}

static void json_has_ids_offsets_and_tokens(void **state) {
    const Fixture *fixture = *state;
    Ran ran = program_run("tokenizer", "encode", "--tokenizer", fixture->bpe, "--text", "the loom, \"ö\"",
                          "--offsets", "--json");
    json_t *json = result_of(&ran), *offset;
    size_t count = json_array_size(json_object_get(json, "ids")), i;
    assert_true(count > 3);
    assert_int_equal(json_array_size(json_object_get(json, "tokens")), count);
    assert_int_equal(json_array_size(json_object_get(json, "offsets")), count);
    json_int_t at = 0;
    json_array_foreach(json_object_get(json, "offsets"), i, offset) {
        assert_int_equal(json_integer_value(json_array_get(offset, 0)), at);
        at = json_integer_value(json_array_get(offset, 1));
    }
    assert_int_equal(at, strlen("the loom, \"ö\""));
    json_decref(json);
    ran = program_run("tokenizer", "encode", "--tokenizer", fixture->bpe, "--text", "the loom", "--json");
    json = result_of(&ran);
    assert_int_equal(json_object_size(json), 1);
    json_decref(json);
}

static void bert_adds_special_tokens(void **state) {
    const Fixture *fixture = *state;
    Ran with = program_run("tokenizer", "encode", "--tokenizer", fixture->wordpiece, "--text", "The");
    Ran without = program_run("tokenizer", "encode", "--tokenizer", fixture->wordpiece, "--text", "The",
                              "--no-add-special-tokens");
    char expected[256];
    snprintf(expected, sizeof expected, "2 %.*s 3\n", (int)strlen(without.out) - 1, without.out);
    assert_string_equal(with.out, expected);
    ran_done(&without);
    Ran back = program_run("tokenizer", "decode", "--tokenizer", fixture->wordpiece, "--ids", with.out);
    assert_string_equal(back.out, "[CLS] the [SEP]");
    ran_done(&back);
    back = program_run("tokenizer", "decode", "--tokenizer", fixture->wordpiece, "--ids", with.out,
                       "--skip-special-tokens", "--json");
    json_t *json = result_of(&back);
    assert_string_equal(json_string_value(json_object_get(json, "text")), "the");
    json_decref(json);
    ran_done(&with);
}

static void encodes_pairs(void **state) {
    const Fixture *fixture = *state;
    Ran ran = program_run("tokenizer", "encode", "--tokenizer", fixture->wordpiece, "--text", "[MASK]",
                          "--pair", "[PAD] [UNK]", "--type-ids");
    assert_string_equal(ran.out, "2 4 3 0 1 3\n0 0 0 1 1 1\n");
    ran_done(&ran);
    ran = program_run("tokenizer", "encode", "--tokenizer", fixture->wordpiece, "--text", "[MASK]", "--pair",
                      "", "--type-ids", "--no-add-special-tokens", "--json");
    assert_string_equal(ran.out, "{\"ids\": [4], \"type_ids\": [0]}\n");
    ran_done(&ran);
    ran = program_run("tokenizer", "encode", "--tokenizer", fixture->wordpiece, "--text", "[MASK]",
                      "--type-ids", "--offsets");
    assert_string_equal(ran.out, "2\t0\t0\t0\t\"[CLS]\"\n4\t0\t0\t6\t\"[MASK]\"\n3\t0\t0\t0\t\"[SEP]\"\n");
    ran_done(&ran);
}

static void encodes_lines(void **state) {
    const Fixture *fixture = *state;
    const char *path = write_file(fixture, "lines.txt", "the\n\nloom\nthe", 13);
    Ran ran =
        program_run("tokenizer", "encode", "--tokenizer", fixture->bpe, "--file", path, "--lines", "--json");
    json_t *json = result_of(&ran), *lines = json_object_get(json, "lines");
    assert_int_equal(json_array_size(lines), 4);
    assert_int_equal(json_array_size(json_object_get(json_array_get(lines, 1), "ids")), 0);
    assert_true(json_equal(json_array_get(lines, 0), json_array_get(lines, 3)));
    json_decref(json);
    ran = program_run("tokenizer", "encode", "--tokenizer", fixture->bpe, "--file", path, "--lines");
    int newlines = 0;
    for (const char *c = ran.out; *c; c++) newlines += *c == '\n';
    assert_int_equal(newlines, 4);
    ran_done(&ran);
}

static void special_token_names(void **state) {
    const Fixture *fixture = *state;
    Ran ran = program_run("tokenizer", "encode", "--tokenizer", fixture->bpe, "--text", "<|endoftext|>");
    assert_string_equal(ran.out, "0\n");
    ran_done(&ran);
    ran =
        program_run("tokenizer", "encode", "--tokenizer", fixture->bpe, "--text", "<|endoftext|>", "--plain");
    assert_true(strlen(ran.out) > 4);
    ran_done(&ran);
}

/* Without --text and --file, encode reads standard input. */
static void reads_a_pipe(void **state) {
    const Fixture *fixture = *state;
    char line[512], reply[64] = "";
    snprintf(
        line, sizeof line,
        "printf 'the loom' | '%s' tokenizer encode --tokenizer %s | '%s' tokenizer decode --tokenizer %s",
        WEFT_BINARY, fixture->bpe, WEFT_BINARY, fixture->bpe);
    FILE *pipe = popen(line, "r");
    assert_non_null(pipe);
    size_t size = fread(reply, 1, sizeof reply - 1, pipe);
    reply[size] = 0;
    assert_int_equal(pclose(pipe), 0);
    assert_string_equal(reply, "the loom");
}

/* The built-in byte tokenizer has no files. */
static void bytes_are_a_tokenizer(void **state) {
    Ran ran = program_run("tokenizer", "encode", "--tokenizer", "bytes", "--text", "Az");
    assert_string_equal(ran.out, "65 122\n");
    ran_done(&ran);
    ran = program_run("tokenizer", "decode", "--tokenizer", "bytes", "--ids", "65 122 256",
                      "--skip-special-tokens");
    assert_string_equal(ran.out, "Az");
    ran_done(&ran);
}

static void decode_accepts_lists(void **state) {
    const Fixture *fixture = *state;
    static const char *const forms[] = {"1 2 3", "1,2,3", " 1,\n2\t3 ", "[1, 2, 3]", "{\"ids\": [1,2,3]}"};
    for (size_t i = 0; i < 5; i++) {
        Ran ran = program_run("tokenizer", "decode", "--tokenizer", fixture->bpe, "--ids", forms[i]);
        assert_int_equal(ran.code, 0);
        assert_string_equal(ran.out, "!\"#");
        ran_done(&ran);
    }
    Ran ran = program_run("tokenizer", "decode", "--tokenizer", fixture->bpe, "--ids", "");
    assert_int_equal(ran.code, 0);
    assert_string_equal(ran.out, "");
    ran_done(&ran);
}

static void wrong_usage(void **state) {
    const Fixture *fixture = *state;
    assert_refused(1, "token 2 is 600; expected an id from 0 to 599", "tokenizer", "decode", "--tokenizer",
                   fixture->bpe, "--ids", "1 600");
    assert_refused(1, "token 1 is -1", "tokenizer", "decode", "--tokenizer", fixture->bpe, "--ids", "-1");
    assert_refused(1, "token 1 is 18446744073709551616; expected an id from 0 to 599", "tokenizer", "decode",
                   "--tokenizer", fixture->bpe, "--ids", "18446744073709551616");
    assert_refused(1, "token 1 is 99999999999999999999...; expected", "tokenizer", "decode", "--tokenizer",
                   fixture->bpe, "--ids", "99999999999999999999999");
    assert_refused(1, "found '3x' as token 2", "tokenizer", "decode", "--tokenizer", fixture->bpe, "--ids",
                   "1 3x");
    assert_refused(1, "entry 2 of the list is not an integer", "tokenizer", "decode", "--tokenizer",
                   fixture->bpe, "--ids", "[1, 2.5]");
    assert_refused(1, "expected {\"ids\": [...]}", "tokenizer", "decode", "--tokenizer", fixture->bpe,
                   "--ids", "{\"text\": 1}");
    assert_refused(2, "--text cannot be combined with --file", "tokenizer", "encode", "--tokenizer",
                   fixture->bpe, "--text", "a", "--file", "b");
    assert_refused(1, "nowhere", "tokenizer", "encode", "--tokenizer", "/nowhere", "--text", "a");
    assert_refused(1, "/nowhere.txt", "tokenizer", "encode", "--tokenizer", fixture->bpe, "--file",
                   "/nowhere.txt");
    assert_refused(2, "--tokenizer DIR is required; see 'weft help tokenizer encode'", "tokenizer", "encode");
}

static void command_names(void **state) {
    Ran ran = program_run_to(NULL, (const char *const[]){"tokenizer", NULL});
    assert_int_equal(ran.code, 2);
    assert_string_equal(ran.out, "");
    assert_contains(ran.err, "tokenizer encode");
    assert_contains(ran.err, "weft: error: 'weft tokenizer' requires one of the commands above");
    ran_done(&ran);
    ran = program_run("help", "tokenizer");
    assert_int_equal(ran.code, 0);
    assert_contains(ran.out, "\n  tokenizer train ");
    assert_contains(ran.out, "\n  tokenizer decode ");
    ran_done(&ran);
    assert_refused(2, "'tokenizer trian' is not a command; did you mean 'tokenizer train'?", "tokenizer",
                   "trian");
    assert_refused(2, "'tokenizer xyzzy' is not a command; 'weft help tokenizer' lists all commands",
                   "tokenizer", "xyzzy");
    assert_refused(2, "did you mean 'tokenizer'?", "tokeniser", "train");
    assert_refused(2, "did you mean 'tokenizer encode'?", "help", "tokenizer", "encod");
    assert_refused(2, "accepts only [COMMAND]", "help", "train", "eval");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(train_reports),
        cmocka_unit_test(train_warns),
        cmocka_unit_test(train_depends_only_on_the_text),
        cmocka_unit_test(train_refuses),
        cmocka_unit_test(train_writes_all_or_nothing),
        cmocka_unit_test(bytes_round_trip),
        cmocka_unit_test(json_has_ids_offsets_and_tokens),
        cmocka_unit_test(bert_adds_special_tokens),
        cmocka_unit_test(encodes_pairs),
        cmocka_unit_test(encodes_lines),
        cmocka_unit_test(special_token_names),
        cmocka_unit_test(reads_a_pipe),
        cmocka_unit_test(bytes_are_a_tokenizer),
        cmocka_unit_test(decode_accepts_lists),
        cmocka_unit_test(wrong_usage),
        cmocka_unit_test(command_names),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
