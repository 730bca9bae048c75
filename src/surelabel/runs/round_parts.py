"""The labels of a pool in shards, in a file for each shard until the round is recorded.

A part is a SHA-256 followed by the content, which names the network and the shard. So after a crash only missing shards
are labeled again, and a damaged part counts as missing.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from surelabel.data.pool import PoolLabels
from surelabel.data.shards import Shard
from surelabel.data.source import Ids
from surelabel.data.targets import Marks
from surelabel.runs.files import make_folder, read_file, remove_file, write_file

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
    """

    def __init__(self, folder: Path, made_by: str, shards: Sequence[Shard]) -> None:
        self.folder, self.made_by, self.shards = folder, made_by, shards

    def missing(self) -> list[int]:
        """Return the numbers of the shards that are not labeled yet."""
        return [number for number in range(len(self.shards)) if not self._is_there(number)]

    def write(self, number: int, labels: PoolLabels) -> None:
        """Keep the labels of a shard, before balancing."""
        content = to_bytes(labels, self._made_of(number))
        make_folder(self.folder)
        write_file(self._path(number), hashlib.sha256(content).digest() + content)

    def read(self, number: int, ids: Ids) -> PoolLabels:
        """Return the labels of a shard that is not missing.

        Args:
            number: of the shard.
            ids: of its samples.
        """
        return from_bytes(read_file(self._path(number))[_DIGEST:], ids)

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:06d}.bin"

    def _made_of(self, number: int) -> str:
        shard = self.shards[number]
        return json.dumps([self.made_by, shard.name, shard.size])

    def _is_there(self, number: int) -> bool:
        path = self._path(number)
        if not path.exists():
            return False
        data = read_file(path)
        digest, content = data[:_DIGEST], data[_DIGEST:]
        return hashlib.sha256(content).digest() == digest and _about(content)[_MADE_OF] == self._made_of(number)


def to_bytes(labels: PoolLabels, made_of: str) -> bytes:
    """Return the labels of a shard as the content of a safetensors file, without the ids."""
    names = [item.name for item in fields(PoolLabels) if item.name not in _NO_COLUMNS]
    columns: dict[str, Any] = {name: getattr(labels, name) for name in names if getattr(labels, name) is not None}
    columns |= {"negative.rows": labels.negative.rows, "negative.bits": labels.negative.bits}
    about = {_MADE_OF: made_of, "classes": str(labels.num_classes)}
    contiguous = {name: np.ascontiguousarray(column) for name, column in columns.items()}
    return bytes(safetensors.numpy.save(contiguous, about))


def from_bytes(content: bytes, ids: Ids) -> PoolLabels:
    """Return the labels of a shard before balancing."""
    columns: dict[str, Any] = safetensors.numpy.load(content)
    rows, bits = columns.pop("negative.rows"), columns.pop("negative.bits")
    shape = len(ids), int(_about(content)["classes"])
    columns = {"uncertainty": None, "uncertainty_soft": None, **columns}
    negative = Marks.packed(rows, bits, shape)
    return PoolLabels(ids=ids, positive_before=columns["positive"], negative=negative, **columns)


def _about(content: bytes) -> dict[str, str]:
    """Return the metadata of a safetensors file; the library reads it only from files."""
    length = int.from_bytes(content[:8], "little")
    about: dict[str, str] = json.loads(content[8 : 8 + length])["__metadata__"]
    return about


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
