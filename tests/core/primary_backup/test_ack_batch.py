"""What a batch waits for, and what is said of it."""

from __future__ import annotations

from itertools import permutations, product

import pytest

from holdfast.core.model.ids import MemberId
from holdfast.core.model.open_operations import OpenOperation
from holdfast.core.model.records import Change, Puts, Record, pack_puts
from holdfast.core.primary_backup.ack_batch import NAMED, AckBatch, by_map, when_all_done
from holdfast.core.primary_backup.replication_targets import ANY_MAP
from holdfast.core.store.replica import MapReplica, map_replica

BEN, CAL, DEB = "ben", "cal", "deb"


def mapped(targets: tuple[str, ...] = (BEN, CAL), sync: tuple[str, ...] = (BEN,)) -> MapReplica:
    held = map_replica("m")
    held.targets, held.sync = targets, frozenset(sync)
    return held


def test_a_new_batch_waits_for_nothing() -> None:
    batch = AckBatch(3, 17)
    assert (batch.number, batch.since_ns, batch.asked_ns, batch.size, batch.since) == (3, 17, 17, 0, 0)
    assert (batch.open, batch.missing(), batch.need, batch.late) == (False, "", {}, {})


def test_callers_wait_for_sync_backups_and_records_for_all() -> None:
    batch = AckBatch(1, 0)
    batch.wait_for(0, mapped(), set())
    batch.wait_for(2, mapped(), set())
    batch.wait_for(2, mapped(), set())
    assert (batch.need, batch.late, batch.slow_async) == ({BEN: {0, 2}}, {CAL: {0, 2}}, {})


def test_a_slow_async_backup_is_waited_for_and_known_to_be_waited_for_by_courtesy() -> None:
    batch = AckBatch(1, 0)
    batch.wait_for(0, mapped((BEN, CAL, DEB)), {CAL, BEN})
    assert (batch.need, batch.slow_async, batch.late) == ({BEN: {0}}, {CAL: {0}}, {DEB: {0}})
    assert batch.open
    batch.wait_for(1, mapped((CAL, BEN), sync=(CAL,)), {CAL, BEN})
    assert (batch.need, batch.slow_async) == ({BEN: {0}, CAL: {1}}, {CAL: {0}, BEN: {1}}), "each for its own"


def test_it_is_open_while_anything_is_missing() -> None:
    for need, after, on_disk in product((False, True), (0, 2), (False, True)):
        batch = AckBatch(1, 0)
        if need:
            batch.need[BEN] = {0}
        batch.open_links, batch.on_disk = after, on_disk
        assert batch.open is (need or after > 0 or not on_disk)
        assert bool(batch.missing()) is batch.open


def test_what_is_missing_is_told_in_words() -> None:
    batch = AckBatch(1, 0)
    batch.need = {CAL: set(range(6)), BEN: set(range(5))}
    batch.on_disk, batch.open_links = False, 1
    assert NAMED == 5
    assert batch.missing() == (
        "backup ben (partitions [0, 1, 2, 3, 4]), backup cal (6 partitions), this member's own disk, "
        "earlier writes"
    )


def test_answers_that_changed_nothing_wait_for_the_sync_backups() -> None:
    batch = AckBatch(1, 0)
    batch.add_read(0, "m", frozenset({BEN, CAL}))
    batch.add_read(0, "n", frozenset({BEN}))
    batch.add_read(1, "m", frozenset())
    assert batch.pending_reads == {0: {"m", "n"}, 1: {"m"}}
    assert batch.need == {BEN: {0}, CAL: {0}}


def test_a_partition_that_is_forgotten_is_waited_for_by_nobody() -> None:
    batch = AckBatch(1, 0)
    batch.need = {BEN: {0, 1}, CAL: {0}}
    batch.late = {DEB: {0}, CAL: {1}}
    batch.slow_async = {DEB: {0, 2}}
    batch.forget(0)
    assert (batch.need, batch.late, batch.slow_async) == ({BEN: {1}}, {CAL: {1}}, {DEB: {2}})


@pytest.mark.parametrize("order", list(permutations(range(3))))
@pytest.mark.parametrize("known", list(product((True, False), repeat=3)))
def test_who_waits_for_several_is_told_once(order: tuple[int, ...], known: tuple[bool, ...]) -> None:
    """When all are done, or as soon as one of them is not known: in every order, with every outcome."""
    batches = [AckBatch(number, 0) for number in range(3)]
    told: list[bool] = []
    when_all_done(batches, told.append, 5)
    ended: list[bool] = []
    for number in order:
        batches[number].callbacks[0](known[number])
        ended.append(known[number])
        if not all(ended):
            assert told == [False]
        else:
            assert told == [True] * (len(ended) == 3)


def test_a_batch_is_asked_for_since_its_first_caller_came() -> None:
    batch = AckBatch(1, 0)
    when_all_done([batch], lambda known: None, 5)
    when_all_done([batch], lambda known: None, 9)
    assert (batch.asked_ns, batch.since_ns) == (5, 0)


def test_records_are_told_by_map_in_the_order_of_the_writes() -> None:
    one, other = mapped(), mapped()
    records = [Record("m", number, Change.SET, b"k", b"v") for number in range(1, 5)]
    written = [(0, one, records[0]), (1, one, records[1]), (0, other, records[2]), (0, one, records[3])]
    assert by_map(written) == {
        (0, one): [records[0], records[3]],
        (1, one): [records[1]],
        (0, other): [records[2]],
    }


def test_courtesy_alone_keeps_it_open() -> None:
    batch = AckBatch(1, 0)
    batch.wait_for(0, mapped((CAL,), sync=()), {CAL})
    assert (batch.need, batch.slow_async, batch.open) == ({}, {CAL: {0}}, True)
    batch.forget(0)
    assert not batch.open


def test_what_must_survive_a_power_cut_keeps_it_open() -> None:
    batch = AckBatch(1, 0)
    batch.wait_for_disk()
    assert (batch.on_disk, batch.open) == (False, True)


def written(count: int) -> Puts:
    return pack_puts("m", 10, [b"k"] * count, [b"v"] * count)


def test_an_open_batch_of_writes_says_what_it_waits_for() -> None:
    batch = AckBatch(7, 13)
    batch.records = {
        2: [(mapped(), written(3)), (mapped(), Record("m", 14, Change.SET, b"k", b"v"))],
        4: [(map_replica("n"), Record("n", 1, Change.SET, b"k", b"v"))],
    }
    batch.need = {CAL: {2}}
    assert batch.operation() == OpenOperation(
        ("batch", 7), "writes", 5, {"m": {2}, "n": {4}}, 13, "backups to acknowledge", (MemberId(CAL),)
    )
    batch.need, batch.slow_async, batch.late = {}, {BEN: {2}}, {DEB: {2}}
    assert batch.operation().members == (BEN,), "nobody waits for who is only late"
    assert batch.operation().waits_for == "backups to acknowledge"
    batch.slow_async, batch.on_disk, batch.open_links = {}, False, 1
    batch.callbacks = [lambda known: None] * 6
    operation = batch.operation()
    assert (operation.count, operation.members) == (6, ()), "six callers"
    assert operation.waits_for == "this member's own disk and earlier writes"
    batch.on_disk = True
    assert batch.operation().waits_for == "earlier writes"


def test_an_open_batch_of_reads_says_which_maps_were_read() -> None:
    batch = AckBatch(8, 13)
    batch.add_read(2, "m", frozenset({BEN}))
    batch.add_read(3, "m", frozenset({BEN}))
    operation = batch.operation()
    assert (operation.kind, operation.count, operation.places) == ("confirmed answers", 0, {"m": {2, 3}})
    assert operation.waits_for == "backups to acknowledge"
    batch.add_read(4, ANY_MAP, frozenset())
    assert batch.operation().places == {"m": {2, 3}, "(all maps)": {4}}, (
        "no operator knows a map without a name"
    )
