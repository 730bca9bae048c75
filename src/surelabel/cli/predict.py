"""`surelabel predict`: the model that the run keeps on new samples, one deterministic pass."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from surelabel.cli import _options as options
from surelabel.cli._errors import WrongUse
from surelabel.cli._samples import checked_run, read_samples, write

if TYPE_CHECKING:
    from surelabel.settings import RunSettings

EXAMPLES = (
    "surelabel predict runs/iris new.csv --out predictions.csv",
    "surelabel predict runs/iris new.csv --proba | head",
)


def command(
    run: Path = options.RUN,
    file: Path = options.SAMPLES,
    out: Path | None = options.OUT,
    proba: bool = options.option("Add a column with each class's probability.", "--proba", value=False),
    entries: bool = options.ENTRIES,
    id: str | None = options.ID,
    on_error: Literal["stop", "skip"] | None = options.ON_ERROR,
    trust: list[str] | None = options.TRUST,
    trust_code: bool = options.TRUST_CODE,
    force: bool = options.FORCE,
    excel_safe: bool = options.EXCEL_SAFE,
) -> None:
    """Predict the labels of new samples: id, prediction, confidence.

    Several labels per sample have the form of the run's own table: one column with
    a separator between them, or a column of 0 and 1 for each class. With --entries
    there is a row for each sample and class: the prediction is 1 (present) or 0,
    and the confidence is the probability that the class is present.
    """
    folder = checked_run(run, file, out, entries=entries, trust_code=trust_code, force=force, excel_safe=excel_safe)
    if proba and entries:
        raise WrongUse("--proba has no effect: with --entries the confidence is the probability; leave it out.")
    learner = folder.learner(trusted=tuple(trust or ()))
    samples, _ = read_samples(folder.settings, file, id, on_error=on_error or "stop", texts=folder.texts())
    p = learner.predict_proba(samples)
    write(predictions(samples.ids, p, folder.settings, proba, entries), out, force, excel_safe)


def predictions(
    ids: Any, p: Any, settings: "RunSettings", proba: bool = False, entries: bool = False
) -> dict[str, Any]:
    """Return the columns of the table of predictions.

    Args:
        ids: shape (N,).
        p: probabilities, shape (N, C).
        settings: the run's, for its classes.
        proba: whether to add a column for each class.
        entries: with several labels per sample, whether each sample and class has a row.
    """
    import numpy as np

    from surelabel.runs.label_columns import present_columns, together

    classes = np.asarray(settings.classes, dtype=object)
    present = p >= settings.config.gamma
    if entries:
        return {
            "id": np.repeat(ids, len(classes)),
            "class": np.tile(classes, len(ids)),
            "prediction": present.astype(np.int8).ravel(),
            "confidence": p.ravel(),
        }
    probabilities = {f"p({name})": p[:, code] for code, name in enumerate(classes)} if proba else {}
    if settings.config.task == "multi":
        return together({"id": ids}, present_columns("prediction", present, settings), probabilities)
    return {"id": ids, "prediction": classes[p.argmax(axis=1)], "confidence": p.max(axis=1), **probabilities}
