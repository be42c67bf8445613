#!/usr/bin/env python3
"""Compare generation speed of weft and of ggml's gpt-2 example on a CPU.

    python bench/compare_decode.py --model DIR --ggml GGML/build [--threads 1,2] [--batch 12]

DIR is a GPT-2 checkpoint in fp32; random weights are fine. GGML/build is a build of ggml with its examples (targets
gpt-2-backend, gpt-2-batched and gpt-2-quantize); without --ggml, only weft is measured. The script converts the
checkpoint to the example's format and quantizes it with each side's own tool, in --work.

Each row is a weight type: bf16 is compared with ggml's f16, int8 with q8_0, and int4 with q4_0. The token embedding and
output matrix have the same type. The results are ms/token for one sequence and tokens/s for --batch sequences. Each
measurement is a separate process, pinned to one CPU per thread. The sides alternate, and the best of all rounds counts,
because other load can only slow a run down. weft's times include sampling; ggml's do not. Each round also measures
read bandwidth (threads reading 256 MB). The column "bandwidth" is the weights' size per token time, relative to it.
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

KINDS = {  # name: options of `weft quantize`, options of `weft generate`, ggml's type
    "fp32": (None, [], None),
    "bf16": (None, ["--precision", "bf16"], "f16"),
    "int8": (["--bits", "8", "--int8-embedding"], [], "q8_0"),
    "int4": (["--bits", "4", "--int4-embedding"], [], "q4_0"),
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
    double best = 1e9;
    uint64_t seen = 0;
    for (int round = 0; round < 8; round++) {
        double start = omp_get_wtime();
#pragma omp parallel num_threads(threads) reduction(^ : seen)
        {
            const Line *from = (const Line *)(const void *)(data + bytes / threads * omp_get_thread_num());
            Line all[4] = {0};
            for (size_t i = 0; i < bytes / threads / sizeof(Line); i += 4)
                for (int j = 0; j < 4; j++) all[j] ^= from[i + j];
            all[0] ^= all[1] ^ all[2] ^ all[3];
            seen ^= all[0][0];
        }
        double seconds = omp_get_wtime() - start;
        best = seconds < best ? seconds : best;
    }
    printf("%.2f %d\n", 1e-9 * (double)bytes / best, (int)(seen & 1));
    return 0;
}
"""


def run(command, threads):
    pinned = ["taskset", "-c", ",".join(str(cpu) for cpu in sorted(os.sched_getaffinity(0))[:threads])] + command
    done = subprocess.run(pinned, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr[-2000:]}{done.stdout[-500:]}")
    return done.stdout


# --- ggml's file format -------------------------------------------------------------------------------------------


def token_texts(count):
    """A vocabulary with all bytes, so that any prompt can be encoded, and placeholder names."""
    return [bytes([i]) if i < 256 else b"<%d>" % i for i in range(count)]


def ggml_names(layers):
    """(name in ggml, name in the checkpoint, whether it is a matrix that has to be transposed)"""
    names = [("model/ln_f/g", "ln_f.weight", False), ("model/ln_f/b", "ln_f.bias", False),
             ("model/wte", "wte.weight", False), ("model/wpe", "wpe.weight", False)]
    for i in range(layers):
        for part, of in (("ln_1", "ln_1"), ("ln_2", "ln_2")):
            names += [(f"model/h{i}/{part}/g", f"h.{i}.{of}.weight", False),
                      (f"model/h{i}/{part}/b", f"h.{i}.{of}.bias", False)]
        for part in ("attn/c_attn", "attn/c_proj", "mlp/c_fc", "mlp/c_proj"):
            of = f"h.{i}." + part.replace("/", ".")
            names += [(f"model/h{i}/{part}/w", of + ".weight", True), (f"model/h{i}/{part}/b", of + ".bias", False)]
    return names


def write_ggml(model, path):
    """Convert a GPT-2 checkpoint to the example's format, with matrices in fp16."""
    import numpy
    from safetensors.numpy import load_file
    config = json.loads((model / "config.json").read_text())
    tensors = {name.removeprefix("transformer."): value
               for name, value in load_file(model / "model.safetensors").items()}
    with open(path, "wb") as out:
        out.write(struct.pack("7i", 0x67676D6C, config["vocab_size"], config["n_positions"], config["n_embd"],
                              config["n_head"], config["n_layer"], 1))
        out.write(struct.pack("i", config["vocab_size"]))
        for text in token_texts(config["vocab_size"]):
            out.write(struct.pack("i", len(text)) + text)
        for name, of, transposed in ggml_names(config["n_layer"]):
            data = tensors[of].T if transposed else tensors[of]
            half = name == "model/wte" or transposed
            data = numpy.ascontiguousarray(data, dtype=numpy.float16 if half else numpy.float32)
            out.write(struct.pack("3i", data.ndim, len(name), int(half)))
            out.write(struct.pack(f"{data.ndim}i", *reversed(data.shape)) + name.encode())
            data.tofile(out)


# --- the two sides -------------------------------------------------------------------------------------------


class Sides:
    def __init__(self, args, work):
        self.args, self.work = args, work
        self.bandwidth_tool = work / "bandwidth"
        source = work / "bandwidth.c"
        source.write_text(BANDWIDTH)
        subprocess.run(["cc", "-O3", "-fopenmp", source, "-o", self.bandwidth_tool], check=True)
        self.weft_models, self.ggml_models = {}, {}
        for kind in args.kinds:
            self.prepare(kind)

    def prepare(self, kind):
        quantize, _, ggml = KINDS[kind]
        self.weft_models[kind] = self.args.model
        if quantize:
            self.weft_models[kind] = self.work / kind
            if not self.weft_models[kind].exists():
                run([self.args.weft, "quantize", "--model", str(self.args.model), "--out",
                     str(self.weft_models[kind])] + quantize, 1)
        if not self.args.ggml or not ggml:
            return
        f16 = self.work / "ggml-f16.bin"
        if not f16.exists():
            write_ggml(self.args.model, f16)
        self.ggml_models[kind] = f16 if ggml == "f16" else self.work / f"ggml-{ggml}.bin"
        if not self.ggml_models[kind].exists():
            run([str(self.args.ggml / "bin/gpt-2-quantize"), str(f16), str(self.ggml_models[kind]), ggml], 1)

    def weft(self, kind, threads, batch):
        """Seconds per step, in which each sequence gets one token."""
        out = run([self.args.weft, "generate", "--model", str(self.weft_models[kind]), "--prompt-ids", "84,104",
                   "--greedy", "--ignore-end", "--max-tokens", str(self.args.tokens), "--samples", str(batch),
                   "--threads", str(threads), "--json"] + KINDS[kind][1], threads)
        return json.loads(out)["decode_s"] / (self.args.tokens - 1)

    def ggml(self, kind, threads, batch):
        name = "gpt-2-backend" if batch == 1 else "gpt-2-batched"
        out = run([str(self.args.ggml / "bin" / name), "-m", str(self.ggml_models[kind]), "-p", "Th", "-n",
                   str(self.args.tokens), "-t", str(threads), "--ignore-eos", "--top_k", "1", "-s", "1"]
                  + (["-np", str(batch)] if batch > 1 else []), threads)
        if batch == 1:
            return float(re.search(r"/\s*([\d.]+) ms per token", out).group(1)) / 1e3
        decoded = int(re.search(r"n_decoded =\s*(\d+)", out).group(1))
        return float(re.search(r"predict time =\s*([\d.]+) ms", out).group(1)) / 1e3 / decoded * batch

    def bandwidth(self, threads):
        return float(run([str(self.bandwidth_tool), str(threads)], threads).split()[0])

    def read_bytes(self, kind):
        """Bytes of weights read per step: the checkpoint without position embeddings, in the compute type."""
        config = json.loads((self.args.model / "config.json").read_text())
        total = sum(path.stat().st_size for path in Path(self.weft_models[kind]).glob("*.safetensors"))
        positions = config["n_positions"] * config["n_embd"] * 4
        return (total - positions) / (2 if kind == "bf16" else 1)


def measure(sides, args):
    rows = {}
    for _ in range(args.rounds):
        for threads in args.threads:
            rate = sides.bandwidth(threads)
            rows[threads, "bandwidth"] = max(rate, rows.get((threads, "bandwidth"), 0))
            for kind in args.kinds:
                for batch in (1, args.batch):
                    for side in ("weft", "ggml"):
                        if side == "ggml" and kind not in sides.ggml_models:
                            continue
                        key = (threads, kind, batch, side)
                        rows[key] = min(getattr(sides, side)(kind, threads, batch), rows.get(key, 1e9))
    return rows


def show(rows, sides, args):
    print(f"{platform.machine()}, {args.tokens} tokens, best of {args.rounds} rounds")
    print("| threads | weights, weft / ggml | weft, ms/token | ggml | speedup | bandwidth "
          f"| weft, {args.batch} sequences, tokens/s | ggml | speedup |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for threads in args.threads:
        for kind in args.kinds:
            cells = [str(threads), kind + (f" / {KINDS[kind][2]}" if kind in sides.ggml_models else "")]
            mine, other = rows[threads, kind, 1, "weft"], rows.get((threads, kind, 1, "ggml"))
            share = sides.read_bytes(kind) / mine / 1e9 / rows[threads, "bandwidth"]
            cells += [f"{1e3 * mine:.2f}", f"{1e3 * other:.2f}" if other else "", f"{other / mine:.2f}x" if other else "",
                      f"{100 * share:.0f}%"]
            mine, other = rows[threads, kind, args.batch, "weft"], rows.get((threads, kind, args.batch, "ggml"))
            cells += [f"{args.batch / mine:.0f}", f"{args.batch / other:.0f}" if other else "",
                      f"{other / mine:.2f}x" if other else ""]
            print("| " + " | ".join(cells) + " |")
        print(f"read bandwidth with {threads} thread{'s' if threads > 1 else ''}: {rows[threads, 'bandwidth']:.1f} GB/s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--weft", default=str(ROOT / "build/release/weft"))
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--ggml", type=Path, help="ggml build folder; without it, measure only weft")
    parser.add_argument("--work", type=Path, help="folder for converted models (default: temporary)")
    parser.add_argument("--threads", type=lambda text: [int(n) for n in text.split(",")], default=[1, 2])
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=list(KINDS))
    parser.add_argument("--batch", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = args.work or Path(folder)
        work.mkdir(parents=True, exist_ok=True)
        sides = Sides(args, work)
        rows = measure(sides, args)
        show(rows, sides, args)
    if args.json:
        args.json.write_text(json.dumps({" ".join(map(str, key)) if isinstance(key, tuple) else key: value
                                         for key, value in rows.items()}, indent=1))


main()
