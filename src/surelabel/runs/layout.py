"""The names in a run folder, and whether a folder is free to hold a run."""

from pathlib import Path

from surelabel.errors import DamagedFileError, RunExistsError
from surelabel.runs.files import is_temporary, read_json
from surelabel.runs.lock import LOCK_FILE

RUN, HISTORY, ENVIRONMENT, SPLIT, ROUNDS = "run.json", "history.json", "environment.json", "split.json", "rounds"
POOL, NEGATIVES = "pool.parquet", "negatives.parquet"
VALIDATION, VALIDATION_NEGATIVES = "validation.parquet", "validation_negatives.parquet"
CHECKPOINT = "checkpoint.bin"
MODELS = ("model.safetensors", "model.skops")

# What a run may leave behind that ended before it began to write a round.
_BEFORE_ROUNDS = {LOCK_FILE, HISTORY, ENVIRONMENT, SPLIT, RUN}


def round_file(round: int, name: str) -> str:
    """Return a file's name within the run folder.

    >>> round_file(7, POOL)
    'rounds/007/pool.parquet'
    """
    return f"{ROUNDS}/{round:03d}/{name}"


def began(path: Path) -> bool:
    """Whether the folder holds more of a run than a start that was broken off leaves behind."""
    return (path / RUN).exists() or (path / ROUNDS).exists()


def refuse_existing(path: Path) -> None:
    """Raise `RunExistsError` unless the folder is missing, empty, or what a run left that has written no round."""
    if not path.exists():
        return
    if not path.is_dir():
        raise RunExistsError(f"'{path}' is a file; choose another name for the run's folder.")
    names = {entry.name for entry in path.iterdir() if not is_temporary(entry)}
    if began(path) and not (names <= _BEFORE_ROUNDS and _has_no_round(path)):
        raise RunExistsError(
            f"The folder '{path}' holds a run already, and nothing was overwritten. Resume it (surelabel resume "
            f"{path}), or, to begin with other settings, choose another folder or remove this one."
        )
    if names and not (LOCK_FILE in names and names <= _BEFORE_ROUNDS):
        raise RunExistsError(
            f"The folder '{path}' is not empty ('{min(names)}'), and nothing was overwritten. Choose a new or an empty "
            "folder."
        )


def _has_no_round(path: Path) -> bool:
    """Whether the history says that no round is done; one that is damaged or missing does not say it."""
    try:
        return not read_json(path / HISTORY).get("rounds", True)
    except DamagedFileError:
        return False
