/* The table of epochs: one row per epoch and run, with the mean over a run's epochs below them. A run with
 * many epochs shows some of them, evenly spaced. */
#include <math.h>

#include "base/format.h"
#include "report/page.h"

enum { MAX_ROWS = 40 }; /* per run */

static void put_row(FILE *out, const Run *run, const char *what, const double values[EPOCH_COLUMNS]) {
    char text[FORMAT_SIZE];
    fputs("<tr><th scope=\"row\">", out);
    put_html(out, run->name);
    fprintf(out, "<small>%s</small></th>", what);
    for (size_t c = 0; c < EPOCH_COLUMNS; c++)
        if (results_have_epochs(run->of, c))
            put_cell(out, epoch_columns[c].heading, "%s",
                     figure_text(text, epoch_columns[c].unit, values[c]));
    fputs("</tr>\n", out);
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

static void put_run(FILE *out, const Run *run) {
    size_t stride = (run->epoch_count + MAX_ROWS - 1) / MAX_ROWS;
    double values[EPOCH_COLUMNS];
    for (size_t e = 0; e < run->epoch_count; e++) {
        char what[48];
        if ((run->epoch_count - 1 - e) % stride) continue; /* always with the last */
        snprintf(what, sizeof what, "epoch %.0f", run->epochs[e].number);
        for (size_t c = 0; c < EPOCH_COLUMNS; c++) values[c] = epoch_value(&run->epochs[e], c);
        put_row(out, run, what, values);
    }
    if (run->epoch_count < 2) return;
    for (size_t c = 0; c < EPOCH_COLUMNS; c++) values[c] = mean_of(run, c);
    put_row(out, run, "mean over all epochs", values);
}

void put_epochs(FILE *out, const Results *results) {
    if (!results_have_epochs(results, 0)) return;
    put_section(out, "Epochs",
                "Time: training steps only. Mean loss: over the steps of the epoch. Validation: the last one "
                "in the epoch.");
    const char *name[EPOCH_COLUMNS];
    for (size_t c = 0; c < EPOCH_COLUMNS; c++)
        name[c] = results_have_epochs(results, c) ? epoch_columns[c].heading : "";
    put_table_open(out, NULL, "run", name[0], name[1], name[2], name[3], name[4], name[5], NULL);
    for (size_t i = 0; i < results->count; i++) put_run(out, &results->runs[i]);
    put_table_close(out);
    fputs("</section>\n", out);
}
