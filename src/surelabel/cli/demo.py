"""`surelabel demo`: UPS beside its parts on data inside scikit-learn, with a table and a report."""

from pathlib import Path
from typing import TYPE_CHECKING

from surelabel.base.system import cores
from surelabel.cli._console import command_line, say, show_table
from surelabel.cli._errors import Interrupted
from surelabel.cli._options import option
from surelabel.cli._rounds import shown_work

if TYPE_CHECKING:
    from surelabel.report.tables import TextTable

EXAMPLES = (
    "surelabel demo",
    "surelabel demo --out runs/demo --seeds 1",
)

_MOST_WORKERS = 4
_ONLY_IN_THE_REPORT = ("seeds", "rounds", "negatives selected", "minutes")


def command(
    out: Path = option("The folder for the runs and the report.", value=Path("runs/demo")),
    seeds: int = option("How many seeds each method runs with.", value=3, min=1, max=1000),
    results: Path | None = option("Append a row for each run to this CSV file."),
) -> None:
    """Compare UPS with its parts on handwritten digits, four of each labeled.

    It takes one to two minutes and needs no internet. Existing files are kept: if
    the folder is in use, a new one gets a number.
    """
    from surelabel.reproduce.demo import TITLE, run_demo

    say(f"{TITLE[0].upper()}{TITLE[1:]}", style="bold")
    workers = min(cores(), _MOST_WORKERS)
    try:
        with shown_work("runs") as progress:
            result = run_demo(out, range(seeds), workers=workers, progress=progress, results=results)
    except KeyboardInterrupt:
        raise Interrupted(_kept(out)) from None
    show_summary(result.table)
    say(f"The report is in {result.report}, the runs beside it. Open it in a browser.")


def show_summary(summary: "TextTable") -> None:
    """Print the summary in 80 columns; the report also has the columns that are left out here."""
    kept = [place for place, name in enumerate(summary.header) if name not in _ONLY_IN_THE_REPORT]
    # A space that does not break keeps "88.0 ± 0.4" on one line.
    rows = [[line[place].replace(" ", "\u00a0") for place in kept] for line in summary.lines]
    show_table([summary.header[place] for place in kept], rows)


def _kept(out: Path) -> str | None:
    begun = sorted(out.parent.glob(f"{out.name}*/*/run.json"), key=lambda path: path.stat().st_mtime)
    if not begun:
        return None
    run = begun[-1].parent
    return f"finished rounds are kept in {run.parent}; go on with one of its runs by: {command_line('resume', run)}"
