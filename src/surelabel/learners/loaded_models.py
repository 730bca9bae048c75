"""Fitted scikit-learn models whose indices stay inside their own arrays.

Compiled code follows these indices without checks: a forged model file could crash the process, read other memory, or
loop forever. So indices are checked once, when a model is loaded.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier
from sklearn.neighbors import BallTree, KDTree
from sklearn.svm import SVC, NuSVC
from sklearn.tree import BaseDecisionTree
from sklearn.tree._tree import Tree

Indices = npt.NDArray[np.integer[Any]]


def check_indices(models: Any) -> None:
    """Raise ValueError if a model, or a part of one, has an index outside its own arrays.

    >>> from sklearn.tree import DecisionTreeClassifier
    >>> check_indices([DecisionTreeClassifier().fit([[0.0], [1.0]], [0, 1])])
    """
    for owner, part in _parts(models):
        if isinstance(part, Tree):
            _require(isinstance(owner, BaseDecisionTree), "a tree without its classifier")
            _check_tree(part, owner.n_features_in_)
        elif issparse(part):
            part.check_format()
        elif isinstance(part, KDTree | BallTree):
            _check_neighbor_tree(part)
        elif isinstance(part, HistGradientBoostingClassifier) and hasattr(part, "_predictors"):
            _check_histogram_trees(part)
        elif isinstance(part, GradientBoostingClassifier) and hasattr(part, "estimators_"):
            _check_boosted_trees(part)
        elif isinstance(part, SVC | NuSVC) and hasattr(part, "support_"):
            _check_support_vectors(part)
        elif hasattr(part, "_fit_X") and hasattr(part, "classes_") and hasattr(part, "_y"):  # nearest neighbors
            _require(_within(part._y, 0, len(part.classes_)), "a neighbor of no class")


def _parts(models: Any) -> Iterator[tuple[Any, Any]]:
    """Yield all objects that models are made of, each with the one that holds it."""
    seen: dict[int, Any] = {}
    waiting = [(None, models)]
    while waiting:
        owner, part = waiting.pop()
        if id(part) in seen and not isinstance(part, Tree):
            continue
        seen[id(part)] = part
        yield owner, part
        waiting.extend((part, one) for one in _inner(part))


def _inner(part: Any) -> Iterable[Any]:
    if isinstance(part, dict):
        return part.values()
    if isinstance(part, np.ndarray):
        return part.flat if part.dtype.hasobject else ()
    if isinstance(part, list | tuple | set):
        return part
    return getattr(part, "__dict__", {}).values()


def _check_tree(tree: Tree, num_features: int) -> None:
    _require(tree.n_features == num_features, "a tree for other features than its classifier's")
    _require(1 <= tree.node_count <= tree.capacity, "a tree without its nodes")
    is_leaf = tree.children_left == -1
    _check_nodes(is_leaf, tree.children_left, tree.children_right, tree.feature, num_features)


def _check_nodes(is_leaf: npt.NDArray[np.bool_], left: Indices, right: Indices, feature: Indices, width: int) -> None:
    """Children must come after their parents, so that every path ends."""
    inner = np.flatnonzero(~is_leaf)
    for children in (left, right):
        _require(_within(children[inner], inner + 1, len(is_leaf)), "a tree that leads outside its nodes")
    _require(_within(feature[inner], 0, width), "a tree that asks for a feature that is not there")


def _check_histogram_trees(model: HistGradientBoostingClassifier) -> None:
    width = model.n_features_in_
    categorical = model._bin_mapper.is_categorical_
    _require(categorical.shape == (width,), "trees for other features than their classifier's")
    for predictor in (one for stage in model._predictors for one in stage):
        nodes, bitsets = predictor.nodes, predictor.raw_left_cat_bitsets
        _require(len(nodes) > 0, "a tree without its nodes")
        _check_nodes(nodes["is_leaf"] != 0, nodes["left"], nodes["right"], nodes["feature_idx"], width)
        sets = nodes[(nodes["is_leaf"] == 0) & (nodes["is_categorical"] != 0)]
        _require(categorical[sets["feature_idx"]].all(), "a tree that takes a number for a category")
        _require(bitsets.shape[1:] == (8,) and _within(sets["bitset_idx"], 0, len(bitsets)), "a tree without its sets")


def _check_boosted_trees(model: GradientBoostingClassifier) -> None:
    for one in model.estimators_.flat:
        _require(one.tree_.n_features == model.n_features_in_, "a tree for other features than its classifier's")
    columns = model._raw_predict_init(np.zeros((1, model.n_features_in_))).shape[1]
    _require(columns == model.estimators_.shape[1], "trees for other classes than their classifier's")


def _check_neighbor_tree(tree: Any) -> None:
    data, order, nodes, bounds, _, num_levels, num_nodes, *_ = tree.__getstate__()
    _require(order.shape == data.shape[:1] and _within(order, 0, len(data)), "a neighbor that is not there")
    whole = len(nodes) == num_nodes == 2**num_levels - 1 and bounds.shape[1:] == (num_nodes, data.shape[1])
    _require(whole and len(bounds) == (2 if isinstance(tree, KDTree) else 1), "a tree without its nodes")
    start, end = nodes["idx_start"], nodes["idx_end"]
    _require(_within(end, 0, len(data) + 1) and _within(start, 0, end + 1), "a node of neighbors that are not there")
    _require(nodes["is_leaf"][num_nodes // 2 :].all(), "a tree that leads outside its nodes")


def _check_support_vectors(model: SVC | NuSVC) -> None:
    (num_vectors, width), counts, size = model.support_vectors_.shape, model._n_support, len(model.classes_)
    pairs = size * (size - 1) // 2
    _require(width == model.n_features_in_, "support vectors of other features")
    _require(model.support_.shape == (num_vectors,), "other support vectors than it names")
    _require(counts.shape == (size,) and (counts >= 0).all() and counts.sum() == num_vectors, "other support vectors")
    weights = model._dual_coef_.data.size if model._sparse else model._dual_coef_.size
    _require(weights == (size - 1) * num_vectors, "support vectors without their weights")
    _require(model._intercept_.shape == (pairs,), "support vectors of other classes")
    for values in (model._probA, model._probB):
        _require(values.shape in ((pairs,), (0,)), "support vectors of other classes")


def _within(values: Any, low: Any, high: Any) -> bool:
    return bool(((low <= values) & (values < high)).all())


def _require(holds: Any, found: str) -> None:
    if not holds:
        raise ValueError(f"it holds {found}")
