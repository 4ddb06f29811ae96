"""Sizes and times with units, in settings from every source."""

from __future__ import annotations

import pytest

from holdfast.config import load
from holdfast.config.describe import schema
from holdfast.config.loading import live_text
from holdfast.config.units import (
    SIZES,
    TIMES,
    WrongUnit,
    format_size,
    format_time,
    parse_size,
    parse_time,
)
from holdfast.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("4096", 4096),
        ("0", 0),
        ("1K", 1024),
        ("1 k", 1024),
        ("1.5M", 1_572_864),
        ("512MiB", 536_870_912),
        ("2G", 2**31),
        ("1T", 2**40),
        ("7B", 7),
    ],
)
def test_a_size(text: str, number: int) -> None:
    assert parse_size(text) == number
    assert parse_size(format_size(number)) == number


@pytest.mark.parametrize(
    ("text", "unit_ms", "number"),
    [
        ("250ms", 1, 250),
        ("250", 1, 250),
        ("250", 1000, 250),
        ("10min", 1, 600_000),
        ("10min", 1000, 600),
        ("1.5h", 1000, 5400),
        ("1d", 1, 86_400_000),
        ("90S", 1000, 90),
        ("3000ms", 1000, 3),
    ],
)
def test_a_time_in_the_unit_of_its_setting(text: str, unit_ms: int, number: int) -> None:
    assert parse_time(text, unit_ms) == number
    assert parse_time(format_time(number, unit_ms), unit_ms) == number


@pytest.mark.parametrize("text", ["1MB", "1kb", "1x", "G", "", "1e3", "-1K", "1K2", "1,5M"])
def test_a_wrong_size_names_the_units(text: str) -> None:
    with pytest.raises(WrongUnit, match=f"the units {', '.join(SIZES)} \\(1K is 1024 bytes\\)"):
        parse_size(text)


@pytest.mark.parametrize("text", ["1m", "10 minutes", "s", "1h30min", "-5s"])
def test_a_wrong_time_names_the_units(text: str) -> None:
    with pytest.raises(WrongUnit, match=f"the units {', '.join(TIMES)}"):
        parse_time(text)


@pytest.mark.parametrize(("text", "unit_ms"), [("0.5ms", 1), ("1.0001s", 1), ("1500ms", 1000)])
def test_a_part_of_the_smallest_unit_is_rejected(text: str, unit_ms: int) -> None:
    with pytest.raises(WrongUnit, match="is no whole number of"):
        parse_time(text, unit_ms)


def test_units_are_taken_in_files_variables_and_flags() -> None:
    file = '[cluster]\nheartbeat_ms = "2s"\n[maps.x]\nttl_ms = "1h"\n[persistence]\nhistory_age_s = "2d"\n'
    environ = {"HOLDFAST_LIMITS_MEMORY_BYTES": "1G", "HOLDFAST_PARTITIONS_DRAIN_TIMEOUT_S": "1min"}
    flags = {"maps.default.max_idle_ms": "250ms", "partitions.max_in_flight_bytes_total": "512M"}
    found = load(file, environ, flags)
    assert found.cluster.heartbeat_ms == 2000
    assert (found.maps["x"].ttl_ms, found.maps["x"].max_idle_ms) == (3_600_000, 250)
    assert found.persistence.history_age_s == 172_800
    assert found.limits.memory_bytes == 2**30
    assert found.partitions.drain_timeout_s == 60
    assert found.partitions.max_in_flight_bytes_total == 2**29


def test_a_plain_number_keeps_its_meaning() -> None:
    assert load("[cluster]\nheartbeat_ms = 2000\n").cluster.heartbeat_ms == 2000
    assert load(environ={"HOLDFAST_CLUSTER_HEARTBEAT_MS": "2000"}).cluster.heartbeat_ms == 2000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[cluster]\nheartbeat_ms = "2fortnights"',
            (
                "the configuration: cluster.heartbeat_ms = '2fortnights' is not allowed: 'fortnights' is no unit of a "
                "time: write a number and one of the units ms, s, min, h, d"
            ),
        ),
        (
            '[limits]\nkey_bytes = "1MB"',
            (
                "limits.key_bytes = '1MB' is not allowed: 'MB' is no unit of a size: write a number and one of the "
                "units B, K, M, G, T"
            ),
        ),
        (
            '[limits]\nkey_bytes = "1G"',
            (
                "limits.key_bytes = 1073741824 is not allowed: it must be a size from 16 to 1M; a number without a "
                "unit is bytes"
            ),
        ),
        ('[partitions]\ncount = "1K"', "partitions.count = '1K' is not allowed: it must be a whole number"),
        (
            '[partitions]\ndrain_timeout_s = "250ms"',
            "partitions.drain_timeout_s = '250ms' is not allowed: '250ms' is no whole number of seconds",
        ),
    ],
)
def test_a_wrong_unit_or_value_says_what_is_right(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as told:
        load(text)
    assert message in str(told.value)


def test_every_default_with_a_unit_is_shown_so_that_it_can_be_read_back() -> None:
    united = [key for key in schema() if key.unit]
    assert {key.unit.plain for key in united if key.unit} == {"milliseconds", "seconds", "bytes"}
    for key in united:
        assert key.unit is not None
        assert key.unit.parse(str(key.readable(key.default))) == key.default, key.dotted


def test_members_get_numbers_because_an_older_one_knows_no_units() -> None:
    assert live_text("limits.memory_bytes", "8G", "x") == str(8 * 2**30)
    assert live_text("limits.connections", "9", "x") == "9"
