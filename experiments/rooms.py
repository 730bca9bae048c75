"""Print the map of the rooms in `src/surelabel`, lowest floor first: files, and lines of code in each.

    python experiments/rooms.py            # the table
    python experiments/rooms.py --write    # put it into CONTRIBUTING.md

Lines of code are those without blank lines, comments and docstrings.
"""

import argparse
import ast
import io
import re
import tokenize
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "surelabel"
ROOMS = {
    "errors": "the exceptions a user can get",
    "base": "the base of all settings, references to code and whether they are trusted, facts about this machine",
    "core": "the equations: labels (1), selection (2, 5), losses (3, 4), calibration (6), thresholds, metrics",
    "data": "sources, readers, splits, the training set; `sets/`: CIFAR, VOC2007, UCF-101",
    "augment": "batched augmentations on the device",
    "models": "networks",
    "uncertainty": "from a network and a batch to p and u, an estimator of each kind",
    "records": "the record of a round, and its scores",
    "engine": "training and prediction; it takes any method",
    "methods": "how one network learns within a round, one file per method",
    "kinds": "kinds of files: how samples are found and read, which network and augmentation suit them",
    "learners": "what the loop drives: networks, scikit-learn classifiers",
    "settings": "the settings of a fit and of a run, with all defaults",
    "loop": "Algorithm 1",
    "runs": "a run's folder; `session` starts and resumes",
    "estimator": "`UPSClassifier`",
    "cluster": "work by several processes: torchrun, Ray, processes of this machine",
    "report": "tables, figures and HTML from run folders; imports nothing that trains",
    "reproduce": "the paper's experiments: recipes, budgets, tables, the record of results",
    "cli": "the command line, one file per command",
}


def code_lines(text: str) -> int:
    r"""Return how many lines of a module are code.

    >>> code_lines('x = 1  # one\n\n# a comment\ndef f():\n    "A docstring."\n    return (1,\n        2)\n')
    4
    """
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skipped:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def files_of(room: str) -> list[Path]:
    """Return the modules of a room, which is a folder or one module."""
    folder = PACKAGE / room
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [PACKAGE / f"{room}.py"]


def table() -> str:
    """Return the map as a Markdown table."""
    lines = ["| room | what lives there | files | lines |", "|---|---|---|---|"]
    for room, what in ROOMS.items():
        files = files_of(room)
        name = f"{room}/" if len(files) > 1 else room
        lines.append(f"| `{name}` | {what} | {len(files)} | {sum(code_lines(file.read_text()) for file in files):,} |")
    everything = sorted(PACKAGE.rglob("*.py"))
    total = sum(code_lines(file.read_text()) for file in everything)
    return "\n".join([*lines, f"| all | with `__init__`, `__main__`, `_version` | {len(everything)} | {total:,} |"])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the table into CONTRIBUTING.md")
    print(table())
    if parser.parse_args(arguments).write:
        document = ROOT / "CONTRIBUTING.md"
        marked = re.compile(r"(<!-- rooms -->\n).*?(<!-- /rooms -->)", re.DOTALL)
        document.write_text(marked.sub(lambda match: f"{match[1]}{table()}\n{match[2]}", document.read_text()))


if __name__ == "__main__":
    main()
