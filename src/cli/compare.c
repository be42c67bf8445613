/* weft compare: executes the runs of a recipe one after another and compares the results.
 *
 * Each run is `weft train` in a child process, so that a crash affects nothing else. results.json is updated
 * after every run; repeating the command continues from there. A run that does not fit this machine is
 * simulated if the recipe or the command line names a cluster.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/format.h"
#include "base/fs.h"
#include "base/memory.h"
#include "base/progress.h"
#include "base/terminal.h"
#include "cli/child.h"
#include "cli/command.h"
#include "cli/recipe.h"
#include "cli/show_results.h"
#include "cli/simulate.h"
#include "cli/train_options.h"
#include "plan/cluster.h"
#include "report/page.h"
#include "report/study.h"

typedef struct CompareArgs {
    const char *out, *cluster, *program;
    bool simulate, retry, quiet;
} CompareArgs;

static const char *const program_choices[] = {"cluster", "weft", "both", NULL};

/* clang-format off */
static const Option compare_table[] = {
    {OPT_TEXT("out", CompareArgs, out, "DIR"), .shown = "runs/ plus the recipe's name",
     .help = "Directory for results, page and runs. An unfinished comparison in it is continued."},
    {OPT_TEXT("cluster", CompareArgs, cluster, "NAME|FILE"), .shown = "the recipe's, if any",
     .help = "Cluster on which to simulate runs that this machine lacks GPUs or memory for, as in 'weft "
             "plan'. Without one, they fail."},
    {OPT_FLAG("simulate", CompareArgs, simulate), .help = "Simulate all runs instead of executing them."},
    {OPT_CHOICE("program", CompareArgs, program, "NAME", program_choices), .fallback = "cluster",
     .help = "Program whose time and memory to predict: the one that the cluster file describes, if any, weft, "
             "or both."},
    {OPT_FLAG("retry", CompareArgs, retry), .help = "Retry failed runs."},
    {OPT_FLAG("quiet", CompareArgs, quiet), .help = "Do not show progress."},
};
/* clang-format on */

static const OptionGroup groups[] = {OPTION_GROUP("Comparison", compare_table, 0)};

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

/* The command line of one run; the words are borrowed. */
typedef struct Line {
    char **words;
} Line;

static void line_done(Line *line) {
    free(line->words);
}

/* train --config RECIPE [--scale NAME] --run NAME [--trace] [arguments after --] [--out DIR --resume]. The
 * trace is for the timelines on the page. `name` NULL: no particular run. All runs are evaluated on the same
 * samples. */
static Status line_of(Line *ret_line, const Comparison *of, const char *name, const char *dir) {
    const Invocation *call = of->call;
    const char *words[FIXED_WORDS] = {"train", "--config", call->operands[0]};
    size_t count = 3, extra = call->operand_count - 1;
    words[count++] = name ? "--run" : "--data"; /* --data is required, but may differ by run */
    words[count++] = name ? name : "self";
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
    const char *last[] = {"--out", dir, "--resume"};
    if (dir) memcpy(line + count, last, sizeof last);
    ret_line->words = line;
    return OK;
}

/* Parses the run's options as train would, without requiring fetched files. */
static Status read_run(Line *line, const Comparison *of, const char *name, Invocation **ret_train) {
    int count = 0;
    TRY(line_of(line, of, name, NULL));
    while (line->words[count]) count++;
    return invocation_read(ret_train, &command_train, count - 1, line->words + 1);
}

/* The cluster that the command line or the recipe names for a run; NULL: none. */
static const char *cluster_of(const Comparison *of, size_t at) {
    return of->args->cluster ? of->args->cluster : recipe_cluster(&of->recipe, at);
}

/* The cluster to simulate a run on; NULL: execute it. */
static Status find_cluster(const Comparison *of, size_t at, Invocation *train, const char **ret_cluster) {
    const char *cluster = cluster_of(of, at);
    bool needed = of->args->simulate;
    *ret_cluster = NULL;
    if (!cluster && needed)
        return USAGE("--simulate: %s names no cluster; add --cluster NAME", of->call->operands[0]);
    if (!cluster) return OK;
    if (!needed) TRY(simulate_needed(train, &needed));
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
    Prospect *run = &of->runs[at];
    TRY(read_run(&line, of, name, &train));
    TRY(find_cluster(of, at, train, &run->cluster));
    TRY(simulate_check(train, run->cluster, of->args->quiet, &run->samples));
    if (!run->samples) run->samples = of->recipe.samples;
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
    const TrainConfig *config = &((const TrainArgs *)train->config)->config;
    snprintf(of->eval_samples, sizeof of->eval_samples, "%lld", (long long)train_eval_samples(config));
    return OK;
}

/* A directory name: letters and digits, separated by single dashes. */
static Status slug_of(const char *name, const char *dir, char **ret_path) {
    char slug[96];
    size_t length = 0;
    for (; *name && length + 2 < sizeof slug; name++) {
        if (isalnum((unsigned char)*name))
            slug[length++] = (char)tolower((unsigned char)*name);
        else if (length && slug[length - 1] != '-')
            slug[length++] = '-';
    }
    while (length && slug[length - 1] == '-') length--;
    slug[length] = 0;
    return path_join(ret_path, dir, length ? slug : "run");
}

static Status add_runs(Results *results, const Comparison *of) {
    CLEANUP(progress_freep) Progress *progress = NULL;
    size_t count = json_array_size(of->recipe.runs);
    TRY(progress_new_phase(&progress, stderr, "checking runs", (int64_t)count, of->args->quiet));
    for (size_t i = 0; i < count; i++) {
        const json_t *entry = json_array_get(of->recipe.runs, i);
        const char *name = json_string_at(entry, "name");
        CLEANUP(mem_freep) char *dir = NULL;
        Run *run;
        if (json_object_get(entry, "out"))
            return USAGE("%s: run '%s': 'out' is set by the comparison; use --out instead",
                         of->call->operands[0], name);
        TRY(slug_of(name, of->out, &dir));
        for (size_t k = 0; k < results->count; k++)
            if (!strcmp(results->runs[k].dir, dir))
                return USAGE("%s: runs '%s' and '%s' would share the directory %s; rename one",
                             of->call->operands[0], results->runs[k].name, name, dir);
        TRY(results_add(results, name, dir, &run));
        run->options = json_copy((json_t *)(uintptr_t)entry);
        json_object_del(run->options, "name");
        json_object_del(run->options, "published");
        const json_t *published = json_object_get(entry, "published");
        Status status = check_run(of, i, name, &run->settings);
        if (status) return status_wrap(status, "run '%s'", name);
        run->samples = of->runs[i].samples;
        if (json_is_object(published)) TRY(published_settle(published, &run->published));
        progress_update(progress, (int64_t)i + 1, "");
    }
    if (of->recipe.other_runs) TRY(study_drop_claims(results));
    return study_check_runs(results, of->call->operands[0]);
}

/* The file's name without directory and extension. */
static Status title_of(const char *path, char **ret_title) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');
    return str_format(ret_title, "%.*s", (int)(dot && dot > name ? (size_t)(dot - name) : strlen(name)),
                      name);
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

static Status describe(Results *results, const Comparison *of) {
    const Invocation *call = of->call;
    const Recipe *recipe = &of->recipe;
    TRY(title_of(call->operands[0], &results->title));
    if (recipe->about) TRY(str_dup(json_string_value(recipe->about), &results->about));
    if (call->scale) TRY(str_dup(call->scale, &results->scale));
    results->study = json_incref(recipe->study);
    results->resized = recipe->resized || changes_size(call);
    return OK;
}

static Status find_out(const CompareArgs *args, const Results *results, char **ret_out) {
    if (args->out) return str_dup(args->out, ret_out);
    return str_format(ret_out, "runs/%s%s%s", results->title, results->scale ? "-" : "",
                      results->scale ? results->scale : "");
}

static void close_fd(int *fd) {
    if (*fd >= 0) close(*fd);
}

/* The lock is released when the process ends. */
static Status lock(const char *out, int *ret_fd) {
    *ret_fd = open(out, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*ret_fd < 0) return FAILED("%s: the directory cannot be opened: %s", out, strerror(errno));
    if (flock(*ret_fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return FAILED("%s: another process is running this comparison", out);
    return OK;
}

/* Reads the results of earlier invocations. Runs that results.json does not list are recognized by their
 * config.json. If results.json is damaged and no run is recognized, the directory may belong to something
 * else. */
static Status read_earlier(Results *results, const char *out) {
    CLEANUP(mem_freep) char *damage = NULL;
    size_t found = 0;
    TRY(results_recall(results, out, &damage));
    for (size_t i = 0; i < results->count; i++) {
        Run *run = &results->runs[i];
        TRY(run_look(run));
        if (run->state == RUN_RUNNING) return FAILED("%s: another process is executing this run", run->dir);
        if (run->known || run->state == RUN_WAITING) continue;
        TRY(run_recognize(run));
        found++;
    }
    if (damage && !found) return FAILED("%s; remove it to start over, or choose another --out", damage);
    if (damage) fprintf(stderr, "weft: %s\n", damage);
    if (found)
        fprintf(stderr, "weft: %s: continuing %zu run%s that results.json does not list\n", out, found,
                PLURAL(found));
    size_t others = json_array_size(results->others);
    if (others)
        fprintf(stderr, "weft: %s: keeping %zu result%s that the recipe does not list\n", out, others,
                PLURAL(others));
    return OK;
}

static void print_name(const Results *results, size_t at) {
    const char *name = results->runs[at].name;
    fprintf(stderr, "[%zu/%zu] ", at + 1, results->count);
    terminal_put(stderr, name, strlen(name));
}

static void print_start(const Results *results, size_t at, bool again) {
    print_name(results, at);
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
    double seconds = 0, tokens = 0;
    if (run_predicted(run)) {
        json_has_number(run->summary, "tokens_per_s", &tokens);
        fprintf(stderr, "      predicted for %s: %s tokens/s\n", run_predicted(run),
                format_count(rate, tokens));
        return;
    }
    json_has_number(run->summary, "runtime_s", &seconds);
    json_has_number(run->summary, "tokens_per_s", &tokens);
    fprintf(stderr, "      finished in %s, %s tokens/s\n", format_duration(time, seconds),
            format_count(rate, tokens));
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

static Status write_simulated(const Run *run, const json_t *summary) {
    CLEANUP(mem_freep) char *config = NULL, *path = NULL;
    TRY(dir_make(run->dir));
    TRY(path_join(&config, run->dir, "config.json"));
    TRY(path_join(&path, run->dir, "summary.json"));
    TRY(json_write_file(config, run->settings));
    return json_write_file(path, summary);
}

static Simulation simulation_of(const Comparison *of, size_t at) {
    return (Simulation){.cluster = cluster_of(of, at),
                        .samples = of->runs[at].samples,
                        .weft = !strcmp(of->args->program, "weft"),
                        .both = !strcmp(of->args->program, "both")};
}

/* Predicts a run that is executed, to compare the prediction with what a study published. */
static Status predict_one(Results *results, size_t at, const Comparison *of) {
    Run *run = &results->runs[at];
    CLEANUP(line_done) Line line = {0};
    CLEANUP(invocation_freep) Invocation *train = NULL;
    Simulation simulation = simulation_of(of, at);
    if (!simulation.cluster || !run->published || results->resized || of->runs[at].cluster) return OK;
    simulation.any_device = true;
    TRY(read_run(&line, of, run->name, &train));
    CLEANUP(status_freep) Status failed = simulate_run(train, &simulation, NULL, &run->prediction);
    return OK; /* a run that cannot be predicted was executed all the same */
}

static Status simulate_one(Results *results, size_t at, const Comparison *of) {
    const CompareArgs *args = of->args;
    Run *run = &results->runs[at];
    CLEANUP(line_done) Line line = {0};
    CLEANUP(invocation_freep) Invocation *train = NULL;
    CLEANUP(json_decrefp) json_t *summary = NULL;
    TRY(run_renew(run));
    if (!args->quiet) print_start(results, at, false);
    TRY(read_run(&line, of, run->name, &train));
    Simulation simulation = simulation_of(of, at);
    CLEANUP(status_freep) Status failed = simulate_run(train, &simulation, run->dir, &summary);
    if (failed) {
        run->state = RUN_FAILED;
        TRY(str_dup(status_message(failed), &run->error));
    } else {
        TRY(write_simulated(run, summary));
    }
    TRY(run_look(run));
    if (!args->quiet) print_end(run);
    return results_write(results, of->out);
}

/* ---- executed runs ---- */

/* The first run measures the peak for all, so that their MFU is comparable. */
static Status share_peak(const char *out) {
    CLEANUP(mem_freep) char *path = NULL;
    TRY(path_join(&path, out, "peak.json"));
    return setenv("WEFT_PEAK_FILE", path, 1) ? FAILED("out of memory") : OK;
}

static Status run_one(Results *results, size_t at, const Comparison *of) {
    const CompareArgs *args = of->args;
    Run *run = &results->runs[at];
    CLEANUP(line_done) Line line = {0};
    CLEANUP(mem_freep) char *log = NULL;
    bool again = run->state == RUN_INTERRUPTED;
    TRY(run_renew(run));
    run->state = RUN_RUNNING;
    TRY(results_write(results, of->out));
    TRY(line_of(&line, of, run->name, run->dir));
    TRY(str_format(&log, "%s.log", run->dir));
    if (!args->quiet) print_start(results, at, again);
    ChildEnd end;
    TRY(child_run(&(Child){line.words, log, args->quiet ? NULL : stderr}, &end));
    free(run->error);
    run->error = end.error;
    /* A run that was asked to stop has not failed, whatever its exit code. */
    if (end.code && end.code != STATUS_SAVED && !children_stopped()) run->state = RUN_FAILED;
    if (run->state == RUN_FAILED && !run->error)
        TRY(str_format(&run->error, "exited with code %d and no error message", end.code));
    TRY(run_look(run));
    if (!args->quiet) print_end(run);
    return results_write(results, of->out);
}

/* Whether a prediction is the one that is asked for: for the same cluster and program. */
static bool is_same_prediction(const Run *run, const Cluster *machine, const CompareArgs *args) {
    bool other = machine->software.present && strcmp(args->program, "weft");
    bool both = other && !strcmp(args->program, "both");
    const char *program = json_string_at(run->summary, "program");
    return !strcmp(machine->name, run_predicted(run)) && (program != NULL) == other &&
           (json_object_get(run->summary, "weft") != NULL) == both;
}

/* Whether a run needs no more work. A prediction does not count if this machine can execute the run, or if
 * it is for another cluster. A run that was predicted to fail is simulated again, which takes no time. */
static Status is_done(const Run *run, const char *cluster, const CompareArgs *args, bool *ret_done) {
    const char *predicted = run_predicted(run);
    Cluster machine;
    if (run->state == RUN_FAILED) {
        *ret_done = !args->retry && !(cluster && strstr(run->error ? run->error : "", "as predicted"));
        return OK;
    }
    *ret_done = run->state == RUN_FINISHED && (!predicted || cluster);
    if (!*ret_done || !predicted) return OK;
    TRY(cluster_find(cluster, &machine));
    *ret_done = is_same_prediction(run, &machine, args);
    return OK;
}

/* Whether a run failed that did not fail in the study for the same reason. */
static bool has_failed(const Run *run) {
    return run->state == RUN_FAILED && !(run_lacks_memory(run) && published_lacks_memory(run));
}

static void print_done(const Results *results, size_t at) {
    const Run *run = &results->runs[at];
    print_name(results, at);
    fprintf(stderr, ": already %s%s\n", run_state_name(run->state),
            run->state == RUN_FAILED ? "; add --retry to run it again" : "");
}

static Status run_all(Results *results, const Comparison *of) {
    const CompareArgs *args = of->args;
    bool any = false, failed = false;
    for (size_t i = 0; i < results->count && !children_stopped(); i++) {
        const char *cluster = of->runs[i].cluster;
        bool done = false;
        TRY(predict_one(results, i, of));
        TRY(is_done(&results->runs[i], cluster, args, &done));
        if (!done)
            TRY(cluster ? simulate_one(results, i, of) : run_one(results, i, of));
        else if (!args->quiet)
            print_done(results, i);
    }
    for (size_t i = 0; i < results->count; i++) {
        any |= results->runs[i].state == RUN_FINISHED;
        failed |= has_failed(&results->runs[i]);
    }
    bool interrupted = children_stopped();
    for (size_t i = 0; i < results->count; i++) interrupted |= results->runs[i].state == RUN_INTERRUPTED;
    of->call->incomplete = !any || failed || interrupted;
    if (interrupted && !failed) of->call->exit_code = STATUS_SAVED;
    if (children_stopped()) fprintf(stderr, "weft: stopped early; repeat the command to continue\n");
    return OK;
}

static Status write_page(const Results *results, const char *out) {
    CLEANUP(mem_freep) char *path = NULL;
    bool curves;
    TRY(path_join(&path, out, "report.html"));
    return page_write(results, path, &curves);
}

static Status check(const Invocation *call) {
    if (call->config_path)
        return USAGE("--config: pass the recipe as an argument instead: weft compare FILE.json");
    if (call->run) return USAGE("--run applies only to 'weft train'; a comparison executes all runs");
    if (call->operand_count > 1 && call->operands[1][0] != '-')
        return USAGE("'%s': expected a single recipe; options for the runs go after --", call->operands[1]);
    return OK;
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
    TRY(describe(&results, &comparison));
    TRY(find_out(comparison.args, &results, &comparison.out));
    size_t count = json_array_size(comparison.recipe.runs);
    TRY(mem_new(count, sizeof *comparison.runs, &comparison.runs));
    TRY(add_runs(&results, &comparison));
    const char *out = comparison.out;
    TRY(dir_make(out));
    TRY(lock(out, &locked));
    TRY(read_earlier(&results, out));
    TRY(share_peak(out));
    children_watch_signals();
    TRY(run_all(&results, &comparison));
    TRY(results_write(&results, out));
    TRY(write_page(&results, out));
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

static const Example examples[] = {
    {"Data parallelism vs pipelines, in minutes on two cores",
     "weft compare recipes/squad-bert-base.json --scale small"},
    {"The same on GPUs; options after -- apply to all runs",
     "weft compare recipes/squad-bert-base.json --out runs/squad -- --device cuda"},
    {"Predict the results on eight A100s without having any",
     "weft compare recipes/squad-bert-base.json --simulate --cluster dgx-a100 --out runs/squad-a100"},
};

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
    .groups = groups,
    .group_count = COUNT_OF(groups),
    .examples = examples,
    .example_count = COUNT_OF(examples),
    .recipe = RECIPE_OPERAND,
    .run = run,
    .show = show,
};
