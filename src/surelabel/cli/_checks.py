"""What `fit` refuses before it trains: labels, classes and pools that nothing can be learned from."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surelabel.base.text import listed
from surelabel.cli._console import complain
from surelabel.errors import DataError

if TYPE_CHECKING:
    from surelabel.data.run_data import RunData


_SEPARATORS = ("|", ";")
"""What people write between several labels in a cell; to us it is part of a name, unless --separator says otherwise."""


def check_data(data: "RunData", path: Path, separator: str | None = None) -> None:
    """Refuse labels of one class, a class without label and an empty pool, by the file's own names.

    Args:
        data: what was read.
        path: the file that it was read from.
        separator: what stands between several labels in a cell, if so.
    """
    codes = data.labeled[1]
    if data.task == "single" and len(data.classes) < 2:
        raise DataError(
            f"File '{path}' has labels of one class only ({data.classes[0]!r}); label some rows of another class."
        )
    missing = _without_label(data, codes)
    if missing:
        raise DataError(
            f"File '{path}' has no labeled row left for class {missing[0]!r}; label some, or leave the class out."
        )
    from surelabel.data.encoding import MARKS, one_sided

    if data.task == "single" or separator is not None:
        _check_measurements(data, path)
    if data.task == "single":
        _warn_of_single(data)
    marks = [name for name in data.classes if name.lower() in MARKS]
    if marks:
        complain(
            "warning", f"{marks[0]!r} is a class; if it means unlabeled, say --unlabeled {marks[0]}.", style="bold"
        )
    _warn_of_separators(data, separator)
    if data.unlabeled is None and (codes >= 0).all():
        raise DataError(
            f"File '{path}' has no unlabeled row, so there is nothing to self-train on; add rows with an empty label "
            "cell, or say with --unlabeled which label means unlabeled."
        )
    if data.task == "multi":
        for text in one_sided(codes, data.classes):
            complain("warning", text, style="bold")


def _check_measurements(data: "RunData", path: Path) -> None:
    from surelabel.data.encoding import measurement

    value = measurement(data.classes)
    if value is not None:
        raise DataError(
            f"File '{path}': the labels are numbers such as {value:g}, which measure something and name no class; sort "
            "them into ranges, or write them as words if each is a class."
        )


def _warn_of_single(data: "RunData") -> None:
    """Warn of classes that are written in several ways, of names of rows, and of classes that are not judged."""
    from surelabel.data.encoding import look_alikes, nearly_unique

    unique = nearly_unique(len(data.classes), len(data.labeled[1]))
    for text in [*look_alikes(data.classes), *([unique] if unique else [])]:
        complain("warning", text, style="bold")
    if data.validation is not None:
        unjudged = _without_label(data, data.validation[1])
        if unjudged:
            complain(
                "warning",
                f"no label of {listed(unjudged)} is in the validation set, which does not judge these classes; label "
                "more of their rows, or raise --validation.",
                style="bold",
            )


def _without_label(data: "RunData", codes: Any) -> list[str]:
    """Return the classes that no label says anything of."""
    import numpy as np

    known = np.unique(codes) if data.task == "single" else np.flatnonzero((codes >= 0).any(axis=0))
    return [data.classes[code] for code in np.setdiff1d(np.arange(len(data.classes)), known)]


def warn_of_flattening(data: "RunData") -> None:
    """Warn of samples of several dimensions, which the network for tables takes as rows of numbers."""
    from surelabel.data.source import as_source

    shape = as_source("labeled", data.labeled[0]).sample_shape
    if len(shape) > 1:
        complain(
            "warning",
            f"samples of shape {shape} are taken as rows of {math.prod(shape)} numbers; for pictures name a network "
            "with --model, such as surelabel.models.image:small_image_network.",
            style="bold",
        )


def _warn_of_separators(data: "RunData", separator: str | None) -> None:
    found = [(name, text) for text in _SEPARATORS for name in data.classes if data.task == "single" and text in name]
    if found:
        name, text = found[0]
        complain("warning", f"{name!r} is a class; if it means several, say --separator {text!r}.", style="bold")
    # A row may be known in part: what has a question mark stands in its cell too.
    if separator is not None and (data.labeled[1] != 0).sum(axis=1).max() < 2:
        complain(
            "warning", f"no row has two labels; if {separator!r} does not part them, correct --separator.", style="bold"
        )
