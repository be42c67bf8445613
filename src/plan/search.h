/* Searches for the fastest layouts of a model on a given number of devices.
 *
 * The search has three steps. First it enumerates every valid layout (search_space.c): all factorizations of
 * the ranks into dp x tp x pp and, for long sequences, cp in each mode, and for mixtures each ep, each with
 * every ZeRO stage, micro-batch size, schedule, number of chunks and recompute mode, with and without
 * sequence parallelism. That is tens of thousands of layouts. Then it estimates the time and memory of each
 * (search_cost.c) from the costs of a few hundred planned layers. Finally it plans and simulates the most
 * promising layouts in full, as `weft plan` does for one layout. Only these full plans determine the ranking.
 */
#ifndef WEFT_PLAN_SEARCH_H
#define WEFT_PLAN_SEARCH_H

#include "plan/cluster.h"
#include "plan/plan.h"
#include "plan/time.h"

/* Bits of SearchSpec.fixed: settings that the search keeps as they are in the base. */
typedef enum {
    FIXED_ZERO = 1,
    FIXED_SEQUENCE = 2,
    FIXED_MICRO_BATCH = 4,
    FIXED_SCHEDULE = 8,
    FIXED_CHUNKS = 16,
    FIXED_RECOMPUTE = 32,
    FIXED_CONTEXT = 64,
    FIXED_EXPERTS = 128,
} Fixed;

typedef struct SearchSpec {
    PlanSpec base; /* model, batch, precision and device, and the fixed layout settings */
    int ranks;
    unsigned fixed, axes; /* settings, and axes of the mesh, that are fixed */
    int plans;            /* number of full plans, not counting alternatives; 0: full search */
} SearchSpec;

typedef struct SearchLayout {
    MeshSpec mesh;
    int zero, chunks, micros;
    bool sequence;
    ContextMode cp_mode;
    ScheduleKind schedule;
    Recompute recompute;
    int64_t micro_batch;
    int grid;              /* number of its mesh, with ep, and mode of context parallelism */
    double seconds, bytes; /* estimates: step time, and device memory per rank */
} SearchLayout;

/* A layout that was planned in full. */
typedef struct SearchResult {
    SearchLayout layout;
    size_t bytes; /* device memory per rank, including checkpoint writing */
    bool fits;
    bool sketched;     /* memory may be slightly low, see PlanSpec.sketch; false for all that is reported */
    StepEstimate time; /* set even if it does not fit */
} SearchResult;

/* The number of factorizations dp x tp x pp, also x cp if `context`, and of those invalid because of the
 * heads, layers or batch, or because no mode of context parallelism can have them. */
typedef struct SearchGrids {
    int all, by_heads, by_layers, by_batch, by_context;
    bool context;
} SearchGrids;

/* Alternatives that are compared with the fastest layout. */
typedef enum {
    OTHER_DDP,      /* data parallelism only, nothing sharded */
    OTHER_FSDP,     /* data parallelism only, everything sharded */
    OTHER_DATA,     /* data parallelism only, any ZeRO stage */
    OTHER_TENSOR,   /* tensor parallelism, no pipeline */
    OTHER_PIPELINE, /* pipeline, no tensor parallelism */
    OTHER_WIDE,     /* tensor parallelism across nodes */
    OTHER_WHOLE,    /* no context parallelism */
    OTHER_HEADS,    /* context parallelism in each mode */
    OTHER_GATHER,
    OTHER_RING,
    OTHER_BOTH,
    OTHER_TOGETHER,     /* all experts on every rank */
    OTHER_NO_RECOMPUTE, /* no recompute */
    OTHER_1F1B,         /* pipeline with the non-interleaved 1F1B schedule */
    OTHER_LARGE,        /* the fastest by estimate of those that do not fit */
    OTHER_COUNT
} SearchOther;

enum { SEARCH_BEST = 10 };

typedef struct Search {
    ModelConfig model;
    int64_t seq, params_total;
    double available; /* device memory per rank, in bytes */
    SearchGrids grids;
    size_t legal, estimated_to_fit; /* valid layouts; those that fit by their estimate */
    SearchResult *plan; /* all layouts that were planned in full, fastest of those that fit first */
    size_t planned;
    SearchResult best[SEARCH_BEST]; /* layouts that fit, fastest first */
    int count;
    SearchResult other[OTHER_COUNT];
    bool has_other[OTHER_COUNT]; /* false if there is no such layout or it is the best */
    /* If nothing fits: the smallest planned layout, and whether every layout within reach was planned. */
    SearchResult smallest;
    bool all_tried;
} Search;

/* Fails with a usage error if there is no valid layout. That nothing fits is not an error: ret_search->count
 * is 0. */
MUST_USE Status search_find(Search *ret_search, const SearchSpec *spec, const Cluster *cluster);
void search_done(Search *search);
/* The layout as settings, as users write them. Returns `text`. */
enum { SEARCH_OPTIONS = 240 };
const char *search_options(const SearchLayout *layout, char text[SEARCH_OPTIONS]);
const char *search_other_name(SearchOther other); /* "fastest without recompute" ... */
/* Why `other` is slower than `first`: up to two phases that take longer. Empty if no phase stands out.
 * Returns `text`. */
enum { SEARCH_TEXT = 400 };
const char *search_why(const SearchResult *first, const SearchResult *other, char text[SEARCH_TEXT]);
/* What a layout loses most time to, compared with the fastest. */
typedef enum {
    LOSES_TO_MEMORY, /* does not fit */
    LOSES_TO_COMPUTE,
    LOSES_TO_RECOMPUTE,
    LOSES_TO_COMMUNICATION,
    LOSES_TO_BUBBLE,
    LOSES_TO_OPTIMIZER,
    LOSES_TO_NONE, /* as fast, within half a percent */
    LOSES_COUNT
} SearchLoss;
SearchLoss search_loss(const SearchResult *first, const SearchResult *other);
/* One line: "does not fit: ..." or how much slower it is and why. Returns `text`. */
const char *search_reason(const SearchResult *first, const SearchResult *other, double available,
                          char text[SEARCH_TEXT]);
MUST_USE Status search_json(const Search *search, const SearchSpec *spec, const Cluster *cluster,
                            json_t **ret_json);

#endif
