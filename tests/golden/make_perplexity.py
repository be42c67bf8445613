#!/usr/bin/env python3
"""Generate cases/perplexity.json: total loss of a text under transformers, evaluated with sliding windows.

    python tests/golden/make_perplexity.py

A window has T tokens plus the next one as the last target. The next window starts `stride` tokens later and counts only
targets that earlier windows did not cover. Requirements: see make_golden.py.
"""
import json
from pathlib import Path

import torch
from transformers import GPT2LMHeadModel

CASES = Path(__file__).resolve().parent / "cases"
T = 16


def total(model, ids, stride):
    nll, count, hits, reached, begin = 0.0, 0, 0, 0, 0
    while True:
        window = torch.tensor(ids[begin:begin + T + 1])
        with torch.no_grad():
            scores = torch.log_softmax(model(window[None]).logits[0, :-1].double(), -1)
        fresh = max(reached - begin, 0)
        losses = -scores[torch.arange(len(window) - 1), window[1:]]
        nll += losses[fresh:].sum().item()
        count += len(losses) - fresh
        hits += (scores.argmax(-1) == window[1:])[fresh:].sum().item()
        reached = begin + len(window) - 1
        if begin + len(window) == len(ids):
            return {"stride": stride, "nll": nll, "tokens": count, "hits": hits}
        begin += stride


def main():
    model = GPT2LMHeadModel.from_pretrained(CASES / "gpt2").eval()
    ids = [(i * i * 7 + i * 3) % 95 for i in range(150)]
    cases = [total(model, ids, stride) for stride in (16, 5, 1)]
    text = json.dumps({"ids": ids, "seq": T, "cases": cases})
    (CASES / "perplexity.json").write_text(text + "\n")


main()
