import math

import pytest

from surelabel.base.settings import Settings
from surelabel.settings import UPSConfig


class Small(Settings):
    tau_p: float = 0.7
    rounds: int = 3


def test_a_misspelled_setting_names_the_nearest_one() -> None:
    with pytest.raises(ValueError, match=r"Small has no setting 'taup': did you mean 'tau_p'\?"):
        Small(taup=0.5)


def test_an_unknown_setting_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="known are tau_p, rounds"):
        Small(xyzzy=1)


def test_settings_cannot_be_changed_in_place() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Small().tau_p = 0.1


def test_replace_validates() -> None:
    assert Small().replace(rounds=5) == Small(rounds=5)
    with pytest.raises(ValueError, match="rounds"):
        Small().replace(rounds="many")


def test_settings_survive_json_with_infinities() -> None:
    config = UPSConfig(kappa_p=math.inf, kappa_n=math.inf, tau_p=0.1 + 0.2, max_minutes=1.5)
    assert UPSConfig.model_validate_json(config.model_dump_json()) == config


def test_thresholds_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(ValueError, match=r"tau_n \(0.5\) must not be larger than tau_p \(0.4\)"):
        UPSConfig(tau_n=0.5, tau_p=0.4)
