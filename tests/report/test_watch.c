/* Following a run that is in progress. */
#include <fcntl.h>
#include <sys/stat.h>

#include "report/run.h"
#include "report/watch.h"

static void append(const Fixture *fixture, const char *name, const char *text) {
    char path[160];
    snprintf(path, sizeof path, "%s/%s/metrics.jsonl", fixture->dir, name);
    FILE *file = fopen(path, "a");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

/* At 80 columns and on a narrow terminal, sparklines shrink; the text next to them is not cut. */
static void fits_terminals(void **state) {
    const Fixture *fixture = *state;
    char dir[128], line[512], *text = NULL;
    Watch *watch = NULL;
    write_run(fixture, "live", NULL, "");
    for (int step = 1; step <= 60; step++) {
        snprintf(line, sizeof line,
                 "{\"step\":%d,\"loss\":%g,\"tokens_per_s\":12345,\"step_ms\":2913,\"utilization\":0.07,"
                 "\"mfu\":0.06,\"noise_scale\":152.4,\"noise_scale_error\":21}\n"
                 "{\"step\":%d,\"val_loss\":2}\n",
                 step, 9 - 0.1 * step, step);
        append(fixture, "live", line);
    }
    snprintf(dir, sizeof dir, "%s/live", fixture->dir);
    assert_ok(watch_new(&watch, dir));
    for (int width = 72; width <= 200; width += 8) {
        assert_ok(watch_block(watch, (TableLook){.width = width, .utf8 = width > 80}, &text));
        assert_has(text, "  tokens/s, 2913 ms/step, 7% busy, MFU 6%\n");
        assert_has(text, "  lowest 3.0000\n");
        assert_has(text, width > 80 ? "gradient noise scale 152 ± 21 samples\n"
                                    : "gradient noise scale 152 +- 21 samples\n");
        for (const char *at = text, *end; (end = strchr(at, '\n')); at = end + 1) {
            int columns = 0;
            for (const char *c = at; c < end; c++) columns += ((unsigned char)*c & 0xC0) != 0x80;
            assert_true(columns < width);
        }
        free(text);
    }
    watch_free(watch);
}

static char *line_of(Watch *watch, bool expected_news) {
    bool news;
    char *line = NULL;
    assert_ok(watch_look(watch, &news));
    assert_int_equal(news, expected_news);
    assert_ok(watch_line(watch, &line));
    return line;
}

static void assert_line(Watch *watch, const char *part) {
    char *line = line_of(watch, true);
    assert_has(line, part);
    free(line);
}

static void follows(void **state) {
    const Fixture *fixture = *state;
    char dir[128], path[160], *text = NULL;
    Watch *watch = NULL;
    bool news;
    write_run(fixture, "live", NULL, "");
    snprintf(dir, sizeof dir, "%s/live", fixture->dir);
    snprintf(path, sizeof path, "%s/config.json", dir);
    assert_ok(file_replace(path, "{\"model\": \"m\", \"steps\": 8}", 26));
    int lock = lock_run(fixture, "live");
    assert_ok(watch_new(&watch, dir));
    assert_int_equal(watch_state(watch), WATCH_STARTING);
    append(fixture, "live", METRICS "{\"step\":3,\"lo");
    assert_line(watch, "step 2/8 (25%)  loss 4.5000  validation loss 4.2500  600 tokens/s");
    free(line_of(watch, false)); /* half a line is not news */
    append(fixture, "live", "ss\":3.5}\n5 is no line\n");
    assert_line(watch, "step 3/8 (37%)  loss 3.5000");
    assert_ok(watch_block(watch, (TableLook){.width = 40, .utf8 = true}, &text));
    assert_has(text, "█▄▁");
    assert_has(text, "1 unreadable lin");
    for (const char *at = text, *end; (end = strchr(at, '\n')); at = end + 1) assert_true(end - at < 40 * 3);
    free(text);
    append(fixture, "live", "{\"step\":2,\"loss\":4.25}\n"); /* resumed from a checkpoint */
    assert_line(watch, "step 2/8 (25%)  loss 4.2500");
    write_run(fixture, "live", NULL, "{\"step\":1,\"loss\":6}\n"); /* started over */
    assert_line(watch, "step 1/8 (12%)  loss 6.0000");
    write_run(fixture, "live", SUMMARY("500", "1200", "false"), NULL);
    assert_ok(watch_look(watch, &news));
    assert_false(watch_over(watch)); /* its process may still write more */
    write_run(fixture, "live", "{\"steps\": 8, \"lo", NULL);
    close(lock);
    assert_line(watch, "dead: its process exited before the run finished; ");
    assert_ok(watch_block(watch, (TableLook){.width = 80}, &text));
    assert_has(text, "summary.json");
    free(text);
    write_run(fixture, "live", SUMMARY("500", "1200", "false"), NULL);
    assert_line(watch, "finished");
    assert_true(watch_over(watch));
    watch_free(watch);
    assert_fails(watch_new(&watch, fixture->dir), STATUS_USAGE, "contains no run");
}

/* A copy may have lost the times of the files. */
static void recognizes_copies(void **state) {
    const Fixture *fixture = *state;
    char dir[128], path[160];
    static const char *const metrics[] = {"{\"step\":6,\"loss\":5}\n", METRICS};
    static const WatchState expected[] = {WATCH_FINISHED, WATCH_LOST}; /* the second was resumed and killed */
    snprintf(dir, sizeof dir, "%s/copy", fixture->dir);
    for (int i = 0; i < 2; i++) {
        Watch *watch = NULL;
        write_run(fixture, "copy", SUMMARY("500", "1200", "false"), metrics[i]);
        snprintf(path, sizeof path, "%s/summary.json", dir);
        assert_int_equal(utimensat(AT_FDCWD, path, (struct timespec[2]){{1000, 0}, {1000, 0}}, 0), 0);
        snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
        assert_int_equal(utimensat(AT_FDCWD, path, (struct timespec[2]){{2000, 0}, {2000, 0}}, 0), 0);
        assert_ok(watch_new(&watch, dir));
        assert_int_equal(watch_state(watch), expected[i]);
        watch_free(watch);
    }
}

/* A run that is counted in epochs does not know its steps. */
static void shows_epochs(void **state) {
    const Fixture *fixture = *state;
    static const char config[] = "{\"model\": \"m\", \"epochs\": 2.5}";
    char dir[128], path[160], *text = NULL;
    Watch *watch = NULL;
    write_run(fixture, "epochs", NULL, "{\"step\":9,\"epoch\":2,\"loss\":6}\n");
    snprintf(dir, sizeof dir, "%s/epochs", fixture->dir);
    snprintf(path, sizeof path, "%s/config.json", dir);
    assert_ok(file_replace(path, config, sizeof config - 1));
    int lock = lock_run(fixture, "epochs");
    assert_ok(watch_new(&watch, dir));
    append(fixture, "epochs", "{\"step\":10,\"epoch\":2,\"loss\":5}\n");
    assert_line(watch, "step 10  epoch 2 of 3  loss 5.0000");
    assert_ok(watch_block(watch, (TableLook){.width = 80}, &text));
    assert_has(text, "10  epoch 2 of 3");
    free(text);
    close(lock);
    watch_free(watch);
}

int main(void) {
    const struct CMUnitTest tests[] = {TEST(fits_terminals), TEST(follows), TEST(recognizes_copies),
                                       TEST(shows_epochs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
