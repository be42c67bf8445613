#!/usr/bin/env python3
"""Compare a training step of weft and PyTorch on a CPU.

    python bench/compare_torch.py [--weft build/release/weft] [--threads 1,2] [--models gpt2,llama,bert-span]
                                  [--precision fp32,bf16] [--no-compile]

A step is forward, backward, clipping by global norm and AdamW with dropout 0.1 (Llama has none), on random tokens. PyTorch runs the
transformers model in train mode with sdpa attention, in bf16 under autocast. Each measurement is a separate process,
pinned to one CPU per thread. The sides alternate, so that other load affects both. The first round tries each PyTorch
variant (eager or compiled, default or fused AdamW); later rounds repeat the fastest. `--weft` may name several builds,
which become sides of their own: `--weft own=build/own/weft,openblas=build/openblas/weft`. Results are medians over all
timed steps of all rounds. Peak memory is the process's peak resident set size (VmHWM) after the steps. Stolen CPU time
is what the hypervisor took from this machine during the processes; if it is more than a little, measure again.

The PyTorch side needs torch and transformers, which are imported only in its own process.
"""
import argparse
import collections
import datetime
import itertools
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
    "llama": dict(title="SmolLM-135M (Llama), language model", B=4, T=256, weft=["--model", "smollm-135m"]),
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
    if name in ("gpt2", "llama", "qwen3-moe"):
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
                              GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM)
    smollm = LlamaConfig(vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
                         num_attention_heads=9, num_key_value_heads=3, max_position_embeddings=2048, rms_norm_eps=1e-5,
                         tie_word_embeddings=True)
    cls, config = {"gpt2": (GPT2LMHeadModel, GPT2Config()), "llama": (LlamaForCausalLM, smollm), "bert-span": (BertForQuestionAnswering, BertConfig()),
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
        with torch.autocast("cpu", torch.bfloat16, enabled=args.precision[0] == "bf16"):
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


def stolen_s():
    """CPU time that the hypervisor has given to other machines, over all CPUs."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()
    return int(fields[8]) / os.sysconf("SC_CLK_TCK") if len(fields) > 8 else 0.0


def run_pinned(command, threads):
    """Run a command on the first `threads` available CPUs. Returns the JSON object it prints, or {"error": ...}."""
    cpus = ",".join(str(cpu) for cpu in sorted(os.sched_getaffinity(0))[:threads])
    env = dict(os.environ, OMP_NUM_THREADS=str(threads), TOKENIZERS_PARALLELISM="false")
    stolen = stolen_s()
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
    result["stolen_s"] = stolen_s() - stolen
    return result


def measure_torch(args, case, variant):
    return run_pinned([sys.executable, str(Path(__file__).resolve()), "--worker", variant, "--models", case.model,
                       "--threads", str(case.threads), "--precision", case.precision, "--steps", str(args.steps),
                       "--warmup", str(args.warmup)], case.threads)


def measure_weft(args, case, build):
    spec = MODELS[case.model]
    result = run_pinned([args.weft[build], "bench", *spec["weft"], "--batch", str(spec["B"]), "--seq", str(spec["T"]),
                         "--precision", case.precision, "--threads", str(case.threads), "--steps", str(args.steps),
                         "--json"], case.threads)
    if "error" not in result:
        result["step_ms"] = result["steps_ms"]
        result["counted_mb"] = result["peak_bytes"] / 2**20
    return result


Case = collections.namedtuple("Case", "model precision threads")


def described(case):
    return f"{case.model}, {case.precision}, {case.threads} thread{'s' if case.threads > 1 else ''}"


class Table:
    """All results, by case and side: a PyTorch variant or a build of weft."""

    def __init__(self):
        self.runs = {}

    def add(self, case, side, result):
        self.runs.setdefault((case, side), []).append(result)
        shown = result.get("error") or f"{statistics.median(result['step_ms']):.0f} ms, {result['peak_mb']:.0f} MB"
        print(f"  {described(case)}, {side}: {shown}", file=sys.stderr, flush=True)

    def good(self, case, side):
        return [r for r in self.runs.get((case, side), []) if "error" not in r]

    def times(self, case, side):
        return [t for r in self.good(case, side) for t in r["step_ms"]]

    def median(self, case, side):
        times = self.times(case, side)
        return statistics.median(times) if times else None

    def peak(self, case, side):
        peaks = [r["peak_mb"] for r in self.good(case, side)]
        return max(peaks) if peaks else None

    def fastest(self, case):
        timed = {v: self.median(case, v) for v in VARIANTS}
        timed = {v: t for v, t in timed.items() if t is not None}
        return min(timed, key=timed.get) if timed else None

    def rows(self):
        for (case, side), results in sorted(self.runs.items()):
            row = dict(case._asdict(), side=side)
            median = self.median(case, side)
            if median is None:
                yield dict(row, error=results[0]["error"])
                continue
            times, spec = self.times(case, side), MODELS[case.model]
            yield dict(row, step_ms=round(median, 1), fastest_ms=round(min(times), 1), slowest_ms=round(max(times), 1),
                       steps=len(times), tokens_per_s=round(spec["B"] * spec["T"] / median * 1000, 1),
                       peak_mb=round(self.peak(case, side), 1),
                       stolen_s=round(sum(r["stolen_s"] for r in self.good(case, side)), 1))


def machine():
    """Describe the system that the measurements run on."""
    cpu = subprocess.run(["lscpu"], capture_output=True, text=True).stdout
    fields = dict(line.split(":", 1) for line in cpu.splitlines() if ":" in line)
    memory = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    return {"cpu": fields.get("Model name", platform.processor()).strip(), "arch": platform.machine(),
            "cpus": len(os.sched_getaffinity(0)), "memory_gb": round(int(memory.split()[1]) / 2**20, 1),
            "system": f"{platform.system()} {platform.release()}", "load": os.getloadavg()}


def print_table(report):
    print("| model | batch x seq | precision | threads | side | step, ms | min to max | tokens/s | peak memory, MB "
          "| stolen CPU time, s |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for row in report["results"]:
        spec = MODELS[row["model"]]
        side = "PyTorch " + row["side"] if row["side"] in VARIANTS else row["side"]
        start = f"| {spec['title']} | {spec['B']} x {spec['T']} | {row['precision']} | {row['threads']} | {side} |"
        if "error" in row:
            print(f"{start} failed: {row['error']} | | | | |")
            continue
        print(f"{start} {row['step_ms']:.0f} | {row['fastest_ms']:.0f} to {row['slowest_ms']:.0f} "
              f"| {row['tokens_per_s']:.0f} | {row['peak_mb']:.0f} | {row['stolen_s']:.1f} |")
    for verdict in report["verdicts"]:
        print(f"\n{described(Case(verdict['model'], verdict['precision'], verdict['threads']))}: {verdict['side']} is "
              f"{verdict['speedup']:.2f}x as fast as PyTorch's fastest variant ({verdict['variant']}) and takes "
              f"{verdict['memory_ratio']:.2f} of the memory of its smallest.")


def verdicts(table, args):
    for case in cases(args):
        best = table.fastest(case)
        for build in args.weft:
            ours = table.median(case, build)
            if ours is None or best is None:
                continue
            smallest = min(p for p in (table.peak(case, v) for v in VARIANTS) if p is not None)
            yield dict(case._asdict(), side=build, variant=best, speedup=table.median(case, best) / ours,
                       memory_ratio=table.peak(case, build) / smallest)


def cases(args):
    return [Case(*c) for c in itertools.product(args.models, args.precision, args.threads)]


def measure_all(args):
    table = Table()
    for round_number in range(args.rounds):
        for case in cases(args):
            variants = args.variants if round_number == 0 else [table.fastest(case)]
            for variant in filter(None, variants):
                table.add(case, variant, measure_torch(args, case, variant))
            for build in args.weft:
                table.add(case, build, measure_weft(args, case, build))
    return table


def parse():
    def many(kind):
        return lambda text: [kind(part) for part in text.split(",")]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    built = ROOT / "build/release/weft"
    parser.add_argument("--weft", type=many(str), default=[str(built)] if built.exists() else [],
                        help="path to weft, or NAME=PATH,... for several builds")
    parser.add_argument("--models", type=many(str), default=["gpt2", "bert-span"], help=", ".join(MODELS))
    parser.add_argument("--precision", type=many(str), default=["fp32"], help="fp32, bf16")
    parser.add_argument("--threads", type=many(int), default=[1, 2])
    parser.add_argument("--variants", type=many(str), default=list(VARIANTS), help=", ".join(VARIANTS))
    parser.add_argument("--no-compile", action="store_true", help="leave out the compiled variant, which is slow to start")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3, help="timed steps per process")
    parser.add_argument("--warmup", type=int, default=2, help="untimed steps of PyTorch; weft always runs one")
    parser.add_argument("--json", help="write all results to this file")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.weft = dict(w.split("=", 1) if "=" in w else ("weft", w) for w in args.weft)
    args.variants = [v for v in args.variants if not (args.no_compile and VARIANTS[v][0])]
    return args


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
    report["runs"] = [dict(case._asdict(), side=side, results=r) for (case, side), r in table.runs.items()]
    print_table(report)
    if args.json:
        Path(args.json).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
