"""Draw one step of a trace.json (weft train --trace) as SVG, in the style of `weft plan --draw`.

    python docs/pictures/draw_trace.py runs/x/trace.json --step 3 --title "1F1B, measured" > picture.svg

Each rank has a compute row, with blocked time in gray, and communication rows below it.
"""
import argparse
import html
import json

CLASSES = {"forward": "f", "backward": "b", "backward-input": "b", "backward-weight": "w", "optimizer": "u", "wait": "p"}
LEFT, WIDTH, ROW, THIN, GAP, TOP = 78, 990, 28, 15, 12, 44
STYLE = """<style>
text { font: 12px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: #1d2733 }
.page { fill: #ffffff } .track { fill: #f5f7f9 }
.f { fill: #8fbcf2 } .b { fill: #f6bd7c } .w { fill: #9ad49a } .u { fill: #cfaee0 } .p { fill: #dde2e7 } .m { fill: #c3d3d6 }
.n { text-anchor: middle } .s { font-size: 10px; text-anchor: middle } .title { font-weight: 600; font-size: 15px }
.faint { fill: #5b6773 }
@media (prefers-color-scheme: dark) {
text { fill: #e7ebef } .page { fill: #14181d } .track { fill: #1a1f25 }
.f { fill: #2f67ad } .b { fill: #a8631b } .w { fill: #3b7d43 } .u { fill: #74478a } .p { fill: #333c46 } .m { fill: #41565a }
.faint { fill: #98a4b0 } }
</style>"""
LEGEND = [("f", "forward"), ("b", "backward"), ("w", "weight gradients"), ("u", "optimizer"), ("p", "waiting"),
          ("m", "communication")]


def class_of(event):
    return CLASSES.get(event["cat"], "m")


def rows_of(events, ranks):
    """(rank, row) -> y offset and height; compute rows are tall, communication rows thin."""
    rows, y = {}, TOP
    for rank in ranks:
        for tid in sorted({e["tid"] for e in events if e["pid"] == rank}):
            rows[rank, tid] = (y, ROW if tid == 0 else THIN)
            y += (ROW if tid == 0 else THIN) + 3
        y += GAP
    return rows, y


def box(event, start, scale, row, out):
    y, height = row
    x, width = LEFT + (event["ts"] - start) * scale, event["dur"] * scale
    name, kind = html.escape(event["name"]), class_of(event)
    out.append(f'<g><title>{name}: {event["dur"] / 1000:.1f} ms</title><rect class="{kind}" x="{x + 0.3:.2f}" '
               f'y="{y}" width="{max(width - 0.6, 0.6):.2f}" height="{height}" rx="2"/>')
    size = 12 if height == ROW else 10
    if width > size * 0.62 * len(name) and kind != "p":
        out.append(f'<text class="{"n" if height == ROW else "s"}" x="{x + width / 2:.2f}" '
                   f'y="{y + height / 2 + size * 0.36:.1f}">{name}</text>')
    out.append("</g>")


def legend(events, y, out):
    x = LEFT
    used = {class_of(e) for e in events}
    for kind, text in LEGEND:
        if kind not in used:
            continue
        out.append(f'<rect class="{kind}" x="{x}" y="{y - 11}" width="13" height="13" rx="3"/>')
        out.append(f'<text x="{x + 19}" y="{y}">{text}</text>')
        x += 44 + 6.6 * len(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace")
    parser.add_argument("--step", type=int, required=True)
    parser.add_argument("--title", default="")
    args = parser.parse_args()
    spans = [e for e in json.load(open(args.trace))["traceEvents"] if e["ph"] == "X" and e["cat"] != "block"]
    steps = [e for e in spans if e["name"] == f"step {args.step}"]
    start, end = min(e["ts"] for e in steps), max(e["ts"] + e["dur"] for e in steps)
    inside = [e for e in spans if e["ts"] >= start and e["ts"] + e["dur"] <= end and e["cat"] != "step"
              and e["name"] != "data"]
    inside.sort(key=lambda e: (e["ts"], -e["dur"]))
    ranks = sorted({e["pid"] for e in inside})
    rows, bottom = rows_of(inside, ranks)
    out = [f'<text class="title" x="16" y="28">{html.escape(args.title)}</text>']
    for rank in ranks:
        y, height = rows[rank, 0]
        out.append(f'<text x="16" y="{y + 18}">rank {rank}</text>')
        out.append(f'<rect class="track" x="{LEFT}" y="{y}" width="{WIDTH}" height="{height}"/>')
    for event in inside:
        box(event, start, WIDTH / (end - start), rows[event["pid"], event["tid"]], out)
    legend(inside, bottom + 10, out)
    out.append(f'<text class="faint" x="16" y="{bottom + 36}">measured: {(end - start) / 1000:.0f} ms</text>')
    height = bottom + 50
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 16} {height}" '
          f'width="{LEFT + WIDTH + 16}" height="{height}" role="img" aria-label="{html.escape(args.title)}">')
    print(STYLE)
    print('<rect class="page" width="100%" height="100%"/>')
    print("\n".join(out))
    print("</svg>")


if __name__ == "__main__":
    main()
