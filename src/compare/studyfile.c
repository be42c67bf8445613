/* All strings of a StudyFile are those of its JSON or in its list of texts. */
#include "compare/studyfile.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/memory.h"
#include "base/process.h"
#include "base/suggest.h"

#define ENDING  ".json"
#define STUDIES "recipes/studies"

/* ---- where the files are ---- */

static Status find_below(const char *root, const char *below, char **ret_dir) {
    CLEANUP(mem_freep) char *path = NULL;
    TRY(path_join(&path, root, below));
    if (*ret_dir || !path_is_dir(path)) return OK;
    *ret_dir = path;
    path = NULL;
    return OK;
}

/* *ret_dir is NULL if there is none. */
static Status find_dir(char **ret_dir) {
    char program[PROGRAM_SIZE];
    *ret_dir = NULL;
    if (path_is_dir(STUDIES)) return str_dup(STUDIES, ret_dir);
    TRY(process_program(program));
    for (char *slash; !*ret_dir && (slash = strrchr(program, '/')) && slash > program;) {
        *slash = 0;
        TRY(find_below(program, STUDIES, ret_dir));
        TRY(find_below(program, "share/weft/" STUDIES, ret_dir));
    }
    return OK;
}

static int is_study(const struct dirent *entry) {
    return entry->d_name[0] != '.' && path_ends_with(entry->d_name, ENDING);
}

Status studyfile_names(TextList *names) {
    CLEANUP(mem_freep) char *dir = NULL;
    struct dirent **entries = NULL;
    TRY(find_dir(&dir));
    int count = dir ? scandir(dir, &entries, is_study, alphasort) : 0;
    Status status = OK;
    for (int i = 0; i < count; i++) {
        const char *name = entries[i]->d_name;
        entries[i]->d_name[strlen(name) - strlen(ENDING)] = 0;
        if (!status) status = texts_keep(names, &name);
        free(entries[i]);
    }
    free(entries);
    return status;
}

static Status unknown_study(const char *name) {
    CLEANUP(texts_done) TextList names = {0};
    CLEANUP(text_done) Text list = {0};
    CLEANUP(mem_freep) char *text = NULL;
    Suggestion near = {.word = name};
    TRY(studyfile_names(&names));
    if (!names.count)
        return USAGE("%s: no studies found; run weft in its source tree, or name a study file", name);
    TRY(text_open(&list));
    for (size_t i = 0; i < names.count; i++) {
        suggest_offer(&near, names.texts[i]);
        fprintf(list.out, "%s%s", i ? ", " : "", names.texts[i]);
    }
    TRY(text_take(&list, &text, NULL));
    if (near.best) return USAGE("'%s' is not a study; did you mean '%s'? Studies: %s", name, near.best, text);
    return USAGE("'%s' is not a study; studies: %s", name, text);
}

static Status path_of(const char *name, char **ret_path) {
    CLEANUP(mem_freep) char *dir = NULL;
    if (path_ends_with(name, ENDING)) return str_dup(name, ret_path);
    TRY(find_dir(&dir));
    if (dir && !strchr(name, '/')) TRY(str_format(ret_path, "%s/%s" ENDING, dir, name));
    if (*ret_path && path_exists(*ret_path)) return OK;
    free(*ret_path);
    *ret_path = NULL;
    return unknown_study(name);
}

/* The path of a file that the study names: "recipes/studies/a.json" and "../b.json" are "recipes/b.json". */
static Status beside(const char *study, const char *file, char **ret_path) {
    const char *slash = strrchr(study, '/');
    int length = slash ? (int)(slash - study) : 0;
    while (length && !strncmp(file, "../", 3)) {
        while (length && study[length - 1] != '/') length--;
        if (length) length--;
        file += 3;
    }
    if (*file == '/' || !length) return str_dup(file, ret_path);
    return str_format(ret_path, "%.*s/%s", length, study, file);
}

/* ---- contents ---- */

static Status read_text(const StudyFile *study, const json_t *object, const char *key, bool required,
                        const char **ret_text) {
    const json_t *value = json_object_get(object, key);
    *ret_text = json_string_value(value);
    if (value && !*ret_text && !json_is_null(value))
        return USAGE("%s: %s: expected a string", study->path, key);
    return required && !(*ret_text && **ret_text) ? USAGE("%s: '%s' is missing", study->path, key) : OK;
}

static Status check_name(const StudyFile *study, size_t at) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
    const char *name = study->parts[at].name;
    if (name[strspn(name, letters)] || *name == '-')
        return USAGE("%s: part '%s': a name consists of small letters, digits and dashes", study->path, name);
    for (size_t i = 0; i < at; i++)
        if (!strcmp(study->parts[i].name, name))
            return USAGE("%s: two parts have the name '%s'", study->path, name);
    return OK;
}

static Status read_part(StudyFile *study, size_t at, const json_t *entry) {
    StudyPart *part = &study->parts[at];
    const char *recipe;
    if (!json_is_object(entry)) return USAGE("%s: parts: expected objects", study->path);
    TRY(read_text(study, entry, "name", true, &part->name));
    TRY(read_text(study, entry, "title", true, &part->title));
    TRY(read_text(study, entry, "command", true, &part->command));
    TRY(read_text(study, entry, "recipe", false, &recipe));
    TRY(read_text(study, entry, "run", false, &part->run));
    TRY(read_text(study, entry, "scale", false, &part->scale));
    if (!json_object_get(entry, "scale")) part->scale = study->scale;
    part->options = json_object_get(entry, "options");
    const json_t *word;
    size_t i;
    json_array_foreach(part->options, i, word) if (!json_is_string(word)) break;
    if (part->options && (!json_is_array(part->options) || i < json_array_size(part->options)))
        return USAGE("%s: part '%s': options: expected a list of strings", study->path, part->name);
    if (!recipe) return check_name(study, at);
    CLEANUP(mem_freep) char *path = NULL;
    TRY(beside(study->path, recipe, &path));
    part->recipe = path;
    TRY(texts_keep(&study->texts, &part->recipe));
    return check_name(study, at);
}

static Status settle_scale(const StudyFile *study, const char *scale) {
    json_t *scales = json_object_get(study->file, "scales");
    json_t *chosen = scale ? json_object_get(scales, scale) : NULL;
    if (!scale) return OK;
    if (json_is_object(chosen))
        return json_object_update(study->file, chosen) ? FAILED("out of memory while reading a study") : OK;
    const char *other = json_object_iter_key(json_object_iter(scales));
    return USAGE("{scale} %s: study '%s' has no such scale%s%s", scale, study->name,
                 other ? "; available: " : "", other ? other : "");
}

static Status read_file(StudyFile *study, const char *scale) {
    CLEANUP(mem_freep) char *name = NULL;
    const char *base = path_base(study->path);
    TRY(str_format(&name, "%.*s", (int)(strlen(base) - strlen(ENDING)), base));
    study->name = name;
    TRY(texts_keep(&study->texts, &study->name));
    study->scale = scale;
    TRY(json_read_file(study->path, &study->file));
    if (!json_is_object(study->file)) return USAGE("%s: expected a JSON object", study->path);
    TRY(settle_scale(study, scale));
    TRY(read_text(study, study->file, "title", true, &study->title));
    TRY(read_text(study, study->file, "about", false, &study->about));
    TRY(read_text(study, study->file, "models", false, &study->models));
    TRY(read_text(study, study->file, "hardware", false, &study->hardware));
    const json_t *parts = json_object_get(study->file, "parts"), *part;
    size_t i;
    if (!json_array_size(parts)) return USAGE("%s: parts: expected a list of parts", study->path);
    TRY(mem_new(json_array_size(parts), sizeof *study->parts, &study->parts));
    study->count = json_array_size(parts);
    json_array_foreach(parts, i, part) TRY(read_part(study, i, part));
    return OK;
}

Status studyfile_read(StudyFile *ret_study, const char *name, const char *scale) {
    StudyFile study = {0};
    Status status = path_of(name, &study.path);
    if (!status) status = read_file(&study, scale);
    if (status) studyfile_done(&study);
    if (!status) *ret_study = study;
    return status;
}

void studyfile_done(StudyFile *study) {
    json_decref(study->file);
    free(study->path);
    free(study->parts);
    texts_done(&study->texts);
    *study = (StudyFile){0};
}

/* ---- sets ---- */

/* Adds the set of "@SET" or "@SET/FILE". */
static Status add_set(const char *text, TextList *sets) {
    CLEANUP(mem_freep) char *set = NULL;
    if (text[0] != '@') return OK;
    TRY(str_format(&set, "%.*s", (int)strcspn(text + 1, "/"), text + 1));
    for (size_t i = 0; i < sets->count; i++)
        if (!strcmp(sets->texts[i], set)) return OK;
    const char *kept = set;
    return texts_keep(sets, &kept);
}

static Status add_sets(json_t *value, TextList *sets) {
    const char *key;
    json_t *inner;
    size_t i;
    if (json_is_string(value)) return add_set(json_string_value(value), sets);
    json_array_foreach(value, i, inner) TRY(add_sets(inner, sets));
    json_object_foreach(value, key, inner) TRY(add_sets(inner, sets));
    return OK;
}

/* Reduces a recipe to what a part uses of it: a scale, and one run or all. */
static Status reduce(json_t *recipe, const StudyPart *part) {
    CLEANUP(json_decrefp) json_t *scales = json_incref(json_object_get(recipe, "scales"));
    json_t *scale = part->scale ? json_object_get(scales, part->scale) : NULL, *run;
    json_object_del(recipe, "scales");
    if (scale && json_object_update(recipe, scale)) return FAILED("out of memory");
    if (!strcmp(part->command, "compare")) return OK;
    CLEANUP(json_decrefp) json_t *runs = json_incref(json_object_get(recipe, "runs"));
    json_object_del(recipe, "runs");
    size_t i;
    json_array_foreach(runs, i, run) if (part->run && !strcmp(json_string_or(run, "name", ""), part->run) &&
                                         json_object_update(recipe, run)) return FAILED("out of memory");
    return OK;
}

Status studyfile_sets(const StudyPart *part, TextList *sets) {
    CLEANUP(json_decrefp) json_t *recipe = NULL;
    TRY(add_sets(part->options, sets));
    if (!part->recipe) return OK;
    TRY(json_read_file(part->recipe, &recipe));
    TRY(reduce(recipe, part));
    return add_sets(recipe, sets);
}
