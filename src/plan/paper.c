#include "plan/paper.h"

#include <string.h>

/* A step's memory is the same as any later one's: the second says what a step sends, the first what comes
 * once. */
enum { STEPS = 2 };

typedef struct OnPaper {
    Device *device;
    Mesh *mesh;
    Runner *runner;
    HostBatch **micro;
} OnPaper;

static void on_paper_done(OnPaper *paper) {
    runner_free(paper->runner);
    mesh_free(paper->mesh);
    device_free(paper->device);
    free(paper->micro);
}

static Status on_paper_init(OnPaper *paper, const PaperRun *run, int rank) {
    RunnerSpec spec = run->spec;
    bool gpu = strcmp(run->device, "cuda") == 0;
    TRY(device_new_paper(&paper->device, run->threads));
    TRY(mesh_new_paper(&paper->mesh, run->mesh, rank, !gpu));
    TRY(kernels_on_paper(run->device, &spec.table));
    spec.mesh = paper->mesh;
    TRY(runner_new(&paper->runner, run->model, paper->device, &spec));
    TRY(runner_publish(paper->runner));
    int most = spec.micros > run->evals ? spec.micros : run->evals;
    TRY(mem_new((size_t)most, sizeof *paper->micro, &paper->micro));
    for (int i = 0; i < most; i++) paper->micro[i] = (HostBatch *)run->batch;
    return OK;
}

static void count_params(const Runner *runner, PaperRank *result) {
    for (int i = 0; i < runner->shards->count; i++) {
        const ShardUnit *unit = &runner->shards->unit[i];
        if (!unit->held) continue;
        int64_t count = 0;
        for (size_t k = 0; k < unit->layout.count; k++) count += unit->layout.slot[k].count;
        result->params += count;
        result->kept += runner->shards->spec.params ? unit->count : count;
    }
    for (int c = 0; c < runner->chunks; c++) result->blocks += runner->chunk[c].count;
}

/* To write a checkpoint, a unit that several ranks have parts of comes together on one (checkpoint/save.c);
 * which rank that is does not matter here. A tied unit is written by the stage that it counts on. */
static Status measure_saving(const OnPaper *paper, size_t *ret_total) {
    const Shards *shards = paper->runner->shards;
    size_t tensors = (size_t)shards->spec.tp->size, most = 0;
    for (int i = 0; i < shards->count; i++) {
        const ShardUnit *unit = &shards->unit[i];
        size_t bytes = tensors * (size_t)unit->layout.numel * sizeof(float);
        bool parts = tensors > 1 || unit->count < unit->layout.numel;
        if (unit->held && unit->counted && parts && bytes > most) most = bytes;
    }
    CLEANUP(dev_free) Buffer buffer = {0};
    TRY(dev_alloc(paper->device, MEM_COMM, most, &buffer));
    *ret_total = paper->device->total.peak;
    return OK;
}

void paper_rank_done(PaperRank *rank) {
    tape_done(&rank->tape);
}

Status paper_rank_copy(PaperRank *ret_rank, const PaperRank *rank) {
    PaperRank copy = *rank;
    TRY(tape_copy(&copy.tape, &rank->tape));
    *ret_rank = copy;
    return OK;
}

Status paper_rank(const PaperRun *run, int rank, PaperRank *ret_rank) {
    CLEANUP(on_paper_done) OnPaper paper = {0};
    PaperRank result = {0};
    CLEANUP(ledger_done) Ledger ledger = {0};
    TRY(on_paper_init(&paper, run, rank));
    uint64_t before[COMM_KINDS] = {0};
    for (int step = 1; step <= STEPS; step++) {
        StepResult step_result;
        mesh_sent(paper.mesh, before);
        if (run->timed && step == STEPS) paper.device->ledger = &ledger;
        TRY(runner_step(paper.runner, paper.micro, run->spec.micros, step, 1e-4, &step_result));
    }
    paper.device->ledger = NULL;
    mesh_sent(paper.mesh, result.sent);
    for (int k = 0; k < COMM_KINDS; k++) result.sent[k] -= before[k];
    double sums[LOSS_COUNT] = {0};
    int64_t counts[LOSS_COUNT] = {0};
    if (run->evals) TRY(runner_eval(paper.runner, paper.micro, run->evals, sums, counts, NULL));
    count_params(paper.runner, &result);
    for (int tag = 0; tag < MEM_TAGS; tag++) result.memory.tag[tag] = paper.device->mem[tag].peak;
    result.memory.total = paper.device->total.peak;
    result.memory.host = paper.device->host.peak;
    TRY(measure_saving(&paper, &result.memory.saving));
    if (run->timed) TRY(tape_init(&result.tape, &ledger, paper.runner, run->spec.micros));
    *ret_rank = result;
    return OK;
}

Status params_stored(const Model *model, int tp, int64_t *ret_count) {
    int64_t total = 0;
    for (int i = 0; i < model->units; i++) {
        Unit unit = {0};
        TRY(unit_init(&unit, &model->unit[i], (UnitSpec){.tp_size = tp, .shards = 1}));
        for (size_t k = 0; k < unit.count; k++) total += tp * unit.slot[k].count;
        unit_done(&unit);
    }
    *ret_count = total;
    return OK;
}
