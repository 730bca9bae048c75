"""A torch network as a learner: a fresh one every round, trained by the learning rule, labeled by stochastic passes."""

import contextlib
import copy
import dataclasses
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors.torch
import torch

from surelabel.augment import Augment
from surelabel.data.draws import seed_for
from surelabel.data.pool import Prediction
from surelabel.data.source import Source
from surelabel.data.training_set import LABELED, NEGATIVE, TrainingSet
from surelabel.engine.feed import chunks
from surelabel.engine.settings import TrainingSettings
from surelabel.engine.step import algorithms, copy_state, same_shapes
from surelabel.engine.train import Trainer
from surelabel.errors import InvalidInputError
from surelabel.labels import Task
from surelabel.learners.protocol import NegativesUse, Progress
from surelabel.learners.rule import UPSMethod
from surelabel.learners.settings import warn_of_changed
from surelabel.models.table import TableNetwork, table_network
from surelabel.uncertainty import MCDropout, UncertaintyEstimator, predict_proba

ModelFactory = Callable[[tuple[int, ...], int], torch.nn.Module]
"""(shape of one sample, number of classes) to a new network that returns logits, (N, C)."""


class TorchLearner:
    """Trains a new network in every `fit` and labels samples by its stochastic passes.

    Args:
        model: a factory of networks; None: `TableNetwork`, standardized by all samples, labeled or not.
        training: how a network is trained.
        uncertainty: how p and u come about; None: MC-dropout with ten passes.
        negative_weight: the weight of the negative learning term.
        predict_batch_size: samples in one chunk of a prediction; None: 1024, and on a GPU as many as fill it.
        device: where the network lives; None: the GPU if there is one.
        threads: of a CPU; other numbers may round sums in another way. None: one for a table's small network, for
            which two can be fifty times slower, else as torch is set.
        progress: called as training and labeling go on.
        task: "single" or "multi"; `fit` refuses a training set of the other kind.
    """

    negatives_use: NegativesUse = "loss"
    model_file = "model.safetensors"

    def __init__(
        self,
        model: ModelFactory | None = None,
        *,
        training: TrainingSettings | None = None,
        uncertainty: UncertaintyEstimator | None = None,
        negative_weight: float = 1.0,
        predict_batch_size: int | None = None,
        device: str | torch.device | None = None,
        threads: int | None = None,
        progress: Progress | None = None,
        task: Task = "single",
    ) -> None:
        self.make_model = model or table_network
        self.training = training or TrainingSettings()
        self.uncertainty = uncertainty or MCDropout(task=task)
        if not negative_weight >= 0:
            raise InvalidInputError(f"The 'negative_weight' argument must be at least 0. Got {negative_weight}.")
        if isinstance(model, torch.nn.Module):
            raise InvalidInputError(
                "The 'model' argument must be a function that makes a new network every round, (sample_shape, "
                f"num_classes) -> Module. Got a {type(model).__name__}; pass lambda shape, classes: "
                f"{type(model).__name__}(...)."
            )
        self.negative_weight = negative_weight
        self.predict_batch_size = predict_batch_size
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise InvalidInputError("The 'device' argument asks for a GPU, and torch finds none; use device='cpu'.")
        self.threads = threads
        self.progress = progress
        self.task: Task = task
        self._warn_of_ignored()
        self.network: torch.nn.Module | None = None
        self._trainer: Trainer | None = None

    def _warn_of_ignored(self) -> None:
        if self.training.optimizer == "adamw":
            warn_of_changed(self.training, ["momentum", "nesterov"], "they are SGD's and optimizer='adamw'")
        if self.device.type == "cpu" and self.training.cuda_graph:
            warn_of_changed(self.training, ["cuda_graph"], "the network is on a CPU")
        if self.task == "multi":
            warn_of_changed(self.training, ["negative_batch_size"], "with several labels all samples are drawn alike")

    def fit(self, training_set: TrainingSet, *, seed: int) -> None:
        """Train a fresh network; the last one stays in place until this one is ready."""
        if training_set.task != self.task:
            raise InvalidInputError(
                f"The learner was made for task={self.task!r}, the training set is for task={training_set.task!r}."
            )
        with reproducible(seed, self.device):
            fresh = self.build(training_set.source.sample_shape, training_set.num_classes)
        if self.warm_start and (training_set.kind != LABELED).any():
            copy_state(self._last_network(fresh), fresh)
        trainer = self._trainer
        if trainer is None or trainer.settings != self.training:
            trainer = self._make_trainer(fresh)
        trainer.progress = self.progress
        # Kept where its step is costly to make; elsewhere it would only keep the samples alive.
        self._trainer = trainer if trainer.shares else None
        with self._reproducible(seed_for(seed, "train"), fresh):
            if isinstance(fresh, TableNetwork):
                fresh.standardize(lambda: (chunk for _, chunk in self._chunks(training_set.source, fresh)))
            trained = trainer.train(fresh, training_set, self._method(training_set, trainer), seed=seed)
        self._keep(trained, fresh if trainer.shares else trained)

    def _keep(self, trained: torch.nn.Module, other: torch.nn.Module) -> None:
        """Make the trained weights the learner's: in the network that labeling may be compiled for, else in `other`."""
        if trained is not other and self.network is not None and same_shapes(trained, self.network):
            copy_state(trained, self.network)
            return
        if trained is not other:
            copy_state(trained, other)
        self.network = other.eval()

    def _make_trainer(self, network: torch.nn.Module) -> Trainer:
        exact = isinstance(network, TableNetwork)
        return Trainer(self.training, self.device, compiled=self._compiles(network), exact=exact)

    def _compiles(self, network: torch.nn.Module) -> bool:
        if self.training.compile is not None:
            return self.training.compile
        # A table's network trains and labels in less time than it takes to compile.
        return self.device.type == "cuda" and not isinstance(network, TableNetwork)

    def _method(self, training_set: TrainingSet, trainer: Trainer) -> UPSMethod:
        # Without rows to learn negatives from, their part of the loss is 0; leaving it out saves half the loss's time,
        # but a shared step would have to be made again in the round that has some.
        needed = trainer.shares or bool((training_set.kind == NEGATIVE).any())
        return UPSMethod(self.task, self.negative_weight if needed else 0.0, self.training)

    def build(self, sample_shape: tuple[int, ...], num_classes: int) -> torch.nn.Module:
        """Return a new network on the device."""
        network = self.make_model(sample_shape, num_classes)
        if not isinstance(network, torch.nn.Module):
            raise InvalidInputError(
                f"The 'model' argument must return a torch.nn.Module. Got {type(network).__name__} instead."
            )
        if self.training.channels_last:
            network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return network.to(self.device)

    def predict(self, source: Source, *, seed: int) -> Iterator[Prediction]:
        """Label the source chunk by chunk; refuse a network whose passes do not differ."""
        network = self._fitted()
        estimator = self.uncertainty
        if isinstance(estimator, MCDropout) and estimator.compile is None:
            estimator = dataclasses.replace(estimator, compile=self._compiles(network))
        for start, batch in self._chunks(source, network):
            with self._reproducible(seed_for(seed, start), network), self._arithmetic():
                estimate = estimator.estimate(network, batch, check=start == 0)
            yield Prediction(source.ids[start : start + len(batch)], *estimate)
            if self.progress is not None:
                self.progress("label", start + len(batch), len(source))

    def predict_proba(self, source: Source) -> npt.NDArray[np.floating[Any]]:
        """Return the probabilities of one deterministic pass, shape (N, C)."""
        network = self._fitted()
        with self._arithmetic():
            parts = [predict_proba(network, batch, self.task).cpu() for _, batch in self._chunks(source, network)]
        return torch.cat(parts).numpy()

    def to_bytes(self) -> bytes:
        """Return the network's weights as a safetensors file."""
        # A copy of each: safetensors refuses tensors that share memory (tied weights).
        state = {name: value.detach().clone().contiguous() for name, value in self._fitted().state_dict().items()}
        return safetensors.torch.save(state)

    def from_bytes(
        self, data: bytes, *, sample_shape: tuple[int, ...], num_classes: int, trusted: Sequence[str] = ()
    ) -> None:
        """Take the weights from a safetensors file, which holds numbers only: no type needs to be `trusted`."""
        with reproducible(0, self.device):
            network = self.build(sample_shape, num_classes)
        try:
            network.load_state_dict(safetensors.torch.load(data))
        except RuntimeError as error:
            raise InvalidInputError(
                f"The weights do not fit the network that 'model' makes: {' '.join(str(error).split())[:300]}. Use the "
                "function that the weights were trained with."
            ) from error
        self.network = network.to(self.device).eval()

    def __copy__(self) -> "TorchLearner":
        """Return a learner with this network, which a later fit of the other does not change."""
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__getstate__())
        other.network = copy.deepcopy(self.network)
        return other

    def __getstate__(self) -> dict[str, Any]:
        """Return all but the trainer, which belongs to this process and its device."""
        return {**self.__dict__, "_trainer": None}

    @property
    def warm_start(self) -> bool:
        """Whether a round begins with the last one's weights, so that a resumed run has to load them."""
        return self.training.warm_start

    def _last_network(self, fresh: torch.nn.Module) -> torch.nn.Module:
        if self.network is None or not same_shapes(self.network, fresh):
            raise InvalidInputError(
                "warm_start=True begins a round with the last round's network, and there is none of this shape: give "
                "the learner its weights (from_bytes) before resuming, or resume a run folder, which keeps them."
            )
        return self.network

    def _fitted(self) -> torch.nn.Module:
        if self.network is None:
            raise InvalidInputError("The learner has no network yet; call fit first.")
        return self.network

    def _chunks(self, source: Source, network: torch.nn.Module) -> Iterator[tuple[int, torch.Tensor]]:
        """Yield the samples as the network takes them, in chunks with their first positions."""
        samples = None if self._trainer is None else self._trainer.samples
        stored = None if samples is None else samples.part(source)
        size = self.predict_batch_size or self._chunk_size(source)
        if stored is not None:
            parts = iter(torch.split(stored, size))
        else:
            parts = chunks(source, size, self.training, self.device, exact=isinstance(network, TableNetwork))
        start = 0
        for part in parts:
            yield start, self._prepared(part)
            start += len(part)

    def _chunk_size(self, source: Source) -> int:
        if self.device.type == "cpu":
            return 1024
        # All passes of a tenth of them run at once: enough rows to fill a GPU, in 256 MiB of samples at most.
        return max(1, min(20_480, 2**26 // math.prod(source.sample_shape)))

    def _prepared(self, batch: torch.Tensor) -> torch.Tensor:
        """Return samples as training shows them to the network, but for what is random."""
        if self.training.augment is not None:
            batch = Augment(self.training.augment).plain(batch)
        if self.training.channels_last and batch.ndim == 4:
            batch = batch.contiguous(memory_format=torch.channels_last)
        return batch

    def _reproducible(self, seed: int, network: torch.nn.Module) -> contextlib.AbstractContextManager[None]:
        threads = 1 if self.threads is None and isinstance(network, TableNetwork) else self.threads
        return reproducible(seed, self.device, threads)

    @contextlib.contextmanager
    def _arithmetic(self) -> Iterator[None]:
        """Compute as in training: in its precision, with its choice of algorithms."""
        half = self.training.precision == "bfloat16"
        with algorithms(self.training.deterministic), torch.autocast(self.device.type, torch.bfloat16, enabled=half):
            yield


@contextlib.contextmanager
def reproducible(seed: int, device: torch.device, threads: int | None = None) -> Iterator[None]:
    """Seed torch and set its number of threads for a block of code; leave both as they were."""
    # Torch's generators and its number of threads belong to the process: one block of code at a time may set them.
    generators = torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])
    with _ONE_AT_A_TIME, _threads(threads if device.type == "cpu" else None), generators:
        torch.manual_seed(seed)
        yield


_ONE_AT_A_TIME = threading.RLock()


@contextlib.contextmanager
def _threads(number: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(number or before)
        yield
    finally:
        torch.set_num_threads(before)
