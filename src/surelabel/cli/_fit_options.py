"""The options of `surelabel fit`, by heading, and which of them cannot stand together."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from surelabel.base.defaults import FitDefaults
from surelabel.cli._console import one_line
from surelabel.cli._errors import WrongUse, existing_file


class Balance(StrEnum):
    """How positives are evened out over the classes."""

    EQUAL = "equal"
    PRIOR = "prior"
    NONE = "none"


def _option(panel: str, flag: str, text: str, metavar: str | None = None) -> Any:
    return typer.Option(flag, help=text, metavar=metavar, rich_help_panel=panel, show_default=False)


def _setting(flag: str, name: str, text: str, panel: str, default: str | None = None) -> Any:
    """Return the option for one of `FitDefaults`; `default` is what `--help` shows where that is no plain value."""
    value = getattr(FitDefaults, name)
    shown = default or (",".join(map(str, value)) if isinstance(value, tuple) else value)
    return _option(panel, flag, f"{text} [dim]\\[default: {shown}][/dim]")


_DATA, _SELECT, _MODEL, _RUN = "Data", "Selection and rounds", "What is trained", "Run"
_TAU_P, _KAPPA_P = "0.7, several labels: 0.5", "0.1, several labels: 0.05"
_ROUNDS = "5, several labels: 1"
_BALANCE_ROUNDS = "10, above 20 classes: 0, several labels: 1"

Data = Annotated[
    Path,
    typer.Argument(
        metavar="DATA",
        help="A .csv, .tsv, .parquet, .npz or .npy file, labeled in part.",
        show_default=False,
    ),
]
Out = Annotated[
    Path, _option(_RUN, "--out", "The run's folder: a new or an empty one, or what a run left before its first round.")
]
Label = Annotated[
    list[str] | None,
    _option(
        _DATA,
        "--label",
        "The label column; empty cells are unlabeled. Given several times: one column of 0 and 1 for each class; "
        "there -1 is unknown too. A Parquet column may hold lists of labels.",
        "COLUMN",
    ),
]
Separator = Annotated[
    str | None,
    _option(
        _DATA,
        "--separator",
        "Several labels in a cell of the label column, with this between them: '|' for cat|dog. A cell names all that "
        "is there; in cat|?dog the dog is unknown; the separator alone is none of the classes.",
        "TEXT",
    ),
]
NoneMark = Annotated[
    str | None,
    _option(_DATA, "--none", "With --separator: a label that means none of the classes.", "VALUE"),
]
LabelsFile = Annotated[Path | None, _option(_DATA, "--labels-file", "The labels of an .npy file, another one.")]
Id = Annotated[str | None, _option(_DATA, "--id", "The column that names each row.", "COLUMN")]
Drop = Annotated[
    list[str] | None, _option(_DATA, "--drop", "A column that is not a feature; may be repeated.", "COLUMN")
]
Use = Annotated[
    list[str] | None,
    _option(_DATA, "--use", "A column that is a feature, although it only counts the rows; may be repeated.", "COLUMN"),
]
Unlabeled = Annotated[
    str | None, _option(_DATA, "--unlabeled", "A label that means unlabeled, beside the empty cell.", "VALUE")
]
Test = Annotated[
    Path | None, _option(_DATA, "--test", "A labeled file that each round is scored on; nothing learns from it.")
]
Validation = Annotated[
    str | None,
    _option(_DATA, "--validation", "The share of the labels to hold out, or a labeled file.", "SHARE or FILE"),
]

TauP = Annotated[float | None, _setting("--tau-p", "tau_p", "Least confidence of a positive label.", _SELECT, _TAU_P)]
TauN = Annotated[float | None, _setting("--tau-n", "tau_n", "Largest confidence of a negative label.", _SELECT)]
KappaP = Annotated[
    float | None, _setting("--kappa-p", "kappa_p", "Largest uncertainty of a positive label.", _SELECT, _KAPPA_P)
]
KappaN = Annotated[float | None, _setting("--kappa-n", "kappa_n", "Largest uncertainty of a negative label.", _SELECT)]
Gamma = Annotated[
    float | None,
    _setting("--gamma", "gamma", "Several labels: from which probability on a class counts as present.", _SELECT),
]
Temperature = Annotated[
    float | None,
    _setting("--temperature", "temperature", "Softens the probabilities that negative labels are chosen by.", _SELECT),
]
NoNegatives = Annotated[bool, _option(_SELECT, "--no-negatives", "Use no negative labels.")]
BalanceOption = Annotated[
    Balance | None,
    _setting("--balance", "balance", "As many positives of each class, or in the labels' shares.", _SELECT, "none"),
]
BalanceRounds = Annotated[
    int | None,
    _setting(
        "--balance-rounds", "balance_rounds", "How many of the first rounds are balanced.", _SELECT, _BALANCE_ROUNDS
    ),
]
Rounds = Annotated[
    int | None,
    _setting("--rounds", "max_rounds", "How many rounds follow the supervised one at most.", _SELECT, _ROUNDS),
]
MaxMinutes = Annotated[float | None, _option(_SELECT, "--max-minutes", "No round starts after this many minutes.")]

Model = Annotated[
    str | None,
    _option(
        _MODEL,
        "--model",
        "A function that makes your torch network: (sample_shape, num_classes) -> Module.",
        "FILE.py:FUNCTION",
    ),
]
Pretrained = Annotated[
    Path | None,
    _option(
        _MODEL,
        "--pretrained",
        "The weights that every round begins with; the function of --model takes the file as 'pretrained'.",
        "FILE",
    ),
]
Estimator = Annotated[
    str | None,
    _option(
        _MODEL,
        "--estimator",
        "A scikit-learn classifier in place of a network; FILE.py:FUNCTION names a function of yours that returns one, "
        "with its parameters.",
        "MODULE:CLASS",
    ),
]
Method = Annotated[
    str | None,
    _setting("--method", "method", "How a network learns within a round; FILE.py:CLASS names one of yours.", _MODEL),
]
Hidden = Annotated[
    str | None, _setting("--hidden", "hidden", "Widths of the network's hidden layers, by commas.", _MODEL)
]
Dropout = Annotated[float | None, _setting("--dropout", "dropout", "Dropout rate after each hidden layer.", _MODEL)]
Noise = Annotated[
    float | None, _setting("--noise", "noise", "Noise on the features in training; 1: as rows differ.", _MODEL)
]
Epochs = Annotated[
    int | None, _setting("--epochs", "epochs", "Passes over a round's labels and positives, at least.", _MODEL)
]
LearningRate = Annotated[
    float | None, _setting("--learning-rate", "learning_rate", "The initial learning rate.", _MODEL)
]
Passes = Annotated[
    int | None,
    _setting("--passes", "passes", "Stochastic passes, or classifiers in the bootstrap ensemble.", _MODEL),
]
Device = Annotated[str | None, _option(_RUN, "--device", "cpu or cuda; left out, the GPU if there is one.")]
Seed = Annotated[int, typer.Option("--seed", help="Everything random follows from it.", rich_help_panel=_RUN)]
CheckpointMinutes = Annotated[
    float | None,
    _option(
        _RUN,
        "--checkpoint-minutes",
        "How often a network in training is written to the run's folder, so that a crash loses no more. "
        "[dim]\\[default: 5][/dim]",
    ),
]
Quiet = Annotated[bool, _option(_RUN, "--quiet", "Print nothing but warnings and errors.")]

_OF_NETWORKS = (
    "model",
    "pretrained",
    "method",
    "hidden",
    "dropout",
    "noise",
    "epochs",
    "learning_rate",
    "device",
    "checkpoint_minutes",
)
_OF_OUR_NETWORK = ("hidden", "dropout", "noise")
_OF_NEGATIVES = ("tau_n", "kappa_n", "temperature")


def check_together(given: dict[str, Any]) -> None:
    """Refuse options that would be ignored beside others; `given` holds those that the user gave."""
    conflicts = {"estimator": _OF_NETWORKS, "model": _OF_OUR_NETWORK, "no_negatives": _OF_NEGATIVES}
    found = [(one, other) for one, others in conflicts.items() for other in others if {one, other} <= set(given)]
    if found:
        raise WrongUse(
            *(f"{flag(other)} has no effect together with {flag(one)}; leave one of them out." for one, other in found)
        )
    if "balance_rounds" in given and given.get("balance", Balance.NONE) == Balance.NONE:
        raise WrongUse("--balance-rounds has no effect without --balance equal or prior; give one, or leave it out.")
    if "pretrained" in given and "model" not in given:
        raise WrongUse(
            "--pretrained is for a network of your own; name its function with --model, such as "
            "surelabel.models.resnet:resnet50."
        )


def check_task(given: dict[str, Any], task: str) -> None:
    """Refuse what is for several labels a sample where there is one."""
    if "gamma" in given and task == "single":
        raise WrongUse("--gamma has no effect: the table has one label a sample; leave it out.")


def flag(name: str) -> str:
    """Return the option of a setting.

    >>> flag("tau_p")
    '--tau-p'
    """
    return f"--{name.replace('_', '-')}"


def parse_hidden(text: str) -> tuple[int, ...]:
    """Return the widths of the hidden layers.

    >>> parse_hidden("64,32")
    (64, 32)
    """
    try:
        return tuple(int(width) for width in text.split(","))
    except ValueError:
        raise WrongUse(
            f"Invalid value for '--hidden': {one_line(text)!r} must be whole numbers by commas, such as 128,128."
        ) from None


def parse_validation(text: str) -> float | Path:
    """Return the share of the labels to hold out, or the file with held-out samples.

    >>> parse_validation("0.2")
    0.2
    """
    try:
        share = float(text)
    except ValueError:
        return Path(text)
    if not 0 <= share < 1:
        raise WrongUse(f"Invalid value for '--validation': the share must be at least 0 and below 1. Got {text}.")
    return share


def check_pretrained(path: Path) -> None:
    """Refuse what is no file of weights; a run depends on the content of these alone."""
    from surelabel.models.pretrained import SUFFIXES

    existing_file("--pretrained", path)
    if path.suffix not in SUFFIXES:
        raise WrongUse(
            f"Invalid value for '--pretrained': '{path}' must end in one of {', '.join(SUFFIXES)}; save the network's "
            "state_dict() as one of these."
        )


def check_device(name: str) -> None:
    """Refuse a device that this machine does not have."""
    import torch

    from surelabel.base.settings import check_device as check_name

    try:
        torch.empty(0, device=check_name(name))
    except (RuntimeError, AssertionError, ImportError, ValueError):
        here = ", ".join(["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))])
        raise WrongUse(f"Invalid value for '--device': there is no {name!r} here; use one of {here}.") from None
