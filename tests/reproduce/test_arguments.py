"""`reproduce --set NAME=VALUE`: how values are read, what can be set of which data set, and what is refused."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from surelabel.cli import main
from surelabel.data.run_data import FunctionData
from surelabel.errors import InvalidInputError
from surelabel.reproduce.cifar import CIFAR10
from surelabel.reproduce.entries import Entry, check_arguments, parse_arguments
from surelabel.reproduce.experiment import check_request
from surelabel.reproduce.paper import experiment
from surelabel.reproduce.plans import Options, Plans
from surelabel.reproduce.ucf101 import UCF101
from surelabel.reproduce.voc2007 import VOC2007
from surelabel.settings import RunSettings

pytestmark = pytest.mark.usefixtures("own_folder")

VOC, UCF = Entry("UPS", VOC2007, 500), Entry("UPS", UCF101, 0.2)


def arguments_of(settings: RunSettings) -> dict[str, Any]:
    assert isinstance(settings.data, FunctionData)
    return dict(settings.data.arguments)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("2", 2),
        ("0.5", 0.5),
        ("null", None),
        ("skip", "skip"),
        ('"2"', "2"),
        ("a=b", "a=b"),
        ("NaN", "NaN"),
        ("[1]", "[1]"),
        ("", ""),
    ],
)
def test_values_are_json_scalars_or_text(text: str, value: object) -> None:
    found = parse_arguments([f"name={text}"])["name"]
    assert (type(found), found) == (type(value), value)


def test_what_sets_nothing_or_twice_is_refused() -> None:
    for text in ("split", "=2", "two words=2"):
        with pytest.raises(InvalidInputError, match="NAME=VALUE, such as split=2; got"):
            parse_arguments([text])
    with pytest.raises(InvalidInputError, match="once.*got 'split=3'"):
        parse_arguments(["split=2", "split=3"])


def test_arguments_reach_the_datas_function_and_the_recipe() -> None:
    plain = arguments_of(UCF.base(0, "fast"))
    settings = UCF.base(0, "fast", {"split": 2, "groups": True, "test_windows": 3})
    assert arguments_of(settings) == {**plain, "split": 2, "groups": True}
    assert settings.network.training.augment is not None
    assert settings.network.training.augment.test_windows == 3
    small = VOC.base(0, "paper", {"side": 128, "difficult": "absent"})
    assert arguments_of(small) == {**arguments_of(VOC.base(0, "paper")), "side": 128, "difficult": "absent"}
    augment = small.network.training.augment
    assert augment is not None
    assert (augment.crop, augment.hole) == (16, 64)  # in proportion to the side, as in the recipe


def test_what_an_argument_is_anyway_changes_nothing() -> None:
    same = {"difficult": "ignore", "side": 224, "on_error": "stop"}
    check_arguments([VOC], same)
    assert VOC.base(0, "fast", same) == VOC.base(0, "fast")
    # What another data set takes is left out where a table shows both.
    assert VOC.base(0, "fast", {"split": 2}) == VOC.base(0, "fast")


@pytest.mark.parametrize("name", ["seed", "labels", "num_validation", "network", "progress", "split", "dataset"])
def test_what_cannot_be_set_is_refused_with_what_can(name: str) -> None:
    with pytest.raises(InvalidInputError, match=f"'{name}' of voc2007 cannot be set; .*difficult, on_error.* side can"):
        check_arguments([VOC], {name: 1})


@pytest.mark.parametrize("name", ["share", "validation_share", "num_validation", "frames"])
def test_shares_and_the_form_of_clips_cannot_be_set(name: str) -> None:
    with pytest.raises(InvalidInputError, match=f"'{name}' of ucf101 cannot be set; split, folder, groups"):
        check_arguments([UCF], {name: 1})


@pytest.mark.parametrize(
    ("entry", "arguments", "message"),
    [
        (VOC, {"side": "large"}, "'side' of voc2007 cannot be set so: .* integer. Got 'large'"),
        (VOC, {"side": -8}, "voc2007 cannot be set so. .*'crop'.* greater than or equal to 0"),
        (VOC, {"difficult": "often"}, "'ignore', 'present' or 'absent'. Got 'often'"),
        (UCF, {"groups": "yes"}, "'groups' of ucf101 cannot be set so: .* boolean. Got 'yes'"),
        (UCF, {"test_windows": 4}, "ucf101 cannot be set so. The 'test_windows' setting must not be larger"),
    ],
)
def test_values_of_another_kind_are_refused(entry: Entry, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        check_arguments([entry], arguments)


def test_every_data_set_that_is_run_must_take_the_argument() -> None:
    both = dataclasses.replace(
        experiment("table4"), entries=(*experiment("table4").entries, *experiment("table3").entries)
    )
    with pytest.raises(
        InvalidInputError, match="'split' of voc2007 cannot be set; .*Choose data sets that take it with --data"
    ):
        check_request(both, Options(arguments={"split": 2}))
    chosen = check_request(both, Options(arguments={"split": 2}, datasets=("ucf101",)))
    assert {entry.dataset.name for entry in chosen} == {"ucf101"}
    assert check_request(both, Options(arguments={"on_error": "skip"}))


def test_a_function_of_ones_own_is_asked_for_its_arguments(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "def data(seed, labels, num_validation, size=3, kind: 'Kind' = None, **more): ...\n"
    )
    entry = Entry("UPS", dataclasses.replace(CIFAR10, function=f"{tmp_path}/mine.py:data"), 20)
    check_arguments([entry], {"size": "large", "kind": 1})
    assert arguments_of(entry.base(0, "paper", {"size": 4}))["size"] == 4
    with pytest.raises(InvalidInputError, match="'other' of cifar10 cannot be set; size, kind can"):
        check_arguments([entry], {"other": 1})


def test_runs_with_other_arguments_have_other_settings() -> None:
    entry = next(one for one in experiment("table4").entries if one.row == "UPS")
    of = [
        Plans(None, Options(device="cpu", arguments=one)).settings(entry, 0) for one in (None, {"difficult": "absent"})
    ]
    assert of[0] != of[1]
    assert of[1].replace(data=of[0].data) == of[0]


def test_a_folder_is_known_from_everywhere(own_folder: Path) -> None:
    entry = next(one for one in experiment("table4").entries if one.row == "UPS")
    of = [entry.base(0, "fast", {"folder": name}) for name in ("mine", "./mine", str(own_folder / "mine"))]
    assert of[0] == of[1] == of[2]
    assert of[0].data.arguments["folder"] == str(own_folder / "mine")


def test_the_command_refuses_before_anything_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["reproduce", "table4", "--out", str(tmp_path / "runs")]
    for wrong, told in (("labels=7", "difficult, on_error"), ("side=x", "valid integer"), ("side", "NAME=VALUE")):
        assert main([*words, "--set", wrong]) == 1
        assert told in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "runs").exists()
