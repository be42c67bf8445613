#!/usr/bin/env python3
"""Planned steps against measured ones: the tables of docs/planning.md, as Markdown.

    python bench/compare_plan.py [--weft build/release/weft] [--clusters DIR]

The measured figures are a study's (Megatron on two machines with V100; batch is per replica) and those of
docs/performance.md (weft on an H200, bf16 and fp8, without dropout). `--clusters DIR` takes the clusters' files from
there instead of the program's own.
"""
import argparse
import json
import subprocess
from pathlib import Path

# cluster, model, layers, width, heads, devices, tensor ranks, batch of a replica, recomputed, ms, GiB held
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

# title, model, task, sequences, positions, ms in bf16, ms in fp8
H200 = [
    ("GPT-2 124M, 32 x 1024", "gpt2", "lm", 32, 1024, 56.6, 51.4),
    ("GPT-2 355M, 16 x 1024", "gpt2-medium", "lm", 16, 1024, 77.3, 67.2),
    ("GPT-2 774M, 16 x 1024", "gpt2-large", "lm", 16, 1024, 161.4, 131.3),
    ("GPT-2 355M, 4 x 128", "gpt2-medium", "lm", 4, 128, 10.4, None),
    ("GPT-2 355M, 12 x 128", "gpt2-medium", "lm", 12, 128, 13.8, None),
    ("BERT-base, span head, 32 x 384", "bert-base", "span", 32, 384, 18.5, None),
    ("BERT-large, masked tokens and next sentence, 32 x 512", "bert-large", "mlm", 32, 512, 71.7, 62.6),
]


def plan(args, cluster, options):
    name = str(Path(args.clusters) / (cluster + ".json")) if args.clusters else cluster
    command = [args.weft, "plan", "--cluster", name, "--json"] + [str(option) for option in options]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def percent(planned, measured):
    return f"{100 * (planned / measured - 1):+.1f} %"


def study(args):
    print("| machine | model | layers, width | tp x dp | batch | recomputed | measured, ms | planned | | held, GiB | planned |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    errors = []
    for cluster, model, layers, width, heads, ranks, tp, batch, again, ms, held in STUDY:
        dp, gpt2 = ranks // tp, model == "gpt2"
        result = plan(args, cluster, [
            "--ranks", ranks, "--dp", dp, "--tp", tp, "--model", model, "--layers", layers, "--hidden", width, "--heads",
            heads, "--seq", 1024 if gpt2 else 512, "--batch", batch * dp, "--micro-batch", batch, "--recompute",
            "block" if again else "none", "--precision", "fp16"])
        step, fits = result["step_ms"], result["fits"]
        if ms:
            errors.append(abs(step / ms - 1))
        print(f"| {'8 x V100 PCIe' if ranks == 8 and 'pcie' in cluster else f'{ranks} of DGX-2'} "
              f"| {'GPT-2' if gpt2 else 'BERT'} | {layers}, {width} | {tp} x {dp} | {batch} | {'yes' if again else 'no'} "
              f"| {ms or 'out of memory'} | {f'{step:.0f}' if fits else 'out of memory'} "
              f"| {percent(step, ms) if ms else ''} | {held or ''} | {result['memory_saving'] / 2**30:.1f} |")
    print(f"\nMean error {100 * sum(errors) / len(errors):.1f} %, largest {100 * max(errors):.1f} %.\n")


def h200(args):
    print("| work | bf16, measured, ms | planned | | fp8, measured | planned | |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for title, model, task, sequences, positions, bf16, fp8 in H200:
        cells = []
        for precision, ms in (("bf16", bf16), ("fp8", fp8)):
            step = ms and plan(args, "h200", [
                "--model", model, "--task", task, "--batch", sequences, "--micro-batch", sequences, "--seq", positions,
                "--dropout", 0, "--precision", precision])["step_ms"]
            cells += [f"{ms}", f"{step:.1f}", percent(step, ms)] if ms else ["", "", ""]
        print(f"| {title} | {' | '.join(cells)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", default=str(Path(__file__).resolve().parent.parent / "build/release/weft"))
    parser.add_argument("--clusters")
    args = parser.parse_args()
    study(args)
    h200(args)


if __name__ == "__main__":
    main()
