/* Layouts that cover all pairs of options. */
#include "test.h"

#include "verify/cover.h"

static const Precision precisions[] = {{.name = "fp32", .dtype = DT_F32},
                                       {.name = "bf16", .dtype = DT_BF16},
                                       {.name = "fp8", .dtype = DT_BF16, .fp8 = true}};
enum { PRECISIONS = 3, LIMIT = 400 };

static bool same_grid(MeshSpec mesh, MeshSpec grid) {
    mesh.heads = mesh.ep = 0;
    return mesh_same(mesh, grid);
}

static bool is_mixture(int job) {
    ModelConfig config;
    trial_config(&(TrialSpec){.job = job}, &config);
    return config.experts > 0;
}

/* Each layout adds a pair, and none is left in the end; a pair that no layout has was not legal. */
static void all_pairs_occur(void **state) {
    static const int ranks[] = {1, 2, 3, 4, 6, 8, 12, 16};
    for (size_t r = 0; r < (SANITIZED ? 4 : sizeof ranks / sizeof *ranks); r++) {
        CLEANUP(cover_done) Cover cover = {0};
        TrialSpec spec[LIMIT];
        TrialJob job;
        int count = 0, jobs = 0;
        assert_ok(cover_init(&cover, ranks[r], r % 2, precisions, PRECISIONS));
        int64_t covered = 0;
        while (count < LIMIT && cover_next(&cover, &spec[count])) {
            assert_true(cover.covered > covered);
            covered = cover.covered;
            const MeshSpec *mesh = &spec[count].mesh;
            assert_int_equal(mesh_ranks(*mesh, AXES_ALL), ranks[r]);
            assert_true(trial_is_legal(&spec[count]));
            count++;
        }
        assert_int_equal(cover.covered, cover.pairs);
        assert_true(count < LIMIT);
        /* For one of them, by hand: every job with every grid in fp32, where 3 ranks are no tensor grid. */
        while (trial_job(jobs, &job)) {
            for (int g = 0; g < cover.grids; g++) {
                bool found = false;
                for (int i = 0; i < count; i++)
                    found |= spec[i].job == jobs && same_grid(spec[i].mesh, cover.grid[g]);
                TrialSpec trial = {.job = jobs, .mesh = cover.grid[g]}, other = trial;
                if (r % 2 == 0 && trial.mesh.cp > 1) other.cp_mode = CONTEXT_RING;
                bool legal = trial_splits_context(&trial) || trial_splits_context(&other);
                legal &=
                    trial.mesh.tp == 1 || strcmp(job.name, "olmoe"); /* whose heads are normalized as one */
                assert_int_equal(found, legal);
            }
            jobs++;
        }
        assert_true(jobs >= 8);
    }
}

static void illegal_layouts_are_known(void **state) {
    const TrialSpec good = {.mesh = {.dp = 2, .tp = 2, .pp = 2}, .chunks = 1, .micro_batch = 2};
    TrialSpec bad[] = {good, good, good, good, good, good, good, good, good};
    bad[0].mesh.tp = 3;                                   /* heads */
    bad[1].mesh.dp = 16;                                  /* batch */
    bad[2].mesh.pp = 4, bad[2].chunks = 2;                /* layers */
    bad[3].keep = true;                                   /* only with ZeRO-3 */
    bad[4].offload = OFFLOAD_COUNT - 1;                   /* likewise: parameters */
    bad[5].mesh.tp = 1, bad[5].sequence = true;           /* needs tensor parallelism */
    bad[6].mesh.pp = 1, bad[6].schedule = SCHEDULE_GPIPE; /* needs stages */
    bad[7].cp_mode = CONTEXT_RING;                        /* needs parts of sequences */
    bad[8].mesh.ep = 2;                                   /* needs experts */
    TrialSpec divided = good;
    assert_true(trial_is_legal(&good));
    while (!is_mixture(divided.job)) divided.job++;
    divided.mesh.ep = 2;
    assert_true(trial_is_legal(&divided));
    divided.mesh.ep = 4; /* of two ranks with the same parameters */
    assert_false(trial_is_legal(&divided));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_false(trial_is_legal(&bad[i]));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_pairs_occur),
                                       cmocka_unit_test(illegal_layouts_are_known)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
