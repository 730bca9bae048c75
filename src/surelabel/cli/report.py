"""`surelabel report`: tables and figures of one or several runs in one HTML file."""

from pathlib import Path

import typer

from surelabel.cli import _options as options
from surelabel.cli._console import say
from surelabel.cli._rounds import shown_decoding

EXAMPLES = (
    "surelabel report runs/iris --out report.html",
    "surelabel report runs/* --out comparison.html",
)


def command(
    runs: list[Path] = typer.Argument(metavar="RUN", help="Run folders."),
    out: Path = options.option("The .html file to write.", value=Path("report.html")),
    title: str = options.option("The report's heading.", value="surelabel report"),
    trust_code: bool = options.TRUST_CODE,
    force: bool = options.FORCE,
) -> None:
    """Write one self-contained HTML file with the figures of one or several runs."""
    options.check_output(out, force, endings=(".html",))
    folders = [options.open_run(run, trust_code) for run in runs]
    from surelabel.report.html import write_report

    with shown_decoding():
        write_report(folders, out, title)
    say(f"The report is in {out}.")
