/* Study files: recipes/studies/NAME.json. A study is a list of parts, each an ordinary command with a recipe.
 *
 *   {"title", "about", "models", "hardware",
 *    "parts": [{"name", "title", "command", "recipe", "run", "scale", "options": [WORD ...]}, ...],
 *    "scales": {NAME: {"parts": [...]}, ...}}
 *
 * "recipe" is relative to the study file. "{out}" in an option stands for the directory of the study, in
 * which every part has a directory with its name. A scale without parts of its own runs the study's parts at
 * their recipes' scales of that name. */
#ifndef WEFT_COMPARE_STUDYFILE_H
#define WEFT_COMPARE_STUDYFILE_H

#include "base/json.h"
#include "report/text.h"

typedef struct StudyPart {
    const char *name; /* of its directory: small letters, digits and dashes */
    const char *title, *command;
    const char *recipe, *run, *scale; /* NULL: none */
    json_t *options;                  /* array of words; NULL: none */
} StudyPart;

typedef struct StudyFile {
    json_t *file;
    char *path;
    const char *name, *title;                      /* the file's name without its ending */
    const char *scale, *about, *models, *hardware; /* NULL: none */
    StudyPart *parts;
    size_t count;
    TextList texts;
} StudyFile;

/* The names of the studies beside the recipes: in ./recipes, or where the program was built or installed. */
MUST_USE Status studyfile_names(TextList *names);
/* Reads a study by name or, if it ends in .json, by path. */
MUST_USE Status studyfile_read(StudyFile *ret_study, const char *name, const char *scale);
void studyfile_done(StudyFile *study);
/* Adds the sets (data/fetch.h) that a part reads, each once. */
MUST_USE Status studyfile_sets(const StudyPart *part, TextList *sets);

#endif
