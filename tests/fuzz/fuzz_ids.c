/* Fuzzes examples in JSON Lines: ids and labels of accepted examples are in range for the task. */
#include <math.h>

#include "data/ids.h"
#include "fuzz.h"

enum { T = 12, VOCAB = 50, TYPES = 2, LABELS = 3 };

static void check_array(const int32_t *array, int32_t length, int32_t high, bool ignored) {
    for (int32_t i = 0; array && i < length; i++)
        fuzz_require((array[i] >= 0 && array[i] <= high) || (ignored && array[i] == -100));
}

static void check_example(const IdsSet *set, const IdsExample *example) {
    fuzz_require(example->length >= 1 && example->length <= T);
    size_t arrays = 1u + example->has_types + example->has_labels;
    fuzz_require(example->at + (size_t)example->length * arrays <= set->used);
    check_array(ids_of(set, example), example->length, VOCAB - 1, false);
    check_array(types_of(set, example), example->length, TYPES - 1, false);
    check_array(labels_of(set, example), example->length, VOCAB - 1, true);
    fuzz_require(example->next >= 0 && example->next <= 1);
    fuzz_require(example->start >= 0 && example->start <= T && example->end >= 0 && example->end <= T);
    fuzz_require(example->label >= 0 && example->label < LABELS);
}

/* Regression and multi-label targets are finite, the latter from 0 to 1. */
static void check_targets(const uint8_t *data, size_t size, ProblemType problem) {
    static const char *const names[LABELS] = {"a", "b", "c"};
    DataSpec spec = {.task = TASK_CLASSIFY,
                     .seq = T,
                     .vocab = VOCAB,
                     .types = TYPES,
                     .labels = LABELS,
                     .label_names = names,
                     .problem = problem};
    char name[] = "input";
    Source source = {.name = name, .data = data, .size = size};
    CLEANUP(ids_set_done) IdsSet set = {0};
    if (!fuzz_succeeded(ids_set_read(&set, &source, &spec))) return;
    for (size_t i = 0; i < set.count * LABELS; i++) {
        fuzz_require(isfinite(set.targets[i]));
        if (problem == PROBLEM_MULTI_LABEL) fuzz_require(set.targets[i] >= 0 && set.targets[i] <= 1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    for (int task = TASK_LM; task <= TASK_CLASSIFY; task++) {
        DataSpec spec = {.task = (Task)task,
                         .seq = T,
                         .vocab = VOCAB,
                         .types = TYPES,
                         .labels = LABELS,
                         .special = {0, 1, 2, 3, -1, -1},
                         .next_sentence = true};
        char name[] = "input";
        Source source = {.name = name, .data = data, .size = size};
        CLEANUP(ids_set_done) IdsSet set = {0};
        if (!fuzz_succeeded(ids_set_read(&set, &source, &spec))) continue;
        for (size_t i = 0; i < set.count; i++) check_example(&set, &set.example[i]);
    }
    check_targets(data, size, PROBLEM_REGRESSION);
    check_targets(data, size, PROBLEM_MULTI_LABEL);
    return 0;
}

size_t fuzz_seed(size_t index, uint8_t *out) {
    static const char *const seeds[] = {
        "{\"ids\": [1, 2, 3]}\n{\"ids\": [4]}\n",
        "{\"ids\": [1, 5, 2], \"types\": [0, 0, 1], \"labels\": [-100, 7, -100], \"next\": 1}\n",
        "{\"ids\": [1, 5, 2], \"start\": 1, \"end\": 2}\r\n\n{\"ids\": [9], \"start\": 12, \"end\": 0}",
        "{\"ids\": [1, 5, 2], \"types\": [0, 0, 1], \"label\": 2}\n",
        "{\"ids\": [1], \"label\": [0.5, -2, 1e3]}\n{\"ids\": [1], \"label\": [1, 0, true]}\n",
        "{\"ids\": [1], \"label\": [\"a\", \"c\"]}\n{\"ids\": [1], \"label\": [2, 0]}\n",
        ("{\"ids\":[1,2,3,4,5,6,7,8,9,10,11,12],\"labels\":[1,2,3,4,5,6,7,8,9,10,11,49],\"next\":0,"
         "\"start\":0,\"end\":0,\"label\":0,\"types\":[0,0,0,0,0,0,0,0,0,0,0,0]}\n"),
    };
    return index < sizeof seeds / sizeof *seeds ? fuzz_seed_text(seeds[index], out) : 0;
}
