"""A backup follows its primary: right sender, right version, right order."""

from __future__ import annotations

import pytest
from tests.core.telling import Audience, Told

from holdfast.config import MapSettings, PartitionSettings, ReplicationSettings, ServiceSettings, Settings
from holdfast.core.effects import Append, Send
from holdfast.core.journal.log import Log
from holdfast.core.messages import (
    Ack,
    Enlist,
    Enlisted,
    Fill,
    FillEntries,
    FillPlan,
    Replicate,
    Replicated,
    Section,
)
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.journal_entries import Wrote
from holdfast.core.model.notices import RecordsTaken, ReplicaWhole, ViewInstalled
from holdfast.core.model.object_names import part_name
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Change, Record, pack_puts
from holdfast.core.model.sync_request import How
from holdfast.core.model.views import View
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup import local_replicas as copies_module
from holdfast.core.primary_backup.local_replicas import LocalReplicas
from holdfast.core.primary_backup.staging_replica import StagingReplica
from holdfast.core.store.map_state import FOLD_AT, MapState
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import MapReplica, Replica
from holdfast.core.store.request_ids import mark_of
from holdfast.core.store.service_state import ServiceState
from holdfast_lab.sim.ablations.switching import ablated

ME, OWNER, OTHER = MemberId("me"), MemberId("owner"), MemberId("other")
SETTINGS = Settings(partitions=PartitionSettings(count=1), maps={"deep": MapSettings(backups=2)})


def backup(row: tuple[MemberId, ...] = (OWNER, ME)) -> tuple[LocalReplicas, Outbox, list[Assignment]]:
    out = Outbox()
    rows = [Assignment(5, row)]
    copies = LocalReplicas(ME, SETTINGS, out, rows, Log(out, on=False))
    copies.held[0] = PartitionCopy(0, 0)
    return copies, out, rows


def put(counter: int, value: bytes, *, key: bytes = b"key", name: str = "m") -> Record:
    return Record(name, counter, Change.SET, key, value)


def message(batch: int, *records: Record, version: int = 5) -> Replicate:
    return Replicate([batch], [Section(0, version, list(records))])


def acknowledged(out: Outbox) -> list[int]:
    sent = [effect.message for effect in out.take() if isinstance(effect, Send)]
    return [number for reply in sent if isinstance(reply, Replicated) for number in reply.batches]


def value_of(copies: LocalReplicas, key: bytes = b"key", name: str = "m") -> bytes | None:
    held = copies.held[0].maps.get(name)
    return held.state.entries.get(key) if held else None


def late_then_early() -> tuple[bytes | None, list[int]]:
    copies, out, _ = backup()
    copies.on_replicate(OWNER, message(2, put(2, b"second")))
    copies.on_replicate(OWNER, message(1, put(1, b"first")))
    copies.on_replicate(OWNER, message(1, put(1, b"first")))
    return value_of(copies), acknowledged(out)


@pytest.mark.rule("primary_backup/B-2")
def test_records_are_applied_in_the_order_of_the_counter_and_once() -> None:
    value, numbers = late_then_early()
    assert value == b"second"
    assert sorted(numbers) == [1, 1, 2], "a repeated record is acknowledged again, and does nothing"


@ablated("record-order")
def test_without_that_rule_an_older_value_overwrites_a_newer_one() -> None:
    assert late_then_early()[0] == b"first"


def test_an_early_record_is_not_acknowledged_before_its_turn() -> None:
    copies, out, _ = backup()
    copies.on_replicate(OWNER, message(2, put(2, b"second")))
    assert acknowledged(out) == []


@pytest.mark.rule("primary_backup/B-1")
def test_a_stranger_and_an_old_version_are_not_believed() -> None:
    copies, out, _ = backup()
    copies.on_replicate(OTHER, message(1, put(1, b"of a stranger")))
    copies.on_replicate(OWNER, message(1, put(1, b"of an old time"), version=4))
    assert (value_of(copies), acknowledged(out)) == (None, [])


@pytest.mark.rule("primary_backup/B-1")
def test_a_newer_version_waits_for_its_row() -> None:
    copies, out, rows = backup()
    copies.on_replicate(OWNER, message(1, put(1, b"new"), version=6))
    assert acknowledged(out) == []
    old, rows[0] = rows[0], Assignment(6, (OWNER, ME))
    copies.assignment_changed(0, old, rows[0], None)
    copies.retry(0)
    assert (value_of(copies), acknowledged(out)) == (b"new", [1])


def test_what_comes_back_from_files_holds_only_the_maps_of_its_new_place() -> None:
    """That a colder index took maps away need not be on the disk yet when the power fails."""
    copies, out, _ = backup()
    for name in ("m", "deep"):
        copies.open(copies.held[0], name).apply(put(1, b"value", name=name), 0)
    copies.stale[0] = copies.held.pop(0)
    out.take()
    held = copies.assignment_changed(0, Assignment(5, (OWNER, ME)), Assignment(9, (OWNER, OTHER, ME)), None)
    assert held is not None
    assert held.maps.keys() == {"deep"}


# -- what it says to a new primary


def enlisted(out: Outbox) -> list[tuple[MemberId, list[tuple[int, int, bool]]]]:
    effects = [effect for effect in out.take() if isinstance(effect, Send)]
    return [(one.to, one.message.partitions) for one in effects if isinstance(one.message, Enlisted)]


def with_one_record() -> tuple[LocalReplicas, Outbox, list[Assignment]]:
    copies, out, rows = backup()
    copies.on_replicate(OWNER, Replicate([1], [Section(0, 5, [put(1, b"v")], 4)]))
    out.take()
    return copies, out, rows


@pytest.mark.parametrize(
    ("counters", "same"),
    [
        ([("m", 1, 4)], True),
        ([("m", 2, 4)], False),
        ([("m", 1, 5)], False),
        ([("n", 1, 4)], False),
        ([], False),
        ([("m", 1, 4), ("n", 1, 4)], False),
    ],
)
def test_a_backup_says_whether_it_holds_what_the_new_primary_holds(
    counters: list[tuple[str, int, int]], *, same: bool
) -> None:
    copies, out, _ = with_one_record()
    copies.on_enlist(OWNER, Enlist([(0, 5, counters)]))
    assert enlisted(out) == [(OWNER, [(0, 5, same)])]


@ablated("term")
def test_without_terms_equal_numbers_count_as_equal_histories() -> None:
    """The rule is term."""
    copies, out, _ = with_one_record()
    copies.on_enlist(OWNER, Enlist([(0, 5, [("m", 1, 9)])]))
    copies.on_enlist(OWNER, Enlist([(0, 5, [("m", 2, 4)])]))
    assert enlisted(out) == [(OWNER, [(0, 5, True)]), (OWNER, [(0, 5, False)])]
    del copies.held[0]
    copies.on_enlist(OWNER, Enlist([(0, 5, [])]))
    assert enlisted(out) == [(OWNER, [(0, 5, False)])]


def test_without_a_copy_it_holds_something_else_whatever_the_primary_holds() -> None:
    copies, out, _ = with_one_record()
    del copies.held[0]
    copies.on_enlist(OWNER, Enlist([(0, 5, [])]))
    assert enlisted(out) == [(OWNER, [(0, 5, False)])]


def test_only_maps_of_its_index_are_compared() -> None:
    copies, out, rows = with_one_record()
    rows[0] = Assignment(5, (OWNER, OTHER, ME))
    copies.open(copies.held[0], "deep").apply(put(1, b"v", name="deep"), 0)
    copies.on_enlist(OWNER, Enlist([(0, 5, [("deep", 1, 0)])]))
    assert enlisted(out) == [(OWNER, [(0, 5, True)])]


def test_an_enlistment_waits_for_the_row_that_it_speaks_of() -> None:
    copies, out, rows = with_one_record()
    copies.on_enlist(OWNER, Enlist([(0, 6, [("m", 1, 4)])]))
    assert (enlisted(out), copies.leftovers["early messages"]) == ([], 1)
    rows[0] = Assignment(6, (OWNER, ME))
    copies.retry(0)
    assert enlisted(out) == [(OWNER, [(0, 6, True)])]
    assert copies.leftovers["early messages"] == 0


def in_view(*, recovering: bool) -> ViewInstalled:
    return ViewInstalled(None, View(7, "id", [], recovering=recovering), True, frozenset(), frozenset())


@pytest.mark.rule("primary_backup/O-5")
def test_an_enlistment_waits_until_the_cluster_has_recovered() -> None:
    copies, out, rows = with_one_record()
    copies.on_view(in_view(recovering=True))
    copies.on_enlist(OWNER, Enlist([(0, 5, [("m", 1, 4)])]))
    copies.on_view(in_view(recovering=True))
    copies.retry(0)
    assert (enlisted(out), copies.leftovers["early messages"]) == ([], 1)
    copies.on_view(in_view(recovering=False))
    assert (enlisted(out), copies.leftovers["early messages"]) == ([(OWNER, [(0, 5, True)])], 0)
    copies.on_enlist(OWNER, Enlist([(0, 6, [("m", 1, 4)])]))
    copies.on_view(in_view(recovering=False))
    assert (enlisted(out), copies.leftovers["early messages"]) == ([], 1), "its assignment is not known yet"
    rows[0] = Assignment(6, (OWNER, ME))
    copies.retry(0)
    assert enlisted(out) == [(OWNER, [(0, 6, True)])]


def test_a_stranger_and_an_earlier_primary_are_not_answered() -> None:
    copies, out, _ = with_one_record()
    copies.on_enlist(OTHER, Enlist([(0, 5, [("m", 1, 4)])]))
    copies.on_enlist(OWNER, Enlist([(0, 4, [("m", 1, 4)])]))
    assert (enlisted(out), copies.leftovers["early messages"]) == ([], 0)


def journalled() -> tuple[LocalReplicas, Outbox, Log]:
    out = Outbox()
    maps = {"m": MapSettings(journal="sync"), "later": MapSettings(journal="lazy"), "never": MapSettings()}
    services = {"kept": ServiceSettings(journal="sync"), "loose": ServiceSettings()}
    settings = Settings(partitions=PartitionSettings(count=1), maps=maps, services=services)
    log = Log(out, on=True)
    copies = LocalReplicas(ME, settings, out, [Assignment(5, (OWNER, ME))], log)
    copies.held[0] = PartitionCopy(0, 0)
    return copies, out, log


def test_what_it_says_to_hold_is_durable() -> None:
    copies, out, log = journalled()
    copies.on_replicate(OWNER, message(1, put(1, b"v", name="later")))
    copies.on_enlist(OWNER, Enlist([(0, 5, [("later", 1, 0)])]))
    assert enlisted(out) == []
    log.flush()
    log.on_durable(1)
    assert len(enlisted(out)) == 1


@pytest.mark.parametrize(
    ("names", "written", "waits"),
    [
        (["m"], ["m"], True),
        (["later"], ["later"], False),
        (["never"], [], False),
        (["never", "later"], ["later"], False),
        (["later", "m", "never"], ["later", "m"], True),
    ],
)
def test_records_are_written_down_as_the_journal_of_their_map_says(
    names: list[str], written: list[str], *, waits: bool
) -> None:
    copies, out, log = journalled()
    copies.on_replicate(OWNER, message(1, *(put(1, b"v", name=name) for name in names)))
    log.flush()
    effects = out.take()
    appended = [effect for effect in effects if isinstance(effect, Append)]
    assert [record.map for one in appended for entry in one.entries for record in entry.records] == written  # type: ignore[union-attr]
    assert [one.urgent for one in appended] == [waits] * bool(written)
    assert any(isinstance(effect, Send) for effect in effects) != waits
    log.on_durable(1)
    assert acknowledged(out) == [1] * waits
    copies.on_replicate(OWNER, message(2, put(1, b"w", name="fresh")))
    assert acknowledged(out) == [2], "what came before does not make this wait"


def test_what_was_applied_before_is_not_written_again_but_is_waited_for() -> None:
    copies, out, log = journalled()
    copies.on_replicate(OWNER, message(1, put(1, b"v")))
    log.flush()
    out.take()
    copies.on_replicate(OWNER, message(1, put(1, b"v")))
    log.flush()
    assert out.take() == []
    log.on_durable(1)
    assert acknowledged(out) == [1, 1]


# -- clients that wait for backups themselves


def collecting() -> tuple[LocalReplicas, Outbox, list[list[Ack]]]:
    out = Outbox()
    settings = Settings(partitions=PartitionSettings(count=2))
    rows = [Assignment(5, (OWNER, ME)), Assignment(5, (OWNER, ME))]
    told: list[list[Ack]] = []
    copies = LocalReplicas(ME, settings, out, rows, Log(out, on=False), ack_clients=Told(told.append))
    for partition in (0, 1):
        copies.held[partition] = PartitionCopy(partition, 0)
    return copies, out, told


def both(batch: int, first: Record, second: Record, *acks: Ack) -> Replicate:
    return Replicate([batch], [Section(0, 5, [first]), Section(1, 5, [second])], list(acks))


def test_clients_are_told_when_all_that_they_wait_for_is_held() -> None:
    copies, _, told = collecting()
    ack = Ack(b"client", [7, 8], [0, 1])
    copies.on_replicate(OWNER, both(1, put(1, b"v"), put(1, b"v"), ack))
    assert told == [[ack]]
    copies.on_replicate(OWNER, both(2, put(2, b"v"), put(2, b"v")))
    assert told == [[ack]]


def test_a_client_that_waits_for_what_came_too_early_is_told_with_it() -> None:
    copies, out, told = collecting()
    here, early, split = Ack(b"c", [1], [0]), Ack(b"c", [2], [1]), Ack(b"c", [3], [0, 1])
    copies.on_replicate(OWNER, both(2, put(1, b"v"), put(2, b"v"), here, early, split))
    assert told == [[here]]
    out.take()
    copies.on_replicate(OWNER, Replicate([1], [Section(1, 5, [put(1, b"v")])]))
    assert acknowledged(out) == [1, 2]
    assert told == [[here], [early, Ack(b"c", [3], [1])]]


def test_a_client_that_waits_for_a_partition_that_is_not_in_the_message_is_not_told() -> None:
    copies, _, told = collecting()
    copies.on_replicate(OWNER, Replicate([1], [Section(0, 5, [put(1, b"v")])], [Ack(b"c", [1], [0, 1])]))
    assert told == []


def test_a_client_that_waits_for_two_that_are_kept_is_not_told() -> None:
    copies, out, told = collecting()
    copies.on_replicate(OWNER, both(2, put(2, b"v"), put(2, b"v"), Ack(b"c", [1], [0, 1])))
    copies.on_replicate(OWNER, both(1, put(1, b"v"), put(1, b"v")))
    assert sorted(acknowledged(out)) == [1, 2, 2]
    assert told == []


# -- order


def test_services_and_maps_of_one_name_are_counted_apart() -> None:
    copies, out, _ = backup()
    copies.on_replicate(OWNER, message(1, put(1, b"a"), put(1, b"b", name="n"), put(2, b"c")))
    assert acknowledged(out) == [1]
    assert (value_of(copies), value_of(copies, name="n")) == (b"c", b"b")


def test_a_gap_within_a_message_holds_all_of_it_up() -> None:
    copies, out, _ = backup()
    copies.on_replicate(OWNER, message(1, put(1, b"a"), put(3, b"c")))
    assert (acknowledged(out), value_of(copies)) == ([], None)
    copies.on_replicate(OWNER, message(2, put(1, b"a"), put(2, b"b")))
    assert (acknowledged(out), value_of(copies)) == ([2, 1], b"c")


def test_records_of_maps_that_its_index_does_not_hold_are_left_out() -> None:
    copies, out, _ = backup(row=(OWNER, OTHER, ME))
    copies.on_replicate(OWNER, message(1, put(5, b"a"), put(1, b"b", name="deep")))
    assert acknowledged(out) == [1]
    assert copies.held[0].maps.keys() == {"deep"}


@ablated("fence")
def test_without_the_fence_anybody_is_believed() -> None:
    copies, out, _ = backup()
    copies.on_replicate(OTHER, message(1, put(1, b"v"), version=4))
    assert (value_of(copies), acknowledged(out)) == (b"v", [1])


def test_records_of_several_partitions_are_acknowledged_for_those_that_were_taken() -> None:
    copies, out, _ = collecting()
    copies.on_replicate(OWNER, both(2, put(1, b"v"), put(2, b"v")))
    (answer,) = [one.message for one in out.take() if isinstance(one, Send)]
    assert answer == Replicated([2], [0])


def test_whoever_watches_a_partition_is_told_of_its_records() -> None:
    copies, out, _ = collecting()
    audience = out._audience = Audience()
    copies.on_replicate(OWNER, both(1, put(1, b"v"), put(1, b"v")))
    copies.watched.add(1)
    copies.on_replicate(OWNER, both(2, put(2, b"v"), put(2, b"v")))
    assert audience.told == [RecordsTaken(1)]


def test_a_client_is_not_told_of_what_was_refused() -> None:
    """Of one partition the records are held; of the other they are of an earlier version, and will never be."""
    copies, _, told = collecting()
    ack = Ack(b"c", [1], [0, 1])
    stale = [Section(0, 5, [put(1, b"v")]), Section(1, 4, [put(1, b"v")])]
    copies.on_replicate(OWNER, Replicate([1], stale, [ack]))
    copies.on_enlist(OWNER, Enlist([(1, 6, [])]))
    stale[0] = Section(0, 5, [put(2, b"v")])
    copies.on_replicate(OWNER, Replicate([2], stale, [ack]))
    assert told == []


def test_a_client_is_not_told_with_the_records_of_another_batch() -> None:
    copies, _, told = collecting()
    copies.on_replicate(OWNER, Replicate([7], [Section(1, 5, [put(2, b"v")])]))
    sections = [Section(0, 5, [put(1, b"v")]), Section(1, 4, [put(1, b"v")])]
    copies.on_replicate(OWNER, Replicate([1], sections, [Ack(b"c", [1], [0, 1])]))
    copies.on_replicate(OWNER, Replicate([8], [Section(1, 5, [put(1, b"v")])]))
    assert told == []


class Sum:
    """A service that adds up."""

    def __init__(self) -> None:
        self.sum = 0

    def apply(self, update: bytes) -> bytes:
        self.sum += len(update)
        return b""

    def ask(self, question: bytes) -> bytes:
        return b""

    def supply(self) -> list[bytes]:
        return [b"x" * self.sum]

    def receive(self, piece: bytes) -> None:
        self.sum = len(piece)


def called(counter: int, update: bytes = b"x") -> Record:
    return Record("m", counter, Change.CALL, b"", update)


def with_service() -> tuple[LocalReplicas, Outbox, Sum]:
    copies, out, _ = backup()
    share = Sum()
    copies.held[0].services["m"] = Replica("m", ServiceState(share))
    for counter in range(1, 5):
        copies.on_replicate(OWNER, message(counter, called(counter)))
    assert (share.sum, acknowledged(out)) == (4, [1, 2, 3, 4])
    return copies, out, share


@pytest.mark.parametrize(
    "records",
    [
        (put(1, b"v"), called(5)),
        (called(5), put(1, b"v")),
        (called(5), called(6), put(1, b"v"), put(2, b"v")),
    ],
)
def test_a_service_and_a_map_of_one_name_have_counters_of_their_own(records: tuple[Record, ...]) -> None:
    copies, out, share = with_service()
    copies.on_replicate(OWNER, message(9, *records))
    assert acknowledged(out) == [9]
    assert share.sum == 3 + sum(record.change is Change.CALL for record in records) + 1
    assert value_of(copies) == b"v"


@pytest.mark.parametrize("records", [(called(6),), (called(5), called(7)), (put(2, b"v"),)])
def test_each_of_them_may_have_a_gap(records: tuple[Record, ...]) -> None:
    copies, out, share = with_service()
    copies.on_replicate(OWNER, message(9, *records))
    assert (acknowledged(out), share.sum) == ([], 4)


def test_calls_of_a_service_that_is_not_here_are_left_out() -> None:
    copies, out, _ = backup()
    copies.on_replicate(OWNER, message(9, called(1), put(1, b"v")))
    assert acknowledged(out) == [9]
    assert copies.held[0].services == {}
    assert value_of(copies) == b"v"


@pytest.mark.parametrize(("name", "written"), [("kept", True), ("loose", False)])
def test_calls_are_written_down_when_their_service_says_so(name: str, written: bool) -> None:
    copies, out, log = journalled()
    called_so = part_name(name)
    copies.held[0].services[called_so] = Replica(called_so, ServiceState(Sum()))
    copies.on_replicate(OWNER, message(1, Record(called_so, 1, Change.CALL, b"", b"x")))
    log.flush()
    kinds = [type(effect) for effect in out.take()]
    assert kinds == ([Append] if written else [Send])
    log.on_durable(1)
    assert [type(effect) for effect in out.take()] == ([Send] if written else [])


def test_what_comes_twice_says_nothing_of_cuts() -> None:
    copies, out, _ = backup()
    for _ in range(2):
        copies.on_replicate(OWNER, message(1, put(1, b"v")))
    answers = [one.message for one in out.take() if isinstance(one, Send)]
    assert answers == [Replicated([1], [0], [])] * 2


@pytest.mark.parametrize(("count", "left"), [(FOLD_AT - 1, FOLD_AT - 1), (FOLD_AT, 0)])
def test_digests_that_are_kept_follow_when_so_many_keys_have_changed(count: int, left: int) -> None:
    copies, _, _ = backup()
    held = copies.open(copies.held[0], "m")
    held.state.digests()
    copies.on_replicate(OWNER, message(1, *(put(n + 1, b"v", key=b"%d" % n) for n in range(count))))
    assert held.state.touched is not None
    assert len(held.state.touched) == left


def test_a_backup_remembers_requests_and_updates() -> None:
    copies, _, _ = backup()
    mark = mark_of(b"request", None)
    copies.on_replicate(
        OWNER, Replicate([1], [Section(0, 5, [Record("m", 1, Change.SET, b"k", b"v", request=mark)], 4)])
    )
    held = copies.held[0].maps["m"]
    assert copies.held[0].requests.knows(b"request")
    assert (held.term, held.counter, held.remembered_from) == (4, 1, 0)


def test_what_is_not_journalled_does_not_wait_for_what_is() -> None:
    copies, out, _ = journalled()
    copies.on_replicate(OWNER, message(1, put(1, b"v")))
    assert acknowledged(out) == []
    copies.on_replicate(OWNER, message(2, put(1, b"v", name="never")))
    assert acknowledged(out) == [2]


def test_records_are_written_down_with_their_partition_and_term() -> None:
    copies, out, log = journalled()
    record = put(1, b"v")
    copies.on_replicate(OWNER, Replicate([1], [Section(0, 5, [record], 4)]))
    log.flush()
    (appended,) = [effect for effect in out.take() if isinstance(effect, Append)]
    assert appended.entries == [Wrote(0, 4, [record], 0)]


def test_several_clients_are_told_though_one_waits_for_more() -> None:
    copies, _, told = collecting()
    more, here = Ack(b"more", [1], [0, 1]), Ack(b"here", [2], [0])
    copies.on_replicate(OWNER, Replicate([1], [Section(0, 5, [put(1, b"v")])], [more, here]))
    assert told == [[here]]


@ablated("record-order")
def test_without_the_order_each_record_is_applied_as_it_comes() -> None:
    """The rule is record-order."""
    copies, out, _ = backup()
    copies.on_replicate(OWNER, message(1, put(5, b"five")))
    assert acknowledged(out) == [1]
    copies.on_replicate(OWNER, message(2, put(3, b"three")))
    assert (acknowledged(out), value_of(copies)) == ([2], b"three")


def test_maps_with_change_streams_remember_more_than_others() -> None:
    out = Outbox()
    maps = {"told": MapSettings(changes_bytes=100_000)}
    settings = Settings(
        partitions=PartitionSettings(count=1), maps=maps, replication=ReplicationSettings(tail_bytes=1000)
    )
    copies = LocalReplicas(ME, settings, out, [Assignment(5, (OWNER, ME))], Log(out, on=False))
    copies.held[0] = PartitionCopy(0, 0)
    for name in ("told", "m"):
        copies.on_replicate(OWNER, message(1, *(put(n, b"v" * 100, name=name) for n in range(1, 21))))
    assert copies.held[0].maps["told"].remembered_from == 0
    assert copies.held[0].maps["m"].remembered_from > 10
    assert copies.held[0].maps["m"].journal == "off"


def test_without_a_journal_nothing_waits_for_a_disk() -> None:
    """Whatever the settings of the map say: nobody would ever tell that it is written."""
    out = Outbox()
    settings = Settings(partitions=PartitionSettings(count=1), maps={"m": MapSettings(journal="sync")})
    log = Log(out, on=False)
    copies = LocalReplicas(ME, settings, out, [Assignment(5, (OWNER, ME))], log)
    copies.held[0] = PartitionCopy(0, 0)
    copies.on_replicate(OWNER, message(1, put(1, b"v")))
    log.flush()
    assert [type(effect) for effect in out.effects] == [Send]
    assert acknowledged(out) == [1]
    assert copies.held[0].maps["m"].journal == "off"


def test_a_client_is_told_with_the_records_it_waits_for_though_others_came_too_early_before_them() -> None:
    copies, _, told = collecting()
    copies.on_replicate(OWNER, Replicate([3], [Section(1, 5, [put(3, b"v")])]))
    copies.on_replicate(OWNER, both(2, put(1, b"v"), put(2, b"v"), Ack(b"c", [1], [0, 1])))
    assert told == []
    copies.on_replicate(OWNER, Replicate([1], [Section(1, 5, [put(1, b"v")])]))
    assert told == [[Ack(b"c", [1], [1])]]


def test_a_copy_of_which_the_row_says_nothing_takes_no_records() -> None:
    """It was not asked for them: that it seems to hold what it leaves out would be believed."""
    copies, out, _ = backup(row=(OWNER, OTHER))
    copies.on_replicate(OWNER, message(1, put(1, b"v")))
    assert (acknowledged(out), copies.held[0].maps) == ([], {})


def test_a_gap_in_the_calls_of_a_service_is_one_at_every_index() -> None:
    """A share may be kept where maps of few backups are not."""
    copies, out, _ = backup(row=(OWNER, OTHER, ME))
    share = Sum()
    copies.held[0].services["m"] = Replica("m", ServiceState(share))
    copies.on_replicate(OWNER, message(2, called(2)))
    assert (acknowledged(out), share.sum) == ([], 0)
    copies.on_replicate(OWNER, message(1, called(1)))
    assert (acknowledged(out), share.sum) == ([1, 2], 2)


def test_cuts_whose_lease_is_over_go() -> None:
    copies, out, _ = backup()
    pin = Record("m", 2, Change.PIN, b"c" * 16, b"", 1000)
    copies.on_replicate(OWNER, message(1, put(1, b"v"), pin))
    copies.sweep()
    assert len(copies.cuts) == 1
    out.now_ns += 2000 * MILLISECOND
    copies.sweep()
    assert len(copies.cuts) == 0


@pytest.mark.rule("primary_backup/E-1")
def test_deadlines_are_forgotten_in_so_many_maps_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies_module, "TIDIED_MAPS", 3)
    copies, _, _ = backup()
    for partition in range(4):
        copy = copies.held.setdefault(partition, PartitionCopy(partition, 0))
        for name in ("m", "n"):
            copy.open(name)
    tidied: list[MapState] = []
    monkeypatch.setattr(MapState, "tidy", lambda state, now: tidied.append(state))
    held = [one.state for copy in copies.held.values() for one in copy.maps.values()]
    counted = []
    for _ in range(2):
        copies.sweep()
        counted.append(len(tidied))
    assert counted == [4, 8]
    assert {id(state) for state in tidied} == {id(state) for state in held}, "all have had their turn"
    copies.sweep()
    assert len(tidied) == 12, "and have it again"


# -- a copy that is being filled


def filling(
    copies: LocalReplicas, *, whole: bool = True, source: MemberId = OWNER, version: int = 5
) -> tuple[StagingReplica, MapReplica]:
    """The copy that is being filled: it holds the first update of map m."""
    begin = Fill(0, version, 1, 0, False, 0, True, 1, [])
    staged = copies.staging[0] = StagingReplica(source, begin, PartitionCopy(0, 0), copies.open)
    content = [FillEntries("m", 1, [b"key"], [b"one"])]
    plans = [FillPlan("m", How.FULL, 1)]
    staged.pour(Fill(0, version, 1, 1, whole, 0, True, 1, content, plans=plans), 0)
    assert staged.complete == whole
    return staged, staged.copy.maps["m"]


def test_a_whole_copy_that_waits_for_its_row_takes_records_in_their_order() -> None:
    copies, out, _ = backup(row=(OWNER, OTHER))
    del copies.held[0]
    _, filled = filling(copies)
    copies.on_replicate(OWNER, message(3, put(3, b"three")))
    assert (acknowledged(out), filled.state.entries) == ([], {b"key": b"one"})
    copies.on_replicate(OWNER, message(2, put(2, b"two")))
    assert (acknowledged(out), filled.state.entries, filled.counter) == ([2, 3], {b"key": b"three"}, 3)


def test_a_copy_that_is_filled_beside_the_present_one_takes_packed_stores_too() -> None:
    """Whoever is moved to a hotter index holds the partition already: both copies follow."""
    copies, out, _ = backup()
    copies.open(copies.held[0], "m").apply(put(1, b"one"), 0)
    _, filled = filling(copies)
    puts = pack_puts("m", 1, [b"key"], [b"two"])
    copies.on_replicate(OWNER, Replicate([2], [Section(0, 5, [], 4, [puts])]))
    assert (value_of(copies), filled.state.entries, acknowledged(out)) == (b"two", {b"key": b"two"}, [2])


def test_of_a_map_that_is_new_to_it_the_first_record_is_waited_for_whatever_its_backups() -> None:
    """What is filled may become the owner, which holds every map."""
    out = Outbox()
    settings = Settings(partitions=PartitionSettings(count=1), maps={"alone": MapSettings(backups=0)})
    copies = LocalReplicas(ME, settings, out, [Assignment(5, (OWNER, OTHER))], Log(out, on=False))
    filling(copies)
    copies.on_replicate(OWNER, message(2, put(2, b"two", name="alone")))
    assert acknowledged(out) == []
    copies.on_replicate(OWNER, message(1, put(1, b"one", name="alone")))
    assert acknowledged(out) == [1, 2]


@pytest.mark.parametrize("whole", [True, False])
def test_what_a_whole_copy_takes_is_durable_before_it_is_acknowledged(*, whole: bool) -> None:
    """A copy that is not whole yet is written as such when it is."""
    copies, out, log = journalled()
    copies._rows[0] = Assignment(5, (OWNER, OTHER))
    del copies.held[0]
    filling(copies, whole=whole)
    record = put(2, b"two")
    copies.on_replicate(OWNER, Replicate([1], [Section(0, 5, [record], 4)]))
    log.flush()
    effects = out.take()
    appended = [effect.entries for effect in effects if isinstance(effect, Append)]
    assert appended == ([[Wrote(0, 4, [record], 0)]] if whole else [])
    assert any(isinstance(effect, Send) for effect in effects) != whole
    log.on_durable(1)
    assert acknowledged(out) == [1] * whole


@pytest.mark.parametrize(("sender", "version", "source"), [(OTHER, 5, OWNER), (OWNER, 6, OWNER)])
def test_it_takes_records_only_from_who_fills_it_and_at_the_version_of_that(
    sender: MemberId, version: int, source: MemberId
) -> None:
    copies, out, rows = backup(row=(OWNER, OTHER))
    del copies.held[0]
    _, filled = filling(copies, source=source)
    rows[0] = Assignment(version, (OWNER, OTHER))
    copies.on_replicate(sender, message(1, put(2, b"two"), version=version))
    assert (acknowledged(out), filled.counter) == ([], 1)


def test_what_the_primary_of_its_row_writes_is_not_of_a_copy_that_another_one_fills() -> None:
    copies, out, _ = backup()
    _, filled = filling(copies, source=OTHER)
    copies.on_replicate(OWNER, message(1, put(1, b"v"), put(2, b"w")))
    assert (acknowledged(out), value_of(copies)) == ([1], b"w")
    assert (filled.counter, filled.state.entries) == (1, {b"key": b"one"})


def test_that_it_has_become_whole_is_told_once() -> None:
    copies, out, _ = backup(row=(OWNER, OTHER))
    del copies.held[0]
    audience = out._audience = Audience()
    staged, _ = filling(copies, whole=False)
    copies.on_replicate(OWNER, message(1, put(2, b"two")))
    assert audience.told == []
    last = Fill(0, 5, 1, 2, True, 0, True, 1, [FillEntries("m", 3, [], [])])
    staged.pour(last, 0)
    for counter in (3, 4, 5):
        copies.on_replicate(OWNER, message(counter, put(counter, b"v")))
    assert audience.told == [ReplicaWhole(0)]
