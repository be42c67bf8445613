/* Pipeline diagrams, as text and as SVG. */
#include "plan/draw.h"
#include "test.h"

enum { MAX_STAGES = 16 };

typedef struct Drawing {
    Schedule stage[MAX_STAGES];
    Timeline timeline;
} Drawing;

static void drawing_init(Drawing *p, ScheduleKind kind, int stages, int chunks, int micros) {
    ScheduleSpec spec = {.kind = kind, .stages = stages, .chunks = chunks, .micros = micros};
    for (int s = 0; s < stages; s++) assert_ok(schedule_init(&p->stage[s], &spec, s));
    p->timeline = (Timeline){p->stage, stages, schedule_times(p->stage, stages), "a <title> & \"more\"",
                             "bubble 27.3%"};
}

static void drawing_done(Drawing *p) {
    for (int s = 0; s < p->timeline.count; s++) schedule_done(&p->stage[s]);
}

static void assert_text(ScheduleKind kind, int stages, int chunks, int micros, int width,
                        const char *expected) {
    Drawing p;
    char *text = NULL;
    drawing_init(&p, kind, stages, chunks, micros);
    assert_ok(draw_text(&p.timeline, width, false, &text));
    assert_string_equal(text, expected);
    free(text);
    drawing_done(&p);
}

static void test_text(void **state) {
    assert_text(SCHEDULE_1F1B, 2, 1, 3, 80,
                "stage 0 F0F1....B0--F2B1--..B2--\n"
                "stage 1 ..F0B0--F1B1--F2B2--....\n"
                "F forward   B backward   . idle\n");
    assert_text(SCHEDULE_ZERO_BUBBLE, 2, 1, 2, 80,
                "stage 0 F0F1..B0W0B1W1\n"
                "stage 1 ..F0B0F1B1W0W1\n"
                "F forward   B input gradients   W weight gradients   . idle\n");
    assert_text(SCHEDULE_INTERLEAVED, 2, 2, 2, 80,
                "stage 0 F0aF1aF0bF1b......B0b---...B1b---B0a---B1a---\n"
                "stage 1 ...F0aF1aF0bB0b---F1bB1b---B0a---B1a---......\n"
                "F forward   B backward   . idle\n");
    assert_text(SCHEDULE_EVAL, 1, 1, 11, 80,
                "stage 0 F0-F1-F2-F3-F4-F5-F6-F7-F8-F9-F10\nF forward   . idle\n");
}

/* Labels are dropped before boxes are, and no row is wider than the terminal. */
static void test_text_fits(void **state) {
    assert_text(SCHEDULE_1F1B, 2, 1, 6, 30,
                "stage 0 FF..B0FB1FB2FB3FB4.B5\n"
                "stage 1 .FB0FB1FB2FB3FB4FB5..\n"
                "F forward   B backward   . idle\n");
    Drawing p;
    char *text = NULL;
    drawing_init(&p, SCHEDULE_ZERO_BUBBLE, 16, 1, 64);
    assert_ok(draw_text(&p.timeline, 100, false, &text));
    char *line = text;
    for (int s = 0; s < 16; s++) {
        assert_true(strcspn(line, "\n") <= 100);
        assert_int_equal(strncmp(line, "stage ", 6), 0);
        line = strchr(line, '\n') + 1;
    }
    assert_non_null(strstr(line, "# mixed"));
    free(text);
    drawing_done(&p);
    /* About two time units per column, which are of one kind, of two kinds, or mostly idle. */
    assert_text(SCHEDULE_GPIPE, 2, 1, 20, 40,
                "stage 0 FFFFFFFFFF..BBBBBBBBBBBBBBBBBBBB\n"
                "stage 1 .FFFFFFFFF#BBBBBBBBBBBBBBBBBBBB.\n"
                "F forward   B backward   # mixed   . idle\n");
}

static void test_color(void **state) {
    Drawing p;
    char *text = NULL;
    drawing_init(&p, SCHEDULE_1F1B, 1, 1, 1);
    assert_ok(draw_text(&p.timeline, 80, true, &text));
    assert_string_equal(text, "stage 0 \033[97;44mF0\033[30;43mB0  \033[0m\n"
                              "\033[97;44mF\033[0m forward   \033[30;43mB\033[0m backward\n");
    free(text);
    drawing_done(&p);
}

/* Elements are closed in order, attributes are quoted, and text contains no unescaped characters. */
static void assert_well_formed(const char *xml) {
    char open[32][32];
    int depth = 0, closed = 0;
    for (const char *at = xml; *at;) {
        if (*at == '&')
            assert_true(!strncmp(at, "&amp;", 5) || !strncmp(at, "&lt;", 4) || !strncmp(at, "&gt;", 4) ||
                        !strncmp(at, "&quot;", 6));
        if (*at != '<') {
            assert_true(depth > 0 || *at == '\n');
            at++;
            continue;
        }
        const char *end = at + 1;
        for (bool quoted = false; *end && (quoted || *end != '>'); end++) {
            if (*end == '"') quoted = !quoted;
            assert_int_not_equal(*end, '<');
        }
        assert_int_equal(*end, '>');
        char name[32];
        bool closing = at[1] == '/';
        assert_int_equal(sscanf(at + 1 + closing, "%31[a-z]", name), 1);
        if (closing) {
            assert_true(depth > 0);
            assert_string_equal(open[--depth], name);
            closed++;
        } else if (end[-1] != '/') {
            assert_true(depth < 32);
            strcpy(open[depth++], name);
        }
        at = end + 1;
    }
    assert_int_equal(depth, 0);
    assert_true(closed > 0);
}

static int count_of(const char *text, const char *part) {
    int count = 0;
    for (; (text = strstr(text, part)); text++) count++;
    return count;
}

static void test_svg(void **state) {
    for (int kind = 0; kind < SCHEDULE_KINDS; kind++) {
        Drawing p;
        char *svg = NULL;
        int chunks = kind == SCHEDULE_INTERLEAVED ? 2 : 1;
        drawing_init(&p, (ScheduleKind)kind, 4, chunks, 8);
        assert_ok(draw_svg(&p.timeline, &svg));
        assert_well_formed(svg);
        assert_non_null(strstr(svg, "a &lt;title&gt; &amp; &quot;more&quot;"));
        assert_non_null(strstr(svg, "bubble 27.3%"));
        assert_non_null(strstr(svg, "prefers-color-scheme: dark"));
        /* Each box, and one box of each color in the legend. */
        assert_int_equal(count_of(svg, "<rect class=\"f\""), 4 * 8 * chunks + 1);
        assert_int_equal(count_of(svg, "<rect class=\"b\""), kind == SCHEDULE_EVAL ? 0 : 4 * 8 * chunks + 1);
        assert_int_equal(count_of(svg, "<rect class=\"w\""), kind == SCHEDULE_ZERO_BUBBLE ? 33 : 0);
        assert_int_equal(count_of(svg, ">7</text>"), count_of(svg, "of micro-batch 7"));
        assert_non_null(strstr(svg, "stage 3: forward of micro-batch 0"));
        free(svg);
        drawing_done(&p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_text_fits),
        cmocka_unit_test(test_color),
        cmocka_unit_test(test_svg),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
