/* What a task does with data, one file each in src/data/tasks/ for the rows HEAD of model/heads.def: the
 * formats it can use, its labels in examples and batches, and how many terms its losses have. */
#ifndef WEFT_DATA_TASK_H
#define WEFT_DATA_TASK_H

#include "data/dataset_internal.h"

typedef struct TaskData {
    unsigned formats;   /* bits 1 << DataFormat */
    const char *needs;  /* for errors: what users must provide if the format is wrong; NULL: not stated */
    DataFormat tables;  /* AUTO, or how tables of text are read */
    const char *alias;  /* another name of the task, by which files of unknown format ... */
    DataFormat unknown; /* ... are read as this one; or NULL */
    bool picks;         /* the model computes only the positions that have labels, see HostBatch.picks */
    bool windows;       /* a stream can be evaluated in sliding windows */
    /* Why no loss may be computed on an example of `ids`, and whether one is. */
    const char *nothing;
    bool (*counted)(const Dataset *data, int64_t index);
    /* The task's own checks of a spec; NULL: none. */
    Status (*check)(const DataSpec *spec, DataFormat format);
    /* Reads the labels of a line of `ids` into the example. */
    Status (*read)(IdsSet *set, const IdsLine *line, IdsExample *example);
    /* Labels of an example of `ids` and of texts (pairs), if it is not enough to copy the fields of
     * IdsExample; or NULL. */
    void (*label)(const Dataset *data, Slot slot, const IdsExample *example, HostBatch *batch);
    /* Token streams: divides the used part into windows, and fills a row from one. NULL: not from streams. */
    Status (*open)(Dataset *data, const DataSpec *spec, int64_t *ret_need);
    Status (*fill)(const Dataset *data, Slot slot, HostBatch *batch);
    /* Counts the terms of the losses of a filled batch in batch->loss_count, which is 0. */
    void (*count)(HostBatch *batch);
    /* Adds the views of the labels, which are in the arrays of `there`. */
    void (*view)(const HostBatch *batch, const HostBatch *there, Micro *micro);
} TaskData;

#define HEAD(NAME, name, title, class, losses) extern const TaskData data_##name;
#include "model/heads.def"

const TaskData *task_data(Task task);

#endif
