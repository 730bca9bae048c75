"""The frame of the command line: help, versions, exit codes, and every failure on one line."""

import dataclasses
import errno
import json
import os
import subprocess
import sys
import tempfile
import warnings

import pytest

import surelabel
from surelabel.base.defaults import FitDefaults
from surelabel.base.references import resolve
from surelabel.cli import main
from surelabel.cli._app import app
from surelabel.cli._console import complain, say
from surelabel.cli._errors import describe, report_error

COMMANDS = ("demo", "fit", "predict", "label", "export", "resume", "report", "thresholds", "reproduce", "env")


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch):
    """Make `surelabel env` fail with a given exception."""

    def install(error: BaseException) -> None:
        def fail() -> None:
            raise error

        monkeypatch.setattr("surelabel.cli.env.environment", fail)

    return install


def test_version_is_the_package_version(command):
    assert command("--version") == (0, f"surelabel {surelabel.__version__}\n", "")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_each_command_shows_an_example_that_fits_on_a_line(command, name):
    result = command(name, "--help")
    assert result.code == 0
    examples = result.out.partition("Example")[2]
    assert f" surelabel {name}" in examples
    lines = [line.strip() for line in examples.splitlines()[1:] if line.strip()]
    assert all(line.startswith(f"surelabel {name}") for line in lines), "an example is broken over two lines"


def test_help_lists_every_command(command):
    result = command("--help")
    assert result.code == 0
    assert all(f" {name} " in result.out for name in COMMANDS)
    assert sorted(COMMANDS) == sorted(info.name for info in app.registered_commands)


def test_without_a_command_help_is_shown_as_wrong_use(command):
    result = command()
    assert result.code == 2
    assert "Commands" in result.out


def test_help_loads_nothing_heavy_and_a_pipe_gets_no_color():
    code = (
        "import sys; from surelabel.cli import main; code = main(['fit', '--help']);"
        "heavy = {'torch', 'pyarrow', 'matplotlib', 'sklearn', 'numpy'} & set(sys.modules);"
        "sys.exit(f'loaded {heavy}' if heavy else code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--tau-p" in done.stdout
    assert "\x1b" not in done.stdout


def test_help_shows_the_defaults_of_the_estimator(command):
    parameters = surelabel.UPSClassifier().get_params(deep=False)
    defaults = dataclasses.asdict(FitDefaults())
    assert defaults == {name: parameters[name] for name in defaults}
    shown = " ".join(command("fit", "--help").out.replace("│", " ").split())
    assert f"Largest confidence of a negative label. [default: {parameters['tau_n']}]" in shown


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("fti",), "No such command 'fti'. Did you mean 'fit'? see 'surelabel --help'."),
        (("fit",), "Missing argument 'DATA'; see 'surelabel fit --help'."),
        (("fit", "data.csv"), "Missing option '--out'; see 'surelabel fit --help'."),
        (("env", "more"), "Got unexpected extra argument"),
        (("demo", "--seeds", "0"), "Invalid value for '--seeds': "),
        (("fit", "a.csv", "--out", "b", "--rounds", "many"), "Invalid value for '--rounds': "),
        (("fit", "a.csv", "--out", "b", "--tau", "1"), "No such option: --tau"),
        (("fit", "caf\udce9.csv", "--out", "b"), r"'caf\udce9.csv' is not UTF-8 text; rename the file"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(command, words, problem):
    assert command.fails(2, *words).startswith(problem)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (MemoryError(), "the memory is full; use a smaller file, network or batch"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), "the memory is full;"),
        (
            OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "runs/a"),
            "No space left on device: 'runs/a'; free some space",
        ),
        (PermissionError(errno.EACCES, "Permission denied", "/root/x"), "Permission denied: '/root/x'; use another"),
        (surelabel.errors.RunError("The run is\nnot there."), "The run is not there."),
        (
            ZeroDivisionError("division by zero"),
            "unexpected ZeroDivisionError: division by zero; set SURELABEL_DEBUG=1",
        ),
    ],
)
def test_a_failure_is_one_line_and_exit_code_1(command, failing, error, line):
    failing(error)
    assert command.fails(1, "env").startswith(line)


def test_ctrl_c_while_a_library_is_loaded_is_no_failure_of_the_library(command, failing):
    error = ImportError("initialization failed")
    error.__cause__ = KeyboardInterrupt()
    failing(error)
    assert command.fails(130, "env") == "interrupted."
    failing(ImportError("initialization failed"))
    assert command.fails(1, "env").startswith("unexpected ImportError: initialization failed")


def test_debug_shows_the_traceback(failing, monkeypatch):
    failing(ZeroDivisionError("division by zero"))
    monkeypatch.setenv("SURELABEL_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        main(["env"])


def test_each_invalid_setting_is_a_line_of_its_own(capsys):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - pydantic's error; its lines are what is tested
        surelabel.UPSConfig(tau_p=2, kappa_p=-1)
    assert report_error(caught.value) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "error: Invalid value for 'tau_p': Input should be less than or equal to 1. Got 2.",
        "error: Invalid value for 'kappa_p': Input should be greater than or equal to 0. Got -1.",
    ]


def test_a_note_follows_its_error(capsys):
    error = OSError(errno.ENOSPC, "No space left on device")
    error.add_note("round 0 is done and kept; go on with: surelabel resume runs/a")
    report_error(error)
    assert capsys.readouterr().err.splitlines() == [
        "error: No space left on device; free some space, or write to another disk; temporary files are in "
        f"'{tempfile.gettempdir()}', and TMPDIR names another folder.",
        "note: round 0 is done and kept; go on with: surelabel resume runs/a",
    ]


def test_an_error_in_a_file_of_the_users_names_the_place(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("def data():\n    return call(0)\n\n\ndef call(what):\n    return 1 / int(what)\n")
    for name, arguments, line in (("data", (), 6), ("call", ("x",), 6)):  # the innermost of its lines
        with pytest.raises((ZeroDivisionError, ValueError)) as caught:
            resolve(f"{file}:{name}")(*arguments)
        reason = f"{type(caught.value).__name__}: {caught.value}"
        (told,) = describe(caught.value)
        assert (
            told == f"'{file}', line {line}, fails ({reason}); correct the file, or set SURELABEL_DEBUG=1 to see more."
        )


def test_an_unexpected_error_without_message_is_named():
    assert describe(AssertionError())[0].startswith("unexpected AssertionError: no message; set SURELABEL_DEBUG=1")


def test_a_warning_is_one_line_on_standard_error_and_told_once(command, monkeypatch):
    def warn() -> dict[str, str]:
        for _ in range(3):
            warnings.warn("the labeled classes\nare far from even", UserWarning, stacklevel=1)
        return {}

    monkeypatch.setattr("surelabel.cli.env.environment", warn)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        result = command("env")
    assert result == (0, "", "warning: the labeled classes are far from even\n")


def test_env_names_versions_cores_threads_and_device(command):
    result = command("env")
    assert result.code == 0
    lines = dict(line.split(maxsplit=1) for line in result.out.replace("torch threads", "threads").splitlines())
    assert lines["surelabel"] == surelabel.__version__
    assert lines["python"] == sys.version.split()[0]
    assert json.loads(lines["cores"]) >= 1
    assert {"torch", "numpy", "scikit-learn", "threads", "device", "platform", "processor"} <= set(lines)


def test_a_reader_that_leaves_early_causes_no_complaint():
    command = f"{sys.executable} -m surelabel fit --help | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.returncode in (0, 1)  # 0 when all fitted into the pipe before the reader left


def test_a_name_cannot_command_the_terminal(capsys):
    say("class \x1b[2J\x1b]0;owned\x07 and \u202egnp.exe, 猫 é")
    complain("warning", "\x1b[31mred", style="bold")
    written = capsys.readouterr()
    assert "\x1b" not in written.out + written.err
    assert "\\x1b[2J" in written.out
    assert "\\u202e" in written.out
    assert "猫 é" in written.out
