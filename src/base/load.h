/* What others took of a host's cores while something was timed, and whether its times can be trusted: those
 * of a training run, a round of pruning or an evaluation. */
#ifndef WEFT_BASE_LOAD_H
#define WEFT_BASE_LOAD_H

#include <stdio.h>

#include "base/json.h"

/* Counters, or how far they advanced. */
typedef struct LoadTime {
    double wall_s;
    double cpu_s;           /* of this process */
    double busy_s, steal_s; /* of the host, see HostTime; NAN: unknown */
} LoadTime;

/* Below this, LoadTime has too few ticks for an exact answer. */
#define LOAD_EXACT_S 0.5

LoadTime load_now(void);
LoadTime load_since(const LoadTime *from);

/* {"seconds", "cores", "wanted", "others", "steal", "contention", "resolution"}: the host's cores, how many
 * of them were wanted, and what other processes and other virtual machines took. Contention is the share of
 * the wanted cores that they left too few of, up to `resolution` more. `span` is that of any process on the
 * host, and `cpu_s` of all that are timed. NULL: unknown. */
json_t *load_json(const LoadTime *span, double cpu_s, double cores, double wanted);

/* Whether contention was enough to distort times; or so little that it was not. Neither: unknown. */
bool load_is_disturbed(const json_t *load);
bool load_is_clean(const json_t *load);

/* The cores of the host, and how many of them other processes used or the hypervisor gave to other virtual
 * machines (steal). */
typedef struct Load {
    double others, steal, cores;
} Load;

Load load_read(const json_t *load);
bool load_has_processes(const Load *load);
bool load_has_hypervisor(const Load *load);
/* "other processes used 0.8 to 1.4 of the 2 cores"; names the hypervisor if it took as much as a third of
 * what the other took. `least` and `most` are of several times, or the same. */
void load_put(FILE *out, const Load *least, const Load *most);

#endif
