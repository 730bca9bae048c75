"""The well-written plain way: data on the device, bf16 autocast, channels_last, fused optimizer, eager.

It is what a careful engineer writes in an afternoon. On a CPU the network runs in float32, where half precision is not
faster everywhere.
"""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.timing import fastest_convolutions, seconds
from benchmarks.work import AUGMENTATION, LEARNING_RATE, MOMENTUM, TEMPERATURE, Work
from surelabel.augment.chain import Augment
from surelabel.augment.draws import Draws
from surelabel.models.stochastic import stochastic_mode
from surelabel.uncertainty import RunningMoments


class Plain:
    """A `Way`: a training loop and ten passes one after another, without compiler or graphs."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.images, self.labels = work.images.to(work.device), work.labels.to(work.device)
        self.keys = torch.arange(len(self.images), device=work.device)
        self.seed = torch.zeros((), dtype=torch.int64, device=work.device)
        self.augment = Augment(AUGMENTATION)
        self._begin()

    def train_seconds(self) -> float:
        """Seconds for each image over one epoch."""
        count = len(self.images) // self.work.batch
        with fastest_convolutions():
            return seconds(lambda: self._train(count), self.work.device) / (count * self.work.batch)

    def label_seconds(self) -> float:
        """Seconds for each image over the whole pool."""
        with fastest_convolutions():
            return seconds(self._label, self.work.device) / len(self.images)

    def restart_seconds(self) -> float:
        """Seconds for a new network, a new optimizer and a first step."""

        def restart() -> None:
            self._begin()
            self._train(1)

        with fastest_convolutions():
            return seconds(restart, self.work.device)

    def _begin(self) -> None:
        self.model = self.work.new_model().train()
        self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.optimizer = torch.optim.SGD(self.model.parameters(), LEARNING_RATE, MOMENTUM, nesterov=True, fused=True)

    def _train(self, count: int) -> None:
        """Take `count` steps over a new order of the images."""
        order = torch.randperm(len(self.images), device=self.work.device)
        for rows in order.view(-1, self.work.batch)[:count]:
            draws = Draws(self.seed, self.keys[rows], torch.zeros_like(rows))
            images = self.augment(self.images[rows], draws).contiguous(memory_format=torch.channels_last)
            self.optimizer.zero_grad(set_to_none=True)
            loss = cross_entropy(self._logits(images), self.labels[rows])
            loss.backward()
            self.optimizer.step()

    @torch.no_grad()
    def _label(self) -> None:
        with stochastic_mode(self.model):
            for start in range(0, len(self.images), self.work.label_batch):
                chunk = self.images[start : start + self.work.label_batch]
                images = self.augment.plain(chunk).contiguous(memory_format=torch.channels_last)
                moments = {1.0: RunningMoments(), TEMPERATURE: RunningMoments()}
                for _ in range(self.work.passes):
                    logits = self._logits(images)
                    for temperature, running in moments.items():
                        running.add((logits / temperature).softmax(dim=1))
                for running in moments.values():
                    running.mean.cpu()
                    running.std.cpu()

    def _logits(self, images: Tensor) -> Tensor:
        device = self.work.device.type
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            logits: Tensor = self.model(images)
        return logits.float()
