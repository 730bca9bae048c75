"""The demo's runs: handwritten digits as pictures, four labels of each, and the rest as a pool with known truth.

A seed draws a quarter of scikit-learn's digits as the test set, and which of the others are labeled. The settings were
chosen on other data (docs/demo.md).
"""

import contextlib
import itertools
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from surelabel.base.processes import call_in_workers
from surelabel.base.system import Progress
from surelabel.base.trust import user_key
from surelabel.data.draws import draw, sample_keys
from surelabel.data.run_data import FunctionData, RunData
from surelabel.data.source import ArraySource, Index
from surelabel.engine.settings import TrainingSettings
from surelabel.errors import InvalidInputError, UnsignedRunWarning
from surelabel.learners.settings import TorchLearnerSettings
from surelabel.reproduce.variants import VARIANTS, Variant
from surelabel.runs.session import start
from surelabel.settings import RunSettings, UPSConfig

SEEDS = (0, 1, 2)
LABELS_PER_CLASS = 4
NUM_TEST = 450
SHARED = ".shared"
"""The folder, next to the runs, of the networks that all rows begin with; removed when they are done."""


def digits(seed: int = 0, labels_per_class: int = LABELS_PER_CLASS, num_validation: int = 0) -> RunData:
    """Return scikit-learn's digits as pictures (1, 8, 8) in [0, 1]: labeled, pool, test, and a validation set if asked.

    Args:
        seed: draws the test, the labeled and the validation samples.
        labels_per_class: labeled samples of each of the ten classes.
        num_validation: samples taken out of the pool; their labels come on top of the labeled ones.

    Example:
        >>> data = digits(seed=0, labels_per_class=4)
        >>> len(data.labeled[1]), len(data.unlabeled), len(data.test[1])
        (40, 1307, 450)
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    x, y = load_digits(return_X_y=True)
    pictures, y = (x.reshape(-1, 1, 8, 8) / 16).astype(np.float32), y.astype(np.int64)
    rest, test = train_test_split(np.arange(len(y)), test_size=NUM_TEST, random_state=seed, stratify=y)
    rest = rest[np.argsort(draw(seed, "digits", sample_keys(rest)))]
    validation, rest = np.sort(rest[:num_validation]), rest[num_validation:]
    of_class = [rest[y[rest] == c] for c in range(10)]
    most = min(map(len, of_class)) // 2
    if not 1 <= labels_per_class <= most:
        raise InvalidInputError(
            f"labels_per_class must be 1 to {most}, so that a pool is left; got {labels_per_class}."
        )
    labeled = np.sort(np.concatenate([index[:labels_per_class] for index in of_class]))
    pool = np.setdiff1d(rest, labeled)

    def part(index: Index) -> tuple[ArraySource, np.ndarray]:
        return ArraySource(pictures[index], ids=index), y[index]

    return RunData(
        labeled=part(labeled),
        unlabeled=part(pool)[0],
        classes=[str(c) for c in range(10)],
        validation=part(validation) if num_validation else None,
        test=part(np.sort(test)),
        truth=y[pool],
    )


def demo_settings(seed: int = 0) -> RunSettings:
    """Return the complete settings of the demo's UPS run.

    Example:
        >>> demo_settings(seed=3).config.seed
        3
    """
    training = TrainingSettings(learning_rate=0.1, batch_size=32, epochs=1, min_steps=750)
    return RunSettings(
        name="UPS",
        config=UPSConfig(kappa_p=0.1, balance_rounds=2, max_rounds=4, seed=seed),
        learner=TorchLearnerSettings(
            model="surelabel.models.image:small_image_network", training=training, device="cpu", threads=1
        ),
        data=FunctionData(function="surelabel.reproduce.digits:digits", arguments={"seed": seed}),
    )


class Job(NamedTuple):
    """A run to be made.

    Attributes:
        folder: a new one.
        settings: which name their learner and data.
        shared: a folder for fits that jobs have in common (`surelabel.runs.start`); None: nothing is shared.
    """

    folder: Path
    settings: RunSettings
    shared: Path | None = None


def demo_jobs(out: Path, seeds: Sequence[int] = SEEDS, variants: Sequence[Variant] = VARIANTS) -> list[Job]:
    """Return a run for each row of the demo's table and each seed, `out/ups-0` for UPS with seed 0."""
    if not seeds or not variants:
        raise InvalidInputError("The demo needs at least one seed and one row of its table.")
    names = {variant: variant.__name__.replace("_", "-") for variant in variants}
    pairs = itertools.product(seeds, variants)
    return [Job(out / f"{names[one]}-{seed}", one(demo_settings(seed)), out / SHARED) for seed, one in pairs]


def run_jobs(jobs: Sequence[Job], workers: int = 2, progress: Progress | None = None) -> None:
    """Make all runs; an exception, Ctrl-C too, ends the workers, and every finished round is kept.

    On small networks two processes with a thread each are faster than one process with two threads.

    Args:
        jobs: taken up in this order.
        workers: how many processes; 1 makes the runs in this one.
        progress: called after each run with what it was, how many are done and how many there are.
    """
    workers = min(workers, len(jobs)) if min(workers, len(jobs)) > 1 else 0
    if workers:
        user_key()  # if it cannot be created, this process warns once for all workers
    with contextlib.closing(call_in_workers(_make, [(job, workers > 0) for job in jobs], workers)) as made:
        for done, (job, _) in enumerate(zip(jobs, made, strict=True), start=1):
            if progress is not None:
                progress(f"{job.settings.name}, seed {job.settings.config.seed}", done, len(jobs))


def _make(job: Job, is_worker: bool) -> None:
    import torch

    if is_worker:
        warnings.simplefilter("ignore", UnsignedRunWarning)
    # One thread, as in a worker: the same sums, and so the same networks.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for _ in start(job.folder, job.settings, shared=job.shared):
            pass
    finally:
        torch.set_num_threads(threads)
