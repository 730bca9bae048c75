"""Labels as people write them (numbers, strings, gaps) to class indices, and back."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from unicodedata import normalize

import numpy as np
import numpy.typing as npt

from surelabel.base.text import listed
from surelabel.core.labels import Task
from surelabel.errors import InvalidInputError

MARKS = frozenset({"", "na", "n/a", "nan", "none", "null", "-1", "?", "unlabeled", "unknown"})
"""What people write for a missing label; these are classes unless the user says that they mark unlabeled entries."""

NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?")
"""A number, in lower case."""


@dataclass(frozen=True)
class EncodedLabels:
    """Class indices of every row, -1 where unlabeled.

    Attributes:
        codes: shape (N,); for task "multi" 0, 1 or -1, shape (N, C).
        classes: what the indices stand for, sorted, shape (C,).
        task: "single" for one column, "multi" for several.
    """

    codes: npt.NDArray[np.int64]
    classes: npt.NDArray[Any]
    task: Task

    @property
    def labeled(self) -> npt.NDArray[np.bool_]:
        """Which rows have a label, or part of one; shape (N,)."""
        known = self.codes >= 0
        return known if self.task == "single" else np.asarray(known.any(axis=1))

    @property
    def mark(self) -> str | None:
        """A class that looks like a mark of unlabeled entries.

        >>> encode_labels(["cat", "?", "dog"]).mark
        '?'
        """
        names = [name for name in self.classes.tolist() if isinstance(name, str)]
        return next((name for name in names if name.strip().lower() in MARKS), None)


def encode_labels(y: Any, unlabeled: Any = -1) -> EncodedLabels:
    """Find the unlabeled entries and number the classes.

    Args:
        y: labels, shape (N,) or, with several labels per sample, 0 and 1, shape (N, C) with C > 1.
        unlabeled: what marks an unlabeled entry; None: None, NaN and NA do.

    >>> encode_labels(["cat", None, "dog"], unlabeled=None).codes.tolist()
    [0, -1, 1]
    """
    values = label_array(y)
    _check_kind(values)
    missing = _where(values, _missing)
    if unlabeled is not None:
        if missing.any():
            raise InvalidInputError(f"Input y contains NaN or None, not {unlabeled!r}; use unlabeled=None for these.")
        # "-1" is not -1.
        missing = _where(values, lambda v: isinstance(v, str) == isinstance(unlabeled, str) and v == unlabeled)
    if values.ndim == 2:
        return _encode_multi(values, missing)
    present = values[~missing]
    if present.dtype == object and len(present):
        present = _plain(present)
    _check_classes(present)
    classes, codes = np.unique(present, return_inverse=True)
    full = np.full(len(values), -1, dtype=np.int64)
    full[~missing] = codes
    return EncodedLabels(full, classes, "single")


def label_array(y: Any) -> npt.NDArray[Any]:
    """Return labels as an array that keeps every entry's type: marks of missing values, and numbers next to strings.

    >>> label_array(["cat", float("nan")]).dtype
    dtype('O')
    """
    refuse_masked("y", y, "fill it with what marks unlabeled samples: y.filled(-1)")
    if hasattr(y, "isna"):  # pandas; its own conversion would turn integers with NA into floats
        return np.asarray(y.to_numpy(dtype=object) if np.asarray(y.isna()).any() else y)
    values = np.asarray(y)
    if values.dtype.kind in "US" and not isinstance(y, np.ndarray):
        as_given = np.asarray(y, dtype=object)
        return values if all(isinstance(value, str) for value in as_given.flat) else as_given
    return values


def refuse_masked(name: str, values: Any, remedy: str) -> None:
    """Refuse an array with masked entries: as a plain array it would show the values under the mask.

    >>> refuse_masked("X", np.ma.masked_array([1, 2], mask=[False, False]), "fill it")
    """
    if isinstance(values, np.ma.MaskedArray) and (number := int(np.ma.getmaskarray(values).sum())):
        raise InvalidInputError(f"Input {name} is a masked array with {number} masked entries; {remedy}.")


def look_alikes(names: Iterable[Any]) -> list[str]:
    """Name classes that differ only by capitals and white space, or are the same number, with a remedy.

    Five times at most.

    >>> look_alikes(["cat", "dog", "CAT", " cat"])
    ["'cat', 'CAT', ' cat' are different classes; if they are one, write them alike."]
    >>> look_alikes(["1", "+1", "01", "1e0", "10"])
    ["'1', '+1', '01', '1e0' are different classes; if they are one, write them alike."]
    """
    groups: dict[str | Decimal, list[str]] = {}
    for name in names:
        if isinstance(name, str):
            groups.setdefault(_likeness(name), []).append(name)
    found = [group for group in groups.values() if len(group) > 1]
    return [f"{listed(group)} are different classes; if they are one, write them alike." for group in found[:5]]


def _likeness(name: str) -> str | Decimal:
    """Return what look-alike classes have in common: the number, or the text without capitals."""
    text = " ".join(normalize("NFKC", name).casefold().split())
    try:
        return Decimal(text) if NUMBER.fullmatch(text) else text
    except ArithmeticError:  # an exponent beyond all bounds
        return text


def measurement(names: Iterable[Any]) -> float | None:
    """Return a non-integer value if all labels are numbers: they are then measurements, not classes.

    Marks of missing values are ignored.

    >>> measurement(["1.5", "2", "NA"]), measurement(["1.5", "two"]), measurement([1.0, 2.0])
    (1.5, None, None)
    """
    stated = [name for name in names if str(name).strip().lower() not in MARKS]
    try:
        # A number of thousands of digits is an integer, although no float holds it.
        values = [0.0 if str(name).lstrip("+-").isdecimal() else float(name) for name in stated]
    except ValueError:
        return None
    return next((value for value in values if not value.is_integer()), None)


def nearly_unique(num_classes: int, num_labels: int) -> str | None:
    """Return a message with a remedy if most classes have a single label; None if not.

    >>> nearly_unique(30, 40)[:35], nearly_unique(12, 12)[:35], nearly_unique(12, 24)
    ('There are 30 classes for 40 labels;', 'There are 12 classes for 12 labels;', None)
    """
    # Up to ten classes may have one label each on purpose.
    most, all_but_few = 2 * num_classes > num_labels, 10 * num_classes >= 9 * num_labels
    if not (num_classes > 20 and most) and not (num_classes > 10 and all_but_few):
        return None
    remedy = "if the labels measure something, sort them into ranges, and if they name the rows, choose others"
    return f"There are {num_classes} classes for {num_labels} labels; {remedy}."


def decode_labels(codes: npt.NDArray[np.int64], encoded: EncodedLabels, unlabeled: Any) -> npt.NDArray[Any]:
    """Turn class indices back into labels, with the marker where there is none."""
    missing = codes < 0
    if encoded.task == "multi":
        return codes if unlabeled == -1 else np.where(missing, np.nan if unlabeled is None else unlabeled, codes)
    labels = encoded.classes[np.where(missing, 0, codes)]
    if not missing.any():
        return np.asarray(labels)
    # Unsigned labels cannot hold a negative marker, which only an array of objects has beside them.
    if isinstance(unlabeled, (int, float, np.number)) and labels.dtype.kind in ("iuf" if unlabeled >= 0 else "if"):
        return np.where(missing, np.asarray(unlabeled, dtype=labels.dtype), labels)
    if unlabeled is None and labels.dtype.kind == "f":
        return np.where(missing, np.nan, labels)
    marked = labels.astype(object)
    marked[missing] = unlabeled
    return marked


def one_sided(codes: npt.NDArray[np.integer[Any]], names: Sequence[Any]) -> list[str]:
    """Name the classes that every row has, and those that no row has, as far as known, with a remedy.

    Args:
        codes: 0, 1 or -1 (unknown), shape (N, C).
        names: what the classes are called, C.

    >>> one_sided(np.array([[1, 0, 1], [-1, 0, 0]]), ["cat", "dog", "owl"])[1]
    "No row is known to have 'dog'; label some that do."
    """
    present, absent = ((codes == value).any(axis=0) for value in (1, 0))
    those = {
        verb: [names[code] for code in np.flatnonzero(only).tolist()]
        for verb, only in (("lack", present & ~absent), ("have", absent & ~present))
    }
    return [f"No row is known to {verb} {listed(found)}; label some that do." for verb, found in those.items() if found]


def _check_kind(values: npt.NDArray[Any]) -> None:
    several = [value for value in values.flat if hasattr(value, "__len__")] if values.dtype == object else []
    if wrong := [value for value in several if not isinstance(value, str | bytes)]:
        raise _unknown_type(type(wrong[0]).__name__)
    if values.dtype.kind not in "biufUOMm":
        raise _unknown_type(str(values.dtype))


def _unknown_type(name: str) -> InvalidInputError:
    remedy = "give a string or a whole number of 64 bits a sample, or 0 and 1 in a column for each class"
    return InvalidInputError(f"Unknown label type: y holds {name}; {remedy}.")


def _check_classes(values: npt.NDArray[Any]) -> None:
    """Refuse labels that are neither numbers nor strings, and numbers that measure something."""
    _check_kind(values)
    if values.dtype == object and not all(isinstance(value, str) for value in values):
        raise _unknown_type(type(values[0]).__name__)
    if values.dtype.kind == "f":
        numbers = values.astype(np.float64)
        # Larger floats cannot distinguish neighboring integers.
        wrong = numbers[(numbers != np.floor(numbers)) | (np.abs(numbers) >= 2**53)]
        if len(wrong):
            remedy = (
                "sort values into ranges (numpy.digitize), or, if each is a class, make them strings (y.astype(str))"
            )
            raise InvalidInputError(f"Unknown label type: continuous. y holds {wrong[0]:g}; {remedy}.")


def _encode_multi(values: npt.NDArray[Any], missing: npt.NDArray[np.bool_]) -> EncodedLabels:
    codes = np.full(values.shape, -1, dtype=np.int64)
    known = values[~missing]
    values_present = np.unique(_plain(known) if known.dtype == object else known).tolist()
    wrong = [value for value in values_present if value not in (0, 1)]
    if wrong:
        problem = f"each entry of several label columns must be 0, 1 or unlabeled; got {wrong[0]!r}"
        raise InvalidInputError(f"In y {problem}. For one label per sample pass a 1-D y.")
    codes[~missing] = known.astype(np.int64)
    return EncodedLabels(codes, np.arange(values.shape[1]), "multi")


def _where(values: npt.NDArray[Any], test: Callable[[Any], bool]) -> npt.NDArray[np.bool_]:
    return np.array([test(value) for value in values.astype(object).flat], dtype=bool).reshape(values.shape)


def _missing(value: Any) -> bool:
    return value is None or type(value).__name__ in ("NAType", "NaTType") or bool(value != value)


def _plain(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Convert object labels of one type to that type's dtype; refuse a mixture that cannot be sorted."""
    kinds = {str if isinstance(value, str) else type(value) for value in values}
    if str in kinds and len(kinds) > 1:
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise InvalidInputError(f"The labels mix types ({names}); make them all strings or all numbers.")
    return values if str in kinds else np.asarray(values.tolist())
