#!/usr/bin/env python3
"""Generate unicode_tables.inc in the same directory: the properties of characters, and normalization.

The tables are not derived from a Unicode database: every code point is passed to Hugging Face's `tokenizers` and the
result recorded, so that token ids do not depend on what is installed. Its regular expressions (Oniguruma), its
normalization, BERT's normalizer and its own tests of characters follow different versions of Unicode, which no single
database reproduces.

    python src/tokenizer/unicode_tables.py     needs: pip install tokenizers (generated with 0.23.3)
"""
import pathlib

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

ALL = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
TEXT = "".join(map(chr, ALL))
HANGUL = range(0xAC00, 0xD7A4)  # decomposed and composed by arithmetic
CATEGORIES = "Cn Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co".split()
SCRIPTS = "Latin Greek Cyrillic Armenian Hebrew Arabic Devanagari Bengali Thai Hangul Hiragana Katakana Han".split()
SPACE, WORD, NUMERIC, CLASS_WORD, ALPHABETIC, UPPER, LOWER, ACCENT = (1 << i for i in range(8))  # CharProperty
DROP, BLANK, WHITE, PUNCT, CJK, MARK, SPLITS, LOWERS = (1 << i for i in range(8))  # chars.h

nfc, nfd = normalizers.NFC().normalize_str, normalizers.NFD().normalize_str
nfkc, nfkd = normalizers.NFKC().normalize_str, normalizers.NFKD().normalize_str


def members(pattern):
    split = pre_tokenizers.Split(Regex(pattern + "+"), "removed", invert=True)
    return [c for _, (a, b) in split.pre_tokenize_str(TEXT) for c in ALL[a:b]]


def numbered(names):
    """The number of each character's category or script, from 1 for the first of the names that is not Cn."""
    value = dict.fromkeys(ALL, 0)
    for i, name in enumerate((name for name in names if name != "Cn"), 1):
        for c in members(rf"\p{{{name}}}"):
            assert value[c] == 0
            value[c] = i
    return value


def properties():
    value = dict.fromkeys(ALL, 0)
    # Oniguruma's \w has more characters outside a class than in one.
    for bit, pattern in ((SPACE, r"\s"), (WORD, r"\w"), (CLASS_WORD, r"[\w]"), (ALPHABETIC, "[[:alpha:]]"),
                         (UPPER, "[[:upper:]]"), (LOWER, "[[:lower:]]")):
        for c in members(pattern):
            value[c] |= bit
    for c in ALL:
        if not normalizers.StripAccents().normalize_str(chr(c)):
            value[c] |= ACCENT
    digits = pre_tokenizers.Digits(individual_digits=True)
    for _, (a, b) in digits.pre_tokenize_str("x".join(TEXT) + "x"):
        if b - a == 1 and a % 2 == 0 and a > 0:
            value[ALL[a // 2]] |= NUMERIC
    return value


def check_classes(category, value):
    """char_class follows from the properties: as text around a character is split by GPT-2's pattern, and as added
    tokens end at words."""
    split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True).pre_tokenize_str
    tokenizer = Tokenizer(models.BPE(vocab={"a": 0}, merges=[]))
    tokenizer.add_tokens([AddedToken("tok", single_word=True, normalized=False)])
    for c in ALL:
        name, char = CATEGORIES[category[c]], chr(c)
        assert (name[0] == "L") == (len(split("x" + char)) == 1), hex(c)
        assert (name[0] == "N") == (name[0] != "L" and len(split("1" + char)) == 1), hex(c)
        assert bool(value[c] & SPACE) == (name[0] not in "LN" and len(split("!" + char)) == 2), hex(c)
        word = value[c] & CLASS_WORD or c in (0x200C, 0x200D)
        assert bool(word) == ("tok" not in tokenizer.encode("tok" + char).tokens), hex(c)


def bert(**on):
    settings = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    return normalizers.BertNormalizer(**{**settings, **on}).normalize_str


clean, spaced = bert(clean_text=True), bert(handle_chinese_chars=True)
strip, lower = bert(strip_accents=True), bert(lowercase=True)
cut = pre_tokenizers.BertPreTokenizer().pre_tokenize_str


def bert_flags(c):
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


def check_bert(flags, marks):
    """What bert_chars.c relies on: an accent is a mark; characters that are sorted, or become several, do not separate
    words."""
    for c in ALL:
        stripped = strip(chr(c))
        assert flags[c] & MARK or stripped == "".join(x for x in nfd(chr(c)) if not flags[ord(x)] & MARK), hex(c)
        assert len(stripped) < 4 and (len(stripped) < 2 or not any(flags[ord(x)] & (WHITE | PUNCT) for x in stripped))
        assert c not in marks or not flags[c] & (WHITE | PUNCT | CJK | BLANK | SPLITS | LOWERS)
        assert not flags[c] & CJK or len(stripped) == 1


def combining_classes():
    """The combining class of each mark, renumbered from 1, found by testing which marks NFD moves before which."""

    def moves(first, second):
        return first != second and nfd("a" + chr(first) + chr(second)) == "a" + chr(second) + chr(first)

    # U+0345 has the highest class, U+0334 the lowest. A mark moves before the former or after the latter.
    single = [c for c in ALL if nfd(chr(c)) == chr(c)]
    marks = [c for c in single if c == 0x345 or moves(0x345, c) or moves(c, 0x334)]
    levels = []  # one mark of each class, lowest first
    for c in marks:
        if any(not moves(c, other) and not moves(other, c) for other in levels):
            continue
        levels.insert(sum(1 for other in levels if moves(c, other)), c)
    return {c: 1 + sum(1 for other in levels if moves(c, other)) for c in marks}


def runs_of(values):
    """(first, value) wherever the value changes. Surrogates get the value of the run before them."""
    runs = []
    for c, value in values:
        if not runs or runs[-1][1] != value:
            runs.append((c, value))
    return runs


def delta_runs(pairs):
    """(first, last, step, delta) for all pairs of a character and another one."""
    runs = []
    for c, to in pairs:
        if runs and runs[-1][3] == to - c:
            first, last, step, delta = runs[-1]
            if c - last == step or (step == 0 and c - last <= 2):
                runs[-1] = (first, c, c - last, delta)
                continue
        runs.append((c, c, 0, to - c))
    return [(first, last, step or 1, delta) for first, last, step, delta in runs]


def digits(number):
    """A number as unicode.c reads it: 5 bits per character, lowest first; all but the last character have 32 added."""
    text = ""
    while True:
        digit = number & 31 | (32 if number >= 32 else 0)
        text += chr(ord("#") + digit + (ord("#") + digit >= ord("\\")))
        number >>= 5
        if not number:
            return text


def signed(number):
    return 2 * number if number >= 0 else -2 * number - 1


def array(kind, name, rows):
    """An array, and the text with its values: the numbers of each row."""
    text = "".join(digits(number) for row in rows for number in row)
    lines = [f'    "{text[at : at + 104]}"' for at in range(0, len(text), 104)]
    return f"static {kind} {name}[{len(rows)}];\nstatic const char {name}_text[] =\n" + "\n".join(lines) + ";\n"


def steps(values):
    """Each value as the difference from the one before."""
    return [value - before for before, value in zip([0, *values], values)]


def decompositions(name, pairs, excluded=()):
    """The distance from the previous character, and the length; and all results, one after the other."""
    assert max(len(to) for _, to in pairs) < 32
    from_rows = [(step, 2 * len(to) + (c in excluded)) for step, (c, to) in zip(steps([c for c, _ in pairs]), pairs)]
    to_rows = [(signed(step),) for step in steps([ord(x) for _, to in pairs for x in to])]
    return array("Decomposition", name + "_from", from_rows) + array("uint32_t", name + "_to", to_rows)


def check_composition(canonical, excluded):
    """unicode.c finds the pair that composes to a character from its decomposition: all but the last one composed."""
    for c, to in canonical:
        if c not in excluded:
            first = nfc(to[:-1])
            assert len(first) == 1 and nfc(first + to[-1]) == chr(c), hex(c)
    assert all(nfkc(chr(c)) == nfc(nfkd(chr(c))) for c in ALL)


def main():
    category, script, value = numbered(CATEGORIES), numbered(SCRIPTS), properties()
    check_classes(category, value)
    # Every mark with a class is its own NFD, except a few that NFD replaces; those need no class of their own.
    marks = combining_classes()
    flags = {c: bert_flags(c) for c in ALL}
    check_bert(flags, marks)
    kinds = {c: (category[c], script[c], marks.get(c, 0), value[c], flags[c]) for c in ALL}
    records = sorted(set(kinds.values()))
    assert len(records) <= 1 << 11

    canonical = [(c, nfd(chr(c))) for c in ALL if nfd(chr(c)) != chr(c) and c not in HANGUL]
    excluded = {c for c, _ in canonical if nfc(chr(c)) != chr(c)}
    check_composition(canonical, excluded)
    compatible = [(c, nfkd(chr(c))) for c in ALL if nfkd(chr(c)) != nfd(chr(c))]
    lowers = [(c, lower(chr(c))) for c in ALL if flags[c] & LOWERS]
    assert [(c, to) for c, to in lowers if len(to) != 1] == [(0x130, "i\u0307")]

    text = "/* Generated by unicode_tables.py; do not edit. Included by unicode.c, which describes the tables. */\n\n"
    text += "static const char *const category_names[] = {%s};\n" % ", ".join(f'"{name}"' for name in CATEGORIES)
    text += "/* The first script has number 1. */\n"
    text += "static const char *const script_names[] = {%s};\n" % ", ".join(f'"{name}"' for name in SCRIPTS)
    text += "\n/* Category, script, combining class (renumbered in ascending order, or 0), CharProperty bits, BERT's flags */\n"
    text += array("CharKind", "kinds", records)
    text += "\n/* Length of the run before, index in kinds; the first run starts at 0. */\n"
    runs = runs_of((c, records.index(k)) for c, k in kinds.items())
    text += array("KindRun", "kind_runs", list(zip(steps([c for c, _ in runs]), (kind for _, kind in runs))))
    text += "\n/* NFD, except Hangul: distance from the character before, 2 * length + 1 if it is excluded from composition;\n"
    text += " * results, each as the signed difference from the one before */\n"
    text += decompositions("canonical", canonical, excluded)
    text += "\n/* NFKD, where it differs from NFD */\n"
    text += decompositions("compatible", compatible)
    text += "\n/* Lowercase: first (distance from the one before), last (from first), step between characters, signed difference to\n"
    text += " * the lowercase form */\n"
    runs = delta_runs([(c, ord(to)) for c, to in lowers if len(to) == 1])
    firsts = steps([run[0] for run in runs])
    text += array("CharDelta", "lower_runs", [(step, last - first, by, signed(delta))
                                              for step, (first, last, by, delta) in zip(firsts, runs)])
    pathlib.Path(__file__).with_name("unicode_tables.inc").write_text(text)


if __name__ == "__main__":
    main()
