/* The rules scan the sequence at every token, which is short compared with the model's work. */
#include "infer/logits.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"

struct LogitProcessor {
    LogitRules rules;
    int64_t vocab;
    bool *seen; /* (V) all false between calls */
};

static bool penalizes(const LogitRules *rules) {
    return rules->repetition_penalty != 0 && rules->repetition_penalty != 1;
}

bool logit_rules_active(const LogitRules *rules) {
    return rules->bias_count > 0 || penalizes(rules) || rules->no_repeat_ngram > 0;
}

static Status check_rules(const LogitRules *rules, int64_t vocab) {
    if (!(rules->repetition_penalty >= 0) || !isfinite(rules->repetition_penalty))
        return USAGE("repetition-penalty is %g; it must be above 0", rules->repetition_penalty);
    if (rules->no_repeat_ngram < 0)
        return USAGE("no-repeat-ngram is %lld; it must be 0 or more", (long long)rules->no_repeat_ngram);
    for (int64_t i = 0; i < rules->bias_count; i++) {
        const TokenBias *bias = &rules->biases[i];
        if (bias->token < 0 || bias->token >= vocab)
            return USAGE("logit-bias: token %d is outside the vocabulary of %lld tokens", (int)bias->token,
                         (long long)vocab);
        if (!(bias->bias < INFINITY))
            return USAGE("logit-bias: the bias of token %d is %g; it must be a number or -inf",
                         (int)bias->token, bias->bias);
    }
    return OK;
}

Status logit_processor_new(LogitProcessor **ret_processor, const LogitRules *rules, int64_t vocab) {
    TRY(check_rules(rules, vocab));
    CLEANUP(logit_processor_freep) LogitProcessor *p = NULL;
    TRY(mem_new(1, sizeof *p, &p));
    p->rules = *rules;
    p->vocab = vocab;
    TRY(mem_new((size_t)vocab, sizeof *p->seen, &p->seen));
    return MOVE(ret_processor, p);
}

void logit_processor_free(LogitProcessor *p) {
    if (!p) return;
    free(p->seen);
    free(p);
}

/* In fp32, like transformers. A token that occurs several times is penalized once. */
static void penalize(LogitProcessor *p, const int32_t *ids, int64_t count, float *logits) {
    float penalty = (float)p->rules.repetition_penalty;
    for (int64_t i = 0; i < count; i++) {
        float *logit = &logits[ids[i]];
        if (!p->seen[ids[i]]) *logit = *logit < 0 ? *logit * penalty : *logit / penalty;
        p->seen[ids[i]] = true;
    }
    for (int64_t i = 0; i < count; i++) p->seen[ids[i]] = false;
}

/* The last n - 1 tokens start an n-gram. Wherever they occurred before, the token that followed is excluded.
 */
static void exclude_repeats(const int32_t *ids, int64_t count, int64_t n, float *logits) {
    const int32_t *suffix = ids + count + 1 - n;
    for (int64_t i = 0; i + n <= count; i++)
        if (!memcmp(ids + i, suffix, (size_t)(n - 1) * sizeof *ids)) logits[ids[i + n - 1]] = -INFINITY;
}

void logit_processor_apply(LogitProcessor *p, const int32_t *ids, int64_t count, float *logits) {
    const LogitRules *rules = &p->rules;
    for (int64_t i = 0; i < rules->bias_count; i++) logits[rules->biases[i].token] += rules->biases[i].bias;
    if (penalizes(rules)) penalize(p, ids, count, logits);
    if (rules->no_repeat_ngram > 0 && count >= rules->no_repeat_ngram)
        exclude_repeats(ids, count, rules->no_repeat_ngram, logits);
}

Status logits_largest(const float *logits, int64_t vocab, int32_t *ret_id) {
    int64_t best = 0;
    for (int64_t i = 0; i < vocab; i++) {
        if (isnan(logits[i])) return FAILED("the model's logits are NaN; its weights are corrupt");
        if (logits[i] > logits[best]) best = i;
    }
    if (logits[best] == -INFINITY)
        return FAILED("no token is left to choose: every one repeats an n-gram or has a bias of -inf");
    if (!isfinite(logits[best])) return FAILED("the model's logits are infinite; its weights are corrupt");
    *ret_id = (int32_t)best;
    return OK;
}

/* Inserts a score into the `count` best so far, of at most `top`. */
static int64_t keep_best(TokenScore *best, int64_t count, int64_t top, TokenScore score) {
    if (count == top && (top == 0 || best[top - 1].logprob >= score.logprob)) return count;
    int64_t at = count < top ? count : top - 1;
    for (; at > 0 && best[at - 1].logprob < score.logprob; at--) best[at] = best[at - 1];
    best[at] = score;
    return count < top ? count + 1 : count;
}

void token_scores(const float *logits, int64_t vocab, int32_t token, int64_t top, TokenScore *ret_scores) {
    float largest = -INFINITY;
    double sum = 0;
    for (int64_t i = 0; i < vocab; i++) largest = fmaxf(largest, logits[i]);
    for (int64_t i = 0; i < vocab; i++) sum += exp((double)logits[i] - (double)largest);
    double log_sum = (double)largest + log(sum);
    int64_t count = 0;
    for (int64_t i = 0; i < vocab; i++)
        count = keep_best(ret_scores + 1, count, top, (TokenScore){(int32_t)i, logits[i]});
    for (int64_t i = 1; i <= top; i++)
        ret_scores[i].logprob = (float)((double)ret_scores[i].logprob - log_sum);
    ret_scores[0] = (TokenScore){token, (float)((double)logits[token] - log_sum)};
}
