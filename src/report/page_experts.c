/* How training used the experts of mixtures: the busiest one's load, the entropy of the router's choices and
 * the loss that balances them, by step. */
#include <math.h>
#include <stddef.h>

#include "report/page.h"
#include "report/plot.h"

static bool has_experts(const Run *run) {
    return run->peak_load.count > 1;
}

/* A curve of every run; `curve` is its offset in Run. */
static Status put_curves(Page *page, const Results *results, Plot plot, size_t curve, const char *caption,
                         const char *detail) {
    Status status = OK;
    for (size_t i = 0; i < results->count && !status; i++) {
        const Run *run = &results->runs[i];
        const Curve *values = (const Curve *)((const char *)run + curve);
        Series look = {.label = run->name, .width = 1.5};
        series_style(&look, i);
        if (!has_experts(run)) continue;
        status = plot_series(&plot, look);
        for (size_t k = 0; k < values->count && !status; k++)
            status = plot_point(&plot, values->step[k], values->value[k], NAN, NULL);
        plot_require(&plot, 2);
    }
    if (!status) status = put_plot(page, &plot, caption, detail);
    plot_done(&plot);
    return status;
}

Status put_experts(Page *page, const Results *results) {
    if (!results_count(results, has_experts)) return OK;
    page_section(page, "Experts", NULL);
    page_group(page, "plots");
    TRY(put_curves(page, results,
                   (Plot){.name = "expert-load", .x_label = "step", .y_label = "load", .from_zero = true},
                   offsetof(Run, peak_load), "Busiest expert",
                   "its tokens relative to the mean; 1: all are used alike"));
    TRY(put_curves(page, results,
                   (Plot){.name = "router-entropy", .x_label = "step", .y_label = "nats", .from_zero = true},
                   offsetof(Run, entropy), "Entropy of the router", "mean over tokens and layers"));
    return put_curves(page, results,
                      (Plot){.name = "balance-loss", .x_label = "step", .y_label = "balancing loss"},
                      offsetof(Run, balance_loss), "Balancing loss",
                      "without its factor; experts per token: all are used alike");
}
