"""The paper's experiments, run again: every row of a table with every seed, beside the figure that the paper reports.

A run is a folder and goes on from its last finished round. Rounds that rows share (all begin with the supervised
network) are trained once. What the minutes allow is planned once and kept, so that a run that is resumed, or another
seed, follows the same plan.
"""

import functools
import hashlib
import itertools
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from surelabel.config import Settings
from surelabel.errors import InvalidInputError
from surelabel.learners.protocol import Progress
from surelabel.recipes.budget import check_minutes
from surelabel.recipes.paper import Entry, Experiment
from surelabel.recipes.plans import Options, Plans
from surelabel.records import RoundRecord
from surelabel.report.equal_counts import compare_at_equal_counts
from surelabel.report.first_selection import METHODS, STAGES, NetworkPair, find_pairs, first_selection
from surelabel.report.paper_figures import write_figures
from surelabel.report.record import record_run
from surelabel.report.results import read_rows
from surelabel.report.tables import Statistic, all_but_seed, statistic
from surelabel.runs import RunFolder, RunSettings, resume, start
from surelabel.runs.files import make_folder, write_file
from surelabel.runs.layout import RUN

SHARED = ".shared"
"""The folder, beside the runs, of the networks that rows share. It may be removed when nothing is to be resumed."""

PLANS = "plans.json"


class Result(NamedTuple):
    """A cell of the table: an entry and its runs, none where it was not run.

    Attributes:
        entry: what the paper has there.
        runs: one a seed.
        cut: what the minutes allow in place of the recipe's rounds.
        differences: settings that are not the paper recipe's, "learning_rate 0.8 (paper 0.03)".
    """

    entry: Entry
    runs: list[RunFolder]
    cut: str = ""
    differences: tuple[str, ...] = ()

    def value(self, metric: str) -> Statistic | None:
        """Mean and standard deviation over the seeds, in percent; None without a run."""
        return statistic([percent(run, metric) for run in self.runs])


def percent(run: RunFolder, metric: str) -> float:
    """Return the test error, or the accuracy, of a run's last network in percent."""
    score = run.records()[-1].test_score
    assert score is not None
    return 100 * (1 - score) if metric == "error" else 100 * score


def chosen(experiment: Experiment, options: Options) -> list[Entry]:
    """Return the entries that are to be run; refuse names and numbers that the experiment has not.

    Example:
        >>> from surelabel.recipes.paper import experiment
        >>> [entry.row for entry in chosen(experiment("table5"), Options(rows=["UPS"], labels=[4000]))]
        ['UPS']
    """
    runnable = [entry for entry in experiment.entries if entry.variant is not None]
    for name, asked, there in (
        ("rows", options.rows, {entry.row for entry in runnable}),
        ("labels", options.labels, {entry.labels for entry in runnable}),
    ):
        unknown = [str(value) for value in asked if value not in there]
        if unknown:
            listed = "; ".join(sorted(map(str, there)))
            raise InvalidInputError(f"{experiment.name} has no {name} {', '.join(unknown)} to run; it has {listed}.")
    return [
        entry
        for entry in runnable
        if (not options.rows or entry.row in options.rows) and (not options.labels or entry.labels in options.labels)
    ]


def reproduce(
    experiment: Experiment,
    out: str | os.PathLike[str],
    options: Options,
    *,
    progress: Progress | None = None,
    results: str | os.PathLike[str] | None = None,
) -> list[Result]:
    """Run the chosen rows of an experiment, or go on with them; return all of its cells.

    Args:
        experiment: a table or figure of the paper.
        out: the folder of the runs; another experiment may share it, and with it the runs and rounds that are equal.
        options: which rows, seeds and recipe.
        progress: called with what is done now, rounds done, rounds in all.
        results: append a row for each finished run to this CSV file, unless it is there already.
    """
    folder, entries = Path(out), chosen(experiment, options)
    _check_beforehand(entries, options, results)
    make_folder(folder)
    plans = Plans(folder / PLANS, options)
    planned = [(entry, plans.settings(entry, seed)) for entry in entries for seed in options.seeds]
    counter = _Counter(progress, sum(settings.config.max_rounds + 1 for _, settings in planned))
    for entry, settings in planned:
        counter.begin(f"{entry.row}, {entry.labels} labels, seed {settings.config.seed}", settings)
        place = place_of(folder, entry, settings)
        for record in _rounds(place, settings, folder / SHARED, counter):
            counter.add(record)
        counter.end()
        if results is not None:
            _record(results, experiment, entry, RunFolder.open(place))
    cells = collect(experiment, folder, options)
    if results is not None:
        _record_first_selections(results, experiment, cells)
    return cells


def collect(experiment: Experiment, out: str | os.PathLike[str], options: Options) -> list[Result]:
    """Return all cells of an experiment with the finished runs that a folder has of them, chosen or not."""
    plans, cells = Plans(Path(out) / PLANS, options), []
    for entry in experiment.entries:
        if entry.variant is None or not plans.knows(entry):
            cells.append(Result(entry, []))
            continue
        settings = [plans.settings(entry, seed) for seed in options.seeds]
        places = [place_of(Path(out), entry, one) for one in settings]
        runs = [RunFolder.open(place) for place in places if (place / RUN).exists()]
        paper = entry.of(entry.base(options.seeds[0], "paper"))
        story = plans.cut_text(entry), differences(settings[0], paper)
        cells.append(Result(entry, [run for run in runs if run.finished], *story))
    return cells


def place_of(out: Path, entry: Entry, settings: RunSettings) -> Path:
    """Return the folder of a run: one of the same settings, whatever a table calls it, or a new one.

    The number at the end is the seed, the letters before it a hash of all other settings.
    """
    end = f"{hashlib.sha256(all_but_seed(settings).encode()).hexdigest()[:8]}-{settings.config.seed}"
    place = out / slug(f"{entry.dataset.name}-{entry.labels}")
    return next(iter(sorted(place.glob(f"*-{end}"))), place / f"{slug(f'{entry.network}-{entry.row}')}-{end}")


def _check_beforehand(entries: Sequence[Entry], options: Options, results: str | os.PathLike[str] | None) -> None:
    """Refuse what would end the work hours later: data that are not there, a results file that cannot be one."""
    if len(set(options.seeds)) != len(options.seeds):
        raise InvalidInputError(f"The seeds must differ. Got {', '.join(map(str, options.seeds))}.")
    if not entries:
        raise InvalidInputError("No row has both these names and these numbers of labels; leave one of them out.")
    if options.minutes is not None:
        check_minutes(options.minutes)
    if results is not None:
        read_rows(results)
    for entry in {entry.dataset.function: entry for entry in entries}.values():
        data = entry.base(options.seeds[0], options.recipe).data
        assert data is not None
        data.load()


def _record(results: str | os.PathLike[str], experiment: Experiment, entry: Entry, run: RunFolder, **what: Any) -> None:
    found = {
        "metric": f"test {experiment.metric} %",
        "value": percent(run, experiment.metric),
        "paper": None if entry.paper is None else entry.paper[0],
    }
    record_run(
        results,
        run,
        experiment=experiment.name,
        row=entry.row,
        dataset=entry.dataset.name,
        num_labels=entry.labels,
        **(found | what),
    )


def _record_first_selections(results: str | os.PathLike[str], experiment: Experiment, cells: Sequence[Result]) -> None:
    """Append what the first selections of networks are, where a run labels the same network in one plain pass too."""
    for entry, pair in _pairs(cells):
        add = functools.partial(_record, results, experiment, entry, pair.stochastic, paper=None)
        selection = first_selection(pair.stochastic)
        for stage in STAGES:
            positives = getattr(selection, stage)
            add(metric=f"first selection, positives {stage} balancing", value=positives.number)
            if positives.accuracy is not None:
                add(metric=f"first selection, accuracy % {stage} balancing", value=100 * positives.accuracy)
        for balanced, other in itertools.product((False, True), METHODS[:2]):
            compared = compare_at_equal_counts([pair], other, balanced=balanced)
            if compared is None:
                continue
            stage = "after" if balanced else "before"
            what = f"first selection {stage} balancing, points above {other} at equal counts"
            for name, value in compared.difference._asdict().items():
                add(metric=what if name == "mean" else f"{what}, 95 % {name}", value=100 * value)


def _pairs(cells: Sequence[Result]) -> Iterator[tuple[Entry, NetworkPair]]:
    for cell in cells:
        where = cell.entry.dataset, cell.entry.labels
        others = [run for one in cells if (one.entry.dataset, one.entry.labels) == where for run in one.runs]
        for pair in find_pairs(cell.runs, others):
            yield cell.entry, pair


def _rounds(place: Path, settings: RunSettings, shared: Path, progress: Progress) -> Iterator[RoundRecord]:
    if (place / RUN).exists():
        return resume(place, shared=shared, progress=progress)
    return start(place, settings, shared=shared, progress=progress)


def differences(ours: Settings, paper: Settings) -> tuple[str, ...]:
    """Return every setting that differs, by its last name: "learning_rate 0.8 (paper 0.03)".

    Example:
        >>> from surelabel.recipes.cifar import fast_recipe, paper_recipe
        >>> differences(fast_recipe(paper_recipe()), paper_recipe())[0]
        'max_rounds 8 (paper 20)'
    """
    first, second = dict(_flat(ours.model_dump(mode="json"))), dict(_flat(paper.model_dump(mode="json")))
    return tuple(
        f"{key.rpartition('.')[2]} {first.get(key)} (paper {second.get(key)})"
        for key in {**first, **second}
        if first.get(key) != second.get(key)
    )


def _flat(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def slug(text: str) -> str:
    """Return a name that is safe for a folder.

    >>> slug("cnn13-UPS, no UA (Cal.)-0")
    'cnn13-ups-no-ua-cal-0'
    """
    return re.sub(r"[^a-z0-9._]+", "-", text.lower()).replace(".-", "-").strip("-.")


class _Counter:
    """Counts rounds over all runs; steps inside a round are part of the text."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress, self.total, self.before, self.done = progress, total, 0, 0
        self.what, self.rounds = "", 0

    def begin(self, what: str, settings: RunSettings) -> None:
        self.what, self.rounds, self.done = what, settings.config.max_rounds + 1, 0
        self._tell("")

    def add(self, record: RoundRecord) -> None:
        self.done = record.round + 1
        self._tell("")

    def end(self) -> None:
        self.before += self.rounds

    def __call__(self, what: str, done: int, total: int) -> None:
        self._tell(f", {what} {done}/{total}")

    def _tell(self, more: str) -> None:
        if self.progress is not None:
            self.progress(f"{self.what}, round {self.done}{more}", self.before + self.done, self.total)


def cell_texts(experiment: Experiment, cell: Result) -> list[str]:
    """Return a cell of the table as text: row, data, labels, the paper's figure, ours, the number of seeds."""
    entry, ours = cell.entry, cell.value(experiment.metric)
    paper = "" if entry.paper is None else _figure(*entry.paper)
    figure = "not run" if ours is None else _figure(ours.mean, ours.std)
    return [entry.row, entry.dataset.name, str(entry.labels), paper, figure, str(len(cell.runs) or "")]


def _figure(mean: float, std: float | None) -> str:
    return f"{mean:.2f}" if std is None else f"{mean:.2f} ± {std:.2f}"


def write_outcome(
    experiment: Experiment, cells: Sequence[Result], out: str | os.PathLike[str], *, call_functions: bool = False
) -> list[Path]:
    """Write the table, the settings that differ from the paper's and the figures that the runs allow; return the files.

    Figures are drawn for each data set and number of labels apart, `out/table5-cifar10-1000/figure-1-a.svg`; with
    `call_functions`, also pictures of data that are not ours.
    """
    lines = [
        f"# {experiment.title}",
        "",
        f"Test {experiment.metric} in %, the last network's; mean ± standard deviation over the seeds.",
        "",
        "| row | data | labels | paper | ours | seeds |",
        "|---|---|---|---|---|---|",
        *("| " + " | ".join(cell_texts(experiment, cell)) + " |" for cell in cells),
        "",
    ]
    for cell in cells:
        if cell.runs:
            minutes = statistic([run.records()[-1].minutes for run in cell.runs])
            what = f"**{cell.entry.row}, {cell.entry.dataset.name}, {cell.entry.labels} labels** ({minutes:.1f} min)"
            planned = f" {cell.cut}." if cell.cut else ""
            lines += [f"{what}:{planned} {'; '.join(cell.differences) or 'as in the paper'}.", ""]
    path = Path(out) / f"{experiment.name}.md"
    write_file(path, "\n".join(lines).encode())
    written = [path]
    for dataset, labels in dict.fromkeys((cell.entry.dataset, cell.entry.labels) for cell in cells if cell.runs):
        runs = [
            run for cell in cells if (cell.entry.dataset, cell.entry.labels) == (dataset, labels) for run in cell.runs
        ]
        folder = Path(out) / slug(f"{experiment.name}-{dataset.name}-{labels}")
        write_figures(runs, folder, call_functions=call_functions)
        written.append(folder / "figures.md")
    return written
