/* The span of an answer: positions of its first and last token; T: ignored. */
#include "data/task.h"

static Status read_labels(IdsSet *set, const IdsLine *line, IdsExample *example) {
    (void)set;
    TRY(ids_read_number(line, "start", line->spec->seq, &example->start));
    return ids_read_number(line, "end", line->spec->seq, &example->end);
}

static bool counted(const Dataset *data, int64_t index) {
    const IdsExample *example = &data->ids.example[index];
    return example->start < example->length || example->end < example->length;
}

static void count(HostBatch *batch) {
    for (int64_t b = 0; b < batch->B; b++) {
        batch->loss_count[LOSS_SPAN_START] += batch->span[b] < batch->T;
        batch->loss_count[LOSS_SPAN_END] += batch->span[batch->B + b] < batch->T;
    }
}

static void view(const HostBatch *batch, const HostBatch *there, Micro *micro) {
    micro->span = tensor_2d(there->span, DT_I32, 2, batch->B);
}

const TaskData data_span = {
    .formats = FORMAT_BIT(FORMAT_SQUAD) | FORMAT_BIT(FORMAT_IDS),
    .needs = "SQuAD questions",
    .alias = "squad",
    .unknown = FORMAT_SQUAD,
    .nothing = "every answer lies outside its example",
    .counted = counted,
    .read = read_labels,
    .count = count,
    .view = view,
};
