/* A part is shown by the files that its command left: results of a comparison, a run's directory, rounds of
 * pruning, a quantized model's evaluation. A part that left none of them is shown by what it printed. */
#include "report/page_parts.h"

#include <stdlib.h>
#include <string.h>

#include "base/format.h"
#include "base/fs.h"
#include "base/memory.h"
#include "report/compressed.h"
#include "report/study.h"
#include "report/summary.h"

typedef struct PartsPage {
    const json_t *study;
    const char *dir;
} PartsPage;

static const json_t *parts_of(const json_t *study) {
    return json_object_get(study, "parts");
}

static bool is_in_state(const json_t *part, RunState state) {
    return !strcmp(json_string_or(part, "state", ""), run_state_name(state));
}

static bool is_left_out(const json_t *part) {
    return !strcmp(json_string_or(part, "state", ""), PART_LEFT_OUT);
}

static size_t count_in(const json_t *study, RunState state) {
    const json_t *part;
    size_t i, count = 0;
    json_array_foreach(parts_of(study), i, part) count += is_in_state(part, state);
    return count;
}

/* ---- the overview ---- */

static void put_overview(Page *page, const PartsPage *of) {
    const json_t *part;
    size_t i, count = json_array_size(parts_of(of->study)), done = count_in(of->study, RUN_FINISHED),
              left = 0;
    json_array_foreach(parts_of(of->study), i, part) left += is_left_out(part);
    page_verdict(page);
    if (done == count)
        page_put(page, "All parts of the study finished.");
    else
        page_put(page, "%zu of %zu parts of the study finished.", done, count);
    if (left) page_put(page, " %zu %s left out.", left, left == 1 ? "is" : "are");
    json_array_foreach(parts_of(of->study), i, part) if (is_in_state(part, RUN_FAILED)) page_put(
        page, " “%s” failed: %s.", json_string_at(part, "title"), json_string_or(part, "error", "?"));
    page_put(page, "</p>\n");
}

/* ---- findings ---- */

/* What a part's directory says of its study's conclusions. */
static Status find_in(const char *dir, json_t **ret_findings) {
    CLEANUP(results_done) Results results = {0};
    CLEANUP(compressed_done) Compressed of = {0};
    CLEANUP(mem_freep) char *file = NULL;
    TRY(path_join(&file, dir, "results.json"));
    if (path_exists(file)) {
        TRY(results_read(&results, dir));
        return findings_json(&results, ret_findings);
    }
    TRY(compressed_read(&of, &dir, 1));
    *ret_findings = of.findings ? json_incref(of.findings) : NULL;
    return OK;
}

Status parts_findings(const json_t *study, const char *dir, json_t **ret_findings) {
    CLEANUP(json_decrefp) json_t *all = json_array();
    const json_t *part;
    size_t i, k;
    json_array_foreach(parts_of(study), i, part) {
        CLEANUP(mem_freep) char *own = NULL;
        CLEANUP(json_decrefp) json_t *findings = NULL;
        json_t *finding;
        TRY(path_join(&own, dir, json_string_at(part, "name")));
        CLEANUP(status_freep) Status damaged = find_in(own, &findings);
        json_array_foreach(findings, k, finding) {
            if (json_object_set(finding, "part", json_object_get(part, "title")) ||
                json_array_append(all, finding))
                return FAILED("out of memory");
        }
    }
    *ret_findings = json_incref(all);
    return OK;
}

static Status put_all_findings(Page *page, const PartsPage *of) {
    CLEANUP(json_decrefp) json_t *all = NULL;
    CLEANUP(mem_freep) char *text = NULL;
    TRY(parts_findings(of->study, of->dir, &all));
    if (!json_array_size(all)) return OK;
    TRY(verdicts_text(all, "", &text));
    page_section(page, "Findings", text);
    page_findings(page, all);
    return OK;
}

/* ---- the list of parts ---- */

/* The part's own page or, without one, its directory. */
static Status put_link(Page *page, const char *dir, const char *name) {
    CLEANUP(mem_freep) char *own = NULL, *log = NULL;
    TRY(str_format(&own, "%s/%s/report.html", dir, name));
    TRY(str_format(&log, "%s/%s.log", dir, name));
    page_cell_open(page, NULL);
    if (path_exists(own)) page_put(page, "<a href=\"%s/report.html\">page</a> ", name);
    if (path_exists(log)) page_put(page, "<a href=\"%s.log\">log</a>", name);
    page_put(page, "</td>");
    return OK;
}

static Status put_list(Page *page, const PartsPage *of) {
    const json_t *part;
    size_t i;
    char time[FORMAT_SIZE];
    page_section(page, "Parts", NULL);
    page_table(page, NULL, "part", "<command", "<state", "time", "<files", NULL);
    json_array_foreach(parts_of(of->study), i, part) {
        double seconds;
        page_row(page, NULL);
        page_put(page, "%s", json_string_at(part, "title"));
        page_cell_open(page, "why");
        page_put(page, "%s</td>", json_string_at(part, "line"));
        page_cell_open(page, is_in_state(part, RUN_FAILED) ? "failed" : NULL);
        page_put(page, "%s</td>", json_string_at(part, "state"));
        page_cell(page, "%s",
                  json_has_number(part, "seconds", &seconds) ? format_duration(time, seconds) : "-");
        TRY(put_link(page, of->dir, json_string_at(part, "name")));
    }
    page_table_end(page);
    return OK;
}

/* ---- parts ---- */

static Status put_runs(Page *page, const Results *results) {
    static PageSection *const sections[] = {put_table,   put_study,  put_charts, put_losses,
                                            put_samples, put_epochs, put_sweeps};
    CLEANUP(mem_freep) char *text = NULL, *findings = NULL;
    TRY(results_summary(results, &text));
    TRY(findings_text(results, &findings));
    page_put(page, "<p>%s%s%s</p>\n", text, *findings ? " " : "", findings);
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) TRY(sections[i](page, results));
    return OK;
}

static Status put_comparison(Page *page, const char *dir) {
    CLEANUP(results_done) Results results = {0};
    CLEANUP(mem_freep) char *file = NULL;
    TRY(path_join(&file, dir, "results.json"));
    if (!path_exists(file)) return OK;
    TRY(results_read(&results, dir));
    return results.count ? put_runs(page, &results) : OK;
}

static Status put_run(Page *page, const char *dir) {
    CLEANUP(results_done) Results results = {0};
    CLEANUP(mem_freep) char *file = NULL;
    Run *run;
    TRY(path_join(&file, dir, "metrics.jsonl"));
    if (!path_exists(file)) return OK;
    TRY(results_add(&results, page->part, dir, &run));
    TRY(run_look(run));
    return put_runs(page, &results);
}

static Status put_files(Page *page, const char *dir) {
    CLEANUP(compressed_done) Compressed of = {0};
    TRY(compressed_read(&of, &dir, 1));
    return put_compressed(page, &of);
}

/* What the command printed, for parts without a section of their own. */
static Status put_output(Page *page, const char *dir) {
    CLEANUP(mem_freep) char *file = NULL, *text = NULL;
    size_t size;
    TRY(str_format(&file, "%s.txt", dir));
    if (!path_exists(file)) return OK;
    TRY(file_read(file, 1 << 20, &text, &size));
    if (size) page_put(page, "<pre>%s</pre>\n", text);
    return OK;
}

static Status put_part(Page *page, const PartsPage *of, const json_t *part) {
    static const struct {
        const char *command;
        Status (*put)(Page *page, const char *dir);
    } kinds[] = {
        {"compare", put_comparison}, {"train", put_run}, {"prune", put_files}, {"quantize", put_files}};
    CLEANUP(mem_freep) char *dir = NULL, *prefix = NULL;
    const char *name = json_string_at(part, "name"), *error = json_string_at(part, "error");
    Status (*put)(Page *, const char *) = put_output;
    page_section(page, json_string_at(part, "title"), NULL);
    if (is_in_state(part, RUN_FAILED))
        page_put(page, "<p class=\"lead\">Failed: %s</p>\n", error ? error : "?");
    if (is_left_out(part)) page_put(page, "<p class=\"lead\">Left out: %s.</p>\n", error ? error : "?");
    if (is_in_state(part, RUN_WAITING)) page_put(page, "<p class=\"lead\">Not started.</p>\n");
    if (is_left_out(part) || is_in_state(part, RUN_WAITING)) return OK;
    TRY(path_join(&dir, of->dir, name));
    TRY(str_format(&prefix, "%s-", name));
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].command, json_string_at(part, "command"))) put = kinds[i].put;
    page->part = json_string_at(part, "title");
    page->prefix = prefix;
    CLEANUP(status_freep) Status damaged = put(page, dir);
    page_section_end(page);
    if (damaged) put_note(page, page->part, status_message(damaged));
    page->part = page->prefix = NULL;
    return OK;
}

static Status put_page(Page *page, const void *data) {
    const PartsPage *of = data;
    const json_t *part;
    size_t i, count = json_array_size(parts_of(of->study));
    page_begin(page, "Study", json_string_at(of->study, "title"), json_string_at(of->study, "about"));
    if (json_string_at(of->study, "scale")) put_chip(page, "scale %s", json_string_at(of->study, "scale"));
    put_chip(page, "%zu part%s", count, PLURAL(count));
    if (json_string_at(of->study, "hardware"))
        put_chip(page, "published on %s", json_string_at(of->study, "hardware"));
    page_header_end(page);
    put_overview(page, of);
    TRY(put_all_findings(page, of));
    TRY(put_list(page, of));
    json_array_foreach(parts_of(of->study), i, part) TRY(put_part(page, of, part));
    page_section(page, "Repeating it", NULL);
    page_put(page, "<pre>%s</pre>\n", json_string_at(of->study, "line"));
    page_end(page);
    return OK;
}

Status page_write_parts(const json_t *study, const char *dir) {
    CLEANUP(mem_freep) char *path = NULL;
    TRY(path_join(&path, dir, "report.html"));
    return page_save_alone(path, put_page, &(PartsPage){study, dir});
}
