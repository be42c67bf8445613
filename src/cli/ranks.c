/* weft ranks: starts ranks, shows how they share cores, and measures links and all-reduce. */
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/format.h"
#include "base/memory.h"
#include "cli/launch.h"
#include "cli/train_options.h"
#include "comm/cores.h"
#include "comm/mpi.h"
#include "plan/links.h"

typedef struct RanksConfig {
    int64_t ranks, threads, size, repeats;
    int64_t at_least; /* bytes per second; 0: any rate */
    const char *hosts, *hostfile;
    bool verbose;
    const char *log_ranks;
} RanksConfig;

/* clang-format off */
static const Option table[] = {
    {OPT_INT("ranks", RanksConfig, ranks), .fallback = "0", RANGE(1, 1 << 20),
     .shown = "what mpirun or srun started", .help = "Number of ranks to start with mpirun."},
    HOST_OPTIONS(RanksConfig, )
    {OPT_INT("threads", RanksConfig, threads), .per_rank = PER_RANK_ANY, .fallback = "0", RANGE(1, 4096),
     .shown = "the rank's share of the cores", .help = "CPU threads per rank."},
    {OPT_SIZE("size", RanksConfig, size), .fallback = "64MB", RANGE(4096, 1e15),
     .help = "Size of the all-reduce that measures bandwidth."},
    {OPT_INT("repeats", RanksConfig, repeats), .fallback = "5", RANGE(1, 1 << 20),
     .help = "Number of measurements; the fastest is reported."},
    {OPT_ROW("at-least", OPTION_SIZE, FIELD(RanksConfig, at_least, int64_t), "RATE"), .fallback = "0", .shown = "any", RANGE(0, 1e15),
     .help = "Exit with code 1 if the links within or between nodes transfer less per second than this, such as "
             "1GB/s or 10Gbit/s, and say which."},
};
/* clang-format on */

/* What each rank reports. */
typedef struct RankFacts {
    char host[64];
    CoreShare share;
} RankFacts;

static Status gather_facts(Group *world, int threads, json_t **ret_list) {
    RankFacts own = {0};
    CLEANUP(mem_freep) RankFacts *all = NULL;
    TRY(mem_new((size_t)world->size, sizeof *all, &all));
    TRY(cores_share(world, threads, &own.share));
    gethostname(own.host, sizeof own.host - 1);
    TRY(host_gather(world, all, &own, sizeof own));
    json_t *list = json_array();
    for (int r = 0; r < world->size; r++)
        json_array_append_new(list, json_pack("{s:i, s:s, s:i, s:i, s:b}", "rank", r, "host", all[r].host,
                                              "cores", all[r].share.cores, "threads", all[r].share.threads,
                                              "bound", (int)all[r].share.bound));
    *ret_list = list;
    return OK;
}

/* The fastest of several all-reduces of the tensor, in seconds. */
static Status time_all_reduce(Group *world, Stream *stream, Tensor data, int64_t repeats, double *ret_s) {
    double best = 0;
    for (int64_t i = 0; i <= repeats; i++) { /* the first is a warm-up */
        TRY(barrier(world));
        double start = clock_wall();
        TRY(all_reduce(world, stream, data, REDUCE_SUM, NULL));
        double seconds = clock_wall() - start;
        TRY(host_reduce(world, &seconds, 1, DT_F64, REDUCE_MAX));
        if (i == 1 || (i > 1 && seconds < best)) best = seconds;
    }
    *ret_s = best;
    return OK;
}

typedef struct Measured {
    double small_s, large_s; /* all-reduces */
    LinkTable links;
} Measured;

static void measured_done(Measured *measured) {
    link_table_done(&measured->links);
}

static Status measure(Group *world, const RanksConfig *config, Measured *measured) {
    CLEANUP(device_freep) Device *device = NULL;
    CLEANUP(stream_freep) Stream *stream = NULL;
    CLEANUP(dev_free) Buffer buffer = {0};
    TRY(device_new_cpu(&device, 1));
    device->advice = "a smaller {size}";
    if (world->size > 1) TRY(links_measure(&measured->links, world, device));
    TRY(stream_new(&stream, device));
    TRY(dev_alloc(device, MEM_COMM, (size_t)config->size, &buffer));
    TRY(stream_zero(stream, buffer.data, buffer.bytes));
    Tensor data = tensor_1d(buffer.data, DT_F32, config->size / 4);
    TRY(time_all_reduce(world, stream, tensor_slice(data, 0, 1), 20 * config->repeats, &measured->small_s));
    return time_all_reduce(world, stream, data, config->repeats, &measured->large_s);
}

static json_t *link_json(PairLink link) {
    return json_pack("{s:f, s:f}", "latency_us", 1e6 * link.latency_s, "mbytes_per_s", 1e-6 * link.bandwidth);
}

/* The slowest link; null if there is none. */
static json_t *slowest_json(const PairLink *link, size_t count) {
    return count ? link_json(links_slowest(link, count)) : json_null();
}

static json_t *pairs_json(const Group *world, const PairLink *link, size_t count) {
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        char one[HOST_SIZE], two[HOST_SIZE];
        json_t *pair = link_json(link[i]);
        json_object_set_new(pair, "hosts",
                            json_pack("[s, s]", group_host(world, link[i].rank[0], one),
                                      group_host(world, link[i].rank[1], two)));
        json_array_append_new(list, pair);
    }
    return list;
}

static Status check_links(const Group *world, const PairLink *link, size_t count, double at_least) {
    char one[HOST_SIZE], two[HOST_SIZE], rate[FORMAT_SIZE], least[FORMAT_SIZE];
    if (!count) return OK;
    PairLink slowest = links_slowest(link, count);
    if (slowest.bandwidth >= at_least) return OK;
    group_host(world, slowest.rank[0], one);
    group_host(world, slowest.rank[1], two);
    bool same = strcmp(one, two) == 0;
    return FAILED("ranks %d and %d (%s%s%s) exchange %s, less than --at-least %s", slowest.rank[0],
                  slowest.rank[1], one, same ? "" : " and ", same ? "" : two,
                  format_rate(rate, slowest.bandwidth), format_rate(least, at_least));
}

static Status run(Invocation *call, void *arguments, json_t **ret_result) {
    const RanksConfig *config = arguments;
    bool here;
    TRY(launch(call, config->ranks, false, &here));
    if (!here) return OK;
    Group *world = call->world;
    if (config->at_least && world->size == 1)
        return USAGE(
            "--at-least limits the links between ranks, but there is one rank; pass --ranks 2 or more");
    CLEANUP(json_decrefp) json_t *facts = NULL;
    CLEANUP(measured_done) Measured measured = {0};
    const LinkTable *links = &measured.links;
    TRY(gather_facts(world, (int)config->threads, &facts));
    TRY(measure(world, config, &measured));
    TRY(check_links(world, links->between, links->betweens, (double)config->at_least));
    TRY(check_links(world, links->within, links->withins, (double)config->at_least));
    *ret_result = json_pack(
        "{s:s, s:O, s:I, s:f, s:f, s:o, s:o, s:o, s:b}", "library", mpi_library(), "ranks", facts, "bytes",
        (json_int_t)config->size, "latency_us", 1e6 * measured.small_s, "mbytes_per_s",
        1e-6 * (double)config->size / measured.large_s, "within", slowest_json(links->within, links->withins),
        "between", slowest_json(links->between, links->betweens), "pairs",
        pairs_json(world, links->between, links->betweens), "pairs_differ",
        (int)links_differ(links->between, links->betweens));
    return *ret_result ? OK : FAILED("out of memory while writing the result");
}

static void show_link(FILE *out, const char *what, const json_t *link) {
    char text[FORMAT_SIZE];
    if (!json_is_object(link)) return;
    fprintf(out, "%s: latency %.1f us, %s\n", what, json_number_at(link, "latency_us"),
            format_rate(text, 1e6 * json_number_at(link, "mbytes_per_s")));
}

static void show_pairs(FILE *out, const json_t *pairs) {
    size_t i;
    json_t *pair;
    json_array_foreach(pairs, i, pair) {
        const json_t *hosts = json_object_get(pair, "hosts");
        char what[2 * HOST_SIZE + 8];
        snprintf(what, sizeof what, "  %s - %s", json_string_value(json_array_get(hosts, 0)),
                 json_string_value(json_array_get(hosts, 1)));
        show_link(out, what, pair);
    }
}

static Status show(const Invocation *call, const json_t *result, FILE *out) {
    (void)call;
    size_t i;
    json_t *rank;
    char text[FORMAT_SIZE];
    double latency = 0, rate = 0;
    json_array_foreach(json_object_get(result, "ranks"), i, rank) {
        const char *bound = json_is_true(json_object_get(rank, "bound")) ? "pinned" : "shared";
        fprintf(out, "rank %zu on %s: %lld thread%s, %lld core%s%s%s\n", i, json_string_at(rank, "host"),
                (long long)json_int_at(rank, "threads"), PLURAL(json_int_at(rank, "threads")),
                (long long)json_int_at(rank, "cores"), PLURAL(json_int_at(rank, "cores")),
                json_array_size(json_object_get(result, "ranks")) > 1 ? ", " : "",
                json_array_size(json_object_get(result, "ranks")) > 1 ? bound : "");
    }
    json_has_number(result, "latency_us", &latency);
    json_has_number(result, "mbytes_per_s", &rate);
    if (i < 2) return OK;
    show_link(out, "within a node", json_object_get(result, "within"));
    show_link(out, "between nodes", json_object_get(result, "between"));
    if (json_is_true(json_object_get(result, "pairs_differ")))
        show_pairs(out, json_object_get(result, "pairs"));
    fprintf(out, "all-reduce latency %.1f us\n", latency);
    fprintf(out, "all-reduce of %s: ", format_bytes(text, (double)json_int_at(result, "bytes")));
    fprintf(out, "%s\n", format_rate(text, 1e6 * rate));
    return OK;
}

const Command command_ranks = {
    .name = "ranks",
    .summary = "start ranks, show their cores and measure communication",
    .description =
        "Starts ranks as 'weft train --ranks' does, or joins those that mpirun or srun started. "
        "Shows the host and cores of each rank. Measures messages within and between nodes, per "
        "pair of nodes if they differ: latency, and the rate in each direction; between nodes, all "
        "ranks of a node together. Measures all-reduce: the latency for a single value, and the "
        "rate for --size bytes (bytes / time).",
    .config_size = sizeof(RanksConfig),
    .groups = GROUPS(OPTION_GROUP("Options", table, 0)),
    .examples = {{"Four ranks on this node", "weft ranks --ranks 4"},
                 {"All ranks of a cluster job", "mpirun -n 64 weft ranks"}},
    .run = run,
    .show = show,
};
