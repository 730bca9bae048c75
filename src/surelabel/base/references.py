"""Code named by reference: "module:name", or "path/file.py:name" with the file's content hash.

So settings are plain text, and another process can continue a run. Resolving a reference imports the code that it
names: do this only for settings that you trust.
"""

import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from surelabel.errors import ChangedFileError, InvalidInputError, SurelabelError

MOVED = {
    "surelabel.recipes.datasets:cifar10": "surelabel.data.sets:cifar10",
    "surelabel.recipes.datasets:cifar100": "surelabel.data.sets:cifar100",
    "surelabel.recipes.datasets:ucf101": "surelabel.data.sets:ucf101",
    "surelabel.recipes.datasets:voc2007": "surelabel.data.sets:voc2007",
    "surelabel.recipes.demo:digits": "surelabel.reproduce.digits:digits",
}
"""Names of our own code in runs of earlier versions, and the current names."""

_PREFIX = "surelabel_reference_"

_CODE = {"function": "sha256", "model": "model_hash", "estimator": "estimator_hash"}
"""Settings that may name code in a file, and those that hold the file's content hash."""


def current_name(reference: str) -> str:
    """Return the current name for a reference of an earlier version.

    >>> current_name("surelabel.recipes.datasets:cifar10"), current_name("math:sqrt")
    ('surelabel.data.sets:cifar10', 'math:sqrt')
    """
    return MOVED.get(reference, reference)


def first_name(reference: str) -> str:
    """Return the name under which runs first knew a reference: hashes of settings use it.

    >>> first_name("surelabel.data.sets:cifar10"), first_name("math:sqrt")
    ('surelabel.recipes.datasets:cifar10', 'math:sqrt')
    """
    return next((first for first, now in MOVED.items() if now == reference), reference)


def is_own_code(module: str) -> bool:
    """Whether a module of this name was made from a file of the user's, "file.py:name".

    >>> is_own_code("math")
    False
    """
    return module.startswith(_PREFIX)


@contextmanager
def failing(problem: str, remedy: str = "") -> Iterator[None]:
    """Name the problem if installed code fails in any way; an error in the user's file.py keeps its traceback.

    >>> with failing("No square root with these parameters"):
    ...     resolve("math:sqrt")(-1)
    Traceback (most recent call last):
    surelabel.errors.InvalidInputError: No square root with these parameters (ValueError: math domain error).
    """
    try:
        yield
    except (MemoryError, SurelabelError):
        raise
    except Exception as error:
        frames = traceback.walk_tb(error.__traceback__)
        if any(is_own_code(frame.f_globals.get("__name__", "")) for frame, _ in frames):
            raise
        reason = " ".join(str(error).split())[:300]
        raise InvalidInputError(f"{problem} ({type(error).__name__}: {reason}). {remedy}".rstrip()) from error


def check_call(problem: str, function: Any, named: Mapping[str, Any], /, *first: Any, **told: Any) -> None:
    """Refuse unknown and missing arguments before a function or class is called with them.

    Args:
        problem: what cannot be done.
        function: what is to be called, a function or a class.
        named: arguments that the user gives.
        first: those before them, which we add ourselves.
        told: others that we add, by name.

    Example:
        >>> check_call("No fraction", resolve("fractions:Fraction.from_float"), {"g": 1})
        Traceback (most recent call last):
        surelabel.errors.InvalidInputError: No fraction: missing a required argument: 'f'. It takes f.
    """
    try:
        signature = inspect.signature(function)
    except ValueError:  # some builtins have no signature
        return
    try:
        signature.bind(*first, **told, **named)
    except TypeError as error:
        own = [name for name in list(signature.parameters)[len(first) :] if name not in told]
        raise InvalidInputError(f"{problem}: {error}. It takes {', '.join(own) or 'no parameters'}.") from error


def call(problem: str, function: Any, named: Mapping[str, Any], /, *first: Any, **told: Any) -> Any:
    """Call a function or class with what the user gives, by name; arguments as for `check_call`."""
    check_call(problem, function, named, *first, **told)
    with failing(problem, "Correct the parameters."):
        return function(*first, **told, **named)


def resolve(reference: str, expected: str | None = None) -> Any:
    """Return the object that a reference names; dots lead into classes, and nowhere else.

    Args:
        reference: "module:name" or "file.py:name".
        expected: the content hash of file.py when the settings were made; a file that has changed is refused.

    Example:
        >>> resolve("math:sqrt")(9.0), resolve("fractions:Fraction.from_float")(0.5)
        (3.0, Fraction(1, 2))
    """
    home, name = _split(reference)
    if expected is not None and not home.endswith(".py"):
        raise InvalidInputError(f"Only files have a content hash, and {reference!r} is a module. Remove the hash.")
    try:
        module = _load_file(reference, expected) if home.endswith(".py") else importlib.import_module(home)
    except SurelabelError:
        raise
    except Exception as error:
        remedy = "Correct the file." if home.endswith(".py") else "Install it, or name your own as 'path/file.py:name'."
        why = f"{type(error).__name__}: {error}"
        raise InvalidInputError(f"{reference!r} cannot be used: importing '{home}' fails ({why}). {remedy}") from error
    first, *inner = name.split(".")
    try:
        found = getattr(module, first)
        for part in inner:
            # Not into modules: through what a module has imported, "mine:os.system", any code at all could be named.
            if not isinstance(found, type):
                kind = type(found).__name__
                raise InvalidInputError(f"{reference!r} has a dot after a {kind}; dots lead into classes only.")
            found = getattr(found, part)
        return found
    except AttributeError as error:
        known = ", ".join(key for key in vars(module) if not key.startswith("_"))[:300] or "nothing"
        raise InvalidInputError(f"{reference!r} leads nowhere: '{home}' has no {name!r}; it has {known}.") from error


def file_hash(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "abc")
    >>> _ = path.write_bytes(b"abc")
    >>> file_hash(path)[:16]
    'ba7816bf8f01cfea'
    """
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def pin(reference: str, sha256: str | None = None) -> tuple[str, str | None]:
    """Return the reference with its file's path, if it has one, made absolute, and the file's hash unless given.

    >>> pin("math:sqrt")
    ('math:sqrt', None)
    """
    home, name = _split(reference)
    if not home.endswith(".py"):
        return reference, sha256
    if sha256 is None:
        _check_file(reference, Path(home))
        sha256 = file_hash(home)
    return f"{os.path.abspath(home)}:{name}", sha256


def changed_file(path: object, expected: str, found: str | None) -> ChangedFileError:
    """The error for a file that a run depends on and that has changed since it began."""
    problem = f"File '{path}' has changed since the run began: its SHA-256 was {expected} and is {found}"
    return ChangedFileError(f"{problem}. Put the old file back, or start another run in another folder.")


def portable(values: dict[str, Any], *, hashes: bool = False) -> dict[str, Any]:
    """Return the JSON of a learner or of data with "file.py:name" for code in a file, with or without the file's hash.

    Runs are named and compared by it, so that another copy of the same repository finds them. Initial weights,
    estimators of uncertainty and methods keep their content hash, which distinguishes them in any folder.

    Example:
        >>> portable({"kind": "function", "function": "/home/me/mine.py:data", "sha256": "ab12", "arguments": {}})
        {'kind': 'function', 'function': 'mine.py:data', 'sha256': None, 'arguments': {}}
    """
    changes: dict[str, Any] = {}
    for name in (*_CODE, "uncertainty", "method"):
        short = _without_folder(values.get(name))
        if short != values.get(name):
            changes[name] = short
            if name in _CODE and not hashes:
                changes[_CODE[name]] = None
    if values.get("stochastic_layers"):
        changes["stochastic_layers"] = [_without_folder(layer) for layer in values["stochastic_layers"]]
        changes["layer_hashes"] = values["layer_hashes"] if hashes else []
    parameters = values.get("model_parameters", {})
    if values.get("pretrained_hash") and isinstance(parameters.get("pretrained"), str):
        changes["model_parameters"] = {**parameters, "pretrained": Path(parameters["pretrained"]).name}
    return {**values, **changes}


def portable_settings(values: dict[str, Any], *, hashes: bool = False) -> dict[str, Any]:
    """Return the JSON of a run's settings with `portable` parts."""
    parts = {name: values[name] for name in ("learner", "data") if values[name] is not None}
    return {**values, **{name: portable(part, hashes=hashes) for name, part in parts.items()}}


def _without_folder(reference: str | None) -> str | None:
    if reference is None or ":" not in reference:  # our own estimators are not references
        return reference
    home, name = _split(reference)
    return f"{Path(home).name}:{name}" if home.endswith(".py") else reference


def _split(reference: str) -> tuple[str, str]:
    # From the right: a path on Windows has a colon of its own.
    home, _, name = reference.rpartition(":")
    if not home or not all(part.isidentifier() for part in name.split(".")):
        raise InvalidInputError(f"A reference must be 'module:name' or 'path/file.py:name'. Got {reference!r}.")
    return home, name


def _load_file(reference: str, expected: str | None) -> ModuleType:
    path = Path(os.path.abspath(_split(reference)[0]))
    _check_file(reference, path)
    # Read once: the code that runs is the code that was compared, and not a compiled file next to it.
    code = path.read_bytes()
    found = hashlib.sha256(code).hexdigest()
    if expected is not None and found != expected:
        raise changed_file(path, expected, found)
    # One module per content: two references to a file share its classes, and a changed file is read again.
    name = f"{_PREFIX}{hashlib.sha256(os.fsencode(path) + code).hexdigest()[:24]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    # As for a script, files in its folder can be imported.
    sys.path.insert(0, str(path.parent))
    try:
        exec(compile(code, path, "exec", dont_inherit=True), module.__dict__)
    except Exception:
        del sys.modules[name]
        raise
    finally:
        sys.path.remove(str(path.parent))
    return module


def _check_file(reference: str, path: Path) -> None:
    if not path.is_file():
        raise InvalidInputError(f"{reference!r} names the file '{path}', which does not exist; check the path.")
