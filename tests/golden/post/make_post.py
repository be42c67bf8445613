#!/usr/bin/env python3
"""Generate cases.jsonl: tokenizer components drawn at random, and what Hugging Face's tokenizers encodes with them.

    python tests/golden/post/make_post.py

Requirements: tokenizers==0.23.3. For a larger comparison, write more cases elsewhere, from other texts and vocabularies,
and run the C test on them:

    python tests/golden/post/make_post.py --out /tmp/cases.jsonl --count 1000 --seed 2 --texts FILE [--base tokenizer.json]
    WEFT_POST_CASES=/tmp/cases.jsonl build/release/tests/test_tokenizer.post

Each line has the components that replace those of a tokenizer.json, and inputs:

    base         bpe (tests/tokenizer/golden/bpe.json), wordpiece (wordpiece_uncased.txt there), or a path
    components   normalizer, pre_tokenizer, post_processor, decoder
    inputs       text, pair (or null), special (add_special_tokens); ids, types, decoded text, and the offsets of the
                 tokens in bytes of UTF-8
"""
import argparse
import gzip
import json
import random
from pathlib import Path

from tokenizers import Tokenizer

HERE = Path(__file__).resolve().parent
VOCABS = HERE.parents[1] / "tokenizer" / "golden"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TEXTS = ["", " ", "the loom", " The  looms aren't idle. ", "Straße, naïve café", "織り手は 朝早く", "x\n\n y\t", "[CLS] a [SEP]",
         "a [left] b<|endoftext|>  c", "👩‍🔧 12345 ½", "don't we're I'll 'tis", "Où? É\u0301 e\u0301", "   ", "[both] [right] end",
         "and then, after a while, the weaver stopped: \"enough\", she said - and left."]


def read_texts(path):
    data = gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8", newline="")
    with data:
        if ".jsonl" in path.name:
            return [json.loads(line)["text"] for line in data]
        return data.read().split("\n__ggml_vocab_test__\n")


def base_of(name):
    if name == "wordpiece":
        words = (VOCABS / "wordpiece_uncased.txt").read_text(encoding="utf-8").splitlines()
        added = [dict(id=i, content=token, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
                 for i, token in enumerate(SPECIAL)]
        model = dict(type="WordPiece", unk_token="[UNK]", continuing_subword_prefix="##", max_input_chars_per_word=100,
                     vocab={word: i for i, word in enumerate(words)})
        return dict(version="1.0", truncation=None, padding=None, added_tokens=added, model=model)
    return json.loads((VOCABS / "bpe.json" if name == "bpe" else Path(name)).read_text(encoding="utf-8"))


class Draw:
    """Random components. `tokens` are pairs of a spelling and its id."""

    def __init__(self, seed, tokens):
        self.random, self.tokens = random.Random(seed), tokens

    def flag(self, chance=0.5):
        return self.random.random() < chance

    def wrapped(self, key, component):
        """The component, or a Sequence of it."""
        while self.flag(0.25):
            component = {"type": "Sequence", key: [component]}
        return component

    def token(self):
        return list(self.random.choice(self.tokens))

    def pieces(self, texts, names):
        pieces = [{"Sequence": {"id": text, "type_id": self.random.randrange(3)}} for text in texts]
        if self.flag(0.2):
            pieces.append({"Sequence": {"id": texts[0], "type_id": 1}})
        for _ in range(self.random.randrange(4)):
            pieces.append({"SpecialToken": {"id": self.random.choice(names), "type_id": self.random.randrange(3)}})
        self.random.shuffle(pieces)
        return pieces

    def template(self):
        special = {}
        for _ in range(3):
            name, number = self.token()
            more = [self.token() for _ in range(self.random.choice([0, 0, 0, 1, 2]))]
            special[name] = {"id": name, "ids": [number, *[token[1] for token in more]],
                             "tokens": [name, *[token[0] for token in more]]}
        return {"type": "TemplateProcessing", "single": self.pieces("A", list(special)),
                "pair": self.pieces("AB", list(special)), "special_tokens": special}

    def byte_level(self):
        return {"type": "ByteLevel", "add_prefix_space": self.flag(), "trim_offsets": self.flag(),
                "use_regex": self.flag(0.6)}

    def bert(self):
        return {"type": "BertProcessing", "sep": self.token(), "cls": self.token()}

    def roberta(self):
        return {"type": "RobertaProcessing", "sep": self.token(), "cls": self.token(), "trim_offsets": self.flag(),
                "add_prefix_space": self.flag()}

    def post_processor(self):
        kind = self.random.randrange(12)
        if kind == 0:
            return None
        if kind == 1:
            return {"type": "Sequence", "processors": []}
        if kind == 2:
            return {"type": "Sequence", "processors": [self.byte_level(), self.random.choice([self.template, self.bert])()]}
        make = [self.bert, self.roberta, self.byte_level, self.template, self.template][kind % 5]
        return self.wrapped("processors", make())

    def normalizer(self, bert):
        if not bert or self.flag(0.3):
            return self.random.choice([None, {"type": "Sequence", "normalizers": []},
                                       {"type": "Sequence", "normalizers": [{"type": "Sequence", "normalizers": []}]}])
        return self.wrapped("normalizers", {
            "type": "BertNormalizer", "clean_text": self.flag(0.8), "handle_chinese_chars": self.flag(0.8),
            "strip_accents": self.random.choice([None, True, False]), "lowercase": self.flag(0.7)})

    def components(self, bert):
        split = {"type": "BertPreTokenizer"} if bert else self.byte_level()
        join = {"type": "WordPiece", "prefix": "##", "cleanup": self.flag()} if bert else self.byte_level()
        return {"normalizer": self.normalizer(bert), "pre_tokenizer": self.wrapped("pretokenizers", split),
                "post_processor": self.post_processor(), "decoder": self.wrapped("decoders", join)}


def encode(tokenizer, text, pair, special):
    found = tokenizer.encode(text, pair, add_special_tokens=special)
    offsets = []
    for (start, end), sequence in zip(found.offsets, found.sequence_ids):
        source = pair if sequence == 1 else text
        offsets.append([len(source[:start].encode()), len(source[:end].encode())])
    return {"text": text, "pair": pair, "special": special, "ids": found.ids, "types": found.type_ids, "offsets": offsets,
            "decoded": tokenizer.decode(found.ids, skip_special_tokens=False)}


def make_case(base, number, seed, texts, inputs):
    json_base = base_of(base)
    bert = json_base["model"]["type"] == "WordPiece"
    added = [(token["content"], token["id"]) for token in json_base["added_tokens"]]
    draw = Draw(f"{seed}-{base}-{number}", added)
    components = draw.components(bert)
    tokenizer = Tokenizer.from_str(json.dumps({**json_base, **components}))
    made = []
    for _ in range(inputs):
        text, pair = draw.random.choice(texts), draw.random.choice([None, draw.random.choice(texts)])
        made.append(encode(tokenizer, text, pair, draw.flag(0.7)))
    return {"base": base, "components": components, "inputs": made}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE / "cases.jsonl")
    parser.add_argument("--count", type=int, default=40, help="cases per base")
    parser.add_argument("--inputs", type=int, default=4, help="inputs per case")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--texts", type=Path, action="append", help="JSON lines with a text, or texts of llama.cpp's test")
    parser.add_argument("--base", action="append", help="tokenizer.json; default: bpe and wordpiece")
    arguments = parser.parse_args()
    texts = [text for path in arguments.texts for text in read_texts(path)] if arguments.texts else TEXTS
    with arguments.out.open("w", encoding="utf-8") as out:
        for base in arguments.base or ["bpe", "wordpiece"]:
            for number in range(arguments.count):
                case = make_case(base, number, arguments.seed, texts, arguments.inputs)
                out.write(json.dumps(case, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
