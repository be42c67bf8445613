#include "train/pace.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* Short rounds vary by more than this for other reasons. */
static const double least_s = 0.05;
static const double slow = 2, fine = 1.5;

Status pace_init(Pace *ret_pace, int workers) {
    CLEANUP(pace_done) Pace pace = {.workers = workers};
    TRY(mem_new((size_t)workers, sizeof *pace.work_s, &pace.work_s));
    TRY(mem_new((size_t)workers, sizeof *pace.in_a_row, &pace.in_a_row));
    TRY(mem_new((size_t)workers, sizeof *pace.slow, &pace.slow));
    return MOVE(ret_pace, pace);
}

void pace_done(Pace *pace) {
    free(pace->work_s);
    free(pace->in_a_row);
    free(pace->slow);
    *pace = (Pace){0};
}

void pace_add(Pace *pace, int worker, double seconds) {
    pace->work_s[worker] += seconds;
}

/* The median of the others: the value with at most half of them below it and at most half above. */
static double median_of_others(const Pace *pace, int worker) {
    int others = pace->workers - 1;
    for (int i = 0; i < pace->workers; i++) {
        int below = 0, equal = 0;
        if (i == worker) continue;
        for (int j = 0; j < pace->workers; j++) {
            if (j == worker) continue;
            below += pace->work_s[j] < pace->work_s[i];
            equal += pace->work_s[j] == pace->work_s[i];
        }
        if (below <= others / 2 && below + equal > others / 2) return pace->work_s[i];
    }
    return 0;
}

int pace_round(Pace *pace, double *ret_factor) {
    int changed = -1;
    for (int w = 0; w < pace->workers && pace->workers > 1; w++) {
        double usual = median_of_others(pace, w), own = pace->work_s[w];
        bool late = own > slow * usual && own - usual > least_s;
        pace->in_a_row[w] = late ? pace->in_a_row[w] + 1 : 0;
        bool now = pace->slow[w] ? own > fine * usual : pace->in_a_row[w] > 1;
        if (changed >= 0 || now == pace->slow[w]) continue;
        pace->slow[w] = now;
        changed = w;
        *ret_factor = usual > 0 ? own / usual : 0;
    }
    memset(pace->work_s, 0, (size_t)pace->workers * sizeof *pace->work_s);
    return changed;
}
