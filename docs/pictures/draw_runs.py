#!/usr/bin/env python3
"""Plot metrics of several runs on the same axes with gnuplot.

    python docs/pictures/draw_runs.py OUT.svg --key loss --key val_loss [--mean 20] [--label "loss"] NAME=METRICS.jsonl ...

Each key of each run is a line. Series with fewer than 60 points, such as validation losses, get markers; longer ones are
averaged over --mean points. The first run's lines are wide and pale, so that a coinciding line stays visible.
"""
import argparse
import json
import subprocess

COLORS = ["#9ecae1", "#d95f02", "#a1d99b", "#542788"]


def series(path, key, mean):
    points = [(r["step"], r[key]) for r in map(json.loads, open(path)) if key in r]
    if len(points) < 60:
        return points, True
    means = []
    for i in range(0, len(points), mean):
        part = points[i:i + mean]
        means.append((sum(p[0] for p in part) / len(part), sum(p[1] for p in part) / len(part)))
    return means, False


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("runs", nargs="+", metavar="NAME=METRICS")
    parser.add_argument("--key", action="append", required=True, help="metric to plot; repeatable")
    parser.add_argument("--mean", type=int, default=20, help="points per average")
    parser.add_argument("--label", default="loss", help="y-axis label")
    parser.add_argument("--range", default="", help="y-axis range, such as 4:11")
    args = parser.parse_args()
    data, plots = [], []
    for k, key in enumerate(args.key):
        for r, run in enumerate(args.runs):
            name, path = run.split("=", 1)
            points, few = series(path, key, args.mean)
            block = f"$d{len(data)}"
            data.append(block + " << EOD\n" + "\n".join(f"{x:g} {y:g}" for x, y in points) + "\nEOD\n")
            width = 7 if r == 0 and len(args.runs) > 1 else 1.8
            style = f"linespoints pt {7 if r == 0 else 6} ps {0.9 if r == 0 else 0.6} lw {width}" if few else f"lines lw {width}"
            plots.append(f"{block} with {style} lc rgb '{COLORS[(r + 2 * k) % len(COLORS)]}' title '{name}: {key}' noenhanced")
    script = f"""set terminal svg size 800,460 font 'sans-serif,13' background 'white'
set output '{args.out}'
set xlabel 'step'
set ylabel '{args.label}'
set key top right
set grid lc rgb '#dddddd' lt 1
set border 3 lc rgb '#666666'
set tics nomirror
{f"set yrange [{args.range}]" if args.range else ""}
{''.join(data)}plot {', '.join(plots)}
"""
    subprocess.run(["gnuplot"], input=script, text=True, check=True)


main()
