"""`holdfast map show` and `map list`, for people."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from holdfast.cli.maps import MapList
from holdfast.core.model.member_status import MapSetting


def test_times_are_shown_as_they_are_set() -> None:
    given = [("ttl_ms", 3_600_000), ("max_idle_ms", 0), ("backups", 2)]
    answer = MapList(
        settings=[MapSetting("m", name, value, "map set", complete=True) for name, value in given]
    )
    written = StringIO()
    for shown in answer.view():
        Console(width=100, file=written).print(shown)
    rows = [line.split()[:4] for line in written.getvalue().splitlines()[1:]]
    assert rows == [["m", "ttl", "1h", "map"], ["m", "max_idle", "no", "limit"], ["m", "backups", "2", "map"]]
    assert answer.settings[0].value == 3_600_000, "programs read milliseconds"
