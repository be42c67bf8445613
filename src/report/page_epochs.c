/* The table of epochs: one row per epoch and run, with the mean over a run's epochs below them. A run with
 * many epochs shows some of them, evenly spaced. */
#include <math.h>

#include "base/format.h"
#include "report/page.h"

enum { MAX_ROWS = 40 }; /* per run */

static void put_row(Page *page, const Run *run, const char *what, const double values[EPOCH_COLUMNS]) {
    char text[FORMAT_SIZE];
    page_row(page, NULL);
    page_put(page, "%s<small>%s</small>", run->name, what);
    for (size_t c = 0; c < EPOCH_COLUMNS; c++)
        if (results_have_epochs(run->of, c))
            page_cell(page, "%s", figure_text(text, epoch_columns[c].unit, values[c]));
}

/* The mean over the epochs that have a value. */
static double mean_of(const Run *run, size_t column) {
    double sum = 0;
    size_t count = 0;
    for (size_t e = 0; e < run->epoch_count; e++) {
        double value = epoch_value(&run->epochs[e], column);
        if (!isfinite(value)) continue;
        sum += value;
        count++;
    }
    return count ? sum / (double)count : (double)NAN;
}

static void put_run(Page *page, const Run *run) {
    size_t stride = (run->epoch_count + MAX_ROWS - 1) / MAX_ROWS;
    double values[EPOCH_COLUMNS];
    for (size_t e = 0; e < run->epoch_count; e++) {
        char what[48];
        if ((run->epoch_count - 1 - e) % stride) continue; /* always with the last */
        snprintf(what, sizeof what, "epoch %.0f", run->epochs[e].number);
        for (size_t c = 0; c < EPOCH_COLUMNS; c++) values[c] = epoch_value(&run->epochs[e], c);
        put_row(page, run, what, values);
    }
    if (run->epoch_count < 2) return;
    for (size_t c = 0; c < EPOCH_COLUMNS; c++) values[c] = mean_of(run, c);
    put_row(page, run, "mean over all epochs", values);
}

Status put_epochs(Page *page, const Results *results) {
    if (!results_have_epochs(results, 0)) return OK;
    page_section(
        page, "Epochs",
        "Time: training steps only. Mean loss: over the steps of the epoch. Validation: the last one "
        "in the epoch.");
    const char *name[EPOCH_COLUMNS];
    for (size_t c = 0; c < EPOCH_COLUMNS; c++)
        name[c] = results_have_epochs(results, c) ? epoch_columns[c].heading : "";
    page_table(page, NULL, "run", name[0], name[1], name[2], name[3], name[4], name[5], NULL);
    results_foreach(results, run) put_run(page, run);
    page_table_end(page);
    return OK;
}
