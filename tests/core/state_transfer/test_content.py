"""Chunks hold what the partition holds, each entry once, none larger than allowed; whatever goes or comes meanwhile."""

from __future__ import annotations

import random

import pytest

from holdfast.core.model.update_counter import UpdateCounter
from holdfast.core.state_transfer.content import Content, ContentPart
from holdfast.core.store.chunk import ENTRY_OVERHEAD, Chunk
from holdfast.core.store.replica import MapReplica, map_replica


def filled(sizes: list[int]) -> MapReplica:
    held = map_replica("m")
    for number, size in enumerate(sizes):
        held.state.entries[b"%06d" % number] = b"v" * size
    return held


def entries_of(chunk: Chunk) -> dict[bytes, bytes]:
    return {key: value for part in chunk.maps for key, value in zip(part.keys, part.values, strict=True)}


def cost(entries: dict[bytes, bytes]) -> int:
    return sum(len(key) + len(value) + ENTRY_OVERHEAD for key, value in entries.items())


@pytest.mark.parametrize("seed", range(30))
def test_every_entry_is_in_one_chunk_and_no_chunk_is_too_large(seed: int) -> None:
    draw = random.Random(seed)
    largest = draw.choice([0, 10, 300, 3000])
    maps = [filled([draw.randint(0, largest) for _ in range(draw.choice([0, 1, 700]))]) for _ in range(3)]
    limit = draw.choice([1024, 5000, 100_000])
    content = Content([ContentPart(held) for held in maps], 0)
    supplied: list[tuple[bytes, bytes]] = []
    chunks = 0
    while (chunk := content.chunk(limit, 0)) is not None:
        found = [pair for part in chunk.maps for pair in zip(part.keys, part.values, strict=True)]
        assert found
        assert chunk.size == sum(len(key) + len(value) + ENTRY_OVERHEAD for key, value in found)
        assert chunk.size <= limit or len(found) == 1
        supplied += found
        chunks += 1
    assert supplied == [pair for held in maps for pair in held.state.entries.items()]
    # They are well filled, too.
    assert chunks <= 3 + 2 * sum(cost(held.state.entries) for held in maps) / (
        limit - min(largest, limit // 2)
    )


@pytest.mark.parametrize("gone", [1, 16, 64, 300])
def test_what_is_removed_meanwhile_takes_nothing_else_with_it(gone: int) -> None:
    """The oldest entries go in the order in which they came, as in a queue."""
    held = filled([100] * 500)
    content = Content([ContentPart(held)], 0)
    first = content.chunk(1024, 0)
    assert first is not None
    supplied = entries_of(first)
    for key in [key for key in held.state.entries if key not in supplied][:gone]:
        held.state.drop(key)
    while (chunk := content.chunk(1024, 0)) is not None:
        supplied |= entries_of(chunk)
    assert supplied.keys() == held.state.entries.keys()


def test_a_chunk_has_the_values_of_its_moment() -> None:
    held = filled([100] * 50)
    content = Content([ContentPart(held)], 0)
    content.chunk(1024, 0)
    held.updates = UpdateCounter(7)
    for key in held.state.entries:
        held.state.entries[key] = b"new"
    chunk = content.chunk(1024, 0)
    assert chunk is not None
    assert chunk.maps[0].counter == 7
    assert set(chunk.maps[0].values) == {b"new"}
