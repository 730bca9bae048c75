"""Each text as a few numbers for its topic, learned from all texts, labeled or not.

Latent semantic analysis: the pieces of a text (character n-grams of 2 to 4 letters, word ends included) are counted as
1 + log(count), weighted by the logarithm of their rarity (TF-IDF), and projected onto the directions in which the texts
of the table differ most (a truncated singular value decomposition). Pieces instead of words, because they distinguish
"win!!!" and "won", cope with misspellings, and work for languages without spaces between words. scikit-learn does the
work; what it has learned is kept as plain arrays.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from surelabel.errors import DataError

MOST_PIECES, MOST_DIRECTIONS = 20_000, 50
_LEAST_OFTEN = 3
"""A piece in fewer texts is not informative; with few texts, two or one are enough."""
_LETTERS = 2, 4
_SEED = 0
_BETWEEN = "\0"


@dataclass(frozen=True, eq=False)
class TextModel:
    """What was learned from the texts of a column.

    Attributes:
        pieces: in the order of the weights, V.
        rarity: the weight of each piece, float32 (V,).
        directions: float32 (V, K).
    """

    pieces: Sequence[str]
    rarity: npt.NDArray[np.float32]
    directions: npt.NDArray[np.float32]

    def encode(self, texts: Sequence[str | None]) -> npt.NDArray[np.float32]:
        """Return the coordinates of texts in the directions, shape (N, K); zeros for None."""
        vectorizer = _vectorizer(vocabulary=list(self.pieces))
        vectorizer.idf_ = self.rarity.astype(np.float64)
        weights = vectorizer.transform([text or "" for text in texts])
        return np.asarray(weights.astype(np.float32) @ self.directions)


def learn_texts(name: str, texts: Sequence[str | None]) -> TextModel:
    """Learn pieces and directions from all texts of a column.

    Args:
        name: of the column, for errors.
        texts: N; None for a gap.
    """
    from sklearn.decomposition import TruncatedSVD

    there = [text for text in texts if text]
    least = min(_LEAST_OFTEN, 1 + len(there) // 10)
    vectorizer = _vectorizer(min_df=least, max_features=MOST_PIECES)
    try:
        weights = vectorizer.fit_transform(there)
    except ValueError as error:  # no piece is in enough texts
        raise DataError(f"Column {name!r} has too few texts that share a word; leave it out with --drop.") from error
    number = min(MOST_DIRECTIONS, min(weights.shape) - 1)
    if number < 1:
        raise DataError(f"Column {name!r} has too few texts that differ; leave it out with --drop.")
    decomposition = TruncatedSVD(number, random_state=_SEED).fit(weights)
    directions = np.ascontiguousarray(decomposition.components_.T, dtype=np.float32)
    return TextModel(vectorizer.get_feature_names_out().tolist(), vectorizer.idf_.astype(np.float32), directions)


def to_bytes(models: Mapping[str, TextModel]) -> bytes:
    """Return the models of columns, by name, as the content of a safetensors file."""
    from safetensors.numpy import save

    arrays: dict[str, npt.NDArray[Any]] = {}
    for name, model in models.items():
        pieces = np.frombuffer(_BETWEEN.join(model.pieces).encode(), dtype=np.uint8)
        arrays |= {f"{name}/pieces": pieces, f"{name}/rarity": model.rarity, f"{name}/directions": model.directions}
    return save(arrays)


def from_bytes(data: bytes) -> dict[str, TextModel]:
    """Return the models from the content that `to_bytes` made.

    >>> model = learn_texts("note", ["a cat", "a dog", "a cat and a dog", "dogs"])
    >>> again = from_bytes(to_bytes({"note": model}))["note"]
    >>> bool((again.encode(["cats"]) == model.encode(["cats"])).all())
    True
    """
    from safetensors.numpy import load

    arrays = load(data)
    names = [key.removesuffix("/pieces") for key in arrays if key.endswith("/pieces")]
    return {
        name: TextModel(
            arrays[f"{name}/pieces"].tobytes().decode().split(_BETWEEN),
            arrays[f"{name}/rarity"],
            arrays[f"{name}/directions"],
        )
        for name in names
    }


def _vectorizer(**options: Any) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(analyzer="char_wb", ngram_range=_LETTERS, sublinear_tf=True, dtype=np.float64, **options)
