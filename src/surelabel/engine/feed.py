"""How samples reach the device: they live there when they fit, and stream from loader processes when they do not.

Both ways give the same rows in the same order, as stored; augmentation happens afterwards, on the device.
"""

import contextlib
import functools
import re
from collections.abc import Iterable, Iterator
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from surelabel.augment.chain import Augment
from surelabel.data.source import Concatenation, Index, Source, Subset
from surelabel.engine.settings import TrainingSettings
from surelabel.errors import InvalidInputError, SampleKindError
from surelabel.uncertainty.plan import summary

LARGEST_SHARE = 0.5
"""The most of the device's free memory that samples take; the rest is for the network and its activations."""

_READ_AT_ONCE = 2**26
"""Bytes of samples that are read before they are copied to the device."""

_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
"""Memory formats by the number of axes: images (N, C, H, W) and clips (N, C, T, H, W); others keep their format."""

_OF_KINDS = re.compile("dtype|scalar type|input type|result type|type promot|not implemented for", re.IGNORECASE)
"""What torch's errors about a wrong dtype have in common."""

_ONE_ROW = "Expected more than 1 value per channel"


def as_tensor(batch: Any, exact: bool = False) -> Tensor:
    """Return samples as one tensor: sparse rows become dense, floats become float32, integers keep their type.

    With `exact`, floats keep their width, for a network that standardizes them itself.
    """
    tensor = torch.as_tensor(batch.toarray() if hasattr(batch, "toarray") else batch)
    return tensor.float() if tensor.is_floating_point() and not exact else tensor


def on_device(source: Source, settings: TrainingSettings, device: torch.device, exact: bool = False) -> Tensor | None:
    """Return all samples as one tensor on the device; None if they should stream.

    A CPU reads its samples where they are, so nothing is copied for it. Devices other than CUDA stream theirs.
    """
    if device.type != "cuda" or settings.data_on_device is False:
        return None
    first = as_tensor(source[np.arange(min(1, len(source)))], exact)
    needed = first.element_size() * first.numel() * len(source)
    free, _ = torch.cuda.mem_get_info(device)
    free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    if needed > LARGEST_SHARE * free:
        if settings.data_on_device:
            sizes = f"{needed / 2**30:.1f} GiB, more than half of the {free / 2**30:.1f} GiB free on {device}"
            raise InvalidInputError(f"data_on_device=True needs {sizes}. Leave it at None to stream the samples.")
        return None
    store = torch.empty((len(source), *first.shape[1:]), dtype=first.dtype, device=device)
    at_once = max(1, _READ_AT_ONCE // (first.element_size() * first.numel()))
    for start in range(0, len(source), at_once):
        rows = np.arange(start, min(start + at_once, len(source)))
        store[start : start + len(rows)] = as_tensor(source[rows], exact).to(device)
    return store


class Samples:
    """The samples of a training set for one learner: copied to the device once, for both training and labeling.

    Args:
        source: all samples of the training set.
        settings: `data_on_device` and `workers`.
        device: where the network lives.
        exact: floats keep their width.
    """

    def __init__(self, source: Source, settings: TrainingSettings, device: torch.device, exact: bool = False) -> None:
        self.source, self.settings, self.device, self.exact = source, settings, device, exact
        self.store = on_device(source, settings, device, exact)

    def at(self, rows: Index) -> Tensor:
        """Return the samples of these rows, on the device."""
        if self.store is not None:
            return self.store.index_select(0, torch.from_numpy(rows).to(self.device))
        return as_tensor(self.source[rows], self.exact).to(self.device)

    def part(self, source: Source, size: int) -> Iterator[Tensor] | None:
        """Return the stored samples of the training set's source, of its pool, or of a subset of these, in chunks.

        None if `source` is a different one, or if nothing is stored.
        """
        stored = self._stored(source)
        if stored is not None:
            return iter(torch.split(stored, size))
        if isinstance(source, Subset) and (whole := self._stored(source.source)) is not None:
            rows = torch.from_numpy(np.array(source.index, dtype=np.int64)).to(self.device)
            return (whole.index_select(0, some) for some in torch.split(rows, size))
        return None

    def _stored(self, source: Source) -> Tensor | None:
        if self.store is None:
            return None
        if source is self.source:
            return self.store
        if isinstance(self.source, Concatenation) and source is self.source.second:
            return self.store[len(self.source.first) :]
        return None


def streamed(
    source: Source, rows: Iterable[Index], settings: TrainingSettings, device: torch.device, exact: bool = False
) -> Iterator[Tensor]:
    """Yield the samples of each of `rows`, on the device; `settings.workers` processes read ahead."""
    loader = DataLoader(
        cast(Any, source),
        batch_size=None,
        sampler=rows,
        collate_fn=functools.partial(as_tensor, exact=exact),
        num_workers=settings.workers,
        pin_memory=device.type == "cuda",
        # Its own generator, so that it does not draw from dropout's.
        generator=torch.Generator(),
    )
    for batch in loader:
        yield batch.to(device, non_blocking=True)


def channels_last(x: Tensor) -> Tensor:
    """Return images or clips in the memory format that makes convolutions fastest on a GPU.

    >>> channels_last(torch.zeros(2, 3, 4, 4)).stride()
    (48, 1, 12, 3)
    """
    return x.contiguous(memory_format=_FORMATS[x.ndim]) if x.ndim in _FORMATS else x


def shown(samples: Tensor, settings: TrainingSettings, window: int | None = None) -> Tensor:
    """Return samples as a network sees them, without random augmentation; for clips, one window."""
    if settings.augment is not None:
        samples = Augment(settings.augment).plain(samples, window)
    return channels_last(samples) if settings.channels_last else samples


def autocast(settings: TrainingSettings, device: torch.device) -> torch.autocast:
    """Return the context in which a network computes in the precision that the settings name."""
    return torch.autocast(device.type, torch.bfloat16, enabled=settings.precision == "bfloat16")


@contextlib.contextmanager
def kind_named(samples: Tensor, settings: TrainingSettings) -> Iterator[None]:
    """Say what to do if a network takes floats and the samples are integers, or if it cannot normalize one row."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        if _ONE_ROW in str(error):
            problem = "BatchNorm cannot normalize a mini-batch of one row"
            remedy = "set a batch_size above 1, give more samples, or use a network without it"
            raise InvalidInputError(f"{problem}, in training; {remedy}.") from error
        normalized = samples.is_floating_point() or settings.augment is not None
        if normalized or isinstance(error, InvalidInputError) or not _OF_KINDS.search(str(error)):
            raise
        problem = f"The network cannot take samples stored as {samples.dtype}: {summary(error)}"
        remedy = "Give float32, such as x / 255, or set TrainingSettings(augment=AugmentSettings(mean=..., std=...))"
        raise SampleKindError(f"{problem}. {remedy}.") from error
