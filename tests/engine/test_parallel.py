"""Two processes train as one does: the same weights, but for rounding, and the same selections in every round."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import several_processes as several
import torch
from small_runs import CONFIG, LEARNER, blobs

import surelabel as sl
from surelabel.base.together import Alone
from surelabel.engine import parallel, train
from surelabel.engine.settings import TrainingSettings
from surelabel.errors import InvalidInputError


@pytest.fixture(scope="module")
def of_two(tmp_path_factory: pytest.TempPathFactory) -> list[several.Results]:
    """What each of two processes found."""
    return run_by_two(tmp_path_factory.mktemp("several"))


def run_by_two(folder: Path, *cases: str) -> list[several.Results]:
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    words = [*torchrun, several.__file__, str(folder), *cases]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [dict(np.load(folder / f"{rank}.npz")) for rank in range(2)]


def part(found: several.Results, case: str) -> several.Results:
    return {name: value for name, value in found.items() if name.startswith(f"{case}: ")}


def test_all_processes_end_with_the_same_weights_and_labels(of_two: list[several.Results]) -> None:
    # Also where they do not equal one process: dropout, BatchNorm, and methods that mix samples.
    first, second = of_two
    assert {name.partition(":")[0] for name in first} == {*several.CASES, *several.RANDOM}
    for name, value in first.items():
        np.testing.assert_array_equal(value, second[name], err_msg=name)


@pytest.mark.parametrize("case", several.CASES)
def test_two_processes_equal_one(case: str, of_two: list[several.Results]) -> None:
    expected, found = several.all_of({case: several.CASES[case]}), part(of_two[0], case)
    # Losses and augmentations are computed in single precision. With several labels, losses are divided by other
    # numbers.
    assert_equal(found, expected, {"float32": 1e-6, "mean-teacher, several labels": 1e-8}.get(case, 1e-9))


def test_dropout_differs_between_processes_and_between_steps(of_two: list[several.Results]) -> None:
    masks = of_two[0]["dropped: masks"]
    assert masks.shape[:2] == (2, 2)
    assert len(np.unique(masks.reshape(4, -1), axis=0)) == 4


def test_training_with_dropout_that_was_broken_off_ends_as_if_it_had_not(of_two: list[several.Results]) -> None:
    found = part(of_two[0], "resumed")
    np.testing.assert_array_equal(found["resumed: parts"], found["resumed: whole"])
    assert found["resumed: written"].tolist() == [7, 0]  # the second process takes the first one's


@pytest.fixture(scope="module")
def slow_of_two(tmp_path_factory: pytest.TempPathFactory) -> list[several.Results]:
    return run_by_two(tmp_path_factory.mktemp("slow"), *several.SLOW)


@pytest.mark.slow
@pytest.mark.parametrize("case", several.SLOW)
def test_two_processes_equal_one_where_that_takes_long_to_show(case: str, slow_of_two: list[several.Results]) -> None:
    expected, found = several.all_of({case: several.SLOW[case]}), part(slow_of_two[0], case)
    # Compiled code rounds in another order, in one process as in two.
    assert_equal(found, expected, 1e-7 if case.endswith("compiled") else 1e-9)


def assert_equal(found: several.Results, expected: several.Results, tolerance: float) -> None:
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        if value.dtype.kind == "f":
            np.testing.assert_allclose(found[name], value, rtol=0, atol=tolerance, err_msg=name)
        else:
            np.testing.assert_array_equal(found[name], value, err_msg=name)
    selected = [value for name, value in expected.items() if name.endswith(": selected")]
    assert all(0 < some.sum() < some.size for some in selected)


def blobs_run() -> several.Results:
    x, y = blobs()
    learner = LEARNER.build("single")
    records = list(sl.self_train(learner, (x[:9], y[:9]), x[9:], CONFIG))
    return {"weights": np.frombuffer(learner.to_bytes(), np.uint8), "u": records[-1].pool.uncertainty}


def test_one_process_that_exchanges_with_itself_gets_the_same_bits(request: pytest.FixtureRequest) -> None:
    alone = blobs_run(), several.of_method("freematch", dtype=torch.float32)
    request.getfixturevalue("in_a_group_of_one")
    together = blobs_run(), several.of_method("freematch", dtype=torch.float32)
    for expected, found in zip(alone, together, strict=True):
        for name, value in expected.items():
            np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.usefixtures("in_a_group_of_one")
def test_an_error_in_one_process_is_raised_as_it_is() -> None:
    with pytest.raises(InvalidInputError, match="wrong"):
        parallel.processes().by_first(lambda: (_ for _ in ()).throw(InvalidInputError("wrong")))


class Eight(Alone):
    size = 8


class Two(Alone):
    """Two processes of which the second has other values."""

    def __init__(self, **other: object) -> None:
        self.other = other

    def in_all(self, function):
        return [function(), self.other]


def test_processes_with_other_settings_are_refused_and_both_are_shown() -> None:
    message = r"Process 1 has config\.seed 2, and process 0 has 1; start the same command"
    with pytest.raises(InvalidInputError, match=message):
        parallel.check_alike(Two(**{"config.seed": 2}), {"config": {"seed": 1}})


def test_values_that_differ_behind_a_long_beginning_are_refused_and_shown_where_they_differ() -> None:
    """Paths and lists of shards are long, and what is alike in them says nothing."""
    path = "/shared/" + "long/" * 30 + "net.py:"
    marks = [f"{number:016}" for number in range(1000)]
    for ours, theirs, shown in (
        (path + "small", path + "plain", r"\.\.\.ong/net\.py:plain, and process 0 has \.\.\.ong/net\.py:small; start"),
        (marks, [*marks[:700], "f" * 16, *marks[701:]], r"\.\.\..*'f{16}', .*, and process 0 has \.\.\..*'0*700', "),
    ):
        with pytest.raises(InvalidInputError, match=shown) as refused:
            parallel.check_alike(Two(**{"pool.marks": theirs}), {"pool": {"marks": ours}})
        assert len(str(refused.value)) < 300


def test_fewer_labels_than_processes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "processes", Eight)
    x, y = blobs()
    learner = LEARNER.build("single")
    with pytest.raises(InvalidInputError, match="6 labeled samples are fewer than the 8 processes; start at most 6"):
        next(sl.self_train(learner, (x[:6], y[:6]), x[9:], CONFIG))


def test_a_batch_per_process_makes_the_rate_grow_too() -> None:
    grown = TrainingSettings(batch_size=32, labeled_batch_size=8, learning_rate=0.1).times(4)
    assert (grown.batch_size, grown.labeled_batch_size, grown.negative_batch_size) == (128, 32, None)
    assert grown.learning_rate == pytest.approx(0.4)
    by_itself = TrainingSettings(batch_size=32, learning_rate=0.1, reference_batch_size=64).times(4)
    assert (by_itself.batch_size, by_itself.learning_rate) == (128, 0.1)
