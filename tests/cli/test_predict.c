/* Predictions and embeddings: values of transformers, rows in order in every layout, metrics of weft eval
 * recomputed from its rows, files of all kinds, and what is refused. */
#include <math.h>

#include "corpus.h"

#include "cli/option.h"

#define CASES WEFT_TEST_DIR "/golden/cases/"
enum { VOCAB = 96 };

static int setup(void **state) {
    return corpus_setup(state) || setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1) ||
           setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1) ||
           setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
}

/* ---- rows ---- */

/* The rows of JSON lines. */
static json_t *rows_of(const char *text) {
    json_t *rows = json_array();
    for (const char *line = text; *line;) {
        size_t size = strcspn(line, "\n");
        json_t *row = json_loadb(line, size, 0, NULL);
        assert_non_null(row);
        json_array_append_new(rows, row);
        line += size + (line[size] == '\n');
    }
    return rows;
}

static char *slurp(const char *path) {
    char *text = NULL;
    size_t size;
    assert_ok(file_read(path, 1 << 24, &text, &size));
    return text;
}

static json_t *rows_in(const char *path) {
    CLEANUP(mem_freep) char *text = slurp(path);
    return rows_of(text);
}

static json_t *rows_from(Ran ran) {
    if (ran.code) fail_msg("exit code %d: %s", ran.code, ran.err);
    json_t *rows = rows_of(ran.out);
    ran_done(&ran);
    return rows;
}

static json_t *result_of(Ran ran) {
    if (ran.code) fail_msg("exit code %d: %s", ran.code, ran.err);
    json_t *json = json_of(&ran);
    ran_done(&ran);
    return json;
}

#define rows_of_run(...)   rows_from(program_run(__VA_ARGS__))
#define result_of_run(...) result_of(program_run(__VA_ARGS__, "--json"))

static double number(const json_t *json, const char *key) {
    const json_t *value = json_object_get(json, key);
    if (!json_is_number(value)) fail_msg("key '%s' is missing or not a number", key);
    return json_number_value(value);
}

static void assert_close(double found, double expected, double limit) {
    if (!(fabs(found - expected) <= limit)) fail_msg("%.9g instead of %.9g", found, expected);
}

static void assert_same_file(const char *path, const char *other) {
    CLEANUP(mem_freep) char *text = NULL;
    CLEANUP(mem_freep) char *expected = NULL;
    size_t size, expected_size;
    assert_ok(file_read(path, 1 << 24, &text, &size));
    assert_ok(file_read(other, 1 << 24, &expected, &expected_size));
    assert_int_equal(size, expected_size);
    assert_memory_equal(text, expected, size);
}

/* ---- transformers ---- */

/* A golden case, for encoders with a vocabulary that has [MASK]. */
static const char *put_case(const char *name, bool encoder) {
    char line[512], path[96];
    snprintf(line, sizeof line, "cp -r '" CASES "%s' %s", name, name);
    assert_runs(shell(line));
    if (!encoder) return at(name);
    snprintf(path, sizeof path, "%s/vocab.txt", name);
    FILE *file = fopen(at(path), "w");
    assert_non_null(file);
    fputs("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n", file);
    for (int i = 5; i < VOCAB; i++) fprintf(file, "w%d\n", i);
    assert_int_equal(fclose(file), 0);
    return at(name);
}

static void put_lines(const char *name, const json_t *rows) {
    FILE *file = fopen(at(name), "w");
    assert_non_null(file);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        CLEANUP(mem_freep) char *line = json_dumps(json_array_get(rows, i), 0);
        fprintf(file, "%s\n", line);
    }
    assert_int_equal(fclose(file), 0);
}

static void check_top(const json_t *found, const json_t *expected, bool spelled) {
    assert_int_equal(json_array_size(found), json_array_size(expected));
    for (size_t i = 0; i < json_array_size(expected); i++) {
        const json_t *token = json_array_get(found, i), *pair = json_array_get(expected, i);
        char name[16];
        json_int_t id = json_integer_value(json_array_get(pair, 0));
        snprintf(name, sizeof name, "w%lld", (long long)id);
        assert_int_equal(json_int_at(token, "id"), id);
        assert_close(number(token, "probability"), json_number_value(json_array_get(pair, 1)), 1e-5);
        if (spelled) assert_string_equal(json_string_at(token, "token"), name);
    }
}

static void check_by_label(const json_t *found, const json_t *expected) {
    const char *label;
    json_t *value;
    size_t at = 0;
    json_object_foreach((json_t *)(uintptr_t)found, label, value)
        assert_close(json_number_value(value), json_number_value(json_array_get(expected, at++)), 1e-5);
    assert_int_equal(at, json_array_size(expected));
}

static void check_prediction(const char *name, const json_t *row, const json_t *expected) {
    const json_t *mask = json_array_get(json_object_get(row, "masks"), 0);
    if (!strcmp(name, "bert-pretrain")) {
        assert_int_equal(json_array_size(json_object_get(row, "masks")), 1);
        assert_int_equal(json_int_at(mask, "position"), json_int_at(expected, "position"));
        check_top(json_object_get(mask, "tokens"), json_object_get(expected, "top"), true);
        assert_close(number(row, "next_sentence"), number(expected, "next_sentence"), 1e-5);
    } else if (!strcmp(name, "bert-span")) {
        assert_int_equal(json_int_at(row, "start"), json_integer_value(json_array_get(expected, 0)));
        assert_int_equal(json_int_at(row, "end"), json_integer_value(json_array_get(expected, 1)));
        assert_close(number(row, "probability"), json_number_value(json_array_get(expected, 2)), 1e-5);
    } else if (!strcmp(name, "bert-regression-3")) {
        check_by_label(json_object_get(row, "values"), expected);
    } else if (json_is_array(expected)) {
        check_by_label(json_object_get(row, "probabilities"), expected);
    } else {
        assert_close(number(row, "nll"), number(expected, "nll"), 1e-5 * number(expected, "nll"));
        check_top(json_object_get(row, "next"), json_object_get(expected, "top"), false);
    }
}

static void check_embeddings(const json_t *rows, const json_t *expected) {
    assert_int_equal(json_array_size(rows), json_array_size(expected));
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *found = json_object_get(json_array_get(rows, i), "embedding"),
                     *vector = json_array_get(expected, i);
        assert_int_equal(json_array_size(found), json_array_size(vector));
        for (size_t c = 0; c < json_array_size(vector); c++)
            assert_close(json_number_value(json_array_get(found, c)),
                         json_number_value(json_array_get(vector, c)), 1e-5);
    }
}

static void check_pools(const char *model, const char *lines, const json_t *expected) {
    static const char *const pools[] = {"mean", "first", "last"};
    for (int i = 0; i < 3; i++) {
        CLEANUP(json_decrefp) json_t *rows = rows_of_run("embed", model, lines, "--pool", pools[i]);
        check_embeddings(rows, json_object_get(expected, pools[i]));
    }
    CLEANUP(json_decrefp) json_t *rows = rows_of_run("embed", model, lines, "--normalize");
    check_embeddings(rows, json_object_get(expected, "normalized"));
}

static void values_are_those_of_transformers(void **state) {
    CLEANUP(json_decrefp) json_t *golden = NULL;
    assert_ok(json_read_file(CASES "predictions.json", &golden));
    put_lines("encoder.jsonl", json_object_get(golden, "encoder"));
    put_lines("decoder.jsonl", json_object_get(golden, "decoder"));
    const char *name;
    json_t *expected;
    json_object_foreach(json_object_get(golden, "cases"), name, expected) {
        bool encoder = !strncmp(name, "bert", 4);
        const char *model = put_case(name, encoder), *lines = at(encoder ? "encoder.jsonl" : "decoder.jsonl");
        check_pools(model, lines, json_object_get(expected, "embed"));
        const json_t *predictions = json_object_get(expected, "predict");
        if (!predictions) continue;
        CLEANUP(json_decrefp) json_t *rows = rows_of_run("predict", model, lines, "--top-k", "3");
        assert_int_equal(json_array_size(rows), json_array_size(predictions));
        for (size_t i = 0; i < json_array_size(rows); i++) {
            char id[32];
            snprintf(id, sizeof id, "row%zu", i);
            assert_string_equal(json_string_at(json_array_get(rows, i), "id"), id);
            check_prediction(name, json_array_get(rows, i), json_array_get(predictions, i));
        }
    }
}

/* ---- small models ---- */

#define SHAPE   "--layers", "2", "--hidden", "32", "--heads", "2", "--seq", "32"
#define TRAINED "--val-fraction", "0", "--steps", "20", "--batch", "4", "--threads", "1", "--quiet"

/* Sentences of one to nine words, as rows with labels, without, and as lines. */
static void put_rows(void) {
    static const char *const words[] = {"the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog"};
    FILE *labeled = fopen(at("labeled.csv"), "w"), *rows = fopen(at("rows.csv"), "w");
    FILE *lines = fopen(at("lines.txt"), "w"), *json = fopen(at("rows.jsonl"), "w");
    fputs("text,kind,size,key\n", labeled);
    fputs("text\n", rows);
    for (int i = 0; i < 23; i++) {
        char text[128] = "";
        int count = 1 + i * 5 % 9;
        for (int k = 0; k < count; k++)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", k ? " " : "",
                     words[(i * 7 + k * k) % 9]);
        fprintf(labeled, "%s,%s,%g,k%d\n", text, count > 4 ? "long" : "\"short, or so\"", count / 2.0, i);
        fprintf(rows, "%s\n", text);
        fprintf(lines, "%s\n", text);
        fprintf(json, "{\"key\": %d, \"text\": \"%s\"}\n", i, text);
    }
    fclose(labeled);
    fclose(rows);
    fclose(lines);
    fclose(json);
}

static void train_classifier(const char *out, const char *field) {
    assert_runs(program_run("train", "--task", "classify", "--model", "bert-tiny", SHAPE, "--tokenizer",
                            at("words"), "--data", at("labeled.csv"), "--label-field", field, "--out", out,
                            "--lr", "3e-3", TRAINED));
}

static int setup_models(void **state) {
    if (setup(state)) return -1;
    put_wordpiece("words");
    put_rows();
    train_classifier(at("kinds"), "kind");
    train_classifier(at("sizes"), "size");
    assert_runs(program_run("train", "--model", "bert-tiny", SHAPE, "--tokenizer", at("words"), "--data",
                            at("lines.txt"), "--out", at("masks"), TRAINED));
    assert_runs(program_run("train", "--model", "gpt2-tiny", SHAPE, "--data", at("lines.txt"), "--out",
                            at("next"), TRAINED));
    return 0;
}

static double softmax_of(const json_t *row) {
    return number(json_object_get(row, "probabilities"), json_string_at(row, "target"));
}

static void labels_follow_the_rows(void **state) {
    CLEANUP(json_decrefp)
    json_t *found = result_of_run("eval", at("kinds"), at("labeled.csv"), "--label-field", "kind", "--out",
                                  at("kinds.jsonl"), "--quiet");
    CLEANUP(json_decrefp) json_t *rows = rows_in(at("kinds.jsonl"));
    CLEANUP(json_decrefp)
    json_t *given = rows_of_run("predict", at("kinds"), at("rows.jsonl"), "--id-field", "key");
    CLEANUP(json_decrefp)
    json_t *lines = rows_of_run("predict", at("kinds"), at("lines.txt"), "--batch", "5");
    assert_int_equal(json_array_size(rows), 23);
    double hits = 0, loss = 0;
    for (size_t i = 0; i < 23; i++) {
        const json_t *row = json_array_get(rows, i), *other = json_array_get(given, i),
                     *line = json_array_get(lines, i);
        hits += !strcmp(json_string_at(row, "label"), json_string_at(row, "target"));
        loss -= log(softmax_of(row));
        assert_int_equal(json_int_at(row, "row"), i + 1);
        assert_int_equal(json_int_at(line, "row"), i + 1);
        assert_int_equal(json_int_at(other, "key"), 0);
        assert_int_equal(json_int_at(other, "id"), i);
        assert_string_equal(json_string_at(other, "label"), json_string_at(row, "label"));
        const char *label;
        json_t *value;
        json_object_foreach(json_object_get(row, "probabilities"), label, value) {
            assert_close(number(json_object_get(other, "probabilities"), label), json_number_value(value),
                         1e-6);
            assert_close(number(json_object_get(line, "probabilities"), label), json_number_value(value),
                         1e-6);
        }
    }
    assert_close(hits / 23, number(found, "accuracy"), 1e-12);
    assert_close(loss / 23, number(found, "loss"), 1e-6);
}

static void values_give_the_error_of_eval(void **state) {
    CLEANUP(json_decrefp)
    json_t *found = result_of_run("eval", at("sizes"), at("labeled.csv"), "--label-field", "size", "--out",
                                  at("sizes.jsonl"), "--quiet");
    CLEANUP(json_decrefp) json_t *rows = rows_in(at("sizes.jsonl"));
    CLEANUP(json_decrefp) json_t *given = rows_of_run("predict", at("sizes"), at("rows.csv"));
    double sum = 0;
    for (size_t i = 0; i < 23; i++) {
        const json_t *row = json_array_get(rows, i);
        double apart = number(row, "value") - number(row, "target");
        sum += apart * apart;
        assert_close(number(json_array_get(given, i), "value"), number(row, "value"), 1e-5);
    }
    assert_close(sum / 23, number(found, "mse"), 1e-6 * sum);
}

/* A mean over all masks, and over all pairs. */
static void masks_give_the_loss_of_eval(void **state) {
    CLEANUP(json_decrefp)
    json_t *found =
        result_of_run("eval", at("masks"), at("lines.txt"), "--out", at("masks.jsonl"), "--quiet");
    CLEANUP(json_decrefp) json_t *rows = rows_in(at("masks.jsonl"));
    const json_t *parts = json_object_get(found, "parts"), *token = json_object_get(parts, "token"),
                 *pair = json_object_get(parts, "next_sentence");
    double loss = 0, pairs = 0, hits = 0, followed = 0;
    int64_t masks = 0, count = (int64_t)json_array_size(rows);
    for (int64_t i = 0; i < count; i++) {
        const json_t *row = json_array_get(rows, (size_t)i), *list = json_object_get(row, "masks"), *mask;
        size_t at;
        json_array_foreach(list, at, mask) {
            const json_t *best = json_array_get(json_object_get(mask, "tokens"), 0);
            loss -= log(number(mask, "target_probability"));
            hits += json_int_at(best, "id") == json_int_at(mask, "target_id");
            if (json_int_at(best, "id") == json_int_at(mask, "target_id"))
                assert_string_equal(json_string_at(best, "token"), json_string_at(mask, "target"));
            masks++;
        }
        double follows = number(row, "next_sentence");
        bool does = json_is_true(json_object_get(row, "next_sentence_target"));
        pairs -= log(does ? follows : 1 - follows);
        followed += (follows >= 0.5) == does;
    }
    assert_int_equal(masks, json_int_at(token, "count"));
    assert_int_equal(count, json_int_at(pair, "count"));
    assert_close(loss / (double)masks, number(token, "loss"), 1e-5);
    assert_close(hits / (double)masks, number(token, "accuracy"), 1e-12);
    assert_close(pairs / (double)count, number(pair, "loss"), 1e-5);
    assert_close(followed / (double)count, number(pair, "accuracy"), 1e-12);
}

static void masks_are_filled(void **state) {
    put_text("masks.txt", "the [MASK] fox [MASK]\nno mask\n\n");
    CLEANUP(json_decrefp) json_t *rows = rows_of_run("predict", at("masks"), at("masks.txt"), "--top-k", "2");
    assert_int_equal(json_array_size(rows), 3);
    const json_t *list = json_object_get(json_array_get(rows, 0), "masks");
    assert_int_equal(json_array_size(list), 2);
    assert_int_equal(json_int_at(json_array_get(list, 0), "position"), 2);
    assert_int_equal(json_int_at(json_array_get(list, 1), "position"), 4);
    assert_int_equal(json_array_size(json_object_get(json_array_get(list, 1), "tokens")), 2);
    assert_null(json_object_get(json_array_get(rows, 0), "next_sentence"));
    assert_int_equal(json_array_size(json_object_get(json_array_get(rows, 1), "masks")), 0);
    assert_int_equal(json_array_size(json_object_get(json_array_get(rows, 2), "masks")), 0);
    put_text("pairs.jsonl", "{\"text\": \"the fox\", \"pair\": \"a dog\"}\n");
    CLEANUP(json_decrefp)
    json_t *pairs = rows_of_run("predict", at("masks"), at("pairs.jsonl"), "--pair-field", "pair");
    double follows = number(json_array_get(pairs, 0), "next_sentence");
    assert_true(follows > 0 && follows < 1);
}

/* The windows of a text, with and without overlap, and its lines. */
static void texts_give_the_loss_of_eval(void **state) {
    static const char *const strides[] = {"32", "7"};
    for (int k = 0; k < 2; k++) {
        CLEANUP(json_decrefp)
        json_t *found = result_of_run("eval", at("next"), at("lines.txt"), "--stride", strides[k], "--out",
                                      at("next.jsonl"), "--quiet");
        CLEANUP(json_decrefp) json_t *rows = rows_in(at("next.jsonl"));
        double nll = 0, hits = 0;
        int64_t tokens = 0;
        for (size_t i = 0; i < json_array_size(rows); i++) {
            const json_t *row = json_array_get(rows, i);
            int64_t own = json_int_at(row, "tokens");
            tokens += own;
            nll += number(row, "nll");
            hits += number(row, "accuracy") * (double)own;
        }
        assert_int_equal(json_array_size(rows), json_int_at(found, "examples"));
        assert_int_equal(tokens, json_int_at(found, "tokens"));
        assert_close(nll, number(found, "nll"), 1e-6 * nll);
        assert_close(hits / (double)tokens, number(found, "accuracy"), 1e-9);
    }
    put_text("short.txt", "a\nthe fox\n");
    CLEANUP(json_decrefp) json_t *rows = rows_of_run("predict", at("next"), at("short.txt"), "--top-k", "1");
    assert_int_equal(json_int_at(json_array_get(rows, 0), "tokens"), 0);
    assert_true(json_is_null(json_object_get(json_array_get(rows, 0), "loss")));
    assert_int_equal(json_int_at(json_array_get(rows, 1), "tokens"), 6);
    assert_int_equal(json_array_size(json_object_get(json_array_get(rows, 1), "next")), 1);
}

/* ---- layouts ---- */

/* The same bytes, because every rank computes the batches that a single one would. */
static void ranks_write_the_same_files(void **state) {
    static const struct {
        const char *command, *model, *rows, *out, *same;
    } files[] = {{"predict", "kinds", "rows.csv", "1.jsonl", "n.jsonl"},
                 {"predict", "kinds", "rows.csv", "1.csv", "n.csv"},
                 {"predict", "next", "lines.txt", "1.ndjson", "n.ndjson"},
                 {"embed", "masks", "lines.txt", "1.npy", "n.npy"}};
    static const char *const layouts[][3] = {{"2", "--zero", "3"}, {"4", "--zero", "0"}, {"2", "--pp", "2"}};
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        const char *model = at(files[i].model), *rows = at(files[i].rows), *out = at(files[i].out);
        assert_runs(
            program_run(files[i].command, model, rows, "--out", out, "--batch", "3", "--threads", "1"));
        for (size_t k = 0; k < COUNT_OF(layouts); k++) {
            assert_runs(program_run(files[i].command, model, rows, "--out", at(files[i].same), "--batch", "3",
                                    "--threads", "1", "--ranks", layouts[k][0], layouts[k][1],
                                    layouts[k][2]));
            assert_same_file(at(files[i].same), out);
        }
    }
}

static void assert_near(const json_t *found, const json_t *expected) {
    const char *key;
    json_t *value;
    size_t at;
    assert_int_equal(json_typeof(found), json_typeof(expected));
    json_object_foreach((json_t *)(uintptr_t)expected, key, value)
        assert_near(json_object_get(found, key), value);
    json_array_foreach((json_t *)(uintptr_t)expected, at, value)
        assert_near(json_array_get(found, at), value);
    if (json_is_real(expected)) assert_close(json_real_value(found), json_real_value(expected), 2e-5);
    if (!json_is_object(expected) && !json_is_array(expected) && !json_is_real(expected))
        assert_true(json_equal(found, expected));
}

/* Other sums, so other last digits. */
static void split_models_predict_the_same(void **state) {
    static const char *const layouts[][2] = {
        {"--tp", "2"}, {"--cp", "2"}, {"--batch", "1"}, {"--batch", "23"}};
    static const char *const models[] = {"kinds", "next", "masks"};
    for (size_t i = 0; i < COUNT_OF(models); i++) {
        const char *rows = at(i == 2 ? "masks.txt" : "lines.txt");
        CLEANUP(json_decrefp)
        json_t *expected = rows_of_run("predict", at(models[i]), rows, "--threads", "1");
        CLEANUP(json_decrefp) json_t *vectors = rows_of_run("embed", at(models[i]), at("lines.txt"));
        for (size_t k = 0; k < COUNT_OF(layouts); k++) {
            CLEANUP(json_decrefp)
            json_t *found =
                rows_of_run("predict", at(models[i]), rows, "--threads", "1", layouts[k][0], layouts[k][1]);
            CLEANUP(json_decrefp)
            json_t *other =
                rows_of_run("embed", at(models[i]), at("lines.txt"), layouts[k][0], layouts[k][1]);
            assert_near(found, expected);
            assert_near(other, vectors);
        }
    }
}

static void quantized_models_predict(void **state) {
    assert_runs(program_run("quantize", "--model", at("kinds"), "--out", at("kinds8"), "--int8-embedding"));
    CLEANUP(json_decrefp) json_t *expected = rows_of_run("predict", at("kinds"), at("rows.csv"));
    CLEANUP(json_decrefp) json_t *found = rows_of_run("predict", at("kinds8"), at("rows.csv"));
    CLEANUP(json_decrefp) json_t *vectors = rows_of_run("embed", at("kinds8"), at("rows.csv"));
    assert_int_equal(json_array_size(vectors), 23);
    for (size_t i = 0; i < 23; i++)
        assert_close(number(json_object_get(json_array_get(found, i), "probabilities"), "long"),
                     number(json_object_get(json_array_get(expected, i), "probabilities"), "long"), 0.02);
}

/* ---- files ---- */

static void files_have_their_formats(void **state) {
    CLEANUP(json_decrefp)
    json_t *result = result_of_run("predict", at("kinds"), at("rows.jsonl"), "--id-field", "key", "--out",
                                   at("kinds.csv"));
    assert_int_equal(json_int_at(result, "rows"), 23);
    assert_string_equal(json_string_at(result, "task"), "classify");
    CLEANUP(mem_freep) char *csv = slurp(at("kinds.csv"));
    static const char header[] = "id,label,probabilities.long,\"probabilities.short, or so\"\n0,";
    assert_int_equal(strncmp(csv, header, sizeof header - 1), 0);
    assert_contains(csv, "\n22,");
    assert_contains(csv, ",\"short, or so\",0.");
    assert_runs(program_run("predict", at("next"), at("short.txt"), "--top-k", "1", "--out", at("next.csv")));
    CLEANUP(mem_freep) char *next = slurp(at("next.csv"));
    assert_contains(next, "row,tokens,nll,loss,accuracy,next\n1,0,0.0,,,\"[{\"\"token\"\": ");
    CLEANUP(mem_freep) char *npy = NULL;
    size_t size;
    CLEANUP(json_decrefp)
    json_t *made = result_of_run("embed", at("kinds"), at("rows.csv"), "--out", at("vectors.npy"));
    assert_int_equal(json_int_at(made, "width"), 32);
    assert_ok(file_read(at("vectors.npy"), 1 << 20, &npy, &size));
    assert_int_equal(size, 128 + 23 * 32 * sizeof(float));
    assert_memory_equal(npy, "\x93NUMPY\1\0\x76\0", 10);
    assert_contains(npy + 10, "{'descr': '<f4', 'fortran_order': False, 'shape': (23, 32), }");
    assert_int_equal(npy[127], '\n');
    CLEANUP(json_decrefp) json_t *vectors = rows_of_run("embed", at("kinds"), at("rows.csv"));
    for (size_t i = 0; i < 23 * 32; i++) {
        float value;
        memcpy(&value, npy + 128 + i * sizeof value, sizeof value);
        const json_t *vector = json_object_get(json_array_get(vectors, i / 32), "embedding");
        assert_true((float)json_number_value(json_array_get(vector, i % 32)) == value);
    }
}

static void long_rows_are_truncated(void **state) {
    Ran ran = program_run("predict", at("kinds"), at("lines.txt"), "--seq", "6");
    assert_int_equal(ran.code, 0);
    assert_contains(ran.err, "rows do not fit in a sequence and were truncated");
    CLEANUP(json_decrefp) json_t *rows = rows_of(ran.out);
    assert_int_equal(json_array_size(rows), 23);
    ran_done(&ran);
}

/* ---- answers ---- */

static void put_questions(void) {
    FILE *rows = fopen(at("questions.jsonl"), "w"), *squad = fopen(at("squad.json"), "w");
    fputs("{\"data\": [{\"paragraphs\": [", squad);
    for (int i = 0; i < 4; i++) {
        char context[256] = "";
        for (int k = 0; k < 12 + 9 * i; k++)
            snprintf(context + strlen(context), sizeof context - strlen(context), "%sw%d", k ? " " : "",
                     5 + (i * 31 + k * k * 7) % 90);
        fprintf(rows, "{\"id\": \"q%d\", \"question\": \"w%d w9\", \"context\": \"%s\"}\n", i, 20 + i,
                context);
        fprintf(squad, "%s{\"context\": \"%s\", \"qas\": [{\"id\": \"q%d\", \"question\": \"w%d w9\"%s}]}",
                i ? ", " : "", context, i, 20 + i,
                i ? ", \"answers\": [{\"text\": \"w5\"}]" : ", \"answers\": [], \"is_impossible\": true");
    }
    fputs("]}]}\n", squad);
    fclose(rows);
    fclose(squad);
}

static const json_t *answer_to(json_t **ret_json, const json_t *row, int i) {
    char question[16], name[16];
    snprintf(question, sizeof question, "w%d w9", 20 + i);
    snprintf(name, sizeof name, "context%d", i);
    put_text(name, json_string_at(row, "context"));
    *ret_json =
        result_of_run("answer", at("bert-span"), at(name), question, "--seq", "24", "--doc-stride", "8");
    return json_array_get(json_object_get(*ret_json, "answers"), 0);
}

/* As weft answer finds them, in windows over contexts that are longer than a sequence. */
static void questions_are_answered(void **state) {
    put_questions();
    put_case("bert-span", true);
    CLEANUP(json_decrefp) json_t *questions = rows_in(at("questions.jsonl"));
    CLEANUP(json_decrefp)
    json_t *rows =
        rows_of_run("predict", at("bert-span"), at("questions.jsonl"), "--seq", "24", "--doc-stride", "8");
    CLEANUP(json_decrefp)
    json_t *same = rows_of_run("predict", at("bert-span"), at("squad.json"), "--seq", "24", "--doc-stride",
                               "8", "--ranks", "2", "--batch", "2");
    CLEANUP(json_decrefp)
    json_t *scored = result_of_run("eval", "--task", "squad", at("bert-span"), at("squad.json"), "--seq",
                                   "24", "--doc-stride", "8", "--out", at("squad.jsonl"));
    CLEANUP(json_decrefp) json_t *evaluated = rows_in(at("squad.jsonl"));
    assert_int_equal(json_array_size(rows), 4);
    assert_int_equal(json_int_at(scored, "total"), 4);
    for (int i = 0; i < 4; i++) {
        CLEANUP(json_decrefp) json_t *json = NULL;
        const json_t *row = json_array_get(rows, (size_t)i),
                     *answer = answer_to(&json, json_array_get(questions, (size_t)i), i),
                     *other = json_array_get(evaluated, (size_t)i);
        static const char *const keys[] = {"answer", "start", "end", "no_answer_probability"};
        assert_near(json_array_get(same, (size_t)i), row);
        for (int k = 0; k < 4; k++) {
            assert_near(json_object_get(other, keys[k]), json_object_get(row, keys[k]));
            /* Candidates may lie in the padding, of which weft answer has none after a short context. */
            if (i || k < 3) assert_near(json_object_get(answer, keys[k]), json_object_get(row, keys[k]));
        }
        assert_int_equal(json_array_size(json_object_get(other, "targets")), i > 0);
        if (!json_is_string(json_object_get(row, "answer"))) continue;
        const char *context = json_string_at(json_array_get(questions, (size_t)i), "context");
        size_t size = strlen(json_string_at(row, "answer"));
        assert_int_equal(strncmp(context + json_int_at(row, "start"), json_string_at(row, "answer"), size),
                         0);
        assert_int_equal(json_int_at(row, "end") - json_int_at(row, "start"), size);
    }
    /* A row without an id, and a context without tokens. */
    put_text("mixed.jsonl", "{\"question\": \"w20\", \"context\": \"\"}\n"
                            "{\"id\": 7, \"question\": \"w21\", \"context\": \"w9\"}\n");
    assert_runs(program_run("predict", at("bert-span"), at("mixed.jsonl"), "--out", at("mixed.answers.csv")));
    CLEANUP(mem_freep) char *mixed = slurp(at("mixed.answers.csv"));
    assert_contains(mixed, "id,answer,start,end,probability,no_answer_probability\n,,,,1.0,1.0\n7,");
    CLEANUP(json_decrefp)
    json_t *always = rows_of_run("predict", at("bert-span"), at("questions.jsonl"), "--always");
    for (size_t i = 0; i < 4; i++) {
        assert_true(json_is_string(json_object_get(json_array_get(always, i), "answer")));
        assert_null(json_object_get(json_array_get(always, i), "no_answer_probability"));
    }
}

/* ---- what is refused ---- */

static void refuses_invalid_requests(void **state) {
    char model[96], rows[96]; /* at() forgets */
    snprintf(model, sizeof model, "%s", at("kinds"));
    snprintf(rows, sizeof rows, "%s", at("rows.csv"));
    put_text("empty.txt", "");
    put_text("blank.txt", "a\n\nb\n");
    put_text("latin.txt", "caf\xe9\n");
    put_text("other.csv", "review\nfine\n");
    put_text("numbers.u16", "abcd");
    assert_refused(2, "out.txt: expected a file that ends in .jsonl or .csv", "predict", model, rows, "--out",
                   at("out.txt"));
    assert_refused(2, "out.npy: expected a file that ends in .jsonl or .csv", "predict", model, rows, "--out",
                   at("out.npy"));
    assert_refused(2, "out.csv: expected a file that ends in .jsonl or .npy", "embed", model, rows, "--out",
                   at("out.csv"));
    assert_refused(2, "out: expected a file that ends in .jsonl or .csv", "eval", model, at("labeled.csv"),
                   "--label-field", "kind", "--out", at("out"), "--quiet");
    assert_refused(2, "kinds has no head for --task mlm; it has classify", "predict", model, rows, "--task",
                   "mlm");
    assert_refused(2, "bert-bare has no output head, so it predicts nothing; 'weft embed' gives its",
                   "predict", CASES "bert-bare", rows);
    assert_refused(2, "not a checkpoint directory; predictions need trained weights", "embed", "bert-tiny",
                   rows);
    assert_refused(1, "empty.txt is empty; expected data", "predict", model, at("empty.txt"));
    assert_refused(1, "blank.txt: line 2: the text has no tokens", "predict", at("next"), at("blank.txt"));
    assert_refused(1, "latin.txt: line 1: byte 0xe9 is not valid UTF-8", "predict", model, at("latin.txt"));
    assert_refused(1,
                   "other.csv: line 1: no field \"text\"; found: review; choose the field with --text-field",
                   "predict", model, at("other.csv"));
    assert_refused(1, "rows.csv: line 1: no field \"name\"; found: text; choose the field with --id-field",
                   "embed", model, rows, "--id-field", "name");
    assert_refused(2, "numbers.u16 is read as u16, but predictions are made for rows", "predict", model,
                   at("numbers.u16"));
    assert_refused(2, "squad.json is read as squad, but predictions are made for rows", "predict", model,
                   at("squad.json"));
    assert_refused(2, "no row has the mask token", "predict", at("masks"), at("lines.txt"));
    assert_refused(1, "absent.csv: cannot open: No such file", "predict", model, at("absent.csv"));
    Ran ran = program_run("predict", model, rows, "--json");
    assert_int_equal(ran.code, 2);
    assert_contains(ran.err, "pass --out FILE for the rows");
    ran_done(&ran);
    assert_false(path_exists(at("out.txt")) || path_exists(at("out.npy")) || path_exists(at("out.csv")));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_those_of_transformers),
        cmocka_unit_test(labels_follow_the_rows),
        cmocka_unit_test(values_give_the_error_of_eval),
        cmocka_unit_test(masks_give_the_loss_of_eval),
        cmocka_unit_test(masks_are_filled),
        cmocka_unit_test(texts_give_the_loss_of_eval),
        cmocka_unit_test(ranks_write_the_same_files),
        cmocka_unit_test(split_models_predict_the_same),
        cmocka_unit_test(quantized_models_predict),
        cmocka_unit_test(files_have_their_formats),
        cmocka_unit_test(long_rows_are_truncated),
        cmocka_unit_test(questions_are_answered),
        cmocka_unit_test(refuses_invalid_requests),
    };
    return cmocka_run_group_tests(tests, setup_models, corpus_teardown);
}
