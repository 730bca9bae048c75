"""Where a run was computed: versions, machine, device, commit and command line, one entry for each start or resume."""

import datetime
import functools
import importlib.metadata
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from surelabel._version import __version__

COMMIT = "SURELABEL_COMMIT"
"""The environment variable that names the commit where the code is a copy that git knows nothing of."""

_PACKAGES = ("torch", "numpy", "scikit-learn", "pyarrow", "safetensors", "skops")


def describe_environment(learner: Any = None) -> dict[str, Any]:
    """Return what may explain a number later, ready for JSON.

    >>> sorted(describe_environment())[:4]
    ['command', 'commit', 'cores', 'device']
    """
    return {
        **_machine(),
        "commit": os.environ.get(COMMIT) or _commit(os.getcwd()),
        "command": list(sys.argv),
        "device": _device(learner),
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


@functools.cache
def _machine() -> dict[str, Any]:
    versions = {"python": platform.python_version(), "surelabel": __version__}
    for package in _PACKAGES:
        versions[package] = importlib.metadata.version(package)
    return {
        "versions": versions,
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _device(learner: Any) -> str:
    device = getattr(learner, "device", "cpu")
    if getattr(device, "type", None) == "cuda":
        import torch

        return f"{device} ({torch.cuda.get_device_name(device)})"
    return str(device)


@functools.cache
def _commit(folder: str) -> str | None:
    """The commit of the working tree around a folder, with "+" when files in it have changed."""
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        changed = commit and _git(folder, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.TimeoutExpired):  # no git here
        return None
    return f"{commit}+" if changed else commit


def _git(folder: str, *arguments: str) -> str | None:
    done = subprocess.run(["git", "-C", folder, *arguments], capture_output=True, text=True, timeout=10, check=False)
    return done.stdout.strip() if done.returncode == 0 else None
