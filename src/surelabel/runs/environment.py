"""Where a run was computed: versions, machine, device, commit and command line, one entry for each start or resume."""

import datetime
import functools
import hashlib
import importlib.metadata
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from surelabel._version import __version__
from surelabel.base.together import job, processes_of

COMMIT = "SURELABEL_COMMIT"
"""The environment variable that names the commit, for a copy of the code outside git."""

PACKAGE = Path(__file__).resolve().parents[1]

_PACKAGES = ("torch", "numpy", "scikit-learn", "pyarrow", "safetensors", "skops")


def describe_environment(learner: Any = None) -> dict[str, Any]:
    """Return what may later explain a result, ready for JSON.

    >>> sorted(describe_environment())[:4]
    ['command', 'commit', 'cores', 'device']
    """
    return {
        **_machine(),
        "commit": os.environ.get(COMMIT) or _commit(),
        # A file's name may be bytes that are not text, and JSON holds only text.
        "command": [os.fsencode(word).decode(errors="replace") for word in sys.argv],
        "device": _device(learner),
        **({"processes": processes} if (processes := processes_of(learner).size) > 1 else {}),
        **({"torchrun": started_by} if (started_by := job()) is not None else {}),
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


@functools.cache
def _machine() -> dict[str, Any]:
    packages = {package: importlib.metadata.version(package) for package in _PACKAGES}
    versions = {"python": platform.python_version(), "surelabel": __version__, **packages}
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    processor = names[0] if names else platform.processor() or platform.machine()
    return {"versions": versions, "platform": platform.platform(), "processor": processor, "cores": os.cpu_count()}


def _device(learner: Any) -> str:
    device = getattr(learner, "device", "cpu")
    if getattr(device, "type", None) == "cuda":
        import torch

        return f"{device} ({torch.cuda.get_device_name(device)})"
    return str(device)


@functools.cache
def code_hash() -> str:
    """Return the hexadecimal SHA-256 of this package's source files, which is equal for runs with the same code."""
    together = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        together.update(f"{path.relative_to(PACKAGE).as_posix()}\0".encode() + path.read_bytes())
    return together.hexdigest()


@functools.cache
def _commit() -> str | None:
    """The commit of the working tree that this package is in, with "+" if files other than results have changed.

    Results are ignored, because runs themselves append to them.
    """
    try:
        # An installed package may be inside an unrelated working tree.
        tracked = _git("ls-files", "--error-unmatch", __file__) is not None
        commit = _git("rev-parse", "HEAD") if tracked else None
        changed = commit and _git("status", "--porcelain", "--untracked-files=no", ":/", ":(top,exclude)results")
    except (OSError, subprocess.TimeoutExpired):  # no git here
        return None
    return f"{commit}+" if changed else commit


def _git(*arguments: str) -> str | None:
    command = ["git", "-C", str(PACKAGE), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout.strip() if done.returncode == 0 else None
