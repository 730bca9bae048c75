"""A trained model as one torch module: p = softmax(z(normalize(x))) (several labels: sigmoid), in evaluation mode.

It takes samples as they are stored, in batches of any size, so that other programs can run it: `surelabel.runs.export`
writes it as ONNX or with `torch.export`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler
from torch import Tensor, nn

from surelabel.augment.chain import Augment
from surelabel.augment.settings import AugmentSettings
from surelabel.base.references import failing
from surelabel.core.labels import Task
from surelabel.errors import InvalidInputError
from surelabel.learners.network import TorchLearner
from surelabel.learners.sklearn import SklearnLearner
from surelabel.uncertainty.deterministic import probabilities


def exported(learner: Any) -> nn.Module:
    """Return what `learner.predict_proba` computes as a module on the CPU, from samples (N, ...) to p (N, C), float32.

    Raises:
        InvalidInputError: for a scikit-learn classifier that is not linear.
    """
    if isinstance(learner, TorchLearner):
        network = learner.network
        assert network is not None
        return ExportedNetwork(network.cpu(), learner.task, learner.training.augment).eval()
    if isinstance(learner, SklearnLearner):
        # The first model is the one that `predict_proba` uses; the others are there for the uncertainty.
        model = learner.models[0]
        with failing(f"The {type(model).__name__} cannot be exported"):
            return (_Linear(model) if learner.task == "single" else _OnePerClass(model)).eval()
    raise InvalidInputError(f"A {type(learner).__name__} cannot be exported; networks and linear models can.")


class ExportedNetwork(nn.Module):
    """A network with normalization before it and probabilities after it; for clips, the mean over windows.

    Args:
        network: returns logits (N, C).
        task: "single" for softmax, "multi" for a sigmoid per class.
        augment: the settings with the normalization of samples; None: samples are not changed.
    """

    def __init__(self, network: nn.Module, task: Task, augment: AugmentSettings | None) -> None:
        super().__init__()
        self.network, self.task = network, task
        self.augment = None if augment is None else Augment(augment)

    def forward(self, samples: Tensor) -> Tensor:
        """Return p (N, C) of samples (N, ...), float32."""
        if self.augment is None:
            return self._probabilities(samples)
        number = self.augment.settings.test_windows
        windows: Sequence[int | None] = [None] if number == 1 else range(number)
        passes = [self._probabilities(self.augment.plain(samples, window)) for window in windows]
        return torch.stack(passes).mean(dim=0)

    def _probabilities(self, x: Tensor) -> Tensor:
        return probabilities(self.network(x), self.task).to(torch.float32)


class _Scale(nn.Module):
    """x · factor + shift, one of each per feature, in float64."""

    def __init__(self, factor: Any, shift: Any) -> None:
        super().__init__()
        self.register_buffer("factor", torch.as_tensor(factor, dtype=torch.float64))
        self.register_buffer("shift", torch.as_tensor(shift, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.get_buffer("factor") + self.get_buffer("shift")


def _standard(step: StandardScaler) -> _Scale:
    factor = 1.0 if step.scale_ is None else 1.0 / step.scale_
    return _Scale(factor, 0.0 if step.mean_ is None else -step.mean_ * factor)


_SCALERS: dict[type, Callable[[Any], nn.Module]] = {
    StandardScaler: _standard,
    MinMaxScaler: lambda step: _Scale(step.scale_, step.min_),
    MaxAbsScaler: lambda step: _Scale(1.0 / step.scale_, 0.0),
}
_LINEAR = (LogisticRegression, LogisticRegressionCV)


class _Linear(nn.Module):
    """Logistic regression, and the scaling before it in a pipeline: from samples (N, ...) to p (N, C)."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        model = getattr(model, "model_", model)  # the inner model of surelabel's own linear models
        *before, last = [step for _, step in model.steps] if isinstance(model, Pipeline) else [model]
        unknown = [step for step in before if step != "passthrough" and not _is_scaler(step)]
        if type(last) not in _LINEAR or unknown:
            name = type(unknown[0] if unknown else last).__name__
            known = "networks can, and logistic regression, alone or behind a scaler in a pipeline"
            raise InvalidInputError(f"A scikit-learn {name} cannot be exported; {known}.")
        self.scale = nn.Sequential(*(_SCALERS[type(step)](step) for step in before if step != "passthrough"))
        weights = torch.as_tensor(last.coef_, dtype=torch.float64)
        bias = torch.as_tensor(last.intercept_, dtype=torch.float64).expand(len(weights))
        if len(weights) == 1:  # two classes: the second one's logit against 0
            weights, bias = torch.cat([torch.zeros_like(weights), weights]), torch.cat([torch.zeros_like(bias), bias])
        self.register_buffer("weights", weights.T.contiguous())
        self.register_buffer("bias", bias.contiguous())

    def forward(self, samples: Tensor) -> Tensor:
        """Return p (N, C), float32."""
        x = self.scale(samples.flatten(1).to(torch.float64))
        return torch.softmax(x @ self.get_buffer("weights") + self.get_buffer("bias"), dim=1).to(torch.float32)


def _is_scaler(step: Any) -> bool:
    # Clipping to a range is not linear.
    return type(step) in _SCALERS and not getattr(step, "clip", False)


class _OnePerClass(nn.Module):
    """Several labels: for each class a model, or a constant probability if all its labels are alike."""

    def __init__(self, models: Sequence[Any]) -> None:
        super().__init__()
        self.constants = [part if isinstance(part, float) else None for part in models]
        self.models = nn.ModuleList([_Linear(part) for part in models if not isinstance(part, float)])

    def forward(self, samples: Tensor) -> Tensor:
        """Return p (N, C), float32."""
        found = iter([model(samples)[:, 1:] for model in self.models])
        nothing = torch.zeros_like(samples.flatten(1)[:, :1], dtype=torch.float32)
        columns = [next(found) if value is None else nothing + value for value in self.constants]
        return torch.cat(columns, dim=1)
