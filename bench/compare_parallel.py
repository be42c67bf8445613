#!/usr/bin/env python3
"""Compare the scaling of weft's layouts on one machine with PyTorch's DDP and FSDP.

    python bench/compare_parallel.py [--ranks 2] [--batch 1] [--seq 256] [--rounds 2] [--json FILE]
    python bench/compare_parallel.py --kinds one,alone,cp-heads,cp-gather,cp-ring --seq 4096    # long sequences

Each rank has one thread and one core. A single rank trains on --batch sequences; N data-parallel ranks train on as many
each (weak scaling), N tensor-parallel or context-parallel ranks share them. Efficiency is tokens/s per core, relative to
a single rank. To show what the hardware allows, the script also runs N independent single ranks at once, which share
memory bandwidth and cache but do not communicate.

PyTorch runs transformers' GPT-2 (sdpa attention, eager, fused AdamW) over gloo: DistributedDataParallel, and FSDP2's
fully_shard around each layer and the whole model. A step is forward, backward, clipping by global norm and AdamW in fp32
with dropout 0.1, on random tokens.

For pipelines, the script reports the bubble, the average share of the schedule in which a stage waits for others, and
the theoretical value (p-1)/(m+p-1) for equal stages and free messages.

Each measurement uses new processes, pinned to one core per rank. The kinds alternate in each round, in forward and then
in reverse order, so that other load affects all of them. Results are medians over the timed steps of all rounds. CPU
time is per rank, over all its threads; on a busy machine it is more reliable than wall-clock time, but includes waiting
only in part. Needs mpirun, and torch and transformers for the PyTorch side.
"""
import argparse
import datetime
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from compare_torch import machine

ROOT = Path(__file__).resolve().parent.parent

# name: title, options of `weft bench`, whether the batch grows with the number of ranks
LAYOUTS = {
    "ddp": ("DDP", [], True),
    "zero1": ("ZeRO-1", ["--zero", "1"], True),
    "zero2": ("ZeRO-2", ["--zero", "2"], True),
    "zero3": ("ZeRO-3", ["--zero", "3"], True),
    "tp": ("tensor parallel", ["--tp", "RANKS"], False),
    "tp-seq": ("tensor and sequence", ["--tp", "RANKS", "--sequence-parallel"], False),
    **{f"cp-{mode}": (f"context parallel, {mode}", ["--cp", "RANKS", "--cp-mode", mode], False)
       for mode in ("heads", "gather", "ring")},
}
PIPELINES = {
    "1f1b": ("pipeline, 1F1B", ["--pp", "RANKS", "--pp-schedule", "1f1b"]),
    "zero-bubble": ("pipeline, zero-bubble", ["--pp", "RANKS", "--pp-schedule", "zero-bubble"]),
}
RIVALS = {"torch-one": "PyTorch, one rank", "torch-ddp": "PyTorch DDP", "torch-fsdp": "PyTorch FSDP"}
EQUAL = {"torch-one": "one", "torch-ddp": "ddp", "torch-fsdp": "zero3"}  # weft's corresponding layout
KINDS = ["one", "alone", *LAYOUTS, *PIPELINES, *RIVALS]


# --- the PyTorch side, in separate processes -----------------------------------------------------------------


def torch_layout(torch, kind, model):
    if kind == "torch-ddp":
        return torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    if kind == "torch-fsdp":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),))
        for layer in model.transformer.h:
            fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)
    return model


def worker(args):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel
    torch.set_num_threads(1)
    if args.worker != "torch-one":
        torch.distributed.init_process_group("gloo")
    torch.manual_seed(1)
    config = GPT2Config(n_layer=args.layers, n_embd=args.hidden, n_head=args.heads)
    config._attn_implementation = "sdpa"
    config.use_cache = False
    model = torch_layout(torch, args.worker, GPT2LMHeadModel(config).train())
    groups = [{"params": [p for p in model.parameters() if p.ndim >= 2], "weight_decay": 0.01},
              {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-4, fused=True)
    tokens = torch.randint(0, config.vocab_size, (args.batch, args.seq))
    times, cpu = [], []
    for _ in range(1 + args.steps):
        start, cpu_start = time.perf_counter(), time.process_time()
        model(input_ids=tokens, labels=tokens).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        times.append(1e3 * (time.perf_counter() - start))
        cpu.append(1e3 * (time.process_time() - cpu_start))
    print(json.dumps({"steps_ms": times[1:], "cpu_ms": statistics.mean(cpu[1:]), "torch": torch.__version__}))
    if args.worker != "torch-one":
        torch.distributed.destroy_process_group()


# --- running ---------------------------------------------------------------------------------------------------


def cores():
    return sorted(os.sched_getaffinity(0))


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run_all(commands, limit):
    """Run (command, cores, environment) tuples concurrently. Returns the JSON objects they print, or an error message."""
    running = []
    for command, where, extra in commands:
        out, err = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")
        env = dict(os.environ, OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false", **extra)
        pinned = ["taskset", "-c", ",".join(map(str, where)), *map(str, command)]
        running.append((subprocess.Popen(pinned, stdout=out, stderr=err, env=env), out, err))
    end, results, error = time.monotonic() + limit, [], None
    for child, out, err in running:
        try:
            code = child.wait(max(1.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            code = None
        if code != 0 and not error:
            err.seek(0)
            message = (err.read().strip().splitlines() or ["no message"])[-1]
            error = f"timed out after {limit:g} s" if code is None else f"exit code {code}: {message}"
        if error:
            break
        out.seek(0)
        results.append(json.loads(out.read()))
    for child, out, err in running:
        if child.poll() is None:
            child.terminate()
            child.wait()
        out.close()
        err.close()
    return error or results


def weft_command(args, batch, micro, seq, options):
    size = ["--layers", args.layers, "--hidden", args.hidden, "--heads", args.heads]
    return [args.weft, "bench", "--model", "gpt2", *size, "--seq", seq, "--batch", batch, "--micro-batch", micro,
            "--threads", 1, "--steps", args.steps, "--steps-only", *options, "--json"]


def ranked(args, options):
    return ["--ranks", args.ranks, *[args.ranks if o == "RANKS" else o for o in options]]


def measure_weft(args, kind):
    own = cores()[:args.ranks]
    if kind in ("one", "alone"):
        command = weft_command(args, args.batch, args.batch, args.seq, [])
        return run_all([(command, [core], {}) for core in (own if kind == "alone" else own[:1])], args.limit)
    if kind in LAYOUTS:
        _, options, weak = LAYOUTS[kind]
        batch = args.batch * (args.ranks if weak else 1)
        command = weft_command(args, batch, args.batch, args.seq, ranked(args, options))
    else:
        command = weft_command(args, args.micros, 1, args.pp_seq, ranked(args, PIPELINES[kind][1]))
    return run_all([(command, own, {})], args.limit)


def measure_torch(args, kind):
    ranks, port = 1 if kind == "torch-one" else args.ranks, free_port()
    command = [args.python, Path(__file__).resolve(), "--worker", kind, "--layers", args.layers, "--hidden",
               args.hidden, "--heads", args.heads, "--batch", args.batch, "--seq", args.seq, "--steps", args.steps]
    return run_all([(command, [cores()[r]], dict(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(r),
                                                 WORLD_SIZE=str(ranks))) for r in range(ranks)], args.limit)


def cpu_of(results):
    """CPU time per step, averaged over ranks."""
    return statistics.mean(ms for result in results
                           for ms in ([rank["cpu_ms"] for rank in result["ranks"]] if "ranks" in result
                                      else [result["cpu_ms"]]))


def bubble_of(result):
    """The bubble, and the mean stage's compute time relative to the longest."""
    busy = [rank["compute_ms"] for rank in result["ranks"]]
    return result["bubble"], statistics.mean(busy) / max(busy)


class Figures:
    """Results of all rounds, by kind."""

    def __init__(self):
        self.steps, self.cpu, self.bubbles, self.errors, self.versions = {}, {}, {}, {}, {}

    def add(self, kind, results):
        if isinstance(results, str):
            self.errors[kind] = results
            return
        for result in results:
            self.steps.setdefault(kind, []).extend(result["steps_ms"])
            if "torch" in result:
                self.versions["torch"] = result["torch"]
        self.cpu.setdefault(kind, []).append(cpu_of(results))
        if kind in PIPELINES:
            self.bubbles.setdefault(kind, []).append(bubble_of(results[0]))

    def step(self, kind):
        return statistics.median(self.steps[kind]) if kind in self.steps else None


# --- report ---------------------------------------------------------------------------------------------


def title_of(args, kind):
    if kind == "one":
        return "one rank"
    if kind == "alone":
        return f"{args.ranks} independent runs"
    return RIVALS.get(kind) or (LAYOUTS.get(kind) or PIPELINES[kind])[0]


def row_of(args, figures, kind):
    step = figures.step(kind)
    ranks = 1 if kind in ("one", "torch-one") else args.ranks
    weak = kind not in LAYOUTS or LAYOUTS[kind][2]
    row = {"kind": kind, "title": title_of(args, kind), "ranks": ranks, "step_ms": step,
           "fastest_ms": min(figures.steps[kind]), "slowest_ms": max(figures.steps[kind]),
           "cpu_ms": statistics.median(figures.cpu[kind])}
    if kind in PIPELINES:
        return {**row, "tokens_per_s": args.micros * args.pp_seq / step * 1e3}
    batch = args.batch * (ranks if weak else 1)
    row["tokens_per_s"] = batch * args.seq / step * 1e3
    base = "torch-one" if kind in RIVALS else "one"
    if figures.step(base):
        share = 1 if weak else ranks
        row["of_one_rank"] = figures.step(base) / (step * share)
        row["of_one_rank_cpu"] = statistics.median(figures.cpu[base]) / (row["cpu_ms"] * share)
    if figures.step("alone") and kind in LAYOUTS:
        row["of_machine"] = figures.step("alone") / (step * (1 if weak else ranks))
    if kind in RIVALS and figures.step(EQUAL[kind]):
        row["weft_is"] = step / figures.step(EQUAL[kind])
    return row


def percent(row, key):
    return f"{100 * row[key]:.1f}%" if key in row else ""


def show(args, figures, rows):
    headers = ("layout", "ranks", "step, ms", "min", "max", "tokens/s", "CPU, ms", "efficiency", "CPU efficiency",
               "vs independent", "weft speedup")
    widths = (24, 5, 9, 8, 8, 9, 8, 10, 14, 14, 12)
    print("  ".join(h.ljust(w) if i == 0 else h.rjust(w) for i, (h, w) in enumerate(zip(headers, widths))))
    for row in rows:
        cells = (row["title"], row["ranks"], f"{row['step_ms']:.0f}", f"{row['fastest_ms']:.0f}",
                 f"{row['slowest_ms']:.0f}", f"{row['tokens_per_s']:.1f}", f"{row['cpu_ms']:.0f}",
                 percent(row, "of_one_rank"), percent(row, "of_one_rank_cpu"), percent(row, "of_machine"),
                 f"{row['weft_is']:.2f}x" if "weft_is" in row else "")
        print("  ".join(str(c).ljust(w) if i == 0 else str(c).rjust(w) for i, (c, w) in enumerate(zip(cells, widths))))
    for kind, bubbles in figures.bubbles.items():
        bubble, balance = (statistics.median(b[i] for b in bubbles) for i in (0, 1))
        theory = (args.ranks - 1) / (args.micros + args.ranks - 1)
        print(f"{title_of(args, kind)}: bubble {100 * bubble:.1f}% (theory: {100 * theory:.1f}%) with {args.micros} "
              f"micro-batches of {args.pp_seq} tokens; the mean stage has {100 * balance:.1f}% of the largest stage's work")
    for kind, error in figures.errors.items():
        print(f"{title_of(args, kind)}: {error}")


def notes(args, figures):
    version = subprocess.run([args.weft, "--version"], capture_output=True, text=True).stdout.strip()
    return {"date": datetime.date.today().isoformat(), **machine(), "weft": version, **figures.versions, "batch": args.batch, "seq": args.seq,
            "ranks": args.ranks, "layers": args.layers, "hidden": args.hidden, "heads": args.heads,
            "micros": args.micros, "pp_seq": args.pp_seq, "steps": args.steps, "rounds": args.rounds}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", default=ROOT / "build/release/weft", type=Path)
    parser.add_argument("--python", default=sys.executable, help="Python with torch and transformers")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--batch", type=int, default=1, help="sequences per rank (1)")
    parser.add_argument("--seq", type=int, default=256, help="tokens per sequence (256)")
    parser.add_argument("--micros", type=int, default=4, help="pipeline micro-batches of one sequence (4)")
    parser.add_argument("--pp-seq", type=int, default=128, help="tokens per sequence in pipelines (128)")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--steps", type=int, default=2, help="timed steps per process, after one warm-up step (2)")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--kinds", default=",".join(KINDS), help=f"comma-separated, from {','.join(KINDS)}")
    parser.add_argument("--limit", type=float, default=300, help="time limit per measurement in seconds (300)")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    args = arguments()
    if args.worker:
        return worker(args)
    kinds = args.kinds.split(",")
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        sys.exit(f"--kinds: unknown kind {unknown[0]}; choose from {', '.join(KINDS)}")
    if args.ranks > len(cores()):
        sys.exit(f"--ranks {args.ranks} needs {args.ranks} cores, but only {len(cores())} are available")
    if not args.weft.exists():
        sys.exit(f"{args.weft} not found; build it with: cmake --build --preset release")
    figures, begun = Figures(), time.monotonic()
    for turn in range(args.rounds):
        for kind in kinds[::-1] if turn % 2 else kinds:
            print(f"round {turn + 1}, {time.monotonic() - begun:.0f} s: {title_of(args, kind)}", file=sys.stderr)
            figures.add(kind, (measure_torch if kind in RIVALS else measure_weft)(args, kind))
    rows = [row_of(args, figures, kind) for kind in kinds if kind in figures.steps]
    about = notes(args, figures)
    print(", ".join(f"{key} {value}" for key, value in about.items()))
    show(args, figures, rows)
    if args.json:
        args.json.write_text(json.dumps({"notes": about, "rows": rows, "bubbles": figures.bubbles,
                                         "steps_ms": figures.steps, "errors": figures.errors}, indent=2) + "\n")
    sys.exit(1 if figures.errors else 0)


if __name__ == "__main__":
    main()
