"""The defaults that `--help` shows are `UPSClassifier`'s own, read from its source: importing it would load torch."""

import ast
import functools
import importlib.util
from pathlib import Path
from typing import Any

import typer


@functools.cache
def estimator_defaults() -> dict[str, Any]:
    """Return the default of each argument of `UPSClassifier` that is given by name; all are plain values.

    >>> estimator_defaults()["negatives"]
    True
    """
    spec = importlib.util.find_spec("surelabel.estimator")
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    owner = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "UPSClassifier")
    init = next(node for node in owner.body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    pairs = zip(init.args.kwonlyargs, init.args.kw_defaults, strict=True)
    return {argument.arg: ast.literal_eval(value) for argument, value in pairs if value is not None}


def setting(flag: str, argument: str, text: str, panel: str, default: str | None = None) -> Any:
    """Return the option for an argument of `UPSClassifier`; left out, it is None: the estimator's default.

    Args:
        flag: the option, e.g. "--tau-n".
        argument: the estimator's name for it.
        text: what it does.
        panel: the heading in `--help` under which it stands.
        default: what `--help` shows as the default where that is not a plain value.
    """
    value = estimator_defaults()[argument]
    shown = default or (",".join(map(str, value)) if isinstance(value, tuple) else value)
    text = f"{text} [dim]\\[default: {shown}][/dim]"
    return typer.Option(flag, help=text, show_default=False, rich_help_panel=panel)
