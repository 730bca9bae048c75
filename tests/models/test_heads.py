"""Heads on the features of several backbones: each sees its own, and an ensemble trains them apart."""

import numpy as np
import pytest
import torch

from surelabel.data.source import ArraySource
from surelabel.data.training_set import make_problem
from surelabel.errors import InvalidInputError
from surelabel.learners.network import TorchLearner
from surelabel.models.heads import Head, heads
from surelabel.models.table import TableNetwork
from surelabel.uncertainty import DeepEnsemble


def features() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    y = np.arange(40) % 2
    return (generator.normal(size=(40, 5)) + 4 * y[:, None]).astype(np.float32), y


def learner(members: int = 2) -> TorchLearner:
    def make(shape: tuple[int, ...], num_classes: int) -> torch.nn.Module:
        return heads(shape, num_classes, widths=(2, 3), hidden=(4,))

    return TorchLearner(make, uncertainty=DeepEnsemble(members=members), device="cpu")


def test_a_head_is_a_table_network_on_its_columns(seeded: None) -> None:
    x = torch.randn(6, 5)
    head, plain = Head(2, 5, 3, hidden=(4,), noise=0.5), TableNetwork(3, 3, hidden=(4,), noise=0.5)
    plain.load_state_dict({name: value for name, value in head.state_dict().items() if name != "columns"})
    head.standardize(lambda: [x])
    plain.standardize(lambda: [x[:, 2:]])
    assert torch.equal(head.eval()(x), plain.eval()(x[:, 2:]))
    assert torch.equal(head.directions, plain.directions)


def test_features_of_a_backbone_may_share_one_scale() -> None:
    x = torch.tensor([[0.0, 0.0, 5.0], [2.0, 10.0, 7.0]])
    for one_scale, expected in ((False, [[1.0, 5.0], [1.0]]), (True, [[13**0.5, 13**0.5], [1.0]])):
        made = heads((3,), 2, widths=(2, 1), one_scale=one_scale)
        for head in made:
            head.standardize(lambda: [x])
        assert [head.scale.tolist() for head in made] == [pytest.approx(scale) for scale in expected]


def test_widths_that_do_not_add_up_are_refused() -> None:
    for widths in ((2, 2), (5, 0), ()):
        with pytest.raises(InvalidInputError, match=r"'widths' must count the features of each backbone.*\(5,\)"):
            heads((5,), 2, widths=widths)


def test_members_of_an_ensemble_may_differ_and_each_learns_from_its_own_columns() -> None:
    x, y = features()
    made = learner()
    made.fit(make_problem((x[:20], y[:20]), x[20:], "single").training_set(None), seed=0)
    first, second = made.network.networks  # type: ignore[union-attr]
    assert first.columns.tolist() == [0, 1]
    assert second.columns.tolist() == [2, 3, 4]
    torch.testing.assert_close(second.mean, torch.from_numpy(x[:, 2:].mean(0, dtype=np.float64)))
    (labeled,) = made.predict(ArraySource(x), seed=0)
    batch = torch.from_numpy(x)
    each = np.stack([torch.softmax(head(batch), 1).detach().numpy() for head in (first, second)])
    np.testing.assert_allclose(labeled.p, each.mean(0), rtol=1e-5)
    np.testing.assert_allclose(labeled.u, each.std(0, ddof=1), atol=1e-6)
    assert (np.asarray(labeled.p).argmax(1) == y).mean() > 0.9


def test_a_kept_ensemble_of_unlike_members_is_loaded_again() -> None:
    x, y = features()
    made, other = learner(), learner()
    made.fit(make_problem((x[:20], y[:20]), x[20:], "single").training_set(None), seed=0)
    other.from_bytes(made.to_bytes(), sample_shape=(5,), num_classes=2)
    np.testing.assert_array_equal(made.predict_proba(ArraySource(x)), other.predict_proba(ArraySource(x)))


def test_a_list_of_another_length_than_the_ensemble_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="a list of 2 networks, and the estimator trains 3; let it return one"):
        learner(members=3).build((5,), 2)
