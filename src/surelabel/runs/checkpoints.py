"""Checkpoints in a run's folder: what a round has trained so far, until the round is done.

`rounds/003/checkpoint.bin` is a SHA-256 and the content that it is of, so that a damaged one is never gone on from.
"""

import contextlib
import hashlib
import warnings
from pathlib import Path

from surelabel.errors import RunError
from surelabel.runs.files import make_folder, read_file, remove_file, temporary_name, write_file
from surelabel.runs.layout import CHECKPOINT, round_file

_DIGEST = hashlib.sha256().digest_size


class RunCheckpoints:
    """A `CheckpointStore` in a run's folder. The caller holds the folder's lock.

    Args:
        path: the run's folder.
        minutes: how often a checkpoint is written.
    """

    def __init__(self, path: Path, minutes: float) -> None:
        self.path, self.minutes = path, minutes

    def read(self, round: int) -> bytes | None:
        """Return the content of the round's checkpoint; None where there is none, or a damaged one, which is told.

        What cannot be read at all is refused, as it could not be replaced or removed later either.
        """
        file = self.path / round_file(round, CHECKPOINT)
        if not file.exists():
            return None
        data = read_file(file, remedy="Remove it, and the round begins anew.")
        digest, content = data[:_DIGEST], data[_DIGEST:]
        if hashlib.sha256(content).digest() != digest:
            warnings.warn(f"Round {round} begins anew: its checkpoint '{file}' is damaged.", stacklevel=2)
            return None
        return content

    def write(self, round: int, data: bytes) -> None:
        """Put the content in the place of the last one; a disk that is full is told, and stops no training."""
        file = self.path / round_file(round, CHECKPOINT)
        try:
            make_folder(file.parent)
            write_file(file, hashlib.sha256(data).digest() + data)
        except RunError as error:
            with contextlib.suppress(RunError):  # a folder that cannot be written; the next part of the run tidies up
                remove_file(temporary_name(file))
            warnings.warn(
                f"Round {round} trains on without a new checkpoint ({error.__cause__}). Free some space, or a crash "
                "loses what it has done since the last one.",
                stacklevel=2,
            )
