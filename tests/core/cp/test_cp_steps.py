"""Steps on CP objects: each does what its model does, once, and a closed session leaves nothing behind."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.cp import cp_steps, fenced_lock_steps, semaphore_steps, session_steps
from holdfast.core.cp.cp_entries import DESTROYED
from holdfast.core.cp.cp_steps import answer_again, decide_cp_step
from holdfast.core.cp.holdings_index import HoldingsIndex
from holdfast.core.model.cp import (
    KIND_OF,
    NO_FENCE,
    NO_SESSION,
    OBJECTS,
    SESSIONS_CLOSED,
    CpAnswer,
    CpFate,
    CpKind,
    CpStep,
    CpStepKind,
    cp_name,
    cp_problem,
    cp_request,
    decode_answer,
    encode_answer,
    map_of_group,
)
from holdfast.core.model.decisions import Decision, Wait
from holdfast.core.model.operations import Op, Request
from holdfast.core.model.records import Record
from holdfast.core.store.derived_index import index_of
from holdfast.core.store.map_state import MapState
from holdfast.core.store.replica import Replica

GROUP = "g"
K = CpStepKind
DONE = CpFate.DONE


def uid(number: int) -> bytes:
    return number.to_bytes(16, "big")


class Group:
    """The entries of a group, and every step on them."""

    def __init__(self) -> None:
        self.state = MapState(map_of_group(GROUP))
        self.number = 0
        self.sizes: list[int] = []

    def request(self, kind: CpStepKind, name: str = "x", of: CpKind | None = None, **fields: Any) -> Request:
        return cp_request(GROUP, 1, CpStep(kind, **fields), name, of)

    def decide(
        self, kind: CpStepKind, name: str = "x", of: CpKind | None = None, behind: bool = False, **fields: Any
    ) -> Decision | Wait:
        request = self.request(kind, name, of, **fields)
        assert cp_problem(request) == ""
        decision = decide_cp_step(self.state, request, behind=behind)
        if isinstance(decision, Decision):
            self.sizes.append(len(decision.updates))
            assert not decision.updates or request.op is not Op.READ_CP, "a read changes nothing"
            for update in decision.updates:
                self.number += 1
                record = Record(self.state.name, self.number, update.change, update.key, update.value)
                self.state.apply(record, 0)
        return decision

    def ask(self, kind: CpStepKind, name: str = "x", of: CpKind | None = None, **fields: Any) -> CpAnswer:
        decision = self.decide(kind, name, of, **fields)
        assert isinstance(decision, Decision)
        assert isinstance(decision.answer, bytes)
        return decode_answer(decision.answer)

    def number_of(self, kind: CpStepKind, name: str = "x", **fields: Any) -> int:
        answer = self.ask(kind, name, **fields)
        assert answer.fate is DONE
        return answer.number

    def session(self) -> int:
        return self.number_of(K.CREATE_SESSION, number=1000, value=b"client")

    def lock(self, session: int, call: int, thread: int = 1, **more: Any) -> CpAnswer:
        return self.ask(K.LOCK, session=session, thread=thread, uid=uid(call), **more)

    def unlock(self, session: int, call: int, thread: int = 1) -> CpAnswer:
        return self.ask(K.UNLOCK, session=session, thread=thread, uid=uid(call))


@given(st.lists(st.tuples(st.sampled_from(range(4)), st.integers(-(2**63), 2**63 - 1))))
def test_an_atomic_long_counts_in_64_bits(steps: list[tuple[int, int]]) -> None:
    group, value = Group(), 0
    for which, number in steps:
        wrapped = (value + number + 2**63) % 2**64 - 2**63
        if which == 0:
            assert group.number_of(K.GET_AND_ADD, number=number) == value
            value = wrapped
        elif which == 1:
            value = wrapped
            assert group.number_of(K.ADD_AND_GET, number=number) == value
        elif which == 2:
            same = group.number_of(K.COMPARE_AND_SET_LONG, expected_number=number % 3, number=number)
            assert same == (value == number % 3)
            value = number if same else value
        else:
            assert group.number_of(K.GET_AND_SET_LONG, number=number) == value
            value = number
        assert group.number_of(K.GET_LONG) == value


def test_an_atomic_reference_compares_bytes() -> None:
    group = Group()
    assert group.ask(K.GET_REFERENCE).value is None
    assert group.number_of(K.COMPARE_AND_SET_REFERENCE, expected=None, value=b"a") == 1
    assert group.number_of(K.COMPARE_AND_SET_REFERENCE, expected=None, value=b"b") == 0
    assert group.ask(K.SET_REFERENCE, value=b"c").value == b"a"
    assert group.number_of(K.CONTAINS, value=b"c") == 1
    assert group.number_of(K.CONTAINS, value=None) == 0


@pytest.mark.rule("cp/C-1")
def test_objects_of_a_group_are_in_one_map_and_partition() -> None:
    step = CpStep(K.GET_LONG)
    assert {
        (cp_request("g", 271, step, name).map, *cp_request("g", 271, step, name).partitions) for name in "abc"
    } == {("__cp:g", cp_request("g", 271, step, "d").partitions[0])}
    assert cp_request("g", 271, step, "a").partitions != cp_request("h", 271, step, "a").partitions


@pytest.mark.parametrize("group", ["default", "DEFAULT"])
def test_permissions_know_an_object_of_the_default_group_by_its_name_alone(group: str) -> None:
    """However a client writes the group: requests for either are for the same object."""
    assert cp_name("x", group) == "x"


@pytest.mark.rule("cp/D-1")
@pytest.mark.parametrize("kind", OBJECTS)
def test_an_object_that_was_destroyed_is_never_used_again(kind: CpKind) -> None:
    group = Group()
    assert group.number_of(K.DESTROY, of=kind) == 1
    assert group.number_of(K.DESTROY, of=kind) == 0
    session = group.session()
    for step, of in KIND_OF.items():
        fields = {"session": session, "uid": uid(1), "number": 1} if of is kind else {}
        if of is kind:
            assert group.ask(step, **fields).fate is CpFate.DESTROYED
    assert group.state.entries[kind.key("x")] == DESTROYED


@pytest.mark.rule("cp/T-1")
def test_a_call_counts_down_once_and_in_its_round() -> None:
    group = Group()
    assert group.number_of(K.TRY_SET_COUNT, number=3) == 1
    assert group.number_of(K.TRY_SET_COUNT, number=3) == 0
    for wrong in (0, 2**31):
        assert group.ask(K.TRY_SET_COUNT, number=wrong).fate is CpFate.BAD_NUMBER
    for _ in range(3):
        group.ask(K.COUNT_DOWN, number=1, uid=uid(1))
    assert group.number_of(K.GET_COUNT) == 2
    group.ask(K.COUNT_DOWN, number=1, uid=uid(2))
    group.ask(K.COUNT_DOWN, number=1, uid=uid(3))
    assert group.number_of(K.TRY_SET_COUNT, number=1) == 1
    group.ask(K.COUNT_DOWN, number=1, uid=uid(3))
    assert (group.number_of(K.GET_COUNT), group.number_of(K.GET_ROUND)) == (1, 2)


@pytest.mark.rule("cp/T-2")
def test_a_wait_ends_with_its_round() -> None:
    group = Group()
    group.ask(K.TRY_SET_COUNT, number=1)
    assert isinstance(group.decide(K.AWAIT, number=1, wait_ms=10), Wait)
    assert group.number_of(K.AWAIT, number=1) == 0
    group.ask(K.COUNT_DOWN, number=1, uid=uid(1))
    assert group.number_of(K.AWAIT, number=1, wait_ms=10) == 1
    group.ask(K.TRY_SET_COUNT, number=1)
    assert group.number_of(K.AWAIT, number=1, wait_ms=10) == 1
    assert isinstance(group.decide(K.AWAIT, number=2, wait_ms=10), Wait)


@pytest.mark.rule("cp/L-1")
def test_fences_rise_and_a_lock_has_one_owner() -> None:
    group = Group()
    a, b = group.session(), group.session()
    first = group.lock(a, 1).number
    assert group.lock(b, 2).number == 0
    assert isinstance(group.decide(K.LOCK, session=b, thread=1, uid=uid(2), wait_ms=5), Wait)
    assert group.lock(a, 3).number == first, "the same thread again"
    assert group.lock(a, 4, thread=2).number == 0, "another thread of the session"
    assert group.ask(K.OWNERSHIP).numbers == [first, 2, a, 1]
    assert group.unlock(b, 5).fate is CpFate.NOT_OWNER
    assert [group.unlock(a, call).number for call in (6, 7)] == [1, 0]
    assert group.ask(K.OWNERSHIP).numbers == [0, 0, NO_SESSION, 0]
    assert group.lock(b, 2).number > first
    assert group.lock(99, 8).fate is CpFate.NO_SESSION


@pytest.mark.rule("cp/L-1")
def test_another_thread_of_the_owners_session_does_not_own_the_lock() -> None:
    group = Group()
    a = group.session()
    fence = group.lock(a, 1, thread=1).number
    assert group.unlock(a, 2, thread=2).fate is CpFate.NOT_OWNER
    assert group.lock(a, 3, thread=2).number == NO_FENCE
    assert group.ask(K.OWNERSHIP).numbers == [fence, 1, a, 1]


@pytest.mark.rule("cp/L-2")
def test_a_repeated_call_acquires_and_releases_a_lock_once() -> None:
    group = Group()
    a = group.session()
    fence = group.lock(a, 1).number
    assert group.lock(a, 1).number == fence
    assert group.ask(K.OWNERSHIP).numbers[1] == 1
    group.lock(a, 2)
    assert [group.unlock(a, 3).number, group.unlock(a, 3).number] == [1, 1]
    assert [group.unlock(a, 4).number, group.unlock(a, 4).number] == [0, 0]
    assert group.lock(a, 1).fate is CpFate.CANCELLED, "its client has released it"
    assert group.ask(K.OWNERSHIP).numbers[1] == 0


def test_an_owner_holds_a_lock_so_often_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fenced_lock_steps, "HELD_MAX", 2)
    group = Group()
    a = group.session()
    assert [group.lock(a, call).fate for call in (1, 2, 3)] == [DONE, DONE, CpFate.TOO_OFTEN]


@pytest.mark.rule("cp/L-3")
def test_a_new_thread_waits_behind_those_that_wait_for_a_lock() -> None:
    group = Group()
    a = group.session()
    mine = {"session": a, "thread": 1, "wait_ms": 5}
    assert isinstance(group.decide(K.LOCK, behind=True, uid=uid(1), **mine), Wait)
    group.lock(a, 1)
    assert isinstance(group.decide(K.LOCK, behind=True, uid=uid(1), **mine), Decision), "repeated"
    assert isinstance(group.decide(K.LOCK, behind=True, uid=uid(2), **mine), Decision), "it owns the lock"


@pytest.mark.rule("cp/P-1")
@given(st.lists(st.tuples(st.sampled_from(range(5)), st.integers(0, 2), st.integers(1, 4)), max_size=30))
def test_permits_are_neither_lost_nor_made(steps: list[tuple[int, int, int]]) -> None:
    group = Group()
    group.number_of(K.INIT_PERMITS, number=5)
    assert group.number_of(K.INIT_PERMITS, number=5) == 0
    sessions = [NO_SESSION, group.session(), group.session()]
    total, held = 5, dict.fromkeys(sessions, 0)
    for call, (which, of, permits) in enumerate(steps):
        session = sessions[of]
        fields = {"session": session, "uid": uid(call), "number": permits}
        if which == 0:
            taken = group.number_of(K.ACQUIRE, **fields) * permits
            held[session] += taken
            total -= taken if session == NO_SESSION else 0
        elif which == 1:
            fate = group.ask(K.RELEASE, **fields).fate
            assert (fate is DONE) == (session == NO_SESSION or held[session] >= permits)
            if session == NO_SESSION:
                total += permits
            elif fate is DONE:
                held[session] -= permits
        elif which == 2:
            drained = group.number_of(K.DRAIN, **fields)
            held[session] += drained
            total -= drained if session == NO_SESSION else 0
        elif which == 3:
            group.ask(K.CHANGE_PERMITS, **fields)
            total += permits
        elif session != NO_SESSION:
            group.number_of(K.CLOSE_SESSIONS, sessions=[session])
            held[session] = 0
            sessions[of] = group.session()
            held[sessions[of]] = 0
        assert group.number_of(K.AVAILABLE) == total - sum(held[one] for one in sessions[1:])


@pytest.mark.rule("cp/P-4")
@pytest.mark.parametrize("kind", [K.CHANGE_PERMITS, K.RELEASE])
def test_permits_that_are_given_back_fit_into_32_bits(kind: CpStepKind) -> None:
    group = Group()
    a = group.session()
    group.number_of(K.INIT_PERMITS, number=2**31 - 1)
    assert group.number_of(K.ACQUIRE, session=a, uid=uid(2), number=2**31 - 1) == 1
    group.ask(kind, number=1, uid=uid(3))
    group.number_of(K.CLOSE_SESSIONS, sessions=[a])
    assert group.number_of(K.AVAILABLE) == 2**31 - 1


@pytest.mark.rule("cp/P-2")
def test_a_repeated_call_moves_permits_once() -> None:
    group = Group()
    a = group.session()
    group.number_of(K.INIT_PERMITS, number=10)
    for kind, number, left in (
        (K.ACQUIRE, 3, 7),
        (K.RELEASE, 2, 9),
        (K.CHANGE_PERMITS, -4, 5),
        (K.DRAIN, 0, 0),
    ):
        call = {"session": a, "uid": uid(kind), "number": number}
        assert group.ask(kind, **call) == group.ask(kind, **call)
        assert group.number_of(K.AVAILABLE) == left


@pytest.mark.rule("cp/P-3")
def test_a_new_request_waits_behind_those_that_wait_for_permits() -> None:
    group = Group()
    group.number_of(K.INIT_PERMITS, number=3)
    assert isinstance(group.decide(K.ACQUIRE, number=5, uid=uid(1), wait_ms=5), Wait)
    assert isinstance(group.decide(K.ACQUIRE, number=1, uid=uid(2), wait_ms=5, behind=True), Wait)
    assert group.number_of(K.ACQUIRE, number=1, uid=uid(3), behind=True) == 1, "it does not wait"


def test_numbers_out_of_bounds_change_nothing() -> None:
    group = Group()
    wrong = [
        (K.INIT_PERMITS, -1),
        (K.ACQUIRE, 0),
        (K.RELEASE, 0),
        (K.RELEASE, 2**31),
        (K.CHANGE_PERMITS, 2**31),
    ]
    for kind, number in wrong:
        assert group.ask(kind, number=number, uid=uid(1)).fate is CpFate.BAD_NUMBER
    assert not group.state.entries


@pytest.mark.rule("cp/S-1")
def test_a_closed_session_is_closed_for_ever() -> None:
    group = Group()
    a = group.session()
    assert group.ask(K.HEARTBEAT, session=a).fate is DONE
    assert group.number_of(K.CLOSE_SESSIONS, sessions=[a, a, 99]) == 1
    assert group.number_of(K.CLOSE_SESSIONS, sessions=[a]) == 0
    assert group.ask(K.HEARTBEAT, session=a).fate is CpFate.NO_SESSION
    assert group.session() > a
    assert group.number_of(K.NEW_THREAD) != group.number_of(K.NEW_THREAD)


@pytest.mark.rule("cp/S-2")
def test_replicas_release_the_same_objects_first() -> None:
    """Example: one has applied all steps, and another was filled by a snapshot, whose entries have another order."""
    group = Group()
    a = group.session()
    for call, name in enumerate("cab"):
        group.ask(K.LOCK, name, session=a, thread=1, uid=uid(call))
    entries = group.state.entries
    backwards = HoldingsIndex(dict(reversed(list(entries.items()))))
    keys = [CpKind.LOCK.key(name) for name in "abc"]
    assert HoldingsIndex(entries).first(a, 3) == backwards.first(a, 3) == keys
    assert backwards.first(a, 2) == keys[:2]


@pytest.mark.rule("cp/S-2")
def test_a_closed_session_releases_all_that_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_steps, "RELEASED_MAX", 4)
    group = Group()
    a, b = group.session(), group.session()
    for at in range(6):
        group.ask(K.LOCK, f"l{at}", session=a, thread=1, uid=uid(at))
        group.number_of(K.INIT_PERMITS, f"s{at}", number=5)
        for session in (a, b):
            group.ask(K.ACQUIRE, f"s{at}", session=session, thread=1, uid=uid(100 * session + at), number=2)
    rounds = 0
    while (
        group.number_of(K.CLOSE_SESSIONS, sessions=[a]) or a in index_of(group.state, HoldingsIndex).sessions
    ):
        rounds += 1
        assert group.ask(K.HEARTBEAT, session=a).fate is CpFate.NO_SESSION, "closed at once"
        assert group.sizes[-2] <= 5
    assert rounds == 2
    assert [group.ask(K.OWNERSHIP, f"l{at}").numbers[1] for at in range(6)] == [0] * 6
    assert [group.number_of(K.AVAILABLE, f"s{at}") for at in range(6)] == [3] * 6
    holdings = index_of(group.state, HoldingsIndex)
    assert (holdings.count(a), holdings.count(b)) == (0, 6)


@pytest.mark.rule("cp/S-2")
def test_one_step_releases_few_objects_with_many_holders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_steps, "RELEASED_BYTES", 1)
    monkeypatch.setattr(session_steps, "RELEASED_MAX", 3)
    group = Group()
    both = [group.session(), group.session()]
    for at, session in enumerate(both):
        for name in "xy":
            group.number_of(K.INIT_PERMITS, name, number=2)
            group.ask(K.ACQUIRE, name, session=session, uid=uid(at), number=1)
    released = []
    for _ in range(6):
        before = sum(group.number_of(K.AVAILABLE, name) for name in "xy")
        group.number_of(K.CLOSE_SESSIONS, sessions=both)
        released.append(sum(group.number_of(K.AVAILABLE, name) for name in "xy") - before)
    assert released == [1, 1, 1, 1, 0, 0]
    assert not index_of(group.state, HoldingsIndex).sessions


@pytest.mark.rule("cp/S-4")
def test_a_session_is_closed_to_all_but_its_client() -> None:
    group = Group()
    mine: dict[str, Any] = {"session": group.number_of(K.CREATE_SESSION, number=1000, client=b"me")}
    group.number_of(K.INIT_PERMITS, "s", number=2)
    for other in (b"you", b"me too"):
        for call, kind in enumerate((K.LOCK, K.UNLOCK, K.ACQUIRE, K.DRAIN, K.RELEASE, K.CHANGE_PERMITS)):
            found = group.ask(kind, "s", **mine, thread=1, uid=uid(call), number=1, client=other)
            assert found.fate is CpFate.NO_SESSION
        assert group.ask(K.HEARTBEAT, **mine, client=other).fate is CpFate.NO_SESSION
        assert group.number_of(K.CLOSE_SESSIONS, sessions=[mine["session"]], client=other) == 0
    assert group.number_of(K.LOCK, **mine, thread=1, uid=uid(10), client=b"me") == 1
    assert group.ask(K.HEARTBEAT, **mine, client=b"me").fate is DONE
    assert group.number_of(K.CLOSE_SESSIONS, sessions=[mine["session"]], client=b"me") == 1


@pytest.mark.rule("cp/S-4")
def test_another_client_gets_no_answer_of_a_repeated_call() -> None:
    group = Group()
    session = group.number_of(K.CREATE_SESSION, number=1000, client=b"me")
    fields: dict[str, Any] = {"session": session, "thread": 1, "uid": uid(1)}
    assert group.number_of(K.LOCK, **fields, client=b"me") == 1
    first = encode_answer(CpAnswer(number=1))
    held = Replica(group.state.name, group.state)
    assert answer_again(held, group.request(K.LOCK, **fields, client=b"me"), first) == first
    again = answer_again(held, group.request(K.LOCK, **fields, client=b"you"), first)
    assert isinstance(again, bytes)
    assert decode_answer(again).fate is CpFate.NO_SESSION


@pytest.mark.rule("cp/B-1")
def test_sessions_holders_and_held_objects_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_steps, "SESSIONS_MAX", 3)
    monkeypatch.setattr(semaphore_steps, "HOLDERS_MAX", 2)
    monkeypatch.setattr(cp_steps, "HELD_OBJECTS_MAX", 2)
    group = Group()
    a, b, c = (group.session() for _ in range(3))
    assert group.ask(K.CREATE_SESSION, number=1000).fate is CpFate.TOO_MANY
    group.number_of(K.INIT_PERMITS, "s", number=9)
    for session in (a, b):
        assert group.number_of(K.ACQUIRE, "s", session=session, uid=uid(session), number=1) == 1
    for kind in (K.ACQUIRE, K.DRAIN):
        assert group.ask(kind, "s", session=c, uid=uid(9), number=1).fate is CpFate.TOO_MANY
    assert group.number_of(K.ACQUIRE, "s", session=a, uid=uid(10), number=1) == 1, "it holds some"
    assert group.number_of(K.ACQUIRE, "s", uid=uid(11), number=1) == 1, "nobody's permits"
    assert group.number_of(K.LOCK, "l", session=a, thread=1, uid=uid(12))
    assert group.ask(K.LOCK, "m", session=a, thread=1, uid=uid(13)).fate is CpFate.TOO_MANY
    assert group.number_of(K.LOCK, "l", session=a, thread=1, uid=uid(14)), "it holds this one"
    group.number_of(K.CLOSE_SESSIONS, sessions=[b])
    assert group.number_of(K.ACQUIRE, "s", session=c, uid=uid(15), number=1) == 1
    assert group.session()


def test_two_sessions_that_are_closed_together_give_back_the_permits_of_both() -> None:
    group = Group()
    a, b = group.session(), group.session()
    group.number_of(K.INIT_PERMITS, number=5)
    for session in (a, b):
        group.ask(K.ACQUIRE, session=session, uid=uid(session), number=2)
    group.number_of(K.CLOSE_SESSIONS, sessions=[a, b])
    assert group.number_of(K.AVAILABLE) == 5


@pytest.mark.rule("cp/S-3")
def test_the_time_to_live_is_stored_and_no_step_looks_at_a_clock() -> None:
    """A step is decided by the state and the request: the same twice, whenever that is."""
    group = Group()
    a = group.session()
    request = group.request(K.HEARTBEAT, session=a)
    assert decide_cp_step(group.state, request) == decide_cp_step(group.state, request)


def test_the_index_of_what_sessions_hold_is_the_same_as_one_that_is_built_later() -> None:
    group = Group()
    a = group.session()
    followed = index_of(group.state, HoldingsIndex)
    group.lock(a, 1)
    group.number_of(K.INIT_PERMITS, "s", number=5)
    group.ask(K.ACQUIRE, "s", session=a, uid=uid(2), number=2)
    group.unlock(a, 3)
    index_of(group.state, HoldingsIndex)
    built = HoldingsIndex(group.state.entries)
    for index in (followed, built):
        assert (index.first(a, 9), index.sessions) == ([b"semaphore:s"], {a: None})
        assert (index.has(a, b"semaphore:s"), index.has(a, b"lock:x")) == (True, False)


@pytest.mark.parametrize(
    "fields",
    [
        {"map": "__cp:"},
        {"map": "orders"},
        {"map": "__cp:" + "g" * 300},
        {"value": b"\xc1"},
        {"key": b"lock:x"},
        {"key": b"nothing"},
        {"key": b"\xff:x"},
        {"op": Op.CHANGE_CP},
    ],
)
def test_what_is_no_step_on_a_group_is_rejected(fields: dict[str, Any]) -> None:
    good = cp_request(GROUP, 1, CpStep(K.GET_LONG), "x")
    assert cp_problem(good) == ""
    assert cp_problem(msgspec.structs.replace(good, **fields))


@pytest.mark.parametrize(
    "step",
    [
        CpStep(K.ADD_AND_GET, 2**63),
        CpStep(K.LOCK, wait_ms=-1, uid=uid(1)),
        CpStep(K.LOCK, uid=b""),
        CpStep(K.UNLOCK, uid=b"short"),
        CpStep(K.GET_AND_ADD, client=b"c" * 65),
        CpStep(K.CLOSE_SESSIONS, sessions=[1] * (SESSIONS_CLOSED + 1)),
    ],
)
def test_numbers_that_no_client_sends_are_rejected(step: CpStep) -> None:
    assert cp_problem(cp_request(GROUP, 1, step, "x"))


def test_a_destroy_names_an_object() -> None:
    assert cp_problem(cp_request(GROUP, 1, CpStep(K.DESTROY), "x", CpKind.SESSION))
    assert cp_problem(cp_request(GROUP, 1, CpStep(K.DESTROY), "x", CpKind.LOCK)) == ""
