"""Equal models are equal files: what depends on the moment of writing is taken out of a model's bytes.

A safetensors file is its numbers and names. A skops file is a zip archive whose schema calls objects by their addresses
in memory and whose members carry the time; both are replaced here by what they stand for: the order of appearance.
"""

import io
import json
import zipfile
from pathlib import PurePosixPath
from typing import Any

_SCHEMA = "schema.json"


def canonical(name: str, data: bytes) -> bytes:
    """Return the bytes to keep under a model file's name.

    >>> canonical("model.safetensors", b"numbers")
    b'numbers'
    """
    return _canonical_skops(data) if name.endswith(".skops") else data


def _canonical_skops(data: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as target:
        ids: dict[int, int] = {}
        files: dict[str, str] = {}
        schema = _renamed(json.loads(source.read(_SCHEMA)), ids, files)
        for old, new in files.items():
            _add(target, new, source.read(old))
        _add(target, _SCHEMA, json.dumps(schema, indent=1).encode())
    return out.getvalue()


def _renamed(node: Any, ids: dict[int, int], files: dict[str, str]) -> Any:
    """Number the ids and files of a schema as they first appear."""
    if isinstance(node, list):
        return [_renamed(item, ids, files) for item in node]
    if not isinstance(node, dict):
        return node
    renamed: dict[str, Any] = {}
    for key, value in node.items():
        if key == "__id__" and isinstance(value, int):
            renamed[key] = ids.setdefault(value, len(ids) + 1)
        elif key == "file" and isinstance(value, str):
            renamed[key] = files.setdefault(value, f"{len(files)}{PurePosixPath(value).suffix}")
        else:
            renamed[key] = _renamed(value, ids, files)
    return renamed


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    # The earliest time that a zip archive can hold, in place of now.
    member = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    archive.writestr(member, data, compress_type=zipfile.ZIP_DEFLATED)
