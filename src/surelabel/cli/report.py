"""`surelabel report`: tables and figures of one or several runs in one HTML file."""

from pathlib import Path
from typing import Annotated

import typer

from surelabel.cli import _options as options
from surelabel.cli._console import say

EXAMPLE = """[bold]Examples[/bold]

surelabel report runs/iris --out report.html

surelabel report runs/* --out comparison.html"""


def command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folders.", show_default=False)],
    out: Annotated[Path, typer.Option(help="The .html file to write.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="The report's heading.")] = "surelabel report",
    trust_code: options.TrustCode = False,
    force: options.Force = False,
) -> None:
    """Write one self-contained HTML file with the figures of one or several runs."""
    options.check_output(out, force, endings=(".html",))
    folders = [options.open_run(run, trust_code) for run in runs]
    from surelabel.report.html import write_report

    write_report(folders, out, title)
    say(f"The report is in {out}.")
