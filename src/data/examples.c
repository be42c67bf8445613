#include "data/examples.h"

#include <string.h>

#include "base/format.h"
#include "base/memory.h"
#include "data/targets.h"

typedef struct Reading {
    ExampleSet *set;
    const DataSpec *spec;
    const char *file;
    Encoder *encoder;
    TokenList tokens;
    LabelSet label_fields;
    int64_t *column; /* several label fields: see targets_columns */
    TargetReader targets;
    int64_t line;  /* of the current row */
    TableField id; /* and its id */
} Reading;

static void reading_done(Reading *reading) {
    encoder_free(reading->encoder);
    token_list_done(&reading->tokens);
    label_set_done(&reading->label_fields);
    free(reading->column);
}

void example_set_done(ExampleSet *set) {
    free(set->example);
    free(set->targets);
    free(set->pool);
    json_decref(set->names);
    token_template_done(&set->single);
    token_template_done(&set->pair);
    *set = (ExampleSet){0};
}

/* Appends a text's tokens to the pool, at most as many as fit in a sequence; *ret_all is their number. */
static Status put_text(Reading *reading, const char *text, size_t size, int32_t *ret_count, size_t *ret_all) {
    ExampleSet *set = reading->set;
    reading->tokens.count = 0;
    TRY(encoder_add(reading->encoder, text, size, &reading->tokens));
    size_t count = *ret_all = reading->tokens.count;
    if (count > (size_t)reading->spec->seq) count = (size_t)reading->spec->seq;
    TRY(mem_grow(&set->pool, &set->pool_capacity, set->used + count, sizeof *set->pool));
    if (count) memcpy(set->pool + set->used, reading->tokens.ids, count * sizeof *set->pool);
    set->used += count;
    *ret_count = (int32_t)count;
    return OK;
}

/* A record whose texts are empty still has its special tokens, as in transformers. */
static bool is_unusable(const Reading *reading, const Example *example) {
    const ExampleSet *set = reading->set;
    if (reading->spec->format != FORMAT_RECORDS)
        return example->first == 0 || (example->paired && example->second == 0);
    const TokenTemplate *tpl = example->paired ? &set->pair : &set->single;
    return token_template_length(tpl, example->first, example->second) == 0;
}

/* Appends the id of a row, or null. */
static Status put_name(Reading *reading) {
    ExampleSet *set = reading->set;
    TableField id = reading->id;
    if (!id.text && !set->names) return OK;
    if (!set->names) set->names = json_array();
    while (json_array_size(set->names) < set->count - 1)
        if (json_array_append_new(set->names, json_null()) != 0) return FAILED("out of memory");
    json_t *name = !id.text  ? json_null()
                   : id.bare ? json_loadb(id.text, id.size, JSON_DECODE_ANY, NULL)
                             : json_stringn(id.text, id.size);
    return json_array_append_new(set->names, name) == 0 ? OK : FAILED("out of memory");
}

static Status put_example(Reading *reading, TableField first, TableField second, int32_t label) {
    ExampleSet *set = reading->set;
    Example example = {.at = set->used, .label = label, .paired = second.text != NULL, .row = ++set->rows};
    size_t first_all = 0, second_all = 0;
    TRY(put_text(reading, first.text, first.size, &example.first, &first_all));
    if (example.paired) TRY(put_text(reading, second.text, second.size, &example.second, &second_all));
    if (first_all > second_all && example.first == example.second) { /* it stays the longer one */
        example.second--;
        set->used--;
    }
    const TokenTemplate *tpl = example.paired ? &set->pair : &set->single;
    int64_t length = token_template_length(tpl, (int64_t)first_all, (int64_t)second_all);
    set->cut += length > reading->spec->seq;
    if (is_unusable(reading, &example)) {
        if (reading->spec->unlabeled)
            return FAILED("%s: line %lld: the text has no tokens; remove the row or give it a text",
                          reading->file, (long long)reading->line);
        set->used = example.at;
        set->empty++;
        return OK;
    }
    TRY(mem_grow(&set->example, &set->capacity, set->count + 1, sizeof *set->example));
    set->example[set->count++] = example;
    return put_name(reading);
}

static Status take_pair(void *context, int64_t line, const TableField *fields) {
    (void)line;
    return put_example(context, fields[0], fields[1], 0);
}

static Status take_cornell(void *context, const char *first, size_t first_size, const char *second,
                           size_t second_size) {
    return put_example(context, (TableField){.text = first, .size = first_size},
                       (TableField){.text = second, .size = second_size}, 0);
}

static Status unknown_label(const Reading *reading, int64_t line, TableField label) {
    const DataSpec *spec = reading->spec;
    const char *one = spec->label_names ? spec->label_names[0] : "0";
    return FAILED("%s: line %lld: unknown label '%.*s'; the model has %lld labels, such as \"%s\"",
                  reading->file, (long long)line, label.size < 64 ? (int)label.size : 64, label.text,
                  (long long)spec->labels, one);
}

static Status take_record(void *context, int64_t line, const TableField *fields) {
    Reading *reading = context;
    const DataSpec *spec = reading->spec;
    int32_t label = label_number(spec->label_names, spec->labels, fields[2].text, fields[2].size);
    if (label < 0) return unknown_label(reading, line, fields[2]);
    reading->id = fields[3];
    return put_example(reading, fields[0], fields[1], label);
}

/* A record with targets. They are stored first; if the record is then skipped, the next one overwrites
 * them. */
static Status take_targets(void *context, int64_t line, const TableField *fields) {
    Reading *reading = context;
    ExampleSet *set = reading->set;
    size_t outputs = (size_t)reading->targets.labels;
    TRY(mem_grow(&set->targets, &set->targets_capacity, (set->count + 1) * outputs, sizeof *set->targets));
    TRY(targets_from_fields(&reading->targets, line, fields + 2, (int)reading->label_fields.count,
                            reading->column, set->targets + set->count * outputs));
    reading->id = fields[2 + reading->label_fields.count];
    return put_example(reading, fields[0], fields[1], 0);
}

static Status take_unlabeled(void *context, int64_t line, const TableField *fields) {
    Reading *reading = context;
    reading->line = line;
    reading->id = fields[2];
    return put_example(reading, fields[0], fields[1], 0);
}

/* Each line is a text, also an empty one. */
static Status read_lines(Reading *reading, const Source *source) {
    const char *at = (const char *)source->data, *end = at + source->size;
    reading->id = (TableField){0};
    if (source->size >= 3 && !memcmp(at, "\xef\xbb\xbf", 3)) at += 3;
    for (reading->line = 1; at < end; reading->line++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at)), *stop = newline ? newline : end;
        size_t size = (size_t)(stop - at), first;
        if (size && at[size - 1] == '\r') size--;
        if (text_invalid_utf8(at, size, &first))
            return FAILED("%s: line %lld: byte 0x%02x is not valid UTF-8", reading->file,
                          (long long)reading->line, (unsigned char)at[first]);
        TRY(put_example(reading, (TableField){.text = at, .size = size}, (TableField){0}, 0));
        at = newline ? newline + 1 : end;
    }
    return OK;
}

/* Prepares for labels in one field or several. */
static Status find_label_fields(Reading *reading) {
    const DataSpec *spec = reading->spec;
    int64_t outputs = data_outputs(spec);
    TRY(label_fields_split(&reading->label_fields, spec->label_field));
    if (!outputs && reading->label_fields.count > 1)
        return USAGE("{label-field} %s: single-label classification uses one label field; name only one",
                     spec->label_field);
    if (reading->label_fields.count == 1) return OK;
    TRY(mem_new((size_t)outputs, sizeof *reading->column, &reading->column));
    return targets_columns(&reading->label_fields, spec->label_names, outputs, reading->column);
}

/* Reads the rows of a table. `names` has the fields of the texts, the labels and the id. */
static Status read_table(Reading *reading, const Source *source, const TableSpec *table) {
    const DataSpec *spec = reading->spec;
    int64_t outputs = spec->format == FORMAT_PAIRS ? 0 : data_outputs(spec);
    reading->targets = (TargetReader){
        .problem = spec->problem, .labels = outputs, .names = spec->label_names, .file = reading->file};
    TableRow func = spec->format == FORMAT_PAIRS ? take_pair
                    : spec->unlabeled            ? take_unlabeled
                    : outputs                    ? take_targets
                                                 : take_record;
    return table_read_lists(source, table, func, reading);
}

static Status read_tables(Reading *reading) {
    const DataSpec *spec = reading->spec;
    bool pairs = spec->format == FORMAT_PAIRS, labeled = !pairs && !spec->unlabeled;
    const char *names[TABLE_FIELDS] = {spec->text_field, spec->pair_field};
    if (labeled) TRY(find_label_fields(reading));
    int labels = (int)reading->label_fields.count, named = spec->named && !pairs;
    for (int i = 0; i < labels; i++) names[2 + i] = reading->label_fields.name[i];
    names[2 + labels] = spec->id_field ? spec->id_field : "id";
    TableSpec table = {.names = names,
                       .count = 2 + labels + named,
                       .lists_from = labeled && data_outputs(spec) ? 2 : TABLE_FIELDS,
                       .optional = named && !spec->id_field,
                       .settings = {"text-field", "pair-field", labeled ? "label-field" : "id-field"}};
    for (int i = 0; i < spec->path_count; i++) {
        CLEANUP(source_done) Source source = {0};
        bool lines = !path_is_table(spec->paths[i]);
        if (lines && !spec->unlabeled)
            return USAGE("%s: expected a table: .csv, .tsv, .jsonl, .json or .parquet", spec->paths[i]);
        TRY(lines ? source_init_owned(&source, spec->paths[i], SOURCE_GZ_LIMIT)
                  : source_init_rows(&source, spec->paths[i], SOURCE_GZ_LIMIT, NULL));
        reading->file = spec->paths[i];
        TRY(lines ? read_lines(reading, &source) : read_table(reading, &source, &table));
    }
    return OK;
}

/* Pretraining builds BERT's sequences whatever the post-processor is. */
static Status set_templates(ExampleSet *set, const DataSpec *spec) {
    const SpecialTokens *special = &spec->special;
    if (spec->format == FORMAT_RECORDS) {
        TRY(token_template_copy(&set->single, tokenizer_template(spec->encoder, false)));
        return token_template_copy(&set->pair, tokenizer_template(spec->encoder, true));
    }
    TRY(token_template_add_bert(&set->single, special->cls, special->sep, false));
    return token_template_add_bert(&set->pair, special->cls, special->sep, true);
}

Status example_set_read(ExampleSet *set, const DataSpec *spec) {
    CLEANUP(reading_done) Reading reading = {.set = set, .spec = spec};
    set->warns = spec->unlabeled;
    TRY(set_templates(set, spec));
    TRY(encoder_new(&reading.encoder, spec->encoder, NULL));
    if (spec->format == FORMAT_CORNELL)
        return cornell_read(spec->paths, spec->path_count, take_cornell, &reading, &set->cornell);
    return read_tables(&reading);
}

Status example_set_text(const ExampleSet *set, char **ret_text) {
    const CornellCounts *cornell = &set->cornell;
    *ret_text = NULL;
    if (cornell->missing)
        return str_format(ret_text, "conversations refer to %lld missing utterance%s; usable pairs: %lld",
                          (long long)cornell->missing, PLURAL(cornell->missing), (long long)set->count);
    if (set->cut && set->warns)
        return str_format(ret_text, "%lld of %lld rows do not fit in a sequence and were truncated",
                          (long long)set->cut, (long long)set->rows);
    if (set->empty + cornell->empty)
        return str_format(ret_text, "skipped %lld row%s whose text has no tokens",
                          (long long)(set->empty + cornell->empty), PLURAL(set->empty + cornell->empty));
    return OK;
}

int64_t example_fill(const ExampleSet *set, const Example *first, const Example *second, int64_t T,
                     int32_t *tokens, int32_t *types) {
    const TokenTemplate *tpl = second->paired ? &set->pair : &set->single;
    int64_t a = first->first, b = second->second, space = T - token_template_special(tpl);
    bool longer = a > b; /* the first text, which then keeps the odd token */
    while (a + b > space)
        if (longer ? a > b : a >= b)
            a--;
        else
            b--;
    return token_template_fill(tpl, (TokenSpan){set->pool + first->at, a},
                               (TokenSpan){set->pool + second->at + second->first, b}, tokens, types);
}

int64_t example_length(const ExampleSet *set, size_t index, int64_t T) {
    const Example *example = &set->example[index];
    const TokenTemplate *tpl = example->paired ? &set->pair : &set->single;
    int64_t length = token_template_length(tpl, example->first, example->second);
    return length < T ? length : T;
}

static bool same_second(const ExampleSet *set, const Example *x, const Example *y) {
    return x->second == y->second && !memcmp(set->pool + x->at + x->first, set->pool + y->at + y->first,
                                             (size_t)x->second * sizeof *set->pool);
}

size_t example_other(const ExampleSet *set, size_t begin, size_t size, size_t index, RngKey key,
                     uint64_t position) {
    enum { TRIES = 8 };
    size_t other = index;
    for (uint64_t i = 0; i < TRIES; i++) {
        RngKey own = {.key = rng_mix(key.key, i + 1), .step = key.step};
        size_t choice = begin + (size_t)rng_below(own, position, size - 1);
        other = choice < index ? choice : choice + 1;
        if (!same_second(set, &set->example[other], &set->example[index])) break;
    }
    return other;
}
