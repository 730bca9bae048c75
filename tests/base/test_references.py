"""Code by reference: "module:name" and "file.py:name", hashed, with errors that name what to correct."""

import hashlib
import importlib.util
import inspect
import math
import os
import py_compile
import sys
from pathlib import Path

import pytest

from surelabel.base.references import (
    file_hash,
    pin,
    resolve,
)
from surelabel.errors import InvalidInputError, RunError


def test_a_module_and_a_nested_name_are_found() -> None:
    assert resolve("math:sqrt") is math.sqrt
    assert resolve("pathlib:Path.cwd")() == Path.cwd()


@pytest.mark.parametrize(
    ("reference", "kind"),
    [
        ("surelabel.base.references:os.system", "module"),
        ("pathlib:Path.cwd.__func__", "method"),
        ("math:pi.real", "float"),
    ],
)
def test_dots_lead_into_classes_only(reference: str, kind: str) -> None:
    with pytest.raises(InvalidInputError, match=rf"{reference}' has a dot after a {kind}; .* into classes only"):
        resolve(reference)


def test_a_file_is_loaded_once_for_all_its_names_and_again_when_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("class A: pass\nclass B(A): pass\n")
    first = resolve(f"{file}:A")
    assert issubclass(resolve(f"{file}:B"), first)
    assert resolve(f"{file}:A") is first
    file.write_text("class A: changed = True\n")
    assert resolve(f"{file}:A").changed


def test_a_file_may_import_the_files_beside_it(tmp_path: Path) -> None:
    (tmp_path / "beside_this_test.py").write_text("VALUE = 3\n")
    (tmp_path / "mine.py").write_text("from beside_this_test import VALUE\n")
    path = list(sys.path)
    assert resolve(f"{tmp_path / 'mine.py'}:VALUE") == 3
    assert sys.path == path


def test_paths_are_made_absolute_and_modules_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert pin("nets/a.py:f", "ab12") == (f"{tmp_path}/nets/a.py:f", "ab12")
    assert pin("package.module:f") == ("package.module:f", None)


def test_the_hash_is_the_files_sha256(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_bytes(b"x = 1\n")
    expected = hashlib.sha256(b"x = 1\n").hexdigest()
    assert file_hash(file) == pin(f"{file}:x")[1] == expected
    assert resolve(f"{file}:x", expected) == resolve(f"{file}:x") == 1
    file.write_bytes(b"x = 2\n")
    found = hashlib.sha256(b"x = 2\n").hexdigest()
    with pytest.raises(RunError, match=rf"File '{file}' has changed.*SHA-256 was {expected} and is {found}. Put"):
        resolve(f"{file}:x", expected)
    with pytest.raises(InvalidInputError, match="'math:sqrt' is a module. Remove the hash"):
        resolve("math:sqrt", expected)


def test_what_is_run_is_what_was_hashed_and_no_compiled_file_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("x = 1\n")
    other = tmp_path / "other.py"
    other.write_text("x = 2\n")
    for path in (file, other):  # of one time and size, by which a compiled file is known to be of its source
        os.utime(path, (1, 1))
    py_compile.compile(str(other), importlib.util.cache_from_source(str(file)))
    assert resolve(f"{file}:x", file_hash(file)) == 1


def test_a_traceback_shows_the_lines_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def fails():\n    return 1 / 0  # here\n")
    fails = resolve(f"{file}:fails")
    assert inspect.getsource(fails) == file.read_text()
    with pytest.raises(ZeroDivisionError) as raised:
        fails()
    assert raised.tb.tb_next.tb_frame.f_code.co_filename == str(file)


@pytest.mark.parametrize("reference", ["sqrt", "math:", ":sqrt", "math:not a name", "file.py", "math:sqrt()"])
def test_a_reference_of_another_form_is_refused(reference: str) -> None:
    with pytest.raises(InvalidInputError, match=r"must be 'module:name' or 'path/file.py:name'. Got "):
        resolve(reference)


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"'no_such_module:f' cannot be used.*\(ModuleNotFoundError"):
        resolve("no_such_module:f")
    with pytest.raises(InvalidInputError, match=r"'math' has no 'squirt'; it has .*sqrt"):
        resolve("math:squirt")
    with pytest.raises(InvalidInputError, match=r"names the file '.*/no.py', which does not exist"):
        resolve(f"{tmp_path}/no.py:f")
    with pytest.raises(InvalidInputError, match="does not exist"):
        pin(f"{tmp_path}/no.py:f")


def test_a_file_that_fails_is_named_with_its_error(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("1 / 0\n")
    for _ in range(2):  # a failed load leaves nothing behind
        with pytest.raises(
            InvalidInputError, match=r"importing '.*mine.py' fails \(ZeroDivisionError: division by zero\)"
        ):
            resolve(f"{file}:x")
