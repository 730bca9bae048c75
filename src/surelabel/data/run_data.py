"""A run's data by reference: a table (path and content hash), or a function that makes it."""

import hashlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, Field, model_validator

from surelabel.base.references import (
    changed_file,
    check_call,
    current_name,
    failing,
    pin,
    resolve,
)
from surelabel.base.settings import JSONScalar, Seed, Settings
from surelabel.base.text import check_size
from surelabel.base.trust import DATA_SETS, Reference
from surelabel.core.labels import Task
from surelabel.data._values import LabelMarks, Unlabeled, stated
from surelabel.data.columns import AnyColumn
from surelabel.data.source import Index, Source
from surelabel.data.splits import has_label, split_rows
from surelabel.data.table_encoding import Encoder, LearnedTable, TableEncoder, learn_table
from surelabel.data.tables import Table, content_hash, read_table
from surelabel.errors import DataError, InvalidInputError

Codes: TypeAlias = npt.NDArray[np.integer[Any]]

_FILES = {
    "path": "sha256",
    "labels_path": "labels_sha256",
    "test_path": "test_sha256",
    "validation_path": "validation_sha256",
}
"""The files that a table's settings name, and the settings that hold their content hashes."""


@dataclass(frozen=True, eq=False)
class RunData:
    """Everything that a run learns from and is judged by.

    Attributes:
        labeled: samples and their class indices (N,), or 0, 1 and -1 (unknown), (N, C), for task "multi".
        unlabeled: the pool; None only where every unknown entry is in partly labeled rows.
        classes: what the class indices stand for, C names.
        task: "single" or "multi".
        validation: samples and labels that are recorded; nothing is chosen by them.
        test: samples and labels whose score is recorded.
        truth: the pool's labels if known, else -1, (N,) or (N, C).
        feature_names: names of a table's columns.
        groups: which samples belong together, the labeled ones first and then the pool's, (N,); None: no groups.
        learned: settings of the data that were learned from the samples, which a run keeps.
        files: the content of files, by name, that a run keeps in addition to its settings.
        shards: settings of a pool in shards that were learned from it, which a run keeps.
    """

    labeled: tuple[Any, Codes]
    unlabeled: Any
    classes: Sequence[str]
    task: Task = "single"
    validation: tuple[Any, Codes] | None = None
    test: tuple[Any, Codes] | None = None
    truth: Codes | None = None
    feature_names: Sequence[str] | None = field(default=None)
    groups: npt.NDArray[Any] | None = None
    learned: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    shards: Mapping[str, Any] = field(default_factory=dict)


class TableData(Settings):
    """Samples in a file; a row without a label belongs to the pool.

    Attributes:
        path: a file that `read_table` reads.
        sha256: its content hash; `pinned` fills it in, and `load` refuses a file that differs.
        labels: one label column, or one of 0, 1 and -1 (unknown) for each class.
        separator: the text between several labels in a cell of the only label column; None: a cell is one label.
        none: a label that means none of the classes, like the separator alone.
        id_column: the column that names each row.
        drop: columns that are not features.
        use: columns that are features although they only count the rows; or "COLUMN=category", see `columns.USES`.
        as_texts: whether columns of words that would be categories, or name the rows, are used as texts.
        columns: how each column is used, and what `load` learned from it. None: not learned yet, or an array.
        texts_sha256: hash of the run's file with what was learned from texts.
        group: the column that says which rows belong together: they are on one side of every split.
        unlabeled: a label that means unlabeled, like the empty cell, or several.
        labels_path: an .npy file with the labels of an .npy file.
        labels_sha256: its content hash.
        test_path: a file with the same columns, for the test score.
        test_sha256: its content hash.
        validation: share of the labeled rows of each class that is held out; 0: none.
        validation_seed: draws these rows.
        validation_path: a file with the same columns, instead of a share.
        validation_sha256: its content hash.
    """

    kind: Literal["table"] = "table"
    path: Path
    sha256: str | None = None
    labels: tuple[str, ...] = ()
    separator: str | None = None
    none: str | None = None
    id_column: str | None = None
    drop: tuple[str, ...] = ()
    use: tuple[str, ...] = ()
    as_texts: bool = False
    columns: tuple[AnyColumn, ...] | None = None
    texts_sha256: str | None = None
    group: str | None = None
    unlabeled: Unlabeled = None
    labels_path: Path | None = None
    labels_sha256: str | None = None
    test_path: Path | None = None
    test_sha256: str | None = None
    validation: float = Field(0.0, ge=0, lt=1)
    validation_seed: Seed = 0
    validation_path: Path | None = None
    validation_sha256: str | None = None

    @model_validator(mode="after")
    def _check_files(self) -> Self:
        lone = [hash_name for name, hash_name in _FILES.items() if getattr(self, hash_name) and not getattr(self, name)]
        if lone:
            raise ValueError(f"{lone[0]} is given without the file that it is the hash of.")
        LabelMarks(self.unlabeled, self.separator, self.none).check(self.labels)
        if self.validation and self.validation_path is not None:
            both = f"validation ({self.validation}) or validation_path ('{self.validation_path}')"
            raise ValueError(f"Give either {both}, not both.")
        return self

    def references(self) -> Iterator[Reference]:
        """Yield all code that the settings name: none."""
        yield from ()

    def pinned(self) -> Self:
        """Return the settings with absolute paths and the content hash of each file that has none yet."""
        changes: dict[str, Any] = {}
        for name, hash_name in _FILES.items():
            path, sha256 = getattr(self, name), getattr(self, hash_name)
            if path is not None:
                changes |= {name: Path.cwd() / path, hash_name: sha256 or content_hash(path)}
        return self.replace(**changes)

    def moved(self, path: Path) -> Self:
        """Return the settings for files that have moved; their content must be the same.

        Args:
            path: of the data. If other files are missing too, they are looked for in the same folder, by name.
        """
        path = Path.cwd() / path
        others = {name: old for name in _FILES if (old := getattr(self, name)) is not None and not old.exists()}
        moved = self.replace(**{name: path.with_name(old.name) for name, old in others.items()} | {"path": path})
        moved._check_content()
        return moved

    def is_own(self, path: Path) -> bool:
        """Whether a file has the content that the run learned from, so that row numbers mean the same in both."""
        return content_hash(path) == self.sha256

    def _check_content(self) -> None:
        """Refuse a file that is missing or has changed."""
        for name, hash_name in _FILES.items():
            path, sha256 = getattr(self, name), getattr(self, hash_name)
            if sha256 is None:
                continue
            if not path.is_file():  # a pipe or a device would be read forever
                problem = "is not a plain file" if path.exists() else "is not there any more"
                remedy = "put it back, or name its new place: surelabel resume RUN --data FILE"
                raise DataError(f"File '{path}', which the run began with, {problem}; {remedy}.")
            if (found := content_hash(path)) != sha256:
                raise changed_file(path, sha256, found)

    def load(self, texts: bytes | None = None) -> RunData:
        """Read the files; refuse one whose content has changed. `texts` is what a run has stored, see `encoder`."""
        self._check_content()
        table, encoder, left_out = self._learned(texts)
        if table.y is None:
            remedy = "name its label column with --label, or an .npy file of labels with --labels-file"
            raise DataError(f"File '{self.path}' was read without labels; {remedy}.")
        classes = class_names(table, table.y)
        codes = class_codes(table, table.y, classes)
        labeled, validation_rows, pool = split_rows(
            f"File '{table.path}'", table.ids, codes, self.validation, self.validation_seed, table.groups
        )
        settled = self.replace(drop=(*self.drop, *left_out))
        kept = {} if encoder is None else encoder.settings()
        validation = settled._held_out_file(self.validation_path, table, encoder, labeled, classes)
        if self.validation:
            validation = _part(table, codes, validation_rows)
            which = f"held-out rows of '{self.path}'"
            _warn_of_learned_rows(which, validation[0], "labeled rows", table.samples(labeled), least=3)
        return RunData(
            labeled=_part(table, codes, labeled),
            unlabeled=_part(table, codes, pool)[0] if len(pool) else None,
            classes=classes,
            task="single" if codes.ndim == 1 else "multi",
            validation=validation,
            test=settled._held_out_file(self.test_path, table, encoder, labeled, classes),
            feature_names=list(table.feature_names) or None,
            groups=None if table.groups is None else table.groups[np.concatenate([labeled, pool])],
            learned={"drop": settled.drop, **kept},
            files={} if encoder is None else encoder.files,
        )

    def encoder(self, texts: bytes | None) -> Encoder | None:
        """Return how a run makes features from columns, with its file of texts; None for an array."""
        return None if self.columns is None else TableEncoder.kept(self.columns, texts)

    def _learned(self, texts: bytes | None) -> LearnedTable:
        encoder = self.encoder(texts)
        if encoder is not None:
            return LearnedTable(self._read(self.path, encoder), encoder, ())
        table = self._read(self.path, labels_path=self.labels_path, tolerant=True)
        return learn_table(table, self.use, as_texts=self.as_texts)

    def _read(self, path: Path, encoder: Encoder | None = None, **options: Any) -> Table:
        names = ("labels", "separator", "none", "id_column", "drop", "unlabeled", "group")
        read = read_table if encoder is None else encoder.read
        return read(path, **{name: getattr(self, name) for name in names}, **options)

    def _held_out_file(
        self, path: Path | None, table: Table, encoder: Encoder | None, labeled: Index, classes: list[str]
    ) -> tuple[Source, Codes] | None:
        if path is None:
            return None
        features = {"features": table.feature_names or None} if encoder is None else {}
        other = self._read(path, encoder, **features)
        if other.x.shape[1:] != table.x.shape[1:]:
            raise DataError(f"File '{path}' has samples of shape {other.x.shape[1:]}; give {table.x.shape[1:]}.")
        assert table.y is not None
        if other.y is None or (other.y.shape[1:], other.several) != (table.y.shape[1:], table.several):
            raise DataError(f"File '{path}' must have labels of the kind and number that '{self.path}' has; add them.")
        codes = class_codes(other, other.y, classes)
        rows = np.flatnonzero(has_label(codes))
        if not len(rows):
            raise DataError(f"File '{path}' has no labeled row to score; fill in the labels.")
        samples, learned = other.samples(rows), table.samples(labeled)
        _warn_of_learned_rows(f"labeled rows of '{path}'", samples, f"labeled rows of '{self.path}'", learned)
        return _part(other, codes, rows)


class FunctionData(Settings):
    """Samples made by a function that returns a `RunData`.

    Attributes:
        function: "module:name" or "file.py:name".
        sha256: content hash of file.py; `pinned` fills it in, and `load` refuses a file that differs.
        arguments: what the function is called with.
    """

    kind: Literal["function"] = "function"
    function: Annotated[str, AfterValidator(current_name)]
    sha256: str | None = None
    arguments: dict[str, JSONScalar] = Field(default_factory=dict)

    def references(self) -> Iterator[Reference]:
        """Yield all code that the settings name, with arguments that say where and how a listed function writes."""
        yield Reference(self.function, DATA_SETS)
        for name, usual in DATA_SETS.get(self.function, {}).items():
            if name in self.arguments and self.arguments[name] not in usual:
                yield Reference(f"{self.function} with {name}={self.arguments[name]!r}", ())

    def pinned(self) -> Self:
        """Return the settings with an absolute path and the file's content hash, if it has none yet."""
        function, sha256 = pin(self.function, self.sha256)
        return self.replace(function=function, sha256=sha256)

    def load(self) -> RunData:
        """Call the function; refuse a file whose content has changed."""
        function = resolve(self.function, self.sha256)
        made = f"The data function {self.function!r} cannot be called with arguments={self.arguments}"
        check_call(made, function, self.arguments)
        with failing(made, "Correct the arguments."):
            data = function(**self.arguments)
        if not isinstance(data, RunData):
            raise InvalidInputError(f"{self.function!r} must return a RunData; got {type(data).__name__}.")
        return data


def _warn_of_learned_rows(which: str, held_out: Source, others: str, learned: Source, least: int = 1) -> None:
    """Warn about held-out samples that are among the labeled ones: they make scores and thresholds look too good.

    In one table of few columns, some rows are alike by chance; `least` says how many are too many.
    """

    def features(samples: Source) -> Iterator[bytes]:
        for row in range(len(samples)):
            values = samples[np.array([row])].astype(np.float64) + 0.0  # -0.0 is 0.0
            yield hashlib.sha256(values.tobytes()).digest()

    known = set(features(learned))
    same = sum(row in known for row in features(held_out))
    # If labeled samples share their features anyway, features do not identify a sample.
    if same >= least and len(known) > 0.9 * len(learned):
        found = f"{same} of the {len(held_out)} {which} have the very features of {others}"
        warnings.warn(f"{found}; if they are the same samples, remove them: scores would be too good.", stacklevel=2)


def class_names(table: Table, y: npt.NDArray[Any]) -> list[str]:
    """Return the sorted names of the classes: numbers by value, "10" after "9", anything else as text."""
    if y.ndim == 2:
        return list(table.label_names)
    names = _named(table, y)
    if not names and any(label is not None for label in y):
        raise DataError(f"File '{table.path}' names no class in any labeled row; add rows that have one.")
    # Python does not parse numbers of more than a few thousand digits.
    whole = all(name.removeprefix("-").isdecimal() and len(name) < 1000 for name in names)
    # "1" and "01" are two classes; without the name, their order would be that of a set.
    return sorted(names, key=lambda name: (int(name), name)) if whole else sorted(names)


def class_codes(table: Table, y: npt.NDArray[Any], classes: list[str]) -> Codes:
    """Return the class index of each row, (N,), or its 0 or 1 for each class, (N, C); -1 where unknown.

    Classes that a row's tuple does not name are 0.
    """
    if y.ndim == 2:
        return y.astype(np.int64)
    index = {name: code for code, name in enumerate(classes)}
    unknown = sorted(_named(table, y) - set(classes))
    if unknown:
        problem = f"the label {unknown[0]!r}, which no labeled training row has"
        raise DataError(f"File '{table.path}' has {problem}; label some rows so, or remove these rows.")
    if not table.several:
        return np.array([-1 if label is None else index[label] for label in y.tolist()], dtype=np.int64)
    check_size(table.path, 8 * len(y) * len(classes))
    codes = np.full((len(y), len(classes)), -1, dtype=np.int64)
    for row, names in enumerate(y.tolist()):
        if names is not None:
            entries = stated(names)
            codes[row] = 0
            codes[row, [index[name] for name in entries]] = list(entries.values())
    return codes


def _named(table: Table, y: npt.NDArray[Any]) -> set[str]:
    labels = set(y.tolist()) - {None}
    return set().union(*map(stated, labels)) if table.several else labels


def _part(table: Table, codes: Codes, rows: Index) -> tuple[Source, Codes]:
    return table.samples(rows), codes[rows]
