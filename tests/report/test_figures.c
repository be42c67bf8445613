/* Plots: how they are drawn and labeled, and the files beside a page. */
#include <dirent.h>
#include <math.h>

#include "base/memory.h"
#include "report/plot_layout.h"
#include "report/run.h"

/* Each plot is also a file. Labels cannot escape from the script that draws them. */
static void writes_figures(void **state) {
    static const char hostile[] = "it's\"$x <b>\n'; system('touch /tmp/weft-injected')";
    static const double x[] = {1, 2}, y[] = {3, 5.5}, spread[] = {0.5, NAN};
    const Fixture *fixture = *state;
    Series series[] = {{.label = hostile, .x = x, .y = y, .spread = spread, .count = 2, .width = 2}};
    Plot plot = {
        .name = "some-plot", .x_label = "ranks", .y_label = "tokens/s", .series = series, .count = 1};
    CLEANUP(plot_done) PlotResult drawn = {0};
    CLEANUP(mem_freep) char *csv = NULL, *svg = NULL;
    char path[80];
    assert_ok(plot_draw(&plot, fixture->dir, &drawn));
    snprintf(path, sizeof path, "%s/some-plot.csv", fixture->dir);
    assert_ok(file_read(path, 1 << 16, &csv, NULL));
    assert_has(csv, "series,\"ranks\",\"tokens/s\",spread\n\"it's\"\"$x");
    assert_has(csv, ",1,3,0.5\n");
    assert_has(csv, ",2,5.5,\n");
    if (!drawn.svg) return; /* no gnuplot */
    assert_has(drawn.svg, ">it's\"$x &lt;b");
    assert_has(drawn.svg, "var(--c0)");
    assert_has(drawn.narrow, ">it's\"$x &lt;b");
    assert_has(drawn.narrow, "var(--c0)");
    assert_null(strstr(drawn.svg, "<title>"));
    assert_false(path_exists("/tmp/weft-injected"));
    snprintf(path, sizeof path, "%s/some-plot.svg", fixture->dir);
    assert_ok(file_read(path, 1 << 20, &svg, NULL));
    assert_has(svg, "103, 178)");
    assert_null(strstr(svg, "var("));
    assert_true(json_array_size(json_object_get(drawn.data, "s")) == 1);
}

/* Labels keep their distance and stay inside the picture. */
static void places_labels(void **state) {
    (void)state;
    enum { CURVES = 8 };
    static const double x[] = {1, 2};
    double y[CURVES][2];
    Series series[CURVES];
    for (int i = 0; i < CURVES; i++) {
        y[i][0] = 7;
        y[i][1] = 5 + 1e-6 * i;
        series[i] =
            (Series){.label = "a label that is longer than the margin", .x = x, .y = y[i], .count = 2};
    }
    Plot plot = {.name = "labels", .series = series, .count = CURVES, .line = 6};
    CLEANUP(plot_layout_done) PlotLayout layout = {0};
    assert_ok(plot_layout(&plot, PLOT_WIDE, &layout));
    assert_int_equal(layout.label_count, CURVES + 1);
    for (size_t i = 0; i < layout.label_count; i++) {
        assert_true(layout.labels[i].y > 0 && layout.labels[i].y <= layout.bottom);
        if (i) assert_true(layout.labels[i].y - layout.labels[i - 1].y >= 14);
    }
    assert_string_equal(layout.labels[0].text, "ideal");
    assert_string_equal(layout.labels[1].text, "a label that is longer th…");
}

static double right_of(const PlotLabel *label) {
    return label->before ? label->x : label->x + plot_text_width(label->text);
}

/* On phones, names are above the curves and above each bar, where they overlap neither the area nor each
 * other; so are they in a wide plot if a curve ends early. */
static void names_above(void **state) {
    (void)state;
    enum { COUNT = 6 };
    static const double x[] = {1, 2}, early[] = {1, 1.5}, y[] = {3, 5};
    static const char *const names[COUNT] = {
        "DDP",    "ZeRO-3", "a name that is so long that no phone could ever show all of it",
        "tensor", "",       "pp"};
    Series series[COUNT];
    for (int i = 0; i < COUNT; i++)
        series[i] = (Series){.label = names[i], .x = x, .y = y, .count = 2, .text = "15.9 k ±0.4%"};
    Plot plot = {.name = "names", .series = series, .count = COUNT, .line = 6};
    for (int round = 0; round < 3; round++) {
        PlotVersion version = round < 2 ? PLOT_NARROW : PLOT_WIDE;
        CLEANUP(plot_layout_done) PlotLayout layout = {0};
        plot.kind = round == 1 ? PLOT_BARS : PLOT_LINES;
        if (round == 2) series[3].x = early;
        assert_ok(plot_layout(&plot, version, &layout));
        assert_int_equal(layout.label_count, plot.kind == PLOT_BARS ? 2 * COUNT : COUNT + 1);
        for (size_t i = 0; i < layout.label_count; i++) {
            const PlotLabel *label = &layout.labels[i], *last = i ? label - 1 : NULL;
            assert_true(label->x >= 0 && right_of(label) <= layout.width);
            if (plot.kind == PLOT_LINES) {
                assert_true(label->sample == (int)i && label->y + 7 < layout.top);
                assert_true(!last || label->y - last->y >= 15 || label->x - 28 > right_of(last));
            } else if (i % 2) { /* the value, in the line of the name */
                assert_true(label->before && label->y == last->y);
                assert_true(label->x - plot_text_width(label->text) > right_of(last));
            } else {
                assert_true(!last || label->y - last->y >= 30);
            }
        }
    }
}

/* Labels of points cover neither each other nor a point; where there is no room, there is no label. */
static void labels_points(void **state) {
    (void)state;
    enum { POINTS = 40 };
    double x[POINTS], y[POINTS];
    Series series[POINTS];
    for (int i = 0; i < POINTS; i++) {
        x[i] = 100 + i % 20;
        y[i] = 50 + (i < 20 ? 0.1 : 0.6) * (i % 3);
        series[i] = (Series){.label = "tensor parallel", .x = x + i, .y = y + i, .count = 1, .points = true};
    }
    Plot plot = {.kind = PLOT_POINTS, .name = "points", .series = series, .count = POINTS};
    CLEANUP(plot_layout_done) PlotLayout layout = {0};
    assert_ok(plot_layout(&plot, PLOT_WIDE, &layout));
    assert_true(layout.label_count > 3 && layout.label_count < POINTS);
    for (size_t i = 0; i < layout.label_count; i++) {
        const PlotLabel *label = &layout.labels[i];
        double left = label->x - (label->before ? 15 * 7 : 0), right = left + 15 * 7;
        for (int k = 0; k < POINTS; k++) {
            double across = layout.left + (x[k] - layout.x.low) / (layout.x.high - layout.x.low) *
                                              (layout.right - layout.left),
                   down = layout.bottom - (y[k] - layout.y.low) / (layout.y.high - layout.y.low) *
                                              (layout.bottom - layout.top);
            assert_false(across > left && across < right && fabs(down - label->y) < 7);
        }
    }
}

/* Batch-size curves leave disturbed runs out and show them in gray; curves and scaling bars have whiskers. */
static void curves_have_whiskers(void **state) {
    static const char summary[] = "{\"steps\": 12, \"tokens_per_s\": %s, \"params_total\": 1, \"layout\": "
                                  "{\"ranks\": %s, \"dp\": %s, \"batch\": %s}, "
                                  "\"load\": {\"cores\": 2, \"contention\": %s}}";
    static const char *const runs[][5] = {{"first", "90", "1", "2", "0.5"}, {"alone", "90", "4", "4", "0.5"},
                                          {"one", "100", "1", "4", "0"},    {"two", "180", "1", "8", "0"},
                                          {"four", "90", "1", "16", "0.5"}, {"eight", "390", "1", "32", "0"},
                                          {"both", "150", "2", "4", "0"}};
    const Fixture *fixture = *state;
    Results results = {0};
    char text[256], metrics[1024] = "";
    bool curves;
    for (int step = 1; step <= 12; step++)
        snprintf(metrics + strlen(metrics), sizeof metrics - strlen(metrics),
                 "{\"step\":%d,\"loss\":5,\"step_ms\":%d}\n", step, (step - 1) % 4 < 2 ? 99 : 101);
    for (size_t i = 0; i < 7; i++) {
        snprintf(text, sizeof text, summary, runs[i][1], runs[i][2], runs[i][2], runs[i][3], runs[i][4]);
        write_run(fixture, runs[i][0], text, metrics);
        add(&results, fixture, runs[i][0]);
    }
    results.title = strdup("curves");
    CLEANUP(mem_freep) char *html = page_of(fixture, &results, &curves), *csv = NULL, *scaling = NULL;
    assert_has(html, "Gray points: other processes took the cores");
    assert_has(html, "<span class=\"whisker\" style=\"left:");
    assert_has(html, "75.0%<small>±1.");
    char file[96];
    snprintf(file, sizeof file, "%s/page-figures/throughput-batch.csv", fixture->dir);
    assert_ok(file_read(file, 1 << 16, &csv, NULL));
    assert_has(csv, "\"1 rank\",8,180,2.");
    assert_has(csv, "\"1 rank\",32,390,4.");
    assert_has(csv, "\n\"CPU contention\",2,90,\n\"CPU contention\",16,90,\n");
    assert_null(strstr(strstr(csv, "\"1 rank\",8") + 1, "\"1 rank\",8")); /* one curve */
    assert_null(strstr(csv, "\"1 rank\",16"));
    snprintf(file, sizeof file, "%s/page-figures/scaling.csv", fixture->dir);
    assert_ok(file_read(file, 1 << 16, &scaling, NULL));
    assert_has(scaling, ",2,75,1.");
    results_done(&results);
}

/* Sixteen curves differ in color or dash pattern, also as drawn. */
static void styles_differ(void **state) {
    enum { CURVES = 16 };
    static const double x[] = {1, 2};
    double y[CURVES][2];
    Series series[CURVES];
    CLEANUP(plot_done) PlotResult drawn = {0};
    (void)state;
    for (int i = 0; i < CURVES; i++) {
        y[i][0] = y[i][1] = i;
        series[i] = (Series){.label = "x", .x = x, .y = y[i], .count = 2, .width = 2};
        series_style(&series[i], (size_t)i);
        assert_true(series[i].color != PLOT_GRAY);
        for (int k = 0; k < i; k++)
            assert_true(series[i].color != series[k].color || series[i].dash != series[k].dash);
    }
    Plot plot = {.name = "many", .x_label = "x", .y_label = "y", .series = series, .count = CURVES};
    assert_ok(plot_draw(&plot, NULL, &drawn));
    if (!drawn.svg) return; /* no gnuplot */
    size_t dashed = 0;
    for (const char *at = drawn.svg; (at = strstr(at, "stroke-dasharray=")); at++) dashed++;
    assert_int_equal(dashed, CURVES - PLOT_COLORS);
}

/* The files in a directory that are not hidden. */
static size_t count_files(const char *dir) {
    struct dirent **entries = NULL;
    int count = scandir(dir, &entries, NULL, NULL);
    size_t visible = 0;
    for (int i = 0; i < count; i++) {
        visible += entries[i]->d_name[0] != '.';
        free(entries[i]);
    }
    free(entries);
    return visible;
}

/* Every page has figures of its own; only what weft wrote is replaced or deleted. */
static void figures_of_each_page(void **state) {
    const Fixture *fixture = *state;
    Results two = {0}, one = {0};
    char page[96], path[128];
    bool curves;
    write_run(fixture, "a", SUMMARY("500", "1200", "false"), EVEN);
    write_run(fixture, "b", SUMMARY("600", "900", "false"), EVEN);
    add(&two, fixture, "a");
    add(&two, fixture, "b");
    add(&one, fixture, "b");
    two.title = strdup("two");
    one.title = strdup("one");
    snprintf(page, sizeof page, "%s/report.html", fixture->dir);
    assert_ok(page_write(&two, page, &curves));
    snprintf(path, sizeof path, "%s/figures/throughput.csv", fixture->dir);
    assert_true(path_exists(path));
    /* Another page leaves them alone. */
    snprintf(page, sizeof page, "%s/other.html", fixture->dir);
    assert_ok(page_write(&one, page, &curves));
    assert_true(path_exists(path));
    snprintf(path, sizeof path, "%s/other-figures/loss-time.csv", fixture->dir);
    assert_true(path_exists(path));
    /* A new version of the first one deletes the charts that it no longer has, and no other file. */
    snprintf(path, sizeof path, "%s/figures/mine.csv", fixture->dir);
    assert_ok(file_replace(path, "x", 1));
    snprintf(page, sizeof page, "%s/report.html", fixture->dir);
    assert_ok(page_write(&one, page, &curves));
    assert_true(path_exists(path));
    snprintf(path, sizeof path, "%s/figures/throughput.csv", fixture->dir);
    assert_false(path_exists(path));
    /* Charts go elsewhere if one of them would replace someone's file, and the page says where. */
    assert_ok(file_replace(path, "x", 1));
    assert_ok(page_write(&two, page, &curves));
    CLEANUP(mem_freep) char *kept = NULL, *html = NULL, *list = NULL;
    assert_ok(file_read(path, 10, &kept, NULL));
    assert_string_equal(kept, "x");
    snprintf(path, sizeof path, "%s/report-figures/throughput.csv", fixture->dir);
    assert_true(path_exists(path));
    assert_ok(file_read(page, 1 << 24, &html, NULL));
    if (curves) assert_has(html, "The charts of this page are in the directory report-figures beside it");
    /* All of them are listed. */
    CLEANUP(json_decrefp) json_t *json = NULL;
    snprintf(path, sizeof path, "%s/report-figures/.weft.json", fixture->dir);
    assert_ok(json_read_file(path, &json));
    snprintf(path, sizeof path, "%s/report-figures", fixture->dir);
    assert_int_equal(json_array_size(json_object_get(json, "files")), count_files(path));
    /* A name need not be UTF-8. */
    snprintf(page, sizeof page, "%s/\xff.html", fixture->dir);
    assert_ok(page_write(&two, page, &curves));
    assert_ok(page_write(&two, page, &curves));
    snprintf(path, sizeof path, "%s/\xff-figures-2", fixture->dir);
    assert_false(path_exists(path));
    /* A page without charts has no directory. */
    Results none = {0};
    Run *waiting;
    assert_ok(results_add(&none, "waits", "/nowhere", &waiting));
    none.title = strdup("none");
    snprintf(page, sizeof page, "%s/none.html", fixture->dir);
    assert_ok(page_write(&none, page, &curves));
    snprintf(path, sizeof path, "%s/none-figures", fixture->dir);
    assert_false(path_exists(path));
    results_done(&none);
    results_done(&one);
    results_done(&two);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(writes_figures),       TEST(places_labels), TEST(names_above),         TEST(labels_points),
        TEST(curves_have_whiskers), TEST(styles_differ), TEST(figures_of_each_page)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
