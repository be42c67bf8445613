/* Parser for the official JSON: {"version", "data": [{"title", "paragraphs": [{"context", "qas": [{"id",
 * "question", "answers": [{"text", "answer_start"}], "is_impossible"}]}]}]}. Version 1.1 has no
 * "is_impossible". Other fields are ignored. Strings are not copied; the parsed file stays in memory. */
#include "data/squad.h"

#include <string.h>

#include "base/memory.h"
#include "data/input.h"
#include "data/signature.h"

/* ---- files ---- */

static Status read_whole(const char *path, char **ret_text, size_t *ret_size) {
    enum { START = 1 << 20 };
    CLEANUP(input_freep) Input *input = NULL;
    CLEANUP(mem_freep) char *text = NULL;
    size_t size = 0, capacity = 0;
    TRY(input_open(&input, path));
    for (;;) {
        TRY(mem_grow(&text, &capacity, size + START, 1));
        size_t got = 0;
        TRY(input_read(input, text + size, capacity - size, &got));
        size += got;
        if (size > SQUAD_FILE_LIMIT)
            return FAILED("%s: larger than %zu bytes, the limit for a SQuAD file", path, SQUAD_FILE_LIMIT);
        if (size < capacity) break;
    }
    *ret_text = text;
    *ret_size = size;
    text = NULL;
    return OK;
}

Status squad_json_read(const char *path, json_t **ret_json) {
    CLEANUP(mem_freep) char *text = NULL;
    size_t size = 0;
    TRY(read_whole(path, &text, &size));
    TRY(signature_check_text(path, text, size, false));
    size_t skip = size >= 3 && !memcmp(text, "\xef\xbb\xbf", 3) ? 3 : 0;
    json_error_t error;
    json_t *json = json_loadb(text + skip, size - skip, JSON_ALLOW_NUL, &error);
    if (!json)
        return FAILED("%s: not valid JSON at line %d, column %d: %s", path, error.line, error.column,
                      error.text);
    *ret_json = json;
    return OK;
}

/* ---- the format ---- */

/* Current position in the document, for messages: data[1].paragraphs[2].qas[3].answers[4]. */
typedef struct Position {
    const char *from;
    size_t at[4];
    int depth;
} Position;

static Status wrong(const Position *position, const char *name, const char *expected) {
    static const char *const levels[] = {"data", "paragraphs", "qas", "answers"};
    char where[160] = "";
    size_t used = 0;
    for (int i = 0; i < position->depth; i++)
        used += (size_t)snprintf(where + used, sizeof where - used, "%s%s[%zu]", i ? "." : ": ", levels[i],
                                 position->at[i]);
    return FAILED("%s%s: '%s' must be %s", position->from, where, name, expected);
}

static Status get_list(const Position *position, const json_t *object, const char *name,
                       const json_t **ret_list) {
    const json_t *list = json_object_get(object, name);
    if (!json_is_array(list)) return wrong(position, name, "an array");
    *ret_list = list;
    return OK;
}

static Status get_text(const Position *position, const json_t *object, const char *name,
                       SquadText *ret_text) {
    const json_t *text = json_object_get(object, name);
    if (!json_is_string(text)) return wrong(position, name, "a string");
    *ret_text = (SquadText){json_string_value(text), json_string_length(text)};
    return OK;
}

static Status read_answers(SquadSet *set, Position position, const json_t *list) {
    size_t count = json_array_size(list);
    TRY(mem_grow(&set->answer, &set->answer_capacity, set->answers + count, sizeof *set->answer));
    for (size_t i = 0; i < count; i++) {
        const json_t *object = json_array_get(list, i), *start = json_object_get(object, "answer_start");
        SquadAnswer answer = {.start = -1};
        position.at[3] = i;
        TRY(get_text(&position, object, "text", &answer.text));
        if (start && (!json_is_integer(start) || json_integer_value(start) < 0))
            return wrong(&position, "answer_start", "a non-negative integer");
        if (start) answer.start = json_integer_value(start);
        set->answer[set->answers++] = answer;
    }
    return OK;
}

static Status read_question(SquadSet *set, Position position, const json_t *object) {
    SquadQuestion question = {.paragraph = set->paragraphs, .first_answer = set->answers};
    const json_t *answers = NULL, *impossible = json_object_get(object, "is_impossible");
    SquadText id = {0};
    TRY(get_text(&position, object, "id", &id));
    if (strlen(id.data) != id.size) return wrong(&position, "id", "a string without NUL");
    TRY(get_text(&position, object, "question", &question.text));
    if (impossible && !json_is_boolean(impossible)) return wrong(&position, "is_impossible", "true or false");
    if (json_object_get(object, "answers") || (!impossible && !set->unlabeled)) {
        TRY(get_list(&position, object, "answers", &answers));
        position.depth++;
        TRY(read_answers(set, position, answers));
    }
    question.id = id.data;
    question.name = json_object_get(object, "id");
    question.answers = set->answers - question.first_answer;
    question.impossible = json_is_true(impossible) || question.answers == 0;
    TRY(mem_grow(&set->question, &set->question_capacity, set->questions + 1, sizeof question));
    set->question[set->questions++] = question;
    return OK;
}

static Status read_paragraph(SquadSet *set, Position position, const json_t *object) {
    SquadParagraph paragraph = {.first_question = set->questions};
    const json_t *list = NULL;
    TRY(get_text(&position, object, "context", &paragraph.context));
    TRY(get_list(&position, object, "qas", &list));
    position.depth++;
    for (size_t i = 0; i < json_array_size(list); i++) {
        position.at[2] = i;
        TRY(read_question(set, position, json_array_get(list, i)));
    }
    paragraph.questions = set->questions - paragraph.first_question;
    TRY(mem_grow(&set->paragraph, &set->paragraph_capacity, set->paragraphs + 1, sizeof paragraph));
    set->paragraph[set->paragraphs++] = paragraph;
    return OK;
}

static Status read_articles(SquadSet *set, const json_t *json, const char *from) {
    Position position = {.from = from};
    const json_t *articles = NULL, *paragraphs = NULL;
    if (!json_is_object(json)) return FAILED("%s: expected an object with \"data\", as in SQuAD", from);
    TRY(get_list(&position, json, "data", &articles));
    for (size_t i = 0; i < json_array_size(articles); i++) {
        position.depth = 1;
        position.at[0] = i;
        TRY(get_list(&position, json_array_get(articles, i), "paragraphs", &paragraphs));
        position.depth = 2;
        for (size_t k = 0; k < json_array_size(paragraphs); k++) {
            position.at[1] = k;
            TRY(read_paragraph(set, position, json_array_get(paragraphs, k)));
        }
    }
    return OK;
}

Status squad_set_add(SquadSet *set, json_t *json, const char *from) {
    if (!set->files) set->files = json_array();
    if (json_array_append(set->files, json) != 0) return FAILED("%s: out of memory", from);
    size_t before = set->questions;
    TRY(read_articles(set, json, from));
    if (set->questions == before) return FAILED("%s contains no questions", from);
    return OK;
}

Status squad_set_read(SquadSet *set, const char *path) {
    CLEANUP(json_decrefp) json_t *json = NULL;
    TRY(squad_json_read(path, &json));
    return squad_set_add(set, json, path);
}

void squad_set_done(SquadSet *set) {
    free(set->paragraph);
    free(set->question);
    free(set->answer);
    json_decref(set->files);
    *set = (SquadSet){0};
}
