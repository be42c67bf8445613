#!/usr/bin/env python3
"""Compare tokenizer training: `weft tokenizer train` and Hugging Face's trainer on the same text.

    python bench/learn_tokenizer.py --data FILE... [--mb 100] [--vocab 32000] [--kind bpe] [--threads 2] [--json FILE]

The corpus repeats the documents of the files (plain or .gz; .jsonl: the field "text") until it has --mb megabytes. In
each repetition, one word in thirty gets two letters swapped, because a real corpus of that size has more distinct words;
the script prints how many there are. Both sides read the corpus as JSON Lines in a separate process with --threads
threads. Times include reading and writing. For BPE, both sides must produce the same merges.

--skip-hf measures only weft. The Hugging Face side needs the package `tokenizers`.
"""
import argparse
import gzip
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def documents(paths):
    for path in paths:
        with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8") as file:
            if ".jsonl" in path:
                yield from (json.loads(line)["text"] for line in file)
            else:
                yield file.read()


def altered(text, chance):
    words = text.split(" ")
    for i, word in enumerate(words):
        if len(word) > 3 and chance.random() < 1 / 30:
            at = chance.randrange(1, len(word) - 1)
            words[i] = word[:at] + word[at + 1] + word[at] + word[at + 2:]
    return " ".join(words)


def write_corpus(paths, size, out):
    """Write the corpus. Returns its size in bytes and the number of distinct space-separated words."""
    texts, chance, written, repeated, words = list(documents(paths)), random.Random(1), 0, False, set()
    with open(out, "w", encoding="utf-8") as file:
        while written < size:
            for text in texts:
                text = altered(text, chance) if repeated else text
                file.write(json.dumps({"text": text}) + "\n")
                words.update(text.split())
                written += len(text.encode())
                if written >= size:
                    break
            repeated = True
    return written, len(words)


def timed(command, threads):
    """Run a command and return its wall-clock time, CPU time and peak memory."""
    start = time.perf_counter()
    environment = {**os.environ, "RAYON_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads),
                   "TOKENIZERS_PARALLELISM": "true"}
    child = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"{command[0]} failed")
    return dict(seconds=round(time.perf_counter() - start, 2), cpu_seconds=round(usage.ru_utime + usage.ru_stime, 2),
                peak_mb=round(usage.ru_maxrss / 1024))


def learn_hf(corpus, kind, vocab, out):
    """The Hugging Face side, in a separate process."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
    if kind == "bpe":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(vocab_size=vocab, min_frequency=2, special_tokens=["<|endoftext|>"],
                                      show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    else:
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(vocab_size=vocab, min_frequency=2, limit_alphabet=1000, show_progress=False,
                                            special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    with open(corpus, encoding="utf-8") as file:
        tokenizer.train_from_iterator((json.loads(line)["text"] for line in file), trainer)
    tokenizer.save(out)


def merges_of(path):
    return [tuple(pair.split(" ")) if isinstance(pair, str) else tuple(pair)
            for pair in json.loads(Path(path).read_text())["model"].get("merges", [])]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weft", type=Path, default=ROOT / "build/release/weft")
    parser.add_argument("--data", nargs="+", required=True)
    parser.add_argument("--mb", type=int, default=100)
    parser.add_argument("--vocab", type=int, default=32000)
    parser.add_argument("--kind", choices=["bpe", "wordpiece"], default="bpe")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--skip-hf", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        corpus = f"{work}/corpus.jsonl"
        size, words = write_corpus(arguments.data, arguments.mb * 1_000_000, corpus)
        print(f"{size / 1e6:.1f} MB of text, {words} distinct words, {arguments.kind} with {arguments.vocab} tokens, "
              f"{arguments.threads} thread{'s' if arguments.threads > 1 else ''}")
        result = dict(bytes=size, words=words, weft=timed(
            [arguments.weft, "tokenizer", "train", "--kind", arguments.kind, "--vocab", str(arguments.vocab), "--data",
             corpus, "--out", f"{work}/weft", "--threads", str(arguments.threads)], arguments.threads))
        if not arguments.skip_hf:
            result["hf"] = timed([sys.executable, __file__, "--side", corpus, arguments.kind, str(arguments.vocab),
                                  f"{work}/hf.json"], arguments.threads)
            if arguments.kind == "bpe":
                result["same"] = merges_of(f"{work}/weft/tokenizer.json") == merges_of(f"{work}/hf.json")
        for side in ("weft", "hf"):
            if side in result:
                print("{:5} wall {seconds:8.2f} s, CPU {cpu_seconds:8.2f} s, peak memory {peak_mb:6d} MB".format(
                    side, **result[side]))
        if "same" in result:
            print("identical merges" if result["same"] else "merges differ")
        if arguments.json:
            arguments.json.write_text(json.dumps(result, indent=2) + "\n")
    return 0 if result.get("same", True) else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--side"]:
        learn_hf(sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])
    else:
        sys.exit(main())
