"""MC-dropout: p is the mean, u the standard deviation (n - 1) of the probabilities over passes with dropout.

p_soft and u_soft are the same of the softened probabilities: softmax(z / T), multi-label sigmoid(z / T).
MC-SpatialDropout drops whole channels (Tompson et al., 2015), MC-DropBlock blocks of a map (Ghiasi et al., 2018).
"""

import logging
import weakref
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor, nn

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
"""A largest u below this may come from copies of a row that were rounded differently: look at plain passes too."""

SPATIAL_RATE, KEEP_PROBABILITY = 0.3, 0.9
"""The paper's rate of SpatialDropout, and its keep probability of DropBlock."""

_PLANS: weakref.WeakKeyDictionary[nn.Module, dict[Any, PassPlan]] = weakref.WeakKeyDictionary()
"""What was found out about each network, as long as it lives."""


@dataclass(frozen=True)
class MCDropout(UncertaintyEstimator):
    """Mean and spread over repeated passes of any network with dropout; the passes are not kept.

    What comes before the first stochastic layer runs once for all passes, where the network allows it (`plan` tells).
    Each pass and each sample has draws of its own, as in plain passes. With the same draws, p and u differ from those
    of plain passes by float32 rounding (1e-5), and by at most 0.02 under bfloat16 autocast.

    Randomness comes from torch's global generator; seed it inside `torch.random.fork_rng` for a repeatable
    answer. A network with randomness of another kind (a numpy generator of its own) needs `shared=False`. Masks are
    drawn block by block: under one seed, p and u of a sample are equal in batches of the same size (a learner's
    `predict_batch_size`), and differ within their Monte-Carlo error in batches of another.

    Args:
        passes: how often the batch goes through the network, at least 2.
        temperature: T of the softened probabilities.
        stochastic_layers: layer classes of the user's own to switch on besides torch's dropout layers.
        task: "single" for softmax, "multi" for a sigmoid per class.
        shared: whether passes share what they can; False runs plain passes. The rows are cut into blocks, so that
            sharing needs about the memory of one pass over the batch, or of all passes over one sample.
        compile: whether shared passes run as one function made by torch.compile; None: on CUDA only.
        rows: how many rows batches have, but for the last one: a compiled function is made for blocks of these, and
            fewer rows are filled up. None: of each batch, so that a batch of another size is compiled anew.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
        >>> p, u, p_soft, u_soft = MCDropout(passes=10).estimate(model, torch.ones(5, 4), check=True)
        >>> p.shape, bool((u > 0).all())
        (torch.Size([5, 3]), True)
    """

    passes: int = 10
    temperature: float = 2.0
    stochastic_layers: LayerTypes = ()
    task: Task = "single"
    shared: bool = True
    compile: bool | None = None
    rows: int | None = None

    def __post_init__(self) -> None:
        check_settings(self.temperature, self.task, self.passes)
        check_layer_types(self.stochastic_layers)
        if self.rows is not None:
            require_count("rows", self.rows, 1, remedy="None takes those of each batch")

    def for_chunks(self, compile: bool, rows: int) -> Self:
        """Return the estimator for many chunks, with what it leaves open: whether it compiles, and one shape."""
        chosen = compile if self.compile is None else self.compile
        return replace(self, compile=chosen, rows=self.rows or rows)

    # Not inference_mode: no later training could use its tensors, nor those that a network caches in itself.
    @torch.no_grad()
    def estimate(self, model: nn.Module, batch: Tensor, *, check: bool = False) -> Uncertainty:
        """Return p, u, p_soft and u_soft (N, C) for a batch (N, ...).

        Args:
            model: returns logits (N, C). Each module's mode is as before afterwards, also after an exception.
            batch: samples, on the network's device. It is not changed.
            check: raise NotStochasticError when the logits of all passes are identical, and u silently 0.
        """
        with stochastic_mode(model, self.stochastic_layers) as layers:
            found, plan = self._run(model, layers, batch)
            estimate = found.uncertainty()
            # Only now: a caller's mistake, or a network that diverged, says nothing about the next one like it.
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
        """Return how the passes over batches like this run, and the reason where they share nothing.

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
        # Two rows at least: a single one is broadcast where more rows do not fit.
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
            # What worked in a trial may fail on other rows, in the compiler, or for want of memory.
            except Exception as error:
                # What the compiler cannot take may still share its beginning.
                way = plan.way if plan.compiled else "one by one"
                plan = PassPlan(way, f"{plan.way}: {summary(error)}", plan.growth if plan.compiled else 1.0)
        plain = (logits(model, batch).unsqueeze(0) for _ in range(self.passes))
        return summarize(plain, self.task, self.temperature), plan

    def _remember(self, model: nn.Module, layers: Mapping[str, nn.Module], batch: Tensor, plan: PassPlan) -> None:
        """Keep a plan for this network, and say once why its passes do not run as they might."""
        plans, key = _PLANS.setdefault(model, {}), self._key(layers, batch)
        # A single row does not tell whether rows depend on one another.
        if not self.shared or len(batch) < 2 or plans.get(key) == plan:
            return
        plans[key] = plan
        if plan.reason and layers:
            how = "one by one" if plan.way == "one by one" else "without the compiler, and slower"
            level = logging.WARNING if self._compiles(batch) else logging.INFO
            _logger.log(level, "%s: the stochastic passes run %s, because %s", type(model).__name__, how, plan.reason)

    def _share(self, model: nn.Module, layers: Mapping[str, nn.Module], batch: Tensor, plan: PassPlan) -> Summary:
        """Return the summary of passes that share their beginning; only those of a block of rows are kept at once."""
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
        """Return whether plain passes over the batch differ, as a tensor of one value."""
        with generators_restored(batch.device):
            first = logits(model, batch).clone()
            return torch.tensor(any(not torch.equal(logits(model, batch), first) for _ in range(self.passes - 1)))


@dataclass(frozen=True)
class MCSpatialDropout(MCDropout):
    """`MCDropout` of a network that is trained with SpatialDropout in place of its dropout.

    Args:
        rate: the share of the channels that is dropped, by every dropout layer of the network. None: 0.3, and a network
            that has SpatialDropout already stays as it is.

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
        """Replace the network's dropout by SpatialDropout, before it is trained."""
        if self.rate is None and any(isinstance(layer, nn.Dropout2d) for layer in model.modules()):
            return
        replace_dropout(model, "spatial", SPATIAL_RATE if self.rate is None else self.rate)


@dataclass(frozen=True)
class MCDropBlock(MCDropout):
    """`MCDropout` of a network that is trained with DropBlock in place of its dropout.

    Args:
        keep_probability: about the share of a map that every dropout layer of the network keeps; None: 0.9.
        block_size: the side of a block; None: 7, see `DropBlock2d`. A network that has DropBlock already stays as it is
            when both are None.

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
        """Replace the network's dropout by DropBlock, before it is trained."""
        given = self.keep_probability is not None or self.block_size is not None
        if not given and any(isinstance(layer, DropBlock2d) for layer in model.modules()):
            return
        keep = KEEP_PROBABILITY if self.keep_probability is None else self.keep_probability
        replace_dropout(model, "dropblock", 1 - keep, self.block_size or BLOCK_SIZE)
