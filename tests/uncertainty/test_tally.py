"""The tally of passes is the same however they come, and cheap to compile however many there are."""

import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from surelabel.uncertainty.compiled import shared_sums
from surelabel.uncertainty.sharing import repeating
from surelabel.uncertainty.tally import Sums, Tally, tallied


def sums_of(z: torch.Tensor) -> Sums:
    tally = Tally("single", 2.0)
    tally.add(z)
    return tally.sums()


def test_passes_that_come_together_give_what_they_give_one_by_one() -> None:
    z = torch.randn(10, 7, 5, generator=torch.Generator().manual_seed(0))
    z[:, :, 0] = z[0, :, 0]
    together, one_by_one = sums_of(z), tallied(z.unbind(), "single", 2.0).sums()
    # Not bit for bit: a softmax over more rows is vectorized otherwise.
    torch.testing.assert_close(together, one_by_one)
    assert together.differs.any(dim=0).tolist() == [False, True, True, True, True]


def test_a_row_with_one_value_of_one_pass_that_is_not_finite_is_marked() -> None:
    z = torch.zeros(3, 4, 2)
    z[1, 2, 0] = torch.inf
    assert sums_of(z).finite.tolist() == [True, True, False, True]


def test_sums_over_the_classes_are_no_more_for_ten_passes_than_for_two() -> None:
    """Else the compiler joins them in one kernel, which takes minutes to make with 100 classes."""

    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 3))

    def num_softmax(passes: int) -> int:
        with repeating("repeated", [model[0]], 4, passes):
            function = make_fx(lambda block: shared_sums(model, block, passes, "repeated", "single", 2.0))
            graph = function(torch.ones(4, 3)).graph
        return sum(node.target is torch.ops.aten._softmax.default for node in graph.nodes)

    assert num_softmax(10) == num_softmax(2) == 2
