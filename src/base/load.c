#include "base/load.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/format.h"
#include "base/host.h"

#define CONTENTION_LIMIT 0.05     /* of the cores that are wanted */
#define MINOR_TAKER      (1. / 3) /* of what the other took; less is not mentioned */

/* The host's CPU time advances in ticks of 10 ms, user and system time separately. */
#define RESOLUTION_S 0.02

LoadTime load_now(void) {
    HostTime host = host_time();
    return (LoadTime){clock_wall(), clock_cpu(), host.busy_s, host.steal_s};
}

LoadTime load_since(const LoadTime *from) {
    LoadTime now = load_now();
    return (LoadTime){now.wall_s - from->wall_s, now.cpu_s - from->cpu_s, now.busy_s - from->busy_s,
                      now.steal_s - from->steal_s};
}

static double share(double missing, double wanted) {
    return fmin(fmax(missing, 0) / wanted, 1);
}

json_t *load_json(const LoadTime *span, double cpu_s, double cores, double wanted) {
    double seconds = span->wall_s;
    if (!(seconds > 0) || !isfinite(span->busy_s)) return NULL;
    double others = fmax(span->busy_s - cpu_s, 0) / seconds, steal = span->steal_s / seconds;
    wanted = fmin(wanted, cores);
    double missing = others + steal - (cores - wanted),
           doubt = seconds >= LOAD_EXACT_S ? 0 : RESOLUTION_S / seconds;
    double contention = share(missing, wanted);
    double resolution = share(missing + doubt, wanted) - contention; /* 0: enough idle cores */
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "seconds", seconds, "cores", cores, "wanted",
                     wanted, "others", others, "steal", steal, "contention", contention, "resolution",
                     resolution);
}

json_t *load_add_gpus(json_t *load, int gpus, int ranks) {
    if (gpus <= 0 || ranks <= gpus) return load;
    if (!load) load = json_object();
    double lacked = 1 - (double)gpus / ranks, contention = json_number_or(load, "contention", 0);
    json_object_set_new(load, "contention", json_real(fmax(contention, lacked)));
    json_object_set_new(load, "gpus", json_integer(gpus));
    json_object_set_new(load, "gpu_ranks", json_integer(ranks));
    return load;
}

/* ---- trust ---- */

static double contention_of(const json_t *load) {
    return json_number_or(load, "contention", NAN);
}

/* By how much the contention of a short time may be wrong. */
static double resolution_of(const json_t *load) {
    return json_number_or(load, "resolution", 0);
}

bool load_is_disturbed(const json_t *load) {
    return contention_of(load) - resolution_of(load) > CONTENTION_LIMIT;
}

bool load_is_clean(const json_t *load) {
    return contention_of(load) + resolution_of(load) <= CONTENTION_LIMIT;
}

/* ---- in words ---- */

const char *load_remark(const json_t *load) {
    return json_number_at(load, "gpu_ranks") > 0 ? "shared GPUs" : "CPU contention";
}

Load load_read(const json_t *load) {
    return (Load){json_number_at(load, "others"), json_number_at(load, "steal"),
                  json_number_at(load, "cores"), json_number_at(load, "gpus"),
                  json_number_at(load, "gpu_ranks")};
}

void load_extend(Load *least, Load *most, size_t count, Load load) {
    double *low[] = {&least->others, &least->steal, &least->cores, &least->gpus, &least->gpu_ranks};
    double *high[] = {&most->others, &most->steal, &most->cores, &most->gpus, &most->gpu_ranks};
    const double values[] = {load.others, load.steal, load.cores, load.gpus, load.gpu_ranks};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        *low[i] = count ? fmin(*low[i], values[i]) : values[i];
        *high[i] = count ? fmax(*high[i], values[i]) : values[i];
    }
}

bool load_has_processes(const Load *load) {
    return load->others >= MINOR_TAKER * load->steal;
}

bool load_has_hypervisor(const Load *load) {
    return load->steal > 0 && load->steal >= MINOR_TAKER * load->others;
}

static void put_cores(FILE *out, double least, double most) {
    char from[FORMAT_SIZE], to[FORMAT_SIZE];
    snprintf(from, sizeof from, "%.1f", least);
    snprintf(to, sizeof to, "%.1f", most);
    fprintf(out, "%s%s%s", from, strcmp(from, to) ? " to " : "", strcmp(from, to) ? to : "");
}

void load_put(FILE *out, const Load *least, const Load *most) {
    if (most->gpu_ranks > 0) {
        char ranks[FORMAT_SIZE];
        bool range = least->gpu_ranks > 0 && least->gpu_ranks < most->gpu_ranks;
        snprintf(ranks, sizeof ranks, "%.0f to ", least->gpu_ranks);
        fprintf(out, "%s%.0f ranks shared %.0f GPU%s", range ? ranks : "", most->gpu_ranks, most->gpus,
                PLURAL(most->gpus));
        return;
    }
    bool processes = load_has_processes(most), hypervisor = load_has_hypervisor(most);
    if (processes) {
        fputs("other processes used ", out);
        put_cores(out, least->others, most->others);
        fprintf(out, " of the %.0f core%s", most->cores, PLURAL(most->cores));
    }
    if (!hypervisor) return;
    fprintf(out, "%sthe hypervisor gave ", processes ? ", and " : "");
    put_cores(out, least->steal, most->steal);
    if (!processes) fprintf(out, " of the %.0f core%s", most->cores, PLURAL(most->cores));
    fputs(" to other virtual machines", out);
}
