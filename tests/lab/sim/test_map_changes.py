"""Settings of maps that change while the cluster runs: whatever is acknowledged survives as many crashes as its map has
backups by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import msgspec
import pytest
from tests.lab.sim.stage import Stage, clean, settings
from tests.sampled_cases import sampled

from holdfast.actions.reset_map import ResetMap
from holdfast.actions.set_map import SetMap
from holdfast.config import MapSettings, Settings
from holdfast.core.events import ActionRequested
from holdfast.core.model.levels import CHANGES_MAPS, OF_THIS_BUILD, FeatureLevels
from holdfast.core.model.map_changes import MapChanges, MapOrder
from holdfast.core.model.operations import Op, Status
from holdfast.core.state_transfer.map_copies import MapCopies
from holdfast_lab.sim.cluster import Journal, simulated_settings
from holdfast_lab.sim.workload import MAP
from holdfast_lab.sim.world import Process


def deep(backups: int = 1, journal: Journal = "off") -> Settings:
    """A second map has two backups, so every partition has a replica index that the others do not use."""
    found = simulated_settings(backups, 7, journal=journal)
    maps = {**found.maps, "deep": MapSettings(backups=2, journal=journal)}
    return msgspec.structs.replace(found, maps=maps)


def changes(stage: Stage) -> MapChanges:
    return stage.cluster.living()[0].picture.maps.changes


def order(stage: Stage, process: Process, name: str = MAP, **values: int) -> None:
    action = SetMap(name, {key: str(value) for key, value in values.items()})
    process.step(lambda: process.driver.handle(ActionRequested(action)))


def finished(stage: Stage, version: int) -> Callable[[], bool]:
    def reached() -> bool:
        known = [process.picture.maps.changes for process in stage.cluster.living()]
        return all(one.version >= version and one.done for one in known)

    return reached


def change(stage: Stage, name: str = MAP, **values: int) -> None:
    version = changes(stage).version + 1
    order(stage, stage.cluster.living()[-1], name, **values)
    stage.until(finished(stage, version), what="the change is not finished")


KEYS = [f"k{number}" for number in range(40)]


def fill(stage: Stage, value: str = "v") -> None:
    for number, key in enumerate(KEYS):
        living = stage.cluster.living()
        stage.ask(living[number % len(living)], Op.SET, key, f"{value}{number}")
    stage.wait(2)


def missing(stage: Stage, value: str = "v") -> list[str]:
    """Keys that do not have the value of `fill`."""
    process = stage.cluster.living()[0]
    return [key for number, key in enumerate(KEYS) if stage.get(process, key) != f"{value}{number}"]


def crash(stage: Stage, *processes: Process) -> None:
    for process in processes:
        process.crash()
    stage.processes = [process for process in stage.processes if process not in processes]
    stage.rest(120)


def test_a_raised_number_of_backups_survives_as_many_crashes() -> None:
    stage = Stage(5)
    fill(stage)
    change(stage, "default", backups=2)
    owner, backups = stage.owner_of("k0"), stage.backups_of("k0")
    assert len(backups) == 2
    crash(stage, owner, backups[0])
    assert missing(stage) == []


def test_replicas_that_other_maps_had_are_filled() -> None:
    stage = Stage(5, settings=deep())
    fill(stage)
    change(stage, "default", backups=2)
    owner, backups = stage.owner_of("k0"), stage.backups_of("k0")
    crash(stage, owner, backups[0])
    assert missing(stage) == []
    clean(stage, again=False)


def test_a_lowered_number_drops_copies_and_loses_nothing() -> None:
    stage = Stage(7, backups=2)
    fill(stage)
    change(stage, "default", backups=1)
    stage.rest()
    assert len(stage.backups_of("k0")) == 1
    change(stage, "default", backups=3)
    stage.rest()
    owner, backups = stage.owner_of("k0"), stage.backups_of("k0")
    assert len(backups) == 3
    crash(stage, owner, *backups[:2])
    assert missing(stage) == []


@pytest.mark.parametrize("before", [0, 1])
def test_from_and_to_no_backups(before: int) -> None:
    stage = Stage(5, settings=deep(before))
    fill(stage)
    change(stage, "default", backups=3)
    change(stage, "default", backups=0)
    change(stage, "default", backups=1)
    stage.rest()
    crash(stage, stage.owner_of("k0"))
    assert missing(stage) == []
    clean(stage, again=False)


# -- a replica counts when it is filled, not before


def shallow(backups: int = 1) -> Settings:
    """The map of these stories has fewer backups than all others."""
    found = settings(2)
    maps = {**found.maps, MAP: MapSettings(backups=backups)}
    return msgspec.structs.replace(found, maps=maps)


@contextmanager
def unfilled() -> Iterator[None]:
    """Nothing is filled meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MapCopies, "sweep", lambda _: None)
        yield


def crashed_while_filling(*, blocked: bool) -> list[str]:
    """The first two replicas crash while the third is still to be filled (`blocked`), or when it is; the keys that are
    missing then, if the cluster serves them all.
    """
    stage = Stage(5, settings=shallow())
    fill(stage)
    owner, backups = stage.owner_of("k0"), stage.backups_of("k0")
    assert len(backups) == 2
    with unfilled() if blocked else nullcontext():
        order(stage, backups[1], backups=2)
        if blocked:
            stage.wait(10)
        else:
            stage.until(finished(stage, 1))
        for process in (owner, backups[0]):
            process.crash()
        stage.wait(30)
    answers = [stage.ask(backups[1], Op.GET, key) for key in KEYS]
    stage.wait(5)
    return [
        key
        for number, (key, found) in enumerate(zip(KEYS, answers, strict=True))
        if found and found[0].value != f"v{number}".encode()
    ]


@pytest.mark.rule("model/C-1")
@pytest.mark.rule("state_transfer/N-1")
@pytest.mark.parametrize("blocked", [True, False])
def test_a_replica_that_is_still_to_be_filled_is_not_promoted(blocked: bool) -> None:
    assert crashed_while_filling(blocked=blocked) == []


@pytest.mark.rule("state_transfer/N-2")
def test_without_the_proof_it_is_promoted_and_acknowledged_writes_are_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(MapCopies, "proven_by_all", lambda *_: True)
    assert crashed_while_filling(blocked=True)


def acknowledged_without_the_last_backup(stage: Stage) -> bool:
    """Whether a write is acknowledged that its last backup does not get."""
    owner, backups = stage.owner_of("k0"), stage.backups_of("k0")
    stage.cut(owner, backups[-1])
    answers = stage.ask(owner, Op.SET, "k0", "late")
    stage.wait(1)
    stage.heal()
    return bool(answers)


@pytest.mark.rule("model/C-1")
def test_writes_wait_for_the_new_backup_when_it_is_filled_and_not_before() -> None:
    stage = Stage(5, settings=shallow())
    assert acknowledged_without_the_last_backup(stage)
    fill(stage)
    with unfilled():
        order(stage, stage.processes[1], backups=2)
        stage.wait(3)
        assert not finished(stage, 1)()
        assert acknowledged_without_the_last_backup(stage)
    stage.until(finished(stage, 1))
    assert not acknowledged_without_the_last_backup(stage)
    change(stage, backups=1)
    assert acknowledged_without_the_last_backup(stage)


def test_writes_to_other_maps_do_not_wait_while_a_replica_is_filled() -> None:
    """The records of both maps travel in one section."""
    stage = Stage(5, settings=shallow())
    fill(stage)
    with unfilled():
        order(stage, stage.processes[1], backups=2)
        stage.wait(3)
        owner = stage.owner_of("k0")
        answers = [stage.ask(owner, Op.SET, "k0", "v", name) for name in (MAP, "other")]
        stage.wait(1)
    assert [[answer.status for answer in each] for each in answers] == [[Status.OK]] * 2


# -- crashes, power failures, joins


@pytest.mark.parametrize("after", sampled(range(0, 3000, 250), 2))
@pytest.mark.rule("membership/C-1")
def test_the_next_master_goes_on_with_a_change(after: int) -> None:
    """The master crashes so many milliseconds after the order."""
    stage = Stage(4, settings=shallow())
    fill(stage)
    order(stage, stage.processes[1], backups=3, ttl_ms=3_600_000)
    stage.wait(after / 1000)
    stage.processes[0].crash()
    del stage.processes[0]
    stage.until(lambda: stage.cluster.settled() and finished(stage, 0)())
    stage.rest()
    known = changes(stage)
    assert missing(stage) == []
    ttls = {process.driver.member.settings.map(MAP).ttl_ms for process in stage.cluster.living()}
    assert ttls == ({3_600_000} if known.version else {0}), "all have it, or none"


@pytest.mark.rule("membership/C-2")
def test_changes_survive_a_stop_of_everybody_and_win_over_other_files() -> None:
    stage = Stage(4, settings=deep(journal="sync"))
    fill(stage)
    change(stage, backups=2, ttl_ms=3_600_000)
    change(stage, "default", max_idle_ms=7_200_000)
    stage.rest()
    contradicting = frozenset({"maps.default.max_idle_ms"})
    maps = {**stage.cluster.settings.maps}
    maps["default"] = msgspec.structs.replace(maps["default"], max_idle_ms=5)
    stage.cluster.settings = msgspec.structs.replace(stage.cluster.settings, maps=maps, given=contradicting)
    clean(stage)
    for process in stage.cluster.living():
        found = process.driver.member.settings.map(MAP)
        assert (found.backups, found.ttl_ms) == (2, 3_600_000)
        assert process.driver.member.settings.map("any").max_idle_ms == 7_200_000
    assert missing(stage) == []


def reset(stage: Stage, name: str = MAP) -> None:
    action, process = ResetMap(name), stage.processes[-1]
    process.step(lambda: process.driver.handle(ActionRequested(action)))
    stage.until(lambda: not action.waits_for(process.picture), what="the map is not reset")


@pytest.mark.rule("model/C-2")
@pytest.mark.parametrize("backups", [0, 3])
def test_a_reset_map_has_the_copies_of_the_configuration(backups: int) -> None:
    """From more copies or from fewer: then a crash of the owner loses nothing."""
    stage = Stage(4, settings=shallow())
    fill(stage)
    change(stage, backups=backups, ttl_ms=3_600_000)
    reset(stage)
    for process in stage.cluster.living():
        found = process.driver.member.settings.map(MAP)
        assert (found.backups, found.ttl_ms) == (stage.cluster.settings.map(MAP).backups, 0)
        assert process.picture.maps.changes.changes == ()
    stage.rest()
    crash(stage, stage.owner_of("k0"))
    assert missing(stage) == []


@pytest.mark.rule("membership/C-2")
@pytest.mark.rule("model/C-2")
def test_a_reset_map_follows_the_files_after_a_stop_of_everybody() -> None:
    stage = Stage(3, settings=deep(journal="sync"))
    fill(stage)
    change(stage, ttl_ms=3_600_000)
    change(stage, "default", max_idle_ms=7_200_000)
    reset(stage)
    stage.rest()
    clean(stage)
    for process in stage.cluster.living():
        assert process.driver.member.settings.map(MAP).ttl_ms == 0
        assert process.driver.member.settings.map("any").max_idle_ms == 7_200_000, (
            "another map keeps its change"
        )


@pytest.mark.rule("membership/C-2")
def test_a_member_that_joins_gets_the_changes() -> None:
    stage = Stage(3, settings=shallow(), spare=1)
    fill(stage)
    change(stage, backups=2, ttl_ms=3_600_000)
    joined = stage.cluster.start(3)
    stage.rest()
    assert joined.driver.member.settings.map(MAP).backups == 2
    assert joined.driver.member.settings.map(MAP).ttl_ms == 3_600_000


def test_it_waits_for_the_feature_level() -> None:
    stage = Stage(3, builds=[FeatureLevels(1, CHANGES_MAPS - 1), OF_THIS_BUILD, OF_THIS_BUILD])
    order(stage, stage.processes[1], ttl_ms=5)
    stage.wait(2)
    assert changes(stage) == MapChanges()
    picture = stage.processes[1].picture
    assert "holdfast cluster upgrade" in picture.maps.refusal_of(MapOrder(MAP, {"ttl_ms": 5}), picture.now_ns)


def test_an_order_that_was_accepted_waits_for_its_copies() -> None:
    """At its timeout a command then says that the cluster continues with it."""
    stage = Stage(5, settings=shallow())
    fill(stage)
    action, picture = SetMap(MAP, {"backups": "2"}), stage.processes[1].picture
    assert not action.declared.withdrawn
    with unfilled():
        order(stage, stage.processes[1], backups=2)
        stage.wait(3)
        assert f"copies of {MAP} are being made or dropped" in action.waits_for(picture)
    stage.until(finished(stage, 1))
    stage.wait(1)
    assert action.waits_for(picture) == ""
