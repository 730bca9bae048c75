"""Where samples come from: something with ids, a length, and rows on demand."""

import sys
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any, Protocol, TypeAlias, runtime_checkable

import array_api_compat
import numpy as np
import numpy.typing as npt

from surelabel.core.arrays import to_numpy
from surelabel.errors import InvalidInputError

Ids: TypeAlias = npt.NDArray[Any]
Index: TypeAlias = npt.NDArray[np.int64]


@runtime_checkable
class Source(Protocol):
    """Samples that a learner reads: `source[index]` returns the rows at these positions, stacked."""

    @property
    def ids(self) -> Ids:
        """The name of each sample, unique, integers or strings, shape (N,)."""

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """The shape of one sample."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: Index) -> Any: ...


class ArraySource:
    """Samples in memory: a numpy array, a torch tensor or a scipy sparse matrix, one row per sample.

    >>> source = ArraySource(np.zeros((3, 2)), ids=np.array(["a", "b", "c"]))
    >>> len(source), source.sample_shape
    (3, (2,))
    """

    def __init__(self, x: Any, ids: Any = None, first_id: int = 0) -> None:
        self.columns = _column_names(x)
        x = _numbers(x) if hasattr(x, "to_numpy") else x  # a DataFrame
        shape = getattr(x, "shape", None)
        if shape is None or len(shape) < 2:
            got = type(x).__name__ if shape is None else f"{type(x).__name__} of shape {tuple(shape)}"
            raise InvalidInputError(f"Samples must be an array, shape (N, ...), with a row each; got {got}.")
        self.x = x.tocsr() if hasattr(x, "tocsr") else native(x) if isinstance(x, np.ndarray) else x
        self.ids: Ids = np.arange(first_id, first_id + shape[0]) if ids is None else native(to_numpy(ids))
        if self.ids.shape != (shape[0],):
            raise InvalidInputError(f"ids must name each of the {shape[0]} samples; got shape {self.ids.shape}.")

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return tuple(self.x.shape[1:])

    def __len__(self) -> int:
        return int(self.x.shape[0])

    def __getitem__(self, index: Index) -> Any:
        return self.x[index]


class FrameSource:
    """Samples that only the user's classifier can read: the rows of a DataFrame, or an array of texts, shape (N,).

    >>> FrameSource(np.array(["a text", "another"], dtype=object))[np.array([1])]
    array(['another'], dtype=object)
    """

    def __init__(self, x: Any, ids: Any = None) -> None:
        self.x, self.columns = x, _column_names(x)
        self.ids: Ids = np.arange(len(x)) if ids is None else native(to_numpy(ids))

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """The number of columns; of texts, nothing."""
        return tuple(self.x.shape[1:])

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: Index) -> Any:
        return self.x.iloc[index] if hasattr(self.x, "iloc") else self.x[index]


def is_frame(x: Any) -> bool:
    """Whether this is a DataFrame of pandas."""
    return type(x).__module__.startswith("pandas") and hasattr(x, "columns")


def _has_numbers(frame: Any) -> bool:
    return all(kind.kind in "biuf" for kind in frame.dtypes)


def _numbers(frame: Any) -> npt.NDArray[Any]:
    """Return the values of a DataFrame; pandas makes objects of nullable numbers, and of booleans beside numbers."""
    if is_frame(frame) and _has_numbers(frame) and frame.to_numpy().dtype == object:
        return np.asarray(frame.to_numpy(dtype=np.float64, na_value=np.nan))
    return np.asarray(frame.to_numpy())


def _column_names(x: Any) -> tuple[str, ...]:
    """Return the names of a DataFrame's columns; nothing if they are just numbered."""
    names = tuple(x.columns) if is_frame(x) else ()
    return names if all(isinstance(name, str) for name in names) else ()


def check_columns(name: str, source: Source, labeled: Source) -> None:
    """Refuse a DataFrame whose columns are not those of the labeled samples, in their order."""
    found, wanted = (getattr(one, "columns", ()) for one in (source, labeled))
    if not found or not wanted or found == wanted:
        return
    pairs = enumerate(zip_longest(map(repr, found), map(repr, wanted), fillvalue="missing"), start=1)
    number, (here, there) = next((number, pair) for number, pair in pairs if pair[0] != pair[1])
    problem = f"column {number} is {here}, and {there} in the labeled samples"
    remedy = f"give both the same columns in one order, as in {name}[labeled.columns]"
    raise InvalidInputError(f"{name}: {problem}; {remedy}.")


class DatasetSource:
    """A map-style torch `Dataset`: `dataset[i]` is a sample, or a tuple that begins with one; samples have one shape.

    >>> source = DatasetSource([(np.ones(2), "cat"), (np.zeros(2), "dog")], ids=np.array(["a", "b"]))
    >>> source[np.array([1, 0])].tolist(), source.sample_shape
    ([[0.0, 0.0], [1.0, 1.0]], (2,))
    """

    def __init__(self, dataset: Any, ids: Any = None, first_id: int = 0) -> None:
        if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
            remedy = "give one with __getitem__ and __len__"
            raise InvalidInputError(f"A dataset must be map-style; got {type(dataset).__name__}; {remedy}.")
        if not len(dataset):
            raise InvalidInputError(f"The dataset {type(dataset).__name__} is empty; check where it reads from.")
        self.dataset = dataset
        self.ids: Ids = np.arange(first_id, first_id + len(dataset)) if ids is None else native(to_numpy(ids))
        if self.ids.shape != (len(dataset),):
            raise InvalidInputError(f"ids must name each of the {len(dataset)} samples; got shape {self.ids.shape}.")
        self.sample_shape = tuple(self._sample(0).shape)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: Index) -> npt.NDArray[Any]:
        samples = [self._checked(int(place)) for place in np.asarray(index)]
        return np.stack(samples) if samples else np.empty((0, *self.sample_shape), dtype=np.float32)

    def _checked(self, place: int) -> npt.NDArray[Any]:
        sample = self._sample(place)
        if sample.shape != self.sample_shape:
            shapes = f"{sample.shape}, and sample 0 {self.sample_shape}"
            raise InvalidInputError(f"Sample {place} of the dataset has shape {shapes}; give all samples one shape.")
        return sample

    def _sample(self, place: int) -> npt.NDArray[Any]:
        found = self.dataset[place]
        found = found[0] if isinstance(found, (tuple, list)) else found
        if not hasattr(found, "shape"):
            problem = f"Sample {place} of the dataset is a {type(found).__name__}"
            raise InvalidInputError(f"{problem}; let it return an array or a tensor, or a tuple that begins with one.")
        return to_numpy(found)


class Subset:
    """Some rows of another source, in the order of `index`."""

    def __init__(self, source: Source, index: Index) -> None:
        self.source, self.index = source, index
        self.ids, self.sample_shape = source.ids[index], source.sample_shape

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, index: Index) -> Any:
        return self.source[self.index[index]]


class Renamed:
    """The samples of another source under other ids."""

    def __init__(self, source: Source, ids: Ids) -> None:
        self.source, self.ids, self.sample_shape = source, ids, source.sample_shape

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: Index) -> Any:
        return self.source[index]


class Concatenation:
    """The rows of one source, then those of another."""

    def __init__(self, first: Source, second: Source) -> None:
        if first.sample_shape != second.sample_shape:
            shapes = f"{first.sample_shape} and {second.sample_shape}"
            raise InvalidInputError(f"Labeled and unlabeled samples must have one shape; got {shapes}.")
        self.first, self.second, self.sample_shape = first, second, first.sample_shape
        self.columns = getattr(first, "columns", ())

    @property
    def ids(self) -> Ids:
        """The ids of both, built at each access: for a large pool they take as much memory as its labels."""
        return join_ids([self.first.ids, self.second.ids])

    def __len__(self) -> int:
        return len(self.first) + len(self.second)

    def __getitem__(self, index: Index) -> Any:
        index = np.asarray(index)
        in_first = index < len(self.first)
        if in_first.all():
            return self.first[index]
        if not in_first.any():
            return self.second[index - len(self.first)]
        parts = _stack(self.first[index[in_first]], self.second[index[~in_first] - len(self.first)])
        order = np.argsort(np.argsort(~in_first, kind="stable"))
        return parts.iloc[order] if is_frame(parts) else parts[order]


def as_source(name: str, value: Any, first_id: int = 0) -> Source:
    """Return `value` when it is a source; wrap an array, a data frame or a torch dataset."""
    if isinstance(value, Source):
        return value
    if is_frame(value) and not _has_numbers(value):
        return FrameSource(value, np.arange(first_id, first_id + len(value)))
    try:
        if _is_dataset(value):
            return DatasetSource(value, first_id=first_id)
        return ArraySource(value, first_id=first_id)
    except InvalidInputError as error:
        raise InvalidInputError(f"{name}: {error}") from None


def _is_dataset(value: Any) -> bool:
    """Whether a value is a torch dataset; False if torch is not loaded."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.utils.data.Dataset)


def native(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return numbers in a form for torch and Arrow: in this machine's byte order, floats of at most 64 bits."""
    wide = array.dtype.kind == "f" and array.dtype.itemsize > 8
    with np.errstate(over="ignore", invalid="ignore"):  # infinities are refused later
        return array.astype(np.float64 if wide else array.dtype.newbyteorder("="), copy=False)


def join_ids(parts: Sequence[Ids]) -> Ids:
    """Return the ids of several sources, one behind the other.

    >>> join_ids([np.array([1]), np.array([2**64 - 1], dtype=np.uint64)]).tolist()
    [1, 18446744073709551615]
    """
    if {part.dtype.kind for part in parts} == {"i", "u"}:
        # Numpy would turn signed and unsigned integers together into floats, which cannot distinguish large ones.
        smallest, largest = min(part.min(initial=0) for part in parts), max(part.max(initial=0) for part in parts)
        if smallest < 0 and largest >= 1 << 63:
            raise InvalidInputError(f"No integers hold both the ids {smallest} and {largest}; make all of them text.")
        parts = [part.astype(np.uint64 if smallest >= 0 else np.int64) for part in parts]
    return np.concatenate(parts)


def positions(names: Iterable[Any], ids: Iterable[Any]) -> Index:
    """Return the place of each id among names, (N,).

    >>> positions(["a", "b", "c"], ["c", "a"]).tolist()
    [2, 0]
    """
    place = {name: row for row, name in enumerate(names)}
    return np.array([place[name] for name in ids], dtype=np.int64)


def check_unique_ids(ids: Ids) -> None:
    """Refuse ids that name two samples, and ids that cannot be compared."""
    try:
        values, counts = np.unique(ids, return_counts=True)
    except TypeError as error:
        raise InvalidInputError(f"ids must be all integers or all strings ({error}); use astype(str).") from None
    if (counts > 1).any():
        name, *_ = values[counts > 1].tolist()
        twice = f"The id {name!r} names {int(counts.max())} samples"
        raise InvalidInputError(f"{twice}; give unique ids to labeled and unlabeled samples, or to neither.")


def _stack(first: Any, second: Any) -> Any:
    if type(first) is not type(second):
        kinds = f"{type(first).__name__} and {type(second).__name__}"
        raise InvalidInputError(f"Labeled and unlabeled samples must be of one kind; got {kinds}.")
    if hasattr(first, "tocsr"):
        from scipy.sparse import vstack

        return vstack([first, second], format="csr")
    if is_frame(first):
        import pandas

        return pandas.concat([first, second])
    return array_api_compat.array_namespace(first).concat([first, second])
