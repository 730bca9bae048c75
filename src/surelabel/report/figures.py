"""The figures of a report, from run folders alone.

A figure that cannot be drawn gives the reason instead. Labels are judged on the pool, or with `validation` on the
validation set, if the pool's true labels are not known.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from surelabel.core.calibration import calibration_error, risk_coverage, uncertainty_auroc
from surelabel.report.classes import classes_table, first_selection, first_selection_table, left_out
from surelabel.report.drawing import Panel, Picture, classes, curves, histogram, lines_by_round, reliability
from surelabel.report.held_out import kept_judged
from surelabel.report.tables import JudgedLabels, Row, TextTable, by_round, join_judged, judge, judged_labels

NOT_DRAWN = "Not drawn: "
NO_TRUTH = f"{NOT_DRAWN}the true labels of the pool are not known."
NO_UNCERTAINTY = f"{NOT_DRAWN}the runs estimated no uncertainty (one deterministic pass)."
NONE_JUDGED = f"{NOT_DRAWN}no round selected a positive label whose truth is known."
NO_ROUND = f"{NOT_DRAWN}nothing was selected, round 0 is the only one."
GRID_STEPS = 26


@dataclass(frozen=True)
class ReportFigure:
    """A section of the report.

    Attributes:
        title: its heading.
        caption: one sentence that says what to see.
        panels: what is drawn.
        pictures: small pictures.
        tables: numbers.
        note: one line: why nothing is drawn, what is missing, or what the thresholds select.
    """

    title: str
    caption: str = ""
    panels: Sequence[Panel] = ()
    pictures: Sequence[Picture] = ()
    tables: Sequence[TextTable] = ()
    note: str = ""

    @property
    def not_drawn(self) -> bool:
        """Whether nothing is drawn, so that the note gives the reason."""
        return self.note.startswith(NOT_DRAWN)


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
            panels.append(lines_by_round(lines, label, first))
        elif name != "validation_score":
            missing.append(label)
    caption = (
        "A good selection grows from round to round and stays right, and the score follows it (figure 1 b, c of the "
        "paper); bands are one standard deviation over the seeds, a dashed level is a row without rounds."
    )
    note = f"Not known, so not drawn: {', '.join(missing)}." if missing else ""
    return ReportFigure(title, caption, panels, note=note)


def calibration_figure(row: Row, validation: bool = False) -> ReportFigure:
    """Draw the paper's figure 1 (a): ECE of the samples whose predicted class has u <= t, over a grid of t.

    In multi-label data, of the entries with u <= t.
    """
    title = "Calibration of the certain samples"
    if problem := not_judged(row, validation):
        return ReportFigure(title, note=problem)
    judged = "entries" if row.runs[0].settings.config.task == "multi" else "samples"
    caption = (
        f"Where uncertainty helps, the error falls toward the left: the more certain {judged} are the better "
        "calibrated, with no threshold on the confidence (figure 1 a of the paper); the second panel says how many "
        "they are."
    )
    error_lines, share_lines = {}, {}
    for name, network in _networks(row).items():
        labels = judged_labels(row, network, validation)
        grid = uncertainty_grid(labels)
        error_lines[name] = grid, ece_by_uncertainty(labels, grid)
        assert labels.uncertainty is not None
        share_lines[name] = grid, [float((labels.uncertainty <= t).mean()) for t in grid]
    axis = "largest uncertainty t"
    panels = [
        curves(error_lines, axis, f"ECE of the {judged} with u ≤ t"),
        curves(share_lines, axis, f"share of the {'set' if validation else 'pool'} with u ≤ t"),
    ]
    return ReportFigure(title, caption + judged_on(row, validation), panels)


def uncertainty_grid(labels: JudgedLabels) -> npt.NDArray[np.float64]:
    """Return the thresholds t: equal steps up to the largest uncertainty."""
    assert labels.uncertainty is not None
    return np.linspace(0, float(labels.uncertainty.max()), GRID_STEPS)


def ece_by_uncertainty(labels: JudgedLabels, grid: npt.NDArray[np.float64]) -> list[float]:
    """Return eq. 6 over the samples with u <= t for each t of the grid; NaN if there are none."""
    assert labels.uncertainty is not None
    errors = []
    for t in grid:
        certain = labels.uncertainty <= t
        errors.append(calibration_error(labels.confidence[certain], labels.right[certain]) if certain.any() else np.nan)
    return errors


def distributions_figure(row: Row, validation: bool = False) -> ReportFigure:
    """Draw the appendix's figure 3: right and wrong labels over confidence and over uncertainty."""
    title = "Right and wrong labels"
    panels = distribution_panels(row)
    if not panels:
        return ReportFigure(title, note=NO_TRUTH)
    caption = (
        "Compare how many wrong labels of the first network stand at the far right of the confidence, where a "
        "threshold lets them in, and how many at the far left of the uncertainty (figure 3 of the paper's appendix; "
        "counts are logarithmic)."
    )
    note = "" if row.has_uncertainty else "No uncertainties: the runs made one deterministic pass."
    return ReportFigure(title, caption + judged_on(row, validation), list(panels.values()), note=note)


def distribution_panels(row: Row) -> dict[str, Panel]:
    """Return the panels of figure 3 by the paper's letters: a and b the validation set, c and d the pool.

    The labels are the first network's; panels without known truth or uncertainty are left out.
    """
    config = row.runs[0].settings.config
    # In multi-label data, the confidence is that of the label, which may be "absent", so no threshold applies to it.
    single = config.task == "single"
    tau, kappa = ({"τ_p": config.tau_p}, {"κ_p": config.kappa_p}) if single else ({}, {})
    panels = {}
    for letters, name, known in (("ab", "validation set", row.has_validation_truth), ("cd", "pool", row.has_truth)):
        if known:
            labels = judged_labels(row, 0, validation=letters == "ab")
            panels[letters[0]] = histogram(labels.confidence, labels.right, f"confidence ({name})", tau)
            if labels.uncertainty is not None:
                panels[letters[1]] = histogram(labels.uncertainty, labels.right, f"uncertainty ({name})", kappa)
    return panels


def reliability_figure(row: Row, validation: bool = False) -> ReportFigure:
    """Draw accuracy over confidence, in bins: all labels of the first network, and the selected ones."""
    title = "Reliability"
    if not (validation or row.has_truth):
        return ReportFigure(title, note=NO_TRUTH)
    labels = judged_labels(row, 0, validation)
    panels, selected = [reliability(labels.confidence, labels.right, "all labels")], labels.selected
    if selected.any():
        panels.append(reliability(labels.confidence[selected], labels.right[selected], "selected labels"))
    note = "" if selected.any() else "The first network's labels were all left out, so there is no second diagram."
    caption = (
        "Bars below the diagonal are overconfident: that much confidence, and fewer labels right (first network; a "
        "bar's shade says how many labels it holds)."
    )
    return ReportFigure(title, caption + judged_on(row, validation), panels, note=note)


def kept_calibration_figure(row: Row) -> ReportFigure | None:
    """Draw accuracy over confidence of the kept models, from held-out labels; None if none were compared."""
    found = [kept_judged(run) for run in row.runs if run.finished_comparison() is not None]
    parts = [judge(labels, truth, labels.positive_before) for _, labels, truth, _ in filter(None, found)]
    if len(parts) < len(row.runs):
        return None
    labels = join_judged(parts)
    panels, chosen = [reliability(labels.confidence, labels.right, "all held-out labels")], labels.selected
    if chosen.any():
        panels.append(reliability(labels.confidence[chosen], labels.right[chosen], "selected ones"))
    caption = (
        f"Its confidence is {labels.confidence.mean():.2f} on average, and {labels.right.mean():.2f} of its labels are "
        f"right ({len(labels.right):,} held-out ones). Bars below the diagonal are overconfident: fewer labels right "
        "than the confidence says; a bar's shade says how many labels it holds."
    )
    return ReportFigure("Calibration of the kept model", caption, panels)


def risk_coverage_figure(row: Row, validation: bool = False) -> ReportFigure:
    """Draw the share of wrong labels over the share that is kept, ranked by u and by 1 - confidence."""
    title = "Risk and coverage"
    if problem := not_judged(row, validation):
        return ReportFigure(title, note=problem)
    panels = []
    for name, network in _networks(row).items():
        labels = judged_labels(row, network, validation)
        wrong = ~labels.right
        assert labels.uncertainty is not None
        lines = {}
        for what, score in (("u", labels.uncertainty), ("1 − confidence", 1 - labels.confidence)):
            curve = risk_coverage(np.asarray(score), wrong)
            auroc = f"AUROC {uncertainty_auroc(score, wrong):.3f}" if 0 < wrong.sum() < len(wrong) else "no AUROC"
            lines[f"{what} ({auroc})"] = curve.coverage, curve.risk
        panels.append(curves(lines, f"coverage ({name})", "share of wrong labels"))
    caption = (
        "The lower a curve stays, the better its measure puts wrong labels last; AUROC is the chance that a wrong "
        "label has the larger value than a right one."
    )
    return ReportFigure(title, caption + judged_on(row, validation), panels)


def first_selection_figure(row: Row) -> ReportFigure:
    """Draw what the first network selects per class, whether or not a round has learned from it."""
    title = "Classes of the first selection"
    if not all(run.has_pool for run in row.runs):
        return ReportFigure(title, note=NO_ROUND)
    selections = [first_selection(run) for run in row.runs]
    before, after = (np.mean([one[stage].counts for one in selections], axis=0) for stage in ("before", "after"))
    drawn = classes(row.runs[0].settings.classes, before, after, title)
    balanced = any(run.settings.config.num_balanced_rounds(len(before)) for run in row.runs)
    caption = (
        "Balancing keeps the most certain labels of each class, so that easy classes do not crowd out hard ones."
        if balanced
        else "The first selection was not balanced, so both bars are the same."
    )
    return ReportFigure(title, caption, [drawn], tables=[first_selection_table(row)])


def classes_figure(row: Row) -> ReportFigure:
    """Show each class of multi-label runs: its score, and the labels that the last network learned from."""
    table, without = classes_table(row), left_out(row)
    caption = (
        "Average precision of the last network, and the labels that it learned from. A class of which positives alone "
        "are selected, or many that are wrong, drifts toward being found everywhere."
    )
    note = f"Left out of the mean, without a known positive to score by: {', '.join(without)}." if without else ""
    return ReportFigure("Classes of the last network", caption, tables=[table] if table.lines else [], note=note)


def judged_on(row: Row, validation: bool) -> str:
    """Return the end of a caption that says which samples are judged, if they are not the pool's."""
    if not validation:
        return ""
    number = sum(len(run.validation(0)) for run in row.runs)
    runs = f" in {len(row.runs)} runs" if len(row.runs) > 1 else ""
    return f" Judged on the validation set ({number} samples{runs}): the pool's true labels are not known."


def not_judged(row: Row, validation: bool) -> str:
    """Return why labels cannot be judged by their uncertainty; "" if they can."""
    if not (validation or row.has_truth):
        return NO_TRUTH
    return "" if row.has_uncertainty else NO_UNCERTAINTY


def _networks(row: Row) -> dict[str, int]:
    return {"first network": 0} if row.num_rounds < 2 else {"first network": 0, "last network": -1}
