"""How much a file may hold once it is unpacked, so that a small file does not fill the memory."""

import os
from pathlib import Path

from surelabel.errors import DataError, InvalidInputError

VARIABLE = "SURELABEL_MAX_BYTES"
"""The environment variable that sets the limit, in bytes."""
_LIMIT = 1 << 30
# Tables shrink to a tenth or a fiftieth; deflate reaches a thousandth with nothing but zeros.
_GROWTH = 100
# Arrow counts the bytes of a block, which holds a row at least, in 32 bits.
_LARGEST_ROW = 1 << 30


def most_bytes(packed: int) -> int:
    """Return how many bytes the content of a file may take: 1 GiB or 100 times its size, unless the user says."""
    text = os.environ.get(VARIABLE, "")
    if not text:
        return max(_LIMIT, _GROWTH * packed)
    if not (text.isdecimal() and len(text) < 20):
        raise InvalidInputError(f"{VARIABLE} must be a whole number of bytes. Got {text!r} instead; correct it.")
    return int(text)


def longest_row(path: Path) -> int:
    """Return how many bytes one row of a text file may take; it takes many times that in memory."""
    packed = path.stat().st_size
    return min(max(most_bytes(packed) // 256, packed), _LARGEST_ROW)


def check_size(path: Path, size: int) -> None:
    """Refuse content that is larger than allowed, before there is memory for it."""
    problem = excess(path.stat().st_size, size)
    if problem is not None:
        raise DataError(f"File '{path}' {problem}.")


def excess(packed: int, size: int) -> str | None:
    """Say that a file of `packed` bytes would take too many, if `size` is too many, and what to do about it."""
    if size <= (limit := most_bytes(packed)):
        return None
    return (
        f"of {packed:,} bytes would take {size:,} bytes of memory or more, and at most {limit:,} are allowed; if that "
        f"is what it should hold, set {VARIABLE} to a larger number"
    )


def row_too_long(path: Path, line: int) -> DataError:
    """The error for a line of a text file that is longer than `longest_row`."""
    return DataError(
        f"File '{path}', line {line} is longer than {longest_row(path):,} bytes; if no line end or quote is missing, "
        f"set {VARIABLE} to 256 times its length (above 2^30 bytes no row is read)."
    )
