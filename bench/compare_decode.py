#!/usr/bin/env python3
"""Compare generation speed of weft and of llama.cpp on a CPU.

    python bench/compare_decode.py --model DIR --llama LLAMA/build/bin [--threads 1,2] [--batch 12]

DIR is the checkpoint of a language model in fp32, of a mixture of experts too; random weights are fine.
LLAMA/build/bin has llama-bench and, for --batch, llama-batched-bench; --llama may also be a Python interpreter with the
package xllamacpp, with --batch 1. Without --llama, only weft is measured. The script writes llama.cpp's files with `weft
convert` and weft's with `weft quantize`, in --work.

Each row is a weight type: fp32 is compared with llama.cpp's f32, bf16 with the faster of f16 and bf16, int8 with q8_0,
and int4 with q4_0, whose token embedding is q8_0. A measurement is a prompt of --prompt tokens, followed by --tokens
tokens one at a time. A process repeats it; of these repetitions and of all rounds, the fastest counts, because other
load can only slow one down. Each process is pinned to one CPU per thread, and the sides alternate. weft's times include
sampling; llama.cpp's only with xllamacpp. --batch adds tokens/s for several sequences with the same prompt.

Read bandwidth (threads reading 256 MB by a plain loop) is measured before and after each of weft's measurements, because
it varies on a shared machine. The column "bandwidth" is the weights' size per token time, relative to the highest of its
row. The bandwidth of a loop with software prefetching is printed for comparison. To compare an older instruction set, set
WEFT_CPU (for example, avx2) and pass a llama.cpp that was built for it.
"""
import argparse
import json
import os
import platform
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

KINDS = {  # name: options of `weft quantize`, options of `weft generate`, types of GGUF files
    "fp32": (None, [], ["fp32"]),
    "bf16": (None, ["--precision", "bf16"], ["fp16", "bf16"]),
    "int8": (["--bits", "8", "--int8-embedding"], [], ["q8_0"]),
    "int4": (["--bits", "4", "--int4-embedding"], [], ["q4_0"]),
}

BANDWIDTH = r"""
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
typedef uint64_t Line __attribute__((vector_size(16)));
int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    size_t bytes = (size_t)256 << 20;
    char *data = aligned_alloc(2 << 20, bytes);
    if (!data) return 1;
    madvise(data, bytes, MADV_HUGEPAGE);
    memset(data, 1, bytes);
    double best[2] = {1e9, 1e9};
    uint64_t seen = 0;
    for (int round = 0; round < 12; round++) {
        int ahead = round % 2 ? 2048 : 0; /* bytes; 0: no prefetching */
        double start = omp_get_wtime();
#pragma omp parallel num_threads(threads) reduction(^ : seen)
        {
            const Line *from = (const Line *)(const void *)(data + bytes / threads * omp_get_thread_num());
            Line all[4] = {0};
            for (size_t i = 0; i < bytes / threads / sizeof(Line); i += 4) {
                if (ahead) __builtin_prefetch((const char *)(from + i) + ahead);
                for (int j = 0; j < 4; j++) all[j] ^= from[i + j];
            }
            all[0] ^= all[1] ^ all[2] ^ all[3];
            seen ^= all[0][0];
        }
        double seconds = omp_get_wtime() - start;
        if (seconds < best[round % 2]) best[round % 2] = seconds;
    }
    printf("%.2f %.2f %d\n", 1e-9 * (double)bytes / best[0], 1e-9 * (double)bytes / best[1], (int)(seen & 1));
    return 0;
}
"""

XLLAMACPP = r"""
import json, sys
import xllamacpp
path, threads, prompt, tokens, repeats = sys.argv[1], *map(int, sys.argv[2:])
params = xllamacpp.CommonParams()
params.model.path = path
params.n_ctx, params.n_parallel, params.n_gpu_layers = prompt + tokens + 64, 1, 0
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
server = xllamacpp.Server(params)
done = [server.handle_completions({"prompt": [7 * i % 1000 for i in range(prompt)], "n_predict": tokens + 1,
                                   "temperature": 0, "ignore_eos": True, "cache_prompt": False})["timings"]
        for _ in range(repeats + 1)]
print(json.dumps([min(t[name] for t in done) for name in ("prompt_ms", "predicted_per_token_ms")]))
"""


def run(command, threads):
    pinned = ["taskset", "-c", ",".join(str(cpu) for cpu in sorted(os.sched_getaffinity(0))[:threads])] + command
    done = subprocess.run(pinned, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr[-2000:]}{done.stdout[-500:]}")
    return done.stdout


# --- the two sides -------------------------------------------------------------------------------------------


class Sides:
    def __init__(self, args, work):
        self.args, self.work = args, work
        self.bandwidth_tool = work / "bandwidth"
        source = work / "bandwidth.c"
        source.write_text(BANDWIDTH)
        subprocess.run(["cc", "-O3", "-fopenmp", source, "-o", self.bandwidth_tool], check=True)
        self.weft_models = {}
        for kind in args.kinds:
            self.prepare(kind)

    def prepare(self, kind):
        quantize, _, types = KINDS[kind]
        self.weft_models[kind] = self.args.model
        if quantize:
            self.weft_models[kind] = self.work / kind
            if not self.weft_models[kind].exists():
                run([self.args.weft, "quantize", "--model", str(self.args.model), "--out",
                     str(self.weft_models[kind])] + quantize, 1)
        for dtype in types if self.args.llama else []:
            if not self.gguf(dtype).exists():
                run([self.args.weft, "convert", "--model", str(self.args.model), "--out", str(self.gguf(dtype)),
                     "--dtype", dtype], 1)

    def gguf(self, dtype):
        return self.work / f"{dtype}.gguf"

    def weft(self, kind, threads, batch):
        """Seconds of a prompt, and of a step in which each sequence gets one token."""
        prompt = ",".join(str(7 * i % 1000) for i in range(self.args.prompt))
        repeats = self.args.repeats + 1 if batch == 1 else 1
        out = run([self.args.weft, "generate", "--model", str(self.weft_models[kind]), "--greedy", "--ignore-end",
                   "--max-tokens", str(self.args.tokens + 1), "--threads", str(threads), "--json", "--batch", str(batch),
                   "--samples", str(batch)] + repeats * ["--prompt-ids", prompt] + KINDS[kind][1], threads)
        batches = json.loads(out)["batches"]
        return tuple(min(times[field] for times in batches) / steps
                     for field, steps in (("prefill_s", 1), ("decode_s", self.args.tokens)))

    def llama(self, dtype, threads, batch):
        if self.args.llama.is_file():
            out = run([str(self.args.llama), "-c", XLLAMACPP, str(self.gguf(dtype))] +
                      [str(n) for n in (threads, self.args.prompt, self.args.tokens, self.args.repeats)], threads)
            return tuple(1e-3 * ms for ms in json.loads(out.splitlines()[-1]))
        common = ["-m", str(self.gguf(dtype)), "-t", str(threads)]
        if batch > 1:
            out = run([str(self.args.llama / "llama-batched-bench"), *common, "-npp", str(self.args.prompt), "-ntg",
                       str(self.args.tokens), "-npl", str(batch), "-pps", "-c", "4096", "--output-format", "jsonl"],
                      threads)
            row = json.loads(next(line for line in out.splitlines() if line.startswith("{")))
            return row["t_pp"], row["t_tg"] / self.args.tokens
        bench = [str(self.args.llama / "llama-bench"), *common, "-r", str(self.args.repeats), "-o", "json"]
        out = [json.loads(run(bench + test, threads))[0]["samples_ns"]
               for test in (["-p", str(self.args.prompt), "-n", "0"],
                            ["-p", "0", "-n", str(self.args.tokens), "-d", str(self.args.prompt)])]
        return 1e-9 * min(out[0]), 1e-9 * min(out[1]) / self.args.tokens

    def bandwidth(self, threads):
        """GB/s of a plain loop and of one with prefetching."""
        return tuple(float(word) for word in run([str(self.bandwidth_tool), str(threads)], threads).split()[:2])

    def read_bytes(self, kind):
        """Bytes of weights read per step, in the compute type: the checkpoint without position embeddings and without
        the share of the experts that a token does not use."""
        config = json.loads((self.args.model / "config.json").read_text())
        experts = config.get("num_local_experts", config.get("num_experts", 0))
        idle = 1 - config["num_experts_per_tok"] / experts if experts else 0
        total = 0
        for path in Path(self.weft_models[kind]).glob("*.safetensors"):
            with open(path, "rb") as file:
                header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
            for name, tensor in header.items():
                if name == "__metadata__" or re.search(r"wpe|embed\.position", name):
                    continue
                routed = re.search(r"\.experts\.|\.moe\.(up|down)\.", name)
                begin, end = tensor["data_offsets"]
                total += (end - begin) * (1 - idle if routed else 1)
        return total / (2 if kind == "bf16" else 1)


def measure(sides, args):
    """The fastest times, {(threads, kind, batch): {side: (prompt, step)}}, and the highest bandwidths, by threads and kind."""
    rows, bandwidths = {}, {}

    def weft(kind, threads, batch):
        before = sides.bandwidth(threads)
        times = sides.weft(kind, threads, batch)
        highest = bandwidths.get((threads, kind), before)
        bandwidths[threads, kind] = tuple(map(max, before, sides.bandwidth(threads), highest))
        return times

    for _ in range(args.rounds):
        for threads in args.threads:
            for kind in args.kinds:
                for batch in [1] + ([args.batch] if args.batch > 1 else []):
                    row = rows.setdefault((threads, kind, batch), {})
                    for side in ["weft"] + (KINDS[kind][2] if args.llama else []):
                        times = weft(kind, threads, batch) if side == "weft" else sides.llama(side, threads, batch)
                        row[side] = tuple(map(min, times, row.get(side, times)))
    return rows, bandwidths


def compared(row, index, scale, digits):
    """Cells: weft's time, llama.cpp's fastest with its type if there are several, and the speedup."""
    mine = row["weft"][index]
    others = [(times[index], side) for side, times in row.items() if side != "weft"]
    if not others:
        return [f"{scale * mine:.{digits}f}", "", ""]
    other, side = min(others)
    name = f" ({side})" if len(others) > 1 else ""
    return [f"{scale * mine:.{digits}f}", f"{scale * other:.{digits}f}{name}", f"{other / mine:.2f}x"]


def show(rows, bandwidths, sides, args):
    print(f"{platform.machine()}, WEFT_CPU={os.environ.get('WEFT_CPU', '')}, prompt of {args.prompt}, {args.tokens} tokens, "
          f"fastest of {args.rounds} x {args.repeats}")
    batch = f" weft, ms/step of {args.batch} | llama.cpp | speedup |" if args.batch > 1 else ""
    print("| threads | weights | weft, ms/token | llama.cpp | speedup | bandwidth | weft, prompt, ms | llama.cpp | speedup |"
          + batch)
    print("| --- " * (12 if batch else 9) + "|")
    for threads in args.threads:
        for kind in args.kinds:
            row = rows[threads, kind, 1]
            share = sides.read_bytes(kind) / row["weft"][1] / 1e9 / bandwidths[threads, kind][0]
            cells = [str(threads), kind, *compared(row, 1, 1e3, 2), f"{100 * share:.0f}%", *compared(row, 0, 1e3, 1)]
            if batch:
                cells += compared(rows[threads, kind, args.batch], 1, 1e3, 2)
            print("| " + " | ".join(cells) + " |")
        print(f"read bandwidth with {threads} thread{'s' if threads > 1 else ''}, GB/s (with prefetching): " + ", ".join(
            "{} {:.1f} ({:.1f})".format(kind, *bandwidths[threads, kind]) for kind in args.kinds))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--weft", default=str(ROOT / "build/release/weft"))
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--llama", type=Path, help="folder with llama-bench, or a Python interpreter with xllamacpp; without it, measure only weft")
    parser.add_argument("--work", type=Path, help="folder for converted models (default: temporary)")
    parser.add_argument("--threads", type=lambda text: [int(n) for n in text.split(",")], default=[1, 2])
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=list(KINDS))
    parser.add_argument("--batch", type=int, default=12, help="sequences of the second measurement; 1: omit it")
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.llama and args.llama.is_file() and args.batch > 1:
        sys.exit("--llama: xllamacpp cannot measure several sequences; add --batch 1")
    with tempfile.TemporaryDirectory() as folder:
        work = args.work or Path(folder)
        work.mkdir(parents=True, exist_ok=True)
        sides = Sides(args, work)
        rows, bandwidths = measure(sides, args)
        show(rows, bandwidths, sides, args)
    if args.json:
        args.json.write_text(json.dumps({
            "bandwidth_gb_per_s": {" ".join(map(str, key)): value for key, value in bandwidths.items()},
            "seconds": {" ".join(map(str, key)): row for key, row in rows.items()}}, indent=1))


main()
