"""`fit` continues the run that it began, after torchrun has restarted its processes."""

from pathlib import Path
from typing import TYPE_CHECKING

from surelabel.base.together import job
from surelabel.cluster.torchrun import restarted

if TYPE_CHECKING:
    from surelabel.data.run_data import RunData
    from surelabel.runs import RunFolder
    from surelabel.settings import RunSettings


def holds_own_run(folder: Path) -> bool:
    """Whether a folder holds a run that this start of torchrun began before it restarted its processes."""
    if not restarted():
        return False
    from surelabel.engine.parallel import processes
    from surelabel.runs import RunFolder

    def begun() -> bool:
        if not (folder / "run.json").exists():
            return False
        first, *_ = RunFolder.open(folder).environment
        return first.get("torchrun") == job()

    return processes().by_first(begun)


def own_run(folder: Path, settings: "RunSettings", data: "RunData") -> "RunFolder | None":
    """Return the run in a folder if it has these settings; None if it is another one.

    The minutes of `--max-minutes` that are left after reading differ between starts; those of the first start count.
    """
    from surelabel.runs import RunFolder
    from surelabel.runs.checks import complete

    run, wanted = RunFolder.open(folder), complete(settings.pinned(), data)
    if settings.config.max_minutes is not None:
        wanted = wanted.replace(config=wanted.config.replace(max_minutes=run.settings.config.max_minutes))
    return run.asked_for(wanted) if run.settings == wanted else None
