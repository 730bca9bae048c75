"""The paper's figures from run folders alone: figure 1, and figures 3 and 4 of its appendix, and some more.

A figure that cannot be drawn says why instead.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from surelabel.calibration import calibration_error, reliability_bins, risk_coverage, uncertainty_auroc
from surelabel.report.drawing import COLORS, INK, RIGHT, WRONG, panel
from surelabel.report.tables import JudgedLabels, Row, Statistic, by_round, judged_labels

NO_TRUTH = "Not drawn: the true labels of the pool are not known."
NO_UNCERTAINTY = "Not drawn: the runs estimated no uncertainty (one deterministic pass)."
NO_ROUND = "Not drawn: nothing was selected, round 0 is the only one."
GRID_STEPS = 26


@dataclass(frozen=True)
class Picture:
    """A sample as a small PNG, and what is to be known of it."""

    source: str
    caption: str


@dataclass(frozen=True)
class ReportFigure:
    """A section of the report.

    Attributes:
        title: its heading.
        caption: one sentence that says what to see.
        panels: inline SVGs.
        pictures: small pictures.
        note: one line: why nothing is drawn, or what is missing.
    """

    title: str
    caption: str = ""
    panels: Sequence[str] = ()
    pictures: Sequence[Picture] = ()
    note: str = ""


def rounds_figure(rows: Sequence[Row]) -> ReportFigure:
    """Draw the paper's figure 1 (b) and (c), and the score: selected labels and scores by round."""
    title = "Selected labels and scores by round"
    if max(row.num_rounds for row in rows) < 2:
        return ReportFigure(title, note=NO_ROUND)
    wanted = [
        ("num_positive", "selected positive labels", 1),
        ("positive_accuracy", "share of them that is right", 1),
        ("test_score", "test score", 0),
        ("validation_score", "validation score", 0),
    ]
    panels, missing = [], []
    for name, label, first in wanted:
        lines = {row.name: by_round(row, name)[first:] for row in rows}
        if any(value is not None for line in lines.values() for value in line):
            panels.append(_lines_by_round(lines, label, first, list(lines)))
        elif name != "validation_score":
            missing.append(label)
    caption = (
        "A good selection grows from round to round and stays right, and the score follows it (figure 1 b, c of the "
        "paper); bands are one standard deviation over the seeds, a dashed level is a row without rounds."
    )
    note = f"Not known, so not drawn: {', '.join(missing)}." if missing else ""
    return ReportFigure(title, caption, panels, note=note)


def calibration_figure(row: Row) -> ReportFigure:
    """Draw the paper's figure 1 (a): ECE of the samples whose predicted class has u <= t, over a grid of t."""
    title = "Calibration of the certain samples"
    if problem := _problem(row):
        return ReportFigure(title, note=problem)
    caption = (
        "Where uncertainty helps, the error falls toward the left: the more certain samples are the better calibrated, "
        "with no threshold on the confidence (figure 1 a of the paper); the second panel says how many they are."
    )
    networks = _networks(row)
    error_lines, share_lines = {}, {}
    for name, network in networks.items():
        labels = judged_labels(row, network)
        grid = uncertainty_grid(labels)
        error_lines[name] = (grid, ece_by_uncertainty(labels, grid))
        assert labels.uncertainty is not None
        share_lines[name] = (grid, [float((labels.uncertainty <= t).mean()) for t in grid])
    axis = "largest uncertainty t"
    panels = [
        _curves(error_lines, axis, "ECE of the samples with u ≤ t"),
        _curves(share_lines, axis, "share of the pool with u ≤ t"),
    ]
    return ReportFigure(title, caption, panels)


def uncertainty_grid(labels: JudgedLabels) -> npt.NDArray[np.float64]:
    """Return the thresholds t: equal steps up to the largest uncertainty."""
    assert labels.uncertainty is not None
    return np.linspace(0, float(labels.uncertainty.max()), GRID_STEPS)


def ece_by_uncertainty(labels: JudgedLabels, grid: npt.NDArray[np.float64]) -> list[float]:
    """Return eq. 6 over the samples with u <= t for each t of the grid; NaN where there is none."""
    assert labels.uncertainty is not None
    errors = []
    for t in grid:
        certain = labels.uncertainty <= t
        errors.append(calibration_error(labels.confidence[certain], labels.right[certain]) if certain.any() else np.nan)
    return errors


def distributions_figure(row: Row) -> ReportFigure:
    """Draw the appendix's figure 3: right and wrong labels over confidence and over uncertainty."""
    title = "Right and wrong labels"
    sets = {"pool": False} if row.has_truth else {}
    if all(run.has_validation for run in row.runs):
        sets["validation set"] = True
    if not sets:
        return ReportFigure(title, note=NO_TRUTH)
    panels = []
    for name, validation in sets.items():
        labels = judged_labels(row, 0, validation)
        panels.append(_histogram(labels.confidence, labels.right, f"confidence ({name})"))
        if labels.uncertainty is not None:
            panels.append(_histogram(labels.uncertainty, labels.right, f"uncertainty ({name})"))
    caption = (
        "Compare how many wrong labels of the first network stand at the far right of the confidence, where a "
        "threshold lets them in, and how many at the far left of the uncertainty (figure 3 of the paper's appendix; "
        "counts are logarithmic)."
    )
    note = "" if row.has_uncertainty else "No uncertainties: the runs made one deterministic pass."
    return ReportFigure(title, caption, panels, note=note)


def reliability_figure(row: Row) -> ReportFigure:
    """Draw accuracy over confidence, in bins: all labels of the first network, and the selected ones."""
    title = "Reliability"
    if not row.has_truth:
        return ReportFigure(title, note=NO_TRUTH)
    labels = judged_labels(row, 0)
    panels = [_reliability(labels.confidence, labels.right, "all labels")]
    note = ""
    if labels.selected.any():
        selected = labels.selected
        panels.append(_reliability(labels.confidence[selected], labels.right[selected], "selected labels"))
    else:
        note = "The first network's labels were all left out, so there is no second diagram."
    caption = (
        "Bars below the diagonal are overconfident: that much confidence, and fewer labels right (first network; a "
        "bar's shade says how many labels it holds)."
    )
    return ReportFigure(title, caption, panels, note=note)


def risk_coverage_figure(row: Row) -> ReportFigure:
    """Draw the share of wrong labels among the most certain share of the pool, ranked by u and by 1 - confidence."""
    title = "Risk and coverage"
    if problem := _problem(row):
        return ReportFigure(title, note=problem)
    panels = []
    for name, network in _networks(row).items():
        labels = judged_labels(row, network)
        wrong = ~labels.right
        assert labels.uncertainty is not None
        lines = {}
        for what, score in (("u", labels.uncertainty), ("1 − confidence", 1 - labels.confidence)):
            curve = risk_coverage(np.asarray(score), wrong)
            auroc = f"AUROC {uncertainty_auroc(score, wrong):.3f}" if 0 < wrong.sum() < len(wrong) else "no AUROC"
            lines[f"{what} ({auroc})"] = (curve.coverage, curve.risk)
        panels.append(_curves(lines, f"coverage ({name})", "share of wrong labels"))
    caption = (
        "The lower a curve stays, the better its measure puts wrong labels last; AUROC is the chance that a wrong "
        "label has the larger value than a right one."
    )
    return ReportFigure(title, caption, panels)


def balance_figure(row: Row) -> ReportFigure:
    """Draw the positives of each class in the first selection, before and after balancing."""
    title = "Classes of the first selection"
    if row.num_rounds < 2:
        return ReportFigure(title, note=NO_ROUND)
    first = [run.records()[1] for run in row.runs]
    before, after = (
        np.mean([getattr(record, name) for record in first], axis=0) for name in ("class_counts_before", "class_counts")
    )
    classes = row.runs[0].settings.classes
    with panel(title, width=6.5) as drawn:
        place = np.arange(len(before))
        drawn.axes.bar(place - 0.2, before, 0.4, color=COLORS[5], label="before balancing")
        drawn.axes.bar(place + 0.2, after, 0.4, color=COLORS[0], label="after")
        step = max(1, len(before) // 20)
        drawn.axes.set_xticks(place[::step], [_short(name) for name in classes[::step]])
        drawn.axes.set(xlabel="class", ylabel="positive labels")
        drawn.axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.16), ncols=2)
    balanced = any(record.balanced for record in first)
    caption = (
        "Balancing keeps the most certain labels of each class, so that easy classes do not crowd out hard ones."
        if balanced
        else "The first selection was not balanced, so both bars are the same."
    )
    return ReportFigure(title, caption, [drawn.svg])


def _problem(row: Row) -> str:
    if not row.has_truth:
        return NO_TRUTH
    return "" if row.has_uncertainty else NO_UNCERTAINTY


def _networks(row: Row) -> dict[str, int]:
    return {"first network": 0} if row.num_rounds < 2 else {"first network": 0, "last network": -1}


def _lines_by_round(lines: dict[str, list[Statistic | None]], label: str, first: int, names: list[str]) -> str:
    """One line a row with a band of one std; a row with a single round is a dashed level."""
    with panel(f"{label} by round") as drawn:
        axes = drawn.axes
        longest = max(len(line) for line in lines.values())
        for name, line in lines.items():
            color = COLORS[names.index(name) % len(COLORS)]
            points = [(first + i, value) for i, value in enumerate(line) if value is not None]
            if not points:
                continue
            x, means = [i for i, _ in points], np.array([value.mean for _, value in points])
            if len(points) == 1 and longest > 1:
                axes.axhline(means[0], color=color, linestyle="--", label=name)
                continue
            std = np.array([value.std or 0.0 for _, value in points])
            axes.plot(x, means, color=color, marker="o", markersize=4, label=name)
            axes.fill_between(x, means - std, means + std, color=color, alpha=0.15, linewidth=0)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set(xlabel="round", ylabel=label)
        _legend_above(axes)
    return drawn.svg


def _curves(lines: dict[str, Any], xlabel: str, ylabel: str) -> str:
    with panel(f"{ylabel} over {xlabel}") as drawn:
        for color, (name, (x, y)) in zip(COLORS, lines.items(), strict=False):
            drawn.axes.plot(x, y, color=color, label=name)
        drawn.axes.set(xlabel=xlabel, ylabel=ylabel)
        drawn.axes.set_ylim(bottom=0)
        _legend_above(drawn.axes)
    return drawn.svg


def _histogram(values: npt.NDArray[Any], right: npt.NDArray[np.bool_], label: str) -> str:
    edges = np.linspace(float(min(values.min(), 0)), float(max(values.max(), 1e-9)), 26)
    with panel(f"right and wrong labels over {label}") as drawn:
        for name, chosen, color in (("right", right, RIGHT), ("wrong", ~right, WRONG)):
            drawn.axes.hist(values[chosen], bins=edges, color=color, alpha=0.55, label=f"{name} ({chosen.sum()})")
        drawn.axes.set_yscale("log")
        drawn.axes.set(xlabel=label, ylabel="labels")
        drawn.axes.set_ylim(bottom=0.5)
        _legend_above(drawn.axes)
    return drawn.svg


def _reliability(confidence: npt.NDArray[Any], right: npt.NDArray[np.bool_], label: str) -> str:
    bins = reliability_bins(confidence, right, bins=10)
    error = calibration_error(confidence, right)
    with panel(f"reliability of {label}") as drawn:
        axes = drawn.axes
        shade = 0.25 + 0.75 * np.sqrt(bins.count / max(1, bins.count.max()))
        for lower, upper, accuracy, alpha in zip(bins.lower, bins.upper, bins.accuracy, shade, strict=True):
            if np.isfinite(accuracy):
                axes.bar(lower, accuracy, upper - lower, align="edge", color=RIGHT, alpha=alpha, edgecolor=INK, lw=0.4)
        axes.plot([0, 1], [0, 1], color=INK, linewidth=1, linestyle="--")
        axes.set(xlabel=f"confidence ({label})", ylabel="share right", xlim=(0, 1), ylim=(0, 1.02))
        axes.set_title(f"ECE {error:.3f} over {len(right)} labels", fontsize=9)
    return drawn.svg


def _legend_above(axes: Any) -> None:
    names = axes.get_legend_handles_labels()[1]
    if names:
        columns = 2 if len(names) > 1 else 1
        axes.figure.legend(loc="outside upper center", ncols=columns)


def _short(name: str, length: int = 12) -> str:
    return name if len(name) <= length else name[: length - 1] + "…"
