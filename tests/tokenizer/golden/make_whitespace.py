#!/usr/bin/env python3
"""Generate whitespace_cases.jsonl: added tokens that consist of whitespace, and the ids that the tokenizers library assigns to
texts with them. Requires tokenizers (written with 0.23.3; 0.22.1 gives the same ids). Commit the script and its output
together.

Each line is {"base", "added", "texts", "ids"}. base: "bpe" is bpe.json with <|endoftext|> and the added tokens only; "cased"
and "uncased" are BERT tokenizers with the vocabulary of wordpiece_BASE.txt. Texts on which the library panics are left out:
it cannot handle a match within whitespace that the previous match has stripped. So are tokens that become equal when they
are normalized, of which it chooses one at random.
"""
import copy
import json
import pathlib
import random

from tokenizers import Tokenizer

HERE = pathlib.Path(__file__).parent
NAMES = [" ", "  ", "   ", "\n", "\n\n", "\t", "\u00a0", "\u3000", "\r\n", " \n", "\u2028", "\x0b", "\x1c", "\x85"]
CONTROL = "\x0b\x1c\x85"  # removed by BERT's normalizer
PIECES = [" ", "  ", "\n", "\t", "\u00a0", "\u3000", "a", "the ", "loom", "x", "\r\n", "\u2028", ".", "\u00e9", "<|endoftext|>",
          "[SEP]", "\x0b", "\x85", "\x1c"]
FLAGS = {"single_word": 0.2, "lstrip": 0.35, "rstrip": 0.35, "normalized": 0.5, "special": 0.3}
LINES, TEXTS = 36, 8
# Tokens that strip on both sides match again in the whitespace that they have stripped.
STRIPPED = ["the \n  \n\u00a0\u3000\u3000", "a   b", "   ", "a \n \n b  c ", " a ", "\n \n "]


def token(name, number, **flags):
    return {"id": number, "content": name, **{flag: flags.get(flag, False) for flag in FLAGS}}


def bert(base):
    vocab = {line: i for i, line in enumerate((HERE / f"wordpiece_{base}.txt").read_text().splitlines())}
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [token(name, vocab[name], special=True) for name in special],
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
                       "lowercase": base == "uncased"},
        "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": None,
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100, "vocab": vocab},
    }


def bpe():
    tokenizer = json.loads((HERE / "bpe.json").read_text())
    tokenizer["added_tokens"] = tokenizer["added_tokens"][:1]
    return tokenizer


def draw_added(rng, base, number):
    added, seen = [], set()
    for name in rng.sample(NAMES, rng.randint(1, 4)):
        flags = {flag: rng.random() < share for flag, share in FLAGS.items()}
        normal = "".join(" " if c.isspace() else c for c in name)
        if base != "bpe" and flags["normalized"]:
            if normal in seen or any(c in CONTROL for c in name):
                continue
            seen.add(normal)
        added.append(token(name, number + len(added), **flags))
    return added


def encode(tokenizer, text):
    try:
        return tokenizer.encode(text, add_special_tokens=False).ids
    except BaseException:  # a panic is not an Exception
        return None


def main():
    rng = random.Random(7)
    bases = {"bpe": bpe(), "cased": bert("cased"), "uncased": bert("uncased")}
    with open(HERE / "whitespace_cases.jsonl", "w") as out:
        for i in range(LINES):
            base = list(bases)[i % 3]
            spec = copy.deepcopy(bases[base])
            number = max(spec["model"]["vocab"].values()) + 1
            added = draw_added(rng, base, number)
            if i < 3:
                added = [token(" ", number, lstrip=True, rstrip=True, normalized=i == 2)]
            spec["added_tokens"] += added
            tokenizer = Tokenizer.from_str(json.dumps(spec))
            drawn = ["".join(rng.choices(PIECES, k=rng.randint(1, 8))) for _ in range(TEXTS)] + STRIPPED * (i < 3)
            pairs = [(text, encode(tokenizer, text)) for text in drawn]
            pairs = [pair for pair in pairs if pair[1] is not None]
            line = {"base": base, "added": added, "texts": [p[0] for p in pairs], "ids": [p[1] for p in pairs]}
            out.write(json.dumps(line, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
