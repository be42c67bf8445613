/* Fuzzes the directory of a comparison: what it says about runs, studies and claims is shown as far as it can
 * be understood. The input is results.json, and the summary and metrics of run a, separated by NULs. */
#include "base/memory.h"
#include "dir.h"
#include "report/page.h"
#include "report/study.h"
#include "report/summary.h"
#include "report/table.h"

static void show(const Results *results) {
    CLEANUP(mem_freep) char *table = NULL, *summary = NULL, *findings = NULL, *page = NULL;
    CLEANUP(json_decrefp) json_t *json = NULL, *judged = NULL;
    fuzz_require(fuzz_succeeded(table_text(results, (TableLook){.width = 80}, &table)));
    fuzz_require(fuzz_succeeded(results_summary(results, &summary)));
    fuzz_require(!strpbrk(summary, "\n\t\x1b"));
    fuzz_require(fuzz_succeeded(results_json(results, &json)));
    (void)fuzz_succeeded(findings_text(results, &findings));
    (void)fuzz_succeeded(findings_json(results, &judged));
    (void)fuzz_succeeded(page_text(results, &page));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const names[] = {"results.json", "a/summary.json", "a/metrics.jsonl"};
    CLEANUP(results_done) Results results = {0}, again = {0};
    CLEANUP(mem_freep) char *damage = NULL;
    char path[128];
    Run *run;
    snprintf(path, sizeof path, "%s/a", fuzz_dir_path());
    fuzz_require(fuzz_succeeded(dir_make(path)));
    fuzz_dir_fill(names, sizeof names / sizeof *names, data, size);
    bool known = fuzz_succeeded(results_read(&results, fuzz_dir_path()));
    if (!results.title)
        fuzz_require(fuzz_succeeded(str_dup("Runs", &results.title))); /* as weft report does */
    if (known && results.count) show(&results);
    fuzz_require(fuzz_succeeded(results_add(&again, "a", path, &run)));
    (void)fuzz_succeeded(results_recall(&again, fuzz_dir_path(), &damage));
    return 0;
}

size_t fuzz_seed(size_t index, uint8_t *out) {
    static const char results[] =
        "{\"title\":\"t\",\"about\":\"b\",\"scale\":\"small\",\"resized\":false,"
        "\"study\":{\"title\":\"s\",\"hardware\":\"h\",\"source\":\"u\",\"columns\":[\"step_ms\",\"peak_"
        "bytes\"],"
        "\"claims\":[{\"text\":\"b is faster\",\"run\":\"b\",\"figure\":\"step_ms\",\"relation\":\"lower\","
        "\"than\":\"a\",\"by\":0.1},{\"text\":\"b fails\",\"run\":[\"b\"],\"relation\":\"out of memory\"}]},"
        "\"runs\":[{\"name\":\"a\",\"dir\":\"x/a\",\"state\":\"finished\",\"options\":{\"dp\":2},"
        "\"published\":{\"step_ms\":10.5,\"peak_gib\":2},\"samples_per_epoch\":100},"
        "{\"name\":\"b\",\"dir\":\"x/b\",\"state\":\"failed\",\"error\":\"out of "
        "memory\",\"options\":{\"tp\":2},"
        "\"settings\":{\"tp\":2,\"steps\":4},\"prediction\":{\"step_ms\":9.5,\"predicted\":\"h100\"},"
        "\"summary\":{\"steps\":4,\"step_ms\":8.5,\"loss_last\":4.5,\"runtime_s\":2,\"phases_s\":{"
        "\"compute\":1}}}],"
        "\"others\":[{\"name\":\"c\",\"dir\":\"x/c\",\"state\":\"running\"}]}";
    static const char summary[] =
        "{\"steps\":2,\"runtime_s\":1.5,\"step_ms\":20.5,\"loss_first\":5.5,\"loss_last\":4.5,\"val_loss\":4."
        "75,"
        "\"samples_per_s\":10.5,\"tokens_per_s\":100.5,\"utilization\":0.5,\"layout\":{\"ranks\":2,\"dp\":2},"
        "\"peak_bytes\":{\"params\":100,\"total\":200},\"epochs\":[{\"epoch\":1,\"step\":2,\"loss\":5.0}],"
        "\"ranks\":[{\"rank\":0,\"utilization\":0.5,\"phases\":{\"compute_s\":1.0,\"wait_data_s\":0.25}}]}";
    static const char metrics[] = "{\"step\":1,\"loss\":5.5,\"step_ms\":20.5,\"elapsed_s\":0.5}\n"
                                  "{\"step\":2,\"loss\":4.5,\"step_ms\":19.5,\"elapsed_s\":0.75}\n";
    static const char *const parts[] = {results, summary, metrics};
    size_t size = 0;
    if (index > 2) return 0;
    for (size_t i = 0; i < 3; i++) {
        if (i == 0 || i != index) size += fuzz_seed_text(parts[i], out + size);
        if (i < 2) out[size++] = 0;
    }
    return size;
}
