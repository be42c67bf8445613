/* Turns an open set of files into batches.
 *
 * Position p of the infinite order is in epoch p / count; a keyed permutation selects the example within the
 * epoch. Where examples come from depends on the format: `ids`, SQuAD, texts (pairs and records), chats (each
 * example is a sequence of packed conversations), or a token stream, whose examples are windows. When
 * shuffling, every epoch after the first shifts the windows of lm by less than their stride, so that a model
 * does not memorize fixed window boundaries of a small corpus. What examples are labeled with is the task's
 * (data/task.h). Everything random (order, pairs, masks) is a function of the seed, the epoch and the
 * position in it, so no state is kept between calls. T is the sequence length.
 */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"
#include "data/task.h"

const TaskData *task_data(Task task) {
    static const TaskData *const all[] = {
#define HEAD(NAME, name, title, class, losses) &data_##name,
#include "model/heads.def"
    };
    return all[task];
}

int64_t data_outputs(const DataSpec *spec) {
    bool targets = spec->problem == PROBLEM_REGRESSION || spec->problem == PROBLEM_MULTI_LABEL;
    return targets ? spec->labels : 0;
}

/* ---- opening ---- */

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

/* Restricts [0, size) to the part that is used. The training and validation parts meet at the same cut if
 * their fractions add up to one. */
static void keep_part(Dataset *data, int64_t size) {
    const DataPart *part = &data->spec.part;
    if (part->fraction > 0) size = llround((double)size * part->fraction);
    int64_t cut = llround((double)size * (part->first > 0 ? part->first : 1 - part->last));
    bool last = part->last > 0;
    data->begin = last ? cut : 0;
    data->size = part->first > 0 ? cut : last ? size - cut : size;
}

static Status open_ids(Dataset *data, const DataSpec *spec) {
    for (int i = 0; i < spec->path_count; i++) {
        CLEANUP(source_done) Source source = {0};
        TRY(source_init_rows(&source, spec->paths[i], SOURCE_GZ_LIMIT, ids_fields));
        TRY(ids_set_read(&data->ids, &source, spec));
    }
    keep_part(data, (int64_t)data->ids.count);
    if (data->size < 1) return too_little_data(spec, "examples", data->size, (int64_t)data->ids.count, 1);
    data->count = data->size;
    for (int64_t i = 0; i < data->count; i++) data->tokens += data->ids.example[data->begin + i].length;
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
    if (data->count < 1)
        return too_little_data(spec, "examples", data->count, (int64_t)data->squad.features, 1);
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
    if (data->size < minimum) return too_little_data(spec, "examples", data->size, all, minimum);
    data->count = data->size;
    for (int64_t i = 0; i < data->count; i++) {
        const Example *example = &data->examples.example[data->begin + i];
        data->tokens += example->first + example->second;
    }
    return OK;
}

/* Conversations are divided into training and validation parts before either is packed. */
static Status open_chats(Dataset *data, const DataSpec *spec) {
    TRY(chat_set_read(&data->chats, spec));
    keep_part(data, (int64_t)data->chats.count);
    if (data->size < 1)
        return too_little_data(spec, "conversations", data->size, (int64_t)data->chats.count, 1);
    TRY(chat_set_pack(&data->chats, data->begin, data->size, spec->seq, !spec->unpacked));
    data->count = (int64_t)data->chats.rows;
    for (int64_t i = data->begin; i < data->begin + data->size; i++)
        data->tokens += data->chats.example[i].length - 1;
    return OK;
}

static Status open_stream(Dataset *data, const DataSpec *spec) {
    if (data->format == FORMAT_TOKENS)
        TRY(token_stream_init_files(&data->stream, spec->paths, spec->path_count, spec->vocab,
                                    spec->tokenizer, spec->tokenizer_name));
    else
        TRY(token_stream_init(&data->stream, spec->paths, spec->path_count, data->format, spec->vocab));
    int64_t all = token_stream_size(&data->stream), need = 0;
    keep_part(data, all);
    TRY(task_data(spec->task)->open(data, spec, &need));
    if (data->size < need) return too_few_tokens(spec, data->size, all, need);
    data->tokens = data->size;
    return OK;
}

Status dataset_open(Dataset **ret_data, const DataSpec *spec) {
    DataFormat format = FORMAT_AUTO;
    TRY(common_format(spec, &format));
    TRY(dataset_check(spec, format));
    CLEANUP(dataset_freep) Dataset *data = NULL;
    TRY(mem_new(1, sizeof *data, &data));
    data->spec = *spec;
    data->spec.paths = NULL;
    data->spec.path_count = 0;
    data->masking = masking_from(spec);
    data->spec.encoder = NULL;
    data->spec.chat = NULL;
    data->format = format;
    if (format == FORMAT_IDS)
        TRY(open_ids(data, spec));
    else if (format == FORMAT_SQUAD)
        TRY(open_squad(data, spec));
    else if (format == FORMAT_CHAT)
        TRY(open_chats(data, spec));
    else if (format_is_examples(format))
        TRY(open_examples(data, spec));
    else
        TRY(open_stream(data, spec));
    return MOVE(ret_data, data);
}

void dataset_free(Dataset *data) {
    if (!data) return;
    token_stream_done(&data->stream);
    ids_set_done(&data->ids);
    squad_features_done(&data->squad);
    example_set_done(&data->examples);
    pair_set_done(&data->pairs);
    chat_set_done(&data->chats);
    free(data);
}

int64_t dataset_count(const Dataset *data) {
    return data->count;
}

int64_t dataset_tokens(const Dataset *data) {
    return data->tokens;
}

const json_t *dataset_id(const Dataset *data, int64_t index) {
    const json_t *names = data->format == FORMAT_IDS ? data->ids.names : data->examples.names;
    return json_array_get(names, (size_t)(data->begin + index));
}

int64_t dataset_row(const Dataset *data, int64_t index) {
    bool rows = format_is_examples(data->format) && data->format != FORMAT_CORNELL;
    if (rows) return data->examples.example[data->begin + index].row;
    return (data->format == FORMAT_IDS ? data->begin : 0) + index + 1;
}

bool dataset_paired(const Dataset *data) {
    if (data->format == FORMAT_IDS) return data->ids.example[data->begin].has_types;
    return data->examples.example[data->begin].paired;
}

int64_t dataset_longest(const Dataset *data) {
    int64_t longest = 1, limit = data->spec.seq;
    for (int64_t i = data->begin; i < data->begin + data->size; i++) {
        int64_t length = data->format == FORMAT_IDS ? data->ids.example[i].length
                                                    : example_length(&data->examples, (size_t)i, limit);
        if (length > longest) longest = length;
    }
    return longest;
}

void dataset_set_seq(Dataset *data, int64_t seq) {
    data->spec.seq = seq;
}

/* ---- what users should know ---- */

Status dataset_check_counted(const Dataset *data, const char *const *paths) {
    const TaskData *task = task_data(data->spec.task);
    if (data->format != FORMAT_IDS || data->spec.unlabeled) return OK;
    bool counted = true;
    for (int64_t i = data->begin, end = data->begin + data->size; i < end; i++) {
        const IdsExample *example = &data->ids.example[i];
        if (i == data->begin || example->file != example[-1].file) counted = false;
        counted = counted || task->counted(data, i);
        if (!counted && (i + 1 == end || example[1].file != example->file))
            return FAILED("%s: nothing to predict: %s", paths[example->file], task->nothing);
    }
    return OK;
}

/* Warns about a label that occurs only in the validation part, which training would never see. */
static Status missing_label(const Dataset *data, char **ret_text) {
    const DataSpec *spec = &data->spec;
    CLEANUP(mem_freep) bool *seen = NULL;
    if (spec->part.first <= 0 || spec->labels < 1 || data_outputs(spec)) return OK;
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

Status dataset_text(const Dataset *data, char **ret_text) {
    *ret_text = NULL;
    return data->format == FORMAT_CHAT ? chat_set_text(&data->chats, ret_text) : OK;
}

Status dataset_warning(const Dataset *data, char **ret_text) {
    if (data->format == FORMAT_CHAT) return chat_set_warning(&data->chats, data->spec.seq, ret_text);
    if (format_is_examples(data->format)) {
        TRY(example_set_text(&data->examples, ret_text));
        bool labeled = data->format == FORMAT_RECORDS && !data->spec.unlabeled;
        return *ret_text || !labeled ? OK : missing_label(data, ret_text);
    }
    return squad_counts_text(&data->squad.counts, ret_text);
}

/* ---- filling ---- */

/* Copies the targets of an example, if labels are targets. */
static void fill_targets(const float *targets, int64_t index, int64_t b, HostBatch *batch) {
    size_t outputs = (size_t)batch->outputs;
    if (outputs)
        memcpy(batch->targets + (size_t)b * outputs, targets + (size_t)index * outputs,
               outputs * sizeof *targets);
}

/* Labels that no loss counts, unless the tokens themselves are labels. */
static void fill_unlabeled(const Dataset *data, Slot slot, HostBatch *batch) {
    int64_t T = batch->T, row = slot.b * T, next = batch->lens[slot.b] - 1;
    bool own = task_data(data->spec.task)->windows;
    for (int64_t t = 0; t < T; t++)
        batch->labels[row + t] = own && t < next ? batch->tokens[row + t + 1] : LABEL_IGNORED;
    batch->nsp[slot.b] = batch->classes[slot.b] = LABEL_IGNORED;
    batch->span[slot.b] = batch->span[batch->B + slot.b] = (int32_t)T;
    for (int64_t i = 0; i < batch->outputs; i++) batch->targets[slot.b * batch->outputs + i] = NAN;
}

static void fill_ids(const Dataset *data, Slot slot, HostBatch *batch) {
    const TaskData *task = task_data(data->spec.task);
    int64_t T = batch->T, row = slot.b * T;
    const IdsExample *example = &data->ids.example[data->begin + slot.index];
    const int32_t *ids = ids_of(&data->ids, example), *types = types_of(&data->ids, example);
    int32_t *tokens = batch->tokens + row, *labels = batch->labels + row;
    int32_t pad = padding_of(&data->spec);
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
    if (data->spec.unlabeled) return fill_unlabeled(data, slot, batch);
    fill_targets(data->ids.targets, data->begin + slot.index, slot.b, batch);
    if (task->label) task->label(data, slot, example, batch);
}

static void fill_squad(const Dataset *data, Slot slot, HostBatch *batch) {
    int64_t T = batch->T, row = slot.b * T;
    size_t index = (size_t)(data->begin + slot.index);
    const SquadFeature *feature = &data->squad.feature[index];
    int32_t pad = padding_of(&data->spec);
    int32_t length = squad_feature_fill(&data->squad, index, batch->tokens + row, batch->types + row);
    for (int64_t t = length; t < T; t++) batch->tokens[row + t] = pad;
    batch->lens[slot.b] = length;
    batch->span[slot.b] = feature->start;
    batch->span[batch->B + slot.b] = feature->end;
}

/* A record, or a pair whose second text is replaced by another example's half of the time. */
static void fill_example(const Dataset *data, Slot slot, HostBatch *batch) {
    const TaskData *task = task_data(data->spec.task);
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
    batch->lens[slot.b] = (int32_t)length;
    if (task->label && !data->spec.unlabeled) task->label(data, slot, NULL, batch);
    for (int64_t t = length; t < T; t++) {
        batch->tokens[row + t] = padding_of(&data->spec);
        batch->labels[row + t] = LABEL_IGNORED;
    }
    if (data->spec.unlabeled) return fill_unlabeled(data, slot, batch);
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
    else if (data->format == FORMAT_CHAT)
        chat_set_fill(&data->chats, (size_t)slot.index, padding_of(&data->spec), slot.b, batch);
    else if (format_is_examples(data->format))
        fill_example(data, slot, batch);
    else
        return task_data(data->spec.task)->fill(data, slot, batch);
    return OK;
}

/* Sets what follows from the rows of a batch. */
static void finish(const Dataset *data, HostBatch *batch) {
    batch->task = data->spec.task;
    batch->next_sentence = data->spec.next_sentence;
    batch->has_types = data->spec.types > 0;
    batch->documents = batch->padded = false;
    batch->documents = data->format == FORMAT_CHAT;
    if (data->spec.separate && !batch->documents) host_batch_split(batch, data->spec.end);
    for (int64_t b = 0; b < batch->B; b++) batch->padded |= batch->lens[b] < batch->T;
    host_batch_count(batch);
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
    uint64_t count = (uint64_t)data->count;
    for (int64_t b = 0; b < batch->B; b++) {
        uint64_t at = position + (uint64_t)b;
        Slot slot = {.epoch = at / count, .position = at % count, .b = b};
        RngKey key = rng_key(data->spec.seed, "data.order", slot.epoch);
        slot.index = (int64_t)(shuffle ? rng_permute(key, slot.position, count) : slot.position);
        if (shuffle && slot.epoch > 0) slot.shift = shift_of(data, slot.epoch);
        TRY(fill_slot(data, slot, batch));
    }
    finish(data, batch);
    return OK;
}

int64_t dataset_windows(const Dataset *data, int64_t stride) {
    bool stream = data->stream.count > 0 && task_data(data->spec.task)->windows;
    int64_t beyond = data->size - 1 - data->spec.seq; /* tokens that the first window does not predict */
    if (!stream) return 0;
    return 1 + (beyond > 0 ? (beyond + stride - 1) / stride : 0);
}

Status dataset_fill_windows(const Dataset *data, int64_t stride, int64_t first, HostBatch *batch) {
    int64_t T = batch->T;
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
    finish(data, batch);
    return OK;
}
