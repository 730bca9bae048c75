"""What every network of ours has to do."""

import torch
from torch import nn


def check_drawn_in_place(used: nn.Module, new: nn.Module) -> None:
    """New weights are written where the old ones were, and are those of a new network, whatever its memory format."""
    memory = {path: value.data_ptr() for path, value in used.state_dict().items()}
    for network in (used, new):
        torch.manual_seed(0)
        network.reset_parameters()
    assert {path: value.data_ptr() for path, value in used.state_dict().items()} == memory
    for path, value in used.state_dict().items():
        assert torch.equal(value, new.state_dict()[path]), path
