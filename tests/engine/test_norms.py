"""BatchNorm over several processes; `test_parallel.py` compares two of them with one."""

import copy
import warnings

import pytest
import torch
from small_runs import blobs
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import surelabel as sl
from surelabel.base.together import Alone
from surelabel.engine import norms
from surelabel.engine.norms import SynchronizedBatchNorm, batch_norm, synchronized_again, synchronizes
from surelabel.engine.settings import TrainingSettings
from surelabel.learners.network import TorchLearner
from surelabel.uncertainty import Deterministic


@pytest.mark.usefixtures("in_a_group_of_one")
@pytest.mark.parametrize("shape", [(6, 4), (3, 4, 5), (3, 4, 5, 2)])
@pytest.mark.parametrize("affine", [True, False])
def test_of_one_process_it_is_what_torch_computes(shape: tuple[int, ...], affine: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    # A mean far from 0: the difference of two large numbers would not do.
    x = (1e6 + torch.randn(shape, generator=generator, dtype=torch.float64)).requires_grad_()
    weight, bias = (torch.randn(4, generator=generator, dtype=torch.float64, requires_grad=True) for _ in range(2))
    given, found = (weight, bias) if affine else (None, None), []
    for function in (functional.batch_norm, batch_norm):
        running = torch.full((4,), 2.0, dtype=torch.float64), torch.full((4,), 3.0, dtype=torch.float64)
        y = function(x, *running, *given, training=True, momentum=0.3, eps=1e-3)
        gradients = torch.autograd.grad(y.pow(3).sum(), [x, *given] if affine else [x])
        found.append([y, *running, *gradients])
    for expected, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.usefixtures("in_a_group_of_one")
def test_half_precision_is_normalized_in_single() -> None:
    x = torch.randn(64, 4, generator=torch.Generator().manual_seed(0)).bfloat16()
    found = batch_norm(x, None, None, training=True)
    torch.testing.assert_close(found, functional.batch_norm(x.float(), None, None, training=True).bfloat16())


def test_only_norms_that_use_their_batch_are_synchronized(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(norms, "total", lambda values: asked.append(len(values)) or values)
    network, x = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.GroupNorm(2, 4)), torch.randn(8, 3)
    untouched = copy.deepcopy(network)
    network(x)
    with SynchronizedBatchNorm():
        network.eval()(x)
        assert asked == []
        network.train()(x)
        assert asked == [5, 4]
    assert [type(one) for one in network] == [type(one) for one in untouched]
    assert network.state_dict().keys() == untouched.state_dict().keys()


@pytest.mark.usefixtures("in_a_group_of_one")
@pytest.mark.parametrize("reentrant", [True, False])
def test_norms_that_a_backward_pass_computes_again_are_synchronized_too(
    monkeypatch: pytest.MonkeyPatch, reentrant: bool
) -> None:
    asked = []
    monkeypatch.setattr(norms, "total", lambda values: asked.append(len(values)) or values)
    norm, x = nn.BatchNorm1d(4), torch.randn(8, 4, requires_grad=True)
    with SynchronizedBatchNorm():
        loss = checkpoint(norm, x, use_reentrant=reentrant).pow(3).sum()
    with synchronized_again(norm):
        loss.backward()
    assert asked == [5, 4, 5, 4]
    norm(x)
    assert asked == [5, 4, 5, 4]


CONFIG = sl.UPSConfig(max_rounds=0, kappa_p=float("inf"), kappa_n=float("inf"))


class Two(Alone):
    size = 2


def test_settings_that_change_nothing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    norm, without = nn.Sequential(nn.BatchNorm1d(3)), nn.Sequential(nn.LayerNorm(3))
    asked = TrainingSettings(sync_batchnorm=True)
    assert not synchronizes(norm, asked)  # one process has all rows
    monkeypatch.setattr(norms, "processes", Two)
    assert synchronizes(norm, asked)
    assert not synchronizes(norm, TrainingSettings())
    with pytest.warns(UserWarning, match="Ignored: sync_batchnorm, because the network has no BatchNorm"):
        assert not synchronizes(without, asked)
    with pytest.warns(UserWarning, match="Ignored: cuda_graph, because with sync_batchnorm"):
        assert synchronizes(norm, asked.replace(cuda_graph=True))


def test_one_process_trains_the_same_network_with_it() -> None:
    x, y = blobs()
    weights = []
    for asked in (False, True):
        training = TrainingSettings(steps=3, batch_size=6, sync_batchnorm=asked)
        learner = TorchLearner(
            lambda shape, classes: nn.Sequential(nn.Linear(*shape, 4), nn.BatchNorm1d(4), nn.Linear(4, classes)),
            training=training,
            uncertainty=Deterministic(),
            device="cpu",
        )
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            list(sl.self_train(learner, (x[:9], y[:9]), x[9:], CONFIG))
        weights.append(learner.to_bytes())
    assert weights[0] == weights[1]


def test_settings_of_earlier_versions_keep_their_hashes() -> None:
    assert "sync_batchnorm" not in TrainingSettings().model_dump()
    assert TrainingSettings(sync_batchnorm=True).model_dump()["sync_batchnorm"] is True
