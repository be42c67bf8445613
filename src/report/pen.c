/* gnuplot reads a script from an unlinked temporary file, whose first axes have the pixels of the picture,
 * and writes PDF into its working directory. Labels come from users: they are quoted, and control characters
 * are replaced, so that no run can inject commands. */
#include "report/pen.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/memory.h"
#include "base/terminal.h"

/* The light theme's colors, their variables in page.css, and those of text that needs more contrast. */
static const struct {
    const char *hex, *variable, *text;
} colors[COLORS] = {{"#0a67b2", "var(--c0)", NULL},        {"#d9600a", "var(--c1)", "var(--t1)"},
                    {"#00936b", "var(--c2)", "var(--t2)"}, {"#b2478f", "var(--c3)", NULL},
                    {"#d99a00", "var(--c4)", "var(--t4)"}, {"#3aa5dc", "var(--c5)", "var(--t5)"},
                    {"#6a4fb3", "var(--c6)", NULL},        {"#5f6773", "var(--c7)", NULL},
                    {"#12705c", "var(--p0)", NULL},        {"#3f8fd2", "var(--p1)", NULL},
                    {"#93a1b4", "var(--p2)", NULL},        {"#6b58a8", "var(--p3)", NULL},
                    {"#f0b429", "var(--p4)", NULL},        {"#e4772d", "var(--p5)", NULL},
                    {"#b8365f", "var(--p6)", NULL},        {"#b9c0ca", "var(--p7)", NULL},
                    {"#616a78", "var(--soft)", NULL},      {"#e2e5ea", "var(--line)", NULL},
                    {"#191c21", "var(--ink)", NULL},       {"#eceef2", "var(--track)", NULL}};

/* What the open block of a script's data has. */
typedef enum { BLOCK_NONE, BLOCK_LINE, BLOCK_DOTS, BLOCK_BOXES } Block;

struct Pen {
    PenTarget target;
    FILE *out;
    FILE *plots; /* PDF: the command that draws the blocks of data, which follows them */
    Block block;
    size_t blocks, points; /* so far; of the line being drawn */
};

const char *color_variable(int color) {
    return colors[color].variable;
}

static const char *color_of(const Pen *pen, int color) {
    return pen->target == PEN_PAGE ? colors[color].variable : colors[color].hex;
}

/* Dots and boxes that follow each other share a block. */
static bool begin_block(Pen *pen, Block block) {
    if (pen->block == block && block > BLOCK_LINE) return false;
    if (pen->block) fputs("end\n", pen->out);
    pen->block = block;
    if (!block) return false;
    fprintf(pen->out, "$d%zu << end\n", pen->blocks);
    fprintf(pen->plots, "%s$d%zu ", pen->blocks ? ", " : "plot ", pen->blocks);
    pen->blocks++;
    return true;
}

/* ---- lines, dots and boxes ---- */

static void put_dash(FILE *out, const char *before, const Stroke *stroke, const char *after) {
    static const char *const dashes[DASHES] = {"", "9, 4", "2, 3", "9, 3, 2, 3"};
    if (stroke->gap > 0)
        fprintf(out, "%s7, %.0f%s", before, stroke->gap, after);
    else if (stroke->dash > 0)
        fprintf(out, "%s%s%s", before, dashes[stroke->dash % DASHES], after);
}

void pen_begin(Pen *pen, Stroke stroke) {
    const char *color = color_of(pen, stroke.color);
    pen->points = 0;
    if (pen->target == PEN_PDF) {
        begin_block(pen, BLOCK_LINE);
        fprintf(pen->plots, "with lines lc rgb '%s' lw %.1f", color, stroke.width);
        put_dash(pen->plots, " dt (", &stroke, ")");
        return;
    }
    fprintf(pen->out, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"%.1f\"", color, stroke.width);
    put_dash(pen->out, " stroke-dasharray=\"", &stroke, "\"");
    if (stroke.class) fprintf(pen->out, " class=\"%s\"", stroke.class);
    fputs(" d=\"", pen->out);
}

void pen_to(Pen *pen, double x, double y) {
    if (pen->target == PEN_PDF)
        fprintf(pen->out, "%.2f %.2f\n", x, y);
    else
        fprintf(pen->out, "%c%.2f %.2f", pen->points++ ? 'L' : 'M', x, y);
}

void pen_end(Pen *pen) {
    if (pen->target != PEN_PDF) fputs("\"/>\n", pen->out);
}

void pen_line(Pen *pen, Stroke stroke, double x, double y, double to_x, double to_y) {
    pen_begin(pen, stroke);
    pen_to(pen, x, y);
    pen_to(pen, to_x, to_y);
    pen_end(pen);
}

void pen_dot(Pen *pen, int color, double radius, double x, double y) {
    if (pen->target != PEN_PDF) {
        fprintf(pen->out, "<circle cx=\"%.2f\" cy=\"%.2f\" r=\"%.1f\" fill=\"%s\"/>\n", x, y, radius,
                color_of(pen, color));
        return;
    }
    if (begin_block(pen, BLOCK_DOTS))
        fputs("using 1:2:3:4 with points pt 7 ps variable lc rgb variable", pen->plots);
    fprintf(pen->out, "%.2f %.2f %.2f 0x%s\n", x, y, radius / 5, colors[color].hex + 1);
}

void pen_box(Pen *pen, int color, double x, double y, double to_x, double to_y) {
    if (pen->target != PEN_PDF) {
        fprintf(pen->out, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\"/>\n", x, y,
                to_x - x, to_y - y, color_of(pen, color));
        return;
    }
    if (begin_block(pen, BLOCK_BOXES))
        fputs("using 1:2:1:3:2:4:5 with boxxyerror fs solid noborder lc rgb variable", pen->plots);
    fprintf(pen->out, "%.2f %.2f %.2f %.2f 0x%s\n", x, y, to_x, to_y, colors[color].hex + 1);
}

void pen_open(Pen *pen, const char *class) {
    if (pen->target != PEN_PDF) fprintf(pen->out, "<g class=\"%s\">\n", class);
}

void pen_close(Pen *pen) {
    if (pen->target != PEN_PDF) fputs("</g>\n", pen->out);
}

/* ---- texts ---- */

/* gnuplot knows no escapes in single quotes but the doubled quote. */
static void put_quoted(FILE *out, const char *text) {
    fputc('\'', out);
    for (int length; *text; text += length) {
        int control = terminal_control(text);
        length = control ? control : 1;
        if (*text == '\'') fputc('\'', out);
        fputc(control ? '?' : *text, out);
    }
    fputc('\'', out);
}

static void put_text(Pen *pen, int color, double x, double y, int anchor, bool upward, const char *text) {
    static const char *const sides[] = {"left", "center", "right"}, *const anchors[] = {"start", "middle",
                                                                                        "end"};
    if (pen->target == PEN_PDF) {
        begin_block(pen, BLOCK_NONE);
        fputs("set label ", pen->out);
        put_quoted(pen->out, text);
        fprintf(pen->out, " at %.2f, %.2f %s%s textcolor rgb '%s'\n", x, y, sides[anchor],
                upward ? " rotate" : "", colors[color].hex);
        return;
    }
    const char *variable = colors[color].text ? colors[color].text : colors[color].variable;
    fprintf(pen->out, "<text text-anchor=\"%s\" fill=\"%s\"", anchors[anchor],
            pen->target == PEN_PAGE ? variable : colors[color].hex);
    if (upward)
        fprintf(pen->out, " transform=\"translate(%.2f %.2f) rotate(-90)\" y=\"4\">", x, y);
    else
        fprintf(pen->out, " x=\"%.2f\" y=\"%.2f\">", x, y + 4);
    put_html(pen->out, text);
    fputs("</text>\n", pen->out);
}

void pen_text(Pen *pen, int color, double x, double y, int anchor, const char *text) {
    put_text(pen, color, x, y, anchor, false, text);
}

void pen_text_upward(Pen *pen, int color, double x, double y, const char *text) {
    put_text(pen, color, x, y, 1, true, text);
}

/* ---- pictures ---- */

Status picture_svg(const Picture *picture, PenTarget target, char **ret_svg) {
    CLEANUP(text_done) Text text = {0};
    TRY(text_open(&text));
    Pen pen = {.target = target, .out = text.out};
    fprintf(text.out,
            " viewBox=\"0 0 %.0f %.0f\" xmlns=\"http://www.w3.org/2000/svg\" font-family=\"sans-serif\" "
            "font-size=\"12\">\n",
            picture->width, picture->height);
    picture->draw(&pen, picture->of);
    fputs("</svg>\n", text.out);
    return text_take(&text, ret_svg, NULL);
}

static Status put_script(FILE *out, const Picture *picture) {
    CLEANUP(text_done) Text plots = {0};
    CLEANUP(mem_freep) char *command = NULL;
    TRY(text_open(&plots));
    Pen pen = {.target = PEN_PDF, .out = out, .plots = plots.out};
    fprintf(out,
            "set encoding utf8\nset terminal pdfcairo size %.2f,%.2f noenhanced font 'Sans,9'\n"
            "set output '%s.pdf'\nset lmargin at screen 0\nset rmargin at screen 1\n"
            "set tmargin at screen 1\nset bmargin at screen 0\nunset border\nunset tics\nunset key\n"
            "set xrange [0:%.0f]\nset yrange [%.0f:0]\n",
            picture->width / 96, picture->height / 96, picture->name, picture->width, picture->height);
    picture->draw(&pen, picture->of);
    begin_block(&pen, BLOCK_NONE);
    TRY(text_take(&plots, &command, NULL));
    fprintf(out, "%s\nset output\n", *command ? command : "plot NaN");
    return fflush(out) != 0 || lseek(fileno(out), 0, SEEK_SET) != 0
               ? FAILED("cannot write a temporary file: %s", strerror(errno))
               : OK;
}

/* Runs a script in `dir`; false if gnuplot is absent or failed. */
static bool run_gnuplot(FILE *script, const char *dir) {
    char name[] = "gnuplot", no_config[] = "-d"; /* ignores the user's start-up files */
    char *argv[] = {name, no_config, NULL};
    posix_spawn_file_actions_t actions;
    pid_t child;
    int state = 1;
    if (posix_spawn_file_actions_init(&actions) != 0) return false;
    bool started = posix_spawn_file_actions_adddup2(&actions, fileno(script), STDIN_FILENO) == 0 &&
                   posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0) == 0 &&
                   posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0) == 0 &&
                   posix_spawn_file_actions_addchdir_np(&actions, dir) == 0 &&
                   posix_spawnp(&child, name, &actions, NULL, argv, environ) == 0;
    posix_spawn_file_actions_destroy(&actions);
    while (started && waitpid(child, &state, 0) < 0 && errno == EINTR) continue;
    return started && state == 0;
}

static Status write_pdf(const Picture *picture, Figures *drawn) {
    FILE *script = tmpfile();
    if (!script) return FAILED("cannot create a temporary file: %s", strerror(errno));
    Status status = put_script(script, picture);
    if (!status && !run_gnuplot(script, drawn->dir)) drawn->no_pdf = true;
    fclose(script);
    return status;
}

static Status write_file(const Picture *picture, const char *dir, const char *ending, const char *text) {
    CLEANUP(mem_freep) char *path = NULL;
    TRY(str_format(&path, "%s/%s.%s", dir, picture->name, ending));
    return file_replace(path, text, strlen(text));
}

Status picture_write(const Picture *picture, Figures *drawn) {
    CLEANUP(mem_freep) char *svg = NULL, *file = NULL, *csv = NULL;
    CLEANUP(text_done) Text text = {0};
    drawn->count++;
    if (!drawn->dir) return OK;
    TRY(picture_svg(picture, PEN_SVG, &svg));
    TRY(str_format(&file, "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<svg%s", svg));
    TRY(write_file(picture, drawn->dir, "svg", file));
    TRY(text_open(&text));
    picture->csv(text.out, picture->of);
    TRY(text_take(&text, &csv, NULL));
    TRY(write_file(picture, drawn->dir, "csv", csv));
    return write_pdf(picture, drawn);
}
