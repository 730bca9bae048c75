"""How fast training and labeling are here, beside a plain and a published-like way: `make bench`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.table import Table

from surelabel.cli._app import run
from surelabel.cli._console import complain, say
from surelabel.cli._console import out as screen
from surelabel.cli._options import check_device, settings_from_options
from surelabel.cli._rounds import shown_work

if TYPE_CHECKING:
    from benchmarks.run import Bench, BenchSettings, Row

EXAMPLE = """[bold]Examples[/bold]

python -m benchmarks

python -m benchmarks --device cpu --batch 64 --minutes 1

python -m benchmarks --model nets.py:build --results results/bench.csv"""

app = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)


def _option(flag: str, text: str, metavar: str | None = None) -> Any:
    return typer.Option(flag, help=text, metavar=metavar, show_default=False)


@app.command(epilog=EXAMPLE)
def command(
    model: Annotated[
        str | None,
        _option(
            "--model",
            "cnn13 (the default), or a function (sample_shape, num_classes) -> Module.",
            "cnn13 or FILE.py:FUNCTION",
        ),
    ] = None,
    batch: Annotated[
        list[int] | None,
        typer.Option(
            "--batch",
            min=1,
            help="Images in a training step; given several times: a row for each. GPU: 512 and 128.",
            show_default=False,
        ),
    ] = None,
    passes: Annotated[int | None, _option("--passes", "Stochastic passes over each image, 10 unless given.")] = None,
    images: Annotated[int | None, _option("--images", "How many random 32 x 32 images. GPU: 51200.")] = None,
    workers: Annotated[
        int | None, _option("--workers", "Loader processes of the published-like way; the cores, at most 16.")
    ] = None,
    minutes: Annotated[float | None, _option("--minutes", "Nothing new is begun after these. GPU: 10.")] = None,
    device: Annotated[
        str | None, _option("--device", "cpu or cuda; left out, the GPU if there is one. A CPU gets a small network.")
    ] = None,
    results: Annotated[Path | None, _option("--results", "Append the rows to this CSV file.")] = None,
) -> None:
    """Time training and labeling by three ways in turns, on images made by code.

    published-like: Pillow in loader workers, float32 without TF32. plain: data on
    the device, bf16, channels_last, eager. engine: what surelabel does.
    """
    check_device(device)
    from benchmarks.results import append_rows, check_file, describe_device
    from benchmarks.run import run_bench

    if results is not None:
        check_file(results)
    given = {"model": model, "batches": batch or None, "passes": passes, "images": images}
    settings = _settings(device, given | {"workers": workers, "minutes": minutes})
    with shown_work("measurements") as progress:
        bench = run_bench(settings, progress)
    say(f"{bench.model} on {describe_device(bench.device)}", style="bold")
    screen.print(drawn(bench))
    say(f"Medians of {settings.repeats}, in turns; in brackets, how many times as fast the engine is.")
    say("next round: re-initialize the network and take the first step.")
    say(f"The peak is the best matrix product, {bench.peak / 1e12:.3g} TFLOP/s.")
    for row in bench.rows:
        if row.missing:
            names = ", ".join(row.missing)
            text = f"{row.what} (batch {row.batch}) was not timed in {settings.minutes:g} minutes: {names}."
            complain("warning", f"{text} Give it more with --minutes.", style="bold yellow")
    if results is not None:
        append_rows(results, bench.results())
        say(f"The rows are in {results}.")


def drawn(bench: "Bench") -> Table:
    """Return the table for 80 columns: images a second, and in brackets how many times as fast the engine is."""
    from benchmarks.run import ENGINE, PLAIN, PUBLISHED_LIKE

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("images a second", no_wrap=True)
    for name in ("batch", "engine", "plain", "published-like", "of peak"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in bench.rows:
        fraction = bench.fraction_of_peak(row)
        shown = (_shown(row, way) for way in (ENGINE, PLAIN, PUBLISHED_LIKE))
        table.add_row(row.what, str(row.batch), *shown, "" if fraction is None else f"{100 * fraction:.2g} %")
    return table


def _settings(device: str | None, given: dict[str, Any]) -> "BenchSettings":
    from benchmarks.run import default_settings

    changes = {name: value for name, value in given.items() if value is not None}
    with settings_from_options():
        return default_settings(device).replace(**changes)


def _shown(row: "Row", way: str) -> str:
    """Images a second; the start of a round, which has no operations to count, in seconds."""
    from benchmarks.run import ENGINE

    speed, ratio = row.per_second(way), row.ratio(way)
    if speed is None:
        return "-"
    shown = f"{speed:,.0f}" if row.operations else f"{1 / speed:.2g} s"
    return shown if ratio is None or way == ENGINE else f"{shown} ({ratio:.2f}x)"


if __name__ == "__main__":
    sys.exit(run(None, app, "benchmarks"))
