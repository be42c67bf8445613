#include "plan/links.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"

/* A rate is measured with messages that take this long on the slowest link, or of the largest size. */
static const double enough_s = 0.4;
enum { SIZE_LEAST = 256 << 10, SIZE_MOST = 32 << 20, PINGS = 100, REPEATS = 3, ROUNDS_MOST = 15 };

typedef struct Bench {
    Group *world;
    Stream *stream;
    Buffer send, receive;
    int *node;  /* of each rank */
    int *place; /* of each rank among those of its node */
    int nodes;
    double *time; /* [REPEATS][ranks], of the last measurement */
} Bench;

static void bench_done(Bench *bench) {
    dev_free(&bench->send);
    dev_free(&bench->receive);
    stream_free(bench->stream);
    free(bench->node);
    free(bench->place);
    free(bench->time);
}

static Status bench_init(Bench *bench, Group *world, Device *device) {
    char host[HOST_SIZE], other[HOST_SIZE];
    bench->world = world;
    TRY(mem_new((size_t)world->size, sizeof *bench->node, &bench->node));
    TRY(mem_new((size_t)world->size, sizeof *bench->place, &bench->place));
    TRY(mem_new((size_t)(REPEATS * world->size), sizeof *bench->time, &bench->time));
    for (int r = 0; r < world->size; r++) {
        group_host(world, r, host);
        bench->node[r] = -1;
        for (int s = 0; s < r; s++) {
            if (strcmp(host, group_host(world, s, other))) continue;
            bench->node[r] = bench->node[s];
            bench->place[r]++;
        }
        if (bench->node[r] < 0) bench->node[r] = bench->nodes++;
    }
    TRY(stream_new(&bench->stream, device));
    TRY(dev_alloc(device, MEM_COMM, SIZE_MOST, &bench->send));
    TRY(dev_alloc(device, MEM_COMM, SIZE_MOST, &bench->receive));
    return stream_zero(bench->stream, bench->send.data, SIZE_MOST);
}

/* The rank at a place of a node; -1: there is none. */
static int rank_at(const Bench *bench, int node, int place) {
    for (int r = 0; r < bench->world->size; r++)
        if (bench->node[r] == node && bench->place[r] == place) return r;
    return -1;
}

static int ranks_of(const Bench *bench, int node) {
    int count = 0;
    for (int r = 0; r < bench->world->size; r++) count += bench->node[r] == node;
    return count;
}

/* ---- measuring ---- */

/* Waits for all ranks, so that those with a peer start together. */
static Status exchange(Bench *bench, int peer, int64_t bytes, double *ret_s) {
    Ticket ticket[2] = {0};
    *ret_s = 0;
    TRY(barrier(bench->world));
    if (peer < 0) return OK;
    double start = clock_wall();
    TRY(comm_batch_begin(bench->world));
    TRY(comm_swap(bench->world, bench->stream, tensor_1d(bench->send.data, DT_U8, bytes), peer,
                  tensor_1d(bench->receive.data, DT_U8, bytes), peer, ticket));
    TRY(comm_batch_end(bench->world));
    for (int i = 0; i < 2; i++) TRY(ticket_wait(bench->stream, &ticket[i]));
    TRY(stream_sync(bench->stream));
    *ret_s = clock_wall() - start;
    return OK;
}

/* Sets bench->time to every rank's times for `bytes` bytes. */
static Status time_exchange(Bench *bench, int peer, int64_t *ret_bytes) {
    int64_t bytes = SIZE_LEAST;
    double own = 0, longest = 0;
    TRY(exchange(bench, peer, bytes, &own)); /* warm-up: connects */
    for (;; bytes *= 2) {
        TRY(exchange(bench, peer, bytes, &own));
        longest = own;
        TRY(host_reduce(bench->world, &longest, 1, DT_F64, REDUCE_MAX));
        if (longest >= enough_s || bytes == SIZE_MOST) break;
    }
    *ret_bytes = bytes;
    for (int i = 0; i < REPEATS; i++) {
        if (i) TRY(exchange(bench, peer, bytes, &own));
        TRY(host_gather(bench->world, bench->time + i * bench->world->size, &own, sizeof own));
    }
    return OK;
}

/* Whether rank s sends over the link of rank r: within a node only r, between nodes all ranks of its node. */
static bool same_link(const Bench *bench, const int *peer, int r, int s) {
    if (peer[s] < 0 || bench->node[r] == bench->node[peer[r]]) return s == r;
    return bench->node[s] == bench->node[r] && bench->node[peer[s]] == bench->node[peer[r]];
}

/* The rate of the link of rank r. Ranks that share a link may be fast and slow in turn, so the slowest of
 * them counts in each measurement. */
static double link_rate(const Bench *bench, const int *peer, int r, int64_t bytes) {
    int ranks = bench->world->size;
    double best = 0;
    for (int i = 0; i < REPEATS; i++) {
        double longest = 1e-9, flows = 0;
        for (int s = 0; s < ranks; s++) {
            if (!same_link(bench, peer, r, s)) continue;
            longest = fmax(longest, bench->time[i * ranks + s]);
            flows++;
        }
        best = fmax(best, flows * (double)bytes / longest);
    }
    return best;
}

/* Half the shortest round trip of one byte; 0 without a peer. */
static Status ping(Bench *bench, int peer, double *ret_s) {
    Tensor to = tensor_1d(bench->send.data, DT_U8, 1), from = tensor_1d(bench->receive.data, DT_U8, 1);
    double best = INFINITY;
    TRY(barrier(bench->world));
    for (int i = 0; peer >= 0 && i < PINGS; i++) {
        bool first = bench->world->rank < peer;
        double start = clock_wall();
        if (first) TRY(comm_send(bench->world, bench->stream, to, peer, NULL));
        TRY(comm_receive(bench->world, bench->stream, from, peer, NULL));
        if (!first) TRY(comm_send(bench->world, bench->stream, to, peer, NULL));
        TRY(stream_sync(bench->stream));
        best = fmin(best, clock_wall() - start);
    }
    *ret_s = peer >= 0 ? best / 2 : 0;
    return OK;
}

/* Measures pairs of ranks that all run at once; peer[r] is -1 for ranks without one. `lead` ranks of a pair
 * measure its latency, the lower of them counts. */
static Status measure_pairs(Bench *bench, const int *peer, const bool *lead, PairLink **links, size_t *count,
                            size_t *capacity) {
    Group *world = bench->world;
    CLEANUP(mem_freep) double *latency = NULL;
    int64_t bytes = 0;
    double own = 0;
    TRY(mem_new((size_t)world->size, sizeof *latency, &latency));
    if (peer[world->rank] >= 0) TRY(group_connect(world, peer[world->rank]));
    TRY(ping(bench, lead[world->rank] ? peer[world->rank] : -1, &own));
    TRY(host_gather(world, latency, &own, sizeof own));
    TRY(time_exchange(bench, peer[world->rank], &bytes));
    for (int r = 0; r < world->size; r++) {
        if (!lead[r] || peer[r] < r) continue;
        TRY(mem_grow(links, capacity, *count + 1, sizeof **links));
        (*links)[(*count)++] = (PairLink){
            .rank = {r, peer[r]}, .latency_s = latency[r], .bandwidth = link_rate(bench, peer, r, bytes)};
    }
    return OK;
}

/* ---- pairs ---- */

/* The other node in a round of a tournament among `nodes` nodes; -1: none. */
static int opponent(int nodes, int round, int node) {
    int seats = nodes + nodes % 2, last = seats - 1, other;
    if (node == last)
        other = round;
    else if (node == round)
        other = last;
    else
        other = (2 * round - node + 2 * last) % last;
    return other < nodes ? other : -1;
}

static void pair_within(const Bench *bench, int *peer, bool *lead) {
    for (int r = 0; r < bench->world->size; r++) {
        peer[r] = bench->place[r] < 2 ? rank_at(bench, bench->node[r], 1 - bench->place[r]) : -1;
        lead[r] = peer[r] >= 0;
    }
}

static void pair_between(const Bench *bench, int round, int *peer, bool *lead) {
    for (int r = 0; r < bench->world->size; r++) {
        int other = opponent(bench->nodes, round, bench->node[r]);
        peer[r] = other >= 0 ? rank_at(bench, other, bench->place[r]) : -1;
        lead[r] = peer[r] >= 0 && bench->place[r] == 0;
    }
}

static Status measure_all(Bench *bench, LinkTable *table) {
    CLEANUP(mem_freep) int *peer = NULL;
    CLEANUP(mem_freep) bool *lead = NULL;
    bool several = false;
    TRY(mem_new((size_t)bench->world->size, sizeof *peer, &peer));
    TRY(mem_new((size_t)bench->world->size, sizeof *lead, &lead));
    pair_within(bench, peer, lead);
    for (int r = 0; r < bench->world->size; r++) several |= lead[r];
    if (several)
        TRY(measure_pairs(bench, peer, lead, &table->within, &table->withins, &table->within_capacity));
    int rounds = bench->nodes + bench->nodes % 2 - 1;
    for (int round = 0; bench->nodes > 1 && round < rounds && round < ROUNDS_MOST; round++) {
        pair_between(bench, round, peer, lead);
        TRY(measure_pairs(bench, peer, lead, &table->between, &table->betweens, &table->between_capacity));
    }
    return OK;
}

Status links_measure(LinkTable *ret_table, Group *world, Device *device) {
    CLEANUP(link_table_done) LinkTable table = {.per_node = world->size};
    CLEANUP(bench_done) Bench bench = {0};
    TRY(bench_init(&bench, world, device));
    table.nodes = bench.nodes;
    for (int n = 0; n < bench.nodes; n++)
        if (ranks_of(&bench, n) < table.per_node) table.per_node = ranks_of(&bench, n);
    Status status = measure_all(&bench, &table);
    if (status) group_drop(world); /* messages may still be in flight */
    TRY(status);
    return MOVE(ret_table, table);
}

void link_table_done(LinkTable *table) {
    free(table->within);
    free(table->between);
    *table = (LinkTable){0};
}

PairLink links_slowest(const PairLink *link, size_t count) {
    PairLink slowest = link[0];
    for (size_t i = 1; i < count; i++) {
        double latency = fmax(slowest.latency_s, link[i].latency_s);
        if (link[i].bandwidth < slowest.bandwidth) slowest = link[i];
        slowest.latency_s = latency;
    }
    return slowest;
}

bool links_differ(const PairLink *link, size_t count) {
    double low = INFINITY, high = 0;
    for (size_t i = 0; i < count; i++) {
        low = fmin(low, link[i].bandwidth);
        high = fmax(high, link[i].bandwidth);
    }
    return count > 1 && high > 1.25 * low;
}
