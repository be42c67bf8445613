/* results.json contains everything about a comparison: settings, figures and differences of every run. An
 * interrupted comparison resumes from it or, if it is lost, from the run directories. Entries for runs that
 * the current comparison does not include are preserved under "others". results.csv contains only the table,
 * epochs.csv one line per epoch and run. */
#include <math.h>
#include <string.h>

#include "base/fs.h"
#include "base/memory.h"
#include "report/results.h"
#include "report/spread.h"
#include "report/study.h"
#include "report/text.h"
#include "tokenizer/tokenizer.h"

/* JSON requires valid UTF-8, which paths and error texts need not be. */
static json_t *text_or_null(const char *text) {
    CLEANUP(mem_freep) char *clean = NULL;
    size_t size;
    CLEANUP(status_freep) Status status = text ? text_to_utf8(text, strlen(text), &clean, &size) : OK;
    return clean && !status ? json_string(clean) : json_null();
}

static json_t *object_or_null(json_t *object) {
    return object ? json_incref(object) : json_null();
}

static json_t *epochs_json(const Run *run) {
    json_t *list = json_array();
    for (size_t e = 0; e < run->epoch_count; e++) {
        const RunEpoch *epoch = &run->epochs[e];
        json_t *entry = json_pack("{s:I, s:I}", "epoch", (json_int_t)epoch->number, "step",
                                  isfinite(epoch->step) ? (json_int_t)epoch->step : 0);
        for (size_t c = 0; c < EPOCH_COLUMNS; c++)
            if (isfinite(epoch_value(epoch, c)))
                json_object_set_new(entry, epoch_columns[c].key, json_real(epoch_value(epoch, c)));
        json_array_append_new(list, entry);
    }
    return list;
}

/* Differences from the published figures, in percent. */
static json_t *from_published(const Run *run) {
    json_t *differences = json_object();
    FigureSource own = run_predicted(run) ? SOURCE_PREDICTED : SOURCE_MEASURED;
    for (size_t f = 0; f < FIGURES; f++) {
        double difference = run_from_published(run, own, f);
        if (isfinite(difference)) json_object_set_new(differences, figures[f].key, json_real(difference));
    }
    return differences;
}

/* Directory, state and summary of each repeat after the first. */
static json_t *repeats_json(const Run *run) {
    json_t *list = json_array();
    for (size_t i = 0; i < run->repeat_count; i++) {
        const Run *repeat = &run->repeats[i];
        json_array_append_new(list,
                              json_pack("{s:o, s:s, s:o, s:o}", "dir", text_or_null(repeat->dir), "state",
                                        run_state_name(repeat->state), "error", text_or_null(repeat->error),
                                        "summary", object_or_null(repeat->summary.json)));
    }
    return list;
}

/* How reliable the figures are: spread, contention, ties with the baseline, and differences from it that have
 * no interval. */
static void add_trust(const Results *results, const Run *run, json_t *json) {
    json_t *spread = json_object(), *ties = json_array(), *unsettled = json_array();
    const Run *base = run_base(results, run);
    for (size_t f = 0; f < FIGURES; f++) {
        if (isfinite(run_spread(run, f)))
            json_object_set_new(spread, figures[f].key, json_real(run_spread(run, f)));
        if (!isfinite(run_difference(results, run, f)) || !figure_is_timed(f)) continue;
        if (figures_tie(run, base, f))
            json_array_append_new(ties, json_string(figures[f].key));
        else if (!figures_settled(run, base, f))
            json_array_append_new(unsettled, json_string(figures[f].key));
    }
    json_object_set_new(json, "spread", spread);
    json_object_set_new(json, "tied_with_baseline", ties);
    json_object_set_new(json, "without_interval", unsettled);
    json_object_set_new(json, "contended", json_boolean(run_contended(run)));
    json_object_set_new(json, "load_unknown", json_integer((json_int_t)run_load_unknown(run)));
    json_object_set_new(json, "repeats", repeats_json(run));
}

static json_t *run_json(const Results *results, const Run *run) {
    json_t *values = json_object(), *differences = json_object();
    for (size_t f = 0; f < FIGURES; f++) {
        json_object_set_new(values, figures[f].key, json_finite(run_figure(run, f)));
        double difference = run_difference(results, run, f);
        if (isfinite(difference)) json_object_set_new(differences, figures[f].key, json_real(difference));
    }
    json_object_set_new(values, "noise_scale_error", json_finite(run->summary.noise_scale_error));
    json_t *json = json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "name", run->name, "state",
                             run_state_name(run->state), "dir", text_or_null(run->dir), "error",
                             text_or_null(run->error), "figures", values, "difference_percent", differences,
                             "epochs", epochs_json(run), "options", object_or_null(run->options), "settings",
                             object_or_null(run->settings), "summary", object_or_null(run->summary.json));
    add_trust(results, run, json);
    if (run->published) json_object_set(json, "published", run->published);
    if (run->published && !results->resized)
        json_object_set_new(json, "difference_from_published_percent", from_published(run));
    if (run->prediction.json) json_object_set(json, "prediction", run->prediction.json);
    if (run->samples > 0) json_object_set_new(json, "samples_per_epoch", json_real(run->samples));
    return json;
}

static Status add_study(const Results *results, json_t *json) {
    CLEANUP(json_decrefp) json_t *findings = NULL;
    if (!results->study) return OK;
    TRY(findings_json(results, &findings));
    TRY(json_put(json, "study", json_incref(results->study)));
    TRY(json_put(json, "findings", json_incref(findings)));
    return json_put(json, "resized", json_boolean(results->resized));
}

Status results_json(const Results *results, json_t **ret_json) {
    CLEANUP(json_decrefp) json_t *runs = json_array(), *json = NULL;
    results_foreach(results, run) json_array_append_new(runs, run_json(results, run));
    json = json_pack("{s:s, s:o, s:o, s:o, s:O, s:o}", "title", results->title, "about",
                     text_or_null(results->about), "scale", text_or_null(results->scale), "baseline",
                     results->count ? json_string(results_base(results)->name) : json_null(), "runs", runs,
                     "command", text_or_null(results->command));
    if (!json || json_array_size(runs) != results->count)
        return FAILED("out of memory while collecting the results");
    if (results->price > 0) TRY(json_put(json, "price_per_hour", json_real(results->price)));
    if (results->power > 0) TRY(json_put(json, "power_watts", json_real(results->power)));
    TRY(add_study(results, json));
    if (json_array_size(results->others)) TRY(json_put(json, "others", json_incref(results->others)));
    return MOVE(ret_json, json);
}

/* ---- results.csv ---- */

static void put_number(FILE *out, const char *format, double value) {
    fputc(',', out);
    if (isfinite(value)) fprintf(out, format, value);
}

/* For figures that the study reported: its value, ours from each source, and their differences from it. */
static void put_published(FILE *out, const Results *results, const Run *run) {
    for (size_t f = 0; f < FIGURES; f++) {
        if (!figure_is_published(results, f)) continue;
        put_number(out, "%.10g", run_source_figure(run, SOURCE_PUBLISHED, f));
        for (FigureSource source = SOURCE_PREDICTED; source < SOURCES; source++) {
            if (source == SOURCE_WEFT) continue;
            put_number(out, "%.10g", run_source_figure(run, source, f));
            put_number(out, "%.4f", run_from_published(run, source, f));
        }
    }
}

static void put_published_head(FILE *out, const Results *results) {
    for (size_t f = 0; f < FIGURES; f++) {
        const char *key = figures[f].key;
        if (figure_is_published(results, f))
            fprintf(out,
                    ",%s_published,%s_predicted,%s_predicted_vs_published_percent,%s_measured,"
                    "%s_measured_vs_published_percent",
                    key, key, key, key, key);
    }
}

void results_csv(FILE *out, const Results *results) {
    fputs("run,state,predicted", out);
    for (size_t f = 0; f < FIGURES; f++) {
        fprintf(out, ",%s,%s_percent", figures[f].key, figures[f].key);
        if (figure_is_timed(f)) fprintf(out, ",%s_spread", figures[f].key);
    }
    fputs(",repeats,contention", out);
    put_published_head(out, results);
    fputs(",error\n", out);
    results_foreach(results, run) {
        put_csv(out, run->name);
        fprintf(out, ",%s,", run_state_name(run->state));
        if (run_predicted(run)) put_csv(out, run_predicted(run));
        for (size_t f = 0; f < FIGURES; f++) {
            put_number(out, "%.10g", run_figure(run, f));
            put_number(out, "%.4f", run_difference(results, run, f));
            if (figure_is_timed(f)) put_number(out, "%.6g", run_spread(run, f));
        }
        put_number(out, "%.0f", (double)run_counted(run));
        put_number(out, "%.4f", run_contention(run));
        put_published(out, results, run);
        fputc(',', out);
        if (run->error) put_csv(out, run->error);
        fputc('\n', out);
    }
}

static void put_epochs(FILE *out, const Results *results) {
    fputs("run,epoch,step", out);
    for (size_t c = 0; c < EPOCH_COLUMNS; c++) fprintf(out, ",%s", epoch_columns[c].key);
    fputc('\n', out);
    results_foreach(results, run) {
        for (size_t e = 0; e < run->epoch_count; e++) {
            put_csv(out, run->name);
            fprintf(out, ",%.0f,%.0f", run->epochs[e].number, run->epochs[e].step);
            for (size_t c = 0; c < EPOCH_COLUMNS; c++)
                put_number(out, "%.10g", epoch_value(&run->epochs[e], c));
            fputc('\n', out);
        }
    }
}

static Status write_csv(const Results *results, void (*put)(FILE *, const Results *), const char *dir,
                        const char *name) {
    CLEANUP(text_done) Text text = {0};
    CLEANUP(mem_freep) char *csv = NULL, *path = NULL;
    size_t size;
    TRY(path_join(&path, dir, name));
    TRY(text_open(&text));
    put(text.out, results);
    TRY(text_take(&text, &csv, &size));
    return file_replace(path, csv, size);
}

Status results_write(const Results *results, const char *dir) {
    CLEANUP(mem_freep) char *path = NULL;
    CLEANUP(json_decrefp) json_t *json = NULL;
    TRY(path_join(&path, dir, "results.json"));
    TRY(results_json(results, &json));
    TRY(json_write_file(path, json));
    TRY(write_csv(results, results_csv, dir, "results.csv"));
    return results_have_epochs(results, 0) ? write_csv(results, put_epochs, dir, "epochs.csv") : OK;
}

/* ---- reading results.json ---- */

static Status read_file(const char *dir, json_t **ret_json, char **ret_path) {
    CLEANUP(mem_freep) char *path = NULL;
    CLEANUP(json_decrefp) json_t *json = NULL;
    TRY(path_join(&path, dir, "results.json"));
    if (path_exists(path)) TRY(json_read_file(path, &json));
    if (json && !json_is_array(json_object_get(json, "runs")))
        return FAILED("%s: expected a JSON object with a 'runs' array", path);
    *ret_json = json;
    *ret_path = path;
    json = NULL;
    path = NULL;
    return OK;
}

static Status recall_repeats(Run *run, const json_t *list);

static Status recall_run(Run *run, const json_t *entry) {
    const char *state = json_string_at(entry, "state");
    const char *error = json_string_at(entry, "error");
    run->known = true;
    TRY(recall_repeats(run, json_object_get(entry, "repeats")));
    if (!state || strcmp(state, run_state_name(RUN_FAILED))) return OK;
    run->state = RUN_FAILED;
    return error ? str_dup(error, &run->error) : OK;
}

/* Repeats of earlier invocations count, even if fewer are asked for now. */
static Status recall_repeats(Run *run, const json_t *list) {
    enum { MAX_REPEATS = 1000 };
    const json_t *entry;
    size_t i;
    json_array_foreach(list, i, entry) {
        if (i >= run->repeat_count && i < MAX_REPEATS) TRY(run_add_repeat(run));
        if (i >= run->repeat_count) break;
        json_t *summary = json_object_get(entry, "summary");
        if (json_is_object(summary)) run_summary_replace(&run->repeats[i].summary, json_incref(summary));
        TRY(recall_run(&run->repeats[i], entry));
    }
    return OK;
}

static bool is_among(const char *key, const char *const *names) {
    for (; *names; names++)
        if (!strcmp(key, *names)) return true;
    return false;
}

/* Whether train may have derived a value in config.json that is absent from the settings. Without ranks and
 * dp there is one replica. */
static bool may_be_derived(const char *key, const json_t *value, const json_t *settings) {
    static const char *const derived[] = {"ranks", "dp", "threads", NULL};
    bool unset = !json_object_get(settings, "ranks") && !json_object_get(settings, "dp");
    if (!strcmp(key, "dp") && unset) return json_integer_value(value) == 1;
    return is_among(key, derived);
}

/* The format tokens was called shards in earlier versions. */
static bool same_value(const char *key, const json_t *value, const json_t *old) {
    const char *text = json_string_value(value), *old_text = json_string_value(old);
    if (json_equal(value, old)) return true;
    return !strcmp(key, "format") && text && old_text && !strcmp(text, "tokens") &&
           !strcmp(old_text, "shards");
}

/* The first setting that differs between `settings` and `before`; NULL if the run is the same. Options of a
 * single start, such as resume, are ignored. `own`: `before` is a config.json, in which train has resolved
 * defaults. */
static const char *changed(const json_t *settings, const json_t *before, bool own) {
    static const char *const ignored[] = {"out",         "resume", "resume-from", "trace",
                                          "trace-steps", "quiet",  NULL};
    static const char *const either[] = {"steps", "epochs", NULL}; /* train writes one of them */
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)settings, key, value) {
        const json_t *old = json_object_get(before, key);
        if (is_among(key, ignored) || (own && !old && is_among(key, either))) continue;
        if (!old || !same_value(key, value, old)) return key;
    }
    json_object_foreach((json_t *)(uintptr_t)before, key, value) {
        if (json_object_get(settings, key) || is_among(key, ignored)) continue;
        if (!own || !may_be_derived(key, value, settings)) return key;
    }
    return NULL;
}

Status run_recognize(Run *run) {
    CLEANUP(mem_freep) char *path = NULL;
    CLEANUP(json_decrefp) json_t *config = NULL;
    TRY(path_join(&path, run->dir, "config.json"));
    CLEANUP(status_freep) Status unread = json_read_file(path, &config);
    if (unread || !json_is_object(config))
        return USAGE("%s: not a run directory (config.json is missing or unreadable); choose another {out}",
                     run->dir);
    const char *key = changed(run->settings, config, true);
    if (key)
        return USAGE("%s: contains a run with different options (%s); choose another {out}", run->dir, key);
    run->known = true;
    return OK;
}

static const char *last_part(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Preserves the entry of a run that is not part of this comparison, unless its directory is reused. */
static Status keep_other(Results *results, json_t *entry) {
    const char *dir = json_string_at(entry, "dir");
    for (size_t i = 0; dir && i < results->count; i++)
        if (!strcmp(last_part(dir), last_part(results->runs[i].dir))) return OK;
    if (!dir) return OK;
    if (!results->others) results->others = json_array();
    return json_array_append(results->others, entry) ? FAILED("out of memory") : OK;
}

static Status recall_entry(Results *results, const char *path, json_t *entry) {
    const char *name = json_string_at(entry, "name");
    if (!name) return OK;
    for (size_t i = 0; i < results->count; i++) {
        Run *run = &results->runs[i];
        if (strcmp(name, run->name)) continue;
        const char *key = changed(run->settings, json_object_get(entry, "settings"), false);
        if (key)
            return USAGE("%s: run '%s' was started with different options (%s); choose another {out}", path,
                         name, key);
        return recall_run(run, entry);
    }
    return keep_other(results, entry);
}

Status results_recall(Results *results, const char *dir, char **ret_damage) {
    CLEANUP(mem_freep) char *path = NULL;
    CLEANUP(json_decrefp) json_t *json = NULL;
    json_t *entry;
    size_t at;
    *ret_damage = NULL;
    CLEANUP(status_freep) Status damaged = read_file(dir, &json, &path);
    if (damaged) return str_dup(status_message(damaged), ret_damage);
    json_array_foreach(json_object_get(json, "runs"), at, entry) TRY(recall_entry(results, path, entry));
    json_array_foreach(json_object_get(json, "others"), at, entry) TRY(recall_entry(results, path, entry));
    return OK;
}

static Status copy_text(const json_t *object, const char *key, char **ret_text) {
    const char *text = json_string_at(object, key);
    return text && !*ret_text ? str_dup(text, ret_text) : OK;
}

/* Damaged figures of a study are ignored. */
static Status read_published(Run *run, const json_t *entry) {
    json_t *published = json_object_get(entry, "published"),
           *prediction = json_object_get(entry, "prediction");
    CLEANUP(status_freep) Status damaged = published_check(published, "results.json");
    if (!damaged && json_is_object(published)) TRY(published_settle(published, &run->published));
    if (json_is_object(prediction)) run_summary_replace(&run->prediction, json_incref(prediction));
    run->samples = json_number_at(entry, "samples_per_epoch");
    return OK;
}

static void read_study(Results *results, const json_t *json) {
    json_t *study = json_object_get(json, "study");
    CLEANUP(status_freep) Status damaged = study_check(study, "results.json");
    if (damaged || !json_is_object(study) || results->study) return;
    results->study = json_incref(study);
    results->resized = json_is_true(json_object_get(json, "resized"));
}

/* Prefers the directory next to results.json, in case the comparison was moved. */
static Status read_run(Results *results, const char *dir, const json_t *entry) {
    const char *name = json_string_at(entry, "name");
    const char *was = json_string_at(entry, "dir");
    if (!name || !was) return OK;
    CLEANUP(mem_freep) char *moved = NULL;
    TRY(path_join(&moved, dir, last_part(was)));
    Run *run;
    TRY(results_add(results, name, path_is_dir(moved) ? moved : was, &run));
    run->options = json_incref(json_object_get(entry, "options"));
    TRY(recall_run(run, entry));
    json_t *summary = json_object_get(entry, "summary");
    if (json_is_object(summary)) run_summary_replace(&run->summary, json_incref(summary));
    TRY(read_published(run, entry));
    return run_look(run);
}

Status results_read(Results *results, const char *dir) {
    CLEANUP(mem_freep) char *path = NULL;
    CLEANUP(json_decrefp) json_t *json = NULL;
    TRY(read_file(dir, &json, &path));
    if (!json) return FAILED("%s: not found", path);
    TRY(copy_text(json, "title", &results->title));
    TRY(copy_text(json, "about", &results->about));
    TRY(copy_text(json, "scale", &results->scale));
    TRY(copy_text(json, "command", &results->command));
    double price = json_number_at(json, "price_per_hour");
    if (!(results->price > 0) && price > 0 && price < 1e12) results->price = price;
    double power = json_number_at(json, "power_watts");
    if (!(results->power > 0) && power > 0 && power < 1e12) results->power = power;
    read_study(results, json);
    const json_t *entry;
    size_t at;
    json_array_foreach(json_object_get(json, "runs"), at, entry) TRY(read_run(results, dir, entry));
    return OK;
}
