"""UPS with any scikit-learn classifier: the uncertainty is the spread of a bootstrap ensemble."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import surelabel as sl


def main() -> None:
    X, y = load_digits(return_X_y=True)
    test = np.arange(len(y)) % 4 == 0
    y_few = np.where(np.arange(len(y)) % 20 == 1, y, -1)
    labeled = y_few >= 0

    own = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    alone = own.fit(X[labeled], y_few[labeled]).score(X[test], y[test])
    classifier = sl.UPSClassifier(own, passes=5, max_rounds=3, random_state=0).fit(X[~test], y_few[~test])
    print(f"negative labels are used by {classifier.history_[-1].negatives_use}")
    # Not every classifier gains from UPS: compare before you choose.
    print(f"test accuracy: {alone:.3f} alone, {classifier.score(X[test], y[test]):.3f} with UPS")


if __name__ == "__main__":
    main()
