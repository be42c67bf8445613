/* The sample is drawn token by token from the most likely ones. Every token costs a forward pass over the
 * whole text so far: the runner, unlike infer/, has no KV cache, but it has the weights, whatever the layout.
 * Draws come from the counter-based generator, so no random state changes. The first rank's choice is
 * broadcast, so that all ranks run the same passes. */
#include "train/trainer.h"

#include <math.h>
#include <string.h>

#include "data/mask.h"

enum { PROMPT = 16, NEW_TOKENS = 64, TOP_K = 40 };
#define TEMPERATURE 0.8

Status sample_check(Job *job) {
    const RunnerSpec *plan = &job->settings.run;
    if (!config_is_decoder(&job->model->config))
        return USAGE("{sample-every} needs a model that generates text, such as GPT-2; BERT does not");
    if (!config_generates(&job->model->config))
        return USAGE("{sample-every} needs a model that generates text, but this one attends in both "
                     "directions ('is_causal' is false in config.json)");
    if (plan->mesh && plan->mesh->extent[AXIS_TP] > 1)
        return USAGE("{sample-every} cannot be combined with tensor parallelism ({tp} %d), which splits the "
                     "vocabulary; drop one of the two",
                     plan->mesh->extent[AXIS_TP]);
    if (job->tokenizer) return OK;
    if (!job->bytes) return USAGE("{sample-every} needs the tokenizer of the data; pass it with {tokenizer}");
    return job_need_tokenizer(job);
}

/* ---- choosing a token ---- */

typedef struct Choice {
    int32_t token;
    float logit;
} Choice;

/* The TOP_K largest logits in descending order; returns their number. */
static int find_top(const float *logits, int64_t vocab, Choice top[TOP_K]) {
    int count = 0;
    for (int64_t v = 0; v < vocab; v++) {
        if (count == TOP_K && !(logits[v] > top[count - 1].logit)) continue;
        int at = count < TOP_K ? count++ : count - 1;
        for (; at > 0 && logits[v] > top[at - 1].logit; at--) top[at] = top[at - 1];
        top[at] = (Choice){(int32_t)v, logits[v]};
    }
    return count;
}

static int32_t choose(const float *logits, int64_t vocab, double draw) {
    Choice top[TOP_K];
    double weight[TOP_K], sum = 0;
    int count = find_top(logits, vocab, top);
    for (int i = 0; i < count; i++) {
        weight[i] = exp(((double)top[i].logit - (double)top[0].logit) / TEMPERATURE);
        sum += weight[i];
    }
    int at = 0;
    for (draw *= sum; at < count - 1 && draw >= weight[at]; at++) draw -= weight[at];
    return top[at].token;
}

/* ---- the text ---- */

/* A length that ranks of context parallelism divide. Tokens do not attend to what follows them. */
static int64_t whole_parts(const Runner *runner, int64_t count) {
    int64_t cp = runner->mesh->extent[AXIS_CP];
    return (count + cp - 1) / cp * cp;
}

static Status next_token(const Job *job, const int32_t *ids, int64_t count, RngKey key, float *logits,
                         int32_t *ret_token) {
    Runner *runner = job->runner;
    CLEANUP(host_batch_freep) HostBatch *batch = NULL;
    int64_t vocab = job->model->config.vocab;
    TRY(host_batch_new(&batch, 1, whole_parts(runner, count)));
    batch->task = job->task;
    batch->lens[0] = (int32_t)count;
    memcpy(batch->tokens, ids, (size_t)count * sizeof *ids);
    for (int64_t t = 0; t < batch->T; t++) batch->labels[t] = LABEL_IGNORED;
    TRY(runner_logits(runner, batch, HEAD_LM, logits));
    int32_t token = choose(logits + (count - 1) * vocab, vocab, rng_uniform(key, (uint64_t)count));
    if (runner->mesh->size > 1) TRY(host_broadcast(runner->mesh->world, &token, sizeof token, 0));
    *ret_token = token;
    return OK;
}

/* Tokens of a padded vocabulary beyond the tokenizer's have no text. */
static Status decode(const Job *job, const int32_t *ids, int64_t count, char **ret_text) {
    int32_t known[PROMPT + NEW_TOKENS];
    size_t kept = 0, size;
    CLEANUP(mem_freep) char *bytes = NULL;
    for (int64_t i = 0; i < count; i++)
        if (ids[i] < tokenizer_vocab(job->tokenizer)) known[kept++] = ids[i];
    TRY(tokenizer_decode(job->tokenizer, known, kept, true, &bytes, &size));
    return text_to_utf8(bytes, size, ret_text, &size);
}

Status sample_make(const Job *job, const Dataset *data, int64_t step, char **ret_prompt, char **ret_text) {
    const ModelConfig *config = &job->model->config;
    int32_t ids[PROMPT + NEW_TOKENS];
    int64_t prompt = job->seq < 2 * PROMPT ? (job->seq + 1) / 2 : PROMPT, count = prompt;
    int64_t limit = job->seq < PROMPT + NEW_TOKENS ? job->seq : PROMPT + NEW_TOKENS;
    CLEANUP(host_batch_freep) HostBatch *first = NULL;
    CLEANUP(mem_freep) float *logits = NULL;
    CLEANUP(mem_freep) char *start = NULL;
    RngKey key = rng_key(job->settings.run.seed, "sample", (uint64_t)step);
    TRY(host_batch_new(&first, 1, job->seq));
    TRY(dataset_fill(data, 0, false, first));
    memcpy(ids, first->tokens, (size_t)prompt * sizeof *ids);
    TRY(mem_new((size_t)(whole_parts(job->runner, limit) * config->vocab), sizeof *logits, &logits));
    while (count < limit) {
        TRY(next_token(job, ids, count, key, logits, &ids[count]));
        if (ids[count++] == config->eos_token) break;
    }
    TRY(decode(job, ids, prompt, &start));
    TRY(decode(job, ids + prompt, count - prompt, ret_text));
    return MOVE(ret_prompt, start);
}
