#include "base/host.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

HostTime host_time(void) {
    enum { USER, NICE, SYSTEM, IDLE, IOWAIT, IRQ, SOFTIRQ, STEAL, FIELDS }; /* see proc(5) */
    double ticks[FIELDS], rate = (double)sysconf(_SC_CLK_TCK);
    FILE *file = fopen("/proc/stat", "re");
    if (!file) return (HostTime){NAN, NAN};
    int read = fscanf(file, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &ticks[USER], &ticks[NICE], &ticks[SYSTEM],
                      &ticks[IDLE], &ticks[IOWAIT], &ticks[IRQ], &ticks[SOFTIRQ], &ticks[STEAL]);
    fclose(file);
    if (read != FIELDS || !(rate > 0)) return (HostTime){NAN, NAN};
    double busy = ticks[USER] + ticks[NICE] + ticks[SYSTEM] + ticks[IRQ] + ticks[SOFTIRQ];
    return (HostTime){busy / rate, ticks[STEAL] / rate};
}

int host_cores(void) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores > 0 ? (int)cores : 1;
}

double host_ram(void) {
    return (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
}

static const struct {
    unsigned part;
    const char *name;
} arm_parts[] = {{0xd08, "Cortex-A72"},  {0xd0b, "Cortex-A76"},  {0xd0c, "Neoverse-N1"},
                 {0xd40, "Neoverse-V1"}, {0xd49, "Neoverse-N2"}, {0xd4f, "Neoverse-V2"},
                 {0xd84, "Neoverse-V3"}, {0xd8e, "Neoverse-N3"}};

/* The value of a "key : value" line; false for other lines. */
static bool line_value(const char *line, const char *key, const char **ret_value) {
    if (strncmp(line, key, strlen(key))) return false;
    const char *colon = strchr(line, ':');
    if (!colon) return false;
    *ret_value = colon + 1 + strspn(colon + 1, " \t");
    return true;
}

/* x86 reports the name in /proc/cpuinfo, Arm part numbers. */
void host_cpu(char name[CPU_NAME]) {
    struct utsname system;
    snprintf(name, CPU_NAME, "%s", uname(&system) == 0 ? system.machine : "unknown");
    FILE *file = fopen("/proc/cpuinfo", "r");
    char line[1024];
    while (file && fgets(line, sizeof line, file)) {
        const char *value;
        line[strcspn(line, "\n")] = 0;
        if (line_value(line, "model name", &value)) {
            snprintf(name, CPU_NAME, "%s", value);
            break;
        }
        if (!line_value(line, "CPU part", &value)) continue;
        unsigned part = (unsigned)strtoul(value, NULL, 0);
        for (size_t i = 0; i < sizeof arm_parts / sizeof *arm_parts; i++)
            if (arm_parts[i].part == part) snprintf(name, CPU_NAME, "%s", arm_parts[i].name);
        break;
    }
    if (file) fclose(file);
}
