"""All commands, and what they share: signals, warnings, and errors as one line and an exit code."""

import contextlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

import typer

from surelabel._version import __version__
from surelabel.base.text import is_text
from surelabel.cli import data, demo, env, export, fit, label, predict, report, reproduce, resume, thresholds
from surelabel.cli._console import one_line, out, warn
from surelabel.cli._errors import FAILURE, INTERRUPTED, WRONG_USE, WrongUse, debugging, report_error
from surelabel.cli._options import examples
from surelabel.cluster.torchrun import join, leave, rank

app = typer.Typer(name="surelabel", add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
for module in (demo, fit, predict, label, export, resume, report, thresholds, reproduce, env):
    app.command(module.__name__.rpartition(".")[2], epilog=examples(*module.EXAMPLES))(module.command)
app.add_typer(data.app)


def run(arguments: Sequence[str] | None, app: typer.Typer = app, name: str = "surelabel") -> int:
    """Run a command, of this or another app, and return its exit code, as `surelabel.cli.main` does."""
    with _signals() as received, _warnings_on_one_line():
        try:
            words = sys.argv[1:] if arguments is None else arguments
            _check_words(words)
            code = typer.main.get_command(app).main(words, prog_name=name, standalone_mode=False, obj=words)
            if code == INTERRUPTED:  # typer's own code for an interruption that no command has caught
                raise KeyboardInterrupt
            sys.stdout.flush()
            return int(code or 0)
        except BrokenPipeError:
            # The reader (`| head`) has closed the pipe; flushing the rest later must not fail either.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return FAILURE
        except (Exception, KeyboardInterrupt) as error:
            if debugging():
                raise
            code = report_error(error)
            return 128 + received[0] if received else code
        finally:
            leave()


def _check_words(words: Sequence[str]) -> None:
    """Refuse bytes that are not UTF-8, which Python keeps as lone surrogates: a run could not store them."""
    for word in words:
        if not is_text(word):
            raise WrongUse(f"{word!r} is not UTF-8 text; rename the file, or write the option in UTF-8.")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"surelabel {__version__}")
        raise typer.Exit


@app.callback(
    invoke_without_command=True,
    epilog=examples("surelabel demo", "surelabel fit iris.csv --label species --out runs/iris"),
)
def surelabel(
    context: typer.Context,
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    """Train a classifier from a few labels and many unlabeled samples.

    Uncertainty-aware pseudo-label selection (UPS): labels that the model is
    both confident and certain of train the next model.
    """
    if context.invoked_subcommand is not None:
        out.quiet = rank() > 0
        join(context.invoked_subcommand, context.obj or ())
    else:
        out.print(context.get_help(), end="")
        raise typer.Exit(WRONG_USE)


@contextlib.contextmanager
def _signals() -> Iterator[list[int]]:
    """Let SIGTERM end a command as Ctrl-C does; a second signal ends the process at once.

    Yields a list that gets the number of the signal that has come.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    kinds = (signal.SIGINT, signal.SIGTERM)

    def interrupt(number: int, frame: FrameType | None) -> None:
        received.append(number)
        for kind in kinds:
            signal.signal(kind, signal.SIG_DFL)
        raise KeyboardInterrupt

    before = [signal.signal(kind, interrupt) for kind in kinds]
    try:
        yield received
    finally:
        for kind, handler in zip(kinds, before, strict=True):
            signal.signal(kind, handler)


@contextlib.contextmanager
def _warnings_on_one_line() -> Iterator[None]:
    """Show a warning once, as `warning: text`, without the line of our code that raised it."""
    shown = set[str]()

    def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
        text = one_line(str(message))
        if category.__name__ == "DecompressionBombWarning":  # Pillow's; such a picture is refused, by its name
            return
        if text not in shown:  # many models may give the same warning
            shown.add(text)
            warn(text)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
