"""What tests of methods share: a method by its name, a few rows, a batch of them, and a network."""

from typing import Any

import numpy as np
import torch
from torch import nn

from surelabel.augment.draws import Draws
from surelabel.augment.settings import AugmentSettings
from surelabel.core.labels import Task
from surelabel.core.selection import Selection
from surelabel.data.training_set import TrainingSet, make_problem
from surelabel.engine.method import Batch, Method
from surelabel.engine.settings import TrainingSettings
from surelabel.learners.settings import METHODS, TorchLearnerSettings

CPU = torch.device("cpu")
NAMES = [name for name in METHODS if name != "ups"]
MATCHING = ["fixmatch", "flexmatch", "freematch", "softmatch", "teacher-match"]
SEVERAL_LABELS = [name for name in NAMES if name not in MATCHING]
LABELED, POOL, CLASSES = 4, 6, 3
AUGMENT = AugmentSettings(flip=True, crop=1, operations=2, hole=3, jitter=0.3, mean=(0.5,) * 3, std=(0.25,) * 3)
FEW = AUGMENT.replace(operations=0, jitter=0.0)
"""Without RandAugment and jitter."""
ALIKE = FEW.replace(hole=0)
"""Its strong views are no stronger than its weak ones."""
PROGRESS = 0.1


def make(name: str, task: Task = "single", augment: AugmentSettings | None = None, **changes: Any) -> Any:
    """A method by its name, for batches of the pool of 6 rows."""
    parameters = changes.pop("parameters", {})
    training = TrainingSettings(
        **{"batch_size": POOL, "steps": 8, "ema_decay": 0.9, "augment": augment, "learning_rate": 0.05, **changes}
    )
    settings = TorchLearnerSettings(method=name, method_parameters=parameters, training=training)
    return settings.make_method()(task, training)


def samples(pictures: bool) -> np.ndarray:
    generator = np.random.default_rng(3)
    if pictures:
        return generator.integers(0, 256, size=(LABELED + POOL, 3, 6, 6)).astype(np.uint8)
    return generator.normal(size=(LABELED + POOL, 5)).astype(np.float32)


def training_set(task: Task = "single", selected: bool = False, pictures: bool = False) -> TrainingSet:
    """Four labels; if asked, a selected positive in row 5, a negative in row 6, and all as negatives in row 7.

    With several labels, rows 0, 2 and 3 are known in part; if asked, class 0 is selected as absent in row 3.
    """
    x = samples(pictures)
    y = np.arange(LABELED) % CLASSES
    several = np.array([[1, 0, -1], [0, 1, 0], [1, 1, -1], [-1, -1, 1]])
    in_part = 0 if task == "single" else 3
    positive, negative = np.zeros((2, in_part + POOL, CLASSES), dtype=bool)
    if selected:
        positive[in_part + 1, 2] = negative[in_part + 2, 0] = True
        negative[in_part + 3] = True
        negative[:in_part, 0] = [False, False, True][:in_part]
    problem = make_problem((x[:LABELED], y if task == "single" else several), x[LABELED:], task, CLASSES)
    return problem.training_set(Selection(positive, negative) if selected else None)


def batch(method: Method, rows: TrainingSet) -> Batch:
    """All rows in order, as the engine would give them."""
    count = len(rows.y)
    draws = Draws(torch.tensor(5), torch.arange(count) * 7919, torch.zeros(count, dtype=torch.int64))
    state = {name: value.clone() for name, value in method.tensors(*rows.y.shape).items()}
    state["parts"] = torch.zeros(len(method.parts))
    x, y, g = torch.from_numpy(rows.source[np.arange(count)]), *(torch.from_numpy(part[:]) for part in (rows.y, rows.g))
    return Batch(x, y, g, draws, torch.tensor(PROGRESS), (LABELED, POOL), torch.arange(count), state)


def network(pictures: bool, seed: int) -> nn.Module:
    """Without dropout and BatchNorm, so that a row's answer does not depend on its batch."""
    torch.manual_seed(seed)
    made = nn.Sequential(nn.Flatten(), nn.Linear(108 if pictures else 5, 8), nn.Tanh(), nn.Linear(8, CLASSES))
    with torch.no_grad():
        made[3].weight.mul_(6)  # sure of some answers, and not of all
    return made
