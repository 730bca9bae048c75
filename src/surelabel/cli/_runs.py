"""What `predict`, `label` and `resume` share: a run's folder, its model, and new samples to use it on."""

import functools
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from surelabel.cli._console import complain, err
from surelabel.cli._errors import WrongUse, existing_file
from surelabel.errors import DataError

if TYPE_CHECKING:
    from surelabel.data.run_data import TableData
    from surelabel.data.source import ArraySource
    from surelabel.data.tables import Table
    from surelabel.runs import RunFolder
    from surelabel.settings import RunSettings

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.", show_default=False)]
Samples = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="A file with the columns that the run learned from, in any order.",
        show_default=False,
    ),
]
Id = Annotated[
    str | None,
    typer.Option(
        "--id",
        metavar="COLUMN",
        help="The column that names each row; left out, as in the run. '' numbers the rows.",
        show_default=False,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", help="A .csv or .parquet file; left out, CSV is printed.", show_default=False),
]
Force = Annotated[bool, typer.Option("--force", help="Replace the output file if there is one.")]
ExcelSafe = Annotated[
    bool,
    typer.Option(
        "--excel-safe", help="Put an apostrophe before text that a spreadsheet would take as a formula: =, +, -, @."
    ),
]
Trust = Annotated[
    list[str] | None,
    typer.Option(
        "--trust",
        metavar="TYPE",
        help="A type in a scikit-learn model that is not known to be safe, and that you trust; may be repeated.",
        show_default=False,
    ),
]
TrustCode = Annotated[
    bool,
    typer.Option(
        "--trust-code",
        help="Run all code that the run names, also where you have not signed it: for runs of people whom you trust.",
    ),
]


def open_run(path: Path, trust_code: bool = False) -> "RunFolder":
    """Return the run in a folder; a folder that is not there is wrong use."""
    if not path.is_dir():
        kind = "is a file" if path.exists() else "does not exist"
        raise WrongUse(f"Invalid value for 'RUN': folder '{path}' {kind}; name the --out of a 'surelabel fit'.")
    from surelabel.runs import RunFolder

    return RunFolder.open(path, trust_code=trust_code)


def read_samples(
    settings: "RunSettings", path: Path, id_column: str | None, *, with_labels: bool = False
) -> "tuple[ArraySource, Any]":
    """Read a file's features, those that the run learned from and in its order, and labels that it has itself.

    The labels are as `read_table` gives them; None where they are not asked for or the file lacks the label columns.

    Args:
        settings: the run's.
        path: a file that `read_table` reads.
        id_column: the column with the ids; None: as in the run; "": number the rows.
        with_labels: whether to read the run's label columns, where the file has them.
    """
    from surelabel.data.run_data import TableData
    from surelabel.data.source import ArraySource
    from surelabel.data.tables import read_table

    data = settings.data if isinstance(settings.data, TableData) else None
    if data is not None and id_column is None:
        id_column = data.id_column
    read = functools.partial(
        read_table,
        path,
        id_column=id_column or None,
        features=settings.feature_names,
        drop=data.drop if data is not None and settings.feature_names is not None else (),
    )
    table, given = (read(), None) if data is None or not with_labels else _with_labels(read, data, settings.classes)
    if table.x.shape[1:] != settings.sample_shape:
        raise DataError(
            f"File '{path}': the run learned from samples of shape {settings.sample_shape}. Got {table.x.shape[1:]} "
            "instead; give samples of that shape."
        )
    return ArraySource(table.x, ids=table.ids), given


def _with_labels(read: "Callable[..., Table]", data: "TableData", classes: "Sequence[str]") -> "tuple[Table, Any]":
    """Return a table and the labels that it has; where they are not such as the run's, warn and go without them."""
    names = ("labels", "separator", "none", "unlabeled")
    try:
        table = read(**{name: getattr(data, name) for name in names}, labels_if_there=True)
        if table.y is not None and table.y.ndim == 2 and table.y.shape[1] != len(classes):
            raise DataError(f"they are of {table.y.shape[1]} classes, and the run of {len(classes)}.")
    except DataError as error:
        table = read()  # raises where it is not the labels that are wrong
        complain("warning", f"the file's own labels are left out: {error}", style="bold")
        return table, None
    return table, table.y


def check_files(file: Path, out: Path | None, force: bool, excel_safe: bool) -> None:
    """Refuse an input that is not there, and an output as `check_output` does."""
    existing_file("FILE", file)
    check_output(out, force)
    if excel_safe and out is not None and out.suffix.lower() == ".parquet":
        raise WrongUse("--excel-safe has no effect: a .parquet file says itself what is text; leave it out.")


def check_output(path: Path | None, force: bool, endings: tuple[str, ...] = (".csv", ".parquet")) -> None:
    """Refuse an output that would be overwritten or cannot be written, before any work is done."""
    if path is None:
        return
    if path.suffix.lower() not in endings:
        raise WrongUse(f"Invalid value for '--out': '{path}' must end in {' or '.join(endings)}.")
    if not path.parent.is_dir():
        raise WrongUse(f"Invalid value for '--out': the folder '{path.parent}' does not exist; make it first.")
    if path.exists() and not force:
        raise DataError(f"File '{path}' exists and is kept; choose another name, or give --force to replace it.")


def write(columns: dict[str, Any], path: Path | None, force: bool, excel_safe: bool) -> None:
    """Write columns to a file, or as CSV to standard output."""
    from surelabel.data.tables import write_table

    if path is not None:
        write_table(path, columns, overwrite=force, excel_safe=excel_safe)
        err.print(f"{len(columns['id'])} rows are in {path}.", markup=False, soft_wrap=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = write_table(Path(folder, "table.csv"), columns, excel_safe=excel_safe)
        with copy.open(encoding="utf-8", newline="") as stream:
            shutil.copyfileobj(stream, sys.stdout)
