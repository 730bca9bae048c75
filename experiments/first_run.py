"""The run that the README begins with: seed 0 of "digits, pictures" in experiments/own_data.py.

    python experiments/first_run.py FOLDER --results results

Writes `photos/` into a new folder, runs the README's commands there, as a user would, and keeps what `fit` prints.
`--chromium PROGRAM` also takes the picture of the report that the README shows.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from own_files import digits

from surelabel.runs.environment import describe_environment

FILE = "first-run.txt"
FIT = "surelabel fit photos/ --out runs/photos"
REST = (
    ("surelabel label runs/photos photos/ --out labels.csv", "label, confidence, uncertainty, selected or not"),
    ("surelabel report runs/photos --out report.html", ""),
)
LEFT_OUT = ("folds: comparing", "steps/s", "By class, ", "Where classes are ruled out, ")
"""Parts of lines that a terminal shows as bars, and of those that are long."""
PICTURE = Path(__file__).resolve().parents[1] / "docs" / "images" / "report.png"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a new folder")
    parser.add_argument("--results", type=Path, default=Path("results"), help=f"the folder of {FILE}")
    parser.add_argument("--chromium", help="the browser that takes the picture")
    options = parser.parse_args()
    options.folder.mkdir(parents=True)
    digits(options.folder, seed=0).data.rename(options.folder / "photos")
    printed = run(options.folder, FIT)
    for command, _ in REST:
        run(options.folder, command)
    commit = (describe_environment()["commit"] or "unknown")[:7]
    (options.results / FILE).write_text(f"commit {commit}\n{shortened(printed)}\n")
    if options.chromium is not None:
        page = (options.folder / "report.html").resolve().as_uri()
        window = ("--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=900,1332")
        subprocess.run([options.chromium, *window, f"--screenshot={PICTURE}", page], check=True)


def run(folder: Path, command: str) -> str:
    """Run a command as the README has it, and return what it prints."""
    words = [sys.executable, "-m", *command.split()]
    return subprocess.run(words, cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout


def shortened(printed: str) -> str:
    r"""Return what `fit` prints up to the place of the run, without the lines of `LEFT_OUT`.

    >>> shortened("Found it.  \n1/5 folds: comparing\n\n \nDone.\nThe run is in runs/photos. Go on with:\n")
    'Found it.\n\nDone.'
    """
    lines = [line.rstrip() for line in printed.partition("The run is in ")[0].splitlines()]
    lines = [line for line in lines if not any(part in line for part in LEFT_OUT)]
    return "\n".join(line for line, before in zip(lines, ["", *lines], strict=False) if line or before).rstrip()


def first_run(results: Path) -> str:
    """Return the run as the README shows it: the commands, with what they print."""
    origin, _, printed = (results / FILE).read_text().rstrip().partition("\n")
    fit = f"$ {FIT:<46} # photos/CLASS/... and photos/unlabeled/..."
    rest = [f"$ {command:<54} # {what}" if what else f"$ {command}" for command, what in REST]
    install = f"$ {'pip install .':<46} # in a copy of this repository"
    lines = ["```", install, fit, printed, *rest, "```"]
    return "\n".join([*lines, "", f"`results/{FILE}`, {origin}, two CPU cores."])


if __name__ == "__main__":
    main()
