"""Settings of a map that an order changes while the map is used."""

from __future__ import annotations

import pytest

from holdfast.config import load
from holdfast.config.loading import check_map, map_values
from holdfast.errors import ConfigError


def test_names_may_lack_the_unit_and_values_may_have_one() -> None:
    assert map_values("m", {"backups": "2", "ttl": "1h", "max_idle_ms": "5"}) == {
        "backups": 2,
        "ttl_ms": 3_600_000,
        "max_idle_ms": 5,
    }


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"backups": "7"}, "a whole number from 0 to 6"),
        ({"ttl": "soon"}, "maps.m.ttl_ms = 'soon' is not allowed"),
        ({"backup": "1"}, "did you mean backups"),
        (
            {"journal": "sync"},
            "cannot be changed while the map is used: stop the cluster (holdfast cluster shutdown)",
        ),
        ({"backups": "7", "journal": "sync"}, "2 settings are wrong"),
    ],
)
def test_mistakes_are_told_with_what_to_do(given: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError) as found:
        map_values("m", given)
    assert told in str(found.value)


@pytest.mark.parametrize(
    ("name", "values", "told"),
    [
        ("zoned", {"ttl_ms": 5}, "holdfast zone alter"),
        ("__schemas", {"ttl_ms": 5}, "a map of Holdfast's own"),
        ("m", {"backups": 6, "async_backups": 1}, "at most 6 are allowed"),
        ("m", {"backups": 6}, "at most 6 are allowed"),
        ("x" * 251, {"backups": 1}, "1 to 250 characters"),
    ],
)
def test_conflicts_with_other_settings_are_told(name: str, values: dict[str, int], told: str) -> None:
    settings = load("[metastore]\nvoters = 3\n[maps.zoned]\nraft_zone = 'z'\n[maps.m]\nasync_backups = 1")
    with pytest.raises(ConfigError) as found:
        check_map(settings, name, values)
    assert told in str(found.value)
    check_map(settings, "m", {"backups": 5, "ttl_ms": 3})
