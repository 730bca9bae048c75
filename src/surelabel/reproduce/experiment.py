"""The paper's experiments, run again: every row of a table with every seed, next to the paper's figure.

A run is a folder and continues from its last finished round. Rounds that rows share (with the same network and
training, they have the same round 0) are trained once. The plan for a budget of minutes is made once and kept, so that
a resumed run, or another seed, follows the same plan.
"""

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from surelabel.base.system import Progress
from surelabel.data.run_data import RunData
from surelabel.engine.parallel import processes
from surelabel.errors import ChangedFileError, DataError, InvalidInputError, UntrustedCodeError
from surelabel.learners.preflight import try_network
from surelabel.records import RoundRecord
from surelabel.reproduce.entries import Entry, Experiment, RecipeName, check_arguments, labels_text, metric_text
from surelabel.reproduce.first_selection import NetworkPair, find_pairs, label_figures, selection_figures
from surelabel.reproduce.outcome import PLANS, Result, code_of, collect, percent, place_of
from surelabel.reproduce.plans import Options, Plans, check_minutes
from surelabel.reproduce.results import Figure, read_rows, record_runs
from surelabel.runs import RunFolder
from surelabel.runs.checks import check_uncertainties
from surelabel.runs.files import make_folder
from surelabel.runs.layout import RUN
from surelabel.runs.session import resume, start
from surelabel.settings import RunSettings

WHOLE_MINUTES = "minutes, with everything before and after training"
"""The metric of the rows that say how long a run with a budget took, from the end of the run before it to its own."""

SHARED = ".shared"
"""The folder, next to the runs, of the networks that rows share. It may be removed if no run will be resumed."""

_logger = logging.getLogger("surelabel")


def chosen(experiment: Experiment, options: Options) -> list[Entry]:
    """Return the entries to run; refuse names and numbers that the experiment does not have.

    Example:
        >>> from surelabel.reproduce.paper import experiment
        >>> [entry.row for entry in chosen(experiment("table5"), Options(rows=["UPS"], labels=[4000]))]
        ['UPS']
    """
    runnable = [entry for entry in experiment.entries if entry.variant is not None and _is_of(entry, options.recipe)]
    if not runnable:
        raise InvalidInputError(f"{experiment.name} has no rows by the recipe {options.recipe!r}; 'fast' runs all.")
    kept = runnable
    choices: tuple[tuple[str, Sequence[str], Callable[[Entry], str]], ...] = (
        ("rows", options.rows, lambda entry: entry.row),
        ("data", options.datasets, lambda entry: entry.dataset.name),
        # As text: a third is listed as 33.3333 %.
        ("labels", [labels_text(labels) for labels in options.labels], lambda entry: labels_text(entry.labels)),
    )
    for name, asked, of in choices:
        there = dict.fromkeys(of(entry) for entry in runnable)
        unknown = [value for value in asked if value not in there]
        if unknown:
            listed = "; ".join(there)
            raise InvalidInputError(f"{experiment.name} has no {name} {', '.join(unknown)} to run; it has {listed}.")
        kept = [entry for entry in kept if not asked or of(entry) in asked]
    return kept


def _is_of(entry: Entry, recipe: RecipeName) -> bool:
    """Whether a recipe includes a row: the fast one also includes those of the best recipe."""
    return recipe == "fast" or entry.recipe == (None if recipe == "paper" else recipe)


def reproduce(
    experiment: Experiment,
    out: str | os.PathLike[str],
    options: Options,
    *,
    progress: Progress | None = None,
    results: str | os.PathLike[str] | None = None,
) -> list[Result]:
    """Run or continue the chosen rows of an experiment; return all of its cells.

    Args:
        experiment: a table or figure of the paper.
        out: the folder of the runs; several experiments may share it, and then share equal runs and rounds.
        options: which rows, seeds and recipe.
        progress: called with the current work, rounds done, rounds in all.
        results: append a row for each finished run to this CSV file, unless it is there already.
    """
    folder, started = Path(out), time.monotonic()
    entries = check_request(experiment, options, results)
    plans = Plans(folder / PLANS, options)
    _check_data(experiment, [entry for entry in entries if not _is_done(folder, entry, plans)], options)
    make_folder(folder)
    name, before, done = "", 0, 0
    expected = [_num_rounds(entry, plans) for entry in entries]
    total = sum(expected) * len(options.seeds)

    def tell(what: str = "", step: int = 0, steps: int = 0) -> None:
        """Report progress by rounds of all runs; steps within a round are part of the text."""
        if progress is not None:
            more = f", {what} {step}/{steps}" if what else ""
            progress(f"{name}, round {done}{more}", before + done, total)

    for entry, number in zip(entries, expected, strict=True):
        # Each row is planned when its turn has come: a command that is cut short has finished rows, not only plans.
        if progress is not None and not plans.knows(entry):
            progress(f"{entry.row}, {entry.dataset.name}: measuring the speed", before, total)
        planned = [plans.settings(entry, seed) for seed in options.seeds]
        total += (planned[0].config.max_rounds + 1 - number) * len(planned)
        for settings in planned:
            name = f"{entry.row}, {entry.dataset.name} {labels_text(entry.labels)}, seed {settings.config.seed}"
            done, place = 0, place_of(folder, entry, settings)
            began = (place / RUN).exists()
            tell()
            for record in _rounds(place, settings, folder / SHARED, tell):
                done = record.round + 1
                tell()
            before += settings.config.max_rounds + 1
            run = RunFolder.open(place).asked_for(settings.pinned()).called(entry.row)
            if code_of(run.settings) != code_of(settings.pinned()):
                _logger.warning("The run in '%s' is of your files as they were; remove it to run it anew.", place)
            took, started = (time.monotonic() - started) / 60, time.monotonic()
            if results is not None and processes().rank == 0:
                scores = _scores(experiment, entry, run)
                # A run that began in another command, or that took a round from another run, took longer than this.
                if options.minutes is not None and not began and took >= run.records()[-1].minutes:
                    scores.append(Figure(WHOLE_MINUTES, took))
                _record(results, experiment, entry, run, scores, options.minutes)
    cells = collect(experiment, folder, options)
    if results is not None and processes().rank == 0:
        _record_first_selections(results, experiment, [cell for cell in cells if cell.asked_for], options.minutes)
    return cells


def _num_rounds(entry: Entry, plans: Plans) -> int:
    """Return the rounds of a run, round 0 included; the whole recipe's if they are not planned yet."""
    settings = plans.settings(entry, 0) if plans.knows(entry) else plans.whole(entry, plans.options.recipe)
    return settings.config.max_rounds + 1


def _scores(experiment: Experiment, entry: Entry, run: RunFolder) -> list[Figure]:
    paper = None if entry.paper is None else entry.paper[0]
    return [Figure(f"{metric_text(metric)} %", percent(run, metric), paper) for metric in experiment.metrics_of(entry)]


def check_request(
    experiment: Experiment, options: Options, results: str | os.PathLike[str] | None = None
) -> list[Entry]:
    """Return the chosen entries; refuse, before data are loaded, what cannot be run as asked.

    Args:
        experiment: as for `reproduce`, and so are `options` and `results`.
        options: rows, data, labels, seeds and minutes; every chosen data set must take its arguments, and every chosen
            network its weights.
        results: a results file, if it exists.

    Example:
        >>> from surelabel.reproduce.paper import experiment
        >>> [entry.labels for entry in check_request(experiment("table5"), Options(rows=["UPS"]))]
        [1000, 4000]
    """
    entries = chosen(experiment, options)
    if len(set(options.seeds)) != len(options.seeds):
        raise InvalidInputError(f"The seeds must differ. Got {', '.join(map(str, options.seeds))}.")
    if not entries:
        raise InvalidInputError("No row has all of these names, data and numbers of labels; leave one of them out.")
    if options.minutes is not None:
        check_minutes(options.minutes)
    elif experiment.equal_minutes:
        remedy = "give the minutes of each run, such as --budget 4"
        raise InvalidInputError(f"The rows of {experiment.name} are compared at equal minutes; {remedy}.")
    own = dict.fromkeys(entry.row for entry in entries if entry.sets_length())
    if own and (options.minutes is not None or options.rounds is not None):
        raise InvalidInputError(f"Leave out 'rounds' and 'budget': these rows set their own length: {'; '.join(own)}.")
    if options.arguments:
        check_arguments(entries, options.arguments)
    if results is not None:
        read_rows(results)
    if _names_network(options):
        plans = Plans(None, options)
        for entry in entries:
            settings = plans.whole(entry, options.recipe)
            settings.network.build(settings.config.task)  # refuses parameters that the network does not have
            check_uncertainties(settings)
    return entries


def _names_network(options: Options) -> bool:
    """Whether the user has named files that the trained model depends on."""
    return options.pretrained is not None or options.uncertainty is not None


def _is_done(folder: Path, entry: Entry, plans: Plans) -> bool:
    """Whether the runs of all seeds are finished, so that nothing has to be loaded."""
    if not plans.knows(entry):
        return False
    places = [place_of(folder, entry, plans.settings(entry, seed)) for seed in plans.options.seeds]
    return all((place / RUN).exists() and RunFolder.open(place).finished for place in places)


def _check_data(experiment: Experiment, entries: Sequence[Entry], options: Options) -> None:
    """Refuse early what would fail hours later: missing data, a score that they do not have, weights that do not fit.

    Data and networks are checked once each, whatever the number of labels.
    """
    plans = Plans(None, options)
    loaded: dict[tuple[str, int], RunData] = {}
    tried = set()
    for entry in entries:
        settings = plans.whole(entry, options.recipe, options.seeds[0])
        key = entry.dataset.function, entry.num_validation
        if key not in loaded:
            assert settings.data is not None
            try:
                loaded[key] = settings.data.load()
            except DataError as error:
                others = sorted({other.dataset.name for other in entries} - {entry.dataset.name})
                if others:
                    error.add_note(f"to run the other rows alone: {' '.join(f'--data {name}' for name in others)}")
                raise
        _check_metric(experiment, entry, loaded[key])
        network = *key, entry.network, settings.network.uncertainty
        if _names_network(options) and network not in tried:
            try_network(settings.network, loaded[key])
            tried.add(network)


def _check_metric(experiment: Experiment, entry: Entry, data: RunData) -> None:
    """Refuse a metric that the data cannot have, which the table would show only after training."""
    metric = experiment.metrics_of(entry)[0]
    problem = f"The experiment {experiment.name!r} has metric={metric!r}, and the data set {entry.dataset.name!r} has"
    if (metric == "mAP") != (data.task == "multi"):
        remedy = "'mAP'" if data.task == "multi" else "'error' or 'accuracy'"
        raise InvalidInputError(f"{problem} task={data.task!r}; use metric={remedy}.")
    part = "validation" if metric == "validation error" else "test"
    if getattr(data, part) is None:
        more = ", and set num_validation in its entries" if part == "validation" else ""
        remedy = f"let {entry.dataset.function!r} return some as RunData({part}=...){more}"
        raise InvalidInputError(f"{problem} no {part} samples; {remedy}.")


def _record(
    results: str | os.PathLike[str],
    experiment: Experiment,
    entry: Entry,
    run: RunFolder,
    figures: Iterable[Figure],
    budget: float | None,
) -> None:
    split, labels = run.split(), entry.labels
    if split is not None:
        number = len(split["labeled"])  # fewer than asked for where some were skipped
    else:  # a folder from before split.json
        number = labels if isinstance(labels, int) else len(run.data().labeled[1])
    text = labels_text(min(labels, number) if isinstance(labels, int) else labels)
    about = {"experiment": experiment.name, "dataset": entry.dataset.name, "labels": text}
    record_runs(results, [(run, figures)], num_labels=number, budget=budget, **about)


def _record_first_selections(
    results: str | os.PathLike[str], experiment: Experiment, cells: Sequence[Result], budget: float | None
) -> None:
    """Append the first selections of networks that another run also labels in one plain pass.

    Rows with the same selection from the same network have the same first selection, which is recorded for only one of
    them: the one already recorded, if any, else the first.
    """
    alike: dict[tuple[object, ...], list[tuple[Entry, NetworkPair]]] = {}
    for cell in cells:
        others = [run for one in cells if one.entry.where == cell.entry.where for run in one.runs]
        for pair in find_pairs(cell.runs, others):
            config, network = pair.stochastic.settings.config, pair.stochastic.settings.network
            key = pair.deterministic.path, network.uncertainty, config.balance, *config.thresholds.values()
            alike.setdefault(key, []).append((cell.entry, pair))
    recorded = {
        (row["row"], f"{row['dataset']}-{row['labels']}", row["seed"])
        for row in read_rows(results)
        if row["experiment"] == experiment.name and row["metric"].startswith("first selection")
    }
    for found in alike.values():
        known = (
            (entry, pair)
            for entry, pair in found
            if (entry.row, entry.where, str(pair.stochastic.settings.config.seed)) in recorded
        )
        entry, pair = next(known, found[0])
        figures = [*selection_figures(pair.stochastic), *label_figures(pair)]
        _record(results, experiment, entry, pair.stochastic, figures, budget)


def _rounds(place: Path, settings: RunSettings, shared: Path, progress: Progress) -> Iterator[RoundRecord]:
    if processes().by_first((place / RUN).exists):
        run = RunFolder.open(place).asked_for(settings.pinned())
        try:
            return resume(run, shared=shared, progress=progress)
        except (ChangedFileError, UntrustedCodeError) as error:
            error.add_note(f"to begin this run again, remove '{place}'")
            raise
    return start(place, settings, shared=shared, progress=progress)
