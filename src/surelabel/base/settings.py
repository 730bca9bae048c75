"""The base of all settings: frozen, validated, unknown keys refused with the nearest known name.

It also has the limits that settings share with the arguments of functions, so that a typo is reported before work
begins.
"""

import difflib
import re
from collections.abc import Callable
from typing import Annotated, Any, Self, TypeAlias

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

MOST_PASSES = 10_000
"""Stochastic passes, or members of an ensemble."""
TEMPERATURES = 0.1, 1e6
"""Of softened probabilities; with a smaller T, the power 1 / T would round them to 0."""
MOST_UNITS, MOST_LAYERS = 65_536, 100
"""Units of a hidden layer of the network for tables, and its layers."""
MOST_NOISE = 1000.0
"""On the features of a table, in units of the difference between neighbors."""
MOST_SAMPLES = 10**9
"""In a batch."""
MOST_STEPS = 10**12
"""Of a round."""
MOST_PROCESSES = 1024
"""Or threads."""


def check_device(name: str) -> str:
    """Refuse a name that is not that of any device; whether the machine has the device is checked elsewhere.

    >>> check_device("cuda:1")
    'cuda:1'
    """
    kind, _, number = name.partition(":")
    if not re.fullmatch("[a-z]+(:[0-9]{1,3})?", name) or kind == "meta" or (kind == "cpu" and int(number or 0)):
        raise ValueError("it must be cpu, cuda, or cuda: and the number of a GPU")
    return name


def _plain(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    """Return a plain value as pydantic does, whose own error would have a line for each kind of value.

    A scalar of numpy becomes Python's number of its kind: pydantic would make a float of any.
    """
    try:
        return check(value.item() if isinstance(value, np.generic) else value)
    except ValidationError as error:
        raise ValueError("it must be a finite number, true, false, a text or nothing") from error


Device = Annotated[str, AfterValidator(check_device)]
Seed = Annotated[int, Field(ge=0, lt=2**128)]
JSONScalar: TypeAlias = Annotated[bool | int | FiniteFloat | str | None, WrapValidator(_plain)]


class Settings(BaseModel):
    """What every room's settings share.

    Settings are values: they cannot be changed after they are made (use ``settings.replace(tau_p=0.8)``), they
    turn into JSON and back without loss, infinities included, and a misspelled key is an error.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, ser_json_inf_nan="strings", arbitrary_types_allowed=False
    )

    @model_validator(mode="before")
    @classmethod
    def _name_unknown_keys(cls, values: Any) -> Any:
        if isinstance(values, dict):
            known = list(cls.model_fields)
            unknown = [key for key in values if key not in known]
            if unknown:
                raise ValueError("; ".join(_unknown_key(cls.__name__, key, known) for key in unknown))
        return values

    def replace(self, **changes: Any) -> Self:
        """Return a validated copy with these values changed."""
        return type(self).model_validate({**dict(self), **changes})


def mistakes(error: ValidationError, name: Callable[[str], str] | None = None) -> list[str]:
    """Return one line for each mistake that pydantic found: the setting, what is wrong with it, and its value.

    Args:
        error: what pydantic raised.
        name: returns what the line calls a setting, given its name; None: its name and where it is.
    """
    lines = []
    for item in error.errors():
        message = " ".join(item["msg"].split()).removeprefix("Value error, ").rstrip(".")
        where = [str(part) for part in item["loc"]]
        called = name(where[0]) if name and where else ".".join(where)
        lines.append(f"Invalid value for '{called}': {message}. Got {item['input']!r}." if where else f"{message}.")
    return lines


def _unknown_key(owner: str, key: str, known: list[str]) -> str:
    close = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}."
    return f"{owner} has no setting {key!r}: {hint}"
