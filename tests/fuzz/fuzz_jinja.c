/* Fuzzes chat templates: any text is a tree or an error with a line, and rendering a tree ends with UTF-8 and
 * marks inside it, or an error. The input is a template and, after a NUL, JSON of its variables. */
#include "base/json.h"
#include "chat/jinja.h"
#include "fuzz.h"
#include "tokenizer/tokenizer.h"

static void check_output(const JinjaOutput *output) {
    size_t first = 0, end = 0;
    fuzz_require(output->text[output->size] == 0);
    fuzz_require(text_invalid_utf8(output->text, output->size, &first) == 0);
    for (size_t i = 0; i < output->mark_count; i++) {
        fuzz_require(output->marks[i].start <= output->marks[i].end && output->marks[i].end <= output->size);
        fuzz_require(output->marks[i].end >= end);
        end = output->marks[i].end;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *text = (const char *)data;
    const char *nul = size ? memchr(text, 0, size) : NULL;
    size_t length = nul ? (size_t)(nul - text) : size, rest = nul ? size - length - 1 : 0;
    CLEANUP(json_decrefp) json_t *variables = json_loadb(nul ? nul + 1 : "{}", nul ? rest : 2, 0, NULL);
    CLEANUP(jinja_freep) Jinja *template = NULL;
    CLEANUP(jinja_output_done) JinjaOutput output = {0};
    if (!json_is_object(variables)) {
        json_decref(variables);
        variables = json_object();
    }
    if (!fuzz_succeeded(jinja_parse(&template, text, length, "t"))) return 0;
    if (fuzz_succeeded(jinja_render(template, variables, 0, &output))) check_output(&output);
    return 0;
}

size_t fuzz_seed(size_t index, uint8_t *out) {
    static const char *const seeds[] = {
        "{% for m in messages if m.role != 'x' %}{{ '<|' ~ m['role'] + '|>\\n' }}{{- m.content | trim }}{% "
        "else %}e{% endfor %}",
        "{%- macro f(a, b=1) -%}{{ a }}{{ b * 'x' }}{% endmacro %}{{ f(2, b=3) }}{% call f(1) %}c{% endcall "
        "%}",
        "{% set ns = namespace(n=0) %}{% for i in range(5) %}{% set ns.n = ns.n + i %}{% if i == 3 %}{% "
        "break %}{% endif %}{% endfor %}{{ ns.n }}",
        "{% generation %}{{ messages[-1].content[1:] }}{% endgeneration %}{# c #}{% raw %}{{ x }}{% endraw "
        "%}",
        "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | list | "
        "tojson(indent=2) }}",
        "{{ 'a,b'.split(',')[0].upper() if x is defined and not none else {'k': [1, 2.5, none]}.items() | "
        "list }}",
        "{% set t | upper %}b{% endset %}{% filter trim %} {{ t }} {% endfilter %}{% with a = -1 // 2 ** 3 % "
        "5 %}{{ a }}{% endwith %}",
        "{{ '%s' | format(1) }}{{ '{}{a}'.format(1, a=2) }}{{ 'a' 'b' }}{{ \"\\u00e9\\x41\\n\" | e }}{{ "
        "strftime_now('%Y') }}"};
    static const char variables[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"\\u00e9 a\"}, "
                                    "{\"role\": \"x\", \"content\": \"b\"}]}";
    if (index >= sizeof seeds / sizeof *seeds) return 0;
    size_t size = strlen(seeds[index]) + 1;
    memcpy(out, seeds[index], size);
    memcpy(out + size, variables, sizeof variables - 1);
    return size + sizeof variables - 1;
}
