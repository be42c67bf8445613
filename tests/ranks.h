/* Support for tests that run as several ranks (tests/FOLDER/mpi_NAME.c).
 *
 * Such a file lists its rank counts in a comment line like " * Ranks: 2 3 4 8", after an empty comment line
 * so that clang-format does not join it with the text above; each count becomes a separate ctest test. The
 * file ends with RANKS_MAIN(tests). Every rank runs every test. A failed assertion aborts all ranks, which
 * would otherwise hang waiting for the failed one. WEFT_TEST_FILTER selects tests by name, with wildcards. */
#ifndef WEFT_TESTS_RANKS_H
#define WEFT_TESTS_RANKS_H

#include "device.h"
#include "test.h"

#include "comm/gpus.h"
#include "comm/mpi.h"
#include "comm/staged.h"

/* *state of every test. */
typedef struct Ranks {
    Group *world;
    Group *host; /* the same ranks over host memory */
    Device *device;
    Stream *stream;
} Ranks;

/* WEFT_TEST_GROUPS=staged stages collectives through host memory, also on CPUs. On GPUs this is the default;
 * nccl uses NCCL. */
static inline bool ranks_over(const char *groups) {
    const char *asked = getenv("WEFT_TEST_GROUPS");
    return asked ? strcmp(asked, groups) == 0 : test_on_cuda() && strcmp("staged", groups) == 0;
}

static inline int ranks_setup(void **state) {
    static Ranks ranks;
    Group *world = NULL;
    GpuShare share;
    char note[GPU_NOTE];
    assert_ok(mpi_world_new(&world));
    assert_ok(gpus_share(world, &share));
    if (ranks_over("nccl")) *test_gpu() = share.index;
    test_device_new(&ranks.device, 1);
    ranks.world = world;
    assert_ok(group_split(world, 0, world->rank, GROUP_TENSORS, &ranks.host));
    if (ranks_over("nccl"))
        assert_ok(group_over_gpus(&ranks.world, world, ranks.device, &share, note));
    else if (ranks_over("staged"))
        assert_ok(group_new_staged(&ranks.world, world, ranks.device));
    assert_ok(stream_new(&ranks.stream, ranks.device));
    *state = &ranks;
    return 0;
}

static inline int ranks_teardown(void **state) {
    Ranks *ranks = *state;
    stream_free(ranks->stream);
    group_free(ranks->host);
    group_free(ranks->world);
    test_device_free(ranks->device);
    return 0;
}

/* Makes failed assertions abort, and silences stdout on all ranks but 0. */
static inline void ranks_prepare(void) {
    setenv("CMOCKA_TEST_ABORT", "1", 1);
    if (mpi_launched().rank > 0 && !freopen("/dev/null", "w", stdout)) exit(1);
}

#define RANKS_MAIN(tests)                                                                                    \
    int main(void) {                                                                                         \
        ranks_prepare();                                                                                     \
        if (getenv("WEFT_TEST_FILTER")) cmocka_set_test_filter(getenv("WEFT_TEST_FILTER"));                  \
        return cmocka_run_group_tests(tests, ranks_setup, ranks_teardown);                                   \
    }

#endif
