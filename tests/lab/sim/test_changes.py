"""Change streams in a simulated cluster: what a reader is told while members come, go, crash and start again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec
import pytest
from tests.lab.sim.scenarios.keeping import kept
from tests.lab.sim.stage import Stage

from holdfast.actions.drain import Drain
from holdfast.config import Settings
from holdfast.core.events import ActionRequested
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.core.primary_backup import clearings
from holdfast.server import change_questions as changes
from holdfast.wire import own
from holdfast_lab.sim.ablations.switching import ablated
from holdfast_lab.sim.calls import wire_key
from holdfast_lab.sim.clocks import SKEW_MS, WALL_MS
from holdfast_lab.sim.cluster import simulated_settings
from holdfast_lab.sim.workload import MAP
from holdfast_lab.sim.world import Process

PARTITIONS = 7
BYTES = 1 << 20
KEYS = [f"k{number}" for number in range(40)]


def streamed(base: Settings, changes_bytes: int = BYTES) -> Settings:
    """Settings with change streams of all maps."""
    maps = {
        name: msgspec.structs.replace(chosen, changes_bytes=changes_bytes)
        for name, chosen in base.maps.items()
    }
    return msgspec.structs.replace(base, maps=maps)


def partition_at(key: str) -> int:
    return partition_of(wire_key(key), 0, PARTITIONS)


@dataclass(frozen=True)
class Seen:
    """What a change was, wherever it was read."""

    kind: own.ChangeKind
    key: bytes
    value: bytes
    old: bytes
    time_ms: int
    transaction: bytes | None


class Reader:
    """Reads all changes, a few at a time, from the members that a client would ask; keeps what they come to."""

    def __init__(self, stage: Stage, bytes_max: int = 700, name: str = MAP) -> None:
        self.stage = stage
        self.name = name
        self.bytes_max = bytes_max
        self.at = dict.fromkeys(range(PARTITIONS), (0, 0))
        """Counter and term of the last update that was read, by partition."""
        self.content: dict[int, dict[bytes, bytes]] = {partition: {} for partition in range(PARTITIONS)}
        self.seen: dict[tuple[int, int, int], Seen] = {}
        """By partition, term and counter."""
        self.refusals: list[str] = []

    def heads(self) -> dict[int, own.Head]:
        """The newest heads that members in office tell."""
        found: dict[int, own.Head] = {}
        for process in self.stage.cluster.living():
            question = own.AskHeads(1, self.name, list(range(PARTITIONS)))
            for head in changes.heads(process.driver.member.changes, question).heads:
                known = found.get(head.partition)
                if known is None or (known.term, known.counter) < (head.term, head.counter):
                    found[head.partition] = head
        return found

    def ask(self, process: Process, question: own.AskChanges) -> own.Changes:
        answers: list[own.Changes] = []

        def deed() -> None:
            changes.ask(process.driver.callers, question, answers.append)

        process.step(deed)
        if not answers:
            self.stage.wait(1)
        (answer,) = answers
        return answer

    def read(self, *, primaries: bool = True) -> None:
        """Read up to the present heads; `primaries`: ask them first, else last."""
        for partition, head in sorted(self.heads().items()):
            if not head.follows(*self.at[partition]):
                self.refusals = [f"{self.at[partition]} does not lead to {head}"]
            while self.at[partition][0] < head.counter:
                if not self._some(partition, head, primaries=primaries):
                    break

    def _some(self, partition: int, head: own.Head, *, primaries: bool) -> bool:
        after, after_term = self.at[partition]
        question = own.AskChanges(
            1, self.name, partition, after, after_term, head.counter, self.bytes_max, head.term
        )
        refusals: list[str] = []
        for process in self._in_turn(partition, primaries=primaries):
            answer = self.ask(process, question)
            if answer.upto > after:
                self._take(partition, answer)
                self.at[partition] = (answer.upto, answer.term)
                return True
            refusals.append(answer.why)
        self.refusals = refusals
        return False

    def _in_turn(self, partition: int, *, primaries: bool) -> Iterable[Process]:
        living = self.stage.cluster.living()
        row = living[0].driver.member.table.rows[partition]
        return sorted(
            living, key=lambda one: (row.owner == one.driver.member.me) is not primaries, reverse=False
        )

    def _take(self, partition: int, answer: own.Changes) -> None:
        olds = own.ColumnBatch(
            len(answer.counters), answer.old_offsets, answer.olds, answer.old_offsets, answer.olds
        ).split()[0]
        rows = zip(
            answer.counters,
            answer.terms,
            answer.kinds,
            answer.times_ms,
            *answer.columns.split(),
            olds,
            answer.transaction_ids(),
            strict=True,
        )
        content = self.content[partition]
        last = self.at[partition][0]
        for counter, term, number, time_ms, key, value, old, transaction in rows:
            kind = own.ChangeKind(number)
            assert last < counter <= answer.upto
            last = counter
            seen = Seen(kind, key, value, old, time_ms, transaction)
            assert self.seen.setdefault((partition, term, counter), seen) == seen
            assert WALL_MS < time_ms + SKEW_MS <= WALL_MS + 2 * SKEW_MS + self.stage.world.now_ns // 1_000_000
            if kind is own.ChangeKind.INSERT:
                assert key not in content
                assert old == b""
            else:
                assert content.pop(key) == old
            if kind is not own.ChangeKind.REMOVE:
                content[key] = value

    def check(self) -> None:
        """What was read comes to what the primaries hold, and nothing is missing."""
        self.read()
        for process in self.stage.cluster.living():
            for partition, copy in enumerate(process.driver.member.lane.leading):
                if copy is not None:
                    held = copy.maps.get(self.name)
                    assert self.content[partition] == (held.state.entries if held is not None else {})
                    assert self.at[partition][0] == (held.counter if held is not None else 0)


def put_all(
    stage: Stage, word: str, keys: Iterable[str] = KEYS, through: Sequence[Process] = ()
) -> list[list[Outcome]]:
    """Write all keys through these members in turn, or all, without waiting."""
    living = through or stage.cluster.living()
    return [
        stage.ask(living[number % len(living)], Op.SET, key, f"{word}-{key}")
        for number, key in enumerate(keys)
    ]


def all_done(answers: list[list[Outcome]]) -> None:
    assert [[one.status for one in outcome] for outcome in answers] == [[Status.OK]] * len(answers)


def test_a_reader_is_told_of_every_insert_update_and_remove_once() -> None:
    stage = Stage(3, settings=streamed(simulated_settings(1, PARTITIONS)))
    reader = Reader(stage)
    for word in ("a", "b"):
        answers = put_all(stage, word)
        stage.wait(1)
        all_done(answers)
        reader.read(primaries=word == "a")
    removed = [stage.ask(stage.processes[0], Op.REMOVE, key) for key in KEYS[:10]]
    stage.wait(1)
    all_done(removed)
    reader.check()
    kinds = [seen.kind for seen in reader.seen.values()]
    assert {kind: kinds.count(kind) for kind in own.ChangeKind} == {
        own.ChangeKind.INSERT: 40,
        own.ChangeKind.UPDATE: 40,
        own.ChangeKind.REMOVE: 10,
    }
    again = Reader(stage, bytes_max=1 << 20)
    again.read(primaries=False)
    assert again.seen == reader.seen


@pytest.mark.parametrize("slice_bytes", [clearings.SLICE_BYTES, 1])
def test_what_is_cleared_or_ends_is_told_entry_by_entry(
    slice_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clearings, "SLICE_BYTES", slice_bytes)
    stage = Stage(2, settings=streamed(simulated_settings(1, PARTITIONS)))
    reader = Reader(stage)
    put_all(stage, "a")
    stage.wait(1)
    process = stage.processes[0]
    answers: list[Outcome] = []
    request = msgspec.structs.replace(
        _request(Op.SET, "short", "lived"),
        ttl_ms=2000,
    )
    process.step(partial(process.driver.execute, request, answers.append))
    stage.wait(5)
    whole = msgspec.structs.replace(_request(Op.CLEAR, "any"), partitions=list(range(PARTITIONS)), key=b"")
    process.step(partial(process.driver.execute, whole, answers.append))
    stage.wait(1)
    assert [answer.value for answer in answers] == [None, len(KEYS)]
    reader.check()
    removed = [seen.old for seen in reader.seen.values() if seen.kind is own.ChangeKind.REMOVE]
    assert sorted(removed) == sorted([b"lived", *(f"a-{key}".encode() for key in KEYS)])


def _request(op: Op, key: str, value: str = "") -> Request:
    raw = wire_key(key)
    return Request(op, MAP, [partition_at(key)], raw, value.encode())


def test_history_goes_with_partitions_that_move_away_from_everybody() -> None:
    stage = Stage(2, spare=2, settings=streamed(simulated_settings(1, PARTITIONS, chunk_bytes=300)))
    for word in ("a", "b", "c"):
        all_done_after(stage, put_all(stage, word))
    first = stage.processes[:2]
    stage.processes += [stage.cluster.start(2), stage.cluster.start(3)]
    moving = []
    for step in range(20):
        moving += put_all(stage, f"moving{step}", KEYS[step::20])
        stage.wait(0.3)
    stage.rest()
    for process in first:
        process.step(partial(process.driver.handle, ActionRequested(Drain())))
        for step in range(20):
            moving += put_all(stage, f"leaving{step}", KEYS[step::20], stage.processes[2:])
            stage.wait(0.2)
        stage.wait(20)
    assert all(process.left for process in first)
    stage.processes = stage.processes[2:]
    stage.rest()
    all_done(moving)
    for primaries in (True, False):
        reader = Reader(stage)
        reader.read(primaries=primaries)
        reader.check()
        assert reader.refusals == []
        assert len(reader.seen) == sum(
            copy.maps[MAP].counter
            for process in stage.processes
            for copy in process.driver.member.lane.leading
            if copy is not None and MAP in copy.maps
        )


def all_done_after(stage: Stage, answers: list[list[Outcome]]) -> None:
    stage.wait(1)
    all_done(answers)


def test_a_crash_of_primaries_takes_back_nothing_that_was_told() -> None:
    stage = Stage(4, settings=streamed(simulated_settings(2, PARTITIONS)))
    reader = Reader(stage)
    for number in (1, 2):
        for step in range(12):
            put_all(stage, f"{number}-{step}", KEYS[step % 3 :: 3])
            stage.wait(0.0004 * step)
            reader.read()
        put_all(stage, f"last{number}")
        stage.wait(0.0011)
        reader.read()
        victim = stage.processes.pop(number)
        victim.crash()
        stage.wait(0.5)
        stage.rest()
        all_done_after(stage, put_all(stage, f"after{number}"))
        reader.check()
        assert reader.refusals == []


def told_before_it_is_safe() -> tuple[Reader, Stage, str]:
    """A reader asks while the backup of a write cannot be reached; then the primary crashes."""
    stage = Stage(3, settings=streamed(simulated_settings(1, PARTITIONS)))
    key = KEYS[0]
    stage.put(stage.processes[0], key, "before")
    owner, backup = stage.owner_of(key), stage.backups_of(key)[0]
    reader = Reader(stage)
    reader.read()
    stage.cut(owner, backup)
    answers = stage.ask(owner, Op.SET, key, "lost")
    stage.wait(0.2)
    assert answers == []
    reader.read()
    owner.crash()
    stage.processes.remove(owner)
    stage.heal()
    stage.rest()
    assert stage.get(stage.processes[0], key) == "before"
    return reader, stage, key


def test_a_change_is_told_only_when_every_sync_backup_holds_it() -> None:
    reader, stage, key = told_before_it_is_safe()
    stage.put(stage.processes[0], key, "after")
    reader.check()
    assert reader.content[partition_at(key)][wire_key(key)] == b"after"


@ablated("told-when-safe")
def test_without_the_rule_a_reader_is_told_of_what_is_gone_later() -> None:
    reader, stage, key = told_before_it_is_safe()
    assert reader.content[partition_at(key)][wire_key(key)] == b"lost"
    stage.put(stage.processes[0], key, "after")
    reader.read()
    assert reader.content[partition_at(key)][wire_key(key)] == b"lost"
    assert any("does not lead to" in why for why in reader.refusals), "the same number, of another term"
    stage.put(stage.processes[0], key, "once more")
    reader.read()
    assert reader.content[partition_at(key)][wire_key(key)] == b"lost"
    assert any("is not of the history that is held here" in why for why in reader.refusals)


def test_async_backups_are_not_waited_for_and_without_backups_nobody_is() -> None:
    base = simulated_settings(1, PARTITIONS)
    for backups, async_backups in ((0, 1), (0, 0)):
        maps = {
            "default": msgspec.structs.replace(
                base.maps["default"], backups=backups, async_backups=async_backups, changes_bytes=BYTES
            )
        }
        stage = Stage(2, settings=msgspec.structs.replace(base, maps=maps))
        stage.cut(stage.processes[0], stage.processes[1])
        stage.cut(stage.processes[1], stage.processes[0])
        key = KEYS[0]
        answers = stage.ask(stage.owner_of(key), Op.SET, key, "value")
        assert [answer.status for answer in answers] == [Status.OK]
        stage.wait(0)  # The turn ends.
        reader = Reader(stage)
        reader.read()
        assert reader.content[partition_at(key)] == {wire_key(key): b"value"}


@pytest.mark.parametrize("journal", [False, True])
def test_history_that_is_gone_is_said_to_be(journal: bool) -> None:
    base = (
        kept(1, history_bytes=0, segment_bytes=4096, checkpoint_bytes=4096)
        if journal
        else simulated_settings(1, PARTITIONS)
    )
    stage = Stage(2, settings=streamed(base, 10_000))
    early, late = Reader(stage), Reader(stage)
    for step in range(60):
        all_done_after(stage, put_all(stage, f"{step}" + "x" * 100))
        early.read()
    early.check()
    late.read()
    behind = [partition for partition, (counter, _) in late.at.items() if not counter]
    assert behind == list(range(PARTITIONS))
    assert all("changes are remembered here" in why for why in late.refusals)


def test_after_a_restart_of_everybody_the_journal_goes_on_where_it_was() -> None:
    stage = Stage(3, settings=streamed(kept(1)))
    reader, other = Reader(stage), Reader(stage)
    for word in ("a", "b"):
        all_done_after(stage, put_all(stage, word))
    reader.read()
    for word in ("c", "d"):
        all_done_after(stage, put_all(stage, word))
    stage.ask(stage.processes[0], Op.REMOVE, KEYS[0])
    stage.wait(1)
    last = Reader(stage)
    last.check()
    stage.cluster.power_cut_everywhere()
    stage.world.weather.refusal = 1.0
    stage.processes = [stage.cluster.start(host, bootstrap=host == 0) for host in range(3)]
    stage.rest(120)
    reader.read()
    assert reader.refusals == []
    assert reader.seen == last.seen
    all_done_after(stage, put_all(stage, "e"))
    for one in (reader, other, last):
        one.check()
        assert one.refusals == []
    assert reader.seen == other.seen == last.seen
    assert {len(term) for term in _terms(reader).values()} == {2}


@pytest.mark.rule("state_transfer/D-5")
def test_after_a_restart_history_is_known_that_came_with_copies() -> None:
    stage = Stage(2, spare=2, settings=streamed(kept(1, chunk_bytes=300)))
    for word in ("a", "b"):
        all_done_after(stage, put_all(stage, word))
    stage.processes += [stage.cluster.start(2), stage.cluster.start(3)]
    stage.rest()
    for process in stage.processes[:2]:
        process.step(partial(process.driver.handle, ActionRequested(Drain())))
    stage.wait(30)
    stage.rest()
    all_done_after(stage, put_all(stage, "c", through=stage.processes[2:]))
    stage.cluster.power_cut_everywhere()
    stage.world.weather.refusal = 1.0
    stage.processes = [stage.cluster.start(host, bootstrap=host == 2) for host in (2, 3)]
    stage.rest(120)
    reader = Reader(stage)
    reader.check()
    assert reader.refusals == []
    assert len(reader.seen) == 3 * len(KEYS)


def _terms(reader: Reader) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    for partition, term, _ in reader.seen:
        found.setdefault(partition, set()).add(term)
    return found
