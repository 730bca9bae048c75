"""The content of a run folder: the names of its files, and its JSON files, which are checked once, when read.

A checksum detects damage, but not invalid content. Also here: whether a folder is free for a run.
"""

import dataclasses
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, model_validator

from surelabel._version import __version__
from surelabel.base.text import shown
from surelabel.base.trust import is_signed
from surelabel.data.table_encoding import TEXTS
from surelabel.errors import DamagedFileError, NewerRunError, RunError, RunExistsError
from surelabel.records import Amount, Count, RoundRecord, Share, with_scores
from surelabel.runs.files import damaged, is_temporary, read_json
from surelabel.settings import RunSettings

FORMAT = 2
"""The layout of run folders that this version writes; it also reads all earlier ones.

2: the table of negatives has a row for each sample, not for each of its negatives.
"""

RUN, HISTORY, ENVIRONMENT, SPLIT, ROUNDS = "run.json", "history.json", "environment.json", "split.json", "rounds"
POOL, NEGATIVES = "pool.parquet", "negatives.parquet"
VALIDATION, VALIDATION_NEGATIVES = "validation.parquet", "validation_negatives.parquet"
CHECKPOINT, LOCK_FILE = "checkpoint.bin", ".lock"
COMPARISON, FOLDS, LINEAR_MODEL = "comparison.json", "comparison", "linear.skops"
MODELS = ("model.safetensors", "model.skops")

# What a run may leave behind if it ended before its first round was written.
_BEFORE_ROUNDS = {LOCK_FILE, HISTORY, ENVIRONMENT, SPLIT, RUN, TEXTS}


def round_file(round: int, name: str) -> str:
    """Return a file's name within the run folder.

    >>> round_file(7, POOL)
    'rounds/007/pool.parquet'
    """
    return f"{ROUNDS}/{round:03d}/{name}"


def fold_file(fold: int, name: str) -> str:
    """Return the name of a fold's file within the run folder.

    >>> fold_file(2, "linear.parquet")
    'comparison/2/linear.parquet'
    """
    return f"{FOLDS}/{fold}/{name}"


def began(path: Path) -> bool:
    """Whether the folder holds more of a run than an interrupted start leaves behind."""
    return (path / RUN).exists() or (path / ROUNDS).exists()


def refuse_existing(path: Path) -> None:
    """Raise `RunExistsError` unless the folder is missing, empty, or left by a run that has written no round."""
    if not path.exists():
        return
    if not path.is_dir():
        raise RunExistsError(f"'{path}' is a file; choose another name for the run's folder.")
    names = {entry.name for entry in path.iterdir() if not is_temporary(entry)}
    if began(path) and not (names <= _BEFORE_ROUNDS and _has_no_round(path)):
        remedy = f"Resume it (surelabel resume {path}), remove it, or choose another folder"
        raise RunExistsError(f"The folder '{path}' holds a run already. {remedy}.")
    if names and not (LOCK_FILE in names and names <= _BEFORE_ROUNDS):
        raise RunExistsError(f"The folder '{path}' is not empty ('{min(names)}'); choose a new or an empty one.")


def _has_no_round(path: Path) -> bool:
    """Whether the history says that no round is done; False if it is damaged or missing."""
    try:
        return not read_json(path / HISTORY).get("rounds", True)
    except DamagedFileError:
        return False


Entry = dict[str, Any]
"""A round in history.json: the record's numbers, and "files" with their checksums."""

_Name = Annotated[str, Field(pattern="^rounds/[0-9]{3,7}/[^/]+$")]
_Checksum = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
_Ids = list[int | float | str]


class _Content(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class _Round(_Content):
    files: dict[_Name, _Checksum]

    @model_validator(mode="before")
    @classmethod
    def _of_an_earlier_version(cls, entry: Any) -> Any:
        return with_scores(entry) if isinstance(entry, dict) else entry


def _history() -> type[_Content]:
    """Return the type of history.json: for each round the files, and the fields of its record except the tables."""
    fields: dict[str, Any] = {
        item.name: (item.type, ... if item.default is dataclasses.MISSING else item.default)
        for item in dataclasses.fields(RoundRecord)
        if item.name not in ("pool", "validation")
    }
    of_a_round: Any = create_model("Round", __base__=_Round, **fields)
    return create_model("History", __base__=_Content, rounds=(list[of_a_round], ...))


class _Environment(_Content):
    model_config = ConfigDict(extra="allow")

    versions: dict[str, str]
    platform: str
    processor: str
    cores: int | None
    commit: str | None
    command: list[str]
    device: str
    time: str


class _Environments(_Content):
    entries: list[_Environment] = Field(min_length=1)


class _Split(_Content):
    labeled: _Ids
    validation: _Ids
    hash: str


class _Fold(_Content):
    files: dict[Annotated[str, Field(pattern="^comparison/[0-9]{1,2}/[a-z]+(_negatives)?[.]parquet$")], _Checksum]
    minutes: Amount


class _Promise(_Content):
    tau_p: Share | None
    kappa_p: Amount | None
    num_selected: Count
    num_wrong: Count
    num_samples: Count
    max_error: Share
    delta: Share
    more_labels: Count | None


class _Comparison(_Content):
    round: Count
    judged_by: Literal["validation set", "cross-validation"]
    planned: Count
    folds: list[_Fold]
    kept: Literal["linear", "first", "last"] | None
    linear: _Checksum | None
    promise: _Promise | None

    @model_validator(mode="after")
    def _check_linear(self) -> Self:
        if self.kept == "linear" and self.linear is None:
            raise ValueError("a linear model is kept, and there is none")
        return self


_KINDS: dict[str, type[_Content]] = {
    HISTORY: _history(),
    ENVIRONMENT: _Environments,
    SPLIT: _Split,
    COMPARISON: _Comparison,
}


class RunFile(NamedTuple):
    """What run.json says: the settings, the version and the format of the folder, and whether this user has signed."""

    settings: RunSettings
    version: str
    format: int
    signed: bool


def read_settings(folder: Path) -> RunFile:
    """Return what run.json says."""
    path = folder / RUN
    if not path.exists() and not began(folder):
        problem = "a file" if folder.is_file() else "a folder without run.json" if folder.exists() else "not there"
        raise RunError(f"There is no run in '{folder}', which is {problem}. Check the name, or start a run there.")
    content = read_json(path)
    version = shown(content.get("version"), quote=False)
    number = content.get("format")
    number = number if isinstance(number, int) else 1
    if number > FORMAT:
        written = f"was written by surelabel {version} in format {number}"
        raise NewerRunError(f"The run in '{folder}' {written}; install it. {__version__} reads format {FORMAT}.")
    try:
        settings = RunSettings.model_validate(content.get("settings"))
    except ValidationError as error:
        unknown = f"settings that {__version__} does not know ({first_mistake(error)})"
        raise RunError(f"File '{path}' of surelabel {version} has {unknown}. Install that version.") from error
    classes, num_classes = settings.classes, settings.config.num_classes
    if not classes or len(set(classes)) < len(classes) or num_classes not in (None, len(classes)):
        raise damaged(path, f"its classes are {list(classes)}, and config.num_classes is {num_classes}")
    return RunFile(settings, version, number, is_signed(content["settings"], content.get("signature")))


def read_document(folder: Path, name: str) -> dict[str, Any]:
    """Return the content of another JSON file of the run, in this version's form."""
    path = folder / name
    content = read_json(path)
    try:
        return _KINDS[name].model_validate(content).model_dump()
    except ValidationError as error:
        mistake = first_mistake(error)
        if error.errors()[0]["type"] != "extra_forbidden":
            raise damaged(path, mistake) from error
        unknown = f"does not know what '{path}' holds ({mistake})"
        raise RunError(f"surelabel {__version__} {unknown}. Install the version that wrote it.") from error


def read_history(folder: Path, num_classes: int) -> list[Entry]:
    """Return the finished rounds, in their order, each with its own files."""
    rounds: list[Entry] = read_document(folder, HISTORY)["rounds"]
    for number, entry in enumerate(rounds):
        start = round_file(number, "")
        if entry["round"] != number or not all(name.startswith(start) for name in entry["files"]):
            raise damaged(folder / HISTORY, f"entry {number} is not that of round {number}")
        if any(len(entry[counts]) != num_classes for counts in ("class_counts", "class_counts_before")):
            raise damaged(folder / HISTORY, f"round {number} does not count {num_classes} classes")
    return rounds


def first_mistake(error: ValidationError) -> str:
    """Return the place of the first mistake, and what is wrong there."""
    item = error.errors()[0]
    message = shown(item["msg"].removeprefix("Value error, "), quote=False, limit=200)
    return f"{shown('.'.join(map(str, item['loc'])), limit=100)}: {message}" if item["loc"] else message
