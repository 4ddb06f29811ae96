"""Frequent messages of one step leave in one message to each member."""

from __future__ import annotations

import pytest

from holdfast.core.messages import Answer, Forward, Message, MessageBatch, Replicated, Summary
from holdfast.core.model.ids import MemberId
from holdfast.core.model.levels import MESSAGE_BATCHES
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.core.outbox import Outbox
from holdfast.engine import unsent_messages
from holdfast.engine.unsent_messages import UnsentMessages
from holdfast.wire.codec import decode

BEN, CAT = MemberId("ben"), MemberId("cat")


def forward(ticket: int, value: bytes = b"v") -> Forward:
    return Forward(ticket, Request(Op.SET, "m", [0], b"k", value))


def answer(ticket: int, value: bytes = b"") -> Answer:
    return Answer(ticket, Outcome(Status.OK, value), [])


def sent(*parts: tuple[MemberId, Message], level: int = MESSAGE_BATCHES) -> list[tuple[MemberId, Message]]:
    found: list[tuple[MemberId, Message]] = []
    out = Outbox()
    out.level = level
    unsent = UnsentMessages(out, lambda to, data: found.append((to, decode(data))))
    for to, message in parts:
        unsent.add(to, message)
    unsent.send_all()
    count = len(found)
    unsent.send_all()
    assert len(found) == count, "each is sent once"
    return found


@pytest.mark.rule("engine/M-1")
def test_messages_for_one_member_are_one_in_their_order() -> None:
    replicated = Replicated([1], [2])
    found = sent((BEN, forward(1)), (BEN, answer(2)), (CAT, forward(3)), (BEN, replicated), (BEN, forward(4)))
    assert found == [
        (BEN, MessageBatch([forward(1), answer(2), replicated, forward(4)])),
        (CAT, forward(3)),
    ]


@pytest.mark.rule("engine/M-1")
def test_a_rare_message_leaves_alone_and_after_those_before_it() -> None:
    rare = Summary(0, 0, [], [])
    found = sent((BEN, forward(1)), (BEN, forward(2)), (BEN, rare), (BEN, forward(3)))
    assert found == [(BEN, MessageBatch([forward(1), forward(2)])), (BEN, rare), (BEN, forward(3))]


def test_members_of_older_builds_get_them_one_by_one() -> None:
    found = sent((BEN, forward(1)), (BEN, forward(2)), level=MESSAGE_BATCHES - 1)
    assert found == [(BEN, forward(1)), (BEN, forward(2))]


@pytest.mark.rule("engine/M-1")
def test_a_batch_does_not_become_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unsent_messages, "BATCH_BYTES", 2100)
    found = sent(*((BEN, answer(ticket, b"v" * 900)) for ticket in range(5)))
    assert [len(getattr(message, "messages", [0])) for _, message in found] == [2, 2, 1]
    huge = sent((BEN, forward(1, b"v" * 5000)), (BEN, forward(2)))
    assert huge == [(BEN, forward(1, b"v" * 5000)), (BEN, forward(2))]


def test_many_messages_are_one_batch() -> None:
    [(_, batch)] = sent(*((BEN, answer(ticket)) for ticket in range(1000)))
    assert isinstance(batch, MessageBatch)
    assert batch.messages == [answer(ticket) for ticket in range(1000)]
