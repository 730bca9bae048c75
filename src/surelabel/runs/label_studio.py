"""Pseudo-labels as Label Studio tasks, for people to review: JSON with one prediction each, and the labeling XML.

A task is `{"data": {...}, "predictions": [{"model_version", "score", "result": [...]}]}`. The score is the confidence.
The uncertainty has no place in a prediction, so it is in the data. Label Studio can sort by both.
"""

import csv
import gzip
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

from surelabel.core.labels import Task
from surelabel.data._arrow_files import parquet_rows
from surelabel.data.pool import PoolLabels
from surelabel.errors import DataError

PREFIX = "/data/local-files/?d="
"""The address from which Label Studio serves local files."""
_CHOICES, _OBJECT = "label", "sample"
_TAGS = {"pictures": "Image", "sounds": "Audio", "video": "Video"}
_FIELDS = {"Image": "image", "Audio": "audio", "Video": "video", "Text": "text", "Table": "row"}
_TABLES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")


def tag_of(kind: str | None) -> str:
    """Return the tag that shows samples of a kind; None: rows of a table."""
    return "Table" if kind is None else _TAGS.get(kind, "Text")


def labeling_config(classes: Sequence[str], task: Task, tag: str) -> bytes:
    """Return the labeling configuration: how a sample is shown, and the classes to choose from.

    >>> print(labeling_config(["cat", "dog"], "single", "Image").decode())
    <View>
      <Image name="sample" value="$image" />
      <Choices name="label" toName="sample" choice="single">
        <Choice value="cat" />
        <Choice value="dog" />
      </Choices>
    </View>
    """
    view = ElementTree.Element("View")
    ElementTree.SubElement(view, tag, name=_OBJECT, value=f"${_FIELDS[tag]}")
    choice = "single" if task == "single" else "multiple"
    choices = ElementTree.SubElement(view, "Choices", name=_CHOICES, toName=_OBJECT, choice=choice)
    for name in classes:
        if any(ord(letter) < 32 and letter not in "\t\n\r" for letter in name):
            raise DataError(f"The class {name!r} holds a character that no XML file can; rename it.")
        ElementTree.SubElement(choices, "Choice", value=name)
    ElementTree.indent(view)
    return bytes(ElementTree.tostring(view, encoding="utf-8"))


def tasks(
    pool: PoolLabels,
    classes: Sequence[str],
    shown: Sequence[Any],
    tag: str,
    model_version: str,
    more: Mapping[str, Sequence[Any]],
) -> list[dict[str, Any]]:
    """Return a task for each sample.

    Args:
        pool: the samples as labeled by the run's network.
        classes: their names, C.
        shown: what the tag shows for each sample: an address, or the cells of its row.
        tag: of `tag_of`.
        model_version: the name of the model.
        more: columns that go into the data with the sample: its id, its round and others, (N,) each.
    """
    made = []
    for row in range(len(pool)):
        found, score, uncertainty = _label(pool, row, classes)
        data = {name: values[row] for name, values in more.items()}
        data |= {"uncertainty": uncertainty, _FIELDS[tag]: shown[row]}
        choices = {"id": "label", "from_name": _CHOICES, "to_name": _OBJECT, "type": "choices"}
        result = [{**choices, "value": {"choices": found}}] if found else []
        prediction = {"model_version": model_version, "score": min(max(score, 0.0), 1.0), "result": result}
        made.append({"data": data, "predictions": [prediction]})
    return made


def tasks_bytes(made: Sequence[Mapping[str, Any]]) -> bytes:
    """Return tasks as a JSON file. NaN and infinities, which JSON does not have, raise a `ValueError`."""
    return json.dumps(made, indent=1, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def addresses(ids: Sequence[Any], prefix: str = PREFIX) -> list[str]:
    """Return the addresses of files, prefix and path; in web addresses, special characters are escaped.

    >>> addresses(["cats/a b&c.png"]), addresses(["a b.png"], "s3://bucket/")
    (['/data/local-files/?d=cats/a%20b%26c.png'], ['s3://bucket/a b.png'])
    """
    of_web = prefix.startswith(("/", "http://", "https://"))
    return [prefix + (quote(str(name)) if of_web else str(name)) for name in ids]


def table_rows(path: Path, number: int) -> list[dict[str, Any]]:
    """Return the cells of each row of a table, by the names of the columns.

    Args:
        path: a .csv, .tsv or .parquet file that has been read as samples before.
        number: how many rows it must have.
    """
    if not path.name.lower().endswith(_TABLES):
        raise DataError(
            f"File '{path}' has no named columns for Label Studio to show; give one of {', '.join(_TABLES)}."
        )
    found = list(_parquet_rows(path) if path.suffix.lower() == ".parquet" else _text_rows(path))
    if len(found) != number:
        raise DataError(f"File '{path}' has {len(found)} rows now, and {number} were labeled; try again.")
    return found


def _text_rows(path: Path) -> Iterator[dict[str, str]]:
    # Its size was checked when its samples were read.
    before = csv.field_size_limit(2**31 - 1)
    try:
        yield from _records(path)
    finally:
        csv.field_size_limit(before)


def _records(path: Path) -> Iterator[dict[str, str]]:
    packed = path.suffix.lower() == ".gz"
    delimiter = "\t" if path.name.lower().endswith((".tsv", ".tsv.gz")) else ","
    with gzip.open(path) if packed else path.open("rb") as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace", newline="")
        records = (record for record in csv.reader(text, delimiter=delimiter) if record)
        header = next(records)
        for record in records:
            yield dict(zip(header, record, strict=True))


def _parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    return ({name: _plain(value) for name, value in row.items()} for row in parquet_rows(path))


def _plain(value: Any) -> Any:
    """Return a cell in a form for JSON; other types, such as dates, become text."""
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _label(pool: PoolLabels, row: int, classes: Sequence[str]) -> tuple[list[str], float, Any]:
    """Return a sample's classes, and the confidence and uncertainty of the least confident one."""
    uncertainty: Any = None if pool.uncertainty is None else pool.uncertainty[row]
    if pool.label.ndim == 1:
        of_label = None if uncertainty is None else float(uncertainty)
        return [classes[pool.label[row]]], float(pool.confidence[row]), of_label
    p = pool.confidence[row]
    score = float(min(max(value, 1 - value) for value in p.tolist()))
    by_class = None if uncertainty is None else dict(zip(classes, uncertainty.tolist(), strict=True))
    return [classes[code] for code in pool.label[row].nonzero()[0]], score, by_class
