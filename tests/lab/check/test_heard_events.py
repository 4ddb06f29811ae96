"""The judge of listeners speaks about each way in which they can be told wrong, and about no other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from holdfast.core.model.operations import EventKind
from holdfast_lab.check.heard_events import LATE_NS, Heard, Listening, judge
from holdfast_lab.check.linearizability import UNTOLD, Call, Outcome

DONE, REFUSED, UNKNOWN = Outcome.DONE, Outcome.REFUSED, Outcome.UNKNOWN
CALLS = [
    Call("set", "k", 10, 20, DONE, "a"),
    Call("put", "k", 30, 40, DONE, "b", result="a"),
    Call("put_if_absent", "k", 41, 44, DONE, "never", result="b"),
    Call("replace_if_same", "k", 50, 60, DONE, "c", expected="b", result=True),
    Call("replace", "k", 62, 64, DONE, "c2", result="c"),
    Call("set_ttl", "k", 65, 68, DONE, result=True),
    Call("remove", "k", 70, 80, DONE, result="c2"),
    Call("put_if_absent", "k", 90, 100, DONE, "d"),
    Call("delete", "k", 110, 120, DONE, result=True),
    Call("set", "k", 130, 140, UNKNOWN, "e"),
    Call("set", "k", 142, 145, REFUSED, "f"),
    Call("get", "k", 146, 148, DONE, result="e"),
    Call("remove_if_same", "k", 150, 160, DONE, expected="e", result=True),
    Call("set", "j", 170, 180, DONE, "g"),
    Call("remove", "j", 190, 200, DONE, result=UNTOLD),
]
ADDED, UPDATED, REMOVED = EventKind.ADDED, EventKind.UPDATED, EventKind.REMOVED


def heard(kind: EventKind, value: str | None, old: str | None, at: int, key: str | None = "k") -> Heard:
    return Heard(kind, key, value, old, "m", at)


EVENTS = [
    heard(ADDED, "a", None, 15),
    heard(UPDATED, "b", "a", 35),
    heard(UPDATED, "c", "b", 55),
    heard(UPDATED, "c2", "c", 63),
    heard(UPDATED, "c2", "c2", 66),
    heard(REMOVED, None, "c2", 75),
    heard(ADDED, "d", None, 95),
    heard(EventKind.EVICTED, None, "d", 115),
    heard(ADDED, "e", None, 135),
    heard(REMOVED, None, "e", 155),
    heard(ADDED, "g", None, 175, "j"),
    heard(EventKind.CLEAR_ALL, None, None, 195, None),
]


def problems(
    events: list[Heard],
    whole: tuple[int, int] = (0, 1000),
    key: str | None = None,
    offices: Sequence[int] = (),
) -> str:
    def must_hear(call: Call) -> bool:
        return whole[0] <= call.start and call.end <= whole[1]

    return "\n".join(judge(CALLS, [Listening("ear", key, list(events), must_hear, lambda _: offices)]))


def test_all_that_was_done_is_heard() -> None:
    assert problems(EVENTS) == ""
    assert problems([event for event in EVENTS if event.key != "j"], key="k") == ""


@pytest.mark.parametrize("at", [number for number in range(len(EVENTS)) if number != 8])
def test_an_event_that_is_missed_is_missed(at: int) -> None:
    left = EVENTS[:at] + EVENTS[at + 1 :]
    assert "was not heard" in problems(left)
    assert problems(left, whole=(0, 1)) == "", "who was not there throughout may miss some"


def test_what_nobody_knows_may_be_missed() -> None:
    assert problems(EVENTS[:8] + EVENTS[9:]) == ""


@pytest.mark.parametrize("at", [number for number in range(11) if number != 4])
def test_an_event_that_is_heard_twice_is_noticed(at: int) -> None:
    again = [*EVENTS, replace(EVENTS[at], at=500)]
    assert "heard before" in problems(again)
    elsewhere = [*EVENTS, replace(EVENTS[at], at=500, member="another")]
    assert problems(elsewhere) == "", "a change that was lost with its primary is made again by the next one"


def again(at: int, when: int, office: int) -> str:
    """What is said when an event is heard again, from a member that took office at that moment."""
    return problems([*EVENTS, replace(EVENTS[at], at=when)], offices=[office])


def test_who_takes_office_anew_makes_a_change_again_that_was_lost() -> None:
    assert again(8, 500, office=300) == "", "it was not acknowledged"
    assert "heard before" in again(0, 19, office=300)
    assert "heard before" in again(8, 500, office=501)
    late = [replace(EVENTS[8], at=LATE_NS + at) for at in (400, 500)]
    assert "heard before" in problems([*EVENTS[:8], *late], offices=[300]), "both are of the same office"
    assert problems([EVENTS[0], replace(EVENTS[0], at=19), *EVENTS[1:]], offices=[17]) == ""
    assert "heard before" in again(0, 500, office=300), "it was acknowledged before"
    ended = heard(EventKind.EXPIRED, None, "e", 151)
    both = [*EVENTS[:9], ended, replace(ended, at=500)]
    assert "heard before" in problems(both, whole=(0, 1))
    assert problems(both, whole=(0, 1), offices=[300]) == ""


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (heard(ADDED, "x", None, 300), "x was never written there"),
        (heard(ADDED, "g", None, 300), "g was never written there"),
        (heard(UPDATED, "e", "x", 300), "x was never written there"),
        (heard(ADDED, "f", None, 300), "f was refused"),
        (heard(ADDED, "e", None, 120), "before it was written"),
        (heard(ADDED, "e", "d", 300), "do not fit"),
        (heard(UPDATED, "e", None, 300), "do not fit"),
        (heard(REMOVED, "e", "d", 300), "do not fit"),
        (heard(EventKind.EXPIRED, None, None, 300), "do not fit"),
        (heard(EventKind.CLEAR_ALL, None, None, 300), "do not fit"),
        (heard(ADDED, "e", None, 300, None), "do not fit"),
    ],
)
def test_what_is_invented_is_noticed(event: Heard, why: str) -> None:
    assert why in problems([event], whole=(0, 1))


def test_who_listens_to_one_key_hears_of_no_other() -> None:
    assert "do not fit" in problems([heard(ADDED, "g", None, 175, "j")], whole=(0, 1), key="k")


@pytest.mark.parametrize(
    ("at", "event"),
    [
        (1, heard(UPDATED, "b", "d", 35)),
        (1, heard(ADDED, "b", None, 35)),
        (2, heard(UPDATED, "c", "a", 55)),
        (3, heard(UPDATED, "c2", "b", 63)),
        (5, heard(EventKind.EXPIRED, None, "c2", 75)),
        (5, heard(REMOVED, None, "c", 75)),
        (6, heard(UPDATED, "d", "c2", 95)),
        (7, heard(EventKind.EXPIRED, None, "d", 115)),
    ],
)
def test_a_change_is_heard_as_its_caller_knows_it(at: int, event: Heard) -> None:
    assert "was not heard" in problems([*EVENTS[:at], event, *EVENTS[at + 1 :]])


def test_events_of_one_member_come_in_order() -> None:
    late = [*EVENTS[1:], replace(EVENTS[0], at=500)]
    assert "older than what was heard before" in problems(late)
    assert "older" not in problems([*EVENTS[1:], replace(EVENTS[0], at=500, member="another")])
