"""What a resize run says of what it found."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from rich.console import Console

from holdfast.config import load
from holdfast_lab.chaos import resize
from holdfast_lab.chaos.resize import Plan, Verdict
from holdfast_lab.processes.latency import Log, Operation, judge
from holdfast_lab.processes.local_cluster import ClusterError, ManagedMember


class Run(resize.Resize):
    """A run without processes: one round, with the given findings or failure."""

    found: Verdict | Exception

    def prepare(self, stack: ExitStack, folder: Path) -> None:
        self.rounds = 1
        if isinstance(self.found, Verdict):
            self.verdict = self.found

    def round(self, number: int) -> str:
        if isinstance(self.found, Exception):
            raise self.found
        return "found"

    def judge(self) -> None: ...


def measured() -> Verdict:
    log = Log()
    log.add(Operation(1.0, 0.002, True, True, 0))
    return Verdict(acknowledged=1, measured=judge([log], ["client-1"], []))


@pytest.mark.parametrize(
    ("found", "status"),
    [
        (measured(), 0),
        (Verdict(unknown=7), 0),
        (Verdict(lost=1), 1),
        (Verdict(diverged=1), 1),
        (Verdict(wrong_reads=1), 1),
        (ClusterError("m1 has not left"), 1),
    ],
)
def test_the_exit_status_tells_whether_anything_was_lost(
    monkeypatch: pytest.MonkeyPatch, found: Verdict | Exception, status: int
) -> None:
    monkeypatch.setattr(Run, "found", found, raising=False)
    monkeypatch.setattr(resize, "Resize", Run)
    assert resize.main(Plan(), console=Console(quiet=True)) == status


def test_json_is_all_that_goes_to_standard_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Run, "found", measured(), raising=False)
    monkeypatch.setattr(resize, "Resize", Run)
    assert resize.main(Plan(rounds=3, seed=5), as_json=True) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["plan"]["rounds"] == 3
    assert told["good"] is True
    assert told["measured"]["phases"]["at rest"]["operations"] == 1
    assert told["measured"]["longest_pause_ms"] == 2


def test_the_maps_have_the_backups_that_they_are_named_after() -> None:
    settings = load(Plan(backups=(1, 3)).config)
    for count in (1, 3):
        assert settings.map(resize.client_map(count)).backups == count
        assert settings.map(resize.ballast_map(count)).backups == count


def test_with_zones_one_more_map_of_each_kind_lives_in_one() -> None:
    plain, zoned = Plan(), Plan(zones=True)
    settings = load(zoned.config)
    assert settings.metastore.voters == 3
    assert {settings.map(name).raft_zone for name in (resize.ZONED_CLIENT, resize.ZONED_BALLAST)} == {
        resize.ZONE
    }
    assert {settings.map(name).raft_zone for name in plain.client_maps} == {""}
    assert zoned.client_maps == [*plain.client_maps, resize.ZONED_CLIENT]
    assert load(plain.config).metastore.voters == 0


def test_what_the_map_in_the_zone_waited_is_told_by_itself() -> None:
    log = Log()
    log.add(Operation(1.0, 0.002, True, True, 0))
    log.add(Operation(1.0, 0.777, True, True, 1))
    console = Console(width=140, record=True, quiet=False, file=io.StringIO())
    resize.show_waits(judge([log], ["client-1", resize.ZONED_CLIENT], []), console)
    everything, zoned = console.export_text().split("of this for the map in the zone")
    assert "2.0" in everything
    assert "777.0" in zoned
    assert " 2.0" not in zoned.partition("p99 during")[0]


def test_when_a_member_said_something_is_read_from_its_log(tmp_path: Path) -> None:
    member = ManagedMember("m1", subprocess.Popen([sys.executable, "-c", ""]), "", "", tmp_path / "log")
    member.process.wait()
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time.time() - 100))
    member.log.write_text(
        f"{stamp},000 INFO starting\n{stamp},250 INFO view number=3\n{stamp},500 INFO view number=4\n"
    )
    said_s = resize.said_s(member, resize.ADMITTED)
    assert 98 < time.monotonic() - said_s < 130
    assert time.monotonic() - resize.said_s(member, resize.LEFT) < 30, "never: so it is now"
