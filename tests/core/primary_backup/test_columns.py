"""Stores that come as columns do what the same records do, and are believed no sooner."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import pytest
from tests.core.primary_backup import test_local_replicas
from tests.core.primary_backup.test_local_replicas import (
    ME,
    OTHER,
    OWNER,
    acknowledged,
    backup,
    message,
    put,
    value_of,
)
from tests.core.primary_backup.test_unsent_puts import WAYS
from tests.sampled_cases import sampled

from holdfast.config import MapSettings, PartitionSettings, Settings
from holdfast.core.effects import Append
from holdfast.core.journal.log import Log
from holdfast.core.messages import Replicate, Section
from holdfast.core.model.ids import MemberId
from holdfast.core.model.journal_entries import Wrote, WrotePuts
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Change, Record, as_puts, pack_puts
from holdfast.core.model.update_counter import UpdateCounter
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup.local_replicas import LocalReplicas
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.wire.codec import decode, encode
from holdfast_lab.sim.ablations.switching import ablated

TERM = 3


@pytest.fixture(autouse=True, params=WAYS)
def _either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of this is so in plain Python and compiled."""
    made = partial(LocalReplicas, puts=request.param)
    monkeypatch.setattr(test_local_replicas, "LocalReplicas", made)
    monkeypatch.setitem(globals(), "LocalReplicas", made)


def columns(batch: int, start: int, *values: bytes, version: int = 5, key: bytes = b"key") -> Replicate:
    puts = pack_puts("m", start, [key] * len(values), values)
    return Replicate([batch], [Section(0, version, [], TERM, [puts])])


def late_then_early() -> tuple[bytes | None, list[int]]:
    copies, out, _ = backup()
    copies.on_replicate(OWNER, columns(2, 2, b"third"))
    assert acknowledged(out) == [], "what comes too early waits"
    copies.on_replicate(OWNER, columns(1, 0, b"first", b"second"))
    copies.on_replicate(OWNER, columns(1, 0, b"first", b"second"))
    return value_of(copies), acknowledged(out)


@pytest.mark.rule("primary_backup/B-2")
def test_they_are_applied_in_the_order_of_the_counter_and_once() -> None:
    value, numbers = late_then_early()
    assert value == b"third"
    assert sorted(numbers) == [1, 1, 2]


@ablated("record-order")
def test_without_that_rule_an_older_value_overwrites_a_newer_one() -> None:
    copies, _, _ = backup()
    copies.on_replicate(OWNER, columns(2, 0, b"first", b"second", b"third"))
    copies.on_replicate(OWNER, columns(1, 0, b"first", b"second"))
    assert value_of(copies) == b"second"


@pytest.mark.rule("primary_backup/B-1")
def test_a_stranger_and_an_old_version_are_not_believed() -> None:
    copies, out, _ = backup()
    copies.on_replicate(OTHER, columns(1, 0, b"of a stranger"))
    copies.on_replicate(OWNER, columns(1, 0, b"of an old time", version=4))
    copies.on_replicate(OWNER, columns(1, 0, b"of a time to come", version=6))
    assert (value_of(copies), acknowledged(out)) == (None, [])


@pytest.mark.rule("primary_backup/B-1")
@pytest.mark.parametrize(
    ("row", "sender", "version", "believed"),
    [
        (Assignment(5, (OWNER, ME)), OWNER, 5, True),
        (Assignment(5, (OWNER, ME)), OTHER, 5, False),
        (Assignment(5, (OWNER, ME)), OWNER, 4, False),
        (Assignment(5, (OWNER, ME)), OWNER, 6, False),
        (Assignment(5, (OWNER, OTHER)), OWNER, 5, False),
        (Assignment(5, (OTHER, ME)), OWNER, 5, False),
        (Assignment(5, ()), OWNER, 5, False),
        (Assignment(5, (None, ME)), OWNER, 5, False),
    ],
)
def test_nor_are_the_next_updates_of_a_map_that_is_there(
    row: Assignment, sender: MemberId, version: int, *, believed: bool
) -> None:
    """The way that is usual asks for as much as the other one."""
    copies, out, rows = backup()
    copies.on_replicate(OWNER, columns(1, 0, b"before"))
    assert acknowledged(out) == [1]
    rows[0] = row
    copies.on_replicate(sender, columns(2, 1, b"next", version=version))
    expected = (b"next", [2]) if believed else (b"before", [])
    assert (value_of(copies), acknowledged(out)) == expected


@pytest.mark.rule("primary_backup/B-2")
def test_what_is_held_in_part_is_passed_over_and_the_rest_applied() -> None:
    copies, out, _ = backup()
    copies.on_replicate(OWNER, message(1, put(1, b"first"), put(2, b"second")))
    copies.on_replicate(OWNER, columns(2, 1, b"second again", b"third"))
    held = copies.held[0].maps["m"]
    assert (value_of(copies), held.counter, acknowledged(out)) == (b"third", 3, [1, 2])


@pytest.mark.rule("primary_backup/B-2")
@pytest.mark.parametrize("gap_first", [True, False])
def test_a_section_with_a_gap_is_applied_in_no_part(*, gap_first: bool) -> None:
    copies, out, _ = backup()
    whole, early = pack_puts("m", 0, [b"key"], [b"m"]), pack_puts("n", 1, [b"key"], [b"n"])
    puts = [early, whole] if gap_first else [whole, early]
    copies.on_replicate(OWNER, Replicate([1], [Section(0, 5, [put(1, b"o", name="o")], TERM, puts)]))
    assert [value_of(copies, name=name) for name in ("m", "n", "o")] == [None, None, None]
    assert acknowledged(out) == []
    copies.on_replicate(OWNER, message(2, put(1, b"before", name="n")))
    assert [value_of(copies, name=name) for name in ("m", "n", "o")] == [b"m", b"n", b"o"]
    assert sorted(acknowledged(out)) == [1, 2]


@pytest.mark.rule("primary_backup/B-2")
def test_a_copy_that_holds_something_later_already_counts_it_once() -> None:
    """Such a copy comes from a disk. What fills the gap must not make it forget what is behind it."""
    copies, out, _ = backup()
    held = copies.open(copies.held[0], "m")
    held.apply(put(1, b"first"), 0)
    held.apply(put(3, b"third"), 0)
    assert (held.updates.lwm, held.updates.hwm) == (1, 3)
    copies.on_replicate(OWNER, columns(1, 1, b"second"))
    assert (held.counter, held.updates.hwm, acknowledged(out)) == (3, 3, [1])
    copies.on_replicate(OWNER, columns(2, 2, b"third again"))
    assert (value_of(copies), held.counter) == (b"second", 3)


@pytest.mark.rule("store/H-1")
def test_a_tail_that_ends_elsewhere_begins_anew() -> None:
    copies, _, _ = backup()
    copies.on_replicate(OWNER, columns(1, 0, b"first"))
    held = copies.held[0].maps["m"]
    held.updates = UpdateCounter(7)
    copies.on_replicate(OWNER, columns(2, 7, b"eighth"))
    assert held.tail is not None
    assert (held.tail.start, held.tail.end, held.tail.count) == (7, 8, 1)


def test_they_begin_the_term_that_they_are_of() -> None:
    copies, _, _ = backup()
    copies.on_replicate(OWNER, message(1, put(1, b"first")))
    copies.on_replicate(OWNER, columns(2, 1, b"second", b"third"))
    held = copies.held[0].maps["m"]
    assert (held.term, held.lineage[-1]) == (TERM, (TERM, 1))
    assert held.tail is not None
    assert [(term, record.counter) for term, record in held.tail.since(1)] == [(TERM, 2), (TERM, 3)]


def test_an_entry_that_ended_some_time_lasts_from_then_on() -> None:
    copies, _, _ = backup()
    copies.on_replicate(OWNER, message(1, Record("m", 1, Change.SET, b"key", b"brief", 1000)))
    copies.on_replicate(OWNER, columns(2, 1, b"lasting"))
    assert copies.held[0].maps["m"].state.expiries == {}


@pytest.mark.rule("primary_backup/P-4")
@pytest.mark.parametrize("journal", ["off", "lazy", "sync"])
def test_what_is_to_be_durable_is_written_down_before_it_is_acknowledged(journal: str) -> None:
    settings = Settings(partitions=PartitionSettings(count=1), maps={"m": MapSettings(journal=journal)})  # type: ignore[arg-type]
    out = Outbox()
    log = Log(out, on=True)
    copies = LocalReplicas(ME, settings, out, [Assignment(5, (OWNER, ME))], log)
    copies.held[0] = PartitionCopy(0, 0)
    for batch in range(2):
        copies.on_replicate(OWNER, columns(batch, 2 * batch, b"first", b"second"))
    log.flush()
    effects = out.effects
    wrote = [entry for one in effects if isinstance(one, Append) for entry in one.entries]
    told = [
        record.counter for entry in wrote if isinstance(entry, Wrote | WrotePuts) for record in entry.records
    ]
    assert told == ([] if journal == "off" else [1, 2, 3, 4])
    assert acknowledged(out) == ([] if journal == "sync" else [0, 1])


def random_section(draw: random.Random, counters: dict[str, int]) -> list[list[Record]]:
    """What a turn has done to each of some maps."""
    parts: list[list[Record]] = []
    for name in draw.sample(sorted(counters), draw.randint(1, len(counters))):
        part: list[Record] = []
        for _ in range(draw.choice([1, 1, 2, 40])):
            counters[name] += 1
            key, value = b"%d" % draw.randrange(30), b"%d" % draw.randrange(1000)
            makes: list[Callable[[], Record]] = [
                partial(Record, name, counters[name], Change.SET, key, value),
                partial(Record, name, counters[name], Change.SET, key, value, draw.choice([0, 1000]), 0, 7),
                partial(Record, name, counters[name], Change.REMOVE, key),
            ]
            part.append(draw.choices(makes, [100, 1, 1])[0]())
        parts.append(part)
    return parts


def place(record: Record) -> tuple[str, int]:
    return record.map, record.counter


@pytest.mark.parametrize("seed", sampled(range(40), 2))
def test_columns_and_records_make_the_same_copy(seed: int) -> None:
    """The same history comes to two backups, to one of them as records; some of it late, some of it twice. Messages go
    through their bytes.
    """
    draw = random.Random(seed)
    (plain, plain_out, _), (columned, columned_out, _) = backup(), backup()
    compared = draw.random() < 0.5
    counters = dict.fromkeys(("a", "b", "deep"), 0)
    messages: list[tuple[Replicate, Replicate]] = []
    for batch in range(60):
        parts = random_section(draw, counters)
        one = Section(0, 5, [record for part in parts for record in part], 1 + batch // 25)
        other = Section(0, 5, [], 1 + batch // 25, [])
        for part in parts:
            puts = as_puts(part)
            if puts is None:
                other.records.extend(part)
            else:
                other.puts.append(puts)
        assert sorted(other.all_records(), key=place) == sorted(one.all_records(), key=place), (
            "it says the same"
        )
        messages.append((Replicate([batch], [one]), Replicate([batch], [other])))
    for at in range(len(messages) - 1):
        if draw.random() < 0.2:
            messages[at], messages[at + 1] = messages[at + 1], messages[at]
    for first, second in [one for one in messages for _ in range(1 + (draw.random() < 0.1))]:
        for copies, told in ((plain, first), (columned, second)):
            back = decode(encode(told), 1)
            assert isinstance(back, Replicate)
            copies.on_replicate(OWNER, back)
            if compared:
                for held in copies.held[0]:
                    held.state.compared()
        assert acknowledged(plain_out) == acknowledged(columned_out)
    plain_maps, columned_maps = plain.held[0].maps, columned.held[0].maps
    assert plain_maps.keys() == columned_maps.keys()
    for held, mine in ((plain_maps[name], columned_maps[name]) for name in plain_maps):
        assert (held.name, held.counter, held.lineage) == (mine.name, mine.counter, mine.lineage)
        assert held.state.entries == mine.state.entries
        assert held.state.expiries.keys() == mine.state.expiries.keys()
        assert held.state.compared() == mine.state.compared() == mine.state.digest()
        assert held.tail is not None
        assert mine.tail is not None
        assert mine.tail.start <= held.tail.start, "packed more of them fit"
        assert held.tail.since(held.tail.start) == mine.tail.since(held.tail.start)
