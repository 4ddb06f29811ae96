"""Addresses, the table, the cutting of batches, and what answers mean."""

from __future__ import annotations

from itertools import chain, islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import errors
from holdfast.client_core import routing
from holdfast.client_core.routing import PartitionRows, RoutingTable, group_rows, pack, parse_addresses
from holdfast.core.model.ids import Address
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Outcome, Status
from holdfast.wire import own


@pytest.mark.parametrize(
    ("given_", "found"),
    [
        ("localhost:1234", [Address("localhost", 1234)]),
        ("a", [Address("a", 5701)]),
        (" a:1 , b ,a:1,", [Address("a", 1), Address("b", 5701)]),
        (["a:1,b:2", "c:3"], [Address("a", 1), Address("b", 2), Address("c", 3)]),
        ("[::1]:99", [Address("::1", 99)]),
        ("[::1]", [Address("::1", 5701)]),
    ],
)
def test_addresses_are_read(given_: str | list[str], found: list[Address]) -> None:
    assert parse_addresses(given_) == found


@pytest.mark.parametrize(
    "wrong", ["", " , ", "a:", ":1", "a:0", "a:65536", "a:b", "::1", "::1:5701", "[::1", "[::1]5701", "[]:1"]
)
def test_an_address_that_is_none_is_named(wrong: str) -> None:
    with pytest.raises(
        errors.ConfigError, match=r"^address (=|is empty).*(HOST:PORT|\[::1\]:5701|1 to 65535)"
    ):
        parse_addresses(wrong)


def table(replicas: list[list[int]], members: int = 3) -> RoutingTable:
    rows = [own.MemberRow(f"u{at}", "h", 5700 + at, at == members - 1) for at in range(members)]
    return RoutingTable(own.TableIs(1, 7, rows, replicas))


def test_the_table_names_owners_and_replicas() -> None:
    known = table([[0, 1], [1, own.NOBODY], [own.NOBODY, 0], []])
    assert [row.owner for row in known] == ["u0", "u1", None, None]
    assert [row.replicas for row in known][:3] == [("u0", "u1"), ("u1", None), (None, "u0")]
    assert [member.uuid for member in known.data_members] == ["u0", "u1"]
    assert known.members["u1"].address == "h:5701"


@given(st.lists(st.integers(-1, 2), min_size=1, max_size=60), st.integers(1, 9))
def test_shares_hold_every_partition_once_evenly_and_with_few_owners(owners: list[int], parts: int) -> None:
    known = table([[owner] for owner in owners])
    shares = known.shares(parts)
    assert len(shares) == min(parts, len(owners))
    assert sorted(chain.from_iterable(shares)) == list(range(len(owners)))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    # Every owner's partitions lie in neighbouring shares.
    pairs = sum(len({known.owner(partition) for partition in share}) for share in shares)
    assert pairs <= len(set(owners)) + len(shares) - 1


def test_shares_take_turns_between_owners() -> None:
    known = table([[at // 10 % 2] for at in range(40)])
    owners = [{known.owner(partition) for partition in share} for share in known.shares(4)]
    assert owners == [{"u0"}, {"u1"}, {"u0"}, {"u1"}]
    assert known.shares(3, [7]) == [[7]]
    assert sorted(chain.from_iterable(known.shares(2, [3, 12, 25]))) == [3, 12, 25]
    assert known.shares(2, []) == []


KEYS = st.lists(st.binary(min_size=4, max_size=12), max_size=40)


@given(KEYS, st.integers(1, 20))
def test_rows_are_grouped_by_their_partition(keys: list[bytes], count: int) -> None:
    groups = group_rows(keys, count)
    assert sorted(row for group in groups for row in group.rows) == list(range(len(keys)))
    assert len({group.partition for group in groups}) == len(groups)
    assert all(partition_of(keys[row], 0, count) == group.partition for group in groups for row in group.rows)


@given(
    st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=8), max_size=8),
    st.integers(1, 10),
    st.integers(1, 100),
)
def test_messages_hold_every_row_once_in_order_and_within_the_limits(
    cells: list[list[int]], rows_max: int, bytes_max: int
) -> None:
    sizes = list(chain.from_iterable(cells))
    numbers = iter(range(len(sizes)))
    groups = [PartitionRows(at, list(islice(numbers, len(group)))) for at, group in enumerate(cells)]
    messages = list(pack(groups, sizes, rows_max=rows_max, bytes_max=bytes_max))
    assert [row for message in messages for group in message for row in group.rows] == list(range(len(sizes)))
    assert {(group.partition, row) for message in messages for group in message for row in group.rows} == {
        (group.partition, row) for group in groups for row in group.rows
    }
    for message in messages:
        rows = [row for group in message for row in group.rows]
        assert rows
        assert all(group.rows for group in message)
        assert len(rows) <= rows_max
        assert len(rows) == 1 or sum(sizes[row] for row in rows) <= bytes_max


def test_every_fault_and_every_outcome_is_an_error_of_its_kind() -> None:
    for kind in own.FaultKind:
        raised = routing.error_of_fault(own.Fault(1, kind, "why"))
        assert str(raised) == "why"
        assert isinstance(raised, errors.Refused) == (
            kind not in (own.FaultKind.UNKNOWN, own.FaultKind.MALFORMED)
        )
    assert routing.error_of_outcome(Outcome(Status.OK)) is None
    for status in set(Status) - {Status.OK}:
        failed = routing.error_of_outcome(Outcome(status))
        assert isinstance(failed, errors.Unknown if status is Status.UNKNOWN else errors.Refused)
