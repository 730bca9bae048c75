"""New files and folders, read as those that a run learned from."""

import functools
from collections.abc import Callable
from pathlib import Path

from surelabel.data.run_data import TableData
from surelabel.data.source import Source
from surelabel.data.tables import Table, read_table
from surelabel.errors import DataError
from surelabel.kinds.folder import FolderData
from surelabel.kinds.packed import PackedData
from surelabel.settings import RunSettings


def read_files(settings: RunSettings, path: Path, texts: bytes | None) -> Source:
    """Return the samples in a file or folder, as the run's learner takes them.

    Args:
        settings: the run's.
        path: a file or folder of the run's kind.
        texts: what the run has learned from texts, `RunFolder.texts`.
    """
    if isinstance(settings.data, FolderData | PackedData):
        return settings.data.read(path)
    return checked_samples(settings, table_reader(settings, path, texts)())


def table_reader(
    settings: RunSettings, path: Path, texts: bytes | None, id_column: str | None = None
) -> Callable[..., Table]:
    """Return a function that reads a file's features, those of the run in its order; its options are `read_table`'s.

    Args:
        settings: the run's.
        path: a file that `read_table` reads.
        texts: what the run has learned from texts.
        id_column: the column with the ids; None: as in the run; "": number the rows.
    """
    data, features = settings.data if isinstance(settings.data, TableData) else None, settings.feature_names
    if data is not None and id_column is None:
        id_column = data.id_column
    drop = data.drop if data is not None and features is not None else ()
    encoder = None if data is None else data.encoder(texts)
    if encoder is None:
        return functools.partial(read_table, path, id_column=id_column or None, features=features, drop=drop)
    return functools.partial(encoder.read, path, id_column=id_column or None, drop=drop)


def checked_samples(settings: RunSettings, table: Table) -> Source:
    """Return a table's samples; refuse those of another shape than the run's."""
    samples = table.samples(slice(None))
    if samples.sample_shape != settings.sample_shape:
        shapes = f"samples of shape {samples.sample_shape}, and the run learned from {settings.sample_shape}"
        raise DataError(f"File '{table.path}' has {shapes}; give samples of that shape.")
    return samples
