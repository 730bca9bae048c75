"""UPS as a scikit-learn estimator: `fit(X, y)` with unlabeled rows marked in y."""

import copy
import dataclasses
import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data

from surelabel.base.defaults import FitDefaults
from surelabel.base.settings import MOST_PASSES, mistakes
from surelabel.base.text import shown
from surelabel.core.arrays import require_count
from surelabel.data import encoding
from surelabel.data.pool import PoolLabels, selected_since
from surelabel.data.source import ArraySource, FrameSource, Source, is_frame
from surelabel.data.training_set import Problem, make_problem
from surelabel.errors import InvalidInputError, NotStochasticError
from surelabel.learners.network import ModelFactory
from surelabel.learners.preflight import check_random
from surelabel.learners.sklearn import SklearnLearner
from surelabel.loop import Callback, rounds
from surelabel.records import RoundRecord
from surelabel.settings import FitSettings, UPSConfig
from surelabel.uncertainty import Deterministic


@dataclass(eq=False, repr=False)
class UPSClassifier(ClassifierMixin, BaseEstimator, FitDefaults):  # type: ignore[misc]
    """A classifier for few labels and many unlabeled samples, by uncertainty-aware pseudo-label selection.

    Args:
        estimator: a scikit-learn classifier with `predict_proba`, trained as a bootstrap ensemble; None: a network.
        model: a factory `(sample_shape, num_classes) -> torch.nn.Module` in place of the default network for tables.
        unlabeled: what marks an unlabeled entry of y; None: None, NaN and NA do (the form for strings).
        tau_p: least confidence of a positive label; None: 0.7, or 0.5 for multi-label (the paper's).
        tau_n: largest confidence of a negative label.
        kappa_p: largest uncertainty of a positive label; None: 0.1, or 0.05 for multi-label (the paper's).
        kappa_n: largest uncertainty of a negative label.
        gamma: multi-label: the least probability at which a class counts as present.
        negatives: whether negative labels are used.
        balance: "equal", "prior" or None, see `UPSConfig`.
        balance_rounds: how many rounds are balanced; None as in `UPSConfig`.
        balance_floor: balancing leaves each class at least this many positives.
        max_rounds: the most rounds after round 0; None: 5, or 1 for multi-label.
        tolerance: see `UPSConfig`.
        max_minutes: no round starts after this many minutes.
        passes: stochastic passes, or members of the bootstrap ensemble.
        temperature: of the softened probabilities that negatives are selected by.
        stochastic_layers: layer types of your model, besides dropout, that are random in training mode.
        hidden: widths of the default network's hidden layers.
        dropout: rate after each hidden layer of the default network.
        noise: on the standardized features of the default network in training, in units of their typical difference to
            the nearest row; 0: none.
        method: how a network learns within a round: "ups", "pi-model", "mean-teacher", "ict", "mixmatch", "fixmatch",
            "flexmatch", "freematch", "softmatch", "teacher-match" (docs/methods.md), or "file.py:Class", a
            `surelabel.engine.method.Method`. All but "ups" average the weights, with an `ema_decay` of 0.99.
        method_parameters: the method's own arguments, such as {"threshold": 0.9} for "fixmatch".
        negative_weight: the weight of the negative learning term in UPS's learning rule.
        optimizer: "adamw" or "sgd".
        learning_rate: the initial learning rate, annealed to 0 by a cosine.
        weight_decay: of the optimizer.
        batch_size: labeled and positive samples in a mini-batch; samples with only negatives are added. With methods
            other than "ups": samples of the pool, to which labeled ones are added.
        labeled_batch_size: labeled samples drawn separately and added to a batch of pseudo-labeled ones; 0: both in
            proportion; None: 0, or `batch_size` for multi-label, where pseudo-labels would crowd out the labels. With
            methods other than "ups": labeled samples in a mini-batch; 0: `batch_size` divided by the method's `ratio`.
        epochs: passes over a round's labeled and positive samples. With methods other than "ups": over the labeled
            samples and over the pool, until each has had at least this many.
        min_steps: small training sets are repeated until this many steps are done.
        sync_batchnorm: with several processes (docs/several-gpus.md), BatchNorm normalizes by the rows of all.
        device: where the network lives; None: the GPU if there is one.
        callbacks: called with each round's record; one that returns True ends the rounds.
        random_state: the seed; an integer gives identical results.

    Attributes:
        classes_: the labels, shape (C,).
        transduction_: the labels that the last model learned from, the unlabeled marker where none, shaped as y.
        labeled_iter_: for each row (entry) of y: 0 if given, else the round since which every round has selected it, or
            -1 if the last one did not.
        history_: a record for each round.
        n_iter_: the number of the last round.
        termination_condition_: "converged", "max_rounds", "max_minutes", "no_unlabeled" or "interrupted".
        learner_: the trained learner.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> y_few = np.where(np.arange(len(y)) % 10 == 0, y, -1)  # every tenth sample is labeled
    >>> classifier = UPSClassifier(random_state=0, max_rounds=2).fit(X, y_few)
    >>> classifier.predict(X[:3])
    array([0, 0, 0])
    """

    estimator: Any = None
    _: KW_ONLY
    model: ModelFactory | None = None
    unlabeled: Any = -1
    stochastic_layers: Sequence[type] = ()
    callbacks: Sequence[Callback] = ()
    random_state: Any = None

    def fit(self, X: Any, y: Any) -> Self:
        """Train on the labeled rows and, round after round, on the labels that the last network is sure of.

        Args:
            X: samples, shape (N, F); dense, sparse or a DataFrame; (N, ...) with a model of your own. An `estimator`
                that takes words, such as a pipeline that encodes them, may be given a DataFrame of any columns, or
                texts, shape (N,).
            y: labels, shape (N,), or 0 and 1, shape (N, C) with C > 1; unlabeled entries hold the marker.
        """
        X = self._validate(X, reset=True)
        encoded = self._encode(y)
        check_consistent_length(X, encoded.codes)
        self.classes_ = encoded.classes
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        problem = _make_problem(X, encoded)
        try:
            config = self.settings().config(encoded.task, len(encoded.classes), seed)
            self.learner_ = self._learner(encoded)
        except ValidationError as error:
            raise InvalidInputError("; ".join(mistakes(error))) from None
        unsure = self.model is not None or not (self.dropout and np.size(self.hidden))
        if problem.num_pool and self.estimator is None and unsure:
            try:
                check_random(self._learner(encoded), problem.source, len(encoded.classes))
            except NotStochasticError:
                if config.max_rounds:
                    raise
                # Nothing is selected without rounds, so the labels need no uncertainty.
                names = "kappa_p", "kappa_n", "passes"
                config = config.by_confidence([n for n in names if getattr(self, n) != getattr(FitDefaults, n)])
                self.learner_.uncertainty = Deterministic(self.temperature, encoded.task)
        self._run(problem, config, encoded)
        return self

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the most probable label of each row; several labels: 0 and 1, shape (N, C)."""
        p = self.predict_proba(X)
        if self.learner_.task == "multi":
            return (p >= self.gamma).astype(np.int64)
        return np.asarray(self.classes_[p.argmax(axis=1)])

    def predict_proba(self, X: Any) -> npt.NDArray[np.floating[Any]]:
        """Return the probabilities of one deterministic pass, shape (N, C)."""
        check_is_fitted(self)
        return np.asarray(self.learner_.predict_proba(_source(self._validate(X, reset=False))))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy on the labeled entries of y; a multi-label row counts if all known are right."""
        check_consistent_length(X, y, sample_weight)
        encoded = self._encode(y)
        rows = encoded.labeled
        if not rows.any():
            raise InvalidInputError("y has no labeled entry to score; pass rows whose labels are known.")
        predicted = self.predict(X)
        if predicted.shape != encoded.codes.shape:
            raise InvalidInputError(f"y must have shape {predicted.shape}. Got shape {encoded.codes.shape} instead.")
        if encoded.task == "multi":
            right = ((predicted == encoded.codes) | (encoded.codes < 0)).all(axis=1)
        else:
            right = predicted == encoded.classes[encoded.codes]
        weights = None if sample_weight is None else np.asarray(sample_weight)[rows]
        if weights is not None and not weights.sum() > 0:
            raise InvalidInputError("The 'sample_weight' argument must be positive on some labeled row.")
        return float(np.average(right[rows], weights=weights))

    def settings(self) -> FitSettings:
        """Return the parameters of `fit` as settings: `settings().config("single", 3, seed=0)` are its thresholds."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(FitSettings)}
        values["hidden"] = (self.hidden,) if isinstance(self.hidden, int) else tuple(self.hidden)
        return FitSettings(**values)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        # A classifier that does not accept gaps raises its own error.
        tags.input_tags.allow_nan = self.estimator is not None
        return tags

    def _validate(self, X: Any, reset: bool) -> Any:
        if hasattr(X, "sample_shape"):
            problem = f"UPSClassifier takes arrays. Got a source of samples ({type(X).__name__}) instead"
            raise InvalidInputError(f"{problem}; train on it with surelabel.run, or give X[np.arange(len(X))].")
        encoding.refuse_masked("X", X, "fill in what they should be: X.filled(0)")
        if self.estimator is not None and is_frame(X):
            validate_data(self, X, reset=reset, skip_check_array=True)
            return X
        if (texts := _texts(X)) is not None:
            if self.estimator is None:
                remedy = "give an estimator that takes them: make_pipeline(TfidfVectorizer(), LogisticRegression())"
                raise InvalidInputError(f"X has texts, such as {shown(texts[0])}; {remedy}.")
            return texts
        _check_columns(X)
        # The user's own network may need integers or bytes unchanged; everything else takes floats.
        own = self.model is not None
        dtype = "numeric" if own else (np.float64, np.float32)
        finite = True if self.estimator is None else "allow-nan"
        return validate_data(
            self, X, reset=reset, accept_sparse="csr", dtype=dtype, allow_nd=own, ensure_all_finite=finite
        )

    def _encode(self, y: Any) -> encoding.EncodedLabels:
        if y is None:
            raise InvalidInputError("UPSClassifier requires y to be passed, but the target y is None.")
        y = encoding.label_array(y)
        if y.ndim not in (1, 2):
            raise InvalidInputError(f"y should be a 1d array, or 2d for several labels. Got shape {y.shape} instead.")
        return encoding.encode_labels(column_or_1d(y, warn=True) if y.shape[1:] == (1,) else y, self.unlabeled)

    def _learner(self, encoded: encoding.EncodedLabels) -> Any:
        if self.estimator is not None and self.model is not None:
            raise InvalidInputError("Give either 'estimator' or 'model', not both.")
        require_count("passes", self.passes, 2, MOST_PASSES, remedy="a single one has no spread, 10 is the default")
        if self.estimator is not None:
            if self.method != FitDefaults.method or self.method_parameters:
                warnings.warn("Ignored: method, because a scikit-learn classifier has its own.", stacklevel=3)
            return SklearnLearner(self.estimator, members=self.passes, temperature=self.temperature, task=encoded.task)
        settings = self.settings().network(encoded.task)
        return settings.build(encoded.task, make=self.model, layers=tuple(self.stochastic_layers))

    def _run(self, problem: Problem, config: UPSConfig, encoded: encoding.EncodedLabels) -> None:
        tracker = Transduction(encoded.codes, problem.pool.ids)
        self.history_: list[RoundRecord] = []
        stop: str | None = None
        finished = self.learner_
        try:
            for record in rounds(self.learner_, problem, config, callbacks=self.callbacks or ()):
                tracker.add(record)
                self.history_.append(record.replace(pool=None, validation=None))
                stop = record.stop
                # The next fit may change the network in place; this copy keeps the one that the history describes.
                finished = copy.copy(self.learner_)
        except KeyboardInterrupt:
            if not self.history_:
                raise
            warnings.warn("Training interrupted by user; the last finished round is kept.", stacklevel=3)
            stop = "interrupted"
        # Unlike the learner, the copy holds no samples on the device.
        self.learner_ = finished
        self.termination_condition_ = stop
        self.n_iter_ = self.history_[-1].round
        self.labeled_iter_ = tracker.labeled_iter
        self.transduction_ = encoding.decode_labels(tracker.codes, encoded, self.unlabeled)


def _check_columns(X: Any) -> None:
    """Name the columns of a DataFrame that are not numbers; the error of a failed conversion would not."""
    if isinstance(X, np.ndarray) and X.dtype.kind in "mM":
        raise InvalidInputError(f"X has dtype {X.dtype}; make numbers of dates and times before they come here.")
    if not is_frame(X):
        return
    for name, kind in X.dtypes.items():
        if str(kind) in ("category", "str", "string") or kind.kind in "mM":
            remedy = "encode it as numbers (categories: pandas.get_dummies), or leave it out"
            raise InvalidInputError(f"Column {str(name)!r} of X has dtype {kind}; {remedy}.")


def _texts(X: Any) -> npt.NDArray[Any] | None:
    """Return samples that are strings as an array, shape (N,); else None."""
    if getattr(X, "ndim", 1) != 1 or not hasattr(X, "__len__") or not len(X):
        return None
    values = np.asarray(X, dtype=object)
    return values if values.ndim == 1 and all(isinstance(value, str) for value in values) else None


def _source(X: Any, rows: npt.NDArray[np.int64] | None = None) -> Source:
    """Return all samples, or some rows of them with their numbers as ids."""
    rows = np.arange(X.shape[0]) if rows is None else rows
    if is_frame(X) or X.ndim == 1:
        return FrameSource(X.iloc[rows] if is_frame(X) else X[rows], rows)
    return ArraySource(X[rows], ids=rows)


def _make_problem(X: Any, encoded: encoding.EncodedLabels) -> Problem:
    """Split the rows into labeled ones and the pool, each with its row number as id."""
    _check_labels(encoded)
    labeled, unlabeled = np.flatnonzero(encoded.labeled), np.flatnonzero(~encoded.labeled)
    pool = _source(X, unlabeled) if len(unlabeled) else None
    given = _source(X, labeled), encoded.codes[labeled]
    return make_problem(given, pool, encoded.task, len(encoded.classes))


def _check_labels(encoded: encoding.EncodedLabels) -> None:
    labeled, names, multi = encoded.labeled, encoded.classes.tolist(), encoded.task == "multi"
    if not labeled.any():
        raise InvalidInputError("y has no label at all; at least one sample of each class must be labeled.")
    texts = encoding.one_sided(encoded.codes, names) if multi else encoding.look_alikes(names)
    unique = None if multi else encoding.nearly_unique(len(names), int(labeled.sum()))
    if labeled.all() and encoded.mark is not None:
        meant = f"unlabeled={encoded.mark!r}"
        texts.append(f"No entry of y is unlabeled, and {encoded.mark!r} is a class; if it marks them, use {meant}.")
    for text in filter(None, [*texts, unique]):
        warnings.warn(text, stacklevel=4)
    if not multi and len(names) < 2:
        rest = int((~labeled).sum())
        hint = f" {rest} entries count as unlabeled; if their mark is a class, use unlabeled=None." if rest else ""
        raise InvalidInputError(f"There is one class only ({names[0]!r}); at least two classes are needed.{hint}")


class Transduction:
    """Tracks, round by round, which labels the latest model learned from and since when.

    Args:
        codes: the given labels, -1 where there was none, shape (N,) or (N, C).
        row_of_pool: the row of each sample of the pool.

    Attributes:
        codes: what the latest model learned from, of the same shape.
        labeled_iter: the round since which every round has learned from the label: 0 if given, -1 if the last did not.
    """

    def __init__(self, codes: npt.NDArray[np.int64], row_of_pool: npt.NDArray[np.int64]) -> None:
        self.given, self.row_of_pool = codes, row_of_pool
        self.codes = codes
        self.labeled_iter = np.where(codes >= 0, 0, -1)
        self._next: PoolLabels | None = None

    def add(self, record: RoundRecord) -> None:
        """Add a round's record, with its pool."""
        learned_from, self._next = self._next, record.pool
        if learned_from is None:
            return
        positive = learned_from.positive
        if self.given.ndim == 2:
            labels, selected = positive.astype(np.int64), positive | learned_from.negative[:]
        else:
            labels, selected = learned_from.label.astype(np.int64), positive
        rows, since = self.row_of_pool, self.labeled_iter[self.row_of_pool]
        given = self.given[rows]
        self.codes, self.labeled_iter = self.given.copy(), np.where(self.given >= 0, 0, -1)
        self.codes[rows] = np.where(selected & (given < 0), labels, given)
        self.labeled_iter[rows] = np.where(given >= 0, 0, selected_since(since, selected, record.round))
