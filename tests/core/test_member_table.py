"""A member is a table: each message, event and timer has its one row, and what has none is refused by name."""

from __future__ import annotations

import ast
import dataclasses
import typing
from pathlib import Path

import pytest

from holdfast.config import Settings
from holdfast.core import events, member, messages
from holdfast.core.effects import Note
from holdfast.core.events import Heard, Received, TimerFired
from holdfast.core.member import DATAGRAMS, EVENTS, MESSAGES, NOTICES, TIMERS, Member
from holdfast.core.membership.identity import Identity
from holdfast.core.model import notices
from holdfast.core.model.ids import Address, MemberId
from holdfast.core.model.timer_name import TimerName
from holdfast.core.model.views import MemberInfo

ME = MemberId("me")
HOME = Address("host", 5701)


def one() -> Member:
    info = MemberInfo(ME, 1, HOME.host, HOME.port, HOME.host, 5702, "one")
    return Member(Identity(info, "cluster", {}, (), False, "id"), Settings())


def test_every_message_has_one_row() -> None:
    every = set(typing.get_args(messages.Message)) - {messages.MessageBatch}  # The driver takes it apart.
    assert MESSAGES.keys() | DATAGRAMS.keys() == every
    assert MESSAGES.keys() & DATAGRAMS.keys() == set()


def test_every_event_and_every_timer_has_a_row() -> None:
    assert EVENTS.keys() == set(typing.get_args(events.Event))
    assert TIMERS.keys() == set(TimerName)


def test_what_is_no_event_is_refused_by_name() -> None:
    @dataclasses.dataclass
    class Surprise:
        pass

    with pytest.raises(AssertionError, match="Surprise is not an event"):
        one().handle(Surprise(), 0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "event",
    [
        Received(MemberId("other"), messages.JoinAnswer("", None)),  # type: ignore[arg-type]
        Heard(HOME, messages.AcceptLoss(1)),
    ],
)
def test_a_message_that_came_the_wrong_way_has_no_effect(event: events.Event) -> None:
    name = type(event.message).__name__  # type: ignore[union-attr]
    (note,) = [effect for effect in one().handle(event, 0) if isinstance(effect, Note)]
    assert note == Note("unexpected message", {"message": name}, "warning")


def test_a_timer_without_a_row_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(member.TIMERS, TimerName.PLAN)
    with pytest.raises(AssertionError, match="plan is not a timer"):
        one().handle(TimerFired(TimerName.PLAN), 0)


# -- what one machine tells the others


def test_every_notice_has_a_row_and_every_row_names_somebody() -> None:
    assert NOTICES.keys() == set(typing.get_args(notices.Notice))
    assert all(NOTICES.values())


def test_every_notice_is_told_somewhere() -> None:
    core = Path(member.__file__).parent
    told = {
        node.args[0].func.id
        for path in core.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("notify", "notify_when_durable")
        and node.args
        and isinstance(node.args[0], ast.Call)
        and isinstance(node.args[0].func, ast.Name)
    }
    assert {kind.__name__ for kind in NOTICES} <= told


def test_a_notice_without_a_row_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(member.NOTICES, notices.BacklogChanged)
    with pytest.raises(AssertionError, match="BacklogChanged is not a notice"):
        one().out.notify(notices.BacklogChanged())


def test_a_notice_is_handed_on_at_once_in_the_order_of_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    row = (lambda member, it: heard.append("first"), lambda member, it: heard.append("second"))
    monkeypatch.setitem(member.NOTICES, notices.BacklogChanged, row)
    one().out.notify(notices.BacklogChanged())
    assert heard == ["first", "second"]
