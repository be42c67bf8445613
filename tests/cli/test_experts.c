/* Mixtures of experts through the program: what a run records, resuming, the page, and what is refused. */
#include "program.h"

#include <math.h>

#include "base/fs.h"
#include "base/memory.h"

static char dir[64];

static int make_dir(void **state) {
    program_setup(state);
    snprintf(dir, sizeof dir, "/tmp/weft-experts-%d", (int)getpid());
    Status status = dir_make(dir);
    status_free(status);
    return status != OK;
}

static int remove_dir(void **state) {
    Status status = dir_remove(dir);
    status_free(status);
    return status != OK;
}

#define TRAIN                                                                                                \
    "train", "--data", "self", "--model", "moe-1m", "--layers", "2", "--hidden", "16", "--heads", "2",       \
        "--seq", "16", "--batch", "4", "--threads", "1", "--eval-batches", "1", "--log-every", "1",          \
        "--no-cache"

static void path_in(char path[128], const char *name) {
    snprintf(path, 128, "%s/%s", dir, name);
}

/* Each step's use of the experts. */
static void records_use(void **state) {
    char run[128], path[160];
    path_in(run, "run");
    assert_runs(program_run(TRAIN, "--steps", "6", "--out", run));
    snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    CLEANUP(mem_freep) char *text = NULL;
    size_t size = 0;
    assert_ok(file_read(path, 1 << 20, &text, &size));
    int steps = 0;
    for (char *rest = NULL, *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        CLEANUP(json_decrefp) json_t *entry = json_loads(line, 0, NULL);
        const json_t *experts = json_object_get(entry, "experts");
        if (!experts) continue;
        double peak = json_number_at(experts, "peak_load"), entropy = json_number_at(experts, "entropy");
        steps++;
        assert_true(peak >= 1 && peak <= 4); /* two of eight experts per token */
        assert_true(entropy > 0 && entropy <= log(8) + 1e-6);
        if (steps == 1) assert_true(fabs(json_number_at(experts, "balance_loss") - 2) < 1e-5);
    }
    assert_int_equal(steps, 6);
}

/* A run that stops between steps continues with the load of the step before, and with what ranks that divide
 * the experts have not sent yet of their gradients: the same bits. */
static void check_resumed(const char *name, const char *ranks, const char *ep, const char *grads) {
    char whole[128], parts[128];
    path_in(whole, name);
    snprintf(parts, sizeof parts, "%.100s-parts", whole);
#define STEADY                                                                                               \
    TRAIN, "--schedule", "constant", "--warmup", "0", "--balance-coef", "1", "--ranks", ranks, "--ep", ep,   \
        "--grad-dtype", grads
    assert_runs(program_run(STEADY, "--steps", "8", "--out", whole));
    assert_runs(program_run(STEADY, "--steps", "4", "--out", parts));
    assert_runs(program_run(STEADY, "--steps", "8", "--out", parts, "--resume"));
    static const char *const names[] = {"latest/model.safetensors", "latest/optimizer.safetensors"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char a[256], b[256];
        CLEANUP(mem_freep) char *first = NULL;
        CLEANUP(mem_freep) char *second = NULL;
        size_t first_size = 0, second_size = 0;
        snprintf(a, sizeof a, "%s/%s", whole, names[i]);
        snprintf(b, sizeof b, "%s/%s", parts, names[i]);
        assert_ok(file_read(a, 1 << 24, &first, &first_size));
        assert_ok(file_read(b, 1 << 24, &second, &second_size));
        assert_int_equal(first_size, second_size);
        assert_memory_equal(first, second, first_size);
    }
}

static void resumes(void **state) {
    (void)state;
    check_resumed("whole", "1", "1", "fp32");
    check_resumed("divided", "4", "2", "int8");
    check_resumed("apart", "2", "2", "int8");
}

static void reports(void **state) {
    char run[128], page[128];
    path_in(run, "run");
    path_in(page, "page.html");
    assert_runs(program_run("report", run, "--out", page));
    CLEANUP(mem_freep) char *text = NULL;
    size_t size = 0;
    assert_ok(file_read(page, 1 << 26, &text, &size));
    assert_contains(text, "Busiest expert");
    assert_contains(text, "Entropy of the router");
    Ran ran = program_run("info", run);
    assert_int_equal(ran.code, 0);
    assert_contains(ran.out, "experts      8, 2 per token; ");
    ran_done(&ran);
}

/* A run that learns with quantized experts is validated as the quantized model is. */
static void quantization_aware(void **state) {
    (void)state;
    static const char *const types[] = {"int8", "int4"};
    char text[128], run[128], out[140];
    path_in(text, "text");
    FILE *file = fopen(text, "w");
    assert_non_null(file);
    for (int i = 0; i < 400; i++) fprintf(file, "%d little numbers, ", i * i % 97);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(truncate(text, 470 * 16), 0); /* `eval` also reads a last sequence that is shorter */
    for (int i = 0; i < 2; i++) {
        path_in(run, types[i]);
        snprintf(out, sizeof out, "%s-out", run);
        Ran ran = program_run(TRAIN, "--hidden", "32", "--lr", "3e-3", "--val", text, "--eval-batches", "0",
                              "--no-cross-document", "--quantize-aware", types[i], "--steps", "100",
                              "--ranks", "2", "--ep", i ? "2" : "1", "--out", run, "--json");
        assert_int_equal(ran.code, 0);
        CLEANUP(json_decrefp) json_t *trained = json_loads(ran.out, 0, NULL);
        ran_done(&ran);
        assert_runs(program_run("quantize", run, out, "--no-balance", "--bits", types[i] + 3));
        ran = program_run("eval", "--model", run, "--against", out, "--data", text, "--seq", "16",
                          "--no-cross-document", "--json");
        assert_int_equal(ran.code, 0);
        CLEANUP(json_decrefp) json_t *both = json_loads(ran.out, 0, NULL);
        const json_t *models = json_object_get(both, "models");
        double aware = json_number_at(trained, "val_loss"),
               plain = json_number_at(json_array_get(models, 0), "loss"),
               quantized = json_number_at(json_array_get(models, 1), "loss");
        if (!(fabs(aware - quantized) < fabs(plain - quantized) / 10))
            fail_msg("%s: validation loss %.7f, quantized %.7f, not quantized %.7f", types[i], aware,
                     quantized, plain);
        ran_done(&ran);
    }
}

static void refuses(void **state) {
    static const struct {
        const char *option, *value, *more, *of, *said;
    } cases[] = {
        {"--top-k", "9", "--threads", "1", "--top-k 9: the model has 8 experts; use at most as many"},
        {"--model", "gpt2-tiny", "--experts", "4", "weft has no mixtures of experts of GPT-2"},
        {"--model", "llama-1m", "--top-k", "2", "--top-k is for mixtures of experts; add --experts"},
        {"--experts", "0", "--threads", "1", "--experts"},
        {"--balance", "yes", "--threads", "1", "--balance"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Ran ran =
            program_run(TRAIN, "--steps", "1", cases[i].option, cases[i].value, cases[i].more, cases[i].of);
        assert_int_equal(ran.code, 2);
        assert_contains(ran.err, cases[i].said);
        ran_done(&ran);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_use),
        cmocka_unit_test(resumes),
        cmocka_unit_test(reports),
        cmocka_unit_test(refuses),
        cmocka_unit_test(quantization_aware),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
