/* Candidates are (score, id, weight). Top-k finds the k-th largest score with a heap of k; top-p and
 * typical-p pop candidates from a heap, the likeliest or most typical first, until their probability mass is
 * reached. None of them sorts the whole vocabulary, since usually few tokens remain.
 */
#include "infer/sampler.h"

#include <math.h>

#include "base/memory.h"
#include "base/rng.h"
#include "infer/logits.h"

typedef struct Candidate {
    float score;  /* (logit - largest logit) / temperature */
    float weight; /* exp(score), not normalized */
    float key;    /* candidates with larger keys are kept */
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
    if (!(s->min_p >= 0 && s->min_p <= 1)) return USAGE("min-p is %g; it must be from 0 to 1", s->min_p);
    if (!(s->typical_p >= 0 && s->typical_p <= 1))
        return USAGE("typical-p is %g; it must be above 0 and at most 1", s->typical_p);
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
    return MOVE(ret_sampler, s);
}

void sampler_free(Sampler *s) {
    if (!s) return;
    free(s->candidate);
    free(s->heap);
    free(s);
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
static bool precedes(const Candidate *a, const Candidate *b) {
    return a->key > b->key || (a->key == b->key && a->id > b->id);
}

/* Restores the max-heap below `at`. */
static void sift_max(Candidate *heap, int64_t count, int64_t at) {
    for (int64_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && precedes(&heap[child + 1], &heap[child])) child++;
        if (!precedes(&heap[child], &heap[at])) return;
        Candidate swap = heap[at];
        heap[at] = heap[child], heap[child] = swap;
    }
}

/* Moves the fewest candidates with the largest keys whose weights reach `mass` to the end of the array, in
 * ascending order; returns the index of the first. With `ties`, all candidates that share the last key are
 * moved as well. */
static int64_t nucleus(Candidate *candidate, int64_t count, double mass, bool ties) {
    for (int64_t i = count / 2; i-- > 0;) sift_max(candidate, count, i);
    double sum = 0;
    int64_t left = count;
    while (left > 0 && (left == count || sum < mass || (ties && candidate[0].key == candidate[left].key))) {
        Candidate top = candidate[0];
        candidate[0] = candidate[--left];
        candidate[left] = top;
        sift_max(candidate, left, 0);
        sum += top.weight;
    }
    return left;
}

/* The candidates [first, end), whose weights sum to `mass`. */
typedef struct Kept {
    int64_t first, end;
    double mass;
} Kept;

static void sum_weights(const Sampler *s, Kept *kept) {
    kept->mass = 0;
    for (int64_t i = kept->first; i < kept->end; i++) kept->mass += s->candidate[i].weight;
}

static void keep_top_k(Sampler *s, Kept *kept) {
    Candidate *candidate = s->candidate;
    float threshold = kth_largest(s->heap, s->sampling.top_k, candidate, kept->end);
    kept->end = 0;
    for (int64_t i = 0; i < s->vocab; i++)
        if (candidate[i].score >= threshold) candidate[kept->end++] = candidate[i];
}

static void keep_top_p(Sampler *s, Kept *kept) {
    for (int64_t i = 0; i < kept->end; i++) s->candidate[i].key = s->candidate[i].score;
    kept->first = nucleus(s->candidate, kept->end, s->sampling.top_p * kept->mass, false);
    sum_weights(s, kept);
}

/* The likeliest candidate has weight 1. */
static void keep_min_p(Sampler *s, Kept *kept) {
    int64_t end = kept->first;
    for (int64_t i = kept->first; i < kept->end; i++)
        if (s->candidate[i].weight >= s->sampling.min_p) s->candidate[end++] = s->candidate[i];
    kept->end = end;
    sum_weights(s, kept);
}

/* Keeps the tokens whose information content, -log p, is closest to the entropy. */
static void keep_typical(Sampler *s, Kept *kept) {
    Candidate *candidate = s->candidate + kept->first;
    int64_t count = kept->end - kept->first;
    double entropy = 0, log_mass = log(kept->mass);
    for (int64_t i = 0; i < count; i++)
        if (candidate[i].weight > 0)
            entropy -= candidate[i].weight / kept->mass * (candidate[i].score - log_mass);
    for (int64_t i = 0; i < count; i++)
        candidate[i].key = (float)-fabs(log_mass - candidate[i].score - entropy);
    kept->first += nucleus(candidate, count, s->sampling.typical_p * kept->mass, true);
    sum_weights(s, kept);
}

/* Applies temperature and the filters. */
static Status filter(Sampler *s, const float *logits, Kept *ret_kept) {
    Candidate *candidate = s->candidate;
    const Sampling *sampling = &s->sampling;
    int32_t best = 0;
    TRY(logits_largest(logits, s->vocab, &best));
    /* Subtracting the largest first avoids infinities at tiny temperatures. */
    double top = logits[best];
    for (int64_t i = 0; i < s->vocab; i++)
        candidate[i] =
            (Candidate){.score = (float)((logits[i] - top) / sampling->temperature), .id = (int32_t)i};
    Kept kept = {.end = s->vocab};
    if (sampling->top_k) keep_top_k(s, &kept);
    for (int64_t i = 0; i < kept.end; i++) candidate[i].weight = expf(candidate[i].score);
    sum_weights(s, &kept);
    if (sampling->top_p < 1) keep_top_p(s, &kept);
    if (sampling->min_p > 0) keep_min_p(s, &kept);
    if (sampling->typical_p > 0 && sampling->typical_p < 1) keep_typical(s, &kept);
    *ret_kept = kept;
    return OK;
}

Status sampler_pick(Sampler *s, const float *logits, uint64_t sequence, uint64_t position,
                    int32_t *ret_token) {
    if (s->sampling.temperature == 0) return logits_largest(logits, s->vocab, ret_token);
    Kept kept;
    TRY(filter(s, logits, &kept));
    double at = rng_uniform(rng_key(s->sampling.seed, "sample", sequence), position) * kept.mass, sum = 0;
    int32_t token = s->candidate[kept.first].id;
    for (int64_t i = kept.first; i < kept.end && sum <= at; i++) {
        if (s->candidate[i].weight == 0) continue;
        sum += s->candidate[i].weight;
        token = s->candidate[i].id;
    }
    *ret_token = token;
    return OK;
}

Status sampler_probabilities(Sampler *s, const float *logits, float *ret_probabilities) {
    Kept kept = {.end = 1, .mass = 1};
    if (s->sampling.temperature > 0) {
        TRY(filter(s, logits, &kept));
    } else {
        s->candidate[0] = (Candidate){.weight = 1};
        TRY(logits_largest(logits, s->vocab, &s->candidate[0].id));
    }
    for (int64_t i = 0; i < s->vocab; i++) ret_probabilities[i] = 0;
    for (int64_t i = kept.first; i < kept.end; i++)
        ret_probabilities[s->candidate[i].id] = (float)(s->candidate[i].weight / kept.mass);
    return OK;
}
