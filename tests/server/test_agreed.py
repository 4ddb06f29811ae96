"""Questions to the metastore and orders about zones, in a session of Holdfast's own protocol."""

from __future__ import annotations

from dataclasses import fields

import pytest
from tests.server.memory_cluster import MemoryCluster, MemoryMember, Wire

from holdfast.core.events import MetastoreAsked
from holdfast.core.model.metastore_questions import (
    KeyAnswer,
    KeyAsked,
    KeyChangesAsked,
    MetastoreAnswer,
    PutAsked,
)
from holdfast.engine.recording import event_of, fields_of
from holdfast.wire import own


@pytest.fixture
def member() -> MemoryMember:
    return MemoryCluster(2, 7).members[0]


@pytest.fixture(params=[True, False], ids=["operator", "client"])
def wire(member: MemoryMember, request: pytest.FixtureRequest) -> Wire:
    found = Wire.to(member)
    assert isinstance(found.hello(operates=request.param), own.HelloOk)
    return found


def tell(wire: Wire, kind: type[own.Question], *values: object) -> int:
    wire.number += 1
    wire.session.receive(own.frame(kind(wire.number, *values)))  # type: ignore[arg-type]
    return wire.number


def test_an_answer_comes_when_the_member_has_it(wire: Wire, member: MemoryMember) -> None:
    number = tell(wire, own.AskMetastore, PutAsked(b"k", b"v", 0))
    assert wire.answers() == []
    ((asked, found),) = member.agreed
    assert asked == PutAsked(b"k", b"v", 0)
    found(MetastoreAnswer([KeyAnswer(b"k", None, 3)], 3, applied=False))
    assert wire.answers() == [
        own.MetastoreSays(number, MetastoreAnswer([KeyAnswer(b"k", None, 3)], 3, applied=False)),
    ]


@pytest.mark.parametrize(
    "question",
    [
        (own.AskMetastore, KeyAsked(b"k", -1)),
        (own.AskMetastore, KeyAsked(b"k", 2**63)),
        (own.AskMetastore, KeyChangesAsked(b"k", -5)),
        (own.AskMetastore, PutAsked(b"k", b"v", 2**60)),
    ],
)
def test_what_makes_no_sense_does_not_reach_the_member(
    wire: Wire, member: MemoryMember, question: tuple[type, object]
) -> None:
    assert wire.ask(*question).kind is own.FaultKind.MALFORMED
    assert member.agreed == []


def test_nobody_asks_who_has_not_said_who_it_is(member: MemoryMember) -> None:
    member.user = ("ada", "secret", None)
    for question in (own.AskMetastore(1, KeyAsked(b"k")),):
        stranger = Wire.to(member)
        stranger.session.receive(own.frame(question))
        assert [answer.kind for answer in stranger.answers()] == [own.FaultKind.DENIED]
    assert member.agreed == []


def test_a_recorded_life_knows_them_again() -> None:
    for event in (MetastoreAsked(7, PutAsked(b"k", b"v", 3)),):
        again = event_of(type(event).__name__, fields_of(event))
        assert again == event
        assert [type(getattr(again, one.name)) for one in fields(again)] == [
            type(getattr(event, one.name)) for one in fields(event)
        ]
