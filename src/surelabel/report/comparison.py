"""How a run's models compare, and which of them is kept, as text and as a table."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from surelabel.core.metrics import Interval
from surelabel.report.held_out import selected_lines
from surelabel.report.tables import Row, TextTable, trained_with
from surelabel.runs import RunFolder
from surelabel.runs.comparison import CANDIDATES, Candidate, Comparison, Judged, is_clear


class ComparedRun(NamedTuple):
    """What a report says about a run whose models were compared."""

    name: str
    table: TextTable
    lines: list[str]


def compared_runs(rows: Sequence[Row]) -> list[ComparedRun]:
    """Return what a report says about each run whose models were compared."""
    found = []
    for name, run, _ in _compared(rows):
        table = comparison_table(run)
        assert table is not None
        found.append(ComparedRun(name, table, [*comparison_lines(run), *selected_lines(run)]))
    return found


def _compared(rows: Sequence[Row]) -> Iterator[tuple[str, RunFolder, Comparison]]:
    for row, run in ((of, one) for of in rows for one in of.runs):
        comparison = run.finished_comparison()
        if comparison is not None and comparison.judged():
            yield row.name_of(run), run, comparison


def side_by_side(rows: Sequence[Row]) -> TextTable | None:
    """Return the scores of several runs' models, a line for each run; None for fewer than two runs."""
    lines, compared = list[list[str]](), list(_compared(rows))
    for name, run, comparison in compared:
        multi, judged = run.settings.config.task == "multi", comparison.judged()
        scores = [_with_interval(judged[one].score, multi) if one in judged else "–" for one in CANDIDATES]
        assert comparison.kept is not None
        kept, number = run.model_name(), len(judged[comparison.kept].truth)
        lines.append([name, *scores, kept, f"{number:,}", comparison.judge])
    first = f"round 0, {trained_with([run for _, run, _ in compared])}"
    header = ["row", "linear model of the labels", first, "self-training", "kept", "held-out labels", "judged by"]
    return TextTable(header, lines) if len(lines) > 1 else None


def _with_interval(found: Interval, multi: bool) -> str:
    score, low, high = found
    text = f"mAP {score:.3f}" if multi else f"{100 * score:.1f} %"
    return text if (low, high) == (0, 1) else f"{text} ({_figure(low, multi)} to {_figure(high, multi)})"


def judged_models(run: RunFolder) -> dict[str, Judged]:
    """Return each model's labels of held-out samples, by its name: all compared models, else the first and last."""
    comparison = run.finished_comparison()
    if comparison is not None and (judged := comparison.judged()):
        return {run.model_name(name): found for name, found in judged.items()}
    truth = run.validation_truth
    if truth is None:
        return {}
    return {f"round {network}": Judged(run.validation(network), truth) for network in (0, run.num_rounds - 1)}


def candidate_name(candidate: Candidate, run: RunFolder) -> str:
    """Return the name of one of a run's compared models in tables."""
    names = {
        "linear": "linear model of the labels",
        "first": f"round 0, {trained_with([run])}",
        "last": f"round {run.num_rounds - 1}, self-training",
    }
    return names[candidate]


def comparison_table(run: RunFolder) -> TextTable | None:
    """Return the score of each compared model, with its interval; None if there are none."""
    comparison = run.finished_comparison()
    if comparison is None or not (judged := comparison.judged()):
        return None
    multi, lines = run.settings.config.task == "multi", []
    for candidate, found in judged.items():
        score, low, high = found.score
        interval = f"{_figure(low, multi)} to {_figure(high, multi)}" if (low, high) != (0, 1) else "too few labels"
        kept = "kept" if candidate == comparison.kept else ""
        cells = [_figure(score, multi), interval, f"{len(found.truth):,}", kept]
        lines.append([candidate_name(candidate, run), *cells])
    name = "mean average precision" if multi else "accuracy (%)"
    return TextTable(["model", name, "95 % interval", "held-out labels", ""], lines)


def _figure(value: float, multi: bool) -> str:
    return f"{value:.3f}" if multi else f"{100 * value:.1f}"


def comparison_lines(run: RunFolder) -> list[str]:
    """Return lines on which model is kept and whether self-training helped; none for runs without a comparison."""
    comparison = run.finished_comparison()
    if comparison is None:
        return []
    return [*_kept_lines(comparison, run), *_linear_lines(comparison), *_folds_lines(comparison)]


def _linear_lines(comparison: Comparison) -> list[str]:
    judged = comparison.judged()
    if not judged or "linear" in judged:
        return []
    return ["A linear model was left out: with one label of each class to learn from, its uncertainty is not known."]


def _kept_lines(comparison: Comparison, run: RunFolder) -> list[str]:
    judged, last, multi = comparison.judged(), run.num_rounds - 1, run.settings.config.task == "multi"
    if not judged or comparison.kept is None:
        return []
    kept, scores = candidate_name(comparison.kept, run), {name: found.value for name, found in judged.items()}

    def ahead(other: Candidate) -> str:
        change = scores["last"] - scores[other]
        return f"{change:+.3f}" if multi else f"{100 * change:+.1f} points"

    judge = f"By {'the ' * (comparison.judge == 'validation set')}{comparison.judge}"
    if "last" not in judged:
        return [f"{judge}, the {kept} is kept; there was no round of self-training."]
    if comparison.kept != "last":
        # Runs of earlier versions kept the simplest model within one standard error.
        level = ", within the standard error" * (scores["last"] > scores[comparison.kept])
        return [f"{judge}, self-training did not help ({ahead(comparison.kept)} in round {last}{level}). Kept: {kept}."]
    next_best = max((name for name in scores if name != "last"), key=lambda name: scores[name])
    if is_clear(judged["last"], judged[next_best]):
        return [f"{judge}, self-training helped: {ahead(next_best)} over the next best. Kept: {kept}."]
    unclear = f"self-training is level with the next best ({ahead(next_best)}, within the standard error)"
    return [f"{judge}, {unclear}. Kept, because it has learned from the most samples: {kept}."]


def _folds_lines(comparison: Comparison) -> list[str]:
    planned, done = comparison.content["planned"], comparison.num_folds
    if not planned:
        problem = "a class has too few labels to hold one out of them"
        return [
            f"The models were not compared: {problem}. The last round is kept; label more, or add --validation FILE."
        ]
    if done < planned:
        folds = "no fold" if not done else f"{done} of {planned} folds"
        kept = " The last round is kept." if not done else ""
        return [f"The time sufficed for {folds} of the comparison; 'surelabel resume --max-minutes' goes on.{kept}"]
    return []
