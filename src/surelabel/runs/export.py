"""A run's model as a file for other programs: ONNX, or torch.export's .pt2.

The file's content is run on samples and compared with `predict_proba`. This happens in memory, so that a file that
differs is never on the disk.
"""

import contextlib
import hashlib
import importlib.util
import io
import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from surelabel._version import __version__
from surelabel.data.run_data import TableData
from surelabel.data.source import ArraySource, Source, as_source
from surelabel.engine.feed import as_tensor
from surelabel.errors import InvalidInputError, RunError, SurelabelError
from surelabel.learners.exported import exported
from surelabel.learners.network import TorchLearner, is_for_tables
from surelabel.runs.reading import RunFolder

TOLERANCE = 1e-4
"""How far a probability from the file may be from that of `predict_proba`."""
SAMPLES = "samples"
PROBABILITIES = "probabilities"
_COMPARED = 256
"""The most samples that the file is tested on."""
_ONNX = ("onnx", "onnxscript", "onnxruntime")

Run = Callable[[Tensor], Any]
"""Computes p (N, C) from samples (N, ...) with the file."""


@dataclass(frozen=True)
class Export:
    """A model in a file's bytes.

    Attributes:
        content: the file.
        description: inputs, outputs, classes, and how the file was checked; ready for JSON.
        difference: the largest difference from `predict_proba`.
        number: how many samples it was compared on.
        of: what these samples are.
        missing: why they are not the run's samples; None: they are.
    """

    content: bytes
    description: dict[str, Any]
    difference: float
    number: int
    of: str
    missing: str | None


def check_extra(ending: str) -> None:
    """Before a model is loaded, refuse an ONNX file if its packages are missing."""
    missing = [name for name in _ONNX if importlib.util.find_spec(name) is None]
    if ending == ".onnx" and missing:
        install = 'pip install "surelabel[onnx]"'
        raise InvalidInputError(f"ONNX needs the package {missing[0]!r}; install it with: {install}, or write a .pt2.")


def export(run: RunFolder, ending: str, trusted: tuple[str, ...] = ()) -> Export:
    """Return the kept model of a run as the bytes of a file, tested on samples.

    Args:
        run: with a learner by reference.
        ending: ".onnx" or ".pt2".
        trusted: types in a skops file that you know to be safe.

    Raises:
        RunError: if the file's probabilities differ from those of `predict_proba`.
    """
    check_extra(ending)
    learner = run.learner(trusted=trusted)
    if isinstance(learner, TorchLearner):
        learner.device = torch.device("cpu")
        # The file computes in float32, whatever the precision of the training.
        learner.training = learner.training.replace(precision="float32")
    module = exported(learner)
    x, missing = _samples(run, learner, module)
    about = describe(run, x)
    with _quiet():
        content, again = _WRITERS[ending](module, x, about)
    expected = learner.predict_proba(ArraySource(x.numpy()))
    difference = max(_difference(again(x), expected), _difference(again(x[:1]), expected[:1]))
    if not difference <= TOLERANCE:
        problem = f"would differ by {difference:.2g} from predict_proba, and {TOLERANCE:g} is allowed"
        remedy = "Nothing is written; try the other form, or a network that computes the same when it is exported"
        raise RunError(f"The {ending} file of the run in '{run.path}' {problem}. {remedy}.")
    of = "the run's data" if missing is None else "random numbers"
    check = {"samples": len(x), "of": of, "largest_difference": difference, "tolerance": TOLERANCE}
    digest = hashlib.sha256(content).hexdigest()
    return Export(content, {**about, "sha256": digest, "check": check}, difference, len(x), of, missing)


def describe(run: RunFolder, x: Tensor) -> dict[str, Any]:
    """Return what a program needs to know to run the file, ready for JSON."""
    settings, multi = run.settings, run.settings.config.task == "multi"
    reading = getattr(settings.data, "reading", None)
    about: dict[str, Any] = {
        "task": settings.config.task,
        "classes": list(settings.classes),
        "input": {"name": SAMPLES, "type": str(x.dtype).removeprefix("torch."), "shape": ["batch", *x.shape[1:]]},
        "output": {
            "name": PROBABILITIES,
            "type": "float32",
            "shape": ["batch", len(settings.classes)],
            "meaning": "a probability for each class" if multi else "probabilities of the classes, which sum to 1",
        },
        "round": {"linear": None, "first": 0, "last": run.num_rounds - 1}[run.kept],
        "model_sha256": run.model_hash,
        "surelabel": __version__,
        "torch": str(torch.__version__),
    }
    if multi:
        about["present_from"] = settings.config.gamma
    if settings.feature_names is not None:
        about["input"]["features"] = list(settings.feature_names)
    if isinstance(settings.data, TableData) and settings.data.columns is not None:
        about["input"]["columns"] = [column.model_dump(mode="json") for column in settings.data.columns]
    if backbones := getattr(settings.data, "backbones", ()):
        about["input"]["features_are_computed_by"] = [one.model_dump(mode="json") for one in backbones]
    if reading is not None:
        about["input"]["files_are_read_by"] = reading.model_dump(mode="json")
    return about


def _samples(run: RunFolder, learner: Any, module: nn.Module) -> tuple[Tensor, str | None]:
    """Return samples to test the file on, (N, ...): the run's own, or random ones and why."""
    exact = not isinstance(learner, TorchLearner) or is_for_tables(module)
    try:
        data = run.data()
    except SurelabelError as error:
        return _made(run, learner, exact), str(error)
    source: Source = as_source("samples", data.labeled[0] if data.unlabeled is None else data.unlabeled)
    rows = np.unique(np.linspace(0, len(source) - 1, _COMPARED).astype(np.int64))
    return as_tensor(source[rows], exact).contiguous(), None


def _made(run: RunFolder, learner: Any, exact: bool) -> Tensor:
    generator, shape = torch.Generator().manual_seed(0), (_COMPARED, *run.settings.sample_shape)
    if isinstance(learner, TorchLearner) and learner.training.augment is not None:
        return torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
    return torch.randn(shape, generator=generator, dtype=torch.float64 if exact else torch.float32)


def _program(module: nn.Module, x: Tensor) -> torch.export.ExportedProgram:
    batch = torch.export.Dim("batch")
    # Two rows, because a batch size of one could become a constant.
    some = x[:2] if len(x) > 1 else torch.cat([x, x])
    try:
        return torch.export.export(module, (some,), dynamic_shapes=({0: batch},))
    except (RuntimeError, ValueError, TypeError, AssertionError) as error:
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        remedy = "a forward() without branches on values, and for any number of rows, can"
        raise InvalidInputError(f"The network cannot be exported ({reason[:200]}); {remedy}.") from error


def _write_program(module: nn.Module, x: Tensor, about: dict[str, Any]) -> tuple[bytes, Run]:
    stream = io.BytesIO()
    torch.export.save(_program(module, x), stream, extra_files={"surelabel.json": json.dumps(about)})
    stream.seek(0)
    loaded = torch.export.load(stream).module()

    def run(samples: Tensor) -> Any:
        with torch.no_grad():
            return loaded(samples).numpy()

    return stream.getvalue(), run


def _write_onnx(module: nn.Module, x: Tensor, about: dict[str, Any]) -> tuple[bytes, Run]:
    import onnx

    onnxruntime = import_onnxruntime()
    program = torch.onnx.export(
        _program(module, x), dynamo=True, input_names=[SAMPLES], output_names=[PROBABILITIES], verbose=False
    )
    assert program is not None
    model = program.model_proto
    _name_batch(model.graph)
    onnx.helper.set_model_props(model, {name: _text(value) for name, value in about.items()})
    model.producer_name, model.producer_version = "surelabel", __version__
    onnx.checker.check_model(model, full_check=True)
    content = model.SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return content, lambda samples: session.run([PROBABILITIES], {SAMPLES: samples.numpy()})[0]


def import_onnxruntime() -> Any:
    """Return onnxruntime without its telemetry, which would store a machine id in the user's cache and send data."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    return onnxruntime


_WRITERS = {".onnx": _write_onnx, ".pt2": _write_program}


def _name_batch(graph: Any) -> None:
    """Rename the variable size to "batch"; torch calls it s98 or similar."""
    free = graph.input[0].type.tensor_type.shape.dim[0].dim_param
    for value in (*graph.input, *graph.output, *graph.value_info):
        for size in value.type.tensor_type.shape.dim:
            if size.dim_param == free:
                size.dim_param = "batch"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _difference(found: Any, expected: Any) -> float:
    found = np.asarray(found)
    if found.shape != expected.shape or not np.isfinite(found).all():
        return float("inf")
    return float(np.abs(found - expected).max())


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide torch's messages to its own developers during the export."""
    before = logging.root.manager.disable
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.filterwarnings("ignore", category=FutureWarning)
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(before)
