"""Packed pictures for tests: red and blue ones in Parquet, in a folder as `datasets` saves it, and in tar shards."""

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

CLASSES = ["blue", "red"]


def pictures(number: int = 28, seed: int = 0) -> list[bytes]:
    """Return PNG files, of red and blue pictures by turns."""
    generator, files = np.random.default_rng(seed), []
    for place in range(number):
        pixels = generator.integers(0, 60, (10, 12, 3), dtype=np.uint8)
        pixels[..., 2 * (place % 2)] += 180
        stream = io.BytesIO()
        Image.fromarray(pixels).save(stream, "PNG")
        files.append(stream.getvalue())
    return files


def classes(number: int = 28, labeled: int = 8) -> list[str | None]:
    """Return the classes of the first pictures, and None for the others."""
    return [("red", "blue")[place % 2] if place < labeled else None for place in range(number)]


def write_parquet(path: Path, files: list[bytes], labels: list[Any] | None, **more: list[Any]) -> Path:
    """Write pictures as {bytes, path}, a few rows in each row group."""
    columns: dict[str, Any] = {"image": [{"bytes": file, "path": "/etc/passwd"} for file in files], **more}
    columns |= {} if labels is None else {"y": labels}
    pq.write_table(pa.table(columns), path, row_group_size=5)
    return path


def write_saved(folder: Path, files: list[bytes], labels: list[str | None]) -> Path:
    """Write a folder as `Dataset.save_to_disk` does: two Arrow streams, labels as numbers, their names beside them."""
    folder.mkdir(parents=True)
    codes = [-1 if label is None else CLASSES.index(label) for label in labels]
    half = len(files) // 2
    names = ["data-00000-of-00002.arrow", "data-00001-of-00002.arrow"]
    for name, rows in zip(names, (slice(half), slice(half, None)), strict=True):
        table = pa.table({"image": [{"bytes": file, "path": None} for file in files[rows]], "label": codes[rows]})
        with pa.OSFile(str(folder / name), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=4)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))
    features = {"image": {"_type": "Image"}, "label": {"names": CLASSES, "_type": "ClassLabel"}}
    (folder / "dataset_info.json").write_text(json.dumps({"features": features}))
    return folder


def write_shards(folder: Path, files: list[bytes], labels: list[str | None], number: int = 2) -> Path:
    """Write tar shards: key.png, and key.cls where there is a label."""
    folder.mkdir(parents=True)
    for shard in range(number):
        with tarfile.open(folder / f"{shard:03}.tar", "w") as archive:
            for place in range(shard, len(files), number):
                label = labels[place]
                parts = {"png": files[place]} | ({} if label is None else {"cls": label.encode()})
                for ending, data in parts.items():
                    add(archive, f"{place:03}.{ending}", data)
    return folder


def add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    """Add a plain file to a tar file."""
    member = tarfile.TarInfo(name)
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))
