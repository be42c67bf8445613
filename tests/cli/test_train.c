/* `weft train` through the program: JSON output, a run directory from which the run can be repeated and
 * resumed, interruption by a signal, traces, eval and bench. */
#include "program.h"

#include <signal.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "checkpoint/safetensors.h"

static char run_dir[64];
static char corpus[64];

static int make_corpus(void **state) {
    program_setup(state);
    snprintf(run_dir, sizeof run_dir, "/tmp/weft-train-%d", (int)getpid());
    snprintf(corpus, sizeof corpus, "/tmp/weft-train-%d.txt", (int)getpid());
    char text[4096];
    for (size_t i = 0; i < sizeof text; i++) text[i] = "the quick brown fox "[i % 20];
    FILE *file = fopen(corpus, "w");
    return !file || fwrite(text, 1, sizeof text, file) != sizeof text || fclose(file) != 0;
}

static int remove_files(void **state) {
    unlink(corpus);
    Status status = dir_remove(run_dir);
    status_free(status);
    return status != OK;
}

#define SMALL                                                                                                \
    "train", "--data", corpus, "--model", "gpt2-tiny", "--layers", "1", "--hidden", "16", "--heads", "2",    \
        "--seq", "16", "--batch", "2", "--threads", "1"

static json_t *object_of(const Ran *ran) {
    json_t *json = NULL;
    assert_ok(json_parse(ran->out, strlen(ran->out), "standard output", &json));
    assert_true(json_is_object(json));
    return json;
}

static int64_t steps_of(const Ran *ran) {
    json_t *json = object_of(ran);
    int64_t steps = json_integer_value(json_object_get(json, "steps"));
    json_decref(json);
    return steps;
}

static double last_loss(const char *option, const char *value) {
    Ran ran = program_run(SMALL, "--steps", "8", "--lr", "0.01", "--json", option, value);
    assert_int_equal(ran.code, 0);
    json_t *json = object_of(&ran);
    double loss = json_number_value(json_object_get(json, "loss_last"));
    json_decref(json);
    ran_done(&ran);
    return loss;
}

/* The warm-up is a number of steps or a fraction of them, rounded up. */
static void warmup_ratio(void **state) {
    double six = last_loss("--warmup", "6");
    assert_true(last_loss("--warmup-ratio", "0.7") == six);
    assert_true(last_loss("--warmup-ratio", "0.25") != six);
}

static void json_summary(void **state) {
    Ran ran = program_run(SMALL, "--steps", "4", "--json");
    assert_int_equal(ran.code, 0);
    json_t *json = object_of(&ran);
    static const char *const keys[] = {"steps",        "loss_first", "loss_last",     "val_loss", "runtime_s",
                                       "tokens_per_s", "mfu",        "samples_per_s", "layout",   "ranks"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) assert_non_null(json_object_get(json, keys[i]));
    json_decref(json);
    assert_contains(ran.err, "no --out directory");
    ran_done(&ran);
}

static void prints_a_summary(void **state) {
    Ran ran = program_run(SMALL, "--steps", "2", "--quiet");
    assert_int_equal(ran.code, 0);
    assert_contains(ran.out, "2 steps in ");
    assert_contains(ran.out, "validation loss ");
    assert_string_equal(ran.err, "");
    ran_done(&ran);
}

/* --quiet hides progress, not warnings. */
static void warns_quietly(void **state) {
    char file[128];
    snprintf(file, sizeof file, "%s.json", run_dir);
    assert_ok(file_replace(file, "{\"warmup\": 500}", 15));
    Ran ran = program_run(SMALL, "--config", file, "--steps", "2", "--quiet");
    assert_int_equal(ran.code, 0);
    assert_int_equal(strncmp(ran.err, "warning: the warm-up of 500 steps (", 35), 0);
    assert_null(strstr(ran.err, "model: "));
    ran_done(&ran);
    unlink(file);
}

/* Ctrl-C: the current step is completed, a checkpoint saved, the result printed, and --resume continues from
 * it. */
static void stopped_and_resumed(void **state) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        FILE *null = fopen("/dev/null", "w");
        dup2(fileno(null), 1);
        dup2(fileno(null), 2);
        const char *argv[] = {WEFT_BINARY,      SMALL, "--steps",  "100000000", "--out", run_dir, "--quiet",
                              "--val-fraction", "0",   "--warmup", "0",         NULL};
        execv(WEFT_BINARY, (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    char metrics[128];
    struct stat st;
    snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", run_dir);
    for (int i = 0; i < 6000 && (stat(metrics, &st) != 0 || st.st_size == 0); i++) usleep(10000);
    kill(child, SIGINT);
    int code;
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_true(WIFEXITED(code));
    assert_int_equal(WEXITSTATUS(code), 75);

    char config[128], latest[128], steps[32];
    snprintf(config, sizeof config, "%s/config.json", run_dir);
    snprintf(latest, sizeof latest, "%s/latest", run_dir);
    assert_true(path_exists(latest));
    char target[256] = "";
    assert_true(readlink(latest, target, sizeof target - 1) > 0);
    long stopped_at = strtol(strstr(target, "step-") + 5, NULL, 10);
    assert_true(stopped_at > 0);

    /* The run's config.json is a configuration, and the command line overrides it. */
    snprintf(steps, sizeof steps, "%ld", stopped_at + 3);
    Ran again = program_run("train", "--config", config, "--resume", "--steps", steps, "--json");
    assert_int_equal(again.code, 0);
    assert_int_equal(steps_of(&again), stopped_at + 3);
    ran_done(&again);
    assert_refused(2, "already contains a run", "train", "--config", config, "--quiet");
}

/* The run directory is moved while the run writes to it: the next checkpoint creates a complete one. */
static void moved_directory(void **state) {
    char dir[96], path[160], moved[128], err[128], *said = NULL;
    struct stat st;
    int code;
    snprintf(dir, sizeof dir, "%s-stays", run_dir);
    snprintf(moved, sizeof moved, "%s-moves", run_dir);
    snprintf(err, sizeof err, "%s-err", run_dir);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        FILE *out = fopen(err, "w");
        dup2(fileno(out), 1);
        dup2(fileno(out), 2);
        const char *argv[] = {WEFT_BINARY, SMALL,          "--steps", "100000000",    "--out", dir,
                              "--quiet",   "--save-every", "0",       "--eval-every", "0",     NULL};
        execv(WEFT_BINARY, (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    for (int i = 0; i < 6000 && (stat(path, &st) != 0 || st.st_size == 0); i++) usleep(10000);
    assert_int_equal(rename(dir, moved), 0);
    kill(child, SIGINT);
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_int_equal(WIFEXITED(code) ? WEXITSTATUS(code) : -1, 75);
    assert_ok(file_read(err, 1 << 20, &said, NULL));
    assert_contains(said, "-stays was moved or deleted; an empty directory takes its place\n");
    free(said);
    static const char *const files[] = {"config.json", "metrics.jsonl", "latest/config.json"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, files[i]);
        assert_true(path_exists(path));
    }
    assert_ok(dir_remove(dir));
    assert_ok(dir_remove(moved));
    unlink(err);
}

/* A run that is resumed before its first checkpoint says so. A resumed run with another schedule says what
 * the learning rate becomes and why; one that is shorter than what is already done is refused. */
static void resumed_with_other_steps(void **state) {
    char dir[128];
    snprintf(dir, sizeof dir, "%s/schedule", run_dir);
    assert_ran(program_run(SMALL, "--steps", "10", "--warmup", "0", "--schedule", "linear", "--lr", "1e-3",
                           "--out", dir, "--resume"),
               0, err, "/schedule yet; starting at step 1\n");
    assert_ran(program_run("train", "--out", dir, "--resume", "--steps", "20", "--lr", "2e-3"), 0, err,
               "learning rate: 9.09e-05 in step 10, 0.000952 from step 11 on, because --steps is "
               "20 (was 10), --lr is 0.002 (was 0.001)\n");
    Ran ran = program_run("train", "--out", dir, "--resume");
    assert_int_equal(ran.code, 0);
    assert_contains(ran.err, "is complete after 20 steps; to train longer, pass a larger --steps");
    assert_null(strstr(ran.err, "learning rate:"));
    ran_done(&ran);
    assert_refused(2, "has already done 20 steps; pass a larger number", "train", "--out", dir, "--resume",
                   "--steps", "15", "--quiet");
    assert_ok(dir_remove(dir));
}

/* A resumed run of another model, of other data or with other samples is refused, and the message names the
 * option to drop. */
static void resumed_as_another(void **state) {
    static const struct {
        const char *option, *value, *expected;
    } cases[] = {
        {"--layers", "3", "has 1; drop --layers, or choose another --out"},
        {"--hidden", "32", "--hidden 32: the run in"},
        {"--heads", "4", "has 2; drop --heads"},
        {"--seq", "8", "has 16; drop --seq"},
        {"--vocab", "300", "has 257; drop --vocab"},
        {"--model", "bert-tiny", "has a GPT-2 model, not BERT; drop --model"},
        {"--inner", "32", "has 64; drop --inner"},
        {"--seed", "7", "--seed 7: the run in"},
        {"--dropout", "0.25", "has 0.1; drop --dropout"},
        {"--no-shuffle", "--threads=1", "shuffles its data; drop --no-shuffle"},
        {"--val-fraction", "0.5", "was trained on other data; pass the same --data, --data-fraction, "},
        {"--data-fraction", "0.5", "was trained on other data"},
        {"--stride", "4", "--val-fraction, --stride and --tokenizer"},
        {"--untie", "--threads=1", "has no output matrix of its own; drop --untie"},
    };
    char dir[128];
    snprintf(dir, sizeof dir, "%s/another", run_dir);
    assert_runs(program_run(SMALL, "--steps", "1", "--out", dir, "--quiet"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_refused(2, cases[i].expected, "train", "--out", dir, "--resume", "--quiet", cases[i].option,
                       cases[i].value);
    assert_ok(dir_remove(dir));
}

/* Overlapping windows of the first part of the text: an epoch has a sample per token that can start one, and
 * a run that is resumed ends with the same weights. */
static void overlapping_windows(void **state) {
#define WINDOWS                                                                                              \
    SMALL, "--stride", "1", "--data-fraction", "0.05", "--val-fraction", "0", "--schedule", "constant",      \
        "--warmup", "0", "--untie", "--quiet", "--json"
    char whole[96], cut[96], path[2][160], *weights[2];
    size_t size[2];
    snprintf(whole, sizeof whole, "%s-whole", run_dir);
    snprintf(cut, sizeof cut, "%s-cut", run_dir);
    Ran ran = program_run(WINDOWS, "--epochs", "1", "--out", whole);
    assert_int_equal(steps_of(&ran), 95); /* 205 of 4097 tokens are 189 samples */
    ran_done(&ran);
    assert_runs(program_run(WINDOWS, "--steps", "90", "--out", cut));
    assert_runs(program_run("train", "--out", cut, "--resume", "--steps", "95", "--quiet"));
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "%s/latest/model.safetensors", i ? cut : whole);
        assert_ok(file_read(path[i], 1 << 20, &weights[i], &size[i]));
    }
    assert_int_equal(size[0], size[1]);
    assert_memory_equal(weights[0], weights[1], size[0]);
    free(weights[0]);
    free(weights[1]);
    assert_ok(dir_remove(whole));
    assert_ok(dir_remove(cut));
    assert_refused(2, "--stride 17: expected 1 to 16, the sequence length", SMALL, "--stride", "17");
    assert_refused(2, "--stride is for text and language models, not for --task mlm on bytes", "train",
                   corpus, "--model", "bert-tiny", "--stride", "2", "--steps", "1");
}

/* A warm-up longer than the run is capped if a file sets it, since the file may be meant for longer runs. */
static void long_warmup(void **state) {
    char file[128];
    snprintf(file, sizeof file, "%s.json", run_dir);
    assert_ok(file_replace(file, "{\"warmup\": 500}", 15));
    assert_ran(program_run(SMALL, "--config", file, "--steps", "2"), 0, err,
               ".json) is longer than the run; it takes all 2 steps instead");
    assert_refused(2, "--warmup 500 is longer than the run (2 steps)", SMALL, "--config", file, "--steps",
                   "2", "--warmup", "500", "--quiet");
    unlink(file);
}

/* Without --model and --config, a CPU gets smaller defaults, which are printed and recorded. Options win. */
static void defaults_for_a_cpu(void **state) {
#define UNNAMED                                                                                              \
    "train", corpus, "--layers", "1", "--hidden", "16", "--heads", "2", "--batch", "1", "--threads", "1"
    char dir[96], path[128];
    snprintf(dir, sizeof dir, "%s-defaults", run_dir);
    snprintf(path, sizeof path, "%s/config.json", dir);
    assert_ran(program_run(UNNAMED, "--steps", "1", "--out", dir), 0, err,
               "defaults for a CPU: --seq 256 --eval-batches 4\n");
    json_t *config = NULL;
    assert_ok(json_read_file(path, &config));
    assert_int_equal(json_integer_value(json_object_get(config, "seq")), 256);
    assert_int_equal(json_integer_value(json_object_get(config, "eval-batches")), 4);
    json_decref(config);
    Ran ran = program_run("train", "--out", dir, "--resume", "--steps", "2");
    assert_int_equal(ran.code, 0);
    assert_null(strstr(ran.err, "defaults for"));
    assert_contains(ran.err, "of 256 tokens");
    ran_done(&ran);
    assert_ok(dir_remove(dir));
    ran = program_run(UNNAMED, "--epochs", "0.1", "--seq", "32", "--eval-samples", "2");
    assert_int_equal(ran.code, 0);
    assert_null(strstr(ran.err, "defaults for"));
    assert_contains(ran.err, "of 32 tokens");
    ran_done(&ran);
    ran = program_run(SMALL, "--steps", "1");
    assert_null(strstr(ran.err, "defaults for"));
    ran_done(&ran);
}

/* The run directory alone is enough to resume: settings, data and, if what --model named is gone, the
 * model. */
static void resumed_by_directory(void **state) {
    char first[128], second[128], model[256];
    snprintf(first, sizeof first, "%s/first", run_dir);
    snprintf(second, sizeof second, "%s/second", run_dir);
    snprintf(model, sizeof model, "%s/latest", first);
    Ran made = program_run(SMALL, "--steps", "2", "--out", first, "--quiet");
    assert_int_equal(made.code, 0);
    ran_done(&made);
    Ran started = program_run("train", "--data", corpus, "--model", model, "--batch", "3", "--threads", "1",
                              "--lr", "1e-5", "--steps", "2", "--keep", "1", "--out", second, "--quiet");
    assert_int_equal(started.code, 0);
    ran_done(&started);
    assert_ok(dir_remove(first));

    Ran done = program_run("train", "--resume", "--out", second, "--json");
    assert_int_equal(done.code, 0);
    assert_int_equal(steps_of(&done), 2);
    ran_done(&done);
    /* Twice, because the first resume writes the files that the second reads. */
    for (int steps = 3; steps <= 4; steps++) {
        char text[16];
        snprintf(text, sizeof text, "%d", steps);
        Ran on = program_run("train", "--out", second, "--resume", "--steps", text, "--json");
        assert_int_equal(on.code, 0);
        assert_int_equal(steps_of(&on), steps);
        json_t *json = object_of(&on);
        assert_int_equal(json_integer_value(json_object_get(json_object_get(json, "layout"), "batch")), 3);
        json_decref(json);
        ran_done(&on);
    }
    assert_refused(2, "no such directory", "train", "--out", second, "--resume", "--model", model);
    snprintf(model, sizeof model, "--resume: %s contains no run to continue", first);
    assert_refused(2, model, "train", "--out", first, "--resume");
    assert_refused(2, "--resume requires --out DIR", "train", "--resume");
    assert_refused(2, "--data FILE is required", "train", "--out", second, "--resume", "--no-resume");
    /* A run cannot be resumed without the optimizer's state; the model alone does not need it. */
    snprintf(model, sizeof model, "%s/latest/optimizer.safetensors", second);
    assert_int_equal(unlink(model), 0);
    assert_refused(1, "optimizer.safetensors", "info", second, "--verify");
    *strrchr(model, '/') = 0;
    Ran info = program_run("info", model, "--verify");
    assert_int_equal(info.code, 0);
    ran_done(&info);
}

/* One command line, repeated as batch systems do: it starts in a directory that has nothing but a first save
 * cut short, continues, and does nothing to a run that is complete. */
static void resumed_automatically(void **state) {
    char dir[96], part[160], path[128], *before = NULL, *after = NULL;
    size_t size, size_after;
    snprintf(dir, sizeof dir, "%s-auto/below", run_dir);
    snprintf(part, sizeof part, "%s/checkpoints/step-1.tmp", dir);
    snprintf(path, sizeof path, "%s/summary.json", dir);
    assert_ok(dir_make(part));
    Ran ran = program_run(SMALL, "--steps", "2", "--out", dir, "--resume", "auto", "--json");
    assert_int_equal(ran.code, 0);
    assert_int_equal(steps_of(&ran), 2);
    assert_false(path_exists(part));
    ran_done(&ran);
    assert_ran(program_run(SMALL, "--steps", "4", "--out", dir, "--resume=auto"), 0, err, "resuming from ");
    assert_ok(file_read(path, 1 << 20, &before, &size));
    ran = program_run("train", "--out", dir, "--resume", "auto", "--json");
    assert_int_equal(ran.code, 0);
    assert_int_equal(steps_of(&ran), 4);
    assert_contains(ran.err, "/below is complete after 4 steps; to train longer, pass a larger --steps\n");
    ran_done(&ran);
    assert_ok(file_read(path, 1 << 20, &after, &size_after));
    assert_string_equal(after, before);
    free(before);
    free(after);
    /* A run that was killed before it wrote its summary still gets one. */
    assert_int_equal(unlink(path), 0);
    ran = program_run("train", "--out", dir, "--resume", "auto", "--quiet");
    assert_int_equal(ran.code, 0);
    assert_true(path_exists(path));
    ran_done(&ran);
    /* Going back to an earlier step removes nothing before the next checkpoint. */
    assert_runs(
        program_run("train", "--out", dir, "--resume-from", "2", "--steps", "2", "--keep", "1", "--quiet"));
    snprintf(path, sizeof path, "%s/latest/weft.json", dir);
    assert_true(path_exists(path));
    assert_runs(
        program_run("train", "--out", dir, "--resume-from", "2", "--steps", "3", "--keep", "1", "--quiet"));
    snprintf(part, sizeof part, "%s/checkpoints/step-4", dir);
    assert_false(path_exists(part));
    *strrchr(dir, '/') = 0;
    assert_ok(dir_remove(dir));
}

static void evaluated(void **state) {
    Ran ran = program_run("eval", "--model", run_dir, "--data", corpus, "--json", "--threads", "1");
    assert_int_equal(ran.code, 0);
    json_t *json = object_of(&ran);
    assert_true(json_is_number(json_object_get(json, "loss")));
    assert_true(json_number_value(json_object_get(json, "perplexity")) > 1);
    json_decref(json);
    ran_done(&ran);
    assert_refused(1, "/nonexistent", "eval", "--model", run_dir, "--data", "/nonexistent", "--quiet");
}

static void bench_table(void **state) {
    Ran people =
        program_run("bench", "--model", "bert-tiny", "--layers", "1", "--hidden", "16", "--heads", "2",
                    "--seq", "16", "--vocab", "200", "--batch", "2", "--steps", "1", "--threads", "1");
    assert_int_equal(people.code, 0);
    assert_contains(people.out, "linear_forward");
    assert_contains(people.out, "GFLOP/s");
    assert_contains(people.out, "measured peak");
    assert_contains(people.out, "between kernels");
    assert_true(strtod(strstr(people.out, "between kernels") + strlen("between kernels"), NULL) >= 0);
    ran_done(&people);
}

/* A trace of the requested steps, including an evaluation and a checkpoint among them. */
static void traced(void **state) {
    char dir[128], path[160];
    snprintf(dir, sizeof dir, "%s/traced", run_dir);
    snprintf(path, sizeof path, "%s/trace.json", dir);
    Ran plain = program_run(SMALL, "--steps", "1", "--out", dir, "--quiet");
    assert_int_equal(plain.code, 0);
    ran_done(&plain);
    assert_false(path_exists(path));
    assert_runs(program_run(SMALL, "--steps", "4", "--micro-batch", "1", "--out", dir, "--resume", "--trace",
                            "--trace-steps", "2", "--quiet"));
    json_t *json = NULL;
    assert_ok(json_read_file(path, &json));
    static const char *const names[] = {"step 3", "step 4", "data",       "F0",      "F1",
                                        "B1",     "update", "checkpoint", "evaluate"};
    int found[9] = {0};
    size_t at;
    const json_t *event;
    json_array_foreach(json_object_get(json, "traceEvents"), at, event) {
        const char *name = json_string_value(json_object_get(event, "name"));
        assert_int_not_equal(strcmp(name, "step 2"), 0);
        for (int i = 0; i < 9; i++) found[i] += strcmp(name, names[i]) == 0;
    }
    static const int expected[9] = {1, 1, 2, 0, 2, 2, 2, 1, 1};
    for (int i = 0; i < 9; i++)
        if (i != 3) assert_int_equal(found[i], expected[i]);
    assert_true(found[3] >= 2); /* evaluation runs forward passes too */
    json_decref(json);
    assert_refused(2, "requires --out DIR, where trace.json is written", SMALL, "--trace");
}

/* A run says which optimizer and groups it uses, config.json has them, and another optimizer cannot resume
 * it. */
static void other_optimizer(void **state) {
    char dir[96], path[128];
    snprintf(dir, sizeof dir, "%s-muon", run_dir);
    snprintf(path, sizeof path, "%s/config.json", dir);
    Ran ran = program_run(SMALL, "--steps", "4", "--optimizer", "muon", "--group", "*.bias:lr=0.5", "--group",
                          "layer.0.attn.*:lr=0.1,weight-decay=0", "--schedule", "wsd", "--decay-steps", "2",
                          "--warmup", "0", "--out", dir);
    assert_int_equal(ran.code, 0);
    assert_contains(ran.err, "optimizer: muon for the matrices of layers, adamw for other parameters");
    assert_contains(ran.err, "group *.bias: 5 parameter tensors, 128 elements; learning rate x 0.5");
    assert_contains(ran.err,
                    "group layer.0.attn.*: 4 parameter tensors, 1.09 k elements; learning rate x 0.1, "
                    "weight decay 0");
    ran_done(&ran);
    CLEANUP(json_decrefp) json_t *config = NULL;
    assert_ok(json_read_file(path, &config));
    assert_string_equal(json_string_value(json_object_get(config, "optimizer")), "muon");
    assert_int_equal(json_array_size(json_object_get(config, "group")), 2);
    assert_float_equal(json_number_value(json_object_get(config, "momentum")), 0.95, 0);
    Ran more = program_run("train", "--out", dir, "--resume", "--steps", "6", "--json");
    assert_int_equal(more.code, 0);
    assert_int_equal(steps_of(&more), 6);
    ran_done(&more);
    Ran lion = program_run("train", "--out", dir, "--resume", "--steps", "8", "--optimizer", "lion");
    assert_int_equal(lion.code, 2);
    assert_contains(lion.err, "its optimizer is muon, but this run's is lion; use --optimizer muon, or");
    ran_done(&lion);
    assert_refused(2, "no parameter of the model matches 'x*'", SMALL, "--group", "x*:lr=1");
    assert_refused(2, "unknown setting 'beta1'; expected lr or weight-decay", SMALL, "--group", "*:beta1=1");
    assert_refused(2, "only 3 steps remain after the warm-up of 1", SMALL, "--steps", "4", "--warmup", "1",
                   "--schedule", "wsd", "--decay-steps", "4");
    assert_ok(dir_remove(dir));
}

/* A run says how many parameters it trains; config.json has the patterns, and other ones cannot resume it. */
static void frozen(void **state) {
    char dir[96], from[160], to[128];
    snprintf(dir, sizeof dir, "%s-frozen", run_dir);
    assert_ran(program_run(SMALL, "--steps", "4", "--freeze", "*", "--freeze", "!layer.0.mlp", "--out", dir),
               0, err, "parameters are trained, the others frozen");
    snprintf(from, sizeof from, "%s/checkpoints/step-4/optimizer.safetensors", dir);
    CLEANUP(safe_freep) SafeFile *state_of = NULL;
    assert_ok(safe_open(&state_of, from));
    assert_non_null(safe_find(state_of, "exp_avg.layer.0.mlp.up.weight"));
    assert_null(safe_find(state_of, "exp_avg.layer.0.attn.out.weight"));
    Ran more = program_run("train", "--out", dir, "--resume", "--steps", "6", "--json");
    assert_int_equal(more.code, 0);
    assert_int_equal(steps_of(&more), 6);
    ran_done(&more);
    Ran other = program_run("train", "--out", dir, "--resume", "--steps", "8", "--freeze", "embed");
    assert_int_equal(other.code, 2);
    assert_contains(other.err,
                    "has frozen parameters; pass the same --freeze '*' --freeze '!layer.0.mlp', or choose");
    ran_done(&other);
    snprintf(to, sizeof to, "%s-all", dir);
    Ran all = program_run(SMALL, "--steps", "2", "--out", to);
    assert_int_equal(all.code, 0);
    ran_done(&all);
    Ran thawed = program_run("train", "--out", to, "--resume", "--steps", "4", "--freeze", "embed");
    assert_int_equal(thawed.code, 2);
    assert_contains(thawed.err, "trains all parameters; drop --freeze, or choose another --out");
    ran_done(&thawed);
    assert_refused(2, "--freeze 'layr.0': the model has no such parameter; did you mean 'layer.0'?", SMALL,
                   "--freeze", "layr.0");
    assert_refused(2, "this freezes all parameters", SMALL, "--freeze", "*");
    assert_ok(dir_remove(dir));
    assert_ok(dir_remove(to));
}

/* A checkpoint of 40 positions is extended, trained on longer sequences, saved with the scaling, and resumed.
 */
static void extended_context(void **state) {
    static const char model[] = WEFT_TEST_DIR "/golden/cases/llama";
    char data[64], out[80], longer[128], info[256];
    snprintf(out, sizeof out, "%s-rope", run_dir);
    snprintf(data, sizeof data, "/tmp/weft-rope-%d.u16", (int)getpid());
    FILE *file = fopen(data, "w");
    for (int i = 0; i < 1000; i++) assert_int_equal(fwrite((char[2]){(char)(i * i % 95)}, 1, 2, file), 2);
    assert_int_equal(fclose(file), 0);
#define EXTENDED                                                                                             \
    "train", "--model", model, "--data", data, "--batch", "2", "--threads", "1", "--val-fraction", "0",      \
        "--seq", "120", "--quiet"
    assert_refused(2, "--seq 120 exceeds the context length of the checkpoint", EXTENDED, "--steps", "1");
    assert_refused(2, "(40); add --rope-scaling yarn:3 to extend it", EXTENDED, "--steps", "1");
    assert_refused(2, "that --rope-scaling linear:2 gives the checkpoint", EXTENDED, "--steps", "1",
                   "--rope-scaling", "linear:2");
    assert_refused(2, "(80); use --rope-scaling linear:3", EXTENDED, "--steps", "1", "--rope-scaling",
                   "linear:2");
    static const char *const wrong[] = {"yarn",    "yarn:",      "yarn:x", "yarn:0.5",
                                        "yarn:4x", "longrope:4", ":4",     "yarn:nan"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_refused(2, "expected linear, dynamic, llama3 or yarn, a colon and a factor", EXTENDED,
                       "--rope-scaling", wrong[i]);
    assert_refused(2, "more than 16777216, the maximum", EXTENDED, "--rope-scaling", "yarn:1000000");
    assert_refused(2, "GPT-2 has no rotary positions", SMALL, "--rope-scaling", "yarn:4");
    assert_refused(2, "the model has longrope scaling", "train", "--model",
                   WEFT_TEST_DIR "/golden/cases/llama-longrope", "--data", data, "--rope-scaling", "yarn:4");
    assert_runs(program_run(EXTENDED, "--steps", "2", "--rope-scaling", "yarn:4", "--out", out));
    snprintf(longer, sizeof longer, "%s/latest", out);
    Ran ran = program_run("info", longer);
    assert_int_equal(ran.code, 0);
    assert_non_null(strstr(ran.out, "context 160\n"));
    assert_non_null(strstr(ran.out, "rotary, theta 10000, yarn scaling, factor 4, original context 40\n"));
    ran_done(&ran);
    assert_refused(2, "has --rope-scaling yarn:4; pass the same", EXTENDED, "--steps", "3", "--rope-scaling",
                   "yarn:3", "--out", out, "--resume");
    assert_runs(program_run(EXTENDED, "--steps", "3", "--rope-scaling", "yarn:4", "--out", out, "--resume"));
    snprintf(info, sizeof info, "%s/latest/config.json", out);
    json_t *config = NULL;
    assert_ok(json_read_file(info, &config));
    json_t *rope = json_object_get(config, "rope_parameters");
    assert_int_equal(json_int_at(config, "max_position_embeddings"), 160);
    assert_string_equal(json_string_or(rope, "rope_type", ""), "yarn");
    assert_int_equal(json_int_at(rope, "original_max_position_embeddings"), 40);
    json_decref(config);
    assert_runs(
        program_run("eval", "--model", model, "--data", data, "--seq", "120", "--rope-scaling", "dynamic:3"));
    assert_runs(program_run("generate", model, "--prompt-ids", "1,2", "--max-tokens", "60", "--greedy",
                            "--rope-scaling", "dynamic:3"));
    assert_ok(dir_remove(out));
    assert_runs(program_run(EXTENDED, "--seq", "40", "--steps", "1", "--out", out));
    assert_refused(2, "has no rotary scaling; drop --rope-scaling", EXTENDED, "--seq", "40", "--steps", "2",
                   "--rope-scaling", "yarn:4", "--out", out, "--resume");
    assert_ok(dir_remove(out));
    unlink(data);
}

/* A dense preset with --experts is a mixture of the family that belongs to it. */
static void mixtures_of_presets(void **state) {
    (void)state;
    static const char *const models[][2] = {{"llama-1m", "mixtral"},
                                            {"mistral-5m", "mixtral"},
                                            {"qwen2.5-0.5b", "qwen2_moe"},
                                            {"qwen3-0.6b", "qwen3_moe"}};
    char out[80], path[128];
    snprintf(out, sizeof out, "%s-experts", run_dir);
    snprintf(path, sizeof path, "%s/latest/config.json", out);
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        CLEANUP(json_decrefp) json_t *config = NULL;
        assert_runs(program_run(SMALL, "--model", models[i][0], "--heads", "4", "--inner", "24", "--experts",
                                "8", "--top-k", "3", "--steps", "2", "--out", out));
        assert_ok(json_read_file(path, &config));
        assert_string_equal(json_string_or(config, "model_type", ""), models[i][1]);
        assert_int_equal(json_int_at(config, "num_experts_per_tok"), 3);
        assert_int_equal(json_int_at(config, i < 2 ? "num_local_experts" : "num_experts"), 8);
        assert_int_equal(json_int_at(config, i < 2 ? "intermediate_size" : "moe_intermediate_size"), 24);
        if (i == 2) assert_int_equal(json_int_at(config, "shared_expert_intermediate_size"), 24);
        assert_ok(dir_remove(out));
    }
    assert_refused(2, "weft has no mixtures of experts of GPT-2", SMALL, "--experts", "8");
    assert_refused(2, "add --experts to make the preset one", SMALL, "--model", "llama-1m", "--top-k", "2");
    assert_refused(2, "--top-k 9: the model has 8 experts; use at most as many", SMALL, "--model", "llama-1m",
                   "--experts", "8", "--top-k", "9");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mixtures_of_presets),
        cmocka_unit_test(frozen),
        cmocka_unit_test(json_summary),
        cmocka_unit_test(warmup_ratio),
        cmocka_unit_test(prints_a_summary),
        cmocka_unit_test(warns_quietly),
        cmocka_unit_test(stopped_and_resumed),
        cmocka_unit_test(evaluated),
        cmocka_unit_test(resumed_by_directory),
        cmocka_unit_test(resumed_automatically),
        cmocka_unit_test(moved_directory),
        cmocka_unit_test(resumed_with_other_steps),
        cmocka_unit_test(resumed_as_another),
        cmocka_unit_test(overlapping_windows),
        cmocka_unit_test(long_warmup),
        cmocka_unit_test(defaults_for_a_cpu),
        cmocka_unit_test(bench_table),
        cmocka_unit_test(other_optimizer),
        cmocka_unit_test(traced),
        cmocka_unit_test(extended_context),
    };
    return cmocka_run_group_tests(tests, make_corpus, remove_files);
}
