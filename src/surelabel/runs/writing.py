"""Writing a run folder: a round's files first, then history.json, which alone says that the round is done.

Whatever a crash leaves behind before that is written again when the run is resumed; a model that is no longer needed is
removed only after it. The caller holds the folder's lock.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np

from surelabel._version import __version__
from surelabel.base.trust import sign
from surelabel.data.pool import PoolLabels
from surelabel.errors import RunError
from surelabel.records import RoundRecord
from surelabel.runs.documents import Entry
from surelabel.runs.environment import describe_environment
from surelabel.runs.files import is_temporary, make_folder, remove_file, write_file, write_json
from surelabel.runs.layout import (
    CHECKPOINT,
    ENVIRONMENT,
    HISTORY,
    MODELS,
    NEGATIVES,
    POOL,
    ROUNDS,
    RUN,
    SPLIT,
    VALIDATION,
    VALIDATION_NEGATIVES,
    round_file,
)
from surelabel.runs.models import canonical
from surelabel.runs.reading import RunFolder, settled
from surelabel.runs.tables import Codes, table_bytes, to_tables
from surelabel.settings import RunSettings


class RunWriter:
    """Adds rounds to a run folder.

    Args:
        path: the folder.
        settings: the run's settings.
        entries: the rounds that are done.
        truth: the pool's labels where known, as given.
        validation_truth: the validation set's labels.
    """

    def __init__(
        self,
        path: Path,
        settings: RunSettings,
        entries: list[Entry],
        truth: Codes | None,
        validation_truth: Codes | None,
    ) -> None:
        self.path, self.settings, self.entries = path, settings, entries
        self.truth, self.validation_truth = truth, validation_truth

    @classmethod
    def begin(
        cls,
        path: Path,
        settings: RunSettings,
        learner: Any,
        split: dict[str, Any],
        truth: Codes | None,
        validation_truth: Codes | None,
    ) -> Self:
        """Write the files of a run without rounds; run.json comes last and makes the folder a run."""
        tidy(path, [])
        write_json(path / ENVIRONMENT, {"entries": [describe_environment(learner)]})
        write_json(path / HISTORY, {"rounds": []})
        write_json(path / SPLIT, split)
        write_settings(path, settings)
        return cls(path, settings, [], truth, validation_truth)

    @classmethod
    def go_on(
        cls, run: RunFolder, settings: RunSettings, learner: Any, truth: Codes | None, validation_truth: Codes | None
    ) -> Self:
        """Clear away what a crash left behind, and note settings and environment of this part of the run."""
        entries = [*run.environment, describe_environment(learner)]  # first: a damaged file leaves the run as it was
        prepare(run, settings)
        write_json(run.path / ENVIRONMENT, {"entries": entries})
        return cls(run.path, settings, settled_entries(run, settings), truth, validation_truth)

    def keep(self, records: Iterable[RoundRecord], learner: Any) -> Iterator[RoundRecord]:
        """Yield each record once its round is safely on the disk."""
        for record in records:
            self.commit(record, learner)
            yield record

    def commit(self, record: RoundRecord, learner: Any) -> None:
        """Write a round's files, then history.json; then remove the model that it replaces."""
        make_folder(self.path / round_file(record.round, ""))
        contents = self._contents(record, learner)
        files = {name: write_file(self.path / name, data) for name, data in contents}
        earlier = self.entries if self.settings.keep_models == "all" else [_without_model(e) for e in self.entries]
        self.entries = [*earlier, {**record.numbers(), "files": files}]
        write_json(self.path / HISTORY, {"rounds": self.entries})
        remove_unneeded(self.path, self.entries)

    def _contents(self, record: RoundRecord, learner: Any) -> Iterator[tuple[str, bytes]]:
        parts = (
            (record.pool, self._pool_truth(record.pool), POOL, NEGATIVES),
            (record.validation, self.validation_truth, VALIDATION, VALIDATION_NEGATIVES),
        )
        for labels, truth, name, negatives_name in parts:
            if labels is not None:
                table, negatives = to_tables(labels, self.settings.classes, truth)
                yield round_file(record.round, name), table_bytes(table)
                yield round_file(record.round, negatives_name), table_bytes(negatives)
        if hasattr(learner, "to_bytes"):
            yield round_file(record.round, learner.model_file), canonical(learner.model_file, learner.to_bytes())

    def _pool_truth(self, pool: PoolLabels | None) -> Codes | None:
        """The truth of each pool row; partly labeled rows come first and are not judged."""
        if self.truth is None or pool is None:
            return None
        unknown = np.full((len(pool) - len(self.truth), *self.truth.shape[1:]), -1)
        return np.concatenate([unknown, self.truth])


def write_settings(path: Path, settings: RunSettings, *, signed: bool = True) -> None:
    """Write run.json, signed by this user unless the settings are of someone else."""
    values = settings.to_json()
    signature = sign(values) if signed else None
    content = {"format": settings.format, "version": __version__, "settings": values}
    write_json(path / RUN, content if signature is None else {**content, "signature": signature})


def prepare(run: RunFolder, settings: RunSettings) -> None:
    """Clear away what a crash left behind and write settings that have changed (the limits)."""
    tidy(run.path, run.entries)
    if settings != run.settings:
        # Other limits do not make the code that someone else's run names this user's own.
        write_settings(run.path, settings, signed=run.signed)


def close(run: RunFolder, settings: RunSettings) -> None:
    """Bring a finished run up to date: what a crash left behind, and new limits that end it where it is."""
    prepare(run, settings)
    entries = settled_entries(run, settings)
    if entries != run.entries:
        write_json(run.path / HISTORY, {"rounds": entries})


def settled_entries(run: RunFolder, settings: RunSettings) -> list[Entry]:
    """Return the history with the last round's stop as it is under these settings."""
    if not run.entries:
        return []
    stop = settled(run.records(), settings.config).stop
    return [*run.entries[:-1], {**run.entries[-1], "stop": stop}]


def tidy(path: Path, entries: list[Entry]) -> None:
    """Remove temporary files and what finished rounds do not need; other files are not ours to remove."""
    rounds = [path / ROUNDS, *(path / ROUNDS).glob("*")]
    links = [folder for folder in rounds if folder.is_symlink()]
    if links:
        raise RunError(
            f"'{links[0]}' is a symbolic link, and a run is written in its own folder only. Put the folder that it "
            "points to in its place."
        )
    for folder in (path, *rounds):
        if folder.is_dir():
            for file in [file for file in folder.iterdir() if is_temporary(file)]:
                remove_file(file)
    remove_unneeded(path, entries)


def remove_unneeded(path: Path, entries: list[Entry]) -> None:
    """Remove the checkpoints of finished rounds, and their models that history.json does not list."""
    for entry in entries:
        for name in (round_file(entry["round"], file) for file in (CHECKPOINT, *MODELS)):
            if name not in entry["files"] and (path / name).exists():
                remove_file(path / name)


def _without_model(entry: Entry) -> Entry:
    files = {name: value for name, value in entry["files"].items() if Path(name).name not in MODELS}
    return {**entry, "files": files}
