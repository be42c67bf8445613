#!/usr/bin/env python3
"""Compare Llama and its relatives with transformers for random configurations, in both directions.

    python tests/golden/check_decoders.py --weft build/release/weft [--count 5] [--seed 1] [--rope TYPE]
                                           [--experts N] [FAMILY ...]

For each configuration, transformers saves a random model. `weft eval` must report its loss within 1e-5 (relative),
`weft generate` must write the same text as transformers' greedy search, with the same probabilities, if the model is
causal, and `weft convert` must produce a checkpoint that transformers loads without missing or unexpected keys and with
identical weights and logits. Then `weft train` starts from the model: one step of SGD shows its gradients, which must be
transformers', and transformers must compute the loss after two steps that `weft eval` reports.

Configurations vary sizes, key-value heads, head width, tied embeddings, biases, epsilon, activation, rotary positions
(all types of scaling, over sequences longer than the original context), windows, attention in both directions and the
spelling (transformers 4 or 5); of mixtures also experts, experts per token, their weights, shared experts and which
layers are dense. A different expert for a single token would show in the loss and in the gradients.
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
            "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
            "mixtral": (transformers.MixtralConfig, transformers.MixtralForCausalLM),
            "qwen2_moe": (transformers.Qwen2MoeConfig, transformers.Qwen2MoeForCausalLM),
            "qwen3_moe": (transformers.Qwen3MoeConfig, transformers.Qwen3MoeForCausalLM),
            "olmoe": (transformers.OlmoeConfig, transformers.OlmoeForCausalLM)}
MIXTURES = ["mixtral", "qwen2_moe", "qwen3_moe", "olmoe"]
CONTEXT, END = 48, 256
SGD_LR = 64.0  # a step is so large that the weights' rounding hardly changes it


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


def random_experts(family, rng, layers, experts):
    experts = experts or rng.choice([2, 3, 5, 8])
    fields = dict(num_experts=experts, num_experts_per_tok=rng.randint(1, min(3, experts)))
    if family != "mixtral":
        fields.update(norm_topk_prob=rng.random() < 0.5)
    if family.startswith("qwen"):
        dense = [layer for layer in range(layers + 1) if rng.random() < 0.2]
        fields.update(moe_intermediate_size=rng.choice([12, 20, 36]), decoder_sparse_step=rng.choice([1, 1, 2]),
                      mlp_only_layers=dense)
    if family == "qwen2_moe":
        fields.update(shared_expert_intermediate_size=rng.choice([8, 28]))
    return fields


def random_config(family, rng, kind, experts):
    groups = rng.choice([1, 2, 3])
    heads = groups * (1 if family == "olmoe" else rng.choice([1, 2, 4]))
    width = rng.choice([4, 8, 10, 16])
    fields = dict(vocab_size=END + 1, num_hidden_layers=rng.choice([1, 2, 3]),
                  num_attention_heads=heads, num_key_value_heads=groups, hidden_size=heads * width,
                  intermediate_size=rng.choice([24, 40, 68]), tie_word_embeddings=rng.random() < 0.5,
                  rms_norm_eps=rng.choice([1e-6, 1e-5]), hidden_act=rng.choice(["silu", "silu", "gelu", "relu"]),
                  bos_token_id=END, eos_token_id=END)
    if rng.random() < 0.3 and family not in ("qwen2", "qwen2_moe", "olmoe"):
        fields["head_dim"] = rng.choice([6, 12, 20])
    elif family in ("qwen3", "mixtral"):  # transformers does not scale rotary positions of a Mixtral without it
        fields["head_dim"] = width
    layers = fields["num_hidden_layers"]
    if family in MIXTURES:
        fields.update(random_experts(family, rng, layers, experts))
    if family == "llama":
        fields.update(attention_bias=rng.random() < 0.4, mlp_bias=rng.random() < 0.4)
    if family in ("qwen3", "qwen3_moe", "olmoe"):
        fields.update(attention_bias=rng.random() < 0.4)
    if family == "qwen2_moe":
        fields.update(qkv_bias=rng.random() < 0.6)
    if family in ("mistral", "mixtral"):
        fields.update(sliding_window=rng.choice([None, 5, 17]))
    if family.startswith("qwen"):
        fields.update(use_sliding_window=rng.random() < 0.5, sliding_window=rng.choice([5, 17]))
    if family in ("qwen2", "qwen3"):
        fields.update(max_window_layers=rng.choice([0, 1, 2]))
    if rng.random() < 0.2:
        fields.update(is_causal=False, sliding_window=None, use_sliding_window=False)
    if family == "qwen2_moe" and fields["use_sliding_window"]:  # without these: in every second layer
        first = rng.randrange(layers)
        fields.update(layer_types=["sliding_attention" if i >= first else "full_attention" for i in range(layers)])
    kind = kind or rng.choice(ROPE_TYPES)
    rope, positions = random_rope(rng, kind, fields.get("head_dim", width))
    return FAMILIES[family][0](**fields, rope_parameters=rope, max_position_embeddings=positions)


def random_model(family, config, seed):
    torch.manual_seed(seed)
    config._attn_implementation = "eager"
    if family in MIXTURES:
        config._experts_implementation = "eager"
    model = FAMILIES[family][1](config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(1 if "norm" in name else 0, 0.2 if parameter.ndim == 1 else 1.2 / parameter.shape[-1] ** 0.5)
    model.tie_weights()
    return model.eval()


def old_spelling(path):
    """Rewrites rope_parameters and the number of experts as transformers 4 did."""
    config = json.loads(path.read_text())
    if config["model_type"] == "qwen3_moe":
        config["num_experts"] = config.pop("num_local_experts")
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    path.write_text(json.dumps(config))


# Other implementations of experts need aligned sizes.
EAGER = {"attn_implementation": "eager", "experts_implementation": "eager"}


class Check:
    def __init__(self, weft, work, rope, experts):
        self.weft, self.work, self.rope, self.experts = weft, work, rope, experts
        rng = random.Random(3)
        self.ids = [rng.randrange(256) for _ in range(4 * CONTEXT + 1)]
        self.data = work / "data.u16"
        self.data.write_bytes(b"".join(id.to_bytes(2, "little") for id in self.ids))

    def run(self, *arguments):
        done = subprocess.run([self.weft, *map(str, arguments), "--json"], capture_output=True, text=True, cwd=self.work,
                              env={**os.environ, "WEFT_CACHE": str(self.work / "cache"), "OMP_NUM_THREADS": "1"})
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def torch_objective(self, model):
        data = torch.tensor(self.ids)
        inputs, labels = data[:-1].view(4, CONTEXT), data[1:].view(4, CONTEXT)
        logits = model(input_ids=inputs).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())

    def torch_loss(self, model):
        with torch.no_grad():
            return self.torch_objective(model).item()

    def router_margin(self, model):
        """The smallest difference between the logits of two experts that decides between them."""
        margins = [math.inf]

        def record(router, inputs, outputs):
            count = outputs[2].shape[1]
            best = outputs[0].topk(min(count + 1, outputs[0].shape[1])).values
            if best.shape[1] > count:
                margins.append(float((best[:, count - 1] - best[:, count]).min()))

        hooks = [module.register_forward_hook(record) for module in model.modules()
                 if type(module).__name__.endswith("TopKRouter")]
        self.torch_loss(model)
        for hook in hooks:
            hook.remove()
        return min(margins)

    def weft_loss(self, path):
        return self.run("eval", "--model", path, "--data", self.data, "--seq", CONTEXT)["loss"]

    def same_loss(self, what, path, model):
        ours, theirs = self.weft_loss(path), self.torch_loss(model)
        assert abs(ours - theirs) <= 1e-5 * abs(theirs), f"{what}: loss {ours}, transformers {theirs}"

    def same_gradients(self, source, family, model, run):
        """One step of SGD by weft; its gradients are the differences of the weights."""
        self.run("train", "--model", source, "--data", self.data, "--seq", CONTEXT, "--batch", 4, "--steps", 1,
                 "--out", run, "--val-fraction", 0, "--optimizer", "sgd", "--momentum", 0, "--weight-decay", 0,
                 "--clip", 0, "--lr", SGD_LR, "--schedule", "constant", "--warmup", 0)
        after = dict(FAMILIES[family][1].from_pretrained(run / "latest").named_parameters())
        model.zero_grad()
        self.torch_objective(model).backward()
        theirs = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
        total = sum(float(grad.square().sum()) for grad in theirs.values()) ** 0.5
        for name, grad in theirs.items():
            ours = (model.get_parameter(name).detach() - after[name].detach()) / SGD_LR
            apart, norm = float((ours - grad).norm()), float(grad.norm())
            # The gradient of some parameters, such as the bias of k, is only rounding.
            assert apart <= 1e-4 * norm + 1e-6 * total, f"the gradient of {name} differs by {apart}; its norm is {norm}"
        model.zero_grad()

    def same_text(self, path, model):
        prompt = [72, 101, 108, 108, 111]
        new = CONTEXT - len(prompt)
        out = model.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=new, eos_token_id=None, pad_token_id=0,
                             output_logits=True, return_dict_in_generate=True)
        logits = torch.stack(out.logits)[:, 0]
        top = logits.topk(2).values
        tied = (top[:, 0] - top[:, 1] < 1e-4).nonzero()
        count = int(tied[0]) if len(tied) else new  # up to where rounding may decide
        theirs = out.sequences[0, len(prompt):].tolist()
        if END in theirs:
            count = min(count, theirs.index(END))
        ours = self.run("generate", path, "--prompt-ids", ",".join(map(str, prompt)), "--greedy", "--max-tokens", new,
                        "--logprobs")
        found = ours["samples"][0]["new_ids"]
        assert found[:count] == theirs[:count], f"greedy text differs: {found} and {theirs}"
        for at, (one, row) in enumerate(zip(ours["samples"][0]["logprobs"][:count], logits.log_softmax(-1))):
            apart = abs(one["logprob"] - row[one["id"]].item())
            assert apart <= 2e-4, f"the log probability of new token {at} differs by {apart}"

    def one(self, family, seed):
        rng = random.Random(f"{family} {seed}")
        config = random_config(family, rng, self.rope, self.experts)
        model = random_model(family, config, seed)
        while self.router_margin(model) < 1e-5:  # rounding must not change a token's experts
            seed += 1000
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
        after, info = FAMILIES[family][1].from_pretrained(target, output_loading_info=True, **EAGER)
        for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
            assert not info[kind], f"{kind}: {info[kind]}"
        for key, value in model.state_dict().items():
            assert torch.equal(value, after.state_dict()[key]), f"{key} differs"
        assert abs(self.torch_loss(model) - self.torch_loss(after)) == 0, "the converted configuration differs"
        self.same_gradients(source, family, model, self.work / f"{family}-{seed}-sgd")
        self.run("train", "--model", source, "--data", self.data, "--seq", CONTEXT, "--batch", 2,
                 "--steps", 2, "--out", run, "--val-fraction", 0)
        trained = FAMILIES[family][1].from_pretrained(run / "latest", **EAGER).eval()
        self.same_loss("weft to transformers", run / "latest", trained)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weft", required=True, type=Path)
    parser.add_argument("--count", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rope", choices=ROPE_TYPES, help="only this type of rotary positions")
    parser.add_argument("--experts", type=int, help="of mixtures: only this number of experts")
    parser.add_argument("families", nargs="*", default=[])
    args = parser.parse_args()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    failed = 0
    with tempfile.TemporaryDirectory() as work:
        check = Check(args.weft.resolve(), Path(work), args.rope, args.experts)
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
