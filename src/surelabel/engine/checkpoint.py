"""Checkpoints of a network in training, so that a killed run loses minutes and not the round.

A checkpoint holds everything that the next step depends on: weights and buffers, their average, the optimizer, the
method's own tensors, torch's generators, and how many steps are done. What a step sees (rows, augmentation, rate)
depends only on its number. So training that resumes from a checkpoint takes the same steps as if it had not stopped:
the same bits on a CPU, and on a GPU with `deterministic=True`. A checkpoint does not hold what your own network changes
elsewhere: its Python attributes, and numpy's and Python's generators. Of several processes, the first one's is kept.

A checkpoint may come from anyone, as a run folder may. So each tensor must have the name, the shape and the dtype of
the one it is copied to: torch's fused optimizers check none of these, and would write past the end of a small tensor.
"""

import contextlib
import hashlib
import json
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any, Protocol, Self

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from surelabel._version import __version__
from surelabel.base.text import shown
from surelabel.engine.parallel import processes
from surelabel.engine.step import Step, state_tensors
from surelabel.errors import RunError

_ABOUT = "about"

MadeFor = Mapping[str, int | str]
"""What a fit depends on: numbers and strings by name."""


class CheckpointStore(Protocol):
    """Where checkpoints are kept: a run's folder."""

    minutes: float
    """The minutes between checkpoints."""
    at_end: bool
    """Whether a network that is fully trained is kept too, as where labeling with it takes long."""

    def read(self, round: int) -> bytes | None:
        """Return the last checkpoint of a round; None if there is none."""

    def write(self, round: int, data: bytes) -> None:
        """Replace the last checkpoint, completely or not at all."""


class FitCheckpoint:
    """The checkpoint of one fit, with all the networks that it trains one after another.

    Args:
        store: where it is kept.
        round: the round of the fit.
        made_for: what the fit depends on. A checkpoint that was made for anything else, on another kind of device or by
            another version of torch or surelabel, is not used.
        device: where the networks live.
        members: how many networks the fit trains.

    Attributes:
        trained: the networks that are fully trained; later checkpoints of the fit hold them too.
        seconds_before: seconds that the fit had taken at the checkpoint it resumes from; 0 without one.
    """

    def __init__(
        self, store: CheckpointStore, round: int, made_for: MadeFor, device: torch.device, members: int = 1
    ) -> None:
        self.store, self.round, self.device, self.members = store, round, device, members
        versions = {"torch": str(torch.__version__), "surelabel": __version__}
        self.made_for: MadeFor = {**made_for, "device": device.type, **versions}
        self.trained: list[nn.Module] = []
        # What was kept: tensors by name, how many networks are finished, and how many steps of the next one are done.
        self._kept, self._finished, self._done, self.seconds_before = self._read()
        self._steps = 0
        self._began = self._written = time.monotonic()
        self._signal: int | None = None
        self._handlers: dict[int, Any] = {}

    def _read(self) -> tuple[dict[str, Tensor] | None, int, int, float]:
        data = processes().by_first(lambda: self.store.read(self.round))
        if data is None:
            return None, 0, 0, 0.0
        with self._misfit_named():
            tensors = safetensors.torch.load(data)
            about = json.loads(tensors.pop(_ABOUT).numpy().tobytes())
            other = {name: about.get(name) for name, value in self.made_for.items() if about.get(name) != value}
            if not other:
                finished, done = (_checked(about, name, int) for name in ("finished", "done"))
                if finished >= self.members:
                    raise ValueError(f"'finished' is {finished}, but {self.members} networks are trained")
                return tensors, finished, done, _checked(about, "seconds", float)
        now = _listed({name: self.made_for[name] for name in other})
        begins = f"Round {self.round} begins anew: its checkpoint was made with {_listed(other)}"
        warnings.warn(f"{begins}, and this is {now}.", stacklevel=2)
        return None, 0, 0, 0.0

    @contextlib.contextmanager
    def _misfit_named(self) -> Iterator[None]:
        """Report a checkpoint that is intact but does not fit this network's training."""
        try:
            yield
        except (AttributeError, LookupError, RuntimeError, SafetensorError, TypeError, ValueError) as error:
            reason = f"{type(error).__name__}: {shown(error, quote=False, limit=200)}"
            problem = f"The checkpoint of round {self.round} does not fit its network ({reason})"
            raise RunError(f"{problem}. Remove checkpoint.bin, and the round begins anew.") from error

    def finished(self, network: nn.Module) -> bool:
        """Load the next network's weights if it was fully trained; return whether it was.

        Args:
            network: a fresh network to load them into.
        """
        number = len(self.trained)
        if self._kept is None or number >= self._finished:
            return False
        with self._misfit_named():
            _take(self._kept, _network_tensors(number, network))
        self.trained.append(network)
        return True

    def restore(self, step: Step, steps: int) -> int:
        """Give a new step the state that was kept, in place; return how many of `steps` are done."""
        kept, self._kept, self._steps = self._kept, None, steps
        if kept is None:
            return 0
        with self._misfit_named():
            if self._done > steps:
                raise ValueError(f"'done' is {self._done}, but training has {steps} steps")
            _take(kept, step.tensors())
            torch.set_rng_state(_checked_generator(kept.pop("generator")))
            if self.device.type == "cuda":
                torch.cuda.set_rng_state(kept.pop("generator.cuda"), self.device)
            if kept:
                raise ValueError(f"it also holds {shown(min(kept))}")
        return self._done

    def __enter__(self) -> Self:
        """Hold a signal back until a step is complete, so that none is saved half done; a second one acts at once."""
        # Only the main thread can set signal handlers.
        if threading.current_thread() is threading.main_thread():
            handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
            # A handler that Python did not set is None, and an ignored signal stays ignored.
            self._handlers = {n: handler for n, handler in handlers.items() if handler not in (None, signal.SIG_IGN)}
            for number in self._handlers:
                signal.signal(number, self._hold)
        return self

    def _hold(self, number: int, frame: FrameType | None) -> None:
        self._signal = number
        self._put_back()

    def _put_back(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def __exit__(self, *error: object) -> None:
        """Let a signal that was held back act as usual."""
        self._put_back()
        number, self._signal = self._signal, None
        if number is not None:
            signal.raise_signal(number)

    def after(self, step: Step, done: int) -> None:
        """Save the state after `done` steps if it is time, or if a signal asks this process to end."""
        is_time = self._signal is not None or time.monotonic() - self._written >= 60 * self.store.minutes
        is_time |= self.store.at_end and done == self._steps
        if is_time and processes().rank == 0:  # others have the same state
            self._write(step, done)
        if self._signal is not None:
            self.__exit__()
            self.__enter__()  # if the signal ended nothing, hold back the next one too

    def _write(self, step: Step, done: int) -> None:
        seconds = self.seconds_before + time.monotonic() - self._began
        about = {**self.made_for, "finished": len(self.trained), "done": done, "seconds": seconds}
        state = step.tensors()
        for number, network in enumerate(self.trained):
            state |= _network_tensors(number, network)
        state["generator"] = torch.get_rng_state()
        if self.device.type == "cuda":
            state["generator.cuda"] = torch.cuda.get_rng_state(self.device)
        state[_ABOUT] = torch.frombuffer(bytearray(json.dumps(about).encode()), dtype=torch.uint8)
        # Copies: safetensors refuses tensors that share memory (tied weights).
        copies = {
            name: value.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
            for name, value in state.items()
        }
        self.store.write(self.round, safetensors.torch.save(copies))
        self._written = time.monotonic()


def digest(*parts: str | bytes | memoryview) -> str:
    """Return a short hash of several parts, for a checkpoint's `made_for`.

    >>> digest("abc"), digest("ab", b"c")
    ('aab5f9ae99b2e38f', '430fb1b4ac43316e')
    """
    whole = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        whole.update(f"{len(data)}:".encode())
        whole.update(data)
    return whole.hexdigest()[:16]


def _network_tensors(number: int, network: nn.Module) -> dict[str, Tensor]:
    return {f"finished.{number}.{i}": value for i, value in enumerate(state_tensors(network))}


@torch.no_grad()
def _take(kept: dict[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    """Copy kept values into the tensors of the same names, in place; the rest stays in `kept`."""
    for name, tensor in tensors.items():
        value = kept.pop(name)
        if (value.shape, value.dtype) != (tensor.shape, tensor.dtype):  # copy_ would broadcast and convert
            found, expected = (f"{one.dtype} of shape {tuple(one.shape)}" for one in (value, tensor))
            raise ValueError(f"'{name}' is {found} instead of {expected}")
        tensor.copy_(value)


def _checked_generator(state: Tensor) -> Tensor:
    """Return the checked state of the CPU's generator: with a bad one, torch reads past its table of 624 numbers."""
    if (state.shape, state.dtype) != (torch.get_rng_state().shape, torch.uint8):
        raise ValueError(f"'generator' is {state.dtype} of shape {tuple(state.shape)}")
    # A Mersenne twister: how many numbers are left until the next table, and the place of the next one in this table.
    left, place = int(state[8:12].view(torch.int32)), int(state[16:24].view(torch.int64))
    if not (left >= 1 and place >= 0 and left - 1 + place <= 624):
        raise ValueError(f"'generator' has {left} numbers left from place {place}")
    return state


def _checked(about: dict[str, Any], name: str, kind: type[int] | type[float]) -> Any:
    """Return a number that is neither negative nor infinite."""
    value = about[name]
    if type(value) is not kind or not 0 <= value <= sys.float_info.max:
        raise ValueError(f"'{name}' is {shown(value)}")
    return value


def _listed(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {shown(value, quote=False)}" for name, value in values.items())
