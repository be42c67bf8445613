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

/* Adds "gpus" and "gpu_ranks": the host's GPUs, and more ranks that shared them. Contention is then at least
 * the share of the GPUs that they lacked. Takes and returns a load, which may be NULL. */
json_t *load_add_gpus(json_t *load, int gpus, int ranks);

/* Whether contention was enough to distort times; or so little that it was not. Neither: unknown. */
bool load_is_disturbed(const json_t *load);
bool load_is_clean(const json_t *load);
/* A word for a disturbed load: "CPU contention" or "shared GPUs". */
const char *load_remark(const json_t *load);

/* The cores of the host, and how many of them other processes used or the hypervisor gave to other virtual
 * machines (steal). With `gpu_ranks`, so many ranks shared `gpus`. */
typedef struct Load {
    double others, steal, cores;
    double gpus, gpu_ranks;
} Load;

Load load_read(const json_t *load);
/* Starts a range at one load with count 0, and extends it by others. */
void load_extend(Load *least, Load *most, size_t count, Load load);
bool load_has_processes(const Load *load);
bool load_has_hypervisor(const Load *load);
/* "other processes used 0.8 to 1.4 of the 2 cores", or "4 ranks shared 1 GPU"; names the hypervisor if it
 * took as much as a third of what the other took. `least` and `most` are of several times, or the same. */
void load_put(FILE *out, const Load *least, const Load *most);

#endif
