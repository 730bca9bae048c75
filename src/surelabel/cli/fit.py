"""`surelabel fit`: train on a table whose label column has empty cells, and keep the run in a folder."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surelabel.cli import _fit_options as options
from surelabel.cli._checks import check_data, warn_of_flattening
from surelabel.cli._errors import WrongUse, existing_file, settings_from_options
from surelabel.cli._train import follow

if TYPE_CHECKING:
    from surelabel.core.labels import Task
    from surelabel.data.run_data import RunData, TableData
    from surelabel.learners.settings import TorchLearnerSettings
    from surelabel.settings import FitSettings, RunSettings

EXAMPLE = """[bold]Examples[/bold]

surelabel fit iris.csv --label species --out runs/iris

surelabel fit genes.parquet --label nucleus --label membrane --out runs/genes

surelabel fit photos.csv --label tags --separator '|' --out runs/photos

surelabel fit a.npz --model nets.py:make --pretrained net.pth --out runs/a

surelabel fit iris.csv --label species --test test.csv --out runs/tested"""


def command(
    data: options.Data,
    *,
    label: options.Label = None,
    separator: options.Separator = None,
    none: options.NoneMark = None,
    labels_file: options.LabelsFile = None,
    id: options.Id = None,
    drop: options.Drop = None,
    use: options.Use = None,
    unlabeled: options.Unlabeled = None,
    test: options.Test = None,
    validation: options.Validation = None,
    tau_p: options.TauP = None,
    tau_n: options.TauN = None,
    kappa_p: options.KappaP = None,
    kappa_n: options.KappaN = None,
    gamma: options.Gamma = None,
    temperature: options.Temperature = None,
    no_negatives: options.NoNegatives = False,
    balance: options.BalanceOption = None,
    balance_rounds: options.BalanceRounds = None,
    rounds: options.Rounds = None,
    max_minutes: options.MaxMinutes = None,
    model: options.Model = None,
    pretrained: options.Pretrained = None,
    estimator: options.Estimator = None,
    method: options.Method = None,
    hidden: options.Hidden = None,
    dropout: options.Dropout = None,
    noise: options.Noise = None,
    epochs: options.Epochs = None,
    learning_rate: options.LearningRate = None,
    passes: options.Passes = None,
    out: options.Out,
    device: options.Device = None,
    seed: options.Seed = 0,
    checkpoint_minutes: options.CheckpointMinutes = None,
    quiet: options.Quiet = False,
) -> None:
    """Train on the labeled rows of a table and, round after round, on what the last model is sure of."""
    given = {name: value for name, value in locals().items() if value is not False and value not in (None, [])}
    options.check_together(given)
    from surelabel.runs.layout import refuse_existing

    refuse_existing(out)
    if pretrained is not None:
        options.check_pretrained(pretrained)
    reference = table_reference(given)
    # A wrong option is told before a large file is read; the classes are known only afterwards.
    run_settings(given, reference, "single", 2)
    pinned = reference.pinned()  # before the file is read: a change in between is then seen by `resume`
    loaded = reference.load()
    options.check_task(given, loaded.task)
    check_data(loaded, reference.path, separator)
    settings = run_settings(given, pinned, loaded.task, len(loaded.classes))
    if estimator is None:
        check_network(settings.network, loaded, data)
        if model is None:
            warn_of_flattening(loaded)
    from surelabel.runs.session import start

    follow(
        lambda progress: start(out, settings, data=loaded, progress=progress),
        out,
        settings.config,
        held_out={part: len(pair[1]) for part in ("validation", "test") if (pair := getattr(loaded, part)) is not None},
        quiet=quiet,
    )


def check_network(learner: "TorchLearnerSettings", data: "RunData", path: Path) -> None:
    """Refuse a network that cannot take the samples or is not random, before there is a folder of a run."""
    from surelabel.errors import DataError, InvalidInputError, NotStochasticError, SampleKindError
    from surelabel.learners.preflight import try_network

    try:
        try_network(learner, data)
    except SampleKindError as error:
        raise DataError(
            f"File '{path}' holds samples of {data.labeled[0].x.dtype}, and the network takes floats; save them as it "
            "expects them, for images x.astype('float32') / 255, less the mean and divided by the standard deviation "
            "of each channel."
        ) from error
    except NotStochasticError as error:
        remedy = "it nn.Dropout layers with a rate above 0" if learner.model is not None else "--dropout a rate above 0"
        raise InvalidInputError(
            f"The network is not random, and the uncertainty of its labels would be 0 everywhere; give {remedy}."
        ) from error


def table_reference(given: dict[str, Any]) -> "TableData":
    """Return the reference to the files that the options name."""
    from surelabel.data.run_data import TableData

    data: Path = given["data"]
    held_out = options.parse_validation(given["validation"]) if "validation" in given else 0.0
    validation_path = held_out if isinstance(held_out, Path) else None
    for option, path in {
        "DATA": data,
        "--labels-file": given.get("labels_file"),
        "--test": given.get("test"),
        "--validation": validation_path,
    }.items():
        existing_file(option, path)
    if "label" not in given and data.suffix.lower() not in (".npz", ".npy"):
        raise WrongUse("Missing option '--label'; name the column that holds the labels, such as --label species.")
    with settings_from_options():
        return TableData(
            path=data,
            labels=tuple(given.get("label", ())),
            separator=given.get("separator"),
            none=given.get("none"),
            labels_path=given.get("labels_file"),
            id_column=given.get("id"),
            drop=tuple(given.get("drop", ())),
            use=tuple(given.get("use", ())),
            unlabeled=given.get("unlabeled"),
            test_path=given.get("test"),
            validation=0.0 if isinstance(held_out, Path) else held_out,
            validation_seed=given.get("seed", 0),
            validation_path=validation_path,
        )


def fit_settings(given: dict[str, Any]) -> "FitSettings":
    """Return what the options say, and the defaults of the others."""
    from surelabel.settings import FitSettings

    values = {field.name: given[field.name] for field in dataclasses.fields(FitSettings) if field.name in given}
    if "no_negatives" in given:
        values["negatives"] = False
    if "rounds" in given:
        values["max_rounds"] = given["rounds"]
    if "hidden" in given:
        values["hidden"] = options.parse_hidden(given["hidden"])
    if "balance" in given:
        values["balance"] = None if given["balance"] == options.Balance.NONE else given["balance"].value
    if "device" in given:
        options.check_device(given["device"])
    return FitSettings(**values)


def run_settings(given: dict[str, Any], data: "TableData", task: "Task", num_classes: int) -> "RunSettings":
    """Return the settings of the run that the options ask for."""
    from surelabel.settings import RunSettings

    fit, model = fit_settings(given), given.get("model")
    parameters = {"pretrained": str(given["pretrained"])} if "pretrained" in given else {}
    often = {name: given[name] for name in ("checkpoint_minutes",) if name in given}
    with settings_from_options():
        return RunSettings(
            config=fit.config(task, num_classes, given.get("seed", 0)),
            learner=fit.ensemble(given["estimator"])
            if "estimator" in given
            else fit.network(task, model=model, model_parameters=parameters),
            data=data,
            **often,
        )
