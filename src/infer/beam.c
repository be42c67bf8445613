/* Scores are fp32 and excluded choices are lowered by 1e9, as in transformers, so that ranks agree with it
 * even when candidates run out. Ties go to the lower beam, then to the lower token.
 */
#include "infer/beam.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"

#define EXCLUDED (-1e9f)

/* A beam extended by a token. */
typedef struct Extension {
    float score; /* summed log probabilities */
    int32_t token;
    int64_t beam;
    bool ends;
    Ended ended;
} Extension;

struct BeamSearch {
    BeamOptions options;
    int64_t N, K;
    int64_t prompt_count, length;         /* length: new tokens so far */
    Extension *expanded;                  /* (N,K) of each beam, the best first */
    int64_t *expanded_count;              /* (N) */
    Extension *best;                      /* (K) merged, the best first */
    float *rank;                          /* (N+K) scores to select by */
    int64_t *chosen;                      /* (N) what was selected */
    bool *taken;                          /* (N+K) */
    Hypothesis *running, *running_next;   /* (N) */
    Hypothesis *finished, *finished_next; /* (N) */
    int64_t *parent;                      /* (N) */
    int32_t *storage;                     /* ids of all hypotheses */
    bool improvable, done;
};

static Status check_options(const BeamOptions *o) {
    if (o->beams < 1) return USAGE("beams is %lld; it must be at least 1", (long long)o->beams);
    if (!isfinite(o->length_penalty))
        return USAGE("length-penalty is %g; it must be finite", o->length_penalty);
    if (o->vocab < 2 || o->vocab <= o->end_count)
        return FAILED("beam search needs more tokens than the vocabulary of %lld has", (long long)o->vocab);
    return OK;
}

static Status new_hypotheses(const BeamSearch *s, int32_t **storage, Hypothesis **ret) {
    int64_t capacity = s->prompt_count + s->options.max_tokens;
    TRY(mem_new((size_t)s->N, sizeof **ret, ret));
    for (int64_t i = 0; i < s->N; i++, *storage += capacity)
        (*ret)[i] = (Hypothesis){.ids = *storage, .score = EXCLUDED};
    return OK;
}

static Status allocate(BeamSearch *s) {
    size_t N = (size_t)s->N, K = (size_t)s->K, ids;
    if (!mul_size(4 * N, (size_t)(s->prompt_count + s->options.max_tokens), &ids))
        return FAILED("not enough memory for %lld beams; use fewer", (long long)s->N);
    TRY(mem_new(N * K, sizeof *s->expanded, &s->expanded));
    TRY(mem_new(N, sizeof *s->expanded_count, &s->expanded_count));
    TRY(mem_new(K, sizeof *s->best, &s->best));
    TRY(mem_new(N + K, sizeof *s->rank, &s->rank));
    TRY(mem_new(N, sizeof *s->chosen, &s->chosen));
    TRY(mem_new(N + K, sizeof *s->taken, &s->taken));
    TRY(mem_new(N, sizeof *s->parent, &s->parent));
    TRY(mem_new(ids, sizeof *s->storage, &s->storage));
    int32_t *storage = s->storage;
    TRY(new_hypotheses(s, &storage, &s->running));
    TRY(new_hypotheses(s, &storage, &s->running_next));
    TRY(new_hypotheses(s, &storage, &s->finished));
    return new_hypotheses(s, &storage, &s->finished_next);
}

Status beam_search_new(BeamSearch **ret_search, const BeamOptions *options, const int32_t *prompt,
                       int64_t prompt_count) {
    TRY(check_options(options));
    CLEANUP(beam_search_freep) BeamSearch *s = NULL;
    TRY(mem_new(1, sizeof *s, &s));
    s->options = *options;
    s->N = options->beams;
    s->K = s->N * (options->end_count > 1 ? 1 + options->end_count : 2);
    s->prompt_count = prompt_count;
    s->improvable = true;
    TRY(allocate(s));
    /* The beams start equal: only the first may be continued, or all would choose the same tokens. */
    s->running[0].score = 0;
    for (int64_t i = 0; i < s->N; i++) {
        memcpy(s->running[i].ids, prompt, (size_t)prompt_count * sizeof *prompt);
        s->running[i].count = prompt_count;
    }
    return MOVE(ret_search, s);
}

void beam_search_free(BeamSearch *s) {
    if (!s) return;
    free(s->expanded);
    free(s->expanded_count);
    free(s->best);
    free(s->rank);
    free(s->chosen);
    free(s->taken);
    free(s->running);
    free(s->running_next);
    free(s->finished);
    free(s->finished_next);
    free(s->parent);
    free(s->storage);
    free(s);
}

/* ---- expanding a beam ---- */

static Status log_softmax(float *logits, int64_t vocab) {
    int32_t best = 0;
    TRY(logits_largest(logits, vocab, &best));
    float largest = logits[best];
    double sum = 0;
    for (int64_t i = 0; i < vocab; i++) sum += expf(logits[i] - largest);
    float log_sum = (float)log(sum);
    for (int64_t i = 0; i < vocab; i++) logits[i] = logits[i] - largest - log_sum;
    return OK;
}

/* Inserts an extension into a list sorted by descending score, after equal ones. */
static void insert(Extension *list, int64_t *count, int64_t limit, Extension extension) {
    int64_t at = *count < limit ? (*count)++ : limit - 1;
    for (; at > 0 && list[at - 1].score < extension.score; at--) list[at] = list[at - 1];
    list[at] = extension;
}

Status beam_expand(BeamSearch *s, int64_t beam, LogitProcessor *processor, float *logits) {
    const Hypothesis *running = &s->running[beam];
    TRY(log_softmax(logits, s->options.vocab));
    if (processor) logit_processor_apply(processor, running->ids, running->count, logits);
    Extension *list = s->expanded + beam * s->K;
    int64_t count = 0;
    for (int64_t i = 0; i < s->options.vocab; i++) {
        float score = logits[i] + running->score;
        if (count == s->K && !(score > list[count - 1].score)) continue;
        insert(list, &count, s->K, (Extension){.score = score, .token = (int32_t)i, .beam = beam});
    }
    s->expanded_count[beam] = count;
    return OK;
}

/* ---- a step ---- */

/* Merges the extensions of all beams into the best K. */
static int64_t merge(BeamSearch *s) {
    int64_t count = 0;
    for (int64_t b = 0; b < s->N; b++) {
        const Extension *list = s->expanded + b * s->K;
        for (int64_t i = 0; i < s->expanded_count[b]; i++) {
            if (count == s->K && !(list[i].score > s->best[count - 1].score)) break;
            insert(s->best, &count, s->K, list[i]);
        }
    }
    return count;
}

/* Sets how an extension ends, if it does. */
static Status find_end(BeamSearch *s, Extension *e, StopCheck check, void *context) {
    Hypothesis *from = &s->running[e->beam];
    bool stop = false, last = s->length + 1 == s->options.max_tokens, end = false;
    for (int i = 0; i < s->options.end_count; i++) end |= e->token == s->options.ends[i];
    if (check) {
        from->ids[from->count] = e->token; /* free until the beam is replaced */
        TRY(check(context, from->ids, s->prompt_count, from->count + 1, &stop));
    }
    e->ends = stop || end || last;
    e->ended = stop ? ENDED_STOP : end ? ENDED_END : ENDED_LENGTH;
    return OK;
}

/* Sets chosen to the N largest of rank (count), the best first. */
static void choose(BeamSearch *s, int64_t count) {
    memset(s->taken, 0, (size_t)count * sizeof *s->taken);
    for (int64_t n = 0; n < s->N; n++) {
        int64_t best = -1;
        for (int64_t i = 0; i < count; i++)
            if (!s->taken[i] && (best < 0 || s->rank[i] > s->rank[best])) best = i;
        s->taken[best] = true;
        s->chosen[n] = best;
    }
}

static void copy_hypothesis(Hypothesis *to, const Hypothesis *from) {
    int32_t *ids = to->ids;
    memcpy(ids, from->ids, (size_t)from->count * sizeof *ids);
    *to = *from;
    to->ids = ids;
}

static void extend(const BeamSearch *s, Hypothesis *to, const Extension *e, float score) {
    copy_hypothesis(to, &s->running[e->beam]);
    to->ids[to->count++] = e->token;
    to->score = score;
    to->ended = e->ended;
}

static bool all_finished(const BeamSearch *s) {
    bool all = true;
    for (int64_t i = 0; i < s->N; i++) all &= s->finished[i].finished;
    return all;
}

/* Keeps the best N of the hypotheses so far and the extensions that end. */
static void update_finished(BeamSearch *s, int64_t count) {
    float divisor = (float)pow((double)(s->length + 1), s->options.length_penalty);
    bool full = s->options.early_stopping == EARLY_TRUE && all_finished(s);
    for (int64_t i = 0; i < s->N; i++) s->rank[i] = s->finished[i].score;
    for (int64_t i = 0; i < count; i++) {
        float score = s->best[i].score / divisor;
        if (full) score += EXCLUDED;
        if (!s->improvable) score += EXCLUDED;
        if (!s->best[i].ends || i >= s->N) score += EXCLUDED;
        s->rank[s->N + i] = score;
    }
    choose(s, s->N + count);
    for (int64_t n = 0; n < s->N; n++) {
        int64_t from = s->chosen[n];
        if (from < s->N) {
            copy_hypothesis(&s->finished_next[n], &s->finished[from]);
            continue;
        }
        const Extension *e = &s->best[from - s->N];
        extend(s, &s->finished_next[n], e, s->rank[from]);
        s->finished_next[n].finished = e->ends && from - s->N < s->N;
    }
}

static void update_running(BeamSearch *s, int64_t count) {
    for (int64_t i = 0; i < count; i++) s->rank[i] = s->best[i].score + (s->best[i].ends ? EXCLUDED : 0);
    choose(s, count);
    for (int64_t n = 0; n < s->N; n++) {
        const Extension *e = &s->best[s->chosen[n]];
        extend(s, &s->running_next[n], e, s->rank[s->chosen[n]]);
        s->parent[n] = e->beam;
    }
}

/* Whether the best running beam could still become one of the N best hypotheses. */
static bool can_improve(const BeamSearch *s) {
    const BeamOptions *o = &s->options;
    bool longest = o->early_stopping == EARLY_NEVER && o->length_penalty > 0;
    double length = (double)(longest ? o->max_tokens : s->length);
    float possible = s->running[0].score / (float)pow(length, o->length_penalty);
    float worst = s->finished[0].score;
    for (int64_t i = 1; i < s->N; i++) worst = fminf(worst, s->finished[i].score);
    return possible > (all_finished(s) ? worst : fminf(worst, EXCLUDED));
}

Status beam_advance(BeamSearch *s, StopCheck check, void *context) {
    int64_t count = merge(s);
    if (s->best[0].score == -INFINITY)
        return FAILED("no token is left to choose: every one repeats an n-gram or has a bias of -inf");
    bool all_end = true;
    for (int64_t i = 0; i < count; i++) {
        TRY(find_end(s, &s->best[i], check, context));
        all_end &= s->best[i].ends;
    }
    update_finished(s, count);
    update_running(s, count);
    Hypothesis *swap = s->running;
    s->running = s->running_next, s->running_next = swap;
    swap = s->finished;
    s->finished = s->finished_next, s->finished_next = swap;
    s->length++;
    s->improvable = s->improvable && can_improve(s);
    bool closed = s->options.early_stopping == EARLY_TRUE && all_finished(s);
    s->done = !s->improvable || closed || all_end;
    return OK;
}

bool beam_done(const BeamSearch *s) {
    return s->done;
}

int64_t beam_parent(const BeamSearch *s, int64_t beam) {
    return s->parent[beam];
}

const int32_t *beam_ids(const BeamSearch *s, int64_t beam, int64_t *ret_count) {
    *ret_count = s->running[beam].count;
    return s->running[beam].ids;
}

const Hypothesis *beam_result(const BeamSearch *s, int64_t rank) {
    return &s->finished[rank];
}
