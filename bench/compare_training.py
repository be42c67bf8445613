#!/usr/bin/env python3
"""Compare the loss curves of weft and PyTorch for the same training run: same initial weights, same data order.

    python bench/compare_training.py --train TOKENS.u16 --val TOKENS.u16 [--model gpt2] [--steps 1000] [--device cuda]
                                     [--batch 8] [--seq 1024] [--lr 6e-4] [--warmup 100] [--out DIR]

--model may be repeated and may contain options: --model gpt2-small --model 'llama-5m --layers 6 --hidden 384'. Both sides
read consecutive windows of the token file (weft: --no-shuffle) and use AdamW with weight decay on matrices only, linear
warm-up, cosine decay to zero, clipping at 1 and no dropout, in bf16 on a GPU (PyTorch: autocast with fp32 weights) and
fp32 on a CPU. transformers loads the initial weights from a weft checkpoint. The script prints the validation losses of
both sides and their largest difference. --out saves all curves as curves.csv and, if gnuplot is installed, as
curves.svg. --draw DIR redraws curves.svg from DIR/curves.csv.

The PyTorch side needs torch and transformers, which are imported only in its own process.
"""
import argparse
import array
import csv
import json
import math
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weft", default=str(ROOT / "build/release/weft"))
    parser.add_argument("--train", help="training token ids, u16")
    parser.add_argument("--val", help="validation token ids, u16")
    parser.add_argument("--draw", help="redraw the plot of a directory with curves.csv")
    parser.add_argument("--model", action="append", help="preset, possibly with options; may be repeated")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seq", type=int, default=1024)
    parser.add_argument("--lr", type=float, default=6e-4)
    parser.add_argument("--warmup", type=int, default=100)
    parser.add_argument("--decay", type=float, default=0.1)
    parser.add_argument("--eval-every", type=int, default=100)
    parser.add_argument("--eval-batches", type=int, default=20)
    parser.add_argument("--weft-options", default="", help="additional options of weft train")
    parser.add_argument("--out", help="directory for curves.csv and curves.svg")
    parser.add_argument("--start", help=argparse.SUPPRESS)  # initial weights, for the PyTorch process
    args = parser.parse_args()
    args.model = args.model or ["gpt2"]
    return args


def options(args, model):
    precision = "bf16" if args.device == "cuda" else "fp32"
    return ["--model", *model.split(), "--format", "u16", "--data", args.train, "--val", args.val, "--no-shuffle", "--batch",
            str(args.batch), "--seq", str(args.seq), "--lr", str(args.lr), "--warmup", str(args.warmup), "--schedule",
            "cosine", "--weight-decay", str(args.decay), "--clip", "1", "--dropout", "0", "--device", args.device,
            "--precision", precision, "--eval-every", str(args.eval_every), "--eval-batches", str(args.eval_batches),
            "--log-every", "1", "--save-every", "0", "--quiet", *args.weft_options.split()]


def run_weft(args, model, out):
    start = time.time()
    subprocess.run([args.weft, "train", *options(args, model), "--steps", str(args.steps), "--out", str(out)], check=True,
                   stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return {"loss": [[m["step"], m["loss"]] for m in lines if "loss" in m],
            "val": [[m["step"], m["val_loss"]] for m in lines if "val_loss" in m], "seconds": time.time() - start}


def rate(args, step):
    """Learning rate of a step (from 1), as in weft."""
    if step <= args.warmup:
        return args.lr * step / args.warmup
    return args.lr * 0.5 * (1 + math.cos(math.pi * (step - args.warmup) / (args.steps + 1 - args.warmup)))


def run_torch(args):
    """Runs in a separate process and prints the curves as JSON."""
    import torch
    from transformers import AutoModelForCausalLM
    torch.set_float32_matmul_precision("high" if args.device == "cuda" else "highest")
    B, T = args.batch, args.seq

    def tokens(path):
        ids = array.array("H")
        with open(path, "rb") as file:
            ids.frombytes(file.read())
        return torch.tensor(ids.tolist(), dtype=torch.long)

    train, val = tokens(args.train), tokens(args.val)
    model = AutoModelForCausalLM.from_pretrained(args.start, attn_implementation="sdpa").float().to(args.device).train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": args.decay},
                                   {"params": others, "weight_decay": 0.0}], lr=args.lr, betas=(0.9, 0.999), eps=1e-8)

    def loss_of(ids, first):
        count = (len(ids) - 1) // T
        rows = [(first + b) % count * T for b in range(B)]
        x = torch.stack([ids[r:r + T] for r in rows]).to(args.device)
        y = torch.stack([ids[r + 1:r + T + 1] for r in rows]).to(args.device)
        with torch.autocast(args.device, dtype=torch.bfloat16, enabled=args.device == "cuda"):
            logits = model(x).logits
        return torch.nn.functional.cross_entropy(logits.float().view(-1, logits.shape[-1]), y.view(-1))

    def evaluate():
        batches = min(args.eval_batches, (len(val) - 1) // T // B)
        with torch.no_grad():
            return sum(loss_of(val, i * B).item() for i in range(batches)) / batches

    curves = {"loss": [], "val": [[0, evaluate()]], "torch": torch.__version__}
    start = time.time()
    for step in range(1, args.steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = rate(args, step)
        loss = loss_of(train, (step - 1) * B)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        curves["loss"].append([step, loss.detach()])
        if step % args.eval_every == 0 or step == args.steps:
            curves["val"].append([step, evaluate()])
    curves["loss"] = [[step, loss.item()] for step, loss in curves["loss"]]
    curves["seconds"] = time.time() - start
    curves["parameters"] = sum(p.numel() for p in model.parameters())
    print(json.dumps(curves))


def compare(args, model):
    """Train a model on both sides. Returns {"weft": curves, "torch": curves}."""
    with tempfile.TemporaryDirectory() as scratch:
        start, run = Path(scratch) / "start", Path(scratch) / "run"
        # Get the initial weights from a run of one step that does not change them.
        subprocess.run([args.weft, "train", *options(args, model), "--lr", "1e-30", "--warmup", "0", "--weight-decay",
                        "0", "--steps", "1", "--out", str(start)], check=True, stdout=subprocess.DEVNULL)
        weft = run_weft(args, model, run)
        done = subprocess.run([sys.executable, *sys.argv, "--start", str(start / "latest")], check=True,
                              stdout=subprocess.PIPE, text=True)
    return {"weft": weft, "torch": json.loads(done.stdout[done.stdout.index("{"):])}


def show(model, curves):
    weft, torch = curves["weft"], curves["torch"]
    theirs, worst = dict(map(tuple, torch["val"])), 0.0
    print(f"\n{model}\n\n| step | weft | PyTorch | difference |\n| --- | --- | --- | --- |")
    for step, loss in weft["val"]:
        off = loss / theirs[step] - 1
        worst = max(worst, abs(off))
        print(f"| {step} | {loss:.4f} | {theirs[step]:.4f} | {100 * off:+.2f}% |")
    print(f"{torch['parameters'] / 1e6:.2f} M parameters; losses agree within {100 * worst:.2f}%; weft "
          f"{weft['seconds']:.0f} s, PyTorch {torch['torch']} {torch['seconds']:.0f} s (eager)", flush=True)


def write(args, results, folder):
    """curves.csv: a row for each model, side and step, with the training loss, the validation loss or both."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "curves.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["model", "side", "step", "tokens", "train_loss", "val_loss"])
        for model, curves in results.items():
            for side in ("weft", "torch"):
                train, val = dict(map(tuple, curves[side]["loss"])), dict(map(tuple, curves[side]["val"]))
                for step in sorted({*train, *val}):
                    rows.writerow([model.split()[0], side, step, step * args.batch * args.seq,
                                   f"{train[step]:.6f}" if step in train else "", f"{val[step]:.6f}" if step in val else ""])


def smoothed(points, width):
    """Means of `width` consecutive losses."""
    return [(points[at][0], sum(loss for _, loss in points[at - width:at]) / width)
            for at in range(width, len(points), width)]


def draw(folder):
    """Plot curves.csv to curves.svg: for each model, training loss as thin lines and validation loss with markers."""
    curves = {}
    with open(folder / "curves.csv", newline="") as file:
        for row in csv.DictReader(file):
            for kind in ("train_loss", "val_loss"):
                if row[kind]:
                    curves.setdefault((row["model"], row["side"], kind), []).append((int(row["tokens"]) / 1e6, float(row[kind])))
    models = list(dict.fromkeys(model for model, _, _ in curves))
    colors = [("#1763a6", "#9ec5e8"), ("#c0421a", "#f2b8a0"), ("#2f7d32", "#a9d6ab")]
    blocks, plots = "", []
    # The first losses would squeeze the rest of the curves.
    top = max(points[1][1] for (_, _, kind), points in curves.items() if kind == "val_loss") + 1.5
    for (model, side, kind), points in sorted(curves.items(), key=lambda item: (item[0][2], item[0][1] == 'torch')):
        name = f"$b{len(plots)}"
        points = smoothed(points, max(1, len(points) // 150)) if kind == "train_loss" else points
        blocks += f"{name} << EOD\n" + "\n".join(f"{x} {y}" for x, y in points) + "\nEOD\n"
        dark, light = colors[models.index(model) % len(colors)]
        title = f"{model}, {'weft' if side == 'weft' else 'PyTorch'}"
        if kind == "train_loss" and side == "weft":
            plots.append(f"{name} with lines lw 2.5 lc rgb '{light}' title '{title}, training'")
        elif kind == "train_loss":
            plots.append(f"{name} with lines lw 0.7 lc rgb '{dark}' title '{title}, training'")
        elif side == "weft":
            plots.append(f"{name} with linespoints lw 2 pt 7 ps 0.6 lc rgb '{dark}' title '{title}, validation'")
        else:
            plots.append(f"{name} with points lw 1.5 pt 6 ps 1.3 lc rgb '{dark}' title '{title}, validation'")
    script = f"""{blocks}
set terminal svg size 800,460 font 'sans,13' background 'white'
set output '{folder / "curves.svg"}'
set xlabel 'tokens (millions)'
set ylabel 'loss'
set yrange [*:{top}]
set grid lc rgb '#dddddd'
set key top right
plot {", ".join(plots)}
"""
    subprocess.run(["gnuplot"], input=script, text=True, check=True)


def main():
    args = parse()
    if args.draw:
        draw(Path(args.draw))
        return
    if not args.train or not args.val:
        sys.exit("--train and --val are required: files of token ids")
    if args.start:
        run_torch(args)
        return
    results = {}
    for model in args.model:
        results[model] = compare(args, model)
        show(model, results[model])
        if args.out:
            write(args, results, Path(args.out))
    if args.out and shutil.which("gnuplot"):
        draw(Path(args.out))


if __name__ == "__main__":
    main()
