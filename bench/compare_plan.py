#!/usr/bin/env python3
"""Compare planned with measured step times and memory: the accuracy tables of docs/planning.md, in Markdown.

    python bench/compare_plan.py [--weft build/release/weft] [--clusters DIR] [--refit]

The measurements are of weft on an H200 (bf16 and fp8, with and without dropout; most are in docs/performance.md) and of a
study (Megatron on two V100 systems; batch is per replica). --clusters DIR reads the cluster
files from DIR instead of using the built-in ones.

--refit fits the figures in FITTED to the study's times, starting from the cluster files in the source tree, and prints
them. Then it leaves out each row, and each group of rows, fits the figures to the others and predicts the rows left out:
the errors to expect for layouts that nobody measured. It takes half a minute.
"""
import argparse
import copy
import json
import math
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# cluster, model, layers, hidden size, heads, GPUs, tensor-parallel size, batch per replica, recompute, measured ms (None: out
# of memory; 0: unknown) and GiB
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
    ("dgx2-v100", "bert-large", 64, 2304, 24, 16, 8, 8, False, 0, 27.0),
]
# Layers, tensor-parallel size and batch of the rows that the cluster files' memory ("held") was fitted to
MEMORY_FITTED = [(24, 1, 32), (72, 8, 8), (24, 1, 14), (72, 8, 2)]

# Options of a precision, by its name in the table
PRECISIONS = {
    "bf16": ["--precision", "bf16"],
    "fp8": ["--precision", "fp8"],
    "fp8, delayed scaling": ["--precision", "fp8", "--fp8-scaling", "delayed"],
    "fp8, delayed scaling, `--fp8-head`": ["--precision", "fp8", "--fp8-scaling", "delayed", "--fp8-head"],
}

# title, model, task, batch, sequence length, precision, dropout, measured ms and GiB, note on the page
H200 = [
    ("GPT-2 124M, 32 x 1024", "gpt2", "lm", 32, 1024, "bf16", 0.1, 55.8, 11.9, ""),
    ("GPT-2 124M, 32 x 1024", "gpt2", "lm", 32, 1024, "bf16", 0, 53.7, 11.9, ""),
    ("GPT-2 124M, 32 x 1024", "gpt2", "lm", 32, 1024, "fp8", 0, 48.7, 10.6, "a"),
    ("GPT-2 124M, 32 x 1024", "gpt2", "lm", 32, 1024, "fp8, delayed scaling, `--fp8-head`", 0.1, 43.6, 11.3, ""),
    ("GPT-2 124M, 32 x 1024", "gpt2", "lm", 32, 1024, "fp8, delayed scaling, `--fp8-head`", 0, 42.2, 11.3, ""),
    ("GPT-2 355M, 16 x 1024", "gpt2-medium", "lm", 16, 1024, "bf16", 0, 73.8, 18.3, ""),
    ("GPT-2 355M, 16 x 1024", "gpt2-medium", "lm", 16, 1024, "fp8", 0, 67.0, 16.5, "a"),
    ("GPT-2 355M, 16 x 1024", "gpt2-medium", "lm", 16, 1024, "fp8, delayed scaling, `--fp8-head`", 0, 58.2, 17.2, ""),
    ("GPT-2 774M, 16 x 1024", "gpt2-large", "lm", 16, 1024, "bf16", 0, 155.3, 35.1, ""),
    ("GPT-2 774M, 16 x 1024", "gpt2-large", "lm", 16, 1024, "fp8", 0, 130.5, 31.7, "a"),
    ("GPT-2 774M, 16 x 1024", "gpt2-large", "lm", 16, 1024, "fp8, delayed scaling, `--fp8-head`", 0, 116.5, 32.4, ""),
    ("GPT-2 355M, 4 x 128", "gpt2-medium", "lm", 4, 128, "bf16", 0.1, 6.5, 5.8, ""),
    ("GPT-2 355M, 12 x 128", "gpt2-medium", "lm", 12, 128, "bf16", 0.1, 10.65, 6.7, ""),
    ("BERT-base, span head, 32 x 384", "bert-base", "span", 32, 384, "bf16", 0.1, 16.5, 5.0, ""),
    ("BERT-base, span head, 32 x 384", "bert-base", "span", 32, 384, "bf16", 0, 15.7, 5.0, ""),
    ("BERT-base, span head, 32 x 384", "bert-base", "span", 32, 384, "fp8, delayed scaling", 0.1, 13.7, 5.1, ""),
    ("BERT-base, span head, 32 x 384", "bert-base", "span", 32, 384, "fp8, delayed scaling", 0, 13.2, 5.1, ""),
    ("BERT-large, MLM and NSP, 32 x 512", "bert-large", "mlm", 32, 512, "bf16", 0.1, 67.9, 17.6, ""),
    ("BERT-large, MLM and NSP, 32 x 512", "bert-large", "mlm", 32, 512, "bf16", 0, 64.7, 17.6, ""),
    ("BERT-large, MLM and NSP, 32 x 512", "bert-large", "mlm", 32, 512, "fp8", 0, 58.7, 17.3, "a"),
    ("BERT-large, MLM and NSP, 32 x 512", "bert-large", "mlm", 32, 512, "fp8, delayed scaling", 0.1, 54.7, 17.3, ""),
    ("BERT-large, MLM and NSP, 32 x 512", "bert-large", "mlm", 32, 512, "fp8, delayed scaling", 0, 51.8, 17.3, ""),
    ("TinyLlama 1.1B, 4 x 2048", "tinyllama-1.1b", "lm", 4, 2048, "bf16", 0, 108.8, 25.2, "a"),
    ("Llama 110M, 16 x 2048", "llama-110m", "lm", 16, 2048, "bf16", 0, 56.3, 10.8, "a"),
]


def plan(args, cluster, options):
    name = str(Path(args.clusters) / (cluster + ".json")) if args.clusters else cluster
    command = [args.weft, "plan", "--cluster", name, "--json"] + [str(option) for option in options]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def percent(planned, measured):
    return f"{100 * (planned / measured - 1):+.1f}%"


def print_row(cells):
    print("|" + "".join(f" {cell} |" if cell != "" else " |" for cell in cells))


def study_options(row):
    cluster, model, layers, hidden, heads, ranks, tp, batch, recompute = row[:9]
    dp = ranks // tp
    return ["--ranks", ranks, "--dp", dp, "--tp", tp, "--model", model, "--layers", layers, "--hidden", hidden, "--heads",
            heads, "--seq", 1024 if model == "gpt2" else 512, "--batch", batch * dp, "--micro-batch", batch,
            "--recompute", "block" if recompute else "none", "--precision", "fp16"]


def study(args):
    print("| GPUs | model | layers, hidden | tp | batch | recompute | measured, ms | planned | | memory, GiB | planned |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    errors, memory_errors = [], {True: [], False: []}
    for row in STUDY:
        cluster, model, layers, hidden, _, ranks, tp, batch, recompute, ms, memory = row
        result = plan(args, cluster, study_options(row))
        step, fits = result["step_ms"], result["fits"]
        held = result["memory_saving"] / 2**30
        if memory:
            memory_errors[(layers, tp, batch) in MEMORY_FITTED].append(abs(held / memory - 1))
        if ms:
            errors.append(abs(step / ms - 1))
        cells = [f"{ranks}, {'PCIe' if 'pcie' in cluster else 'DGX-2'}", "GPT-2" if model == "gpt2" else "BERT",
                 f"{layers}, {hidden}", tp, batch, "yes" if recompute else "no", "OOM" if ms is None else ms or "",
                 f"{step:.0f}" if fits else "OOM", percent(step, ms) if ms else "", memory or "",
                 f"{held:.1f}"]
        print_row(cells)
    print("\n" + summary("time", errors))
    print(summary("memory, fitted rows", memory_errors[True]))
    print(summary("memory, rows withheld from the fit", memory_errors[False]))


def summary(what, errors):
    return f"{what}: {len(errors)} rows, mean error {100 * sum(errors) / len(errors):.1f}%, largest {100 * max(errors):.1f}%"


def h200(args):
    print("| workload | dropout | measured, ms | planned | | memory, GiB | planned |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for title, model, task, batch, seq, precision, dropout, ms, memory, note in H200:
        result = plan(args, "h200", ["--model", model, "--task", task, "--batch", batch, "--micro-batch", batch,
                                     "--seq", seq, "--dropout", dropout] + PRECISIONS[precision])
        step = result["step_ms"]
        print_row([f"{title}, {precision}{f' ({note})' if note else ''}", dropout, ms,
                   f"{step:.1f}" if step >= 10 else f"{step:.2f}", percent(step, ms), memory,
                   f"{result['memory_per_rank']['total'] / 2**30:.1f}"])


# ---- fitting ----

SYSTEMS = ("dgx2-v100", "v100-pcie-8")
MEASURED = [row for row in STUDY if row[9]]
ROW_SD = 0.03  # spread of measured times around the model

# title, clusters, keys in the cluster file, prior value, standard deviation of its logarithm
FITTED = [
    ("GEMM share", SYSTEMS, ["device.product_share.fp16"], 0.7, 0.2),
    ("memory share", SYSTEMS, ["device.memory_share"], 0.75, 0.2),
    ("score share", SYSTEMS, ["software.score_share"], 0.5, 0.3),
    ("link share, DGX-2", SYSTEMS[:1], ["links.within.share"], 0.8, 0.2),
    ("link share, PCIe", SYSTEMS[1:], ["links.within.share"], 0.5, 0.3),
    ("RNG stall, s", SYSTEMS, ["software.causal.forward.stall_s", "software.bidirectional.forward.stall_s",
                               "software.recompute_stall_s"], 0.0011, 0.4),
    ("update stall, s", SYSTEMS, ["software.update_stall_s"], 0.0005, 0.5),
    ("tensor wait, s", SYSTEMS, ["software.tensor_wait_s"], 0.0002, 1.0),
]

# How rows are grouped when they are left out.
GROUPS = [
    ("one row", lambda row: row[:9]),
    ("model family", lambda row: "GPT-2" if row[1] == "gpt2" else "BERT"),
    ("model size", lambda row: f"{row[2]} layers"),
    ("system", lambda row: row[0]),
    ("layout", lambda row: "replicas only" if row[6] == 1 else "tensor parallel"),
]


class Fit:
    """Least squares of the logarithms of measured over planned times, with priors: Gauss-Newton with a numerical
    Jacobian. Its parameters are the logarithms of the figures."""

    def __init__(self, args, folder):
        self.args, self.folder, self.count = args, Path(folder), 0
        source = Path(args.clusters or Path(__file__).resolve().parent.parent / "clusters")
        self.clusters = {name: json.loads((source / f"{name}.json").read_text()) for name in SYSTEMS}
        self.priors = [math.log(figure[3]) for figure in FITTED]

    def errors(self, point):
        """log(planned / measured) of every measured row."""
        clusters = copy.deepcopy(self.clusters)
        for (_, names, keys, _, _), value in zip(FITTED, point):
            for name in names:
                for key in keys:
                    at = clusters[name]
                    for part in key.split("."):
                        at = at[part]
                    at["value"] = min(math.exp(value), 1) if "share" in key else math.exp(value)
        self.count += 1
        folder = self.folder / str(self.count)
        folder.mkdir()
        for name, cluster in clusters.items():
            (folder / f"{name}.json").write_text(json.dumps(cluster))
        args = argparse.Namespace(weft=self.args.weft, clusters=folder)
        with ThreadPoolExecutor(2) as pool:
            plans = list(pool.map(lambda row: plan(args, row[0], study_options(row)), MEASURED))
        return [math.log(result["step_ms"] / row[9]) for result, row in zip(plans, MEASURED)]

    def jacobian(self, point, errors):
        step, columns = 0.03, []
        for i in range(len(point)):
            moved = self.errors(point[:i] + [point[i] + step] + point[i + 1:])
            columns.append([(after - before) / step for after, before in zip(moved, errors)])
        return columns

    def advance(self, point, errors, columns, rows):
        size = len(point)
        matrix = [[sum(columns[i][r] * columns[j][r] for r in rows) / ROW_SD**2 for j in range(size)] for i in range(size)]
        vector = [-sum(columns[i][r] * errors[r] for r in rows) / ROW_SD**2 for i in range(size)]
        for i, figure in enumerate(FITTED):
            matrix[i][i] += 1 / figure[4]**2
            vector[i] += (self.priors[i] - point[i]) / figure[4]**2
        return [value + max(-0.5, min(0.5, change)) for value, change in zip(point, solve(matrix, vector))]


def solve(matrix, vector):
    """Gauss-Jordan elimination; the matrix is positive definite."""
    rows = [row + [value] for row, value in zip(matrix, vector)]
    for i, pivot in enumerate(rows):
        for r, row in enumerate(rows):
            if r != i:
                factor = row[i] / pivot[i]
                rows[r] = [a - factor * b for a, b in zip(row, pivot)]
    return [row[-1] / row[i] for i, row in enumerate(rows)]


def refit(args):
    with tempfile.TemporaryDirectory() as folder:
        fit = Fit(args, folder)
        every, point = range(len(MEASURED)), list(fit.priors)
        for _ in range(3):
            errors = fit.errors(point)
            point = fit.advance(point, errors, fit.jacobian(point, errors), every)
        errors = fit.errors(point)
        columns = fit.jacobian(point, errors)
        print("| figure | prior | fitted |\n| --- | --- | --- |")
        for figure, value in zip(FITTED, point):
            print_row([figure[0], figure[3], f"{math.exp(value):.3g}"])
        print("\n| left out | mean error | largest | |\n| --- | --- | --- | --- |")
        sizes = [abs(math.expm1(error)) for error in errors]
        print_row(["nothing", f"{100 * sum(sizes) / len(sizes):.1f}%", f"{100 * max(sizes):.1f}%", ""])
        for title, group_of in GROUPS:
            leave_out(fit, title, group_of, point, errors, columns)


def leave_out(fit, title, group_of, point, errors, columns):
    out = []
    for group in dict.fromkeys(map(group_of, MEASURED)):
        kept = [r for r, row in enumerate(MEASURED) if group_of(row) != group]
        other, now = point, errors
        for _ in range(2):
            other = fit.advance(other, now, columns, kept)
            now = fit.errors(other)
        out += [(math.expm1(now[r]), MEASURED[r]) for r in range(len(MEASURED)) if r not in kept]
    sizes = [abs(error) for error, _ in out]
    worst, row = max(out, key=lambda pair: abs(pair[0]))
    text = f"{100 * worst:+.1f}%: {'GPT-2' if row[1] == 'gpt2' else 'BERT'}, {row[2]} layers, tp {row[6]}, batch {row[7]}"
    print_row([title, f"{100 * sum(sizes) / len(sizes):.1f}%", f"{100 * max(sizes):.1f}%",
               text + (", recompute" if row[8] else "")])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", default=str(Path(__file__).resolve().parent.parent / "build/release/weft"))
    parser.add_argument("--clusters", help="folder with cluster files")
    parser.add_argument("--refit", action="store_true", help="fit the study's figures and predict rows left out")
    args = parser.parse_args()
    if args.refit:
        refit(args)
        return
    h200(args)
    print()
    study(args)


if __name__ == "__main__":
    main()
