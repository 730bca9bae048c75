"""Which pseudo-labels are selected, which rounds are balanced, and when the rounds end."""

from collections.abc import Sequence
from typing import Literal, Self

from pydantic import Field, model_validator

from surelabel.config import Seed, Settings
from surelabel.labels import Task
from surelabel.records import StopReason


class UPSConfig(Settings):
    """How pseudo-labels are selected and when the rounds end. The defaults are the paper's.

    Attributes:
        task: "single" (one label a sample) or "multi" (several).
        num_classes: C, where the labels alone do not say.
        tau_p: least confidence of a positive label (the paper: 0.7, for multi-label 0.5).
        tau_n: largest confidence of a negative label.
        kappa_p: largest uncertainty of a positive label; infinite: selection by confidence alone (eq. 2).
        kappa_n: largest uncertainty of a negative label.
        gamma: multi-label: from which probability on a class counts as present (eq. 1).
        negatives: whether negative labels are used at all.
        balance: "equal" keeps as many positives of each class, "prior" in the labeled set's proportions, None all.
        balance_rounds: how many rounds are balanced; None: 10 for single-label with at most 20 classes, 1 for
            multi-label, else 0.
        balance_floor: balancing leaves each class at least this many positives, if it has them.
        max_rounds: how many rounds follow round 0 at most.
        tolerance: the rounds have converged when the number selected changes by less than this share, twice; None:
            never, as where all is selected and its number says nothing.
        max_minutes: no round starts after this many minutes.
        seed: everything random follows from it.
    """

    task: Task = "single"
    num_classes: int | None = Field(None, ge=1, le=10**9)
    tau_p: float = Field(0.7, ge=0, le=1)
    tau_n: float = Field(0.05, ge=0, le=1)
    kappa_p: float = Field(0.05, ge=0)
    kappa_n: float = Field(0.005, ge=0)
    gamma: float = Field(0.5, gt=0, lt=1)
    negatives: bool = True
    balance: Literal["equal", "prior"] | None = "equal"
    balance_rounds: int | None = Field(None, ge=0, lt=2**63)
    balance_floor: int = Field(25, ge=0, lt=2**63)
    max_rounds: int = Field(20, ge=0, le=1_000_000)
    tolerance: float | None = Field(0.01, ge=0)
    max_minutes: float | None = Field(None, ge=0)
    seed: Seed = 0

    @model_validator(mode="after")
    def _check_order_of_thresholds(self) -> Self:
        if self.tau_n > self.tau_p:
            raise ValueError(f"tau_n ({self.tau_n}) must not be larger than tau_p ({self.tau_p}).")
        return self

    @property
    def thresholds(self) -> dict[str, float]:
        """The arguments of `select`."""
        return {name: getattr(self, name) for name in ("tau_p", "tau_n", "kappa_p", "kappa_n", "gamma")}

    def num_balanced_rounds(self, num_classes: int) -> int:
        """How many of the first rounds are balanced."""
        if self.balance is None:
            return 0
        if self.balance_rounds is not None:
            return self.balance_rounds
        if self.task == "multi":
            return 1
        return 10 if num_classes <= 20 else 0

    def stop_reason(self, counts: Sequence[int], num_classes: int, minutes: float) -> StopReason | None:
        """Say why the rounds end after the last of these, or None.

        Args:
            counts: of each round so far, positives plus negatives before balancing.
            num_classes: C.
            minutes: how long the run has taken.
        """
        last = len(counts) - 1
        both_unbalanced = last - 1 > self.num_balanced_rounds(num_classes)
        if last >= 3 and both_unbalanced and self._unchanged(counts[-3], counts[-2]) and self._unchanged(*counts[-2:]):
            return "converged"
        if last >= self.max_rounds:
            return "max_rounds"
        if self.max_minutes is not None and minutes >= self.max_minutes:
            return "max_minutes"
        return None

    def _unchanged(self, before: int, after: int) -> bool:
        if self.tolerance is None:
            return False
        return before == after or abs(after - before) < self.tolerance * before
