"""tin100: the first 100 classes of Tiny-ImageNet at 32 x 32 pixels, which stands in for CIFAR-100 and is not it.

500 training and 50 test pictures a class, in grids of tiles: `train_1.jpg` to `train_5.jpg` and `test.jpg`, 100 tiles a
row; `labels.npz` with `train` and `test`, and `classes.json`. SURELABEL_DATA names the folder above.

    surelabel reproduce experiments/tin100.py:TABLE --budget 6 --out runs/tin100
    surelabel reproduce experiments/tin100.py:FIRST_SELECTION --budget 6 --out runs/tin100
"""

import json
import tokenize
from pathlib import Path

import numpy as np
import numpy.typing as npt

from surelabel.base.text import check_file, damage_named, damaged
from surelabel.data.images import ImageSet, Pictures, data_folder, read_pixels
from surelabel.data.run_data import RunData
from surelabel.data.sets import run_data
from surelabel.errors import DataError
from surelabel.reproduce.cifar import best_recipe, fast_recipe, paper_recipe
from surelabel.reproduce.entries import DataSet, Experiment, rows
from surelabel.reproduce.methods import ours
from surelabel.reproduce.paper import CONFIDENCE, FIRST, SUPERVISED, UPS

FILE = Path(__file__).resolve()
TIN100 = DataSet(
    "tin100",
    f"{FILE}:tin100",
    (0.4747, 0.4463, 0.3913),
    (0.2545, 0.2453, 0.2568),
    paper_recipe,
    fast_recipe,
    best_recipe,
)
TABLE = Experiment(
    "tin100", "tin100, 4000 labels, CNN-13", rows(TIN100, 4000, SUPERVISED, CONFIDENCE, UPS) + ours(TIN100, 4000)
)
FIRST_SELECTION = Experiment("first-selection-tin100", "The first selection, tin100", rows(TIN100, 4000, *FIRST))

SIDE, TILES = 32, 100


def tin100(seed: int = 0, labels: int = 4000, num_validation: int = 0) -> RunData:
    """Return some of tin100's training pictures labeled, the rest as the pool, and its test pictures."""
    return run_data(read_tin100(data_folder() / "tin100"), seed, labels, num_validation)


def read_tin100(folder: Path) -> ImageSet:
    """Return tin100 from its folder: (50000, 3, 32, 32) training and (5000, 3, 32, 32) test pictures."""
    if not folder.is_dir():
        raise DataError(
            f"tin100 is not in '{folder}'; put its folder (train_1.jpg to train_5.jpg, test.jpg, labels.npz, "
            "classes.json) there, or name the folder above it in SURELABEL_DATA."
        )
    classes = _read_classes(folder / "classes.json")

    def read(part: str, *names: str) -> Pictures:
        x = np.concatenate([_read_grid(folder / name) for name in names])
        return Pictures(x, _read_labels(folder / "labels.npz", part, len(x), len(classes)))

    train = read("train", *(f"train_{number}.jpg" for number in range(1, 6)))
    return ImageSet(train, read("test", "test.jpg"), classes, origin=str(folder))


def _read_grid(path: Path) -> npt.NDArray[np.uint8]:
    """Return the tiles of a grid, row by row, (N, 3, 32, 32)."""
    check_file(path)
    pixels = read_pixels(str(path), path.read_bytes(), "JPEG", width=SIDE * TILES, most_rows=SIDE * TILES)
    if len(pixels) % SIDE:
        raise DataError(f"File '{path}' must have rows of tiles {SIDE} pixels high. Got {len(pixels)} pixels.")
    tiles = pixels.reshape(-1, SIDE, TILES, SIDE, 3)
    return np.ascontiguousarray(tiles.transpose(0, 2, 4, 1, 3)).reshape(-1, 3, SIDE, SIDE)


def _read_labels(path: Path, part: str, count: int, num_classes: int) -> npt.NDArray[np.int64]:
    check_file(path)
    kind = "an .npz archive of labels"
    with damage_named(path, kind):
        try:
            with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
                labels = np.asarray(archive[part])
        # A damaged header, which numpy reads as a Python literal, fails in some of these ways.
        except (KeyError, RuntimeError, SyntaxError, ValueError, tokenize.TokenError) as error:
            raise damaged(path, kind, error) from error
    if labels.shape != (count,) or labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= num_classes:
        raise DataError(
            f"File '{path}': {part} must hold {count} labels from 0 to {num_classes - 1}. Got {labels.dtype} of shape "
            f"{labels.shape}."
        )
    return labels.astype(np.int64)


def _read_classes(path: Path) -> tuple[str, ...]:
    """Return a class's first name, with its id where two share that name."""
    check_file(path)
    try:
        entries = [
            (str(entry["wnid"]), str(entry["name"]).partition(",")[0]) for entry in json.loads(path.read_bytes())
        ]
    except (ValueError, TypeError, KeyError) as error:
        raise damaged(path, "a JSON list of classes", error) from error
    names = [name for _, name in entries]
    return tuple(name if names.count(name) == 1 else f"{name} ({wnid})" for wnid, name in entries)
