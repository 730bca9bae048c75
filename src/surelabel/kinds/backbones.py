"""Frozen backbones by reference: which network, which weights, and what its features depend on.

| reference | what it names |
|---|---|
| `timm:NAME` | a network of the package timm, with the weights of a local file |
| `torchvision:NAME` | a classifier of torchvision, with the weights of a local file |
| `transformers:FOLDER` | a local folder with config.json, model.safetensors and, for texts, the tokenizer's files |
| `file.py:function` | your function that returns a network; `surelabel.kinds.frozen` describes what it must return |

The first two are code of an installed package, chosen by a plain name, so anyone's run may name them. A folder or a
file of code may contain anything, so a run that names one must be signed, or trusted.
"""

import functools
import hashlib
import json
import os
import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, PositiveInt, model_validator

from surelabel.base.references import changed_file, file_hash, pin
from surelabel.base.settings import Device, Settings
from surelabel.base.text import SUFFIXES
from surelabel.base.trust import Reference
from surelabel.data.pictures import Fit
from surelabel.errors import DataError, InvalidInputError

Takes: TypeAlias = Literal["pictures", "texts"]
"""The inputs of a backbone."""
Channels = tuple[float, float, float]
PositiveChannels = tuple[Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0)]]

LIBRARIES = {"timm": "vision", "torchvision": "vision", "transformers": "text"}
"""Packages that have networks, and the extra that installs each."""
WITH_FILES = ("timm", "torchvision")
"""The packages whose networks need a file of weights."""
_FORMAT = 1
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,200}")
"""A network's name. No slash and no colon: timm would download from an address such as "hf-hub:..."."""


class PictureInput(Settings):
    """How pictures are prepared for a backbone: squares, with channels from 0 to 1 minus `mean`, divided by `std`.

    Attributes:
        side: of the square, in pixels.
        fit: "squash" keeps all of a picture; "crop" the largest square in its middle.
        mean: of red, green and blue; by default ImageNet's.
        std: by default ImageNet's.
    """

    side: PositiveInt = Field(224, le=4096)
    fit: Fit = "squash"
    mean: Channels = (0.485, 0.456, 0.406)
    std: PositiveChannels = (0.229, 0.224, 0.225)


class BackboneSettings(Settings):
    """A frozen network whose outputs, the features, replace the samples.

    Attributes:
        reference: "timm:NAME", "torchvision:NAME", "transformers:FOLDER" or "file.py:function".
        sha256: content hash of file.py or of the folder; `pinned` fills it in, and changed content is refused.
        pretrained: a file of weights (.safetensors, .pth, .pt).
        pretrained_hash: its content hash.
        shown: how pictures are prepared; None: as the network says, which a run then keeps.
        width: how many features it has; None: as the network says, which a run then keeps.
        device: where features are computed; None: the GPU if there is one.
    """

    reference: str
    sha256: str | None = None
    pretrained: Path | None = None
    pretrained_hash: str | None = None
    shown: PictureInput | None = None
    width: PositiveInt | None = Field(None, le=10**6)
    device: Device | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        home, _, name = self.reference.partition(":")
        forms = "timm:NAME, torchvision:NAME, transformers:FOLDER or file.py:function"
        if self.library is None and not self.reference.rpartition(":")[0].endswith(".py"):
            raise ValueError(f"A backbone must be {forms}; got {self.reference!r}")
        if home in WITH_FILES and not _NAME.fullmatch(name):
            raise ValueError(f"A backbone must be {forms}, NAME a plain name such as resnet18; got {self.reference!r}")
        if home in WITH_FILES and self.pretrained is None:
            raise ValueError(f"{self.reference!r} needs a file of weights (--pretrained); nothing is fetched")
        if home == "transformers" and self.pretrained is not None:
            raise ValueError(f"{self.reference!r} has its weights in its folder; leave '{self.pretrained}' out")
        if self.pretrained is not None and self.pretrained.suffix not in SUFFIXES:
            raise ValueError(f"Weights must end in {', '.join(SUFFIXES)}; got '{self.pretrained}'")
        return self

    @property
    def library(self) -> str | None:
        """The package that has the network; None: the user's own file."""
        home = self.reference.partition(":")[0]
        return home if home in LIBRARIES else None

    @property
    def name(self) -> str:
        """The network's name, folder or function, without the folders above it."""
        home, _, name = self.reference.rpartition(":")
        return f"{Path(home).name}:{name}" if self.library is None else f"{self.library}:{Path(name).name}"

    def check_takes(self, takes: Takes) -> None:
        """Refuse a network for pictures if the samples are texts."""
        if takes == "texts" and self.library in WITH_FILES:
            raise InvalidInputError(f"{self.reference!r} takes pictures; for texts name transformers:FOLDER.")

    def references(self) -> Iterator[Reference]:
        """Yield the code that the settings name."""
        yield Reference(self.reference, (self.reference,) if self.library in WITH_FILES else ())

    def pinned(self) -> Self:
        """Return the settings with absolute paths and content hashes; refuse content with another hash."""
        reference, sha256 = self.reference, self.sha256
        if self.library == "transformers":
            folder = os.path.abspath(reference.partition(":")[2])
            reference, sha256 = f"transformers:{folder}", _same(Path(folder), sha256, folder_hash(Path(folder)))
        elif self.library is None:
            reference, found = pin(reference)  # without the old hash, which `pin` would keep without reading the file
            sha256 = _same(Path(reference.rpartition(":")[0]), sha256, str(found))
        pretrained, weights_hash = self.pretrained, self.pretrained_hash
        if pretrained is not None:
            pretrained = Path.cwd() / pretrained
            if not pretrained.is_file():
                raise DataError(f"'{pretrained}', the weights of {self.name}, is not a plain file; check the path.")
            weights_hash = _same(pretrained, weights_hash, _file_hash(pretrained))
        changes = {"reference": reference, "sha256": sha256, "pretrained": pretrained, "pretrained_hash": weights_hash}
        return self.replace(**changes)

    def key(self, takes: Takes) -> str:
        """Return a hash of all that features depend on, except the sample; the settings must be pinned."""
        version = None if self.library is None else metadata.version(self.library)
        shown = None if self.shown is None else self.shown.model_dump(mode="json")
        parts = [_FORMAT, takes, self.name, self.sha256, self.pretrained_hash, shown, version]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def folder_hash(folder: Path) -> str:
    """Return the hash of the names and contents of the files in a folder, without hidden ones."""
    if not folder.is_dir():
        raise DataError(f"'{folder}' is not a folder; name one with config.json and model.safetensors.")
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    lines = "".join(f"{_file_hash(path)} {path.relative_to(folder).as_posix()}\n" for path in files)
    return hashlib.sha256(lines.encode()).hexdigest()


def _file_hash(path: Path) -> str:
    """Return a file's hash, cached: weights may be large, and their hash is needed several times."""
    status = path.stat()
    return _hash_of_version(path, status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=256)
def _hash_of_version(path: Path, size: int, modified: int) -> str:
    return file_hash(path)


def _same(path: Path, expected: str | None, found: str) -> str:
    if expected not in (None, found):
        raise changed_file(path, str(expected), found)
    return found
