/* Cluster descriptions (clusters/NAME.json): the performance of a device, its node and the links.
 *
 * Every figure is an object {"value": ..., "source": "..."} that records where the value comes from.
 * Bandwidths are in bytes/s per device and direction, rates in operations/s, shares are fractions of 1. The
 * files of the source tree are compiled into the program, so their names work everywhere; a path to a file of
 * the same format works as well. */
#ifndef WEFT_PLAN_CLUSTER_H
#define WEFT_PLAN_CLUSTER_H

#include "plan/kernel_curve.h"

typedef enum { RATE_FP32, RATE_TF32, RATE_BF16, RATE_FP16, RATE_FP8, RATE_COUNT } Rate;

typedef struct Link {
    double latency_s, bandwidth;
    double share; /* fraction of the bandwidth that large collectives reach */
} Link;

enum { CLUSTER_NAME = 64 };

/* What other software does in one pass over a layer. The first three count how often a tensor is read or
 * written outside of GEMMs. */
typedef struct LayerProfile {
    double rows;     /* (tokens, hidden), replicated on every tensor-parallel rank */
    double parts;    /* (tokens, hidden), sharded across tensor-parallel ranks */
    double scores;   /* the attention score matrix */
    double launches; /* kernel launches */
    double stall_s;  /* time that the device waits for the host */
} LayerProfile;

/* Layers with causal attention (GPT-2) and with bidirectional attention (BERT). */
typedef enum { LAYER_CAUSAL, LAYER_BIDIRECTIONAL, LAYER_KINDS } LayerKind;

/* Training software other than weft that plans are made for. */
typedef struct Software {
    bool present; /* false: plans are for weft, and the rest is unused */
    char title[CLUSTER_NAME];
    LayerProfile forward[LAYER_KINDS], backward[LAYER_KINDS];
    double recompute_stall_s; /* additional stall per layer for recompute */
    double score_share;       /* fraction of the memory bandwidth that passes over the score matrix reach */
    double loss_bytes;        /* memory traffic per logit */
    double update_bytes; /* memory traffic per parameter of the optimizer step, including the gradient norm */
    double update_stall_s; /* time that the device waits for the host, per part of the optimizer step */
    double tensor_wait_s;  /* time lost at every tensor-parallel all-reduce, waiting for the slowest rank */
    double gradient_bytes; /* bytes per gradient element in data-parallel communication */
    double overlap;        /* 1: gradient communication overlaps with backward */
    double all_positions;  /* 1: the masked-LM head computes logits at all positions */
    double launch_s;       /* host time per kernel launch; replaces Cluster.launch_s */
    /* Memory: bytes per parameter including gradient and optimizer state, and per logit; activations stored
     * per layer between forward and backward, as multiples of the tensors in LayerProfile. Its allocator
     * caches freed blocks that later requests do not fit in: a fraction of the memory in use, as far as the
     * device has `available` memory. */
    double held_param_bytes, held_logit_bytes, held_rows, held_parts, held_scores, held_fragmentation;
    double available; /* derived: memory of the device without the reserve */
} Software;

typedef struct Cluster {
    char name[CLUSTER_NAME], device[CLUSTER_NAME];
    bool gpu;
    double capability;                  /* compute capability of the GPU, such as 9.0; 0: not known */
    double memory_bytes, reserve_bytes; /* device memory; the part of it that a run cannot use */
    double memory_bandwidth;
    double peak_flops[RATE_COUNT]; /* 0: precision not supported, or not measured */
    /* An M x N x K GEMM takes 2 (M N + wave / 2) (K + depth) / (share x peak) seconds: tiles are computed in
     * waves, half a wave is lost on average, and every tile has a prologue and an epilogue. */
    double product_share[RATE_COUNT]; /* 0 if peak_flops is 0 */
    double product_wave, product_depth;
    double memory_share;       /* fraction of the bandwidth that memory-bound kernels reach */
    double vector_flops;       /* operations/s outside of GEMMs */
    double attention_share[2]; /* fraction of the peak rate, forward and backward */
    double launch_s;           /* host time per kernel launch */
    double kernel_s;           /* device time to start and end a kernel */
    double devices_per_node;
    double price_per_hour;    /* of a GPU, or of a node without GPUs; 0: unknown */
    double power_watts;       /* likewise; 0: unknown */
    double host_memory_bytes; /* per node */
    Link within, between;     /* between devices of the same node, and of different nodes */
    Link host;                /* between a device and host memory */
    Software software;        /* not present: weft */
    /* Measured kernel times by precision; kernels without a curve are computed from the figures above. */
    KernelCurves kernels[RATE_COUNT];
} Cluster;

/* Whether the devices compute in a precision: weft's kernels need a compute capability, other programs only a
 * peak rate. */
bool cluster_computes(const Cluster *cluster, Rate rate);
double rate_capability(Rate rate); /* that weft needs; 0: any */

/* What weft needs on GPUs and cannot do there, a sentence without a full stop; NULL: nothing. */
const char *cluster_needs(const Cluster *cluster);

/* What a price per hour is multiplied by: GPUs, or nodes without GPUs. */
double cluster_units(const Cluster *cluster, double ranks);

/* The list price per hour of a GPU by the name that CUDA reports; 0: no built-in cluster has such GPUs. */
MUST_USE Status cluster_list_price(const char *gpu, double *ret_price);

/* Finds a cluster by built-in name or path; CLUSTER+PROGRAM, with the name of a built-in program or the path
 * of a file with a "software" section's keys, has that program's profile instead of the cluster's. */
MUST_USE Status cluster_find(const char *name, Cluster *ret_cluster);
/* `from` names the text in messages. */
MUST_USE Status cluster_parse(const char *text, size_t size, const char *from, Cluster *ret_cluster);
const char *rate_name(Rate rate); /* "fp32" ..., as in DeviceSettings.precision */
/* Names of the built-in clusters in alphabetical order, NULL-terminated. */
const char *const *cluster_names(void);

/* Text of a built-in cluster. The table is generated by the build and ends with a NULL name. */
typedef struct ClusterText {
    const char *name, *begin, *end;
} ClusterText;
extern const ClusterText weft_clusters[],
    weft_programs[]; /* clusters/NAME.json, clusters/software/NAME.json */

#endif
