/* Plots: how they are drawn and labeled, and the files beside a page. */
#include <dirent.h>
#include <math.h>

#include "base/memory.h"
#include "report/page.h"
#include "report/plot_layout.h"
#include "report/run.h"

/* Each plot is also a file. Labels cannot escape from the script that draws them. */
static void writes_figures(void **state) {
    static const char hostile[] = "it's\"$x <b>\n'; system('touch /tmp/weft-injected')";
    const Fixture *fixture = *state;
    CLEANUP(plot_done) Plot plot = {.name = "some-plot", .x_label = "ranks", .y_label = "tokens/s"};
    CLEANUP(text_done) Text text = {0};
    CLEANUP(mem_freep) char *html = NULL, *csv = NULL, *svg = NULL;
    Page page = {.drawn.dir = fixture->dir};
    char path[80];
    assert_ok(plot_series(&plot, (Series){.label = hostile, .width = 2}));
    assert_ok(plot_point(&plot, 1, 3, 0.5, NULL));
    assert_ok(plot_point(&plot, 2, 5.5, NAN, NULL));
    assert_ok(text_open(&text));
    page.out = text.out;
    assert_ok(put_plot(&page, &plot, "some", "plot"));
    assert_ok(text_take(&text, &html, NULL));
    assert_int_equal(page.drawn.count, 1);
    snprintf(path, sizeof path, "%s/some-plot.csv", fixture->dir);
    assert_ok(file_read(path, 1 << 16, &csv, NULL));
    assert_has(csv, "series,\"ranks\",\"tokens/s\",spread\n\"it's\"\"$x");
    assert_has(csv, ",1,3,0.5\n");
    assert_has(csv, ",2,5.5,\n");
    const char *wide = strstr(html, "<svg class=\"wide\""), *narrow = strstr(html, "<svg class=\"narrow\"");
    assert_true(wide && narrow && wide < narrow);
    assert_has(narrow, ">it's&quot;$x &lt;b");
    assert_has(narrow, "var(--c0)");
    assert_has(wide, "stroke=\"var(--c0)\"");
    assert_false(path_exists("/tmp/weft-injected"));
    snprintf(path, sizeof path, "%s/some-plot.pdf", fixture->dir);
    assert_int_equal(path_exists(path), !page.drawn.no_pdf);
    snprintf(path, sizeof path, "%s/some-plot.svg", fixture->dir);
    assert_ok(file_read(path, 1 << 20, &svg, NULL));
    assert_has(svg, "#0a67b2");
    assert_null(strstr(svg, "var("));
    /* What the page's script reads. */
    assert_has(html, "&quot;x&quot;:[1.0,2.0],&quot;y&quot;:[3.0,5.5],&quot;e&quot;:[0.5,null]");
}

static void add_curve(Plot *plot, const char *label, double from, double to, double end) {
    assert_ok(plot_series(plot, (Series){.label = label, .width = 2}));
    assert_ok(plot_point(plot, 1, from, NAN, NULL));
    assert_ok(plot_point(plot, end, to, NAN, NULL));
}

/* Labels keep their distance and stay inside the picture. */
static void places_labels(void **state) {
    enum { CURVES = 8 };
    CLEANUP(plot_done) Plot plot = {.name = "labels", .line = 6};
    for (int i = 0; i < CURVES; i++)
        add_curve(&plot, "a label that is longer than the margin", 7, 5 + 1e-6 * i, 2);
    CLEANUP(plot_layout_done) PlotLayout layout = {0};
    assert_ok(plot_layout(&plot, PLOT_WIDE, &layout));
    assert_int_equal(layout.label_count, CURVES + 1);
    for (size_t i = 0; i < layout.label_count; i++) {
        assert_true(layout.labels[i].y > 0 && layout.labels[i].y <= layout.bottom);
        if (i) assert_true(layout.labels[i].y - layout.labels[i - 1].y >= 14);
    }
    assert_string_equal(layout.labels[0].text, "ideal");
    assert_string_equal(layout.labels[1].text, "a label that …n the margin");
}

static double right_of(const PlotLabel *label) {
    return label->before ? label->x : label->x + plot_text_width(label->text);
}

/* On phones, names are above the curves, where they overlap neither the area nor each other; so are they in a
 * wide plot if a curve ends early. */
static void names_above(void **state) {
    enum { COUNT = 6 };
    static const char *const names[COUNT] = {
        "DDP",    "ZeRO-3", "a name that is so long that no phone could ever show all of it",
        "tensor", "",       "pp"};
    for (int round = 0; round < 2; round++) {
        CLEANUP(plot_layout_done) PlotLayout layout = {0};
        CLEANUP(plot_done) Plot plot = {.name = "names", .line = 6};
        for (int i = 0; i < COUNT; i++) add_curve(&plot, names[i], 3, 5, round && i == 3 ? 1.5 : 2);
        assert_ok(plot_layout(&plot, round ? PLOT_WIDE : PLOT_NARROW, &layout));
        assert_int_equal(layout.label_count, COUNT + 1);
        for (size_t i = 0; i < layout.label_count; i++) {
            const PlotLabel *label = &layout.labels[i], *last = i ? label - 1 : NULL;
            assert_true(label->x >= 0 && right_of(label) <= layout.width);
            assert_true(label->sample == (int)i && label->y + 7 < layout.top);
            assert_true(!last || label->y - last->y >= 15 || label->x - 28 > right_of(last));
        }
    }
}

/* Labels of points cover neither each other nor a point; where there is no room, there is no label. */
static void labels_points(void **state) {
    enum { POINTS = 40 };
    double x[POINTS], y[POINTS];
    CLEANUP(plot_done) Plot plot = {.kind = PLOT_POINTS, .name = "points"};
    for (int i = 0; i < POINTS; i++) {
        x[i] = 100 + i % 20;
        y[i] = 50 + (i < 20 ? 0.1 : 0.6) * (i % 3);
        assert_ok(plot_series(&plot, (Series){.label = "tensor parallel"}));
        assert_ok(plot_point(&plot, x[i], y[i], NAN, NULL));
    }
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
    for (int step = 1; step <= 12; step++)
        snprintf(metrics + strlen(metrics), sizeof metrics - strlen(metrics),
                 "{\"step\":%d,\"loss\":5,\"step_ms\":%d}\n", step, (step - 1) % 4 < 2 ? 99 : 101);
    for (size_t i = 0; i < 7; i++) {
        snprintf(text, sizeof text, summary, runs[i][1], runs[i][2], runs[i][2], runs[i][3], runs[i][4]);
        write_run(fixture, runs[i][0], text, metrics);
        add(&results, fixture, runs[i][0]);
    }
    results.title = strdup("curves");
    CLEANUP(mem_freep) char *html = page_of(fixture, &results), *csv = NULL, *scaling = NULL;
    assert_has(html, "Gray points: other processes took the cores");
    assert_has(html, "<span class=\"whisker\" style=\"left:");
    assert_has(html, "75.0%<small>±1.");
    char file[96];
    snprintf(file, sizeof file, "%s/page-figures/throughput-batch.csv", fixture->dir);
    assert_ok(file_read(file, 1 << 16, &csv, NULL));
    assert_has(csv, "\"1 rank\",8,180,2.");
    assert_has(csv, "\"1 rank\",32,390,4.");
    assert_has(csv, "\n\"contention\",2,90,\n\"contention\",16,90,\n");
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
    CLEANUP(plot_done) Plot plot = {.name = "many", .x_label = "x", .y_label = "y"};
    CLEANUP(mem_freep) char *svg = NULL;
    for (int i = 0; i < CURVES; i++) {
        add_curve(&plot, "x", i, i, 2);
        series_style(&plot.series[i], (size_t)i);
        assert_true(plot.series[i].color != COLOR_GRAY);
        for (int k = 0; k < i; k++)
            assert_true(plot.series[i].color != plot.series[k].color ||
                        plot.series[i].dash != plot.series[k].dash);
    }
    assert_ok(plot_svg(&plot, &svg));
    size_t dashed = 0;
    for (const char *at = svg; (at = strstr(at, "stroke-dasharray=")); at++) dashed++;
    assert_int_equal(dashed, CURVES - COLOR_GRAY);
}

/* Numbers of axes are round, and there are few of them. */
static void numbers_axes(void **state) {
    static const struct {
        AxisFormat format;
        double low, high, step;
        const char *numbers;
    } cases[] = {{AXIS_COUNTS, 0, 41000, 4.5, "0 5 k 10 k 15 k 20 k 25 k 30 k 35 k 40 k"},
                 {AXIS_PLAIN, 3.9, 4.7, 0.15, "4 4.2 4.4 4.6"},
                 {AXIS_PERCENT, 0, 110, 40, "0% 50% 100%"},
                 {AXIS_WHOLE, 1, 4, 1, "1 2 3 4"},
                 {AXIS_POWERS, 800, 9000, 1, "1 k 2 k 5 k"},
                 {AXIS_POWERS, 1e-9, 1e-5, 1, "1e-09 1e-08 1e-07 1e-06 1e-05"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        PlotAxis axis = plot_axis(cases[i].format, cases[i].low, cases[i].high);
        double tics[MAX_TICS];
        char all[200] = "", number[FORMAT_SIZE];
        size_t count = plot_tics(&axis, cases[i].step, tics);
        for (size_t k = 0; k < count; k++)
            snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", k ? " " : "",
                     plot_number(&axis, tics[k], number));
        assert_string_equal(all, cases[i].numbers);
    }
    /* A logarithmic axis spans units. */
    char number[FORMAT_SIZE];
    PlotAxis sizes = plot_axis(AXIS_COUNTS, 336226108, 8271e6);
    sizes.logarithmic = true;
    assert_string_equal(plot_number(&sizes, 336226108 / sizes.unit, number), "336 M");
    assert_string_equal(plot_number(&sizes, 8271e6 / sizes.unit, number), "8.27 B");
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
    write_run(fixture, "a", SUMMARY("500", "1200", "false"), EVEN);
    write_run(fixture, "b", SUMMARY("600", "900", "false"), EVEN);
    add(&two, fixture, "a");
    add(&two, fixture, "b");
    add(&one, fixture, "b");
    two.title = strdup("two");
    one.title = strdup("one");
    snprintf(page, sizeof page, "%s/report.html", fixture->dir);
    assert_ok(page_write(&two, page));
    snprintf(path, sizeof path, "%s/figures/throughput.csv", fixture->dir);
    assert_true(path_exists(path));
    /* Another page leaves them alone. */
    snprintf(page, sizeof page, "%s/other.html", fixture->dir);
    assert_ok(page_write(&one, page));
    assert_true(path_exists(path));
    snprintf(path, sizeof path, "%s/other-figures/loss-time.csv", fixture->dir);
    assert_true(path_exists(path));
    /* A new version of the first one deletes the charts that it no longer has, and no other file. */
    snprintf(path, sizeof path, "%s/figures/mine.csv", fixture->dir);
    assert_ok(file_replace(path, "x", 1));
    snprintf(page, sizeof page, "%s/report.html", fixture->dir);
    assert_ok(page_write(&one, page));
    assert_true(path_exists(path));
    snprintf(path, sizeof path, "%s/figures/throughput.csv", fixture->dir);
    assert_false(path_exists(path));
    /* Charts go elsewhere if one of them would replace someone's file, and the page says where. */
    assert_ok(file_replace(path, "x", 1));
    assert_ok(page_write(&two, page));
    CLEANUP(mem_freep) char *kept = NULL, *html = NULL, *list = NULL;
    assert_ok(file_read(path, 10, &kept, NULL));
    assert_string_equal(kept, "x");
    snprintf(path, sizeof path, "%s/report-figures/throughput.csv", fixture->dir);
    assert_true(path_exists(path));
    assert_ok(file_read(page, 1 << 24, &html, NULL));
    assert_has(html, "The charts of this page are in the directory report-figures beside it");
    /* All of them are listed. */
    CLEANUP(json_decrefp) json_t *json = NULL;
    snprintf(path, sizeof path, "%s/report-figures/.weft.json", fixture->dir);
    assert_ok(json_read_file(path, &json));
    snprintf(path, sizeof path, "%s/report-figures", fixture->dir);
    assert_int_equal(json_array_size(json_object_get(json, "files")), count_files(path));
    /* A name need not be UTF-8. */
    snprintf(page, sizeof page, "%s/\xff.html", fixture->dir);
    assert_ok(page_write(&two, page));
    assert_ok(page_write(&two, page));
    snprintf(path, sizeof path, "%s/\xff-figures-2", fixture->dir);
    assert_false(path_exists(path));
    /* A page without charts has no directory. */
    Results none = {0};
    Run *waiting;
    assert_ok(results_add(&none, "waits", "/nowhere", &waiting));
    none.title = strdup("none");
    snprintf(page, sizeof page, "%s/none.html", fixture->dir);
    assert_ok(page_write(&none, page));
    snprintf(path, sizeof path, "%s/none-figures", fixture->dir);
    assert_false(path_exists(path));
    results_done(&none);
    results_done(&one);
    results_done(&two);
}

int main(void) {
    const struct CMUnitTest tests[] = {TEST(writes_figures), TEST(places_labels),        TEST(names_above),
                                       TEST(labels_points),  TEST(curves_have_whiskers), TEST(styles_differ),
                                       TEST(numbers_axes),   TEST(figures_of_each_page)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
