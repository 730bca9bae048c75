"""A torch network as a learner: a fresh one every round, trained by the learning rule, labeled by stochastic passes."""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors.torch
import torch

from surelabel.data.draws import seed_for
from surelabel.data.pool import Prediction
from surelabel.data.source import Source
from surelabel.data.training_set import NEGATIVE, TrainingSet
from surelabel.engine.train import TrainingSettings, gather, train
from surelabel.errors import InvalidInputError
from surelabel.labels import Task
from surelabel.learners.protocol import NegativesUse, Progress
from surelabel.losses import learning_rule
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
        predict_batch_size: samples in one chunk of a prediction.
        device: where the network lives; None: the GPU if there is one.
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
        predict_batch_size: int = 1024,
        device: str | torch.device | None = None,
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
        self.progress = progress
        self.task: Task = task
        self.network: torch.nn.Module | None = None

    def fit(self, training_set: TrainingSet, *, seed: int) -> None:
        """Train a fresh network; the last one stays in place until this one is ready."""
        if training_set.task != self.task:
            raise InvalidInputError(
                f"The learner was made for task={self.task!r}, the training set is for task={training_set.task!r}."
            )
        # Without rows to learn negatives from, their part of the loss is 0; leaving it out saves half the loss's time.
        weight = self.negative_weight if (training_set.kind == NEGATIVE).any() else 0.0
        loss = functools.partial(learning_rule, task=self.task, negative_weight=weight)
        with reproducible(seed, self.device):
            network = self.build(training_set.source.sample_shape, training_set.num_classes)
        with reproducible(seed_for(seed, "train"), self.device, network):
            if isinstance(network, TableNetwork):
                network.standardize(chunk for _, chunk in self._chunks(training_set.source, network))
            train(
                network,
                training_set,
                loss,
                self.training,
                seed=seed,
                device=self.device,
                exact=isinstance(network, TableNetwork),
                progress=self.progress,
            )
        self.network = network.eval()

    def build(self, sample_shape: tuple[int, ...], num_classes: int) -> torch.nn.Module:
        """Return a new network on the device."""
        network = self.make_model(sample_shape, num_classes)
        if not isinstance(network, torch.nn.Module):
            raise InvalidInputError(
                f"The 'model' argument must return a torch.nn.Module. Got {type(network).__name__} instead."
            )
        return network.to(self.device)

    def predict(self, source: Source, *, seed: int) -> Iterator[Prediction]:
        """Label the source chunk by chunk; refuse a network whose passes do not differ."""
        network = self._fitted()
        for start, batch in self._chunks(source, network):
            with reproducible(seed_for(seed, start), self.device, network):
                estimate = self.uncertainty.estimate(network, batch, check=start == 0)
            yield Prediction(source.ids[start : start + len(batch)], *estimate)
            if self.progress is not None:
                self.progress("label", start + len(batch), len(source))

    def predict_proba(self, source: Source) -> npt.NDArray[np.floating[Any]]:
        """Return the probabilities of one deterministic pass, shape (N, C)."""
        network = self._fitted()
        parts = [predict_proba(network, batch, self.task).cpu().numpy() for _, batch in self._chunks(source, network)]
        return np.concatenate(parts)

    def to_bytes(self) -> bytes:
        """Return the network's weights as a safetensors file."""
        # A copy of each: safetensors refuses tensors that share memory (tied weights).
        state = {name: value.detach().clone().contiguous() for name, value in self._fitted().state_dict().items()}
        return safetensors.torch.save(state)

    def from_bytes(
        self, data: bytes, *, sample_shape: tuple[int, ...], num_classes: int, trusted: Sequence[str] = ()
    ) -> None:
        """Take the weights from a safetensors file, which holds numbers only: no type needs to be `trusted`."""
        network = self.build(sample_shape, num_classes)
        network.load_state_dict(safetensors.torch.load(data))
        self.network = network.to(self.device).eval()

    def _fitted(self) -> torch.nn.Module:
        if self.network is None:
            raise InvalidInputError("The learner has no network yet; call fit first.")
        return self.network

    def _chunks(self, source: Source, network: torch.nn.Module) -> Iterator[tuple[int, torch.Tensor]]:
        for start in range(0, len(source), self.predict_batch_size):
            index = np.arange(start, min(start + self.predict_batch_size, len(source)))
            yield start, gather(source, index, self.device, exact=isinstance(network, TableNetwork))


@contextlib.contextmanager
def reproducible(seed: int, device: torch.device, network: torch.nn.Module | None = None) -> Iterator[None]:
    """Seed torch for a block of code and leave the user's generators as they were.

    A table's small network also runs on one thread: two can be fifty times slower than one on matrices this small, and
    its sums do not depend on the number of cores.
    """
    # Torch's generators and its number of threads belong to the process: one block of code at a time may set them.
    threads = 1 if isinstance(network, TableNetwork) and device.type == "cpu" else None
    generators = torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])
    with _ONE_AT_A_TIME, _threads(threads), generators:
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
