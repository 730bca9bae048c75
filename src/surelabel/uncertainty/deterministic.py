"""p = softmax(z) (multi-label: sigmoid(z)) from one pass in evaluation mode, without uncertainty: eq. 2.

What all estimators share is here too: the checked logits of one pass, and the probabilities computed from them.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from surelabel.base.defaults import FitDefaults
from surelabel.base.settings import MOST_PASSES, TEMPERATURES
from surelabel.core.arrays import bad_argument, require_count, require_number
from surelabel.core.labels import Task, check_task
from surelabel.errors import InvalidInputError
from surelabel.models.stochastic import evaluation_mode


class Uncertainty(NamedTuple):
    """An estimator's result for a batch: (N, C) each, float32 (float64 if the network is).

    `p_soft` and `u_soft` belong to the probabilities softened by the estimator's temperature. `u` and `u_soft` are
    None if there is no estimate of uncertainty.
    """

    p: Tensor
    u: Tensor | None
    p_soft: Tensor
    u_soft: Tensor | None


@runtime_checkable
class UncertaintyEstimator(Protocol):
    """What a learner needs from an estimator; a class that derives from this one must define only `estimate`."""

    @property
    def members(self) -> int:
        """How many networks the learner trains in a round; if more than 1, `estimate` gets them as one `Ensemble`."""
        return 1

    def prepare(self, model: nn.Module) -> None:
        """Change a network in place before it is trained or gets trained weights; by default, do nothing."""
        return

    def estimate(self, model: nn.Module, batch: Tensor, *, check: bool = False) -> Uncertainty:
        """Return p, u, p_soft and u_soft (N, C); with `check`, raise if u would be meaningless.

        The network is in evaluation mode, and gradients are off: `torch.enable_grad()` turns them on.
        """
        ...


def check_estimator(estimator: object, task: Task) -> None:
    """Refuse anything but an estimator, and one for the other task, whose probabilities mean something else."""
    if isinstance(estimator, type) or not isinstance(estimator, UncertaintyEstimator):
        must = "be an estimator, such as MCDropout(), with 'estimate', 'prepare' and 'members'"
        remedy = "derive your own from surelabel.uncertainty.UncertaintyEstimator"
        raise bad_argument("uncertainty", must, repr(estimator), remedy)
    name = type(estimator).__name__
    if type(estimator).estimate is UncertaintyEstimator.estimate:
        raise InvalidInputError(f"The estimator {name} does not define 'estimate', which returns p and u; write it.")
    require_count(f"members of {name}", estimator.members, 1)
    its_task = getattr(estimator, "task", task)
    if its_task != task:
        raise bad_argument("uncertainty", f"be for task={task!r}", repr(its_task), f"make it as {name}(task={task!r})")


@dataclass(frozen=True)
class Deterministic(UncertaintyEstimator):
    """One pass in evaluation mode and no uncertainty: the selection of eq. 2.

    Args:
        temperature: T in p_soft = softmax(z / T).
        task: "single" for softmax, "multi" for a sigmoid per class.

    Example:
        >>> model = nn.Linear(1, 2)
        >>> _ = nn.init.zeros_(model.weight), nn.init.zeros_(model.bias)
        >>> Deterministic().estimate(model, torch.ones(1, 1)).p.tolist()
        [[0.5, 0.5]]
    """

    temperature: float = FitDefaults.temperature
    task: Task = "single"

    def __post_init__(self) -> None:
        check_settings(self.temperature, self.task)

    @torch.no_grad()
    def estimate(self, model: nn.Module, batch: Tensor, *, check: bool = False) -> Uncertainty:
        """Return p and p_soft (N, C); u and u_soft are None. `check` has no effect."""
        with evaluation_mode(model):
            z = logits(model, batch)
        check_finite(torch.isfinite(z).all(dim=1))
        p, p_soft = probabilities(z, self.task), probabilities(z / self.temperature, self.task)
        return Uncertainty(p=p, u=None, p_soft=p_soft, u_soft=None)


def predict_proba(model: nn.Module, batch: Tensor, task: Task = "single") -> Tensor:
    """Return p (N, C) of one deterministic pass; every module's mode is restored afterwards.

    Example:
        >>> predict_proba(nn.Dropout(0.9), torch.tensor([[0.0, 4.0]]), task="multi")
        tensor([[0.5000, 0.9820]])
    """
    return Deterministic(task=task).estimate(model, batch).p


def logits(model: nn.Module, batch: Tensor, rows: int | None = None) -> Tensor:
    """Return checked logits (N, C) of one pass over a batch (N, ...), in float32 (float64 stays float64).

    `rows` is the expected number of rows if the network repeats those of the batch; None: N.
    """
    rows = len(batch) if rows is None else rows
    # A copy: a first layer with inplace=True would overwrite the caller's data and the input of the next pass.
    z = model(batch.clone())
    if not isinstance(z, Tensor):
        got = type(z).__name__
        raise InvalidInputError(f"The network must return one tensor of logits (N, C). Got {got}; return logits alone.")
    if z.ndim != 2 or z.shape[0] != rows or z.shape[1] < 1 or not z.is_floating_point():
        got = f"shape {tuple(z.shape)} of {z.dtype}"
        raise InvalidInputError(f"The network must return floating-point logits (N, C), here ({rows}, C). Got {got}.")
    return z if z.dtype == torch.float64 else z.float()


def probabilities(z: Tensor, task: Task) -> Tensor:
    """Return p in [0, 1] from logits z (..., C): softmax over the classes, or a sigmoid per class."""
    p = torch.sigmoid(z) if task == "multi" else torch.softmax(z, dim=-1)
    # A vectorized softmax may end up one rounding step above 1.
    return p.clamp(max=1.0)


def check_finite(finite: Tensor) -> None:
    """Refuse a batch unless the logits of every sample (N,) were finite."""
    if not finite.all():
        raise InvalidInputError(
            f"The network's output is not finite for {int((~finite).sum())} of {finite.numel()} samples; lower the "
            f"learning rate if training diverged, or look for missing or infinite values in the data."
        )


def check_settings(temperature: float, task: Task, passes: int = 2) -> None:
    """Refuse a temperature out of range, an unknown task, and too few passes for a spread."""
    remedy = "1 leaves probabilities unchanged, the paper uses 2"
    require_number("temperature", temperature, *TEMPERATURES, remedy=remedy)
    check_task(task)
    remedy = "a single pass has no spread, the paper uses 10, and Deterministic() does without uncertainty"
    require_count("passes", passes, 2, MOST_PASSES, remedy=remedy)
