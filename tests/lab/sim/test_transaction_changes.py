"""Which changes belong together? Change streams name the transaction, whoever tells them and from wherever."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec
import pytest
from tests.lab.sim.stage import Stage, clean
from tests.lab.sim.test_changes import Reader
from tests.lab.sim.transaction_stage import Desk, Told, transactional
from tests.sampled_cases import sampled

from holdfast.actions.drain import Drain
from holdfast.config import Settings
from holdfast.core.events import ActionRequested
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.core.model.transaction_orders import OperateIn, TransactionFate
from holdfast.core.model.transactions import TransactionId
from holdfast.wire import own
from holdfast_lab.sim.calls import wire_key
from holdfast_lab.sim.workload import MAP

OTHER = "orders"
Writes = dict[tuple[str, bytes], bytes | None]
"""What a transaction makes of entries; None: they are gone."""


def streamed(backups: int = 1, changes_bytes: int = 1 << 20) -> Settings:
    base = transactional(backups)
    chosen = msgspec.structs.replace(base.map(MAP), changes_bytes=changes_bytes)
    return msgspec.structs.replace(base, maps={**base.maps, MAP: chosen, OTHER: chosen})


def key_in(partition: int, number: int) -> str:
    """A key of this partition, another one for each number."""
    mine = [key for key in map(str, range(2000)) if partition_of(wire_key(key), 0, 7) == partition]
    return mine[number]


@dataclass
class Begun:
    """A transaction, and what it shall do."""

    id: TransactionId
    writes: Writes
    told: Told = field(default_factory=Told)


def begin(desk: Desk, writes: Sequence[tuple[str, str, str]], *, optimistic: bool = False) -> Begun:
    """Begin one that writes these: map, key, value."""
    begun = Begun(desk.begin(optimistic=optimistic), {})
    for name, key, value in writes:
        raw = wire_key(key)
        op = Op.SET if value else Op.REMOVE
        told = desk.order(OperateIn(begun.id, Request(op, name, [0], raw, value.encode())))
        desk.stage.wait(0.2)
        assert told.fate is TransactionFate.DONE, told.answers
        begun.writes[name, raw] = value.encode() or None
    return begun


def single(stage: Stage, name: str, key: str, value: str) -> list[Outcome]:
    answers: list[Outcome] = []
    raw = wire_key(key)
    request = Request(Op.SET, name, [partition_of(raw, 0, 7)], raw, value.encode())
    process = stage.processes[0]
    process.step(partial(process.driver.execute, request, answers.append))
    return answers


class Streams:
    """The change streams of both maps."""

    def __init__(self, stage: Stage, bytes_max: int = 700) -> None:
        self.readers = {name: Reader(stage, bytes_max, name) for name in (MAP, OTHER)}

    def read(self, *, primaries: bool = True) -> None:
        for reader in self.readers.values():
            reader.read(primaries=primaries)

    def check(self) -> None:
        for reader in self.readers.values():
            reader.check()
            assert reader.refusals == []

    def found(self) -> dict[bytes | None, Writes]:
        """What each transaction has done; under None, what was done outside of any."""
        found: dict[bytes | None, Writes] = {}
        for name, reader in self.readers.items():
            for _, seen in sorted(reader.seen.items(), key=lambda one: one[0]):
                gone = seen.kind is own.ChangeKind.REMOVE
                found.setdefault(seen.transaction, {})[name, seen.key] = None if gone else seen.value
        return found


def run(stage: Stage) -> dict[bytes | None, Writes]:
    """Transactions of both kinds, over one partition and over several, among single writes."""
    desks = [Desk(stage, process) for process in stage.processes]
    expected: dict[bytes | None, Writes] = {None: {}}
    for turn in range(6):
        desk, optimistic = desks[turn % len(desks)], turn % 2 == 1
        partitions = [turn] if turn in (2, 3) else [turn, (turn + 2) % 7, (turn + 3) % 7]
        writes = [
            (name, key_in(partition, 20 * turn + at), f"{turn}.{at}" + "x" * 100)
            for at in range(3)
            for name in (MAP, OTHER)
            for partition in partitions
        ]
        begun = begin(desk, writes, optimistic=optimistic)
        before = [single(stage, name, key_in(turn, 20 * turn + 10), "single") for name in (MAP, OTHER)]
        begun.told = desk.commit(begun.id)
        after = [single(stage, name, key_in(turn, 20 * turn + 11), "single") for name in (MAP, OTHER)]
        stage.wait(1)
        assert begun.told.fate is TransactionFate.DONE, begun.told.answers
        assert [[one.status for one in each] for each in before + after] == [[Status.OK]] * 4
        expected[begun.id] = begun.writes
        for name in (MAP, OTHER):
            for at in (10, 11):
                expected[None][name, wire_key(key_in(turn, 20 * turn + at))] = b"single"
    return expected


def test_each_transaction_is_found_whole_by_its_id_and_single_changes_have_none() -> None:
    stage = Stage(3, settings=streamed())
    expected = run(stage)
    for primaries, bytes_max in ((True, 1 << 20), (True, 500), (False, 500)):
        streams = Streams(stage, bytes_max)
        streams.read(primaries=primaries)
        streams.check()
        assert streams.found() == expected
    clean(stage)


def test_a_remove_names_its_transaction_too() -> None:
    stage = Stage(3, settings=streamed())
    desk = Desk(stage, stage.processes[0])
    key = key_in(1, 0)
    single(stage, MAP, key, "there")
    stage.wait(1)
    begun = begin(desk, [(MAP, key, ""), (OTHER, key, "moved"), (OTHER, key_in(2, 0), "v")])
    begun.told = desk.commit(begun.id)
    stage.wait(1)
    streams = Streams(stage)
    streams.read()
    assert streams.found() == {None: {(MAP, wire_key(key)): b"there"}, begun.id: begun.writes}
    assert begun.writes[MAP, wire_key(key)] is None


def test_what_is_rolled_back_is_not_told() -> None:
    stage = Stage(3, settings=streamed())
    desk = Desk(stage, stage.processes[0])
    begun = begin(desk, [(MAP, key_in(partition, 0), "v") for partition in range(3)])
    desk.roll_back(begun.id)
    stage.wait(1)
    streams = Streams(stage)
    streams.check()
    assert streams.found() == {}


@pytest.mark.parametrize("at_ms", sampled([0, 1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 40], 2))
def test_a_primary_dies_while_transactions_commit_and_each_is_told_whole_or_not_at_all(at_ms: int) -> None:
    stage = Stage(3, settings=streamed())
    desks = [Desk(stage, process) for process in stage.processes]
    streams = Streams(stage)
    all_begun = [
        begin(desk, [(name, key_in(part, number), f"{number}") for name in (MAP, OTHER) for part in parts])
        for number, (desk, parts) in enumerate([(desks[1], range(7)), (desks[2], range(4)), (desks[2], [5])])
    ]
    for desk, begun in zip([desks[1], desks[2], desks[2]], all_begun, strict=True):
        begun.told = desk.commit(begun.id)
    stage.wait(at_ms / 1000)
    streams.read()
    victim = stage.processes.pop(0)
    victim.crash()
    stage.wait(0.5)
    streams.read()
    stage.wait(40)
    stage.rest()
    streams.check()
    late = Streams(stage, 1 << 20)
    late.read(primaries=False)
    late.check()
    found = streams.found()
    assert late.found() == found
    assert None not in found
    for begun in all_begun:
        told = found.pop(begun.id, None)
        assert told in (None, begun.writes), "half of it"
        if begun.told.fate is TransactionFate.DONE:
            assert told is not None
        if begun.told.fate is TransactionFate.ROLLED_BACK:
            assert told is None
    assert found == {}


def test_after_a_power_cut_the_journal_names_them_still() -> None:
    stage = Stage(3, settings=streamed(changes_bytes=1000))
    expected = run(stage)
    half = Streams(stage)
    half.read()
    stage.cluster.power_cut_everywhere()
    stage.world.weather.refusal = 1.0
    stage.processes = [stage.cluster.start(host, bootstrap=host == 0) for host in range(3)]
    stage.rest(120)
    late = Streams(stage)
    late.read()
    assert late.found() == half.found() == expected


def test_copies_that_move_take_the_names_along() -> None:
    stage = Stage(2, spare=2, settings=streamed())
    expected = run(stage)
    stage.processes += [stage.cluster.start(2), stage.cluster.start(3)]
    stage.rest()
    for process in stage.processes[:2]:
        process.step(partial(process.driver.handle, ActionRequested(Drain())))
    stage.wait(30)
    stage.processes = stage.processes[2:]
    stage.rest()
    streams = Streams(stage)
    streams.check()
    assert streams.found() == expected
