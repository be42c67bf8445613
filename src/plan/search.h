/* The fastest layouts of a model on so many devices: all that are legal are looked at.
 *
 * In three steps. Every legal layout is listed (search_space.c): all ways to write the ranks as replicas x
 * tensor ranks x stages, and for each every ZeRO stage, micro-batch, schedule, number of chunks, mode of
 * recomputation, with and without sequence parallelism. That is tens of thousands. Each gets an estimate of
 * its time and memory (search_cost.c), put together from what single layers take: those are planned for
 * real, a few hundred of them. The most promising are then planned and simulated as wholes, as `weft plan`
 * does it for one layout, and only these figures rank them. */
#ifndef WEFT_PLAN_SEARCH_H
#define WEFT_PLAN_SEARCH_H

#include "plan/cluster.h"
#include "plan/plan.h"
#include "plan/time.h"

/* What a search may choose. A bit that is set in SearchSpec.fixed leaves the base's as it is. */
typedef enum {
    FIXED_DP = 1,
    FIXED_TP = 2,
    FIXED_PP = 4,
    FIXED_ZERO = 8,
    FIXED_SEQUENCE = 16,
    FIXED_MICRO_BATCH = 32,
    FIXED_SCHEDULE = 64,
    FIXED_CHUNKS = 128,
    FIXED_RECOMPUTE = 256,
} Fixed;

typedef struct SearchSpec {
    PlanSpec base; /* model, batch, precision, device; of the layout what is fixed */
    int ranks;
    unsigned fixed;
    int plans; /* layouts to plan in full, and no others beside them; 0: as many as it takes */
} SearchSpec;

typedef struct SearchLayout {
    int dp, tp, pp, zero, chunks, micros;
    bool sequence;
    ScheduleKind schedule;
    Recompute recompute;
    int64_t micro_batch;
    double seconds, bytes; /* estimates */
} SearchLayout;

/* One that was planned as a whole. */
typedef struct SearchResult {
    SearchLayout layout;
    size_t bytes; /* what a rank needs of its device, also to write a checkpoint */
    bool fits;
    StepEstimate time; /* also where it does not fit */
} SearchResult;

/* Ways to write the ranks as dp x tp x pp, and why some of them cannot be. */
typedef struct SearchGrids {
    int all, by_heads, by_layers, by_batch;
} SearchGrids;

/* Layouts that the first may be held against. */
typedef enum {
    OTHER_DDP,          /* replicas alone, nothing sharded */
    OTHER_FSDP,         /* replicas alone, everything sharded */
    OTHER_DATA,         /* the best of replicas alone */
    OTHER_TENSOR,       /* without stages */
    OTHER_PIPELINE,     /* without tensor ranks */
    OTHER_WIDE,         /* tensor ranks on several nodes */
    OTHER_NO_RECOMPUTE, /* the best that computes nothing twice */
    OTHER_1F1B,         /* the best with the plain schedule */
    OTHER_LARGE,        /* the fastest by its estimate that does not fit */
    OTHER_COUNT
} SearchOther;

enum { SEARCH_BEST = 10 };

typedef struct Search {
    ModelConfig model;
    int64_t seq, params_total;
    double available; /* bytes of a device for a rank */
    SearchGrids grids;
    size_t legal, roomy; /* layouts; those that fit by their estimate */
    size_t planned;
    SearchResult best[SEARCH_BEST]; /* that fit, the fastest first */
    int count;
    SearchResult other[OTHER_COUNT];
    bool has_other[OTHER_COUNT]; /* there are such, and they are not the first */
    /* Where none fits: the one that needs least of those planned, and whether others are far from fitting. */
    SearchResult smallest;
    bool sure;
} Search;

/* Refuses ranks of which no legal layout can be made. That none fits is a result. */
MUST_USE Status search_find(Search *ret_search, const SearchSpec *spec, const Cluster *cluster);
/* "--dp 2 --tp 8 ...", as one would type it. */
enum { SEARCH_OPTIONS = 240 };
const char *search_options(const SearchLayout *layout, char text[SEARCH_OPTIONS]);
const char *search_other_name(SearchOther other); /* "pure data parallelism" ... */
/* Why the first is faster than this one, in words. */
enum { SEARCH_TEXT = 400 };
const char *search_why(const SearchResult *first, const SearchResult *other, char text[SEARCH_TEXT]);
MUST_USE Status search_json(const Search *search, const SearchSpec *spec, const Cluster *cluster,
                            json_t **ret_json);

#endif
