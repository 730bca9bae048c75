"""Compares a run's models, fold by fold, and chooses which one is kept.

A validation set is the only fold: its labels from each round are already in the folder. Otherwise the labels are
divided into folds, and the run is repeated in memory without each of them; the samples whose labels are held out join
the pool, as if they were unlabeled. Finished folds are on the disk, so an interruption loses at most one.
"""

import functools
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from surelabel.base.system import Progress
from surelabel.core import thresholds
from surelabel.core.arrays import to_numpy
from surelabel.data.draws import seed_for
from surelabel.data.pool import PoolLabels, join, label_chunk
from surelabel.data.run_data import RunData
from surelabel.data.source import Concatenation, Index, Renamed, Source, Subset, as_source
from surelabel.data.splits import LabeledKFold, group_keys
from surelabel.data.training_set import TrainingSet, make_problem
from surelabel.engine.parallel import processes
from surelabel.errors import NotStochasticError
from surelabel.loop import rounds
from surelabel.runs import layout
from surelabel.runs.checks import check_same_data
from surelabel.runs.comparison import (
    Candidate,
    Comparison,
    all_known,
    as_held_out,
    choose,
    fold_contents,
    pool_as_held_out,
)
from surelabel.runs.files import make_folder, write_file, write_json
from surelabel.runs.reading import RunFolder
from surelabel.runs.writing import canonical_skops, locked_run, tidy
from surelabel.settings import ComparisonSettings

DELTA = 0.05
"""The probability that a promise about labels does not hold."""


class Fold(NamedTuple):
    """The rows of the labeled samples that a fold learns from, and those on which it is judged."""

    learned: Index
    held_out: Index


class Step(NamedTuple):
    """How far a comparison is: folds that are done, and folds in all."""

    done: int
    planned: int


def compare(
    run: RunFolder, data: RunData | None = None, *, progress: Progress | None = None, minutes_before: float = 0.0
) -> Iterator[Step]:
    """Continue a run's comparison until its model is chosen; yield after each fold once it is on the disk.

    A run without a comparison in its settings, or with unfinished rounds, yields nothing.

    Args:
        run: with its rounds done.
        data: the run's, if they are loaded already.
        progress: called as training and labeling go on.
        minutes_before: further time that counts, such as for reading the data.
    """
    settings = run.settings.comparison
    if settings is None or not run.finished:
        return
    with locked_run(run.path):
        run = run.reopened()
        processes().only_first(functools.partial(tidy, run.path, run.entries))
        clock = _Clock(run, settings, minutes_before)
        if not processes().by_first(lambda: clock.leaves_work(_content(run))):
            return
        run.check_code()
        loaded = run.data() if data is None else data
        check_same_data(run, loaded)
        yield from _Comparing(run, settings, loaded, progress).steps(clock)


def folds_of(data: RunData, most: int, seed: int) -> list[Fold]:
    """Divide the labels into stratified folds of whole groups; fewer folds, or none, if classes are small.

    In every fold, each class must keep a label to learn from.
    """
    codes = to_numpy(data.labeled[1])
    groups = None if data.groups is None else group_keys(data.groups)[: len(codes)]
    known = np.bincount(codes, minlength=len(data.classes)) if codes.ndim == 1 else (codes >= 0).sum(axis=0)
    for number in range(min(most, int(known.min())), 1, -1):
        if groups is not None and len(np.unique(groups)) < number:
            continue
        splits = LabeledKFold(number, shuffle=True, random_state=seed_for(seed, "folds"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about classes with fewer groups than folds; the folds are checked below
            folds = [Fold(*pair) for pair in splits.split(np.zeros(len(codes)), codes, groups)]
        if all(len(fold.held_out) and _can_learn(codes[fold.learned], len(data.classes)) for fold in folds):
            return folds
    return []


def _can_learn(codes: Any, num_classes: int) -> bool:
    if codes.ndim == 1:
        return len(np.unique(codes)) == num_classes
    return bool((codes >= 0).any(axis=0).all() and (codes == 0).any())


def _content(run: RunFolder) -> dict[str, Any] | None:
    found = run.comparison()
    return None if found is None else found.content


@dataclass
class _Clock:
    """Whether another fold is expected to end in time."""

    run: RunFolder
    settings: ComparisonSettings
    minutes_before: float

    def leaves_work(self, content: dict[str, Any] | None) -> bool:
        """Whether something is left to do."""
        return content is None or content["kept"] is None or self.allows_fold(content)

    def allows_fold(self, content: dict[str, Any]) -> bool:
        """Whether there is another fold and time for it: as much as the longest fold so far, or else the run, took."""
        if len(content["folds"]) >= content["planned"]:
            return False
        if self.settings.max_minutes is None or content["judged_by"] == "validation set":
            return True
        of_rounds, of_folds = self.run.records()[-1].minutes, [fold["minutes"] for fold in content["folds"]]
        expected = max(of_folds, default=of_rounds)
        return bool(self.minutes_before + of_rounds + sum(of_folds) + expected <= self.settings.max_minutes)


@dataclass
class _Comparing:
    run: RunFolder
    settings: ComparisonSettings
    data: RunData
    progress: Progress | None

    def steps(self, clock: _Clock) -> Iterator[Step]:
        """Do the remaining folds, then choose."""
        by_validation = self.data.validation is not None
        folds = [] if by_validation else folds_of(self.data, self.settings.folds, self.run.settings.config.seed)
        group = processes()
        content = group.by_first(lambda: _content(self.run)) or {
            "round": self.run.num_rounds - 1,
            "judged_by": "validation set" if by_validation else "cross-validation",
            "planned": 1 if by_validation else len(folds),
            "folds": [],
            "linear": None,
        }
        content = {**content, "kept": None, "promise": None}
        yield Step(len(content["folds"]), content["planned"])
        while group.by_first(functools.partial(clock.allows_fold, content)):
            started, number = time.monotonic(), len(content["folds"])
            try:
                labels, truth = group.by_first(self._validation) if by_validation else self._fold(folds[number])
            except NotStochasticError:  # each class has only one label left, and the estimator is not random itself
                content |= {"planned": 0, "folds": []}
                break
            parts = fold_contents(number, labels, truth, self.run.settings.classes)
            content = group.by_first(functools.partial(self._with_fold, content, parts, started))
            yield Step(number + 1, content["planned"])
        group.only_first(functools.partial(self._choose, content))

    def _with_fold(self, content: dict[str, Any], parts: dict[str, bytes], started: float) -> dict[str, Any]:
        """Write a fold; return the content with it."""
        fold = {"files": self._written(parts), "minutes": (time.monotonic() - started) / 60}
        content = {**content, "folds": [*content["folds"], fold]}
        write_json(self.run.path / layout.COMPARISON, content)
        return content

    def _written(self, contents: dict[str, bytes]) -> dict[str, str]:
        for name in contents:
            make_folder((self.run.path / name).parent)
        return {name: write_file(self.run.path / name, data) for name, data in contents.items()}

    def _choose(self, content: dict[str, Any]) -> None:
        """Write which model is kept, and first its file if it is the linear one."""
        found = Comparison(self.run.path, self.run.settings, content)
        judged = found.judged()
        content["kept"] = choose(judged) if judged else "last"
        linear = self._fitted_linear(self._everything()) if content["kept"] == "linear" else None
        if linear is not None:
            file = self.run.path / layout.LINEAR_MODEL
            content["linear"] = write_file(file, canonical_skops(linear.to_bytes()))
        if self.settings.max_label_error is not None and content["judged_by"] == "validation set":
            content["promise"] = self._promise(found, linear, self.settings.max_label_error)
        write_json(self.run.path / layout.COMPARISON, content)

    def _promise(self, found: Comparison, linear: Any, max_error: float) -> dict[str, Any]:
        """Choose thresholds for the kept model's labels.

        The kept model was chosen on the same labels. So each candidate gets a part of delta: with probability 1 - delta
        the promise holds for all of them, and so for the kept one.
        """
        judged, kept = found.judged(), found.content["kept"]
        labels, truth = judged[kept]
        pool = self._pool(kept, linear)
        of_pool = None if pool is None else pool_as_held_out(pool)
        held_out = as_held_out(labels, truth, all_known(truth))
        chosen = thresholds.choose(held_out, max_error, DELTA / len(judged), pool=of_pool)
        kappa_p = None if chosen.kappa_p == np.inf else chosen.kappa_p
        return chosen._replace(delta=DELTA, kappa_p=kappa_p)._asdict()

    def _pool(self, kept: Candidate, linear: Any) -> PoolLabels | None:
        if not self.run.has_pool:
            return None
        if kept != "linear":
            return self.run.pool(0 if kept == "first" else -1)
        return self._labels_by(linear, as_source("unlabeled", self.data.unlabeled))

    def _everything(self) -> TrainingSet:
        config = self.run.settings.config
        return make_problem(self.data.labeled, self.data.unlabeled, config.task, config.num_classes).training_set(None)

    def _validation(self) -> tuple[dict[Candidate, PoolLabels], Any]:
        """Return each candidate's labels of the validation set, and their truth."""
        assert self.data.validation is not None
        held_out, truth = self.data.validation
        source = as_source("validation", held_out)
        found = self._linear_labels(self._everything(), source)
        found["first"] = self.run.validation(0)
        if self.run.num_rounds > 1:
            found["last"] = self.run.validation()
        return found, to_numpy(truth)

    def _fold(self, fold: Fold) -> tuple[dict[Candidate, PoolLabels], Any]:
        """Return labels of held-out samples from models that have not learned from them, and their truth."""
        settings, codes = self.run.settings, to_numpy(self.data.labeled[1])
        labeled, pool = self._sources(fold)
        samples = Subset(labeled, fold.held_out)
        learned, truth = (Subset(labeled, fold.learned), codes[fold.learned]), codes[fold.held_out]
        config = settings.config.replace(max_rounds=self.run.num_rounds - 1, max_minutes=None)
        problem = make_problem(learned, pool, config.task, config.num_classes)
        found = processes().by_first(lambda: self._linear_labels(problem.training_set(None), samples))
        assert settings.learner is not None
        learner = settings.learner.build(self.data.task, self.progress)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the run itself has already warned about its settings and labels
            held_out = problem.held_out("validation", (samples, truth))
            assert held_out is not None
            for record in rounds(learner, problem, config, {"validation": held_out}):
                assert record.validation is not None
                found["last" if record.round else "first"] = record.validation
        if self.run.num_rounds > 1:  # without a pool, round 0 is the last one
            found.setdefault("last", found["first"])
        return found, truth

    def _sources(self, fold: Fold) -> tuple[Source, Source | None]:
        """Return the labeled samples and the pool of a fold: that of the run, and the held-out samples.

        If the data have groups, such as speakers or patients, nothing of the held-out groups is learned from: neither
        these samples nor others of the pool.
        """
        pool = None if self.data.unlabeled is None else as_source("unlabeled", self.data.unlabeled)
        labeled = as_source("labeled", self.data.labeled[0], first_id=0 if pool is None else len(pool))
        if getattr(self.run.settings.data, "group", None) is None or self.data.groups is None:
            held_out = Subset(labeled, fold.held_out)
            if pool is None:
                return labeled, held_out
            both = Concatenation(pool, held_out)
            return labeled, Renamed(both, both.ids)  # they are needed with every chunk
        keys = group_keys(self.data.groups)
        if pool is None:
            return labeled, None
        others = np.flatnonzero(~np.isin(keys[len(labeled) :], keys[: len(labeled)][fold.held_out]))
        return labeled, Subset(pool, others) if len(others) else None

    def _linear_labels(self, training_set: TrainingSet, source: Source) -> dict[Candidate, PoolLabels]:
        """Return the linear model's labels; nothing if there is only one label per class, which allows no resamples."""
        learner = self._fitted_linear(training_set)
        return {} if learner.resamples_are_equal else {"linear": self._labels_by(learner, source)}

    def _fitted_linear(self, training_set: TrainingSet) -> Any:
        learner = self.settings.linear.build(self.data.task)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a solver that stops a little early
            learner.fit(training_set, seed=seed_for(self.run.settings.config.seed, "linear"))
        return learner

    def _labels_by(self, learner: Any, source: Source) -> PoolLabels:
        config = self.run.settings.config
        chunks = learner.predict(source, seed=0)
        return join([label_chunk(chunk, config.task, config.thresholds, config.negatives) for chunk in chunks])
