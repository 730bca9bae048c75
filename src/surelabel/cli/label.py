"""`surelabel label`: pseudo-labels of new samples (eq. 1), which are selected (eq. 5), and how often such are right."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from surelabel.cli import _options as options
from surelabel.cli import _samples
from surelabel.cli._console import err, warn

if TYPE_CHECKING:
    from surelabel.data.pool import PoolLabels
    from surelabel.data.source import Source
    from surelabel.settings import RunSettings

EXAMPLES = ("surelabel label runs/iris pool.csv --out labels.csv",)

_OF_ENTRIES = ("id", "class", "label", "confidence", "uncertainty", "selected")


def command(
    run: Path = options.RUN,
    file: Path = options.SAMPLES,
    out: Path | None = options.OUT,
    entries: bool = options.ENTRIES,
    id: str | None = options.ID,
    on_error: Literal["stop", "skip"] | None = options.ON_ERROR,
    trust: list[str] | None = options.TRUST,
    trust_code: bool = options.TRUST_CODE,
    force: bool = options.FORCE,
    excel_safe: bool = options.EXCEL_SAFE,
) -> None:
    """Label samples, and mark the labels that the model is sure of.

    The columns are id, label, confidence, uncertainty, selected and ruled_out.
    A label is selected as "positive" if its confidence and uncertainty pass the
    run's thresholds. "negative" says only that the sample is taken to be none of
    the classes in ruled_out, which stand with | between them. All others are
    "none". Class balance plays no part. Where the file has the run's label
    column, a last column, given, holds the labels in it: they are yours, and the
    others are what the model says of these rows too.

    Selected does not mean right. The last lines on standard error say how often
    selected labels are right, with a 95 % interval: by the validation set or by
    the cross-validation of fit; after fit --no-compare without a validation set,
    that was not checked.

    With several labels a sample they have the form of the run's own table: one
    column with a separator between them, or one of 0 and 1 for each class. The
    cells in selected name the classes that are taken to be present, those in
    ruled_out the ones taken to be absent; given names the classes that the file
    says are there, and those of which it does not say so with a question mark,
    cat|?dog. With --entries there is a row for each sample and class: its label
    is 1 (present) or 0, the confidence is the probability that the class is
    present, a negative is a class taken to be absent, and given is 1, 0 or empty.
    """
    from surelabel.report.held_out import selected_lines

    folder = _samples.checked_run(
        run, file, out, entries=entries, trust_code=trust_code, force=force, excel_safe=excel_safe
    )
    checked = selected_lines(folder)  # first: a damaged table is told before anything is labeled or written
    learner = folder.learner(trusted=tuple(trust or ()))
    samples, given = _samples.read_samples(
        folder.settings, file, id, with_labels=True, on_error=on_error or "stop", texts=folder.texts()
    )
    network = 0 if folder.kept == "first" else folder.records()[-1].round
    pool = label_samples(learner, samples, folder.settings, network, folder.label_thresholds())
    columns = label_columns(pool, folder.settings, entries)
    if "given" in columns:
        warn("the file's own labels are left out: a class is called 'given'.")
        given = None
    _samples.write({**columns, **_samples.given_column(given, folder.settings, entries)}, out, force, excel_safe)
    number = int(pool.positive.reshape(len(pool), -1).any(axis=1).sum())
    what = "labels are selected" if pool.label.ndim == 1 else "samples have a selected label"
    for line in (f"{number:,} of {len(pool):,} {what}.", *checked):
        err.print(line, markup=False, soft_wrap=True)


def label_samples(
    learner: Any, samples: "Source", settings: "RunSettings", network: int, thresholds: dict[str, float]
) -> "PoolLabels":
    """Label samples as the loop labels the pool with this round's network, before balancing."""
    from surelabel.data.draws import seed_for
    from surelabel.data.pool import join, label_chunk

    config = settings.config
    chunks = learner.predict(samples, seed=seed_for(config.seed, network, "predict"))
    return join([label_chunk(chunk, config.task, thresholds, config.negatives) for chunk in chunks])


def label_columns(pool: "PoolLabels", settings: "RunSettings", entries: bool = False) -> dict[str, Any]:
    """Return the columns of the table of labels.

    Args:
        pool: the samples as the run's network labels them.
        settings: the run's.
        entries: several labels a sample: whether each sample and class has a row.
    """
    from surelabel.runs.tables import to_tables

    multi = settings.config.task == "multi"
    if multi and not entries:
        labels = _samples.present_columns("label", pool.label == 1, settings)
        parts = zip(("selected", "ruled_out"), pool.selection, strict=True)
        selected = {name: _samples.name_cells(part, settings) for name, part in parts}
        return _samples.together({"id": pool.ids}, labels, selected)
    table, _ = to_tables(pool, settings.classes)
    columns = {name: table[name].combine_chunks() for name in _OF_ENTRIES if name in table.column_names}
    return columns if multi else {**columns, "ruled_out": _samples.name_cells(pool.selection.negative, settings)}
