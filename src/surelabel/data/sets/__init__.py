"""The paper's picture data as runs take it: a few labels of each class drawn by the seed, and all the rest a pool.

A run names one of these functions and its arguments, `FunctionData(function="surelabel.data.sets:cifar10",
arguments={"seed": 1})`. A sample's id is its index in the official training set, or its name there. Pictures stay
uint8.
"""

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from surelabel.data.clip_cache import decode_clips
from surelabel.data.images import ImageSet, Pictures, data_folder, is_stored, open_stored
from surelabel.data.picture_cache import cached_pictures
from surelabel.data.pictures import Counted, Fit, OnError
from surelabel.data.run_data import Codes, RunData
from surelabel.data.sets.download import DATASETS, get_command
from surelabel.data.sets.ucf101 import SIZES, ActionLists, Clips, read_ucf101
from surelabel.data.sets.voc import VOC_CLASSES, Difficult, read_voc
from surelabel.data.source import ArraySource, Index, Source, Subset
from surelabel.data.splits import balanced_split, multi_label_split, share_split
from surelabel.data.video import ClipSettings
from surelabel.errors import DataError

VOC2007_PICTURES = {"trainval": 5011, "test": 4952}
"""How many pictures the official lists name."""


def cifar10(seed: int = 0, labels: int = 1000, num_validation: int = 0, folder: str | None = None) -> RunData:
    """Return CIFAR-10: some of its 50,000 training pictures labeled, the rest the pool, and its 10,000 test pictures.

    Args:
        seed: draws the labeled and the validation pictures.
        labels: labeled pictures in all, the same number of each class.
        num_validation: pictures taken out of the pool; their labels come on top of the labeled ones.
        folder: where data sets are; None: the folder that SURELABEL_DATA names, else the user's caches.

    Example:
        >>> cifar10(seed=0, labels=1000, folder="data")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        surelabel.errors.DataError: CIFAR-10 is not in 'data/cifar10'; get it with: surelabel data get...
    """
    return run_data(_stored("cifar10", folder), seed, labels, num_validation)


def cifar100(seed: int = 0, labels: int = 4000, num_validation: int = 0, folder: str | None = None) -> RunData:
    """Return CIFAR-100 with its 100 fine classes; the arguments are those of `cifar10`."""
    return run_data(_stored("cifar100", folder), seed, labels, num_validation)


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
    progress: Counted | None = None,
) -> RunData:
    """Return VOC2007: some of its 5,011 trainval pictures labeled, the rest the pool, and its 4,952 test pictures.

    Pictures are decoded once, into .npy files. Every class has at least one labeled positive and negative, see
    `multi_label_split`.

    Args:
        seed: draws the labeled and the validation pictures.
        labels: labeled pictures in all; 5,011: all of them, also where some are skipped, and there is no pool.
        num_validation: pictures taken out of the pool; their labels come on top of the labeled ones.
        folder: where `VOCdevkit` is; None: the folder that SURELABEL_DATA names, else the user's caches.
        side: pictures are resized to side x side.
        fit: "squash" keeps objects at the border, whose labels would otherwise be wrong; see `decode_picture`.
        difficult: what a class is whose objects are all marked difficult, see `read_voc`; "ignore" leaves such entries
            out of the test score, as the devkit does, and the labeled ones are pseudo-labeled.
        on_error: "stop", or "skip" pictures that cannot be decoded, with a warning.
        cache: where decoded pictures are kept; None: `voc2007-pictures` beside `VOCdevkit`.
        progress: called as pictures are decoded.

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
        if len(part.names) != count:
            warnings.warn(
                f"The list '{name}' in '{root}' names {len(part.names)} pictures and that of VOC2007 {count}; scores "
                "on it are not scores on VOC2007.",
                stacklevel=2,
            )
        pictures = cached_pictures(place, part.names, part.files, side, fit, on_error=on_error, progress=progress)
        if name == "trainval" and labels == len(part.names):
            labels = len(pictures.rows)
        parts[name] = (pictures, part.y[pictures.rows])
    return several_labels_data(parts["trainval"], parts["test"], VOC_CLASSES, seed, labels, num_validation)


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
    progress: Counted | None = None,
    **clips: int,
) -> RunData:
    """Return UCF-101: a share of its 9,537 training clips labeled, the rest the pool, and its 3,783 test clips.

    Videos are decoded once, into an .npy file that is mapped: 39 GB as `ClipSettings` has it.

    Args:
        seed: draws the labeled and the validation clips, of each class its share.
        share: of the training clips; 1: all of them, and there is no pool.
        split: 1, 2 or 3 of the official lists.
        folder: where the folder `ucf101` is, with the class folders (or `UCF-101`) and `ucfTrainTestlist` in it; None:
            the folder that SURELABEL_DATA names, else the user's caches.
        validation_share: of the training clips, taken out of the pool; their labels come on top of the labeled ones.
        groups: keep the clips that were cut from one video together, labeled or not; shares are then approximate.
        on_error: "stop", or "skip" clips that are missing or cannot be decoded, with a warning.
        cache: where decoded clips are kept; None: `ucf101-clips` beside `ucf101`.
        progress: called as clips are decoded.
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
            "UCF101TrainTestSplits-RecognitionTask.zip) there. Where they are elsewhere, name the folder that holds "
            "'ucf101' in SURELABEL_DATA."
        )
    lists = read_ucf101(root / "ucf101", split, on_error=on_error)
    found = (len(lists.train.names), len(lists.test.names))
    if found != SIZES[split]:
        warnings.warn(
            f"Split {split} in '{root / 'ucf101'}' has {found[0]} and {found[1]} clips, and that of UCF-101 "
            f"{SIZES[split][0]} and {SIZES[split][1]}; scores on it are not scores on UCF-101.",
            stacklevel=2,
        )
    place = root / "ucf101-clips" if cache is None else Path(cache).expanduser()
    settings = ClipSettings(**clips)
    kept = decode_clips(lists.videos, place, settings, names=lists.listed, on_error=on_error, progress=progress).clips
    return clip_data(lists, kept, seed, share, validation_share, groups)


def clip_data(
    lists: ActionLists, clips: Source, seed: int, share: float, validation_share: float = 0.0, groups: bool = False
) -> RunData:
    """Return the data of a run on decoded clips, split by the seed; the arguments are those of `ucf101`."""
    row_of = {name: row for row, name in enumerate(clips.ids.tolist())}
    train, test = (part.only(np.isin(part.names, clips.ids)) for part in (lists.train, lists.test))
    split = share_split(train.y, share, seed, validation_share, train.groups if groups else train.names)

    def part(listed: Clips, rows: Index) -> tuple[Subset, Codes]:
        return Subset(clips, np.array([row_of[name] for name in listed.names[rows].tolist()])), listed.y[rows]

    return RunData(
        labeled=part(train, split.labeled),
        unlabeled=part(train, split.pool)[0] if len(split.pool) else None,
        classes=lists.classes,
        validation=part(train, split.validation) if validation_share else None,
        test=part(test, np.arange(len(test.y))),
        truth=train.y[split.pool] if len(split.pool) else None,
    )


def _stored(name: str, folder: str | None) -> ImageSet:
    path = data_folder(folder) / name
    if not is_stored(path):
        raise DataError(
            f"{DATASETS[name].title} is not in '{path}'; get it with: {get_command(name, folder)}. Where it is "
            "elsewhere, name the folder that holds it in SURELABEL_DATA."
        )
    return open_stored(path)


def run_data(images: ImageSet, seed: int, labels: int, num_validation: int) -> RunData:
    """Return the data of a run on some pictures, split by the seed; the arguments are those of `cifar10`."""
    train, test, classes = images.train, images.test, images.classes
    split = balanced_split(train.y, labels, seed, num_validation)
    return RunData(
        labeled=_part(train, split.labeled),
        unlabeled=_part(train, split.pool)[0] if len(split.pool) else None,
        classes=classes,
        validation=_part(train, split.validation) if num_validation else None,
        test=_part(test, np.arange(len(test.y))),
        truth=np.asarray(train.y[split.pool]) if len(split.pool) else None,
    )


def several_labels_data(
    train: tuple[Source, Codes],
    test: tuple[Source, Codes],
    classes: Sequence[str],
    seed: int,
    labels: int,
    num_validation: int,
) -> RunData:
    """Return the data of a run on samples with several labels each, split by the seed; see `multi_label_split`.

    Args:
        train: samples and their 1, 0 and -1 (unknown), (N, C).
        test: the same of the test samples.
        classes: C names.
        seed: draws the labeled and the validation samples, by a hash of their ids.
        labels: labeled samples in all.
        num_validation: samples taken out of the pool.
    """
    source, y = train
    split = multi_label_split(y, labels, seed, num_validation, ids=source.ids)

    def part(rows: Index) -> tuple[ArraySource, Codes]:
        return ArraySource(source[rows], ids=source.ids[rows]), y[rows]

    return RunData(
        labeled=part(split.labeled),
        unlabeled=part(split.pool)[0] if len(split.pool) else None,
        classes=classes,
        task="multi",
        validation=part(split.validation) if num_validation else None,
        test=(ArraySource(test[0][np.arange(len(test[1]))], ids=test[0].ids), test[1]),
        truth=y[split.pool] if len(split.pool) else None,
    )


def _part(pictures: Pictures, rows: Index) -> tuple[ArraySource, Codes]:
    # Taking rows copies them out of the mapped file, so that training never waits for the disk.
    return ArraySource(pictures.x[rows], ids=rows), np.asarray(pictures.y[rows])
