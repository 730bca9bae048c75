"""The house rules that a reader relies on: rooms do not reach up, imports stay light, every setting is read."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from surelabel.base.settings import Settings

ROOT = Path(__file__).parents[1] / "src" / "surelabel"

FLOORS = {
    "_version": 0,
    "errors": 0,
    "base": 0.5,
    "core": 1,
    "data": 2,
    "augment": 2.5,
    "models": 2.5,
    "uncertainty": 3,
    "records": 3,
    "engine": 4,
    "methods": 5,
    "learners": 6,
    "kinds": 6,
    "settings": 7,
    "loop": 7.5,
    "runs": 8,
    "estimator": 9,
    "cluster": 9,
    "report": 9,
    "reproduce": 10,
    "cli": 11,
    "__main__": 12,
}


def room_of(path: Path) -> str:
    part = path.relative_to(ROOT).parts[0]
    return part.removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "surelabel":
            parts = node.module.split(".")
            rooms |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        if isinstance(node, ast.Import):
            rooms |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("surelabel.")}
    return rooms


SOURCES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_room_uses_only_the_floors_below_it(path: Path) -> None:
    here = room_of(path)
    assert here in FLOORS, f"{here} has no floor yet"
    # `__version__` is the package's own name, not a room.
    above = {room for room in imported_rooms(path) - {here, "__version__"} if FLOORS[room] >= FLOORS[here]}
    assert not above, f"{here} (floor {FLOORS[here]}) reaches up to {sorted(above)}"


def modules_after(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(*sys.modules, sep='\\n')"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_importing_the_package_stays_light() -> None:
    heavy = {"torch", "matplotlib", "pyarrow", "jinja2", "typer", "sklearn", "scipy", "pandas"}
    assert not modules_after("import surelabel") & heavy


def test_what_shows_runs_imports_nothing_that_trains() -> None:
    rooms = sorted(path.stem for path in (ROOT / "report").glob("*.py"))
    loaded = modules_after("\n".join(f"import surelabel.report.{room}" for room in rooms if room != "__init__"))
    training = ("surelabel.engine.train", "surelabel.methods", "surelabel.loop", "surelabel.runs.session", "torch")
    assert not {name for name in loaded if name.startswith(training) or name.startswith("surelabel.reproduce")}


def test_settings_need_no_torch() -> None:
    use = "from surelabel.settings import RunSettings; RunSettings().to_json()"
    assert not modules_after(use) & {"torch", "sklearn", "matplotlib", "pyarrow", "jinja2", "typer"}


def test_the_equations_need_no_torch() -> None:
    use = "import surelabel as sl; sl.select([[0.9, 0.1]], [[0.0, 0.0]]); sl.self_train; sl.losses; sl.risk_coverage"
    assert not modules_after(use) & {"torch", "matplotlib", "pyarrow", "jinja2", "typer"}


def all_settings() -> list[type[Settings]]:

    found, todo = [], [Settings]
    while todo:
        below = todo.pop().__subclasses__()
        found += below
        todo += below
    return [kind for kind in found if kind.__module__.startswith("surelabel.")]


def test_every_setting_is_read_somewhere() -> None:
    read = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                read.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                read.add(node.value)
    settings = all_settings()
    assert settings
    unread = [f"{kind.__name__}.{name}" for kind in settings for name in kind.model_fields if name not in read]
    assert not unread


def test_every_public_name_can_be_loaded() -> None:
    import surelabel

    for name in surelabel.__all__:
        assert getattr(surelabel, name) is not None
    source = ast.parse((ROOT / "__init__.py").read_text())
    imports = [node for node in ast.walk(source) if isinstance(node, ast.ImportFrom) and node.module != "typing"]
    assert sorted(alias.asname for node in imports for alias in node.names) == surelabel.__all__
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = surelabel.nonsense
