#!/usr/bin/env python3
"""Compare the encoding speed of weft, tiktoken and Hugging Face tokenizers, and check that their ids are identical.

    cmake --build --preset release --target tokenize
    python bench/compare_tokenizers.py --gpt2 DIR [--bert DIR] [--text FILE] [--megabytes N] [--json FILE]

DIR contains vocab.json and merges.txt (GPT-2) or vocab.txt (BERT). The default text is WikiText-2 and Wikipedia from
../shared/data, if present. Needs: pip install tokenizers tiktoken.

Each program uses one thread and gets the text in memory. weft gets the whole text; the other libraries get the whole
text, its lines, and documents of about 10 kB, through each of their encoding functions, and the fastest combination
counts. Throughput is in MB (10^6 bytes) per second of CPU time over all threads, and of wall-clock time. Each figure is
the best of --repeats. Loading the vocabulary is not timed. Filling the word cache is: weft starts each repeat with an
empty cache, while tokenizers keeps its cache between repeats.
"""
import argparse
import array
import gzip
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared/data"


def default_text(limit):
    parts = []
    train = SHARED / "wikitext-2/train.txt.gz"
    articles = SHARED / "wikipedia/articles.jsonl.gz"
    if not train.exists() or not articles.exists():
        sys.exit(f"no default text in {SHARED}; choose a file with --text")
    with gzip.open(train, "rt", encoding="utf-8", newline="") as file:
        parts.append(file.read(limit // 2))
    size = len(parts[0])
    with gzip.open(articles, "rt", encoding="utf-8") as file:
        for line in file:
            if size >= limit:
                break
            parts.append(json.loads(line)["text"])
            size += len(parts[-1])
    return "\n".join(parts)


def documents(text, size=10_000):
    """Join lines, with their line ends, to documents of about `size` characters."""
    out, have = [], []
    count = 0
    for line in text.splitlines(keepends=True):
        have.append(line)
        count += len(line)
        if count >= size:
            out.append("".join(have))
            have, count = [], 0
    return out + ["".join(have)]


def timed(function, repeats):
    best_cpu = best_wall = float("inf")
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        result = function()
        best_cpu = min(best_cpu, time.process_time() - cpu)
        best_wall = min(best_wall, time.perf_counter() - wall)
    return best_cpu, best_wall, result


def weft(binary, tokenizer, path, repeats):
    with tempfile.NamedTemporaryFile() as ids:
        out = subprocess.run([binary, tokenizer, path, str(repeats), ids.name], check=True, capture_output=True, text=True)
        numbers = json.loads(out.stdout)
        return {"program": "weft", "input": "whole", "cpu_s": numbers["cpu_s"], "wall_s": numbers["wall_s"],
                "ids": array.array("i", open(ids.name, "rb").read()).tolist()}


def rival(name, encoders, text, repeats):
    """Time a library. Each encoder maps a list of texts to a list of id lists. Only the ids of the whole text are
    returned for comparison, because splitting it into lines can change the ids."""
    whole, best = None, None
    for kind, pieces in (("whole", [text]), ("lines", text.splitlines(keepends=True)), ("documents", documents(text))):
        for encode in encoders:
            cpu, wall, ids = timed(lambda: encode(pieces), repeats)
            whole = whole or ids[0]
            if best is None or cpu < best["cpu_s"]:
                best = {"program": name, "input": kind, "cpu_s": cpu, "wall_s": wall}
    return {**best, "ids": whole}


def tokenizers_encoders(tokenizer):
    """One text at a time, and a batch without offsets, which is faster."""
    return [lambda pieces: [tokenizer.encode(piece, add_special_tokens=False).ids for piece in pieces],
            lambda pieces: [e.ids for e in tokenizer.encode_batch_fast(pieces, add_special_tokens=False)]]


def gpt2_rivals(directory):
    import tiktoken
    from tokenizers import Tokenizer, models, pre_tokenizers
    vocab, merges = str(directory / "vocab.json"), str(directory / "merges.txt")
    tokenizer = Tokenizer(models.BPE.from_file(vocab, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    spelling = {chr(b): b for b in printable}
    spelling.update({chr(0x100 + i): b for i, b in enumerate(b for b in range(256) if b not in printable)})
    ranks = {bytes(spelling[c] for c in token): i for token, i in json.load(open(vocab)).items() if token != "<|endoftext|>"}
    pattern = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
    coder = tiktoken.Encoding("gpt2", pat_str=pattern, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": len(ranks)})
    return {"tiktoken": [lambda pieces: [coder.encode_ordinary(piece) for piece in pieces]],
            "tokenizers": tokenizers_encoders(tokenizer)}


def bert_rivals(directory):
    from tokenizers import BertWordPieceTokenizer
    tokenizer = BertWordPieceTokenizer(str(directory / "vocab.txt"), lowercase=True)
    return {"tokenizers": tokenizers_encoders(tokenizer._tokenizer)}


def compare(title, binary, directory, rivals, text, path, repeats):
    size = len(text.encode()) / 1e6
    rows = [weft(binary, directory, path, repeats)]
    rows += [rival(name, encoders, text, repeats) for name, encoders in rivals(directory).items()]
    own = rows[0].pop("ids")
    print(f"{title}, {size:.1f} MB, {len(own)} tokens")
    print(f"  {'':12} {'input':10} {'MB/s (CPU)':>12} {'MB/s (wall)':>13} {'weft speedup':>13}   ids")
    for row in rows:
        same = "" if row["program"] == "weft" else "identical" if row.pop("ids") == own else "DIFFERENT"
        row.update(mb_per_cpu_s=size / row["cpu_s"], mb_per_wall_s=size / row["wall_s"], same_ids=same != "DIFFERENT")
        factor = f"{row['cpu_s'] / rows[0]['cpu_s']:.1f}x"
        print(f"  {row['program']:12} {row['input']:10} {row['mb_per_cpu_s']:12.1f} {row['mb_per_wall_s']:13.1f} {factor:>13}   {same}")
    return {"title": title, "megabytes": size, "tokens": len(own), "rows": rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpt2", type=pathlib.Path, default=SHARED / "tokenizers/gpt2")
    parser.add_argument("--bert", type=pathlib.Path, default=SHARED / "tokenizers/bert-base-uncased")
    parser.add_argument("--text", type=pathlib.Path, help="UTF-8 text file")
    parser.add_argument("--megabytes", type=float, default=20, help="size of the default text (20)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--binary", default=ROOT / "build/release/tokenize")
    parser.add_argument("--json", type=pathlib.Path, help="also write the results to this file")
    args = parser.parse_args()
    if not pathlib.Path(args.binary).exists():
        sys.exit(f"{args.binary} not found; build it with: cmake --build --preset release --target tokenize")
    text = args.text.read_bytes().decode() if args.text else default_text(int(args.megabytes * 1e6))
    results = []
    with tempfile.NamedTemporaryFile("wb") as file:
        file.write(text.encode())
        file.flush()
        for title, directory, rivals in (("GPT-2 BPE", args.gpt2, gpt2_rivals), ("BERT WordPiece", args.bert, bert_rivals)):
            if not directory.exists():
                print(f"{title}: skipped, {directory} not found")
                continue
            try:
                results.append(compare(title, args.binary, directory, rivals, text, file.name, args.repeats))
            except subprocess.CalledProcessError as error:
                print(f"{title}: weft failed: {error.stderr.strip()}")
    if args.json:
        args.json.write_text(json.dumps(results, indent=2) + "\n")
    if any(not row["same_ids"] for result in results for row in result["rows"]):
        sys.exit("ids differ")


if __name__ == "__main__":
    main()
