"""Your own network: any nn.Module with dropout, made by a function of (sample shape, number of classes)."""

import numpy as np
import torch
from sklearn.datasets import load_digits

import surelabel as sl


def network(sample_shape: tuple[int, ...], num_classes: int) -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Conv2d(sample_shape[0], 16, 3),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Dropout(0.3),
        torch.nn.Linear(16 * 6 * 6, num_classes),
    )


def main() -> None:
    digits = load_digits()
    images, y = (digits.images[:, None] / 16).astype(np.float32), digits.target
    train, test = np.arange(len(y)) % 4 != 0, np.arange(len(y)) % 4 == 0
    y_few = np.where(np.arange(len(y)) % 20 == 1, y, -1)

    classifier = sl.UPSClassifier(model=network, max_rounds=2, balance="prior", random_state=0)
    classifier.fit(images[train], y_few[train])
    print(f"test accuracy: {classifier.score(images[test], y[test]):.3f}")


if __name__ == "__main__":
    main()
