/* Fuzzes the files of a run directory, as a killed run or another program may leave them: the report and
 * the history of a resumed run read what they can. The input is summary.json, metrics.jsonl,
 * config.json and trace.json, separated by NULs. */
#include "base/memory.h"
#include "dir.h"
#include "report/results.h"
#include "train/history.h"

static void look_at_run(const char *dir) {
    CLEANUP(results_done) Results results = {0};
    CLEANUP(json_decrefp) json_t *json = NULL, *trace = NULL;
    Run *run = NULL;
    fuzz_require(fuzz_succeeded(results_add(&results, "run", dir, &run)));
    if (!fuzz_succeeded(run_look(run))) return;
    fuzz_require(run->loss.count == 0 || run->loss.step[0] <= run->loss.step[run->loss.count - 1]);
    fuzz_require(run_outcome(run) && run_state_name(run->state));
    (void)fuzz_succeeded(run_trace(run, &trace));
    (void)fuzz_succeeded(results_json(&results, &json));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const names[] = {"summary.json", "metrics.jsonl", "config.json", "trace.json"};
    CLEANUP(json_decrefp) json_t *earlier = NULL;
    fuzz_dir_fill(names, sizeof names / sizeof *names, data, size);
    look_at_run(fuzz_dir_path());
    if (fuzz_succeeded(history_read(fuzz_dir_path(), 2, &earlier)) && earlier) {
        CLEANUP(json_decrefp) json_t *summary = json_pack("{s:i, s:f}", "steps", 3, "runtime_s", 1.0);
        (void)fuzz_succeeded(history_join(summary, earlier));
    }
    return 0;
}

size_t fuzz_seed(size_t index, uint8_t *out) {
    static const char summary[] =
        "{\"steps\":2,\"runtime_s\":1.5,\"step_ms\":20.5,\"loss_first\":5.5,\"loss_last\":4.5,\"val_loss\":4."
        "75,"
        "\"utilization\":0.5,\"bubble\":0,\"mfu\":0.25,\"interrupted\":false,\"layout\":{\"ranks\":2,\"dp\":"
        "2,"
        "\"tp\":1,\"pp\":1,\"zero\":1},\"phases_s\":{\"compute\":1.0,\"comm\":0.25,\"setup\":0.25},"
        "\"peak_bytes\":{\"params\":100,\"total\":200},\"epochs\":[{\"epoch\":1,\"step\":2,\"loss\":5.0}],"
        "\"ranks\":[{\"rank\":0,\"utilization\":0.5},{\"rank\":1,\"utilization\":0.5}]}";
    static const char metrics[] =
        "{\"step\":0,\"val_loss\":6.0,\"val_samples\":4,\"eval_ms\":2.0}\n"
        "{\"step\":1,\"epoch\":1,\"loss\":5.5,\"lr\":0.1,\"grad_norm\":2.5,\"tokens\":64,\"samples_per_s\":8."
        "5,"
        "\"tokens_per_s\":100.5,\"step_ms\":20.5,\"elapsed_s\":0.5,\"utilization\":0.5,\"mfu\":0.25,"
        "\"phases_ms\":{\"compute\":10.0,\"comm\":5.0,\"bubble\":0,\"optimizer\":1.0,\"data\":0.5,\"other\":"
        "4.0},"
        "\"peak_bytes\":{\"params\":100,\"total\":200},\"ranks\":{\"utilization\":[0.5,0.5],\"compute_ms\":["
        "10,11]},"
        "\"checkpoint_ms\":3.5}\n"
        "{\"step\":2,\"epoch\":1,\"loss\":4.5,\"step_ms\":19.5,\"tokens\":128,\"elapsed_s\":0.75}\n"
        "{\"step\":2,\"epoch\":1,\"epoch_end\":{\"epoch\":1,\"loss\":5.0,\"val_loss\":4.75}}\n"
        "{\"step\":2,\"rollback\":{\"from\":3,\"reason\":\"loss is nan\"}}\n";
    static const char config[] =
        "{\"steps\":2,\"data\":[\"self\"],\"model\":\"gpt2-tiny\",\"batch\":4,\"dp\":2}";
    static const char trace[] =
        "{\"traceEvents\":[{\"name\":\"step 1\",\"ph\":\"X\",\"ts\":1.5,\"dur\":2.5,\"pid\":0,\"tid\":0}]}";
    static const char *const parts[] = {summary, metrics, config, trace};
    size_t size = 0;
    if (index > 4) return 0;
    for (size_t i = 0; i < 4; i++) {
        if (i != index || index == 4) size += fuzz_seed_text(parts[i], out + size);
        if (i < 3) out[size++] = 0;
    }
    return size;
}
