"""The same work in this process and in others: what is sent, what happens when a worker ends, and errors."""

import os
import sys
from pathlib import Path

import pytest
from cluster_support import CrashesOnce, Square, crash

from surelabel.base.processes import WorkerCrashedError
from surelabel.cluster import workers
from surelabel.cluster.ray_engine import RayError
from surelabel.cluster.workers import in_workers


def test_one_worker_is_this_process() -> None:
    found = dict(in_workers(Square(), range(3)))
    assert found == {0: (0, os.getpid(), 1), 1: (1, os.getpid(), 2), 2: (4, os.getpid(), 3)}


def test_a_job_is_kept_by_a_worker_and_what_a_killed_one_had_is_done_again(tmp_path: Path) -> None:
    killer = tmp_path / "killer"
    killer.touch()
    with pytest.warns(UserWarning, match="a worker process has crashed; what it had is done again"):
        found = dict(in_workers(Square(killer), range(8), workers=2))
    assert [found[task][0] for task in range(8)] == [task**2 for task in range(8)]
    assert not killer.exists()
    assert os.getpid() not in {process for _, process, _ in found.values()}
    # More tasks than processes, so that at least one did several with the job that it was sent once.
    assert max(number for *_, number in found.values()) > 1


def test_an_error_of_the_job_is_raised_here() -> None:
    with pytest.raises(ValueError, match="-1 is negative; give another"):
        list(in_workers(Square(), [1, -1], workers=2))


def test_what_crashes_every_worker_is_given_up() -> None:
    given_up = pytest.raises(WorkerCrashedError, match=r"crashed 3 times at '5' .* look above")
    with pytest.warns(UserWarning, match="has crashed"), given_up:
        list(in_workers(crash, [5], workers=2))


def test_workers_that_get_on_may_crash_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a thousand shards a few may be too many for the memory; three crashes in a row are another thing."""
    monkeypatch.setattr(workers, "TRIES", 2)
    with pytest.warns(UserWarning, match="a worker process has crashed"):
        found = dict(in_workers(CrashesOnce(tmp_path, (1, 4, 6)), range(8), workers=2))
    assert sorted(found) == list(range(8))


def test_without_ray_its_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RayError, match=r"--engine ray needs the package ray; pip install 'surelabel\[ray\]'\."):
        list(in_workers(Square(), [1], "ray"))
