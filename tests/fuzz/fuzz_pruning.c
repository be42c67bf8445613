/* Fuzzes pruning.json of one run or two: conclusions are drawn from what it contains. The input is both
 * files, separated by a NUL. */
#include "base/json.h"
#include "compress/prune_rounds.h"
#include "dir.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const names[] = {"one.json", "two.json"};
    CLEANUP(json_decrefp) json_t *one = NULL, *two = NULL, *to = json_object();
    char path[128];
    fuzz_dir_fill(names, 2, data, size);
    snprintf(path, sizeof path, "%s/%s", fuzz_dir_path(), names[0]);
    if (!fuzz_succeeded(json_read_file(path, &one))) return 0;
    snprintf(path, sizeof path, "%s/%s", fuzz_dir_path(), names[1]);
    if (path_exists(path)) (void)fuzz_succeeded(json_read_file(path, &two));
    if (fuzz_succeeded(prune_conclude(&(PruneSpec){0}, to, one, two)))
        fuzz_require(json_object_get(to, "conclusion"));
    return 0;
}

size_t fuzz_seed(size_t index, uint8_t *out) {
    static const char rounds[] =
        "{\"settings\":{\"kind\":\"rows\",\"amount\":0.5},\"rounds\":["
        "{\"round\":0,\"sparsity\":0,\"params_total\":100,\"val_loss\":4.0,\"step_ms\":10.5,\"tokens_per_s\":"
        "9},"
        "{\"round\":1,\"sparsity\":0.25,\"params_total\":80,\"val_loss\":4.5,\"step_ms\":8.5},"
        "{\"round\":2,\"sparsity\":0.5,\"params_total\":60,\"val_loss_pruned\":6,\"val_loss\":5.5,\"step_"
        "ms\":6}]}";
    if (index > 1) return 0;
    size_t size = fuzz_seed_text(rounds, out);
    if (index == 0) return size;
    out[size++] = 0;
    return size + fuzz_seed_text(rounds, out + size);
}
