"""One self-contained HTML file from run folders alone: no scripts, and no fonts or pictures from elsewhere."""

import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from surelabel._version import __version__
from surelabel.base.text import visible
from surelabel.core.metrics import paired_difference
from surelabel.data.run_data import FunctionData
from surelabel.records import RoundRecord
from surelabel.report import figures
from surelabel.report.comparison import compared_runs, side_by_side
from surelabel.report.figures import NO_TRUTH, NOT_DRAWN, ReportFigure
from surelabel.report.held_out import NOT_CHECKED, checked_table, labels_change
from surelabel.report.pictures import pictures_figure
from surelabel.report.samples import samples_figures
from surelabel.report.tables import Row, TextTable, group_runs, main_row, number_text, share_text, trained_with
from surelabel.runs import RunFolder
from surelabel.runs.files import make_folder, write_file


def write_report(runs: Sequence[RunFolder], path: str | os.PathLike[str], title: str = "surelabel report") -> Path:
    """Write a report on these runs; runs of one name are seeds of one row, see `group_runs`. Return the file's path.

    Args:
        runs: finished or not, with at least one finished round each. If you have not signed a run and a function that
            is not ours makes its data, its pictures are left out; open it with `trust_code=True` to call the function.
        path: the HTML file; one that exists is replaced.
        title: the page's heading.
    """
    path, page = Path(path), _render(runs, title)
    make_folder(path.parent)
    write_file(path, page.encode())
    return path


def _render(runs: Sequence[RunFolder], title: str) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    rows = group_runs(runs)
    main = main_row(rows)
    compared = compared_runs(rows)
    overview, samples, closely = figures.rounds_figure(rows), _own(main), _figures(main)
    environment = Environment(
        loader=PackageLoader("surelabel.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible_lines,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2").render(
        title=title,
        version=__version__,
        main=main.name,
        several=len(rows) > 1,
        summary=summary_table(rows, with_first=True),
        first=trained_with(runs),
        not_helped=_not_helped(rows),
        compared=compared,
        side_by_side=side_by_side(rows),
        all_compared=len(compared) == len(runs),
        looked_at=main.runs[0].path if len(runs) > 1 else None,
        checked=checked_table(rows),
        not_checked=NOT_CHECKED,
        unfinished=[str(run.path) for run in runs if not run.finished],
        overview=overview,
        samples=samples,
        figures=closely,
        not_drawn=_not_drawn([overview, *samples, *closely]),
        commands=_commands(runs),
        settings=[_settings(row) for row in rows],
        environments=_environments(runs),
    )


def summary_table(rows: Sequence[Row], with_first: bool = False) -> TextTable:
    """Return mean ± standard deviation of each row; columns without any number are left out.

    Args:
        rows: a line for each.
        with_first: also the scores of round 0.
    """
    score, header, alone = _score_name(rows), ["row"], trained_with([run for row in rows for run in row.runs])
    lines: list[list[str]] = []
    for row in rows:
        last = [run.records()[-1] for run in row.runs]
        learned = [record for record in last if record.round > 0]
        first = [run.records()[0] for run in row.runs] if learned and with_first else []

        def values(name: str, records: Sequence[RoundRecord] = last) -> list[float | None]:
            return [getattr(record, name) for record in records]

        cells = {
            f"test {score}, {alone} (%)": share_text(values("test_score", first)),
            f"test {score} (%)": share_text(values("test_score")),
            f"test {score}, 11 points (%)": share_text(values("test_score_11")),
            f"validation {score}, {alone} (%)": share_text(values("validation_score", first)),
            f"validation {score} (%)": share_text(values("validation_score")),
            f"validation {score}, 11 points (%)": share_text(values("validation_score_11")),
            "labels selected": number_text(values("num_positive", learned), ".0f"),
            "selected labels right (%)": share_text(values("positive_accuracy")),
            "negatives selected": number_text(values("num_negative", learned), ".0f"),
            "negatives right (%)": share_text(values("negative_accuracy")),
            "rounds": f"{np.mean([record.round for record in last]):.3g}",
            "seeds": str(len(last)),
            "minutes": f"{np.mean([record.minutes for record in last]):.2f}",
        }
        header, lines = ["row", *cells], [*lines, [row.name, *cells.values()]]
    return TextTable(header, lines).without_empty()


def _score_name(rows: Sequence[Row]) -> str:
    return "mAP" if rows[0].runs[0].settings.config.task == "multi" else "accuracy"


def _not_helped(rows: Sequence[Row]) -> list[str]:
    """Return a note that self-training did not help for each score that is not higher than in round 0.

    Not if a comparison of the models on the validation set has already said so.
    """
    lines = []
    for row in rows:
        for part in ("test", "validation"):
            runs = [run for run in row.runs if getattr(run.records()[0], f"{part}_score") is not None]
            first, last = ([getattr(run.records()[place], f"{part}_score") for run in runs] for place in (0, -1))
            compared = part == "validation" and all(run.finished_comparison() is not None for run in runs)
            if row.num_rounds < 2 or not runs or compared or round(np.mean(last), 4) > round(np.mean(first), 4):
                continue
            of_row = f" {row.name!r}" if len(rows) > 1 else ""
            text = (
                f"Self-training did not help{of_row} by the {part} {_score_name(rows)}: "
                f"{100 * np.mean(first):.2f} % with {trained_with(runs)}, "
                f"{100 * np.mean(last):.2f} % after the last round."
            )
            if len(runs) > 1:
                change, low, high = (f"{100 * value:+.2f}" for value in paired_difference(last, first))
                text += f" The mean change over {len(runs)} runs is {change} points (95 % interval {low} to {high})."
            elif part == "validation":
                text += f" {labels_change(runs[0])[1]}"
            lines.append(text)
    return lines


def _not_drawn(sections: Sequence[ReportFigure]) -> list[str]:
    """Return a line for each reason why sections are not drawn, with their titles."""
    titles: dict[str, list[str]] = {}
    for figure in sections:
        if figure.not_drawn:
            titles.setdefault(figure.note, []).append(f"“{figure.title}”")
    lines = {note: note.replace(NOT_DRAWN, f"{NOT_DRAWN}{', '.join(those)}: ", 1) for note, those in titles.items()}
    if NO_TRUTH in lines:
        lines[NO_TRUTH] += " Labels of a validation set would do: surelabel fit --validation 0.2."
    return list(lines.values())


def _figures(main: Row) -> list[ReportFigure]:
    validation = main.has_validation_truth and not main.has_truth
    drawn = [
        figures.calibration_figure(main, validation),
        figures.distributions_figure(main, validation),
        figures.reliability_figure(main, validation),
        figures.risk_coverage_figure(main, validation),
        figures.first_selection_figure(main),
    ]
    if main.runs[0].settings.config.task == "multi" and (by_class := figures.classes_figure(main)).tables:
        drawn.append(by_class)
    return [*drawn, pictures_figure(main, validation=validation)]


def _own(main: Row) -> list[ReportFigure]:
    """Return the sections for users' own files, not for data made by a function: the kept model and its samples."""
    if isinstance(main.runs[0].settings.data, FunctionData | None):
        return []
    calibration = figures.kept_calibration_figure(main)
    return [*samples_figures(main), *([] if calibration is None else [calibration])]


def _commands(runs: Sequence[RunFolder]) -> list[str]:
    """Return the `surelabel` commands that made the runs, in order, each once; runs from Python have none."""
    words = [entry["command"] for run in runs for entry in run.environment if entry["command"]]
    # `python -m surelabel` has the name of its file.
    ours = [rest for first, *rest in words if Path(first.removesuffix("/__main__.py")).name == "surelabel"]
    return list(dict.fromkeys(shlex.join(["surelabel", *rest]) for rest in ours))


def _settings(row: Row) -> dict[str, Any]:
    folders = [str(run.path) for run in row.runs]
    text = json.dumps(row.runs[0].settings.to_json(), indent=2, sort_keys=True, ensure_ascii=False)
    seeds = ", ".join(str(run.settings.config.seed) for run in row.runs)
    return {"name": row.name, "folders": folders, "text": text, "seeds": seeds}


def _environments(runs: Sequence[RunFolder]) -> list[dict[str, str]]:
    """The distinct environments, ignoring the time and the command line."""
    distinct: dict[str, dict[str, str]] = {}
    for run in runs:
        for entry in run.environment:
            shown = {**entry.get("versions", {}), **entry}
            text = {name: str(shown[name]) for name in shown if name not in ("versions", "time", "command")}
            distinct.setdefault(json.dumps(text, sort_keys=True), text)
    return list(distinct.values())


def _visible_lines(value: Any) -> Any:
    """Shown text, such as names, without invisible characters; the page's own markup is not changed."""
    return "\n".join(map(visible, value.split("\n"))) if type(value) is str else value
