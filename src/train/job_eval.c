/* Evaluation on all ranks of a layout.
 *
 * Losses are computed in rounds: each replica takes a few batches, which flow through its pipeline stages.
 * Logits are gathered from all replicas to all ranks, so the code that consumes them need not know the
 * layout.
 *
 * If the data ends in the middle of a round, a replica without data still runs a batch with no loss terms,
 * because gathering sharded parameters is collective. */
#include <math.h>

#include "base/progress.h"
#include "model/head.h"
#include "train/job.h"

/* An evaluation is a section that ranks can abandon. */
static Status end_section(const Job *job) {
    bool stop;
    TRY(mesh_section_end(job->runner->mesh, &stop));
    return stop ? STOPPED("stopped by a signal") : OK;
}

static Status show_evaluation(const Job *job, const char *title, int64_t total, Progress **ret_progress) {
    if (!title) title = job->settings.run.train ? "validating" : "evaluating";
    return progress_new_phase(ret_progress, job->settings.report.log, title, total,
                              job->settings.report.quiet);
}

/* ---- losses ---- */

enum { ROUND_LIMIT = 64 };

typedef struct EvalRound {
    HostBatch *batch[ROUND_LIMIT];
    int count;
    int64_t stride; /* tokens between windows; 0: examples, not windows */
    int64_t tokens; /* of this replica in all rounds, without padding */
} EvalRound;

static void eval_round_done(EvalRound *round) {
    for (int i = 0; i < round->count; i++) host_batch_free(round->batch[i]);
}

/* Makes *batch a batch of `rows` sequences, reusing it if it has that size. */
static Status resize_batch(const Job *job, HostBatch **batch, int64_t rows, int64_t seq) {
    if (*batch && (*batch)->B == rows) return OK;
    host_batch_freep(batch);
    return host_batch_new_targets(batch, rows, seq, config_targets(&job->model->config));
}

/* Fills this replica's batches of the round that starts at batch `first` of the data. */
static Status fill_round(const Job *job, const Dataset *data, int64_t first, int64_t examples,
                         EvalRound *round) {
    int64_t B = job->runner->spec.micro_batch, replica = job->runner->mesh->at[AXIS_DP];
    for (int i = 0; i < round->count; i++) {
        int64_t at = (first + replica * round->count + i) * B;
        bool beyond = at >= examples;
        int64_t rows = beyond ? 1 : examples - at < B ? examples - at : B;
        HostBatch **batch = &round->batch[i];
        TRY(resize_batch(job, batch, rows, job->seq));
        if (beyond) at = 0;
        if (round->stride)
            TRY(dataset_fill_windows(data, round->stride, at, *batch));
        else
            TRY(dataset_fill(data, (uint64_t)at, false, *batch));
        if (beyond) host_batch_blank(*batch);
        for (int64_t b = 0; b < rows && !beyond && job->runner->mesh->at[AXIS_CP] == 0; b++)
            round->tokens += (*batch)->lens[b];
    }
    return OK;
}

/* Targets are numbers, so no prediction is simply right or wrong. */
static void forget_accuracy(const ModelConfig *config, double accuracy[LOSS_COUNT]) {
    for (HeadId id = 0; id < HEAD_COUNT; id++) {
        const Head *head = head_at(id);
        if (!(config->outputs_mask & 1u << id) || !head->targets || !head->targets(config)) continue;
        for (int k = 0; k < LOSS_COUNT; k++)
            if (head->traits.losses & 1u << k) accuracy[k] = NAN;
    }
}

static Status evaluate(const Job *job, const Dataset *data, int64_t examples, int64_t stride,
                       EvalResult *ret_result) {
    Runner *runner = job->runner;
    int64_t B = runner->spec.micro_batch;
    int stages = runner->mesh->extent[AXIS_PP], replicas = runner->mesh->extent[AXIS_DP];
    CLEANUP(eval_round_done) EvalRound round = {.count = stages == 1 ? 1 : stages * 4, .stride = stride};
    if (round.count > ROUND_LIMIT) round.count = ROUND_LIMIT;
    EvalResult result = {.examples = examples};
    int64_t hits[LOSS_COUNT] = {0};
    CLEANUP(progress_freep) Progress *progress = NULL;
    TRY(show_evaluation(job, NULL, examples, &progress));
    mesh_section_begin(runner->mesh, job->settings.run.stop);
    for (int64_t first = 0; first * B < examples; first += (int64_t)round.count * replicas) {
        progress_update(progress, first * B, "");
        TRY(fill_round(job, data, first, examples, &round));
        TRY(runner_eval(runner, round.batch, round.count, result.sum, result.counts, hits));
    }
    TRY(end_section(job));
    TRY(mesh_reduce(runner->mesh, AXES_COPIES, &round.tokens, 1, DT_I64, REDUCE_SUM));
    result.tokens = round.tokens;
    int64_t terms = 0;
    for (int k = 0; k < LOSS_COUNT; k++) terms += result.counts[k];
    if (!terms) return FAILED("the data has no tokens or labels to compute a loss on");
    result.loss = loss_objective(result.sum, result.counts);
    if (!isfinite(result.loss))
        return DIVERGED("the loss is %s; the checkpoint's weights are corrupt or diverged",
                        isnan(result.loss) ? "NaN" : "infinite");
    for (int k = 0; k < LOSS_COUNT; k++)
        if (result.counts[k]) {
            result.part[k] = result.sum[k] / (double)result.counts[k];
            result.accuracy[k] = (double)hits[k] / (double)result.counts[k];
        }
    forget_accuracy(&job->model->config, result.accuracy);
    *ret_result = result;
    return OK;
}

Status job_evaluate(const Job *job, const Dataset *data, int64_t limit, EvalResult *ret_result) {
    int64_t examples = dataset_count(data);
    return evaluate(job, data, limit > 0 && limit < examples ? limit : examples, 0, ret_result);
}

Status job_evaluate_windows(const Job *job, const Dataset *data, int64_t stride, EvalResult *ret_result) {
    return evaluate(job, data, dataset_windows(data, stride), stride, ret_result);
}

/* ---- logits ---- */

static int64_t rows_at(int64_t at, int64_t B, int64_t count) {
    return at >= count ? 0 : count - at < B ? count - at : B;
}

/* Values of a replica's own batch, and of all replicas'. */
typedef struct ScoreRound {
    HostBatch *batch;
    int32_t *rows;    /* that are picked */
    float *raw;       /* values that are condensed */
    float *own, *all; /* (B,width), (replicas,B,width) */
} ScoreRound;

static void round_done(ScoreRound *round) {
    host_batch_free(round->batch);
    free(round->rows);
    free(round->raw);
    free(round->own);
    free(round->all);
}

static Status round_init(const Job *job, const ScoreWork *work, ScoreRound *round) {
    int64_t B = job->runner->spec.micro_batch, replicas = job->runner->mesh->extent[AXIS_DP];
    if (work->pick) TRY(mem_new((size_t)(B * work->seq), sizeof *round->rows, &round->rows));
    if (work->condense) TRY(mem_new((size_t)(B * work->raw), sizeof *round->raw, &round->raw));
    TRY(mem_new((size_t)(B * work->width), sizeof *round->own, &round->own));
    return mem_new((size_t)(replicas * B * work->width), sizeof *round->all, &round->all);
}

typedef struct Reducing {
    const ScoreWork *work;
    const HostBatch *batch;
    const int32_t *rows; /* NULL: all */
} Reducing;

static void reduce_row(void *context, int64_t i, const float *logits, float *out) {
    const Reducing *reducing = context;
    int32_t row = reducing->rows ? reducing->rows[i] : (int32_t)i;
    reducing->work->reduce(reducing->work->context, reducing->batch, row, logits, out);
}

static Status compute(const Job *job, const ScoreWork *work, ScoreRound *round) {
    const HostBatch *batch = round->batch;
    Reducing reducing = {work, batch, round->rows};
    OutputWork output = {.head = work->head,
                         .rows = round->rows,
                         .count = work->pick ? work->pick(work->context, batch, round->rows) : 0,
                         .width = output_width(&job->model->config, work->head, 1)};
    if (work->reduce) {
        output.width = work->each;
        output.reduce = reduce_row;
        output.context = &reducing;
    }
    TRY(runner_outputs(job->runner, batch, &output, work->condense ? round->raw : round->own));
    if (work->condense) work->condense(work->context, batch, round->raw, round->own);
    return OK;
}

/* Gathers the replicas' values of a round. A replica past the end of the data computes the first example
 * again; its result is ignored. */
static Status score_round(const Job *job, int64_t first, int64_t count, const ScoreWork *work,
                          ScoreRound *round) {
    Runner *runner = job->runner;
    int64_t B = runner->spec.micro_batch, at = first + runner->mesh->at[AXIS_DP] * B;
    int64_t rows = rows_at(at, B, count);
    TRY(resize_batch(job, &round->batch, rows ? rows : 1, work->seq));
    TRY(work->fill(work->context, rows ? at : 0, round->batch));
    TRY(compute(job, work, round));
    return host_gather(runner->mesh->axis[AXIS_DP], round->all, round->own,
                       (size_t)(B * work->width) * sizeof *round->own);
}

static Status consume_round(const Job *job, int64_t first, int64_t count, const ScoreWork *work,
                            ScoreRound *round) {
    int64_t B = job->runner->spec.micro_batch, replicas = job->runner->mesh->extent[AXIS_DP];
    for (int64_t r = 0; r < replicas; r++) {
        int64_t at = first + r * B, rows = rows_at(at, B, count);
        if (!rows) break;
        if (replicas > 1) {
            TRY(resize_batch(job, &round->batch, rows, work->seq));
            TRY(work->fill(work->context, at, round->batch));
        }
        TRY(work->consume(work->context, at, round->batch, round->all + r * B * work->width));
    }
    return OK;
}

Status job_scores(const Job *job, int64_t count, const ScoreWork *work) {
    Runner *runner = job->runner;
    int64_t B = runner->spec.micro_batch, replicas = runner->mesh->extent[AXIS_DP];
    CLEANUP(round_done) ScoreRound round = {0};
    CLEANUP(progress_freep) Progress *progress = NULL;
    TRY(round_init(job, work, &round));
    TRY(show_evaluation(job, work->title, count, &progress));
    mesh_section_begin(runner->mesh, job->settings.run.stop);
    for (int64_t first = 0; first < count; first += replicas * B) {
        progress_update(progress, first, "");
        TRY(score_round(job, first, count, work, &round));
        TRY(consume_round(job, first, count, work, &round));
    }
    return end_section(job);
}
