#include "base/energy.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

static bool read_number(const char *dir, const char *name, double *ret_number) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "re");
    bool read = file && fscanf(file, "%lf", ret_number) == 1;
    if (file) fclose(file);
    return read;
}

/* Packages, and memory outside of them; a package's counter includes its cores. */
static bool is_counted(const char *dir) {
    char path[256], name[64] = "";
    snprintf(path, sizeof path, "%s/name", dir);
    FILE *file = fopen(path, "re");
    bool read = file && fscanf(file, "%63s", name) == 1;
    if (file) fclose(file);
    return read && (!strncmp(name, "package", 7) || !strcmp(name, "dram"));
}

static void add_domain(Energy *energy, const char *root, const char *name) {
    EnergyDomain *domain = &energy->domain[energy->count];
    double used, range;
    if (strncmp(name, "intel-rapl:", 11) || energy->count == ENERGY_DOMAINS) return;
    int length = snprintf(domain->path, sizeof domain->path, "%s/%s", root, name);
    if (length < 0 || (size_t)length >= sizeof domain->path || !is_counted(domain->path)) return;
    if (!read_number(domain->path, "energy_uj", &used) ||
        !read_number(domain->path, "max_energy_range_uj", &range))
        return;
    domain->last_j = 1e-6 * used;
    domain->range_j = 1e-6 * range;
    energy->count++;
}

void energy_init(Energy *energy, const char *root) {
    *energy = (Energy){.count = 0};
    DIR *dir = opendir(root);
    for (struct dirent *entry; dir && (entry = readdir(dir));) add_domain(energy, root, entry->d_name);
    if (dir) closedir(dir);
}

void energy_look(Energy *energy) {
    for (int i = 0; i < energy->count; i++) {
        EnergyDomain *domain = &energy->domain[i];
        double used;
        if (!read_number(domain->path, "energy_uj", &used)) continue;
        double now = 1e-6 * used, since = now - domain->last_j;
        energy->joules += since < 0 ? since + domain->range_j : since;
        domain->last_j = now;
    }
}
