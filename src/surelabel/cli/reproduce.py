"""`surelabel reproduce`: the paper's tables and figures, run again."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich import box
from rich.table import Table

from surelabel.cli._console import command_line, complain, say
from surelabel.cli._console import out as screen
from surelabel.cli._errors import Interrupted, describe, settings_from_options
from surelabel.cli._fit_options import check_device, check_pretrained
from surelabel.cli._work import shown_work
from surelabel.errors import InvalidInputError

if TYPE_CHECKING:
    from surelabel.reproduce.entries import Experiment
    from surelabel.reproduce.outcome import Result
    from surelabel.reproduce.plans import Options

EXAMPLE = """[bold]Examples[/bold]

surelabel reproduce

surelabel reproduce table5 --labels 1000 --budget 6

surelabel reproduce table1 --rows UPS --seeds 3 --recipe paper

surelabel reproduce table3 --labels 20% --set split=2

surelabel reproduce table5 --rows UPS --uncertainty deep-ensemble

surelabel reproduce mine.py:TABLE"""


RESULTS = Path("results/runs.csv")
"""Where the rows of runs go, in the current folder."""


def _option(flag: str, text: str, metavar: str | None = None) -> Any:
    return typer.Option(flag, help=text, metavar=metavar, show_default=False)


Name = Annotated[
    str | None, typer.Argument(help="table5, figure2, …, or FILE.py:NAME of your own; left out: the list of all.")
]
Rows = Annotated[list[str] | None, _option("--rows", "Only this row; given several times: these.")]
Labels = Annotated[
    list[str] | None, _option("--labels", "Only this number of labels, or share: 500, 20%; may be repeated.")
]
Data = Annotated[list[str] | None, _option("--data", "Only this data set, such as cifar10; may be repeated.")]
Seeds = Annotated[int, typer.Option("--seeds", min=1, max=1000, help="Seeds 0, 1, …; a seed also draws the split.")]
Seed = Annotated[list[int] | None, _option("--seed", "This seed, in place of --seeds; may be repeated.")]
Recipe = Annotated[
    Literal["fast", "paper"],
    typer.Option("--recipe", help="fast: minutes, where it departs from the paper it says so; paper: hours."),
]
Budget = Annotated[
    float | None, _option("--budget", "Minutes for each run; rounds and steps are set to fit.", "MINUTES")
]
Rounds = Annotated[
    int | None,
    typer.Option(
        "--rounds", min=1, max=1000, help="So many rounds at most, in place of the recipe's.", show_default=False
    ),
]
Pretrained = Annotated[
    Path | None,
    _option(
        "--pretrained",
        "Weights that every round of table3 or table4 begins with; table3's network is then torchvision's.",
        "FILE",
    ),
]
Uncertainty = Annotated[
    str | None,
    _option(
        "--uncertainty",
        "mc-dropout, mc-spatial-dropout, mc-dropblock, augmentation, deep-ensemble, or FILE.py:CLASS of your own; "
        "in rows that do not name another.",
        "ESTIMATOR",
    ),
]
Arguments = Annotated[
    list[str] | None,
    _option("--set", "Set an argument of the data set, such as split=2; may be repeated.", "NAME=VALUE"),
]
Device = Annotated[str | None, _option("--device", "cpu or cuda; left out, the GPU if there is one.")]
Out = Annotated[Path, typer.Option("--out", help="The folder of the runs; a second call goes on there.")]
Results = Annotated[
    Path | None,
    _option("--results", "Append a row for each run to this CSV file; left out, results/runs.csv.", "FILE"),
]
NoResults = Annotated[bool, typer.Option("--no-results", help="Append nothing to any file.")]


def command(
    experiment: Name = None,
    rows: Rows = None,
    labels: Labels = None,
    data: Data = None,
    seeds: Seeds = 1,
    seed: Seed = None,
    recipe: Recipe = "fast",
    budget: Budget = None,
    rounds: Rounds = None,
    pretrained: Pretrained = None,
    uncertainty: Uncertainty = None,
    arguments: Arguments = None,
    device: Device = None,
    out: Out = Path("runs/reproduce"),
    results: Results = None,
    no_results: NoResults = False,
) -> None:
    """Run a table or figure of the paper again, and show the paper's figures beside ours.

    Every finished round is kept: after Ctrl-C or a crash the same command goes on.
    Rows that share rounds train them once. Other methods' rows are not run.
    """
    if experiment is None:
        _list_all()
        return
    if device is not None:
        check_device(device)
    if seed and seeds != 1:
        raise InvalidInputError("Give --seeds, or --seed for single ones, not both.")
    if results is not None and no_results:
        raise InvalidInputError("Give --results or --no-results, not both.")
    if pretrained is not None:
        check_pretrained(pretrained)
    from surelabel.reproduce.entries import parse_arguments, parse_labels
    from surelabel.reproduce.paper import experiment as named
    from surelabel.reproduce.plans import Options

    options = Options(
        seeds=tuple(seed or range(seeds)),
        recipe=recipe,
        minutes=budget,
        device=device,
        rows=tuple(rows or ()),
        labels=tuple(parse_labels(text) for text in labels or ()),
        pretrained=None if pretrained is None else str(pretrained),
        datasets=tuple(data or ()),
        rounds=rounds,
        arguments=parse_arguments(arguments or ()),
        uncertainty=uncertainty,
    )
    _run(experiment, named(experiment), options, out, None if no_results else results or RESULTS)


def _run(name: str, experiment: "Experiment", options: "Options", out: Path, results: Path | None) -> None:
    """Run the chosen rows and show all that there is of the experiment, also after an error or Ctrl-C."""
    from surelabel.reproduce.experiment import check_request, reproduce
    from surelabel.runs.layout import RUN

    with settings_from_options():
        check_request(experiment, options, results)
    try:
        with shown_work("rounds") as progress:
            cells = reproduce(experiment, out, options, progress=progress, results=results)
    except (Exception, KeyboardInterrupt) as problem:
        _show_kept(experiment, options, out)
        if not isinstance(problem, KeyboardInterrupt):
            raise
        error = Interrupted()
        again = command_line("reproduce", name)
        kept = f"finished rounds are kept in {out}" if any(out.glob(f"*/*/{RUN}")) else "no round is done yet"
        error.add_note(f"{kept}; the same command goes on: {again} …")
        raise error from None
    _show(experiment, cells, options, out)
    if results is not None:
        say(f"The rows of these runs are in {results}.")


def _show_kept(experiment: "Experiment", options: "Options", out: Path) -> None:
    """Show what the folder has after an error, which is told in any case: what fails here is a warning."""
    from surelabel.reproduce.outcome import collect

    try:
        if out.exists():
            _show(experiment, collect(experiment, out, options), options, out)
    except Exception as error:
        complain("warning", f"the finished runs cannot be shown: {describe(error)[0]}", style="bold yellow")


def _show(experiment: "Experiment", cells: "list[Result]", options: "Options", out: Path) -> None:
    """Show and write what there is of an experiment; nothing where no run is finished.

    Args:
        experiment: the table or figure.
        cells: all of its cells.
        options: recipe and minutes.
        out: where the table and the figures go.
    """
    from surelabel.reproduce.outcome import notes, scores_text, write_outcome

    if not any(cell.runs for cell in cells):
        return
    say(f"{experiment.title}: {scores_text(experiment)}", style="bold")
    screen.print(drawn(experiment, cells))
    for text in notes(experiment, cells):
        say(text)
    for text in dict.fromkeys(cell.cut for cell in cells if cell.cut):
        rows = dict.fromkeys(_cell_name(cell) for cell in cells if cell.cut == text)
        say(f"{'; '.join(rows)}: {text}.")
    limit = math.inf if options.minutes is None else options.minutes
    for cell in (cell for cell in cells if cell.asked_for):
        for run in cell.runs:
            if (took := run.records()[-1].minutes) > limit:
                name = f"{_cell_name(cell)}, seed {run.settings.config.seed}"
                complain("warning", f"{name}, took {took:.1f} minutes.", style="bold yellow")
    for path in write_outcome(experiment, cells, out):
        say(f"Written: {path}")


def _cell_name(cell: "Result") -> str:
    from surelabel.reproduce.entries import labels_text

    return f"{cell.entry.row}, {cell.entry.dataset.name} {labels_text(cell.entry.labels)}"


def drawn(experiment: "Experiment", cells: "list[Result]") -> Table:
    """Return the table: the paper's figure and ours side by side."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    from surelabel.reproduce.outcome import outcome_table

    found = outcome_table(experiment, cells)
    for title in found.header:
        table.add_column(title, justify="left" if title in ("row", "data") else "right", no_wrap=title == "row")
    for line in found.lines:
        table.add_row(*line)
    return table


def _list_all() -> None:
    from surelabel.reproduce.paper import EXPERIMENTS

    screen.print(_listed(list(EXPERIMENTS.values())))
    say("Run one of them: surelabel reproduce NAME. CIFAR comes by: surelabel data get cifar10; what VOC2007 and")
    say("UCF-101 need, the command says.")


def _listed(experiments: "list[Experiment]") -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for title in ("name", "what it shows", "rows to run"):
        table.add_column(title)
    for one in experiments:
        rows = {entry.row: None for entry in one.entries if entry.variant is not None}
        table.add_row(one.name, one.title, str(len(rows)))
    return table
