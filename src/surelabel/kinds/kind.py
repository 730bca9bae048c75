"""The interface of a kind of samples, and the files of a folder."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from surelabel.augment.settings import AugmentSettings
from surelabel.core.labels import Task
from surelabel.data.decoding import DecodeSettings
from surelabel.data.source import Source

_OF_SELECTION = ("tau_p", "kappa_p", "labeled_batch_size", "max_rounds")
_LOOKED_AT = 1024
"""The most samples from which the mean and the spread of a channel are computed."""


class Network(NamedTuple):
    """The network that suits samples of a kind.

    Attributes:
        model: reference to its factory.
        parameters: what the factory is called with.
        augment: the augmentation in training.
        strong: the same for methods that learn from strong views; None: `augment`.
    """

    model: str
    parameters: dict[str, Any]
    augment: AugmentSettings
    strong: AugmentSettings | None = None


class Kind(ABC):
    """A kind of samples that come as files in a folder."""

    name: ClassVar[str]
    endings: ClassVar[tuple[str, ...]]
    defaults: ClassVar[Mapping[str, Any]] = {}
    """Values of `surelabel.base.defaults.FitDefaults` that suit these samples better than those for tables."""
    linear: ClassVar[str]
    """Reference to the linear classifier that networks are compared with."""

    def defaults_for(self, task: Task) -> dict[str, Any]:
        """Return the defaults, see `for_task`."""
        return for_task(self.defaults, task)

    @abstractmethod
    def reading(self, files: Sequence[Path]) -> DecodeSettings:
        """Choose how files are read, from some of them; the run keeps it."""

    @abstractmethod
    def network(self, samples: Source) -> Network:
        """Choose a network for samples, uint8 of shape (N, channels, ...)."""


def for_task(defaults: Mapping[str, Any], task: Task) -> dict[str, Any]:
    """Return defaults; those for selection were chosen for one label per sample, and are not used for several.

    >>> for_task({"learning_rate": 0.1, "tau_p": 0.5}, "multi")
    {'learning_rate': 0.1}
    """
    return {name: value for name, value in defaults.items() if task == "single" or name not in _OF_SELECTION}


def walk(root: Path) -> Iterator[Path]:
    """Yield the files below a folder, sorted by name, without hidden ones; links to folders are not followed.

    An unreadable folder is an error: its samples would be missing silently.
    """

    def refuse(error: OSError) -> None:
        raise error

    for folder, folders, files in os.walk(root, onerror=refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(folder, name) for name in sorted(files) if not name.startswith("."))


def linked_folders(root: Path) -> list[str]:
    """Return the links to folders below a folder, which `walk` does not follow, without hidden ones."""
    found = [Path(folder, name) for folder, folders, _ in os.walk(root) for name in sorted(folders)]
    names = [path.relative_to(root).as_posix() for path in found if path.is_symlink()]
    return [name for name in names if not any(part.startswith(".") for part in name.split("/"))]


def channel_statistics(samples: Source) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the mean and the standard deviation of each channel, scaled to 0 to 1, from some of the samples."""
    rows = np.unique(np.linspace(0, len(samples) - 1, _LOOKED_AT).astype(np.int64))
    values = np.asarray(samples[rows], dtype=np.float32).swapaxes(0, 1) / 255
    flat = values.reshape(len(values), -1)
    # A constant channel is not scaled.
    return tuple(map(float, flat.mean(axis=1))), tuple(map(float, np.maximum(flat.std(axis=1), 1e-3)))
