"""Kinds of samples, one file each: how they are found and read, and which network and augmentation suit them.

`KINDS` has those that come as files in folders. Tables and arrays are single files, which `surelabel.data` reads.
"""

from collections import Counter
from pathlib import Path

from surelabel.errors import DataError
from surelabel.kinds.kind import Kind, walk
from surelabel.kinds.pictures import Pictures
from surelabel.kinds.sounds import Sounds
from surelabel.kinds.video import Video

KINDS: dict[str, Kind] = {kind.name: kind for kind in (Pictures(), Sounds(), Video())}
"""The kinds by their name for `--kind`."""


def guess(path: Path) -> Kind:
    """Return the kind of most files in a folder, judged by their endings.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "cat.jpg").touch(), (folder / "dog.PNG").touch(), (folder / "notes.txt").touch()
    (None, None, None)
    >>> guess(folder).name
    'pictures'
    """
    kind_of = {ending: kind.name for kind in KINDS.values() for ending in kind.endings}
    counts = Counter(kind_of[ending] for file in walk(path) if (ending := file.suffix.lower()) in kind_of)
    if not counts:
        known = "; ".join(f"{kind.name}: {', '.join(kind.endings)}" for kind in KINDS.values())
        raise DataError(f"Folder '{path}' has no file of a kind that is known ({known}); check the path.")
    return KINDS[counts.most_common(1)[0][0]]
