"""The metastore as one would write it without thinking: all of it copied for each revision. And random invokes."""

from __future__ import annotations

from hypothesis import strategies as st

from holdfast.core.metastore.invoke import (
    Absent,
    AllOf,
    AnyOf,
    Branch,
    Compare,
    Comparison,
    Condition,
    Exists,
    If,
    Leaf,
    MetastoreEntry,
    PutKey,
    Removed,
    RemoveKey,
    Subject,
    revision_bytes,
)

KEYS = [b"a", b"a/b", b"a/c", b"b", b"\xff"]
VALUES = [b"", b"0", b"1", b"\x00", b"\xff\xff"]

keys = st.sampled_from(KEYS)
values = st.sampled_from(VALUES)
simple: st.SearchStrategy[Condition] = st.one_of(
    st.builds(Exists, keys),
    st.builds(Absent, keys),
    st.builds(Removed, keys),
    st.builds(Compare, keys, st.just(Subject.VALUE), st.sampled_from(Comparison), values),
    st.builds(
        Compare,
        keys,
        st.just(Subject.REVISION),
        st.sampled_from(Comparison),
        st.integers(1, 12).map(revision_bytes),
    ),
)
conditions: st.SearchStrategy[Condition] = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.builds(AllOf, st.lists(inner, max_size=3).map(tuple)),
        st.builds(AnyOf, st.lists(inner, max_size=3).map(tuple)),
    ),
    max_leaves=4,
)
changes = st.lists(
    st.one_of(st.builds(PutKey, keys, values), st.builds(RemoveKey, keys)),
    max_size=3,
    unique_by=lambda change: change.key,
).map(tuple)
leaves = st.builds(Leaf, changes, st.integers(-5, 5))
branches: st.SearchStrategy[Branch] = st.recursive(
    leaves, lambda inner: st.builds(If, conditions, inner, inner), max_leaves=5
)


class Naive:
    """All that ever was."""

    def __init__(self) -> None:
        self.past: list[dict[bytes, tuple[bytes | None, int]]] = [{}]
        """At each revision: value, and since when, of all keys that ever were."""
        self.times = [0]
        self.compacted = 0

    @property
    def revision(self) -> int:
        return len(self.past) - 1

    def get(self, key: bytes, revision: int | None = None) -> MetastoreEntry:
        value, since = self.past[self.revision if revision is None else revision].get(key, (None, 0))
        if value is None and since <= self.compacted:
            since = 0
        return MetastoreEntry(key, value, since)

    def holds(self, condition: Condition) -> bool:
        if isinstance(condition, AllOf):
            return False not in [self.holds(one) for one in condition.conditions]
        if isinstance(condition, AnyOf):
            return True in [self.holds(one) for one in condition.conditions]
        entry = self.get(condition.key)
        if isinstance(condition, Exists):
            return entry.value is not None
        if isinstance(condition, Absent):
            return entry.value is None
        if isinstance(condition, Removed):
            return entry.value is None and entry.revision != 0
        than = condition.than
        if condition.subject is Subject.VALUE:
            # An absent value is less than any: the others have one byte more in front.
            here, there = b"" if entry.value is None else b"v" + entry.value, b"v" + than
        else:
            since = 0 if entry.value is None else entry.revision
            here, there = since.to_bytes(8, "big"), than
        return {
            Comparison.EQUAL: here == there,
            Comparison.NOT_EQUAL: here != there,
            Comparison.LESS: here < there,
            Comparison.LESS_OR_EQUAL: here <= there,
            Comparison.GREATER: here > there,
            Comparison.GREATER_OR_EQUAL: here >= there,
        }[condition.how]

    def invoke(self, branch: Branch, time_ms: int) -> tuple[int, int]:
        if isinstance(branch, If):
            return self.invoke(branch.then if self.holds(branch.condition) else branch.otherwise, time_ms)
        now = dict(self.past[-1])
        for change in branch.changes:
            if isinstance(change, PutKey):
                now[change.key] = (change.value, self.revision + 1)
            elif self.get(change.key).value is not None:
                now[change.key] = (None, self.revision + 1)
        if now != self.past[-1]:
            self.past.append(now)
            self.times.append(max(time_ms, self.times[-1] + 1))
        return branch.answer, self.revision
