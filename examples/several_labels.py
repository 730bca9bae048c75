"""Multi-label data with many unknown entries (-1): every entry is pseudo-labeled and selected on its own."""

import numpy as np
from sklearn.datasets import make_multilabel_classification

import surelabel as sl


def main() -> None:
    X, Y = make_multilabel_classification(600, 20, n_classes=4, random_state=0)
    known = np.random.default_rng(0).random(Y.shape) < 0.2
    Y_partly = np.where(known, Y, -1)

    classifier = sl.UPSClassifier(max_rounds=3, random_state=0).fit(X[:450], Y_partly[:450])
    print(f"entries known: {known[:450].mean():.0%}, learned from: {(classifier.transduction_ >= 0).mean():.0%}")
    print(f"correct entries on new samples: {(classifier.predict(X[450:]) == Y[450:]).mean():.3f}")


if __name__ == "__main__":
    main()
