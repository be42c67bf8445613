#include "report/page_plot.h"

#include <string.h>

#include "base/memory.h"
#include "report/page.h"

enum {
    MAX_PRINTED = 14
}; /* bars with their names above them that fit a printed page together with the rest */

void series_style(Series *series, size_t index) {
    series->color = (int)(index % PLOT_COLORS);
    series->dash = (int)(index / PLOT_COLORS % PLOT_DASHES);
}

/* The points, for the script that shows values and zooms. */
static Status put_data(FILE *out, const json_t *data) {
    char *text = json_dumps(data, JSON_COMPACT | JSON_REAL_PRECISION(6));
    if (!text) return FAILED("out of memory while writing a plot");
    fputs(" data-plot=\"", out);
    put_html(out, text);
    fputs("\"", out);
    free(text);
    return OK;
}

Status put_plot(FILE *out, const Plot *plot, const char *caption, const char *detail, Figures *drawn) {
    CLEANUP(plot_done) PlotResult plotted = {0};
    if (!plot->count) return OK;
    TRY(plot_draw(plot, drawn->dir, &plotted));
    if (!plotted.svg) {
        drawn->missing = true;
        return OK;
    }
    drawn->count++;
    bool tall = plot->kind == PLOT_BARS && plot->count > MAX_PRINTED;
    fprintf(out, "<figure id=\"%s\"%s", plot->name, tall ? " class=\"tall\"" : "");
    TRY(put_data(out, plotted.data));
    fprintf(out,
            "><figcaption>%s<small>%s</small></figcaption>\n<svg class=\"wide\"%s<svg class=\"narrow\"%s"
            "</figure>\n",
            caption, detail, plotted.svg + strlen("<svg"), plotted.narrow + strlen("<svg"));
    return OK;
}
