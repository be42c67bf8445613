#!/usr/bin/env python3
"""Writes optim.json: parameters after 20 steps of each optimizer, computed by PyTorch in fp32.

AdamW and SGD are PyTorch's own. Lion follows Chen et al., "Symbolic discovery of optimization algorithms",
algorithm 2. Muon follows Keller Jordan's definition (https://kellerjordan.github.io/posts/muon/), with matmuls in
fp32 instead of bf16; the script also checks that torch.optim.Muon, which uses bf16, agrees.

Initial parameters and gradients are formulas, which tests/optim/test_optim.c evaluates too.
"""
import json
import math
import pathlib

import torch

STEPS = 20


def initial(count):
    return torch.tensor([0.5 * math.sin(1.7 * i + 0.3) for i in range(count)], dtype=torch.float32)


def gradient(step, count):
    values = [math.cos(0.37 * i * (1 + step % 3) + 0.9 * step) * (0.1 + 0.05 * (i % 7)) for i in range(count)]
    return torch.tensor(values, dtype=torch.float32)


def by_class(optimizer, settings):
    def run(param, step_gradient, lr):
        opt = optimizer([param], lr=lr, **settings)
        for step in range(1, STEPS + 1):
            param.grad = step_gradient(step)
            opt.step()

    return run


def lion(param, step_gradient, lr, beta1, beta2, weight_decay):
    m = torch.zeros_like(param)
    for step in range(1, STEPS + 1):
        g = step_gradient(step)
        update = torch.sign(beta1 * m + (1 - beta1) * g)
        param -= lr * (update + weight_decay * param)
        m.mul_(beta2).add_(g, alpha=1 - beta2)


def newton_schulz(g):
    a, b, c = (3.4445, -4.7750, 2.0315)
    x = g.mT if g.size(-2) > g.size(-1) else g
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        A = x @ x.mT
        x = a * x + (b * A + c * A @ A) @ x
    return x.mT if g.size(-2) > g.size(-1) else x


def muon(param, step_gradient, lr, momentum, nesterov, weight_decay, scale):
    m = torch.zeros_like(param)
    for step in range(1, STEPS + 1):
        g = step_gradient(step)
        m.lerp_(g, 1 - momentum)
        update = newton_schulz(g.lerp(m, momentum) if nesterov else m)
        rows, cols = param.shape
        factor = max(1, rows / cols) ** 0.5 if scale == "original" else 0.2 * max(rows, cols) ** 0.5
        param *= 1 - lr * weight_decay
        param.add_(update, alpha=-lr * factor)


def check_muon(case, result):
    """torch.optim.Muon, whose matmuls are in bf16, agrees within bf16's precision."""
    rows, cols = case["rows"], case["cols"]
    param = torch.nn.Parameter(initial(rows * cols).reshape(rows, cols))
    adjust = "original" if case["muon-scale"] == "original" else "match_rms_adamw"
    opt = torch.optim.Muon(
        [param],
        lr=case["lr"],
        weight_decay=case["weight-decay"],
        momentum=case["momentum"],
        nesterov=bool(case["nesterov"]),
        adjust_lr_fn=adjust,
    )
    for step in range(1, STEPS + 1):
        param.grad = gradient(step, rows * cols).reshape(rows, cols)
        opt.step()
    difference = (param.detach() - result).abs().max().item()
    moved = (result - initial(rows * cols).reshape(rows, cols)).abs().max().item()
    assert difference < 0.03 * moved, (case, difference, moved)


CASES = [
    {"optimizer": "adamw", "lr": 0.01, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight-decay": 0.1},
    {"optimizer": "lion", "lr": 0.003, "beta1": 0.9, "beta2": 0.99, "weight-decay": 0.3},
    {"optimizer": "sgd", "lr": 0.05, "momentum": 0.9, "nesterov": 0, "weight-decay": 0.01},
    {"optimizer": "sgd", "lr": 0.05, "momentum": 0.8, "nesterov": 1, "weight-decay": 0},
    {"optimizer": "muon", "lr": 0.02, "momentum": 0.95, "nesterov": 1, "weight-decay": 0.1, "muon-scale": "original"},
    {"optimizer": "muon", "lr": 0.02, "momentum": 0.9, "nesterov": 0, "weight-decay": 0, "muon-scale": "match-adamw"},
]


@torch.no_grad()
def result_of(case):
    rows, cols, lr = case["rows"], case["cols"], case["lr"]
    param = initial(rows * cols).reshape(rows, cols)
    grad = lambda step: gradient(step, rows * cols).reshape(rows, cols)
    decay = case["weight-decay"]
    if case["optimizer"] == "adamw":
        settings = {"betas": (case["beta1"], case["beta2"]), "eps": case["eps"], "weight_decay": decay}
        by_class(torch.optim.AdamW, settings)(param, grad, lr)
    elif case["optimizer"] == "sgd":
        settings = {"momentum": case["momentum"], "nesterov": bool(case["nesterov"]), "weight_decay": decay}
        by_class(torch.optim.SGD, settings)(param, grad, lr)
    elif case["optimizer"] == "lion":
        lion(param, grad, lr, case["beta1"], case["beta2"], decay)
    else:
        muon(param, grad, lr, case["momentum"], case["nesterov"], decay, case["muon-scale"])
        with torch.enable_grad():
            check_muon(case, param)
    return param


def main():
    cases = []
    for case in CASES:
        for rows, cols in ((6, 10), (12, 5)):
            case = dict(case, rows=rows, cols=cols)
            case["result"] = [float(f"{x:.9g}") for x in result_of(case).flatten().tolist()]
            cases.append(case)
    lines = ",\n".join(json.dumps(case) for case in cases)
    path = pathlib.Path(__file__).parent / "optim.json"
    path.write_text(f'{{"torch": "{torch.__version__}", "steps": {STEPS}, "cases": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
