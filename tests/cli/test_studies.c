/* `weft study` through the program: the list, the question, all kinds of parts, a part that fails, one that
 * is stopped, and errors. */
#include <signal.h>
#include <sys/file.h>
#include <time.h>

#include "base/process.h"
#include "cli/comparison.h"

#define TINY                                                                                                 \
    "{\"model\": \"gpt2-tiny\", \"layers\": 1, \"hidden\": 16, \"heads\": 2, \"data\": [\"self\"], "         \
    "\"seq\": 32, \"steps\": 2, \"batch\": 4, \"micro-batch\": 2, \"eval-every\": 0, \"eval-batches\": 1, "  \
    "\"threads\": 1, \"study\": {\"claims\": [{\"text\": \"Both learn alike\", \"figure\": \"loss_last\", "  \
    "\"run\": \"two\", \"relation\": \"equal\", \"than\": \"one\"}]}, "                                      \
    "\"runs\": [{\"name\": \"one\"}, {\"name\": \"two\", \"micro-batch\": 4}]}"
#define JUDGED                                                                                               \
    "{\"study\": {\"compression\": [{\"text\": \"int8 writes nonsense\", \"of\": \"int8\", \"figure\": "     \
    "\"loss\", \"relation\": \"higher\", \"than\": \"fp32\", \"by\": 0.5}]}}"

/* Writes the recipe and a study with these parts, and returns the study's path. */
static const char *write_study(const Fixture *fixture, const char *parts) {
    static char path[80];
    char text[4096], judged[80];
    snprintf(judged, sizeof judged, "%s/int8.json", fixture->dir);
    assert_ok(file_replace(fixture->recipe, TINY, strlen(TINY)));
    assert_ok(file_replace(judged, JUDGED, strlen(JUDGED)));
    snprintf(path, sizeof path, "%s/mini.json", fixture->dir);
    int size = snprintf(text, sizeof text,
                        "{\"title\": \"A study of moments\", \"models\": \"tiny\", \"parts\": [%s], "
                        "\"scales\": {\"small\": {}}}",
                        parts);
    assert_true(size > 0 && (size_t)size < sizeof text);
    assert_ok(file_replace(path, text, (size_t)size));
    return path;
}

static const char *state_of(const json_t *study, size_t at) {
    return text_of(json_array_get(json_object_get(study, "parts"), at), "state");
}

#define LAYOUTS                                                                                              \
    "{\"name\": \"layouts\", \"title\": \"Layouts\", \"command\": \"compare\", \"recipe\": \"tiny.json\"}"
#define MODEL                                                                                                \
    "{\"name\": \"model\", \"title\": \"A model\", \"command\": \"train\", \"recipe\": \"tiny.json\"}"
#define WILD                                                                                                 \
    "{\"name\": \"wild\", \"title\": \"Too fast\", \"command\": \"train\", \"recipe\": \"tiny.json\", "      \
    "\"options\": [\"--lr\", \"1e38\"]}"
#define PRUNED                                                                                               \
    "{\"name\": \"pruned\", \"title\": \"Pruning\", \"command\": \"prune\", \"options\": [\"--model\", "     \
    "\"{out}/model\", \"--amount\", \"0.5\", \"--rounds\", \"1\", \"--data\", \"self\", "                    \
    "\"--steps-per-round\", \"1\", \"--seq\", \"16\", \"--batch\", \"2\", \"--eval-batches\", \"1\", "       \
    "\"--threads\", \"1\"]}"
#define INT8                                                                                                 \
    "{\"name\": \"int8\", \"title\": \"In int8\", \"command\": \"quantize\", \"recipe\": "                   \
    "\"int8.json\", \"options\": [\"--model\", "                                                             \
    "\"{out}/model\", \"--evaluate\", \"self\", \"--max-batches\", \"1\", \"--new-tokens\", \"4\", "         \
    "\"--prompt\", \"static\"]}"

/* Every kind of part has a section; the failed one is named, and the others run all the same. */
static void all_parts(void **state) {
    const Fixture *fixture = *state;
    const char *study = write_study(fixture, LAYOUTS ", " MODEL ", " WILD ", " PRUNED ", " INT8);
    Ran ran = program_run("study", study, "--out", fixture->out, "--json");
    assert_int_equal(ran.code, 1);
    assert_contains(ran.err, "mini: 5 parts on the ");
    assert_contains(ran.err, "[2/5] A model\n");
    assert_contains(ran.err, "weft: part 'wild' failed: step 2: training diverged");
    json_t *json = parsed(ran.out);
    static const char *const expected[] = {"finished", "finished", "failed", "finished", "finished"};
    for (size_t i = 0; i < 5; i++) assert_string_equal(state_of(json, i), expected[i]);
    json_decref(json);
    ran_done(&ran);
    char *page = read_in(fixture->out, "report.html");
    static const char *const parts[] = {
        "<h1>A study of moments</h1>",
        "4 of 5 parts of the study finished. “Too fast” failed: step 2",
        "Of 2 conclusions, 1 holds and 1 does not.",
        "<span class=\"badge holds\">holds</span>Both learn alike<small>Layouts: loss measured",
        "<span class=\"badge failed\">does not hold</span>int8 writes nonsense<small>In int8: loss",
        "<h2>Layouts: Results</h2>",
        "href=\"layouts/report.html\"",
        "<h2>A model: Results</h2>",
        "<th scope=\"row\">weights",
        "id=\"pruned-pruning-loss\"",
        "<span>fp32</span>static"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) assert_contains(page, parts[i]);
    free(page);
    assert_refused(2, "is a study, whose page is ", "report", fixture->out);
    /* What has ended stays so; with --retry, the failed part runs again. */
    ran = program_run("study", study, "--out", fixture->out);
    assert_int_equal(ran.code, 1);
    assert_contains(ran.err, "[1/5] Layouts: already finished\n");
    assert_contains(ran.err, "[3/5] Too fast: already failed\n");
    assert_contains(ran.out, "/report.html\n");
    assert_contains(ran.out, "\nOf 2 conclusions, 1 holds and 1 does not.\n");
    assert_contains(ran.out, "\n- int8 writes nonsense: does not hold (In int8: loss");
    ran_done(&ran);
    assert_ran(program_run("study", study, "--out", fixture->out, "--retry"), 1, err,
               "[3/5] Too fast (resuming)\n");
    write_study(fixture,
                LAYOUTS ", " MODEL ", {\"name\": \"wild\", \"title\": \"x\", \"command\": \"train\"}");
    assert_refused(2, "part 'wild'", "study", study, "--out", fixture->out, "--quiet");
}

/* What is said of checkpoints before the runs is about what they take: of models with the tokenizer's
 * vocabulary, not with the preset's. */
static void announces_checkpoints(void **state) {
    const Fixture *fixture = *state;
    char line[192], unit;
    double said = 0, bytes = 0;
    Ran ran = program_run("study", write_study(fixture, LAYOUTS ", " MODEL), "--out", fixture->out);
    assert_int_equal(ran.code, 0);
    assert_contains(ran.err, "; 3 runs of about 0:0");
    const char *with = strstr(ran.err, " in total, with ");
    assert_non_null(with);
    assert_int_equal(sscanf(with, " in total, with %lf %cB of checkpoints", &said, &unit), 2);
    said *= unit == 'k' ? 1e3 : unit == 'M' ? 1e6 : 1e9;
    snprintf(line, sizeof line,
             "find %s -path '*checkpoints*' -type f -printf '%%s\\n' | awk '{s += $1} END {print s}'",
             fixture->out);
    FILE *pipe = popen(line, "r");
    assert_non_null(pipe);
    assert_int_equal(fscanf(pipe, "%lf", &bytes), 1);
    pclose(pipe);
    if (!(bytes > said / 2 && bytes < said * 2)) fail_msg("%.0f bytes instead of %.0f", bytes, said);
    ran_done(&ran);
}

static void wait_for(const char *dir, const char *name) {
    char path[160];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    for (int i = 0; i < 6000 && !path_exists(path); i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    assert_true(path_exists(path));
}

/* Ctrl-C stops the part at a checkpoint; the next invocation resumes it and starts the others. */
static void stopped(void **state) {
    const Fixture *fixture = *state;
    const char *study = write_study(
        fixture,
        "{\"name\": \"long\", \"title\": \"Long\", \"command\": \"train\", \"recipe\": \"tiny.json\", "
        "\"options\": [\"--steps\", \"3000\", \"--log-every\", \"1\"]}, " MODEL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr) || !freopen("/dev/null", "w", stdout)) _exit(127);
        execl(WEFT_BINARY, WEFT_BINARY, "study", study, "--out", fixture->out, (char *)NULL);
        _exit(127);
    }
    wait_for(fixture->out, "long/metrics.jsonl");
    assert_int_equal(kill(child, SIGINT), 0);
    int code;
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_true(WIFEXITED(code));
    assert_int_equal(WEXITSTATUS(code), 75);
    char *text = read_in(fixture->out, "study.json");
    json_t *json = parsed(text);
    assert_string_equal(state_of(json, 0), "interrupted");
    assert_string_equal(state_of(json, 1), "waiting");
    json_decref(json);
    free(text);
    Ran ran = program_run("study", study, "--out", fixture->out);
    assert_int_equal(ran.code, 0);
    assert_contains(ran.err, "[1/2] Long (resuming)\n");
    assert_contains(ran.out, "A model  finished");
    ran_done(&ran);
}

static void copy_program(const char *path) {
    char line[256], next[112];
    snprintf(next, sizeof next, "%s.new", path);
    snprintf(line, sizeof line, "cp %s %s", WEFT_BINARY, next);
    assert_int_equal(system(line), 0);
    assert_int_equal(rename(next, path), 0);
}

/* A program that is updated during a study executes the remaining parts. */
static void updated(void **state) {
    const Fixture *fixture = *state;
    char program[96];
    const char *study = write_study(
        fixture,
        "{\"name\": \"long\", \"title\": \"Long\", \"command\": \"train\", \"recipe\": \"tiny.json\", "
        "\"options\": [\"--steps\", \"500\", \"--log-every\", \"1\"]}, " LAYOUTS);
    snprintf(program, sizeof program, "%s/program", fixture->dir);
    copy_program(program);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr) || !freopen("/dev/null", "w", stdout)) _exit(127);
        execl(program, program, "study", study, "--out", fixture->out, (char *)NULL);
        _exit(127);
    }
    wait_for(fixture->out, "long/metrics.jsonl");
    copy_program(program);
    int code;
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_true(WIFEXITED(code));
    assert_int_equal(WEXITSTATUS(code), 0);
}

#define SAVING                                                                                               \
    "{\"name\": \"layouts\", \"title\": \"Layouts\", \"command\": \"compare\", \"recipe\": \"tiny.json\", "  \
    "\"options\": [\"--\", \"--steps\", \"200\", \"--save-every\", \"20\", \"--eval-every\", \"100\", "      \
    "\"--log-every\", \"1\"]}, " MODEL

static size_t lines_in(const char *dir, const char *name) {
    char path[160], *text = NULL;
    size_t count = 0;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    CLEANUP(status_freep) Status status = file_read(path, 1 << 26, &text, NULL);
    for (const char *at = text; at && (at = strchr(at, '\n')); at++) count++;
    free(text);
    return count;
}

/* Keeps a run locked for a moment, as a killed process does while its memory is freed. */
static void hold_run(const char *dir) {
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int lock = open(dir, O_RDONLY | O_DIRECTORY);
        if (lock < 0 || flock(lock, LOCK_EX) != 0 || write(ready[1], "", 1) != 1) _exit(1);
        usleep(500000);
        _exit(0);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
}

/* Starts the study and kills it, or only its part, in the middle of the first run. */
static void kill_study(const char *study, const char *out, bool whole) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr) || !freopen("/dev/null", "w", stdout)) _exit(127);
        execl(WEFT_BINARY, WEFT_BINARY, "study", study, "--out", out, (char *)NULL);
        _exit(127);
    }
    for (int i = 0; i < 6000 && lines_in(out, "layouts/one/metrics.jsonl") < 50; i++) usleep(10000);
    pid_t part[8], train[8];
    assert_int_equal(children_of(child, part), 1);
    assert_int_equal(children_of(part[0], train), 1);
    if (whole) kill(child, SIGKILL);
    kill(part[0], SIGKILL);
    kill(train[0], SIGKILL);
    int code;
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_true(whole ? WIFSIGNALED(code) : WIFEXITED(code) && WEXITSTATUS(code) == 1);
    char run[160];
    snprintf(run, sizeof run, "%s/layouts/one", out);
    hold_run(run);
}

/* What a study's page and its runs say apart from times and what follows from them (a run that did not have
 * its cores to itself is no baseline): headings, and losses of every step. */
static char *contents(const char *out) {
    static const char *const runs[] = {"layouts/one", "layouts/two", "model"};
    char name[64], *text = NULL;
    size_t size;
    FILE *all = open_memstream(&text, &size);
    char *page = read_in(out, "report.html");
    for (const char *at = page; (at = strstr(at, "<h2")); at++)
        fprintf(all, "%.*s\n", (int)strcspn(at, "/"), at);
    const char *agree = strstr(page, "The losses of all runs agree");
    assert_non_null(agree);
    fprintf(all, "%.*s\n", (int)strcspn(agree, "("), agree);
    free(page);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        snprintf(name, sizeof name, "%s/metrics.jsonl", runs[i]);
        char *lines = read_in(out, name), *rest = lines;
        for (char *line; (line = strsep(&rest, "\n")) && *line;) {
            json_t *json = parsed(line);
            fprintf(all, "%s %g %.17g %.17g %.17g\n", runs[i], json_number_at(json, "step"),
                    json_number_at(json, "loss"), json_number_at(json, "grad_norm"),
                    json_number_at(json, "val_loss"));
            json_decref(json);
        }
        free(lines);
    }
    fclose(all);
    return text;
}

/* A study that was killed, or a part of it, and run again ends with the same page and losses. */
static void killed(void **state) {
    const Fixture *fixture = *state;
    const char *study = write_study(fixture, SAVING);
    char out[3][96];
    for (int i = 0; i < 3; i++) snprintf(out[i], sizeof out[i], "%s/%d", fixture->dir, i);
    assert_ran(program_run("study", study, "--out", out[0]), 0, out, "/report.html");
    char *expected = contents(out[0]);
    assert_non_null(strstr(expected, "layouts/two 200 "));
    kill_study(study, out[1], true);
    assert_ran(program_run("study", study, "--out", out[1]), 0, err, "[1/2] Layouts (resuming)\n");
    kill_study(study, out[2], false);
    assert_ran(program_run("study", study, "--out", out[2]), 1, out, "killed by signal 9 (Killed)");
    assert_ran(program_run("study", study, "--out", out[2], "--retry"), 0, err, "[1/2] Layouts (resuming)\n");
    for (int i = 1; i < 3; i++) {
        char *found = contents(out[i]);
        assert_string_equal(found, expected);
        free(found);
    }
    free(expected);
}

/* The studies of the source tree: listed, planned, and refused where something is missing. */
static void listed(void **state) {
    const Fixture *fixture = *state;
    static const char *const names[] = {"fsdp", "megatron", "squad", "wikitext"};
    assert_int_equal(setenv("WEFT_DATA", fixture->dir, 1), 0);
    Ran ran = program_run("study", "--scale", "small");
    assert_int_equal(ran.code, 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) assert_contains(ran.out, names[i]);
    assert_contains(ran.out, "fetches squad-v2 (46.5 MB), bert-base-uncased-tokenizer");
    ran_done(&ran);
    if (!freopen("/dev/null", "r", stdin)) fail();
    ran = program_run("study", "wikitext", "--scale", "small", "--out", fixture->out);
    assert_int_equal(ran.code, 2);
    assert_contains(ran.err,
                    "study 'wikitext' has to fetch wikitext-2-raw (4.72 MB), gpt2-tokenizer (1.50 MB)");
    assert_contains(ran.err, "add --yes to do so");
    ran_done(&ran);
    static const char *const unpacked[] = {"train", "valid", "test"};
    char path[160];
    for (size_t i = 0; i < sizeof unpacked / sizeof *unpacked; i++) {
        snprintf(path, sizeof path, "%s/wikitext-2-raw", fixture->dir);
        assert_ok(dir_make(path));
        snprintf(path, sizeof path, "%s/wikitext-2-raw/wiki.%s.raw", fixture->dir, unpacked[i]);
        assert_ok(file_replace(path, "some words\n", 11));
    }
    assert_ran(program_run("study", "wikitext", "--scale", "small", "--out", fixture->out), 2, err,
               "study 'wikitext' has to fetch gpt2-tokenizer (1.50 MB)");
    for (int i = 0; i < 2; i++) /* a study that could not fetch is repeated like any other */
        assert_ran(program_run("study", "wikitext", "--scale", "small", "--out", fixture->out, "--yes",
                               "--from", fixture->dir),
                   1, err, "fetching failed: ");
    assert_ok(dir_remove(fixture->out));
    static const char *const contents[] = {"DDP on two ranks shortens an epoch", "Model sizes: The study",
                                           "<h2>Replicas and pipelines: The study</h2>",
                                           "<h2>Quantization-aware training: Results</h2>"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        ran = program_run("study", names[i], "--simulate", "--out", fixture->out);
        assert_int_equal(ran.code, 0);
        if (i == 2) assert_contains(ran.err, "7 simulated");
        if (i == 0) assert_contains(ran.out, " left out ");
        ran_done(&ran);
        char *page = read_in(fixture->out, "report.html");
        assert_contains(page, contents[i]);
        if (i == 0) assert_contains(page, "2 of 4 parts of the study finished. 2 are left out.");
        if (i == 0) assert_contains(page, "Left out: only comparisons are simulated.");
        assert_null(strstr(page, "NVML")); /* nothing was measured */
        free(page);
        assert_ok(dir_remove(fixture->out));
    }
    assert_int_equal(unsetenv("WEFT_DATA"), 0);
}

static void refused(void **state) {
    const Fixture *fixture = *state;
    assert_refused(2, "'squat' is not a study; did you mean 'squad'? Studies: ", "study", "squat");
    assert_refused(2, "'nothing-like-it' is not a study; studies: ", "study", "nothing-like-it");
    const char *study = write_study(fixture, MODEL);
    assert_refused(2, "study 'mini' has no such scale; available: small", "study", study, "--scale", "tiny");
    assert_refused(2, "contains other files; choose another --out", "study", study, "--out", fixture->dir);
    assert_refused(2, "a study runs all of its parts", "study", study, "--run", "one");
    write_study(fixture, MODEL ", " MODEL);
    assert_refused(2, "two parts have the name 'model'", "study", study);
    write_study(fixture, "{\"name\": \"a b\", \"title\": \"A\", \"command\": \"train\"}");
    assert_refused(2, "a name consists of small letters", "study", study);
    write_study(fixture, "{\"name\": \"a\", \"title\": \"A\", \"command\": \"trian\"}");
    assert_refused(2, "part 'a': 'trian' is not a command; did you mean 'train'?", "study", study);
    write_study(fixture,
                "{\"name\": \"a\", \"title\": \"A\", \"command\": \"train\", \"recipe\": \"tiny.json\", "
                "\"options\": [\"--stepz\", \"1\"]}");
    assert_refused(2, "--stepz", "study", study);
    write_study(fixture, "{\"name\": \"a\", \"title\": \"A\", \"command\": \"train\", \"options\": [1]}");
    assert_refused(2, "options: expected a list of strings", "study", study);
}

int main(void) {
    const struct CMUnitTest tests[] = {TEST(all_parts), TEST(announces_checkpoints),
                                       TEST(stopped),   TEST(updated),
                                       TEST(killed),    TEST(listed),
                                       TEST(refused)};
    return cmocka_run_group_tests(tests, program_setup, NULL);
}
