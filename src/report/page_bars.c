/* Bars in plain HTML: throughput, time by phase, memory by rank. Widths are percent of the largest. */
#include <math.h>
#include <string.h>

#include "base/format.h"
#include "report/page.h"
#include "report/words.h"

enum { SAMPLES = 1, TOKENS = 2, TAGS = 6, RANKS_SHOWN = 16 };

static const char *const tags[TAGS] = {"params", "grads", "optimizer", "activations", "comm", "scratch"};

static double largest(const Results *results, size_t figure) {
    double most = 0;
    for (size_t i = 0; i < results->count; i++) {
        double value = run_figure(&results->runs[i], figure);
        if (isfinite(value) && value > most) most = value;
    }
    return most;
}

static void put_throughput(FILE *out, const Results *results) {
    char text[FORMAT_SIZE];
    double most = largest(results, TOKENS);
    if (!(most > 0)) return;
    fputs("<section><h2>Throughput, tokens a second</h2>\n", out);
    for (size_t i = 0; i < results->count; i++) {
        const Run *run = &results->runs[i];
        double value = run_figure(run, TOKENS);
        if (!isfinite(value)) continue;
        fputs("<div class=\"row\"><span>", out);
        put_html(out, run->name);
        fprintf(
            out,
            "</span><div class=\"bar\"><i style=\"width:%.2f%%;background:%s\"></i></div><b>%s</b></div>\n",
            100 * value / most, run_color(results, run), figure_text(text, UNIT_RATE, value));
    }
    fputs("</section>\n", out);
}

static void put_legend(FILE *out, const char *name, int color) {
    fprintf(out, "<span><span class=\"swatch\" style=\"background:var(--p%d)\"></span>%s</span>", color,
            name);
}

/* The time of one sample, so that runs with other batches can be held against each other. */
static void put_phases(FILE *out, const Results *results) {
    double share[PHASES], slowest = INFINITY;
    for (size_t i = 0; i < results->count; i++) {
        double rate = run_figure(&results->runs[i], SAMPLES);
        if (run_phases(&results->runs[i], share) && rate > 0 && rate < slowest) slowest = rate;
    }
    if (!isfinite(slowest)) return;
    fputs("<section><h2>Where the time of a sample goes</h2>\n<div class=\"legend\">", out);
    for (int p = 0; p < PHASES; p++) put_legend(out, phase_name((Phase)p), p);
    fputs("</div>\n", out);
    for (size_t i = 0; i < results->count; i++) {
        const Run *run = &results->runs[i];
        double rate = run_figure(run, SAMPLES);
        if (!run_phases(run, share) || !(rate > 0)) continue;
        fputs("<div class=\"row\"><span>", out);
        put_html(out, run->name);
        fputs("</span><div class=\"bar\">", out);
        for (int p = 0; p < PHASES; p++)
            if (share[p] > 0)
                fprintf(out, "<i style=\"width:%.2f%%;background:var(--p%d)\" title=\"%s %.1f %%\"></i>",
                        100 * share[p] * slowest / rate, p, phase_name((Phase)p), 100 * share[p]);
        fprintf(out, "</div><span>%.2f ms</span></div>\n", 1e3 / rate);
    }
    fputs(
        "<p class=\"note\">Averages over the ranks, in steps. A shorter bar is a faster run.</p></section>\n",
        out);
}

/* ---- memory ---- */

static const json_t *rank_memory(const Run *run, size_t rank) {
    const json_t *ranks = json_object_get(run->summary, "ranks");
    return json_object_get(json_array_get(ranks, rank), "peak_bytes");
}

static size_t rank_count(const Run *run) {
    return json_array_size(json_object_get(run->summary, "ranks"));
}

static double tag_bytes(const json_t *memory, int tag) {
    double bytes = json_number_value(json_object_get(memory, tags[tag]));
    return isfinite(bytes) && bytes > 0 ? bytes : 0;
}

static double tags_sum(const json_t *memory) {
    double sum = 0;
    for (int tag = 0; tag < TAGS; tag++) sum += tag_bytes(memory, tag);
    return sum;
}

static void put_rank(FILE *out, const Run *run, size_t rank, double most) {
    char text[FORMAT_SIZE];
    const json_t *memory = rank_memory(run, rank);
    fprintf(out, "<div class=\"row\"><span class=\"rank\">rank %zu</span><div class=\"bar\">", rank);
    for (int tag = 0; tag < TAGS; tag++) {
        double bytes = tag_bytes(memory, tag);
        if (bytes > 0)
            fprintf(out, "<i style=\"width:%.2f%%;background:var(--p%d)\" title=\"%s %s\"></i>",
                    100 * bytes / most, tag, tags[tag], format_bytes(text, bytes));
    }
    const json_t *total = json_object_get(memory, "total");
    fprintf(out, "</div><span>%s</span></div>\n",
            format_bytes(text, json_is_number(total) ? json_number_value(total) : tags_sum(memory)));
}

static void put_memory(FILE *out, const Results *results) {
    double most = 0;
    for (size_t i = 0; i < results->count; i++)
        for (size_t rank = 0; rank < rank_count(&results->runs[i]); rank++)
            most = fmax(most, tags_sum(rank_memory(&results->runs[i], rank)));
    if (!(most > 0)) return;
    fputs("<section><h2>Memory of each rank</h2>\n<div class=\"legend\">", out);
    for (int tag = 0; tag < TAGS; tag++) put_legend(out, tags[tag], tag);
    fputs("</div>\n", out);
    for (size_t i = 0; i < results->count; i++) {
        const Run *run = &results->runs[i];
        size_t count = rank_count(run);
        if (!count) continue;
        fputs("<div><b>", out);
        put_html(out, run->name);
        fputs("</b></div>\n", out);
        for (size_t rank = 0; rank < count && rank < RANKS_SHOWN; rank++) put_rank(out, run, rank, most);
        if (count > RANKS_SHOWN)
            fprintf(out, "<p class=\"note\">and %zu ranks more</p>\n", count - RANKS_SHOWN);
    }
    fputs(
        "<p class=\"note\">The number is the largest sum at one moment. The parts are the peaks of each use, "
        "which need not meet, so that a bar can be longer than its number.</p></section>\n",
        out);
}

void put_bars(FILE *out, const Results *results) {
    put_throughput(out, results);
    put_phases(out, results);
    put_memory(out, results);
}
