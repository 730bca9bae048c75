"""MC-dropout: p is the mean, u the standard deviation (n - 1) of the probabilities over passes with dropout.

p_soft and u_soft are the same of the softened probabilities: softmax(z / T), multi-label sigmoid(z / T).
"""

import logging
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor, nn

from surelabel.core.arrays import require_count
from surelabel.core.labels import Task, check_task
from surelabel.errors import NotStochasticError
from surelabel.models.stochastic import LayerTypes, check_layer_types, stochastic_mode
from surelabel.uncertainty.compiled import compiled_passes, filled, shared_sums
from surelabel.uncertainty.deterministic import (
    Uncertainty,
    UncertaintyEstimator,
    check_finite,
    check_not_empty,
    check_passes,
    check_temperature,
    logits,
)
from surelabel.uncertainty.plan import Key, PassPlan, generators_restored, known_plan, make_plan, remember, summary
from surelabel.uncertainty.sharing import Way, block_rows, repeating, row_blocks
from surelabel.uncertainty.tally import Tally, tallied

_logger = logging.getLogger("surelabel")

ROUNDING = 1e-3
"""A largest u below this may come from copies of a row that were rounded differently: look at plain passes too."""


@dataclass(frozen=True)
class MCDropout(UncertaintyEstimator):
    """Mean and spread over repeated passes of any network with dropout; the passes are not kept.

    What comes before the first stochastic layer runs once for a whole chunk of passes, where the network allows it
    (`plan` tells). Each pass and each sample has draws of its own, as in plain passes. With the same draws, p and u
    differ from those of plain passes by float32 rounding (1e-5), and by at most 0.02 under bfloat16 autocast.

    Randomness comes from torch's global generator; seed it inside `torch.random.fork_rng` for a repeatable
    answer. A network with randomness of another kind (a numpy generator of its own) needs `chunk=1`. Masks are drawn
    block by block: under one seed, p and u of a sample are equal in batches of the same size (a learner's
    `predict_batch_size`), and differ within their Monte-Carlo error in batches of another.

    Args:
        passes: how often the batch goes through the network, at least 2.
        temperature: T of the softened probabilities.
        stochastic_layers: layer classes of the user's own to switch on besides torch's dropout layers.
        task: "single" for softmax, "multi" for a sigmoid a class.
        chunk: how many passes run at once; 1 runs plain passes. The rows are cut into blocks, so that these passes
            need about the memory of one pass over the batch, or of one sample.
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
    chunk: int = 10
    compile: bool | None = None
    rows: int | None = None

    def __post_init__(self) -> None:
        check_passes(self.passes)
        check_temperature(self.temperature)
        check_layer_types(self.stochastic_layers)
        check_task(self.task)
        require_count("chunk", self.chunk, 1, remedy="1 runs plain passes, 10 is the default")
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
        if check:
            check_not_empty(batch)
        with stochastic_mode(model, self.stochastic_layers) as layers:
            tally, way = self._tally(model, layers, batch)
            if check and not self._differs(model, batch, tally, way):
                raise NotStochasticError(self._why_silent(layers, len(batch)))
        return tally.uncertainty()

    @torch.no_grad()
    def plan(self, model: nn.Module, batch: Tensor) -> PassPlan:
        """Return how the passes over batches like this run, and the reason where they share nothing.

        Example:
            >>> model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
            >>> MCDropout().plan(model, torch.ones(5, 4)).way
            'repeated'
        """
        with stochastic_mode(model, self.stochastic_layers) as layers:
            plan = self._plan(model, layers, batch)
            if plan.way == "one by one" and self._compiles(batch):
                return replace(self, compile=False)._plan(model, layers, batch)
        return plan

    def _plan(self, model: nn.Module, layers: Mapping[str, nn.Module], batch: Tensor) -> PassPlan:
        if self.chunk == 1:
            return PassPlan("one by one", "chunk=1 asks for it")
        if len(batch) == 0:
            return PassPlan("one by one", "the batch is empty")
        known = known_plan(model, self._key(layers, batch))
        return known or make_plan(model, layers, self._trial(batch), self._ways(batch))

    def _trial(self, batch: Tensor) -> Tensor:
        # Two rows at least: a single one is broadcast where more rows do not fit.
        rows = max(2, row_blocks(batch, min(self.chunk, self.passes)))
        return batch[:rows] if len(batch) > 1 else filled(batch, 2)

    def _tally(self, model: nn.Module, layers: Mapping[str, nn.Module], batch: Tensor) -> tuple[Tally, Way]:
        """Return the tally of all passes, and the way in which they ran."""
        plan = self._plan(model, layers, batch)
        if plan.way != "one by one":
            try:
                with generators_restored(batch.device, only_after_failure=True):
                    tally = self._shared(model, layers, batch, plan)
            # What worked in a trial may fail on other rows, in the compiler, or for want of memory.
            except Exception as error:
                plan = PassPlan("one by one", f"{plan.way}: {summary(error)}")
            else:
                # First: a network that diverged tells nothing about what it will be like when it is trained anew.
                check_finite(tally.finite)
                self._remember(model, layers, batch, plan)
                return tally, plan.way
        if self._compiles(batch) and self.chunk > 1:
            # What the compiler cannot take may still share its beginning.
            self._remember(model, layers, batch, plan)
            return replace(self, compile=False)._tally(model, layers, batch)
        tally = tallied((logits(model, batch) for _ in range(self.passes)), self.task, self.temperature)
        # Only now: a mistake of the caller's is raised by the plain passes too, and says nothing about the network.
        if self.chunk > 1:
            self._remember(model, layers, batch, plan)
        return tally, "one by one"

    def _remember(self, model: nn.Module, layers: Mapping[str, nn.Module], batch: Tensor, plan: PassPlan) -> None:
        """Keep a plan for this network, and say once why its passes do not run as they might."""
        key = self._key(layers, batch)
        # A single row does not tell whether rows depend on one another.
        if len(batch) == 1 or known_plan(model, key) == plan:
            return
        remember(model, key, plan)
        if plan.way == "one by one" and layers:
            compiles = self._compiles(batch)
            how = "without the compiler, and slower" if compiles else "one by one"
            level = logging.WARNING if compiles else logging.INFO
            _logger.log(level, "%s: the stochastic passes run %s, because %s", type(model).__name__, how, plan.reason)

    def _shared(self, model: nn.Module, layers: Mapping[str, nn.Module], batch: Tensor, plan: PassPlan) -> Tally:
        """Return the tally of passes that share their beginning; no more of them are kept than a block of rows has."""
        compiled, way = compiled_passes(model) if self._compiles(batch) else None, plan.way
        rows = self._block(batch, plan, filled_up=compiled is not None)
        sums = shared_sums if compiled is None else compiled.function
        total = Tally(self.task, self.temperature)
        with nullcontext() if compiled is None else compiled.affine_norms(model):
            for passes in chunk_sizes(self.passes, self.chunk):
                parts = []
                for part in torch.split(batch, rows):
                    block = part if compiled is None else filled(part, rows)
                    with repeating(way, layers.values(), len(block), passes):
                        parts.append(sums(model, block, passes, way, self.task, self.temperature))
                total.merge(Tally.joined(parts, len(batch), passes, self.task, self.temperature))
        return total

    def _block(self, batch: Tensor, plan: PassPlan, filled_up: bool) -> int:
        passes = min(self.chunk, self.passes)
        if filled_up and self.rows is not None:
            return block_rows(self.rows, batch[0].numel(), passes, plan.growth)
        return row_blocks(batch, passes, plan.growth)

    def _ways(self, batch: Tensor) -> tuple[Way, ...]:
        # The compiler does not see through the alignment of single functions, and makes good what vmap costs.
        return ("repeated", "vectorized") if self._compiles(batch) else ("repeated", "aligned", "vectorized")

    def _key(self, layers: Mapping[str, nn.Module], batch: Tensor) -> Key:
        return (*self._ways(batch), *layers, *map(type, layers.values()))

    def _compiles(self, batch: Tensor) -> bool:
        return batch.is_cuda if self.compile is None else self.compile

    def _differs(self, model: nn.Module, batch: Tensor, tally: Tally, way: Way) -> bool:
        differs = bool(tally.differs.any())
        if not differs or float(tally.plain.std.max()) >= ROUNDING or way == "one by one":
            return differs
        with generators_restored(batch.device):
            first = logits(model, batch).clone()
            return any(not torch.equal(logits(model, batch), first) for _ in range(self.passes - 1))

    def _why_silent(self, layers: Mapping[str, nn.Module], rows: int) -> str:
        names = ", ".join(f"'{name}' ({type(layer).__name__})" for name, layer in layers.items()) or "none"
        return (
            f"All {self.passes} passes over {rows} samples gave the same output: MC-dropout needs a "
            f"network that is random with dropout on, and the uncertainty would be 0 everywhere. Layers "
            f"switched on: {names}. Use nn.Dropout layers instead of torch.nn.functional.dropout; give "
            f"dropout a rate above 0 and below 1; or name the classes of your own layers with "
            f"stochastic_layers=(MyLayer,), in which F.dropout(x, p, self.training) works too."
        )


def chunk_sizes(passes: int, chunk: int) -> list[int]:
    """Return how many passes run at once, chunk by chunk: at most `chunk`, in sizes that differ by at most one.

    Example:
        >>> chunk_sizes(25, 10)
        [9, 8, 8]
    """
    chunks = -(-passes // chunk)
    return [passes // chunks + (index < passes % chunks) for index in range(chunks)]
