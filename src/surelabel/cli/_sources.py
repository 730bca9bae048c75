"""Options of `fit` that say what the data are: folders and their kind, tables, packed pictures; and backbones."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from surelabel.cli import _options as options
from surelabel.cli._errors import WrongUse

if TYPE_CHECKING:
    from surelabel.data.run_data import TableData
    from surelabel.kinds.backbones import BackboneSettings
    from surelabel.kinds.folder import FolderData
    from surelabel.kinds.packed import PackedData

KIND_NAMES = ("pictures", "sounds", "video")
"""Those of `surelabel.kinds`, which is not imported for `--help`; a test compares the two."""
TABLE_KINDS = ("tables", "texts")
"""What the rows of a file may be."""

_WITHOUT_EFFECT = ("separator", "none", "labels_file", "group", "drop", "use", "unlabeled")


def data_reference(given: dict[str, Any]) -> "TableData | FolderData | PackedData":
    """Return the reference to the files that the options name."""
    from surelabel.data.packed import is_packed
    from surelabel.data.run_data import TableData
    from surelabel.kinds.folder import FolderData

    if is_packed(given["data"]):
        return packed_reference(given)
    is_folder = given["data"].is_dir()
    options.check_path("DATA", given["data"])
    without = ("id", "drop", "use") if is_folder else () if "pool" in given else ("on_error",)
    is_what = f"'{given['data']}' is a {'folder' if is_folder else 'file'}"
    options.refuse([name for name in without if name in given], f"has no effect: {is_what}.")
    if is_folder and "labels_file" not in given:
        of_table = [name for name in ("label", "separator", "none", "unlabeled") if name in given]
        options.refuse(of_table, "has no effect without --labels-file: folders name the classes; leave it out.")
    fields = (FolderData if is_folder else TableData).model_fields
    values = options.settings_given([name for name in fields if name != "kind"], given)
    if len(given.get("unlabeled", ())) == 1:
        (values["unlabeled"],) = given["unlabeled"]  # as in runs of older versions
    held_out = given.get("validation", "0")
    try:
        float(held_out)
        values.pop("validation_path", None)
    except ValueError:  # it names a file or a folder
        values |= {"validation": 0.0, "validation_path": Path(held_out)}
    if is_folder:
        values["of"] = kind_name(given["data"], given.get("kind"))
        values["backbones"] = backbones(given)
    elif given.get("kind", "tables") not in TABLE_KINDS:
        raise WrongUse(
            f"Invalid value for '--kind': '{given['data']}' is a file, so it must be one of {', '.join(TABLE_KINDS)}; "
            f"got {given['kind']!r}."
        )
    elif "labels" not in values and values["path"].suffix.lower() not in (".npz", ".npy"):
        raise WrongUse("Missing option '--label'; name the column that holds the labels, such as --label species.")
    for name in ("labels_path", "test_path", "validation_path"):
        if name in values:
            (options.check_path if is_folder else options.check_file)(options.flag(name), values[name])
    if not is_folder:
        return table_reference(values, given)
    with options.settings_from_options():
        return FolderData(**values)


def kind_name(path: Path, asked: str | None) -> str:
    """Return the kind of a folder's files: the one asked for, or the most common."""
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
    """Return the reference to a table with these settings, or to its texts if there are backbones for them."""
    from surelabel.data.run_data import TableData
    from surelabel.kinds.texts import TextData

    values = {**values, "as_texts": given.get("kind") == "texts"}
    shown = backbones(given)
    with options.settings_from_options():
        return TextData(**values, backbones=shown) if shown else TableData(**values)


def packed_reference(given: dict[str, Any]) -> "PackedData":
    """Return the reference to the packed pictures that the options name."""
    from surelabel.kinds.packed import PackedData

    without = [name for name in _WITHOUT_EFFECT if name in given]
    options.refuse(without, f"has no effect: '{given['data']}' has packed pictures; leave it out.")
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
