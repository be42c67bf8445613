#!/usr/bin/env python3
"""Generate the files in this folder: a text, and the results of Hugging Face's tokenizer trainers on it.

    python tests/golden/learn/make_learn.py

Needs the package `tokenizers`. The text is generated from a fixed seed: sentences, numbers, some lines in other scripts,
and strings over a small alphabet, in which different merges often produce the same token.

    text.txt                 the text, one document
    long.txt                 a text with pre-tokens of up to 5000 bytes
    bpe-long.txt             merges of a byte-level BPE on it, trained until no pair occurs twice
    bpe.txt                  merges of a byte-level BPE
    bpe-all.txt              the same, trained until no pair occurs twice
    wordpiece.txt            WordPiece vocabulary, lowercase, without accents
    wordpiece-cased.txt      WordPiece vocabulary with case and accents, and a limited alphabet

WordPieceTrainer assigns ids to word-internal characters in hash table order, which changes between runs, and uses these
ids to break ties between equally frequent pairs. To make the result deterministic, the script passes the alphabet in
weft's order as special tokens.
"""
import json
from pathlib import Path

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

HERE = Path(__file__).parent
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
STEMS = ("weav thread loom warp weft spin shuttl pattern fabric cloth knot dye wool silk linen cotton twist colour "
         "stitch edge border fold").split()
ENDINGS = ["", "s", "e", "er", "ers", "ing", "ed", "y", "less", "ful", "fully", "ness"]
SMALL = "the a of and to in is with under over as not no we they it that this from by".split()
OTHERS = ["Ein Fädchen läuft über die Mühle, größer als zwei.", "Où est passée la façade de l'été ?", "Нить идёт вверх и вниз.",
          "糸を織る。布は白い。", "실을 짠다.", "الخيط طويل", "ΝΉΜΑ και Νήμα", "naïve façade, coöperate, İstanbul", "👩‍🔧 🧵 \U0001F9F6"]


class Numbers:
    """A linear congruential generator, identical on every platform."""

    def __init__(self, seed):
        self.state = seed

    def below(self, bound):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % bound

    def of(self, items):
        """A random item; earlier items are more likely."""
        return items[min(self.below(len(items)), self.below(len(items)))]


def make_text():
    numbers, lines = Numbers(7), []
    for i in range(420):
        words = []
        for _ in range(6 + numbers.below(9)):
            kind = numbers.below(10)
            words.append(numbers.of(SMALL) if kind < 4 else numbers.of(STEMS) + numbers.of(ENDINGS) if kind < 9
                         else str(numbers.below(3000)))
        line = " ".join(words)
        lines.append(line[0].upper() + line[1:] + numbers.of([".", ".", "!", "?", ";", " ...", ", isn't it?"]))
        if i % 7 == 0:
            lines.append("  ".join("".join("abc"[numbers.below(3)] for _ in range(2 + numbers.below(9))) for _ in range(6)))
        if i % 11 == 0:
            lines.append(numbers.of(OTHERS))
        if i % 13 == 0:
            lines.append("\t\n  x")
    return "\n".join(lines) + "\n"


def make_long_text():
    """Pre-tokens of letters, of digits, and runs of one character or of a few, in every alignment to blocks of 512 bytes."""
    numbers, lines = Numbers(11), []
    for size in (511, 512, 513, 600, 1024, 1025, 1500, 2049, 5000):
        lines.append("".join("abcd"[numbers.below(4)] for _ in range(size)))
    lines.append("".join(str(numbers.below(3)) for _ in range(1700)))
    lines += ["=" * 2055, "-" * 1023, "xyz" * 700, "ab" * 511 + "b", "織" * 400, " " * 1300 + "end", "aab" * 345 + "q" * 2000]
    return "\n".join(lines) + "\n"


def learn_bpe(text, vocab):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator([text], trainers.BpeTrainer(
        vocab_size=vocab, min_frequency=2, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return [" ".join(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]


def learn_wordpiece(text, vocab, cased, limit):
    normalizer = normalizers.BertNormalizer(lowercase=not cased, strip_accents=not cased)
    splitter = pre_tokenizers.BertPreTokenizer()
    counts, inside = {}, set()
    words = [word for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text))]
    for word in words:
        for c in word:
            counts[c] = counts.get(c, 0) + 1
    alphabet = sorted(sorted(counts, key=lambda c: (-counts[c], c))[:limit])
    for word in words:
        inside.update("##" + c for c in word[1:] if c in alphabet)
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, splitter
    tokenizer.train_from_iterator([text], trainers.WordPieceTrainer(
        vocab_size=vocab, min_frequency=2, show_progress=False, limit_alphabet=limit, initial_alphabet=alphabet,
        special_tokens=SPECIAL + alphabet + sorted(inside)))
    ids = tokenizer.get_vocab()
    return sorted(ids, key=ids.get)


def main():
    text = make_text()
    files = {"text.txt": text, "long.txt": make_long_text()}
    for name, lines in {"bpe-long.txt": learn_bpe(files["long.txt"], 100000), "bpe.txt": learn_bpe(text, 700), "bpe-all.txt": learn_bpe(text, 100000),
                        "wordpiece.txt": learn_wordpiece(text, 500, False, 1000),
                        "wordpiece-cased.txt": learn_wordpiece(text, 600, True, 80)}.items():
        files[name] = "\n".join(lines) + "\n"
    for name, content in files.items():
        (HERE / name).write_text(content, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
