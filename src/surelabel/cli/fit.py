"""`surelabel fit`: train on a partly labeled table or folder of files, and keep the run in a folder."""

import dataclasses
import functools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from surelabel.base.defaults import FitDefaults
from surelabel.cli import _options as options
from surelabel.cli._errors import WrongUse
from surelabel.cli._found import check_data, tell_found
from surelabel.cli._pool import check_pool_options, find_pool, pool_reference, pool_workers, tell_pool
from surelabel.cli._restart import holds_own_run, own_run
from surelabel.cli._rounds import follow, shown_decoding
from surelabel.cli._sources import KIND_NAMES, TABLE_KINDS, data_reference
from surelabel.cluster.torchrun import check_same_folder, number, rank

if TYPE_CHECKING:
    from surelabel.core.labels import Task
    from surelabel.data.run_data import RunData, TableData
    from surelabel.kinds.folder import FolderData
    from surelabel.kinds.packed import PackedData
    from surelabel.learners.settings import TorchLearnerSettings
    from surelabel.records import RoundRecord
    from surelabel.settings import RunSettings

EXAMPLES = (
    "surelabel fit photos/ --out runs/photos",
    "surelabel fit photos/ --labels-file labels.csv --out runs/photos",
    "surelabel fit photos/ --backbone nets.py:make --out runs/photos",
    "surelabel fit sms.csv --label spam --backbone transformers:model --out runs/a",
    "surelabel fit iris.csv --label species --out runs/iris",
    "surelabel fit genes.parquet --label nucleus --label membrane --out runs/genes",
    "surelabel fit photos.csv --label tags --separator '|' --out runs/photos",
    "surelabel fit a.npz --model nets.py:make --pretrained net.pth --out runs/a",
    "surelabel fit iris.csv --label species --test test.csv --out runs/tested",
    "surelabel fit iris.csv --label species --pool 'pool/*.parquet' --out runs/a",
)

_DEFAULTS = FitDefaults()
_OF_NETWORKS = (
    "model backbone pretrained method method_parameter hidden dropout noise epochs learning_rate device "
    "checkpoint_minutes"
)
_WITHOUT_EFFECT = {
    "estimator": [*_OF_NETWORKS.split(), "batch_per_process", "sync_batchnorm"],
    "model": ["hidden", "dropout", "noise"],
    "no_negatives": ["tau_n", "kappa_n", "temperature"],
    "no_compare": ["max_label_error"],
}
"""Options that would be ignored together with another one."""

_data = functools.partial(options.option, rich_help_panel="Data")
_select = functools.partial(options.option, rich_help_panel="Selection and rounds")
_model = functools.partial(options.option, rich_help_panel="What is trained")
_run = functools.partial(options.option, rich_help_panel="Run")


# Long because every option is declared here, once.
def command(
    data: Path = typer.Argument(
        metavar="DATA",
        help="A partly labeled .csv, .tsv, .parquet, .npz or .npy file; or a folder of files, CLASS/... and "
        "unlabeled/...; or pictures in a column of a .parquet file, a folder saved by Hugging Face datasets, or .tar "
        "shards.",
    ),
    kind: str | None = _data(
        f"What the files in a folder are: {', '.join(KIND_NAMES)}; or a file's rows: {', '.join(TABLE_KINDS)}. With "
        "texts, words are never taken as categories.",
        default="the most common",
    ),
    label: list[str] | None = _data(
        "The label column; empty cells are unlabeled. Given several times: one column of 0 and 1 for each class; "
        "there -1 is unknown too. A Parquet column may hold lists of labels.",
        metavar="COLUMN",
    ),
    separator: str | None = _data(
        "The separator between several labels in a cell of the label column: '|' for cat|dog. A cell names all classes "
        "that are present; in cat|?dog the dog is unknown; the separator alone means none of the classes.",
        metavar="TEXT",
    ),
    none: str | None = _data("With --separator: a label that means none of the classes.", metavar="VALUE"),
    labels_file: Path | None = _data(
        "The labels of the files in a folder: a table with the columns file and label. Or, for an .npy file, "
        "another one with its labels."
    ),
    group: str | None = _data(
        "The column that says which rows belong together, such as those of one speaker: they stay on one side of every "
        "split.",
        metavar="COLUMN",
    ),
    pool: str | None = _data(
        "A pool that does not fit in memory: a folder, a pattern of names or an address of .parquet files or .tar "
        "shards, such as 'pool/*.parquet' or s3://bucket/pool/. DATA then has only the labeled samples.",
        metavar="PLACE",
    ),
    on_error: Literal["stop", "skip"] | None = options.ON_ERROR,
    id: str | None = _data("The column that names each row.", metavar="COLUMN"),
    drop: list[str] | None = _data("A column that is not a feature; may be repeated.", metavar="COLUMN"),
    use: list[str] | None = _data(
        "A column to use as a feature although it only counts or names the rows; COLUMN=category, number, date or text "
        "says how to use it; may be repeated.",
        metavar="COLUMN",
    ),
    unlabeled: list[str] | None = _data(
        "A label that means unlabeled, like the empty cell; may be repeated.", metavar="VALUE"
    ),
    test: Path | None = _data("A labeled file that each round is scored on; nothing learns from it."),
    validation: str | None = _data("The share of the labels to hold out, or a labeled file.", metavar="SHARE or FILE"),
    tau_p: float | None = _select("Least confidence of a positive label.", default=options.usual("tau_p")),
    tau_n: float | None = _select("Largest confidence of a negative label.", default=_DEFAULTS.tau_n),
    kappa_p: float | None = _select("Largest uncertainty of a positive label.", default=options.usual("kappa_p")),
    kappa_n: float | None = _select("Largest uncertainty of a negative label.", default=_DEFAULTS.kappa_n),
    gamma: float | None = _select(
        "Several labels: the least probability at which a class counts as present.", default=_DEFAULTS.gamma
    ),
    temperature: float | None = _select(
        "Softens the probabilities that negative labels are selected by.", default=_DEFAULTS.temperature
    ),
    no_negatives: bool = _select("Use no negative labels.", "--no-negatives", value=False),
    balance: Literal["equal", "prior", "none"] | None = _select(
        "Keep as many positives of each class, or in the proportions of the labels.", default="none"
    ),
    balance_rounds: int | None = _select(
        "How many of the first rounds are balanced.", default="10; above 20 classes: 0; several labels: 1"
    ),
    rounds: int | None = _select("The most rounds after round 0.", default=options.usual("max_rounds")),
    max_minutes: float | None = _select(
        "No round starts after this many minutes, including reading the data. If cross-validation follows, rounds "
        "have half of this time, and no fold starts that would not end in time."
    ),
    no_compare: bool = _select(
        "Keep the last round's model, without comparing it with a linear model and round 0.",
        "--no-compare",
        value=False,
    ),
    max_label_error: float | None = _select(
        "Choose the thresholds of the final labels on the validation set so that fewer than this share are wrong.",
        metavar="SHARE",
    ),
    model: str | None = _model(
        "A function that makes your torch network: (sample_shape, num_classes) -> Module.", metavar="FILE.py:FUNCTION"
    ),
    backbone: list[str] | None = _model(
        "A frozen network whose features, computed once, replace the pictures, or a table's texts: timm:NAME, "
        "torchvision:NAME, transformers:FOLDER or FILE.py:FUNCTION. Given several times, the spread over them is the "
        "uncertainty.",
        metavar="NAME",
    ),
    pretrained: list[str] | None = _model(
        "The weights that every round begins with; the function of --model takes the file as 'pretrained'. Or the "
        "weights of each --backbone, in their order; none: a backbone without a file.",
        metavar="FILE",
    ),
    estimator: str | None = _model(
        "A scikit-learn classifier instead of a network; FILE.py:FUNCTION names your function that returns one with "
        "its parameters set.",
        metavar="MODULE:CLASS",
    ),
    method: str | None = _model(
        "How a network learns within a round: ups, pi-model, mean-teacher, ict, mixmatch, fixmatch, flexmatch, "
        "freematch, softmatch or teacher-match; FILE.py:CLASS names your own.",
        default=_DEFAULTS.method,
    ),
    method_parameter: list[str] | None = _model(
        "A parameter of the method, such as threshold=0.9 for fixmatch; may be repeated.", metavar="NAME=VALUE"
    ),
    hidden: str | None = _model(
        "Widths of the network's hidden layers, separated by commas.", default=",".join(map(str, _DEFAULTS.hidden))
    ),
    dropout: float | None = _model("Dropout rate after each hidden layer.", default=options.usual("dropout")),
    noise: float | None = _model(
        "Noise on the features in training; 1: as large as the differences between neighboring rows.",
        default=_DEFAULTS.noise,
    ),
    epochs: int | None = _model(
        "The least number of passes over a round's labels and positives; with another method than ups, over the labels "
        "and over the pool.",
        default=options.usual("epochs"),
    ),
    learning_rate: float | None = _model("The initial learning rate.", default=options.usual("learning_rate")),
    passes: int | None = _model(
        "Stochastic passes, or classifiers in the bootstrap ensemble.", default=_DEFAULTS.passes
    ),
    workers: int | None = options.POOL_WORKERS,
    engine: Literal["local", "ray"] | None = options.POOL_ENGINE,
    batch_per_process: bool = _run(
        "Under torchrun: batch sizes are per process, so they and the learning rate grow with the number of processes.",
        "--batch-per-process",
        value=False,
    ),
    sync_batchnorm: bool = _run(
        "Under torchrun: BatchNorm normalizes by the rows of all processes, instead of each by its own.",
        "--sync-batchnorm",
        value=False,
    ),
    out: Path = _run("The run's folder: new, empty, or left by a run that ended before its first round.", value=...),
    device: str | None = _run("cpu or cuda; left out, the GPU if there is one."),
    seed: int = _run("The seed of everything random.", value=0),
    checkpoint_minutes: float | None = _run(
        "How often a network in training is saved to the run's folder, so that a crash loses at most this.", default=5
    ),
    track: list[str] | None = options.TRACK,
    track_dir: Path | None = options.TRACK_DIR,
    quiet: bool = _run("Print nothing but warnings and errors.", "--quiet", value=False),
) -> None:
    """Train on labeled samples and, round after round, on the labels that the last model is sure of."""
    given = {name: value for name, value in locals().items() if value is not False and value not in (None, [])}
    started = time.monotonic()
    check_same_folder(out)
    goes_on = holds_own_run(out)
    check_options(given, goes_on)
    in_workers = pool_workers(engine, workers)
    options.check_track(track or (), track_dir)
    from surelabel.engine.parallel import processes
    from surelabel.runs.tracking import trackers

    reference = data_reference(given)
    # A wrong option is reported before a large file is read; the classes are known only afterwards.
    early = run_settings(given, reference, "single", 2)
    if estimator is None:
        _check_method(early.network)
    done = options.open_run(out).num_rounds if goes_on else None
    if rank() == 0:
        trackers(track or (), out, early, track_dir, done)
    pinned = reference.pinned()  # before the file is read, so that `resume` notices a change in between
    with shown_decoding(quiet):
        loaded = reference.load()
    check_data(loaded, data, given)
    reading = processes().by_first(lambda: (time.monotonic() - started) / 60)
    settings = run_settings(given, pinned, loaded.task, len(loaded.classes), loaded, reading)
    loaded = find_pool(settings, loaded, quiet)
    if estimator is None:
        settings = _tried(settings, loaded, given)
    from surelabel.runs.session import resume, start

    parts = {"validation": loaded.validation, "test": loaded.test}
    held_out = {name: len(pair[1]) for name, pair in parts.items() if pair is not None}

    def begin(**progress: Any) -> "Iterator[RoundRecord]":
        told = trackers(track or (), out, settings, track_dir, done) if rank() == 0 else []
        own = own_run(out, settings, loaded) if goes_on else None
        more = {"callbacks": told, "in_workers": in_workers, **progress}
        records = start(out, settings, data=loaded, **more) if own is None else resume(own, **more)
        if not quiet:  # only now, when nothing can be refused any more
            tell_found(reference, loaded)
            tell_pool(settings, loaded, told_of_comparison="no_compare" not in given)
        return records

    minutes = processes().by_first(lambda: (time.monotonic() - started) / 60)
    asked = settings.pinned().replace(data=pinned.replace(**loaded.learned))
    known: dict[str, Any] = {"data": loaded, "held_out": held_out, "minutes_before": minutes}
    follow(begin, out, settings.config, asked=asked, done=done or 0, quiet=quiet, **known)


def _check_method(network: "TorchLearnerSettings") -> None:
    """Refuse a wrong method, and wrong parameters of one of ours; one's own may need the task, not known yet."""
    from surelabel.learners.settings import METHODS

    make = network.make_method()
    if network.method in METHODS:
        make("single", network.training)


def _tried(settings: "RunSettings", loaded: "RunData", given: dict[str, Any]) -> "RunSettings":
    """Try the network; without rounds, it may be one without randomness, whose labels have no uncertainty."""
    from surelabel.errors import NotStochasticError
    from surelabel.learners.preflight import try_network

    try:
        try_network(settings.network, loaded)
    except NotStochasticError:
        if settings.config.max_rounds:
            raise
        unused = [options.flag(name) for name in ("kappa_p", "kappa_n", "passes") if name in given]
        learner = settings.network.replace(uncertainty="none", uncertainty_parameters={}, passes=_DEFAULTS.passes)
        return settings.replace(learner=learner, config=settings.config.by_confidence(unused))
    return settings


def check_options(given: dict[str, Any], goes_on: bool = False) -> None:
    """Refuse options that would be ignored together with others, and files and folders that cannot be used.

    Args:
        given: the options.
        goes_on: whether the folder may hold a run that this command has begun.
    """
    from surelabel.runs.layout import refuse_existing

    conflicts = [(one, other) for one, others in _WITHOUT_EFFECT.items() if one in given for other in others]
    found = [(options.flag(one), options.flag(other)) for one, other in conflicts if other in given]
    if found:
        raise WrongUse(*(f"{other} has no effect together with {one}; leave one of them out." for one, other in found))
    check_pool_options(given)
    if "balance_rounds" in given and given.get("balance", "none") == "none":
        raise WrongUse("--balance-rounds has no effect without --balance equal or prior; give one, or leave it out.")
    if "max_label_error" in given and "validation" not in given:
        why = "cross-validation does not tell, as each fold has models of its own"
        raise WrongUse(f"--max-label-error needs held-out labels ({why}); hold some out: --validation 0.3.")
    pretrained = given.get("pretrained", [])
    if pretrained and not {"model", "backbone"} & set(given):
        remedy = "--model, your network's function, such as surelabel.models.resnet:resnet50, or --backbone"
        raise WrongUse(f"--pretrained needs {remedy}.")
    if "backbone" not in given and len(pretrained) > 1:
        raise WrongUse(f"--pretrained names {len(pretrained)} files, and --model takes one; leave the others out.")
    if not goes_on:
        refuse_existing(given["out"])
    for file in pretrained:
        if file != "none" or "backbone" not in given:
            options.check_pretrained(Path(file))


def run_settings(
    given: dict[str, Any],
    data: "TableData | FolderData | PackedData",
    task: "Task",
    num_classes: int,
    loaded: "RunData | None" = None,
    minutes_before: float = 0.0,
) -> "RunSettings":
    """Return the settings of the run that the options ask for; the samples must be loaded to choose a suitable network.

    `minutes_before` were spent on reading these.
    """
    from surelabel.data.run_data import TableData
    from surelabel.kinds import KINDS
    from surelabel.kinds.tables import defaults_for, linear_for, scaled_together
    from surelabel.settings import ComparisonSettings, FitSettings, RunSettings

    # Features of backbones are rows of numbers, as a table's are.
    kind = KINDS[data.of] if not isinstance(data, TableData) and not data.backbones else None
    columns = () if loaded is None else loaded.learned.get("columns") or ()
    if kind is not None:
        for_tables = [name for name in ("hidden", "noise") if name in given]
        options.refuse(for_tables, "has no effect: it is of the network for tables; leave it out.")
    values = options.settings_given([field.name for field in dataclasses.fields(FitSettings)], given)
    values["negatives"] = "no_negatives" not in given
    if "hidden" in given:
        values["hidden"] = tuple(given["hidden"].split(","))
    values["method_parameters"] = options.method_parameters(given.get("method_parameter", ()))
    if given.get("balance") == "none":
        values["balance"] = None
    options.check_device(given.get("device"))
    usual = defaults_for(columns, task, of_backbones="backbone" in given) if kind is None else kind.defaults_for(task)
    fit = FitSettings(**{**usual, **values})
    with options.settings_from_options():
        if "estimator" in given:
            learner: Any = fit.ensemble(given["estimator"])
        else:
            suits = None if kind is None or loaded is None else kind.network(loaded.labeled[0])
            has_weights = "pretrained" in given and "backbone" not in given
            parameters = {"pretrained": given["pretrained"][0]} if has_weights else {}
            widths = [one.width for one in loaded.learned.get("backbones", ())] if loaded is not None else []
            scale = {"together": scaled_together(columns)} if columns else {}
            learner = fit.network(task, suits, widths, model=given.get("model"), model_parameters=parameters, **scale)
        if "batch_per_process" in given:
            learner = learner.replace(training=learner.training.times(number()))
        config = fit.config(task, num_classes, given.get("seed", 0))
        own = options.settings_given(["checkpoint_minutes"], given)
        linear = fit.ensemble(linear_for(columns) if kind is None else kind.linear)
        comparison = (
            None
            if "no_compare" in given or ("pool" in given and "validation" not in given)
            else ComparisonSettings(linear=linear, **options.settings_given(["max_label_error"], given))
        )
        shards = pool_reference(given)
        settings = RunSettings(config=config, learner=learner, data=data, pool=shards, comparison=comparison, **own)
        return settings.limited(None, given.get("max_minutes"), minutes_before)
