/* Low-communication data parallelism through the program: runs with workers are resumed bit for bit, also
 * while weights are being exchanged, and with other numbers of workers; their checkpoints are models. */
#include "program.h"

#include <math.h>

#include "base/fs.h"
#include "comm/mpi.h"

static char root[64], corpus[96], run_dir[96];

static int make_corpus(void **state) {
    program_setup(state);
    snprintf(root, sizeof root, "/tmp/weft-workers-XXXXXX");
    if (!mkdtemp(root)) return 1;
    snprintf(corpus, sizeof corpus, "%s/corpus.txt", root);
    snprintf(run_dir, sizeof run_dir, "%s/run", root);
    char text[4096];
    for (size_t i = 0; i < sizeof text; i++) text[i] = "the quick brown fox "[i % 20 + i / 97 % 2];
    Status status = file_replace(corpus, text, sizeof text);
    status_free(status);
    return status != OK;
}

static int remove_files(void **state) {
    Status status = dir_remove(root);
    status_free(status);
    return status != OK;
}

#define SMALL                                                                                                \
    "train", "--data", corpus, "--val", corpus, "--model", "gpt2-tiny", "--layers", "2", "--hidden", "16",   \
        "--heads", "2", "--seq", "16", "--batch", "4", "--micro-batch", "1", "--threads", "1", "--lr",       \
        "0.01", "--eval-batches", "0", "--eval-every", "3", "--keep", "0", "--save-every", "1", "--out",     \
        run_dir, "--json"

static json_t *summary_of(Ran ran) {
    json_t *json = NULL;
    if (ran.code) fail_msg("%s", ran.err);
    assert_ok(json_parse(ran.out, strlen(ran.out), "standard output", &json));
    ran_done(&ran);
    return json;
}

static double number(const json_t *json, const char *key) {
    return json_number_value(json_object_get(json, key));
}

/* The checksums of all tensors. */
static json_t *checksums_of(int step) {
    char path[160];
    json_t *json = NULL;
    snprintf(path, sizeof path, "%s/checkpoints/step-%d/weft.json", run_dir, step);
    assert_ok(json_read_file(path, &json));
    json_t *sums = json_incref(json_object_get(json, "checksums"));
    assert_true(json_object_size(sums) > 0);
    json_decref(json);
    return sums;
}

/* After step 4, the second fragment is being exchanged. */
static void resumed(void **state) {
    if (!mpi_built()) skip();
    json_t *first = summary_of(program_run(SMALL, "--steps", "9", "--ranks", "2", "--sync-every", "4",
                                           "--sync-fragments", "2", "--sync-overlap", "1"));
    CLEANUP(json_decrefp) json_t *last = checksums_of(9);
    json_t *again = summary_of(program_run("train", "--out", run_dir, "--resume-from", "4", "--json"));
    CLEANUP(json_decrefp) json_t *same = checksums_of(9);
    assert_true(json_equal(last, same));
    assert_true(number(first, "val_loss") == number(again, "val_loss"));
    /* Also if only rank 0 reads and writes files. */
    json_decref(again);
    again = summary_of(
        program_run("train", "--out", run_dir, "--resume-from", "4", "--gather-checkpoints", "--json"));
    CLEANUP(json_decrefp) json_t *gathered = checksums_of(9);
    assert_true(json_equal(last, gathered));
    assert_int_equal(number(json_object_get(first, "layout"), "workers"), 2);
    assert_int_equal(number(json_object_get(first, "layout"), "sync_every"), 4);
    /* The saved weights are the synchronized ones, which were validated. */
    json_t *eval = summary_of(program_run("eval", "--model", run_dir, "--data", corpus, "--json"));
    assert_true(fabs(number(eval, "loss") - number(first, "val_loss")) < 1e-5);
    json_decref(eval);
    json_decref(first);
    json_decref(again);
}

/* Continues the run above with other workers. */
static void other_workers(void **state) {
    if (!mpi_built()) skip();
    assert_refused(2, "resume it with --sync-every 4 --sync-fragments 2 --sync-overlap 1", "train", "--out",
                   run_dir, "--resume-from", "4", "--sync-fragments", "1", "--quiet");
    Ran ran = program_run("train", "--out", run_dir, "--resume-from", "4", "--ranks", "4", "--shard", "2",
                          "--zero", "1", "--steps", "6");
    assert_null(strstr(ran.err, "the checkpoint has"));
    assert_int_equal(ran.code, 0);
    ran_done(&ran);
    assert_ran(program_run("train", "--out", run_dir, "--resume-from", "5", "--ranks", "4", "--shard", "1",
                           "--zero", "0", "--steps", "6"),
               0, err, "the checkpoint has 2 workers, and this run has 4");
    assert_ran(program_run("train", "--out", run_dir, "--resume-from", "6", "--ranks", "2", "--sync-every",
                           "0", "--steps", "7"),
               0, err, "the checkpoint has 4 workers; the run continues from the weights of their last");
    assert_ran(program_run("train", "--out", run_dir, "--resume-from", "7", "--ranks", "2", "--sync-every",
                           "2", "--sync-overlap", "0", "--steps", "9"),
               0, err, "the checkpoint has no workers; all 2 start from its state");
}

/* What int8 has not sent yet is saved: of changes of the weights in a worker's own weights, of gradients
 * separately. */
static void resumed_int8(void **state) {
    if (!mpi_built()) skip();
    /* The head of llama-1m has no parameters of its own. */
    static const char *const options[][5] = {{"--sync-every", "2", "--sync-dtype", "int8", "gpt2-tiny"},
                                             {"--grad-dtype", "int8", "--pp", "2", "gpt2-tiny"},
                                             {"--grad-dtype", "int8", "--pp", "2", "llama-1m"},
                                             {"--grad-dtype", "int8", "--zero", "1", "gpt2-tiny"}};
    for (int i = 0; i < 4; i++) {
        snprintf(run_dir, sizeof run_dir, "%s/int8-%d", root, i);
        json_decref(summary_of(program_run(SMALL, "--steps", "5", "--dp", "2", options[i][0], options[i][1],
                                           options[i][2], options[i][3], "--model", options[i][4])));
        CLEANUP(json_decrefp) json_t *last = checksums_of(5);
        json_decref(summary_of(program_run("train", "--out", run_dir, "--resume-from", "2", "--json")));
        CLEANUP(json_decrefp) json_t *same = checksums_of(5);
        assert_true(json_equal(last, same));
    }
    assert_ran(program_run("train", "--out", run_dir, "--resume-from", "4", "--ranks", "4"), 0, err,
               "rounding errors of --grad-dtype int8 belong to 2 replicas and are dropped");
}

static double sent_by(const json_t *summary) {
    const json_t *rank = json_array_get(json_object_get(summary, "ranks"), 0);
    return number(json_object_get(rank, "comm_bytes"), "total");
}

/* Each step of the warm-up synchronizes, and the last step of the run. */
static void synchronizes_in_warmup(void **state) {
    if (!mpi_built()) skip();
    snprintf(run_dir, sizeof run_dir, "%s/warmup", root);
    json_t *warmed = summary_of(program_run(SMALL, "--steps", "4", "--ranks", "2", "--sync-every", "100",
                                            "--warmup", "3", "--eval-every", "0"));
    snprintf(run_dir, sizeof run_dir, "%s/cold", root);
    json_t *cold = summary_of(program_run(SMALL, "--steps", "4", "--ranks", "2", "--sync-every", "100",
                                          "--warmup", "3", "--eval-every", "0", "--sync-warmup", "0"));
    assert_true(sent_by(cold) > 0);
    assert_true(sent_by(warmed) == 4 * sent_by(cold));
    json_decref(warmed);
    json_decref(cold);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resumed),
        cmocka_unit_test(other_workers),
        cmocka_unit_test(resumed_int8),
        cmocka_unit_test(synchronizes_in_warmup),
    };
    return cmocka_run_group_tests(tests, make_corpus, remove_files);
}
