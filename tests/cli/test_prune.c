/* `weft prune` through the program: pruning a checkpoint at once, gradual pruning with training between
 * rounds, and pruned weights that stay zero during training, in several layouts. */
#include <math.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/memory.h"
#include "checkpoint/safetensors.h"
#include "comm/mpi.h"
#include "program.h"
#include "weights.h"

#define CASES WEFT_TEST_DIR "/golden/cases/"
#define SMALL                                                                                                \
    "--seq", "16", "--batch", "4", "--data", "self", "--eval-batches", "2", "--quiet", "--threads", "1"

/* A directory for all tests, with the model that they prune. */
static char dir[] = "/tmp/weft-test-XXXXXX";

static const char *in(const char *name) {
    static char path[8][256];
    static int turn;
    turn = (turn + 1) % 8;
    snprintf(path[turn], sizeof path[turn], "%s/%s", dir, name);
    return path[turn];
}

static void run_ok(Ran ran) {
    if (ran.code) fail_msg("%s", ran.err);
    ran_done(&ran);
}

static int setup(void **state) {
    assert_int_equal(program_setup(state), 0);
    if (!mkdtemp(dir)) return -1;
    run_ok(program_run("train", "--model", "gpt2-tiny", "--layers", "2", "--hidden", "32", "--heads", "2",
                       "--steps", "3", "--out", in("base"), SMALL));
    return 0;
}

static int teardown(void **state) {
    assert_ok(dir_remove(dir));
    return 0;
}

static double number(const char *path, const char *key) {
    Ran ran = program_run("info", path, "--json");
    assert_int_equal(ran.code, 0);
    CLEANUP(json_decrefp) json_t *json = json_loads(ran.out, 0, NULL);
    const json_t *newest = json_object_get(json, "newest");
    double value = json_number_value(json_object_get(newest ? newest : json, key));
    ran_done(&ran);
    return value;
}

static json_t *read_json(const char *path) {
    json_t *json = NULL;
    assert_ok(json_read_file(path, &json));
    return json;
}

static void at_once(void **state) {
    run_ok(program_run("prune", "--model", in("base"), "--out", in("half"), "--amount", "0.5"));
    assert_true(fabs(number(in("half"), "sparsity") - 0.5) < 1e-3);
    run_ok(
        program_run("prune", "--model", in("half"), "--out", in("more"), "--amount", "0.75", "--per-matrix"));
    assert_true(fabs(number(in("more"), "sparsity") - 0.75) < 1e-3);
    assert_true(path_exists(in("more/pruning.json")));
    run_ok(program_run("prune", "--model", CASES "bert-pretrain", "--out", in("bert"), "--amount", "0.5",
                       "--kind", "rows"));
    CLEANUP(json_decrefp) json_t *before = read_json(CASES "bert-pretrain/config.json");
    CLEANUP(json_decrefp) json_t *after = read_json(in("bert/config.json"));
    assert_int_equal(2 * json_integer_value(json_object_get(after, "intermediate_size")),
                     json_integer_value(json_object_get(before, "intermediate_size")));
    assert_true(number(in("bert"), "params_total") < number(CASES "bert-pretrain", "params_total"));
}

/* Changes in the layers' weight matrices: zeros in the first file, those that are no longer zero in the
 * second, and weights that changed. */
typedef struct Change {
    int64_t zeros, revived, moved;
} Change;

static Change compare(const char *before, const char *after) {
    CLEANUP(safe_freep) SafeFile *one = NULL, *two = NULL;
    Change change = {0};
    assert_ok(safe_open(&one, before));
    assert_ok(safe_open(&two, after));
    for (size_t i = 0; i < safe_count(one); i++) {
        const SafeTensor *a = safe_at(one, i), *b = safe_find(two, a->name);
        assert_non_null(b);
        if (a->ndim != 2 || !strstr(a->name, ".h.")) continue;
        assert_int_equal(a->bytes, b->bytes);
        for (size_t j = 0; j < a->bytes; j += sizeof(float)) {
            float x, y;
            memcpy(&x, a->data + j, sizeof x);
            memcpy(&y, b->data + j, sizeof y);
            change.zeros += x == 0;
            change.revived += x == 0 && y != 0;
            change.moved += x != y;
        }
    }
    return change;
}

#define train_on(out, ...)                                                                                   \
    run_ok(                                                                                                  \
        program_run("train", "--model", in("sparse"), "--steps", "3", "--out", in(out), SMALL, __VA_ARGS__))

static void assert_kept(const char *out) {
    char path[256];
    snprintf(path, sizeof path, "%s/latest/model.safetensors", in(out));
    Change change = compare(in("sparse/model.safetensors"), path);
    assert_true(change.zeros > 1000);
    assert_int_equal(change.revived, 0);
    assert_true(change.moved > 1000);
}

static void zeros_stay_zero(void **state) {
    run_ok(program_run("prune", "--model", in("base"), "--out", in("sparse"), "--amount", "0.7"));
    train_on("kept", "--keep-zeros");
    assert_kept("kept");
    train_on("kept-bf16", "--keep-zeros", "--precision", "bf16");
    assert_kept("kept-bf16");
    train_on("free", "--no-keep-zeros");
    assert_true(compare(in("sparse/model.safetensors"), in("free/latest/model.safetensors")).revived > 1000);
    if (!mpi_built()) return;
    train_on("kept-dp", "--keep-zeros", "--dp", "2");
    assert_kept("kept-dp");
    train_on("kept-zero", "--keep-zeros", "--dp", "2", "--zero", "3");
    assert_kept("kept-zero");
    train_on("kept-tp", "--keep-zeros", "--tp", "2");
    assert_kept("kept-tp");
}

#define prune_rounds(out, ...)                                                                               \
    program_run("prune", "--model", in("base"), "--out", in(out), "--steps-per-round", "3", SMALL,           \
                __VA_ARGS__)

static double cell(const json_t *pruning, size_t row, const char *key) {
    const json_t *value = json_object_get(json_array_get(json_object_get(pruning, "rounds"), row), key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static void weights_in_rounds(void **state) {
    run_ok(prune_rounds("rounds", "--amount", "0.8", "--rounds", "2", "--ramp", "even"));
    CLEANUP(json_decrefp) json_t *pruning = read_json(in("rounds/pruning.json"));
    assert_int_equal(json_array_size(json_object_get(pruning, "rounds")), 3);
    for (size_t i = 0; i < 3; i++) {
        assert_true(fabs(cell(pruning, i, "sparsity") - 0.4 * (double)i) < 1e-3);
        assert_true(cell(pruning, i, "val_loss") < cell(pruning, i, "val_loss_pruned"));
        assert_true(cell(pruning, i, "step_ms") > 0);
    }
    assert_true(fabs(number(in("rounds"), "sparsity") - 0.8) < 1e-3); /* also after training */
    /* If the last round is lost, repeating it gives the same bits. */
    CLEANUP(file_map_done) FileMap first = {0}, again = {0};
    assert_ok(file_map_init(&first, in("rounds/latest/model.safetensors")));
    json_array_remove(json_object_get(pruning, "rounds"), 2);
    assert_ok(json_write_file(in("rounds/pruning.json"), pruning));
    assert_ok(dir_remove(in("rounds/round-2")));
    run_ok(prune_rounds("rounds", "--amount", "0.8", "--rounds", "2", "--ramp", "even", "--resume"));
    assert_ok(file_map_init(&again, in("rounds/latest/model.safetensors")));
    assert_int_equal(first.size, again.size);
    assert_memory_equal(first.data, again.data, first.size);
    Ran other = prune_rounds("rounds", "--amount", "0.9", "--rounds", "2", "--ramp", "even", "--resume");
    assert_int_equal(other.code, 2);
    assert_contains(other.err, "different options");
    ran_done(&other);
}

static void rows_in_rounds(void **state) {
    if (mpi_built())
        run_ok(prune_rounds("rows", "--kind", "rows", "--amount", "0.5", "--rounds", "2", "--tp", "2"));
    else
        run_ok(prune_rounds("rows", "--kind", "rows", "--amount", "0.5", "--rounds", "2"));
    CLEANUP(json_decrefp) json_t *pruning = read_json(in("rows/pruning.json"));
    assert_true(cell(pruning, 0, "inner") == 128);
    assert_true(cell(pruning, 1, "inner") == 96); /* 128 / sqrt(2), rounded to a multiple of 8 */
    assert_true(cell(pruning, 2, "inner") == 64);
    assert_true(cell(pruning, 2, "params_total") < cell(pruning, 0, "params_total"));
    assert_true(cell(pruning, 2, "sparsity") == 0.5);
}

static double loss_of(const char *model) {
    Ran ran = program_run("eval", "--model", model, "--data", "self", "--max-batches", "2", "--seq", "16",
                          "--threads", "1", "--json");
    if (ran.code) fail_msg("%s", ran.err);
    CLEANUP(json_decrefp) json_t *json = json_loads(ran.out, 0, NULL);
    ran_done(&ran);
    return json_number_value(json_object_get(json, "loss"));
}

static int64_t bytes_of(const char *path) {
    CLEANUP(file_map_done) FileMap map = {0};
    assert_ok(file_map_init(&map, path));
    return (int64_t)map.size;
}

/* A model stored without its zeros is smaller, computes the same, can be trained, and converts back bit for
 * bit. */
static void without_zeros(void **state) {
    run_ok(program_run("prune", "--model", in("base"), "--out", in("ninety"), "--amount", "0.9"));
    run_ok(program_run("convert", "--model", in("ninety"), "--out", in("packed"), "--sparse"));
    run_ok(program_run("convert", "--model", in("packed"), "--out", in("unpacked")));
    assert_false(path_exists(in("packed/model.safetensors")));
    assert_true(bytes_of(in("packed/sparse.safetensors")) < bytes_of(in("ninety/model.safetensors")));
    CLEANUP(file_map_done) FileMap before = {0}, after = {0};
    assert_ok(file_map_init(&before, in("ninety/model.safetensors")));
    assert_ok(file_map_init(&after, in("unpacked/model.safetensors")));
    assert_int_equal(before.size, after.size);
    assert_memory_equal(before.data, after.data, before.size);
    assert_true(fabs(loss_of(in("packed")) - loss_of(in("ninety"))) < 1e-5);
    Ran dense = program_run("generate", "--model", in("ninety"), "--prompt", "abc", "--max-tokens", "8",
                            "--temperature", "0", "--threads", "1");
    Ran packed = program_run("generate", "--model", in("packed"), "--prompt", "abc", "--max-tokens", "8",
                             "--temperature", "0", "--threads", "1");
    assert_int_equal(packed.code, 0);
    assert_string_equal(packed.out, dense.out);
    ran_done(&dense);
    ran_done(&packed);
    run_ok(program_run("train", "--model", in("packed"), "--steps", "1", "--keep-zeros", "--out",
                       in("on-packed"), SMALL));
    assert_true(fabs(number(in("on-packed"), "sparsity") - 0.9) < 1e-3);
    assert_refused(2, "--sparse", "convert", "--model", in("ninety"), "--out", in("never"), "--sparse",
                   "--max-shard-size", "1MB");
}

/* Prune one of two heads, then half of the MLP rows. The result can be quantized and evaluated, but one head
 * cannot be trained with --tp 2. */
static void heads(void **state) {
    run_ok(program_run("prune", "--model", in("base"), "--out", in("one-head"), "--kind", "heads", "--amount",
                       "0.5", "--rounds", "1", "--steps-per-round", "2", SMALL));
    CLEANUP(json_decrefp) json_t *pruning = read_json(in("one-head/pruning.json"));
    assert_true(cell(pruning, 0, "heads") == 2);
    assert_true(cell(pruning, 1, "heads") == 1);
    /* In each of two layers, half of four 32 x 32 matrices and of the q, k and v biases. */
    assert_true(cell(pruning, 0, "params_total") - cell(pruning, 1, "params_total") == 2 * (2 * 1024 + 48));
    run_ok(program_run("prune", "--model", in("one-head"), "--out", in("both"), "--kind", "rows", "--amount",
                       "0.5"));
    CLEANUP(json_decrefp) json_t *config = read_json(in("both/config.json"));
    assert_int_equal(json_integer_value(json_object_get(config, "n_head")), 2);
    assert_int_equal(json_integer_value(json_object_get(config, "n_inner")), 64);
    assert_int_equal(json_object_size(json_object_get(config, "pruned_heads")), 2);
    run_ok(program_run("quantize", "--model", in("both"), "--out", in("both-int8"), "--threads", "1"));
    Ran ran = program_run("eval", "--model", in("base"), "--against", in("both"), in("both-int8"), "--data",
                          "self", "--max-batches", "2", "--seq", "16", "--threads", "1", "--json");
    assert_int_equal(ran.code, 0);
    CLEANUP(json_decrefp) json_t *side = json_loads(ran.out, 0, NULL);
    const json_t *models = json_object_get(side, "models");
    static const char *const keys[] = {"size_bytes", "peak_bytes", "loss", "tokens_per_s"};
    assert_int_equal(json_array_size(models), 3);
    for (size_t i = 0; i < 3; i++)
        for (size_t k = 0; k < 4; k++)
            assert_true(json_number_value(json_object_get(json_array_get(models, i), keys[k])) > 0);
    for (size_t i = 1; i < 3; i++)
        assert_true(json_integer_value(json_object_get(json_array_get(models, i), "size_bytes")) <
                    json_integer_value(json_object_get(json_array_get(models, i - 1), "size_bytes")));
    ran_done(&ran);
    if (mpi_built())
        assert_refused(2, "does not divide the model's", "train", "--model", in("both"), "--tp", "2",
                       "--steps", "1", SMALL);
}

/* A mixture loses weights of its experts, which stay zero in training and can be left out of the file, or
 * heads, but no rows. */
static void mixtures(void **state) {
    (void)state;
    run_ok(program_run("train", "--model", "moe-1m", "--layers", "2", "--hidden", "32", "--steps", "3",
                       "--out", in("experts"), SMALL));
    run_ok(program_run("prune", "--model", in("experts"), "--out", in("experts-half"), "--amount", "0.5",
                       "--score", "gradient", "--rounds", "2", "--steps-per-round", "2", SMALL));
    assert_true(fabs(number(in("experts-half"), "sparsity") - 0.5) < 1e-3);
    run_ok(program_run("convert", "--model", in("experts-half"), "--out", in("experts-packed"), "--sparse"));
    assert_true(fabs(loss_of(in("experts-packed")) - loss_of(in("experts-half"))) < 1e-5);
    Ran ran = program_run("generate", "--model", in("experts-packed"), "--prompt", "abc", "--max-tokens", "8",
                          "--threads", "1");
    assert_int_equal(ran.code, 0);
    ran_done(&ran);
    run_ok(program_run("prune", "--model", in("experts"), "--out", in("experts-heads"), "--kind", "heads",
                       "--amount", "0.5"));
    assert_true(number(in("experts-heads"), "params_total") < number(in("experts"), "params_total"));
    assert_true(loss_of(in("experts-heads")) < 6);
    static const char *const rows[] = {"rows", "all-rows"};
    for (int i = 0; i < 2; i++)
        assert_refused(2, "mixture of experts, whose rows cannot be pruned; use --kind weights", "prune",
                       "--model", in("experts"), "--out", in("none"), "--kind", rows[i], "--amount", "0.5");
    assert_refused(2, "normalizes q and k over all heads together, so none can be removed", "prune",
                   "--model", CASES "olmoe", "--out", in("none"), "--kind", "heads", "--amount", "0.5");
    assert_false(path_exists(in("none")));
}

static void generates_and_evaluates(const char *model) {
    assert_runs(program_run("generate", "--model", model, "--prompt", "abc", "--max-tokens", "4",
                            "--temperature", "0", "--threads", "1"));
    assert_true(loss_of(model) > 0);
}

/* Rows of all matrices: one of two heads and half of the feed-forward rows are removed, half of the rows of
 * out and down are zero; the result works like any checkpoint. */
static void all_rows(void **state) {
    run_ok(program_run("prune", "--model", in("base"), "--out", in("all"), "--kind", "all-rows", "--amount",
                       "0.5"));
    CLEANUP(json_decrefp) json_t *pruning = read_json(in("all/pruning.json"));
    CLEANUP(json_decrefp) json_t *config = read_json(in("all/config.json"));
    assert_true(cell(pruning, 0, "sparsity") == 0.5);
    assert_true(cell(pruning, 0, "inner") == 64);
    assert_true(cell(pruning, 0, "heads") == 1);
    assert_true(cell(pruning, 0, "zero_rows") == 2 * 2 * 16);
    assert_int_equal(json_integer_value(json_object_get(config, "n_inner")), 64);
    assert_int_equal(json_object_size(json_object_get(config, "pruned_heads")), 2);
    generates_and_evaluates(in("all"));
    run_ok(program_run("convert", "--model", in("all"), "--out", in("all-bf16"), "--dtype", "bf16"));
    generates_and_evaluates(in("all-bf16"));
    run_ok(program_run("convert", "--model", in("all"), "--out", in("all-sparse"), "--sparse"));
    assert_true(fabs(loss_of(in("all-sparse")) - loss_of(in("all"))) < 1e-5);
}

/* Two kinds in one command: both curves, one shared baseline, both plots and the conclusion. */
static void two_kinds(void **state) {
    for (int i = 0; i < 2; i++) { /* resuming a finished comparison changes nothing */
        Ran ran =
            prune_rounds("curves", "--kind", "weights", "--also", "all-rows", "--amount", "0.5", "--rounds",
                         "2", "--ramp", "even", "--score", "gradient", i ? "--resume" : "--json");
        if (ran.code) fail_msg("%s", ran.err);
        assert_contains(ran.out, "all-rows: validation loss");
        assert_contains(ran.out, "no time is saved");
        ran_done(&ran);
    }
    CLEANUP(json_decrefp) json_t *pruning = read_json(in("curves/pruning.json"));
    const json_t *kinds = json_object_get(pruning, "kinds");
    const json_t *weights = json_array_get(kinds, 0), *rows = json_array_get(kinds, 1);
    assert_int_equal(json_array_size(kinds), 2);
    for (size_t i = 0; i < 3; i++) {
        assert_true(fabs(cell(weights, i, "sparsity") - 0.25 * (double)i) < 1e-3);
        assert_true(cell(rows, i, "step_ms") > 0 && cell(rows, i, "val_loss") > 0);
    }
    assert_true(cell(rows, 0, "val_loss") == cell(weights, 0, "val_loss"));
    assert_true(cell(rows, 2, "sparsity") == 0.5);
    assert_true(cell(rows, 2, "zero_rows") == 2 * 2 * 16); /* still zero after training */
    assert_true(number(in("curves/all-rows"), "sparsity") > 0.2);
    assert_true(path_exists(in("curves/report.html")));
    assert_true(path_exists(in("curves/figures/pruning-loss.svg")));
    const json_t *conclusion = json_object_get(pruning, "conclusion");
    const json_t *figures = json_array_get(json_object_get(conclusion, "kinds"), 1);
    bool contended = json_is_true(json_object_get(figures, "contended"));
    assert_int_equal(json_is_null(json_object_get(figures, "speedup")), contended);
    assert_true(json_object_get(json_array_get(json_object_get(rows, "rounds"), 2), "load") != NULL);
    assert_true(fabs(json_number_value(json_object_get(figures, "speedup_projected")) - 2) < 1e-9);
    assert_true(json_is_null(json_object_get(figures, "rises_sharply_at")) ||
                json_is_real(json_object_get(figures, "rises_sharply_at")));
    assert_int_equal(json_array_size(json_object_get(conclusion, "text")), 5);
}

/* Replaces the losses, step times and load of a finished run's three rounds: the cores that others took,
 * of 2. */
static void put_rounds(const char *path, const double *loss, const double *step_ms, double others) {
    CLEANUP(json_decrefp) json_t *pruning = read_json(path);
    for (size_t i = 0; i < 3; i++) {
        json_t *row = json_array_get(json_object_get(pruning, "rounds"), i);
        assert_int_equal(json_object_set_new(row, "val_loss", json_real(loss[i])), 0);
        assert_int_equal(json_object_set_new(row, "step_ms", json_real(step_ms[i])), 0);
        json_t *load = json_pack("{s:f, s:f, s:f, s:f}", "cores", 2., "others", others, "steal", 0.,
                                 "contention", others / 2);
        assert_int_equal(json_object_set_new(row, "load", load), 0);
    }
    assert_ok(json_write_file(path, pruning));
}

static json_t *conclusion_of(double others) {
    put_rounds(in("curves/weights/pruning.json"), (double[]){3, 3.02, 3.3}, (double[]){100, 100, 50}, others);
    put_rounds(in("curves/all-rows/pruning.json"), (double[]){3, 3.2, 3.33}, (double[]){100, 70, 40}, others);
    run_ok(prune_rounds("curves", "--kind", "weights", "--also", "all-rows", "--amount", "0.5", "--rounds",
                        "2", "--ramp", "even", "--score", "gradient", "--resume"));
    return read_json(in("curves/pruning.json"));
}

/* The conclusion follows from the rounds; here from known ones, which --resume reads again. Zeroed weights
 * have no speedup, whatever the steps took; rows have none if other processes took their cores. */
static void concludes_from_rounds(void **state) {
    static const char *const expected[] = {
        "weights: validation loss 3.0000 unpruned, 3.3000 with 50% pruned (+10.0%); it rises sharply at 50%, "
        "by "
        "0.2800.",
        "all-rows: validation loss 3.0000 unpruned, 3.3300 with 50% pruned (+11.0%); it rises sharply at ",
        "all-rows has a higher loss than weights in 2 of 2 rounds: difference +0.1800 at ",
        "weights: no time is saved, because zeros are multiplied like other weights.",
        "all-rows: 100.00 ms per step unpruned, 40.00 ms with 50% pruned: measured speedup 2.50x, 2.00x if",
    };
    CLEANUP(json_decrefp) json_t *pruning = conclusion_of(0);
    const json_t *conclusion = json_object_get(pruning, "conclusion");
    const json_t *text = json_object_get(conclusion, "text"), *kinds = json_object_get(conclusion, "kinds");
    for (size_t i = 0; i < 5; i++) assert_contains(json_string_value(json_array_get(text, i)), expected[i]);
    const json_t *rows = json_array_get(json_object_get(pruning, "kinds"), 1);
    assert_true(json_number_value(json_object_get(json_array_get(kinds, 1), "rises_sharply_at")) ==
                cell(rows, 1, "sparsity")); /* worse from the start */
    assert_true(json_is_null(json_object_get(json_array_get(kinds, 0), "speedup")));
    assert_true(json_number_value(json_object_get(json_array_get(kinds, 1), "speedup")) == 2.5);

    CLEANUP(json_decrefp) json_t *busy = conclusion_of(1.5);
    conclusion = json_object_get(busy, "conclusion");
    kinds = json_object_get(conclusion, "kinds");
    assert_contains(json_string_value(json_array_get(json_object_get(conclusion, "text"), 4)),
                    "40.00 ms with 50% pruned, but with CPU contention, so that no speedup is stated: other "
                    "processes used 1.5 of the 2 cores; 2.00x if projected");
    for (size_t i = 0; i < 2; i++) {
        assert_true(json_is_null(json_object_get(json_array_get(kinds, i), "speedup")));
        assert_true(json_is_true(json_object_get(json_array_get(kinds, i), "contended")));
    }
    Ran shown = prune_rounds("curves", "--kind", "weights", "--also", "all-rows", "--amount", "0.5",
                             "--rounds", "2", "--ramp", "even", "--score", "gradient", "--resume");
    assert_contains(shown.out, "  CPU contention\n");
    ran_done(&shown);
}

static char *page_at(const char *path) {
    char *text = NULL;
    size_t size;
    assert_ok(file_read(path, 1 << 24, &text, &size));
    return text;
}

/* A study's conclusions, judged by the rounds; without a trusted speedup, that one is not known. */
static void judges_rounds(void **state) {
    static const char study[] =
        "{\"study\": {\"title\": \"A study\", \"note\": \"It said so.\", \"compression\": ["
        "{\"text\": \"Sharp at 50%\", \"of\": \"weights\", \"figure\": \"rises_sharply_at\", \"relation\": "
        "\"equal\", \"than\": 0.5}, {\"text\": \"Rows are better\", \"of\": \"all-rows\", \"figure\": "
        "\"val_loss\", \"relation\": \"lower\", \"than\": \"weights\"}, {\"text\": \"Rows save time\", "
        "\"of\": "
        "\"all-rows\", \"figure\": \"speedup\", \"relation\": \"higher\", \"than\": 2}]}}";
    static const char wrong[] =
        "{\"study\": {\"compression\": [{\"text\": \"x\", \"of\": \"rows\", \"figure\": "
        "\"lost\", \"relation\": \"equal\", \"than\": 1}]}}";
    static const char *const expected[][3] = {
        {"- Sharp at 50%: holds (sharp rise at 50.0% vs 50.0%).",
         "- Rows are better: does not hold (validation loss 3.3300 vs 3.3000).",
         "- Rows save time: holds (speedup 2.50 vs 2.00)."},
        {"- Sharp at 50%: holds", "- Rows are better: does not hold",
         "- Rows save time: not known (speedup not known, or measured with CPU contention)."}};
    assert_ok(file_replace(in("study.json"), study, sizeof study - 1));
    assert_ok(file_replace(in("wrong.json"), wrong, sizeof wrong - 1));
    for (int busy = 0; busy < 2; busy++) {
        json_decref(conclusion_of(1.5 * busy));
        Ran ran = prune_rounds("curves", "--config", in("study.json"), "--kind", "weights", "--also",
                               "all-rows", "--amount", "0.5", "--rounds", "2", "--ramp", "even", "--score",
                               "gradient", "--resume");
        for (size_t i = 0; i < 3; i++) assert_contains(ran.out, expected[busy][i]);
        ran_done(&ran);
    }
    run_ok(program_run("report", in("curves"), "--out", in("judged.html")));
    CLEANUP(mem_freep) char *page = page_at(in("judged.html"));
    assert_contains(page, "<span class=\"badge failed\">does not hold</span>Rows are better");
    assert_contains(page, "Published for A study: It said so.");
    assert_refused(2, "compression: claim 1: figure: unknown key 'lost'", "prune", "--config",
                   in("wrong.json"), "--model", in("base"), "--out", in("none"), "--amount", "0.5");
}

/* The rounds as a page with both figures, and as tables. What is stated there is what the files say: times
 * with contention are marked and off the curves. */
static void reports_rounds(void **state) {
    static const char *const formats[][2] = {
        {"markdown", "| all-rows (CPU contention) | 2 | 50.0% |"},
        {"latex", "all-rows (CPU contention) & 2 & 50.0\\% &"},
        {"csv", "\"weights\",0,0,"},
    };
    CLEANUP(json_decrefp) json_t *clean = conclusion_of(0), *busy = NULL;
    run_ok(program_run("report", in("curves"), "--out", in("clean.html")));
    CLEANUP(mem_freep) char *page = page_at(in("clean.html"));
    assert_contains(page, "measured speedup 2.50x");
    assert_contains(page, "all-rows, projected");
    assert_null(strstr(page, "CPU contention"));
    assert_true(path_exists(in("clean-figures/pruning-loss.svg")));
    assert_true(path_exists(in("clean-figures/pruning-time.svg")));
    busy = conclusion_of(1.5);
    run_ok(program_run("report", in("curves"), "--out", in("busy.html")));
    CLEANUP(mem_freep) char *marked = page_at(in("busy.html"));
    assert_contains(marked, "<span class=\"badge failed\">CPU contention</span>");
    assert_null(strstr(marked, "measured speedup"));
    for (size_t i = 0; i < 3; i++) {
        Ran ran = program_run("report", in("curves"), "--format", formats[i][0]);
        assert_contains(ran.out, formats[i][1]);
        ran_done(&ran);
    }
    /* Two directories are told apart by name; one that is no pruning makes all of them runs. */
    Ran both = program_run("report", in("curves"), in("curves/weights"), "--format", "csv");
    assert_contains(both.out, "\"curves: weights\",0,0,");
    assert_contains(both.out, "\"weights: weights\",0,0,");
    ran_done(&both);
    Ran runs = program_run("report", in("curves/weights"), in("curves/all-rows/round-2"), "--format", "csv");
    assert_contains(runs.out, "\"round-1\",finished,");
    ran_done(&runs);
    runs = program_run("report", in("curves"), in("one-head/round-1"), "--format", "csv");
    assert_contains(runs.out, "\"weights/round-2\",finished,");
    assert_contains(runs.out, "\"all-rows/round-2\",finished,");
    ran_done(&runs);
    assert_refused(2, "a file of the run itself", "report", in("curves"), "--out", in("curves/pruning.json"));
}

/* Rounds continue from the sparsity of the model. A round that would remove too few rows leaves them to the
 * next. */
static void rounds_continue(void **state) {
    run_ok(program_run("prune", "--model", in("base"), "--out", in("third"), "--amount", "0.4"));
    run_ok(program_run("prune", "--model", in("third"), "--out", in("on"), "--amount", "0.8", "--rounds", "2",
                       "--ramp", "even", "--steps-per-round", "1", SMALL));
    CLEANUP(json_decrefp) json_t *on = read_json(in("on/pruning.json"));
    for (size_t i = 0; i < 3; i++) assert_true(fabs(cell(on, i, "sparsity") - 0.4 - 0.2 * (double)i) < 1e-3);
    run_ok(program_run("prune", "--model", in("base"), "--out", in("few"), "--kind", "rows", "--amount",
                       "0.1", "--rounds", "3", "--ramp", "even", "--steps-per-round", "1", SMALL));
    CLEANUP(json_decrefp) json_t *few = read_json(in("few/pruning.json"));
    assert_true(cell(few, 1, "inner") == 128);
    assert_true(cell(few, 3, "inner") == 120);
}

static void not_finite(void **state) {
    copy_with_nan(CASES "gpt2-generate", in("nan"), "transformer.h.0.mlp.c_fc.bias");
    assert_refused(1, "layer.0.mlp.up.bias contains a weight that is not finite", "prune", "--model",
                   in("nan"), "--out", in("none"), "--amount", "0.5", "--kind", "rows");
}

static void bad_input(void **state) {
    const char *base = in("base"), *out = in("none");
    assert_refused(2, "--amount", "prune", "--model", base, "--out", out, "--amount", "1");
    assert_refused(2, "--amount", "prune", "--model", base, "--out", out, "--amount", "0");
    assert_refused(2, "--amount", "prune", "--model", base, "--out", out, "--amount", "nan");
    assert_refused(2, "--amount X is required", "prune", "--model", base, "--out", out);
    assert_refused(2, "--kind", "prune", "--model", base, "--out", out, "--amount", "0.5", "--kind", "legs");
    assert_refused(2, "heads per layer, rounded", "prune", "--model", base, "--out", out, "--amount", "0.1",
                   "--kind", "heads");
    assert_refused(2, "rounded to a multiple of 2 (--tp 1, 2 heads per key-value head)", "prune", "--model",
                   CASES "llama", "--out", out, "--amount", "0.1", "--kind", "heads");
    assert_refused(2, "no heads can be pruned: a layer keeps a multiple of 8 heads", "prune", "--model",
                   CASES "llama", "--out", out, "--amount", "0.5", "--kind", "heads", "--tp", "4");
    assert_refused(2, "requires --data FILE", "prune", "--model", base, "--out", out, "--amount", "0.5",
                   "--rounds", "3");
    assert_refused(2, "use one or the other", "prune", "--model", base, "--out", out, "--amount", "0.5",
                   "--global", "--per-matrix");
    assert_refused(2, "applies only to --kind weights", "prune", "--model", base, "--out", out, "--amount",
                   "0.5", "--kind", "rows", "--per-matrix");
    assert_refused(2, "use l2 or gradient", "prune", "--model", base, "--out", out, "--amount", "0.5",
                   "--score", "product");
    assert_refused(2, "to compute gradients on", "prune", "--model", base, "--out", out, "--amount", "0.5",
                   "--score", "gradient");
    assert_refused(2, "--kind names it already", "prune", "--model", base, "--out", out, "--amount", "0.5",
                   "--also", "weights", SMALL);
    assert_refused(2, "larger amount", "prune", "--model", base, "--out", out, "--amount", "0.01", "--kind",
                   "rows");
    assert_refused(1, "config.json", "prune", "--model", dir, "--out", out, "--amount", "0.5");
    assert_refused(1, "expected a checkpoint directory", "prune", "--model", in("absent"), "--out", out,
                   "--amount", "0.5");
    assert_refused(1, "empty", "prune", "--model", base, "--out", dir, "--amount", "0.5");
    run_ok(program_run("prune", "--model", base, "--out", in("much"), "--amount", "0.9"));
    assert_refused(2, "already zero", "prune", "--model", in("much"), "--out", out, "--amount", "0.5");
    assert_refused(2, "already zero", "prune", "--model", in("much"), "--out", in("none-2"), "--amount",
                   "0.5", SMALL);
    assert_refused(1, "empty", "prune", "--model", base, "--out", dir, "--amount", "0.5", "--resume", SMALL);
    if (mpi_built()) /* the first rank fails, and no rank waits for it */
        assert_refused(2, "already zero", "prune", "--model", in("much"), "--out", in("none-3"), "--amount",
                       "0.5", "--dp", "2", SMALL);
    assert_false(path_exists(out));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(at_once),
        cmocka_unit_test(zeros_stay_zero),
        cmocka_unit_test(weights_in_rounds),
        cmocka_unit_test(rows_in_rounds),
        cmocka_unit_test(heads),
        cmocka_unit_test(mixtures),
        cmocka_unit_test(without_zeros),
        cmocka_unit_test(all_rows),
        cmocka_unit_test(two_kinds),
        cmocka_unit_test(concludes_from_rounds),
        cmocka_unit_test(judges_rounds),
        cmocka_unit_test(reports_rounds),
        cmocka_unit_test(rounds_continue),
        cmocka_unit_test(not_finite),
        cmocka_unit_test(bad_input),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
