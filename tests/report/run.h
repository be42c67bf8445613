/* Runs that tests of reports write, read and show. */
#ifndef WEFT_TESTS_REPORT_RUN_H
#define WEFT_TESTS_REPORT_RUN_H

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/fs.h"
#include "report/page.h"
#include "report/results.h"
#include "report/table.h"
#include "test.h"

typedef struct Fixture {
    char dir[40];
} Fixture;

static inline int fixture_setup(void **state) {
    Fixture *fixture = calloc(1, sizeof *fixture);
    if (!fixture) return -1;
    strcpy(fixture->dir, "/tmp/weft-report-XXXXXX");
    *state = fixture;
    return mkdtemp(fixture->dir) ? 0 : -1;
}

static inline int fixture_teardown(void **state) {
    Fixture *fixture = *state;
    assert_ok(dir_remove(fixture->dir));
    free(fixture);
    return 0;
}

/* Creates a run directory with these files; NULL leaves a file out. */
static inline void write_run(const Fixture *fixture, const char *name, const char *summary,
                             const char *metrics) {
    char dir[128], path[160];
    snprintf(dir, sizeof dir, "%s/%s", fixture->dir, name);
    assert_ok(dir_make(dir));
    snprintf(path, sizeof path, "%s/summary.json", dir);
    if (summary) assert_ok(file_replace(path, summary, strlen(summary)));
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    if (metrics) assert_ok(file_replace(path, metrics, strlen(metrics)));
}

#define SUMMARY(tokens, memory, interrupted)                                                                 \
    "{\"steps\": 6, \"loss_last\": 4.5, \"val_loss\": 4.25, \"runtime_s\": 8, \"tokens_per_s\": " tokens     \
    ", \"samples_per_s\": " tokens                                                                           \
    "e-1, \"utilization\": 0.5, \"mfu\": 0.25, \"bubble\": 0.125, \"params_total\": 1, "                     \
    "\"layout\": {\"batch\": 4}, \"interrupted\": " interrupted                                              \
    ", \"ranks\": [{\"rank\": 0, \"peak_bytes\": {\"params\": 600, \"total\": 900}, \"comm_bytes\": "        \
    "{\"total\": 70}, \"phases\": {\"compute_s\": 3, \"wait_pipeline_s\": 1}}, {\"rank\": 1, "               \
    "\"peak_bytes\": {\"params\": 600, \"total\": " memory "}, \"comm_bytes\": {\"total\": 30}}]}"
#define METRICS                                                                                              \
    "{\"step\":1,\"loss\":5.5,\"samples_per_s\":40,\"tokens_per_s\":400,\"step_ms\":100,\"elapsed_s\":1}\n"  \
    "{\"step\":1,\"val_loss\":5}\n"                                                                          \
    "{\"step\":2,\"loss\":4.5,\"samples_per_s\":60,\"tokens_per_s\":600,\"step_ms\":66.6666666666667,"       \
    "\"elapsed_s\":1.5}\n{\"step\":2,\"val_loss\":4.25,\"eval_ms\":250}\n"

/* A line of metrics that stands for 10 steps of a two-stage pipeline. */
#define SAMPLED(step, elapsed)                                                                               \
    "{\"step\":" step                                                                                        \
    ",\"loss\":5,\"samples_per_s\":40,\"tokens_per_s\":400,\"step_ms\":100,\"elapsed_s\":" elapsed           \
    ",\"utilization\":0.5,\"mfu\":0.25,\"phases_ms\":{\"compute\":60,\"comm\":0,\"bubble\":20,"              \
    "\"optimizer\":10,\"data\":5,\"other\":5},\"ranks\":{\"utilization\":[0.25,0.75],\"compute_ms\":[50,70]" \
    ","                                                                                                      \
    "\"bubble_ms\":[30,10],\"optimizer_ms\":[10,10]},\"sent_bytes\":70,\"noise_scale\":12,"                  \
    "\"checkpoint_ms\":500,\"peak_bytes\":{\"params\":600,\"total\":900}}\n"

/* Enough steps for an interval, which is zero. */
#define EVEN_STEP(step)                                                                                      \
    "{\"step\":" step ",\"loss\":4.5,\"samples_per_s\":60,\"tokens_per_s\":600,\"step_ms\":100,"             \
    "\"elapsed_s\":" step "}\n"
#define EVEN EVEN_STEP("1") EVEN_STEP("2") EVEN_STEP("3") EVEN_STEP("4") EVEN_STEP("5") EVEN_STEP("6")

static inline void add(Results *results, const Fixture *fixture, const char *name) {
    char dir[128];
    Run *run;
    snprintf(dir, sizeof dir, "%s/%s", fixture->dir, name);
    assert_ok(results_add(results, name, dir, &run));
    assert_ok(run_look(run));
}

/* Locks the directory as a running process does. */
static inline int lock_run(const Fixture *fixture, const char *name) {
    char dir[128];
    snprintf(dir, sizeof dir, "%s/%s", fixture->dir, name);
    int lock = open(dir, O_RDONLY | O_DIRECTORY);
    assert_true(lock >= 0);
    assert_int_equal(flock(lock, LOCK_EX), 0);
    return lock;
}

#define assert_has(text, part)                                                                               \
    do {                                                                                                     \
        if (!strstr(text, part)) fail_msg("expected '%s' in:\n%s", part, text);                              \
    } while (0)

/* Tags are closed in order; quotes and entities are complete. */
static inline void assert_balanced(const char *html) {
    char open[64][16];
    size_t depth = 0;
    for (const char *at = html; (at = strchr(at, '<')); at++) {
        if (at[1] == '!' || at[1] == '?') continue;
        if (!strncmp(at, "<script>", 8)) {
            at = strstr(at, "</script>");
            assert_non_null(at);
            continue;
        }
        bool closes = at[1] == '/';
        const char *name = at + 1 + closes, *end = at;
        for (bool quoted = false; *end && (quoted || *end != '>'); end++)
            if (*end == '"') quoted = !quoted;
        assert_true(*end == '>');
        size_t length = strcspn(name, " \t\n/>");
        assert_true(length > 0 && length < sizeof *open);
        if (closes) {
            assert_true(depth > 0);
            depth--;
            if (strncmp(open[depth], name, length) || open[depth][length])
                fail_msg("<%s> closed by </%.*s>", open[depth], (int)length, name);
        } else if (end[-1] != '/' && strncmp(name, "meta", 4)) {
            assert_true(depth < 64);
            snprintf(open[depth++], sizeof *open, "%.*s", (int)length, name);
        }
    }
    assert_int_equal(depth, 0);
}

/* The page is self-contained, apart from the names of XML namespaces. */
static inline void assert_self_contained(const char *html) {
    static const char *const links[] = {"src=",    " href=\"h", "url(h", "url(\"",  "url(/",
                                        "@import", "<script ",  "<link", "<iframe", "fetch("};
    for (size_t i = 0; i < sizeof links / sizeof *links; i++)
        if (strstr(html, links[i])) fail_msg("the page contains %s", links[i]);
    for (const char *at = html; (at = strstr(at, "://")); at++)
        assert_int_equal(strncmp(at, "://www.w3.org/", 14), 0);
}

static inline double figure(const Run *run, const char *key) {
    for (size_t f = 0; f < FIGURES; f++)
        if (!strcmp(figures[f].key, key)) return run_figure(run, f);
    fail_msg("unknown figure %s", key);
    return 0;
}

static inline char *page_of(const Fixture *fixture, const Results *results) {
    char path[64], *html = NULL;
    size_t size;
    snprintf(path, sizeof path, "%s/page.html", fixture->dir);
    assert_ok(page_write(results, path));
    assert_ok(file_read(path, 1 << 24, &html, &size));
    assert_balanced(html);
    assert_self_contained(html);
    return html;
}

/* A test with a directory of its own. */
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

#endif
