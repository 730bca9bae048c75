"""What an experiment's runs are made of: the recipe, cut to the minutes where there is a limit.

What was planned is kept in a file, so that a run that is resumed, or another seed, follows the same plan.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from surelabel.base.references import portable
from surelabel.data.run_data import FunctionData, RunData
from surelabel.learners.settings import TorchLearnerSettings
from surelabel.reproduce.budget import Cut, Speed, cut_to, measure
from surelabel.reproduce.entries import Arguments, Entry, Labels, RecipeName
from surelabel.reproduce.ucf101 import MODEL, TORCHVISION
from surelabel.reproduce.variants import with_estimator
from surelabel.runs.files import read_json, write_json
from surelabel.settings import RunSettings


class Options(NamedTuple):
    """How an experiment is run.

    Attributes:
        seeds: a run of each row for each; a seed also draws the split.
        recipe: "paper", or "fast".
        minutes: for each run; None: the whole recipe.
        device: None: the GPU if there is one.
        rows: names of the rows to be run; empty: all.
        labels: numbers or shares of labels to be run; empty: all.
        pretrained: a file of weights that the networks begin with; None: random ones. 3-D ResNet-18 then has
            torchvision's stem and shortcuts.
        datasets: names of the data sets to be run; empty: all.
        arguments: what is set of the data sets, see `Entry.settable`; None: nothing.
        rounds: how many follow round 0 at most; None: as many as the recipe has.
        uncertainty: the estimator of p and u, "deep-ensemble" or "file.py:Class", of rows that do not name their own;
            None: the recipe's.
    """

    seeds: Sequence[int] = (0,)
    recipe: RecipeName = "fast"
    minutes: float | None = None
    device: str | None = None
    rows: Sequence[str] = ()
    labels: Sequence[Labels] = ()
    pretrained: str | None = None
    datasets: Sequence[str] = ()
    arguments: Arguments | None = None
    rounds: int | None = None
    uncertainty: str | None = None


class Plans:
    """The settings of every run, as the minutes allow; what was planned is kept in a file.

    Args:
        path: of the file; None: there is none, for settings without a limit.
        options: recipe, minutes and device.
    """

    def __init__(self, path: Path | None, options: Options) -> None:
        self.path, self.options = path, options
        self._kept: dict[str, Any] = {}
        if options.minutes is not None and path is not None and path.exists():
            self._kept = read_json(path)
        self._speeds: dict[str, Speed] = {}
        self._pretrained_hash: str | None = None

    def settings(self, entry: Entry, seed: int) -> RunSettings:
        """Return the complete settings of a run."""
        base = self._with_rounds(self._base(entry, seed, self.options.recipe))
        cut = self._cut(entry)
        return _pinned(entry.of(base if cut is None else cut.apply(base)))

    def whole(self, entry: Entry, recipe: RecipeName, seed: int = 0) -> RunSettings:
        """Return the complete settings of a run by this recipe, with all of its own rounds."""
        return _pinned(entry.of(self._base(entry, seed, recipe)))

    def knows(self, entry: Entry) -> bool:
        """Whether the settings of an entry follow without measuring anything."""
        if self.options.minutes is None:
            return True
        timed = self._timed(entry)
        return _key(timed, timed.config.max_rounds, self.options.minutes) in self._kept

    def _base(self, entry: Entry, seed: int, recipe: RecipeName) -> RunSettings:
        base = entry.base(seed, recipe, self.options.arguments)
        if self.options.uncertainty is not None:
            base = with_estimator(base, self.options.uncertainty)
        learner = base.network.replace(device=self.options.device)
        if self.options.pretrained is not None:
            learner = self._begun(learner, self.options.pretrained)
        if not _on_gpu(self.options.device):
            # Not every CPU can compute in bfloat16, and few are faster with it.
            learner = learner.replace(training=learner.training.replace(precision="float32"))
        return base.replace(learner=learner)

    def _with_rounds(self, base: RunSettings) -> RunSettings:
        rounds = self.options.rounds
        return base if rounds is None else base.replace(config=base.config.replace(max_rounds=rounds))

    def _begun(self, learner: TorchLearnerSettings, pretrained: str) -> TorchLearnerSettings:
        """Return the learner with the file of weights and its content hash, which the file is read for once."""
        more = TORCHVISION if learner.model == MODEL else {}
        parameters = {**learner.model_parameters, **more, "pretrained": pretrained}
        learner = learner.replace(model_parameters=parameters, pretrained_hash=self._pretrained_hash).pinned()
        self._pretrained_hash = learner.pretrained_hash
        return learner

    def _timed(self, entry: Entry) -> RunSettings:
        """Return the settings whose speed and rounds count for an entry.

        Rows that train the same networks get the same rounds, however they label: they share round 0. A row without
        rounds has one network for all of the minutes.
        """
        base = self._with_rounds(self._base(entry, 0, self.options.recipe))
        row = entry.of(base)
        if row.config.max_rounds == 0:
            base = base.replace(config=base.config.replace(max_rounds=0))
        same = row.network.fit_settings() == base.network.fit_settings()
        return _pinned(base if same else row.replace(config=base.config))

    def _cut(self, entry: Entry) -> Cut | None:
        if self.options.minutes is None:
            return None
        timed = self._timed(entry)
        key = _key(timed, timed.config.max_rounds, self.options.minutes)
        if key not in self._kept:
            assert timed.data is not None
            assert self.path is not None
            data = timed.data.load()
            speed = self._speed(timed, data)
            num_labeled_again = len(data.labeled[0] if data.unlabeled is None else data.unlabeled)
            cut = cut_to(timed, self.options.minutes, speed, num_labeled_again)
            self._kept[key] = {**cut._asdict(), **speed._asdict(), "minutes": self.options.minutes}
            write_json(self.path, self._kept)
        kept = self._kept[key]
        return Cut(kept["max_rounds"], kept["steps"])

    def _speed(self, timed: RunSettings, data: RunData) -> Speed:
        key = _key(timed)
        if key not in self._speeds:
            self._speeds[key] = measure(timed, data)
        return self._speeds[key]


def _pinned(settings: RunSettings) -> RunSettings:
    """Return the settings with the content hash of an estimator in a file: another one makes another run."""
    return settings.replace(learner=settings.network.pinned())


def _on_gpu(device: str | None) -> bool:
    import torch

    return torch.cuda.is_available() if device is None else torch.device(device).type == "cuda"


def _key(settings: RunSettings, *length: float) -> str:
    """Return letters that stand for a network, its data, and how long it is trained."""
    assert settings.learner is not None
    assert isinstance(settings.data, FunctionData)
    learner, function = (portable(part.model_dump(mode="json")) for part in (settings.learner, settings.data))
    text = json.dumps([learner, function["function"], *length], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
