/* Sequence-length warm-up: at first, each sequence of a batch is divided into parts that attend to themselves
 * only (host_batch_divide), whose length doubles from time to time. Every step has the same tokens, shapes
 * and memory, so the parts are the same in every layout; attention to less of a sequence takes less time. */
#ifndef WEFT_TRAIN_SEQ_WARMUP_H
#define WEFT_TRAIN_SEQ_WARMUP_H

#include "base/status.h"
#include "model/config.h"
#include "train/settings.h"

typedef struct SeqWarmup {
    int64_t steps;     /* 0: none */
    int64_t from, seq; /* the length in the first step, and after the last one */
} SeqWarmup;

/* Refuses settings that cannot work. */
MUST_USE Status seq_warmup_init(SeqWarmup *ret_warmup, const TrainingSettings *training,
                                const ModelConfig *config, int64_t seq);
/* The length in a step, counted from 1. Each length, which is twice the one before, lasts as many steps. */
int64_t seq_warmup_length(const SeqWarmup *warmup, int64_t step);

#endif
