"""What `fit` has found in the data: it is printed, refused if nothing can be learned from it, or gives warnings."""

import math
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surelabel.base.text import listed
from surelabel.cli._console import say, warn
from surelabel.cli._errors import WrongUse
from surelabel.errors import DataError

if TYPE_CHECKING:
    from surelabel.data.run_data import RunData, TableData
    from surelabel.kinds.folder import FolderData
    from surelabel.kinds.packed import PackedData

_SEPARATORS = ("|", ";")
"""What people write between several labels in a cell; without --separator it is part of a name."""
_LEAST_ROWS, _MOST_ROWS = 5, 1000
"""Labeled rows, and unlabeled ones, whose gaps are compared: fewer may differ by chance, and as many are enough."""
_NEARLY = 0.9


def tell_found(data: "TableData | FolderData | PackedData", loaded: "RunData") -> None:
    """Print how many samples and labels were found, and of which classes."""
    import numpy as np

    from surelabel.kinds.packed import PackedData
    from surelabel.kinds.tables import described

    codes, pool = loaded.labeled[1], loaded.unlabeled
    counts = np.bincount(codes, minlength=len(loaded.classes)) if codes.ndim == 1 else (codes == 1).sum(axis=0)
    kind = getattr(data, "of", "rows")
    parts = [f"{len(codes):,} labeled", f"{0 if pool is None else len(pool):,} unlabeled"]
    parts += [f"{len(part[1]):,} for {name}" for name in ("validation", "test") if (part := getattr(loaded, name))]
    say(f"Found {kind} in {data.path}: {', '.join(parts)}.")
    shown = [f"{name} {count}" for name, count in zip(loaded.classes, counts.tolist(), strict=True)]
    more = f" and {len(shown) - 20} more" if len(shown) > 20 else ""
    say(f"Classes, with their labels: {', '.join(shown[:20])}{more}.")
    lines: list[str] = []
    if isinstance(data, PackedData):
        lines = described((), {"columns": (), "drop": data.unused()})
    elif kind == "rows" and (loaded.feature_names or loaded.learned.get("columns")):
        lines = described(loaded.feature_names or (), loaded.learned)
    for line in lines:
        say(line)
    features = [f"{one.width} by {one.name}" for one in loaded.learned.get("backbones", ())]
    if features:
        say(f"Features: {', '.join(features)}.")


def check_data(data: "RunData", path: Path, given: dict[str, Any]) -> None:
    """Refuse labels, classes and pools that nothing can be learned from, by the file's own names; warn of others."""
    from surelabel.data.encoding import measurement
    from surelabel.data.packed import is_packed
    from surelabel.runs.comparison import all_known

    single, codes = data.task == "single", data.labeled[1]
    where = f"{'Folder' if path.is_dir() else 'File'} '{path}'"
    if single and "gamma" in given:
        raise WrongUse("--gamma has no effect: the table has one label a sample; leave it out.")
    if single and len(data.classes) < 2:
        raise DataError(f"{where} has the class {data.classes[0]!r} alone; label some rows of another class.")
    missing = _without_label(data, codes)
    if missing:
        raise DataError(f"{where} has no labeled row left for class {missing[0]!r}; label some, or leave it out.")
    value = measurement(data.classes) if single or "separator" in given else None
    if value is not None:
        remedy = "sort them into ranges, or write them as words if each is a class"
        raise DataError(f"{where}: labels such as {value:g} measure something and name no class; {remedy}.")
    if data.unlabeled is None and (codes >= 0).all() and "pool" not in given:
        what, remedy = "row", "leave some label cells empty, or say with --unlabeled which label means unlabeled"
        if is_packed(path):
            what, remedy = "picture", "add pictures without a label: an empty label, or no .cls file"
        elif path.is_dir():
            what = "file"
            remedy = "put files without a label into the folder 'unlabeled', or leave their rows out of --labels-file"
        raise DataError(f"{where} has no unlabeled {what} to self-train on; {remedy}.")
    if "max_label_error" in given and data.validation is not None and not all_known(data.validation[1]).any():
        remedy = "fill in what is unknown, or leave --max-label-error out"
        raise DataError(f"{where}: no validation sample has all of its labels, so none can be judged; {remedy}.")
    for text in doubts(data, given):
        warn(text)


def doubts(data: "RunData", given: dict[str, Any]) -> Iterator[str]:
    """Yield warnings about data that may mean something else than was read."""
    from surelabel.data.encoding import MARKS, look_alikes, nearly_unique, one_sided
    from surelabel.data.source import as_source

    single, codes, separator = data.task == "single", data.labeled[1], given.get("separator")
    if single:
        yield from look_alikes(data.classes)
        yield from filter(None, [nearly_unique(len(data.classes), len(codes))])
        unjudged = [] if data.validation is None else _without_label(data, data.validation[1])
        if unjudged:
            yield f"the validation set has no label of {listed(unjudged)}; label more of them, or raise --validation."
    if marks := [name for name in data.classes if name.lower() in MARKS]:
        found = "are classes; if they mean" if len(marks) > 1 else "is a class; if it means"
        remedy = " ".join(f"--unlabeled {shlex.quote(name)}" for name in marks)
        yield f"{listed(marks)} {found} unlabeled, say {remedy}."
    if empty := _empty_folders(data, given):
        yield f"these folders have no samples and name no class: {listed(empty)}; put some in, or remove them."
    for name, text in [(name, text) for text in _SEPARATORS for name in data.classes if single and text in name][:1]:
        yield f"{name!r} is a class; if it means several, say --separator {text!r}."
    # A row may be partly labeled: classes with a question mark are in its cell too.
    if separator is not None and (codes != 0).sum(axis=1).max() < 2:
        yield f"no row has two labels; if {separator!r} does not part them, correct --separator."
    if not single:
        yield from one_sided(codes, data.classes)
    if filled := _filled_with_labels(data):
        remedy = " ".join(f"--drop {shlex.quote(name)}" for name in filled)
        yield f"nearly only labeled rows have a value for {listed(filled)}; if it came with the label, say {remedy}."
    shape = as_source("labeled", data.labeled[0]).sample_shape
    if len(shape) > 1 and not ({"model", "estimator"} & set(given) or "reading" in data.learned):
        remedy = "for pictures say --model surelabel.models.image:small_image_network, or another network"
        yield f"samples of shape {shape} are taken as rows of {math.prod(shape)} numbers; {remedy}."


def _without_label(data: "RunData", codes: Any) -> list[str]:
    """Return the classes that no label mentions."""
    import numpy as np

    known = np.unique(codes) if data.task == "single" else np.flatnonzero((codes >= 0).any(axis=0))
    return [data.classes[code] for code in np.setdiff1d(np.arange(len(data.classes)), known)]


def _empty_folders(data: "RunData", given: dict[str, Any]) -> list[str]:
    """Return the folders that would name a class if there were files of the run's kind in them."""
    from surelabel.data.packed import is_packed
    from surelabel.kinds.folder import UNLABELED

    if "labels_file" in given or not given["data"].is_dir() or is_packed(given["data"]):
        return []
    inside = [path for path in given["data"].iterdir() if path.is_dir() and not path.is_symlink()]
    known = {UNLABELED, *data.classes}
    return sorted(path.name for path in inside if path.name.strip() not in known and not path.name.startswith("."))


def _filled_with_labels(data: "RunData") -> list[str]:
    """Return the columns that are filled in nearly all labeled rows and empty in nearly all unlabeled ones.

    They may tell of the labeling, such as who did it, and even held-out rows then give their labels away.
    """
    import numpy as np

    from surelabel.data.columns import TextColumn

    columns = data.learned.get("columns") or ()
    # Without names, the features are those of backbones.
    if data.unlabeled is None or not data.feature_names or not any(column.gaps for column in columns):
        return []
    parts = data.labeled[0], data.unlabeled
    if min(map(len, parts)) < _LEAST_ROWS:
        return []
    some = [np.unique(np.linspace(0, len(part) - 1, min(len(part), _MOST_ROWS)).astype(np.int64)) for part in parts]
    labeled, unlabeled = (part[rows] for part, rows in zip(parts, some, strict=True))
    found, start = [], 0
    for column in columns:
        features = slice(start, start := start + len(column.features))
        if not column.gaps:
            continue
        # A text without words is 0 in all directions; other columns have a last feature for gaps.
        in_labeled, in_unlabeled = (
            (x[:, features].any(axis=1) if isinstance(column, TextColumn) else x[:, features][:, -1] == 0).mean()
            for x in (labeled, unlabeled)
        )
        if in_labeled >= _NEARLY and in_unlabeled <= 1 - _NEARLY:
            found.append(column.name)
    return found
