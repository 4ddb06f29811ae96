"""Operations on maps: deciding changes nothing, and the data lane does the same as deciding and applying."""

from __future__ import annotations

from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.store.noted import deadlines

from holdfast.config import MapSettings, PartitionSettings, Settings
from holdfast.core.journal.log import Log
from holdfast.core.model.decisions import Decision
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.map_moves import NoMoves
from holdfast.core.model.operations import BETWEEN_MEMBERS, EntryEvent, EventKind, Op, Request
from holdfast.core.model.partition_table import Assignment
from holdfast.core.operations.map_operations import (
    FROM_BACKUPS,
    NEVER,
    answers,
    can_read,
    decide,
    decide_whole,
    merge,
    peek,
    read_backup,
    version_of,
)
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup.lane import Lane
from holdfast.core.primary_backup.primary_copy import PrimaryCopy
from holdfast.core.store.map_state import MapState
from holdfast.core.store.partition_copy import PartitionCopy

ME, BEN = MemberId("me"), MemberId("ben")
KEYS = st.sampled_from([b"a", b"b", b"c"])
LIFETIMES = st.sampled_from([-1, 0, 0, 1, 3, 1000])


class Serving:
    """The primary of one partition, with a backup, listeners, digests that are kept, and maybe a change stream."""

    def __init__(self, *, changes: bool) -> None:
        self.out = Outbox()
        self.out.epoch_ms = 1_000_000
        chosen = MapSettings(backups=1, ttl_ms=5, changes_bytes=100_000 if changes else 0)
        settings = Settings(
            partitions=PartitionSettings(count=1), maps={"default": MapSettings(), "m": chosen}
        )
        self.lane = Lane(ME, settings, self.out, Log(self.out, on=False))
        self.lane.attach([Assignment(1, (ME, BEN))])
        self.copy = PartitionCopy(0, 0)
        self.copy.term = 1
        self.lane.leading[0] = self.lane.serving[0] = self.copy
        self.lane.retarget(self.copy)
        self.protocol = PrimaryCopy(settings, self.out, self.lane, NoMoves())
        self.events: list[EntryEvent] = []
        self.lane.heard = self.events.append
        self.lane.listening["m"] = 1
        self.answers: list[object] = []

    def submit(self, request: Request) -> None:
        """Through decide and apply; answers at once, and does not seal, so that what is open can be compared."""
        decision = self.protocol._decide(self.copy, request)
        assert isinstance(decision, Decision)
        self.answers.append(self.protocol._carry_out(self.copy, request, decision))
        if not decision.updates and request.op is Op.REMOVE:
            self.lane.rest_on(self.copy, "m")

    def picture(self) -> object:
        """All that can be seen of it."""
        held = self.copy.maps.get("m")
        state = held.state if held is not None else MapState("m")
        return (
            self.answers,
            [record for _, _, record in self.lane.unsent],
            state.entries,
            {key: (one.deadline_ns(), one.ttl_ms, one.max_idle_ms) for key, one in state.expiries.items()},
            state.hashes,
            state.digests(),
            held.counter if held is not None else 0,
            self.events,
            sorted(self.lane._reads),
        )


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["set", "set", "remove", "read", "wait"]),
            KEYS,
            st.sampled_from([b"1", b"2"]),
            LIFETIMES,
            LIFETIMES,
            st.sampled_from([0, 0, 7]),
        ),
        max_size=30,
    ),
    changes=st.booleans(),
)
def test_the_data_lane_does_what_deciding_and_applying_does(
    steps: list[tuple[str, bytes, bytes, int, int, int]], changes: bool
) -> None:
    fast, slow = Serving(changes=changes), Serving(changes=changes)
    for what, key, value, ttl_ms, max_idle_ms, key_hash in steps:
        if what == "wait":
            for one in (fast, slow):
                one.out.now_ns += 2 * MILLISECOND
        elif what == "set":
            fast.answers.append(fast.lane.set(fast.copy, "m", key, value, ttl_ms, max_idle_ms, key_hash))
            more = {"ttl_ms": ttl_ms, "max_idle_ms": max_idle_ms, "key_hash": key_hash}
            slow.submit(Request(Op.PUT, "m", [0], key, value, **more))
        elif what == "remove":
            fast.answers.append(fast.lane.remove(fast.copy, "m", key))
            slow.submit(Request(Op.REMOVE, "m", [0], key))
        else:
            fast.answers.append(fast.lane.read(fast.copy, "m", key))
            slow.submit(Request(Op.GET, "m", [0], key))
        assert fast.picture() == slow.picture(), what


def _look_of(state: MapState) -> object:
    return deepcopy(
        (
            state.entries,
            {key: (one.stored_ns, one.accessed_ns, one.noted_ns) for key, one in state.expiries.items()},
            state.hashes,
            deadlines(state),
            state.touched,
        )
    )


@given(
    op=st.sampled_from([op for op in Op if op not in {Op.CALL, Op.ASK, *BETWEEN_MEMBERS}]),
    key=KEYS,
    ttl_ms=LIFETIMES,
    present=st.dictionaries(KEYS, st.sampled_from([b"1", b"2"])),
    ending=st.sets(KEYS),
    expected=st.sampled_from([b"1", b"2"]),
)
def test_deciding_changes_nothing(
    op: Op, key: bytes, ttl_ms: int, present: dict[bytes, bytes], ending: set[bytes], expected: bytes
) -> None:
    state = MapState("m")
    state.digests()
    for one, value in present.items():
        state.store(one, value, 1 if one in ending else 0, 50, 3, 0)
    before = _look_of(state)
    request = Request(op, "m", [0], key, b"9", expected, [key, b"b", key, b"5"], ttl_ms)
    now_ns = 10 * MILLISECOND
    if op < Op.SIZE:
        decide(state, request, now_ns)
    else:
        decide_whole(state, request, now_ns)
    assert _look_of(state) == before


def test_what_a_request_has_decided_counts_for_what_follows_in_it() -> None:
    """One key twice in a request: it ends once, and is new once."""
    state = MapState("m")
    state.store(b"a", b"1", 1, 0, 0, 0)
    now_ns = 10 * MILLISECOND
    stored = decide(state, Request(Op.PUT_ALL, "m", [0], items=[b"a", b"2", b"a", b"3"]), now_ns)
    assert [(update.change.name, update.kind.name if update.kind else "") for update in stored.updates] == [
        ("REMOVE", "EXPIRED"),
        ("SET", "ADDED"),
        ("SET", "UPDATED"),
    ]
    read = decide(state, Request(Op.GET_ALL, "m", [0], items=[b"a", b"a"]), now_ns)
    assert (read.answer, len(read.updates)) == ([], 1)


# -- answers, one by one

NOW_NS = 10 * MILLISECOND


def holding(now_ns: int = 0, **values: tuple[bytes, int, int]) -> MapState:
    """Name -> value, time to live and maximum idle time; stored at `now_ns`."""
    state = MapState("m")
    for name, (value, ttl_ms, max_idle_ms) in values.items():
        state.store(name.encode(), value, ttl_ms, max_idle_ms, 0, now_ns)
    return state


def asked(op: Op, key: bytes = b"a", value: bytes = b"9", **more: object) -> Request:
    return Request(op, "m", [0], key, value, **more)  # type: ignore[arg-type]


def answer(state: MapState | None, op: Op, key: bytes = b"a", **more: object) -> object:
    return decide(state, asked(op, key, **more), NOW_NS).answer


STATE = {"a": (b"1", 0, 0), "idle": (b"2", 0, 50), "over": (b"3", 5, 0), "long": (b"4", 70, 0)}
"""At `NOW_NS` the entry `over` has expired."""


@pytest.mark.parametrize(
    ("key", "old"), [(b"a", b"1"), (b"idle", b"2"), (b"over", None), (b"new", None)], ids=str
)
def test_put_answers_what_was_there_and_set_and_try_put_do_not(key: bytes, old: bytes | None) -> None:
    assert answer(holding(**STATE), Op.PUT, key) == old
    assert answer(holding(**STATE), Op.SET, key) is None
    assert answer(holding(**STATE), Op.TRY_PUT, key) is True
    for op in (Op.PUT, Op.SET, Op.TRY_PUT):
        stored = decide(holding(**STATE), asked(op, key), NOW_NS).updates[-1]
        assert (stored.key, stored.value) == (key, b"9")
        assert stored.kind is (EventKind.ADDED if old is None else EventKind.UPDATED)


def test_reading_an_entry_with_an_idle_time_counts_as_a_use() -> None:
    assert list(decide(holding(**STATE), asked(Op.GET, b"idle"), NOW_NS).used) == [b"idle"]
    assert list(decide(holding(**STATE), asked(Op.GET, b"a"), NOW_NS).used) == []


def test_operations_on_one_key_take_no_others() -> None:
    with pytest.raises(ValueError, match="SIZE is not an operation on one key"):
        decide(holding(), asked(Op.SIZE), NOW_NS)


def test_evicting_and_removing_are_told_apart() -> None:
    kinds = {
        op: decide(holding(**STATE), asked(op), NOW_NS).updates[0].kind
        for op in (Op.EVICT, Op.REMOVE, Op.DELETE)
    }
    removed = EventKind.REMOVED
    assert kinds == {Op.EVICT: EventKind.EVICTED, Op.REMOVE: removed, Op.DELETE: removed}


def test_a_new_time_to_live_keeps_the_idle_time() -> None:
    def changed(key: bytes, ttl_ms: int) -> list[tuple[int, int]]:
        decision = decide(holding(**STATE), asked(Op.SET_TTL, key, ttl_ms=ttl_ms), NOW_NS)
        return [(update.ttl_ms, update.max_idle_ms) for update in decision.updates]

    assert changed(b"idle", 300) == [(300, 50)]
    assert changed(b"a", 300) == [(300, 0)]
    assert changed(b"a", -1) == [(0, 0)], "the map's own one is none"
    assert changed(b"new", 300) == [], "there is nothing to end"


def test_the_view_of_an_entry_says_when_it_ends() -> None:
    def view(key: bytes) -> object:
        return answer(holding(**STATE), Op.ENTRY_VIEW, key)

    assert view(b"a") == [b"1", 0, 0, NEVER, version_of(b"1")]
    assert view(b"long") == [b"4", 70, 0, 60, version_of(b"4")]
    assert view(b"idle") == [b"2", 0, 50, 50, version_of(b"2")], "it is used now"
    assert view(b"over") is view(b"new") is answer(None, Op.ENTRY_VIEW) is None
    state = holding(**STATE)
    decide(state, asked(Op.ENTRY_VIEW, b"idle"), NOW_NS)
    assert read_backup(state, asked(Op.ENTRY_VIEW, b"idle"), NOW_NS) == [b"2", 0, 50, 40, version_of(b"2")]


def test_the_version_of_a_value_is_a_hash_of_63_bits() -> None:
    """Fixed: members of all versions answer the same."""
    assert version_of(b"value") == 3_948_073_978_542_588_478
    versions = [version_of(b"%d" % number) for number in range(100)]
    assert len(set(versions)) == 100
    assert all(0 <= version < 1 << 63 for version in versions)
    assert any(version >> 62 for version in versions), "all the bits are used"


# -- from a backup


def test_a_backup_does_not_answer_for_entries_whose_uses_count_elsewhere() -> None:
    state = holding(**STATE)
    assert can_read(None, asked(Op.GET)) is can_read(holding(a=(b"1", 0, 0)), asked(Op.GET)) is True
    assert [can_read(state, asked(Op.GET, key)) for key in (b"a", b"idle", b"long")] == [True, False, True]
    assert can_read(state, asked(Op.GET_ALL, b"", items=[b"a", b"long"])) is True
    assert can_read(state, asked(Op.GET_ALL, b"", items=[b"a", b"idle"])) is False
    assert can_read(state, asked(Op.GET_ALL, b"idle", items=[b"a"])) is True, "the items count"


def test_a_backup_answers_as_the_primary_and_removes_nothing() -> None:
    state = holding(**STATE)
    for key in (b"a", b"over", b"long", b"new"):
        for op in FROM_BACKUPS:
            request = asked(op, key, items=[key, b"a"])
            assert read_backup(state, request, NOW_NS) == decide(state, request, NOW_NS).answer
    assert read_backup(None, asked(Op.ENTRY_VIEW), NOW_NS) is read_backup(None, asked(Op.GET), NOW_NS) is None
    assert state.entries[b"over"] == b"3"


def test_to_peek_is_no_use() -> None:
    state = holding(**STATE)
    assert peek(state, b"idle", 40 * MILLISECOND) == b"2"
    assert peek(state, b"idle", 50 * MILLISECOND) is None, "it was not used at 40 ms"


# -- whole partitions


@pytest.mark.parametrize("op", [Op.SIZE, Op.IS_EMPTY, Op.CONTAINS_VALUE, Op.KEYS, Op.VALUES, Op.ENTRIES])
def test_a_whole_partition_has_the_entries_that_have_not_expired(op: Op) -> None:
    def whole(state: MapState | None, value: bytes = b"1") -> object:
        return decide_whole(state, asked(op, b"", value), NOW_NS).answer

    plain, ending = holding(a=(b"1", 0, 0), b=(b"2", 0, 0)), holding(**STATE)
    over = holding(over=(b"3", 5, 0))
    wanted: dict[Op, tuple[object, ...]] = {
        Op.SIZE: (2, 3, 0),
        Op.IS_EMPTY: (False, False, True),
        Op.CONTAINS_VALUE: (True, True, False),
        Op.KEYS: ([b"a", b"b"], [b"a", b"idle", b"long"], []),
        Op.VALUES: ([b"1", b"2"], [b"1", b"2", b"4"], []),
        Op.ENTRIES: ([b"a", b"1", b"b", b"2"], [b"a", b"1", b"idle", b"2", b"long", b"4"], []),
    }
    assert (whole(plain), whole(ending), whole(over)) == wanted[op]
    assert whole(holding()) == whole(None) == wanted[op][2]
    if op is Op.CONTAINS_VALUE:
        assert (whole(plain, b"3"), whole(ending, b"3")) == (False, False)


def test_clearing_what_is_empty_changes_nothing() -> None:
    for state, count in ((holding(**STATE), 4), (holding(), 0), (None, 0)):
        decision = decide_whole(state, asked(Op.CLEAR), NOW_NS)
        assert (decision.answer, len(decision.updates)) == (count, min(count, 1))


def test_answers_of_other_members_are_believed_only_if_they_may_be_answers() -> None:
    for op in (Op.SIZE, Op.IS_EMPTY, Op.CONTAINS_VALUE, Op.KEYS, Op.CLEAR):
        assert answers(op, None) is True
    for op in (Op.SIZE, Op.CLEAR):
        assert [answers(op, value) for value in (0, 1, -1, b"1", [b"1"])] == [True, True, False, False, False]
    for op in (Op.IS_EMPTY, Op.CONTAINS_VALUE):
        assert [answers(op, value) for value in (True, False, 1, b"1")] == [True, True, False, False]
    for op in (Op.KEYS, Op.VALUES, Op.ENTRIES):
        assert [answers(op, value) for value in ([], [b"1"], 1)] == [True, True, False]
        assert answers(op, [b"1", 1]) is False


def test_answers_of_partitions_become_one() -> None:
    assert merge(Op.SIZE, None, 3) == 3
    assert merge(Op.SIZE, 4, 3) == merge(Op.CLEAR, 4, 3) == 7
    for one, other in ((False, False), (False, True), (True, False), (True, True)):
        assert merge(Op.CONTAINS_VALUE, one, other) is (one or other)
        assert merge(Op.IS_EMPTY, one, other) is (one and other)
    assert merge(Op.KEYS, [b"a"], [b"b"]) == [b"a", b"b"]
