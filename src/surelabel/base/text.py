"""Text for one-line errors: values are shortened and listed; missing, damaged and huge files are named."""

import lzma
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unicodedata import category
from zipfile import BadZipFile

from surelabel.errors import DataError, InvalidInputError

SKIP = "--on-error skip (reproduce: --set on_error=skip; Python: on_error='skip')"
"""How samples that cannot be read are left out."""
SUFFIXES = (".safetensors", ".pth", ".pt")
"""How the names of weights files end."""
MAX_BYTES = "SURELABEL_MAX_BYTES"
"""The environment variable that says how many bytes of memory the content of a file may take."""

_JOINERS = "\u200c\u200d"


def is_text(text: str) -> bool:
    r"""Whether text can be written: a lone surrogate, which stands for a byte that is not UTF-8, cannot.

    >>> is_text("Zürich"), is_text(b"Z\xfcrich".decode(errors="surrogateescape"))
    (True, False)
    """
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def check_file(path: Path) -> None:
    """Refuse a path that is not a non-empty file, or that a run could not store."""
    if not is_text(str(path)):
        raise DataError(f"The name of the file {str(path)!r} is not UTF-8 text; rename it.")
    if path.is_dir():
        raise DataError(f"'{path}' is a folder; name a file in it.")
    if not path.exists():
        raise DataError(f"File '{path}' does not exist; check the path and the folder that it starts from.")
    if path.stat().st_size == 0:
        raise DataError(f"File '{path}' is empty; write a table with a header and at least one row to it.")


def check_inside(root: Path, path: Path) -> None:
    """Refuse anything but a plain file in a folder: a link out of it, a pipe that would block, a folder."""
    if path.is_symlink():
        target = Path(os.path.realpath(path))
        if not target.is_relative_to(os.path.realpath(root)):
            raise DataError(
                f"'{path}' is a link to '{target}', outside of '{root}'; copy the file (cp -L), or remove the link."
            )
    if not os.path.lexists(path):
        raise DataError(f"File '{path}' does not exist; check the path.")
    if not path.is_file():
        raise DataError(f"'{path}' is not a plain file; remove it.")


@contextmanager
def damage_named(path: Path, kind: str, *more: type[Exception]) -> Iterator[None]:
    """Turn what a library raises on a damaged or unreadable file, and `more`, into one line that names the file."""
    # Deep levels of JSON are a RecursionError.
    damage = (OSError, EOFError, BadZipFile, zlib.error, lzma.LZMAError, NotImplementedError, RecursionError)
    kinds: tuple[type[Exception], ...] = (*damage, *more)
    try:
        yield
    except PermissionError as error:
        raise DataError(f"File '{path}' may not be read; ask for permission to read it.") from error
    except MemoryError as error:
        problem = "does not fit into memory, or is damaged and claims so"
        raise DataError(f"File '{path}' {problem}; free memory, or give fewer rows or columns.") from error
    except kinds as error:
        raise damaged(path, kind, error) from error


def damaged(path: Path, kind: str, error: Exception | str) -> DataError:
    """The error for a file whose content is not what its ending says."""
    reason = shown(error, quote=False, limit=120)
    problem = f"is damaged or not really {kind} ({reason})"
    return DataError(f"File '{path}' {problem}; get or write it again, or correct its ending.")


def most_bytes(packed: int) -> int:
    """Return how many bytes the content of a file of `packed` bytes may take in memory.

    1 GiB or 100 times its size, unless the user sets it: tables are compressed to between a tenth and a fiftieth, and
    only zeros to a thousandth.
    """
    text = os.environ.get(MAX_BYTES, "")
    if not text:
        return max(1 << 30, 100 * packed)
    if not (text.isdecimal() and len(text) < 20):
        raise InvalidInputError(f"{MAX_BYTES} must be a whole number of bytes. Got {text!r} instead; correct it.")
    return int(text)


def excess(packed: int, size: int) -> str | None:
    """Return a message with a remedy if `size` bytes of content are too many for a file of `packed` bytes."""
    limit = most_bytes(packed)
    if size <= limit:
        return None
    return (
        f"of {packed:,} bytes would take {size:,} bytes of memory or more, and at most {limit:,} are allowed; if that "
        f"is right, set {MAX_BYTES} to a larger number"
    )


def check_size(path: Path, size: int) -> None:
    """Refuse content that is larger than allowed, before there is memory for it.

    A file on another machine, which is read in parts, has no local size from which to compute a larger limit.
    """
    problem = excess(path.stat().st_size if path.exists() else 0, size)
    if problem is not None:
        raise DataError(f"File '{path}' {problem}.")


def visible(text: str) -> str:
    """Return text with invisible characters escaped as in Python, except spaces and joiners of letters and emoji.

    These are line breaks, control characters (not allowed in SVG), lone surrogates (not allowed in files), and marks
    that reverse the direction of text.
    """
    return "".join(
        one if one.isprintable() or one in _JOINERS or category(one) == "Zs" else one.encode("unicode_escape").decode()
        for one in text
    )


def shown(value: object, *, quote: bool = True, limit: int = 60) -> str:
    """Return a value on one line, shortened."""
    text = " ".join(str(value).split()) if not quote else repr(value)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def listed(names: Sequence[Any], limit: int = 8) -> str:
    """Return quoted names, shortened: `'a', 'b' and 12 more`."""
    text = ", ".join(shown(str(name)) for name in names[:limit])
    return text if len(names) <= limit else f"{text} and {len(names) - limit} more"
