"""The whole demo: its runs, their table and the report; existing files are not changed."""

import itertools
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from surelabel.base.system import Progress
from surelabel.report.html import summary_table, write_report
from surelabel.report.tables import TextTable, group_runs
from surelabel.reproduce.digits import LABELS_PER_CLASS, SEEDS, SHARED, demo_jobs, run_jobs
from surelabel.reproduce.results import Figure, read_rows, record_runs
from surelabel.reproduce.variants import VARIANTS, Variant
from surelabel.runs import RunFolder

TITLE = f"surelabel demo: handwritten digits, {LABELS_PER_CLASS} labels per class"


class DemoResult(NamedTuple):
    """The result of the demo."""

    folder: Path
    table: TextTable
    report: Path
    runs: list[RunFolder]


def run_demo(
    out: str | os.PathLike[str],
    seeds: Sequence[int] = SEEDS,
    variants: Sequence[Variant] = VARIANTS,
    *,
    workers: int = 2,
    progress: Progress | None = None,
    results: str | os.PathLike[str] | None = None,
) -> DemoResult:
    """Run every row of the table with every seed, and write the report.

    Args:
        out: the folder for the runs; if it is in use, a new one with a number: `out-2`.
        seeds: a run of each row for each.
        variants: the rows.
        workers: how many processes share the runs.
        progress: called after each run: what it was, runs done, runs in all.
        results: append a row for each run to this CSV file (`results/runs.csv`).
    """
    if results is not None:
        read_rows(results)  # raises before anything is trained, if rows cannot be appended
    folder = free_folder(Path(out))
    jobs = demo_jobs(folder, seeds, variants)
    folder.mkdir(parents=True, exist_ok=True)
    # Supervised first, because every other row begins with its network. Then the longest, so that no worker is idle at
    # the end.
    first = [job for job in jobs if job.settings.config.max_rounds == 0]
    try:
        run_jobs(first + [job for job in reversed(jobs) if job not in first], workers, progress)
    finally:
        shutil.rmtree(folder / SHARED, ignore_errors=True)
    runs = [RunFolder.open(job.folder) for job in jobs]
    table = summary_table(group_runs(runs))
    report = write_report(runs, folder / "report.html", TITLE)
    if results is not None:
        found = [(run, [Figure("test accuracy", run.records()[-1].scores["test accuracy"])]) for run in runs]
        record_runs(results, found, experiment="demo", dataset="digits", num_labels=10 * LABELS_PER_CLASS)
    return DemoResult(folder, table, report, runs)


def free_folder(path: Path) -> Path:
    """Return the path if it is free (nothing there, or an empty folder), else the first free of `path-2`, `path-3`."""
    found, numbers = path, itertools.count(2)
    while found.exists() and not (found.is_dir() and not any(found.iterdir())):
        found = path.with_name(f"{path.name}-{next(numbers)}")
    return found
