"""Disks under simulated hosts: who may die when copies are on disks, and what each fault of a disk does."""

from __future__ import annotations

import pytest
from tests.lab.sim.stage import Stage, slots

from holdfast.core.model.ids import SECOND
from holdfast.engine.ports import Put
from holdfast_lab.sim.cluster import Journal, simulated_settings
from holdfast_lab.sim.disk import SimDisk
from holdfast_lab.sim.disk_faults import DiskFaults
from holdfast_lab.sim.faults import Faults
from holdfast_lab.sim.run import simulate
from holdfast_lab.sim.world import Process

HOSTS = 5


def stage(journal: Journal = "sync", hosts: int = HOSTS) -> Stage:
    """A cluster at rest in which nothing was written yet: rows and views are what the budget looks at."""
    found = Stage(hosts, settings=simulated_settings(1, 7, journal=journal))
    found.cluster.watch()
    found.wait(3)
    return found


def faults(found: Stage, power_cuts: int = 0) -> Faults:
    return Faults(1, found.world, found.cluster, found.world.now_ns + 60 * SECOND, power_cuts=power_cuts)


def sharing(found: Stage, one: Process) -> Process:
    """Somebody who alone holds a partition beside this one."""
    me = one.driver.member.me
    row = next(row for row in slots(one) if me in row[:2])
    (other,) = {row[0], row[1]} - {me}
    return next(process for process in found.processes if process.driver.member.me == other)


def apart(found: Stage, one: Process) -> Process:
    """Somebody who holds no partition together with this one."""
    me = one.driver.member.me
    together = {uuid for row in slots(one) if me in row[:2] for uuid in row[:2]}
    return next(process for process in found.processes if process.driver.member.me not in together)


# -- hosts and their disks


def test_hosts_have_disks_when_members_keep_files() -> None:
    assert stage("off").cluster.disks == []
    found = stage()
    assert [disk.name for disk in found.cluster.disks] == [f"host{index}" for index in range(HOSTS)]


def test_the_next_process_of_a_host_finds_its_disk() -> None:
    found = stage()
    first = found.processes[1]
    assert first.disk is not None
    before = found.cluster.disks[1].contents()
    first.disk.submit([Put(lambda: ("mark", b"of the first"))], lambda error: None, line="checkpoint")
    found.wait(1)
    first.crash()
    second = found.cluster.start(1)
    assert second.disk is not None
    assert second.disk is not first.disk
    assert second.disk.read("mark") == b"of the first"
    assert before.keys() <= {*second.disk.names()}


def test_a_power_cut_everywhere_ends_everybody() -> None:
    found = stage()
    found.cluster.power_cut_everywhere()
    assert found.cluster.living() == []


# -- the budget


def test_without_files_the_last_copy_may_not_die() -> None:
    found = stage("off")
    one = found.processes[1]
    other = sharing(found, one)
    one.crash()
    assert not found.cluster.may_die(other)


def test_a_copy_on_a_disk_is_not_lost() -> None:
    found = stage()
    one = found.processes[1]
    other = sharing(found, one)
    assert found.cluster.may_die(other, disk_too=True)
    one.crash()
    assert found.cluster.may_die(other)
    assert found.cluster.may_die(other, disk_too=True), "the other copy is on the disk of the first"


def test_of_two_disks_with_the_same_copies_only_one_may_be_lost() -> None:
    for wiped in (False, True):
        found = stage()
        one = found.processes[1]
        other = sharing(found, one)
        one.crash()
        found.cluster.distrust(one, wiped=wiped)
        assert not found.cluster.may_die(other, disk_too=True)
        assert found.cluster.may_die(other), "it comes back with its own"
        assert found.cluster.may_die(apart(found, one), disk_too=True)


def test_what_is_written_lazily_is_not_kept() -> None:
    found = stage("lazy")
    one = found.processes[1]
    other = sharing(found, one)
    one.crash()
    assert not found.cluster.may_die(other)
    assert not found.cluster.all_may_die()


def test_a_majority_must_live_even_if_disks_last() -> None:
    found = stage(hosts=3)
    found.processes[1].crash()
    assert not found.cluster.may_die(found.processes[2])


def test_a_process_whose_disk_has_failed_counts_as_dead() -> None:
    found = stage(hosts=3)
    assert found.cluster.may_die(found.processes[2])
    found.processes[1].doomed = True
    assert not found.cluster.may_die(found.processes[2])


def test_everybody_may_die_at_once_when_all_is_on_disks() -> None:
    assert stage().cluster.all_may_die()
    assert not stage("off").cluster.all_may_die()


def test_everybody_may_die_only_when_somebody_has_known_for_a_while_who_belongs_to_the_cluster() -> None:
    found = Stage(3, settings=simulated_settings(1, 7, journal="sync"), rest=False)
    assert not found.cluster.all_may_die()
    found.rest()
    found.wait(3)
    assert found.cluster.all_may_die()
    found.cluster.distrust(found.processes[1], wiped=True)
    assert not found.cluster.all_may_die(), "its files are gone, and others remember them"


def test_not_everybody_may_die_when_both_disks_of_a_copy_are_lost() -> None:
    found = stage()
    one = found.processes[1]
    found.cluster.distrust(one, wiped=False)
    assert found.cluster.all_may_die()
    found.cluster.distrust(sharing(found, one), wiped=False)
    assert not found.cluster.all_may_die()


def test_no_disk_may_be_lost_while_a_stopped_cluster_waits_for_all_files() -> None:
    found = stage()
    assert all(found.cluster.may_die(process, disk_too=True) for process in found.processes)
    found.cluster.power_cut_everywhere()
    for index in range(HOSTS):
        found.cluster.start(index)
    found.wait(1)
    assert len(found.cluster.living()) == HOSTS
    assert not any(found.cluster.may_die(process, disk_too=True) for process in found.cluster.living())


# -- each fault


def test_every_fault_has_a_deed() -> None:
    for kind in DiskFaults.DISK_KINDS:
        assert callable(getattr(DiskFaults, "_" + kind.replace("-", "_")))


def test_runs_without_disks_have_none_of_these() -> None:
    assert faults(stage("off")).disk_kinds() == []
    harm = faults(stage())
    assert set(harm.kinds) & set(DiskFaults.DISK_KINDS)


@pytest.mark.parametrize("kind", ["power-cut-all", "kill-all"])
def test_everybody_dies_and_comes_back(kind: str) -> None:
    found = stage()
    harm = faults(found)
    getattr(harm, "_" + kind.replace("-", "_"))()
    assert found.cluster.living() == []
    assert harm.counts == {kind: 1}
    found.world.run_until(found.world.now_ns + 16 * SECOND)
    assert len(found.cluster.living()) == HOSTS


def test_power_cuts_that_are_due_come_as_soon_as_they_may() -> None:
    found = stage()
    harm = Faults(1, found.world, found.cluster, found.world.now_ns + 5 * SECOND, power_cuts=1)
    found.cluster.distrust(found.processes[1], wiped=True)
    harm.start_power_cuts()
    deadline = found.world.now_ns + 30 * SECOND
    found.world.run_until(deadline, stop=lambda: not harm.power_cuts_due)
    assert harm.counts == {"power-cut-all": 1}
    assert found.world.now_ns < deadline


def test_a_full_and_a_slow_disk_are_well_again_after_a_while() -> None:
    found = stage()
    harm = faults(found)
    harm._disk_full()
    harm._slow_disk()
    assert any(disk.full for disk in found.cluster.disks)
    assert any(disk.slowness > 1 for disk in found.cluster.disks)
    found.wait(11)
    assert not any(disk.full or disk.slowness > 1 for disk in found.cluster.disks)


def test_a_sync_error_is_told_to_whoever_waits_and_its_process_comes_back_once_it_has_ended() -> None:
    found = stage()
    harm = faults(found)
    harm._fsync_error()
    told: list[tuple[Process, Exception | None]] = []
    for process in found.processes:
        assert process.disk is not None
        process.disk.submit(
            [Put(lambda: ("x", b"x"))],
            lambda error, process=process: told.append((process, error)),  # type: ignore[misc]
            line="checkpoint",
        )
    found.world.run_until(found.world.now_ns + SECOND)
    failed = [process for process in found.processes if process.doomed]
    assert len(failed) == 1
    assert harm.counts == {"fsync-error": 1}
    if not failed[0].dead:
        failed[0].broken("its journal is broken")
    found.world.run_until(found.world.now_ns + 10 * SECOND)
    again = found.world.processes[failed[0].address]
    assert again is not failed[0]
    assert not again.dead


def test_rot_spoils_files_of_one_host_which_comes_back() -> None:
    found = stage()
    for process in found.processes:
        assert process.disk is not None
        process.disk.submit([Put(lambda: ("mark.seg", b"x" * 5000))], lambda error: None, line="checkpoint")
    found.wait(1)
    before = [disk.contents()["mark.seg"] for disk in found.cluster.disks]
    harm = faults(found)
    harm._rot()
    assert harm.counts == {"rot": 1}
    (dead,) = [process for process in found.processes if process.dead]
    index = found.processes.index(dead)
    for other, disk in enumerate(found.cluster.disks):
        if other != index:
            assert disk.contents()["mark.seg"] == before[other]
    assert not found.cluster.may_die(sharing(found, dead), disk_too=True)
    found.world.run_until(found.world.now_ns + 8 * SECOND)
    assert not found.cluster.is_free(index)


def test_a_wiped_disk_is_empty_and_nobody_else_of_the_same_copies_loses_one() -> None:
    found = stage()
    harm = faults(found)
    harm._wiped_disk()
    assert harm.counts == {"wiped-disk": 1}
    (dead,) = [process for process in found.processes if process.dead]
    disk = found.cluster.disk_of(dead)
    assert disk is not None
    assert disk.contents() == {}
    assert not found.cluster.may_die(sharing(found, dead), disk_too=True)
    assert not found.cluster.all_may_die()


def test_all_disks_are_well_when_faults_end() -> None:
    found = stage()
    harm = faults(found)
    for disk in found.cluster.disks:
        disk.full, disk.slowness = True, 100.0
        disk.fail_armed(lambda: True)
        disk.cut_armed(1, found.cluster.power_cut_everywhere)
    harm.end()
    errors: list[Exception | None] = []
    for process in found.processes:
        assert process.disk is not None
        process.disk.submit([Put(lambda: ("x", b"x"))], errors.append, line="checkpoint")
    found.wait(1)
    assert errors == [None] * HOSTS
    assert len(found.cluster.living()) == HOSTS


# -- whole runs


def test_disks_that_forget_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judges of a run with power cuts can fail: here every power cut takes all files with it."""
    honest = SimDisk.power_cut

    def forgetful(disk: SimDisk) -> None:
        honest(disk)
        disk.wipe()

    monkeypatch.setattr(SimDisk, "power_cut", forgetful)
    assert not simulate(3, power_cuts=True).ok
