#!/usr/bin/env python3
"""Generate cases/predictions.json: what transformers predicts for rows of token ids, for `weft predict` and `weft embed`.

    python tests/golden/make_predictions.py

Embeddings are computed as sentence-transformers does: the mean over the tokens that the attention mask has, or one token,
then torch.nn.functional.normalize. Requirements: see make_golden.py.
"""
import json
from pathlib import Path

import torch
import transformers
from torch.nn.functional import normalize

CASES = Path(__file__).resolve().parent / "cases"
LENGTHS = (4, 17, 40, 9, 23)
CLS, SEP, MASK = 2, 3, 4
TOP = 3
ENCODERS = ("bert-bare", "bert-classify", "bert-multilabel", "bert-regression-3", "bert-pretrain", "bert-span")
DECODERS = ("gpt2", "llama", "qwen3", "mistral", "gpt2-both-ways")


def rows(encoder):
    made = []
    for r, length in enumerate(LENGTHS):
        ids = [5 + (i * i * 7 + i * 3 + r * 11) % 90 for i in range(length)]
        if encoder:
            half = length // 2
            ids[0], ids[half], ids[-1], ids[1 + r % (half - 1)] = CLS, SEP, SEP, MASK
            made.append({"id": f"row{r}", "ids": ids, "types": [int(i > half) for i in range(length)]})
        else:
            made.append({"id": f"row{r}", "ids": ids})
    return made


def batch(given):
    longest = max(LENGTHS)
    pad = lambda list: list + [0] * (longest - len(list))
    inputs = {"input_ids": torch.tensor([pad(row["ids"]) for row in given]),
              "attention_mask": torch.tensor([pad([1] * len(row["ids"])) for row in given])}
    if "types" in given[0]:
        inputs["token_type_ids"] = torch.tensor([pad(row["types"]) for row in given])
    return inputs


def top(logits):
    values, ids = torch.softmax(logits.double(), -1).topk(TOP)
    return [[i, p] for i, p in zip(ids.tolist(), values.tolist())]


def span(start, end, length):
    pairs = start[:length, None].double().softmax(0) * end[None, :length].double().softmax(1)
    best = int(torch.triu(pairs).argmax())
    return [best // length, best % length, float(pairs.flatten()[best])]


def predict(name, model, given, inputs):
    with torch.no_grad():
        out = model(**inputs)
    found = []
    for b, row in enumerate(given):
        ids = torch.tensor(row["ids"])
        if name == "bert-pretrain":
            at = row["ids"].index(MASK)
            follows = torch.softmax(out.seq_relationship_logits[b].double(), -1)[0]
            found.append({"position": at, "top": top(out.prediction_logits[b, at]), "next_sentence": float(follows)})
        elif name == "bert-span":
            found.append(span(out.start_logits[b, :], out.end_logits[b, :], len(ids)))
        elif name == "bert-multilabel":
            found.append(torch.sigmoid(out.logits[b].double()).tolist())
        elif name == "bert-classify":
            found.append(torch.softmax(out.logits[b].double(), -1).tolist())
        elif name == "bert-regression-3":
            found.append(out.logits[b].tolist())
        else:
            scores = out.logits[b, :len(ids)].double()
            losses = torch.nn.functional.cross_entropy(scores[:-1], ids[1:], reduction="sum")
            found.append({"nll": float(losses), "top": top(scores[-1])})
    return found


def embed(model, inputs):
    with torch.no_grad():
        hidden = model(**inputs).last_hidden_state
    mask = inputs["attention_mask"][..., None].float()
    last = mask[..., 0].sum(-1).long() - 1
    pooled = {"mean": (hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9), "first": hidden[:, 0],
              "last": hidden[torch.arange(len(last)), last]}
    return {"mean": pooled["mean"].tolist(), "first": pooled["first"].tolist(), "last": pooled["last"].tolist(),
            "normalized": normalize(pooled["mean"], p=2, dim=1).tolist()}


def rounded(value):
    if isinstance(value, dict):
        return {key: rounded(part) for key, part in value.items()}
    if isinstance(value, list):
        return [rounded(part) for part in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value


def main():
    cases = {}
    for name in ENCODERS + DECODERS:
        given = rows(name in ENCODERS)
        inputs = batch(given)
        case = {"embed": embed(transformers.AutoModel.from_pretrained(CASES / name).eval(), inputs)}
        if name != "bert-bare":
            config = json.loads((CASES / name / "config.json").read_text())
            model = getattr(transformers, config["architectures"][0]).from_pretrained(CASES / name).eval()
            case["predict"] = predict(name, model, given, inputs)
        cases[name] = rounded(case)
    text = json.dumps({"encoder": rows(True), "decoder": rows(False), "top": TOP, "cases": cases})
    (CASES / "predictions.json").write_text(text + "\n")


main()
