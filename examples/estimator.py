"""UPS as a scikit-learn estimator: five labels per class, everything else unlabeled."""

import numpy as np
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split

import surelabel as sl
from surelabel.data.splits import few_labels


def main() -> None:
    X, y = load_wine(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.25, stratify=y, random_state=0)
    labeled, _ = few_labels(y, per_class=5, seed=0)
    y_few = np.full_like(y, -1)
    y_few[labeled] = y[labeled]

    classifier = sl.UPSClassifier(random_state=0).fit(X, y_few)

    for record in classifier.history_:
        print(f"round {record.round}: {record.num_positive} positive and {record.num_negative} negative labels")
    print(f"ended: {classifier.termination_condition_}")
    print(f"test accuracy: {classifier.score(X_test, y_test):.3f}")


if __name__ == "__main__":
    main()
