/* Turns an open set of files into batches.
 *
 * Position p of the infinite order is in epoch p / count; a keyed permutation selects the example within the
 * epoch. Examples of a stream are consecutive windows without overlap: T tokens plus the next one for lm, as
 * many as fit between the special tokens for mlm, or the windows of data/pairs.h if sentences are marked.
 * When shuffling, every epoch after the first shifts the lm windows, so that a model does not memorize the
 * fixed window boundaries of a small corpus. Everything random (order, pairs, masks) is a function of the
 * seed, the epoch and the position in it, so no state is kept between calls. T is the sequence length; P of
 * its positions are filled from the stream.
 */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"
#include "base/setting.h"
#include "data/data.h"
#include "data/examples.h"
#include "data/ids.h"
#include "data/mask.h"
#include "data/pairs.h"
#include "data/squad_features.h"
#include "data/stream.h"

struct Dataset {
    DataSpec spec; /* paths cleared */
    DataFormat format;
    TokenStream stream;
    IdsSet ids;
    SquadFeatures squad;
    ExampleSet examples;
    PairSet pairs;
    bool from_pairs; /* mlm examples come from `pairs` (sentences are marked) */
    Masking masking;
    int64_t begin, size; /* the part of the stream (in tokens) or of the examples that is used */
    int64_t window;      /* distance in tokens between consecutive examples of a stream */
    int64_t tokens, count;
};

/* One example to produce: its source and its row in the batch. */
typedef struct Slot {
    int64_t index; /* example number */
    uint64_t epoch, position;
    int64_t b;     /* row in the batch */
    int64_t shift; /* lm: tokens by which this epoch's windows are shifted */
} Slot;

int64_t data_outputs(const DataSpec *spec) {
    bool targets = spec->problem == PROBLEM_REGRESSION || spec->problem == PROBLEM_MULTI_LABEL;
    return spec->task == TASK_CLASSIFY && targets ? spec->labels : 0;
}

static DataFormat format_of(const char *path, DataFormat asked) {
    return asked == FORMAT_AUTO ? data_format_of(path) : asked;
}

static Status common_format(const DataSpec *spec, DataFormat *ret_format) {
    if (spec->path_count < 1) return USAGE("no data given; expected at least one file");
    DataFormat format = format_of(spec->paths[0], spec->format);
    for (int i = 1; i < spec->path_count; i++) {
        DataFormat other = format_of(spec->paths[i], spec->format);
        if (other != format)
            return USAGE("%s is read as %s and %s as %s; expected files of one format (see {format})",
                         spec->paths[0], data_format_name(format), spec->paths[i], data_format_name(other));
    }
    *ret_format = format;
    return OK;
}

static Status check_special(const DataSpec *spec, const char *name, int32_t token, bool required) {
    if (token < 0 && required)
        return USAGE("masked-token training needs a %s token, but the vocabulary has none", name);
    if (token >= spec->vocab)
        return USAGE("the %s token is %d, outside the vocabulary of %lld tokens", name, token,
                     (long long)spec->vocab);
    return OK;
}

static Status check_squad(const DataSpec *spec) {
    if (spec->task != TASK_SPAN)
        return USAGE("%s is read as SQuAD questions, which require {task} squad (see {task}, or {format} to "
                     "read the file differently)",
                     spec->paths[0]);
    if (!spec->encoder) return FAILED("internal: SQuAD questions without a tokenizer");
    return OK;
}

static bool is_examples(DataFormat format) {
    return format == FORMAT_PAIRS || format == FORMAT_CORNELL || format == FORMAT_RECORDS;
}

/* Records are arranged by the tokenizer's post-processor. */
static Status check_records(const DataSpec *spec) {
    bool pair = spec->pair_field != NULL;
    const TokenTemplate *tpl = tokenizer_template(spec->encoder, pair);
    int64_t minimum = token_template_special(tpl) + 1 + pair;
    TRY(token_template_check_once(tpl, pair));
    TRY(token_template_check_types(tpl, spec->types));
    if (spec->seq < minimum)
        return USAGE("the sequence length is %lld; expected at least %lld", (long long)spec->seq,
                     (long long)minimum);
    return OK;
}

static Status check_examples(const DataSpec *spec, DataFormat format) {
    bool records = format == FORMAT_RECORDS;
    const SpecialTokens *special = &spec->special;
    if (spec->task != (records ? TASK_CLASSIFY : TASK_MLM))
        return USAGE("%s is read as %s, which require BERT and {task} %s (see also {format})", spec->paths[0],
                     records ? "labeled records" : "pairs of sentences", records ? "classify" : "mlm");
    if (!spec->encoder) return FAILED("internal: text data without a tokenizer");
    if (records) return check_records(spec);
    if (special->cls < 0 || special->sep < 0 || special->cls >= spec->vocab || special->sep >= spec->vocab)
        return USAGE("the vocabulary lacks [CLS] or [SEP], which begin and end BERT's sequences");
    if (spec->types == 1) return USAGE("text pairs need 2 token types, but the model has 1");
    if (spec->seq < 5) return USAGE("the sequence length is %lld; expected at least 5", (long long)spec->seq);
    return OK;
}

Status dataset_check_task(const DataSpec *spec, DataFormat format) {
    if (format == FORMAT_IDS) return OK;
    if (format != FORMAT_SQUAD && spec->task == TASK_SPAN)
        return USAGE("%s is read as %s, but {task} span needs SQuAD questions or examples as JSON lines "
                     "({format} ids)",
                     spec->paths[0], data_format_name(format));
    if (format != FORMAT_RECORDS && spec->task == TASK_CLASSIFY)
        return USAGE("%s is read as %s, but {task} classify needs records (.csv, .tsv or .jsonl with a "
                     "text and a label) or examples as JSON lines ({format} ids)",
                     spec->paths[0], data_format_name(format));
    return OK;
}

static Status check_spec(const DataSpec *spec, DataFormat format) {
    bool from_ids = format == FORMAT_IDS, masked = spec->task == TASK_MLM;
    if (format == FORMAT_SQUAD) TRY(check_squad(spec));
    if (is_examples(format)) TRY(check_examples(spec, format));
    if (format == FORMAT_TEXT) return FAILED("internal: text data that was not prepared");
    if (spec->seq < 1 || spec->seq > INT32_MAX)
        return USAGE("the sequence length is %lld; expected at least 1", (long long)spec->seq);
    if (spec->vocab < 1 || spec->vocab > INT32_MAX)
        return USAGE("the vocabulary size is %lld; expected 1 to %d", (long long)spec->vocab, INT32_MAX);
    TRY(dataset_check_task(spec, format));
    if (spec->task == TASK_CLASSIFY && (spec->labels < 1 || spec->labels > MAX_LABELS))
        return USAGE("the number of labels is %lld; expected 1 to %d", (long long)spec->labels, MAX_LABELS);
    double kept = spec->keep_first > 0 ? spec->keep_first : spec->keep_last;
    if (!(kept >= 0 && kept <= 1) || (spec->keep_first > 0 && spec->keep_last > 0))
        return USAGE("the fraction of the data to use is %g; expected 0 to 1 and from one end only", kept);
    TRY(check_special(spec, "padding", spec->special.pad, false));
    TRY(check_special(spec, "start ([CLS])", spec->special.cls, masked && !from_ids));
    TRY(check_special(spec, "separator ([SEP])", spec->special.sep, masked && !from_ids));
    TRY(check_special(spec, "mask ([MASK])", spec->special.mask, masked && !from_ids));
    if (!masked) return OK;
    if (!(spec->mask_rate > 0 && spec->mask_rate <= 1))
        return USAGE("the fraction of masked tokens is %g; expected more than 0 and at most 1",
                     spec->mask_rate);
    int64_t minimum = from_ids ? 1 : spec->next_sentence ? 5 : 3;
    if (spec->seq < minimum)
        return USAGE("the sequence length is %lld; expected at least %lld to fit the special tokens",
                     (long long)spec->seq, (long long)minimum);
    if (!from_ids && spec->next_sentence && spec->types == 1)
        return USAGE("sentence pairs need 2 token types, but the model has 1");
    if (masking_from(spec).special_count >= spec->vocab)
        return USAGE("the vocabulary of %lld tokens contains only special tokens", (long long)spec->vocab);
    return OK;
}

/* Restricts [0, size) to the part that is used. The training and validation parts meet at the same cut if
 * their fractions add up to one. */
static void keep_part(Dataset *data, int64_t size) {
    const DataSpec *spec = &data->spec;
    int64_t cut = llround((double)size * (spec->keep_first > 0 ? spec->keep_first : 1 - spec->keep_last));
    bool last = spec->keep_last > 0;
    data->begin = last ? cut : 0;
    data->size = spec->keep_first > 0 ? cut : last ? size - cut : size;
}

/* "text.txt", or "text.txt and 3 more". */
static Status describe_files(const DataSpec *spec, char **ret_text) {
    const char *const *names = spec->sources ? spec->sources : spec->paths;
    int count = spec->sources ? spec->source_count : spec->path_count;
    if (count == 1) return str_dup(names[0], ret_text);
    return str_format(ret_text, "%s and %d more", names[0], count - 1);
}

static Status too_little(const DataSpec *spec, const char *unit, int64_t have, int64_t all, int64_t need) {
    CLEANUP(mem_freep) char *files = NULL;
    CLEANUP(mem_freep) char *of_total = NULL;
    TRY(describe_files(spec, &files));
    TRY(str_format(&of_total, " of %lld", (long long)all));
    return REFUSED("%s: too little data: %lld%s %s; expected at least %lld", files, (long long)have,
                   have < all ? of_total : "", unit, (long long)need);
}

static Status too_few_tokens(const DataSpec *spec, int64_t have, int64_t all, int64_t need) {
    CLEANUP(status_freep) Status status = too_little(spec, "tokens", have, all, need);
    char smaller[32];
    setting_print(smaller, sizeof smaller, "a smaller {seq} or ");
    return REFUSED("%s for a sequence length of %lld; use %smore data", status_message(status),
                   (long long)spec->seq, spec->fixed_seq ? "" : smaller);
}

/* Moves a cut to the start of the next document or, if there is none, of the next sentence. */
static Status align_cut(const Dataset *data, int64_t *cut) {
    const TokenStream *stream = &data->stream;
    int64_t size = token_stream_size(stream), document = 0, count = 0;
    if (*cut <= 0 || *cut >= size) return OK;
    DocumentCursor cursor;
    TRY(document_cursor_at(stream, *cut, &cursor));
    TRY(document_cursor_next(stream, &cursor, &document));
    if (document < size) {
        *cut = document;
        return OK;
    }
    int32_t sentence[1024];
    int64_t to = size - *cut < 1024 ? size : *cut + 1024;
    TRY(token_stream_sentences_within(stream, *cut, to, sentence, &count));
    if (count > 0) *cut += sentence[0];
    return OK;
}

/* Builds sentence pairs from the used part; *ret_found is false if every document is a single sentence. */
static Status open_pairs(Dataset *data, const DataSpec *spec, bool *ret_found) {
    int64_t begin = data->begin, end = data->begin + data->size;
    TRY(align_cut(data, &begin));
    TRY(align_cut(data, &end));
    TRY(pair_set_build(&data->pairs, &data->stream, begin, end, spec->seq - 3));
    *ret_found = data->pairs.count > 1;
    if (!*ret_found) return OK;
    data->begin = begin;
    data->size = data->tokens = end - begin;
    data->from_pairs = true;
    data->count = (int64_t)data->pairs.count;
    return OK;
}

static Status open_stream(Dataset *data, const DataSpec *spec, DataFormat format) {
    if (format == FORMAT_TOKENS)
        TRY(token_stream_init_files(&data->stream, spec->paths, spec->path_count, spec->vocab,
                                    spec->tokenizer, spec->tokenizer_name));
    else
        TRY(token_stream_init(&data->stream, spec->paths, spec->path_count, format, spec->vocab));
    int64_t all = token_stream_size(&data->stream), need;
    keep_part(data, all);
    if (spec->task == TASK_MLM && spec->next_sentence && token_stream_marked(&data->stream)) {
        bool found = false;
        TRY(open_pairs(data, spec, &found));
        if (found) return OK;
    }
    if (spec->task == TASK_LM) {
        data->window = spec->seq;
        data->count = (data->size - 1) / data->window;
        need = spec->windows ? 2 : spec->seq + 1;
    } else {
        data->window = spec->seq - (spec->next_sentence ? 3 : 2);
        data->count = data->size / data->window;
        /* a random second part must fit before or after any window */
        need = spec->next_sentence ? 2 * data->window : data->window;
    }
    if (data->size < need) return too_few_tokens(spec, data->size, all, need);
    data->tokens = data->size;
    return OK;
}

static Status open_ids(Dataset *data, const DataSpec *spec) {
    for (int i = 0; i < spec->path_count; i++) {
        CLEANUP(source_done) Source source = {0};
        TRY(source_init_owned(&source, spec->paths[i], SOURCE_GZ_LIMIT));
        TRY(ids_set_read(&data->ids, &source, spec));
    }
    keep_part(data, (int64_t)data->ids.count);
    if (data->size < 1) return too_little(spec, "examples", data->size, (int64_t)data->ids.count, 1);
    data->count = data->size;
    for (int64_t i = 0; i < data->count; i++) data->tokens += data->ids.example[data->begin + i].length;
    return OK;
}

/* Whether the example has a label that its task predicts. */
static bool is_counted(const Dataset *data, int64_t index) {
    const DataSpec *spec = &data->spec;
    const IdsExample *example = &data->ids.example[index];
    const int32_t *labels = labels_of(&data->ids, example);
    const Masking *masking = &data->masking;
    if (spec->task == TASK_MLM && spec->next_sentence) return true;
    if (spec->task == TASK_SPAN) return example->start < example->length || example->end < example->length;
    int64_t outputs = data_outputs(spec);
    for (int64_t i = 0; spec->task == TASK_CLASSIFY && i < outputs; i++)
        if (!isnan(data->ids.targets[index * outputs + i])) return true;
    if (spec->task == TASK_CLASSIFY) return !outputs;
    bool drawn = spec->task == TASK_MLM && !labels;
    if (!labels) labels = ids_of(&data->ids, example);
    for (int32_t t = spec->task == TASK_LM; t < example->length; t++) {
        bool special = false;
        for (int i = 0; drawn && i < masking->special_count; i++) special |= labels[t] == masking->special[i];
        if (labels[t] != LABEL_IGNORED && !special) return true;
    }
    return false;
}

Status dataset_check_counted(const Dataset *data, const char *const *paths) {
    static const char *const reasons[] = {
        [TASK_LM] =
            "every label is -100, which is ignored, or belongs to a first token, which nothing predicts",
        [TASK_MLM] = "every label is -100, which is ignored, or no token can be masked",
        [TASK_SPAN] = "every answer lies outside its example",
        [TASK_CLASSIFY] = "every label is missing",
    };
    if (data->format != FORMAT_IDS) return OK;
    bool counted = true;
    for (int64_t i = data->begin, end = data->begin + data->size; i < end; i++) {
        const IdsExample *example = &data->ids.example[i];
        if (i == data->begin || example->file != example[-1].file) counted = false;
        counted = counted || is_counted(data, i);
        if (!counted && (i + 1 == end || example[1].file != example->file))
            return FAILED("%s: nothing to predict: %s", paths[example->file], reasons[data->spec.task]);
    }
    return OK;
}

static Status open_squad(Dataset *data, const DataSpec *spec) {
    CLEANUP(squad_set_done) SquadSet set = {0};
    SquadSpec asked = {
        .seq = spec->seq, .doc_stride = spec->doc_stride, .max_query = spec->max_query, .types = spec->types};
    for (int i = 0; i < spec->path_count; i++) TRY(squad_set_read(&set, spec->paths[i]));
    TRY(squad_features_make(&data->squad, &set, spec->encoder, &asked));
    keep_part(data, (int64_t)data->squad.features);
    data->count = data->size;
    for (int64_t i = data->begin; i < data->begin + data->size; i++)
        data->tokens += squad_feature_length(&data->squad, &data->squad.feature[i]);
    if (data->count < 1) return too_little(spec, "examples", data->count, (int64_t)data->squad.features, 1);
    return OK;
}

/* Reads pairs or records. */
static Status open_examples(Dataset *data, const DataSpec *spec) {
    DataSpec asked = *spec;
    asked.format = data->format;
    if (asked.format == FORMAT_PAIRS && !asked.text_field) asked.text_field = "q";
    if (asked.format == FORMAT_PAIRS && !asked.pair_field) asked.pair_field = "a";
    if (asked.format == FORMAT_RECORDS && !asked.text_field) asked.text_field = "text";
    if (asked.format == FORMAT_RECORDS && !asked.label_field) asked.label_field = "label";
    TRY(example_set_read(&data->examples, &asked));
    int64_t all = (int64_t)data->examples.count, minimum = asked.format == FORMAT_RECORDS ? 1 : 2;
    keep_part(data, all);
    if (data->size < minimum) return too_little(spec, "examples", data->size, all, minimum);
    data->count = data->size;
    for (int64_t i = 0; i < data->count; i++) {
        const Example *example = &data->examples.example[data->begin + i];
        data->tokens += example->first + example->second;
    }
    return OK;
}

Status dataset_open(Dataset **ret_data, const DataSpec *spec) {
    DataFormat format = FORMAT_AUTO;
    TRY(common_format(spec, &format));
    TRY(check_spec(spec, format));
    CLEANUP(dataset_freep) Dataset *data = NULL;
    TRY(mem_new(1, sizeof *data, &data));
    data->spec = *spec;
    data->spec.paths = NULL;
    data->spec.path_count = 0;
    data->masking = masking_from(spec);
    data->spec.encoder = NULL;
    data->format = format;
    if (format == FORMAT_IDS)
        TRY(open_ids(data, spec));
    else if (format == FORMAT_SQUAD)
        TRY(open_squad(data, spec));
    else if (is_examples(format))
        TRY(open_examples(data, spec));
    else
        TRY(open_stream(data, spec, format));
    *ret_data = data;
    data = NULL;
    return OK;
}

void dataset_free(Dataset *data) {
    if (!data) return;
    token_stream_done(&data->stream);
    ids_set_done(&data->ids);
    squad_features_done(&data->squad);
    example_set_done(&data->examples);
    pair_set_done(&data->pairs);
    free(data);
}

int64_t dataset_count(const Dataset *data) {
    return data->count;
}

int64_t dataset_tokens(const Dataset *data) {
    return data->tokens;
}

/* Warns about a label that occurs only in the validation part, which training would never see. */
static Status missing_label(const Dataset *data, char **ret_text) {
    const DataSpec *spec = &data->spec;
    CLEANUP(mem_freep) bool *seen = NULL;
    if (spec->keep_first <= 0 || spec->labels < 1 || data_outputs(spec)) return OK;
    TRY(mem_new((size_t)spec->labels, sizeof *seen, &seen));
    for (int64_t i = data->begin; i < data->begin + data->size; i++)
        seen[data->examples.example[i].label] = true;
    for (int64_t k = 0; k < spec->labels; k++) {
        if (seen[k]) continue;
        if (spec->label_names)
            return str_format(ret_text,
                              "the training part has no example of the label '%s'; if the rows are sorted by "
                              "label, shuffle them",
                              spec->label_names[k]);
        return str_format(ret_text,
                          "the training part has no example of the label %lld; if the rows are sorted by "
                          "label, shuffle them",
                          (long long)k);
    }
    return OK;
}

Status dataset_warning(const Dataset *data, char **ret_text) {
    if (is_examples(data->format)) {
        TRY(example_set_text(&data->examples, ret_text));
        return *ret_text || data->format != FORMAT_RECORDS ? OK : missing_label(data, ret_text);
    }
    return squad_counts_text(&data->squad.counts, ret_text);
}

static void mask_row(const Dataset *data, Slot slot, int64_t length, HostBatch *batch) {
    int32_t *labels = batch->labels + slot.b * batch->T;
    if (data->spec.no_masks) {
        for (int64_t t = 0; t < length; t++) labels[t] = LABEL_IGNORED;
        return;
    }
    RngKey key = rng_key(data->spec.seed, "data.mask", slot.epoch);
    key.key = rng_mix(key.key, slot.position);
    int64_t row = slot.b * batch->T;
    masking_apply(&data->masking, key, batch->tokens + row, labels, length);
}

static Status fill_lm(const Dataset *data, Slot slot, HostBatch *batch) {
    int64_t T = batch->T, at = slot.index * T + slot.shift, last = data->size - 1 - T;
    int32_t *tokens = batch->tokens + slot.b * T, *labels = batch->labels + slot.b * T;
    at = data->begin + (at < last ? at : last);
    TRY(token_stream_read(&data->stream, at, T, tokens));
    memcpy(labels, tokens + 1, (size_t)(T - 1) * sizeof *labels);
    return token_stream_read(&data->stream, at + T, 1, labels + T - 1);
}

/* [CLS] A [SEP]. */
static Status fill_single(const Dataset *data, Slot slot, HostBatch *batch) {
    int64_t T = batch->T, P = data->window;
    int32_t *tokens = batch->tokens + slot.b * T;
    tokens[0] = data->spec.special.cls;
    TRY(token_stream_read(&data->stream, data->begin + slot.index * P, P, tokens + 1));
    tokens[T - 1] = data->spec.special.sep;
    mask_row(data, slot, T, batch);
    return OK;
}

/* Start of a random run of `length` tokens that does not overlap the window at `at`; both offsets are
 * relative to the used part. A run always exists because the used part has at least two windows. */
static int64_t random_run(const Dataset *data, int64_t at, int64_t length, uint64_t draw) {
    int64_t before = at - length + 1, after = data->size - (at + data->window) - length + 1;
    if (before < 0) before = 0;
    if (after < 0) after = 0;
    int64_t choice = (int64_t)(((unsigned __int128)draw * (uint64_t)(before + after)) >> 64);
    return choice < before ? choice : at + data->window + (choice - before);
}

/* [CLS] A [SEP] B [SEP]: the window is split at a random point in its middle half. B is the second part or,
 * half of the time, a random run of the same length. */
static Status fill_pair(const Dataset *data, Slot slot, HostBatch *batch) {
    int64_t T = batch->T, P = data->window, at = slot.index * P;
    int32_t *tokens = batch->tokens + slot.b * T, *types = batch->types + slot.b * T;
    uint32_t draw[4];
    rng_block(rng_key(data->spec.seed, "data.pair", slot.epoch), slot.position, draw);
    int64_t low = P / 4 > 1 ? P / 4 : 1, high = P - low;
    int64_t split = low + (int64_t)((draw[0] * (uint64_t)(high - low + 1)) >> 32);
    int32_t random = (int32_t)(draw[1] >> 31);
    int64_t second = at + split;
    if (random) second = random_run(data, at, P - split, (uint64_t)draw[2] << 32 | draw[3]);

    tokens[0] = data->spec.special.cls;
    TRY(token_stream_read(&data->stream, data->begin + at, split, tokens + 1));
    tokens[split + 1] = data->spec.special.sep;
    TRY(token_stream_read(&data->stream, data->begin + second, P - split, tokens + split + 2));
    tokens[T - 1] = data->spec.special.sep;
    for (int64_t t = split + 2; t < T; t++) types[t] = 1;
    batch->nsp[slot.b] = random;
    mask_row(data, slot, T, batch);
    return OK;
}

/* [CLS] A [SEP] B [SEP] from marked sentences, then padding. */
static Status fill_sentences(const Dataset *data, Slot slot, HostBatch *batch) {
    const SpecialTokens *special = &data->spec.special;
    int64_t T = batch->T, row = slot.b * T;
    int32_t *tokens = batch->tokens + row, *types = batch->types + row, *labels = batch->labels + row;
    RngKey key = rng_key(data->spec.seed, "data.pair", slot.epoch);
    Pair pair;
    TRY(pair_draw(&data->pairs, &data->stream, key, slot.position, slot.index, labels, &pair));
    int64_t second = pair.a_size + 2, length = second + pair.b_size + 1;
    tokens[0] = special->cls;
    TRY(token_stream_read(&data->stream, pair.a, pair.a_size, tokens + 1));
    tokens[second - 1] = special->sep;
    TRY(token_stream_read(&data->stream, pair.b, pair.b_size, tokens + second));
    tokens[length - 1] = special->sep;
    for (int64_t t = second; t < length; t++) types[t] = 1;
    mask_row(data, slot, length, batch);
    for (int64_t t = length; t < T; t++) {
        tokens[t] = special->pad > 0 ? special->pad : 0;
        labels[t] = LABEL_IGNORED;
    }
    batch->lens[slot.b] = (int32_t)length;
    batch->nsp[slot.b] = pair.random;
    return OK;
}

static void copy_labels(Task task, int32_t *labels, const int32_t *from, int64_t length) {
    if (task == TASK_LM)
        memcpy(labels, from + 1, (size_t)(length - 1) * sizeof *labels);
    else
        memcpy(labels, from, (size_t)length * sizeof *labels);
}

/* Copies the targets of an example, if labels are targets. */
static void fill_targets(const float *targets, int64_t index, int64_t b, HostBatch *batch) {
    size_t outputs = (size_t)batch->outputs;
    if (outputs)
        memcpy(batch->targets + (size_t)b * outputs, targets + (size_t)index * outputs,
               outputs * sizeof *targets);
}

static void fill_ids(const Dataset *data, Slot slot, HostBatch *batch) {
    int64_t T = batch->T, row = slot.b * T;
    const IdsExample *example = &data->ids.example[data->begin + slot.index];
    const int32_t *ids = ids_of(&data->ids, example), *types = types_of(&data->ids, example);
    const int32_t *given = labels_of(&data->ids, example);
    int32_t *tokens = batch->tokens + row, *labels = batch->labels + row;
    int32_t pad = data->spec.special.pad > 0 ? data->spec.special.pad : 0;
    for (int64_t t = 0; t < T; t++) {
        tokens[t] = t < example->length ? ids[t] : pad;
        labels[t] = LABEL_IGNORED;
    }
    if (types) memcpy(batch->types + row, types, (size_t)example->length * sizeof *types);
    batch->lens[slot.b] = example->length;
    batch->nsp[slot.b] = example->next;
    batch->span[slot.b] = example->start < example->length ? example->start : (int32_t)T;
    batch->span[batch->B + slot.b] = example->end < example->length ? example->end : (int32_t)T;
    batch->classes[slot.b] = example->label;
    fill_targets(data->ids.targets, data->begin + slot.index, slot.b, batch);
    if (data->spec.task == TASK_MLM && !given)
        mask_row(data, slot, example->length, batch);
    else if (data->spec.task == TASK_LM || data->spec.task == TASK_MLM)
        copy_labels(data->spec.task, labels, given ? given : ids, example->length);
}

static void fill_squad(const Dataset *data, Slot slot, HostBatch *batch) {
    int64_t T = batch->T, row = slot.b * T;
    size_t index = (size_t)(data->begin + slot.index);
    const SquadFeature *feature = &data->squad.feature[index];
    int32_t pad = data->spec.special.pad > 0 ? data->spec.special.pad : 0;
    int32_t length = squad_feature_fill(&data->squad, index, batch->tokens + row, batch->types + row);
    for (int64_t t = length; t < T; t++) batch->tokens[row + t] = pad;
    batch->lens[slot.b] = length;
    batch->span[slot.b] = feature->start;
    batch->span[batch->B + slot.b] = feature->end;
}

/* A record, or a pair whose second text is replaced by another example's half of the time. */
static void fill_example(const Dataset *data, Slot slot, HostBatch *batch) {
    const ExampleSet *set = &data->examples;
    int64_t T = batch->T, row = slot.b * T;
    size_t index = (size_t)(data->begin + slot.index), second = index;
    bool random = false;
    if (data->spec.next_sentence) {
        RngKey key = rng_key(data->spec.seed, "data.pair", slot.epoch);
        uint32_t draw[4];
        rng_block(key, slot.position, draw);
        random = draw[0] >> 31;
        if (random)
            second = example_other(set, (size_t)data->begin, (size_t)data->size, index, key, slot.position);
    }
    int64_t length = example_fill(set, &set->example[index], &set->example[second], T, batch->tokens + row,
                                  batch->types + row);
    if (data->spec.task == TASK_MLM) mask_row(data, slot, length, batch);
    for (int64_t t = length; t < T; t++) {
        batch->tokens[row + t] = data->spec.special.pad > 0 ? data->spec.special.pad : 0;
        batch->labels[row + t] = LABEL_IGNORED;
    }
    batch->lens[slot.b] = (int32_t)length;
    batch->nsp[slot.b] = random;
    batch->classes[slot.b] = set->example[index].label;
    fill_targets(set->targets, (int64_t)index, slot.b, batch);
}

static Status fill_slot(const Dataset *data, Slot slot, HostBatch *batch) {
    int64_t T = batch->T;
    batch->lens[slot.b] = (int32_t)T;
    memset(batch->types + slot.b * T, 0, (size_t)T * sizeof *batch->types);
    if (data->format == FORMAT_IDS)
        fill_ids(data, slot, batch);
    else if (data->format == FORMAT_SQUAD)
        fill_squad(data, slot, batch);
    else if (is_examples(data->format))
        fill_example(data, slot, batch);
    else if (data->spec.task == TASK_LM)
        return fill_lm(data, slot, batch);
    else if (data->from_pairs)
        return fill_sentences(data, slot, batch);
    else if (data->spec.next_sentence)
        return fill_pair(data, slot, batch);
    else
        return fill_single(data, slot, batch);
    return OK;
}

static void count_losses(const Dataset *data, HostBatch *batch) {
    int64_t B = batch->B, T = batch->T, *count = batch->loss_count;
    batch->documents = false;
    if (data->spec.separate) host_batch_split(batch, data->spec.end);
    memset(batch->loss_count, 0, sizeof batch->loss_count);
    batch->pick_count = 0;
    batch->padded = false;
    for (int64_t b = 0; b < B; b++) batch->padded |= batch->lens[b] < T;
    switch (batch->task) {
    case TASK_LM:
        for (int64_t i = 0; i < B * T; i++) count[LOSS_TOKEN] += batch->labels[i] != LABEL_IGNORED;
        break;
    case TASK_MLM:
        for (int64_t i = 0; i < B * T; i++) {
            if (batch->labels[i] == LABEL_IGNORED) continue;
            batch->picks[batch->pick_count] = (int32_t)i;
            batch->pick_labels[batch->pick_count++] = batch->labels[i];
        }
        count[LOSS_TOKEN] = batch->pick_count;
        count[LOSS_NSP] = data->spec.next_sentence ? B : 0;
        break;
    case TASK_SPAN:
        for (int64_t b = 0; b < B; b++) {
            count[LOSS_SPAN_START] += batch->span[b] < T;
            count[LOSS_SPAN_END] += batch->span[B + b] < T;
        }
        break;
    case TASK_CLASSIFY: count[LOSS_CLASSIFY] = batch->outputs ? B * batch->outputs : B; break;
    case TASK_COUNT: break;
    }
}

/* Offset of an epoch's windows relative to the first epoch. */
static int64_t shift_of(const Dataset *data, uint64_t epoch) {
    uint32_t draw[4];
    rng_block(rng_key(data->spec.seed, "data.shift", epoch), 0, draw);
    return data->window > 0 ? (int64_t)(draw[0] % (uint64_t)data->window) : 0;
}

Status dataset_fill(const Dataset *data, uint64_t position, bool shuffle, HostBatch *batch) {
    if (batch->T != data->spec.seq)
        return FAILED("internal: batch sequence length %lld does not match the dataset's %lld",
                      (long long)batch->T, (long long)data->spec.seq);
    if (batch->outputs != data_outputs(&data->spec))
        return FAILED("internal: a batch with %lld targets per sequence does not match the dataset's %lld",
                      (long long)batch->outputs, (long long)data_outputs(&data->spec));
    batch->task = data->spec.task;
    batch->has_types = data->spec.types > 0;
    uint64_t count = (uint64_t)data->count;
    for (int64_t b = 0; b < batch->B; b++) {
        uint64_t at = position + (uint64_t)b;
        Slot slot = {.epoch = at / count, .position = at % count, .b = b};
        RngKey key = rng_key(data->spec.seed, "data.order", slot.epoch);
        slot.index = (int64_t)(shuffle ? rng_permute(key, slot.position, count) : slot.position);
        if (shuffle && slot.epoch > 0) slot.shift = shift_of(data, slot.epoch);
        TRY(fill_slot(data, slot, batch));
    }
    count_losses(data, batch);
    return OK;
}

int64_t dataset_windows(const Dataset *data, int64_t stride) {
    bool stream = data->stream.count > 0 && data->spec.task == TASK_LM;
    int64_t beyond = data->size - 1 - data->spec.seq; /* tokens that the first window does not predict */
    if (!stream) return 0;
    return 1 + (beyond > 0 ? (beyond + stride - 1) / stride : 0);
}

Status dataset_fill_windows(const Dataset *data, int64_t stride, int64_t first, HostBatch *batch) {
    int64_t T = batch->T;
    batch->task = TASK_LM;
    batch->has_types = data->spec.types > 0;
    for (int64_t b = 0; b < batch->B; b++) {
        int32_t *tokens = batch->tokens + b * T, *labels = batch->labels + b * T;
        int64_t window = first + b, at = window * stride, counted = window ? at - stride + T : 0;
        int64_t inputs = data->size - 1 - at < T ? data->size - 1 - at : T;
        memset(batch->types + b * T, 0, (size_t)T * sizeof *batch->types);
        batch->lens[b] = (int32_t)inputs; /* the last window; models that attend in both directions see all */
        TRY(token_stream_read(&data->stream, data->begin + at, inputs, tokens));
        TRY(token_stream_read(&data->stream, data->begin + at + 1, inputs, labels));
        for (int64_t t = 0; t < T; t++) {
            if (t >= inputs) tokens[t] = 0;
            if (t >= inputs || at + t < counted) labels[t] = LABEL_IGNORED;
        }
    }
    count_losses(data, batch);
    return OK;
}
