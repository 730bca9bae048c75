"""Writing a run folder: a round's files first, then history.json, which marks the round as done.

Of several processes that train together, the first one writes, and the others wait for it.

Files that a crash leaves behind before that are written again when the run is resumed; a model that is no longer needed
is removed only afterwards. The caller holds the folder's lock.

Equal models give equal files. A safetensors file has only numbers and names. A skops file is a zip archive whose schema
names objects by their memory addresses and whose members have times: addresses are replaced by the order of appearance,
times by a constant. `rounds/003/checkpoint.bin`, the state of a training, is a SHA-256 followed by the content, so that
a damaged one is never used.
"""

import contextlib
import functools
import hashlib
import io
import json
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Self

import numpy as np

from surelabel._version import __version__
from surelabel.base.processes import locked
from surelabel.base.together import processes_of
from surelabel.base.trust import sign
from surelabel.core.arrays import to_numpy
from surelabel.data.pool import PoolLabels
from surelabel.data.run_data import RunData
from surelabel.data.targets import Codes
from surelabel.engine.parallel import processes
from surelabel.errors import RunError
from surelabel.records import RoundRecord
from surelabel.runs import layout
from surelabel.runs.environment import describe_environment
from surelabel.runs.files import (
    is_temporary,
    make_folder,
    read_file,
    remove_file,
    write_file,
    write_json,
    write_streams,
)
from surelabel.runs.layout import CHECKPOINT, ENVIRONMENT, HISTORY, MODELS, Entry, round_file
from surelabel.runs.reading import RunFolder, stop_of
from surelabel.runs.round_parts import FOLDER as PARTS
from surelabel.runs.round_parts import remove_parts
from surelabel.runs.tables import write_tables
from surelabel.settings import RunSettings

_DIGEST = hashlib.sha256().digest_size


@contextlib.contextmanager
def locked_run(path: Path) -> Iterator[None]:
    """Make a run's folder and hold its lock; of several processes, the first one holds it for all."""
    with contextlib.ExitStack() as held:

        def hold() -> None:
            make_folder(path)
            held.enter_context(locked(path / layout.LOCK_FILE))

        processes().only_first(hold)
        yield


@dataclass
class RunWriter:
    """Adds rounds to a run folder.

    Attributes:
        path: the folder.
        settings: the run's settings.
        learner: whose model each round keeps, if it has `to_bytes`.
        data: of the run; the tables hold its known labels.
        entries: the rounds that are done.
    """

    path: Path
    settings: RunSettings
    learner: Any
    data: RunData
    entries: list[Entry]

    @classmethod
    def begin(cls, path: Path, settings: RunSettings, learner: Any, data: RunData, split: dict[str, Any]) -> Self:
        """Write the files of a run without rounds; run.json comes last and makes the folder a run."""

        def write() -> None:
            tidy(path, [])
            write_json(path / ENVIRONMENT, {"entries": [describe_environment(learner)]})
            write_json(path / HISTORY, {"rounds": []})
            write_json(path / layout.SPLIT, split)
            for name, content in data.files.items():
                write_file(path / name, content)
            write_settings(path, settings)

        processes_of(learner).only_first(write)
        return cls(path, settings, learner, data, [])

    @classmethod
    def go_on(cls, run: RunFolder, settings: RunSettings, learner: Any, data: RunData) -> Self:
        """Remove what a crash left behind, and write the settings and environment of this part of the run."""

        def write() -> list[Entry]:
            entries = [
                *run.environment,
                describe_environment(learner),
            ]  # first, so that a damaged file leaves the run unchanged
            settled = prepare(run, settings)
            write_json(run.path / ENVIRONMENT, {"entries": entries})
            return settled

        return cls(run.path, settings, learner, data, processes_of(learner).by_first(write))

    def keep(self, records: Iterator[RoundRecord]) -> Iterator[RoundRecord]:
        """Yield each record once its round is safely on the disk.

        Meanwhile the network in training is saved in the folder from time to time.
        """
        learner = self.learner
        minutes = self.settings.checkpoint_minutes if hasattr(learner, "checkpoints") else None
        while True:
            # Not between two records, when another run with the same learner may train.
            if minutes is not None:
                kept = RunCheckpoints(self.path, minutes, at_end=self.settings.pool is not None)
                before, learner.checkpoints = learner.checkpoints, kept
            try:
                record = next(records, None)
            finally:
                if minutes is not None:
                    learner.checkpoints = before
            if record is None:
                return
            processes_of(learner).only_first(functools.partial(self.commit, record))
            yield record
            del record  # its pool would stay in memory while the next network trains

    def commit(self, record: RoundRecord) -> None:
        """Write a round's files, then history.json; then remove the model that it replaces."""
        make_folder(self.path / round_file(record.round, ""))
        files = self._write_tables(record)
        if hasattr(self.learner, "to_bytes"):
            name, model = round_file(record.round, self.learner.model_file), self.learner.to_bytes()
            model = canonical_skops(model) if name.endswith(".skops") else model
            files[name] = write_file(self.path / name, model)
        # Round 0 may turn out to be the best in a comparison, now or after more rounds.
        num_kept = (
            len(self.entries) if self.settings.keep_models == "all" else int(self.settings.comparison is not None)
        )
        earlier = self.entries[:num_kept] + [_without_model(entry) for entry in self.entries[num_kept:]]
        self.entries = [*earlier, {**record.numbers(), "files": files}]
        write_json(self.path / HISTORY, {"rounds": self.entries})
        remove_unneeded(self.path, self.entries)

    def _write_tables(self, record: RoundRecord) -> dict[str, str]:
        """Write the tables of the pool and of the validation set; return their checksums by name."""
        files: dict[str, str] = {}
        if record.pool is not None:
            names = layout.POOL, layout.NEGATIVES
            files |= self._write_pair(record.round, names, record.pool, self._pool_truth(record.pool))
        if record.validation is not None and self.data.validation is not None:
            names = layout.VALIDATION, layout.VALIDATION_NEGATIVES
            truth = to_numpy(self.data.validation[1])
            files |= self._write_pair(record.round, names, record.validation, truth)
        return files

    def _write_pair(
        self, round: int, names: tuple[str, str], labels: PoolLabels, truth: Codes | None
    ) -> dict[str, str]:
        files = [round_file(round, name) for name in names]
        write = functools.partial(write_tables, labels, self.settings.classes, truth)
        return dict(zip(files, write_streams([self.path / file for file in files], write), strict=True))

    def _pool_truth(self, pool: PoolLabels) -> Codes | None:
        """The true label of each pool row; partly labeled rows come first and are not judged."""
        if self.data.truth is None:
            return None
        truth = to_numpy(self.data.truth)
        unknown = np.full((len(pool) - len(truth), *truth.shape[1:]), -1)
        return np.concatenate([unknown, truth])


def write_settings(path: Path, settings: RunSettings, *, signed: bool = True) -> None:
    """Write run.json, signed by this user unless the settings are someone else's."""
    values = settings.to_json()
    signature = sign(values) if signed else None
    content = {"format": layout.FORMAT, "version": __version__, "settings": values}
    write_json(path / layout.RUN, content if signature is None else {**content, "signature": signature})


def prepare(run: RunFolder, settings: RunSettings) -> list[Entry]:
    """Bring a run up to date: remove what a crash left behind, and write what new limits change.

    The format is updated too, before anything is written that an earlier version cannot read.

    Return the history with the last round's reason to stop under these settings.
    """
    tidy(run.path, run.entries)
    if settings != run.settings or run.format < layout.FORMAT:
        # New limits are no reason to sign the code that someone else's run names.
        write_settings(run.path, settings, signed=run.signed)
    stop = stop_of(run.records(), settings.config)
    entries = [*run.entries[:-1], *({**entry, "stop": stop} for entry in run.entries[-1:])]
    if entries != run.entries:
        write_json(run.path / HISTORY, {"rounds": entries})
    return entries


def tidy(path: Path, entries: list[Entry]) -> None:
    """Remove temporary files and what finished rounds do not need, but no other files."""
    places, patterns = [path / layout.ROUNDS, path / layout.FOLDS], ("*", f"*/{PARTS}")
    rounds = [*places, *(folder for place in places for pattern in patterns for folder in place.glob(pattern))]
    for folder in rounds:
        if folder.is_symlink():
            raise RunError(f"'{folder}' is a symbolic link; put the folder that it points to in its place.")
    for folder in (path, *rounds):
        if folder.is_dir():
            for file in [file for file in folder.iterdir() if is_temporary(file)]:
                remove_file(file)
    remove_unneeded(path, entries)


def remove_unneeded(path: Path, entries: list[Entry]) -> None:
    """Remove the checkpoints and parts of finished rounds, and their models that history.json does not list."""
    for entry in entries:
        for name in (round_file(entry["round"], file) for file in (CHECKPOINT, *MODELS)):
            if name not in entry["files"] and (path / name).exists():
                remove_file(path / name)
        remove_parts(path / round_file(entry["round"], ""))


def _without_model(entry: Entry) -> Entry:
    files = {name: value for name, value in entry["files"].items() if Path(name).name not in MODELS}
    return {**entry, "files": files}


class RunCheckpoints:
    """A `CheckpointStore` in a run's folder. The caller holds the folder's lock.

    Args:
        path: the run's folder.
        minutes: how often a checkpoint is written.
        at_end: whether a network that is fully trained is written too.
    """

    def __init__(self, path: Path, minutes: float, at_end: bool = False) -> None:
        self.path, self.minutes, self.at_end = path, minutes, at_end

    def read(self, round: int) -> bytes | None:
        """Return the content of the round's checkpoint; None if there is none, or if it is damaged, with a warning.

        An unreadable file is refused: it could not be replaced or removed later either.
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
        """Replace the last checkpoint; a full disk gives a warning and does not stop the training."""
        file = self.path / round_file(round, CHECKPOINT)
        try:
            make_folder(file.parent)
            write_file(file, hashlib.sha256(data).digest() + data)
        except RunError as error:
            problem = f"Round {round} trains on without a new checkpoint ({error.__cause__})"
            warnings.warn(f"{problem}. Free some space, or a crash loses more of the round.", stacklevel=2)


def canonical_skops(data: bytes) -> bytes:
    """Return a skops file without anything that depends on the moment of writing."""
    ids: dict[int, int] = {}
    files: dict[str, str] = {}

    def renumbered(node: dict[str, Any]) -> dict[str, Any]:
        if isinstance(number := node.get("__id__"), int):
            node["__id__"] = ids.setdefault(number, len(ids) + 1)
        if isinstance(name := node.get("file"), str):
            node["file"] = files.setdefault(name, f"{len(files)}{PurePosixPath(name).suffix}")
        return node

    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as target:
        schema = json.loads(source.read("schema.json"), object_hook=renumbered)
        members = {new: source.read(old) for old, new in files.items()}
        for name, content in {**members, "schema.json": json.dumps(schema, indent=1).encode()}.items():
            # The earliest time that a zip archive can hold, instead of the current time.
            member = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            target.writestr(member, content, compress_type=zipfile.ZIP_DEFLATED)
    return out.getvalue()
