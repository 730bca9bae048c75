"""What can judge a teacher's labels: how it and other networks answer to samples whose true labels are kept aside."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

from surelabel.augment.chain import Augment
from surelabel.augment.draws import Draws
from surelabel.data.draws import sample_keys
from surelabel.data.source import Index
from surelabel.data.training_set import TrainingSet
from surelabel.engine.feed import autocast, channels_last
from surelabel.engine.settings import TrainingSettings
from surelabel.models.stochastic import evaluation_mode
from surelabel.uncertainty.plan import generators_restored

AT_ONCE = 1000
PASSES, RATE = 10, 0.3
"""Stochastic passes of what follows the last dropout layer, and the rate of that layer in them."""
LABELED_VIEWS = 4

Arrays = dict[str, npt.NDArray[Any]]


class Looker:
    """Shows samples to a network and to its teacher, without changing either.

    Args:
        network: a CNN-13 in training.
        teacher: the average of its weights.
        training_set: samples and targets.
        settings: of the training.
        weak: the weak augmentation.
    """

    def __init__(
        self,
        network: Any,
        teacher: Any,
        training_set: TrainingSet,
        settings: TrainingSettings,
        weak: Augment,
    ) -> None:
        self.network, self.teacher, self.settings = network, teacher, settings
        self.training_set, self.augment = training_set, weak
        self.device = next(teacher.parameters()).device

    @torch.no_grad()
    def material(self, rows: Index) -> Arrays:
        """Return what can judge the teacher's labels of some rows, each with n values in its first dimension.

        - weak, second: the teacher's answers to two weak views, and plain: to the pictures as they are;
        - student: the network's answers to the first weak view;
        - dropout, dropout_squares: mean and mean square of the teacher's answers to it over the stochastic passes;
        - features: what the teacher's last layer is shown for the pictures as they are;

        and, to fit other last layers, of the labeled samples: labeled_features of some weak views, and labeled_y.
        """
        layers = self.teacher.layers
        last_dropout = max(place for place, layer in enumerate(layers) if isinstance(layer, nn.Dropout))
        before, after, hidden = layers[:last_dropout], layers[last_dropout + 1 :], layers[:-1]
        found: dict[str, Tensor] = {}
        with evaluation_mode(self.network), evaluation_mode(self.teacher), generators_restored(self.device):
            found["weak"] = self.shown(rows, "weak", lambda x: self.teacher(x).softmax(dim=1))
            found["second"] = self.shown(rows, "second", lambda x: self.teacher(x).softmax(dim=1))
            found["plain"] = self.shown(rows, "", lambda x: self.teacher(x).softmax(dim=1))
            found["student"] = self.shown(rows, "weak", lambda x: self.network(x).softmax(dim=1))
            passes = self.shown(rows, "weak", lambda x: stochastic(before(x), after))
            found["dropout"], found["dropout_squares"] = passes.mean(dim=1), passes.square().mean(dim=1)
            found["features"] = self.shown(rows, "", hidden).half()
            labeled = np.arange(self.training_set.num_labeled)
            views = [self.shown(labeled, f"labeled {number}", hidden) for number in range(LABELED_VIEWS)]
            found["labeled_features"] = torch.cat(views).half()
        y = self.training_set.y[labeled].argmax(axis=1)
        return {name: value.cpu().numpy() for name, value in found.items()} | {"labeled_y": np.tile(y, LABELED_VIEWS)}

    def shown(self, rows: Index, view: str, answer: Callable[[Tensor], Tensor]) -> Tensor:
        """Return what a function answers to a view of the rows; with "" they are not augmented."""
        parts = []
        for some in np.array_split(rows, max(1, len(rows) // AT_ONCE)):
            x = torch.as_tensor(np.asarray(self.training_set.source[some]), device=self.device)
            x = self.augment(x, self.draws(some).named(view)) if view else self.augment.plain(x)
            with autocast(self.settings, self.device):
                parts.append(answer(channels_last(x) if self.settings.channels_last else x).float())
        return torch.cat(parts)

    def draws(self, rows: Index) -> Draws:
        """Return the random numbers of some rows, other ones than in training."""
        keys = sample_keys(self.training_set.source.ids[rows]).view(np.int64)
        on_device = torch.as_tensor(keys, device=self.device)
        return Draws(torch.tensor(-1, device=self.device), on_device, torch.zeros_like(on_device))


def stochastic(x: Tensor, layers: nn.Module) -> Tensor:
    """Return the answers of the layers after a dropout of their input, (N, passes, C)."""
    return torch.stack([layers(dropout(x, RATE)).float().softmax(dim=1) for _ in range(PASSES)], dim=1)
