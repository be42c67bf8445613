/* Step times agree with exact answers where those are known. */
#include <math.h>
#include <pty.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "timed.h"

/* ---- exact answers ---- */

/* A cluster with instant communication, whose kernels are limited only by matrix FLOPs. */
static Cluster ideal(void) {
    Cluster cluster;
    assert_ok(cluster_find("h200", &cluster));
    Link *const links[] = {&cluster.within, &cluster.between, &cluster.host};
    for (int i = 0; i < 3; i++) *links[i] = (Link){.latency_s = 0, .bandwidth = 1e18, .share = 1};
    cluster.launch_s = cluster.kernel_s = 0;
    cluster.memory_bandwidth = 1e18;
    cluster.vector_flops = 1e18;
    return cluster;
}

static PlanSpec small(int layers, int batch) {
    PlanSpec spec = spec_of("gpt2", "lm", batch, 128, "bf16");
    spec.config.model.layers = layers;
    spec.config.model.hidden = 256;
    spec.config.model.heads = 4;
    spec.config.model.vocab =
        128; /* small enough that the output head costs nothing compared with the layers */
    spec.config.run.micro_batch = 1;
    return spec;
}

static void ideal_links_cost_nothing(void **state) {
    Cluster cluster = ideal();
    PlanSpec spec = small(4, 8);
    double alone = time_of("alone", &cluster, spec, NULL).step_s;
    for (int zero = 0; zero <= 3; zero++) {
        spec.mesh = (MeshSpec){.dp = 4, .tp = 1, .pp = 1};
        spec.config.training.batch = 32;
        spec.config.run.zero = zero;
        StepEstimate time = time_of("replicas", &cluster, spec, NULL);
        assert_true(time.phase_s[TIME_COMMUNICATION] < 1e-6 * time.step_s);
        assert_true(fabs(time.step_s / alone - 1) < 1e-6);
    }
}

/* Each stage has four equal layers; the first and the last are slightly slower because of embedding and
 * output head. */
static void bubble_of_1f1b(void **state) {
    Cluster cluster = ideal();
    cluster.product_wave = cluster.product_depth = 0;
    for (int micros = 4; micros <= 16; micros *= 2) {
        PlanSpec spec = small(16, micros);
        spec.config.run.schedule = SCHEDULE_1F1B;
        spec.mesh = (MeshSpec){.dp = 1, .tp = 1, .pp = 4};
        StepEstimate time = time_of("stages", &cluster, spec, NULL);
        double formula = 3.0 / (micros + 3.0);
        if (fabs(time.bubble - formula) > 0.03)
            fail_msg("%d micro-batches: bubble %g; expected %g", micros, time.bubble, formula);
        assert_float_equal(time.utilization, 1 - time.bubble, 1e-6);
    }
}

/* A device that waits for the host's launches is not busy: its kernels take the same time in a longer step.
 */
static void launches_leave_the_device_idle(void **state) {
    Cluster cluster = ideal();
    PlanSpec spec = small(4, 8);
    spec.mesh.dp = 2; /* a single rank overlaps forward and update */
    StepEstimate fast = time_of("compute-bound", &cluster, spec, NULL);
    cluster.launch_s = 1e-3;
    StepEstimate slow = time_of("launch-bound", &cluster, spec, NULL);
    assert_float_equal(fast.utilization, 1, 1e-6);
    assert_true(slow.step_s > 2 * fast.step_s);
    assert_float_equal(slow.utilization * slow.step_s / fast.step_s, 1, 1e-6);
}

/* Copies of layers' inputs to the host and back are hidden unless they take longer than a layer. A rank with
 * one micro-batch still has the last two inputs when backward begins. */
static void offloaded_inputs_overlap(void **state) {
    enum { LAYERS = 8, COPIES = 2 * LAYERS - 2, ROWS_BYTES = 128 * 256 * 2 };
    Cluster cluster = ideal();
    PlanSpec spec = small(LAYERS, 2);
    double kept, left;
    spec.mesh.dp = 2; /* a single rank overlaps forward and update */
    spec.config.run.recompute = RECOMPUTE_BLOCK;
    StepEstimate before = time_of("kept", &cluster, spec, &kept);
    spec.config.run.offload = OFFLOAD_ACTIVATIONS;
    StepEstimate fast = time_of("fast link", &cluster, spec, &left);
    assert_float_equal(fast.step_s / before.step_s, 1, 1e-6);
    assert_true(left < kept);
    double layer_s = before.phase_s[TIME_FORWARD] / (LAYERS + 1);
    cluster.host.bandwidth = 2 * ROWS_BYTES / layer_s;
    StepEstimate hidden = time_of("link of twice the speed", &cluster, spec, NULL);
    assert_float_equal(hidden.step_s / before.step_s, 1, 2e-3); /* a copy is 15e-3 of it */
    cluster.host.bandwidth = 0.01 * ROWS_BYTES / before.step_s;
    double copies = time_of("slow link", &cluster, spec, NULL).step_s / (100 * before.step_s);
    if (copies < COPIES - 3 || copies > COPIES + 1)
        fail_msg("a step takes as long as %g copies; expected about %d", copies, COPIES);
}

/* An all-to-all of a dry run takes as long as its bytes on the slower link: those to ranks of the node, or
 * those that all ranks of the node send to other nodes. The last rank sends and receives nothing. */
static void all_to_all_on_links(void **state) {
    enum { RANKS = 8, ROWS = 3 << 20 };
    CLEANUP(device_freep) Device *device = NULL;
    CLEANUP(stream_freep) Stream *stream = NULL;
    Buffer buffer = {0};
    int64_t counts[RANKS];
    assert_ok(device_new_dryrun(&device, 1));
    assert_ok(stream_new(&stream, device));
    assert_ok(dev_alloc(device, MEM_COMM, 2 * (RANKS - 1) * ROWS, &buffer));
    for (int r = 0; r < RANKS; r++) counts[r] = r < RANKS - 1 ? ROWS : 0;
    for (int per_node = 2; per_node <= RANKS; per_node *= 2) {
        CLEANUP(group_freep) Group *group = NULL;
        CLEANUP(op_log_done) OpLog op_log = {0};
        int node[RANKS];
        Ticket ticket;
        for (int r = 0; r < RANKS; r++) node[r] = r / per_node;
        assert_ok(group_new_dryrun(&group, 0, RANKS, node, false));
        Tensor src = tensor_1d(buffer.data, DT_U8, (RANKS - 1) * ROWS), dst = src;
        dst.data = (char *)src.data + tensor_bytes(src);
        device->op_log = &op_log;
        assert_ok(all_to_all(group, stream, dst, src, counts, counts, &ticket));
        assert_ok(ticket_wait(stream, &ticket));
        device->op_log = NULL;
        const OpRecord *record = &op_log.record[0];
        double within = (per_node == RANKS ? RANKS - 2 : per_node - 1) * (double)ROWS;
        double between = (RANKS - 2) * (double)ROWS - within;
        assert_int_equal(record->what, COMM_ALL_TO_ALL);
        assert_true(group->sent[COMM_ALL_TO_ALL].within == within);
        assert_true(group->sent[COMM_ALL_TO_ALL].between == between);
        for (int gpu = 0; gpu < 2; gpu++) {
            Plan plan = {.mesh = {.dp = 1, .tp = RANKS, .pp = 1}};
            Cluster cluster;
            assert_ok(cluster_find("dgx-a100", &cluster));
            cluster.gpu = gpu;
            cluster.devices_per_node = per_node;
            cluster.within.latency_s = cluster.between.latency_s = 0;
            Costs costs = costs_of(&plan, &cluster);
            StepEvent event = {.kind = STEP_START, .what = record->what, .channel = CHANNEL_TENSOR};
            memcpy(event.size, record->size, sizeof event.size);
            double inside = within / cluster.within.bandwidth / cluster.within.share;
            double outside = between / cluster.between.bandwidth / cluster.between.share;
            double found = cost_operation(&costs, &event), want = fmax(inside, outside);
            assert_true(fabs(found - want) < 1e-9 * want);
            assert_true(cost_sent(&costs, &event) == within + between);
        }
    }
    dev_free(&buffer);
}

/* A slower link makes a step longer by what cannot be overlapped, and by almost the full transfer time if it
 * is very slow. */
static void slow_links_cost_time(void **state) {
    PlanSpec spec = spec_of("gpt2", "lm", 32, 1024, "bf16");
    spec.config.model.dropout = 0;
    spec.config.run.micro_batch = 4;
    spec.mesh = (MeshSpec){.dp = 8, .tp = 1, .pp = 1};
    Cluster cluster;
    assert_ok(cluster_find("h200", &cluster));
    double before = 0;
    for (double bandwidth = 1e12; bandwidth >= 1e9; bandwidth /= 10) {
        cluster.within.bandwidth = bandwidth;
        StepEstimate time = time_of("replicas", &cluster, spec, NULL);
        double transfer = time.sent[COMM_ALL_REDUCE] / (bandwidth * cluster.within.share);
        assert_true(time.step_s > before);
        assert_true(time.phase_s[TIME_COMMUNICATION] < transfer * 1.01 + 1e-3);
        assert_true(time.step_s > transfer);
        before = time.step_s;
    }
    /* With one device per node, the links between nodes matter. */
    cluster.within.bandwidth = 1e12;
    cluster.devices_per_node = 1;
    assert_true(time_of("nodes", &cluster, spec, NULL).step_s >
                time_of("node", &cluster, spec, NULL).step_s - 1e-12);
    cluster.between.bandwidth = 1e9;
    assert_true(time_of("nodes", &cluster, spec, NULL).phase_s[TIME_COMMUNICATION] > 0.1);
}

/* On CPUs, the ranks of a node share its link, and what they reduce together crosses it once: communication
 * takes the node's bytes at the node's rate, however many ranks it has. */
static void nodes_share_a_link(void **state) {
    const double rate = 25e6;
    const struct {
        MeshSpec mesh;
        int zero, ranks;
        double crossings; /* of all parameters' bytes over one node's link, per step */
        GradType type;    /* of gradients or, with `every`, of what workers exchange */
        int every;
    } rows[] = {{{.dp = 4, .tp = 1, .pp = 1}, 0, 2, 1, GRAD_FP32, 0},
                {{.dp = 8, .tp = 1, .pp = 1}, 0, 4, 1, GRAD_FP32, 0},
                {{.dp = 4, .tp = 1, .pp = 1, .shard = 2}, 1, 2, 1, GRAD_FP32, 0},
                {{.dp = 4, .tp = 1, .pp = 1}, 3, 2, 1.5, GRAD_FP32, 0},
                {{.dp = 2, .tp = 2, .pp = 1}, 0, 2, 1, GRAD_FP32, 0},
                /* A node's sums travel in fp32, the result in bf16. */
                {{.dp = 4, .tp = 1, .pp = 1}, 0, 2, 0.75, GRAD_BF16, 0},
                /* In int8, each rank of a node sends to each of the other, and its sum once. */
                {{.dp = 4, .tp = 1, .pp = 1, .shard = 1}, 0, 2, 0.375, GRAD_INT8, 1},
                {{.dp = 4, .tp = 1, .pp = 1, .shard = 1}, 0, 2, 0.375 / 5, GRAD_INT8, 5}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Cluster cluster;
        assert_ok(cluster_find("cpu", &cluster));
        cluster.devices_per_node = rows[i].ranks;
        cluster.between = (Link){.latency_s = 0, .bandwidth = rate / rows[i].ranks, .share = 1};
        PlanSpec spec = spec_of("gpt2", "lm", 8, 8, "fp32");
        spec.config.model.layers = 2;
        spec.config.model.vocab = 256;
        spec.config.run.micro_batch = 8 / rows[i].mesh.dp;
        spec.config.run.zero = rows[i].zero;
        spec.config.run.grad_type = rows[i].every ? GRAD_FP32 : rows[i].type;
        if (rows[i].every)
            spec.config.run.outer =
                (OuterSpec){.every = rows[i].every, .fragments = 1, .lr = 1, .type = rows[i].type};
        spec.config.device.name = "cpu";
        spec.mesh = rows[i].mesh;
        Plan plan;
        assert_ok(plan_init(&plan, &spec));
        double bytes = 4 * (double)plan.params_stored, expected = rows[i].crossings * bytes / rate;
        plan_done(&plan);
        StepEstimate time = time_of("nodes", &cluster, spec, NULL);
        double found = time.phase_s[TIME_COMMUNICATION];
        if (!rows[i].every) found += time.phase_s[TIME_OPTIMIZER]; /* which gathers parameters */
        if (fabs(found / expected - 1) > 0.1)
            fail_msg("row %zu: communication takes %g s; expected %g s", i, found, expected);
    }
}

/* Parameters that stay gathered from forward to backward are gathered once instead of twice, and as early.
 * With fast links that saves nothing, and the vocabulary matrix, which is then gathered as a whole, costs up
 * to 1%. */
static void keeping_parameters_is_not_slower(void **state) {
    Cluster cluster;
    assert_ok(cluster_find("dgx-a100", &cluster));
    for (double bandwidth = 3e11; bandwidth > 2e10; bandwidth /= 3) {
        PlanSpec spec = spec_of("gpt2-large", "lm", 64, 1024, "bf16");
        spec.config.run.micro_batch = 4;
        spec.config.run.zero = 3;
        spec.mesh = (MeshSpec){.dp = 8, .tp = 1, .pp = 1};
        cluster.within.bandwidth = bandwidth;
        StepEstimate twice = time_of("plain", &cluster, spec, NULL);
        spec.config.run.keep_params = true;
        StepEstimate once = time_of("kept", &cluster, spec, NULL);
        assert_true(once.sent[COMM_ALL_GATHER] < 0.6 * twice.sent[COMM_ALL_GATHER]);
        if (once.step_s > twice.step_s * 1.02)
            fail_msg("%g GB/s: %g s with kept parameters, %g s without", 1e-9 * bandwidth, once.step_s,
                     twice.step_s);
    }
}

/* 16,384 ranks with 32 micro-batches each. */
static void plans_16384_ranks(void **state) {
    Cluster cluster;
    assert_ok(cluster_find("h100", &cluster));
    PlanSpec spec = spec_of("gpt2", "lm", 4096, 2048, "bf16");
    spec.config.model.layers = 96;
    spec.config.model.hidden = 12288;
    spec.config.model.heads = 96;
    spec.config.run.micro_batch = 1;
    spec.config.run.zero = 1;
    spec.config.run.schedule = SCHEDULE_1F1B;
    spec.memory_only = true;
    spec.mesh = (MeshSpec){.dp = 128, .tp = 8, .pp = 16};
    StepEstimate time = time_of("16,384 ranks", &cluster, spec, NULL);
    assert_true(time.mfu > 0.2 && time.mfu < 0.7);
    double params = 174.6e9, tokens = 4096.0 * 2048;
    assert_true(fabs(time.model_flops / (6 * params * tokens) - 1) < 0.1);
}

/* ---- progress ---- */

/* What planning two stages shows on a terminal, as if it had begun `ago` seconds ago. */
static void planned_on_terminal(double ago, char text[4096]) {
    int terminal, state;
    struct winsize window = {.ws_row = 24, .ws_col = 120};
    pid_t child = forkpty(&terminal, NULL, NULL, &window);
    if (child < 0) skip(); /* no pseudo-terminals, as in some containers */
    if (child == 0) {
        PlanProgress progress;
        PlanSpec spec = small(4, 4);
        Plan plan = {0};
        setenv("TERM", "xterm", 1);
        spec.mesh.pp = 2;
        spec.config.run.schedule = SCHEDULE_1F1B;
        spec.config.device.name = "cpu";
        spec.progress = &progress;
        if (plan_progress_init(&progress, stderr)) _exit(3);
        progress.start -= ago;
        plan_progress_note(&progress, "%d layouts", 7);
        if (plan_init(&plan, &spec) || progress.plans != 1) _exit(4);
        plan_done(&plan);
        plan_progress_done(&progress);
        _exit(0);
    }
    size_t have = 0;
    ssize_t got;
    while (have + 1 < 4096 && (got = read(terminal, text + have, 4096 - have - 1)) > 0) have += (size_t)got;
    text[have] = 0;
    assert_int_equal(waitpid(child, &state, 0), child);
    assert_int_equal(state, 0);
    close(terminal);
}

static void long_plans_show_progress(void **state) {
    char text[4096];
    planned_on_terminal(1, text);
    if (!strstr(text, "planning ") || !strstr(text, "7 layouts")) fail_msg("terminal shows: %s", text);
    planned_on_terminal(-1000, text);
    assert_string_equal(text, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ideal_links_cost_nothing),
        cmocka_unit_test(bubble_of_1f1b),
        cmocka_unit_test(launches_leave_the_device_idle),
        cmocka_unit_test(offloaded_inputs_overlap),
        cmocka_unit_test(all_to_all_on_links),
        cmocka_unit_test(slow_links_cost_time),
        cmocka_unit_test(nodes_share_a_link),
        cmocka_unit_test(keeping_parameters_is_not_slower),
        cmocka_unit_test(plans_16384_ranks),
        cmocka_unit_test(long_plans_show_progress),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
