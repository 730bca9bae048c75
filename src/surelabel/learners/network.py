"""A torch network as a learner: a fresh one every round, trained by a method, with p and u from an estimator.

The estimator of p and u may change a network before it is trained, and may ask for several. These are trained one after
another, each with its own seed, and kept as one `Ensemble`.
"""

import contextlib
import functools
import itertools
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from surelabel.base.defaults import FitDefaults
from surelabel.base.system import Progress
from surelabel.base.together import Alone
from surelabel.core.labels import Task
from surelabel.data.draws import sample_keys, seed_for
from surelabel.data.pool import Prediction
from surelabel.data.source import Source, as_source
from surelabel.data.training_set import TrainingSet
from surelabel.engine.checkpoint import CheckpointStore, FitCheckpoint, MadeFor, digest
from surelabel.engine.feed import autocast, channels_last, kind_named, shown, streamed
from surelabel.engine.method import Method, expect
from surelabel.engine.parallel import processes
from surelabel.engine.settings import TrainingSettings
from surelabel.engine.step import algorithms, copied, copy_state, shapes
from surelabel.engine.train import Trainer
from surelabel.errors import InvalidInputError
from surelabel.learners import NegativesUse
from surelabel.learners.settings import warn_of_changed
from surelabel.methods.ups import UPSMethod
from surelabel.models.ensemble import Ensemble
from surelabel.models.table import table_network
from surelabel.uncertainty import MCDropout, UncertaintyEstimator, check_estimator, predict_proba

MethodFactory = Callable[[Task, TrainingSettings], Method]
"""(task, training settings) to a method."""

ModelFactory = Callable[[tuple[int, ...], int], nn.Module]
"""(shape of one sample, number of classes) to a new network that returns logits, (N, C).

Or to an nn.ModuleList with one for each member of the estimator's ensemble, if members are not alike."""


class TorchLearner:
    """Trains a new network in every `fit` and labels samples by an estimator of p and u, such as stochastic passes.

    Args:
        model: a factory of networks; None: `TableNetwork`, standardized by all samples, labeled or not.
        training: how a network is trained.
        uncertainty: how p and u are computed, and from how many networks; None: MC-dropout with ten passes.
        negative_weight: the weight of the negative learning term in UPS's learning rule.
        method: how a network learns within a round: a `Method` class, or a function `(task, training) -> Method`; None:
            UPS's learning rule.
        predict_batch_size: samples in one chunk of a prediction; None: 1024, or on a GPU as many as fill it.
        device: where the network lives; None: the GPU if there is one.
        threads: CPU threads; another number may round sums differently. None: one for the small network for tables, for
            which two can be fifty times slower, else torch's setting.
        progress: called as training and labeling go on.
        task: "single" or "multi"; `fit` refuses a training set of the other kind.

    Attributes:
        checkpoints: where the state of a network in training is kept; a run sets it. None: nowhere.
        seconds_elsewhere: seconds that the last fit took in an earlier process, before this one resumed it.
    """

    negatives_use: NegativesUse = "loss"
    model_file = "model.safetensors"

    def __init__(
        self,
        model: ModelFactory | None = None,
        *,
        training: TrainingSettings | None = None,
        uncertainty: UncertaintyEstimator | None = None,
        negative_weight: float = FitDefaults.negative_weight,
        method: MethodFactory | None = None,
        predict_batch_size: int | None = None,
        device: str | torch.device | None = None,
        threads: int | None = None,
        progress: Progress | None = None,
        task: Task = "single",
    ) -> None:
        self.make_model = model or table_network
        self.training = training or TrainingSettings()
        self.uncertainty: UncertaintyEstimator = uncertainty or MCDropout(task=task)
        check_estimator(self.uncertainty, task)
        if not negative_weight >= 0:
            raise InvalidInputError(f"The 'negative_weight' argument must be at least 0. Got {negative_weight}.")
        if isinstance(model, nn.Module):
            kind = type(model).__name__
            raise InvalidInputError(
                "The 'model' argument must be a function that makes a new network every round. "
                f"Got a {kind}; pass lambda shape, num_classes: {kind}(...)."
            )
        self.make_method = method or functools.partial(UPSMethod, negative_weight=negative_weight)
        self.predict_batch_size = predict_batch_size
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise InvalidInputError("The 'device' argument asks for a GPU, and torch finds none; use device='cpu'.")
        self.threads = threads
        self.progress = progress
        self.task: Task = task
        self._warn_of_ignored()
        self.network: nn.Module | None = None
        self._network_for: UncertaintyEstimator | None = None
        self._trainer: Trainer | None = None
        self._trainer_for: tuple[TrainingSettings, UncertaintyEstimator] | None = None
        self.checkpoints: CheckpointStore | None = None
        self.seconds_elsewhere = 0.0

    def _warn_of_ignored(self) -> None:
        if self.training.optimizer == "adamw":
            warn_of_changed(self.training, ["momentum", "nesterov"], "they are SGD's and optimizer='adamw'")
        if self.training.optimizer == "muon":
            warn_of_changed(self.training, ["nesterov"], "optimizer='muon' always has Nesterov momentum")
        if self.device.type == "cpu" and self.training.cuda_graph:
            warn_of_changed(self.training, ["cuda_graph"], "the network is on a CPU")
        if self.task == "multi":
            warn_of_changed(self.training, ["negative_batch_size"], "with several labels all samples are drawn alike")

    def fit(self, training_set: TrainingSet, *, seed: int) -> None:
        """Train a fresh network, or as many as the estimator asks for; the last one is kept until all are ready."""
        if training_set.task != self.task:
            raise InvalidInputError(f"The learner was made for task={self.task!r}; got task={training_set.task!r}.")
        members = range(self.uncertainty.members)
        seeds = [seed] if len(members) == 1 else [seed_for(seed, "member", member) for member in members]
        fresh = [self._fresh(training_set, member, one) for member, one in enumerate(seeds)]
        checkpoint = self._checkpoint(training_set, seed, fresh[0])
        self.seconds_elsewhere = 0.0 if checkpoint is None else checkpoint.seconds_before
        # The last trainer and its step are reused as long as the settings and the estimator's layers are the same.
        made_for, trainer = (self.training, self.uncertainty), self._trainer
        if trainer is None or self._trainer_for != made_for:
            compiled, exact = self._compiles(fresh[0]), is_for_tables(fresh[0])
            trainer = Trainer(self.training, self.device, compiled=compiled, exact=exact)
        # Kept if its step is costly to make; otherwise it would only keep the samples in memory.
        self._trainer, self._trainer_for = trainer if trainer.shares else None, made_for
        trained = []
        for member, (network, one) in enumerate(zip(fresh, seeds, strict=True)):
            trainer.progress = self._progress(member)
            trained.append(self._train(trainer, network, training_set, one, checkpoint))
        network = self._joined(trained)
        last = self.network if trainer.shares and self._network_for == self.uncertainty else None
        if last is not None and shapes(network) == shapes(last):
            copy_state(network, last)  # only its weights: labeling may be compiled for the last network
        else:
            self.network, self._network_for = network.eval(), self.uncertainty

    def _checkpoint(self, training_set: TrainingSet, seed: int, network: nn.Module) -> FitCheckpoint | None:
        if self.checkpoints is None:
            return None
        settings = self.training.model_dump_json(), self.task, _printed(self._method()), str(self.uncertainty.members)
        arrays = sample_keys(training_set.source.ids), *training_set.targets.arrays()
        made_for: MadeFor = {
            "seed": seed,
            "settings": digest(type(self).__qualname__, *settings),
            "network": digest(_printed(network)),
            "targets": digest(*(np.ascontiguousarray(array).data.cast("B") for array in arrays if array.size)),
        }
        return FitCheckpoint(self.checkpoints, training_set.round, made_for, self.device, self.uncertainty.members)

    def _fresh(self, training_set: TrainingSet, member: int, seed: int) -> nn.Module:
        """Return the network that a training begins with: with newly drawn weights, or the last round's."""
        with reproducible(seed, self.device):
            fresh = self.build(training_set.source.sample_shape, training_set.num_classes, member)
        if self.warm_start and training_set.round:
            kept = self.network.networks if isinstance(self.network, Ensemble) else [self.network]
            last = kept[member] if len(kept) == self.uncertainty.members else None
            if last is None or shapes(last) != shapes(fresh):
                remedy = "before resuming, give the learner its weights (from_bytes), or resume a run folder"
                raise InvalidInputError(f"warm_start=True begins a round with the last round's network; {remedy}.")
            copy_state(last, fresh)
        return fresh

    def _train(
        self, trainer: Trainer, fresh: nn.Module, training_set: TrainingSet, seed: int, checkpoint: FitCheckpoint | None
    ) -> nn.Module:
        """Return the trained network, which later trainings do not change."""
        if checkpoint is not None and checkpoint.finished(fresh):
            return fresh
        with self._reproducible(seed_for(seed, "train"), fresh):
            for part in fresh.modules():
                standardize: Any = getattr(part, "standardize", None)
                if standardize is not None:
                    standardize(lambda: (chunk for _, chunk in self._chunks(training_set.source, fresh)))
            method = self.method(training_set, trainer.shares)
            trained = trainer.train(fresh, training_set, method, seed=seed, checkpoint=checkpoint)
        if trainer.shares:
            copy_state(trained, fresh)
            trained = fresh
        if checkpoint is not None:
            checkpoint.trained.append(trained)
        return trained

    def _progress(self, member: int) -> Progress | None:
        """Return the progress function for a member's training: the steps of all members count as one training."""
        report, members = self.progress, self.uncertainty.members
        if report is None or members == 1:
            return report
        return lambda what, done, total: report(what, member * total + done, members * total)

    def _joined(self, networks: list[nn.Module]) -> nn.Module:
        return networks[0] if len(networks) == 1 else Ensemble(networks, self.task)

    def _compiles(self, network: nn.Module) -> bool:
        if self.training.compile is not None:
            return self.training.compile
        # A network for tables trains and labels in less time than it takes to compile.
        return self.device.type == "cuda" and not is_for_tables(network)

    def method(self, training_set: TrainingSet, shared: bool) -> Method:
        """Return the method that trains the networks of a round; `shared` as for `Method.for_round`."""
        method = self._method().for_round(training_set, shared)
        expect(isinstance(method, Method), "for_round()", "return a method", method)
        return method

    def _method(self) -> Method:
        return self.make_method(self.task, self.training)

    def build(self, sample_shape: tuple[int, ...], num_classes: int, member: int = 0) -> nn.Module:
        """Return a new network on the device, with the changes of the estimator and the method.

        Args:
            sample_shape: of one sample.
            num_classes: C.
            member: which one of the estimator's ensemble it is.
        """
        network = self.make_model(sample_shape, num_classes)
        if isinstance(network, nn.ModuleList):
            if len(network) != self.uncertainty.members:
                numbers = f"{len(network)} networks, and the estimator trains {self.uncertainty.members}"
                raise InvalidInputError(f"'model' returned a list of {numbers}; let it return one for each member.")
            network = network[member]
        if not isinstance(network, nn.Module):
            raise InvalidInputError(f"'model' must return a torch.nn.Module. Got {type(network).__name__} instead.")
        lazy = [name for name, tensor in (*network.named_parameters(), *network.named_buffers()) if is_lazy(tensor)]
        if lazy:
            remedy = "run the network once where it is made: network(torch.zeros(2, *sample_shape))"
            raise InvalidInputError(f"The network has no weights yet: {', '.join(lazy)} is lazy; {remedy}.")
        self.uncertainty.prepare(network)
        network = self._method().prepare(network)
        expect(isinstance(network, nn.Module), "prepare()", "return a torch.nn.Module", network)
        if self.training.channels_last:
            # Not with `Module.to`, which uses one format for all weights.
            for tensor in (*network.parameters(), *network.buffers()):
                tensor.data = channels_last(tensor.data)
        return network.to(self.device)

    def predict(
        self,
        source: Source,
        *,
        seed: int,
        by: UncertaintyEstimator | None = None,
        check: bool = True,
        share: tuple[int, int] = (0, 1),
    ) -> Iterator[Prediction]:
        """Label a source or an array chunk by chunk.

        Args:
            source: the samples.
            seed: of everything random in labeling.
            by: an estimator other than the learner's.
            check: refuse a network whose passes do not differ.
            share: (k, n): only every n-th chunk, from chunk k on. A chunk's result does not depend on the others.
        """
        network, source, estimator = self._fitted(), as_source("source", source), by or self.uncertainty
        if hasattr(estimator, "for_chunks"):
            estimator = estimator.for_chunks(self._compiles(network), self.chunk_size(source))
        for start, batch in self._chunks(source, network, share=share):
            with self._reproducible(seed_for(seed, start), network), self._arithmetic(batch):
                estimate = estimator.estimate(network, batch, check=check and start == 0)
            yield Prediction(source.ids[start : start + len(batch)], *estimate)
            if self.progress is not None:
                self.progress("label", start + len(batch), len(source))

    def predict_proba(self, source: Source) -> npt.NDArray[np.floating[Any]]:
        """Return the probabilities of one deterministic pass, shape (N, C); for clips, the mean over `test_windows`."""
        network, source, augment = self._fitted(), as_source("source", source), self.training.augment
        windows = 1 if augment is None else augment.test_windows
        passes = []
        for window in [None] if windows == 1 else range(windows):
            parts = []
            for _, batch in self._chunks(source, network, window):
                with self._arithmetic(batch):
                    parts.append(predict_proba(network, batch, self.task).cpu())
            passes.append(torch.cat(parts).numpy())
        return np.asarray(np.mean(passes, axis=0))

    def to_bytes(self) -> bytes:
        """Return the network's weights as a safetensors file."""
        # A copy of each: safetensors refuses tensors that share memory (tied weights).
        state = {name: value.detach().clone().contiguous() for name, value in self._fitted().state_dict().items()}
        return safetensors.torch.save(state)

    def from_bytes(
        self, data: bytes, *, sample_shape: tuple[int, ...], num_classes: int, trusted: Sequence[str] = ()
    ) -> None:
        """Load the weights from a safetensors file, which holds only numbers: no type needs to be `trusted`."""
        with reproducible(0, self.device):
            members = range(self.uncertainty.members)
            network = self._joined([self.build(sample_shape, num_classes, member) for member in members])
        try:
            network.load_state_dict(safetensors.torch.load(data))
        except SafetensorError as error:
            raise InvalidInputError(f"The weights must be the content of a safetensors file ({error}).") from error
        except RuntimeError as error:
            problem = f"The weights do not fit the network that 'model' makes: {' '.join(str(error).split())[:300]}"
            raise InvalidInputError(f"{problem}. Use the model and estimator they were trained with.") from error
        self.network, self._network_for = network.to(self.device).eval(), self.uncertainty

    def __copy__(self) -> "TorchLearner":
        """Return a learner with this network, which later fits of the original do not change."""
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__getstate__())
        other.network = None if self.network is None else copied(self.network)
        return other

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the trainer and the checkpoints, which belong to this process and its run."""
        return {**self.__dict__, "_trainer": None, "checkpoints": None}

    @property
    def processes(self) -> Alone:
        """The processes that train the network together."""
        return processes()

    @property
    def warm_start(self) -> bool:
        """Whether a round begins with the last round's weights, so that a resumed run has to load them."""
        return self.training.warm_start

    def _fitted(self) -> nn.Module:
        if self.network is None:
            raise InvalidInputError("The learner has no network yet; call fit first.")
        return self.network

    def _chunks(
        self, source: Source, network: nn.Module, window: int | None = None, share: tuple[int, int] = (0, 1)
    ) -> Iterator[tuple[int, Tensor]]:
        """Yield the samples as network input, in chunks with their first positions; for clips, one window."""
        samples, size = None if self._trainer is None else self._trainer.samples, self.chunk_size(source)
        first, step = share
        starts = range(first * size, len(source), step * size)
        parts = None if samples is None else samples.part(source, size)
        if parts is None:
            rows = (np.arange(start, min(start + size, len(source))) for start in starts)
            parts = streamed(source, rows, self.training, self.device, is_for_tables(network))
        else:
            parts = itertools.islice(parts, first, None, step)
        for start, part in zip(starts, parts, strict=False):  # without samples, there is one empty part
            yield start, shown(part, self.training, window)

    def chunk_size(self, source: Source) -> int:
        """Return how many samples are labeled at once."""
        if self.predict_batch_size is not None:
            return self.predict_batch_size
        # Enough rows to fill a GPU, even if only a tenth of them is in all passes at once, but at most 256 MiB of
        # input. A CPU is as fast with fewer.
        most, values = (1024, 2**24) if self.device.type == "cpu" else (20_480, 2**26)
        sample = torch.empty(1, *source.sample_shape, dtype=torch.uint8, device="meta")
        return max(1, min(most, values // shown(sample, self.training).numel()))

    def _reproducible(self, seed: int, network: nn.Module) -> contextlib.AbstractContextManager[None]:
        threads = 1 if self.threads is None and is_for_tables(network) else self.threads
        return reproducible(seed, self.device, threads)

    @contextlib.contextmanager
    def _arithmetic(self, batch: Tensor) -> Iterator[None]:
        """Compute as in training: in its precision, with its choice of algorithms; name samples of a wrong kind."""
        precision = autocast(self.training, self.device)
        with algorithms(self.training.deterministic), precision, torch.no_grad(), kind_named(batch, self.training):
            yield


def _printed(thing: object) -> str:
    """Return how Python prints an object, without memory addresses."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(thing))


def is_for_tables(network: nn.Module) -> bool:
    """Whether a network, or a part of it, is for tables: small, and with inputs at full precision."""
    return any(getattr(part, "for_tables", False) for part in network.modules())


_ONE_AT_A_TIME = threading.RLock()


@contextlib.contextmanager
def reproducible(seed: int, device: torch.device, threads: int | None = None) -> Iterator[None]:
    """Seed torch and set its number of threads for a block of code; restore both afterwards."""
    generators = torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])
    # Torch's generators and its number of threads are global: only one block of code at a time may set them.
    with _ONE_AT_A_TIME, generators:
        before = torch.get_num_threads()
        try:
            torch.set_num_threads(threads if threads and device.type == "cpu" else before)
            torch.manual_seed(seed)
            yield
        finally:
            torch.set_num_threads(before)
