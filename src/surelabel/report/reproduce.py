"""The paper's experiments, run again: every row of a table with every seed, beside the figure that the paper reports.

A run is a folder and goes on from its last finished round. Rounds that rows share (all begin with the supervised
network) are trained once. What the minutes allow is planned once and kept, so that a run that is resumed, or another
seed, follows the same plan.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from surelabel.config import Settings
from surelabel.data.reference import FunctionData
from surelabel.errors import InvalidInputError, RunError
from surelabel.learners.protocol import Progress
from surelabel.learners.settings import TorchLearnerSettings
from surelabel.recipes.budget import Cut, cut_to, measure
from surelabel.recipes.paper import Entry, Experiment, RecipeName
from surelabel.report.paper_figures import write_figures
from surelabel.report.record import record_run
from surelabel.report.tables import Statistic, statistic
from surelabel.runs import RunFolder, RunSettings, resume, start
from surelabel.runs.files import make_folder, read_json, write_file, write_json

SHARED = ".shared"
"""The folder, beside the runs, of the networks that rows share. It may be removed when nothing is to be resumed."""

PLANS = "plans.json"


class Options(NamedTuple):
    """How an experiment is run.

    Attributes:
        seeds: a run of each row for each; a seed also draws the split.
        recipe: "paper", or "fast".
        minutes: for each run; None: the whole recipe.
        device: None: the GPU if there is one.
        rows: names of the rows to be run; empty: all.
        labels: numbers of labels to be run; empty: all.
    """

    seeds: Sequence[int] = (0,)
    recipe: RecipeName = "fast"
    minutes: float | None = None
    device: str | None = None
    rows: Sequence[str] = ()
    labels: Sequence[int] = ()


class Result(NamedTuple):
    """A cell of the table: an entry and its runs, none where it was not run.

    Attributes:
        entry: what the paper has there.
        runs: one a seed.
        cut: what the minutes left of the recipe.
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
            listed = ", ".join(sorted(map(str, there)))
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
        out: the folder of the runs; another experiment may share it, and with it the rounds.
        options: which rows, seeds and recipe.
        progress: called with what is done now, rounds done, rounds in all.
        results: append a row for each finished run to this CSV file, unless it is there already.
    """
    folder, entries = Path(out), chosen(experiment, options)
    make_folder(folder)
    plans = Plans(folder / PLANS, options)
    planned = {(entry, seed): plans.settings(entry, seed) for entry in entries for seed in options.seeds}
    counter = _Counter(progress, sum(settings.config.max_rounds + 1 for settings in planned.values()))
    runs: dict[tuple[Entry, int], RunFolder] = {}
    for (entry, seed), settings in planned.items():
        place = folder / slug(f"{entry.dataset.name}-{entry.labels}") / slug(f"{entry.network}-{entry.row}-{seed}")
        counter.begin(f"{entry.row}, {entry.labels} labels, seed {seed}", settings)
        for record in _rounds(place, settings, folder / SHARED, counter):
            counter.add(record)
        runs[entry, seed] = RunFolder.open(place)
        counter.end()
        if results is not None:
            _record(results, experiment, entry, runs[entry, seed])
    return [
        Result(entry, [runs[entry, seed] for seed in options.seeds if (entry, seed) in runs], *_story(entry, plans))
        if entry in entries
        else Result(entry, [])
        for entry in experiment.entries
    ]


def _record(results: str | os.PathLike[str], experiment: Experiment, entry: Entry, run: RunFolder) -> None:
    record_run(
        results,
        run,
        experiment=experiment.name,
        row=entry.row,
        dataset=entry.dataset.name,
        num_labels=entry.labels,
        metric=f"test {experiment.metric} %",
        value=percent(run, experiment.metric),
        paper=None if entry.paper is None else entry.paper[0],
    )


def _story(entry: Entry, plans: "Plans") -> tuple[str, tuple[str, ...]]:
    seed = plans.options.seeds[0]
    return plans.cut_text(entry), differences(plans.settings(entry, seed), entry.of(entry.base(seed, "paper")))


class Plans:
    """The settings of every run, cut to the minutes; what was cut is kept in a file.

    Args:
        path: of the file.
        options: recipe, minutes and device.
    """

    def __init__(self, path: Path, options: Options) -> None:
        self.path, self.options = path, options
        self._kept: dict[str, Any] = read_json(path) if path.exists() else {}

    def settings(self, entry: Entry, seed: int) -> RunSettings:
        """Return the complete settings of a run."""
        base = self._base(entry, seed)
        cut = self._cut(entry)
        return entry.of(base if cut is None else cut.apply(base))

    def cut_text(self, entry: Entry) -> str:
        """Return what the minutes left of the recipe; "" without a limit."""
        cut = self._cut(entry)
        return "" if cut is None else cut.text

    def _base(self, entry: Entry, seed: int) -> RunSettings:
        base = entry.base(seed, self.options.recipe)
        assert isinstance(base.learner, TorchLearnerSettings)
        learner = base.learner.replace(device=self.options.device)
        if not _on_gpu(self.options.device):
            # Not every CPU can compute in bfloat16, and few are faster with it.
            learner = learner.replace(training=learner.training.replace(precision="float32"))
        return base.replace(learner=learner)

    def _cut(self, entry: Entry) -> Cut | None:
        if self.options.minutes is None:
            return None
        base = self._base(entry, 0)
        row = entry.of(base)
        assert isinstance(base.learner, TorchLearnerSettings)
        assert isinstance(row.learner, TorchLearnerSettings)
        # Rows that train the same networks get the same rounds, however they label: they share round 0.
        same = row.learner.fit_settings() == base.learner.fit_settings()
        timed = base if same else row.replace(config=base.config)
        key = _key(timed, self.options.minutes)
        if key not in self._kept:
            assert timed.data is not None
            data = timed.data.load()
            speed = measure(timed, data)
            cut = cut_to(timed, self.options.minutes, speed, len(data.unlabeled))
            self._kept[key] = {**cut._asdict(), **speed._asdict(), "minutes": self.options.minutes}
            write_json(self.path, self._kept)
        kept = self._kept[key]
        return Cut(kept["max_rounds"], kept["steps"], kept["text"])


def _on_gpu(device: str | None) -> bool:
    import torch

    return torch.cuda.is_available() if device is None else torch.device(device).type == "cuda"


def _key(settings: RunSettings, minutes: float) -> str:
    assert settings.learner is not None
    assert isinstance(settings.data, FunctionData)
    config = settings.config.max_rounds
    text = json.dumps(
        [settings.learner.model_dump(mode="json"), settings.data.function, config, minutes], sort_keys=True
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _rounds(place: Path, settings: RunSettings, shared: Path, progress: Progress) -> Iterator[Any]:
    if not (place / "run.json").exists():
        yield from start(place, settings, shared=shared, progress=progress)
        return
    run = RunFolder.open(place)
    wanted = settings.pinned()
    given = ("config", "learner", "data", "name")
    different = differences(
        run.settings.replace(config=run.settings.config.replace(num_classes=None)), wanted, "here", given
    )
    if different:
        raise RunError(
            f"The run in '{place}' has other settings: {'; '.join(different)}. Use another folder (--out), or ask for "
            "what it was begun with."
        )
    yield from resume(place, shared=shared, progress=progress)


def differences(ours: Settings, other: Settings, name: str = "paper", only: Sequence[str] = ()) -> tuple[str, ...]:
    """Return every setting that differs, by its last name: "learning_rate 0.8 (paper 0.03)".

    Example:
        >>> from surelabel.recipes.cifar import fast_recipe, paper_recipe
        >>> differences(fast_recipe(paper_recipe()), paper_recipe())[0]
        'max_rounds 8 (paper 20)'
    """
    first, second = dict(_flat(ours.model_dump(mode="json"))), dict(_flat(other.model_dump(mode="json")))
    return tuple(
        f"{key.rpartition('.')[2]} {first.get(key)} ({name} {second.get(key)})"
        for key in {**first, **second}
        if first.get(key) != second.get(key) and (not only or key.partition(".")[0] in only)
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

    def add(self, record: Any) -> None:
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
            lines += [f"{what}: {'; '.join(cell.differences) or 'as in the paper'}.", ""]
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
