#include "plan/search_space.h"

#include <string.h>

#include "base/memory.h"

enum { MOST_MICRO_BATCH = 64, MOST_MICROS = 1 << 16, MOST_CHUNKS = 64, MOST_LAYOUTS = 1 << 20 };

void search_space_done(SearchSpace *space) {
    free(space->layout);
    *space = (SearchSpace){0};
}

const char *recompute_word(Recompute recompute) {
    static const char *const words[] = {"none", "selective", "block"};
    return words[recompute];
}

PlanSpec search_plan_spec(const SearchSpec *spec, const SearchLayout *layout) {
    PlanSpec plan = spec->base;
    TrainConfig *c = &plan.config;
    plan.mesh = (MeshSpec){.dp = layout->dp, .tp = layout->tp, .pp = layout->pp};
    c->zero = layout->zero;
    c->sequence = layout->sequence;
    c->micro_batch = layout->micro_batch;
    c->pp_schedule = schedule_name(layout->schedule);
    c->pp_chunks = layout->schedule == SCHEDULE_INTERLEAVED ? layout->chunks : 0;
    c->recompute = recompute_word(layout->recompute);
    return plan;
}

/* What is being listed; the layout is filled from the outermost choice to the innermost. */
typedef struct Lister {
    SearchSpace *space;
    const SearchSpec *spec;
    const ModelConfig *model;
    int64_t seq;
    SearchLayout at;
} Lister;

static bool is_fixed(const Lister *lister, Fixed what) {
    return lister->spec->fixed & what;
}

static Status add_layout(Lister *lister) {
    SearchSpace *space = lister->space;
    if (space->count == MOST_LAYOUTS)
        return USAGE("more than %d layouts are legal: fix some of them, such as --tp, --pp or --micro-batch",
                     MOST_LAYOUTS);
    TRY(mem_grow(&space->layout, &space->capacity, space->count + 1, sizeof *space->layout));
    space->layout[space->count++] = lister->at;
    return OK;
}

static Status list_recompute(Lister *lister) {
    Recompute only = RECOMPUTE_NONE;
    TRY(recompute_parse(lister->spec->base.config.recompute, &only));
    for (Recompute r = RECOMPUTE_NONE; r <= RECOMPUTE_BLOCK; r++) {
        if (is_fixed(lister, FIXED_RECOMPUTE) && r != only) continue;
        lister->at.recompute = r;
        TRY(add_layout(lister));
    }
    return OK;
}

/* Without several tensor ranks there is nothing to cut over them. */
static Status list_sequence(Lister *lister) {
    for (int on = 0; on <= 1; on++) {
        bool fixed = is_fixed(lister, FIXED_SEQUENCE) && on != lister->spec->base.config.sequence;
        if (lister->at.tp == 1 ? on : fixed) continue;
        if (on && lister->seq % lister->at.tp) continue;
        lister->at.sequence = on;
        TRY(list_recompute(lister));
    }
    return OK;
}

static Status list_zero(Lister *lister) {
    for (int zero = 0; zero <= 3; zero++) {
        if (is_fixed(lister, FIXED_ZERO) ? zero != lister->spec->base.config.zero
                                         : zero && lister->at.dp == 1)
            continue;
        lister->at.zero = zero;
        TRY(list_sequence(lister));
    }
    return OK;
}

/* Chunks that make all parts equal, and two where none do. */
static Status list_chunks(Lister *lister) {
    const ModelConfig *model = lister->model;
    int64_t fixed = lister->spec->base.config.pp_chunks;
    int most = (int)(model->layers / lister->at.pp), listed = 0;
    for (int chunks = 2; chunks <= most && chunks <= MOST_CHUNKS; chunks++) {
        bool even = model->layers % ((int64_t)chunks * lister->at.pp) == 0;
        if (is_fixed(lister, FIXED_CHUNKS) ? chunks != fixed : !even && !(chunks == most && !listed))
            continue;
        lister->at.chunks = chunks;
        listed++;
        TRY(list_zero(lister));
    }
    return OK;
}

static Status list_schedules(Lister *lister) {
    static const ScheduleKind kinds[] = {SCHEDULE_1F1B, SCHEDULE_INTERLEAVED, SCHEDULE_ZERO_BUBBLE,
                                         SCHEDULE_GPIPE};
    ScheduleKind only = SCHEDULE_1F1B;
    const char *name = lister->spec->base.config.pp_schedule;
    TRY(schedule_parse(name ? name : "1f1b", &only));
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        bool staged = lister->at.pp > 1;
        if (staged ? is_fixed(lister, FIXED_SCHEDULE) && kinds[i] != only : i > 0) continue;
        lister->at.schedule = kinds[i];
        lister->at.chunks = 1;
        if (kinds[i] == SCHEDULE_INTERLEAVED)
            TRY(list_chunks(lister));
        else
            TRY(list_zero(lister));
    }
    return OK;
}

static Status list_micro_batches(Lister *lister) {
    const TrainConfig *c = &lister->spec->base.config;
    int64_t share = c->batch / lister->at.dp;
    for (int64_t micro = 1; micro <= share && micro <= MOST_MICRO_BATCH; micro++) {
        if (share % micro || share / micro > MOST_MICROS) continue;
        if (is_fixed(lister, FIXED_MICRO_BATCH) && micro != c->micro_batch) continue;
        lister->at.micro_batch = micro;
        lister->at.micros = (int)(share / micro);
        TRY(list_schedules(lister));
    }
    return OK;
}

static Status list_grid(Lister *lister, int tp, int pp) {
    const ModelConfig *model = lister->model;
    const MeshSpec *base = &lister->spec->base.mesh;
    SearchGrids *grids = &lister->space->grids;
    int dp = lister->spec->ranks / tp / pp;
    if ((is_fixed(lister, FIXED_TP) && tp != base->tp) || (is_fixed(lister, FIXED_PP) && pp != base->pp) ||
        (is_fixed(lister, FIXED_DP) && dp != base->dp))
        return OK;
    grids->all++;
    if (model->heads % tp || model->inner % tp) return grids->by_heads++, OK;
    if (pp > model->layers) return grids->by_layers++, OK;
    if (lister->spec->base.config.batch % dp) return grids->by_batch++, OK;
    lister->at.tp = tp;
    lister->at.pp = pp;
    lister->at.dp = dp;
    return list_micro_batches(lister);
}

Status search_space_init(SearchSpace *ret_space, const SearchSpec *spec, const ModelConfig *model,
                         int64_t seq) {
    CLEANUP(search_space_done) SearchSpace space = {0};
    Lister lister = {.space = &space, .spec = spec, .model = model, .seq = seq};
    for (int tp = 1; tp <= spec->ranks; tp++)
        for (int pp = 1; spec->ranks % tp == 0 && pp <= spec->ranks / tp; pp++)
            if (spec->ranks / tp % pp == 0) TRY(list_grid(&lister, tp, pp));
    *ret_space = space;
    space = (SearchSpace){0};
    return OK;
}
