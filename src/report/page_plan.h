/* Pages of plans: one layout, a search or a sweep, each as one HTML file in the look of report/page.h. */
#ifndef WEFT_REPORT_PAGE_PLAN_H
#define WEFT_REPORT_PAGE_PLAN_H

#include "plan/fit.h"
#include "plan/sweep.h"
#include "report/plot.h"

/* What all pages state. */
typedef struct PlanFacts {
    const ModelConfig *model;
    int64_t params;
    const Cluster *cluster;
    int ranks; /* 0: several */
    int64_t batch, seq;
    const char *precision;
    double price; /* per hour of a unit (cluster_units); 0: unknown */
} PlanFacts;

/* A layout, planned in full. */
typedef struct PlannedLayout {
    const Plan *plan;
    SearchResult result;
    const PlanTimeline *timeline;
} PlannedLayout;

/* The layout that a plan was made for. */
SearchLayout page_layout_of(const Plan *plan);

/* Writes the page of a search or, if `search` is NULL, of a single layout. `first`: the layout, or the
 * fastest of the search; the smallest if none fits. `fit`: of a single layout. */
MUST_USE Status page_write_plan(const PlanFacts *facts, const Search *search, const PlannedLayout *first,
                                const Fit *fit, const char *path);
MUST_USE Status page_write_sweep(const PlanFacts *facts, const Sweep *sweep, const char *path);
/* The curves of a sweep without points that do not fit: tokens/s (goodput included) with linear scaling,
 * efficiency, MFU, memory. */
enum { SWEEP_PANELS = 4 };
MUST_USE Status sweep_plot(const Sweep *sweep, int index, Plot *ret_plot);

/* ---- shared by the pages ---- */

/* "dp 8 x tp 2 x pp 4"; returns `text`. */
enum { LAYOUT_TEXT = 200 };
const char *layout_grid(const SearchLayout *layout, char text[LAYOUT_TEXT]);
/* What else distinguishes it: "ZeRO 1, 16 micro-batches of 2, interleaved 9". Returns `text`. */
const char *layout_rest(const SearchLayout *layout, char text[LAYOUT_TEXT]);
/* " Of 10 factorizations dp x tp x pp, 3 are invalid: ...", with the reasons that occur; nothing if all are
 * valid. */
void put_invalid_grids(FILE *out, const SearchGrids *grids);
/* The cost of a million tokens; NAN if unknown. */
double plan_cost(const PlanFacts *facts, int ranks, double tokens_per_s);
/* Cells of tables of layouts, below these columns; without a cost there is no cell. */
#define PLAN_COLUMNS "step", "tokens/s", "memory", "MFU", "bubble"
#define COST_COLUMN  "cost/M tokens"
void put_plan_cells(Page *page, const SearchResult *result);
void put_cost_cell(Page *page, double cost);
void put_plan_head(Page *page, const char *eyebrow, const PlanFacts *facts);
/* Timeline of a step, step time by phase of several layouts, and memory by stage. */
Status put_plan_timeline(Page *page, const PlannedLayout *first);
typedef struct NamedResult {
    const char *name; /* of its place in the search; may be NULL */
    const SearchResult *result;
} NamedResult;
Status put_plan_phases(Page *page, const NamedResult *results, size_t count);
Status put_plan_memory(Page *page, const PlanFacts *facts, const PlannedLayout *first, double available);
/* Speed against memory, and cost against memory. */
Status put_plan_front(Page *page, const PlanFacts *facts, const Search *search);
/* Whether no planned layout that fits is both faster and smaller. */
bool on_front(const Search *search, const SearchResult *result);

#endif
