"""Jobs for workers, of a module of their own, as other processes have to import them."""

import os
import signal
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


def crash(task: int) -> None:
    os._exit(3)
