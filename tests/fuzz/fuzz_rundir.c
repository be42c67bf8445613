/* Fuzzes a run directory that is resumed: it is refused, or all lines left in metrics.jsonl belong to steps
 * up to the checkpoint. The input is config.json and metrics.jsonl, separated by a NUL. */
#include "base/json.h"
#include "base/memory.h"
#include "dir.h"
#include "train/rundir.h"

enum { STEP = 2 };

static void check_metrics(const char *path) {
    CLEANUP(mem_freep) char *text = NULL;
    size_t size = 0;
    fuzz_require(fuzz_succeeded(file_read(path, FUZZ_INPUT_LIMIT, &text, &size)));
    for (char *line = text, *end; line < text + size; line = end + 1) {
        end = memchr(line, '\n', size - (size_t)(line - text));
        fuzz_require(end);
        CLEANUP(json_decrefp) json_t *entry = json_loadb(line, (size_t)(end - line), 0, NULL);
        fuzz_require(json_is_integer(json_object_get(entry, "step")));
        fuzz_require(json_integer_value(json_object_get(entry, "step")) <= STEP);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const names[] = {"run/config.json", "run/metrics.jsonl"};
    static Progress *progress; /* shows nothing */
    CLEANUP(rundir_freep) RunDir *dir = NULL;
    CLEANUP(json_decrefp) json_t *config = json_object();
    char path[128], metrics[160];
    snprintf(path, sizeof path, "%s/run", fuzz_dir_path());
    snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", path);
    fuzz_require(fuzz_succeeded(dir_remove(path)) && fuzz_succeeded(dir_make(path)));
    fuzz_dir_fill(names, sizeof names / sizeof *names, data, size);
    if (!progress) fuzz_require(fuzz_succeeded(progress_new(&progress, NULL, "run", 0, 1, true)));
    if (!fuzz_succeeded(rundir_open(&dir, path))) return 0;
    fuzz_require(fuzz_succeeded(rundir_begin(dir, config, STEP, progress)));
    check_metrics(metrics);
    return 0;
}

size_t fuzz_seed(size_t index, uint8_t *out) {
    static const char *const seeds[][2] = {
        {"{\"steps\":4,\"data\":[\"self\"]}", "{\"step\":1,\"loss\":5.5}\n{\"step\":2}\n{\"step\":3}\n{\"st"},
        {"{\"epochs\":1,\"data\":\"x\"}", "{\"step\":0,\"val_loss\":6}\n\n{\"step\":1.5}\n"},
    };
    if (index >= sizeof seeds / sizeof *seeds) return 0;
    size_t size = fuzz_seed_text(seeds[index][0], out);
    out[size++] = 0;
    return size + fuzz_seed_text(seeds[index][1], out + size);
}
