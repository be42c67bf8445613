#!/usr/bin/env python3
"""Compare the forward pass of GPT-2 124M in int8, int4 and fp32 in weft and in ONNX Runtime, on a CPU.

    python bench/compare_int8.py [--weft build/release/weft] [--threads 1,2] [--batches 32,64]

A pass computes the logits of all positions for `batch` sequences of 64 random tokens. weft runs `weft eval`, which also
computes the loss; the time of a pass is the difference between a run of several batches and a run of one, divided by the
number of passes. ONNX Runtime runs torch's export of the transformers model: as is, after quantize_dynamic (int8
weights, dynamically quantized activations), and after MatMulNBitsQuantizer (int4 weights in blocks of 32, accuracy
level 4, which is int8 activations). Both sides have random weights. Each measurement is a separate process, pinned to
one CPU per thread. The sides alternate, and the best of all rounds counts, because other load can only slow a run down.
WEFT_CPU limits weft to an older instruction set; ONNX Runtime cannot be limited.

The ONNX Runtime side needs torch, transformers, onnx and onnxruntime, which are imported only in its own processes;
--no-peer skips it.
"""
import argparse
import json
import os
import platform
import random
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SEQ, VOCAB = 64, 50257


def run(command, threads):
    pinned = ["taskset", "-c", ",".join(str(cpu) for cpu in sorted(os.sched_getaffinity(0))[:threads])] + command
    done = subprocess.run(pinned, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


# --- the ONNX Runtime side, in separate processes ---------------------------------------------------------------


def export(folder):
    import torch
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.shape_inference import quant_pre_process
    from transformers import GPT2Config, GPT2LMHeadModel

    class Scores(torch.nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, ids):
            return self.model(input_ids=ids, use_cache=False).logits

    torch.manual_seed(1)
    config = GPT2Config()
    config._attn_implementation = "eager"
    model = Scores(GPT2LMHeadModel(config).eval())
    ids = torch.zeros(2, SEQ, dtype=torch.long)
    batch = torch.export.Dim("batch", min=1, max=1024)
    torch.onnx.export(model, (ids,), folder / "fp32.onnx", input_names=["ids"], output_names=["scores"],
                      dynamo=True, dynamic_shapes={"ids": {0: batch}}, external_data=True)
    # Constant-folds the transposed output matrix; otherwise it would not be quantized.
    quant_pre_process(folder / "fp32.onnx", folder / "folded.onnx", skip_symbolic_shape=True, save_as_external_data=True)
    quantize_dynamic(folder / "folded.onnx", folder / "int8.onnx", weight_type=QuantType.QInt8)
    quantize_int4(folder)


def quantize_int4(folder):
    import onnx
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
    from onnxruntime.quantization.onnx_model import ONNXModel
    model = ONNXModel(onnx.load(folder / "folded.onnx"))
    model.replace_gemm_with_matmul()  # only MatMul nodes are quantized
    quantizer = MatMulNBitsQuantizer(model.model, bits=4, block_size=32, is_symmetric=True, accuracy_level=4)
    quantizer.process()
    quantizer.model.save_model_to_file(str(folder / "int4.onnx"), True)


def peer_worker(args):
    import numpy
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = args.threads[0]
    session = onnxruntime.InferenceSession(str(args.worker), options, providers=["CPUExecutionProvider"])
    ids = numpy.random.default_rng(1).integers(0, VOCAB, (args.batches[0], SEQ), dtype=numpy.int64)
    times = []
    for _ in range(1 + args.passes):
        start = time.perf_counter()
        session.run(None, {"ids": ids})
        times.append(time.perf_counter() - start)
    print(json.dumps(min(times[1:])))


# --- weft ----------------------------------------------------------------------------------------------------


def weft_models(args, folder):
    """A checkpoint with random weights, and its int8 and int4 versions."""
    fp32 = folder / "fp32"
    if not fp32.exists():
        tokens = folder / "few.u16"
        tokens.write_bytes(struct.pack("<2000H", *[i % 1000 for i in range(2000)]))
        run([args.weft, "train", "--model", "gpt2", "--data", str(tokens), "--format", "u16", "--vocab", str(VOCAB), "--seq",
             str(SEQ), "--batch", "1", "--steps", "1", "--lr", "1e-9", "--out", str(folder / "run"), "--quiet"], 1)
        (folder / "run").rename(fp32)
    models = {"fp32": fp32}
    for kind, options in (("int8", ["--int8-embedding"]), ("int4", ["--bits", "4", "--int4-embedding"])):
        models[kind] = folder / kind
        if not models[kind].exists():
            run([args.weft, "quantize", "--model", str(fp32), "--out", str(models[kind])] + options, 1)
    return models


def weft_tokens(folder, batch, passes):
    path = folder / f"tokens-{batch}.u16"
    draw = random.Random(1)
    count = (batch * (passes + 1) + 1) * SEQ + 1
    path.write_bytes(struct.pack(f"<{count}H", *[draw.randrange(VOCAB) for _ in range(count)]))
    return path


def weft_time(args, model, tokens, threads, batch):
    def seconds(batches):
        out = run([args.weft, "eval", "--model", str(model), "--data", str(tokens), "--format", "u16", "--seq", str(SEQ),
                   "--batch", str(batch), "--max-batches", str(batches), "--threads", str(threads), "--json"], threads)
        return json.loads(out)["runtime_s"]
    return (seconds(1 + args.passes) - seconds(1)) / args.passes


def measure(args, folder):
    models = weft_models(args, folder)
    if args.peer and not (folder / "int4.onnx").exists():
        run([sys.executable, __file__, "--export", str(folder)], len(os.sched_getaffinity(0)))
    best = {}
    for _ in range(args.rounds):
        for threads in args.threads:
            for batch in args.batches:
                tokens = weft_tokens(folder, batch, args.passes)
                for kind in args.kinds:
                    key = (threads, batch, "weft", kind)
                    best[key] = min(best.get(key, 1e9), weft_time(args, models[kind], tokens, threads, batch))
                    if not args.peer:
                        continue
                    key = (threads, batch, "peer", kind)
                    out = run([sys.executable, __file__, "--worker", str(folder / f"{kind}.onnx"), "--threads",
                               str(threads), "--batches", str(batch), "--passes", str(args.passes)], threads)
                    best[key] = min(best.get(key, 1e9), json.loads(out))
    return best


def show(best, args):
    print(f"{platform.machine()}, GPT-2 124M, sequences of {SEQ} tokens, ms per pass, best of {args.rounds} rounds of "
          f"{args.passes} passes")
    columns = [f"weft {kind} | ONNX Runtime {kind} | speedup" for kind in args.kinds]
    print("| threads | batch | " + " | ".join(columns) + " |")
    print("| --- " * (2 + 3 * len(args.kinds)) + "|")
    for threads in args.threads:
        for batch in args.batches:
            cells = [str(threads), str(batch)]
            for kind in args.kinds:
                mine, other = (best.get((threads, batch, side, kind)) for side in ("weft", "peer"))
                cells += [f"{1e3 * mine:.0f}", f"{1e3 * other:.0f}" if other else "",
                          f"{other / mine:.2f}x" if other else ""]
            print("| " + " | ".join(cells) + " |")


def main():
    numbers = lambda text: [int(n) for n in text.split(",")]  # noqa: E731
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--weft", default=str(ROOT / "build/release/weft"))
    parser.add_argument("--threads", type=numbers, default=[1, 2])
    parser.add_argument("--batches", type=numbers, default=[32, 64])
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=["fp32", "int8", "int4"])
    parser.add_argument("--passes", type=int, default=2, help="timed passes per measurement")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--no-peer", dest="peer", action="store_false", help="measure only weft")
    parser.add_argument("--work", type=Path, help="folder for the models (default: temporary)")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--export", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.export:
        return export(args.export)
    if args.worker:
        return peer_worker(args)
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.work or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        best = measure(args, folder)
    show(best, args)
    if args.json:
        args.json.write_text(json.dumps({" ".join(map(str, key)): value for key, value in best.items()}, indent=1))
    return None


if __name__ == "__main__":
    sys.exit(main())
