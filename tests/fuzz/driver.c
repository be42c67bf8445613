/* Runs a fuzz target without any tool: fuzz_NAME [--seconds S] [--seed N] [--at I] [FILE...]
 *
 * Input I is a function of the seed and I alone (the counter-based generator again): a valid input with
 * a few mutations. So a crash needs no saved file: it prints I, and --at I runs that input again, also in
 * a debugger, and writes it to fuzz_NAME.input. Files on the command line are run as they are. An input
 * that takes longer than ten seconds counts as a hang.
 */
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "base/rng.h"
#include "fuzz.h"

enum { HANG_SECONDS = 10, MUTATIONS = 8 };

/* A signal handler has no other way to know. */
static uint64_t current;

/* The sanitizers call this before they end the process. */
__attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)(void));

static void report(void) {
    char text[80];
    int size = snprintf(text, sizeof text, "fuzz: failed at input %llu, run it again with --at\n",
                        (unsigned long long)current);
    if (write(2, text, (size_t)size) < 0) return;
}

static void on_signal(int number) {
    report();
    signal(number, SIG_DFL);
    raise(number == SIGALRM ? SIGABRT : number);
}

typedef struct Draw {
    RngKey key;
    uint64_t next;
} Draw;

static size_t draw(Draw *source, size_t bound) {
    return bound ? (size_t)rng_below(source->key, source->next++, bound) : 0;
}

typedef struct Input {
    uint8_t data[FUZZ_INPUT_LIMIT];
    size_t size;
} Input;

/* Makes room for, or cuts, bytes at a place. */
static void open_gap(Input *input, size_t at, size_t bytes) {
    if (input->size + bytes > FUZZ_INPUT_LIMIT) bytes = FUZZ_INPUT_LIMIT - input->size;
    memmove(input->data + at + bytes, input->data + at, input->size - at);
    input->size += bytes;
}

static void cut(Input *input, size_t at, size_t bytes) {
    if (bytes > input->size - at) bytes = input->size - at;
    memmove(input->data + at, input->data + at + bytes, input->size - at - bytes);
    input->size -= bytes;
}

/* Text and numbers that readers stumble over. */
static void put_word(Input *input, Draw *source, size_t at) {
    static const char *const words[] = {
        "-1",
        "0",
        "1e999",
        "9223372036854775807",
        "18446744073709551615",
        "4294967296",
        "2147483648",
        "1.5",
        "[",
        "]",
        "{",
        "}",
        "\"",
        ":",
        ",",
        "\n",
        "null",
        "true",
        "\\u0000",
        "\xff\xfe",
        "-100",
    };
    const char *word = words[draw(source, sizeof words / sizeof *words)];
    size_t length = strlen(word);
    if (input->size + length > FUZZ_INPUT_LIMIT) return;
    if (draw(source, 2)) open_gap(input, at, length);
    if (at + length > input->size) input->size = at + length;
    memcpy(input->data + at, word, length);
}

static void put_integer(Input *input, Draw *source, size_t at) {
    static const uint64_t values[] = {0,      1,         7,          8,         0x7f,      0xff,
                                      0xffff, INT32_MAX, UINT32_MAX, INT64_MAX, UINT64_MAX};
    uint64_t value = values[draw(source, sizeof values / sizeof *values)];
    size_t width = (size_t)1 << draw(source, 4);
    if (width > input->size - at) width = input->size - at;
    memcpy(input->data + at, &value, width);
}

/* A piece of the input itself over or into another place: brackets nest, fields double. */
static void copy_within(Input *input, Draw *source, size_t at) {
    uint8_t piece[256];
    size_t from = draw(source, input->size), bytes = 1 + draw(source, sizeof piece);
    if (bytes > input->size - from) bytes = input->size - from;
    if (input->size + bytes > FUZZ_INPUT_LIMIT) return;
    memcpy(piece, input->data + from, bytes);
    if (draw(source, 2)) open_gap(input, at, bytes);
    if (at + bytes > input->size) input->size = at + bytes;
    memcpy(input->data + at, piece, bytes);
}

static void mutate(Input *input, Draw *source) {
    size_t at = draw(source, input->size);
    if (input->size == 0) {
        put_word(input, source, 0);
        return;
    }
    switch (draw(source, 7)) {
    case 0: input->data[at] ^= (uint8_t)(1u << draw(source, 8)); break;
    case 1: input->data[at] = (uint8_t)draw(source, 256); break;
    case 2: put_word(input, source, at); break;
    case 3: put_integer(input, source, at); break;
    case 4: copy_within(input, source, at); break;
    case 5: cut(input, at, 1 + draw(source, 16)); break;
    default: cut(input, at, draw(source, 8) ? draw(source, 64) : input->size); break;
    }
}

static void make_input(Input *input, uint64_t seed, uint64_t index, size_t seeds) {
    Draw source = {.key = rng_key(seed, "fuzz", index)};
    input->size = fuzz_seed(draw(&source, seeds), input->data);
    /* The first inputs are the seeds as they are. */
    size_t mutations = index < seeds ? 0 : 1 + draw(&source, MUTATIONS);
    if (index < seeds) input->size = fuzz_seed((size_t)index, input->data);
    while (mutations-- > 0) mutate(input, &source);
}

/* The target gets a block of exactly the input's size, so that reading past it is seen. */
static void run_input(const uint8_t *data, size_t size) {
    uint8_t *copy = malloc(size ? size : 1);
    fuzz_require(copy);
    memcpy(copy, data, size);
    alarm(HANG_SECONDS);
    LLVMFuzzerTestOneInput(copy, size);
    alarm(0);
    free(copy);
}

static int run_file(Input *input, const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return 2;
    }
    input->size = fread(input->data, 1, FUZZ_INPUT_LIMIT, file);
    fclose(file);
    run_input(input->data, input->size);
    return 0;
}

static void write_input(const Input *input, const char *program) {
    char path[4096];
    snprintf(path, sizeof path, "%s.input", program);
    FILE *file = fopen(path, "wb");
    if (!file) return;
    fwrite(input->data, 1, input->size, file);
    fclose(file);
    printf("input %llu, %zu bytes, is in %s\n", (unsigned long long)current, input->size, path);
    fflush(stdout);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

int main(int argc, char **argv) {
    static Input input;
    double seconds = 3;
    uint64_t seed = 1;
    bool one = false;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--seconds") && i + 1 < argc) {
            seconds = atof(argv[++i]);
        } else if (!strcmp(argv[i], "--seed") && i + 1 < argc) {
            seed = strtoull(argv[++i], NULL, 10);
        } else if (!strcmp(argv[i], "--at") && i + 1 < argc) {
            current = strtoull(argv[++i], NULL, 10);
            one = true;
        } else {
            int code = run_file(&input, argv[i]);
            if (code || i + 1 == argc) return code;
        }
    }
    const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) signal(signals[i], on_signal);
    if (__sanitizer_set_death_callback) __sanitizer_set_death_callback(report);

    size_t seeds = 0;
    while (fuzz_seed(seeds, input.data) > 0) seeds++;
    if (one) {
        make_input(&input, seed, current, seeds);
        write_input(&input, argv[0]);
        run_input(input.data, input.size);
        return 0;
    }
    for (double end = now() + seconds; now() < end; current++) {
        make_input(&input, seed, current, seeds);
        run_input(input.data, input.size);
    }
    printf("%llu inputs\n", (unsigned long long)current);
    return 0;
}
