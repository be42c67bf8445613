/* Templates give the text, the marks and the errors that jinja2 gives, as transformers configures it.
 * golden/make_templates.py made the cases; with a file of other cases as its argument, the program compares
 * those (check_templates.py). */
#include "chat/jinja.h"

#include "base/json.h"

#include "test.h"

/* 2024-07-26 10:20:30 */
enum { NOW = 1721989230 };

static void check_marks(const JinjaOutput *output, const json_t *marks) {
    assert_int_equal(output->mark_count, json_array_size(marks));
    for (size_t i = 0; i < output->mark_count; i++) {
        const json_t *mark = json_array_get(marks, i);
        assert_int_equal(output->marks[i].start, json_integer_value(json_array_get(mark, 0)));
        assert_int_equal(output->marks[i].end, json_integer_value(json_array_get(mark, 1)));
    }
}

/* Whether a case agrees; prints what does not. */
static bool agrees(const json_t *one) {
    const char *name = json_string_at(one, "name"), *text = json_string_at(one, "text");
    const json_t *template = json_object_get(one, "template");
    CLEANUP(jinja_freep) Jinja *parsed = NULL;
    CLEANUP(jinja_output_done) JinjaOutput output = {0};
    CLEANUP(status_freep) Status status = OK;
    status = jinja_parse(&parsed, json_string_value(template), json_string_length(template), name);
    if (!status) status = jinja_render(parsed, json_object_get(one, "variables"), NOW, &output);
    if (status && text) {
        print_error("%s: failed: %s\n", name, status_message(status));
    } else if (!status && !text) {
        print_error("%s: succeeded, but transformers fails: %s\n  weft: %s\n", name,
                    json_string_at(one, "error"), output.text);
    } else if (!status && strcmp(text, output.text)) {
        size_t at = strspn(output.text, text), same = 0;
        for (same = 0; text[same] && text[same] == output.text[same];) same++;
        at = same > 40 ? same - 40 : 0;
        print_error("%s: differs at byte %zu\n  expected: %.120s\n  found:    %.120s\n", name, same,
                    text + at, output.text + at);
    } else {
        if (!status && json_object_get(one, "marks")) check_marks(&output, json_object_get(one, "marks"));
        return true;
    }
    return false;
}

static const char *cases_file = WEFT_TEST_DIR "/chat/golden/templates.json";

static void golden(void **state) {
    CLEANUP(json_decrefp) json_t *cases = NULL;
    size_t agree = 0;
    assert_ok(json_read_file(cases_file, &cases));
    assert_true(json_array_size(cases) > 0);
    for (size_t i = 0; i < json_array_size(cases); i++) agree += agrees(json_array_get(cases, i));
    print_message("%zu of %zu cases agree\n", agree, json_array_size(cases));
    assert_int_equal(agree, json_array_size(cases));
}

static Status render(const char *text) {
    CLEANUP(jinja_freep) Jinja *template = NULL;
    CLEANUP(jinja_output_done) JinjaOutput output = {0};
    CLEANUP(json_decrefp)
    json_t *variables = json_pack("{s:[{s:s}], s:s}", "messages", "role", "user", "name", "weft");
    TRY(jinja_parse(&template, text, strlen(text), "chat.jinja"));
    return jinja_render(template, variables, NOW, &output);
}

/* What is not supported is refused by name, with its line. */
static void refusals(void **state) {
    assert_fails(render("a\n{% include 'x' %}"), 1,
                 "chat.jinja, line 2: the statement 'include' is not supported");
    assert_fails(render("{% for x in y recursive %}{% endfor %}"), 1, "recursive loops are not supported");
    assert_fails(render("\n\n{{ name | frobnicate }}"), 1,
                 "line 3: the filter 'frobnicate' is not supported");
    assert_fails(render("{{ name is frobnicated }}"), 1, "the test 'frobnicated' is not supported");
    assert_fails(render("{{ name.frobnicate() }}"), 1, "'frobnicate' is undefined or not supported");
    assert_fails(render("{{ frobnicate() }}"), 1, "'frobnicate' is undefined or not supported");
    assert_fails(render("{{ messages.append(1) }}"), 1,
                 "'append' would change a list, which templates may not");
    assert_fails(render("{{ raise_exception('only users') }}"), 1,
                 "line 1: the template refuses: only users");
    assert_fails(render("{% if x %}a"), 1, "expected 'endif', found the end of the template");
    assert_fails(render("{% endif %}"), 1, "'endif' without its beginning");
    assert_fails(render("{{ 'a' "), 1, "a tag is not closed");
    assert_fails(render("{{ 'a }}"), 1, "a string is not closed");
    assert_fails(render("{# a"), 1, "a comment is not closed");
    assert_fails(render("{% break %}"), 1, "'break' outside of a loop");
    assert_fails(render("{{ 1 + 'a' }}"), 1, "'+' cannot combine an integer and a string");
    assert_fails(render("{{ nothing.x }}"), 1, "'nothing' is undefined");
    assert_fails(render("{{ 1 // 0 }}"), 1, "division by zero");
    assert_fails(render("{{ \"\\ud800\" }}"), 1, "invalid escape");
    assert_fails(render("\xff"), 1, "not UTF-8 at byte 0");
}

/* A template cannot exhaust the stack, the memory or the time. */
static void bounds(void **state) {
    char deep[4096];
    memset(deep, '(', sizeof deep);
    memcpy(deep, "{{", 2);
    memcpy(deep + sizeof deep - 3, "}}", 3);
    for (size_t i = (sizeof deep - 1) / 2; i < sizeof deep - 3; i++) deep[i] = ')';
    assert_fails(render(deep), 1, "more than 200 nested constructs");
    for (size_t i = 2; i < sizeof deep - 3; i++) deep[i] = i % 2 ? 'x' : '-';
    assert_fails(render(deep), 1, "more than 200 nested constructs");
    assert_fails(render("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), 1, "nested too deeply");
    assert_fails(render("{{ 'x' * 1000000000000 }}"), 1, "MB of memory");
    assert_fails(
        render("{% set n = namespace(x=[]) %}{% for i in range(1000) %}{% set n.x = [n.x] %}{% endfor %}"), 1,
        "nested more than 200 levels deep");
    assert_fails(
        render("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{{ a }}{% endfor %}"), 1,
        "");
    assert_fails(render("{{ 9223372036854775807 + 1 }}"), 1, "more than 64 bits");
    assert_fails(render("{{ 9223372036854775808 }}"), 1, "is too large");
    assert_fails(render("{{ range(1000000) }}"), 1, "more than 100000 numbers");
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden),
        cmocka_unit_test(refusals),
        cmocka_unit_test(bounds),
    };
    if (argc > 1) cases_file = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
