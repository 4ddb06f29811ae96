"""Data nodes of a zone: against a model that looks at a clock every second, and case by case."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.zones.small_metastore import SmallMetastore

from holdfast.core.metastore.invoke import PutKey, RemoveKey
from holdfast.core.zones.data_nodes import (
    HISTORY_MOST,
    DataNodes,
    NodesTimer,
    data_nodes_changes,
    data_nodes_of,
    filter_altered,
    leavers_gone,
    timers_run_out,
    topology_changed,
    waits_altered,
)
from holdfast.core.zones.descriptors import NEVER, DataNodesEntry, ZoneSettings
from holdfast.core.zones.zone_keys import encoded, zone_key


def begun(nodes: str = "ABC", at_ms: int = 0) -> DataNodes:
    return DataNodes((DataNodesEntry(at_ms, tuple(nodes)),))


def shown(data: DataNodes) -> list[tuple[int, str]]:
    return [(entry.at_ms, "".join(entry.nodes)) for entry in data.history]


# -- against the model


@dataclass
class ClockedNodes:
    """Data nodes as a loop would keep them that wakes up every second and never late."""

    settings: ZoneSettings
    nodes: set[str]
    come: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    up_at: int | None = None
    down_at: int | None = None
    changes: list[tuple[int, str]] = field(default_factory=list)

    def second(self, now: int) -> None:
        before = set(self.nodes)
        if self.up_at is not None and self.up_at <= now:
            self.nodes |= self.come
            self.come, self.up_at = set(), None
        if self.down_at is not None and self.down_at <= now:
            self.nodes -= self.gone
            self.gone, self.down_at = set(), None
        if self.nodes != before:
            self.changes.append((now, "".join(sorted(self.nodes))))

    def members(self, alive: set[str], now: int) -> None:
        come, gone = alive - self.nodes, self.nodes - alive
        if come - self.come:
            wait = self.settings.scale_up_s
            self.up_at = None if wait == NEVER else now + wait
        if gone - self.gone:
            wait = self.settings.scale_down_s
            self.down_at = None if wait == NEVER else now + wait
        self.come, self.gone = come, gone
        if not come:
            self.up_at = None
        if not gone:
            self.down_at = None
        self.second(now)


waits = st.one_of(st.integers(0, 6), st.just(NEVER))


@pytest.mark.rule("zones/A-10", "zones/A-11")
@given(
    st.builds(lambda up, down: ZoneSettings("z", scale_up_s=up, scale_down_s=down), waits, waits),
    st.lists(st.tuples(st.integers(0, 5), st.sets(st.sampled_from("ABCDE")), st.booleans()), max_size=12),
)
def test_members_come_and_go_as_in_the_model(
    settings: ZoneSettings, steps: list[tuple[int, set[str], bool]]
) -> None:
    """Whether somebody looks at the timers in between, or only when members change, makes no difference."""
    model, data, now = ClockedNodes(settings, set("ABC")), begun(at_ms=-1), 0
    for wait, alive, looks in steps:
        for _ in range(wait):
            now += 1
            model.second(now)
            if looks:
                data = timers_run_out(data, 1000 * now)
        model.members(alive, now)
        data = topology_changed(timers_run_out(data, 1000 * now), settings, alive, 1000 * now)
        assert data.latest == model.nodes
        assert set(data.up.nodes if data.up else ()) == model.come
        assert set(data.down.nodes if data.down else ()) == model.gone
        deadlines = [at for at in (model.up_at, model.down_at) if at is not None]
        assert data.next_ms == (1000 * min(deadlines) if deadlines else None)
    assert shown(data)[1:] == [(1000 * at, nodes) for at, nodes in model.changes][-HISTORY_MOST:]


# -- case by case


@pytest.mark.parametrize(
    ("wait_s", "due_ms"), [(0, 500), (2, 2_500), (NEVER - 1, 500 + 1000 * (NEVER - 1)), (NEVER, None)]
)
def test_a_timer_is_due_at_its_time_and_not_before(wait_s: int, due_ms: int | None) -> None:
    timer = NodesTimer(500, wait_s, ("A",))
    assert timer.due_ms == due_ms
    if due_ms is None:
        assert not timer.due(10**18)
    else:
        assert [timer.due(at) for at in (due_ms - 1, due_ms, due_ms + 1)] == [False, True, True]


def test_a_zone_without_history_has_no_data_nodes() -> None:
    assert DataNodes().latest == frozenset()
    assert DataNodes().next_ms is None
    data = topology_changed(DataNodes(), ZoneSettings("z"), "BA", 7)
    assert shown(data) == [(7, "AB")]
    assert filter_altered(DataNodes(), "", 7).latest == frozenset()


def test_who_comes_in_a_burst_is_waited_for_from_the_last_one_and_names_are_sorted() -> None:
    settings = ZoneSettings("z", scale_up_s=10, scale_down_s=20)
    data = topology_changed(begun(), settings, "ABCE", 1_000)
    data = topology_changed(data, settings, "ABCED", 6_000)
    assert data.up == NodesTimer(6_000, 10, ("D", "E"))
    data = topology_changed(data, settings, "ABCD", 7_000)
    assert data.up == NodesTimer(6_000, 10, ("D",)), "E is gone again: no reason to wait longer for D"
    other = ZoneSettings("z", scale_up_s=99)
    assert topology_changed(data, other, "ABCD", 8_000).up == data.up, "altering a zone alters its timers"
    assert topology_changed(data, other, "ABCDE", 8_000).up == NodesTimer(8_000, 99, ("D", "E"))


def test_both_timers_that_end_at_once_make_one_entry() -> None:
    data = DataNodes(begun().history, NodesTimer(0, 5, ("D",)), NodesTimer(2_000, 3, ("A",)))
    assert data.next_ms == 5_000
    after = timers_run_out(data, 5_000)
    assert after == DataNodes((*begun().history, DataNodesEntry(5_000, ("B", "C", "D"))))


def test_entries_never_go_back_in_time() -> None:
    """The clock of the member that writes may be behind that of the one before."""
    late = DataNodes((DataNodesEntry(1_000, ("B",)), *begun(at_ms=9_000).history))
    assert shown(filter_altered(late, "A", 4_000)) == [(1_000, "B"), (9_000, "ABC"), (9_000, "A")]
    assert filter_altered(late, "CBA", 10_000) == late, "the same nodes are no entry"


@pytest.mark.parametrize(
    ("leaving", "left"),
    [("", "ABC"), ("C", "AB"), ("AC", "B"), ("ABC", "ABC"), ("ABCD", "ABC"), ("D", "ABC"), ("CD", "AB")],
)
def test_members_that_leave_hold_nothing_any_more_unless_nobody_else_is_there(
    leaving: str, left: str
) -> None:
    up = NodesTimer(0, 50, ("E",))
    data = DataNodes(begun().history, up)
    after = leavers_gone(data, leaving, 3)
    assert "".join(sorted(after.latest)) == left
    assert (after.up, after.down) == (up, None), "timers run on"
    assert shown(after) == [(0, "ABC"), (3, left)][: 1 if left == "ABC" else 2]


def test_other_waits_count_for_timers_that_run_and_begin_none() -> None:
    settings = ZoneSettings("z", scale_up_s=10, scale_down_s=20)
    data = topology_changed(begun(), settings, "ABD", 1_000)
    after = waits_altered(data, ZoneSettings("z", scale_up_s=30, scale_down_s=40), 2_000)
    assert (after.up, after.down) == (NodesTimer(1_000, 30, ("D",)), NodesTimer(1_000, 40, ("C",)))
    assert shown(after) == [(0, "ABC")]
    one = topology_changed(begun(), settings, "ABCD", 1_000)
    assert waits_altered(one, settings, 2_000) == one
    other = topology_changed(begun(), settings, "AB", 1_000)
    assert waits_altered(other, settings, 2_000) == other
    ended = waits_altered(data, ZoneSettings("z", scale_up_s=0, scale_down_s=1), 2_000)
    assert shown(ended) == [(0, "ABC"), (1_000, "ABCD"), (2_000, "ABD")]
    assert (ended.up, ended.down) == (None, None)


def test_a_history_is_bounded() -> None:
    """A zone of which a member comes and goes for years: every change rewrites the whole value."""
    data, settings = begun("A"), ZoneSettings("z", scale_down_s=0)
    for at in range(1, 100):
        data = topology_changed(data, settings, "AB" if at % 2 else "A", at)
    assert [entry.at_ms for entry in data.history] == list(range(100 - 32, 100))
    assert data.latest == {"A", "B"}


# -- in the metastore


def test_only_what_changed_is_written_and_what_is_empty_is_removed() -> None:
    up, down = NodesTimer(0, 5, ("D",)), NodesTimer(0, 6, ("A",))
    before = DataNodes(begun().history, up)
    assert data_nodes_changes(3, before, before) == []
    assert data_nodes_changes(3, before, DataNodes(begun().history, None, down)) == [
        RemoveKey(zone_key(3, "up")),
        PutKey(zone_key(3, "down"), encoded(down)),
    ]
    assert data_nodes_changes(3, before, DataNodes((), up)) == [RemoveKey(zone_key(3, "history"))]
    store = SmallMetastore()
    whole = DataNodes(begun().history, up, down)
    store.invoke(store.read([]).guarded(data_nodes_changes(3, DataNodes(), whole)))
    read = store.read([zone_key(3, field) for field in ("history", "up", "down")])
    assert (data_nodes_of(read, 3), data_nodes_of(read, 4)) == (whole, DataNodes())


@pytest.mark.parametrize("value", [NodesTimer(1, 2, ("A",)), DataNodes(), DataNodesEntry(1, ("A",))])
def test_values_cannot_be_changed_and_unknown_fields_are_refused(value: msgspec.Struct) -> None:
    for name in value.__struct_fields__:
        with pytest.raises(AttributeError):
            setattr(value, name, getattr(value, name))
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({**msgspec.to_builtins(value), "newer": 1}, type(value))


def test_what_is_empty_takes_no_room() -> None:
    assert msgspec.json.encode(DataNodes()) == b"{}"
