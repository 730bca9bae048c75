"""Load weights from a file, by parameter name; weights that do not fit the network are an error.

The file is .safetensors, or a state dict saved with torch.save (.pth, .pt), which is read with `weights_only` and so
runs no code. Nothing is downloaded.
"""

import logging
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from surelabel.base.text import SUFFIXES as SUFFIXES
from surelabel.base.text import check_size
from surelabel.core.arrays import bad_argument
from surelabel.errors import DataError, InvalidInputError

_SHOWN = 3
_COUNTER = ".num_batches_tracked"
_logger = logging.getLogger("surelabel")


@torch.no_grad()
def load_pretrained(network: nn.Module, path: str | os.PathLike[str], *, last: str = "fc") -> None:
    """Copy a file's weights into a network, in place, except the last layer if the number of classes differs.

    That exception is logged. BatchNorm's batch counters may be missing, as in older files; nothing else may.

    Args:
        network: its parameters and buffers are overwritten and keep their memory format.
        path: the file.
        last: the name of the last layer.

    Example:
        >>> import tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "weights.safetensors")
        >>> safetensors.torch.save_file({"weight": torch.ones(1, 2), "bias": torch.zeros(1)}, path)
        >>> layer = nn.Linear(2, 1)
        >>> load_pretrained(layer, path)
        >>> layer.weight
        Parameter containing:
        tensor([[1., 1.]], requires_grad=True)
    """
    mine, given = network.state_dict(), read_weights(path)
    names = {f"{last}.weight", f"{last}.bias"} & mine.keys()
    if names <= given.keys() and _has_other_classes(mine, given, names):
        classes = " and ".join(str(len(state[f"{last}.weight"])) for state in (given, mine))
        _logger.info("'%s' differs in number of classes (%s): its last layer '%s' is left out", path, classes, last)
        mine, given = ({name: state[name] for name in state.keys() - names} for state in (mine, given))
    _check_fit(path, mine, given)
    for name in mine.keys() & given.keys():
        mine[name].copy_(given[name])


def read_weights(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Return the tensors of a weights file by name, on the CPU.

    >>> read_weights("weights.onnx")
    Traceback (most recent call last):
    surelabel.errors.InvalidInputError: The 'pretrained' argument must be the path of a weights file (.safetensors,
    .pth, .pt). Got 'weights.onnx' instead; save the weights as one, or leave it out.
    """
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path).endswith(SUFFIXES):
        must = f"be the path of a weights file ({', '.join(SUFFIXES)})"
        raise bad_argument("pretrained", must, repr(path), "save the weights as one, or leave it out")
    try:
        if os.fspath(path).endswith(".safetensors"):
            content: Any = safetensors.torch.load_file(path)
        else:
            if zipfile.is_zipfile(path):
                with zipfile.ZipFile(path) as archive:
                    check_size(Path(path), sum(member.file_size for member in archive.infolist()))
            content = torch.load(path, map_location="cpu", weights_only=True)
    except DataError:
        raise
    # Whatever the readers raise on a file that is missing or damaged, or holds more than tensors.
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise InvalidInputError(
            f"The 'pretrained' file '{path}' cannot be read as weights ({type(error).__name__}: {reason}); check the "
            "path, get the file again, or save the network's state_dict() alone."
        ) from error
    if not isinstance(content, Mapping) or not all(isinstance(value, Tensor) for value in content.values()):
        held = _listed(list(content)) if isinstance(content, Mapping) else type(content).__name__
        raise InvalidInputError(f"'{path}' must hold tensors by name. Got {held}; save state_dict() alone.")
    return dict(content)


def _has_other_classes(mine: Mapping[str, Tensor], given: Mapping[str, Tensor], names: set[str]) -> bool:
    """Return whether the last layer differs only in its number of classes."""
    return any(mine[name].shape != given[name].shape for name in names) and all(
        mine[name].ndim == given[name].ndim and mine[name].shape[1:] == given[name].shape[1:] for name in names
    )


def _check_fit(path: str | os.PathLike[str], mine: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
    missing = [name for name in mine if name not in given and not name.endswith(_COUNTER)]
    unexpected = [name for name in given if name not in mine]
    shapes = [
        f"{name} {tuple(given[name].shape)} for {tuple(value.shape)}"
        for name, value in mine.items()
        if name in given and given[name].shape != value.shape
    ]
    kinds = {"missing": missing, "unexpected": unexpected, "of another shape": shapes}
    problems = [f"{kind}: {_listed(names)}" for kind, names in kinds.items() if names]
    if problems:
        raise InvalidInputError(
            f"The weights of '{path}' do not fit the network: {'; '.join(problems)}. Use weights of the same network."
        )


def _listed(names: list[Any]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(str, names[:_SHOWN])) + more
