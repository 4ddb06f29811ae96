"""What the lane does to entries, what it tells of them, and what of it is written down or follows a migration."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.config import MapSettings, PartitionSettings, Settings
from holdfast.core.effects import Append, Send, SetTimer
from holdfast.core.journal.log import Log
from holdfast.core.messages import Replicate, Replicated
from holdfast.core.model.decisions import Update
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.journal_entries import Began
from holdfast.core.model.operations import DEFAULT_TTL, EntryEvent, EventKind
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Change, Record
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup import lane
from holdfast.core.primary_backup.backlog import RECORD_BYTES
from holdfast.core.primary_backup.lane import Awaited, Lane, Swept
from holdfast.core.store.map_state import FOLD_AT, MapState
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import Replica
from holdfast.core.store.service_state import ServiceState
from holdfast_lab.sim.ablations.switching import ablated

ME, BEN, CAL = (MemberId(name) for name in ("me", "ben", "cal"))


class Serving:
    """The primary of two partitions, each with one backup."""

    def __init__(self, *, journal: bool = False, **maps: MapSettings) -> None:
        self.out = Outbox()
        settings = Settings(
            partitions=PartitionSettings(count=2),
            maps={"default": MapSettings(backups=1), **maps},
        )
        self.log = Log(self.out, on=journal)
        self.lane = Lane(ME, settings, self.out, self.log)
        self.rows = [Assignment(1, (ME, BEN)), Assignment(1, (ME, CAL))]
        self.copies = [PartitionCopy(partition, 0) for partition in (0, 1)]
        self.lane.attach(self.rows)
        self.lane.serving = list(self.copies)
        self.heard: list[EntryEvent] = []
        self.lane.heard = self.heard.append
        self.told: list[bool] = []

    def set(
        self,
        key: bytes,
        ttl_ms: int = 0,
        max_idle_ms: int = 0,
        key_hash: int = 0,
        *,
        name: str = "m",
        partition: int = 0,
    ) -> bytes | None:
        return self.lane.set(self.copies[partition], name, key, b"value", ttl_ms, max_idle_ms, key_hash)

    def close_batch(self) -> None:
        self.lane.close_batch(self.told.append)

    def sent(self) -> dict[MemberId, Replicate]:
        self.lane.flush()
        effects = self.out.take()
        return {
            one.to: one.message
            for one in effects
            if isinstance(one, Send) and isinstance(one.message, Replicate)
        }

    def records(self) -> list[Record]:
        self.close_batch()
        return [
            record
            for one in self.sent().values()
            for section in one.sections
            for record in section.all_records()
        ]

    def expiry(self, key: bytes) -> tuple[int, int] | None:
        found = self.copies[0].maps["m"].state.expiries.get(key)
        return (found.ttl_ms, found.max_idle_ms) if found is not None else None


@pytest.mark.parametrize(
    ("given", "becomes"),
    [
        ((0, 0), None),
        ((5, 0), (5, 0)),
        ((0, 6), (0, 6)),
        ((DEFAULT_TTL, 6), (1000, 6)),
        ((5, DEFAULT_TTL), (5, 700)),
        ((DEFAULT_TTL, DEFAULT_TTL), (1000, 700)),
        ((0, DEFAULT_TTL), (0, 700)),
        ((DEFAULT_TTL, 0), (1000, 0)),
    ],
)
def test_times_that_are_not_given_are_those_of_the_map(
    given: tuple[int, int], becomes: tuple[int, int] | None
) -> None:
    serving = Serving(m=MapSettings(backups=1, ttl_ms=1000, max_idle_ms=700))
    for _ in range(2):
        serving.set(b"k", *given)
        assert serving.expiry(b"k") == becomes
    record = serving.records()[-1]
    assert (record.ttl_ms, record.max_idle_ms) == (becomes or (0, 0))


def test_a_plain_store_takes_an_earlier_time_away() -> None:
    serving = Serving()
    serving.set(b"k", 5)
    serving.set(b"k")
    assert serving.expiry(b"k") is None


def test_a_store_over_an_entry_with_time_left_ends_nothing() -> None:
    serving = Serving()
    serving.set(b"k", 5)
    assert serving.set(b"k") == b"value"
    assert [record.change for record in serving.records()] == [Change.SET, Change.SET]


def test_there_is_nothing_in_a_map_that_was_never_written() -> None:
    serving = Serving()
    assert serving.lane.read(serving.copies[0], "never", b"k") is None
    assert serving.copies[0].maps == {}


def test_what_is_not_there_is_not_taken_out() -> None:
    """Backups and listeners would be told that it was."""
    serving = Serving()
    serving.lane.listening["m"] = 1
    held = serving.lane.open(serving.copies[0], "m")
    assert serving.lane.take_out(serving.copies[0], held, b"k", EventKind.EVICTED) is None
    assert (serving.records(), serving.heard, held.counter) == ([], [], 0)


def test_records_without_a_change_stream_say_no_more_than_backups_need() -> None:
    serving = Serving()
    serving.out.epoch_ms = 77
    serving.set(b"k")
    serving.lane.remove(serving.copies[0], "m", b"k")
    serving.lane.log(serving.copies[0], serving.copies[0].maps["m"], Change.CLEAR)
    assert serving.records() == [
        Record("m", 1, Change.SET, b"k", b"value", 0, 0, 0),
        Record("m", 2, Change.REMOVE, b"k", b"", 0, 0, 0),
        Record("m", 3, Change.CLEAR, b"", b"", 0, 0, 0),
    ]


def test_digests_of_a_key_that_is_stored_twice_are_those_of_what_it_holds() -> None:
    """Else copies that are equal would seem to differ, and be filled anew."""
    serving, other = Serving(), Serving()
    held = serving.lane.open(serving.copies[0], "m")
    held.state.digests()
    for value in (b"one", b"two"):
        serving.lane.set(serving.copies[0], "m", b"k", value, 0, 0, 0)
    other.lane.set(other.copies[0], "m", b"k", b"two", 0, 0, 0)
    assert held.state.digests() == other.copies[0].maps["m"].state.digests()


@pytest.mark.parametrize(("reads", "confirms"), [("confirmed", True), ("primary", False)])
def test_reads_are_confirmed_of_the_maps_that_say_so(reads: str, *, confirms: bool) -> None:
    serving = Serving(m=MapSettings(backups=1, reads=reads))  # type: ignore[arg-type]
    assert serving.lane.confirms_reads is confirms
    assert serving.lane.confirmed("m") is confirms
    assert not serving.lane.confirmed("other")


def test_stores_keep_the_partition_hash_of_the_key_and_the_old_value() -> None:
    serving = Serving()
    assert serving.set(b"k", key_hash=9) is None
    assert serving.set(b"k", key_hash=9) == b"value"
    assert serving.copies[0].maps["m"].state.hashes == {b"k": 9}
    assert [record.key_hash for record in serving.records()] == [9, 9]


def test_what_is_over_is_absent_and_its_end_is_a_record() -> None:
    serving = Serving()
    serving.set(b"a", 5)
    serving.set(b"b", 5)
    serving.set(b"c", 5)
    serving.records()
    serving.out.now_ns = 5 * MILLISECOND
    assert serving.lane.read(serving.copies[0], "m", b"a") is None
    assert serving.lane.remove(serving.copies[0], "m", b"b") is None
    assert serving.set(b"c") is None
    changes = [(record.change, record.key) for record in serving.records()]
    assert changes == [
        (Change.REMOVE, b"a"),
        (Change.REMOVE, b"b"),
        (Change.REMOVE, b"c"),
        (Change.SET, b"c"),
    ]


def test_a_sweep_removes_what_is_over_where_it_may() -> None:
    serving = Serving()
    for partition in (0, 1):
        serving.set(b"a", 5, partition=partition)
        serving.set(b"b", 5, partition=partition)
        serving.set(b"c", partition=partition)
    serving.set(b"c", name="n")
    serving.records()
    serving.out.now_ns = 5 * MILLISECOND
    serving.lane.serving[1] = None
    serving.lane.sweep(1)
    assert [len(copy.maps["m"].state.entries) for copy in serving.copies] == [2, 3]
    serving.lane.sweep(10)
    assert [len(copy.maps["m"].state.entries) for copy in serving.copies] == [1, 3]
    assert sum(serving.lane.leftovers.values()) > 0, "the backups are told"
    serving.lane.sweep(10, [None, serving.copies[1]])
    assert [len(copy.maps["m"].state.entries) for copy in serving.copies] == [1, 1]
    removed = [record.change for record in serving.records()]
    assert removed == [Change.REMOVE] * 4


def test_listeners_hear_of_each_change_of_their_map_with_the_hash_of_the_key() -> None:
    serving = Serving()
    serving.lane.listening["m"] = 1
    serving.set(b"k", key_hash=9)
    serving.set(b"k", name="other")
    serving.set(b"k", key_hash=9)
    serving.lane.remove(serving.copies[0], "m", b"k")
    serving.set(b"plain", 5)
    serving.out.now_ns = 5 * MILLISECOND
    serving.lane.read(serving.copies[0], "m", b"plain")
    held = serving.copies[0].maps["m"]
    serving.set(b"hashed", key_hash=9)
    serving.set(b"plain")
    serving.lane.emit(EventKind.CLEAR_ALL, held, None, None, None, count=3)
    assert serving.heard == [
        EntryEvent(EventKind.ADDED, "m", ME, b"k", b"value", None, 1, 9, 1),
        EntryEvent(EventKind.UPDATED, "m", ME, b"k", b"value", b"value", 1, 9, 2),
        EntryEvent(EventKind.REMOVED, "m", ME, b"k", None, b"value", 1, 9, 3),
        EntryEvent(EventKind.ADDED, "m", ME, b"plain", b"value", None, 1, 0, 4),
        EntryEvent(EventKind.EXPIRED, "m", ME, b"plain", None, b"value", 1, 0, 5),
        EntryEvent(EventKind.ADDED, "m", ME, b"hashed", b"value", None, 1, 9, 6),
        EntryEvent(EventKind.ADDED, "m", ME, b"plain", b"value", None, 1, 0, 7),
        EntryEvent(EventKind.CLEAR_ALL, "m", ME, None, None, None, 3, 0, 7),
    ]


def test_changes_that_are_told_carry_the_old_value_and_the_time() -> None:
    serving = Serving(m=MapSettings(backups=1, changes_bytes=10_000))
    serving.out.epoch_ms = 77
    serving.set(b"k")
    serving.set(b"k")
    serving.lane.remove(serving.copies[0], "m", b"k")
    told = [(record.old, record.time_ms) for record in serving.records()]
    assert told == [(None, 77), (b"value", 77), (b"value", 77)]


class Echo:
    def apply(self, update: bytes) -> bytes:
        return b"done " + update

    def ask(self, question: bytes) -> bytes:
        return question

    def supply(self) -> list[bytes]:
        return []

    def receive(self, piece: bytes) -> None:
        pass


def test_a_call_of_a_service_goes_to_its_backups() -> None:
    serving = Serving()
    copy = serving.copies[0]
    held = copy.services["echo"] = Replica("echo", ServiceState(Echo()))
    serving.lane.retarget(copy)
    assert serving.lane.carry_out(copy, held, Update(Change.CALL, b"", b"x")) == b"done x"
    assert serving.records() == [Record("echo", 1, Change.CALL, b"", b"x")]
    assert (held.journal, held.changes, held.counter) == ("off", 0, 1)


def test_a_mark_goes_with_the_last_record_of_its_request_if_it_has_any() -> None:
    serving = Serving()
    serving.set(b"a")
    serving.set(b"b")
    before = serving.lane.opened
    serving.lane.remember(serving.copies[0], b"nothing", 1, before)
    serving.set(b"c")
    serving.set(b"d")
    serving.lane.remember(serving.copies[0], b"two", 1, before)
    marks = [(record.key, bool(record.request)) for record in serving.records()]
    assert marks == [(b"a", False), (b"b", False), (b"c", False), (b"d", True)]
    assert serving.copies[0].requests.knows(b"nothing")


@pytest.mark.parametrize(
    ("journal", "urgent"), [("sync", True), ("lazy", False), ("off", None)], ids=["sync", "lazy", "off"]
)
def test_what_is_written_down_is_waited_for_as_the_map_says(journal: str, *, urgent: bool | None) -> None:
    serving = Serving(journal=True, m=MapSettings(backups=0, journal=journal))  # type: ignore[arg-type]
    serving.set(b"k")
    serving.close_batch()
    serving.lane.flush()
    serving.log.flush()
    appended = [one for one in serving.out.take() if isinstance(one, Append)]
    assert [one.urgent for one in appended] == ([] if urgent is None else [urgent])
    assert serving.told == ([] if urgent else [True])
    serving.log.on_durable(1)
    assert serving.told == [True]


def test_a_synchronous_map_beside_another_keeps_a_collecting_client_waiting() -> None:
    serving = Serving(journal=True, m=MapSettings(backups=1, journal="sync"))

    class Everybody:
        def reached(self, client: bytes, members: object) -> bool:
            return True

    serving.lane.batches.ack_clients = Everybody()  # type: ignore[assignment]
    serving.set(b"k", name="off")
    serving.set(b"k")
    serving.lane.close_batch_for(serving.told.append, b"client", [1])
    assert serving.told == []
    other = Serving()
    assert other.lane.batches.ack_clients is None
    other.lane.batches.ack_clients = Everybody()  # type: ignore[assignment]
    other.set(b"k", name="off")
    other.lane.close_batch_for(other.told.append, b"client", [1])
    assert other.told == [True]
    assert other.lane.acks == 0


@pytest.mark.parametrize(("count", "left"), [(FOLD_AT - 1, FOLD_AT - 1), (FOLD_AT, 0)])
def test_digests_follow_when_so_many_keys_have_changed(count: int, left: int) -> None:
    serving = Serving()
    serving.set(b"0")
    held = serving.copies[0].maps["m"]
    held.state.digests()
    for number in range(count):
        serving.set(b"%d" % number)
    serving.records()
    assert held.state.touched is not None
    assert len(held.state.touched) == left


def test_who_waits_for_the_end_of_a_partition_is_told_when_nothing_is_under_way() -> None:
    serving = Serving()
    drained: list[int] = []
    serving.lane.batches.drained = drained.append
    serving.set(b"k")
    serving.close_batch()
    assert serving.lane.leftovers["batches"] == 2
    (message,) = serving.sent().values()
    serving.lane.on_replicated(BEN, Replicated(message.batches, [0]))
    assert (drained, serving.told) == ([0], [True])
    assert sum(serving.lane.leftovers.values()) == 0


@pytest.mark.rule("state_transfer/S-1")
@pytest.mark.parametrize(("index", "follows"), [(0, True), (1, True), (2, False)])
def test_the_destination_of_a_migration_follows_if_its_place_holds_the_map(
    index: int, *, follows: bool
) -> None:
    serving = Serving()
    serving.set(b"k")
    serving.records()
    serving.lane.joining[0] = (CAL, index)
    serving.lane.retarget(serving.copies[0])
    held = serving.copies[0].maps["m"]
    assert held.targets == ((BEN, CAL) if follows else (BEN,))
    assert held.sync == ({BEN, CAL} if follows else {BEN})


def test_without_that_rule_it_is_sent_nothing() -> None:
    """The rule is destination-acks."""
    serving = Serving()
    serving.set(b"k")
    serving.lane.joining[0] = (CAL, 1)
    with ablated("destination-acks"):
        serving.lane.retarget(serving.copies[0])
    assert serving.copies[0].maps["m"].targets == (BEN,)
    serving = Serving()
    serving.set(b"k")
    serving.lane.joining[0] = (BEN, 1)
    serving.lane.retarget(serving.copies[0])
    assert serving.copies[0].maps["m"].targets == (BEN,), "nor is anybody sent things twice"


# -- answers that changed nothing


@pytest.mark.parametrize("without", ["confirmed-answers", "all-ack"])
def test_without_these_rules_an_answer_that_changed_nothing_waits_for_nobody(without: str) -> None:
    serving = Serving()
    with ablated(without):
        serving.lane.remove(serving.copies[0], "m", b"absent")
        assert serving.lane.leftovers["records of an open buffer"] == 0
        serving.close_batch()
    assert serving.told == [True]


def test_an_answer_that_rests_on_what_is_not_durable_yet_waits_for_the_disk() -> None:
    for backups in (0, 1):
        serving = Serving(journal=True, m=MapSettings(backups=backups, journal="sync"))
        serving.lane.retarget(serving.copies[0])
        serving.lane.open(serving.copies[0], "m")
        serving.log.note(Began(0, 0))
        serving.log.flush()
        serving.lane.remove(serving.copies[0], "m", b"absent")
        serving.close_batch()
        for to, message in serving.sent().items():
            serving.lane.on_replicated(to, Replicated(message.batches, [0]))
        assert serving.told == []
        serving.log.on_durable(1)
        assert serving.told == [True]
        assert sum(serving.lane.leftovers.values()) == 0


def test_answers_of_several_partitions_are_counted_each() -> None:
    serving = Serving()
    for partition in (0, 1):
        serving.lane.remove(serving.copies[partition], "m", b"absent")
    serving.close_batch()
    assert serving.lane.backlog.bytes == 2 * RECORD_BYTES
    for to, message in serving.sent().items():
        assert serving.told == []
        serving.lane.on_replicated(to, Replicated(message.batches, [0 if to == BEN else 1]))
    assert (serving.told, serving.lane.backlog.bytes) == ([True], 0)


# -- time


def test_it_is_looked_eight_times_within_the_patience_and_by_one_timer() -> None:
    serving = Serving()
    for key in (b"a", b"b"):
        serving.set(key)
        serving.close_batch()
        serving.lane.flush()
    patience_ms = Settings().replication.backup_timeout_ms
    timers = [one for one in serving.out.take() if isinstance(one, SetTimer)]
    assert timers == [SetTimer("backups", min(500, patience_ms // 8) * MILLISECOND)]
    serving.out.now_ns = 5
    assert serving.lane.batches.waits_since(0) == 0
    assert serving.lane.batches.waits_since(1) == 5, "nothing waits there"


def test_what_has_time_left_is_removed_with_its_value() -> None:
    serving = Serving()
    serving.set(b"a", 5)
    serving.set(b"b")
    assert serving.lane.remove(serving.copies[0], "m", b"a") == b"value"
    assert serving.lane.remove(serving.copies[0], "m", b"b") == b"value"


def test_a_sweep_looks_at_so_many_and_goes_on_where_it_ended() -> None:
    """However many entries end at the same time, and wherever they are."""
    serving = Serving()
    for partition in (0, 1):
        for number in range(10):
            serving.set(b"%d" % number, 5, partition=partition)
        serving.set(b"lives", 60_000, partition=partition)
    serving.out.now_ns = 5 * MILLISECOND

    def left() -> list[int]:
        return [len(copy.maps["m"].state.entries) for copy in serving.copies]

    swept = []
    while serving.lane.sweep(4):
        swept.append(left())
    assert swept == [[7, 11], [3, 11], [1, 9], [1, 5], [1, 1]]
    assert left() == [1, 1]
    serving.set(b"again", 1)
    serving.set(b"again", 1, partition=1)
    serving.out.now_ns += MILLISECOND
    assert serving.lane.sweep(1)
    assert left() == [2, 1], "it does not begin anew with the first"
    assert not serving.lane.sweep(2)
    assert left() == [1, 1]


@pytest.mark.rule("primary_backup/E-1")
def test_a_sweep_looks_at_so_many_maps_and_goes_on_with_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are without anything that ends."""
    monkeypatch.setattr(lane, "SWEPT_MAPS", 5)
    serving = Serving()
    for partition in (0, 1):
        for number in range(10):
            serving.set(b"stays", partition=partition, name=f"m{number}")
    serving.set(b"ends", 5, partition=1, name="m7")
    looked: list[MapState] = []
    may_end = MapState.may_end

    def asked(state: MapState, now_ns: int) -> bool:
        looked.append(state)
        return may_end(state, now_ns)

    monkeypatch.setattr(MapState, "may_end", asked)
    serving.out.now_ns = 5 * MILLISECOND
    rounds = []
    for _ in range(4):
        before = len(looked)
        rounds.append((serving.lane.sweep(200), len(looked) - before))
    # It ends one entry, and asks whether there are more.
    assert rounds == [(Swept.SOME_MAPS, 10), (Swept.ALL, 11), (Swept.SOME_MAPS, 10), (Swept.ALL, 10)]
    assert b"ends" not in serving.copies[1].maps["m7"].state.entries


def test_a_sweep_ends_its_own_buffer() -> None:
    serving = Serving()
    serving.set(b"a", 5)
    serving.records()
    serving.out.now_ns = 5 * MILLISECOND
    serving.lane.sweep(10)
    assert serving.lane.leftovers["records of an open buffer"] == 0


def test_a_request_that_nobody_waits_for_is_answered_at_once() -> None:
    serving = Serving()
    serving.set(b"k")
    serving.lane.remember(serving.copies[0], b"known", 1, 0)
    serving.close_batch()
    serving.lane.when_held(0, b"unknown", serving.told.append)
    assert serving.told == [True]
    serving.lane.when_held(0, b"known", serving.told.append)
    assert serving.told == [True]
    (message,) = serving.sent().values()
    serving.lane.on_replicated(BEN, Replicated(message.batches, [0]))
    assert serving.told == [True] * 3


def test_one_urgent_map_makes_the_whole_turn_urgent() -> None:
    serving = Serving(
        journal=True, a=MapSettings(backups=0, journal="sync"), b=MapSettings(backups=0, journal="lazy")
    )
    serving.set(b"k", name="a")
    serving.set(b"k", name="b")
    serving.close_batch()
    serving.lane.flush()
    serving.log.flush()
    assert [one.urgent for one in serving.out.take() if isinstance(one, Append)] == [True]


# -- rows change


def test_who_waits_for_a_backup_that_is_gone_waits_no_more() -> None:
    serving = Serving()
    serving.set(b"k")
    serving.close_batch()
    serving.sent()
    serving.rows[0] = Assignment(2, (ME, None))
    serving.lane.retarget(serving.copies[0])
    assert serving.told == [True]
    assert sum(serving.lane.leftovers.values()) == 0


def test_a_partition_that_is_given_up_has_nothing_under_way() -> None:
    serving = Serving()
    drained: list[int] = []
    serving.lane.batches.drained = drained.append
    serving.lane.abandon(0)
    assert drained == []
    serving.set(b"k")
    serving.close_batch()
    serving.sent()
    serving.lane.abandon(0)
    assert (drained, serving.told) == ([0], [False])


# -- what was decided, and is carried out


SET = Update(Change.SET, b"k", b"new", 0, 0, 0, EventKind.UPDATED)
REMOVE = Update(Change.REMOVE, b"k", kind=EventKind.REMOVED)
EXPIRY = Update(Change.EXPIRY, b"k", b"", 5, 0, 0, EventKind.UPDATED)


@pytest.mark.parametrize("listened", ["m", "other", None])
@pytest.mark.parametrize(
    ("update", "value"), [(SET, b"new"), (REMOVE, None), (EXPIRY, b"value")], ids=["set", "remove", "expiry"]
)
def test_who_listens_hears_what_is_carried_out(
    update: Update, value: bytes | None, listened: str | None
) -> None:
    serving = Serving()
    serving.out.epoch_ms = 77
    serving.set(b"k", key_hash=9)
    serving.records()
    if listened:
        serving.lane.listening[listened] = 1
    copy = serving.copies[0]
    serving.lane.carry_out(copy, copy.maps["m"], update)
    event = EntryEvent(update.kind or EventKind.ADDED, "m", ME, b"k", value, b"value", 1, 9, 2)
    assert serving.heard == ([event] if listened == "m" else [])
    (record,) = serving.records()
    assert (record.old, record.time_ms) == (None, 0), "no change stream is told of it"


def test_the_hash_that_comes_with_an_update_is_the_one_that_is_heard() -> None:
    serving = Serving()
    serving.set(b"k", key_hash=9)
    serving.lane.listening["m"] = 1
    copy = serving.copies[0]
    serving.lane.carry_out(copy, copy.maps["m"], msgspec.structs.replace(SET, key_hash=7))
    assert [event.key_hash for event in serving.heard] == [7]


def test_of_an_update_that_nobody_is_to_hear_of_nobody_hears() -> None:
    serving = Serving()
    serving.set(b"k")
    serving.lane.listening["m"] = 1
    copy = serving.copies[0]
    serving.lane.carry_out(copy, copy.maps["m"], msgspec.structs.replace(REMOVE, kind=None))
    assert serving.heard == []
    assert copy.maps["m"].state.entries == {}


@pytest.mark.parametrize(
    ("update", "old"), [(SET, b"value"), (REMOVE, b"value"), (EXPIRY, None)], ids=["set", "remove", "expiry"]
)
def test_change_streams_are_told_what_a_carried_out_update_ended(update: Update, old: bytes | None) -> None:
    serving = Serving(m=MapSettings(backups=1, changes_bytes=10_000))
    serving.out.epoch_ms = 77
    serving.set(b"k")
    serving.records()
    copy = serving.copies[0]
    serving.lane.carry_out(copy, copy.maps["m"], update)
    (record,) = serving.records()
    assert (record.change, record.old, record.time_ms) == (update.change, old, 77)
    assert serving.heard == []


def test_what_was_done_to_a_service_is_heard_with_what_was_asked() -> None:
    serving = Serving()
    copy = serving.copies[0]
    held = copy.services["echo"] = Replica("echo", ServiceState(Echo()))
    for listened in ("other", "echo"):
        serving.lane.listening[listened] = 1
        serving.lane.carry_out(copy, held, Update(Change.CALL, b"", b"x"))
    assert serving.heard == [EntryEvent(EventKind.UPDATED, "echo", ME, b"", b"x", None, 1, 0, 2)]


def test_near_caches_hear_of_a_map_that_is_cleared_and_of_a_new_primary() -> None:
    serving = Serving()
    serving.set(b"k")
    copy = serving.copies[0]
    serving.lane.carry_out(copy, copy.maps["m"], Update(Change.CLEAR))
    assert serving.heard == []
    serving.lane.listening["m"] = 1
    serving.lane.carry_out(copy, copy.maps["m"], Update(Change.CLEAR))
    serving.lane.invalidate_near_caches()
    assert serving.heard == [
        EntryEvent(EventKind.INVALIDATED, "m", ME, sequence=3, term=copy.term),
        EntryEvent(EventKind.INVALIDATED, "m", ME),
    ]


def test_an_answer_that_rests_on_a_service_waits_for_its_backups() -> None:
    serving = Serving()
    copy = serving.copies[0]
    copy.services["echo"] = Replica("echo", ServiceState(Echo()))
    serving.lane.retarget(copy)
    serving.lane.rest_on_service(copy, "echo")
    serving.close_batch()
    assert serving.told == []
    (message,) = serving.sent().values()
    serving.lane.on_replicated(BEN, Replicated(message.batches, [0]))
    assert serving.told == [True]


def test_events_go_to_the_sink_that_was_given() -> None:
    class Ears:
        def __init__(self) -> None:
            self.listening = {"m": 1}
            self.heard: list[EntryEvent] = []

        def hear_written(self, name: str, rows: object) -> None:
            raise AssertionError(name)

        def hear(self, event: EntryEvent) -> None:
            self.heard.append(event)

    out, ears = Outbox(), Ears()
    settings = Settings(partitions=PartitionSettings(count=1), maps={"default": MapSettings(backups=0)})
    lane = Lane(ME, settings, out, Log(out, on=False), ears)
    lane.attach([Assignment(1, (ME,))])
    lane.set(PartitionCopy(0, 0), "m", b"k", b"value", 0, 0, 0)
    assert [event.kind for event in ears.heard] == [EventKind.ADDED]
    assert Lane(ME, settings, out, Log(out, on=False)).heard(ears.heard[0]) is None, "nobody hears, and may"


def test_what_has_time_left_is_read_beside_what_is_over() -> None:
    serving = Serving()
    serving.set(b"over", 5)
    serving.set(b"left", 6)
    serving.set(b"plain")
    serving.out.now_ns = 5 * MILLISECOND
    read = [serving.lane.read(serving.copies[0], "m", key) for key in (b"over", b"left", b"plain", b"never")]
    assert read == [None, b"value", b"value", None]
    assert set(serving.copies[0].maps["m"].state.entries) == {b"left", b"plain"}


def test_a_copy_has_changed_when_anything_in_it_has() -> None:
    serving = Serving()
    copy = serving.copies[0]
    serving.set(b"k")
    held = copy.services["echo"] = Replica("echo", ServiceState(Echo()))
    awaited = Awaited(copy)
    assert awaited.copy is copy
    assert not awaited.changed
    serving.set(b"k", partition=1)
    assert not awaited.changed, "that is another partition"
    serving.set(b"k")
    assert awaited.changed
    awaited = Awaited(copy)
    serving.lane.open(copy, "new")
    assert awaited.changed, "a map came into being"
    awaited = Awaited(copy)
    serving.lane.carry_out(copy, held, Update(Change.CALL, b"", b"x"))
    assert awaited.changed
