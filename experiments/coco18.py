r"""coco18: photographs of COCO with 18 object classes, several per picture, as a substitute for VOC2007.

5,011 pictures in `trainval.bin` and 4,952 in `test.bin`, JPEGs one after another, short side 128; `index.npz` with `y`
(N, 18), `split` (0 trainval, 1 test), `length` in bytes, `image_id` and `names`. SURELABEL_DATA names the folder above.

    surelabel reproduce experiments/coco18.py:TABLE --budget 1.8 --out runs/coco18
    surelabel reproduce experiments/coco18.py:TABLE --budget 1.8 --out runs/coco18 --labels 500 \
        --rows Supervised --rows UPS --seeds 3
"""

import functools
import io
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from surelabel.base.text import check_file, damaged
from surelabel.data.images import data_folder
from surelabel.data.pictures import decode_picture
from surelabel.data.run_data import RunData
from surelabel.data.sets import split_data
from surelabel.data.source import ArraySource
from surelabel.data.splits import multi_label_split
from surelabel.errors import DataError
from surelabel.reproduce import variants
from surelabel.reproduce.entries import DataSet, Experiment, rows
from surelabel.reproduce.paper import ALL_LABELS, SUPERVISED, UPS
from surelabel.reproduce.voc2007 import fast_recipe, paper_recipe

PARTS = ("trainval", "test")
SIDE, ALL_PICTURES = 128, 5011

FILE = Path(__file__).resolve()
COCO18 = DataSet(
    "coco18",
    f"{FILE}:coco18",
    (0.4605, 0.4505, 0.4240),
    (0.2628, 0.2618, 0.2779),
    functools.partial(paper_recipe, side=SIDE),
    functools.partial(fast_recipe, side=SIDE, steps=800),
)
ROWS = (
    SUPERVISED,
    ("Pseudo-labeling", variants.pseudo_labeling),
    ("UPS, no class balance", variants.without_balance),
    UPS,
)
TABLE = Experiment(
    "coco18",
    f"coco18, ResNet-50 at {SIDE} x {SIDE}",
    (
        *rows(COCO18, 500, *ROWS),
        *rows(COCO18, 1000, *ROWS),
        *rows(COCO18, ALL_PICTURES, (ALL_LABELS, variants.supervised)),
    ),
    "mAP",
)


class Part(NamedTuple):
    """Pictures and their labels.

    Attributes:
        pictures: uint8, (N, 3, S, S); their ids are COCO's names.
        y: 1 and 0, int64, shape (N, 18).
    """

    pictures: ArraySource
    y: npt.NDArray[np.int64]


def coco18(seed: int = 0, labels: int = 500, num_validation: int = 0, side: int = SIDE) -> RunData:
    """Return some of coco18's trainval pictures labeled, the rest as the pool, and its test pictures."""
    train, test, classes = read_coco18(data_folder() / "coco18", side)
    split = multi_label_split(train.y, labels, seed, num_validation, ids=train.pictures.ids)
    return split_data(train, test, classes, split, task="multi")


@functools.lru_cache(maxsize=1)
def read_coco18(folder: Path, side: int = SIDE) -> tuple[Part, Part, tuple[str, ...]]:
    """Return the two parts and the classes; kept in memory, as every run of a table asks for them."""
    if not folder.is_dir():
        raise DataError(
            f"coco18 is not in '{folder}'; put its folder (trainval.bin, test.bin, index.npz) there, or name the "
            "folder above it in SURELABEL_DATA."
        )
    index = _read_index(folder / "index.npz")
    train, test = (
        _read_part(folder / f"{name}.bin", index, np.flatnonzero(index["split"] == number), side)
        for number, name in enumerate(PARTS)
    )
    return train, test, tuple(str(name) for name in index["names"])


def _read_index(path: Path) -> dict[str, npt.NDArray[np.generic]]:
    check_file(path)
    try:
        with np.load(path, allow_pickle=False) as archive:
            index = {name: np.asarray(archive[name]) for name in ("y", "split", "length", "image_id", "names")}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise damaged(path, "an .npz archive of coco18's labels", error) from error
    count, labels = len(index["split"]), index["y"]
    if labels.shape != (count, len(index["names"])) or not np.isin(labels, (0, 1)).all():
        raise DataError(
            f"File '{path}' must hold 0 or 1 for each of {count} pictures and {len(index['names'])} classes. Got "
            f"{labels.dtype} of shape {labels.shape}."
        )
    return index


def _read_part(path: Path, index: dict[str, npt.NDArray[np.generic]], rows: npt.NDArray[np.int64], side: int) -> Part:
    check_file(path)
    data, stops = path.read_bytes(), np.cumsum(index["length"][rows].astype(np.int64))
    if not len(rows) or stops[-1] != len(data):
        raise DataError(f"File '{path}' has {len(data)} bytes; the index says {stops[-1] if len(rows) else 0}.")
    starts = np.concatenate([[0], stops[:-1]])
    files = [io.BytesIO(data[start:stop]) for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]
    names = [str(name) for name in index["image_id"][rows]]
    pictures = [decode_picture(file, side, name=f"{path}: {name}") for file, name in zip(files, names, strict=True)]
    return Part(ArraySource(np.stack(pictures), ids=np.array(names)), index["y"][rows].astype(np.int64))
