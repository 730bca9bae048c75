"""Options of `fit` that say what the data are: folders and their kind, tables, packed pictures; and backbones."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from surelabel.cli import _options as options
from surelabel.cli._errors import WrongUse

if TYPE_CHECKING:
    from surelabel.data.run_data import TableData
    from surelabel.kinds.backbones import BackboneSettings
    from surelabel.kinds.packed import PackedData

_WITHOUT_EFFECT = ("separator", "none", "labels_file", "group", "drop", "use", "unlabeled")


def kind_name(path: Path, asked: str | None) -> str:
    """Return the name of the kind that a folder's files are of: the one asked for, or the most common."""
    from surelabel.kinds import KINDS, guess

    if asked not in (None, *KINDS):
        raise WrongUse(f"Invalid value for '--kind': {asked!r} must be one of {', '.join(KINDS)}.")
    return asked or guess(path).name


def backbones(given: dict[str, Any]) -> "list[BackboneSettings]":
    """Return the backbones that the options name."""
    from surelabel.kinds.backbones import BackboneSettings

    references, files = given.get("backbone", []), given.get("pretrained", []) if "backbone" in given else []
    if "model" in given and files:
        raise WrongUse("--pretrained could be for --model or for --backbone; let the function of --model name its own.")
    if files and len(files) != len(references):
        numbers = f"{len(files)} files for {len(references)} backbones"
        raise WrongUse(f"--pretrained names {numbers}; give one for each, in their order, or none for one without.")
    paths = [None if file == "none" else Path(file) for file in files or ["none"] * len(references)]
    with options.settings_from_options():
        pairs = zip(references, paths, strict=True)
        return [BackboneSettings(reference=one, pretrained=path, device=given.get("device")) for one, path in pairs]


def table_reference(values: dict[str, Any], given: dict[str, Any]) -> "TableData":
    """Return the reference to a table with these settings; to its texts, where backbones are to be shown them."""
    from surelabel.data.run_data import TableData
    from surelabel.kinds.texts import TextData

    values = {**values, "as_texts": given.get("kind") == "texts"}
    shown = backbones(given)
    with options.settings_from_options():
        return TextData(**values, backbones=shown) if shown else TableData(**values)


def packed_reference(given: dict[str, Any]) -> "PackedData":
    """Return the reference to the packed pictures that the options name."""
    from surelabel.kinds.packed import PackedData

    for name in (name for name in _WITHOUT_EFFECT if name in given):
        raise WrongUse(f"{options.flag(name)} has no effect: '{given['data']}' has packed pictures; leave it out.")
    if given.get("kind", "pictures") != "pictures":
        raise WrongUse(f"Invalid value for '--kind': '{given['data']}' has packed pictures; got {given['kind']!r}.")
    if len(given.get("label", [])) > 1:
        raise WrongUse(f"--label names {len(given['label'])} columns, and packed pictures have one label; name one.")
    fields = [name for name in PackedData.model_fields if name not in ("kind", "backbones")]
    values = options.settings_given(fields, given)
    try:
        float(values.get("validation", 0))
    except ValueError:
        remedy = "give the share of the labels to hold out, such as 0.2"
        raise WrongUse(f"Invalid value for '--validation': {given['validation']!r}; {remedy}.") from None
    with options.settings_from_options():
        return PackedData(**values, backbones=backbones(given))
