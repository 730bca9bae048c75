"""`surelabel label`: pseudo-labels of new samples (eq. 1), and which of them to trust (eq. 5)."""

from typing import TYPE_CHECKING, Any

from surelabel.cli import _runs, _several
from surelabel.cli._console import complain

if TYPE_CHECKING:
    from surelabel.data.pool import PoolLabels
    from surelabel.data.source import ArraySource
    from surelabel.runs import RunSettings

EXAMPLE = """[bold]Example[/bold]

surelabel label runs/iris pool.csv --out labels.csv"""

_OF_ENTRIES = ("id", "class", "label", "confidence", "uncertainty", "selected")


def command(
    run: _runs.Run,
    file: _runs.Samples,
    out: _runs.Out = None,
    entries: _several.Entries = False,
    id: _runs.Id = None,
    trust: _runs.Trust = None,
    force: _runs.Force = False,
    excel_safe: _runs.ExcelSafe = False,
) -> None:
    """Label samples and say which labels to trust.

    The columns are id, label, confidence, uncertainty, selected and ruled_out.
    A label that is selected as "positive" can be trusted. Of a "negative" only
    this can: that it is none of the classes in ruled_out, which stand with |
    between them. All others are "none". The run's thresholds and stochastic
    passes decide; class balance plays no part. Where the file has the run's
    label column, a last column, given, holds the labels in it: they are yours,
    and the others are what the model says of these rows too.

    With several labels a sample they have the form of the run's own table: one
    column with a separator between them, or one of 0 and 1 for each class. The
    presence of the classes in selected can be trusted, and the absence of those
    in ruled_out; of the others nothing; given names the classes that the file
    says are there, and those of which it does not say so with a question mark,
    cat|?dog. With --entries there is a row for each sample and class: its label
    is 1 (present) or 0, the confidence is the probability that the class is
    present, a negative is a trusted absence, and given is 1, 0 or empty.
    """
    _runs.check_files(file, out, force, excel_safe)
    folder = _runs.open_run(run)
    _several.check_entries(entries, folder.settings)
    learner = folder.learner(trusted=tuple(trust or ()))
    samples, given = _runs.read_samples(folder.settings, file, id, with_labels=True)
    pool = label_samples(learner, samples, folder.settings, folder.records()[-1].round)
    columns = label_columns(pool, folder.settings, entries)
    if "given" in columns:
        complain("warning", "the file's own labels are left out: a class is called 'given'.", style="bold")
        given = None
    _runs.write({**columns, **_several.given_column(given, folder.settings, entries)}, out, force, excel_safe)


def label_samples(learner: Any, samples: "ArraySource", settings: "RunSettings", network: int) -> "PoolLabels":
    """Label samples as the loop labels the pool with this round's network, before balancing."""
    from surelabel.data.draws import seed_for
    from surelabel.data.pool import join, label_chunk

    config = settings.config
    chunks = learner.predict(samples, seed=seed_for(config.seed, network, "predict"))
    return join([label_chunk(chunk, config.task, config.thresholds, config.negatives) for chunk in chunks])


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
        labels = _several.present_columns("label", pool.label == 1, settings)
        parts = zip(("selected", "ruled_out"), pool.selection, strict=True)
        trusted = {name: _several.name_cells(part, settings) for name, part in parts}
        return _several.together({"id": pool.ids}, labels, trusted)
    table, _ = to_tables(pool, settings.classes)
    columns = {name: table[name].combine_chunks() for name in _OF_ENTRIES if name in table.column_names}
    return columns if multi else {**columns, "ruled_out": _several.name_cells(pool.selection.negative, settings)}
