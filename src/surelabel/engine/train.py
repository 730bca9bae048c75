"""Train a network: the order says which rows, the feed provides them, and the step learns from them.

The host only queues work: nothing inside a round waits for the device, except for the parts of a loss that a method
notes, which are read a few times. The loss itself is read once, at the end.
"""

import contextlib
import functools
import itertools
import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from surelabel.base.system import Progress
from surelabel.data.draws import UInt64Array, sample_keys, seed_for
from surelabel.data.sharded import windows_of
from surelabel.data.source import Index, Source
from surelabel.data.training_set import TrainingSet
from surelabel.engine.checkpoint import FitCheckpoint
from surelabel.engine.feed import Samples, autocast, shown, streamed
from surelabel.engine.method import PARTS, Method, Stream, check_streams, counted, expect, sizes_of
from surelabel.engine.optimizer import learning_rate
from surelabel.engine.order import Block, batch_order, columns_of, divided, num_steps
from surelabel.engine.parallel import processes, take_first
from surelabel.engine.settings import TrainingSettings
from surelabel.engine.step import Inputs, Step, algorithms, copied, dense, shapes, state_tensors
from surelabel.errors import InvalidInputError
from surelabel.models.stochastic import evaluation_mode
from surelabel.uncertainty.plan import generators_restored

_LOOKED_AT_ONCE = 2048

_STEPS_AT_ONCE, _ENTRIES_AT_ONCE = 64, 1 << 24
"""How many steps, and how many entries of their targets, go to the device at once at most."""

_NOTED_PER_ROUND = 20
"""How many times per round the parts of the loss are read, which waits for the device."""

_logger = logging.getLogger("surelabel")


@dataclass(eq=False)
class Trainer:
    """Trains one network after another; on a GPU they share a compiled and captured step with new weights.

    Args:
        settings: of the training.
        device: where the networks live.
        compiled: whether augmentation, network and loss are compiled into one function.
        exact: floating-point samples keep their width.
        progress: called during training.
    """

    settings: TrainingSettings
    device: torch.device
    _: KW_ONLY
    compiled: bool = False
    exact: bool = False
    progress: Progress | None = None
    samples: Samples | None = field(default=None, init=False)
    _step: Step | None = field(default=None, init=False)
    _made_for: tuple[Any, ...] = field(default=(), init=False)

    @property
    def shares(self) -> bool:
        """Whether networks and batches of the same shape share a step, which is slow to make, and its network."""
        return self.compiled or self.device.type == "cuda"

    def train(
        self,
        fresh: nn.Module,
        training_set: TrainingSet,
        method: Method,
        *,
        seed: int,
        checkpoint: FitCheckpoint | None = None,
    ) -> nn.Module:
        """Train a fresh network on the rows that have something to learn from; return the trained network.

        That is `fresh` itself or, if steps are shared, the network that took its weights; with `ema_decay`, the average
        of its weights. The next call overwrites a shared network, so copy it to keep it.

        Several processes (`engine.parallel`) take their parts of each batch, and return equal networks.

        Args:
            fresh: the network that training starts from.
            training_set: samples and targets.
            method: how batches are drawn, and the loss.
            seed: of the round.
            checkpoint: what to resume from, and where the state is saved from time to time; None: no checkpoints.
        """
        streams = method.streams(training_set)
        check_streams(streams, len(training_set.source))
        group = processes()
        if training_set.num_labeled < group.size:
            problem = f"{training_set.num_labeled} labeled samples are fewer than the {group.size} processes"
            raise InvalidInputError(f"{problem}; start at most {training_set.num_labeled}.")
        if group.size > 1:
            streams = divided(streams, group.size)
        sizes = sizes_of([stream._replace(size=stream.size // group.size) for stream in streams])
        looking = isinstance(method.looks, int) and type(method).look is not Method.look
        expect(method.looks == 0 or looking, "looks", "be a whole number, with look() defined", method.looks)
        steps = num_steps(streams, self.settings, training_set.round)
        keys = sample_keys(training_set.source.ids)
        looks = {number * steps // method.looks for number in range(method.looks)}
        # A graph is captured on the current device, whatever device the tensors are on.
        current = torch.cuda.device(self.device) if self.device.type == "cuda" else contextlib.nullcontext()
        with current, algorithms(self.settings.deterministic):
            samples = self._samples(training_set.source)
            take_first(state_tensors(fresh))
            step = self._step_for(fresh, method, training_set, samples, sizes)
            step.begin(fresh, seed)
            done, what = 0 if checkpoint is None else checkpoint.restore(step, steps), "train"
            with checkpoint or contextlib.nullcontext():
                for number, inputs in enumerate(
                    self._inputs(training_set, streams, keys, seed, done, steps), start=done
                ):
                    if number in looks:
                        method.look(functools.partial(self._logits, step), training_set, step.state)
                    if group.size > 1:
                        # Dropout differs between processes, and continues from any step as if training had not stopped.
                        torch.manual_seed(seed_for(seed, "dropout", group.rank, number))
                    step.run(inputs)
                    if checkpoint is not None:
                        checkpoint.after(step, number + 1)
                    if method.parts and (number + 1) * _NOTED_PER_ROUND % steps < _NOTED_PER_ROUND:
                        what = f"train: {parts_of(method, step)}"
                        _logger.info("%s, step %d of %d", what, number + 1, steps)
                    if self.progress is not None:
                        self.progress(what, number + 1, steps)
        if not torch.isfinite(step.value):
            remedy = "Lower the learning rate, set gradient_clip, or check the samples for extreme values"
            raise InvalidInputError(f"Training diverged: the last loss is {step.value.item()}. {remedy}.")
        take_first(state_tensors(step.network if step.average is None else step.average))
        if step.average is None:
            return step.network
        if not self.shares:  # a shared one is the next round's teacher
            for mine, trained in zip(step.average.parameters(), step.network.parameters(), strict=True):
                mine.requires_grad_(trained.requires_grad)
        return step.average

    def _samples(self, source: Source) -> Samples:
        """Return the samples of a round; reuse those of the last round if they are the same."""
        if self.samples is None or self.samples.source is not source:
            self.samples = self._step = None  # first: the new samples may need their memory
            self.samples = Samples(source, self.settings, self.device, self.exact)
        return self.samples

    def _step_for(
        self, fresh: nn.Module, method: Method, training_set: TrainingSet, samples: Samples, sizes: tuple[int, ...]
    ) -> Step:
        """Return a step that can train `fresh`: the last one if steps are shared and it fits, else a new one."""
        last, made_for = self._step, (method, sizes, shapes(fresh))
        if self.shares and last is not None:
            if self._made_for == made_for:
                return last
            made = f"The training step is made again, for batches of {' + '.join(map(str, sizes))} rows"
            _logger.info("%s; a number for negative_batch_size would give all rounds the same shape.", made)
        self._step = last = None  # first: the new one needs memory, and making it may be interrupted
        network = copied(fresh) if self.shares else fresh
        network.train()
        number = len(samples.source)
        rows = np.resize(np.arange(number), sum(sizes))
        places, nothing = self._upload(rows), torch.zeros((), device=self.device)
        keys, y, g = self._targets(training_set, rows, np.zeros(len(rows), dtype=np.uint64))
        at_first = samples.at(rows) if samples.store is None else None
        example = Inputs(places, torch.zeros_like(places), keys, y, g, nothing, nothing, nothing, at_first)
        step = Step(network, method, self.settings, number, samples.store, example, sizes, compiled=self.compiled)
        step.capture()
        self._step, self._made_for = step, made_for
        return step

    def _inputs(
        self, training_set: TrainingSet, streams: Sequence[Stream], keys: UInt64Array, seed: int, done: int, steps: int
    ) -> Iterator[Inputs]:
        """Yield the inputs of each step after the first `done`; those of many steps go to the device at once."""
        assert self.samples is not None
        entries = training_set.num_classes * sum(stream.size for stream in streams)
        length = max(1, min(_STEPS_AT_ONCE, _ENTRIES_AT_ONCE // entries))
        group = processes()
        mine = columns_of(streams, group.rank, group.size)
        windows = windows_of(self.samples.source)
        whole = batch_order(streams, keys, seed, steps, done, length=length, windows=windows)
        blocks: Iterator[Block] = (Block(*(part[:, mine] for part in block)) for block in whole)
        batches: Iterator[Tensor | None] = itertools.repeat(None)
        if self.samples.store is None:
            blocks, ahead = itertools.tee(blocks)
            rows = (rows for block in ahead for rows in block.rows)
            batches = streamed(self.samples.source, rows, self.settings, self.device, self.exact)
        size = sum(stream.size for stream in counted(streams))
        for block in blocks:
            numbers = range(done, done + len(block.rows))
            rates = [learning_rate(self.settings, t, steps, size) for t in numbers]
            averaging = [averaging_weight(self.settings, t) for t in numbers]
            floats = np.array([rates, averaging, [t / steps for t in numbers]], dtype=np.float32)
            known = self._targets(training_set, block.rows, keys[block.rows])
            parts = [self._upload(block.rows), self._upload(block.epochs), *known, *map(self._upload, floats)]
            for t in range(len(numbers)):
                yield Inputs._make([*(part[t] for part in parts), next(batches)])
            done = numbers.stop

    def _logits(self, step: Step, rows: Index) -> Tensor:
        """Return the logits of samples without augmentation, by the average of the weights or else the network."""
        assert self.samples is not None
        network = step.network if step.average is None else step.average
        precision, parts = autocast(self.settings, self.device), []
        with torch.no_grad(), precision, evaluation_mode(network), generators_restored(self.device):
            for some in np.array_split(rows, math.ceil(len(rows) / _LOOKED_AT_ONCE)):
                parts.append(network(shown(self.samples.at(some), self.settings)).float())
        return torch.cat(parts)

    def _targets(self, training_set: TrainingSet, rows: Index, keys: UInt64Array) -> list[Tensor]:
        """Return the keys of some rows, and y and g as masks (..., C), which are made on the device."""
        packed = training_set.targets.packed(rows.ravel())
        masks = [dense(self._upload(bits.reshape(*rows.shape, -1)), training_set.num_classes) for bits in packed]
        return [self._upload(keys.view(np.int64)), *masks]

    def _upload(self, array: npt.NDArray[Any]) -> Tensor:
        tensor = torch.from_numpy(array)
        return tensor.pin_memory().to(self.device, non_blocking=True) if self.device.type == "cuda" else tensor


def parts_of(method: Method, step: Step) -> str:
    """Return the parts of the last loss as text, "labeled 0.31, unlabeled 0.024"."""
    values = zip(method.parts, step.state[PARTS].tolist(), strict=True)
    return ", ".join(f"{name} {value:.2g}" for name, value in values)


def averaging_weight(settings: TrainingSettings, step: int) -> float:
    """Return how far the average of the weights moves in a step: at first it is the mean of all steps so far.

    With `ema_share` s it covers about the last s t of t steps.

    >>> [averaging_weight(TrainingSettings(ema_decay=0.9), step) for step in (0, 1, 99)]
    [1.0, 0.5, 0.09999999999999998]
    >>> averaging_weight(TrainingSettings(ema_decay=0.9, ema_share=0.5), 1)
    0.6666666666666666
    """
    return max(1 - settings.ema_decay, 1 / (settings.ema_share * step + 1))
