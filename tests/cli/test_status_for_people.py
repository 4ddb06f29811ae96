"""`holdfast status` for people: 80 columns, how long members run, how fast they are, and whom a watch asks."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from rich.console import Console
from tests.cli.test_commands import answering, own, run
from tests.statuses import status

from holdfast.cli import status as inspection
from holdfast.cli.credentials import Credentials
from holdfast.cli.status import Report, _Looks, picture
from holdfast.core.model.member_status import MemberStatus
from holdfast.core.model.result_columns import duration
from holdfast.errors import Denied, NotReady

GIGABYTE = 1_000_000_000


def shown(report: Report, *notes: str, width: int = 80) -> list[str]:
    written = StringIO()
    Console(width=width, file=written).print(picture(report, notes), highlight=False)
    return written.getvalue().splitlines()


def report(seen: dict[str, Any], own: dict[str, dict[str, Any]], **more: Any) -> Report:
    return Report(status(seen), {uuid: status(one) for uuid, one in own.items()}, **more)


def large(uuid: str, **changed: Any) -> dict[str, Any]:
    found = own(uuid, version="1.2.0", uptime_s=93_784.2, updates=1000, **changed)
    found["memory"] = {"used_bytes": 3 * GIGABYTE, "limit_bytes": 8 * GIGABYTE}
    found["entries"] = {"primary": 123_456_789, "all": 1}
    rows = found["members"]
    found["members"] = [{**row, "name": f"node-{row['uuid']}", "host": "192.168.100.100"} for row in rows]
    return found


def test_80_columns_are_enough_and_no_number_is_cut() -> None:
    a, b = large("a"), large("b")
    lines = shown(report(a, {"a": a, "b": b}, rates={"a": 12_345.6, "b": 0.4}))
    assert max(map(len, lines)) <= 80
    (row,) = [line for line in lines if line.startswith("node-a")]
    for cell in ("master", "100", "71", "123,456,789", "38%", "1d2h", "12,346"):
        assert cell in row.split(), row
    assert "version 1.2.0" in lines[0] and lines[0].rstrip().endswith("safe")
    assert (
        lines[-1].strip() == "2 members, 246,913,578 entries, 12,346 operations per second, feature level 4"
    )


def test_several_versions_and_what_moves_are_named() -> None:
    a = large("a")
    b = {**large("b"), "version": "1.3.0"}
    b["migrations"] = {**b["migrations"], "active": 2, "queued": 40, "completed": 7, "failed": 1}
    b["retained_change_bytes"] = 3_210_000
    text = " ".join(" ".join(shown(report(a, {"a": a, "b": b}))).split())
    assert "version 1.2.0, 1.3.0" in text
    assert "migrations: 2 moving, 40 queued, 7 done, 1 failed" in text
    quiet = " ".join(" ".join(shown(report(a, {"a": a}))).split())
    assert "migrations:" not in quiet
    assert "3.2 MB of changes from before moves of maps" in text
    assert "changes from before" not in quiet


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0s"),
        (0.4, "400ms"),
        (2.54, "2.5s"),
        (59.9, "59s"),
        (61, "1m1s"),
        (3600, "1h"),
        (93_784, "1d2h"),
        (864_000, "10d"),
    ],
)
def test_how_long_a_member_runs_is_told_in_two_units(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_rates_are_what_was_counted_between_two_looks() -> None:
    def look(at_s: float, **updates: Any) -> Report:
        return report(own("a"), {uuid: own(uuid, **one) for uuid, one in updates.items()}, at_s=at_s)

    before = look(100.0, a={"updates": 1000}, b={"updates": 50}, c={"operations": {"get": 5, "put": 5}})
    after = look(102.0, a={"updates": 1500}, b={"updates": 40}, c={"operations": {"get": 25, "put": 6}}, d={})
    after.rates_since(before)
    assert after.rates == {"a": 250.0, "c": 10.5}, "B gave partitions away, and D has just come"
    told = {row.uuid: row.operations_per_s for row in after.plain().members}
    assert told == {"a": 250.0, "b": None}


def test_a_watch_asks_another_member_when_the_one_it_asks_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: dict[str, Any] = {"h:1": own("a"), "127.0.0.1:5701": own("a"), "127.0.0.1:5702": own("b")}

    def ask(address: str, credentials: Credentials) -> MemberStatus:
        answer = answers.get(address, NotReady(f"no member answers: cannot connect to {address}"))
        if isinstance(answer, Exception):
            raise answer
        return status(answer)

    monkeypatch.setattr(inspection, "ask", ask)
    looks = _Looks("g:1,h:1", Credentials())
    assert looks.look().seen.uuid == "a"
    assert looks.notes == ["asking h:1 now: cannot connect to g:1"]
    assert looks.look().seen.uuid == "a"
    assert looks.notes == [], "it is said once"
    del answers["h:1"], answers["127.0.0.1:5701"]
    assert looks.look().seen.uuid == "b"
    assert looks.notes[0].startswith(
        "asking 127.0.0.1:5702 now: cannot connect to h:1; cannot connect to g:1"
    )
    answers.clear()
    with pytest.raises(NotReady, match="no member answers: cannot connect to"):
        looks.look()
    answers["127.0.0.1:5702"] = Denied("no")
    with pytest.raises(Denied):
        looks.look()


def test_status_names_what_the_asked_member_advises_when_others_do_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    advice = "the rest is no majority: holdfast member evict b --without-majority"
    seen = own("a", safe=False, unsafe_reason=advice)
    answering(monkeypatch, {"127.0.0.1:5701": seen, "127.0.0.1:5702": OSError("refused")})
    told = json.loads(run("status", "--json").output)
    assert told["unsafe_reason"] == f"1 of 2 members do not answer; name of a: {advice}"


def test_a_restarted_process_does_not_answer_for_the_member_that_was_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its cluster waits for the old one, which has ended: the new one holds nothing."""
    answering(monkeypatch, {"127.0.0.1:5701": own("a"), "127.0.0.1:5702": own("new", safe=False)})
    told = json.loads(run("status", "--json").output)
    (restarted,) = [each for each in told["members"] if each["uuid"] == "b"]
    assert restarted["status"] is None
    assert told["unsafe_reason"] == "1 of 2 members do not answer"
    assert "was restarted" in restarted["error"]
    assert "restarted" in run("status").output


def test_copies_that_are_not_complete_are_named() -> None:
    a, b = large("a"), large("b")
    a["incomplete"] = {"filling": 3, "gaps": 0}
    text = " ".join(" ".join(shown(report(a, {"a": a, "b": b}))).split())
    assert "3 copies of partitions are being filled" in text
    assert "LWM" not in text
    b["incomplete"] = {"filling": 0, "gaps": 2}
    text = " ".join(" ".join(shown(report(b, {"a": large("a"), "b": b}))).split())
    assert "2 maps of partitions lack updates below their newest one (LWM below HWM)" in text
    assert "being filled" not in text
