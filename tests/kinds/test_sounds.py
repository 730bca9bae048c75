"""A folder of recordings goes through `fit`, `predict`, `label` and `report`."""

import re
from pathlib import Path

import numpy as np
import pytest
import soundfile
from cli_support import Command, rows
from folder_support import QUICK, tone, wav_bytes, write_folder, write_sound

from surelabel.kinds import KINDS
from surelabel.kinds.sounds import Sounds
from surelabel.runs import RunFolder

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Sounds, "defaults", {**Sounds.defaults, "min_steps": 60, "batch_size": 8})
    monkeypatch.setenv("SURELABEL_DATA", str(tmp_path / "cache"))


def test_tones_are_told_apart(tmp_path: Path, command: Command) -> None:
    sounds = write_folder(tmp_path / "sounds", write_sound, ".wav")
    stereo = np.stack([tone(1, 7, 44100, 1.5)] * 2, axis=1)  # another rate, longer, two channels
    soundfile.write(sounds / "unlabeled" / "long.flac", stereo, 44100, subtype="PCM_24")
    test = write_folder(tmp_path / "test", write_sound, ".wav", pool=0, first=50)
    result = command("fit", sounds, "--test", test, "--out", tmp_path / "run", *QUICK)
    assert result.code == 0, result.err
    assert "Found sounds in" in result.out
    run = RunFolder.open(tmp_path / "run")
    assert run.settings.sample_shape == (1, 40, 30)
    assert run.records()[-1].scores["test accuracy"] == 1
    found = {row["id"]: row["prediction"] for row in rows(command("predict", tmp_path / "run", sounds).out)}
    assert found["unlabeled/long.flac"] == "dog"
    one = rows(command("predict", tmp_path / "run", sounds / "cat" / "0.wav").out)
    assert [row["id"] for row in one] == ["0.wav"]
    assert command("label", tmp_path / "run", sounds, "--out", tmp_path / "labels.csv").code == 0
    page = tmp_path / "report.html"
    assert command("report", tmp_path / "run", "--out", page).code == 0
    assert "not pictures" not in page.read_text()


@pytest.mark.filterwarnings("always::UserWarning")
def test_broken_recordings_are_named_and_skipped(tmp_path: Path, command: Command) -> None:
    sounds = write_folder(tmp_path / "sounds", write_sound, ".wav")
    (sounds / "unlabeled" / "cut.wav").write_bytes(wav_bytes(b"\1\0" * 50)[:-7])
    (sounds / "cat" / "empty.wav").touch()
    line = command.fails(1, "fit", sounds, "--out", tmp_path / "run", *QUICK)
    assert re.search(r"Sound '.*(cut|empty).wav' cannot be read", line)
    result = command("fit", sounds, "--on-error", "skip", "--out", tmp_path / "run", *QUICK)
    assert result.code == 0, result.err
    assert "2 of 22 sounds cannot be decoded and are left out: 'cat/empty.wav', 'unlabeled/cut.wav'" in result.err


def test_the_length_is_that_of_nearly_all_recordings(tmp_path: Path) -> None:
    seconds = [0.2] * 90 + [0.4] * 8 + [30.0] * 2
    files = []
    for number, length in enumerate(seconds):
        files.append(tmp_path / f"{number}.wav")
        files[-1].write_bytes(wav_bytes(b"\0\0" * int(length * 1000), rate=1000))
    found = KINDS["sounds"].reading(files)
    assert (found.highest, found.hop, found.frames) == (500, 0.01, 40)
    files[0].write_bytes(b"")  # told when it is decoded
    assert KINDS["sounds"].reading(files) == found


@pytest.mark.parametrize("seconds", [0.001, 1.0, 5.0, 60.0])
def test_windows_overlap_and_spectrograms_stay_small(tmp_path: Path, seconds: float) -> None:
    path = tmp_path / "sound.wav"
    path.write_bytes(wav_bytes(b"\0\0" * int(seconds * 44100), rate=44100))
    found = KINDS["sounds"].reading([path])
    assert found.highest == 8000
    assert found.window >= 2 * found.hop
    assert 8 <= found.frames <= 64
    assert found.frames * found.hop >= min(seconds, 10)
