/* weft bench --leaderboard: five figures for ranking models and systems. */
#ifndef WEFT_CLI_LEADERBOARD_H
#define WEFT_CLI_LEADERBOARD_H

#include "cli/train_options.h"

/* Defaults for the training measurements. */
enum { LEADERBOARD_SEQ = 128, LEADERBOARD_STEPS = 20 };

/* Measures and writes the file args->leaderboard:
 *   loss                    on args->data, if the model is a checkpoint; null without either
 *   inference_latency_B     tokens/s of generating B sequences at once, for B = 1 and 12
 *   training_throughput_B   tokens/s of training with micro-batches of B sequences, for B = 4 and 12; null
 * for quantized models, which cannot be trained
 */
MUST_USE Status leaderboard_run(const BenchArgs *args, json_t **ret_result);
void leaderboard_show(const json_t *result, FILE *out);

#endif
