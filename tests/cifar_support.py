"""Small data sets in exactly CIFAR's official formats, written as the official files were."""

import io
import json
import pickle
import struct
import tarfile
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from PIL import Image

from surelabel.data.images import ImageSet, Pictures
from surelabel.data.sets.cifar import CIFAR10_CLASSES

SUPERCLASSES = tuple(f"super {number}" for number in range(20))
CIFAR100_CLASSES = tuple(f"class {number}" for number in range(100))


class Python2Pickler(pickle._Pickler):
    """Writes what Python 2's cPickle wrote with protocol 2: byte strings, and numpy's names of that time."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)

    def save_string(self, value: bytes | str) -> None:
        data = value.encode("latin1") if isinstance(value, str) else value
        short = len(data) < 256
        self.write(
            (pickle.SHORT_BINSTRING + bytes([len(data)]) if short else pickle.BINSTRING + struct.pack("<i", len(data)))
            + data
        )
        self.memoize(value)

    dispatch[bytes] = dispatch[str] = save_string

    def save_global(self, value: Any, name: str | None = None) -> None:
        module = value.__module__.replace("numpy._core", "numpy.core")
        self.write(pickle.GLOBAL + f"{module}\n{value.__qualname__}\n".encode())
        self.memoize(value)


def python2_pickle(content: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    Python2Pickler(stream, protocol=2).dump(content)
    return stream.getvalue()


def small_set(per_batch: int = 20, num_classes: int = 10, seed: int = 0) -> ImageSet:
    """Five training batches and one test batch of random pictures, all classes equally often."""
    generator = np.random.default_rng(seed)

    def pictures(count: int) -> Pictures:
        x = generator.integers(0, 256, size=(count, 3, 32, 32), dtype=np.uint8)
        return Pictures(x, generator.permutation(np.arange(count) % num_classes))

    return ImageSet(
        pictures(5 * per_batch), pictures(per_batch), CIFAR10_CLASSES if num_classes == 10 else CIFAR100_CLASSES
    )


def batches(images: ImageSet) -> dict[str, Pictures]:
    size = len(images.test.y)
    parts = {
        f"data_batch_{number + 1}": Pictures(*(part[number * size : (number + 1) * size] for part in images.train))
        for number in range(5)
    }
    return {**parts, "test_batch": images.test}


def rows(part: Pictures, order: str = "C") -> np.ndarray:
    return np.asarray(part.x.reshape(len(part.x), -1), order=order)


def cifar10_python(images: ImageSet, order: str = "C") -> dict[str, bytes]:
    files = {
        name: python2_pickle(
            {
                "batch_label": f"{name} of 5",
                "labels": part.y.tolist(),
                "data": rows(part, order),
                "filenames": [f"picture_{row}.png" for row in range(len(part.y))],
            }
        )
        for name, part in batches(images).items()
    }
    meta = {"num_cases_per_batch": len(images.test.y), "label_names": list(images.classes), "num_vis": 3072}
    return {**files, "batches.meta": python2_pickle(meta), "readme.html": b"<html>"}


def cifar100_python(images: ImageSet) -> dict[str, bytes]:
    files = {
        name: python2_pickle(
            {
                "filenames": ["picture.png"] * len(part.y),
                "batch_label": f"{name}ing batch 1 of 1",
                "fine_labels": part.y.tolist(),
                "coarse_labels": (part.y // 5).tolist(),
                "data": rows(part),
            }
        )
        for name, part in (("train", images.train), ("test", images.test))
    }
    names = {"fine_label_names": list(images.classes), "coarse_label_names": list(SUPERCLASSES)}
    return {**files, "meta": python2_pickle(names)}


def npm_package(images: ImageSet) -> dict[str, bytes]:
    files = {}
    for name, part in batches(images).items():
        stream = io.BytesIO()
        Image.fromarray(part.x.transpose(0, 2, 3, 1).reshape(len(part.x), 1024, 3)).save(stream, "PNG")
        files[f"{name}.png"] = stream.getvalue()
    labels = {"train_lables.json": images.train.y, "test_lables.json": images.test.y}
    return {**files, **{name: json.dumps(y.tolist()).encode() for name, y in labels.items()}, "package.json": b"{}"}


def write_folder(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def packed(folder: str, files: dict[str, bytes]) -> bytes:
    """Return a .tar.gz with the files in a folder of that name."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz", compresslevel=1) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return stream.getvalue()


def same(one: ImageSet, other: ImageSet) -> bool:
    return one.classes == other.classes and all(
        np.array_equal(a, b) and a.dtype == b.dtype
        for a, b in zip((*one.train, *one.test), (*other.train, *other.test), strict=True)
    )
