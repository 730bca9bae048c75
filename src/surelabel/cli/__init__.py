"""The command line, one file a command: `surelabel demo | fit | predict | label | export | resume | report | …`.

Each command imports what it needs when it runs, so that `surelabel --help` answers at once. Nothing is imported here,
so that the handler for Ctrl-C is set before anything takes time.
"""

import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType


def main(arguments: "Sequence[str] | None" = None) -> int:
    """Run a command and return its exit code: 0, 1 for a failure, 2 for wrong use, 130 and 143 for an interruption.

    Args:
        arguments: the words after `surelabel`; None: those that the process was started with.

    >>> main(["--version"])  # doctest: +ELLIPSIS
    surelabel ...
    0
    """
    if arguments is None:
        for kind in (signal.SIGINT, signal.SIGTERM):
            signal.signal(kind, _leave)
        # Worker processes, joblib's too, import nothing from the current folder: it may be a stranger's run.
        os.environ["PYTHONSAFEPATH"] = "1"
        # Threads that spin while waiting take cores away from working ones: small networks would train 50 times slower.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from surelabel.cli._app import run

    code = run(arguments)
    if arguments is None:
        from surelabel.cluster.torchrun import end

        end(code)
    return code


def _leave(number: int, frame: "FrameType | None") -> None:
    """End the process before or after its command: an exception would show a traceback of its imports."""
    os.write(2, b"error: interrupted.\n")
    os._exit(128 + number)
