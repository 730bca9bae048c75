"""What the JSON files of a run folder hold, checked once, when one is read: a checksum tells damage, not nonsense."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from surelabel._version import __version__
from surelabel.base.text import shown
from surelabel.errors import DamagedFileError, RunError
from surelabel.records import RoundRecord, with_scores
from surelabel.runs.files import RESTORE, read_json

Entry = dict[str, Any]
"""A round in history.json: the record's numbers, and "files" with their checksums."""

_Files = dict[
    Annotated[str, Field(pattern="^rounds/[0-9]{3,7}/[^/]+$")],
    Annotated[str, Field(pattern="^[0-9a-f]{64}$")],
]
_Ids = list[int | float | str]


class _Content(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


def _round() -> type[_Content]:
    """Return the type of a round: the fields of its record, but for the tables, and its files."""
    fields: dict[str, Any] = {
        item.name: (item.type, ... if item.default is dataclasses.MISSING else item.default)
        for item in dataclasses.fields(RoundRecord)
        if item.name not in ("pool", "validation")
    }
    return create_model("Round", __base__=_Content, files=(_Files, ...), **fields)


class _History(_Content):
    if TYPE_CHECKING:
        rounds: list[_Content]
    else:
        rounds: list[_round()]


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


def read_history(path: Path, num_classes: int) -> list[Entry]:
    """Return the finished rounds, in their order, each with its own files."""
    rounds: list[Entry] = _read(path, _History, _current)["rounds"]
    for number, entry in enumerate(rounds):
        folder = f"rounds/{number:03d}/"
        counts = len(entry["class_counts"]), len(entry["class_counts_before"])
        if entry["round"] != number or not all(name.startswith(folder) for name in entry["files"]):
            raise damaged(path, f"entry {number} is not that of round {number}")
        if counts != (num_classes, num_classes):
            raise damaged(path, f"round {number} counts {counts[0]} and {counts[1]} classes; the run has {num_classes}")
    return rounds


def read_environment(path: Path) -> list[dict[str, Any]]:
    """Return versions, machine and command line of each part of the run."""
    entries: list[dict[str, Any]] = _read(path, _Environments)["entries"]
    return entries


def read_split(path: Path) -> dict[str, Any]:
    """Return the ids of the labeled and of the validation samples, and their hash."""
    return _read(path, _Split)


def first_mistake(error: ValidationError) -> str:
    """Return where the first of the things lies that are not as they should be, and what is wrong with it."""
    item = error.errors()[0]
    place = [f"{shown('.'.join(map(str, item['loc'])), limit=100)}: "] if item["loc"] else []
    return "".join([*place, shown(item["msg"].removeprefix("Value error, "), quote=False, limit=200)])


def damaged(path: Path, reason: object) -> DamagedFileError:
    """The error for a file that is whole by its checksum, and nonsense."""
    return DamagedFileError(f"File '{path}' is damaged: {shown(reason, quote=False, limit=300).rstrip('.')}. {RESTORE}")


def _current(content: dict[str, Any]) -> dict[str, Any]:
    """Return a history as this version writes it; nonsense stays as it is, to be named."""
    rounds = content.get("rounds")
    if not isinstance(rounds, list) or not all(isinstance(entry, dict) for entry in rounds):
        return content
    return {**content, "rounds": [with_scores(entry) for entry in rounds]}


def _read(
    path: Path, kind: type[_Content], current: Callable[[dict[str, Any]], dict[str, Any]] = lambda content: content
) -> dict[str, Any]:
    content = current(read_json(path))
    try:
        kind.model_validate(content)
    except ValidationError as error:
        if error.errors()[0]["type"] == "extra_forbidden":
            raise RunError(
                f"File '{path}' holds what surelabel {__version__} does not know ({first_mistake(error)}). Install the "
                "version that wrote it."
            ) from error
        raise damaged(path, first_mistake(error)) from error
    return content
