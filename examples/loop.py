"""Algorithm 1 by hand: drive the loop, look at each round, and check the labels against the truth."""

import numpy as np
from sklearn.datasets import load_digits

import surelabel as sl
from surelabel.data.splits import few_labels


def main() -> None:
    X, y = load_digits(return_X_y=True)
    test = np.arange(len(y)) % 4 == 0
    X_train, y_train = X[~test], y[~test]
    labeled, pool = few_labels(y_train, per_class=5, seed=0)

    learner = sl.TorchLearner(
        training=sl.TrainingSettings(optimizer="adamw", learning_rate=0.003, epochs=10, min_steps=200),
        uncertainty=sl.MCDropout(passes=10),
    )
    config = sl.UPSConfig(tau_p=0.7, kappa_p=0.05, max_rounds=3, seed=0)
    for record in sl.self_train(
        learner,
        (X_train[labeled], y_train[labeled]),
        X_train[pool],
        config,
        test=(X[test], y[test]),
        truth=y_train[pool],
    ):
        correct = "" if record.positive_accuracy is None else f" ({record.positive_accuracy:.1%} correct)"
        print(f"round {record.round}: {record.num_positive} labels{correct}, test accuracy {record.test_score:.3f}")


if __name__ == "__main__":
    main()
