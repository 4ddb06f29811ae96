"""Reads of backups that lag behind: never older than what the member was answered before."""

from __future__ import annotations

from functools import partial

import pytest
from tests.lab.sim.stage import Stage
from tests.lab.sim.test_indeterminate import request, send
from tests.sampled_cases import sampled

from holdfast.actions.drain import Drain
from holdfast.config import MapSettings
from holdfast.core.events import ActionRequested
from holdfast.core.messages import Answer, Forward, Replicate
from holdfast.core.model.ids import MILLISECOND, SECOND, Address
from holdfast.core.model.keys import partition_of
from holdfast.core.model.levels import LOWEST, MESSAGE_BATCHES, FeatureLevels
from holdfast.core.model.operations import Op, Outcome, Status
from holdfast.engine.link import HEADER
from holdfast.wire.codec import decode
from holdfast_lab.sim.ablations.switching import ablated
from holdfast_lab.sim.calls import wire_key
from holdfast_lab.sim.cluster import simulated_settings
from holdfast_lab.sim.workload import MAP
from holdfast_lab.sim.world import Process

ALONE = FeatureLevels(LOWEST, MESSAGE_BATCHES - 1)
"""Messages of one step leave one by one, so a record may come after an answer that was sent with it."""


def stage(*, backups: int, async_backups: int, hosts: int = 4) -> Stage:
    settings = simulated_settings(backups, 7)
    settings.maps["default"] = MapSettings(backups=backups, async_backups=async_backups, read_backups=True)
    return Stage(hosts, settings=settings, builds=[ALONE] * hosts)


def forwards(told: Stage) -> list[str]:
    """Who sends requests on, as it happens."""
    seen: list[str] = []

    def overhear(sender: Process, to: str, packet: bytes) -> None:
        if len(packet) > HEADER.size and isinstance(decode(packet[HEADER.size :]), Forward):
            seen.append(sender.name)

    told.world.overhearing.append(overhear)
    return seen


def test_backups_answer_by_themselves_and_others_ask() -> None:
    told = stage(backups=1, async_backups=1)
    owner, (first, second) = told.owner_of("a"), told.backups_of("a")
    stranger = next(process for process in told.processes if process not in (owner, first, second))
    told.put(owner, "a", "1")
    seen = forwards(told)
    assert [told.get(process, "a") for process in (owner, first, second, stranger)] == ["1"] * 4
    assert seen == [stranger.name]


def test_what_a_primary_has_shown_counts_when_it_is_a_primary_no_more() -> None:
    """Its sessions went by the data lane, which notes nothing."""
    told = stage(backups=1, async_backups=0)
    owner = told.owner_of("a")
    told.put(owner, "a", "1")
    partition = partition_of(wire_key("a"), 0, 7)
    copy = owner.driver.member.copies.held[partition]
    shown = (copy.maps[MAP].term, copy.maps[MAP].counter)
    owner.step(partial(owner.driver.handle, ActionRequested(Drain())))
    told.wait(20)
    positions = owner.driver.member.router.backup_reads.positions
    assert positions.allow(partition, MAP, shown)
    assert not positions.allow(partition, MAP, (shown[0], shown[1] - 1))


def lagging(told: Stage, backup: Process, lag_ns: int) -> list[type]:
    """Records reach this backup late; what is sent before them on the same link does not wait for them."""
    order: list[type] = []

    def tap(sender: Process, address: Address, packet: bytes, linked: bool) -> tuple[int, ...]:
        if linked and address == backup.address and len(packet) > HEADER.size:
            message = decode(packet[HEADER.size :])
            order.append(type(message))
            if isinstance(message, Replicate):
                return (lag_ns,)
        return (0,)

    told.world.tap = tap
    return order


def write_and_read() -> list[tuple[str, str | None]]:
    """Through a member with an async backup, whose records come late: each value written, and what is read then."""
    told = stage(backups=0, async_backups=1)
    backup = told.backups_of("a")[0]
    order = lagging(told, backup, 300 * MILLISECOND)
    found: list[tuple[str, str | None]] = []
    overtaken = 0
    for number in range(30):
        del order[:]
        written = send(backup, request(Op.SET, "a", str(number)))
        deadline_ns = told.world.now_ns + 2 * SECOND
        told.world.run_until(deadline_ns, stop=lambda written=written: bool(written))  # type: ignore[misc]
        assert [outcome.status for outcome in written] == [Status.OK]
        overtaken += order.index(Answer) < order.index(Replicate) if Replicate in order else 1
        read = send(backup, request(Op.GET, "a"))
        told.wait(1)
        (outcome,) = read
        value = outcome.value
        found.append((str(number), value.decode() if isinstance(value, bytes) else None))
    assert overtaken > 3, "the answer was often there before the record"
    return found


def test_who_has_written_reads_it_though_its_backup_does_not_have_it_yet() -> None:
    assert [pair for pair in write_and_read() if pair[0] != pair[1]] == []


@ablated("monotonic-reads")
def test_without_the_rule_older_values_are_read() -> None:
    assert [pair for pair in write_and_read() if pair[0] != pair[1]]


@pytest.mark.parametrize("seed", sampled(range(4), 2))
def test_values_never_go_back_while_primaries_change(seed: int) -> None:
    """One client writes numbers, one after the other, through all members; readers ask all members all the time; twice
    the primary dies.
    """
    told = stage(backups=1, async_backups=1, hosts=6)
    told.world.random.seed(seed)
    reads: dict[str, list[tuple[int, int, int]]] = {process.name: [] for process in told.processes}
    writes: list[list[Outcome]] = []
    for moment in range(400):
        living = told.cluster.living()
        for process in living:
            start_ns = told.world.now_ns

            def heard(outcome: Outcome, process: Process = process, start_ns: int = start_ns) -> None:
                if outcome.status is Status.OK and isinstance(outcome.value, bytes):
                    reads[process.name].append((start_ns, told.world.now_ns, int(outcome.value)))

            process.step(partial(process.driver.execute, request(Op.GET, "a"), heard))
        if not writes or writes[-1]:
            writes.append(send(living[moment % len(living)], request(Op.SET, "a", str(len(writes)))))
        told.wait(0.05)
        if moment in (60, 260):
            told.processes = living
            told.owner_of("a").crash()
    told.wait(20)
    # A writer that died with its answer has left the rest to nobody.
    acknowledged = {value for value, answer in enumerate(writes) if answer and answer[0].status is Status.OK}
    assert len(acknowledged) > 100
    assert sum(len(found) for found in reads.values()) > 800
    for name, found in reads.items():
        for at, (_, end_ns, value) in enumerate(found):
            older = [later for start_ns, _, later in found[at + 1 :] if start_ns >= end_ns and later < value]
            assert value not in acknowledged or not older, (name, value, older[:3])
