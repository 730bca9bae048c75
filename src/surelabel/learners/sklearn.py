"""Any scikit-learn classifier as a learner: uncertainty is the spread of a bootstrap ensemble.

Members are trained on resamples of the training set, drawn within each class so that no class is lost. p and u are
the mean and the standard deviation (n - 1) of their probabilities; the softened ones are p^(1/T), normalized, which is
softmax(z / T) for z = log p. One more model, trained on every row, gives the deterministic prediction.
"""

import io
import math
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from sklearn.base import clone, is_classifier
from sklearn.utils.validation import has_fit_parameter

from surelabel.base.defaults import MAX_COPIES, PREDICT_BATCH_SIZE, FitDefaults
from surelabel.base.references import failing
from surelabel.base.settings import MOST_PASSES, TEMPERATURES
from surelabel.base.system import Progress
from surelabel.base.text import excess
from surelabel.core.arrays import require_count, require_number
from surelabel.core.labels import Task
from surelabel.data.draws import draw, seed_for
from surelabel.data.pool import Floats, Prediction
from surelabel.data.source import Index, Source, as_source
from surelabel.data.targets import SeveralLabels, blocks, dense
from surelabel.data.training_set import TrainingSet
from surelabel.errors import InvalidInputError, NotStochasticError, UntrustedTypesError
from surelabel.learners import NegativesUse
from surelabel.learners.loaded_models import check_indices

Labels = npt.NDArray[np.int64]
Model = Any
"""A fitted classifier; for multi-label a list with one per class, or the class's constant probability."""

KNOWN_TYPES = (
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.gaussian_process._gpc._BinaryGaussianProcessClassifierLaplace",
    "sklearn.gaussian_process.kernels.ConstantKernel",
    "sklearn.gaussian_process.kernels.Product",
    "sklearn.gaussian_process.kernels.RBF",
    "sklearn.metrics._dist_metrics.EuclideanDistance64",
    "sklearn.neighbors._kd_tree.KDTree",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.tree._tree.Tree",
    "surelabel.kinds.linear.LinearOnPixels",
    "surelabel.kinds.linear.LinearOnTable",
)
"""Parts of scikit-learn's and our classifiers that skops does not know and that hold only numbers."""


@dataclass(eq=False)
class SklearnLearner:
    """Trains clones of a classifier in every `fit` and labels samples by how much they agree.

    Args:
        estimator: a scikit-learn classifier with `predict_proba`.
        members: how many resamples the ensemble is trained on.
        temperature: of the softened probabilities.
        negatives: "expand" turns a row with only negatives into one copy for each remaining class, with weights that
            sum to 1 (the estimator must take `sample_weight`); "ignore" leaves these rows out; "auto" expands if
            possible.
        max_copies: rows with more remaining classes than this are left out, as they say too little.
        predict_batch_size: samples in one chunk of a prediction.
        progress: called as training and labeling go on.
        task: "single", or "multi": one model per class.
    """

    model_file: ClassVar = "model.skops"

    estimator: Any
    _: KW_ONLY
    members: int = FitDefaults.passes
    temperature: float = FitDefaults.temperature
    negatives: Literal["auto", "expand", "ignore"] = "auto"
    max_copies: int = MAX_COPIES
    predict_batch_size: int = PREDICT_BATCH_SIZE
    progress: Progress | None = None
    task: Task = "single"
    models: list[Model] = field(default_factory=list, init=False)
    resamples_are_equal: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        estimator, kind = self.estimator, type(self.estimator).__name__
        if isinstance(estimator, type) or not hasattr(estimator, "fit"):
            wanted = "a classifier object, such as RandomForestClassifier()"
            raise InvalidInputError(f"The 'estimator' argument must be {wanted}; got {estimator!r}.")
        with failing(f"The classifier {kind} cannot be used", "Correct its parameters."):
            classifies, tells = is_classifier(estimator), hasattr(estimator, "predict_proba")
        if not classifies or not tells:
            remedy = "; wrap it in sklearn.calibration.CalibratedClassifierCV" if classifies else ""
            raise InvalidInputError(f"'estimator' must be a classifier with predict_proba; got {kind}{remedy}.")
        require_count("members", self.members, 2, MOST_PASSES, remedy="a single one has no spread, 10 is the default")
        require_number("temperature", self.temperature, *TEMPERATURES)
        self.takes_weights = bool(has_fit_parameter(estimator, "sample_weight"))
        if self.negatives == "expand" and not self.takes_weights:
            wanted = "negatives='expand' needs an estimator whose fit takes sample_weight"
            raise InvalidInputError(f"{wanted}; {kind}'s does not. Use negatives='ignore'.")
        if self.negatives == "ignore" or not self.takes_weights:
            self.max_copies = 0

    @property
    def negatives_use(self) -> NegativesUse:
        """How negative labels are used; for multi-label they are learned as absent classes."""
        if self.task == "multi":
            return "loss"
        return "expansion" if self.max_copies else "left out"

    def fit(self, training_set: TrainingSet, *, seed: int) -> None:
        """Train the full model and the members; the last ones stay in place until the new ones are ready.

        An estimator with a method `scaled_by_all_samples` first gets all samples, labeled or not.
        """
        unfitted = self.estimator
        if hasattr(unfitted, "scaled_by_all_samples"):
            unfitted = unfitted.scaled_by_all_samples(chunk for _, chunk in self._chunks(training_set.source))
        models = []
        for member in range(self.members + 1):
            member_seed = seed_for(seed, member, "member")
            fit_one = self._fit_single if self.task == "single" else self._fit_multi
            models.append(fit_one(unfitted, training_set, member_seed, whole=member == 0))
            if self.progress is not None:
                self.progress("train", member + 1, self.members + 1)
        self.models = models
        self.resamples_are_equal = bool(training_set.targets.class_counts.max() == 1)

    def predict(self, source: Source, *, seed: int) -> Iterator[Prediction]:
        """Label the source chunk by chunk. The members are fixed, so `seed` changes nothing."""
        self._require_models()
        source = as_source("source", source)
        for start, x in self._chunks(source):
            passes = np.stack([self._probabilities(model, x) for model in self.models[1:]])
            if self.resamples_are_equal and (passes == passes[0]).all():
                problem = "Each class has one labeled sample, so every resample is the same and u would be 0"
                raise NotStochasticError(f"{problem}. Label more, or use an estimator that is random itself.")
            soft = soften(passes, self.temperature, self.task)
            ids = source.ids[start : start + passes.shape[1]]
            yield Prediction(ids, passes.mean(0), passes.std(0, ddof=1), soft.mean(0), soft.std(0, ddof=1))
            if self.progress is not None:
                self.progress("label", start + len(ids), len(source))

    def chunk_size(self, source: Source) -> int:
        """Return how many samples are labeled at once."""
        return self.predict_batch_size

    def predict_proba(self, source: Source) -> Floats:
        """Return the full model's probabilities, shape (N, C)."""
        self._require_models()
        chunks = self._chunks(as_source("source", source))
        return np.concatenate([self._probabilities(self.models[0], x) for _, x in chunks])

    def to_bytes(self) -> bytes:
        """Return all models as one skops file."""
        import skops.io

        return bytes(skops.io.dumps(self.models))

    def from_bytes(
        self, data: bytes, *, sample_shape: tuple[int, ...], num_classes: int, trusted: Sequence[str] = ()
    ) -> None:
        """Load the models from a skops file; types other than scikit-learn's must be named in `trusted`."""
        import skops.io

        with failing("The content is no skops file of models"):
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                size = sum(member.file_size for member in archive.infolist())
            if problem := excess(len(data), size):
                raise InvalidInputError(f"The skops file {problem}.")
            asked = set(skops.io.get_untrusted_types(data=data))
            if unknown := sorted(asked - set(trusted) - set(KNOWN_TYPES)):
                problem = f"The model holds types that are not known to be safe: {', '.join(unknown)}"
                raise UntrustedTypesError(f"{problem}. If you trust the file, name them as trusted.")
            models = skops.io.loads(data, trusted=sorted(asked))
            check_indices(models)
            if not self._fits(models, math.prod(sample_shape), num_classes):
                wanted = f"{self.members + 1} models for samples of shape {sample_shape} and {num_classes} classes"
                raise InvalidInputError(f"The content must be {wanted}.")
        self.models = models

    def _fits(self, models: Any, num_features: int, num_classes: int) -> bool:
        """Whether these fit as the full model and the members, as far as classifiers show it."""
        if not isinstance(models, list) or len(models) != self.members + 1:
            return False
        if self.task == "single":
            return all(_is_for(model, num_features, num_classes) for model in models)
        whole = all(isinstance(model, list) and len(model) == num_classes for model in models)
        return whole and all(
            isinstance(part, float) or _is_for(part, num_features, 2) for model in models for part in model
        )

    def _fit_single(self, unfitted: Any, training_set: TrainingSet, seed: int, whole: bool) -> Model:
        rows, labels, weights = expand(training_set, self.max_copies)
        keep = np.arange(len(rows)) if whole else resample(labels, seed)
        return self._fit_clone(unfitted, training_set.source[rows[keep]], labels[keep], weights[keep], seed)

    def _fit_multi(self, unfitted: Any, training_set: TrainingSet, seed: int, whole: bool) -> Model:
        models: list[Any] = []
        assert isinstance(training_set.targets, SeveralLabels)
        for c in range(training_set.num_classes):
            y, g = training_set.targets.of_class(c)
            rows = np.flatnonzero(g)
            labels = y[rows].astype(np.int64)
            if len(np.unique(labels)) < 2:
                models.append(float(labels[0]))
                continue
            keep = np.arange(len(rows)) if whole else resample(labels, seed_for(seed, c))
            x = training_set.source[rows[keep]]
            models.append(self._fit_clone(unfitted, x, labels[keep], None, seed_for(seed, c)))
        return models

    def _fit_clone(self, unfitted: Any, x: Any, labels: Labels, weights: Floats | None, seed: int) -> Any:
        weighted = {} if weights is None or not self.takes_weights else {"sample_weight": weights}
        problem = f"The classifier {type(self.estimator).__name__} cannot be trained"
        with failing(problem, "Correct its parameters, or the samples."):
            model = clone(unfitted)
            states = [name for name in model.get_params() if name.split("__")[-1] == "random_state"]
            model.set_params(**dict.fromkeys(states, seed))
            return model.fit(x, labels, **weighted)

    def _probabilities(self, model: Model, x: Any) -> Floats:
        if self.task == "single":
            return _called(model, x)
        columns = [np.full(x.shape[0], part) if isinstance(part, float) else _called(part, x)[:, 1] for part in model]
        return np.stack(columns, axis=1)

    def _require_models(self) -> None:
        if not self.models:
            raise InvalidInputError("The learner has no model yet; call fit first.")

    def _chunks(self, source: Source) -> Iterator[tuple[int, Any]]:
        for start in range(0, len(source), self.predict_batch_size):
            yield start, source[np.arange(start, min(start + self.predict_batch_size, len(source)))]


def expand(training_set: TrainingSet, max_copies: int) -> tuple[Index, Labels, Floats]:
    """Turn targets (y, g) into rows with one label and a weight each, for ordinary classifiers.

    A row with a positive has weight 1. A row with only negatives appears once for each remaining class, if these are at
    most `max_copies`, with weights that sum to 1.
    """
    learned, targets = training_set.rows, training_set.targets
    parts = []
    for block in blocks(len(learned), targets.num_classes):
        rows = learned[block]
        y, g = dense(targets, rows)
        has_positive = np.asarray(y.any(axis=1))
        copies = np.where(has_positive[:, None], y, ~g)
        counts = copies.sum(axis=1)
        copies[~has_positive & (counts > max_copies)] = False
        at, labels = np.nonzero(copies)
        parts.append((rows[at], labels, 1.0 / counts[at]))
    rows, labels, weights = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return rows, labels, weights


def resample(labels: Labels, seed: int) -> Index:
    """Draw as many rows of each label, with replacement, as there are."""
    keep = []
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        drawn = draw(seed, int(label), np.arange(len(members), dtype=np.uint64))
        keep.append(members[(drawn % np.uint64(len(members))).astype(np.int64)])
    return np.concatenate(keep)


def soften(p: Floats, temperature: float, task: Task) -> Floats:
    """Return p^(1/T), normalized over the classes, or over presence and absence for several labels."""
    powered = p ** (1.0 / temperature)
    if task == "single":
        return np.asarray(powered / powered.sum(axis=-1, keepdims=True))
    return np.asarray(powered / (powered + (1.0 - p) ** (1.0 / temperature)))


def _called(model: Any, x: Any) -> Floats:
    """Return the probabilities of a classifier; an error says that it fails on these samples."""
    with failing(f"The classifier {type(model).__name__} fails on these samples"):
        p = np.asarray(model.predict_proba(x))
    if not np.isfinite(p).all():
        raise InvalidInputError(f"The classifier {type(model).__name__} gives probabilities that are not numbers.")
    return p


def _is_for(model: Any, num_features: int, num_classes: int) -> bool:
    classes = getattr(model, "classes_", np.arange(num_classes))
    features = getattr(model, "n_features_in_", num_features)
    return hasattr(model, "predict_proba") and len(classes) == num_classes and bool(features == num_features)
