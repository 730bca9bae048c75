"""The engine's way: what the library does when it trains and labels, through the learner that the loop drives."""

import time

from torch import Tensor

from benchmarks.timing import seconds, synchronize
from benchmarks.work import AUGMENTATION, LEARNING_RATE, MOMENTUM, NUM_CLASSES, TEMPERATURE, Work
from surelabel.data.source import ArraySource
from surelabel.data.targets import OneLabel
from surelabel.data.training_set import TrainingSet
from surelabel.engine.settings import TrainingSettings
from surelabel.learners.network import TorchLearner
from surelabel.uncertainty import MCDropout


class Engine:
    """A `Way`: rounds of a `TorchLearner`, all samples labeled; each fit is a round with a fresh network."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.training_set = _training_set(work)
        self.epochs = 4 if work.device.type == "cuda" else 2
        self.first_step, self._watched = 0.0, False
        self._round = 0
        self.learner = TorchLearner(
            work.make_model,
            training=_training_settings(work, self.epochs),
            uncertainty=MCDropout(passes=work.passes, temperature=TEMPERATURE),
            predict_batch_size=work.label_batch,
            device=work.device,
            progress=self._note_first_step,
        )

    def train_seconds(self) -> float:
        """Seconds for each image from the end of a round's first step to the end of the round."""
        self._fit(watched=True)
        synchronize(self.work.device)
        return (time.perf_counter() - self.first_step) / (self.epochs * len(self.work.images) - self.work.batch)

    def label_seconds(self) -> float:
        """Seconds for each image over the whole pool."""
        if self.learner.network is None:
            self._fit()
        return seconds(self._label, self.work.device) / len(self.work.images)

    def restart_seconds(self) -> float:
        """Seconds from the call of `fit`, which makes a new network, to the end of its first step."""
        synchronize(self.work.device)
        started = time.perf_counter()
        self._fit(watched=True)
        return self.first_step - started

    def _fit(self, watched: bool = False) -> None:
        self._watched = watched
        self._round += 1
        self.learner.fit(self.training_set, seed=self._round)

    def _label(self) -> None:
        for prediction in self.learner.predict(self.training_set.source, seed=self._round):
            for part in (prediction.p, prediction.u, prediction.p_soft, prediction.u_soft):
                assert isinstance(part, Tensor)  # MC-dropout gives all four
                part.cpu()

    def _note_first_step(self, what: str, done: int, total: int) -> None:
        if self._watched and (what, done) == ("train", 1):
            synchronize(self.work.device)
            self.first_step = time.perf_counter()


def _training_set(work: Work) -> TrainingSet:
    known = OneLabel.of(work.labels.numpy(), NUM_CLASSES)
    return TrainingSet(ArraySource(work.images.numpy()), known, len(known), "single")


def _training_settings(work: Work, epochs: int) -> TrainingSettings:
    on_gpu = work.device.type == "cuda"
    return TrainingSettings(
        learning_rate=LEARNING_RATE,
        momentum=MOMENTUM,
        batch_size=work.batch,
        epochs=epochs,
        augment=AUGMENTATION,
        precision="bfloat16" if on_gpu else "float32",
        channels_last=True,
    )
