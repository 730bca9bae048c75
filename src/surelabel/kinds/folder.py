"""Samples that are files in a folder: `CLASS/...` and `unlabeled/...`, or any tree with a table of labels."""

import dataclasses
import hashlib
import json
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from surelabel.base.references import changed_file, file_hash
from surelabel.base.settings import Seed, Settings
from surelabel.base.text import check_inside, is_text, listed
from surelabel.base.trust import Reference
from surelabel.data._values import LabelMarks, Unlabeled
from surelabel.data.decoding import DecodeSettings, OnError, decode_files
from surelabel.data.images import data_folder
from surelabel.data.run_data import Codes, RunData, class_codes, class_names
from surelabel.data.source import Source, Subset, positions
from surelabel.data.splits import group_keys, has_label, split_rows
from surelabel.data.tables import Table, content_hash, read_labels
from surelabel.errors import ChangedFileError, DataError
from surelabel.kinds import KINDS
from surelabel.kinds.backbones import BackboneSettings
from surelabel.kinds.kind import Kind, linked_folders, walk

UNLABELED = "unlabeled"
"""The folder, next to those of the classes, whose files are the pool."""
FILE = "file"
"""The column of a table of labels that names the files."""


class FolderData(Settings):
    """Files in a folder; one without a label belongs to the pool. A sample's id is its file's path in the folder.

    Attributes:
        of: the kind of the files, by its name in `KINDS`.
        path: the folder.
        sha256: hash of the names and contents of its files; `load` learns it, and refuses a folder that differs.
        labels_path: a table with the labels of the files; None: the first folder of a file's path names its class.
        labels_sha256: its content hash.
        labels: its label column, or one of 0, 1 and -1 (unknown) for each class.
        separator: the text between several labels in a cell of the only label column; None: a cell is one label.
        none: a label that means none of the classes, like the separator alone.
        unlabeled: a label that means unlabeled, like the empty cell, or several.
        group: the column of the table that says which files belong together: they are on one side of every split.
        test_path: a folder with a folder for each class, for the test score.
        test_sha256: hash of the names and contents of its files.
        validation: share of the labeled files of each class that is held out; 0: none. Files with the same content are
            on one side.
        validation_seed: draws these files.
        validation_path: a folder with a folder for each class, instead of a share.
        validation_sha256: hash of the names and contents of its files.
        on_error: "stop" refuses a file that cannot be read; "skip" leaves it out.
        skipped: files that could not be read when the run began.
        reading: how files are read; None: chosen from some of them. Without effect if there are backbones.
        backbones: frozen networks; their outputs, side by side, replace the samples.
    """

    kind: Literal["folder"] = "folder"
    of: str
    path: Path
    sha256: str | None = None
    labels_path: Path | None = None
    labels_sha256: str | None = None
    labels: tuple[str, ...] = Field(("label",), min_length=1)
    separator: str | None = None
    none: str | None = None
    unlabeled: Unlabeled = None
    group: str | None = None
    test_path: Path | None = None
    test_sha256: str | None = None
    validation: float = Field(0.0, ge=0, lt=1)
    validation_seed: Seed = 0
    validation_path: Path | None = None
    validation_sha256: str | None = None
    on_error: OnError = "stop"
    skipped: tuple[str, ...] = ()
    reading: DecodeSettings | None = None
    backbones: tuple[BackboneSettings, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.of not in KINDS:
            raise ValueError(f"'of' must be one of {', '.join(KINDS)}; got {self.of!r}")
        if self.labels_path is None and self.group is not None:
            raise ValueError(f"'group' ({self.group!r}) is a column of the table of labels; name that table too")
        if self.validation and self.validation_path is not None:
            raise ValueError(f"Give either validation ({self.validation}) or validation_path, not both")
        self.marks.check(self.labels)
        if self.backbones and self.of != "pictures":
            raise ValueError(f"'backbones' take pictures, and the files are {self.of}; leave the backbones out")
        return self

    @property
    def marks(self) -> LabelMarks:
        """How cells of labels are read."""
        return LabelMarks(self.unlabeled, self.separator, self.none)

    def references(self) -> Iterator[Reference]:
        """Yield all code that the settings name: that of backbones."""
        for backbone in self.backbones:
            yield from backbone.references()

    def pinned(self) -> Self:
        """Return the settings with absolute paths and the hash of the table of labels; `load` adds those of folders.

        So folders are read only once, when they are hashed.
        """
        paths = {name: getattr(self, name) for name in ("path", "labels_path", "test_path", "validation_path")}
        changes: dict[str, Any] = {name: Path.cwd() / path for name, path in paths.items() if path is not None}
        if self.labels_path is not None:
            changes["labels_sha256"] = self.labels_sha256 or content_hash(self.labels_path)
        changes["backbones"] = tuple(backbone.pinned() for backbone in self.backbones)
        return self.replace(**changes)

    def moved(self, path: Path) -> Self:
        """Return the settings for files that have moved; `load` refuses them if their content differs.

        Args:
            path: of the folder. If other folders or the table of labels are missing too, they are looked for next to
                it, by name.
        """
        path = Path.cwd() / path
        others = {name: getattr(self, name) for name in ("labels_path", "test_path", "validation_path")}
        gone = {name: old for name, old in others.items() if old is not None and not old.exists()}
        return self.replace(path=path, **{name: path.with_name(old.name) for name, old in gone.items()})

    def is_own(self, path: Path) -> bool:
        """Whether names mean the same as in the run: in its own folder, and in one with the very same files."""
        return path.resolve() == self.path.resolve() or _Files.find(path, KINDS[self.of]).sha256 == self.sha256

    def load(self) -> RunData:
        """Read the files; refuse a folder whose content has changed."""
        kind = KINDS[self.of]
        if self.labels_sha256 is not None and self.labels_path is not None:
            if not self.labels_path.is_file():
                raise _gone("File", self.labels_path)
            found = content_hash(self.labels_path)
            if found != self.labels_sha256:
                raise changed_file(self.labels_path, self.labels_sha256, found)
        main = _Files.find(self.path, kind, self.sha256)
        labels = _labels_of_folders(main) if self.labels_path is None else self._labels_of_table(main, self.labels_path)
        assert labels.y is not None
        classes = class_names(labels, labels.y)
        main = main.without(self.skipped)
        samples, skipped, settled = self._samples(main, self.on_error)
        kept = positions(labels.ids.tolist(), samples.ids.tolist())
        codes = class_codes(labels, labels.y, classes)[kept]
        groups = main.content_of(samples.ids) if labels.groups is None else labels.groups[kept]
        where = f"Folder '{self.path}'"
        known = has_label(codes)
        _warn_of_copies(main, samples.ids[known], codes[known], None if labels.groups is None else groups[known])
        labeled, held_out, pool = split_rows(where, samples.ids, codes, self.validation, self.validation_seed, groups)
        given = samples.ids[labeled]
        parts = {
            name: self.replace(**settled)._held_out_folder(name, kind, classes, main.content_of(given))
            for name in ("test", "validation")
        }
        validation = (Subset(samples, held_out), codes[held_out]) if self.validation else parts["validation"][0]
        learned = {**settled, "skipped": (*self.skipped, *skipped), "sha256": main.sha256}
        return RunData(
            labeled=(Subset(samples, labeled), codes[labeled]),
            unlabeled=Subset(samples, pool) if len(pool) else None,
            classes=classes,
            task="single" if codes.ndim == 1 else "multi",
            validation=validation,
            test=parts["test"][0],
            groups=groups[np.concatenate([labeled, pool])],
            learned=learned | {f"{name}_sha256": part[1] for name, part in parts.items()},
        )

    def read(self, path: Path, on_error: OnError = "stop") -> Source:
        """Return new files, read as those of the run; `path` is a folder with any tree, or one file."""
        return self._samples(_Files.find(path, KINDS[self.of]), on_error)[0]

    def _samples(self, files: "_Files", on_error: OnError) -> tuple[Source, tuple[str, ...], dict[str, Any]]:
        """Return the samples, the names of files that could not be read, and what was learned about reading."""
        if self.backbones:
            return files.features(self.backbones, on_error)
        reading = self.reading or KINDS[self.of].reading(list(files.paths.values()))
        return *files.decoded(reading, on_error), {"reading": reading}

    def _held_out_folder(
        self, name: str, kind: Kind, classes: list[str], learned: npt.NDArray[Any]
    ) -> tuple[tuple[Source, Codes] | None, str | None]:
        path, expected = getattr(self, f"{name}_path"), getattr(self, f"{name}_sha256")
        if path is None:
            return None, None
        files = _Files.find(path, kind, expected)
        labels = _labels_of_folders(files)
        assert labels.y is not None
        unknown = sorted(set(labels.y.tolist()) - {None, *classes})
        if unknown:
            remedy = "label some files so, or remove that folder"
            raise DataError(f"Folder '{path}' has the class {unknown[0]!r}, which no labeled file has; {remedy}.")
        codes = class_codes(labels, labels.y, classes)
        if self.labels_path is not None and (len(self.labels) > 1 or self.separator is not None):
            problem = "has one class for each folder, and the run's files have several labels"
            raise DataError(f"Folder '{path}' {problem}; hold out a share: --validation 0.2.")
        samples = self._samples(files, self.on_error)[0]
        codes = codes[positions(labels.ids.tolist(), samples.ids.tolist())]
        rows = np.flatnonzero(has_label(codes))
        same = int(np.isin(files.content_of(samples.ids[rows]), learned).sum())
        if same:
            found = f"{same} of the {len(rows)} files in '{path}' are labeled files of '{self.path}' too"
            warnings.warn(f"{found}; remove them: scores would be too good.", stacklevel=2)
        return (Subset(samples, rows), codes[rows]), files.sha256

    def _labels_of_table(self, files: "_Files", path: Path) -> Table:
        """Return the labels of all files, in their order; a file without a row is unlabeled."""
        table = read_labels(path, self.labels, self.marks, FILE, self.group)
        assert table.y is not None
        names = [str(name).removeprefix("./") for name in table.ids.tolist()]
        twice = [name for name, number in Counter(names).items() if number > 1]
        if twice:
            raise DataError(f"File '{path}' names {twice[0]!r} in two rows, with and without './'; leave one out.")
        row = {name: number for number, name in enumerate(names)}
        unknown = [name for name in row if name not in files.paths]
        if unknown:
            problem = f"names what is not among the {self.of} in '{files.root}': {listed(unknown, 3)}"
            raise DataError(f"File '{path}' {problem}; write paths as they are below that folder.")
        rows = np.array([row.get(name, -1) for name in files.paths])
        y = table.y[rows]
        y[rows < 0] = None if y.ndim == 1 else -1
        groups = None if table.groups is None else table.groups[rows]
        if groups is not None:
            groups[rows < 0] = None
        return dataclasses.replace(table, y=y, ids=np.array(list(files.paths)), groups=groups)


@dataclasses.dataclass(frozen=True)
class _Files:
    """The files of one kind in a folder.

    Attributes:
        root: the folder.
        paths: by their names, the paths below the folder with /.
        hashes: of their contents.
        versions: what distinguishes them from files that were written later; taken before they were read.
    """

    root: Path
    paths: Mapping[str, Path]
    hashes: Mapping[str, str]
    versions: Mapping[str, tuple[int, int]]

    @classmethod
    def find(cls, root: Path, kind: Kind, expected: str | None = None) -> Self:
        """Find the files of a kind; refuse a folder whose hash is not the expected one."""
        if not root.exists():
            missing = DataError(f"Folder '{root}' does not exist; check the path.")
            raise missing if expected is None else _gone("Folder", root)
        found = {path.relative_to(root).as_posix(): path for path in walk(root)} if root.is_dir() else {root.name: root}
        paths = {name: path for name, path in found.items() if path.suffix.lower() in kind.endings}
        others = [name for name in found if name not in paths]
        if not paths:
            raise DataError(f"'{root}' has no {kind.name} ({', '.join(kind.endings)}); check the path.")
        if others:
            text = f"In '{root}', files that are not {kind.name} are left out: {listed(others, 3)}."
            warnings.warn(text, stacklevel=3)
        if links := linked_folders(root):
            text = f"links to folders are not followed: {listed(links, 3)}; copy what is in them."
            warnings.warn(f"In '{root}', {text}", stacklevel=3)
        for name, path in paths.items():
            _check_name(root, name, path)
        versions = {name: _version(path) for name, path in paths.items()}
        files = cls(root, paths, {name: file_hash(path) for name, path in paths.items()}, versions)
        if expected not in (None, files.sha256):
            problem = f"its SHA-256 was {expected} and is {files.sha256}, of names and contents of {len(paths)} files"
            remedy = "Put the old files back, or start another run in another folder"
            raise ChangedFileError(f"Folder '{root}' has changed since the run began: {problem}. {remedy}.")
        return files

    @property
    def sha256(self) -> str:
        """Hash of all names and contents."""
        # As JSON, because a name may hold anything, even line ends.
        lines = "".join(f"{digest} {json.dumps(name)}\n" for name, digest in self.hashes.items())
        return hashlib.sha256(lines.encode()).hexdigest()

    def without(self, names: Sequence[str]) -> Self:
        """Return all files except these; the hash is still that of all files."""
        left_out = set(names)
        kept = {name: path for name, path in self.paths.items() if name not in left_out}
        return dataclasses.replace(self, paths=kept)

    def decoded(self, settings: DecodeSettings, on_error: OnError) -> tuple[Source, tuple[str, ...]]:
        """Return the files' samples, and the names of those that could not be read."""
        # One cache per content: files in other folders may have the same names, sizes and times.
        cache = data_folder() / "decoded" / self.sha256[:16]
        # With room for the files that are left out too, so that a resumed run finds the cache of its start.
        samples, faults = decode_files(self.paths, cache, settings, names=list(self.hashes), on_error=on_error)
        changed = [name for name, path in self.paths.items() if _version(path) != self.versions[name]]
        if changed:
            problem = f"changed while {'it was' if len(changed) == 1 else 'they were'} read"
            remedy = "start again when nothing writes to the folder any more"
            raise DataError(f"In '{self.root}', {listed(changed, 3)} {problem}; {remedy}.")
        return samples, tuple(faults)

    def features(
        self, backbones: Sequence[BackboneSettings], on_error: OnError
    ) -> tuple[Source, tuple[str, ...], dict[str, Any]]:
        """Return the files' features, the names of those that could not be read, and the completed backbones."""
        from surelabel.kinds.features import picture_features

        ids = np.array(list(self.paths))
        samples, faults, settled = picture_features(
            backbones, list(self.paths.values()), ids, self.content_of(ids).tolist(), on_error
        )
        if faults:
            found = f"{len(faults)} of {len(ids)} pictures cannot be read and are left out: {listed(list(faults))}"
            warnings.warn(f"{found}. {next(iter(faults.values()))}", stacklevel=4)
        return samples, tuple(faults), {"backbones": settled}

    def content_of(self, names: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the content hash of some of the files."""
        return np.array([self.hashes[name] for name in names.tolist()], dtype=object)


def _labels_of_folders(files: _Files) -> Table:
    """Return the class of each file: the first folder in its name."""
    tops = [name.partition("/") for name in files.paths]
    lone = [top for top, slash, _ in tops if not slash]
    if lone:
        remedy = f"put each into the folder of its class, or into '{UNLABELED}', or name a table with --labels-file"
        raise DataError(f"Folder '{files.root}' has files outside of its folders: {listed(lone, 3)}; {remedy}.")
    meant = [top for top, _, _ in tops if top != UNLABELED and top.strip().lower() in (UNLABELED, "unlabelled")]
    if meant:
        raise DataError(f"Folder '{files.root}' has a folder {meant[0]!r}; rename it to '{UNLABELED}'.")
    y = np.array([None if top == UNLABELED else top.strip() for top, _, _ in tops], dtype=object)
    nothing = np.empty((len(y), 0), dtype=np.float32)
    return Table(files.root, nothing, y, np.array(list(files.paths)), (), ("label",))


def _warn_of_copies(files: _Files, names: npt.NDArray[Any], codes: Codes, groups: npt.NDArray[Any] | None) -> None:
    """Warn about labeled files with equal bytes that have different labels or are in different groups."""
    content = group_keys(files.content_of(names))
    parts = {"has different labels": ([code.tobytes() for code in codes], "correct them")}
    if groups is not None:
        remedy = "name one group for it, or scores will be too good: it may be on both sides of a split"
        parts["is in different groups"] = (group_keys(groups).tolist(), remedy)
    for problem, (marks, remedy) in parts.items():
        pairs = set(zip(content.tolist(), marks, strict=True))
        twice = [key for key, number in Counter(key for key, _ in pairs).items() if number > 1]
        if twice:
            more = f" There are {len(twice)} such files." if len(twice) > 1 else ""
            same = listed(names[content == twice[0]].tolist(), 3)
            warnings.warn(f"The same file {problem}, as {same}; {remedy}.{more}", stacklevel=3)


def _check_name(root: Path, name: str, path: Path) -> None:
    """Refuse a name that a run could not store, and a link out of the folder."""
    if not is_text(name):
        raise DataError(f"The name of the file {str(path)!r} is not UTF-8 text; rename it.")
    check_inside(root, path)


def _version(path: Path) -> tuple[int, int]:
    """Return a file's size and time of writing; a file that is gone has none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return -1, -1
    return status.st_size, status.st_mtime_ns


def _gone(what: str, path: Path) -> DataError:
    remedy = "put it back, or name its new place: surelabel resume RUN --data FOLDER"
    return DataError(f"{what} '{path}', which the run began with, is not there any more; {remedy}.")
