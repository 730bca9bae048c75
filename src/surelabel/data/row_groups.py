"""A row group of a Parquet file, which can be read without the others."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RowGroup:
    """A row group of a Parquet file, read on its own.

    Attributes:
        file: the open `pyarrow.parquet.ParquetFile`, here or in an object store.
        number: of the group.
        before: how many rows of the file come before it.
    """

    file: Any
    number: int
    before: int

    def type_of_ids(self, name: str) -> Any:
        """Return the Arrow type of the ids in a column, which is the same in all groups of the file."""
        import pyarrow as pa

        kind = self.file.schema_arrow.field(name).type
        if not pa.types.is_integer(kind):
            return pa.large_string()
        return pa.uint64() if kind == pa.uint64() else pa.int64()
