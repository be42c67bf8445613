/* The greedy continuations that transformers gave, and engines for their checkpoints. */
#ifndef WEFT_TESTS_INFER_GOLDEN_H
#define WEFT_TESTS_INFER_GOLDEN_H

#include "base/json.h"
#include "infer/generate.h"
#include "test.h"

static const char *const golden_cases[] = {
    "gpt2", "gpt2-untied-padded", "gpt2-layer-scale", "gpt2-unscaled-relu", "gpt2-generate",
};

enum { GOLDEN_CASES = 5, GOLDEN_PROMPTS = 8, GOLDEN_TOKENS = 64 };

typedef struct Golden {
    int count;
    Prompt prompt[GOLDEN_PROMPTS];
    int32_t ids[GOLDEN_PROMPTS][GOLDEN_TOKENS];       /* what the prompts point to */
    int32_t continued[GOLDEN_PROMPTS][GOLDEN_TOKENS]; /* the new tokens */
    int64_t continued_count;
} Golden;

static inline const char *golden_dir(const char *name, char path[512]) {
    snprintf(path, 512, "%s/golden/cases/%s", WEFT_TEST_DIR, name);
    return path;
}

static inline int64_t golden_tokens(const json_t *array, int32_t *tokens) {
    size_t count = json_array_size(array);
    assert_in_range(count, 1, GOLDEN_TOKENS);
    for (size_t i = 0; i < count; i++) tokens[i] = (int32_t)json_integer_value(json_array_get(array, i));
    return (int64_t)count;
}

static inline void golden_read(const char *name, Golden *golden) {
    char path[512], file[544];
    snprintf(file, sizeof file, "%s/golden.json", golden_dir(name, path));
    json_t *facts = NULL;
    assert_ok(json_read_file(file, &facts));
    const json_t *greedy = json_object_get(facts, "greedy");
    *golden = (Golden){.count = (int)json_array_size(greedy)};
    assert_in_range(golden->count, 2, GOLDEN_PROMPTS);
    for (int i = 0; i < golden->count; i++) {
        const json_t *entry = json_array_get(greedy, (size_t)i);
        golden->prompt[i] = (Prompt){.ids = golden->ids[i], .sequence = (uint64_t)i};
        golden->prompt[i].count = golden_tokens(json_object_get(entry, "prompt"), golden->ids[i]);
        golden->continued_count = golden_tokens(json_object_get(entry, "continuation"), golden->continued[i]);
    }
    json_decref(facts);
}

/* One thread: the models are tiny. */
static inline Engine *golden_engine(const char *name, const char *kernels) {
    char path[512];
    Engine *engine = NULL;
    assert_ok(
        engine_new(&engine, golden_dir(name, path), &(EngineOptions){.kernels = kernels, .threads = 1}));
    return engine;
}

static inline GenerateSpec golden_spec(const Golden *golden) {
    return (GenerateSpec){
        .prompts = golden->prompt,
        .count = golden->count,
        .max_tokens = golden->continued_count,
        .end_token = -1,
        .sampling = {.top_p = 1},
    };
}

#endif
