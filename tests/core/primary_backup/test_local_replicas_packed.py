"""A backup takes packed stores in any company, maps that begin again, and maps that it still has to be filled with."""

from __future__ import annotations

import pytest
from tests.core.primary_backup.test_local_replicas import ME, OTHER, OWNER, acknowledged, put, value_of

from holdfast.config import MapSettings, PartitionSettings, ReplicationSettings, ServiceSettings, Settings
from holdfast.core.effects import Append
from holdfast.core.journal.log import Log
from holdfast.core.messages import Replicate, Section
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.journal_entries import Dropped, Wrote, WrotePuts
from holdfast.core.model.map_moves import NoMoves
from holdfast.core.model.notices import ViewInstalled
from holdfast.core.model.object_names import part_name
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Change, Puts, Record, pack_puts
from holdfast.core.model.views import View
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup.local_replicas import LocalReplicas
from holdfast.core.store.partition_copy import PartitionCopy

SETTINGS = Settings(
    partitions=PartitionSettings(count=1),
    maps={
        "default": MapSettings(backups=1),
        "alone": MapSettings(backups=0),
        "kept": MapSettings(backups=1, journal="sync"),
        "told": MapSettings(backups=1, changes_bytes=100_000),
        "more": MapSettings(backups=2),
    },
    replication=ReplicationSettings(tail_bytes=1000),
    services={"single": ServiceSettings(backups=0), "queue": ServiceSettings(backups=1)},
)
PROVEN = Settings(
    partitions=PartitionSettings(count=1),
    maps={"default": MapSettings(backups=1), "more": MapSettings(backups=1)},
)


class Backup:
    def __init__(self, *row: str, journal: bool = False, settings: Settings = SETTINGS) -> None:
        self.out = Outbox()
        self.rows = [Assignment(5, row or (OWNER, ME))]  # type: ignore[arg-type]
        self.log = Log(self.out, on=journal)
        self.copies = LocalReplicas(ME, settings, self.out, self.rows, self.log)
        self.copies.held[0] = PartitionCopy(0, 0)

    def take(self, batch: int, *updates: Record | Puts, term: int = 3) -> list[int]:
        """Returns the batches that were acknowledged at once."""
        records = [update for update in updates if isinstance(update, Record)]
        packed = [update for update in updates if isinstance(update, Puts)]
        section = Section(0, 5, records, term, packed)
        self.copies.on_replicate(OWNER, Replicate([batch], [section]))
        return acknowledged(self.out)

    def entries(self, name: str = "m") -> dict[bytes, bytes]:
        return dict(self.copies.held[0].maps[name].state.entries)


def puts(start: int, *keys: bytes, name: str = "m") -> Puts:
    return pack_puts(name, start, list(keys), [b"v"] * len(keys))


def begin(counter: int, name: str = "m") -> Record:
    return Record(name, counter, Change.BEGIN, b"")


# -- packed stores


@pytest.mark.rule("primary_backup/B-2")
def test_packed_stores_are_taken_together_with_others() -> None:
    backup = Backup()
    assert backup.take(1, put(1, b"one"), puts(0, b"a", b"b", name="n"), puts(1, b"c")) == [1]
    assert backup.entries() == {b"key": b"one", b"c": b"v"}
    assert backup.entries("n") == {b"a": b"v", b"b": b"v"}
    assert backup.take(2, puts(2, b"d"), puts(3, b"e"), puts(2, b"f", name="n")) == [2]
    assert backup.entries() == {b"key": b"one", b"c": b"v", b"d": b"v", b"e": b"v"}
    assert backup.copies.held[0].maps["m"].lineage == [(3, 0)]


@pytest.mark.rule("primary_backup/B-2")
@pytest.mark.parametrize(
    "early", [(puts(2, b"c"), puts(0, b"a", name="n")), (puts(0, b"a"), puts(2, b"c")), (puts(1, b"b"),)]
)
def test_packed_stores_with_a_gap_before_them_wait(early: tuple[Puts, ...]) -> None:
    backup = Backup()
    assert backup.take(2, *early) == []
    assert backup.copies.held[0].maps == {}
    assert sorted(backup.take(1, puts(0, b"a", b"b"))) == [1, 2]
    assert {b"a", b"b"} <= backup.entries().keys()


def test_stores_that_are_held_already_are_not_taken_again() -> None:
    backup = Backup()
    backup.take(1, put(1, b"1", key=b"a"), put(2, b"2", key=b"b"), put(3, b"3", key=b"a"))
    assert backup.take(2, puts(0, b"a", b"b", b"a", b"c"), puts(0, b"z", name="n")) == [2]
    assert backup.entries() == {b"a": b"3", b"b": b"2", b"c": b"v"}
    assert backup.copies.held[0].maps["m"].updates.lwm == 4


def test_packed_stores_of_maps_that_its_index_does_not_hold_are_left_out() -> None:
    backup = Backup()
    assert backup.take(1, puts(7, b"a", name="alone"), puts(0, b"a"), puts(0, b"b", name="n")) == [1]
    assert backup.copies.held[0].maps.keys() == {"m", "n"}


@pytest.mark.parametrize("name", ["told", "m"])
def test_packed_stores_are_remembered_as_long_as_the_map_says(name: str) -> None:
    backup = Backup()
    for start in range(0, 40, 2):
        values = [b"v" * 50] * 2
        packed = [pack_puts(of, start, [b"a", b"b"], values) for of in (name, "other")]
        backup.take(start + 1, *packed)
    assert (backup.copies.held[0].maps[name].remembered_from == 0) is (name == "told")
    few = Backup()
    few.take(1, puts(0, b"a", name=name), puts(0, b"a", name="other"))
    few.take(2, puts(1, b"a", name=name), puts(1, b"a", name="other"))
    assert few.copies.held[0].maps[name].remembered_from == 0


@pytest.mark.parametrize("journal", [True, False])
def test_packed_stores_are_durable_before_they_are_acknowledged_where_the_map_says_so(
    *, journal: bool
) -> None:
    backup = Backup(journal=journal)
    packed = (puts(0, b"a", name="kept"), puts(0, b"b"))
    section = Section(0, 5, [], 3, list(packed))
    backup.copies.on_replicate(OWNER, Replicate([1], [section]))
    backup.log.flush()
    effects = backup.out.take()
    appended = [entry for effect in effects if isinstance(effect, Append) for entry in effect.entries]
    written = [entry for entry in appended if isinstance(entry, WrotePuts | Wrote)]
    assert bool(written) is journal
    names = {record.map for entry in written for record in entry.records}
    assert names == ({"kept"} if journal else set())
    assert all((entry.partition, entry.term) == (0, 3) for entry in written)
    assert len(effects) > 0
    if journal:
        backup.out.effects = list(effects)
        assert acknowledged(backup.out) == []
        (number,) = [effect.number for effect in effects if isinstance(effect, Append)]
        backup.log.on_durable(number)
        assert acknowledged(backup.out) == [1]


@pytest.mark.parametrize(("name", "journal"), [("kept", True), ("m", True), ("kept", False)])
def test_stores_of_one_map_alone_are_durable_before_they_are_acknowledged(
    name: str, *, journal: bool
) -> None:
    backup = Backup(journal=journal)
    backup.copies.open(backup.copies.held[0], name)
    section = Section(0, 5, [], 3, [puts(0, b"a", name=name)])
    backup.copies.on_replicate(OWNER, Replicate([1], [section]))
    backup.log.flush()
    effects = backup.out.take()
    appended = [effect for effect in effects if isinstance(effect, Append)]
    assert bool(appended) is (journal and name == "kept")
    backup.out.effects = list(effects)
    assert acknowledged(backup.out) == ([] if appended else [1])
    for append in appended:
        backup.log.on_durable(append.number)
        assert acknowledged(backup.out) == [1]


def test_the_time_that_a_record_waits_counts_as_time_to_live() -> None:
    backup = Backup()
    backup.out.now_ns = 1000 * MILLISECOND
    backup.take(2, Record("m", 2, Change.SET, b"key", b"v", 100))
    backup.out.now_ns += 40 * MILLISECOND
    assert sorted(backup.take(1, put(1, b"u", key=b"other"))) == [1, 2]
    state = backup.copies.held[0].maps["m"].state
    assert not state.expired(b"key", 1099 * MILLISECOND)
    assert state.expired(b"key", 1100 * MILLISECOND)


def test_records_of_an_old_version_are_not_kept() -> None:
    backup = Backup()
    for version, kept in ((4, 0), (6, 1)):
        backup.copies.on_replicate(OWNER, Replicate([1], [Section(0, version, [put(1, b"v")], 3)]))
        assert backup.copies.leftovers["early messages"] == kept


def test_records_that_wait_are_dropped_when_this_member_is_removed() -> None:
    for admitted in (True, False):
        backup = Backup()
        backup.take(2, put(2, b"v"))
        nobody: frozenset[MemberId] = frozenset()
        backup.copies.on_view(ViewInstalled(None, View(7, "id", []), admitted, nobody, nobody))
        assert backup.copies.leftovers["early messages"] == admitted


# -- maps that begin again


@pytest.mark.rule("store/R-1")
def test_a_map_that_begins_again_drops_what_was_before() -> None:
    backup = Backup()
    backup.take(1, put(1, b"old", key=b"old"))
    assert backup.take(2, begin(41), put(42, b"new"), term=4) == [2]
    assert backup.entries() == {b"key": b"new"}
    assert backup.copies.held[0].maps["m"].lineage == [(4, 40)]
    assert backup.take(3, begin(41), put(42, b"new"), term=4) == [3], "once more"
    assert backup.entries() == {b"key": b"new"}
    assert backup.take(4, begin(1), put(2, b"older"), term=3) == [4], "it is of before"
    assert backup.entries() == {b"key": b"new"}
    assert backup.take(5, begin(41), put(43, b"more"), term=4) == [5], "and goes on"
    assert backup.entries() == {b"key": b"more"}
    assert Backup().take(1, begin(41), put(43, b"new")) == [], "update 42 is missing"
    fresh = Backup()
    assert fresh.take(1, begin(41), put(42, b"new")) == [1]
    assert fresh.entries() == {b"key": b"new"}


# -- maps with more copies than before


def filled_later(*row: str) -> Backup:
    backup = Backup(*row)
    backup.copies.rely_on(PROVEN, NoMoves())
    return backup


@pytest.mark.rule("model/C-1")
def test_records_of_a_map_that_it_still_has_to_be_filled_with_are_left_out() -> None:
    backup = filled_later(OWNER, OTHER, ME)
    assert backup.take(1, put(5, b"v", name="more"), put(1, b"w", name="alone")) == [1]
    assert backup.take(2, puts(5, b"a", name="more"), puts(0, b"a", name="alone")) == [2]
    assert backup.copies.held[0].maps == {}, "they would leave a gap"
    assert backup.take(3, put(1, b"v", name="more")) == [3]
    assert backup.entries("more") == {b"key": b"v"}, "the map begins here"
    assert backup.take(4, put(3, b"v", name="more")) == [], "now there is a gap"
    for gap in (
        (put(1, b"v", name="more"), put(3, b"v", name="more")),
        (puts(0, b"a", name="more"), puts(2, b"b", name="more")),
    ):
        assert filled_later(OWNER, OTHER, ME).take(1, *gap) == []
    second = filled_later(OWNER, OTHER, ME)
    assert second.take(1, puts(1, b"a", name="more"), puts(2, b"b", name="more")) == [1]
    assert second.take(2, put(2, b"v", name="more")) == [2]
    assert second.copies.held[0].maps == {}
    backup = filled_later(OWNER, OTHER, ME)
    assert backup.take(1, puts(0, b"a", name="more"), puts(0, b"a", name="alone")) == [1]
    assert backup.entries("more") == {b"a": b"v"}
    backup = filled_later(OWNER, OTHER, ME)
    assert backup.take(1, begin(9, "more"), put(10, b"v", name="more")) == [1]
    assert backup.entries("more") == {b"key": b"v"}
    kept = filled_later(OWNER, OTHER, ME)
    assert kept.take(1, put(5, b"v", name="more"), put(1, b"b", name="more")) == [1]
    assert kept.entries("more") == {b"key": b"b"}, "those after it are looked at"


@pytest.mark.rule("model/C-1")
def test_a_replica_of_an_index_that_had_the_map_before_waits_for_what_is_missing() -> None:
    for row, batch in (((OWNER, ME), put(5, b"v", name="more")), ((OWNER, ME), puts(5, b"a", name="more"))):
        backup = filled_later(*row)
        assert backup.take(1, batch) == []
    farther = filled_later(OWNER, OTHER, "third", ME)
    assert farther.take(1, put(5, b"v", name="more")) == [1]
    assert farther.copies.held[0].maps == {}, "this index never holds it"


# -- what a replica keeps


def test_only_the_maps_of_the_new_index_are_kept_when_a_replica_moves() -> None:
    backup = Backup(journal=True)
    copy = backup.copies.held[0]
    for name in ("m", "alone"):
        backup.copies.open(copy, name)
    copy.written(part_name("single"))
    copy.written(part_name("queue"))
    backup.copies.keep_maps_of(0, 1)
    assert copy.maps.keys() == {"m"}
    backup.log.flush()
    dropped = [
        entry
        for effect in backup.out.take()
        if isinstance(effect, Append)
        for entry in effect.entries
        if isinstance(entry, Dropped)
    ]
    assert dropped == [Dropped(0, "alone"), Dropped(0, part_name("single"))]
    assert value_of(backup.copies, name="alone") is None


def test_a_replica_from_files_is_held_again_without_services_that_are_not_run_here() -> None:
    backup = Backup(OWNER, ME)
    copy = backup.copies.held.pop(0)
    copy.written(part_name("queue"))
    backup.copies.open(copy, "m")
    backup.copies.revive({0: copy})
    assert backup.copies.base(0) is copy
    assert backup.copies.assignment_changed(0, Assignment(0, ()), backup.rows[0], None) is copy
    assert copy.services == {}
    assert copy.maps.keys() == {"m"}
