/* Plots of a pruning run. The gnuplot script plots.gp stays in the directory for customization. */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>

#include "base/fs.h"
#include "base/memory.h"
#include "compress/prune_rounds.h"

extern char **environ;

static const char *kind_of(const json_t *result) {
    const char *kind = json_string_at(json_object_get(result, "settings"), "kind");
    return kind ? kind : "weights";
}

static Status write_curve(FileWriter *file, const json_t *result, const char *name, const char *key) {
    size_t index;
    json_t *row;
    TRY(file_print(file, "$%s << END\n", name));
    json_array_foreach(json_object_get(result, "rounds"), index, row) {
        double sparsity, value;
        if (json_has_number(row, "sparsity", &sparsity) && json_has_number(row, key, &value))
            TRY(file_print(file, "%.6g %.6g\n", 100 * sparsity, value));
    }
    return file_print(file, "END\n");
}

/* The time that the share pruned alone would suggest, for comparison with the measured one. */
static Status write_projection(FileWriter *file, const json_t *result) {
    const json_t *rounds = json_object_get(result, "rounds");
    double first = 0, step_ms, sparsity;
    size_t index;
    json_t *row;
    TRY(file_print(file, "$projected << END\n"));
    json_has_number(json_array_get(rounds, 0), "sparsity", &first);
    if (json_has_number(json_array_get(rounds, 0), "step_ms", &step_ms))
        json_array_foreach(rounds, index, row) if (json_has_number(row, "sparsity", &sparsity))
            TRY(file_print(file, "%.6g %.6g\n", 100 * sparsity, step_ms * (1 - sparsity) / (1 - first)));
    return file_print(file, "END\n");
}

static Status write_plot(FileWriter *file, const json_t *result, const json_t *beside, const char *name,
                         const char *label, const char *key) {
    TRY(write_curve(file, result, "this", key));
    if (beside) TRY(write_curve(file, beside, "other", key));
    TRY(file_print(file, "set output '%s.svg'\nset ylabel '%s'\nplot $this with linespoints pt 7 title '%s'",
                   name, label, kind_of(result)));
    if (beside) TRY(file_print(file, ", $other with linespoints pt 5 title '%s'", kind_of(beside)));
    return OK;
}

static bool saves_time(const json_t *result) {
    return result && strcmp(kind_of(result), "weights");
}

static Status write_script(const char *path, const json_t *result, const json_t *beside) {
    CLEANUP(file_writer_freep) FileWriter *file = NULL;
    const json_t *faster = saves_time(beside) ? beside : saves_time(result) ? result : NULL;
    TRY(file_writer_new(&file, path));
    TRY(file_print(file, "set terminal svg size 640,420 dynamic background rgb 'white'\nset grid\n"
                         "set colorsequence podo\nset key outside bottom center horizontal\n"
                         "set xlabel 'pruned (%%)'\nset xrange [0:100]\n"));
    TRY(write_plot(file, result, beside, "loss", "validation loss", "val_loss"));
    TRY(file_print(file, "\nset yrange [0:*]\n"));
    if (faster) TRY(write_projection(file, faster));
    TRY(write_plot(file, result, beside, "time", "ms per step", "step_ms"));
    if (faster)
        TRY(file_print(file, ", $projected with lines dashtype 2 lc 'gray50' title '%s, projected'",
                       kind_of(faster)));
    TRY(file_print(file, "\n"));
    return file_commit(file);
}

/* Runs the script in `dir`. A missing or failing gnuplot is not an error. */
static void run_gnuplot(const char *dir) {
    char *argv[] = {(char[]){"gnuplot"}, (char[]){"plots.gp"}, NULL};
    posix_spawn_file_actions_t actions;
    pid_t child;
    int code;
    if (posix_spawn_file_actions_init(&actions) != 0) return;
    int failed = posix_spawn_file_actions_addchdir_np(&actions, dir) ||
                 posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0) ||
                 posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0) ||
                 posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0) ||
                 posix_spawnp(&child, "gnuplot", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    while (!failed && waitpid(child, &code, 0) < 0 && errno == EINTR) continue;
}

Status prune_plot(const char *dir, const json_t *result, const json_t *beside) {
    CLEANUP(mem_freep) char *path = NULL;
    TRY(path_join(&path, dir, "plots.gp"));
    TRY(write_script(path, result, beside));
    run_gnuplot(dir);
    return OK;
}
