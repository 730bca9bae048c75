"""Reading a run folder: every file is checked against its checksum, and nothing is ever written or executed.

Only `RunFolder.learner` and `RunFolder.data` run code that the settings name, once `RunFolder.check_code` lets it pass.
"""

import dataclasses
import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from surelabel.data.draws import seed_for
from surelabel.data.pool import PoolLabels, join, label_chunk, selected_since
from surelabel.data.run_data import RunData, TableData
from surelabel.data.shards import is_address
from surelabel.data.source import Source
from surelabel.data.table_encoding import TEXTS
from surelabel.data.targets import Codes
from surelabel.errors import DamagedFileError, RunError, UntrustedCodeError
from surelabel.learners.settings import TorchLearnerSettings
from surelabel.learners.shard_labels import Labeling
from surelabel.records import RoundRecord, StopReason
from surelabel.runs import layout
from surelabel.runs.comparison import Candidate, Comparison
from surelabel.runs.files import damaged, read_file
from surelabel.runs.layout import NEGATIVES, POOL, RUN, VALIDATION, VALIDATION_NEGATIVES, Entry, round_file
from surelabel.runs.model import Model
from surelabel.runs.new_files import read_files
from surelabel.runs.pool import with_pool
from surelabel.runs.tables import Table, check_table, from_tables, table_from_bytes, truth_codes
from surelabel.settings import RunSettings, UPSConfig


@dataclass(frozen=True, eq=False)
class RunFolder:
    """A run's settings, history, tables and model, as they were when it was opened.

    Attributes:
        path: the folder.
        settings: everything that the run was made from.
        version: the version of surelabel that wrote it.
        entries: the finished rounds, as in history.json.
        trust_code: whether any code that the settings name may run, because this user has signed them or allows it.
        signed: whether this user has signed the settings.
        format: of the folder.
    """

    path: Path
    settings: RunSettings
    version: str
    entries: list[Entry]
    trust_code: bool = False
    signed: bool = False
    format: int = layout.FORMAT
    _ids: dict[str, Any] = field(default_factory=dict, init=False, repr=False)
    _seen: dict[str, Comparison | None] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, trust_code: bool = False) -> Self:
        """Read and check run.json and history.json; the tables are read when they are asked for.

        Args:
            path: the folder.
            trust_code: let `learner` and `data` run any code that the settings name, even if you have not signed them;
                for runs of people whom you trust.
        """
        path = Path(path)
        read = layout.read_settings(path)
        entries = layout.read_history(path, len(read.settings.classes))
        return cls(path, read.settings, read.version, entries, trust_code or read.signed, read.signed, read.format)

    def reopened(self) -> Self:
        """Return the run with the rounds that are done by now; refuse it if its settings have changed.

        What was checked, trusted and signed is taken from the first reading.
        """
        now = self.open(self.path)
        if now.settings != self.settings:
            raise RunError(f"The settings of the run in '{self.path}' have changed since it was opened. Try again.")
        return dataclasses.replace(self, entries=now.entries)

    def called(self, name: str) -> Self:
        """Return the run under another name, such as that of its row in a table."""
        return dataclasses.replace(self, settings=self.settings.replace(name=name))

    def asked_for(self, settings: RunSettings) -> Self:
        """Return the run with its code trusted if the user's own settings name the same code."""
        same = all(
            getattr(self.settings, part) == getattr(settings, part) for part in ("learner", "data", "comparison")
        )
        return dataclasses.replace(self, trust_code=self.trust_code or same)

    def check_code(self) -> None:
        """Refuse a run whose settings name code that is neither trusted nor listed, before anything is imported.

        Listed networks that would fill the memory are refused, and so are backbones whose files have changed, trusted
        or not: with all features in the cache, nothing else would open these files.
        """
        if not self.trust_code:
            self._check_listed()
        for backbone in getattr(self.settings.data, "backbones", ()):
            backbone.pinned()

    def check_pool(self) -> None:
        """Refuse a pool in an object store that the settings name and this user has neither signed nor named."""
        pool = self.settings.pool
        remote = pool is not None and is_address(pool.place) and not pool.place.lower().startswith("file:")
        if pool is not None and remote and not self.trust_code:
            named = f"names the pool '{pool.place}', to be read with your credentials, and is not signed by you"
            remedy = "Name it yourself (surelabel resume RUN --pool PLACE), or allow it with --trust-code"
            raise UntrustedCodeError(f"File '{self.path / RUN}' {named}. {remedy}.")

    def _check_listed(self) -> None:
        for reference in self.settings.references():
            if not reference.is_listed:
                remedy = "If you trust those who made it, allow it with --trust-code (trust_code=True in Python)"
                code = f"names the code {reference.name!r}, and the run is not signed by you"
                raise UntrustedCodeError(f"File '{self.path / RUN}' {code}. {remedy}.")
        if isinstance(self.settings.learner, TorchLearnerSettings):
            self.settings.learner.check_size(self.settings.sample_shape, len(self.settings.classes))

    @property
    def environment(self) -> list[dict[str, Any]]:
        """Versions, machine and command line, an entry for each start and resume."""
        entries: list[dict[str, Any]] = layout.read_document(self.path, layout.ENVIRONMENT)["entries"]
        return entries

    @property
    def num_rounds(self) -> int:
        """How many rounds are done, round 0 included."""
        return len(self.entries)

    @property
    def finished(self) -> bool:
        """Whether the run has ended, so that resuming it would do nothing."""
        return stop_of(self.records(), self.settings.config) is not None

    def records(self) -> list[RoundRecord]:
        """Return the record of each finished round, without its tables."""
        return [RoundRecord(**{name: entry[name] for name in entry if name != "files"}) for entry in self.entries]

    def split(self) -> dict[str, Any] | None:
        """Return the ids of "labeled" and "validation" samples and their "hash"; None for a run without split.json."""
        return layout.read_document(self.path, layout.SPLIT) if (self.path / layout.SPLIT).exists() else None

    def pool(self, round: int = -1) -> PoolLabels:
        """Return the pool as labeled by this round's network, with the next round's selection."""
        return self._labels(round, POOL, NEGATIVES)

    def selected_since(self, entries: bool = False) -> npt.NDArray[np.int64]:
        """Return the round since which every round has learned from each pool sample's label, (N,).

        -1: the last round did not learn from it. With several labels, a sample counts if it has a positive one.

        Args:
            entries: with several labels per sample, return it for each class, present or absent, (N, C).
        """
        first = self.pool(0)
        since = np.full((len(first), first.negative.num_classes) if entries else len(first), -1, dtype=np.int64)
        for round in range(1, self.num_rounds):
            pool = self.pool(round - 1)
            by_sample = pool.positive.reshape(len(pool), -1).any(axis=1)
            chosen = np.asarray(pool.positive | pool.negative[:] if entries else by_sample)
            since = selected_since(since, chosen, round)
        return since

    def validation(self, round: int = -1) -> PoolLabels:
        """Return the validation set as labeled by this round's network."""
        return self._labels(round, VALIDATION, VALIDATION_NEGATIVES)

    def pool_table(self, round: int = -1) -> Table:
        """Return rounds/NNN/pool.parquet, a pyarrow.Table; -1 is the last finished round."""
        return self.table(POOL, round)

    def table(self, name: str, round: int = -1) -> Table:
        """Return one of a round's tables, by its file's name: "pool.parquet", "negatives.parquet" and so on."""
        entry = self._entry(round)
        key = round_file(entry["round"], name)
        if key not in entry["files"]:
            without = "unlabeled samples" if name in (POOL, NEGATIVES) else "a validation set"
            raise RunError(f"The run in '{self.path}' has no {key}: it was made without {without}.")
        negatives = name in (NEGATIVES, VALIDATION_NEGATIVES)
        try:
            table = table_from_bytes(self._read(entry, key))
            check_table(table, self.settings.config.task, self.settings.classes, negatives=negatives)
        except (ValueError, RecursionError) as error:
            raise damaged(self.path / key, error) from error
        # Rounds with other samples could not be compared, and labels would go to the wrong samples.
        if not negatives and not self._ids.setdefault(name, table["id"]).equals(table["id"]):
            raise damaged(self.path / key, "its ids are not those of another round")
        return table

    @property
    def has_pool(self) -> bool:
        """Whether the run has unlabeled samples (and a finished round); with all labels known, round 0 needs none."""
        return bool(self.entries) and round_file(0, POOL) in self.entries[0]["files"]

    @property
    def has_validation(self) -> bool:
        """Whether the run has a validation set (and a finished round)."""
        return bool(self.entries) and round_file(0, VALIDATION) in self.entries[0]["files"]

    @functools.cached_property
    def truth(self) -> Codes | None:
        """The pool's true labels, (N,) or (N, C), with -1 where unknown; None if all are unknown, or without a pool."""
        return truth_codes(self.table(POOL)) if self.has_pool else None

    @functools.cached_property
    def validation_truth(self) -> Codes | None:
        """The validation set's true labels, (N,) or (N, C), with -1 where unknown; None without a validation set."""
        return truth_codes(self.table(VALIDATION)) if self.has_validation else None

    def comparison(self) -> Comparison | None:
        """Return how the models of the finished rounds compare; None if they have not been compared."""
        found = Comparison.read(self.path, self.settings, self.num_rounds - 1) if self.entries else None
        # As long as its file is unchanged, it is the same object, which reads its tables once.
        before = self._seen.get(layout.COMPARISON)
        self._seen[layout.COMPARISON] = found = before if found == before else found
        return found

    def finished_comparison(self) -> Comparison | None:
        """Return the comparison if it has chosen the kept model, else None."""
        found = self.comparison()
        return found if found is not None and found.kept is not None else None

    @property
    def kept(self) -> Candidate:
        """Which model `learner` returns: the one that the comparison chose, else that of the last round."""
        comparison = self.comparison()
        return "last" if comparison is None else comparison.kept or "last"

    def label_thresholds(self) -> dict[str, float]:
        """Return the thresholds for the kept model's labels: those of the rounds, or those of a promise."""
        thresholds, comparison = self.settings.config.thresholds, self.comparison()
        promise = None if comparison is None else comparison.promise
        if promise is None or promise.tau_p is None or promise.kappa_p is None:
            return thresholds
        tau_n = min(thresholds["tau_n"], promise.tau_p)
        return {**thresholds, "tau_p": promise.tau_p, "kappa_p": promise.kappa_p, "tau_n": tau_n}

    def label(self, learner: Any, samples: Source) -> PoolLabels:
        """Label samples with the kept model of `learner`, as the loop labels the pool before balancing."""
        how = self.labeling()
        chunks = learner.predict(samples, seed=seed_for(how.seed, how.network, "predict"))
        return join([label_chunk(chunk, how.task, how.thresholds, how.negatives) for chunk in chunks])

    def labeling(self) -> Labeling:
        """Return how the kept model labels samples."""
        config, network = self.settings.config, 0 if self.kept == "first" else self.num_rounds - 1
        return Labeling(
            task=config.task,
            num_classes=len(self.settings.classes),
            thresholds=self.label_thresholds(),
            negatives=config.negatives,
            seed=config.seed,
            network=network,
        )

    def learner(self, trusted: tuple[str, ...] = ()) -> Any:
        """Return the learner that the settings name, with the kept model.

        That is the last finished round's, unless a comparison has chosen another.

        Args:
            trusted: types in a skops file that you know to be safe.
        """
        return self.kept_model(trusted).learner()

    def kept_model(self, trusted: tuple[str, ...] = ()) -> Model:
        """Return the kept model, which can be built here or in other processes; its code is checked here.

        Args:
            trusted: types in a skops file that you know to be safe.
        """
        comparison, settings = self.comparison(), self.settings.learner
        if comparison is not None and comparison.kept == "linear":
            self.check_code()
            assert self.settings.comparison is not None
            made_by, path = self.settings.comparison.linear, self.path / layout.LINEAR_MODEL
            return Model(made_by, comparison.linear_model(), path, self.settings, trusted)
        if settings is None:
            way = f"make it again in Python and call surelabel.RunFolder.open({str(self.path)!r}).load_model(learner)"
            raise RunError(f"The run in '{self.path}' was made with a learner in memory; {way}.")
        self.check_code()
        if isinstance(settings, TorchLearnerSettings):
            settings = settings.for_trained_network()
        round = 0 if self.kept == "first" else -1
        path = self.path / self._model_file(round)
        return Model(settings, self.model_bytes(round), path, self.settings, trusted)

    def load_model(self, learner: Any, trusted: tuple[str, ...] = (), round: int = -1) -> None:
        """Load a round's model into a learner; only the last round has one, unless the run keeps all or compares."""
        path = self.path / self._model_file(round)
        Model(None, self.model_bytes(round), path, self.settings, trusted).load(learner)

    def model_bytes(self, round: int = -1) -> bytes:
        """Return the checked content of a round's model file."""
        return self._read(self._entry(round), self._model_file(round))

    @property
    def model_hash(self) -> str:
        """The SHA-256 of the kept model's file, in hexadecimal."""
        comparison = self.comparison()
        if comparison is not None and comparison.kept == "linear":
            return str(comparison.content["linear"])
        round = 0 if self.kept == "first" else -1
        return str(self._entry(round)["files"][self._model_file(round)])

    def model_name(self, candidate: Candidate | None = None) -> str:
        """Return a model's name, by default that of the kept one: "round 3", or "linear model"."""
        names = {"linear": "linear model", "first": "round 0", "last": f"round {self.num_rounds - 1}"}
        return names[candidate or self.kept]

    def data(self) -> RunData:
        """Return the samples and labels that the settings name."""
        if self.settings.data is None:
            raise RunError(f"The run in '{self.path}' was made from data in memory; it has no samples, only labels.")
        self.check_code()
        self.check_pool()
        return self.load_data(self.settings)

    def load_data(self, settings: RunSettings) -> RunData:
        """Return the samples and labels that settings of the run name, read from files in the run's way."""
        assert settings.data is not None
        data = settings.data.load(self.texts()) if isinstance(settings.data, TableData) else settings.data.load()
        return with_pool(settings, data)

    def texts(self) -> bytes | None:
        """Return the checked content of the file with what was learned from texts; None if there is none."""
        data = self.settings.data
        if not isinstance(data, TableData) or data.texts_sha256 is None:
            return None
        return read_file(self.path / TEXTS, data.texts_sha256)

    def samples(self, path: str | os.PathLike[str]) -> Source:
        """Return the samples in a new file or folder, read as those of the run: `learner` and its exports take them."""
        self.check_code()
        return read_files(self.settings, Path(path), self.texts())

    def verify(self) -> None:
        """Check the split and every finished round's files; raise `DamagedFileError` for the first not as written."""
        self.split()
        self.texts()
        for entry in self.entries:
            for name in entry["files"]:
                self._read(entry, name)
        if (comparison := self.comparison()) is not None:
            comparison.verify()

    def _model_file(self, round: int) -> str:
        entry = self._entry(round)
        names: list[str] = [name for name in entry["files"] if Path(name).name in layout.MODELS]
        if not names:
            kept = "Only the last one is kept, unless keep_models='all'; of a learner without to_bytes none is"
            raise RunError(f"The run in '{self.path}' has no model of round {entry['round']}. {kept}.")
        return names[0]

    def _labels(self, round: int, name: str, negatives: str) -> PoolLabels:
        tables = self.table(name, round), self.table(negatives, round)
        try:
            return from_tables(*tables)
        except ValueError as error:
            raise damaged(self.path / round_file(self._entry(round)["round"], negatives), error) from error

    def _entry(self, round: int) -> Entry:
        if not -self.num_rounds <= round < self.num_rounds:
            raise RunError(f"The run in '{self.path}' has {self.num_rounds} finished rounds and no round {round}.")
        return self.entries[round]

    def _read(self, entry: Entry, name: str) -> bytes:
        try:
            return read_file(self.path / name, entry["files"][name])
        except DamagedFileError:
            # A process that writes the run removes the last model once it has a newer one.
            if len(layout.read_history(self.path, len(self.settings.classes))) > self.num_rounds:
                raise RunError(f"The run in '{self.path}' has gone on and removed '{name}'; open it again.") from None
            raise


def stop_of(records: Sequence[RoundRecord], config: UPSConfig) -> StopReason | None:
    """Return why the rounds end after the last of these under `config`; None if they continue.

    Limits may have been raised since the last round was written, and an interrupted run continues.
    """
    if not records:
        return None
    counts, last = [record.num_selected_before for record in records], records[-1]
    return config.stop_reason(counts, len(last.class_counts), last.minutes)
