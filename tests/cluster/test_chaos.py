"""Real members are struck while official clients call, and every answer is judged. The long form is `make chaos`."""

from __future__ import annotations

import random
import shutil
import time
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

import pytest
from rich.console import Console

from holdfast_lab.chaos import chaos, nemeses
from holdfast_lab.processes import local_cluster as cluster
from holdfast_lab.processes.hazelcast_writer import DemoError
from holdfast_lab.processes.local_cluster import ManagedMember

CONSOLE = Console(width=140)
BUILT = Path(__file__).parents[1] / "interop/java/target"
JAVA = BUILT if (BUILT / ".java-client").exists() and shutil.which("java") else None
pytestmark = pytest.mark.interop

LIES = {
    "what changed something": """
real = Lane.set
def lie(lane, copy, name, key, *rest):
    return copy.open(name).state.entries.get(key) if told(name) else real(lane, copy, name, key, *rest)
Lane.set = lie
""",
    "also what changed nothing": """
real = Lane.remove
def lie(lane, copy, name, key):
    return None if told(name) else real(lane, copy, name, key)
Lane.remove = lie
""",
    "also reads": """
class Entries(dict):
    def get(self, key, *otherwise):
        return None if told(MAP) else super().get(key, *otherwise)
real = MapState.__init__
def lie(state, name):
    real(state, name)
    if name == MAP:
        state.entries = Entries(state.entries)
MapState.__init__ = lie
""",
}
"""What members do now and then: a write is not carried out; an entry that is to be removed, or read, is not found."""
LIAR = f"""
import random
from holdfast.cli.main import main
from holdfast.core.primary_backup.lane import Lane
from holdfast.core.store.map_state import MapState
MAP = {nemeses.MAP!r}
dice = random.Random(1)
def told(name):
    return name == MAP and dice.randrange(5) == 0
"""


class Nothing(nemeses.Nemesis):
    """Two members, of whom nobody wants anything."""

    name = "nothing"
    members = 2

    def strike(self) -> str:
        time.sleep(4)
        return "nothing"


def run(
    name: str, rounds: int, *, java: Path | None = None, pinned: int = 3, zones: bool = False
) -> chaos.Verdict:
    try:
        nemesis = nemeses.NEMESES[name](random.Random(271))
    except DemoError as missing:
        pytest.skip(str(missing))
    nemesis.zones = zones
    campaign = chaos.Chaos(nemesis, CONSOLE, rounds=rounds, java=java, pinned=pinned)
    verdict = campaign.run()
    campaign.show()
    return verdict


@pytest.mark.slow
def test_what_all_members_had_acknowledged_when_they_were_killed_is_there() -> None:
    verdict = run("blackout", 1, pinned=1)
    assert verdict.good
    assert verdict.rounds == 1
    assert min(verdict.judged.counts.values()) > 50


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", nemeses.NEMESES)
def test_every_answer_holds(name: str) -> None:
    verdict = run(name, 3, java=JAVA)
    assert verdict.good
    assert sum(verdict.faults.values()) >= 3
    changed, quiet, everything = verdict.judged.counts.values()
    assert 0 < changed < quiet < everything or name == "owner"
    assert verdict.structures["items taken"] > 20 or name == "blackout"


@pytest.mark.parametrize("zones", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_queues_and_locks_survive_the_crash_of_their_owner(*, zones: bool) -> None:
    verdict = run("owner", 1, zones=zones)
    assert verdict.good
    assert verdict.faults["of the owner of the structures"] == 1
    assert all(
        verdict.structures[what] > 10 for what in ("items taken", "additions", "locks held", "permits held")
    )


@pytest.mark.campaign
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("zones", [False, True])
def test_twenty_crashes_of_owners(*, zones: bool) -> None:
    verdict = run("owner", 20, zones=zones)
    assert verdict.good
    assert verdict.faults["of the owner of the structures"] > 15


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_lost_release_of_a_lock_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some locks are released while they are held."""
    lie = """
import random
from holdfast.cli.main import main
from holdfast.core.cp import fenced_lock_steps
dice = random.Random(1)
real = fenced_lock_steps._lock
def lie(entry, step, behind):
    return real(fenced_lock_steps.released(entry) if dice.randrange(5) == 0 else entry, step, behind)
fenced_lock_steps._lock = lie
"""
    monkeypatch.setattr(cluster, "COMMAND", [cluster.COMMAND[0], "-c", f"{lie}main()"])
    verdict = chaos.Chaos(Nothing(random.Random(1)), CONSOLE, rounds=1, pinned=1).run()
    assert any("holders" in problem for problem in verdict.problems)
    assert not verdict.good


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["pause", "cut", "kill"])
def test_every_answer_of_a_zone_holds(name: str) -> None:
    verdict = run(name, 2, zones=True)
    assert verdict.good
    assert verdict.zoned["changed something"] > 20
    assert verdict.zoned["read"] > 20


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["kill", "pause", "cut", "resize"])
def test_every_answer_of_a_map_that_moves_holds(name: str) -> None:
    nemesis = nemeses.NEMESES[name](random.Random(271))
    nemesis.zones = nemesis.moves = True
    verdict = chaos.Chaos(nemesis, CONSOLE, rounds=3).run()
    assert verdict.good
    assert verdict.faults["map moved"] == 3


class OldLeaders(nemeses.Pause):
    """Leaders in the zone stand still, and answer for reads alone when they go on."""

    members = 3
    replicas = 3
    local_reads = True

    def victim(self) -> ManagedMember:
        return self.zone_leader()

    def strike(self) -> str:
        victim = self.victim()
        with nemeses.paused(victim):
            time.sleep(8)
        time.sleep(1)
        return f"paused {victim.name}"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_leaders_that_answer_alone_show_the_past() -> None:
    nemesis = OldLeaders(random.Random(271))
    nemesis.zones = True
    campaign = chaos.Chaos(nemesis, CONSOLE, rounds=6)
    verdict = campaign.run()
    campaign.show()
    broken = [one for found in verdict.judged.broken.values() for one in found]
    assert broken
    assert all(one.key.startswith(chaos.ZONED.prefix) for one in broken)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("mode", chaos.MODES)
def test_members_that_lie_are_found(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    monkeypatch.setattr(cluster, "COMMAND", [cluster.COMMAND[0], "-c", f"{LIAR}{LIES[mode]}main()"])
    verdict = chaos.Chaos(Nothing(random.Random(1)), CONSOLE, rounds=1, pinned=1).run()
    assert verdict.judged.broken[mode]
    assert not verdict.good


def test_a_member_has_the_calendar_that_it_was_given(tmp_path: Path) -> None:
    try:
        clock = nemeses.Clock(random.Random(1))
    except DemoError as missing:
        pytest.skip(str(missing))
    with ExitStack() as stack:
        members = clock.prepare(stack, tmp_path)
        assert isinstance(members, nemeses.FakedCluster)
        members.data_members = 1
        stack.enter_context(members)
        (member,) = members.members
        members.set_offset(member, -86_400.0)
        members.kill(member)
        (member,) = members.restart([member])
        said_s = time.time() - datetime.strptime(member.log.read_text()[:19], "%Y-%m-%d %H:%M:%S").timestamp()  # noqa: DTZ007
    assert 86_390 < said_s < 86_700


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", nemeses.NEMESES)
def test_ten_minutes(name: str) -> None:
    assert chaos.main(name, seed=271, java=JAVA, console=CONSOLE) == 0
