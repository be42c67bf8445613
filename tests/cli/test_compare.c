/* `weft compare` through the program: running, resuming, simulating and reporting a comparison, and
 * errors. */
#include <math.h>
#include <signal.h>

#include "base/fs.h"
#include "cli/program.h"
#include "report/results.h"

typedef struct Fixture {
    char dir[40], recipe[64], out[64];
} Fixture;

static int fixture_setup(void **state) {
    Fixture *fixture = calloc(1, sizeof *fixture);
    if (!fixture) return -1;
    strcpy(fixture->dir, "/tmp/weft-compare-XXXXXX");
    if (!mkdtemp(fixture->dir)) return -1;
    snprintf(fixture->recipe, sizeof fixture->recipe, "%s/tiny.json", fixture->dir);
    snprintf(fixture->out, sizeof fixture->out, "%s/out", fixture->dir);
    *state = fixture;
    return 0;
}

static int fixture_teardown(void **state) {
    Fixture *fixture = *state;
    assert_ok(dir_remove(fixture->dir));
    free(fixture);
    return 0;
}

/* Writes a recipe of a very short job with these runs. */
static void write_recipe(const Fixture *fixture, int steps, const char *runs) {
    char text[2048];
    int size = snprintf(text, sizeof text,
                        "{\"about\": \"a job of moments\", \"model\": \"gpt2-tiny\", \"layers\": 2, "
                        "\"hidden\": 16, \"heads\": 2, \"data\": [\"self\"], \"seq\": 16, \"steps\": %d, "
                        "\"batch\": 4, \"micro-batch\": 2, \"eval-every\": 0, \"eval-batches\": 1, "
                        "\"threads\": 1, \"scales\": {\"small\": {\"steps\": 2}}, \"runs\": %s}",
                        steps, runs);
    assert_true(size > 0 && (size_t)size < sizeof text);
    assert_ok(file_replace(fixture->recipe, text, (size_t)size));
}

/* The second run fails while it trains: its loss overflows. */
#define THREE_RUNS                                                                                           \
    "[{\"name\": \"whole batch\", \"micro-batch\": 4}, {\"name\": \"wild, 7\", \"lr\": 1e38}, {\"name\": "   \
    "\"halves\"}]"

static json_t *parsed(const char *text) {
    json_t *json = NULL;
    assert_ok(json_parse(text, strlen(text), "result", &json));
    return json;
}

static char *read_in(const char *dir, const char *name) {
    char path[160];
    char *text = NULL;
    size_t size;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_ok(file_read(path, 1 << 26, &text, &size));
    return text;
}

static const json_t *run_of(const json_t *json, size_t at) {
    return json_array_get(json_object_get(json, "runs"), at);
}

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static double figure_of(const json_t *run, const char *key) {
    return json_number_value(json_object_get(json_object_get(run, "figures"), key));
}

/* `weft report` recreates the page, for the complete comparison or for some of its runs. */
static void reports(const Fixture *fixture) {
    char run[80], page[80];
    snprintf(run, sizeof run, "%s/halves", fixture->out);
    snprintf(page, sizeof page, "%s/page.html", fixture->dir);
    Ran ran = program_run("report", fixture->out, "--out", page, "--json");
    assert_int_equal(ran.code, 0);
    json_t *json = parsed(ran.out);
    assert_int_equal(json_array_size(json_object_get(json, "runs")), 3);
    assert_contains(text_of(run_of(json, 1), "error"), "training diverged");
    json_decref(json);
    ran_done(&ran);
    ran = program_run("report", run, "--out", page);
    assert_int_equal(ran.code, 0);
    assert_contains(ran.out, "“halves” reached ");
    ran_done(&ran);
    ran = program_run("report", "--watch", run);
    assert_int_equal(ran.code, 0);
    assert_contains(ran.out, "step 3/3 (100%)  loss ");
    assert_contains(ran.out, "  finished\n");
    ran_done(&ran);
    assert_refused(2, "contains a comparison; name the directory of one of its runs", "report", "--watch",
                   fixture->out);
    assert_refused(2, "follows a single run, but 2 were given", "report", "--watch", run, run);
    /* Runs with the same name are distinguished by their directories. */
    char copy[80], command[280];
    snprintf(copy, sizeof copy, "%s/copy", fixture->dir);
    snprintf(command, sizeof command, "mkdir %s && cp -r %s %s", copy, run, copy);
    assert_int_equal(system(command), 0);
    snprintf(copy, sizeof copy, "%s/copy/halves", fixture->dir);
    ran = program_run("report", run, copy, "--out", page);
    assert_int_equal(ran.code, 0);
    assert_contains(ran.out, "\nout/halves ");
    assert_contains(ran.out, "\ncopy/halves ");
    ran_done(&ran);
    /* A run without data, and a comparison without its results.json, do not prevent a report of the
     * others. */
    char empty[80], lost[80];
    snprintf(empty, sizeof empty, "%s/empty", fixture->dir);
    snprintf(lost, sizeof lost, "%s/results.json", fixture->out);
    assert_ok(dir_make(empty));
    assert_ok(file_replace(lost, "{\"runs\": [", 10));
    ran = program_run("report", empty, fixture->out, "--out", page);
    assert_int_equal(ran.code, 0);
    assert_contains(ran.out, "empty: failed: contains no run");
    assert_contains(ran.out, "whole-batch");
    assert_contains(ran.out, "results.json");
    ran_done(&ran);
    assert_refused(2, "contains no run", "report", fixture->dir);
    assert_refused(2, "not a run directory", "report", "/nowhere");
}

static void compares(void **state) {
    const Fixture *fixture = *state;
    write_recipe(fixture, 3, THREE_RUNS);
    Ran ran = program_run("compare", fixture->recipe, "--out", fixture->out);
    assert_int_equal(ran.code, 1); /* because a run failed */
    assert_contains(ran.err, "[3/3] halves\n");
    assert_contains(ran.out, "samples/s");
    assert_contains(ran.out, "The same in all runs: ");
    assert_contains(ran.out, "sent 0 B");
    assert_contains(ran.out, "wild, 7: failed: step 2: training diverged");
    ran_done(&ran);
    char *text = read_in(fixture->out, "results.json");
    json_t *json = parsed(text);
    assert_string_equal(text_of(json, "baseline"), "whole batch");
    const json_t *first = run_of(json, 0), *failed = run_of(json, 1), *last = run_of(json, 2);
    assert_string_equal(text_of(first, "state"), "finished");
    assert_string_equal(text_of(failed, "state"), "failed");
    assert_contains(text_of(failed, "error"), "training diverged");
    assert_string_equal(text_of(last, "state"), "finished");
    assert_true(figure_of(first, "tokens_per_s") > 0);
    const json_t *peak = json_object_get(json_object_get(first, "summary"), "peak_flops");
    assert_true(json_number_value(peak) > 0);
    assert_true(json_equal(peak, json_object_get(json_object_get(last, "summary"), "peak_flops")));
    assert_float_equal(figure_of(first, "val_loss"), figure_of(last, "val_loss"), 1e-3);
    double rate = figure_of(last, "samples_per_s") / figure_of(first, "samples_per_s");
    const json_t *percent = json_object_get(json_object_get(last, "difference_percent"), "samples_per_s");
    assert_float_equal(json_number_value(percent), 100 * (rate - 1), 1e-6);
    json_decref(json);
    free(text);
    text = read_in(fixture->out, "results.csv");
    assert_int_equal(strncmp(text, "run,state,predicted,runtime_s,runtime_s_percent,", 48), 0);
    assert_contains(text, "\n\"wild, 7\",failed,,");
    free(text);
    text = read_in(fixture->out, "report.html");
    assert_contains(text, "is the fastest");
    assert_contains(text, "training diverged");
    free(text);
    reports(fixture);
}

static void expect_all_before(const Fixture *fixture, const char *note) {
    write_recipe(fixture, 3, THREE_RUNS);
    Ran ran = program_run("compare", fixture->recipe, "--out", fixture->out);
    assert_int_equal(ran.code, 1);
    assert_contains(ran.err, note);
    assert_contains(ran.err, "[1/3] whole batch: already finished\n");
    assert_contains(ran.err, "[3/3] halves: already finished\n");
    ran_done(&ran);
}

/* Finished runs stay finished even if results.json is damaged, because the run directories record what they
 * are. */
static void survives_damaged_results(const Fixture *fixture) {
    char path[80], page[80];
    snprintf(path, sizeof path, "%s/results.json", fixture->out);
    snprintf(page, sizeof page, "%s/page.html", fixture->dir);
    write_recipe(fixture, 3, "[{\"name\": \"whole batch\", \"micro-batch\": 4}]");
    Ran ran = program_run("compare", fixture->recipe, "--out", fixture->out);
    assert_contains(ran.err, "keeping 2 results that the recipe does not list");
    ran_done(&ran);
    expect_all_before(fixture, "[2/3] wild, 7: already failed");
    assert_ok(file_replace(path, "{\"runs\": [", 10));
    expect_all_before(fixture, "continuing 3 runs that results.json does not list");
    assert_int_equal(unlink(path), 0);
    ran = program_run("report", fixture->out, "--out", page);
    assert_int_equal(ran.code, 0);
    assert_contains(ran.out, "whole-batch");
    ran_done(&ran);
    assert_refused(2, "contains a run with different options (lr)", "compare", fixture->recipe, "--out",
                   fixture->out, "--", "--lr", "0.5");
    expect_all_before(fixture, "continuing 3 runs that results.json does not list");
    /* A file that is not recognizably weft's may be the user's. */
    assert_ok(file_replace(path, "mine", 4));
    write_recipe(fixture, 3, "[{\"name\": \"new\"}]");
    assert_refused(1, "remove it to start over", "compare", fixture->recipe, "--out", fixture->out);
}

/* Finished runs are not repeated; failed ones only on request. */
static void resumes(void **state) {
    const Fixture *fixture = *state;
    write_recipe(fixture, 3, THREE_RUNS);
    Ran ran = program_run("compare", fixture->recipe, "--out", fixture->out, "--quiet", "--json");
    assert_int_equal(ran.code, 1);
    assert_string_equal(ran.err, "");
    json_t *before = parsed(ran.out);
    ran_done(&ran);
    ran = program_run("compare", fixture->recipe, "--out", fixture->out, "--json");
    assert_contains(ran.err, "[1/3] whole batch: already finished\n");
    assert_contains(ran.err, "[2/3] wild, 7: already failed; add --retry to run it again\n");
    json_t *after = parsed(ran.out);
    assert_true(json_equal(before, after));
    json_decref(before);
    json_decref(after);
    ran_done(&ran);
    ran = program_run("compare", fixture->recipe, "--out", fixture->out, "--retry");
    assert_contains(ran.err, "[2/3] wild, 7\n");
    ran_done(&ran);
    write_recipe(fixture, 4, THREE_RUNS);
    assert_refused(2, "run 'whole batch' was started with different options (steps); choose another --out",
                   "compare", fixture->recipe, "--out", fixture->out);
    survives_damaged_results(fixture);
}

static void wait_for_steps(const Fixture *fixture, const char *run) {
    char path[160];
    snprintf(path, sizeof path, "%s/%s/metrics.jsonl", fixture->out, run);
    for (int i = 0; i < 6000; i++) {
        char *text = NULL;
        size_t size = 0;
        Status status = path_exists(path) ? file_read(path, 1 << 26, &text, &size) : OK;
        status_free(status);
        free(text);
        if (size > 400) return;
        usleep(10000);
    }
    fail_msg("%s: no steps recorded", path);
}

/* Ctrl-C during the first run: it stops with a checkpoint, and the same command completes the comparison. */
static void interrupted(void **state) {
    const Fixture *fixture = *state;
    write_recipe(fixture, 100000, "[{\"name\": \"A\"}, {\"name\": \"B\", \"steps\": 3}]");
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr) || !freopen("/dev/null", "w", stdout)) _exit(127);
        execl(WEFT_BINARY, WEFT_BINARY, "compare", fixture->recipe, "--out", fixture->out, (char *)NULL);
        _exit(127);
    }
    wait_for_steps(fixture, "a");
    char *table = read_in(fixture->out, "results.csv");
    assert_contains(table, "\"A\",running,,,,");
    free(table);
    assert_int_equal(kill(child, SIGINT), 0);
    int code;
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_true(WIFEXITED(code));
    assert_int_equal(WEXITSTATUS(code), 1);
    char *text = read_in(fixture->out, "results.json");
    json_t *json = parsed(text);
    assert_string_equal(text_of(run_of(json, 0), "state"), "interrupted");
    assert_string_equal(text_of(run_of(json, 1), "state"), "waiting");
    json_int_t done =
        json_integer_value(json_object_get(json_object_get(run_of(json, 0), "summary"), "steps"));
    double seconds = figure_of(run_of(json, 0), "runtime_s");
    assert_true(done > 0 && done < 100000);
    /* A few more steps after the checkpoint are enough to show that it resumed. */
    json_object_set_new(json_object_get((json_t *)(uintptr_t)run_of(json, 0), "settings"), "steps",
                        json_integer(done + 5));
    char path[80], runs[128];
    snprintf(path, sizeof path, "%s/results.json", fixture->out);
    assert_ok(json_write_file(path, json));
    json_decref(json);
    free(text);
    snprintf(runs, sizeof runs, "[{\"name\": \"A\", \"steps\": %d}, {\"name\": \"B\", \"steps\": 3}]",
             (int)done + 5);
    write_recipe(fixture, 100000, runs);
    Ran ran = program_run("compare", fixture->recipe, "--out", fixture->out, "--json");
    assert_int_equal(ran.code, 0);
    assert_contains(ran.err, "[1/2] A (resuming)\n");
    assert_contains(ran.err, "resuming from ");
    json = parsed(ran.out);
    assert_string_equal(text_of(run_of(json, 0), "state"), "finished");
    assert_string_equal(text_of(run_of(json, 1), "state"), "finished");
    assert_true(figure_of(run_of(json, 0), "runtime_s") > seconds);
    /* Its figures cover all its steps, before and after the interruption. */
    const json_t *summary = json_object_get(run_of(json, 0), "summary");
    assert_int_equal(json_integer_value(json_object_get(summary, "steps_measured")), done + 5);
    json_decref(json);
    ran_done(&ran);
}

/* Runs with different batch sizes are evaluated on the same samples: those of the first run. */
static void same_samples(void **state) {
    const Fixture *fixture = *state;
    write_recipe(
        fixture, 1,
        "[{\"name\": \"4\", \"eval-batches\": 3}, {\"name\": \"8\", \"batch\": 8, \"lr\": 1e-12}, {\"name\": "
        "\"2\", \"batch\": 2, \"lr\": 1e-12}]");
    Ran ran = program_run("compare", fixture->recipe, "--out", fixture->out, "--json");
    assert_int_equal(ran.code, 0);
    json_t *json = parsed(ran.out);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(
            json_integer_value(json_object_get(json_object_get(run_of(json, i), "summary"), "val_samples")),
            12);
    assert_float_equal(figure_of(run_of(json, 1), "val_loss"), figure_of(run_of(json, 2), "val_loss"), 1e-5);
    json_decref(json);
    ran_done(&ran);
}

/* `weft train --run` executes one run of a recipe, and without --run the recipe's base settings. */
static void one_run(void **state) {
    const Fixture *fixture = *state;
    write_recipe(fixture, 3, "[{\"name\": \"other\", \"steps\": 2}]");
    Ran ran = program_run("train", "--config", fixture->recipe, "--run", "other", "--quiet", "--json");
    assert_int_equal(ran.code, 0);
    json_t *json = parsed(ran.out);
    assert_int_equal(json_integer_value(json_object_get(json, "steps")), 2);
    json_decref(json);
    ran_done(&ran);
    ran = program_run("train", "--config", fixture->recipe, "--quiet", "--json");
    json = parsed(ran.out);
    assert_int_equal(json_integer_value(json_object_get(json, "steps")), 3);
    json_decref(json);
    ran_done(&ran);
    assert_refused(2, "has no such run; did you mean 'other'?", "train", "--config", fixture->recipe, "--run",
                   "othr");
    assert_refused(2, "pass it with --config", "train", "--data", "self", "--run", "other");
}

/* Dry run: one run fits and another does not, on a cluster that is not this host. */
static void simulates(void **state) {
    const Fixture *fixture = *state;
    write_recipe(fixture, 3,
                 "[{\"name\": \"A\", \"dp\": 2}, {\"name\": \"large\", \"hidden\": 32768, \"layers\": 64}, "
                 "{\"name\": \"here\", \"cluster\": null}]");
    Ran ran = program_run("compare", fixture->recipe, "--out", fixture->out, "--simulate", "--cluster",
                          "dgx2-v100");
    assert_int_equal(ran.code, 1);
    assert_contains(ran.err, "predicted for dgx2-v100");
    assert_contains(ran.out, "  predicted, baseline");
    assert_contains(ran.out, "large: failed: out of memory, as predicted: ");
    assert_contains(ran.out, "are predictions.");
    ran_done(&ran);
    char *text = read_in(fixture->out, "results.json");
    json_t *json = parsed(text);
    const json_t *summary = json_object_get(run_of(json, 0), "summary");
    assert_string_equal(text_of(summary, "predicted"), "dgx2-v100");
    assert_int_equal(json_array_size(json_object_get(summary, "ranks")), 2);
    assert_true(figure_of(run_of(json, 0), "tokens_per_s") > 0);
    assert_true(figure_of(run_of(json, 0), "peak_bytes") > 0);
    json_decref(json);
    free(text);
    text = read_in(fixture->out, "results.csv");
    assert_contains(text, "\n\"A\",finished,\"dgx2-v100\",");
    free(text);
    text = read_in(fixture->out, "report.html");
    assert_contains(text, "<span class=\"badge predicted\">predicted</span>");
    free(text);
    /* This host can then execute it. The run that does not fit stays as it is. */
    ran = program_run("compare", fixture->recipe, "--out", fixture->out, "--json");
    json = parsed(ran.out);
    assert_string_equal(text_of(run_of(json, 0), "state"), "finished");
    assert_null(json_object_get(json_object_get(run_of(json, 0), "summary"), "predicted"));
    assert_true(isfinite(figure_of(run_of(json, 0), "val_loss")));
    json_decref(json);
    ran_done(&ran);
    assert_refused(2, "names no cluster", "compare", fixture->recipe, "--simulate", "--out", fixture->out);
    assert_refused(2, "dgx2", "compare", fixture->recipe, "--cluster", "dgx2", "--out", fixture->out);
    write_recipe(fixture, 3, "[{\"name\": \"A\", \"cluster\": 5}]");
    assert_refused(2, "cluster: expected the name of a cluster", "compare", fixture->recipe);
}

/* Communication is counted over all ranks, and another cluster gives another prediction. */
static void simulates_many(void **state) {
    const Fixture *fixture = *state;
    write_recipe(fixture, 3,
                 "[{\"name\": \"64\", \"dp\": 64, \"batch\": 128, \"micro-batch\": 1}, "
                 "{\"name\": \"128\", \"dp\": 128, \"batch\": 128, \"micro-batch\": 1}]");
    double rate[2] = {0};
    for (int i = 0; i < 2; i++) {
        Ran ran = program_run("compare", fixture->recipe, "--out", fixture->out, "--simulate", "--cluster",
                              i ? "h200" : "dgx2-v100", "--json");
        assert_int_equal(ran.code, 0);
        json_t *json = parsed(ran.out);
        double few = figure_of(run_of(json, 0), "sent_bytes"),
               many = figure_of(run_of(json, 1), "sent_bytes");
        assert_true(many > 1.9 * few && many < 2.1 * few);
        rate[i] = figure_of(run_of(json, 0), "samples_per_s");
        json_decref(json);
        ran_done(&ran);
    }
    assert_true(rate[1] > rate[0]);
}

/* Planning needs only sizes, so nothing has to be fetched. The timeline is written as a trace, as runs write
 * it. */
static void simulates_unfetched(void **state) {
    static const char text[] = "{\"model\": \"@gpt2-medium\", \"tokenizer\": \"@gpt2-tokenizer\", \"data\": "
                               "[\"@wikitext-103-raw/wiki.train.raw\"], \"seq\": 128, \"batch\": 8, "
                               "\"micro-batch\": 2, \"cluster\": "
                               "\"dgx2-v100\", \"runs\": [{\"name\": \"A\", \"pp\": 2}]}";
    const Fixture *fixture = *state;
    assert_ok(file_replace(fixture->recipe, text, sizeof text - 1));
    assert_int_equal(setenv("WEFT_DATA", fixture->dir, 1), 0);
    Ran ran = program_run("compare", fixture->recipe, "--out", fixture->out, "--simulate", "--json");
    assert_int_equal(ran.code, 0);
    json_t *json = parsed(ran.out);
    const json_t *summary = json_object_get(run_of(json, 0), "summary");
    assert_int_equal(json_integer_value(json_object_get(summary, "params_total")), 353905664);
    json_decref(json);
    ran_done(&ran);
    char dir[80];
    snprintf(dir, sizeof dir, "%s/a", fixture->out);
    char *trace = read_in(dir, "trace.json"), *page = read_in(fixture->out, "report.html");
    json = parsed(trace);
    size_t forwards[2] = {0}, i;
    const json_t *event;
    json_array_foreach(json_object_get(json, "traceEvents"), i, event) {
        json_int_t stage = json_integer_value(json_object_get(event, "pid"));
        if (!strcmp(text_of(event, "cat"), "forward") && stage < 2) forwards[stage]++;
    }
    assert_true(forwards[0] == 4 && forwards[1] == 4);
    assert_contains(page, ">stage 1<");
    assert_contains(page, "title=\"B3, ");
    json_decref(json);
    free(trace);
    free(page);
    /* Executing it does need the files. */
    assert_refused(2, "run 'weft fetch gpt2-medium' first", "compare", fixture->recipe, "--out", fixture->out,
                   "--", "--device", "cpu");
    assert_int_equal(unsetenv("WEFT_DATA"), 0);
}

/* A run that cannot work is refused, by name, before any run starts: executed or simulated. */
static void refuses_runs_at_once(void **state) {
    static const struct {
        const char *run, *message;
        int code;
    } wrong[] = {
        {"{\"name\": \"B\", \"tp\": 7}", "run 'B': --tp 7 does not divide the model's 2 heads", 2},
        {"{\"name\": \"B\", \"dp\": 3}", "run 'B': ", 2},
        {"{\"name\": \"B\", \"data\": [\"/nowhere.txt\"]}", "/nowhere.txt", 1},
        {"{\"name\": \"B\", \"seq\": 100000000}", "run 'B': ", 2},
        {"{\"name\": \"B\", \"min-lr\": 5}", "min-lr 5: must not exceed the learning rate", 2},
        {"{\"name\": \"B\", \"epochs\": 5}", "cannot be combined with --steps", 2},
    };
    const Fixture *fixture = *state;
    char runs[256];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(runs, sizeof runs, "[{\"name\": \"A\"}, %s]", wrong[i].run);
        write_recipe(fixture, 3, runs);
        assert_refused(wrong[i].code, wrong[i].message, "compare", fixture->recipe, "--out", fixture->out);
        assert_refused(wrong[i].code, "run 'B': ", "compare", fixture->recipe, "--out", fixture->out,
                       "--simulate", "--cluster", "h200");
        assert_false(path_exists(fixture->out));
    }
    write_recipe(fixture, 3, "[{\"name\": \"A\"}, {\"name\": \"B\", \"device\": \"cuda\"}]");
    if (!getenv("WEFT_TEST_DEVICE"))
        assert_refused(2, "run 'B': --device cuda: no GPU", "compare", fixture->recipe, "--out",
                       fixture->out);
}

/* ---- studies ---- */

static const char study_text[] =
    "{\"model\": \"gpt2-tiny\", \"layers\": 2, \"hidden\": 16, \"heads\": 2, \"data\": [\"self\"], \"seq\": "
    "16, "
    "\"steps\": 3, \"batch\": 4, \"micro-batch\": 2, \"eval-batches\": 1, \"eval-every\": 0, \"threads\": 1, "
    "\"cluster\": \"h200\", \"study\": {\"title\": \"A <study>\", \"hardware\": \"2 slates\", \"claims\": ["
    "{\"text\": \"Halves lose\", \"figure\": \"val_loss\", \"run\": \"halves\", \"relation\": \"higher\", "
    "\"than\": \"whole\"}, {\"text\": \"Losses agree\", \"figure\": \"loss_last\", \"run\": [\"whole\", "
    "\"halves\"], \"relation\": \"equal\"}, {\"text\": \"Nobody is busy\", \"figure\": \"noise_scale\", "
    "\"run\": "
    "\"halves\", \"relation\": \"lower\", \"than\": \"whole\"}]}, \"runs\": [{\"name\": \"whole\", "
    "\"micro-batch\": 4, \"published\": {\"samples_per_s\": 2, \"val_loss\": 1, \"peak_gib\": 0.5}}, "
    "{\"name\": "
    "\"halves\", \"published\": {\"samples_per_s\": 1, \"val_loss\": 1.5, \"hardware\": \"1 slate\"}}], "
    "\"scales\": {\"small\": {\"steps\": 2}, \"other\": {\"runs\": [{\"name\": \"whole\"}, {\"name\": "
    "\"new\"}]}, "
    "\"own\": {\"study\": {\"claims\": []}}}}";

static const json_t *finding_of(const json_t *json, size_t at) {
    return json_array_get(json_object_get(json, "findings"), at);
}

static double in(const json_t *run, const char *table, const char *key) {
    return json_number_value(json_object_get(json_object_get(run, table), key));
}

/* Field `at` of a line of the table. */
static double csv_number(const char *line, size_t at) {
    for (; at > 0; at--) line = strchr(line, ',') + 1;
    return strtod(line, NULL);
}

static size_t csv_column(const char *head, const char *name) {
    size_t at = 0;
    const char *found = strstr(head, name);
    assert_non_null(found);
    for (; head < found; head++) at += *head == ',';
    return at;
}

/* Published, predicted and measured values side by side, their differences and the findings: in results.json,
 * the table, the page and the CSV file, and again from `weft report`. */
static void compares_with_study(void **state) {
    const Fixture *fixture = *state;
    char page[80];
    assert_ok(file_replace(fixture->recipe, study_text, sizeof study_text - 1));
    Ran ran = program_run("compare", fixture->recipe, "--out", fixture->out, "--quiet");
    assert_int_equal(ran.code, 0);
    assert_contains(ran.out, "\n  published ");
    assert_contains(ran.out, "\n  predicted ");
    assert_contains(ran.out, "\n    vs published ");
    assert_contains(ran.out, "Of the study's 3 conclusions, 1 holds, 1 does not, and 1 cannot be judged");
    assert_contains(ran.out, "- Halves lose: does not hold (val. loss measured 5.");
    assert_contains(ran.out, "published 1.5000 vs 1.0000 (+50.0%)).");
    ran_done(&ran);
    char *text = read_in(fixture->out, "results.json");
    json_t *json = parsed(text);
    const json_t *run = run_of(json, 0);
    assert_true(in(run, "published", "peak_bytes") == 536870912);
    double measured = figure_of(run, "samples_per_s"), predicted = in(run, "prediction", "samples_per_s");
    assert_true(predicted > 0 && measured > 0);
    assert_float_equal(in(run, "difference_from_published_percent", "samples_per_s"),
                       100 * (measured / 2 - 1), 1e-6 * measured);
    assert_string_equal(text_of(finding_of(json, 0), "verdict"), "does not hold");
    assert_string_equal(text_of(finding_of(json, 1), "verdict"), "holds");
    assert_string_equal(text_of(finding_of(json, 2), "verdict"), "not known");
    char *csv = read_in(fixture->out, "results.csv"), *line = strchr(csv, '\n') + 1;
    assert_float_equal(csv_number(line, csv_column(csv, "samples_per_s_published")), 2, 1e-9);
    assert_float_equal(csv_number(line, csv_column(csv, "samples_per_s_measured,")), measured,
                       1e-6 * measured);
    assert_float_equal(csv_number(line, csv_column(csv, "samples_per_s_predicted,")), predicted,
                       1e-6 * predicted);
    assert_float_equal(csv_number(line, csv_column(csv, "samples_per_s_predicted_vs_published_percent")),
                       100 * (predicted / 2 - 1), 1e-5 * predicted);
    char *html = read_in(fixture->out, "report.html");
    assert_contains(html, "A &lt;study&gt;, on 2 slates");
    assert_contains(html, "<small>published, 1 slate</small>");
    assert_contains(html, "<td data-label=\"memory\">537 MB</td>");
    assert_contains(html, "<span class=\"badge failed\">does not hold</span>Halves lose");
    free(html);
    free(csv);
    json_decref(json);
    free(text);
    snprintf(page, sizeof page, "%s/page.html", fixture->dir);
    ran = program_run("report", fixture->out, "--out", page, "--json");
    json = parsed(ran.out);
    assert_string_equal(text_of(finding_of(json, 1), "verdict"), "holds");
    assert_float_equal(in(run_of(json, 0), "prediction", "samples_per_s"), predicted, 1e-9 * predicted);
    json_decref(json);
    ran_done(&ran);
}

/* Runs of another size are not compared with the study's figures, only with its conclusions. */
static void resized_study(void **state) {
    const Fixture *fixture = *state;
    char other[80], own[80];
    snprintf(other, sizeof other, "%s/other", fixture->dir);
    snprintf(own, sizeof own, "%s/own", fixture->dir);
    assert_ok(file_replace(fixture->recipe, study_text, sizeof study_text - 1));
    Ran ran =
        program_run("compare", fixture->recipe, "--out", fixture->out, "--scale", "small", "--simulate");
    assert_int_equal(ran.code, 0);
    assert_null(strstr(ran.out, "vs published"));
    assert_contains(ran.out, "none holds and 3 cannot be judged from these runs");
    assert_contains(ran.out, "not known (predictions do not include val. loss;");
    assert_contains(ran.out, "vs 1.0000 (+50.0%)).");
    ran_done(&ran);
    char *html = read_in(fixture->out, "report.html");
    assert_contains(html, "These runs are smaller, so only its conclusions are compared.");
    free(html);
    /* A scale with other runs keeps the claims about runs that it has. A scale with its own study is not
     * smaller. */
    ran = program_run("compare", fixture->recipe, "--out", other, "--scale", "other", "--simulate", "--json");
    assert_int_equal(ran.code, 0);
    json_t *json = parsed(ran.out);
    assert_int_equal(json_array_size(json_object_get(json, "findings")), 0);
    json_decref(json);
    ran_done(&ran);
    ran = program_run("compare", fixture->recipe, "--out", own, "--scale", "own", "--simulate");
    assert_contains(ran.out, "vs published");
    ran_done(&ran);
}

/* Unknown keys and runs of a study are refused by name, also by commands that do not use it. */
static void refuses_studies(void **state) {
    static const struct {
        const char *study, *published, *message;
    } wrong[] = {
        {"{\"titel\": \"x\"}", "{}", "study: unknown key 'titel'; did you mean 'title'?"},
        {"{\"columns\": [\"samples\"]}", "{}", "columns: entry 1: unknown key 'samples'"},
        {"{\"claims\": [{\"text\": \"x\", \"run\": \"A\", \"relation\": \"bigger\"}]}", "{}",
         "claim 1: relation: expected \"higher\""},
        {"{\"claims\": [{\"text\": \"x\", \"run\": \"A\", \"figure\": \"lost\", \"than\": \"A\", "
         "\"relation\": \"lower\"}]}",
         "{}", "claim 1: unknown key 'lost'"},
        {"{}", "{\"val_los\": 1}", "run 'A': "},
        {"{}", "{\"val_los\": 1}", "unknown key 'val_los'; did you mean 'val_loss'?"},
        {"{}", "{\"val_loss\": \"1\"}", "published: val_loss: expected a number"},
        {"{}", "{\"outcome\": \"bad\"}", "published: outcome: expected \"out of memory\""},
        {"5", "{}", "study: expected an object"},
    };
    const Fixture *fixture = *state;
    char text[512];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        int size = snprintf(text, sizeof text,
                            "{\"data\": [\"self\"], \"study\": %s, \"runs\": [{\"name\": \"A\", "
                            "\"published\": %s}]}",
                            wrong[i].study, wrong[i].published);
        assert_ok(file_replace(fixture->recipe, text, (size_t)size));
        assert_refused(2, wrong[i].message, "compare", fixture->recipe);
        assert_refused(2, wrong[i].message, "train", "--config", fixture->recipe);
    }
    static const char stranger[] =
        "{\"data\": [\"self\"], \"study\": {\"claims\": [{\"text\": \"x\", \"run\": \"alph\", \"relation\": "
        "\"out of memory\"}]}, \"runs\": [{\"name\": \"alpha\"}]}";
    assert_ok(file_replace(fixture->recipe, stranger, sizeof stranger - 1));
    assert_refused(2, "claim 1: no run is named 'alph'; did you mean 'alpha'?", "compare", fixture->recipe);
}

/* A simulated run has a runtime if its steps are known: from --steps, from the data, or from "samples". */
static void simulates_runtime(void **state) {
    static const char recipe[] = "{\"model\": \"gpt2-tiny\", \"tokenizer\": \"@gpt2-tokenizer\", \"data\": "
                                 "[\"@wikitext-103-raw/wiki.train.raw\"], \"seq\": 128, \"batch\": 8, "
                                 "\"micro-batch\": 2, \"cluster\": "
                                 "\"h200\", \"epochs\": 2, %s\"runs\": [{\"name\": \"A\"}]}";
    static const struct {
        const char *samples;
        double steps;
    } cases[] = {{"", NAN}, {"\"samples\": 1001, ", 251}};
    const Fixture *fixture = *state;
    char text[512], corpus[80];
    assert_int_equal(setenv("WEFT_DATA", fixture->dir, 1), 0);
    for (size_t i = 0; i < 2; i++) {
        int size = snprintf(text, sizeof text, recipe, cases[i].samples);
        assert_ok(file_replace(fixture->recipe, text, (size_t)size));
        Ran ran = program_run("compare", fixture->recipe, "--out", fixture->out, "--simulate", "--json");
        assert_int_equal(ran.code, 0);
        json_t *json = parsed(ran.out);
        const json_t *summary = json_object_get(run_of(json, 0), "summary");
        double step = json_number_value(json_object_get(summary, "step_ms"));
        if (isnan(cases[i].steps))
            assert_true(
                json_is_null(json_object_get(json_object_get(run_of(json, 0), "figures"), "runtime_s")));
        else
            assert_float_equal(figure_of(run_of(json, 0), "runtime_s"), 1e-3 * step * cases[i].steps, 1e-9);
        json_decref(json);
        ran_done(&ran);
        assert_ok(dir_remove(fixture->out));
    }
    assert_int_equal(unsetenv("WEFT_DATA"), 0);
    /* 60 samples of 16 bytes, in 2 epochs of batches of 8. The command line overrides epochs with steps. */
    snprintf(corpus, sizeof corpus, "%s/corpus.bin", fixture->dir);
    char bytes[961];
    memset(bytes, 'x', sizeof bytes);
    assert_ok(file_replace(corpus, bytes, sizeof bytes));
    int size = snprintf(text, sizeof text,
                        "{\"model\": \"gpt2-tiny\", \"data\": [\"%s\"], \"format\": \"bytes\", \"seq\": 16, "
                        "\"batch\": 8, \"micro-batch\": 2, \"val-fraction\": 0, \"cluster\": \"h200\", "
                        "\"epochs\": 2, \"runs\": [{\"name\": \"A\"}]}",
                        corpus);
    assert_ok(file_replace(fixture->recipe, text, (size_t)size));
    for (int i = 0; i < 2; i++) {
        Ran ran = i ? program_run("compare", fixture->recipe, "--out", fixture->out, "--simulate", "--json",
                                  "--", "--steps", "7")
                    : program_run("compare", fixture->recipe, "--out", fixture->out, "--simulate", "--json");
        assert_int_equal(ran.code, 0);
        json_t *json = parsed(ran.out);
        const json_t *summary = json_object_get(run_of(json, 0), "summary");
        double step = json_number_value(json_object_get(summary, "step_ms"));
        assert_float_equal(figure_of(run_of(json, 0), "runtime_s"), 1e-3 * step * (i ? 7 : 15), 1e-9);
        assert_float_equal(figure_of(run_of(json, 0), "epoch_s"), 1e-3 * step * 7.5, 1e-9);
        json_decref(json);
        ran_done(&ran);
        assert_ok(dir_remove(fixture->out));
    }
}

/* The study of tensor parallelism: one program per page, named above the table; both on request. A run that
 * ran out of memory in the study, too, is no failure. */
static void predicts_one_program(void **state) {
    static const char recipe[] = WEFT_SOURCE_DIR "/recipes/megatron-sizes.json";
    const Fixture *fixture = *state;
    static const char *const programs[] = {"cluster", "weft", "both"};
    double peak[3], step[3];
    for (int i = 0; i < 3; i++) {
        Ran ran =
            program_run("compare", recipe, "--out", fixture->out, "--simulate", "--program", programs[i]);
        assert_int_equal(ran.code, 0);
        bool megatron = strstr(ran.out, "Predictions are for Megatron-LM (2019)") != NULL;
        assert_int_equal(megatron, i != 1);
        assert_int_equal(strstr(ran.out, "predicted, weft") != NULL, i == 2);
        ran_done(&ran);
        char *text = read_in(fixture->out, "results.json");
        json_t *json = parsed(text);
        peak[i] = figure_of(run_of(json, 0), "peak_bytes");
        step[i] = figure_of(run_of(json, 0), "step_ms");
        if (i == 2) {
            const json_t *weft = json_object_get(json_object_get(run_of(json, 0), "summary"), "weft");
            assert_float_equal(json_number_value(json_object_get(weft, "step_ms")), step[1], 1e-9);
        }
        /* Every published parameter count is reproduced exactly. */
        for (size_t k = 0; k < json_array_size(json_object_get(json, "runs")); k++) {
            double published = in(run_of(json, k), "published", "params_stored");
            if (published > 0) assert_true(figure_of(run_of(json, k), "params_stored") == published);
        }
        json_decref(json);
        free(text);
    }
    assert_true(peak[0] == peak[2] && step[0] == step[2]);
    assert_true(peak[0] > 30e9 && peak[0] < 32e9); /* the study's allocator held 32.1 GB */
    assert_true(peak[1] < 12e9);
}

static json_t *simulated_recipe(const Fixture *fixture, const char *name) {
    char recipe[400];
    snprintf(recipe, sizeof recipe, "%s/recipes/%s.json", WEFT_SOURCE_DIR, name);
    assert_int_equal(setenv("WEFT_DATA", fixture->dir, 1), 0); /* nothing has been fetched */
    Ran ran = program_run("compare", recipe, "--out", fixture->out, "--simulate", "--json");
    assert_int_equal(ran.code, 0);
    json_t *json = parsed(ran.out);
    ran_done(&ran);
    assert_int_equal(unsetenv("WEFT_DATA"), 0);
    assert_ok(dir_remove(fixture->out));
    return json;
}

/* DDP and FSDP on one and two GPUs, each with the same batch: an epoch with FSDP is shorter, as in the study
 * (by 44% and 23%), and FSDP needs less memory. */
static void scales_like_the_study(void **state) {
    static const struct {
        const char *recipe;
        double at_least, at_most; /* two GPUs relative to one */
    } studies[] = {{"shakespeare-gpt2", 0.52, 0.60}, {"cornell-bert", 0.73, 0.85}};
    for (size_t i = 0; i < sizeof studies / sizeof *studies; i++) {
        json_t *json = simulated_recipe(*state, studies[i].recipe);
        const json_t *ddp[] = {run_of(json, 0), run_of(json, 1)},
                     *fsdp[] = {run_of(json, 2), run_of(json, 3)};
        double ratio = figure_of(fsdp[1], "epoch_s") / figure_of(fsdp[0], "epoch_s");
        if (ratio < studies[i].at_least || ratio > studies[i].at_most)
            fail_msg("%s: an epoch on two GPUs takes %g of that on one", studies[i].recipe, ratio);
        assert_true(figure_of(ddp[1], "epoch_s") < 0.8 * figure_of(ddp[0], "epoch_s"));
        assert_true(figure_of(fsdp[1], "peak_bytes") < figure_of(fsdp[0], "peak_bytes"));
        assert_float_equal(figure_of(ddp[1], "peak_bytes") / figure_of(ddp[0], "peak_bytes"), 1, 1e-3);
        json_decref(json);
    }
}

/* The released weights are not needed: the preset has their shape. */
static void simulates_released_weights(void **state) {
    json_t *json = simulated_recipe(*state, "wikitext-gpt2-medium");
    size_t count = json_array_size(json_object_get(json, "runs"));
    assert_true(count >= 6);
    for (size_t i = 0; i < count; i++) {
        const json_t *summary = json_object_get(run_of(json, i), "summary");
        assert_string_equal(text_of(summary, "predicted"), "v100-16gb");
        assert_true(figure_of(run_of(json, i), "peak_bytes") < 16e9);
        assert_true(figure_of(run_of(json, i), "tokens_per_s") > 0);
    }
    json_decref(json);
}

static void refuses(void **state) {
    const Fixture *fixture = *state;
    write_recipe(fixture, 3, "[{\"name\": \"A\", \"zeroo\": 3}]");
    assert_refused(2, "run 'A': ", "compare", fixture->recipe, "--out", fixture->out);
    assert_refused(2, "unknown key 'zeroo'; did you mean 'zero'?", "compare", fixture->recipe);
    Ran ran = program_run("compare", fixture->recipe);
    assert_null(strstr(ran.err, "run 'A': run 'A'"));
    ran_done(&ran);
    assert_false(path_exists(fixture->out));
    write_recipe(fixture, 3, "[{\"name\": \"A\", \"out\": \"elsewhere\"}]");
    assert_refused(2, "run 'A': 'out' is set by the comparison", "compare", fixture->recipe);
    static const char *const scales[][2] = {
        {"{\"stepz\": 3}", "scale 'other': "},
        {"{\"runs\": [{\"name\": \"B\", \"ddp\": null}]}", "scale 'other': run 'B': "}};
    for (size_t i = 0; i < 2; i++) {
        char text[256];
        int size =
            snprintf(text, sizeof text,
                     "{\"data\": [\"self\"], \"runs\": [{\"name\": \"A\"}], \"scales\": {\"other\": %s}}",
                     scales[i][0]);
        assert_ok(file_replace(fixture->recipe, text, (size_t)size));
        assert_refused(2, scales[i][1], "compare", fixture->recipe);
        assert_refused(2, "unknown key", "train", "--config", fixture->recipe);
    }
    write_recipe(fixture, 3, "[{\"name\": \"A\"}, {\"name\": \"A\"}]");
    assert_refused(2, "duplicate name 'A'", "compare", fixture->recipe);
    write_recipe(fixture, 3, "[{\"name\": \"A b\"}, {\"name\": \"a-B\"}]");
    assert_refused(2, "would share the directory", "compare", fixture->recipe);
    write_recipe(fixture, 3, "[{\"steps\": 3}]");
    assert_refused(2, "runs: entry 1: expected a string as 'name'", "compare", fixture->recipe);
    write_recipe(fixture, 3, "[5]");
    assert_refused(2, "runs: entry 1: expected an object", "compare", fixture->recipe);
    write_recipe(fixture, 3, "{}");
    assert_refused(2, "runs: expected a list", "compare", fixture->recipe);
    write_recipe(fixture, 3, "[]");
    assert_refused(2, "contains no runs to compare", "compare", fixture->recipe);
    write_recipe(fixture, 3, "[{\"name\": \"A\"}]");
    assert_refused(2, "has no such scale; available: small", "compare", fixture->recipe, "--scale", "large");
    assert_refused(2, "options for the runs go after --", "compare", fixture->recipe, "more.json");
    assert_refused(2, "error: --stepz: unknown option", "compare", fixture->recipe, "--", "--stepz", "5");
    assert_refused(2, "--out is set by the comparison", "compare", fixture->recipe, "--", "--out", "x");
    assert_refused(2, "--run is not allowed for the runs", "compare", fixture->recipe, "--", "--run", "A");
    assert_refused(2, "is a recipe for 'weft prune'", "compare",
                   WEFT_SOURCE_DIR "/recipes/wikitext-gpt2-prune.json");
    assert_refused(2, "is a recipe for 'weft quantize'", "compare",
                   WEFT_SOURCE_DIR "/recipes/wikitext-gpt2-quantize.json");
    assert_refused(1, "nowhere.json", "compare", "/nowhere.json");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

/* Runs of earlier versions call the format "tokens" "shards". */
static void old_format_name(void **state) {
    const Fixture *fixture = *state;
    static const char *const configs[] = {"{\"format\": \"shards\"}", "{\"format\": \"u16\"}"};
    for (int i = 0; i < 2; i++) {
        char path[160];
        snprintf(path, sizeof path, "%s/config.json", fixture->dir);
        assert_ok(file_replace(path, configs[i], strlen(configs[i])));
        json_t *settings = json_pack("{ss}", "format", "tokens");
        Run run = {.dir = (char *)(uintptr_t)fixture->dir, .settings = settings};
        if (i == 0)
            assert_ok(run_recognize(&run));
        else
            assert_fails(run_recognize(&run), 2, "format");
        json_decref(settings);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {TEST(compares),
                                       TEST(old_format_name),
                                       TEST(resumes),
                                       TEST(interrupted),
                                       TEST(same_samples),
                                       TEST(one_run),
                                       TEST(simulates),
                                       TEST(simulates_many),
                                       TEST(simulates_unfetched),
                                       TEST(refuses),
                                       TEST(refuses_runs_at_once),
                                       TEST(compares_with_study),
                                       TEST(resized_study),
                                       TEST(refuses_studies),
                                       TEST(simulates_runtime),
                                       TEST(predicts_one_program),
                                       TEST(scales_like_the_study),
                                       TEST(simulates_released_weights)};
    return cmocka_run_group_tests(tests, program_setup, NULL);
}
