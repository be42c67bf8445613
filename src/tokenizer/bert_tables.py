#!/usr/bin/env python3
"""Generate bert_tables.inc in the same directory: how BERT's tokenizer treats each character.

The tables are not derived from a Unicode database: every code point is passed to Hugging Face's `tokenizers` and the
result recorded, so that token ids do not depend on what is installed. That library mixes tables of several Unicode
versions, which no single database reproduces.

    python src/tokenizer/bert_tables.py        needs: pip install tokenizers (generated with 0.23.3)
"""
import pathlib

from tokenizers import normalizers, pre_tokenizers

ALL = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
HANGUL = range(0xAC00, 0xD7A4)  # decomposed by arithmetic
DROP, BLANK, WHITE, PUNCT, CJK, MARK, SPLITS, LOWERS = (1 << i for i in range(8))


def bert(**on):
    settings = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    return normalizers.BertNormalizer(**{**settings, **on}).normalize_str


clean, spaced = bert(clean_text=True), bert(handle_chinese_chars=True)
strip, lower = bert(strip_accents=True), bert(lowercase=True)
nfd = normalizers.NFD().normalize_str
cut = pre_tokenizers.BertPreTokenizer().pre_tokenize_str


def flags_of(c):
    s = chr(c)
    flags = 0
    cleaned = clean(s)
    if cleaned == "":
        flags |= DROP
    elif cleaned != s or s == " ":
        assert cleaned == " "
        flags |= BLANK
    words = [word for word, _ in cut("a" + s + "b")]
    if words == ["a", "b"]:
        flags |= WHITE
    elif len(words) == 3:
        flags |= PUNCT
    if spaced(s) != s:
        assert spaced(s) == " " + s + " "
        flags |= CJK
    if strip(s) == "":
        flags |= MARK
    elif strip(s) != s:
        flags |= SPLITS
    if lower(s) != s:
        flags |= LOWERS
    return flags


def combining_classes():
    """The combining class of each mark, renumbered from 1, found by testing which marks NFD moves before which."""

    def moves(first, second):
        return first != second and nfd("a" + chr(first) + chr(second)) == "a" + chr(second) + chr(first)

    # U+0345 has the highest class, U+0334 the lowest. A mark moves before the former or after the latter.
    single = [c for c in ALL if len(nfd(chr(c))) == 1 and nfd(chr(c)) == chr(c)]
    marks = [c for c in single if c == 0x345 or moves(0x345, c) or moves(c, 0x334)]
    levels = []  # one mark of each class, lowest first
    for c in marks:
        if any(not moves(c, other) and not moves(other, c) for other in levels):
            continue
        at = sum(1 for other in levels if moves(c, other))
        levels.insert(at, c)
    return {c: 1 + sum(1 for other in levels if moves(c, other)) for c in marks}, len(levels)


def runs_of(values):
    """(first, value) wherever the value changes. Surrogates get the value of the run before them."""
    runs = []
    for c, value in values:
        if not runs or runs[-1][1] != value:
            runs.append((c, value))
    return runs


def lower_runs(pairs):
    """(first, last, step, delta) for all pairs of a character and its lowercase form."""
    runs = []
    for c, to in pairs:
        if runs and runs[-1][3] == to - c:
            first, last, step, delta = runs[-1]
            if c - last == step or (step == 0 and c - last <= 2):
                runs[-1] = (first, c, c - last, delta)
                continue
        runs.append((c, c, 0, to - c))
    return [(first, last, step or 1, delta) for first, last, step, delta in runs]


def array(kind, name, items):
    lines, line = [f"static const {kind} {name}[] = {{"], "   "
    for item in items:
        if len(line) + len(item) + 2 > 110:
            lines.append(line)
            line = "   "
        line += f" {item},"
    return "\n".join(lines + [line, "};", ""])


def main():
    marks, levels = combining_classes()
    kinds = {c: (flags_of(c), marks.get(c, 0)) for c in ALL}
    records = sorted(set(kinds.values()))
    assert len(records) <= 256
    runs = runs_of((c, records.index(kinds[c])) for c in ALL)

    strips = [(c, strip(chr(c))) for c in ALL if kinds[c][0] & SPLITS and c not in HANGUL]
    assert all(1 <= len(to) <= 3 for _, to in strips)
    for c in HANGUL:
        i = c - 0xAC00
        expected = [0x1100 + i // 588, 0x1161 + i % 588 // 28] + ([0x11A7 + i % 28] if i % 28 else [])
        assert [ord(x) for x in strip(chr(c))] == expected
    outs, at = [], []
    for _, to in strips:
        at.append(len(outs))
        outs += [ord(x) for x in to]
    # The C code relies on this: characters that are sorted, or that become several, do not separate words.
    assert all(not kinds[ord(x)][0] & (WHITE | PUNCT) for _, to in strips if len(to) > 1 for x in to)
    for c in ALL:
        flags, level = kinds[c]
        assert not level or not flags & (WHITE | PUNCT | CJK | BLANK | SPLITS | LOWERS)
        assert not flags & CJK or len(strip(chr(c))) == 1
    lowers = [(c, lower(chr(c))) for c in ALL if kinds[c][0] & LOWERS]
    assert [(c, to) for c, to in lowers if len(to) != 1] == [(0x130, "i\u0307")]
    lowers = lower_runs([(c, ord(to)) for c, to in lowers if len(to) == 1])

    text = "/* Generated by bert_tables.py; do not edit. Included by bert_chars.c, which describes the tables. */\n\n"
    text += f"/* Flags and combining class (renumbered 1 to {levels}; 0: none) of each distinct kind of character. */\n"
    text += array("Kind", "kinds", [f"{{{flags}, {level}}}" for flags, level in records])
    text += "\n/* Runs of equal properties: first character << 8 | index in kinds; a run ends before the next one starts. */\n"
    text += array("uint32_t", "runs", [f"{c << 8 | value:#x}" for c, value in runs])
    text += "\n/* NFD without accents: character << 2 | length; strip_at: index of the first character in strip_to */\n"
    text += array("uint32_t", "strip_from", [f"{c << 2 | len(to):#x}" for c, to in strips])
    text += array("uint16_t", "strip_at", [str(i) for i in at])
    text += array("uint32_t", "strip_to", [f"{c:#x}" for c in outs])
    text += "\n/* Lowercase: first, last, step between characters, difference to the lowercase form */\n"
    text += array("Lower", "lowers", ["{%#x, %#x, %d, %d}" % run for run in lowers])
    pathlib.Path(__file__).with_name("bert_tables.inc").write_text(text)


if __name__ == "__main__":
    main()
