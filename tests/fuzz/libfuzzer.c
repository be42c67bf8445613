/* Takes the driver's place in a build for libFuzzer (scripts/fuzz): with WEFT_FUZZ_SEEDS=DIR in the
 * environment, writes the target's seeds to DIR and exits. */
#include "fuzz.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    static uint8_t seed[FUZZ_INPUT_LIMIT];
    const char *dir = getenv("WEFT_FUZZ_SEEDS");
    (void)argc, (void)argv;
    if (!dir) return 0;
    for (size_t index = 0, size; (size = fuzz_seed(index, seed)) > 0; index++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/seed-%zu", dir, index);
        FILE *file = fopen(path, "wb");
        if (!file || fwrite(seed, 1, size, file) != size || fclose(file)) {
            perror(path);
            exit(1);
        }
    }
    exit(0);
}
