/* Times the encoding of a file with one encoder and one thread; each repeat encodes the whole text at once.
 *
 *     tokenize TOKENIZER FILE [REPEATS [IDS]]
 *
 * Prints a JSON object: bytes, tokens, the smallest wall_s and cpu_s (CPU time of the process) of all
 * repeats, and load_s, the time to load the tokenizer. IDS is an output file for the ids, int32 in native
 * byte order. Build it with the target `tokenize`. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/fs.h"
#include "tokenizer/tokenizer.h"

static double seconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void file_map_donep(FileMap *map) {
    file_map_done(map);
}

static Status run(int argc, char **argv) {
    if (argc < 3) return USAGE("usage: tokenize TOKENIZER FILE [REPEATS [IDS]]");
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    CLEANUP(file_map_donep) FileMap map = {0};
    CLEANUP(token_list_done) TokenList list = {0};
    double start = seconds(CLOCK_MONOTONIC), best_wall = 1e30, best_cpu = 1e30;
    TRY(tokenizer_load(&tokenizer, argv[1]));
    double load = seconds(CLOCK_MONOTONIC) - start;
    TRY(file_map_init(&map, argv[2]));
    int repeats = argc > 3 ? atoi(argv[3]) : 3;
    for (int i = 0; i < repeats; i++) {
        CLEANUP(encoder_freep) Encoder *encoder = NULL;
        list.count = 0;
        double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
        TRY(encoder_new(&encoder, tokenizer, NULL));
        TRY(encoder_add(encoder, (const char *)map.data, map.size, &list));
        wall = seconds(CLOCK_MONOTONIC) - wall;
        cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
        if (wall < best_wall) best_wall = wall;
        if (cpu < best_cpu) best_cpu = cpu;
    }
    if (argc > 4) TRY(file_replace(argv[4], list.ids, list.count * sizeof *list.ids));
    printf("{\"bytes\": %zu, \"tokens\": %zu, \"wall_s\": %.6f, \"cpu_s\": %.6f, \"load_s\": %.6f}\n",
           map.size, list.count, best_wall, best_cpu, load);
    return OK;
}

int main(int argc, char **argv) {
    Status status = run(argc, argv);
    if (!status) return 0;
    fprintf(stderr, "%s\n", status_message(status));
    int code = status_exit_code(status);
    status_free(status);
    return code;
}
