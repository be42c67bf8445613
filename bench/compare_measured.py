#!/usr/bin/env python3
"""Compare planned with measured step times on this machine: a table of docs/planning.md, in Markdown.

    weft plan --measure --out here.json --ranks 2 --threads 1 --precision fp32
    python bench/compare_measured.py --cluster here.json --ranks 2 [--weft build/release/weft] [--only TEXT]

Use the --ranks of the measured cluster; each rank has one thread. The measured time is the best of four steps. Run it on
an idle machine. For a GPU (--measure --device cuda), pass --device cuda: one rank in bf16, the best of 20 steps.
"""
import argparse
import json
import subprocess
from pathlib import Path

# number of ranks: (title, options)
ROWS = {
    1: [
        ("GPT-2, 4 layers of 128, 4 x 128, vocabulary 1024",
         "--model gpt2 --layers 4 --hidden 128 --heads 4 --seq 128 --batch 4 --vocab 1024"),
        ("GPT-2, 4 layers of 192, 3 heads, 4 x 96, vocabulary 2000",
         "--model gpt2 --layers 4 --hidden 192 --heads 3 --seq 96 --batch 4 --vocab 2000"),
        ("GPT-2, 4 layers of 320, 5 heads, 6 x 200, micro-batch 3, vocabulary 5000",
         "--model gpt2 --layers 4 --hidden 320 --heads 5 --seq 200 --batch 6 --micro-batch 3 --vocab 5000"),
        ("GPT-2, 3 layers of 512, 2 x 256, block recompute, vocabulary 10000",
         "--model gpt2 --layers 3 --hidden 512 --heads 8 --seq 256 --batch 2 --vocab 10000 --recompute block"),
        ("BERT, 4 layers of 512, 4 x 128",
         "--model bert-base --layers 4 --hidden 512 --heads 8 --seq 128 --batch 4 --vocab 8000"),
        ("GPT-2 124M, 2 x 128", "--model gpt2 --seq 128 --batch 2"),
    ],
    2: [
        ("GPT-2, 4 layers of 512, 4 x 128, vocabulary 4096, ZeRO-3",
         "--model gpt2 --layers 4 --hidden 512 --heads 8 --seq 128 --batch 4 --micro-batch 2 --vocab 4096 --zero 3"),
        ("the same, micro-batch 1, --zero-keep",
         "--model gpt2 --layers 4 --hidden 512 --heads 8 --seq 128 --batch 4 --micro-batch 1 --vocab 4096 --zero 3 "
         "--zero-keep"),
        ("the same, ZeRO-2, micro-batch 1",
         "--model gpt2 --layers 4 --hidden 512 --heads 8 --seq 128 --batch 4 --micro-batch 1 --vocab 4096 --zero 2"),
        ("the same, ZeRO-1",
         "--model gpt2 --layers 4 --hidden 512 --heads 8 --seq 128 --batch 4 --micro-batch 2 --vocab 4096 --zero 1"),
        ("GPT-2, 4 layers of 256, 8 x 128, vocabulary 2048, dp 2",
         "--model gpt2 --layers 4 --hidden 256 --heads 4 --seq 128 --batch 8 --micro-batch 4 --vocab 2048"),
        ("the same, tp 2",
         "--model gpt2 --layers 4 --hidden 256 --heads 4 --seq 128 --batch 8 --micro-batch 8 --vocab 2048 --tp 2"),
        ("the same, pp 2, micro-batch 2",
         "--model gpt2 --layers 4 --hidden 256 --heads 4 --seq 128 --batch 8 --micro-batch 2 --vocab 2048 --pp 2"),
    ],
    4: [
        (f"GPT-2, 4 layers of 512, 8 x 128, vocabulary 4096, {name}",
         f"--model gpt2 --layers 4 --hidden 512 --heads 8 --seq 128 --batch 8 --micro-batch 1 --vocab 4096 {options}")
        for name, options in [("DDP", "--zero 0"), ("ZeRO-1", "--zero 1"), ("ZeRO-2", "--zero 2"),
                              ("ZeRO-3", "--zero 3"), ("ZeRO-3 with --zero-keep", "--zero 3 --zero-keep")]
    ],
}

GPU_ROWS = [
    (f"{title}, dropout {dropout}", f"{options} --dropout {dropout} --precision bf16")
    for title, options in [
        ("GPT-2 124M, 8 x 1024", "--model gpt2 --batch 8 --micro-batch 8 --seq 1024"),
        ("BERT-base, span head, 32 x 384", "--model bert-base --task span --batch 32 --micro-batch 32 --seq 384"),
        ("GPT-2 355M, 12 x 128", "--model gpt2-medium --batch 12 --micro-batch 12 --seq 128"),
    ]
    for dropout in (0.1, 0)
] + [("TinyLlama 1.1B, 4 x 2048", "--model tinyllama-1.1b --batch 4 --micro-batch 4 --seq 2048 --precision bf16")]


def result(command):
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", default=str(Path(__file__).resolve().parent.parent / "build/release/weft"))
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--ranks", type=int, default=1, choices=sorted(ROWS))
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--only", default="", help="run only rows whose title contains this text")
    args = parser.parse_args()
    print("| workload | ranks | measured, ms | planned | |")
    print("| --- | --- | --- | --- | --- |")
    gpu = args.device == "cuda"
    for title, options in GPU_ROWS if gpu else ROWS[args.ranks]:
        if args.only not in title:
            continue
        arguments = options.split() + ["--ranks", str(args.ranks), "--json", "--device", args.device]
        if not gpu:
            arguments += ["--threads", "1"]
        planned = result([args.weft, "plan", "--cluster", args.cluster] + arguments)["step_ms"]
        measured = result([args.weft, "bench", "--steps", "20" if gpu else "4", "--steps-only", "--quiet"] + arguments)["step_ms_best"]
        print(f"| {title} | {args.ranks} | {measured:.1f} | {planned:.1f} | {100 * (planned / measured - 1):+.1f}% |",
              flush=True)


if __name__ == "__main__":
    main()
