"""`surelabel export`: the model that a run keeps, as a file for other programs, tested before it is written."""

import json
from pathlib import Path
from typing import Any

from surelabel.cli import _options as options
from surelabel.cli._console import say, warn
from surelabel.cli._rounds import shown_decoding
from surelabel.errors import RunError

EXAMPLES = (
    "surelabel export runs/iris --out model.onnx",
    "surelabel export runs/iris --out model.pt2",
)


def command(
    run: Path = options.RUN,
    out: Path = options.option("An .onnx file, or a .pt2 file of torch.export.", value=...),
    trust: list[str] | None = options.TRUST,
    trust_code: bool = options.TRUST_CODE,
    force: bool = options.option("Replace the output files if they are there.", "--force", value=False),
) -> None:
    """Write the model that the run keeps to a file for other programs, with its preprocessing inside.

    The model takes samples as the run stores them, in batches of any size, and
    returns the probability of each class. Normalization is inside; how files are read, the
    names of the columns and of the classes are in the file's metadata and beside
    it: model.onnx.json. A model card is in model.onnx.md; what was learned from
    texts is in model.onnx.texts.safetensors.

    The file is run on samples of the run's data and compared with what 'predict'
    gives. One that differs by more than 0.0001 is not written.
    """
    options.check_output(out, force, endings=(".onnx", ".pt2"))
    folder = options.open_run(run, trust_code)
    texts = folder.texts()
    beside = {ending: out.with_name(out.name + ending) for ending in (".json", ".md", ".texts.safetensors")}
    for path in beside.values():
        options.check_output(path, force, endings=(path.suffix,))
    if not folder.num_rounds:
        raise RunError(f"The run in '{run}' has no finished round; go on with it: surelabel resume {run}.")
    from surelabel.report.card import model_card
    from surelabel.runs.export import TOLERANCE, export
    from surelabel.runs.files import write_files

    with shown_decoding():
        made = export(folder, out.suffix.lower(), trusted=tuple(trust or ()))
    about = {"file": out.name, **made.description}
    contents = {
        beside[".json"]: json.dumps(about, indent=2, ensure_ascii=False).encode() + b"\n",
        beside[".md"]: model_card(folder, out.name, made.description).encode(),
        out: made.content,
    }
    if texts is not None:
        contents[beside[".texts.safetensors"]] = texts
    write_files(contents)
    if texts is None:
        beside[".texts.safetensors"].unlink(missing_ok=True)  # those of another model
    if made.missing is not None:
        warn(f"the run's data could not be read, so random numbers were tried instead: {made.missing}")
    of = f"{made.number} samples of {made.of}"
    say(f"Compared with predict on {of}: the largest difference is {made.difference:.1g} ({TOLERANCE:g} is allowed).")
    say(f"The model is in {out}, what it takes and gives in {beside['.json']}, its card in {beside['.md']}.")
    encoded = [f"{one['name']} ({one['use']})" for one in made.description["input"].get("columns", ()) if _needs(one)]
    if encoded:
        code = f"surelabel.RunFolder.open({str(run)!r}).samples('new.csv')"
        say(f"It takes numbers alone; {code} makes them of {', '.join(encoded)}.")


def _needs(column: dict[str, Any]) -> bool:
    """Whether a column's cells are not the model's input as they are."""
    return bool(column["gaps"] or column["use"] != "number")
