"""On which partitions a member takes requests, and which of them the data lane may take."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.actions.set_state import SetState
from holdfast.config import ClusterSettings, MapSettings, PartitionSettings, Settings
from holdfast.core.effects import BackpressureChanged, Complete, Effect, Note, Send, SetTimer
from holdfast.core.events import ActionRequested, ClientRequest, MemoryRoom, Received, Started, TimerFired
from holdfast.core.member import Member
from holdfast.core.membership.identity import Identity
from holdfast.core.membership.membership_status import MembershipState
from holdfast.core.model import notices as n
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.views import ClusterState, MemberInfo, Room
from holdfast.core.primary_backup.lane import Swept
from holdfast.core.routing.serving import SWEEP_LIMIT
from holdfast.core.store.partition_copy import PartitionCopy

ME, BEN = MemberId("me"), MemberId("ben")
COUNT = 3


class Alone:
    """A member that is alone in its cluster, and serves all partitions."""

    def __init__(self, **maps: MapSettings) -> None:
        info = MemberInfo(ME, 1, "host", 5701, "host", 5702, "one")
        settings = Settings(
            partitions=PartitionSettings(count=COUNT), cluster=ClusterSettings(initial_members=1), maps=maps
        )
        self.member = Member(Identity(info, "cluster", {}, (), True, "id"), settings)
        self.now_ns = 0
        self.play(Started())

    def play(self, event: object) -> list[Effect]:
        """An event, what this member says to itself, and the timers that are due within a second after it."""
        until_ns = self.now_ns + 1000 * MILLISECOND
        done: list[Effect] = []
        due: list[tuple[int, int, object]] = [(self.now_ns, 0, event)]
        while due and min(one[0] for one in due) <= until_ns:
            due.sort(key=lambda one: one[:2])
            at_ns, _, event = due.pop(0)
            self.now_ns = max(self.now_ns, at_ns)
            effects = self.member.handle(event, self.now_ns)  # type: ignore[arg-type]
            for effect in effects:
                done.append(effect)
                if isinstance(effect, SetTimer):
                    due.append((self.now_ns + effect.after_ns, len(done), TimerFired(effect.name)))
                elif isinstance(effect, Send) and effect.to == ME:
                    due.append((self.now_ns, len(done), Received(ME, effect.message)))
        self.now_ns = until_ns
        return done

    def assign(self, partition: int, row: Assignment) -> list[Effect]:
        """This is the row of the partition now."""
        rows = self.member.table.rows
        old, rows[partition] = rows[partition], row
        self.member.out.notify(n.AssignmentChanged(partition, old, row))
        return self.member.out.take()

    @property
    def leads(self) -> list[bool]:
        return [copy is not None for copy in self.member.lane.leading]

    @property
    def serves(self) -> list[bool]:
        return [copy is not None for copy in self.member.lane.serving]


@pytest.fixture
def alone() -> Alone:
    one = Alone()
    assert one.leads == one.serves == [True] * COUNT
    return one


def test_while_memory_is_short_the_data_lane_finds_nothing_and_requests_are_still_taken(alone: Alone) -> None:
    notes = [one.kind for one in alone.play(MemoryRoom(Room.LITTLE)) if isinstance(one, Note)]
    assert any("nearly full" in note for note in notes)
    assert (alone.leads, alone.serves) == ([True] * COUNT, [False] * COUNT)
    assert alone.play(MemoryRoom(Room.LITTLE)) == [], "that is known"
    notes = [one.kind for one in alone.play(MemoryRoom(Room.NONE)) if isinstance(one, Note)]
    assert any("no partition is moved here" in note for note in notes)
    notes = [one.kind for one in alone.play(MemoryRoom(Room.LITTLE)) if isinstance(one, Note)]
    assert notes == ["memory available again for migrations"]
    alone.play(MemoryRoom(Room.PLENTY))
    assert alone.serves == [True] * COUNT


def test_a_passive_cluster_is_read_through_the_router(alone: Alone) -> None:
    alone.play(ActionRequested(SetState(ClusterState.PASSIVE)))
    assert alone.member.picture.cluster_state is ClusterState.PASSIVE
    assert (alone.leads, alone.serves) == ([True] * COUNT, [False] * COUNT)
    alone.play(ActionRequested(SetState(ClusterState.ACTIVE)))
    assert alone.serves == [True] * COUNT


def test_a_full_disk_hides_what_its_member_holds(alone: Alone) -> None:
    rows = alone.member.table.rows
    alone.member.membership.intents.note_full(BEN, full=True)
    alone.member.serving.on_beat()
    assert alone.serves == [True] * COUNT, "it is no member"
    alone.member.membership.note_full(full=True)
    assert alone.serves == [ME not in row.replicas for row in rows] == [False] * COUNT
    alone.member.membership.note_full(full=False)
    assert alone.serves == [True] * COUNT


def test_what_is_refused_for_the_backlog_is_hidden_and_sessions_are_told(alone: Alone) -> None:
    alone.member.lane.backlog.refusing = True
    alone.member.out.notify(n.BacklogChanged())
    assert (alone.leads, alone.serves) == ([True] * COUNT, [False] * COUNT)
    assert BackpressureChanged() in alone.member.out.take()


def test_a_handover_stops_one_partition_and_its_end_serves_it_again(alone: Alone) -> None:
    alone.member.out.notify(n.HandoverBegan(1))
    assert alone.leads == alone.serves == [True, False, True]
    alone.member.out.notify(n.HandoverEnded(1))
    assert alone.leads == alone.serves == [True] * COUNT


def test_what_another_one_owns_is_served_no_more(alone: Alone) -> None:
    member = alone.member
    old = member.table.rows[2]
    new = member.table.rows[2] = Assignment(old.version + 3, (BEN, ME))
    member.serving.on_assignment(n.AssignmentChanged(2, old, new))
    assert alone.leads == alone.serves == [True, True, False]
    assert member.copies.held[2].term == 0
    assert member.activation.active == {0, 1}


def test_who_is_removed_keeps_its_copies_and_serves_none(alone: Alone) -> None:
    member = alone.member
    view = member.membership.view
    assert view is not None
    member.serving.on_view(n.ViewInstalled(view, None, False, frozenset(), frozenset()))
    assert alone.leads == alone.serves == [False] * COUNT
    assert {copy.term for copy in member.copies.held.values()} == {0}
    assert member.activation.active == set()
    member.serving.on_current()
    assert alone.serves == [True] * COUNT, "it is back, and the table says so"


def test_a_replica_in_a_new_life_is_asked_again_before_its_partition_is_served(alone: Alone) -> None:
    member = alone.member
    member.table.rows[0] = Assignment(9, (ME, BEN))
    came = n.ViewInstalled(None, member.membership.view, True, frozenset(), frozenset({BEN}))
    member.serving.on_returned(came)
    assert alone.leads == alone.serves == [False, True, True]
    member.table_replication.current = False
    member.table.rows[1] = Assignment(9, (ME, BEN))
    member.serving.on_returned(came)
    assert alone.serves == [False, True, True], "the table may be long out of date"


def test_what_a_heartbeat_says_of_room_counts_at_once(alone: Alone) -> None:
    intents, told = alone.member.membership.intents, alone.member.router.refusals
    alone.member.serving.on_beat()
    assert alone.member.out.take() == [], "nothing is new"
    intents.note_full(ME, full=True)
    alone.member.serving.on_beat()
    assert (told.full, alone.serves) == ({ME: "one"}, [False] * COUNT)
    intents.note_full(ME, full=False)
    alone.member.serving.on_beat()
    assert alone.serves == [True] * COUNT
    intents.note_room(ME, Room.LITTLE)
    alone.member.serving.on_beat()
    assert (told.short, alone.serves) == ({ME: Room.LITTLE}, [False] * COUNT)


def test_only_what_the_short_member_holds_is_hidden(alone: Alone) -> None:
    alone.member.table.rows[1] = Assignment(9, (ME, BEN))
    for full, short in (({BEN: "ben"}, {}), ({}, {BEN: Room.LITTLE})):
        alone.member.router.refusals.full, alone.member.router.refusals.short = full, short
        alone.member.serving._show()
        assert alone.serves == [True, False, True]


def test_lite_members_alone_take_nothing_unless_somebody_is_awaited(alone: Alone) -> None:
    member, refusals = alone.member, alone.member.router.refusals
    view = member.membership.view
    assert view is not None
    lite = [MemberInfo(one, 1, "host", 5701, "host", 5702, one, lite=True) for one in (ME, BEN)]
    data = MemberInfo(BEN, 1, "host", 5701, "host", 5702, "ben")
    for members, missing, dataless in (
        (lite, [], True),
        ([lite[0], data], [], False),
        (lite, [data], False),
        ([], [], False),
    ):
        new = msgspec.structs.replace(view, members=members, missing=missing)
        member.serving.on_view(n.ViewInstalled(view, new, True, frozenset(), frozenset()))
        assert refusals.dataless is dataless


def test_what_is_over_is_removed_where_it_may(alone: Alone, monkeypatch: pytest.MonkeyPatch) -> None:
    member = alone.member
    swept: list[tuple[int, list[PartitionCopy | None]]] = []

    def sweep(limit: int, copies: list[PartitionCopy | None]) -> Swept:
        swept.append((limit, copies))
        return Swept.ALL

    monkeypatch.setattr(member.lane, "sweep", sweep)
    refusals, lane = member.router.refusals, member.lane
    member.serving.sweep()
    refusals.passive = True
    member.serving.sweep()
    refusals.passive, refusals.full = False, {BEN: "ben"}
    member.serving.sweep()
    refusals.full, lane.backlog.refusing = {}, True
    member.serving.sweep()
    assert [limit for limit, _ in swept] == [SWEEP_LIMIT] * 4
    assert [copies is lane.leading for _, copies in swept] == [True, False, False, False]
    assert all(copies is lane.serving for _, copies in swept[1:])


def test_a_sweep_goes_on_soon_if_entries_have_ended_and_with_pauses_over_many_maps(
    alone: Alone, monkeypatch: pytest.MonkeyPatch
) -> None:
    member, out = alone.member, alone.member.out
    delays: list[int] = []
    for outcome in (Swept.SOME_ENTRIES, Swept.SOME_MAPS, Swept.ALL):
        monkeypatch.setattr(member.lane, "sweep", lambda limit, copies, outcome=outcome: outcome)
        before = len(out.effects)
        member.serving.sweep()
        delays += [each.after_ns for each in out.effects[before:] if isinstance(each, SetTimer)]
    assert delays == [MILLISECOND, 25 * MILLISECOND]


def test_there_is_room_again(alone: Alone) -> None:
    alone.play(MemoryRoom(Room.LITTLE))
    notes = [one.kind for one in alone.play(MemoryRoom(Room.PLENTY)) if isinstance(one, Note)]
    assert notes == ["memory available again: writes are accepted"]


@pytest.mark.rule("routing/R-4")
def test_a_member_that_has_left_rejects_no_request_that_may_have_been_applied() -> None:
    alone = Alone()
    alone.member.membership.state = MembershipState.GONE
    request = Request(Op.SET, "m", [1], b"k", b"v")
    done = [
        one.answer
        for doubt in ("", "another member left before it answered")
        for one in alone.play(ClientRequest(7, request, doubt))
        if isinstance(one, Complete)
    ]
    assert [each.status for each in done] == [Status.CLOSING, Status.UNKNOWN]  # type: ignore[union-attr]


# -- what is lost


@pytest.mark.rule("routing/R-12")
def test_what_rows_say_of_losses_is_refused_and_used_again_when_they_say_so_no_more() -> None:
    alone = Alone(safe=MapSettings(loss_policy="read-write-safe"))
    row = alone.member.table.rows[1]
    get = ClientRequest(7, Request(Op.GET, "safe", [1], b"k"))

    def answers(effects: list[Effect]) -> list[Status]:
        return [one.answer.status for one in effects if isinstance(one, Complete)]  # type: ignore[union-attr]

    assert answers(alone.play(get)) == [Status.OK]
    alone.assign(1, msgspec.structs.replace(row, version=row.version + 1, lost=("safe",)))
    assert answers(alone.play(get)) == [Status.LOST]
    assert alone.leads == alone.serves == [True] * COUNT, "other maps are used there as before"
    alone.assign(1, msgspec.structs.replace(row, version=row.version + 2, lost=()))
    assert answers(alone.play(get)) == [Status.OK]


@pytest.mark.rule("routing/R-12")
def test_a_write_that_waits_elsewhere_is_refused_when_its_map_can_only_be_read() -> None:
    alone = Alone(strict=MapSettings(loss_policy="read-only-safe"))
    rows = alone.member.table.rows
    alone.assign(1, Assignment(rows[1].version + 1, (BEN,), rows[1].epoch))
    for token, op in ((7, Op.SET), (8, Op.GET)):
        asked = alone.play(ClientRequest(token, Request(op, "strict", [1], b"k", b"v")))
        assert not [one for one in asked if isinstance(one, Complete)], "its owner is not here"
    told = alone.assign(2, msgspec.structs.replace(rows[2], version=rows[2].version + 1, lost=("strict",)))
    (refused,) = [one for one in told if isinstance(one, Complete)]
    assert refused.token == 7
    assert isinstance(refused.answer, Outcome) and refused.answer.status is Status.LOST
