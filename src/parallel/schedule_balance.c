/* Which blocks go to which part of a pipeline.
 *
 * best[p][n] is the best cut of the first n blocks into p runs: its run costs from the highest to the lowest
 * come first in the order of dictionaries. Adding a run to two cuts keeps their order, so the best cut into
 * p runs is a best cut into p - 1 with one run after it. That takes long for thousands of blocks; but a
 * transformer's are alike between its ends, and then each goes to the part that is the cheapest so far. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "parallel/schedule.h"

typedef struct Cuts {
    int count, parts;
    double *costs; /* [count + 1][parts]: of the best cut of that many blocks, descending */
    int *start;    /* [parts + 1][count + 1]: where its last run starts */
    double *trial, *next;
} Cuts;

static void cuts_done(Cuts *cuts) {
    free(cuts->costs);
    free(cuts->start);
    free(cuts->trial);
    free(cuts->next);
}

/* runs = sorted `from` with `cost` put in. */
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

/* The best cut of n blocks into p runs, into best; `cuts->costs` holds those into p - 1. */
static void cut(Cuts *cuts, const double *cost, int p, int n, double *best) {
    double run = 0;
    int *start = &cuts->start[p * (cuts->count + 1) + n];
    *start = -1;
    for (int from = n - 1; from >= p - 1; from--) {
        run += cost[from];
        if (p == 1 && from > 0) continue;
        insert_cost(cuts->trial, cuts->costs + (size_t)from * (size_t)cuts->parts, p - 1, run);
        /* A longer last run wins a draw. */
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

/* ---- blocks that are alike between two ends ---- */

static bool is_even(const double *cost, int count) {
    for (int i = 2; i < count - 1; i++)
        if (cost[i] != cost[1]) return false;
    return count < 3 || cost[1] > 0; /* those that cost nothing may go anywhere */
}

/* How many of them the first part, the last one and those between have; a few of the latter one more. */
typedef struct Shares {
    int first, last, each, more;
} Shares;

/* Among equals the later part takes a block. */
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
    if (parts < 1) return USAGE("a pipeline of %d parts: expected at least one", parts);
    if (count < parts)
        return USAGE(
            "%d blocks cannot be cut into %d parts of a pipeline, expected at most %d (stages x chunks)",
            count, parts, count);
    for (int i = 0; i < count; i++)
        if (!(cost[i] >= 0) || isinf(cost[i]))
            return FAILED("internal: block %d has the cost %g, expected a number from 0", i, cost[i]);
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
