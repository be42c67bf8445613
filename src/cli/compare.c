/* weft compare: executes the runs of a recipe one after another and compares the results.
 *
 * Each run is `weft train` in a child process, so that a crash affects nothing else. results.json is updated
 * after every run; repeating the command continues from there. A run that does not fit this machine is
 * simulated if the recipe or the command line names a cluster.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/format.h"
#include "base/fs.h"
#include "base/memory.h"
#include "base/progress.h"
#include "base/terminal.h"
#include "cli/child.h"
#include "cli/command.h"
#include "cli/compare.h"
#include "cli/invocation.h"
#include "cli/show.h"
#include "cli/train_options.h"
#include "compare/comparison.h"
#include "plan/cluster.h"
#include "report/spread.h"
#include "report/study.h"
#include "train/rundir.h"

typedef struct CompareArgs {
    const char *out, *cluster, *program;
    int64_t repeat;
    double price, power;
    bool simulate, share_gpus, retry, quiet;
} CompareArgs;

/* clang-format off */
static const Option compare_table[] = {
    {OPT_TEXT("out", CompareArgs, out, "DIR"), .shown = "runs/ plus the recipe's name",
     .help = "Directory for results, page and runs. An unfinished comparison in it is continued."},
    {OPT_TEXT("cluster", CompareArgs, cluster, "NAME|FILE"), .shown = "the recipe's, if any",
     .help = "Cluster on which to simulate runs that this machine lacks GPUs or memory for, as in 'weft "
             "plan'. Without one, they fail.", .names = cluster_names},
    {OPT_FLAG("simulate", CompareArgs, simulate), .help = "Simulate all runs instead of executing them."},
    {OPT_FLAG("share-gpus", CompareArgs, share_gpus),
     .help = "Execute runs with more ranks than there are GPUs too: their ranks share them. Losses and memory are "
             "those of the layout; times are not, and are not ranked."},
    {OPT_CHOICE("program", CompareArgs, program, "NAME", recipe_programs), .shown = "the recipe's, else cluster",
     .help = "Program whose time and memory to predict: the one that the cluster file describes, if any, weft, "
             "or both."},
    {OPT_INT("repeat", CompareArgs, repeat), .fallback = "1", RANGE(1, 100),
     .help = "Execute every run N times, one round after another, and report means with their 95% confidence "
             "intervals. 3 or more tell differences from noise."},
    {OPT_FLOAT("price", CompareArgs, price), .fallback = "0", .shown = "the cluster file's, if any", AT_LEAST(0),
     .help = "Price per hour of a GPU, or of a host without GPUs, in any currency: adds the cost of a million "
             "tokens and of each run."},
    {OPT_FLOAT("power", CompareArgs, power), .fallback = "0", .shown = "the cluster file's, if any", AT_LEAST(0),
     .help = "Power in watts of a GPU, or of a host without GPUs, for the energy of predicted runs."},
    {OPT_FLAG("retry", CompareArgs, retry), .help = "Retry failed runs."},
    {OPT_FLAG("quiet", CompareArgs, quiet), .help = "Do not show progress."},
};
/* clang-format on */

enum { FIXED_WORDS = 24, NUMBER_SIZE = 24 };

/* What is known of a run before it starts. */
typedef struct Prospect {
    const char *cluster; /* where it is simulated; NULL: it is executed */
    double samples;      /* training samples per epoch; 0: unknown */
} Prospect;

/* What is known of a comparison before its first run. */
typedef struct Comparison {
    Invocation *call;
    const CompareArgs *args;
    Recipe recipe;
    char eval_samples[NUMBER_SIZE]; /* samples per evaluation of every run; "" until known */
    char *out;
    Prospect *runs;
} Comparison;

static void comparison_done(Comparison *comparison) {
    recipe_done(&comparison->recipe);
    free(comparison->runs);
    free(comparison->out);
}

/* The command line of one run; all words but the one that names the run are borrowed. */
typedef struct Line {
    char **words, *run;
} Line;

static void line_done(Line *line) {
    free(line->words);
    free(line->run);
}

/* train --config RECIPE --run=NAME [--scale NAME] [--trace] [arguments after --] [--out DIR --resume]. The
 * trace is for the timelines on the page. `name` NULL: no particular run. All runs are evaluated on the same
 * samples. */
static Status line_of(Line *ret_line, const Comparison *of, const char *name, const char *dir) {
    const Invocation *call = of->call;
    const char *words[FIXED_WORDS] = {"train", "--config", call->operands[0]};
    size_t count = 3, extra = call->operand_count - 1;
    CLEANUP(mem_freep) char *run = NULL;
    if (name) TRY(str_format(&run, "--run=%s", name)); /* one word: names may begin with a dash */
    words[count++] = name ? run : "--data=self";       /* --data is required, but may differ by run */
    if (call->scale) {
        words[count++] = "--scale";
        words[count++] = call->scale;
    }
    if (of->eval_samples[0]) {
        words[count++] = "--eval-batches";
        words[count++] = "0";
        words[count++] = "--eval-samples";
        words[count++] = of->eval_samples;
    }
    if (dir) {
        words[count++] = "--trace";
        words[count++] = "--trace-steps";
        words[count++] = "2";
    }
    char **line = NULL;
    TRY(mem_new(FIXED_WORDS + extra + 1, sizeof *line, &line));
    memcpy(line, words, count * sizeof *line);
    memcpy(line + count, call->operands + 1, extra * sizeof *line);
    count += extra;
    bool begun = dir && path_is_dir(dir) && !dir_is_empty(dir);
    const char *last[] = {"--out", dir, begun ? "--resume" : NULL};
    if (dir) memcpy(line + count, last, sizeof last);
    *ret_line = (Line){line, run};
    run = NULL;
    return OK;
}

/* Parses the run's options as train would, without requiring fetched files. */
static Status read_run(Line *line, const Comparison *of, const char *name, Invocation **ret_train) {
    int count = 0;
    TRY(line_of(line, of, name, NULL));
    while (line->words[count]) count++;
    return invocation_read(ret_train, &command_train, count - 1, line->words + 1);
}

Status compare_settle(const Invocation *train, RunSpec *ret_run) {
    TrainArgs args = *(const TrainArgs *)train->config;
    TRY(train_settle(train, &args.config, NULL));
    TRY(layout_settle(train, &args.layout, 0));
    TRY(layout_check_shard(train, &args.layout));
    args.config.training.warmup_file = warmup_file(train);
    *ret_run = (RunSpec){.config = args.config,
                         .mesh = layout_mesh(&args.layout),
                         .device_given = invocation_given(train, "device")};
    return OK;
}

/* The cluster that the command line or the recipe names for a run; NULL: none. */
static const char *cluster_of(const Comparison *of, size_t at) {
    return of->args->cluster ? of->args->cluster : recipe_cluster(&of->recipe, at);
}

/* The cluster to simulate a run on; NULL: execute it. */
static Status find_cluster(const Comparison *of, size_t at, const RunSpec *run, const char **ret_cluster) {
    const char *cluster = cluster_of(of, at);
    bool needed = of->args->simulate;
    *ret_cluster = NULL;
    if (!cluster && needed)
        return USAGE("--simulate: %s names no cluster; add --cluster NAME", of->call->operands[0]);
    if (!cluster) return OK;
    if (!needed) TRY(predict_needed(run, of->args->share_gpus, &needed));
    if (needed) *ret_cluster = cluster;
    return OK;
}

/* Rejects recipes for other commands with a hint. */
static Status check_command(const Invocation *call) {
    static const Command *const commands[] = {&command_prune, &command_quantize};
    const char *const words[] = {"--config", call->operands[0], "--out", "unused"};
    for (size_t i = 0; i < COUNT_OF(commands); i++) {
        CLEANUP(invocation_freep) Invocation *other = NULL;
        CLEANUP(status_freep)
        Status not_its = invocation_read(&other, commands[i], COUNT_OF(words), (char **)(uintptr_t)words);
        if (!not_its)
            return USAGE(
                "%s is a recipe for 'weft %s'; run one of its variants with: weft %s --config %s --run NAME",
                call->operands[0], commands[i]->name, commands[i]->name, call->operands[0]);
    }
    return OK;
}

/* Checks a run before the first one starts, so that errors do not appear hours later: options, layout and
 * data. */
static Status check_run(const Comparison *of, size_t at, const char *name, json_t **ret_settings) {
    CLEANUP(line_done) Line line = {0};
    CLEANUP(invocation_freep) Invocation *train = NULL;
    Prospect *prospect = &of->runs[at];
    RunSpec run;
    bool lacks = false;
    TRY(read_run(&line, of, name, &train));
    TRY(compare_settle(train, &run));
    TRY(find_cluster(of, at, &run, &prospect->cluster));
    TRY(predict_check(&run, prospect->cluster, stderr, of->args->quiet, &lacks, &prospect->samples));
    if (lacks && !prospect->cluster) TRY(fetched_check(train));
    if (!prospect->samples) prospect->samples = of->recipe.samples;
    return invocation_json(train, ret_settings);
}

/* Checks the recipe's common options and the arguments after --, which apply to all runs. */
static Status check_common(const Comparison *of) {
    static const char *const not_allowed = "is not allowed for the runs of a comparison";
    const Invocation *call = of->call;
    char label[LABEL_SIZE];
    CLEANUP(line_done) Line line = {0};
    CLEANUP(invocation_freep) Invocation *train = NULL;
    Status wrong = read_run(&line, of, NULL, &train), other = wrong ? check_command(call) : OK;
    if (other) status_free(wrong);
    if (wrong) return other ? other : wrong;
    if (train->help || train->json) return USAGE("--%s %s", train->help ? "help" : "json", not_allowed);
    if (train->run) return USAGE("--run %s; a comparison executes all runs", not_allowed);
    if (strcmp(train->config_path, call->operands[0])) return USAGE("--config %s", not_allowed);
    if (train->scale && (!call->scale || strcmp(train->scale, call->scale)))
        return USAGE("--scale applies to the whole comparison; put it before --");
    if (invocation_given(train, "out"))
        return USAGE("%s is set by the comparison; put --out before --",
                     invocation_label(train, "out", label));
    return OK;
}

/* All runs are evaluated on as many samples as the first, whatever their batch size. */
static Status settle_evaluation(Comparison *of) {
    const char *name = json_string_at(json_array_get(of->recipe.runs, 0), "name");
    CLEANUP(line_done) Line line = {0};
    CLEANUP(invocation_freep) Invocation *train = NULL;
    Status status = read_run(&line, of, name, &train);
    if (status) return status_wrap(status, "run '%s'", name);
    const Settings *config = &((const TrainArgs *)train->config)->config;
    snprintf(of->eval_samples, sizeof of->eval_samples, "%lld", (long long)train_eval_samples(config));
    return OK;
}

static Status add_runs(Results *results, const Comparison *of) {
    CLEANUP(progress_freep) Progress *progress = NULL;
    size_t count = json_array_size(of->recipe.runs);
    TRY(progress_new_phase(&progress, stderr, "checking runs", (int64_t)count, of->args->quiet));
    for (size_t i = 0; i < count; i++) {
        const json_t *entry = json_array_get(of->recipe.runs, i);
        const char *name = json_string_at(entry, "name");
        Run *run;
        TRY(comparison_add(results, entry, of->call->operands[0], of->out, &run));
        const json_t *published = json_object_get(entry, "published");
        Status status = check_run(of, i, name, &run->settings);
        if (status) return status_wrap(status, "run '%s'", name);
        run->samples = of->runs[i].samples;
        for (int64_t k = 1; k < of->args->repeat && !of->runs[i].cluster; k++) TRY(run_add_repeat(run));
        if (json_is_object(published)) TRY(published_settle(published, &run->published));
        progress_update(progress, (int64_t)i + 1, "");
    }
    if (of->recipe.other_runs) TRY(study_drop_claims(results));
    return study_check_runs(results, of->call->operands[0]);
}

/* Whether an option after -- gives the runs another size than the recipe does. */
static bool changes_size(const Invocation *call) {
    static const char *const options[] = {"model", "layers", "hidden", "heads", "inner",
                                          "seq",   "batch",  "steps",  "epochs"};
    for (size_t i = 1; i < call->operand_count; i++)
        for (size_t k = 0; k < COUNT_OF(options); k++) {
            const char *word = call->operands[i];
            size_t length = strlen(options[k]);
            if (!strncmp(word, "--", 2) && !strncmp(word + 2, options[k], length) &&
                (!word[2 + length] || word[2 + length] == '='))
                return true;
        }
    return false;
}

static void close_fd(int *fd) {
    if (*fd >= 0) close(*fd);
}

static Status read_earlier(Results *results, const char *out) {
    Earlier earlier;
    TRY(comparison_recall(results, out, &earlier));
    CLEANUP(mem_freep) char *damage = earlier.damage;
    if (damage) fprintf(stderr, "weft: %s\n", damage);
    if (earlier.unlisted)
        fprintf(stderr, "weft: %s: continuing %zu run%s that results.json does not list\n", out,
                earlier.unlisted, PLURAL(earlier.unlisted));
    if (earlier.kept)
        fprintf(stderr, "weft: %s: keeping %zu result%s that the recipe does not list\n", out, earlier.kept,
                PLURAL(earlier.kept));
    return OK;
}

/* An execution of a run: its index, and 0 or the number of the repeat. */
typedef struct Turn {
    size_t at, repeat;
} Turn;

static Run *run_of(const Results *results, Turn turn) {
    Run *run = &results->runs[turn.at];
    return turn.repeat ? &run->repeats[turn.repeat - 1] : run;
}

static void print_name(const Results *results, Turn turn) {
    const Run *run = &results->runs[turn.at];
    fprintf(stderr, "[%zu/%zu] ", turn.at + 1, results->count);
    terminal_put(stderr, run->name, strlen(run->name));
    if (run->repeat_count) fprintf(stderr, ", repeat %zu of %zu", turn.repeat + 1, run->repeat_count + 1);
}

static void print_start(const Results *results, Turn turn, bool again) {
    print_name(results, turn);
    fputs(again ? " (resuming)\n" : "\n", stderr);
}

static void print_end(const Run *run) {
    char time[FORMAT_SIZE], rate[FORMAT_SIZE];
    if (run->state != RUN_FINISHED) {
        fprintf(stderr, "      %s%s", run_state_name(run->state), run->error ? ": " : "");
        if (run->error) terminal_put(stderr, run->error, strlen(run->error));
        fputc('\n', stderr);
        return;
    }
    double tokens = isfinite(run->summary.tokens_per_s) ? run->summary.tokens_per_s : 0;
    double seconds = isfinite(run->summary.runtime_s) ? run->summary.runtime_s : 0;
    if (run_predicted(run)) {
        fprintf(stderr, "      predicted for %s: %s tokens/s\n", run_predicted(run),
                format_count(rate, tokens));
        return;
    }
    fprintf(stderr, "      finished in %s, %s tokens/s\n", format_duration(time, seconds),
            format_count(rate, tokens));
    Load load;
    if (!run_contended(run) || !run_load(run, &load)) return;
    fputs("      warning: ", stderr);
    load_put(stderr, &load, &load);
    fputs(" meanwhile\n", stderr);
}

/* ---- simulated runs ---- */

/* Checks the names of clusters before the first run starts. */
static Status check_clusters(const CompareArgs *args, const Recipe *recipe) {
    Cluster cluster;
    if (args->cluster) return cluster_find(args->cluster, &cluster);
    for (size_t i = 0; i < json_array_size(recipe->runs); i++)
        if (recipe_cluster(recipe, i)) TRY(cluster_find(recipe_cluster(recipe, i), &cluster));
    return OK;
}

static Prediction prediction_of(const Comparison *of, size_t at) {
    const char *own = json_string_value(of->recipe.program);
    const char *program = of->args->program ? of->args->program : own ? own : "cluster";
    return (Prediction){.cluster = cluster_of(of, at),
                        .samples = of->runs[at].samples,
                        .weft = !strcmp(program, "weft"),
                        .both = !strcmp(program, "both")};
}

static Status predict_named(const Comparison *of, const char *name, const Prediction *prediction,
                            const char *dir, json_t **ret_summary) {
    CLEANUP(line_done) Line line = {0};
    CLEANUP(invocation_freep) Invocation *train = NULL;
    RunSpec run;
    TRY(read_run(&line, of, name, &train));
    TRY(compare_settle(train, &run));
    return predict_run(&run, prediction, dir, ret_summary);
}

/* Predicts a run that is executed, to compare the prediction with what a study published. */
static Status predict_one(Results *results, size_t at, const Comparison *of) {
    Run *run = &results->runs[at];
    Prediction prediction = prediction_of(of, at);
    if (!prediction.cluster || !run->published || results->resized || of->runs[at].cluster) return OK;
    prediction.any_device = true;
    CLEANUP(json_decrefp) json_t *summary = NULL;
    CLEANUP(status_freep) Status failed = predict_named(of, run->name, &prediction, NULL, &summary);
    if (summary) run_summary_replace(&run->prediction, json_incref(summary));
    return OK; /* a run that cannot be predicted was executed all the same */
}

static Status simulate_one(Results *results, size_t at, const Comparison *of) {
    Run *run = &results->runs[at];
    CLEANUP(json_decrefp) json_t *summary = NULL;
    Prediction prediction = prediction_of(of, at);
    TRY(run_renew(run));
    if (!of->args->quiet) print_start(results, (Turn){.at = at}, false);
    CLEANUP(status_freep) Status failed = predict_named(of, run->name, &prediction, run->dir, &summary);
    TRY(comparison_end_prediction(results, run, failed, summary, of->out));
    if (!of->args->quiet) print_end(run);
    return OK;
}

/* ---- executed runs ---- */

static Status run_one(Results *results, Turn turn, const Comparison *of) {
    const CompareArgs *args = of->args;
    Run *run = run_of(results, turn);
    CLEANUP(line_done) Line line = {0};
    CLEANUP(mem_freep) char *log = NULL;
    bool again;
    TRY(comparison_begin_run(results, run, of->out, &again));
    TRY(line_of(&line, of, run->name, run->dir));
    TRY(str_format(&log, "%s.log", run->dir));
    if (!args->quiet) print_start(results, turn, again);
    ChildEnd end;
    TRY(child_run(&(Child){.argv = line.words, .log = log, .show = args->quiet ? NULL : stderr}, &end));
    TRY(comparison_end_run(results, run, end.code, end.error, children_stopped(), of->out));
    if (!args->quiet) print_end(run);
    return OK;
}

static void print_done(const Results *results, Turn turn) {
    const Run *run = run_of(results, turn);
    print_name(results, turn);
    fprintf(stderr, ": already %s%s\n", run_state_name(run->state),
            run->state == RUN_FAILED ? "; add --retry to run it again" : "");
}

static Status take_turn(Results *results, Turn turn, const Comparison *of) {
    const CompareArgs *args = of->args;
    bool simulated = of->runs[turn.at].cluster != NULL, done = false;
    Prediction wanted = prediction_of(of, turn.at);
    if (!turn.repeat) TRY(predict_one(results, turn.at, of));
    TRY(comparison_is_done(run_of(results, turn), simulated ? &wanted : NULL, args->retry, &done));
    if (!done) return simulated ? simulate_one(results, turn.at, of) : run_one(results, turn, of);
    if (!args->quiet) print_done(results, turn);
    return OK;
}

/* Rounds of one repeat of every run, so that a disturbance does not hit all repeats of one. A run that failed
 * is not repeated. */
static Status run_all(Results *results, const Comparison *of) {
    for (size_t repeat = 0, most = 0; repeat <= most; repeat++)
        for (size_t i = 0; i < results->count && !children_stopped(); i++) {
            const Run *run = &results->runs[i];
            if (run->repeat_count > most) most = run->repeat_count;
            if (repeat <= run->repeat_count && !(repeat && run->state == RUN_FAILED))
                TRY(take_turn(results, (Turn){i, repeat}, of));
        }
    Outcome outcome = comparison_outcome(results);
    outcome.interrupted |= children_stopped();
    of->call->incomplete = !outcome.finished || outcome.failed || outcome.interrupted;
    if (outcome.interrupted && !outcome.failed) of->call->exit_code = STATUS_SAVED;
    if (children_stopped()) fprintf(stderr, "weft: stopped early; repeat the command to continue\n");
    return OK;
}

/* Options that do not change what a comparison computes. */
static bool is_incidental(const char *word) {
    return !strcmp(word, "--quiet") || !strcmp(word, "--json") || !strcmp(word, "--retry");
}

/* The command line as a shell would read it. */
static Status command_text(char *const *words, char **ret_text) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,@%+";
    CLEANUP(mem_freep) char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out) return FAILED("out of memory");
    fputs("weft", out);
    for (bool own = true; *++words;) {
        own &= strcmp(*words, "--") != 0;
        if (own && is_incidental(*words)) continue;
        bool bare = **words && strspn(*words, plain) == strlen(*words);
        fputs(bare ? " " : " '", out);
        for (const char *at = *words; *at; at++) fputs(*at == '\'' ? "'\\''" : (char[]){*at, 0}, out);
        if (!bare) fputc('\'', out);
    }
    bool bad = ferror(out) != 0;
    if (fclose(out) != 0 || bad) return FAILED("out of memory");
    *ret_text = text;
    text = NULL;
    return OK;
}

static Status check(const Invocation *call) {
    if (call->config_path)
        return USAGE("--config: pass the recipe as an argument instead: weft compare FILE.json");
    if (call->run) return USAGE("--run applies only to 'weft train'; a comparison executes all runs");
    if (call->operand_count > 1 && call->operands[1][0] != '-')
        return USAGE("'%s': expected a single recipe; options for the runs go after --", call->operands[1]);
    return OK;
}

/* A report reads a directory as a run or as a comparison. */
static Status check_out(const char *out) {
    bool run;
    TRY(rundir_has_run(out, &run));
    return run ? USAGE("%s contains a run; choose another --out", out) : OK;
}

static Status run(Invocation *call, void *arguments, json_t **ret_result) {
    CLEANUP(comparison_done) Comparison comparison = {.call = call, .args = arguments};
    CLEANUP(results_done) Results results = {0};
    CLEANUP(close_fd) int locked = -1;
    TRY(check(call));
    TRY(recipe_read(&comparison.recipe, call->operands[0], call->scale));
    TRY(check_clusters(comparison.args, &comparison.recipe));
    TRY(check_common(&comparison));
    TRY(settle_evaluation(&comparison));
    TRY(comparison_describe(&results, &comparison.recipe, call->operands[0], call->scale,
                            changes_size(call)));
    TRY(command_text(call->line, &results.command));
    results.price = comparison.args->price;
    results.power = comparison.args->power;
    TRY(comparison.args->out ? str_dup(comparison.args->out, &comparison.out)
                             : comparison_dir(&results, &comparison.out));
    size_t count = json_array_size(comparison.recipe.runs);
    TRY(mem_new(count, sizeof *comparison.runs, &comparison.runs));
    TRY(add_runs(&results, &comparison));
    const char *out = comparison.out;
    TRY(check_out(out));
    TRY(dir_make(out));
    TRY(comparison_lock(out, &locked));
    TRY(read_earlier(&results, out));
    TRY(comparison_share_peak(out));
    children_watch_signals();
    TRY(run_all(&results, &comparison));
    TRY(comparison_write(&results, out));
    TRY(results_json(&results, ret_result));
    if (json_object_set_new(*ret_result, "dir", json_string(out)) != 0) return FAILED("out of memory");
    return OK;
}

static Status show(const Invocation *call, const json_t *result, FILE *out) {
    (void)call;
    const char *dir = json_string_at(result, "dir");
    CLEANUP(results_done) Results results = {0};
    TRY(results_read(&results, dir));
    TRY(show_results(&results, out));
    fprintf(out, "\nwrote report.html, results.json and results.csv in %s\n", dir);
    return OK;
}

const Command command_compare = {
    .name = "compare",
    .summary = "execute the runs of a recipe and compare them",
    .description = "Executes the runs of a recipe one after another, each as 'weft train' in a child "
                   "process, and prints a table with the first run as the baseline. All runs are checked "
                   "before the first one starts. A run that fails later is listed with its reason, and the "
                   "exit code is 1. Runs that do not fit this machine are simulated on the recipe's "
                   "cluster and marked as predicted. Ctrl-C stops the current run at a checkpoint; repeat "
                   "the command to continue.\n\n"
                   "The output directory contains report.html (a self-contained page), results.json, "
                   "results.csv, and each run's directory and log (NAME.log).",
    .operands = "RECIPE.json [-- TRAIN-OPTION...]",
    .operands_min = 1,
    .operands_max = 128,
    .config_size = sizeof(CompareArgs),
    .groups = GROUPS(OPTION_GROUP("Comparison", compare_table, 0)),
    .examples =
        {{"Data parallelism vs pipelines, in minutes on two cores",
          "weft compare recipes/squad-bert-base.json --scale small"},
         {"Three interleaved repeats of each run, to tell differences from noise",
          "weft compare recipes/squad-bert-base.json --scale small --repeat 3"},
         {"The same on GPUs; options after -- apply to all runs",
          "weft compare recipes/squad-bert-base.json --out runs/squad -- --device cuda"},
         {"Predict the results on eight A100s without having any",
          "weft compare recipes/squad-bert-base.json --simulate --cluster dgx-a100 --out runs/squad-a100"}},
    .recipe = RECIPE_OPERAND,
    .run = run,
    .show = show,
};
