"""Values and files in one-line errors: shortened, listed, and named where they are missing or damaged."""

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

from surelabel.errors import DataError

SKIP = "on_error='skip' (surelabel reproduce: --set on_error=skip)"
"""How samples that cannot be read are left out."""


def check_file(path: Path) -> None:
    """Refuse a path that is not a file with something in it, or that libraries cannot open."""
    if any("\ud800" <= letter <= "\udfff" for letter in str(path)):
        raise DataError(f"File {str(path)!r} has a name that is no text in UTF-8; rename it.")
    if path.is_dir():
        raise DataError(f"'{path}' is a folder; name a file in it.")
    if not path.exists():
        raise DataError(f"File '{path}' does not exist; check the path and the folder that it starts from.")
    if path.stat().st_size == 0:
        raise DataError(f"File '{path}' is empty; write a table with a header and at least one row to it.")


@contextmanager
def damage_named(path: Path, kind: str) -> Iterator[None]:
    """Turn what a library raises on a damaged or unreadable file into one line that names the file."""
    try:
        yield
    except PermissionError as error:
        raise DataError(f"File '{path}' may not be read; ask for permission to read it.") from error
    except MemoryError as error:
        raise DataError(
            f"File '{path}' does not fit into memory, or is damaged and claims so "
            f"({shown(error, quote=False)}); free memory, or give fewer rows or columns."
        ) from error
    except (OSError, EOFError, BadZipFile, zlib.error, NotImplementedError) as error:
        raise damaged(path, kind, error) from error


def damaged(path: Path, kind: str, error: Exception) -> DataError:
    """The error for a file whose content is not what its ending says."""
    return DataError(
        f"File '{path}' is damaged or not really {kind} ({shown(error, quote=False, limit=120)}); get or write it "
        "again, or correct its ending."
    )


def shown(value: object, *, quote: bool = True, limit: int = 60) -> str:
    """Return a value on one line, shortened."""
    text = " ".join(str(value).split()) if not quote else repr(value)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def listed(names: Sequence[Any], limit: int = 8) -> str:
    """Return quoted names, shortened: `'a', 'b' and 12 more`."""
    text = ", ".join(shown(str(name)) for name in names[:limit])
    return text if len(names) <= limit else f"{text} and {len(names) - limit} more"
