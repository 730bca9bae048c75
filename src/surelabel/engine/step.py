"""One optimizer step over buffers that stay in place: eager, compiled, or captured whole in a CUDA graph.

Everything that changes from step to step or from round to round (rows, epochs, rate, seed, targets, weights) is copied
into existing tensors. So a network is compiled and captured once, and the next round starts immediately.
"""

import contextlib
import copy
import itertools
import logging
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from surelabel.augment.draws import Draws, signed
from surelabel.engine.feed import kind_named
from surelabel.engine.method import PARTS, Batch, Method, expect
from surelabel.engine.norms import SynchronizedBatchNorm, norms_of, synchronized_again, synchronizes
from surelabel.engine.optimizer import make_optimizer
from surelabel.engine.parallel import average, gradients_in_all
from surelabel.engine.settings import TrainingSettings
from surelabel.errors import InvalidInputError
from surelabel.uncertainty.compiled import with_code_of_its_own
from surelabel.uncertainty.plan import generators_restored, other_generators, summary

_logger = logging.getLogger("surelabel")

_WARM_UP_STEPS = 3

# A value that needs more reads than this and is used twice is written to memory. BatchNorm and an activation together
# need six reads: with inductor's default of 4, their gradient is written and read once more.
_COMPILER_OPTIONS: dict[str, Any] = {"realize_reads_threshold": 8}


class Inputs(NamedTuple):
    """What changes from step to step.

    Attributes:
        rows: of the training set, shape (B,).
        epochs: the epoch of each row, shape (B,).
        keys: the bits of the rows' `sample_keys`, shape (B,) int64.
        y: their labels, shape (B, C).
        g: which labels to learn from, shape (B, C).
        rate: the learning rate, 0-d.
        averaging: how far the average of the weights moves, 0-d.
        progress: the share of the round's steps that are done, 0-d.
        samples: of these rows, shape (B, ...); None if all samples are on the device.
    """

    rows: Tensor
    epochs: Tensor
    keys: Tensor
    y: Tensor
    g: Tensor
    rate: Tensor
    averaging: Tensor
    progress: Tensor
    samples: Tensor | None


class Step:
    """A network, its optimizer, and one step of both.

    Args:
        network: trained in place.
        method: provides the loss.
        settings: of the training.
        num_rows: of the training set.
        store: all samples on the device; None: each step gets its own.
        example: the inputs of one step, of the shapes and dtypes of all.
        sizes: how many of them come from each stream.
        compiled: whether augmentation, network and loss are compiled into one function.
    """

    def __init__(
        self,
        network: nn.Module,
        method: Method,
        settings: TrainingSettings,
        num_rows: int,
        store: Tensor | None,
        example: Inputs,
        sizes: tuple[int, ...],
        compiled: bool = False,
    ) -> None:
        if method.teacher and settings.ema_decay == 0:
            raise InvalidInputError("The method uses a teacher, the average of the weights: set 'ema_decay' above 0.")
        device = example.rows.device
        self.network, self.method, self.settings = network, method, settings
        self.store, self.sizes = store, sizes
        self._synchronized = synchronizes(network, settings)
        self.inputs = Inputs(*(None if part is None else part.clone() for part in example))  # type: ignore[arg-type]
        self.value = torch.zeros((), device=device)
        self.seed = torch.zeros((), dtype=torch.int64, device=device)
        initial = method.tensors(num_rows, example.y.shape[1])
        whole = isinstance(initial, Mapping) and all(isinstance(value, Tensor) for value in initial.values())
        expect(whole, "tensors()", "return tensors by name", initial)
        noted = {PARTS: torch.zeros(len(method.parts))} if method.parts else {}
        self._initial = {name: value.to(device, copy=True) for name, value in {**initial, **noted}.items()}
        self.state = {name: value.clone() for name, value in self._initial.items()}
        # In evaluation mode: a teacher must not update its BatchNorm statistics from the batch, nor drop values.
        self.average = copied(network).eval().requires_grad_(False) if settings.ema_decay > 0 else None
        if self.average is not None and method.own_statistics:
            for norm in norms_of(self.average):
                norm.train()
        self.optimizer = make_optimizer(network, settings, self.inputs.rate)
        # With its own code object: torch counts recompilations by code object, and all steps would share one limit.
        self._loss: Callable[..., Tensor] = batch_loss
        if compiled:
            self._loss = torch.compile(with_code_of_its_own(batch_loss), dynamic=False, options=_COMPILER_OPTIONS)
        self._graph: torch.cuda.CUDAGraph | None = None

    def run(self, inputs: Inputs) -> None:
        """Take one step on these rows; the host does not wait for it."""
        for mine, new in zip(self.inputs, inputs, strict=True):
            if mine is not None and new is not None:
                mine.copy_(new)
        if self._graph is None:
            self._step()
        else:
            self._graph.replay()

    def capture(self) -> None:
        """Compile and capture a step; trial steps change the weights, so set them afterwards."""
        device = self.seed.device
        if device.type != "cuda" or self.settings.cuda_graph is False or self._synchronized:
            return
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        # Generators are restored: a round's draws must not depend on whether it made its own step.
        with generators_restored(device):
            with torch.cuda.stream(side), warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=".*capturable=True", category=UserWarning)
                warnings.filterwarnings("ignore", category=UserWarning, module=r"torch\._inductor")
                for _ in range(_WARM_UP_STEPS):
                    self._step()
                capturable = self._can_be_captured()
            torch.cuda.current_stream().wait_stream(side)
            if capturable:
                graph = torch.cuda.CUDAGraph()
                with failure_named(), torch.cuda.graph(graph, stream=side):
                    self._step()
                self._graph = graph

    def _can_be_captured(self) -> bool:
        obstacle = obstacle_to_capture(self._step, self.seed.device)
        if obstacle and self.settings.cuda_graph:
            raise InvalidInputError(f"cuda_graph=True is not possible: {obstacle}. Change that, or set None.")
        if obstacle:
            _logger.warning("The training step runs without a CUDA graph, which is slower: %s.", obstacle)
        return not obstacle

    def begin(self, fresh: nn.Module, seed: int) -> None:
        """Load a fresh network's weights, in place; reset the optimizer and the method's tensors."""
        copy_state(fresh, self.network)
        if self.average is not None:
            copy_state(fresh, self.average)
        for name, value in self.state.items():
            value.copy_(self._initial[name])
        self.seed.fill_(signed(seed))
        for state in self.optimizer.state.values():
            for value in state.values():
                value.zero_()

    def tensors(self) -> dict[str, Tensor]:
        """Return everything that a step changes, by name, for checkpoints: the tensors themselves, not copies."""
        parts: dict[str, Iterable[Tensor]] = {"network": state_tensors(self.network), "loss": [self.value]}
        if self.average is not None:
            parts["average"] = state_tensors(self.average)
        tensors = {f"{part}.{i}": value for part, values in parts.items() for i, value in enumerate(values)}
        learning = (parameter for group in self.optimizer.param_groups for parameter in group["params"])
        for i, parameter in enumerate(learning):
            tensors |= {f"optimizer.{i}.{name}": value for name, value in self.optimizer.state[parameter].items()}
        return tensors | {f"method.{name}": value for name, value in self.state.items()}

    def _step(self) -> None:
        rows, epochs, keys, y, g, _, averaging, progress, samples = self.inputs
        if self.store is not None:
            samples = self.store.index_select(0, rows)
        assert samples is not None
        drawn, half = (self.seed, keys, epochs), self.settings.precision == "bfloat16"
        tensors = {"samples": samples, "y": y, "g": g, "progress": progress, "rows": rows}
        parts = {**tensors, "sizes": self.sizes, "state": self.state}
        self.optimizer.zero_grad(set_to_none=True)
        norms = SynchronizedBatchNorm() if self._synchronized else contextlib.nullcontext()
        with kind_named(samples, self.settings), norms:
            loss = self._loss(self.network, self.average, self.method, half, drawn, parts)
        right = isinstance(loss, Tensor) and loss.ndim == 0 and loss.requires_grad
        expect(right, "loss()", "return a scalar tensor that depends on the network's weights", loss)
        with synchronized_again(self.network) if self._synchronized else contextlib.nullcontext():
            loss.backward()
        self.value.copy_(loss.detach())
        with gradients_in_all(self.network.parameters()) as found:
            average(itertools.chain(self._shared(), found))  # which one process by itself never asks for
        if self.settings.gradient_clip is not None:
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.settings.gradient_clip)
        self.optimizer.step()
        if self.average is not None:
            update_average(self.average, self.network, averaging)

    def _shared(self) -> Iterator[Tensor]:
        """Yield what several processes replace by its mean: gradients, BatchNorm statistics, and what is shown."""
        yield from (one.grad for one in self.network.parameters() if one.grad is not None)
        for network in (self.network, self.average):
            norms = [norm for norm in norms_of(network) if norm.training] if network is not None else []
            yield from (buffer for norm in norms for buffer in norm.buffers() if buffer.is_floating_point())
        yield self.value
        yield from (self.state[name] for name in (PARTS,) if name in self.state)


def dense(bits: Tensor, num_classes: int) -> Tensor:
    """Return packed bits (..., C / 8 rounded up) as a mask (..., C), on their device.

    >>> dense(torch.tensor([[0b01000000, 0b10000000]], dtype=torch.uint8), 9).int().tolist()
    [[0, 1, 0, 0, 0, 0, 0, 0, 1]]
    """
    places = torch.arange(7, -1, -1, dtype=torch.uint8, device=bits.device)
    return (bits.unsqueeze(-1) >> places & 1).bool().flatten(-2)[..., :num_classes]


def batch_loss(
    network: nn.Module,
    teacher: nn.Module | None,
    method: Method,
    half: bool,
    drawn: tuple[Tensor, Tensor, Tensor],
    parts: Mapping[str, Any],
) -> Tensor:
    """Return the loss of a batch: augmentation, network and loss, which are compiled together."""
    batch = Batch(draws=Draws(*drawn), **parts)
    if not half:
        return method.loss(network, batch, teacher)
    # Without the cache of cast weights: a captured graph would keep those of its first run.
    with torch.autocast(batch.samples.device.type, torch.bfloat16, cache_enabled=False):
        return method.loss(network, batch, teacher)


def obstacle_to_capture(step: Callable[[], None], device: torch.device) -> str:
    """Take a step; return what keeps it from being captured in a CUDA graph, or "" if nothing does.

    A graph replays what was launched, and nothing that the host did in between. So a step that waits for the device
    (`.item()`) cannot be captured, and one that draws random numbers on the host would repeat those of its capture.
    This is checked first, because a failed capture leaves torch's generator and memory in a state beyond repair.
    """
    before = _host_generators()
    try:
        with _waiting_refused(device):
            step()
    except RuntimeError as error:
        if "synchroniz" not in str(error):
            raise
        return "the network or the loss waits for the GPU, as .item(), .cpu() and torch.tensor(..., device=...) do"
    drawn = [name for name, state in _host_generators().items() if state != before[name]]
    if not drawn:
        return ""
    remedy = "draw on the device, as torch.rand(..., device=x.device) does"
    return f"the network or the loss draws from {' and '.join(drawn)} on the host; {remedy}"


@contextlib.contextmanager
def failure_named() -> Iterator[None]:
    """Say what to do when a capture fails for a reason that no trial step shows."""
    try:
        yield
    except RuntimeError as error:
        problem = f"The training step cannot be captured in a CUDA graph: {summary(error)}"
        raise InvalidInputError(f"{problem}. Set cuda_graph=False, and start again in a new process.") from error


def _host_generators() -> dict[str, Any]:
    python, *numpy = other_generators()
    return {
        "torch's CPU generator": torch.get_rng_state().numpy().tobytes(),
        "Python's random": python,
        "numpy's random": numpy,
    }


@contextlib.contextmanager
def _waiting_refused(device: torch.device) -> Iterator[None]:
    if device.type != "cuda":
        yield
        return
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Synchronization debug mode", category=UserWarning)
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def copied(network: nn.Module) -> nn.Module:
    """Return a deep copy of a network."""
    try:
        return copy.deepcopy(network)
    except RuntimeError as error:
        if "deepcopy" not in str(error):
            raise
        # The average of its weights is a copy, and so is the network of a step that rounds share on a GPU.
        problem = "The network cannot be copied: it keeps a tensor that was computed from its weights"
        remedy = "use torch.nn.utils.parametrizations.weight_norm instead of torch.nn.utils.weight_norm"
        raise InvalidInputError(f"{problem}; {remedy}.") from error


@torch.no_grad()
def update_average(average: nn.Module, network: nn.Module, weight: Tensor) -> None:
    """Move the average towards the network: a <- a + weight (w - a); integers (counters) are copied.

    BatchNorm in training mode keeps the statistics of its own batches.
    """
    own = {id(buffer) for norm in norms_of(average) if norm.training for buffer in norm.buffers()}
    pairs = [
        pair for pair in zip(state_tensors(average), state_tensors(network), strict=True) if id(pair[0]) not in own
    ]
    floating = [(mine, new) for mine, new in pairs if mine.is_floating_point()]
    differences = torch._foreach_sub([new for _, new in floating], [mine for mine, _ in floating])
    torch._foreach_mul_(differences, weight)
    torch._foreach_add_([mine for mine, _ in floating], differences)
    for mine, new in pairs:
        if not mine.is_floating_point():
            mine.copy_(new)


@torch.no_grad()
def copy_state(source: nn.Module, target: nn.Module) -> None:
    """Copy every parameter and buffer in place."""
    for mine, new in zip(state_tensors(target), state_tensors(source), strict=True):
        mine.copy_(new)


def state_tensors(network: nn.Module) -> list[Tensor]:
    """Return all parameters and buffers, including those that are not saved."""
    return [parameter.detach() for parameter in network.parameters()] + list(network.buffers())


def shapes(network: nn.Module) -> list[tuple[torch.Size, torch.dtype]]:
    """Return the shape and dtype of every parameter and buffer."""
    return [(tensor.shape, tensor.dtype) for tensor in state_tensors(network)]


@contextlib.contextmanager
def algorithms(deterministic: bool) -> Iterator[None]:
    """Let a GPU use the fastest convolutions, or only deterministic algorithms; restore the setting afterwards."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    benchmark = torch.backends.cudnn.benchmark
    if deterministic:
        # Torch requires this before it lets cuBLAS run in this mode.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = not deterministic
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        torch.backends.cudnn.benchmark = benchmark
