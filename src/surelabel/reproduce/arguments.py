"""What a user sets of an experiment's data sets, `--set split=2`: arguments of the recipe or of the data's function."""

import inspect
import json
from collections.abc import Sequence

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from surelabel.base.settings import mistakes
from surelabel.data.run_data import JSONScalar
from surelabel.errors import InvalidInputError
from surelabel.reproduce.entries import Arguments, Entry


def parse_arguments(texts: Sequence[str]) -> dict[str, JSONScalar]:
    """Return what each "NAME=VALUE" sets: JSON where the value is a number, true, false, null or quoted, else text.

    Example:
        >>> parse_arguments(["split=2", "groups=true", "on_error=skip"])
        {'split': 2, 'groups': True, 'on_error': 'skip'}
    """
    found: dict[str, JSONScalar] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (equals and name.isidentifier()):
            raise InvalidInputError(f"An argument is set by NAME=VALUE, split=2. Got {text!r} instead.")
        if name in found:
            raise InvalidInputError(f"The argument {name!r} is set twice; set it once.")
        found[name] = _scalar(value)
    return found


def _scalar(text: str) -> JSONScalar:
    try:
        value = json.loads(text, parse_constant=str)  # NaN and Infinity are no JSON
    except ValueError:
        return text
    return value if value is None or isinstance(value, bool | int | float | str) else text


def check_arguments(entries: Sequence[Entry], arguments: Arguments) -> None:
    """Refuse what cannot be set, of one of these entries or at all.

    Example:
        >>> from surelabel.reproduce.voc2007 import VOC2007
        >>> check_arguments([Entry("UPS", VOC2007, 500)], {"side": 128, "difficult": "absent"})
    """
    for entry in {entry.dataset: entry for entry in entries}.values():
        known, dataset = entry.settable(), entry.dataset.name
        for name, value in arguments.items():
            if name not in known:
                several = len({other.dataset for other in entries}) > 1
                remedy = " Every data set that is run must take it: choose with --data." if several else ""
                raise InvalidInputError(
                    f"The argument {name!r} of {dataset} cannot be set; {', '.join(known) or 'nothing'} can.{remedy}"
                )
            _check_kind(dataset, known[name], value)
        try:
            entry.base(0, "paper", arguments)
        except ValidationError as error:
            raise InvalidInputError(f"{dataset} cannot be set so. {' '.join(mistakes(error))}") from error


def _check_kind(dataset: str, parameter: inspect.Parameter, value: JSONScalar) -> None:
    """Refuse a value that is not of the kind that the argument's annotation, if it has one, names."""
    kind = parameter.annotation
    if kind is parameter.empty or isinstance(kind, str):
        return
    try:
        TypeAdapter(kind).validate_python(value, strict=True)
    except PydanticUserError:  # a kind that pydantic knows nothing of
        return
    except ValidationError as error:
        message = error.errors()[0]["msg"]
        raise InvalidInputError(
            f"The argument {parameter.name!r} of {dataset} cannot be set so: {message}. Got {value!r} instead."
        ) from error
