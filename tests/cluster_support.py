"""Jobs for workers, of a module of their own, as other processes have to import them."""

import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Square:
    """Squares numbers; a process that finds the file `killer` removes it and is killed."""

    killer: Path | None = None
    prepared: list[int] = field(default_factory=list)

    def __call__(self, task: int) -> tuple[int, int, int]:
        """Return the square, the process, and how many tasks it has done with this job."""
        if task < 0:
            raise ValueError(f"{task} is negative; give another.")
        if self.killer is not None and task == 3 and self.killer.exists():
            self.killer.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        self.prepared.append(task)
        return task**2, os.getpid(), len(self.prepared)


@dataclass
class CrashesOnce:
    """Ends its process at some tasks, at each the first time, once what was done before is on its way back."""

    folder: Path
    tasks: tuple[int, ...]

    def __call__(self, task: int) -> None:
        """Do nothing, or end."""
        mark = self.folder / str(task)
        if task in self.tasks and not mark.exists():
            mark.touch()
            time.sleep(0.2)
            os._exit(3)


def crash(task: int) -> None:
    os._exit(3)
