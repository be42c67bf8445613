/* Tests progress output on a pseudo-terminal of a given width, on a dumb terminal, and to a file. */
#include "test.h"

#include <errno.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/format.h"
#include "base/progress.h"

enum { UPDATES = 200, PAUSE_US = 2000 };

static void show_progress(FILE *out) {
    Progress *progress = NULL;
    if (progress_new(&progress, out, "train", UPDATES, 0.1, false)) _exit(3);
    progress_update(progress, 0, "");
    for (int i = 1; i <= UPDATES; i++) {
        char note[64];
        snprintf(note, sizeof note, "loss %.3f  12.3k tok/s  1.2 GB", 1.0 / i);
        progress_update(progress, i, note);
        if (i == UPDATES / 2) progress_line(progress, "halfway at %d", i);
        usleep(PAUSE_US);
    }
    progress_end(progress);
    progress_free(progress);
}

/* One phase that a thread draws, then one with a total, in front of a bar. */
static void show_phases(FILE *out) {
    Progress *progress = NULL, *phase = NULL;
    if (progress_new(&progress, out, "train", UPDATES, 60, false)) _exit(3);
    progress_unit(progress, "step");
    if (progress_new_phase(&phase, out, "loading model", 0, false)) _exit(3);
    usleep(1000000);
    progress_end(phase);
    progress_free(phase);
    if (progress_new_phase(&phase, out, "validating", 4, false)) _exit(3);
    progress_update(phase, 2, "");
    progress_free(phase);
    progress_update(progress, 7, "");
    progress_end(progress);
    progress_free(progress);
}

/* Captures everything that a child process writes to a terminal with `columns` columns. */
static void draw_on_terminal(void (*draw)(FILE *out), int columns, const char *term, char *text,
                             size_t size) {
    struct winsize window = {.ws_row = 24, .ws_col = (unsigned short)columns};
    int terminal;
    pid_t child = forkpty(&terminal, NULL, NULL, &window);
    if (child < 0) skip(); /* no pseudo-terminals, as in some containers */
    if (child == 0) {
        setenv("TERM", term, 1);
        setenv("LC_ALL", "C.UTF-8", 1);
        unsetenv("NO_COLOR");
        draw(stderr);
        _exit(0);
    }
    size_t have = 0;
    ssize_t got;
    while (have + 1 < size && (got = read(terminal, text + have, size - have - 1)) > 0) have += (size_t)got;
    text[have] = 0;
    int state;
    assert_int_equal(waitpid(child, &state, 0), child);
    assert_int_equal(state, 0);
    close(terminal);
}

static void on_terminal(int columns, const char *term, char *text, size_t size) {
    draw_on_terminal(show_progress, columns, term, text, size);
}

/* Phases are erased, and the bar shows what it counts. A log has only the bar's lines. */
static void phases(void **state) {
    static char text[1 << 16];
    draw_on_terminal(show_phases, 100, "xterm", text, sizeof text);
    const char *loading = strstr(text, "\r\033[Kloading model"),
               *validating = strstr(text, "\r\033[Kvalidating");
    assert_non_null(loading);
    assert_non_null(validating);
    assert_true(loading < validating);
    const char *bar = strstr(validating, "\r\033[K\r\033[Ktrain ");
    assert_non_null(bar);
    assert_non_null(strstr(bar, "step 7/200   4%"));
    draw_on_terminal(show_phases, 100, "dumb", text, sizeof text);
    assert_null(strstr(text, "loading"));
    assert_null(strstr(text, "validating"));
    assert_non_null(strstr(text, "train 7/200 (4%)"));
}

/* Counts of bytes have units, with and without a total. */
static void bytes_in_a_log(void **state) {
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    CLEANUP(progress_freep) Progress *progress = NULL;
    assert_non_null(out);
    assert_ok(progress_new(&progress, out, "prepare", 0, 0, false));
    progress_bytes(progress);
    progress_update(progress, 30778, "");
    progress_total(progress, 2000000);
    progress_update(progress, 1000000, "");
    progress_end(progress);
    fclose(out);
    if (!strstr(text, "prepare 30.8 kB  ") || !strstr(text, "prepare 1.00 MB/2.00 MB (50%)  "))
        fail_msg("%s", text);
    free(text);
}

/* Display width of a line: skips escape sequences and UTF-8 continuation bytes. */
static int columns_of(const char *line, size_t length) {
    int columns = 0;
    for (size_t i = 0; i < length; i++) {
        if (line[i] == '\033') {
            while (i < length && !strchr("mK", line[i])) i++;
            continue;
        }
        columns += ((unsigned char)line[i] & 0xC0) != 0x80;
    }
    return columns;
}

static void bar_on_terminal(void **state) {
    static char text[1 << 16];
    static const int widths[] = {100, 60, 30, 12};
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
        double start = clock_wall();
        on_terminal(widths[w], "xterm", text, sizeof text);
        uintmax_t limit = 11 + (uintmax_t)(10 * (clock_wall() - start));
        int redraws = 0;
        for (const char *at = text; *at;) {
            size_t length = strcspn(at, "\r\n");
            assert_true(columns_of(at, length) < widths[w] + (widths[w] < 15 ? 5 : 0));
            redraws += length > 0;
            at += length;
            at += strspn(at, "\r\n");
        }
        /* Ten redraws per second of 0.4 s or more, plus one for the message and one at the end. */
        assert_in_range(redraws, 3, limit);
        assert_non_null(strstr(text, "halfway at 100\r\n"));
        assert_int_equal(text[strlen(text) - 1], '\n');
        if (widths[w] == 100) {
            assert_non_null(strstr(text, "100%  loss 0.005  12.3k tok/s  1.2 GB"));
            assert_non_null(strstr(text, "━"));
            assert_non_null(strstr(text, " left"));
        }
    }
}

static void lines_on_dumb_terminal(void **state) {
    static char text[1 << 16];
    on_terminal(80, "dumb", text, sizeof text);
    assert_null(strchr(text, '\033'));
    assert_non_null(strstr(text, "train 200/200 (100%)"));
}

/* A last update that was printed is not repeated at the end. */
static void short_work_in_a_log(void **state) {
    char text[256] = "";
    FILE *file = fmemopen(text, sizeof text, "w");
    Progress *progress = NULL;
    assert_ok(progress_new(&progress, file, "count", 3, 5, false));
    progress_update(progress, 3, "");
    progress_end(progress);
    progress_free(progress);
    fclose(file);
    assert_int_equal(strncmp(text, "count 3/3 (100%)  0:0", 21), 0);
    assert_ptr_equal(strchr(text, '\n') + 1, text + strlen(text));
}

static void lines_in_a_log(void **state) {
    char *text = NULL;
    FILE *file = tmpfile();
    assert_non_null(file);
    double start = clock_wall();
    show_progress(file);
    uintmax_t limit = 12 + (uintmax_t)(10 * (clock_wall() - start));
    long size = ftell(file);
    rewind(file);
    text = calloc(1, (size_t)size + 1);
    assert_int_equal(fread(text, 1, (size_t)size, file), size);
    fclose(file);
    assert_null(strchr(text, '\r'));
    assert_null(strchr(text, '\033'));
    assert_non_null(strstr(text, "train 0/200 (0%)"));
    assert_non_null(strstr(text, "\nhalfway at 100\n"));
    assert_non_null(strstr(text, "\ntrain 200/200 (100%)  loss 0.005  12.3k tok/s  1.2 GB  0:0"));
    int lines = 0;
    for (const char *at = text; (at = strchr(at, '\n')); at++) lines++;
    assert_in_range(lines, 4, limit);
    free(text);
}

static void quiet_prints_nothing(void **state) {
    FILE *file = tmpfile();
    Progress *progress = NULL;
    assert_ok(progress_new(&progress, file, "train", 10, 0, true));
    progress_update(progress, 5, "note");
    progress_line(progress, "line");
    progress_end(progress);
    progress_free(progress);
    assert_int_equal(ftell(file), 0);
    fclose(file);
    progress_free(NULL);
}

static void human_readable_numbers(void **state) {
    char text[FORMAT_SIZE];
    assert_string_equal(format_count(text, 950), "950");
    assert_string_equal(format_count(text, 12345), "12.3 k");
    assert_string_equal(format_count(text, 124439808), "124 M");
    assert_string_equal(format_count(text, 999999), "1.00 M");
    assert_string_equal(format_count(text, 8.31e9), "8.31 B");
    assert_string_equal(format_si(text, 8.31e12), "8.31 T");
    assert_string_equal(format_bytes(text, 512), "512 B");
    assert_string_equal(format_bytes(text, 1.25e9), "1.25 GB");
    assert_string_equal(format_duration(text, 7), "0:07");
    assert_string_equal(format_duration(text, 205), "3:25");
    assert_string_equal(format_duration(text, 3723), "1:02:03");
    assert_string_equal(format_duration(text, 86400 + 3723), "1d 1:02:03");
    assert_string_equal(format_duration(text, -1), "?");
    assert_string_equal(format_seconds(text, 0.00123), "0.0012 s");
    assert_string_equal(format_seconds(text, 5.004), "5 s");
    assert_string_equal(format_seconds(text, 75.3), "75 s");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(phases),
        cmocka_unit_test(bar_on_terminal),
        cmocka_unit_test(lines_on_dumb_terminal),
        cmocka_unit_test(lines_in_a_log),
        cmocka_unit_test(bytes_in_a_log),
        cmocka_unit_test(short_work_in_a_log),
        cmocka_unit_test(quiet_prints_nothing),
        cmocka_unit_test(human_readable_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
