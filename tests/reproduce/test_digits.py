"""The rows of the demo's table: complete settings, the data behind them, and workers that share the runs."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from surelabel.data.source import ArraySource
from surelabel.errors import InvalidInputError, RunError
from surelabel.learners.settings import SklearnLearnerSettings
from surelabel.models.image import SmallImageNetwork, small_image_network
from surelabel.reproduce.digits import NUM_TEST, SEEDS, Job, demo_jobs, demo_settings, digits, run_jobs
from surelabel.reproduce.variants import (
    VARIANTS,
    confidence_based,
    full_ups,
    pseudo_labeling,
    supervised,
    ups_without_negatives,
    with_mixup,
)
from surelabel.runs import RunFolder
from surelabel.settings import RunSettings


def quick(settings: RunSettings, steps: int = 5, rounds: int = 1) -> RunSettings:
    config = settings.config.replace(max_rounds=min(rounds, settings.config.max_rounds))
    return settings.with_training(min_steps=steps, epochs=1).replace(config=config)


def test_rows_differ_from_ups_only_where_their_names_say() -> None:
    ups = demo_settings(seed=5)
    assert full_ups(ups) == ups
    assert supervised(ups).config == ups.config.replace(max_rounds=0)
    assert ups_without_negatives(ups).config == ups.config.replace(negatives=False)
    confidence = confidence_based(ups)
    assert confidence.config == ups.config.replace(kappa_p=math.inf, kappa_n=math.inf)
    assert confidence.learner == ups.learner.replace(uncertainty="none")
    plain = pseudo_labeling(ups).config
    assert (plain.tau_p, plain.tau_n, plain.negatives, plain.balance, plain.tolerance) == (0, 0, False, None, None)
    assert {variant(ups).config.seed for variant in VARIANTS} == {5}
    assert len({variant(ups).name for variant in VARIANTS}) == 5


@pytest.mark.parametrize("learner", [None, SklearnLearnerSettings(estimator="sklearn.svm:SVC")])
def test_rows_for_networks_refuse_other_learners(learner: SklearnLearnerSettings | None) -> None:
    with pytest.raises(InvalidInputError, match=f"must be a network; got {type(learner).__name__}"):
        with_mixup(RunSettings(learner=learner))


def test_digits_are_split_without_overlap_and_a_seed_draws_every_part() -> None:
    first, second = digits(seed=0), digits(seed=1)
    parts = [first.labeled[0].ids, first.unlabeled.ids, first.test[0].ids]
    assert sorted(np.concatenate(parts)) == list(range(1797))
    assert not np.array_equal(first.test[0].ids, second.test[0].ids)
    assert len(first.test[1]) == NUM_TEST
    assert not np.array_equal(first.labeled[0].ids, second.labeled[0].ids)
    assert np.bincount(first.labeled[1]).tolist() == [4] * 10
    assert first.labeled[0].x.shape[1:] == (1, 8, 8)
    assert first.labeled[0].x.max() <= 1


def test_the_validation_samples_come_out_of_the_pool() -> None:
    with_validation = digits(seed=3, num_validation=300)
    assert len(with_validation.validation[1]) == 300
    pool = set(digits(seed=3).unlabeled.ids) | set(digits(seed=3).labeled[0].ids)
    assert set(with_validation.validation[0].ids) <= pool
    assert not set(with_validation.validation[0].ids) & set(with_validation.unlabeled.ids)


@pytest.mark.parametrize("count", [0, 1000])
def test_digits_need_labels_and_a_pool(count: int) -> None:
    with pytest.raises(InvalidInputError, match="labels_per_class"):
        digits(labels_per_class=count)


def test_the_image_network_takes_other_sizes_and_refuses_rows_of_a_table() -> None:
    assert small_image_network((3, 28, 32), 7)(torch.zeros(2, 3, 28, 32)).shape == (2, 7)
    with pytest.raises(InvalidInputError, match="sample_shape"):
        SmallImageNetwork((64,), 10)


def test_jobs_are_one_run_per_row_and_seed_in_folders_of_their_own(tmp_path: Path) -> None:
    jobs = demo_jobs(tmp_path)
    assert len({job.folder for job in jobs}) == len(jobs) == len(VARIANTS) * len(SEEDS)
    assert all(job.settings.data.arguments == {"seed": job.settings.config.seed} for job in jobs)
    with pytest.raises(InvalidInputError, match="at least one seed"):
        demo_jobs(tmp_path, seeds=())


def test_workers_make_and_sign_the_same_runs_as_this_process_and_tell_a_failure(tmp_path: Path) -> None:
    settings = [quick(supervised(demo_settings(seed))) for seed in (0, 1)]
    here = [Job(tmp_path / f"here-{i}", one) for i, one in enumerate(settings)]
    there = [Job(tmp_path / f"there-{i}", one) for i, one in enumerate(settings)]
    taken = Job(tmp_path / "taken", settings[0])
    taken.folder.mkdir()
    (taken.folder / "file").touch()
    seen: list[tuple[str, int, int]] = []
    run_jobs(here, workers=1)
    with pytest.raises(RunError, match="taken"):
        run_jobs([*there, taken], workers=2, progress=lambda *what: seen.append(what))
    for one, other in zip(here, there, strict=True):
        assert RunFolder.open(one.folder).model_bytes() == RunFolder.open(other.folder).model_bytes()
        assert RunFolder.open(other.folder).trust_code
    assert seen == [("Supervised, seed 0", 1, 3), ("Supervised, seed 1", 2, 3)]


def test_ids_of_the_digits_are_their_places_in_the_data_set() -> None:
    from sklearn.datasets import load_digits

    data = digits(seed=2)
    assert isinstance(data.unlabeled, ArraySource)
    expected = load_digits().images[data.unlabeled.ids[7]] / 16
    assert np.allclose(data.unlabeled.x[7, 0], expected)
    assert np.array_equal(data.truth, load_digits().target[data.unlabeled.ids])
