"""WebDataset shards: tar files in which key.jpg is a picture and key.cls its label; without key.cls it is unlabeled.

Only the headers are read at first; a picture's bytes are read on demand. Links are refused, and so are sparse members,
which can expand a few bytes to any size.
"""

import tarfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from surelabel.base.text import check_inside, damage_named, damaged, is_text, shown
from surelabel.data.packed import LONGEST_ID, PackedPictures, check_picture_size
from surelabel.errors import DataError

ENDINGS = ("jpg", "jpeg", "png", "gif", "bmp", "tif", "tiff", "webp", "ppm", "pgm", "pbm")
_LONGEST_LABEL = 1000
_READ_AT_ONCE = 2**20


class Place(NamedTuple):
    """Where a member's bytes are."""

    shard: Path
    start: int
    size: int


class TarShards(PackedPictures):
    """Pictures in tar files; an id is the shard's name and the key, "000.tar/cat-17"."""

    def __init__(self, path: Path, shards: list[Path]) -> None:
        self.path = path
        pictures: dict[str, Place] = {}
        labels: dict[str, str] = {}
        for shard in shards:
            if path.is_dir():
                check_inside(path, shard)
            _look_through(shard, pictures, labels)
        if not pictures:
            raise DataError(f"'{path}' has no pictures ({', '.join(ENDINGS)}) in its tar files; check the path.")
        lone = [key for key in labels if key not in pictures]
        if lone:
            raise DataError(
                f"'{path}' has the label {lone[0] + '.cls'!r} without a picture; add it, or remove the label."
            )
        self._places = list(pictures.values())
        self.ids = np.array(list(pictures))
        self.labels = np.array([labels.get(key) or None for key in pictures], dtype=object)

    def read(self, place: int) -> bytes:
        """Return the bytes of a picture's file."""
        shard, start, size = self._places[place]
        with damage_named(shard, "a tar file"), shard.open("rb") as stream:
            stream.seek(start)
            found = stream.read(size)
        if len(found) < size:
            raise damaged(shard, "a tar file", "it is cut off")
        return found


def _look_through(shard: Path, pictures: dict[str, Place], labels: dict[str, str]) -> None:
    """Collect the places of a shard's pictures, and its labels."""
    if not shard.is_file():
        raise DataError(f"Shard '{shard}' is not a file; check the path.")
    length = shard.stat().st_size
    with damage_named(shard, "a tar file", tarfile.TarError, ValueError), tarfile.open(shard, "r:") as archive:
        members = archive.getmembers()
        end = archive.offset
    with shard.open("rb") as stream:
        stream.seek(end)
        # A damaged or truncated header silently ends the list of members, and those after it are lost.
        if stream.read(tarfile.BLOCKSIZE) != tarfile.NUL * tarfile.BLOCKSIZE:
            raise damaged(shard, "a tar file", f"it is cut off, or damaged at byte {end:,}")
        # So does a hole in the file, or the end of the first one of several that were put together.
        while block := stream.read(_READ_AT_ONCE):
            if block.strip(tarfile.NUL):
                problem = f"goes on behind its end at byte {end:,}: it is damaged, or several tar files put together"
                raise DataError(f"File '{shard}' {problem}; give them one by one, or write it again.")
    for member in members:
        folder, _, name = member.name.rpartition("/")
        stem, _, ending = name.partition(".")
        if member.isdir() or ending.lower() not in (*ENDINGS, "cls"):
            continue
        called = f"{shard}: {shown(member.name)}"
        if not member.isreg() or member.issparse():
            raise DataError(f"{called} is a link, sparse or no plain file; write the shard with plain files.")
        if not is_text(member.name):
            raise DataError(f"{called} has a name that is not UTF-8 text; rename it.")
        if len(member.name) > LONGEST_ID:
            raise DataError(f"{called} has a name of more than {LONGEST_ID:,} characters; shorten it.")
        if member.offset_data + member.size > length:
            raise damaged(shard, "a tar file", "it is cut off")
        key = "/".join(filter(None, (shard.name, folder, stem)))
        if key in (labels if ending == "cls" else pictures):
            raise DataError(f"{called} is there twice; give each sample a key of its own.")
        place = Place(shard, member.offset_data, member.size)
        if ending != "cls":
            check_picture_size(called, member.size)
            pictures[key] = place
        else:
            labels[key] = _label(called, place)


def _label(called: str, place: Place) -> str:
    if place.size > _LONGEST_LABEL:
        raise DataError(
            f"{called} has {place.size:,} bytes, too many for a label; write a class's name or number to it."
        )
    with place.shard.open("rb") as stream:
        stream.seek(place.start)
        try:
            return stream.read(place.size).decode().strip()
        except UnicodeDecodeError as error:
            raise DataError(f"{called} is not UTF-8 text; write a class's name or number to it.") from error
