"""Options of `fit` and `resume` about a pool in shards: where it is, and which processes label it."""

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from surelabel.cli import _options as options
from surelabel.cli._console import say
from surelabel.cli._errors import WrongUse
from surelabel.cli._rounds import shown_decoding
from surelabel.cluster.torchrun import number

if TYPE_CHECKING:
    from surelabel.data.run_data import RunData
    from surelabel.data.sharded import PoolShards
    from surelabel.runs.labeling import InWorkers
    from surelabel.settings import RunSettings


def check_pool_options(given: dict[str, Any]) -> None:
    """Refuse options about labeling shards if there are no shards, or under torchrun."""
    about_workers = [name for name in ("workers", "engine") if name in given]
    if "pool" not in given:
        options.refuse(about_workers, "has no effect without --pool; give one, or leave it out.")
    check_alone(about_workers)
    if "pool" in given and "estimator" in given:
        raise WrongUse("--estimator needs all samples in memory, and --pool is for more than that; leave one out.")


def check_alone(about_workers: Sequence[str]) -> None:
    """Refuse options about workers under torchrun."""
    if number() > 1:
        options.refuse(about_workers, "has no effect under torchrun, whose processes label the shards; leave it out.")


def pool_reference(given: dict[str, Any]) -> "PoolShards | None":
    """Return the settings of the pool that the options name, if they name one."""
    from surelabel.data.sharded import PoolShards

    if "pool" not in given:
        return None
    return PoolShards(place=given["pool"], **options.settings_given(["on_error"], given))


def find_pool(settings: "RunSettings", data: "RunData", quiet: bool) -> "RunData":
    """Return the data with the pool in shards, if the settings name one."""
    from surelabel.runs.pool import with_pool

    with shown_decoding(quiet):
        return with_pool(settings.pinned(), data)


def pool_workers(engine: Literal["local", "ray"] | None, workers: int | None) -> "InWorkers | None":
    """Return the function that calls a job in workers; None: this process labels the shards."""
    from surelabel.cluster.workers import in_workers

    if engine == "ray":
        # Called without tasks, so that a missing cluster is reported now, not after a round has been trained.
        list(in_workers(len, (), engine, workers))
        return functools.partial(in_workers, engine=engine, workers=workers)
    return None if workers in (None, 1) else functools.partial(in_workers, workers=workers)


def tell_pool(settings: "RunSettings", data: "RunData", told_of_comparison: bool) -> None:
    """Print how many shards and rows were found, and why models are not compared."""
    if settings.pool is None:
        return
    found, rows = data.shards["shards"], sum(rows for _, _, rows in data.shards["shards"])
    shards = "1 shard" if len(found) == 1 else f"{len(found):,} shards"
    say(f"Found {shards} in {settings.pool.place}: {rows:,} rows to label.")
    if settings.comparison is None and told_of_comparison:
        say(
            "The last round is kept: a cross-validation would label the pool again in each fold; --validation compares."
        )
