/* weft report: writes a page that compares existing runs, or serves it. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/fs.h"
#include "base/memory.h"
#include "cli/command.h"
#include "cli/show.h"
#include "cli/stop.h"
#include "report/compressed.h"
#include "report/figure_files.h"
#include "report/page.h"
#include "report/serve.h"
#include "report/table.h"
#include "tokenizer/tokenizer.h"
#include "train/rundir.h"

typedef struct ReportArgs {
    const char *out, *format;
    bool serve;
    const char *address;
    int64_t port;
    double interval, price, power;
} ReportArgs;

static const char *const format_choices[] = {"page", "markdown", "latex", "csv", NULL};

/* clang-format off */
static const Option report_table[] = {
    {OPT_TEXT("out", ReportArgs, out, "FILE"), .shown = "report.html; a table is printed",
     .help = "File to write. A page's plots go into a directory beside it, as SVG, PDF and CSV: figures for "
             "report.html, NAME-figures for NAME.html."},
    {OPT_CHOICE("format", ReportArgs, format, "NAME", format_choices), .fallback = "page",
     .help = "What to write: the page, or only its table."},
    {OPT_FLOAT("price", ReportArgs, price), .fallback = "0", .shown = "the comparison's, if any", AT_LEAST(0),
     .help = "Price per hour of a GPU, or of a host without GPUs: adds costs, as in 'weft compare'."},
    {OPT_FLOAT("power", ReportArgs, power), .fallback = "0", .shown = "the comparison's, if any", AT_LEAST(0),
     .help = "Power in watts of a GPU, or of a host without GPUs, for the energy of predicted runs."},
    {OPT_FLAG("serve", ReportArgs, serve),
     .help = "Serve the page on http://localhost, read-only, until Ctrl-C; it updates by itself while runs "
             "train."},
    {OPT_INT("port", ReportArgs, port), .fallback = "8520", RANGE(0, 65535),
     .help = "With --serve, the port; 0: any free one."},
    {OPT_TEXT("address", ReportArgs, address, "ADDRESS"), .fallback = "127.0.0.1",
     .help = "With --serve, the address to listen on. 0.0.0.0 lets everyone in the network read the runs."},
    {OPT_FLOAT("interval", ReportArgs, interval), .fallback = "1", RANGE(0.02, 86400),
     .help = "With --serve, seconds between updates."},
};
/* clang-format on */

/* Adds a directory as a run. *ret_any is false if it contains no files of a run. */
static Status add_run(Results *results, const char *dir, bool *ret_any) {
    CLEANUP(mem_freep) char *name = NULL;
    Run *run;
    TRY(text_of_path(dir, &name));
    TRY(results_add(results, name, dir, &run));
    TRY(run_look(run));
    *ret_any = run->state != RUN_WAITING || rundir_is_config(run->settings) || run->error;
    return OK;
}

static Status fail_last(Results *results, const char *why) {
    Run *run = &results->runs[results->count - 1];
    run->state = RUN_FAILED;
    free(run->error);
    run->error = NULL;
    return str_dup(why, &run->error);
}

static int is_visible(const struct dirent *entry) {
    return entry->d_name[0] != '.';
}

/* Adds the runs in a directory: rounds of pruning, or those of a comparison whose results.json is damaged or
 * lost. `deeper`: those in its directories, as pruning by two kinds has them. */
static Status add_runs_in(Results *results, const char *dir, bool deeper) {
    struct dirent **entries = NULL;
    int count = scandir(dir, &entries, is_visible, alphasort);
    Status status = OK;
    for (int i = 0; i < count; i++) {
        CLEANUP(mem_freep) char *path = NULL;
        bool any = false;
        if (!status) status = path_join(&path, dir, entries[i]->d_name);
        if (!status && deeper && path_is_dir(path)) status = add_runs_in(results, path, false);
        if (!status && !deeper) status = rundir_has_run(path, &any);
        if (!status && any) status = add_run(results, path, &any);
        free(entries[i]);
    }
    free(entries);
    return status;
}

static Status add_comparison(Results *results, const char *dir) {
    CLEANUP(status_freep) Status damaged = results_read(results, dir);
    bool any;
    if (!damaged) return OK;
    size_t before = results->count;
    TRY(add_runs_in(results, dir, false));
    if (results->count == before) {
        TRY(add_run(results, dir, &any));
        return fail_last(results, status_message(damaged));
    }
    Run *first = &results->runs[before];
    return first->error ? OK : str_dup(status_message(damaged), &first->error);
}

#define NOTHING_FOUND                                                                                        \
    "contains no run (summary.json, metrics.jsonl), comparison (results.json), pruning (pruning.json) or "   \
    "quantization (quantization.json); name what 'weft train', 'compare', 'prune' or 'quantize' wrote"

/* A directory without a run is an error if it is the only one, otherwise a failed row. */
static Status add_dir(Results *results, const char *dir, bool alone) {
    CLEANUP(mem_freep) char *comparison = NULL, *pruning = NULL, *study = NULL;
    bool any;
    if (!path_exists(dir)) return USAGE("%s: no such directory", dir);
    if (!path_is_dir(dir)) return USAGE("%s: not a run directory", dir);
    TRY(path_join(&study, dir, "study.json"));
    if (path_exists(study))
        return USAGE("%s: is a study, whose page is %s/report.html; name a part's directory", dir, dir);
    TRY(path_join(&comparison, dir, "results.json"));
    if (path_exists(comparison)) return add_comparison(results, dir);
    TRY(rundir_has_run(dir, &any));
    size_t before = results->count;
    if (!any) TRY(add_runs_in(results, dir, false));
    TRY(path_join(&pruning, dir, "pruning.json"));
    if (!any && results->count == before && path_exists(pruning)) TRY(add_runs_in(results, dir, true));
    if (results->count > before) return OK;
    TRY(add_run(results, dir, &any));
    if (any) return OK;
    return alone ? USAGE("%s: " NOTHING_FOUND, dir) : fail_last(results, NOTHING_FOUND);
}

/* ---- duplicate names ---- */

/* Marks runs that share their name with another; returns whether any does. */
static bool find_shared(const Results *results, bool *ret_shared) {
    bool any = false;
    for (size_t i = 0; i < results->count; i++) {
        ret_shared[i] = false;
        for (size_t k = 0; k < results->count && !ret_shared[i]; k++)
            ret_shared[i] = k != i && !strcmp(results->runs[k].name, results->runs[i].name);
        any |= ret_shared[i];
    }
    return any;
}

/* The last `levels` directories above a run's directory: "squad/small". Empty if there are none. */
static Status folders_of(const char *dir, int levels, char **ret_text) {
    CLEANUP(mem_freep) char *whole = realpath(dir, NULL);
    CLEANUP(mem_freep) char *text = NULL;
    size_t size;
    TRY(str_dup(whole ? whole : dir, &text));
    char *slash = strrchr(text, '/');
    if (slash) *slash = 0;
    const char *start = slash ? text + strlen(text) : "";
    for (; start > text && levels > 0; start--) levels -= start[-1] == '/';
    if (levels == 0) start++;
    return text_to_utf8(start, strlen(start), ret_text, &size);
}

static Status rename_run(Run *run, const char *bare, int levels) {
    CLEANUP(mem_freep) char *folders = NULL, *name = NULL;
    TRY(folders_of(run->dir, levels, &folders));
    TRY(str_format(&name, "%s/%s", folders, bare));
    free(run->name);
    run->name = name;
    name = NULL;
    return OK;
}

/* Makes names unique by prepending parent directories, one level at a time. */
static Status tell_apart(Results *results) {
    enum { LEVELS = 4 };
    CLEANUP(mem_freep) bool *shared = NULL;
    CLEANUP(mem_freep) size_t *bare = NULL; /* length of each original name, a suffix of the current name */
    TRY(mem_new(results->count, sizeof *shared, &shared));
    TRY(mem_new(results->count, sizeof *bare, &bare));
    for (size_t i = 0; i < results->count; i++) bare[i] = strlen(results->runs[i].name);
    for (int level = 1; level <= LEVELS && find_shared(results, shared); level++)
        for (size_t i = 0; i < results->count; i++) {
            Run *run = &results->runs[i];
            if (shared[i]) TRY(rename_run(run, run->name + strlen(run->name) - bare[i], level));
        }
    return OK;
}

/* The commands that repeat runs which no comparison executed. */
static Status add_commands(Results *results) {
    CLEANUP(mem_freep) char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out) return FAILED("out of memory");
    for (size_t i = 0; i < results->count; i++)
        if (results->runs[i].settings)
            fprintf(out, "%sweft train --config %s/config.json --out NEW%zu", i ? "\n" : "",
                    results->runs[i].dir, i + 1);
    bool bad = ferror(out) != 0;
    if (fclose(out) != 0 || bad) return FAILED("out of memory");
    if (!size) return OK;
    results->command = text;
    text = NULL;
    return OK;
}

/* ---- files ---- */

static const char *page_path(const ReportArgs *args) {
    return args->out ? args->out : "report.html";
}

/* Whether a file in a directory of runs is a run's own: its records or a checkpoint. */
static bool is_record(const char *dir, const char *file) {
    CLEANUP(mem_freep) char *whole = realpath(dir, NULL);
    size_t length = whole ? strlen(whole) : 0;
    if (!whole || strncmp(file, whole, length) || file[length] != '/') return false;
    const char *rest = file + length + 1;
    return path_ends_with(rest, ".json") || path_ends_with(rest, ".jsonl") ||
           !strncmp(rest, "events.out.", 11) || !strncmp(rest, "checkpoints/", 12);
}

static Status refuse_records(const Invocation *call, const Results *results, const char *out) {
    CLEANUP(mem_freep) char *file = realpath(out, NULL);
    bool own = false;
    for (size_t i = 0; file && i < call->operand_count; i++) own |= is_record(call->operands[i], file);
    for (size_t i = 0; file && i < results->count; i++) own |= is_record(results->runs[i].dir, file);
    return own ? USAGE("--out %s is a file of the run itself; choose another file", out) : OK;
}

static TableFormat table_format_of(const ReportArgs *args) {
    TableFormat format = FORMAT_MARKDOWN;
    while (strcmp(format_choices[format + 1], args->format)) format++;
    return format;
}

/* Prints a table, or writes it to a file. */
static Status put_formatted(const Invocation *call, const ReportArgs *args, const char *text,
                            json_t **ret_result) {
    if (args->out) TRY(file_replace(args->out, text, strlen(text)));
    if (!args->out && !call->json) fputs(text, stdout);
    if (args->out || call->json)
        *ret_result = json_pack("{s:s, s:s*, s:s*}", "format", args->format, "table", args->out ? NULL : text,
                                "file", args->out);
    return OK;
}

static Status write_table(const Invocation *call, const ReportArgs *args, const Results *results,
                          json_t **ret_result) {
    CLEANUP(mem_freep) char *text = NULL;
    TRY(table_format(results, table_format_of(args), &text));
    return put_formatted(call, args, text, ret_result);
}

/* Reads the runs of the command line; the results must be empty. */
static Status load_runs(const void *context, Results *results) {
    const Invocation *call = context;
    const ReportArgs *args = call->config;
    results->price = args->price;
    results->power = args->power;
    for (size_t i = 0; i < call->operand_count; i++)
        TRY(add_dir(results, call->operands[i], call->operand_count == 1));
    if (!results->count) return USAGE("%s: the comparison contains no runs", call->operands[0]);
    TRY(tell_apart(results));
    if (!results->title) TRY(str_dup(results->count > 1 ? "Runs" : results->runs[0].name, &results->title));
    return results->command ? OK : add_commands(results);
}

/* "--serve 8080 RUN": a number that is no directory is the port. */
static Status take_port(Invocation *call, ReportArgs *args) {
    const char *word = call->operands[0];
    char *end;
    long port = strtol(word, &end, 10);
    if (*end || end == word || path_exists(word)) return OK;
    if (port < 0 || port > 65535) return USAGE("--serve %s: expected a port from 0 to 65535", word);
    args->port = port;
    call->operand_count--;
    memmove(call->operands, call->operands + 1, call->operand_count * sizeof *call->operands);
    return call->operand_count ? OK : USAGE("--serve %ld: name the runs to show", port);
}

/* Serves until a signal comes. */
static Status serve(Invocation *call, ReportArgs *args) {
    CLEANUP(serve_freep) Server *server = NULL;
    TRY(take_port(call, args));
    ServeSpec spec = {.address = args->address,
                      .port = (int)args->port,
                      .interval = args->interval,
                      .load = load_runs,
                      .context = call};
    bool six = strchr(args->address, ':') != NULL, usual = !strcmp(args->address, "127.0.0.1");
    const volatile sig_atomic_t *stop = stop_catch(0);
    TRY(serve_new(&server, &spec));
    if (!serve_is_local(args->address))
        fprintf(stderr, "weft: warning: everyone who can reach %s may read these runs\n", args->address);
    printf("http://%s%s%s:%d/\n", six ? "[" : "", usual ? "localhost" : args->address, six ? "]" : "",
           serve_port(server));
    fflush(stdout);
    while (!*stop) nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    return OK;
}

/* ---- pruning and quantization ---- */

static Status report_compressed(const Invocation *call, const ReportArgs *args, json_t **ret_result) {
    CLEANUP(compressed_done) Compressed of = {0};
    CLEANUP(mem_freep) char *text = NULL, *charts = NULL;
    bool page = !strcmp(args->format, format_choices[0]);
    TRY(compressed_read(&of, call->operands, call->operand_count));
    if (page || args->out) TRY(refuse_records(call, &(Results){0}, page_path(args)));
    if (!page) {
        TRY(compressed_format(&of, table_format_of(args), &text));
        return put_formatted(call, args, text, ret_result);
    }
    TRY(page_write_compressed(&of, page_path(args)));
    TRY(figure_files_find(page_path(args), &charts));
    if (!call->json) TRY(compressed_show(&of, stdout));
    *ret_result = json_pack("{s:O, s:s, s:s*}", "dirs", of.files, "page", page_path(args), "charts", charts);
    return *ret_result ? OK : FAILED("out of memory");
}

static Status run(Invocation *call, void *arguments, json_t **ret_result) {
    const ReportArgs *args = arguments;
    if (args->serve) return serve(call, arguments);
    CLEANUP(results_done) Results results = {0};
    bool page = !strcmp(args->format, format_choices[0]), compressed = false;
    if ((page || args->out) && path_is_dir(page_path(args)))
        return USAGE("--out %s is a directory; expected a file", page_path(args));
    TRY(compressed_are_in(call->operands, call->operand_count, &compressed));
    if (compressed) return report_compressed(call, args, ret_result);
    TRY(load_runs(call, &results));
    if (page || args->out) TRY(refuse_records(call, &results, page_path(args)));
    if (!page) return write_table(call, args, &results, ret_result);
    CLEANUP(mem_freep) char *charts = NULL;
    TRY(page_write(&results, page_path(args)));
    TRY(figure_files_find(page_path(args), &charts));
    if (!call->json) TRY(show_results(&results, stdout));
    TRY(results_json(&results, ret_result));
    json_object_set_new(*ret_result, "page", json_string(page_path(args)));
    if (charts) json_object_set_new(*ret_result, "charts", json_string(charts));
    return OK;
}

static Status show(const Invocation *call, const json_t *result, FILE *out) {
    const char *charts = json_string_at(result, "charts");
    fprintf(out, "\nwrote %s", page_path(call->config));
    if (charts) fprintf(out, ", and its charts in %s", charts);
    fputs("\n", out);
    return OK;
}

const Command command_report = {
    .name = "report",
    .summary = "write a page that compares runs",
    .description =
        "Accepts directories of runs (finished, interrupted or running) and of comparisons. The "
        "first run is the baseline. The page is a single self-contained HTML file. Directories of "
        "'weft prune' and 'weft quantize --evaluate' have pages of their own, also several together.",
    .operands = "RUN...",
    .operands_min = 1,
    .operands_max = 64,
    .config_size = sizeof(ReportArgs),
    .groups = GROUPS(OPTION_GROUP("Report", report_table, 0)),
    .examples = {{"Compare two runs", "weft report runs/one runs/two --out both.html"},
                 {"The table for a paper", "weft report runs/squad --format latex --out squad.tex"},
                 {"Follow runs in the browser while they train", "weft report --serve 8080 runs/squad"},
                 {"Regenerate the page of a comparison",
                  "weft report runs/squad --out runs/squad/report.html"}},
    .run = run,
    .show = show,
};
