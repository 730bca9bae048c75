"""Appendix figure 4: pictures that are wrong at a confidence above 0.9, and that only their uncertainty keeps out.

A video clip is shown by four of its frames. Of a sample with several labels, a class that it does not have is the wrong
label; the caption names the classes that it has.

A run folder may keep the few pictures that the figure shows (`keep_pictures`); else they are read from the run's data.
"""

import contextlib
import io
import zipfile
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from surelabel.base.processes import locked
from surelabel.data._numpy_files import read_arrays
from surelabel.data.pool import PoolLabels
from surelabel.data.run_data import Codes
from surelabel.data.source import as_source
from surelabel.errors import DamagedFileError, SurelabelError
from surelabel.report.drawing import Picture
from surelabel.report.figures import NOT_DRAWN, ReportFigure, judged_on, not_judged
from surelabel.report.tables import Row, labels_and_truth, wrong_and_kept_out
from surelabel.runs import RunFolder
from surelabel.runs.files import check_plain, write_file
from surelabel.runs.layout import LOCK_FILE, PICTURES

Pixels = npt.NDArray[np.uint8]

CONFIDENT = 0.9
LIMIT = 12
_DAMAGE = (OSError, ValueError, KeyError, TypeError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)
LARGEST_SIDE = 1024
SHOWN_SIDE, LARGEST_SHOWN_SIDE = 96, 256


def pictures_figure(row: Row, limit: int = LIMIT, validation: bool = False) -> ReportFigure:
    """Show up to `limit` samples of the pool that are confident, wrong and kept out by their uncertainty.

    Args:
        row: the first rounds of its runs are looked at first.
        limit: how many pictures.
        validation: show samples of the validation set instead.
    """
    title = "Confident, wrong and kept out"
    if problem := _why_not(row, validation):
        return ReportFigure(title, note=problem)
    shown, pixels = _shown(row, limit, validation), {}
    for index, run in enumerate(row.runs):
        places = {sample.place for sample in shown if sample.run == index}
        try:
            found = None if validation else _kept(run)
            if found is None or not places <= found.keys():
                found = _read(run, places, validation)
        except DamagedFileError as error:
            return ReportFigure(title, note=f"{NOT_DRAWN}the run's folder cannot be read. {error}")
        except Exception as error:  # a function of the user's may fail in any way, and the report has more to say
            reason = error if isinstance(error, SurelabelError) else f"{type(error).__name__}: {error}"
            return ReportFigure(title, note=f"{NOT_DRAWN}the run's data cannot be read. {reason}")
        pixels[index] = found
    if not shown:
        note = f"There is no such sample: wrong, with a confidence above {CONFIDENT}, and u > kappa_p."
        return ReportFigure(title, note=note + judged_on(row, validation))
    caption = (
        "The network is wrong about each of these at a confidence above 0.9, so a threshold of 0.9 on it would let "
        "them in; their uncertainty u keeps them out (figure 4 of the paper's appendix)."
    )
    pictures = [Picture(pixels[sample.run][sample.place], sample.caption) for sample in shown]
    return ReportFigure(title, caption + judged_on(row, validation), pictures=pictures)


def keep_pictures(run: RunFolder) -> None:
    """Keep the pictures that the figure shows of a run in its folder, so that it can be drawn without the data.

    They are an archive of numpy arrays: `places` of samples in the pool, (n,), and their `pixels`, (n, H, W[, 3]).
    Without the file, or for more pictures, the figure reads the data. A damaged file is written anew.

    """
    row = Row(run.settings.name, (run,))
    if _why_not(row, validation=False):
        return
    places = {sample.place for sample in _shown(row, LIMIT, validation=False)}
    with contextlib.suppress(DamagedFileError):  # they are kept anew
        kept = _kept(run)
        if kept is not None and places <= kept.keys():
            return
    pixels, archive = _read(run, places, validation=False), io.BytesIO()
    np.savez_compressed(archive, places=np.array([*pixels], np.int64), pixels=np.array([*pixels.values()], np.uint8))
    with locked(run.path / LOCK_FILE):
        write_file(run.path / PICTURES, archive.getvalue())


def _kept(run: RunFolder) -> dict[int, Pixels] | None:
    """Return the pictures that the folder keeps by their places in the pool; None where it has no such file."""
    path = run.path / PICTURES
    if not path.exists():
        return None
    remedy = "Remove it: the data are then read."
    check_plain(path, remedy)
    try:
        arrays = read_arrays(path, lambda names: {name: name for name in ("places", "pixels")})
        places, pixels = arrays["places"].tolist(), arrays["pixels"]
        pictures = pixels.size and (pixels.ndim == 3 or (pixels.ndim == 4 and pixels.shape[-1] == 3))
        if pixels.dtype != np.uint8 or (len(pixels) and not pictures):
            raise ValueError(f"its pixels are {pixels.dtype} of shape {pixels.shape}")
        return dict(zip(places, pixels, strict=True))
    except _DAMAGE as error:
        raise DamagedFileError(f"File '{path}' is damaged ({error.__cause__ or error}). {remedy}") from error


def _read(run: RunFolder, places: set[int], validation: bool) -> dict[int, Pixels]:
    """Return samples of the pool, or of the validation set, as pixels from the run's data."""
    if not places:
        return {}
    data, (labels, _) = run.data(), labels_and_truth(run, 0, validation)
    source = as_source("samples", data.validation[0] if validation and data.validation else data.unlabeled)
    # Partly labeled samples come first in the pool; what is unknown of them is not judged.
    first = len(labels.ids) - len(source)
    return {place: to_pixels(np.asarray(source[np.array([place - first])])[0]) for place in sorted(places)}


def _why_not(row: Row, validation: bool) -> str:
    for shape in (run.settings.sample_shape for run in row.runs):
        if not _is_picture(shape):
            return f"{NOT_DRAWN}the samples are not pictures (one has shape {shape})."
    return not_judged(row, validation)


def _is_picture(shape: tuple[int, ...]) -> bool:
    """Tell whether samples are pictures (H, W) or (channels, H, W), or clips (channels, T, H, W)."""
    has_channels = len(shape) == 2 or (len(shape) in (3, 4) and shape[0] in (1, 3))
    return has_channels and max(shape[-2:]) <= LARGEST_SIDE


class _Sample(NamedTuple):
    """What is shown: the run's number in its row, the sample's place in the pool, and what is said of it."""

    run: int
    place: int
    caption: str


def _shown(row: Row, limit: int, validation: bool) -> list[_Sample]:
    shown: list[_Sample] = []
    for network in range(row.num_rounds):
        for index, run in enumerate(row.runs):
            if len(shown) < limit:
                captions = _captions(run, network, limit - len(shown), validation)
                shown += [_Sample(index, place, caption) for place, caption in captions]
    return shown


def _captions(run: RunFolder, network: int, limit: int, validation: bool) -> list[tuple[int, str]]:
    """Return places in the pool of the network's first such samples, and what is said of each."""
    (labels, truth), classes = labels_and_truth(run, network, validation), run.settings.classes
    assert labels.uncertainty is not None
    return [
        (
            entry[0],
            f"{_names(truth[entry[0]], classes)} taken for {taken_for}, "
            f"confidence {labels.confidence[entry]:.2f}, u {labels.uncertainty[entry]:.2f} (round {network})",
        )
        for entry, taken_for in _found(run, labels, truth)[:limit]
    ]


def _found(run: RunFolder, labels: PoolLabels, truth: Codes) -> list[tuple[tuple[int, ...], str]]:
    """Return places in the pool's arrays, (row,) or (row, class), with the wrong class; the most confident first."""
    config, classes = run.settings.config, run.settings.classes
    if config.task == "single":
        found = wrong_and_kept_out(labels, truth, config.kappa_p, CONFIDENT)
        return [((int(row),), classes[labels.label[row]]) for row in found]
    assert labels.uncertainty is not None
    wrong = (labels.label == 1) & (truth == 0)
    rows, wrong_classes = np.nonzero(wrong & (labels.confidence > CONFIDENT) & (labels.uncertainty > config.kappa_p))
    # A sample is shown once, by the class that it is most confidently taken for.
    best: dict[int, int] = {}
    for at in np.argsort(-labels.confidence[rows, wrong_classes], kind="stable"):
        best.setdefault(int(rows[at]), int(wrong_classes[at]))
    return [(entry, classes[entry[1]]) for entry in best.items()]


def _names(truth: Any, classes: Sequence[str]) -> str:
    """Return the true class, or all that a sample has, of an index or of (C,) entries.

    >>> _names(1, ["cat", "dog"]), _names(np.array([1, 1]), ["cat", "dog"]), _names(np.array([0, -1]), ["cat", "dog"])
    ('dog', 'cat + dog', 'none')
    """
    if np.ndim(truth) == 0:
        return classes[int(truth)]
    return " + ".join(classes[place] for place in np.flatnonzero(truth == 1).tolist()) or "none"


def to_pixels(sample: npt.NDArray[Any]) -> Pixels:
    """Return a sample (H, W), (1, H, W) or (3, H, W) as pixels; uint8 as it is, else from black to white.

    What is small is enlarged, what is large made smaller. Of a clip (channels, T, H, W), four frames are shown, two
    above two, from its beginning to its end.
    """
    if sample.dtype == np.uint8:
        pixels = sample
    else:
        values = sample.astype(np.float64)
        low, high = values.min(), values.max()
        gray = np.zeros_like(values) if high == low else (values - low) / (high - low)
        pixels = np.round(255 * gray).astype(np.uint8)
    if pixels.ndim == 4:
        times = np.linspace(0, pixels.shape[1] - 1, 4).round().astype(int)
        first, second, third, last = (pixels[:, time] for time in times)
        pixels = np.block([[first, second], [third, last]])
    if pixels.ndim == 3:
        pixels = pixels[0] if pixels.shape[0] == 1 else np.moveaxis(pixels, 0, -1)
    return _smaller(pixels) if max(pixels.shape[:2]) > LARGEST_SHOWN_SIDE else _larger(pixels)


def _larger(pixels: Pixels) -> Pixels:
    scale = max(1, SHOWN_SIDE // max(pixels.shape[:2]))
    return pixels.repeat(scale, axis=0).repeat(scale, axis=1)


def _smaller(pixels: Pixels) -> Pixels:
    from PIL import Image

    image = Image.fromarray(np.ascontiguousarray(pixels))
    image.thumbnail((LARGEST_SHOWN_SIDE, LARGEST_SHOWN_SIDE))
    return np.asarray(image)
