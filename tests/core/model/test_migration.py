"""A migration changes exactly the slots it names, and refuses rows that it was not planned for."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from holdfast.core.model.migration import Migration, MigrationKind, ReplicaList

CASES: list[tuple[Migration, MigrationKind, ReplicaList, ReplicaList]] = [
    (Migration(0, "B", 1, -1, "D", -1, 1), MigrationKind.MOVE, ("A", "B", "C"), ("A", "D", "C")),
    (Migration(0, None, -1, -1, "D", -1, 1), MigrationKind.COPY, ("A", None, "C"), ("A", "D", "C")),
    (Migration(0, "A", 0, 1, "D", -1, 0), MigrationKind.SHIFT_DOWN, ("A", None, "C"), ("D", "A", "C")),
    (Migration(0, None, -1, -1, "C", 2, 1), MigrationKind.SHIFT_UP, ("A", None, "C"), ("A", "C", None)),
    (Migration(0, "B", 1, -1, "C", 2, 1), MigrationKind.SHIFT_UP, ("A", "B", "C"), ("A", "C", None)),
    (
        Migration(0, "B", 1, 3, "C", 2, 1),
        MigrationKind.SHIFT_UP,
        ("A", "B", "C", None),
        ("A", "C", None, "B"),
    ),
    (Migration(0, None, -1, -1, "B", 1, 0), MigrationKind.SHIFT_UP, (None, "B", "C"), ("B", None, "C")),
    (Migration(0, "A", 0, 1, "B", 1, 0), MigrationKind.EXCHANGE, ("A", "B", "C"), ("B", "A", "C")),
    (Migration(0, "B", 1, 3, "D", 3, 1), MigrationKind.EXCHANGE, ("A", "B", "C", "D"), ("A", "D", "C", "B")),
]


@pytest.mark.parametrize(("migration", "kind", "before", "after"), CASES, ids=str)
def test_each_form(
    migration: Migration, kind: MigrationKind, before: ReplicaList, after: ReplicaList
) -> None:
    assert migration.kind is kind
    assert migration.apply_to(before) == after
    assert migration.increment == sum(old != new for old, new in zip(before, after, strict=True))
    assert migration.changes_primary == (before[0] != after[0])
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(migration), type=Migration) == migration


@pytest.mark.parametrize(
    ("migration", "row", "why"),
    [
        (CASES[0][0], ("A", "X", "C"), "slot 1 .* holds X"),
        (CASES[0][0], ("A", None, "C"), "slot 1 .* holds None"),
        (CASES[0][0], ("A", "B", "D"), "D has slot 2"),
        (CASES[0][0], ("A",), "beyond the 1 slots"),
        (CASES[1][0], ("A", "B", "C"), "slot 1 .* holds B"),
        (CASES[2][0], ("A", "B", "C"), "slot 1 .* is not empty"),
        (CASES[4][0], ("A", "B", None), "C has slot -1"),
        (CASES[5][0], ("A", "B", "C"), "slot 3 is beyond"),
        (CASES[7][0], ("A", "C", "B"), "B has slot 2"),
        (CASES[7][0], ("B", "A", "C"), "slot 0 .* holds B"),
        (CASES[7][0], ("A", None, "C"), "B has slot -1"),
    ],
)
def test_a_row_that_does_not_fit_is_named(migration: Migration, row: ReplicaList, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        migration.apply_to(row)


@pytest.mark.parametrize(
    "indices",
    [
        (0, None, -1, -1, "D", -1, -1),  # no destination slot
        (0, None, -1, -1, "D", 0, 1),  # down without anyone in its place
        (0, None, 0, -1, "D", -1, 0),  # a source slot without a source
        (0, "A", 1, -1, "D", -1, 0),  # the source owns another slot
        (0, "A", 0, -1, "A", -1, 0),  # from itself
        (0, "A", 1, 0, "D", -1, 1),  # the source goes up
    ],
)
def test_impossible_records_cannot_be_made_or_received(indices: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match="impossible migration"):
        Migration(*indices)  # type: ignore[arg-type]
    with pytest.raises(msgspec.ValidationError, match="impossible migration"):
        msgspec.msgpack.decode(msgspec.msgpack.encode(indices), type=Migration)


def test_whatever_fits_keeps_the_row_valid() -> None:
    """Every record with four slots and four members, against every shape of row."""
    rows: list[ReplicaList] = [
        ("A", "B", "C", None),
        ("A", None, "C", "B"),
        ("A", None, None, "B"),
        (None, "A", "B", "C"),
    ]
    indices = range(-1, 4)
    fitted = 0
    for source, destination in itertools.product([None, "A", "B", "C", "D"], "ABCD"):
        for a, b, c, d in itertools.product(indices, repeat=4):
            try:
                migration = Migration(0, source, a, b, destination, c, d)
            except ValueError:
                continue
            for row in rows:
                try:
                    after = migration.apply_to(row)
                except ValueError:
                    continue
                fitted += 1
                owners = [owner for owner in after if owner is not None]
                assert len(owners) == len(set(owners))
                assert after[migration.destination_new] == destination
                assert migration.increment == sum(old != new for old, new in zip(row, after, strict=True))
    assert fitted > 30
