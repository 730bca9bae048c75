"""Linear models of a few labels, as a baseline for networks and self-training.

Features are divided by their spread over all samples, labeled or not, and p = softmax(W x + b) by logistic regression
with scikit-learn's usual penalty. `surelabel fit` compares them with its networks, and keeps a linear model if it is
better.
"""

from collections.abc import Iterable
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

Floats = npt.NDArray[np.floating[Any]]


class LinearOnTable(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Logistic regression on standardized numbers; samples of any shape are flattened.

    Args:
        C: the inverse strength of the penalty, as in scikit-learn.
        max_iter: the most steps of the solver.
        scale: what each feature is divided by, shape (F,); None: its standard deviation in the training samples.

    >>> model = LinearOnTable().fit([[0.0], [1.0], [9.0], [10.0]], [0, 0, 1, 1])
    >>> model.predict([[2.0], [8.0]]).tolist()
    [0, 1]
    """

    def __init__(self, C: float = 1.0, max_iter: int = 300, scale: Any = None) -> None:
        self.C, self.max_iter, self.scale = C, max_iter, scale

    def scaled_by_all_samples(self, chunks: Iterable[Any]) -> Self:
        """Return an unfitted copy with the scale of all samples, which come in chunks (N, ...)."""
        scaler = StandardScaler(with_mean=False)
        for chunk in chunks:
            scaler.partial_fit(self._rows(chunk))
        return type(self)(C=self.C, max_iter=self.max_iter, scale=self._scale_of(scaler))

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from samples X, shape (N, ...), of classes y, shape (N,)."""
        rows = self._rows(X)
        # Sparse rows are not centered, because they would not be sparse any more.
        scaler = StandardScaler(with_mean=not issparse(rows)).fit(rows)
        scaler.scale_ = self._scale_of(scaler) if self.scale is None else np.asarray(self.scale)
        regression = LogisticRegression(C=self.C, max_iter=self.max_iter).fit(scaler.transform(rows), y)
        self.model_ = Pipeline([("scale", scaler), ("regression", regression)])
        self.classes_, self.n_features_in_ = self.model_.classes_, int(rows.shape[1])
        return self

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of each class, shape (N, C)."""
        p: Floats = self.model_.predict_proba(self._rows(X))
        return p

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the most probable class of each sample, shape (N,)."""
        found: npt.NDArray[Any] = self.classes_[self.predict_proba(X).argmax(axis=1)]
        return found

    def _scale_of(self, scaler: StandardScaler) -> Floats:
        scale: Floats = scaler.scale_
        return scale

    def _rows(self, X: Any) -> Any:
        if issparse(X):
            return X
        numbers = np.asarray(X, dtype=np.float64)
        return numbers.reshape(len(numbers), -1)


class LinearOnPixels(LinearOnTable):
    """The same with one scale for all features: for pixels, where nearly constant ones are noise, and for texts.

    >>> pictures = np.zeros((4, 1, 2, 2), dtype=np.uint8)
    >>> pictures[2:, 0, 0] = 200
    >>> LinearOnPixels().fit(pictures, [0, 0, 1, 1]).predict(pictures).tolist()
    [0, 0, 1, 1]
    """

    def _scale_of(self, scaler: StandardScaler) -> Floats:
        return np.full(len(scaler.var_), max(float(np.sqrt(scaler.var_).mean()), 1e-6))
