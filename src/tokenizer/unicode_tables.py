#!/usr/bin/env python3
"""Generate unicode_tables.inc in the same directory: character properties for regular expressions, and normalization.

As for bert_tables.py, every code point is passed to Hugging Face's `tokenizers` and the result recorded, so that token
ids do not depend on what is installed. Its regular expressions (Oniguruma), its normalization and its own tests of
characters follow different versions of Unicode.

    python src/tokenizer/unicode_tables.py     needs: pip install tokenizers (generated with 0.23.3)
"""
import pathlib

from tokenizers import Regex, normalizers, pre_tokenizers

ALL = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
TEXT = "".join(map(chr, ALL))
HANGUL = range(0xAC00, 0xD7A4)  # decomposed and composed by arithmetic
CATEGORIES = "Cn Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co".split()
SCRIPTS = "Latin Greek Cyrillic Armenian Hebrew Arabic Devanagari Bengali Thai Hangul Hiragana Katakana Han".split()
CATEGORY_BITS, SCRIPT_BITS = 5, 4
SPACE, WORD, NUMERIC, CLASS_WORD, ALPHABETIC, UPPER, LOWER, ACCENT = (1 << (CATEGORY_BITS + SCRIPT_BITS + i) for i in range(8))

nfc, nfd = normalizers.NFC().normalize_str, normalizers.NFD().normalize_str
nfkc, nfkd = normalizers.NFKC().normalize_str, normalizers.NFKD().normalize_str


def members(pattern):
    split = pre_tokenizers.Split(Regex(pattern + "+"), "removed", invert=True)
    return [c for _, (a, b) in split.pre_tokenize_str(TEXT) for c in ALL[a:b]]


def properties():
    value = dict.fromkeys(ALL, 0)
    for i, name in enumerate(CATEGORIES[1:], 1):
        for c in members(rf"\p{{{name}}}"):
            assert value[c] == 0
            value[c] = i
    for i, name in enumerate(SCRIPTS, 1):
        for c in members(rf"\p{{{name}}}"):
            assert value[c] >> CATEGORY_BITS == 0
            value[c] |= i << CATEGORY_BITS
    # Oniguruma's \w has more characters outside a class than in one.
    for bit, pattern in ((SPACE, r"\s"), (WORD, r"\w"), (CLASS_WORD, r"[\w]"), (ALPHABETIC, "[[:alpha:]]"),
                         (UPPER, "[[:upper:]]"), (LOWER, "[[:lower:]]")):
        for c in members(pattern):
            value[c] |= bit
    assert {c for c in ALL if value[c] & 31 == CATEGORIES.index("Nd")} == set(members(r"\d"))
    for c in ALL:
        if not normalizers.StripAccents().normalize_str(chr(c)):
            value[c] |= ACCENT
    digits = pre_tokenizers.Digits(individual_digits=True)
    for _, (a, b) in digits.pre_tokenize_str("x".join(TEXT) + "x"):
        if b - a == 1 and a % 2 == 0 and a > 0:
            value[ALL[a // 2]] |= NUMERIC
    return value


def combining_classes():
    """The combining class of each mark, renumbered from 1, found by testing which marks NFD moves before which."""

    def moves(first, second):
        return first != second and nfd("a" + chr(first) + chr(second)) == "a" + chr(second) + chr(first)

    single = [c for c in ALL if nfd(chr(c)) == chr(c)]
    marks = [c for c in single if c == 0x345 or moves(0x345, c) or moves(c, 0x334)]
    levels = []
    for c in marks:
        if any(not moves(c, other) and not moves(other, c) for other in levels):
            continue
        levels.insert(sum(1 for other in levels if moves(c, other)), c)
    return {c: 1 + sum(1 for other in levels if moves(c, other)) for c in marks}


def runs_of(values):
    runs = []
    for c, value in values:
        if not runs or runs[-1][1] != value:
            runs.append((c, value))
    return runs


def array(kind, name, items):
    lines, line = [f"static const {kind} {name}[] = {{"], "   "
    for item in items:
        if len(line) + len(item) + 2 > 110:
            lines.append(line)
            line = "   "
        line += f" {item},"
    return "\n".join(lines + [line, "};", ""])


def decompositions(name, pairs):
    """character << 8 | length, the index of its first character in the list of results, and that list."""
    at, out = [], []
    for _, to in pairs:
        at.append(len(out))
        out += [ord(x) for x in to]
    assert max(len(to) for _, to in pairs) < 32 and len(out) < 65536
    return (array("uint32_t", name + "_from", [f"{c << 8 | len(to):#x}" for c, to in pairs])
            + array("uint16_t", name + "_at", map(str, at)) + array("uint32_t", name + "_to", [f"{c:#x}" for c in out]))


def main():
    value = properties()
    # Every mark with a class is its own NFD, except a few that NFD replaces; those need no class of their own.
    marks = combining_classes()
    canonical = [(c, nfd(chr(c))) for c in ALL if nfd(chr(c)) != chr(c) and c not in HANGUL]
    compatible = [(c, nfkd(chr(c))) for c in ALL if nfkd(chr(c)) != nfd(chr(c))]
    pairs = []
    for c, to in canonical:
        if nfc(chr(c)) != chr(c):
            continue
        first = nfc(to[:-1])
        assert len(first) == 1 and nfc(first + to[-1]) == chr(c), hex(c)
        pairs.append((ord(first), ord(to[-1]), c))
    pairs.sort()
    assert all(nfkc(chr(c)) == nfc(nfkd(chr(c))) for c in ALL)

    text = "/* Generated by unicode_tables.py; do not edit. Included by unicode.c, which describes the tables. */\n\n"
    text += "static const char *const category_names[] = {%s};\n" % ", ".join(f'"{name}"' for name in CATEGORIES)
    text += "/* The first script has number 1. */\n"
    text += "static const char *const script_names[] = {%s};\n" % ", ".join(f'"{name}"' for name in SCRIPTS)
    text += "\n/* first character, properties; a run ends before the next one starts */\n"
    text += array("CharRun", "property_runs", [f"{{{c:#x}, {v:#x}}}" for c, v in runs_of(value.items())])
    text += "\n/* first character, combining class renumbered in ascending order, or 0 */\n"
    text += array("CharRun", "combining_runs", [f"{{{c:#x}, {v}}}" for c, v in runs_of((c, marks.get(c, 0)) for c in ALL)])
    text += "\n/* NFD, except Hangul: character << 8 | length; index of the result in canonical_to */\n"
    text += decompositions("canonical", canonical)
    text += "\n/* NFKD, where it differs from NFD */\n"
    text += decompositions("compatible", compatible)
    text += "\n/* Two characters that NFC replaces by a third, except Hangul, sorted */\n"
    text += array("CharPair", "composed", ["{%#x, %#x, %#x}" % pair for pair in pairs])
    pathlib.Path(__file__).with_name("unicode_tables.inc").write_text(text)


if __name__ == "__main__":
    main()
