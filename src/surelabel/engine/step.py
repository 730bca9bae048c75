"""One optimizer step over buffers that stay in place: eager, compiled, or captured whole in a CUDA graph.

Everything that changes from step to step or from round to round (rows, epochs, rate, seed, targets, weights) is copied
into tensors that were there before. So a network is compiled and captured once, and the next round begins at once.
"""

import contextlib
import copy
import logging
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from surelabel.augment.draws import Draws, signed
from surelabel.engine.capture import NotCapturableError, check_capturable, failure_named
from surelabel.engine.feed import kind_named
from surelabel.engine.method import Batch, Method
from surelabel.engine.optimizer import make_optimizer
from surelabel.engine.settings import TrainingSettings
from surelabel.errors import InvalidInputError
from surelabel.uncertainty.compiled import with_code_of_its_own
from surelabel.uncertainty.plan import generators_restored

_logger = logging.getLogger("surelabel")

_WARM_UP_STEPS = 3

# A value that is computed from more reads than this and used twice is written out. BatchNorm and an activation take six
# reads together: with inductor's own limit of 4 their gradient is written and read once more.
_COMPILER_OPTIONS: dict[str, Any] = {"realize_reads_threshold": 8}


class Targets:
    """What is known of every row of the training set, on the device.

    Args:
        y: labels, shape (N, C).
        g: which may be learned from, shape (N, C).
        keys: of the samples, the bits of `sample_keys`, shape (N,) int64.
    """

    def __init__(self, y: Tensor, g: Tensor, keys: Tensor) -> None:
        self.y, self.g, self.keys = y, g, keys

    def copy_(self, other: "Targets") -> None:
        """Take another round's targets in place."""
        for mine, new in zip((self.y, self.g, self.keys), (other.y, other.g, other.keys), strict=True):
            mine.copy_(new)


class Inputs(NamedTuple):
    """What changes from step to step.

    Attributes:
        rows: of the training set, shape (B,).
        epochs: that each row is in, shape (B,).
        rate: the learning rate, 0-d.
        averaging: how far the average of the weights moves, 0-d.
        progress: the share of the round's steps that are done, 0-d.
        samples: of these rows, shape (B, ...); None where all samples are on the device.
    """

    rows: Tensor
    epochs: Tensor
    rate: Tensor
    averaging: Tensor
    progress: Tensor
    samples: Tensor | None


class Step:
    """A network, its optimizer, and one step of both.

    Args:
        network: trained in place.
        method: its loss.
        settings: of the training.
        targets: of all rows; kept, and changed in place by the next round.
        store: all samples on the device; None: each step brings its own.
        batch: the samples of one step, of the shape and kind of all.
        sizes: how many of them each stream has.
        compiled: whether augmentation, network and loss are compiled into one function.
    """

    def __init__(
        self,
        network: nn.Module,
        method: Method,
        settings: TrainingSettings,
        targets: Targets,
        store: Tensor | None,
        batch: Tensor,
        sizes: tuple[int, ...],
        compiled: bool = False,
    ) -> None:
        if method.teacher and settings.ema_decay == 0:
            raise InvalidInputError("The method asks a teacher, the average of the weights: set 'ema_decay' above 0.")
        device = batch.device
        self.network, self.method, self.settings = network, method, settings
        self.targets, self.store = targets, store
        self.samples, self.sizes = batch, sizes
        self.rows = torch.zeros(len(batch), dtype=torch.int64, device=device)
        self.epochs = torch.zeros_like(self.rows)
        self.seed = torch.zeros((), dtype=torch.int64, device=device)
        self.rate = torch.zeros((), device=device)
        self.averaging = torch.zeros((), device=device)
        self.progress = torch.zeros((), device=device)
        self.value = torch.zeros((), device=device)
        initial = method.tensors(*targets.y.shape)
        self._initial = {name: value.to(device, copy=True) for name, value in initial.items()}
        self.state = {name: value.clone() for name, value in self._initial.items()}
        self.average = make_average(network) if settings.ema_decay > 0 else None
        self.optimizer = make_optimizer(network, settings, self.rate)
        # A code object of its own: torch counts recompilations by code object, and all steps would share a limit.
        self._loss: Callable[..., Tensor] = batch_loss
        if compiled:
            self._loss = torch.compile(with_code_of_its_own(batch_loss), dynamic=False, options=_COMPILER_OPTIONS)
        self._graph: torch.cuda.CUDAGraph | None = None

    def run(self, inputs: Inputs) -> None:
        """Take one step on these rows; the host does not wait for it."""
        self.rate.copy_(inputs.rate)
        self.averaging.copy_(inputs.averaging)
        self.progress.copy_(inputs.progress)
        if self._graph is None:
            self.rows, self.epochs = inputs.rows, inputs.epochs
            self.samples = self.samples if inputs.samples is None else inputs.samples
            self._step()
            return
        self.rows.copy_(inputs.rows)
        self.epochs.copy_(inputs.epochs)
        if inputs.samples is not None:
            self.samples.copy_(inputs.samples)
        self._graph.replay()

    def capture(self) -> None:
        """Compile and capture a step; the weights are changed by the trial steps, so set them afterwards."""
        if self.rows.device.type != "cuda" or self.settings.cuda_graph is False:
            return
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        # The generators as they were: a round's draws must not depend on whether it has made its step.
        with generators_restored(self.rows.device):
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
        try:
            check_capturable(self._step, self.rows.device)
        except NotCapturableError as error:
            if self.settings.cuda_graph:
                raise InvalidInputError(f"cuda_graph=True cannot be: {error}. Change that, or set None.") from error
            _logger.warning("The training step runs without a CUDA graph, and slower: %s.", error)
            return False
        return True

    def begin(self, fresh: nn.Module, targets: Targets, seed: int) -> None:
        """Take a fresh network's weights and a round's targets, in place; the optimizer forgets the last round."""
        copy_state(fresh, self.network)
        if self.average is not None:
            copy_state(fresh, self.average)
        self.targets.copy_(targets)
        for name, value in self.state.items():
            value.copy_(self._initial[name])
        self.seed.fill_(signed(seed))
        for state in self.optimizer.state.values():
            for value in state.values():
                value.zero_()

    def tensors(self) -> dict[str, Tensor]:
        """Return all that a step changes, by name, for checkpoints; the tensors stay where they are."""
        parts: dict[str, Iterable[Tensor]] = {"network": state_tensors(self.network), "loss": [self.value]}
        if self.average is not None:
            parts["average"] = state_tensors(self.average)
        tensors = {f"{part}.{i}": value for part, values in parts.items() for i, value in enumerate(values)}
        learning = (parameter for group in self.optimizer.param_groups for parameter in group["params"])
        for i, parameter in enumerate(learning):
            tensors |= {f"optimizer.{i}.{name}": value for name, value in self.optimizer.state[parameter].items()}
        return tensors | {f"method.{name}": value for name, value in self.state.items()}

    def _step(self) -> None:
        samples = self.samples if self.store is None else self.store.index_select(0, self.rows)
        targets = self.targets
        y, g, keys = (part.index_select(0, self.rows) for part in (targets.y, targets.g, targets.keys))
        self.optimizer.zero_grad(set_to_none=True)
        half = self.settings.precision == "bfloat16"
        drawn = self.seed, keys, self.epochs
        with kind_named(samples, self.settings):
            loss = self._loss(
                self.network,
                self.average,
                self.method,
                half,
                samples,
                y,
                g,
                *drawn,
                self.progress,
                self.sizes,
                self.rows,
                self.state,
            )
        loss.backward()
        if self.settings.gradient_clip is not None:
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.settings.gradient_clip)
        self.optimizer.step()
        self.value.copy_(loss.detach())
        if self.average is not None:
            update_average(self.average, self.network, self.averaging)


def batch_loss(
    network: nn.Module,
    teacher: nn.Module | None,
    method: Method,
    half: bool,
    samples: Tensor,
    y: Tensor,
    g: Tensor,
    seed: Tensor,
    keys: Tensor,
    epochs: Tensor,
    progress: Tensor,
    sizes: tuple[int, ...],
    rows: Tensor,
    state: Mapping[str, Tensor],
) -> Tensor:
    """Return the loss of a batch: augmentation, network and loss, which are compiled together."""
    batch = Batch(samples, y, g, Draws(seed, keys, epochs), progress, sizes, rows, state)
    if not half:
        return method.loss(network, batch, teacher)
    # Without the cache of cast weights: a captured graph would keep those of its first run.
    with torch.autocast(samples.device.type, torch.bfloat16, cache_enabled=False):
        return method.loss(network, batch, teacher)


def make_average(network: nn.Module) -> nn.Module:
    """Return a copy of the network that is not trained, for the average of its weights.

    In evaluation mode: a teacher that is asked must not count the batch into its BatchNorm statistics, nor drop values.
    """
    return copied(network).eval().requires_grad_(False)


def copied(network: nn.Module) -> nn.Module:
    """Return a deep copy of a network."""
    try:
        return copy.deepcopy(network)
    except RuntimeError as error:
        if "deepcopy" not in str(error):
            raise
        raise InvalidInputError(
            "The network cannot be copied, as an average of its weights (ema_decay) and a step that rounds share on a "
            "GPU need: it keeps a tensor that was computed from its weights. In the place of "
            "torch.nn.utils.weight_norm use torch.nn.utils.parametrizations.weight_norm, which keeps none."
        ) from error


def check_initialized(network: nn.Module) -> None:
    """Refuse a network of lazy modules that no batch has given their shapes yet."""
    tensors = [*network.named_parameters(), *network.named_buffers()]
    lazy = [name for name, tensor in tensors if is_lazy(tensor)]
    if lazy:
        raise InvalidInputError(
            f"The network must have its weights before it is trained. Got the lazy {', '.join(lazy)} instead; run the "
            "network on a batch where it is made, such as network(torch.zeros(2, *sample_shape))."
        )


@torch.no_grad()
def update_average(average: nn.Module, network: nn.Module, weight: Tensor) -> None:
    """Move the average towards the network: a <- a + weight (w - a); whole numbers (counters) are copied."""
    pairs = list(zip(state_tensors(average), state_tensors(network), strict=True))
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
    """Return all parameters and buffers, also those that are not saved."""
    return [parameter.detach() for parameter in network.parameters()] + list(network.buffers())


def same_shapes(first: nn.Module, second: nn.Module) -> bool:
    """Tell whether one network's weights fit the other."""
    return shapes(first) == shapes(second)


def shapes(network: nn.Module) -> list[tuple[torch.Size, torch.dtype]]:
    """Return the shape and kind of every parameter and buffer."""
    return [(tensor.shape, tensor.dtype) for tensor in state_tensors(network)]


@contextlib.contextmanager
def algorithms(deterministic: bool) -> Iterator[None]:
    """Let a GPU use the fastest convolutions, or only what gives the same bits every time; then as before."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    benchmark = torch.backends.cudnn.benchmark
    if deterministic:
        # What torch asks for before it lets cuBLAS run in this mode.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = not deterministic
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        torch.backends.cudnn.benchmark = benchmark
