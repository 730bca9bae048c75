"""`surelabel demo`: UPS beside its parts on data inside scikit-learn, with a table and a report."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table

from surelabel.base.system import cores
from surelabel.cli._console import command_line, say
from surelabel.cli._console import out as screen
from surelabel.cli._errors import Interrupted
from surelabel.cli._work import shown_work

if TYPE_CHECKING:
    from surelabel.report.tables import TextTable

EXAMPLE = """[bold]Examples[/bold]

surelabel demo

surelabel demo --out runs/demo --seeds 1"""

_MOST_WORKERS = 4
_ONLY_IN_THE_REPORT = ("seeds", "rounds", "negatives selected", "minutes")


def command(
    out: Annotated[Path, typer.Option("--out", help="The folder for the runs and the report.")] = Path("runs/demo"),
    seeds: Annotated[int, typer.Option("--seeds", min=1, max=1000, help="How many seeds each method runs with.")] = 3,
    results: Annotated[
        Path | None, typer.Option("--results", help="Append a row for each run to this CSV file.", show_default=False)
    ] = None,
) -> None:
    """Compare UPS with its parts on handwritten digits, four of each labeled.

    It takes one to two minutes and needs no network. What exists is kept: where the
    folder is in use, a new one beside it gets a number.
    """
    from surelabel.reproduce.demo import TITLE, run_demo

    say(f"{TITLE[0].upper()}{TITLE[1:]}", style="bold")
    workers = min(cores(), _MOST_WORKERS)
    try:
        with shown_work("rounds") as progress:
            result = run_demo(out, range(seeds), workers=workers, progress=progress, results=results)
    except KeyboardInterrupt:
        raise _with_what_is_kept(Interrupted(), out) from None
    screen.print(drawn(result.table))
    say(f"The report is in {result.report}, the runs beside it. Open it in a browser.")


def _with_what_is_kept(error: Interrupted, out: Path) -> Interrupted:
    begun = sorted(out.parent.glob(f"{out.name}*/*/run.json"), key=lambda path: path.stat().st_mtime)
    if begun:
        run = begun[-1].parent
        example = command_line("resume", run)
        error.add_note(f"finished rounds are kept in {run.parent}; go on with one of its runs by: {example}")
    return error


def drawn(summary: "TextTable") -> Table:
    """Return the summary for a screen of 80 columns: the report has the columns that are left out here."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    kept = [position for position, name in enumerate(summary.header) if name not in _ONLY_IN_THE_REPORT]
    for position in kept:
        table.add_column(summary.header[position], justify="right" if position else "left", no_wrap=position == 0)
    for line in summary.lines:
        # A space that does not break keeps "88.0 ± 0.4" on one line.
        table.add_row(*(line[position].replace(" ", "\u00a0") for position in kept))
    return table
