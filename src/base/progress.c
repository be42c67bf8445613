/* Progress reporting.
 *
 * A terminal gets one line, redrawn in place at most ten times per second and never wider than the terminal:
 * title, bar, percent, note, elapsed time, time left. On a narrow terminal the bar shrinks first, then the
 * note is truncated. A file or pipe gets one complete line per interval. Time left is extrapolated from the
 * first update, so a resumed run does not count the steps it skipped.
 *
 * A phase disappears from the terminal when it ends, and a log mentions it only if it lasts longer than the
 * interval.
 *
 * A thread redraws the line of a phase, or of a bar that is busy, so that the elapsed time advances between
 * updates. A bar is not busy while a phase uses the line.
 */
#include "base/progress.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/format.h"
#include "base/memory.h"
#include "base/setting.h"
#include "base/terminal.h"

enum { NOTE_SIZE = 512, LINE_SIZE = 1280, BAR_WIDEST = 30, BAR_NARROWEST = 8 };
static const double redraw_s = 0.1, phase_interval_s = 5;
static const double tick_s = 0.3;

struct Progress {
    FILE *out;
    char *title;
    int64_t total, done;
    double interval_s;
    const char *unit;           /* what is counted; NULL: shown as a percentage only */
    const char *redraw, *erase; /* end a line that will be redrawn; erase it */
    bool quiet, live, color, utf8, phase, bytes;
    bool begun, drawn, ended;
    double start, first_time, last_shown; /* seconds */
    int64_t first_done, printed;          /* `printed`: the latest in a log; -1: none */
    char note[NOTE_SIZE];
    pthread_mutex_t lock; /* guards all of the above against the ticker */
    pthread_cond_t woken;
    pthread_t ticker;
    bool ticking, busy; /* the ticker exists; it draws */
};

Status progress_new(Progress **ret_progress, FILE *out, const char *title, int64_t total, double interval_s,
                    bool quiet) {
    CLEANUP(progress_freep) Progress *progress = NULL;
    TRY(mem_new(1, sizeof *progress, &progress));
    TRY(str_dup(title, &progress->title));
    progress->out = out;
    progress->total = total;
    progress->interval_s = interval_s;
    progress->quiet = quiet || !out;
    progress->live = out && terminal_live(out);
    bool relayed = out && terminal_relayed(out);
    progress->redraw = relayed ? "\r" : "";
    progress->erase = relayed ? "\r\033[K\r" : "\r\033[K";
    progress->color = out && terminal_color(out);
    progress->utf8 = terminal_utf8();
    progress->printed = -1;
    progress->start = clock_wall();
    pthread_mutex_init(&progress->lock, NULL);
    clock_cond_init(&progress->woken);
    return MOVE(ret_progress, progress);
}

void progress_unit(Progress *progress, const char *unit) {
    progress->unit = unit;
}

void progress_bytes(Progress *progress) {
    progress->bytes = true;
}

static const char *count_text(const Progress *progress, char buffer[FORMAT_SIZE], int64_t count) {
    if (progress->bytes) return format_bytes(buffer, (double)count);
    snprintf(buffer, FORMAT_SIZE, "%lld", (long long)count);
    return buffer;
}

/* Bytes of the first `columns` characters; *ret_columns is how many there were. */
static size_t utf8_prefix(const char *text, int columns, int *ret_columns) {
    size_t bytes = 0;
    int used = 0;
    while (text[bytes]) {
        bool starts = ((unsigned char)text[bytes] & 0xC0) != 0x80;
        if (starts && used == columns) break;
        used += starts;
        bytes++;
    }
    *ret_columns = used;
    return bytes;
}

static double fraction(const Progress *progress) {
    if (progress->total <= 0) return 0;
    double part = (double)progress->done / (double)progress->total;
    return part < 0 ? 0 : part > 1 ? 1 : part;
}

/* Elapsed time, and time left unless done. */
static void times(const Progress *progress, char *text, size_t size) {
    char used[FORMAT_SIZE], left[FORMAT_SIZE];
    double now = clock_wall();
    int64_t since = progress->done - progress->first_done, rest = progress->total - progress->done;
    format_duration(used, now - progress->start);
    if (since <= 0 || rest <= 0 || progress->ended)
        snprintf(text, size, "%s", used);
    else
        snprintf(text, size, "%s, %s left", used,
                 format_duration(left, (now - progress->first_time) * (double)rest / (double)since));
}

/* Appends a bar of `width` columns: heavy line for done, light line for the rest; '=' and '-' without UTF-8.
 */
static size_t append_bar(const Progress *progress, char *line, size_t used, int width) {
    int full = (int)(fraction(progress) * width + 0.5);
    const char *color = progress->color ? "\033[32m" : "", *dim = progress->color ? "\033[90m" : "";
    used += (size_t)snprintf(line + used, LINE_SIZE - used, "%s", color);
    for (int i = 0; i < width; i++) {
        if (i == full) used += (size_t)snprintf(line + used, LINE_SIZE - used, "%s", dim);
        const char *cell = progress->utf8 ? (i < full ? "━" : "─") : i < full ? "=" : "-";
        used += (size_t)snprintf(line + used, LINE_SIZE - used, "%s", cell);
    }
    return used + (size_t)snprintf(line + used, LINE_SIZE - used, "%s ", progress->color ? "\033[0m" : "");
}

/* "step 12/2000   1%", " 1%", or without a total the count. */
static void percent_text(const Progress *progress, char *text, size_t size) {
    char done[FORMAT_SIZE], total[FORMAT_SIZE];
    double percent = 100 * fraction(progress);
    count_text(progress, done, progress->done);
    if (progress->total > 0 && progress->unit)
        snprintf(text, size, "%s %s/%s %3.0f%%", progress->unit, done,
                 count_text(progress, total, progress->total), percent);
    else if (progress->total > 0)
        snprintf(text, size, "%3.0f%%", percent);
    else if (progress->done > 0)
        snprintf(text, size, "%s", done);
    else
        text[0] = 0;
}

/* `end` follows the line. */
static void draw(Progress *progress, const char *end) {
    char line[LINE_SIZE], percent[96], time_text[2 * FORMAT_SIZE + 16];
    int width = terminal_width(progress->out) - 1, note_columns, columns;
    if (width > 160) width = 160;
    percent_text(progress, percent, sizeof percent);
    times(progress, time_text, sizeof time_text);
    utf8_prefix(progress->note, NOTE_SIZE, &note_columns);
    size_t title_bytes = utf8_prefix(progress->title, 20, &columns);
    int fixed = columns + 1 + (int)strlen(percent) + 2 + 2 + (int)strlen(time_text);
    int bar = width - fixed - note_columns - 1;
    if (bar > BAR_WIDEST) bar = BAR_WIDEST;
    size_t used = (size_t)snprintf(line, sizeof line, "%.*s ", (int)title_bytes, progress->title);
    int room = width - fixed;
    if (progress->total > 0 && bar >= BAR_NARROWEST) {
        used = append_bar(progress, line, used, bar);
        room -= bar + 1;
    }
    size_t note = utf8_prefix(progress->note, room > 0 ? room : 0, &columns);
    snprintf(line + used, sizeof line - used, "%s%s%.*s  %s", percent, note ? "  " : "", (int)note,
             progress->note, time_text);
    /* Return, erase and redraw in one write to avoid flicker. A terminal too narrow even for the fixed parts
     * gets a truncated line. */
    if (fixed > width) line[utf8_prefix(line, width > 0 ? width : 0, &columns)] = 0;
    fprintf(progress->out, "\r\033[K%s%s", line, end);
    fflush(progress->out);
    progress->drawn = true;
}

static void print_plain(Progress *progress) {
    progress->printed = progress->done;
    char time_text[2 * FORMAT_SIZE + 16], count[FORMAT_SIZE];
    times(progress, time_text, sizeof time_text);
    fprintf(progress->out, "%s %s", progress->title, count_text(progress, count, progress->done));
    if (progress->total > 0)
        fprintf(progress->out, "/%s (%.0f%%)", count_text(progress, count, progress->total),
                100 * fraction(progress));
    fprintf(progress->out, "%s%s  %s\n", *progress->note ? "  " : "", progress->note, time_text);
    fflush(progress->out);
}

void progress_total(Progress *progress, int64_t total) {
    progress->total = total;
}

static void update(Progress *progress, int64_t done, const char *note) {
    double now = clock_wall();
    progress->done = done;
    int columns;
    size_t kept = utf8_prefix(note ? note : "", NOTE_SIZE / 4 - 1, &columns);
    snprintf(progress->note, sizeof progress->note, "%.*s", (int)kept, note ? note : "");
    if (!progress->begun) {
        progress->first_time = now;
        progress->first_done = done;
        progress->last_shown = progress->phase && !progress->live ? progress->start : -1e9;
        progress->begun = true;
    }
    if (now - progress->last_shown < (progress->live ? redraw_s : progress->interval_s)) return;
    progress->last_shown = now;
    if (progress->live)
        draw(progress, progress->redraw);
    else
        print_plain(progress);
}

void progress_update(Progress *progress, int64_t done, const char *note) {
    if (progress->quiet || progress->ended) return;
    pthread_mutex_lock(&progress->lock);
    update(progress, done, note);
    pthread_mutex_unlock(&progress->lock);
}

void progress_line(Progress *progress, const char *fmt, ...) {
    bool warning = strncmp(fmt, "warning: ", 9) == 0;
    if (progress->quiet && !(warning && progress->out)) return;
    pthread_mutex_lock(&progress->lock);
    bool redraw = progress->drawn && !progress->ended;
    if (redraw) fputs(progress->erase, progress->out);
    char *spelled = setting_spell(fmt);
    va_list args;
    va_start(args, fmt);
    vfprintf(progress->out, spelled ? spelled : fmt, args);
    va_end(args);
    free(spelled);
    fputc('\n', progress->out);
    if (redraw)
        draw(progress, progress->redraw);
    else
        fflush(progress->out);
    pthread_mutex_unlock(&progress->lock);
}

/* ---- redrawing between updates ---- */

/* The first wait spares short phases a flicker. */
static void *tick(void *argument) {
    Progress *progress = argument;
    pthread_mutex_lock(&progress->lock);
    while (!progress->ended) {
        struct timespec until = clock_after(tick_s);
        pthread_cond_timedwait(&progress->woken, &progress->lock, &until);
        if (!progress->ended && progress->busy) draw(progress, progress->redraw);
    }
    pthread_mutex_unlock(&progress->lock);
    return NULL;
}

/* Signals stay with the other threads. */
static void start_ticker(Progress *progress) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    progress->ticking = pthread_create(&progress->ticker, NULL, tick, progress) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void stop_ticker(Progress *progress) {
    pthread_mutex_lock(&progress->lock);
    progress->ended = true;
    pthread_cond_signal(&progress->woken);
    pthread_mutex_unlock(&progress->lock);
    if (progress->ticking) pthread_join(progress->ticker, NULL);
    progress->ticking = false;
}

void progress_busy(Progress *progress, bool busy) {
    if (progress->quiet || !progress->live || progress->ended) return;
    pthread_mutex_lock(&progress->lock);
    progress->busy = busy;
    pthread_mutex_unlock(&progress->lock);
    if (busy && !progress->ticking) start_ticker(progress);
}

Status progress_new_phase(Progress **ret_progress, FILE *out, const char *title, int64_t total, bool quiet) {
    TRY(progress_new(ret_progress, out, title, total, phase_interval_s, quiet));
    Progress *progress = *ret_progress;
    progress->phase = true;
    if (total > 0 || !progress->live) progress_update(progress, 0, "");
    progress_busy(progress, true);
    return OK;
}

void progress_end(Progress *progress) {
    if (!progress || progress->ended) return;
    stop_ticker(progress);
    if (progress->phase) {
        if (progress->drawn) fputs(progress->erase, progress->out);
        if (progress->drawn) fflush(progress->out);
        return;
    }
    if (progress->quiet || !progress->begun) return;
    if (!progress->live) {
        if (progress->printed != progress->done) print_plain(progress);
        return;
    }
    draw(progress, "\n");
}

void progress_free(Progress *progress) {
    if (!progress) return;
    if (progress->phase) progress_end(progress);
    /* After a failure, keep the last line and start the next message on a new one. */
    bool kept = progress->drawn && !progress->ended;
    stop_ticker(progress);
    if (kept) draw(progress, "\n");
    pthread_cond_destroy(&progress->woken);
    pthread_mutex_destroy(&progress->lock);
    free(progress->title);
    free(progress);
}
