"""The reference: the loop that anyone would write, one row of the plan after another, nothing compiled or kept.

Only the optimizer is torch's fused one, as in the engine: AdamW divides by the root of a gradient's square, which lets
the roundings of another implementation grow into the third digit of weights within 20 steps.

Tests compare the engine with it, weight by weight.
"""

from typing import Any

import numpy as np
import torch
from torch import nn

from surelabel.augment.draws import Draws, signed
from surelabel.data.draws import proportional_order, sample_keys
from surelabel.data.training_set import TrainingSet
from surelabel.engine.feed import as_tensor
from surelabel.engine.method import PARTS, Batch, Method, Stream, counted, sizes_of
from surelabel.engine.optimizer import learning_rate, parameter_groups
from surelabel.engine.order import num_steps
from surelabel.engine.settings import TrainingSettings
from surelabel.engine.step import copied


def train_plainly(
    network: nn.Module,
    training_set: TrainingSet,
    method: Method,
    settings: TrainingSettings,
    *,
    seed: int,
    device: torch.device,
    steps: int | None = None,
) -> None:
    """Train a network in place, as `Trainer` does.

    Args:
        network: on the device.
        training_set: samples and targets.
        method: how batches are drawn, and the loss.
        settings: of the training; what only makes it fast is not used.
        seed: of the round.
        device: where the network lives.
        steps: stop after these; None: after all.
    """
    streams = method.streams(training_set)
    total = num_steps(streams, settings, training_set.round)
    size = sum(stream.size for stream in counted(streams))
    keys = sample_keys(training_set.source.ids)
    optimizer = _optimizer(network, settings)
    state = {name: value.to(device, copy=True) for name, value in method.tensors(*training_set.y.shape).items()}
    state[PARTS] = torch.zeros(len(method.parts), device=device)
    teacher = copied(network).eval().requires_grad_(False)
    for module in teacher.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and method.own_statistics:
            module.train()
    network.train()
    for step in range(total if steps is None else steps):
        chosen = [_rows(stream, keys[stream.rows], seed, step) for stream in streams]
        rows, epochs = (np.concatenate(parts) for parts in zip(*chosen, strict=True))
        draws = Draws(
            torch.tensor(signed(seed), device=device),
            torch.from_numpy(keys[rows].view(np.int64)).to(device),
            torch.from_numpy(epochs).to(device),
        )
        y, g = (torch.from_numpy(part[rows]).to(device) for part in (training_set.y, training_set.g))
        progress = torch.tensor(step / total, device=device)
        samples, places = as_tensor(training_set.source[rows]).to(device), torch.from_numpy(rows).to(device)
        batch = Batch(samples, y, g, draws, progress, sizes_of(streams), places, state)
        for group in optimizer.param_groups:
            # Of float32, as it is on a device.
            group["lr"] = float(np.float32(learning_rate(settings, step, total, size)))
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16, enabled=settings.precision == "bfloat16"):
            loss = method.loss(network, batch, teacher if method.teacher else None)
        loss.backward()
        if settings.gradient_clip is not None:
            torch.nn.utils.clip_grad_norm_(network.parameters(), settings.gradient_clip)
        optimizer.step()
        _average(teacher, network, settings, step)


@torch.no_grad()
def _average(teacher: nn.Module, network: nn.Module, settings: TrainingSettings, step: int) -> None:
    """Take the mean of the weights of all steps so far, or of the last ones; integers are copied."""
    share = max(1 - settings.ema_decay, 1 / (settings.ema_share * step + 1))
    pairs = list(zip(teacher.parameters(), network.parameters(), strict=True))
    for mine, new in zip(teacher.modules(), network.modules(), strict=True):
        if not (isinstance(mine, nn.modules.batchnorm._BatchNorm) and mine.training):  # which keeps its own
            pairs += zip(mine.buffers(recurse=False), new.buffers(recurse=False), strict=True)
    for mine, new in pairs:
        mine.copy_((1 - share) * mine + share * new if new.is_floating_point() else new)


def _rows(stream: Stream, keys: np.ndarray, seed: int, step: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of one step and the epochs that they are in, looked up one by one."""
    kind = np.zeros(len(keys), dtype=np.int64) if stream.kind is None else stream.kind
    positions = range(step * stream.size, (step + 1) * stream.size)
    epochs = np.array([position // len(keys) for position in positions])
    orders = {epoch: proportional_order(keys, kind, seed, "order", epoch) for epoch in set(epochs.tolist())}
    order = [orders[epoch][position % len(keys)] for epoch, position in zip(epochs.tolist(), positions, strict=True)]
    return stream.rows[np.array(order)], epochs


class PlainMuon(torch.optim.SGD):
    """Muon, one matrix after another, in the words of its docstring; SGD with Nesterov momentum for all else."""

    def __init__(self, groups: list[dict[str, Any]], rate: float, momentum: float) -> None:
        super().__init__(groups, lr=rate, momentum=momentum, nesterov=True)
        self.matrices = [p for group in groups for p in group["params"] if p.ndim == 4 and p.shape[1:] != (1, 1, 1)]
        self.momenta = [torch.zeros_like(parameter) for parameter in self.matrices]

    @torch.no_grad()
    def step(self) -> None:
        rate, mu = self.param_groups[0]["lr"], self.param_groups[0]["momentum"]
        for parameter, m in zip(self.matrices, self.momenta, strict=True):
            m.copy_(mu * m + parameter.grad)
            x = (parameter.grad + mu * m).reshape(len(parameter), -1)
            x = x / torch.linalg.matrix_norm(x)
            for _ in range(5):
                x = 3.4445 * x - 4.7750 * x @ x.T @ x + 2.0315 * x @ x.T @ x @ x.T @ x
            w = parameter.reshape(len(parameter), -1)
            size = torch.linalg.matrix_norm(w)
            w = w - 0.1 * rate * size * x / torch.linalg.matrix_norm(x)
            parameter.copy_((size * w / torch.linalg.matrix_norm(w)).reshape(parameter.shape))
            parameter.grad = None  # SGD leaves it alone
        super().step()


def _optimizer(network: nn.Module, settings: TrainingSettings) -> torch.optim.Optimizer:
    groups = parameter_groups(network, settings)
    if settings.optimizer == "muon":
        return PlainMuon(groups, settings.learning_rate, settings.momentum)
    if settings.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=settings.learning_rate, fused=True)
    nesterov = settings.nesterov and settings.momentum > 0
    return torch.optim.SGD(groups, lr=settings.learning_rate, momentum=settings.momentum, nesterov=nesterov, fused=True)
