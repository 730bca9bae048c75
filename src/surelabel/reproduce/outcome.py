"""The results of an experiment in a folder: the finished runs of every cell, in a table with the paper's numbers."""

import functools
import hashlib
import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from surelabel.base.references import first_name, portable_settings
from surelabel.base.settings import Settings
from surelabel.data.run_data import FunctionData
from surelabel.errors import InvalidInputError, RunError
from surelabel.report.classes import left_out
from surelabel.report.tables import Row, Statistic, TextTable, all_but_seed, statistic
from surelabel.reproduce.entries import ELEVEN, PLACES, RECIPES, Entry, Experiment, labels_text, metric_text, slug
from surelabel.reproduce.paper_figures import write_figures
from surelabel.reproduce.plans import Options, Plans, cut_text
from surelabel.runs import RunFolder
from surelabel.runs.files import write_file
from surelabel.runs.layout import RUN
from surelabel.settings import RunSettings

PLANS = "plans.json"

_logger = logging.getLogger("surelabel")

OTHER = "*"
OTHERS = f"{OTHER} of another recipe, length, device, folder of data or content of your files than is asked for now."
BOTH_MEANS = f"The paper does not say whether its figures are uninterpolated (mAP) or VOC2007's ({ELEVEN})."


class Result(NamedTuple):
    """A cell of the table: an entry and its runs, none if it was not run.

    Attributes:
        entry: what the paper has there.
        runs: one for each seed.
        cut: what was run instead of the recipe's rounds.
        differences: settings that are not the paper recipe's, "learning_rate 0.8 (paper 0.03)".
        asked_for: whether the runs have the recipe, length and machine of the options; if not, there are none that
            have.
    """

    entry: Entry
    runs: list[RunFolder]
    cut: str = ""
    differences: tuple[str, ...] = ()
    asked_for: bool = True

    def value(self, metric: str) -> Statistic | None:
        """Mean and standard deviation over the seeds, in percent; None without a run."""
        return statistic([percent(run, metric) for run in self.runs])


def percent(run: RunFolder, metric: str) -> float:
    """Return the error, the accuracy, or one of the mean average precisions of a run's last network in percent."""
    last = run.records()[-1]
    scores = {ELEVEN: last.test_score_11, "validation error": last.validation_score}
    score = scores.get(metric, last.test_score)
    assert score is not None
    return 100 * (1 - score) if metric.endswith("error") else 100 * score


def collect(experiment: Experiment, out: str | os.PathLike[str], options: Options) -> list[Result]:
    """Return all cells of an experiment with their finished runs in a folder, chosen or not, of any seed.

    If a cell has runs of several lengths, recipes or machines, those of the options are used, else the longest. A
    folder that cannot be read, or is not a run of an experiment, is left out with a warning.
    """
    plans = Plans(Path(out) / PLANS, options)
    finished = functools.cache(_finished)
    return [_result_of(entry, finished(Path(out) / slug(entry.where)), plans) for entry in experiment.entries]


def _finished(folder: Path) -> list[RunFolder]:
    """Return the finished runs of a data set and number of labels."""
    found = []
    for path in sorted(folder.glob(f"*-{'[0-9a-f]' * 8}-*/{RUN}")):
        try:
            run = RunFolder.open(path.parent)
            if run.finished:
                _comparable(run.settings)
                found.append(run)
        except (RunError, InvalidInputError) as error:  # other rows can still be shown and run
            _logger.warning("The run in '%s' is left out: %s", path.parent, error)
    return found


def _result_of(entry: Entry, finished: Sequence[RunFolder], plans: Plans) -> Result:
    if entry.variant is None or not finished:
        return Result(entry, [])
    kind = functools.partial(_kind, with_length=entry.sets_length())
    whole = {kind(settings.pinned()): settings for settings in (plans.whole(entry, recipe) for recipe in RECIPES)}
    groups: dict[tuple[str, ...], list[RunFolder]] = {}
    for run in finished:
        if kind(run.settings) in whole:
            groups.setdefault((run.path.name.split("-")[-2], *code_of(run.settings)), []).append(run)
    if not groups:
        return Result(entry, [])
    now = plans.settings(entry, 0) if plans.knows(entry) else None
    asked_for = None if now is None else (settings_hash(now), *code_of(now.pinned()))
    found = groups[asked_for] if asked_for in groups else max(groups.values(), key=lambda runs: _minutes(runs).mean)
    # Another table may have made them under another name.
    runs = [run.called(entry.row) for run in found]
    if asked_for in groups:
        runs = [run.asked_for(plans.settings(entry, run.settings.config.seed).pinned()) for run in runs]
    recipe = whole[kind(runs[0].settings)]
    paper = entry.of(entry.base(0, "paper"))
    different = differences(_comparable(runs[0].settings), _comparable(paper.pinned()), entry.defaults())
    return Result(entry, runs, cut_text(runs[0].settings, recipe), different, asked_for in groups)


def _minutes(runs: Sequence[RunFolder]) -> Statistic:
    minutes = statistic([run.records()[-1].minutes for run in runs])
    assert minutes is not None
    return minutes


def _comparable(settings: RunSettings) -> RunSettings:
    """Return the settings without what follows from the data, their place, the seed and the machine.

    Content hashes are taken from the settings: a run may name any file, and none is opened.
    """
    settings = RunSettings.model_validate_json(json.dumps(portable_settings(settings.to_json())))
    data = settings.data
    if not isinstance(data, FunctionData):
        raise InvalidInputError("it is no run of an experiment, whose data a function makes.")
    what = {name: value for name, value in data.arguments.items() if name not in PLACES}
    return RunSettings(
        config=settings.config.replace(seed=0, num_classes=None),
        learner=settings.network.replace(device=None, model_hash=None),
        data=data.replace(sha256=None, arguments={**what, "seed": 0}),
    )


def _kind(settings: RunSettings, with_length: bool) -> str:
    """Return as text what makes a run belong to a row, apart from precision, files' content and perhaps length."""
    settings = _comparable(settings).with_training(precision="float32")
    settings = settings.replace(learner=settings.network.replace(uncertainty_hash=None))
    if not with_length:
        config = settings.config.replace(max_rounds=min(1, settings.config.max_rounds))
        settings = settings.replace(config=config).with_training(steps=None)
    return json.dumps(settings.to_json(), sort_keys=True)


def place_of(out: Path, entry: Entry, settings: RunSettings) -> Path:
    """Return the folder of a run: an existing one with the same settings, under any name, or a new one.

    The number at the end is the seed, the letters before it a hash of all other settings.
    """
    end = f"{settings_hash(settings)}-{settings.config.seed}"
    place = out / slug(entry.where)
    name = slug(entry.row if entry.network is None else f"{entry.network}-{entry.row}")
    return next(iter(sorted(place.glob(f"*-{end}"))), place / f"{name}-{end}")


def code_of(settings: RunSettings) -> tuple[str, ...]:
    """Return the content hashes of the files with a run's data function, network and layers, if it names files."""
    data, learner = settings.data, settings.network
    function = data.sha256 if isinstance(data, FunctionData) else None
    return tuple(found for found in (function, learner.model_hash, *learner.layer_hashes) if found is not None)


def settings_hash(settings: RunSettings) -> str:
    """Return eight letters, a hash of all settings except the seed, the same as in earlier versions."""
    if isinstance(settings.data, FunctionData):
        # Not by replace, which would use the current names.
        first = settings.data.model_copy(update={"function": first_name(settings.data.function)})
        settings = settings.model_copy(update={"data": first})
    return hashlib.sha256(all_but_seed(settings).encode()).hexdigest()[:8]


def differences(run: Settings, recipe: Settings, defaults: Mapping[str, object] | None = None) -> tuple[str, ...]:
    """Return every setting that differs, by its last name: "learning_rate 0.8 (paper 0.03)"; no file's content hash.

    Args:
        run: those of a run.
        recipe: those of the paper's recipe.
        defaults: the values that settings leave out, by full name.

    Example:
        >>> from surelabel.reproduce.cifar import fast_recipe, paper_recipe
        >>> differences(fast_recipe(), paper_recipe())[0]
        'max_rounds 6 (paper 20)'
    """
    ours, papers = dict(_flat(run.model_dump(mode="json"))), dict(_flat(recipe.model_dump(mode="json")))
    lines = []
    for key in {**ours, **papers}:
        own, paper = (values.get(key, (defaults or {}).get(key)) for values in (ours, papers))
        if own != paper and not key.endswith("_hash"):
            if key == "learner.training.steps" and paper is None:
                paper = f"{papers['learner.training.epochs']} epochs"
            lines.append(f"{key.rpartition('.')[2]} {own} (paper {paper})")
    return tuple(lines)


def _flat(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def outcome_table(experiment: Experiment, cells: Sequence[Result]) -> TextTable:
    """Return the table: row, data, labels, the paper's number, ours by each metric, the number of seeds.

    Columns of metrics that an entry does not have are empty.

    Example:
        >>> from surelabel.reproduce.paper import experiment
        >>> table4 = experiment("table4")
        >>> table = outcome_table(table4, [Result(entry, []) for entry in table4.entries])
        >>> table.header
        ['row', 'data', 'labels', 'paper', 'ours: mAP', 'ours: mAP, 11 points', 'seeds']
        >>> table.lines[-1]
        ['Supervised, all labels', 'voc2007', '5011', '52.62', 'not run', 'not run', '']
    """
    one = len(experiment.metrics) == 1
    ours = ["ours" if one else f"ours: {metric}" for metric in experiment.metrics]
    lines = []
    for cell in cells:
        entry, mark = cell.entry, "" if cell.asked_for else OTHER
        paper = "" if entry.paper is None else f"{Statistic(*entry.paper, number=1):.2f}"
        values = {metric: cell.value(metric) for metric in experiment.metrics_of(entry)}
        texts = {metric: "not run" if value is None else f"{value:.2f}{mark}" for metric, value in values.items()}
        figures = [texts.get(metric, "") for metric in experiment.metrics]
        about = [entry.row, entry.dataset.name, labels_text(entry.labels), paper]
        lines.append([*about, *figures, str(len(cell.runs) or "")])
    return TextTable(["row", "data", "labels", "paper", *ours, "seeds"], lines)


def scores_text(experiment: Experiment) -> str:
    """Return a description of the table's figures.

    Example:
        >>> from surelabel.reproduce.paper import experiment
        >>> scores_text(experiment("table4"))
        'test mAP in %'
    """
    return f"{', '.join(metric_text(metric) for metric in experiment.metrics if metric != ELEVEN)} in %"


def notes(experiment: Experiment, cells: Sequence[Result]) -> list[str]:
    """Return notes for readers of the table: figures that are not as asked for, and what is left out."""
    lines = [BOTH_MEANS] if ELEVEN in experiment.metrics else []
    if any(cell.runs and not cell.asked_for for cell in cells):
        lines.append(OTHERS)
    for dataset in dict.fromkeys(cell.entry.dataset.name for cell in cells if cell.runs):
        runs = [run for cell in cells if cell.entry.dataset.name == dataset for run in cell.runs]
        if names := left_out(Row(dataset, tuple(runs))):
            lines.append(f"{dataset}: left out of the means, without a positive in the test set: {', '.join(names)}.")
    return lines


def write_outcome(experiment: Experiment, cells: Sequence[Result], out: str | os.PathLike[str]) -> list[Path]:
    """Write the table, the settings that differ from the paper's and all possible figures; return the files.

    Figures are drawn separately for each data set and number of labels, `out/table5-cifar10-1000/figure-1-a.svg`, and
    with several data sets also figure 1 a for all of them together.
    """
    what = scores_text(experiment)
    parts = [
        f"# {experiment.title}",
        f"{what[0].upper()}{what[1:]}, the last network's; mean ± standard deviation over the seeds.",
        outcome_table(experiment, cells).markdown(),
        *notes(experiment, cells),
        *(_about(cell) for cell in cells if cell.runs),
    ]
    path = Path(out) / f"{slug(experiment.name)}.md"
    write_file(path, ("\n\n".join(parts) + "\n").encode())
    return [path, *_write_all_figures(experiment, cells, Path(out))]


def _about(cell: Result) -> str:
    """Describe a cell's runs: how long they took, and how they differ from the paper's."""
    what = f"{cell.entry.row}, {cell.entry.dataset.name}, {labels_text(cell.entry.labels)} labeled"
    planned = f" {cell.cut}." if cell.cut else ""
    different = "; ".join(cell.differences) or "as in the paper"
    return f"**{what}** ({_minutes(cell.runs):.1f} min):{planned} {different}."


def _write_all_figures(experiment: Experiment, cells: Sequence[Result], out: Path) -> Iterator[Path]:
    groups: dict[str, list[RunFolder]] = {}
    for cell in cells:
        runs = [run for run in cell.runs if run.has_pool]
        if runs:
            groups.setdefault(cell.entry.where, []).extend(runs)
    names = {cell.entry.dataset.name for cell in cells if cell.runs}
    if len(names) > 1:
        groups[" and ".join(sorted(names))] = [run for runs in groups.values() for run in runs]
    for name, runs in groups.items():
        yield write_figures(runs, out / slug(f"{experiment.name}-{name}"))[-1]
