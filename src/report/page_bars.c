/* Bar charts in plain HTML: time by phase, total runtime, and memory by rank. Bar widths are percentages of
 * the longest bar. */
#include <math.h>
#include <string.h>

#include "base/format.h"
#include "base/memory.h"
#include "report/boxes.h"
#include "report/comparable.h"
#include "report/page.h"
#include "report/summary.h"

#define SHARE_VISIBLE 0.002 /* smaller phases are left out of the legend */
enum {
    TAGS = 6,
    MAX_BARS = 16,     /* memory bars per run */
    MAX_SINGLE = 4,    /* with more ranks than this, identical neighbors share a bar */
    LABEL_PERCENT = 8, /* segments at least this wide have a label */
    TOTAL_COLOR = 2    /* memory that is not split by category */
};

static const char *const tags[TAGS] = {"params", "grads", "optimizer", "activations", "comm", "scratch"};
static const char *const tag_names[TAGS] = {"parameters",  "gradients",     "optimizer state",
                                            "activations", "communication", "workspace"};
static const int tag_color[TAGS] = {1, 4, 5, 0, 3, 2};

const char *part_color(char buffer[COLOR_TEXT], int part) {
    snprintf(buffer, COLOR_TEXT, "var(--p%d)", part);
    return buffer;
}

void put_segment(FILE *out, double percent, int color, const char *title, const char *label) {
    fprintf(out, "<i style=\"width:%.2f%%;background:var(--p%d);color:var(--l%d)\" title=\"%s\">%s</i>",
            percent, color, color, title, label);
}

/* A segment of `percent` of the bar that shows `share` of something, labeled if there is room. */
static void put_share(FILE *out, double percent, int color, const char *name, double share) {
    char title[96], label[16] = "";
    snprintf(title, sizeof title, "%s %.1f%%", name, 100 * share);
    if (percent >= LABEL_PERCENT) snprintf(label, sizeof label, "%.0f%%", 100 * share);
    put_segment(out, percent, color, title, label);
}

/* ---- time ---- */

static const char *short_time(char *buffer, double seconds) {
    if (seconds >= 1)
        snprintf(buffer, FORMAT_SIZE, "%.3g s", seconds);
    else if (seconds >= 1e-3)
        snprintf(buffer, FORMAT_SIZE, "%.3g ms", 1e3 * seconds);
    else
        snprintf(buffer, FORMAT_SIZE, "%.3g µs", 1e6 * seconds);
    return buffer;
}

static void put_time(FILE *out, const Run *run, const double *share, double rate, double slowest) {
    char text[FORMAT_SIZE];
    fputs("<div class=\"row\"><span>", out);
    put_run_name(out, run);
    fputs("</span><div class=\"bar\">", out);
    for (int p = 0; p < PHASES; p++)
        if (share[p] > 0)
            put_share(out, 100 * share[p] * slowest / rate, phase_color((Phase)p), phase_name((Phase)p),
                      share[p]);
    fprintf(out, "</div><span>%s</span></div>\n", short_time(text, 1 / rate));
}

/* ---- total runtime ---- */

static void put_spent_row(FILE *out, const Run *run, const double *share) {
    static const int colors[SPENT_PARTS] = {0, 1, 4, 7};
    char text[FORMAT_SIZE];
    fputs("<div class=\"row\"><span>", out);
    put_run_name(out, run);
    fputs("</span><div class=\"bar\">", out);
    for (int i = 0; i < SPENT_PARTS; i++)
        if (share[i] > 0) put_share(out, 100 * share[i], colors[i], spent_name((Spent)i), share[i]);
    fprintf(out, "</div><span>%s</span></div>\n",
            figure_text(text, FIGURE_FORMAT_SECONDS, run_figure(run, FIGURE_RUNTIME)));
}

static void put_spent(FILE *out, const Results *results) {
    static const char *const colors[SPENT_PARTS] = {"var(--p0)", "var(--p1)", "var(--p4)", "var(--p7)"};
    double share[SPENT_PARTS];
    bool any = false;
    for (size_t i = 0; i < results->count; i++) {
        if (!run_spent(&results->runs[i], share)) continue;
        if (!any) {
            fputs("<h3>Total runtime</h3>\n<div class=\"legend\">", out);
            for (int p = 0; p < SPENT_PARTS; p++) put_key(out, colors[p], spent_name((Spent)p));
            fputs("</div>\n", out);
        }
        any = true;
        put_spent_row(out, &results->runs[i], share);
    }
}

/* The same bars, in milliseconds, as files. */
static Status write_phases(const Results *results, Figures *drawn) {
    CLEANUP(boxes_done) BoxChart chart = {.name = "time-per-sample", .x_label = "ms per sample"};
    double share[PHASES];
    for (size_t i = 0; i < results->count; i++) {
        double rate = run_figure(&results->runs[i], FIGURE_SAMPLES), from = 0;
        if (!run_phases(&results->runs[i], share) || !(rate > 0)) continue;
        TRY(boxes_row(&chart, results->runs[i].name, -1));
        for (int p = 0; p < PHASES; from += share[p++] * 1e3 / rate)
            if (share[p] >= SHARE_VISIBLE)
                TRY(boxes_add(&chart, phase_name((Phase)p), phase_color((Phase)p), from,
                              from + share[p] * 1e3 / rate));
    }
    return boxes_write(&chart, drawn);
}

/* Bars show the time per sample, so that runs with different batch sizes are comparable. With models of
 * different sizes that is meaningless, and all bars have the same length. */
Status put_phases(FILE *out, const Results *results, Figures *drawn) {
    char text[COLOR_TEXT];
    double share[PHASES], slowest = INFINITY;
    bool seen[PHASES] = {0};
    for (size_t i = 0; i < results->count; i++) {
        double rate = run_figure(&results->runs[i], FIGURE_SAMPLES);
        if (!run_phases(&results->runs[i], share) || !(rate > 0)) continue;
        slowest = fmin(slowest, rate);
        for (int p = 0; p < PHASES; p++) seen[p] |= share[p] >= SHARE_VISIBLE;
    }
    if (!isfinite(slowest)) return OK;
    bool sizes = results_differ(results, run_params);
    put_section(out, sizes ? "Step time by phase" : "Time per sample",
                sizes
                    ? "Averaged over the ranks of each run. The number after each bar is the time per sample."
                    : "Shorter bars mean faster runs. Percentages are shares of each run's step time, "
                      "averaged over its ranks.");
    fputs("<div class=\"legend\">", out);
    for (int p = 0; p < PHASES; p++)
        if (seen[p]) put_key(out, part_color(text, phase_color((Phase)p)), phase_name((Phase)p));
    fputs("</div>\n", out);
    for (size_t i = 0; i < results->count; i++) {
        double rate = run_figure(&results->runs[i], FIGURE_SAMPLES);
        if (run_phases(&results->runs[i], share) && rate > 0)
            put_time(out, &results->runs[i], share, rate, sizes ? rate : slowest);
    }
    put_spent(out, results);
    fputs("</section>\n", out);
    return write_phases(results, drawn);
}

/* ---- memory ---- */

static const json_t *rank_memory(const Run *run, size_t rank) {
    return json_object_get(json_array_get(run->summary.ranks, rank), "peak_bytes");
}

static const char *rank_host(const Run *run, size_t rank) {
    return json_string_or(json_array_get(run->summary.ranks, rank), "host", "");
}

static size_t rank_count(const Run *run) {
    return json_array_size(run->summary.ranks);
}

static double tag_bytes(const json_t *memory, int tag) {
    double bytes = json_number_at(memory, tags[tag]);
    return isfinite(bytes) && bytes > 0 ? bytes : 0;
}

static double tags_sum(const json_t *memory) {
    double sum = 0;
    for (int tag = 0; tag < TAGS; tag++) sum += tag_bytes(memory, tag);
    return sum;
}

static double total_of(const json_t *memory) {
    const json_t *total = json_object_get(memory, "total");
    return json_is_number(total) ? json_number_value(total) : tags_sum(memory);
}

/* The length of a bar. Programs other than weft have only a total. */
static double bar_bytes(const json_t *memory) {
    double sum = tags_sum(memory);
    return sum > 0 ? sum : total_of(memory);
}

/* The marker in the bar is the peak of the total, which can be lower than the sum of the peaks. */
static void put_rank(FILE *out, const char *label, const json_t *memory, double longest) {
    char text[FORMAT_SIZE], title[96];
    fputs("<div class=\"row\"><span>", out);
    put_html(out, label);
    fputs("</span><div class=\"bar\">", out);
    for (int tag = 0; tag < TAGS; tag++) {
        double bytes = tag_bytes(memory, tag);
        snprintf(title, sizeof title, "%s %s", tag_names[tag], format_bytes(text, bytes));
        if (bytes > 0) put_segment(out, 100 * bytes / longest, tag_color[tag], title, "");
    }
    snprintf(title, sizeof title, "total %s", format_bytes(text, total_of(memory)));
    if (!(tags_sum(memory) > 0)) put_segment(out, 100 * total_of(memory) / longest, TOTAL_COLOR, title, "");
    fprintf(out, "<u style=\"left:calc(%.2f%% - 2px)\"></u></div><span>%s</span></div>\n",
            100 * fmin(1, total_of(memory) / longest), format_bytes(text, total_of(memory)));
}

static void put_each(FILE *out, const Run *run, double longest) {
    size_t count = rank_count(run), shown = 0, rank = 0;
    char label[128];
    bool hosts = count && strcmp(rank_host(run, 0), rank_host(run, count - 1));
    for (; rank < count && shown < MAX_BARS; shown++) {
        size_t last = rank;
        while (count > MAX_SINGLE && last + 1 < count &&
               json_equal(rank_memory(run, last + 1), rank_memory(run, rank)))
            last++;
        if (last > rank)
            snprintf(label, sizeof label, "ranks %zu–%zu", rank, last);
        else
            snprintf(label, sizeof label, hosts ? "rank %zu on %s" : "rank %zu", rank, rank_host(run, rank));
        put_rank(out, label, rank_memory(run, rank), longest);
        rank = last + 1;
    }
    if (rank < count)
        fprintf(out, "<p class=\"note\">and %zu more rank%s</p>\n", count - rank, PLURAL(count - rank));
}

/* A run that wrote no summary records only the peak over all ranks. */
static void put_ranks(FILE *out, const Run *run, double longest) {
    const json_t *any = run->summary.peak_bytes;
    if (!rank_memory(run, 0) && !any) return;
    fputs("<div><h3>", out);
    put_run_name(out, run);
    fputs("</h3>\n", out);
    if (rank_memory(run, 0))
        put_each(out, run, longest);
    else
        put_rank(out, "max", any, longest);
    fputs("</div>\n", out);
}

/* The same bars as files, without those of further ranks of runs with many. */
static Status write_memory(const Results *results, Figures *drawn) {
    CLEANUP(boxes_done)
    BoxChart chart = {.name = "memory-ranks", .x_label = "peak memory", .format = AXIS_BYTES};
    for (size_t i = 0; i < results->count; i++) {
        const Run *run = &results->runs[i];
        for (size_t rank = 0; rank < rank_count(run) && rank < MAX_BARS; rank++) {
            const json_t *memory = rank_memory(run, rank);
            double from = 0;
            TRY(boxes_row(&chart, run->name, (int)rank));
            for (int tag = 0; tag < TAGS; from += tag_bytes(memory, tag++))
                if (tag_bytes(memory, tag) > 0)
                    TRY(boxes_add(&chart, tag_names[tag], tag_color[tag], from,
                                  from + tag_bytes(memory, tag)));
            if (!(tags_sum(memory) > 0)) TRY(boxes_add(&chart, "total", TOTAL_COLOR, 0, total_of(memory)));
        }
    }
    return boxes_write(&chart, drawn);
}

Status put_memory(FILE *out, const Results *results, Figures *drawn) {
    char color[COLOR_TEXT];
    double longest = 0;
    bool tagged = false, untagged = false;
    for (size_t i = 0; i < results->count; i++) {
        const Run *run = &results->runs[i];
        const json_t *any = run->summary.peak_bytes;
        longest = fmax(longest, bar_bytes(any));
        for (size_t rank = 0; rank < rank_count(run); rank++) {
            const json_t *memory = rank_memory(run, rank);
            longest = fmax(longest, bar_bytes(memory));
            tagged |= tags_sum(memory) > 0;
            untagged |= !(tags_sum(memory) > 0) && total_of(memory) > 0;
        }
        tagged |= tags_sum(any) > 0;
    }
    if (!(longest > 0)) return OK;
    put_section(out, "Memory per rank",
                tagged ? "Each segment is the peak of one category; the peaks can occur at different times. "
                         "The marker and the number show the peak of the total."
                       : "Predicted peak of the total.");
    fputs("<div class=\"legend\">", out);
    for (int tag = 0; tag < TAGS && tagged; tag++)
        put_key(out, part_color(color, tag_color[tag]), tag_names[tag]);
    if (untagged && tagged) put_key(out, part_color(color, TOTAL_COLOR), "total of another program");
    fputs("</div>\n<div class=\"ranks\">\n", out);
    for (size_t i = 0; i < results->count; i++) put_ranks(out, &results->runs[i], longest);
    fputs("</div>\n</section>\n", out);
    return write_memory(results, drawn);
}
