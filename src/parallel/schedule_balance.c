/* Assigns blocks to the parts of a pipeline.
 *
 * Dynamic programming: best[p][n] is the best division of the first n blocks into p parts, that is, the one
 * whose part costs, sorted in descending order, are lexicographically smallest. Appending a part preserves
 * this order, so the best division into p parts extends a best division into p - 1. For thousands of blocks
 * that is slow; but all blocks of a transformer except the first and the last cost the same, and then a
 * greedy assignment to the cheapest part is optimal. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "parallel/schedule.h"

typedef struct Cuts {
    int count, parts;
    double *costs; /* [count + 1][parts]: part costs of the best division, descending */
    int *start;    /* [parts + 1][count + 1]: first block of the last part */
    double *trial, *next;
} Cuts;

static void cuts_done(Cuts *cuts) {
    free(cuts->costs);
    free(cuts->start);
    free(cuts->trial);
    free(cuts->next);
}

/* Inserts `cost` into the descending list `from`. */
static void insert_cost(double *runs, const double *from, int count, double cost) {
    int at = 0;
    while (at < count && from[at] >= cost) at++;
    memcpy(runs, from, (size_t)at * sizeof *runs);
    runs[at] = cost;
    memcpy(runs + at + 1, from + at, (size_t)(count - at) * sizeof *runs);
}

static bool is_better(const double *a, const double *b, int count) {
    int at = 0;
    while (at + 1 < count && a[at] == b[at]) at++;
    return a[at] < b[at];
}

/* The best division of n blocks into p parts; `cuts->costs` holds the costs for p - 1 parts. */
static void cut(Cuts *cuts, const double *cost, int p, int n, double *best) {
    double run = 0;
    int *start = &cuts->start[p * (cuts->count + 1) + n];
    *start = -1;
    for (int from = n - 1; from >= p - 1; from--) {
        run += cost[from];
        if (p == 1 && from > 0) continue;
        insert_cost(cuts->trial, cuts->costs + (size_t)from * (size_t)cuts->parts, p - 1, run);
        /* Ties go to the longer last part. */
        if (*start >= 0 && is_better(best, cuts->trial, p)) continue;
        memcpy(best, cuts->trial, (size_t)p * sizeof *best);
        *start = from;
    }
}

static void cut_all(Cuts *cuts, const double *cost) {
    size_t row = (size_t)cuts->parts;
    for (int p = 1; p <= cuts->parts; p++) {
        for (int n = p; n <= cuts->count; n++) cut(cuts, cost, p, n, cuts->next + (size_t)n * row);
        memcpy(cuts->costs, cuts->next, (size_t)(cuts->count + 1) * row * sizeof *cuts->costs);
    }
}

/* ---- equal blocks between two ends ---- */

static bool is_even(const double *cost, int count) {
    for (int i = 2; i < count - 1; i++)
        if (cost[i] != cost[1]) return false;
    return count < 3 || cost[1] > 0; /* zero-cost blocks may go anywhere */
}

/* Numbers of equal blocks: in the first part, in the last, and in each part in between, of which `more` parts
 * have one more. */
typedef struct Shares {
    int first, last, each, more;
} Shares;

/* Ties go to the later part. */
static Shares share_out(const double *cost, int count, int parts) {
    int between = parts - 2, left = count - 2 - between;
    Shares shares = {.each = between ? 1 : 0};
    for (; left > 0; left--) {
        double first = cost[0] + shares.first * cost[1], last = cost[count - 1] + shares.last * cost[1];
        double lowest = between ? shares.each * cost[1] : INFINITY;
        if (last <= lowest && last <= first) {
            shares.last++;
        } else if (lowest <= first) {
            shares.more++;
            if (shares.more == between) shares.each++, shares.more = 0;
        } else {
            shares.first++;
        }
    }
    return shares;
}

static void cut_even(const double *cost, int count, int parts, int *first) {
    first[0] = 0;
    first[parts] = count;
    if (parts == 1) return;
    Shares shares = share_out(cost, count, parts);
    first[1] = 1 + shares.first;
    for (int p = 1; p < parts - 1; p++)
        first[p + 1] = first[p] + shares.each + (p >= parts - 1 - shares.more);
}

Status stages_balance(const double *cost, int count, int parts, int *first) {
    if (parts < 1) return USAGE("a pipeline needs at least 1 part, not %d", parts);
    if (count < parts)
        return USAGE("cannot divide %d blocks into %d pipeline parts (stages x chunks); use at most %d",
                     count, parts, count);
    for (int i = 0; i < count; i++)
        if (!(cost[i] >= 0) || isinf(cost[i]))
            return FAILED("internal: block %d has cost %g; expected a number >= 0", i, cost[i]);
    if (is_even(cost, count)) return cut_even(cost, count, parts, first), OK;
    CLEANUP(cuts_done) Cuts cuts = {.count = count, .parts = parts};
    size_t cells = ((size_t)count + 1) * (size_t)parts;
    TRY(mem_new(cells, sizeof *cuts.costs, &cuts.costs));
    TRY(mem_new(cells, sizeof *cuts.next, &cuts.next));
    TRY(mem_new((size_t)parts, sizeof *cuts.trial, &cuts.trial));
    TRY(mem_new(((size_t)parts + 1) * ((size_t)count + 1), sizeof *cuts.start, &cuts.start));
    cut_all(&cuts, cost);
    first[parts] = count;
    for (int p = parts; p > 0; p--) first[p - 1] = cuts.start[p * (count + 1) + first[p]];
    return OK;
}
