/* Sentence splitting: hand-made cases, in which a bar marks each sentence end inside a text, and invariants
 * that hold for any text. */
#include <string.h>

#include "base/memory.h"
#include "data/json_text.h"
#include "data/sentence.h"
#include "data/source.h"
#include "test.h"

#define WIKIPEDIA WEFT_SOURCE_DIR "/../shared/data/wikipedia/wiki_00.jsonl"

static const char *const cases[] = {
    /* plain */
    "One sentence.",
    "No stop at the end",
    "One sentence.| Another one.",
    "Is it?| It is!| Good.",
    "He came.| She left.| They stayed.",
    "In 1999.| The year was cold.",
    "It cost 5.| 3 were sold.",
    "  Spaces before.|  Two spaces between.  ",
    /* titles */
    "Mr. Smith went to Washington.| He stayed.",
    "Mrs. and Ms. Jones met Dr. Brown.| Prof. White did not.",
    "Gen. Lee and Lt. Col. Grant spoke to Sgt. York.",
    "Rev. Martin Luther King Jr. led it.",
    "He met Gov. Brown and Sen. Warren.",
    "St. Paul and Mt. Everest and Ft. Worth.",
    "The court heard Roe vs. Wade.",
    /* initials */
    "J. R. R. Tolkien wrote it.| He was a professor.",
    "J.R.R. Tolkien wrote it.",
    "George W. Bush won.| Al Gore lost.",
    "It was signed by E. B. White.| The book sold well.",
    "Harry S. Truman and John F. Kennedy.",
    "He is taller than I.| She is not.",
    "It contains vitamin C.| It is healthy.",
    "Samuel L. Jackson and J. K. Rowling.",
    /* dotted abbreviations */
    "The U.S. Army came.| It stayed.",
    "He lives in the U.S.| He likes it.",
    "It moved to the U.K. in 1990.",
    "Washington, D.C. is a city.",
    "He lived in Washington, D.C.| The house is a museum.",
    "She holds a Ph.D. in physics.",
    "She has a B.A. from Yale and an M.Sc. from MIT.",
    "It began at 5 p.m. on Sunday.",
    "It began at 5 p.m.| He was late.",
    "It began at 5 p.m.| John was late.",
    "It began at 5 p.m. EST and ended at 9 a.m. GMT.",
    "In 44 B.C. Caesar died.",
    "Fruit, e.g. apples, i.e. what grows on trees.",
    "Some cities (e.g. Paris) are large.",
    "Languages (i.e. French) are hard.| It takes time.",
    "J. Smith et al. Nature 12.",
    "They sell apples, pears, etc.| The shop is small.",
    "Apples, pears, etc. are sold.",
    /* business and months */
    "Apple Inc. makes phones.| Google Inc. does too.",
    "He founded Smith & Co. in 1900.",
    "He works for Acme Corp.| It is large.",
    "On Jan. 5 he left.| On Feb. 7 he returned.",
    "It was in Sept. 2001.",
    "Acme Ltd. and Bolt Bros. merged.",
    /* references */
    "See Fig. 3 and No. 5 of Vol. 2, pp. 12.| Then stop.",
    "He said no.| Then he left.",
    "Symphony No. 9, Op. 125, was last.",
    "Chapter (ch. 5) is long.",
    "He was born c. 1450 and died ca. 1500.",
    /* numbers */
    "Pi is 3.14.| It goes on.",
    "It weighs 6.6 g.| Later ones weigh more.",
    "It fell by 2.5 percent to $3.50.| Shares rose.",
    "Version 2.0.| Version 3.0 came later.",
    "1. First item.|\n2. Second item.",
    "The price rose from 1.5 to 2.5 million.",
    "At 10.30 he left.",
    "It was 1945.| Germany had lost.",
    /* ellipses */
    "Wait... what?",
    "Well...| Then he left.",
    "He paused… and went on.",
    "He paused…| Then he went on.",
    "To be . . . or not.",
    /* quotes and brackets */
    "He said \"Stop.\"| She did.",
    "He said, \"Stop!\" and ran.",
    "\"Why?\" he asked.| \"Because.\"",
    "\"Why?\" John asked.| Nobody knew.",
    "(It was late.)| He slept.",
    "He left (at last).| She stayed.",
    "He slept (it was late.)| Then he woke.",
    "“Go away.”| “No.”",
    "He said ‘Yes.’| Then he left.",
    "«Oui.»| He nodded.",
    "It ended.[1]| It began again.[2][3]| Done.",
    "It ended.| \"Really?\"| [Laughter]",
    "It works (see below).| (Not always.)",
    /* case */
    "He uses an iPhone.| iPhones are sold.",
    "Visit example.com. or not.",
    "Visit www.example.com.| It is free.",
    "Yahoo! was bought.",
    "He came from Köln.| Él llegó.| Über alles.",
    "Is it true?!| Yes!!!| No.",
    "What?| 5 men came.",
    /* lines and paragraphs */
    "Title|\n\nThe first sentence.| The second.",
    "Title|\n\nText begins here",
    "Heading|\nText begins here.| It goes on.",
    "This line was wrapped by an editor at some seventy columns and it goes\non here.| Then it ends.",
    "This line was wrapped by an editor after seventy columns or so near\nLondon and it goes on.",
    "First paragraph ends.|\n\nSecond paragraph begins.|\n\nThird",
    "Roses are red|\nViolets are blue|\nSugar is sweet",
    "A list:|\n* one|\n* two|\n* three",
    "Line one.|\r\nLine two.|\r\n\r\nLine three.",
    "He was of the opinion that\nit was so.",
    /* text that is already tokenized */
    "The game was good .| It sold well .",
    "He lived in the U.S. .| He was happy .",
};

/* Removes the bars from the text and returns their positions. */
static size_t take_bars(const char *marked, char *text, size_t *ends) {
    size_t size = 0, count = 0;
    for (; *marked; marked++)
        if (*marked == '|')
            ends[count++] = size;
        else
            text[size++] = *marked;
    text[size] = 0;
    ends[count++] = size;
    return count;
}

static void show(const char *text, char *out) {
    size_t size = strlen(text), from = 0;
    while (from < size) {
        size_t end = sentence_end(text, size, from);
        memcpy(out, text + from, end - from);
        out += end - from;
        if (end < size) *out++ = '|';
        from = end;
    }
    *out = 0;
}

static void test_cases(void **state) {
    int wrong = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512], found[640];
        size_t ends[32];
        take_bars(cases[i], text, ends);
        show(text, found);
        if (!strcmp(found, cases[i])) continue;
        print_message("expected %s\nfound    %s\n", cases[i], found);
        wrong++;
    }
    assert_int_equal(wrong, 0);
}

/* Every sentence is non-empty and ends between a non-space and a space, or at the end of the text. */
static void check_text(const char *text, size_t size, int64_t *sentences) {
    size_t from = 0;
    while (from < size) {
        size_t end = sentence_end(text, size, from);
        assert_true(end > from && end <= size);
        if (end < size) assert_true(text[end] == ' ' || text[end] == '\n' || text[end] == '\t');
        if (end < size) assert_true(text[end - 1] != ' ' && text[end - 1] != '\n');
        from = end;
        ++*sentences;
    }
}

static void test_last_end(void **state) {
    const char *text = "It began. It went on and on. Then it";
    assert_int_equal(sentence_last_end(text, strlen(text)), strlen("It began. It went on and on."));
    assert_int_equal(sentence_last_end(text, strlen("It began.")), strlen("It began."));
    assert_int_equal(sentence_last_end(text, strlen("It beg")), 0);
    assert_int_equal(sentence_last_end("He met Dr.", 10), 0);
    assert_int_equal(sentence_last_end("", 0), 0);
    assert_int_equal(sentence_end("", 0, 0), 0);
    assert_int_equal(sentence_end(" \n ", 3, 0), 3);
}

/* 35 long articles: sentence lengths are plausible. */
static void test_wikipedia(void **state) {
    if (!path_exists(WIKIPEDIA)) skip();
    CLEANUP(source_done) Source source = {0};
    CLEANUP(json_text_done) JsonText text = {0};
    assert_ok(source_init(&source, WIKIPEDIA, 0));
    const char *at = (const char *)source.data, *end = at + source.size;
    int64_t sentences = 0, bytes = 0;
    for (int64_t line = 1; at < end; line++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t size = (size_t)((newline ? newline : end) - at);
        assert_ok(json_text_read(&text, at, size, "text", WIKIPEDIA, "line", line));
        check_text(text.text, text.size, &sentences);
        bytes += (int64_t)text.size;
        at = newline ? newline + 1 : end;
    }
    assert_true(bytes / sentences > 100 && bytes / sentences < 180);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases), cmocka_unit_test(test_last_end),
                                       cmocka_unit_test(test_wikipedia)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
