#!/usr/bin/env python3
"""Compare long contexts on one GPU: attention kernels of weft and PyTorch, and the memory of training.

    python bench/compare_long.py attention [--tokens 4096,16384,65536] [--widths 64,128] [--json FILE]
    python bench/compare_long.py memory --model llama-3-8b --tokens 65536,131072 [--verify] [--json FILE]

attention: forward and backward of bf16 attention with 2048 / width heads, on 16384 tokens in all, or one longer
sequence, in TFLOP/s. A causal mask halves the work, and backward has 2.5 times that of forward. weft's figures are those
of `weft bench`, PyTorch's the best of its backends: flash, cudnn, and flex_attention under torch.compile.

memory: peak memory of a training step of one sequence, without and with what remains on the GPU, in bf16 with recomputed
layers, losses and feed-forward layers in parts, and the optimizer's state in host memory, on both sides. From two
lengths follows the longest that fits; --verify runs a step of it. PyTorch compiles each layer, and keeps bf16 gradients
(weft: fp32). --checkpoints host moves the layers' inputs to host memory, too.

Each measurement is a separate process; the sides alternate. The PyTorch side needs torch, imported only there.
"""
import argparse
import datetime
import json
import statistics
import sys
from pathlib import Path

from compare_gpu import run
from compare_torch import ROOT, machine

HIDDEN, TOKENS = 2048, 16384
BACKENDS = ("flash", "cudnn", "flex")
# name: layers, hidden size, heads, key heads, inner size, vocabulary
SHAPES = {"llama-3.2-1b": (16, 2048, 32, 8, 8192, 128256), "llama-3-8b": (32, 4096, 32, 8, 14336, 128256),
          "llama-1m": (4, 128, 4, 2, 352, 512)}
LOSS_ROWS = MLP_ROWS = 4096
HEADROOM = 2 << 30  # bytes of the GPU that neither side is given: CUDA's context and kernels


# --- the PyTorch side, in a separate process ---------------------------------------------------------------


def attention_of(torch, backend, causal):
    from torch.nn.functional import scaled_dot_product_attention
    if backend == "flex":
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention
        compiled = torch.compile(flex_attention)

        def attend(q, k, v):
            T, mask = q.shape[2], None
            if causal:
                mask = attend.masks.setdefault(T, create_block_mask(lambda b, h, i, j: i >= j, None, None, T, T))
            return compiled(q, k, v, block_mask=mask)
        attend.masks = {}
        return attend
    from torch.nn.attention import SDPBackend, sdpa_kernel
    kind = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}[backend]

    def attend(q, k, v):
        with sdpa_kernel(kind):
            return scaled_dot_product_attention(q, k, v, is_causal=causal)
    return attend


def worker_attention(args):
    """Median ms of forward and backward of one backend."""
    import torch
    T, width = args.tokens[0], args.widths[0]
    shape = (max(TOKENS // T, 1), HIDDEN // width, T, width)
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    grad = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
    attend = attention_of(torch, args.backend, args.causal)
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
    forward, backward = [], []
    for _ in range(args.warmup + args.steps):
        q.grad = k.grad = v.grad = None
        torch.cuda.synchronize()
        marks[0].record()
        out = attend(q, k, v)
        marks[1].record()
        out.backward(grad)
        marks[2].record()
        torch.cuda.synchronize()
        forward.append(marks[0].elapsed_time(marks[1]))
        backward.append(marks[1].elapsed_time(marks[2]))
    return {"forward": statistics.median(forward[args.warmup:]), "backward": statistics.median(backward[args.warmup:]),
            "torch": torch.__version__}


def long_llama(torch, shape, in_host):
    """A Llama for long sequences: the function that computes a step's loss and gradients, and the model."""
    from contextlib import nullcontext

    from torch import nn
    from torch.nn import functional as F
    from torch.utils.checkpoint import checkpoint
    layers, width, heads, kv_heads, inner, vocab = shape
    size = width // heads

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.RMSNorm(width, 1e-5), nn.RMSNorm(width, 1e-5)
            self.qkv = nn.Linear(width, (heads + 2 * kv_heads) * size, bias=False)
            self.out = nn.Linear(width, width, bias=False)
            self.up, self.down = nn.Linear(width, 2 * inner, bias=False), nn.Linear(inner, width, bias=False)

        def attend(self, x, cos, sin):
            B, T, _ = x.shape
            qkv = self.qkv(self.norm1(x)).view(B, T, -1, size).transpose(1, 2)
            turned, v = qkv.split([heads + kv_heads, kv_heads], 1)
            left, right = turned.chunk(2, -1)
            turned = turned * cos + torch.cat((-right, left), -1) * sin
            q, k = turned.to(v.dtype).split([heads, kv_heads], 1)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            return x + self.out(y.transpose(1, 2).reshape(B, T, width))

        def mlp(self, x):
            gate, up = self.up(self.norm2(x)).chunk(2, -1)
            return x + self.down(F.silu(gate) * up)

        def forward(self, x, cos, sin):
            x = self.attend(x, cos, sin)
            return torch.cat([checkpoint(self.mlp, part, use_reentrant=False) for part in x.split(MLP_ROWS, 1)], 1)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(vocab, width)
            self.layers = nn.ModuleList(Layer() for _ in range(layers))
            self.norm = nn.RMSNorm(width, 1e-5)
            self.head = nn.Linear(width, vocab, bias=False)

        def part_loss(self, x, labels):
            return F.cross_entropy(self.head(self.norm(x)).float().flatten(0, 1), labels.flatten(), reduction="sum")

        def forward(self, ids, cos, sin):
            x = self.tokens(ids)
            for layer in self.layers:
                keep = torch.autograd.graph.save_on_cpu(pin_memory=True) if in_host else nullcontext()
                with keep:
                    x = checkpoint(layer, x, cos, sin, use_reentrant=False)
            x, labels = x[:, :-1], ids[:, 1:]
            parts = zip(x.split(LOSS_ROWS, 1), labels.split(LOSS_ROWS, 1))
            return sum(checkpoint(self.part_loss, a, b, use_reentrant=False) for a, b in parts) / labels.numel()

    with torch.device("cuda"):
        model = Model().to(torch.bfloat16)
    for layer in model.layers:
        layer.compile()
    return model, size


def worker_memory(args):
    """Peak bytes and ms of a step. AdamW runs on the host, with fp32 weights there."""
    import time

    import torch
    torch.manual_seed(1)
    model, size = long_llama(torch, SHAPES[args.model], args.checkpoints == "host")
    T = args.tokens[0]
    host = [p.detach().to("cpu", torch.float32).requires_grad_() for p in model.parameters()]
    optimizer = torch.optim.AdamW(host, lr=1e-4, fused=True)
    ids = torch.randint(0, SHAPES[args.model][-1], (1, T), device="cuda")
    angles = torch.outer(torch.arange(T, device="cuda").float(),
                         500000 ** (-torch.arange(0, size, 2, device="cuda").float() / size)).repeat(1, 2)
    cos, sin, times = angles.cos().bfloat16(), angles.sin().bfloat16(), []
    del angles
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    for _ in range(args.steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        model(ids, cos, sin).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for own, there in zip(host, model.parameters()):
            own.grad = there.grad.to("cpu", torch.float32)
            there.grad = None
        optimizer.step()
        with torch.no_grad():
            for own, there in zip(host, model.parameters()):
                there.copy_(own)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1000)
    return {"step_ms": times[-1], "peak": torch.cuda.max_memory_allocated(),
            "reserved": torch.cuda.max_memory_reserved(), "room": torch.cuda.mem_get_info()[1],
            "torch": torch.__version__}


# --- measuring ------------------------------------------------------------------------------------


def worker(args, name, *options):
    return run([sys.executable, str(Path(__file__).resolve()), args.part, "--worker", name, "--steps", str(args.steps),
                "--warmup", str(args.warmup), *options])


def weft_attention(args, T, width, causal):
    model = ["llama-2-7b"] if causal else ["bert-tiny", "--task", "mlm", "--no-next-sentence"]
    batch = str(max(TOKENS // T, 1))
    result = run([args.weft, "bench", "--device", args.device, "--model", *model, "--layers", "1", "--hidden",
                  str(HIDDEN), "--heads", str(HIDDEN // width), "--inner", "256", "--vocab", "256", "--seq", str(T),
                  "--batch", batch, "--micro-batch", batch, "--precision", "bf16", "--dropout", "0", "--steps",
                  str(args.steps), "--json"])
    if "error" in result:
        return result
    rates = {kernel["name"]: kernel["gflops"] / 1000 for kernel in result["kernels"]}
    return {way: rates[f"attention_{way}"] for way in ("forward", "backward")}


def torch_attention(args, backend, T, width, causal):
    result = worker(args, backend, "--tokens", str(T), "--widths", str(width), *(["--causal"] if causal else []))
    if "error" in result:
        return result
    pairs = T * (T + 1) / 2 if causal else T * T
    flops = 4 * max(TOKENS // T, 1) * HIDDEN * pairs
    return {way: times * flops / result[way] / 1e9 for way, times in (("forward", 1), ("backward", 2.5))}


def compare_attention(args, report):
    print("| width | tokens | mask | side | forward, TFLOP/s | backward, TFLOP/s |\n| --- | --- | --- | --- | --- | --- |")
    for width in args.widths:
        for T in args.tokens:
            for causal in (True, False):
                sides = [("weft", weft_attention(args, T, width, causal))]
                sides += [(name, torch_attention(args, name, T, width, causal)) for name in args.backends]
                report.append({"width": width, "tokens": T, "causal": causal, "sides": dict(sides)})
                for name, result in sides:
                    cells = [f"{result[way]:.0f}" for way in ("forward", "backward")] if "error" not in result else \
                        [f"failed: {result['error']}", ""]
                    print(f"| {width} | {T} | {'causal' if causal else 'none'} | {name} | {' | '.join(cells)} |", flush=True)


def weft_memory(args, T):
    offload = "optimizer,activations" if args.checkpoints == "host" else "optimizer"
    result = run([args.weft, "bench", "--device", args.device, "--model", args.model, "--seq", str(T), "--batch", "1",
                  "--micro-batch", "1", "--precision", "bf16", "--recompute", "block", "--offload", offload, "--steps",
                  str(args.steps), "--steps-only", "--json"])
    return result if "error" in result else {"step_ms": result["step_ms"], "peak": result["peak_bytes"]}


def torch_memory(args, T):
    return worker(args, "memory", "--model", args.model, "--tokens", str(T), "--checkpoints", args.checkpoints)


def longest(lengths, peaks, room):
    """Where the line through two peaks reaches the room, in whole 4096 tokens."""
    slope = (peaks[1] - peaks[0]) / (lengths[1] - lengths[0])
    return int((room - peaks[0]) / slope + lengths[0]) // 4096 * 4096


def compare_memory(args, report):
    print("| side | tokens | peak, GiB | step, s |\n| --- | --- | --- | --- |")
    for name, measure in (("PyTorch", torch_memory), ("weft", weft_memory)):
        lengths, peaks = list(args.tokens), []
        while lengths:
            T = lengths.pop(0)
            result = measure(args, T)
            report.append({"side": name, "tokens": T, **result})
            if "error" in result:
                print(f"| {name} | {T} | failed: {result['error']} | |", flush=True)
                break
            args.room = result.get("room", args.room)
            peaks.append(result["peak"])
            print(f"| {name} | {T} | {peaks[-1] / 2**30:.1f} | {result['step_ms'] / 1000:.1f} |", flush=True)
            if len(peaks) == 2 and args.room:
                fits = longest(args.tokens, peaks, args.room - HEADROOM)
                print(f"| {name} | {fits} | fits, by these two | |", flush=True)
                lengths = [fits] if args.verify else []


def numbers(text):
    return [int(number) for number in text.split(",")]


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=["attention", "memory"])
    parser.add_argument("--weft", default=str(ROOT / "build/release/weft"))
    parser.add_argument("--device", default="cuda", help="weft's")
    parser.add_argument("--tokens", type=numbers, default=None)
    parser.add_argument("--widths", type=numbers, default=[64, 128], help="of heads")
    parser.add_argument("--backends", type=lambda text: text.split(","), default=list(BACKENDS))
    parser.add_argument("--model", choices=list(SHAPES), default="llama-3.2-1b")
    parser.add_argument("--checkpoints", choices=["device", "host"], default="device")
    parser.add_argument("--room", type=int, default=0, help="bytes of the GPU, if PyTorch is not measured first")
    parser.add_argument("--verify", action="store_true")
    parser.add_argument("--steps", type=int, default=None)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--json", help="write all results to this file")
    parser.add_argument("--causal", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    attention = args.part == "attention"
    args.tokens = args.tokens or ([4096, 16384, 65536] if attention else [65536, 131072])
    args.steps = args.steps or (10 if attention else 1)
    args.backend = args.worker
    return args


def main():
    args = parse()
    if args.worker:
        print(json.dumps((worker_memory if args.part == "memory" else worker_attention)(args)))
        return
    rows = []
    (compare_attention if args.part == "attention" else compare_memory)(args, rows)
    if args.json:
        report = {"date": datetime.date.today().isoformat(), "machine": machine(), "rows": rows}
        Path(args.json).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
