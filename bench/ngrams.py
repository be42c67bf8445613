#!/usr/bin/env python3
"""What models of single tokens and of pairs reach on a text, beside which a trained GPT-2 is to be held.

    python bench/ngrams.py TOKENS.u16 --val-fraction 0.1

TOKENS.u16 is what `--format u16` reads: token ids of 16 bits. The first part of the tokens gives the counts and the last the loss, in nats a token, as `weft train --val-fraction`
cuts them. Single tokens: one is added to each count. Pairs: Kneser and Ney's smoothing, for several discounts."""
import argparse
import array
import collections
import math


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokens", help="token ids, 16 bits each, little-endian")
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
    print(f"{len(train)} tokens to count, {len(val)} to predict")
    print(f"single tokens {loss:.4f}; by the predicted text's own counts {own:.4f}")
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
        print(f"pairs, discount {discount}: {loss / (len(val) - 1):.4f}")


main()
