"""Forwarded requests and answers of one step leave in one message to each member."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core import sent_together
from holdfast.core.effects import Effect, Note, Send
from holdfast.core.messages import Answer, Answers, Forward, Forwards, Replicated
from holdfast.core.model.ids import MemberId
from holdfast.core.model.levels import FORWARDS_TOGETHER
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.core.outbox import Outbox

BEN, CAT = MemberId("ben"), MemberId("cat")


def forward(ticket: int, value: bytes = b"v") -> Forward:
    return Forward(ticket, Request(Op.SET, "m", [0], b"k", value))


def answer(ticket: int, value: Any = None) -> Answer:
    return Answer(ticket, Outcome(Status.OK, value), [])


def sent(*parts: tuple[MemberId, Forward | Answer], level: int = FORWARDS_TOGETHER) -> list[Effect]:
    out = Outbox()
    out.level = level
    for to, part in parts:
        out.send_part(to, part)
    return out.take()


@pytest.mark.rule("core/T-1")
def test_parts_for_one_member_are_one_message_of_each_kind() -> None:
    found = sent((BEN, forward(1)), (BEN, answer(2)), (BEN, forward(3)), (CAT, forward(4)), (BEN, answer(5)))
    assert found == [
        Send(BEN, Forwards([forward(1), forward(3)])),
        Send(BEN, Answers([answer(2), answer(5)])),
        Send(CAT, forward(4)),
    ]


def test_a_single_part_leaves_as_before() -> None:
    assert sent((BEN, forward(1))) == [Send(BEN, forward(1))]
    assert sent((BEN, forward(1)), (BEN, answer(1))) == [Send(BEN, forward(1)), Send(BEN, answer(1))]


def test_members_of_older_builds_get_them_one_by_one() -> None:
    found = sent((BEN, forward(1)), (BEN, forward(2)), level=FORWARDS_TOGETHER - 1)
    assert found == [Send(BEN, forward(1)), Send(BEN, forward(2))]


def test_other_effects_stay_and_each_step_has_its_own_messages() -> None:
    out = Outbox()
    out.send_part(BEN, forward(1))
    out.note("a note")
    out.send(BEN, Replicated([1], [2]))
    out.send_part(BEN, forward(2))
    note, replicated, forwards = out.take()
    assert isinstance(note, Note)
    assert (replicated, forwards) == (
        Send(BEN, Replicated([1], [2])),
        Send(BEN, Forwards([forward(1), forward(2)])),
    )
    out.send_part(BEN, forward(3))
    assert out.take() == [Send(BEN, forward(3))]
    assert out.take() == []


@pytest.mark.rule("core/T-1")
@pytest.mark.parametrize(
    ("part", "size"),
    [(forward, b"v" * 900), (answer, b"v" * 900), (answer, [b"v" * 450, b"v" * 450, None])],
)
def test_a_message_does_not_become_too_long(monkeypatch: pytest.MonkeyPatch, part: Any, size: Any) -> None:
    monkeypatch.setattr(sent_together, "PARTS_BYTES", 2100)
    found = sent(*((BEN, part(ticket, size)) for ticket in range(5)))
    assert [len(getattr(one.message, "parts", [0])) for one in found if isinstance(one, Send)] == [2, 2, 1]
    huge = sent((BEN, part(1, b"v" * 5000)), (BEN, part(2, b"v")))
    assert [one.message for one in huge if isinstance(one, Send)] == [part(1, b"v" * 5000), part(2, b"v")]
