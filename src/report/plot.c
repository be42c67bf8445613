/* gnuplot reads a script with the numbers in it from a file without a name and writes the picture into a
 * pipe. Nothing of a person's goes into the script but numbers: no text of a run's can become a command. */
#include "report/plot.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"

enum { POINTS_MOST = 800 };

static void put_series(FILE *out, const Series *series, size_t at) {
    size_t stride = series->count / POINTS_MOST + 1;
    fprintf(out, "$d%zu << end\n", at);
    for (size_t i = 0; i < series->count; i++)
        if (i % stride == 0 || i + 1 == series->count)
            fprintf(out, "%.9g %.9g\n", series->x[i], series->y[i]);
    fputs("end\n", out);
}

static void put_script(FILE *out, const Plot *plot) {
    for (size_t i = 0; i < plot->count; i++) put_series(out, &plot->series[i], i);
    fprintf(out,
            "set terminal svg size 560,300 dynamic noenhanced font 'sans-serif,13' name '%s'\n"
            "set border 3 lc rgb '#8a8f98'\nset tics nomirror textcolor rgb '#8a8f98'\nunset key\n"
            "set grid lc rgb '#8a8f98' lw 0.3 dt 3\nset xlabel '%s' tc rgb '#8a8f98'\n"
            "set ylabel '%s' tc rgb '#8a8f98'\nset xrange [*:*] noextend\nset offsets 0, 0, graph 0.05, "
            "graph 0.05\n",
            plot->name, plot->x_label, plot->y_label);
    if (plot->bytes) fputs("set format y '%.0s %cB'\n", out);
    if (plot->from_zero) fputs("set yrange [0:*]\n", out);
    fputs("plot ", out);
    for (size_t i = 0; i < plot->count; i++) {
        const Series *series = &plot->series[i];
        fprintf(out, "%s$d%zu using 1:2 with %s lc rgb '%s' lw %.1f pt 7 ps 0.4", i ? ", " : "", i,
                series->points ? "linespoints" : "lines", series->color, series->width);
        if (series->gap > 0) fprintf(out, " dt (6, %.0f)", series->gap);
    }
    fputc('\n', out);
}

/* Starts gnuplot between the script and the pipe; false where there is none. */
static bool start(FILE *script, int to, pid_t *ret_child) {
    char name[] = "gnuplot", plain[] = "-d";
    char *argv[] = {name, plain, NULL};
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
    if (pipe2(pipes, O_CLOEXEC) != 0) return FAILED("a pipe cannot be made: %s", strerror(errno));
    pid_t child;
    bool started = start(script, pipes[1], &child);
    close(pipes[1]);
    Status status = read_all(pipes[0], ret_text, &size);
    close(pipes[0]);
    while (started && waitpid(child, &state, 0) < 0 && errno == EINTR) continue;
    *ret_fine = started && WIFEXITED(state) && WEXITSTATUS(state) == 0;
    return status;
}

Status plot_svg(const Plot *plot, char **ret_svg) {
    CLEANUP(mem_freep) char *text = NULL;
    bool fine = false;
    FILE *script = tmpfile();
    if (!script) return FAILED("a temporary file cannot be made: %s", strerror(errno));
    put_script(script, plot);
    bool bad = fflush(script) != 0 || lseek(fileno(script), 0, SEEK_SET) != 0;
    Status status = bad ? FAILED("a temporary file cannot be written: %s", strerror(errno))
                        : run_gnuplot(script, &text, &fine);
    fclose(script);
    TRY(status);
    const char *svg = fine ? strstr(text, "<svg") : NULL;
    *ret_svg = NULL;
    return svg && strstr(svg, "</svg>") ? str_dup(svg, ret_svg) : OK;
}
