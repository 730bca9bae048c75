"""Time training, labeling and the start of a round, each by three ways in turns: published-like, plain, engine."""

import functools
from collections.abc import Callable, Iterator
from typing import Annotated, Any, NamedTuple

import torch
from pydantic import Field
from torch import nn

from benchmarks.engine_way import Engine
from benchmarks.operations import MultiplyAdds, multiply_adds
from benchmarks.peak import matmul_peak
from benchmarks.plain import Plain
from benchmarks.published_like import PublishedLike
from benchmarks.results import origin
from benchmarks.timing import Deadline, Measure, medians
from benchmarks.work import SAMPLE_SHAPE, Way, Work, make_work
from surelabel.base.references import resolve
from surelabel.base.settings import MOST_PASSES, MOST_PROCESSES, MOST_UNITS, Device, Settings
from surelabel.base.system import Progress, cores
from surelabel.errors import InvalidInputError
from surelabel.models.cnn13 import cnn13

PUBLISHED_LIKE, PLAIN, ENGINE = "published-like", "plain", "engine"
WAYS: dict[str, Callable[[Work], Way]] = {PUBLISHED_LIKE: PublishedLike, PLAIN: Plain, ENGINE: Engine}

CNN13 = "cnn13"
RESTART = "next round"
"""Re-initialize and take the first step."""

_MOST_WORKERS = 16
_Images = Annotated[int, Field(ge=1, le=10**8)]


class BenchSettings(Settings):
    """What is timed.

    Attributes:
        model: "cnn13", or "module:function" or "file.py:function", `(sample_shape, num_classes) -> nn.Module`.
        width: channels of CNN-13's first block; it means nothing to another model.
        batches: images in a training step, a row for each.
        label_batch: images that are labeled at once.
        passes: stochastic passes over each image.
        images: how many there are; they are made by code.
        workers: processes that load images in the published-like way.
        repeats: how often each way is timed.
        minutes: nothing new is begun after these.
        device: "cpu" or "cuda".
    """

    model: str = CNN13
    width: int = Field(128, ge=1, le=MOST_UNITS)
    batches: tuple[_Images, ...] = Field((512, 128), min_length=1)
    label_batch: _Images = 20_480
    passes: int = Field(10, ge=2, le=MOST_PASSES)
    images: _Images = 51_200
    workers: int = Field(_MOST_WORKERS, ge=0, le=MOST_PROCESSES)
    repeats: int = Field(3, ge=1, le=10_000)
    minutes: float = Field(10.0, gt=0)
    device: Device = "cuda"

    def factory(self) -> Callable[[tuple[int, ...], int], nn.Module]:
        """Return the function that makes networks."""
        if self.model == CNN13:
            return functools.partial(cnn13, width=self.width)
        factory: Callable[[tuple[int, ...], int], nn.Module] = resolve(self.model)
        return factory

    def work(self, batch: int) -> Work:
        """Return the work with this batch size."""
        if self.images < batch:
            raise InvalidInputError(
                f"The 'images' setting must be at least the batch size, {batch}. Got {self.images} instead; ask for "
                "more images, or a smaller batch."
            )
        return make_work(
            self.factory(),
            num_images=self.images,
            batch=batch,
            label_batch=self.label_batch,
            passes=self.passes,
            workers=self.workers,
            device=torch.device(self.device),
        )


def default_settings(device: str | None = None) -> BenchSettings:
    """Return settings for this machine: the full network on a GPU; a small one, for about a minute, on a CPU.

    Args:
        device: None for the GPU if there is one.

    Example:
        >>> default_settings("cpu").width
        16
    """
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if torch.device(device).type == "cuda":
        return BenchSettings(device=device, workers=min(_MOST_WORKERS, cores()))
    return BenchSettings(
        device=device, width=16, batches=(32, 8), label_batch=64, images=64, workers=min(2, cores()), minutes=2.0
    )


class Row(NamedTuple):
    """One thing, timed by all ways in turns.

    Attributes:
        what: "training", "labeling, 10 passes", or the start of a round.
        batch: images in a step, or labeled at once.
        seconds: for each way that was timed: for an image, or for a start.
        operations: that one image needs; 0 where they are not the point.
    """

    what: str
    batch: int
    seconds: dict[str, float]
    operations: float = 0.0

    def per_second(self, way: str) -> float | None:
        """Images (or starts) a second; None where the way was not timed."""
        return 1 / self.seconds[way] if way in self.seconds else None

    def ratio(self, way: str) -> float | None:
        """How many times as fast as this way the engine is; None where one of the two was not timed."""
        return self.seconds[way] / self.seconds[ENGINE] if {way, ENGINE} <= self.seconds.keys() else None

    @property
    def missing(self) -> list[str]:
        """The ways that the time did not suffice for."""
        return [way for way in WAYS if way not in self.seconds]


class Bench(NamedTuple):
    """All rows of a run, and the operations a second of the best matrix product on the same device."""

    rows: list[Row]
    peak: float
    model: str
    device: torch.device

    def fraction_of_peak(self, row: Row) -> float | None:
        """Which share of the peak the engine's useful operations are; None where it says nothing."""
        speed = row.per_second(ENGINE)
        return speed * row.operations / self.peak if speed and row.operations else None

    def results(self) -> list[dict[str, Any]]:
        """Return the rows of `results/bench.csv`, without those in which the engine was not timed."""
        where = origin(self.device)
        return [
            {
                "what": row.what,
                "model": self.model,
                "batch": row.batch,
                "per_second": row.per_second(ENGINE),
                "plain_per_second": row.per_second(PLAIN),
                "ratio": row.ratio(PLAIN),
                "published_like_per_second": row.per_second(PUBLISHED_LIKE),
                "published_like_ratio": row.ratio(PUBLISHED_LIKE),
                "fraction_of_peak": self.fraction_of_peak(row),
                **where,
            }
            for row in self.rows
            if ENGINE in row.seconds
        ]


def run_bench(settings: BenchSettings, progress: Progress | None = None) -> Bench:
    """Time every row and return the medians; all ways of a row take turns, after a warm-up.

    Args:
        settings: what is timed.
        progress: called before each measurement with (what, done, total).
    """
    deadline, device = Deadline(settings.minutes), torch.device(settings.device)
    counted = _count(settings, device)
    peak = matmul_peak(device)
    measurements = _Counter(progress, (len(settings.batches) + 2) * len(WAYS) * (settings.repeats + 1))
    rows = []
    for row, measures in _rows(settings, counted):
        told = functools.partial(measurements.next, row.what)
        rows.append(row._replace(seconds=medians(measures, settings.repeats, deadline, told)))
    name = settings.model if settings.model != CNN13 else f"{CNN13}, width {settings.width}"
    return Bench(rows, peak, name, device)


def _rows(settings: BenchSettings, counted: MultiplyAdds) -> Iterator[tuple[Row, dict[str, Measure]]]:
    """Yield each row, still without times, with what measures it; a way is made when its first row begins."""
    for position, batch in enumerate(settings.batches):
        work = settings.work(batch)
        ways = {name: make(work) for name, make in WAYS.items()}
        training = Row("training", batch, {}, counted.training_operations())
        yield training, {name: way.train_seconds for name, way in ways.items()}
        if position == 0:
            what = f"labeling, {settings.passes} passes"
            labeling = Row(what, work.label_batch, {}, counted.labeling_operations(settings.passes))
            yield labeling, {name: way.label_seconds for name, way in ways.items()}
            yield Row(RESTART, batch, {}), {name: way.restart_seconds for name, way in ways.items()}


def _count(settings: BenchSettings, device: torch.device) -> MultiplyAdds:
    model = settings.work(settings.batches[0]).new_model()
    return multiply_adds(model, torch.zeros(1, *SAMPLE_SHAPE, device=device))


class _Counter:
    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress, self.done, self.total = progress, 0, total

    def next(self, what: str, way: str) -> None:
        if self.progress is not None:
            self.progress(f"{what}, {way}", self.done, self.total)
        self.done += 1
