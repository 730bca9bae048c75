"""What `fit` refuses before it trains: labels, classes and pools that nothing can be learned from."""

from pathlib import Path
from typing import TYPE_CHECKING

from surelabel.errors import DataError, RunExistsError

if TYPE_CHECKING:
    from surelabel.data.reference import RunData


def check_new_folder(folder: Path) -> None:
    """Refuse a folder with something in it: nothing is overwritten."""
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if folder.exists():
        raise RunExistsError(
            f"'{folder}' exists and is kept; choose another --out, or go on with it by 'surelabel resume'."
        )


def check_data(data: "RunData", path: Path) -> None:
    """Refuse labels of one class, a class without label and an empty pool, by the file's own names."""
    codes = data.labeled[1]
    if data.task == "single" and len(data.classes) < 2:
        raise DataError(
            f"File '{path}' has labels of one class only ({data.classes[0]!r}); label some rows of another class."
        )
    labeled = [
        (codes == code if data.task == "single" else codes[:, code] >= 0).any() for code in range(len(data.classes))
    ]
    missing = [name for name, has_label in zip(data.classes, labeled, strict=True) if not has_label]
    if missing:
        raise DataError(
            f"File '{path}' has no labeled row left for class {missing[0]!r}; label some, or leave the class out."
        )
    if data.unlabeled is None and (codes >= 0).all():
        raise DataError(
            f"File '{path}' has no unlabeled row, so there is nothing to self-train on; add rows with an empty label "
            "cell, or say with --unlabeled which label means unlabeled."
        )
