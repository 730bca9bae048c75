"""Every failure is one line on standard error that names the problem and the remedy, and an exit code.

0: success; 1: a failure; 2: wrong use; 130: Ctrl-C (SIGINT) and 143: SIGTERM, as in shells. `SURELABEL_DEBUG=1` shows
the traceback instead.
"""

import errno
import os
import signal
import sys
import tempfile
import time
import traceback

import typer

from surelabel.base.references import is_own_code
from surelabel.cli._console import complain, one_line
from surelabel.cluster.torchrun import rank
from surelabel.errors import ElsewhereError, SurelabelError

FAILURE, WRONG_USE, INTERRUPTED = 1, 2, 128 + signal.SIGINT
DEBUG = "SURELABEL_DEBUG"

SECONDS_FOR_THE_FIRST = 10.0
"""How long the first of several processes has to report an error before another one does."""

# typer hands out click's UsageError only as the base of BadParameter; where click lives depends on typer's version.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]


class WrongUse(Exception):  # noqa: N818 - it is the user's command that is wrong
    """A command that cannot run as given; each argument is one line that says why and what to do."""


class Interrupted(Exception):  # noqa: N818 - nothing went wrong
    """Ctrl-C or SIGTERM, with a note on what is kept and how to continue; typer drops that of a KeyboardInterrupt."""

    def __init__(self, note: str | None = None) -> None:
        super().__init__()
        if note is not None:
            self.add_note(note)


def debugging() -> bool:
    """Whether the user asked for tracebacks."""
    return os.environ.get(DEBUG, "") not in ("", "0")


def report_error(error: BaseException) -> int:
    """Print the one line (or one for each mistake) of an error, and its notes; return the exit code.

    A note (`error.add_note`) is a further line, with what was kept and the command to continue with. If several
    processes meet an error, the first one reports it. The others wait for it, because torchrun ends all as soon as one
    has ended.
    """
    is_first, interrupted = rank() == 0, _is_interruption(error)
    if is_first or not (interrupted or _ended_meanwhile()):
        for line in describe(error):
            complain("error" if is_first else f"error in process {rank()}", line, style="bold red")
        elsewhere = [str(error.__cause__)] if isinstance(error.__cause__, ElsewhereError) else []
        for note in (*elsewhere, *getattr(error, "__notes__", ())):
            complain("note", note, style="bold")
    if interrupted:
        return INTERRUPTED
    return WRONG_USE if isinstance(error, (WrongUse, UsageError)) else FAILURE


def _ended_meanwhile() -> bool:
    """Wait for the first process; return whether torchrun has ended this one, which then reports nothing."""
    try:
        time.sleep(SECONDS_FOR_THE_FIRST)
    except KeyboardInterrupt:
        return True
    return False


def describe(error: BaseException) -> list[str]:
    """Return the lines that describe this error to a user: the problem, and the remedy if one is known.

    >>> describe(PermissionError(13, "Permission denied", "/data"))
    ["Permission denied: '/data'; use another place, or change who may write there."]
    """
    if isinstance(error, WrongUse):
        return [one_line(str(line)) for line in error.args]
    if isinstance(error, UsageError):
        return [_usage(error)]
    if _is_interruption(error):
        return ["interrupted."]
    if isinstance(error, SurelabelError):
        return [one_line(str(error))]
    if _is_memory_error(error):
        return ["the memory is full; use a smaller file, network or batch, or a machine with more memory."]
    if is_lost_process(error):
        return ["another process has ended, or cannot be reached; look for its message."]
    if isinstance(error, OSError):
        return [_operating_system(error)]
    if (pydantic := sys.modules.get("pydantic")) and isinstance(error, pydantic.ValidationError):
        from surelabel.base.settings import mistakes

        return mistakes(error)
    if (place := _place_in_own_file(error)) is not None:
        reason = f"{type(error).__name__}: {one_line(str(error))}".removesuffix(": ")
        return [f"{place}, fails ({reason}); correct the file, or set {DEBUG}=1 to see more."]
    problem = f"unexpected {type(error).__name__}: {one_line(str(error)) or 'no message'}"
    return [f"{problem}; set {DEBUG}=1 to see where, and please report it with the output of 'surelabel env'."]


def _usage(error: Exception) -> str:
    message = one_line(error.format_message()).replace(": Value error, ", ": ")  # type: ignore[attr-defined]
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "surelabel"
    return f"{message.rstrip('.')}{'' if message.endswith('?') else ';'} see '{path} --help'."


def _operating_system(error: OSError) -> str:
    reason = error.strerror or one_line(str(error)) or type(error).__name__
    full, forbidden = "free some space, or write to another disk", "use another place, or change who may write there"
    remedies = {
        **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), full),
        **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), forbidden),
        errno.ENOENT: "check the path",
        errno.EEXIST: "remove it, or choose another name",
        errno.ELOOP: "remove the link, or write to another place",
    }
    remedy = remedies.get(error.errno or 0, f"set {DEBUG}=1 to see where")
    if remedy == full and not error.filename:
        remedy = f"{full}; temporary files are in '{tempfile.gettempdir()}', and TMPDIR names another folder"
    place = f": {str(error.filename)!r}" if error.filename else ""
    return f"{reason}{place}; {remedy}."


def _place_in_own_file(error: BaseException) -> str | None:
    """Return where in a file that the user named as 'file.py:name' an error was raised; None if in no such file."""
    frames = reversed(list(traceback.walk_tb(error.__traceback__)))
    own = [(frame, line) for frame, line in frames if is_own_code(frame.f_globals.get("__name__", ""))]
    return f"'{own[0][0].f_code.co_filename}', line {own[0][1]}" if own else None


def _is_interruption(error: BaseException) -> bool:
    # If Ctrl-C comes while a compiled library is loaded, the library raises an ImportError.
    cause = error.__cause__ or error.__context__ if isinstance(error, ImportError) else error
    return isinstance(cause, (Interrupted, KeyboardInterrupt))


def is_lost_process(error: BaseException) -> bool:
    """Whether this process has lost another one that it trains with."""
    # As below, torch is not imported to name its errors; gloo's are RuntimeErrors that name their place in gloo.
    of_group = type(error).__name__ in ("DistBackendError", "DistNetworkError", "DistStoreError")
    return of_group or (isinstance(error, RuntimeError) and "gloo" in str(error))


def _is_memory_error(error: BaseException) -> bool:
    # torch raises RuntimeErrors of its own; importing it here, only to name them, would cost seconds.
    of_torch = type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in str(error)
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and of_torch)
