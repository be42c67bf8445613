#!/usr/bin/env python3
"""Compare training steps and generation of weft, PyTorch and llm.c on one GPU.

    python bench/compare_gpu.py [--weft build/release/weft] [--rows gpt2,gpt2-medium,...] [--precision bf16,fp8]
                                [--dropout 0,0.1] [--torch plain,transformers,graph] [--llmc PROGRAM] [--json FILE]

A step is forward, backward, clipping by global norm and AdamW on random tokens, without and with dropout (Llama and
mixtures have none). PyTorch runs under torch.compile with bf16 autocast, fp32 weights, sdpa attention and fused AdamW:
`transformers` is its model, `plain` a model written by hand for speed (plain_torch.py), and `graph` the latter with the
whole step in one CUDA graph, for batches of up to 2048 tokens. weft runs `weft bench`. llm.c's train_gpt2cu, built with
cuDNN, runs the rows of GPT-2 with 1024 tokens, which it has without dropout. Each measurement is a separate process,
and the sides alternate. Step times are wall-clock times between device synchronizations. Memory is the peak of each
side's allocator (the JSON also has PyTorch's reserved memory).

Generation is greedy: 128 new tokens after a prompt of 16, in tokens/s over all sequences. transformers' generate, with
its default cache, is compared with `weft generate`.

The PyTorch side needs torch and transformers, which are imported only in its own process.
"""
import argparse
import datetime
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from compare_torch import ROOT, machine, torch_inputs

# name: title, model kind and transformers config, batch, sequence length, options of `weft bench`, unit of throughput
GPT2 = dict(vocab_size=50257, n_positions=1024)
LLAMA = dict(vocab_size=32000, max_position_embeddings=2048, tie_word_embeddings=False)
ROWS = {
    "gpt2": ("GPT-2 124M", "gpt2", dict(GPT2), 32, 1024, ["--model", "gpt2"], "tokens"),
    "gpt2-medium": ("GPT-2 355M", "gpt2", dict(GPT2, n_embd=1024, n_layer=24, n_head=16), 16, 1024,
                    ["--model", "gpt2-medium"], "tokens"),
    "gpt2-large": ("GPT-2 774M", "gpt2", dict(GPT2, n_embd=1280, n_layer=36, n_head=20), 16, 1024,
                   ["--model", "gpt2-large"], "tokens"),
    "gpt2-medium-b4": ("GPT-2 355M", "gpt2", dict(GPT2, n_embd=1024, n_layer=24, n_head=16), 4, 128,
                       ["--model", "gpt2-medium"], "tokens"),
    "gpt2-medium-b12": ("GPT-2 355M", "gpt2", dict(GPT2, n_embd=1024, n_layer=24, n_head=16), 12, 128,
                        ["--model", "gpt2-medium"], "tokens"),
    "bert-span": ("BERT-base, span head", "bert-span", {}, 32, 384, ["--model", "bert-base", "--task", "span"],
                  "samples"),
    "bert-large": ("BERT-large, MLM and NSP", "bert-pretrain",
                   dict(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096),
                   32, 512, ["--model", "bert-large", "--task", "mlm"], "samples"),
    "llama-110m": ("Llama 110M", "llama",
                   dict(LLAMA, hidden_size=768, intermediate_size=2048, num_hidden_layers=12, num_attention_heads=12,
                        num_key_value_heads=12), 16, 2048, ["--model", "llama-110m"], "tokens"),
    "tinyllama": ("TinyLlama 1.1B", "llama",
                  dict(LLAMA, hidden_size=2048, intermediate_size=5632, num_hidden_layers=22, num_attention_heads=32,
                       num_key_value_heads=4), 4, 2048, ["--model", "tinyllama-1.1b"], "tokens"),
    "moe-1b": ("Mixture of 1 B, 0.3 B active", "qwen3-moe",
               dict(vocab_size=32000, max_position_embeddings=4096, tie_word_embeddings=True, hidden_size=1024,
                    intermediate_size=3072, num_hidden_layers=16, num_attention_heads=16, num_key_value_heads=4,
                    head_dim=64, num_experts=32, num_experts_per_tok=8, moe_intermediate_size=576, norm_topk_prob=True,
                    output_router_logits=True), 8, 2048, ["--model", "moe-1b"], "tokens"),
}
GENERATION = {"generate-1": 1, "generate-12": 12}  # GPT-2 355M: batch size
SIDES = {"plain": "PyTorch, plain", "transformers": "PyTorch, transformers", "graph": "PyTorch, plain, CUDA graph"}
WEFT = {"bf16": ("weft", ["--precision", "bf16"]), "fp8": ("weft, fp8", ["--precision", "fp8"]),
        "fp8-delayed": ("weft, fp8, delayed scaling", ["--precision", "fp8", "--fp8-scaling", "delayed"]),
        "fp8-head": ("weft, fp8, delayed scaling, with the head",
                     ["--precision", "fp8", "--fp8-scaling", "delayed", "--fp8-head"])}
GRAPH_TOKENS = 2048  # largest batch of the side `graph`
NEW_TOKENS = 128


# --- the PyTorch side, in a separate process ---------------------------------------------------------------


def torch_model(kind, options, dropout):
    from transformers import (BertConfig, BertForPreTraining, BertForQuestionAnswering, GPT2Config,
                              GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM)
    if kind == "llama":
        config, cls = LlamaConfig(**options), LlamaForCausalLM
    elif kind == "qwen3-moe":
        config, cls = Qwen3MoeConfig(**options), Qwen3MoeForCausalLM
        config._experts_implementation = "grouped_mm"
    elif kind == "gpt2":
        config = GPT2Config(**options, resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout)
        cls = GPT2LMHeadModel
    else:
        config = BertConfig(**options, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
        cls = BertForQuestionAnswering if kind == "bert-span" else BertForPreTraining
    config._attn_implementation = "sdpa"
    config.use_cache = False
    return cls, config


def loss_function(torch, side, kind, options, B, T, dropout):
    """The model to train and a function that returns its loss, on constant inputs."""
    cls, config = torch_model(kind, options, dropout)
    inputs = {k: v.cuda() for k, v in torch_inputs(torch, kind, B, T, config).items()}
    if side == "transformers":
        with torch.device("cuda"):
            model = cls(config)
        run = torch.compile(model)
        return model, lambda: run(**inputs).loss
    from plain_torch import plain_model
    if kind == "bert-pretrain":
        inputs["picks"] = (inputs["labels"].flatten() >= 0).nonzero().flatten()
    with torch.device("cuda"):
        plain = plain_model(kind, config, dropout)
    run = torch.compile(plain)
    return plain, lambda: run(**inputs)


def in_graph(torch, step):
    """The step as one CUDA graph, after a few steps of warm-up on another stream."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(4):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    return lambda: (graph.replay(), loss)[1]


def worker_train(args):
    import torch
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    _, kind, options, B, T, _, _ = ROWS[args.worker]
    dropout = args.dropout[0]
    model, loss_of = loss_function(torch, args.torch[0], kind, options, B, T, dropout)
    model.train()
    groups = [{"params": [p for p in model.parameters() if p.ndim >= 2], "weight_decay": 0.01},
              {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-4, fused=True, capturable=args.torch[0] == "graph")

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=args.torch[0] != "graph"):
            loss = loss_of()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    if args.torch[0] == "graph":
        step = in_graph(torch, step)
    times = []
    for _ in range(args.warmup + args.steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        loss = step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1000)
    return {"step_ms": times[args.warmup:], "peak_gib": torch.cuda.max_memory_allocated() / 2**30,
            "reserved_gib": torch.cuda.max_memory_reserved() / 2**30, "loss": loss.item(),
            "torch": torch.__version__}


def worker_generate(args):
    import torch
    torch.manual_seed(1)
    cls, config = torch_model("gpt2", ROWS["gpt2-medium"][2], 0.0)
    model = cls(config).cuda().to(torch.bfloat16).eval()
    model.config.use_cache = True
    prompt = torch.randint(0, 50257, (GENERATION[args.worker], 16)).cuda()
    times = []
    for _ in range(3):
        torch.cuda.synchronize()
        start = time.perf_counter()
        with torch.no_grad():
            model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=NEW_TOKENS,
                           min_new_tokens=NEW_TOKENS, do_sample=False, use_cache=True, pad_token_id=0)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1000)
    return {"step_ms": times[1:], "peak_gib": torch.cuda.max_memory_allocated() / 2**30, "torch": torch.__version__}


# --- measuring ------------------------------------------------------------------------------------


def run(command):
    """Run a command that prints one JSON object; return the object, or {"error": ...}."""
    with tempfile.TemporaryFile("w+") as err:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=err, text=True)
        err.seek(0)
        message = (err.read().strip().splitlines() or ["no message"])[-1]
    try:
        if done.returncode == 0:
            return json.loads(done.stdout[done.stdout.index("{"):])
    except ValueError:
        message = "no result"
    return {"error": f"exit code {done.returncode}: {message}"}


def measure_torch(args, row, dropout, side):
    return run([sys.executable, str(Path(__file__).resolve()), "--worker", row, "--steps", str(args.steps),
                "--warmup", str(args.warmup), "--dropout", str(dropout), "--torch", side])


def measure_weft(args, row, dropout, precision):
    if row in GENERATION:
        return measure_weft_generation(args, row)
    _, _, _, B, T, options, _ = ROWS[row]
    result = run([args.weft, "bench", "--device", "cuda", *options, "--batch", str(B), "--micro-batch", str(B),
                  "--seq", str(T), *WEFT[precision][1], "--dropout", str(dropout), "--steps", str(args.steps),
                  "--steps-only", "--json"])
    if "error" not in result:
        result = {"step_ms": result["steps_ms"], "peak_gib": result["peak_bytes"] / 2**30}
    return result


def measure_weft_generation(args, row):
    count = GENERATION[row]
    result = run([args.weft, "generate", "--device", "cuda", "--model", args.generation_model, "--precision",
                  "bf16", "--prompt-ids", ",".join(["1"] * 16), "--samples", str(count), "--batch", str(count),
                  "--greedy", "--ignore-end", "--max-tokens", str(NEW_TOKENS), "--json"])
    if "error" not in result:
        seconds = count * NEW_TOKENS / result["decode_tokens_per_s"]
        result = {"step_ms": [1000 * seconds], "peak_gib": result["peak_bytes"] / 2**30}
    return result


def measure_llmc(args, row, _dropout, _side):
    """Times of llm.c's steps on files of random tokens in its format: a header of 256 integers, then 16-bit tokens."""
    _, _, options, B, T, _, _ = ROWS[row]
    count = 2 * (args.warmup + args.steps) * B * T
    with tempfile.TemporaryDirectory() as folder:
        for name in ("train.bin", "val.bin"):
            header = [20240520, 1, count] + [0] * 253
            tokens = bytearray(os.urandom(2 * count))
            tokens[1::2] = bytes(byte % 196 for byte in tokens[1::2])  # below 196 * 256, so below 50257
            Path(folder, name).write_bytes(b"".join(n.to_bytes(4, "little") for n in header) + tokens)
        done = subprocess.run([args.llmc, "-i", f"{folder}/train.bin", "-j", f"{folder}/val.bin", "-e",
                               f"d{options.get('n_layer', 12)}", "-b", str(B), "-t", str(T), "-d", str(B * T), "-x",
                               str(args.warmup + args.steps), "-v", "1000000", "-m", "1", "-s", "0", "-h", "0"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    times = [float(ms) for ms in re.findall(r"([0-9.]+) ms", done.stdout)]
    if done.returncode or len(times) < args.steps:
        return {"error": f"exit code {done.returncode}: {(done.stdout.strip().splitlines() or ['no output'])[-1]}"}
    return {"step_ms": times[-args.steps:], "peak_gib": float("nan")}


def rate(row, result):
    seconds = statistics.median(result["step_ms"]) / 1000
    if row in GENERATION:
        return GENERATION[row] * NEW_TOKENS / seconds, "tokens/s"
    _, _, _, B, T, _, counted = ROWS[row]
    return (B * T if counted == "tokens" else B) / seconds, counted + "/s"


def title(row, dropout):
    if row in GENERATION:
        count = GENERATION[row]
        return f"generation, GPT-2 355M, {count} sequence{'s' if count > 1 else ''}"
    name, _, _, B, T, _, _ = ROWS[row]
    return f"{name}, {B} x {T}" + (f", dropout {dropout:g}" if dropout else "")


def has_no_dropout(row):
    return row in GENERATION or ROWS[row][1] in ("llama", "qwen3-moe")


def sides_of(args, row, dropout):
    sides = [(WEFT[p][0], p, measure_weft) for p in args.precision if args.weft and (p == "bf16" or row in ROWS)]
    for side in args.torch:
        if row in GENERATION and side != "transformers":
            continue
        if side == "graph" and (row in GENERATION or ROWS[row][3] * ROWS[row][4] > GRAPH_TOKENS):
            continue
        sides.append((SIDES[side], side, measure_torch))
    if args.llmc and row in ROWS and ROWS[row][1] == "gpt2" and ROWS[row][4] == 1024 and not dropout:
        sides.append(("llm.c", None, measure_llmc))
    return sides


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    everything = [*ROWS, *GENERATION]
    parser.add_argument("--weft", default=str(ROOT / "build/release/weft"), help="path to weft; '' skips weft")
    parser.add_argument("--rows", type=lambda text: text.split(","), default=list(ROWS), help=", ".join(everything))
    parser.add_argument("--torch", type=lambda text: [side for side in text.split(",") if side],
                        default=["plain", "graph"], help=f"PyTorch's sides: {', '.join(SIDES)}; '' measures only weft")
    parser.add_argument("--precision", type=lambda text: text.split(","), default=["bf16"],
                        help=f"one or several of weft's: {', '.join(WEFT)} (default: bf16)")
    parser.add_argument("--llmc", help="path to llm.c's train_gpt2cu")
    parser.add_argument("--dropout", type=lambda text: [float(p) for p in text.split(",")], default=[0.0, 0.1],
                        help="one or several probabilities (default: 0,0.1)")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=4, help="untimed steps of PyTorch")
    parser.add_argument("--generation-model", default="gpt2-medium", help="checkpoint for weft's generation")
    parser.add_argument("--json", help="write all results to this file")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    unknown = [row for row in args.rows if row not in everything]
    if unknown:
        parser.error(f"unknown row {unknown[0]}; choose from {', '.join(everything)}")
    if any(side not in SIDES for side in args.torch):
        parser.error(f"--torch: choose from {', '.join(SIDES)}")
    if any(precision not in WEFT for precision in args.precision):
        parser.error(f"--precision: choose from {', '.join(WEFT)}")
    return args


def main():
    args = parse()
    if args.worker:
        print(json.dumps((worker_generate if args.worker in GENERATION else worker_train)(args)))
        return
    report = {"date": datetime.date.today().isoformat(), "machine": machine(), "dropout": args.dropout,
              "precision": args.precision, "rows": {}}
    print("| workload | side | throughput | step, ms (fastest) | memory, GiB |")
    print("| --- | --- | --- | --- | --- |", flush=True)
    for row, dropout in [(row, p) for row in args.rows for p in ([0.0] if has_no_dropout(row) else args.dropout)]:
        for name, side, measure in sides_of(args, row, dropout):
            result = measure(args, row, dropout, side)
            report["rows"].setdefault(title(row, dropout), {})[name] = result
            if "error" in result:
                print(f"| {title(row, dropout)} | {name} | failed: {result['error']} | | |", flush=True)
                continue
            speed, unit = rate(row, result)
            print(f"| {title(row, dropout)} | {name} | {speed:,.0f} {unit} | {statistics.median(result['step_ms']):.2f} "
                  f"({min(result['step_ms']):.2f}) | {result['peak_gib']:.1f} |", flush=True)
    if args.json:
        Path(args.json).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
