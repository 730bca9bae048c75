"""The two streams of the command line: results and rounds on standard output, errors and warnings on standard error.

Colors, bars and line breaks at the window's edge are for terminals; a pipe or a file gets plain whole lines.
"""

import shlex
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from surelabel.base.text import visible

out = Console(highlight=False, emoji=False)
err = Console(stderr=True, highlight=False, emoji=False)


def say(text: str = "", style: str | None = None) -> None:
    """Print a line on standard output without markup, added line breaks or control characters."""
    out.print(visible(text), style=style, markup=False, soft_wrap=True)


def complain(kind: str, text: str, style: str = "bold yellow") -> None:
    """Print `kind: text` on standard error, the kind in color on a terminal."""
    err.print(f"{kind}:", style=style, end=" ", soft_wrap=True)
    err.print(visible(text), markup=False, soft_wrap=True)


def warn(text: str) -> None:
    """Print a warning on standard error; of several processes, only the first one warns."""
    if not out.quiet:
        complain("warning", text)


def show_table(header: Sequence[str], rows: Iterable[Sequence[str]], text_columns: int = 1) -> None:
    """Print a table for a screen of 80 columns; the first `text_columns` columns hold text, the others numbers."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for place, title in enumerate(header):
        table.add_column(title, justify="left" if place < text_columns else "right", no_wrap=place == 0)
    for row in rows:
        table.add_row(*row)
    out.print(table)


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
