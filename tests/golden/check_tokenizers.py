#!/usr/bin/env python3
"""Check that transformers loads tokenizers trained by weft, and that both produce the same tokens.

    python tests/golden/check_tokenizers.py --weft build/release/weft

`weft tokenizer train` trains each kind on tests/golden/learn/text.txt. transformers must load the directory unchanged,
with the special tokens in their roles, and encode and decode like weft: the training text, other scripts, special tokens
and whitespace. The plain files (vocab.json and merges.txt, or vocab.txt) must be equivalent to tokenizer.json. The
package `tokenizers` also trains a BPE, which must have the same vocabulary and merges. With other post-processors, and
with add_bos_token, add_eos_token and RobertaTokenizer in tokenizer_config.json, ids and token types of texts and pairs
must be equal, too.

The test suite includes this script if WEFT_PYTHON names a Python with transformers.
"""
import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import tokenizers
import transformers

TEXT = Path(__file__).parent / "learn" / "text.txt"
MORE = ["", " ", "\t \n x", "the<|endoftext|>loom", "[CLS] the [MASK] loom[SEP]", "Füße, naïve İSTANBUL ǅ ﬀ", "織物 와 布。",
        "a" * 300, "don't we're I'll 'tis", "\u0301x \u200d\ufeff\u00a0y", "👩‍🔧🧵 12345 ½ Ⅷ", "x   y\u3000z\r\n\r\n"]


class Check:
    def __init__(self, weft, work):
        self.weft, self.work = weft, work

    def run(self, *arguments, text=None):
        done = subprocess.run([self.weft, "tokenizer", *arguments], input=text, capture_output=True)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    def train(self, *options):
        self.run("train", "--data", TEXT, "--out", self.work / "tok", *options)
        return self.work / "tok"

    def encode(self, folder, text, *options):
        return json.loads(self.run("encode", "--tokenizer", folder, "--json", *options, text=text.encode()))["ids"]

    def decode(self, folder, ids, *options):
        given = json.dumps(ids).encode()
        return json.loads(self.run("decode", "--tokenizer", folder, "--json", *options, text=given))["text"]

    def same_tokens(self, folder, loaded):
        for text in [TEXT.read_text(encoding="utf-8"), *MORE]:
            ids = loaded.encode(text)
            assert self.encode(folder, text) == ids, f"ids differ for {text[:60]!r}"
            assert self.encode(folder, text, "--no-add-special-tokens") == loaded.encode(text, add_special_tokens=False)
            assert self.decode(folder, ids) == loaded.decode(ids), f"decoded text differs for {text[:60]!r}"
            assert self.decode(folder, ids, "--skip-special-tokens") == loaded.decode(ids, skip_special_tokens=True)

    def bpe(self):
        folder = self.train("--vocab", "700")
        loaded = transformers.AutoTokenizer.from_pretrained(folder)
        assert "GPT2" in type(loaded).__name__, type(loaded)
        assert len(loaded) == 700 and loaded.eos_token == "<|endoftext|>"
        self.same_tokens(folder, loaded)
        plain = tokenizers.Tokenizer(tokenizers.models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
        plain.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        text = TEXT.read_text(encoding="utf-8")
        assert plain.encode(text).ids == loaded.encode(text)

    def bpe_special(self):
        folder = self.train("--vocab", "400", "--special", "<user>", "--special", "<bot>")
        loaded = transformers.AutoTokenizer.from_pretrained(folder)
        assert loaded.convert_tokens_to_ids(["<|endoftext|>", "<user>", "<bot>"]) == [0, 1, 2]
        for text in ("<user>the loom<bot> is <|endoftext|>", "<use r><user>"):
            assert self.encode(folder, text) == loaded.encode(text)

    def bpe_retrained(self):
        folder = self.train("--vocab", "900")
        again = tokenizers.Tokenizer(tokenizers.models.BPE())
        again.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        again.train_from_iterator([TEXT.read_text(encoding="utf-8")], tokenizers.trainers.BpeTrainer(
            vocab_size=900, min_frequency=2, special_tokens=["<|endoftext|>"], show_progress=False,
            initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
        ours = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        assert ours.get_vocab() == again.get_vocab()
        merges = [json.loads(one.to_str())["model"]["merges"] for one in (ours, again)]
        assert merges[0] == merges[1]

    def arranged(self, folder, text, pair, special):
        """Ids and token types of a text or a pair."""
        options = ["--pair", pair] if pair is not None else []
        options += [] if special else ["--no-add-special-tokens"]
        found = json.loads(self.run("encode", "--tokenizer", folder, "--json", "--type-ids", *options, text=text.encode()))
        return found["ids"], found["type_ids"]

    def same_arrangement(self, folder, loaded):
        for text in ["", "the loom", "Füße, naïve", "a [MASK] b"]:
            for pair in [None, "織物 and cloth"]:
                for special in [True, False]:
                    expected = loaded(text, pair, add_special_tokens=special, return_token_type_ids=True)
                    found = self.arranged(folder, text, pair, special)
                    assert found == (expected["input_ids"], expected["token_type_ids"]), (text, pair, special, found)

    def bos_files(self):
        """vocab.json and merges.txt: the post-processor follows from tokenizer_config.json."""
        folder = self.train("--vocab", "400", "--special", "<s>", "--special", "</s>")
        (folder / "tokenizer.json").unlink()
        (folder / "config.json").write_text('{"model_type": "gpt2"}')
        for config in [{}, {"add_bos_token": True}, {"add_bos_token": False}, {"add_eos_token": True},
                       {"add_bos_token": True, "add_eos_token": True, "bos_token": "<s>"},
                       {"add_bos_token": True, "bos_token": None}, {"tokenizer_class": "RobertaTokenizer"},
                       {"tokenizer_class": "RobertaTokenizer", "cls_token": "</s>", "add_prefix_space": True}]:
            if "Roberta" in config.get("tokenizer_class", ""):
                config = {**config, "unk_token": "<s>", "pad_token": "<s>", "mask_token": "<s>"}
            (folder / "tokenizer_config.json").write_text(json.dumps(config))
            self.same_arrangement(folder, transformers.AutoTokenizer.from_pretrained(folder))

    def post_processors(self, *options):
        """The post-processor of tokenizer.json, as PreTrainedTokenizerFast applies it."""
        folder = self.train(*options)
        path = folder / "tokenizer.json"
        base = json.loads(path.read_text(encoding="utf-8"))
        (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
        token = base["added_tokens"][0]["content"]
        start, text, second = [{"SpecialToken": {"id": token, "type_id": 0}}], {"Sequence": {"id": "A", "type_id": 0}}, \
            {"Sequence": {"id": "B", "type_id": 1}}
        special = {token: {"id": token, "ids": [0], "tokens": [token]}}
        for component in [None, {"type": "BertProcessing", "sep": [token, 0], "cls": [token, 0]},
                          {"type": "RobertaProcessing", "sep": [token, 0], "cls": [token, 0], "trim_offsets": True,
                           "add_prefix_space": True},
                          {"type": "TemplateProcessing", "single": [*start, text], "pair": [*start, text, second],
                           "special_tokens": special}]:
            for wrapped in [component, {"type": "Sequence", "processors": [component]}] if component else [None]:
                path.write_text(json.dumps({**base, "post_processor": wrapped}), encoding="utf-8")
                self.same_arrangement(folder, transformers.AutoTokenizer.from_pretrained(folder))

    def wordpiece(self, *options):
        folder = self.train("--kind", "wordpiece", "--vocab", "500", *options)
        loaded = transformers.AutoTokenizer.from_pretrained(folder)
        assert "Bert" in type(loaded).__name__, type(loaded)
        assert len(loaded) == 500
        roles = [loaded.pad_token, loaded.unk_token, loaded.cls_token, loaded.sep_token, loaded.mask_token]
        assert roles == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], roles
        self.same_tokens(folder, loaded)
        lines = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
        assert {token: i for i, token in enumerate(lines)} == loaded.get_vocab()


def cases():
    yield "bpe", Check.bpe
    yield "bpe-special", Check.bpe_special
    yield "bpe-retrained", Check.bpe_retrained
    yield "bos-files", Check.bos_files
    yield "post-processors", lambda check: check.post_processors("--vocab", "400")
    yield "post-processors-wordpiece", lambda check: check.post_processors("--kind", "wordpiece", "--vocab", "500")
    yield "wordpiece", Check.wordpiece
    yield "wordpiece-cased", lambda check: check.wordpiece("--cased")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weft", type=Path, required=True)
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    failed = 0
    for name, run in cases():
        with tempfile.TemporaryDirectory() as work:
            try:
                run(Check(arguments.weft.resolve(), Path(work)))
                print(f"ok      {name}")
            except AssertionError as error:
                failed += 1
                print(f"FAILED  {name}: {error}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
