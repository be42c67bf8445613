#!/usr/bin/env python3
"""Compare plans for PyTorch (clusters/software/pytorch.json) with PyTorch on an H200: step time and memory.

    python bench/compare_program.py [--weft build/release/weft] [--cluster h200+pytorch] [--measured FILE]
    python bench/compare_program.py --measure FILE         # on the GPU, with torch and transformers; half a minute per row

Measured are transformers' models in eager mode as the studies' authors ran theirs: attention written out, DDP on one rank,
clipping and AdamW tensor by tensor, fp16 by autocast with loss scaling. Memory is the peak that PyTorch's allocator held.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

# family, layers, hidden size, heads, vocabulary, task, sequence length, precision; per batch ms and bytes: PyTorch 2.11 with
# transformers 5.17 on an H200, 2026-11-19
MODELS = [
    (("gpt2", 24, 1024, 16, 50257, "lm", 128, "fp16"),
     {1: (86.48, 8602517504), 2: (105.88, 9019850752), 4: (85.54, 9768534016), 7: (87.21, 11020533760), 12: (79.35, 12811501568)}),
    (("gpt2", 24, 1024, 16, 50257, "lm", 1024, "fp16"), {2: (99.84, 19849543680), 8: (233.25, 54500786176)}),
    (("gpt2", 12, 768, 12, 50257, "lm", 1024, "fp32"), {4: (114.76, 15839789056), 16: (396.83, 53546582016)}),
    (("gpt2", 8, 512, 8, 67, "lm", 128, "fp16"),
     {27: (35.15, 2298478592), 108: (43.09, 6805258240), 216: (64.56, 13006536704)}),
    (("bert-base", 12, 768, 12, 30522, "span", 384, "fp32"), {4: (49.53, 4158652416), 16: (110.88, 9514778624)}),
    (("bert-base", 12, 768, 12, 30522, "span", 384, "fp16"), {4: (63.26, 3812622336), 16: (61.57, 7631536128)}),
    (("bert-base", 2, 768, 12, 21160, "mlm", 64, "fp32"), {32: (14.07, 1629487104), 128: (40.12, 4175429632)}),
]


def build(torch, model):
    from transformers import (BertConfig, BertForPreTraining, BertForQuestionAnswering, GPT2Config, GPT2LMHeadModel)
    family, layers, hidden, heads, vocab, task, seq, _ = model
    if family == "gpt2":
        cls, config = GPT2LMHeadModel, GPT2Config(vocab_size=vocab, n_positions=max(seq, 128), n_embd=hidden, n_layer=layers,
                                                  n_head=heads, use_cache=False)
    else:
        cls = BertForQuestionAnswering if task == "span" else BertForPreTraining
        config = BertConfig(vocab_size=vocab, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
                            intermediate_size=4 * hidden)
    config._attn_implementation = "eager"
    return cls(config).cuda().train()


def inputs_of(torch, model, batch):
    vocab, task, seq = model[4:7]
    tokens = torch.randint(0, vocab, (batch, seq), device="cuda")
    if task == "lm":
        return dict(input_ids=tokens, labels=tokens)
    if task == "span":
        start = torch.randint(0, seq // 2, (batch,), device="cuda")
        return dict(input_ids=tokens, start_positions=start, end_positions=start + 3)
    labels = torch.where(torch.rand(batch, seq, device="cuda") < 0.15, tokens, torch.tensor(-100, device="cuda"))
    return dict(input_ids=tokens, labels=labels, next_sentence_label=torch.randint(0, 2, (batch,), device="cuda"))


def worker(model, batch):
    import torch
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = False
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 20000))
    torch.distributed.init_process_group("nccl", rank=0, world_size=1)
    net = build(torch, model)
    half = model[7] == "fp16"
    run = torch.nn.parallel.DistributedDataParallel(net, device_ids=[0])
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, foreach=False)
    scaler = torch.amp.GradScaler("cuda", enabled=half)
    inputs, times = inputs_of(torch, model, batch), []
    for step in range(13):
        torch.cuda.synchronize()
        start = time.perf_counter()
        with torch.autocast("cuda", torch.float16, enabled=half):
            loss = run(**inputs).loss
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0, foreach=False)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=False)
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    print(json.dumps({"model": model, "batch": batch, "ms": statistics.median(times[3:]),
                      "held": torch.cuda.max_memory_reserved()}))


def measure(path):
    rows = []
    for model, batches in MODELS:
        for batch in batches:
            child = subprocess.run([sys.executable, __file__, "--worker", json.dumps([model, batch])], capture_output=True,
                                   text=True)
            if child.returncode:
                print(f"{model} {batch}: {child.stderr.strip().splitlines()[-1]}", file=sys.stderr)
                continue
            rows.append(json.loads(child.stdout.strip().splitlines()[-1]))
            print(rows[-1], file=sys.stderr, flush=True)
            with open(path, "w") as file:
                json.dump(rows, file, indent=1)


def plan(args, row):
    family, layers, hidden, heads, vocab, task, seq, precision = row["model"]
    command = [args.weft, "plan", "--cluster", args.cluster, "--json", "--model", family, "--layers", layers, "--hidden", hidden,
               "--heads", heads, "--vocab", vocab, "--task", task, "--seq", seq, "--precision", precision, "--batch",
               row["batch"], "--micro-batch", row["batch"]]
    return json.loads(subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout)


def known():
    return [{"model": model, "batch": batch, "ms": ms, "held": held} for model, batches in MODELS
            for batch, (ms, held) in batches.items()]


def compare(args):
    errors = {"time": [], "memory": []}
    print("| model | batch x length, precision | measured, ms | planned | | memory, GB | planned | |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for row in json.loads(Path(args.measured).read_text()) if args.measured else known():
        family, layers, hidden, _, vocab, task, seq, precision = row["model"]
        result = plan(args, row)
        pairs = (("time", result["step_ms"], row["ms"], 1), ("memory", result["memory_saving"], row["held"], 1e9))
        cells = [f"{family} {layers} x {hidden}, {vocab}, {task}", f"{row['batch']} x {seq}, {precision}"]
        for name, planned, measured, unit in pairs:
            errors[name].append(abs(planned / measured - 1))
            cells += [f"{measured / unit:.2f}", f"{planned / unit:.2f}", f"{100 * (planned / measured - 1):+.1f}%"]
        print("| " + " | ".join(cells) + " |")
    for name, all_of in errors.items():
        print(f"{name}: {len(all_of)} rows, mean error {100 * statistics.mean(all_of):.1f}%, largest {100 * max(all_of):.1f}%")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measure", metavar="FILE")
    parser.add_argument("--measured", metavar="FILE")
    parser.add_argument("--weft", default="build/release/weft")
    parser.add_argument("--cluster", default="h200+pytorch")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        worker(*json.loads(args.worker))
    elif args.measure:
        measure(args.measure)
    else:
        compare(args)


main()
