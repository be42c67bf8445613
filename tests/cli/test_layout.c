/* Layouts that follow from the options of a command line and its configuration file. */
#include "test.h"

#include <unistd.h>

#include "cli/train_options.h"

/* Derives the layout from a command line and the number of ranks that a launcher started. */
static Status derive_layout(const char *line, int64_t world, Layout *ret_layout) {
    char copy[256], *words[32], *rest = NULL;
    int count = 0;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        words[count++] = word;
    CLEANUP(invocation_freep) Invocation *call = NULL;
    TRY(invocation_new(&call, &command_train, count, words));
    Layout layout = ((TrainArgs *)call->config)->layout;
    TRY(layout_settle(call, &layout, world));
    *ret_layout = layout;
    return OK;
}

static void assert_layout(const char *line, int64_t world, int64_t dp, int64_t tp, int64_t pp) {
    Layout layout;
    assert_ok(derive_layout(line, world, &layout));
    assert_int_equal(layout.dp, dp);
    assert_int_equal(layout.tp, tp);
    assert_int_equal(layout.pp, pp);
    assert_int_equal(layout.ranks, dp * tp * pp);
}

static void layouts_are_derived(void **state) {
    Layout layout;
    assert_layout("--data x", 0, 1, 1, 1);
    assert_layout("--data x --ranks 4", 0, 4, 1, 1);
    assert_layout("--data x --ranks 8 --tp 2", 0, 4, 2, 1);
    assert_layout("--data x --tp 2 --pp 2", 0, 1, 2, 2);
    assert_layout("--data x --dp 2 --pp 3", 0, 2, 1, 3);
    assert_layout("--data x", 6, 6, 1, 1);
    assert_layout("--data x --tp 3", 6, 2, 3, 1);
    assert_layout("--data x --ranks 6 --dp 6", 6, 6, 1, 1);
    assert_fails(derive_layout("--data x --ranks 6 --tp 4", 0, &layout), 2, "use --ranks 4 or 8");
    assert_fails(derive_layout("--data x --tp 4", 6, &layout), 2, "tp 4 x pp 1 does not divide 6 ranks");
    assert_fails(derive_layout("--data x --ranks 2 --pp 4", 0, &layout), 2, "use --ranks 4 or a multiple");
    assert_fails(derive_layout("--data x --ranks 6 --dp 2 --tp 2", 0, &layout), 2, "use --ranks 4");
    assert_fails(derive_layout("--data x --ranks 4", 6, &layout), 2, "--ranks 4 does not match the 6 ranks");
}

/* Without --shard, workers that train on their own are as small as their options allow: a replica. */
static void workers_are_replicas(void **state) {
    static const struct {
        const char *line;
        int64_t shard;
    } cases[] = {{"--dp 2", 0},
                 {"--dp 2 --sync-every 4", 1},
                 {"--dp 2 --sync-every 4 --zero 1", 0}, /* refused later */
                 {"--dp 2 --cp 2 --sync-every 4", 2},
                 {"--dp 2 --cp 2 --sync-every 4 --zero 1", 2},
                 {"--dp 2 --cp 2 --sync-every 4 --zero 1 --shard 4", 4}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        Layout layout;
        char line[128];
        snprintf(line, sizeof line, "--data x %s", cases[i].line);
        assert_ok(derive_layout(line, 0, &layout));
        assert_int_equal(layout.shard, cases[i].shard);
    }
}

/* The command line overrides the file even through another option: a run resumes with a different number of
 * ranks. */
static void command_line_overrides_file(void **state) {
    char path[] = "/tmp/weft-layout-XXXXXX", line[128];
    int file = mkstemp(path);
    const char text[] = "{\"data\": [\"x\"], \"ranks\": 8, \"dp\": 4, \"tp\": 2}";
    assert_int_equal(write(file, text, sizeof text - 1), sizeof text - 1);
    close(file);
    static const struct {
        const char *more;
        int64_t world, dp, tp;
    } cases[] = {
        {"", 0, 4, 2}, {"--ranks 4", 0, 2, 2}, {"--dp 1", 0, 1, 2}, {"", 2, 1, 2}, {"--tp 1", 0, 4, 1}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        snprintf(line, sizeof line, "--config %s %s", path, cases[i].more);
        assert_layout(line, cases[i].world, cases[i].dp, cases[i].tp, 1);
    }
    unlink(path);
}

/* Groups of heads+ring in a file are kept where they divide the ranks that the command line asks for. */
static void context_of_a_file_changes(void **state) {
    char path[] = "/tmp/weft-layout-XXXXXX", line[128];
    int file = mkstemp(path);
    const char text[] = "{\"data\": [\"x\"], \"cp\": 4, \"cp-mode\": \"heads+ring\", \"cp-heads\": 2}";
    assert_int_equal(write(file, text, sizeof text - 1), sizeof text - 1);
    close(file);
    static const struct {
        const char *more;
        int64_t cp, heads;
    } cases[] = {{"", 4, 2},       {"--cp 8", 8, 2}, {"--cp 1", 1, 0},
                 {"--cp 2", 2, 0}, {"--cp 3", 3, 0}, {"--cp 3 --cp-heads 3", 3, 3}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        Layout layout;
        snprintf(line, sizeof line, "--config %s %s", path, cases[i].more);
        assert_ok(derive_layout(line, 0, &layout));
        assert_int_equal(layout.cp, cases[i].cp);
        assert_int_equal(layout.heads, cases[i].heads);
    }
    unlink(path);
}

/* --ep in a file is reduced to what divides the ranks that the command line asks for. */
static void experts_of_a_file_change(void **state) {
    char path[] = "/tmp/weft-layout-XXXXXX", line[128], text[MESH_TEXT];
    int file = mkstemp(path);
    const char settings[] = "{\"data\": [\"x\"], \"ranks\": 8, \"ep\": 4}";
    assert_int_equal(write(file, settings, sizeof settings - 1), sizeof settings - 1);
    close(file);
    static const struct {
        const char *more;
        int64_t dp, ep;
    } cases[] = {
        {"", 8, 4}, {"--ranks 6", 6, 2}, {"--tp 4", 1, 1}, {"--ranks 3", 3, 1}, {"--ranks 6 --ep 3", 6, 3}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        Layout layout;
        snprintf(line, sizeof line, "--config %s %s", path, cases[i].more);
        assert_ok(derive_layout(line, 0, &layout));
        assert_int_equal(layout.dp, cases[i].dp);
        assert_int_equal(layout.ep, cases[i].ep);
        MeshSpec mesh = layout_mesh(&layout);
        CLEANUP(json_decrefp) json_t *json = json_object();
        mesh_put(json, mesh);
        assert_true(mesh_same(mesh_read(json), mesh));
        assert_int_equal(strstr(mesh_text(mesh, text), ", ep ") != NULL, layout.ep > 1);
    }
    unlink(path);
}

/* The workers of a file, which are replicas on the ranks of its --cp, are replicas on those of another. */
static void workers_of_a_file_change(void **state) {
    char path[] = "/tmp/weft-layout-XXXXXX", line[128];
    int file = mkstemp(path);
    const char text[] = "{\"data\": [\"x\"], \"dp\": 2, \"cp\": 2, \"sync-every\": 4, \"shard\": 2}";
    assert_int_equal(write(file, text, sizeof text - 1), sizeof text - 1);
    close(file);
    static const struct {
        const char *more;
        int64_t shard;
    } cases[] = {{"", 2}, {"--cp 1", 1}, {"--cp 3", 3}, {"--cp 1 --shard 2", 2}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        Layout layout;
        snprintf(line, sizeof line, "--config %s --dp 2 %s", path, cases[i].more);
        assert_ok(derive_layout(line, 0, &layout));
        assert_int_equal(layout.shard, cases[i].shard);
    }
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts_are_derived),         cmocka_unit_test(workers_are_replicas),
        cmocka_unit_test(command_line_overrides_file), cmocka_unit_test(context_of_a_file_changes),
        cmocka_unit_test(experts_of_a_file_change),    cmocka_unit_test(workers_of_a_file_change),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
