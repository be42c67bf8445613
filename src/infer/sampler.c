/* Candidates are (score, id, weight). Top-k finds the k-th largest score with a heap of k; top-p pops
 * candidates from a heap, the likeliest first, until their probability mass is reached. Neither sorts the
 * whole vocabulary, since usually few tokens remain.
 */
#include "infer/sampler.h"

#include <math.h>

#include "base/memory.h"
#include "base/rng.h"

typedef struct Candidate {
    float score;  /* (logit - largest logit) / temperature */
    float weight; /* exp(score), not normalized */
    int32_t id;
} Candidate;

struct Sampler {
    Sampling sampling;
    int64_t vocab;
    Candidate *candidate; /* (V) */
    float *heap;          /* (k) */
};

static Status check_sampling(const Sampling *s) {
    if (!(s->temperature >= 0) || !isfinite(s->temperature))
        return USAGE("temperature is %g; it must be 0 or more", s->temperature);
    if (s->top_k < 0) return USAGE("top-k is %lld; it must be 0 or more", (long long)s->top_k);
    if (!(s->top_p > 0 && s->top_p <= 1))
        return USAGE("top-p is %g; it must be above 0 and at most 1", s->top_p);
    return OK;
}

Status sampler_new(Sampler **ret_sampler, const Sampling *sampling, int64_t vocab) {
    TRY(check_sampling(sampling));
    CLEANUP(sampler_freep) Sampler *s = NULL;
    TRY(mem_new(1, sizeof *s, &s));
    s->sampling = *sampling;
    s->vocab = vocab;
    if (s->sampling.top_k >= vocab) s->sampling.top_k = 0;
    TRY(mem_new((size_t)vocab, sizeof *s->candidate, &s->candidate));
    TRY(mem_new((size_t)s->sampling.top_k, sizeof *s->heap, &s->heap));
    *ret_sampler = s;
    s = NULL;
    return OK;
}

void sampler_free(Sampler *s) {
    if (!s) return;
    free(s->candidate);
    free(s->heap);
    free(s);
}

/* The id of the largest logit; ties go to the lowest id. */
static Status largest_logit(const Sampler *s, const float *logits, int32_t *ret_id) {
    int64_t best = 0;
    for (int64_t i = 0; i < s->vocab; i++) {
        if (isnan(logits[i])) return FAILED("the model's logits are NaN; its weights are corrupt");
        if (logits[i] > logits[best]) best = i;
    }
    if (!isfinite(logits[best])) return FAILED("the model's logits are infinite; its weights are corrupt");
    *ret_id = (int32_t)best;
    return OK;
}

/* Restores the min-heap below `at`. */
static void sift_min(float *heap, int64_t count, int64_t at) {
    for (int64_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && heap[child + 1] < heap[child]) child++;
        if (heap[at] <= heap[child]) return;
        float swap = heap[at];
        heap[at] = heap[child], heap[child] = swap;
    }
}

static float kth_largest(float *heap, int64_t k, const Candidate *candidate, int64_t count) {
    for (int64_t i = 0; i < k; i++) heap[i] = candidate[i].score;
    for (int64_t i = k / 2; i-- > 0;) sift_min(heap, k, i);
    for (int64_t i = k; i < count; i++) {
        if (candidate[i].score <= heap[0]) continue;
        heap[0] = candidate[i].score;
        sift_min(heap, k, 0);
    }
    return heap[0];
}

/* Ties go to the higher id, as in transformers, which uses a stable ascending sort. */
static bool likelier(const Candidate *a, const Candidate *b) {
    return a->score > b->score || (a->score == b->score && a->id > b->id);
}

/* Restores the max-heap below `at`. */
static void sift_max(Candidate *heap, int64_t count, int64_t at) {
    for (int64_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && likelier(&heap[child + 1], &heap[child])) child++;
        if (!likelier(&heap[child], &heap[at])) return;
        Candidate swap = heap[at];
        heap[at] = heap[child], heap[child] = swap;
    }
}

/* Moves the fewest likeliest candidates whose weights reach `mass` to the end of the array, in ascending
 * order; returns the index of the first. */
static int64_t nucleus(Candidate *candidate, int64_t count, double mass) {
    for (int64_t i = count / 2; i-- > 0;) sift_max(candidate, count, i);
    double sum = 0;
    int64_t left = count;
    while (left > 0 && (left == count || sum < mass)) {
        Candidate top = candidate[0];
        candidate[0] = candidate[--left];
        candidate[left] = top;
        sift_max(candidate, left, 0);
        sum += top.weight;
    }
    return left;
}

/* Applies temperature, top-k and top-p. Candidates [*ret_first, *ret_end) remain; their weights sum to
 * *ret_mass. */
static Status filter(Sampler *s, const float *logits, int64_t *ret_first, int64_t *ret_end,
                     double *ret_mass) {
    Candidate *candidate = s->candidate;
    int32_t best = 0;
    TRY(largest_logit(s, logits, &best));
    /* Subtracting the largest first avoids infinities at tiny temperatures. */
    double temperature = s->sampling.temperature, top = logits[best];
    for (int64_t i = 0; i < s->vocab; i++)
        candidate[i] = (Candidate){.score = (float)((logits[i] - top) / temperature), .id = (int32_t)i};
    int64_t first = 0, end = s->vocab;
    if (s->sampling.top_k) {
        float threshold = kth_largest(s->heap, s->sampling.top_k, candidate, end);
        end = 0;
        for (int64_t i = 0; i < s->vocab; i++)
            if (candidate[i].score >= threshold) candidate[end++] = candidate[i];
    }
    double mass = 0;
    for (int64_t i = 0; i < end; i++) mass += candidate[i].weight = expf(candidate[i].score);
    if (s->sampling.top_p < 1) {
        first = nucleus(candidate, end, s->sampling.top_p * mass);
        mass = 0;
        for (int64_t i = first; i < end; i++) mass += candidate[i].weight;
    }
    *ret_first = first, *ret_end = end, *ret_mass = mass;
    return OK;
}

Status sampler_pick(Sampler *s, const float *logits, uint64_t sequence, uint64_t position,
                    int32_t *ret_token) {
    if (s->sampling.temperature == 0) return largest_logit(s, logits, ret_token);
    int64_t first, end;
    double mass;
    TRY(filter(s, logits, &first, &end, &mass));
    double at = rng_uniform(rng_key(s->sampling.seed, "sample", sequence), position) * mass, sum = 0;
    int32_t token = s->candidate[first].id;
    for (int64_t i = first; i < end && sum <= at; i++) {
        if (s->candidate[i].weight == 0) continue;
        sum += s->candidate[i].weight;
        token = s->candidate[i].id;
    }
    *ret_token = token;
    return OK;
}

Status sampler_probabilities(Sampler *s, const float *logits, float *ret_probabilities) {
    int64_t first = 0, end = 1;
    double mass = 1;
    if (s->sampling.temperature > 0) {
        TRY(filter(s, logits, &first, &end, &mass));
    } else {
        s->candidate[0] = (Candidate){.weight = 1};
        TRY(largest_logit(s, logits, &s->candidate[0].id));
    }
    for (int64_t i = 0; i < s->vocab; i++) ret_probabilities[i] = 0;
    for (int64_t i = first; i < end; i++)
        ret_probabilities[s->candidate[i].id] = (float)(s->candidate[i].weight / mass);
    return OK;
}
