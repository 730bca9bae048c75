"""What a run's settings say about its data, and whether a resumed run has the same data."""

import hashlib
import math
from typing import Any

import numpy as np

from surelabel.base.text import is_text
from surelabel.core.arrays import to_numpy
from surelabel.data.draws import sample_keys
from surelabel.data.run_data import RunData
from surelabel.data.source import ArraySource, Source, as_source
from surelabel.data.splits import split_hash
from surelabel.data.training_set import as_pair
from surelabel.errors import InvalidInputError, RunError
from surelabel.learners.settings import TorchLearnerSettings
from surelabel.runs.reading import RunFolder
from surelabel.runs.tables import ids_column
from surelabel.settings import RunSettings

_ROWS = 256
"""How many rows of an array in memory go into a fingerprint."""


def complete(settings: RunSettings, data: RunData) -> RunSettings:
    """Fill in what the settings say about the data; refuse a config for other data or another learner."""
    if data.unlabeled is not None:
        check_uncertainties(settings)
    config, classes = settings.config, tuple(str(name) for name in data.classes)
    if config.task != data.task:
        raise InvalidInputError(f"config.task is {config.task!r}, and the data are for {data.task!r}; set config.task.")
    if len(set(classes)) != len(classes):
        raise InvalidInputError(f"The classes must have different names. Got {list(classes)}.")
    for name in classes:
        if not is_text(name):
            raise InvalidInputError(f"The class {name!r} holds a lone surrogate, which cannot be written; rename it.")
    if config.num_classes not in (None, len(classes)):
        raise InvalidInputError(f"config.num_classes is {config.num_classes}; the data have {len(classes)} classes.")
    if settings.pool is not None and settings.comparison is not None and data.validation is None:
        remedy = "hold some labels out for validation, or leave the comparison out"
        raise InvalidInputError(f"A cross-validation would label the pool in shards again in each fold; {remedy}.")
    source = None if settings.data is None else settings.data.replace(**data.learned)
    return settings.replace(
        fingerprint=fingerprint(data),
        config=config.replace(num_classes=len(classes)),
        data=source,
        pool=None if settings.pool is None else settings.pool.replace(**data.shards),
        classes=classes,
        sample_shape=as_source("labeled", data.labeled[0]).sample_shape,
        feature_names=None if data.feature_names is None else tuple(data.feature_names),
    )


def check_uncertainties(settings: RunSettings) -> None:
    """Before training, refuse thresholds on uncertainties that the learner does not estimate."""
    config, learner = settings.config, settings.learner
    without = isinstance(learner, TorchLearnerSettings) and learner.uncertainty == "none"
    if without and min(config.kappa_p, config.kappa_n) < math.inf:
        limits = f"kappa_p and kappa_n to judge ({config.kappa_p} and {config.kappa_n})"
        remedy = "make both infinite to select by confidence alone, or use another estimator, such as 'mc-dropout'"
        raise InvalidInputError(f"uncertainty='none' leaves nothing for {limits}; {remedy}.")


def fingerprint(data: RunData) -> str:
    """Return a hash of all ids and labels, and of some rows of arrays in memory (others may be slow or random)."""
    digest = hashlib.sha256()
    pairs = (data.labeled, (data.unlabeled, data.truth), data.validation, data.test)
    for name, pair in zip(("labeled", "unlabeled", "validation", "test"), pairs, strict=True):
        digest.update(f"{name}:{data.task}:{list(data.classes)}".encode())
        samples, codes = (None, None) if pair is None else as_pair(name, pair)
        if samples is not None:
            _add_source(digest, as_source(name, samples))
        if codes is not None:
            values = to_numpy(codes)
            digest.update((values.astype(np.int64) if values.dtype.kind in "iub" else values).tobytes())
    return digest.hexdigest()


def check_same_data(run: RunFolder, data: RunData) -> None:
    """Refuse to continue with data other than those the run began with."""
    if fingerprint(data) != run.settings.fingerprint:
        remedy = "Give the same samples, ids and labels, in the same order, or start another run in another folder"
        raise RunError(f"The data are not those that the run in '{run.path}' began with. {remedy}.")


def split_of(data: RunData) -> dict[str, Any]:
    """Return the ids of the labeled and of the validation samples, numbers and text as they are, and their hash.

    If ids are only positions within each part, as for arrays without ids, they do not identify samples: the hash is
    then that of the data. Ids that the tables could not hold are refused, in the pool too.
    """
    validation = None if data.validation is None else data.validation[0]
    parts = {"labeled": data.labeled[0], "validation": validation, "unlabeled": data.unlabeled}
    ids = {name: as_source(name, samples).ids for name, samples in parts.items() if samples is not None}
    columns = {name: ids_column(values) for name, values in ids.items()}
    plain = {name: [_plain(value) for value in columns[name].to_pylist()] for name in ids if name != "unlabeled"}
    everywhere = np.concatenate([sample_keys(values) for values in ids.values()])
    counted = len(np.unique(everywhere)) < len(everywhere)
    ids.pop("unlabeled", None)
    return {"validation": [], **plain, "hash": fingerprint(data) if counted else split_hash(**ids)}


def _plain(value: Any) -> int | float | str:
    """Return an id in a form for JSON; dates and bytes, which Parquet can hold too, become text."""
    number = isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
    return value if number else str(value)


def _add_source(digest: Any, source: Source) -> None:
    digest.update(f"{len(source)}:{source.sample_shape}".encode())
    digest.update(np.ascontiguousarray(sample_keys(source.ids)).tobytes())
    if isinstance(source, ArraySource) and len(source):
        index = np.unique(np.linspace(0, len(source) - 1, _ROWS).astype(np.int64))
        rows = source[index]
        rows = rows.toarray() if hasattr(rows, "toarray") else to_numpy(rows)
        digest.update(np.ascontiguousarray(rows).tobytes())
