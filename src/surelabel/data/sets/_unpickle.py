"""Pickles of plain values and arrays of bytes, read without running anything that they name.

A pickle tells its reader which functions to call. CIFAR's files name three of numpy's (and, when Python 3 wrote them,
another of numpy's, or what makes bytes of a text or of nothing). Here these names only stand for records that keep what
they are given; any other name is refused. The array is made from its record afterwards, once its kind and size have
been checked.
"""

import io
import pickle
import struct
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from surelabel.errors import DataError

_MULTIARRAY = ("numpy.core.multiarray", "numpy._core.multiarray")
_NUMERIC = ("numpy.core.numeric", "numpy._core.numeric")
_ARRAY, _BUFFER, _TYPE, _ENCODE, _BYTES = "_reconstruct", "_frombuffer", "dtype", "encode", "bytes"
_KNOWN = {
    *((module, _ARRAY) for module in _MULTIARRAY),
    *((module, _BUFFER) for module in _NUMERIC),
    ("numpy", "ndarray"),
    ("numpy", _TYPE),
    ("_codecs", _ENCODE),
    ("__builtin__", _BYTES),
}
_STEPS = pickle._Unpickler.dispatch
"""What Python's unpickler does at each code of a pickle."""

_FAILURES = (
    pickle.UnpicklingError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    TypeError,
    ValueError,
    struct.error,
)
"""What Python's unpickler raises on bytes that are not a whole pickle."""


def unpickle(name: str, data: bytes) -> dict[str, Any]:
    """Return the dictionary in a pickle: texts and integers as they are, byte arrays as uint8 arrays.

    Strings of Python 2 stay bytes in the values; keys are text in either case.

    Args:
        name: what the file is called in an error.
        data: the file's bytes.

    >>> unpickle("meta", pickle.dumps({"num_vis": 3072}, protocol=2))
    {'num_vis': 3072}
    """
    try:
        content = _Reader(io.BytesIO(data), encoding="bytes").load()
    except DataError as error:
        raise DataError(f"File '{name}': {error}") from None
    except _FAILURES as error:
        raise DataError(f"File '{name}' is damaged or not a pickle ({error or 'cut off'}); get it again.") from error
    if not isinstance(content, dict):
        raise DataError(f"File '{name}' must hold a dictionary. Got a {type(content).__name__} instead; get it again.")
    return {_text(key): _made(name, value) for key, value in content.items()}


def _with_text_keys(load: Callable[[Any], None], keys: slice) -> Callable[[Any], None]:
    """Return a step of the reader that looks at the keys on its stack first: tuples are hashed as deep as they go."""

    def checked(reader: Any) -> None:
        if not all(isinstance(key, (bytes, str)) for key in reader.stack[keys]):
            raise pickle.UnpicklingError("a dictionary has a key that is no text")
        load(reader)

    return checked


class _Reader(pickle._Unpickler):
    """Python's unpickler in Python: a damaged number makes the one in C ask for gigabytes (its memo is an array).

    Sets are not read, and keys are text. A bytearray, whose length Python believes, is read as bytes.
    """

    dispatch: ClassVar = {
        **{code: step for code, step in _STEPS.items() if code not in (pickle.EMPTY_SET[0], pickle.FROZENSET[0])},
        pickle.DICT[0]: _with_text_keys(_STEPS[pickle.DICT[0]], slice(None, None, 2)),
        pickle.SETITEM[0]: _with_text_keys(_STEPS[pickle.SETITEM[0]], slice(-2, -1)),
        pickle.SETITEMS[0]: _with_text_keys(_STEPS[pickle.SETITEMS[0]], slice(None, None, 2)),
        pickle.BYTEARRAY8[0]: _STEPS[pickle.BINBYTES8[0]],
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _KNOWN:
            raise DataError(
                f"the pickle names '{module}.{name}', which is not read because it could run code; CIFAR's files name "
                "only numpy's arrays, so this is another file or a damaged one. Get it from its official address."
            )
        return _Name(name)


class _Name:
    """Stands for one of numpy's functions; a new one for each mention, so that no file can change what others see."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *arguments: Any) -> Any:
        if self.name == _ENCODE and len(arguments) == 2 and arguments[1] == "latin1" and isinstance(arguments[0], str):
            return arguments[0].encode("latin1")
        if self.name == _BYTES and not arguments:
            return b""
        if self.name in (_ARRAY, _TYPE):
            return _Record(self.name, arguments)
        if self.name == _BUFFER and len(arguments) >= 4 and isinstance(arguments[0], bytes):
            values, kind, shape, order, *axes = arguments
            if order in ("C", "F") and axes in ([], [None]):
                array = _Record(_ARRAY, ())
                array.state = (1, shape, kind, order == "F", values)
                return array
        raise pickle.UnpicklingError(f"{self.name} is called with arguments that no array has")


class _Record:
    """An array or a type as a pickle describes it: the arguments of its constructor and its state."""

    __slots__ = ("arguments", "kind", "state")

    def __init__(self, kind: str, arguments: tuple[Any, ...]) -> None:
        self.kind, self.arguments = kind, arguments
        self.state: Any = ()

    def __setstate__(self, state: Any) -> None:
        self.state = state


def _made(name: str, value: Any) -> Any:
    return _array(name, value) if isinstance(value, _Record) else value


def _array(name: str, record: _Record) -> npt.NDArray[np.uint8]:
    """Make the array whose state is (version, shape, type, column by column or not, bytes)."""
    problem = DataError(f"File '{name}' holds an array that is not one of bytes (uint8), or not whole; get it again.")
    if record.kind != _ARRAY or not isinstance(record.state, tuple) or len(record.state) != 5:
        raise problem
    _, shape, kind, by_column, values = record.state
    if not isinstance(kind, _Record) or kind.kind != _TYPE:
        raise problem
    first = next(iter(kind.arguments), None)
    if not isinstance(first, (bytes, str)) or _text(first) not in ("u1", "|u1"):
        raise problem
    if not isinstance(values, bytes) or not isinstance(shape, tuple):
        raise problem
    try:
        return np.frombuffer(values, dtype=np.uint8).reshape(shape, order="F" if by_column else "C")
    except (TypeError, ValueError):  # a shape of other things than numbers, or of another size
        raise problem from None


def _text(value: bytes | str) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else value
