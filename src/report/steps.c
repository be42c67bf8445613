#include "report/steps.h"

#include <math.h>
#include <string.h>

#include "report/comparable.h"

static const char *const keys[] = {"step", "loss", "val_loss"};
enum { KEYS = sizeof keys / sizeof *keys };

static bool is_key(const char *key) {
    for (size_t i = 0; i < KEYS; i++)
        if (!strcmp(key, keys[i])) return true;
    return false;
}

Status steps_check(const json_t *list, const char *from) {
    const json_t *entry;
    const char *key;
    json_t *value;
    size_t i;
    if (!list) return OK;
    if (!json_is_array(list)) return USAGE("%s: published: by_step: expected a list of objects", from);
    json_array_foreach(list, i, entry) {
        if (!json_is_integer(json_object_get(entry, "step")))
            return USAGE("%s: published: by_step: entry %zu: expected a 'step', a whole number", from, i + 1);
        json_object_foreach((json_t *)(uintptr_t)entry, key, value) {
            if (!is_key(key))
                return USAGE("%s: published: by_step: entry %zu: unknown key '%s'; expected step, loss or "
                             "val_loss",
                             from, i + 1, key);
            if (!json_is_number(value))
                return USAGE("%s: published: by_step: entry %zu: %s: expected a number", from, i + 1, key);
        }
    }
    return OK;
}

static Status add_step(Grid *grid, const Run *run, const json_t *entry) {
    const Curve *curves[] = {&run->loss, &run->val_loss};
    double step = json_number_at(entry, "step"), values[GRID_COLUMNS] = {step};
    for (size_t i = 0; i < 2; i++) {
        double own = curve_at(curves[i], step), published = json_number_or(entry, keys[1 + i], NAN);
        values[1 + 3 * i] = isfinite(published) ? own : NAN;
        values[2 + 3 * i] = published;
        values[3 + 3 * i] = own / published - 1;
    }
    return grid_add(grid, run->name, NULL, values);
}

Status steps_grid(const Results *results, Grid *grid) {
    static const GridColumn columns[] = {{"step", "step", FIGURE_FORMAT_WHOLE},
                                         {"training loss", "loss", FIGURE_FORMAT_LOSS},
                                         {"published", "loss_published", FIGURE_FORMAT_LOSS},
                                         {"difference", "loss_difference", FIGURE_FORMAT_SHARE},
                                         {"validation loss", "val_loss", FIGURE_FORMAT_LOSS},
                                         {"published", "val_loss_published", FIGURE_FORMAT_LOSS},
                                         {"difference", "val_loss_difference", FIGURE_FORMAT_SHARE},
                                         {0}};
    const json_t *entry;
    size_t i;
    *grid = (Grid){.names = "run", .columns = columns};
    if (!results_published(results)) return OK;
    results_foreach(results, run) {
        json_array_foreach(json_object_get(run->published, "by_step"), i, entry)
            TRY(add_step(grid, run, entry));
    }
    return OK;
}
