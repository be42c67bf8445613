/* Fuzzes recipes of 'weft compare': an accepted one has runs with different names. */
#include "base/memory.h"
#include "compare/recipe.h"
#include "dir.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const names[] = {"recipe.json"};
    char path[128];
    fuzz_dir_fill(names, 1, data, size);
    snprintf(path, sizeof path, "%s/%s", fuzz_dir_path(), names[0]);
    for (int i = 0; i < 2; i++) {
        CLEANUP(recipe_done) Recipe recipe = {0};
        if (!fuzz_succeeded(recipe_read(&recipe, path, i ? "small" : NULL))) continue;
        fuzz_require(json_is_array(recipe.runs));
        for (size_t k = 0; k < json_array_size(recipe.runs); k++)
            for (size_t m = 0; m < k; m++) {
                const json_t *a = json_object_get(json_array_get(recipe.runs, k), "name");
                fuzz_require(json_is_string(a) &&
                             !json_equal((json_t *)(uintptr_t)a,
                                         json_object_get(json_array_get(recipe.runs, m), "name")));
            }
    }
    return 0;
}

size_t fuzz_seed(size_t index, uint8_t *out) {
    static const char *const seeds[] = {
        "{\"about\":\"two runs\",\"model\":\"gpt2-tiny\",\"data\":[\"self\"],\"steps\":4,\"runs\":["
        "{\"name\":\"one\",\"ranks\":1},{\"name\":\"two\",\"ranks\":2,\"zero\":1}],"
        "\"scales\":{\"small\":{\"hidden\":16,\"runs\":[{\"name\":\"three\",\"steps\":2}]}}}",
        "{\"runs\":[{\"name\":\"a\",\"published\":{\"step_ms\":10.5}},{\"name\":\"b\",\"cluster\":\"h100\"}],"
        "\"cluster\":\"dgx2-v100\",\"samples\":1000,\"study\":{\"title\":\"t\",\"source\":\"s\",\"columns\":"
        "[\"step_ms\"],\"claims\":[{\"text\":\"b is "
        "faster\",\"figure\":\"step_ms\",\"more\":\"a\",\"less\":\"b\"}]}}",
    };
    return index < sizeof seeds / sizeof *seeds ? fuzz_seed_text(seeds[index], out) : 0;
}
