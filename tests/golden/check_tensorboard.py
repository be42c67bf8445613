#!/usr/bin/env python3
"""Check the files that runs record with the readers they are written for.

    python tests/golden/check_tensorboard.py --weft build/release/weft

TensorBoard's reader must return every number of metrics.jsonl from the event files, under its name and at its step. A
run that was killed and resumed must show each step once, with the values after resuming. trace.json must have what
chrome://tracing and Perfetto expect: complete events with times, named rows, and for each pipeline stage the forward and
backward passes in 1F1B order. Phases must add up to the step time and to the run time.

The test suite includes this script if WEFT_PYTHON names a Python with tensorboard, and skips it otherwise.
"""
import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError:
    sys.exit(77)

JOB = ["--model", "gpt2-tiny", "--layers", "4", "--hidden", "32", "--heads", "2", "--seq", "32", "--data", "self",
       "--batch", "8", "--micro-batch", "2", "--threads", "1", "--eval-every", "4", "--eval-samples", "8", "--quiet"]


def train(weft, *options):
    subprocess.run([weft, "train", *options], check=True, stdout=subprocess.DEVNULL)


def lines_of(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def numbers_of(value, name=""):
    """Yield the numbers of a metrics line with their TensorBoard names, such as phases_ms/compute; skip lists and null."""
    if isinstance(value, dict):
        for key, member in value.items():
            yield from numbers_of(member, f"{name}/{key}" if name else key)
    elif isinstance(value, (int, float)):
        yield name, value


def check_events(run):
    """Event files contain exactly the numbers of metrics.jsonl."""
    events = EventAccumulator(str(run), size_guidance={"scalars": 0})
    events.Reload()
    expected = {}
    for line in lines_of(run):
        for name, value in numbers_of(line):
            if name != "step":
                expected.setdefault(name, {})[line["step"]] = value
    tags = events.Tags()["scalars"]
    assert sorted(tags) == sorted(expected), sorted(set(tags) ^ set(expected))
    count = 0
    for tag in tags:
        points = events.Scalars(tag)
        assert [point.step for point in points] == sorted(expected[tag]), tag
        for point in points:
            value = expected[tag][point.step]
            assert abs(point.value - value) <= 1e-6 * abs(value), (tag, point, value)
            count += 1
    return len(tags), count


def check_trace(path, stages, micros):
    """Rows have names, and each stage's row follows the 1F1B schedule."""
    trace = json.loads(path.read_text())
    events = trace["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert sorted(names) == list(range(stages)), names
    for event in events:
        assert event["ph"] in "XM" and isinstance(event["pid"], int), event
        if event["ph"] == "X":
            assert event["ts"] >= 0 and event["dur"] >= 0 and event["name"], event
    steps = sorted({event["args"]["step"] for event in events if event.get("cat") == "step"})
    assert steps, "no step events"
    spans = [(event["pid"], event["ts"], event["ts"] + event["dur"]) for event in events if event.get("cat") == "step"]
    for stage in range(stages):
        assert f"stage {stage}" in names[stage], names
        row = sorted((event for event in events if event["ph"] == "X" and event["pid"] == stage and
                      event["cat"] in ("forward", "backward") and
                      any(pid == stage and start <= event["ts"] < end for pid, start, end in spans)), key=lambda event: event["ts"])
        for one, next_one in zip(row, row[1:]):
            assert one["ts"] + one["dur"] <= next_one["ts"] + 0.002, (one, next_one)
        ahead = min(stages - stage, micros)
        order = [f"F{i}" for i in range(ahead)]
        for i in range(micros):
            order += [f"B{i}"] + ([f"F{i + ahead}"] if i + ahead < micros else [])
        assert [event["name"] for event in row] == order * len(steps), (stage, [event["name"] for event in row])
    return len(events)


def check_sums(run):
    """Phases add up to the step time and to the run time; utilization is between 0 and 1."""
    for line in lines_of(run):
        if "step_ms" not in line:
            continue
        assert abs(sum(line["phases_ms"].values()) / line["step_ms"] - 1) < 1e-6, line
        assert 0 < line["utilization"] <= 1, line
    summary = json.loads((run / "summary.json").read_text())
    for part in [summary] + summary["ranks"]:
        phases = {key: value for key, value in part["phases"].items() if not key.startswith("wait_")}
        assert abs(sum(phases.values()) / summary["runtime_s"] - 1) < 0.02, phases
        assert all(value >= 0 for value in phases.values()), phases
    assert abs(sum(summary["phases"].values()) / summary["runtime_s"] - 1) < 1e-6, summary["phases"]
    return summary


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weft", required=True)
    weft = str(Path(parser.parse_args().weft).resolve())
    with tempfile.TemporaryDirectory() as folder:
        one, two = Path(folder) / "one", Path(folder) / "two"
        train(weft, *JOB, "--steps", "12", "--save-every", "6", "--out", str(one))
        tags, count = check_events(one)
        print(f"one rank: TensorBoard reads {count} values of {tags} metrics")
        # As if killed before the last checkpoint: the steps after the previous checkpoint are recorded again.
        checkpoints = sorted((one / "checkpoints").iterdir(), key=lambda path: int(path.name.split("-")[1]))
        assert len(checkpoints) == 2, checkpoints
        shutil.rmtree(checkpoints[1])
        (one / "latest").unlink()
        train(weft, "--resume", "--out", str(one), "--steps", "14", "--quiet")
        tags, count = check_events(one)
        check_sums(one)
        print(f"resumed: {count} values of {tags} metrics")
        train(weft, *JOB, "--steps", "6", "--ranks", "2", "--pp", "2", "--trace", "--trace-steps", "3", "--out", str(two))
        check_events(two)
        summary = check_sums(two)
        assert 0 < summary["bubble"] < 1, summary["bubble"]
        print(f"two stages: {check_trace(two / 'trace.json', 2, 4)} trace events")


if __name__ == "__main__":
    main()
