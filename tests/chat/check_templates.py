#!/usr/bin/env python3
"""Compare chat templates with transformers: every template of a directory (*.jinja, or tokenizer_config.json) on conversations
with system messages, several turns, tool calls and results, with and without a generation prompt.

    python tests/chat/check_templates.py DIRECTORY build/cpu/tests/test_chat.jinja

Requires transformers and jinja2. A case agrees if both give the same text, or both refuse it. Templates belong to their
models, so none of them is in this repository.
"""
import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys
import tempfile

from golden.render import render

USER = {"role": "user", "content": "What is  2 + 2?\n"}
ANSWER = {"role": "assistant", "content": " It is 4.\n"}
SYSTEM = {"role": "system", "content": "You weave \"short\" answers.\n"}
MORE = {"role": "user", "content": "Und auf Deutsch? 'Vier', naïve 织工 👩‍💻 <b>"}
LAST = {"role": "assistant", "content": "Vier."}
TOOL = {"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a city",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "The city's <name>"},
        "unit": {"type": "string", "enum": ["C", "F"]},
        "days": {"type": "array", "items": {"type": "integer"}}}, "required": ["city"]}}}
CALL = {"role": "assistant", "content": "", "tool_calls": [{"id": "abc123456", "type": "function", "function": {
    "name": "get_weather", "arguments": {"city": "Köln", "days": [1, 2], "exact": True, "rate": 0.5, "none": None}}}]}
RESULT = {"role": "tool", "name": "get_weather", "tool_call_id": "abc123456", "content": "{\"temperature\": 21.5}"}
THOUGHT = {"role": "assistant", "content": "<think>\nAdd them.\n</think>\n\nIt is 4."}
REASON = {"role": "assistant", "reasoning_content": "Add them.", "content": "It is 4."}
PARTS = {"role": "user", "content": [{"type": "text", "text": "What is this?"}, {"type": "text", "text": " And that?"}]}

CONVERSATIONS = {
    "user": [USER], "one turn": [USER, ANSWER], "system": [SYSTEM, USER], "system turn": [SYSTEM, USER, ANSWER],
    "turns": [USER, ANSWER, MORE, LAST], "system turns": [SYSTEM, USER, ANSWER, MORE, LAST, USER],
    "tools": [SYSTEM, USER, CALL, RESULT, ANSWER], "tool result": [USER, CALL, RESULT],
    "two calls": [USER, {**CALL, "tool_calls": CALL["tool_calls"] * 2}, RESULT, RESULT],
    "no content": [USER, {**CALL, "content": None}, RESULT, LAST, MORE],
    "text call": [USER, {**CALL, "tool_calls": [{**CALL["tool_calls"][0], "function": {
        "name": "f", "arguments": "{\"a\": 1}"}}]}, RESULT],
    "thought": [USER, THOUGHT, MORE, THOUGHT], "reasoning": [USER, REASON, MORE, REASON], "parts": [PARTS, LAST],
    "empty": [{"role": "user", "content": ""}, {"role": "assistant", "content": ""}],
    "wrong order": [ANSWER, USER], "unknown role": [USER, {"role": "narrator", "content": "Night falls."}], "none": [],
}


def load(path):
    """(name, template, special tokens) of a file."""
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    if path.suffix != ".json":
        yield path.name, path.read_text(encoding="utf-8"), special
        return
    config = json.loads(path.read_text(encoding="utf-8"))
    for key in special:
        token = config.get(key)
        if token:
            special[key] = token if isinstance(token, str) else token["content"]
    template = config["chat_template"]
    for one in template if isinstance(template, list) else [{"name": "default", "template": template}]:
        yield f"{path.parent.name}/{path.name} {one['name']}", one["template"], special


def cases(name, template, special):
    for title, messages in CONVERSATIONS.items():
        tools = [TOOL] if "call" in title or "tool" in title or title == "no content" else None
        for prompt in (False, True):
            for more in ({}, {"enable_thinking": False}) if "thinking" in template else ({},):
                variables = {"messages": messages, "tools": tools, "documents": None, "add_generation_prompt": prompt,
                             **special, **more}
                yield render(f"{name}: {title}, prompt {prompt}, {more}", template, variables)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("program", type=pathlib.Path)
    arguments = parser.parse_args()
    everything, templates = [], {}
    for path in sorted(p for p in arguments.directory.rglob("*") if p.suffix in (".jinja", ".json")):
        for name, template, special in load(path):
            found = list(cases(name, template, special))
            templates[name] = sum("text" in case for case in found)
            everything += found
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(everything, file)
        file.flush()
        done = subprocess.run([arguments.program, file.name], capture_output=True, text=True, errors="replace", check=False)
    lines = (done.stdout + done.stderr).splitlines()
    wrong = collections.Counter(name for line in lines for name in templates if line.startswith(name + ": "))
    for line in lines:
        if any(line.startswith(name + ": ") for name in templates) or re.match("  (expected|found|weft)", line):
            print(line)
    print(next(line for line in lines if line.endswith("cases agree")))
    print(f"{len(templates) - len(wrong)} of {len(templates)} templates agree in all cases; "
          f"{sum(templates.values())} cases give text, the others are refused")
    for name in wrong:
        print(f"  {wrong[name]} differences: {name}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
