/* A recipe is a configuration file with more keys than options: "about", a description; "scales", objects of
 * options by name, of which one can be selected, whose options override the file's own; "runs", a list of
 * objects with a name and the options that distinguish a run, of which one can be selected; "cluster", the
 * hardware on which to simulate runs; "program", whose time and memory that predicts; "samples", the number
 * of training samples; and "study", what is known of the published experiment. `weft compare` executes all
 * runs. A scale may have its own runs and study; scales and runs may have a cluster, and runs have the
 * figures that the study "published". The run overrides the scale, and the scale overrides the file. */
#include "compare/recipe.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/suggest.h"
#include "report/study.h"

const char *const recipe_programs[] = {"cluster", "weft", "both", NULL};

static bool is_among(const char *key, const char *const *names) {
    for (; *names; names++)
        if (!strcmp(key, *names)) return true;
    return false;
}

bool recipe_scale_has_key(const char *key) {
    static const char *const keys[] = {"runs", "cluster", "program", "samples", "study", NULL};
    return is_among(key, keys);
}

bool recipe_run_has_key(const char *key) {
    static const char *const keys[] = {"name", "cluster", "published", NULL};
    return is_among(key, keys);
}

Status recipe_check_run(const json_t *run, const char *path) {
    return published_check(json_object_get(run, "published"), path);
}

/* Appends to a list of names, which the caller frees: 'one', 'two'. */
static Status add_name(char **list, const char *name) {
    char *longer = NULL;
    TRY(str_format(&longer, "%s%s'%s'", *list ? *list : "", *list ? ", " : "", name));
    free(*list);
    *list = longer;
    return OK;
}

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
    CLEANUP(mem_freep) char *list = NULL;
    const char *name;
    json_object_foreach(scales, name, chosen) TRY(add_name(&list, name));
    if (!list) return USAGE("{scale} %s: %s defines no scales", scale, path);
    return USAGE("{scale} %s: %s has no such scale; available: %s", scale, path, list);
}

static const char *name_of(const json_t *run) {
    return json_string_at(run, "name");
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

/* Suggests a similar name, or lists all of them. */
static Status unknown_run(const json_t *runs, const char *path, const char *name) {
    Suggestion near = {.word = name};
    CLEANUP(mem_freep) char *list = NULL;
    const json_t *run;
    size_t i;
    json_array_foreach(runs, i, run) suggest_offer(&near, name_of(run));
    if (near.best) return USAGE("{run} %s: %s has no such run; did you mean '%s'?", name, path, near.best);
    json_array_foreach(runs, i, run) TRY(add_name(&list, name_of(run)));
    if (!list) return USAGE("{run} %s: %s defines no runs", name, path);
    return USAGE("{run} %s: %s has no such run; available: %s", name, path, list);
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
        json_object_del(file, "published");
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

static Status check_program(const json_t *object, const char *path) {
    const json_t *program = json_object_get(object, "program");
    if (!program || json_is_null(program)) return OK;
    if (json_is_string(program) && is_among(json_string_value(program), recipe_programs)) return OK;
    return USAGE("%s: program: expected \"cluster\", \"weft\" or \"both\"", path);
}

static Status check_samples(const json_t *object, const char *path) {
    const json_t *samples = json_object_get(object, "samples");
    if (!samples || json_is_null(samples) || json_number_value(samples) >= 1) return OK;
    return USAGE("%s: samples: expected the number of training samples, or null", path);
}

/* What a recipe has besides options and runs, with those of its scale. */
static Status check_rest(const json_t *file, const char *path) {
    TRY(check_cluster(file, path));
    TRY(check_program(file, path));
    TRY(check_samples(file, path));
    return study_check(json_object_get(file, "study"), path);
}

Status recipe_settle(json_t *file, const char *path, const char *scale, const char *run) {
    static const char *const keys[] = {"cluster", "program", "samples", "study"};
    TRY(settle_about(file, path));
    TRY(settle_scale(file, path, scale));
    TRY(settle_run(file, path, run));
    TRY(check_rest(file, path));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) json_object_del(file, keys[i]);
    return OK;
}

/* The selected scale; NULL: none. */
static const json_t *scale_of(const json_t *file, const char *scale) {
    return scale ? json_object_get(json_object_get(file, "scales"), scale) : NULL;
}

Status recipe_read(Recipe *ret_recipe, const char *path, const char *scale) {
    CLEANUP(json_decrefp) json_t *file = NULL;
    CLEANUP(json_decrefp) json_t *about = NULL;
    TRY(json_read_file(path, &file));
    if (!json_is_object(file)) return USAGE("%s: expected a JSON object with options", path);
    about = json_incref(json_object_get(file, "about"));
    bool own_runs = json_object_get(scale_of(file, scale), "runs") != NULL,
         own_study = json_object_get(scale_of(file, scale), "study") != NULL,
         own_samples = json_object_get(scale_of(file, scale), "samples") != NULL;
    TRY(settle_about(file, path));
    TRY(settle_scale(file, path, scale));
    json_t *runs = json_object_get(file, "runs");
    if (!runs || (json_is_array(runs) && !json_array_size(runs)))
        return USAGE("%s: contains no runs to compare; list them under 'runs', each with a name", path);
    TRY(check_runs(runs, path));
    TRY(check_rest(file, path));
    const json_t *samples = json_object_get(file, "samples");
    json_t *study = json_object_get(file, "study");
    *ret_recipe = (Recipe){.about = about,
                           .runs = json_incref(runs),
                           .cluster = json_incref(json_object_get(file, "cluster")),
                           .program = json_incref(json_object_get(file, "program")),
                           .study = json_is_object(study) ? json_incref(study) : NULL,
                           /* of the file's data */
                           .samples = scale && !own_samples ? 0 : json_number_value(samples),
                           .resized = scale && !own_study,
                           .other_runs = own_runs && !own_study};
    about = NULL;
    return OK;
}

void recipe_done(Recipe *recipe) {
    json_decref(recipe->about);
    json_decref(recipe->runs);
    json_decref(recipe->cluster);
    json_decref(recipe->program);
    json_decref(recipe->study);
}

const char *recipe_cluster(const Recipe *recipe, size_t run) {
    const json_t *own = json_object_get(json_array_get(recipe->runs, run), "cluster");
    return json_string_value(own ? own : recipe->cluster);
}
