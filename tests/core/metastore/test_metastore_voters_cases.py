"""The metastore's voters follow the members: what the leader of the group asks for, when, and with which token."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.config.schema import MetastoreSettings
from holdfast.core.effects import Note, SetTimer
from holdfast.core.membership.identity import Identity, Timing
from holdfast.core.membership.membership_status import MembershipState, MembershipStatus
from holdfast.core.metastore.metastore_voters import MetastoreVoters, odd, wanted_voters
from holdfast.core.model.ids import METASTORE_GROUP, MILLISECOND, MemberId
from holdfast.core.model.levels import STARTS_METASTORE
from holdfast.core.model.metastore_founding import MetastoreFounding
from holdfast.core.model.notices import ViewInstalled
from holdfast.core.model.timer_name import TimerName
from holdfast.core.model.views import ClusterState, FilesProof, Intent, MemberInfo, View
from holdfast.core.outbox import Outbox
from holdfast.core.raft.configuration import Configuration
from holdfast.core.raft.leader import ProposalRefused
from holdfast.core.raft.reconfiguration import ChangeAnswer

ALL = "ABCDEFG"


def info(name: str, *, lite: bool = False) -> MemberInfo:
    return MemberInfo(MemberId(name), 1, "h", 1, "h", 1, name, lite=lite, store="")


def has(voters: str, learners: str = "", *, old: str = "", token: int = 4) -> Configuration:
    return Configuration(frozenset(voters), frozenset(old), frozenset(learners), token=token)


@dataclass
class RecordingGroups:
    """The metastore's group of one member, which writes down what it is asked for."""

    me: str
    configuration: Configuration
    leads_in: int | None = 3
    generation: int = 0
    last: int = 9
    runs: bool = True
    refuses: bool = False
    answer: ChangeAnswer = ChangeAnswer.STARTED
    led_by: str | None = None
    found: set[int] = field(default_factory=set)
    asked: list[tuple[int, str, str, int]] = field(default_factory=list)
    resets: list[tuple[list[str], int]] = field(default_factory=list)

    @property
    def hosted(self) -> dict[int, SimpleNamespace]:
        log = SimpleNamespace(last=self.last)
        group = SimpleNamespace(configuration=self.configuration, log=log, generation=self.generation)
        return {METASTORE_GROUP: SimpleNamespace(group=group)} if self.runs else {}

    def term(self, number: int) -> int | None:
        assert number == METASTORE_GROUP
        return self.leads_in

    def lead(self, number: int) -> str | None:
        assert number == METASTORE_GROUP
        return self.led_by

    @property
    def journal(self) -> RecordingGroups:
        return self

    def running(self, number: int) -> RecordingGroups:
        assert number == METASTORE_GROUP
        return self

    def change_peers(
        self, term: int, voters: Iterable[str], learners: Iterable[str], token: int
    ) -> ChangeAnswer:
        assert term == self.leads_in
        self.asked.append((METASTORE_GROUP, "".join(sorted(voters)), "".join(sorted(learners)), token))
        if self.refuses:
            raise ProposalRefused("not the leader")
        return self.answer

    def reset(self, voters: Iterable[str], token: int) -> ChangeAnswer:
        self.resets.append((list(voters), token))
        return self.answer


class Leader:
    """Member A, which leads the metastore's group."""

    def __init__(self, members: str, now: Configuration, *, voters: int = 3, me: str = "A") -> None:
        self.out = Outbox()
        identity = Identity(info(me), "c", {}, (), False, "")
        self.standing = MembershipStatus(identity, Timing(10, 100), self.out, majority=True)
        self.groups = RecordingGroups(me, now)
        settings = MetastoreSettings(voters=voters, replace_after_ms=1000)  # type: ignore[arg-type]
        self.voters = MetastoreVoters(self.out, settings, self.standing, self.groups)  # type: ignore[arg-type]
        self.view(members)

    def view(self, members: str, *, lite: str = "", **more: object) -> None:
        infos = [info(name, lite=name in lite) for name in members]
        number = self.standing.view.number + 1 if self.standing.view is not None else 1
        self.standing.view = msgspec.structs.replace(View(number, "c", infos), **more)
        self.standing.state = MembershipState.MEMBER

    def look(self, after_ms: int = 0) -> list[tuple[str, str, int]]:
        """What it asks for when it looks after so long: voters, learners, token."""
        self.out.now_ns += after_ms * MILLISECOND
        self.groups.asked.clear()
        self.voters.look()
        return [one[1:] for one in self.groups.asked]

    @property
    def timers(self) -> list[int]:
        """How long it wants to wait, of the timers that it has asked for since the last time."""
        effects = [one for one in self.out.take() if isinstance(one, SetTimer)]
        assert {one.name for one in effects} <= {TimerName.METASTORE_VOTERS}
        return [one.after_ns // MILLISECOND for one in effects]


# -- how many, and who


def test_the_largest_odd_number() -> None:
    assert [odd(count) for count in range(1, 8)] == [1, 1, 3, 3, 5, 5, 7]


@pytest.mark.rule("metastore/V-2", "metastore/V-3")
@given(
    st.sets(st.sampled_from(ALL), min_size=1),
    st.lists(st.sampled_from(ALL), min_size=1, unique=True),
    st.sets(st.sampled_from(ALL)),
    st.sampled_from([1, 3, 5, 7]),
)
def test_voters_are_odd_in_number_mostly_here_and_stay_voters(
    now: set[str], staying: list[str], missing: set[str], most: int
) -> None:
    kept = missing - set(staying)
    voters = wanted_voters(Configuration(frozenset(now)), staying, missing, most)
    here, away = voters & set(staying), voters - set(staying)
    assert len(voters) % 2 == 1
    assert len(voters) <= most
    assert away <= kept
    assert len(here) > len(away), "the members that are here are a majority"
    room = min(most, len(staying) + min(len(kept), len(staying) - 1))
    assert len(voters) == odd(room), "as many as there can be"
    assert len(away) == min(len(kept), len(staying) - 1, len(voters) // 2), "seats are kept where possible"
    if here - now:
        assert set(staying) & now <= here, "nobody is replaced who can stay"
    chosen_new = [node for node in staying if node in here - now]
    assert chosen_new == [node for node in staying if node not in now][: len(chosen_new)], "the oldest first"
    chosen_old = [node for node in staying if node in here & now]
    assert chosen_old == [node for node in staying if node in now][: len(chosen_old)]


def test_seats_that_cannot_all_be_kept_are_kept_in_order() -> None:
    assert wanted_voters(has("ABCDE"), "ABC", "ED", 3) == frozenset("ABD")
    assert wanted_voters(has("ABC"), "AB", "", 3) == frozenset("A")
    assert wanted_voters(has("ABC"), "B", "AC", 3) == frozenset("B")


# -- what the leader asks for


def test_every_member_is_a_voter_or_a_learner() -> None:
    leader = Leader("ABCD", has("A"))
    assert leader.look() == [("ABC", "D", 5)]
    assert leader.timers == [500]
    leader.groups.configuration = has("ABC", "D", token=5)
    assert leader.look() == []
    assert leader.timers == []
    done = Leader("ABCD", has("ABC", "D"))
    assert (done.look(), done.timers) == ([], []), "nothing is left to be done, and nobody has gone"


def test_the_first_token_is_1() -> None:
    assert Leader("ABC", has("A", token=0)).look() == [("ABC", "", 1)]


def test_what_was_reached_and_undone_is_asked_for_with_another_token() -> None:
    """Another leader, or a reset, has changed the group in between."""
    leader = Leader("ABC", has("A", token=7))
    assert leader.look() == [("ABC", "", 8)]
    leader.groups.configuration = has("ABC", token=8)
    assert leader.look() == []
    leader.groups.configuration = has("A", token=9)
    assert leader.look() == [("ABC", "", 10)]


def test_what_is_asked_for_keeps_its_token_until_something_else_is_wanted() -> None:
    leader = Leader("ABC", has("A", token=7))
    assert leader.look() == [("ABC", "", 8)]
    assert leader.look() == [("ABC", "", 8)], "the same change"
    assert leader.timers == [500], "one timer at a time"
    leader.view("ABCD")
    assert leader.look() == [("ABC", "D", 9)]
    leader.groups.configuration = has("ABC", "D", token=9)
    assert leader.look() == []
    leader.view("ABCDE")
    assert leader.look() == [("ABC", "DE", 10)], "tokens rise"


def test_a_token_is_never_below_that_of_the_group() -> None:
    leader = Leader("ABC", has("A", token=7))
    assert leader.look() == [("ABC", "", 8)]
    leader.groups.configuration = has("A", token=20)
    assert leader.look() == [("ABC", "", 20)]
    leader.view("ABCD")
    assert leader.look() == [("ABC", "D", 21)]


def test_tokens_rise_after_one_that_did_not_reach_the_group() -> None:
    leader = Leader("ABC", has("A", token=7))
    for members, token in (("ABC", 8), ("ABCD", 9), ("ABC", 10)):
        leader.view(members)
        assert leader.look()[0][2] == token


def test_a_joint_configuration_is_not_where_the_group_is_to_be() -> None:
    leader = Leader("ABC", has("ABC", old="A"))
    assert leader.look() == [("ABC", "", 5)]


def test_it_asks_again_when_the_timer_is_due_also_after_a_refusal() -> None:
    leader = Leader("ABC", has("A"))
    leader.groups.refuses = True
    assert leader.look() == [("ABC", "", 5)]
    assert leader.timers == [500]
    leader.groups.asked.clear()
    leader.voters.on_timer()
    assert [one[1:] for one in leader.groups.asked] == [("ABC", "", 5)]
    assert leader.timers == [500]


def test_it_looks_when_it_is_elected() -> None:
    leader = Leader("ABC", has("A"))
    leader.voters.on_leading(3)
    assert len(leader.groups.asked) == 1
    assert leader.voters.on_changes(1, 2, []), "no key matters"
    assert leader.voters.on_watch_begins(1) is None  # type: ignore[func-returns-value]


def test_only_the_leader_of_a_running_group_in_a_view_asks() -> None:
    leader = Leader("ABC", has("A"))
    leader.groups.leads_in = None
    assert leader.look() == []
    leader.groups.leads_in = 3
    leader.groups.runs = False
    assert leader.look() == []
    leader.groups.runs = True
    leader.standing.view = None
    assert leader.look() == []
    assert leader.timers == []
    leader.view("ABC")
    assert leader.look() == [("ABC", "", 5)]


# -- who has gone


@pytest.mark.rule("metastore/V-3")
def test_a_voter_that_has_gone_is_given_up_after_a_while() -> None:
    leader = Leader("ABCD", has("ABC", "D"))
    leader.view("ABD")
    assert leader.look() == [], "C may come back"
    assert leader.timers == [500]
    leader.voters._timer = False
    assert leader.look(after_ms=999) == []
    leader.voters._timer = False
    assert leader.look(after_ms=1) == [("ABD", "", 5)]


@pytest.mark.rule("metastore/V-3")
def test_a_voter_that_was_back_in_between_is_waited_for_from_the_beginning() -> None:
    leader = Leader("ABCD", has("ABC", "D"))
    leader.view("ABD")
    assert leader.look(after_ms=900) == []
    leader.view("ABCD")
    assert leader.look(after_ms=900) == []
    leader.view("ABD")
    assert leader.look() == []
    assert leader.look(after_ms=900) == []
    assert leader.look(after_ms=100) == [("ABD", "", 5)]


@pytest.mark.rule("metastore/V-3")
def test_the_waiting_begins_again_with_another_leader() -> None:
    leader = Leader("ABCD", has("ABC", "D"))
    leader.view("ABD")
    assert leader.look() == []
    leader.groups.leads_in = None
    assert leader.look(after_ms=900) == []
    leader.groups.leads_in = 5
    assert leader.look(after_ms=900) == [], "it may have been back while another member led"
    assert leader.look(after_ms=1000) == [("ABD", "", 5)]


@pytest.mark.rule("metastore/V-3")
@pytest.mark.parametrize("state", ClusterState)
def test_nothing_changes_while_the_table_is_frozen(state: ClusterState) -> None:
    leader = Leader("ABC", has("A"))
    leader.view("ABC", state=state)
    asked = leader.look()
    frozen = state in (ClusterState.FROZEN, ClusterState.PASSIVE)
    assert (asked == []) is frozen
    assert (leader.timers == []) is frozen


def test_members_that_cannot_be_a_majority_with_a_kept_seat_give_it_up_at_once() -> None:
    leader = Leader("AB", has("AB"))
    leader.view("A")
    assert leader.look() == [("A", "", 5)]


# -- who stays


@pytest.mark.rule("metastore/V-4")
def test_members_that_leave_give_their_seats_away_and_then_may_go() -> None:
    leader = Leader("ABC", has("ABC"))
    leader.standing.intents._of[MemberId("C")] = (1, Intent.LEAVE)
    assert leader.look() == [("A", "BC", 5)]
    assert not leader.voters.can_leave(MemberId("C"))
    leader.groups.configuration = has("A", "BC")
    assert leader.voters.can_leave(MemberId("C"))
    assert not leader.voters.can_leave(MemberId("A"))
    leader.groups.configuration = has("A", "BC", old="ABC")
    assert not leader.voters.can_leave(MemberId("C")), "the old half still decides"


def test_everybody_may_go_when_everybody_goes() -> None:
    leader = Leader("AB", has("AB"))
    for name in "AB":
        assert not leader.voters.can_leave(MemberId(name))
    for name in "AB":
        leader.standing.intents._of[MemberId(name)] = (1, Intent.LEAVE)
    for name in "AB":
        assert leader.voters.can_leave(MemberId(name))
    assert leader.look() == [], "there is nobody to give a seat to"
    assert leader.voters.can_leave(MemberId("X")), "it is no member"


def test_a_member_without_a_metastore_may_go() -> None:
    leader = Leader("AB", has(""))
    assert leader.voters.can_leave(MemberId("A"))
    leader.groups.configuration = has("AB")
    leader.groups.runs = False
    assert leader.voters.can_leave(MemberId("A"))


def test_lite_members_vote_where_nobody_else_stays() -> None:
    leader = Leader("ABC", has("A"))
    leader.view("ABC", lite="BC")
    leader.groups.configuration = has("ABC")
    assert leader.look() == [("A", "BC", 5)]
    leader.standing.intents._of[MemberId("A")] = (1, Intent.LEAVE)
    leader.groups.configuration = has("A", "BC")
    assert leader.look() == [("B", "AC", 6)]
    leader.standing.intents._of[MemberId("C")] = (1, Intent.LEAVE)
    leader.view("ABCD", lite="BCD")
    assert leader.look() == [("B", "ACD", 7)]


@pytest.mark.rule("metastore/V-7")
def test_a_lite_member_makes_an_even_number_of_voters_odd() -> None:
    leader = Leader("ABC", has("A", "BC"))
    leader.view("ABC", lite="C")
    [(voters, learners, _)] = leader.look()
    assert (voters, learners) == ("ABC", "")
    # A third data member takes its place, and a second lite one is not needed.
    leader.groups.configuration = has("ABC")
    leader.view("ABCD", lite="C")
    [(voters, learners, _)] = leader.look()
    assert (voters, learners) == ("ABD", "C")
    leader.groups.configuration = has("A", "BCD")
    leader.view("ABCD", lite="CD")
    [(voters, learners, _)] = leader.look()
    assert (voters, learners) == ("ABC", "D")


# -- what others ask


def test_how_many_voters_are_not_here() -> None:
    leader = Leader("AB", has("ABC", "X"))
    assert leader.voters.lacking == 1
    leader.groups.configuration = has("AB", old="CD")
    assert leader.voters.lacking == 2
    leader.groups.configuration = has("AB")
    assert leader.voters.lacking == 0
    leader.groups.configuration = has("", "X")
    assert (leader.voters.configuration, leader.voters.lacking) == (None, 0)
    leader.groups.runs = False
    leader.groups.configuration = has("CD")
    assert (leader.voters.configuration, leader.voters.lacking) == (None, 0)
    leader.groups.runs = True
    assert leader.voters.configuration == has("CD")


FOUNDERS = MetastoreFounding(3, ("A", "B", "C"), ("D",))


@pytest.mark.rule("metastore/V-1")
@pytest.mark.parametrize(
    ("case", "begins"),
    [
        ({}, True),
        ({"voters": 0}, False),
        ({"voters": 1}, True),
        ({"number": 2}, False),
        ({"recovering": True}, False),
        ({"members": "AB"}, False),
        ({"members": "B"}, False),
        ({"members": ""}, False),
        ({"hosted": True}, False),
        ({"found": True}, False),
        ({"removed": True}, False),
        ({"level": STARTS_METASTORE}, False),
    ],
)
def test_below_the_level_of_foundings_the_group_begins_with_a_new_cluster(
    case: dict[str, object], begins: bool
) -> None:
    voters = case.get("voters", 3)
    assert isinstance(voters, int)
    leader = Leader("A", has("A"), voters=voters)
    assert first(leader, **case) == (has("A", token=0) if begins else None)


def first(leader: Leader, **case: object) -> Configuration | None:
    """The configuration with which its replica begins by a view."""
    leader.groups.runs = bool(case.get("hosted"))
    leader.groups.journal.found = {METASTORE_GROUP} if case.get("found") else set()
    members = case.get("members", "A")
    assert isinstance(members, str)
    view = View(case.get("number", 1), "c", list(map(info, members)))  # type: ignore[arg-type]
    kept = {name: case[name] for name in ("recovering", "level", "metastore") if name in case}
    view = msgspec.structs.replace(view, **kept)
    notice = ViewInstalled(None, None if case.get("removed") else view, True, frozenset(), frozenset())
    return leader.voters.first_configuration(notice)


@pytest.mark.rule("metastore/V-1")
@pytest.mark.parametrize("me", ["A", "D"])
def test_every_founder_begins_with_the_same_configuration(me: str) -> None:
    leader = Leader("ABCD", has("A"), voters=0, me=me)
    case = {"members": "ABCD", "number": 7, "level": STARTS_METASTORE}
    assert first(leader, **case) is None
    assert first(leader, **case, metastore=FOUNDERS) == has("ABC", "D", token=0)
    for known in ("hosted", "found"):
        assert first(leader, **case, metastore=FOUNDERS, **{known: True}) is None
    other = Leader("ABCDE", has("A"), voters=3, me="E")
    assert first(other, **case, metastore=FOUNDERS) is None, "it joined later"
    assert first(leader, **case, metastore=MetastoreFounding(3)) is None, "the group is older"


@pytest.mark.rule("metastore/V-1")
def test_a_founder_whose_files_lack_something_begins_only_if_it_was_there_before() -> None:
    def restarted(*, cut: bool) -> Leader:
        found = Leader("ABCD", has("A"), voters=0)
        found.standing.info = msgspec.structs.replace(info("A"), store="A", proof=FilesProof(cut=cut))
        return found

    case = {"members": "ABCD", "number": 7, "level": STARTS_METASTORE}
    assert first(restarted(cut=False), **case, metastore=FOUNDERS) is not None
    damaged = restarted(cut=True)
    assert first(damaged, **case, metastore=FOUNDERS) is None, "it may have voted before"
    assert first(damaged, **case, recovering=True) is None
    assert first(damaged, **case, metastore=FOUNDERS) is None, "others may know a founding still"
    there = restarted(cut=True)
    assert first(there, **case) is None
    assert first(there, **case, metastore=FOUNDERS) is not None


def test_the_number_of_voters_is_that_of_the_view() -> None:
    leader = Leader("ABCDE", has("ABC", "DE"), voters=3)
    assert leader.look() == []
    leader.view("ABCDE", level=STARTS_METASTORE, metastore=MetastoreFounding(5, ("A",)))
    assert leader.look() == [("ABCDE", "", 5)]


# -- resets


@pytest.mark.rule("metastore/V-5")
@pytest.mark.parametrize(
    ("here", "now", "needed"),
    [
        ("AB", has("ABC"), False),
        ("A", has("ABC"), True),
        ("AB", has("ABCD"), True),
        ("AX", has("AB"), True),
        ("A", has("A"), False),
        ("AB", has("AB", old="ACD"), True),
        ("ACD", has("AB", old="ACD"), True),
        ("ABC", has("AB", old="ACD"), False),
        ("A", has("B", "A"), True),
    ],
)
def test_a_reset_is_for_a_majority_that_is_gone_in_either_half(
    here: str, now: Configuration, needed: bool
) -> None:
    leader = Leader(here, now)
    why = leader.voters.reset()
    assert (why == "") is needed, why
    assert [voters for voters, _ in leader.groups.resets] == ([["A"]] if needed else [])
    if not needed:
        assert f"most of the {len(now.voters)} voters" in why


@pytest.mark.rule("metastore/V-5")
def test_a_reset_has_a_token_of_its_own_above_all_others() -> None:
    """Of two members that are asked at once one is higher; a later one is above both, whatever the clocks say."""
    tokens = []
    for epoch_ms, known, generation in ((0, 0, 0), (5_000, 0, 0), (5_000, 99 << 40, 3), (5_000, 3, 99 << 40)):
        for me in "ABC":
            leader = Leader("ABC", has("ADEFG", token=known), me=me)
            leader.groups.generation = generation
            leader.out.epoch_ms = epoch_ms
            assert leader.voters.reset() == ""
            ((voters, token),) = leader.groups.resets
            assert voters == [me]
            assert token > max(known, generation)
            assert token >= epoch_ms << 16
            tokens.append(token)
    assert len(set(tokens[:3])) == len(set(tokens[3:6])) == 3
    assert max(tokens[:3]) < min(tokens[3:6])
    again = Leader("ABC", has("ADEFG", token=tokens[-1]))
    assert again.voters.reset() == ""
    assert again.groups.resets[0][1] > tokens[-1]


@pytest.mark.rule("metastore/V-6")
def test_a_member_that_is_behind_does_not_reset_what_another_one_leads() -> None:
    """It knows only voters that are gone; the group has moved on to others since, and C leads it."""
    leader = Leader("ABC", has("AXY"))
    leader.groups.led_by = "C"
    assert "leads the metastore: it needs no reset" in leader.voters.reset()
    assert leader.groups.resets == []
    leader.groups.led_by = "X"
    assert leader.voters.reset() == ""


def test_a_member_with_nothing_of_the_metastore_cannot_reset_it() -> None:
    for change in ({"last": 0}, {"runs": False}):
        leader = Leader("A", has("ABC"))
        for name, value in change.items():
            setattr(leader.groups, name, value)
        assert "use one that has" in leader.voters.reset()
        assert leader.groups.resets == []
    leader = Leader("A", has("ABC"))
    leader.standing.view = None
    assert "use one that has" in leader.voters.reset()


def test_a_reset_that_cannot_begin_says_why() -> None:
    leader = Leader("A", has("ABC"))
    leader.groups.answer = ChangeAnswer.STALE
    assert "stale" in leader.voters.reset()


def test_after_a_reset_the_voters_are_asked_for_with_newer_tokens() -> None:
    leader = Leader("AD", has("ABC"))
    leader.look()
    assert leader.look(after_ms=2000) == [("A", "D", 6)]
    leader.out.take()
    assert leader.voters.reset() == ""
    (note,) = leader.out.take()
    assert isinstance(note, Note)
    assert note.level == "warning"
    token = leader.groups.resets[0][1]
    leader.groups.configuration = has("A", token=token)
    assert leader.look() == [("A", "D", token + 1)]
