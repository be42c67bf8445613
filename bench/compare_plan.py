#!/usr/bin/env python3
"""Compare planned with measured step times and memory: the accuracy tables of docs/planning.md, in Markdown.

    python bench/compare_plan.py [--weft build/release/weft] [--clusters DIR]

The measurements are those of docs/performance.md (weft on an H200, bf16 and fp8, without dropout) and of a study
(Megatron on two V100 systems; batch is per replica). --clusters DIR reads the cluster files from DIR instead of using
the built-in ones.
"""
import argparse
import json
import subprocess
from pathlib import Path

# cluster, model, layers, hidden size, heads, GPUs, tensor-parallel size, batch per replica, recompute, measured ms and GiB
STUDY = [
    ("v100-pcie-8", "bert-large", 24, 1024, 16, 8, 1, 14, False, 832, None),
    ("v100-pcie-8", "gpt2", 24, 1024, 16, 8, 1, 24, True, 3470, None),
    ("v100-pcie-8", "gpt2", 24, 1024, 16, 8, 1, 3, False, 655, None),
    ("dgx2-v100", "gpt2", 24, 1024, 16, 8, 1, 32, True, 3794, 29.9),
    ("dgx2-v100", "gpt2", 24, 1024, 16, 16, 1, 32, True, 3842, None),
    ("dgx2-v100", "gpt2", 40, 1536, 16, 16, 1, 24, True, None, None),
    ("dgx2-v100", "gpt2", 40, 1536, 16, 16, 1, 8, True, 2533, 31.3),
    ("dgx2-v100", "gpt2", 54, 1920, 20, 16, 1, 2, True, None, None),
    ("dgx2-v100", "gpt2", 54, 1920, 20, 16, 2, 8, True, 2697, 31.2),
    ("dgx2-v100", "gpt2", 72, 3072, 32, 16, 8, 8, True, 2672, 27.2),
    ("dgx2-v100", "bert-large", 24, 1024, 16, 16, 1, 14, False, 541, 29.1),
    ("dgx2-v100", "bert-large", 24, 1024, 16, 16, 2, 30, False, 667, 29.8),
    ("dgx2-v100", "bert-large", 40, 1536, 16, 16, 2, 8, False, 640, 27.4),
    ("dgx2-v100", "bert-large", 72, 3072, 32, 16, 8, 2, False, 713, 28.7),
    ("dgx2-v100", "bert-large", 72, 3072, 32, 16, 8, 2, True, 1059, 23.5),
    ("dgx2-v100", "bert-large", 72, 3072, 32, 16, 8, 32, True, 4754, 29.8),
]

# title, model, task, batch, sequence length, measured (ms, GiB) in bf16 and in fp8
H200 = [
    ("GPT-2 124M, 32 x 1024", "gpt2", "lm", 32, 1024, (56.6, 12.8), (51.4, 11.4)),
    ("GPT-2 355M, 16 x 1024", "gpt2-medium", "lm", 16, 1024, (77.3, 19.4), (67.2, 17.5)),
    ("GPT-2 774M, 16 x 1024", "gpt2-large", "lm", 16, 1024, (161.4, 37.1), (131.3, 33.6)),
    ("GPT-2 355M, 4 x 128", "gpt2-medium", "lm", 4, 128, (10.4, 6.4), None),
    ("GPT-2 355M, 12 x 128", "gpt2-medium", "lm", 12, 128, (13.8, 7.3), None),
    ("BERT-base, span head, 32 x 384", "bert-base", "span", 32, 384, (18.5, 5.2), None),
    ("BERT-large, MLM and NSP, 32 x 512", "bert-large", "mlm", 32, 512, (71.7, 18.4), (62.6, 18.0)),
]


def plan(args, cluster, options):
    name = str(Path(args.clusters) / (cluster + ".json")) if args.clusters else cluster
    command = [args.weft, "plan", "--cluster", name, "--json"] + [str(option) for option in options]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def percent(planned, measured):
    return f"{100 * (planned / measured - 1):+.1f}%"


def print_row(cells):
    print("|" + "".join(f" {cell} |" if cell != "" else " |" for cell in cells))


def study(args):
    print("| GPUs | model | layers, hidden | tp | batch | recompute | measured, ms | planned | | memory, GiB | planned |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    errors = []
    for cluster, model, layers, hidden, heads, ranks, tp, batch, recompute, ms, memory in STUDY:
        dp, gpt2 = ranks // tp, model == "gpt2"
        result = plan(args, cluster, [
            "--ranks", ranks, "--dp", dp, "--tp", tp, "--model", model, "--layers", layers, "--hidden", hidden, "--heads",
            heads, "--seq", 1024 if gpt2 else 512, "--batch", batch * dp, "--micro-batch", batch, "--recompute",
            "block" if recompute else "none", "--precision", "fp16"])
        step, fits = result["step_ms"], result["fits"]
        if ms:
            errors.append(abs(step / ms - 1))
        cells = [f"{ranks}, {'PCIe' if 'pcie' in cluster else 'DGX-2'}", "GPT-2" if gpt2 else "BERT", f"{layers}, {hidden}",
                 tp, batch, "yes" if recompute else "no", ms or "OOM", f"{step:.0f}" if fits else "OOM",
                 percent(step, ms) if ms else "", memory or "", f"{result['memory_saving'] / 2**30:.1f}"]
        print_row(cells)
    print(f"\nThe mean error is {100 * sum(errors) / len(errors):.1f}%, the largest {100 * max(errors):.1f}%.")


def h200(args):
    print("| workload | measured, ms | planned | | memory, GiB | planned |")
    print("| --- | --- | --- | --- | --- | --- |")
    for title, model, task, batch, seq, *measured in H200:
        for precision, figures in zip(("bf16", "fp8"), measured):
            if not figures:
                continue
            ms, memory = figures
            result = plan(args, "h200", ["--model", model, "--task", task, "--batch", batch, "--micro-batch", batch,
                                         "--seq", seq, "--dropout", 0, "--precision", precision])
            print_row([f"{title if precision == 'bf16' else 'same'}, {precision}", ms, f"{result['step_ms']:.1f}",
                       percent(result["step_ms"], ms), memory, f"{result['memory_per_rank']['total'] / 2**30:.2f}"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", default=str(Path(__file__).resolve().parent.parent / "build/release/weft"))
    parser.add_argument("--clusters", help="folder with cluster files")
    args = parser.parse_args()
    h200(args)
    print()
    study(args)


if __name__ == "__main__":
    main()
