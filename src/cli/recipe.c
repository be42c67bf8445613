/* A recipe is a configuration file with four more keys: "about", a description; "scales", objects of options
 * by name: --scale selects one, whose options override the file's own; "runs", a list of objects with a name
 * and the options that distinguish a run: --run selects one; and "cluster", the hardware on which to simulate
 * runs. `weft compare` executes all runs. A scale may have its own list of runs; scales and runs may have a
 * cluster. The run overrides the scale, and the scale overrides the file. */
#include "cli/recipe.h"

#include <string.h>

#include "base/suggest.h"

static Status settle_scale(json_t *file, const char *path, const char *scale) {
    CLEANUP(json_decrefp) json_t *scales = json_incref(json_object_get(file, "scales"));
    json_object_del(file, "scales");
    if (scales && !json_is_object(scales))
        return USAGE("%s: scales: expected an object with scales by name", path);
    if (!scale) return OK;
    json_t *chosen = json_object_get(scales, scale);
    if (json_is_object(chosen))
        return json_object_update(file, chosen) ? FAILED("out of memory while reading a scale") : OK;
    if (chosen) return USAGE("%s: scales: %s: expected an object with options", path, scale);
    const char *first = json_object_iter_key(json_object_iter(scales));
    return USAGE("--scale %s: %s has no such scale%s%s%s", scale, path,
                 first ? "; available: " : " and defines none", first ? first : "",
                 json_object_size(scales) > 1 ? ", ..." : "");
}

static const char *name_of(const json_t *run) {
    return json_string_value(json_object_get(run, "name"));
}

static Status check_runs(const json_t *runs, const char *path) {
    if (!json_is_array(runs)) return USAGE("%s: runs: expected a list of objects", path);
    for (size_t i = 0; i < json_array_size(runs); i++) {
        const json_t *run = json_array_get(runs, i);
        const char *name = name_of(run);
        if (!json_is_object(run))
            return USAGE("%s: runs: entry %zu: expected an object with options", path, i + 1);
        if (!name || !*name) return USAGE("%s: runs: entry %zu: expected a string as 'name'", path, i + 1);
        for (size_t k = 0; k < i; k++)
            if (!strcmp(name, name_of(json_array_get(runs, k))))
                return USAGE("%s: runs: duplicate name '%s'", path, name);
    }
    return OK;
}

static Status unknown_run(const json_t *runs, const char *path, const char *name) {
    Suggestion near = {.word = name};
    const json_t *run;
    size_t i;
    json_array_foreach(runs, i, run) suggest_offer(&near, name_of(run));
    const char *best = near.best ? near.best : name_of(json_array_get(runs, 0));
    if (!best) return USAGE("--run %s: %s defines no runs", name, path);
    return USAGE("--run %s: %s has no such run; %s '%s'%s", name, path,
                 near.best ? "did you mean" : "available:", best, near.best ? "?" : "");
}

static Status settle_run(json_t *file, const char *path, const char *name) {
    CLEANUP(json_decrefp) json_t *runs = json_incref(json_object_get(file, "runs"));
    json_object_del(file, "runs");
    if (runs) TRY(check_runs(runs, path));
    if (!name) return OK;
    json_t *run;
    size_t i;
    json_array_foreach(runs, i, run) {
        if (strcmp(name, name_of(run))) continue;
        if (json_object_update(file, run)) return FAILED("out of memory while reading a run");
        json_object_del(file, "name");
        return OK;
    }
    return unknown_run(runs, path, name);
}

static Status settle_about(json_t *file, const char *path) {
    const json_t *about = json_object_get(file, "about");
    if (about && !json_is_string(about)) return USAGE("%s: about: expected a string", path);
    json_object_del(file, "about");
    return OK;
}

static Status check_cluster(const json_t *object, const char *path) {
    const json_t *cluster = json_object_get(object, "cluster");
    if (!cluster || json_is_string(cluster) || json_is_null(cluster)) return OK;
    return USAGE("%s: cluster: expected the name of a cluster, or null", path);
}

Status recipe_settle(json_t *file, const char *path, const char *scale, const char *run) {
    TRY(settle_about(file, path));
    TRY(settle_scale(file, path, scale));
    TRY(settle_run(file, path, run));
    TRY(check_cluster(file, path));
    json_object_del(file, "cluster");
    return OK;
}

Status recipe_read(Recipe *ret_recipe, const char *path, const char *scale) {
    CLEANUP(json_decrefp) json_t *file = NULL;
    CLEANUP(json_decrefp) json_t *about = NULL;
    TRY(json_read_file(path, &file));
    if (!json_is_object(file)) return USAGE("%s: expected a JSON object with options", path);
    about = json_incref(json_object_get(file, "about"));
    TRY(settle_about(file, path));
    TRY(settle_scale(file, path, scale));
    json_t *runs = json_object_get(file, "runs");
    if (!runs || (json_is_array(runs) && !json_array_size(runs)))
        return USAGE("%s: contains no runs to compare; list them under 'runs', each with a name", path);
    TRY(check_runs(runs, path));
    TRY(check_cluster(file, path));
    *ret_recipe = (Recipe){
        .about = about, .runs = json_incref(runs), .cluster = json_incref(json_object_get(file, "cluster"))};
    about = NULL;
    return OK;
}

void recipe_done(Recipe *recipe) {
    json_decref(recipe->about);
    json_decref(recipe->runs);
    json_decref(recipe->cluster);
}

const char *recipe_cluster(const Recipe *recipe, size_t run) {
    const json_t *own = json_object_get(json_array_get(recipe->runs, run), "cluster");
    return json_string_value(own ? own : recipe->cluster);
}
