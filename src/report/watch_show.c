/* Formats the state of a followed run: a block of lines with sparklines for a terminal, or one line for a
 * log. */
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "base/format.h"
#include "base/memory.h"
#include "base/terminal.h"
#include "report/results.h"
#include "report/watch_internal.h"

enum { LABEL = 8, BAR = 28, SPARK = 40, LINE_SIZE = 1024, TEXT_SIZE = 256 };

#define BOLD  "\033[1m"
#define FAINT "\033[2m"
#define GREEN "\033[32m"
#define BLUE  "\033[34m"

/* A line under construction. put() truncates it at the terminal's width and replaces control characters;
 * mark() adds escape sequences, which occupy no columns. */
typedef struct Line {
    char text[LINE_SIZE];
    size_t used;
    int columns;
    TableLook look;
} Line;

static void mark(Line *line, const char *escape) {
    size_t length = strlen(escape);
    if (!line->look.color || line->used + length + 8 >= sizeof line->text) return;
    memcpy(line->text + line->used, escape, length);
    line->used += length;
}

static void put(Line *line, const char *fmt, ...) PRINTF_LIKE(2, 3);

static void put(Line *line, const char *fmt, ...) {
    char text[TEXT_SIZE];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    terminal_clean(text);
    for (const char *at = text; *at; at++) {
        bool starts = ((unsigned char)*at & 0xC0) != 0x80;
        if (starts && line->columns >= line->look.width - 1) return;
        if (line->used + 16 >= sizeof line->text) return;
        line->columns += starts;
        line->text[line->used++] = *at;
    }
}

static void begin(Line *line, const char *label) {
    line->used = 0;
    line->columns = 0;
    mark(line, FAINT);
    put(line, "%-*s", LABEL, label);
    mark(line, "\033[0m");
}

static void end(Line *line, FILE *out) {
    fprintf(out, "%.*s\n", (int)line->used, line->text);
}

/* ---- bars and sparklines ---- */

/* `tail`: columns to leave free for the text that follows. */
static void put_bar(Line *line, double share, int tail) {
    int space = line->look.width - 1 - line->columns - tail, length = space < BAR ? space : BAR;
    int full = (int)lround(fmin(fmax(share, 0), 1) * length);
    mark(line, GREEN);
    for (int i = 0; i < full; i++) put(line, "%s", line->look.utf8 ? "█" : "#");
    mark(line, "\033[0m" FAINT);
    for (int i = full; i < length; i++) put(line, "%s", line->look.utf8 ? "░" : ".");
    mark(line, "\033[0m");
}

/* The mean of the values in [from, to). */
static double mean_of(const Curve *curve, size_t from, size_t to) {
    double sum = 0;
    for (size_t i = from; i < to; i++) sum += curve->value[i];
    return sum / (double)(to - from);
}

static void put_spark(Line *line, const Curve *curve, int tail) {
    int space = line->look.width - 1 - line->columns - tail;
    static const char *const bars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char *const plain[] = {"_", ".", ",", "-", "=", "+", "*", "#"};
    size_t columns = curve->count < SPARK ? curve->count : SPARK;
    if (columns > (size_t)(space > 0 ? space : 0)) columns = space > 0 ? (size_t)space : 0;
    double low = INFINITY, high = -INFINITY;
    if (columns < 2) return;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t c = 0; c < columns; c++) {
            double value = mean_of(curve, c * curve->count / columns, (c + 1) * curve->count / columns);
            low = fmin(low, value);
            high = fmax(high, value);
            if (pass == 0) continue;
            int level = high > low ? (int)(7.999 * (value - low) / (high - low)) : 0;
            put(line, "%s", line->look.utf8 ? bars[level] : plain[level]);
        }
    }
}

/* ---- the lines ---- */

static const char *state_text(WatchState state) {
    static const char *const texts[] = {"starting", "running", "finished", "interrupted, with a checkpoint",
                                        "dead: its process exited before the run finished"};
    return texts[state];
}

static double last_of(const Curve *curve) {
    return curve->count ? curve->value[curve->count - 1] : NAN;
}

static double step_of(const Watch *watch) {
    return watch->loss.count ? watch->loss.step[watch->loss.count - 1] : 0;
}

/* For a run that is counted in epochs: the newest step's, and of how many. */
static void put_epoch(const Watch *watch, Line *line) {
    const json_t *epoch = json_object_get(watch->last, "epoch"),
                 *of = json_object_get(watch->config, "epochs");
    if (json_is_integer(epoch) && json_is_number(of))
        put(line, "  epoch %lld of %.0f", (long long)json_integer_value(epoch), ceil(json_number_value(of)));
}

static void put_title(const Watch *watch, Line *line, FILE *out) {
    line->used = 0;
    line->columns = 0;
    mark(line, BOLD);
    put(line, "%.120s", watch->name);
    mark(line, "\033[0m");
    const char *model = json_string_at(watch->config, "model");
    put(line, "  %.60s%s%s", model ? model : "", model ? ", " : "", state_text(watch->state));
    end(line, out);
}

static void put_progress(const Watch *watch, Line *line, FILE *out) {
    char left[FORMAT_SIZE], tail[TEXT_SIZE] = "";
    double steps = watch_steps(watch), step = step_of(watch);
    if (steps > 0) snprintf(tail, sizeof tail, "  %.0f%%", floor(100 * step / steps));
    if (!watch_over(watch) && isfinite(watch_left(watch))) {
        size_t used = strlen(tail);
        snprintf(tail + used, sizeof tail - used, "  %s left", format_duration(left, watch_left(watch)));
    }
    begin(line, "step");
    put(line, "%.0f", step);
    if (steps > 0) {
        put(line, " of %.0f  ", steps);
        put_bar(line, step / steps, (int)strlen(tail));
    }
    put_epoch(watch, line);
    put(line, "%s", tail);
    end(line, out);
}

/* A label, the newest value, a sparkline of the curve, and a remark. */
static void put_curve(Line *line, const char *label, const char *number, const Curve *curve, const char *tail,
                      FILE *out) {
    begin(line, label);
    mark(line, BOLD);
    put(line, "%-9s", number);
    mark(line, "\033[0m" BLUE);
    put_spark(line, curve, (int)strlen(tail));
    mark(line, "\033[0m");
    put(line, "%s", tail);
    end(line, out);
}

static void put_losses(const Watch *watch, Line *line, FILE *out) {
    char number[FORMAT_SIZE], tail[TEXT_SIZE];
    if (!watch->loss.count) return;
    snprintf(number, sizeof number, "%.4f", last_of(&watch->loss));
    snprintf(tail, sizeof tail, "  lowest %.4f", watch->lowest);
    put_curve(line, "loss", number, &watch->loss, tail, out);
    if (!watch->val_loss.count) return;
    snprintf(number, sizeof number, "%.4f", last_of(&watch->val_loss));
    snprintf(tail, sizeof tail, "  at step %.0f", watch->val_loss.step[watch->val_loss.count - 1]);
    put_curve(line, "val.", number, &watch->val_loss, tail, out);
}

static void put_speed(const Watch *watch, Line *line, FILE *out) {
    char rate[FORMAT_SIZE], tail[TEXT_SIZE];
    if (!watch->rate.count) return;
    const json_t *mfu = json_object_get(watch->last, "mfu"),
                 *busy = json_object_get(watch->last, "utilization");
    size_t used = (size_t)snprintf(tail, sizeof tail, "  tokens/s, %.4g ms/step", last_of(&watch->step_ms));
    if (json_is_number(busy))
        used +=
            (size_t)snprintf(tail + used, sizeof tail - used, ", %.0f%% busy", 100 * json_number_value(busy));
    if (json_is_number(mfu))
        snprintf(tail + used, sizeof tail - used, ", MFU %.0f%%", 100 * json_number_value(mfu));
    put_curve(line, "speed", format_count(rate, last_of(&watch->rate)), &watch->rate, tail, out);
}

/* The share of each phase in the last step, with the names from the metrics. */
static void put_phases(const Watch *watch, Line *line, FILE *out) {
    json_t *phases = json_object_get(watch->last, "phases_ms"), *ms;
    const char *name, *comma = "";
    double total = 0;
    json_object_foreach(phases, name, ms) total += json_number_value(ms);
    if (!(total > 0)) return;
    begin(line, "time");
    json_object_foreach(phases, name, ms) {
        double share = json_number_value(ms) / total;
        if (!(share >= 0.005)) continue;
        put(line, "%s%.20s %.0f%%", comma, name, 100 * share);
        comma = ", ";
    }
    end(line, out);
}

static void put_memory(const Watch *watch, Line *line, FILE *out) {
    char bytes[FORMAT_SIZE];
    double memory = watch_memory(watch);
    if (!isfinite(memory)) return;
    begin(line, "memory");
    put(line, "peak %s per rank", format_bytes(bytes, memory));
    end(line, out);
}

static void put_noise(const Watch *watch, Line *line, FILE *out) {
    char text[FORMAT_SIZE];
    const json_t *scale = json_object_get(watch->last, "noise_scale");
    const json_t *error = json_object_get(watch->last, "noise_scale_error");
    if (!json_is_number(scale)) return;
    begin(line, "noise");
    put(line, "gradient noise scale %s samples",
        noise_text(text, json_number_value(scale), json_is_number(error) ? json_number_value(error) : NAN,
                   line->look.utf8));
    end(line, out);
}

/* A sentence, wrapped at word boundaries; nothing if it is NULL. */
static void put_wrapped(Line *line, const char *sentence, FILE *out) {
    if (!sentence) return;
    begin(line, "");
    for (size_t length; *sentence; sentence += length) {
        length = strcspn(sentence, " ");
        if (line->columns > LABEL && line->columns + (int)length >= line->look.width) {
            end(line, out);
            begin(line, "");
        }
        put(line, "%.*s", (int)length, sentence);
        if (sentence[length]) {
            put(line, " ");
            length++;
        }
    }
    end(line, out);
}

static void put_all(const Watch *watch, TableLook look, FILE *out) {
    Line line = {.look = look};
    put_title(watch, &line, out);
    put_progress(watch, &line, out);
    put_losses(watch, &line, out);
    put_speed(watch, &line, out);
    put_phases(watch, &line, out);
    put_memory(watch, &line, out);
    put_noise(watch, &line, out);
    put_wrapped(&line, watch->config_wrong, out);
    put_wrapped(&line, watch->summary_wrong, out);
    if (!watch->bad) return;
    begin(&line, "");
    put(&line, "metrics.jsonl: %zu unreadable line%s", watch->bad, PLURAL(watch->bad));
    end(&line, out);
}

Status watch_block(const Watch *watch, TableLook look, char **ret_text) {
    CLEANUP(mem_freep) char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out) return FAILED("out of memory");
    put_all(watch, look, out);
    bool bad = ferror(out) != 0;
    if (fclose(out) != 0 || bad) return FAILED("out of memory");
    *ret_text = text;
    text = NULL;
    return OK;
}

Status watch_line(const Watch *watch, char **ret_text) {
    char rate[FORMAT_SIZE], left[FORMAT_SIZE];
    Line line = {.look = {.width = LINE_SIZE}};
    double steps = watch_steps(watch), step = step_of(watch);
    put(&line, "step %.0f", step);
    if (steps > 0) put(&line, "/%.0f (%.0f%%)", steps, floor(100 * step / steps));
    put_epoch(watch, &line);
    if (watch->loss.count) put(&line, "  loss %.4f", last_of(&watch->loss));
    if (watch->val_loss.count) put(&line, "  validation loss %.4f", last_of(&watch->val_loss));
    if (watch->rate.count) put(&line, "  %s tokens/s", format_count(rate, last_of(&watch->rate)));
    if (watch->state != WATCH_RUNNING)
        put(&line, "  %s", state_text(watch->state));
    else if (isfinite(watch_left(watch)))
        put(&line, "  %s left", format_duration(left, watch_left(watch)));
    if (watch->summary_wrong) put(&line, "; %.200s", watch->summary_wrong);
    return str_format(ret_text, "%.*s", (int)line.used, line.text);
}
