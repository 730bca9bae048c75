"""The published-like way: Pillow in loader workers, float32 without TF32, eager, one pass after another.

As in the published code, a labeled batch comes from the loader once and then goes through the network pass after pass;
all passes are kept, and mean and standard deviation are taken at the end.
"""

import contextlib
import itertools
import warnings
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

from benchmarks.pillow_augment import normalized, pillow_augment
from benchmarks.timing import fastest_convolutions, seconds
from benchmarks.work import AUGMENTATION, LEARNING_RATE, MOMENTUM, TEMPERATURE, Work
from surelabel.models.stochastic import stochastic_mode

_ENOUGH = 20_480
"""Images that are timed at most."""

_AHEAD = 2
"""Batches that each worker loads ahead: the loader's default."""


class PillowImages(Dataset[tuple[Tensor, Tensor]]):
    """Images and labels one by one, augmented in Pillow or only normalized."""

    def __init__(self, work: Work, augmented: bool) -> None:
        self.pixels = work.images.permute(0, 2, 3, 1).contiguous().numpy()
        self.labels, self.augmented = work.labels, augmented

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        prepare = pillow_augment if self.augmented else normalized
        return prepare(self.pixels[index], AUGMENTATION), self.labels[index]


class PublishedLike:
    """A `Way`: what the published code does, on today's torch."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.training, self.labeling = PillowImages(work, augmented=True), PillowImages(work, augmented=False)
        self._begin()

    def train_seconds(self) -> float:
        """Seconds for each image in the middle of an epoch."""
        with _float32():
            batches = self._batches(self.training, shuffled=True)
            return seconds(lambda: self._train(batches), self.work.device) / (self._count * self.work.batch)

    def label_seconds(self) -> float:
        """Seconds for each image of the pool, in batches of the training's size, as published."""
        with _float32():
            batches = self._batches(self.labeling, shuffled=False)
            return seconds(lambda: self._label(batches), self.work.device) / (self._count * self.work.batch)

    def restart_seconds(self) -> float:
        """Seconds for a new network, a new loader with its workers, and a first step."""
        loaders = []  # kept beyond the clock, which need not see the workers end

        def restart() -> None:
            self._begin()
            loaders.append(self._loader(self.training, range(self.work.batch)))
            self._train([next(loaders[0])])

        with _float32():
            return seconds(restart, self.work.device)

    @property
    def _count(self) -> int:
        """Batches that are timed: an epoch, or a part of it that is long enough to tell the speed of so slow a way."""
        return max(1, min(len(self.work.images), _ENOUGH) // self.work.batch)

    def _begin(self) -> None:
        self.model = self.work.new_model().train()
        self.optimizer = torch.optim.SGD(self.model.parameters(), LEARNING_RATE, MOMENTUM, nesterov=True)

    def _train(self, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
        device = self.work.device
        for images, labels in batches:
            self.optimizer.zero_grad()
            logits = self.model(images.to(device, non_blocking=True))
            cross_entropy(logits, labels.to(device, non_blocking=True)).backward()
            self.optimizer.step()

    @torch.no_grad()
    def _label(self, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
        with stochastic_mode(self.model):
            for images, _ in batches:
                on_device = images.to(self.work.device, non_blocking=True)
                logits = [self.model(on_device) for _ in range(self.work.passes)]
                for temperature in (1.0, TEMPERATURE):
                    p = torch.stack([(z / temperature).softmax(dim=1) for z in logits])
                    p.mean(dim=0).cpu()
                    p.std(dim=0).cpu()

    def _batches(self, images: PillowImages, shuffled: bool) -> Iterator[tuple[Tensor, Tensor]]:
        """Return the batches that are timed, from a loader that is in full swing; its workers end with it.

        What they have loaded ahead while nobody waited is thrown away first, and they go on loading to the end: the
        clock sees the loader's steady speed.
        """
        count, ahead = self._count, max(1, self.work.workers * _AHEAD)
        positions = torch.arange((count + 2 * ahead) * self.work.batch) % len(images)
        order = positions[torch.randperm(len(positions))] if shuffled else positions
        loader = self._loader(images, order.tolist())
        for _ in range(ahead):
            next(loader)
        return itertools.islice(loader, count)

    def _loader(self, images: PillowImages, order: Iterable[int]) -> Iterator[tuple[Tensor, Tensor]]:
        loader = DataLoader(
            images,
            batch_size=self.work.batch,
            sampler=order,
            num_workers=self.work.workers,
            pin_memory=self.work.device.type == "cuda",
        )
        return iter(loader)


@contextlib.contextmanager
def _float32() -> Iterator[None]:
    """Multiply in whole float32, as the GPUs of the published code's time did; leave the flags as they were."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = False
    try:
        with fastest_convolutions(), warnings.catch_warnings():
            # Python 3.12 warns of a fork beside torch's threads; the workers use none of them.
            warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
            yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before
