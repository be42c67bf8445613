#include "data/targets.h"

#include <float.h>
#include <math.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"

/* ---- values ---- */

enum { NUMBER_LENGTH = 64 };

/* The field's text without spaces around it; false if it is empty or too long for a number. */
static bool trim_field(TableField field, char text[NUMBER_LENGTH]) {
    while (field.size && *field.text == ' ') field.text++, field.size--;
    while (field.size && field.text[field.size - 1] == ' ') field.size--;
    if (field.size == 0 || field.size >= NUMBER_LENGTH) return false;
    memcpy(text, field.text, field.size);
    text[field.size] = 0;
    return strlen(text) == field.size;
}

/* The number in a field, such as " -1.5e3"; false if it is anything else or too large for fp32. */
static bool parse_number(TableField field, double *ret_value) {
    char text[NUMBER_LENGTH], *end;
    if (!trim_field(field, text) || text[strspn(text, "0123456789+-.eE")]) return false;
    *ret_value = strtod(text, &end);
    return *end == 0 && fabs(*ret_value) <= (double)FLT_MAX;
}

/* Whether programs write this for a number that is missing or too large: "nan", "NA", "inf", "1e999". */
static bool is_lost_number(TableField field) {
    static const char *const names[] = {"na", "n/a", "null", "none"};
    char text[NUMBER_LENGTH], *end;
    if (!trim_field(field, text)) return false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcasecmp(text, names[i])) return true;
    return !(fabs(strtod(text, &end)) <= (double)FLT_MAX) && *end == 0;
}

/* An entry of a list as a number; true and false are 1 and 0. */
static bool entry_number(const json_t *entry, double *ret_value) {
    if (json_is_boolean(entry))
        *ret_value = json_is_true(entry);
    else if (json_is_number(entry))
        *ret_value = json_number_value(entry);
    else
        return false;
    return fabs(*ret_value) <= (double)FLT_MAX;
}

static Status wrong_value(const TargetReader *reader, int64_t line, double value) {
    return FAILED("%s: line %lld: the label has the value %g, but multi-label targets must be 0 to 1; for "
                  "regression, pass {problem-type} regression",
                  reader->file, (long long)line, value);
}

static Status wrong_count(const TargetReader *reader, int64_t line, size_t count) {
    return FAILED("%s: line %lld: the label has %zu value%s, but the model has %lld output%s", reader->file,
                  (long long)line, count, count == 1 ? "" : "s", (long long)reader->labels,
                  reader->labels == 1 ? "" : "s");
}

static Status not_number(const TargetReader *reader, int64_t line, TableField field) {
    return FAILED("%s: line %lld: the label '%.*s' is not a number", reader->file, (long long)line,
                  field.size < 64 ? (int)field.size : 64, field.text);
}

static Status not_list(const char *file, int64_t line) {
    return FAILED("%s: line %lld: the label is not a list; multi-label classification needs a list of labels "
                  "or one column of zeros and ones per label ({label-field} a,b)",
                  file, (long long)line);
}

/* ---- lists ---- */

/* L numbers; for multi-label from 0 to 1. */
static Status take_vector(const TargetReader *reader, int64_t line, const json_t *list, float *targets) {
    size_t count = json_array_size(list);
    double value;
    for (size_t i = 0; i < count; i++)
        if (!entry_number(json_array_get(list, i), &value))
            return FAILED("%s: line %lld: label[%zu] is not a number", reader->file, (long long)line, i);
    if (count != (size_t)reader->labels) return wrong_count(reader, line, count);
    for (size_t i = 0; i < count; i++) {
        entry_number(json_array_get(list, i), &value);
        if (reader->problem == PROBLEM_MULTI_LABEL && !(value >= 0 && value <= 1))
            return wrong_value(reader, line, value);
        targets[i] = (float)value;
    }
    return OK;
}

/* The index of the label that a list entry names, by name or by number; -1: unknown. */
static int64_t entry_label(const TargetReader *reader, const json_t *entry) {
    if (json_is_string(entry))
        return label_number(reader->names, reader->labels, json_string_value(entry),
                            json_string_length(entry));
    json_int_t number = json_is_integer(entry) ? json_integer_value(entry) : -1;
    return number < reader->labels ? number : -1;
}

static Status take_labels(const TargetReader *reader, int64_t line, const json_t *list, float *targets) {
    memset(targets, 0, (size_t)reader->labels * sizeof *targets);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i);
        int64_t label = entry_label(reader, entry);
        if (label < 0 && json_is_string(entry))
            return FAILED("%s: line %lld: unknown label '%.64s'; the model has %lld labels, such as \"%s\"",
                          reader->file, (long long)line, json_string_value(entry), (long long)reader->labels,
                          reader->names ? reader->names[0] : "0");
        if (label < 0)
            return FAILED("%s: line %lld: label[%zu] is not a label; expected names or numbers from 0 to "
                          "%lld",
                          reader->file, (long long)line, i, (long long)reader->labels - 1);
        if (targets[label] != 0)
            return FAILED("%s: line %lld: label[%zu] repeats the label %lld", reader->file, (long long)line,
                          i, (long long)label);
        targets[label] = 1;
    }
    return OK;
}

/* How a list must be read: by its entries' types or, for integers, as a vector if it has exactly `labels`
 * zeros and ones. */
static bool is_vector(const json_t *list, int64_t labels, bool *ret_integers) {
    size_t count = json_array_size(list), integers = 0, bits = 0;
    for (size_t i = 0; i < count; i++) {
        const json_t *entry = json_array_get(list, i);
        if (json_is_real(entry) || json_is_boolean(entry)) return true;
        integers += json_is_integer(entry);
        bits += json_is_integer(entry) && (json_integer_value(entry) == 0 || json_integer_value(entry) == 1);
    }
    *ret_integers = integers == count;
    return bits == count && count == (size_t)labels;
}

static Status take_list(TargetReader *reader, int64_t line, const json_t *list, float *targets) {
    if (reader->problem == PROBLEM_REGRESSION) return take_vector(reader, line, list, targets);
    bool integers = false, vector = is_vector(list, reader->labels, &integers);
    ListForm form = vector ? LISTS_VECTORS : LISTS_NUMBERS;
    if (vector || integers) {
        if (reader->form != LISTS_UNKNOWN && reader->form != form)
            return FAILED("%s: line %lld: the label is a list of %zu, but earlier rows have %s; use either "
                          "vectors of %lld zeros and ones or lists of label numbers",
                          reader->file, (long long)line, json_array_size(list),
                          vector ? "label numbers" : "vectors", (long long)reader->labels);
        reader->form = form;
    }
    return (vector ? take_vector : take_labels)(reader, line, list, targets);
}

/* ---- rows ---- */

Status targets_from_fields(TargetReader *reader, int64_t line, const TableField *fields, int count,
                           const int64_t *column, float *targets) {
    CLEANUP(json_decrefp) json_t *parsed = NULL;
    if (count == 1) {
        const json_t *list = table_list(fields[0], &parsed);
        if (list) return take_list(reader, line, list, targets);
        if (reader->problem == PROBLEM_MULTI_LABEL) return not_list(reader->file, line);
    }
    if (count != reader->labels) return wrong_count(reader, line, (size_t)count);
    for (int i = 0; i < count; i++) {
        double value;
        if (fields[i].list)
            return FAILED("%s: line %lld: a label field contains a list; several label fields must all be "
                          "numbers",
                          reader->file, (long long)line);
        if (!parse_number(fields[i], &value)) return not_number(reader, line, fields[i]);
        if (reader->problem == PROBLEM_MULTI_LABEL && !(value >= 0 && value <= 1))
            return wrong_value(reader, line, value);
        targets[column ? column[i] : i] = (float)value;
    }
    return OK;
}

Status targets_from_json(TargetReader *reader, int64_t line, const json_t *label, float *targets) {
    double value;
    if (json_is_array(label)) return take_list(reader, line, label, targets);
    if (reader->problem == PROBLEM_MULTI_LABEL) return not_list(reader->file, line);
    if (!label || !entry_number(label, &value))
        return FAILED("%s: line %lld: 'label' is %s; expected a number or a list of numbers", reader->file,
                      (long long)line, label ? "not a number" : "missing");
    if (reader->labels != 1) return wrong_count(reader, line, 1);
    targets[0] = (float)value;
    return OK;
}

Status targets_columns(const LabelSet *fields, const char *const *names, int64_t labels,
                       int64_t *ret_column) {
    int64_t known = 0;
    if ((int64_t)fields->count != labels)
        return USAGE("{label-field} names %zu field%s, but the model has %lld output%s", fields->count,
                     fields->count == 1 ? "" : "s", (long long)labels, labels == 1 ? "" : "s");
    for (int64_t i = 0; i < labels; i++) {
        ret_column[i] = i;
        for (int64_t k = 0; names && k < labels; k++)
            if (!strcmp(fields->name[i], names[k])) known++, ret_column[i] = k;
    }
    if (known == 0 || known == labels) return OK;
    return USAGE("{label-field} names %lld of the model's %lld labels; name all of them, or fields in the "
                 "order of the labels",
                 (long long)known, (long long)labels);
}

/* ---- the kind of labels ---- */

typedef struct LabelScan {
    const char *file;
    ProblemType asked;
    const LabelSet *fields;
    int64_t rows, lists;
    bool words, fractions;         /* single values: one is not a number; one is not an integer */
    bool strings, reals, not_bits; /* entries of lists: there are names, real numbers, integers but 0 and 1 */
    bool outside, negative;        /* values of lists or several fields: outside 0 to 1, below 0 */
    size_t shortest, longest;      /* lists */
    double largest;                /* entry of a list */
    const char *lost_file;         /* where the first single value is that is_lost_number; NULL: none */
    int64_t lost_line;
} LabelScan;

static void scan_value(LabelScan *scan, double value) {
    scan->outside |= !(value >= 0 && value <= 1);
    scan->negative |= value < 0;
    if (value > scan->largest) scan->largest = value;
}

static void scan_list(LabelScan *scan, const json_t *list) {
    size_t count = json_array_size(list);
    if (scan->lists++ == 0 || count < scan->shortest) scan->shortest = count;
    if (count > scan->longest) scan->longest = count;
    for (size_t i = 0; i < count; i++) {
        const json_t *entry = json_array_get(list, i);
        double value = 0;
        bool number = entry_number(entry, &value);
        scan->strings |= !number;
        scan->reals |= json_is_real(entry) || json_is_boolean(entry);
        scan->not_bits |= number && value != 0 && value != 1;
        if (number) scan_value(scan, value);
    }
}

static bool is_integer_text(TableField field) {
    for (size_t i = 0; i < field.size; i++)
        if (!strchr("0123456789-", field.text[i])) return false;
    return true;
}

static Status scan_row(void *context, int64_t line, const TableField *fields) {
    LabelScan *scan = context;
    CLEANUP(json_decrefp) json_t *parsed = NULL;
    const json_t *list = scan->fields->count == 1 ? table_list(fields[0], &parsed) : NULL;
    if (scan->rows++ && (list != NULL) != (scan->lists > 0))
        return FAILED("%s: line %lld: the label is %s list, unlike in the rows before it", scan->file,
                      (long long)line, list ? "a" : "not a");
    if (!list && scan->asked == PROBLEM_MULTI_LABEL && scan->fields->count == 1)
        return not_list(scan->file, line);
    if (list) scan_list(scan, list);
    for (size_t i = 0; !list && i < scan->fields->count; i++) {
        double value;
        bool number = !fields[i].list && parse_number(fields[i], &value);
        bool lost = !number && !fields[i].list && is_lost_number(fields[i]);
        scan->words |= !number && !lost;
        if (lost && !scan->lost_file) {
            scan->lost_file = scan->file;
            scan->lost_line = line;
        }
        if (!number && scan->fields->count > 1)
            return FAILED("%s: line %lld: \"%s\" is not a number; several label fields must all be numbers",
                          scan->file, (long long)line, scan->fields->name[i]);
        if (!number) continue;
        scan->fractions |= !is_integer_text(fields[i]);
        scan_value(scan, value);
    }
    return OK;
}

/* Multi-label lists: the number of labels, or 0 if they have names. */
static Status list_outputs(const LabelScan *scan, const char *path, int64_t *ret_outputs) {
    bool vectors = scan->reals || (!scan->not_bits && scan->shortest == scan->longest);
    *ret_outputs = 0;
    if (scan->strings) return OK;
    if (scan->longest == 0) return FAILED("%s: every row has an empty list of labels", path);
    if (vectors && !scan->reals && scan->longest == 1)
        return USAGE("%s: labels such as [1] may be label numbers or vectors of one label; pass {labels} N",
                     path);
    if (!vectors && scan->largest >= MAX_LABELS)
        return FAILED("%s: the largest label number is %g; expected less than %d", path, scan->largest,
                      MAX_LABELS);
    *ret_outputs = vectors ? (int64_t)scan->longest : (int64_t)scan->largest + 1;
    return OK;
}

static ProblemType problem_of(const LabelScan *scan) {
    if (scan->fields->count > 1) return scan->outside ? PROBLEM_REGRESSION : PROBLEM_MULTI_LABEL;
    if (!scan->lists) return scan->fractions && !scan->words ? PROBLEM_REGRESSION : PROBLEM_SINGLE_LABEL;
    bool numbers = !scan->strings && (scan->negative || (scan->reals && scan->outside));
    return numbers ? PROBLEM_REGRESSION : PROBLEM_MULTI_LABEL;
}

/* "nan" among names is a name; among decimals it would turn a regression into a class for each number. */
static Status check_lost(const LabelScan *scan) {
    if (!scan->lost_file || !scan->fractions || scan->words) return OK;
    return FAILED("%s: line %lld: the label is not a finite number, but all others are numbers; correct or "
                  "remove the row, or pass {problem-type} single-label if the labels are names",
                  scan->lost_file, (long long)scan->lost_line);
}

Status labels_inspect(LabelKind *ret_kind, const char *const *paths, int count, const char *field, bool ids,
                      ProblemType asked) {
    CLEANUP(label_set_done) LabelSet fields = {0};
    TRY(label_fields_split(&fields, ids ? "label" : field));
    LabelScan scan = {.fields = &fields, .asked = asked};
    TableSpec spec = {.names = (const char *const *)fields.name, .count = (int)fields.count, .json = ids};
    for (int i = 0; i < 3 && !ids; i++) spec.settings[i] = "label-field";
    for (int i = 0; i < count; i++) {
        CLEANUP(source_done) Source source = {0};
        TRY(source_init_rows(&source, paths[i], SOURCE_GZ_LIMIT, NULL));
        scan.file = paths[i];
        TRY(table_read_lists(&source, &spec, scan_row, &scan));
    }
    if (scan.rows == 0) return FAILED("%s: no rows; expected at least one", paths[0]);
    if (asked == PROBLEM_AUTO && fields.count == 1) TRY(check_lost(&scan));
    LabelKind kind = {.problem = asked != PROBLEM_AUTO ? asked : problem_of(&scan),
                      .lists = scan.lists > 0,
                      .from_columns = fields.count > 1};
    if (kind.problem == PROBLEM_MULTI_LABEL && scan.lists) TRY(list_outputs(&scan, paths[0], &kind.outputs));
    if (kind.problem == PROBLEM_REGRESSION) kind.outputs = scan.lists ? (int64_t)scan.longest : 1;
    if (kind.problem != PROBLEM_SINGLE_LABEL && kind.from_columns) kind.outputs = (int64_t)fields.count;
    *ret_kind = kind;
    return OK;
}
