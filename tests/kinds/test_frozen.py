"""Backbones of other packages: networks are made by them, weights come from local files, and the classifier is off."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from surelabel.errors import DataError, InvalidInputError
from surelabel.kinds.backbones import BackboneSettings, PictureInput
from surelabel.kinds.frozen import open_backbone

PICTURES = list(np.random.default_rng(0).integers(0, 256, (3, 3, 32, 32), dtype=np.uint8))
BY_TRANSFORMERS = pytest.mark.filterwarnings("ignore")  # of the package's own


@pytest.fixture
def transformers(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return pytest.importorskip("transformers", reason="pip install 'surelabel[text]'")


@pytest.fixture
def vit(transformers: Any, tmp_path: Path, seeded: None) -> Any:
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8, image_size=32, patch_size=8
    )
    network = transformers.ViTModel(config, add_pooling_layer=False)
    network.save_pretrained(tmp_path)
    said = {"size": {"height": 32, "width": 32}, "image_mean": [0.5] * 3, "image_std": [0.25] * 3}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(said))
    return network.eval()


@BY_TRANSFORMERS
def test_pictures_by_a_folder_of_transformers(vit: Any, tmp_path: Path) -> None:
    frozen = open_backbone(BackboneSettings(reference=f"transformers:{tmp_path}", device="cpu"), "pictures")
    assert frozen.shown == PictureInput(side=32, mean=(0.5,) * 3, std=(0.25,) * 3)
    shown = (torch.from_numpy(np.stack(PICTURES)) / 255 - 0.5) / 0.25
    with torch.no_grad():
        expected = vit(pixel_values=shown).last_hidden_state.mean(1)
    np.testing.assert_allclose(frozen.compute(PICTURES), expected.numpy(), atol=1e-5)


@BY_TRANSFORMERS
def test_texts_by_a_folder_of_transformers_do_not_depend_on_their_batch(
    transformers: Any, tmp_path: Path, seeded: None
) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat", "dog", "barks", "loud"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    config = transformers.BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=8,
    )
    transformers.BertModel(config).save_pretrained(tmp_path)
    transformers.BertTokenizerFast(vocab=str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)
    frozen = open_backbone(BackboneSettings(reference=f"transformers:{tmp_path}", device="cpu"), "texts")
    texts = ["a cat", "a dog barks loud", "", "a " * 100]
    together = frozen.compute(texts)
    assert together.shape == (4, 16)
    for text, features in zip(texts, together, strict=True):
        np.testing.assert_allclose(frozen.compute([text])[0], features, atol=1e-5)
    assert np.abs(together[0] - together[1]).max() > 0.01


@BY_TRANSFORMERS
def test_a_folder_without_safetensors_or_with_code_of_its_own_is_refused(vit: Any, tmp_path: Path) -> None:
    backbone = BackboneSettings(reference=f"transformers:{tmp_path}", device="cpu")
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": "x", "auto_map": {"AutoConfig": "m.C"}}))
    (tmp_path / "m.py").write_text("raise SystemExit('it was run')")
    with pytest.raises(InvalidInputError, match=r"The backbone 'transformers:.* cannot be made \("):
        open_backbone(backbone, "pictures")
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(InvalidInputError, match=r"The backbone 'transformers:.* cannot be made \("):
        open_backbone(backbone, "pictures")


@BY_TRANSFORMERS
def test_weights_that_are_missing_are_not_drawn_at_random(vit: Any, tmp_path: Path) -> None:
    weights = {
        name: value for name, value in load_file(tmp_path / "model.safetensors").items() if "layernorm" not in name
    }
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(
        DataError, match=r"lacks weights of its network: 'layernorm.bias', 'layernorm.weight', .* and 7 more"
    ):
        open_backbone(BackboneSettings(reference=f"transformers:{tmp_path}", device="cpu"), "pictures")


def test_a_folder_that_says_nothing_of_pictures_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"preprocessor_config.json' is damaged or not really a description of picture"):
        open_backbone(BackboneSettings(reference=f"transformers:{tmp_path}"), "pictures")
    with pytest.raises(DataError, match="gone' is not a folder; name one with config.json and model.safetensors"):
        open_backbone(BackboneSettings(reference=f"transformers:{tmp_path}/gone"), "pictures")


def test_a_package_that_is_missing_names_what_installs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    (tmp_path / "a.pth").touch()
    with pytest.raises(DataError, match=r"'timm:resnet18' needs the package timm, .*pip install 'surelabel\[vision\]'"):
        open_backbone(BackboneSettings(reference="timm:resnet18", pretrained=tmp_path / "a.pth"), "pictures")
    with pytest.raises(InvalidInputError, match="'timm:resnet18' takes pictures; for texts name transformers:FOLDER"):
        open_backbone(BackboneSettings(reference="timm:resnet18", pretrained=tmp_path / "a.pth"), "texts")


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")
def test_a_network_of_timm_without_its_classifier(tmp_path: Path, seeded: None) -> None:
    timm = pytest.importorskip("timm", reason="pip install 'surelabel[vision]'")
    network = timm.create_model("resnet18", pretrained=False).eval()
    torch.save(network.state_dict(), tmp_path / "resnet18.pth")
    backbone = BackboneSettings(reference="timm:resnet18", pretrained=tmp_path / "resnet18.pth", device="cpu")
    frozen = open_backbone(backbone, "pictures")
    assert (frozen.shown.side, frozen.shown.mean) == (224, (0.485, 0.456, 0.406))
    shown = _normalized(frozen.shown)
    with torch.no_grad():
        expected = network.forward_head(network.forward_features(shown), pre_logits=True)
    np.testing.assert_allclose(frozen.compute(PICTURES), expected.numpy(), atol=1e-4)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["resnet18", "vit_b_16", "convnext_tiny", "mobilenet_v3_small"])
def test_a_network_of_torchvision_without_its_classifier(tmp_path: Path, name: str, seeded: None) -> None:
    models = pytest.importorskip("torchvision.models", reason="pip install 'surelabel[vision]'")
    network = models.get_model(name, weights=None).eval()
    torch.save(network.state_dict(), tmp_path / "net.pth")
    backbone = BackboneSettings(reference=f"torchvision:{name}", pretrained=tmp_path / "net.pth", device="cpu")
    frozen = open_backbone(backbone, "pictures")
    assert (frozen.shown.side, frozen.shown.mean) == (224, (0.485, 0.456, 0.406))
    pictures = list(np.random.default_rng(0).integers(0, 256, (2, 3, 224, 224), dtype=np.uint8))
    last = [part for part in network.modules() if isinstance(part, torch.nn.Linear)][-1]
    seen: list[torch.Tensor] = []
    last.register_forward_pre_hook(lambda layer, inputs: seen.append(inputs[0]))
    with torch.no_grad():
        network(_normalized(frozen.shown, pictures))
    np.testing.assert_allclose(frozen.compute(pictures), seen[0].numpy(), atol=1e-4)


def _normalized(shown: PictureInput, pictures: list[Any] = PICTURES) -> torch.Tensor:
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (shown.mean, shown.std))
    return (torch.from_numpy(np.stack(pictures)) / 255 - mean) / std
