"""MC-dropout: "using dropout at inference time"; everything that is not stochastic stays in evaluation mode.

The `training` flags are set and restored one by one. `Module.train` and `Module.eval` are not used:
they also change children, and networks override them (to keep a backbone frozen, to merge weights).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias

from torch import nn

from surelabel.core.arrays import bad_argument
from surelabel.models.dropout import DropBlock2d, Dropout, SpatialDropout2d

LayerTypes: TypeAlias = tuple[type[nn.Module], ...]

_DROPOUT = (
    nn.Dropout,
    Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
    SpatialDropout2d,
    DropBlock2d,
)
# The base of batch and instance normalization: in training mode these overwrite their running statistics.
_RUNNING_STATISTICS = nn.modules.batchnorm._NormBase


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Put every module into evaluation mode; restore each module's own mode afterwards, even after an exception.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
        >>> with evaluation_mode(model):
        ...     print(model[1].training)
        False
        >>> model[1].training
        True
    """
    modes = [(module, module.training) for module in model.modules()]
    try:
        for module, _ in modes:
            _set_mode(module, False)
        yield
    finally:
        for module, training in modes:
            _set_mode(module, training)


@contextmanager
def stochastic_mode(model: nn.Module, extra_types: LayerTypes = ()) -> Iterator[dict[str, nn.Module]]:
    """Put stochastic layers into training mode and everything else into evaluation mode; restore all modes afterwards.

    It yields the stochastic layers by name. Only a layer's own flag is set, not those of its children: BatchNorm inside
    a stochastic layer keeps its statistics.

    Args:
        model: any network.
        extra_types: the user's own layer classes whose randomness depends on `self.training`.

    Example:
        >>> model = nn.Sequential(nn.BatchNorm1d(2), nn.Dropout(0.5)).eval()
        >>> with stochastic_mode(model):
        ...     print([layer.training for layer in model])
        [False, True]
        >>> [layer.training for layer in model]
        [False, False]
    """
    layers = stochastic_layers(model, extra_types)
    with evaluation_mode(model):
        for layer in layers.values():
            layer.training = True
        yield layers


def stochastic_layers(model: nn.Module, extra_types: LayerTypes = ()) -> dict[str, nn.Module]:
    """Return, by name, the layers that are random in training mode, and those that would otherwise bypass them.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5), nn.Dropout(0.0))
        >>> list(stochastic_layers(model))
        ['1']
    """
    random = {module for module in model.modules() if _is_random(module, extra_types)}
    chosen = random | _fast_path_layers(model, random)
    return {name: module for name, module in model.named_modules() if module in chosen}


def draws_for_each_row(layer: nn.Module) -> bool:
    """Return whether a layer is known to draw separately for each row, so that a row may be in the batch twice.

    Torch's own dropout layers and those of `models.dropout` do. A subclass of one may share its draws across the batch,
    like any other layer.

    Example:
        >>> draws_for_each_row(nn.Dropout(0.5)), draws_for_each_row(nn.LSTM(2, 2, 2, dropout=0.5))
        (True, False)
    """
    return type(layer) in _DROPOUT


def check_layer_types(extra_types: LayerTypes) -> None:
    """Refuse anything but a tuple of layer classes, and classes that would switch BatchNorm on."""
    name, remedy = "stochastic_layers", "write stochastic_layers=(MyLayer,), with the class and not an instance"
    are_classes = isinstance(extra_types, tuple) and all(isinstance(layer_type, type) for layer_type in extra_types)
    if not are_classes or not all(issubclass(layer_type, nn.Module) for layer_type in extra_types):
        raise bad_argument(name, "be a tuple of layer classes, derived from torch.nn.Module", repr(extra_types), remedy)
    for layer_type in extra_types:
        if issubclass(layer_type, _RUNNING_STATISTICS) or issubclass(_RUNNING_STATISTICS, layer_type):
            must = "not include normalization layers, which would overwrite their running statistics"
            raise bad_argument(name, must, layer_type.__name__, remedy)


def _set_mode(module: nn.Module, training: bool) -> None:
    # Checked first: setting an attribute of a module is slow, and most modules already have the right mode.
    if module.training != training:
        module.training = training


def _is_random(module: nn.Module, extra_types: LayerTypes) -> bool:
    if isinstance(module, _DROPOUT):
        # A rate of 0 drops nothing; a user's subclass may still be random at 0.
        return module.p > 0 or isinstance(module, extra_types)
    if isinstance(module, (nn.MultiheadAttention, nn.RNNBase)):
        return module.dropout > 0 or isinstance(module, extra_types)
    return isinstance(module, extra_types)


def _fast_path_layers(model: nn.Module, random: set[nn.Module]) -> set[nn.Module]:
    """Return the encoder layers that would skip the random layers inside them.

    `TransformerEncoderLayer` checks only its own flag before it uses a fused kernel without dropout.
    `TransformerEncoder` checks its first layer's flag before it packs a padded batch into a nested tensor,
    which only fused layers can read; so its layers are switched together.
    """
    chosen: set[nn.Module] = set()
    for module in model.modules():
        if isinstance(module, (nn.TransformerEncoder, nn.TransformerEncoderLayer)):
            inside = list(module.modules())
            if not random.isdisjoint(inside):
                chosen.update(layer for layer in inside if isinstance(layer, nn.TransformerEncoderLayer))
    return chosen
