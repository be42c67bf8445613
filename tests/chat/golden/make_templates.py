#!/usr/bin/env python3
"""Generate templates.json: small templates, each about one construct, and what transformers' environment makes of them.
Requires transformers and jinja2 (5.22.2 and 3.1.6 here). Commit the script and its output together.

Cases (test_jinja.c): name, template, variables, and either text, with the byte ranges of generation blocks as marks, or error.
"""
import json
import pathlib

from render import render

HERE = pathlib.Path(__file__).parent
TURNS = [{"role": "system", "content": " Be brief.\n"}, {"role": "user", "content": "Warp \"or\" weft?"},
         {"role": "assistant", "content": "Weft, naïve 织工 👩‍💻.", "tool_calls": [{"function": {"name": "f", "arguments": {"a": [1, 2.5, None, True]}}}]},
         {"role": "user", "content": "Why?"}, {"role": "assistant", "content": ""}]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"z": {"type": "string"}, "a": {"type": "integer"}}}}]
VALUES = {"n": 7, "x": 2.5, "yes": True, "no": None, "s": " Ab \tcd\n", "list": [3, 1, 2, 2], "dict": {"b": 1, "a": "two", "items": 3},
          "words": ["loom", "Weft", "warp"], "rows": [{"k": "b", "v": {"w": 2}}, {"k": "a", "v": {"w": 1}}, {"k": "B"}], "empty": []}

CHATS = {
    "tags": "{% for m in messages %}{{ '<|' + m['role'] + '|>\\n' + m['content'] + '<|end|>\\n' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}",
    "first system": "{%- if messages[0].role == 'system' -%}\n  {%- set system, rest = messages[0].content | trim, messages[1:] -%}\n"
                    "{%- else -%}{%- set system, rest = '', messages -%}{%- endif -%}\n{{ bos_token }}\n{%- for m in rest %}\n"
                    "  {%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('turns must alternate') }}{% endif %}\n"
                    "  {%- if m.role == 'user' %}\n[USER] {{ (system + '\\n\\n' if loop.first and system else '') + m.content }}\n"
                    "  {%- else %} {{ m.content ~ eos_token }}{% endif %}\n{%- endfor %}",
    "marked": "{% for m in messages %}<{{ m.role }}>\n{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<end>{% endgeneration %}\n"
              "{% else %}{{ m.content }}<end>\n{% endif %}{% endfor %}",
    "tools": "{% if tools %}{{ tools | tojson(indent=2) }}\n{% endif %}{% for m in messages %}{% for call in m.tool_calls or [] %}"
             "{{ call.function.name }}({{ call.function.arguments | tojson }})\n{% endfor %}{% else %}nothing{% endfor %}",
    "namespace": "{% set ns = namespace(count=0, last='') %}{% for m in messages if m.role != 'system' %}{% set ns.count = ns.count + 1 %}"
                 "{% set ns.last = m.role %}{% endfor %}{{ ns.count }} {{ ns.last }}",
    "macro": "{% macro turn(m, mark='#', end=none) -%}\n{{ mark }} {{ m.role | upper }}: {{ m.content }}{{ end or '' }}\n{% endmacro -%}\n"
             "{% for m in messages %}{{ turn(m) if loop.first else turn(m, end='.', mark='*') }}{% endfor %}",
    "thoughts": "{% for m in messages %}{% set c = m.content.split('织')[-1].lstrip('\\n') %}{{ loop.index }}/{{ loop.length }}"
                "{{ ' last' if loop.last }} {{ c }}|{% if loop.index == 4 %}{% break %}{% endif %}{% endfor %}",
    "reverse": "{% for m in messages[::-1] %}{% if m.role == 'user' %}{% continue %}{% endif %}{{ m.role[0] }}{{ loop.revindex }},{% endfor %}",
    "date": "{{ strftime_now('%d %b %Y, %Y-%m-%d %H:%M') }}{% if date_string is not defined %} undefined{% endif %}",
}

EXPRESSIONS = [
    "{{ n }} {{ x }} {{ yes }} {{ no }} {{ missing }} {{ s }}|", "{{ [1, 'a', \"it's\", none, true, 2.0, {'k': (1,)}] }}",
    "{{ 1e16 }} {{ 1e-5 }} {{ 123456.789 }} {{ 0.1 + 0.2 }} {{ 100.0 }} {{ 1_000 }} {{ 0x1f }} {{ 3 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 2 ** 10 }} {{ 2 ** -1 }}",
    "{{ 'a\\tb\\n\\\\ \\'q\\' \\x41\\u00e9\\101' }}", "{{ 'one ' 'two' }}", "{{ ['a\\nb\\'c', 'é\\u200b\\x07'] }}",
    "{{ n > 3 and x or no }} {{ not yes }} {{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 'a' in 'cat' }} {{ 9 not in list }} {{ 'b' in dict }}",
    "{{ 'x' if no }}|{{ 'x' if no else 'y' if yes else 'z' }}", "{{ -n + +x * 2 - (1 + 2) * 3 ~ 'k' ~ 4 }}", "{{ 'ab' * 2 }}{{ [1] * 2 + [3] }}",
    "{{ s[1:3] }}|{{ s[-3:] }}|{{ s[::-1] }}|{{ list[1:] }}{{ list[:-1] }}{{ list[::2] }}{{ list[5:] }}{{ '织工é'[1] }}{{ list[9] }}",
    "{{ dict.a }} {{ dict['b'] }} {{ dict.items() | list }} {{ dict['items'] }} {{ dict.get('q', 5) }} {{ dict.keys() | join(',') }}",
    "{{ no.x is defined }} {{ no is none }} {{ missing is undefined }} {{ n is number }} {{ yes is boolean }} {{ 's' is string }} {{ dict is mapping }}",
    "{{ list is sequence }} {{ s is iterable }} {{ n is odd }} {{ n is divisibleby 7 }} {{ n is eq(7) }} {{ n is not none }} {{ x is float }} {{ n is in [7] }}",
    "{{ true == 1 }} {{ 1 == 1.0 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ {'a': 1} == {'a': 1.0} }} {{ none == missing }}",
    "{{ s | trim }}|{{ s.strip() }}|{{ s.lstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ s | lower | upper | title | capitalize }}",
    "{{ 'a b  c'.split() }}{{ 'a,b,,c'.split(',') }}{{ 'a,b,c'.split(',', 1) }}{{ 'a,b,c'.rsplit(',', 1) }}{{ 'a\\nb\\n'.splitlines() }}{{ 'k=v=w'.partition('=') }}",
    "{{ 'warp'.startswith('wa') }}{{ 'warp'.endswith(('x', 'rp')) }}{{ 'warp'.replace('a', 'eeA') }}{{ 'warp'.find('r') }}{{ '-'.join(words) }}{{ 'aXbX'.count('X') }}",
    "{{ '{} {0}'.format(1) if no else '{0}-{b}'.format('a', b=2) }}{{ '%s=%r' | format('k', 'v') }}",
    "{{ words | join(', ') }} {{ rows | map(attribute='k') | join }} {{ words | map('upper') | list }} {{ words | first }}{{ words | last }} {{ empty | first is defined }}",
    "{{ rows | selectattr('k', 'equalto', 'a') | list }} {{ rows | rejectattr('v') | list }} {{ list | select('odd') | list }} {{ list | reject('gt', 1) | list }}",
    "{{ list | sort }} {{ words | sort(reverse=true) }} {{ rows | sort(attribute='k') | map(attribute='k') | list }} {{ list | unique | list }} {{ dict | dictsort }}",
    "{{ list | sum }} {{ list | min }} {{ list | max }} {{ list | length }} {{ list | reverse | list }} {{ 'abc' | reverse }} {{ dict | length }} {{ dict | items | list }}",
    "{{ missing | default('d') }} {{ '' | default('e', true) }} {{ no | default('f') }} {{ '12' | int + 1 }} {{ '3.7' | int }} {{ 'q' | int(5) }} {{ '2.5' | float }} {{ -3 | abs }} {{ 2.567 | round(1) }} {{ 2.5 | round }}",
    "{{ dict | tojson }} {{ rows | tojson(indent=2) }} {{ {'é': '<\"\\n\\u0001>'} | tojson }} {{ {'é': 1} | tojson(ensure_ascii=true) }} {{ {'b': 1, 'a': [1, 2]} | tojson(separators=(',', ':'), sort_keys=true) }} {{ [] | tojson(indent=1) }}",
    "{{ 'a\\n\\nb' | indent(2) }}|{{ 'a\\nb' | indent(2, true) }}|{{ '<a & \"b\">' | e }}|{{ '<i>' | safe + '<b>' }}|{{ 'a b c' | wordcount }}|{{ n | string + 's' }}",
    "{% set ns = namespace(a=1) %}{% set ns.b = [1] %}{{ ns.a }}{{ ns.b }}{{ ns.c is defined }}",
    "{% set x = 1 %}{% for i in [1, 2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}{% if true %}{% set x = 9 %}{% endif %}{{ x }}",
    "{% for k, v in dict.items() %}{{ k }}={{ v }}{{ ', ' if not loop.last }}{% endfor %} {% for i in range(3) %}{{ loop.cycle('a', 'b') }}{{ i }}{% endfor %}",
    "{% for i in list %}{{ loop.changed(i) }}{{ loop.previtem }}{{ loop.nextitem is defined }}{% endfor %}{% for i in [] %}x{% else %}none{% endfor %}",
    "{% set block %}a{{ n }}\n{% endset %}{{ block | upper }}{% filter upper %}b{{ n }}c{% endfilter %}{% set b2 | trim %} z {% endset %}[{{ b2 }}]",
    "{% macro f(a, b=a) %}{{ a }}{{ b }}{{ caller() if caller }}{% endmacro %}{{ f(1) }}{{ f(1, b=2) }}{% call f(3) %}C{% endcall %}{% with z = 5, y = 6 %}{{ z + y }}{% endwith %}{{ z }}",
    "{% macro g() %}{{ later }}{% endmacro %}{% set later = 'L' %}{{ g() }}{% for i in [1] %}{% set later = 'M' %}{{ g() }}{% endfor %}",
    "  {% if true %}  \n  a\n  {% endif %}\n  b  {%- if true +%}\n c {% endif -%}  \n d\n{{ 'e' }}\n\n{# c #}\nf\n",
    "\n{%+ if true %} x{% endif %}\r\ny\rz {#- c -#} w\n{% raw %} {{ raw }} {% endraw %}\n\t{% if true -%} \n q{% endif %}",
    "{{ dict(a=1, b='x') }} {{ range(2, 8, 3) | list }} {{ range(3, 0, -1) | list }} {{ [1, 2, 3][1:] + [4] }} {{ ('a', 'b') }} {{ () }}",
    "{{ rows | map(attribute='v.w', default=0) | list }} {{ rows[0].v.w }} {{ rows[0]['v']['w'] }} {{ [rows] | first | length }}",
    "{{ f(1) }}", "{{ missing.x }}", "{{ 1 + 'a' }}", "{{ n | nothing }}", "{{ list.append(1) }}", "{% if %}x{% endif %}", "{{ no | length }}",
    "{% for a, b in [[1, 2, 3]] %}{% endfor %}", "{{ 'x' is nothing }}", "{{ missing | tojson }}", "{{ list | map('upper') | tojson }}", "{% set n.x = 1 %}",
    "{{ 'a' < 1 }}", "{{ none + 1 }}", "{% for x in 5 %}{% endfor %}", "{{ 'a'.frobnicate() }}", "{{ raise_exception('No!') }}", "{% else %}", "{{ }}", "{{ 1 2 }}",
]


def main():
    cases = []
    for name, template in CHATS.items():
        for messages in (TURNS[:2], TURNS, TURNS[1:], []):
            variables = {"messages": messages, "tools": TOOLS, "add_generation_prompt": len(messages) == 2, "bos_token": "<s>", "eos_token": "</s>"}
            cases.append(render(f"{name}, {len(messages)} messages", template, variables))
    cases += [render(template, template, VALUES) for template in EXPRESSIONS]
    (HERE / "templates.json").write_text(json.dumps(cases, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    print(len(cases), "cases,", sum("error" in case for case in cases), "of them refused")


if __name__ == "__main__":
    main()
