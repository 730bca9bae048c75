"""UPS with a random forest: the uncertainty is the spread of a bootstrap ensemble of forests."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier

import surelabel as sl


def main() -> None:
    X, y = load_digits(return_X_y=True)
    test = np.arange(len(y)) % 4 == 0
    y_few = np.where(np.arange(len(y)) % 20 == 1, y, -1)

    classifier = sl.UPSClassifier(RandomForestClassifier(50), passes=5, max_rounds=2, balance="prior", random_state=0)
    classifier.fit(X[~test], y_few[~test])
    print(f"negative labels are used by {classifier.history_[-1].negatives_use}")
    print(f"test accuracy: {classifier.score(X[test], y[test]):.3f}")


if __name__ == "__main__":
    main()
