"""The work that every way does: the same images, labels, network, batch sizes, augmentation and passes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from surelabel.augment.settings import AugmentSettings

SAMPLE_SHAPE = (3, 32, 32)
NUM_CLASSES = 10
LEARNING_RATE, MOMENTUM = 0.03, 0.9
"""As published; what is timed does not depend on them."""

AUGMENTATION = AugmentSettings(
    operations=3,
    magnitude=4,
    flip=True,
    crop=4,
    jitter=0.4,
    mean=(0.5, 0.5, 0.5),
    std=(0.29, 0.29, 0.29),
    hole=16,
)
"""The published chain, with the mean and spread of images that are uniformly random."""

TEMPERATURE = 2.0
"""Of the softened probabilities."""


@dataclass(frozen=True)
class Work:
    """What is trained on and labeled.

    Attributes:
        make_model: a factory of networks, (sample_shape, num_classes) -> Module.
        images: uint8 of shape (N, 3, 32, 32), in the host's memory; N is a multiple of `batch`.
        labels: class indices, int64 of shape (N,).
        batch: images in a training step.
        label_batch: images that are labeled at once.
        passes: stochastic passes over each image.
        workers: processes that load images, for the way that needs them.
        device: where the network lives.
    """

    make_model: Callable[[tuple[int, ...], int], nn.Module]
    images: Tensor
    labels: Tensor
    batch: int
    label_batch: int
    passes: int
    workers: int
    device: torch.device

    def new_model(self) -> nn.Module:
        """Return a new network on the device."""
        return self.make_model(SAMPLE_SHAPE, NUM_CLASSES).to(self.device)


class Way(Protocol):
    """A way to do the work. Times are for one image, so that a slow way may take a shorter stretch."""

    def train_seconds(self) -> float:
        """Return the seconds that training takes for each image, in the middle of a round."""

    def label_seconds(self) -> float:
        """Return the seconds that all stochastic passes over an image take, until p and u are in the host's memory."""

    def restart_seconds(self) -> float:
        """Return the seconds from the end of a round to the end of the next one's first step, with a fresh network."""


def make_work(
    make_model: Callable[[tuple[int, ...], int], nn.Module],
    *,
    num_images: int,
    batch: int,
    label_batch: int,
    passes: int,
    workers: int,
    device: torch.device,
) -> Work:
    """Return the work on random images and labels, as many as fill whole batches.

    Example:
        >>> from surelabel.models.cnn13 import cnn13
        >>> sizes = {"num_images": 10, "batch": 4, "label_batch": 8, "passes": 2, "workers": 0}
        >>> make_work(cnn13, **sizes, device=torch.device("cpu")).images.shape
        torch.Size([8, 3, 32, 32])
    """
    generator = torch.Generator().manual_seed(0)
    num_images = num_images // batch * batch
    images = torch.randint(0, 256, (num_images, *SAMPLE_SHAPE), dtype=torch.uint8, generator=generator)
    labels = torch.randint(0, NUM_CLASSES, (num_images,), generator=generator)
    return Work(make_model, images, labels, batch, min(label_batch, num_images), passes, workers, device)
