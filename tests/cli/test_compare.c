/* `weft compare` through the program: running, resuming, simulating and reporting a comparison, and
 * errors. */
#include <math.h>
#include <signal.h>

#include "cli/comparison.h"
#include "report/results.h"

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

/* `weft report` recreates the page, for the complete comparison or for some of its runs. */
static void reports(const Fixture *fixture) {
    char run[80], page[80], wrote[256];
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
    snprintf(wrote, sizeof wrote, "wrote %s, and its charts in %s/page-figures\n", page, fixture->dir);
    assert_contains(ran.out, wrote);
    ran_done(&ran);
    /* A run that diverged is no interrupted one, also without the comparison's results. */
    char wild[80];
    snprintf(wild, sizeof wild, "%s/wild-7", fixture->out);
    assert_ran(program_run("report", wild, "--out", page), 0, out,
               "wild-7: failed: step 2: training diverged");
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
    assert_refused(2, "quantization (quantization.json); name what 'weft train', 'compare', ", "report",
                   fixture->dir);
    snprintf(wrote, sizeof wrote, "%s/config.json", empty);
    assert_ok(file_replace(wrote, "{\"model_type\": \"gpt2\"}", 22));
    assert_refused(2, "contains no run", "report", empty);
    assert_refused(2, "/nowhere: no such directory", "report", "/nowhere");
    assert_refused(2, "not a run directory", "report", page);
    assert_refused(2, "is a directory; expected a file", "report", run, "--out", run);
    snprintf(wrote, sizeof wrote, "%s-figures", run);
    assert_false(path_exists(wrote));
    snprintf(wrote, sizeof wrote, "%s/summary.json", run);
    assert_refused(2, "summary.json is a file of the run itself", "report", fixture->out, "--out", wrote);
    assert_refused(2, "results.json is a file of the run itself", "report", fixture->out, "--out", lost,
                   "--format", "csv");
    assert_refused(2, "contains a run; choose another --out", "compare", fixture->recipe, "--out", run);
    assert_refused(2, "contains a comparison; choose another --out", "train", "--config", fixture->recipe,
                   "--run", "halves", "--quiet", "--out", fixture->out);
}

/* Whether other processes took the cores, which no test can prevent. */
static bool is_contended(const json_t *run) {
    return json_is_true(json_object_get(run, "contended"));
}

/* Every run is executed again after all have been executed once; the figures are means. */
static void repeats(void **state) {
    const Fixture *fixture = *state;
    write_recipe(fixture, 2, "[{\"name\": \"A\"}, {\"name\": \"--B\"}]");
    Ran ran = program_run("compare", fixture->recipe, "--out", fixture->out, "--repeat", "2", "--json");
    assert_int_equal(ran.code, 0);
    assert_null(strstr(ran.err, "no checkpoint in")); /* new runs are not resumed */
    const char *first = strstr(ran.err, "[2/2] --B, repeat 1 of 2\n"),
               *second = strstr(ran.err, "[1/2] A, repeat 2 of 2\n");
    assert_true(first && second && first < second);
    json_t *json = parsed(ran.out);
    const json_t *run = run_of(json, 0), *again = json_array_get(json_object_get(run, "repeats"), 0);
    assert_string_equal(text_of(again, "state"), "finished");
    double one = json_number_at(json_object_get(run, "summary"), "tokens_per_s"),
           two = json_number_at(json_object_get(again, "summary"), "tokens_per_s");
    assert_true(one > 0 && two > 0);
    double mean = figure_of(run, "tokens_per_s"); /* without a repeat that was disturbed */
    assert_true(fabs(mean - (one + two) / 2) < 1e-6 * one || mean == one || mean == two);
    /* The load of the machine is known for runs of moments, too, if only roughly. */
    const json_t *load = json_object_get(json_object_get(run, "summary"), "load");
    assert_true(json_number_at(load, "seconds") > 0 && json_number_at(load, "wanted") == 1);
    assert_true(json_is_number(json_object_get(load, "resolution")));
    json_decref(json);
    ran_done(&ran);
    /* Repeats that exist count without the option, too. */
    ran = program_run("compare", fixture->recipe, "--out", fixture->out);
    assert_int_equal(ran.code, 0);
    assert_contains(ran.err, "[2/2] --B, repeat 2 of 2: already finished\n");
    assert_contains(ran.out, "Times are means of 2 interleaved repeats.");
    ran_done(&ran);
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
    const json_t *first = run_of(json, 0), *failed = run_of(json, 1), *last = run_of(json, 2);
    if (!is_contended(first)) assert_string_equal(text_of(json, "baseline"), "whole batch");
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
    if (percent) assert_float_equal(json_number_value(percent), 100 * (rate - 1), 1e-6);
    assert_true(percent || is_contended(first) || is_contended(last));
    json_decref(json);
    free(text);
    text = read_in(fixture->out, "results.csv");
    assert_int_equal(strncmp(text, "run,state,predicted,runtime_s,runtime_s_percent,", 48), 0);
    assert_contains(text, "\n\"wild, 7\",failed,,");
    free(text);
    text = read_in(fixture->out, "report.html");
    assert_contains(text, "fastest");
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
    assert_ran(program_run("report", fixture->out, "--out", page), 0, out, "whole-batch");
    assert_refused(2, "contains a run with different options (lr)", "compare", fixture->recipe, "--quiet",
                   "--out", fixture->out, "--", "--lr", "0.5");
    expect_all_before(fixture, "continuing 3 runs that results.json does not list");
    /* A file that is not recognizably weft's may be the user's. */
    assert_ok(file_replace(path, "mine", 4));
    write_recipe(fixture, 3, "[{\"name\": \"new\"}]");
    assert_refused(1, "remove it to start over", "compare", fixture->recipe, "--quiet", "--out",
                   fixture->out);
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
                   "compare", fixture->recipe, "--out", fixture->out, "--quiet");
    survives_damaged_results(fixture);
}

/* Waits until a run's metrics have more than `limit` bytes, and returns their size. */
static size_t wait_for_steps(const Fixture *fixture, const char *run, size_t limit) {
    char path[160];
    snprintf(path, sizeof path, "%s/%s/metrics.jsonl", fixture->out, run);
    for (int i = 0; i < 6000; i++) {
        char *text = NULL;
        size_t size = 0;
        Status status = path_exists(path) ? file_read(path, 1 << 26, &text, &size) : OK;
        status_free(status);
        free(text);
        if (size > limit) return size;
        usleep(10000);
    }
    fail_msg("%s: no more steps recorded", path);
    return 0;
}

/* Ctrl-C during the first run: it stops with a checkpoint, and the same command completes the comparison. A
 * hangup that the parent ignores, as nohup does, stops nothing. */
static void interrupted(void **state) {
    const Fixture *fixture = *state;
    write_recipe(fixture, 100000, "[{\"name\": \"A\"}, {\"name\": \"B\", \"steps\": 3}]");
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr) || !freopen("/dev/null", "w", stdout)) _exit(127);
        signal(SIGHUP, SIG_IGN);
        execl(WEFT_BINARY, WEFT_BINARY, "compare", fixture->recipe, "--out", fixture->out, (char *)NULL);
        _exit(127);
    }
    size_t size = wait_for_steps(fixture, "a", 400);
    assert_int_equal(kill(child, SIGHUP), 0);
    wait_for_steps(fixture, "a", size + 10000); /* more than the step under way */
    char *table = read_in(fixture->out, "results.csv");
    assert_contains(table, "\"A\",running,,,,");
    free(table);
    assert_int_equal(kill(child, SIGINT), 0);
    int code;
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_true(WIFEXITED(code));
    assert_int_equal(WEXITSTATUS(code), 75);
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
    assert_int_equal(json_integer_value(json_object_get(summary, "steps_measured")) +
                         json_integer_value(json_object_get(summary, "steps_excluded")),
                     done + 5);
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
    write_recipe(fixture, 3, "[{\"name\": \"other\", \"steps\": 2}, {\"name\": \"last, 3\"}]");
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
    assert_refused(2, "has no such run; available: 'other', 'last, 3'", "train", "--config", fixture->recipe,
                   "--run", "nope");
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
    /* So small a model leaves a GPU idle most of the time. */
    double busy = figure_of(run_of(json, 0), "utilization");
    assert_true(busy > 0 && busy < 0.5);
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

/* The recipe in docs/comparing.md works, including its run that is too large for this machine. */
static void documented_recipe_works(void **state) {
    const Fixture *fixture = *state;
    char *page = read_in(WEFT_SOURCE_DIR, "docs/comparing.md");
    char *heading = strstr(page, "\n## Runs in a recipe\n");
    assert_non_null(heading);
    char *from = strchr(heading, '{'), *to = strstr(from, "\n    }\n");
    assert_non_null(to);
    assert_ok(file_replace(fixture->recipe, from, (size_t)(to + 6 - from)));
    assert_ran(program_run("compare", fixture->recipe, "--out", fixture->out, "--simulate", "--cluster",
                           "dgx2-v100", "--", "--data", "self"),
               0, out, "1.56 B parameters");
    free(page);
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
    assert_refused(2, "has no such scale; available: 'small'", "compare", fixture->recipe, "--scale",
                   "large");
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
    setenv("LC_ALL", "C.UTF-8", 1); /* “quotes” as they are */
    const struct CMUnitTest tests[] = {TEST(compares),
                                       TEST(repeats),
                                       TEST(old_format_name),
                                       TEST(resumes),
                                       TEST(interrupted),
                                       TEST(same_samples),
                                       TEST(one_run),
                                       TEST(simulates),
                                       TEST(simulates_many),
                                       TEST(simulates_unfetched),
                                       TEST(documented_recipe_works),
                                       TEST(refuses),
                                       TEST(refuses_runs_at_once)};
    return cmocka_run_group_tests(tests, program_setup, NULL);
}
