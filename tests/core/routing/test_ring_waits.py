"""Readers that wait for items of a ringbuffer: whom an item wakes, at what cost, and what they see."""

from __future__ import annotations

import pytest
from tests.core.routing.test_collection_waits import BEN, LONG_MS, ME, Stage

from holdfast.config import LimitSettings
from holdfast.core.collections import collection_steps
from holdfast.core.collections.ring_steps import key_of
from holdfast.core.messages import Forward, Replicate, Replicated
from holdfast.core.model.collections import CollectionKind, CollectionStep, StepKind, decode_step, encode_step
from holdfast.core.model.decisions import Wait
from holdfast.core.model.ids import MILLISECOND
from holdfast.core.model.operations import EntryEvent, EventKind, Outcome, Request, Status
from holdfast.core.model.partition_table import Assignment
from holdfast.core.routing import collection_waits
from holdfast.core.routing.pending import Parked

RING, TOPIC = CollectionKind.RINGBUFFER.map_of("r"), CollectionKind.TOPIC.map_of("t")


def step(kind: StepKind, *items: bytes, name: str = RING, **fields: int) -> Request:
    return Request(
        kind.op, name, [0], value=encode_step(CollectionStep(kind, max_size=10, **fields)), items=list(items)
    )


def add(*items: bytes) -> Request:
    return step(StepKind.APPEND, *items)


def read_one(sequence: int, wait_ms: int = LONG_MS) -> Request:
    return step(StepKind.READ_ITEM, index=sequence, wait_ms=wait_ms)


def read_many(start: int, least: int = 1, most: int = 10, wait_ms: int = LONG_MS) -> Request:
    return step(StepKind.READ_ITEMS, index=start, end=most, count=least, wait_ms=wait_ms)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[StepKind]:
    """Each step that is decided."""
    found: list[StepKind] = []
    decide = collection_steps.decide_step

    def watched(state: object, some: Request, *times: int, behind: bool) -> object:
        found.append(decode_step(some.value).kind)
        return decide(state, some, *times, behind=behind)  # type: ignore[arg-type]

    monkeypatch.setattr("holdfast.core.primary_backup.primary_copy.decide_step", watched)
    return found


@pytest.mark.rule("routing/R-22")
def test_all_readers_of_an_item_get_it_and_later_ones_are_not_looked_at(looks: list[StepKind]) -> None:
    stage = Stage()
    for _ in range(5):
        stage.ask(read_one(0))
    for start in range(100):
        stage.ask(read_many(0, 5 + start % 5))
    assert stage.values == []
    looks.clear()
    stage.ask(add(b"a"))
    assert stage.values == [0, *[b"a"] * 5]
    assert len(looks) == 1 + 5 + 1
    stage.ask(add(b"b", b"c", b"d", b"e"))
    assert stage.values[6:] == [4, *[[key_of(0), b"a", b"b", b"c", b"d", b"e"]] * 20]


@pytest.mark.rule("routing/R-24")
def test_so_many_readers_are_answered_in_one_step(
    monkeypatch: pytest.MonkeyPatch, looks: list[StepKind]
) -> None:
    monkeypatch.setattr(collection_waits, "WOKEN_ITEMS", 4 * collection_waits.REQUEST_ITEMS)
    stage = Stage()
    for _ in range(10):
        stage.ask(read_one(0))
    looks.clear()
    stage.ask(add(b"a"))
    assert len(looks) == 1 + 4
    assert stage.values == [0, *[b"a"] * 4]
    stage.pass_ms(1)
    assert len(stage.values) == 1 + 8
    stage.pass_ms(1)
    assert len(stage.values) == 1 + 10
    assert stage.router.leftovers["requests that wait for a change"] == 0


def test_a_reader_beyond_the_end_gets_the_next_item() -> None:
    stage = Stage()
    stage.ask(add(b"a"))
    stage.ask(read_many(7))
    stage.ask(add(b"b"))
    assert stage.values == [0, 1, [key_of(1), b"b"]]


def test_a_reader_waits_for_its_time_and_gets_nothing() -> None:
    stage = Stage()
    stage.ask(read_one(0, 50))
    stage.ask(read_many(0, 1, wait_ms=60))
    stage.pass_ms(49)
    assert stage.values == []
    stage.pass_ms(1)
    assert stage.values == [None]
    stage.pass_ms(10)
    assert stage.values == [None, None]


@pytest.mark.rule("collections/B-2")
def test_a_reader_gets_an_item_when_the_backup_holds_it() -> None:
    stage = Stage(backups=1)
    stage.ask(read_one(0))
    stage.ask(add(b"a"))
    stage.ask(read_one(0))
    stage.ask(read_many(0))
    stage.ask(step(StepKind.TAIL))
    sent = stage.sent()
    assert stage.values == []
    for to, message in sent:
        assert isinstance(message, Replicate)
        stage.lane.on_replicated(to, Replicated(message.batches, [0]))
    assert sorted(map(str, stage.values)) == ["0", "0", str([key_of(0), b"a"]), "b'a'", "b'a'"]


def test_a_reader_that_waits_goes_where_the_partition_goes() -> None:
    stage = Stage()
    stage.ask(read_one(3))
    stage.ask(read_many(9))
    assert stage.values == [[key_of(0), key_of(-1)]]
    stage.lane.leading[0] = None
    stage.rows[0] = Assignment(9, (BEN, ME))
    stage.router.served(0)
    [(to, message)] = stage.sent()
    assert to == BEN
    assert isinstance(message, Forward)
    assert decode_step(message.request.value).index == 0, "it reads from the end on that it has seen"
    assert message.request.id == b"", "a read may be done twice"


def test_a_reader_of_a_client_that_has_gone_waits_no_longer() -> None:
    stage = Stage()
    asked = stage.ask(read_one(0))
    stage.router.withdraw(asked)
    assert stage.values == [None]
    assert stage.router.leftovers["requests that wait for a change"] == 0
    stage.ask(add(b"a"))
    assert stage.values == [None, 0]


def test_readers_that_wait_are_bounded() -> None:
    stage = Stage(limits=LimitSettings(waiting_requests=4))
    for _ in range(3):
        stage.ask(read_one(0))
    assert stage.values == [Status.NOT_READY]


def test_readers_go_on_in_a_passive_cluster() -> None:
    stage = Stage()
    stage.router.refusals.passive = True
    stage.ask(read_one(0))
    stage.ask(add(b"a"))
    assert stage.values == [Status.PASSIVE]
    stage.router.refusals.passive = False
    stage.ask(add(b"a"))
    assert stage.values == [Status.PASSIVE, 0, b"a"]


def test_a_destroyed_ringbuffer_begins_again_for_its_readers() -> None:
    stage = Stage()
    stage.ask(add(b"a", b"b"))
    stage.ask(read_many(2))
    stage.lane.leading[0].maps[RING].state.wipe()  # type: ignore[union-attr]
    stage.engine._changed_collections.note(0, RING)
    stage.end_step()
    stage.ask(add(b"c"))
    assert stage.values == [1, 0, [key_of(0), b"c"]]


def test_messages_of_a_topic_go_to_its_listeners_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    heard: list[EntryEvent] = []
    monkeypatch.setattr(stage.lane, "heard", heard.append)
    stage.ask(step(StepKind.PUBLISH, b"nobody listens", name=TOPIC))
    stage.lane.listening[TOPIC] = 1
    stage.ask(step(StepKind.PUBLISH, b"a", b"b", name=TOPIC))
    assert [(one.kind, one.map, one.value) for one in heard] == [
        (EventKind.ADDED, TOPIC, b"a"),
        (EventKind.ADDED, TOPIC, b"b"),
    ]
    assert stage.values == [None, None]
    assert TOPIC not in stage.lane.leading[0].maps  # type: ignore[union-attr]


def test_waits_are_kept_by_need_and_arrival() -> None:
    line = collection_waits.WaitingLine()
    stage = Stage()
    draw = [3, 1, 2, 1, 3]
    for number, need in enumerate(draw, 1):
        parked = Parked(read_one(need), number, MILLISECOND)
        parked.number, parked.wait = number, Wait(1, need=need)
        line.add(parked)
    found = []
    while line:
        first = line.first
        found.append(first.number)
        line.remove(first)
    assert found == [2, 4, 3, 1, 5]
    assert stage.told == list[Outcome]()
