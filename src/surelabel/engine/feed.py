"""How samples reach the device: they live there when they fit, and stream from loader processes when they do not.

Both ways bring the same rows in the same order, as they are stored; what is random happens on the device afterwards.
"""

import contextlib
import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from surelabel.data.source import Concatenation, Index, Source, Subset
from surelabel.engine.settings import TrainingSettings
from surelabel.errors import InvalidInputError, SampleKindError
from surelabel.uncertainty.plan import summary

LARGEST_SHARE = 0.5
"""Of the device's free memory; the rest is for the network and its activations."""

_READ_AT_ONCE = 2**26
"""Bytes of samples that are read before they go to the device."""

_LOADERS_KEPT = 4
"""A run's samples, its pool, its validation and its test samples."""

_OF_KINDS = re.compile("dtype|scalar type|input type|result type|type promot|not implemented for", re.IGNORECASE)
"""What torch's errors about numbers of the wrong kind have in common."""


def read(source: Source, rows: Index, exact: bool = False) -> Tensor:
    """Return the samples at `rows` as one tensor: sparse rows dense, floats as float32, integers as they are.

    With `exact`, floats keep their width, for a network that standardizes them itself.
    """
    batch = source[rows]
    if hasattr(batch, "toarray"):
        batch = batch.toarray()
    tensor = torch.as_tensor(batch)
    return tensor.float() if tensor.is_floating_point() and not exact else tensor


def on_device(source: Source, settings: TrainingSettings, device: torch.device, exact: bool = False) -> Tensor | None:
    """Return all samples as one tensor on the device; None where they should stream.

    A CPU reads its samples where they are, so nothing is copied for it. Other devices than CUDA's stream theirs.
    """
    if device.type != "cuda" or settings.data_on_device is False:
        return None
    first = read(source, np.arange(min(1, len(source))), exact)
    needed = first.element_size() * first.numel() * len(source)
    free, _ = torch.cuda.mem_get_info(device)
    free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    if needed > LARGEST_SHARE * free:
        if settings.data_on_device:
            raise InvalidInputError(
                f"data_on_device=True needs {needed / 2**30:.1f} GiB for the samples, more than half of the "
                f"{free / 2**30:.1f} GiB that are free on {device}. Leave it at None to stream them."
            )
        return None
    store = torch.empty((len(source), *first.shape[1:]), dtype=first.dtype, device=device)
    at_once = max(1, _READ_AT_ONCE // (first.element_size() * first.numel()))
    for start in range(0, len(source), at_once):
        rows = np.arange(start, min(start + at_once, len(source)))
        store[start : start + len(rows)] = read(source, rows, exact).to(device)
    return store


class Samples:
    """The samples of a training set for one learner: read to the device once, for training and for labeling alike.

    Args:
        source: all samples of the training set.
        settings: `data_on_device` and `workers`.
        device: where the network lives.
        exact: floats keep their width.
    """

    def __init__(self, source: Source, settings: TrainingSettings, device: torch.device, exact: bool = False) -> None:
        self.source, self.device, self.exact = source, device, exact
        self.store = on_device(source, settings, device, exact)
        self._loader = _Loader(source, settings.workers, device, exact) if self.store is None else None

    def example(self, size: int) -> Tensor:
        """Return a batch of `size` samples on the device, of the shape and kind of all."""
        rows = np.resize(np.arange(len(self.source)), size)
        return read(self.source, rows, self.exact).to(self.device)

    def at(self, rows: Index) -> Tensor:
        """Return the samples of these rows, on the device."""
        if self.store is not None:
            return self.store.index_select(0, torch.from_numpy(rows).to(self.device))
        return read(self.source, rows, self.exact).to(self.device)

    def batches(self, rows: Iterable[Index]) -> Iterator[Tensor]:
        """Yield the samples of each step's rows, on the device; only for samples that stream."""
        assert self._loader is not None
        for batch in self._loader.batches(rows):
            yield batch.to(self.device, non_blocking=True)

    def part(self, source: Source, size: int) -> Iterator[Tensor] | None:
        """Return the stored samples of the training set's source, of its pool, or of a subset of these, in chunks.

        None where `source` is another one, or where nothing is stored.
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


class Loaders:
    """Reads whole sources chunk by chunk; the loader processes of the last few stay for the next round."""

    def __init__(self) -> None:
        self._idle: list[_Loader] = []

    def chunks(
        self, source: Source, size: int, settings: TrainingSettings, device: torch.device, exact: bool = False
    ) -> Iterator[Tensor]:
        """Yield all samples in their order, `size` at a time, on the device."""
        rows = np.arange(len(source))
        # A subset may be made anew in each round; what it is a part of stays.
        while isinstance(source, Subset):
            rows, source = source.index[rows], source.source
        loader = self._taken(source, settings.workers, device, exact)
        for batch in loader.batches(rows[start : start + size] for start in range(0, len(rows), size)):
            yield batch.to(device, non_blocking=True)
        if settings.workers:
            self._idle = [*self._idle, loader][-_LOADERS_KEPT:]

    def _taken(self, source: Source, workers: int, device: torch.device, exact: bool) -> "_Loader":
        """Return a loader that is in nobody's hands: one whose chunks are still being read would lose its place."""
        for loader in self._idle:
            if loader.source is source and loader.made_for == (workers, device, exact):
                self._idle.remove(loader)
                return loader
        return _Loader(source, workers, device, exact)


@contextlib.contextmanager
def kind_named(samples: Tensor, settings: TrainingSettings) -> Iterator[None]:
    """Say what to do where a network meets samples that are stored as whole numbers, and takes floats."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        normalized = samples.is_floating_point() or settings.augment is not None
        if normalized or isinstance(error, InvalidInputError) or not _OF_KINDS.search(str(error)):
            raise
        raise SampleKindError(
            f"The network cannot take samples of {samples.dtype}, as they are stored: {summary(error)}. "
            "Give samples of float32, such as x / 255, or let TrainingSettings(augment=AugmentSettings(mean=..., "
            "std=...)) normalize images of uint8."
        ) from error


class _Loader:
    """Reads the rows that it is told to; its processes stay for the next round."""

    def __init__(self, source: Source, workers: int, device: torch.device, exact: bool) -> None:
        self.source, self.made_for = source, (workers, device, exact)
        self._told = _Told()
        self._loader: DataLoader[Tensor] = DataLoader(
            _Rows(source, exact),
            batch_size=None,
            sampler=self._told,
            num_workers=workers,
            persistent_workers=workers > 0,
            pin_memory=device.type == "cuda",
            # Its own, so that it does not draw from the one that dropout draws from.
            generator=torch.Generator(),
        )

    def batches(self, rows: Iterable[Index]) -> Iterator[Tensor]:
        self._told.rows = rows
        yield from self._loader


class _Told:
    """A sampler that yields what it was told."""

    def __init__(self) -> None:
        self.rows: Iterable[Index] = ()

    def __iter__(self) -> Iterator[Index]:
        return iter(self.rows)


class _Rows(Dataset[Tensor]):
    def __init__(self, source: Source, exact: bool) -> None:
        self.source, self.exact = source, exact

    def __getitem__(self, rows: Any) -> Tensor:
        return read(self.source, rows, self.exact)
