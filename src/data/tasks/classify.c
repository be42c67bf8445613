/* Sequence classification: a label, or for regression and multi-label classification a row of targets
 * (data/targets.h). */
#include <math.h>

#include "data/task.h"

static Status check(const DataSpec *spec, DataFormat format) {
    (void)format;
    if (spec->labels >= 1 && spec->labels <= MAX_LABELS) return OK;
    return USAGE("the number of labels is %lld; expected 1 to %d", (long long)spec->labels, MAX_LABELS);
}

static bool counted(const Dataset *data, int64_t index) {
    int64_t outputs = data_outputs(&data->spec);
    for (int64_t i = 0; i < outputs; i++)
        if (!isnan(data->ids.targets[index * outputs + i])) return true;
    return !outputs;
}

static void count(HostBatch *batch) {
    batch->loss_count[LOSS_CLASSIFY] = batch->outputs ? batch->B * batch->outputs : batch->B;
}

static void view(const HostBatch *batch, const HostBatch *there, Micro *micro) {
    if (batch->outputs)
        micro->targets = tensor_2d(there->targets, DT_F32, batch->B, batch->outputs);
    else
        micro->classes = tensor_1d(there->classes, DT_I32, batch->B);
}

const TaskData data_classify = {
    .formats = FORMAT_BIT(FORMAT_RECORDS) | FORMAT_BIT(FORMAT_IDS),
    .needs = "records (.csv, .tsv or .jsonl with a text and a label)",
    .tables = FORMAT_RECORDS,
    .nothing = "every label is missing",
    .counted = counted,
    .check = check,
    .read = ids_read_label,
    .count = count,
    .view = view,
};
