#!/usr/bin/env python3
"""Compute the loss of unigram and bigram models on a token file, as a baseline for a trained GPT-2.

    python bench/ngrams.py TOKENS.u16 --val-fraction 0.1

TOKENS.u16 contains 16-bit token ids, as read by `--format u16`. Like `weft train --val-fraction`, the script trains on
the first part and reports the loss on the rest, in nats per token. The unigram model uses add-one smoothing, the bigram
model Kneser-Ney smoothing with several discounts.
"""
import argparse
import array
import collections
import math


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokens", help="16-bit little-endian token ids")
    parser.add_argument("--val-fraction", type=float, default=0.1)
    parser.add_argument("--vocab", type=int, default=50257)
    args = parser.parse_args()
    ids = array.array("H")
    with open(args.tokens, "rb") as file:
        ids.frombytes(file.read())
    cut = round(len(ids) * (1 - args.val_fraction))
    train, val = ids[:cut], ids[cut:]
    single, pair = collections.Counter(train), collections.Counter(zip(train, train[1:]))
    loss = -sum(math.log((single[t] + 1) / (len(train) + args.vocab)) for t in val) / len(val)
    own = -sum(n * math.log(n / len(val)) for n in collections.Counter(val).values()) / len(val)
    print(f"{len(train)} training tokens, {len(val)} validation tokens")
    print(f"unigram: {loss:.4f} (entropy of the validation text: {own:.4f})")
    follows = collections.Counter(x for x, _ in pair)
    precedes = collections.Counter(y for _, y in pair)
    kinds = sum(precedes.values()) + 0.5 * args.vocab
    for discount in (0.7, 0.75, 0.8, 0.85, 0.9):
        loss = 0.0
        for x, y in zip(val, val[1:]):
            backed = (precedes[y] + 0.5) / kinds
            seen = single[x]
            p = max(pair[x, y] - discount, 0) / seen + discount * follows[x] / seen * backed if seen else backed
            loss -= math.log(p)
        print(f"bigram, discount {discount}: {loss / (len(val) - 1):.4f}")


main()
