/* The program's general behavior: exit codes, error messages, suggestions, JSON output. */
#include "device/registry.h"
#include "program.h"

static void versions(void **state) {
    Ran flag = program_run("--version"), command = program_run("version");
    assert_string_equal(flag.out, "weft " WEFT_VERSION "\n");
    assert_string_equal(command.out, flag.out);
    assert_int_equal(flag.code, 0);
    assert_string_equal(flag.err, "");
    ran_done(&flag);
    ran_done(&command);
}

static void no_command(void **state) {
    Ran ran = program_run_to(NULL, (const char *const[]){NULL});
    assert_int_equal(ran.code, 2);
    assert_string_equal(ran.out, "");
    assert_contains(ran.err, "Commands");
    assert_contains(ran.err, "weft: error: missing command");
    ran_done(&ran);
}

static void mistyped_names(void **state) {
    assert_refused(2, "'trian' is not a command; did you mean 'train'?", "trian");
    assert_refused(2, "'weft help' lists all commands", "xyzzy");
    assert_refused(2, "the command must come first", "--steps", "5", "train");
    assert_refused(2, "--stpes: unknown option; did you mean --steps?", "train", "--stpes", "5");
    assert_refused(2, "--microbatch: unknown option; did you mean --micro-batch?", "train", "--microbatch=5");
    assert_refused(2, "--no-shufle: unknown option; did you mean --no-shuffle?", "train", "--no-shufle");
    assert_refused(2, "--qqqqqq: unknown option; 'weft help train' lists the options", "train", "--qqqqqq");
    assert_refused(2, "-x: unknown option", "train", "-x");
    assert_refused(2, "did you mean 'cosine'?", "train", "--data", "x", "--schedule", "cosin");
    assert_refused(2, "'trian' is not a command; did you mean 'train'?", "help", "trian");
}

/* Errors that quote input keep its beginning and the advice at their end. */
static void long_input(void **state) {
    char path[] = "/tmp/weft-long-XXXXXX";
    FILE *file = fdopen(mkstemp(path), "w");
    fputs("{\"", file);
    for (int i = 0; i < 1100000; i++) fputc('A', file);
    fputs("\": 1}", file);
    assert_int_equal(fclose(file), 0);
    Ran ran = program_run("train", "self", "--config", path);
    assert_int_equal(ran.code, 2);
    assert_contains(ran.err, ": unknown key 'AAAA");
    assert_contains(ran.err, "AAAA...AAAA");
    assert_contains(ran.err, "AAAA'; keys are option names (see 'weft help train')\n");
    assert_true(strlen(ran.err) < 1000);
    ran_done(&ran);
    unlink(path);
}

static void wrong_values(void **state) {
    assert_refused(2, "--steps ten: expected an integer >= 1", "train", "--steps", "ten");
    assert_refused(2, "--steps 0: expected an integer >= 1", "train", "--steps", "0");
    assert_refused(2, "--steps 5x: expected", "train", "--steps", "5x");
    assert_refused(2, "--steps 1.5: expected", "train", "--steps", "1.5");
    assert_refused(2, "--steps 99999999999999999999: too large; expected at most 9223372036854775807",
                   "train", "--steps", "99999999999999999999");
    assert_refused(2, "--steps -99999999999999999999: expected an integer >= 1", "train",
                   "--steps=-99999999999999999999");
    assert_refused(2, "--zero 99999999999999999999: expected an integer from 0 to 3", "train", "--zero",
                   "99999999999999999999");
    assert_refused(2, "--file-size 9e9TB: too large; expected at most 4194303TiB", "prepare", "--file-size",
                   "9e9TB");
    assert_refused(2, "--lr 0: expected a number > 0", "train", "--lr", "0");
    assert_refused(2, "--lr nan: expected a number", "train", "--lr", "nan");
    assert_refused(2, "--lr inf: expected a number", "train", "--lr", "inf");
    assert_refused(2, "--lr 1e999: too large; expected at most 1.79e308", "train", "--lr", "1e999");
    assert_refused(2, "--lr -1: expected a number > 0", "train", "--lr", "-1");
    assert_refused(2, "--beta1 1: expected a number >= 0 and < 1", "train", "--beta1", "1");
    assert_refused(2, "--zero 4: expected an integer from 0 to 3", "train", "--zero", "4");
    assert_refused(2, "--seed -1: expected an integer from 0", "train", "--seed", "-1");
    assert_refused(2,
                   "--format csv: expected auto, bytes, u16, u32, ids, tokens, text, squad, pairs, cornell, "
                   "records or chat",
                   "train", "--format", "csv");
    assert_refused(2, "--steps '': expected", "train", "--steps=");
    assert_refused(2, "--out: expected DIR, found an empty string", "train", "--out=");
}

static void wrong_arguments(void **state) {
    assert_refused(2, "--data FILE is required", "train");
    assert_refused(2, "--steps: missing value; use --steps N", "train", "--steps");
    assert_refused(2, "--out: missing value; use --out DIR", "train", "--out", "--resume");
    assert_refused(2, "--data: missing value", "train", "--data", "--steps", "5");
    assert_refused(2, "--resume=1: a flag has no value; use --resume or --no-resume", "train", "--resume=1");
    assert_refused(2, "--no-lr: --lr expects a value", "train", "--no-lr");
    assert_refused(2, "'x': 'weft version' accepts no operands", "version", "x");
    assert_refused(2, "accepts only [COMMAND]", "help", "help", "version");
    assert_refused(2, "'x': --data is also given", "train", "--data", "f", "--", "x");
}

static void contradictions(void **state) {
    assert_refused(2, "cannot be combined with --steps", "train", "--data", "x", "--steps", "5", "--epochs",
                   "1");
    assert_refused(2, "--resume requires --out DIR", "train", "--data", "x", "--resume");
    assert_refused(2, "--batch 8 does not divide into micro-batches of 3", "train", "--data", "x", "--batch",
                   "8", "--micro-batch", "3");
    assert_refused(2, "--min-lr 1: must not exceed the learning rate", "train", "--data", "x", "--min-lr",
                   "1");
}

/* Unsupported options are reported before any work; the data file does not even exist. */
static void unsupported_layouts(void **state) {
    assert_refused(2, "--precision fp8 is not supported on a CPU", "train", "--data", "x", "--precision",
                   "fp8");
    assert_refused(2, "--pp-chunks 3 applies only to --pp-schedule interleaved", "train", "--data", "self",
                   "--pp-chunks", "3");
    assert_refused(2, "--pp-schedule interleaved needs at least two stages", "train", "--data", "self",
                   "--pp-schedule", "interleaved");
    assert_refused(2, "--offload disk", "train", "--data", "x", "--offload", "disk");
}

/* Contradictory options are reported first; then, on a host without one, that there is no GPU. */
static void without_a_gpu(void **state) {
    assert_refused(2, "--precision tf32 is not supported on a CPU", "train", "--data", "x", "--precision",
                   "tf32");
    assert_refused(2, "--kernels cpu does not support --device cuda", "train", "--data", "x", "--device",
                   "cuda", "--kernels", "cpu");
    assert_refused(2, "--kernels cuda does not support --device cpu", "eval", "--model", "x", "--data", "x",
                   "--kernels", "cuda");
    CudaInfo info;
    device_cuda_info(&info);
    if (info.devices) return;
    const char *model = WEFT_TEST_DIR "/golden/cases/gpt2";
    assert_refused(1, "no GPU available: ", "train", "--data", "x", "--device", "cuda");
    assert_refused(1, "no GPU available: ", "bench", "--device", "cuda");
    assert_refused(1, "no GPU available: ", "eval", "--model", model, "--data", "x", "--device", "cuda");
    assert_refused(1, "no GPU available: ", "generate", "--model", model, "--prompt-ids", "1,2", "--device",
                   "cuda");
}

/* Instructions that this CPU does not have are refused where they are shown, too. */
static void wrong_cpu_variables(void **state) {
    static const char *const names[] = {"WEFT_CPU", "WEFT_CPU_BF16", "WEFT_CPU_FP32", "WEFT_CPU_INT8"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        setenv(names[i], "abacus", 1);
        assert_refused(1, " is 'abacus', which this CPU does not support", "info");
        unsetenv(names[i]);
    }
}

/* Names are stored as JSON; text to encode may be any bytes. */
static void names_are_utf8(void **state) {
    assert_refused(2, "--data: expected FILE in UTF-8, found 'caf\xEF\xBF\xBD'", "train", "caf\xE9");
    assert_refused(2, "--out: expected DIR in UTF-8", "quantize", "model", "caf\xE9");
    assert_refused(2, "'caf\xEF\xBF\xBD' is not valid UTF-8; rename it", "info", "caf\xE9");
    Ran ran = program_run("tokenizer", "encode", "--tokenizer", "bytes", "--text", "\xE9");
    assert_string_equal(ran.out, "233\n");
    ran_done(&ran);
}

static void json_is_one_object(void **state) {
    static const char *const lines[][6] = {{"version", "--json"},
                                           {"help", "--json"},
                                           {"help", "train", "--json"},
                                           {"train", "--help", "--json"},
                                           {"train", "--json"},
                                           {"nonsense", "--json"},
                                           {"train", "--data", "/nonexistent/file", "--json"},
                                           {"train", "--data", "/no/\xFF\x1B[31m", "--json"}};
    static const int codes[] = {0, 0, 0, 0, 2, 2, 1, 2};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        Ran ran = program_run_to(NULL, lines[i]);
        json_t *json = NULL;
        assert_int_equal(ran.code, codes[i]);
        assert_ok(json_parse(ran.out, strlen(ran.out), lines[i][0], &json));
        assert_true(json_is_object(json));
        const char *error = json_string_value(json_object_get(json, "error"));
        assert_int_equal(error != NULL, codes[i] != 0);
        if (error) assert_contains(ran.err, error);
        assert_null(strchr(ran.err, '\x1B')); /* quoted text cannot control the terminal */
        json_decref(json);
        ran_done(&ran);
    }
}

static void trace_on_request(void **state) {
    Ran plain = program_run("help", "nonsense");
    setenv("WEFT_TRACE", "1", 1);
    Ran traced = program_run("help", "nonsense");
    unsetenv("WEFT_TRACE");
    assert_null(strstr(plain.err, ".c:"));
    assert_contains(traced.err, "commands.c:");
    ran_done(&plain);
    ran_done(&traced);
}

static void full_disk(void **state) {
    if (access("/dev/full", W_OK) != 0) skip();
    static const char *const lines[][4] = {
        {"version"}, {"version", "--json"}, {"help", "train"}, {"help", "--man"}};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        Ran ran = program_run_to("/dev/full", lines[i]);
        assert_int_equal(ran.code, 1);
        assert_contains(ran.err, "standard output: cannot write");
        ran_done(&ran);
    }
}

static void closed_pipe(void **state) {
    int code = system("bash -c \"set -o pipefail; '" WEFT_BINARY "' help --man 2>/dev/null | true\"");
    assert_true(WIFEXITED(code));
    /* 0 if the reader was still there when the program wrote; 141 would mean death by SIGPIPE. */
    assert_true(WEXITSTATUS(code) <= 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(versions),         cmocka_unit_test(no_command),
        cmocka_unit_test(mistyped_names),   cmocka_unit_test(long_input),
        cmocka_unit_test(wrong_values),     cmocka_unit_test(wrong_arguments),
        cmocka_unit_test(contradictions),   cmocka_unit_test(unsupported_layouts),
        cmocka_unit_test(without_a_gpu),    cmocka_unit_test(wrong_cpu_variables),
        cmocka_unit_test(names_are_utf8),   cmocka_unit_test(json_is_one_object),
        cmocka_unit_test(trace_on_request), cmocka_unit_test(full_disk),
        cmocka_unit_test(closed_pipe),
    };
    return cmocka_run_group_tests(tests, program_setup, NULL);
}
