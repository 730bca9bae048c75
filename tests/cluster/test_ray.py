"""`surelabel label --engine ray`: workers and drivers that are killed, an object store, and what is told of faults."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_support import QUICK, Command, blobs, write_blobs

from surelabel.cli import main
from surelabel.cluster.ray_engine import RayError, _call

pytest.importorskip("ray", reason="make test-cluster installs Ray")
pytestmark = pytest.mark.ray

NETWORK = """
import os, signal, time
from pathlib import Path
from torch import nn

HERE = Path({folder!r})

class Network(nn.Sequential):
    '''Kills its process for each file "kill-N" that it finds as it labels, and takes its time while there is "slow".'''

    def forward(self, x):
        for file in () if self.training else HERE.glob("kill-*"):
            file.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        if (HERE / "slow").exists():
            time.sleep(0.3)
        return super().forward(x)

def make(shape, classes):
    return Network(nn.Linear(*shape, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, classes))
"""
SHARDS = 6


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run, a pool of six shards, and the labels that one process gives them; the current folder."""
    folder = tmp_path_factory.mktemp("ray")
    before = Path.cwd()
    os.chdir(folder)
    Path("net.py").write_text(NETWORK.format(folder=str(folder)))
    write_blobs(Path("pets.csv"), **blobs())
    words = (
        "--label",
        "pet",
        "--id",
        "id",
        "--model",
        "net.py:make",
        *QUICK[:2],
        *QUICK[4:],
        "--quiet",
        "--out",
        "run",
    )
    assert main(["fit", "pets.csv", *words]) == 0
    Path("pool").mkdir()
    for number in range(SHARDS):
        columns = {**blobs(num_rows=40, num_labeled=0, seed=number), "id": [f"{number}-{row}" for row in range(40)]}
        del columns["pet"]
        pq.write_table(pa.table(columns), f"pool/{number}.parquet", row_group_size=15)
    assert main(["label", "run", "pool/", "--out", "alone/"]) == 0
    yield folder
    os.chdir(before)


def content(folder: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(Path(folder).glob("*.parquet"))}


def started(*words: str, **variables: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "surelabel", "label", "run", *words, "--engine", "ray"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, **pipes, text=True, env={**os.environ, **variables}, start_new_session=True)


def ended(*words: str, **variables: str) -> tuple[int, str]:
    process = started(*words, **variables)
    _, said = process.communicate(timeout=120)
    return process.returncode, said


def descendants(mark: str) -> list[str]:
    """Return the processes that were started with this mark among their variables, or by such a process.

    Not Ray's agents, which do no work: they notice within a minute that nobody is left.
    """
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"MARK={mark}".encode() in (entry / "environ").read_bytes():
                words = (entry / "cmdline").read_text()
                found += [words[:60]] if "Agent" not in words else []
        except OSError:
            continue  # it has ended, or is someone else's
    return found


def wait_for_parts(folder: str, number: int) -> list[Path]:
    for _ in range(600):
        parts = [path for path in Path(folder).glob("*.parquet") if not path.name.startswith(".")]
        if len(parts) >= number:
            return parts
        time.sleep(0.1)
    raise AssertionError(f"{folder} has no {number} parts")


def test_workers_that_are_killed_change_nothing(home: Path) -> None:
    for number in range(2):
        Path(f"kill-{number}").touch()
    code, said = ended("pool/", "--out", "killed/", "--workers", "2")
    assert (code, list(home.glob("kill-*"))) == (0, []), said
    assert f"{SHARDS} shards with 240 samples are labeled and " in said
    assert content("killed") == content("alone")


def test_a_killed_driver_leaves_no_workers_behind_and_its_command_goes_on(home: Path) -> None:
    Path("slow").touch()
    driver = started("pool/", "--out", "driver/", "--workers", "2", MARK=str(home))
    parts = wait_for_parts("driver", 2)
    assert len(descendants(str(home))) > 3
    driver.kill()
    driver.communicate()
    Path("slow").unlink()
    for _ in range(300):
        if not descendants(str(home)):
            break
        time.sleep(0.1)
    assert descendants(str(home)) == []
    assert len(wait_for_parts("driver", 2)) < SHARDS
    kept = {path: path.stat().st_mtime_ns for path in parts}
    code, said = ended("pool/", "--out", "driver/", "--workers", "2")
    assert code == 0, said
    assert " of them before, and " in said
    assert {path: path.stat().st_mtime_ns for path in parts} == kept
    assert content("driver") == content("alone")


def test_ctrl_c_ends_at_once_and_says_how_to_go_on(home: Path) -> None:
    Path("slow").touch()
    driver = started("pool/", "--out", "stopped/", "--workers", "2")
    wait_for_parts("stopped", 1)
    driver.send_signal(signal.SIGINT)
    _, said = driver.communicate(timeout=60)
    Path("slow").unlink()
    lines = said.splitlines()
    assert (driver.returncode, lines[0]) == (130, "error: interrupted."), said
    assert lines[1].startswith("note: The parts that are complete stay in 'stopped/'; the same command goes on")


def test_a_corrupt_shard_ends_in_one_line_and_is_not_tried_again(home: Path) -> None:
    shutil.copytree("pool", "broken")
    Path("broken/3.parquet").write_bytes(b"PAR1")
    code, said = ended("broken/", "--out", "unbroken/")
    assert (code, len(said.splitlines())) == (1, 1), said
    assert "3.parquet' is damaged or not really Parquet" in said
    code, said = ended("broken/", "--out", "unbroken/", "--on-error", "skip")
    assert code == 0, said
    assert "warning: '3.parquet' is left out: File '" in said
    assert {**content("unbroken"), "3.parquet": content("alone")["3.parquet"]} == content("alone")


def test_workers_import_nothing_from_the_current_folder_which_may_be_a_strangers_run(home: Path) -> None:
    code_of_others = Path("threadpoolctl.py")
    code_of_others.write_text(f"open({str(home / 'ran')!r}, 'w')\nraise ImportError")
    try:
        code, told = ended("pool/", "--out", "foreign/", "--workers", "1")
    finally:
        code_of_others.unlink()
    assert code == 0, told
    assert not (home / "ran").exists()
    assert content("foreign") == content("alone")


def test_a_cluster_that_cannot_be_reached_is_named(home: Path) -> None:
    code, said = ended("pool/", "--out", "nowhere/", RAY_ADDRESS="127.0.0.1:9")
    assert (code, len(said.splitlines())) == (1, 1), said
    assert said.startswith("error: The Ray cluster at '127.0.0.1:9' cannot be reached (")


def test_workers_with_another_version_are_refused() -> None:
    with pytest.raises(RayError, match=r"surelabel \S+ is installed where Ray's workers are, and 9\.9 where they are"):
        _call("9.9", [], b"")


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a bucket of a server of this machine, with the pool in it."""
    moto = pytest.importorskip("moto.server", reason="make test-cluster installs moto")
    import boto3

    server = moto.ThreadedMotoServer(port=0, verbose=False)
    server.start()
    address = "http://{}:{}".format(*server.get_host_and_port())
    keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1"}
    for name, value in {**keys, "AWS_ENDPOINT_URL": address, "AWS_EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3")
    client.create_bucket(Bucket="bucket")
    for path in Path("pool").glob("*.parquet"):
        client.upload_file(str(path), "bucket", f"pool/{path.name}")
    yield "s3://bucket"
    server.stop()


@pytest.mark.parametrize("engine", ["local", "ray"])
def test_a_pool_in_an_object_store_is_labeled_into_it(home: Path, bucket: str, command: Command, engine: str) -> None:
    from surelabel.data.shards import place_of

    out = f"{bucket}/by-{engine}/"  # the server forgets nothing from one test to the next
    words = ("label", "run", f"{bucket}/pool/", "--engine", engine, "--out", out)
    there = place_of(out)
    for told in ("6 shards with 240 samples are labeled and ", "6 of them before, and "):
        process = subprocess.run(
            [sys.executable, "-m", "surelabel", *words], capture_output=True, text=True, check=False
        )
        assert process.returncode == 0, process.stderr
        assert told in process.stderr
    names = [file.name for file in there.files()]
    assert names == [f"{number}.parquet" for number in range(SHARDS)]
    for name in names:
        with there.open(name) as stream:
            assert stream.read() == content("alone")[name]


def test_storage_out_of_reach_is_told_in_one_line(home: Path, bucket: str, command: Command) -> None:
    missing = command.fails(1, "label", "run", "s3://missing/pool/", "--out", f"{bucket}/labels/")
    assert missing.startswith("No shard is in 's3://missing/pool/'") or "cannot be reached (" in missing
    unwritable = command.fails(1, "label", "run", f"{bucket}/pool/", "--out", "s3://missing/labels/")
    assert unwritable.startswith("'s3://missing/labels/' cannot be reached (")
