"""Runs that survive: Algorithm 1 with every finished round safely in a folder, resumed as if never interrupted.

A round is a pure function of (settings, seed, round, previous selection). So a run continues from the last finished
round's pool table, and within an interrupted round from its last checkpoint, if there is one. On a CPU the last model
is the same, bit for bit.
"""

import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from surelabel.base.system import Progress
from surelabel.core.arrays import to_numpy
from surelabel.data.run_data import RunData, TableData
from surelabel.data.training_set import as_pair, known_targets
from surelabel.engine.parallel import check_alike, processes
from surelabel.errors import InvalidInputError, RunError
from surelabel.kinds.folder import FolderData
from surelabel.kinds.packed import PackedData
from surelabel.learners import Learner
from surelabel.learners.settings import TorchLearnerSettings
from surelabel.loop import Callback, PoolLabeler, self_train
from surelabel.records import RoundRecord
from surelabel.runs.checks import check_same_data, complete, split_of
from surelabel.runs.labeling import InWorkers, ShardLabeler
from surelabel.runs.layout import refuse_existing
from surelabel.runs.pool import with_pool
from surelabel.runs.reading import RunFolder, stop_of
from surelabel.runs.shared_fits import SharedFits
from surelabel.runs.writing import RunWriter, locked_run, prepare
from surelabel.settings import RunSettings, UPSConfig

_logger = logging.getLogger("surelabel")

Folder = str | os.PathLike[str]


def start(
    folder: Folder,
    settings: RunSettings,
    *,
    data: RunData | None = None,
    callbacks: Sequence[Callback] = (),
    progress: Progress | None = None,
    shared: Folder | None = None,
    in_workers: InWorkers | None = None,
) -> Iterator[RoundRecord]:
    """Begin a run whose settings name its learner (and its data); yield each record once its round is on the disk.

    Everything is checked immediately; the folder is made when the first record is asked for.

    Args:
        folder: a new or an empty folder.
        settings: `learner` is required; paths may be relative to the current folder.
        data: the samples, if they are loaded already or `settings.data` is None.
        callbacks: called with each record; one that returns True ends the loop ("interrupted").
        progress: called as training and labeling go on.
        shared: a folder in which runs share trained networks, so that common rounds are trained once; remove it when
            all are done.
        in_workers: labels the shards of `settings.pool` in other processes; None: this process labels them.
    """
    path = Path(folder)
    processes().only_first(lambda: refuse_existing(path))
    settings = settings.pinned()
    if data is None and settings.data is not None:
        data = with_pool(settings, settings.data.load())
    if settings.learner is None or data is None:
        missing = "learner; for one in memory call surelabel.run" if data is not None else "data; name or give them"
        raise InvalidInputError(f"The 'settings' argument has no {missing}.")
    settings = complete(settings, data)
    label = _labeler(path, settings, in_workers, progress)
    return _begin(path, settings, _learner(settings, data, progress, shared), data, callbacks, label)


def resume(
    folder: Folder | RunFolder,
    *,
    callbacks: Sequence[Callback] = (),
    progress: Progress | None = None,
    max_rounds: int | None = None,
    max_minutes: float | None = None,
    shared: Folder | None = None,
    data: Folder | None = None,
    pool: str | None = None,
    trust_code: bool = False,
    in_workers: InWorkers | None = None,
) -> Iterator[RoundRecord]:
    """Continue a run whose settings name its learner and its data; a finished run yields nothing.

    Args:
        folder: the run's folder; or an open run, which continues with its settings and trust as they were read.
        callbacks: as for `start`.
        progress: as for `start`.
        max_rounds: a new limit, kept in the settings; a converged run does not continue because of it.
        max_minutes: a new limit, kept in the settings; it covers all parts of the run. If a cross-validation follows,
            the rounds have half of it.
        shared: as for `start`.
        data: the new path of the data's file or folder, if it has moved, kept in the settings; its content must be the
            same. Other missing files and folders of the run are looked for in the same folder.
        pool: the new place of the pool's shards, if they have moved, kept in the settings; they must be the same.
        trust_code: run any code that the settings name, even if you have not signed them.
        in_workers: as for `start`.
    """
    run = folder if isinstance(folder, RunFolder) else RunFolder.open(folder, trust_code=trust_code)
    settings = run.settings.limited(max_rounds, max_minutes)
    _check_max_rounds(run, settings.config)
    if data is not None:
        if not isinstance(settings.data, (TableData, FolderData, PackedData)):
            raise InvalidInputError(f"The data of the run in '{run.path}' are not in a file; leave 'data' out.")
        is_packed = isinstance(settings.data, PackedData)  # they may lie in a file or in a folder
        if not is_packed and isinstance(settings.data, FolderData) != Path(data).is_dir():
            wanted = "a folder" if isinstance(settings.data, FolderData) else "a file"
            raise InvalidInputError(f"The data of the run in '{run.path}' are {wanted}; got '{data}' as 'data'.")
        settings = settings.replace(data=settings.data.moved(Path(data)))
    if pool is not None:
        if settings.pool is None:
            raise InvalidInputError(f"The run in '{run.path}' has no pool in shards; leave 'pool' out. Got '{pool}'.")
        settings = settings.replace(pool=settings.pool.replace(place=pool).pinned())
    else:
        run.check_pool()
    if settings.learner is None or settings.data is None:
        call = f"surelabel.run({str(run.path)!r}, learner, labeled, unlabeled, resume=True)"
        raise RunError(f"The run in '{run.path}' was made from objects in memory; give them again in Python: {call}.")
    run.verify()
    if stop_of(run.records(), settings.config) is not None:
        return _go_on(run, settings, None, None)
    run.check_code()
    loaded = run.load_data(settings)
    check_same_data(run, loaded)
    label = _labeler(run.path, settings, in_workers, progress)
    return _go_on(run, settings, _learner(settings, loaded, progress, shared), loaded, callbacks, label)


def run(
    folder: Folder,
    learner: Learner,
    labeled: tuple[Any, Any],
    unlabeled: Any,
    config: UPSConfig | None = None,
    validation: tuple[Any, Any] | None = None,
    test: tuple[Any, Any] | None = None,
    truth: Any = None,
    *,
    classes: Sequence[str] | None = None,
    name: str = "",
    resume: bool = False,
    keep_models: Literal["last", "all"] = "last",
    checkpoint_minutes: float | None = 5.0,
    callbacks: Sequence[Callback] = (),
) -> Iterator[RoundRecord]:
    """Run `self_train` on objects in memory, with every finished round kept in a folder.

    Args:
        folder: a new or an empty folder; with `resume`, that of the run.
        learner: as for `self_train`; its model is kept when it has `to_bytes` and `model_file`.
        labeled: as for `self_train`, and so are `unlabeled`, `validation`, `test`, `truth` and `callbacks`.
        unlabeled: the pool.
        config: thresholds, balance and stop rules; with `resume`, None or the same except for the limits.
        validation: samples and labels that are recorded.
        test: samples and labels whose score is recorded.
        truth: the pool's true labels, where known.
        classes: names of the classes; by default their indices.
        name: what a table's row calls the run.
        resume: continue the folder's run; `classes`, `name`, `keep_models` and `checkpoint_minutes` are then those it
            began with.
        keep_models: "last" or "all".
        checkpoint_minutes: how often the state of a network in training is written; None: never.
        callbacks: called with each record.
    """
    path = Path(folder)
    existing = RunFolder.open(path) if resume else None
    if existing is None:
        processes().only_first(lambda: refuse_existing(path))
        settings = RunSettings(
            name=name, config=config or UPSConfig(), keep_models=keep_models, checkpoint_minutes=checkpoint_minutes
        )
    else:
        settings = existing.settings.replace(config=_same_config(existing, config))
        existing.verify()
        classes = classes or settings.classes
    task = settings.config.task
    if classes is None:
        given = known_targets("labeled", as_pair("labeled", labeled)[1], task, settings.config.num_classes)
        classes = [str(index) for index in range(given.num_classes)]
    known = None if truth is None else to_numpy(truth)
    data = RunData(labeled, unlabeled, list(classes), task, validation=validation, test=test, truth=known)
    if existing is None:
        return _begin(path, complete(settings, data), learner, data, callbacks)
    check_same_data(existing, data)
    return _go_on(existing, settings, learner, data, callbacks)


def _learner(settings: RunSettings, data: RunData, progress: Progress | None, shared: Folder | None) -> Any:
    assert settings.learner is not None
    learner = settings.learner.build(data.task, progress)
    if shared is None or not isinstance(settings.learner, TorchLearnerSettings):
        return learner
    # With a warm start, a fit depends on all earlier fits, so it is not shared.
    return learner if settings.learner.training.warm_start else SharedFits(learner, settings, Path(shared))


def _labeler(
    path: Path, settings: RunSettings, in_workers: InWorkers | None, progress: Progress | None
) -> PoolLabeler | None:
    return None if settings.pool is None else ShardLabeler(path, settings, in_workers, progress)


def _begin(
    path: Path,
    settings: RunSettings,
    learner: Any,
    data: RunData,
    callbacks: Sequence[Callback],
    label: PoolLabeler | None = None,
) -> Iterator[RoundRecord]:
    split = split_of(data)
    _check_processes(settings, learner, split["hash"])
    if not hasattr(learner, "to_bytes"):
        warnings.warn(f"The run keeps no model: {type(learner).__name__} has no to_bytes.", UserWarning, stacklevel=3)
    records = _rounds(settings, learner, data, callbacks, [], label)

    def begun() -> Iterator[RoundRecord]:
        with locked_run(path):
            processes().only_first(lambda: refuse_existing(path))
            yield from RunWriter.begin(path, settings, learner, data, split).keep(records)

    return begun()


def _go_on(
    opened: RunFolder,
    settings: RunSettings,
    learner: Any,
    data: RunData | None,
    callbacks: Sequence[Callback] = (),
    label: PoolLabeler | None = None,
) -> Iterator[RoundRecord]:
    """Yield the remaining rounds; a finished run needs neither learner nor data."""
    _check_processes(settings, learner)
    with locked_run(opened.path):
        run = opened.reopened()  # before this process held the lock, another one may have continued the run
        _check_max_rounds(run, settings.config)
        done = run.records()
        stop = stop_of(done, settings.config)
        if stop is not None:
            processes().only_first(lambda: prepare(run, settings))
            _logger.info("The run in '%s' is finished: %s.", run.path, stop)
            return
        assert data is not None
        if done:
            done[-1] = done[-1].replace(pool=run.pool())
            if getattr(learner, "warm_start", False):
                run.load_model(learner)
        records = _rounds(settings, learner, data, callbacks, done, label)
        del done  # its last record would keep the pool in memory during the whole run
        yield from RunWriter.go_on(run, settings, learner, data).keep(records)


def _check_processes(settings: RunSettings, learner: Any, split: str = "") -> None:
    """Refuse processes that were not started for the same run, and learners that cannot train in several processes."""
    group = processes()
    if group.size == 1:
        return
    check_alike(group, {**settings.to_json(), "data and split": split})
    device = getattr(settings.learner, "device", None) or ""
    if device.startswith("cuda:"):
        problem = f"The device is {device!r}, one GPU, and {group.size} processes train"
        raise InvalidInputError(f"{problem}; with 'cuda' each has its own. Start one process for this run.")
    if learner is not None and not hasattr(learner, "processes"):
        problem = f"{type(learner).__name__} trains in one process, and there are {group.size}"
        raise InvalidInputError(f"{problem}; start it without torchrun, where it uses all cores.")


def _rounds(
    settings: RunSettings,
    learner: Any,
    data: RunData,
    callbacks: Sequence[Callback],
    done: list[RoundRecord],
    label: PoolLabeler | None,
) -> Iterator[RoundRecord]:
    held_out: dict[str, Any] = {"validation": data.validation, "test": data.test, "truth": data.truth}
    more: dict[str, Any] = {"resume_from": done, "callbacks": callbacks, "label": label}
    return self_train(learner, data.labeled, data.unlabeled, settings.config, **held_out, **more)


def _check_max_rounds(run: RunFolder, config: UPSConfig) -> None:
    last = run.num_rounds - 1
    if config.max_rounds < last:
        raise InvalidInputError(f"'max_rounds' must be at least {last}: that round is done. Got {config.max_rounds}.")


def _same_config(run: RunFolder, config: UPSConfig | None) -> UPSConfig:
    """The config to continue with: that of the run's start, except for the limits."""
    stored = run.settings.config
    if config is None:
        return stored
    wanted = config if config.num_classes is not None else config.replace(num_classes=stored.num_classes)
    changes = {name: value for name, value in wanted if value != getattr(stored, name)}
    fixed = [name for name in changes if name not in ("max_rounds", "max_minutes")]
    if fixed:
        differing = ", ".join(f"{name}={changes[name]!r} instead of {getattr(stored, name)!r}" for name in fixed)
        remedy = "Leave 'config' out to resume it as it began, or start another run in another folder"
        raise RunError(f"The run in '{run.path}' cannot go on with {differing}. {remedy}.")
    _check_max_rounds(run, wanted)
    return wanted
