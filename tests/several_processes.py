"""What tests compare between one process and several: run by itself, or by torchrun.

torchrun --nproc-per-node 2 tests/several_processes.py FOLDER [CASE …]    writes FOLDER/RANK.npz
"""

import contextlib
import datetime
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import torch
from sharded_support import sharded
from torch import Tensor, nn

import surelabel as sl
from surelabel.augment.settings import AugmentSettings
from surelabel.cluster.torchrun import end
from surelabel.data.sharded import ShardedSource
from surelabel.engine import parallel
from surelabel.engine.feed import Samples
from surelabel.engine.settings import TrainingSettings
from surelabel.learners.network import TorchLearner
from surelabel.learners.settings import TorchLearnerSettings
from surelabel.uncertainty.augmentation import RandomAugmentation
from surelabel.uncertainty.deep_ensemble import DeepEnsemble
from surelabel.uncertainty.mc_dropout import MCDropout

STEPS = 10
NUM_LABELED, NUM_POOL, CLASSES = 16, 53, 3
AUGMENT = AugmentSettings(flip=True, crop=1, hole=2, mean=(0.5,) * 3, std=(0.25,) * 3)
TRAINING = TrainingSettings(
    batch_size=16,
    labeled_batch_size=8,
    negative_batch_size=8,
    steps=STEPS,
    learning_rate=0.2,
    ema_decay=0.9,
    gradient_clip=1.0,
    label_smoothing=0.05,
    augment=AUGMENT,
)
CONFIG = sl.UPSConfig(tau_p=0.55, tau_n=0.15, kappa_p=0.03, kappa_n=0.02, balance=None, max_rounds=1)
OTHERS = ("mean-teacher", "pi-model", "fixmatch", "flexmatch", "freematch", "softmatch", "teacher-match")
Results = dict[str, npt.NDArray[Any]]


class Small(nn.Module):
    """A network without dropout and BatchNorm, in double precision unless asked otherwise."""

    def __init__(self, shape: tuple[int, ...], classes: int, *between: nn.Module, dtype: torch.dtype = torch.float64):
        super().__init__()
        size = int(np.prod(shape))
        layers = nn.Linear(size, 12), *between, nn.Tanh(), nn.Linear(12, classes)
        self.layers, self.dtype = nn.Sequential(*layers).to(dtype), dtype

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x.flatten(1).to(self.dtype))


def pictures() -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Small pictures whose class is the channel that is brightest on average, mostly."""
    y = np.arange(NUM_LABELED + NUM_POOL) % CLASSES
    noise = np.random.default_rng(5).integers(0, 170, size=(len(y), 3, 6, 6))
    return (noise + 60 * np.eye(3, dtype=int)[y][:, :, None, None]).astype(np.uint8), y


def rounds_of(
    learner: Any, config: sl.UPSConfig = CONFIG, task: str = "single", pool_of: Callable[[Any], Any] = np.asarray
) -> Results:
    """Return the weights and the pool's labels of every round."""
    x, y = pictures()
    config = config.replace(task=task)
    known = y[:NUM_LABELED]
    if task == "multi":
        known = np.stack([known != 0, known != 1, known == 2], axis=1).astype(np.int64)
        known[::3, 0] = -1
        known[4:8] = -1  # rows that say nothing are not counted, and one process may have more of them
    found: Results = {}
    for record in sl.self_train(learner, (x[:NUM_LABELED], known), pool_of(x[NUM_LABELED:]), config):
        assert record.pool is not None
        name, pool = f"round {record.round}", record.pool
        tensors = [tensor.double().reshape(-1) for tensor in learner.network.state_dict().values()]
        found[f"{name}: weights"] = torch.cat(tensors).numpy()
        found[f"{name}: label"], found[f"{name}: selected"] = pool.label, pool.positive
        found[f"{name}: negative"] = pool.negative[:]
        found[f"{name}: u"] = pool.uncertainty
    return found


def learner(
    training: TrainingSettings = TRAINING, *between: Callable[[], nn.Module], uncertainty: Any = None, **rest: Any
) -> TorchLearner:
    """Return a learner whose chunks have 16 samples."""
    dtype = rest.pop("dtype", torch.float64)
    return TorchLearner(
        lambda *shape: Small(*shape, *(one() for one in between), dtype=dtype),
        training=training,
        uncertainty=uncertainty or RandomAugmentation(passes=3, crop=1, task=rest.get("task", "single")),
        predict_batch_size=16,
        device="cpu",
        **rest,
    )


def norm() -> nn.Module:
    return nn.BatchNorm1d(12)


OF_METHODS = TRAINING.replace(batch_size=32, label_smoothing=0.0, negative_batch_size=None)


def of_this_process() -> nn.Module:
    """Return a layer whose first weights are others in each process."""
    layer = nn.Linear(12, 12)
    nn.init.constant_(layer.bias, parallel.processes().rank)
    return layer


class Chosen(nn.Module):
    """Adds a layer where a row asks for it; a batch without such rows does not use its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(12, 12)

    def forward(self, x: Tensor) -> Tensor:
        asks = x[:, :1] > 0.6
        return x + self.layer(x) * asks if asks.any() else x


class Remembers(nn.Module):
    """Keeps the mean of the rows that it has seen in training, which are others in each process."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(12))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.mean = torch.lerp(self.mean, x.detach().mean(0), 0.1)
        return x - self.mean


def minutes() -> Results:
    """Return the time of a round, of which the rule for `max_minutes` must be the same in all processes."""
    x, y = pictures()
    labeled, pool = (x[:NUM_LABELED], y[:NUM_LABELED]), x[NUM_LABELED:]
    (record,) = sl.self_train(learner(TRAINING.replace(steps=1)), labeled, pool, CONFIG.replace(max_rounds=0))
    return {"minutes": np.array(record.minutes)}


def dropped() -> Results:
    """Return which values each process drops in each of two steps, shape (processes, 2, rows, 12)."""
    masks: list[npt.NDArray[np.bool_]] = []

    class Watched(nn.Dropout):
        def forward(self, x: Tensor) -> Tensor:
            y = super().forward(x)
            masks.append((y == 0).numpy())
            return y

    rounds_of(learner(TRAINING.replace(steps=2), lambda: Watched(0.5)), CONFIG.replace(max_rounds=0))
    return {"masks": np.stack(parallel.processes().in_all(lambda: np.stack(masks[:2])))}


class Kept:
    """Checkpoints after every step, in the memory of the process that writes them."""

    minutes, at_end = 0.0, False

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def read(self, round: int) -> bytes | None:
        assert parallel.processes().rank == 0, "the first process reads for all"
        return self.written[-1] if self.written else None

    def write(self, round: int, data: bytes) -> None:
        self.written.append(data)


class BrokenOffError(Exception):
    """Training ends here."""


def break_off(what: str, done: int, total: int) -> None:
    if done == 7:
        raise BrokenOffError


def resumed() -> Results:
    """Train with dropout at once, and in two parts; return both, and how many checkpoints each process has written."""
    store, found = Kept(), {}
    for name, checkpoints, progress in (("whole", None, None), ("", store, break_off), ("parts", store, None)):
        one = learner(TRAINING, lambda: nn.Dropout(0.3), uncertainty=MCDropout(3), progress=progress)
        one.checkpoints = checkpoints
        with contextlib.suppress(BrokenOffError):
            found[name] = rounds_of(one, CONFIG.replace(max_rounds=0))["round 0: weights"]
        if progress is not None:
            found["written"] = np.array(parallel.processes().in_all(lambda: len(store.written)))
    return found


def of_method(name: str, synchronized: bool = False, **rest: Any) -> Results:
    """Return what a method finds; `synchronized`: by a network with BatchNorm over all processes."""
    training = OF_METHODS.replace(sync_batchnorm=synchronized)
    method = TorchLearnerSettings(method=name, training=training).make_method()
    one = learner(training, *([norm] if synchronized else []), method=method, **rest)
    return rounds_of(one, CONFIG, rest.get("task", "single"))


def statistics() -> Results:
    """Return BatchNorm's mean after one step, to which all rows of a batch count alike, in whichever process."""
    one = learner(TRAINING.replace(steps=1, ema_decay=0), norm)
    rounds_of(one, CONFIG.replace(max_rounds=0))
    return {"mean": one.network.layers[1].running_mean.numpy()}


def statistics_of_a_teacher() -> Results:
    """The same of a teacher that normalizes by its own batches."""
    training = OF_METHODS.replace(steps=1)
    method = TorchLearnerSettings(method="mean-teacher", training=training).make_method()
    one = learner(training, norm, method=method)
    rounds_of(one, CONFIG.replace(max_rounds=0))
    return {"mean": one.network.layers[1].running_mean.numpy()}


def compiled() -> Results:
    """Compile what several processes do, and compare it with what one process does as it is written."""
    several = parallel.processes().size > 1
    augment = AugmentSettings(mean=(0.5,) * 3, std=(0.25,) * 3)
    training = TRAINING.replace(sync_batchnorm=True, compile=several, augment=augment)
    return rounds_of(learner(training, norm), CONFIG.replace(max_rounds=0))


@contextlib.contextmanager
def samples_in_memory() -> Iterator[None]:
    """Let a CPU hold all samples in one tensor, as a GPU does."""
    made = Samples.__init__

    def hold(self: Samples, *arguments: Any, **named: Any) -> None:
        made(self, *arguments, **named)
        self.store = torch.as_tensor(np.asarray(self.source[np.arange(len(self.source))]))

    with mock.patch.object(Samples, "__init__", hold):
        yield


def in_shards(x: Any) -> ShardedSource:
    """Return the pool in two shards of blocks of five rows, of which a window has two or three."""
    return sharded(x, [[5] * 6, [5] * 4 + [3]], window=10)


def stored() -> Results:
    with samples_in_memory():
        return rounds_of(learner())


CASES: dict[str, Callable[[], Results]] = {
    "ups": lambda: rounds_of(learner(), CONFIG.replace(max_rounds=2)),
    "ups in memory": stored,
    "ups in shards": lambda: rounds_of(learner(), pool_of=in_shards),
    "deep ensemble": lambda: rounds_of(learner(uncertainty=DeepEnsemble(2))),
    "several labels": lambda: rounds_of(
        learner(TRAINING.replace(label_smoothing=0, negative_batch_size=None), task="multi"), task="multi"
    ),
    "float32": lambda: rounds_of(learner(dtype=torch.float32)),
    "other first weights": lambda: rounds_of(learner(TRAINING, of_this_process), CONFIG.replace(max_rounds=0)),
    "weights that the data choose": lambda: rounds_of(
        learner(TRAINING.replace(weight_decay=0.01), Chosen), CONFIG.replace(max_rounds=0)
    ),
    "statistics": statistics,
    "synchronized batch norm": lambda: rounds_of(learner(TRAINING.replace(sync_batchnorm=True), norm)),
    "synchronized batch norm, teacher-match": lambda: of_method("teacher-match", True),
    "statistics of a teacher": statistics_of_a_teacher,
    "mean-teacher, several labels": lambda: of_method("mean-teacher", task="multi"),
    **{name: lambda name=name: of_method(name) for name in OTHERS},
}
"""Equal for any number of processes, but for rounding."""

SLOW: dict[str, Callable[[], Results]] = {
    "synchronized batch norm, compiled": compiled,
    **{f"synchronized batch norm, {name}": lambda name=name: of_method(name, True) for name in OTHERS[:-1]},
}
"""Equal too, and run where they are asked for."""

RANDOM: dict[str, Callable[[], Results]] = {
    "dropout": lambda: rounds_of(learner(TRAINING, lambda: nn.Dropout(0.3), uncertainty=MCDropout(3))),
    "minutes": minutes,
    "dropped": dropped,
    "resumed": resumed,
    "own statistics": lambda: rounds_of(learner(TRAINING, Remembers), CONFIG.replace(max_rounds=0)),
    "batch norm": lambda: rounds_of(learner(TRAINING, norm)),
    "mixmatch": lambda: of_method("mixmatch"),
    "ict": lambda: of_method("ict"),
}
"""Equal in distribution only."""


def all_of(cases: dict[str, Callable[[], Results]]) -> Results:
    return {f"{case}: {name}": value for case, run in cases.items() for name, value in run().items()}


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", timeout=datetime.timedelta(minutes=2))
    folder, *asked = sys.argv[1:]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # batches that two processes cannot divide would give other results
        found = all_of({name: SLOW[name] for name in asked} or CASES)
    if not asked:
        found |= all_of(RANDOM)
    np.savez(Path(folder) / f"{parallel.processes().rank}.npz", **found)
    torch.distributed.destroy_process_group()
    end(0)
