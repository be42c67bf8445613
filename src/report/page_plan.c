/* The page of a plan or a search: what was found, speed against memory, where the time of each layout goes,
 * a timeline of the fastest, and why the others lose. */
#include "report/page_plan.h"

#include <math.h>
#include <string.h>

#include "base/format.h"
#include "base/memory.h"
#include "base/setting.h"
#include "model/family.h"
#include "report/bars.h"
#include "report/page.h"

enum { MAX_NAMED = SEARCH_BEST + OTHER_COUNT };

typedef struct PlanPage {
    const PlanFacts *facts;
    const Search *search;
    const PlannedLayout *first;
    const Fit *fit;
    NamedResult named[MAX_NAMED]; /* rows of the table: the best, then the alternatives */
    size_t count;
} PlanPage;

/* ---- texts ---- */

SearchLayout page_layout_of(const Plan *plan) {
    const RunnerSpec *run = &plan->runner;
    return (SearchLayout){.mesh = plan->mesh,
                          .zero = (int)run->zero,
                          .chunks = run->chunks > 0 ? (int)run->chunks : 1,
                          .micros = run->micros,
                          .sequence = run->sequence,
                          .schedule = run->schedule,
                          .recompute = run->recompute,
                          .micro_batch = run->micro_batch};
}

const char *layout_grid(const SearchLayout *layout, char text[LAYOUT_TEXT]) {
    return mesh_text(layout->mesh, text);
}

const char *layout_rest(const SearchLayout *l, char text[LAYOUT_TEXT]) {
    int used = snprintf(text, LAYOUT_TEXT, "ZeRO %d, %d micro-batch%s of %lld", l->zero, l->micros,
                        l->micros == 1 ? "" : "es", (long long)l->micro_batch);
    if (l->mesh.pp > 1)
        used += snprintf(text + used, LAYOUT_TEXT - (size_t)used, ", %s", schedule_name(l->schedule));
    if (l->chunks > 1) used += snprintf(text + used, LAYOUT_TEXT - (size_t)used, " %d", l->chunks);
    if (l->recompute != RECOMPUTE_NONE)
        used += snprintf(text + used, LAYOUT_TEXT - (size_t)used, ", recompute %s",
                         recompute_names[l->recompute]);
    if (l->sequence) snprintf(text + used, LAYOUT_TEXT - (size_t)used, ", sequence-parallel");
    return text;
}

double plan_cost(const PlanFacts *facts, int ranks, double tokens_per_s) {
    if (!(facts->price > 0)) return NAN;
    return 1e6 * facts->price * cluster_units(facts->cluster, ranks) / 3600 / tokens_per_s;
}

/* ---- header and summary ---- */

void put_plan_head(FILE *out, const char *eyebrow, const PlanFacts *facts) {
    char title[160], number[FORMAT_SIZE];
    snprintf(title, sizeof title, "%s, %s parameters", facts->model->family->title,
             format_count(number, (double)facts->params));
    size_t used = strlen(title);
    if (facts->ranks)
        snprintf(title + used, sizeof title - used, ", on %d x %.60s", facts->ranks, facts->cluster->device);
    else
        snprintf(title + used, sizeof title - used, ", on %.60s", facts->cluster->device);
    page_begin(out, eyebrow, title, NULL, false);
    put_chip(out, "%lld layer%s, hidden size %lld, %lld head%s", (long long)facts->model->layers,
             PLURAL(facts->model->layers), (long long)facts->model->hidden, (long long)facts->model->heads,
             PLURAL(facts->model->heads));
    put_chip(out, "batch %lld x %lld tokens", (long long)facts->batch, (long long)facts->seq);
    put_chip(out, "%s", facts->precision);
    put_chip(out, "cluster %.60s", facts->cluster->name);
    if (facts->cluster->software.present) put_chip(out, "%s", facts->cluster->software.title);
    if (facts->price > 0)
        put_chip(out, "%.4g per %s-hour", facts->price, facts->cluster->gpu ? "GPU" : "node");
    page_header_end(out);
}

static double available(const PlanPage *page) {
    return page->search ? page->search->available : page->fit->available;
}

static void put_sentence(FILE *out, const PlanPage *page) {
    const SearchResult *result = &page->first->result;
    const Search *search = page->search;
    char grid[LAYOUT_TEXT], step[FORMAT_SIZE], needed[FORMAT_SIZE], limit[FORMAT_SIZE];
    layout_grid(&result->layout, grid);
    if (search && search->count)
        fprintf(out,
                "The fastest of %zu valid layouts is %s: %s per step at %.1f%% MFU, with %s of %s per rank. "
                "%zu were planned in full; estimates ruled out the others.",
                search->legal, grid, time_text(step, result->time.step_s), 100 * result->time.mfu,
                format_bytes(needed, (double)result->bytes), format_bytes(limit, available(page)),
                search->planned);
    else if (search)
        fprintf(out,
                "No layout fits. The smallest of the %zu planned ones, %s, needs %s per rank, and %s are "
                "available. Use more devices, offload, or a smaller batch.",
                search->planned, grid, format_bytes(needed, (double)result->bytes),
                format_bytes(limit, available(page)));
    else
        fprintf(out, "%s %s: %s per step at %.1f%% MFU, with %s of %s per rank.", grid,
                result->fits ? "fits" : "does not fit", time_text(step, result->time.step_s),
                100 * result->time.mfu, format_bytes(needed, (double)result->bytes),
                format_bytes(limit, available(page)));
}

static void put_tiles(FILE *out, const PlanPage *page) {
    const SearchResult *result = &page->first->result;
    char number[FORMAT_SIZE + 16], text[FORMAT_SIZE], detail[96];
    double cost = plan_cost(page->facts, page->facts->ranks, result->time.tokens_per_s);
    fputs("<div class=\"tiles\">\n", out);
    snprintf(number, sizeof number, "%s tokens/s", format_count(text, result->time.tokens_per_s));
    if (result->time.samples_per_s < 1000)
        snprintf(detail, sizeof detail, "%.3g samples/s", result->time.samples_per_s);
    else
        snprintf(detail, sizeof detail, "%s samples/s", format_count(text, result->time.samples_per_s));
    put_tile(out, "Throughput", number, detail, "");
    snprintf(detail, sizeof detail, "%.0f%% of what is available",
             100 * (double)result->bytes / available(page));
    put_tile(out, "Memory per rank", format_bytes(number, (double)result->bytes), detail, "");
    snprintf(number, sizeof number, "%.1f%%", 100 * result->time.mfu);
    snprintf(detail, sizeof detail, "bubble %.1f%%, communication %.1f%%", 100 * result->time.bubble,
             100 * result->time.phase_s[PHASE_COMMUNICATION] / result->time.step_s);
    put_tile(out, "MFU", number, detail, "");
    if (isfinite(cost)) {
        figure_text(number, FIGURE_FORMAT_COST, cost);
        snprintf(detail, sizeof detail, "%.4g per hour",
                 page->facts->price * cluster_units(page->facts->cluster, page->facts->ranks));
        put_tile(out, "Cost per million tokens", number, detail, "");
    }
    fputs("</div>\n", out);
}

static void put_summary(FILE *out, const PlanPage *page) {
    char options[SEARCH_OPTIONS];
    fputs("<section class=\"verdict\">\n<p>", out);
    put_sentence(out, page);
    fputs("</p>\n", out);
    put_tiles(out, page);
    fputs("<pre>", out);
    put_html(out, search_options(&page->first->result.layout, options));
    fputs("</pre>\n</section>\n", out);
}

/* ---- the table ---- */

void put_plan_cells(FILE *out, const SearchResult *result) {
    const StepEstimate *time = &result->time;
    char text[FORMAT_SIZE];
    put_cell(out, "step", "%s", time_text(text, time->step_s));
    put_cell(out, "tokens/s", "%s", format_count(text, time->tokens_per_s));
    put_cell(out, "memory", "%s", format_bytes(text, (double)result->bytes));
    put_cell(out, "MFU", "%.1f%%", 100 * time->mfu);
    put_cell(out, "bubble", "%.1f%%", 100 * time->bubble);
}

void put_cost_cell(FILE *out, double cost) {
    char text[FORMAT_SIZE];
    if (isfinite(cost)) put_cell(out, COST_COLUMN, "%s", figure_text(text, FIGURE_FORMAT_COST, cost));
}

static void put_row(FILE *out, const PlanPage *page, const NamedResult *named) {
    const SearchResult *r = named->result;
    char text[LAYOUT_TEXT], why[SEARCH_TEXT] = "fastest";
    fprintf(out, "<tr><th scope=\"row\">%s<small>", layout_grid(&r->layout, text));
    if (!r->fits) fputs("<span class=\"badge failed\">does not fit</span>", out);
    if (r->fits && on_front(page->search, r)) fputs("<span class=\"badge holds\">Pareto</span>", out);
    fprintf(out, "%s</small>", layout_rest(&r->layout, text));
    if (named->name) fprintf(out, "<small>%s</small>", named->name);
    fputs("</th>", out);
    put_plan_cells(out, r);
    put_cost_cell(out, plan_cost(page->facts, page->facts->ranks, r->time.tokens_per_s));
    if (r != page->named[0].result || !r->fits) search_reason(page->named[0].result, r, available(page), why);
    fprintf(out, "<td class=\"why\" data-label=\"why\">%s</td></tr>\n", why);
}

static void put_layouts(FILE *out, const PlanPage *page) {
    put_section(out, "Layouts and why they lose",
                "The fastest layouts that fit, then the best of each kind. Pareto: no planned layout that "
                "fits is both faster and smaller.");
    put_table_open(out, NULL, "layout", PLAN_COLUMNS, page->facts->price > 0 ? COST_COLUMN : "", "<why",
                   NULL);
    for (size_t i = 0; i < page->count; i++) put_row(out, page, &page->named[i]);
    put_table_close(out);
}

/* How many of the planned layouts lose to what. */
static Status put_losses_of(FILE *out, const Search *search) {
    static const BarCategory causes[LOSES_COUNT] = {
        [LOSES_TO_MEMORY] = {"do not fit", COLOR_PART + 2},
        [LOSES_TO_COMPUTE] = {"slower compute", COLOR_PART + 1},
        [LOSES_TO_RECOMPUTE] = {"recompute", COLOR_PART + 4},
        [LOSES_TO_COMMUNICATION] = {"communication", COLOR_PART + 6},
        [LOSES_TO_BUBBLE] = {"pipeline bubble", COLOR_PART + 7},
        [LOSES_TO_OPTIMIZER] = {"optimizer step", COLOR_PART + 3},
        [LOSES_TO_NONE] = {"as fast, within 0.5%", COLOR_PART}};
    CLEANUP(bars_done) BarChart chart = {.categories = causes};
    size_t counts[LOSES_COUNT] = {0};
    char number[24];
    for (size_t i = 1; i < search->planned; i++) counts[search_loss(&search->plan[0], &search->plan[i])]++;
    for (int loss = 0; loss < LOSES_COUNT; loss++) {
        snprintf(number, sizeof number, "%zu", counts[loss]);
        if (!counts[loss]) continue;
        TRY(bars_row(&chart, (BarRow){.name = causes[loss].name, .value = number, .thin = true}));
        TRY(bars_add(&chart, loss, (double)counts[loss], causes[loss].name, NULL));
    }
    fprintf(out, "<h3>What the other %zu planned layouts lose most to</h3>\n", search->planned - 1);
    return put_bars(out, &chart, &(Figures){0});
}

void put_invalid_grids(FILE *out, const SearchGrids *grids) {
    const struct {
        const char *why;
        int count;
    } reasons[] = {{"tp does not divide the heads", grids->by_heads},
                   {"more stages than layers", grids->by_layers},
                   {"dp does not divide the batch", grids->by_batch}};
    int bad = grids->by_heads + grids->by_layers + grids->by_batch;
    const char *separator = ": ";
    if (!bad) return;
    fprintf(out, " Of %d factorizations dp x tp x pp, %d %s invalid", grids->all, bad,
            bad == 1 ? "is" : "are");
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
        if (!reasons[i].count) continue;
        fprintf(out, "%s%s (%d)", separator, reasons[i].why, reasons[i].count);
        separator = ", ";
    }
    fputc('.', out);
}

/* Valid layouts that were not planned, and grids that are not valid. */
static void put_counts(FILE *out, const Search *search) {
    fprintf(out, "<p class=\"note\">Of %zu valid layouts, %zu were estimated to fit.", search->legal,
            search->estimated_to_fit);
    put_invalid_grids(out, &search->grids);
    fputs("</p>\n", out);
}

/* ---- a layout that does not fit ---- */

static void put_changes(FILE *out, const Fit *fit) {
    char text[FORMAT_SIZE];
    if (fit->fits || !fit->changes) return;
    put_section(out, "Changes that make it fit", "Each of them is enough, and has been planned.");
    fputs("<ul class=\"findings\">\n", out);
    for (int i = 0; i < fit->changes; i++) {
        fputs("<li><code>", out);
        put_html(out, fit->change[i].options);
        fprintf(out, "</code>: %s per rank</li>\n", format_bytes(text, (double)fit->change[i].total));
    }
    fputs("</ul>\n</section>\n", out);
}

/* ---- the page ---- */

static Status put_plan_page(FILE *out, const void *data, Figures *drawn) {
    const PlanPage *page = data;
    put_plan_head(out, page->search ? "Search" : "Plan", page->facts);
    put_summary(out, page);
    if (page->search && page->search->count) {
        TRY(put_plan_front(out, page->facts, page->search, drawn));
        put_layouts(out, page);
        TRY(put_losses_of(out, page->search));
        put_counts(out, page->search);
        fputs("</section>\n", out);
    }
    if (page->fit) put_changes(out, page->fit);
    TRY(put_plan_phases(out, page->named, page->count, drawn));
    TRY(put_plan_timeline(out, page->first, drawn));
    TRY(put_plan_memory(out, page->facts, page->first, available(page), drawn));
    page_end(out, drawn);
    return OK;
}

Status page_write_plan(const PlanFacts *facts, const Search *search, const PlannedLayout *first,
                       const Fit *fit, const char *path) {
    PlanPage page = {.facts = facts, .search = search, .first = first, .fit = search ? NULL : fit};
    if (!search || !search->count) page.named[page.count++] = (NamedResult){NULL, &first->result};
    for (int i = 0; search && i < search->count; i++)
        page.named[page.count++] = (NamedResult){NULL, &search->best[i]};
    for (SearchOther other = 0; search && other < OTHER_COUNT; other++)
        if (search->has_other[other])
            page.named[page.count++] = (NamedResult){search_other_name(other), &search->other[other]};
    return page_save(path, put_plan_page, &page);
}
