"""A file from the network, resumed where it broke off, and verified."""

import hashlib
import http.client
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from surelabel._version import __version__
from surelabel.base.system import Progress, open_itself
from surelabel.errors import DataError

_CHUNK = 2**18


class UnreachableError(DataError):
    """The address does not answer, or answers that it has no such file."""


class _BrokenOff(Exception):  # noqa: N818 - the download goes on
    """The connection ended before the file did."""


def download(url: str, path: Path, md5: str, progress: Progress, *, timeout: float = 30.0, attempts: int = 5) -> None:
    """Put the file at `url` to `path`; what an earlier call left in `path`.part is not asked for again.

    Args:
        url: its address.
        path: where it goes once it is whole and its checksum is right.
        md5: its MD5, which tells damage, not tampering: check what is in it too.
        progress: called as bytes arrive: (the file's name, bytes there, bytes in all; 0 where not known).
        timeout: seconds without an answer after which the address counts as not reached.
        attempts: how often to connect when the connection breaks off.
    """
    part, broken, whole = part_of(path), 0, False
    while not whole:
        try:
            whole = _receive(url, part, path.name, progress, timeout)
        except _BrokenOff as error:
            broken += 1
            if broken == attempts:
                raise DataError(
                    f"The download of '{url}' broke off {attempts} times ({error}). What came is kept in '{part}': the "
                    "same command goes on from there."
                ) from error
    _check(part, path.name, url, md5)
    part.replace(path)


def part_of(path: Path) -> Path:
    """Where a file's bytes lie until all have come."""
    return path.with_name(f"{path.name}.part")


def md5_of(path: Path) -> str:
    """Return the MD5 of a file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _receive(url: str, part: Path, name: str, progress: Progress, timeout: float) -> bool:
    """Add what one answer brings; tell whether that is the rest, as some servers send a file in parts."""
    there = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": f"surelabel/{__version__}", **({"Range": f"bytes={there}-"} if there else {})}
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=timeout)
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and there:
            return True  # nothing is left to ask for: the checksum tells whether it is the file
        raise UnreachableError(f"'{url}' answers {error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException) as error:
        raise UnreachableError(f"'{url}' cannot be reached ({getattr(error, 'reason', error)})") from error
    with response:
        there, total = _range(response, there)
        return _append(response, part, there, total, lambda done: progress(name, done, total))


def _range(response: Any, there: int) -> tuple[int, int]:
    """Return from which byte on the server sends, and how many the file has (0: not said)."""
    length = response.length or 0  # as the standard library understands it: None where it is not said or no number
    if response.status != http.HTTPStatus.PARTIAL_CONTENT:
        return 0, length
    found = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range") or "")
    if not found or int(found[1]) != there:
        raise UnreachableError(f"'{response.url}' answers with another part than was asked for")
    return there, 0 if found[2] == "*" else int(found[2])


def _append(response: Any, part: Path, there: int, total: int, tell: Callable[[int], None]) -> bool:
    with open(part, "r+b" if there else "wb", opener=open_itself) as stream:
        done = stream.seek(there)
        tell(done)
        while True:
            try:
                chunk = response.read(_CHUNK)
            except (OSError, http.client.HTTPException) as error:
                raise _BrokenOff(str(error) or type(error).__name__) from error
            if not chunk:
                break
            done += stream.write(chunk)
            tell(done)
    is_part = response.status == http.HTTPStatus.PARTIAL_CONTENT and done > there
    if response.length or (done < total and not is_part):  # what is left of the answer, or of the file
        raise _BrokenOff(f"{done} of {max(total, done + (response.length or 0))} bytes came")
    return done >= total > 0 or not is_part  # after a part of a file of unknown length, the next answer tells


def _check(part: Path, name: str, url: str, md5: str) -> None:
    found = md5_of(part)
    if found != md5:
        part.unlink()
        raise DataError(
            f"File '{name}' from '{url}' is damaged: its MD5 should be {md5} and is {found}. It was removed; try again."
        )
