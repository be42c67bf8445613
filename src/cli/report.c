/* weft report: runs that are there already, as a page. */
#include <string.h>

#include "base/fs.h"
#include "base/memory.h"
#include "base/terminal.h"
#include "cli/command.h"
#include "cli/show_results.h"
#include "report/page.h"
#include "tokenizer/tokenizer.h"

typedef struct ReportArgs {
    const char *out;
} ReportArgs;

/* clang-format off: one row a line or two reads as the table it is */
static const Option report_table[] = {
    {OPT_TEXT("out", ReportArgs, out, "FILE"), .fallback = "report.html", .help = "The page to write."},
};
/* clang-format on */

static const OptionGroup groups[] = {OPTION_GROUP("Report", report_table, 0)};

/* The last part of a path, as a name to show. */
static Status name_of(const char *path, char **ret_name) {
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') length--;
    size_t start = length;
    while (start > 0 && path[start - 1] != '/') start--;
    size_t size;
    return text_to_utf8(path + start, length - start, ret_name, &size);
}

static Status add_dir(Results *results, const char *dir) {
    CLEANUP(mem_freep) char *comparison = NULL, *name = NULL;
    if (!path_is_dir(dir)) return USAGE("%s: is not a run's directory", dir);
    TRY(path_join(&comparison, dir, "results.json"));
    if (path_exists(comparison)) return results_read(results, dir);
    Run *run;
    TRY(name_of(dir, &name));
    TRY(results_add(results, name, dir, &run));
    TRY(run_look(run));
    if (run->state == RUN_WAITING && !run->settings && !run->error)
        return USAGE("%s: holds no run: there is neither a summary.json nor a metrics.jsonl", dir);
    return OK;
}

static Status run(Invocation *call, void *arguments, json_t **ret_result) {
    const ReportArgs *args = arguments;
    CLEANUP(results_done) Results results = {0};
    for (size_t i = 0; i < call->operand_count; i++) TRY(add_dir(&results, call->operands[i]));
    if (!results.count) return USAGE("%s: the comparison has no runs", call->operands[0]);
    if (!results.title) TRY(str_dup(results.count > 1 ? "Runs" : results.runs[0].name, &results.title));
    bool curves;
    TRY(page_write(&results, args->out, &curves));
    if (!call->json) TRY(show_results(&results, stdout));
    TRY(results_json(&results, ret_result));
    json_object_set_new(*ret_result, "page", json_string(args->out));
    return OK;
}

static Status show(const Invocation *call, const json_t *result, FILE *out) {
    (void)result;
    fprintf(out, "\nthe page is %s\n", ((const ReportArgs *)call->config)->out);
    return OK;
}

static const Example examples[] = {
    {"Two runs side by side", "weft report runs/one runs/two --out both.html"},
    {"The page of a comparison once more", "weft report runs/squad --out runs/squad/report.html"},
};

const Command command_report = {
    .name = "report",
    .summary = "make a page that shows runs side by side",
    .description =
        "Takes directories of runs, finished, stopped or under way, and of comparisons. The first run "
        "is the baseline. The page needs nothing but itself: no network, no other files.",
    .operands = "RUN...",
    .operands_min = 1,
    .operands_max = 64,
    .config_size = sizeof(ReportArgs),
    .groups = groups,
    .group_count = COUNT_OF(groups),
    .examples = examples,
    .example_count = COUNT_OF(examples),
    .run = run,
    .show = show,
};
