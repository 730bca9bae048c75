"""The two streams of the command line: results and rounds on standard output, errors and warnings on standard error.

Colors, bars and line breaks at the window's edge are for terminals; a pipe or a file gets plain whole lines.
"""

import shlex
from collections.abc import Sequence

from rich.console import Console

from surelabel.base.text import visible

out = Console(highlight=False, emoji=False)
err = Console(stderr=True, highlight=False, emoji=False)


def say(text: str = "", style: str | None = None) -> None:
    """Print a line on standard output: no markup, no line breaks of our own, nothing that a terminal would obey."""
    out.print(visible(text), style=style, markup=False, soft_wrap=True)


def complain(kind: str, text: str, style: str) -> None:
    """Print `kind: text` on standard error, the kind in color on a terminal."""
    err.print(f"{kind}:", style=style, end=" ", soft_wrap=True)
    err.print(visible(text), markup=False, soft_wrap=True)


def one_line(text: str) -> str:
    r"""Return the text with every run of white space, line breaks too, as one space.

    >>> one_line("Choose from:\n\tequal")
    'Choose from: equal'
    """
    return " ".join(text.split())


def command_line(*words: object) -> str:
    """Return the command that a user can paste into a shell.

    >>> command_line("resume", "runs/my iris")
    "surelabel resume 'runs/my iris'"
    """
    return shlex.join(["surelabel", *map(str, words)])


def list_commands(commands: Sequence[str]) -> None:
    """Print commands to go on with, one a line."""
    for command in commands:
        say(f"  {command}", style="cyan")
