"""Options that several commands share, and checks of options before any work is done."""

import contextlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from surelabel.base.defaults import BY_LABELS, KIND_DEFAULTS, FitDefaults
from surelabel.cli._errors import WrongUse
from surelabel.cluster.torchrun import number
from surelabel.errors import DataError

if TYPE_CHECKING:
    from surelabel.runs import RunFolder

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_OPTIONS = {
    "path": "data",
    "labels": "label",
    "labels_path": "labels_file",
    "id_column": "id",
    "test_path": "test",
    "validation_path": "validation",
    "validation_seed": "seed",
    "max_rounds": "rounds",
    "members": "passes",
}
"""The options that are not named like their setting, by setting."""


def examples(*commands: str) -> str:
    """Return the examples at the end of a command's help."""
    return "\n\n".join([f"[bold]Example{'s' * (len(commands) > 1)}[/bold]", *commands])


def option(text: str, *flags: str, value: Any = None, default: object = None, **more: Any) -> Any:
    """Return an option as the default of a command's parameter, named after it unless `flags` are given.

    Args:
        text: what `--help` says of it.
        flags: its names; a switch needs one, because typer would add --no-….
        value: the parameter's value if the option is left out; `...`: it is required.
        default: what `--help` shows as the default, if that is not the value.
        more: metavar, min and other arguments of typer.Option.
    """
    shown = value if default is None and value is not False and value is not ... else default
    if shown is not None:
        text = f"{text} [dim]\\[default: {shown}][/dim]"
    return typer.Option(value, *flags, help=text, show_default=False, **more)


def usual(setting: str) -> str:
    """Return a default that depends on the kind of the data or of the labels, as `--help` shows it.

    >>> usual("max_rounds")
    '5; pictures: 2; sounds: 1; video: 3; several labels: 1'
    """
    default, several = BY_LABELS.get(setting, (getattr(FitDefaults, setting),) * 2)
    kinds: dict[Any, list[str]] = {}
    for kind, values in KIND_DEFAULTS.items():
        kinds.setdefault(values.get(setting, default), []).append(kind)
    others = [f"{', '.join(names)}: {value}" for value, names in kinds.items() if value != default]
    return "; ".join([str(default), *others, *([f"several labels: {several}"] if several != default else [])])


RUN: Any = typer.Argument(metavar="RUN", help="A run's folder.", show_default=False)
SAMPLES: Any = typer.Argument(
    metavar="INPUT",
    help="Samples of the run's kind: a file with the columns that it learned from, in any order, or a folder of files.",
)
POOL: Any = typer.Argument(
    metavar="INPUT",
    help="Samples of the run's kind: a file with the columns that it learned from, in any order, or a folder of files. "
    "If --out is a folder, also a folder of Parquet files or of tar files with pictures, a pattern, 'pool/*.parquet', "
    "or an address, s3://bucket/pool/.",
    show_default=False,
)
ON_ERROR = option("What to do about a file that cannot be read: stop, or skip it.", default="stop")
ID = option("The column that names each row. '' numbers the rows.", default="as in the run", metavar="COLUMN")
OUT = option("A .csv or .parquet file; left out, CSV is printed.")
OUT_OR_FOLDER = option(
    "A .csv or .parquet file; left out, CSV is printed. Or a folder, labels/ or s3://bucket/labels/: it gets a Parquet "
    "file of labels for each file of INPUT."
)
WORKERS = option(
    "If --out is a folder: how many files are labeled at once.", default="1; Ray: as many as the cluster has", min=1
)
ENGINE = option("If --out is a folder: whether workers are local processes or Ray's.", default="local")
ENTRIES = option(
    "Several labels per sample: write a row for each sample and class, with all columns.",
    "--entries",
    value=False,
)
FORCE = option("Replace the output file if there is one.", "--force", value=False)
EXCEL_SAFE = option(
    "Put an apostrophe before text that a spreadsheet would take as a formula: =, +, -, @.", "--excel-safe", value=False
)
TRUST = option(
    "A type in a scikit-learn model that you trust although it is not known to be safe; may be repeated.",
    metavar="TYPE",
)
TRUST_CODE = option(
    "Run all code that the run names, even if you have not signed it: for runs of people whom you trust.",
    "--trust-code",
    value=False,
)
TRACK = option(
    "Log each round for TensorBoard or MLflow, on this machine; may be given for both.", metavar="tensorboard or mlflow"
)
TRACK_DIR = option("The folder that --track writes to.", default="tracking in the run's folder")
POOL_WORKERS = option(
    "With --pool: how many shards are labeled at once.",
    default="1; Ray: as many as the cluster has",
    min=1,
    rich_help_panel="Run",
)
POOL_ENGINE = option(
    "With --pool: whether workers are local processes or Ray's.", default="local", rich_help_panel="Run"
)
QUIET = option("Print nothing but warnings and errors.", "--quiet", value=False)


def flag(name: str) -> str:
    """Return the option that fills a setting, or that a parameter stands for.

    >>> flag("tau_p"), flag("max_rounds")
    ('--tau-p', '--rounds')
    """
    return f"--{_OPTIONS.get(name, name).replace('_', '-')}"


def refuse(given: Iterable[str], problem: str) -> None:
    """Refuse the first of the options that were given, if any; `problem` goes on after its name."""
    for name in given:
        raise WrongUse(f"{flag(name)} {problem}")


def settings_given(settings: Collection[str], given: dict[str, Any]) -> dict[str, Any]:
    """Return the values of those settings whose option was given.

    >>> settings_given(["tau_p", "max_rounds"], {"rounds": 3, "seed": 0})
    {'max_rounds': 3}
    """
    options = {name: _OPTIONS.get(name, name) for name in settings}
    return {name: given[option] for name, option in options.items() if option in given}


@contextlib.contextmanager
def settings_from_options() -> Iterator[None]:
    """Report the mistakes that pydantic finds in settings made from options as wrong use of these options."""
    from pydantic import ValidationError

    from surelabel.base.settings import mistakes

    try:
        yield
    except ValidationError as error:
        raise WrongUse(*mistakes(error, name=flag)) from error


def check_track(track: Sequence[str], place: Path | None) -> None:
    """Refuse unknown trackers, and a folder that nothing would be written to."""
    for name in track:
        if name not in ("tensorboard", "mlflow"):
            raise WrongUse(f"Invalid value for '--track': {name!r} must be tensorboard or mlflow.")
    if place is not None and not track:
        raise WrongUse("--track-dir has no effect without --track tensorboard or mlflow; give one, or leave it out.")


def open_run(path: Path, trust_code: bool = False) -> "RunFolder":
    """Return the run in a folder; a folder that is not there is wrong use."""
    if not path.is_dir():
        kind = "is a file" if path.exists() else "does not exist"
        raise WrongUse(f"Invalid value for 'RUN': folder '{path}' {kind}; name the --out of a 'surelabel fit'.")
    from surelabel.runs import RunFolder

    return RunFolder.open(path, trust_code=trust_code)


def check_file(argument: str, path: Path | None) -> None:
    """Refuse a file that is not there: naming it is wrong use."""
    if path is not None and not path.is_file():
        kind = "is a folder" if path.is_dir() else "is not a plain file" if path.exists() else "does not exist"
        raise WrongUse(f"Invalid value for '{argument}': file '{path}' {kind}; check the path.")


def check_path(argument: str, path: Path) -> None:
    """Refuse what is neither a file nor a folder: naming it is wrong use."""
    if not path.exists():
        raise WrongUse(f"Invalid value for '{argument}': there is no file or folder '{path}'; check the path.")
    if not path.is_dir():
        check_file(argument, path)


def check_output(path: Path | None, force: bool, endings: tuple[str, ...] = (".csv", ".parquet")) -> None:
    """Refuse an output that would be overwritten or cannot be written; make its folder."""
    if path is None:
        return
    if path.suffix.lower() not in endings:
        raise WrongUse(f"Invalid value for '--out': '{path}' must end in {' or '.join(endings)}.")
    if path.exists() and not force:
        raise DataError(f"File '{path}' exists and is kept; choose another name, or give --force to replace it.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = f"the folder '{path.parent}' cannot be made ({error.strerror})"
        raise WrongUse(f"Invalid value for '--out': {problem}; choose another.") from error


def check_pretrained(path: Path | None) -> None:
    """Refuse anything but a file of weights: a run depends on the content of such a file only."""
    check_file("--pretrained", path)
    if path is None:
        return
    from surelabel.models.pretrained import SUFFIXES

    if path.suffix not in SUFFIXES:
        remedy = f"must end in one of {', '.join(SUFFIXES)}; save the network's state_dict() as one of these"
        raise WrongUse(f"Invalid value for '--pretrained': '{path}' {remedy}.")


def check_device(name: str | None) -> None:
    """Refuse a device that this machine does not have, and one GPU for several processes."""
    if name is None:
        return
    if number() > 1 and name.startswith("cuda:"):
        raise WrongUse(f"--device {name} is one GPU for {number()} processes; with --device cuda each has its own.")
    import torch

    from surelabel.base.settings import check_device as check_name

    try:
        torch.empty(0, device=check_name(name))
    except (RuntimeError, AssertionError, ImportError, ValueError):
        here = ", ".join(["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))])
        raise WrongUse(f"Invalid value for '--device': there is no {name!r} here; use one of {here}.") from None


def method_parameters(texts: Sequence[str]) -> dict[str, Any]:
    """Return what --method-parameter says, NAME=VALUE, by name: numbers, true, false and null, or else text."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise WrongUse(f"--method-parameter must be NAME=VALUE, such as threshold=0.9; got {text!r}.")
        if name in found:
            raise WrongUse(f"--method-parameter sets {name!r} twice; leave one of them out.")
        found[name] = _value(value)
    return found


def _value(text: str) -> Any:
    if _NUMBER.fullmatch(text):  # more than JSON's numbers: .9 and 1. too
        with contextlib.suppress(ValueError):
            return int(text)
        number = float(text)
        return int(number) if number.is_integer() and abs(number) < 2**53 else number
    with contextlib.suppress(json.JSONDecodeError):
        parsed = json.loads(text, parse_constant=str)  # NaN and Infinity are not JSON
        return text if isinstance(parsed, dict | list) else parsed
    return text
