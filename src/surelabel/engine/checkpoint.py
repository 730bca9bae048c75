"""The state of a training while it goes on, so that a kill loses minutes and not the round.

Everything that the next step depends on is kept: weights, their average, the optimizer, the method's own tensors, the
generators, and how many steps are done. What a step sees (rows, augmentation, rate) is a function of its number. So
training that goes on from a checkpoint takes the very steps that it would have taken: the same bits on a CPU, and on a
GPU with `deterministic=True`.
"""

import contextlib
import json
import signal
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any, NamedTuple, Protocol, Self

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from surelabel.engine.step import Step, state_tensors
from surelabel.errors import RunError

_ABOUT = "about"
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class CheckpointStore(Protocol):
    """Where checkpoints are kept: a run's folder."""

    minutes: float
    """How often one is written."""

    def read(self, round: int) -> bytes | None:
        """Return what was written last in a round, whole; None where there is nothing."""

    def write(self, round: int, data: bytes) -> None:
        """Put this in the place of the last one, whole or not at all."""


class _Kept(NamedTuple):
    """What was read: tensors by name, the networks that were finished, and the steps of the next that were done."""

    tensors: dict[str, Tensor]
    finished: int
    done: int
    seconds: float


class FitCheckpoint:
    """The checkpoint of one fit: of all the networks that it trains, one after another.

    Args:
        store: where it is kept.
        round: of the fit.
        seed: of the fit; a checkpoint of another seed, device or version of torch is left alone.
        device: where the networks live.

    Attributes:
        seconds_before: what the fit took until the checkpoint that it goes on from; 0 without one.
    """

    def __init__(self, store: CheckpointStore, round: int, seed: int, device: torch.device) -> None:
        self.store, self.round, self.device = store, round, device
        self.made_for: dict[str, object] = {"seed": seed, "device": device.type, "torch": torch.__version__}
        self._finished: list[nn.Module] = []
        self._kept = self._read()
        self.seconds_before: float = self._kept.seconds if self._kept else 0.0
        self._began = self._written = time.monotonic()
        self._interruptions = _Interruptions()

    def _read(self) -> _Kept | None:
        data = self.store.read(self.round)
        if data is None:
            return None
        with self._misfit_named():
            tensors = safetensors.torch.load(data)
            about = json.loads(tensors.pop(_ABOUT).numpy().tobytes())
            other = {name: about[name] for name, value in self.made_for.items() if about[name] != value}
            kept = _Kept(tensors, int(about["finished"]), int(about["done"]), float(about["seconds"]))
        if other:
            warnings.warn(
                f"Round {self.round} begins anew: its checkpoint was made with {_listed(other)}, and this is "
                f"{_listed({name: self.made_for[name] for name in other})}.",
                stacklevel=2,
            )
            return None
        return kept

    @contextlib.contextmanager
    def _misfit_named(self) -> Iterator[None]:
        """Name a checkpoint that is whole, and yet is not what this network's training writes."""
        try:
            yield
        except (AttributeError, LookupError, RuntimeError, SafetensorError, TypeError, ValueError) as error:
            raise RunError(
                f"The checkpoint of round {self.round} does not fit its network ({type(error).__name__}: {error}). "
                "Remove checkpoint.bin from the round's folder, and the round begins anew."
            ) from error

    def finished(self, network: nn.Module) -> bool:
        """Give the next network its weights where its training was over; tell whether that is so.

        Args:
            network: fresh, in the place of the trained one.
        """
        number = len(self._finished)
        if self._kept is None or number >= self._kept.finished:
            return False
        with self._misfit_named():
            _copy(self._kept.tensors, f"finished.{number}", state_tensors(network))
        self._finished.append(network)
        return True

    def finish(self, network: nn.Module) -> None:
        """Take note that a network is trained: later checkpoints of the fit hold it too."""
        self._finished.append(network)

    def restore(self, step: Step) -> int:
        """Give a step that is about to begin the state that was kept, in place; return how many steps are done."""
        kept, self._kept = self._kept, None
        if kept is None:
            return 0
        with self._misfit_named():
            for name, tensors in _parts(step).items():
                _copy(kept.tensors, name, tensors)
            step.load_optimizer({name: value for name, value in kept.tensors.items() if name.startswith("optimizer.")})
            torch.set_rng_state(kept.tensors["generator"])
            if self.device.type == "cuda":
                torch.cuda.set_rng_state(kept.tensors["generator.cuda"], self.device)
        return kept.done

    def __enter__(self) -> Self:
        """Hold signals back between steps, so that none is kept by half."""
        self._interruptions.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._interruptions.__exit__()

    def after(self, step: Step, done: int) -> None:
        """Keep the state after `done` steps if it is time to, or if a signal asks this process to end."""
        if self._interruptions.waiting or time.monotonic() - self._written >= 60 * self.store.minutes:
            self._write(step, done)
            self._interruptions.deliver()

    def _write(self, step: Step, done: int) -> None:
        about = {
            **self.made_for,
            "finished": len(self._finished),
            "done": done,
            "seconds": self.seconds_before + time.monotonic() - self._began,
        }
        state = {f"{name}.{i}": value for name, part in _parts(step).items() for i, value in enumerate(part)}
        for number, network in enumerate(self._finished):
            state |= {f"finished.{number}.{i}": value for i, value in enumerate(state_tensors(network))}
        state |= step.optimizer_tensors()
        state["generator"] = torch.get_rng_state()
        if self.device.type == "cuda":
            state["generator.cuda"] = torch.cuda.get_rng_state(self.device)
        state[_ABOUT] = torch.frombuffer(bytearray(json.dumps(about).encode()), dtype=torch.uint8)
        # Copies: safetensors refuses tensors that share memory (tied weights).
        copies = {name: value.detach().cpu().clone().contiguous() for name, value in state.items()}
        self.store.write(self.round, safetensors.torch.save(copies))
        self._written = time.monotonic()


def _parts(step: Step) -> dict[str, Sequence[Tensor]]:
    """Return the tensors of a step that stay in place, by the part that they belong to."""
    parts: dict[str, Sequence[Tensor]] = {"network": state_tensors(step.network), "loss": [step.value]}
    if step.average is not None:
        parts["average"] = state_tensors(step.average)
    parts["method"] = list(step.method.tensors().values())
    return parts


@torch.no_grad()
def _copy(kept: dict[str, Tensor], name: str, tensors: Sequence[Tensor]) -> None:
    for i, tensor in enumerate(tensors):
        value = kept[f"{name}.{i}"]
        if value.shape != tensor.shape:  # which copy_ would repeat where it can
            raise ValueError(f"'{name}.{i}' has shape {tuple(value.shape)} in place of {tuple(tensor.shape)}")
        tensor.copy_(value)


def _listed(values: dict[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


class _Interruptions:
    """Holds SIGINT and SIGTERM back while a block runs, until `deliver`.

    A second signal is not held back. In a thread that is not the main one, signals are not ours to hold.
    """

    def __init__(self) -> None:
        self._came: int | None = None
        self._before: dict[int, Any] = {}

    @property
    def waiting(self) -> bool:
        """Whether a signal has come."""
        return self._came is not None

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            # A handler that Python did not set is None, and an ignored signal stays ignored.
            handlers = {number: signal.getsignal(number) for number in _SIGNALS}
            self._before = {n: handler for n, handler in handlers.items() if handler not in (None, signal.SIG_IGN)}
            self._hold()

    def __exit__(self) -> None:
        self.deliver()
        self._let_go()

    def deliver(self) -> None:
        """Let a signal that came do what it does without us; where that ends nothing, hold the next one back."""
        number, self._came = self._came, None
        if number is not None:
            self._let_go()
            signal.raise_signal(number)
            self._hold()

    def _hold(self) -> None:
        for number in self._before:
            signal.signal(number, self._note)

    def _let_go(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came = number
        self._let_go()
