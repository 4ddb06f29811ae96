"""A night on call, on real processes under load: members of an earlier build are replaced by this one, one is lost and
one is drained at the console, and all go back to the earlier build. Whoever is on call learns what happens from alerts,
logs and pages; and no acknowledged write is lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.alerts import MEMBER_DOWN, PROGRAM, ByParser, ByPrometheus, hurried, pointed
from tests.cluster.keepers import until
from tests.cluster.other_builds import build_of, command, earlier_commit, older_build
from tests.cluster.test_rolling_upgrade import NAMES, Upgraded, all_copies_are_alike, load
from tests.console.browser import Tab, chromium

from holdfast_lab.processes.fork_server import COMMAND
from holdfast_lab.processes.local_cluster import HOST, ManagedMember, free_ports

WATCHES = (
    pytest.param(ByPrometheus, id="alerts_by_prometheus")
    if PROGRAM
    else pytest.param(ByParser, id="metrics_parsed_only_for_prometheus_is_not_installed")
)
SERIOUS = ("WARNING", "ERROR", "CRITICAL")
LOST, DRAINED = "m2", "m3"


def warns_of(name: str, log: str) -> bool:
    """Whether a line of this log that somebody has to look at names the member."""
    named = re.compile(rf"\S+ \S+ ({'|'.join(SERIOUS)}) .*\bname={re.escape(name)}( |$)")
    return any(named.match(line) for line in log.splitlines())


class Night(Upgraded):
    """Three members with files, and with a door for HTTP at a port of their own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, start=False)
        taken = [port for ports in self.ports.values() for port in ports]
        self.doors = dict(zip(NAMES, (f"{HOST}:{port}" for port in free_ports(3, taken)), strict=True))
        """HOST:PORT of each door for HTTP, by the member's name."""

    def spawn(self, name: str, *, command: list[str] | None = None, **settings: object) -> ManagedMember:
        port = int(self.doors[name].rpartition(":")[2])
        return super().spawn(name, command=command, http__port=port, **settings)

    def warned_of(self, name: str, since: dict[ManagedMember, int]) -> set[str]:
        """The members whose logs name this one in a line that somebody has to look at, after so much of the log."""
        return {member.name for member, length in since.items() if warns_of(name, self.said(member)[length:])}

    def answered(self) -> None:
        """Wait until all of them run, and have every copy."""
        self.wait_ready(self.alive)
        self.wait_safe(60)
        assert set(self.versions()) == set(NAMES)


@pytest.fixture
def browser() -> Iterator[Any]:
    with chromium() as one:
        yield one


def earlier_build(folder: Path) -> Path:
    """An earlier commit's wheel, when there is one whose members have a door for HTTP; else this build, made older."""
    try:
        installed = build_of(earlier_commit(), folder / "earlier")
    except pytest.skip.Exception:  # Said where there is no history; another build will do.
        return older_build(folder / "older")
    if (installed / "holdfast" / "runtime" / "http_door.py").exists():
        return installed
    return older_build(folder / "older")


def all_is_quiet(watch: ByPrometheus | ByParser, doors: set[str]) -> None:
    """Wait until the metrics of all are read, and nothing critical fires."""
    until(lambda: watch.seen() == doors, missed="the metrics of some member are not read")
    until(lambda: watch.firing("critical") == set(), missed="an alert does not end")


def one_is_lost_and_comes_back(cluster: Night, watch: ByPrometheus | ByParser) -> None:
    """`kill -9`: the alert names its door, the logs of all others name it, and the alert ends when it is back."""
    down = (MEMBER_DOWN, cluster.doors[LOST])
    assert down not in watch.firing()
    lengths = {one: len(cluster.said(one)) for one in cluster.alive if one.name != LOST}
    cluster.kill(cluster.running(LOST))
    until(lambda: down in watch.firing(), missed=f"no alert says that {LOST} is down")
    others = {one.name for one in lengths}
    until(
        lambda: cluster.warned_of(LOST, lengths) == others,
        10,
        f"not each log of {sorted(others)} names {LOST} in a warning",
    )
    cluster.spawn(LOST)
    cluster.answered()
    until(lambda: down not in watch.firing(), missed=f"the alert for {LOST} does not end")


def one_is_drained_at_the_console(cluster: Night, browser: Any) -> None:
    """As an operator does it, in a browser, at the door of another member; then it is started again."""
    gone = cluster.running(DRAINED)
    tab = Tab(browser)
    page = tab.open(cluster.doors["m1"])
    page.get_by_role("button", name=f"Drain {gone.name}").click()
    page.get_by_label("to go on").fill(gone.name)
    page.get_by_role("button", name=f"Drain {gone.name}").last.click()
    page.get_by_text(f"{gone.name} has left").first.wait_for(timeout=60_000)
    assert cluster.ended(gone) == 0
    assert (tab.wrong, tab.dialogs, tab.elsewhere) == ([], [], [])
    tab.close()
    cluster.spawn(DRAINED)
    cluster.answered()


@pytest.mark.slow
@pytest.mark.interop
@pytest.mark.parametrize("watches", [WATCHES])
def test_whoever_is_on_call_sees_what_happens_and_no_write_is_lost(
    watches: type[ByPrometheus | ByParser], browser: Any, tmp_path: Path
) -> None:
    earlier = command(earlier_build(tmp_path / "builds"))
    with Night(tmp_path) as cluster:
        for name in NAMES:
            cluster.spawn(name, command=earlier)
        cluster.wait_ready()
        cluster.wait_settled()
        doors = set(cluster.doors.values())
        with watches(tmp_path / "watch", sorted(doors)) as watch:
            all_is_quiet(watch, doors)
            with load(cluster, tmp_path):
                for number, name in enumerate(NAMES):
                    cluster.replace(name, COMMAND, drain=number == 1)
                all_is_quiet(watch, doors)
                one_is_lost_and_comes_back(cluster, watch)
                one_is_drained_at_the_console(cluster, browser)
                for number, name in enumerate(NAMES):
                    cluster.replace(name, earlier, drain=number == 1)
                all_copies_are_alike(cluster)
            all_is_quiet(watch, doors)


def test_only_warnings_that_name_the_member_count() -> None:
    when = "2026-11-26 08:00:00,000"
    assert warns_of("m2", f"it starts\n{when} WARNING member suspected: name=m2 reason=silent")
    assert warns_of("m2", f"{when} ERROR reason=gone name=m2")
    for line in (
        "INFO member suspected: name=m2 reason=silent",
        "WARNING member suspected: name=m22",
        "ERROR m2",
    ):
        assert not warns_of("m2", f"{when} {line}")


def test_rules_are_hurried_and_not_changed() -> None:
    rules = "    expr: up == 0\n    for: 1m\n  - expr: sum(a[5m]) > 0\n    for: 10m\n"
    assert hurried(rules) == "    expr: up == 0\n    for: 1s\n  - expr: sum(a[5m]) > 0\n    for: 10s\n"
    with pytest.raises(AssertionError, match="no rule waits"):
        hurried("    expr: up == 0\n")


def test_the_configuration_is_pointed_at_the_doors_of_a_test() -> None:
    config = '  scrape_interval: 15s\n  evaluation_interval: 15s\n      - targets: ["127.0.0.1:5801"]\n'
    assert pointed(config, ["127.0.0.1:1"]) == (
        '  scrape_interval: 500ms\n  evaluation_interval: 500ms\n      - targets: ["127.0.0.1:1"]\n'
    )
    with pytest.raises(AssertionError, match="has changed"):
        pointed(config.replace("targets", "files"), [])
