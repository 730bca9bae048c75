"""Sections of a report that are tables of numbers; one that does not apply says why instead."""

from collections.abc import Sequence

from surelabel.report.analysis import PAPER, analysis_table
from surelabel.report.classes import classes_table, left_out
from surelabel.report.equal_counts import comparison_table
from surelabel.report.figures import NO_ROUND, NO_TRUTH, ReportFigure
from surelabel.report.first_selection import find_pairs, first_round_table, paper_selection
from surelabel.report.tables import Row
from surelabel.runs import RunFolder


def classes_section(row: Row) -> ReportFigure:
    """Show each class of several labels a sample: its score, and what the last network learned of it."""
    title = "Classes of the last network"
    if row.runs[0].settings.config.task == "single":
        return ReportFigure(title, note="Not drawn: the samples have one label each.")
    table, without = classes_table(row), left_out(row)
    caption = (
        "Average precision of the last network, and the labels that it learned from. A class of which positives alone "
        "are selected, or many that are wrong, drifts toward being found everywhere."
    )
    note = f"Left out of the mean, without a known positive to score by: {', '.join(without)}." if without else ""
    return ReportFigure(title, caption, tables=[table] if table.lines else [], note=note)


def first_labels_section(row: Row, runs: Sequence[RunFolder]) -> ReportFigure:
    """Compare the first labels by confidence with those of UPS, over thresholds and at equal counts.

    Args:
        row: runs with uncertainties.
        runs: where to look for runs that label the same networks in one deterministic pass.
    """
    title = "First labels by confidence and by uncertainty"
    if problem := _problem(row):
        return ReportFigure(title, note=problem)
    pairs = find_pairs(row.runs, runs)
    if not pairs:
        return ReportFigure(
            title, note="Not drawn: no other run labels the same first network in one deterministic pass."
        )
    caption = (
        "The first network's labels by the confidence of one deterministic pass, by the mean confidence of its "
        "stochastic passes (Cal.), and by UPS, before balancing."
    )
    tables = [first_round_table(pairs)]
    compared = comparison_table(pairs)
    if compared.lines:
        tables.append(compared)
        caption += (
            " The second table gives confidence as many labels of each class as UPS selects: a difference above 0 says "
            "that the uncertainty ranks labels better (95 % interval by a bootstrap over the pool's samples)."
        )
    return ReportFigure(title, caption, tables=tables)


def pool_use_section(row: Row) -> ReportFigure:
    """Say how much of the pool is used after ten rounds, or after the last one."""
    title = "Use of the pool"
    if problem := _problem(row) or (NO_ROUND if row.num_rounds < 2 else ""):
        return ReportFigure(title, note=problem)
    paper = PAPER if paper_selection(row.runs[0]) == ("cifar10", 1000) else None
    caption = "What becomes of the pool: samples without a positive label may still teach by their negative ones."
    return ReportFigure(title, caption, tables=[analysis_table(row, paper)])


def _problem(row: Row) -> str:
    if row.runs[0].settings.config.task == "multi":
        return "Not drawn: the samples have several labels each."
    return "" if row.has_truth else NO_TRUTH
