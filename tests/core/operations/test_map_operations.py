"""Operations on maps: deciding changes nothing, and the data lane does the same as deciding and applying."""

from __future__ import annotations

from copy import deepcopy

from hypothesis import given
from hypothesis import strategies as st
from tests.core.store.noted import deadlines

from holdfast.config import MapSettings, PartitionSettings, Settings
from holdfast.core.journal.log import Log
from holdfast.core.model.decisions import Decision
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.map_moves import NoMoves
from holdfast.core.model.operations import BETWEEN_MEMBERS, EntryEvent, Op, Request
from holdfast.core.model.partition_table import Assignment
from holdfast.core.operations.map_operations import decide, decide_whole
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
