"""What a strategy decides, over made-up copies. Against real members: tests/runtime/test_repair.py."""

from __future__ import annotations

import pytest

from holdfast.client.replica_questions import EntryCopy, ReplicaPage
from holdfast.core.model.operations import Op
from holdfast.core.store.replica_comparison import Finding
from holdfast.replica_comparison.key_differences import Differences, keys_that_differ
from holdfast.replica_comparison.repair import KeyRepair, majority, newest, request_of

KEY = b"\0\0\0\1k"
ONE, TWO, THREE = EntryCopy(b"1"), EntryCopy(b"2"), EntryCopy(b"3")


def finding(member: str, replica: int, term: int, counter: int) -> Finding:
    return Finding(
        partition=3,
        map="m",
        member=member,
        verdict="differs",
        reference="owner",
        replica=replica,
        term=term,
        counter=counter,
        reference_term=4,
        reference_counter=7,
    )


@pytest.mark.parametrize(
    ("copies", "expected"),
    [
        ([("a", 4, 7), ("b", 4, 7)], "owner"),
        ([("a", 4, 6), ("b", 3, 900)], "owner"),
        ([("a", 4, 8), ("b", 4, 9)], "b"),
        ([("a", 5, 1), ("b", 4, 9)], "a"),
        ([("b", 4, 9), ("a", 4, 9)], "b"),
    ],
)
def test_the_newest_is_the_highest_term_and_then_counter(
    copies: list[tuple[str, int, int]], expected: str
) -> None:
    findings = [finding(name, at, term, counter) for at, (name, term, counter) in enumerate(copies, 1)]
    assert newest(findings) == expected
    assert newest(findings[::-1]) == expected


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ([ONE, TWO, TWO], "a"),
        ([TWO, ONE, TWO], "owner"),
        ([ONE, None, None], "a"),
        ([None, ONE, ONE], "a"),
        ([ONE, TWO, THREE], None),
        ([ONE, TWO], None),
        ([ONE, None], None),
        ([ONE, TWO, TWO, ONE], None),
        ([ONE, TWO, THREE, THREE], "b"),
    ],
)
def test_the_majority_of_the_copies_or_a_tie(held: list[EntryCopy | None], expected: str | None) -> None:
    members = ("owner", "a", "b", "c")[: len(held)]
    entries = {member: entry for member, entry in zip(members, held, strict=True) if entry is not None}
    assert majority(Differences(3, "m", members, {KEY: entries}), KEY) == expected


@pytest.mark.rule("replica_comparison/R-3")
def test_only_keys_count_that_stood_still_at_the_primary() -> None:
    first = ReplicaPage(5, {b"same": ONE, b"differs": ONE, b"written": ONE, b"gone": ONE})
    again = ReplicaPage(7, {b"same": ONE, b"differs": ONE, b"written": TWO, b"new": ONE})
    backup = ReplicaPage(6, {b"same": EntryCopy(b"1", 500), b"differs": TWO, b"new": ONE})
    found = keys_that_differ({"owner": first, "a": backup}, first, again)
    assert found == {b"differs": {"owner": ONE, "a": TWO}}


@pytest.mark.rule("replica_comparison/R-1")
def test_a_write_is_conditional_on_what_was_seen() -> None:
    dies = EntryCopy(b"2", 500, 600, 77)
    put = request_of(3, KeyRepair("m", KEY, None, dies))
    replace = request_of(3, KeyRepair("m", KEY, ONE, dies))
    remove = request_of(3, KeyRepair("m", KEY, EntryCopy(b"1", key_hash=77), None))
    assert (put.op, put.value, put.ttl_ms, put.max_idle_ms) == (Op.PUT_IF_ABSENT, b"2", 500, 600)
    assert (replace.op, replace.expected, replace.value) == (Op.REPLACE_IF_SAME, b"1", b"2")
    assert (remove.op, remove.expected) == (Op.REMOVE_IF_SAME, b"1")
    assert {request.key_hash for request in (put, replace, remove)} == {77}
    assert request_of(3, KeyRepair("m", KEY, None, ONE)).ttl_ms == 0, "for ever, not the map's default"
