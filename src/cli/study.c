/* weft study: fetches what a published study needs, runs all of its parts and writes one page.
 *
 * Each part is a weft command in a child process. DIR/study.json records what became of it, so that
 * the command, repeated, leaves out parts that have ended.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/format.h"
#include "base/fs.h"
#include "base/memory.h"
#include "base/terminal.h"
#include "cli/child.h"
#include "cli/show.h"
#include "cli/study.h"
#include "cli/train_options.h"
#include "compare/comparison.h"
#include "data/fetch.h"
#include "device/registry.h"
#include "plan/cluster.h"
#include "report/page_parts.h"
#include "report/study.h"

/* clang-format off */
static const Option study_table[] = {
    {OPT_TEXT("out", StudyArgs, out, "DIR"), .shown = "runs/ plus the study's name",
     .help = "Directory for the page and the parts. An unfinished study in it is continued."},
    {OPT_FLAG("yes", StudyArgs, yes), .help = "Fetch what is missing without asking."},
    {OPT_LIST("from", StudyArgs, from, "DIR"), .one_each = true, .shown = "each set's official URL, then its mirrors",
     .help = "Mirror to fetch from, as in 'weft fetch'. Repeat for several."},
    {OPT_CHOICE("device", StudyArgs, device, "NAME", device_choices), .shown = "cuda if there is a GPU, else cpu",
     .help = "Device of all parts that can use one: cpu, or cuda for NVIDIA GPUs."},
    {OPT_FLAG("simulate", StudyArgs, simulate),
     .help = "Simulate the comparisons instead of executing them, as in 'weft compare', and leave out the other "
             "parts. Fetches nothing."},
    {OPT_FLAG("share-gpus", StudyArgs, share_gpus),
     .help = "Execute runs with more ranks than there are GPUs too, as in 'weft compare'."},
    {OPT_TEXT("cluster", StudyArgs, cluster, "NAME|FILE"), .shown = "the recipes', if any",
     .help = "Cluster on which to simulate runs that this machine lacks GPUs or memory for.",
     .names = cluster_names},
    {OPT_FLAG("retry", StudyArgs, retry), .help = "Retry failed parts and runs."},
    {OPT_FLAG("quiet", StudyArgs, quiet), .help = "Do not show progress."},
};
/* clang-format on */

typedef struct Study {
    Invocation *call;
    StudyArgs args;
    StudyFile file;
    TextList sets;  /* to fetch */
    json_t *record; /* study.json */
    char *out;
} Study;

static void study_done(Study *study) {
    studyfile_done(&study->file);
    texts_done(&study->sets);
    json_decref(study->record);
    free(study->out);
}

static void close_fd(int *fd) {
    if (*fd >= 0) close(*fd);
}

/* ---- what it takes ---- */

static Status look_for(const char *root, const FetchSet *set, const char *name, bool *there) {
    CLEANUP(mem_freep) char *path = NULL;
    TRY(str_format(&path, "%s/%s/%s", root, set->name, name));
    *there &= path_exists(path);
    return OK;
}

/* Of an archive, the files that were unpacked count: users may have brought them without it. */
static Status is_there(const FetchSet *set, bool *ret_there) {
    CLEANUP(mem_freep) char *root = NULL;
    TRY(fetch_root(&root));
    *ret_there = true;
    for (size_t i = 0; i < set->file_count; i++) {
        const FetchFile *file = &set->files[i];
        if (!file->members) TRY(look_for(root, set, file->name, ret_there));
        for (const char *const *name = file->members; name && *name; name++)
            TRY(look_for(root, set, *name, ret_there));
    }
    return OK;
}

static double size_of(const FetchSet *set) {
    double sum = 0;
    for (size_t i = 0; i < set->file_count; i++) sum += (double)set->files[i].size;
    return sum > (double)set->about ? sum : (double)set->about;
}

/* Adds up the parts. `sets` gets those that are missing. */
static Status survey(const StudyArgs *args, const StudyFile *file, StudyCost *cost, TextList *sets) {
    CLEANUP(texts_done) TextList needed = {0};
    for (size_t i = 0; i < file->count; i++) {
        StudyCost part = {0};
        Status status = study_add_cost(args, &file->parts[i], &part);
        if (status) return status_wrap(status, "part '%s'", file->parts[i].name);
        cost->seconds += part.seconds;
        cost->bytes += part.bytes;
        cost->runs += part.runs;
        cost->unknown += part.unknown;
        cost->simulated += part.simulated;
        if (part.simulated < part.runs) TRY(studyfile_sets(&file->parts[i], &needed));
    }
    for (size_t i = 0; i < needed.count; i++) {
        const FetchSet *set;
        bool there = false;
        const char *name = needed.texts[i];
        TRY(fetch_find(name, &set));
        TRY(is_there(set, &there));
        if (!there) TRY(texts_keep(sets, &name));
    }
    return OK;
}

static Status put_sets(FILE *out, const TextList *sets) {
    char bytes[FORMAT_SIZE];
    double sum = 0;
    for (size_t i = 0; i < sets->count; i++) {
        const FetchSet *set;
        TRY(fetch_find(sets->texts[i], &set));
        fprintf(out, "%s%s (%s)", i ? ", " : "", set->name, format_bytes(bytes, size_of(set)));
        sum += size_of(set);
    }
    if (sets->count > 1) fprintf(out, ", %s in total", format_bytes(bytes, sum));
    return OK;
}

static void put_cost(FILE *out, const StudyCost *cost) {
    char time[FORMAT_SIZE], bytes[FORMAT_SIZE];
    size_t known = cost->runs - cost->unknown - cost->simulated;
    const char *comma = "";
    if (known) {
        fprintf(out, "%zu run%s of about %s in total, with %s of checkpoints", known, PLURAL(known),
                format_duration(time, cost->seconds), format_bytes(bytes, cost->bytes));
        comma = ", ";
    }
    if (cost->unknown) fprintf(out, "%s%zu without an estimate", comma, cost->unknown), comma = ", ";
    if (cost->simulated) fprintf(out, "%s%zu simulated", comma, cost->simulated);
}

/* "BERT-base; 6 runs ...; fetches ..." */
static Status describe(const StudyCost *cost, const TextList *sets, char **ret_text) {
    CLEANUP(text_done) Text text = {0};
    TRY(text_open(&text));
    put_cost(text.out, cost);
    if (sets->count) fputs("; fetches ", text.out);
    TRY(put_sets(text.out, sets));
    return text_take(&text, ret_text, NULL);
}

/* ---- the list ---- */

static Status list_one(const StudyArgs *args, const char *name, const char *scale, json_t *rows) {
    CLEANUP(studyfile_done) StudyFile file = {0};
    CLEANUP(texts_done) TextList sets = {0};
    CLEANUP(mem_freep) char *text = NULL;
    StudyCost cost = {0};
    TRY(studyfile_read(&file, name, scale));
    TRY(survey(args, &file, &cost, &sets));
    TRY(describe(&cost, &sets, &text));
    json_t *row = json_pack("{s:s, s:s, s:s?, s:s?, s:I, s:f, s:f, s:I, s:I, s:s, s:o}", "name", name,
                            "title", file.title, "models", file.models, "hardware", file.hardware, "runs",
                            (json_int_t)cost.runs, "seconds", cost.seconds, "bytes", cost.bytes, "unknown",
                            (json_int_t)cost.unknown, "simulated", (json_int_t)cost.simulated, "takes", text,
                            "sets", show_names(sets.texts, sets.count));
    return row && !json_array_append_new(rows, row) ? OK : FAILED("out of memory");
}

static Status list(const Study *study, json_t **ret_result) {
    CLEANUP(texts_done) TextList names = {0};
    CLEANUP(json_decrefp) json_t *rows = json_array();
    TRY(studyfile_names(&names));
    if (!names.count) return USAGE("no studies found; run weft in its source tree, or name a study file");
    for (size_t i = 0; i < names.count; i++)
        TRY(list_one(&study->args, names.texts[i], study->call->scale, rows));
    *ret_result = json_pack("{s:O}", "studies", rows);
    return *ret_result ? OK : FAILED("out of memory");
}

/* ---- the record of a directory ---- */

static json_t *part_at(const Study *study, size_t at) {
    return json_array_get(json_object_get(study->record, "parts"), at);
}

static bool is_in_state(const Study *study, size_t at, RunState state) {
    return !strcmp(json_string_or(part_at(study, at), "state", ""), run_state_name(state));
}

static Status record_path(const Study *study, char **ret_path) {
    return path_join(ret_path, study->out, "study.json");
}

static Status save(const Study *study) {
    CLEANUP(mem_freep) char *path = NULL;
    TRY(record_path(study, &path));
    TRY(json_write_file(path, study->record));
    return page_write_parts(study->record, study->out);
}

static Status line_text(const TextList *line, char **ret_text) {
    CLEANUP(text_done) Text text = {0};
    TRY(text_open(&text));
    fputs("weft", text.out);
    bool last = line->count && !strcmp(line->texts[line->count - 1], "--");
    for (size_t i = 0; i + last < line->count; i++) {
        fputc(' ', text.out);
        show_word(text.out, line->texts[i]);
    }
    return text_take(&text, ret_text, NULL);
}

static Status new_record(Study *study) {
    const StudyFile *file = &study->file;
    CLEANUP(mem_freep) char *command = NULL;
    CLEANUP(texts_done) TextList words = {0};
    StudyArgs args = study->args;
    args.retry = false; /* does not change what a part is */
    for (char **word = study->call->line + 1; *word; word++) {
        const char *text = *word;
        if (strcmp(text, "--retry")) TRY(texts_keep(&words, &text)); /* nothing is left to retry */
    }
    TRY(line_text(&words, &command));
    study->record = json_pack("{s:s, s:s, s:s?, s:s?, s:s?, s:s, s:[]}", "name", file->name, "title",
                              file->title, "about", file->about, "hardware", file->hardware, "scale",
                              file->scale, "line", command, "parts");
    for (size_t i = 0; study->record && i < file->count; i++) {
        const StudyPart *part = &file->parts[i];
        CLEANUP(texts_done) TextList line = {0};
        CLEANUP(mem_freep) char *text = NULL;
        TRY(study_line(&args, part, study->out, false, &line));
        TRY(line_text(&line, &text));
        json_array_append_new(json_object_get(study->record, "parts"),
                              json_pack("{s:s, s:s, s:s, s:s, s:s}", "name", part->name, "title", part->title,
                                        "command", part->command, "line", text, "state",
                                        run_state_name(RUN_WAITING)));
    }
    return study->record ? OK : FAILED("out of memory");
}

/* Takes over the ends of parts with the same name and command line. */
static Status recall(Study *study) {
    CLEANUP(mem_freep) char *path = NULL;
    CLEANUP(json_decrefp) json_t *earlier = NULL;
    TRY(record_path(study, &path));
    if (!path_exists(path)) {
        if (!path_exists(study->out) || dir_is_empty(study->out)) return OK;
        return USAGE("%s contains other files; choose another --out", study->out);
    }
    TRY(json_read_file(path, &earlier));
    for (size_t i = 0; i < study->file.count; i++) {
        json_t *part = part_at(study, i), *old;
        size_t k;
        json_array_foreach(json_object_get(earlier, "parts"), k, old) {
            if (strcmp(json_string_or(old, "name", ""), json_string_at(part, "name"))) continue;
            if (strcmp(json_string_or(old, "line", ""), json_string_at(part, "line")))
                return USAGE("%s: part '%s' began with other options (%s); choose another --out", study->out,
                             json_string_at(part, "name"), json_string_or(old, "line", "?"));
            if (json_object_update(part, old)) return FAILED("out of memory");
        }
    }
    return OK;
}

/* ---- fetching ---- */

static Status start_child(const Study *study, const TextList *line, const char *name, ChildEnd *ret_end) {
    CLEANUP(mem_freep) char **argv = NULL;
    CLEANUP(mem_freep) char *log = NULL, *out = NULL;
    TRY(mem_new(line->count + 1, sizeof *argv, &argv));
    memcpy(argv, line->texts, line->count * sizeof *argv);
    TRY(str_format(&log, "%s/%s.log", study->out, name));
    TRY(str_format(&out, "%s/%s.txt", study->out, name));
    return child_run(&(Child){argv, log, study->args.quiet ? NULL : stderr, out}, ret_end);
}

/* Asks on the terminal; without one, --yes is required. */
static Status ask(const Study *study) {
    CLEANUP(text_done) Text text = {0};
    CLEANUP(mem_freep) char *sets = NULL, *root = NULL;
    char answer[16] = "";
    if (study->args.yes || !study->sets.count) return OK;
    TRY(text_open(&text));
    TRY(put_sets(text.out, &study->sets));
    TRY(text_take(&text, &sets, NULL));
    if (!isatty(STDIN_FILENO))
        return USAGE("study '%s' has to fetch %s; add --yes to do so", study->file.name, sets);
    TRY(fetch_root(&root));
    fprintf(stderr, "Fetch %s to %s? [y/N] ", sets, root);
    if (fgets(answer, sizeof answer, stdin) && (answer[0] == 'y' || answer[0] == 'Y')) return OK;
    return STOPPED("nothing was fetched");
}

static Status fetch(const Study *study) {
    CLEANUP(texts_done) TextList line = {0};
    const char *word = "fetch", *option = "--from";
    TRY(texts_keep(&line, &word));
    for (int i = 0; i < study->args.from_count; i++) {
        TRY(texts_keep(&line, &option));
        TRY(texts_keep(&line, &study->args.from[i]));
    }
    for (size_t i = 0; i < study->sets.count; i++) {
        const char *set = study->sets.texts[i];
        TRY(texts_keep(&line, &set));
    }
    ChildEnd end = {0};
    if (!study->sets.count) return OK;
    TRY(start_child(study, &line, "fetch", &end));
    CLEANUP(mem_freep) char *error = end.error;
    if (children_stopped()) return STOPPED("stopped while fetching; repeat the command to continue");
    return end.code ? FAILED("fetching failed: %s", error ? error : "see fetch.log") : OK;
}

/* ---- parts ---- */

static Status set_state(const Study *study, size_t at, const char *state, const char *error) {
    json_t *part = part_at(study, at);
    if (json_object_set_new(part, "state", json_string(state))) return FAILED("out of memory");
    json_object_del(part, "error");
    if (error && json_object_set_new(part, "error", json_string(error))) return FAILED("out of memory");
    return save(study);
}

/* Why a part failed, for one that gave no reason. */
static const char *reason(const StudyPart *part, const ChildEnd *end) {
    if (end->error) return end->error;
    return !strcmp(part->command, "compare") ? "some of its runs failed" : "it gave no reason; see its log";
}

static Status run_part(const Study *study, size_t at) {
    const StudyPart *part = &study->file.parts[at];
    CLEANUP(texts_done) TextList line = {0};
    CLEANUP(mem_freep) char *dir = NULL;
    json_t *record = part_at(study, at);
    double start = clock_wall(), before = json_number_at(record, "seconds");
    TRY(path_join(&dir, study->out, part->name));
    bool begun = path_is_dir(dir) && !dir_is_empty(dir);
    if (begun && !study_part_resumes(part)) TRY(dir_remove(dir));
    TRY(set_state(study, at, run_state_name(RUN_RUNNING), NULL));
    TRY(study_line(&study->args, part, study->out, begun, &line));
    if (!study->args.quiet)
        fprintf(stderr, "[%zu/%zu] %s%s\n", at + 1, study->file.count, part->title,
                begun ? " (resuming)" : "");
    ChildEnd end = {0};
    TRY(start_child(study, &line, part->name, &end));
    CLEANUP(mem_freep) char *error = end.error;
    json_object_set_new(record, "seconds", json_real(before + clock_wall() - start));
    bool stopped = end.code == STATUS_SAVED || (end.code && children_stopped());
    if (stopped) return set_state(study, at, run_state_name(RUN_INTERRUPTED), NULL);
    if (!end.code) return set_state(study, at, run_state_name(RUN_FINISHED), NULL);
    if (!study->args.quiet) fprintf(stderr, "weft: part '%s' failed: %s\n", part->name, reason(part, &end));
    return set_state(study, at, run_state_name(RUN_FAILED), reason(part, &end));
}

static Status run_parts(const Study *study) {
    bool failed = false, open = false;
    for (size_t i = 0; i < study->file.count && !children_stopped(); i++) {
        const StudyPart *part = &study->file.parts[i];
        bool ended =
            is_in_state(study, i, RUN_FINISHED) || (is_in_state(study, i, RUN_FAILED) && !study->args.retry);
        if (ended && !study->args.quiet)
            fprintf(stderr, "[%zu/%zu] %s: already %s\n", i + 1, study->file.count, part->title,
                    json_string_at(part_at(study, i), "state"));
        if (study->args.simulate && strcmp(part->command, "compare"))
            TRY(set_state(study, i, PART_LEFT_OUT, "only comparisons are simulated"));
        else if (!ended)
            TRY(run_part(study, i));
    }
    for (size_t i = 0; i < study->file.count; i++) {
        failed |= is_in_state(study, i, RUN_FAILED);
        open |= is_in_state(study, i, RUN_INTERRUPTED) ||
                (children_stopped() && is_in_state(study, i, RUN_WAITING));
    }
    study->call->incomplete = failed || open;
    if (open && !failed) study->call->exit_code = STATUS_SAVED;
    if (open) fprintf(stderr, "weft: stopped early; repeat the command to continue\n");
    return save(study);
}

/* ---- the command ---- */

static Status prepare(Study *study) {
    const Invocation *call = study->call;
    const StudyFile *file = &study->file;
    CLEANUP(mem_freep) char *takes = NULL;
    StudyCost cost = {0};
    TRY(studyfile_read(&study->file, call->operands[0], call->scale));
    TRY(study->args.out ? str_dup(study->args.out, &study->out)
                        : str_format(&study->out, "runs/%s%s%s", file->name, file->scale ? "-" : "",
                                     file->scale ? file->scale : ""));
    for (size_t i = 0; i < file->count; i++) TRY(study_check_part(&study->args, &file->parts[i], study->out));
    TRY(new_record(study));
    TRY(recall(study));
    TRY(survey(&study->args, file, &cost, &study->sets));
    TRY(describe(&cost, &study->sets, &takes));
    if (!study->args.quiet)
        fprintf(stderr, "%s: %zu part%s on %s; %s\n", file->name, file->count, PLURAL(file->count),
                study->args.device ? "the GPU" : "the CPU", takes);
    return OK;
}

static Status run(Invocation *call, void *arguments, json_t **ret_result) {
    CLEANUP(study_done) Study study = {.call = call, .args = *(const StudyArgs *)arguments};
    CLEANUP(close_fd) int locked = -1;
    CudaInfo info;
    device_cuda_info(&info);
    if (!study.args.device && info.devices) study.args.device = "cuda";
    if (study.args.device && !strcmp(study.args.device, "cpu"))
        study.args.device = info.devices ? "cpu" : NULL;
    if (call->run) return USAGE("--run: a study runs all of its parts");
    if (!call->operand_count) return list(&study, ret_result);
    TRY(prepare(&study));
    TRY(ask(&study));
    TRY(dir_make(study.out));
    TRY(comparison_lock(study.out, &locked));
    children_watch_signals();
    TRY(save(&study)); /* a directory with no more than the log of a failed download is this study's, too */
    TRY(fetch(&study));
    TRY(run_parts(&study));
    json_t *findings = NULL;
    TRY(parts_findings(study.record, study.out, &findings));
    *ret_result = json_incref(study.record);
    return json_object_set_new(*ret_result, "findings", findings) ||
                   json_object_set_new(*ret_result, "dir", json_string(study.out))
               ? FAILED("out of memory")
               : OK;
}

static void show_list(const json_t *studies, FILE *out) {
    const json_t *row;
    size_t i;
    json_array_foreach(studies, i, row) {
        const char *models = json_string_at(row, "models"), *hardware = json_string_at(row, "hardware");
        fprintf(out, "%-10s %s\n", json_string_at(row, "name"), json_string_at(row, "title"));
        if (models) fprintf(out, "%11smodels: %s\n", "", models);
        if (hardware) fprintf(out, "%11spublished on %s\n", "", hardware);
        fprintf(out, "%11shere: %s\n", "", json_string_at(row, "takes"));
    }
    fputs("\nRun one with: weft study NAME, or in minutes: weft study NAME --scale small\n", out);
}

static Status show(const Invocation *call, const json_t *result, FILE *out) {
    (void)call;
    const json_t *part;
    size_t i;
    char time[FORMAT_SIZE];
    int width = 0;
    if (json_object_get(result, "studies")) return show_list(json_object_get(result, "studies"), out), OK;
    json_array_foreach(json_object_get(result, "parts"), i, part) {
        int length = (int)strlen(json_string_at(part, "title"));
        if (length > width) width = length;
    }
    json_array_foreach(json_object_get(result, "parts"), i, part) {
        const char *error = json_string_at(part, "error"), *state = json_string_at(part, "state");
        fprintf(out, "%-*s  %-11s %8s%s", width, json_string_at(part, "title"), state,
                format_duration(time, json_number_at(part, "seconds")), error ? "  " : "");
        if (error) terminal_put(out, error, strlen(error));
        fputc('\n', out);
    }
    CLEANUP(mem_freep) char *summary = NULL;
    const json_t *findings = json_object_get(result, "findings");
    TRY(verdicts_text(findings, "", &summary));
    TRY(show_findings(summary, findings, out));
    fprintf(out, "\nwrote %s/report.html\n", json_string_at(result, "dir"));
    return OK;
}

const Command command_study = {
    .name = "study",
    .summary = "repeat a published study in one command",
    .description =
        "Without a name, lists the studies with their models, and the time, disk space and downloads that "
        "they take on this machine, as far as plans tell. Otherwise fetches what is missing, after one "
        "question, and runs the study's parts one after another, each as a weft command in a child "
        "process. Ctrl-C stops at a checkpoint with exit code 75; repeat the command to continue. A part "
        "that fails does not stop the others, and the exit code is 1.\n\n"
        "The output directory contains report.html (a page with the tables, figures and findings of all "
        "parts), study.json, and each part's directory, log (NAME.log) and output (NAME.txt). A study is a "
        "file in recipes/studies, or any file like these.",
    .operands = "[NAME | FILE.json]",
    .operands_min = 0,
    .operands_max = 1,
    .config_size = sizeof(StudyArgs),
    .groups = GROUPS(OPTION_GROUP("Study", study_table, 0)),
    .examples = {{"List the studies", "weft study"},
                 {"A study in minutes on two cores", "weft study squad --scale small --yes"},
                 {"Predict it on the hardware of the study", "weft study squad --simulate"}},
    .recipe = RECIPE_OPERAND,
    .run = run,
    .show = show,
};
