#!/usr/bin/env python3
"""Compare Llama and its relatives with transformers for random configurations, in both directions.

    python tests/golden/check_decoders.py --weft build/release/weft [--count 5] [--seed 1] [--rope TYPE] [FAMILY ...]

For each configuration, transformers saves a random model. `weft eval` must report its loss within 1e-5 (relative),
`weft generate` must write the same text as transformers' greedy search if the model is causal, and `weft convert` must
produce a checkpoint that transformers loads without missing or unexpected keys and with identical weights and logits.
Then `weft train` starts from the model, and transformers must compute the loss of the result that `weft eval` reports.

Configurations vary sizes, key-value heads, head width, tied embeddings, biases, epsilon, activation, rotary positions
(all types of scaling, over sequences longer than the original context, in the spelling of transformers 4 or 5), windows, attention in both directions and the type
of the weights' file.
"""
import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import transformers

FAMILIES = {"llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
            "mistral": (transformers.MistralConfig, transformers.MistralForCausalLM),
            "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
            "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM)}
CONTEXT, END = 48, 256


ROPE_TYPES = ["default", "linear", "dynamic", "llama3", "yarn", "longrope"]


def random_rope(rng, kind, width):
    """rope_parameters, and max_position_embeddings."""
    factor, original = rng.choice([2.0, 4.0, 5.5]), rng.choice([12, 16, 24])
    rope = {"rope_type": kind, "rope_theta": rng.choice([100.0, 10000.0, 500000.0])}
    if kind != "default":
        rope["factor"] = factor
    if kind in ("llama3", "yarn", "longrope"):
        rope["original_max_position_embeddings"] = original
    if kind == "llama3":
        rope.update(low_freq_factor=1.0, high_freq_factor=4.0)
    if kind == "yarn":
        options = dict(attention_factor=rng.choice([None, 0.8, 1.3]), beta_fast=rng.choice([2.0, 8.0]), beta_slow=0.25,
                       mscale=1.0, mscale_all_dim=rng.choice([0.5, 0.707]), truncate=False)
        rope.update({name: value for name, value in options.items() if rng.random() < 0.5})
    if kind == "longrope":
        for name, most in (("short_factor", 1.5), ("long_factor", 2 * factor)):
            rope[name] = [round(rng.uniform(1, most), 3) for _ in range(width // 2)]
        if rng.random() < 0.5:
            del rope["factor"]
        if rng.random() < 0.3:
            rope["attention_factor"] = 1.19
    if kind == "dynamic":
        return rope, max(original, math.ceil(CONTEXT / factor))
    return rope, CONTEXT


def random_config(family, rng, kind):
    groups = rng.choice([1, 2, 3])
    heads = groups * rng.choice([1, 2, 4])
    width = rng.choice([4, 8, 10, 16])
    fields = dict(vocab_size=END + 1, num_hidden_layers=rng.choice([1, 2, 3]),
                  num_attention_heads=heads, num_key_value_heads=groups, hidden_size=heads * width,
                  intermediate_size=rng.choice([24, 40, 68]), tie_word_embeddings=rng.random() < 0.5,
                  rms_norm_eps=rng.choice([1e-6, 1e-5]), hidden_act=rng.choice(["silu", "silu", "gelu", "relu"]),
                  bos_token_id=END, eos_token_id=END)
    if rng.random() < 0.3 and family != "qwen2":
        fields["head_dim"] = rng.choice([6, 12, 20])
    elif family == "qwen3":
        fields["head_dim"] = width
    if family == "llama":
        fields.update(attention_bias=rng.random() < 0.4, mlp_bias=rng.random() < 0.4)
    if family == "qwen3":
        fields.update(attention_bias=rng.random() < 0.4)
    if family == "mistral":
        fields.update(sliding_window=rng.choice([None, 5, 17]))
    if family.startswith("qwen"):
        fields.update(use_sliding_window=rng.random() < 0.5, sliding_window=rng.choice([5, 17]),
                      max_window_layers=rng.choice([0, 1, 2]))
    if rng.random() < 0.2:
        fields.update(is_causal=False, sliding_window=None, use_sliding_window=False)
    kind = kind or rng.choice(ROPE_TYPES)
    rope, positions = random_rope(rng, kind, fields.get("head_dim", width))
    return FAMILIES[family][0](**fields, rope_parameters=rope, max_position_embeddings=positions)


def random_model(family, config, seed):
    torch.manual_seed(seed)
    config._attn_implementation = "eager"
    model = FAMILIES[family][1](config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(1 if "norm" in name else 0, 0.2 if parameter.ndim == 1 else 1.2 / parameter.shape[-1] ** 0.5)
    model.tie_weights()
    return model.eval()


def old_spelling(path):
    """Rewrites rope_parameters as transformers 4 did."""
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    path.write_text(json.dumps(config))


class Check:
    def __init__(self, weft, work, rope):
        self.weft, self.work, self.rope = weft, work, rope
        rng = random.Random(3)
        self.ids = [rng.randrange(256) for _ in range(4 * CONTEXT + 1)]
        self.data = work / "data.u16"
        self.data.write_bytes(b"".join(id.to_bytes(2, "little") for id in self.ids))

    def run(self, *arguments):
        done = subprocess.run([self.weft, *map(str, arguments), "--json"], capture_output=True, text=True, cwd=self.work,
                              env={**os.environ, "WEFT_CACHE": str(self.work / "cache"), "OMP_NUM_THREADS": "1"})
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def torch_loss(self, model):
        data = torch.tensor(self.ids)
        inputs, labels = data[:-1].view(4, CONTEXT), data[1:].view(4, CONTEXT)
        with torch.no_grad():
            logits = model(input_ids=inputs).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()).item()

    def weft_loss(self, path):
        return self.run("eval", "--model", path, "--data", self.data, "--seq", CONTEXT)["loss"]

    def same_loss(self, what, path, model):
        ours, theirs = self.weft_loss(path), self.torch_loss(model)
        assert abs(ours - theirs) <= 1e-5 * abs(theirs), f"{what}: loss {ours}, transformers {theirs}"

    def same_text(self, path, model):
        prompt = [72, 101, 108, 108, 111]
        new = CONTEXT - len(prompt)
        out = model.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=new, eos_token_id=None, pad_token_id=0,
                             output_logits=True, return_dict_in_generate=True)
        top = torch.stack(out.logits)[:, 0].topk(2).values
        tied = (top[:, 0] - top[:, 1] < 1e-4).nonzero()
        count = int(tied[0]) if len(tied) else new  # up to where rounding may decide
        theirs = out.sequences[0, len(prompt):].tolist()
        if END in theirs:
            count = min(count, theirs.index(END))
        ours = self.run("generate", path, "--prompt-ids", ",".join(map(str, prompt)), "--greedy", "--max-tokens", new)
        found = ours["samples"][0]["new_ids"]
        assert found[:count] == theirs[:count], f"greedy text differs: {found} and {theirs}"

    def one(self, family, seed):
        rng = random.Random(f"{family} {seed}")
        config = random_config(family, rng, self.rope)
        model = random_model(family, config, seed)
        source, target, run = (self.work / f"{family}-{seed}-{part}" for part in ("source", "target", "run"))
        model.save_pretrained(source)
        (source / "generation_config.json").unlink(missing_ok=True)
        if rng.random() < 0.5:
            old_spelling(source / "config.json")
        self.same_loss("transformers to weft", source, model)
        if getattr(config, "is_causal", True):
            self.same_text(source, model)
        self.run("convert", "--model", source, "--out", target)
        after, info = FAMILIES[family][1].from_pretrained(target, output_loading_info=True, attn_implementation="eager")
        for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
            assert not info[kind], f"{kind}: {info[kind]}"
        for key, value in model.state_dict().items():
            assert torch.equal(value, after.state_dict()[key]), f"{key} differs"
        assert abs(self.torch_loss(model) - self.torch_loss(after)) == 0, "the converted configuration differs"
        self.run("train", "--model", source, "--data", self.data, "--seq", CONTEXT, "--batch", 2,
                 "--steps", 2, "--out", run, "--val-fraction", 0)
        trained = FAMILIES[family][1].from_pretrained(run / "latest", attn_implementation="eager").eval()
        self.same_loss("weft to transformers", run / "latest", trained)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weft", required=True, type=Path)
    parser.add_argument("--count", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rope", choices=ROPE_TYPES, help="only this type of rotary positions")
    parser.add_argument("families", nargs="*", default=[])
    args = parser.parse_args()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    failed = 0
    with tempfile.TemporaryDirectory() as work:
        check = Check(args.weft.resolve(), Path(work), args.rope)
        for family in args.families or FAMILIES:
            passed = 0
            for seed in range(args.seed, args.seed + args.count):
                try:
                    check.one(family, seed)
                    passed += 1
                except AssertionError as error:
                    print(f"{family} {seed}: {error}")
            print(f"{family}: {passed} of {args.count} configurations agree with transformers")
            failed += passed < args.count
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
