"""Appendix figure 4: pictures that are wrong at a confidence above 0.9, and excluded only by their uncertainty.

A video clip is shown by four of its frames. In a multi-label run, a class that a sample does not have is the wrong
label; the caption names the classes that it has. The pictures are read from the run's data.
"""

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from surelabel.data.source import as_source
from surelabel.errors import SurelabelError
from surelabel.report.drawing import Picture
from surelabel.report.figures import NOT_DRAWN, ReportFigure, judged_on, not_judged
from surelabel.report.tables import Row, labels_and_truth
from surelabel.runs import RunFolder

Pixels = npt.NDArray[np.uint8]
Shown = tuple[RunFolder, int, str]
"""A run, the sample's index in its pool, and its caption."""

CONFIDENT = 0.9
LIMIT = 12
LARGEST_SIDE = 1024
SHOWN_SIDE, LARGEST_SHOWN_SIDE = 96, 256


def pictures_figure(row: Row, limit: int = LIMIT, validation: bool = False) -> ReportFigure:
    """Show up to `limit` samples of the pool that are confident, wrong and excluded by their uncertainty.

    Args:
        row: its runs, of which the first rounds come first.
        limit: how many pictures.
        validation: show samples of the validation set instead.
    """
    title = "Confident, wrong and kept out"
    if problem := _why_not(row, validation):
        return ReportFigure(title, note=problem)
    shown = _shown(row, limit, validation)
    if not shown:
        note = f"There is no such sample: wrong, with a confidence above {CONFIDENT}, and u > kappa_p."
        return ReportFigure(title, note=note + judged_on(row, validation))
    try:
        pixels_of = functools.cache(functools.partial(_reader, validation=validation))
        pictures = [Picture(pixels_of(run)(place), caption) for run, place, caption in shown]
    except Exception as error:  # the user's function may fail in any way, and the rest of the report is still useful
        reason = error if isinstance(error, SurelabelError) else f"{type(error).__name__}: {error}"
        return ReportFigure(title, note=f"{NOT_DRAWN}the run's data cannot be read. {reason}")
    caption = (
        "The network is wrong about each of these at a confidence above 0.9, so a threshold of 0.9 on it would let "
        "them in; their uncertainty u keeps them out (figure 4 of the paper's appendix)."
    )
    return ReportFigure(title, caption + judged_on(row, validation), pictures=pictures)


def _reader(run: RunFolder, validation: bool) -> Callable[[int], Pixels]:
    """Return a function from the index of a sample of the pool, or of the validation set, to its pixels."""
    data, (labels, _) = run.data(), labels_and_truth(run, 0, validation)
    source = as_source("samples", data.validation[0] if validation and data.validation else data.unlabeled)
    # Partly labeled samples come first in the pool; their unknown entries are not judged.
    first = len(labels.ids) - len(source)
    return lambda place: to_pixels(np.asarray(source[np.array([place - first])])[0])


def _why_not(row: Row, validation: bool) -> str:
    for shape in (run.settings.sample_shape for run in row.runs):
        if not looks_like_picture(shape):
            return f"{NOT_DRAWN}the samples are not pictures (one has shape {shape})."
    return not_judged(row, validation)


def looks_like_picture(shape: tuple[int, ...]) -> bool:
    """Whether a sample can be shown: pictures are (H, W) or (channels, H, W), clips (channels, T, H, W).

    >>> looks_like_picture((3, 32, 32)), looks_like_picture((64,))
    (True, False)
    """
    has_channels = len(shape) == 2 or (len(shape) in (3, 4) and shape[0] in (1, 3))
    return has_channels and max(shape[-2:]) <= LARGEST_SIDE


def _shown(row: Row, limit: int, validation: bool) -> list[Shown]:
    places = itertools.product(range(row.num_rounds), row.runs)
    found = itertools.chain.from_iterable(_found(run, network, validation) for network, run in places)
    return list(itertools.islice(found, limit))


def _found(run: RunFolder, network: int, validation: bool) -> Iterator[Shown]:
    """Yield the network's samples that are confident, wrong and excluded, the most confident first."""
    (labels, truth), classes = labels_and_truth(run, network, validation), run.settings.classes
    assert labels.uncertainty is not None
    multi = labels.label.ndim == 2
    wrong = (labels.label == 1) & (truth == 0) if multi else (truth >= 0) & (labels.label != truth)
    kept_out = wrong & (labels.confidence > CONFIDENT) & (labels.uncertainty > run.settings.config.kappa_p)
    entries = np.argwhere(kept_out)[np.argsort(-labels.confidence[kept_out], kind="stable")]
    # A sample is shown once, with its most confident class.
    best: dict[int, tuple[int, ...]] = {}
    for entry in entries.tolist():
        best.setdefault(entry[0], tuple(entry))
    for place, entry in best.items():
        taken_for = classes[entry[1] if multi else labels.label[place]]
        numbers = f"confidence {labels.confidence[entry]:.2f}, u {labels.uncertainty[entry]:.2f} (round {network})"
        yield run, place, f"{_names(truth[place], classes)} taken for {taken_for}, {numbers}"


def _names(truth: Any, classes: Sequence[str]) -> str:
    """Return the true class, given an index, or all true classes, given (C,) entries.

    >>> _names(1, ["cat", "dog"]), _names(np.array([1, 1]), ["cat", "dog"]), _names(np.array([0, -1]), ["cat", "dog"])
    ('dog', 'cat + dog', 'none')
    """
    if np.ndim(truth) == 0:
        return classes[int(truth)]
    return " + ".join(classes[place] for place in np.flatnonzero(truth == 1).tolist()) or "none"


def to_pixels(sample: npt.NDArray[Any]) -> Pixels:
    """Return a sample (H, W), (1, H, W) or (3, H, W) as pixels; uint8 as it is, else from black to white.

    Small pictures are enlarged, and large ones reduced. For a clip (channels, T, H, W), four frames are shown in a
    square, from its beginning to its end.
    """
    from PIL import Image

    pixels = sample
    if sample.dtype != np.uint8:
        above = sample.astype(np.float64) - sample.min()
        pixels = np.round(255 * above / (above.max() or 1)).astype(np.uint8)
    if pixels.ndim == 4:
        times = np.linspace(0, pixels.shape[1] - 1, 4).round().astype(int)
        first, second, third, last = (pixels[:, time] for time in times)
        pixels = np.block([[first, second], [third, last]])
    if pixels.ndim == 3:
        pixels = pixels[0] if pixels.shape[0] == 1 else np.moveaxis(pixels, 0, -1)
    # By an integer factor, so that small pixels stay square.
    scale = max(1, SHOWN_SIDE // max(pixels.shape[:2]))
    image = Image.fromarray(np.ascontiguousarray(pixels.repeat(scale, axis=0).repeat(scale, axis=1)))
    image.thumbnail((LARGEST_SHOWN_SIDE, LARGEST_SHOWN_SIDE))
    return np.asarray(image)
