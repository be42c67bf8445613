/* Bars: time by phase, total runtime, and memory by rank. */
#include <math.h>
#include <string.h>

#include "base/format.h"
#include "device/device.h"
#include "report/bars.h"
#include "report/comparable.h"
#include "report/page.h"
#include "report/spread.h"
#include "report/summary.h"

#define SHARE_VISIBLE 0.002 /* smaller parts are left out */
enum {
    MAX_BARS = 16,  /* memory bars per run */
    MAX_SINGLE = 4, /* with more ranks than this, identical neighbors share a bar */
};

/* A segment of `share` of its row. */
static Status add_share(BarChart *chart, int category, double share, double length) {
    char title[96], label[16];
    if (!(share >= SHARE_VISIBLE)) return OK;
    snprintf(title, sizeof title, "%s %.1f%%", chart->categories[category].name, 100 * share);
    snprintf(label, sizeof label, "%.0f%%", 100 * share);
    return bars_add(chart, category, length, title, label);
}

/* ---- time ---- */

static Status add_times(BarChart *chart, const Run *run, bool sizes) {
    double share[SHARES], rate = run_figure(run, FIGURE_SAMPLES);
    char text[FORMAT_SIZE];
    if (!run_shares(run, share) || !(rate > 0)) return OK;
    TRY(bars_row(chart, (BarRow){.name = run->name,
                                 .more = run_remark(run),
                                 .value = time_text(text, 1 / rate),
                                 .full = sizes ? 1e3 / rate : 0}));
    for (int p = 0; p < SHARES; p++) TRY(add_share(chart, p, share[p], 1e3 * share[p] / rate));
    return OK;
}

static Status put_spent(Page *page, const Results *results) {
    static const BarCategory parts[SPENT_PARTS] = {{"training", COLOR_PART},
                                                   {"evaluation", COLOR_PART + 1},
                                                   {"checkpoints", COLOR_PART + 4},
                                                   {"setup", COLOR_PART + 7}};
    CLEANUP(bars_done) BarChart chart = {.categories = parts, .legend = SPENT_PARTS};
    char text[FORMAT_SIZE];
    results_foreach(results, run) {
        double share[SPENT_PARTS];
        if (!run_spent(run, share)) continue;
        figure_text(text, FIGURE_FORMAT_SECONDS, run_figure(run, FIGURE_RUNTIME));
        TRY(bars_row(&chart, (BarRow){.name = run->name, .more = run_remark(run), .value = text, .full = 1}));
        for (int p = 0; p < SPENT_PARTS; p++) TRY(add_share(&chart, p, share[p], share[p]));
    }
    if (!chart.row_count) return OK;
    page_put(page, "<h3>Total runtime</h3>\n");
    return put_bars(page, &chart);
}

/* Bars show the time per sample, so that runs with different batch sizes are comparable. With models of
 * different sizes that is meaningless, and all bars have the same length. */
Status put_phases(Page *page, const Results *results) {
    BarCategory phases[SHARES];
    CLEANUP(bars_done)
    BarChart chart = {
        .name = "time-per-sample", .x_label = "ms per sample", .categories = phases, .legend = SHARES};
    bool sizes = results_differ(results, run_params);
    for (int p = 0; p < SHARES; p++)
        phases[p] = (BarCategory){share_name((StepShare)p), COLOR_PART + share_color((StepShare)p)};
    for (size_t i = 0; i < results->count; i++) TRY(add_times(&chart, &results->runs[i], sizes));
    if (!chart.row_count) return OK;
    page_section(
        page, sizes ? "Step time by phase" : "Time per sample",
        sizes ? "Averaged over the ranks of each run. The number after each bar is the time per sample."
              : "Shorter bars mean faster runs. Percentages are shares of each run's step time, "
                "averaged over its ranks.");
    TRY(put_bars(page, &chart));
    return put_spent(page, results);
}

/* ---- memory ---- */

_Static_assert((int)MEMORY_TOTAL == (int)MEM_TAGS, "one part for each tag");
const BarCategory memory_parts[MEMORY_PARTS] = {{"parameters", COLOR_PART + 1},
                                                {"gradients", COLOR_PART + 4},
                                                {"optimizer state", COLOR_PART + 5},
                                                {"activations", COLOR_PART},
                                                {"communication", COLOR_PART + 3},
                                                {"workspace", COLOR_PART + 2},
                                                {"total of another program", COLOR_PART + 2}};

Status bars_add_bytes(BarChart *chart, int part, double bytes) {
    char title[96], text[FORMAT_SIZE];
    if (!(isfinite(bytes) && bytes > 0)) return OK;
    snprintf(title, sizeof title, "%s %s", part == MEMORY_TOTAL ? "total" : memory_parts[part].name,
             format_bytes(text, bytes));
    return bars_add(chart, part, bytes, title, NULL);
}

static const json_t *rank_memory(const Run *run, size_t rank) {
    return json_object_get(json_array_get(run->summary.ranks, rank), "peak_bytes");
}

static const char *rank_host(const Run *run, size_t rank) {
    return json_string_or(json_array_get(run->summary.ranks, rank), "host", "");
}

/* The marker in the bar is the peak of the total, which can be lower than the sum of the peaks. Programs
 * other than weft have only a total. */
static Status add_rank(BarChart *chart, const Run *run, const char *label, const json_t *memory,
                       const char *note) {
    double bytes[MEM_TAGS], sum = 0, total;
    char text[FORMAT_SIZE];
    for (MemTag tag = 0; tag < MEM_TAGS; tag++) {
        bytes[tag] = fmax(0, json_number_or(memory, mem_tag_name(tag), 0));
        sum += bytes[tag];
    }
    total = json_number_or(memory, "total", sum);
    TRY(bars_row(chart, (BarRow){.group = run->name,
                                 .group_more = run_remark(run),
                                 .name = label,
                                 .value = format_bytes(text, total),
                                 .mark = total,
                                 .note = note}));
    for (MemTag tag = 0; tag < MEM_TAGS; tag++) TRY(bars_add_bytes(chart, (int)tag, bytes[tag]));
    return sum > 0 ? OK : bars_add_bytes(chart, MEMORY_TOTAL, total);
}

/* A run that wrote no summary records only the peak over all ranks. */
static Status add_ranks(BarChart *chart, const Run *run) {
    size_t count = json_array_size(run->summary.ranks), last;
    char label[128], note[48] = "";
    bool hosts = count && strcmp(rank_host(run, 0), rank_host(run, count - 1));
    if (!rank_memory(run, 0))
        return run->summary.peak_bytes ? add_rank(chart, run, "max", run->summary.peak_bytes, NULL) : OK;
    for (size_t rank = 0, shown = 1; rank < count && shown <= MAX_BARS; rank = last + 1, shown++) {
        for (last = rank; count > MAX_SINGLE && last + 1 < count &&
                          json_equal(rank_memory(run, last + 1), rank_memory(run, rank));)
            last++;
        if (last > rank)
            snprintf(label, sizeof label, "ranks %zu–%zu", rank, last);
        else
            snprintf(label, sizeof label, hosts ? "rank %zu on %s" : "rank %zu", rank, rank_host(run, rank));
        if (shown == MAX_BARS && last + 1 < count)
            snprintf(note, sizeof note, "and %zu more rank%s", count - last - 1, PLURAL(count - last - 1));
        TRY(add_rank(chart, run, label, rank_memory(run, rank), *note ? note : NULL));
    }
    return OK;
}

Status put_memory(Page *page, const Results *results) {
    CLEANUP(bars_done)
    BarChart chart = {.name = "memory-ranks",
                      .x_label = "peak memory",
                      .format = AXIS_BYTES,
                      .categories = memory_parts,
                      .legend = MEMORY_PARTS};
    bool tagged = false;
    for (size_t i = 0; i < results->count; i++) TRY(add_ranks(&chart, &results->runs[i]));
    if (!chart.box_count) return OK;
    for (size_t i = 0; i < chart.box_count; i++) tagged |= chart.boxes[i].category != MEMORY_TOTAL;
    page_section(page, "Memory per rank",
                 tagged ? "Each segment is the peak of one category; the peaks can occur at different times. "
                          "The marker and the number show the peak of the total."
                        : "Predicted peak of the total.");
    return put_bars(page, &chart);
}
