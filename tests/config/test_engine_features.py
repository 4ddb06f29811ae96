"""The table of features in docs/zones.md, and the settings that a map in a zone cannot have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.config import load
from holdfast.config.engine_features import FEATURES, EngineFeature, feature_table
from holdfast.errors import ConfigError

PAGE = Path(__file__).parents[2] / "docs" / "zones.md"
BEGIN, END = (
    "<!-- engine features: begin (written by `pytest tests/config --rewrite`) -->\n",
    "<!-- engine features: end -->",
)
UNFIT = {
    "read_backups": True,
    "reads": "confirmed",
    "journal": "lazy",
    "loss_policy": "read-write-safe",
}


def test_the_page_has_the_table(request: pytest.FixtureRequest) -> None:
    text = PAGE.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    _, tail = rest.split(END)
    wanted = f"{head}{BEGIN}{feature_table()}\n{END}{tail}"
    if request.config.getoption("--rewrite"):
        PAGE.write_text(wanted, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == wanted, "write it again: --rewrite"


def test_what_a_zone_does_not_have_says_what_to_do_instead() -> None:
    assert all(bool(feature.instead) is not feature.in_zone for feature in FEATURES)


@pytest.mark.parametrize("feature", [one for one in FEATURES if one.setting], ids=lambda one: one.setting)
def test_a_map_in_a_zone_is_rejected_with_such_a_setting(feature: EngineFeature) -> None:
    def look_at(value: object) -> None:
        text = str(value).lower() if isinstance(value, bool | int) else f"'{value}'"
        load(f"[metastore]\nvoters = 3\n[maps.m]\nraft_zone = 'z'\n{feature.setting} = {text}")

    with pytest.raises(ConfigError, match=f"maps.m.{feature.setting} is not allowed") as rejected:
        look_at(UNFIT[feature.setting])
    assert feature.instead in str(rejected.value)
    for value in feature.allowed:
        look_at(value)


@pytest.mark.parametrize(("setting", "value"), sorted(UNFIT.items(), key=str))
def test_a_setting_that_comes_from_the_default_map_names_the_way_out(setting: str, value: object) -> None:
    """Leaving it out would not help."""
    text = f"[persistence]\ndirectory = '/d'\n[maps.default]\n{setting} = {json.dumps(value)}\n"
    with pytest.raises(ConfigError) as caught:
        load(f"{text}[maps.orders]\nraft_zone = 'z'\n")
    allowed = next(feature.allowed[0] for feature in FEATURES if feature.setting == setting)
    assert f"maps.default has it: set maps.orders.{setting} = {json.dumps(allowed)}" in str(caught.value)
