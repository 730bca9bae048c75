"""UCF-101 (Soomro et al., 2012) from its official folders: 13,320 clips of 101 actions, and three splits of them.

The videos are `<Class>/v_<Class>_g01_c01.avi`, in the folder `UCF-101` or beside that of the lists: g01 is the video
that a clip was cut from, and c01 the clip. The lists are in `ucfTrainTestlist`: `classInd.txt` with lines
`1 ApplyEyeMakeup`, `trainlist01.txt` with lines `<Class>/<clip>.avi 1`, `testlist01.txt` with lines
`<Class>/<clip>.avi`, and the same for splits 2 and 3. Lines end in LF or CRLF.
"""

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from surelabel.base.text import SKIP, check_file, damage_named, listed
from surelabel.data.decoding import OnError
from surelabel.errors import DataError, InvalidInputError

SIZES = {1: (9537, 3783), 2: (9586, 3734), 3: (9624, 3696)}
"""How many training and test clips each official split has."""

LISTS, VIDEOS = "ucfTrainTestlist", "UCF-101"

ENDINGS = (".avi", ".mp4", ".mkv", ".webm", ".mov", ".m4v", ".mpg", ".mpeg", ".wmv", ".flv", ".ogv", ".3gp", ".ts")
"""Endings of videos: if a clip has several files, the first of these is used, and other endings only after them."""

_CLIP = re.compile(r"(?P<label>[^/\\\s]+)/(?P<stem>[^/\\\s]+?_g(?P<group>\d+)_c\d+)\.\w+(?:\s+(?P<number>\d+))?")


class Clips(NamedTuple):
    """The clips of one list.

    Attributes:
        names: "PushUps/v_PushUps_g01_c01", shape (N,).
        y: class indices, shape (N,).
        groups: "PushUps/g01", the video that each clip was cut from, shape (N,).
    """

    names: npt.NDArray[np.str_]
    y: npt.NDArray[np.int64]
    groups: npt.NDArray[np.str_]

    def only(self, kept: npt.NDArray[Any]) -> "Clips":
        """Return some of the clips: row numbers, or a mask (N,)."""
        return Clips(*(part[kept] for part in self))


@dataclass(frozen=True, eq=False)
class ActionLists:
    """One split of UCF-101.

    Attributes:
        train: the clips of the training list, in its order.
        test: the clips of the test list.
        classes: C names, in the order of `classInd.txt`.
        videos: the files of all clips of all splits that have lists, by name: decoded clips serve every split.
        listed: the names of these clips, and of those whose files are missing.
    """

    train: Clips
    test: Clips
    classes: tuple[str, ...]
    videos: dict[str, Path]
    listed: tuple[str, ...]


def read_ucf101(
    folder: Path, split: int = 1, *, classes: Sequence[str] | None = None, on_error: OnError = "stop"
) -> ActionLists:
    """Return the clips of a split of UCF-101, and where their videos are.

    A video's ending and capitals may differ from the list.

    Args:
        folder: with the lists' folder in it.
        split: 1, 2 or 3; split 1 has 9,537 training and 3,783 test clips.
        classes: only clips of these; None: of all.
        on_error: "stop" raises if a listed clip is missing; "skip" warns about missing clips and leaves them out.

    >>> read_ucf101(Path("nowhere"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    surelabel.errors.DataError: File 'nowhere/ucfTrainTestlist/classInd.txt' does not exist; check the path...
    """
    if split not in SIZES:
        raise InvalidInputError(f"split must be 1, 2 or 3; got {split!r}.")
    numbers = _read_classes(folder / LISTS / "classInd.txt")
    chosen = _choose(numbers, classes)
    lists = {
        number: [_read_list(folder / LISTS / f"{part}list0{number}.txt", numbers, chosen) for part in ("train", "test")]
        for number in SIZES
        if number == split or (folder / LISTS / f"trainlist0{number}.txt").exists()
    }
    train, test = lists[split]
    _check_parts(folder, split, train, test)
    names = sorted({name for parts in lists.values() for part in parts for name in part.names.tolist()})
    videos = _find_videos(folder, names, on_error)
    train, test = (part.only(np.isin(part.names, list(videos))) for part in (train, test))
    return ActionLists(train, test, chosen, videos, tuple(names))


def _read_classes(path: Path) -> dict[str, int]:
    """Return each class's number in the lists, by name."""
    numbers: dict[str, int] = {}
    for line, text in _lines(path):
        number, _, name = text.partition(" ")
        if not number.isdecimal() or not name or name in numbers:
            raise DataError(f"File '{path}', line {line}: {text!r} is not a number and a new class; get it again.")
        numbers[name] = int(number)
    return numbers


def _choose(numbers: dict[str, int], wanted: Sequence[str] | None) -> tuple[str, ...]:
    unknown = [name for name in wanted or () if name not in numbers]
    if unknown:
        raise InvalidInputError(f"classes must name classes of UCF-101; got {listed(unknown)}.")
    return tuple(name for name in numbers if wanted is None or name in wanted)


def _read_list(path: Path, numbers: dict[str, int], chosen: tuple[str, ...]) -> Clips:
    index = {name: code for code, name in enumerate(chosen)}
    names, y, groups = [], [], []
    for line, text in _lines(path):
        match = _CLIP.fullmatch(text)
        label = match["label"] if match else None
        if match is None or label not in numbers or int(match["number"] or numbers[label]) != numbers[label]:
            problem = f"{text!r} is not a clip of a class with its number, as 'PushUps/v_PushUps_g01_c01.avi 71' is"
            raise DataError(f"File '{path}', line {line}: {problem}; get the lists again.")
        if label in index:
            names.append(f"{label}/{match['stem']}")
            y.append(index[label])
            groups.append(f"{label}/g{match['group']}")
    return Clips(np.array(names, dtype=str), np.array(y, dtype=np.int64), np.array(groups, dtype=str))


def _lines(path: Path) -> list[tuple[int, str]]:
    """Return the non-empty lines, with their numbers from 1."""
    check_file(path)
    with damage_named(path, "a list"):
        text = path.read_text(encoding="utf-8", errors="replace")
    return [(number, line.strip()) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]


def _check_parts(folder: Path, split: int, train: Clips, test: Clips) -> None:
    names, counts = np.unique(np.concatenate([train.names, test.names]), return_counts=True)
    if (counts > 1).any():
        twice = listed(names[counts > 1].tolist())
        raise DataError(
            f"The lists of split {split} in '{folder / LISTS}' name {twice} more than once; get them again."
        )
    for what, part in (("training", train), ("test", test)):
        if not len(part.names):
            raise DataError(f"Split {split} in '{folder / LISTS}' has no {what} clip of the classes asked for.")


def _find_videos(folder: Path, names: Sequence[str], on_error: OnError) -> dict[str, Path]:
    """Return the file of each clip; capitals and endings do not matter, since copies of the data differ in them."""
    videos, missing = {}, []
    there: dict[str, dict[str, Path]] = {}
    for name in names:
        label, _, stem = name.partition("/")
        if label not in there:
            place = folder / VIDEOS / label if (folder / VIDEOS).is_dir() else folder / label
            files = sorted(filter(Path.is_file, place.glob("*")), key=_worse_first)
            there[label] = {file.stem.lower(): file for file in files}
        found = there[label].get(stem.lower())
        if found is None:
            missing.append(name)
        else:
            videos[name] = found
    if missing:
        told = f"{len(missing)} of {len(names)} listed clips are not in '{folder}': {listed(missing)}"
        if on_error == "stop" or not videos:
            raise DataError(f"{told}; get them again, or leave them out: {SKIP}.")
        warnings.warn(f"{told}; they are left out.", stacklevel=3)
    return videos


def _worse_first(file: Path) -> tuple[int, str]:
    ending = file.suffix.lower()
    return -(ENDINGS.index(ending) if ending in ENDINGS else len(ENDINGS)), file.name
