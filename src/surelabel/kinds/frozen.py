"""Opens backbones: a network in evaluation mode, with weights from local files and without its classifier.

Your function, "file.py:function", is called without arguments, or with `pretrained="FILE"` if the command names
weights, and returns

- for pictures, an nn.Module: a batch (N, 3, S, S) of normalized float32 in, features (N, F) out. Its attributes `side`,
  `fit`, `mean` and `std`, if present, say how pictures are prepared for it (`PictureInput`);
- for texts, any callable: a list of N strings in, features (N, F) out, as a tensor or an array.
"""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from surelabel.base.references import call, failing, resolve
from surelabel.base.text import damage_named, listed
from surelabel.errors import DataError, InvalidInputError
from surelabel.kinds.backbones import LIBRARIES, BackboneSettings, PictureInput, Takes

if TYPE_CHECKING:
    from torch import Tensor, nn

Features = npt.NDArray[np.float32]
Compute = Callable[[Sequence[Any]], Features]
"""A list of samples, pictures uint8 (3, S, S) or strings, to their features, (N, F)."""
MOST_TOKENS = 512
"""The most tokens of a text if neither the tokenizer nor the network sets a limit."""


class Frozen(NamedTuple):
    """An open backbone.

    Attributes:
        compute: makes features from samples.
        shown: how pictures are prepared for it.
    """

    compute: Compute
    shown: PictureInput


def open_backbone(settings: BackboneSettings, takes: Takes) -> Frozen:
    """Read a backbone's weights and return it ready to compute; files that have changed are refused.

    Args:
        settings: pinned.
        takes: what its samples are.
    """
    settings = settings.pinned()
    settings.check_takes(takes)
    if settings.library is None:
        network, shown = _own(settings, takes)
    elif settings.library == "transformers" and takes == "texts":
        return Frozen(_checked(settings, takes, _texts_by_transformers(settings)), PictureInput())
    else:
        make = {"timm": _timm, "torchvision": _torchvision, "transformers": _pictures_by_transformers}
        with failing(f"The backbone {settings.reference!r} cannot be made", "Check its name and its weights."):
            network, shown = make[settings.library](settings)
    shown = settings.shown or shown
    compute = network if takes == "texts" else _on_pictures(network, shown, _device(settings))
    return Frozen(_checked(settings, takes, compute), shown)


def _device(settings: BackboneSettings) -> str:
    import torch

    return settings.device or ("cuda" if torch.cuda.is_available() else "cpu")


def _on_pictures(network: "nn.Module", shown: PictureInput, device: str) -> Callable[[Sequence[Any]], "Tensor"]:
    import torch

    network = network.to(device).eval()
    mean, std = (torch.tensor(values, device=device).view(3, 1, 1) for values in (shown.mean, shown.std))

    @torch.inference_mode()
    def compute(samples: Sequence[Any]) -> "Tensor":
        batch = torch.from_numpy(np.stack(samples)).to(device).float() / 255
        features: Tensor = network((batch - mean) / std)
        return features.flatten(1) if isinstance(features, torch.Tensor) and features.ndim > 2 else features

    return compute


def _checked(settings: BackboneSettings, takes: Takes, compute: Callable[[Sequence[Any]], Any]) -> Compute:
    """Refuse outputs that are not features, with the backbone's name."""
    import torch

    def checked(samples: Sequence[Any]) -> Features:
        with failing(f"The backbone {settings.name} fails on {takes}", f"Check that it takes {takes}."):
            features = compute(samples)
        found = features.detach().cpu().float().numpy() if isinstance(features, torch.Tensor) else features
        shape = getattr(found, "shape", None)
        if not isinstance(found, np.ndarray) or found.ndim != 2 or len(found) != len(samples) or not found.shape[1]:
            got = type(features).__name__ if shape is None else f"shape {tuple(shape)}"
            wanted = f"must return features of shape ({len(samples)}, F) for {len(samples)} samples"
            raise InvalidInputError(f"The backbone {settings.name} {wanted}; got {got}.")
        found = np.ascontiguousarray(found, dtype=np.float32)
        if not np.isfinite(found).all():
            raise InvalidInputError(f"The backbone {settings.name} returns features that are not finite; check it.")
        return found

    return checked


def _own(settings: BackboneSettings, takes: Takes) -> tuple[Any, PictureInput]:
    from torch import nn

    problem = f"The backbone {settings.name} cannot be made"
    weights = {} if settings.pretrained is None else {"pretrained": str(settings.pretrained)}
    network = call(problem, resolve(settings.reference, settings.sha256), weights)
    if isinstance(network, nn.Module):
        network.eval()
    elif takes == "pictures" or not callable(network):
        wanted = "a torch.nn.Module" if takes == "pictures" else "something that takes a list of texts"
        raise InvalidInputError(f"The backbone {settings.name} must return {wanted}; got {type(network).__name__}.")
    said = {name: getattr(network, name) for name in PictureInput.model_fields if hasattr(network, name)}
    with failing(f"{problem}: its attributes {', '.join(said)} do not say how pictures are shown to it"):
        return network, PictureInput(**said)


def _timm(settings: BackboneSettings) -> tuple["nn.Module", PictureInput]:
    timm = _imported("timm", settings)
    from surelabel.models.pretrained import load_pretrained

    network = timm.create_model(settings.reference.partition(":")[2], pretrained=False)
    last = network.pretrained_cfg.get("classifier")
    assert settings.pretrained is not None
    load_pretrained(network, settings.pretrained, **({"last": last} if isinstance(last, str) else {}))
    network.reset_classifier(0)
    found = timm.data.resolve_model_data_config(network)
    fit = "squash" if found.get("crop_mode", "squash") == "squash" else "crop"
    shown = PictureInput(side=found["input_size"][-1], fit=fit, mean=tuple(found["mean"]), std=tuple(found["std"]))
    return network, shown


def _torchvision(settings: BackboneSettings) -> tuple["nn.Module", PictureInput]:
    models = _imported("torchvision", settings).models
    from torch import nn

    from surelabel.models.pretrained import load_pretrained

    name = settings.reference.partition(":")[2]
    network = models.get_model(name, weights=None)
    # The classifier is the last layer of every torchvision network that ends in a linear layer.
    linear = [name for name, part in network.named_modules() if isinstance(part, nn.Linear)]
    if not linear:
        raise InvalidInputError(f"{settings.reference!r} does not end in a linear layer; name another network.")
    assert settings.pretrained is not None
    load_pretrained(network, settings.pretrained, last=linear[-1])
    owner, _, attribute = linear[-1].rpartition(".")
    setattr(network.get_submodule(owner), attribute, nn.Identity())
    preset = models.get_model_weights(name).DEFAULT.transforms()  # only a description; nothing is downloaded
    shown = PictureInput(side=preset.crop_size[0], fit="crop", mean=tuple(preset.mean), std=tuple(preset.std))
    return network, shown


def _pictures_by_transformers(settings: BackboneSettings) -> tuple["nn.Module", PictureInput]:
    from torch import nn

    folder = Path(settings.reference.partition(":")[2])
    path = folder / "preprocessor_config.json"
    with damage_named(path, "a description of pictures", ValueError, TypeError, KeyError):
        said = json.loads(path.read_text())
        size = said.get("crop_size") or said["size"]
        side = size if isinstance(size, int) else size.get("height") or size["shortest_edge"]
        fit = "crop" if said.get("do_center_crop") else "squash"
        normalized = said.get("do_normalize", True)
        mean = tuple(said["image_mean"]) if normalized else (0.0, 0.0, 0.0)
        std = tuple(said["image_std"]) if normalized else (1.0, 1.0, 1.0)
        shown = PictureInput(side=side, fit=fit, mean=mean, std=std)

    class Pooled(nn.Module):
        """The pooled vector of the picture, or the mean over its patches."""

        def __init__(self) -> None:
            super().__init__()
            model, self.pools = _transformer(settings, folder)
            self.model = getattr(model, "vision_model", model)  # a model for pictures and texts

        def forward(self, x: "Tensor") -> "Tensor":
            found = self.model(pixel_values=x)
            pooled: Tensor | None = getattr(found, "pooler_output", None) if self.pools else None
            return found.last_hidden_state.mean(1) if pooled is None else pooled.flatten(1)

    return Pooled(), shown


def _texts_by_transformers(settings: BackboneSettings) -> Callable[[Sequence[str]], "Tensor"]:
    """Return the mean of the network's last layer over a text's tokens."""
    import torch

    transformers = _imported("transformers", settings)
    folder, device = Path(settings.reference.partition(":")[2]), _device(settings)
    with failing(f"The backbone {settings.reference!r} cannot be made", "Check the folder's files."):
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        network = _transformer(settings, folder)[0].to(device).eval()
    most = min(tokenizer.model_max_length, getattr(network.config, "max_position_embeddings", MOST_TOKENS))

    @torch.inference_mode()
    def compute(texts: Sequence[str]) -> "Tensor":
        tokens = tokenizer(list(texts), padding=True, truncation=True, max_length=most, return_tensors="pt").to(device)
        hidden, mask = network(**tokens).last_hidden_state, tokens["attention_mask"].unsqueeze(2)
        pooled: Tensor = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1)
        return pooled

    return compute


def _transformer(settings: BackboneSettings, folder: Path) -> tuple[Any, bool]:
    """Return a folder's network, and whether the folder has weights for its pooling layer; refuse other gaps."""
    transformers = _imported("transformers", settings)
    # Only safetensors weights and no code from the folder, so nothing in it is executed.
    options = {"local_files_only": True, "trust_remote_code": False, "use_safetensors": True}
    network, found = transformers.AutoModel.from_pretrained(folder, output_loading_info=True, **options)
    # Missing weights would be drawn at random, so every process would have different features.
    gaps = sorted(found["missing_keys"])
    if others := [name for name in gaps if "pooler." not in name]:
        raise DataError(f"Folder '{folder}' lacks weights of its network: {listed(others, 3)}; get the folder again.")
    return network, not gaps


def _imported(library: str, settings: BackboneSettings) -> Any:
    import importlib

    if library == "transformers":
        os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when it is imported
    try:
        module = importlib.import_module(library)
    # With another build of torch, torchvision fails with a RuntimeError.
    except (ImportError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        problem = f"{settings.reference!r} needs the package {library}, which cannot be imported here ({reason})"
        raise DataError(f"{problem}; pip install 'surelabel[{LIBRARIES[library]}]'.") from error
    if library == "transformers":
        module.logging.disable_progress_bar()  # its progress bar would disturb ours
        module.logging.set_verbosity_error()  # our own message names what is missing
    return module
