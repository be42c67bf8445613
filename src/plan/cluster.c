/* A table maps every figure in the file to a field of Cluster. Unknown keys are errors: a mistyped key would
 * otherwise silently leave a figure at its default. */
#include "plan/cluster.h"

#include <math.h>
#include <string.h>

#include "base/fs.h"
#include "base/memory.h"
#include "base/suggest.h"

static const char *const rate_names[RATE_COUNT] = {"fp32", "tf32", "bf16", "fp16", "fp8"};

const char *rate_name(Rate rate) {
    return rate_names[rate];
}

double cluster_units(const Cluster *cluster, double ranks) {
    return cluster->gpu ? ranks : ceil(ranks / cluster->devices_per_node);
}

double rate_capability(Rate rate) {
    static const double needed[RATE_COUNT] = {[RATE_BF16] = 8.0, [RATE_FP8] = 8.9};
    return needed[rate];
}

bool cluster_computes(const Cluster *cluster, Rate rate) {
    bool known = cluster->gpu && cluster->capability > 0 && !cluster->software.present;
    return cluster->peak_flops[rate] > 0 && (!known || cluster->capability >= rate_capability(rate));
}

const char *cluster_needs(const Cluster *cluster) {
    double capability = cluster->capability;
    if (!cluster->gpu || cluster->software.present) return NULL;
    if (capability < 7 || capability >= 8) return NULL;
    return capability < 7.5
               ? "on compute capability 7.0, weft needs a build with CUDA 12 (12.4 or later, not "
                 "13) and computes in fp32 or fp16, not in bf16 or fp8"
               : "on compute capability 7.5, weft computes in fp32 or fp16, not in bf16 or fp8";
}

typedef enum { ABOVE_ZERO, FROM_ZERO, COUNT_FROM_ONE, SHARE } Range;

typedef struct Figure {
    const char *section, *key; /* section: "" is the top level, "links.within" a nested object */
    size_t offset;
    Range range;
    bool optional;
} Figure;

#define AT(field) offsetof(Cluster, field)
#define LAYER_PROFILE(section, profile)                                                                      \
    {section, "rows", AT(profile.rows), FROM_ZERO, false},                                                   \
        {section, "parts", AT(profile.parts), FROM_ZERO, false},                                             \
        {section, "scores", AT(profile.scores), FROM_ZERO, false},                                           \
        {section, "launches", AT(profile.launches), FROM_ZERO, false}, {                                     \
        section, "stall_s", AT(profile.stall_s), FROM_ZERO, false                                            \
    }

static const Figure figures[] = {
    {"device", "compute_capability", AT(capability), FROM_ZERO, true},
    {"device", "memory_bytes", AT(memory_bytes), ABOVE_ZERO, false},
    {"device", "reserve_bytes", AT(reserve_bytes), FROM_ZERO, false},
    {"device", "memory_bandwidth", AT(memory_bandwidth), ABOVE_ZERO, false},
    {"device.peak_flops", "fp32", AT(peak_flops[RATE_FP32]), ABOVE_ZERO, true},
    {"device.peak_flops", "tf32", AT(peak_flops[RATE_TF32]), ABOVE_ZERO, true},
    {"device.peak_flops", "bf16", AT(peak_flops[RATE_BF16]), ABOVE_ZERO, true},
    {"device.peak_flops", "fp16", AT(peak_flops[RATE_FP16]), ABOVE_ZERO, true},
    {"device.peak_flops", "fp8", AT(peak_flops[RATE_FP8]), ABOVE_ZERO, true},
    {"device.product_share", "fp32", AT(product_share[RATE_FP32]), SHARE, true},
    {"device.product_share", "tf32", AT(product_share[RATE_TF32]), SHARE, true},
    {"device.product_share", "bf16", AT(product_share[RATE_BF16]), SHARE, true},
    {"device.product_share", "fp16", AT(product_share[RATE_FP16]), SHARE, true},
    {"device.product_share", "fp8", AT(product_share[RATE_FP8]), SHARE, true},
    {"device", "product_wave", AT(product_wave), FROM_ZERO, false},
    {"device", "product_depth", AT(product_depth), FROM_ZERO, false},
    {"device", "memory_share", AT(memory_share), SHARE, false},
    {"device", "vector_flops", AT(vector_flops), ABOVE_ZERO, false},
    {"device.attention_share", "forward", AT(attention_share[0]), SHARE, false},
    {"device.attention_share", "backward", AT(attention_share[1]), SHARE, false},
    {"device", "launch_s", AT(launch_s), FROM_ZERO, false},
    {"device", "kernel_s", AT(kernel_s), FROM_ZERO, false},
    {"", "devices_per_node", AT(devices_per_node), COUNT_FROM_ONE, false},
    {"", "host_memory_bytes", AT(host_memory_bytes), ABOVE_ZERO, false},
    {"", "price_per_hour", AT(price_per_hour), FROM_ZERO, true},
    {"", "power_watts", AT(power_watts), ABOVE_ZERO, true},
    {"links.within", "latency_s", AT(within.latency_s), FROM_ZERO, false},
    {"links.within", "bandwidth", AT(within.bandwidth), ABOVE_ZERO, false},
    {"links.within", "share", AT(within.share), SHARE, false},
    {"links.between", "latency_s", AT(between.latency_s), FROM_ZERO, false},
    {"links.between", "bandwidth", AT(between.bandwidth), ABOVE_ZERO, false},
    {"links.between", "share", AT(between.share), SHARE, false},
    {"links.host", "latency_s", AT(host.latency_s), FROM_ZERO, false},
    {"links.host", "bandwidth", AT(host.bandwidth), ABOVE_ZERO, false},
    {"links.host", "share", AT(host.share), SHARE, false},
    LAYER_PROFILE("software.causal.forward", software.forward[LAYER_CAUSAL]),
    LAYER_PROFILE("software.causal.backward", software.backward[LAYER_CAUSAL]),
    LAYER_PROFILE("software.bidirectional.forward", software.forward[LAYER_BIDIRECTIONAL]),
    LAYER_PROFILE("software.bidirectional.backward", software.backward[LAYER_BIDIRECTIONAL]),
    {"software", "recompute_stall_s", AT(software.recompute_stall_s), FROM_ZERO, false},
    {"software", "score_share", AT(software.score_share), SHARE, false},
    {"software", "loss_bytes", AT(software.loss_bytes), FROM_ZERO, false},
    {"software", "update_bytes", AT(software.update_bytes), FROM_ZERO, false},
    {"software", "update_stall_s", AT(software.update_stall_s), FROM_ZERO, false},
    {"software", "tensor_wait_s", AT(software.tensor_wait_s), FROM_ZERO, false},
    {"software", "gradient_bytes", AT(software.gradient_bytes), ABOVE_ZERO, false},
    {"software", "overlap", AT(software.overlap), FROM_ZERO, false},
    {"software", "all_positions", AT(software.all_positions), FROM_ZERO, false},
    {"software", "launch_s", AT(software.launch_s), FROM_ZERO, false},
    {"software.held", "param_bytes", AT(software.held_param_bytes), FROM_ZERO, false},
    {"software.held", "logit_bytes", AT(software.held_logit_bytes), FROM_ZERO, false},
    {"software.held", "rows", AT(software.held_rows), FROM_ZERO, false},
    {"software.held", "parts", AT(software.held_parts), FROM_ZERO, false},
    {"software.held", "scores", AT(software.held_scores), FROM_ZERO, false},
    {"software.held", "fragmentation", AT(software.held_fragmentation), FROM_ZERO, false},
};

enum { FIGURES = sizeof figures / sizeof *figures, PATH_SIZE = 128 };

/* Keys that are neither figures nor sections. */
static const struct {
    const char *section, *key;
} other_keys[] = {{"", "name"},       {"", "title"},         {"device", "kind"},
                  {"device", "name"}, {"device", "kernels"}, {"software", "title"}};

static const char *const sections[] = {"",
                                       "device",
                                       "device.peak_flops",
                                       "device.product_share",
                                       "device.attention_share",
                                       "links",
                                       "links.within",
                                       "links.between",
                                       "links.host",
                                       "software",
                                       "software.causal",
                                       "software.causal.forward",
                                       "software.causal.backward",
                                       "software.bidirectional",
                                       "software.bidirectional.forward",
                                       "software.bidirectional.backward",
                                       "software.held"};

enum { OTHER_KEYS = sizeof other_keys / sizeof *other_keys, SECTIONS = sizeof sections / sizeof *sections };

static const char *path_of(char path[PATH_SIZE], const char *section, const char *key) {
    snprintf(path, PATH_SIZE, "%s%s%s", section, *section ? "." : "", key);
    return path;
}

/* ---- sections ---- */

static Status find_section(const json_t *root, const char *from, const char *section,
                           const json_t **ret_object) {
    const json_t *object = root;
    char path[PATH_SIZE], *rest = path;
    snprintf(path, sizeof path, "%s", section);
    while (*section && rest && object) object = json_object_get(object, strsep(&rest, "."));
    if (!json_is_object(object)) {
        if (!*section) return FAILED("%s: expected a JSON object that describes a cluster", from);
        return FAILED("%s: '%s' is missing; expected an object", from, section);
    }
    *ret_object = object;
    return OK;
}

static Status check_keys(const json_t *object, const char *from, const char *section) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        Suggestion near = {.word = key};
        bool known = false;
        for (int i = 0; i < FIGURES; i++) {
            if (strcmp(figures[i].section, section)) continue;
            known |= !strcmp(figures[i].key, key);
            suggest_offer(&near, figures[i].key);
        }
        for (int i = 0; i < OTHER_KEYS; i++) {
            if (strcmp(other_keys[i].section, section)) continue;
            known |= !strcmp(other_keys[i].key, key);
            suggest_offer(&near, other_keys[i].key);
        }
        for (int i = 1; i < SECTIONS; i++) {
            const char *dot = strrchr(sections[i], '.'), *name = dot ? dot + 1 : sections[i];
            size_t size = dot ? (size_t)(dot - sections[i]) : 0;
            if (strlen(section) != size || strncmp(sections[i], section, size)) continue;
            known |= !strcmp(name, key);
            suggest_offer(&near, name);
        }
        char path[PATH_SIZE];
        if (!known)
            return FAILED("%s: unknown key '%s'%s%s%s", from, path_of(path, section, key),
                          near.best ? "; did you mean '" : "", near.best ? near.best : "",
                          near.best ? "'?" : "");
    }
    return OK;
}

/* ---- figures ---- */

static Status check_source(const json_t *object, const char *from, const char *path) {
    const char *source = json_string_at(object, "source");
    if (!source || !*source)
        return FAILED("%s: '%s' has no 'source', a string that says where the value comes from", from, path);
    return OK;
}

static Status check_number(const Figure *figure, const char *from, const char *path, double value) {
    static const double max_value = 1e18, min_share = 1e-3; /* keep sums and quotients of figures finite */
    static const char *const expected[] = {[ABOVE_ZERO] = "1 or more",
                                           [FROM_ZERO] = "0 or more",
                                           [COUNT_FROM_ONE] = "an integer, 1 or more",
                                           [SHARE] = "0.001 to 1"};
    double min_value = figure->range == FROM_ZERO ? 0 : figure->range == SHARE ? min_share : 1;
    bool valid = value >= min_value && value <= (figure->range == SHARE ? 1 : max_value) &&
                 (figure->range != COUNT_FROM_ONE || (value == floor(value) && value <= 1 << 20));
    if (!valid)
        return FAILED("%s: '%s' is %g; expected %s%s", from, path, value, expected[figure->range],
                      value > max_value ? " and at most 1e18" : "");
    return OK;
}

static Status read_figure(const json_t *section, const char *from, const Figure *figure, Cluster *cluster) {
    char path[PATH_SIZE];
    const json_t *object = json_object_get(section, figure->key);
    path_of(path, figure->section, figure->key);
    if (!object && figure->optional) return OK;
    const json_t *value = json_object_get(object, "value");
    if (!json_is_number(value))
        return FAILED("%s: '%s' is missing; expected {\"value\": number, \"source\": string}", from, path);
    if (json_object_size(object) > 2)
        return FAILED("%s: '%s' has keys other than 'value' and 'source'", from, path);
    TRY(check_number(figure, from, path, json_number_value(value)));
    TRY(check_source(object, from, path));
    *(double *)(void *)((char *)cluster + figure->offset) = json_number_value(value);
    return OK;
}

/* Every precision has both a peak rate and a GEMM efficiency, or neither. A measured cluster may have any one
 * of them. */
static Status check_shares(const char *from, const Cluster *cluster) {
    bool any = false;
    for (Rate rate = 0; rate < RATE_COUNT; rate++) any |= cluster->peak_flops[rate] > 0;
    if (!any)
        return FAILED("%s: 'device.peak_flops' has no precision; expected at least one, such as fp32", from);
    for (Rate rate = 0; rate < RATE_COUNT; rate++)
        if ((cluster->peak_flops[rate] > 0) != (cluster->product_share[rate] > 0))
            return FAILED(
                "%s: 'device.peak_flops.%s' and 'device.product_share.%s': one is missing; expected "
                "both or neither",
                from, rate_name(rate), rate_name(rate));
    return OK;
}

static Status read_text(const json_t *object, const char *from, const char *section, const char *key,
                        char *text) {
    char path[PATH_SIZE];
    const char *value = json_string_at(object, key);
    if (!value || !*value || strlen(value) >= CLUSTER_NAME)
        return FAILED("%s: '%s' must be a string of 1 to %d bytes", from, path_of(path, section, key),
                      CLUSTER_NAME - 1);
    snprintf(text, CLUSTER_NAME, "%s", value);
    return OK;
}

static Status read_names(const json_t *root, const json_t *device, const char *from, Cluster *cluster) {
    char kind[CLUSTER_NAME];
    TRY(read_text(root, from, "", "name", cluster->name));
    TRY(read_text(device, from, "device", "name", cluster->device));
    TRY(read_text(device, from, "device", "kind", kind));
    cluster->gpu = strcmp(kind, "cuda") == 0;
    if (!cluster->gpu && strcmp(kind, "cpu"))
        return FAILED("%s: 'device.kind' is '%s'; expected cpu or cuda", from, kind);
    return OK;
}

/* Optional: {"fp32": {...}, ..., "source": string}. */
static Status read_kernels(const json_t *device, const char *from, Cluster *cluster) {
    const json_t *kernels = json_object_get(device, "kernels");
    const char *key;
    json_t *value;
    if (!kernels) return OK;
    if (!json_is_object(kernels)) return FAILED("%s: 'device.kernels' must be an object", from);
    TRY(check_source(kernels, from, "device.kernels"));
    json_object_foreach((json_t *)(uintptr_t)kernels, key, value) {
        char path[PATH_SIZE];
        Rate rate = 0;
        while (rate < RATE_COUNT && strcmp(rate_name(rate), key)) rate++;
        path_of(path, "device.kernels", key);
        if (rate < RATE_COUNT)
            TRY(kernel_curves_read(value, from, path, &cluster->kernels[rate]));
        else if (strcmp(key, "source"))
            return FAILED("%s: '%s' is not a precision; expected fp32, tf32, bf16, fp16 or fp8", from, path);
    }
    return OK;
}

static Status read_cluster(const json_t *root, const char *from, Cluster *ret_cluster) {
    const json_t *section = NULL;
    Cluster cluster = {0};
    cluster.software.present = json_object_get(root, "software");
    for (int s = 0; s < SECTIONS; s++) {
        if (!strncmp(sections[s], "software", 8) && !cluster.software.present) continue;
        TRY(find_section(root, from, sections[s], &section));
        TRY(check_keys(section, from, sections[s]));
        for (int i = 0; i < FIGURES; i++)
            if (!strcmp(figures[i].section, sections[s]))
                TRY(read_figure(section, from, &figures[i], &cluster));
    }
    const json_t *device = json_object_get(root, "device");
    TRY(read_names(root, device, from, &cluster));
    TRY(check_shares(from, &cluster));
    if (cluster.software.present)
        TRY(read_text(json_object_get(root, "software"), from, "software", "title", cluster.software.title));
    TRY(read_kernels(device, from, &cluster));
    if (cluster.reserve_bytes >= cluster.memory_bytes)
        return FAILED("%s: 'device.reserve_bytes' is %g; expected less than 'device.memory_bytes', %g", from,
                      cluster.reserve_bytes, cluster.memory_bytes);
    cluster.software.available = cluster.memory_bytes - cluster.reserve_bytes;
    *ret_cluster = cluster;
    return OK;
}

Status cluster_parse(const char *text, size_t size, const char *from, Cluster *ret_cluster) {
    CLEANUP(json_decrefp) json_t *root = NULL;
    TRY(json_parse(text, size, from, &root));
    return read_cluster(root, from, ret_cluster);
}

/* ---- lookup ---- */

const char *const *cluster_names(void) {
    enum { MAX_NAMES = 64 };
    static const char *names[MAX_NAMES];
    for (int i = 0; i < MAX_NAMES - 1 && weft_clusters[i].name; i++) names[i] = weft_clusters[i].name;
    return names;
}

static Status unknown(const ClusterText *known, const char *name) {
    bool program = known == weft_programs;
    Suggestion near = {.word = name};
    char list[256];
    size_t used = 0;
    list[0] = 0;
    for (; known->name && used < sizeof list; known++) {
        used += (size_t)snprintf(list + used, sizeof list - used, used ? ", %s" : "%s", known->name);
        suggest_offer(&near, known->name);
    }
    return USAGE("{cluster} %s: neither a file nor a built-in %s (%s)%s%s%s", name,
                 program ? "program" : "cluster", list, near.best ? "; did you mean '" : "",
                 near.best ? near.best : "", near.best ? "'?" : "");
}

Status cluster_list_price(const char *gpu, double *ret_price) {
    double price = 0;
    for (const ClusterText *known = weft_clusters; gpu && known->name && price == 0; known++) {
        Cluster cluster;
        TRY(cluster_parse(known->begin, (size_t)(known->end - known->begin), known->name, &cluster));
        /* newer drivers put the vendor before the name */
        if (cluster.gpu && strstr(gpu, cluster.device)) price = cluster.price_per_hour;
    }
    *ret_price = price;
    return OK;
}

/* Parses a built-in description or a file. */
static Status find_json(const ClusterText *built_in, const char *name, json_t **ret_json) {
    enum { FILE_LIMIT = 1 << 20 };
    CLEANUP(mem_freep) char *text = NULL;
    size_t size;
    for (const ClusterText *known = built_in; known->name; known++)
        if (strcmp(known->name, name) == 0)
            return json_parse(known->begin, (size_t)(known->end - known->begin), name, ret_json);
    if (!path_exists(name)) return unknown(built_in, name);
    TRY(file_read(name, FILE_LIMIT, &text, &size));
    return json_parse(text, size, name, ret_json);
}

/* A program may differ in a few figures from another one, its "base". */
static Status find_program(const char *name, json_t **ret_program) {
    CLEANUP(json_decrefp) json_t *own = NULL;
    CLEANUP(json_decrefp) json_t *program = NULL;
    TRY(find_json(weft_programs, name, &own));
    const json_t *base = json_object_get(own, "base");
    if (!base) return MOVE(ret_program, own);
    if (!json_is_string(base)) return FAILED("%s: 'base': expected the name of a program", name);
    TRY(find_json(weft_programs, json_string_value(base), &program));
    if (json_object_update(program, own) || json_object_del(program, "base"))
        return FAILED("%s: expected a JSON object that describes a program", json_string_value(base));
    return MOVE(ret_program, program);
}

/* CLUSTER+PROGRAM: the program replaces the one of the cluster's own description. */
static Status find_with_program(const char *name, const char *plus, Cluster *ret_cluster) {
    CLEANUP(json_decrefp) json_t *root = NULL;
    CLEANUP(json_decrefp) json_t *program = NULL;
    CLEANUP(mem_freep) char *machine = NULL;
    TRY(str_format(&machine, "%.*s", (int)(plus - name), name));
    TRY(find_json(weft_clusters, machine, &root));
    TRY(find_program(plus + 1, &program));
    if (!json_is_object(root)) return FAILED("%s: expected a JSON object that describes a cluster", machine);
    if (json_object_set(root, "software", program)) return FAILED("out of memory");
    TRY(read_cluster(root, name, ret_cluster));
    size_t used = strlen(ret_cluster->name);
    snprintf(ret_cluster->name + used, CLUSTER_NAME - used, "+%s", path_base(plus + 1));
    return OK;
}

Status cluster_find(const char *name, Cluster *ret_cluster) {
    CLEANUP(json_decrefp) json_t *root = NULL;
    const char *plus = strrchr(name, '+');
    if (plus && !path_exists(name)) return find_with_program(name, plus, ret_cluster);
    TRY(find_json(weft_clusters, name, &root));
    return read_cluster(root, name, ret_cluster);
}
