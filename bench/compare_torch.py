#!/usr/bin/env python3
"""Compare a training step of weft and PyTorch on a CPU.

    python bench/compare_torch.py [--weft build/release/weft] [--threads 1,2] [--models gpt2,bert-span]

A step is forward, backward, clipping by global norm and AdamW in fp32 with dropout 0.1, on random tokens. PyTorch runs
the transformers model in train mode with sdpa attention. Each measurement is a separate process, pinned to one CPU per
thread. The sides alternate, so that other load affects both. The first round tries each PyTorch variant (eager or
compiled, default or fused AdamW); later rounds repeat the fastest. Results are medians over all timed steps of all
rounds. Peak memory is the process's peak resident set size (VmHWM) after the steps.

The PyTorch side needs torch and transformers, which are imported only in its own process.
"""
import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# name: title, batch, sequence length, and the options of `weft bench` for the same model
MODELS = {
    "gpt2": dict(title="GPT-2 124M, language model", B=4, T=256, weft=["--model", "gpt2"]),
    "bert-span": dict(title="BERT-base, span head", B=4, T=384,
                      weft=["--model", "bert-base", "--task", "span"]),
    "bert-pretrain": dict(title="BERT-base, MLM and NSP", B=4, T=384,
                          weft=["--model", "bert-base", "--task", "mlm"]),
}
VARIANTS = {  # PyTorch variants: (compiled, fused AdamW)
    "eager": (False, False),
    "eager+fused": (False, True),
    "compiled+fused": (True, True),
}


def peak_mb():
    """Peak resident set size of this process so far."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise SystemExit("/proc/self/status has no VmHWM")


# --- the PyTorch side, in a separate process ---------------------------------------------------------------


def torch_inputs(torch, name, B, T, config):
    tokens = torch.randint(0, config.vocab_size, (B, T))
    if name == "gpt2":
        return dict(input_ids=tokens, labels=tokens)
    inputs = dict(input_ids=tokens, token_type_ids=(torch.arange(T) >= T // 2).long().expand(B, T).contiguous())
    if name == "bert-span":
        start = torch.randint(0, T // 2, (B,))
        return dict(inputs, start_positions=start, end_positions=start + 3)
    picked = torch.rand(B, T) < 0.15
    return dict(inputs, labels=torch.where(picked, tokens, torch.tensor(-100)),
                next_sentence_label=torch.randint(0, 2, (B,)))


def torch_model(name):
    from transformers import (BertConfig, BertForPreTraining, BertForQuestionAnswering, GPT2Config,
                              GPT2LMHeadModel)
    cls, config = {"gpt2": (GPT2LMHeadModel, GPT2Config()), "bert-span": (BertForQuestionAnswering, BertConfig()),
                   "bert-pretrain": (BertForPreTraining, BertConfig())}[name]
    config._attn_implementation = "sdpa"
    config.use_cache = False
    return cls(config).train(), config


def worker(args):
    import torch
    torch.set_num_threads(args.threads[0])
    torch.manual_seed(1)
    compiled, fused = VARIANTS[args.worker]
    name = args.models[0]
    spec = MODELS[name]
    model, config = torch_model(name)
    before = peak_mb()
    groups = [{"params": [p for p in model.parameters() if p.ndim >= 2], "weight_decay": 0.01},
              {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-4, **({"fused": True} if fused else {}))
    inputs = torch_inputs(torch, name, spec["B"], spec["T"], config)
    run = torch.compile(model) if compiled else model
    times, cpu_times = [], []
    for _ in range(args.warmup + args.steps):
        start, cpu_start = time.perf_counter(), time.process_time()
        loss = run(**inputs).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        times.append((time.perf_counter() - start) * 1000)
        cpu_times.append((time.process_time() - cpu_start) * 1000)
    print(json.dumps({"step_ms": times[args.warmup:], "cpu_ms": cpu_times[args.warmup:], "peak_mb": peak_mb(), "built_mb": before,
                      "loss": loss.item(), "torch": torch.__version__, "threads": torch.get_num_threads(),
                      "params": sum(p.numel() for p in model.parameters())}))


# --- measuring ------------------------------------------------------------------------------------


def run_pinned(command, threads):
    """Run a command on the first `threads` available CPUs. Returns the JSON object it prints, or {"error": ...}."""
    cpus = ",".join(str(cpu) for cpu in sorted(os.sched_getaffinity(0))[:threads])
    env = dict(os.environ, OMP_NUM_THREADS=str(threads), TOKENIZERS_PARALLELISM="false")
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = subprocess.Popen(["taskset", "-c", cpus, *command], stdout=out, stderr=err, env=env)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if child.returncode != 0:
            message = (err.read().strip().splitlines() or ["no message"])[-1]
            return {"error": f"exit code {child.returncode}: {message}"}
        result = json.loads(out.read())
    result.setdefault("peak_mb", usage.ru_maxrss / 1024)
    return result


def measure_torch(args, name, threads, variant):
    return run_pinned([sys.executable, str(Path(__file__).resolve()), "--worker", variant, "--models", name,
                       "--threads", str(threads), "--steps", str(args.steps), "--warmup", str(args.warmup)], threads)


def measure_weft(args, name, threads):
    spec = MODELS[name]
    result = run_pinned([args.weft, "bench", *spec["weft"], "--batch", str(spec["B"]), "--seq", str(spec["T"]),
                         "--threads", str(threads), "--steps", str(args.steps), "--json"], threads)
    if "error" not in result:
        result["step_ms"] = result["steps_ms"]
        result["counted_mb"] = result["peak_bytes"] / 2**20
    return result


class Table:
    """All results, by (model, threads, side)."""

    def __init__(self):
        self.runs = {}

    def add(self, name, threads, side, result):
        self.runs.setdefault((name, threads, side), []).append(result)
        shown = result.get("error") or f"{statistics.median(result['step_ms']):.0f} ms, {result['peak_mb']:.0f} MB"
        print(f"  {name}, {threads} thread{'s' if threads > 1 else ''}, {side}: {shown}", file=sys.stderr, flush=True)

    def good(self, name, threads, side):
        return [r for r in self.runs.get((name, threads, side), []) if "error" not in r]

    def median(self, name, threads, side):
        times = [t for r in self.good(name, threads, side) for t in r["step_ms"]]
        return statistics.median(times) if times else None

    def peak(self, name, threads, side):
        peaks = [r["peak_mb"] for r in self.good(name, threads, side)]
        return max(peaks) if peaks else None

    def fastest(self, name, threads):
        timed = {v: self.median(name, threads, v) for v in VARIANTS}
        timed = {v: t for v, t in timed.items() if t is not None}
        return min(timed, key=timed.get) if timed else None

    def rows(self):
        for (name, threads, side), results in sorted(self.runs.items()):
            median = self.median(name, threads, side)
            if median is None:
                yield dict(model=name, threads=threads, side=side, error=results[0]["error"])
                continue
            times = [t for r in self.good(name, threads, side) for t in r["step_ms"]]
            yield dict(model=name, threads=threads, side=side, step_ms=round(median, 1), fastest_ms=round(min(times), 1),
                       slowest_ms=round(max(times), 1), steps=len(times),
                       tokens_per_s=round(MODELS[name]["B"] * MODELS[name]["T"] / median * 1000, 1),
                       peak_mb=round(self.peak(name, threads, side), 1))


def machine():
    """Describe the system that the measurements run on."""
    cpu = subprocess.run(["lscpu"], capture_output=True, text=True).stdout
    fields = dict(line.split(":", 1) for line in cpu.splitlines() if ":" in line)
    memory = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    return {"cpu": fields.get("Model name", platform.processor()).strip(), "arch": platform.machine(),
            "cpus": len(os.sched_getaffinity(0)), "memory_gb": round(int(memory.split()[1]) / 2**20, 1),
            "system": f"{platform.system()} {platform.release()}", "load": os.getloadavg()}


def print_table(report):
    print("| model | batch x seq | threads | side | step, ms | min to max | tokens/s | peak memory, MB |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for row in report["results"]:
        spec = MODELS[row["model"]]
        side = row["side"] if row["side"] == "weft" else "PyTorch " + row["side"]
        start = f"| {spec['title']} | {spec['B']} x {spec['T']} | {row['threads']} | {side} |"
        if "error" in row:
            print(f"{start} failed: {row['error']} | | | |")
            continue
        print(f"{start} {row['step_ms']:.0f} | {row['fastest_ms']:.0f} to {row['slowest_ms']:.0f} "
              f"| {row['tokens_per_s']:.0f} | {row['peak_mb']:.0f} |")
    for verdict in report["verdicts"]:
        print(f"\n{verdict['model']}, {verdict['threads']} thread{'s' if verdict['threads'] > 1 else ''}: weft takes "
              f"{verdict['time_ratio']:.2f} of the time of PyTorch's fastest variant and {verdict['memory_ratio']:.2f} of the "
              f"memory of its smallest.")


def verdicts(table, args):
    for name in args.models:
        for threads in args.threads:
            ours, best = table.median(name, threads, "weft"), table.fastest(name, threads)
            if ours is None or best is None:
                continue
            smallest = min(p for p in (table.peak(name, threads, v) for v in VARIANTS) if p is not None)
            yield dict(model=name, threads=threads, time_ratio=ours / table.median(name, threads, best),
                       memory_ratio=table.peak(name, threads, "weft") / smallest)


def measure_all(args):
    table = Table()
    for round_number in range(args.rounds):
        for name in args.models:
            for threads in args.threads:
                variants = args.variants if round_number == 0 else [table.fastest(name, threads)]
                for variant in filter(None, variants):
                    table.add(name, threads, variant, measure_torch(args, name, threads, variant))
                    if args.weft:
                        table.add(name, threads, "weft", measure_weft(args, name, threads))
    return table


def parse():
    def many(kind):
        return lambda text: [kind(part) for part in text.split(",")]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    built = ROOT / "build/release/weft"
    parser.add_argument("--weft", default=str(built) if built.exists() else "", help="path to weft; '' skips weft")
    parser.add_argument("--models", type=many(str), default=["gpt2", "bert-span"], help=", ".join(MODELS))
    parser.add_argument("--threads", type=many(int), default=[1, 2])
    parser.add_argument("--variants", type=many(str), default=list(VARIANTS), help=", ".join(VARIANTS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3, help="timed steps per process")
    parser.add_argument("--warmup", type=int, default=2, help="untimed steps of PyTorch; weft always runs one")
    parser.add_argument("--json", help="write all results to this file")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    args = parse()
    if args.worker:
        worker(args)
        return
    report = {"date": datetime.date.today().isoformat(), "machine": machine()}
    table = measure_all(args)
    report["machine"]["load_after"] = os.getloadavg()
    report["torch"] = next((r["torch"] for runs in table.runs.values() for r in runs if "torch" in r), None)
    report["results"] = list(table.rows())
    report["verdicts"] = list(verdicts(table, args))
    report["runs"] = [dict(model=m, threads=t, side=s, results=r) for (m, t, s), r in table.runs.items()]
    print_table(report)
    if args.json:
        Path(args.json).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
