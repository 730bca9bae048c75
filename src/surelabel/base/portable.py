"""Settings as they are on every machine: code and weights in files by their names, not by the folders they lie in."""

from pathlib import Path
from typing import Any

from surelabel.base.references import reference_file

_CODE = {"function": "sha256", "model": "model_hash", "estimator": "estimator_hash"}
"""Settings that may name code in a file, and those that hold the file's content hash."""


def portable(values: dict[str, Any], *, hashes: bool = False) -> dict[str, Any]:
    """Return the JSON of a learner or of data with "file.py:name" for code in a file, without that file's hash or with.

    Runs are named and compared by it, so that another copy of the same repository finds them. Weights to begin with
    and estimators of uncertainty keep their content hash, which tells them apart whatever their folder.

    Example:
        >>> portable({"kind": "function", "function": "/home/me/mine.py:data", "sha256": "ab12", "arguments": {}})
        {'kind': 'function', 'function': 'mine.py:data', 'sha256': None, 'arguments': {}}
    """
    changes: dict[str, Any] = {}
    for name, hash_name in _CODE.items():
        short = _without_folder(values.get(name))
        if short != values.get(name):
            changes |= {name: short, hash_name: values.get(hash_name) if hashes else None}
    if values.get("uncertainty"):
        changes["uncertainty"] = _without_folder(values["uncertainty"])
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
    if reference is None or ":" not in reference:  # an estimator of ours is no reference
        return reference
    file = reference_file(reference)
    return reference if file is None else f"{file.name}:{reference.rpartition(':')[2]}"
