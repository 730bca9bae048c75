"""What `predict` and `label` share: new samples in, a table of their labels out.

Several labels per sample are written in the form of the run's own table.
"""

import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surelabel.cli._console import err, warn
from surelabel.cli._errors import WrongUse
from surelabel.cli._options import check_output, check_path, open_run
from surelabel.cli._rounds import shown_decoding
from surelabel.errors import DataError

if TYPE_CHECKING:
    from surelabel.data.decoding import OnError
    from surelabel.data.run_data import TableData
    from surelabel.data.source import Source
    from surelabel.data.tables import Table
    from surelabel.runs import RunFolder
    from surelabel.settings import RunSettings


def checked_run(
    run: Path, file: Path, out: Path | None, *, entries: bool, trust_code: bool, force: bool, excel_safe: bool
) -> "RunFolder":
    """Return the run; refuse missing files, files that would be overwritten, and options without effect."""
    from surelabel.data.packed import is_packed

    if not is_packed(file):
        check_path("INPUT", file)
    check_output(out, force)
    if excel_safe and out is not None and out.suffix.lower() == ".parquet":
        raise WrongUse("--excel-safe has no effect: a .parquet file says itself what is text; leave it out.")
    folder = open_run(run, trust_code)
    check_entries(folder, entries)
    return folder


def check_entries(folder: "RunFolder", entries: bool) -> None:
    """Refuse `--entries` for a run with one label per sample."""
    if entries and folder.settings.config.task == "single":
        raise WrongUse("--entries has no effect: the run has one label a sample; leave it out.")


def read_samples(
    settings: "RunSettings",
    path: Path,
    id_column: str | None,
    *,
    with_labels: bool = False,
    on_error: "OnError" = "stop",
    texts: bytes | None = None,
) -> "tuple[Source, Any]":
    """Read a file's features, those that the run learned from and in its order, and the file's own labels.

    The labels are as `read_table` returns them; None if they are not asked for or the file lacks the label columns. A
    folder's files have none.

    Args:
        settings: the run's.
        path: a file that `read_table` reads, or a folder.
        id_column: the column with the ids; None: as in the run; "": number the rows.
        with_labels: whether to read the run's label columns, if the file has them.
        on_error: whether a file in a folder that cannot be read is skipped.
        texts: what the run has learned from texts, `RunFolder.texts`.
    """
    from surelabel.data.packed import is_packed
    from surelabel.data.run_data import TableData
    from surelabel.kinds.folder import FolderData
    from surelabel.kinds.packed import PackedData
    from surelabel.runs.new_files import checked_samples, table_reader

    if isinstance(settings.data, PackedData):
        if not is_packed(path):
            forms = "a .parquet file with them, a folder saved by datasets, or .tar shards"
            raise WrongUse(
                f"Invalid value for 'INPUT': '{path}' has no packed pictures, as the run's are; name {forms}."
            )
        with shown_decoding(quiet=False):
            return settings.data.read(path, on_error, id_column), None
    if isinstance(settings.data, FolderData):
        if id_column is not None:
            raise WrongUse("--id has no effect: the files of a folder are named by their paths; leave it out.")
        with shown_decoding(quiet=False):
            return settings.data.read(path, on_error), None
    if path.is_dir():
        remedy = ", or a folder for the labels of all its Parquet files: --out labels/" if with_labels else ""
        raise WrongUse(
            f"Invalid value for 'INPUT': '{path}' is a folder, and the run learned from a file; name a file{remedy}."
        )
    data, read = settings.data, table_reader(settings, path, texts, id_column)
    with shown_decoding(quiet=False):  # backbones take their time
        if isinstance(data, TableData) and with_labels:
            table, given = _with_labels(read, data, len(settings.classes))
        else:
            table, given = read(), None
    return checked_samples(settings, table), given


def _with_labels(read: "Callable[..., Table]", data: "TableData", num_classes: int) -> "tuple[Table, Any]":
    """Return a table and its labels; if they do not match the run's, warn and leave them out."""
    names = ("labels", "separator", "none", "unlabeled")
    try:
        table = read(**{name: getattr(data, name) for name in names}, labels_if_there=True)
        if table.y is not None and table.y.ndim == 2 and table.y.shape[1] != num_classes:
            raise DataError(f"they are of {table.y.shape[1]} classes, and the run of {num_classes}.")
    except DataError as error:
        table = read()  # raises if something other than the labels is wrong
        warn(f"the file's own labels are left out: {error}")
        return table, None
    return table, table.y


def write(columns: dict[str, Any], path: Path | None, force: bool, excel_safe: bool) -> None:
    """Write columns to a file, or as CSV to standard output."""
    from surelabel.data.tables import write_table

    if path is not None:
        write_table(path, columns, overwrite=force, excel_safe=excel_safe)
        err.print(f"{len(columns['id'])} rows are in {path}.", markup=False, soft_wrap=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = write_table(Path(folder, "table.csv"), columns, excel_safe=excel_safe)
        sys.stdout.write(copy.read_bytes().decode())


def given_column(y: Any, settings: "RunSettings", entries: bool) -> dict[str, Any]:
    r"""Return the file's own labels as the column `given`, empty where there is none; no column without labels.

    A cell has the form that `read_table` reads: "cat|?dog" if it is unknown whether there is a dog. In names of
    columns, | and a leading ? are written \| and \?.

    Args:
        y: as `read_table` returns them: a class, a tuple of classes or None for each row, (N,); or 1, 0 and -1, (N, C).
        settings: the run's.
        entries: whether each sample and class has a row.
    """
    from surelabel.runs.label_columns import cell

    if y is None:
        return {}
    if entries:
        rows = y.tolist() if y.ndim == 2 else [_entries(label, settings.classes) for label in y]
        return {"given": [None if code < 0 else code for row in rows for code in row]}
    labels = y if y.ndim == 1 else [_named(codes, settings.classes) for codes in y.tolist()]
    nothing = set(_named([-1] * len(settings.classes), settings.classes))
    known = [None if isinstance(label, tuple) and set(label) == nothing else label for label in labels]
    return {"given": [cell(label, settings, mark_none=True) if isinstance(label, tuple) else label for label in known]}


def _entries(label: str | tuple[str, ...] | None, classes: Sequence[str]) -> list[int]:
    """Return what a row's label says about each class: 1, 0 or -1 (unknown)."""
    from surelabel.data._values import stated

    found = {label: 1} if isinstance(label, str) else stated(label or ())
    # A row with a class that the run does not know counts as unlabeled.
    known = label is not None and set(found) <= set(classes)
    return [found.get(name, 0) if known else -1 for name in classes]


def _named(codes: Sequence[int], classes: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the classes with code 1, and with a question mark those with -1 (unknown)."""
    from surelabel.data._values import UNKNOWN

    names = [f"\\{name}" if name.startswith(UNKNOWN) else name for name in classes]
    return tuple((UNKNOWN if code < 0 else "") + name for name, code in zip(names, codes, strict=True) if code)
