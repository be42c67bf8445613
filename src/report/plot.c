/* gnuplot reads a script with inline data from an unlinked temporary file and writes SVG into a pipe. The
 * script contains no text from runs, only numbers and constants, so no run can inject gnuplot commands.
 *
 * gnuplot cannot emit CSS variables. Each variable is therefore drawn in a placeholder color, a nearly black
 * rgb(0,0,n), which is replaced by the variable in the output. */
#include "report/plot.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"

/* _COLOR: the blue component of a placeholder color. */
enum { MAX_POINTS = 800, TEXT_COLOR = 1, LINE_COLOR = 2, SERIES_COLOR = 3, MAX_COLOR = 255 };

/* The unit of an axis: a power of 1000 and its suffix. */
typedef struct Scale {
    double unit;
    const char *suffix;
} Scale;

static Scale scale_of(const Plot *plot, bool of_x) {
    static const char *const counts[] = {"", " k", " M", " B", " T"};
    static const char *const bytes[] = {" B", " kB", " MB", " GB", " TB", " PB"};
    AxisFormat format = of_x ? plot->x_format : plot->y_format;
    const char *const *suffixes = format == AXIS_BYTES ? bytes : counts;
    size_t suffix_count =
        format == AXIS_BYTES ? sizeof bytes / sizeof *bytes : sizeof counts / sizeof *counts;
    double largest = 0;
    Scale scale = {1, suffixes[0]};
    if (format != AXIS_COUNTS && format != AXIS_BYTES) return scale;
    for (size_t i = 0; i < plot->count; i++)
        for (size_t k = 0; k < plot->series[i].count; k++)
            largest = fmax(largest, fabs(of_x ? plot->series[i].x[k] : plot->series[i].y[k]));
    for (size_t i = 1; i < suffix_count && largest >= 1000 * scale.unit; i++)
        scale = (Scale){1000 * scale.unit, suffixes[i]};
    return scale;
}

static void put_series(FILE *out, const Series *series, size_t at, Scale x, Scale y) {
    size_t stride = series->count / MAX_POINTS + 1;
    fprintf(out, "$d%zu << end\n", at);
    for (size_t i = 0; i < series->count; i++)
        if (i % stride == 0 || i + 1 == series->count)
            fprintf(out, "%.9g %.9g\n", series->x[i] / x.unit, series->y[i] / y.unit);
    fputs("end\n", out);
}

static void put_format(FILE *out, char axis, AxisFormat format, Scale scale) {
    switch (format) {
    case AXIS_POWERS: fprintf(out, "set logscale %c\nset format %c '%%.0e'\n", axis, axis); return;
    case AXIS_WHOLE: fprintf(out, "set format %c '%%.0f'\n", axis); return;
    case AXIS_PERCENT: fprintf(out, "set format %c '%%g%%%%'\n", axis); return;
    default: fprintf(out, "set format %c '%%.4g%s'\n", axis, scale.suffix);
    }
}

/* A logarithmic axis with a margin around the outermost points. */
static void put_log_x(FILE *out, const Plot *plot, Scale x) {
    double smallest = INFINITY, largest = 0;
    for (size_t i = 0; i < plot->count; i++) {
        for (size_t k = 0; k < plot->series[i].count; k++) {
            smallest = fmin(smallest, plot->series[i].x[k]);
            largest = fmax(largest, plot->series[i].x[k]);
        }
    }
    fputs("set logscale x\n", out);
    if (smallest > 0 && largest > 0)
        fprintf(out, "set xrange [%.9g:%.9g]\n", smallest / x.unit / 1.25, largest / x.unit * 1.25);
}

static void put_axes(FILE *out, const Plot *plot, Scale x, Scale y) {
    fprintf(out,
            "set terminal svg size 410,250 dynamic noenhanced font 'sans-serif,12' name '%s'\n"
            "set border 1 lc rgb %d\nset tics nomirror scale 0 textcolor rgb %d\nunset key\n"
            "set grid ytics lt 1 lc rgb %d lw 1\nset xlabel '%s' offset 0, 0.4 tc rgb %d\nset bmargin 3.2\n"
            "set rmargin 2.5\nset tmargin 0.8\nset xrange [*:*] noextend\nset offsets 0, 0, graph 0.05, "
            "graph %s\n",
            plot->name, LINE_COLOR, TEXT_COLOR, LINE_COLOR, plot->x_label, TEXT_COLOR,
            plot->from_zero ? "0" : "0.05");
    put_format(out, 'x', plot->x_format, x);
    put_format(out, 'y', plot->y_format, y);
    if (plot->x_log) put_log_x(out, plot, x);
    if (plot->from_zero) fputs("set yrange [0:*]\n", out);
    if (!plot->x_tics) return;
    fputs("set xtics (", out);
    for (size_t i = 0; i < plot->x_tic_count; i++)
        fprintf(out, plot->x_format == AXIS_WHOLE ? "%s%.9g" : "%s%.3g", i ? ", " : "",
                plot->x_tics[i] / x.unit);
    fputs(")\n", out);
}

static bool is_variable(const char *color) {
    return !strncmp(color, "var(", 4);
}

static void put_script(FILE *out, const Plot *plot) {
    Scale x = scale_of(plot, true), y = scale_of(plot, false);
    for (size_t i = 0; i < plot->count; i++) put_series(out, &plot->series[i], i, x, y);
    put_axes(out, plot, x, y);
    fputs("plot ", out);
    if (plot->line != 0) fprintf(out, "%.9g lc rgb %d lw 1.5 dt (4, 4), ", plot->line / y.unit, TEXT_COLOR);
    for (size_t i = 0; i < plot->count; i++) {
        const Series *series = &plot->series[i];
        const char *with = !(series->width > 0) ? "points" : series->points ? "linespoints" : "lines";
        fprintf(out, "%s$d%zu using 1:2 with %s ", i ? ", " : "", i, with);
        if (is_variable(series->color))
            fprintf(out, "lc rgb %zu", i + SERIES_COLOR);
        else
            fprintf(out, "lc rgb '%s'", series->color);
        if (series->width > 0) fprintf(out, " lw %.1f", series->width);
        if (series->points || !(series->width > 0)) fputs(" pt 7 ps 0.55", out);
        if (series->gap > 0) fprintf(out, " dt (7, %.0f)", series->gap);
    }
    fputc('\n', out);
}

/* Starts gnuplot with the script as standard input and `to` as standard output; false if it cannot be
 * started. */
static bool start(FILE *script, int to, pid_t *ret_child) {
    char name[] = "gnuplot", no_config[] = "-d"; /* ignores the user's start-up files */
    char *argv[] = {name, no_config, NULL};
    posix_spawn_file_actions_t actions;
    if (posix_spawn_file_actions_init(&actions) != 0) return false;
    bool fine = posix_spawn_file_actions_adddup2(&actions, fileno(script), STDIN_FILENO) == 0 &&
                posix_spawn_file_actions_adddup2(&actions, to, STDOUT_FILENO) == 0 &&
                posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0) == 0 &&
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

static Status run_gnuplot(FILE *script, char **ret_text, bool *ret_fine) {
    int pipes[2], state = 0;
    size_t size;
    if (pipe2(pipes, O_CLOEXEC) != 0) return FAILED("cannot create a pipe: %s", strerror(errno));
    pid_t child;
    bool started = start(script, pipes[1], &child);
    close(pipes[1]);
    Status status = read_all(pipes[0], ret_text, &size);
    close(pipes[0]);
    while (started && waitpid(child, &state, 0) < 0 && errno == EINTR) continue;
    *ret_fine = started && WIFEXITED(state) && WEXITSTATUS(state) == 0;
    return status;
}

/* The CSS variable that a placeholder stands for; NULL if the color is not a placeholder. */
static const char *variable_of(const Plot *plot, int red, int green, int blue) {
    if (red || green || blue < TEXT_COLOR) return NULL;
    if (blue == TEXT_COLOR) return "var(--soft)";
    if (blue == LINE_COLOR) return "var(--line)";
    size_t at = (size_t)(blue - SERIES_COLOR);
    return at < plot->count && is_variable(plot->series[at].color) ? plot->series[at].color : NULL;
}

/* Copies the SVG with placeholders replaced by variables. */
static Status put_variables(const Plot *plot, const char *svg, char **ret_svg) {
    CLEANUP(mem_freep) char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out) return FAILED("out of memory while drawing a plot");
    while (*svg) {
        int red, green, blue, length = 0;
        const char *name = NULL;
        if (!strncmp(svg, "rgb(", 4) && sscanf(svg, "rgb(%d,%d,%d)%n", &red, &green, &blue, &length) == 3)
            name = length ? variable_of(plot, red, green, blue) : NULL;
        if (name)
            fputs(name, out);
        else
            fputc(*svg, out);
        svg += name ? length : 1;
    }
    bool bad = ferror(out) != 0;
    if (fclose(out) != 0 || bad) return FAILED("out of memory while drawing a plot");
    *ret_svg = text;
    text = NULL;
    return OK;
}

Status plot_svg(const Plot *plot, char **ret_svg) {
    CLEANUP(mem_freep) char *text = NULL;
    bool fine = false;
    if (plot->count > MAX_COLOR - SERIES_COLOR) {
        *ret_svg = NULL;
        return OK;
    }
    FILE *script = tmpfile();
    if (!script) return FAILED("cannot create a temporary file: %s", strerror(errno));
    put_script(script, plot);
    bool bad = fflush(script) != 0 || lseek(fileno(script), 0, SEEK_SET) != 0;
    Status status = bad ? FAILED("cannot write a temporary file: %s", strerror(errno))
                        : run_gnuplot(script, &text, &fine);
    fclose(script);
    TRY(status);
    const char *svg = fine ? strstr(text, "<svg") : NULL;
    *ret_svg = NULL;
    return svg && strstr(svg, "</svg>") ? put_variables(plot, svg, ret_svg) : OK;
}
