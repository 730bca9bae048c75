"""`surelabel reproduce`: the paper's tables and figures, run again."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from surelabel.cli._console import command_line, say, show_table, warn
from surelabel.cli._console import out as console
from surelabel.cli._errors import Interrupted, describe
from surelabel.cli._options import check_device, check_pretrained, option, settings_from_options
from surelabel.cli._rounds import shown_work
from surelabel.cluster.torchrun import check_same_folder
from surelabel.errors import InvalidInputError

if TYPE_CHECKING:
    from surelabel.reproduce.entries import Experiment
    from surelabel.reproduce.outcome import Result
    from surelabel.reproduce.plans import Options

EXAMPLES = (
    "surelabel reproduce",
    "surelabel reproduce table5 --labels 1000 --budget 6",
    "surelabel reproduce table1 --rows UPS --seeds 3 --recipe paper",
    "surelabel reproduce table3 --labels 20% --set split=2",
    "surelabel reproduce table5 --rows UPS --uncertainty deep-ensemble",
    "surelabel reproduce mine.py:TABLE",
)


RESULTS = Path("results/runs.csv")
"""Where the rows of runs go, in the current folder."""


def command(
    experiment: str | None = typer.Argument(
        None, help="table5, figure2, …, or your own FILE.py:NAME; left out: the list of all."
    ),
    rows: list[str] | None = option("Only this row; may be repeated."),
    labels: list[str] | None = option("Only this number of labels, or share: 500, 20%; may be repeated."),
    data: list[str] | None = option("Only this data set, such as cifar10; may be repeated."),
    seeds: int = option("Seeds 0, 1, …; a seed also draws the split.", value=1, min=1, max=1000),
    seed: list[int] | None = option("This seed, instead of --seeds; may be repeated."),
    recipe: Literal["fast", "paper", "best"] = option(
        "fast: minutes, and it lists what differs from the paper; paper: hours; best: only our own rows, "
        "UPS + consistency.",
        value="fast",
    ),
    budget: float | None = option("Minutes for each run; rounds and steps are set to fit.", metavar="MINUTES"),
    rounds: int | None = option("At most this many rounds, instead of the recipe's.", min=1, max=1000),
    pretrained: Path | None = option(
        "Weights that every round of table3 or table4 begins with; table3's network is then torchvision's.",
        metavar="FILE",
    ),
    uncertainty: str | None = option(
        "mc-dropout, mc-spatial-dropout, mc-dropblock, augmentation, deep-ensemble, or your own FILE.py:CLASS; "
        "for rows that do not name another.",
        metavar="ESTIMATOR",
    ),
    arguments: list[str] | None = option(
        "Set an argument of the data set, such as split=2; may be repeated.", "--set", metavar="NAME=VALUE"
    ),
    device: str | None = option("cpu or cuda; left out, the GPU if there is one."),
    out: Path = option("The folder of the runs; a second call continues there.", value=Path("runs/reproduce")),
    results: Path | None = option(
        "Append a row for each run to this CSV file; left out, results/runs.csv.", metavar="FILE"
    ),
    no_results: bool = option("Append nothing to any file.", "--no-results", value=False),
) -> None:
    """Run a table or figure of the paper again, and show the paper's results next to ours.

    Every finished round is kept: after Ctrl-C or a crash the same command continues.
    Rounds that rows share are trained once. Rows of other methods are not run.
    """
    if experiment is None:
        _list_all()
        return
    check_same_folder(out)
    check_device(device)
    if seed and seeds != 1:
        raise InvalidInputError("Give --seeds, or --seed for single ones, not both.")
    if results is not None and no_results:
        raise InvalidInputError("Give --results or --no-results, not both.")
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
    """Run the chosen rows and show all finished runs of the experiment, even after an error or Ctrl-C."""
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
        kept = f"finished rounds are kept in {out}" if any(out.glob(f"*/*/{RUN}")) else "no round is done yet"
        raise Interrupted(f"{kept}; the same command goes on: {command_line('reproduce', name)} …") from None
    _show(experiment, cells, options, out)
    if results is not None:
        say(f"The rows of these runs are in {results}.")


def _show_kept(experiment: "Experiment", options: "Options", out: Path) -> None:
    """Show what the folder has after an error. The error is reported in any case, so a failure here is a warning."""
    from surelabel.reproduce.outcome import collect

    try:
        if out.exists():
            _show(experiment, collect(experiment, out, options), options, out)
    except Exception as error:
        warn(f"the finished runs cannot be shown: {describe(error)[0]}")


def _show(experiment: "Experiment", cells: "list[Result]", options: "Options", out: Path) -> None:
    """Show and write the finished runs of an experiment; nothing if there are none.

    Args:
        experiment: the table or figure.
        cells: all of its cells.
        options: recipe and minutes.
        out: where the table and the figures go.
    """
    from surelabel.reproduce.outcome import notes, outcome_table, scores_text, write_outcome

    if not any(cell.runs for cell in cells) or console.quiet:
        return
    say(f"{experiment.title}: {scores_text(experiment)}", style="bold")
    table = outcome_table(experiment, cells)
    show_table(table.header, table.lines, text_columns=2)
    for text in notes(experiment, cells):
        say(text)
    for text in dict.fromkeys(cell.cut for cell in cells if cell.cut):
        rows = dict.fromkeys(_cell_name(cell) for cell in cells if cell.cut == text)
        say(f"{'; '.join(rows)}: {text}.")
    asked_for = [(_cell_name(cell), run) for cell in cells if cell.asked_for for run in cell.runs]
    for name, run in asked_for:
        took = run.records()[-1].minutes
        if options.minutes is not None and took > options.minutes:
            warn(f"{name}, seed {run.settings.config.seed}, took {took:.1f} minutes.")
    for path in write_outcome(experiment, cells, out):
        say(f"Written: {path}")


def _cell_name(cell: "Result") -> str:
    from surelabel.reproduce.entries import labels_text

    return f"{cell.entry.row}, {cell.entry.dataset.name} {labels_text(cell.entry.labels)}"


def _list_all() -> None:
    from surelabel.reproduce.paper import EXPERIMENTS

    experiments = EXPERIMENTS.values()
    numbers = [len({entry.row for entry in one.entries if entry.variant is not None}) for one in experiments]
    rows = [(one.name, one.title, str(number)) for one, number in zip(experiments, numbers, strict=True)]
    show_table(("name", "what it shows", "rows to run"), rows, text_columns=3)
    say("Run one of them: surelabel reproduce NAME. Get CIFAR by: surelabel data get cifar10.")
