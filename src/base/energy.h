/* Energy that this host's processors and memory use, as RAPL counts it: Intel and AMD processors, if the
 * counters are readable, which often takes root. */
#ifndef WEFT_BASE_ENERGY_H
#define WEFT_BASE_ENERGY_H

#include "base/status.h"

enum { ENERGY_DOMAINS = 32 };

/* A counter of one processor or its memory, which wraps. */
typedef struct EnergyDomain {
    char path[160];
    double last_j, range_j;
} EnergyDomain;

typedef struct Energy {
    EnergyDomain domain[ENERGY_DOMAINS];
    int count; /* 0: no counters */
    double joules;
} Energy;

/* Finds the counters below `root`, which is /sys/class/powercap except in tests, and starts at 0 J. */
void energy_init(Energy *energy, const char *root);
/* Adds what was used since the last call. Call it at least every few minutes, since counters wrap. */
void energy_look(Energy *energy);

#endif
