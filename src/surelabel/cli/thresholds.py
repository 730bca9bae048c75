"""`surelabel thresholds`: what thresholds select of held-out labels, and which of them keep a promised error."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table

from surelabel.cli import _runs
from surelabel.cli._console import complain, say
from surelabel.cli._console import out as screen
from surelabel.cli._errors import WrongUse
from surelabel.errors import DataError

if TYPE_CHECKING:
    from surelabel.core.thresholds import HeldOutLabels, Thresholds
    from surelabel.report.thresholds import Pair

EXAMPLE = """[bold]Examples[/bold]

surelabel thresholds runs/iris

surelabel thresholds runs/iris --max-error 0.02 --out iris.svg

surelabel thresholds held_out.npz --tau-p 0.7 --kappa-p 0.05"""

TAUS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
KAPPAS = (0.01, 0.02, 0.05, 0.1, math.inf)


def command(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="RUN or FILE",
            help="A run's folder, for its validation set; or a file: .npz with p, u and y, or .csv or .parquet with "
            "the columns confidence, uncertainty, label and truth.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="The .svg file to draw; left out: thresholds-NAME.svg, by the name of the run or file.",
            show_default=False,
        ),
    ] = None,
    max_error: Annotated[
        float, typer.Option("--max-error", help="The share of wrong labels to stay below.", min=0, max=1)
    ] = 0.05,
    delta: Annotated[
        float, typer.Option("--delta", help="The chance that the share is not below it.", min=0, max=1)
    ] = 0.05,
    min_coverage: Annotated[
        float, typer.Option("--min-coverage", help="The share of the samples at which the tests begin.", min=0, max=1)
    ] = 0.2,
    round: Annotated[
        int, typer.Option("--round", help="Whose network's labels to look at, in a run; -1: the last's.")
    ] = 0,
    tau_p: Annotated[
        list[float] | None,
        typer.Option("--tau-p", help="A row of the table; may be repeated.", min=0, max=1, show_default=False),
    ] = None,
    kappa_p: Annotated[
        list[float] | None,
        typer.Option("--kappa-p", help="A column of the table; may be repeated.", min=0, show_default=False),
    ] = None,
    force: _runs.Force = False,
) -> None:
    """Choose thresholds for positive labels on held-out labels.

    Draws right and wrong labels over confidence and uncertainty, prints how many
    labels each pair of thresholds selects and how many of these are right, and
    finds the loosest pair whose error is below --max-error, but for a chance of
    --delta. That holds for samples drawn as these were, whose labels trained or
    chose no network, and for one choice: not for the best of several tries.
    """
    _runs.check_output(out, force, endings=(".svg",))
    labels, used, pool = _read(source, round)
    from surelabel.core.thresholds import choose
    from surelabel.report.thresholds import Pair, draw_distributions

    if not labels.label.any():
        raise DataError("The network gives no held-out sample a positive label, so there is nothing to choose from.")
    chosen = choose(labels, max_error, delta, min_coverage, pool)
    number, wrong = int(labels.label.sum()), int(labels.wrong.sum())
    say(f"{number} held-out labels, {1 - wrong / number:.2%} right", style="bold")
    screen.print(drawn(labels, tau_p or TAUS, kappa_p or KAPPAS))
    if used is not None:
        say(f"The run's tau_p={used.tau_p:g} and kappa_p={used.kappa_p:g} select {_selected_text(labels, used)}.")
    say(f"Chosen: {chosen}" if chosen.tau_p is not None else str(chosen))
    if chosen.tau_p is not None:
        _tell_limits(round, pool is not None)
        _tell_use(chosen)
    marks = {} if used is None else {"the run's": used}
    if chosen.tau_p is not None and chosen.kappa_p is not None:
        marks["chosen"] = Pair(chosen.tau_p, chosen.kappa_p)
    figure = out or Path(f"thresholds-{_name(source)}.svg")
    if out is None and figure.exists() and not force:
        complain("warning", f"file '{figure}' exists and is kept; give --force to replace it, or --out.", style="bold")
        return
    draw_distributions(figure, labels, marks)
    say(f"The figure is in {figure}.")


def drawn(labels: "HeldOutLabels", taus: Sequence[float], kappas: Sequence[float]) -> Table:
    """Return the number and accuracy of the labels that each pair of thresholds selects."""
    from surelabel.report.thresholds import Pair

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("tau_p", justify="right", no_wrap=True)
    kappas = kappas if labels.uncertainty is not None else (math.inf,)
    for kappa in kappas:
        table.add_column(f"kappa_p {kappa:g}", justify="right", no_wrap=True)
    for tau in taus:
        table.add_row(f"{tau:g}", *(_pair_text(labels, Pair(tau, kappa)) for kappa in kappas))
    return table


def _pair_text(labels: "HeldOutLabels", pair: "Pair") -> str:
    from surelabel.report.thresholds import select_from

    selected = select_from(labels, pair)
    return "0" if selected.accuracy is None else f"{selected.number} {selected.accuracy:.2%}"


def _selected_text(labels: "HeldOutLabels", pair: "Pair") -> str:
    from surelabel.report.thresholds import check_pair, select_from

    number, checked = select_from(labels, pair).number, check_pair(labels, pair)
    if not number:
        return "no label"
    if labels.label.shape[1] == 1:
        return f"{number} labels: {checked.text(' are right')}"
    return f"{number} labels of {checked.number} samples: {checked.text(' of these have no wrong one')}"


def _read(source: Path, round: int) -> "tuple[HeldOutLabels, Pair | None, HeldOutLabels | None]":
    """Return the held-out labels and, of a run, the thresholds that it used and its pool."""
    if not source.exists():
        raise WrongUse(f"Invalid value for 'RUN or FILE': '{source}' does not exist; check the path.")
    from surelabel.report.thresholds import Pair, pool_labels, read_labels, validation_labels

    if source.is_dir():
        run = _runs.open_run(source)
        used = Pair(run.settings.config.tau_p, run.settings.config.kappa_p)
        return validation_labels(run, round), used, pool_labels(run, round)
    if round:
        raise WrongUse("--round has no effect: a file has the labels of one network; leave it out.")
    return read_labels(source), None, None


def _name(source: Path) -> str:
    return source.resolve().name if source.is_dir() else source.stem


def _tell_limits(round: int, has_pool: bool) -> None:
    if not has_pool:
        say("The probability is approximate: there is no pool that the pairs of thresholds could be taken from.")
    if round:
        say("This network has learned from the pool, so the promise is about samples that it has not seen.")


def _tell_use(chosen: "Thresholds") -> None:
    from surelabel.settings import UPSConfig

    assert chosen.tau_p is not None
    negative = f" --tau-n {chosen.tau_p!r}" if chosen.tau_p < UPSConfig().tau_n else ""
    values = f"--tau-p {chosen.tau_p!r} --kappa-p {chosen.kappa_p!r}{negative}"
    say(f"To use them: surelabel fit ... {values}", style="cyan")
