"""Whom a member has not heard, and what it makes of that: against a plain account of every moment."""

from __future__ import annotations

import random

import pytest

from holdfast.core.membership.failure_detector import FailureDetector
from holdfast.core.model.ids import MILLISECOND, SECOND, MemberId
from holdfast.core.model.views import MemberInfo

A, B, C, D, E = (MemberId(name) for name in "abcde")
SUSPECT_NS, PAUSE_NS = 2 * SECOND, SECOND // 2


def watching(*members: MemberId, at_ns: int = 0) -> FailureDetector:
    detector = FailureDetector(SUSPECT_NS, pause_ns=PAUSE_NS)
    detector.watch(list(members), at_ns)
    return detector


def order(*members: MemberId) -> list[MemberInfo]:
    return [MemberInfo(uuid, 1, uuid, 1, uuid, 2, uuid) for uuid in members]


class Account:
    """Who was heard when, in so many words: the time that counts is what the member was awake for."""

    def __init__(self) -> None:
        self.moments: list[int] = []
        self.heard: dict[MemberId, int] = {}
        self.silent: set[MemberId] = set()

    def awake(self, now_ns: int) -> None:
        self.moments.append(now_ns)

    def stood_since(self, since_ns: int) -> int:
        later = [since_ns, *(moment for moment in self.moments if moment > since_ns)]
        gaps = [later[index + 1] - later[index] for index in range(len(later) - 1)]
        return sum(max(0, gap - PAUSE_NS) for gap in gaps)

    def not_heard_for(self, silence_ns: int, now_ns: int) -> list[MemberId]:
        return [
            member
            for member, since_ns in self.heard.items()
            if now_ns - since_ns - self.stood_since(since_ns) > silence_ns
        ]


@pytest.mark.parametrize("seed", range(30))
def test_silence_is_what_the_account_says(seed: int) -> None:
    chance = random.Random(seed)
    everybody = [A, B, C, D]
    detector, account = FailureDetector(SUSPECT_NS, PAUSE_NS), Account()
    now_ns = 0
    for _ in range(60):
        now_ns += chance.choice([0, 1, 100, PAUSE_NS // MILLISECOND, 501, 700, 1500, 4000]) * MILLISECOND
        account.awake(now_ns)
        what = chance.random()
        one = chance.choice(everybody)
        if what < 0.1 or not account.heard:
            members = chance.sample(everybody, chance.randrange(1, 5))
            detector.watch(members, now_ns)
            account.heard = {member: account.heard.get(member, now_ns) for member in members}
            account.silent &= account.heard.keys()
        elif what < 0.4:
            detector.heard(one, now_ns)
            if one in account.heard:
                account.heard[one] = now_ns
                account.silent.discard(one)
        elif what < 0.5:
            detector.awake(now_ns)
            detector.silent(one)
            account.silent |= {one} & account.heard.keys()
        elif what < 0.7:
            detector.awake(now_ns)
        silence_ns = chance.choice([0, SECOND, SUSPECT_NS, 10 * SECOND])
        assert detector.not_heard_for(silence_ns, now_ns) == account.not_heard_for(silence_ns, now_ns)
        overdue = account.not_heard_for(SUSPECT_NS, now_ns)
        assert detector.overdue(now_ns) == overdue
        assert detector.suspects(now_ns) == [
            member for member in account.heard if member in overdue or member in account.silent
        ]
        since_ns = now_ns - silence_ns
        assert detector.unheard(since_ns) == [
            member for member, heard_ns in account.heard.items() if heard_ns < since_ns
        ]
        for member, heard_ns in account.heard.items():
            recent = heard_ns >= now_ns - SUSPECT_NS and member not in account.silent
            assert detector.hears(member, now_ns) is recent
            assert detector.heard_since(member, since_ns) is (heard_ns > since_ns)


def test_whom_it_does_not_watch_it_says_nothing_of() -> None:
    detector = watching(A)
    detector.silent(B)
    detector.heard(C, SECOND)
    assert detector.suspects(SECOND) == []
    assert not detector.heard_since(C, 0)
    assert detector.hears(E, SECOND), "nothing speaks against it"
    detector.watch([A, B, C], SECOND)
    assert detector.suspects(SECOND) == [], "B's silence was before it came"
    assert not detector.heard_since(C, SECOND)


def test_who_refused_connections_and_comes_again_is_judged_from_new() -> None:
    detector = watching(A, B)
    detector.silent(B)
    assert detector.suspects(0) == [B]
    detector.watch([A], 0)
    detector.watch([A, B], 0)
    assert detector.suspects(0) == []


@pytest.mark.parametrize(("gap_ns", "counts_ns"), [(PAUSE_NS, PAUSE_NS), (PAUSE_NS + 9, PAUSE_NS)])
def test_of_a_pause_so_much_counts_as_it_may_take_to_look(gap_ns: int, counts_ns: int) -> None:
    detector = watching(A)
    detector.awake(gap_ns)
    assert detector.not_heard_for(counts_ns - 1, gap_ns) == [A]
    assert detector.not_heard_for(counts_ns, gap_ns) == []


def test_silence_begins_when_it_was_heard_to_the_nanosecond() -> None:
    detector = watching(A)
    detector.heard(A, 10 * SECOND)
    assert detector.not_heard_for(0, 10 * SECOND) == []
    assert detector.not_heard_for(0, 10 * SECOND + 1) == [A]


def test_the_reason_for_silence_in_words() -> None:
    detector = watching(A, B)
    assert detector.silence_reason(A, SUSPECT_NS - 1) == "other members suspect it"
    assert detector.silence_reason(A, SUSPECT_NS) == "silent for 2.0 s"
    assert detector.silence_reason(A, 3_260 * MILLISECOND) == "silent for 3.3 s"
    assert detector.silence_reason(E, 9 * SECOND) == "other members suspect it"
    detector.silent(B)
    assert detector.silence_reason(B, SECOND) == "its port refuses connections: the process has ended"


# -- whom to leave out


def accused(*accusations: tuple[MemberId, list[MemberId]]) -> FailureDetector:
    detector = watching(B, C, D, E)
    for accuser, suspects in accusations:
        detector.accuse(accuser, suspects)
    return detector


ALL = order(A, B, C, D, E)


@pytest.mark.parametrize(
    ("accusations", "out"),
    [
        ([], set()),
        ([(C, [D])], {D}),
        ([(D, [C])], {D}),
        ([(D, [C, B]), (C, [E])], {D, E}),
        ([(C, [A])], set()),
        ([(A, [C])], set()),
        ([(C, [MemberId("stranger")])], set()),
        ([(MemberId("stranger"), [C])], set()),
        ([(C, [D]), (C, [])], set()),
    ],
)
def test_of_two_that_do_not_hear_each_other_the_younger_goes(
    accusations: list[tuple[MemberId, list[MemberId]]], out: set[MemberId]
) -> None:
    """Not the member itself: it knows better whom it hears; nor does an accusation by itself count."""
    assert accused(*accusations).unwanted(A, ALL, 0) == out


def test_what_a_suspect_says_of_others_does_not_count_nor_what_others_say_of_it() -> None:
    detector = accused((D, [C, E]), (B, [D]), (C, [B]))
    detector.silent(D)
    assert detector.unwanted(A, ALL, 0) == {D, C}
    detector = accused((E, [D]))
    detector.silent(D)
    assert detector.unwanted(A, ALL, 0) == {D}, "E is not left out because it does not hear the dead"


def test_who_watches_nobody_wants_nobody_out() -> None:
    assert FailureDetector(SUSPECT_NS, PAUSE_NS).unwanted(A, ALL, 0) == set()


def test_with_new_members_old_accusations_are_forgotten() -> None:
    detector = accused((C, [D]))
    detector.watch([B, C, D, E], 0)
    assert detector.unwanted(A, ALL, 0) == set()
