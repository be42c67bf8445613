#!/usr/bin/env python3
"""Generate components.json: small tokenizers, each with the components that one rule is about, and what the tokenizers
library makes of texts with them. Requires tokenizers. Commit the script and its output together.

  name      the rule
  json      tokenizer.json
  pcre2     whether a pattern needs PCRE2
  texts     [text, ids, start and end of each token in bytes, decoded text], to be encoded in this order
  decoded   [ids, text]: decoding alone
"""
import json
import pathlib

from tokenizers import Tokenizer, pre_tokenizers

HERE = pathlib.Path(__file__).parent
LOWER = {"type": "Lowercase"}
SPACES = {"type": "WhitespaceSplit"}


def vocab(*tokens):
    return {token: i for i, token in enumerate(tokens)}


def wordpiece(tokens, **more):
    return {"type": "WordPiece", "unk_token": "<unk>", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
            "vocab": vocab("<unk>", *tokens), **more}


def bpe(tokens, merges, **more):
    return {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
            "fuse_unk": True, "byte_fallback": False, "ignore_merges": False, "vocab": vocab(*tokens),
            "merges": [merge.split(" ") for merge in merges], **more}


def metaspace(scheme, split=True):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}


def replace(a, b):
    return {"type": "Replace", "pattern": {"String": a}, "content": b}


LLAMA2_DECODER = {"type": "Sequence", "decoders": [replace("▁", " "), {"type": "ByteFallback"}, {"type": "Fuse"},
                                                   {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}


def added(start, *tokens, **flags):
    plain = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=False)
    return [{"id": start + i, "content": token, **plain, **flags} for i, token in enumerate(tokens)]


def case(name, model, texts, normalizer=None, pre=None, decoder=None, tokens=(), decoded=(), pcre2=False):
    whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": list(tokens), "normalizer": normalizer,
             "pre_tokenizer": pre, "post_processor": None, "decoder": decoder, "model": model}
    tokenizer = Tokenizer.from_str(json.dumps(whole))

    def text_back(ids):
        return tokenizer.decode(ids, skip_special_tokens=False)

    def encoded(text):
        encoding = tokenizer.encode(text, add_special_tokens=False)
        at = [len(text[:i].encode()) for i in range(len(text) + 1)]
        return [text, encoding.ids, [at[i] for pair in encoding.offsets for i in pair], text_back(encoding.ids)]

    return {"name": name, "json": whole, "pcre2": pcre2, "texts": [encoded(text) for text in texts],
            "decoded": [[ids, text_back(ids)] for ids in decoded]}


BERT = {"normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
                       "lowercase": True}, "pre": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True}}


def cases():
    for limit in (3, 4):
        yield case(f"words over {limit} characters", wordpiece(["aaa", "##a", "a"], max_input_chars_per_word=limit),
                   ["aaaaa aaaa", "aaaa aaaaa", "éaaaa éaaa", "aaa aaaa aaa", "aaaa" + "aaa " * 9], **BERT)


    yield case("WordPiece without a decoder", wordpiece(["a", "##a", "."]), ["aaa a.", "[X] a"], **{**BERT, "decoder": None},
               tokens=added(4, "[X]"), decoded=[[2, 1, 3], [2, 2]])
    yield case("normalized added tokens of WordPiece", wordpiece(["a", "##a"]), ["a Füß a", "FÜSS fuß"], **BERT,
               tokens=added(3, "FÜß", normalized=True), decoded=[[3, 2]])
    strip, first = {"type": "Strip", "strip_left": True, "strip_right": True}, metaspace("first")
    for name, normalizer in [("Strip", strip), ("Replace", replace("x", "")), ("NFD", {"type": "NFD"})]:
        for tokens in [(), added(8, "[n]", normalized=True), added(8, "[l]")]:
            texts = [" ab a", "xab xa", "ab", "[n]a b", "x[n]xa", "[l]ab", " [l] ab", "x", "a\u0301b"]
            yield case(f"a prefix at the start only, after {name}, added {[t['content'] for t in tokens]}",
                       bpe(["<unk>", "▁", "a", "b", "▁a", "n", "[", "]"], ["▁ a"]), texts, normalizer, first, metaspace("first"),
                       tokens=tokens)
    runs = [[4], [4, 5], [3, 4, 5, 6], [4, 5, 6, 2, 4, 5], [1, 4, 5, 1], [3, 3, 1, 5], [7, 4, 5, 6]]
    hexes = ["<0x41>", "<0xE2>", "<0x82>", "<0xAC>"]
    yield case("runs of bytes", bpe(["<unk>", "a", "▁", *hexes, "▁a"], ["▁ a"], byte_fallback=True),
               ["a€ a", "€€A", "éa"], replace(" ", "▁"), None, LLAMA2_DECODER, decoded=runs)
    yield case("runs of bytes without Fuse", bpe(["<unk>", "a", "▁", *hexes, "▁a"], ["▁ a"], byte_fallback=True),
               ["a€ a"], None, None, {"type": "ByteFallback"}, decoded=runs)

    yield from models()
    yield from pipelines()


def wordlevel(*tokens):
    return {"type": "WordLevel", "unk_token": "<unk>", "vocab": vocab("<unk>", *tokens)}


HARD = ["the loom weaves, don't", " The  Füße\tnaïve café é", "織物 와 布。", "x=1; 12345 ½ Ⅷ²", "", "  ", "e\u0301 İSTANBUL ß", "a\u200bb\x01c\u3000d"]


def models():
    yield case("WordLevel", wordlevel("the", "loom", ",", "don", "'", "t"), HARD, LOWER, {"type": "Whitespace"}, None,
               tokens=added(7, "<s>", special=True), decoded=[[1, 2, 0, 7]])
    yield case("WordLevel with Metaspace", wordlevel("▁the", "▁loom", "▁"), HARD, None, metaspace("always"), metaspace("always"))
    pieces = ["the", "lo", "@@om", "@@s", "weave", "@@e", "caf", "f", "@@u", "naive", "1", "@@2", "@@345", "a", "e", "x"]
    for limit in (100, 4):
        yield case(f"WordPiece with another prefix, words up to {limit}",
                   wordpiece(pieces, continuing_subword_prefix="@@", max_input_chars_per_word=limit), HARD,
                   {"type": "Sequence", "normalizers": [{"type": "NFD"}, LOWER, {"type": "StripAccents"}]},
                   {"type": "Sequence", "pretokenizers": [SPACES, {"type": "Punctuation", "behavior": "Isolated"}]},
                   {"type": "WordPiece", "prefix": "@@", "cleanup": True})
    yield case("WordPiece without a prefix", wordpiece(["lo", "om", "t", "he", "é"], continuing_subword_prefix=""), HARD, None, SPACES)
    yield case("WordPiece without a pre-tokenizer", wordpiece(["the", "## ", "##loom", "x"]), [*HARD, "the loom"], None, None,
               {"type": "Sequence", "decoders": []})


def byte_level(prefix=False, regex=True):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def pipelines():
    letters = [*"abcdefghijklmnopqrstuvwxyzT", *"Ġ12345Ã©¼¶Ł,'", "Ġt", "th", "Ġth", "12", "Ã©"]
    merges = ["t h", "Ġ t", "Ġ th", "1 2", "Ã ©"]
    falcon = sequence({"type": "Punctuation", "behavior": "Contiguous"}, byte_level(),
                      {"type": "Digits", "individual_digits": False}, split("[0-9][0-9][0-9]"))
    yield case("steps after ByteLevel", bpe(["<unk>", *letters], merges, unk_token=None), ["the the 12345", "éé 12 x12", "it's, the"],
               None, falcon, byte_level(True))
    yield case("ByteLevel without all bytes", bpe(["<unk>", *letters], merges), HARD, None, byte_level(True), byte_level(True))
    yield case("ByteLevel without a decoder", bpe(["<unk>", *letters], merges), ["the the", "éa"], None, byte_level())
    everything = sorted(pre_tokenizers.ByteLevel.alphabet())
    for prefix in (True, False):
        yield case(f"a prefix space alone, prefix {prefix}", bpe(everything, [], unk_token=None), ["é", "x<s>y", "织", "\nx"], None,
                   byte_level(prefix), byte_level(), tokens=added(256, "<s>"))
    yield case("ByteLevel as a normalizer", bpe(["<unk>", *letters], merges), ["the the", "éa"],
               {"type": "ByteLevel"}, split("Ġ", "MergedWithNext"), byte_level())
    yield case("a contraction before a character", bpe(["<unk>", *letters], merges), ["it's\u2014the", "a'sé", "Ġ'té"],
               {"type": "ByteLevel"}, byte_level(), byte_level())
    yield case("marks that StripAccents does not know", bpe(["<unk>", "a"], []), ["a\u0301a\u07fda\u0898a\u1abfa\ua8ffa"],
               {"type": "StripAccents"})
    for name, normalizer in [("Nmt", {"type": "Nmt"}), ("StripAccents", {"type": "StripAccents"}), ("BertNormalizer", BERT["normalizer"]),
                             ("two spaces", replace("  ", "▁")), ("spaces", {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": "xy"})]:
        yield case(f"normalizer {name}", bpe(["<unk>", "a", "b", " ", "x", "y", "▁", "é"], []), [*HARD, "  a   b\n é  "], normalizer)
    for pre in [{"type": "BertPreTokenizer"}, {"type": "CharDelimiterSplit", "delimiter": "a"}]:
        yield case(pre["type"], wordlevel("the", "loom", "d", ","), [*HARD, "thealoomad"], None, pre)
    for decoder in [{"type": "WordPiece", "prefix": "##", "cleanup": True}, {"type": "Replace", "pattern": {"Regex": "[aeiou]+"}, "content": "-"}]:
        yield case(f"decoder {decoder['type']}", wordlevel("the", "##oom", "!", "ae"), ["the ae"], None, SPACES, decoder,
                   decoded=[[1, 2, 3], [2, 1, 4, 2], [4, 4]])
    for pattern in [r"(?<=\d)(?=\D)", r"\b", r"^\s*|\s+$", r"\p{L}+?(?=\p{L}|$)", r"(?<!\p{L})\p{L}", r"(?:\p{L}+\s?)+", r"(?=[A-Z])"]:
        for behavior in ["Isolated", "MergedWithPrevious"]:
            yield case(f"pattern {pattern} {behavior}", bpe(["<unk>"], []), HARD, None, split(pattern, behavior), pcre2=True)
    for pattern in ["[[:alpha:]]+", "[[:^punct:]]+", "[[:upper:][:digit:]]"]:
        yield case(f"pattern {pattern}", bpe(["<unk>"], []), HARD, None, split(pattern, "Removed"))
    yield case("a prefix at the start after another Metaspace", bpe(["<unk>", "▁", "a", "▁a", "'", "▁'"], ["▁ a", "▁ '"]), ["'a a", "a'a"],
               {"type": "Prepend", "prepend": "▁"},
               sequence({"type": "Punctuation", "behavior": "Contiguous"}, metaspace("never"), metaspace("first", False)))
    yield case("a prefix at the start after ByteLevel", bpe(["<unk>", "▁", "Ġ", "Ċ", "a", "▁Ġ", "▁Ċ"], ["▁ Ġ", "▁ Ċ"]), ["\na", "a"],
               None, sequence(byte_level(True), metaspace("first", False)))
    yield case("spelled spaces before Metaspace", wordlevel("_a", "aĠa"), ["  a a a", "a a"], {"type": "ByteLevel"}, metaspace("first"))
    yield case("special tokens that are normalized", wordlevel("a", "b"), ["a END b"], LOWER, SPACES, None,
               tokens=added(3, "END", "[x]", normalized=True, special=True))


def main():
    (HERE / "components.json").write_text("[\n" + ",\n".join(json.dumps(one, ensure_ascii=False) for one in cases()) + "\n]\n")


if __name__ == "__main__":
    main()
