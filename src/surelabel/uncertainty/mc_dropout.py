"""MC-dropout: p is the mean, u the standard deviation (n - 1) of the probabilities over passes with dropout.

p_soft and u_soft are the same for the softened probabilities: softmax(z / T), or sigmoid(z / T) for multi-label data.
MC-SpatialDropout drops whole channels (Tompson et al., 2015), MC-DropBlock drops blocks of a map (Ghiasi et al., 2018).
"""

import logging
import weakref
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor, nn

from surelabel.base.defaults import FitDefaults
from surelabel.core.arrays import require_count, require_number
from surelabel.core.labels import Task
from surelabel.models.dropout import BLOCK_SIZE, DropBlock2d, replace_dropout
from surelabel.models.stochastic import LayerTypes, check_layer_types, stochastic_mode
from surelabel.uncertainty.compiled import compiled_passes, filled, shared_summary
from surelabel.uncertainty.deterministic import Uncertainty, UncertaintyEstimator, check_settings, logits
from surelabel.uncertainty.moments import Summary, summarize
from surelabel.uncertainty.plan import PassPlan, block_rows, generators_restored, make_plan, repeating, summary

_logger = logging.getLogger("surelabel")

ROUNDING = 1e-3
"""If the largest u is below this, it may be only rounding that differs between copies of a row: try plain passes."""

SPATIAL_RATE, KEEP_PROBABILITY = 0.3, 0.9
"""The paper's rate for SpatialDropout, and its keep probability for DropBlock."""

_PLANS: weakref.WeakKeyDictionary[nn.Module, dict[Any, PassPlan]] = weakref.WeakKeyDictionary()
"""The plans for each network, as long as it lives."""


@dataclass(frozen=True)
class MCDropout(UncertaintyEstimator):
    """Mean and spread over repeated passes of any network with dropout; the passes are not kept.

    Layers before the first stochastic one run once for all passes, if the network allows it (`plan` tells).
    Each pass and each sample has its own draws, as in plain passes. With the same draws, p and u differ from those
    of plain passes by float32 rounding (1e-5), and by at most 0.02 under bfloat16 autocast.

    Randomness comes from torch's global generator; seed it inside `torch.random.fork_rng` for repeatable
    results. A network with another kind of randomness (its own numpy generator) needs `shared=False`. Masks are drawn
    block by block. With the same seed, p and u of a sample are equal in batches of the same size (a learner's
    `predict_batch_size`), and differ within their Monte Carlo error in batches of different sizes.

    Args:
        passes: how often the batch goes through the network, at least 2.
        temperature: T of the softened probabilities.
        stochastic_layers: your own layer classes to switch on besides torch's dropout layers.
        task: "single" for softmax, "multi" for a sigmoid per class.
        shared: whether passes share what they can; False runs plain passes. Rows are split into blocks, so that
            sharing needs about the memory of one pass over the batch, or of all passes over one sample.
        compile: whether shared passes run as one function made by torch.compile; None: on CUDA only.
        rows: how many rows every batch but the last has. A compiled function is made for blocks of such batches, and
            smaller ones are padded. None: taken from each batch, so that a batch of another size is compiled again.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
        >>> p, u, p_soft, u_soft = MCDropout(passes=10).estimate(model, torch.ones(5, 4), check=True)
        >>> p.shape, bool((u > 0).all())
        (torch.Size([5, 3]), True)
    """

    passes: int = FitDefaults.passes
    temperature: float = FitDefaults.temperature
    stochastic_layers: LayerTypes = ()
    task: Task = "single"
    shared: bool = True
    compile: bool | None = None
    rows: int | None = None

    def __post_init__(self) -> None:
        check_settings(self.temperature, self.task, self.passes)
        check_layer_types(self.stochastic_layers)
        if self.rows is not None:
            require_count("rows", self.rows, 1, remedy="None uses the size of each batch")

    def for_chunks(self, compile: bool, rows: int) -> Self:
        """Return the estimator for many chunks of one shape, with `compile` and `rows` filled in if they are None."""
        chosen = compile if self.compile is None else self.compile
        return replace(self, compile=chosen, rows=self.rows or rows)

    # Not inference_mode: later training could not use its tensors, nor those that a network caches.
    @torch.no_grad()
    def estimate(self, model: nn.Module, batch: Tensor, *, check: bool = False) -> Uncertainty:
        """Return p, u, p_soft and u_soft (N, C) for a batch (N, ...).

        Args:
            model: returns logits (N, C). Each module's mode is restored afterwards, even after an exception.
            batch: samples, on the network's device. It is not changed.
            check: raise NotStochasticError if the logits of all passes are identical, so that u would silently be 0.
        """
        with stochastic_mode(model, self.stochastic_layers) as layers:
            found, plan = self._run(model, layers, batch)
            estimate = found.uncertainty()
            # Only now: a caller's mistake or a diverged network says nothing about the next batch.
            self._remember(model, layers, batch, plan)
            if check and plan.way != "one by one" and found.differs.any() and float(found.u.max()) < ROUNDING:
                found = found._replace(differs=self._differs(model, batch))
        if not check:
            return estimate
        names = ", ".join(f"'{name}' ({type(layer).__name__})" for name, layer in layers.items()) or "none"
        remedy = (
            f"Layers switched on: {names}. Use nn.Dropout layers instead of torch.nn.functional.dropout, with a rate "
            "above 0 and below 1, or name the classes of your own layers with stochastic_layers=(MyLayer,)."
        )
        return found.checked(f"{self.passes} passes over {len(batch)} samples", remedy)

    @torch.no_grad()
    def plan(self, model: nn.Module, batch: Tensor) -> PassPlan:
        """Return how passes over batches like this one run, and the reason if they share nothing.

        Example:
            >>> model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
            >>> MCDropout().plan(model, torch.ones(5, 4)).way
            'repeated'
        """
        with stochastic_mode(model, self.stochastic_layers) as layers:
            return self._plan(model, layers, batch)

    def _plan(self, model: nn.Module, layers: Mapping[str, nn.Module], batch: Tensor) -> PassPlan:
        if not self.shared:
            return PassPlan("one by one", "shared=False asks for it")
        if len(batch) == 0:
            return PassPlan("one by one", "the batch is empty")
        known = _PLANS.get(model, {}).get(self._key(layers, batch))
        if known is not None:
            return known
        # At least two rows: a single one would broadcast where several do not fit.
        rows = max(2, block_rows(len(batch), batch[0].numel(), self.passes))
        trial = batch[:rows] if len(batch) > 1 else filled(batch, 2)
        return make_plan(model, layers, trial, self._compiles(batch))

    def _run(self, model: nn.Module, layers: Mapping[str, nn.Module], batch: Tensor) -> tuple[Summary, PassPlan]:
        """Return the summary of all passes, and how they ran."""
        plan = self._plan(model, layers, batch)
        while plan.way != "one by one":
            try:
                with generators_restored(batch.device, only_after_failure=True):
                    return self._share(model, layers, batch, plan), plan
            # What worked in a trial may fail on other rows, in the compiler, or for lack of memory.
            except Exception as error:
                # What cannot be compiled may still share its first layers.
                way = plan.way if plan.compiled else "one by one"
                plan = PassPlan(way, f"{plan.way}: {summary(error)}", plan.growth if plan.compiled else 1.0)
        plain = (logits(model, batch).unsqueeze(0) for _ in range(self.passes))
        return summarize(plain, self.task, self.temperature), plan

    def _remember(self, model: nn.Module, layers: Mapping[str, nn.Module], batch: Tensor, plan: PassPlan) -> None:
        """Keep a plan for this network, and log once why its passes are not as fast as they could be."""
        plans, key = _PLANS.setdefault(model, {}), self._key(layers, batch)
        # A single row does not tell whether rows depend on each other.
        if not self.shared or len(batch) < 2 or plans.get(key) == plan:
            return
        plans[key] = plan
        if plan.reason and layers:
            how = "one by one" if plan.way == "one by one" else "without the compiler, and slower"
            level = logging.WARNING if self._compiles(batch) else logging.INFO
            _logger.log(level, "%s: the stochastic passes run %s, because %s", type(model).__name__, how, plan.reason)

    def _share(self, model: nn.Module, layers: Mapping[str, nn.Module], batch: Tensor, plan: PassPlan) -> Summary:
        """Return the summary of passes that share their first layers, one block of rows at a time."""
        compiled = compiled_passes(model) if plan.compiled else None
        size = self.rows if plan.compiled and self.rows is not None else len(batch)
        rows = block_rows(size, batch[0].numel(), self.passes, plan.growth)
        summarized = shared_summary if compiled is None else compiled.function
        parts = []
        with nullcontext() if compiled is None else compiled.affine_norms(model):
            for part in torch.split(batch, rows):
                block = part if compiled is None else filled(part, rows)
                with repeating(layers.values() if plan.way == "repeated" else (), len(block), self.passes):
                    parts.append(summarized(model, block, self.passes, plan.way, self.task, self.temperature))
        return Summary(*(torch.cat(values)[: len(batch)] for values in zip(*parts, strict=True)))

    def _key(self, layers: Mapping[str, nn.Module], batch: Tensor) -> tuple[object, ...]:
        return (self._compiles(batch), *layers, *map(type, layers.values()))

    def _compiles(self, batch: Tensor) -> bool:
        return batch.is_cuda if self.compile is None else self.compile

    def _differs(self, model: nn.Module, batch: Tensor) -> Tensor:
        """Return whether plain passes over the batch differ, as a one-element tensor."""
        with generators_restored(batch.device):
            first = logits(model, batch).clone()
            return torch.tensor(any(not torch.equal(logits(model, batch), first) for _ in range(self.passes - 1)))


@dataclass(frozen=True)
class MCSpatialDropout(MCDropout):
    """`MCDropout` for a network that is trained with SpatialDropout instead of its own dropout.

    Args:
        rate: the share of channels that every dropout layer drops. None: 0.3, unless the network already has
            SpatialDropout, which is then kept.

    The other arguments are those of `MCDropout`.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Dropout(0.5), nn.Flatten())
        >>> MCSpatialDropout().prepare(model)
        >>> model[1]
        SpatialDropout2d(p=0.3, inplace=False)
    """

    rate: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rate is not None:
            require_number("rate", self.rate, 0, 1, ends="()")

    def prepare(self, model: nn.Module) -> None:
        """Replace the network's dropout by SpatialDropout before training."""
        if self.rate is None and any(isinstance(layer, nn.Dropout2d) for layer in model.modules()):
            return
        replace_dropout(model, "spatial", SPATIAL_RATE if self.rate is None else self.rate)


@dataclass(frozen=True)
class MCDropBlock(MCDropout):
    """`MCDropout` for a network that is trained with DropBlock instead of its own dropout.

    Args:
        keep_probability: the approximate share of a map that every dropout layer keeps; None: 0.9.
        block_size: the side of a block; None: 7, see `DropBlock2d`. If both are None and the network already has
            DropBlock, that is kept.

    The other arguments are those of `MCDropout`.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Dropout(0.5), nn.Flatten())
        >>> MCDropBlock(block_size=5).prepare(model)
        >>> model[1]
        DropBlock2d(keep_probability=0.9, block_size=5)
    """

    keep_probability: float | None = None
    block_size: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keep_probability is not None:
            require_number("keep_probability", self.keep_probability, 0, 1, ends="()")
        if self.block_size is not None:
            require_count("block_size", self.block_size, 1)

    def prepare(self, model: nn.Module) -> None:
        """Replace the network's dropout by DropBlock before training."""
        given = self.keep_probability is not None or self.block_size is not None
        if not given and any(isinstance(layer, DropBlock2d) for layer in model.modules()):
            return
        keep = KEEP_PROBABILITY if self.keep_probability is None else self.keep_probability
        replace_dropout(model, "dropblock", 1 - keep, self.block_size or BLOCK_SIZE)
