#!/usr/bin/env python3
"""Generate the golden files under lora/: adapters of cases/ that PEFT trains and merges.

    python tests/golden/make_lora.py [NAME ...]        # no name: all cases

Requirements: those of make_golden.py and peft==0.21.2. README.md describes the files.
"""
import json
import shutil
import sys
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from safetensors.torch import load_file, save_file

from make_golden import CASES, MICROS, SPECS, STEPS, forward, loss_sums, objective

FOLDER = Path(__file__).resolve().parent / "lora"
TRAINED = 2 * STEPS  # the inputs of the case's steps, twice
LR = 1e-3
ALL = "all-linear"

# name: case and settings. `merge`: store the merged weights
LORA = {
    "gpt2": dict(case="gpt2", r=3, lora_alpha=6, target_modules=["c_attn", "c_proj", "c_fc"], merge=True),
    "llama": dict(case="llama", r=4, lora_alpha=4, target_modules=ALL, merge=True),
    "llama-q-v": dict(case="llama-3", r=2, lora_alpha=7, target_modules=["q_proj", "v_proj"], use_rslora=True),
    "qwen3": dict(case="qwen3", r=3, lora_alpha=3, target_modules=["k_proj", "o_proj", "up_proj"]),
    "mixtral": dict(case="mixtral", r=2, lora_alpha=4, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]),
    "bert-classify": dict(case="bert-classify", r=3, lora_alpha=6, task_type="SEQ_CLS", merge=True,
                          target_modules=["query", "key", "value", "attention.output.dense", "intermediate.dense",
                                          "output.dense"]),
}


def batch_at(arrays, prefix):
    batch = {name[len(prefix):]: value for name, value in arrays.items() if name.startswith(prefix)}
    return {name: value.long() if value.dtype == torch.int32 else value for name, value in batch.items()
            if not name.startswith(("logits.", "step."))}


def randomize(peft, gen):
    for name, param in sorted(peft.named_parameters()):
        if "lora_" in name:
            param.data = 0.3 * torch.randn(param.shape, generator=gen) / param.shape[1] ** 0.5


def save(peft, folder, tensors=None):
    """The adapter as PEFT saves it, or other values under the same names."""
    peft.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    config = json.loads((folder / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = None
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    if tensors:
        save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})


def gradients(peft, base, batch, problem):
    peft.zero_grad()
    loss, _, _ = objective([loss_sums(forward(base, batch), batch, problem)])
    loss.backward()
    grads = {name: param.grad for name, param in peft.named_parameters() if param.grad is not None}
    state = {name: grads[name] for name in grads}
    return float(loss), get_peft_model_state_dict(peft, state_dict=state)


def train(peft, base, arrays, problem):
    optimizer = torch.optim.AdamW([p for p in peft.parameters() if p.requires_grad], lr=LR, weight_decay=0.0)
    losses, norms = [], []
    for step in range(TRAINED):
        optimizer.zero_grad()
        batches = [batch_at(arrays, f"step.{step % STEPS + 1}.{k}.") for k in range(MICROS)]
        loss, _, _ = objective([loss_sums(forward(base, batch), batch, problem) for batch in batches])
        loss.backward()
        norms.append(float(torch.nn.utils.get_total_norm([p.grad for p in peft.parameters() if p.grad is not None])))
        optimizer.step()
        losses.append(float(loss))
    return losses, norms


def make(name, spec):
    spec = dict(spec)
    case, merge = spec.pop("case"), spec.pop("merge", False)
    folder, source = FOLDER / name, CASES / case
    problem = SPECS[case].get("problem")
    arrays = load_file(source / "golden.safetensors")
    base = SPECS[case]["cls"].from_pretrained(source, dtype=torch.float32, attn_implementation="eager")
    peft = get_peft_model(base, LoraConfig(**spec))
    peft.eval()  # no dropout
    randomize(peft, torch.Generator().manual_seed(7))
    shutil.rmtree(folder, ignore_errors=True)
    save(peft, folder / "start")
    batch = batch_at(arrays, "")
    loss, grads = gradients(peft, base, batch, problem)
    save(peft, folder / "grads", {key: value.contiguous().clone() for key, value in grads.items()})
    losses, norms = train(peft, base, arrays, problem)
    last, grads = gradients(peft, base, batch, problem)
    save(peft, folder / "final-grads", {key: value.contiguous().clone() for key, value in grads.items()})
    save(peft, folder / "final")
    facts = {"case": case, "loss": loss, "losses": losses, "norms": norms, "final_loss": last, "lr": LR}
    (folder / "lora.json").write_text(json.dumps(facts, indent=1) + "\n")
    if merge:
        merged = peft.merge_and_unload()
        merged.save_pretrained(folder / "merged")
        for extra in (folder / "merged").iterdir():
            if extra.name not in ("config.json", "model.safetensors"):
                extra.unlink()
    print(name, loss, "->", losses[-1])


if __name__ == "__main__":
    for wanted in sys.argv[1:] or LORA:
        make(wanted, LORA[wanted])
