#!/usr/bin/env python3
"""Generate the golden files under cases/: results of PyTorch and transformers for tiny models.

Run by hand when a case is added or changed, and commit the result:

    python tests/golden/make_golden.py [NAME ...]        # no name: all cases

Requirements: torch==2.15.0  transformers==5.22.2  safetensors==0.8.0; for bert-regression, bert-regression-3 and
bert-multilabel also scipy and scikit-learn

Each case is a Hugging Face checkpoint (config.json, model.safetensors) plus

    golden.json               losses, learning rates, prompts and their greedy continuations
    golden.safetensors        inputs and logits (names: see README.md)
    grads/model.safetensors   gradient of every parameter for the evaluation batch, under the parameter's name
    final/model.safetensors   some cases: weights after the optimizer steps
    eval.jsonl                regression and multi-label cases: examples whose scores are in golden.json

Everything is computed in fp32 on the CPU with eager attention. All parameters are random, including biases and
layer-norm weights, with a variance high enough that attention is far from uniform.
"""
import json
import math
import re
import shutil
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import save_file
from transformers import (BertConfig, BertForMaskedLM, BertForNextSentencePrediction, BertForPreTraining,
                          BertForQuestionAnswering, BertForSequenceClassification, BertModel, GPT2Config,
                          GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM,
                          MixtralConfig, MixtralForCausalLM, OlmoeConfig, OlmoeForCausalLM, Qwen2Config,
                          Qwen2ForCausalLM, Qwen2MoeConfig, Qwen2MoeForCausalLM, Qwen3Config, Qwen3ForCausalLM,
                          Qwen3MoeConfig, Qwen3MoeForCausalLM)
from transformers.core_model_loading import revert_weight_conversion
from transformers.generation.logits_process import (TemperatureLogitsWarper, TopKLogitsWarper,
                                                    TopPLogitsWarper)

CASES = Path(__file__).resolve().parent / "cases"
VOCAB = 96
POSITIONS = 40
STEPS, MIXTURE_STEPS, WARMUP, PEAK = 10, 20, 3, 1e-3
MICROS = 2  # micro-batches per step
NEW_TOKENS = 24
ROUTER_MARGIN = 1e-4  # rounding must not change a token's experts


def gpt2_config(hidden=32, inner=64, layers=2, act="gelu_new", tied=True, vocab=VOCAB, positions=POSITIONS,
                **more):
    return GPT2Config(vocab_size=vocab, n_positions=positions, n_embd=hidden, n_layer=layers, n_head=4,
                      n_inner=inner, activation_function=act, tie_word_embeddings=tied, resid_pdrop=0.0,
                      embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=vocab - 1, eos_token_id=vocab - 1, **more)


def bert_config(hidden=32, inner=64, layers=2, act="gelu", **more):
    return BertConfig(vocab_size=VOCAB, max_position_embeddings=POSITIONS, hidden_size=hidden,
                      num_hidden_layers=layers, num_attention_heads=4, intermediate_size=inner, hidden_act=act,
                      hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **more)


def decoder_config(kind, hidden=32, inner=48, layers=2, heads=4, groups=2, tied=False, theta=10000.0, rope=None,
                   positions=POSITIONS, **more):
    """Llama and its relatives. `rope`: the scaling, as in rope_parameters."""
    return kind(vocab_size=VOCAB, max_position_embeddings=positions, hidden_size=hidden, intermediate_size=inner,
                num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=groups,
                tie_word_embeddings=tied, rope_parameters={"rope_type": "default", **(rope or {}), "rope_theta": theta},
                bos_token_id=VOCAB - 1, eos_token_id=VOCAB - 1, **more)


LLAMA3 = dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)

YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=10)
YARN_OPTIONS = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=12, beta_fast=4.0, beta_slow=0.5,
                    mscale=1.0, mscale_all_dim=0.5, truncate=False)
DYNAMIC = dict(rope_type="dynamic", factor=4.0)  # max_position_embeddings is the original length
LONGROPE = dict(rope_type="longrope", original_max_position_embeddings=12, short_factor=[1.0, 1.1, 1.25, 1.5],
                long_factor=[1.0, 1.5, 2.75, 4.0])


def small(kind, **more):
    return decoder_config(kind, hidden=24, inner=32, theta=100.0, head_dim=8, **more)


def mixture(kind, experts=4, top=2, **more):
    """A relative of Llama with experts. Qwen's experts have a size of their own; `inner` is that of the others."""
    return decoder_config(kind, num_experts=experts, num_experts_per_tok=top, **more)


def is_mixture(config):
    return hasattr(config, "num_experts_per_tok")


# name: model class, config, batch size B, sequence length T, padding, and settings that differ between cases
SPECS = {
    "gpt2": dict(cls=GPT2LMHeadModel, seed=15, config=gpt2_config(), B=2, T=24, decay=0.5, final=True),
    "gpt2-untied-padded": dict(cls=GPT2LMHeadModel, seed=19, B=3, T=19, padded=True,
                               config=gpt2_config(hidden=36, inner=72, act="gelu", tied=False)),
    "gpt2-layer-scale": dict(cls=GPT2LMHeadModel, seed=1, B=2, T=16,
                             config=gpt2_config(inner=48, layers=3, act="gelu_pytorch_tanh",
                                                scale_attn_by_inverse_layer_idx=True)),
    "gpt2-unscaled-relu": dict(cls=GPT2LMHeadModel, seed=3, B=2, T=17, padded=True,
                               config=gpt2_config(inner=40, act="relu", scale_attn_weights=False)),
    "gpt2-documents": dict(cls=GPT2LMHeadModel, seed=1, B=2, T=24, documents=True, config=gpt2_config(hidden=24, inner=32)),
    "bert-pretrain": dict(cls=BertForPreTraining, config=bert_config(), B=2, T=24, decay=0.5, final=True),
    "bert-pretrain-padded": dict(cls=BertForPreTraining, B=3, T=21, padded=True,
                                 config=bert_config(hidden=44, inner=52, act="gelu_new")),
    "bert-mlm": dict(cls=BertForMaskedLM, config=bert_config(act="relu", tie_word_embeddings=False), B=2, T=16),
    "bert-nsp": dict(cls=BertForNextSentencePrediction, config=bert_config(), B=3, T=18, padded=True),
    "bert-span": dict(cls=BertForQuestionAnswering, config=bert_config(), B=4, T=20, padded=True),
    "bert-classify": dict(cls=BertForSequenceClassification, B=4, T=17, padded=True,
                          config=bert_config(num_labels=5, hidden=40, inner=48)),
    "bert-regression": dict(cls=BertForSequenceClassification, B=4, T=10, padded=True, problem="regression",
                            config=bert_config(num_labels=1, hidden=24, inner=32)),
    "bert-regression-3": dict(cls=BertForSequenceClassification, B=4, T=10, padded=True, problem="regression",
                              config=bert_config(num_labels=3, problem_type="regression", hidden=24, inner=32)),
    "bert-multilabel": dict(cls=BertForSequenceClassification, B=4, T=10, padded=True,
                            problem="multi_label_classification",
                            config=bert_config(num_labels=5, problem_type="multi_label_classification", hidden=24,
                                               inner=32)),
    "bert-bare": dict(cls=BertModel, config=bert_config(), B=2, T=22, padded=True),
    "llama": dict(cls=LlamaForCausalLM, seed=1, B=2, T=24, decay=0.5, final=True, config=decoder_config(LlamaConfig)),
    "llama-3": dict(cls=LlamaForCausalLM, seed=1, B=3, T=19, padded=True,
                    config=decoder_config(LlamaConfig, heads=4, groups=1, tied=True, theta=500.0, rope=LLAMA3,
                                          rms_norm_eps=1e-5)),
    "llama-bias": dict(cls=LlamaForCausalLM, seed=1, B=2, T=17,
                       config=decoder_config(LlamaConfig, hidden=24, groups=4, attention_bias=True, mlp_bias=True,
                                             head_dim=8, rope=dict(rope_type="linear", factor=2.0), pad_token_id=3)),
    "mistral": dict(cls=MistralForCausalLM, seed=1, B=2, T=24, config=decoder_config(MistralConfig, sliding_window=7)),
    "mistral-documents": dict(cls=MistralForCausalLM, seed=1, B=2, T=24, documents=True,
                              config=decoder_config(MistralConfig, hidden=24, inner=32, sliding_window=5)),
    "qwen2": dict(cls=Qwen2ForCausalLM, seed=1, B=2, T=24,
                  config=decoder_config(Qwen2Config, tied=True, use_sliding_window=True, sliding_window=5,
                                        max_window_layers=1)),
    "qwen3": dict(cls=Qwen3ForCausalLM, seed=1, B=2, T=24, decay=0.5, final=True,
                  config=decoder_config(Qwen3Config, head_dim=12, attention_bias=True)),
    "llama-yarn": dict(cls=LlamaForCausalLM, seed=1, B=2, T=24, config=small(LlamaConfig, rope=YARN)),
    "llama-dynamic": dict(cls=LlamaForCausalLM, seed=1, B=2, T=24, config=small(LlamaConfig, rope=DYNAMIC, positions=10)),
    "llama-longrope": dict(cls=LlamaForCausalLM, seed=1, B=2, T=24, config=small(LlamaConfig, rope=LONGROPE)),
    "mistral-longrope": dict(cls=MistralForCausalLM, seed=1, B=2, T=24,
                             config=small(MistralConfig, rope={**LONGROPE, "attention_factor": 1.2}, sliding_window=9)),
    "qwen2-linear": dict(cls=Qwen2ForCausalLM, seed=1, B=2, T=24,
                         config=small(Qwen2Config, rope=dict(rope_type="linear", factor=4.0))),
    "qwen2-dynamic": dict(cls=Qwen2ForCausalLM, seed=1, B=2, T=24, padded=True,
                          config=small(Qwen2Config, rope=DYNAMIC, positions=12)),
    "qwen3-yarn": dict(cls=Qwen3ForCausalLM, seed=1, B=2, T=24, config=small(Qwen3Config, rope=YARN_OPTIONS)),
    "qwen3-llama3": dict(cls=Qwen3ForCausalLM, seed=1, B=2, T=24, config=small(Qwen3Config, rope=LLAMA3)),
    "mixtral": dict(cls=MixtralForCausalLM, seed=1, B=2, T=24, decay=0.5, final=True,
                    config=mixture(MixtralConfig, inner=24, sliding_window=7)),
    "mixtral-balance": dict(cls=MixtralForCausalLM, seed=1, B=3, T=19, padded=True, z=0.01,
                            config=mixture(MixtralConfig, experts=8, hidden=24, inner=16, groups=1,
                                           router_aux_loss_coef=0.05)),
    "qwen2-moe": dict(cls=Qwen2MoeForCausalLM, seed=1, B=2, T=24,
                      config=mixture(Qwen2MoeConfig, experts=6, inner=40, layers=3, moe_intermediate_size=16,
                                     shared_expert_intermediate_size=24, mlp_only_layers=[1])),
    "qwen3-moe": dict(cls=Qwen3MoeForCausalLM, seed=1, B=2, T=24,
                      config=mixture(Qwen3MoeConfig, inner=40, layers=3, moe_intermediate_size=20, head_dim=12,
                                     norm_topk_prob=True, attention_bias=True, decoder_sparse_step=2)),
    "qwen3-moe-top-3": dict(cls=Qwen3MoeForCausalLM, seed=1, B=3, T=17,
                            config=mixture(Qwen3MoeConfig, experts=5, top=3, hidden=24, inner=32, head_dim=8, tied=True,
                                           moe_intermediate_size=12, mlp_only_layers=[0])),
    "qwen3-moe-balance": dict(cls=Qwen3MoeForCausalLM, seed=1, B=2, T=20, z=0.02,
                              config=mixture(Qwen3MoeConfig, hidden=24, inner=28, layers=4, moe_intermediate_size=12,
                                             head_dim=8, norm_topk_prob=True, decoder_sparse_step=2,
                                             router_aux_loss_coef=0.1)),
    "olmoe": dict(cls=OlmoeForCausalLM, seed=1, B=2, T=24,
                  config=mixture(OlmoeConfig, experts=8, inner=16, groups=4)),
    "olmoe-bias": dict(cls=OlmoeForCausalLM, seed=1, B=2, T=17,
                       config=mixture(OlmoeConfig, hidden=24, inner=20, groups=4, tied=True, attention_bias=True,
                                      norm_topk_prob=True, pad_token_id=None)),
    "gpt2-both-ways": dict(cls=GPT2LMHeadModel, B=3, T=15, padded=True,
                           config=gpt2_config(hidden=24, inner=32, is_causal=False)),
    "qwen2-both-ways": dict(cls=Qwen2ForCausalLM, B=2, T=17,
                            config=decoder_config(Qwen2Config, hidden=24, inner=32, is_causal=False)),
    "gpt2-generate": dict(cls=GPT2LMHeadModel, seed=170, generate_only=True, half=True,
                          config=gpt2_config(hidden=64, inner=128, layers=3, vocab=257, positions=64)),
}


def heads_of(cls):
    if cls.__name__.endswith("ForCausalLM"):
        return ["lm"]
    return {GPT2LMHeadModel: ["lm"], BertForPreTraining: ["mlm", "nsp"], BertForMaskedLM: ["mlm"],
            BertForNextSentencePrediction: ["nsp"], BertForQuestionAnswering: ["span"],
            BertForSequenceClassification: ["classify"], BertModel: []}[cls]


def randomize(model, gen):
    """Assign random values to all parameters, in the order of their names."""
    done = set()
    for name, param in sorted(model.named_parameters()):
        if param.data_ptr() in done:
            continue
        done.add(param.data_ptr())
        noise = torch.randn(param.shape, generator=gen)
        lowered = name.lower()
        if param.ndim == 1 and ("ln_" in lowered or "norm" in lowered) and name.endswith("weight"):
            param.data = 1 + 0.2 * noise
        elif param.ndim == 1:
            param.data = 0.1 * noise
        elif "wte" in lowered or "wpe" in lowered or "embeddings" in lowered or "embed_tokens" in lowered:
            param.data = 0.4 * noise
        else:
            fan_in = param.shape[0] if ".c_" in name else param.shape[-1]  # Conv1D is (in, out)
            param.data = noise * (1.2 / math.sqrt(fan_in))


class Routing:
    """Records the logits (N,E) and chosen experts (N,K) of every router in a mixture of experts."""

    def __init__(self, model):
        self.routers = {router: int(re.search(r"layers\.(\d+)\.", name)[1]) for name, router in model.named_modules()
                        if type(router).__name__.endswith("TopKRouter")}
        self.calls, self.margin = [], math.inf
        for router in self.routers:
            router.register_forward_hook(self.record)

    def record(self, router, inputs, outputs):
        logits, _, experts = outputs
        best = logits.detach().topk(min(experts.shape[1] + 1, logits.shape[1])).values
        self.margin = min(self.margin, float((best[:, :-1] - best[:, 1:]).min()))
        self.calls.append((self.routers[router], logits, experts))

    def take(self):
        """(layer, logits, experts) of each call since the last time."""
        calls, self.calls = self.calls, []
        return calls


class Balance:
    """The terms of the objective that balance experts. `load` is each expert's share of the tokens in the step before:
    a step knows its own only at its end. The first step assumes equal shares."""

    def __init__(self, spec, routing):
        config = spec["config"]
        self.experts, self.layers = config.num_experts, len(routing.routers)
        self.aux_coef, self.z_coef = config.router_aux_loss_coef, spec.get("z", 0.0)
        self.load = torch.full((self.layers, self.experts), config.num_experts_per_tok / self.experts)

    def step(self, calls, batches):
        """The two terms of a step, and how many tokens each layer sent to each expert. `calls` has those of each batch."""
        real = [real_tokens(batch).flatten() for batch in batches]
        tokens = sum(int(mask.sum()) for mask in real)
        counts = torch.zeros((self.layers, self.experts), dtype=torch.long)
        aux = z = 0.0
        for mask, layers in zip(real, calls):
            for at, (_, logits, experts) in enumerate(layers):
                aux = aux + self.experts * (self.load[at] * logits[mask].softmax(-1).sum(0)).sum()
                z = z + logits[mask].logsumexp(-1).square().sum()
                counts[at] += torch.bincount(experts[mask].flatten(), minlength=self.experts)
        self.load = counts / tokens
        return aux / tokens / self.layers, z / tokens / self.layers, counts


class Batches:
    """Draws micro-batches for a case."""

    def __init__(self, spec, gen):
        self.spec, self.gen = spec, gen
        self.heads = heads_of(spec["cls"])
        self.config = spec["config"]

    def ints(self, low, high, shape):
        return torch.randint(low, high, shape, generator=self.gen)

    def draw(self):
        B, T, heads = self.spec["B"], self.spec["T"], self.heads
        batch = {"tokens": self.ints(0, VOCAB, (B, T))}  # 0 is BERT's padding token, whose embedding transformers does not train
        lens = torch.full((B,), T)
        if self.spec.get("padded"):
            lens = self.ints(T // 3, T + 1, (B,))
            lens[int(self.ints(0, B, (1,)))] = T
            batch["lens"] = lens
        real = torch.arange(T)[None, :] < lens[:, None]
        batch["tokens"][~real] = 0
        if "lm" in heads:
            batch["labels"] = self.next_tokens(batch["tokens"], real)
            if self.spec.get("documents"):
                self.documents(batch)
        else:
            split = (lens * (0.3 + 0.4 * torch.rand(B, generator=self.gen))).long()
            batch["types"] = ((torch.arange(T)[None, :] >= split[:, None]) & real).long()
        if "mlm" in heads:
            picked = (torch.rand((B, T), generator=self.gen) < 0.25) & real
            picked[0, 1] = True
            batch["picks"] = picked.flatten().nonzero().flatten()
            batch["pick_labels"] = self.ints(0, VOCAB, (len(batch["picks"]),))
        if "nsp" in heads:
            batch["nsp"] = self.ints(0, 2, (B,))
        if "span" in heads:
            start = (torch.rand(B, generator=self.gen) * lens).long()
            end = start + (torch.rand(B, generator=self.gen) * (lens - start)).long()
            start[int(self.ints(0, B, (1,)))] = T  # outside the window: ignored
            batch["span"] = torch.stack([start, end])
        if "classify" in heads:
            self.classify(batch, B)
        return batch

    def documents(self, batch):
        """Puts several documents into each sequence. Each ends with the end token, whose label is ignored."""
        B, T = batch["tokens"].shape
        end = self.config.eos_token_id
        ends = torch.rand((B, T), generator=self.gen) < 0.2
        ends[0, 9] = ends[0, 10] = True  # a document without text
        batch["labels"][:, :-1][ends[:, 1:] & (batch["labels"][:, :-1] >= 0)] = end
        batch["tokens"][ends], batch["labels"][ends] = end, -100
        batch["labels"][batch["tokens"] == end] = -100
        first = torch.zeros((B, T), dtype=torch.long)
        first[:, 1:] = torch.where(batch["tokens"][:, :-1] == end, torch.arange(1, T)[None, :], torch.tensor(0))
        batch["starts"] = first.cummax(1).values

    def classify(self, batch, B):
        """Labels for the case's problem type; with one label, transformers assumes regression."""
        L, problem = self.config.num_labels, self.spec.get("problem")
        if problem == "regression":
            batch["targets"] = 2 * torch.randn((B, L), generator=self.gen)
        elif problem == "multi_label_classification":
            batch["targets"] = self.ints(0, 2, (B, L)).float()
        else:
            batch["classes"] = self.ints(0, L, (B,))

    def next_tokens(self, tokens, real):
        """The next token, or -100 at the end, before padding, and at some random positions."""
        labels = torch.full_like(tokens, -100)
        labels[:, :-1] = torch.where(real[:, 1:], tokens[:, 1:], torch.tensor(-100))
        dropped = torch.rand(labels.shape, generator=self.gen) < 0.1
        return torch.where(dropped, torch.tensor(-100), labels)


def document_mask(config, starts):
    """The mask (B,1,T,T) that keeps a query in its document and window, and positions that restart in each document.
    transformers uses a mask of four dimensions as it is."""
    at = torch.arange(starts.shape[1])
    first = torch.maximum(starts, at - (getattr(config, "sliding_window", None) or len(at)) + 1)
    seen = (at[None, None, :] >= first[:, :, None]) & (at[None, None, :] <= at[None, :, None])
    mask = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)
    return mask[:, None], at[None, :] - starts


def real_tokens(batch):
    """(B,T): false for padding."""
    B, T = batch["tokens"].shape
    return torch.arange(T)[None, :] < batch.get("lens", torch.full((B,), T))[:, None]


def forward(model, batch):
    """Logits by head: lm, mlm (B,T,V), nsp (B,2), span (B,T,2), classify (B,L)."""
    B, T = batch["tokens"].shape
    more = {}
    if "lens" in batch:
        more["attention_mask"] = (torch.arange(T)[None, :] < batch["lens"][:, None]).long()
    if "starts" in batch:
        more["attention_mask"], more["position_ids"] = document_mask(model.config, batch["starts"])
    if "types" in batch:
        more["token_type_ids"] = batch["types"]
    out = model(input_ids=batch["tokens"], **more)
    if heads_of(type(model)) == ["lm"]:
        return {"lm": out.logits}
    if isinstance(model, BertForPreTraining):
        return {"mlm": out.prediction_logits, "nsp": out.seq_relationship_logits}
    if isinstance(model, BertForMaskedLM):
        return {"mlm": out.logits}
    if isinstance(model, BertForNextSentencePrediction):
        return {"nsp": out.logits}
    if isinstance(model, BertForQuestionAnswering):
        return {"span": torch.stack([out.start_logits, out.end_logits], -1)}
    return {"classify": out.logits}


def target_sum(logits, targets, problem):
    """The sum of squared errors or of binary cross-entropies, and the number of targets."""
    if problem == "regression":
        return F.mse_loss(logits, targets, reduction="sum"), targets.numel()
    return F.binary_cross_entropy_with_logits(logits, targets, reduction="sum"), targets.numel()


def loss_sums(scores, batch, problem=None):
    """For each loss: its sum over the items that are not ignored, and their number."""
    sums = {}
    if "lm" in scores:
        logits, labels = scores["lm"], batch["labels"]
        sums["lm"] = (F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum"),
                      int((labels >= 0).sum()))
    if "mlm" in scores:
        logits = scores["mlm"].flatten(0, 1)[batch["picks"]]
        sums["mlm"] = (F.cross_entropy(logits, batch["pick_labels"], reduction="sum"), len(batch["picks"]))
    if "nsp" in scores:
        sums["nsp"] = (F.cross_entropy(scores["nsp"], batch["nsp"], reduction="sum"), len(batch["nsp"]))
    if "span" in scores:
        T = scores["span"].shape[1]
        for i, name in enumerate(["span_start", "span_end"]):
            at = batch["span"][i]
            sums[name] = (F.cross_entropy(scores["span"][..., i], at, ignore_index=T, reduction="sum"),
                          int((at < T).sum()))
    if "targets" in batch:
        sums["classify"] = target_sum(scores["classify"], batch["targets"], problem)
    elif "classify" in scores:
        sums["classify"] = (F.cross_entropy(scores["classify"], batch["classes"], reduction="sum"),
                            len(batch["classes"]))
    return sums


def objective(sum_lists):
    """The loss of several micro-batches: each kind's sum is divided once by its total count. Kinds are added, except
    that the start and end of a span are averaged."""
    total, parts, counts = 0.0, {}, {}
    for name in sum_lists[0]:
        count = sum(sums[name][1] for sums in sum_lists)
        value = sum(sums[name][0] for sums in sum_lists) / count
        parts[name], counts[name] = value.item(), count
        total = total + value * (0.5 if name.startswith("span") else 1.0)
    return total, parts, counts


def lr_at(step, steps):
    """Learning rate at step 1 .. steps: rises linearly to PEAK at step WARMUP, then falls linearly and would reach 0 at
    step steps + 1."""
    if step <= WARMUP:
        return PEAK * step / WARMUP
    return PEAK * (steps + 1 - step) / (steps + 1 - WARMUP)


def optimizer_for(model, decay):
    with_decay = [p for p in model.parameters() if p.ndim >= 2]
    without = [p for p in model.parameters() if p.ndim < 2]
    return torch.optim.AdamW([{"params": with_decay, "weight_decay": decay},
                              {"params": without, "weight_decay": 0.0}], lr=PEAK, betas=(0.9, 0.999), eps=1e-8)


def train(model, spec, batches, arrays, facts, routing):
    """Run AdamW steps of two micro-batches; add the inputs to arrays and the losses to facts."""
    decay = spec.get("decay", 0.01)
    optimizer = optimizer_for(model, decay)
    losses, norms, rates, counts_list = [], [], [], []
    balance = Balance(spec, routing) if routing.routers else None
    steps = MIXTURE_STEPS if balance else STEPS
    more = {"aux": [], "z": [], "objectives": []} if "z" in spec else {}
    sent = []  # tokens of each expert
    for step in range(1, steps + 1):
        micros = [batches.draw() for _ in range(MICROS)]
        for m, batch in enumerate(micros):
            arrays.update({f"step.{step}.{m}.{key}": value for key, value in batch.items()})
        sums, calls = [], []
        for batch in micros:
            sums.append(loss_sums(forward(model, batch), batch, spec.get("problem")))
            calls.append(routing.take())
        loss, _, counts = objective(sums)
        losses.append(loss.item())
        if balance:
            aux, z, tokens = balance.step(calls, micros)
            sent.append(tokens.tolist())
        if more:
            loss = loss + balance.aux_coef * aux + balance.z_coef * z
            for key, value in (("aux", aux), ("z", z), ("objectives", loss)):
                more[key].append(value.item())
        for group in optimizer.param_groups:
            group["lr"] = lr_at(step, steps)
        optimizer.zero_grad()
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)))
        optimizer.step()
        rates.append(lr_at(step, steps))
        counts_list.append(counts)
    facts["train"] = {
        "steps": steps, "micros": MICROS, "warmup": WARMUP, "peak_lr": PEAK, "weight_decay": decay,
        "betas": [0.9, 0.999], "eps": 1e-8, "clip": 1.0,
        "schedule": "lr(step) = peak * step / warmup up to the warm-up's end, then "
                    "peak * (steps + 1 - step) / (steps + 1 - warmup); step counts from 1",
        "lr": rates, "losses": losses, "grad_norms": norms, "counts": counts_list, **more,
    }
    if balance:
        facts["train"]["expert_counts"] = sent
    if more:
        facts["train"].update(aux_coef=balance.aux_coef, z_coef=balance.z_coef)


def greedy(model, gen, vocab):
    """Greedy continuations, and the smallest margin between the best and second-best logit."""
    cases = []
    for length in (1, 3, 8, 13):
        prompt = torch.randint(0, vocab, (1, length), generator=gen)
        model(prompt[:, :1])  # dynamic rotary frequencies remember the longest sequence since a short one
        out = model.generate(prompt, do_sample=False, max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS,
                             eos_token_id=None, pad_token_id=0, attention_mask=torch.ones_like(prompt),
                             output_logits=True, return_dict_in_generate=True)
        top = torch.stack(out.logits)[:, 0].topk(2).values
        cases.append({"prompt": prompt[0].tolist(), "continuation": out.sequences[0, length:].tolist(),
                      "margin": float((top[:, 0] - top[:, 1]).min())})
    return cases


def safe_margins(spec, build, wanted):
    """Find the first seed, starting with the case's own, whose greedy margins are at least `wanted`, so that rounding
    cannot change the continuation."""
    for seed in range(spec["seed"], 1000):
        model, gen = build(seed)
        cases = greedy(model, gen, spec["config"].vocab_size)
        varied = all(len(set(case["continuation"])) > 3 for case in cases)
        if varied and min(case["margin"] for case in cases) >= wanted:
            return seed, cases
    raise SystemExit("no seed has sufficient margins")


def contiguous(tensors):
    return {key: value.to(torch.int32) if value.dtype == torch.int64 else value.detach().contiguous()
            for key, value in tensors.items()}


def save_named(folder, tensors):
    folder.mkdir(parents=True, exist_ok=True)
    save_file(contiguous(tensors), folder / "model.safetensors", metadata={"format": "pt"})


def checkpoint_tensors(model, tensors):
    """Parameters, or their gradients, as save_pretrained names and divides them."""
    return revert_weight_conversion(model, tensors) if is_mixture(model.config) else tensors


def make(name, spec):
    """Makes a case, with the first seed for which rounding cannot change a token's experts."""
    while make_with_seed(name, spec) < ROUTER_MARGIN:
        spec["seed"] += 1


def make_with_seed(name, spec):
    """Returns the smallest difference between the logits of two experts that decides between them."""
    folder = CASES / name
    shutil.rmtree(folder, ignore_errors=True)

    def build(seed):
        gen = torch.Generator().manual_seed(seed)
        torch.manual_seed(seed)
        config = spec["config"]
        config._attn_implementation = "eager"
        if is_mixture(config):
            config._experts_implementation = "eager"
        model = spec["cls"](config)
        randomize(model, gen)
        if spec.get("half"):
            for param in model.parameters():
                param.data = param.data.half().float()
        return model.eval(), gen

    facts, arrays = {"name": name, "heads": heads_of(spec["cls"])}, {}
    facts["made_with"] = {"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__}
    seed = sum(map(ord, name))
    if "lm" in facts["heads"] and getattr(spec["config"], "is_causal", True):
        seed, facts["greedy"] = safe_margins(spec, build, 0.05 if spec.get("generate_only") else 0.01)
    facts["seed"] = spec["seed"] = seed
    model, gen = build(seed)
    routing = Routing(model)
    saved = model.half() if spec.get("half") else model
    saved.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    model = model.float()

    if not spec.get("generate_only"):
        facts.update(B=spec["B"], T=spec["T"], padded=bool(spec.get("padded")))
        batches = Batches(spec, gen)
        batch = batches.draw()
        arrays.update(batch)
        if spec["cls"] is BertModel:
            hidden_states(model, batch, arrays)
        else:
            evaluate(model, batch, arrays, facts, folder, spec.get("problem"), routing)
            if "problem" in spec:
                score_examples(model, spec, gen, facts, folder)
            train(model, spec, batches, arrays, facts, routing)
            if spec.get("final"):
                save_named(folder / "final", checkpoint_tensors(model, dict(model.named_parameters())))
        save_file(contiguous(arrays), folder / "golden.safetensors")
    if routing.routers:
        facts["router_margin"] = routing.margin
    text = json.dumps(facts, indent=1)
    text = re.sub(r"\[([^\[\]{}]*)\]", lambda found: "[" + " ".join(found[1].split()) + "]", text)
    (folder / "golden.json").write_text(text + "\n")
    return routing.margin


def hidden_states(model, batch, arrays):
    mask = (torch.arange(batch["tokens"].shape[1])[None, :] < batch["lens"][:, None]).long()
    out = model(input_ids=batch["tokens"], token_type_ids=batch["types"], attention_mask=mask)
    arrays["hidden"], arrays["pooled"] = out.last_hidden_state, out.pooler_output


def check_own_loss(model, batch, loss):
    """transformers' own loss, which chooses the problem type itself, must be the one computed here."""
    T = batch["tokens"].shape[1]
    mask = (torch.arange(T)[None, :] < batch["lens"][:, None]).long()
    own = model(input_ids=batch["tokens"], token_type_ids=batch["types"], attention_mask=mask,
                labels=batch["targets"]).loss
    assert abs(own.item() - loss.item()) <= 1e-6 * abs(loss.item()), (own, loss)


def score_examples(model, spec, gen, facts, folder):
    """Write examples with many ties to eval.jsonl, and their loss and scores by transformers, SciPy and scikit-learn to
    facts."""
    from scipy.stats import pearsonr, spearmanr
    from sklearn.metrics import accuracy_score, f1_score
    L, T, count = spec["config"].num_labels, spec["T"], 37
    tokens = torch.randint(1, VOCAB, (count, T), generator=gen)
    lens = torch.randint(2, T + 1, (count,), generator=gen)
    mask = (torch.arange(T)[None, :] < lens[:, None]).long()
    labels = torch.randint(0, 2 if spec["problem"] == "multi_label_classification" else 5, (count, L), generator=gen)
    targets = labels.float() / (1 if spec["problem"] == "multi_label_classification" else 2)
    with torch.no_grad():
        out = model(input_ids=tokens * mask, attention_mask=mask, labels=targets)
    with open(folder / "eval.jsonl", "w") as file:
        for ids, length, label in zip(tokens.tolist(), lens.tolist(), targets.tolist()):
            file.write(json.dumps({"ids": ids[:length], "label": label if L > 1 else label[0]}) + "\n")
    given, predicted = targets.double().numpy(), out.logits.double().numpy()
    scores = {"loss": out.loss.item()}
    if spec["problem"] == "regression":
        scores["mse"] = float(((given - predicted) ** 2).mean())
        scores["pearson"] = sum(float(pearsonr(given[:, i], predicted[:, i])[0]) for i in range(L)) / L
        scores["spearman"] = sum(float(spearmanr(given[:, i], predicted[:, i])[0]) for i in range(L)) / L
    else:
        chosen = predicted > 0
        scores["accuracy"] = float(accuracy_score(given, chosen))
        for average in ("micro", "macro", "weighted"):
            scores["f1_" + average] = float(f1_score(given, chosen, average=average, zero_division=0))
    facts["eval"] = scores


def evaluate(model, batch, arrays, facts, folder, problem, routing):
    scores = forward(model, batch)
    arrays.update({f"experts.{layer}": experts.view(*batch["tokens"].shape, -1)
                   for layer, _, experts in routing.take()})
    loss, parts, counts = objective([loss_sums(scores, batch, problem)])
    if "targets" in batch:
        check_own_loss(model, batch, loss)
    loss.backward()
    arrays.update({"logits." + head: value for head, value in scores.items()})
    facts.update(loss=loss.item(), losses=parts, counts=counts)
    grads = {key: p.grad for key, p in model.named_parameters() if p.grad is not None}  # an untied MLM head has an unused bias
    save_named(folder / "grads", checkpoint_tensors(model, grads))
    model.zero_grad()


def sampling_facts():
    """Write probabilities after temperature, top-k and top-p, in that order."""
    gen = torch.Generator().manual_seed(5)
    cases = []
    vectors = [torch.randn(12, generator=gen) * 2, torch.randn(40, generator=gen),
               torch.tensor([1.0, 1.0, 1.0, 1.0, 0.0]), torch.tensor([9.0, 0.0, 0.5, -3.0])]
    for scores in vectors:
        for temperature, k, p in [(1.0, 0, 0.9), (0.7, 5, 1.0), (1.3, 6, 0.8), (1.0, 1, 1.0), (1.0, 0, 0.05)]:
            left = scores[None, :].clone()
            if temperature != 1.0:
                left = TemperatureLogitsWarper(temperature)(None, left)
            if k:
                left = TopKLogitsWarper(k)(None, left)
            if p < 1.0:
                left = TopPLogitsWarper(p)(None, left)
            cases.append({"scores": scores.tolist(), "temperature": temperature, "top_k": k, "top_p": p,
                          "probabilities": torch.softmax(left[0], -1).tolist()})
    (CASES / "sampling.json").write_text(
        "[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")


def main(names):
    torch.set_num_threads(1)
    transformers.logging.disable_progress_bar()
    for name in names or SPECS:
        make(name, SPECS[name])
        print(name)
    if not names:
        sampling_facts()


if __name__ == "__main__":
    main(sys.argv[1:])
