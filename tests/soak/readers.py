"""Generated files for every reader: valid ones, ones with some bytes changed, and hostile ones.

Whoever wrote a file knows its cells. Where bytes were changed, a plain reader (csv, numpy, pyarrow as they come) tells
them. What `read_table` accepts must be these cells and no others.
"""

import csv
import gzip
import io
import pickle
import random
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from soak.children import Verdict
from surelabel.data.tables import Table, read_table
from surelabel.errors import SurelabelError

Cells = dict[str, list[Any]]
"""The cells of a table by column, as they were written."""
ENDINGS = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet", ".npz", ".npy")
NAMES = ("width", "größe", "a,b", 'q"q', "x y", "=1+1", "$x_1$", "two\nlines", "日本", "#", "'", "0", "NaN", "x\\y")
LABELS = ("cat", "dog", "Ünï", "x,y", 'q"q', "=1+1", "$10_$20", "two\nlines", "-3", "3.0", "0007", "NA", "None", "a b")
TOKENS = (b"\0", b'"', b"\r", b"\xff", b"\n\n", b",", b"nan", b"1e999", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"9" * 400)
TYPES = ("f2", "f4", "f8", ">f4", ">f8", "g", "i1", "i2", ">i4", "i8", "u1", "u2", "u8", "?")


class Request(NamedTuple):
    """What is asked of `read_table`, by its arguments."""

    labels: tuple[str, ...] = ()
    id_column: str | None = None
    separator: str | None = None
    none: str | None = None
    unlabeled: str | None = None


def check(rng: random.Random, folder: Path) -> Verdict:
    """Write a file, read it and compare."""
    ending = rng.choice(ENDINGS)
    path, kind = folder / f"table{ending}", rng.choices(("valid", "changed", "hostile"), (4, 4, 2))[0]
    if kind == "hostile":
        cells, request = None, hostile(rng, path)
    else:
        cells, request = draw(rng, ending)
        write(rng, path, cells, request)
    if kind == "changed":
        change(rng, path)
        cells = None
    area = f"files: {ending.removesuffix('.gz')[1:]}"
    options = {name: value for name, value in request._asdict().items() if value is not None}
    if (labels := path.with_name("labels.npy")).exists():
        options["labels_path"] = labels
    try:
        table = read_table(path, **options)
    except Exception as error:
        fault = "differences" if kind == "valid" else "" if isinstance(error, SurelabelError) else "unexpected"
        return Verdict(area, "refused", fault, f"{kind}: {type(error).__name__}: {error} {options}")
    try:
        known = cells or plainly_read(path)
        found = different(table, known, request)
    except Exception as error:
        found = f"a plain reader fails: {type(error).__name__}: {error}"
    return Verdict(area, "accepted", "differences" if found else "", f"{kind}: {found} {options}" if found else "")


# Cells that are known.


def draw(rng: random.Random, ending: str) -> tuple[Cells, Request]:
    """Return the cells of a table, and how to ask for them."""
    rows, names = rng.choice((1, 2, 3, 9, 40)), rng.sample(NAMES, 5)
    is_text, is_numpy = ending.endswith((".csv", ".tsv", ".gz")), ending in (".npz", ".npy")
    cells: Cells = {}
    if is_numpy:
        names, values = ["y", "ids", "x"], _numbers(rng, rows * rng.randint(1, 3), TYPES)
        cells["x"] = values.reshape(rows, -1)
    else:
        for name in names[2 : rng.randint(4, 5)]:
            cells[name] = _numbers(rng, rows, TYPES[1:3] if is_text else TYPES[1:3] + TYPES[6:]).tolist()
    form = rng.choice(("none", "single", "single", "single", "multi", "cell"))
    request = Request()
    if form == "multi":
        labels = ("y",) if is_numpy else (names[0], "second")
        for name in labels:
            shape = (rows, 2) if is_numpy else rows
            cells[name] = np.array(rng.choices((0, 1, -1), k=2 * rows))[: np.prod(shape)].reshape(shape)
        request = Request(() if is_numpy else labels)
    elif form != "none":
        separator, none = ("|", rng.choice((None, "nothing"))) if form == "cell" else (None, None)
        missing = rng.choice((None, "", "?", "?")) if not is_numpy else ""
        drawn = [_label(rng, separator, none) if rng.random() < 0.6 else missing for _ in range(rows)]
        request = Request((names[0],), None, separator, none, "?" if missing == "?" else None)
        cells[names[0]] = np.array(drawn) if is_numpy else drawn
    if rng.random() < 0.5 and ending != ".npy":
        cells[names[1]] = _ids(rng, rows, is_numpy)
        request = request._replace(id_column=names[1])
    if ending == ".npy":
        request = request._replace(labels=())
    return cells, request


def _numbers(rng: random.Random, number: int, types: tuple[str, ...]) -> Any:
    kind = np.dtype(rng.choice(types))
    if kind.kind == "f":
        return np.array([rng.choice((rng.gauss(0, 3), 0.5, -0.0, 1e-3, 60000)) for _ in range(number)]).astype(kind)
    if kind.kind == "b":
        return np.array([rng.random() < 0.5 for _ in range(number)])
    # Numbers that follow each other are row numbers; these do not.
    return np.array([17 * (7 - place) % 97 for place in range(number)]).astype(kind)


def _label(rng: random.Random, separator: str | None, none: str | None) -> str:
    if separator is None:
        return rng.choice(LABELS)
    chosen = rng.sample(LABELS[:6], rng.randint(0, 3))
    names = [rng.choice(("", "", "?")) + name for name in chosen]
    return separator.join(names) or rng.choice((separator, none or separator))


def _ids(rng: random.Random, rows: int, is_numpy: bool) -> Any:
    start = rng.choice((0, -5, 10**15, 2**62))
    whole = [start + 3 * row * row for row in range(rows)]
    if rng.random() < 0.5:
        return np.array([2**63 + row for row in range(rows)], "u8") if is_numpy and rng.random() < 0.2 else whole
    names = [f"{rng.choice(LABELS)}/{row}" for row in range(rows)]
    return np.array(names) if is_numpy else names


# Files.


def write(rng: random.Random, path: Path, cells: Cells, request: Request) -> None:
    """Write cells to a file in one of the forms that its kind has."""
    if path.suffix == ".npy":
        _save(rng, path, cells["x"])
        if "y" in cells:
            _save(rng, path.with_name("labels.npy"), cells["y"])
    elif path.suffix == ".npz":
        rng.choice((np.savez, np.savez_compressed))(path, **cells)
    elif path.suffix == ".parquet":
        arrays = {
            name: _arrow(rng, values, name in (*request.labels, request.id_column)) for name, values in cells.items()
        }
        pq.write_table(pa.table(arrays), path, row_group_size=rng.choice((1, 5, 1000)))
    else:
        data = _text(rng, cells, "\t" if ".tsv" in path.name else ",")
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def _save(rng: random.Random, path: Path, array: Any) -> None:
    order = np.asfortranarray if rng.random() < 0.3 else np.asarray
    np.lib.format.write_array(path.open("wb"), order(array), version=rng.choice(((1, 0), (2, 0), (3, 0))))


def _arrow(rng: random.Random, values: Any, is_name: bool) -> Any:
    column = pa.array(values)
    if is_name and pa.types.is_string(column.type):
        return rng.choice((column, column.cast(pa.large_string()), column.dictionary_encode()))
    return column


def _text(rng: random.Random, cells: Cells, delimiter: str) -> bytes:
    stream = io.StringIO(newline="")
    quoting = rng.choice((csv.QUOTE_MINIMAL, csv.QUOTE_ALL))
    writer = csv.writer(stream, delimiter=delimiter, quoting=quoting, lineterminator=rng.choice(("\n", "\r\n")))
    writer.writerow(cells)
    writer.writerows(zip(*cells.values(), strict=True))
    text = rng.choice(("", "", "\ufeff", "\n")) + stream.getvalue() + rng.choice(("", "", "\n"))
    return (text if rng.random() < 0.8 else text.rstrip("\r\n")).encode()


def change(rng: random.Random, path: Path) -> None:
    """Change some bytes: of the file, of a gzipped text, or of the first array in an archive, which is then whole."""
    inner = rng.random() < 0.6
    if path.suffix == ".gz" and inner:
        path.write_bytes(gzip.compress(changed(rng, gzip.decompress(path.read_bytes()))))
    elif path.suffix == ".npz" and inner:
        with zipfile.ZipFile(path) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        chosen = rng.choice(list(members))
        # Most bytes of a small array are its header's.
        archive_of(path, members | {chosen: changed(rng, members[chosen])})
    else:
        path.write_bytes(changed(rng, path.read_bytes()))


def changed(rng: random.Random, data: bytes) -> bytes:
    """Return bytes with a few faults."""
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(data) + 1)
        to = min(len(data), at + rng.choice((1, 1, 4, 50)))
        part = data[at:to]
        flipped = bytes(byte ^ 1 << rng.randrange(8) for byte in part)
        random_bytes = rng.randbytes(len(part))
        new = rng.choice((flipped, random_bytes, b"", part + part, rng.choice(TOKENS), rng.choice(TOKENS) + part))
        data = data[:at] + new + (b"" if rng.random() < 0.05 else data[to:])
    return data


def archive_of(path: Path, members: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


class Trap:
    """Where this is unpickled, a file appears outside."""

    def __reduce__(self) -> Any:
        return open, ("../../outside/unpickled", "w")


def array_bytes(array: Any) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asarray(array))
    return stream.getvalue()


def header_bytes(rng: random.Random) -> bytes:
    """Return an array whose header says something that it should not."""
    shapes = (
        "(True, 4)",
        "(2, -2)",
        f"({10**18}, 2)",
        "(2, 2.0)",
        "(" * 300 + ")" * 300,
        "2",
        "(2, 2), 'x': 1",
        "[2, 2]",
    )
    kinds = ("'<f8'", "'O'", "'<m8[s]'", "'<M8[D]'", "'V3'", "'<c16'", "[('a', '<f8')]", "'<U5'", "'S5'", "1", "'zz'")
    text = f"{{'descr': {rng.choice(kinds)}, 'fortran_order': {rng.choice(('False', '1', 'None'))}, "
    text = f"{text}'shape': {rng.choice((*shapes, '(2, 2)'))}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + min(len(text), 65535).to_bytes(2, "little") + text.encode() + bytes(64)


def hostile(rng: random.Random, path: Path) -> Request:
    """Write a file that means harm, or nothing at all."""
    label, kind = rng.choice(("y", None)), path.suffix
    request = Request(() if label is None or kind in (".npz", ".npy") else (label,))
    if rng.random() < 0.15:
        rng.choice((Path.touch, Path.mkdir, lambda path: path.symlink_to(path.name), lambda path: None))(path)
    elif kind == ".npy":
        path.write_bytes(_hostile_array(rng))
    elif kind == ".npz":
        members = {f"{name}.npy": array_bytes(np.ones((4, 3))[:, : 1 if name == "y" else 3]) for name in ("x", "y")}
        members[rng.choice(("x.npy", "y.npy", "ids.npy", "../../outside/x.npy"))] = _hostile_array(rng)
        archive_of(path, members)
        if rng.random() < 0.2:  # says that it is encrypted
            data = path.read_bytes()
            path.write_bytes(
                data.replace(b"PK\x03\x04\x14\0\0", b"PK\x03\x04\x14\0\1").replace(
                    b"PK\x01\x02\x14\x03\x14\0\0", b"PK\x01\x02\x14\x03\x14\0\1"
                )
            )
    elif kind == ".parquet":
        pq.write_table(pa.table(_hostile_columns(rng)), path)
    else:
        data = _hostile_text(rng).replace(b",", b"\t" if ".tsv" in path.name else b",")
        path.write_bytes(gzip.compress(data, 1) if kind == ".gz" else data)
    return request


def _hostile_array(rng: random.Random) -> bytes:
    makers: tuple[Callable[[], bytes], ...] = (
        lambda: header_bytes(rng),
        lambda: header_bytes(rng),
        lambda: (
            b"\x93NUMPY\x01\x00\x76\x00"
            + array_bytes(np.zeros(1))[10:128].replace(b"<f8'", b"|O' ")
            + pickle.dumps(Trap())
        ),
        lambda: pickle.dumps(Trap()),
        lambda: array_bytes(np.array(["a\ud800", "b", "c", "d"])),
        lambda: array_bytes(np.array(["7" * 5000, "b", "c", "d"])),
        lambda: array_bytes(np.array([[np.nan, 1, 2], [np.inf, 1, 2], [1, 2, 3], [1e300, 1, 1]])),
        lambda: array_bytes(np.array([2**63, 2**64 - 1, 5, 6], "u8")),
        lambda: array_bytes(np.zeros((0, 3))),
        lambda: array_bytes(np.zeros((4, 3, 0))),
        lambda: array_bytes(np.float64(3)),
    )
    return rng.choice(makers)()


def _hostile_columns(rng: random.Random) -> dict[str, Any]:
    not_utf8 = pa.StringArray.from_buffers(2, pa.py_buffer(np.array([0, 1, 2], "i4")), pa.py_buffer(b"a\xff"))
    columns: tuple[Any, ...] = (
        not_utf8,
        pa.array([["cat"], ["cat", None]]),
        pa.array([[["deep"]], None]),
        pa.array([{"a": 1}, None]),
        pa.array([10**20, -1], pa.decimal128(38, 3)),
        pa.array([0, 1], pa.timestamp("s")),
        pa.array([b"\xff", b""]),
        pa.array([2**64 - 1, 2**63], pa.uint64()),
        pa.array(["7" * 5000, "\0"]),
        pa.array([float("nan"), float("inf")]),
        pa.nulls(2),
        pa.array([1.5, 2.5]),
    )
    names = rng.sample(("y", "x", "z", "", "__index_level_0__"), rng.randint(0, 4))
    return {name: rng.choice(columns) for name in names}


def _hostile_text(rng: random.Random) -> bytes:
    cell = rng.choice(
        (b"7" * 5000, b"x" * 200_000, b"y" * 3_000_000, b"\0", b'"', b'a"b"', b'"a"b', b"\xff", b"1,2,3", b"\r")
    )
    head = rng.choice(
        (b"a,y", b"a,y\0", b"a\0,y", b"a,a,y", b",y", b"y", b'"a,y', b"a;y", b"a" * 500_000 + b",y", b"a,y,")
    )
    wide = b",".join(b"c%d" % column for column in range(5000)) + b"\n" + b",".join([b"1"] * 5000)
    rows = [b"1.5,cat", b"2.5,", b"3.5,dog"]
    lines = (
        [head, *rows],
        [head, *rows],
        [b"a,y", b"2.5," + cell, *rows],
        [b"a,y", *rows, cell + b",dog"],
        [head, cell],
        [wide],
    )
    return rng.choice((b"\n", b"\r\n")).join(rng.choice(lines))


# What a file says.


def plainly_read(path: Path) -> Cells:
    """Return the cells of a file by a plain reader."""
    if path.suffix == ".npy":
        labels = path.with_name("labels.npy")
        return {"x": np.load(path)} | ({"y": np.load(labels)} if labels.exists() else {})
    if path.suffix == ".npz":
        with np.load(path) as archive:
            return {name: archive[name] for name in archive.files if name in ("x", "y", "ids")}
    if path.suffix == ".parquet":
        columns = pq.read_table(path).to_pydict()
        return {name: cells for name, cells in columns.items() if not name.startswith("__index_level_")}
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    text = data.decode("utf-8-sig", errors="surrogateescape")
    before = csv.field_size_limit(1 << 30)
    try:
        rows = [
            row
            for row in csv.reader(io.StringIO(text, newline=""), delimiter="\t" if ".tsv" in path.name else ",")
            if row
        ]
    finally:
        csv.field_size_limit(before)
    return {name.strip(): list(column) for name, column in zip(rows[0], zip(*rows[1:], strict=True), strict=True)}


def different(table: Table, cells: Cells, request: Request) -> str:
    """Say in what a table that was read is not the cells that were written; empty: in nothing."""
    cells = {name.strip(): values for name, values in cells.items()}
    named = set(request.labels) | {request.id_column, "y" if "x" in cells and "x" not in table.feature_names else None}
    features = [name for name in cells if name not in named | {"ids"}]
    is_array = isinstance(cells.get("x"), np.ndarray)
    x = (
        np.asarray(cells["x"], np.float64)
        if is_array
        else np.array([[_number(v) for v in cells[n]] for n in features]).T
    )
    if table.x.shape != x.shape or not np.allclose(table.x.astype(np.float64), x, rtol=1e-3 if is_array else 1e-6):
        return f"features {table.x.tolist()} for {x.tolist()}"
    ids = (
        list(cells["ids" if is_array and "ids" in cells else request.id_column])
        if "ids" in cells or request.id_column
        else range(len(x))
    )
    if [str(value) for value in table.ids.tolist()] != [str(value) for value in ids]:
        return f"ids {table.ids.tolist()} for {list(ids)}"
    labels = request.labels or (("y",) if is_array and "y" in cells else ())
    expected = (
        [_expected(row, request) for row in zip(*(cells[name] for name in labels), strict=True)] if labels else None
    )
    found = None if table.y is None else table.y.tolist()
    return "" if found == expected else f"labels {found} for {expected}"


def _number(cell: Any) -> float:
    return float({"true": 1, "false": 0}.get(cell.strip().lower(), cell) if isinstance(cell, str) else cell)


def _expected(row: tuple[Any, ...], request: Request) -> Any:
    cells = list(row[0]) if isinstance(row[0], np.ndarray) else list(row)
    if len(cells) > 1:
        return [-1 if _missing(cell, request) else int(_number(cell)) for cell in cells]
    (cell,) = cells
    if _missing(cell, request) or (isinstance(cell, np.signedinteger) and cell == -1):
        return None
    if request.separator is None and not isinstance(cell, list):
        return _name(cell)
    if _name(cell) == request.none:
        return ()
    parts = cell if isinstance(cell, list) else str(cell).split(request.separator)
    names = {re.sub(r"^\?\s*", "?", _name(part)) for part in parts} - {""}
    return tuple(sorted(names, key=lambda name: name.removeprefix("?")))


def _missing(cell: Any, request: Request) -> bool:
    return cell is None or cell != cell or not str(cell).strip() or str(cell).strip() == request.unlabeled


def _name(cell: Any) -> str:
    return re.sub(r"^([+-]?[0-9]+)\.0*$", r"\1", str(cell).strip())
