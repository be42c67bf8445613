/* Runs a fuzz target without external tools: fuzz_NAME [--count N] [--seconds S] [--seed N] [--at I]
 * [FILE...]
 *
 * Input I is a valid input with a few mutations. It depends only on the seed and I (the random generator is
 * counter-based), so a crash can be reproduced without a saved file: the driver prints I, and --at I runs
 * that input again, for example in a debugger, and writes it to fuzz_NAME.input. The run ends after --count
 * inputs, or with --seconds after that time. Files on the command line and files of directories there are run
 * unchanged. An input that takes more than ten seconds of CPU time counts as a
 * hang.
 */
#include <dirent.h>
#include <signal.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "base/rng.h"
#include "fuzz.h"

enum { HANG_SECONDS = 10, MUTATIONS = 8 };

static uint64_t current; /* index of the input; global for the signal handler */

/* Registers a callback that sanitizers call before they terminate the process; NULL without sanitizers. */
__attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)(void));

static void report(void) {
    char text[80];
    int size = snprintf(text, sizeof text, "fuzz: input %llu failed; reproduce it with --at\n",
                        (unsigned long long)current);
    if (write(2, text, (size_t)size) < 0) return;
}

static void on_signal(int number) {
    report();
    signal(number, SIG_DFL);
    raise(number == SIGPROF ? SIGABRT : number);
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

static void open_gap(Input *input, size_t at, size_t bytes) {
    if (input->size + bytes > FUZZ_INPUT_LIMIT) bytes = FUZZ_INPUT_LIMIT - input->size;
    memmove(input->data + at + bytes, input->data + at, input->size - at);
    input->size += bytes;
}

static void erase(Input *input, size_t at, size_t bytes) {
    if (bytes > input->size - at) bytes = input->size - at;
    memmove(input->data + at, input->data + at + bytes, input->size - at - bytes);
    input->size -= bytes;
}

/* Inserts or overwrites with text that tends to break parsers. */
static void put_token(Input *input, Draw *source, size_t at) {
    static const char *const tokens[] = {
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
    const char *token = tokens[draw(source, sizeof tokens / sizeof *tokens)];
    size_t length = strlen(token);
    if (input->size + length > FUZZ_INPUT_LIMIT) return;
    if (draw(source, 2)) open_gap(input, at, length);
    if (at + length > input->size) input->size = at + length;
    memcpy(input->data + at, token, length);
}

static void put_integer(Input *input, Draw *source, size_t at) {
    static const uint64_t values[] = {0,      1,         7,          8,         0x7f,      0xff,
                                      0xffff, INT32_MAX, UINT32_MAX, INT64_MAX, UINT64_MAX};
    uint64_t value = values[draw(source, sizeof values / sizeof *values)];
    size_t width = (size_t)1 << draw(source, 4);
    if (width > input->size - at) width = input->size - at;
    memcpy(input->data + at, &value, width);
}

/* Copies a part of the input to another position, so that brackets nest and fields repeat. */
static void copy_within(Input *input, Draw *source, size_t at) {
    uint8_t part[256];
    size_t from = draw(source, input->size), bytes = 1 + draw(source, sizeof part);
    if (bytes > input->size - from) bytes = input->size - from;
    if (input->size + bytes > FUZZ_INPUT_LIMIT) return;
    memcpy(part, input->data + from, bytes);
    if (draw(source, 2)) open_gap(input, at, bytes);
    if (at + bytes > input->size) input->size = at + bytes;
    memcpy(input->data + at, part, bytes);
}

static void mutate(Input *input, Draw *source) {
    size_t at = draw(source, input->size);
    if (input->size == 0) {
        put_token(input, source, 0);
        return;
    }
    switch (draw(source, 7)) {
    case 0: input->data[at] ^= (uint8_t)(1u << draw(source, 8)); break;
    case 1: input->data[at] = (uint8_t)draw(source, 256); break;
    case 2: put_token(input, source, at); break;
    case 3: put_integer(input, source, at); break;
    case 4: copy_within(input, source, at); break;
    case 5: erase(input, at, 1 + draw(source, 16)); break;
    default: erase(input, at, draw(source, 8) ? draw(source, 64) : input->size); break;
    }
}

static void make_input(Input *input, uint64_t seed, uint64_t index, size_t seeds) {
    Draw source = {.key = rng_key(seed, "fuzz", index)};
    input->size = fuzz_seed(draw(&source, seeds), input->data);
    /* The first inputs are the unmodified seeds. */
    size_t mutations = index < seeds ? 0 : 1 + draw(&source, MUTATIONS);
    if (index < seeds) input->size = fuzz_seed((size_t)index, input->data);
    while (mutations-- > 0) mutate(input, &source);
}

/* SIGPROF after this much CPU time, which other processes do not affect; 0 turns it off. */
static void limit_cpu(int seconds) {
    setitimer(ITIMER_PROF, &(struct itimerval){.it_value.tv_sec = seconds}, NULL);
}

/* Passes the target a heap block of exactly the input's size, so that a sanitizer detects reads past its end.
 */
static void run_input(const uint8_t *data, size_t size) {
    uint8_t *copy = malloc(size ? size : 1);
    fuzz_require(copy);
    memcpy(copy, data, size);
    limit_cpu(HANG_SECONDS);
    LLVMFuzzerTestOneInput(copy, size);
    limit_cpu(0);
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

static int run_path(Input *input, const char *path) {
    DIR *dir = opendir(path);
    if (!dir) return run_file(input, path);
    int code = 0;
    for (struct dirent *entry; !code && (entry = readdir(dir));) {
        char name[4096];
        if (entry->d_name[0] == '.') continue;
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        code = run_file(input, name);
    }
    closedir(dir);
    return code;
}

static void write_input(const Input *input, const char *program) {
    char path[4096];
    snprintf(path, sizeof path, "%s.input", program);
    FILE *file = fopen(path, "wb");
    if (!file) return;
    fwrite(input->data, 1, input->size, file);
    fclose(file);
    printf("wrote input %llu (%zu bytes) to %s\n", (unsigned long long)current, input->size, path);
    fflush(stdout);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

int main(int argc, char **argv) {
    static Input input;
    double seconds = 0;
    uint64_t seed = 1, count = 1000;
    bool one = false;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--seconds") && i + 1 < argc) {
            seconds = atof(argv[++i]);
        } else if (!strcmp(argv[i], "--count") && i + 1 < argc) {
            count = strtoull(argv[++i], NULL, 10);
        } else if (!strcmp(argv[i], "--seed") && i + 1 < argc) {
            seed = strtoull(argv[++i], NULL, 10);
        } else if (!strcmp(argv[i], "--at") && i + 1 < argc) {
            current = strtoull(argv[++i], NULL, 10);
            one = true;
        } else {
            int code = run_path(&input, argv[i]);
            if (code || i + 1 == argc) return code;
        }
    }
    const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGPROF};
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
    for (double end = now() + seconds; seconds > 0 ? now() < end : current < count; current++) {
        make_input(&input, seed, current, seeds);
        run_input(input.data, input.size);
    }
    printf("%llu inputs\n", (unsigned long long)current);
    return 0;
}
