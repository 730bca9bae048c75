"""Appendix figure 4: pictures that are wrong at a confidence above 0.9, and that only their uncertainty keeps out."""

from typing import Any

import numpy as np
import numpy.typing as npt

from surelabel.data.reference import FunctionData, RunData
from surelabel.data.source import as_source
from surelabel.errors import SurelabelError
from surelabel.report.drawing import Picture
from surelabel.report.figures import NO_TRUTH, NO_UNCERTAINTY, ReportFigure
from surelabel.report.tables import Row, wrong_and_kept_out
from surelabel.runs import RunFolder

OWN_DATA = (
    "surelabel.recipes.demo:digits",
    "surelabel.recipes.datasets:cifar10",
    "surelabel.recipes.datasets:cifar100",
)
"""Functions that are called without being asked: a run folder from elsewhere could name any code as its data."""
CONFIDENT = 0.9
LARGEST_SIDE = 1024
SHOWN_SIDE = 96


def pictures_figure(row: Row, limit: int = 12, call_functions: bool = False) -> ReportFigure:
    """Show up to `limit` samples of the pool that are confident, wrong and kept out by their uncertainty.

    Args:
        row: the first rounds of its runs are looked at first.
        limit: how many pictures.
        call_functions: also load data by calling a function that the run's settings name; for runs that you trust.
    """
    title = "Confident, wrong and kept out"
    if problem := _why_not(row, call_functions):
        return ReportFigure(title, note=f"Not drawn: {problem}")
    pictures: list[Picture] = []
    loaded: dict[int, RunData] = {}
    for network in range(row.num_rounds):
        for index, run in enumerate(row.runs):
            if len(pictures) < limit:
                try:
                    data = loaded.setdefault(index, loaded.get(index) or run.data())
                except (SurelabelError, OSError) as error:
                    return ReportFigure(title, note=f"Not drawn: the run's data cannot be read. {error}")
                pictures += _of_run(run, network, data, limit - len(pictures))
    if not pictures:
        return ReportFigure(
            title, note=f"There is no such sample: wrong, with a confidence above {CONFIDENT}, and u > kappa_p."
        )
    caption = (
        "The network is wrong about each of these at a confidence above 0.9, so a threshold of 0.9 on it would let "
        "them in; their uncertainty u keeps them out (figure 4 of the paper's appendix)."
    )
    return ReportFigure(title, caption, pictures=pictures)


def _why_not(row: Row, call_functions: bool) -> str:
    if row.runs[0].settings.config.task == "multi":
        return "the samples have several labels each."
    if not row.has_truth:
        return NO_TRUTH.removeprefix("Not drawn: ")
    if not row.has_uncertainty:
        return NO_UNCERTAINTY.removeprefix("Not drawn: ")
    for run in row.runs:
        data, shape = run.settings.data, run.settings.sample_shape
        if not _is_picture(shape):
            return f"the samples are not pictures (one has shape {shape})."
        if data is None:
            return "the run was made from data in memory, and its folder holds no samples."
        if isinstance(data, FunctionData) and data.function not in OWN_DATA and not call_functions:
            return (
                f"this would call {data.function!r}, which the run names as its data; ask for it if you trust the run."
            )
    return ""


def _is_picture(shape: tuple[int, ...]) -> bool:
    if len(shape) == 2:
        return max(shape) <= LARGEST_SIDE
    return len(shape) == 3 and shape[0] in (1, 3) and max(shape) <= LARGEST_SIDE


def _of_run(run: RunFolder, network: int, data: RunData, limit: int) -> list[Picture]:
    labels, truth, classes = run.pool(network), run.truth, run.settings.classes
    assert truth is not None
    assert labels.uncertainty is not None
    source = as_source("unlabeled", data.unlabeled)
    found = wrong_and_kept_out(labels, truth, run.settings.config.kappa_p, CONFIDENT)[:limit]
    return [
        Picture(
            pixels=to_pixels(np.asarray(source[np.array([i])])[0]),
            caption=f"{classes[truth[i]]} taken for {classes[labels.label[i]]}, confidence {labels.confidence[i]:.2f}, "
            f"u {labels.uncertainty[i]:.2f} (round {network})",
        )
        for i in found
    ]


def to_pixels(sample: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Return a sample (H, W), (1, H, W) or (3, H, W) as pixels, enlarged; uint8 as it is, else from black to white."""
    if sample.dtype == np.uint8:
        pixels = sample
    else:
        values = sample.astype(np.float64)
        low, high = values.min(), values.max()
        gray = np.zeros_like(values) if high == low else (values - low) / (high - low)
        pixels = np.round(255 * gray).astype(np.uint8)
    if pixels.ndim == 3:
        pixels = pixels[0] if pixels.shape[0] == 1 else np.moveaxis(pixels, 0, -1)
    scale = max(1, SHOWN_SIDE // max(pixels.shape[:2]))
    return pixels.repeat(scale, axis=0).repeat(scale, axis=1)
