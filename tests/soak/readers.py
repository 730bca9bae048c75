"""Generated files for every reader: valid ones, ones with some bytes changed, and hostile ones.

Whoever wrote a file knows its cells. Where bytes were changed, a plain reader (csv, numpy, pyarrow as they come) tells
them. What `read_table` accepts must be these cells and no others.
"""

import csv
import gzip
import io
import random
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from soak import hostile
from soak.children import Verdict, judge
from surelabel.data.tables import Table, read_table
from surelabel.errors import SurelabelError

Cells = dict[str, Any]
"""The cells of a table by column, as they were written; the arrays x, y and ids of numpy's files."""
ENDINGS = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet", ".npz", ".npy")
NAMES = ("width", "größe", "a,b", 'q"q', "x y", "=1+1", "$x_1$", "two\nlines", "日本", "#", "'", "0", "NaN", "x\\y")
LABELS = ("cat", "dog", "Ünï", "x,y", 'q"q', "=1+1", "$10_$20", "two\nlines", "-3", "3.0", "0007", "NA", "None", "a b")
TYPES = ("f4", "f8", "i1", "i2", "i8", "u1", "u2", "u8", "?", "f2", ">f4", ">f8", "g", ">i4")


def check(rng: random.Random, folder: Path) -> Verdict:
    """Write a file, read it and compare."""
    ending, kind = rng.choice(ENDINGS), rng.choices(("valid", "changed", "hostile"), (4, 4, 2))[0]
    path, area, cells = folder / f"table{ending}", f"files: {ending.removesuffix('.gz')[1:]}", None
    if kind == "hostile":
        options = hostile.write(rng, path)
    else:
        cells, options = draw(rng, ending)
        write(rng, path, cells)
    if (labels := path.with_name("labels.npy")).exists():
        options["labels_path"] = labels
    if kind == "changed":
        change(rng, path)
        cells = None
    try:
        table = read_table(path, **options)
    except Exception as error:
        told = isinstance(error, SurelabelError)
        _, fault = judge(1, f"error: {error}" if told else f"error: unexpected {error}")
        return Verdict(
            area,
            "refused",
            "differences" if kind == "valid" else fault,
            f"{kind}: {type(error).__name__}: {error} {options}",
        )
    try:
        found = different(table, cells or plainly_read(path), options)
    except Exception as error:
        found = f"a plain reader fails: {type(error).__name__}: {error}"
    return Verdict(area, "accepted", "differences" if found else "", f"{kind}: {found} {options}" if found else "")


# Cells that are known.


def draw(rng: random.Random, ending: str) -> tuple[Cells, dict[str, Any]]:
    """Return the cells of a table, and how to ask for them."""
    rows, is_numpy = rng.choice((1, 2, 3, 9, 40)), ending.startswith(".np")
    label, id_column, *features = ("y", "ids", "x") if is_numpy else rng.sample(NAMES, 5)
    cells: Cells = {}
    if is_numpy:
        cells["x"] = _numbers(rng, rows * rng.randint(1, 3), TYPES).reshape(rows, -1)
    for name in () if is_numpy else features[: rng.randint(2, 3)]:
        cells[name] = _numbers(rng, rows, TYPES[:9] if ending == ".parquet" else TYPES[:2]).tolist()
    form, options = rng.choice(("none", "single", "single", "multi", "cell")), {}
    if form == "multi":
        drawn = np.array(rng.choices((0, 1, -1), k=2 * rows)).reshape(rows, 2)
        cells |= {"y": drawn} if is_numpy else {label: drawn[:, 0].tolist(), "second": drawn[:, 1].tolist()}
        options = {} if is_numpy else {"labels": (label, "second")}
    elif form != "none":
        options = {"labels": (label,)} | ({"separator": "|", "none": "nothing"} if form == "cell" else {})
        missing = "" if is_numpy else rng.choice((None, "", "?"))
        options |= {"unlabeled": "?"} if missing == "?" else {}
        drawn = [_label(rng, form == "cell") if rng.random() < 0.6 else missing for _ in range(rows)]
        cells[label] = np.array(drawn) if is_numpy else drawn
    if rng.random() < 0.5 and ending != ".npy":
        options["id_column"], cells[id_column] = id_column, _ids(rng, rows, is_numpy)
    if ending == ".npy":
        options.pop("labels", None)
    return cells, options


def _numbers(rng: random.Random, number: int, types: tuple[str, ...]) -> Any:
    kind = np.dtype(rng.choice(types))
    if kind.kind == "f":
        return np.array([rng.choice((rng.gauss(0, 3), 0.5, -0.0, 1e-3, 60000)) for _ in range(number)]).astype(kind)
    if kind.kind == "b":
        return np.array([rng.random() < 0.5 for _ in range(number)])
    # Numbers that follow each other would be taken for row numbers; these do not.
    return np.array([17 * (7 - place) % 97 for place in range(number)]).astype(kind)


def _label(rng: random.Random, several: bool) -> str:
    names = [rng.choice(("", "", "?")) + name for name in rng.sample(LABELS[:6], rng.randint(0, 3))]
    return ("|".join(names) or rng.choice(("|", "nothing"))) if several else rng.choice(LABELS)


def _ids(rng: random.Random, rows: int, is_numpy: bool) -> Any:
    if rng.random() < 0.5:
        ids: list[Any] = [rng.choice((0, -5, 10**15, 2**62)) + row for row in range(0, 2 * rows, 2)]
        return np.array(ids, np.int64).astype("u8") if is_numpy and rng.random() < 0.2 else ids
    ids = [f"{rng.choice(LABELS)}/{row}" for row in range(rows)]
    return np.array(ids) if is_numpy else ids


# Files.


def write(rng: random.Random, path: Path, cells: Cells) -> None:
    """Write cells to a file in one of the forms that its kind has."""
    if path.suffix == ".npy":
        for file, name in ((path, "x"), (path.with_name("labels.npy"), "y")):
            if name in cells:
                array = rng.choice((np.asfortranarray, np.asarray))(cells[name])
                file.write_bytes(hostile.array_bytes(array, version=rng.choice(((1, 0), (2, 0)))))
    elif path.suffix == ".npz":
        rng.choice((np.savez, np.savez_compressed))(path, **cells)
    elif path.suffix == ".parquet":
        columns = {name: pa.array(values) for name, values in cells.items()}
        for name, column in columns.items():
            if pa.types.is_string(column.type):
                columns[name] = rng.choice((column, column.cast(pa.large_string()), column.dictionary_encode()))
        pq.write_table(pa.table(columns), path, row_group_size=rng.choice((1, 5, 1000)))
    else:
        data = _text(rng, cells, "\t" if ".tsv" in path.name else ",")
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def _text(rng: random.Random, cells: Cells, delimiter: str) -> bytes:
    stream, quoting = io.StringIO(newline=""), rng.choice((csv.QUOTE_MINIMAL, csv.QUOTE_ALL))
    writer = csv.writer(stream, delimiter=delimiter, quoting=quoting, lineterminator=rng.choice(("\n", "\r\n")))
    writer.writerow(cells)
    writer.writerows(zip(*cells.values(), strict=True))
    text = rng.choice(("", "", "\ufeff", "\n")) + stream.getvalue() + rng.choice(("", "", "\n"))
    return (text if rng.random() < 0.8 else text.rstrip("\r\n")).encode()


def change(rng: random.Random, path: Path) -> None:
    """Change some bytes: of the file, or of what was packed into it, so that the packing is right."""
    data = path.read_bytes()
    if path.suffix == ".gz" and rng.random() < 0.6:
        path.write_bytes(gzip.compress(hostile.changed(rng, gzip.decompress(data))))
    elif path.suffix == ".npz" and rng.random() < 0.6:
        with zipfile.ZipFile(path) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        name = rng.choice(list(members))
        hostile.pack(path, members | {name: hostile.changed(rng, members[name])})
    else:
        path.write_bytes(hostile.changed(rng, data))


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
    stream = io.StringIO(data.decode("utf-8-sig", errors="surrogateescape"), newline="")
    before = csv.field_size_limit(1 << 30)
    rows = list(filter(None, csv.reader(stream, delimiter="\t" if ".tsv" in path.name else ",")))
    csv.field_size_limit(before)
    return dict(zip(rows[0], map(list, zip(*rows[1:], strict=True)), strict=True))


def different(table: Table, cells: Cells, options: dict[str, Any]) -> str:
    """Say in what a table that was read is not the cells that were written; empty: in nothing."""
    cells = {name.strip(): values for name, values in cells.items()}
    is_numpy = isinstance(cells.get("x"), np.ndarray)
    labels = options.get("labels", ("y",) if is_numpy and "y" in cells else ())
    ids = cells.get("ids" if is_numpy else options.get("id_column"), range(len(table)))
    features = [cells[name] for name in cells if name not in (*labels, "ids" if is_numpy else options.get("id_column"))]
    x = np.asarray(features[0], np.float64) if is_numpy else np.array([[*map(_number, one)] for one in features]).T
    if table.x.shape != x.shape or not np.allclose(table.x.astype(np.float64), x, rtol=1e-6):
        return f"features {table.x.tolist()} for {x.tolist()}"
    if [*map(str, table.ids.tolist())] != [*map(str, ids)]:
        return f"ids {table.ids.tolist()} for {list(ids)}"
    rows = zip(*(cells[name] for name in labels), strict=True)
    expected = [_expected(row, options) for row in rows] if labels else None
    found = None if table.y is None else table.y.tolist()
    return "" if found == expected else f"labels {found} for {expected}"


def _number(cell: Any) -> float:
    return float({"true": 1, "false": 0}.get(cell.strip().lower(), cell) if isinstance(cell, str) else cell)


def _expected(row: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Return what `read_table` is to make of a row's labels, as its documents say."""
    cell, *others = row[0] if isinstance(row[0], np.ndarray) else row
    if others:
        return [-1 if _missing(one, options) else int(_number(one)) for one in (cell, *others)]
    if _missing(cell, options) or (isinstance(cell, np.signedinteger) and cell == -1):
        return None
    if "separator" not in options and not isinstance(cell, list):
        return _name(cell)
    parts = cell if isinstance(cell, list) else str(cell).split(options["separator"])
    names = {re.sub(r"^\?\s*", "?", _name(part)) for part in parts} - {"", options.get("none")}
    return tuple(sorted(names, key=lambda name: name.removeprefix("?")))


def _missing(cell: Any, options: dict[str, Any]) -> bool:
    return cell is None or cell != cell or str(cell).strip() in ("", options.get("unlabeled"))


def _name(cell: Any) -> str:
    return re.sub(r"^([+-]?[0-9]+)\.0*$", r"\1", re.sub(r"^[+-]0\.0*$", "0", str(cell).strip()))
