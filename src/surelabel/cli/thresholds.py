"""`surelabel thresholds`: what thresholds select of held-out labels, and which of them keep a promised error."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from surelabel.cli import _options as options
from surelabel.cli._console import say, show_table, warn
from surelabel.cli._errors import WrongUse
from surelabel.cli._options import option
from surelabel.errors import DataError

if TYPE_CHECKING:
    from surelabel.core.thresholds import HeldOutLabels
    from surelabel.report.thresholds import Pair

EXAMPLES = (
    "surelabel thresholds runs/iris",
    "surelabel thresholds runs/iris --max-error 0.02 --out iris.svg",
    "surelabel thresholds held_out.npz --tau-p 0.7 --kappa-p 0.05",
)

TAUS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
KAPPAS = (0.01, 0.02, 0.05, 0.1, math.inf)


def command(
    source: Path = typer.Argument(
        metavar="RUN or FILE",
        help="A run's folder, for its validation set; or a file: .npz with p, u and y, or .csv or .parquet with the "
        "columns confidence, uncertainty, label and truth.",
    ),
    out: Path | None = option("The .svg file to draw; left out: thresholds-NAME.svg, by the name of the run or file."),
    max_error: float = option("The share of wrong labels to stay below.", value=0.05, min=0, max=1),
    delta: float = option("The chance that the share is not below --max-error.", value=0.05, min=0, max=1),
    min_coverage: float = option("The share of the samples at which the tests begin.", value=0.2, min=0, max=1),
    round: int = option("The round whose network's labels to use, in a run; -1: the last round.", value=0),
    tau_p: list[float] | None = option("A value of tau_p to show in the table; may be repeated.", min=0, max=1),
    kappa_p: list[float] | None = option("A value of kappa_p to show in the table; may be repeated.", min=0),
    force: bool = options.FORCE,
) -> None:
    """Choose thresholds for positive labels on held-out labels.

    Draws right and wrong labels over confidence and uncertainty, prints how many
    labels each pair of thresholds selects and how many of these are right, and
    finds the loosest pair whose error is below --max-error, except with
    probability --delta. This holds for samples drawn like these, if their labels
    were not used to train or choose a network, and for a single choice: not for
    the best of several tries.
    """
    options.check_output(out, force, endings=(".svg",))
    labels, used, pool = _read(source, round)
    from surelabel.core.thresholds import choose
    from surelabel.report.thresholds import Pair, draw_distributions

    if not labels.label.any():
        raise DataError("The network gives no held-out sample a positive label, so there is nothing to choose from.")
    chosen = choose(labels, max_error, delta, min_coverage, pool)
    number, wrong = int(labels.label.sum()), int(labels.wrong.sum())
    say(f"{number} held-out labels, {1 - wrong / number:.2%} right", style="bold")
    show_pairs(labels, tau_p or TAUS, kappa_p or KAPPAS)
    if used is not None:
        say(f"The run's tau_p={used.tau_p:g} and kappa_p={used.kappa_p:g} select {_selected_text(labels, used)}.")
    marks = {} if used is None else {"the run's": used}
    if chosen.tau_p is None or chosen.kappa_p is None:
        say(str(chosen))
        coverage = "A smaller --min-coverage begins with surer labels, a larger one with more of them"
        say(f"{coverage}; set it before you look: every further try weakens the promise.")
    else:
        say(f"Chosen: {chosen}")
        marks["chosen"] = Pair(chosen.tau_p, chosen.kappa_p)
        _tell_use(marks["chosen"], round, has_pool=pool is not None)
    name = source.resolve().name if source.is_dir() else source.stem
    figure = out or Path(f"thresholds-{name}.svg")
    if out is None and figure.exists() and not force:
        warn(f"file '{figure}' exists and is kept; give --force to replace it, or --out.")
        return
    draw_distributions(figure, labels, marks)
    say(f"The figure is in {figure}.")


def show_pairs(labels: "HeldOutLabels", taus: Sequence[float], kappas: Sequence[float]) -> None:
    """Print the number and accuracy of the labels that each pair of thresholds selects."""
    from surelabel.report.thresholds import Pair, select_from

    def cell(tau: float, kappa: float) -> str:
        number, accuracy = select_from(labels, Pair(tau, kappa))
        return "0" if accuracy is None else f"{number} {accuracy:.2%}"

    kappas = kappas if labels.uncertainty is not None else (math.inf,)
    rows = [[f"{tau:g}", *(cell(tau, kappa) for kappa in kappas)] for tau in taus]
    show_table(["tau_p", *(f"kappa_p {kappa:g}" for kappa in kappas)], rows, text_columns=0)


def _selected_text(labels: "HeldOutLabels", pair: "Pair") -> str:
    from surelabel.report.thresholds import check_pair, select_from

    number, checked = select_from(labels, pair).number, check_pair(labels, pair)
    if not number:
        return "no label"
    if labels.label.shape[1] == 1:
        return f"{number} labels: {checked.text(' are right')}"
    return f"{number} labels of {checked.number} samples: {checked.text(' of these have no wrong one')}"


def _read(source: Path, round: int) -> "tuple[HeldOutLabels, Pair | None, HeldOutLabels | None]":
    """Return the held-out labels and, for a run, the thresholds that it used and its pool."""
    if not source.exists():
        raise WrongUse(f"Invalid value for 'RUN or FILE': '{source}' does not exist; check the path.")
    from surelabel.report.thresholds import Pair, pool_labels, read_labels, validation_labels

    if source.is_dir():
        run = options.open_run(source)
        used = Pair(run.settings.config.tau_p, run.settings.config.kappa_p)
        return validation_labels(run, round), used, pool_labels(run, round)
    if round:
        raise WrongUse("--round has no effect: a file has the labels of one network; leave it out.")
    return read_labels(source), None, None


def _tell_use(chosen: "Pair", round: int, has_pool: bool) -> None:
    """Print what the promise covers, and how to use the thresholds."""
    from surelabel.settings import UPSConfig

    if not has_pool:
        say("The probability is approximate: there is no pool that the pairs of thresholds could be taken from.")
    if round:
        say("This network has learned from the pool, so the promise is about samples that it has not seen.")
    negative = f" --tau-n {chosen.tau_p!r}" if chosen.tau_p < UPSConfig().tau_n else ""
    say(f"To use them: surelabel fit ... --tau-p {chosen.tau_p!r} --kappa-p {chosen.kappa_p!r}{negative}", style="cyan")
