"""The paper's picture data for runs: a few labels per class, drawn by the seed, and the rest as the pool.

A run names one of these functions and its arguments, `FunctionData(function="surelabel.data.sets:cifar10",
arguments={"seed": 1})`. A sample's id is its index in the official training set, or its name there. Pictures stay
uint8.
"""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from surelabel.core.labels import Task
from surelabel.data.decoding import OnError, decode_files
from surelabel.data.images import ImageSet, data_folder, is_stored, open_stored
from surelabel.data.pictures import Fit, PictureSettings
from surelabel.data.run_data import Codes, RunData
from surelabel.data.sets.download import DATASETS, get_command
from surelabel.data.sets.ucf101 import SIZES, ActionLists, read_ucf101
from surelabel.data.sets.voc import VOC_CLASSES, Difficult, read_voc
from surelabel.data.source import ArraySource, Index, Source, Subset
from surelabel.data.splits import Split, balanced_split, multi_label_split, share_split
from surelabel.data.video import ClipSettings
from surelabel.errors import DataError

Part: TypeAlias = tuple[Source, Codes]

VOC2007_PICTURES = {"trainval": 5011, "test": 4952}
"""How many pictures the official lists name."""


def cifar10(
    seed: int = 0, labels: int = 1000, num_validation: int = 0, folder: str | None = None, *, test: bool = True
) -> RunData:
    """Return CIFAR-10: some of its 50,000 training pictures labeled, the rest the pool, and its 10,000 test pictures.

    Args:
        seed: draws the labeled and the validation pictures.
        labels: labeled pictures in all, the same number of each class.
        num_validation: pictures taken out of the pool; their labels come on top of the labeled ones.
        folder: where data sets are; None: the folder that SURELABEL_DATA names, else the user's caches.
        test: whether test pictures are loaded; False: for runs that are used to choose settings.

    Example:
        >>> cifar10(seed=0, labels=1000, folder="data")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        surelabel.errors.DataError: CIFAR-10 is not in 'data/cifar10'; get it with: surelabel data get...
    """
    return run_data(_stored("cifar10", folder), seed, labels, num_validation, test)


def cifar100(
    seed: int = 0, labels: int = 4000, num_validation: int = 0, folder: str | None = None, *, test: bool = True
) -> RunData:
    """Return CIFAR-100 with its 100 fine classes; the arguments are those of `cifar10`."""
    return run_data(_stored("cifar100", folder), seed, labels, num_validation, test)


def voc2007(
    seed: int = 0,
    labels: int = 500,
    num_validation: int = 0,
    folder: str | None = None,
    *,
    side: int = 224,
    fit: Fit = "squash",
    difficult: Difficult = "ignore",
    on_error: OnError = "stop",
    cache: str | None = None,
) -> RunData:
    """Return VOC2007: some of its 5,011 trainval pictures labeled, the rest the pool, and its 4,952 test pictures.

    Pictures are decoded once, into .npy files. Every class has at least one labeled positive and negative, see
    `multi_label_split`.

    Args:
        seed: draws the labeled and the validation pictures.
        labels: labeled pictures in all; 5,011: all of them, even if some are skipped, and no pool.
        num_validation: pictures taken out of the pool; their labels come on top of the labeled ones.
        folder: where `VOCdevkit` is; None: the folder that SURELABEL_DATA names, else the user's caches.
        side: pictures are resized to side x side.
        fit: "squash" keeps objects at the border, whose labels would otherwise be wrong; see `decode_picture`.
        difficult: the label of a class if all its objects are marked difficult, see `read_voc`; "ignore" leaves these
            entries out of the test score, as the devkit does, and pseudo-labels them in labeled pictures.
        on_error: "stop", or "skip" pictures that cannot be decoded, with a warning.
        cache: where decoded pictures are kept; None: `voc2007-pictures` beside `VOCdevkit`.

    Example:
        >>> voc2007(folder="data")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        surelabel.errors.DataError: VOC2007 is not in 'data': there is no ImageSets/Main...
    """
    root = data_folder(folder)
    place = root / "voc2007-pictures" if cache is None else Path(cache).expanduser()
    parts = {}
    for name, count in VOC2007_PICTURES.items():
        part = read_voc(root, name, difficult)
        if len(part.files) != count:
            _warn_of_others("VOC2007", f"The list '{name}' in '{root}' names {len(part.files)} pictures", str(count))
        pictures, _ = decode_files(part.files, place, PictureSettings(side=side, fit=fit), on_error=on_error)
        if name == "trainval" and labels == len(part.files):
            labels = len(pictures)
        parts[name] = (pictures, part.y[pictures.index])
    train, y = parts["trainval"]
    split = multi_label_split(y, labels, seed, num_validation, ids=train.ids)
    return split_data((train, y), parts["test"], VOC_CLASSES, split, task="multi")


def ucf101(
    seed: int = 0,
    share: float = 0.2,
    split: int = 1,
    folder: str | None = None,
    *,
    validation_share: float = 0.0,
    groups: bool = False,
    on_error: OnError = "stop",
    cache: str | None = None,
    **clips: int,
) -> RunData:
    """Return UCF-101: a share of its 9,537 training clips labeled, the rest the pool, and its 3,783 test clips.

    Videos are decoded once, into a memory-mapped .npy file: 39 GB with the defaults of `ClipSettings`.

    Args:
        seed: draws the labeled and the validation clips, a share of each class.
        share: of the training clips; 1: all of them, and no pool.
        split: 1, 2 or 3 of the official lists.
        folder: where the folder `ucf101` is, with the class folders (or `UCF-101`) and `ucfTrainTestlist` in it; None:
            the folder that SURELABEL_DATA names, else the user's caches.
        validation_share: of the training clips, taken out of the pool; their labels come on top of the labeled ones.
        groups: keep the clips that were cut from one video together, labeled or not; shares are then approximate.
        on_error: "stop", or "skip" clips that are missing or cannot be decoded, with a warning.
        cache: where decoded clips are kept; None: `ucf101-clips` beside `ucf101`.
        **clips: what is kept of a video: the settings of `ClipSettings`.

    Example:
        >>> ucf101(folder="data")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        surelabel.errors.DataError: UCF-101 is not in 'data/ucf101'; put...
    """
    root = data_folder(folder)
    if not (root / "ucf101").is_dir():
        raise DataError(
            f"UCF-101 is not in '{root / 'ucf101'}'; put its folders UCF-101 (of UCF101.rar) and ucfTrainTestlist (of "
            "UCF101TrainTestSplits-RecognitionTask.zip) there, or name the folder of 'ucf101' in SURELABEL_DATA."
        )
    lists = read_ucf101(root / "ucf101", split, on_error=on_error)
    found = (len(lists.train.names), len(lists.test.names))
    if found != SIZES[split]:
        there = f"Split {split} in '{root / 'ucf101'}' has {found[0]} and {found[1]} clips"
        _warn_of_others("UCF-101", there, "{} and {}".format(*SIZES[split]))
    place = root / "ucf101-clips" if cache is None else Path(cache).expanduser()
    kept, _ = decode_files(lists.videos, place, ClipSettings(**clips), names=lists.listed, on_error=on_error)
    return clip_data(lists, kept, seed, share, validation_share, groups)


def clip_data(
    lists: ActionLists, clips: Source, seed: int, share: float, validation_share: float = 0.0, groups: bool = False
) -> RunData:
    """Return the data of a run on decoded clips, split by the seed; the arguments are those of `ucf101`."""
    row_of = {name: row for row, name in enumerate(clips.ids.tolist())}
    train, test = (part.only(np.isin(part.names, clips.ids)) for part in (lists.train, lists.test))
    split = share_split(train.y, share, seed, validation_share, train.groups if groups else train.names)
    sources = [Subset(clips, np.array([row_of[name] for name in part.names.tolist()])) for part in (train, test)]
    return split_data((sources[0], train.y), (sources[1], test.y), lists.classes, split, in_memory=False)


def run_data(images: ImageSet, seed: int, labels: int, num_validation: int, test: bool = True) -> RunData:
    """Return the data of a run on some pictures, split by the seed; the arguments are those of `cifar10`."""
    train, tested = ((ArraySource(part.x), np.asarray(part.y)) for part in (images.train, images.test))
    split = balanced_split(train[1], labels, seed, num_validation)
    return split_data(train, tested if test else None, images.classes, split)


def split_data(
    train: Part,
    test: Part | None,
    classes: Sequence[str],
    split: Split,
    *,
    task: Task = "single",
    in_memory: bool = True,
) -> RunData:
    """Return the data of a run whose training samples are split.

    Args:
        train: samples and their labels, in the form for the task.
        test: the same for the test samples; None: there are none.
        classes: C names.
        split: of the training samples.
        task: "single" or "multi".
        in_memory: whether to copy samples out of a mapped file, so that training never waits for the disk.
    """

    def part(of: Part, rows: Index) -> Part:
        source, y = of
        return ArraySource(source[rows], ids=source.ids[rows]) if in_memory else Subset(source, rows), y[rows]

    pool, truth = part(train, split.pool) if len(split.pool) else (None, None)
    return RunData(
        labeled=part(train, split.labeled),
        unlabeled=pool,
        classes=classes,
        task=task,
        validation=part(train, split.validation) if len(split.validation) else None,
        test=None if test is None else part(test, np.arange(len(test[1]))),
        truth=truth,
    )


def _warn_of_others(title: str, found: str, expected: str) -> None:
    warnings.warn(f"{found}, and that of {title} {expected}; scores on it are not scores on {title}.", stacklevel=3)


def _stored(name: str, folder: str | None) -> ImageSet:
    path = data_folder(folder) / name
    if not is_stored(path):
        remedy = f"get it with: {get_command(name, folder)}, or name its folder in SURELABEL_DATA"
        raise DataError(f"{DATASETS[name].title} is not in '{path}'; {remedy}.")
    return open_stored(path)
