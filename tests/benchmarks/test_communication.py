"""The bench of communication times what the engine exchanges, and computes what a larger cluster would take."""

import csv
from pathlib import Path

import pytest
import torch

from benchmarks import communication as bench
from benchmarks.results import append_rows
from surelabel.models.cnn13 import cnn13


@pytest.mark.usefixtures("in_a_group_of_one")
def test_a_measured_exchange_has_the_bytes_that_are_computed_for_its_network() -> None:
    case, table = bench.cases(tiny=True)
    found = bench.measure(case._replace(make=lambda shape, classes: cnn13(shape, classes, width=4)), steps=2)
    expected = bench.exchanged_bytes(cnn13((3, 32, 32), 10, width=4))
    assert (found["exchange_bytes"], found["samples"], found["processes"]) == (expected, 4, 1)
    assert 0 < float(found["exchange_seconds"]) < float(found["seconds"])
    assert float(found["share"]) == pytest.approx(float(found["exchange_seconds"]) / float(found["seconds"]), rel=0.01)
    assert bench.measure(table, steps=1)["source"] == "measured"


def test_larger_clusters_are_computed_from_the_newest_step_of_one_gpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"what": "training", "model": "cnn13, width 128", "batch": 512, "device": "NVIDIA H200", "commit": "abcdefgh"}
    others = [{"what": "labeling, 10 passes"}, {"model": "own"}, {"device": "cpu"}, {"batch": 128, "per_second": 64000}]
    rows = [
        row | {"per_second": 1},
        row | {"per_second": 80000},
        *(row | {"per_second": 5} | other for other in others),
    ]
    append_rows(tmp_path / "bench.csv", rows)
    bench.main(["--bench", str(tmp_path / "bench.csv"), "--results", str(tmp_path)])
    with (tmp_path / "scale.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    assert [(one["samples"], one["processes"]) for one in found] == [
        ("4096", "8"),
        ("32768", "64"),
        ("1024", "8"),
        ("8192", "64"),
    ]
    assert found[0]["source"] == "computed from bench.csv: training, batch 512, NVIDIA H200, abcdefg"
    network = cnn13((3, 32, 32), 10)
    size = sum(one.numel() for one in network.state_dict().values() if one.is_floating_point()) * 4 + 4
    size += 4 * len(list(network.parameters()))
    eight = 2 * 7 / 8 * size / 450e9 + 8.4e-6 + 14 * 3.4e-6
    sixty_four = 2 * 63 / 64 * size / 50e9 + 8.4e-6 + 112 * 3.4e-6 + 14 * 9.6e-6
    for one, exchange in zip(found, (eight, sixty_four, eight, sixty_four), strict=True):
        alone = {"4096": 512 / 80000, "32768": 512 / 80000}.get(one["samples"], 128 / 64000)
        assert int(one["exchange_bytes"]) == size
        assert float(one["exchange_seconds"]) == pytest.approx(exchange, rel=1e-3)
        assert float(one["share"]) == pytest.approx(exchange / (alone + exchange), rel=1e-3)
    assert "cnn13, width 128, 64 processes, 32768 samples a step: 12.5 MB" in capsys.readouterr().out


def test_networks_of_the_bench_are_made_without_memory() -> None:
    with torch.device("meta"):
        sizes = {name: bench.exchanged_bytes(make(*rest)) for name, (make, *rest) in bench.ON_GPU.items()}
    assert sizes["resnet50, 128 px"] > sizes["cnn13, width 128"] > 12e6
