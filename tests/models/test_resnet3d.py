"""3-D ResNet-18 is torchvision's r3d_18, or with the other stem and shortcut the network that the paper cites."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from surelabel.errors import InvalidInputError
from surelabel.models.resnet3d import ResNet3d, resnet3d18
from tests.models.test_resnet import check_like_torchvision, randomize_norms, torchvision_models

pytestmark = pytest.mark.usefixtures("seeded")

VARIANTS = [(stem, shortcut) for stem in ("torchvision", "paper") for shortcut in ("projection", "padded")]


def test_resnet3d18_is_torchvisions(tmp_path: Path) -> None:
    models = torchvision_models()
    check_like_torchvision(models.video.r3d_18(num_classes=7), resnet3d18, (3, 8, 32, 32), tmp_path / "weights.pth")


def _names(shortcut: str) -> list[str]:
    """Torchvision's names of r3d_18's parameters and buffers, from the rule that they follow."""

    def layers(path: str) -> list[str]:
        norm = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
        return [f"{path}.0.weight", *(f"{path}.1.{part}" for part in norm)]

    names = layers("stem")
    for group in (1, 2, 3, 4):
        for block in (0, 1):
            names += layers(f"layer{group}.{block}.conv1") + layers(f"layer{group}.{block}.conv2")
            if group > 1 and block == 0 and shortcut == "projection":
                names += layers(f"layer{group}.{block}.downsample")
    return [*names, "fc.weight", "fc.bias"]


@pytest.mark.parametrize(("stem", "shortcut"), VARIANTS)
def test_names_and_numbers_of_parameters_are_the_known_ones(stem: Any, shortcut: Any) -> None:
    with torch.device("meta"):
        model = resnet3d18((3, 16, 112, 112), 400, stem=stem, shortcut=shortcut)
    assert list(model.state_dict()) == _names(shortcut)
    # Torchvision documents 33,371,472. The paper's stem has 7 - 3 slices of 7 x 7 more for each pair of channels.
    expected = 33_371_472 + (4 * 7 * 7 * 3 * 64 if stem == "paper" else 0)
    if shortcut == "padded":
        expected -= sum(narrow * 2 * narrow + 2 * 2 * narrow for narrow in (64, 128, 256))
    assert sum(parameter.numel() for parameter in model.parameters()) == expected
    assert tuple(model.state_dict()["stem.0.weight"].shape) == (64, 3, 3 if stem == "torchvision" else 7, 7, 7)


def _reference(state: dict[str, torch.Tensor], x: torch.Tensor, stem: str, shortcut: str) -> torch.Tensor:
    """The evaluation pass, block by block from the formula."""

    def convolution(x: torch.Tensor, path: str, stride: Any = 1) -> torch.Tensor:
        weight = state[f"{path}.0.weight"]
        x = functional.conv3d(x, weight, stride=stride, padding=tuple(side // 2 for side in weight.shape[2:]))
        mean, variance, scale, shift = (
            state[f"{path}.1.{part}"][:, None, None, None] for part in ("running_mean", "running_var", "weight", "bias")
        )
        return (x - mean) / (variance + 1e-5).sqrt() * scale + shift

    x = convolution(x, "stem", (1, 2, 2)).clamp(min=0)
    if stem == "paper":
        # What is behind a ReLU is at least 0, so that a border of 0 is never more than its neighbors.
        padded = functional.pad(x, (1,) * 6)
        x = padded.unfold(2, 3, 2).unfold(3, 3, 2).unfold(4, 3, 2).amax(dim=(5, 6, 7))
    for group in (1, 2, 3, 4):
        for block in (0, 1):
            here, stride = f"layer{group}.{block}", 2 if group > 1 and block == 0 else 1
            inner = convolution(convolution(x, f"{here}.conv1", stride).clamp(min=0), f"{here}.conv2")
            if stride == 2 and shortcut == "projection":
                x = convolution(x, f"{here}.downsample", 2)
            elif stride == 2:
                kept = x[:, :, ::2, ::2, ::2]
                x = torch.cat([kept, torch.zeros_like(kept)], dim=1)
            x = (x + inner).clamp(min=0)
    return x.mean(dim=(2, 3, 4)) @ state["fc.weight"].T + state["fc.bias"]


@pytest.mark.parametrize(("stem", "shortcut"), VARIANTS)
@pytest.mark.parametrize("shape", [(3, 16, 32, 32), (2, 17, 33, 45)])
def test_the_evaluation_pass_is_that_of_an_independent_reference(
    stem: Any, shortcut: Any, shape: tuple[int, ...]
) -> None:
    model = ResNet3d(shape, 5, stem=stem, shortcut=shortcut, width=4).double()
    randomize_norms(model)
    x = torch.randn(2, *shape, dtype=torch.float64)
    torch.testing.assert_close(model.eval()(x), _reference(dict(model.state_dict()), x, stem, shortcut))


def test_a_padded_shortcut_passes_the_gradient_on() -> None:
    model = ResNet3d((3, 8, 16, 16), 5, shortcut="padded", width=4).double().eval()
    for group in (model.layer2, model.layer3, model.layer4):
        group[0].conv2[1].weight.data.zero_()  # only the shortcut is left
    x = torch.rand(1, 3, 8, 16, 16, dtype=torch.float64, requires_grad=True)
    model(x).sum().backward()
    assert x.grad is not None
    assert x.grad.any()


@pytest.mark.parametrize("stem", ["torchvision", "paper"])
@pytest.mark.parametrize("shape", [(3, 16, 112, 112), (1, 16, 32, 48), (3, 24, 128, 128)])
def test_clips_of_other_sizes_work(stem: Any, shape: tuple[int, ...]) -> None:
    assert ResNet3d(shape, 4, stem=stem, width=1)(torch.rand(2, *shape)).shape == (2, 4)


@pytest.mark.parametrize(
    ("stem", "shape", "message"),
    [
        ("torchvision", (3, 7, 112, 112), r"at least 8 frames of 16 x 16 .*Got \(3, 7, 112, 112\)"),
        ("torchvision", (3, 16, 112, 15), "at least 8 frames of 16 x 16"),
        ("paper", (3, 15, 112, 112), "at least 16 frames of 32 x 32 for stem 'paper'"),
        ("paper", (3, 16, 31, 112), "at least 16 frames of 32 x 32"),
        ("torchvision", (3, 112, 112), "must be .channels, frames, height, width.*resnet50 for images"),
    ],
)
def test_clips_that_are_too_short_or_too_small_or_no_clips_are_named(
    stem: Any, shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        resnet3d18(shape, 5, stem=stem)


def test_unknown_stems_and_shortcuts_are_named() -> None:
    wrong: Any = "hara"
    with pytest.raises(InvalidInputError, match="'stem' argument must be one of 'torchvision', 'paper'. Got 'hara'"):
        resnet3d18((3, 16, 112, 112), 5, stem=wrong)
    with pytest.raises(InvalidInputError, match="'shortcut' argument must be one of 'projection', 'padded'. Got 'ha"):
        resnet3d18((3, 16, 112, 112), 5, shortcut=wrong)


def test_a_smallest_clip_trains() -> None:
    for stem, shape in (("torchvision", (3, 8, 16, 16)), ("paper", (3, 16, 32, 32))):
        settings: dict[str, Any] = {"stem": stem, "width": 4}
        model = ResNet3d(shape, 4, **settings)
        model(torch.rand(3, *shape)).sum().backward()
        assert all(parameter.grad is not None for parameter in model.parameters())
