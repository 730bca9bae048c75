"""`surelabel report`: tables and figures of one or several runs in one HTML file."""

from pathlib import Path
from typing import Annotated

import typer

from surelabel.cli import _runs
from surelabel.cli._console import say

EXAMPLE = """[bold]Examples[/bold]

surelabel report runs/iris --out report.html

surelabel report runs/* --out comparison.html"""


def command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folders.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", help="The .html file to write.")] = Path("report.html"),
    title: Annotated[str, typer.Option("--title", help="The report's heading.")] = "surelabel report",
    trust_code: _runs.TrustCode = False,
    force: _runs.Force = False,
) -> None:
    """Write one self-contained HTML file with the figures of one or several runs."""
    _runs.check_output(out, force, endings=(".html",))
    folders = [_runs.open_run(run, trust_code) for run in runs]
    from surelabel.report.html import write_report

    write_report(folders, out, title)
    say(f"The report is in {out}.")
