/* Machines as data: what a device, its node and the links between them can do (clusters/NAME.json).
 *
 * Every figure is an object {"value": ..., "source": "..."}: where it comes from stands beside it. Bandwidths
 * are bytes a second of one device in one direction, rates operations a second. The files of the source tree
 * are part of the program, so that their names work anywhere; a file of the same form works as well. */
#ifndef WEFT_PLAN_CLUSTER_H
#define WEFT_PLAN_CLUSTER_H

#include "plan/kernel_curve.h"

typedef enum { RATE_FP32, RATE_TF32, RATE_BF16, RATE_FP16, RATE_FP8, RATE_COUNT } Rate;

typedef struct Link {
    double latency_s, bandwidth;
    double share; /* of the bandwidth that large collectives reach */
} Link;

enum { CLUSTER_NAME = 64 };

/* What a program other than weft does with a layer, forward and backward. */
typedef struct LayerHabit {
    double
        rows; /* times that (tokens, width) is read or written outside of products, on every tensor rank... */
    double parts;    /* ...and cut over them... */
    double scores;   /* ...and the matrix of all pairs of positions... */
    double masked;   /* ...and it again, where later positions are masked */
    double launches; /* kernels that the host starts */
    double stall_s;  /* that the device stands still for the host */
} LayerHabit;

/* A program other than weft, of which plans shall speak. */
typedef struct Software {
    bool present;
    char title[CLUSTER_NAME];
    LayerHabit forward, backward;
    double recompute_stall_s; /* for a layer's forward again */
    double loss_bytes;        /* that are moved for a logit */
    double update_bytes;      /* that are moved to update a parameter, the norm included */
    double update_stall_s;    /* that the device stands still for a layer's update */
    double gradient_bytes;    /* of a gradient on its way to other replicas */
    double overlap;           /* 1: it goes on its way during backward */
    double all_positions;     /* 1: masked tokens are predicted at all positions */
    double launch_s;          /* of the host, to start a kernel; in place of the device's */
    /* What is held: bytes of a parameter with all that belongs to it, and of a logit; and of a layer, between
     * forward and backward, how many times (tokens, width), the same cut over tensor ranks, and the scores.
     */
    double held_param_bytes, held_logit_bytes, held_rows, held_parts, held_scores;
} Software;

typedef struct Cluster {
    char name[CLUSTER_NAME], device[CLUSTER_NAME];
    bool gpu;
    double memory_bytes, reserve_bytes; /* of a device; what of it is not a run's to use */
    double memory_bandwidth;
    double peak_flops[RATE_COUNT]; /* 0: it has no such products */
    /* A product of M x N outputs, sums of K each, takes 2 (M N + wave / 2) (K + depth) / (share x peak):
     * tiles are computed a wave at a time, of which half of one is lost on average, and a tile takes a while
     * to begin and to end. */
    double product_share[RATE_COUNT]; /* 0 where the peak is */
    double product_wave, product_depth;
    double memory_share;       /* of the bandwidth that kernels reach which only move memory */
    double vector_flops;       /* operations a second outside of products */
    double attention_share[2]; /* of the peak rate, forward and backward */
    double launch_s;           /* of the host, to start a kernel */
    double kernel_s;           /* of the device, to begin and end one */
    double devices_per_node;
    double host_memory_bytes; /* of a node */
    Link within, between;     /* devices of a node, and of different ones */
    Link host;                /* a device and its node's memory */
    Software software;        /* none: weft itself */
    /* What kernels take as measured, by precision; those without points follow from the figures above. */
    KernelCurves kernels[RATE_COUNT];
} Cluster;

/* By the name of one that is built in, or a file's. */
MUST_USE Status cluster_find(const char *name, Cluster *ret_cluster);
MUST_USE Status cluster_parse(const char *text, size_t size, const char *from, Cluster *ret_cluster);
const char *rate_name(Rate rate); /* "fp32" ... as --precision has them */
/* The names of those that are built in, NULL-terminated; in the order of the alphabet. */
const char *const *cluster_names(void);

/* One that is built in. The table ends with a name of NULL; a generated file has it. */
typedef struct ClusterText {
    const char *name, *begin, *end;
} ClusterText;
extern const ClusterText weft_clusters[];

#endif
