/* weft bench --leaderboard: the five figures by which models and systems are ranked. */
#ifndef WEFT_CLI_LEADERBOARD_H
#define WEFT_CLI_LEADERBOARD_H

#include "cli/train_options.h"

/* What training is measured with where nothing else is asked for. */
enum { LEADERBOARD_SEQ = 128, LEADERBOARD_STEPS = 20 };

/* Measures and writes the file args->leaderboard:
 *   loss                    over args->data, of a model that is a checkpoint; null without either
 *   inference_latency_B     B x new tokens / seconds, B sequences at once
 *   training_throughput_B   tokens a second of steps that add up micro-batches of B sequences
 * for B 1 and 12, 4 and 12. */
MUST_USE Status leaderboard_run(const BenchArgs *args, json_t **ret_result);
void leaderboard_show(const json_t *result, FILE *out);

#endif
