"""The paper's figures 1 to 4 from run folders, each panel as a separate vector graphic.

A panel that cannot be drawn gives the reason instead.
"""

import itertools
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from surelabel.data.run_data import FunctionData
from surelabel.errors import InvalidInputError
from surelabel.report import drawing, figures, tables
from surelabel.report.figures import NOT_DRAWN, ReportFigure
from surelabel.report.pictures import LIMIT, pictures_figure
from surelabel.report.tables import Row, Statistic, TextTable, group_runs, statistic
from surelabel.report.thresholds import Pair, select_from, validation_labels
from surelabel.reproduce import first_selection as first
from surelabel.reproduce.entries import labels_text
from surelabel.reproduce.results import Figure
from surelabel.runs import RunFolder
from surelabel.runs.files import make_folder, write_file

Threshold = Literal["kappa_p", "tau_p"]
SYMBOLS: dict[Threshold, str] = {"kappa_p": "κ_p", "tau_p": "τ_p"}
COMPARED: tuple[tables.Variant, ...] = ("no selection", "no UA", "UPS")
"""The variants that figure 1 (b) and (c) compare: Pseudo-labeling, Confidence-based, UPS."""
INDEX = "figures.md"
MOST_CLASSES = 20
"""With more classes than this, they are not listed individually."""


def figure_1_a(groups: Mapping[str, Sequence[RunFolder]]) -> ReportFigure:
    """Return figure 1 a with a curve for each data set: the ECE of the first network's labels with u <= t.

    Args:
        groups: the runs of each data set by its name; those of UPS are used, else the last ones with uncertainties. In
            multi-label runs every entry is a label with confidence max(p, 1 - p).
    """
    lines, problems = {}, {}
    for name, runs in groups.items():
        row = close_row(group_runs(runs))
        if problem := figures.not_judged(row, validation=False):
            problems[name] = problem
        else:
            labels = tables.judged_labels(row, 0)
            grid = figures.uncertainty_grid(labels)
            lines[name or row.name] = grid, figures.ece_by_uncertainty(labels, grid)
    if not lines:
        return ReportFigure("Figure 1 a", note=" ".join(dict.fromkeys(problems.values())))
    note = f"Left out, without true labels or uncertainties: {', '.join(problems)}." if problems else ""
    panel = drawing.curves(lines, "largest uncertainty t", "ECE of the labels with u ≤ t")
    caption = "The expected calibration error of the first network's labels whose uncertainty is at most t."
    if any(_is_multi(runs[0]) for runs in groups.values()):
        caption += " In multi-label data, each class of each sample is a label, and its confidence max(p, 1 − p)."
    return ReportFigure("Figure 1 a", caption, [panel], note=note)


def figure_1_by_round(rows: Sequence[Row]) -> dict[str, ReportFigure]:
    """Return figure 1 b, the accuracy of the selected positives by round, and c, their number.

    Args:
        rows: the first one of each variant is used, and `close_row` for UPS; the variant is judged by the settings.
    """
    found = {tables.variant_of(row.runs[0]): row for row in reversed(rows)}
    if "UPS" in found:
        found["UPS"] = close_row(rows)
    compared = [found[variant] for variant in COMPARED if variant in found]
    missing = [variant for variant in COMPARED if variant not in found]
    note = f"There are no runs of: {', '.join(missing)}." if missing else ""
    return {
        "b": _by_round("Figure 1 b", compared, "positive_accuracy", "share of right labels among the selected", note),
        "c": _by_round("Figure 1 c", compared, "num_positive", "selected positive labels", note),
    }


def _by_round(title: str, rows: Sequence[Row], name: str, label: str, note: str) -> ReportFigure:
    """One line per row over the rounds that learn from pseudo-labels."""
    lines = {row.name: tables.by_round(row, name)[1:] for row in rows}
    if not any(lines.values()):
        return ReportFigure(title, note=figures.NO_ROUND if rows else f"Not drawn. {note}")
    if not any(value is not None for line in lines.values() for value in line):
        return ReportFigure(title, note=figures.NONE_JUDGED if any(row.has_truth for row in rows) else figures.NO_TRUTH)
    caption = f"The {label}, by round; bands are one standard deviation over the seeds."
    return ReportFigure(title, caption, [drawing.lines_by_round(lines, label, 1)], note=note)


def figure_2(runs: Sequence[RunFolder], threshold: Threshold = "kappa_p") -> ReportFigure:
    """Return figure 2: the test error over kappa_p, on a logarithmic axis; or over tau_p."""
    symbol, logarithmic = SYMBOLS[threshold], threshold == "kappa_p"
    title, sweep = f"Figure 2, {symbol}", threshold_sweep(runs, threshold)
    # A logarithmic axis cannot show 0, and no axis can show infinity.
    found = {value: sweep[value] for value in sweep if math.isfinite(value) and (value > 0 or not logarithmic)}
    if len(found) < 2:
        needed = f"finished runs with a test score and at least two values of {threshold}, else the same"
        return ReportFigure(title, note=f"{NOT_DRAWN}this needs {needed}. Found {len(found)}.")
    score = "100 − test mAP (%)" if _is_multi(runs[0]) else "test error (%)"
    panel = drawing.points([*found], [*found.values()], symbol, score, logarithmic=logarithmic)
    seeds = ", ".join(f"{value:g}: {error.number}" for value, error in found.items())
    caption = f"A flat stretch means that the method does not hang on one value of {symbol}; bars are one standard "
    return ReportFigure(title, caption + f"deviation over the seeds (seeds of each value: {seeds}).", [panel])


def threshold_sweep(runs: Sequence[RunFolder], threshold: Threshold) -> dict[float, Statistic]:
    """Return the test error (%) for each value of a threshold, from finished runs that else differ only in the seed.

    If there are several such groups of runs, the one with the most values is used.
    """
    groups: dict[str, dict[float, list[float | None]]] = {}
    for run in runs:
        score = run.records()[-1].test_score if run.num_rounds else None
        if score is not None and run.finished:
            values = groups.setdefault(tables.all_but_seed(run.settings, threshold), {})
            values.setdefault(getattr(run.settings.config, threshold), []).append(100 * (1 - score))
    largest = max(groups.values(), key=len, default={})
    found = {value: statistic(errors) for value, errors in sorted(largest.items())}
    return {value: error for value, error in found.items() if error is not None}


def figure_3(row: Row) -> dict[str, ReportFigure]:
    """Return figure 3 by its letters: right and wrong labels, a and b on the validation set, c and d on the pool."""
    panels, drawn = figures.distribution_panels(row), {}
    without = {"validation set": f"{NOT_DRAWN}the runs have no validation set.", "pool": figures.NO_TRUTH}
    places = itertools.product(without, ("confidence", "uncertainty"))
    for letter, (where, what) in zip("abcd", places, strict=True):
        note = validation_choice(row) if letter == "a" and "a" in panels else ""
        caption = f"Right and wrong labels of the first network on the {where}, over their {what}."
        shown = [panels[letter]] if letter in panels else []
        if not shown:
            judged = "a" in panels if where == "validation set" else "c" in panels
            caption, note = "", figures.NO_UNCERTAINTY if judged else without[where]
        drawn[letter] = ReportFigure(f"Figure 3 {letter}", caption, shown, note=note)
    return drawn


def validation_choice(row: Row) -> str:
    """Return how many validation samples the runs' thresholds select, and how many are right; "" for multi-label runs.

    On CIFAR-10 the paper's choice follows; the paper does not say how many labels its network had.
    """
    config, choice = row.runs[0].settings.config, first.PAPER["validation_choice"]
    if config.task == "multi":  # figure 3 has no thresholds for them either
        return ""
    held_out = [validation_labels(run) for run in row.runs]
    found = [select_from(labels, Pair(config.tau_p, config.kappa_p)) for labels in held_out]
    number, accuracy = statistic([one.number for one in found]), tables.share_text([one.accuracy for one in found])
    of = sum(len(labels.label) for labels in held_out) / len(held_out)
    text = f"tau_p {config.tau_p:g}, kappa_p {config.kappa_p:g} select {number:.0f} of {of:.0f} of the validation set"
    if accuracy != "–":
        text += f", {accuracy} % right"
    if first.paper_experiment(row.runs[0])[0] == "cifar10":
        selected = f"{choice['selected']} of {choice['of']}, {100 * choice['accuracy']:.2f} %"
        by = f"tau_p {choice['tau_p']:g}, kappa_p {choice['kappa_p']:g}"
        text += f" (the paper, number of labels not said, by {by}: {selected})"
    return f"{text}."


def figure_4(row: Row, limit: int = LIMIT) -> ReportFigure:
    """Return figure 4 as one panel: pictures that are confident and wrong, and excluded by their uncertainty.

    Args:
        row: runs on pictures.
        limit: how many pictures.
    """
    figure = pictures_figure(row, limit)
    panels = [drawing.gallery(figure.pictures, figure.title)] if figure.pictures else []
    return replace(figure, title="Figure 4", panels=panels, pictures=())


def figures_table(columns: Mapping[str, Iterable[Figure]]) -> TextTable:
    """Return numbers side by side: a line for each metric, the paper's number first, then a column for each run.

    Example:
        >>> figures_table({"seed 0": [Figure("labels", 1234, 1000), Figure("right, %", 91.5)]}).lines
        [['labels', '1,000', '1,234'], ['right, %', '–', '91.50']]
    """
    names = ["paper", *columns]
    lines: dict[str, dict[str, str]] = {}
    for column, found in columns.items():
        for metric, *values in found:
            line = lines.setdefault(metric, dict.fromkeys(names, "–"))
            for name, value in zip((column, "paper"), values, strict=True):
                if value is not None:
                    line[name] = f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
    return TextTable(["", *names], [[metric, *line.values()] for metric, line in lines.items()])


def _seed(run: RunFolder) -> str:
    return f"seed {run.settings.config.seed}"


def classes_figure(row: Row) -> ReportFigure:
    """Return the first selection, per class unless there are many, next to the paper's if it has it."""
    figure = figures.first_selection_figure(row)
    by_class = len(row.runs[0].settings.classes) <= MOST_CLASSES
    table = figures_table({_seed(run): first.selection_figures(run, by_class) for run in row.runs})
    note = "" if by_class else "The classes are too many to list here. The file of results has a row for each."
    name, labels = first.paper_selection(row.runs[0])
    if name == "cifar10" and labels in first.PAPER["class_counts"]:
        number, ratio = sum(first.PAPER["class_counts"][labels]), first.PAPER["imbalance"][labels]
        note += f" The paper's table of classes has {number:,} positive labels, largest / smallest class {ratio:g}."
        if labels == 1000:
            accuracy = 100 * first.PAPER["accuracy"][name, labels]["UPS"][0.7]
            note += f" Its text has {first.PAPER['positives']:,}, {accuracy:.2f} % right."
    return replace(figure, tables=[*figure.tables, table], note=note.strip())


def first_labels_figure(row: Row, runs: Sequence[RunFolder]) -> ReportFigure:
    """Compare the first labels by confidence with those of UPS, over thresholds and at equal counts.

    Args:
        row: runs with uncertainties.
        runs: where to look for runs that label the same networks in one deterministic pass.
    """
    title, pairs = "First labels by confidence and by uncertainty", first.find_pairs(row.runs, runs)
    if problem := _not_single(row):
        return ReportFigure(title, note=problem)
    if not pairs:
        return ReportFigure(title, note=f"{NOT_DRAWN}no other run labels the same first network in one plain pass.")
    caption = (
        "The first network's labels by the confidence of one pass, by the mean of its stochastic passes (Cal.), and by "
        "UPS, before balancing. At equal counts of each class, points above 0 say that the uncertainty ranks labels "
        "better (95 % interval by a bootstrap over the pool's samples)."
    )
    table = figures_table({_seed(pair.stochastic): first.label_figures(pair) for pair in pairs})
    return ReportFigure(title, caption, tables=[table])


def pool_use_figure(row: Row) -> ReportFigure:
    """Return how much of the pool is used after ten rounds, or after the last one."""
    title = "Use of the pool"
    if problem := _not_single(row) or (figures.NO_ROUND if row.num_rounds < 2 else ""):
        return ReportFigure(title, note=problem)
    number = min(first.USE_ROUND, row.num_rounds - 1)
    caption = f"What the network of round {number} learned from (the paper's: {first.USE_ROUND})."
    return ReportFigure(title, caption, tables=[figures_table({_seed(run): first.pool_use(run) for run in row.runs})])


def _not_single(row: Row) -> str:
    if _is_multi(row.runs[0]):
        return f"{NOT_DRAWN}this is for single-label data."
    return "" if row.has_truth else figures.NO_TRUTH


def paper_figures(runs: Sequence[RunFolder]) -> dict[str, ReportFigure]:
    """Return every figure by the name of its file, "figure-1-a", with a panel or the reason why there is none.

    Two have tables instead of a panel: "first-labels" and "pool-use". Runs on several data sets, or numbers of labels,
    have only figure 1 a, with a curve for each.

    Args:
        runs: of one experiment; runs of one name are seeds of one row, and `close_row` is shown in detail.
    """
    groups = _by_data(runs)
    for group in groups.values():
        for row in group_runs(group):
            _check_one_experiment(row)
    if len(groups) > 1:
        return {"figure-1-a": figure_1_a(groups)}
    rows = group_runs(next(iter(groups.values()), []))
    ups = close_row(rows)
    return {
        "figure-1-a": figure_1_a(groups),
        **{f"figure-1-{letter}": figure for letter, figure in figure_1_by_round(rows).items()},
        "figure-2-kappa": figure_2(runs, "kappa_p"),
        "figure-2-tau": figure_2(runs, "tau_p"),
        **{f"figure-3-{letter}": figure for letter, figure in figure_3(ups).items()},
        "figure-4": figure_4(ups),
        "first-selection": classes_figure(ups),
        "first-labels": first_labels_figure(ups, runs),
        "pool-use": pool_use_figure(ups),
    }


def write_figures(
    runs: Sequence[RunFolder], folder: str | os.PathLike[str], formats: Sequence[str] = ("svg",)
) -> list[Path]:
    """Write every possible figure, and `figures.md` with captions, tables, and why the others are not drawn.

    Args:
        runs: as in `paper_figures`.
        folder: made if it does not exist; files of the same names are replaced.
        formats: "svg", "pdf" or both.

    Returns:
        The files, `figures.md` last.
    """
    if not formats or not set(formats) <= set(drawing.FORMATS):
        raise InvalidInputError(f"'formats' must be a list of 'svg' and 'pdf'; got {formats!r}.")
    folder, drawn = Path(folder), paper_figures(runs)
    make_folder(folder)
    written, lines, groups = [], ["# Figures"], list(_by_data(runs).values())
    if len(groups) == 1:
        name = close_row(group_runs(groups[0])).name
        lines.append(f"Figures 1 a, 3 and 4, and the tables, are of the row “{tables.in_markdown(name)}”.")
    for name, figure in drawn.items():
        files = [folder / f"{name}.{form}" for form in formats] if figure.panels else []
        for file in files:
            figure.panels[0].save(file)
        links = ", ".join(f"[{file.name}]({file.name})" for file in files)
        markdown = (table.markdown() for table in figure.tables)
        lines += [f"## {figure.title}", *(text for text in (links, *markdown, figure.caption, figure.note) if text)]
        written += files
    write_file(folder / INDEX, ("\n\n".join(lines) + "\n").encode())
    return [*written, folder / INDEX]


def _by_data(runs: Sequence[RunFolder]) -> dict[str, list[RunFolder]]:
    """Return the runs that have a pool by their data; those without a round are kept, to be refused later."""
    groups: dict[str, list[RunFolder]] = {}
    for run in runs:
        if run.has_pool or not run.num_rounds:
            groups.setdefault(_data_name(run), []).append(run)
    return groups


def close_row(rows: Sequence[Row]) -> Row:
    """Return the row for detailed figures: UPS, if possible with the paper's thresholds, else the last that has u."""
    ups = [row for row in rows if tables.variant_of(row.runs[0]) == "UPS"]
    if ups:
        return next((row for row in ups if first.has_paper_thresholds(row.runs[0])), ups[0])
    return max(rows, key=lambda row: (row.has_uncertainty, row.num_rounds > 1, rows.index(row)))


def _is_multi(run: RunFolder) -> bool:
    return run.settings.config.task == "multi"


def _data_name(run: RunFolder) -> str:
    """Return a run's data and number of labels, "cifar10, 1000 labeled"; "" if no function makes its data."""
    data = run.settings.data
    if not isinstance(data, FunctionData):
        return ""
    name, amount = data.function.rpartition(":")[2], data.arguments.get("labels", data.arguments.get("share"))
    return f"{name}, {labels_text(amount)} labeled" if isinstance(amount, int | float) else name


def _check_one_experiment(row: Row) -> None:
    """Refuse a row of runs that are not seeds of one experiment: their mean would have no meaning."""
    if len({tables.all_but_seed(run.settings) for run in row.runs}) > 1:
        folders = ", ".join(f"'{run.path}'" for run in row.runs)
        raise InvalidInputError(
            f"Runs named {row.name!r} must differ in their seeds alone; draw them apart: {folders}."
        )
