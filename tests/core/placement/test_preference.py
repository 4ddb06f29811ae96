"""Who comes back gets what he holds, and nothing else changes by that."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.model.migration import ReplicaList
from holdfast.core.model.partition_table import survivors
from holdfast.core.placement.layout import Candidate, arrange
from holdfast.core.placement.preference import kept_first, preferring


def copied(now: list[ReplicaList], targets: list[ReplicaList]) -> int:
    return sum(
        member is not None and member not in row
        for row, target in zip(now, targets, strict=True)
        for member in target
    )


def loads(rows: list[ReplicaList]) -> Counter[tuple[int, str | None]]:
    return Counter((slot, member) for row in rows for slot, member in enumerate(row))


def crashed(
    members: int, partitions: int, replicas: int, gone: str
) -> tuple[list[ReplicaList], set[int], list[Candidate]]:
    """The rows after a crash was made good, what the crashed one had held, and everybody."""
    everyone = [Candidate(f"m{number}") for number in range(members)]
    empty: list[ReplicaList] = [(None,) * replicas] * partitions
    before = arrange(empty, everyone, replicas)
    kept = {p for p, row in enumerate(before) if gone in row}
    rest = [one for one in everyone if one.uuid != gone]
    left: list[ReplicaList] = [tuple(None if m == gone else m for m in row) for row in before]
    return arrange(left, rest, replicas), kept, rest


@pytest.mark.rule("migration/X-3")
def test_one_of_three_gets_back_what_the_balance_of_the_others_allows() -> None:
    """Its partitions have been evened out among the two others meanwhile: some have to keep what it once had."""
    now, kept, rest = crashed(3, 271, 2, "m2")
    order = kept_first(271, {"back": kept})
    arranged = arrange([now[p] for p in order], [*rest, Candidate("back")], 2)
    targets = [arranged[order.index(p)] for p in range(271)]
    group = {uuid: uuid for uuid in ("m0", "m1", "back")}
    chosen = preferring(now, targets, {"back": kept}, group)
    given_to = {p for p, row in enumerate(chosen) if "back" in row}
    assert len(given_to & kept) >= 0.75 * len(given_to)
    assert loads(chosen) == loads(targets)
    assert copied(now, chosen) == copied(now, targets)


def test_slots_that_were_left_vacant_are_all_filled_from_what_was_kept() -> None:
    """After a return within `partitions.rebalance_delay_ms`: nobody has got its partitions meanwhile."""
    everyone = [Candidate(f"m{number}") for number in range(3)]
    before = arrange([(None, None)] * 271, everyone, 2)
    kept = {p for p, row in enumerate(before) if "m2" in row}
    now = [survivors(row, {"m0", "m1"})[0] for row in before]
    order = kept_first(271, {"back": kept})
    arranged = arrange([now[p] for p in order], [*everyone[:2], Candidate("back")], 2)
    targets = [arranged[order.index(p)] for p in range(271)]
    chosen = preferring(now, targets, {"back": kept}, {uuid: uuid for uuid in ("m0", "m1", "back")})
    assert {p for p, row in enumerate(chosen) if "back" in row} == kept


@given(
    seed=st.integers(0, 10_000),
    members=st.integers(3, 7),
    replicas=st.integers(1, 3),
    partitions=st.integers(1, 40),
    groups=st.integers(2, 7),
)
def test_loads_copies_and_groups_stay_as_they_were(
    seed: int, members: int, replicas: int, partitions: int, groups: int
) -> None:
    draw = random.Random(seed)
    now, _, rest = crashed(members, partitions, replicas, f"m{members - 1}")
    grouped = [Candidate(one.uuid, f"g{number % groups}") for number, one in enumerate(rest)]
    back = Candidate("back", f"g{draw.randrange(groups)}")
    targets = arrange(now, [*grouped, back], replicas)
    kept = {p for p in range(partitions + 3) if draw.random() < 0.5}
    group_of = {one.uuid: one.group for one in [*grouped, back]}
    chosen = preferring(now, targets, {"back": kept, "gone": {0}}, group_of)
    assert loads(chosen) == loads(targets)
    assert copied(now, chosen) <= copied(now, targets)
    for row, target in zip(chosen, targets, strict=True):
        here = [group_of[m] for m in row if m is not None]
        apart = len(set(here)) == len(here)
        assert apart or len({group_of[m] for m in target if m is not None}) < len([m for m in target if m])
    mine = sum("back" in row for p, row in enumerate(chosen) if p in kept)
    assert mine >= sum("back" in row for p, row in enumerate(targets) if p in kept)


def test_who_keeps_nothing_changes_nothing() -> None:
    now, _, rest = crashed(4, 50, 2, "m3")
    targets = arrange(now, [*rest, Candidate("back")], 2)
    assert preferring(now, targets, {}, {}) == targets
