#!/usr/bin/env python3
"""Times weft's encoding beside tiktoken's and Hugging Face tokenizers', one thread each, on the same text in the
same run, and checks that the ids are the same.

    cmake --build --preset release --target tokenize
    python bench/compare_tokenizers.py --gpt2 DIR [--bert DIR] [--text FILE] [--megabytes N] [--json FILE]

DIR holds vocab.json and merges.txt (GPT-2) or vocab.txt (BERT). Without --text, English from wikitext-2 and
wikipedia in ../shared/data is taken, where that is there. Needs: pip install tokenizers tiktoken.

Each program gets the text already in memory, as it likes it best: weft the whole of it; the others the whole, its
lines and documents of about 10 kB, of which their fastest
counts, through encode and through encode_batch_fast. Rates are megabytes (10^6) per second of CPU time
of all threads; wall time stands beside it. Each figure is the best of --repeats. Loading a vocabulary is not
counted; filling a cache of words is, since each repeat of weft starts with an empty one, while tokenizers keeps its
cache from one repeat to the next.
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
        sys.exit(f"{SHARED} holds no text; name a file with --text")
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
    """Lines put together to about so many characters; lines keep their ends."""
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


def rival(name, ways, text, repeats):
    """Each of `ways` takes a list of texts and returns a list of lists of ids. Only the ids of the whole text are
    compared: lines cut apart may have others."""
    whole, best = None, None
    for kind, pieces in (("whole", [text]), ("lines", text.splitlines(keepends=True)), ("documents", documents(text))):
        for encode in ways:
            cpu, wall, ids = timed(lambda: encode(pieces), repeats)
            whole = whole or ids[0]
            if best is None or cpu < best["cpu_s"]:
                best = {"program": name, "input": kind, "cpu_s": cpu, "wall_s": wall}
    return {**best, "ids": whole}


def tokenizers_ways(tokenizer):
    """One text after the other, and all at once without offsets, which is faster."""
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
            "tokenizers": tokenizers_ways(tokenizer)}


def bert_rivals(directory):
    from tokenizers import BertWordPieceTokenizer
    tokenizer = BertWordPieceTokenizer(str(directory / "vocab.txt"), lowercase=True)
    return {"tokenizers": tokenizers_ways(tokenizer._tokenizer)}


def compare(title, binary, directory, rivals, text, path, repeats):
    size = len(text.encode()) / 1e6
    rows = [weft(binary, directory, path, repeats)]
    rows += [rival(name, ways, text, repeats) for name, ways in rivals(directory).items()]
    own = rows[0].pop("ids")
    print(f"{title}, {size:.1f} MB, {len(own)} tokens")
    print(f"  {'':12} {'input':10} {'MB/s of CPU':>12} {'MB/s of wall':>13} {'weft is':>8}   ids")
    for row in rows:
        same = "" if row["program"] == "weft" else "same" if row.pop("ids") == own else "DIFFERENT"
        row.update(mb_per_cpu_s=size / row["cpu_s"], mb_per_wall_s=size / row["wall_s"], same_ids=same != "DIFFERENT")
        factor = f"{row['cpu_s'] / rows[0]['cpu_s']:.1f}x"
        print(f"  {row['program']:12} {row['input']:10} {row['mb_per_cpu_s']:12.1f} {row['mb_per_wall_s']:13.1f} {factor:>8}   {same}")
    return {"title": title, "megabytes": size, "tokens": len(own), "rows": rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpt2", type=pathlib.Path, default=SHARED / "tokenizers/gpt2")
    parser.add_argument("--bert", type=pathlib.Path, default=SHARED / "tokenizers/bert-base-uncased")
    parser.add_argument("--text", type=pathlib.Path, help="a file of UTF-8")
    parser.add_argument("--megabytes", type=float, default=20, help="of the default text (20)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--binary", default=ROOT / "build/release/tokenize")
    parser.add_argument("--json", type=pathlib.Path, help="write the figures here too")
    args = parser.parse_args()
    if not pathlib.Path(args.binary).exists():
        sys.exit(f"{args.binary} is not there: cmake --build --preset release --target tokenize")
    text = args.text.read_bytes().decode() if args.text else default_text(int(args.megabytes * 1e6))
    results = []
    with tempfile.NamedTemporaryFile("wb") as file:
        file.write(text.encode())
        file.flush()
        for title, directory, rivals in (("GPT-2 BPE", args.gpt2, gpt2_rivals), ("BERT WordPiece", args.bert, bert_rivals)):
            if not directory.exists():
                print(f"{title}: {directory} is not there, left out")
                continue
            try:
                results.append(compare(title, args.binary, directory, rivals, text, file.name, args.repeats))
            except subprocess.CalledProcessError as error:
                print(f"{title}: weft says: {error.stderr.strip()}")
    if args.json:
        args.json.write_text(json.dumps(results, indent=2) + "\n")
    if any(not row["same_ids"] for result in results for row in result["rows"]):
        sys.exit("some ids differ")


if __name__ == "__main__":
    main()
