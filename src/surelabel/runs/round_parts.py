"""The labels of a pool in shards, in a file for each shard until the round is recorded.

A part is a SHA-256 followed by the content, which names the network and the shard. So after a crash only missing shards
are labeled again. A part that is damaged, or makes no sense, counts as missing.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from surelabel.core.arrays import ROUNDING
from surelabel.core.labels import Task
from surelabel.data.pool import PoolLabels
from surelabel.data.shards import Shard
from surelabel.data.source import Ids
from surelabel.data.targets import Marks
from surelabel.runs.files import damaged, make_folder, read_file, remove_file, write_file

FOLDER = "parts"
"""The name of their folder within that of a round."""

_DIGEST = hashlib.sha256().digest_size
_MADE_OF = "made of"
_NO_COLUMNS = ("ids", "negative", "left_out", "positive_before")


class LabelParts:
    """The parts of one round.

    Args:
        folder: of the parts.
        made_by: a hash of the network and everything else that labels depend on, except the samples.
        shards: of the pool.
        ids: of the samples of each shard.
        num_classes: C.
        task: "single" or "multi".
    """

    def __init__(
        self, folder: Path, made_by: str, shards: Sequence[Shard], ids: Sequence[Ids], num_classes: int, task: Task
    ) -> None:
        self.folder, self.made_by, self.shards, self.ids = folder, made_by, shards, ids
        self.num_classes, self.task = num_classes, task

    def missing(self) -> list[int]:
        """Return the numbers of the shards that are not labeled yet."""
        judged = {number: self._has_uncertainty(number) for number in range(len(self.shards))}
        # One network gives uncertainties to all samples or to none.
        least = any(judged.values())
        return [number for number, has in judged.items() if has is None or has < least]

    def _has_uncertainty(self, number: int) -> bool | None:
        labels = self._found(number)
        return None if labels is None else labels.uncertainty is not None

    def write(self, number: int, labels: PoolLabels) -> None:
        """Keep the labels of a shard, before balancing."""
        content = to_bytes(labels, self._made_of(number))
        make_folder(self.folder)
        write_file(self._path(number), hashlib.sha256(content).digest() + content)

    def read(self, number: int) -> PoolLabels:
        """Return the labels of a shard that is not missing."""
        labels = self._found(number)
        if labels is None:
            raise damaged(self._path(number), "it has changed since it was written", "Remove it, then try again.")
        return labels

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:06d}.bin"

    def _made_of(self, number: int) -> str:
        shard = self.shards[number]
        return json.dumps([self.made_by, shard.name, shard.size])

    def _found(self, number: int) -> PoolLabels | None:
        """Return the labels of a shard; None where there are none, or a stranger's that make no sense."""
        path = self._path(number)
        if not path.exists():
            return None
        data = read_file(path)
        digest, content = data[:_DIGEST], data[_DIGEST:]
        if hashlib.sha256(content).digest() != digest:
            return None
        try:
            if _made_of(content) != self._made_of(number):
                return None
            labels = from_bytes(content, self.ids[number], self.num_classes)
            return labels if makes_sense(labels, self.task) else None
        except (SafetensorError, ValueError, TypeError, KeyError, RecursionError):
            return None


def to_bytes(labels: PoolLabels, made_of: str) -> bytes:
    """Return the labels of a shard as the content of a safetensors file, without the ids."""
    names = [item.name for item in fields(PoolLabels) if item.name not in _NO_COLUMNS]
    columns: dict[str, Any] = {name: getattr(labels, name) for name in names if getattr(labels, name) is not None}
    columns |= {"negative.rows": labels.negative.rows, "negative.bits": labels.negative.bits}
    contiguous = {name: np.ascontiguousarray(column) for name, column in columns.items()}
    return bytes(safetensors.numpy.save(contiguous, {_MADE_OF: made_of}))


def from_bytes(content: bytes, ids: Ids, num_classes: int) -> PoolLabels:
    """Return the labels of a shard before balancing."""
    columns: dict[str, Any] = safetensors.numpy.load(content)
    rows, bits = columns.pop("negative.rows"), columns.pop("negative.bits")
    columns = {"uncertainty": None, "uncertainty_soft": None, **columns}
    negative = Marks.packed(rows, bits, (len(ids), num_classes))
    return PoolLabels(ids=ids, positive_before=columns["positive"], negative=negative, **columns)


def makes_sense(labels: PoolLabels, task: Task) -> bool:
    """Whether arrays that were read are labels of so many samples and classes."""
    num_rows, num_classes = labels.negative.shape
    wide = task == "multi"
    shape = (num_rows, num_classes) if wide else (num_rows,)
    confidences = [labels.confidence, labels.confidence_soft]
    floats = [*confidences, *(u for u in (labels.uncertainty, labels.uncertainty_soft) if u is not None)]
    rows, bits = labels.negative.rows, labels.negative.bits
    return bool(
        all(column.shape == shape for column in (labels.label, labels.positive, *floats))
        and labels.label.dtype.kind in "iu"
        and labels.positive.dtype == bool
        and all(column.dtype.kind == "f" and (column >= 0).all() and np.isfinite(column).all() for column in floats)
        and (labels.uncertainty is None) == (labels.uncertainty_soft is None)
        and all((p <= 1 + ROUNDING).all() for p in confidences)
        and ((labels.label >= 0) & (labels.label < (2 if wide else num_classes))).all()
        and rows.ndim == 1
        and bits.dtype == np.uint8
        and bits.shape == (len(rows), -(-num_classes // 8))
        and (np.diff(rows, prepend=-1, append=num_rows) > 0).all()
    )


def _made_of(content: bytes) -> str:
    """Return the note in the metadata of a safetensors file; the library reads these only from files."""
    length = int.from_bytes(content[:8], "little")
    made_of: str = json.loads(content[8 : 8 + length])["__metadata__"][_MADE_OF]
    return made_of


def made_by(weights: bytes, *others: Any) -> str:
    """Return the hash of a network and everything else that labels depend on, for `LabelParts`."""
    digest = hashlib.sha256(weights)
    digest.update(json.dumps(others).encode())
    return digest.hexdigest()


def remove_parts(round_folder: Path) -> None:
    """Remove the parts of a round that is recorded."""
    folder = round_folder / FOLDER
    if folder.is_symlink() or not folder.is_dir():
        return
    for file in folder.glob("*.bin*"):
        remove_file(file)
    if not any(folder.iterdir()):
        folder.rmdir()
