/* Tests every collective, in every data type and many sizes, against a serial reference that reduces along
 * the tree over the ranks. Results must match bit for bit, whichever algorithm the collective chooses and on
 * whichever nodes the ranks are.
 *
 * Ranks: 2 3 4 8 */
#include "ranks.h"

#include <math.h>
#include <sys/resource.h>

#include "comm/agree.h"

/* Sizes around the limits of the small-message algorithm, of per-rank parts and of pipeline chunks. */
static const int64_t sizes[] = {0, 1, 2, 7, 1000, 8191, 8193, 100003, 700001};
static const DType types[] = {DT_F32, DT_BF16, DT_F16, DT_F64, DT_I32, DT_I64};
enum { SIZES = sizeof sizes / sizeof *sizes, TYPES = sizeof types / sizeof *types };

/* Numbers that ranks begin to use at different places, because computing each anew would take most of this
 * test's time. The period is a prime, which no chunk or part has as its size. */
enum { PERIOD = 65521 };
static double pool[2 * PERIOD];

__attribute__((constructor)) static void fill_pool(void) {
    for (int64_t i = 0; i < 2 * PERIOD; i++) {
        uint64_t x = (uint64_t)(i % PERIOD + 1) * 0x9e3779b97f4a7c15u;
        x ^= x >> 29;
        x *= 0x94d049bb133111ebu;
        x ^= x >> 32;
        pool[i] = ((double)(x & 0xffffff) / 0x800000 - 1) * (double)(1 << (x >> 40 & 7));
    }
}

/* Where the elements of rank r begin. The sum over ranks depends on the order of addition. */
static const double *values_of(int rank, int salt) {
    return pool + ((unsigned)rank * 7919u + (unsigned)salt * 20011u) % PERIOD;
}

static double value_at(int rank, int64_t i, int salt) {
    return values_of(rank, salt)[(uint64_t)i % PERIOD];
}

static void put(void *data, DType type, int64_t i, double value) {
    switch (type) {
    case DT_F32: ((float *)data)[i] = (float)value; break;
    case DT_BF16: ((uint16_t *)data)[i] = f32_to_bf16((float)value); break;
    case DT_F16: ((uint16_t *)data)[i] = f32_to_f16((float)value); break;
    case DT_F64: ((double *)data)[i] = value; break;
    case DT_I32: ((int32_t *)data)[i] = (int32_t)(value * 1e6); break;
    case DT_I64: ((int64_t *)data)[i] = (int64_t)(value * 1e12); break;
    default: ((uint8_t *)data)[i] = (uint8_t)(int64_t)(value * 100);
    }
}

static void fill(Tensor data, int rank, int64_t offset, int salt) {
    const double *values = values_of(rank, salt);
    int64_t count = tensor_count(data), at = offset % PERIOD;
    for (int64_t i = 0; i < count; i++) {
        put(data.data, data.dtype, i, values[at]);
        if (++at == PERIOD) at = 0;
    }
}

/* Pairs of neighbors first, then pairs of pairs and so on; what has no partner is added later. */
#define FOLD(Wide, LOAD)                                                                                     \
    do {                                                                                                     \
        Wide fold_[8];                                                                                       \
        for (int r = 0; r < ranks; r++) fold_[r] = LOAD(r);                                                  \
        for (int step = 1; step < ranks; step *= 2)                                                          \
            for (int r = 0; r + step < ranks; r += 2 * step) {                                               \
                Wide next_ = fold_[r + step];                                                                \
                fold_[r] = op == REDUCE_SUM ? fold_[r] + next_ : next_ > fold_[r] ? next_ : fold_[r];        \
            }                                                                                                \
        return (double)fold_[0];                                                                             \
    } while (0)

static float rounded(DType type, double value) {
    uint16_t bits = type == DT_BF16 ? f32_to_bf16((float)value) : f32_to_f16((float)value);
    return type == DT_BF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

/* Element i of the reduction, before conversion to the data type. Integers stay below 2^53, so double is
 * exact. */
static double reduced_at(int ranks, int64_t i, int salt, DType type, ReduceOp op) {
#define AS_F32(r) (float)value_at(r, i, salt)
#define AS_16(r)  rounded(type, value_at(r, i, salt))
#define AS_F64(r) value_at(r, i, salt)
#define AS_I32(r) (int32_t)(value_at(r, i, salt) * 1e6)
#define AS_I64(r) (int64_t)(value_at(r, i, salt) * 1e12)
    switch (type) {
    case DT_F32: FOLD(float, AS_F32);
    case DT_BF16:
    case DT_F16: FOLD(float, AS_16);
    case DT_F64: FOLD(double, AS_F64);
    case DT_I32: FOLD(int64_t, AS_I32);
    default: FOLD(int64_t, AS_I64);
    }
}

static void put_exact(void *data, DType type, int64_t i, double value) {
    if (type == DT_I32)
        ((int32_t *)data)[i] = (int32_t)value;
    else if (type == DT_I64)
        ((int64_t *)data)[i] = (int64_t)value;
    else
        put(data, type, i, value);
}

static Tensor tensor_of(DType type, int64_t count) {
    /* One extra element detects writes past the end. */
    void *data = calloc((size_t)count + 1, dtype_size(type));
    assert_non_null(data);
    return tensor_1d(data, type, count);
}

static void assert_same_bits(Tensor got, Tensor want) {
    size_t size = dtype_size(got.dtype);
    if (!memcmp(got.data, want.data, ((size_t)tensor_count(want) + 1) * size)) return;
    for (int64_t i = 0; i < tensor_count(want) + 1; i++)
        if (memcmp((char *)got.data + (size_t)i * size, (char *)want.data + (size_t)i * size, size))
            fail_msg("%s: element %lld of %lld differs from the reference", dtype_name(got.dtype),
                     (long long)i, (long long)tensor_count(want));
}

/* The reference result for elements [first, first + count), which later calls find again. */
static Tensor reference(const Group *group, DType type, int64_t first, int64_t count, int salt, ReduceOp op) {
    enum { KEPT = 256 };
    static struct {
        int64_t key[6];
        Tensor want;
    } kept[KEPT];
    static int used;
    const int64_t key[] = {group->size, type, first, count, salt, op};
    for (int k = 0; k < used; k++)
        if (!memcmp(kept[k].key, key, sizeof key)) return kept[k].want;
    assert_true(used < KEPT);
    memcpy(kept[used].key, key, sizeof key);
    Tensor want = kept[used++].want = tensor_of(type, count);
    for (int64_t i = 0; i < count; i++)
        put_exact(want.data, type, i, reduced_at(group->size, first + i, salt, type, op));
    return want;
}

static void check_all_reduce(Group *group, Stream *stream, DType type, int64_t count, ReduceOp op) {
    Tensor data = tensor_of(type, count);
    fill(data, group->rank, 0, 1);
    assert_ok(all_reduce(group, stream, data, op, NULL));
    assert_same_bits(data, reference(group, type, 0, count, 1, op));
    free(data.data);
}

static void test_all_reduce(void **state) {
    Ranks *ranks = *state;
    for (int t = 0; t < TYPES; t++)
        for (int s = 0; s < SIZES; s++)
            for (ReduceOp op = REDUCE_SUM; op <= REDUCE_MAX; op++)
                if (op == REDUCE_SUM || sizes[s] < 10000)
                    check_all_reduce(ranks->world, ranks->stream, types[t], sizes[s], op);
}

static void check_reduce_scatter(Group *world, Stream *stream, DType type, int64_t count, bool in_place) {
    Tensor src = tensor_of(type, count * world->size), dst = tensor_of(type, count);
    fill(src, world->rank, 0, 2);
    Tensor to = in_place ? tensor_slice(src, world->rank * count, count) : dst;
    assert_ok(reduce_scatter(world, stream, to, src, REDUCE_SUM, NULL));
    if (in_place && count) memcpy(dst.data, to.data, tensor_bytes(to));
    assert_same_bits(dst, reference(world, type, world->rank * count, count, 2, REDUCE_SUM));
    free(src.data);
    free(dst.data);
}

static void test_reduce_scatter(void **state) {
    Ranks *ranks = *state;
    for (int t = 0; t < TYPES; t++)
        for (int s = 0; s < SIZES - 1; s++)
            for (int in_place = 0; in_place < 2; in_place++)
                check_reduce_scatter(ranks->world, ranks->stream, types[t], sizes[s], in_place);
}

static void check_all_gather(Group *world, Stream *stream, DType type, int64_t count, bool in_place) {
    Tensor dst = tensor_of(type, count * world->size), src = tensor_of(type, count);
    if (in_place) {
        free(src.data);
        src = tensor_slice(dst, world->rank * count, count);
    }
    fill(src, world->rank, 0, 3);
    assert_ok(all_gather(world, stream, dst, src, NULL));
    Tensor want = tensor_of(type, count * world->size);
    for (int r = 0; r < world->size; r++) fill(tensor_slice(want, r * count, count), r, 0, 3);
    assert_same_bits(dst, want);
    if (!in_place) free(src.data);
    free(dst.data);
    free(want.data);
}

static void test_all_gather(void **state) {
    Ranks *ranks = *state;
    const DType moved[] = {DT_F32, DT_BF16, DT_U8};
    for (int t = 0; t < 3; t++)
        for (int s = 0; s < SIZES - 1; s++)
            for (int in_place = 0; in_place < 2; in_place++)
                check_all_gather(ranks->world, ranks->stream, moved[t], sizes[s], in_place);
}

static void check_broadcast(Group *group, Stream *stream, int64_t count, int root) {
    Tensor data = tensor_of(DT_F32, count), want = tensor_of(DT_F32, count);
    fill(data, group->rank, 0, 4);
    fill(want, root, 0, 4);
    assert_ok(broadcast(group, stream, data, root, NULL));
    assert_same_bits(data, want);
    free(data.data);
    free(want.data);
}

static void test_broadcast(void **state) {
    Ranks *ranks = *state;
    for (int s = 0; s < SIZES; s++)
        for (int root = 0; root < ranks->world->size; root++)
            check_broadcast(ranks->world, ranks->stream, sizes[s], root);
}

/* An all-to-all with `rows` rows for each rank, or with uneven numbers, some of them 0. */
typedef struct Spread {
    Tensor src, dst, want;
    int64_t out[8], in[8];
    bool uneven;
} Spread;

static int64_t rows_between(int from, int to, int64_t rows, bool uneven) {
    return uneven ? rows * ((from + 3 * to) % 4) / 2 : rows;
}

/* Any bytes. Returns where the next rows begin. */
static char *fill_rows(char *at, int from, int to, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) at[i] = (char)(int)(100 * value_at(8 * from + to, (int64_t)i, 7));
    return at + bytes;
}

static Tensor rows_of(DType type, const int64_t *counts, int size) {
    enum { WIDTH = 3 };
    int64_t rows = 0;
    for (int r = 0; r < size; r++) rows += counts[r];
    return tensor_2d(tensor_of(type, WIDTH * rows).data, type, rows, WIDTH);
}

static void spread_init(Spread *spread, const Group *group, DType type, int64_t rows, bool uneven) {
    int size = group->size, rank = group->rank;
    spread->uneven = uneven;
    for (int r = 0; r < size; r++) spread->out[r] = rows_between(rank, r, rows, uneven);
    for (int r = 0; r < size; r++) spread->in[r] = rows_between(r, rank, rows, uneven);
    spread->src = rows_of(type, spread->out, size);
    spread->dst = rows_of(type, spread->in, size);
    spread->want = rows_of(type, spread->in, size);
    char *out = spread->src.data, *in = spread->want.data;
    size_t width = 3 * dtype_size(type);
    for (int r = 0; r < size; r++) out = fill_rows(out, rank, r, (size_t)spread->out[r] * width);
    for (int r = 0; r < size; r++) in = fill_rows(in, r, rank, (size_t)spread->in[r] * width);
}

static Status spread_start(Spread *spread, Group *group, Stream *stream, Ticket *ret_ticket) {
    return all_to_all(group, stream, spread->dst, spread->src, spread->uneven ? spread->in : NULL,
                      spread->uneven ? spread->out : NULL, ret_ticket);
}

static void spread_check(Spread *spread) {
    assert_same_bits(spread->dst, spread->want);
    void *const data[] = {spread->src.data, spread->dst.data, spread->want.data};
    for (size_t k = 0; k < sizeof data / sizeof *data; k++) free(data[k]);
}

static void check_all_to_all(Group *group, Stream *stream, DType type, int64_t rows, bool uneven) {
    Spread spread;
    spread_init(&spread, group, type, rows, uneven);
    assert_ok(spread_start(&spread, group, stream, NULL));
    spread_check(&spread);
}

static void test_all_to_all(void **state) {
    Ranks *ranks = *state;
    static const int64_t rows[] = {0, 1, 7, 1001, 400001};
    for (DType type = DT_F32; type < DT_COUNT; type++)
        for (int s = 0; s < 5; s++)
            for (int uneven = 0; uneven < 2; uneven++)
                if (type == DT_U8 || rows[s] < 5000)
                    check_all_to_all(ranks->world, ranks->stream, type, rows[s], uneven);
}

/* Every rank refuses counts that do not fit its tensors, and then continues. */
static void test_all_to_all_errors(void **state) {
    Ranks *ranks = *state;
    Group *world = ranks->world;
    int size = world->size, rank = world->rank, other = (rank + 1) % size;
    int64_t all = 4 * size, even[8], wrong[8];
    Tensor src = tensor_2d(tensor_of(DT_F32, 3 * all).data, DT_F32, all, 3), narrow = src;
    Tensor dst = tensor_2d(tensor_of(DT_F32, 3 * all).data, DT_F32, all, 3);
    for (int r = 0; r < size; r++) even[r] = wrong[r] = 4;
    wrong[other] = 5;
    assert_fails(all_to_all(world, ranks->stream, dst, src, even, wrong, NULL), 1, "rows to send");
    assert_fails(all_to_all(world, ranks->stream, dst, src, wrong, even, NULL), 1, "rows to receive");
    wrong[rank] = 3;
    assert_fails(all_to_all(world, ranks->stream, dst, src, even, wrong, NULL), 1, "sends itself");
    wrong[rank] = -1;
    wrong[other] = 9;
    assert_fails(all_to_all(world, ranks->stream, dst, src, wrong, wrong, NULL), 1, "rows to send");
    assert_fails(all_to_all(world, ranks->stream, tensor_slice(dst, 0, 1), src, NULL, NULL, NULL), 1,
                 "evenly");
    narrow.dim[1] = 2;
    assert_fails(all_to_all(world, ranks->stream, dst, narrow, NULL, NULL, NULL), 1, "rows of 2 fp32");
    assert_fails(all_to_all(world, ranks->stream, src, src, NULL, NULL, NULL), 1, "overlap");
    assert_ok(all_to_all(world, ranks->stream, dst, src, even, NULL, NULL));
    free(src.data);
    free(dst.data);
}

/* Operations of several kinds and sizes in flight, started before any is waited for. */
static void check_many(Group *group, Stream *stream) {
    static const int64_t counts[] = {150000, 17, 40001, 9000};
    enum { MANY = sizeof counts / sizeof *counts };
    Tensor whole[MANY], gathered[MANY];
    Spread spread[MANY];
    Ticket ticket[3 * MANY];
    for (int i = 0; i < MANY; i++) {
        whole[i] = tensor_of(DT_F32, counts[i]);
        int64_t part = counts[i] / group->size + 1;
        gathered[i] = tensor_of(DT_F32, part * group->size);
        Tensor own = tensor_slice(gathered[i], group->rank * part, part);
        fill(whole[i], group->rank, 0, i);
        fill(own, group->rank, 0, i);
        assert_ok(all_reduce(group, stream, whole[i], REDUCE_SUM, &ticket[3 * i]));
        spread_init(&spread[i], group, DT_BF16, counts[i] / 8 / group->size, i % 2);
        assert_ok(spread_start(&spread[i], group, stream, &ticket[3 * i + 1]));
        assert_ok(all_gather(group, stream, gathered[i], own, &ticket[3 * i + 2]));
    }
    for (int i = 3 * MANY - 1; i >= 0; i--) assert_ok(ticket_wait(stream, &ticket[i]));
    for (int i = 0; i < MANY; i++) {
        int64_t part = counts[i] / group->size + 1;
        Tensor all = tensor_of(DT_F32, part * group->size);
        for (int r = 0; r < group->size; r++) fill(tensor_slice(all, r * part, part), r, 0, i);
        assert_same_bits(whole[i], reference(group, DT_F32, 0, counts[i], i, REDUCE_SUM));
        assert_same_bits(gathered[i], all);
        spread_check(&spread[i]);
        void *const data[] = {whole[i].data, gathered[i].data, all.data};
        for (size_t k = 0; k < sizeof data / sizeof *data; k++) free(data[k]);
    }
}

static void check_group(Group *group, Stream *stream) {
    check_all_reduce(group, stream, DT_F32, 20011, REDUCE_SUM);
    check_all_reduce(group, stream, DT_BF16, 50001, REDUCE_SUM);
    check_all_reduce(group, stream, DT_I64, 8193, REDUCE_MAX);
    check_reduce_scatter(group, stream, DT_F16, 9001, false);
    check_reduce_scatter(group, stream, DT_F32, 4099, true);
    check_all_gather(group, stream, DT_F32, 10001, true);
    check_broadcast(group, stream, 100001, group->size - 1);
    check_all_to_all(group, stream, DT_F32, 1001, false);
    check_all_to_all(group, stream, DT_BF16, 300001 / group->size, true);
    check_many(group, stream);
}

/* A group whose ranks are on the given nodes. */
static Group *placed(Group *world, const int *node) {
    Group *group = NULL;
    char list[64] = "";
    for (int r = 0; r < world->size; r++)
        snprintf(list + strlen(list), sizeof list - strlen(list), r ? ",%d" : "%d", node[r]);
    setenv("WEFT_NODES", list, 1);
    assert_ok(group_split(world, 0, world->rank, GROUP_TENSORS, &group));
    unsetenv("WEFT_NODES");
    return group;
}

/* The next way to divide ranks among nodes; false after the last. A node's number is at most one more than
 * those before it. */
static bool next_placement(int *node, int size) {
    for (int r = size - 1; r > 0; r--) {
        int most = 0;
        for (int s = 0; s < r; s++) most = node[s] > most ? node[s] : most;
        if (node[r] <= most) {
            node[r]++;
            for (int s = r + 1; s < size; s++) node[s] = 0;
            return true;
        }
    }
    return false;
}

static void test_placements(void **state) {
    Ranks *ranks = *state;
    static const int samples[][8] = {{0, 0, 0, 0, 1, 1, 1, 1}, {0, 1, 0, 1, 0, 1, 0, 1},
                                     {0, 0, 1, 1, 2, 2, 3, 3}, {0, 1, 1, 1, 1, 1, 1, 1},
                                     {0, 0, 0, 1, 1, 1, 2, 2}, {0, 1, 2, 3, 4, 5, 6, 7},
                                     {2, 0, 0, 1, 1, 0, 1, 2}};
    int node[8] = {0}, size = ranks->world->size;
    for (size_t i = 0; i < (size > 4 ? sizeof samples / sizeof *samples : 1); i++) {
        if (size > 4) memcpy(node, samples[i], sizeof node);
        do {
            Group *group = placed(ranks->world, node);
            check_group(group, ranks->stream);
            check_all_reduce(group, ranks->stream, DT_F32, 700001, REDUCE_SUM); /* chunks of many messages */
            group_free(group);
        } while (size <= 4 && next_placement(node, size));
    }
}

/* If one rank cannot share memory, all of them exchange messages. */
static void test_without_shared_memory(void **state) {
    Ranks *ranks = *state;
    struct rlimit before, none;
    Group *group = NULL;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    if (ranks->world->rank == 1) setrlimit(RLIMIT_NOFILE, &none);
    assert_ok(group_split(ranks->world, 0, ranks->world->rank, GROUP_TENSORS, &group));
    setrlimit(RLIMIT_NOFILE, &before);
    assert_int_equal(group->placement->domains, group->size);
    check_group(group, ranks->stream);
    Tensor data = tensor_of(DT_F32, 84000);
    CommBytes earlier = group->sent[COMM_ALL_REDUCE];
    assert_ok(all_reduce(group, ranks->stream, data, REDUCE_SUM, NULL));
    uint64_t n = (uint64_t)group->size;
    assert_int_equal(group->sent[COMM_ALL_REDUCE].within - earlier.within, 2 * 84000 * 4 * (n - 1) / n);
    assert_int_equal(group->sent[COMM_ALL_REDUCE].between, 0);
    free(data.data);
    group_free(group);
}

/* reduce_scatter followed by all_gather equals all_reduce, bit for bit. */
static void test_reduce_scatter_all_gather_match_all_reduce(void **state) {
    Ranks *ranks = *state;
    Group *world = ranks->world;
    int64_t part = 33333, count = part * world->size;
    Tensor whole = tensor_of(DT_F32, count), parts = tensor_of(DT_F32, count);
    fill(whole, world->rank, 0, 5);
    fill(parts, world->rank, 0, 5);
    Tensor own = tensor_slice(parts, world->rank * part, part);
    assert_ok(all_reduce(world, ranks->stream, whole, REDUCE_SUM, NULL));
    assert_ok(reduce_scatter(world, ranks->stream, own, parts, REDUCE_SUM, NULL));
    assert_ok(all_gather(world, ranks->stream, parts, own, NULL));
    assert_same_bits(parts, whole);
    free(whole.data);
    free(parts.data);
}

static void test_max_of_nan(void **state) {
    Ranks *ranks = *state;
    float value[2] = {(float)ranks->world->rank, ranks->world->rank == 1 ? NAN : 1.0f};
    assert_ok(all_reduce(ranks->world, ranks->stream, tensor_1d(value, DT_F32, 2), REDUCE_MAX, NULL));
    assert_true(value[0] == (float)(ranks->world->size - 1));
    assert_true(value[1] != value[1]);
}

static void test_host(void **state) {
    Group *world = ((Ranks *)*state)->world;
    int64_t n = world->size, sums[3] = {1, world->rank, -world->rank};
    assert_ok(host_reduce(world, sums, 3, DT_I64, REDUCE_SUM));
    assert_int_equal(sums[0], n);
    assert_int_equal(sums[1], n * (n - 1) / 2);
    assert_int_equal(sums[2], -n * (n - 1) / 2);
    double max = -world->rank;
    assert_ok(host_reduce(world, &max, 1, DT_F64, REDUCE_MAX));
    assert_true(max == 0);
    enum { LARGE = 5003 };
    double *large_sums = calloc(LARGE, sizeof *large_sums);
    for (int64_t i = 0; i < LARGE; i++) large_sums[i] = value_at(world->rank, i, 6);
    assert_ok(host_reduce(world, large_sums, LARGE, DT_F64, REDUCE_SUM));
    for (int64_t i = 0; i < LARGE; i++)
        assert_true(large_sums[i] == reduced_at(world->size, i, 6, DT_F64, REDUCE_SUM));
    free(large_sums);
    char all[64] = "", own[4] = {'a', (char)('0' + world->rank), 'z', 0};
    assert_ok(host_gather(world, all, own, 4));
    for (int r = 0; r < world->size; r++) assert_int_equal(all[4 * r + 1], '0' + r);
    size_t large = 3000001;
    unsigned char *data = calloc(1, large);
    if (world->rank == 1) memset(data, 77, large);
    assert_ok(host_broadcast(world, data, large, 1));
    assert_int_equal(data[0], 77);
    assert_int_equal(data[large - 1], 77);
    free(data);
    assert_ok(barrier(world));
    assert_fails(host_broadcast(world, &max, 8, world->size), 1, "rank");
    assert_fails(host_reduce(world, &max, 1, DT_F32, REDUCE_MAX), 1, "fp32");
}

static void test_bytes_counted(void **state) {
    Ranks *ranks = *state;
    Group *world = NULL;
    assert_ok(group_split(ranks->world, 0, ranks->world->rank, GROUP_TENSORS, &world));
    uint64_t n = (uint64_t)world->size, count = 840 * 64;
    Tensor data = tensor_of(DT_F32, (int64_t)count), part = tensor_slice(data, 0, (int64_t)(count / n));
    Tensor few = tensor_slice(data, 0, 840);
    assert_ok(all_reduce(world, ranks->stream, few, REDUCE_SUM, NULL));
    assert_int_equal(world->sent[COMM_ALL_REDUCE].within, 840 * 4 * (n - 1));
    world->sent[COMM_ALL_REDUCE].within = 0;
    assert_ok(all_reduce(world, ranks->stream, data, REDUCE_SUM, NULL));
    assert_ok(reduce_scatter(world, ranks->stream, part, data, REDUCE_SUM, NULL));
    part = tensor_slice(data, world->rank * (int64_t)(count / n), (int64_t)(count / n));
    assert_ok(all_gather(world, ranks->stream, data, part, NULL));
    assert_ok(broadcast(world, ranks->stream, data, 1, NULL));
    assert_ok(host_broadcast(world, data.data, 100, 0));
    Tensor other = tensor_of(DT_F32, (int64_t)count);
    assert_ok(all_to_all(world, ranks->stream, other, data, NULL, NULL, NULL));
    free(other.data);
    if (world->rank == 0) assert_ok(comm_send(world, ranks->stream, part, 1, NULL));
    if (world->rank == 1) assert_ok(comm_receive(world, ranks->stream, part, 0, NULL));
    assert_int_equal(world->sent[COMM_ALL_REDUCE].within, 2 * count * 4 * (n - 1) / n);
    assert_int_equal(world->sent[COMM_REDUCE_SCATTER].within, count * 4 * (n - 1) / n);
    assert_int_equal(world->sent[COMM_ALL_GATHER].within, count * 4 * (n - 1) / n);
    assert_int_equal(world->sent[COMM_BROADCAST].within, world->rank == 1 ? (n - 1) * count * 4 : 0);
    assert_int_equal(world->sent[COMM_ALL_TO_ALL].within, count * 4 * (n - 1) / n);
    assert_int_equal(world->sent[COMM_SEND].within, world->rank == 0 ? count / n * 4 : 0);
    for (CommKind kind = 0; kind < COMM_KINDS; kind++) assert_int_equal(world->sent[kind].between, 0);
    free(data.data);
    group_free(world);
}

/* On two nodes with n / 2 ranks each, a node sends what two single ranks would send. */
static void test_bytes_between_nodes(void **state) {
    Ranks *ranks = *state;
    int node[8], size = ranks->world->size;
    uint64_t count = 840 * 64, n = (uint64_t)size;
    for (int r = 0; r < size; r++) node[r] = 2 * r / size;
    if (size % 2) return;
    Group *group = placed(ranks->world, node);
    Tensor data = tensor_of(DT_F32, (int64_t)count), part = tensor_slice(data, 0, (int64_t)(count / n));
    assert_ok(all_reduce(group, ranks->stream, data, REDUCE_SUM, NULL));
    assert_ok(reduce_scatter(group, ranks->stream, part, data, REDUCE_SUM, NULL));
    part = tensor_slice(data, group->rank * (int64_t)(count / n), (int64_t)(count / n));
    assert_ok(all_gather(group, ranks->stream, data, part, NULL));
    assert_ok(broadcast(group, ranks->stream, data, 0, NULL));
    Tensor other = tensor_of(DT_F32, (int64_t)count);
    assert_ok(all_to_all(group, ranks->stream, other, data, NULL, NULL, NULL));
    free(other.data);
    if (group->rank == 0) assert_ok(comm_send(group, ranks->stream, part, size - 1, NULL));
    if (group->rank == size - 1) assert_ok(comm_receive(group, ranks->stream, part, 0, NULL));
    int64_t between[COMM_KINDS];
    for (CommKind kind = 0; kind < COMM_KINDS; kind++)
        between[kind] = node[group->rank] == 0 ? (int64_t)group->sent[kind].between : 0;
    assert_ok(host_reduce(group, between, COMM_KINDS, DT_I64, REDUCE_SUM));
    assert_int_equal(between[COMM_ALL_REDUCE], count * 4);
    assert_int_equal(between[COMM_REDUCE_SCATTER], count * 4 / 2);
    assert_int_equal(between[COMM_ALL_GATHER], count * 4 / 2);
    assert_int_equal(between[COMM_BROADCAST], count * 4);
    assert_int_equal(between[COMM_ALL_TO_ALL], count * n); /* n / 2 ranks, each half of what it has */
    assert_int_equal(between[COMM_SEND], count * 4 / n);
    free(data.data);
    group_free(group);
}

static void compare_tables(Group *world, const char *expected, const AgreeRow *common, int count,
                           AgreeRow odd) {
    CLEANUP(agree_done) AgreeTable table = {0};
    for (int i = 0; i < count; i++)
        assert_ok(agree_add(&table, common[i].key, common[i].shown, common[i].given));
    if (world->rank == world->size - 1 && odd.key)
        assert_ok(agree_add(&table, odd.key, odd.shown, odd.given));
    if (expected)
        assert_fails(agree_check(world, &table, "fix it"), 2, expected);
    else
        assert_ok(agree_check(world, &table, "fix it"));
}

/* All ranks fail with the same message, which names the first difference. */
static void test_agreement(void **state) {
    Group *world = ((Ranks *)*state)->world;
    bool last = world->rank == world->size - 1;
    static char text[] = "lr 1", odd_text[] = "lr 2", shown[] = "--lr 1", odd_shown[] = "--lr 2";
    static char batch[] = "batch 1", odd_batch[] = "batch 2", end[] = "end", end_shown[] = "an end";
    AgreeRow same[] = {{batch, batch, false}, {text, shown, true}};
    AgreeRow odd[] = {{last ? odd_batch : batch, batch, false},
                      {last ? odd_text : text, last ? odd_shown : shown, true}};
    char expected[160], host[HOST_SIZE];
    compare_tables(world, NULL, same, 2, (AgreeRow){0});
    compare_tables(world, NULL, NULL, 0, (AgreeRow){0});
    /* The batch differs first, but only because of what was given. */
    snprintf(expected, sizeof expected, "rank 0 on %s has --lr 1, but rank %d on", group_host(world, 0, host),
             world->size - 1);
    compare_tables(world, expected, odd, 2, (AgreeRow){0});
    compare_tables(world, " has batch 1; fix it", odd, 1, (AgreeRow){0});
    compare_tables(world, " has nothing more, but rank ", same, 2, (AgreeRow){end, end_shown, false});
    assert_ok(barrier(world));
}

/* The ranks of a host are known in every kind of group. */
static void test_node_group(void **state) {
    Group *world = ((Ranks *)*state)->world;
    CLEANUP(group_freep) Group *node = NULL;
    assert_ok(mpi_node_group(world, &node));
    assert_int_equal(node->size, world->size);
    assert_int_equal(node->rank, world->rank);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_agreement),
    cmocka_unit_test(test_all_reduce),
    cmocka_unit_test(test_reduce_scatter),
    cmocka_unit_test(test_all_gather),
    cmocka_unit_test(test_broadcast),
    cmocka_unit_test(test_reduce_scatter_all_gather_match_all_reduce),
    cmocka_unit_test(test_max_of_nan),
    cmocka_unit_test(test_host),
    cmocka_unit_test(test_bytes_counted),
    cmocka_unit_test(test_bytes_between_nodes),
    cmocka_unit_test(test_placements),
    cmocka_unit_test(test_without_shared_memory),
    cmocka_unit_test(test_node_group),
    cmocka_unit_test(test_all_to_all),
    cmocka_unit_test(test_all_to_all_errors),
};

RANKS_MAIN(tests)
