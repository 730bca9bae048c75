"""Files that mean harm, and bytes with faults in them."""

import gzip
import io
import pickle
import random
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

TOKENS = (b"\0", b'"', b"\r", b"\xff", b"\n\n", b",", b"nan", b"1e999", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"9" * 400)
SHAPES = (
    "(2, 2)",
    "(True, 4)",
    "(2, -2)",
    f"({10**18}, 2)",
    "(2, 2.0)",
    "(" * 300 + ")" * 300,
    "2",
    "[2, 2]",
    "()",
    f"({'1,' * 70})",
)
KINDS = (
    "'<f8'",
    "'O'",
    "'<m8[s]'",
    "'<M8[D]'",
    "'V3'",
    "'<c16'",
    "[('a', '<f8')]",
    "'<U5'",
    "'S5'",
    "1",
    "'zz'",
    "('<f4', (2,))",
)
CELLS = (b"7" * 5000, b"x" * 200_000, b"y" * 3_000_000, b"\0", b'"', b'a"b"', b'"a"b', b"\xff", b"1,2,3", b"\r")
HEADERS = (b"a,y", b"a,y\0", b"a\0,y", b"a,a,y", b",y", b"y", b'"a,y', b"a;y", b"a" * 500_000 + b",y", b"a,y,")
WIDE = [b",".join(b"c%d" % column for column in range(5000)), b",".join([b"1"] * 5000)]


class Trap:
    """Where this is unpickled, a file appears outside."""

    def __reduce__(self) -> Any:
        return open, ("../../outside/unpickled", "w")


def write(rng: random.Random, path: Path) -> dict[str, Any]:
    """Write a file, a folder, a link to itself or nothing at all; return how to ask `read_table` for it."""
    if rng.random() < 0.15:
        rng.choice((Path.touch, Path.mkdir, lambda path: path.symlink_to(path.name), lambda path: None))(path)
    elif path.suffix == ".npy":
        path.write_bytes(_array(rng))
    elif path.suffix == ".npz":
        members = {"x.npy": array_bytes(np.ones((4, 3))), "y.npy": array_bytes(np.array(["a", "b", "a", ""]))}
        pack(path, members | {rng.choice(("x.npy", "y.npy", "ids.npy", "../../outside/x.npy")): _array(rng)})
        if rng.random() < 0.2:  # each member says that it is encrypted
            packed = path.read_bytes()
            for start in (b"PK\x03\x04\x14\0", b"PK\x01\x02\x14\x03\x14\0"):
                packed = packed.replace(start + b"\0", start + b"\1")
            path.write_bytes(packed)
    elif path.suffix == ".parquet":
        names = rng.sample(("y", "x", "z", "", "__index_level_0__"), rng.randint(0, 4))
        pq.write_table(pa.table({name: _column(rng) for name in names}), path)
    else:
        data = _text(rng).replace(b",", b"\t" if ".tsv" in path.name else b",")
        path.write_bytes(gzip.compress(data, 1) if path.suffix == ".gz" else data)
    return {"labels": ("y",)} if rng.random() < 0.5 and not path.suffix.startswith(".np") else {}


def changed(rng: random.Random, data: bytes) -> bytes:
    """Return bytes with a few faults."""
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(data) + 1)
        part, rest = data[at : at + rng.choice((1, 1, 4, 50))], data[at:]
        flipped = bytes(byte ^ 1 << rng.randrange(8) for byte in part)
        token = rng.choice(TOKENS)
        new = rng.choice((flipped, rng.randbytes(len(part)), b"", part + part, token, token + part))
        data = data[:at] + new + (b"" if rng.random() < 0.05 else rest[len(part) :])
    return data


def pack(path: Path, members: dict[str, bytes]) -> None:
    """Write an archive as numpy's are."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def array_bytes(array: Any, version: tuple[int, int] | None = None) -> bytes:
    """Return the content of an .npy file."""
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asarray(array), version)
    return stream.getvalue()


def _array(rng: random.Random) -> bytes:
    arrays = (
        np.array(["a\ud800", "b", "c", "d"]),
        np.array(["7" * 5000, "b", "c", "d"]),
        np.array([[np.nan, 1, 2], [np.inf, 1, 2], [1, 2, 3], [1e300, 1, 1]]),
        np.array([2**63, 2**64 - 1, 5, 6], "u8"),
        np.zeros(rng.choice(((0, 3), (4, 3, 0), ()))),
    )
    order = rng.choice(("False", "1", "None"))
    text = f"{{'descr': {rng.choice(KINDS)}, 'fortran_order': {order}, 'shape': {rng.choice(SHAPES)}, }}\n"
    header = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()
    return rng.choice((header + bytes(64), header + pickle.dumps(Trap()), array_bytes(rng.choice(arrays))))


def _column(rng: random.Random) -> Any:
    not_utf8 = pa.StringArray.from_buffers(2, pa.py_buffer(np.array([0, 1, 2], "i4")), pa.py_buffer(b"a\xff"))
    large, wide = pa.array([2**64 - 1, 2**63], pa.uint64()), pa.array([10**20, -1], pa.decimal128(38, 3))
    others = ([["cat"], ["cat", None]], [[["deep"]], None], [{"a": 1}, None], [b"\xff", b""], ["7" * 5000, "\0"])
    numbers = ([float("nan"), float("inf")], [1.5, 2.5], [None, None])
    return rng.choice((not_utf8, large, wide, pa.array([0, 1], pa.timestamp("s")), *map(pa.array, (*others, *numbers))))


def _text(rng: random.Random) -> bytes:
    head, cell, rows = rng.choice(HEADERS), rng.choice(CELLS), [b"1.5,cat", b"2.5,", b"3.5,dog"]
    in_cells = ([b"a,y", b"2.5," + cell, *rows], [b"a,y", *rows, cell + b",dog"], [head, cell])
    return rng.choice((b"\n", b"\r\n")).join(rng.choice(([head, *rows], [head, *rows], WIDE, *in_cells)))
