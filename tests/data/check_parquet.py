#!/usr/bin/env python3
"""Compares weft's rows of Parquet tables with pyarrow's, for all combinations of compression, page version,
dictionaries, encodings and page sizes, or writes the small tables of tests/data/parquet.

    pip install pyarrow
    cmake --build build/release --target print_rows
    python tests/data/check_parquet.py build/release/tests/print_rows [--write tests/data/parquet]
"""

import argparse
import itertools
import json
import math
import pathlib
import random
import subprocess
import tempfile

import pyarrow as pa
import pyarrow.parquet as pq

WORDS = ["", "one", "two words", "näïve — 中文 😀", 'quote " \\ slash', "line\nbreak\ttab", "\u0000zero", "x" * 300]


def strings(rng, rows, missing):
    return [None if missing and rng.random() < 0.2 else rng.choice(WORDS) + str(rng.randrange(40)) for _ in range(rows)]


def tables(rows, seed):
    """Named tables that cover the types, with and without missing values."""
    rng = random.Random(seed)

    def maybe(make, share=0.2):
        return [None if rng.random() < share else make() for _ in range(rows)]

    def message():
        return {"role": rng.choice(["user", "assistant"]), "content": rng.choice(WORDS)}

    yield "text", pa.table({"text": strings(rng, rows, False)})
    yield "optional", pa.table({"text": strings(rng, rows, True), "id": maybe(lambda: rng.randrange(-(2**31), 2**31))})
    required = pa.schema([pa.field("text", pa.string(), nullable=False), pa.field("n", pa.int64(), nullable=False)])
    yield "required", pa.table({"text": strings(rng, rows, False), "n": list(range(rows))}, schema=required)
    types = {
        "bool": (pa.bool_(), lambda: rng.random() < 0.5),
        "i8": (pa.int8(), lambda: rng.randrange(-128, 128)),
        "u8": (pa.uint8(), lambda: rng.randrange(256)),
        "i32": (pa.int32(), lambda: rng.randrange(-(2**31), 2**31)),
        "u32": (pa.uint32(), lambda: rng.randrange(2**32)),
        "i64": (pa.int64(), lambda: rng.randrange(-(2**63), 2**63)),
        "u64": (pa.uint64(), lambda: rng.randrange(2**63)),
        "f32": (pa.float32(), lambda: rng.randrange(-999, 999) / 8),
        "f64": (pa.float64(), lambda: rng.choice([rng.gauss(0, 1e9), 0.1, math.inf, math.nan])),
        "large": (pa.large_string(), lambda: rng.choice(WORDS)),
        "null": (pa.null(), lambda: None),
    }
    yield "types", pa.table({name: pa.array(maybe(make), kind) for name, (kind, make) in types.items()})
    lists = {
        "ids": (pa.list_(pa.int32()), lambda: [rng.randrange(50000) for _ in range(rng.randrange(9))]),
        "long": (pa.list_(pa.int64()), lambda: [rng.randrange(-5, 2**40) for _ in range(rng.choice([0, 1, 700]))]),
        "texts": (pa.list_(pa.string()), lambda: [rng.choice([*WORDS, None]) for _ in range(rng.randrange(4))]),
        "nested": (
            pa.list_(pa.list_(pa.int16())),
            lambda: [rng.choice([None, [], [1, None], [2, 3, 4]]) for _ in range(rng.randrange(4))],
        ),
    }
    yield "lists", pa.table({name: pa.array(maybe(make), kind) for name, (kind, make) in lists.items()})
    kind = pa.struct([("role", pa.string()), ("content", pa.string())])
    structs = {
        "messages": (pa.list_(kind), lambda: [message() for _ in range(rng.randrange(4))]),
        "one": (kind, message),
        "deep": (
            pa.struct([("a", pa.list_(pa.struct([("b", pa.list_(pa.int32())), ("c", pa.string())])))]),
            lambda: {"a": [{"b": rng.choice([None, [], [1, 2]]), "c": rng.choice([None, "c"])} for _ in range(rng.randrange(3))]},
        ),
        "map": (pa.map_(pa.string(), pa.int32()), lambda: [(str(i), rng.choice([None, i])) for i in range(rng.randrange(3))]),
    }
    yield "structs", pa.table({name: pa.array(maybe(make), kind) for name, (kind, make) in structs.items()})


def plain(value):
    """What weft prints: numbers that are not finite are null, maps are lists of objects."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        pairs = value and all(isinstance(inner, tuple) for inner in value)
        return [{"key": inner[0], "value": inner[1]} if pairs else plain(inner) for inner in value]
    return value


def printed(program, path, *fields):
    found = subprocess.run([program, path, *fields], capture_output=True, check=False)
    if found.returncode:
        raise SystemExit(f"{path}: {found.stderr.decode()}")
    return [json.loads(line) for line in found.stdout.decode().split("\n")[:-1]]


def compare(program, path, what, fields=()):
    wanted = [plain(row) for row in pq.ParquetFile(path).read(columns=list(fields) or None).to_pylist()]
    found = printed(program, path, *fields)
    for number, (ours, theirs) in enumerate(zip(found, wanted)):
        if ours != theirs:
            raise SystemExit(f"{what}: row {number + 1}: {ours} instead of {theirs}")
    if len(found) != len(wanted):
        raise SystemExit(f"{what}: {len(found)} rows instead of {len(wanted)}")



def encodings(table):
    """Encodings of each column without a dictionary, for tables without nested columns."""
    if any(pa.types.is_nested(field.type) for field in table.schema):
        return
    text = [field.name for field in table.schema if pa.types.is_string(field.type) or pa.types.is_large_string(field.type)]
    whole = [field.name for field in table.schema if pa.types.is_integer(field.type)]
    truth = [field.name for field in table.schema if pa.types.is_boolean(field.type)]
    for kind in ["DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"]:
        yield {**dict.fromkeys(text, kind), **dict.fromkeys(whole, "DELTA_BINARY_PACKED"), **dict.fromkeys(truth, "RLE")}


def check(program, folder):
    count = 0
    for rows, seed in [(0, 1), (1, 2), (7, 3), (3000, 4)]:
        for name, table in tables(rows, seed):
            choices = itertools.product(["none", "snappy", "gzip", "zstd"], ["1.0", "2.0"], [True, False, *encodings(table)], [100, 1 << 20])
            for codec, version, dictionary, page in choices:
                path = folder / "table.parquet"
                explicit = isinstance(dictionary, dict)
                pq.write_table(
                    table,
                    path,
                    compression=codec,
                    data_page_version=version,
                    use_dictionary=not explicit and dictionary,
                    column_encoding=dictionary if explicit else None,
                    data_page_size=page,
                    write_batch_size=64,
                    row_group_size=1000,
                    write_page_checksum=bool(count % 2),
                )
                what = f"{name}, {rows} rows, {codec}, pages {version}, dictionary {dictionary}, page {page}"
                compare(program, path, what)
                compare(program, path, what, [table.schema.names[-1]])
                count += 1
    print(f"{count} tables agree with pyarrow {pa.__version__}")


def write(folder):
    """A few small tables for the tests, each with its rows as JSON lines."""
    folder.mkdir(parents=True, exist_ok=True)
    options = {
        "text": {"compression": "snappy"},
        "optional": {"compression": "zstd", "data_page_version": "2.0"},
        "types": {"compression": "gzip", "data_page_version": "2.0"},
        "lists": {"compression": "none", "data_page_size": 64, "write_batch_size": 2},
        "structs": {"compression": "snappy", "use_dictionary": False, "row_group_size": 4},
    }
    for name, table in tables(6, 5):
        if name == "lists":
            table = table.drop(["long"])
        for delta in (False, True) if name == "optional" else (False,):
            extra = {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY", "id": "DELTA_BINARY_PACKED"}}
            path = folder / (name + ("-delta" if delta else "") + ".parquet")
            if name not in options:
                continue
            pq.write_table(table, path, store_schema=False, **options[name], **(extra if delta else {}))
            rows = "".join(json.dumps(plain(row)) + "\n" for row in table.to_pylist())
            path.with_suffix(".jsonl").write_text(rows)
    ids = pa.table({"note": ["a", "b"], "ids": pa.array([[1, 2, 3], [4, 5]], pa.list_(pa.int64()))})
    pq.write_table(ids, folder / "ids.parquet", store_schema=False)
    turns = [[{"role": "user", "content": "Warp?"}, {"role": "assistant", "content": text}] for text in ("Weft!", "Yarn.")]
    chats = pa.table({"messages": turns, "source": ["a", None]})
    pq.write_table(chats, folder / "chats.parquet", store_schema=False, compression="snappy")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", help="print_rows")
    parser.add_argument("--write", type=pathlib.Path, metavar="FOLDER", help="write the tables instead")
    arguments = parser.parse_args()
    if arguments.write:
        write(arguments.write)
        return
    with tempfile.TemporaryDirectory() as folder:
        check(arguments.program, pathlib.Path(folder))


if __name__ == "__main__":
    main()
