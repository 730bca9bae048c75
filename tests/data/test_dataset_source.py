"""From Python: torch datasets and data frames where samples are taken."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from surelabel import UPSConfig, self_train
from surelabel.data.source import DatasetSource, as_source
from surelabel.errors import InvalidInputError
from surelabel.learners.settings import TorchLearnerSettings

LEARNER = TorchLearnerSettings(hidden=(4,), training={"epochs": 1, "min_steps": 20}, passes=3, device="cpu")


class Numbers(Dataset[Any]):
    """Two groups of points; counts what is asked of it."""

    def __init__(self, number: int, shapes: tuple[int, ...] = (2,)) -> None:
        self.number, self.shapes, self.asked = number, shapes, 0

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, place: int) -> tuple[torch.Tensor, int]:
        self.asked += 1
        return torch.full((self.shapes[place % len(self.shapes)],), 8.0 * (place % 2) + place / 1000), place % 2


def test_a_dataset_is_read_lazily_and_stacked() -> None:
    dataset = Numbers(1000)
    source = as_source("unlabeled", dataset, first_id=5)
    assert (dataset.asked, len(source), source.sample_shape) == (1, 1000, (2,))
    np.testing.assert_allclose(source[np.array([3, 0])], [[8.003, 8.003], [0, 0]])
    assert dataset.asked == 3
    assert source.ids[:2].tolist() == [5, 6]
    assert source[np.array([], dtype=np.int64)].shape == (0, 2)


def test_rounds_take_datasets_and_data_frames() -> None:
    y = np.arange(8) % 2
    config = UPSConfig(max_rounds=1)
    labeled = DatasetSource(Numbers(8), ids=np.array([f"l{place}" for place in range(8)]))
    pool = DatasetSource(Numbers(20), ids=np.array([f"u{place}" for place in range(20)]))
    records = list(self_train(LEARNER.build("single"), (labeled, y), pool, config))
    assert len(records) == 2
    tensors = TensorDataset(torch.stack([Numbers(20)[place][0] for place in range(20)]))
    again = list(self_train(LEARNER.build("single"), (Numbers(8), y), tensors, config))
    frame = pd.DataFrame(pool[np.arange(20)], columns=["a", "b"])
    framed = list(self_train(LEARNER.build("single"), (pd.DataFrame(labeled[np.arange(8)]), y), frame, config))
    assert [record.num_positive for record in again] == [record.num_positive for record in framed]


def test_data_frames_with_other_columns_are_refused() -> None:
    y, config = np.arange(8) % 2, UPSConfig(max_rounds=1)
    frame = pd.DataFrame({"a": 8.0 * y, "b": 0.0, "c": 1.0})
    words = frame.assign(c="x")
    for given in (frame, words):
        for other, problem in (
            (given[["b", "a", "c"]], "column 1 is 'b', and 'a' in the labeled samples"),
            (given.rename(columns={"b": "B"}), "column 2 is 'B', and 'b' in the labeled samples"),
            (given[["a", "b"]], "column 3 is missing, and 'c' in the labeled samples"),
            (given.assign(d=1), "column 4 is 'd', and missing in the labeled samples"),
        ):
            for name in ("unlabeled", "validation", "test"):
                parts = {"unlabeled": given, name: other if name == "unlabeled" else (other, y)}
                with pytest.raises(InvalidInputError) as error:
                    list(self_train(LEARNER.build("single"), (given, y), config=config, **parts))
                remedy = f"give both the same columns in one order, as in {name}[labeled.columns]."
                assert str(error.value) == f"{name}: {problem}; {remedy}"


@pytest.mark.parametrize("kind", ["Float64", "boolean", "Int8", "double[pyarrow]", "bool[pyarrow]", "plain"])
def test_data_frames_of_nullable_numbers_are_numbers(kind: str) -> None:
    frame = pd.DataFrame({"a": np.array([1.5, 0.0]), "b": [True, False]})
    if kind != "plain":
        frame = frame.assign(b=frame["b"].astype(kind))
    source = as_source("labeled", frame)
    assert source[np.array([0, 1])].tolist() == [[1.5, 1], [0, 0]]
    if kind != "plain":
        frame.loc[1, "b"] = pd.NA
        assert np.isnan(as_source("labeled", frame)[np.array([1])][0, 1])


def test_datasets_that_cannot_be_sources() -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            yield torch.zeros(2)

    with pytest.raises(InvalidInputError, match="unlabeled: A dataset must be map-style; got Stream; give one"):
        as_source("unlabeled", Stream())
    with pytest.raises(InvalidInputError, match="The dataset Numbers is empty; check where it reads from"):
        as_source("unlabeled", Numbers(0))
    with pytest.raises(InvalidInputError, match=r"ids must name each of the 3 samples; got shape \(2,\)"):
        DatasetSource(Numbers(3), ids=np.array([1, 2]))
    with pytest.raises(InvalidInputError, match=r"Sample 1 of the dataset has shape \(3,\), and sample 0 \(2,\); give"):
        DatasetSource(Numbers(3, shapes=(2, 3)))[np.array([0, 1])]
    with pytest.raises(InvalidInputError, match="Sample 0 of the dataset is a str; let it return an array or a tensor"):
        DatasetSource(["text"])
