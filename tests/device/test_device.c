/* Tests the CPU device: memory accounting by tag, peaks, the memory limit, stream workspace, thread counts,
 * and the pool of threads. */
#include "device/device.h"

#include <stdatomic.h>
#include <stdint.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/memory.h"
#include "device/host_memory.h"
#include "device/pool.h"
#include "test.h"

static int setup(void **state) {
    Device *device = NULL;
    assert_ok(device_new_cpu(&device, 1));
    *state = device;
    return 0;
}

static int teardown(void **state) {
    device_free(*state);
    return 0;
}

static void test_counts_by_tag(void **state) {
    Device *device = *state;
    Buffer a, b, c;
    assert_ok(dev_alloc(device, MEM_PARAMS, 1000, &a));
    assert_ok(dev_alloc(device, MEM_GRADS, 3 << 20, &b));
    assert_int_equal(device->mem[MEM_PARAMS].current, 1000);
    assert_int_equal(device->mem[MEM_GRADS].current, 3 << 20);
    assert_int_equal(device->total.current, 1000 + (3 << 20));
    dev_free(&b);
    assert_null(b.data);
    assert_ok(dev_alloc(device, MEM_PARAMS, 500, &c));
    assert_int_equal(device->mem[MEM_PARAMS].peak, 1500);
    assert_int_equal(device->mem[MEM_GRADS].current, 0);
    assert_int_equal(device->mem[MEM_GRADS].peak, 3 << 20);
    assert_int_equal(device->total.peak, 1000 + (3 << 20));
    dev_free(&a);
    dev_free(&c);
    dev_free(&c); /* freeing twice is allowed */
    assert_int_equal(device->total.current, 0);
    for (int tag = 0; tag < MEM_TAGS; tag++) assert_int_equal(device->mem[tag].current, 0);
}

static void test_memory(void **state) {
    Device *device = *state;
    static const size_t sizes[] = {1, 63, 4096, (1 << 20) - 1, 1 << 20, (5 << 20) + 3};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        Buffer buffer;
        assert_ok(dev_alloc(device, MEM_ACTIVATIONS, sizes[i], &buffer));
        assert_int_equal((uintptr_t)buffer.data % 64, 0);
        memset(buffer.data, 1, sizes[i]);
        dev_free(&buffer);
    }
    Buffer empty;
    assert_ok(dev_alloc(device, MEM_COMM, 0, &empty));
    assert_null(empty.data);
    dev_free(&empty);
}

static void test_limit(void **state) {
    Device *device = *state;
    device->limit = 10000;
    Buffer a, b = {.bytes = 77};
    assert_ok(dev_alloc(device, MEM_PARAMS, 6000, &a));
    assert_fails(dev_alloc(device, MEM_OPTIMIZER, 4001, &b), STATUS_FAILED,
                 "4.00 kB for optimizer; in use: params 6.00 kB");
    assert_fails(dev_alloc(device, MEM_OPTIMIZER, SIZE_MAX, &b), STATUS_FAILED, "limit 10.0 kB");
    device->advice = "a smaller {batch}";
    assert_fails(dev_alloc(device, MEM_OPTIMIZER, SIZE_MAX, &b), STATUS_FAILED,
                 "limit 10.0 kB. Try a smaller --batch");
    assert_int_equal(b.bytes, 77); /* unchanged on failure */
    assert_int_equal(device->mem[MEM_OPTIMIZER].peak, 0);
    assert_ok(dev_alloc(device, MEM_OPTIMIZER, 4000, &b));
    dev_free(&a);
    dev_free(&b);
}

static void test_out_of_memory(void **state) {
    Device *device = *state;
    Buffer buffer;
    assert_fails(dev_alloc(device, MEM_GRADS, SIZE_MAX / 2, &buffer), STATUS_FAILED, "for grads");
    device->limit = 0; /* no limit: the system allocator fails */
    assert_fails(dev_alloc(device, MEM_GRADS, SIZE_MAX / 2, &buffer), STATUS_FAILED,
                 "for grads; in use: nothing");
    assert_int_equal(device->total.current, 0);
}

static void test_stream(void **state) {
    Device *device = *state;
    Stream *stream = NULL;
    assert_ok(stream_new(&stream, device));
    char text[16] = "weft", copy[16];
    assert_ok(stream_copy(stream, copy, text, sizeof text, COPY_TO_DEVICE));
    assert_string_equal(copy, "weft");
    assert_ok(stream_zero(stream, copy, 2));
    assert_memory_equal(copy, "\0\0ft", 4);
    assert_ok(stream_copy(stream, NULL, NULL, 0, COPY_ON_DEVICE));
    void *first = NULL, *smaller = NULL, *larger = NULL;
    assert_ok(stream_workspace(stream, 100, &first));
    assert_ok(stream_workspace(stream, 50, &smaller));
    assert_ptr_equal(first, smaller);
    assert_int_equal(device->mem[MEM_SCRATCH].current, 100);
    assert_ok(stream_workspace(stream, 5000, &larger));
    memset(larger, 1, 5000);
    assert_int_equal(device->mem[MEM_SCRATCH].current, 5000);
    assert_ok(stream_sync(stream));
    stream_free(stream);
    stream_free(NULL);
    assert_int_equal(device->mem[MEM_SCRATCH].current, 0);
    assert_int_equal(device->mem[MEM_SCRATCH].peak, 5000);
}

static void test_threads(void **state) {
    Device *device = NULL;
    setenv("OMP_NUM_THREADS", "3", 1);
    assert_ok(device_new_cpu(&device, 0));
    assert_int_equal(device->threads, 3);
    device_free(device);
    unsetenv("OMP_NUM_THREADS");
    assert_ok(device_new_cpu(&device, 0));
    assert_true(device->threads >= 1);
    device_free(device);
    device_free(NULL);
    for (int tag = 0; tag < MEM_TAGS; tag++) assert_non_null(mem_tag_name(tag));
}

/* ---- limits of the host ---- */

typedef struct FakeFile {
    const char *path, *text;
} FakeFile;

/* host_memory over files in a temporary directory; the list ends with {0}. */
static HostMemory memory_with(const FakeFile *files) {
    char root[] = "/tmp/weft-test-XXXXXX";
    assert_non_null(mkdtemp(root));
    for (; files->path; files++) {
        CLEANUP(mem_freep) char *path = NULL, *dir = NULL;
        assert_ok(path_join(&path, root, files->path));
        assert_ok(str_dup(path, &dir));
        *strrchr(dir, '/') = 0;
        assert_ok(dir_make(dir));
        assert_ok(file_replace(path, files->text, strlen(files->text)));
    }
    HostMemory memory = host_memory(root);
    assert_ok(dir_remove(root));
    return memory;
}

#define MEMINFO                                                                                              \
    { "proc/meminfo", "MemTotal: 900 kB\nMemAvailable:  700 kB\nSwapTotal: 0 kB\nSwapFree: 100 kB\n" }

static void test_host_memory(void **state) {
    const size_t all = 800 * 1024;
    assert_int_equal(memory_with((FakeFile[]){{0}}).host, 0);
    assert_int_equal(memory_with((FakeFile[]){MEMINFO, {0}}).host, all);
    /* Version 2: the tightest of all ancestors counts, less what is used, not counting the page cache. */
    const FakeFile nested[] = {
        MEMINFO,
        {"proc/self/cgroup", "0::/a/b/c\n"},
        {"sys/fs/cgroup/a/memory.max", "300000\n"},
        {"sys/fs/cgroup/a/memory.current", "50000\n"},
        {"sys/fs/cgroup/a/memory.stat", "anon 10000\ninactive_file 20000\nactive_file 20000\n"},
        {"sys/fs/cgroup/a/b/memory.max", "max\n"},
        {"sys/fs/cgroup/a/b/c/memory.max", "400000\n"},
        {"sys/fs/cgroup/a/b/c/memory.current", "0\n"},
        {"sys/fs/cgroup/other/memory.max", "1\n"},
        {0}};
    assert_int_equal(memory_with(nested).host, 290000);
    const FakeFile full[] = {MEMINFO,
                             {"proc/self/cgroup", "0::/\n"},
                             {"sys/fs/cgroup/memory.max", "100\n"},
                             {"sys/fs/cgroup/memory.current", "200\n"},
                             {0}};
    assert_int_equal(memory_with(full).host, 1);
    /* Version 1, beside an empty version 2; a container that does not see its own path. */
    const FakeFile first[] = {
        MEMINFO,
        {"proc/self/cgroup", "3:cpuset:/x\n4:cpu,memory:/job/step\n0::/\n"},
        {"sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"},
        {"sys/fs/cgroup/memory/job/memory.limit_in_bytes", "500000\n"},
        {"sys/fs/cgroup/memory/job/memory.usage_in_bytes", "100000\n"},
        {"sys/fs/cgroup/memory/job/memory.stat", "cache 9\ntotal_inactive_file 30000\n"},
        {"sys/fs/cgroup/memory/x/memory.limit_in_bytes", "5\n"},
        {0}};
    assert_int_equal(memory_with(first).host, 430000);
    const FakeFile inside[] = {MEMINFO,
                               {"proc/self/cgroup", "4:memory:/docker/123\n"},
                               {"sys/fs/cgroup/memory/memory.limit_in_bytes", "600000\n"},
                               {0}};
    assert_int_equal(memory_with(inside).host, 600000);
    const FakeFile garbage[] = {MEMINFO, {"proc/self/cgroup", "\n:\n0:\n0::\nmemory\n"}, {0}};
    assert_int_equal(memory_with(garbage).host, all);
}

static void test_address_space(void **state) {
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    if (before.rlim_cur != RLIM_INFINITY) skip();
    assert_true(host_memory("").process == SIZE_MAX);
    small = before;
    small.rlim_cur = (rlim_t)1 << 46;
    if (setrlimit(RLIMIT_AS, &small) != 0) skip();
    size_t left = host_memory("").process;
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_true(left < small.rlim_cur);
}

enum { POOL_THREADS = 4, POOL_TASKS = 200 };

typedef struct PoolJob {
    Pool *pool;
    atomic_int *runs;               /* of each task */
    atomic_int using[POOL_THREADS]; /* tasks that run with this thread's number */
    atomic_int inner;               /* tasks of jobs that tasks have started */
    atomic_bool wrong;
} PoolJob;

static void inner_task(const void *context, int64_t task, int thread) {
    PoolJob *job = (PoolJob *)context;
    if (task >= 3 || thread != 0) job->wrong = true;
    job->inner++;
}

static void counted_task(const void *context, int64_t task, int thread) {
    PoolJob *job = (PoolJob *)context;
    if (thread < 0 || thread >= POOL_THREADS || job->using[thread]++) job->wrong = true;
    job->runs[task]++;
    if (task % 50 == 0) pool_run(job->pool, 3, inner_task, job);
    if (task % 7 == 0) usleep(100);
    if (thread >= 0 && thread < POOL_THREADS) job->using[thread]--;
}

/* Every task runs once, whichever threads are awake, and pool_run returns only when all are complete. A job
 * within a task runs on its thread. */
static void test_pool(void **state) {
    Pool *pool = NULL;
    assert_ok(pool_new(&pool, POOL_THREADS));
    atomic_int runs[POOL_TASKS] = {0};
    PoolJob job = {.pool = pool, .runs = runs};
    int expected[POOL_TASKS] = {0}, inner = 0;
    for (int round = 0; round < 60; round++) {
        int tasks = round % 3 == 0 ? 2 + round % 5 : POOL_TASKS - round;
        pool_run(pool, tasks, counted_task, &job);
        for (int i = 0; i < tasks; i++) {
            expected[i]++;
            if (i % 50 == 0) inner += 3;
        }
        for (int i = 0; i < POOL_TASKS; i++) assert_int_equal(runs[i], expected[i]);
        assert_int_equal(job.inner, inner);
        if (round % 10 == 9) usleep(2000); /* long enough for the threads to sleep */
    }
    assert_false(job.wrong);
    pool_free(pool);
    pool_run(NULL, POOL_TASKS, counted_task, &(PoolJob){.runs = runs});
    assert_int_equal(runs[POOL_TASKS - 1], expected[POOL_TASKS - 1] + 1);
}

enum { WORKS = 12, WORK_TASKS = 60 };

/* Background work: tasks that ran, and those that had run when it finished. */
typedef struct BackgroundCounts {
    atomic_int runs[WORK_TASKS], all, at_finish;
} BackgroundCounts;

typedef struct BackgroundContext {
    BackgroundCounts *counts;
} BackgroundContext;

static void background_task(const void *context, int64_t task, int thread) {
    BackgroundCounts *counts = ((const BackgroundContext *)context)->counts;
    (void)thread;
    if (task == 0) usleep(20);
    counts->runs[task]++;
    counts->all++;
}

static void background_finish(const void *context) {
    BackgroundCounts *counts = ((const BackgroundContext *)context)->counts;
    counts->at_finish = (int)counts->all;
}

static void leave_some(Pool *pool, BackgroundCounts *counts, PoolJob *job) {
    int64_t number[WORKS] = {0};
    for (int i = 0; i < WORKS; i++) {
        BackgroundContext context = {&counts[i]};
        PoolWork work = {WORK_TASKS - i, background_task, background_finish, &context, sizeof context};
        assert_ok(pool_add_background(pool, &work, &number[i]));
        context.counts = NULL; /* it was copied */
        if (i % 2) pool_run(pool, 20, counted_task, job);
        if (i % 4 != 3) continue;
        pool_await(pool, number[i - 2]);
        assert_int_equal(counts[i - 2].at_finish, WORK_TASKS - i + 2);
    }
}

/* Every task of background work runs once, beside jobs or when it is awaited, and `finish` after all of them.
 * There is more work than a pool can hold at a time. */
static void check_background(int threads) {
    enum { ROUNDS = 40 };
    static BackgroundCounts counts[WORKS];
    Pool *pool = NULL;
    assert_ok(pool_new(&pool, threads));
    atomic_int runs[POOL_TASKS] = {0};
    PoolJob job = {.pool = pool, .runs = runs};
    for (int round = 0; round < ROUNDS; round++) {
        memset(counts, 0, sizeof counts);
        leave_some(pool, counts, &job);
        pool_await_all(pool);
        for (int i = 0; i < WORKS; i++) {
            assert_int_equal(counts[i].at_finish, WORK_TASKS - i);
            for (int task = 0; task < WORK_TASKS; task++)
                assert_int_equal(counts[i].runs[task], task < WORK_TASKS - i);
        }
    }
    for (int i = 0; i < 20; i++) assert_int_equal(runs[i], ROUNDS * WORKS / 2);
    assert_false(job.wrong);
    pool_free(pool);
}

static void test_pool_background(void **state) {
    check_background(1);
    check_background(2);
    check_background(POOL_THREADS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_counts_by_tag, setup, teardown),
        cmocka_unit_test_setup_teardown(test_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(test_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_out_of_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stream, setup, teardown),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_host_memory),
        cmocka_unit_test(test_address_space),
        cmocka_unit_test(test_pool),
        cmocka_unit_test(test_pool_background),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
