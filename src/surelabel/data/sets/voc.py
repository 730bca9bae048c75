"""Pascal VOC2007 (Everingham et al., 2007) from its official folders, with 20 labels per picture.

`ImageSets/Main/<part>.txt` names the pictures of a part, a line each; `JPEGImages/<name>.jpg` is the picture and
`Annotations/<name>.xml` says which objects are in it. A class is present if the picture has an object of it. If all
objects of a class are marked difficult, the devkit's own lists (`<class>_<part>.txt`) have 0 instead of 1 or -1, and
its evaluation ignores the picture for that class. So the label is unknown here (-1), unless asked otherwise.

Annotations are parsed by Python's expat, which fetches nothing; a document type, which could define entities, and a
file of more than 1 MiB are refused.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple, NoReturn, TypeAlias
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt

from surelabel.base.text import damage_named, listed, shown
from surelabel.errors import DataError, InvalidInputError

Difficult: TypeAlias = Literal["ignore", "present", "absent"]

_ANIMALS = ("bird", "cat", "cow", "dog", "horse", "sheep")
_VEHICLES = ("aeroplane", "bicycle", "boat", "bus", "car", "motorbike", "train")
_INDOOR = ("bottle", "chair", "diningtable", "pottedplant", "sofa", "tvmonitor")
VOC_CLASSES = tuple(sorted((*_ANIMALS, *_VEHICLES, *_INDOOR, "person")))

_ENDINGS = {"JPEGImages": ".jpg", "Annotations": ".xml"}
_CODES = {"ignore": -1, "present": 1, "absent": 0}
_NAME = re.compile(r"[\w-][\w.-]*")
_LARGEST_ANNOTATION = 2**20
"""Bytes; an official one has a few thousand."""


class VOCPart(NamedTuple):
    """The pictures of a part and their labels, in the order of its list.

    Attributes:
        files: N paths by their names, such as "000005".
        y: 1, 0 and -1 (unknown), int64, shape (N, C).
    """

    files: dict[str, Path]
    y: npt.NDArray[np.int64]


def read_voc(
    folder: str | os.PathLike[str], part: str, difficult: Difficult = "ignore", *, classes: Sequence[str] = VOC_CLASSES
) -> VOCPart:
    """Return the pictures of a part and the classes in each; no picture is opened.

    A picture whose annotation has no object shows none of the classes.

    Args:
        folder: `VOC2007`, `VOCdevkit` or the folder that holds that; any other data in this format will do.
        part: "trainval", "test" or another list in `ImageSets/Main`.
        difficult: the label of a class if all its objects are marked difficult: unknown ("ignore"), present or absent.
        classes: C names; an object of another class is an error.

    >>> read_voc("nowhere", "trainval")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    surelabel.errors.DataError: VOC2007 is not in 'nowhere': there is no ImageSets/Main, nor VOCdevkit...
    """
    if difficult not in _CODES:
        raise InvalidInputError(f"difficult must be one of {listed(list(_CODES))}; got {difficult!r}.")
    root = _root(Path(folder))
    names = _read_names(root / "ImageSets" / "Main" / f"{part}.txt")
    pictures, annotations = _existing(root, names, part, "JPEGImages"), _existing(root, names, part, "Annotations")
    index = {name: code for code, name in enumerate(classes)}
    y = np.zeros((len(names), len(classes)), dtype=np.int64)
    for row, path in enumerate(annotations):
        objects = _read_annotation(path, index)
        # Objects that are not difficult come last, so that a single one makes the class present.
        for code, is_difficult in sorted(objects, key=lambda found: not found[1]):
            y[row, code] = _CODES[difficult] if is_difficult else 1
    return VOCPart(dict(zip(names, pictures, strict=True)), y)


def _root(folder: Path) -> Path:
    for root in (folder, folder / "VOC2007", folder / "VOCdevkit" / "VOC2007"):
        if (root / "ImageSets" / "Main").is_dir():
            return root
    archives = "VOCtrainval_06-Nov-2007.tar and VOCtest_06-Nov-2007.tar"
    raise DataError(
        f"VOC2007 is not in '{folder}': there is no ImageSets/Main, nor VOCdevkit; unpack {archives} there."
    )


def _read_names(path: Path) -> tuple[str, ...]:
    """Return the names in a list, one per line; they become parts of paths, so they must not hold a separator."""
    if not path.is_file():
        raise DataError(f"File '{path}' does not exist; unpack the official archive of this part there too.")
    with damage_named(path, "a list of pictures", UnicodeDecodeError):
        lines = path.read_bytes().decode().splitlines()
    names: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        name = line.strip()
        if not name:
            continue
        if not _NAME.fullmatch(name):
            raise DataError(
                f"File '{path}', line {number}: {shown(name)} is not the name of one picture, as 000005 is."
            )
        if names.setdefault(name, number) != number:
            raise DataError(f"File '{path}': lines {names[name]} and {number} both name {shown(name)}; remove one.")
    if not names:
        raise DataError(f"File '{path}' names no picture.")
    return tuple(names)


def _existing(root: Path, names: Sequence[str], part: str, folder: str) -> list[Path]:
    paths = [root / folder / f"{name}{_ENDINGS[folder]}" for name in names]
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        found = f"'{root / folder}' lacks {len(missing)} of the {len(names)} files that {part}.txt names"
        raise DataError(f"{found}: {listed(missing)}; unpack the official archive again.")
    return paths


class NoDocumentType(ElementTree.TreeBuilder):
    """Builds the tree of a document, and refuses a document type, which could define entities."""

    def doctype(self, name: str, pubid: str | None, system: str | None) -> NoReturn:
        """Refuse it."""
        raise ValueError("it has a document type")


def _read_annotation(path: Path, index: dict[str, int]) -> list[tuple[int, bool]]:
    """Return the class of each object, and whether it is marked difficult."""
    if path.stat().st_size > _LARGEST_ANNOTATION:
        raise DataError(f"File '{path}' has {path.stat().st_size} bytes, more than any annotation; get it again.")
    with damage_named(path, "an annotation in XML", ElementTree.ParseError, ValueError, LookupError):
        tree = ElementTree.fromstring(path.read_bytes(), ElementTree.XMLParser(target=NoDocumentType()))
    if tree.tag != "annotation":
        raise DataError(f"File '{path}' must hold an <annotation>; got <{shown(tree.tag, quote=False)}>.")
    objects = []
    for element in tree.findall("object"):
        name, mark = ((element.findtext(tag) or usual).strip() for tag, usual in (("name", ""), ("difficult", "0")))
        if name not in index:
            classes = listed(list(index), limit=20)
            raise DataError(f"File '{path}' has an object of the class {shown(name)}; the classes are {classes}.")
        if mark not in ("0", "1"):
            raise DataError(f"File '{path}': <difficult> must be 0 or 1; got {shown(mark)}.")
        objects.append((index[name], mark == "1"))
    return objects
