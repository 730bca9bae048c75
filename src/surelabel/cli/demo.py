"""`surelabel demo`: UPS beside its parts on data inside scikit-learn, with a table and a report."""

from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = """[bold]Examples[/bold]

surelabel demo

surelabel demo --out runs/demo --seeds 1"""


def command(
    out: Annotated[Path, typer.Option("--out", help="The demo's folder; it is made new.")] = Path("surelabel-demo"),
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="How many seeds each method runs with.")] = 3,
) -> None:
    """Compare UPS with its parts on handwritten digits, few of them labeled; takes about a minute."""
