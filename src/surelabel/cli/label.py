"""`surelabel label`: pseudo-labels of new samples (eq. 1), which are selected (eq. 5), how often these are right."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from surelabel.cli import _options as options
from surelabel.cli import _samples
from surelabel.cli._console import err, warn
from surelabel.cli._errors import WrongUse
from surelabel.cli._label_pool import How, check_one_file, label_pool, names_folder

if TYPE_CHECKING:
    from surelabel.data.pool import PoolLabels
    from surelabel.runs import RunFolder
    from surelabel.settings import RunSettings

EXAMPLES = (
    "surelabel label runs/iris pool.csv --out labels.csv",
    "surelabel label runs/photos photos/ --format label-studio --out tasks.json",
    "surelabel label runs/iris 'pool/*.parquet' --workers 8 --out labels/",
    "surelabel label runs/photos s3://b/pool/ --engine ray --out s3://b/labels/",
)


def command(
    run: Path = options.RUN,
    samples: str = options.POOL,
    out: str | None = options.OUT_OR_FOLDER,
    workers: int | None = options.WORKERS,
    engine: Literal["local", "ray"] | None = options.ENGINE,
    format: Literal["table", "label-studio"] = options.option(
        "A table, or tasks for Label Studio: a .json file, with the labeling configuration in an .xml file.",
        value="table",
    ),
    prefix: str | None = options.option("The prefix of file paths in Label Studio.", default="/data/local-files/?d="),
    entries: bool = options.ENTRIES,
    id: str | None = options.ID,
    on_error: Literal["stop", "skip"] | None = options.ON_ERROR,
    trust: list[str] | None = options.TRUST,
    trust_code: bool = options.TRUST_CODE,
    force: bool = options.FORCE,
    excel_safe: bool = options.EXCEL_SAFE,
) -> None:
    """Label samples, and mark the labels that the model is sure of.

    The columns are id, label, confidence, uncertainty, selected, ruled_out, round.
    A label is selected as "positive" if its confidence and uncertainty pass the
    run's thresholds. "negative" means only that the sample is taken to be none of
    the classes in ruled_out, which are separated by |. All others are "none".
    Classes are not balanced. The round is the one since which every round has
    learned from the sample's label. It is empty if the last round did not, and for
    samples outside the run's pool: ids tell in any file, row numbers and paths in
    a folder only in the run's own data. If the file has the run's label column, a
    last column, given, has your own labels; the other columns are still the
    model's.

    Selected does not mean right. The last lines on standard error say how often
    selected labels are right, with a 95 % interval: on the validation set or in
    the cross-validation of fit. After fit --no-compare without a validation set,
    this was not checked.

    Several labels per sample have the form of the run's own table: one column with
    a separator between them, or a column of 0 and 1 for each class. The cells in
    selected name the classes taken to be present, those in ruled_out the classes
    taken to be absent. given names the classes that are present in the file, and
    the unknown ones with a question mark, cat|?dog. With --entries there is a row
    for each sample and class: its label is 1 (present) or 0, the confidence is the
    probability that the class is present, a negative is a class taken to be
    absent, and given is 1, 0 or empty.

    A pool of any size is labeled into a folder: --out labels/. Each Parquet file
    of INPUT, each tar file of pictures, and every few thousand other files get one
    file there when all of it is labeled, without the columns round and given. If
    the command is interrupted, run it again: it labels what is missing.
    """
    how = How(entries, id, on_error or "stop", tuple(trust or ()), trust_code, force, excel_safe, prefix)
    if names_folder(out) and format == "table":
        lines = label_pool(run, samples, str(out), how, engine or "local", workers)
    else:
        check_one_file(samples, engine, workers)
        table = None if out is None else Path(out)
        lines = label_file(run, Path(samples), table, how, for_people=format == "label-studio")
    for line in lines:
        err.print(line, markup=False, soft_wrap=True)


def label_file(run: Path, file: Path, out: Path | None, how: How, *, for_people: bool) -> list[str]:
    """Label the samples of one file, or of a folder of files, into one file; return the lines to print."""
    from surelabel.report.held_out import selected_lines

    if for_people:
        check_label_studio(out, how)
    folder = _samples.checked_run(
        run,
        file,
        None if for_people else out,
        entries=how.entries,
        trust_code=how.trust_code,
        force=how.force,
        excel_safe=how.excel_safe,
    )
    check_prefix(how.prefix, folder.settings, for_people)
    checked = selected_lines(folder)  # first, so that a damaged table is reported before anything is labeled or written
    pool, columns = _labeled(folder, file, how)
    if for_people:
        assert out is not None
        write_label_studio(folder, file, pool, columns, out, how.prefix)
    else:
        _samples.write(_all_columns(folder, pool, columns, how.entries), out, how.force, how.excel_safe)
    what = "labels are selected" if pool.label.ndim == 1 else "samples have a selected label"
    return [f"{pool.num_samples_selected:,} of {len(pool):,} {what}.", *checked]


def _labeled(folder: "RunFolder", file: Path, how: How) -> "tuple[PoolLabels, dict[str, Any]]":
    """Return the labels of a file's samples, and the columns that are known beside them."""
    learner = folder.learner(trusted=how.trusted)
    samples, given = _samples.read_samples(
        folder.settings, file, how.id_column, with_labels=True, on_error=how.on_error, texts=folder.texts()
    )
    pool = folder.label(learner, samples)
    rounds = round_cells(folder, pool.ids, file, how.id_column, how.entries)
    return pool, {"round": rounds, **_samples.given_column(given, folder.settings, how.entries)}


def _all_columns(folder: "RunFolder", pool: "PoolLabels", known: dict[str, Any], entries: bool) -> dict[str, Any]:
    """Return all columns of the table; the file's own columns are left out if a class has their name."""
    from surelabel.runs.label_columns import label_columns, together

    columns = together(label_columns(pool, folder.settings, entries), {"round": known["round"]})
    if "given" in columns and "given" in known:
        warn("the file's own labels are left out: a class is called 'given'.")
    return {**columns, **{name: cells for name, cells in known.items() if name not in columns}}


def round_cells(folder: "RunFolder", ids: Any, file: Path, id_column: str | None, entries: bool) -> Any:
    """Return the round since which each sample's label was learned from, as an Arrow array with nulls.

    Samples of the pool are recognized by their names: by ids that the user gave, in any file. Row numbers and paths in
    a folder are names only in the run's own data.
    """
    import numpy as np
    import pyarrow as pa

    width, data = len(folder.settings.classes) if entries else 1, folder.settings.data
    since = np.full((len(ids), width), -1, dtype=np.int64)
    if folder.has_pool:
        of_pool, column = folder.pool().ids, getattr(data, "id_column", None)
        own = getattr(data, "is_own", None)
        given = bool(column) or (own is None and of_pool.dtype.kind not in "iu")
        in_file = bool(column if id_column is None else id_column)
        # Data made by a function are in no file, and a pool in shards is not in the file with the labels.
        same = given == in_file and (given or (own is not None and folder.settings.pool is None and own(file)))
        place = {str(name): row for row, name in enumerate(of_pool.tolist())} if same else {}
        rows = np.array([place.get(str(name), -1) for name in np.asarray(ids).tolist()], dtype=np.int64)
        since[rows >= 0] = folder.selected_since(entries).reshape(-1, width)[rows[rows >= 0]]
    flat = since.ravel()
    return pa.array(flat, mask=flat < 0)


def check_label_studio(out: Path | None, how: How) -> None:
    """Refuse what cannot be written as tasks, before anything is read."""
    if out is None:
        raise WrongUse("--format label-studio writes two files; name the first: --out tasks.json.")
    given = [name for name in ("entries", "excel_safe") if getattr(how, name)]
    options.refuse(given, "has no effect with --format label-studio; leave it out.")
    options.check_output(out, how.force, endings=(".json",))
    options.check_output(out.with_suffix(".xml"), how.force, endings=(".xml",))


def check_prefix(prefix: str | None, settings: "RunSettings", for_people: bool) -> None:
    """Refuse a prefix without effect, and packed pictures, which Label Studio cannot show."""
    from surelabel.kinds.folder import FolderData
    from surelabel.kinds.packed import PackedData

    if for_people and isinstance(settings.data, PackedData):
        remedy = "unpack them into a folder, and fit and label that"
        raise WrongUse(f"--format label-studio shows files, and packed pictures are none; {remedy}.")
    if prefix is not None and not (for_people and isinstance(settings.data, FolderData)):
        raise WrongUse("--prefix has no effect: it is for the files of a folder in Label Studio; leave it out.")


def write_label_studio(
    folder: "RunFolder", file: Path, pool: "PoolLabels", more: dict[str, Any], out: Path, prefix: str | None
) -> None:
    """Write the tasks and the labeling configuration."""
    from surelabel.kinds.folder import FolderData
    from surelabel.runs import label_studio
    from surelabel.runs.files import write_files
    from surelabel.runs.label_columns import label_columns

    settings, task = folder.settings, folder.settings.config.task
    kind = settings.data.of if isinstance(settings.data, FolderData) else None
    tag = label_studio.tag_of(kind)
    if kind is None:
        shown: Any = label_studio.table_rows(file, len(pool))
    else:
        shown = label_studio.addresses(pool.ids.tolist(), label_studio.PREFIX if prefix is None else prefix)
    selected = label_columns(pool, settings)["selected"]
    columns = {"id": pool.ids.tolist(), "selected": selected, **more}
    plain = {name: values.to_pylist() if hasattr(values, "to_pylist") else values for name, values in columns.items()}
    version = f"surelabel {folder.model_name()}, model {folder.model_hash[:12]}"
    made = label_studio.tasks(pool, settings.classes, shown, tag, version, plain)
    config = label_studio.labeling_config(settings.classes, task, tag)
    write_files({out.with_suffix(".xml"): config + b"\n", out: label_studio.tasks_bytes(made)})
    where = f"{out}, and their labeling configuration in {out.with_suffix('.xml')}"
    err.print(f"{len(made)} tasks are in {where}.", markup=False, soft_wrap=True)
