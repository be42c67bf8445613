/* weft compare: the runs of a recipe one after another, and what they came to side by side.
 *
 * Each run is `weft train` in a process of its own, so that one that dies takes nothing with it. What is
 * known so far is in results.json after every run; the same command goes on from there. A run that this
 * machine cannot hold is simulated, where the recipe or the line says on which machine.
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
#include "cli/child.h"
#include "cli/command.h"
#include "cli/configfile.h"
#include "cli/recipe.h"
#include "cli/show.h"
#include "cli/show_results.h"
#include "cli/simulate.h"
#include "cli/train_options.h"
#include "plan/cluster.h"
#include "report/page.h"

typedef struct CompareArgs {
    const char *out, *cluster;
    bool simulate, retry, quiet;
} CompareArgs;

/* clang-format off */
static const Option compare_table[] = {
    {OPT_TEXT("out", CompareArgs, out, "DIR"), .shown = "runs/ and the recipe's name",
     .help = "Directory for the results, the page and the runs. The same one again goes on with what is not "
             "finished there."},
    {OPT_TEXT("cluster", CompareArgs, cluster, "NAME|FILE"), .shown = "what the recipe names, or none",
     .help = "The machine to simulate runs on that this one cannot hold, for want of GPUs or memory; as for "
             "'weft plan'. Without one, they fail."},
    {OPT_FLAG("simulate", CompareArgs, simulate), .help = "Simulate all runs, and carry out none."},
    {OPT_FLAG("retry", CompareArgs, retry), .help = "Try runs again that failed."},
    {OPT_FLAG("quiet", CompareArgs, quiet), .help = "Show no progress."},
};
/* clang-format on */

static const OptionGroup groups[] = {OPTION_GROUP("Comparison", compare_table, 0)};

enum { FIXED_WORDS = 24, NUMBER_SIZE = 24 };

/* All that is known of the comparison before its first run. */
typedef struct Comparison {
    Invocation *call;
    const CompareArgs *args;
    Recipe recipe;
    char eval_samples[NUMBER_SIZE]; /* of every run; "": not settled yet */
    char *out;
} Comparison;

static void comparison_done(Comparison *comparison) {
    recipe_done(&comparison->recipe);
    free(comparison->out);
}

/* The words of one run's command line; they point into the others. */
typedef struct Line {
    char **words;
} Line;

static void line_done(Line *line) {
    free(line->words);
}

/* train --config RECIPE [--scale NAME] --run NAME [--trace] [what came after --] [--out DIR --resume]. The
 * trace is for the page's timelines. `name` NULL: of no run in particular. All runs are evaluated on the same
 * samples. */
static Status line_of(Line *ret_line, const Comparison *of, const char *name, const char *dir) {
    const Invocation *call = of->call;
    const char *words[FIXED_WORDS] = {"train", "--config", call->operands[0]};
    size_t count = 3, extra = call->operand_count - 1;
    words[count++] = name ? "--run" : "--data"; /* each run may name data of its own, and some is required */
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

/* Reads the run's options as train would; files that they name may not have been fetched. */
static Status read_run(Line *line, const Comparison *of, const char *name, Invocation **ret_train) {
    int count = 0;
    TRY(line_of(line, of, name, NULL));
    while (line->words[count]) count++;
    return invocation_read(ret_train, &command_train, count - 1, line->words + 1);
}

/* The machine to simulate a run on; NULL: it is carried out. What cannot be planned fails there, with the
 * planner's sentence. */
static Status find_cluster(const Comparison *of, size_t at, const char **ret_cluster) {
    const CompareArgs *args = of->args;
    const Recipe *recipe = &of->recipe;
    const char *name = json_string_value(json_object_get(json_array_get(recipe->runs, at), "name"));
    const char *cluster = args->cluster ? args->cluster : recipe_cluster(recipe, at);
    CLEANUP(line_done) Line line = {0};
    CLEANUP(invocation_freep) Invocation *train = NULL;
    bool needed = args->simulate;
    *ret_cluster = NULL;
    if (!cluster && args->simulate)
        return USAGE("--simulate: %s names no cluster; --cluster says which machine to simulate",
                     of->call->operands[0]);
    if (!cluster) return OK;
    TRY(read_run(&line, of, name, &train));
    CLEANUP(status_freep) Status impossible = needed ? OK : simulate_needed(train, &needed);
    if (needed || impossible) *ret_cluster = cluster;
    return OK;
}

/* A run that is simulated needs none of its files. */
static Status check_files(const Comparison *of, size_t at, const Invocation *train) {
    const char *cluster;
    Status missing = configfile_check(train);
    if (!missing) return OK;
    Status status = find_cluster(of, at, &cluster);
    if (!status && !cluster) return missing;
    status_free(missing);
    return status;
}

/* A recipe of another command is refused by name. */
static Status check_command(const Invocation *call) {
    static const Command *const commands[] = {&command_prune, &command_quantize};
    const char *const words[] = {"--config", call->operands[0], "--out", "unused"};
    for (size_t i = 0; i < COUNT_OF(commands); i++) {
        CLEANUP(invocation_freep) Invocation *other = NULL;
        CLEANUP(status_freep)
        Status not_its = invocation_read(&other, commands[i], COUNT_OF(words), (char **)(uintptr_t)words);
        if (!not_its)
            return USAGE(
                "%s: is a recipe for 'weft %s', which makes one run of it at a time: weft %s --config "
                "%s --run NAME",
                call->operands[0], commands[i]->name, commands[i]->name, call->operands[0]);
    }
    return OK;
}

/* Before the first run starts, so that a mistake shows before hours of work. */
static Status settings_of(const Comparison *of, size_t at, const char *name, json_t **ret_settings) {
    CLEANUP(line_done) Line line = {0};
    CLEANUP(invocation_freep) Invocation *train = NULL;
    Status status = read_run(&line, of, name, &train);
    if (status) return status_wrap(status, "run '%s'", name);
    TRY(check_files(of, at, train));
    return invocation_json(train, ret_settings);
}

/* What a recipe says of no run in particular, and what follows --, is right or wrong for all runs alike. */
static Status check_common(const Comparison *of) {
    static const char *const not_one = "is not for the runs of a comparison";
    const Invocation *call = of->call;
    char label[LABEL_SIZE];
    CLEANUP(line_done) Line line = {0};
    CLEANUP(invocation_freep) Invocation *train = NULL;
    Status wrong = read_run(&line, of, NULL, &train), other = wrong ? check_command(call) : OK;
    if (other) status_free(wrong);
    if (wrong) return other ? other : wrong;
    if (train->help || train->json) return USAGE("--%s: %s", train->help ? "help" : "json", not_one);
    if (train->run) return USAGE("--run: %s, which takes them all", not_one);
    if (strcmp(train->config_path, call->operands[0])) return USAGE("--config: %s", not_one);
    if (train->scale && (!call->scale || strcmp(train->scale, call->scale)))
        return USAGE("--scale: is the comparison's; name it before --");
    if (invocation_given(train, "out"))
        return USAGE("%s: a comparison keeps its runs in its own directory, which --out names before --",
                     invocation_label(train, "out", label));
    return OK;
}

/* As many as the first run's, whose batches may be smaller or larger than those of others. */
static Status settle_evaluation(Comparison *of) {
    const char *name = json_string_value(json_object_get(json_array_get(of->recipe.runs, 0), "name"));
    CLEANUP(line_done) Line line = {0};
    CLEANUP(invocation_freep) Invocation *train = NULL;
    Status status = read_run(&line, of, name, &train);
    if (status) return status_wrap(status, "run '%s'", name);
    const TrainConfig *config = &((const TrainArgs *)train->config)->config;
    snprintf(of->eval_samples, sizeof of->eval_samples, "%lld", (long long)train_eval_samples(config));
    return OK;
}

/* A name for a directory: its letters and digits, with single dashes between. */
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
    for (size_t i = 0; i < json_array_size(of->recipe.runs); i++) {
        const json_t *entry = json_array_get(of->recipe.runs, i);
        const char *name = json_string_value(json_object_get(entry, "name"));
        CLEANUP(mem_freep) char *dir = NULL;
        Run *run;
        if (json_object_get(entry, "out"))
            return USAGE(
                "%s: run '%s': out: a comparison keeps its runs in its own directory, which --out names",
                of->call->operands[0], name);
        TRY(slug_of(name, of->out, &dir));
        for (size_t k = 0; k < results->count; k++)
            if (!strcmp(results->runs[k].dir, dir))
                return USAGE("%s: runs '%s' and '%s' would share the directory %s; call one otherwise",
                             of->call->operands[0], results->runs[k].name, name, dir);
        TRY(results_add(results, name, dir, &run));
        run->options = json_copy((json_t *)(uintptr_t)entry);
        json_object_del(run->options, "name");
        TRY(settings_of(of, i, name, &run->settings));
    }
    return OK;
}

/* The file's name without its folder and ending. */
static Status title_of(const char *path, char **ret_title) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');
    return str_format(ret_title, "%.*s", (int)(dot && dot > name ? (size_t)(dot - name) : strlen(name)),
                      name);
}

static Status describe(Results *results, const Comparison *of) {
    const Invocation *call = of->call;
    const Recipe *recipe = &of->recipe;
    TRY(title_of(call->operands[0], &results->title));
    if (recipe->about) TRY(str_dup(json_string_value(recipe->about), &results->about));
    if (call->scale) TRY(str_dup(call->scale, &results->scale));
    return OK;
}

static Status place_of(const CompareArgs *args, const Results *results, char **ret_out) {
    if (args->out) return str_dup(args->out, ret_out);
    return str_format(ret_out, "runs/%s%s%s", results->title, results->scale ? "-" : "",
                      results->scale ? results->scale : "");
}

static void close_fd(int *fd) {
    if (*fd >= 0) close(*fd);
}

/* The lock goes with the process. */
static Status lock(const char *out, int *ret_fd) {
    *ret_fd = open(out, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*ret_fd < 0) return FAILED("%s: the directory cannot be opened: %s", out, strerror(errno));
    if (flock(*ret_fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return FAILED("%s: another process is making this comparison", out);
    return OK;
}

/* What earlier starts have left in the directory. Runs say themselves what they are where results.json does
 * not; one that is damaged beside none of them may be somebody else's. */
static Status look_back(Results *results, const char *out) {
    CLEANUP(mem_freep) char *damage = NULL;
    size_t found = 0;
    TRY(results_recall(results, out, &damage));
    for (size_t i = 0; i < results->count; i++) {
        Run *run = &results->runs[i];
        TRY(run_look(run));
        if (run->state == RUN_RUNNING) return FAILED("%s: another process is running this run", run->dir);
        if (run->known || run->state == RUN_WAITING) continue;
        TRY(run_recognize(run));
        found++;
    }
    if (damage && !found) return FAILED("%s; remove it to start afresh, or choose another --out", damage);
    if (damage) fprintf(stderr, "weft: %s\n", damage);
    if (found)
        fprintf(stderr,
                "weft: %s: goes on from the directories of %zu run%s that results.json does not list\n", out,
                found, found > 1 ? "s" : "");
    size_t others = json_array_size(results->others);
    if (others)
        fprintf(stderr, "weft: %s: keeps what is known of %zu run%s that the recipe does not list\n", out,
                others, others > 1 ? "s" : "");
    return OK;
}

static void say_start(const Results *results, size_t at, bool again) {
    fprintf(stderr, "[%zu/%zu] %s%s\n", at + 1, results->count, results->runs[at].name,
            again ? ", going on" : "");
}

static void say_end(const Run *run) {
    char time[FORMAT_SIZE], rate[FORMAT_SIZE];
    if (run->state != RUN_FINISHED) {
        fprintf(stderr, "      %s%s%s\n", run_state_name(run->state), run->error ? ": " : "",
                run->error ? run->error : "");
        return;
    }
    double seconds = 0, tokens = 0;
    if (run_predicted(run)) {
        show_number(run->summary, "tokens_per_s", &tokens);
        fprintf(stderr, "      predicted for %s: %s tokens/s\n", run_predicted(run),
                format_count(rate, tokens));
        return;
    }
    show_number(run->summary, "runtime_s", &seconds);
    show_number(run->summary, "tokens_per_s", &tokens);
    fprintf(stderr, "      finished in %s, %s tokens/s\n", format_duration(time, seconds),
            format_count(rate, tokens));
}

/* ---- on paper ---- */

/* The machines that runs may be simulated on are known, before hours of work. */
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

static Status simulate_one(Results *results, size_t at, const Comparison *of, const char *cluster) {
    const CompareArgs *args = of->args;
    Run *run = &results->runs[at];
    CLEANUP(line_done) Line line = {0};
    CLEANUP(invocation_freep) Invocation *train = NULL;
    CLEANUP(json_decrefp) json_t *summary = NULL;
    TRY(run_renew(run));
    if (!args->quiet) say_start(results, at, false);
    TRY(read_run(&line, of, run->name, &train));
    CLEANUP(status_freep) Status failed = simulate_run(train, cluster, run->dir, &summary);
    if (failed) {
        run->state = RUN_FAILED;
        TRY(str_dup(status_message(failed), &run->error));
    } else {
        TRY(write_simulated(run, summary));
    }
    TRY(run_look(run));
    if (!args->quiet) say_end(run);
    return results_write(results, of->out);
}

/* ---- in earnest ---- */

/* The first run measures the machine for all, so that their MFU are against the same peak. */
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
    if (!args->quiet) say_start(results, at, again);
    ChildEnd end;
    TRY(child_run(&(Child){line.words, log, args->quiet ? NULL : stderr}, &end));
    free(run->error);
    run->error = end.error;
    /* Who was told to stop has not failed, however it ended. */
    if (end.code && !children_stopped()) run->state = RUN_FAILED;
    if (run->state == RUN_FAILED && !run->error)
        TRY(str_format(&run->error, "ended with exit code %d and no word", end.code));
    TRY(run_look(run));
    if (!args->quiet) say_end(run);
    return results_write(results, of->out);
}

/* Whether a run needs nothing more. A prediction is not enough for a machine that can hold the run, nor is
 * that for another machine; one that it fails takes no time to make again. */
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
    *ret_done = !strcmp(machine.name, predicted);
    return OK;
}

static Status run_all(Results *results, const Comparison *of) {
    const CompareArgs *args = of->args;
    bool any = false;
    for (size_t i = 0; i < results->count && !children_stopped(); i++) {
        const Run *run = &results->runs[i];
        const char *cluster;
        bool done = false;
        TRY(find_cluster(of, i, &cluster));
        TRY(is_done(run, cluster, args, &done));
        if (done) {
            if (!args->quiet)
                fprintf(stderr, "[%zu/%zu] %s: %s before%s\n", i + 1, results->count, run->name,
                        run_state_name(run->state), run->state == RUN_FAILED ? "; --retry tries again" : "");
        } else if (cluster) {
            TRY(simulate_one(results, i, of, cluster));
        } else {
            TRY(run_one(results, i, of));
        }
    }
    for (size_t i = 0; i < results->count; i++) any |= results->runs[i].state == RUN_FINISHED;
    of->call->incomplete = !any || children_stopped();
    if (children_stopped()) fprintf(stderr, "weft: stopped; the same command goes on from there\n");
    return OK;
}

static Status write_page(const Results *results, const char *out) {
    CLEANUP(mem_freep) char *path = NULL;
    bool curves;
    TRY(path_join(&path, out, "report.html"));
    return page_write(results, path, &curves);
}

static Status check(const Invocation *call) {
    if (call->config_path) return USAGE("--config: the recipe is named without it: weft compare FILE.json");
    if (call->run) return USAGE("--run: picks a run for 'weft train'; a comparison takes them all");
    if (call->operand_count > 1 && call->operands[1][0] != '-')
        return USAGE("'%s': expected one recipe; options for the runs follow after --", call->operands[1]);
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
    TRY(place_of(comparison.args, &results, &comparison.out));
    TRY(add_runs(&results, &comparison));
    const char *out = comparison.out;
    TRY(dir_make(out));
    TRY(lock(out, &locked));
    TRY(look_back(&results, out));
    TRY(share_peak(out));
    children_heed();
    TRY(run_all(&results, &comparison));
    TRY(results_write(&results, out));
    TRY(write_page(&results, out));
    TRY(results_json(&results, ret_result));
    if (json_object_set_new(*ret_result, "dir", json_string(out)) != 0) return FAILED("out of memory");
    return OK;
}

static Status show(const Invocation *call, const json_t *result, FILE *out) {
    (void)call;
    const char *dir = json_string_value(json_object_get(result, "dir"));
    CLEANUP(results_done) Results results = {0};
    TRY(results_read(&results, dir));
    TRY(show_results(&results, out));
    fprintf(out, "\nthe page is %s/report.html; results.json, results.csv and the runs are beside it\n", dir);
    return OK;
}

static const Example examples[] = {
    {"Data parallelism against pipelines, in minutes on two cores",
     "weft compare recipes/squad-bert-base.json --scale small"},
    {"The same on GPUs: what follows -- is for the runs",
     "weft compare recipes/squad-bert-base.json --out runs/squad -- --device cuda"},
    {"What it would come to on eight A100, without any of them",
     "weft compare recipes/squad-bert-base.json --simulate --cluster dgx-a100 --out runs/squad-a100"},
};

const Command command_compare = {
    .name = "compare",
    .summary = "run the variants of a recipe and compare them",
    .description =
        "Runs what the recipe lists under runs, one after another, each as 'weft train' in a process of its "
        "own, and ends in a table with the first run as the baseline. A run that fails is a result too: its "
        "reason stands in the table. Runs that this machine cannot hold are simulated on the one that the "
        "recipe "
        "names as its cluster, and marked as predicted. Ctrl-C stops the current run at a checkpoint, and "
        "the same command goes "
        "on from there.\n\n"
        "The directory holds report.html, a page to show to others, results.json, results.csv, and for each "
        "run its directory and what it said "
        "(NAME.log).",
    .operands = "RECIPE.json [-- TRAIN-OPTION...]",
    .operands_min = 1,
    .operands_max = 128,
    .config_size = sizeof(CompareArgs),
    .groups = groups,
    .group_count = COUNT_OF(groups),
    .examples = examples,
    .example_count = COUNT_OF(examples),
    .recipe = true,
    .run = run,
    .show = show,
};
