"""Runs on packed pictures: a Parquet file, a folder saved by Hugging Face datasets, or WebDataset tar shards."""

import hashlib
import io
import json
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field

from surelabel.base.references import changed_file
from surelabel.base.settings import Seed, Settings
from surelabel.base.system import write_whole
from surelabel.base.text import listed
from surelabel.base.trust import Reference
from surelabel.data.decoding import MappedSource, OnError, tell, writing
from surelabel.data.images import data_folder
from surelabel.data.packed import PackedPictures, expanded, open_packed, unused_columns
from surelabel.data.pictures import PictureSettings, decode_picture, picture_size
from surelabel.data.run_data import RunData, class_codes, class_names
from surelabel.data.source import Source, Subset, positions
from surelabel.data.splits import split_rows
from surelabel.data.tables import Table
from surelabel.errors import DataError
from surelabel.kinds.backbones import BackboneSettings, PictureInput
from surelabel.kinds.pictures import usual_side


class PackedData(Settings):
    """Packed pictures; one without a label belongs to the pool.

    Attributes:
        path: what `surelabel.data.packed.open_packed` opens.
        sha256: hash of all ids, labels and pictures; `load` computes it, and refuses different content.
        labels: the label column; none: `label`, or the key.cls files of tar shards.
        id_column: the column that names the rows.
        validation: share of the labeled pictures of each class that is held out; 0: none.
        validation_seed: draws them.
        test_path: packed pictures with labels, for the test score.
        test_sha256: hash of all of them.
        on_error: "stop" refuses a picture that cannot be read; "skip" leaves it out.
        skipped: pictures that could not be read when the run began.
        reading: how pictures are read; None: chosen from some of them.
        backbones: frozen networks; their outputs, side by side, replace the samples.
    """

    of: ClassVar = "pictures"

    kind: Literal["packed"] = "packed"
    path: Path
    sha256: str | None = None
    labels: tuple[str, ...] = Field((), max_length=1)
    id_column: str | None = None
    validation: float = Field(0.0, ge=0, lt=1)
    validation_seed: Seed = 0
    test_path: Path | None = None
    test_sha256: str | None = None
    on_error: OnError = "stop"
    skipped: tuple[str, ...] = ()
    reading: PictureSettings | None = None
    backbones: tuple[BackboneSettings, ...] = ()

    def references(self) -> Iterator[Reference]:
        """Yield all code that the settings name: that of backbones."""
        for backbone in self.backbones:
            yield from backbone.references()

    def pinned(self) -> Self:
        """Return the settings with absolute paths; `load` adds the hashes, so that files are read only once."""
        test_path = None if self.test_path is None else Path.cwd() / self.test_path
        backbones = tuple(backbone.pinned() for backbone in self.backbones)
        return self.replace(path=Path.cwd() / self.path, test_path=test_path, backbones=backbones)

    def load(self) -> RunData:
        """Read the pictures; refuse content that has changed."""
        main = self._open(self.path, self.sha256)
        table = main.table()
        assert table.y is not None
        classes = class_names(table, table.y)
        samples, skipped, found = self._samples(main, self.on_error)
        kept = positions(main.names, map(str, samples.ids.tolist()))
        codes, contents = class_codes(table, table.y, classes)[kept], np.array(main.contents, dtype=object)[kept]
        where = f"'{self.path}'"
        labeled, held_out, pool = split_rows(where, samples.ids, codes, self.validation, self.validation_seed, contents)
        test, test_sha256 = self.replace(**found)._test(classes, set(contents[labeled]))
        learned = {**found, "skipped": (*self.skipped, *skipped), "sha256": main.sha256, "test_sha256": test_sha256}
        return RunData(
            labeled=(Subset(samples, labeled), codes[labeled]),
            unlabeled=Subset(samples, pool) if len(pool) else None,
            classes=classes,
            validation=(Subset(samples, held_out), codes[held_out]) if self.validation else None,
            test=test,
            groups=contents[np.concatenate([labeled, pool])],
            learned=learned,
        )

    def read(self, path: Path, on_error: OnError = "stop", id_column: str | None = None) -> Source:
        """Return new packed pictures, read as those of the run."""
        packed = open_packed(path, None, self.id_column if id_column is None else id_column or None)
        return self.replace(skipped=())._samples(_Hashed(packed), on_error)[0]

    def unused(self) -> tuple[str, ...]:
        """Return the columns of the files that nothing is learned from."""
        return unused_columns(self.path, self.labels[0] if self.labels else None, self.id_column)

    def is_own(self, path: Path) -> bool:
        """Whether a place has the pictures that the run learned from, so that names mean the same in both."""
        try:
            return self._open(path, None).sha256 == self.sha256
        except DataError:  # it lacks the run's label column
            return False

    def moved(self, path: Path) -> Self:
        """Return the settings for pictures that have moved; `load` refuses them if their content differs.

        Args:
            path: of the pictures. If those for the test are missing too, they are looked for next to them, by name.
        """
        path, test = Path.cwd() / path, self.test_path
        gone = test is not None and not all(file.exists() for file in expanded(test) or [test])
        return self.replace(path=path, test_path=path.with_name(test.name) if test is not None and gone else test)

    def _open(self, path: Path, expected: str | None) -> "_Hashed":
        if expected is not None and not path.exists() and [path] == expanded(path):
            remedy = "put it back, or name its new place: surelabel resume RUN --data PATH"
            raise DataError(f"'{path}', which the run began with, is not there any more; {remedy}.")
        hashed = _Hashed(open_packed(path, self.labels[0] if self.labels else None, self.id_column))
        if expected not in (None, hashed.sha256):
            raise changed_file(path, str(expected), hashed.sha256)
        return hashed

    def _test(self, classes: list[str], learned: set[str]) -> tuple[Any, str | None]:
        if self.test_path is None:
            return None, None
        hashed = self._open(self.test_path, self.test_sha256)
        table = hashed.table()
        assert table.y is not None
        samples, _, _ = self.replace(skipped=())._samples(hashed, self.on_error)
        kept = positions(hashed.names, map(str, samples.ids.tolist()))
        codes = class_codes(table, table.y, classes)[kept]
        rows = np.flatnonzero(codes >= 0)
        if not len(rows):
            raise DataError(f"'{self.test_path}' has no labeled picture to score; fill in the labels.")
        same = sum(hashed.contents[place] in learned for place in kept[rows])
        if same:
            found = (
                f"{same} of the {len(rows)} pictures in '{self.test_path}' are labeled pictures of '{self.path}' too"
            )
            warnings.warn(f"{found}; remove them: scores would be too good.", stacklevel=3)
        return (Subset(samples, rows), codes[rows]), hashed.sha256

    def _samples(self, hashed: "_Hashed", on_error: OnError) -> tuple[Source, tuple[str, ...], dict[str, Any]]:
        """Return the samples, the ids of pictures that could not be read, and what was learned about reading."""
        left_out = set(self.skipped)
        rows = np.array([row for row, name in enumerate(hashed.names) if name not in left_out], dtype=np.int64)
        ids, contents = hashed.packed.ids[rows], [hashed.contents[row] for row in rows]
        if self.backbones:
            from surelabel.kinds.features import compute_features

            def read(place: int, shown: PictureInput) -> npt.NDArray[np.uint8]:
                return hashed.decoded(int(rows[place]), PictureSettings(side=shown.side, fit=shown.fit))

            features, faults, settled = compute_features(self.backbones, "pictures", ids, contents, read, on_error)
            _warn(hashed.packed.path, len(ids), faults)
            return features, tuple(faults), {"backbones": settled}
        reading = self.reading or PictureSettings(side=usual_side(hashed.size, rows.tolist()))
        samples, faults = _decoded(hashed, rows, reading, on_error)
        _warn(hashed.packed.path, len(ids), faults)
        return samples, tuple(faults), {"reading": reading}


class _Hashed:
    """Packed pictures with the hash of each one's content."""

    def __init__(self, packed: PackedPictures) -> None:
        self.packed, self.names = packed, [str(name) for name in packed.ids.tolist()]
        if len(set(self.names)) < len(self.names):
            raise DataError(f"'{packed.path}' has ids that name two pictures; give each an id of its own.")
        self.contents = []
        for place in range(len(packed)):
            try:
                content = hashlib.sha256(packed.read(place)).hexdigest()
            except DataError:  # reported when it is decoded, or left out if asked for
                content = hashlib.sha256(f"unreadable {self.names[place]}".encode()).hexdigest()
            self.contents.append(content)

    @property
    def sha256(self) -> str:
        """Hash of all ids, labels and contents."""
        labels = [None] * len(self.names) if self.packed.labels is None else self.packed.labels.tolist()
        return hashlib.sha256(json.dumps([self.names, labels, self.contents]).encode()).hexdigest()

    def table(self) -> Table:
        """Return ids and labels as a table without features."""
        if self.packed.labels is None:
            raise DataError(f"'{self.packed.path}' has no column 'label'; name its label column with --label.")
        nothing = np.empty((len(self.names), 0), dtype=np.float32)
        return Table(self.packed.path, nothing, self.packed.labels, self.packed.ids, (), ("label",))

    def decoded(self, place: int, settings: PictureSettings) -> npt.NDArray[np.uint8]:
        """Return a picture's pixels."""
        data, name = self.packed.read(place), self.packed.called(place)
        if hashlib.sha256(data).hexdigest() != self.contents[place]:
            raise DataError(f"Picture '{name}' has changed while it was read; try again when nothing writes to it.")
        return decode_picture(io.BytesIO(data), settings.side, settings.fit, name=name)

    def size(self, place: int) -> tuple[int, int]:
        """Return the width and the height of a picture."""
        return picture_size(io.BytesIO(self.packed.read(place)), name=self.packed.called(place))


def _decoded(
    hashed: _Hashed, rows: npt.NDArray[np.int64], reading: PictureSettings, on_error: OnError
) -> tuple[Source, dict[str, str]]:
    """Return decoded pictures from the cache, after decoding missing ones."""
    faults, path = dict[str, str](), _cache_of(hashed, rows, reading)
    if path.exists():
        return MappedSource(path, hashed.packed.ids[rows]), faults
    pixels, progress = np.zeros((len(rows), *reading.shape), dtype=np.uint8), tell("pictures")
    for place, row in enumerate(rows.tolist()):
        try:
            pixels[place] = hashed.decoded(row, reading)
        except DataError as error:
            if on_error == "stop":
                raise DataError(f"{error} Or leave such pictures out: --on-error skip.") from error
            faults[hashed.names[row]] = str(error)
        progress(place + 1, len(rows))
    kept = np.array([place for place, row in enumerate(rows) if hashed.names[row] not in faults], dtype=np.int64)
    if not len(kept):
        raise DataError(f"None of the {len(rows)} pictures can be read. {next(iter(faults.values()))}")
    if faults:
        rows, pixels = rows[kept], pixels[kept]
        path = _cache_of(hashed, rows, reading)
    with writing(path):
        os.makedirs(path.parent, exist_ok=True)
        write_whole(path, lambda stream: np.save(stream, pixels, allow_pickle=False))
    return MappedSource(path, hashed.packed.ids[rows]), faults


def _cache_of(hashed: _Hashed, rows: npt.NDArray[np.int64], reading: PictureSettings) -> Path:
    """Return the file for the pixels of these rows."""
    key = json.dumps([reading.model_dump(mode="json"), [hashed.contents[row] for row in rows]])
    return data_folder() / "decoded" / f"packed-{hashlib.sha256(key.encode()).hexdigest()[:24]}.npy"


def _warn(path: Path, number: int, faults: dict[str, str]) -> None:
    if faults:
        found = (
            f"{len(faults)} of {number} pictures in '{path}' cannot be read and are left out: {listed(list(faults))}"
        )
        warnings.warn(f"{found}. {next(iter(faults.values()))}", stacklevel=4)
