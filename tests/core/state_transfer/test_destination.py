"""A staging replica is not fooled by any order, and what does not fit is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import msgspec
import pytest
from tests.core.state_transfer.receiving import ME, OTHER, OWNER, Side, chunk, message, put
from tests.core.telling import gone, removed

from holdfast.core.messages import (
    Fill,
    Filled,
    FillEnded,
    FillRefused,
    Replicate,
    Replicated,
    Section,
)
from holdfast.core.model.ids import MemberId
from holdfast.core.model.notices import LastChunkReceived
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Change, Record
from holdfast.core.model.sync_request import Demand
from holdfast_lab.sim.ablations.switching import ablated


@pytest.mark.rule("primary_backup/F-2", "state_transfer/S-6")
def test_what_was_written_before_the_content_was_taken_does_not_come_back() -> None:
    """The primary sends the write at counter 2 again, when its entry was removed at counter 3 and the content taken."""
    told = [message(1, put(2, b"two")), chunk(1, 3, (b"other", b"x")), message(2, put(4, b"y", key=b"later"))]
    for order in permutations(told):
        side = Side(OWNER, OTHER)
        side.tell(chunk(0))
        for item in order:
            side.tell(item)
        side.tell(chunk(2, 4, last=True))
        assert side.filling().state.entries == {b"other": b"x", b"later": b"y"}


@pytest.mark.rule("primary_backup/F-4")
def test_a_shadow_ends_the_same_in_whatever_order_it_is_told() -> None:
    """The last chunk says counter 3; the records up to it may come before or after it."""
    told = [
        message(1, put(2, b"two")),
        message(2, Record("m", 3, Change.REMOVE, b"other")),
        chunk(1, 1, (b"key", b"one"), (b"other", b"x")),
    ]
    for order in permutations(told):
        side = Side(OWNER, OTHER)
        side.tell(chunk(0))
        for item in order:
            side.tell(item)
        side.tell(chunk(2, 3, last=True))
        assert side.destination.staging[0].complete
        assert side.filling().state.entries == {b"key": b"two"}
        assert side.filling().counter == 3


def test_a_map_whose_first_record_comes_after_the_last_chunk_knows_its_term() -> None:
    """Found by seed 12: the copy was of term 0 then, and not equal to its primary's."""
    side = Side(OWNER, OTHER)
    side.tell(chunk(0))
    side.tell(chunk(1, 1, (b"key", b"one")))
    side.tell(chunk(2, 1, last=True))
    side.tell(Replicate([1], [Section(0, 5, [put(1, b"x", name="new")], 5)]))
    assert (side.filling("new").counter, side.filling("new").term) == (1, 5)


def test_a_wrong_copy_that_is_replaced_holds_nothing_up_and_the_new_one_misses_nothing() -> None:
    """Records that the old copy cannot take belong to the new one, and are acknowledged when that is complete."""
    side = Side(OWNER, ME, holds=True)
    wrong = side.copies.held[0].open("m")
    side.tell(chunk(0, joining=False))
    side.tell(chunk(1, 4, (b"key", b"four"), (b"other", b"x"), joining=False))
    side.answers()
    side.tell(message(1, put(5, b"five")))
    side.tell(message(2, Record("m", 6, Change.REMOVE, b"other")))
    assert side.answers() == []
    side.tell(chunk(2, 6, last=True, joining=False))
    held = side.copies.held[0].maps["m"]
    assert held is not wrong
    assert (held.state.entries, held.counter) == ({b"key": b"five"}, 6)
    assert {1, 2} == {
        number for one in side.answers() if isinstance(one, Replicated) for number in one.batches
    }


@pytest.mark.rule("state_transfer/D-4")
def test_it_is_whole_only_when_what_the_last_chunk_counts_has_come() -> None:
    side = Side(OWNER, OTHER)
    side.tell(chunk(0))
    side.tell(chunk(1, 1, (b"key", b"one")))
    side.answers()
    side.tell(chunk(2, 2, last=True))
    assert side.answers() == []
    side.tell(message(1, put(2, b"two")))
    assert side.filling().state.entries == {b"key": b"two"}
    assert side.answers() == [Replicated([1], [0]), Filled(0, 5, 1, 2)]


@ablated("no-gap")
def test_without_that_rule_it_counts_as_whole_with_an_update_missing() -> None:
    side = Side(OWNER, OTHER)
    side.tell(chunk(0))
    side.tell(chunk(1, 1, (b"key", b"one")))
    side.answers()
    side.tell(chunk(2, 2, last=True))
    assert side.answers() == [Filled(0, 5, 1, 2)]
    assert (side.filling().counter, side.filling().state.entries) == (2, {b"key": b"one"})


def test_a_colder_replica_that_becomes_hotter_takes_maps_it_did_not_hold_into_its_shadow_alone() -> None:
    side = Side(OWNER, OTHER, ME, holds=True)
    side.tell(chunk(0))
    side.answers()
    side.tell(message(1, put(7, b"seven"), put(1, b"d", name="deep"), put(9, b"nine")))
    assert side.answers() == [Replicated([1], [0])], "the map that index 2 does not hold has no gap there"
    assert set(side.copies.held[0].maps) == {"deep"}
    side.tell(chunk(1, 8, (b"other", b"x")))
    assert side.filling().state.entries == {b"key": b"nine", b"other": b"x"}


def test_a_new_time_to_live_does_not_hide_an_older_value_that_is_on_its_way() -> None:
    """The chunk with the value waited for its turn at the source, while the time to live was changed."""
    side = Side(OWNER, OTHER)
    side.tell(chunk(0))
    side.tell(chunk(1, 1))
    side.tell(message(1, Record("m", 2, Change.EXPIRY, b"key", ttl_ms=5000)))
    side.tell(chunk(2, 1, (b"key", b"one")))
    assert side.filling().state.entries == {b"key": b"one"}
    assert side.filling().state.expiries[b"key"].ttl_ms == 5000


@pytest.mark.rule("state_transfer/D-1")
def test_a_replica_of_the_row_that_is_refilled_takes_the_new_copy_when_it_is_whole() -> None:
    side = Side(OWNER, ME, holds=True)
    before = side.copies.held[0]
    side.tell(chunk(0, joining=False))
    side.tell(chunk(1, 1, (b"key", b"one"), joining=False))
    assert side.copies.held[0] is before
    side.tell(chunk(2, 1, last=True, joining=False))
    assert side.copies.held[0].maps["m"].state.entries == {b"key": b"one"}
    assert side.destination.staging == {}


# -- every message in every state


def nothing(side: Side) -> None:
    """No supply has begun."""


def filling(side: Side) -> None:
    side.tell(chunk(0, ticket=2))
    side.tell(chunk(1, 1, (b"key", b"one"), ticket=2))


def complete(side: Side) -> None:
    filling(side)
    side.tell(chunk(2, 1, last=True, ticket=2))


def deciding(side: Side) -> None:
    complete(side)
    side.around.stored = Assignment(6, (ME,))


def decided(side: Side) -> None:
    complete(side)
    old, side.rows[0] = side.rows[0], Assignment(7, (OTHER,))
    side.destination._arrived(0, old)


STATES = [nothing, filling, complete, deciding, decided]
MESSAGES: dict[str, tuple[Fill, MemberId]] = {
    "the first chunk of a new supply": (chunk(0, ticket=3), OWNER),
    "the first chunk of this supply again": (chunk(0, ticket=2), OWNER),
    "its next chunk": (chunk(2, 1, (b"other", b"x"), ticket=2), OWNER),
    "a chunk of an earlier supply": (chunk(1, ticket=1), OWNER),
    "a chunk of an older version": (chunk(0, ticket=9, version=4), OWNER),
    "a chunk of a newer version": (chunk(0, ticket=9, version=8), OWNER),
    "a chunk of a stranger": (chunk(0, ticket=9), OTHER),
    "the first chunk of a refill": (chunk(0, ticket=3, joining=False), OWNER),
}
HELD, WAITS = "held", "waits"
EXPECTED = {
    "the first chunk of a new supply": [HELD, HELD, HELD, "outstanding", "at version 7"],
    "the first chunk of this supply again": [HELD, HELD, HELD, "outstanding", "at version 7"],
    "its next chunk": ["earlier chunks", HELD, HELD, "outstanding", "at version 7"],
    "a chunk of an earlier supply": ["earlier chunks", "has begun since"] * 2 + ["at version 7"],
    "a chunk of an older version": ["at version 5"] * 4 + ["at version 7"],
    "a chunk of a newer version": [WAITS] * 5,
    "a chunk of a stranger": ["the primary is owner"] * 4 + ["at version 7"],
    "the first chunk of a refill": [HELD, HELD, HELD, HELD, "at version 7"],
}
EXPECTED["a chunk of an earlier supply"][2:4] = ["has begun since", "outstanding"]


@pytest.mark.rule("state_transfer/D-3")
@pytest.mark.parametrize("what", MESSAGES)
@pytest.mark.parametrize("state", STATES)
def test_every_chunk_is_taken_kept_or_refused_by_name(state: Callable[[Side], None], what: str) -> None:
    side = Side(OWNER, OTHER)
    state(side)
    side.answers()
    fill, sender = MESSAGES[what]
    before = dict(side.destination.staging)
    side.tell(fill, sender)
    expected = EXPECTED[what][STATES.index(state)]
    answers = side.answers()
    if expected is WAITS:
        assert answers == []
    elif expected is HELD:
        demand = Demand(0, []) if fill.sequence == 0 else None
        assert answers == [Filled(0, fill.version, fill.ticket, fill.sequence, demand)]
    else:
        (answer,) = answers
        assert isinstance(answer, FillRefused)
        assert (answer.ticket, answer.version) == (fill.ticket, fill.version)
        assert expected in answer.why
        assert side.destination.staging == before, "a refusal changes nothing"


def test_what_waited_for_its_row_is_taken_with_it() -> None:
    side = Side(OTHER)
    side.tell(chunk(0, version=6))
    old, side.rows[0] = side.rows[0], Assignment(6, (OWNER,))
    side.destination._arrived(0, old)
    side.destination.retry(0)
    assert side.answers() == [Filled(0, 6, 1, 0, Demand(0, []))]


def off(ticket: int = 2, version: int = 5) -> FillEnded:
    return FillEnded(0, version, ticket, "a backup does not acknowledge")


@pytest.mark.parametrize("joining", [True, False])
def test_what_its_primary_calls_off_goes_and_what_waited_for_it_too(joining: bool) -> None:
    side = Side(OWNER, ME, holds=True)
    for fill in (chunk(0, ticket=2), chunk(1, 1, (b"key", b"one"), ticket=2)):
        side.tell(msgspec.structs.replace(fill, joining=joining))
    side.tell(message(1, put(2, b"two"), put(1, b"x", name="other")))
    side.answers()
    assert set(side.copies.services.pending) == ({0} if joining else set())
    side.destination.on_fill_ended(OWNER, off())
    assert {**side.copies.leftovers, "early messages": 0} == dict.fromkeys(side.copies.leftovers, 0)
    assert side.answers() == []
    side.tell(message(2, put(1, b"one")))
    assert [answer.batches for answer in side.answers() if isinstance(answer, Replicated)] == [[2], [1]]


def test_only_the_supply_that_it_names_is_called_off() -> None:
    for sender, ended in ((OWNER, off(ticket=1)), (OWNER, off(ticket=3)), (OTHER, off())):
        side = Side(OWNER, OTHER)
        filling(side)
        side.destination.on_fill_ended(sender, ended)
        assert 0 in side.destination.staging


def test_chunks_that_wait_for_their_row_are_called_off_too() -> None:
    side = Side(OTHER)
    side.tell(chunk(0, version=6, ticket=2))
    side.tell(chunk(0, version=6, ticket=3))
    side.destination.on_fill_ended(OWNER, off(version=6))
    old, side.rows[0] = side.rows[0], Assignment(6, (OWNER,))
    side.destination._arrived(0, old)
    side.destination.retry(0)
    assert side.answers() == [Filled(0, 6, 3, 0, Demand(0, []))]
    assert side.destination.leftovers == {"early chunks": 0}


@pytest.mark.rule("state_transfer/D-3")
def test_a_chunk_that_is_refused_ends_what_came_of_its_supply() -> None:
    """The decision on another row is outstanding: its primary hears the refusal, and sends nothing more of this."""
    side = Side(OWNER, OTHER)
    filling(side)
    side.around.stored = Assignment(6, (OWNER, OTHER))
    side.tell(chunk(2, 1, (b"other", b"x"), ticket=2))
    assert isinstance(side.answers()[-1], FillRefused)
    assert set(side.copies.leftovers.values()) == {0}


def test_what_is_half_filled_goes_with_its_primary_and_what_is_whole_waits_for_the_row() -> None:
    """A frozen table keeps its rows; and a partition whose only copy is gone does, too."""
    for state, kept in ((filling, 0), (complete, 1)):
        side = Side(OWNER, OTHER)
        state(side)
        side.tell(chunk(0, version=8, ticket=9))
        side.destination.on_view(gone(OTHER))
        assert len(side.destination.staging) == 1
        side.destination.on_view(gone(OWNER))
        assert len(side.destination.staging) == len(side.copies.services.pending) == kept
        assert side.destination.leftovers == {"early chunks": 0}


def test_what_is_half_filled_is_dropped_in_exile_and_what_is_whole_stays() -> None:
    for state, kept in ((filling, 0), (complete, 1)):
        side = Side(OWNER)
        state(side)
        side.destination.on_view(removed())
        assert len(side.destination.staging) == kept


def test_next_primary_learns_how_long_writes_have_stopped() -> None:
    """Only with the last chunk, and no other replica learns it."""
    for index, told in ((0, [LastChunkReceived(0, 70)]), (1, [])):
        side = Side(OWNER, OTHER)
        for number in range(3):
            fill = chunk(number, 2 if number else 0, last=number == 2)
            side.tell(msgspec.structs.replace(fill, index=index, paused_ns=70 if number == 2 else 0))
            assert side.last_chunks == (told if number == 2 else [])
        side.tell(msgspec.structs.replace(fill, index=index, paused_ns=90))
        assert side.last_chunks == told, "a repeated chunk has no effect"
