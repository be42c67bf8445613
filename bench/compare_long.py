#!/usr/bin/env python3
"""Compare long contexts on one GPU: attention kernels of weft and PyTorch, and the memory of training.

    python bench/compare_long.py attention [--tokens 4096,16384,65536] [--widths 64,128] [--masks causal,none] [--json FILE]
    python bench/compare_long.py memory [--model llama-3-8b] [--tokens 32768,65536] [--sides torch,weft] [--json FILE]

attention: forward and backward of bf16 attention with 2048 / width heads, on 16384 tokens in all, or one longer
sequence, in TFLOP/s. A causal mask halves the work, and backward has 2.5 times that of forward. weft's figures are those
of `weft bench`, PyTorch's the medians of its backends: flash, cudnn, and flex_attention under torch.compile.

memory: peak memory of a training step of one sequence, in bf16 with recomputed layers, losses and feed-forward layers in
parts, and the optimizer's state in host memory, on both sides. It grows linearly, so that from two lengths follows the
longest that fits; --tokens with that one alone trains it. PyTorch compiles attention and feed-forward layers, and keeps bf16
gradients (weft: fp32). --checkpoints host moves the layers' inputs to host memory, too. The optimizer of 8 B parameters takes
80 to 100 GB of host memory.

Each side is a process of its own, PyTorch's backends and weft's lengths too. The PyTorch side needs torch, imported only
there. --torch-device cpu --device cpu --size 256 tries the script out without a GPU.
"""
import argparse
import datetime
import json
import statistics
import sys
import time
from pathlib import Path

from compare_gpu import run
from compare_torch import ROOT, machine

TOKENS = 16384
BACKENDS = ("flash", "cudnn", "flex")
# name: layers, hidden size, heads, key heads, inner size, vocabulary
SHAPES = {"llama-3.2-1b": (16, 2048, 32, 8, 8192, 128256), "llama-3-8b": (32, 4096, 32, 8, 14336, 128256),
          "llama-1m": (4, 128, 4, 2, 352, 512)}
LOSS_ROWS = MLP_ROWS = 4096
HEADROOM = 2 << 30  # bytes of the GPU that neither side is given: CUDA's context and kernels
FAILED = "failed: {error}"


# --- the PyTorch side, in a separate process ---------------------------------------------------------------


class Clock:
    """Times what was queued on a GPU, or ran on a CPU, between two marks."""

    def __init__(self, torch, device):
        self.cuda = torch.cuda if device == "cuda" else None
        self.marks = [torch.cuda.Event(enable_timing=True) for _ in range(3)] if self.cuda else [0.0] * 3

    def mark(self, at):
        if self.cuda:
            self.marks[at].record()
        else:
            self.marks[at] = time.perf_counter()

    def ms(self, at):
        first, last = self.marks[at], self.marks[at + 1]
        return first.elapsed_time(last) if self.cuda else (last - first) * 1000

    def start(self):
        """Keeps the GPU busy for some milliseconds, in which what follows is queued: launches do not count."""
        if self.cuda:
            self.cuda.synchronize()
            self.cuda._sleep(10_000_000)
        self.mark(0)

    def sync(self):
        if self.cuda:
            self.cuda.synchronize()


def attention_of(torch, backend, device):
    """A function of q, k, v and whether the mask is causal."""
    from torch.nn.functional import scaled_dot_product_attention
    if backend == "flex":
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention
        compiled, masks = torch.compile(flex_attention, dynamic=False), {}

        def attend(q, k, v, causal):
            T = q.shape[2]
            if causal and T not in masks:
                masks[T] = create_block_mask(lambda b, h, i, j: i >= j, None, None, T, T, device=device)
            return compiled(q, k, v, block_mask=masks[T] if causal else None)
        return attend
    from torch.nn.attention import SDPBackend, sdpa_kernel
    kind = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}[backend]

    def attend(q, k, v, causal):
        with sdpa_kernel(kind):
            return scaled_dot_product_attention(q, k, v, is_causal=causal)
    return attend


def time_attention(torch, attend, args, T, width, causal):
    """Median ms of forward and backward."""
    shape = (max(args.total // T, 1), args.size // width, T, width)
    q, k, v = (torch.randn(shape, device=args.torch_device, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    grad = torch.randn(shape, device=args.torch_device, dtype=torch.bfloat16)
    clock, forward, backward = Clock(torch, args.torch_device), [], []
    for _ in range(args.warmup + args.steps):
        q.grad = k.grad = v.grad = None
        clock.start()
        out = attend(q, k, v, causal)
        clock.mark(1)
        out.backward(grad)
        clock.mark(2)
        clock.sync()
        forward.append(clock.ms(0))
        backward.append(clock.ms(1))
    return {"forward": statistics.median(forward[args.warmup:]), "backward": statistics.median(backward[args.warmup:])}


def worker_attention(args):
    """One backend on all lengths, widths and masks."""
    import torch
    attend = attention_of(torch, args.backend, args.torch_device)
    result = {"torch": torch.__version__}
    for width in args.widths:
        for T in args.tokens:
            for mask in args.masks:
                try:
                    found = time_attention(torch, attend, args, T, width, mask == "causal")
                except Exception as error:  # a kernel that is missing, or memory that is
                    found = {"error": (str(error).strip() or repr(error)).splitlines()[0][:120]}
                result[f"{width} {T} {mask}"] = found
    return result


def long_llama(torch, shape, in_host, device):
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
                keep = torch.autograd.graph.save_on_cpu(pin_memory=device == "cuda") if in_host else nullcontext()
                with keep:
                    x = checkpoint(layer, x, cos, sin, use_reentrant=False)
            x, labels = x[:, :-1], ids[:, 1:]
            parts = zip(x.split(LOSS_ROWS, 1), labels.split(LOSS_ROWS, 1))
            return sum(checkpoint(self.part_loss, a, b, use_reentrant=False) for a, b in parts) / labels.numel()

    torch.set_default_dtype(torch.bfloat16)
    with torch.device(device):
        model = Model()
    torch.set_default_dtype(torch.float32)
    for layer in model.layers:  # whole layers would be compiled with as many copies of the MLP as it has parts
        layer.attend = torch.compile(layer.attend, dynamic=False)
        layer.mlp = torch.compile(layer.mlp, dynamic=False)
    return model, size


def update(torch, model, host, optimizers):
    """AdamW on the host, one matrix after another, so that only one has an fp32 gradient there."""
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    with torch.no_grad():
        for own, there, optimizer in zip(host, model.parameters(), optimizers):
            own.grad = there.grad.to("cpu", torch.float32)
            there.grad = None
            optimizer.step()
            own.grad = None
            there.copy_(own)


def worker_memory(args):
    """Peak bytes and ms of a step after one that warms up."""
    import resource

    import torch
    torch.manual_seed(1)
    device, cuda, T = args.torch_device, args.torch_device == "cuda", args.tokens[0]
    model, size = long_llama(torch, SHAPES[args.model], args.checkpoints == "host", device)
    host = [p.detach().to("cpu", torch.float32).requires_grad_() for p in model.parameters()]
    optimizers = [torch.optim.AdamW([p], lr=1e-4, fused=True) for p in host]
    ids = torch.randint(0, SHAPES[args.model][-1], (1, T), device=device)
    angles = torch.outer(torch.arange(T, device=device).float(),
                         500000 ** (-torch.arange(0, size, 2, device=device).float() / size)).repeat(1, 2)
    cos, sin, times = angles.cos().bfloat16(), angles.sin().bfloat16(), []
    del angles
    if cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    for _ in range(1 + args.steps):
        start = time.perf_counter()
        model(ids, cos, sin).backward()
        update(torch, model, host, optimizers)
        if cuda:
            torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1000)
    result = {"step_ms": statistics.mean(times[1:]), "torch": torch.__version__,
              "host": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
    if not cuda:
        return {**result, "peak": result["host"]}
    return {**result, "peak": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved(),
            "room": torch.cuda.mem_get_info()[1]}


# --- measuring ------------------------------------------------------------------------------------


def joined(values):
    return ",".join(str(value) for value in values)


def worker(args, name, *options):
    return run([sys.executable, str(Path(__file__).resolve()), args.part, "--worker", name, "--steps", str(args.steps),
                "--warmup", str(args.warmup), "--torch-device", args.torch_device, *options])


def weft_attention(args, T, width, mask):
    model = ["llama-2-7b"] if mask == "causal" else ["bert-tiny", "--task", "mlm", "--no-next-sentence"]
    batch = str(max(args.total // T, 1))
    result = run([args.weft, "bench", "--device", args.device, "--model", *model, "--layers", "1", "--hidden",
                  str(args.size), "--heads", str(args.size // width), "--inner", "256", "--vocab", "256", "--seq", str(T),
                  "--batch", batch, "--micro-batch", batch, "--precision", "bf16", "--dropout", "0", "--steps",
                  str(args.steps), "--json"])
    if "error" in result:
        return result
    rates = {kernel["name"]: kernel["gflops"] / 1000 for kernel in result["kernels"]}
    return {way: rates[f"attention_{way}"] for way in ("forward", "backward")}


def rates_of(args, T, mask, found):
    """TFLOP/s from ms."""
    if "error" in found:
        return found
    pairs = T * (T + 1) / 2 if mask == "causal" else T * T
    flops = 4 * max(args.total // T, 1) * args.size * pairs
    return {way: times * flops / found[way] / 1e9 for way, times in (("forward", 1), ("backward", 2.5))}


def torch_attention(args, backend):
    """Of all rows, by their key."""
    found = worker(args, backend, "--tokens", joined(args.tokens), "--widths", joined(args.widths), "--masks",
                   joined(args.masks), "--total", str(args.total), "--size", str(args.size))
    keys = [(width, T, mask) for width in args.widths for T in args.tokens for mask in args.masks]
    return {key: found if "error" in found else rates_of(args, key[1], key[2], found[joined(key).replace(",", " ")])
            for key in keys}


def compare_attention(args, report):
    peers = {backend: torch_attention(args, backend) for backend in args.backends if "torch" in args.sides}
    print("| width | tokens | mask | side | forward, TFLOP/s | backward, TFLOP/s |\n| --- | --- | --- | --- | --- | --- |")
    for width in args.widths:
        for T in args.tokens:
            for mask in args.masks:
                sides = {"weft": weft_attention(args, T, width, mask)} if "weft" in args.sides else {}
                sides.update({name: rows[width, T, mask] for name, rows in peers.items()})
                report.append({"width": width, "tokens": T, "mask": mask, "sides": sides})
                for name, found in sides.items():
                    cells = [FAILED.format(**found), ""] if "error" in found else \
                        [f"{found[way]:.3g}" for way in ("forward", "backward")]
                    print(f"| {width} | {T} | {mask} | {name} | {' | '.join(cells)} |", flush=True)


def weft_memory(args, T):
    offload = "optimizer+activations" if args.checkpoints == "host" else "optimizer"
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
    for name, measure in (("torch", torch_memory), ("weft", weft_memory)):
        peaks = []
        for T in args.tokens if name in args.sides else []:
            found = measure(args, T)
            report.append({"side": name, "tokens": T, **found})
            if "error" in found:
                print(f"| {name} | {T} | {FAILED.format(**found)} | |", flush=True)
                break
            peaks.append(found["peak"])
            print(f"| {name} | {T} | {peaks[-1] / 2**30:.1f} | {found['step_ms'] / 1000:.1f} |", flush=True)
            args.room = found.get("room", args.room)
        if len(peaks) == 2:
            print(f"| {name} | {longest(args.tokens, peaks, args.room - HEADROOM)} | fits {args.room / 2**30:.0f} | |",
                  flush=True)


def numbers(text):
    return [int(number) for number in text.split(",")]


def names(text):
    return text.split(",")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=["attention", "memory"])
    parser.add_argument("--weft", default=str(ROOT / "build/release/weft"))
    parser.add_argument("--device", default="cuda", help="weft's")
    parser.add_argument("--torch-device", default="cuda")
    parser.add_argument("--sides", type=names, default=["torch", "weft"])
    parser.add_argument("--tokens", type=numbers, default=None)
    parser.add_argument("--widths", type=numbers, default=[64, 128], help="of heads")
    parser.add_argument("--masks", type=names, default=["causal", "none"])
    parser.add_argument("--total", type=int, default=TOKENS, help="tokens of all sequences of attention")
    parser.add_argument("--size", type=int, default=2048, help="of all heads of attention")
    parser.add_argument("--backends", type=names, default=list(BACKENDS))
    parser.add_argument("--model", choices=list(SHAPES), default="llama-3.2-1b")
    parser.add_argument("--checkpoints", choices=["device", "host"], default="device")
    parser.add_argument("--room", type=int, default=139 << 30, help="bytes of the GPU, if PyTorch is not measured")
    parser.add_argument("--steps", type=int, default=None)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--json", help="write all results to this file")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    attention = args.part == "attention"
    args.tokens = args.tokens or ([4096, 16384, 65536] if attention else [32768, 65536])
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
