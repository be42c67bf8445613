#!/usr/bin/env python3
"""Writes the data of recipes/needle.json: needles in a haystack, in train.jsonl and val.jsonl.

    python3 recipes/needle.py DIR [--seq 8192] [--train 900] [--val 8] [--seed 1]

Tokens 0 to 63 are hay. A needle is one token (88 to 215) that stands for a key (64 to 79) and its value (80 to 87). Where
a key occurs, the model must predict the value that the needle before gave it, and nothing else. In training, most
needles occur several times, and many questions follow nearby, so that short parts of a sequence teach something. In
validation, each of 16 needles occurs once, at any depth, and the last tokens ask for all.
"""
import argparse
import json
import os
import random

HAY, KEYS, VALUES, IGNORED = 64, 16, 8, -100
FIRST_VALUE, FIRST_NEEDLE = HAY + KEYS, HAY + KEYS + VALUES
PLANTED, ASKED, NEARBY = 16, 24, 64  # per key and sequence, at most; and a distance
QUESTION = 4  # tokens per validation question: key, value, hay


class Sequence:
    def __init__(self, rng, length):
        self.ids = [rng.randrange(HAY) for _ in range(length)]
        self.labels = [IGNORED] * length

    def plant(self, at, key, value):
        self.ids[at] = FIRST_NEEDLE + key * VALUES + value

    def ask(self, at, key, value):
        """Asks where there is only hay."""
        if at + 1 >= len(self.ids) or max(self.ids[at : at + 2]) >= HAY:
            return
        self.ids[at : at + 2] = HAY + key, FIRST_VALUE + value
        self.labels[at + 1] = FIRST_VALUE + value


def training(rng, length):
    """Distances are uniform on a logarithmic scale, except for the one question about a needle that occurs once."""
    sequence = Sequence(rng, length)
    values = [rng.randrange(VALUES) for _ in range(KEYS)]
    places = [rng.sample(range(length), int(PLANTED ** rng.random())) for _ in range(KEYS)]
    for key, value in enumerate(values):
        for at in places[key]:
            sequence.plant(at, key, value)
    for key, value in enumerate(values):
        if len(places[key]) == 1:
            sequence.ask(rng.randrange(places[key][0] + 1, length + 1), key, value)
            continue
        for _ in range(ASKED):
            reach = NEARBY if rng.random() < 0.5 else length
            sequence.ask(rng.choice(places[key]) + int(reach ** rng.random()), key, value)
    return sequence


def validation(rng, length):
    sequence = Sequence(rng, length)
    end = length - KEYS * QUESTION
    for key, at in enumerate(rng.sample(range(end), KEYS)):
        value = rng.randrange(VALUES)
        sequence.plant(at, key, value)
        sequence.ask(end + key * QUESTION, key, value)
    return sequence


def write(path, sequences):
    with open(path, "w") as file:
        for sequence in sequences:
            file.write(json.dumps(vars(sequence), separators=(",", ":")) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--seq", type=int, default=8192)
    parser.add_argument("--train", type=int, default=900)
    parser.add_argument("--val", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    os.makedirs(args.out, exist_ok=True)
    write(os.path.join(args.out, "train.jsonl"), (training(rng, args.seq) for _ in range(args.train)))
    write(os.path.join(args.out, "val.jsonl"), (validation(rng, args.seq) for _ in range(args.val)))


main()
