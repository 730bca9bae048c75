"""The labels of a pool's shards, as a job for workers."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from surelabel.data.pool import PoolLabels, join, no_labels
from surelabel.data.shards import Shard
from surelabel.errors import DataError, UnreachableError
from surelabel.kinds.shard_reading import ShardReader
from surelabel.learners.shard_labels import Labeling, label_shard
from surelabel.runs.label_columns import label_columns
from surelabel.runs.model import Model
from surelabel.runs.parts import Labels, Part, Parts

_ROWS_OF_A_TABLE = 1 << 17
"""Rows whose columns are made at once."""


@dataclass
class LabelJob:
    """Labels a shard with a run's model, and writes its part.

    Attributes:
        model: of the run; built once in each process.
        how: what else the labels depend on.
        reader: of the shards.
        parts: where the labels go.
        entries: with several labels per sample, whether each sample and class has a row.
        skip: whether a shard that cannot be read is named, and the others labeled.
    """

    model: Model
    how: Labeling
    reader: ShardReader
    parts: Parts
    entries: bool = False
    skip: bool = False

    def __call__(self, shard: Shard) -> Part | str:
        """Label a shard; return the description of its part, or why the shard cannot be read."""
        _ = self._learner  # an error of the model is not an error of the shard
        try:
            expected = sum(self.reader.blocks(shard))
            part, content = self.parts.content(shard, self._labels(shard), expected)
        except UnreachableError:  # which says nothing of the shard
            raise
        except DataError as error:
            if self.skip:
                return str(error)
            raise DataError(f"{error} Or leave such shards out: --on-error skip.") from error
        finally:
            self.reader.close()
        self.parts.write(part, content)
        return part

    @functools.cached_property
    def _learner(self) -> Any:
        return self.model.learner()

    def _labels(self, shard: Shard) -> Iterator[Labels]:
        """Yield a shard's labels, many rows at once; an empty table for a shard without rows."""
        waiting, rows, number = list[PoolLabels](), 0, 0
        for chunk in label_shard(self._learner, self.reader, shard, self.how):
            waiting.append(chunk)
            rows += len(chunk)
            if rows >= _ROWS_OF_A_TABLE:
                yield self._columns(join(waiting))
                waiting, rows, number = [], 0, number + 1
        if waiting or not number:
            yield self._columns(join(waiting) if waiting else no_labels(self.how.task, self.how.num_classes))

    def _columns(self, pool: PoolLabels) -> Labels:
        columns = label_columns(pool, self.model.settings, self.entries)
        # Arrow would infer the type of a list from its values, and there may be none.
        typed = {name: pa.array(cells, pa.string()) for name, cells in columns.items() if isinstance(cells, list)}
        return Labels(pa.table({**columns, **typed}), len(pool), pool.num_samples_selected)
