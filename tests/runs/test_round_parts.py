"""Labels of shards that wait for their round to be recorded: which of them count as made."""

from pathlib import Path
from typing import Any

from surelabel.data.pool import no_labels
from surelabel.data.shards import Shard
from surelabel.runs.round_parts import LabelParts, made_by

SHARDS = [Shard("a.parquet", 10), Shard("b.parquet", 20)]


def test_a_part_is_taken_for_its_own_network_and_shard_alone(tmp_path: Path) -> None:
    LabelParts(tmp_path, "one", SHARDS).write(0, no_labels("single", 3))

    def missing(network: str, shard: Shard) -> list[int]:
        return LabelParts(tmp_path, network, [shard, SHARDS[1]]).missing()

    assert missing("one", SHARDS[0]) == [1]
    for other in (("two", SHARDS[0]), ("one", Shard("c.parquet", 10)), ("one", Shard("a.parquet", 11))):
        assert missing(*other) == [0, 1]


def test_all_that_labels_depend_on_is_in_the_hash() -> None:
    made_with: list[Any] = [(b"weights", {"seed": 1}), (b"others", {"seed": 1}), (b"weights", {"seed": 2})]
    assert len({made_by(*one, "torch 2") for one in made_with} | {made_by(*made_with[0], "torch 3")}) == 4
