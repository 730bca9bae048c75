"""Label image files: one folder per class, and one folder of unlabeled files."""

import tempfile
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

import surelabel as sl
from surelabel.augment.settings import AugmentSettings
from surelabel.data.decoding import decode_files
from surelabel.data.pictures import PictureSettings
from surelabel.data.source import Subset
from surelabel.models.image import small_image_network


def write_files(root: Path) -> None:
    """Write example files: root/7/0012.png, and root/unlabeled/0013.png."""
    digits = load_digits()
    for number, (image, label) in enumerate(zip(digits.images[:900], digits.target, strict=False)):
        folder = root / (str(label) if number % 9 == 0 else "unlabeled")
        folder.mkdir(exist_ok=True)
        Image.fromarray((image * 15).astype(np.uint8)).save(folder / f"{number:04}.png")


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        write_files(root)

        files = {str(path.relative_to(root)): path for path in sorted(root.rglob("*.png"))}
        # Decoded once, then mapped from disk, so the images need not fit into memory.
        pictures, _ = decode_files(files, root / "decoded", PictureSettings(side=16), on_error="skip")

        folder = np.array([Path(name).parent.name for name in pictures.ids.tolist()])
        labeled, pool = np.flatnonzero(folder != "unlabeled"), np.flatnonzero(folder == "unlabeled")
        classes, y = np.unique(folder[labeled], return_inverse=True)

        augment = AugmentSettings(crop=1, mean=(0.3, 0.3, 0.3), std=(0.35, 0.35, 0.35))
        training = sl.TrainingSettings(
            optimizer="adamw", learning_rate=0.003, batch_size=64, steps=200, augment=augment
        )
        learner = sl.TorchLearner(small_image_network, training=training)
        # The folder keeps every finished round for `surelabel report`. With validation=(samples, labels),
        # `surelabel thresholds` works too.
        for record in sl.run(
            root / "run",
            learner,
            (Subset(pictures, labeled), y),
            Subset(pictures, pool),
            sl.UPSConfig(max_rounds=2),
            classes=classes.tolist(),
        ):
            print(f"round {record.round}: {record.num_positive} of {len(pool)} files selected")

        table = sl.RunFolder.open(root / "run").pool_table()
        for row in table.select(["id", "label", "confidence", "uncertainty", "selected"]).slice(0, 5).to_pylist():
            print(row)
        # The learner keeps the last network. It can label new files that are decoded in the same way.
        print(classes[learner.predict_proba(Subset(pictures, pool[:5])).argmax(axis=1)])


if __name__ == "__main__":
    main()
