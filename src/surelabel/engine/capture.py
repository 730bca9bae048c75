"""Whether a step can be captured: a CUDA graph replays what was launched, and nothing that the host did meanwhile.

A step that waits for the device cannot be captured. One that draws random numbers on the host can, and would repeat
those of its capture in every step.
"""

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from surelabel.errors import InvalidInputError
from surelabel.uncertainty.plan import other_generators, summary


class NotCapturableError(InvalidInputError):
    """A graph of this step could not be made, or would not be the step."""


def check_capturable(step: Callable[[], None], device: torch.device) -> None:
    """Take a step; refuse one that waits for the device (`.item()`), or that draws random numbers on the host.

    Asked before, because a capture that fails leaves torch's generator and memory in a state that nothing repairs.
    """
    before = _host_generators()
    try:
        with _waiting_refused(device):
            step()
    except RuntimeError as error:
        if "synchroniz" not in str(error):
            raise
        raise NotCapturableError(
            "the network or the loss waits for the GPU, as .item(), .cpu(), an 'if' on a tensor's value, or "
            "torch.tensor(..., device=...) in forward do"
        ) from error
    drawn = [name for name, state in _host_generators().items() if state != before[name]]
    if drawn:
        raise NotCapturableError(
            f"the network or the loss draws from {' and '.join(drawn)} on the host, and a graph would repeat one "
            "draw in every step; draw on the device, as torch.rand(..., device=x.device) does"
        )


@contextlib.contextmanager
def failure_named() -> Iterator[None]:
    """Say what to do when a capture fails for a reason that no trial step shows."""
    try:
        yield
    except RuntimeError as error:
        raise InvalidInputError(
            f"The training step cannot be captured in a CUDA graph: {summary(error)}. Set cuda_graph=False, and start "
            "again in a new process: a capture that failed leaves this one's GPU in a state that nothing repairs."
        ) from error


def _host_generators() -> dict[str, Any]:
    python, *numpy = other_generators()
    return {
        "torch's generator of the CPU": torch.get_rng_state().numpy().tobytes(),
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
