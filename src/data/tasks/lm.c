/* Next-token prediction. The examples of a stream are windows of T tokens plus the next one, which begin a
 * stride apart: by default T, so that they do not overlap. */
#include <string.h>

#include "data/task.h"

static Status read_labels(IdsSet *set, const IdsLine *line, IdsExample *example) {
    return ids_read_labels(set, line, line->spec->vocab, example);
}

static bool counted(const Dataset *data, int64_t index) {
    const IdsExample *example = &data->ids.example[index];
    const int32_t *labels = labels_of(&data->ids, example);
    if (!labels) return example->length > 1;
    for (int32_t t = 1; t < example->length; t++)
        if (labels[t] != LABEL_IGNORED) return true;
    return false;
}

/* The label at t + 1 is what position t predicts. */
static void label(const Dataset *data, Slot slot, const IdsExample *example, HostBatch *batch) {
    const int32_t *given = labels_of(&data->ids, example);
    if (!given) given = ids_of(&data->ids, example);
    memcpy(batch->labels + slot.b * batch->T, given + 1, (size_t)(example->length - 1) * sizeof *given);
}

static Status open_stream(Dataset *data, const DataSpec *spec, int64_t *ret_need) {
    data->window = spec->part.stride ? spec->part.stride : spec->seq;
    data->count = data->size > spec->seq ? (data->size - 1 - spec->seq) / data->window + 1 : 0;
    *ret_need = spec->windows ? 2 : spec->seq + 1;
    return OK;
}

static Status fill_stream(const Dataset *data, Slot slot, HostBatch *batch) {
    int64_t T = batch->T, at = slot.index * data->window + slot.shift, last = data->size - 1 - T;
    int32_t *tokens = batch->tokens + slot.b * T, *labels = batch->labels + slot.b * T;
    at = data->begin + (at < last ? at : last);
    TRY(token_stream_read(&data->stream, at, T, tokens));
    memcpy(labels, tokens + 1, (size_t)(T - 1) * sizeof *labels);
    return token_stream_read(&data->stream, at + T, 1, labels + T - 1);
}

static void count(HostBatch *batch) {
    for (int64_t i = 0; i < batch->B * batch->T; i++)
        batch->loss_count[LOSS_TOKEN] += batch->labels[i] != LABEL_IGNORED;
}

static void view(const HostBatch *batch, const HostBatch *there, Micro *micro) {
    micro->labels = tensor_1d(there->labels, DT_I32, batch->B * batch->T);
}

const TaskData data_lm = {
    .formats = FORMATS_STREAM | FORMAT_BIT(FORMAT_IDS) | FORMAT_BIT(FORMAT_CHAT),
    .windows = true,
    .nothing = "every label is -100, which is ignored, or belongs to a first token, which nothing predicts",
    .counted = counted,
    .read = read_labels,
    .label = label,
    .open = open_stream,
    .fill = fill_stream,
    .count = count,
    .view = view,
};
