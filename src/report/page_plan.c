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
                          .cp_mode = run->cp_mode,
                          .schedule = run->schedule,
                          .recompute = run->recompute,
                          .micro_batch = run->micro_batch};
}

const char *layout_grid(const SearchLayout *layout, char text[LAYOUT_TEXT]) {
    return mesh_text(layout->mesh, text);
}

const char *layout_rest(const SearchLayout *l, char text[LAYOUT_TEXT]) {
    snprintf(text, LAYOUT_TEXT, "ZeRO %d, %d micro-batch%s of %lld", l->zero, l->micros,
             l->micros == 1 ? "" : "es", (long long)l->micro_batch);
    if (l->mesh.pp > 1) text_append(text, LAYOUT_TEXT, ", %s", schedule_name(l->schedule));
    if (l->chunks > 1) text_append(text, LAYOUT_TEXT, " %d", l->chunks);
    if (l->recompute != RECOMPUTE_NONE)
        text_append(text, LAYOUT_TEXT, ", recompute %s", recompute_names[l->recompute]);
    if (l->sequence) text_append(text, LAYOUT_TEXT, ", sequence-parallel");
    if (mesh_extent(l->mesh, AXIS_CP) > 1)
        text_append(text, LAYOUT_TEXT, ", cp-mode %s", context_mode_names[l->cp_mode]);
    if (l->mesh.heads) text_append(text, LAYOUT_TEXT, ", cp-heads %d", l->mesh.heads);
    return text;
}

double plan_cost(const PlanFacts *facts, int ranks, double tokens_per_s) {
    if (!(facts->price > 0)) return NAN;
    return 1e6 * facts->price * cluster_units(facts->cluster, ranks) / 3600 / tokens_per_s;
}

/* ---- header and summary ---- */

void put_plan_head(Page *page, const char *eyebrow, const PlanFacts *facts) {
    char title[160], number[FORMAT_SIZE], note[200];
    const char *needs = cluster_needs(facts->cluster);
    snprintf(note, sizeof note, "Note: %s.", needs ? needs : "");
    snprintf(title, sizeof title, "%s, %s parameters", facts->model->family->title,
             format_count(number, (double)facts->params));
    text_append(title, sizeof title, ", on ");
    if (facts->ranks) text_append(title, sizeof title, "%d x ", facts->ranks);
    text_append(title, sizeof title, "%.60s", facts->cluster->device);
    page_begin(page, eyebrow, title, needs ? note : NULL);
    put_chip(page, "%lld layer%s, hidden size %lld, %lld head%s", (long long)facts->model->layers,
             PLURAL(facts->model->layers), (long long)facts->model->hidden, (long long)facts->model->heads,
             PLURAL(facts->model->heads));
    put_chip(page, "batch %lld x %lld tokens", (long long)facts->batch, (long long)facts->seq);
    put_chip(page, "%s", facts->precision);
    put_chip(page, "cluster %s", facts->cluster->name);
    if (facts->cluster->software.present) put_chip(page, "%s", facts->cluster->software.title);
    if (facts->price > 0)
        put_chip(page, "%.4g per %s-hour", facts->price, facts->cluster->gpu ? "GPU" : "node");
    if (facts->cluster->power_watts > 0)
        put_chip(page, "%.4g W per %s", facts->cluster->power_watts, facts->cluster->gpu ? "GPU" : "node");
    page_header_end(page);
}

static double available(const PlanPage *plan) {
    return plan->search ? plan->search->available : plan->fit->available;
}

static void put_sentence(Page *page, const PlanPage *plan) {
    const SearchResult *result = &plan->first->result;
    const Search *search = plan->search;
    char grid[LAYOUT_TEXT], step[FORMAT_SIZE], needed[FORMAT_SIZE], limit[FORMAT_SIZE];
    layout_grid(&result->layout, grid);
    if (search && search->count)
        page_put(page,
                 "The fastest of %zu valid layouts is %s: %s per step at %.1f%% MFU, with %s of %s per rank. "
                 "%zu were planned in full; estimates ruled out the others.",
                 search->legal, grid, time_text(step, result->time.step_s), 100 * result->time.mfu,
                 format_bytes(needed, (double)result->bytes), format_bytes(limit, available(plan)),
                 search->planned);
    else if (search)
        page_put(page,
                 "No layout fits. The smallest of the %zu planned ones, %s, needs %s per rank, and %s are "
                 "available. Use more devices, offload, or a smaller batch.",
                 search->planned, grid, format_bytes(needed, (double)result->bytes),
                 format_bytes(limit, available(plan)));
    else
        page_put(page, "%s %s: %s per step at %.1f%% MFU, with %s of %s per rank.", grid,
                 result->fits ? "fits" : "does not fit", time_text(step, result->time.step_s),
                 100 * result->time.mfu, format_bytes(needed, (double)result->bytes),
                 format_bytes(limit, available(plan)));
}

static void put_tiles(Page *page, const PlanPage *plan) {
    const SearchResult *result = &plan->first->result;
    char number[FORMAT_SIZE + 16], text[FORMAT_SIZE], detail[96];
    double cost = plan_cost(plan->facts, plan->facts->ranks, result->time.tokens_per_s);
    page_group(page, "tiles");
    snprintf(number, sizeof number, "%s tokens/s", format_count(text, result->time.tokens_per_s));
    if (result->time.samples_per_s < 1000)
        snprintf(detail, sizeof detail, "%.3g samples/s", result->time.samples_per_s);
    else
        snprintf(detail, sizeof detail, "%s samples/s", format_count(text, result->time.samples_per_s));
    put_tile(page, "Throughput", number, detail, "");
    snprintf(detail, sizeof detail, "%.0f%% of what is available",
             100 * (double)result->bytes / available(plan));
    put_tile(page, "Memory per rank", format_bytes(number, (double)result->bytes), detail, "");
    snprintf(number, sizeof number, "%.1f%%", 100 * result->time.mfu);
    snprintf(detail, sizeof detail, "bubble %.1f%%, communication %.1f%%", 100 * result->time.bubble,
             100 * result->time.phase_s[TIME_COMMUNICATION] / result->time.step_s);
    put_tile(page, "MFU", number, detail, "");
    if (isfinite(cost)) {
        figure_text(number, FIGURE_FORMAT_COST, cost);
        snprintf(detail, sizeof detail, "%.4g per hour",
                 plan->facts->price * cluster_units(plan->facts->cluster, plan->facts->ranks));
        put_tile(page, "Cost per million tokens", number, detail, "");
    }
    char power[FORMAT_SIZE];
    double watts =
        plan->facts->cluster->power_watts * cluster_units(plan->facts->cluster, plan->facts->ranks);
    if (watts > 0) {
        figure_text(number, FIGURE_FORMAT_JOULES, 1e6 * watts / result->time.tokens_per_s);
        snprintf(detail, sizeof detail, "%sW rated", format_si(power, watts));
        put_tile(page, "Energy per million tokens", number, detail, "");
    }
    page_group_end(page);
}

static void put_summary(Page *page, const PlanPage *plan) {
    char options[SEARCH_OPTIONS];
    page_verdict(page);
    put_sentence(page, plan);
    page_put(page, "</p>\n");
    put_tiles(page, plan);
    page_put(page, "<pre>%s</pre>\n", search_options(&plan->first->result.layout, options));
}

/* ---- the table ---- */

void put_plan_cells(Page *page, const SearchResult *result) {
    const StepEstimate *time = &result->time;
    char text[FORMAT_SIZE];
    page_cell(page, "%s", time_text(text, time->step_s));
    page_cell(page, "%s", format_count(text, time->tokens_per_s));
    page_cell(page, "%s", format_bytes(text, (double)result->bytes));
    page_cell(page, "%.1f%%", 100 * time->mfu);
    page_cell(page, "%.1f%%", 100 * time->bubble);
}

void put_cost_cell(Page *page, double cost) {
    char text[FORMAT_SIZE];
    if (isfinite(cost)) page_cell(page, "%s", figure_text(text, FIGURE_FORMAT_COST, cost));
}

static void put_row(Page *page, const PlanPage *plan, const NamedResult *named) {
    const SearchResult *r = named->result;
    char text[LAYOUT_TEXT], why[SEARCH_TEXT] = "fastest";
    page_row(page, NULL);
    page_put(page, "%s<small>", layout_grid(&r->layout, text));
    if (!r->fits) page_put(page, "<span class=\"badge failed\">does not fit</span>");
    if (r->fits && on_front(plan->search, r)) page_put(page, "<span class=\"badge holds\">Pareto</span>");
    page_put(page, "%s</small>", layout_rest(&r->layout, text));
    if (named->name) page_put(page, "<small>%s</small>", named->name);
    put_plan_cells(page, r);
    put_cost_cell(page, plan_cost(plan->facts, plan->facts->ranks, r->time.tokens_per_s));
    if (r != plan->named[0].result || !r->fits) search_reason(plan->named[0].result, r, available(plan), why);
    page_cell_open(page, "why");
    page_put(page, "%s</td>", why);
}

static void put_layouts(Page *page, const PlanPage *plan) {
    page_section(page, "Layouts and why they lose",
                 "The fastest layouts that fit, then the best of each kind. Pareto: no planned layout that "
                 "fits is both faster and smaller.");
    page_table(page, NULL, "layout", PLAN_COLUMNS, plan->facts->price > 0 ? COST_COLUMN : "", "<why", NULL);
    for (size_t i = 0; i < plan->count; i++) put_row(page, plan, &plan->named[i]);
    page_table_end(page);
}

/* How many of the planned layouts lose to what. */
static Status put_losses_of(Page *page, const Search *search) {
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
    page_put(page, "<h3>What the other %zu planned layouts lose most to</h3>\n", search->planned - 1);
    return put_bars(page, &chart);
}

void put_invalid_grids(FILE *out, const SearchGrids *grids) {
    const struct {
        const char *why;
        int count;
    } reasons[] = {{"tp does not divide the heads", grids->by_heads},
                   {"more stages than layers", grids->by_layers},
                   {"dp does not divide the batch", grids->by_batch},
                   {"cp does not divide the sequence or the key-value heads", grids->by_context}};
    int bad = grids->by_heads + grids->by_layers + grids->by_batch + grids->by_context;
    const char *separator = ": ";
    if (!bad) return;
    fprintf(out, " Of %d factorizations dp x tp x pp%s, %d %s invalid", grids->all,
            grids->context ? " x cp" : "", bad, bad == 1 ? "is" : "are");
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
        if (!reasons[i].count) continue;
        fprintf(out, "%s%s (%d)", separator, reasons[i].why, reasons[i].count);
        separator = ", ";
    }
    fputc('.', out);
}

/* Valid layouts that were not planned, and grids that are not valid. */
static void put_counts(Page *page, const Search *search) {
    page_put(page, "<p class=\"note\">Of %zu valid layouts, %zu were estimated to fit.", search->legal,
             search->estimated_to_fit);
    put_invalid_grids(page->out, &search->grids);
    page_put(page, "</p>\n");
}

/* ---- a layout that does not fit ---- */

static void put_changes(Page *page, const Fit *fit) {
    char text[FORMAT_SIZE];
    if (fit->fits || !fit->changes) return;
    page_section(page, "Changes that make it fit", "Each of them is enough, and has been planned.");
    page_put(page, "<ul class=\"findings\">\n");
    for (int i = 0; i < fit->changes; i++)
        page_put(page, "<li><code>%s</code>: %s per rank</li>\n", fit->change[i].options,
                 format_bytes(text, (double)fit->change[i].total));
    page_put(page, "</ul>\n");
}

/* ---- the page ---- */

static Status put_plan_page(Page *page, const void *data) {
    const PlanPage *plan = data;
    put_plan_head(page, plan->search ? "Search" : "Plan", plan->facts);
    put_summary(page, plan);
    if (plan->search && plan->search->count) {
        TRY(put_plan_front(page, plan->facts, plan->search));
        put_layouts(page, plan);
        TRY(put_losses_of(page, plan->search));
        put_counts(page, plan->search);
    }
    if (plan->fit) put_changes(page, plan->fit);
    TRY(put_plan_phases(page, plan->named, plan->count));
    TRY(put_plan_timeline(page, plan->first));
    TRY(put_plan_memory(page, plan->facts, plan->first, available(plan)));
    page_end(page);
    return OK;
}

Status page_write_plan(const PlanFacts *facts, const Search *search, const PlannedLayout *first,
                       const Fit *fit, const char *path) {
    PlanPage plan = {.facts = facts, .search = search, .first = first, .fit = search ? NULL : fit};
    if (!search || !search->count) plan.named[plan.count++] = (NamedResult){NULL, &first->result};
    for (int i = 0; search && i < search->count; i++)
        plan.named[plan.count++] = (NamedResult){NULL, &search->best[i]};
    for (SearchOther other = 0; search && other < OTHER_COUNT; other++)
        if (search->has_other[other])
            plan.named[plan.count++] = (NamedResult){search_other_name(other), &search->other[other]};
    return page_save(path, put_plan_page, &plan);
}
