#!/usr/bin/env python3
"""Writes the files of tests/checkpoint/torch, as torch.save does, for tests/checkpoint/test_torch.c.

    pip install torch
    python tests/checkpoint/make_torch.py
"""

import os
import pathlib
from collections import OrderedDict

import torch


class Call:
    """An object whose pickle calls a function."""

    def __reduce__(self):
        return (os.system, ("exit 1",))


def state():
    base = torch.arange(10, dtype=torch.float32) / 4
    return OrderedDict(
        plain=torch.arange(6, dtype=torch.float32).reshape(2, 3) / 4,
        turned=torch.arange(6, dtype=torch.float32).reshape(3, 2).t() / 4,
        part=base[3:7],
        shared=base[4:6],
        bf16=torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
        fp16=torch.tensor([0.25], dtype=torch.float16),
        fp64=torch.tensor([[0.5]], dtype=torch.float64),
        empty=torch.zeros(0, 3),
        scalar=torch.tensor(7.0),
        ids=torch.arange(3),
        mask=torch.tensor([True, False]),
        parameter=torch.nn.Parameter(torch.ones(2)),
    )


def main():
    folder = pathlib.Path(__file__).parent / "torch"
    torch.save(state(), folder / "state.bin")
    torch.save(state(), folder / "old.bin", _use_new_zipfile_serialization=False)
    torch.save({"epoch": 3, "state_dict": {"plain": torch.ones(2)}}, folder / "nested.bin")
    torch.save(torch.nn.Linear(3, 2).state_dict(), folder / "module.bin")
    torch.save({"plain": Call()}, folder / "call.bin")
    torch.save([1, 2], folder / "list.bin")


if __name__ == "__main__":
    main()
