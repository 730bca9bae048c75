import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix, issparse

from surelabel.data.source import ArraySource, Concatenation, Source, Subset, as_source, check_unique_ids, join_ids
from surelabel.errors import InvalidInputError

ROWS = np.arange(12.0).reshape(6, 2)


@pytest.mark.parametrize("make", [np.asarray, torch.as_tensor, csr_matrix])
def test_rows_come_in_the_order_asked_for(make: object) -> None:
    both = Concatenation(ArraySource(make(ROWS[:2])), ArraySource(make(ROWS[2:]), first_id=2))
    index = np.array([5, 0, 3, 1, 0])
    rows = both[index]
    dense = rows.toarray() if issparse(rows) else np.asarray(rows)
    assert np.array_equal(dense, ROWS[index])
    assert np.array_equal(both.ids[index], index)


def test_one_side_alone_is_not_copied_through_the_other() -> None:
    both = Concatenation(ArraySource(ROWS[:2]), ArraySource(ROWS[2:]))
    assert np.array_equal(both[np.array([1, 0])], ROWS[[1, 0]])
    assert np.array_equal(both[np.array([5, 2])], ROWS[[5, 2]])


def test_a_subset_keeps_its_order_and_ids() -> None:
    subset = Subset(ArraySource(ROWS, ids=np.array(list("abcdef"))), np.array([4, 1]))
    assert isinstance(subset, Source)
    assert subset.ids.tolist() == ["e", "b"]
    assert np.array_equal(subset[np.array([1, 0])], ROWS[[1, 4]])


def test_a_data_frame_is_a_source() -> None:
    pandas = pytest.importorskip("pandas")
    source = as_source("unlabeled", pandas.DataFrame(ROWS))
    assert source.sample_shape == (2,)


def test_bad_samples_are_named() -> None:
    with pytest.raises(ValueError, match=r"unlabeled: Samples must be .* got ndarray of shape \(3,\)"):
        as_source("unlabeled", np.zeros(3))
    with pytest.raises(ValueError, match="got str"):
        as_source("unlabeled", "data.csv")
    with pytest.raises(ValueError, match=r"must name each of the 6 samples; got shape \(2,\)"):
        ArraySource(ROWS, ids=[1, 2])
    with pytest.raises(ValueError, match=r"must have one shape; got \(2,\) and \(3,\)"):
        Concatenation(ArraySource(ROWS), ArraySource(np.zeros((2, 3))))


def test_an_id_must_not_name_two_samples() -> None:
    for ids, name in ((["a", "b", "b"], "'b'"), ([4, 5, 5], "5")):
        with pytest.raises(ValueError, match=f"The id {name} names 2 samples"):
            check_unique_ids(np.array(ids))


def test_frames_with_words_keep_their_rows() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"word": ["a", "b", "c"], "size": [1, 2, 3]})
    source = Concatenation(as_source("labeled", frame), as_source("unlabeled", frame[::-1], first_id=3))
    rows = source[np.array([4, 0, 3])]
    assert rows["word"].tolist() == ["b", "a", "c"]
    assert rows.dtypes["size"] == frame.dtypes["size"]
    assert source.ids.tolist() == [0, 1, 2, 3, 4, 5]


def test_ids_of_two_sources_stay_whole_numbers() -> None:
    small, large = np.array([-1, 3]), np.array([2**63], dtype=np.uint64)
    assert join_ids([small, np.array([5], dtype=np.uint64)]).tolist() == [-1, 3, 5]
    assert join_ids([small[1:], large]).tolist() == [3, 2**63]
    with pytest.raises(InvalidInputError, match="No integers hold both the ids -1 and 9223372036854775808; make all"):
        join_ids([small, large])
