"""`surelabel resume`: continue a run that was interrupted, crashed, or should have more rounds."""

import functools
import math
from pathlib import Path
from typing import Any, Literal

from surelabel.cli import _options as options
from surelabel.cli._console import warn
from surelabel.cli._options import option
from surelabel.cli._pool import check_alone, pool_workers
from surelabel.cli._rounds import follow
from surelabel.cluster.torchrun import check_same_folder, rank

EXAMPLES = (
    "surelabel resume runs/iris",
    "surelabel resume runs/iris --rounds 30",
    "surelabel resume runs/iris --data moved/iris.csv",
    "surelabel resume runs/a --workers 8",
)


def command(
    run: Path = options.RUN,
    rounds: int | None = option("How many rounds at most, including those that are done.", min=0),
    max_minutes: float | None = option(
        "No round, and no fold of a comparison, starts after this many minutes in all.", min=0
    ),
    data: Path | None = option(
        "Where the run's data lie now, if the file or folder has moved; its content must be the same. Other files of "
        "the run that are gone are looked for beside it.",
        metavar="FILE or FOLDER",
    ),
    pool: str | None = option("Where the run's shards lie now, if they have moved.", metavar="PLACE"),
    workers: int | None = options.POOL_WORKERS,
    engine: Literal["local", "ray"] | None = options.POOL_ENGINE,
    track: list[str] | None = options.TRACK,
    track_dir: Path | None = options.TRACK_DIR,
    trust_code: bool = options.TRUST_CODE,
    quiet: bool = options.QUIET,
) -> None:
    """Continue a run; it ends as if it had never been interrupted."""
    from surelabel.data.packed import is_packed

    check_same_folder(run)
    if data is not None and not is_packed(data):
        options.check_path("--data", data)
    options.check_track(track or (), track_dir)
    folder = options.open_run(run)
    of_shards = {"pool": pool, "workers": workers, "engine": engine}
    given = [name for name, value in of_shards.items() if value is not None]
    if folder.settings.pool is None:
        options.refuse(given, "has no effect: the run has no pool in shards; leave it out.")
    check_alone([name for name in given if name != "pool"])
    in_workers = pool_workers(engine, workers)
    from surelabel.runs.session import resume
    from surelabel.runs.tracking import trackers

    limits: dict[str, Any] = {"max_rounds": rounds, "max_minutes": max_minutes}
    with options.settings_from_options():
        config = folder.settings.limited(**limits).config
    if folder.settings.config.max_rounds == 0 < config.max_rounds and math.isinf(config.kappa_p):
        warn("the run was made without rounds and without uncertainties: its rounds select labels by confidence alone.")
    told = trackers(track or (), run, folder.settings, track_dir, folder.num_rounds or None) if rank() == 0 else []
    calls: dict[str, Any] = {"callbacks": told, "in_workers": in_workers}
    begin = functools.partial(resume, run, data=data, pool=pool, trust_code=trust_code, **calls, **limits)
    follow(begin, run, config, done=folder.num_rounds, trust_code=trust_code, quiet=quiet)
