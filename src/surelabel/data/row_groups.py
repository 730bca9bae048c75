"""A group of rows of a Parquet file, which can be read without the others."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RowGroup:
    """Rows of a Parquet file that lie together, and are read alone.

    Attributes:
        file: the open `pyarrow.parquet.ParquetFile`, here or in an object store.
        number: of the group.
        before: how many rows of the file come before it.
    """

    file: Any
    number: int
    before: int

    def has_integers(self, name: str) -> bool:
        """Whether a column of the file holds whole numbers, by its type."""
        from pyarrow import types

        return bool(types.is_integer(self.file.schema_arrow.field(name).type))
