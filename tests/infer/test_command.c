/* `weft generate` through the program: golden greedy text, streaming, prompt sources, defaults and errors. */
#include <sys/wait.h>
#include <unistd.h>

#include "golden.h"

enum { SAID = 1 << 16 };

typedef struct Output {
    char out[SAID], err[SAID];
    int code;
} Output;

static void slurp(FILE *file, char *text) {
    rewind(file);
    text[fread(text, 1, SAID - 1, file)] = 0;
    fclose(file);
}

/* Runs `weft generate --threads 1` in the directory of the golden cases; `arguments` is shell syntax. */
static void weft(Output *output, const char *arguments) {
    char line[4096];
    FILE *out = tmpfile(), *err = tmpfile();
    assert_non_null(out);
    assert_non_null(err);
    snprintf(line, sizeof line, "cd '%s/golden/cases' && '%s' generate --threads 1 >&%d 2>&%d %s",
             WEFT_TEST_DIR, WEFT_BINARY, fileno(out), fileno(err), arguments);
    int status = system(line);
    output->code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    slurp(out, output->out);
    slurp(err, output->err);
}

static void assert_refused(const char *arguments, int code, const char *text) {
    Output output;
    weft(&output, arguments);
    if (!strstr(output.err, text)) fail_msg("expected '%s' in: %s", text, output.err);
    assert_int_equal(output.code, code);
    assert_string_equal(output.out, "");
    assert_ptr_equal(strchr(output.err, '\n'), output.err + strlen(output.err) - 1); /* exactly one line */
}

static json_t *weft_json(const char *arguments) {
    Output output;
    char line[2048];
    json_t *json = NULL;
    snprintf(line, sizeof line, "--json %s", arguments);
    weft(&output, line);
    if (output.code) fail_msg("%s", output.err);
    assert_ok(json_parse(output.out, strlen(output.out), "weft generate", &json));
    return json;
}

static const json_t *sample_of(const json_t *json, size_t at) {
    return json_array_get(json_object_get(json, "samples"), at);
}

static void write_ids(char *text, const int32_t *ids, int64_t count) {
    for (int64_t i = 0; i < count; i++) text += sprintf(text, i ? ",%d" : "%d", ids[i]);
}

static void greedy_equals_golden(void **state) {
    static const char *const settings[] = {"--greedy", "--temperature 0 --kernels ref", "--greedy --batch 3"};
    for (int s = 0; s < 3; s++) {
        Golden golden;
        golden_read("gpt2-generate", &golden);
        char line[2048];
        int used = snprintf(line, sizeof line, "--model gpt2-generate --ignore-end --max-tokens %d %s",
                            (int)golden.continued_count, settings[s]);
        for (int i = 0; i < golden.count; i++) {
            char ids[512];
            write_ids(ids, golden.prompt[i].ids, golden.prompt[i].count);
            used += snprintf(line + used, sizeof line - (size_t)used, " --prompt-ids %s", ids);
        }
        json_t *json = weft_json(line);
        for (int i = 0; i < golden.count; i++) {
            int32_t got[GOLDEN_TOKENS];
            const json_t *sample = sample_of(json, (size_t)i);
            assert_int_equal(golden_tokens(json_object_get(sample, "new_ids"), got), golden.continued_count);
            assert_memory_equal(got, golden.continued[i], (size_t)golden.continued_count * sizeof *got);
            assert_int_equal(json_array_size(json_object_get(sample, "ids")),
                             golden.prompt[i].count + golden.continued_count);
            assert_true(json_is_string(json_object_get(sample, "text")));
        }
        assert_true(json_number_value(json_object_get(json, "tokens_per_s")) > 0);
        assert_int_equal(json_integer_value(json_object_get(json, "new_tokens")),
                         golden.count * golden.continued_count);
        json_decref(json);
    }
}

/* A single sample prints the same text whether it is streamed or printed at the end, and the same as in
 * JSON. */
static void streams_the_same_text(void **state) {
    Output streamed, whole;
    weft(&streamed, "--model gpt2-generate --prompt 'a text: ' --seed 5 --max-tokens 40");
    weft(&whole, "--model gpt2-generate --prompt 'a text: ' --seed 5 --max-tokens 40 --no-stream");
    assert_int_equal(streamed.code, 0);
    assert_int_equal(whole.code, 0);
    assert_string_equal(streamed.out, whole.out);
    assert_memory_equal(streamed.out, "a text: ", 8);
    assert_non_null(strstr(streamed.err, " tokens/s)"));
    json_t *json = weft_json("--model gpt2-generate --prompt 'a text: ' --seed 5 --max-tokens 40");
    const char *text = json_string_value(json_object_get(sample_of(json, 0), "text"));
    assert_memory_equal(streamed.out, text, strlen(text));
    assert_string_equal(streamed.out + strlen(text), "\n");
    json_decref(json);
}

static const json_t *ids_of(const json_t *json, size_t index) {
    return json_object_get(sample_of(json, index), "ids");
}

static void samples_do_not_depend_on_their_number(void **state) {
    json_t *few = weft_json("--model gpt2-generate --prompt x --prompt y --samples 2 --max-tokens 20");
    json_t *many = weft_json("--model gpt2-generate --prompt x --prompt y --samples 3 --max-tokens 20");
    for (size_t i = 0; i < 4; i++)
        assert_true(json_equal(sample_of(few, i), sample_of(many, i / 2 * 3 + i % 2)));
    assert_false(json_equal(ids_of(few, 0), ids_of(few, 1)));
    /* A prompt gives the same text alone as with other prompts. Repeated, it gives two different texts. */
    json_t *alone = weft_json("--model gpt2-generate --prompt y --prompt y --max-tokens 20");
    assert_true(json_equal(ids_of(few, 2), ids_of(alone, 0)));
    assert_false(json_equal(ids_of(alone, 0), ids_of(alone, 1)));
    json_decref(alone);
    json_decref(few);
    json_decref(many);
    Output output;
    weft(&output, "--model gpt2-generate --prompt x --samples 2 --max-tokens 5");
    assert_int_equal(output.code, 0);
    assert_memory_equal(output.out, "=== sample 1 of 2 ===\nx", 23);
    assert_non_null(strstr(output.out, "\n=== sample 2 of 2 ===\nx"));
}

static void prompt_sources(void **state) {
    json_t *line = weft_json("--model gpt2-generate --greedy --max-tokens 9 --prompt 'ab c' --prompt -x");
    json_t *ids = weft_json("--model gpt2-generate --greedy --max-tokens 9 --prompt-ids 97,98,32,99 "
                            "--prompt-ids '45, 120'");
    json_t *file = weft_json("--model gpt2-generate --greedy --max-tokens 9 --prompt-file - "
                             "--prompt-ids 45,120 <<'END'\nab c\nEND");
    assert_true(json_equal(json_object_get(line, "samples"), json_object_get(ids, "samples")));
    assert_true(json_equal(sample_of(file, 1), sample_of(ids, 1)));
    assert_int_equal(json_array_size(json_object_get(ids, "batches")), 1);
    assert_int_equal(json_array_size(json_object_get(sample_of(file, 0), "ids")), 4 + 1 + 9);
    json_decref(line);
    json_decref(ids);
    json_decref(file);
    /* With no prompt or an empty one, generation starts from the end token. */
    json_t *none = weft_json("--model gpt2-generate --greedy --max-tokens 9");
    json_t *empty = weft_json("--model gpt2-generate --greedy --max-tokens 9 --prompt ''");
    json_t *end = weft_json("--model gpt2-generate --greedy --max-tokens 9 --prompt-ids 256");
    assert_true(json_equal(json_object_get(none, "samples"), json_object_get(end, "samples")));
    assert_true(json_equal(json_object_get(empty, "samples"), json_object_get(end, "samples")));
    json_decref(none);
    json_decref(empty);
    json_decref(end);
}

/* The default is 128 tokens, and the context of 64 does not limit them. A prompt that exceeds it is
 * shortened, with a warning. */
static void lengths_past_the_context(void **state) {
    json_t *json = weft_json("--model gpt2-generate --ignore-end --prompt abcd --prompt x");
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(json_array_size(json_object_get(sample_of(json, i), "new_ids")), 128);
    json_decref(json);
    Output output;
    char line[512], ids[300] = "";
    for (int i = 0; i < 70; i++) strcat(ids, i ? ",97" : "97");
    snprintf(line, sizeof line,
             "--model gpt2-generate --greedy --ignore-end --max-tokens 2 --prompt x --prompt-ids %s", ids);
    weft(&output, line);
    assert_int_equal(output.code, 0);
    assert_non_null(strstr(output.err, "warning: prompt 2 has 70 tokens, more than the context of 64; the "
                                       "model sees only the last 54\n"));
    assert_null(strstr(output.err, "prompt 1 has"));
    assert_refused("--model gpt2-generate --prompt x --window-shift 65", 2, "context length is 64");
    assert_refused("--model gpt2-generate --prompt x --window-shift 0", 2, "--window-shift");
}

static void unknown_vocabularies_print_ids(void **state) {
    Golden golden;
    golden_read("gpt2", &golden);
    Output output;
    char line[512], expected[1024];
    int used = snprintf(line, sizeof line, "--model gpt2 --greedy --max-tokens 3 --ignore-end --prompt-ids ");
    write_ids(line + used, golden.ids[1], golden.prompt[1].count);
    weft(&output, line);
    assert_int_equal(output.code, 0);
    used = 0;
    for (int64_t i = 0; i < golden.prompt[1].count; i++)
        used += sprintf(expected + used, "%d ", golden.ids[1][i]);
    sprintf(expected + used, "%d %d %d\n", golden.continued[1][0], golden.continued[1][1],
            golden.continued[1][2]);
    assert_string_equal(output.out, expected);
    assert_refused("--model gpt2 --prompt text", 2, "--prompt-ids");
}

static void refuses_bad_input(void **state) {
    assert_refused("--model absent --prompt x", 1, "absent: no such directory");
    assert_refused("--model bert-mlm --prompt-ids 1", 1, "BERT");
    assert_refused("--model gpt2-both-ways --prompt-ids 1", 1, "attends in both directions");
    assert_refused("--prompt x", 2, "--model");
    assert_refused("--model gpt2 --prompt-ids 96", 2, "token 96");
    assert_refused("--model gpt2 --prompt-ids 1,x", 2, "'x'");
    assert_refused("--model gpt2 --prompt-ids 99999999999", 2, "--prompt-ids");
    assert_refused("--model gpt2 --prompt-ids -4", 2, "--prompt-ids");
    assert_refused("--model gpt2-generate --prompt-file config.txt", 1, "config.txt");
    assert_refused("--model gpt2-generate --prompt-file gpt2", 1, "gpt2");
    assert_refused("--model gpt2-generate --greedy --temperature 0.5", 2, "cannot be combined");
    assert_refused("--model gpt2-generate --top-p 0", 2, "--top-p");
    assert_refused("--model gpt2-generate --tempreature 1", 2, "--temperature");
}

static void closed_pipe_stops_it(void **state) {
    Output output;
    weft(&output, "--model gpt2-generate --prompt x >/dev/full");
    assert_int_equal(output.code, 1);
    assert_non_null(strstr(output.err, "standard output"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_equals_golden),
        cmocka_unit_test(streams_the_same_text),
        cmocka_unit_test(samples_do_not_depend_on_their_number),
        cmocka_unit_test(prompt_sources),
        cmocka_unit_test(lengths_past_the_context),
        cmocka_unit_test(unknown_vocabularies_print_ids),
        cmocka_unit_test(refuses_bad_input),
        cmocka_unit_test(closed_pipe_stops_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
