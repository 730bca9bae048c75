"""The pool as one network labels it: pseudo-labels (eq. 1), what is selected of them (eq. 5), and balance."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from surelabel.arrays import Array, to_numpy
from surelabel.data.source import Ids
from surelabel.data.training_set import Mask
from surelabel.errors import InvalidInputError
from surelabel.labels import Task, pseudo_labels
from surelabel.selection import Selection, balance, select

Floats = npt.NDArray[np.floating[Any]]


class Prediction(NamedTuple):
    """One chunk of a source, in its order. Arrays are (N, C), numpy or torch.

    Attributes:
        ids: the samples' ids, shape (N,).
        p: probabilities (the mean over stochastic passes).
        u: their standard deviation over the passes; None when there was one deterministic pass.
        p_soft: as p, softened by the temperature.
        u_soft: as u, softened by the temperature.
    """

    ids: Ids
    p: Array
    u: Array | None
    p_soft: Array | None = None
    u_soft: Array | None = None


@dataclass(frozen=True)
class PoolLabels:
    """What one network says of each sample, and which of it may be learned from.

    For task "single" label, confidence, uncertainty and the softened pair are those of the predicted class, shape
    (N,). For task "multi" they are (N, C): label is 0 or 1 and confidence is the probability of presence.

    Attributes:
        ids: the samples' ids, shape (N,).
        label: pseudo-labels (eq. 1).
        confidence: p.
        uncertainty: u, or None after one deterministic pass.
        confidence_soft: p at the softened temperature.
        uncertainty_soft: u at the softened temperature, or None.
        selection: what the next round learns from, balanced if that round is, (N, C) masks.
        before: positives before balancing, shape (N, C).
        negative_p: p_soft of every selected negative, in the order of `np.nonzero(selection.negative)`.
        negative_u: u_soft of every selected negative, or None.
    """

    ids: Ids
    label: npt.NDArray[np.int64]
    confidence: Floats
    uncertainty: Floats | None
    confidence_soft: Floats
    uncertainty_soft: Floats | None
    selection: Selection
    before: Mask
    negative_p: Floats
    negative_u: Floats | None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def num_selected_before(self) -> int:
        """Positives plus negatives before balancing: what convergence is judged by."""
        return int(self.before.sum()) + int(self.selection.negative.sum())


def label_chunk(prediction: Prediction, task: Task, thresholds: dict[str, float], negatives: bool) -> PoolLabels:
    """Label and select one chunk; the arrays stay on their device until only the results are left."""
    p, u = prediction.p, prediction.u
    p_soft = p if prediction.p_soft is None else prediction.p_soft
    u_soft = u if prediction.u_soft is None else prediction.u_soft
    selected = select(p, u, task=task, p_soft=p_soft, u_soft=u_soft, **thresholds)
    positive, negative = to_numpy(selected.positive), to_numpy(selected.negative)
    if not negatives:
        negative = np.zeros_like(negative)
    label = to_numpy(pseudo_labels(p, task, thresholds["gamma"]))
    rows, classes = np.arange(len(label)), label.argmax(axis=1)

    def of_label(values: Array | None) -> Any:
        """Single-label: the predicted class's value; several labels: every class's."""
        if values is None:
            return None
        return to_numpy(values)[rows, classes] if task == "single" else to_numpy(values)

    return PoolLabels(
        ids=np.asarray(prediction.ids),
        label=classes if task == "single" else label.astype(np.int64),
        confidence=of_label(p),
        uncertainty=of_label(u),
        confidence_soft=of_label(p_soft),
        uncertainty_soft=of_label(u_soft),
        selection=Selection(positive, negative),
        before=positive,
        negative_p=to_numpy(p_soft)[negative],
        negative_u=None if u_soft is None else to_numpy(u_soft)[negative],
    )


def join(chunks: list[PoolLabels]) -> PoolLabels:
    """Put chunks together, in order."""

    def cat(name: str) -> Any:
        parts = [getattr(chunk, name) for chunk in chunks]
        return None if parts[0] is None else np.concatenate(parts)

    names = ["ids", "label", "confidence", "uncertainty", "confidence_soft", "uncertainty_soft", "before"]
    selection = Selection(
        np.concatenate([chunk.selection.positive for chunk in chunks]),
        np.concatenate([chunk.selection.negative for chunk in chunks]),
    )
    return PoolLabels(
        **{name: cat(name) for name in (*names, "negative_p", "negative_u")},
        selection=selection,
    )


def without_known(pool: PoolLabels, known: Mask) -> PoolLabels:
    """Take back what was selected of entries whose truth is known already (partly labeled rows)."""
    if not known.any():
        return pool
    keep = ~known[pool.selection.negative]
    return replace(
        pool,
        selection=Selection(pool.selection.positive & ~known, pool.selection.negative & ~known),
        before=pool.before & ~known,
        negative_p=pool.negative_p[keep],
        negative_u=None if pool.negative_u is None else pool.negative_u[keep],
    )


def balanced(pool: PoolLabels, floor: int, shares: Floats | None) -> PoolLabels:
    """Keep of each class the most certain positives; without uncertainties, the most confident ones."""
    u = 1.0 - pool.confidence if pool.uncertainty is None else pool.uncertainty
    u = np.broadcast_to(u if u.ndim == 2 else u[:, None], pool.before.shape)
    return replace(pool, selection=balance(pool.selection, u, floor=floor, shares=shares))


def check_chunk(prediction: Prediction, ids: Ids, num_classes: int) -> None:
    """Refuse a chunk that is not of these samples, in order: labels would go to the wrong ones."""
    shape = (len(ids), num_classes)
    if tuple(prediction.p.shape) != shape:
        raise InvalidInputError(
            f"The learner's p must have a row for each id and a column for each class, {shape}. Got "
            f"{tuple(prediction.p.shape)} instead."
        )
    if not np.array_equal(ids, np.asarray(prediction.ids)):
        raise InvalidInputError(
            "The learner's predictions do not follow the source: each chunk's ids must be the source's ids, in order."
        )
