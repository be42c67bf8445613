/* The winner is the finished run with the most tokens a second. Why is read from the phases: what the others
 * spend on waiting, they do not spend on computing. */
#include "report/words.h"

#include <math.h>
#include <string.h>

#include "base/format.h"
#include "base/memory.h"

static const struct {
    const char *key, *name, *doing;
} phases[PHASES] = {
    {"compute_s", "compute", "computing"},
    {"optimizer_s", "optimizer", "updating weights"},
    {"data_s", "data", "reading data"},
    {"wait_data_s", "waiting for replicas", "waiting for the other replicas"},
    {"wait_tensor_s", "waiting for tensor ranks", "waiting for the other tensor-parallel ranks"},
    {"wait_pipeline_s", "waiting for stages", "waiting for other pipeline stages"},
};

const char *phase_name(Phase phase) {
    return phases[phase].name;
}

bool run_phases(const Run *run, double ret_share[PHASES]) {
    const json_t *rank;
    double share[PHASES] = {0}, total = 0;
    size_t i;
    json_array_foreach(json_object_get(run->summary, "ranks"), i, rank) {
        for (int p = 0; p < PHASES; p++) {
            double seconds =
                json_number_value(json_object_get(json_object_get(rank, "phases"), phases[p].key));
            if (!(isfinite(seconds) && seconds > 0)) continue;
            share[p] += seconds;
            total += seconds;
        }
    }
    for (int p = 0; p < PHASES && total > 0; p++) ret_share[p] = share[p] / total;
    return total > 0;
}

enum { TOKENS = 2, VAL_LOSS = 4, PEAK = 6 }; /* of figures[] */

/* The finished run with the most (sign 1) or least (sign -1) of a figure; NULL when none has it. */
static const Run *extreme(const Results *results, size_t figure, int sign) {
    const Run *best = NULL;
    for (size_t i = 0; i < results->count; i++) {
        const Run *run = &results->runs[i];
        double value = run_figure(run, figure);
        if (run->state != RUN_FINISHED || !isfinite(value)) continue;
        if (!best || sign * value > sign * run_figure(best, figure)) best = run;
    }
    return best;
}

static const Run *runner_up(const Results *results, const Run *winner) {
    const Run *best = NULL;
    for (size_t i = 0; i < results->count; i++) {
        const Run *run = &results->runs[i];
        if (run == winner || run->state != RUN_FINISHED || !isfinite(run_figure(run, TOKENS))) continue;
        if (!best || run_figure(run, TOKENS) > run_figure(best, TOKENS)) best = run;
    }
    return best;
}

/* "1.8 times" or "12 % more". */
static void put_more(FILE *out, double ratio) {
    if (ratio >= 1.5)
        fprintf(out, "%.1f times", ratio);
    else
        fprintf(out, "%.1f %% more than", 100 * (ratio - 1));
}

static void put_winner(FILE *out, const Results *results, const Run *winner) {
    char rate[FORMAT_SIZE];
    const Run *base = results->runs, *second = runner_up(results, winner);
    double own = run_figure(winner, TOKENS), other = run_figure(base, TOKENS);
    if (!second) {
        fprintf(out, "“%s” is the only run that finished: %s tokens/s.", winner->name,
                format_count(rate, own));
        return;
    }
    fprintf(out, "“%s” is the fastest: %s tokens/s", winner->name, format_count(rate, own));
    bool over_base = winner != base && base->state == RUN_FINISHED && isfinite(other) && other > 0;
    if (!over_base) other = run_figure(second, TOKENS);
    if (!(other > 0)) {
        fputs(".", out);
        return;
    }
    fputs(", ", out);
    put_more(out, own / other);
    fprintf(out, " the %s “%s”.", over_base ? "baseline" : "next,", over_base ? base->name : second->name);
}

static double waiting(const double *share) {
    return share[PHASE_WAIT_DATA] + share[PHASE_WAIT_TENSOR] + share[PHASE_WAIT_PIPELINE];
}

static Phase longest_wait(const double *share) {
    Phase most = PHASE_WAIT_DATA;
    for (Phase p = PHASE_WAIT_DATA; p < PHASES; p++)
        if (share[p] > share[most]) most = p;
    return most;
}

static void put_time(FILE *out, const Run *run, const double *share) {
    size_t ranks = json_array_size(json_object_get(run->summary, "ranks"));
    if (ranks > 1)
        fprintf(out, "%zu ranks that spend %.0f %% of the step time computing", ranks,
                100 * share[PHASE_COMPUTE]);
    else
        fprintf(out, "one rank that spends %.0f %% of the step time computing", 100 * share[PHASE_COMPUTE]);
    if (waiting(share) >= 0.01)
        fprintf(out, " and %.0f %% %s", 100 * waiting(share), phases[longest_wait(share)].doing);
}

/* What the winner and the slowest do with their time. */
static void put_why(FILE *out, const Results *results, const Run *winner) {
    double own[PHASES], other[PHASES];
    const Run *slowest = extreme(results, TOKENS, -1);
    if (!run_phases(winner, own)) return;
    fputs(" It has ", out);
    put_time(out, winner, own);
    if (slowest != winner && run_phases(slowest, other)) {
        fprintf(out, "; the slowest, “%s”, has ", slowest->name);
        put_time(out, slowest, other);
    }
    fputs(".", out);
}

static void put_memory(FILE *out, const Results *results) {
    char bytes[FORMAT_SIZE];
    const Run *least = extreme(results, PEAK, -1), *most = extreme(results, PEAK, 1);
    if (!least || least == most) return;
    double low = run_figure(least, PEAK), high = run_figure(most, PEAK);
    if (high <= low) return;
    fprintf(out,
            " “%s” needs the least memory, %s a rank at most: %.0f %% less than “%s”, which needs the most.",
            least->name, format_bytes(bytes, low), 100 * (1 - low / high), most->name);
}

static void put_loss(FILE *out, const Results *results) {
    const Run *least = extreme(results, VAL_LOSS, -1), *most = extreme(results, VAL_LOSS, 1);
    if (!least || least == most) return;
    double low = run_figure(least, VAL_LOSS), high = run_figure(most, VAL_LOSS);
    if (high - low <= 1e-3 * fabs(high))
        fputs(" All of them end at the same validation loss: they learned the same, in different time.", out);
    else
        fprintf(out, " The validation loss ends between %.4f (“%s”) and %.4f (“%s”).", low, least->name, high,
                most->name);
}

static void put_rest(FILE *out, const Results *results) {
    size_t failed = 0, open = 0;
    const Run *example = NULL;
    for (size_t i = 0; i < results->count; i++) {
        const Run *run = &results->runs[i];
        if (run->state == RUN_FAILED) {
            failed++;
            if (!example) example = run;
        } else if (run->state != RUN_FINISHED) {
            open++;
        }
    }
    if (failed == 1)
        fprintf(out, " “%s” could not run.", example->name);
    else if (failed)
        fprintf(out, " %zu runs could not run, “%s” among them.", failed, example->name);
    if (open) fprintf(out, " %zu run%s not finished.", open, open > 1 ? "s are" : " is");
}

Status results_words(const Results *results, char **ret_text) {
    CLEANUP(mem_freep) char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out) return FAILED("out of memory while writing the results");
    const Run *winner = extreme(results, TOKENS, 1);
    if (winner) {
        put_winner(out, results, winner);
        put_why(out, results, winner);
        put_memory(out, results);
        put_loss(out, results);
    } else {
        fputs("No run has finished.", out);
    }
    put_rest(out, results);
    bool bad = ferror(out) != 0;
    if (fclose(out) != 0 || bad) return FAILED("out of memory while writing the results");
    *ret_text = text;
    text = NULL;
    return OK;
}
