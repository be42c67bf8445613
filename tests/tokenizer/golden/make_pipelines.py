#!/usr/bin/env python3
"""Generate pipelines.json: tokenizers with the pipelines of Llama, Mistral, Qwen, SmolLM and others, and what the
tokenizers library makes of texts with them. Requires tokenizers. Commit the script and its output together.

  models   two small models: "bytes", for pre-tokenizers that end in ByteLevel, and "chars", in the manner of SentencePiece
  texts    the texts
  kinds    for each tokenizer: its model and the rest of tokenizer.json; "results": for each text, three CRC-32
           checksums, in hexadecimal: of the ids (4 bytes each, little-endian), of each token's start and end in bytes of
           UTF-8, widened to complete characters (likewise), and of the decoded text; "blocks", if present: for each block
           of 4096 code points, the checksum of the ids of a text that has each of them in PATTERN
"""
import json
import pathlib
import random
import struct
import zlib

import make_bpe
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).parent
PATTERN = "a%B 1%."
CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + SPACES
QWEN2 = LLAMA3.replace("{1,3}", "")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K = (r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + "+" + CONTRACTIONS + "?" + r"|[^\r\n\p{L}\p{N}]?" + UPPER + "+"
         + LOWER + "*" + CONTRACTIONS + "?" + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + SPACES)
HAN = O200K.replace(r"\p{M}]", r"\p{M}&&[^\p{Han}]]").replace("[", r"[\p{Han}]+|[", 1)
TEKKEN = O200K.replace(CONTRACTIONS + "?", "").replace("{1,3}", "")
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
          r"|\s+(?!\S)|\s")
DEEPSEEK = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
            + SPACES)
BLOOM = " ?[^(\\s|[.,!?…。，、।۔،])]+"


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def byte_level(prefix=False, regex=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def normalizers(*steps):
    return {"type": "Sequence", "normalizers": list(steps)}


def metaspace(scheme, split):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}


def replace(a, b):
    return {"type": "Replace", "pattern": {"String": a}, "content": b}


PREPEND = {"type": "Prepend", "prepend": "▁"}
LLAMA2 = normalizers(PREPEND, replace(" ", "▁"))
LLAMA2_DECODER = {"type": "Sequence", "decoders": [replace("▁", " "), {"type": "ByteFallback"}, {"type": "Fuse"},
                                                   {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
DIGITS = {"type": "Digits", "individual_digits": True}

# name: normalizer, pre-tokenizer, options of the model and of the added tokens
BYTES = {
    "llama3": (None, sequence(split(LLAMA3), byte_level()), {"ignore_merges": True}),
    "qwen2": ({"type": "NFC"}, sequence(split(QWEN2), byte_level()), {}),
    "qwen2 with normalized tokens": ({"type": "NFC"}, sequence(split(QWEN2), byte_level()), {"normalized": True}),
    "smollm": (None, sequence(DIGITS, byte_level(regex=True)), {}),
    "cl100k": (None, sequence(split(CL100K), byte_level()), {}),
    "o200k": (None, sequence(split(O200K), byte_level()), {"blocks": True}),
    "tekken": (None, sequence(split(TEKKEN), byte_level()), {}),
    "han": (None, sequence(split(HAN), byte_level()), {}),
    "deepseek": (normalizers(), sequence(split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(DEEPSEEK), byte_level()), {}),
    "lines": (None, sequence(split(r"[\r\n]"), split(r"\s?\p{L}+"), split(r"\s+$"), DIGITS, byte_level()), {}),
    "bloom": (None, sequence(split(BLOOM), byte_level()), {}),
    "nfkc and a prefix": ({"type": "NFKC"}, sequence({"type": "Digits", "individual_digits": False}, byte_level(True, True)),
                          {"blocks": True}),
    "nfd": (normalizers({"type": "NFD"}, {"type": "Lowercase"}),
            sequence({"type": "Punctuation", "behavior": "MergedWithPrevious"}, byte_level()), {"blocks": True}),
    "nfkd": (normalizers({"type": "NFKD"}, {"type": "Strip", "strip_left": True, "strip_right": True}),
             sequence({"type": "WhitespaceSplit"}, {"type": "Punctuation", "behavior": "Contiguous"}, byte_level()), {}),
    "merged with next": (normalizers({"type": "Replace", "pattern": {"Regex": r"\s{2,}"}, "content": "  "}),
                         sequence(split(r"[\s,.]", "MergedWithNext"), split(r"\p{L}+", "Removed", True), byte_level()), {}),
    "merged with previous": (None, sequence(split(r"\s|a", "MergedWithPrevious"), split(r"e|\d", "Contiguous"),
                                            byte_level()), {}),
    "whitespace": (None, sequence({"type": "Whitespace"}, byte_level()), {"blocks": True}),
}
# the same, with the decoder
CHARS = {
    "llama2": (LLAMA2, None, LLAMA2_DECODER, {}),
    "llama2 with normalized tokens": (LLAMA2, None, LLAMA2_DECODER, {"normalized": True}),
    "llama2 across words": (LLAMA2, None, LLAMA2_DECODER, {"across": True}),
    "mistral": (None, metaspace("first", False), LLAMA2_DECODER, {}),
    "metaspace": (None, metaspace("always", True), metaspace("always", True), {}),
    "no prefix": ({"type": "NFC"}, metaspace("never", True), metaspace("never", True), {"byte_fallback": False}),
    "unknown": (None, metaspace("first", True), metaspace("first", True), {"byte_fallback": False, "fuse_unk": False}),
    "dropped": ({"type": "NFKC"}, metaspace("always", True), None, {"byte_fallback": False, "unk_token": None, "offsets": False}),
    "gemma": (replace(" ", "▁"), {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
                                  "invert": False}, {"type": "Sequence", "decoders": LLAMA2_DECODER["decoders"][:3]}, {}),
}


def train_bytes():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                                       pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.train_from_iterator(make_bpe.SENTENCES, trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return json.loads(tokenizer.to_str())["model"]


def train_chars(across):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(split=not across)
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
    tokenizer.train_from_iterator(make_bpe.SENTENCES, trainers.BpeTrainer(
        vocab_size=600, limit_alphabet=90, special_tokens=special, show_progress=False))
    return json.loads(tokenizer.to_str())["model"]


def added(vocab, names, **flags):
    new = iter(range(len(vocab), 10**6))
    ids = [vocab[name] if name in vocab else next(new) for name in names]
    plain = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=False)
    return [{"id": i, "content": name, **plain, **flags.get(name, {}), **flags.get("all", {})} for i, name in zip(ids, names)]


def bytes_json(model, normalizer, pre_tokenizer, options):
    names = ["<|endoftext|>", "[left]", "[right]", "[word]", "loom", "ḧey"]
    flags = {"<|endoftext|>": {"special": True}, "[left]": {"lstrip": True}, "[right]": {"rstrip": True},
             "[word]": {"single_word": True}, "all": {"normalized": options.get("normalized", False)}}
    model = {**model, "ignore_merges": options.get("ignore_merges", False)}
    return {"added_tokens": added(model["vocab"], names, **flags), "normalizer": normalizer,
            "pre_tokenizer": pre_tokenizer, "post_processor": None, "decoder": byte_level(True, True)}, model


def chars_json(model, normalizer, pre_tokenizer, decoder, options):
    names = ["<unk>", "<s>", "</s>"]
    more = ["[left]", "[right]", "loom", "ḧey"]
    tokens = added(model["vocab"], names, all={"special": True}) + added(
        model["vocab"], more, **{"[left]": {"lstrip": True}, "[right]": {"rstrip": True},
                                                    "all": {"normalized": options.get("normalized", False)}})
    model = {**model, **{key: options.get(key, model[key]) for key in ("byte_fallback", "fuse_unk", "unk_token")}}
    return {"added_tokens": tokens, "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": None,
            "decoder": decoder}, model


def crc(data):
    return f"{zlib.crc32(data):08x}"


def numbers(values):
    return struct.pack(f"<{len(values)}i", *values)


def places(text, encoding):
    at = [0]
    for char in text:
        at.append(at[-1] + len(char.encode()))
    return [at[i] for pair in encoding.offsets for i in pair]


def texts():
    rng = random.Random(11)
    marks = [chr(c) for c in range(0x300, 0x330)]
    some = list("'’ſKİıßﬁ한가각각가Å①½²٣१▁Ġ<>[]|\u00a0\u3000\u2028\u200d\ufeff\x00\x7f\r\n\t ") + [
        "'S", "'ſ", "'LL", "'Re", "<0x41>", "<s>", "[left]", " [right] ", "[word]", "ḧey", "h\u0308ey", "👩‍🔧", "🇩🇪", "   "]
    made = []
    for _ in range(60):
        parts = []
        for _ in range(rng.randint(2, 12)):
            sentence = rng.choice(make_bpe.SENTENCES)
            start = rng.randrange(len(sentence))
            parts.append(rng.choice([sentence[start:start + rng.randint(1, 12)], rng.choice(some) * rng.randint(1, 2),
                                     rng.choice("aeoUÖö") + "".join(rng.choices(marks, k=rng.randint(1, 3))),
                                     chr(rng.randrange(0x250, 0xD800)), str(rng.randrange(10**rng.randint(1, 9)))]))
        made.append("".join(parts))
    return make_bpe.SENTENCES + make_bpe.HOSTILE + make_bpe.ADDED + made


def result(tokenizer, text, offsets):
    encoding = tokenizer.encode(text, add_special_tokens=False)
    decoded = tokenizer.decode(encoding.ids, skip_special_tokens=False).encode()
    # Hugging Face's offsets do not count the characters it drops.
    where = crc(numbers(places(text, encoding))) if offsets else "-" * 8
    return crc(numbers(encoding.ids)) + where + crc(decoded)


def block(tokenizer, start):
    text = "".join(PATTERN.replace("%", chr(c)) for c in range(start, start + 4096) if not 0xD800 <= c < 0xE000)
    return crc(numbers(tokenizer.encode(text, add_special_tokens=False).ids))


def main():
    trained = {"bytes": train_bytes(), "chars": train_chars(False), "chars across words": train_chars(True)}
    samples, kinds = texts(), []
    for name, (*pipeline, options) in {**BYTES, **CHARS}.items():
        base = "bytes" if name in BYTES else "chars across words" if "across" in options else "chars"
        json_of = bytes_json if name in BYTES else chars_json
        rest, model = json_of(trained[base], *pipeline, options)
        whole = {"version": "1.0", "truncation": None, "padding": None, **rest, "model": model}
        tokenizer = Tokenizer.from_str(json.dumps(whole))
        rest["model"] = {key: value for key, value in model.items() if key not in ("vocab", "merges")}
        kind = {"name": name, "base": base, "json": rest,
                "results": [result(tokenizer, text, options.get("offsets", True)) for text in samples]}
        if "blocks" in options:
            kind["blocks"] = "".join(block(tokenizer, start) for start in range(0, 0x110000, 4096))
        kinds.append(kind)
    bases = {name: {"vocab": model["vocab"], "merges": model["merges"]} for name, model in trained.items()}
    parts = [f'"pattern": {json.dumps(PATTERN)}', f'"models": {json.dumps(bases)}', f'"texts": {json.dumps(samples)}',
             '"kinds": [\n' + ",\n".join(json.dumps(kind) for kind in kinds) + "]"]
    (HERE / "pipelines.json").write_text("{" + ",\n".join(parts) + "}\n")


if __name__ == "__main__":
    main()
