/* gnuplot reads a script with inline data from an unlinked temporary file, writes SVG into a pipe and PDF
 * into its working directory. Labels come from users: they are quoted, and control characters are replaced,
 * so that no run can inject gnuplot commands.
 *
 * All positions are known before gnuplot starts: plot_layout.c computes ranges, margins and where labels fit.
 * The page's script uses the same numbers to find the point below the pointer.
 *
 * gnuplot cannot emit CSS variables, so it draws in the colors of the light theme, which are replaced by
 * their variables in the page's copy. */
#include "report/plot.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/memory.h"
#include "base/terminal.h"
#include "report/plot_layout.h"

enum { MAX_POINTS = 800 };
#define Y_LABEL 9. /* pixels from the left edge */

/* The light theme's colors and their variables in page.css. */
static const struct {
    const char *hex, *variable;
} colors[] = {{"#0a67b2", "var(--c0)"},   {"#d9600a", "var(--c1)"}, {"#00936b", "var(--c2)"},
              {"#b2478f", "var(--c3)"},   {"#d99a00", "var(--c4)"}, {"#3aa5dc", "var(--c5)"},
              {"#6a4fb3", "var(--c6)"},   {"#5f6773", "var(--c7)"}, {"#616a78", "var(--soft)"},
              {"#e2e5ea", "var(--line)"}, {"#191c21", "var(--ink)"}};
enum { SOFT = 8, LINE = 9, INK = 10, COLORS = sizeof colors / sizeof *colors };

/* ---- the script ---- */

/* A quoted string: gnuplot knows no escapes in single quotes but the doubled quote. */
void plot_put_text(FILE *out, const char *text) {
    fputc('\'', out);
    for (int length; *text; text += length) {
        int control = terminal_control(text);
        length = control ? control : 1;
        if (*text == '\'') fputc('\'', out);
        fputc(control ? '?' : *text, out);
    }
    fputc('\'', out);
}

static bool is_kept(const Series *series, size_t i) {
    size_t stride = series->count / MAX_POINTS + 1;
    return i % stride == 0 || i + 1 == series->count;
}

static double spread_at(const Series *series, size_t i) {
    return series->spread && isfinite(series->spread[i]) ? series->spread[i] : 0;
}

static void put_data(FILE *out, const Plot *plot, const PlotLayout *layout) {
    double x = layout->x.unit, y = layout->y.unit;
    for (size_t s = 0; s < plot->count; s++) {
        const Series *series = &plot->series[s];
        fprintf(out, "$d%zu << end\n", s);
        for (size_t i = 0; i < series->count; i++) {
            if (!is_kept(series, i)) continue;
            if (plot->kind == PLOT_BARS) /* value, row, from, to, spread */
                fprintf(out, "%.9g %zu 0 %.9g %.9g\n", series->y[i] / x, plot->count - s, series->y[i] / x,
                        spread_at(series, i) / x);
            else
                fprintf(out, "%.9g %.9g %.9g\n", series->x[i] / x, series->y[i] / y,
                        spread_at(series, i) / y);
        }
        fputs("end\n", out);
    }
}

/* A logarithmic axis over few powers of ten also has numbers at 2 and 5. */
static void put_powers(FILE *out, char axis, const PlotAxis *scale) {
    bool any = false;
    fprintf(out, "set logscale %c\nset format %c '%s'\n", axis, axis, scale->low >= 1 ? "%.0s %c" : "%.0e");
    if (!(scale->low > 0) || scale->high / scale->low > 300) return;
    fprintf(out, "set %ctics (", axis);
    for (double power = pow(10, floor(log10(scale->low))); power <= scale->high; power *= 10)
        for (int i = 0; i < 3; i++) {
            double tic = power * (double[]){1, 2, 5}[i];
            if (tic < scale->low || tic > scale->high) continue;
            fprintf(out, "%s%.9g", any ? ", " : "", tic);
            any = true;
        }
    fputs(")\n", out);
}

static void put_format(FILE *out, char axis, AxisFormat format, const PlotAxis *scale) {
    switch (format) {
    case AXIS_POWERS: put_powers(out, axis, scale); return;
    case AXIS_WHOLE: fprintf(out, "set format %c '%%.0f'\n", axis); return;
    case AXIS_PERCENT: fprintf(out, "set format %c '%%g%%%%'\n", axis); return;
    default: fprintf(out, "set format %c '%%.4g%s'\n", axis, scale->suffix);
    }
}

/* Zero has no unit. Must follow the other settings of the numbers. */
static void put_zero(FILE *out, char axis, AxisFormat format, const PlotAxis *scale) {
    if ((format == AXIS_COUNTS || format == AXIS_BYTES) && scale->low <= 0 && scale->high >= 0)
        fprintf(out, "set %ctics add ('0' 0)\n", axis);
}

/* gnuplot chooses too many numbers for a narrow linear axis, or for long numbers. */
static void put_x_step(FILE *out, const PlotLayout *at) {
    static const double gap = 1.5, shortest = 3; /* characters between two numbers, and of a number: "2.5" */
    char digits[400];
    int length = snprintf(digits, sizeof digits, "%.0f", at->x.high);
    double characters = fmax(length, shortest) + (double)strlen(at->x.suffix) + gap;
    double most = (at->right - at->left) / (plot_text_width("0") * characters);
    fprintf(out, "set xtics %.9g\n", plot_step((at->x.high - at->x.low) / fmax(most, 2)));
}

/* Leaves out numbers that would touch the one before. */
static void put_x_tics(FILE *out, const Plot *plot, const PlotLayout *at) {
    double free_from = -INFINITY;
    bool any = false;
    fputs("set xtics (", out);
    for (size_t i = 0; i < plot->x_tic_count; i++) {
        char text[32], shown[48];
        bool whole = plot->x_format == AXIS_WHOLE;
        double value = plot->x_tics[i] / at->x.unit;
        snprintf(text, sizeof text, whole ? "%.9g" : "%.3g", value);
        snprintf(shown, sizeof shown, whole ? "%.0f%s" : "%.3g%s", value, at->x.suffix);
        double x = plot_x_pixel(plot, at, plot->x_tics[i]), half = plot_text_width(shown) / 2;
        if (x - half < free_from) continue;
        fprintf(out, "%s%s", any ? ", " : "", text);
        free_from = x + half + 4;
        any = true;
    }
    fputs(")\n", out);
}

static void put_axes(FILE *out, const Plot *plot, const PlotLayout *at) {
    const char *soft = colors[SOFT].hex, *line = colors[LINE].hex;
    bool bars = plot->kind == PLOT_BARS;
    fprintf(out,
            "set encoding utf8\nset lmargin at screen %.5f\nset rmargin at screen %.5f\n"
            "set tmargin at screen %.5f\nset bmargin at screen %.5f\nset border %d lc rgb '%s'\n"
            "set tics nomirror scale 0 textcolor rgb '%s'\nunset key\nset grid %s lt 1 lc rgb '%s' lw 1\n"
            "set xlabel '%s' offset 0, 0.3 tc rgb '%s'\nset xrange [%.9g:%.9g]\nset yrange [%.9g:%.9g]\n",
            at->left / at->width, at->right / at->width, 1 - at->top / at->height,
            1 - at->bottom / at->height, bars ? 0 : 1, line, soft, bars ? "xtics" : "ytics", line,
            plot->x_label, soft, at->x.low, at->x.high, at->y.low, at->y.high);
    put_format(out, 'x', bars ? plot->y_format : plot->x_format, &at->x);
    if (plot->x_log) fputs("set logscale x\n", out);
    if (bars) {
        fprintf(out, "unset ytics\nset xtics 0, %.9g\n", plot_step(at->x.high / 4));
        put_zero(out, 'x', plot->y_format, &at->x);
        return;
    }
    put_format(out, 'y', plot->y_format, &at->y);
    fprintf(out, "set label %zu '%s' at screen %.5f, screen %.5f center rotate tc rgb '%s'\n",
            at->label_count + 1, plot->y_label ? plot->y_label : "", Y_LABEL / at->width,
            1 - (at->top + at->bottom) / 2 / at->height, soft);
    if (plot->x_tics)
        put_x_tics(out, plot, at);
    else if (!plot->x_log)
        put_x_step(out, at);
    if (!plot->x_log && !plot->x_tics) put_zero(out, 'x', plot->x_format, &at->x);
    put_zero(out, 'y', plot->y_format, &at->y);
}

static const char *const dashes[PLOT_DASHES] = {"", "9, 4", "2, 3", "9, 3, 2, 3"};

static void put_dash(FILE *out, const Series *series) {
    if (series->gap > 0)
        fprintf(out, " dt (7, %.0f)", series->gap);
    else if (series->dash > 0)
        fprintf(out, " dt (%s)", dashes[series->dash % PLOT_DASHES]);
}

/* The line or point of a series in the legend, before its label. */
static void put_sample(FILE *out, const Plot *plot, const PlotLayout *at, size_t number) {
    enum { FROM = 26, TO = 6 }; /* pixels left of the label */
    const PlotLabel *label = &at->labels[number];
    bool ideal = (size_t)label->sample == plot->count;
    const Series *series = ideal ? NULL : &plot->series[label->sample];
    double y = 1 - label->y / at->height;
    const char *color = colors[ideal ? SOFT : series->color].hex;
    if (!ideal && !(series->width > 0)) {
        fprintf(out, "set label %zu '' at screen %.5f, screen %.5f point pt 7 ps 0.55 lc rgb '%s'\n",
                at->label_count + 2 + number, (label->x - (FROM + TO) / 2.) / at->width, y, color);
        return;
    }
    fprintf(out, "set arrow from screen %.5f, screen %.5f to screen %.5f, screen %.5f nohead lc rgb '%s'",
            (label->x - FROM) / at->width, y, (label->x - TO) / at->width, y, color);
    fprintf(out, " lw %.1f", ideal ? 1.5 : series->width);
    if (ideal) fputs(" dt (4, 4)", out);
    if (!ideal) put_dash(out, series);
    fputc('\n', out);
}

static void put_labels(FILE *out, const Plot *plot, const PlotLayout *at) {
    for (size_t i = 0; i < at->label_count; i++) {
        const PlotLabel *label = &at->labels[i];
        if (label->sample >= 0) put_sample(out, plot, at, i);
        fprintf(out, "set label %zu ", i + 1);
        plot_put_text(out, label->text);
        fprintf(out, " at screen %.5f, screen %.5f %s textcolor rgb '%s'\n", label->x / at->width,
                1 - label->y / at->height, label->before ? "right" : "left",
                colors[label->color < 0 ? SOFT : label->color].hex);
    }
}

static void put_bar(FILE *out, const Series *series, const PlotLayout *at, size_t number) {
    const char *color = colors[series->color].hex;
    fprintf(out, "$d%zu using 1:2:3:4:($2 + %.2f):($2 + %.2f) with boxxyerror fs solid noborder lc rgb '%s'",
            number, at->bar_low, at->bar_high, color);
    if (spread_at(series, 0) > 0)
        fprintf(out, ", $d%zu using 1:($2 + %.3f):5 with xerrorbars lc rgb '%s' lw 1.2 pt 7 ps 0.1", number,
                (at->bar_low + at->bar_high) / 2, colors[INK].hex);
}

static void put_curve(FILE *out, const Plot *plot, size_t at) {
    const Series *series = &plot->series[at];
    const char *color = colors[series->color].hex;
    bool lines = series->width > 0;
    if (series->spread)
        fprintf(out, "$d%zu using 1:2:($3 > 0 ? $3 : NaN) with yerrorbars lc rgb '%s' lw 1.2 pt 7 ps 0.1, ",
                at, color);
    const char *with = !lines ? "points" : series->points ? "linespoints" : "lines";
    fprintf(out, "$d%zu using 1:2 with %s lc rgb '%s'", at, with, color);
    if (lines) fprintf(out, " lw %.1f", series->width);
    if (series->points || !lines) fprintf(out, " pt 7 ps %.2f", plot->kind == PLOT_POINTS ? 0.8 : 0.55);
    put_dash(out, series);
}

static void put_plot_command(FILE *out, const Plot *plot, const PlotLayout *at) {
    fputs("plot ", out);
    if (plot->line != 0)
        fprintf(out, "%.9g lc rgb '%s' lw 1.5 dt (4, 4), ", plot->line / at->y.unit, colors[SOFT].hex);
    for (size_t i = 0; i < plot->count; i++) {
        if (i) fputs(", ", out);
        if (plot->kind == PLOT_BARS)
            put_bar(out, &plot->series[i], at, i);
        else
            put_curve(out, plot, i);
    }
    fputc('\n', out);
}

void plot_put_terminal(FILE *out, const char *name, double width, double height) {
    fprintf(out, "set terminal svg size %.0f,%.0f dynamic noenhanced font 'sans-serif,12' name '", width,
            height);
    for (; *name; name++) fputc(*name == '-' ? '_' : *name, out); /* a prefix of ids */
    fputs("'\n", out);
}

void plot_put_pdf(FILE *out, const char *name, double width, double height) {
    fprintf(out,
            "set output\nif (strstrt(GPVAL_TERMINALS, 'pdfcairo') > 0) {\n"
            "set terminal pdfcairo size %.2f,%.2f noenhanced font 'Sans,9'\nset output '%s.pdf'\nreplot\n"
            "set output\n}\n",
            width / 96, height / 96, name);
}

static void put_picture(FILE *out, const Plot *plot, const char *name, const PlotLayout *at) {
    plot_put_terminal(out, name, at->width, at->height);
    put_axes(out, plot, at);
    put_labels(out, plot, at);
    put_plot_command(out, plot, at);
}

/* Both versions; the files have the wide one. */
static void put_script(FILE *out, const Plot *plot, const char *const names[PLOT_VERSIONS],
                       const PlotLayout at[PLOT_VERSIONS], bool pdf) {
    const PlotLayout *wide = &at[PLOT_WIDE];
    put_data(out, plot, wide);
    put_picture(out, plot, names[PLOT_WIDE], wide);
    if (pdf) plot_put_pdf(out, plot->name, wide->width, wide->height);
    fputs("reset\n", out);
    put_picture(out, plot, names[PLOT_NARROW], &at[PLOT_NARROW]);
}

/* ---- running gnuplot ---- */

/* Starts gnuplot with the script as standard input and `to` as standard output, in `dir` unless NULL; false
 * if it cannot be started. */
static bool start(FILE *script, int to, const char *dir, pid_t *ret_child) {
    char name[] = "gnuplot", no_config[] = "-d"; /* ignores the user's start-up files */
    char *argv[] = {name, no_config, NULL};
    posix_spawn_file_actions_t actions;
    if (posix_spawn_file_actions_init(&actions) != 0) return false;
    bool fine = posix_spawn_file_actions_adddup2(&actions, fileno(script), STDIN_FILENO) == 0 &&
                posix_spawn_file_actions_adddup2(&actions, to, STDOUT_FILENO) == 0 &&
                posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0) == 0 &&
                (!dir || posix_spawn_file_actions_addchdir_np(&actions, dir) == 0) &&
                posix_spawnp(ret_child, name, &actions, NULL, argv, environ) == 0;
    posix_spawn_file_actions_destroy(&actions);
    return fine;
}

static Status read_all(int from, char **ret_text, size_t *ret_size) {
    CLEANUP(mem_freep) char *text = NULL;
    size_t size = 0, capacity = 0;
    for (;;) {
        TRY(mem_grow(&text, &capacity, size + 4097, 1));
        ssize_t got = read(from, text + size, 4096);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        size += (size_t)got;
    }
    text[size] = 0;
    *ret_text = text;
    *ret_size = size;
    text = NULL;
    return OK;
}

static Status run_gnuplot(FILE *script, const char *dir, char **ret_text, bool *ret_fine) {
    int pipes[2], state = 0;
    size_t size;
    if (pipe2(pipes, O_CLOEXEC) != 0) return FAILED("cannot create a pipe: %s", strerror(errno));
    pid_t child;
    bool started = start(script, pipes[1], dir, &child);
    close(pipes[1]);
    Status status = read_all(pipes[0], ret_text, &size);
    close(pipes[0]);
    while (started && waitpid(child, &state, 0) < 0 && errno == EINTR) continue;
    *ret_fine = started && WIFEXITED(state) && WEXITSTATUS(state) == 0;
    return status;
}

/* ---- the SVG ---- */

/* The index of a color in the table; COLORS if it is another one. */
static size_t color_at(const char *text, int *ret_length) {
    unsigned red, green, blue;
    *ret_length = 0;
    if (sscanf(text, "rgb(%u,%u,%u)%n", &red, &green, &blue, ret_length) != 3 || !*ret_length) return COLORS;
    for (size_t i = 0; i < COLORS; i++)
        if (strtoul(colors[i].hex + 1, NULL, 16) == (red << 16 | green << 8 | blue)) return i;
    return COLORS;
}

/* The length of what says how gnuplot was called, is unused, or has the same id in every plot; else 0. */
static size_t noise_at(const char *text) {
    static const struct {
        const char *from, *to;
    } parts[] = {{"<title>", "</title>"},
                 {"<desc>", "</desc>"},
                 {"<filter ", "</filter>"},
                 {" id=\"gnuplot_canvas\"", ""}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        size_t length = strlen(parts[i].from);
        const char *end = strncmp(text, parts[i].from, length) ? NULL : strstr(text + length, parts[i].to);
        if (end) return (size_t)(end - text) + strlen(parts[i].to);
    }
    return 0;
}

/* Copies an SVG of gnuplot's without its titles and with unique ids; `page`: colors become variables. */
static Status clean_svg(const char *name, const char *svg, bool page, char **ret_svg) {
    CLEANUP(mem_freep) char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out) return FAILED("out of memory while drawing a plot");
    const char *end = strstr(svg, "</svg>") + strlen("</svg>");
    while (svg < end) {
        int length = 0;
        size_t noise = *svg == '<' || *svg == ' ' ? noise_at(svg) : 0;
        size_t color = page && !strncmp(svg, "rgb(", 4) ? color_at(svg, &length) : COLORS;
        if (noise) {
            svg += noise;
        } else if (color < COLORS) {
            fputs(colors[color].variable, out);
            svg += length;
        } else if (!strncmp(svg, "'gp", 3) || !strncmp(svg, "#gp", 3)) {
            fprintf(out, "%c%s_gp", *svg, name);
            svg += 3;
        } else {
            fputc(*svg++, out);
        }
    }
    bool bad = ferror(out) != 0;
    if (fclose(out) != 0 || bad) return FAILED("out of memory while drawing a plot");
    *ret_svg = text;
    text = NULL;
    return OK;
}

/* Runs a script; *ret_svg is untouched if gnuplot is absent or failed. */
static Status run_script(FILE *script, const char *dir, char **ret_svg) {
    CLEANUP(mem_freep) char *text = NULL;
    bool fine = false;
    bool bad = fflush(script) != 0 || lseek(fileno(script), 0, SEEK_SET) != 0;
    Status status = bad ? FAILED("cannot write a temporary file: %s", strerror(errno))
                        : run_gnuplot(script, dir, &text, &fine);
    TRY(status);
    const char *svg = fine ? strstr(text, "<svg") : NULL;
    if (svg && strstr(svg, "</svg>")) TRY(str_dup(svg, ret_svg));
    return OK;
}

static Status draw(const Plot *plot, const char *const names[PLOT_VERSIONS],
                   const PlotLayout layouts[PLOT_VERSIONS], const char *dir, char **ret_svgs) {
    FILE *script = tmpfile();
    if (!script) return FAILED("cannot create a temporary file: %s", strerror(errno));
    put_script(script, plot, names, layouts, dir != NULL);
    Status status = run_script(script, dir, ret_svgs);
    fclose(script);
    return status;
}

/* ---- files ---- */

void plot_put_csv_text(FILE *out, const char *text) {
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '"') fputc('"', out);
        fputc(*text, out);
    }
    fputc('"', out);
}

/* One line per point; the spread is empty if unknown. */
static void put_csv(FILE *out, const Plot *plot) {
    bool bars = plot->kind == PLOT_BARS;
    fputs("series,", out);
    if (!bars) {
        plot_put_csv_text(out, plot->x_label);
        fputc(',', out);
    }
    plot_put_csv_text(out, bars ? plot->x_label : plot->y_label);
    fputs(",spread", out);
    if (plot->groups) fprintf(out, ",%s", plot->groups);
    fputc('\n', out);
    for (size_t s = 0; s < plot->count; s++) {
        const Series *series = &plot->series[s];
        for (size_t i = 0; i < series->count; i++) {
            const char *name = series->names ? series->names[i] : series->label;
            plot_put_csv_text(out, name ? name : "");
            if (!bars) fprintf(out, ",%.10g", series->x[i]);
            fprintf(out, ",%.10g,", series->y[i]);
            if (spread_at(series, i) > 0) fprintf(out, "%.6g", spread_at(series, i));
            if (plot->groups) fprintf(out, ",%s", series->group ? series->group : "");
            fputc('\n', out);
        }
    }
}

static Status write_in(const char *dir, const char *name, const char *ending, const char *text, size_t size) {
    CLEANUP(mem_freep) char *path = NULL;
    TRY(str_format(&path, "%s/%s.%s", dir, name, ending));
    return file_replace(path, text, size);
}

static Status write_csv(const Plot *plot, const char *dir) {
    CLEANUP(mem_freep) char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out) return FAILED("out of memory while writing a plot");
    put_csv(out, plot);
    bool bad = ferror(out) != 0;
    if (fclose(out) != 0 || bad) return FAILED("out of memory while writing a plot");
    return write_in(dir, plot->name, "csv", text, size);
}

static Status write_svg(const char *name, const char *dir, const char *svg) {
    CLEANUP(mem_freep) char *whole = NULL;
    TRY(str_format(&whole, "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n%s", svg));
    return write_in(dir, name, "svg", whole, strlen(whole));
}

Status plot_write_files(const char *name, const char *dir, FILE *script, const char *csv, size_t csv_size) {
    CLEANUP(mem_freep) char *drawn = NULL, *svg = NULL;
    TRY(write_in(dir, name, "csv", csv, csv_size));
    TRY(run_script(script, dir, &drawn));
    if (!drawn) return OK;
    TRY(clean_svg(name, drawn, false, &svg));
    return write_svg(name, dir, svg);
}

/* ---- data for the page's script ---- */

static json_t *numbers_json(const Series *series, const double *values, double unit) {
    json_t *list = json_array();
    for (size_t i = 0; i < series->count; i++)
        if (is_kept(series, i)) json_array_append_new(list, json_finite(values[i] / unit));
    return list;
}

static json_t *names_json(const Series *series) {
    json_t *list = json_array();
    for (size_t i = 0; i < series->count; i++)
        if (is_kept(series, i)) json_array_append_new(list, json_string(series->names[i]));
    return list;
}

static json_t *series_json(const Plot *plot, const Series *series, const PlotLayout *at) {
    double unit = plot->kind == PLOT_BARS ? at->x.unit : at->y.unit;
    json_t *json =
        json_pack("{s:s, s:o, s:o}", "n", series->label ? series->label : "", "x",
                  numbers_json(series, plot->kind == PLOT_BARS ? series->y : series->x, at->x.unit), "y",
                  numbers_json(series, series->y, unit));
    if (series->names) json_object_set_new(json, "p", names_json(series));
    if (series->spread) json_object_set_new(json, "e", numbers_json(series, series->spread, unit));
    return json;
}

static json_t *axis_json(const PlotAxis *axis, const char *label, bool logarithmic) {
    return json_pack("{s:f, s:f, s:s, s:s, s:b}", "a", axis->low, "b", axis->high, "u", axis->suffix, "n",
                     label, "log", logarithmic);
}

static json_t *views_json(const PlotLayout layouts[PLOT_VERSIONS]) {
    json_t *list = json_array();
    for (int i = 0; i < PLOT_VERSIONS; i++) {
        const PlotLayout *at = &layouts[i];
        json_array_append_new(list, json_pack("{s:[ffff], s:[ff]}", "box", at->left, at->top, at->right,
                                              at->bottom, "size", at->width, at->height));
    }
    return list;
}

static json_t *data_json(const Plot *plot, const PlotLayout layouts[PLOT_VERSIONS]) {
    const PlotLayout *at = &layouts[PLOT_WIDE]; /* both have the same axes */
    json_t *list = json_array();
    for (size_t i = 0; i < plot->count; i++)
        json_array_append_new(list, series_json(plot, &plot->series[i], at));
    return json_pack("{s:i, s:o, s:o, s:o, s:o}", "kind", (int)plot->kind, "views", views_json(layouts), "x",
                     axis_json(&at->x, plot->x_label, plot->x_log), "y",
                     axis_json(&at->y, plot->y_label ? plot->y_label : "", plot->y_format == AXIS_POWERS),
                     "s", list);
}

void plot_done(PlotResult *result) {
    free(result->svg);
    free(result->narrow);
    free(result->plain);
    json_decref(result->data);
    *result = (PlotResult){0};
}

static void layouts_done(PlotLayout (*layouts)[PLOT_VERSIONS]) {
    for (int i = 0; i < PLOT_VERSIONS; i++) plot_layout_done(&(*layouts)[i]);
}

Status plot_draw(const Plot *plot, const char *dir, PlotResult *ret_result) {
    CLEANUP(layouts_done) PlotLayout layouts[PLOT_VERSIONS] = {0};
    CLEANUP(plot_done) PlotResult result = {0};
    CLEANUP(mem_freep) char *svgs = NULL, *narrow_name = NULL;
    TRY(str_format(&narrow_name, "%s-narrow", plot->name));
    const char *const names[PLOT_VERSIONS] = {plot->name, narrow_name};
    for (PlotVersion i = 0; i < PLOT_VERSIONS; i++) TRY(plot_layout(plot, i, &layouts[i]));
    TRY(draw(plot, names, layouts, dir, &svgs));
    const char *second = svgs ? strstr(svgs + 1, "<svg") : NULL;
    if (second && strstr(second, "</svg>")) {
        TRY(clean_svg(names[PLOT_WIDE], svgs, true, &result.svg));
        TRY(clean_svg(names[PLOT_WIDE], svgs, false, &result.plain));
        TRY(clean_svg(names[PLOT_NARROW], second, true, &result.narrow));
        result.data = data_json(plot, layouts);
        if (!result.data) return FAILED("out of memory while drawing a plot");
    }
    if (dir && result.plain) TRY(write_svg(plot->name, dir, result.plain));
    if (dir) TRY(write_csv(plot, dir));
    *ret_result = result;
    result = (PlotResult){0};
    return OK;
}
