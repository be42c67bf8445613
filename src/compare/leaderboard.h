/* Five figures for ranking models and systems. */
#ifndef WEFT_COMPARE_LEADERBOARD_H
#define WEFT_COMPARE_LEADERBOARD_H

#include "train/train.h"

/* Defaults for the training measurements. */
enum { LEADERBOARD_SEQ = 128, LEADERBOARD_STEPS = 20 };

typedef struct LeaderboardSpec {
    Settings train;     /* model, layout, device */
    int64_t replicas;   /* of the layout */
    int64_t accumulate; /* micro-batches per training step */
    int64_t new_tokens; /* to generate per sequence */
    const char **data;  /* for the loss; none: unknown */
    int data_count;
    const char *file; /* output */
} LeaderboardSpec;

/* Measures and writes spec->file:
 *   loss                    on spec->data, if the model is a checkpoint; null without either
 *   inference_latency_B     tokens/s of generating B sequences at once, for B = 1 and 12
 *   training_throughput_B   tokens/s of training with micro-batches of B sequences, for B = 4 and 12; null
 * for quantized models, which cannot be trained
 */
MUST_USE Status leaderboard_run(const LeaderboardSpec *spec, json_t **ret_result);
/* Reads figures to compare with, "KEY=NUMBER,...", with the keys above. */
MUST_USE Status leaderboard_published(const char *text, json_t **ret_published);

#endif
